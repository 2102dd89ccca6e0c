"""The reference agent on this course's engine, to lay beside the five others.

durable_mini guarantees that a step whose event is in the journal is not executed again, and that
code which no longer fits the journal is refused before anything is used. It leaves to you: a worker
that is started again, and a receiver that knows the key of a repeated effect. It runs on one
machine. The journal is the file `$DURABLE_MINI_JOURNAL`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from durable_mini import Context, Engine, RunStatus, SQLiteJournal, workflow
from durable_mini.lab.engines.stage import AMOUNT, Result, outside, stage

world = outside()


@workflow(version="1")
def reference_agent(ctx: Context, order: str) -> Result:
    plan = ctx.step("plan", world.think, "plan", order)
    notes = ctx.step("research", world.think, "research", plan)
    draft = ctx.step("draft", world.think, "draft", notes)
    receipt = ctx.effect("charge", world.charge, order, AMOUNT)  # the engine hands the key over
    letter = ctx.step("compose", world.think, "compose", [draft, receipt])
    ctx.effect("send_email", world.send_email, order, letter)
    ctx.effect("update_crm", world.update_crm, order, "upgraded")
    return {"order": order, "letter": letter}


@contextmanager
def working() -> Iterator[Callable[[str], Result]]:
    """An engine on its journal; a run that is there already is taken over, and goes on."""
    with SQLiteJournal(os.environ["DURABLE_MINI_JOURNAL"]) as journal:
        engine = Engine(journal, [reference_agent])

        def run(order: str) -> Result:
            ended = engine.run(reference_agent, order, run_id=order)
            if ended.status is not RunStatus.COMPLETED:
                raise RuntimeError(f"{ended.status}: {ended.error}")
            return ended.result

        yield run


if __name__ == "__main__":
    stage("durable_mini", working)
