"""A journal in one SQLite file, durable at every commit.

Guarantees: WAL with `synchronous=FULL`, so a returned append is on the disk; a process killed at
any instant leaves the last commit whole. A file that is something else is refused before SQLite
touches it. Leaves to others: what to do after a storage error, except that it refuses appends until
it is opened again.
"""

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path
from threading import RLock
from typing import Any

from durable_mini import errors
from durable_mini.events import Event, RunRow, checksum
from durable_mini.journal import Journal, checked, row_from

APPLICATION_ID = int.from_bytes(b"dMin")
SCHEMA_VERSION = 2
BUSY_LIMIT_S = 30.0

_SIGNATURE = f"PRAGMA application_id={APPLICATION_ID};\nPRAGMA user_version={SCHEMA_VERSION}"

# In the tables the columns of a run and of an event stand in the order of their fields.
_PLACES = ", ".join("?" * len(RunRow._fields))
_CHANGES = ", ".join(f"{column} = excluded.{column}" for column in RunRow._fields[1:])
# An update keeps the rowid, which is the order of admission.
_PUT = f"INSERT INTO runs VALUES ({_PLACES}) ON CONFLICT DO UPDATE SET {_CHANGES}"  # noqa: S608
_SELECT_EVENTS = "SELECT seq, kind, name, payload, recorded_at, checksum FROM events"
_SELECT_STAND = (
    "SELECT token, lease_until, (SELECT max(seq) FROM events WHERE run_id = ?1 AND generation = ?2)"
    " FROM runs WHERE run_id = ?1 AND pruned_at IS NULL"
)


