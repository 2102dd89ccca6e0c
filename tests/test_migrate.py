"""`migrate`: a run goes on as its successor under other code, or is refused and left as it was."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from dying import DyingJournal, JournalDied
from support import Call, Counted, prune_at

from durable_mini import (
    Budget,
    Context,
    Engine,
    FakeClock,
    InvalidNameError,
    LeaseLostError,
    MemoryJournal,
    NonDeterminismError,
    RetryPolicy,
    RunFailed,
    RunIdConflictError,
    RunStatus,
    SQLiteJournal,
    StructureChangedError,
    UnknownRunError,
    UnknownWorkflowError,
    Worker,
    Workflow,
    workflow,
)
from durable_mini.events import RunRow
from durable_mini.journal import Journal
from durable_mini.journal.file import FileJournal
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.ops import MigrationError, migrate, verify
from durable_mini.structure import structure

hypothesis = pytest.importorskip("hypothesis", reason="property tests need hypothesis")
from hypothesis import given, strategies as st  # noqa: E402

RUN_ID, SUCCESSOR = "r-1", "r-1-migrated"


def version(number: str, *calls: Call) -> Workflow:
    """A version of one workflow that makes these calls in order and returns what they gave."""

    @workflow(version=number, name="agent")
    def agent(ctx: Context, _: Any) -> list[Any]:
        return [call(ctx) for call in calls]

    return agent


def step(name: str, body: Callable[..., Any] = str.upper, *args: Any, **options: Any) -> Call:
    return lambda ctx: ctx.step(name, body, *(args or (name,)), **options)


class World:
    """Effects by their key, as a receiver keeps them that honours keys; and what was undone."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.undone: list[str] = []

    def charge(self, *, idempotency_key: str) -> str:
        self.charged.append(idempotency_key)
        return "paid"

    def refund(self, *, idempotency_key: str, effect_key: str) -> None:
        self.undone.append(effect_key)


@pytest.fixture
def world() -> World:
    return World()


def effect(name: str, world: World, **options: Any) -> Call:
    return lambda ctx: ctx.effect(name, world.charge, **options)


def compensate(name: str, world: World) -> Call:
    return lambda ctx: ctx.compensate(name, world.refund)


def wait(name: str, timeout_s: float | None = None) -> Call:
    return lambda ctx: str(ctx.wait_signal(name, timeout_s))


def pivot(ctx: Context) -> None:
    ctx.point_of_no_return()


def nap(ctx: Context) -> None:
    ctx.sleep(10.0)


def fail(_: Context) -> None:
    raise RunFailed("enough")


def begun(journal: Journal, old: Workflow, *others: Workflow, **options: Any) -> Engine:
    """An engine that has driven a run of the old code as far as it goes."""
    engine = Engine(journal, [old, *others], clock=options.pop("clock", FakeClock()), **options)
    engine.run(old, "in", run_id=RUN_ID)
    return engine


def crashed(journal: Journal, old: Workflow, *others: Workflow, at: str) -> Engine:
    """An engine on the journal of a run whose worker died in the crash window of an effect."""
    clock = FakeClock()
    with pytest.raises(InjectedCrash):
        begun(journal, old, clock=clock, probe=CrashAt(at, "window"))
    return Engine(journal, [old, *others], clock=clock)


def contents(journal: Journal) -> list[Any]:
    """Everything that a journal holds."""
    return [
        (row, [journal.events(row._replace(generation=of + 1)) for of in range(row.generation)])
        for row in journal.rows()
    ]


def refused(engine: Engine, mapping: dict[str, str | None], **options: Any) -> MigrationError:
    """The error of a migration that must leave the journal as it was."""
    before = contents(engine.journal)
    with pytest.raises(MigrationError) as raised:
        migrate(engine, RUN_ID, mapping, **options)
    assert contents(engine.journal) == before
    assert raised.value.run_id == RUN_ID
    return raised.value


