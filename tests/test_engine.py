"""Starting, driving and ending runs: admission first, verdicts and bugs told apart, nothing lost.

The crashes here are single and placed by hand; `test_crash_properties` has all of them.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from durable_mini import (
    Context,
    DurableCallError,
    Engine,
    EventKind,
    FakeClock,
    InvalidNameError,
    LeaseLostError,
    MemoryJournal,
    NonDeterminismError,
    PayloadError,
    Position,
    RunFailed,
    RunIdConflictError,
    RunStatus,
    SQLiteJournal,
    StepFailedError,
    StorageError,
    StructureChangedError,
    UnknownRunError,
    UnknownWorkflowError,
    Workflow,
    workflow,
)
from durable_mini.events import RunError
from durable_mini.lab import CrashAt, InjectedCrash
from durable_mini.lease import Holder
from durable_mini.ops import prune


class Desk:
    """Where the steps of these tests do their work: it keeps what was done, and can be broken."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.broken = False

    def work(self, task: str) -> str:
        self.done.append(task)
        if self.broken:
            raise ConnectionError(f"{task}: no line")
        return f"{task} done"


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def order(desk: Desk) -> Workflow:
    """Two steps; the input is handed through."""

    @workflow(version="1")
    def order(ctx: Context, item: Any) -> Any:
        first = ctx.step("reserve", desk.work, "reserve")
        second = ctx.step("pack", desk.work, "pack")
        return {"item": item, "steps": [first, second]}

    return order


RESULT = {"item": "tea", "steps": ["reserve done", "pack done"]}


def stands(engine: Engine, run_id: str) -> tuple[Any, ...]:
    """Everything that the journal holds of a run."""
    return engine.describe(run_id), engine.history(run_id)


# Admission


def test_start_admits_the_run_and_executes_nothing(
    journal: SQLiteJournal, desk: Desk, order: Workflow
) -> None:
    engine = Engine(journal, [order])
    assert engine.start(order, "tea", run_id="r-1") == "r-1"
    assert desk.done == []
    run = engine.describe("r-1")
    assert (run.status, run.input, run.attempts) == (RunStatus.PENDING, "tea", 0)
    (event,) = engine.history("r-1")
    assert (event.seq, event.kind, event.name) == (1, EventKind.ADMITTED, "order")
    calls = ["step 'reserve'", "step 'pack'"]
    assert event.payload == {"version": "1", "calls": calls, "input": "tea"}


def test_a_run_is_admitted_before_the_first_step_begins(order: Workflow) -> None:
    journal = MemoryJournal()
    engine = Engine(journal, [order], probe=CrashAt("reserve", "before"))
    with pytest.raises(InjectedCrash):
        engine.run(order, "tea", run_id="r-1")
    assert [event.kind for event in engine.history("r-1")] == [EventKind.ADMITTED]
    assert engine.resume("r-1").result == RESULT


