"""The laws that every history obeys: the shape of each payload, and what may follow what.

Guarantees: pure; it reads one generation's events and names the first that no engine can have
written there. Leaves to others: checksums and gaps (`journal`), what two generations or a run and
its row owe each other (`checking`).
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any

from durable_mini.events import CLOSING, OUTSIDE, Event, EventKind as Kind

MIGRATED = "Migrated"
"""The type of the error of a run that has a successor; the message is the successor's id."""

Check = tuple[str, Callable[[Any], bool]]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_error(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and {"type", "message"} <= value.keys() <= {"type", "message", "step"}
        and all(isinstance(said, str) for name, said in value.items() if name != "step")
        and isinstance(value.get("step"), str | None)
    )


_ANYTHING: Check = ("anything", lambda _: True)
_TEXT: Check = ("a string", lambda value: isinstance(value, str))
_TRUTH: Check = ("true or false", lambda value: isinstance(value, bool))
_COUNT: Check = ("a count", _is_count)
_TIME: Check = ("a time in seconds", _is_number)
_TIME_OR_NONE: Check = ("a time in seconds or null", lambda it: it is None or _is_number(it))
_AMOUNT: Check = ("a number of at least 0", lambda value: _is_number(value) and value >= 0)
_ERROR: Check = ("an error with its type and message", _is_error)
_NAMES: Check = (
    "a list of strings",
    lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
)
_SPENT: Check = (
    "a cost and a number of steps",
    lambda it: isinstance(it, list) and len(it) == 2 and _is_number(it[0]) and _is_count(it[1]),
)
_BODIES = (Kind.STEP, Kind.EFFECT, Kind.NOW, Kind.RANDOM, Kind.UUID, Kind.UNDO)
_TRIED: Check = ("a kind of call that has a body", lambda value: value in _BODIES)

# What a payload must have, by kind; a result and an error are alternatives where both are named.
_CALL = {"args": _TEXT, "result": _ANYTHING, "error": _ERROR}
_REQUIRED: dict[str, dict[str, Check]] = {
    Kind.ADMITTED: {"version": _TEXT, "calls": _NAMES, "input": _ANYTHING},
    Kind.STEP: _CALL,
    Kind.EFFECT: {**_CALL, "key": _TEXT},
    Kind.NOW: {**_CALL, "result": _TIME},
    Kind.RANDOM: {
        **_CALL,
        "result": ("a number in [0, 1)", lambda n: _is_number(n) and 0 <= n < 1),
    },
    Kind.UUID: {**_CALL, "result": _TEXT},
    Kind.TRY: {"args": _TEXT, "of": _TRIED, "error": _ERROR, "due_at": _TIME},
    Kind.TIMER: {"due_at": _TIME},
    Kind.WAIT: {"due_at": _TIME_OR_NONE},
    Kind.RECEIVED: {"signal_id": _TEXT, "result": _ANYTHING},
    Kind.CHILD: {"args": _TEXT, "workflow": _TEXT},
    Kind.JOINED: {"result": _ANYTHING, "error": _ERROR},
    Kind.PATCH: {"result": _TRUTH},
    Kind.COMPENSATE: {"args": _TEXT},
    Kind.UNDO: {"args": _TEXT, "key": _TEXT, "result": _ANYTHING},
    Kind.SIGNAL: {"signal_id": _TEXT, "result": _ANYTHING},
    Kind.CHILD_ENDED: {"result": _ANYTHING, "error": _ERROR},
    Kind.COMPLETED: {"result": _ANYTHING},
    Kind.FAILED: {"error": _ERROR},
    Kind.CANCELLED: {"error": _ERROR},
    Kind.CONTINUED: {"input": _ANYTHING},
}
_BUDGET = {"limit": _TEXT, "spent": _AMOUNT, "allowed": _AMOUNT}
_OPTIONAL: dict[str, Check] = {
    "attempt": _COUNT,
    "began_with": _ANYTHING,
    "cost": _AMOUNT,
    "key": _TEXT,
    "key_base": _TEXT,
    "opaque": _NAMES,
    "parent": ("a run id or null", lambda value: isinstance(value, str | None)),
    "patches": _NAMES,
    "since": _TIME,
    "spent": _SPENT,
    "tries": _COUNT,
}
_NAMED_LIKE_THEIR_KIND = {Kind.NOW, Kind.RANDOM, Kind.UUID, Kind.PIVOT, Kind.CANCEL}
_NAMES_OF = {
    **{kind: {str(kind)} for kind in _NAMED_LIKE_THEIR_KIND},
    Kind.TIMER: {"sleep"},
    Kind.FIRED: {"sleep"},
    Kind.STOP: {"cancelled", "budget"},
}
_ANSWERS: dict[Kind, Kind] = {
    Kind.FIRED: Kind.TIMER,
    Kind.RECEIVED: Kind.WAIT,
    Kind.TIMED_OUT: Kind.WAIT,
    Kind.JOINED: Kind.CHILD,
}
_OPENING = frozenset(_ANSWERS.values())
_UNDOING = frozenset({Kind.UNDO, Kind.TRY})
_ENDING_AFTER_STOP = {"cancelled": Kind.CANCELLED, "budget": Kind.FAILED}


