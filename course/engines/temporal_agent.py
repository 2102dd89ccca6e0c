"""The reference agent on Temporal: a server keeps the history, workers execute what it asks for.

Temporal guarantees that an activity whose completion is in the history is not executed again, and
that the server hands a dead worker's work to another one: an activity when its time-out has passed,
a workflow task when nobody takes it from the dead worker's own queue. It leaves to you: the server,
and a receiver that knows the key of a repeated effect. The server listens at `$TEMPORAL_ADDRESS`.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from durable_mini.lab.engines.stage import AMOUNT, Result, outside, stage

TASK_QUEUE = "reference-agent"
LOST_AFTER = timedelta(seconds=2)  # short: here somebody waits

world = outside()


def key() -> str:
    """What Temporal offers: the workflow's id, and the id that the history gave this activity."""
    info = activity.info()
    return f"{info.workflow_id}/{info.activity_id}"


@activity.defn
def think(task: str, about: Any) -> str:
    return world.think(task, about)


@activity.defn
def charge(order: str) -> str:
    return world.charge(order, AMOUNT, idempotency_key=key())


@activity.defn
def send_email(order: str, letter: str) -> str:
    return world.send_email(order, letter, idempotency_key=key())


@activity.defn
def update_crm(order: str) -> str:
    return world.update_crm(order, "upgraded", idempotency_key=key())


async def call(step: Callable[..., str], *args: Any) -> str:
    """An activity with a time-out for each try; by default the server tries for ever."""
    return await workflow.execute_activity(step, args=args, start_to_close_timeout=LOST_AFTER)


@workflow.defn
class ReferenceAgent:
    @workflow.run
    async def run(self, order: str) -> Result:
        plan = await call(think, "plan", order)
        notes = await call(think, "research", plan)
        draft = await call(think, "draft", notes)
        receipt = await call(charge, order)
        letter = await call(think, "compose", [draft, receipt])
        await call(send_email, order, letter)
        await call(update_crm, order)
        return {"order": order, "letter": letter}


@asynccontextmanager
async def working() -> AsyncIterator[Callable[[str], Awaitable[Result]]]:
    """A worker, with a client beside it that asks for workflows."""
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"])

    async def run(order: str) -> Result:
        return await client.execute_workflow(
            ReferenceAgent.run,
            order,
            id=order,
            task_queue=TASK_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )

    with ThreadPoolExecutor() as threads:
        async with Worker(
            client,
            task_queue=TASK_QUEUE,
            workflows=[ReferenceAgent],
            activities=[think, charge, send_email, update_crm],
            activity_executor=threads,
            sticky_queue_schedule_to_start_timeout=LOST_AFTER,
        ):
            yield run


if __name__ == "__main__":
    stage("temporal", working)
