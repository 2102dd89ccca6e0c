"""The reference agent on Absurd: tasks and their checkpoints are rows in PostgreSQL, no more.

Absurd guarantees that a step whose checkpoint is stored is not executed again, and that a task is
given to the next worker when its lease has run out; each checkpoint extends the lease. It leaves to
you: a receiver that knows the key of a repeated effect, and steps that take less than a lease. The
database, with Absurd's schema in it, is at `$ABSURD_DATABASE_URL`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from absurd_sdk import Absurd, TaskContext

from durable_mini.lab.engines.stage import AMOUNT, Result, outside, stage

LEASE_S = 2  # Absurd's default is 120; here somebody waits for the recovery
POLL_S = 0.05

world = outside()


def reference_agent(order: str, ctx: TaskContext) -> Result:
    def key(step: str) -> str:
        """What Absurd offers: the task's id. Which step it is you add yourself."""
        return f"{ctx.task_id}/{step}"

    def charge() -> str:
        return world.charge(order, AMOUNT, idempotency_key=key("charge"))

    def send_email() -> str:
        return world.send_email(order, letter, idempotency_key=key("send_email"))

    def update_crm() -> str:
        return world.update_crm(order, "upgraded", idempotency_key=key("update_crm"))

    plan = ctx.step("plan", lambda: world.think("plan", order))
    notes = ctx.step("research", lambda: world.think("research", plan))
    draft = ctx.step("draft", lambda: world.think("draft", notes))
    receipt = ctx.step("charge", charge)
    letter = ctx.step("compose", lambda: world.think("compose", [draft, receipt]))
    ctx.step("send_email", send_email)
    ctx.step("update_crm", update_crm)
    return {"order": order, "letter": letter}


@contextmanager
def working() -> Iterator[Callable[[str], Result]]:
    """A worker that takes tasks until the one that was asked for has ended."""
    app = Absurd(queue_name="agents")
    app.register_task("reference_agent")(reference_agent)
    app.create_queue()

    def run(order: str) -> Result:
        task = app.spawn("reference_agent", order, idempotency_key=order)
        while True:
            app.work_batch(claim_timeout=LEASE_S)
            told = app.fetch_task_result(task["task_id"])
            if told and told.state == "completed":
                return told.result
            if told and told.state in ("failed", "cancelled"):
                raise RuntimeError(f"{told.state}: {told.failure}")
            time.sleep(POLL_S)

    try:
        yield run
    finally:
        app.close()


if __name__ == "__main__":
    stage("absurd", working)
