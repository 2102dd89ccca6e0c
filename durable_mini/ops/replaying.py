"""Replaying a stored history against code: does a changed workflow still fit the runs it has?

Guarantees: nothing is executed and nothing is written; what is raised is what `resume` would raise.
Leaves to others: carrying a run over to code that doesn't fit (`migrating`).
"""

import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn
from urllib.parse import unquote

from durable_mini.clock import FakeClock
from durable_mini.codec import encode_sorted
from durable_mini.context import in_turn
from durable_mini.engine import Engine
from durable_mini.errors import JournalCorruptError, NonDeterminismError
from durable_mini.events import (
    CLOSING,
    OUTSIDE,
    Event,
    EventKind,
    Position,
    Run,
    RunError,
    RunRow,
    RunStatus,
)
from durable_mini.journal.memory import MemoryJournal
from durable_mini.lease import Holder
from durable_mini.ops.laws import is_migrated
from durable_mini.structure import Workflow

_NO_CALLS = CLOSING | OUTSIDE | {EventKind.ADMITTED, EventKind.PATCH}
_SHOWN_CHARACTERS = 200


class Replayed(NamedTuple):
    """How far the code came with a history.

    `answered` counts the recorded calls, failed tries included: all of them, or it would have
    raised. `ending` is the kind of ending that the code came to: completed, failed, cancelled or
    continued. Where it came to none, `stands_at` says what it would do next, or waits for.
    """

    answered: int
    ending: EventKind | None
    stands_at: str | None


class Unrecorded(BaseException):
    """The code asked for a call that the history doesn't have."""

    def __init__(self, kind: EventKind, name: str) -> None:
        self.call = Event(0, kind, name, "{}", 0.0)


def replay_history(
    workflow: Workflow,
    events: Sequence[Event],
    *,
    run_id: str | None = None,
    generation: int | None = None,
    compare_arguments: bool = True,
) -> Replayed:
    """Run a workflow against a stored history, executing and writing nothing.

    Meant for a unit test of a change: take the history of a run that is on its way, or of one that
    has ended, from `Engine.history` (a copy of its journal beside the tests will do), and see
    whether the code of today still takes it. The replay stops at the first call that isn't
    recorded. If the history has an ending, the code has to come to the same one.

    Args:
        workflow: the code of today; its children and steps need not be there.
        events: one generation's history from its admission on.
        run_id: what the code sees as `ctx.run_id`; by default what the history's keys and children
            tell, or "replayed" where they tell nothing.
        generation: likewise.
        compare_arguments: as for `Engine`.

    Returns:
        How many calls were answered, and where the code came to.

    Raises:
        NonDeterminismError: the code asks for something else than is recorded, or comes to another
            ending; naming the event.
        StructureChangedError: its durable calls aren't those that the run started with.
        UnknownWorkflowError: it is the history of another workflow.
        JournalCorruptError: the events are no history: no admission, or a gap.
        Exception: what the workflow code raises and is no verdict comes out as it is.

    >>> from durable_mini import Engine, MemoryJournal, workflow
    >>> @workflow()
    ... def greet(ctx, name):
    ...     return ctx.step("greeting", str.title, name)
    >>> engine = Engine(MemoryJournal(), [greet])
    >>> history = engine.history(engine.run(greet, "ada", run_id="r-1").run_id)
    >>> replay_history(greet, history)
    Replayed(answered=1, ending=<EventKind.COMPLETED: 'completed'>, stands_at=None)
    """
    told_id, told_generation = _identity(events)
    whose = run_id or told_id, generation or told_generation
    came_to, said = replay(workflow, events, *whose, compare_arguments=compare_arguments)
    recorded = events[-1]
    if recorded.kind in CLOSING and not is_migrated(recorded):
        stopped = any(event.kind == EventKind.STOP for event in events)
        if came_to is None or _verdict(came_to, stopped) != _verdict(recorded, stopped):
            facts = {"recorded": _shown(recorded), "requested": said}
            raise NonDeterminismError(run_id=whose[0], seq=recorded.seq, **facts)
    answered = sum(event.kind not in _NO_CALLS for event in events)
    if came_to is not None and came_to.kind in CLOSING:
        return Replayed(answered, came_to.kind, None)
    return Replayed(answered, None, said)


