"""A journal whose process dies at a chosen write, before a commit or right after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from durable_mini import Event, SQLiteJournal
from durable_mini.events import RunRow


class JournalDied(BaseException):
    """The process ended here: what wasn't committed is lost."""


class DyingJournal(SQLiteJournal):
    """Survives so many writes: each row, each event, each commit and what follows it counts."""

    def __init__(self, path: Path, *, after: int) -> None:
        self.left = after
        super().__init__(path)

    def _live_on(self) -> None:
        if self.left == 0:
            raise JournalDied
        self.left -= 1

    def _put(self, row: RunRow) -> None:
        self._live_on()
        super()._put(row)

    def _insert(self, row: RunRow, event: Event) -> None:
        self._live_on()
        super()._insert(row, event)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with super()._writing():
            yield
            self._live_on()
        self._live_on()
