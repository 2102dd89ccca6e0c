"""A process that dies at each place in turn: around every commit of its journal, and at every
position of every live durable call.

Guarantees: a schedule is one number, the n-th place that the process comes to; a dead process
writes nothing more, or the schedule fails; what comes after it opens the file again and has nothing
else. The file is SQLite's, without fsync: processes die here, machines don't.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from shutil import copyfile
from threading import Lock, get_ident
from typing import Any

from support import RUN_ID

from durable_mini import Engine, Event, FakeClock, Run, RunStatus, SQLiteJournal, Worker, Workflow
from durable_mini.events import ENDED, OUTSIDE

Drive = Callable[[Engine], None]

_PASSING = {"attempt", "due_at", "since"}  # what a crash may change
_MOST_ATTEMPTS = 60
LEASE_S = 5.0


class Died(BaseException):
    """The process is dead; nothing of it runs on."""


class Fate:
    """Kills the process at the n-th place that it comes to; 0 is never.

    Attributes: `dead`; `written` (what the process tried to write once its driving thread was dead;
    a death in another thread takes a moment to get there).
    """

    def __init__(self, dies_at: int) -> None:
        self.dead, self.written = False, 0
        self._dies_at, self._places, self._driving_dead = dies_at, 0, False
        self._lock, self._thread = Lock(), get_ident()

    def __call__(self, *_: Any) -> None:
        """A place; also the engine's probe."""
        with self._lock:
            self._places += 1
            if self._places == self._dies_at:
                self.dead, self._driving_dead = True, get_ident() == self._thread
                raise Died(f"at place {self._dies_at}")

    @contextmanager
    def around(self, writing: Any) -> Iterator[None]:
        """A commit, with a place before it and one after; a heartbeat's has neither."""
        if get_ident() == self._thread:
            self.written += self._driving_dead
            self()
        with writing:
            yield
        if get_ident() == self._thread:
            self()


class MortalJournal(SQLiteJournal):
    """A journal whose process dies when its time has come."""

    fate: Fate | None = None

    def __init__(self, path: Path, fate: Fate) -> None:
        super().__init__(path)
        self._db.execute("PRAGMA synchronous=OFF")
        self.fate = fate

    @contextmanager
    def _writing(self) -> Iterator[None]:
        writing = super()._writing()
        with writing if self.fate is None else self.fate.around(writing):
            yield


def die_everywhere(
    folder: Path,
    workflows: Sequence[Workflow],
    drive: Drive,
    *,
    told: Callable[[Engine], Any] | None = None,
    begin: Callable[[], None] = lambda: None,
    check: Callable[[], None] = lambda: None,
    **options: Any,
) -> int:
    """Drive something from outside through a death at each place, and compare how it ends.

    Args:
        drive: does it all, from the admission to the end; it is called again after a death.
        told: what has to be the same as without a death; every history by default.
        begin: called before each schedule; `check` after it.
        options: the engine's.

    Returns:
        How many places there are.
    """
    crash_free, empty = None, folder / "empty.db"
    SQLiteJournal(empty).close()
    for dies_at in count():
        fate, clock = Fate(dies_at), FakeClock(1_000.0)
        begin()
        path = Path(copyfile(empty, folder / f"{dies_at}.db"))
        ended = _survive(path, fate, clock, workflows, drive, told or stories, options)
        check()
        crash_free = crash_free or ended
        assert ended == crash_free, f"after a death at place {dies_at}"
        if dies_at and not fate.dead:
            return dies_at - 1
    raise AssertionError


def _survive(
    path: Path,
    fate: Fate,
    clock: FakeClock,
    workflows: Sequence[Workflow],
    drive: Drive,
    told: Callable[[Engine], Any],
    options: dict[str, Any],
) -> Any:
    """Drive until nothing dies any more, and tell how that ended."""
    while True:
        with MortalJournal(path, fate) as journal:
            journal.fate = None if fate.dead else fate
            engine = Engine(journal, workflows, clock=clock, probe=journal.fate, **options)
            try:
                drive(engine)
            except Died:
                assert fate.written == 0, "a dead process went on writing"
            else:
                return told(engine)


def stories(engine: Engine) -> dict[str, Any]:
    """All runs and generations, without times and attempts; what came from outside apart."""
    return {
        run.run_id: (
            run._replace(attempts=0),
            [story(engine, run.run_id, of) for of in range(1, run.generation + 1)],
        )
        for run in engine.runs()
    }


def story(engine: Engine, run_id: str, generation: int | None = None) -> tuple[list[Any], Any]:
    """A generation's history, without times and attempts; what came from outside apart."""
    history = engine.history(run_id, generation)
    inside = [_timeless(event) for event in history if event.kind not in OUTSIDE]
    outside = [_timeless(event) for event in history if event.kind in OUTSIDE]
    return inside, sorted(outside, key=str)


def _timeless(event: Event) -> tuple[str, str, Any]:
    kept = {name: value for name, value in event.payload.items() if name not in _PASSING}
    return event.kind, event.name, kept


# Driving from outside


def by_resume(engine: Engine) -> None:
    """Take the run over and drive it, as somebody at a terminal would."""
    engine.resume(RUN_ID)


def by_worker(engine: Engine) -> None:
    """Let a worker drive whatever is due; one that never gets idle is an error."""
    attempts: list[Run] = []

    def counted(run: Run) -> None:
        attempts.append(run)
        assert len(attempts) < _MOST_ATTEMPTS, f"a worker goes round in circles: {run}"

    Worker(engine, poll_s=1.0, on_attempt=counted).run_until_idle()


def driven(
    work: Callable[[Engine], None],
    agent: Workflow,
    value: Any = None,
    answer: Callable[[Engine, Run], None] | None = None,
) -> Drive:
    """Start the run, and let it work and be answered in turn until it has ended."""

    def drive(engine: Engine) -> None:
        engine.start(agent, value, run_id=RUN_ID)
        for _ in range(_MOST_ATTEMPTS):
            work(engine)
            if engine.describe(RUN_ID).status in ENDED | {RunStatus.NEEDS_ATTENTION}:
                return
            suspended = engine.runs(RunStatus.SUSPENDED)
            waiting = [run for run in suspended if not run.waiting_for.startswith("child")]
            if waiting:
                (answer or answered)(engine, waiting[0])
            else:
                engine.clock.advance(LEASE_S)  # a dead worker has it
        raise AssertionError(f"never comes to an end: {engine.describe(RUN_ID)}")

    return drive


def answered(engine: Engine, run: Run) -> None:
    """Give a run what it waits for: a signal, or the time. Silent signals never come."""
    awaited = re.fullmatch(r"signal '([^']+)'.*", run.waiting_for or "")
    if awaited and "silent" not in awaited[1]:
        name, place = awaited[1], len(engine.history(run.run_id))
        signal_id = f"{name}-{run.generation}-{place}"
        engine.signal(run.run_id, name, {"for": name}, signal_id=signal_id)
    else:
        wait_until(engine, engine.journal.row(run.run_id).due_at)


def wait_until(engine: Engine, until: float) -> None:
    """Move the engine's clock on to a time, unless it is later already."""
    while (wait_s := until - engine.clock.now()) > 0:
        engine.clock.advance(wait_s)


def is_free(engine: Engine, run_id: str = RUN_ID) -> bool:
    """Whether nobody holds a run that waits."""
    row = engine.journal.row(run_id)
    now = engine.clock.now()
    return row.status is RunStatus.SUSPENDED and row.worker is None and row.lease_until <= now
