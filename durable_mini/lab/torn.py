"""A journal whose files were cut short, opened again: what it tells, and what a resumed run does.

Guarantees: the bytes are those of a real SQLite journal, copied while it was open, as a sudden end
would find them; nothing but the cut is changed. Leaves to others: whether a disk keeps what it was
told to keep, which no cut can show; a file journal damaged at every byte (`sweep`), for which there
are bytes here.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from durable_mini.clock import FakeClock
from durable_mini.engine import Engine
from durable_mini.errors import DurableError, UnknownRunError
from durable_mini.events import Event
from durable_mini.journal.file import FileJournal
from durable_mini.journal.memory import MemoryJournal
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.lab.agent import agent_in
from durable_mini.lab.ledger import Ledger
from durable_mini.worker import Worker

ALL, PREFIX, REFUSED, WRONG = (
    "all events",
    "whole events, the last ones missing",
    "refused",
    "WRONG",
)
"""What a cut journal can tell; WRONG is an event that was never written."""

_RUN_ID = "t-1"
_LOG_HEADER_BYTES = 32  # SQLite's file format: then frame after frame, a header and a page each
_FRAME_HEADER_BYTES = 24
_LEASE_S = 3_600.0  # no heartbeat comes in between and adds a line


def file_journal_bytes() -> bytes:
    """The bytes of a file journal with one finished run of the reference agent: always the same.

    >>> file_journal_bytes().count(b"\\n")  # header, admission, claim, seven steps, completion
    11
    """
    with TemporaryDirectory() as folder:
        path = Path(folder, "journal.jsonl")
        agent = agent_in(Ledger())
        with FileJournal(path) as journal:
            engine = Engine(journal, [agent], clock=FakeClock())
            engine.start(agent, _RUN_ID, run_id=_RUN_ID)
            Worker(engine, "worker-1", lease_s=_LEASE_S, heartbeat_s=_LEASE_S / 2).run_until_idle()
        return path.read_bytes()


class TornJournal:
    """The bytes of a journal with one finished run of the reference agent, to be cut at will.

    Attributes: `log_bytes`, the length of the log beside the journal, as it was before the journal
    was closed; `file_bytes`, the length of the journal's file after closing, which moves the log
    into the file.
    """

    def __init__(self) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder, "journal.db")
            agent = agent_in(Ledger())
            with SQLiteJournal(path) as journal:
                Engine(journal, [agent], clock=FakeClock()).run(agent, _RUN_ID, run_id=_RUN_ID)
                self._file, self._log = path.read_bytes(), _log_of(path).read_bytes()
            self._closed = path.read_bytes()
        self.log_bytes, self.file_bytes = len(self._log), len(self._closed)
        self._whole = _history(self._closed, b"")

    def length_for(self, events: int) -> int:
        """The shortest length of the log at which the journal tells of that many events.

        Raises:
            ValueError: the run never had so many.
        """
        if not 0 <= events <= len(self._whole):
            raise ValueError(f"the run has 0 to {len(self._whole)} events, not {events}")
        return self._length_by_events[events]

    @cached_property
    def _length_by_events(self) -> dict[int, int]:
        page_bytes = int.from_bytes(self._log[8:12])
        ends = range(_LOG_HEADER_BYTES, self.log_bytes + 1, _FRAME_HEADER_BYTES + page_bytes)
        return {len(self.history(end)): end for end in reversed(ends)}

    def history(self, length: int) -> list[Event]:
        """The run's events after the log was cut to `length` bytes; none if the run isn't there.

        Raises:
            DurableError: the journal refuses to tell.
        """
        return _history(self._file, self._log[:length])

    def cut_log(self, length: int) -> str:
        """Say what the journal tells after its log was cut to `length` bytes."""
        return self._told(self._file, self._log[:length])

    def cut_file(self, length: int) -> str:
        """Say what the closed journal tells after its file was cut to `length` bytes."""
        return self._told(self._closed[:length], b"")

    def repeats(self, length: int, *, honour_keys: bool) -> int:
        """Resume the run from a log cut to `length` bytes, in a world where all of it had happened.

        Returns: how many effects were booked a second time.
        """
        world = Ledger(honour_keys=honour_keys)
        agent = agent_in(world)
        Engine(MemoryJournal(), [agent]).run(agent, _RUN_ID, run_id=_RUN_ID)
        with TemporaryDirectory() as folder:
            path = _laid_out(Path(folder), self._file, self._log[:length])
            with SQLiteJournal(path) as journal:
                engine = Engine(journal, [agent], clock=FakeClock())
                engine.run(agent, _RUN_ID, run_id=_RUN_ID)
        return world.repeats

    def _told(self, file: bytes, log: bytes) -> str:
        try:
            found = _history(file, log)
        except DurableError:
            return REFUSED
        if found != self._whole[: len(found)]:
            return WRONG
        return ALL if len(found) == len(self._whole) else PREFIX


def _history(file: bytes, log: bytes) -> list[Event]:
    with TemporaryDirectory() as folder:
        path = _laid_out(Path(folder), file, log)
        try:
            with SQLiteJournal(path) as journal:
                engine = Engine(journal)
                engine.describe(_RUN_ID)  # refuses a history that doesn't fit the run's row
                return engine.history(_RUN_ID)
        except UnknownRunError:  # as before the run was admitted
            return []


def _laid_out(folder: Path, file: bytes, log: bytes) -> Path:
    path = folder / "cut.db"
    path.write_bytes(file)
    if log:
        _log_of(path).write_bytes(log)
    return path


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")
