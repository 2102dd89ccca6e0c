"""Replay: what the journal says to the next durable call of the code.

Guarantees: a recorded value is handed out only to the call that it was recorded for, compared by
kind, name and argument digest; at the first difference it raises, before anything has been
executed or written. Pure: it reads a list of events and nothing else. Leaves to others: executing
what isn't recorded.
"""

from collections.abc import Sequence
from typing import Any

from durable_mini.errors import NonDeterminismError
from durable_mini.events import ENDED, Event, EventKind


class Cursor:
    """Walks a run's recorded events in step with its code.

    Args:
        run_id: whose events they are, for the error.
        events: the history so far, admission first.
        compare_arguments: False compares kind and name only.
    """

    def __init__(self, run_id: str, events: Sequence[Event], *, compare_arguments: bool) -> None:
        self._run_id = run_id
        self._events = [event for event in events if event.kind not in ENDED]
        self._position = 1  # the admission belongs to the engine, not to the code
        self._compare_arguments = compare_arguments

    @property
    def replaying(self) -> bool:
        """Whether the next durable call is answered from the journal."""
        return self._position < len(self._events)

    def take(self, kind: EventKind, name: str, digest: str) -> tuple[int, Any] | None:
        """Sequence number and payload recorded for this call, or None where it is to be executed.

        Raises:
            NonDeterminismError: the journal holds another call at this place.
        """
        if self._position >= len(self._events):
            return None
        event = self._events[self._position]
        payload = event.payload
        requested = event._replace(kind=kind, name=name)
        if event != requested:
            raise self._diverged(event, str(event), str(requested))
        if self._compare_arguments and payload["args"] != digest:
            both = (f"{event} with arguments of digest {it}" for it in (payload["args"], digest))
            raise self._diverged(event, *both)
        self._position += 1
        return event.seq, payload

    def finish(self, ending: str) -> None:
        """Refuse an end of the workflow that leaves recorded calls unasked for.

        Raises:
            NonDeterminismError: the journal holds more than the code asked for.
        """
        if self._position < len(self._events):
            event = self._events[self._position]
            raise self._diverged(event, str(event), ending)

    def _diverged(self, event: Event, recorded: str, requested: str) -> NonDeterminismError:
        facts = {"run_id": self._run_id, "seq": event.seq}
        return NonDeterminismError(**facts, recorded=recorded, requested=requested)
