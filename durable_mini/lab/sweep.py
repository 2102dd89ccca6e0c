"""A journal's file with every byte damaged in turn: cut there, or flipped, and opened again.

Each damaged copy may do one of three things: tell what is left of the truth, set aside a last line
that isn't whole, or refuse and say where the damage is. Anything else is wrong: an event that was
never written, a lost one that nobody mentions, a run that ends otherwise than it did, a traceback.

Guarantees: the bytes are read once, and every trial works on a copy in a folder of its own, in
memory where the machine has such a folder. With the code at hand every state that was recovered is
resumed as well: what came from outside comes again at its time, and each run has to end as it did.
Leaves to others: disks that lie about a flush, and damage in more than one place.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from logging import CRITICAL
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from durable_mini.errors import DurableError, JournalCorruptError
from durable_mini.events import log
from durable_mini.journal import Journal
from durable_mini.journal.file import FileJournal
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.lab.exploring.progress import Progress, followed
from durable_mini.lab.exploring.scenario import Code, Make, Scenario
from durable_mini.lab.ledger import Ledger
from durable_mini.lab.sweep_report import Damage, Sweep, Verdict, damaged
from durable_mini.lab.sweep_runs import (
    Content,
    changed_runs,
    content,
    difference,
    drive_all,
    ended_runs,
    events_of,
    label_of,
    wrong_end,
)
from durable_mini.ops import verify
from durable_mini.structure import Workflow

MAX_SQLITE_BYTES = 10_000
"""How many bytes of a database are flipped, unless told otherwise."""

BOOKKEEPING = frozenset(
    {"attempts", "crashes", "due_at", "lease_s", "lease_until", "token", "worker"}
)
"""Fields of a run's row that say who drives it when, and nothing of what happened."""

_SQLITE = b"SQLite format 3\0"
_CUT_BYTES = 64  # between two cuts of a database, which knows how long it is to be
_AROUND_BYTES = 64  # what a database keeps around an event's payload: its place, time, checksum

Answer = tuple[Verdict, str, bool]  # what a damaged copy did, what it said, whether it named it


def sweep_journal(
    journal: str | os.PathLike[str] | bytes,
    workflow: Workflow | Make | None = None,
    *,
    world: Callable[[], Any] = Ledger,
    bits: bool = False,
    max_bytes: int | None = None,
    progress: Progress = None,
) -> Sweep:
    """Cut a journal at every byte, flip every byte, and see what each damaged copy makes of it.

    A flip turns all eight bits of a byte, or with `bits` each of them alone. A database is larger
    than what it holds: of one with more than `max_bytes` bytes, all bytes in and around the events
    are flipped and of the others as many, evenly spread, as there is room for; it is cut at every
    64th byte. `.notes` says what was left out.

    Args:
        journal: the path of a file journal or of a SQLite journal, or its bytes. It may be open.
        workflow: the code of its runs, as for `explore`; None doesn't resume them.
        world: makes the world in which runs are resumed.
        bits: flip every bit by itself.
        max_bytes: how many bytes are damaged; all of a file journal by default, 10,000 of a
            database.
        progress: as for `explore`.

    Raises:
        NotAJournalError, JournalCorruptError: the journal is damaged before anything is done to it.
        OSError: it can't be read.
    """
    began = time.perf_counter()
    with TemporaryDirectory(dir=_quick_folder()) as folder, _quiet():
        data = journal if isinstance(journal, bytes) else _bytes_of(Path(journal), Path(folder))
        kind: type[_Database | _Lines] = _Database if data.startswith(_SQLITE) else _Lines
        subject = kind(data, Path(folder), max_bytes)
        code = None if workflow is None else Code(Scenario.of(workflow, None, world=world))
        patient = _Patient(subject, Path(folder), code, world)
        masks = [1 << bit for bit in range(8)] if bits else [0xFF]
        jobs = [(offset, 0) for offset in subject.cuts]
        jobs += [(offset, mask) for offset in subject.flips for mask in masks]
        told = [patient.try_out(*job) for job in followed(jobs, len(jobs), progress, "damages")]
    return _report(subject, patient, told, time.perf_counter() - began)


