"""Random interleavings of everything that may happen to runs, against a plain model of them.

Hypothesis draws programs, callers, drivers, clocks that jump, deployments, and what a driver meets
in the middle of its work: its death, another driver, a signal, a cancel request. After each move
the journal is compared with the model (`model`): what the receiver has seen, and what each run must
come to. At the end everything is mended, and the workers go on until nothing is left to do.
"""

from __future__ import annotations

import os
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from itertools import chain
from pathlib import Path
from threading import current_thread
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from model import (
    CODES,
    LATE,
    MOST_BRANCHES,
    Asked,
    Outcome,
    Plain,
    Program,
    Stage,
    World,
    agent_after,
    agent_two,
    one_by_one,
    side_by_side,
)
from support import prune_at

from durable_mini import (
    DurableError,
    Engine,
    Event,
    EventKind,
    FakeClock,
    FileJournal,
    LeaseLostError,
    MemoryJournal,
    NonDeterminismError,
    Position,
    Run,
    RunIdConflictError,
    RunStatus,
    SQLiteJournal,
    StructureChangedError,
    UnknownRunError,
    UnknownWorkflowError,
    Worker,
    Workflow,
)
from durable_mini.events import CLOSING, ENDED, OUTSIDE, Entry, RunRow
from durable_mini.journal import Journal
from durable_mini.ops import prune, verify

LEASE_S = 20.0
MOST_RUNS = 5
MOST_ATTEMPTS = 400
WITHOUT_END = "some run goes on for ever"

happened = Counter[str]()
"""How often each kind of thing has happened, over all examples of a test."""


# What is drawn

BLOCKS: list[Program] = [
    [["step", "plan", 0, 1]],
    [["step", "fetch", 1, 3], ["price"]],
    [["try", ["step", "fetch", 2, 2], ["effect", "mail", 0, 1]], ["price"]],
    [["chance"], ["step", "plan", 0, 1]],
    [["effect", "charge", 0, 1], ["effect", "charge", 1, 2], ["effect", "charge#2", 0, 1]],
    [["saga", "charge", [], "charge", 0, 1]],
    [["saga", "refund", [["step", "think", 0, 1]], "charge", 1, 2]],
    [["effect", "charge", 0, 1], ["saga", "charge", [["wait", "approval", 30]], "charge", 0, 1]],
    [["saga", "hotel", [], "hotel", 0, 1], ["try", ["effect", "mail", 2, 2]], ["sleep", 20]],
    [["saga", "flight", [], "flight", 3, 2]],
    [["saga", "pay", [["effect", "note", 0, 1]], "pay", 0, 1]],
    [["sleep", 15], ["price"]],
    [["wait", "approval", 40]],
    [["wait", "approval", None], ["price"]],
    [["gather", [["step", "a", 0, 1], ["effect", "b", 1, 2], ["step", "c", 0, 1]], False]],
    [["gather", [["effect", "a", 0, 1], ["effect", "b", 0, 1]], True], ["step", "plan", 0, 1]],
    [["try", ["gather", [["step", "a", 1, 1], ["step", "b", 2, 2], ["effect", "c", 0, 1]], True]]],
    [["child", [["effect", "mail", 0, 1], ["wait", "approval", 25]], None]],
    [["try", ["child", [["saga", "pay", [], "pay", 0, 1], ["fail"]], None]]],
    [["child", [["effect", "mail", 0, 1]], "kid"]],
    [["child", [["step", "plan", 0, 1], ["again", [["effect", "mail", 0, 1]]]], None]],
    [["step", "plan", 0, 1], ["bug"]],
]
TAILS: list[Program] = [
    [],
    [],
    [["fail"]],
    [["fail"]],
    [["pivot"], ["effect", "ship", 1, 3]],
    [["pivot"], ["fail"]],
    [["again", [["wait", "approval", 10], ["effect", "charge", 0, 1], ["price"]]]],
    [["again", [["saga", "charge", [], "charge", 0, 1], ["price"], ["fail"]]]],
    [["again", [["child", [["effect", "mail", 0, 1]], "kid"]]]],
]


def assembled(blocks: list[Program], tail: Program) -> Program:
    """A program; one with something to undo has to stay in its generation."""
    program = list(chain.from_iterable(blocks))
    undoes = any(op[0] == "saga" or (op[0] == "gather" and op[2]) for op in flat(program))
    return program if undoes and tail and tail[0][0] == "again" else program + tail


def flat(program: Program) -> Iterator[list[Any]]:
    """The operations of a program, also those inside a `try`."""
    for op in program:
        yield op
        yield from flat(op[1:]) if op[0] == "try" else ()


PROGRAMS = st.builds(
    assembled, st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=3), st.sampled_from(TAILS)
)
NUMBERS = st.integers(0, 11)
SEATS = st.integers(0, 2)
CODE = st.sampled_from(sorted(CODES))
SECONDS = st.sampled_from([1.0, 4.0, 12.0, 25.0, 60.0, 500.0])
CHANGES = ["code", "code", "buggy", "undo_broken"]
DEATHS = st.sampled_from(["", "", "before a write", "after a write"])
SIGNALS = st.tuples(
    st.sampled_from(["approval", "approval", "other"]),
    st.sampled_from(["yes", "yes", {"price": 7}, "no"]),
    st.integers(0, 5),
)
PLACES = ["before", "in the body", "window", "after", "before a write", "after a write"]
TAKES = ["overtake", "expire", "usurp", "replace"]
"""Another driver resumes the run; a worker takes it when its lease has ended; it is cancelled and
taken over; it is cancelled, taken over, pruned, and perhaps its id given to another."""
ACTIONS = ["crash", *TAKES, "signal", "cancel", "jump", "stop"]
MEETINGS = st.sampled_from(["crash", "crash", "overtake", *ACTIONS])
PLANS = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 20), st.just(""), MEETINGS, NUMBERS),
        st.tuples(st.integers(1, 4), st.sampled_from(PLACES), MEETINGS, NUMBERS),
    ),
    max_size=3,
)
"""What a driver meets: at the n-th place from the last meeting, of one sort or of any, what, and a
number for the details."""


