"""Replay: what the journal says to the next durable call of the code.

Guarantees: a recorded value is handed out only to the call that it was recorded for, compared by
kind, name and argument digest; at the first difference it raises, before anything has been
executed or written. Pure: it reads a list of events and nothing else. Leaves to others: executing
what isn't recorded.
"""

from collections.abc import Sequence
from typing import Any

from durable_mini.errors import NonDeterminismError
from durable_mini.events import ENDINGS, Event, EventKind


class Cursor:
    """Walks a run's recorded events in step with its code.

    Args:
        run_id: whose events they are, for the error.
        events: the history so far, admission first.
        compare_arguments: False compares kind and name only.
    """

    __slots__ = ("_compare_arguments", "_events", "_position", "_run_id")

    def __init__(self, run_id: str, events: Sequence[Event], *, compare_arguments: bool) -> None:
        self._run_id = run_id
        self._events = [event for event in events if event.kind not in ENDINGS]
        self._position = 1  # the admission belongs to the engine, not to the code
        self._compare_arguments = compare_arguments

    @property
    def replaying(self) -> bool:
        """Whether the next durable call is answered from the journal."""
        return self._position < len(self._events)

    def take(
        self, kind: EventKind, name: str, digest: str | None = None
    ) -> tuple[Event, Any] | None:
        """The recorded event for this call with its payload, or None when the call is to be
        executed live.

        Raises:
            NonDeterminismError: the journal holds another call at this place.
        """
        if self._position >= len(self._events):
            return None
        event = self._events[self._position]
        requested = f"{kind} {name!r}" if name != kind else str(kind)
        if event.kind is not kind or event.name != name:
            raise NonDeterminismError(self._run_id, event.seq, str(event), requested)
        payload = event.payload
        if self._compare_arguments and digest is not None and payload["args"] != digest:
            raise NonDeterminismError(
                self._run_id,
                event.seq,
                f"{event} with arguments of digest {payload['args']}",
                f"{requested} with arguments of digest {digest}",
            )
        self._position += 1
        return event, payload

    def finish(self, ending: str) -> None:
        """Refuse an end of the workflow that leaves recorded calls unasked for.

        Raises:
            NonDeterminismError: the journal holds more than the code asked for.
        """
        if self._position < len(self._events):
            event = self._events[self._position]
            raise NonDeterminismError(self._run_id, event.seq, str(event), ending)
