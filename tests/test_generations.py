"""A run's next generation: continued as new, or begun again under an id that has ended.

The id stays, the history is a fresh one; what isn't finished yet goes along.
"""

from __future__ import annotations

from typing import Any

import pytest
from interrupted import by_resume, by_worker, die_everywhere, driven
from support import RUN_ID, Counted, prune_at, scripted

from durable_mini import (
    TIMED_OUT,
    Budget,
    Engine,
    EventKind,
    FakeClock,
    MemoryJournal,
    NonDeterminismError,
    Position,
    RunFailed,
    RunIdConflictError,
    RunStatus,
    SQLiteJournal,
    UnknownRunError,
    workflow,
)
from durable_mini.journal.file import FileJournal
from durable_mini.lab.crashes import InjectedCrash
from durable_mini.lease import Holder

HANDS = pytest.mark.parametrize("work", [by_resume, by_worker])
ENDINGS = ["completed", "failed", "cancelled"]


@pytest.fixture(params=[MemoryJournal, FileJournal, SQLiteJournal])
def either(request: pytest.FixtureRequest, journal_path: Any) -> Any:
    """A journal in memory, then the two in a file."""
    made = MemoryJournal() if request.param is MemoryJournal else request.param(journal_path)
    with made as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000.0)


def kinds(engine: Engine, generation: int | None = None) -> list[str]:
    """The kinds of a generation's events."""
    return [str(event.kind) for event in engine.history(RUN_ID, generation)]


@workflow()
def countdown(ctx, left):
    """A step in each generation, until nothing is left."""
    ctx.step("work", str, left)
    if left:
        ctx.continue_as_new(left - 1)
    return [ctx.generation, left]


# Continuing as new


@HANDS
def test_continue_as_new_goes_on_with_the_carried_input_and_a_fresh_history(either, clock, work):
    engine = Engine(either, [countdown], clock=clock)
    driven(work, countdown, 2)(engine)
    run = engine.describe(RUN_ID)
    assert (run.generation, run.input, run.result) == (3, 0, [3, 0])
    assert (run.status, run.waiting_for, run.error) == ("completed", None, None)
    assert kinds(engine, 1) == kinds(engine, 2) == ["admitted", "step", "continued"]
    assert kinds(engine) == ["admitted", "step", "completed"]
    for generation, value in ((1, 2), (2, 1), (3, 0)):
        history = engine.history(RUN_ID, generation)
        assert history[0].payload["input"] == value
        assert [event.seq for event in history] == [1, 2, 3]
    assert engine.history(RUN_ID, 1)[-1].payload["input"] == 1


def test_continue_as_new_keeps_one_run(either, clock):
    engine = Engine(either, [countdown], clock=clock)
    engine.run(countdown, 3, run_id=RUN_ID)
    assert [run.run_id for run in engine.runs()] == [RUN_ID]
    assert engine.describe(RUN_ID).attempts == 4


@pytest.mark.parametrize("generation", [0, -1, 4, 99])
def test_history_of_a_generation_that_is_none_is_an_error(either, clock, generation):
    engine = Engine(either, [countdown], clock=clock)
    engine.run(countdown, 2, run_id=RUN_ID)
    with pytest.raises(UnknownRunError, match=f"generation {generation}"):
        engine.history(RUN_ID, generation)


def test_continue_as_new_lets_go_of_the_run_in_between(journal, clock):
    """The next generation is anybody's: a holder that dies there leaves no lease behind."""
    engine = Engine(journal, [countdown], clock=clock)
    engine.start(countdown, 1, run_id=RUN_ID)
    engine.drive(journal.row(RUN_ID), Holder("by hand"))
    row = journal.row(RUN_ID)
    assert (row.status, row.generation, row.worker, row.due_at) == ("pending", 2, None, 0.0)
    assert (row.crashes, row.lease_until) == (0, clock.now())


def test_continue_as_new_begins_its_waits_anew(journal, clock):
    """Waits of the old generation mean nothing to the new one."""

    @workflow()
    def agent(ctx, left):
        ctx.sleep(60)
        if left:
            ctx.continue_as_new(left - 1)
        return ctx.now()

    engine = Engine(journal, [agent], clock=clock)
    driven(by_worker, agent, 2)(engine)
    assert engine.describe(RUN_ID).result == 1_180.0


