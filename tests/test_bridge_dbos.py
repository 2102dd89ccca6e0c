"""The bridge to DBOS: each mapped call does what it does on durable_mini, killed processes are
recovered, and what DBOS has nothing for is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from durable_mini import (
    TIMED_OUT,
    Budget,
    DurableError,
    Effect,
    Engine,
    Event,
    FakeClock,
    MemoryJournal,
    RetryPolicy,
    Run,
    RunFailed,
    RunIdConflictError,
    RunStatus,
    StepFailedError,
    UnknownRunError,
    UnknownWorkflowError,
    workflow,
)
from durable_mini.context import in_turn
from durable_mini.lab.agent import agent_in
from durable_mini.lab.ledger import Ledger

pytest.importorskip(
    "dbos", reason="the bridge needs the extra dbos: pip install durable-mini[dbos]"
)

from durable_mini.bridges.dbos import DBOSEngine, UnmappedCallError
from durable_mini.bridges.dbos.killing import URL, kill_workers
from durable_mini.lab.engines.services import postgres, postgres_binary, sqlite_file

LIMIT_S = 20.0
QUICKLY = RetryPolicy(max_attempts=3, initial_s=0.01, factor=1.0)


class World:
    """What the steps of a test did, in order, with the keys that they were handed."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.ill: set[str] = set()  # steps that fail
        self.code = "first"  # which code the workflows below have

    def post(self, what: str, *, idempotency_key: str = "", effect_key: str = "") -> Any:
        self.done.append((what, idempotency_key, effect_key))
        if what in self.ill:
            raise ConnectionError(f"{what} is ill")
        return [what, (1, 2), {"n": 1}]


world = World()
agent = agent_in(ledger := Ledger())


@workflow()
def values(ctx: Any, given: Any) -> Any:
    seen = [given, ctx.step("pair", lambda: ("EUR", 40)), ctx.step("keys", lambda: {1: "one"})]
    drawn = [ctx.now(), ctx.random(), ctx.uuid()]
    return [seen, [type(one).__name__ for one in drawn], [ctx.run_id, ctx.generation, ctx.attempt]]


@workflow()
def side_by_side(ctx: Any, ill: list[str]) -> Any:
    world.ill = set(ill)
    calls = {name: Effect(world.post, name, retry=QUICKLY) for name in ("b", "a")}
    return ctx.gather({"up": (str.upper, "x"), **calls})


@workflow()
def trying(ctx: Any, fails: int) -> Any:
    def post(what: str, *, idempotency_key: str) -> Any:
        world.ill = {what} if len(world.done) < fails else set()
        return world.post(what, idempotency_key=idempotency_key)

    return [ctx.effect("post", post, "a", retry=QUICKLY), ctx.effect("post", post, "b", key="own")]


@workflow()
def hopeless(ctx: Any, _: Any) -> Any:
    return ctx.step("sum", lambda: 1 + "1", retry=QUICKLY)  # type: ignore[operator]


@workflow()
def catching(ctx: Any, _: Any) -> Any:
    world.ill = {"a"}
    try:
        ctx.step("a", world.post, "a")
    except StepFailedError as error:
        return [error.type, error.message, error.step]


@workflow()
def unkept(ctx: Any, _: Any) -> Any:
    return ctx.step("elephant", lambda: {1, 2}, retry=QUICKLY)


@workflow()
def waiting(ctx: Any, timeout_s: float | None) -> Any:
    ctx.sleep(0.01)
    first = ctx.wait_signal("answer", timeout_s)
    world.post("between")
    return ["late" if first is TIMED_OUT else first, ctx.wait_signal("answer")]


@workflow()
def parent(ctx: Any, ill: list[str]) -> Any:
    world.ill = set(ill)
    return [ctx.child(offspring, "x"), ctx.child(offspring, "y"), ctx.child(offspring, "z", "own")]


@workflow()
def offspring(ctx: Any, what: str) -> Any:
    return ctx.effect("post", world.post, what)


@workflow()
def trip(ctx: Any, how: str) -> Any:
    for name in ("flight", "hotel"):
        ctx.compensate(name, world.post, f"undo {name}")
        ctx.effect(name, world.post, name)
    if how == "fails":
        world.ill = {"last"}
    if how == "is refused":
        raise RunFailed("sold out")
    if how == "goes forward":
        ctx.point_of_no_return()
        world.ill = {"last"}
    if how == "waits":
        ctx.wait_signal("go")
    return ctx.step("last", world.post, "last")


@workflow()
def parted(ctx: Any, _: Any) -> Any:
    if ctx.patched("shorter"):
        return ctx.step("new", str.upper, "new")
    return ctx.step("old", str.upper, "old")


