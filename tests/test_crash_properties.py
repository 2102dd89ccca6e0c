"""Any crash schedule on any workflow ends in the crash-free result.

A workflow is generated as a program: nested lists that one workflow function interprets. Its
crash-free outcome is told by an oracle that runs the same function on a context without a journal.
A schedule says for attempt after attempt at which live call, and where in it, the worker dies.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import event, given, settings, strategies as st

from durable_mini import (
    Context,
    Engine,
    Event,
    EventKind,
    FakeClock,
    MemoryJournal,
    Position,
    RetryPolicy,
    Run,
    RunStatus,
    SQLiteJournal,
    StepFailedError,
    Workflow,
    workflow,
)
from durable_mini.journal import Journal
from durable_mini.lab import REFERENCE_SHAPE, InjectedCrash, Ledger, agent_in
from durable_mini.ops import verify

BEFORE, WINDOW, AFTER = Position

# The programs


class World:
    """What the steps of a program work on; it counts what is really executed.

    Attributes: `succeeded` and `failed` (executions by call number), `current` (the call whose body
    ran last), `recorded` (calls that the journal knows), `repeated` (calls that were executed
    although the journal knew them: there must be none).
    """

    def __init__(self) -> None:
        self.ledger = Ledger(honour_keys=True)
        self.succeeded: Counter[int] = Counter()
        self.failed: Counter[int] = Counter()
        self.current = -1
        self.recorded: set[int] = set()
        self.repeated: list[int] = []
        self._tries: Counter[int] = Counter()

    def lose_worker(self) -> None:
        """A worker died: whatever answered its tries begins anew."""
        self._tries.clear()

    def work(self, call: int, value: int, failures: int) -> dict[Any, Any]:
        """A step that fails so many times, then gives something that JSON changes."""
        self._enter(call)
        self._tries[call] += 1
        if self._tries[call] <= failures:
            self.failed[call] += 1
            raise ConnectionError(f"call {call} fails")
        self.succeeded[call] += 1
        return {"value": (call, value), 1: None}

    def post(self, call: int, idempotency_key: str) -> str:
        """An effect: the receiver drops what it has seen."""
        self._enter(call)
        self.succeeded[call] += 1
        return self.ledger.post("post", str(call), call, idempotency_key)

    def _enter(self, call: int) -> None:
        self.current = call
        if call in self.recorded:
            self.repeated.append(call)


class Stage:
    """Where the one workflow of this file finds its world: its structure is then read once."""

    world = World()


@workflow(version="1")
def program(ctx: Context, blocks: list[Any]) -> list[Any]:
    """Run a program; its durable calls are numbered as they come."""
    found: list[Any] = []
    run_block(ctx, Stage.world, blocks, found, count())
    return found


def run_block(
    ctx: Any, world: World, block: list[Any], found: list[Any], calls: Iterator[int]
) -> None:
    for kind, *parts in block:
        if kind == "step":
            name, value, failures, tries = parts
            work = (name, world.work, next(calls), value, failures)
            seen = ctx.step(*work, retry=RetryPolicy(max_attempts=tries), cost=0.1)
            found.append(str(seen))  # a tuple that was still one would show
        elif kind == "effect":
            found.append(ctx.effect(parts[0], world.post, next(calls)))
        elif kind == "record":
            next(calls)
            found.append({"now": ctx.now, "random": ctx.random, "uuid": ctx.uuid}[parts[0]]())
        elif kind == "branch":
            next(calls)
            run_block(ctx, world, parts[0] if ctx.random() < 0.5 else parts[1], found, calls)
        elif kind == "loop":
            times = ctx.step("times", world.work, next(calls), parts[0], 0)["value"][1]
            for _ in range(times):
                run_block(ctx, world, parts[1], found, calls)
        else:
            try:
                run_block(ctx, world, parts[0], found, calls)
            except StepFailedError as failure:
                found.append(f"{failure.type}: {failure.message} ({failure.step})")


NAMES = st.sampled_from(["plan", "draft", "sénd", "a/b#2"])
LEAVES = st.one_of(
    st.tuples(st.just("step"), NAMES, st.integers(-9, 9), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.just("effect"), NAMES),
    st.tuples(st.just("record"), st.sampled_from(["now", "random", "uuid"])),
)
NODES = st.recursive(
    LEAVES,
    lambda nodes: st.one_of(
        st.tuples(st.just("branch"), st.lists(nodes, max_size=2), st.lists(nodes, max_size=2)),
        st.tuples(st.just("loop"), st.integers(0, 3), st.lists(nodes, max_size=2)),
        st.tuples(st.just("caught"), st.lists(nodes, max_size=3)),
    ),
    max_leaves=8,
)
PROGRAMS = st.lists(NODES, min_size=1, max_size=5)
SCHEDULES = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from(Position)), min_size=1, max_size=6
)


# The oracle: what the program comes to where nothing can crash


class Call(NamedTuple):
    """A durable call as the journal should have it."""

    kind: str
    name: str
    outcome: Any

    @classmethod
    def of(cls, event: Event) -> Call:
        payload = event.payload
        return cls(event.kind, event.name, payload.get("result", payload.get("error")))


class CrashFree:
    """A context without engine or journal. Chance is told what it drew in the run it is compared
    with.
    """

    def __init__(self, drawn: list[Any]) -> None:
        self.calls: list[Call] = []
        self._drawn = iter(drawn)

    def step(self, name: str, fn: Any, /, *args: Any, retry: Any = None, cost: float = 0) -> Any:
        for _ in range(retry.max_attempts if retry else 1):
            try:
                call, value = fn(*args)["value"]
            except ConnectionError as error:
                failure = {"type": "ConnectionError", "message": str(error)}
            else:
                result = {"value": [call, value], "1": None}
                self.calls.append(Call("step", name, result))
                return result
        self.calls.append(Call("step", name, failure))
        raise StepFailedError(**failure, step=name, run_id="", seq=0)

    def effect(self, name: str, fn: Any, *args: Any) -> Any:
        self.calls.append(Call("effect", name, fn(*args, idempotency_key=f"key {args[0]}")))
        return self.calls[-1].outcome

    def _draw(self, kind: str) -> Any:
        self.calls.append(Call(kind, kind, next(self._drawn)))
        return self.calls[-1].outcome

    def now(self) -> Any:
        return self._draw("now")

    def random(self) -> Any:
        return self._draw("random")

    def uuid(self) -> Any:
        return self._draw("uuid")


def crash_free(blocks: list[Any], history: list[Event]) -> tuple[Any, list[Call], World]:
    """Result or failure, durable calls and world of a program that nothing interrupts."""
    chance = (EventKind.NOW, EventKind.RANDOM, EventKind.UUID)
    drawn = [event.payload["result"] for event in history if event.kind in chance]
    context, world = CrashFree(drawn), World()
    found: list[Any] = []
    try:
        run_block(context, world, blocks, found, count())
    except StepFailedError as failure:
        return [failure.type, failure.message], context.calls, world
    return found, context.calls, world


# Crashing


class Schedule:
    """Kills attempt after attempt, each at its n-th live call and at a position there.

    Attributes: `fired` (the crashes that happened), `unrecorded` (by call number, those that fell
    in the crash window of a step or an effect).
    """

    def __init__(self, crashes: Iterable[tuple[int, Position]], world: World) -> None:
        self._crashes, self._world = list(crashes), world
        self._reached = 0
        self.fired: list[tuple[int, Position]] = []
        self.unrecorded: Counter[int] = Counter()

    def __call__(self, position: Position, kind: EventKind, name: str) -> None:
        executes = kind in (EventKind.STEP, EventKind.EFFECT)
        if position is AFTER and executes:
            self._world.recorded.add(self._world.current)
        self._reached += position is BEFORE
        if self._crashes and (self._reached, position) == self._crashes[0]:
            self.fired.append(self._crashes.pop(0))
            self._reached = 0
            self.unrecorded[self._world.current] += position is WINDOW and executes
            self._world.lose_worker()
            raise InjectedCrash(position, kind, name)


def drive(engine: Engine, run_id: str) -> tuple[Run, int]:
    """Resume until the run ends; how it ended, and how many attempts died."""
    for crashes in count():
        try:
            return engine.resume(run_id), crashes
        except InjectedCrash:
            pass
    raise AssertionError


def check_any_schedule(
    journal: Journal, blocks: list[Any], crashes: list[tuple[int, Position]]
) -> None:
    world = Stage.world = World()
    schedule = Schedule(crashes, world)
    engine = Engine(journal, [program], clock=FakeClock(5.0), probe=schedule)
    engine.start(program, blocks, run_id="r-1")
    run, died = drive(engine, "r-1")
    history = engine.history("r-1")
    result, calls, quiet = crash_free(blocks, history)

    assert died == len(schedule.fired)
    assert run.attempts == died + 1
    assert (run.result if run.error is None else [run.error.type, run.error.message]) == result
    assert run.status == ("completed" if run.error is None else "failed")
    assert [Call.of(event) for event in history[1:-1]] == calls
    assert [event.seq for event in history] == list(range(1, len(calls) + 3))
    assert world.repeated == []
    again = {call: n for call, n in schedule.unrecorded.items() if quiet.succeeded[call]}
    assert world.succeeded == quiet.succeeded + Counter(again)
    assert world.failed.keys() == quiet.failed.keys()
    assert [row.body for row in world.ledger.rows] == [row.body for row in quiet.ledger.rows]
    assert verify(journal).ok
    assert Engine(journal).describe("r-1") == run
    event(f"{died} crashes")


@settings(max_examples=500)
@given(PROGRAMS, SCHEDULES)
def test_any_crash_schedule_on_any_workflow_ends_in_the_crash_free_result(
    blocks: list[Any], crashes: list[tuple[int, Position]]
) -> None:
    check_any_schedule(MemoryJournal(), blocks, crashes)


@settings(max_examples=50)
@given(PROGRAMS, SCHEDULES)
def test_any_crash_schedule_on_a_file_ends_in_the_crash_free_result(
    blocks: list[Any], crashes: list[tuple[int, Position]]
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        SQLiteJournal(Path(folder, "journal.db")) as journal,
    ):
        check_any_schedule(journal, blocks, crashes)


# Every crash of the reference agent, and every pair


class CountingLedger(Ledger):
    """A world that keeps the name of every execution, a repeat's too."""

    def __init__(self, *, honour_keys: bool) -> None:
        super().__init__(honour_keys=honour_keys)
        self.honours_keys = honour_keys
        self.executed: list[str] = []

    def think(self, task: str, about: Any, price: float = 2.0) -> str:
        self.executed.append(task)
        return super().think(task, about, price)

    def post(self, endpoint: str, order: str, body: Any, key: str) -> str:
        self.executed.append(endpoint)
        return super().post(endpoint, order, body, key)


