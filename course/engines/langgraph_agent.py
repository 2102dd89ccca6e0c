"""The reference agent on LangGraph: a graph library that writes a checkpoint after each task.

LangGraph guarantees that a task whose result is in the thread's checkpoint is not executed again,
once somebody invokes the thread again. It leaves to you: noticing that a process died, invoking
again, and a receiver that knows the key of a repeated effect. By default (`async`) it writes while
the next task already runs, so that a kill can take the record of the one before along with it;
`$LANGGRAPH_DURABILITY=sync` writes first. The checkpoints are in the file `$LANGGRAPH_SQLITE`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.config import get_config
from langgraph.func import entrypoint, task

from durable_mini.lab.engines.stage import AMOUNT, Result, outside, stage

DURABILITY: Any = os.environ.get("LANGGRAPH_DURABILITY", "async")

world = outside()


def key(step: str) -> str:
    """What LangGraph offers: the thread's id, which the caller chose. The step you add yourself."""
    return f"{get_config()['configurable']['thread_id']}/{step}"


@task
def think(task: str, about: object) -> str:
    return world.think(task, about)


@task
def charge(order: str) -> str:
    return world.charge(order, AMOUNT, idempotency_key=key("charge"))


@task
def send_email(order: str, letter: str) -> str:
    return world.send_email(order, letter, idempotency_key=key("send_email"))


@task
def update_crm(order: str) -> str:
    return world.update_crm(order, "upgraded", idempotency_key=key("update_crm"))


def reference_agent(order: str) -> Result:
    plan = think("plan", order).result()
    notes = think("research", plan).result()
    draft = think("draft", notes).result()
    receipt = charge(order).result()
    letter = think("compose", [draft, receipt]).result()
    send_email(order, letter).result()
    update_crm(order).result()
    return {"order": order, "letter": letter}


@contextmanager
def working() -> Iterator[Callable[[str], Result]]:
    """The graph on its file; a thread that is unfinished is invoked with no input, and goes on."""
    with SqliteSaver.from_conn_string(os.environ["LANGGRAPH_SQLITE"]) as checkpoints:
        graph = entrypoint(checkpointer=checkpoints)(reference_agent)

        def run(order: str) -> Result:
            thread: RunnableConfig = {"configurable": {"thread_id": order}}
            unfinished = graph.get_state(thread).next
            return graph.invoke(None if unfinished else order, thread, durability=DURABILITY)

        yield run


if __name__ == "__main__":
    stage("langgraph", working)
