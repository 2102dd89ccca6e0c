"""A journal in one SQLite file, durable at every commit.

Guarantees: WAL with `synchronous=FULL`, so a returned append is on the disk; a process killed at
any instant leaves the last commit whole. A file that is something else is refused before SQLite
touches it. Leaves to others: what to do after a storage error, except that it refuses appends until
it is opened again.
"""

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from durable_mini.errors import JournalCorruptError, NotAJournalError
from durable_mini.events import Event, RunRow, checksum
from durable_mini.journal import OnDisk, checked, row_from

APPLICATION_ID = int.from_bytes(b"dMin")
SCHEMA_VERSION = 2
BUSY_LIMIT_S = 30.0

_SIGNATURE = f"PRAGMA application_id={APPLICATION_ID};\nPRAGMA user_version={SCHEMA_VERSION}"

# In the tables the columns of a run and of an event stand in the order of their fields.
_CHANGES = ", ".join(f"{column} = excluded.{column}" for column in RunRow._fields[1:])
# Named one by one: in a damaged schema one may be missing.
_RUNS = f"SELECT {', '.join(RunRow._fields)} FROM runs"  # noqa: S608
_EVENTS = "SELECT seq, kind, name, payload, recorded_at, checksum FROM events"
# An update keeps the rowid, which is the order of admission.
_PUT = f"INSERT INTO runs VALUES (?{', ?' * 15}) ON CONFLICT DO UPDATE SET {_CHANGES}"  # noqa: S608
_SELECT_STAND = (
    "SELECT token, lease_until, (SELECT ifnull(max(seq), 0) FROM events WHERE run_id = ?1"
    " AND generation = ?2) FROM runs WHERE run_id = ?1 AND pruned_at IS NULL"
)


class SQLiteJournal(OnDisk):
    """Runs in a SQLite file; several processes may open the same one.

    Args:
        path: the file; it is created where it doesn't exist, its folder is not.
        read_only: look and change nothing: neither the file nor its log, not even by closing it.

    Raises:
        NotAJournalError: the path holds something else, or a journal of a newer version.
        JournalCorruptError: the file is a journal that has been damaged.
        StorageError: the file can't be opened or created.
    """

    def _begin(self, opened: ExitStack, read_only: bool) -> None:
        # Look whose file it is, without locks and without a trace. SQLite has to do even this:
        # closing a descriptor of our own would give up every lock that this process holds on the
        # file, and with them the log of a journal that is open on it.
        if self.path.exists() and self.path.stat().st_size:
            with closing(sqlite3.connect(f"{self.path.as_uri()}?immutable=1", uri=True)) as look:
                look.execute("PRAGMA writable_schema=ON")  # a file that is growing isn't damaged
                (whose,) = look.execute("PRAGMA application_id").fetchone()
            if whose != APPLICATION_ID:
                raise self._error(NotAJournalError, "it is another program's SQLite database")
        address = f"{self.path.as_uri()}?mode={'ro' if read_only else 'rwc'}"
        connection = sqlite3.connect(address, uri=True, timeout=0, check_same_thread=False)
        self._db = opened.enter_context(closing(connection))
        # A flipped byte may not even be text: it has to be read before it can be refused.
        self._db.text_factory = lambda stored: stored.decode(errors="replace")
        if self._read("PRAGMA user_version") == [(0,)]:
            with self._writing():
                # Somebody else may have created something between the look and the lock.
                if not self._read("SELECT 1 FROM sqlite_schema"):
                    schema = Path(__file__).with_name("schema.sql").read_text("utf-8")
                    for statement in (schema + _SIGNATURE).split(";\n"):
                        self._do(statement)
        ((found,),) = self._read("PRAGMA user_version")
        if found != SCHEMA_VERSION:
            why = f"its schema is version {found}, this engine reads version {SCHEMA_VERSION}"
            raise self._error(NotAJournalError, why)
        # The last is for macOS, where fsync stops at the drive's cache.
        for setting in ("journal_mode=WAL", "synchronous=FULL", "fullfsync=ON"):
            self._do(f"PRAGMA {setting}")

    def row(self, run_id: str) -> RunRow | None:
        """See `Journal.row`."""
        return next(self._rows("WHERE run_id = ?", run_id), None)

    def rows(self) -> Iterator[RunRow]:
        """See `Journal.rows`."""
        return self._rows("ORDER BY rowid")

    def due(self, now: float) -> list[RunRow]:
        """See `Journal.due`."""
        return list(self._rows("WHERE due_at <= ? ORDER BY lease_until, rowid", now))

    def events(self, row: RunRow, after: int = 0) -> list[Event]:
        """See `Journal.events`."""
        query = f"{_EVENTS} WHERE run_id = ? AND generation = ? AND seq > ? ORDER BY seq"
        found = enumerate(self._read(query, row.run_id, row.generation, after), start=after + 1)
        return [checked(row, seq, Event._make(event), c) for seq, (*event, c) in found]

    def integrity(self) -> list[str]:
        """See `Journal.integrity`: SQLite's own check, and events that belong to no run."""
        strays = "SELECT DISTINCT run_id FROM events WHERE run_id NOT IN (SELECT run_id FROM runs)"
        found = [text for (text,) in self._read("PRAGMA integrity_check") if text != "ok"]
        return found + [f"run {run_id} has events only" for (run_id,) in self._read(strays)]

    def _stand(self, row: RunRow) -> tuple[int | None, float, int]:
        return next(iter(self._do(_SELECT_STAND, *row[:2])), (None, 0.0, 0))

    def _put(self, row: RunRow) -> None:
        self._do(_PUT, *row)
        if row.pruned_at is not None:
            self._do("DELETE FROM events WHERE run_id = ?", row.run_id)

    def _insert(self, row: RunRow, event: Event) -> None:
        values = (row.run_id, row.generation, *event, checksum(row, event))
        try:
            self._do("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *values)
        except sqlite3.IntegrityError as error:  # events that lost their run stand there
            raise JournalCorruptError(str(error), row.run_id, event.seq) from error

    def _rows(self, clause: str, *values: Any) -> Iterator[RunRow]:
        return map(row_from, self._read(f"{_RUNS} {clause}", *values))

    def _read(self, sql: str, *parameters: Any) -> list[Any]:
        with self._alone():
            return self._do(sql, *parameters)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One durable transaction; after a failed one the journal takes no more."""
        with self._alone(writing=True), self._db:  # rolls back what doesn't come to its end
            self._do("BEGIN IMMEDIATE")
            yield
            self._do("COMMIT")

    def _do(self, sql: str, *parameters: Any) -> list[Any]:
        """Execute a statement, whoever has to be waited for.

        With a little jitter: SQLite's own busy handler sleeps longer each time, so that of many
        writers the unlucky one starves. Who has waited longer asks more often.
        """
        began = time.monotonic()
        while True:
            try:
                return self._db.execute(sql, parameters).fetchall()
            except sqlite3.OperationalError as error:
                waited_s = time.monotonic() - began
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or waited_s > BUSY_LIMIT_S:
                    raise
            time.sleep(random.uniform(0.0005, 0.0015) / (1 + 50 * waited_s))
