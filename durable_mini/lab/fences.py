"""Journals whose fence is off or wrong, and a web page that knows fencing tokens.

Guarantees: each differs from the real thing in one place, so that what goes wrong with it comes
from that place. None of them is for use. Leaves to others: the processes that trip over them
(`zombie`).
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Any, NamedTuple

from durable_mini.events import Entry, RunRow
from durable_mini.journal.sqlite import SQLiteJournal


class Unfenced(SQLiteJournal):
    """A journal without a fence: it takes what comes, whoever holds the run by now."""

    def append(self, row: RunRow, entry: Entry | None, **rest: Any) -> int:
        """Append as if the caller held the run's newest token."""
        return super().append(self._renewed(row), entry, **rest)

    def peek(self, row: RunRow) -> int:
        """Look as if the caller held the run's newest token."""
        return super().peek(self._renewed(row))

    def _renewed(self, row: RunRow) -> RunRow:
        return row._replace(token=self.find(row.run_id).token)


class FencedByName(Unfenced):
    """A fence that asks for the holder's name instead of its token."""

    def _renewed(self, row: RunRow) -> RunRow:
        same_name = self.find(row.run_id).worker == row.worker
        return super()._renewed(row) if same_name else row


class Text(NamedTuple):
    """What stands on a page, and the highest token that it was written with."""

    text: str
    token: int


class Page:
    """A web page in a file of its own: one text, which whoever writes replaces.

    Args:
        path: where it is kept; made where it doesn't exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        with closing(self._open()) as db:
            db.execute("CREATE TABLE IF NOT EXISTS page (text TEXT, token INTEGER)")
            db.execute("INSERT INTO page SELECT '', 0 WHERE NOT EXISTS (SELECT 1 FROM page)")

    def read(self) -> Text:
        """What stands there now."""
        with closing(self._open()) as db:
            return Text(*db.execute("SELECT text, token FROM page").fetchone())

    def put(self, text: str) -> bool:
        """Replace the text, whoever asks."""
        return self._changed("UPDATE page SET text = ?", text)

    def put_fenced(self, text: str, token: int) -> bool:
        """Replace the text unless a higher token has been here; whether it was replaced."""
        statement = "UPDATE page SET text = ?1, token = ?2 WHERE token <= ?2"
        return self._changed(statement, text, token)

    def _changed(self, statement: str, *values: str | int) -> bool:
        with closing(self._open()) as db:
            return db.execute(statement, values).rowcount > 0

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None)