def payload_of(event: Event) -> dict[str, Any] | None:
    """An event's payload if it is a JSON object."""
    try:
        payload = event.payload
    except ValueError:
        return None
    return payload if isinstance(payload, dict) else None


def is_migrated(event: Event) -> bool:
    """Whether a run ended here because it has a successor."""
    error: Any = (payload_of(event) or {}).get("error")
    return event.kind is Kind.CANCELLED and _is_error(error) and error["type"] == MIGRATED


def broken_shape(event: Event, payload: dict[str, Any]) -> str | None:
    """What an event's name or payload lacks, whatever stands before it."""
    names = _NAMES_OF.get(event.kind)
    if names is not None and event.name not in names:
        return f"its name is {event.name!r}, not {' or '.join(sorted(names))}"
    wanted = _REQUIRED.get(event.kind, {})
    if event.kind is Kind.STOP and event.name == "budget":
        wanted = _BUDGET
    if {"result", "error"} <= wanted.keys():
        if len({"result", "error"} & payload.keys()) != 1:
            return "the payload needs either a result or an error"
        absent = {"result", "error"} - payload.keys()
        wanted = {name: check for name, check in wanted.items() if name not in absent}
    for name, (words, holds) in {**_OPTIONAL, **wanted}.items():
        if name in wanted and name not in payload:
            return f"the payload has no {name}"
        if name in payload and not holds(payload[name]):
            return f"{name} is {json.dumps(payload[name])[:60]}, not {words}"
    return None