@pytest.mark.parametrize("value", [float("nan"), {1: 1, "1": 2}, object(), "x" * 300_000])
def test_continue_as_new_refuses_an_input_that_cannot_be_kept(journal, clock, value):
    agent = scripted(lambda c: c.continue_as_new(value))
    run = Engine(journal, [agent], clock=clock).run(agent, run_id=RUN_ID)
    assert (run.generation, run.status, run.error.type) == (1, "needs_attention", "PayloadError")


def test_continue_as_new_gives_what_a_replay_will_give(journal, clock):
    seen: list[str] = []

    @workflow()
    def agent(ctx, value):
        seen.append(repr(value))
        if ctx.generation == 1:
            ctx.continue_as_new({1: (2, 3)})
        ctx.wait_signal("end")

    engine = Engine(journal, [agent], clock=clock)
    driven(by_resume, agent)(engine)
    assert seen == ["None", *["{'1': [2, 3]}"] * 2]


def test_continue_as_new_that_is_swallowed_still_continues(journal, clock):
    @workflow()
    def agent(ctx, left):
        try:
            if left:
                ctx.continue_as_new(left - 1)
        except BaseException:
            return "swallowed"
        return "done"

    run = Engine(journal, [agent], clock=clock).run(agent, 2, run_id=RUN_ID)
    assert (run.generation, run.result) == (3, "done")


def test_continue_as_new_is_compared_with_the_journal(journal, clock):
    """Code that leaves recorded calls unasked for has diverged, and opens no generation."""
    calls = (lambda c: c.step("work", len, ""), lambda c: c.wait_signal("go"))
    agent = scripted(*calls)
    engine = Engine(journal, [agent], clock=clock)
    engine.run(agent, run_id=RUN_ID)
    agent = scripted(lambda c: c.continue_as_new(1))
    engine = Engine(journal, [agent], clock=clock)
    with pytest.raises(NonDeterminismError, match="continued") as caught:
        engine.resume(RUN_ID)
    assert caught.value.seq == 2
    assert engine.describe(RUN_ID).generation == 1


def test_continue_as_new_keeps_the_steps_done_before_it_done(journal, clock):
    body = Counted()

    @workflow()
    def agent(ctx, left):
        ctx.step("work", body, left)
        if left:
            ctx.continue_as_new(left - 1)

    Engine(journal, [agent], clock=clock).run(agent, 3, run_id=RUN_ID)
    assert body.calls == [(3,), (2,), (1,), (0,)]


def test_keys_of_later_generations_have_the_generation_in_them(either, clock):
    keys: list[str] = []

    def post(*, idempotency_key: str) -> None:
        keys.append(idempotency_key)

    @workflow()
    def agent(ctx, left):
        ctx.effect("post", post)
        ctx.effect("post", post)
        if left:
            ctx.continue_as_new(left - 1)

    Engine(either, [agent], clock=clock).run(agent, 2, run_id="a~2/b")
    base = "a%7E2%2Fb"
    assert keys == [f"{base}{of}/post{n}" for of in ("", "~2", "~3") for n in ("", "#2")]
    assert len(set(keys)) == 6


def test_start_of_a_run_that_continued_as_new_is_the_same_run(either, clock):
    """The same id with the same input gives the same run, however far it has come since."""
    engine = Engine(either, [countdown], clock=clock)
    engine.run(countdown, 2, run_id=RUN_ID)
    assert engine.start(countdown, 2, run_id=RUN_ID) == RUN_ID
    assert engine.run(countdown, 2, run_id=RUN_ID).result == [3, 0]
    for other in (0, 1, 3):
        with pytest.raises(RunIdConflictError):
            engine.start(countdown, other, run_id=RUN_ID)


# What goes along


