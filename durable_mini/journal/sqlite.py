"""A journal in one SQLite file, durable at every commit.

Guarantees: WAL with `synchronous=FULL`, so a returned append is on the disk; a process killed at
any instant leaves the last commit whole. A file that is something else is refused before SQLite
touches it. Leaves to others: what to do after a storage error, except that it refuses appends
until it is opened again.
"""

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from threading import RLock
from typing import Any

from durable_mini.errors import (
    ConcurrentAppendError,
    JournalCorruptError,
    NotAJournalError,
    StorageError,
)
from durable_mini.events import Event, EventKind, RunRow, RunStatus, checksum
from durable_mini.journal import Journal

APPLICATION_ID = int.from_bytes(b"dMin")
SCHEMA_VERSION = 1
BUSY_LIMIT_S = 30.0

_HEADER = b"SQLite format 3\x00"
_INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT_RUN = (
    "SELECT run_id, generation, workflow, version, structure, status, attempts, error FROM runs"
)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class SQLiteJournal(Journal):
    """Runs in a SQLite file; several processes may open the same one.

    Args:
        path: the file; it is created where it doesn't exist, its folder is not.

    Raises:
        NotAJournalError: the path holds something else, or a journal of a newer version.
        JournalCorruptError: the file is a journal that has been damaged.
        StorageError: the file can't be opened or created.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._pid = os.getpid()
        self._lock = RLock()
        self._broken: str | None = None
        _refuse_other_files(self.path)
        try:
            self._db = sqlite3.connect(
                self.path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise StorageError(str(self.path), str(error)) from error
        try:
            self._open()
        except BaseException:
            self._db.close()
            raise

    def _open(self) -> None:
        """Create the tables in a new file, check the version of an old one, and turn durability
        on.
        """
        with self._translated():
            self._retried(self._create_or_check)
            self._retried(lambda: self._db.execute("PRAGMA journal_mode=WAL").fetchone())
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA fullfsync=ON")  # macOS: fsync alone stops at the drive's cache

    def _create_or_check(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            with self._transaction():
                (tables,) = self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                if tables == 0:
                    self._create()
                    version = SCHEMA_VERSION
                else:  # another process created it between our look and our lock
                    (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        if application != APPLICATION_ID:
            raise NotAJournalError(str(self.path), "it is another program's SQLite database")
        if version != SCHEMA_VERSION:
            raise NotAJournalError(
                str(self.path),
                f"its schema is version {version}, this engine reads {SCHEMA_VERSION}",
            )

    def _create(self) -> None:
        schema = resources.files("durable_mini.journal").joinpath("schema.sql").read_text("utf-8")
        for statement in schema.split(";\n"):
            if statement.strip():
                self._db.execute(statement)
        self._db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def admit(self, row: RunRow, event: Event) -> bool:
        """See `Journal.admit`."""
        values = (
            row.run_id,
            row.generation,
            row.workflow,
            row.version,
            row.structure,
            row.status,
            row.attempts,
            row.error,
        )
        with self._writing():
            taken = self._db.execute(
                "SELECT 1 FROM runs WHERE run_id = ?", (row.run_id,)
            ).fetchone()
            if taken:
                return False
            self._db.execute("INSERT INTO runs VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            self._db.execute(_INSERT_EVENT, _event_values(row.run_id, row.generation, event))
        return True

    def append(
        self, run_id: str, generation: int, event: Event, status: RunStatus | None = None
    ) -> None:
        """See `Journal.append`."""
        values = _event_values(run_id, generation, event)
        try:
            with self._writing():
                self._db.execute(_INSERT_EVENT, values)
                if status is not None:
                    self._db.execute(
                        "UPDATE runs SET status = ?, error = NULL WHERE run_id = ?",
                        (status, run_id),
                    )
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
                raise StorageError(str(self.path), str(error)) from error
            raise ConcurrentAppendError(run_id, event.seq) from None

    def begin_attempt(self, run_id: str) -> int:
        """See `Journal.begin_attempt`."""
        with self._writing():
            (attempts,) = self._db.execute(
                "UPDATE runs SET status = ?, attempts = attempts + 1, error = NULL"
                " WHERE run_id = ? RETURNING attempts",
                (RunStatus.RUNNING, run_id),
            ).fetchone()
        return int(attempts)

    def mark(self, run_id: str, status: RunStatus, error: str) -> None:
        """See `Journal.mark`."""
        with self._writing():
            self._db.execute(
                "UPDATE runs SET status = ?, error = ? WHERE run_id = ?", (status, error, run_id)
            )

    def row(self, run_id: str) -> RunRow | None:
        """See `Journal.row`."""
        found = self._read(f"{_SELECT_RUN} WHERE run_id = ?", run_id)
        return _row_from(found[0]) if found else None

    def rows(self) -> Iterator[RunRow]:
        """See `Journal.rows`."""
        return map(_row_from, self._read(f"{_SELECT_RUN} ORDER BY position"))

    def events(self, run_id: str, generation: int) -> list[Event]:
        """See `Journal.events`."""
        found = self._read(
            "SELECT seq, kind, name, payload, recorded_at, checksum FROM events"
            " WHERE run_id = ? AND generation = ? ORDER BY seq",
            run_id,
            generation,
        )
        return [
            _event_from(run_id, generation, seq, values)
            for seq, values in enumerate(found, start=1)
        ]

    def integrity(self) -> list[str]:
        """See `Journal.integrity`: SQLite's own check of the file, and events that belong to no
        run.
        """
        try:
            found = [text for (text,) in self._read("PRAGMA integrity_check") if text != "ok"]
        except JournalCorruptError as error:
            return [error.reason]
        strays = self._read(
            "SELECT DISTINCT run_id FROM events WHERE run_id NOT IN (SELECT run_id FROM runs)"
        )
        return found + [
            f"there are events of run {run_id}, but no such run" for (run_id,) in strays
        ]

    def close(self) -> None:
        """See `Journal.close`."""
        if os.getpid() == self._pid:
            self._db.close()

    def _read(self, sql: str, *parameters: Any) -> list[Any]:
        with self._lock, self._translated():
            self._check_process()
            found: list[Any] = self._retried(lambda: self._db.execute(sql, parameters).fetchall())
            return found

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One durable transaction; after a failed one the journal takes no more."""
        with self._lock:
            self._check_process()
            if self._broken is not None:
                raise StorageError(str(self.path), f"refuses appends after {self._broken}")
            try:
                with self._translated(), self._transaction():
                    yield
            except StorageError as error:
                self._broken = f"the failed write ({error.reason})"
                raise

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._retried(lambda: self._db.execute("BEGIN IMMEDIATE"))
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _retried(self, work: Any) -> Any:
        """Wait for another writer with a little jitter.

        SQLite's own busy handler sleeps longer each time, so that of many writers the unlucky one
        starves.
        """
        give_up_at = time.monotonic() + BUSY_LIMIT_S
        while True:
            try:
                return work()
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                if not busy or time.monotonic() > give_up_at:
                    raise
            time.sleep(random.uniform(0.0005, 0.0015))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """SQLite's errors as the engine's: damage is one thing, a disk that refuses is another."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _DAMAGED:
                raise JournalCorruptError(f"{self.path}: {error}") from error
            raise StorageError(str(self.path), str(error)) from error

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StorageError(
                str(self.path), "was opened before a fork; SQLite can't be shared across one"
            )


def _refuse_other_files(path: Path) -> None:
    """Look at the first bytes before SQLite does, so that another program's file stays as it is."""
    try:
        if not path.exists():
            return
        if not path.is_file():
            raise NotAJournalError(str(path), "it is no regular file")
        with path.open("rb") as file:
            head = file.read(100)
    except OSError as error:
        raise StorageError(str(path), str(error.strerror)) from error
    if not head:
        return
    if not head.startswith(_HEADER) or len(head) < 100:
        raise NotAJournalError(str(path), "it is no SQLite database")
    if int.from_bytes(head[68:72]) != APPLICATION_ID:
        raise NotAJournalError(str(path), "it is another program's SQLite database")


def _event_values(run_id: str, generation: int, event: Event) -> tuple[Any, ...]:
    return (run_id, generation, *event, checksum(run_id, generation, event))


def _event_from(run_id: str, generation: int, expected_seq: int, values: Any) -> Event:
    *stored, check = values
    seq, kind, name, text, recorded_at = stored
    if seq != expected_seq:
        raise JournalCorruptError("this event is missing", run_id=run_id, seq=expected_seq)
    if checksum(run_id, generation, Event(*stored)) != check:
        raise JournalCorruptError("the checksum doesn't fit", run_id=run_id, seq=seq)
    try:
        return Event(seq, EventKind(kind), name, text, recorded_at)
    except ValueError:
        raise JournalCorruptError(f"unknown kind {kind!r}", run_id=run_id, seq=seq) from None


def _row_from(values: Any) -> RunRow:
    run_id, generation, workflow, version, structure, status, attempts, error = values
    try:
        known = RunStatus(status)
    except ValueError:
        raise JournalCorruptError(f"unknown status {status!r}", run_id=run_id) from None
    return RunRow(run_id, generation, workflow, version, structure, known, attempts, error)
