"""The laws that a run has to obey wherever its processes died, and what broke them.

Guarantees: a law speaks in sentences that name the run, the event or the effect; a run that obeys
them all ends as without a crash, has lost nothing that was recorded, has repeated no recorded
step, and has left the world as it would have been. Drawn values (`ctx.random`, `ctx.uuid`) may
differ, times too. Leaves to others: what a caller wants besides.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from durable_mini.codec import encode
from durable_mini.engine import Engine
from durable_mini.events import Event, EventKind, Run
from durable_mini.journal import Journal
from durable_mini.lab.exploring.process import BODIES, Call
from durable_mini.lab.exploring.trial import RUN_ID, Histories, Trial, histories
from durable_mini.ops import verify

Invariant = Callable[..., "str | bool | None"]
"""Takes the run, its events and the world, or the first of these. Says what is wrong in a sentence,
by returning it or in an `AssertionError`; None or True is well, False is not."""

UNDONE = "undo "
"""Begins the endpoint of a row in which a receiver took something back; its body is the key of what
was taken back."""

_LONGEST_BOOKING = 60  # in a sentence; more is compared
_DRAWN = frozenset({EventKind.RANDOM, EventKind.UUID})
_KEYED = frozenset({EventKind.EFFECT, EventKind.UNDO, EventKind.TRY})
_KEY_SIGNS = str.maketrans({sign: f"%{ord(sign):02X}" for sign in "/#~%"})


class Ending(NamedTuple):
    """How a trial ended: its runs, their histories, and what is booked in the world.

    `told` has what is compared of each run, `calls` kinds and names in order; `booked` is None
    where the world keeps no rows.
    """

    runs: dict[str, Run]
    histories: Histories
    told: dict[str, str]
    calls: dict[tuple[str, int], list[str]]
    booked: Counter[str] | None


NO_ENDING = Ending({}, {}, {}, {}, None)
"""Of a journal that refuses to tell."""


def ending_of(trial: Trial, journal: Journal) -> Ending:
    """Read how a trial ended."""
    runs = {run.run_id: run for run in Engine(journal).runs()}
    found = histories(journal)
    drawn = _drawn_values(found)
    told = told_runs(runs.values(), found)
    calls = {of: [_called(event) for event in events] for of, events in found.items()}
    calls = {of: [call for call in names if call] for of, names in calls.items()}
    return Ending(runs, found, told, calls, _booked(trial.world, drawn))


def told_runs(runs: Iterable[Run], found: Histories) -> dict[str, str]:
    """How each run ended, in a line that is the same whatever was drawn and however often it died.

    Args:
        runs: which.
        found: the histories that the drawn values are in.
    """
    drawn = _drawn_values(found)
    return {run.run_id: _told(run, drawn) for run in runs}


def _drawn_values(found: Histories) -> list[tuple[str, str]]:
    """Each drawn value as text, and what stands for it in a comparison."""
    draws = [event for events in found.values() for event in events if event.kind in _DRAWN]
    values = [event.payload.get("result") for event in draws]
    return [(str(value), f"<drawn {place}>") for place, value in enumerate(values, 1)]


def _same_words(value: Any, drawn: list[tuple[str, str]]) -> str:
    text = encode(value) if not isinstance(value, str) else value
    for found, stands_for in drawn:
        text = text.replace(found, stands_for)
    return text


def _told(run: Run, drawn: list[tuple[str, str]]) -> str:
    error = f", error {run.error.type}: {run.error.message}" if run.error else ""
    said = f"{run.status}, result {encode(run.result)}{error}, cost {run.cost:g}"
    return _same_words(said, drawn)


def _called(event: Event) -> str:
    """A call as histories are compared; a failed undo is tried again by every attempt."""
    retried = event.kind is EventKind.TRY and event.payload["of"] == EventKind.UNDO
    return "" if retried else str(event)


def _booked(world: Any, drawn: list[tuple[str, str]]) -> Counter[str] | None:
    rows = getattr(world, "rows", None)
    if rows is None:
        return None
    try:
        said = [f"{row.endpoint} for {row.order}: {row.body!r}" for row in rows]
    except AttributeError:
        return None
    return Counter(_same_words(text, drawn) for text in said)


# ---- the laws ----------------------------------------------------------------------------------


def broken_laws(
    trial: Trial, ending: Ending, journal: Journal, crash_free: Ending, more: Sequence[Invariant]
) -> list[str]:
    """What is wrong with a trial, in sentences; empty when all is well."""
    found = [
        *trial.trouble,
        *_other_end(ending, crash_free),
        *_other_history(ending, crash_free),
        *_lost(trial, ending),
        *_executed_again(trial, ending),
        *_other_bookings(ending, crash_free),
        *_wrong_undos(trial.world),
        *_shared_keys(ending),
        *(
            f"run {run_id}, event {seq}: {problem}"
            for run_id, seq, problem in verify(journal).problems
        ),
        *(said for invariant in more if (said := _asked(invariant, trial, ending))),
    ]
    return list(dict.fromkeys(found))


def _other_end(ending: Ending, crash_free: Ending) -> Iterator[str]:
    """Status, result, error and cost are those of the crash-free run, and no run is missing."""
    for run_id in {**crash_free.told, **ending.told}:
        now, then = ending.told.get(run_id, "missing"), crash_free.told.get(run_id, "missing")
        if now != then:
            yield f"run {run_id} is {now}; without a crash it is {then}"


def _other_history(ending: Ending, crash_free: Ending) -> Iterator[str]:
    """The histories have the same calls in the same order; what came from outside may move."""
    for of, then in crash_free.calls.items():
        now = ending.calls.get(of, [])
        if sorted(now) == sorted(then) and _inside(now) == _inside(then):
            continue
        pairs = zip([*now, "nothing"], [*then, "nothing"], strict=False)
        seq, (got, wanted) = next(
            (seq, pair) for seq, pair in enumerate(pairs, 1) if pair[0] != pair[1]
        )
        yield f"run {of[0]}, event {seq} is {got}; without a crash it is {wanted}"


def _inside(calls: list[str]) -> list[str]:
    outside = tuple(f"{kind} " for kind in (EventKind.SIGNAL, EventKind.CHILD_ENDED))
    return [call for call in calls if not call.startswith(outside) and call != EventKind.CANCEL]


def _lost(trial: Trial, ending: Ending) -> Iterator[str]:
    """What was recorded when a process ended is there in the end, unchanged and gapless."""
    for of, events in ending.histories.items():
        if [event.seq for event in events] != list(range(1, len(events) + 1)):
            yield f"run {of[0]}: its sequence numbers have a gap"
    for kept in trial.kept:
        for of, events in kept.items():
            if ending.histories.get(of, [])[: len(events)] != events:
                yield f"run {of[0]}: an event that was recorded is lost or changed"


def _executed_again(trial: Trial, ending: Ending) -> Iterator[str]:
    """Each body ran once for its record, and once for each process that ended in between."""
    for call, (executed, recorded, lost) in sorted(accounts(trial, ending).items()):
        if executed != recorded + lost:
            yield (
                f"{call.kind} {call.name!r} of run {call.run_id} was executed {executed} times for "
                f"{recorded} records, and {lost} executions were lost in a crash"
            )


def accounts(trial: Trial, ending: Ending) -> dict[Call, tuple[int, int, int]]:
    """For each call how often its body was begun, how often that is recorded, and how often lost.

    Lost is what a process had begun and not recorded when it died, or when another took over.
    """
    executed, recorded, lost = Counter[Call](), Counter[Call](), Counter[Call]()
    for process in trial.processes:
        executed += process.executed
        lost += Counter([process.lost] if process.lost else [])
    for (run_id, _), events in ending.histories.items():
        for event in events:
            kind = event.payload["of"] if event.kind is EventKind.TRY else event.kind
            if kind in BODIES:
                recorded[Call(run_id, EventKind(kind), event.name)] += 1
    calls = executed | recorded | lost
    return {call: (executed[call], recorded[call], lost[call]) for call in calls}


def _other_bookings(ending: Ending, crash_free: Ending) -> Iterator[str]:
    """The world's books are those of the crash-free run: nothing twice, nothing missing."""
    now, then = ending.booked, crash_free.booked
    if now is None or then is None:
        return
    for what in now | then:
        if now[what] != then[what]:
            short = what if len(what) <= _LONGEST_BOOKING else f"{what[:_LONGEST_BOOKING]}…"
            yield f"{short} is booked {_times(now[what])}; without a crash {_times(then[what])}"


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")