# ---- what a successor has ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [MemoryJournal, FileJournal, SQLiteJournal])
def test_a_successor_goes_on_where_the_run_stood_and_repeats_nothing(
    kind: Any, journal_path: Path, world: World
) -> None:
    reserve, log = Counted(), Counted()
    old = version("1", step("reserve", reserve), step("log", log), effect("charge", world), nap,
                  wait("approval"))  # fmt: skip
    new = version("2", step("hold", reserve, "reserve"), effect("charge", world), nap,
                  wait("ok", None), step("more"))  # fmt: skip
    with MemoryJournal() if kind is MemoryJournal else kind(journal_path) as journal:
        engine = begun(journal, old, new)
        engine.clock.sleep(10.0)
        engine.resume(RUN_ID)
        engine.signal(RUN_ID, "approval", "yes", signal_id="s-1")
        mapping = {"reserve": "hold", "log": None, "approval": "ok"}

        assert migrate(engine, RUN_ID, mapping, to=new) == SUCCESSOR
        assert engine.describe(SUCCESSOR).status == RunStatus.PENDING
        assert verify(journal).ok
        run = engine.resume(SUCCESSOR)

        assert (run.status, run.result) == ("completed", ["reserve", "paid", None, "yes", "MORE"])
        assert (run.workflow, run.version, run.input) == ("agent", "2", "in")
        assert world.charged == ["r-1/charge"]
        assert (len(reserve.calls), len(log.calls)) == (1, 1)
        assert not engine.signal(SUCCESSOR, "ok", "again", signal_id="s-1")
        assert verify(journal).ok


def test_the_old_run_is_cancelled_and_names_its_successor(journal: SQLiteJournal) -> None:
    old, new = version("1", step("a"), wait("go")), version("2", step("b", str.upper, "a"))
    engine = begun(journal, old, new)
    migrate(engine, RUN_ID, {"a": "b", "go": None}, to=new, successor_id="next")

    run = engine.describe(RUN_ID)
    assert (run.status, run.error) == (RunStatus.CANCELLED, ("Migrated", "next", None))
    assert not engine.signal(RUN_ID, "go")
    assert not engine.cancel(RUN_ID)
    assert engine.resume(RUN_ID) == run
    assert engine.resume("next").result == ["A"]


def test_a_stranded_run_goes_on_under_the_code_of_its_own_version(journal: SQLiteJournal) -> None:
    @workflow(name="agent")
    def before(ctx: Context, _: Any) -> Any:
        ctx.step("look", int)
        return ctx.wait_signal("go")

    @workflow(name="agent")
    def today(ctx: Context, _: Any) -> Any:
        ctx.step("inspect", int)
        ctx.step("think", int)
        return ctx.wait_signal("go")

    begun(journal, before)
    engine = Engine(journal, [today], clock=FakeClock())
    with pytest.raises(StructureChangedError):
        engine.resume(RUN_ID)
    assert len(engine.orphans()) == 1
    assert refused(engine, {"look": "inspect"}).requested == "step 'think'"
    migrate(engine, RUN_ID, {"look": "inspect", "go": None})
    assert engine.orphans() == []
    assert engine.resume(SUCCESSOR).waiting_for == "signal 'go'"
    row = journal.row(SUCCESSOR)
    assert row is not None
    assert row.structure == structure(today).hash


def test_spend_steps_and_deadline_go_on(journal: SQLiteJournal) -> None:
    old = version("1", step("a", cost=1.0), step("b", cost=2.0), wait("go"))
    new = version("2", step("b", cost=2.0), wait("go"), step("c", cost=4.0))
    clock = FakeClock(50.0)
    engine = begun(journal, old, new, clock=clock)
    clock.advance(100.0)
    migrate(engine, RUN_ID, {"a": None}, to=new)
    engine.signal(SUCCESSOR, "go")
    assert engine.describe(SUCCESSOR).cost == 3.0

    def limited(**limit: Any) -> Any:
        engine = Engine(journal, [old, new], clock=clock, budget=Budget(**limit))
        return engine.resume(SUCCESSOR)

    copied = contents(journal)
    for limit in ({"max_cost": 6.9}, {"max_steps": 2}, {"max_seconds": 99.0}):
        with MemoryJournal() as again:
            for row, generations in copied:
                again.admit((row, [event[1:] for event in generations[0]]))
            run = Engine(again, [old, new], clock=clock, budget=Budget(**limit)).resume(SUCCESSOR)
            assert run.error is not None
            assert next(iter(limit)) in run.error.message
    assert limited(max_cost=7.0, max_steps=3, max_seconds=101.0).cost == 7.0