STARTS_AND_DIES = """
    import os, signal, sys
    from durable_mini import Engine, SQLiteJournal, workflow

    @workflow(version="1")
    def order(ctx, item):
        ctx.step("reserve", print, "executed")
        ctx.step("pack", print, "executed")

    engine = Engine(SQLiteJournal(sys.argv[1]), [order])
    engine.start(order, "tea", run_id="r-1")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], list[str]]:
    """A function that writes a program to a file and returns the command that runs it."""

    def written(program: str) -> list[str]:
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(program), encoding="utf-8")
        return [sys.executable, str(path)]

    return written


def test_a_process_killed_right_after_start_loses_nothing(
    journal_path: Path, order: Workflow, script: Callable[[str], list[str]]
) -> None:
    command = [*script(STARTS_AND_DIES), str(journal_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "")
    with SQLiteJournal(journal_path) as journal:
        engine = Engine(journal, [order])
        assert engine.describe("r-1").status is RunStatus.PENDING
        assert engine.resume("r-1").result == RESULT


def test_asking_twice_with_one_id_gives_the_same_run(
    journal: SQLiteJournal, desk: Desk, order: Workflow
) -> None:
    engine = Engine(journal, [order])
    engine.start(order, {"a": 1, "b": [2]}, run_id="r-1")
    assert engine.start(order, {"b": (2,), "a": 1}, run_id="r-1") == "r-1"
    ended = engine.resume("r-1")
    before = stands(engine, "r-1")
    assert engine.run(order, {"a": 1, "b": [2]}, run_id="r-1") == ended
    assert stands(engine, "r-1") == before
    assert desk.done == ["reserve", "pack"]
    assert [run.run_id for run in engine.runs()] == ["r-1"]


@pytest.mark.parametrize("other", ["coffee", ["tea"], None, {"tea": "x" * 500}])
def test_one_id_with_another_input_is_refused(
    journal: SQLiteJournal, desk: Desk, order: Workflow, other: Any
) -> None:
    engine = Engine(journal, [order])
    engine.start(order, "tea", run_id="r-1")
    before = stands(engine, "r-1")
    with pytest.raises(RunIdConflictError, match=r"run r-1 .*tea") as refusal:
        engine.run(order, other, run_id="r-1")
    assert "tea" in refusal.value.recorded
    assert refusal.value.run_id == "r-1"
    assert len(str(refusal.value)) < 400
    assert stands(engine, "r-1") == before
    assert desk.done == []


def test_one_id_with_another_workflow_is_refused(
    journal: SQLiteJournal, desk: Desk, order: Workflow
) -> None:
    @workflow(version="1")
    def refund(ctx: Context, item: Any) -> Any:
        return ctx.step("reserve", desk.work, "reserve")

    engine = Engine(journal, [order, refund])
    engine.start(order, "tea", run_id="r-1")
    with pytest.raises(RunIdConflictError, match=r"run r-1 .*order.*refund"):
        engine.start(refund, "tea", run_id="r-1")
    assert engine.describe("r-1").workflow == "order"


def test_runs_started_without_an_id_are_different_runs(order: Workflow) -> None:
    engine = Engine(MemoryJournal(), [order])
    ids = {engine.start(order, "tea") for _ in range(20)}
    assert len(ids) == 20
    assert all(engine.describe(run_id).input == "tea" for run_id in ids)


@pytest.mark.parametrize("run_id", ["", "x" * 201, "two\nlines", "nul\0", 7, b"bytes"])
def test_a_run_id_that_cannot_be_stored_is_refused(order: Workflow, run_id: Any) -> None:
    engine = Engine(MemoryJournal(), [order])
    with pytest.raises(InvalidNameError, match=r"^run id "):
        engine.start(order, "tea", run_id=run_id)
    assert list(engine.runs()) == []


def test_an_input_that_json_cannot_hold_admits_nothing(order: Workflow) -> None:
    engine = Engine(MemoryJournal(), [order], max_payload_bytes=100)
    for value in (float("nan"), {"a": [1, object()]}, {1: "x", "1": "y"}, "x" * 99):
        with pytest.raises(PayloadError, match="input") as refusal:
            engine.start(order, value, run_id="r-1")
        assert (refusal.value.kind, refusal.value.name) == ("run", "r-1")
    assert list(engine.runs()) == []


# Ends


def test_a_completed_run_is_only_told(journal: SQLiteJournal, desk: Desk, order: Workflow) -> None:
    engine = Engine(journal, [order])
    ended = engine.run(order, "tea", run_id="r-1")
    assert (ended.status, ended.result, ended.error) == (RunStatus.COMPLETED, RESULT, None)
    before = stands(engine, "r-1")
    assert engine.resume("r-1") == ended
    assert Engine(journal).resume("r-1") == ended
    assert stands(engine, "r-1") == before
    assert desk.done == ["reserve", "pack"]


@workflow(version="1")
def sell(ctx: Context, stock: int) -> str:
    left = ctx.step("look", int, stock, cost=1.5)
    if left == 0:
        raise RunFailed("sold out")
    return str(ctx.step("sell", str, left))


def test_a_run_that_fails_on_purpose_is_failed_for_good(journal: SQLiteJournal) -> None:
    engine = Engine(journal, [sell])
    ended = engine.run(sell, 0, run_id="r-1")
    assert (ended.status, ended.result) == (RunStatus.FAILED, None)
    assert ended.error == RunError("RunFailed", "sold out")
    assert engine.history("r-1")[-1].kind is EventKind.FAILED
    before = stands(engine, "r-1")
    assert engine.resume("r-1") == ended == engine.describe("r-1")
    assert stands(engine, "r-1") == before


def test_a_step_that_fails_for_good_fails_the_run_that_lets_it_pass(
    journal: SQLiteJournal, desk: Desk, order: Workflow
) -> None:
    desk.broken = True
    engine = Engine(journal, [order])
    ended = engine.run(order, "tea", run_id="r-1")
    assert ended.status is RunStatus.FAILED
    assert ended.error == RunError("ConnectionError", "reserve: no line", "reserve")
    desk.broken = False
    assert engine.resume("r-1") == ended == engine.describe("r-1")
    assert desk.done == ["reserve"]


def test_a_failure_that_the_code_catches_is_the_same_after_a_crash(
    journal: SQLiteJournal, desk: Desk
) -> None:
    desk.broken = True
    caught: list[str] = []

    @workflow(version="1")
    def careful(ctx: Context, item: Any) -> list[str]:
        try:
            ctx.step("call", desk.work, "call")
        except StepFailedError as failure:
            caught.append(f"{failure} / {failure.type} / {failure.seq}")
        return [caught[-1], str(ctx.step("after", len, "abc"))]

    engine = Engine(journal, [careful], probe=CrashAt("after", "before"))
    with pytest.raises(InjectedCrash):
        engine.run(careful, None, run_id="r-1")
    ended = engine.resume("r-1")
    assert ended.status is RunStatus.COMPLETED
    assert desk.done == ["call"]
    live, replayed = caught
    assert live == replayed == f"{live.split(' / ')[0]} / ConnectionError / 2"
    assert "step 'call' failed: ConnectionError: call: no line" in live


# Bugs, and repaired code


def test_a_bug_undoes_nothing_and_repaired_code_completes(
    journal: SQLiteJournal, desk: Desk
) -> None:
    def version_one(buggy: bool) -> Workflow:
        @workflow(name="order", version="1")
        def order(ctx: Context, item: Any) -> Any:
            first = ctx.step("reserve", desk.work, "reserve")
            if buggy:
                first.explode()
            return [first, ctx.step("pack", desk.work, "pack")]

        return order

    engine = Engine(journal, [version_one(buggy=True)])
    stopped = engine.run(version_one(buggy=True), "tea", run_id="r-1")
    assert stopped.status is RunStatus.NEEDS_ATTENTION
    assert stopped.error == RunError(
        "AttributeError", "'str' object has no attribute 'explode'", None
    )
    assert engine.describe("r-1") == stopped
    assert [event.name for event in engine.history("r-1")] == ["order", "reserve"]
    repaired = Engine(journal, [version_one(buggy=False)]).resume("r-1")
    assert (repaired.status, repaired.error) == (RunStatus.COMPLETED, None)
    assert repaired.result == ["reserve done", "pack done"]
    assert repaired.attempts == 2
    assert desk.done == ["reserve", "pack"]


@pytest.mark.parametrize(
    ("result", "place"),
    [
        ({"a": [1, {2, 3}]}, r"result\['a'\]\[1\] is of type set"),
        (float("inf"), "result is inf"),
        ("x" * 300, "result takes 302 bytes, the limit is 200"),
    ],
)
def test_a_result_that_cannot_be_stored_is_a_bug_that_can_be_repaired(
    journal: SQLiteJournal, desk: Desk, result: Any, place: str
) -> None:
    returned = [result]

    @workflow(version="1")
    def order(ctx: Context, item: Any) -> Any:
        ctx.step("reserve", desk.work, "reserve")
        return returned[0]

    engine = Engine(journal, [order], max_payload_bytes=200)
    stopped = engine.run(order, "tea", run_id="r-1")
    assert stopped.status is RunStatus.NEEDS_ATTENTION
    assert stopped.error is not None
    assert stopped.error.type == "PayloadError"
    assert re.search(place, stopped.error.message)
    assert [event.name for event in engine.history("r-1")] == ["order", "reserve"]
    returned[0] = "stored"
    assert engine.resume("r-1").result == "stored"
    assert desk.done == ["reserve"]


def test_a_workflow_that_returns_a_coroutine_needs_attention() -> None:
    @workflow(version="1")
    def later(ctx: Context, item: Any) -> Any:
        return asyncio.sleep(0)

    stopped = Engine(MemoryJournal(), [later]).run(later, None)
    assert stopped.status is RunStatus.NEEDS_ATTENTION
    assert stopped.error is not None
    assert "coroutine" in stopped.error.message


# Changed code


def reserve_then(desk: Desk, last: str) -> Workflow:
    """Two versions of the code under one name and version; which one `last` says."""
    if last == "pack":

        @workflow(name="order", version="1")
        def order(ctx: Context, item: Any) -> Any:
            ctx.step("reserve", desk.work, "reserve")
            return ctx.step("pack", desk.work, "pack")

    else:

        @workflow(name="order", version="1")
        def order(ctx: Context, item: Any) -> Any:
            ctx.step("reserve", desk.work, "reserve")
            return ctx.effect("charge", desk.work, "charge")

    return order


def test_a_changed_structure_is_refused_with_its_first_difference(
    journal: SQLiteJournal, desk: Desk
) -> None:
    old, new = reserve_then(desk, "pack"), reserve_then(desk, "charge")
    engine = Engine(journal, [old], probe=CrashAt("pack", "before"))
    with pytest.raises(InjectedCrash):
        engine.run(old, None, run_id="r-1")
    before = stands(engine, "r-1")
    with pytest.raises(StructureChangedError) as refusal:
        Engine(journal, [new]).resume("r-1")
    error = refusal.value
    assert (error.run_id, error.workflow, error.version, error.position) == ("r-1", "order", "1", 2)
    assert "durable call 2: recorded step 'pack', now effect 'charge'" in str(error)
    assert error.recorded == ["step 'reserve'", "step 'pack'"]
    assert error.requested == ["step 'reserve'", "effect 'charge'"]
    assert stands(engine, "r-1") == before
    assert desk.done == ["reserve"]
    assert engine.resume("r-1").status is RunStatus.COMPLETED


def test_a_structure_that_only_got_longer_is_refused_too(
    journal: SQLiteJournal, desk: Desk, order: Workflow
) -> None:
    @workflow(name="order", version="1")
    def longer(ctx: Context, item: Any) -> None:
        ctx.step("reserve", desk.work, "reserve")
        ctx.step("pack", desk.work, "pack")
        ctx.step("ship", desk.work, "ship")

    Engine(journal, [order]).start(order, "tea", run_id="r-1")
    with pytest.raises(StructureChangedError, match="3: recorded nothing more, now step 'ship'"):
        Engine(journal, [longer]).resume("r-1")


@pytest.fixture
def switch() -> dict[str, Any]:
    """What the workflow of the next tests reads at each attempt, as a changed closure would."""
    return {"names": ["plan", "draft"], "tasks": ["plan", "draft"], "effect": False}


@pytest.fixture
def drifting(desk: Desk, switch: dict[str, Any]) -> Workflow:
    """One structure, whose calls at run time depend on the switch."""

    @workflow(version="1")
    def drifting(ctx: Context, item: Any) -> list[str]:
        found = []
        for name, task in zip(switch["names"], switch["tasks"], strict=True):
            if switch["effect"]:
                found.append(ctx.effect(name, post, desk, task))
            else:
                found.append(ctx.step(name, desk.work, task))
        return found

    return drifting


def post(desk: Desk, task: str, *, idempotency_key: str) -> str:
    return desk.work(f"{task} under {idempotency_key}")


@pytest.mark.parametrize(
    ("change", "seq", "recorded", "requested"),
    [
        ({"names": ["plan", "write"]}, 3, "step 'draft'", "step 'write'"),
        ({"names": ["draft", "plan"]}, 2, "step 'plan'", "step 'draft'"),
        ({"effect": True}, 2, "step 'plan'", "effect 'plan'"),
        ({"tasks": ["plan", "other"]}, 3, "step 'draft' with arguments", "step 'draft' with"),
        ({"names": ["plan"], "tasks": ["plan"]}, 3, "step 'draft'", "the end of the workflow"),
    ],
)
def test_a_divergence_executes_nothing_writes_nothing_and_says_both_sides(
    journal: SQLiteJournal,
    desk: Desk,
    switch: dict[str, Any],
    drifting: Workflow,
    change: dict[str, Any],
    seq: int,
    recorded: str,
    requested: str,
) -> None:
    engine = Engine(journal, [drifting], probe=CrashAt("draft", "after"))
    with pytest.raises(InjectedCrash):
        engine.run(drifting, None, run_id="r-1")
    history, done, original = engine.history("r-1"), list(desk.done), dict(switch)
    switch.update(change)
    for _ in range(2):
        with pytest.raises(NonDeterminismError) as divergence:
            engine.resume("r-1")
        assert (divergence.value.run_id, divergence.value.seq) == ("r-1", seq)
        assert divergence.value.recorded.startswith(recorded)
        assert divergence.value.requested.startswith(requested)
        run = engine.describe("r-1")
        assert run.status is RunStatus.NEEDS_ATTENTION
        assert run.error == RunError("NonDeterminismError", str(divergence.value))
        assert engine.history("r-1") == history
        assert desk.done == done
    switch.update(original)
    assert engine.resume("r-1").result == ["plan done", "draft done"]
    assert desk.done == done


def test_steps_of_one_name_that_swapped_their_arguments_are_noticed(
    journal: SQLiteJournal, desk: Desk, switch: dict[str, Any], drifting: Workflow
) -> None:
    switch.update(names=["ask", "ask"], tasks=["first", "second"])
    engine = Engine(journal, [drifting], probe=CrashAt("ask", "after", occurrence=2))
    with pytest.raises(InjectedCrash):
        engine.run(drifting, None, run_id="r-1")
    switch.update(tasks=["second", "first"])
    with pytest.raises(NonDeterminismError, match=r"event 2: .*step 'ask' with arguments"):
        engine.resume("r-1")
    assert desk.done == ["first", "second"]
    relaxed = Engine(journal, [drifting], compare_arguments=False)
    assert relaxed.resume("r-1").result == ["first done", "second done"]


def test_a_failure_that_leaves_recorded_steps_unasked_for_is_a_divergence(
    journal: SQLiteJournal, desk: Desk
) -> None:
    sold_out = False

    @workflow(version="1")
    def order(ctx: Context, item: Any) -> None:
        ctx.step("reserve", desk.work, "reserve")
        if sold_out:
            raise RunFailed("sold out")
        ctx.step("pack", desk.work, "pack")

    engine = Engine(journal, [order], probe=CrashAt("pack", "after"))
    with pytest.raises(InjectedCrash):
        engine.run(order, None, run_id="r-1")
    sold_out = True
    with pytest.raises(NonDeterminismError, match=r"event 3.*step 'pack'.*the run to fail"):
        engine.resume("r-1")
    assert engine.describe("r-1").status is RunStatus.NEEDS_ATTENTION


# What is known and what isn't


def test_an_unknown_run_is_said_by_name(journal: SQLiteJournal, order: Workflow) -> None:
    engine = Engine(journal, [order])
    engine.run(order, "tea", run_id="r-1")
    for ask in (engine.resume, engine.describe, engine.history):
        with pytest.raises(UnknownRunError, match="'r-2'") as unknown:
            ask("r-2")
        assert unknown.value.run_id == "r-2"
    with pytest.raises(UnknownRunError, match="'r-1'"):
        engine.history("r-1", generation=2)
    assert engine.history("r-1", generation=1) == engine.history("r-1")


def test_a_workflow_that_nobody_registered_is_said_by_name(
    journal: SQLiteJournal, order: Workflow
) -> None:
    empty = Engine(journal)
    with pytest.raises(UnknownWorkflowError, match="'order' version '1'"):
        empty.start(order, "tea", run_id="r-1")
    assert list(empty.runs()) == []
    Engine(journal, [order]).start(order, "tea", run_id="r-1")
    with pytest.raises(UnknownWorkflowError, match=r"'order' version '1'.*'sell'") as unknown:
        Engine(journal, [sell]).resume("r-1")
    assert (unknown.value.workflow, unknown.value.run_id) == ("order", "r-1")
    assert empty.describe("r-1").status is RunStatus.PENDING


def test_a_plain_function_is_told_to_be_decorated(order: Workflow) -> None:
    with pytest.raises(TypeError, match="@workflow"):
        Engine(MemoryJournal(), [order]).start(order.fn, "tea")  # type: ignore[arg-type]


def test_start_refuses_code_that_is_not_the_registered_one(order: Workflow, desk: Desk) -> None:
    engine = Engine(MemoryJournal(), [order])
    edited = reserve_then(desk, "wrap")

    with pytest.raises(StructureChangedError, match="First difference"):
        engine.start(edited, "tea", run_id="r")

    assert list(engine.runs()) == []


def test_start_takes_code_with_the_registered_durable_calls_behind_another_patch() -> None:
    @workflow(version="1", name="packing")
    def registered(ctx: Context, _: Any) -> None:
        if ctx.patched("wrapped"):
            ctx.step("pack", len, "")

    @workflow(version="1", name="packing")
    def given(ctx: Context, _: Any) -> None:
        if ctx.patched("boxed"):
            ctx.step("pack", len, "")

    engine = Engine(MemoryJournal(), [registered])

    assert engine.run(given, run_id="r-1").status is RunStatus.COMPLETED
    assert engine.history("r-1")[0].payload["patches"] == ["wrapped"]


def test_two_workflows_under_one_name_and_version_are_refused(order: Workflow, desk: Desk) -> None:
    with pytest.raises(ValueError, match="'order' version '1'"):
        Engine(MemoryJournal(), [order, reserve_then(desk, "pack")])
    Engine(MemoryJournal(), [order, order])


def test_versions_live_side_by_side_and_a_run_keeps_the_one_it_began_with(
    journal: SQLiteJournal, desk: Desk, order: Workflow
) -> None:
    @workflow(name="order", version="2")
    def newer(ctx: Context, item: Any) -> str:
        return str(ctx.step("everything", desk.work, "everything"))

    Engine(journal, [order]).start(order, "tea", run_id="old")
    engine = Engine(journal, [newer, order])
    assert engine.run(newer, "tea", run_id="new").result == "everything done"
    assert engine.resume("old").result == RESULT
    assert [(run.run_id, run.version) for run in engine.runs()] == [("old", "1"), ("new", "2")]


def test_runs_are_listed_by_status_in_the_order_of_admission(
    journal: SQLiteJournal, order: Workflow
) -> None:
    @workflow(version="1")
    def buggy(ctx: Context, item: Any) -> None:
        raise ZeroDivisionError

    @workflow(version="1")
    def patient(ctx: Context, item: Any) -> None:
        ctx.wait_signal("go")

    known = [order, sell, buggy, patient]
    engine = Engine(journal, known, probe=CrashAt("pack", "before"))
    engine.start(order, "tea", run_id="waits")
    with pytest.raises(InjectedCrash):
        engine.run(order, "tea", run_id="crashed")
    engine.run(sell, 0, run_id="fails")
    engine.run(buggy, None, run_id="breaks")
    engine.run(patient, None, run_id="sleeps")
    engine.start(order, "tea", run_id="stopped")
    engine.cancel("stopped")
    engine.resume("stopped")
    engine.run(sell, 3, run_id="ends")
    found = {status: [run.run_id for run in engine.runs(status)] for status in RunStatus}
    assert found == {
        RunStatus.PENDING: ["waits"],
        RunStatus.RUNNING: ["crashed"],
        RunStatus.SUSPENDED: ["sleeps"],
        RunStatus.COMPLETED: ["ends"],
        RunStatus.FAILED: ["fails"],
        RunStatus.CANCELLED: ["stopped"],
        RunStatus.NEEDS_ATTENTION: ["breaks"],
    }
    told = list(Engine(journal).runs())
    admitted = ["waits", "crashed", "fails", "breaks", "sleeps", "stopped", "ends"]
    assert [run.run_id for run in told] == admitted
    assert told == [engine.describe(run.run_id) for run in told]
    assert [run.run_id for run in engine.runs("failed")] == ["fails"]
    with pytest.raises(ValueError, match="'asleep'"):
        list(engine.runs("asleep"))


def test_what_is_told_live_is_what_is_told_later(journal: SQLiteJournal) -> None:
    @workflow(version="1")
    def spend(ctx: Context, tenths: int) -> tuple[int, dict[int, str]]:
        for number in range(tenths):
            ctx.step(f"spend {number}", str, number, cost=0.1)
        ctx.step("by length", str, "four", cost=lambda result: len(result) / 7)
        return tenths, {1: "a"}

    engine = Engine(journal, [spend, sell])
    for ended in (engine.run(spend, 13, run_id="r-1"), engine.run(sell, 0, run_id="r-2")):
        assert engine.describe(ended.run_id) == ended
        assert Engine(journal).describe(ended.run_id) == ended
    assert engine.describe("r-1").result == [13, {"1": "a"}]
    assert engine.describe("r-1").cost == pytest.approx(1.3 + 4 / 7)
    assert engine.describe("r-2").cost == 1.5


class Loud(float):
    """A number that prints as something else, as numpy's do."""

    def __repr__(self) -> str:
        return f"Loud({float(self)})"


