"""Any crash schedule on any workflow ends in the crash-free result.

A workflow is generated as a program: nested lists that one workflow function interprets. Its
crash-free outcome is told by an oracle that runs the same function on a context without a journal.
A schedule says for attempt after attempt at which live call, and where in it, the worker dies.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import event, given, settings, strategies as st

from durable_mini import (
    TIMED_OUT,
    Context,
    Effect,
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
    Step,
    StepFailedError,
    Workflow,
    in_turn,
    workflow,
)
from durable_mini.journal import Journal
from durable_mini.journal.file import FileJournal
from durable_mini.lab import REFERENCE_SHAPE, InjectedCrash, Ledger, agent_in
from durable_mini.ops import verify

BEFORE, WINDOW, AFTER = Position

# The programs


class Given(NamedTuple):
    """A step or an effect on the number of its call, as `gather` is given it."""

    kind: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    max_attempts: int = 1
    cost: float = 0.0

    def as_branch(self) -> Step:
        if self.kind == "effect":
            return Effect(self.fn, *self.args)
        return Step(self.fn, *self.args, retry=RetryPolicy(self.max_attempts), cost=self.cost)


class World:
    """What the steps of a program work on; it counts what is really executed.

    Attributes: `executed` (by call number and outcome), `last` (of these the one that was executed
    last), `failed_tries` (by call number, those that the journal knows), `recorded` (calls whose
    outcome the journal knows), `wrong` (what must never happen: a call that was executed although
    the journal knew it, an undo that was told another effect's key).

    Args:
        branch: makes of a call what `gather` takes.
    """

    def __init__(self, branch: Callable[[Given], Any] = Given.as_branch) -> None:
        self.branch = branch
        self.ledger = Ledger(honour_keys=True)
        self.executed: Counter[tuple[int, str]] = Counter()
        self.last = (-1, "")
        self.failed_tries: Counter[int] = Counter()
        self.recorded: set[int] = set()
        self.wrong: list[tuple[str, int]] = []
        self._keys: dict[int, str] = {}

    def work(self, call: int, value: int, failures: int) -> dict[Any, Any]:
        """A step that fails so many times on record, then gives something that JSON changes."""
        if self.failed_tries[call] < failures:
            self._enter(call, "failed")
            raise ConnectionError(f"call {call} fails")
        self._enter(call, "succeeded")
        return {"value": (call, value), 1: None}

    def post(self, call: int, idempotency_key: str) -> str:
        """An effect: the receiver drops what it has seen."""
        self._enter(call, "succeeded")
        self._keys[call] = idempotency_key
        return self.ledger.post("post", str(call), call, idempotency_key)

    def undo(self, call: int, of: int, idempotency_key: str, effect_key: str) -> str:
        """What undoes the effect `of`; it runs after everything else, in the run's last breath."""
        self._enter(call, "succeeded")
        if effect_key != self._keys[of]:
            self.wrong.append(("undo", call))
        return self.ledger.post("undo", str(call), of, idempotency_key)

    def _enter(self, call: int, outcome: str) -> None:
        self.last = call, outcome
        self.executed[self.last] += 1
        if call in self.recorded:
            self.wrong.append(("again", call))


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
        elif kind == "saga":
            undo, charge = next(calls), next(calls)
            ctx.compensate(parts[0], world.undo, undo, charge)
            found.append(ctx.effect(parts[0], world.post, charge))
        elif kind == "gather":
            branches = {
                f"branch {place}": world.branch(branch_of(world, next(calls), leaf))
                for place, leaf in enumerate(parts[0])
            }
            found.append(str(ctx.gather(branches)))
        elif kind == "record":
            next(calls)
            found.append({"now": ctx.now, "random": ctx.random, "uuid": ctx.uuid}[parts[0]]())
        elif kind == "sleep":
            ctx.sleep(parts[0])
        elif kind == "wait":
            found.append(str(ctx.wait_signal("nobody sends it", timeout_s=parts[0])))
        elif kind == "patch":
            if ctx.patched("p"):
                found.append("new path")
            else:
                found.append("old path")
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


def branch_of(world: World, call: int, leaf: list[Any]) -> Given:
    if leaf[0] == "effect":
        return Given("effect", world.post, (call,))
    _, _, value, failures, tries = leaf
    return Given("step", world.work, (call, value, failures), tries, 0.1)


NAMES = st.sampled_from(["plan", "draft", "sénd", "a/b#2"])
STEPS_AND_EFFECTS = st.one_of(
    st.tuples(st.just("step"), NAMES, st.integers(-9, 9), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.just("effect"), NAMES),
)
SAGAS = st.tuples(st.just("saga"), NAMES)
LEAVES = st.one_of(
    STEPS_AND_EFFECTS,
    SAGAS,
    st.tuples(st.just("gather"), st.lists(STEPS_AND_EFFECTS, max_size=4)),
    st.tuples(st.just("record"), st.sampled_from(["now", "random", "uuid"])),
    st.tuples(st.sampled_from(["sleep", "wait"]), st.integers(0, 100)),
    st.tuples(st.just("patch")),
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
FAILURES = st.tuples(st.just("step"), NAMES, st.just(0), st.just(2), st.integers(1, 2))
UNDOING = st.tuples(st.lists(NODES, max_size=2), st.lists(SAGAS, min_size=1, max_size=3), FAILURES)
PROGRAMS = st.one_of(
    st.lists(NODES, min_size=1, max_size=5),
    UNDOING.map(lambda parts: [*parts[0], *parts[1], parts[2]]),
)
SCHEDULES = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from(Position)), min_size=1, max_size=6
)


