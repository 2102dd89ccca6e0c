"""Checking a journal: its storage, every checksum, and the laws between rows, runs and generations.

Guarantees: reads only; one damaged run doesn't hide the others. Leaves to others: the laws within
one history (`laws`), and mending.
"""

import json
from collections.abc import Iterator
from math import isclose
from typing import NamedTuple

from durable_mini.errors import JournalCorruptError
from durable_mini.events import CLOSING, ENDED, Event, EventKind, RunError, RunRow, RunStatus
from durable_mini.journal import Journal
from durable_mini.ops.laws import History, is_migrated
from durable_mini.structure import structure_hash


class Problem(NamedTuple):
    """One thing that is wrong: in a run where known, at the first sequence number concerned."""

    run_id: str | None
    seq: int | None
    problem: str


class Verification(NamedTuple):
    """What `verify` found: how many runs and events it read, and every problem."""

    runs: int
    events: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify(journal: Journal) -> Verification:
    """Check the storage, every checksum, and the laws that every run obeys.

    In a history: sequence numbers are dense from 1, the admission comes first, an ending last, and
    each payload has what its kind needs. An answer follows what it answers: a signal that is there
    and was next, the end that a child had, a time-out that no signal beat. Tries are counted,
    undos go backwards through what was registered, and nothing is undone after the pivot.

    Between histories: every generation but the newest is closed, the next one begins with its
    input, its spend and the signals it had not read. A parent knows that its child has ended, a
    migrated run has its successor, a pruned one has no events. A row says what the events say.

    A run that another process drives meanwhile is judged as it stands afterwards.

    Returns:
        The counts, tombstones included, and the first broken event of each run that has one.

    Raises:
        StorageError: the journal can't be read at all.
    """
    problems: list[Problem] = []
    runs = events = 0
    try:
        problems += [Problem(None, None, " ".join(text.split())) for text in journal.integrity()]
        for found in _rows_or_faults(journal):
            count, problem = (
                (0, _told(found))
                if isinstance(found, JournalCorruptError)
                else _checked_run(journal, found)
            )
            runs, events = runs + 1, events + count
            problems += [problem] if problem is not None else []
    except JournalCorruptError as error:  # the file itself can't be read on
        problems.append(_told(error))
    return Verification(runs, events, tuple(problems))


def _rows_or_faults(journal: Journal) -> Iterator[RunRow | JournalCorruptError]:
    """Each run's row, or what is wrong with it: a damaged row doesn't hide the next."""
    rows = journal.rows()
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except JournalCorruptError as error:
            yield error


def _told(error: JournalCorruptError, where: str = "") -> Problem:
    return Problem(error.run_id, error.seq, where + error.reason)


def _checked_run(journal: Journal, row: RunRow) -> tuple[int, Problem | None]:
    """How many sound events a run has, and its first problem, as of one moment."""
    while True:
        checked = _Checker(journal, row)
        problem = checked.first_problem()
        now = journal.row(row.run_id) or row
        if now._replace(lease_until=row.lease_until) == row:  # a heartbeat tells nothing
            return checked.events, problem
        row = now  # another driver went on between the two looks