def test_keys_go_on_over_generations_and_migrations(journal: SQLiteJournal, world: World) -> None:
    def chain(number: str, name: str) -> Workflow:
        @workflow(version=number, name="agent")
        def agent(ctx: Context, left: int) -> Any:
            ctx.step(name, int)
            for _ in range(2):
                ctx.effect("charge", world.charge)
            if left:
                ctx.continue_as_new(left - 1)
            ctx.wait_signal("go")
            ctx.effect("charge", world.charge)
            ctx.wait_signal("more")
            if ctx.generation == 1:
                ctx.continue_as_new(0)

        return agent

    first, second, third = chain("1", "a"), chain("2", "b"), chain("3", "c")
    engine = Engine(journal, [first, second, third], clock=FakeClock())
    engine.run(first, 1, run_id="r/1")
    migrate(engine, "r/1", {"a": "b"}, to=second, successor_id="r-2")
    migrate(engine, "r-2", {"b": "c"}, to=third, successor_id="r-3")
    engine.signal("r-3", "go")
    engine.signal("r-3", "more")
    engine.resume("r-3")
    old = ["r%2F1/charge", "r%2F1/charge#2", "r%2F1~2/charge", "r%2F1~2/charge#2"]
    assert world.charged == [*old, "r%2F1~2/charge#3", "r-3~2/charge", "r-3~2/charge#2"]
    assert verify(journal).ok


def test_a_run_that_needs_attention_goes_on_under_repaired_code(journal: SQLiteJournal) -> None:
    bug = version("1", step("a"), lambda _: 1 / 0)
    new = version("2", step("b", str.upper, "a"), step("c"))
    engine = begun(journal, bug, new)
    assert engine.describe(RUN_ID).status == "needs_attention"
    migrate(engine, RUN_ID, {"a": "b"}, to=new)
    assert engine.resume(SUCCESSOR).result == ["A", "C"]
    assert verify(journal).ok


def test_what_was_to_be_undone_is_undone_under_its_key(
    journal: SQLiteJournal, world: World
) -> None:
    old = version("1", compensate("refund", world), effect("charge", world), wait("go"))
    new = version("2", compensate("give back", world), effect("charge", world), wait("go"), fail)
    engine = begun(journal, old, new)
    migrate(engine, RUN_ID, {"refund": "give back"}, to=new)
    engine.signal(SUCCESSOR, "go")
    assert engine.resume(SUCCESSOR).status == "failed"
    assert world.undone == world.charged == ["r-1/charge"]


def test_a_run_in_the_middle_of_its_undos_goes_on_with_them(
    journal: SQLiteJournal, world: World
) -> None:
    def broken(*, idempotency_key: str, effect_key: str) -> None:
        raise ConnectionError

    def with_undo(number: str, name: str, undo: Any) -> Workflow:
        hotel = [compensate("leave hotel", world), effect("hotel", world), step(name, int, 1)]
        flight = [lambda ctx: ctx.compensate("leave flight", undo), effect("flight", world), fail]
        return version(number, *hotel, *flight)

    old, new = with_undo("1", "a", broken), with_undo("2", "b", world.refund)
    engine = begun(journal, old, new)
    assert engine.describe(RUN_ID).error == ("ConnectionError", "", "leave flight")
    error = refused(engine, {"leave flight": None}, to=new)
    assert error.seq == 7
    assert "can't be dropped: the undo has happened" in str(error)
    migrate(engine, RUN_ID, {"a": "b"}, to=new)
    assert engine.resume(SUCCESSOR).status == "failed"
    assert world.undone == ["r-1/flight", "r-1/hotel"]
    assert verify(journal).ok


def test_a_cancellation_that_was_asked_for_reaches_the_successor(journal: SQLiteJournal) -> None:
    old, new = (
        version("1", step("a"), wait("go")),
        version("2", step("b", str.upper, "a"), wait("go")),
    )
    engine = begun(journal, old, new)
    engine.cancel(RUN_ID)
    migrate(engine, RUN_ID, {"a": "b"}, to=new)
    run = engine.resume(SUCCESSOR)
    assert (run.status, run.error and run.error.type) == ("cancelled", "RunCancelledError")


def test_a_patch_that_the_run_did_not_know_stays_untaken_unless_it_is_named(
    journal: SQLiteJournal,
) -> None:
    @workflow(name="agent")
    def before(ctx: Context, _: Any) -> Any:
        ctx.step("a", int)
        return [ctx.wait_signal("go")]

    @workflow(version="2", name="agent")
    def patched(ctx: Context, _: Any) -> Any:
        ctx.step("b", int)
        found = [ctx.wait_signal("go")]
        if ctx.patched("thank"):
            found.append(ctx.step("thank", str.upper, "thanks"))
        return found

    engine = begun(journal, before, patched)
    engine.start(before, run_id="r-2")
    engine.resume("r-2")
    migrate(engine, RUN_ID, {"a": "b"}, to=patched)
    migrate(engine, "r-2", {"a": "b"}, to=patched, patches=["thank"], successor_id="r-3")
    for run_id, result in ((SUCCESSOR, [1]), ("r-3", [1, "THANKS"])):
        engine.signal(run_id, "go", 1)
        assert engine.resume(run_id).result == result
    assert verify(journal).ok