def _report(subject: _Subject, patient: _Patient, told: list[Damage], seconds: float) -> Sweep:
    size, worst = len(subject.data), list(Verdict)
    cuts, flips = [Verdict.UNTRIED] * (size + 1), [Verdict.UNTRIED] * size
    counts = {"cut": Counter[Verdict](), "flip": Counter[Verdict]()}
    for damage in told:
        bytewise, how = (flips, "flip") if damage.mask else (cuts, "cut")
        counts[how][damage.verdict] += 1
        before = bytewise[damage.offset]
        if before is Verdict.UNTRIED or worst.index(damage.verdict) > worst.index(before):
            bytewise[damage.offset] = damage.verdict
    unseen = [damage for damage in told if damage.verdict is Verdict.WHOLE and damage.said]
    notes = subject.notes
    if unseen:
        fields = sorted({damage.said.partition(" of run ")[0] for damage in unseen})
        text = f"{len(unseen):,} copies tell all that happened, with another {' or '.join(fields)}:"
        notes = (*notes, f"{text} no checksum covers who drives a run when.")
    refused = [damage for damage in told if damage.verdict is Verdict.REFUSED]
    return Sweep(
        subject.kind,
        size,
        tuple(cuts),
        tuple(flips),
        counts,
        tuple(damage for damage in told if damage.verdict is Verdict.WRONG),
        tuple({_wording(damage): damage for damage in reversed(refused)}.values()),
        sum(damage.named for damage in refused),
        patient.resumed,
        subject.lines,
        seconds,
        notes,
    )


def _wording(damage: Damage) -> str:
    return re.sub("[0-9]+", "", damage.said)[:40]


class _Subject(Protocol):
    """A kind of journal: its bytes, which of them are damaged, and what each copy may say.

    `whole` is all that it holds, `ended` how its runs did; `lines` says where its transactions
    begin, if that can be told.
    """

    kind: str
    data: bytes
    whole: Content
    ended: dict[str, str]
    cuts: Sequence[int]
    flips: Sequence[int]
    lines: tuple[tuple[int, str], ...]
    notes: tuple[str, ...]

    def open(self, path: Path) -> Journal:
        """Open a copy."""

    def judge(self, offset: int, mask: int, found: Content | DurableError, journal: Any) -> Answer:
        """Say what a copy that told this, or refused like this, did."""


class _Patient:
    """Damages copies, opens each, and resumes what it recovered.

    Attributes: `resumed` counts the states that were.
    """

    def __init__(
        self, subject: _Subject, folder: Path, code: Code | None, world: Callable[[], Any]
    ) -> None:
        self.resumed = 0
        self._subject, self._folder = subject, folder
        self._code, self._world = code, world
        self._resumed: dict[bytes, str | None] = {}

    def try_out(self, offset: int, mask: int) -> Damage:
        """Damage a copy in one place, and see."""
        path = self._folder / "copy"
        path.write_bytes(damaged(self._subject.data, offset, mask))
        try:
            answer = self._answer(path, offset, mask)
        except Exception as error:  # whatever it is, it is no answer
            answer = Verdict.WRONG, f"it raised {type(error).__name__}: {error}", False
        for left in self._folder.iterdir():
            left.unlink()
        verdict, said, named = answer
        return Damage(offset, mask, verdict, said.replace(f"{self._folder}{os.sep}", ""), named)

    def _answer(self, path: Path, offset: int, mask: int) -> Answer:
        subject = self._subject
        try:
            with subject.open(path) as journal:
                found = content(journal)
                answer = subject.judge(offset, mask, found, journal)
        except DurableError as error:
            return subject.judge(offset, mask, error, None)
        told = answer[0] in (Verdict.WHOLE, Verdict.TORN)
        if not told or self._code is None or found == subject.whole:
            return answer
        wrong = self._resume(path, self._code)
        return (Verdict.WRONG, wrong, False) if wrong else answer

    def _resume(self, path: Path, code: Code) -> str | None:
        """Drive every run of a recovered journal to its end; what is wrong then, if anything.

        The same bytes are resumed once: nothing else goes into it.
        """
        recovered = path.read_bytes()
        if recovered not in self._resumed:
            with self._subject.open(path) as journal:
                begun = content(journal)
                drive_all(journal, code.load(self._world()), self._subject.whole)
            with self._subject.open(path) as journal:  # as the file has it
                self._resumed[recovered] = wrong_end(journal, begun, self._subject.ended)
            self.resumed += 1
        return self._resumed[recovered]