class _Checker:
    """Reads a run generation by generation. `events` counts what it read."""

    def __init__(self, journal: Journal, row: RunRow) -> None:
        self._journal, self._row, self.events = journal, row, 0
        self._before: list[Event] = []  # the generation before the one that is read
        self._history = History([])
        self._signal_ids: set[str] = set()  # of all generations before
        self._parent: str | None = None  # as the admissions have it

    def first_problem(self) -> Problem | None:
        """The first broken event of the run, or what its row says wrongly."""
        row = self._row
        for generation in range(1, row.generation + 2):
            where = f"generation {generation}: " if row.generation > 1 else ""
            try:
                events = self._journal.events(row._replace(generation=generation))
            except JournalCorruptError as error:
                return _told(error, where)
            broken = self._broken_generation(generation, events)
            if broken is not None:
                return Problem(row.run_id, broken[0], where + broken[1])
        return None

    def _broken_generation(self, generation: int, events: list[Event]) -> tuple[int, str] | None:
        self.events += len(events)
        newest = self._row.generation
        if generation > newest or self._row.pruned_at is not None:
            why = "was pruned" if self._row.pruned_at is not None else "has no such generation"
            return (1, f"the run {why}, and there are events") if events else None
        if not events:
            pruned = generation < newest and not self._before
            return None if pruned else (1, "the admission is missing")
        history = History(events)
        broken = history.first_broken() or next(self._badly_begun(events, history.signal_ids), None)
        if broken is None and generation < newest and events[-1].kind not in CLOSING:
            broken = len(events), "there is a next generation, and this one isn't closed"
        self._before, self._history = events, history
        return broken or (next(self._contradictions(), None) if generation == newest else None)

    def _badly_begun(self, events: list[Event], signal_ids: set[str]) -> Iterator[tuple[int, str]]:
        """What a generation's beginning owes to the one before it."""
        admission, before = events[0].payload, self._before
        continues = bool(before) and before[-1].kind is EventKind.CONTINUED
        carried = [signal[1:] for signal in self._history.unread] if continues else []
        for seq, signal in enumerate(carried, start=2):
            if [event[1:] for event in events[seq - 1 : seq]] != [signal]:
                yield seq, f"signal {signal[1]!r}, unread so far, was not carried over"
        for event in events[1 + len(carried) :]:
            if event.kind is EventKind.SIGNAL and event.payload["signal_id"] in self._signal_ids:
                yield event.seq, f"signal {event.payload['signal_id']!r} came before"
        self._signal_ids |= signal_ids
        if ("since" in admission) != continues and "key_base" not in admission:
            yield 1, "whether it continues a generation, and which, doesn't fit what is before it"
        if not continues:
            self._parent = admission.get("parent")
        elif (admission["input"], events[0].name) != (before[-1].payload["input"], before[0].name):
            yield 1, "it doesn't begin with what the generation before continued with"
        (cost, steps), (spent, taken) = admission.get("spent", (0.0, 0)), self._history.spent
        if continues and (steps != taken or not isclose(cost, spent)):
            yield (
                1,
                f"it begins with {cost:g} spent in {steps} steps, not with {spent:g} in {taken}",
            )

    def _contradictions(self) -> Iterator[tuple[int, str]]:
        """Where a run's row, or another run, says something else than the newest history."""
        row, first, last = self._row, self._before[0], self._before[-1]
        if first.name != row.workflow:
            yield 1, f"the row says workflow {row.workflow!r}, the admission {first.name!r}"
        if structure_hash(first.payload["calls"]) != row.structure:
            yield 1, "the structure hash doesn't fit the recorded durable calls"
        if first.payload["version"] != row.version:
            yield 1, f"the row says version {row.version!r}, the admission another"
        if self._parent != row.parent:
            yield 1, f"the row says parent {row.parent!r}, the admission {self._parent!r}"
        if last.kind is EventKind.CONTINUED:
            yield last.seq, "it continues in a generation that isn't there"
        if (last.kind in ENDED or row.status in ENDED) and str(last.kind) != str(row.status):
            yield last.seq, f"the row says {row.status}, the last event is {last.kind}"
        for said in _row_faults(row, self._history.attempt):
            yield last.seq, said
        yield from self._lost_relatives(last)

    def _lost_relatives(self, last: Event) -> Iterator[tuple[int, str]]:
        """What a run owes to its parent, its successor, and the child that it waits for."""
        row, waits = self._row, self._history.open
        if row.parent is not None and self._journal.row(row.parent) is None:
            yield 1, f"its parent {row.parent!r} isn't in the journal"
        if is_migrated(last) and self._journal.row(last.payload["error"]["message"]) is None:
            yield last.seq, "it was migrated, and its successor isn't in the journal"
        if waits is None or waits.kind is not EventKind.CHILD or row.status in ENDED:
            return
        child = self._journal.row(waits.name)
        told = waits.name in self._history.ended_children or self._journal.events(row, last.seq)
        if child is None:
            yield waits.seq, "it waits for a child that isn't in the journal"
        elif child.status in ENDED and not told:
            yield waits.seq, "it waits for a child that has ended, and was never told"


def _row_faults(row: RunRow, attempt: int) -> Iterator[str]:
    """Where a row contradicts itself, or the last attempt that the history marks."""
    attention = row.status is RunStatus.NEEDS_ATTENTION
    for name in ("token", "attempts", "crashes", "lease_s"):
        if getattr(row, name) < 0:
            yield f"the row says {name} {getattr(row, name)}"
    if row.attempts < max(row.crashes, attempt if attempt > 1 else 0):
        yield f"the row counts {row.attempts} attempts, there were more"
    if row.token < row.attempts:
        yield f"the row says token {row.token} after {row.attempts} claims"
    if (row.worker is not None) != (row.status is RunStatus.RUNNING):
        yield f"the row says {row.status}, held by {row.worker or 'nobody'}"
    idle = attention or row.status in ENDED
    if (idle and row.due_at is not None) or (
        row.due_at is None and not idle and row.status is not RunStatus.SUSPENDED
    ):
        yield f"the row says {row.status}, due at {row.due_at}"
    if attention != (row.error is not None) or not _readable(row.error):
        yield "the row doesn't say readably why it needs attention"


def _readable(error: str | None) -> bool:
    try:
        return error is None or isinstance(RunError(**json.loads(error)), RunError)
    except (TypeError, ValueError):
        return False
