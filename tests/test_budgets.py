"""What a run may use up: seconds, steps, cost, attempts that crash, and events.

A verdict is recorded where it was reached, and never reached again.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
from interrupted import LEASE_S, by_resume, by_worker, die_everywhere, driven, wait_until
from support import RUN_ID, Counted, resume, run_live, scripted, texts

from durable_mini import (
    Budget,
    BudgetExceededError,
    Engine,
    FakeClock,
    MemoryJournal,
    Position,
    RetryPolicy,
    RunStatus,
    SQLiteJournal,
    Worker,
    workflow,
)
from durable_mini.journal.file import FileJournal
from durable_mini.lab.agent import agent_in
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.lab.ledger import Ledger

HANDS = pytest.mark.parametrize("work", [by_resume, by_worker])


@pytest.fixture(params=[MemoryJournal, FileJournal, SQLiteJournal])
def either(request: pytest.FixtureRequest, journal_path: Any) -> Any:
    """A journal in memory, then the two in a file."""
    made = MemoryJournal() if request.param is MemoryJournal else request.param(journal_path)
    with made as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000.0)


def kinds(engine: Engine) -> list[str]:
    """The kinds of a run's events after its admission."""
    return [str(event.kind) for event in engine.history(RUN_ID)][1:]


def post(*, idempotency_key: str) -> str:
    return idempotency_key


# Budgets that make sense


@pytest.mark.parametrize("limit", [-1, -0.001, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["max_seconds", "max_steps", "max_cost"])
def test_budget_refuses_a_limit_that_is_none(name, limit):
    with pytest.raises(ValueError, match=name):
        Budget(**{name: limit})


@pytest.mark.parametrize("attempts", [0, -1])
def test_budget_refuses_a_run_without_an_attempt(attempts):
    with pytest.raises(ValueError, match="max_attempts"):
        Budget(max_attempts=attempts)


def test_budget_is_without_limit_by_default(journal, clock):
    agent = scripted(*(lambda c: c.step("work", len, "", cost=1e9) for _ in range(3)))
    assert run_live(journal, agent, clock=clock).status is RunStatus.COMPLETED


# At, below and above


@pytest.mark.parametrize(("limit", "steps"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 4)])
def test_steps_and_effects_up_to_the_limit_are_executed(either, clock, limit, steps):
    body = Counted(result=1)
    agent = scripted(
        lambda c: c.step("a", body),
        lambda c: [c.now(), c.random(), c.uuid()][:0],  # these are no steps
        lambda c: c.effect("b", body),
        lambda c: c.gather({"c": (body,), "d": (body,)}),
    )
    run = run_live(either, agent, clock=clock, budget=Budget(max_steps=limit))
    executed = 2 if steps == 3 else steps  # of a gather all or none
    assert (len(body.calls), run.status) == (executed, "completed" if steps == 4 else "failed")


@pytest.mark.parametrize(
    ("limit", "executed"), [(0, 0), (1.9, 0), (2, 1), (3.9, 1), (4, 2), (5.9, 2), (6, 3), (7, 3)]
)
def test_steps_of_known_cost_are_not_begun_above_the_limit(either, clock, limit, executed):
    body = Counted(result=1)
    agent = scripted(*(lambda c: c.step("think", body, cost=2) for _ in range(3)))
    run = run_live(either, agent, clock=clock, budget=Budget(max_cost=limit))
    assert (len(body.calls), run.cost) == (executed, 2.0 * executed)
    assert run.status == ("completed" if executed == 3 else "failed")


@pytest.mark.parametrize(
    ("limit", "executed"), [(0, 1), (1.9, 1), (2, 2), (3.9, 2), (4, 3), (5.9, 3), (6, 3)]
)
def test_steps_of_computed_cost_may_exceed_the_limit_once(either, clock, limit, executed):
    """What a step costs is known when it is done: the next one isn't begun."""
    body = Counted(result={"tokens": 2})
    agent = scripted(
        *(lambda c: c.step("think", body, cost=lambda result: result["tokens"]) for _ in range(3))
    )
    run = run_live(either, agent, clock=clock, budget=Budget(max_cost=limit))
    assert (len(body.calls), run.cost) == (executed, 2.0 * executed)
    assert run.status == ("completed" if executed == 3 else "failed")


