"""Replay: what the journal says to the next durable call of the code.

Guarantees: a recorded value is handed out only to the call that it was recorded for, compared by
kind, name and argument digest; at the first difference it raises, before anything has been
executed or written. Pure: it reads a list of events and nothing else. Leaves to others: executing
what isn't recorded, and what arrives from outside (signals, cancel requests).
"""

from collections import deque
from collections.abc import Sequence
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

    Attributes: `ahead` is what is recorded and wasn't asked for yet; `spent` and `steps` count what
    has been handed out, or executed since, with earlier generations; `tried` has, for each call
    whose tries all failed so far, how many they were and when the next one is due; `decided` what
    is recorded about each patch, `unasked` the patches whose old path is recorded and that the code
    hasn't asked for; `admitted` is what the admission says, or means where it says nothing.

    Args:
        run_id: whose events they are, for the error.
        events: the history so far, admission first.
        compare_arguments: False compares kind and name only.
    """

    def __init__(self, run_id: str, events: Sequence[Event], *, compare_arguments: bool) -> None:
        self._run_id, self._compare_arguments = run_id, compare_arguments
        # The admission belongs to the engine, not to the code.
        self.ahead = deque(event for event in events[1:] if event.kind not in _OUT_OF_ORDER)
        patches = {event.name: event for event in events if event.kind is EventKind.PATCH}
        self.decided = {name: bool(event.payload["result"]) for name, event in patches.items()}
        self.unasked = {name: patches[name] for name, taken in self.decided.items() if not taken}
        self.tried: dict[tuple[EventKind, str], tuple[int, float]] = {}
        first = {"spent": (0.0, 0), "since": events[0].recorded_at}
        self.admitted = {**first, "began_with": events[0].payload["input"], **events[0].payload}
        self.spent, self.steps = self.admitted["spent"]

    def take(self, kind: EventKind, name: str, digest: str | None = None) -> Found | None:
        """Sequence number and payload recorded for this call, or None where it is to be executed.

        Raises:
            NonDeterminismError: the journal holds another call at this place.
            RunCancelledError, BudgetExceededError: the run was stopped at this place.
        """
        while self.ahead:
            if found := self._match(self.ahead.popleft(), kind, name, digest):
                return found
        if self.unasked and kind is not EventKind.PATCH:  # the others may be asked for later
            self._refuse_unasked("the next durable call")
        return None

    def take_any(self, calls: dict[str, tuple[EventKind, str]]) -> dict[str, Found]:
        """What is recorded for several calls side by side, in completion order.

        Args:
            calls: by name the kind and argument digest of every call; those that are answered are
                taken out.

        Raises:
            NonDeterminismError: the journal has something else than one of them.
        """
        done = {}
        while calls and self.ahead:
            event = self.ahead.popleft()
            if event.name not in calls and event.kind is not EventKind.STOP:
                raise self._diverged(event, str(event), f"one of {', '.join(map(repr, calls))}")
            kind, digest = calls.get(event.name, (EventKind.STOP, None))
            if found := self._match(event, kind, event.name, digest):
                done[event.name] = found
                del calls[event.name]
        if calls:
            self._refuse_unasked("the next durable call")
        return done

    def _match(self, event: Event, kind: EventKind, name: str, digest: str | None) -> Found | None:
        """Take one event: what is recorded, or None for a failed try, which is counted."""
        payload = event.payload
        tried = event.kind is EventKind.TRY and payload["of"] == kind
        if event.kind is EventKind.STOP:
            raise stop_error(self._run_id, event.seq, payload)
        if event.name != name or not (tried or event.kind is kind):
            raise self._diverged(event, str(event), str(event._replace(kind=kind, name=name)))
        if self._compare_arguments and payload.get("args") != digest:
            both = (f"{event} with arguments of digest {d}" for d in (payload.get("args"), digest))
            raise self._diverged(event, *both)
        failed, _ = self.tried.pop((kind, name), UNTRIED)
        if tried:
            self.tried[kind, name] = failed + 1, payload["due_at"]
            return None
        self.steps += kind in COUNTED
        self.spent += payload.get("cost", 0.0)
        return event.seq, payload

    def next_is(self, kind: EventKind) -> bool:
        """Whether the journal has an event of this kind next."""
        return bool(self.ahead) and self.ahead[0].kind is kind

    def finish(self, ending: str) -> None:
        """Refuse an end of the workflow that leaves recorded calls unasked for.

        Raises:
            NonDeterminismError: the journal holds more than the code asked for, or the old path
                that it recorded for a patch is gone.
        """
        for event in self.ahead:
            raise self._diverged(event, str(event), ending)
        self._refuse_unasked(ending)

    def _refuse_unasked(self, requested: str) -> None:
        """Refuse code that has come this far without asking for an old path that it took."""
        for event in self.unasked.values():
            raise self._diverged(event, f"{event} as not taken", f"{requested} without asking")

    def _diverged(self, event: Event, recorded: str, requested: str) -> errors.NonDeterminismError:
        facts = {"run_id": self._run_id, "seq": event.seq}
        return errors.NonDeterminismError(**facts, recorded=recorded, requested=requested)


def stop_error(run_id: str, seq: int, payload: dict[str, Any]) -> errors.DurableError:
    """The error that a recorded stop stands for: a spent budget, or a cancellation."""
    stopped = errors.BudgetExceededError if "limit" in payload else errors.RunCancelledError
    return stopped(**{**payload, "run_id": run_id, "seq": seq})