# What the machine sees of a journal


class Died(BaseException):
    """The process is dead: it lets go of nothing."""


class Watched(Journal):
    """A journal that tells what is written to it, and lets things happen around each write.

    Attributes: `claims` (each row under which somebody held a run), `current` (the run claimed
    last), `code` (what is deployed where the writing is done), `opened` (by which code each
    generation was), `stale` (events that a holder wrote after it was replaced).
    """

    at_point: Callable[[str], None] = staticmethod(lambda place: None)

    def watch(self) -> None:
        self.claims: dict[str, list[RunRow]] = defaultdict(list)
        self.current, self.code, self.stale, self.opening = "", "", list[str](), False
        self.opened: dict[tuple[str, int], str] = {}

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self.at_point("before a write")
        with super()._writing():  # type: ignore[safe-super]
            yield
        self.at_point("after a write")

    def replace(self, row: RunRow, changed: RunRow) -> bool:
        done = super().replace(row, changed)
        if done and changed.token != row.token:
            self.claims[row.run_id].append(changed)
            self.current = row.run_id
            if row.status is RunStatus.RUNNING:
                by_force = str(changed.worker).startswith("resume")
                happened["takeovers by force" if by_force else "takeovers after the lease"] += 1
        return done

    def append(self, row: RunRow, entry: Entry | None, **options: Any) -> int:
        if current_thread().name == "heartbeats":
            return 1  # time stands still here, and the same moves have to do the same
        return super().append(row, entry, **options)

    def _insert(self, row: RunRow, event: Event) -> None:
        stands = self.row(row.run_id)
        if not self.opening and (stands is None or stands.token != row.token):
            self.stale.append(f"{row.run_id}: {event} by {row.worker}")
        super()._insert(row, event)  # type: ignore[safe-super]

    def _open(self, row: RunRow, entries: Sequence[Entry]) -> None:
        self.opening = True
        super()._open(row, entries)
        self.opening = False
        if entries:  # else a row is replaced, and nothing begins
            self.opened[row.run_id, row.generation] = self.code


class WatchedMemory(Watched, MemoryJournal):
    """In memory: the object plays the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.watch()


class WatchedSQLite(Watched, SQLiteJournal):
    """In a SQLite file; nobody pulls the plug here, so nothing is synced."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._db.execute("PRAGMA synchronous=OFF")
        self.watch()


class WatchedLines(Watched, FileJournal):
    """In a file of lines."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.watch()


class Seat:
    """A place where a process runs: what is deployed there, and the worker's name."""

    def __init__(self, machine: Interleavings, number: int) -> None:
        self.name, self._machine, self._number = f"w{number}", machine, number
        self.deploy("old")

    def deploy(self, code: str) -> None:
        """Start the process anew, with this code."""
        machine, spread = self._machine, side_by_side if self._number == 2 else one_by_one
        options: Any = {"clock": machine.clock, "probe": machine.at_probe, "spread": spread}
        self.code, self.engine = code, Engine(machine.journal, CODES[code], **options)

    def worker(self, on_attempt: Callable[[Run], None]) -> Worker:
        """A new worker under the old name."""
        lease: Any = {"lease_s": LEASE_S, "heartbeat_s": LEASE_S / 2, "poll_s": LEASE_S / 4}
        return Worker(self.engine, self.name, **lease, on_attempt=on_attempt)

    def agent(self, *, two: bool) -> Workflow:
        """The workflow that is started here."""
        return agent_two if two else CODES[self.code][0]

    def asked(self, agent: Workflow, program: Program) -> Asked:
        """What a run of it is opened with."""
        patched = self.code != "old" and agent is agent_after
        return Asked(agent.name, agent.version, program, patched)


class Life:
    """What the model knows of a run.

    Attributes: by generation `asked`, `sent` (the signals taken), `cancelled`, `plain` and
    `outcome` (the model's own reading); `ids` of its signals; `pruned` (the last generation that
    is gone).
    """

    def __init__(self, asked: Asked) -> None:
        self.asked = {1: asked}
        self.sent: dict[int, list[tuple[str, str, Any]]] = defaultdict(list)
        self.cancelled = set[int]()
        self.plain: dict[int, Plain] = {}
        self.outcome: dict[int, Outcome] = {}
        self.ids = set[str]()
        self.pruned = 0


def move(needs: Callable[[Interleavings], Any], **drawn: Any) -> Callable[[Any], Any]:
    """A rule that is counted, and that is drawn where there is something for it to do."""

    def decorate(function: Any) -> Any:
        @wraps(function)
        def moved(self: Interleavings, **values: Any) -> None:
            self.clean = False
            if function(self, **values) is not False:
                happened[f"move {function.__name__}"] += 1

        ruled: Any = rule(**drawn)
        return precondition(lambda self: bool(needs(self)))(ruled(moved))

    return decorate


def some_run(machine: Interleavings) -> bool:
    return bool(machine.rows)


def some_end(machine: Interleavings) -> bool:
    return bool(machine.ended())


def some_trouble(machine: Interleavings) -> bool:
    return any(row.status is RunStatus.NEEDS_ATTENTION for row in machine.rows.values())


def some_claim(machine: Interleavings) -> bool:
    return any(machine.journal.claims.values())