def test_a_cost_of_any_numeric_type_is_stored_as_a_number(journal: SQLiteJournal) -> None:
    @workflow(version="1")
    def spend(ctx: Context, item: Any) -> None:
        ctx.step("given", str, 1, cost=Loud(0.5))
        ctx.step("computed", str, 1, cost=lambda _: Loud(0.25))

    engine = Engine(journal, [spend])
    assert engine.run(spend, None, run_id="r-1").cost == 0.75
    assert [event.payload.get("cost") for event in engine.history("r-1")[1:-1]] == [0.5, 0.25]


# Stops


def test_ctrl_c_in_a_step_leaves_a_run_that_goes_on(
    journal: SQLiteJournal, desk: Desk, order: Workflow
) -> None:
    interrupted: list[str] = []

    def interrupt(position: str, _kind: str, name: str) -> None:
        if (name, position) == ("pack", "window") and not interrupted:
            interrupted.append(name)
            raise KeyboardInterrupt

    engine = Engine(journal, [order], probe=interrupt)
    with pytest.raises(KeyboardInterrupt):
        engine.run(order, "tea", run_id="r-1")
    run = engine.describe("r-1")
    assert (run.status, run.attempts, run.error) == (RunStatus.RUNNING, 1, None)
    assert engine.resume("r-1").result == RESULT
    assert desk.done == ["reserve", "pack", "pack"]