def test_a_decided_patch_goes_along_and_can_be_decided_anew(journal: SQLiteJournal) -> None:
    @workflow(name="agent")
    def before(ctx: Context, _: Any) -> Any:
        ctx.step("a", int)
        return ctx.wait_signal("go"), ctx.wait_signal("end")

    @workflow(name="agent")
    def after(ctx: Context, _: Any) -> Any:
        ctx.step("a", int)
        found = [ctx.wait_signal("go")]
        if ctx.patched("thank"):
            found.append("new")
        ctx.wait_signal("end")
        return found

    @workflow(version="2", name="agent")
    def last(ctx: Context, _: Any) -> Any:
        ctx.step("b", int)
        found = [ctx.wait_signal("go")]
        if ctx.patched("thank"):
            found.append("new")
        ctx.wait_signal("end")
        return found

    for run_id in (RUN_ID, "r-2"):
        Engine(journal, [before], clock=FakeClock()).run(before, run_id=run_id)
        engine = Engine(journal, [after, last], clock=FakeClock())
        engine.signal(run_id, "go", 1)
        engine.resume(run_id)
        (decision,) = (event for event in engine.history(run_id) if event.kind == "patch")
        assert not decision.payload["result"]
    migrate(engine, RUN_ID, {"a": "b"}, to=last)
    migrate(engine, "r-2", {"a": "b"}, to=last, patches=["thank"], successor_id="r-3")
    for run_id, result in ((SUCCESSOR, [1]), ("r-3", [1, "new"])):
        engine.signal(run_id, "end")
        assert engine.resume(run_id).result == result
    assert verify(journal).ok


# ---- what is refused -----------------------------------------------------------------------------


def test_what_the_new_code_does_not_ask_for_is_refused_by_event(journal: SQLiteJournal) -> None:
    old = version("1", step("log"), step("a"), step("b"), wait("go"))
    new = version("2", step("a"), step("c"), wait("go"))
    engine = begun(journal, old, new)
    error = refused(engine, {"log": None}, to=new)
    assert isinstance(error.__cause__, NonDeterminismError)
    assert (error.seq, error.recorded, error.requested) == (4, "step 'b'", "step 'c'")
    assert str(error) == (
        "run r-1, event 4, can't be migrated: the journal has step 'b', the new code asks for "
        "step 'c'. Next: say in the mapping what the call is called now, or None for a step that "
        "is gone."
    )
    error = refused(engine, {"log": None, "b": "c"}, to=new)
    assert "digest" in error.recorded


def test_a_call_that_the_new_code_never_comes_to_is_refused(journal: SQLiteJournal) -> None:
    engine = begun(journal, version("1", step("a"), wait("go")), version("2", step("a")))
    error = refused(engine, {}, to=version("2"))
    assert (error.seq, error.requested) == (3, "the end of the workflow")


def test_new_code_that_raises_is_refused(journal: SQLiteJournal) -> None:
    new = version("2", step("a"), lambda _: {}["key"])
    engine = begun(journal, version("1", step("a"), wait("go")), new)
    error = refused(engine, {"go": None}, to=new)
    assert "the new code raises KeyError: 'key'" in str(error)
    assert isinstance(error.__cause__, KeyError)


@workflow()
def kid(ctx: Context, value: Any) -> Any:
    ctx.wait_signal("go")
    return value


def test_what_has_happened_cannot_be_dropped(journal: SQLiteJournal, world: World) -> None:
    def lost(*, idempotency_key: str) -> None:
        raise ConnectionError

    old = version("1", compensate("charge", world), effect("charge", world), pivot,
                  lambda ctx: ctx.effect("call", lost, retry=RetryPolicy(9, 5.0)))  # fmt: skip
    new = version("2", wait("go"))
    engine = Engine(journal, [old, new], clock=FakeClock(), budget=Budget(max_attempts=1))
    engine.start(old, run_id=RUN_ID)
    Worker(engine).run_until_idle()
    for name, seq, why in (
        ("charge", 3, "the effect has happened"),
        ("pivot", 4, "the run is past its point of no return"),
        ("call", 5, "the effect has happened"),
    ):
        error = refused(engine, {name: None}, to=new)
        assert error.seq == seq
        assert f"can't be dropped: {why}" in str(error)