class _Lines:
    """A file journal: a line is a transaction, and every byte is damaged.

    State number k is what the first k lines hold, the header among them.
    """

    kind = "file"

    def __init__(self, data: bytes, folder: Path, max_bytes: int | None) -> None:
        self.data = data
        self._ends = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
        self._states: list[Content] = [{}]
        self.ended: dict[str, str] = {}
        for end in self._ends:
            self._states.append(self._read(folder / "prefix", end))
        self.whole = self._states[-1]
        steps = zip(self._states[1:], self._states[2:], strict=False)
        labels = ["header", *(label_of(*step) for step in steps), "torn"]
        starts = [start for start in (0, *self._ends) if start < len(data)]
        self.lines = tuple(zip(starts, labels, strict=False))
        every = max(1, -(-len(data) // max_bytes)) if max_bytes else 1
        self.cuts: Sequence[int] = range(0, len(data) + 1, every)
        self.flips: Sequence[int] = range(0, len(data), every)
        self.notes: tuple[str, ...] = (f"One byte in {every} was damaged.",) if every > 1 else ()

    def _read(self, path: Path, end: int) -> Content:
        path.write_bytes(self.data[:end])
        with self.open(path) as journal:
            found, self.ended = content(journal), ended_runs(journal)
        path.unlink()
        return found

    def open(self, path: Path) -> Journal:
        """See `_Subject.open`."""
        return FileJournal(path)

    def judge(self, offset: int, mask: int, found: Content | DurableError, journal: Any) -> Answer:
        """See `_Subject.judge`."""
        line = bisect_right(self._ends, offset)  # how many are whole, or which one is flipped
        if isinstance(found, DurableError):
            return self._refusal(line, mask, found)
        if mask and not 0 < len(self._ends) - 1 <= line:
            return Verdict.WRONG, f"it opened, with line {line + 1} damaged", False
        if found != self._states[line]:
            return Verdict.WRONG, f"it tells something else than the first {line} lines", False
        if not mask and (line == 0 or offset in self._ends):
            return Verdict.WHOLE, "", False
        tail = damaged(self.data, offset, mask)[self._ends[line - 1] :]
        kept = [path.read_bytes() for path in journal.path.parent.glob("*.torn-*")]
        if journal.torn is None or kept != [tail]:
            return Verdict.WRONG, "the torn bytes are not kept aside, or nobody says so", False
        return Verdict.TORN, "", False

    def _refusal(self, line: int, mask: int, error: DurableError) -> Answer:
        """A refusal has to say in which run and at which event the damaged line is."""
        if not mask:
            return Verdict.WRONG, f"a cut is no damage, but it refused: {error}", False
        if line == 0:
            return Verdict.REFUSED, str(error), False
        if error.run_id is None and line + 1 >= len(self._ends):  # no whole line follows it
            return Verdict.REFUSED, str(error), False
        before, after = self._states[line], self._states[line + 1]
        named = [
            (run, len(list(events_of(before, run))) + 1) for run in changed_runs(before, after)
        ]
        corrupt = isinstance(error, JournalCorruptError)
        if not corrupt or (error.run_id, error.seq) not in named:
            what = " or ".join(f"run {run}, event {seq}" for run, seq in named)
            return Verdict.WRONG, f"the damage is at {what}, but it said: {error}", False
        return Verdict.REFUSED, str(error), True


class _Database:
    """A SQLite journal: it may lose nothing; where it can't tell all, it has to say so."""

    kind = "sqlite"

    def __init__(self, data: bytes, folder: Path, max_bytes: int | None) -> None:
        self.data = data
        self.lines: tuple[tuple[int, str], ...] = ()
        path = folder / "whole"
        path.write_bytes(data)
        with self.open(path) as journal:
            self.whole, self.ended = content(journal), ended_runs(journal)
        for left in folder.iterdir():
            left.unlink()
        self.flips: Sequence[int] = self._chosen(
            MAX_SQLITE_BYTES if max_bytes is None else max_bytes
        )
        self.cuts: Sequence[int] = [*range(0, len(data), _CUT_BYTES), len(data)]
        left_out = len(data) - len(self.flips)
        self.notes: tuple[str, ...] = ()
        if left_out:
            text = f"{len(self.flips):,} of {len(data):,} bytes were flipped: all in and around the"
            self.notes = (f"{text} events, and of the others evenly spread ones.",)

    def _chosen(self, most: int) -> list[int]:
        """Which bytes are flipped; in a record an event's kind, name and payload stand in a row."""
        size, chosen = len(self.data), set[int]()
        for _, generations in self.whole.values():
            for event in (event for events in generations.values() for event in events):
                record = f"{event.kind}{event.name}{event.text}".encode()
                at = self.data.find(record[:_AROUND_BYTES])
                around = range(at - _AROUND_BYTES, at + len(record) + _AROUND_BYTES)
                chosen |= set(around) if at >= 0 else set()
        rest = [offset for offset in range(size) if offset not in chosen]
        every = max(1, -(-len(rest) // max(1, most - len(chosen))))
        return sorted(chosen & set(range(size)) | set(rest[::every]))

    def open(self, path: Path) -> Journal:
        """See `_Subject.open`."""
        return SQLiteJournal(path)

    def judge(self, offset: int, mask: int, found: Content | DurableError, journal: Any) -> Answer:
        """See `_Subject.judge`."""
        if isinstance(found, DurableError):
            return Verdict.REFUSED, str(found), getattr(found, "run_id", None) is not None
        problems = verify(journal).problems
        if problems:
            run_id, seq, problem = problems[0]
            return Verdict.REFUSED, f"run {run_id}, event {seq}: {problem}", run_id is not None
        if _without_bookkeeping(found) == _without_bookkeeping(self.whole):
            return Verdict.WHOLE, difference(self.whole, found), False
        if not mask and not found and offset == 0:
            return Verdict.WHOLE, "", False  # an empty file is a new journal
        return Verdict.WRONG, f"nobody noticed that {difference(self.whole, found)}", False


def _without_bookkeeping(found: Content) -> dict[str, Any]:
    """What is told of runs, without what only says who drives them when."""
    return {
        run_id: ([getattr(row, name) for name in row._fields if name not in BOOKKEEPING], events)
        for run_id, (row, events) in found.items()
    }


# ---- files -------------------------------------------------------------------------------------


def _bytes_of(path: Path, folder: Path) -> bytes:
    """The journal's bytes; of a database that is open, those that it would have once closed."""
    log_of = path.with_name(f"{path.name}-wal")
    if not log_of.exists() or not log_of.stat().st_size:
        return path.read_bytes()
    copy = folder / "snapshot"
    copyfile(path, copy)
    copyfile(log_of, folder / "snapshot-wal")
    SQLiteJournal(copy).close()
    return copy.read_bytes()


def _quick_folder() -> str | None:
    """A folder in memory, where the machine has one: thousands of files come and go."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    return str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warning that each torn journal is worth."""
    before = log.level
    log.setLevel(CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
