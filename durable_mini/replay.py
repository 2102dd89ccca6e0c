"""Replay: what the journal says to the next durable call of the code.

Guarantees: a recorded value is handed out only to the call that it was recorded for, compared by
kind, name and argument digest; at the first difference it raises, before anything has been
executed or written. Pure: it reads a list of events and nothing else. Leaves to others: executing
what isn't recorded, and what arrives from outside (signals, cancel requests).
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from durable_mini import errors
from durable_mini.events import CLOSING, OUTSIDE, Event, EventKind

Found = tuple[int, Any]
"""What replay hands out: a sequence number and a payload."""

COUNTED = frozenset({EventKind.STEP, EventKind.EFFECT})
"""What a budget counts as a step."""

UNTRIED = 0, -inf
"""How many tries of a call failed, and when the next one is due: of a call that is new."""

_OUT_OF_ORDER = CLOSING | OUTSIDE | {EventKind.PATCH}


class Cursor:
    """Walks a run's recorded events in step with its code.

    Attributes: `spent` and `steps` count what has been handed out, or executed since, with earlier
    generations; `tried` has, for each call whose tries all failed so far, how many they were and
    when the next one is due; `decided` what is recorded about each patch; `admitted` is what the
    admission says.

    Args:
        run_id: whose events they are, for the error.
        events: the history so far, admission first.
        compare_arguments: False compares kind and name only.
    """

    def __init__(self, run_id: str, events: Sequence[Event], *, compare_arguments: bool) -> None:
        self._run_id, self._compare_arguments = run_id, compare_arguments
        self._events = [event for event in events if event.kind not in _OUT_OF_ORDER]
        self._position = 1  # the admission belongs to the engine, not to the code
        patches = {event.name: event for event in events if event.kind is EventKind.PATCH}
        self.decided = {name: bool(event.payload["result"]) for name, event in patches.items()}
        self._unasked = {name: patches[name] for name, taken in self.decided.items() if not taken}
        self.tried: dict[tuple[EventKind, str], tuple[int, float]] = {}
        self.admitted = events[0].payload
        self.spent, self.steps = self.admitted.get("spent", (0.0, 0))

    @property
    def replaying(self) -> bool:
        """Whether the next durable call is answered from the journal."""
        return self._position < len(self._events)

    def take(self, kind: EventKind, name: str, digest: str | None = None) -> Found | None:
        """Sequence number and payload recorded for this call, or None where it is to be executed.

        Raises:
            NonDeterminismError: the journal holds another call at this place.
            RunCancelledError, BudgetExceededError: the run was stopped at this place.
        """
        while self._position < len(self._events):
            if found := self._match(self._events[self._position], kind, name, digest):
                return found
        if self._unasked and kind is not EventKind.PATCH:  # the others may be asked for later
            self._refuse_unasked("the next durable call")
        return None

    def take_any(self, calls: Mapping[str, tuple[EventKind, str]]) -> tuple[str, Found] | None:
        """What is recorded next for one of several calls side by side, in completion order.

        Args:
            calls: by name the kind and argument digest of every call that isn't answered yet.

        Raises:
            NonDeterminismError: the journal has something else than one of them.
        """
        while self._position < len(self._events):
            event = self._events[self._position]
            if event.kind is not EventKind.STOP and event.name not in calls:
                raise self._diverged(event, str(event), f"one of {', '.join(map(repr, calls))}")
            kind, digest = calls.get(event.name, (EventKind.STOP, None))
            if found := self._match(event, kind, event.name, digest):
                return event.name, found
        self._refuse_unasked("the next durable call")
        return None

    def _match(self, event: Event, kind: EventKind, name: str, digest: str | None) -> Found | None:
        """Take one event: what is recorded, or None for a failed try, which is counted."""
        payload = event.payload
        tried = event.kind is EventKind.TRY and payload["of"] == kind
        if event.kind is EventKind.STOP:
            self._position += 1
            raise stop_error(self._run_id, event.seq, payload)
        if event.name != name or not (tried or event.kind is kind):
            raise self._diverged(event, str(event), str(event._replace(kind=kind, name=name)))
        if self._compare_arguments and payload.get("args") != digest:
            both = (f"{event} with arguments of digest {d}" for d in (payload.get("args"), digest))
            raise self._diverged(event, *both)
        self._position += 1
        failed, _ = self.tried.pop((kind, name), UNTRIED)
        if tried:
            self.tried[kind, name] = failed + 1, payload["due_at"]
            return None
        self.count(kind, payload.get("cost", 0.0))
        return event.seq, payload

    def count(self, kind: EventKind, cost: float) -> None:
        """Add a call to what the run has done and spent, over all its generations."""
        self.steps += kind in COUNTED
        self.spent += cost

    def next_is(self, kind: EventKind) -> bool:
        """Whether the journal has an event of this kind next."""
        return self.replaying and self._events[self._position].kind is kind

    def decision(self, patch_id: str) -> bool | None:
        """What was recorded about a patch; None where nothing is. Asking marks it as asked for."""
        self._unasked.pop(patch_id, None)
        return self.decided.get(patch_id)

    def finish(self, ending: str) -> None:
        """Refuse an end of the workflow that leaves recorded calls unasked for.

        Raises:
            NonDeterminismError: the journal holds more than the code asked for, or the old path
                that it recorded for a patch is gone.
        """
        if self.replaying:
            event = self._events[self._position]
            raise self._diverged(event, str(event), ending)
        self._refuse_unasked(ending)

    def _refuse_unasked(self, requested: str) -> None:
        """Refuse code that has come this far without asking for an old path that it took."""
        for event in self._unasked.values():
            raise self._diverged(event, f"{event} as not taken", f"{requested} without asking")

    def _diverged(self, event: Event, recorded: str, requested: str) -> errors.NonDeterminismError:
        facts = {"run_id": self._run_id, "seq": event.seq}
        return errors.NonDeterminismError(**facts, recorded=recorded, requested=requested)


def stop_error(run_id: str, seq: int, payload: dict[str, Any]) -> errors.DurableError:
    """The error that a recorded stop stands for: a spent budget, or a cancellation."""
    stopped = errors.BudgetExceededError if "limit" in payload else errors.RunCancelledError
    return stopped(**{**payload, "run_id": run_id, "seq": seq})
