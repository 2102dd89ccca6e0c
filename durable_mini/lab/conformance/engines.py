"""durable_mini as the kit sees it: one adapter, with each journal.

Guarantees: the engine under check is the one that everybody uses, with no hook in it. Leaves to
others: other engines, which bring an adapter of their own (`adapter`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from durable_mini.clock import SystemClock
from durable_mini.engine import Engine
from durable_mini.errors import StorageError
from durable_mini.events import Entry, EventKind, Run, RunRow, RunStatus
from durable_mini.journal import Journal, Opening, row_from
from durable_mini.journal.file import FileJournal
from durable_mini.journal.memory import MemoryJournal
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.lab.conformance import adapter
from durable_mini.structure import Workflow, workflow as durable

_T = TypeVar("_T")
_workflows: WeakKeyDictionary[adapter.Workflow, Workflow] = WeakKeyDictionary()


class NotCompletedError(Exception):
    """A run that has no result: it waits, failed, was cancelled, or needs attention."""


class ByRunId:
    """What the kit asks of a run by its id, for any engine with the methods of `Engine`."""

    _engine: Any

    def history(self, run_id: str) -> list[tuple[int, str, str]]:
        """Number, kind and name of each event."""
        return [(event.seq, event.kind, event.name) for event in self._engine.history(run_id)]

    def signal(self, run_id: str, name: str, payload: Any, signal_id: str) -> None:
        """Give a run something from outside."""
        self._engine.signal(run_id, name, payload, signal_id=signal_id)

    def cancel(self, run_id: str) -> None:
        """Ask a run to stop."""
        self._engine.cancel(run_id)

    def cost(self, run_id: str) -> float:
        """What a run has spent."""
        return float(self._engine.describe(run_id).cost)


class DurableMini(ByRunId):
    """An engine of durable_mini, as one process.

    Args:
        journal: which it opens, and closes at its end.
        clock: where time comes from.
        offers: what the engine with this journal has beyond the core.
        options: of `Engine`, to check it with other settings.
    """

    def __init__(
        self, journal: Journal, clock: SystemClock, offers: frozenset[str], **options: Any
    ) -> None:
        self._journal, self._options, self.offers = journal, {"clock": clock, **options}, offers
        self._engine = Engine(journal, **self._options)

    def start(self, run_id: str, workflow: adapter.Workflow, value: Any) -> None:
        """Admit a run."""
        agent = _made_durable(workflow)
        Engine(self._journal, [agent], **self._options).start(agent, value, run_id=run_id)

    def resume(self, run_id: str, workflow: adapter.Workflow) -> Any:
        """Drive a run.

        Raises:
            NotCompletedError: it has no result; what the engine raises otherwise.
        """
        run = Engine(self._journal, [_made_durable(workflow)], **self._options).resume(run_id)
        if run.status is not RunStatus.COMPLETED:
            raise NotCompletedError(_said(run))
        return run.result

    def close(self) -> None:
        """End the process."""
        self._journal.close()


def _made_durable(fn: adapter.Workflow) -> Workflow:
    if fn not in _workflows:
        _workflows[fn] = durable(version="1", name="checked")(fn)
    return _workflows[fn]


def _said(run: Run) -> str:
    error = run.error
    why = f": {error.type}: {error.message} (step {error.step!r})" if error else ""
    return f"run {run.run_id} is {run.status}{why}"


class _Pictured(MemoryJournal):
    """A journal in memory, of which a picture is on the disk after every commit.

    The picture is what outlives the process here; the engine sees a journal in memory. Two
    processes on one disk at one time share one.
    """

    open_now: ClassVar[WeakValueDictionary[str, _Pictured]] = WeakValueDictionary()

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self._one_at_a_time, self._restoring = path, RLock(), True
        runs = json.loads(path.read_bytes()) if path.exists() else []
        for row, events in runs:
            self.admit((row_from(row), [(EventKind(kind), *rest) for _, kind, *rest in events]))
        self._restoring = False
        self.open_now[str(path)] = self

    def admit(
        self, opening: Opening, over: RunRow | None = None, parent: RunRow | None = None
    ) -> bool:
        """See `Journal.admit`."""
        with self._one_at_a_time:
            return self._pictured(super().admit(opening, over, parent))

    def append(self, row: RunRow, entry: Entry | None, **options: Any) -> int:
        """See `Journal.append`."""
        with self._one_at_a_time:
            return self._pictured(super().append(row, entry, **options))

    def request(self, run_id: str, asks: Callable[[RunRow], Entry | None]) -> bool:
        """See `Journal.request`."""
        with self._one_at_a_time:
            return self._pictured(super().request(run_id, asks))

    def close(self) -> None:
        """See `Journal.close`."""
        self.open_now.pop(str(self._path), None)

    def _pictured(self, done: _T) -> _T:
        if done and not self._restoring:
            runs = [(row, self.events(row)) for row in self.rows()]
            aside = self._path.with_suffix(".new")
            try:
                aside.write_text(json.dumps(runs))
                aside.replace(self._path)
            except OSError as error:
                raise StorageError(path=str(self._path), reason=str(error.strerror)) from error
        return done


_ALL = frozenset(adapter.CAPABILITIES)


def memory_engine(folder: Path, clock: SystemClock) -> DurableMini:
    """durable_mini with a journal in memory: it has no file that could be torn."""
    path = folder / "memory.json"
    journal = _Pictured.open_now.get(str(path)) or _Pictured(path)
    return DurableMini(journal, clock, _ALL - {"files"})


def file_engine(folder: Path, clock: SystemClock) -> DurableMini:
    """durable_mini with a journal in one file: a second process is kept out while it is open."""
    return DurableMini(FileJournal(folder / "journal.jsonl"), clock, _ALL)


def sqlite_engine(folder: Path, clock: SystemClock) -> DurableMini:
    """durable_mini with a journal in SQLite."""
    return DurableMini(SQLiteJournal(folder / "journal.db"), clock, _ALL)


ENGINES: dict[str, adapter.Factory] = {
    "MemoryJournal": memory_engine,
    "FileJournal": file_engine,
    "SQLiteJournal": sqlite_engine,
}
"""durable_mini with each of its journals."""