def test_cost_that_exceeds_the_limit_with_the_last_step_leaves_the_run_completed(journal, clock):
    agent = scripted(lambda c: c.step("think", len, "", cost=lambda _: 99.0))
    run = run_live(journal, agent, clock=clock, budget=Budget(max_cost=1))
    assert (run.status, run.cost) == ("completed", 99.0)


@pytest.mark.parametrize("call", [lambda c: c.now(), lambda c: c.sleep(0)])
def test_exceeded_cost_stops_whatever_call_comes_next(journal, clock, call):
    agent = scripted(lambda c: c.step("think", len, "", cost=lambda _: 99.0), call)
    run = run_live(journal, agent, clock=clock, budget=Budget(max_cost=1))
    assert (run.status, run.error.type) == ("failed", "BudgetExceededError")


def test_steps_that_cost_nothing_go_on_at_the_limit(journal, clock):
    agent = scripted(lambda c: c.step("think", len, "", cost=2), lambda c: c.step("look", len, ""))
    run = run_live(journal, agent, clock=clock, budget=Budget(max_cost=2, max_steps=2))
    assert run.status is RunStatus.COMPLETED


@pytest.mark.parametrize(("took_s", "ends"), [(9.9, "completed"), (10.0, "failed"), (11, "failed")])
def test_seconds_are_a_deadline_from_admission(either, clock, took_s, ends):
    agent = scripted(
        lambda c: c.step("slow", clock.advance, took_s), lambda c: c.step("next", len, "")
    )
    engine = Engine(either, [agent], clock=clock, budget=Budget(max_seconds=60))
    engine.start(agent, run_id=RUN_ID)
    clock.advance(50.0)  # nobody had time for it, which counts
    run = engine.resume(RUN_ID)
    assert run.status == ends
    assert kinds(engine)[0] == "step"  # the step that it was in is kept


def test_error_of_a_spent_budget_says_what_was_asked_for(journal, clock):
    agent = scripted(*(lambda c: c.step("think", len, "", cost=2) for _ in range(3)))
    engine = Engine(journal, [agent], clock=clock, budget=Budget(max_cost=5))
    run = engine.run(agent, run_id=RUN_ID)
    assert run.error.type == "BudgetExceededError"
    assert "max_cost is 5, this call would make it 6" in run.error.message
    stop = engine.history(RUN_ID)[3]
    assert (stop.kind, stop.name) == ("stop", "budget")
    assert stop.payload == {"limit": "max_cost", "spent": 6.0, "allowed": 5}
    assert "event 4" in run.error.message


def test_spent_budget_can_be_seen_and_not_be_outlived(journal, clock):
    seen: list[Any] = []
    body = Counted()

    @workflow()
    def agent(ctx, _):
        try:
            ctx.step("dear", body, 1, cost=9)
        except BudgetExceededError as error:
            seen.append((error.limit, error.spent, error.allowed, error.seq))
        ctx.step("more", body, 2)

    engine = Engine(journal, [agent], clock=clock, budget=Budget(max_cost=5))
    assert engine.run(agent, run_id=RUN_ID).status is RunStatus.FAILED
    assert (seen, body.calls) == ([("max_cost", 9.0, 5, 2)], [])
    assert kinds(engine) == ["stop", "failed"]


# What is counted


def test_retried_and_failed_steps_count_once_and_cost_what_succeeded(journal, clock):
    tries = iter([ConnectionError(), ConnectionError(), None])

    def flaky() -> None:
        if (error := next(tries)) is not None:
            raise error

    @workflow()
    def agent(ctx, _):
        ctx.step("flaky", flaky, retry=RetryPolicy(), cost=2)
        return ctx.step("next", len, "", cost=1)

    run = run_live(journal, agent, clock=clock, budget=Budget(max_steps=2, max_cost=3))
    assert (run.status, run.cost) == ("completed", 3.0)


