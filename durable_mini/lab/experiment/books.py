"""The experiment's own books: which jobs are done, who was killed where, how long it took.

Guarantees: a file that outlives whoever writes it, so that an experiment that was stopped goes on;
a job is handed out at least once, and again when its worker hasn't finished it in time. That is all
that a queue with retries promises. Leaves to others: what a job is (`duty`), and what was charged
and sent, which only the receiver knows (`world`).
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

_SCHEMA = """
CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS job (
    strategy TEXT NOT NULL, name TEXT NOT NULL, hidden_until REAL NOT NULL DEFAULT 0,
    worker TEXT, deliveries INTEGER NOT NULL DEFAULT 0, status TEXT,
    failure TEXT NOT NULL DEFAULT '', PRIMARY KEY (strategy, name)
);
CREATE TABLE IF NOT EXISTS kill (strategy TEXT NOT NULL, step TEXT, position TEXT);
CREATE TABLE IF NOT EXISTS session (strategy TEXT NOT NULL, wall_s REAL NOT NULL);
"""
_LOCK_WAIT_S = 30.0


class Delivery(NamedTuple):
    """A job as it is handed out: its name, and how often that was done, this time included."""

    name: str
    number: int


class Books:
    """The books of one experiment, in a SQLite file that several processes may have open.

    Args:
        path: the file; it is created where it doesn't exist, its folder is not.

    Raises:
        ValueError: the path holds something else, or can't be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        try:
            self._base = sqlite3.connect(path, timeout=_LOCK_WAIT_S, isolation_level=None)
        except sqlite3.OperationalError as error:
            raise ValueError(f"{self._path}: {error}. Next: choose another path.") from error
        try:
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = FULL")
            self._base.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            self._base.close()
            raise ValueError(f"{self._path} isn't the books of an experiment: {error}") from error

    def agree_on(self, settings: dict[str, Any]) -> None:
        """Note what the experiment is, or see that it is the one that was begun here.

        Raises:
            ValueError: another experiment was begun here; the first setting that differs is named.
        """
        with self._writing():
            known = dict(self._base.execute("SELECT name, value FROM setting"))
            for name, value in settings.items():
                text = json.dumps(value)
                if known.setdefault(name, text) != text:
                    raise ValueError(
                        f"{self._path} belongs to an experiment with {name} {known[name]}, asked "
                        f"for is {text}. Next: ask for the same, or give another --journal."
                    )
            self._base.executemany("INSERT OR IGNORE INTO setting VALUES (?, ?)", known.items())

    def put(self, strategy: str, names: Iterable[str]) -> None:
        """Add jobs to a strategy's queue; those that are there already stay as they are."""
        with self._writing():
            rows = ((strategy, name) for name in names)
            self._base.executemany("INSERT OR IGNORE INTO job (strategy, name) VALUES (?, ?)", rows)

    def take(self, strategy: str, worker: str, now: float, hidden_s: float) -> Delivery | None:
        """Hand a job out and hide it from others for a while; None where there is none to be seen.

        Crash:
            The job comes back when `hidden_s` are over, and starts from its beginning.
        """
        with self._writing():
            found = self._base.execute(
                "SELECT name, deliveries FROM job WHERE strategy = ? AND status IS NULL "
                "AND hidden_until <= ? ORDER BY deliveries, rowid LIMIT 1",
                (strategy, now),
            ).fetchone()
            if found is None:
                return None
            self._base.execute(
                "UPDATE job SET hidden_until = ?, worker = ?, deliveries = deliveries + 1 "
                "WHERE strategy = ? AND name = ?",
                (now + hidden_s, worker, strategy, found[0]),
            )
            return Delivery(found[0], found[1] + 1)

    def finish(self, strategy: str, name: str, status: str, failure: str = "") -> None:
        """Take a job off the queue: it isn't handed out any more.

        Crash:
            Before the commit the job comes back, though all of its work is done.
        """
        self._base.execute(
            "UPDATE job SET status = ?, failure = ?, worker = NULL WHERE strategy = ? AND name = ?",
            (status, failure, strategy, name),
        )

    def release(self, strategy: str, worker: str | None = None) -> None:
        """Give back at once what a worker that is known to be dead had taken; None: all of them."""
        self._base.execute(
            "UPDATE job SET hidden_until = 0, worker = NULL "
            "WHERE strategy = ? AND status IS NULL AND worker = coalesce(?, worker)",
            (strategy, worker),
        )

    def jobs_left(self, strategy: str) -> int:
        """How many jobs nobody has finished."""
        query = "SELECT count(*) FROM job WHERE strategy = ? AND status IS NULL"
        return int(self._base.execute(query, (strategy,)).fetchone()[0])

    def endings(self, strategy: str) -> list[tuple[str, str]]:
        """How each job ended and what it failed with; `pending` for one that hasn't ended."""
        query = "SELECT coalesce(status, 'pending'), failure FROM job WHERE strategy = ?"
        return [(status, failure) for status, failure in self._base.execute(query, (strategy,))]

    def note_kill(self, strategy: str, step: str | None, position: str | None) -> None:
        """Note that a worker was killed, and at which place if that was a chosen one."""
        self._base.execute("INSERT INTO kill VALUES (?, ?, ?)", (strategy, step, position))

    def kills(self, strategy: str) -> int:
        """How many workers were killed, in all sessions."""
        query = "SELECT count(*) FROM kill WHERE strategy = ?"
        return int(self._base.execute(query, (strategy,)).fetchone()[0])

    def note_session(self, strategy: str, wall_s: float) -> None:
        """Note how long this session worked on a strategy."""
        self._base.execute("INSERT INTO session VALUES (?, ?)", (strategy, wall_s))

    def wall_s(self, strategy: str) -> float:
        """Seconds that all sessions together worked on a strategy."""
        query = "SELECT total(wall_s) FROM session WHERE strategy = ?"
        return float(self._base.execute(query, (strategy,)).fetchone()[0])

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._base.close()