@pytest.mark.parametrize("mapped", [None, "r-1/other"])
def test_a_child_keeps_its_place_and_its_name(journal: SQLiteJournal, mapped: str | None) -> None:
    old, new = version("1", lambda ctx: ctx.child(kid, 1), wait("go")), version("2", wait("go"))
    engine = begun(journal, old, new, kid)
    engine.signal("r-1/kid", "go")
    engine.resume("r-1/kid")
    engine.resume(RUN_ID)
    error = refused(engine, {"r-1/kid": mapped}, to=new)
    assert error.seq == 2
    assert ("the child has been admitted" if mapped is None else "the id of a run") in str(error)


def test_a_run_with_a_child_on_its_way_waits_for_it_before_it_migrates(
    journal: SQLiteJournal,
) -> None:
    old = version("1", step("a"), lambda ctx: ctx.child(kid, 1))
    new = version("2", step("b", str.upper, "a"), lambda ctx: ctx.child(kid, 1))
    engine = begun(journal, old, new, kid)
    assert "its child r-1/kid hasn't ended" in str(refused(engine, {"a": "b"}, to=new))
    engine.signal("r-1/kid", "go")
    engine.resume("r-1/kid")
    migrate(engine, RUN_ID, {"a": "b"}, to=new)
    assert engine.resume(SUCCESSOR).result == ["A", 1]
    assert verify(journal).ok


def test_a_child_that_somebody_waits_for_keeps_its_id(journal: SQLiteJournal) -> None:
    @workflow(version="2", name="kid")
    def later(ctx: Context, value: Any) -> Any:
        return ctx.wait_signal("go")

    engine = begun(journal, version("1", lambda ctx: ctx.child(kid, 1)), kid, later)
    with pytest.raises(MigrationError, match="run r-1 waits for it under this id"):
        migrate(engine, "r-1/kid", {}, to=later)
    engine.cancel(RUN_ID)
    engine.resume(RUN_ID)


# ---- keys of renamed effects ---------------------------------------------------------------------


def test_a_finished_effect_that_nothing_undoes_may_be_renamed(
    journal: SQLiteJournal, world: World
) -> None:
    old, new = version("1", effect("pay", world), wait("go")), version("2", effect("charge", world))
    engine = begun(journal, old, new)
    migrate(engine, RUN_ID, {"pay": "charge", "go": None}, to=new)
    assert engine.resume(SUCCESSOR).result == ["paid"]
    assert world.charged == ["r-1/pay"]


def test_an_effect_that_may_have_to_be_undone_keeps_its_key(
    journal: SQLiteJournal, world: World
) -> None:
    old = version("1", effect("early", world), compensate("refund", world), effect("pay", world),
                  wait("go"))  # fmt: skip
    new = version("2", effect("early", world), compensate("refund", world), effect("charge", world))
    renamed = version("3", effect("late", world), compensate("refund", world), effect("pay", world))
    engine = begun(journal, old, new, renamed)
    error = refused(engine, {"pay": "charge", "go": None}, to=new)
    assert error.seq == 4
    assert "its key 'r-1/pay' would change, and it may have to be undone" in str(error)
    migrate(engine, RUN_ID, {"early": "late", "go": None}, to=renamed)


def test_past_the_pivot_nothing_is_undone_and_an_effect_may_be_renamed(
    journal: SQLiteJournal, world: World
) -> None:
    old = version("1", compensate("refund", world), effect("pay", world), pivot, wait("go"))
    new = version("2", compensate("refund", world), effect("charge", world), pivot)
    engine = begun(journal, old, new)
    migrate(engine, RUN_ID, {"pay": "charge", "go": None}, to=new)
    assert engine.resume(SUCCESSOR).status == "completed"


def test_an_effect_with_a_key_of_its_own_may_be_renamed(
    journal: SQLiteJournal, world: World
) -> None:
    old = version("1", compensate("refund", world), effect("pay", world, key="order/7"), wait("go"))
    new = version("2", compensate("refund", world), effect("charge", world, key="order/7"), fail)
    engine = begun(journal, old, new)
    migrate(engine, RUN_ID, {"pay": "charge", "go": None}, to=new)
    assert engine.resume(SUCCESSOR).status == "failed"
    assert world.undone == ["order/7"]