@pytest.mark.parametrize("position", list(Position))
def test_spend_of_a_crash_window_is_not_counted_and_recorded_spend_once(either, clock, position):
    """A deliberate blind spot: what the journal doesn't know, no budget knows."""
    body = Counted(result=1)
    agent = scripted(
        lambda c: c.step("think", body, cost=2), lambda c: c.step("check", body, cost=1)
    )
    budget = Budget(max_cost=3, max_steps=2)
    engine = Engine(either, [agent], clock=clock, budget=budget, probe=CrashAt("think", position))
    with pytest.raises(InjectedCrash):
        engine.run(agent, run_id=RUN_ID)
    assert engine.describe(RUN_ID).cost == (2.0 if position is Position.AFTER else 0.0)
    run = engine.resume(RUN_ID)
    assert (run.status, run.cost) == ("completed", 3.0)
    assert len(body.calls) == (3 if position is Position.WINDOW else 2)


def test_spend_is_not_counted_again_on_recovery(journal, clock):
    """However often it is replayed: the reference agent costs eight, and may cost no more."""
    agent = agent_in(Ledger())
    engine = Engine(journal, [agent], clock=clock, budget=Budget(max_cost=8.0, max_steps=7))
    engine.start(agent, "o-1", run_id=RUN_ID)
    for name in ("plan", "research", "draft", "charge", "compose", "send_email", "update_crm"):
        probe = CrashAt(name, "after")
        options: Any = {"clock": clock, "budget": Budget(max_cost=8.0, max_steps=7)}
        with pytest.raises(InjectedCrash):
            Engine(journal, [agent], probe=probe, **options).resume(RUN_ID)
    run = engine.resume(RUN_ID)
    assert (run.status, run.cost, run.attempts) == ("completed", 8.0, 8)


def test_budget_counts_what_is_replayed_against_what_is_asked_for_now(journal, clock):
    """A smaller budget stops the run at its next live call; what is recorded stays."""
    agent = scripted(
        *(lambda c: c.step("think", len, "", cost=2) for _ in range(3)),
        lambda c: c.wait_signal("go"),
        lambda c: c.now(),
    )
    engine = Engine(journal, [agent], clock=clock)
    engine.run(agent, run_id=RUN_ID)
    engine.signal(RUN_ID, "go")
    run = resume(journal, agent, clock=clock, budget=Budget(max_cost=5))
    assert (run.status, run.cost) == ("failed", 6.0)
    assert kinds(engine) == [*["step"] * 3, "wait", "signal", "stop", "failed"]


# The verdict


def test_verdict_of_a_budget_stays_when_the_clock_is_set_back(journal, clock):
    agent = scripted(
        lambda c: c.compensate("undo", undo, "a"),
        lambda c: c.step("slow", clock.advance, 60),
        lambda c: c.step("next", len, ""),
    )
    undone.clear()
    options: Any = {"clock": clock, "budget": Budget(max_seconds=60)}

    def dies(position: Position, kind: str, name: str) -> None:
        if (position, kind) == (Position.AFTER, "stop"):
            raise InjectedCrash(position, kind, name)

    engine = Engine(journal, [agent], probe=dies, **options)
    with pytest.raises(InjectedCrash):
        engine.run(agent, run_id=RUN_ID)
    clock.advance(-60.0)
    run = resume(journal, agent, clock=clock)  # nor does a larger budget change it
    assert (run.status, run.error.type, undone) == ("failed", "BudgetExceededError", ["a"])
    assert kinds(engine) == ["compensate", "step", "stop", "undo", "failed"]


def test_deadline_that_was_not_judged_is_judged_by_the_clock_as_it_is(journal, clock):
    agent = scripted(lambda c: c.sleep(30), lambda c: c.step("next", len, ""))
    engine = Engine(journal, [agent], clock=clock, budget=Budget(max_seconds=60))
    engine.run(agent, run_id=RUN_ID)
    clock.advance(90.0)
    clock.advance(-60.0)  # nobody looked in between
    assert engine.resume(RUN_ID).status is RunStatus.COMPLETED


