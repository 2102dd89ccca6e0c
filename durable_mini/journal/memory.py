"""A journal in this process's memory: for simulations and tests.

Guarantees: what the other journals do, except that it ends with the process. An injected crash
loses the engine and the context, and this object plays the disk.
"""

from collections import defaultdict
from collections.abc import Iterator

from durable_mini.events import Event, RunRow, checksum
from durable_mini.journal import Journal, checked


class MemoryJournal(Journal):
    """Runs in a dictionary, each event beside its checksum."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, RunRow] = {}
        self._events = defaultdict[tuple[str, int], list[tuple[Event, int]]](list)

    def row(self, run_id: str) -> RunRow | None:
        """See `Journal.row`."""
        with self._alone():
            return self._rows.get(run_id)

    def rows(self) -> Iterator[RunRow]:
        """See `Journal.rows`."""
        with self._alone():
            return iter(list(self._rows.values()))

    def due(self, now: float) -> list[RunRow]:
        """See `Journal.due`."""
        due = (row for row in self.rows() if row.due_at is not None and row.due_at <= now)
        return sorted(due, key=lambda row: row.lease_until)

    def events(self, row: RunRow, after: int = 0) -> list[Event]:
        """See `Journal.events`."""
        with self._alone():
            log = self._events[row[:2]][after:]
        return [checked(row, seq, *entry) for seq, entry in enumerate(log, start=after + 1)]

    def close(self) -> None:
        """See `Journal.close`: the runs stay, as a disk would keep them."""

    def _stand(self, row: RunRow) -> tuple[int | None, float, int]:
        stands = self._rows.get(row.run_id)
        if stands is None or stands.pruned_at is not None:
            return None, 0.0, 0
        return stands.token, stands.lease_until, len(self._events[row[:2]])

    def _put(self, row: RunRow) -> None:
        self._rows[row.run_id] = row
        if row.pruned_at is not None:
            for generation in range(1, row.generation + 1):
                self._events.pop((row.run_id, generation), None)

    def _insert(self, row: RunRow, event: Event) -> None:
        self._events[row[:2]].append((event, checksum(row, event)))
