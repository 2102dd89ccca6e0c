"""A run that was looked on while it ran, and where in it each word of the vocabulary is.

Guarantees: what is told was seen during real attempts on the real engine (`Notes` stands between
the engine and a crash plan, and changes nothing), or is read from the journal. A word that isn't in
a run has no place in it: a run without a crash has no crash window to point at. Leaves to others:
what the words mean (`terms`), drawing (`terms_pictures`). It tells of one run from its admission
on, in its first generation, with one call at a time (no `gather`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from durable_mini.engine import Engine
from durable_mini.events import ENDED, OUTSIDE, Event, EventKind, Position, RunRow
from durable_mini.lab.watch import Probe

_WAITS = frozenset({EventKind.WAIT, EventKind.TIMER})
_OUTCOMES = frozenset({EventKind.RECEIVED, EventKind.TIMED_OUT, EventKind.FIRED})
_WORK = frozenset({EventKind.STEP, EventKind.EFFECT, EventKind.UNDO})


@dataclass(frozen=True, slots=True)
class ToldAttempt:
    """One attempt as it was seen.

    Args:
        number: from 1.
        worker: who drove the run.
        token: the fencing token of its claim.
        since_s: when it was first seen, in seconds of the engine's clock.
        lease_until_s: when its lease runs out unless it is renewed.
        known: how many events the journal had when its first live call began.
        live: the numbers of the events that its live calls are, or would have been.
        died: where in its last live call it died; empty for one that ended by itself.
    """

    number: int
    worker: str
    token: int
    since_s: float
    lease_until_s: float
    known: int
    live: tuple[int, ...]
    died: str = ""

    def worked_at(self, seq: int) -> bool:
        """Whether it executed an event's call, or at least began with the work."""
        return seq in self.live and (self.died != Position.BEFORE or self.live[-1] != seq)


@dataclass(frozen=True, slots=True)
class ToldRun:
    """A run, its attempts and its journal; `structure` is the hash that it was admitted with."""

    run_id: str
    workflow: str
    version: str
    structure: str
    status: str
    attempts: tuple[ToldAttempt, ...]
    history: tuple[Event, ...]

    def event(self, *kinds: str, name: str | None = None) -> Event | None:
        """The first event of one of these kinds, and of this name if one is given."""
        fits = (e for e in self.history if e.kind in kinds and name in {None, e.name})
        return next(fits, None)

    def key(self, event: Event) -> str:
        """The idempotency key that an effect or an undo was done with."""
        return str(event.payload.get("key", ""))

    def executions(self, seq: int) -> int:
        """How often an event's call was executed live, as far as its work was begun."""
        return sum(one.worked_at(seq) for one in self.attempts)

    @property
    def dead(self) -> ToldAttempt | None:
        """The first attempt that died."""
        return next((one for one in self.attempts if one.died), None)


class Notes:
    """A probe that notes each attempt of one run, and hands every call on to the probe behind it.

    Args:
        plan: the probe to hand calls to, such as `CrashAt`; None lets the run go through.
    """

    def __init__(self, plan: Probe | None = None) -> None:
        self._plan = plan
        self._attempts: list[ToldAttempt] = []
        self._look: Callable[[], tuple[RunRow, int, float]] | None = None

    def follow(self, engine: Engine, run_id: str) -> None:
        """Say whose calls these are; before the run's first attempt."""
        journal, clock = engine.journal, engine.clock

        def look() -> tuple[RunRow, int, float]:
            row = journal.find(run_id)
            return row, len(journal.events(row)), clock.now()

        self._look = look

    def __call__(self, position: Position, kind: EventKind, name: str) -> None:
        """Note the call when it begins, then ask the plan behind; a crash closes the attempt."""
        if position is Position.BEFORE and self._look is not None:
            self._note(*self._look())
        if self._plan is None:
            return
        try:
            self._plan(position, kind, name)
        except BaseException:
            self._attempts[-1] = replace(self._attempts[-1], died=str(position))
            raise

    def _note(self, row: RunRow, known: int, now_s: float) -> None:
        if not self._attempts or self._attempts[-1].number != row.attempts:
            claim = (row.attempts, row.worker or "", row.token, now_s, row.lease_until)
            self._attempts.append(ToldAttempt(*claim, known, ()))
        last = self._attempts[-1]
        if last.live[-1:] != (known + 1,):
            self._attempts[-1] = replace(last, live=(*last.live, known + 1))

    def told(self, engine: Engine, run_id: str) -> ToldRun:
        """Return what was seen so far, with the journal as it is now."""
        row = engine.journal.find(run_id)
        identity = row.run_id, row.workflow, row.version, row.structure, str(row.status)
        return ToldRun(*identity, tuple(self._attempts), tuple(engine.history(run_id)))


