"""One process that drives one run: what a notebook does in its kernel, and a child on its own.

Guarantees: the run is started unless it is there, then resumed, on the engine of `durable_mini`,
with a clock that stands still; at the chosen place it is as if the process had died. What the run
came to is read from the journal afterwards, by whoever asked. Leaves to others: being killed for
real (`answering`, `child`), what a check makes of it (`exercise`).
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from durable_mini.clock import FakeClock
from durable_mini.context import Probe, in_turn
from durable_mini.engine import Engine
from durable_mini.errors import DurableError, UnknownRunError
from durable_mini.events import Event, EventKind, Position, RunError, RunStatus
from durable_mini.journal import Journal
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.ops import verify
from durable_mini.structure import Workflow

START_S = 1_000_000_000.0
SCRATCH_PREFIX = "durable-mini-answers-"
MAX_JOURNAL_BYTES = 16_000_000
REQUEST, UNSENT = "request", "unsent"
"""The positions of a crash right after a request took effect, before its answer goes back, and
right before it would have: whoever notes what they are about to do has noted too much there."""

Crash = tuple[str, str]


class Drive(NamedTuple):
    """What a process is to do: drive a run of a workflow, by the name of its variable."""

    workflow: str
    input: Any
    journal: str
    run_id: str = "r-1"
    now_s: float | None = None


class Driven(NamedTuple):
    """What came of a process that drove a run, as the journal tells it afterwards.

    `killed` says whether it met its crash. `status`, `result` and `error` are the run's; `error` is
    what stopped the engine where the run itself has none. `ledger` is the one it worked with and
    `place` where it was killed, in words; both are there for checks that go through many.
    """

    killed: bool
    status: RunStatus | None
    result: Any
    error: RunError | None
    history: list[Event]
    waiting_for: str | None = None
    input: Any = None
    cost: float = 0.0
    attempts: int = 0
    generation: int = 0
    ledger: Any = None
    place: str = ""

    def names(self, *kinds: str) -> list[str]:
        """The names of the recorded events of these kinds; of steps and effects by default."""
        return [event.name for event in self.history if event.kind in (kinds or ("step", "effect"))]


def call_name(kind: str, name: str) -> str:
    """What a durable call is called in a place: steps and effects by name, others by kind too."""
    return name if kind in (EventKind.STEP, EventKind.EFFECT) else f"{kind}:{name}"


class Places:
    """Numbers the durable calls of a run, and says when its process has come to a place.

    Args:
        crash: the call and the position, e.g. `("charge", "window")`, `("charge#2", "before")`;
            `("3", "request")` is right after the third request to the ledger, and `("3", "unsent")`
            right before it.
        recorded: the history that the process begins with.
    """

    def __init__(self, crash: Crash | None = None, recorded: Iterable[Event] = ()) -> None:
        self.crash = crash
        self._made = Counter(call_name(event.kind, event.name) for event in recorded)

    def at_call(self, position: str, kind: str, name: str) -> bool:
        """Whether this position of a durable call is the place."""
        call = call_name(kind, name)
        self._made[call] += position == Position.BEFORE
        return self.crash == (_numbered(call, self._made[call]), position)

    def before_request(self, number: int) -> bool:
        """Whether the request that has arrived is the place: it will never take effect."""
        return self.crash == (str(number), UNSENT)

    def at_request(self, number: int) -> bool:
        """Whether the request that was just answered is the place."""
        return self.crash == (str(number), REQUEST)


def _numbered(call: str, number: int) -> str:
    return call if number <= 1 else f"{call}#{number}"


def drive(
    order: Drive, wanted: Workflow, others: Iterable[Workflow], probe: Probe
) -> RunError | None:
    """Drive a run until it ends or is suspended; what stopped the engine, if anything did.

    It is a deploy of the wanted workflow: no other version of it is there.
    """
    known = {(flow.name, flow.version): flow for flow in others if flow.name != wanted.name}
    known[wanted.name, wanted.version] = wanted
    with SQLiteJournal(order.journal) as journal:
        clock = FakeClock(_time_in(journal, order.run_id, order.now_s))
        engine = Engine(journal, known.values(), clock=clock, probe=probe, spread=in_turn)
        try:
            if journal.row(order.run_id) is None:
                engine.start(wanted, order.input, run_id=order.run_id)
            engine.resume(order.run_id)
        except DurableError as error:
            return RunError(type(error).__name__, str(error))
    return None


@contextmanager
def outside(journal: str, run_id: str, now_s: float | None) -> Iterator[Engine]:
    """An engine without workflows on a journal: for what comes to a run from outside."""
    with SQLiteJournal(journal) as opened:
        yield Engine(opened, clock=FakeClock(_time_in(opened, run_id, now_s)))


def keep_only_journals(folder: Path) -> None:
    """Remove whatever else a process has left, when none of them goes on.

    The next one knows what is in the journal, and nothing more; and beside no journal lies a file
    by which SQLite, when the checks open it, removes any file of this user.
    """
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif not _JOURNAL.fullmatch(entry.name):
            entry.unlink(missing_ok=True)


_JOURNAL = re.compile(r"journal-\d+\.db(-wal|-shm)?")


def _time_in(journal: Journal, run_id: str, now_s: float | None) -> float:
    """The time that was asked for, or else that of the run's last event."""
    if now_s is not None:
        return now_s
    row = journal.row(run_id)
    events = journal.events(row) if row is not None else []
    return events[-1].recorded_at if events else START_S