def test_a_repeated_effect_that_would_be_numbered_anew_keeps_its_key(
    journal: SQLiteJournal, world: World
) -> None:
    old = version(
        "1", compensate("x", world), effect("pay", world), effect("charge", world), wait("go")
    )
    new = version("2", compensate("x", world), effect("charge", world), effect("charge", world))
    engine = begun(journal, old, new)
    assert "'r-1/pay' would change" in str(refused(engine, {"pay": "charge", "go": None}, to=new))


def test_an_effect_that_is_still_tried_keeps_its_key(journal: SQLiteJournal, world: World) -> None:
    tries = iter([ConnectionError()])

    def flaky(*, idempotency_key: str) -> str:
        for error in tries:
            raise error
        return world.charge(idempotency_key=idempotency_key)

    def charging(number: str, name: str, other: str) -> Workflow:
        policy = RetryPolicy(max_attempts=3, initial_s=60.0)
        return version(
            number, step(other, int, 1), lambda ctx: ctx.effect(name, flaky, retry=policy)
        )

    old, renamed, new = (
        charging("1", "pay", "a"),
        charging("2", "bill", "a"),
        charging("3", "pay", "b"),
    )
    engine = Engine(journal, [old, renamed, new], clock=FakeClock())
    engine.start(old, run_id=RUN_ID)
    Worker(engine).run_until_idle()
    assert engine.describe(RUN_ID).waiting_for == "the next try of 'pay' until 60"
    error = refused(engine, {"pay": "bill"}, to=renamed)
    assert "a try under the old one may have had its effect" in str(error)
    migrate(engine, RUN_ID, {"a": "b"}, to=new)
    assert engine.resume(SUCCESSOR).result == [1, "paid"]
    assert world.charged == ["r-1/pay"]
    assert verify(journal).ok


def test_an_effect_in_its_crash_window_keeps_its_key(journal: SQLiteJournal, world: World) -> None:
    old = version("1", step("a"), effect("charge", world))
    new = version("2", step("b", str.upper, "a"), effect("charge", world))
    renamed = version("3", step("a"), effect("bill", world))
    engine = crashed(journal, old, new, renamed, at="charge")
    error = refused(engine, {"charge": "bill"}, to=renamed)
    assert error.requested == "effect 'bill'"
    assert "may have happened under its old name" in str(error)
    migrate(engine, RUN_ID, {"a": "b"}, to=new)
    assert engine.resume(SUCCESSOR).status == "completed"
    assert world.charged == ["r-1/charge", "r-1/charge"]


# ---- wrong use -----------------------------------------------------------------------------------


def test_a_run_that_is_over_or_unknown_is_refused(journal: SQLiteJournal) -> None:
    old, new = version("1", step("a")), version("2", step("a"))
    engine = begun(journal, old, new)
    assert "it is completed" in str(refused(engine, {}, to=new))
    with pytest.raises(UnknownRunError):
        migrate(engine, "nobody", {})
    prune_at(journal, journal.find(RUN_ID), 1.0)
    with pytest.raises(UnknownRunError):
        migrate(engine, RUN_ID, {}, to=new)


def test_a_migrated_run_is_refused_with_its_successor_s_id(journal: SQLiteJournal) -> None:
    old, new = version("1", wait("go")), version("2", wait("go"))
    engine = begun(journal, old, new)
    migrate(engine, RUN_ID, {}, to=new)
    assert "Next: see run r-1-migrated." in str(refused(engine, {}, to=new))


def test_the_successor_s_id_must_be_free_and_a_name(journal: SQLiteJournal) -> None:
    old, new = version("1", wait("go")), version("2", wait("go"))
    engine = begun(journal, old, new)
    engine.start(old, run_id="taken")
    for run_id in (RUN_ID, "taken"):
        with pytest.raises(RunIdConflictError, match="choose another run id"):
            migrate(engine, RUN_ID, {}, to=new, successor_id=run_id)
    for wrong in ({"mapping": {}, "successor_id": "a\nb"}, {"mapping": {"go": "a\nb"}}):
        with pytest.raises(InvalidNameError):
            migrate(engine, RUN_ID, to=new, **wrong)  # type: ignore[arg-type]
    assert engine.describe(RUN_ID).status == "suspended"


def test_code_that_the_engine_does_not_have_is_refused(journal: SQLiteJournal) -> None:
    old = version("1", wait("go"))
    engine = begun(journal, old)
    with pytest.raises(UnknownWorkflowError):
        migrate(engine, RUN_ID, {}, to=version("2", wait("go")))