def test_unread_signals_go_along_in_order_and_read_ones_do_not(either, clock):
    @workflow()
    def agent(ctx, left):
        got = [ctx.wait_signal("a", 0), ctx.wait_signal("b", 0)]
        ctx.step("got", str, got)
        if left:
            ctx.continue_as_new(left - 1)
        return [None if one is TIMED_OUT else one for one in got]

    engine = Engine(either, [agent], clock=clock)
    engine.start(agent, 2, run_id=RUN_ID)
    for name, payload in (("a", 1), ("b", 2), ("a", 3), ("c", 4), ("a", 5), ("b", 6)):
        engine.signal(RUN_ID, name, payload, signal_id=f"{name}-{payload}")
        clock.advance(1.0)
    assert engine.resume(RUN_ID).result == [5, None]
    carried = [
        [(e.name, e.payload["result"]) for e in engine.history(RUN_ID, of) if e.kind == "signal"]
        for of in (1, 2, 3)
    ]
    assert carried == [
        [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("a", 5), ("b", 6)],
        [("a", 3), ("c", 4), ("a", 5), ("b", 6)],
        [("c", 4), ("a", 5)],
    ]
    recorded = {e.name: e.recorded_at for e in engine.history(RUN_ID) if e.kind == "signal"}
    assert recorded == {"c": 1_003.0, "a": 1_004.0}  # when they came, not when they were carried


def test_signal_id_counts_once_over_all_generations(either, clock):
    @workflow()
    def agent(ctx, left):
        got = ctx.wait_signal("go", 60)
        if left:
            ctx.continue_as_new(left - 1)
        return got or "nobody came"

    engine = Engine(either, [agent], clock=clock)
    engine.run(agent, 1, run_id=RUN_ID)
    assert engine.signal(RUN_ID, "go", 1, signal_id="s-1") is True
    engine.signal(RUN_ID, "later", 2, signal_id="s-2")
    assert engine.resume(RUN_ID).generation == 2
    for signal_id in ("s-1", "s-2"):
        assert engine.signal(RUN_ID, "go", 3, signal_id=signal_id) is False
    clock.advance(60.0)
    assert engine.resume(RUN_ID).result == "nobody came"


def test_signal_that_came_too_late_goes_along_to_the_next_generation_s_wait(journal, clock):
    @workflow()
    def agent(ctx, generation):
        got = ctx.wait_signal("go", 60)
        if generation < 2:
            ctx.continue_as_new(generation + 1)
        return got

    engine = Engine(journal, [agent], clock=clock)
    engine.run(agent, 1, run_id=RUN_ID)
    clock.advance(61.0)
    engine.signal(RUN_ID, "go", "late")
    assert engine.resume(RUN_ID).result == "late"


def test_spend_and_steps_go_along(either, clock):
    @workflow()
    def agent(ctx, left):
        ctx.step("think", len, "", cost=1.5)
        ctx.effect("post", lambda *, idempotency_key: 1, cost=0.5)
        if left:
            ctx.continue_as_new(left - 1)

    engine = Engine(either, [agent], clock=clock)
    assert engine.run(agent, 2, run_id=RUN_ID).cost == 6.0
    assert engine.describe(RUN_ID).cost == 6.0
    for limits, generation in (
        ({"max_cost": 5.9}, 3),
        ({"max_steps": 3}, 2),
        ({"max_steps": 5}, 3),
    ):
        engine = Engine(either, [agent], clock=clock, budget=Budget(**limits))
        run = engine.run(agent, 2, run_id=f"{limits}")
        assert (run.status, run.error.type) == ("failed", "BudgetExceededError")
        assert run.generation == generation


def test_deadline_counts_from_the_first_admission(either, clock):
    @workflow()
    def agent(ctx, left):
        ctx.sleep(40)
        if left:
            ctx.continue_as_new(left - 1)

    engine = Engine(either, [agent], clock=clock, budget=Budget(max_seconds=100))
    driven(by_worker, agent, 9)(engine)
    run = engine.describe(RUN_ID)
    assert (run.generation, run.status, run.error.type) == (3, "failed", "BudgetExceededError")
    assert clock.now() == 1_100.0