# The oracle: what the program comes to where nothing can crash


class Call(NamedTuple):
    """A durable call as the journal should have it."""

    kind: str
    name: str
    outcome: Any = None

    @classmethod
    def of(cls, event: Event) -> Call:
        payload = event.payload
        return cls(event.kind, event.name, payload.get("result", payload.get("error")))


class CrashFree:
    """A context without engine or journal. Chance is told what it drew in the run it is compared
    with.

    Attributes: `calls` (what a journal would hold), `cost`, `waits` (how often the run would have
    been suspended).
    """

    def __init__(self, world: World, drawn: list[Any]) -> None:
        self.calls: list[Call] = []
        self.cost, self.waits = 0.0, 0
        self._world, self._drawn = world, iter(drawn)
        self._undos: list[tuple[str, int, int]] = []
        self._patches: set[str] = set()

    def step(self, name: str, fn: Any, /, *args: Any, retry: Any = None, cost: float = 0) -> Any:
        done = None
        while done is None:
            tries = retry.max_attempts if retry else 1
            done = self._try(name, Given("step", fn, args, tries, cost))
        return self._result(name, done)

    def effect(self, name: str, fn: Any, *args: Any) -> Any:
        done = self._try(name, Given("effect", fn, args))
        assert done is not None
        return self._result(name, done)

    def gather(self, branches: dict[str, Given]) -> dict[str, Any]:
        """Rounds: whatever is due at a time is tried in turn, a second try one second later."""
        due, now = dict.fromkeys(branches, 0.0), 0.0
        done: dict[str, Call] = {}
        while due:
            now = max(now, min(due.values()))
            for name in [name for name, due_at in due.items() if due_at <= now]:
                ended = self._try(name, branches[name])
                if ended is not None:
                    done[name] = ended
                    del due[name]
                else:
                    call = branches[name].args[0]
                    due[name] = now + 2.0 ** (self._world.failed_tries[call] - 1)
        return {name: self._result(name, done[name]) for name in branches}

    def _try(self, name: str, given: Given) -> Call | None:
        """One try; None where another one follows."""
        call = given.args[0]
        keys = {"idempotency_key": f"key {call}"} if given.kind == "effect" else {}
        try:
            outcome = given.fn(*given.args, **keys)
        except ConnectionError as error:
            outcome = {"type": "ConnectionError", "message": str(error)}
            last = self._world.failed_tries[call] + 1 == given.max_attempts
            self._world.failed_tries[call] += not last
            self.calls.append(Call(given.kind if last else "try", name, outcome))
            return self.calls[-1] if last else None
        self.cost += given.cost
        self.calls.append(Call(given.kind, name, json.loads(json.dumps(outcome))))
        return self.calls[-1]

    def _result(self, name: str, done: Call) -> Any:
        if isinstance(done.outcome, dict) and "type" in done.outcome:
            raise StepFailedError(**done.outcome, step=name, run_id="", seq=0)
        return done.outcome

    def compensate(self, name: str, _undo: Any, call: int, of: int) -> None:
        self.calls.append(Call("compensate", name))
        self._undos.append((name, call, of))

    def unwind(self) -> None:
        for name, call, of in reversed(self._undos):
            keys = {"idempotency_key": f"undo {call}", "effect_key": f"key {of}"}
            self.calls.append(Call("undo", name, self._world.undo(call, of, **keys)))

    def sleep(self, seconds: float) -> None:
        self.calls += [Call("timer", "sleep"), Call("fired", "sleep")]
        self.waits += seconds > 0

    def wait_signal(self, name: str, timeout_s: float) -> Any:
        self.calls += [Call("wait", name), Call("timed_out", name)]
        self.waits += timeout_s > 0
        return TIMED_OUT

    def patched(self, patch_id: str) -> bool:
        if patch_id not in self._patches:
            self.calls.append(Call("patch", patch_id, True))
            self._patches.add(patch_id)
        return True

    def _draw(self, kind: str) -> Any:
        self.calls.append(Call(kind, kind, next(self._drawn)))
        return self.calls[-1].outcome

    def now(self) -> Any:
        return self._draw("now")

    def random(self) -> Any:
        return self._draw("random")

    def uuid(self) -> Any:
        return self._draw("uuid")