@workflow()
def edited(ctx: Any, _: Any) -> Any:
    """Three pieces of code: with a bug, without it, and one that takes another path."""
    ctx.step("a", world.post, "a" if world.code != "other argument" else "b")
    if world.code == "first":
        raise KeyError("a bug")
    return ctx.step("x" if world.code == "other name" else "b", world.post, "b")


@workflow(name="changing")
def BEFORE(ctx: Any, _: Any) -> Any:  # noqa: N802 - one workflow, before an edit and after it
    ctx.step("a", world.post, "a")
    return ctx.step("b", world.post, "b")


@workflow(name="changing")
def AFTER(ctx: Any, _: Any) -> Any:  # noqa: N802
    ctx.step("a", world.post, "a")
    return ctx.step("c", world.post, "c")


WORKFLOWS = [agent, values, side_by_side, trying, hopeless, catching, unkept, waiting]
WORKFLOWS += [parent, offspring, trip, parted, edited, BEFORE]


@pytest.fixture(
    scope="module", params=["SQLite", pytest.param("PostgreSQL", marks=pytest.mark.slow)]
)
def dbos(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DBOSEngine]:
    """The bridge at work on a fresh database."""
    folder = tmp_path_factory.mktemp("dbos")
    service = sqlite_file(URL, "sqlite:///")
    if request.param == "PostgreSQL":
        need_postgresql()
        service = postgres(URL)
    with service(folder) as settings:
        engine = DBOSEngine(settings[URL], WORKFLOWS, poll_s=0.05)
        with engine.working("tests"):
            yield engine
        engine.close()


def need_postgresql() -> None:
    if postgres_binary("postgres") is None:
        pytest.skip("no PostgreSQL here: install it, as apt-get install postgresql does")


@pytest.fixture
def mini() -> Engine:
    return Engine(MemoryJournal(), WORKFLOWS, spread=in_turn, clock=FakeClock())


@pytest.fixture(autouse=True)
def new_world() -> None:
    world.__init__()  # type: ignore[misc]
    ledger.__init__()  # type: ignore[misc]


Told = tuple[Any, ...]


def told(run: Run, events: list[Event]) -> Told:
    """What both engines have to agree on."""
    error = run.error and (run.error.type, run.error.step, run.error.message.partition(": ")[2])
    own = [str(event) for event in events if event.kind not in {"cancel", "child_ended", "patch"}]
    arranged: Callable[[list[Any]], list[Any]] = sorted if run.workflow == "side_by_side" else list
    did = arranged(own), arranged(world.done), [*ledger.rows]
    return run.status, run.input, run.result, error, run.cost, did


def on_mini(engine: Engine, made: Any, value: Any, run_id: str) -> Told:
    run = engine.run(made, value, run_id=run_id)
    return told(run, engine.history(run_id))


def on_dbos(engine: DBOSEngine, made: Any, value: Any, run_id: str) -> Told:
    run = engine.run(made, value, run_id=run_id, wait_s=LIMIT_S)
    return told(run, engine.history(run_id))


@pytest.mark.parametrize(
    ("made", "value"),
    [
        (agent, {"order": "o-1"}),
        (values, {"pair": ("EUR", 40)}),
        (side_by_side, []),
        (side_by_side, ["a"]),
        (side_by_side, ["a", "b"]),
        (trying, 2),
        (trying, 9),
        (hopeless, None),
        (catching, None),
        (unkept, None),
        (parent, []),
        (parent, ["y"]),
        (trip, "succeeds"),
        (trip, "fails"),
        (trip, "is refused"),
        (trip, "goes forward"),
        (parted, None),
        (edited, None),
    ],
)
def test_bridge_does_what_the_engine_does(
    dbos: DBOSEngine, mini: Engine, made: Any, value: Any, request: pytest.FixtureRequest
) -> None:
    run_id = request.node.callspec.id
    expected = on_mini(mini, made, value, run_id)
    world.__init__()  # type: ignore[misc]
    ledger.__init__()  # type: ignore[misc]
    found = on_dbos(dbos, made, value, run_id)
    assert found == expected


def until(holds: Callable[[], Any]) -> Any:
    """Look until it holds; the limit is for a broken engine only."""
    until_s = time.monotonic() + LIMIT_S
    while not (found := holds()) and time.monotonic() < until_s:
        time.sleep(0.01)
    return found