def test_crashes_of_the_old_generation_do_not_count_in_the_new_one(journal, clock):
    @workflow()
    def agent(ctx, generation):
        ctx.step("work", len, "")
        if generation < 2:
            ctx.continue_as_new(generation + 1)

    def probe(position, kind, name):
        if (position, kind) == (Position.BEFORE, "step") and journal.row(RUN_ID).crashes < 3:
            raise InjectedCrash(position, kind, name)

    engine = Engine(journal, [agent], clock=clock, probe=probe, budget=Budget(max_attempts=3))
    engine.start(agent, 1, run_id=RUN_ID)
    for _ in range(3):  # the third attempt gets through, and the new generation dies anew
        with pytest.raises(InjectedCrash):
            engine.resume(RUN_ID)
    assert (journal.row(RUN_ID).generation, journal.row(RUN_ID).crashes) == (2, 1)


# Compensations


def undo(*, idempotency_key: str, effect_key: str) -> None:
    undone.append(effect_key)


undone: list[str] = []


@workflow()
def saga(ctx, pivots):
    if ctx.generation == 1:
        ctx.compensate("charge", undo)
        ctx.effect("charge", lambda *, idempotency_key: 1)
        if pivots:
            ctx.point_of_no_return()
        ctx.continue_as_new(pivots)
    raise RunFailed("at last")


def test_continue_as_new_is_refused_with_something_to_undo(journal, clock):
    undone.clear()
    engine = Engine(journal, [saga], clock=clock)
    run = engine.run(saga, False, run_id=RUN_ID)
    assert (run.generation, run.status, run.error.type) == (1, "needs_attention", "DurableError")
    assert "continue_as_new would forget" in run.error.message
    assert kinds(engine) == ["admitted", "compensate", "effect"]
    assert undone == []
    engine.cancel(RUN_ID)  # nothing is lost: it still knows what to undo
    assert engine.resume(RUN_ID).status is RunStatus.CANCELLED
    assert undone == [f"{RUN_ID}/charge"]


def test_continue_as_new_past_the_pivot_undoes_nothing_any_more(journal, clock):
    undone.clear()
    engine = Engine(journal, [saga], clock=clock)
    run = engine.run(saga, True, run_id=RUN_ID)
    assert (run.generation, run.status, run.error.type) == (2, "failed", "RunFailed")
    assert undone == []


# What arrives in that very moment


def arriving(engine: Engine, monkeypatch: pytest.MonkeyPatch, arrival: Any) -> None:
    """Let something arrive right before the generation is closed, once."""
    journal = type(engine.journal)
    append = journal.append

    def delayed(self, row, entry, **options):
        if entry is not None and entry[0] == "continued":  # a heartbeat has no entry
            monkeypatch.setattr(journal, "append", append)
            arrival()
        return append(self, row, entry, **options)

    monkeypatch.setattr(journal, "append", delayed)


@HANDS
def test_signal_that_arrives_while_the_generation_is_closed_is_not_lost(
    either, clock, monkeypatch, work
):
    @workflow()
    def agent(ctx, generation):
        if generation < 2:
            ctx.continue_as_new(generation + 1)
        return ctx.wait_signal("go")

    engine = Engine(either, [agent], clock=clock)
    engine.start(agent, 1, run_id=RUN_ID)
    arriving(engine, monkeypatch, lambda: engine.signal(RUN_ID, "go", 7, signal_id="s-1"))
    work(engine)
    assert engine.describe(RUN_ID).result == 7
    assert kinds(engine, 1) == ["admitted", "signal", "continued"]
    assert kinds(engine, 2) == ["admitted", "signal", "wait", "received", "completed"]


@HANDS
def test_cancel_that_arrives_while_the_generation_is_closed_is_not_lost(
    either, clock, monkeypatch, work
):
    engine = Engine(either, [countdown], clock=clock)
    engine.start(countdown, 5, run_id=RUN_ID)
    arriving(engine, monkeypatch, lambda: engine.cancel(RUN_ID))
    work(engine)
    run = engine.describe(RUN_ID)
    assert (run.generation, run.status) == (1, "cancelled")


# Beginning again under the same id


