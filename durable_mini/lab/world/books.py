"""The receiver's books: what took effect, under which key, what was answered, the LLM's bill.

Guarantees: a row and the answer to its key are committed together and on the disk before anybody
hears of them, so that a receiver that is killed anywhere has done a request and can answer for it,
or has done nothing. Several processes may read while one writes. Leaves to others: HTTP (`server`),
and what an endpoint does wrong (`receiver`).

    rows      what took effect, in order; a void is a row too, whose body is the key it voids
    keys      the first request under each key, and the answer that its repeats get
    thoughts  what the model was asked, and what each asking cost
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Self

from durable_mini.clock import SystemClock
from durable_mini.lab.ledger import KeyReusedError, LedgerRow
from durable_mini.lab.world.endpoints import VOID, receipt

APPLICATION_ID = int.from_bytes(b"dWld")
BUSY_LIMIT_S = 30.0

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS rows (
    number INTEGER PRIMARY KEY, endpoint TEXT NOT NULL, order_id TEXT NOT NULL,
    body TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS rows_of_an_order ON rows (order_id, endpoint);
CREATE INDEX IF NOT EXISTS rows_under_a_key ON rows (key);
CREATE INDEX IF NOT EXISTS voided_keys ON rows (body) WHERE endpoint = 'void';
CREATE TABLE IF NOT EXISTS keys (
    key TEXT PRIMARY KEY, request TEXT NOT NULL, answer TEXT NOT NULL, since REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS thoughts (
    number INTEGER PRIMARY KEY, account TEXT NOT NULL, task TEXT NOT NULL,
    price REAL NOT NULL, at REAL NOT NULL
) STRICT;
PRAGMA application_id = {APPLICATION_ID};
COMMIT;
"""

_ROWS = """
SELECT endpoint, order_id, body, key FROM rows
WHERE (?1 IS NULL OR endpoint = ?1) AND (?2 IS NULL OR order_id = ?2) ORDER BY number
"""
_UNDER_A_KEY = """
SELECT endpoint, order_id, body, key FROM rows WHERE key = ? AND endpoint <> 'void' ORDER BY number
"""
_REPEATS = """
SELECT coalesce(sum(times - 1), 0) FROM (
    SELECT count(*) AS times FROM rows
    WHERE endpoint <> 'void' AND (?1 IS NULL OR endpoint = ?1) AND (?2 IS NULL OR order_id = ?2)
    GROUP BY endpoint, order_id
)
"""
_SPENT = "SELECT coalesce(sum(price), 0.0) FROM thoughts WHERE ?1 IS NULL OR account = ?1"
_REMEMBER = "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?)"


class KeyVoidedError(Exception):
    """The key was voided: nothing may take effect under it any more."""


class Answer(NamedTuple):
    """What a request is answered with, and whether it is the answer that its key got before."""

    said: dict[str, Any]
    replayed: bool