@HANDS
@pytest.mark.parametrize(
    "wait",
    [
        lambda c: c.wait_signal("never"),
        lambda c: c.wait_signal("never", 3_600),
        lambda c: c.sleep(3_600),
    ],
    ids=["signal", "signal with time-out", "sleep"],
)
def test_waiting_run_is_woken_at_its_deadline(either, clock, wait, work):
    agent = scripted(wait)
    engine = Engine(either, [agent], clock=clock, budget=Budget(max_seconds=60))
    engine.start(agent, run_id=RUN_ID)
    work(engine)
    assert either.row(RUN_ID).due_at == 1_060.0
    clock.advance(59.0)
    by_worker(engine)
    assert engine.describe(RUN_ID).status is RunStatus.SUSPENDED
    clock.advance(1.0)
    by_worker(engine)
    run = engine.describe(RUN_ID)
    assert (run.status, run.error.type) == ("failed", "BudgetExceededError")


def test_wait_that_ends_before_the_deadline_is_woken_then(journal, clock):
    agent = scripted(lambda c: c.wait_signal("never", 30) or "nobody came")
    engine = Engine(journal, [agent], clock=clock, budget=Budget(max_seconds=60))
    engine.run(agent, run_id=RUN_ID)
    assert journal.row(RUN_ID).due_at == 1_030.0
    clock.advance(30.0)
    assert engine.resume(RUN_ID).result == ["nobody came"]


@HANDS
def test_run_that_waits_for_a_child_is_woken_at_its_deadline(journal, clock, work):
    @workflow()
    def endless(ctx, _):
        ctx.wait_signal("never")

    agent = scripted(lambda c: c.child(endless))
    engine = Engine(journal, [endless, agent], clock=clock, budget=Budget(max_seconds=60))
    engine.start(agent, run_id=RUN_ID)
    work(engine)
    clock.advance(60.0)
    by_worker(engine)
    assert {str(run.status) for run in engine.runs()} == {"failed"}


# Compensations and the pivot


undone: list[str] = []


def undo(name: str, *, idempotency_key: str, effect_key: str) -> None:
    undone.append(name)


SPENT: dict[str, tuple[Any, Budget]] = {
    "max_steps": (lambda c: c.step("next", len, ""), Budget(max_steps=2)),
    "max_cost": (lambda c: c.step("next", len, "", cost=9), Budget(max_cost=5)),
    "max_seconds": (lambda c: c.sleep(601), Budget(max_seconds=600)),
}


def sold(last: Any, *, pivots: bool = False) -> Any:
    """Two effects with their undos, perhaps a pivot, and a call that no budget allows."""
    return scripted(
        lambda c: c.compensate("first", undo, "first"),
        lambda c: c.effect("first", post),
        lambda c: c.compensate("second", undo, "second"),
        lambda c: c.effect("second", post),
        lambda c: c.point_of_no_return() if pivots else None,
        last,
    )


@HANDS
@pytest.mark.parametrize("limit", SPENT)
def test_spent_budget_compensates_and_the_undos_are_exempt_from_it(either, clock, limit, work):
    undone.clear()
    last, budget = SPENT[limit]
    agent = sold(last)
    engine = Engine(either, [agent], clock=clock, budget=budget)
    driven(work, agent)(engine)
    run = engine.describe(RUN_ID)
    assert (run.status, run.error.type) == ("failed", "BudgetExceededError")
    assert undone == ["second", "first"]
    assert kinds(engine)[-4:] == ["stop", "undo", "undo", "failed"]


@HANDS
@pytest.mark.parametrize("limit", SPENT)
def test_spent_budget_after_the_pivot_needs_attention_and_a_larger_budget(
    either, clock, limit, work
):
    undone.clear()
    last, budget = SPENT[limit]
    agent = sold(last, pivots=True)
    engine = Engine(either, [agent], clock=clock, budget=budget)
    engine.start(agent, run_id=RUN_ID)
    work(engine)
    wait_until(engine, 1_601.0)
    work(engine)
    run = engine.describe(RUN_ID)
    assert (run.status, run.error.type) == ("needs_attention", "BudgetExceededError")
    assert undone == []
    assert "stop" not in kinds(engine)  # nothing is recorded that a larger budget couldn't change
    by_worker(engine)
    assert engine.describe(RUN_ID).attempts == run.attempts
    assert resume(either, agent, clock=clock).status is RunStatus.COMPLETED
    assert undone == []


