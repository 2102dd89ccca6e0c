"""What a journal holds: the events of a run, and one row that says how the run stands.

Guarantees: plain immutable values, nothing that reads or writes. Leaves to others: which event
comes next (`replay`), where it is kept (`journal`), what its payload means (`context`, `engine`).
"""

import json
from enum import StrEnum
from typing import Any, NamedTuple
from zlib import crc32

__all__ = ["Event", "EventKind", "Position", "Run", "RunError", "RunStatus"]


class EventKind(StrEnum):
    """What an event records. The values are stored: they are never renamed."""

    ADMITTED = "admitted"
    STEP = "step"
    EFFECT = "effect"
    NOW = "now"
    RANDOM = "random"
    UUID = "uuid"
    COMPLETED = "completed"
    FAILED = "failed"


class RunStatus(StrEnum):
    """How a run stands. The values are stored: they are never renamed."""

    PENDING = "pending"
    """Admitted; no attempt has begun."""
    RUNNING = "running"
    """An attempt has begun and has not ended the run; after a crash it still says so."""
    COMPLETED = "completed"
    FAILED = "failed"
    NEEDS_ATTENTION = "needs_attention"
    """The code, not the run, is at fault: repair it, then resume."""


ENDED: frozenset[str] = frozenset({RunStatus.COMPLETED, RunStatus.FAILED})
"""Statuses that are final; the kind of the event that made one has the same name."""


class Position(StrEnum):
    """Where in a live durable call a process can die: places that leave different things behind."""

    BEFORE = "before"
    """Nothing has happened yet."""
    WINDOW = "window"
    """The work is done and no journal knows: the crash window."""
    AFTER = "after"
    """The journal has the event; only this process's memory is lost."""


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


class RunRow(NamedTuple):
    """How a run stands, as the journal keeps it beside the events.

    `generation` counts from 1; `structure` is the hash that the run was admitted with; `attempts`
    counts attempts begun, so that one that dies is counted too; `error` is why a run needs
    attention.
    """

    run_id: str
    generation: int
    workflow: str
    version: str
    structure: str
    status: RunStatus
    attempts: int = 0
    error: str | None = None


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
    """A run as `Engine.describe` and `Engine.resume` tell it; `cost` is its committed spend."""

    run_id: str
    generation: int
    workflow: str
    version: str
    status: RunStatus
    input: Any
    result: Any
    error: RunError | None
    attempts: int
    cost: float