def test_signals_are_kept_in_order_and_each_counts_once(dbos: DBOSEngine, mini: Engine) -> None:
    for engine in (mini, dbos):
        engine.start(waiting, 60.0, run_id="kept")
        for number in ("1", "1", "2"):
            engine.signal("kept", "answer", {"n": (number,)}, signal_id=number)
        engine.signal("kept", "rumour", "no")
    mini.resume("kept")
    mini.clock.advance(0.02)
    expected = mini.resume("kept").result
    assert dbos.resume("kept", wait_s=LIMIT_S).result == expected == [{"n": ["1"]}, {"n": ["2"]}]


def test_signal_that_came_too_late_waits_for_the_next_wait(dbos: DBOSEngine) -> None:
    dbos.start(waiting, 0.01, run_id="late")
    assert until(lambda: world.done)
    dbos.signal("late", "answer", "now")
    run = dbos.resume("late", wait_s=LIMIT_S)
    assert run.result == ["late", "now"]
    assert not dbos.signal("late", "answer", "after the end")


def test_cancelled_run_leaves_its_wait_and_undoes(dbos: DBOSEngine, mini: Engine) -> None:
    mini.run(trip, "waits", run_id="cancelled")
    mini.cancel("cancelled")
    expected, did = mini.resume("cancelled"), [*world.done]
    world.__init__()  # type: ignore[misc]
    dbos.start(trip, "waits", run_id="cancelled")
    assert until(lambda: dbos.describe("cancelled").waiting_for == "signal 'go'")
    assert dbos.cancel("cancelled")
    assert not dbos.cancel("cancelled")
    run = dbos.resume("cancelled", wait_s=LIMIT_S)
    assert (run.status, run.error and run.error.type) == ("cancelled", "RunCancelledError")
    assert (run.status, world.done) == (expected.status, did)
    assert [key for _, key, _ in did][2:] == ["cancelled/hotel~undo", "cancelled/flight~undo"]


def test_run_past_its_point_of_no_return_is_not_cancelled(dbos: DBOSEngine) -> None:
    run = dbos.run(trip, "goes forward", run_id="forward", wait_s=LIMIT_S)
    assert run.status is RunStatus.NEEDS_ATTENTION
    with pytest.raises(DurableError, match="past its point of no return"):
        dbos.cancel("forward")


def test_failed_undo_waits_for_a_person_and_goes_on(dbos: DBOSEngine) -> None:
    world.ill = {"undo hotel"}
    run = dbos.run(trip, "is refused", run_id="undo", wait_s=LIMIT_S)
    assert (run.status, run.error and run.error.step) == ("needs_attention", "hotel")
    world.ill = set()
    assert dbos.resume("undo", wait_s=LIMIT_S).status is RunStatus.FAILED
    assert [what for what, _, _ in world.done][2:] == ["undo hotel", "undo hotel", "undo flight"]


def test_bug_ends_no_run_and_repaired_code_goes_on(dbos: DBOSEngine) -> None:
    run = dbos.run(edited, run_id="bug", wait_s=LIMIT_S)
    assert (run.status, run.error and run.error.type) == ("needs_attention", "KeyError")
    world.code = "repaired"
    assert dbos.resume("bug", wait_s=LIMIT_S).status is RunStatus.COMPLETED
    assert [what for what, _, _ in world.done] == ["a", "b"]


def test_divergence_executes_nothing_and_is_told(dbos: DBOSEngine) -> None:
    dbos.run(edited, run_id="diverged", wait_s=LIMIT_S)
    before = dbos.history("diverged")
    world.code = "other argument"
    run = dbos.resume("diverged", wait_s=LIMIT_S)
    assert (run.status, run.error and run.error.type) == ("needs_attention", "NonDeterminismError")
    assert "with arguments of digest" in str(run.error)
    assert (dbos.history("diverged"), len(world.done)) == (before, 1)


def test_request_for_a_taken_id_is_refused(dbos: DBOSEngine) -> None:
    dbos.run(parted, "x", run_id="taken", wait_s=LIMIT_S)
    assert dbos.start(parted, "x", run_id="taken") == "taken"
    with pytest.raises(RunIdConflictError, match='requested was parted@1 with input "y"'):
        dbos.start(parted, "y", run_id="taken")
    with pytest.raises(RunIdConflictError, match="run taken has parted@1"):
        dbos.start(offspring, "x", run_id="taken")
    for ask in (dbos.describe, dbos.resume, dbos.history, dbos.cancel):
        with pytest.raises(UnknownRunError):
            ask("nobody")


@workflow()
def endless(ctx: Any, round_: int) -> Any:
    if ctx.patched("in rounds"):
        ctx.step("a", str, round_)
    else:
        ctx.continue_as_new(round_ + 1)


