"""The reference agent as a job on huey: a queue with retries, and nothing that knows of steps.

huey guarantees that a job which raised is put into the queue again, as often as `retries` says. It
leaves to you: what was done before the error, which is done again, and a job whose worker was
killed, since a job is deleted from the queue when it is taken. The queue is the file
`$HUEY_SQLITE`; `$HUEY_JOB` may name the short job.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from huey import SqliteHuey

from durable_mini.lab.engines.stage import AMOUNT, Result, outside, stage

RETRIES = 3

world = outside()
queue = SqliteHuey(filename=os.environ.get("HUEY_SQLITE", ":memory:"), fsync=True)


@queue.task(retries=RETRIES)
def reference_agent(order: str) -> Result:
    plan = world.think("plan", order)
    notes = world.think("research", plan)
    draft = world.think("draft", notes)
    receipt = world.charge(order, AMOUNT, idempotency_key=f"{order}/charge")
    letter = world.think("compose", [draft, receipt])
    world.send_email(order, letter, idempotency_key=f"{order}/send_email")
    world.update_crm(order, "upgraded", idempotency_key=f"{order}/update_crm")
    return {"order": order, "letter": letter}


@queue.task(retries=RETRIES)
def short_job(order: str) -> Result:
    letter = world.think("draft", order)
    world.send_email(order, letter, idempotency_key=f"{order}/send_email")
    return {"order": order, "letter": letter}


JOBS = {"agent": reference_agent, "short": short_job}


def consume() -> None:
    """What huey's consumer does, until the queue is empty: take a job, and execute it."""
    while (job := queue.dequeue()) is not None:
        queue.execute(job)


@contextmanager
def working() -> Iterator[Callable[[str], Result]]:
    """A worker on the queue; the first one that is asked for an order puts it in."""

    def run(order: str) -> Result:
        ask = JOBS[os.environ.get("HUEY_JOB", "agent")]
        if queue.put_if_empty(f"asked/{order}", 1):
            queue.put(f"job/{order}", ask(order).id)
        consume()
        job_id = queue.get(f"job/{order}", peek=True)
        result = queue.get(job_id, peek=True)
        if result is None:
            raise LookupError(f"order {order}: the queue is empty, and there is no result")
        return result

    yield run


if __name__ == "__main__":
    stage("huey", working)
