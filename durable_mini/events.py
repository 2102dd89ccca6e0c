"""What a journal holds: the events of a run, and one row that says how the run stands.

Guarantees: plain immutable values, nothing that reads or writes. Leaves to others: which event
comes next (`replay`), where it is kept (`journal`), what its payload means (`context`, `engine`).
"""

import json
import logging
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple
from zlib import crc32

log = logging.getLogger("durable_mini")
log.addHandler(logging.NullHandler())  # silent until asked

__all__ = ["Event", "EventKind", "Orphan", "Position", "Run", "RunError", "RunStatus"]


class EventKind(StrEnum):
    """What an event records. The values are stored: they are never renamed."""

    ADMITTED, CONTINUED = "admitted", "continued"
    # A try is one of these that failed, and says when the next one is due.
    STEP, EFFECT, UNDO, TRY = "step", "effect", "undo", "try"
    NOW, RANDOM, UUID = "now", "random", "uuid"
    TIMER, FIRED = "timer", "fired"
    WAIT, RECEIVED, TIMED_OUT = "wait", "received", "timed_out"
    CHILD, JOINED = "child", "joined"
    # A stop is where the run was cancelled, or its budget spent.
    PATCH, COMPENSATE, PIVOT, STOP = "patch", "compensate", "pivot", "stop"
    SIGNAL, CANCEL, CHILD_ENDED = "signal", "cancel", "child_ended"
    COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"


class RunStatus(StrEnum):
    """How a run stands. The values are stored: they are never renamed.

    A pending run is ready for an attempt: admitted, continued, or released by its worker. Of a
    running one an attempt has begun and has not ended; after a crash it still says so. A suspended
    one waits for a time, a signal or a child, and holds nothing. One that needs attention has code
    at fault, not the run: repair it, then resume. Workers skip it.
    """

    PENDING, RUNNING, SUSPENDED = "pending", "running", "suspended"
    COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"
    NEEDS_ATTENTION = "needs_attention"


ENDED: frozenset[str] = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
"""Statuses that are final; the kind of the event that made one has the same name."""

CLOSING: frozenset[str] = ENDED | {EventKind.CONTINUED}
"""Kinds of event after which a generation's history is closed."""

OUTSIDE: frozenset[str] = frozenset({EventKind.SIGNAL, EventKind.CANCEL, EventKind.CHILD_ENDED})
"""Kinds that arrive from outside at any place of a history: no durable call asks for them."""


class Position(StrEnum):
    """Where in a live durable call a process can die: places that leave different things behind.

    Before: nothing has happened yet. In the crash window: the work is done and no journal knows.
    After: the journal has the event; only this process's memory is lost.
    """

    BEFORE, WINDOW, AFTER = "before", "window", "after"


class Event(NamedTuple):
    """One entry of a run's journal: `seq` counts from 1 without gaps, `recorded_at` is in seconds.

    A named tuple, since a run makes one per step and a frozen dataclass costs three times as much
    to make.
    """

    seq: int
    kind: EventKind
    name: str
    text: str
    recorded_at: float

    @property
    def payload(self) -> Any:
        """The recorded value, decoded anew at each look: changing it changes no journal."""
        return json.loads(self.text)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}" if self.name != self.kind else str(self.kind)


Entry = tuple[EventKind, str, str, float]
"""Kind, name, text and time of an event that has no sequence number yet; a journal gives it one."""


class RunRow(NamedTuple):
    """How a run stands, as the journal keeps it beside the events.

    `generation` counts from 1. `structure` is the hash that the run was admitted with. `parent` is
    the run that waits for this one. `due_at` says from when on a worker may take the run (seconds;
    0 is at once, None never). `attempts` counts attempts begun, `crashes` those of them since the
    last one that ended by itself or recorded something. `error` is why a run needs attention.
    `token` is the fencing token of whoever holds the run; `worker`, `lease_s` and `lease_until`
    are the last holder, the length of its lease and when it ends or ended. `pruned_at` marks what
    is left of a run after its history has been removed.
    """

    run_id: str
    generation: int
    workflow: str
    version: str
    structure: str
    status: RunStatus
    parent: str | None = None
    due_at: float | None = 0.0
    attempts: int = 0
    crashes: int = 0
    error: str | None = None
    token: int = 0
    worker: str | None = None
    lease_s: float = 0.0
    lease_until: float = 0.0
    pruned_at: float | None = None


def checksum(row: RunRow, event: Event) -> int:
    """CRC-32 over all that an event says and whose it is: any flipped byte changes it.

    Names and ids hold no line break (`codec.check_name`), so the joined text has one reading.
    """
    seq, kind, name, text, recorded_at = event
    line = f"{row.run_id}\n{row.generation}\n{seq}\n{kind}\n{name}\n{recorded_at + 0.0!r}\n{text}"
    return crc32(line.encode())


class RunError(NamedTuple):
    """Why a run ended or stopped: the error's `type` and `message`, and the `step` it came from."""

    type: str
    message: str
    step: str | None = None


class Run(NamedTuple):
    """A run as `Engine.describe` and `Engine.resume` tell it.

    `waiting_for` names what a suspended run waits for, e.g. "signal 'approval' until 60"; `cost` is
    the run's committed spend, over all its generations.
    """

    run_id: str
    generation: int
    workflow: str
    version: str
    status: RunStatus
    input: Any
    result: Any
    error: RunError | None
    waiting_for: str | None
    attempts: int
    cost: float


class Orphan(NamedTuple):
    """A run that no registered workflow version accepts, and why."""

    run_id: str
    reason: str


_WAITING = {"wait": "signal", "timer": "timer", "child": "child", "try": "the next try of"}


def waiting_for(events: Sequence[Event]) -> str | None:
    """What the history of a suspended run says that it waits for."""
    latest = {event.name: event for event in events if event.kind not in OUTSIDE}.values()
    waits = {event: event.payload.get("due_at") for event in latest if event.kind in _WAITING}
    if not waits:
        return None
    event, due_at = min(waits.items(), key=lambda wait: (wait[1] is None, wait[1]))
    until = "" if due_at is None else f" until {due_at:.15g}"
    return f"{_WAITING[event.kind]} {event.name!r}{until}"