@pytest.mark.parametrize(
    "stop",
    [KeyboardInterrupt, SystemExit, InjectedCrash(Position.WINDOW, EventKind.STEP, "reserve")],
)
@pytest.mark.parametrize("inside", [True, False])
def test_a_stop_is_neither_a_failure_nor_a_bug(
    journal: SQLiteJournal, stop: Any, inside: bool
) -> None:
    stops = [stop]

    def maybe_stop() -> None:
        if stops:
            raise stops.pop()

    @workflow(version="1")
    def order(ctx: Context, item: Any) -> str:
        ctx.step("reserve", maybe_stop if inside else str)
        if not inside:
            maybe_stop()
        return "done"

    engine = Engine(journal, [order])
    with pytest.raises(BaseException) as raised:
        engine.run(order, None, run_id="r-1")
    assert raised.value is stop or raised.type is stop
    assert engine.describe("r-1").status is RunStatus.RUNNING
    assert engine.resume("r-1").result == "done"


WAITS_IN_A_STEP = """
    import sys, time
    from durable_mini import Engine, SQLiteJournal, workflow

    def wait():
        print("waiting", flush=True)
        time.sleep(60)

    @workflow(version="1")
    def order(ctx, item):
        ctx.step("reserve", print, "reserved", flush=True)
        try:
            ctx.step("pack", wait)
        except Exception:
            ctx.step("never", print, "went on")

    engine = Engine(SQLiteJournal(sys.argv[1]), [order])
    try:
        engine.run(order, "tea", run_id="r-1")
    except KeyboardInterrupt:
        print(engine.describe("r-1").status, [e.name for e in engine.history("r-1")])
        sys.exit(130)
"""