def read_back(journal: str, run_id: str, stop: RunError | None = None) -> Driven:
    """How a run stands in a journal that is opened for reading, and checked first.

    Raises:
        DurableError: it is no journal, or one that no engine would have written.
    """
    if not _is_there(Path(journal)):
        return Driven(False, None, None, stop, [])
    with SQLiteJournal(journal, read_only=True) as opened:
        checked = verify(opened)
        if not checked.ok:
            first = checked.problems[0]
            raise DurableError(f"the journal isn't sound: {first.problem}", first.run_id, first.seq)
        engine = Engine(opened)
        try:
            run = engine.describe(run_id)
        except UnknownRunError:
            return Driven(False, None, None, stop, [])
        history = engine.history(run_id)
    more = {name: getattr(run, name) for name in ("waiting_for", "input", "cost", "attempts")}
    told = run.status, run.result, run.error or stop, history
    return Driven(False, *told, generation=run.generation, **more)


def _is_there(journal: Path) -> bool:
    """Whether there is a journal that can be looked into without harm.

    Raises:
        DurableError: it is a link, or larger than any exercise needs.
    """
    for path in (journal, *(Path(f"{journal}-{part}") for part in ("wal", "shm"))):
        if path.is_symlink() or (path.exists() and path.stat().st_size > MAX_JOURNAL_BYTES):
            raise DurableError("the journal is no plain file of a few megabytes")
    if not journal.is_file():
        return journal.exists()
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{journal.as_uri()}?mode=ro", uri=True)) as db,
    ):
        # What a table is made of can run for ever when it is read; the engine makes nothing such.
        odd = (
            "SELECT name FROM sqlite_schema WHERE type NOT IN ('table', 'index')"
            " OR tbl_name NOT IN ('runs', 'events')"
        )
        if db.execute(odd).fetchone():
            raise DurableError("the journal holds what no engine puts there")
    return True


def places_of(history: Iterable[Event], requests: int) -> list[Crash]:
    """Every place at which the process that wrote a history could have died."""
    counts, found = Counter[str](), list[Crash]()
    for event in history:
        if event.kind in _PROBED:
            call = call_name(event.kind, event.name)
            counts[call] += 1
            found += [(_numbered(call, counts[call]), position) for position in Position]
    numbers = map(str, range(1, requests + 1))
    return found + [(number, position) for number in numbers for position in (UNSENT, REQUEST)]


_PROBED = frozenset({EventKind.STEP, EventKind.EFFECT, EventKind.UNDO})


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for journals, in memory if there is one: a killed process is all they survive.

    What processes have left that were killed before they could tidy up goes with it.
    """
    memory = "/dev/shm"  # noqa: S108 - a folder of its own is made in it
    place = memory if os.access(memory, os.W_OK) else tempfile.gettempdir()
    for left in Path(place).glob(f"{SCRATCH_PREFIX}*-*"):
        owner = left.name.removeprefix(SCRATCH_PREFIX).partition("-")[0]
        if owner.isdecimal() and not _is_alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=f"{SCRATCH_PREFIX}{os.getpid()}-", dir=place)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