def is_forward(event: Event) -> bool:
    """Whether an event brought its run on: it came neither from outside nor from undoing."""
    undoes = event.kind is EventKind.TRY and event.payload["of"] == EventKind.UNDO
    return not undoes and event.kind not in {*OUTSIDE, *CLOSING, EventKind.UNDO}


class Interleavings(RuleBasedStateMachine):
    """Three processes on one journal, and everything that may happen to them.

    Attributes: `plan` (what the driver that acts will meet), `overtakes` (how often it was, in this
    move), `worker` and `stopped` (the worker that drives, and whether it was told to stop), `lives`
    (what the model knows), `rows`, `seen` and `endings` (what was read last: the runs, their
    histories, how they ended), `clean` (the last move broke no law).
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(1_000_000.0)
        self.journal = self.make_journal()
        self.world = Stage.world = World(self.journal, self.clock)
        self.world.meanwhile = lambda: self.at_point("in the body")
        self.journal.at_point = self.at_point
        self.plan: list[list[Any]] = []
        self.quiet, self.stopped, self.clean = False, False, True
        self.overtakes = self.attempts = 0
        self.worker: Worker | None = None
        self.lives: dict[str, Life] = {}
        self.rows: dict[str, RunRow] = {}
        self.seen: dict[tuple[str, int], list[Event]] = {}
        self.endings: dict[str, Any] = {}
        self.seats = [Seat(self, number) for number in range(3)]

    def make_journal(self) -> Any:
        return WatchedMemory()

    @initialize(codes=st.tuples(CODE, CODE, CODE))
    def begin(self, codes: tuple[str, ...]) -> None:
        for seat, code in zip(self.seats, codes, strict=True):
            seat.deploy(code)

    # Moves: callers

    @move(
        lambda self: len(self.lives) < MOST_RUNS,
        program=PROGRAMS,
        seat=SEATS,
        two=st.booleans(),
        dies=DEATHS,
    )
    def start(self, program: Program, seat: int, two: bool, dies: str) -> None:
        """A new run; a caller that dies asks again."""
        at, run_id = self.seats[seat], f"r/{len(self.lives)}"
        agent = at.agent(two=two and at.code == "both")
        with self.acting(at, [(1, dies, "caller dies", 0)] if dies else []):
            with suppress(Died):
                assert at.engine.start(agent, program, run_id=run_id) == run_id
            assert at.engine.start(agent, program, run_id=run_id) == run_id
        self.lives[run_id] = Life(at.asked(agent, program))

    @move(some_run, which=NUMBERS, seat=SEATS, other=st.booleans(), reuse=st.booleans())
    def start_again(self, which: int, seat: int, other: bool, reuse: bool) -> bool | None:
        """The id of a known run once more: the same request, another one, or a new generation."""
        row, at = self.pick(which, parents=False), self.seats[seat]
        if row.version == "2" and at.code != "both":
            return False
        life, agent = self.lives[row.run_id], at.agent(two=row.version == "2")
        opened = life.asked[row.generation]
        asked = opened.program if opened.began_with is None else opened.began_with
        program = [["step", "other", 0, 1]] if other else asked
        if reuse and row.status in ENDED:
            self.reopen(row, at, program)
            return None
        before, request = self.stands(row.run_id), {"run_id": row.run_id, "reuse": reuse}
        if row.pruned_at is not None or program != asked:
            with pytest.raises(RunIdConflictError):
                at.engine.start(agent, program, **request)  # type: ignore[arg-type]
        else:
            assert at.engine.start(agent, program, **request) == row.run_id  # type: ignore[arg-type]
        assert self.stands(row.run_id) == before
        return None

    def reopen(self, row: RunRow, at: Seat, program: Program) -> None:
        """Give the id of a run that has ended to a new generation."""
        agent, code = at.agent(two=row.version == "2"), self.journal.code
        self.journal.code = at.code
        assert at.engine.start(agent, program, run_id=row.run_id, reuse=True) == row.run_id
        self.journal.code = code
        happened[f"ids of {'ended' if row.pruned_at is None else 'pruned'} runs reused"] += 1
        self.lives[row.run_id].asked[row.generation + 1] = at.asked(agent, program)

    @move(some_run, which=NUMBERS, signal=SIGNALS, dies=DEATHS)
    def signal(self, which: int, signal: tuple[str, Any, int], dies: str) -> None:
        """A signal; a sender that dies sends it again."""
        self.send(self.pick(which), *signal, dies)

    def send(self, row: RunRow, name: str, payload: Any, number: int, dies: str = "") -> None:
        """A signal, whose id may have come before."""
        life, signal_id, at = self.lives[row.run_id], f"s{number}", self.seats[0]
        request: Any = row.run_id, name, payload
        if row.pruned_at is not None:
            with pytest.raises(UnknownRunError):
                at.engine.signal(*request, signal_id=signal_id)
            return
        wanted, taken = row.status not in ENDED and signal_id not in life.ids, 0
        if dies:
            with suppress(Died), self.acting(at, [(1, dies, "caller dies", 0)]):
                at.engine.signal(*request, signal_id=signal_id)
            taken += wanted and dies == "after a write"
        taken += at.engine.signal(*request, signal_id=signal_id)
        assert taken == wanted
        if wanted:
            life.sent[row.generation].append((signal_id, name, payload))
            life.ids.add(signal_id)
        happened["signal ids repeated"] += row.status not in ENDED and not wanted

    @move(some_run, which=NUMBERS, sure=st.integers(0, 3))
    def cancel(self, which: int, sure: int) -> bool | None:
        """A request to stop; it is drawn more rarely than what keeps runs going."""
        if sure < 3:
            return False
        self.ask_to_stop(self.pick(which))
        return None

    def ask_to_stop(self, row: RunRow) -> None:
        """Cancel a run, which may be too late."""
        engine, ended = self.seats[0].engine, row.status in ENDED
        if row.pruned_at is not None:
            with pytest.raises(UnknownRunError):
                engine.cancel(row.run_id)
            return
        kinds = {event.kind for event in self.journal.events(row)}
        if EventKind.PIVOT in kinds and not ended:
            happened["cancel requests refused after the pivot"] += 1
            with pytest.raises(DurableError, match="point of no return"):
                engine.cancel(row.run_id)
            return
        assert engine.cancel(row.run_id) == (not ended and EventKind.CANCEL not in kinds)
        self.lives[row.run_id].cancelled |= set() if ended else {row.generation}

    # Moves: drivers

    @move(some_run, which=NUMBERS, seat=SEATS, plan=PLANS)
    def resume(self, which: int, seat: int, plan: Any) -> None:
        """One process takes a run over and drives it, whoever has it."""
        at = self.seats[seat]
        self.take_over(self.pick(which), at, plan, at.engine.resume)

    @move(some_run, which=NUMBERS, seat=SEATS, seconds=SECONDS, plan=PLANS)
    def resume_later(self, which: int, seat: int, seconds: float, plan: Any) -> None:
        """The same, after a while."""
        self.clock.advance(seconds)
        at = self.seats[seat]
        self.take_over(self.pick(which), at, plan, at.engine.resume)

    @move(some_trouble, which=NUMBERS, seat=SEATS, plan=PLANS)
    def retry(self, which: int, seat: int, plan: Any) -> None:
        """Compensations tried again by hand, whether or not the cause was mended."""
        row, at = self.pick(which, RunStatus.NEEDS_ATTENTION), self.seats[seat]
        if self.undo_failed(row):
            self.take_over(row, at, plan, at.engine.retry_compensation)
            return
        before = self.stands(row.run_id)
        with pytest.raises(DurableError, match="no compensation of it has failed"):
            at.engine.retry_compensation(row.run_id)
        assert self.stands(row.run_id) == before

    def undo_failed(self, row: RunRow) -> bool:
        """Whether the last thing that a run did was to fail at undoing something."""
        *_, last = (event for event in self.journal.events(row) if event.kind not in OUTSIDE)
        return last.kind is EventKind.TRY and last.payload["of"] == EventKind.UNDO

    def take_over(self, row: RunRow, at: Seat, plan: Any, drive: Callable[[str], Run]) -> None:
        """Drive a run, and see that it comes to rest or that there was a reason why not."""
        refusal, before = self.refusal(row, at), self.stands(row.run_id)
        with self.acting(at, plan, row.run_id):
            try:
                run = drive(row.run_id)
            except Died:
                happened["drivers that died"] += 1
            except LeaseLostError:
                assert self.overtakes
                happened["zombies refused as they drove"] += 1
            except DurableError as refused:
                assert self.overtakes or type(refused) in refusal, refused
                if type(refused) is not NonDeterminismError and not self.overtakes:
                    assert self.stands(row.run_id) == before
                happened[f"drivers refused with {type(refused).__name__}"] += 1
            else:
                resting = ENDED | {RunStatus.SUSPENDED, RunStatus.NEEDS_ATTENTION}
                assert run.status in resting or self.overtakes

    def refusal(self, row: RunRow, at: Seat) -> set[type[DurableError]]:
        """What this code may raise at this run."""
        if row.pruned_at is not None:
            return {UnknownRunError}
        if row.status in ENDED:
            return set()
        if row.version == "2" and at.code != "both":
            return {UnknownWorkflowError}
        if at.code == "old" and row.workflow == "agent":
            opened = self.journal.opened[row.run_id, row.generation]
            # Once the new code has noted that it keeps the old path, code without the patch errs.
            return {StructureChangedError} if opened != "old" else {NonDeterminismError}
        return set()

    @move(some_run, seat=SEATS, attempts=st.sampled_from([1, 1, 2, MOST_ATTEMPTS]), plan=PLANS)
    def work(self, seat: int, attempts: int, plan: Any) -> None:
        """A worker that stops after so many attempts, or when nothing is left to do."""
        with self.acting(self.seats[seat], plan):
            self.run_worker(self.seats[seat], attempts)

    @move(some_run, seat=SEATS, seconds=SECONDS, plan=PLANS)
    def work_later(self, seat: int, seconds: float, plan: Any) -> None:
        """The same, after a while and until nothing is left to do."""
        self.clock.advance(seconds)
        with self.acting(self.seats[seat], plan):
            self.run_worker(self.seats[seat], MOST_ATTEMPTS)

    def run_worker(self, at: Seat, attempts: int) -> None:
        def counted(run: Run) -> None:
            self.attempts += 1
            assert self.attempts < MOST_ATTEMPTS, WITHOUT_END
            if self.attempts >= attempts:
                self.stopped = True
                worker.stop()

        worker = self.worker = at.worker(counted)
        self.attempts, self.stopped = 0, False
        try:
            worker.run_until_idle()
        except Died:
            happened["drivers that died"] += 1
        else:
            if not self.stopped:
                self.see_idle(at)

    def see_idle(self, at: Seat) -> None:
        """Nothing may be left that this worker could have done."""
        for row in self.journal.rows():
            due = row.due_at is not None and row.due_at <= self.clock.now()
            if due and not self.refusal(row, at) - {NonDeterminismError}:
                self.world.faults.append(f"{row} is due, and {at.name} is idle")

    @move(some_run, which=NUMBERS, seat=SEATS, how=st.sampled_from(["name", "arguments", "kind"]))
    def drift(self, which: int, seat: int, how: str) -> bool | None:
        """Changed code that asks for something else than the journal holds."""
        row, at = self.pick(which), self.seats[seat]
        if row.status in ENDED or self.refusal(row, at):
            return False
        self.world.drift, self.world.drifted = (row.run_id, how), None
        with self.acting(at):
            try:
                run = at.engine.resume(row.run_id)
            except NonDeterminismError:
                assert self.stands(row.run_id)[1][-1] == self.world.drifted
                assert at.engine.describe(row.run_id).status is RunStatus.NEEDS_ATTENTION
                happened["divergences refused"] += 1
            else:
                drifted: list[Event] = self.world.drifted or []
                assert not drifted or any(event.kind is EventKind.STOP for event in drifted), run
        self.world.drift = None
        return None

    # Moves: the rest of the world

    @move(some_run, seconds=SECONDS)
    def set_back(self, seconds: float) -> None:
        """The clock is set back; forwards it goes with the drivers."""
        self.clock.advance(-seconds)

    @move(some_run, seat=SEATS, code=CODE, what=st.sampled_from(CHANGES), broken=st.booleans())
    def change(self, seat: int, code: str, what: str, broken: bool) -> None:
        """Other code in one place, or something that is broken or mended everywhere."""
        if what == "code":
            self.seats[seat].deploy(code)
        else:
            setattr(self.world, what, broken)

    @move(some_end, which=NUMBERS)
    def prune(self, which: int) -> None:
        """One run that has ended leaves a tombstone, or every one that nobody waits for."""
        if which > 2:
            self.remove(self.ended()[which % len(self.ended())])
            return
        gone = [row for row in self.ended() if not self.is_waited_for(row)]
        pruned = prune(self.journal, older_than_s=0.0, now=self.clock.now() + 10_000.0)
        assert pruned == [row.run_id for row in gone]
        for row in gone:
            self.forget(row)

    def remove(self, row: RunRow) -> None:
        """Prune a run, once the model has seen how it ended."""
        for each in self.journal.rows():
            self.read(each)
        self.judge_all(row)
        assert prune_at(self.journal, row, self.clock.now())
        self.forget(row)

    def forget(self, row: RunRow) -> None:
        self.lives[row.run_id].pruned = row.generation
        self.lives[row.run_id].ids.clear()

    def is_waited_for(self, row: RunRow) -> bool:
        return row.parent is not None and self.rows[row.parent].status not in ENDED

    @move(some_claim, which=NUMBERS, claim=NUMBERS)
    def zombie(self, which: int, claim: int) -> bool | None:
        """Whoever held a run once, and let go of it or was replaced, writes: nothing may change."""
        stands = self.pick(which)
        claims = self.journal.claims[stands.run_id]
        stale = [row for row in claims if stands.worker is None or row.token != stands.token]
        if not stale:
            return False
        held, before, now = stale[claim % len(stale)], self.stands(stands.run_id), self.clock.now()
        step = EventKind.STEP, "late", '{"args":"","result":null}', now
        ending = EventKind.COMPLETED, held.workflow, '{"result":null}', now
        freed: Any = {"token": held.token + 1, "worker": None}
        writes: list[Callable[[], Any]] = [
            lambda: self.journal.append(held, step),
            lambda: self.journal.append(held, ending, status=RunStatus.COMPLETED, **freed),
            lambda: self.journal.append(held, None, lease_until=now + LEASE_S),
            lambda: self.journal.append(held, None, status=RunStatus.SUSPENDED, **freed),
            lambda: self.journal.peek(held),
        ]
        for write in writes:
            with pytest.raises(LeaseLostError if stands.pruned_at is None else UnknownRunError):
                write()
        assert self.stands(stands.run_id) == before
        return None

    @move(some_run, seat=SEATS, sure=st.integers(0, 3))
    def look(self, seat: int, sure: int) -> bool | None:
        """What is told of all runs, and of those that this code can't drive."""
        if sure < 3:
            return False
        at = self.seats[seat]
        rows = [row for row in self.rows.values() if row.pruned_at is None]
        told = [(run.run_id, run.generation, run.status) for run in at.engine.runs()]
        assert told == [(row.run_id, row.generation, row.status) for row in rows]
        strange = {row.run_id for row in rows if self.refusal(row, at) - {NonDeterminismError}}
        assert {orphan.run_id for orphan in at.engine.orphans()} == strange
        assert verify(self.journal).problems == ()
        return None

    # What a driver meets

    @contextmanager
    def acting(self, at: Seat, plan: Any = (), run_id: str = "") -> Iterator[None]:
        """Some process acts; `plan` says what it meets."""
        self.plan, self.overtakes = [list(meeting) for meeting in plan], 0
        self.journal.code, self.journal.current = at.code, run_id
        try:
            yield
        finally:
            self.plan, self.worker = [], None

    def at_probe(self, position: Position, _kind: EventKind, _name: str) -> None:
        self.at_point(str(position))

    def at_point(self, place: str) -> None:
        """A place where something may be met; a fault here is no step's failure."""
        if self.quiet or LATE.joined or not self.plan:
            return
        _, wanted, action, number = self.plan[0]
        # Between the last look and a body nobody can be stopped any more.
        begun = place == "before" or (Stage.begun and place.startswith("after"))
        self.plan[0][0] -= wanted in (place, "") and not (begun and action in TAKES)
        if self.plan[0][0] > 0:
            return
        self.plan.pop(0)
        happened[f"{action}, {place}"] += 1
        if action in ("crash", "caller dies"):
            self.plan.clear()
            raise Died(place)
        try:
            self.meet(action, number)
        except Exception:
            self.world.faults.append(traceback.format_exc())

    def meet(self, action: str, number: int) -> None:
        """Something happens to whoever is driving."""
        row = self.journal.row(self.journal.current)
        if action == "stop":
            self.stopped = True
            self.worker.stop() if self.worker else None
        elif action == "jump":
            self.clock.advance(7.0 * number)
        elif action in TAKES:
            if action in ("usurp", "replace"):
                self.meet("cancel", 1)
            self.overtake(row, self.seats[number % 3], by_worker=action == "expire")
            if action == "replace" and row is not None:
                self.give_away(row.run_id, reuse=number % 2 == 1)
        else:
            row = row if number % 2 else self.pick(number)
            with self.undisturbed():
                if row is None or row.run_id not in self.lives:
                    return
                if action == "cancel":
                    self.ask_to_stop(row)
                else:
                    self.send(row, "approval", "no" if number == 0 else "yes", number % 6)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Whoever acts in here meets nobody."""
        self.quiet = True
        try:
            yield
        finally:
            self.quiet = False

    def overtake(self, row: RunRow | None, at: Seat, *, by_worker: bool) -> None:
        """Another process takes the run over, and meets what is left of the plan."""
        kept = self.journal.current, self.journal.code
        driver = self.attempts, self.worker, self.stopped
        self.journal.code, self.worker = at.code, None
        with suppress(Died, DurableError), Stage.gathering(0):
            if by_worker:
                self.clock.advance(LEASE_S + 1)
                self.run_worker(at, MOST_ATTEMPTS)
            elif row is not None:
                at.engine.resume(row.run_id)
        self.journal.current, self.journal.code = kept
        self.attempts, self.worker, self.stopped = driver
        self.overtakes += 1

    def give_away(self, run_id: str, *, reuse: bool) -> None:
        """A run that has ended is pruned, and its id given to another."""
        row, life = self.journal.row(run_id), self.lives.get(run_id)
        if row is None or life is None or row.status not in ENDED or row.pruned_at or row.parent:
            return
        at = next((seat for seat in self.seats if row.version == "1" or seat.code == "both"), None)
        program = life.asked[min(life.asked)].program
        with self.undisturbed():
            self.remove(row)
            if reuse and at is not None:
                self.reopen(row, at, program)

    # Laws

    def pick(self, which: int, status: RunStatus | None = None, *, parents: bool = True) -> RunRow:
        """One of the runs that the model knows, as it stands; of those that go on, for the most."""
        rows: list[RunRow] = [row for row in self.journal.rows() if row.run_id in self.lives]
        rows = [row for row in rows if status in (None, row.status)]
        rows = [row for row in rows if parents or row.parent is None]
        going = [row for row in rows if row.status not in ENDED]
        rows = going if which < 10 and going else rows
        return rows[which % len(rows)]

    def ended(self) -> list[RunRow]:
        """The runs that have ended and are still there."""
        rows = self.rows.values()
        return [row for row in rows if row.status in ENDED and row.pruned_at is None]

    def stands(self, run_id: str) -> tuple[Any, ...]:
        """All that the journal has of a run."""
        row = self.journal.row(run_id)
        generations = range(1, row.generation + 1)
        return row, [self.journal.events(row._replace(generation=of)) for of in generations]

    @invariant()
    def laws(self) -> None:
        """Everything that must hold after every move."""
        assert not self.world.faults, "\n".join(self.world.faults)
        assert not self.journal.stale, "\n".join(self.journal.stale)
        rows = {row.run_id: row for row in self.journal.rows()}
        lost = self.lives.keys() - rows.keys()
        assert not lost, f"lost: {lost}"
        assert all(times == 1 for times in self.world.receiver.taken.values())
        changed = [row for row in rows.values() if self.has_changed(row)]
        for row in changed:
            self.read(row)
        for row in changed:
            self.check_row(row, self.rows.get(row.run_id))
        self.rows, self.clean = rows, True

    def has_changed(self, row: RunRow) -> bool:
        """Whether anything of a run is new; what comes from outside may leave its row as it was."""
        known = self.seen.get((row.run_id, row.generation), [])
        grew = row.pruned_at is None and len(self.journal.events(row)) != len(known)
        return grew or row != self.rows.get(row.run_id)

    def read(self, row: RunRow) -> None:
        """The histories of a run, all its generations."""
        life = self.lives.get(row.run_id)
        for generation in range(1, row.generation + 1):
            log = self.journal.events(row._replace(generation=generation))
            if life is not None and generation <= life.pruned:
                assert log == [], f"{row.run_id} was pruned"
            else:
                self.check_log(row.run_id, generation, log)

    def check_log(self, run_id: str, generation: int, log: list[Event]) -> None:
        """Dense sequence numbers, and nothing that was read earlier has changed."""
        known = self.seen.get((run_id, generation), [])
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        assert log[: len(known)] == known, f"{run_id}, generation {generation} was rewritten"
        for event in log[len(known) :]:
            happened[f"event {event.kind}"] += 1
            if event.kind is EventKind.STEP and event.name in ("price", "tax"):
                happened[f"patch: {'new' if event.name == 'tax' else 'old'} path"] += 1
        self.seen[run_id, generation] = log
        if log[-1].kind in ENDED:
            self.endings[run_id] = log[-1].payload

    def check_row(self, row: RunRow, before: RunRow | None) -> None:
        """One run: its row, its histories, and what it has come to."""
        assert row.run_id in self.lives, f"nobody asked for {row.run_id}"
        if before is not None:
            assert row.token >= before.token
            assert row.generation >= before.generation
        assert (row.status is RunStatus.RUNNING) == (row.worker is not None), row
        self.judge_all(row)
        if row.pruned_at is None:
            self.compare_told(row, self.lives[row.run_id])

    def judge_all(self, row: RunRow) -> None:
        life = self.lives[row.run_id]
        for generation in range(life.pruned + 1, row.generation + 1):
            self.judge(row, generation, life, self.seen[row.run_id, generation])

    def judge(self, row: RunRow, generation: int, life: Life, log: list[Event]) -> None:
        """What the model makes of a generation's history."""
        asked = life.asked[generation]
        assert log[0].payload["input"] == asked.program
        assert log[0].payload.get("patches", []) == (["with tax"] if asked.patched else [])
        self.check_signals(life, generation, log)
        self.check_cancel(row, life, generation, log)
        with Stage.showing(World(self.journal, self.clock)):  # one where nothing is broken
            plain = Plain(row.run_id, generation, log, asked, self.endings)
            outcome = plain.come_to()
        life.plain[generation], life.outcome[generation] = plain, outcome
        for child_id, program in plain.children.items():
            child = Asked("helper", "1", program, patched=False, parent=row.run_id)
            if self.journal.row(child_id) is not None:
                assert self.lives.setdefault(child_id, Life(child)).asked[1] == child
        self.check_world(row.run_id, generation, plain, outcome)
        if outcome.ending is EventKind.CANCELLED:
            self.check_children(row, plain)
        if outcome.ending is EventKind.CONTINUED:
            self.expect_next(row, generation, life, outcome)

    def check_signals(self, life: Life, generation: int, log: list[Event]) -> None:
        """The signals that were taken are there once, after those that were left unread."""
        unread = life.asked[generation].unread
        carried = log[1 : 1 + len(unread)]
        assert tuple(event.text for event in carried) == unread, "an unread signal was lost"
        came = [event for event in log[1 + len(unread) :] if event.kind is EventKind.SIGNAL]
        told = [(one.payload["signal_id"], one.name, one.payload["result"]) for one in came]
        assert told == life.sent[generation]

    def check_cancel(self, row: RunRow, life: Life, generation: int, log: list[Event]) -> None:
        """A cancel request is there exactly when it was made, and takes effect at the next call."""
        kinds = [event.kind for event in log]
        requests, stops = kinds.count(EventKind.CANCEL), kinds.count(EventKind.STOP)
        assert stops <= requests <= 1
        by_parent = row.parent is not None and bool(self.lives[row.parent].cancelled)
        assert requests or generation not in life.cancelled
        assert not requests or generation in life.cancelled or by_parent
        if requests:
            after = log[kinds.index(EventKind.CANCEL) + 1 :]
            until = kinds.index(EventKind.STOP) if stops else len(log)
            late = [event for event in after if event.seq <= until and is_forward(event)]
            assert len(late) <= MOST_BRANCHES, f"{late} after the cancel request"

    def check_world(self, run_id: str, generation: int, plain: Plain, outcome: Outcome) -> None:
        """What was undone stays undone, what was done and not undone stands."""
        standing = set(self.world.receiver.standing.values())
        undoing = outcome.asks is not None and outcome.asks[0][0] is EventKind.UNDO
        for number in plain.effects:
            what = (run_id, generation, number)
            assert not (number in plain.undone and what in standing), f"{what} stands again"
            done = number in plain.done and number not in plain.undone
            assert not done or undoing or what in standing, f"{what} is gone"

    def check_children(self, row: RunRow, plain: Plain) -> None:
        """Who is cancelled cancels its children, where they can be."""
        for child_id in plain.children:
            child = self.journal.row(child_id)
            if child is not None and child.parent == row.run_id and child.status not in ENDED:
                kinds = {event.kind for event in self.journal.events(child)}
                assert kinds & {EventKind.CANCEL, EventKind.PIVOT}, f"{child_id} was forgotten"

    def expect_next(self, row: RunRow, generation: int, life: Life, outcome: Outcome) -> None:
        """The generation that continues another."""
        code, plain = self.journal.opened[row.run_id, generation + 1], life.plain[generation]
        patched = code != "old" and (row.workflow, row.version) == ("agent", "1")
        asked = life.asked[generation]
        began_with = asked.program if asked.began_with is None else asked.began_with
        more: Any = {"spent": plain.spent, "unread": plain.unread, "patched": patched}
        following = asked._replace(program=outcome.result, began_with=began_with, **more)
        assert life.asked.setdefault(generation + 1, following) == following

    def compare_told(self, row: RunRow, life: Life) -> None:
        """A run as the engine tells it, against the model."""
        outcome, plain = life.outcome[row.generation], life.plain[row.generation]
        run = self.seats[0].engine.describe(row.run_id)
        ended = str(outcome.ending) if outcome.ending in ENDED else None
        assert (str(run.status) if run.status in ENDED else None) == ended
        assert run.input == life.asked[row.generation].program
        assert (run.cost, run.generation) == (plain.spent, row.generation)
        if run.status is RunStatus.COMPLETED:
            assert run.result == outcome.result
        if run.status is RunStatus.SUSPENDED:
            assert outcome.asks is not None
            self.check_waiting(run, *outcome.asks)
            due = row.due_at is not None and row.due_at <= self.clock.now()
            assert due or not plain.hears(*outcome.asks), f"{row} sleeps on"

    def check_waiting(
        self, run: Run, kinds: tuple[EventKind, ...], name: str, due_at: float | None
    ) -> None:
        what = {EventKind.RECEIVED: "signal", EventKind.FIRED: "timer", EventKind.JOINED: "child"}
        if kinds[0] in what:
            until = "" if due_at is None else f" until {due_at:.15g}"
            assert run.waiting_for == f"{what[kinds[0]]} {name!r}{until}"
        else:
            assert str(run.waiting_for).startswith("the next try of")

    # The end

    def teardown(self) -> None:
        """Mend everything, and let the workers go on until nothing is left to do."""
        try:
            if self.clean:
                self.finish()
        finally:
            self.journal.close()

    def finish(self) -> None:
        assert verify(self.journal).problems == ()
        self.world.buggy = self.world.undo_broken = False
        for seat in self.seats:
            seat.deploy("both")
        for at in self.seats * 20:
            self.clock.advance(100_000.0)
            with self.acting(at):
                self.run_worker(at, MOST_ATTEMPTS)
            self.laws()
            if not self.attempts and not self.help_on():
                break
        else:
            raise AssertionError(WITHOUT_END)
        assert verify(self.journal).problems == ()
        happened["examples"] += 1
        happened["late effects refused by the receiver"] += self.world.receiver.refused

    def help_on(self) -> bool:
        """Do what only people can do, where no worker can do anything; whether there was such."""
        helped = [self.help_one(row) for row in self.rows.values() if row.status not in ENDED]
        self.laws()
        return any(helped)

    def help_one(self, row: RunRow) -> bool:
        asks, engine = self.lives[row.run_id].outcome[row.generation].asks, self.seats[0].engine
        if asks is None:  # it failed after its pivot
            assert row.status is RunStatus.NEEDS_ATTENTION, row
            return False
        (kind, *_), name, due_at = asks
        child = self.rows.get(name) if kind in (EventKind.CHILD, EventKind.JOINED) else None
        if row.status is RunStatus.NEEDS_ATTENTION:
            if child is not None and child.pruned_at is not None:
                return False  # the id of its child is taken by a tombstone
            help_on = engine.retry_compensation if self.undo_failed(row) else engine.resume
            with self.acting(self.seats[0]):
                help_on(row.run_id)
            return True
        assert row.status is RunStatus.SUSPENDED, f"lost: {row}"
        if child is not None:
            assert child.status not in ENDED, f"{row.run_id} is lost: its child has ended"
            return False
        assert (kind, due_at) == (EventKind.RECEIVED, None), f"{row.run_id} is lost: {asks}"
        self.send(row, name, "yes", 100 + len(self.lives[row.run_id].ids))
        return True


