"""The reference agent on DBOS: a library in your process, and a database that holds the records.

DBOS guarantees that a step whose row is in `operation_outputs` is not executed again, and that a
workflow which was started goes on when a process of the same application version is launched. It
leaves to you: a receiver that knows the key of a repeated effect, and something that starts the
process again. `$DBOS_SYSTEM_DATABASE_URL` may be SQLite or PostgreSQL; nothing here changes.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dbos import DBOS, DBOSConfig, SetWorkflowID

from durable_mini.lab.engines.stage import AMOUNT, Result, outside, stage

world = outside()


def key() -> str:
    """What DBOS offers: the workflow's id, and the number that it gave to this step."""
    return f"{DBOS.workflow_id}/{DBOS.step_id}"


@DBOS.step()
def think(task: str, about: object) -> str:
    return world.think(task, about)


@DBOS.step()
def charge(order: str) -> str:
    return world.charge(order, AMOUNT, idempotency_key=key())


@DBOS.step()
def send_email(order: str, letter: str) -> str:
    return world.send_email(order, letter, idempotency_key=key())


@DBOS.step()
def update_crm(order: str) -> str:
    return world.update_crm(order, "upgraded", idempotency_key=key())


@DBOS.workflow()
def reference_agent(order: str) -> Result:
    plan = think("plan", order)
    notes = think("research", plan)
    draft = think("draft", notes)
    receipt = charge(order)
    letter = think("compose", [draft, receipt])
    send_email(order, letter)
    update_crm(order)
    return {"order": order, "letter": letter}


@contextmanager
def working() -> Iterator[Callable[[str], Result]]:
    """A process with DBOS in it; `launch` also takes up what an earlier one left unfinished."""
    url = os.environ["DBOS_SYSTEM_DATABASE_URL"]
    DBOS(config=DBOSConfig(name="reference-agent", system_database_url=url, log_level="WARNING"))
    DBOS.launch()

    def run(order: str) -> Result:
        with SetWorkflowID(order):  # the same id again is the same workflow, not a second one
            return DBOS.start_workflow(reference_agent, order).get_result()

    try:
        yield run
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    stage("dbos", working)