def _wrong_undos(world: Any) -> Iterator[str]:
    """The world took back only what it had booked before, and each thing once."""
    standing: set[str] = set()
    for row in getattr(world, "rows", ()):
        if not str(getattr(row, "endpoint", "")).startswith(UNDONE):
            standing.add(getattr(row, "key", ""))
        elif row.body in standing:
            standing.remove(row.body)
        else:
            yield f"{row.endpoint} for {row.order} took back what wasn't there, or not any more"


def _shared_keys(ending: Ending) -> Iterator[str]:
    """An undo has a key of its own, and a key names its run, or the business that it is about."""
    effects: set[str] = set()
    undos: set[str] = set()
    for (run_id, _), events in ending.histories.items():
        known = [run_id.translate(_KEY_SIGNS), *_words(events[0].payload.get("input"))]
        for event in events:
            key = event.payload.get("key") if event.kind in _KEYED else None
            if isinstance(key, str):
                undo = EventKind.UNDO in (event.kind, event.payload.get("of"))
                (undos if undo else effects).add(key)
                if not any(word in key for word in known):
                    yield (
                        f"run {run_id}, event {event.seq}: key {key!r} names neither the run nor "
                        "anything that the run was given: other runs have it too"
                    )
            known += _words(event.payload.get("result"))
    for key in sorted(effects & undos):
        yield f"key {key!r} is an effect's and an undo's: a receiver takes one for a repeat"


def _words(value: Any) -> Iterator[str]:
    """Every string and number in a JSON value, as text."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _words(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool) and str(value):
        yield str(value)


def _asked(invariant: Invariant, trial: Trial, ending: Ending) -> str | None:
    """What a caller's invariant says of a trial."""
    run = ending.runs.get(RUN_ID)
    if run is None:
        return None  # which the other laws say
    facts = run, ending.histories[RUN_ID, run.generation], trial.world
    name = getattr(invariant, "__name__", repr(invariant))
    try:
        said = invariant(*facts[: _number_of_arguments(invariant)])
    except AssertionError as error:
        return str(error) or f"{name} doesn't hold"
    return f"{name} doesn't hold" if said is False else said if isinstance(said, str) else None


def _number_of_arguments(invariant: Invariant) -> int:
    try:
        kinds = [given.kind for given in inspect.signature(invariant).parameters.values()]
    except (TypeError, ValueError):
        return 3
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return 3
    placed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(sum(kind in placed for kind in kinds), 3)