def test_call_that_dbos_has_nothing_for_is_refused_by_name(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with pytest.raises(UnmappedCallError, match=r"'endless'.*continue_as_new.*Next: start a child"):
        DBOSEngine(url, [endless])
    assert not (tmp_path / "runs.db").exists()


def test_workflow_that_is_not_registered_is_refused(dbos: DBOSEngine) -> None:
    with pytest.raises(UnknownWorkflowError):
        dbos.start(endless, 1)


# ---- processes that die -------------------------------------------------------------------------

WORKER = """
import os, sys, time
from pathlib import Path
from durable_mini.bridges.dbos import DBOSEngine
from durable_mini.lab.agent import agent_in
from durable_mini.lab.ledger import Ledger

url, folder, worker_id, dies_at = sys.argv[1:]

class Deadly(Ledger):
    def post(self, endpoint, *asked):
        with open(Path(folder, "requests"), "a") as file:
            print(endpoint, asked[-1], file=file)
        receipt = super().post(endpoint, *asked)
        if endpoint == dies_at:  # in the crash window: taken by the receiver, known to nobody here
            os.kill(os.getpid(), 9)
        return receipt

agent = agent_in(Deadly(path=Path(folder, "ledger")))
engine = DBOSEngine(url, [agent], poll_s=0.02)
with engine.working(worker_id):
    if dies_at == "send_email":
        print(engine.describe("t-1").status, engine.take_over("gone"), flush=True)
    run = engine.run(agent, {"order": "o-1"}, run_id="t-1", wait_s=20.0)
    print(run.status, run.attempts)
os._exit(0)
"""


def worker(folder: Path, worker_id: str, dies_at: str) -> subprocess.CompletedProcess[str]:
    """Drive one run of the reference agent in a process of its own."""
    url = f"sqlite:///{folder / 'runs.db'}"
    command = [sys.executable, "-c", WORKER, url, str(folder), worker_id, dies_at]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_killed_processes_are_recovered_under_their_executor_id(tmp_path: Path) -> None:
    """The first never comes back; the second takes its run over, dies too, and does come back."""
    assert worker(tmp_path, "gone", "charge").returncode == -signal.SIGKILL
    second = worker(tmp_path, "another", "send_email")
    assert (second.stdout, second.returncode) == ("running ['t-1']\n", -signal.SIGKILL)
    assert worker(tmp_path, "another", "nowhere").stdout.splitlines()[-1] == "completed 2"
    requests = (tmp_path / "requests").read_text().splitlines()
    twice = ["charge t-1/charge"] * 2 + ["send_email t-1/send_email"] * 2
    assert requests == [*twice, "update_crm t-1/update_crm"]
    rows = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    Engine(MemoryJournal(), [agent]).run(agent, {"order": "o-1"}, run_id="t-1")
    assert rows == [list(row) for row in ledger.rows]


# ---- other code, other limits -------------------------------------------------------------------


def test_changed_structure_is_refused_and_the_old_code_goes_on(
    dbos: DBOSEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(dbos.registered, "changing@1", AFTER)
    old = DBOSEngine(dbos._url, [BEFORE])
    old.start(BEFORE, run_id="old")
    old.close()
    run = dbos.resume("old", wait_s=LIMIT_S)
    assert (run.status, run.error and run.error.type) == (
        "needs_attention",
        "StructureChangedError",
    )
    assert "recorded step 'b', now step 'c'" in str(run.error)
    assert not world.done
    monkeypatch.setitem(dbos.registered, "changing@1", BEFORE)
    assert dbos.resume("old", wait_s=LIMIT_S).status is RunStatus.COMPLETED


def test_spent_budget_ends_the_run_and_undoes(
    dbos: DBOSEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = Budget(max_steps=2)
    expected = Engine(MemoryJournal(), [trip], budget=budget).run(trip, "succeeds", run_id="budget")
    did = [*world.done]
    world.__init__()  # type: ignore[misc]
    monkeypatch.setattr(dbos, "budget", budget)
    run = dbos.run(trip, "succeeds", run_id="budget", wait_s=LIMIT_S)
    assert (run.status, run.error, world.done) == (expected.status, expected.error, did)


def test_one_process_has_one_dbos(dbos: DBOSEngine) -> None:
    with pytest.raises(DurableError, match="one engine"), dbos.working("second"):
        pass
    assert dbos.run(parted, run_id="still at work", wait_s=LIMIT_S).status is RunStatus.COMPLETED


# ---- several workers --------------------------------------------------------------------------


@pytest.mark.slow
def test_workers_killed_on_postgresql_lose_nothing_and_repeat_nothing() -> None:
    need_postgresql()
    killed = kill_workers(runs=12, workers=2)
    assert killed.ok, killed
    assert killed.kills