def ended_as(ending: str) -> Any:
    """A workflow that ends like this in its first generation, and has a result in the next."""

    @workflow(name="again")
    def agent(ctx, value):
        keys = ctx.effect("post", lambda *, idempotency_key: idempotency_key, cost=1.0)
        if ctx.generation == 1 and ending == "failed":
            raise RunFailed("sold out")
        return [ctx.generation, value, keys]

    return agent


def ended(engine: Engine, agent: Any, ending: str, value: Any = 1) -> None:
    engine.start(agent, value, run_id=RUN_ID)
    if ending == "cancelled":
        engine.cancel(RUN_ID)
    assert engine.resume(RUN_ID).status == ending


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("ending", ENDINGS)
def test_reuse_begins_a_new_generation_of_a_run_that_has_ended(either, clock, ending, pruned):
    agent = ended_as(ending)
    engine = Engine(either, [agent], clock=clock, budget=Budget(max_cost=1.0, max_seconds=60))
    ended(engine, agent, ending)
    clock.advance(100.0)
    if pruned:
        assert prune_at(either, either.row(RUN_ID), clock.now())
    assert engine.start(agent, 2, run_id=RUN_ID, reuse=True) == RUN_ID
    run = engine.describe(RUN_ID)
    assert (run.generation, run.status, run.input, run.attempts) == (2, "pending", 2, 0)
    run = engine.resume(RUN_ID)  # with a budget of its own
    assert run.result == [2, 2, f"{RUN_ID}~2/post"]
    assert (run.cost, run.attempts) == (1.0, 1)
    if pruned:
        with pytest.raises(UnknownRunError):
            engine.history(RUN_ID, 1)
    else:
        assert kinds(engine, 1)[-1] == ending


@pytest.mark.parametrize("ending", ENDINGS)
def test_run_that_has_ended_is_not_begun_again_without_reuse(either, clock, ending):
    agent = ended_as(ending)
    engine = Engine(either, [agent], clock=clock)
    ended(engine, agent, ending)
    assert engine.start(agent, 1, run_id=RUN_ID) == RUN_ID
    assert engine.describe(RUN_ID).status == ending
    with pytest.raises(RunIdConflictError):
        engine.start(agent, 2, run_id=RUN_ID)
    prune_at(either, either.row(RUN_ID), clock.now())
    for value in (1, 2):
        with pytest.raises(RunIdConflictError, match="pruned"):
            engine.start(agent, value, run_id=RUN_ID)


@pytest.mark.parametrize("stands", ["pending", "running", "suspended", "needs_attention"])
def test_reuse_leaves_a_run_alone_that_has_not_ended(either, clock, stands):
    """Asking again with the same input gives that run; with another it is a conflict."""
    agent = scripted(lambda c: 1 / 0 if stands == "needs_attention" else c.wait_signal("go"))
    probe = dies_at_a_wait if stands == "running" else None
    engine = Engine(either, [agent], clock=clock, probe=probe)
    engine.start(agent, 1, run_id=RUN_ID)
    if stands == "running":
        with pytest.raises(InjectedCrash):
            engine.resume(RUN_ID)
    elif stands != "pending":
        engine.resume(RUN_ID)
    row = either.row(RUN_ID)
    assert row.status == stands
    assert engine.start(agent, 1, run_id=RUN_ID, reuse=True) == RUN_ID
    with pytest.raises(RunIdConflictError):
        engine.start(agent, 2, run_id=RUN_ID, reuse=True)
    assert either.row(RUN_ID) == row


def dies_at_a_wait(position: Position, kind: EventKind, name: str) -> None:
    """A probe for a process that dies before its first wait."""
    if kind is EventKind.WAIT:
        raise InjectedCrash(position, kind, name)


def test_reuse_of_an_unknown_id_begins_the_first_generation(either, clock):
    engine = Engine(either, [countdown], clock=clock)
    engine.start(countdown, 0, run_id=RUN_ID, reuse=True)
    assert engine.resume(RUN_ID).result == [1, 0]