# Attempts that crash


class Deadly:
    """A step that kills its process so often, and then works."""

    def __init__(self, deaths: int) -> None:
        self.tried, self._deaths = 0, deaths

    def __call__(self) -> str:
        self.tried += 1
        if self.tried <= self._deaths:
            raise InjectedCrash(Position.BEFORE, "step", "deadly")
        return "survived"


def work_through_crashes(engine: Engine) -> None:
    """Let workers drive, each dying with what it drives, until nothing is to be done."""
    for _ in range(20):
        try:
            return by_worker(engine)
        except InjectedCrash:
            engine.clock.advance(LEASE_S)
    raise AssertionError("workers go on dying")


def test_run_that_kills_every_worker_needs_attention(either, clock):
    body = Deadly(deaths=99)
    agent = scripted(lambda c: c.step("deadly", body))
    engine = Engine(either, [agent], clock=clock, budget=Budget(max_attempts=3))
    engine.start(agent, run_id=RUN_ID)
    work_through_crashes(engine)
    run = engine.describe(RUN_ID)
    assert (run.status, run.attempts, body.tried) == ("needs_attention", 3, 3)
    assert run.error == ("CrashLoop", "3 attempts in a row crashed and recorded nothing", None)
    clock.advance(3_600.0)
    Worker(engine).run_until_idle()
    assert (engine.describe(RUN_ID).attempts, body.tried) == (3, 3)  # workers skip it
    for tried in (4, 5):  # somebody may try again, once each time
        with pytest.raises(InjectedCrash):
            engine.resume(RUN_ID)
        assert body.tried == tried
        clock.advance(LEASE_S)
        work_through_crashes(engine)
        assert engine.describe(RUN_ID).status is RunStatus.NEEDS_ATTENTION
    assert body.tried == 5


def test_run_in_a_crash_loop_does_not_keep_workers_from_other_runs(journal, clock):
    body = Deadly(deaths=99)

    @workflow()
    def agent(ctx, deadly):
        return ctx.step("work", body if deadly else str)

    engine = Engine(journal, [agent], clock=clock, budget=Budget(max_attempts=2))
    engine.start(agent, True, run_id="bad")
    engine.start(agent, False, run_id="good")
    work_through_crashes(engine)
    assert [run.status for run in engine.runs()] == ["needs_attention", "completed"]


@pytest.mark.parametrize(("deaths", "ends"), [(2, "completed"), (3, "needs_attention")])
def test_run_survives_one_crash_less_than_its_limit(either, clock, deaths, ends):
    body = Deadly(deaths)
    agent = scripted(lambda c: c.step("deadly", body))
    engine = Engine(either, [agent], clock=clock, budget=Budget(max_attempts=3))
    engine.start(agent, run_id=RUN_ID)
    work_through_crashes(engine)
    assert engine.describe(RUN_ID).status == ends


def test_progress_begins_the_count_of_crashes_again(journal, clock):
    """Twelve crashes in all, never more than two in a row without a record in between."""
    bodies = [Deadly(deaths=2) for _ in range(6)]
    agent = scripted(*(lambda c, body=body: c.step("deadly", body) for body in bodies))
    engine = Engine(journal, [agent], clock=clock, budget=Budget(max_attempts=3))
    engine.start(agent, run_id=RUN_ID)
    work_through_crashes(engine)
    run = engine.describe(RUN_ID)
    assert (run.status, run.attempts) == ("completed", 13)


def test_suspension_begins_the_count_of_crashes_again(journal, clock):
    body = Deadly(deaths=2)
    waited = Deadly(deaths=2)
    agent = scripted(
        lambda c: c.step("deadly", body), lambda c: c.sleep(10), lambda c: c.step("more", waited)
    )
    engine = Engine(journal, [agent], clock=clock, budget=Budget(max_attempts=3))
    engine.start(agent, run_id=RUN_ID)
    for _ in range(2):
        work_through_crashes(engine)
        clock.advance(10.0)
    assert engine.describe(RUN_ID).status is RunStatus.COMPLETED


