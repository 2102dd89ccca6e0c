"""Where runs are kept. Every journal has these few operations, and each of them is atomic.

Guarantees: when an operation returns, what it wrote survives whatever the journal promises to
survive; when the process dies before that, either all of it is there or nothing. Sequence numbers
are dense. Leaves to others: what the events mean.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from durable_mini.events import Event, RunRow, RunStatus


class Journal(ABC):
    """The operations that the engine needs of a store. A context manager: leaving it closes it."""

    @abstractmethod
    def admit(self, row: RunRow, event: Event) -> bool:
        """Store a new run and its first event together.

        Returns:
            Whether it was stored; False means that the id is taken, and nothing was written.
        Crash:
            Before the commit there is no run; after it the run waits to be resumed.
        """

    @abstractmethod
    def append(
        self, run_id: str, generation: int, event: Event, status: RunStatus | None = None
    ) -> None:
        """Store the next event of a run and, where given, the run's new status, together.

        Raises:
            ConcurrentAppendError: there is an event with this sequence number already.
            StorageError: the write failed; nothing is known to be stored.
        Crash:
            Before the commit the event isn't there, and the step that it records will run again.
        """

    @abstractmethod
    def begin_attempt(self, run_id: str) -> int:
        """Count one more attempt and set the run to running; returns the count.

        Crash:
            The attempt stays counted, so that a run that kills its worker each time can be noticed.
        """

    @abstractmethod
    def mark(self, run_id: str, status: RunStatus, error: str) -> None:
        """Change how a run stands without appending to its history."""

    @abstractmethod
    def row(self, run_id: str) -> RunRow | None:
        """How a run stands, or None."""

    @abstractmethod
    def rows(self) -> Iterator[RunRow]:
        """All runs, in the order in which they were admitted."""

    @abstractmethod
    def events(self, run_id: str, generation: int) -> list[Event]:
        """A run's history, in order and checked.

        Raises:
            JournalCorruptError: a checksum, a sequence number or a kind is wrong, naming the first.
        """

    @abstractmethod
    def integrity(self) -> list[str]:
        """What the storage itself finds wrong, beyond single events; empty when all is well."""

    @abstractmethod
    def close(self) -> None:
        """Give the store back. Closing twice is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()