class OnSQLite(Interleavings):
    """The same on a file, which is opened again at the end."""

    opened: Any = WatchedSQLite

    def make_journal(self) -> Any:
        self.folder = tempfile.TemporaryDirectory()
        return self.opened(Path(self.folder.name, "journal"))

    def finish(self) -> None:
        super().finish()
        before = [self.stands(run_id) for run_id in self.rows]
        self.journal.close()
        self.journal = self.opened(self.journal.path)
        assert [self.stands(run_id) for run_id in self.rows] == before

    def teardown(self) -> None:
        with self.folder:
            super().teardown()


class OnLines(OnSQLite):
    """The same on a file of lines."""

    opened = WatchedLines


# The tests

KINDS = {
    *(f"event {kind}" for kind in EventKind),
    *(f"{action}, {place}" for action in ACTIONS for place in PLACES if action not in TAKES),
    *(f"{action}, {place}" for action in TAKES for place in PLACES if place != "before"),
    *(f"move {name}" for name in ("start", "start_again", "signal", "cancel", "resume", "retry")),
    *(f"move {name}" for name in ("resume_later", "work", "work_later", "drift", "set_back")),
    *(f"move {name}" for name in ("change", "prune", "zombie", "look")),
    *("takeovers by force", "takeovers after the lease", "zombies refused as they drove"),
    *("drivers that died", "divergences refused", "late effects refused by the receiver"),
    *("ids of ended runs reused", "ids of pruned runs reused", "signal ids repeated"),
    *("patch: old path", "patch: new path", "cancel requests refused after the pivot"),
    *("drivers refused with StructureChangedError", "drivers refused with UnknownWorkflowError"),
}
"""What has to have happened in a run of the machine that says something about all of it."""


