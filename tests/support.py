"""What several test files need: workflows made of a list of calls, and a crash at a chosen place.

A scripted workflow asks for whatever its list says, under one structure hash, so a test can change
the code of a run without the structure check noticing first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durable_mini import Context, Engine, Run, Workflow, workflow
from durable_mini.events import RunRow
from durable_mini.journal import Journal
from durable_mini.lab.crashes import CrashAt, InjectedCrash

RUN_ID = "r-1"

Call = Callable[[Context], Any]


def scripted(*calls: Call) -> Workflow:
    """A workflow that makes these calls in order and returns what each of them gave."""

    @workflow(version="1", name="scripted")
    def agent(ctx: Context, _: Any) -> list[Any]:
        return [call(ctx) for call in calls]

    return agent


def prune_at(journal: Journal, row: RunRow, at: float) -> bool:
    """Prune a run that stands like this, whatever waits for it; whether it stood like this."""
    return journal.replace(row, row._replace(pruned_at=at, due_at=None))


class Counted:
    """A step body that returns its first argument and keeps every argument list it was given."""

    def __init__(self, result: Any = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._result = result

    def __call__(self, *args: Any, **_: Any) -> Any:
        self.calls.append(args)
        return args[0] if args else self._result


def run_live(journal: Any, agent: Workflow, value: Any = None, **options: Any) -> Run:
    """Start and drive a run without a crash."""
    return Engine(journal, [agent], **options).run(agent, value, run_id=RUN_ID)


def crash(
    journal: Any,
    agent: Workflow,
    name: str,
    position: Any = "after",
    value: Any = None,
    **options: Any,
) -> None:
    """Start a run if it isn't there, and drive it into a crash at a place in the step `name`."""
    engine = Engine(journal, [agent], probe=CrashAt(name, position), **options)
    engine.start(agent, value, run_id=RUN_ID)
    with pytest.raises(InjectedCrash):
        engine.resume(RUN_ID)


def resume(journal: Any, agent: Workflow, **options: Any) -> Run:
    """Drive the run with an engine of its own, as another process would."""
    return Engine(journal, [agent], **options).resume(RUN_ID)


def texts(journal: Any) -> list[tuple[int, str, str, str]]:
    """The run's history without its times, for comparing two histories whole."""
    history = Engine(journal).history(RUN_ID)
    return [(event.seq, str(event.kind), event.name, event.text) for event in history]