# ---- where a word is in a run ------------------------------------------------------------------

Part: TypeAlias = Literal["title", "attempt", "work", "window", "lease", "idle", "event", "world"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a told run a word is, and what it is there.

    Args:
        word: a word of the vocabulary.
        said: a sentence about this very run.
        part: what of the drawing is meant.
        attempt: which attempt, where the part belongs to one.
        first: the number of the first event that is meant; 0 where none is.
        last: the last one.
        until: the last attempt that is meant, where several are.
        spot: for the title: which of its three pieces; for an attempt: 1 is its token.
        label: what is written at its mark; the word itself by default.
    """

    word: str
    said: str
    part: Part
    attempt: int = 0
    first: int = 0
    last: int = 0
    until: int = 0
    spot: int = 0
    label: str = ""

    @property
    def title(self) -> str:
        """What is written at its mark."""
        return self.label or self.word


def places(told: ToldRun) -> tuple[Place, ...]:
    """Return the places of the words that this run has, in the order in which it comes to them."""
    found = [find(told) for find in (*_BEGINNING, *_WAITING, *_DYING, *_GOING_ON, *_ENDING)]
    return tuple(place for place in found if place is not None)


Find: TypeAlias = Callable[[ToldRun], Place | None]


def _workflow(told: ToldRun) -> Place:
    said = f"The function {told.workflow!r}. Each attempt called it anew, from its first line."
    return Place("workflow", said, "title", spot=1)


def _run(told: ToldRun) -> Place:
    workers = _counted(len({one.worker for one in told.attempts}), "worker")
    said = f"All that you see here is one run. Its id is {told.run_id!r}, {workers} had a hand in "
    said += f"it, and how it stands is {told.status!r}."
    return Place("run", said, "title", spot=0)


def _structure(told: ToldRun) -> Place:
    said = f"The run was admitted with {told.structure[:8]}…: a journal for exactly these calls in "
    return Place("structure hash", f"{said}this order.", "title", spot=2)


def _admission(told: ToldRun) -> Place:
    said = f"Event 1: run {told.run_id!r} is on record with its input "
    said += f"{told.history[0].payload['input']!r}, and no worker has seen it yet."
    return Place("admission", said, "event", first=1, last=1)


def _journal(told: ToldRun) -> Place:
    said = f"These {_counted(len(told.history), 'event')}, in this order. Each attempt added to the"
    return Place(
        "journal", f"{said}m, and none changed one.", "event", first=1, last=len(told.history)
    )


def _attempt(told: ToldRun) -> Place | None:
    if not told.attempts:
        return None
    one = told.attempts[0]
    ended = f"died {one.died}" if one.died else "ended by itself"
    said = f"A row is one attempt. Number 1 was made by {one.worker} and {ended}."
    return Place("attempt", said, "attempt", attempt=1)


def _step(told: ToldRun) -> Place | None:
    event = told.event(EventKind.STEP)
    if event is None or "result" not in event.payload:
        return None
    said = f"{event.name!r} was executed {_times(told.executions(event.seq))}. Event {event.seq} "
    return _at_work(told, "step", event, f"{said}has its result: {event.payload['result']!r}.")


def _live(told: ToldRun) -> Place | None:
    event = told.event(EventKind.STEP)
    if event is None:
        return None
    said = "A solid box was executed. The dark bar behind it is its journal write."
    return _at_work(told, "live", event, said)


def _suspension(told: ToldRun) -> Place | None:
    event = told.event(*_WAITS)
    if event is None:
        return None
    who = next((one for one in told.attempts if event.seq in one.live), None)
    came = told.event(*_OUTCOMES)
    if who is None or came is None or came.seq in who.live:
        return None  # it didn't have to wait
    waited_h = (came.recorded_at - event.recorded_at) / 3600
    said = f"For {waited_h:g} hours the run stood in the journal, and nothing else of it existed."
    return Place("suspension", said, "idle", attempt=who.number, first=event.seq + 1)


def _timer(told: ToldRun) -> Place | None:
    event = told.event(*_WAITS)
    if event is None or event.payload.get("due_at") is None:
        return None
    due_h = (event.payload["due_at"] - event.recorded_at) / 3600
    said = f"Event {event.seq} says when the wait for {event.name!r} is over at the latest: "
    said += f"{due_h:g} hours after it began."
    return Place("time-out", said, "event", first=event.seq, last=event.seq)


def _signal(told: ToldRun) -> Place | None:
    event = told.event(EventKind.SIGNAL)
    if event is None:
        return None
    read = told.event(EventKind.RECEIVED)
    after = f" The code got it in event {read.seq}." if read else " Nobody has read it."
    said = f"Event {event.seq} came from outside: {event.payload['result']!r}. No attempt was "
    said += f"running.{after}"
    return Place("signal", said, "event", first=event.seq, last=event.seq)


def _compensation(told: ToldRun) -> Place | None:
    event = told.event(EventKind.COMPENSATE)
    if event is None:
        return None
    said = f"Event {event.seq}: what would undo {event.name!r} is on record before it is done."
    label = "compensation, noted"
    return Place("compensation", said, "event", first=event.seq, last=event.seq, label=label)


def _effect(told: ToldRun) -> Place | None:
    event = told.event(EventKind.EFFECT)
    if event is None:
        return None
    said = f"{event.name!r} changed the world outside, and the diamond says so."
    return _at_work(told, "effect", event, said)


def _window(told: ToldRun) -> Place | None:
    dead = told.dead
    if dead is None or dead.died != Position.WINDOW:
        return None
    seq = dead.live[-1]
    name = told.history[seq - 1].name if seq <= len(told.history) else "the call"
    said = f"{dead.worker} died here: {name!r} was done, and event {seq} wasn't written."
    return Place("crash window", said, "window", attempt=dead.number, first=seq, last=seq)


def _lease(told: ToldRun) -> Place | None:
    dead, after = told.dead, _after_death(told)
    if dead is None or after is None:
        return None
    said = f"{dead.worker}'s claim outlived {dead.worker} by {after.since_s - dead.since_s:.0f} s. "
    said += f"No sign of life came, it ran out, and {after.worker} took over."
    return Place("lease", said, "lease", attempt=dead.number)


def _token(told: ToldRun) -> Place | None:
    if len(told.attempts) < 2:
        return None
    last = told.attempts[-1]
    before = ", ".join(str(one.token) for one in told.attempts[:-1])
    said = f"{last.worker} has token {last.token}; the claims before it had {before}. A write that "
    said += f"comes with a lower one than {last.token} is refused now."
    return Place("fencing token", said, "attempt", attempt=last.number, spot=1)


def _replay(told: ToldRun) -> Place | None:
    after = told.attempts[-1] if len(told.attempts) > 1 else None
    if after is None:
        return None
    said = f"Hatched boxes: attempt {after.number} got "
    said += f"{_counted(len(_asked(told, after.known)), 'record')} handed out, and executed nothing"
    return Place("replay", f"{said} for them.", "work", after.number, 2, after.known)


def _deterministic(told: ToldRun) -> Place | None:
    dead, after = told.dead, _after_death(told)
    if dead is None or after is None or not dead.live:
        return None
    last = min(dead.live[-1], after.known + 1)
    said = f"Attempts {dead.number} and {after.number} asked for the same calls in the same order, "
    said += f"up to event {last}. That is why the records fit."
    return Place("deterministic", said, "work", dead.number, 2, last, after.number)


def _checkpoint(told: ToldRun) -> Place | None:
    after = told.attempts[-1] if len(told.attempts) > 1 else None
    if after is None:
        return None
    said = f"Attempt {after.number} resumed from events 1 to {after.known}: for it, they were the "
    return Place("checkpoint", f"{said}saved progress.", "event", first=1, last=after.known)


def _at_least_once(told: ToldRun) -> Place | None:
    event = told.event(EventKind.EFFECT)
    if event is None or told.executions(event.seq) < 2:
        return None
    said = f"{event.name!r} again: executed {_times(told.executions(event.seq))} in all, for one "
    said += "line in the journal."
    by = [one for one in told.attempts if event.seq in one.live][-1]
    return Place("at-least-once", said, "work", by.number, event.seq, event.seq)


def _key(told: ToldRun) -> Place | None:
    event = told.event(EventKind.EFFECT)
    if event is None:
        return None
    said = f"Each time {event.name!r} was executed it carried {told.key(event)!r}: the run's id "
    said += "and the step's name."
    return Place("idempotency key", said, "world", first=event.seq, last=event.seq)


def _failed(told: ToldRun) -> Place | None:
    event = next((e for e in told.history if e.kind in _WORK and "error" in e.payload), None)
    if event is None:
        return None
    error = event.payload["error"]
    said = f"{event.name!r} failed for good: {error['message']!r}. That is a record like any other "
    said += f"(event {event.seq}), and replay would raise it again. No process died of it."
    label = "event: a failure"
    return Place("event", said, "event", first=event.seq, last=event.seq, label=label)


def _saga(told: ToldRun) -> Place | None:
    first, last = told.event(EventKind.COMPENSATE), told.event(EventKind.UNDO)
    if first is None or last is None:
        return None
    said = f"Events {first.seq} to {last.seq}: an undo is noted, a deed is done, a later one fails,"
    said += " the undo runs."
    return Place("saga", said, "event", first=first.seq, last=last.seq)


def _undo(told: ToldRun) -> Place | None:
    event = told.event(EventKind.UNDO)
    if event is None:
        return None
    said = f"The compensation of {event.name!r} at work: a step of its own, with a key of its own, "
    said += f"{told.key(event)!r}. It adds event {event.seq} and erases none."
    done = _at_work(told, "compensation", event, said)
    return done and replace(done, label="compensation, done")


_BEGINNING: tuple[Find, ...] = (_run, _workflow, _structure, _admission, _attempt, _step, _live)
_WAITING: tuple[Find, ...] = (_timer, _suspension, _signal)
_DYING: tuple[Find, ...] = (_compensation, _effect, _key, _window, _lease, _token)
_GOING_ON: tuple[Find, ...] = (_replay, _deterministic, _checkpoint, _at_least_once)
_ENDING: tuple[Find, ...] = (_failed, _undo, _saga, _journal)


def _at_work(told: ToldRun, word: str, event: Event, said: str) -> Place | None:
    """The first attempt that got to an event's work."""
    by = next((one for one in told.attempts if one.worked_at(event.seq)), None)
    if by is None:
        return None
    return Place(word, said, "work", by.number, event.seq, event.seq)


def _after_death(told: ToldRun) -> ToldAttempt | None:
    dead = told.dead
    later = (one for one in told.attempts if dead is not None and one.number > dead.number)
    return next(later, None)


def _asked(told: ToldRun, known: int) -> list[Event]:
    """The events up to a number that durable calls have made."""
    return [e for e in told.history[1:known] if e.kind not in OUTSIDE and e.kind not in ENDED]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