class SQLiteJournal(Journal):
    """Runs in a SQLite file; several processes may open the same one.

    Args:
        path: the file; it is created where it doesn't exist, its folder is not.
        read_only: look and change nothing: neither the file nor its log, not even by closing it.

    Raises:
        NotAJournalError: the path holds something else, or a journal of a newer version.
        JournalCorruptError: the file is a journal that has been damaged.
        StorageError: the file can't be opened or created.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.path, self._pid = Path(path).absolute(), os.getpid()
        self._lock, self._broken = RLock(), ""
        with self._translated():
            _refuse_other_files(self.path)
            address = f"{self.path.as_uri()}?mode={'ro' if read_only else 'rwc'}"
            self._db = sqlite3.connect(address, uri=True, timeout=0, check_same_thread=False)
            self._db.isolation_level = None
            # A flipped byte may not even be text: it has to be read before it can be refused.
            self._db.text_factory = lambda stored: stored.decode(errors="replace")
            try:
                self._create_or_check()
                # The last is for macOS, where fsync stops at the drive's cache.
                for setting in ("journal_mode=WAL", "synchronous=FULL", "fullfsync=ON"):
                    self._read(f"PRAGMA {setting}")
            except BaseException:
                self._db.close()
                raise

    def _create_or_check(self) -> None:
        """Give a new file its tables and its name, or refuse one that another version made."""
        if self._read("PRAGMA user_version") == [(0,)]:
            with self._writing():
                # Somebody else may have created something between the look and the lock.
                if not self._read("SELECT 1 FROM sqlite_schema"):
                    schema = resources.files(__package__).joinpath("schema.sql").read_text("utf-8")
                    for statement in (schema + _SIGNATURE).split(";\n"):
                        self._db.execute(statement)
        ((found,),) = self._read("PRAGMA user_version")
        if found != SCHEMA_VERSION:
            why = f"its schema is version {found}, this engine reads version {SCHEMA_VERSION}"
            raise errors.NotAJournalError(path=str(self.path), reason=why)

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
        query = f"{_SELECT_EVENTS} WHERE run_id = ? AND generation = ? AND seq > ? ORDER BY seq"
        found = self._read(query, row.run_id, row.generation, after)
        return [checked(row, seq, Event(*e), c) for seq, (*e, c) in enumerate(found, after + 1)]

    def integrity(self) -> list[str]:
        """See `Journal.integrity`: SQLite's own check, and events that belong to no run."""
        strays = "SELECT DISTINCT run_id FROM events WHERE run_id NOT IN (SELECT run_id FROM runs)"
        found = [text for (text,) in self._read("PRAGMA integrity_check") if text != "ok"]
        return found + [f"run {run_id} has events only" for (run_id,) in self._read(strays)]

    def close(self) -> None:
        """See `Journal.close`."""
        if os.getpid() == self._pid:
            self._db.close()

    def _stand(self, row: RunRow) -> tuple[int, float, int]:
        found = self._read(_SELECT_STAND, row.run_id, row.generation)
        if not found:
            raise errors.UnknownRunError(run_id=row.run_id, generation=row.generation)
        token, lease_until, last = found[0]
        return token, lease_until, last or 0

    def _put(self, row: RunRow) -> None:
        self._db.execute(_PUT, row)

    def _insert(self, row: RunRow, event: Event) -> None:
        values = (row.run_id, row.generation, *event, checksum(row, event))
        try:
            self._db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        except sqlite3.IntegrityError as error:  # events that lost their run stand there
            raise errors.JournalCorruptError(str(error), row.run_id, event.seq) from error

    def _delete(self, row: RunRow) -> None:
        self._db.execute("DELETE FROM events WHERE run_id = ?", (row.run_id,))

    def _rows(self, clause: str, *values: Any) -> Iterator[RunRow]:
        return map(row_from, self._read(f"SELECT * FROM runs {clause}", *values))  # noqa: S608

    def _read(self, sql: str, *parameters: Any) -> list[Any]:
        with self._translated():
            return list(_retried(lambda: self._db.execute(sql, parameters).fetchall()))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One durable transaction; after a failed one the journal takes no more."""
        with self._translated():
            if self._broken:
                raise self._refused(f"refuses appends after a failed write ({self._broken})")
            try:
                with self._db:  # rolls back what doesn't come to its end
                    _retried(lambda: self._db.execute("BEGIN IMMEDIATE"))
                    yield
                    _retried(lambda: self._db.execute("COMMIT"))
            except sqlite3.Error as error:
                self._broken = str(error)
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """One thread at a time, in one process, with the errors of SQLite as the engine's.

        Damage is one thing, a disk that refuses is another.
        """
        if os.getpid() != self._pid:
            raise self._refused("was opened before a fork; open it again in this process")
        try:
            with self._lock:
                yield
        except (sqlite3.Error, OSError) as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_NOTADB:
                raise errors.NotAJournalError(path=str(self.path), reason=str(error)) from error
            if code == sqlite3.SQLITE_CORRUPT:
                raise errors.JournalCorruptError(f"{self.path}: {error}") from error
            raise self._refused(str(getattr(error, "strerror", error))) from error

    def _refused(self, reason: str) -> errors.StorageError:
        return errors.StorageError(path=str(self.path), reason=reason.rstrip("."))


def _retried(work: Callable[[], Any]) -> Any:
    """Wait for another writer with a little jitter; who has waited longer asks more often.

    SQLite's own busy handler sleeps longer each time, so that of many writers the unlucky one
    starves.
    """
    began = time.monotonic()
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            waited_s = time.monotonic() - began
            if not busy or waited_s > BUSY_LIMIT_S:
                raise
        time.sleep(random.uniform(0.0005, 0.0015) / (1 + 50 * waited_s))


def _refuse_other_files(path: Path) -> None:
    """Look whose file it is, without locks and without a trace.

    SQLite has to do even this: closing a descriptor of our own would give up every lock that this
    process holds on the file, and with them the log of a journal that is open on it.
    """
    if path.exists() and not path.is_file():
        raise errors.NotAJournalError(path=str(path), reason="it is no regular file")
    if path.exists() and path.stat().st_size:
        with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as look:
            look.execute("PRAGMA writable_schema=ON")  # a file that is growing isn't damaged
            (whose,) = look.execute("PRAGMA application_id").fetchone()
        if whose != APPLICATION_ID:
            reason = "it is another program's SQLite database"
            raise errors.NotAJournalError(path=str(path), reason=reason)