def replay(
    workflow: Workflow,
    events: Sequence[Event],
    run_id: str,
    generation: int,
    *,
    compare_arguments: bool,
) -> tuple[Event | None, str]:
    """What the code comes to after the recorded calls, as an event and in words.

    An ending, or the next call that isn't recorded; no event, only words, where the run waits.
    """
    _check_dense(events, run_id)
    identity = run_id, generation, events[0].name, workflow.version
    row = RunRow(*identity, structure="", status=RunStatus.PENDING)
    journal = MemoryJournal()
    is_open = events[-1].kind not in CLOSING
    journal.admit((row, [event[1:] for event in (events if is_open else events[:-1])]))
    clock = FakeClock(max(event.recorded_at for event in events))
    engine = _Replayer(journal, workflow, clock, compare_arguments=compare_arguments)
    try:
        run = engine.drive(row, Holder("replay_history"))
    except Unrecorded as stop:
        return stop.call, str(stop.call)
    last = journal.events(row)[-1]
    if last.kind in CLOSING:
        return last, _shown(last)
    return None, str(run and run.waiting_for)


class _Replayer(Engine):
    """An engine that executes nothing, on a journal that nobody keeps."""

    def __init__(
        self,
        journal: MemoryJournal,
        workflow: Workflow,
        clock: FakeClock,
        *,
        compare_arguments: bool,
    ) -> None:
        super().__init__(
            journal,
            [workflow],
            clock=clock,
            max_payload_bytes=sys.maxsize,
            max_events=sys.maxsize,
            compare_arguments=compare_arguments,
            probe=_stop_at,
            spread=in_turn,
        )

    def start(self, workflow: Workflow, *_: Any, **options: Any) -> NoReturn:
        raise Unrecorded(EventKind.CHILD, options.get("run_id") or workflow.name)

    def _give_up(self, row: RunRow, error: Exception | RunError, **more: Any) -> Run:
        if isinstance(error, Exception):
            raise error
        return super()._give_up(row, error, **more)


def _stop_at(_: Position, kind: EventKind, name: str) -> None:
    if kind is not EventKind.PATCH:  # an old run has decided it without recording it, or will
        raise Unrecorded(kind, name)


def _check_dense(events: Sequence[Event], run_id: str) -> None:
    for seq, event in enumerate(events, start=1):
        if event.seq != seq:
            raise JournalCorruptError("this event is missing", run_id, seq)
    if not events or events[0].kind != EventKind.ADMITTED:
        raise JournalCorruptError("the admission is missing", run_id, 1)


def _identity(events: Sequence[Event]) -> tuple[str, int]:
    """Run id and generation, where the id of a child or the key of an effect tells them."""
    for event in events:
        payload = event.payload
        named = {EventKind.CHILD: (payload.get("workflow"), event.name)}
        name, key = named.get(event.kind, (event.name, payload.get("key", "")))
        base, _, own = key.rpartition("/")
        if base and unquote(re.sub(r"#\d+$", "", own)) == name:
            run_id, _, generation = base.partition("~")
            return unquote(run_id), int(generation) if generation.isdecimal() else 1
    return "replayed", 1


def _verdict(event: Event, stopped: bool) -> str:
    """An ending in one text; what a stop says of itself is the engine's, and names the run."""
    payload = event.payload
    if stopped and "error" in payload:
        payload = {"error": payload["error"]["type"]}
    return f"{event.kind} {encode_sorted(payload)}"


def _shown(ending: Event) -> str:
    return f"{ending.kind} with {ending.text}"[:_SHOWN_CHARACTERS]