def test_a_real_ctrl_c_leaves_a_run_that_another_process_finishes(
    journal_path: Path, script: Callable[[str], list[str]]
) -> None:
    command = [*script(WAITS_IN_A_STEP), str(journal_path)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert [worker.stdout.readline() for _ in range(2)] == ["reserved\n", "waiting\n"]
    worker.send_signal(signal.SIGINT)
    said, complaint = worker.communicate(timeout=60)
    assert (worker.returncode, complaint) == (130, "")
    assert said == "running ['order', 'reserve']\n"
    executed: list[str] = []

    @workflow(version="1")
    def order(ctx: Context, item: Any) -> str:
        ctx.step("reserve", executed.append, "reserved", flush=True)
        try:
            ctx.step("pack", executed.append, "packed")
        except Exception:
            ctx.step("never", print, "went on")
        return "finished"

    with SQLiteJournal(journal_path) as journal:
        relaxed = Engine(journal, [order], compare_arguments=False)
        assert relaxed.resume("r-1").result == "finished"
    assert executed == ["packed"]


def test_no_except_clause_can_go_on_after_a_stop(desk: Desk) -> None:
    @workflow(version="1")
    def stubborn(ctx: Context, item: Any) -> str:
        for _ in range(3):
            try:
                ctx.step("reserve", desk.work, "reserve")
            except BaseException:  # this is what must not help
                continue
        return "completed all the same"

    engine = Engine(MemoryJournal(), [stubborn], probe=CrashAt("reserve", "window"))
    with pytest.raises(InjectedCrash):
        engine.run(stubborn, None, run_id="r-1")
    assert desk.done == ["reserve"]
    assert [event.kind for event in engine.history("r-1")] == [EventKind.ADMITTED]


def test_a_durable_call_in_a_steps_body_is_refused_however_it_is_caught(desk: Desk) -> None:
    swallow = True

    @workflow(version="1")
    def nested(ctx: Context, item: Any) -> Any:
        def body() -> str:
            try:
                return str(ctx.step("inner", desk.work, "inner"))
            except DurableCallError:
                if swallow:
                    return "a wrong value"
                raise

        return ctx.step("outer", body)

    engine = Engine(MemoryJournal(), [nested])
    for swallow in (True, False):  # read by the body
        stopped = engine.run(nested, None, run_id=f"r-{swallow}")
        assert stopped.status is RunStatus.NEEDS_ATTENTION
        assert stopped.error is not None
        assert stopped.error.type == "DurableCallError"
        assert "inside the body of step 'outer'" in stopped.error.message
        assert [event.name for event in engine.history(stopped.run_id)] == ["nested"]
    assert desk.done == []


class FailingJournal(MemoryJournal):
    """A store whose disk fails at the event that is told to it."""

    def __init__(self, failing: str) -> None:
        super().__init__()
        self.failing: str | None = failing

    def append(self, row: Any, entry: Any, **options: Any) -> int:
        if entry[1] == self.failing:
            raise StorageError(path="memory", reason="no space left")
        return super().append(row, entry, **options)


@pytest.mark.parametrize("failing", ["reserve", "pack", "order"])
def test_a_storage_error_is_no_failure_of_the_step_and_the_run_goes_on_later(
    desk: Desk, failing: str
) -> None:
    @workflow(version="1")
    def order(ctx: Context, item: Any) -> str:
        for name in ("reserve", "pack"):
            with suppress(Exception):  # as careless code does
                ctx.step(name, desk.work, name)
        return "done"

    journal = FailingJournal(failing)
    engine = Engine(journal, [order])
    with pytest.raises(StorageError, match="no space left"):
        engine.run(order, "tea", run_id="r-1")
    assert engine.describe("r-1").status is RunStatus.RUNNING
    known = [event.name for event in engine.history("r-1")]
    assert known == ["order", "reserve", "pack"][: {"reserve": 1, "pack": 2, "order": 3}[failing]]
    journal.failing = None
    assert engine.resume("r-1").result == "done"
    again = [failing] if failing != "order" else []
    assert sorted(desk.done) == sorted(["reserve", "pack", *again])


# Two drivers


def drive_meanwhile(journal: MemoryJournal, operation: str, other: Callable[[], Any]) -> None:
    """Let another driver act once, in the middle of this one's work: as `operation` is asked."""
    own = getattr(journal, operation)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        setattr(journal, operation, own)
        other()
        return own(*arguments, **options)

    setattr(journal, operation, interrupted)


@pytest.mark.parametrize(
    ("operation", "lost"), [("peek", []), ("append", ["reserve"])], ids=["looks", "writes"]
)
def test_of_two_drivers_the_loser_writes_nothing_and_the_run_completes(
    desk: Desk, order: Workflow, operation: str, lost: list[str]
) -> None:
    """Who looks before a step does none of its work; who was in the middle of it has done it."""
    journal = MemoryJournal()
    one, other = Engine(journal, [order]), Engine(journal, [order])
    one.start(order, "tea", run_id="r-1")
    drive_meanwhile(journal, operation, lambda: other.resume("r-1"))
    with pytest.raises(LeaseLostError, match=r"run r-1: .* holds token 1, .* at token 3") as loss:
        one.resume("r-1")
    assert (loss.value.run_id, loss.value.token, loss.value.held) == ("r-1", 1, 3)
    assert (loss.value.worker, loss.value.holder) == (f"resume-{os.getpid()}", None)
    told = other.describe("r-1")
    assert (told.status, told.result, told.attempts) == (RunStatus.COMPLETED, RESULT, 2)
    assert [event.seq for event in other.history("r-1")] == [1, 2, 3, 4]
    assert desk.done == [*lost, "reserve", "pack"]
    assert one.resume("r-1") == told


def test_a_driver_that_lost_its_run_names_the_worker_that_has_it(
    desk: Desk, order: Workflow
) -> None:
    journal, clock = MemoryJournal(), FakeClock()
    one = Engine(journal, [order], clock=clock)
    other = Engine(journal, [order], clock=clock, probe=CrashAt("pack", "before"))
    one.start(order, "tea", run_id="r-1")

    def take_over() -> None:
        with pytest.raises(InjectedCrash):
            other.drive(journal.row("r-1"), Holder("w-2"))  # type: ignore[arg-type]

    drive_meanwhile(journal, "append", take_over)
    with pytest.raises(LeaseLostError, match="run is at token 2 of w-2") as loss:
        one.resume("r-1")
    assert (loss.value.holder, loss.value.held) == ("w-2", 2)
    assert [event.name for event in one.history("r-1")] == ["order", "reserve"]
    assert one.resume("r-1").result == RESULT
    assert desk.done == ["reserve", "reserve", "pack"]


@pytest.mark.parametrize("operation", ["row", "events", "replace"])
def test_a_run_that_another_driver_ends_meanwhile_stays_ended(
    order: Workflow, operation: str
) -> None:
    """Whatever the second driver has read by then: it may lose, it may not reopen the run."""
    journal = MemoryJournal()
    one, other = Engine(journal, [order]), Engine(journal, [order])
    one.start(order, "tea", run_id="r-1")
    drive_meanwhile(journal, operation, lambda: other.resume("r-1"))
    try:
        told = one.resume("r-1")
    except LeaseLostError:
        told = one.describe("r-1")
    assert (told.status, told.result, told.attempts) == (RunStatus.COMPLETED, RESULT, 1)
    assert one.describe("r-1") == told


def test_a_bug_in_a_second_driver_does_not_reopen_a_run_that_has_ended(desk: Desk) -> None:
    journal, buggy = MemoryJournal(), [False]

    @workflow(version="1")
    def order(ctx: Context, item: Any) -> str:
        if buggy[0]:
            buggy[0] = False
            other.resume("r-1")
            raise ZeroDivisionError
        return str(ctx.step("reserve", desk.work, "reserve"))

    one, other = Engine(journal, [order]), Engine(journal, [order])
    one.start(order, None, run_id="r-1")
    buggy[0] = True
    assert one.resume("r-1").status is RunStatus.COMPLETED
    assert one.describe("r-1").result == "reserve done"


@pytest.mark.parametrize("operation", ["row", "rows", "events"])
def test_a_run_is_told_as_of_one_moment_while_another_driver_ends_it(
    order: Workflow, operation: str
) -> None:
    """A row read before the end and events read after it are no damage."""
    journal = MemoryJournal()
    watcher, worker = Engine(journal), Engine(journal, [order])
    worker.start(order, "tea", run_id="r-1")
    drive_meanwhile(journal, operation, lambda: worker.resume("r-1"))
    (run,) = watcher.runs()
    assert run.status in (RunStatus.PENDING, RunStatus.COMPLETED)
    assert watcher.describe("r-1").result == RESULT


def test_a_run_that_is_pruned_while_it_is_read_is_unknown_and_not_damaged(order: Workflow) -> None:
    journal = MemoryJournal()
    engine = Engine(journal, [order])
    engine.run(order, "tea", run_id="r-1")
    drive_meanwhile(journal, "events", lambda: prune(journal, older_than_s=0))
    with pytest.raises(UnknownRunError, match="it was pruned"):
        engine.describe("r-1")
