"""Where runs are kept, and the few atomic operations that every journal has.

Guarantees: when an operation returns, what it wrote survives whatever the journal promises to
survive; when the process dies before that, either all of it is there or nothing. Sequence numbers
are given out here, inside the transaction, so that they are dense. A write in a worker's name is
refused in the same transaction if the run's fencing token is no longer that worker's. Leaves to
others: what the events mean; and to each store how it keeps them (the methods with an underscore).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from sqlite3 import SQLITE_CORRUPT, SQLITE_NOTADB, Error as SQLiteError
from threading import RLock
from typing import Any, Protocol, Self

from durable_mini import errors
from durable_mini.events import ENDED, Entry, Event, EventKind, RunRow, RunStatus, checksum

_DAMAGE = {SQLITE_NOTADB: errors.NotAJournalError, SQLITE_CORRUPT: errors.JournalCorruptError}
_KINDS: dict[str, EventKind] = {kind.value: kind for kind in EventKind}
_STATUSES: dict[str, RunStatus] = {status.value: status for status in RunStatus}

Opening = tuple[RunRow, Sequence[Entry]]  # a run, or its next generation, with its first events


class Journal(Protocol):
    """The operations that the engine needs of a store. A context manager: leaving it closes it."""

    _lock: AbstractContextManager[Any]

    def __init__(self) -> None:
        self._lock = RLock()

    def admit(self, new: Opening, over: RunRow | None = None, parent: RunRow | None = None) -> bool:
        """Store a new run and its first events together.

        Args:
            new: the run's row and its events.
            over: what stands under this id and is replaced by a new generation; None for a new id.
            parent: the run that begins it, as its worker claimed that.

        Returns:
            Whether it was stored; False means that something else stands there: nothing was
            written.
        Crash:
            Before the commit there is no run; after it the run waits to be resumed.
        """
        with self._writing():
            if parent is not None:
                self._held(parent)
            if self.row(new[0].run_id) != over:
                return False
            self._open(*new)
            return True

    def append(
        self,
        row: RunRow,
        entry: Entry | None,
        *,
        expected: int | None = None,
        opens: Iterable[Opening] = (),
        tell: tuple[str, Entry] | None = None,
        **changes: Any,
    ) -> int:
        """Store the next event of a run that a worker holds, and what belongs to it, together.

        A lease that has run out and that nobody has challenged is extended: refusing by the clock
        alone would repeat every effect in flight when a clock jumps forward.

        Args:
            row: the run as the worker claimed it; its token is what counts.
            entry: what to store; None where only the row changes.
            expected: the last event that the worker knows of; a later one refuses the append.
            opens: runs or generations that begin in the same moment.
            tell: an event for another run: its id, and what it is told.
            changes: fields of the run's row that change with it.

        Returns:
            The last event's sequence number, or 0 where `expected` wasn't the last one.
        Raises:
            LeaseLostError: another worker has taken the run over.
            StorageError: the write failed; nothing is known to be stored.
        Crash:
            Before the commit the event isn't there, and the step that it records will run again.
        """
        with self._writing():
            lease_until, last = self._held(row)
            if expected is not None and expected != last:
                return 0
            if entry is not None:
                last += 1
                # Faster than the constructor, for the one event that every live step makes.
                self._insert(row, tuple.__new__(Event, (last, *entry)))
                if lease_until < entry[3]:
                    changes.setdefault("lease_until", entry[3] + row.lease_s)
            if changes:
                self._put(self.find(row.run_id)._replace(**changes))
            for opening in opens:
                self._open(*opening)
            if tell is not None:
                self._tell(*tell)
            return last

    def peek(self, row: RunRow) -> int:
        """The sequence number of the last event of a run that a worker holds.

        Raises:
            LeaseLostError: another worker has taken the run over.
        """
        return self._held(row)[1]

    def replace(self, row: RunRow, changed: RunRow) -> bool:
        """Change a run that still stands exactly as `row` says; for what no token fences.

        That is a claim, or a tombstone: with `pruned_at` set the events go in the same moment.

        Returns:
            Whether it was changed; False means that somebody else was first: nothing was written.
        Crash:
            An attempt that began stays counted, so that a run that kills its worker is noticed.
        """
        return self.admit((changed, ()), row)

    def request(self, run_id: str, asks: Callable[[RunRow], Entry | None]) -> bool:
        """Store an event that comes from outside, and make a suspended run due.

        Args:
            run_id: whose event it is.
            asks: decides inside the transaction what to store, if anything, and when that is.

        Returns:
            Whether it was stored.
        Raises:
            UnknownRunError: there is no such run any more.
        """
        with self._writing():
            entry = asks(self.find(run_id))
            return entry is not None and self._tell(run_id, entry)

    def _open(self, row: RunRow, entries: Sequence[Entry]) -> None:
        self._put(row)
        for seq, entry in enumerate(entries, start=1):
            self._insert(row, Event(seq, *entry))

    def _tell(self, run_id: str, entry: Entry) -> bool:
        row = self.row(run_id)
        if row is None or row.status in ENDED:
            return False
        self._insert(row, Event(self._held(row)[1] + 1, *entry))
        if row.status is RunStatus.SUSPENDED:
            self._put(row._replace(due_at=0.0))
        return True

    def find(self, run_id: str) -> RunRow:
        """How a run stands.

        Raises:
            UnknownRunError: there is no such run, or it was pruned.
        """
        row = self.row(run_id)
        if row is None or row.pruned_at is not None:
            why = " any more: it was pruned" if row else ""
            raise errors.UnknownRunError(why, run_id, generation=row.generation if row else 1)
        return row

    def _held(self, row: RunRow) -> tuple[float, int]:
        """The end of the lease of a run that a worker holds, and its last sequence number."""
        token, lease_until, last = self._stand(row)
        if token != row.token:
            now = self.find(row.run_id)  # raises for a run that is gone, which has no token either
            by = {"holder": now.worker, "by": now.worker or "nobody", "held": now.token}
            raise errors.LeaseLostError("", row.run_id, worker=row.worker, token=row.token, **by)
        return lease_until, last

    def row(self, run_id: str) -> RunRow | None:
        """How a run stands, or None; what is left of a pruned one too."""

    def rows(self) -> Iterator[RunRow]:
        """All runs, in the order in which they were admitted."""

    def due(self, now: float) -> list[RunRow]:
        """The runs that are due, those first that have waited longest for a worker.

        What is leased comes with them: the caller looks at `lease_until`.
        """

    def events(self, row: RunRow, after: int = 0) -> list[Event]:
        """The history of a run's generation from after a sequence number on, in order and checked.

        Raises:
            JournalCorruptError: a checksum, a sequence number or a kind is wrong, naming the first.
        """

    def integrity(self) -> list[str]:
        """What the storage itself finds wrong, beyond single events; empty when all is well."""
        return []

    def close(self) -> None:
        """Give the store back. Closing twice is harmless."""

    def _alone(self) -> AbstractContextManager[Any]:
        """One thread at a time, which may come in again."""
        return self._lock

    def _writing(self) -> AbstractContextManager[Any]:
        """One transaction: alone, and whole or not at all."""
        return self._lock  # enough in memory: what can be refused is refused before any change

    def _stand(self, row: RunRow) -> tuple[int | None, float, int]:
        """A run's token, the end of its lease, and the last sequence number of a generation.

        A run that isn't there, or was pruned, has no token.
        """

    def _put(self, row: RunRow) -> None:
        """Store a run's row, new or changed; one that is pruned loses all its events."""

    def _insert(self, row: RunRow, event: Event) -> None:
        """Store an event."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OnDisk(Journal):
    """What the journals on a disk have in common: who may use them, and when they refuse.

    Crash:
        The operating system closes the file, and gives its lock back.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        super().__init__()
        self.path, self._pid = Path(path).absolute(), os.getpid()
        # Why it can't be used, and why it can't be written.
        self._closed, self._refusal = "", "is open for reading only" if read_only else ""
        with self._alone(), ExitStack() as opened:
            if self.path.exists() and not self.path.is_file():
                raise self._error(errors.NotAJournalError, "it is no regular file")
            self._begin(opened, read_only)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """See `Journal.close`. In a forked child it does nothing: the file is its parent's."""
        if os.getpid() == self._pid:
            with self._lock, self._opened:
                self._closed = "is closed"

    def peek(self, row: RunRow) -> int:
        """See `Journal.peek`."""
        with self._alone():
            return super().peek(row)

    @contextmanager
    def _alone(self, *, writing: bool = False) -> Iterator[None]:
        """One thread at a time, in one process, with what a disk says as the engine's errors."""
        if os.getpid() != self._pid:
            raise self._error(errors.StorageError, "was opened before a fork; open it again here")
        try:
            with self._lock:
                if why := self._closed or (writing and self._refusal):
                    raise self._error(errors.StorageError, why)
                yield
        except (OSError, SQLiteError, UnicodeDecodeError) as error:  # the last: of a schema's name
            reason = str(getattr(error, "strerror", error)).rstrip(".")
            if writing:  # nobody can tell what the disk kept
                self._closed, self._refusal = "", f"refuses appends after a failed write ({reason})"
            if isinstance(error, BlockingIOError):
                reason = "is open already, here or in another process"
            # Damage is one thing, a disk that refuses is another.
            unreadable = SQLITE_CORRUPT if isinstance(error, UnicodeDecodeError) else 0
            code = getattr(error, "sqlite_errorcode", unreadable) & 0xFF
            raise self._error(_DAMAGE.get(code, errors.StorageError), reason) from error

    def _error(self, kind: type[errors.DurableError], reason: str) -> errors.DurableError:
        return kind(reason, path=str(self.path), where=self.path)

    def _begin(self, opened: ExitStack, read_only: bool) -> None:
        """Open the file, and put on the stack what closes it."""


def checked(row: RunRow, expected_seq: int, event: Event, check: int) -> Event:
    """An event as it was read, once it has proved to be what was written there.

    Raises:
        JournalCorruptError: it is another event's place, another text, or of an unknown kind.
    """
    if event.seq != expected_seq:
        why = "this event is missing"
    elif not isinstance(event.recorded_at, int | float) or checksum(row, event) != check:
        why = "the checksum doesn't fit"
    elif event.kind not in _KINDS:
        why = f"unknown kind {event.kind!r}"
    else:
        # What comes from a disk is a plain string.
        return event if type(event.kind) is EventKind else event._replace(kind=_KINDS[event.kind])
    raise errors.JournalCorruptError(why, row.run_id, expected_seq)


def row_from(values: Iterable[Any]) -> RunRow:
    """A run's row as it was read.

    Raises:
        JournalCorruptError: nobody knows its status.
    """
    row = RunRow(*values)
    if row.status not in _STATUSES:
        raise errors.JournalCorruptError(f"unknown status {row.status!r}", row.run_id)
    return row._replace(status=_STATUSES[row.status])