def test_reuse_may_take_another_workflow(either, clock):
    agent = ended_as("completed")
    engine = Engine(either, [agent, countdown], clock=clock)
    ended(engine, agent, "completed")
    engine.start(countdown, 0, run_id=RUN_ID, reuse=True)
    assert engine.resume(RUN_ID).result == [2, 0]


def test_reuse_after_continue_as_new_goes_on_counting(either, clock):
    engine = Engine(either, [countdown], clock=clock)
    engine.run(countdown, 2, run_id=RUN_ID)
    engine.start(countdown, 1, run_id=RUN_ID, reuse=True)
    assert engine.describe(RUN_ID).generation == 4
    assert engine.resume(RUN_ID).result == [5, 0]
    assert engine.start(countdown, 1, run_id=RUN_ID) == RUN_ID  # as it was begun the last time


def test_reuse_knows_no_signal_that_the_ended_run_left_unread(either, clock):
    agent = scripted(lambda c: c.wait_signal("go", 0) or "nothing there")
    engine = Engine(either, [agent], clock=clock)
    engine.start(agent, 1, run_id=RUN_ID)
    engine.signal(RUN_ID, "other", 1, signal_id="s-0")
    engine.signal(RUN_ID, "go", 1, signal_id="s-1")
    engine.signal(RUN_ID, "go", 2, signal_id="s-2")
    assert engine.resume(RUN_ID).result == [1]
    engine.start(agent, 1, run_id=RUN_ID, reuse=True)
    assert engine.signal(RUN_ID, "go", 3, signal_id="s-2") is False
    assert engine.resume(RUN_ID).result == ["nothing there"]


def test_worker_of_the_ended_run_cannot_write_into_its_next_generation(journal, clock):
    """The new generation has a token of its own: a zombie holds an older one."""
    engine = Engine(journal, [countdown], clock=clock)
    engine.run(countdown, 0, run_id=RUN_ID)
    token = journal.row(RUN_ID).token
    engine.start(countdown, 0, run_id=RUN_ID, reuse=True)
    assert journal.row(RUN_ID).token > token


def test_reuse_of_two_who_ask_at_once_begins_one_generation(journal, clock, monkeypatch):
    engine = Engine(journal, [countdown], clock=clock)
    engine.run(countdown, 0, run_id=RUN_ID)
    admit = SQLiteJournal.admit

    def overtaken(self, *args):
        monkeypatch.setattr(SQLiteJournal, "admit", admit)
        engine.start(countdown, 0, run_id=RUN_ID, reuse=True)
        return admit(self, *args)

    monkeypatch.setattr(SQLiteJournal, "admit", overtaken)
    assert engine.start(countdown, 0, run_id=RUN_ID, reuse=True) == RUN_ID
    assert engine.describe(RUN_ID).generation == 2


# A death anywhere


@HANDS
@pytest.mark.slow
def test_generations_survive_a_death_anywhere(tmp_path, work):
    """There is one next generation, whatever dies around the moment in which it begins."""
    done: list[Any] = []

    def post(generation, *, idempotency_key):
        done.append((generation, idempotency_key))

    @workflow()
    def agent(ctx, generation):
        ctx.effect("post", post, generation, cost=1.0)
        ctx.wait_signal("go")
        if generation < 3:
            ctx.continue_as_new(generation + 1)
        return ctx.wait_signal("never silent", 60) is TIMED_OUT

    def check() -> None:
        assert set(done) == {
            (1, f"{RUN_ID}/post"),
            (2, f"{RUN_ID}~2/post"),
            (3, f"{RUN_ID}~3/post"),
        }
        assert len(done) <= 4

    options: Any = {"begin": done.clear, "check": check}
    assert die_everywhere(tmp_path, [agent], driven(work, agent, 1), **options) > 50


def test_reuse_survives_a_death_anywhere(tmp_path):
    agent = ended_as("failed")

    def drive(engine: Engine) -> None:
        engine.start(agent, 1, run_id=RUN_ID)
        if engine.describe(RUN_ID).generation == 1:
            engine.resume(RUN_ID)
            engine.start(agent, 1, run_id=RUN_ID, reuse=True)
        engine.resume(RUN_ID)

    assert die_everywhere(tmp_path, [agent], drive) > 15
