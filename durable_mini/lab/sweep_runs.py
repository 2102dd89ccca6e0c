"""What a journal holds, told so that two can be compared, and driving what a damaged one still has.

Guarantees: what came from outside comes again, at its time and under its own id, so that a run that
lost the end of its history can end as it did. Leaves to others: the damage (`sweep`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from durable_mini.clock import FakeClock
from durable_mini.context import in_turn
from durable_mini.engine import Engine
from durable_mini.errors import DurableError
from durable_mini.events import CLOSING, ENDED, Event, EventKind, RunRow, RunStatus
from durable_mini.journal import Journal
from durable_mini.lab.exploring.judging import told_runs
from durable_mini.lab.exploring.trial import histories
from durable_mini.ops import verify
from durable_mini.structure import Workflow

Content = dict[str, tuple[RunRow, dict[int, list[Event]]]]
"""By run its row, and its events by generation."""

_MOST_ROUNDS = 500
_OVER = ENDED | {RunStatus.NEEDS_ATTENTION}


def content(journal: Journal) -> Content:
    """All that a journal tells: by run its row, and its events by generation.

    Raises:
        JournalCorruptError: it refuses to tell.
    """
    rows = list(journal.rows())
    found = histories(journal)
    return {
        row.run_id: (row, {n: found[row.run_id, n] for n in range(1, row.generation + 1)})
        for row in rows
    }


def events_of(found: Content, run_id: str) -> Iterator[Event]:
    """The events of a run's newest generation; none where it isn't there."""
    if run_id in found:
        row, generations = found[run_id]
        yield from generations[row.generation]


def changed_runs(before: Content, after: Content) -> list[str]:
    return [run_id for run_id in after if after[run_id] != before.get(run_id)]


def label_of(before: Content, after: Content) -> str:
    """What a transaction did, in a word or two: its event, or how its run stands after it."""
    run_id = next(iter(changed_runs(before, after)), "")
    if not run_id:
        return "nothing new"
    known, now = list(events_of(before, run_id)), list(events_of(after, run_id))
    if now == known:
        status = after[run_id][0].status
        return "claimed" if status is RunStatus.RUNNING else str(status)
    last = now[-1]
    own = last.kind is EventKind.ADMITTED or last.kind in CLOSING or last.name == last.kind
    return str(last.kind) if own else f"{last.kind} {last.name}"


def difference(whole: Content, found: Content) -> str:
    """The first thing that two contents tell differently; empty where there is none."""
    for run_id, (row, generations) in whole.items():
        if run_id not in found:
            return f"run {run_id} is gone"
        got, events = found[run_id]
        if events != generations:
            return f"the events of run {run_id} are others"
        for name, wanted, has in zip(row._fields, row, got, strict=True):
            if wanted != has:
                return f"{name} of run {run_id} is {has!r}, not {wanted!r}"
    return "there are other runs" if found != whole else ""


# ---- driving what was recovered ----------------------------------------------------------------


def ended_runs(journal: Journal) -> dict[str, str]:
    """How each run that has ended did, in a line that doesn't depend on what it drew."""
    ended = (run for run in Engine(journal).runs() if run.status in ENDED)
    return told_runs(ended, histories(journal))


def drive_all(journal: Journal, workflows: list[Workflow], whole: Content) -> None:
    """Drive every run to its end, or to a wait that nothing ends.

    Args:
        journal: what was recovered.
        workflows: the code; runs of other workflows are left alone.
        whole: what was recorded before the damage: where it has signals and cancel requests that
            were lost, they come again.
    """
    clock = FakeClock(_last_time(content(journal)))
    engine = Engine(journal, workflows, clock=clock, spread=in_turn)
    letters = sorted(_letters(engine, whole), key=lambda letter: letter[0])
    for _ in range(_MOST_ROUNDS):
        while letters and letters[0][0] <= clock.now():
            with suppress(DurableError):  # for a run that isn't there, or that goes on regardless
                letters.pop(0)[1]()
        for row in list(journal.rows()):
            if row.status not in _OVER and (row.workflow, row.version) in engine.registered:
                engine.resume(row.run_id)
        times = [row.due_at for row in journal.rows() if row.status is RunStatus.SUSPENDED]
        times += [letter[0] for letter in letters]
        known = [time for time in times if time is not None]
        if not known:
            return
        clock.advance(max(min(known) - clock.now(), 0.0))


def _last_time(found: Content) -> float:
    times = [event.recorded_at for run_id in found for event in events_of(found, run_id)]
    return max(times, default=0.0)


def _letters(engine: Engine, whole: Content) -> Iterator[tuple[float, Callable[[], Any]]]:
    """When each signal and each cancel request arrived, and how to send it again."""
    for run_id, (_, generations) in whole.items():
        for event in (event for events in generations.values() for event in events):
            if event.kind is EventKind.SIGNAL:
                said = event.payload
                again = partial(engine.signal, run_id, event.name, said["result"])
                yield event.recorded_at, partial(again, signal_id=said["signal_id"])
            elif event.kind is EventKind.CANCEL:
                yield event.recorded_at, partial(engine.cancel, run_id)


def wrong_end(journal: Journal, begun: Content, wanted: dict[str, str]) -> str | None:
    """What is wrong with the end of what was recovered and driven, if anything.

    Args:
        journal: opened anew.
        begun: what was recovered.
        wanted: how each run ended before the damage.
    """
    problems = verify(journal).problems
    if problems:
        return f"resumed, it breaks a law: {problems[0]}"
    now = content(journal)
    for run_id, (_, generations) in begun.items():
        for generation, events in generations.items():
            if now[run_id][1].get(generation, [])[: len(events)] != events:
                return f"resumed, run {run_id} lost what was recovered"
    ended = ended_runs(journal)
    for run_id in begun.keys() & wanted.keys():
        if ended.get(run_id) != wanted[run_id]:
            return f"resumed, run {run_id} is {ended.get(run_id)}; recorded was {wanted[run_id]}"
    return None