class Books:
    """The books in one SQLite file; a file that isn't there is created, its folder is not.

    Args:
        path: the file.
        clock: what the age of a key is judged by.

    Raises:
        ValueError: the file is something else, and was not touched, or it can't be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: SystemClock | None = None) -> None:
        self.path = Path(path).absolute()
        self._clock, self._lock = clock or SystemClock(), Lock()
        try:
            self._db = sqlite3.connect(self.path, timeout=BUSY_LIMIT_S, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise ValueError(f"{self.path}: {error}. Next: choose another path.") from error
        self._db.isolation_level = None
        try:
            self._refuse_other_files()
            # The last is for macOS, where fsync stops at the drive's cache.
            for setting in ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON"):
                self._db.execute(f"PRAGMA {setting}")
            self._db.executescript(_SCHEMA)
        except BaseException:
            self._db.close()
            raise

    def _refuse_other_files(self) -> None:
        try:
            (whose,) = self._db.execute("PRAGMA application_id").fetchone()
            (tables,) = self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.DatabaseError as error:
            why = f"{self.path} holds no books of a world: {error}. Next: choose another path."
            raise ValueError(why) from error
        if whose != APPLICATION_ID and (whose or tables):
            raise ValueError(
                f"{self.path} is another program's database. Next: choose another path."
            )

    # ---- what the receiver writes ---------------------------------------------------------------

    def take(self, row: LedgerRow, *, honour_key: bool, keeps_key_s: float) -> Answer:
        """Let a request take effect, unless its key says that it did, or never may.

        Args:
            row: the request.
            honour_key: whether its key is looked at. The row bears it in any case.
            keeps_key_s: how old a key may be that is still known.

        Raises:
            KeyVoidedError, KeyReusedError: nothing was written.

        Crash:
            Before the commit nothing has happened and nobody was answered; after it a repeat of
            the key is told what happened.
        """
        with self._writing():
            if honour_key and (known := self._known(row, keeps_key_s)) is not None:
                return Answer(known, replayed=True)
            said = self._effect_of(row)
            self._enter(row)
            if honour_key:
                first = (row.key, json.dumps(row[:3]), json.dumps(said), self._clock.now())
                self._db.execute(_REMEMBER, first)
        return Answer(said, replayed=False)

    def bill(self, account: str, task: str, price: float) -> None:
        """Note what the model was asked, and its price.

        Crash:
            The bill is on the disk before the model answers: a sender that dies meanwhile has
            spent it all the same.
        """
        with self._writing():
            thought = (account, task, price, self._clock.now())
            self._db.execute("INSERT INTO thoughts VALUES (NULL, ?, ?, ?, ?)", thought)

    def _known(self, row: LedgerRow, keeps_key_s: float) -> dict[str, Any] | None:
        """The answer that the key got before, if it is known and may be used."""
        if row.endpoint != VOID.name and self._is_void(row.key):
            raise KeyVoidedError(f"key {row.key!r} was voided: nothing takes effect under it")
        found = self._first_under(row.key)
        if found is None or self._clock.now() >= found[2] + keeps_key_s:
            return None
        first, answer, _ = found
        if first != list(row[:3]):
            raise KeyReusedError(
                f"key {row.key!r} came first with {tuple(first)}, now with {row[:3]}"
            )
        said: dict[str, Any] = answer
        return said

    def _effect_of(self, row: LedgerRow) -> dict[str, Any]:
        said: dict[str, Any] = {"receipt": receipt(row.endpoint, row.order)}
        if row.endpoint == VOID.name:  # nothing to undo is success
            done = [] if self._is_void(row.body) else self._read(_UNDER_A_KEY, row.body)
            said["undone"] = len(done)
        return said

    def _enter(self, row: LedgerRow) -> None:
        # A voided key is looked up as it is; every other body is JSON.
        body = row.body if row.endpoint == VOID.name else json.dumps(row.body)
        values = (row.endpoint, row.order, body, row.key, self._clock.now())
        self._db.execute("INSERT INTO rows VALUES (NULL, ?, ?, ?, ?, ?)", values)

    # ---- what anybody may read ------------------------------------------------------------------

    def rows(self, endpoint: str | None = None, order: str | None = None) -> list[LedgerRow]:
        """What took effect, in order: all of it, or that of one endpoint, of one order."""
        with self._lock:
            return [_row(found) for found in self._read(_ROWS, endpoint, order)]

    def standing(self) -> list[LedgerRow]:
        """What took effect and wasn't taken back."""
        rows = self.rows()
        void = {row.body for row in rows if row.endpoint == VOID.name}
        return [row for row in rows if row.endpoint != VOID.name and row.key not in void]

    def repeats(self, endpoint: str | None = None, order: str | None = None) -> int:
        """The duplicates: rows beyond the first of one endpoint and order; voids don't count."""
        return int(self._one(_REPEATS, endpoint, order))

    def spent(self, account: str | None = None) -> float:
        """What the model billed, to everybody or to one account."""
        return float(self._one(_SPENT, account))

    def state_of(self, key: str) -> tuple[str, dict[str, Any] | None]:
        """What became of a key: "void", "done" with its answer, or "unknown".

        A key that an endpoint ignored is unknown, as is one that never came.
        """
        with self._lock:
            if self._is_void(key):
                return "void", None
            found = self._first_under(key)
        return ("unknown", None) if found is None else ("done", found[1])

    def close(self) -> None:
        """Give the file back. Closing twice is harmless."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _first_under(self, key: str) -> tuple[list[Any], dict[str, Any], float] | None:
        found = self._read("SELECT request, answer, since FROM keys WHERE key = ?", key)
        return next(((json.loads(r), json.loads(a), since) for r, a, since in found), None)

    def _is_void(self, key: str) -> bool:
        query = "SELECT EXISTS (SELECT 1 FROM rows WHERE endpoint = 'void' AND body = ?)"
        return bool(self._read(query, key)[0][0])

    def _one(self, query: str, *values: Any) -> Any:
        with self._lock:
            return self._read(query, *values)[0][0]

    def _read(self, query: str, *values: Any) -> list[Any]:
        return self._db.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One durable transaction, of one thread at a time."""
        with self._lock, self._db:  # rolls back what doesn't come to its end
            self._db.execute("BEGIN IMMEDIATE")
            yield


def _row(found: tuple[str, str, str, str]) -> LedgerRow:
    endpoint, order, body, key = found
    return LedgerRow(endpoint, order, body if endpoint == VOID.name else json.loads(body), key)
