"""A journal in this process's memory: for simulations and tests.

Guarantees: what the other journals do, except that it ends with the process. An injected crash
loses the engine and the context, and this object plays the disk.
"""

from collections.abc import Iterator
from threading import Lock

from durable_mini.errors import ConcurrentAppendError
from durable_mini.events import Event, RunRow, RunStatus, checksum
from durable_mini.journal import Journal, checked


class MemoryJournal(Journal):
    """Runs in a dictionary, each event beside its checksum."""

    def __init__(self) -> None:
        self._rows: dict[str, RunRow] = {}
        self._events: dict[tuple[str, int], list[tuple[Event, int]]] = {}
        self._lock = Lock()

    def admit(self, row: RunRow, event: Event) -> bool:
        """See `Journal.admit`."""
        with self._lock:
            if row.run_id in self._rows:
                return False
            self._events[row.run_id, row.generation] = [(event, checksum(row, event))]
            self._rows[row.run_id] = row
            return True

    def append(self, row: RunRow, event: Event, status: RunStatus | None = None) -> None:
        """See `Journal.append`."""
        with self._lock:
            log = self._events[row.run_id, row.generation]
            if event.seq != len(log) + 1:
                raise ConcurrentAppendError(run_id=row.run_id, seq=event.seq)
            log.append((event, checksum(row, event)))
            if status is not None:
                self._rows[row.run_id] = self._rows[row.run_id]._replace(status=status, error=None)

    def replace(self, row: RunRow, changed: RunRow) -> bool:
        """See `Journal.replace`."""
        with self._lock:
            stands = self._rows[row.run_id] == row
            if stands:
                self._rows[row.run_id] = changed
            return stands

    def row(self, run_id: str) -> RunRow | None:
        """See `Journal.row`."""
        return self._rows.get(run_id)

    def rows(self) -> Iterator[RunRow]:
        """See `Journal.rows`."""
        return iter(list(self._rows.values()))

    def events(self, row: RunRow) -> list[Event]:
        """See `Journal.events`."""
        log = self._events.get((row.run_id, row.generation), [])
        return [checked(row, seq, *entry) for seq, entry in enumerate(log, start=1)]

    def integrity(self) -> list[str]:
        """See `Journal.integrity`."""
        return []

    def close(self) -> None:
        """See `Journal.close`: the runs stay, as a disk would keep them."""