# ---- others at the same time, and deaths ---------------------------------------------------------


def test_a_worker_in_the_middle_of_a_step_is_fenced_out(
    journal: SQLiteJournal, world: World
) -> None:
    new = version("2", step("b", str.upper, "a"), effect("charge", world))
    other = Engine(journal, [new], clock=FakeClock())

    def slow(*, idempotency_key: str) -> str:
        migrate(other, RUN_ID, {"a": "b"}, to=new)
        return world.charge(idempotency_key=idempotency_key)

    old = version("1", step("a"), lambda ctx: ctx.effect("charge", slow))
    with pytest.raises(LeaseLostError):
        begun(journal, old)
    assert other.resume(SUCCESSOR).result == ["A", "paid"]
    assert world.charged == ["r-1/charge", "r-1/charge"]
    assert verify(journal).ok


class Meddled(SQLiteJournal):
    """Does something else right before, or right after, the run is claimed; once."""

    before: Callable[[], Any] | None = None
    after: Callable[[], Any] | None = None

    def replace(self, row: RunRow, changed: RunRow) -> bool:
        meddle, self.before = self.before, None
        _ = meddle and meddle()
        found = super().replace(row, changed)
        meddle, self.after = self.after, None
        _ = meddle and meddle()
        return found


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("what", ["signal", "attempt", "end"])
def test_what_comes_in_between_is_taken_along_or_refuses(
    journal_path: Path, place: str, what: str
) -> None:
    old = version("1", step("a"), wait("go"))
    new = version("2", step("b", str.upper, "a"), wait("go"))
    with Meddled(journal_path) as journal, SQLiteJournal(journal_path) as second:
        engine, other = begun(journal, old, new), Engine(second, [old, new], clock=FakeClock())

        def meddle() -> None:
            if what != "attempt":
                other.signal(RUN_ID, "go", 7)
            if what != "signal":
                other.resume(RUN_ID)

        setattr(journal, place, meddle)
        if what == "end":
            with pytest.raises(MigrationError, match="it is completed"):
                migrate(engine, RUN_ID, {"a": "b"}, to=new)
            assert engine.describe(RUN_ID).result == ["A", "7"]
        else:
            migrate(engine, RUN_ID, {"a": "b"}, to=new)
            engine.signal(SUCCESSOR, "go", 8)
            result = engine.resume(SUCCESSOR).result
            assert result == ["A", "7" if what == "signal" else "8"]
        assert verify(journal).ok


class Busy(SQLiteJournal):
    """The journal of a worker that commits a step at any moment, as long as it holds the run."""

    holds: RunRow | None = None
    committed = 0

    def replace(self, row: RunRow, changed: RunRow) -> bool:
        if self.holds is not None:
            with suppress(LeaseLostError):
                self.append(self.holds, self.events(self.holds)[-1][1:])
                self.committed += 1
                assert self.committed < 5
        return super().replace(row, changed)


def test_a_worker_that_goes_on_all_the_time_is_fenced_out_first(journal_path: Path) -> None:
    endless = [lambda ctx: ctx.step("a", int)] * 9
    renamed = [lambda ctx: ctx.step("b", int)] * 9
    old, new = version("1", *endless), version("2", *renamed)
    with Busy(journal_path) as journal:
        probe = CrashAt("a", "after", occurrence=3)
        with pytest.raises(InjectedCrash):
            begun(journal, old, probe=probe)
        journal.holds = journal.find(RUN_ID)
        engine = Engine(journal, [old, new], clock=FakeClock())
        migrate(engine, RUN_ID, {"a": "b"}, to=new)
        journal.holds = None
        assert journal.committed == 1
        assert len(engine.resume(SUCCESSOR).result) == 9
        assert verify(journal).ok


@pytest.mark.parametrize("place", ["before", "after"])
def test_an_id_that_is_taken_in_between_refuses_and_leaves_both_runs(
    journal_path: Path, place: str
) -> None:
    old, new = version("1", wait("go")), version("2", wait("go"))
    with Meddled(journal_path) as journal:
        engine = begun(journal, old, new)
        setattr(journal, place, lambda: engine.start(old, "other", run_id=SUCCESSOR))
        with pytest.raises(RunIdConflictError):
            migrate(engine, RUN_ID, {}, to=new)
        assert engine.describe(RUN_ID).status == "suspended"
        assert engine.describe(SUCCESSOR).input == "other"
        engine.signal(RUN_ID, "go", 1)
        assert engine.resume(RUN_ID).result == ["1"]
        assert verify(journal).ok


