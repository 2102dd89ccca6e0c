"""Where runs are kept. Every journal has these few operations, and each of them is atomic.

Guarantees: when an operation returns, what it wrote survives whatever the journal promises to
survive; when the process dies before that, either all of it is there or nothing. Sequence numbers
are dense. Leaves to others: what the events mean.
"""

from collections.abc import Iterator
from typing import Protocol, Self

from durable_mini.errors import JournalCorruptError
from durable_mini.events import Event, EventKind, RunRow, RunStatus, checksum

_KINDS: dict[str, EventKind] = {kind.value: kind for kind in EventKind}


class Journal(Protocol):
    """The operations that the engine needs of a store. A context manager: leaving it closes it."""

    def admit(self, row: RunRow, event: Event) -> bool:
        """Store a new run and its first event together.

        Returns:
            Whether it was stored; False means that the id is taken, and nothing was written.
        Crash:
            Before the commit there is no run; after it the run waits to be resumed.
        """

    def append(self, row: RunRow, event: Event, status: RunStatus | None = None) -> None:
        """Store the next event of a run and, where given, the run's new status, together.

        Of the row only run id and generation are looked at: the rest of it may be of yesterday.

        Raises:
            ConcurrentAppendError: there is an event with this sequence number already.
            StorageError: the write failed; nothing is known to be stored.
        Crash:
            Before the commit the event isn't there, and the step that it records will run again.
        """

    def replace(self, row: RunRow, changed: RunRow) -> bool:
        """Change status, attempts and error of a run that still stands as `row` says.

        Returns:
            Whether it was changed; False means that another driver was first, and nothing was
            written: a run that has ended is never reopened.
        Crash:
            An attempt that began stays counted, so that a run that kills its worker is noticed.
        """

    def row(self, run_id: str) -> RunRow | None:
        """How a run stands, or None."""

    def rows(self) -> Iterator[RunRow]:
        """All runs, in the order in which they were admitted."""

    def events(self, row: RunRow) -> list[Event]:
        """The history of a run's generation, in order and checked.

        Raises:
            JournalCorruptError: a checksum, a sequence number or a kind is wrong, naming the first.
        """

    def integrity(self) -> list[str]:
        """What the storage itself finds wrong, beyond single events; empty when all is well."""

    def close(self) -> None:
        """Give the store back. Closing twice is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def checked(row: RunRow, expected_seq: int, event: Event, check: int) -> Event:
    """An event as it was read, once it has proved to be what was written there.

    Raises:
        JournalCorruptError: it is another event's place, another text, or of an unknown kind.
    """
    if event.seq != expected_seq:
        why = "this event is missing"
    elif checksum(row, event) != check:
        why = "the checksum doesn't fit"
    elif event.kind not in _KINDS:
        why = f"unknown kind {event.kind!r}"
    else:
        kind = _KINDS[event.kind]  # what comes from a disk is a plain string
        return event if event.kind is kind else event._replace(kind=kind)
    raise JournalCorruptError(why, row.run_id, expected_seq)