def crash_free(blocks: list[Any], history: list[Event]) -> tuple[Any, CrashFree, World]:
    """Result or failure, durable calls and world of a program that nothing interrupts."""
    chance = (EventKind.NOW, EventKind.RANDOM, EventKind.UUID)
    world = World(branch=lambda call: call)
    drawn = [event.payload["result"] for event in history if event.kind in chance]
    context = CrashFree(world, drawn)
    found: list[Any] = []
    try:
        run_block(context, world, blocks, found, count())
    except StepFailedError as failure:
        context.unwind()
        return [failure.type, failure.message], context, world
    return found, context, world


# Crashing


class Schedule:
    """Kills attempt after attempt, each at its n-th live call and at a position there.

    Attributes: `fired` (the crashes that happened), `unrecorded` (executions, as the world counts
    them, whose crash window a crash fell into).
    """

    def __init__(self, crashes: Iterable[tuple[int, Position]], world: World) -> None:
        self._crashes, self._world = list(crashes), world
        self._reached = 0
        self.fired: list[tuple[int, Position]] = []
        self.unrecorded: Counter[tuple[int, str]] = Counter()

    def __call__(self, position: Position, kind: EventKind, name: str) -> None:
        world = self._world
        if position is AFTER and kind is EventKind.TRY:
            world.failed_tries[world.last[0]] += 1
        elif position is AFTER and kind in EXECUTED:
            world.recorded.add(world.last[0])
        self._reached += position is BEFORE
        if self._crashes and (self._reached, position) == self._crashes[0]:
            self.fired.append(self._crashes.pop(0))
            self._reached = 0
            if position is WINDOW and kind in {EventKind.TRY, *EXECUTED}:
                self.unrecorded[world.last] += 1
            raise InjectedCrash(position, kind, name)