def test_waking_up_often_is_no_crash(journal, clock):
    agent = scripted(lambda c: c.wait_signal("go"))
    engine = Engine(journal, [agent], clock=clock, budget=Budget(max_attempts=1))
    engine.start(agent, run_id=RUN_ID)
    for n in range(5):
        engine.signal(RUN_ID, "other", n)
        by_worker(engine)
    assert engine.describe(RUN_ID).status is RunStatus.SUSPENDED
    assert journal.row(RUN_ID).crashes == 0


# Events


def steps(count: int) -> Any:
    """A workflow of so many steps: with admission and end two events more."""

    @workflow(name="long")
    def agent(ctx, _):
        for n in range(count):
            ctx.step("work", str, n)

    return agent


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_history_near_its_limit_is_warned_of_once(either, clock, caplog):
    run = run_live(either, steps(17), clock=clock, max_events=20)
    assert run.status is RunStatus.COMPLETED
    (warning,) = warnings(caplog)
    assert RUN_ID in warning
    assert "16 events of 20" in warning


def test_history_far_from_its_limit_is_not_warned_of(either, clock, caplog):
    run_live(either, steps(15), clock=clock, max_events=20)
    assert warnings(caplog) == []


def test_history_at_its_limit_needs_attention_and_a_larger_one(either, clock, caplog):
    agent = steps(30)
    engine = Engine(either, [agent], clock=clock, max_events=20)
    run = engine.run(agent, run_id=RUN_ID)
    assert (run.status, run.error.type) == ("needs_attention", "HistoryTooLongError")
    assert "may have 20 events" in run.error.message
    assert "continue_as_new" in run.error.message
    assert "max_events" in run.error.message
    assert len(engine.history(RUN_ID)) == 20
    history = texts(either)
    assert len(warnings(caplog)) == 1

    by_worker(engine)
    engine.resume(RUN_ID)  # nothing has changed, and nothing is written
    assert texts(either) == history
    run = resume(either, agent, clock=clock, max_events=40)
    assert run.status is RunStatus.COMPLETED
    assert texts(either)[:20] == history
    assert len(texts(either)) == 32


def test_history_limit_leaves_what_is_recorded_to_be_replayed(journal, clock):
    """An ending fits always: the limit is for durable calls."""
    run = run_live(journal, steps(19), clock=clock, max_events=20)
    assert run.status is RunStatus.COMPLETED
    assert len(texts(journal)) == 21


def test_history_limit_executes_nothing_that_could_not_be_recorded(journal, clock):
    body = Counted()
    agent = scripted(*(lambda c: c.effect("post", body, 1) for _ in range(9)))
    run_live(journal, agent, clock=clock, max_events=5)
    assert len(body.calls) == 4


def test_history_limit_counts_one_generation(journal, clock):
    @workflow()
    def agent(ctx, left):
        for n in range(10):
            ctx.step("work", str, n)
        if left:
            ctx.continue_as_new(left - 1)
        return ctx.generation

    run = run_live(journal, agent, 3, clock=clock, max_events=12)
    assert (run.status, run.result) == ("completed", 4)


def test_undos_are_exempt_from_the_history_limit(journal, clock):
    undone.clear()
    agent = scripted(
        lambda c: c.compensate("first", undo, "first"),
        lambda c: c.effect("first", post),
        lambda c: c.step("fails", [].pop),
    )
    run = run_live(journal, agent, clock=clock, max_events=4)
    assert (run.status, undone) == ("failed", ["first"])


# A death anywhere


@HANDS
@pytest.mark.parametrize("limit", SPENT)
@pytest.mark.slow
def test_spent_budget_survives_a_death_anywhere(tmp_path, limit, work):
    """One verdict, each undo once or, in its crash window, twice; the same events in each case."""

    def check() -> None:
        assert list(dict.fromkeys(undone)) == ["second", "first"]
        assert len(undone) <= 3

    def told(engine: Engine) -> Any:
        run = engine.describe(RUN_ID)
        return run.status, run.error.type, run.cost, kinds(engine)

    last, budget = SPENT[limit]
    agent = sold(last)
    options: Any = {"begin": undone.clear, "check": check, "told": told, "budget": budget}
    assert die_everywhere(tmp_path, [agent], driven(work, agent), **options) > 30