def run_examples(machine: Any, examples: int, moves: int) -> None:
    happened.clear()
    slow: Any = {"suppress_health_check": list(HealthCheck), "deadline": None}
    options = settings(max_examples=examples, stateful_step_count=moves, **slow)
    run_state_machine_as_test(machine, settings=settings(options, report_multiple_bugs=False))


def told(moves: int) -> Iterator[str]:
    """What happened, a line for each sort."""
    yield f"model: {happened.pop('examples'):,} examples of {moves} moves at most"
    for sort in ("move ", "event ", *(f"{action}, " for action in ACTIONS), ""):
        own = sorted(name for name in happened if name.startswith(sort))
        counts = ", ".join(f"{name.removeprefix(sort)} {happened.pop(name):,}" for name in own)
        if own:
            yield f"model, {sort.strip(' ,') or 'also'}: {counts}"


def test_runs_come_to_what_the_model_says(figure: Callable[[str], None]) -> None:
    run_examples(Interleavings, 60, 30)
    for line in told(30):
        figure(line)


@pytest.mark.parametrize("machine", [OnSQLite, OnLines])
def test_runs_on_a_file_come_to_what_the_model_says(machine: Any) -> None:
    run_examples(machine, 8, 20)


@pytest.mark.slow
def test_runs_come_to_what_the_model_says_in_many_examples(figure: Callable[[str], None]) -> None:
    many = bool(os.environ.get("CI"))
    run_examples(Interleavings, 1_000 if many else 300, 60)
    missing = sorted(kind for kind in KINDS if not happened[kind])
    for line in told(60):
        figure(line)
    assert not many or not missing, f"never happened: {missing}"


@pytest.mark.slow
@pytest.mark.parametrize("machine", [OnSQLite, OnLines])
def test_runs_on_a_file_come_to_what_the_model_says_in_many_examples(machine: Any) -> None:
    run_examples(machine, 150 if os.environ.get("CI") else 30, 30)