class History:
    """One generation's events, read in order; after `first_broken` it tells how they stand.

    Attributes: `open` is the wait, timer or child that has no answer yet; `ended_children` are the
    children whose end the run was told; `unread` has the signals that nobody has received;
    `signal_ids` all that arrived; `spent` the cost and the steps that a next generation carries on;
    `attempt` the last attempt that is marked.
    """

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self.open: Event | None = None
        self.ended_children: dict[str, dict[str, Any]] = {}
        self.unread: list[Event] = []
        self.signal_ids: set[str] = set()
        self.spent: tuple[float, int] = (0.0, 0)
        self.attempt = 1
        self._tries = Counter[tuple[str, str]]()
        self._to_undo: list[str] = []
        self._patches: set[str] = set()
        self._stop: str | None = None
        self._undoing = self._pivoted = self._cancel = False

    def first_broken(self) -> tuple[int, str] | None:
        """Sequence number of the first event that breaks a law, and what is wrong with it."""
        for event in self._events:
            problem = self._broken(event)
            if problem is not None:
                return event.seq, problem
        return None

    def _broken(self, event: Event) -> str | None:
        if (event.kind is Kind.ADMITTED) != (event.seq == 1):
            return "the admission is not where it belongs"
        if event.kind in CLOSING and event.seq != len(self._events):
            return f"{len(self._events) - event.seq} more events follow the ending"
        payload = payload_of(event)
        if payload is None:
            return "the payload is no JSON object"
        problem = broken_shape(event, payload)
        return problem or next(self._faults(event, payload), None)

    def _faults(self, event: Event, payload: dict[str, Any]) -> Iterator[str]:
        """What is wrong with an event where it stands; afterwards its consequences are noted."""
        if event.kind is Kind.ADMITTED:
            cost, steps = payload.get("spent", (0.0, 0))
            self.spent = float(cost), steps
            return
        if event.kind in OUTSIDE:
            yield from self._from_outside(event, payload)
            return
        yield from self._out_of_place(event)
        if event.kind in _ANSWERS:
            yield from self._wrong_answer(event, payload)
        elif event.kind in CLOSING:
            yield from self._wrong_ending(event)
        elif event.kind in _UNDOING:
            yield from self._wrong_undo(event, payload)
        yield from self._wrong_counts(event, payload)
        if event.kind is Kind.PATCH and event.name in self._patches:
            yield "the patch is decided already"
        if event.kind is Kind.STOP and event.name == "cancelled" and not self._cancel:
            yield "it was stopped, and nobody had asked for it"
        self._note(event, payload)

    def _from_outside(self, event: Event, payload: dict[str, Any]) -> Iterator[str]:
        if event.kind is Kind.SIGNAL:
            if payload["signal_id"] in self.signal_ids:
                yield f"signal {payload['signal_id']!r} is here already"
            self.signal_ids.add(payload["signal_id"])
            self.unread.append(event)
        elif event.kind is Kind.CHILD_ENDED:
            self.ended_children[event.name] = payload
        elif self._pivoted:
            yield "a cancellation was taken after the point of no return"
        else:
            self._cancel = True

    def _out_of_place(self, event: Event) -> Iterator[str]:
        """What may not stand here, whatever it says."""
        answered = _ANSWERS.get(event.kind)
        if answered and (self.open is None or self.open[1:3] != (answered, event.name)):
            yield f"nothing before it asks for it: it answers a {answered} {event.name!r}"
        ends_it = event.kind is Kind.STOP or is_migrated(event)
        if self.open is not None and not answered and not ends_it:
            yield f"event {self.open.seq}, {self.open}, has no answer yet"
        over = "the stop" if self._stop else "the first undo" if self._undoing else None
        if over and event.kind not in _UNDOING | CLOSING:
            yield f"it comes after {over}, from where on a run only undoes"
        if self._pivoted and event.kind in {Kind.STOP, Kind.UNDO}:
            yield "it comes after the point of no return"

    def _wrong_answer(self, event: Event, payload: dict[str, Any]) -> Iterator[str]:
        if self.open is None:
            return
        due_at, asked = self.open.payload.get("due_at"), self.open.seq
        in_time = [  # before the wait is in time whatever the clock said
            signal
            for signal in self.unread
            if signal.name == event.name
            if due_at is None or signal.seq < asked or signal.recorded_at <= due_at
        ]
        said = {name: value for name, value in payload.items() if name != "attempt"}
        if event.kind is Kind.RECEIVED:
            if not in_time or said != in_time[0].payload:
                next_one = f"event {in_time[0].seq}" if in_time else "none"
                yield f"it isn't the signal that is to be read next, which is {next_one}"
            self.unread.remove(in_time[0])
        elif event.kind is Kind.TIMED_OUT and (in_time or due_at is None):
            why = f"event {in_time[0].seq} came in time" if in_time else "it has no time limit"
            yield f"the wait timed out, but {why}"
        elif event.kind is Kind.JOINED and said != self.ended_children.get(event.name):
            yield "it isn't what the run was told of the child's end"

    def _wrong_ending(self, event: Event) -> Iterator[str]:
        if event.name != self._events[0].name:
            yield f"it ends workflow {event.name!r}, admitted was {self._events[0].name!r}"
        if is_migrated(event):
            return
        if self._stop and event.kind is not _ENDING_AFTER_STOP[self._stop]:
            yield f"the run was stopped ({self._stop}) and ended as {event.kind}"
        if self._undoing and event.kind not in {Kind.FAILED, Kind.CANCELLED}:
            yield f"the run undid something and ended as {event.kind}"
        if self._pivoted and event.kind in {Kind.FAILED, Kind.CANCELLED}:
            yield f"the run ended as {event.kind} after the point of no return"
        if self._to_undo and not self._pivoted and event.kind is not Kind.COMPLETED:
            yield f"compensation {self._to_undo[-1]!r} was not carried out"

    def _wrong_undo(self, event: Event, payload: dict[str, Any]) -> Iterator[str]:
        of_undo = event.kind is Kind.UNDO or payload["of"] == Kind.UNDO
        if of_undo and self._to_undo[-1:] != [event.name]:
            next_one = f"{self._to_undo[-1]!r}" if self._to_undo else "nothing"
            yield f"it undoes {event.name!r}, what is to be undone next is {next_one}"
        if not of_undo and (self._stop or self._undoing):
            yield "it was tried after the run had begun to undo"

    def _wrong_counts(self, event: Event, payload: dict[str, Any]) -> Iterator[str]:
        call = payload.get("of", str(event.kind)), event.name
        before, tries = self._tries[call], payload.get("tries", 1)
        if event.kind in (*_BODIES, Kind.TRY) and tries != before + 1:
            yield f"it is try {tries}, and {before} before it failed"
        if "attempt" in payload and payload["attempt"] <= self.attempt:
            yield f"attempt {payload['attempt']} begins after attempt {self.attempt}"

    def _note(self, event: Event, payload: dict[str, Any]) -> None:
        """Remember what an event means for those that follow."""
        kind, (cost, steps) = event.kind, self.spent
        self.spent = cost + payload.get("cost", 0.0), steps + (kind in {Kind.STEP, Kind.EFFECT})
        self.attempt = payload.get("attempt", self.attempt)
        self.open = event if kind in _OPENING else None
        self._tries[payload.get("of", str(kind)), event.name] += kind is Kind.TRY
        if kind in _BODIES:
            del self._tries[str(kind), event.name]
        if kind is Kind.COMPENSATE:
            self._to_undo.append(event.name)
        elif kind is Kind.UNDO:
            self._to_undo.pop()
        elif kind is Kind.PATCH:
            self._patches.add(event.name)
        elif kind is Kind.STOP:
            self._stop = event.name
        self._undoing |= kind is Kind.UNDO or payload.get("of") == Kind.UNDO
        self._pivoted |= kind is Kind.PIVOT