STEPS = [spec.name for spec in REFERENCE_SHAPE]
EFFECTS = [spec.name for spec in REFERENCE_SHAPE if spec.kind == "effect"]
ONE_CRASH = [[crash] for crash in product(range(1, 8), Position)]
TWO_CRASHES = [
    [first, second]
    for first, second in product(product(range(1, 8), Position), repeat=2)
    if second[0] <= 8 - first[0] - (first[1] is AFTER)
]


def crashed_steps(crashes: list[tuple[int, Position]]) -> list[tuple[str, Position]]:
    """Which step each crash of a schedule hits: an attempt goes on where the last one got to."""
    hit, recorded = [], 0
    for live_call, position in crashes:
        recorded += live_call - 1
        hit.append((STEPS[recorded], position))
        recorded += position is AFTER
    return hit


@pytest.fixture(scope="module", params=[True, False], ids=["keys honoured", "keys ignored"])
def world(request: pytest.FixtureRequest) -> CountingLedger:
    return CountingLedger(honour_keys=request.param)


@pytest.fixture(scope="module")
def agent(world: CountingLedger) -> Workflow:
    return agent_in(world)


def check_reference_agent(
    journal: Journal, world: CountingLedger, agent: Workflow, crashes: list[tuple[int, Position]]
) -> None:
    """Drive one order through these crashes, and compare everything with a run that has none."""
    schedule = Schedule(crashes, World())
    engine = Engine(journal, [agent], probe=schedule)
    order = "-".join([type(journal).__name__, *(f"{n}{position}" for n, position in crashes)])
    world.executed.clear()
    world.rows.clear()
    engine.start(agent, order, run_id=order)
    run, died = drive(engine, order)
    hit = crashed_steps(crashes)
    repeated = [name for name, position in hit if position is WINDOW]

    assert died == len(crashes) == len(schedule.fired)
    assert run.status is RunStatus.COMPLETED
    assert run.result == {"order": order, "letter": LETTER}
    assert [(event.kind, event.name) for event in engine.history(order)[1:-1]] == [
        (spec.kind, spec.name) for spec in REFERENCE_SHAPE
    ]
    assert run.cost == 8.0
    assert Counter(world.executed) == Counter(STEPS + repeated)
    recorded_twice = [] if world.honours_keys else [name for name in repeated if name in EFFECTS]
    assert Counter(row.endpoint for row in world.rows) == Counter(EFFECTS + recorded_twice)
    assert {row.key for row in world.rows} == {f"{order}/{name}" for name in EFFECTS}
    assert run.attempts == died + 1


LETTER = Ledger().think("compose", None)


@pytest.mark.parametrize("journal_kind", [MemoryJournal, SQLiteJournal])
def test_the_reference_agent_survives_a_crash_at_every_step_and_position(
    journal_kind: Any, journal_path: Path, world: CountingLedger, agent: Workflow
) -> None:
    journal = MemoryJournal() if journal_kind is MemoryJournal else SQLiteJournal(journal_path)
    with journal:
        for crashes in ONE_CRASH:
            check_reference_agent(journal, world, agent, crashes)
        assert verify(journal).ok


def test_the_reference_agent_survives_every_pair_of_crashes(
    world: CountingLedger, agent: Workflow
) -> None:
    journal = MemoryJournal()
    for crashes in TWO_CRASHES:
        check_reference_agent(journal, world, agent, crashes)
    assert verify(journal).ok