EXECUTED = (EventKind.STEP, EventKind.EFFECT, EventKind.UNDO)


def drive(engine: Engine, run_id: str) -> tuple[Run, int, int]:
    """Resume until the run ends; how it ended, how many attempts died, and how many waited."""
    died = waited = 0
    while True:
        try:
            run = engine.resume(run_id)
        except InjectedCrash:
            died += 1
            continue
        if run.status is not RunStatus.SUSPENDED:
            return run, died, waited
        waited += 1
        due_at = engine.journal.row(run_id).due_at  # type: ignore[union-attr]
        engine.clock.sleep(due_at - engine.clock.now())  # type: ignore[operator]


def check_any_schedule(
    journal: Journal, blocks: list[Any], crashes: list[tuple[int, Position]]
) -> None:
    world = Stage.world = World()
    schedule = Schedule(crashes, world)
    options: dict[str, Any] = {"probe": schedule, "spread": in_turn}
    engine = Engine(journal, [program], clock=FakeClock(5.0), **options)
    engine.start(program, blocks, run_id="r-1")
    run, died, waited = drive(engine, "r-1")
    history = engine.history("r-1")
    result, expected, quiet = crash_free(blocks, history)

    assert died == len(schedule.fired)
    assert waited == expected.waits
    assert run.attempts == died + waited + 1
    assert (run.result if run.error is None else [run.error.type, run.error.message]) == result
    assert run.status == ("completed" if run.error is None else "failed")
    assert [Call.of(event) for event in history[1:-1]] == expected.calls
    assert [event.seq for event in history] == list(range(1, len(expected.calls) + 3))
    assert run.cost == pytest.approx(expected.cost)
    assert world.wrong == []
    assert world.executed == quiet.executed + schedule.unrecorded
    books = [[(row.endpoint, row.body) for row in of.ledger.rows] for of in (world, quiet)]
    assert books[0] == books[1]
    assert verify(journal).ok
    assert Engine(journal).describe("r-1") == run
    event(f"{died} crashes")
    event(f"{run.status}, undone: {any(row.endpoint == 'undo' for row in world.ledger.rows)}")


@settings(max_examples=500)
@given(PROGRAMS, SCHEDULES)
@pytest.mark.slow
def test_any_crash_schedule_on_any_workflow_ends_in_the_crash_free_result(
    blocks: list[Any], crashes: list[tuple[int, Position]]
) -> None:
    check_any_schedule(MemoryJournal(), blocks, crashes)


@pytest.mark.parametrize("kind", [FileJournal, SQLiteJournal])
@settings(max_examples=50)
@given(PROGRAMS, SCHEDULES)
@pytest.mark.slow
def test_any_crash_schedule_on_a_file_ends_in_the_crash_free_result(
    kind: Any, blocks: list[Any], crashes: list[tuple[int, Position]]
) -> None:
    with tempfile.TemporaryDirectory() as folder, kind(Path(folder, "journal.db")) as journal:
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
    run, died, _ = drive(engine, order)
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


@pytest.mark.parametrize("journal_kind", [MemoryJournal, FileJournal, SQLiteJournal])
@pytest.mark.slow
def test_the_reference_agent_survives_a_crash_at_every_step_and_position(
    journal_kind: Any, journal_path: Path, world: CountingLedger, agent: Workflow
) -> None:
    journal = MemoryJournal() if journal_kind is MemoryJournal else journal_kind(journal_path)
    with journal:
        for crashes in ONE_CRASH:
            check_reference_agent(journal, world, agent, crashes)
        assert verify(journal).ok


@pytest.mark.slow
def test_the_reference_agent_survives_every_pair_of_crashes(
    world: CountingLedger, agent: Workflow
) -> None:
    journal = MemoryJournal()
    for crashes in TWO_CRASHES:
        check_reference_agent(journal, world, agent, crashes)
    assert verify(journal).ok