def test_a_death_at_any_write_leaves_the_old_run_or_the_new(journal_path: Path) -> None:
    old = version("1", step("a"), wait("go"))
    new = version("2", step("b", str.upper, "a"), wait("go"))
    with SQLiteJournal(journal_path) as journal:
        begun(journal, old, new)
    deaths, stood = 0, set()
    while True:
        with DyingJournal(journal_path, after=deaths) as journal:
            try:
                migrate(Engine(journal, [old, new], clock=FakeClock()), RUN_ID, {"a": "b"}, to=new)
            except JournalDied:
                deaths += 1
            else:
                break
        with SQLiteJournal(journal_path) as journal:
            assert verify(journal).ok
            here = [row.run_id for row in journal.rows() if row.status == "suspended"]
            there = [row.run_id for row in journal.rows() if row.status == "pending"]
            stood.add((*here, *there))
            if there:
                break
    assert stood == {(RUN_ID,), (SUCCESSOR,)}
    assert deaths > 5
    with SQLiteJournal(journal_path) as journal:
        engine = Engine(journal, [old, new], clock=FakeClock())
        engine.signal(SUCCESSOR, "go", 1)
        assert engine.resume(SUCCESSOR).result == ["A", "1"]


# ---- any workflow, migrated anywhere -------------------------------------------------------------

plans: dict[str, list[Call]] = {}  # of two workflows whose source is read once


@workflow(version="1", name="planned")
def planned(ctx: Context, _: Any) -> list[Any]:
    return [call(ctx) for call in plans["1"]]


@workflow(version="2", name="planned")
def replanned(ctx: Context, _: Any) -> list[Any]:
    return [call(ctx) for call in plans["2"]]


PLACES = ("before", "window", "after")
KINDS = st.lists(st.sampled_from(["step", "effect", "wait", "nap", "now"]), min_size=1, max_size=7)


@given(KINDS, st.data())
def test_a_run_that_is_migrated_anywhere_comes_to_the_crash_free_result(
    kinds: list[str], data: Any
) -> None:
    world, bodies = World(), [Counted() for _ in kinds]
    renamed = [kind in ("step", "wait") and data.draw(st.booleans()) for kind in kinds]
    makers = {
        "step": lambda at, name: step(name, bodies[at], at),
        "effect": lambda at, name: effect(name, world),
        "wait": lambda at, name: wait(name, 5.0),
        "nap": lambda at, name: nap,
        "now": lambda at, name: lambda ctx: ctx.now(),
    }
    names = [f"{kind} {at}" for at, kind in enumerate(kinds)]
    others = [f"new {name}" if new else name for name, new in zip(names, renamed, strict=True)]
    for of, called in (("1", names), ("2", others)):
        plans[of] = [makers[kind](at, called[at]) for at, kind in enumerate(kinds)]
    journal, clock = MemoryJournal(), FakeClock()
    engine = Engine(journal, [planned, replanned], clock=clock)
    engine.start(planned, run_id=RUN_ID)
    for _ in range(data.draw(st.integers(0, len(kinds)), "attempts")):
        engine.resume(RUN_ID)
        clock.advance(10.0)
    if engine.describe(RUN_ID).status != "completed":
        crash = data.draw(st.none() | st.tuples(st.sampled_from(names), st.sampled_from(PLACES)))
        if crash:
            again = CrashAt(*crash)
            with suppress(InjectedCrash):
                Engine(journal, [planned], clock=clock, probe=again).resume(RUN_ID)
            crash = crash if again.fired else None
        _migrated_to_its_end(engine, dict(zip(names, others, strict=True)))
        twice = crash[0] if crash and crash[1] == "window" else None
        for at, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            expected = 1 + (name == twice)
            charged = world.charged.count(f"r-1/{name}")
            assert len(bodies[at].calls) == expected * (kind == "step")
            assert charged == expected * (kind == "effect")


def _migrated_to_its_end(engine: Engine, mapping: dict[str, str | None]) -> None:
    if engine.describe(RUN_ID).status == "completed":  # in the attempt that was to crash
        return
    migrate(engine, RUN_ID, mapping, to=replanned)
    assert verify(engine.journal).ok
    while engine.resume(SUCCESSOR).status == "suspended":
        engine.clock.sleep(10.0)
    assert engine.describe(SUCCESSOR).status == "completed"
    assert verify(engine.journal).ok
