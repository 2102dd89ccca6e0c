"""Sleeping, waiting for signals, and waiting for the next try: recorded, and holding nothing.

Where the clock is a fake one, a week passes in no time.
"""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from children import in_child
from interrupted import by_resume, by_worker, die_everywhere, driven, is_free, wait_until
from support import RUN_ID, Counted, prune_at, resume, scripted, texts

from durable_mini import (
    TIMED_OUT,
    Budget,
    Engine,
    EventKind,
    FakeClock,
    InvalidNameError,
    MemoryJournal,
    NonDeterminismError,
    PayloadError,
    Position,
    RetryPolicy,
    RunFailed,
    RunStatus,
    SQLiteJournal,
    Step,
    UnknownRunError,
    Worker,
    workflow,
)
from durable_mini.journal.file import FileJournal
from durable_mini.lab.crashes import CrashAt, InjectedCrash

WEEK_S = 7 * 24 * 3600.0
RACE_S = 60.0
HANDS = pytest.mark.parametrize("work", [by_resume, by_worker])


@pytest.fixture(params=[MemoryJournal, FileJournal, SQLiteJournal])
def either(request: pytest.FixtureRequest, journal_path: Path) -> Any:
    """A journal in memory, then the two in a file."""
    made = MemoryJournal() if request.param is MemoryJournal else request.param(journal_path)
    with made as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000.0)


def begun(journal: Any, agent: Any, clock: FakeClock, **options: Any) -> Engine:
    """An engine with the run started and driven to its first wait."""
    engine = Engine(journal, [agent], clock=clock, **options)
    engine.run(agent, run_id=RUN_ID)
    return engine


def again(journal: Any, agent: Any, clock: FakeClock, **options: Any) -> Engine:
    """An engine of another process on the same journal."""
    return Engine(journal, [agent], clock=clock, **options)


def kinds(engine: Engine, generation: int | None = None) -> list[str]:
    """The kinds of a run's events after its admission."""
    return [str(event.kind) for event in engine.history(RUN_ID, generation)][1:]


def recorded(engine: Engine, kind: str) -> list[Any]:
    """The payloads of all events of a kind."""
    return [event.payload for event in engine.history(RUN_ID) if event.kind == kind]


def attempts_of(engine: Engine, **options: Any) -> int:
    """How many attempts a worker makes until it is idle."""
    made: list[Any] = []
    Worker(engine, on_attempt=made.append, **options).run_until_idle()
    return len(made)


# Sleeping


@pytest.mark.parametrize("work", [by_resume, by_worker])
def test_sleep_of_a_week_takes_no_time_on_a_fake_clock(either, clock, work):
    agent = scripted(lambda c: c.sleep(WEEK_S), lambda c: c.now())
    engine = Engine(either, [agent], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    for early_s in (0.0, 1.0, WEEK_S - 2.0):
        clock.advance(early_s)
        work(engine)
        run = engine.describe(RUN_ID)
        assert (run.status, run.waiting_for) == ("suspended", "timer 'sleep' until 605800")
        assert is_free(engine)
    clock.advance(1.0)
    work(engine)
    assert engine.describe(RUN_ID).result == [None, 1_000.0 + WEEK_S]
    assert kinds(engine) == ["timer", "fired", "now", "completed"]


def test_sleep_survives_closing_the_journal(journal_path, clock):
    before = Counted()
    agent = scripted(
        lambda c: c.step("before", before, 1), lambda c: c.sleep(WEEK_S), lambda c: c.now()
    )
    for _ in range(3):
        with SQLiteJournal(journal_path) as journal:
            run = begun(journal, agent, clock).describe(RUN_ID)
        assert run.waiting_for == "timer 'sleep' until 605800"
        clock.advance(1.0)  # asking again doesn't move the wake-up time
    wait_until(again(journal, agent, clock), 1_000.0 + WEEK_S)
    with SQLiteJournal(journal_path) as journal:
        assert resume(journal, agent, clock=clock).result == [1, None, 1_000.0 + WEEK_S]
    assert len(before.calls) == 1


def test_sleep_goes_on_in_another_process_by_the_real_clock(journal_path):
    agent = scripted(lambda c: c.now(), lambda c: c.sleep(0.2), lambda c: c.now())

    def begins() -> str:
        with SQLiteJournal(journal_path) as journal:
            return str(Engine(journal, [agent]).run(agent, run_id=RUN_ID).waiting_for)

    assert in_child(begins).startswith("timer 'sleep' until ")
    with SQLiteJournal(journal_path) as journal:
        engine = Engine(journal, [agent])
        assert attempts_of(engine) == 0  # it isn't due, and keeps nobody
        worker = Worker(engine, poll_s=0.01, on_attempt=lambda run: worker.stop())
        worker.run_forever()
        slept_from, _, slept_to = engine.describe(RUN_ID).result
    assert 0.2 <= slept_to - slept_from < 5.0


def test_sleep_of_no_seconds_does_not_suspend(journal, clock):
    engine = begun(journal, scripted(lambda c: c.sleep(0)), clock)
    assert engine.describe(RUN_ID).attempts == 1
    assert kinds(engine) == ["timer", "fired", "completed"]


def test_sleeps_one_after_the_other_each_count_from_the_one_before(journal, clock):
    engine = begun(journal, scripted(lambda c: c.sleep(10), lambda c: c.sleep(10)), clock)
    clock.advance(25.0)  # looked at late: the second begins then
    assert engine.resume(RUN_ID).waiting_for == "timer 'sleep' until 1035"


NO_TIMES = [math.nan, math.inf, -math.inf, -1, -0.001, "1", True, [], 1j]


@pytest.mark.parametrize("seconds", [*NO_TIMES, None], ids=repr)
def test_sleep_refuses_what_is_no_number_of_seconds(journal, clock, seconds):
    run = begun(journal, scripted(lambda c: c.sleep(seconds)), clock).describe(RUN_ID)
    assert (run.status, run.error.type) == ("needs_attention", "ValueError")
    assert repr(seconds) in run.error.message
    assert len(texts(journal)) == 1


@pytest.mark.parametrize("seconds", NO_TIMES, ids=repr)
def test_time_out_refuses_what_is_no_number_of_seconds(journal, clock, seconds):
    agent = scripted(lambda c: c.wait_signal("go", timeout_s=seconds))
    run = begun(journal, agent, clock).describe(RUN_ID)
    assert (run.status, run.error.type) == ("needs_attention", "ValueError")
    assert len(texts(journal)) == 1


def test_clock_set_back_makes_a_sleep_longer_and_strands_nobody(either, clock):
    engine = begun(either, scripted(lambda c: c.sleep(60)), clock)
    clock.advance(-500.0)
    for _ in range(2):
        by_worker(engine)
        assert engine.describe(RUN_ID).waiting_for == "timer 'sleep' until 1060"
    clock.advance(560.0)
    by_worker(engine)
    assert engine.describe(RUN_ID).status is RunStatus.COMPLETED


def test_wake_up_that_is_recorded_stays_when_the_clock_is_set_back(journal, clock):
    agent = scripted(lambda c: c.sleep(60), lambda c: c.step("after", len, ""))
    begun(journal, agent, clock)
    clock.advance(60.0)
    with pytest.raises(InjectedCrash):
        again(journal, agent, clock, probe=CrashAt("after", "before")).resume(RUN_ID)
    clock.advance(-60.0)
    assert resume(journal, agent, clock=clock).result == [None, 0]


# What a waiting run holds, and what runs at a suspension


def test_waiting_run_holds_nothing(either, clock):
    agent = scripted(lambda c: c.wait_signal("go", 60))
    engine = Engine(either, [agent], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    assert attempts_of(engine, lease_s=1_000.0) == 1
    row = either.row(RUN_ID)
    assert (row.status, row.worker, row.lease_until) == ("suspended", None, 1_000.0)
    assert (row.due_at, row.crashes, row.token) == (1_060.0, 0, 2)
    assert engine.signal(RUN_ID, "go")
    assert attempts_of(engine) == 1  # nobody's lease has to run out first
    assert clock.now() == 1_000.0


def test_steps_that_are_finished_never_run_again_after_a_wait(journal, clock):
    first, second, third = Counted(), Counted(), Counted()
    agent = scripted(
        lambda c: c.step("first", first, 1),
        lambda c: c.sleep(10),
        lambda c: c.effect("second", second, 2),
        lambda c: c.wait_signal("go")["for"],
        lambda c: c.step("third", third, 3),
    )
    engine = Engine(journal, [agent], clock=clock)
    driven(by_resume, agent)(engine)
    assert engine.describe(RUN_ID).result == [1, None, 2, "go", 3]
    assert [len(body.calls) for body in (first, second, third)] == [1, 1, 1]


def test_finally_and_with_bodies_run_at_every_suspension(journal, clock):
    left: list[str] = []

    class Door:
        def __enter__(self):
            left.append("in")

        def __exit__(self, *_):
            left.append("out")

    @workflow()
    def agent(ctx, _):
        with Door():
            try:
                ctx.sleep(10)
                return ctx.wait_signal("go")
            finally:
                left.append("finally")

    engine = begun(journal, agent, clock)
    assert left == ["in", "finally", "out"]
    clock.advance(10.0)
    engine.resume(RUN_ID)
    engine.signal(RUN_ID, "go", 1)
    assert engine.resume(RUN_ID).result == 1
    assert left == ["in", "finally", "out"] * 3


def sleeps(ctx):
    ctx.sleep(10)


def waits(ctx):
    ctx.wait_signal("go", 10)


@pytest.mark.parametrize("wait", [sleeps, waits])
def test_suspension_that_is_swallowed_still_suspends(journal, clock, wait):
    done = Counted()

    @workflow()
    def agent(ctx, _):
        try:
            wait(ctx)
        except BaseException:
            with suppress(BaseException):
                ctx.step("meanwhile", done, 1)
            return "swallowed"
        return "waited"

    engine = begun(journal, agent, clock)
    run = engine.describe(RUN_ID)
    assert (run.status, run.result, done.calls) == ("suspended", None, [])
    assert is_free(engine)
    clock.advance(10.0)
    assert engine.resume(RUN_ID).result == "waited"


def test_suspension_turned_into_a_verdict_still_suspends(journal, clock):
    @workflow()
    def agent(ctx, _):
        try:
            ctx.sleep(10)
        except BaseException:
            raise RunFailed("no patience") from None

    engine = begun(journal, agent, clock)
    assert engine.describe(RUN_ID).status is RunStatus.SUSPENDED
    clock.advance(10.0)
    assert engine.resume(RUN_ID).status is RunStatus.COMPLETED


def test_step_in_a_finally_block_is_not_executed_while_the_run_waits(journal, clock):
    tidied = Counted()

    @workflow()
    def agent(ctx, _):
        try:
            ctx.sleep(10)
        finally:
            ctx.step("tidy", tidied, 1)

    engine = begun(journal, agent, clock)
    assert (engine.describe(RUN_ID).status, tidied.calls) == ("suspended", [])
    clock.advance(10.0)
    assert engine.resume(RUN_ID).status is RunStatus.COMPLETED
    assert len(tidied.calls) == 1


def fail() -> None:
    raise ConnectionError("no line")


@pytest.mark.parametrize(
    ("wait", "told"),
    [
        (lambda c: c.sleep(0.5), "timer 'sleep' until 1000.5"),
        (lambda c: c.wait_signal("approval"), "signal 'approval'"),
        (lambda c: c.wait_signal("it's", 60), 'signal "it\'s" until 1060'),
        (
            lambda c: c.step("call", fail, retry=RetryPolicy(initial_s=7)),
            "the next try of 'call' until 1007",
        ),
    ],
)
def test_waiting_for_says_what_and_until_when(journal, clock, wait, told):
    agent = scripted(lambda c: c.wait_signal("done"), wait)
    engine = Engine(journal, [agent], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    engine.signal(RUN_ID, "done")
    by_worker(engine)
    engine.signal(RUN_ID, "something else")
    assert engine.describe(RUN_ID).waiting_for == told
    engine.cancel(RUN_ID)
    by_worker(engine)
    assert engine.describe(RUN_ID).waiting_for is None


# Signals


def test_signals_before_the_wait_are_kept_in_order_by_name(either, clock):
    agent = scripted(
        *(lambda c, name=name: c.wait_signal(name) for name in ("a", "b", "a", "a", "b"))
    )
    engine = Engine(either, [agent], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    for name, payload in (("a", 1), ("a", 2), ("c", 0), ("b", 3), ("a", 4), ("b", 5), ("a", 6)):
        assert engine.signal(RUN_ID, name, payload)
    assert engine.resume(RUN_ID).result == [1, 3, 2, 4, 5]
    assert engine.describe(RUN_ID).attempts == 1


def test_signals_that_come_one_by_one_wake_the_run_each_time(either, clock):
    agent = scripted(lambda c: c.wait_signal("a"), lambda c: c.wait_signal("b"))
    engine = begun(either, agent, clock)
    engine.signal(RUN_ID, "b", "early")
    by_worker(engine)
    assert engine.describe(RUN_ID).waiting_for == "signal 'a'"
    engine.signal(RUN_ID, "a", "now")
    by_worker(engine)
    assert engine.describe(RUN_ID).result == ["now", "early"]


def test_signal_to_a_waiting_run_makes_it_due_at_once(either, clock):
    engine = begun(either, scripted(lambda c: c.wait_signal("go")), clock)
    assert either.row(RUN_ID).due_at is None
    assert attempts_of(engine) == 0
    engine.signal(RUN_ID, "go")
    assert either.row(RUN_ID).due_at <= clock.now()
    assert attempts_of(engine) == 1


def test_signal_of_the_same_id_counts_once(either, clock):
    agent = scripted(lambda c: c.wait_signal("go"), lambda c: c.wait_signal("go", 10))
    engine = begun(either, agent, clock)
    assert engine.signal(RUN_ID, "go", 1, signal_id="s-1") is True
    assert engine.signal(RUN_ID, "go", 2, signal_id="s-1") is False
    engine.resume(RUN_ID)
    assert engine.signal(RUN_ID, "go", 3, signal_id="s-1") is False  # also once it was read
    assert engine.signal(RUN_ID, "other", 4, signal_id="s-1") is False  # whatever its name
    clock.advance(10.0)
    run = engine.resume(RUN_ID)
    assert run.status is RunStatus.NEEDS_ATTENTION  # TIMED_OUT is no result
    assert kinds(engine) == ["wait", "signal", "received", "wait", "timed_out"]


def test_signals_without_an_id_each_count(either, clock):
    agent = scripted(lambda c: c.wait_signal("go"), lambda c: c.wait_signal("go"))
    engine = begun(either, agent, clock)
    assert engine.signal(RUN_ID, "go", 1)
    assert engine.signal(RUN_ID, "go", 1)
    assert engine.resume(RUN_ID).result == [1, 1]


def test_signal_id_of_one_run_is_free_in_another(journal, clock):
    agent = scripted(lambda c: c.wait_signal("go"))
    engine = Engine(journal, [agent], clock=clock)
    for run_id in ("r-1", "r-2"):
        engine.start(agent, run_id=run_id)
        assert engine.signal(run_id, "go", run_id, signal_id="s-1")
        assert engine.resume(run_id).result == [run_id]


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
def test_signal_to_a_run_that_has_ended_is_not_taken(either, clock, ending):
    @workflow()
    def agent(ctx, _):
        ctx.step("work", len, "")
        if ending == "failed":
            raise RunFailed("sold out")

    engine = Engine(either, [agent], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    if ending == "cancelled":
        engine.cancel(RUN_ID)
    assert engine.resume(RUN_ID).status == ending
    history = engine.history(RUN_ID)
    assert engine.signal(RUN_ID, "go", 1) is False
    assert engine.history(RUN_ID) == history


def test_signal_to_an_unknown_or_pruned_run_is_an_error(either, clock):
    engine = begun(either, scripted(lambda c: 1), clock)
    with pytest.raises(UnknownRunError, match="'nobody'"):
        engine.signal("nobody", "go")
    assert prune_at(either, either.row(RUN_ID), clock.now())
    with pytest.raises(UnknownRunError, match=f"'{RUN_ID}'"):
        engine.signal(RUN_ID, "go")


def test_signal_to_a_run_that_needs_attention_is_kept_and_starts_nothing(journal, clock):
    def agent_with(call):
        return scripted(call, lambda c: c.wait_signal("go"))

    engine = begun(journal, agent_with(lambda c: 1 / 0), clock)
    assert engine.signal(RUN_ID, "go", "kept")
    assert attempts_of(engine) == 0
    assert engine.describe(RUN_ID).status is RunStatus.NEEDS_ATTENTION
    assert resume(journal, agent_with(lambda c: 0), clock=clock).result == [0, "kept"]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": ""}, InvalidNameError),
        ({"name": "two\nlines"}, InvalidNameError),
        ({"name": 7}, InvalidNameError),
        ({"name": "go", "signal_id": ""}, InvalidNameError),
        ({"name": "go", "signal_id": "x" * 201}, InvalidNameError),
        ({"name": "go", "payload": math.nan}, PayloadError),
        ({"name": "go", "payload": {1: 1, "1": 2}}, PayloadError),
        ({"name": "go", "payload": b"bytes"}, PayloadError),
        ({"name": "go", "payload": "x" * 300_000}, PayloadError),
    ],
)
def test_signal_that_cannot_be_kept_is_refused_to_its_sender(journal, clock, given, error):
    engine = begun(journal, scripted(lambda c: c.wait_signal("go")), clock)
    row, history = journal.row(RUN_ID), texts(journal)
    with pytest.raises(error):
        engine.signal(RUN_ID, **given)
    assert (journal.row(RUN_ID), texts(journal)) == (row, history)


def test_signal_that_comes_during_a_step_is_heard_in_the_same_attempt(either, clock):
    agent = scripted(
        lambda c: c.step("ask", lambda: engine.signal(RUN_ID, "go", 1, signal_id="s-1")),
        lambda c: c.step("next", len, ""),
        lambda c: c.wait_signal("go"),
    )
    engine = Engine(either, [agent], clock=clock)
    run = engine.run(agent, run_id=RUN_ID)
    assert (run.result, run.attempts) == ([True, 0, 1], 1)
    assert kinds(engine) == ["signal", "step", "step", "wait", "received", "completed"]


@pytest.mark.parametrize(
    "wait",
    [
        lambda c: c.sleep(WEEK_S),
        lambda c: c.wait_signal("go"),
        lambda c: c.wait_signal("go", 60),
        lambda c: c.step("call", fail, retry=RetryPolicy(initial_s=60)),
        lambda c: c.gather({"call": Step(fail, retry=RetryPolicy(initial_s=60))}),
    ],
    ids=["sleep", "signal", "signal with time-out", "back-off", "back-off in a gather"],
)
def test_cancel_ends_a_waiting_run_at_once(either, clock, wait):
    agent = scripted(wait)
    engine = Engine(either, [agent], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    by_worker(engine)
    assert engine.describe(RUN_ID).status is RunStatus.SUSPENDED
    assert engine.cancel(RUN_ID) is True
    assert engine.cancel(RUN_ID) is False
    by_worker(engine)
    assert engine.describe(RUN_ID).status is RunStatus.CANCELLED
    assert clock.now() == 1_000.0


@pytest.mark.parametrize("payload", [(1, 2), {1: "one"}, 1.0, None, "é", [[]]], ids=repr)
def test_signal_payload_is_the_same_live_and_replayed(journal, clock, payload):
    seen: list[Any] = []

    @workflow()
    def agent(ctx, _):
        got = ctx.wait_signal("go")
        seen.append(repr(got))
        if isinstance(got, list):
            got.append("changed by the code")
        ctx.wait_signal("end")

    engine = begun(journal, agent, clock)
    for name in ("go", "end"):
        engine.signal(RUN_ID, name, payload)
        engine.resume(RUN_ID)
    assert len(seen) == 2
    assert seen[0] == seen[1]


def test_signal_that_comes_while_the_run_is_being_suspended_is_not_lost(either, clock, monkeypatch):
    agent = scripted(lambda c: c.wait_signal("go"))
    engine = Engine(either, [agent], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    append = type(either).append

    def signalled(self, row, entry, **changes):
        if changes.get("status") is RunStatus.SUSPENDED:
            engine.signal(RUN_ID, "go", "in this very moment", signal_id="s-1")
        return append(self, row, entry, **changes)

    monkeypatch.setattr(type(either), "append", signalled)
    by_worker(engine)
    assert engine.describe(RUN_ID).result == ["in this very moment"]


# The race of a signal and a timer


@pytest.mark.parametrize("looked_s", [0.0, 0.5, WEEK_S])
@pytest.mark.parametrize("came_s", [0.0, RACE_S - 0.001, RACE_S, RACE_S + 0.001, 2 * RACE_S])
def test_signal_wins_if_it_was_recorded_no_later_than_the_time_was_due(
    either, clock, came_s, looked_s
):
    agent = scripted(lambda c: c.wait_signal("go", RACE_S) or "nobody came")
    engine = begun(either, agent, clock)
    clock.advance(came_s)
    engine.signal(RUN_ID, "go", "somebody came")
    clock.advance(looked_s)
    expected = "somebody came" if came_s <= RACE_S else "nobody came"
    assert engine.resume(RUN_ID).result == [expected]


def test_first_of_several_signals_in_time_wins(journal, clock):
    agent = scripted(lambda c: c.wait_signal("go", RACE_S))
    engine = begun(journal, agent, clock)
    for payload in (1, 2, 3):
        clock.advance(25.0)
        engine.signal(RUN_ID, "go", payload)
    assert engine.resume(RUN_ID).result == [1]


def test_signal_at_the_moment_of_the_timer_s_verdict_still_wins(journal, clock):
    """The verdict isn't recorded before it is sure that nothing came in between."""
    agent = scripted(lambda c: c.wait_signal("go", RACE_S) or "nobody came")
    begun(journal, agent, clock)
    clock.advance(RACE_S)

    def probe(position, kind, name):
        if (position, kind) == (Position.WINDOW, EventKind.TIMED_OUT):
            engine.signal(RUN_ID, "go", "just in time", signal_id="s-1")

    engine = again(journal, agent, clock, probe=probe)
    assert engine.resume(RUN_ID).result == ["just in time"]
    assert kinds(engine) == ["wait", "signal", "received", "completed"]


@pytest.mark.parametrize("came_s", [RACE_S, RACE_S + 1])
def test_verdict_of_a_race_is_never_decided_again(journal, clock, came_s):
    """The clock is set back after the verdict, to where it would be another."""
    agent = scripted(
        lambda c: c.wait_signal("go", RACE_S) or "nobody came", lambda c: c.wait_signal("end")
    )
    engine = begun(journal, agent, clock)
    clock.advance(came_s)
    engine.signal(RUN_ID, "go", "somebody came")
    engine.resume(RUN_ID)
    verdict = kinds(engine)[2]
    assert verdict == ("received" if came_s == RACE_S else "timed_out")
    clock.advance(-came_s)
    engine.signal(RUN_ID, "go", "another")
    engine.signal(RUN_ID, "end", 0)
    run = resume(journal, agent, clock=clock)
    assert run.result == ["somebody came" if verdict == "received" else "nobody came", 0]


def test_verdict_of_a_race_holds_when_its_attempt_dies_right_after_it(journal, clock):
    agent = scripted(lambda c: c.wait_signal("go", RACE_S) or "nobody came")
    begun(journal, agent, clock)
    clock.advance(RACE_S)

    def probe(position, kind, name):
        if (position, kind) == (Position.AFTER, EventKind.TIMED_OUT):
            raise InjectedCrash(position, kind, name)

    with pytest.raises(InjectedCrash):
        again(journal, agent, clock, probe=probe).resume(RUN_ID)
    clock.advance(-30.0)
    engine = again(journal, agent, clock)
    engine.signal(RUN_ID, "go", "in time by this clock")
    assert engine.resume(RUN_ID).result == ["nobody came"]


def test_beaten_timer_never_fires(either, clock):
    agent = scripted(lambda c: c.wait_signal("go", RACE_S), lambda c: c.wait_signal("end"))
    engine = begun(either, agent, clock)
    engine.signal(RUN_ID, "go", 1)
    engine.resume(RUN_ID)
    assert either.row(RUN_ID).due_at is None
    clock.advance(WEEK_S)
    assert attempts_of(engine) == 0
    engine.signal(RUN_ID, "end", 2)
    assert engine.resume(RUN_ID).result == [1, 2]
    assert "timed_out" not in kinds(engine)


@pytest.mark.parametrize("timeout_s", [None, 0, 10])
def test_signal_that_came_too_late_is_read_by_the_next_wait(either, clock, timeout_s):
    agent = scripted(
        lambda c: c.wait_signal("go", RACE_S) or "nobody came",
        lambda c: c.wait_signal("go", timeout_s),
    )
    engine = begun(either, agent, clock)
    clock.advance(RACE_S + 1)
    engine.signal(RUN_ID, "go", "late")
    assert engine.resume(RUN_ID).result == ["nobody came", "late"]


def test_signals_before_and_after_the_due_time_keep_their_order(journal, clock):
    agent = scripted(*(lambda c, s=s: c.wait_signal("go", s) or "none" for s in (RACE_S, 0, 0, 0)))
    engine = begun(journal, agent, clock)
    engine.signal(RUN_ID, "go", 1)
    engine.signal(RUN_ID, "go", 2)
    clock.advance(RACE_S + 1)
    engine.signal(RUN_ID, "go", 3)
    assert engine.resume(RUN_ID).result == [1, 2, 3, "none"]


def test_signal_from_before_the_wait_is_in_time_though_the_clock_was_set_back(either, clock):
    """It stands in the journal before the wait: no clock can make it late."""
    agent = scripted(lambda c: c.wait_signal("go", 5) or "nobody came")
    engine = Engine(either, [agent], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    engine.signal(RUN_ID, "go", "early")
    clock.advance(-500.0)
    engine.resume(RUN_ID)
    clock.advance(5.0)
    assert engine.resume(RUN_ID).result == ["early"]


def test_signal_is_stamped_when_it_is_recorded_not_when_its_sender_began(
    journal, clock, monkeypatch
):
    """Otherwise a history had a signal of before the due time that lost against the timer."""
    agent = scripted(
        lambda c: c.wait_signal("go", RACE_S) or "nobody came", lambda c: c.wait_signal("end")
    )
    engine = begun(journal, agent, clock)
    clock.advance(RACE_S - 1)
    request = SQLiteJournal.request

    def kept_waiting(self, *args: Any) -> bool:
        """The sender waits two seconds for the lock, and the run's time-out comes first."""
        clock.advance(2.0)
        engine.resume(RUN_ID)
        return request(self, *args)

    monkeypatch.setattr(SQLiteJournal, "request", kept_waiting)
    assert engine.signal(RUN_ID, "go", "late")
    assert kinds(engine) == ["wait", "timed_out", "wait", "signal"]
    assert engine.history(RUN_ID)[-1].recorded_at == 1_000.0 + RACE_S + 1


@pytest.mark.parametrize("queued", [True, False])
def test_time_out_of_no_seconds_only_looks(either, clock, queued):
    agent = scripted(lambda c: c.wait_signal("go", 0) or "nothing there")
    engine = Engine(either, [agent], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    if queued:
        engine.signal(RUN_ID, "go", "there")
    run = engine.resume(RUN_ID)
    assert (run.result, run.attempts) == (["there" if queued else "nothing there"], 1)


def test_timed_out_is_one_falsy_value_live_and_replayed(journal, clock):
    seen: list[Any] = []

    @workflow()
    def agent(ctx, _):
        seen.append(ctx.wait_signal("go", 0))
        ctx.wait_signal("end")

    engine = begun(journal, agent, clock)
    engine.signal(RUN_ID, "end")
    engine.resume(RUN_ID)
    assert len(seen) == 2
    assert all(one is TIMED_OUT and not one for one in seen)
    assert repr(TIMED_OUT).endswith("TIMED_OUT")


@pytest.mark.parametrize("falsy", [None, False, 0, "", [], {}], ids=repr)
def test_timed_out_is_told_from_a_falsy_payload(journal, clock, falsy):
    agent = scripted(lambda c: c.wait_signal("go", 0) is TIMED_OUT)
    engine = Engine(journal, [agent], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    engine.signal(RUN_ID, "go", falsy)
    assert engine.resume(RUN_ID).result == [False]


def test_timed_out_is_refused_as_a_result_of_run_and_step(journal, clock):
    run = begun(journal, scripted(lambda c: c.wait_signal("go", 0)), clock).describe(RUN_ID)
    assert (run.status, run.error.type) == ("needs_attention", "PayloadError")
    agent = scripted(lambda c: c.step("ask", lambda: TIMED_OUT))
    run = Engine(journal, [agent], clock=clock).run(agent, run_id="r-2")
    assert (run.status, run.error.type) == ("failed", "PayloadError")


def test_time_out_escalates_in_the_workflow_s_own_code(journal, clock):
    asked: list[str] = []

    @workflow()
    def agent(ctx, _):
        for whom in ("clerk", "manager", "owner"):
            ctx.step(f"ask {whom}", asked.append, whom)
            answer = ctx.wait_signal("approval", timeout_s=3_600)
            if answer is not TIMED_OUT:
                return [whom, answer]
        raise RunFailed("nobody answers")

    engine = begun(journal, agent, clock)
    clock.advance(3_600.0)
    engine.resume(RUN_ID)
    engine.signal(RUN_ID, "approval", "yes")
    assert engine.resume(RUN_ID).result == ["manager", "yes"]
    assert asked == ["clerk", "manager"]


# What the code asks for is compared with what it waited for


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda c: c.sleep(10), lambda c: c.step("sleep", len, "")),
        (lambda c: c.sleep(10), lambda c: c.wait_signal("sleep", 10)),
        (lambda c: c.wait_signal("go", 10), lambda c: c.wait_signal("stop", 10)),
        (lambda c: c.wait_signal("go", 10), lambda c: c.sleep(10)),
        (lambda c: c.wait_signal("go", 10), lambda c: c.step("go", len, "")),
    ],
)
@pytest.mark.parametrize("finished", [False, True])
def test_wait_is_never_taken_by_another_call(journal, clock, before, after, finished):
    last = (lambda c: c.wait_signal("end"),)
    begun(journal, scripted(before, *last), clock)
    clock.advance(10.0 if finished else 1.0)
    resume(journal, scripted(before, *last), clock=clock)
    history = texts(journal)
    with pytest.raises(NonDeterminismError) as caught:
        resume(journal, scripted(after, *last), clock=clock)
    assert caught.value.seq == 2
    assert texts(journal) == history


# A death anywhere


@workflow(name="long wait")
def long_wait(ctx, _):
    """Waits, and a step that waits for its next try, with steps around them."""
    found = [ctx.step("first", Stage.body, 1)]
    ctx.sleep(100)
    found.append(ctx.wait_signal("go", 50)["for"])
    found.append(ctx.effect("flaky", Stage.flaky, retry=RetryPolicy(initial_s=20)))
    return [*found, ctx.step("last", Stage.body, 2)]


class Stage:
    """What the steps of `long_wait` do; a new one for each schedule."""

    keys: list[str]
    done: list[int]

    @classmethod
    def set_up(cls) -> None:
        cls.keys, cls.done = [], []

    @classmethod
    def body(cls, value: int) -> int:
        cls.done.append(value)
        return value

    @classmethod
    def flaky(cls, *, idempotency_key: str) -> str:
        cls.keys.append(idempotency_key)
        if len(cls.keys) < 3:
            raise ConnectionError("no line")
        return "through"

    @classmethod
    def strike(cls) -> None:
        """One execution of each step, or two where the first was in the crash window."""
        assert set(cls.keys) == {f"{RUN_ID}/flaky"}
        assert len(cls.keys) in (3, 4)
        assert sorted(cls.done) in ([1, 2], [1, 1, 2], [1, 2, 2])


@HANDS
@pytest.mark.slow
def test_waits_survive_a_death_anywhere(tmp_path, work):
    """Around claims, suspensions, signals too. Only a try in its crash window leaves no trace."""

    def told(engine: Engine) -> Any:
        history = engine.history(RUN_ID)
        events = [event[1:3] for event in history if event.kind != "try"]
        return engine.describe(RUN_ID).result, events

    drive = driven(work, long_wait)
    options: Any = {"told": told, "begin": Stage.set_up, "check": Stage.strike}
    places = die_everywhere(tmp_path, [long_wait], drive, **options)
    assert places > 60


@HANDS
@pytest.mark.slow
def test_waits_have_the_same_events_after_a_death_anywhere(tmp_path, work):
    agent = scripted(
        lambda c: c.sleep(100),
        lambda c: c.wait_signal("go")["for"],
        lambda c: c.wait_signal("in time", 50)["for"],
        lambda c: c.wait_signal("silent", 50) is TIMED_OUT,
    )
    assert die_everywhere(tmp_path, [agent], driven(work, agent)) > 50


def test_recorded_due_times_are_not_moved_by_a_death(tmp_path):
    """Driven by `resume`, which waits for no lease: every time is the same, whatever died."""
    agent = scripted(lambda c: c.sleep(100), lambda c: c.wait_signal("silent", 50) is TIMED_OUT)

    def told(engine: Engine) -> Any:
        history = engine.history(RUN_ID)
        return [(event.kind, event.payload.get("due_at"), event.recorded_at) for event in history]

    die_everywhere(tmp_path, [agent], driven(by_resume, agent), told=told)


def test_first_event_of_an_attempt_is_marked_though_a_signal_came_in_between(journal, clock):
    """The append was refused once: the next one is the attempt's first, and ends the crashes."""
    agent = scripted(lambda c: c.wait_signal("go"))
    crashes: list[int] = []

    def probe(position, kind, name):
        if (position, kind) == (Position.WINDOW, EventKind.WAIT):
            crashes.append(journal.row(RUN_ID).crashes)
            if len(crashes) == 1:
                raise InjectedCrash(position, kind, name)
            engine.signal(RUN_ID, "go", 1, signal_id="s-1")
        elif (position, kind) == (Position.AFTER, EventKind.WAIT):
            crashes.append(journal.row(RUN_ID).crashes)

    engine = Engine(journal, [agent], clock=clock, probe=probe)
    engine.start(agent, run_id=RUN_ID)
    with pytest.raises(InjectedCrash):
        engine.resume(RUN_ID)
    assert engine.resume(RUN_ID).result == [1]
    assert recorded(engine, "wait") == [{"due_at": None, "attempt": 2}]
    assert crashes == [1, 2, 2, 0]


# Waiting for the next try


class Line:
    """A step that fails so many times; it keeps when it was tried, and with which key."""

    def __init__(self, clock: FakeClock, failures: int, error: Exception | None = None) -> None:
        self.tried_at: list[float] = []
        self.keys: set[str] = set()
        self._clock, self._failures = clock, failures
        self._error = error or ConnectionError("no line")

    def __call__(self, *, idempotency_key: str) -> str:
        self.tried_at.append(self._clock.now() - 1_000.0)
        self.keys.add(idempotency_key)
        if len(self.tried_at) <= self._failures:
            raise self._error
        return "through"


POLICY = RetryPolicy(max_attempts=4, initial_s=10, factor=2, max_s=1_000)


def calling(line: Line, retry: RetryPolicy = POLICY) -> Any:
    """A workflow of one effect that is retried."""
    return scripted(lambda c: c.effect("call", line, retry=retry))


def dies_after_a_try(position: Position, kind: EventKind, name: str) -> None:
    """A probe for a process that dies when its first failed try has been recorded."""
    if (position, kind) == (Position.AFTER, EventKind.TRY):
        raise InjectedCrash(position, kind, name)


def tries(engine: Engine) -> list[tuple[Any, ...]]:
    """What the failed tries have recorded: the type of the error, and when the next was due."""
    return [(one["error"]["type"], one["due_at"] - 1_000.0) for one in recorded(engine, "try")]


def test_back_off_is_waited_out_on_the_clock_by_resume(either, clock):
    line = Line(clock, failures=3)
    engine = begun(either, calling(line), clock)
    run = engine.describe(RUN_ID)
    assert (run.result, run.attempts) == (["through"], 1)
    assert line.tried_at == [0.0, 10.0, 30.0, 70.0]
    assert line.keys == {f"{RUN_ID}/call"}
    assert tries(engine) == [
        ("ConnectionError", 10.0),
        ("ConnectionError", 30.0),
        ("ConnectionError", 70.0),
    ]
    assert recorded(engine, "effect")[0]["tries"] == 4


def test_back_off_holds_no_worker_and_ends_with_the_clock(either, clock):
    line = Line(clock, failures=2)
    agent = calling(line)
    engine = Engine(either, [agent], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    for due_s in (10.0, 30.0):
        assert attempts_of(engine) == 1
        run = engine.describe(RUN_ID)
        assert (run.status, is_free(engine)) == ("suspended", True)
        assert run.waiting_for == f"the next try of 'call' until {1_000 + due_s:.0f}"
        clock.advance(due_s + 1_000.0 - clock.now() - 0.5)
        assert attempts_of(engine) == 0
        clock.advance(0.5)
    assert attempts_of(engine) == 1
    assert engine.describe(RUN_ID).result == ["through"]
    assert line.tried_at == [0.0, 10.0, 30.0]
    assert line.keys == {f"{RUN_ID}/call"}


def test_worker_drives_other_runs_during_a_back_off(journal, clock):
    line = Line(clock, failures=1)
    agent = calling(line)
    engine = Engine(journal, [agent], clock=clock)
    for run_id in ("r-1", "r-2"):
        engine.start(agent, run_id=run_id)
    assert attempts_of(engine) == 2
    assert [run.status for run in engine.runs()] == ["suspended", "completed"]
    assert clock.now() == 1_000.0


@pytest.mark.parametrize("position", list(Position))
@HANDS
def test_crash_in_a_retried_step_neither_resets_the_count_nor_moves_the_next_try(
    journal, clock, position, work
):
    line = Line(clock, failures=2)
    agent = calling(line)
    died: list[int] = []

    def probe(at, kind, name):
        """Dies at the second try, once: before it, in its window, or after its record."""
        if at is position and len(line.tried_at) == 2 - (at is Position.BEFORE) and not died:
            died.append(1)
            raise InjectedCrash(at, kind, name)

    with pytest.raises(InjectedCrash):
        begun(journal, agent, clock, probe=probe)
    assert clock.now() == 1_010.0
    engine = again(journal, agent, clock)
    driven(work, agent)(engine)
    assert engine.describe(RUN_ID).result == ["through"]
    assert len(recorded(engine, "try")) == (1 if position is Position.WINDOW else 2)
    if position is Position.AFTER:
        assert line.tried_at == [0.0, 10.0, 30.0]  # as without the crash
    assert line.keys == {f"{RUN_ID}/call"}


def test_crash_while_waiting_for_the_next_try_leaves_it_where_it_was(journal, clock):
    line = Line(clock, failures=2)
    agent = calling(line)

    class Interrupted(FakeClock):
        def now(self) -> float:
            return clock.now()

        def sleep(self, seconds: float) -> None:
            raise InjectedCrash(Position.BEFORE, EventKind.TRY, "sleep")

    with pytest.raises(InjectedCrash):
        begun(journal, agent, Interrupted())
    clock.advance(4.0)
    engine = again(journal, agent, clock)
    assert engine.resume(RUN_ID).result == ["through"]
    assert line.tried_at == [0.0, 10.0, 30.0]


@HANDS
def test_tries_that_are_used_up_before_and_after_a_crash_fail_the_step_once(journal, clock, work):
    line = Line(clock, failures=99)
    agent = calling(line)
    with pytest.raises(InjectedCrash):
        begun(journal, agent, clock, probe=dies_after_a_try)
    engine = again(journal, agent, clock)
    driven(work, agent)(engine)
    run = engine.describe(RUN_ID)
    assert (run.status, run.error) == ("failed", ("ConnectionError", "no line", "call"))
    assert line.tried_at == [0.0, 10.0, 30.0, 70.0]
    assert kinds(engine) == ["try", "try", "try", "effect", "failed"]
    assert recorded(engine, "effect")[0]["tries"] == 4


@HANDS
def test_error_that_no_try_can_mend_is_tried_once(journal, clock, work):
    retry = RetryPolicy(max_attempts=9, non_retryable=(LookupError,))
    line = Line(clock, 99, KeyError("gone"))
    agent = calling(line, retry)
    engine = Engine(journal, [agent], clock=clock)
    driven(work, agent)(engine)
    assert engine.describe(RUN_ID).error.type == "KeyError"
    assert (line.tried_at, kinds(engine)) == ([0.0], ["effect", "failed"])


def test_error_that_no_try_can_mend_ends_the_tries_after_others(journal, clock):
    errors = iter([ConnectionError("no line"), KeyError("gone")])

    def body() -> None:
        raise next(errors)

    policy = RetryPolicy(max_attempts=9, non_retryable=(LookupError,))
    engine = begun(journal, scripted(lambda c: c.step("call", body, retry=policy)), clock)
    assert engine.describe(RUN_ID).error.type == "KeyError"
    assert kinds(engine) == ["try", "step", "failed"]


def test_try_after_a_crash_has_to_be_made_with_the_same_arguments(journal, clock):
    def calling_with(argument):
        return scripted(lambda c: c.step("call", fail_with, argument, retry=POLICY))

    def fail_with(_: Any) -> None:
        raise ConnectionError

    with pytest.raises(InjectedCrash):
        begun(journal, calling_with(1), clock, probe=dies_after_a_try)
    history = texts(journal)
    with pytest.raises(NonDeterminismError, match="digest"):
        resume(journal, calling_with(2), clock=clock)
    assert texts(journal) == history


def test_same_step_tried_a_second_time_in_the_run_starts_its_own_count(journal, clock):
    lines = [Line(clock, failures=3), Line(clock, failures=3)]
    agent = scripted(*(lambda c, line=line: c.effect("call", line, retry=POLICY) for line in lines))
    engine = begun(journal, agent, clock)
    assert engine.describe(RUN_ID).result == ["through", "through"]
    assert [line.keys for line in lines] == [{f"{RUN_ID}/call"}, {f"{RUN_ID}/call#2"}]
    assert [len(line.tried_at) for line in lines] == [4, 4]


def test_cancel_in_a_back_off_reaches_a_resume_that_waits_it_out(journal, clock):
    line = Line(clock, failures=99)
    agent = calling(line)

    class Ringing(FakeClock):
        def sleep(self, seconds: float) -> None:
            engine.cancel(RUN_ID)
            self.advance(seconds)

    engine = Engine(journal, [agent], clock=Ringing(1_000.0))
    assert engine.run(agent, run_id=RUN_ID).status is RunStatus.CANCELLED
    assert line.tried_at == [0.0]


@HANDS
def test_deadline_in_a_back_off_ends_the_run_and_no_worker_goes_round_in_circles(
    either, clock, work
):
    line = Line(clock, failures=99)
    agent = calling(line, RetryPolicy(max_attempts=9, initial_s=100, max_s=100))
    engine = Engine(either, [agent], clock=clock, budget=Budget(max_seconds=50))
    engine.start(agent, run_id=RUN_ID)
    work(engine)
    wait_until(engine, 1_050.0)
    work(engine)
    run = engine.describe(RUN_ID)
    assert (run.status, run.error.type) == ("failed", "BudgetExceededError")
    assert line.tried_at == [0.0]


@HANDS
@pytest.mark.slow
def test_tries_survive_a_death_anywhere(tmp_path, work):
    """The count of tries goes on where it was; only a try in its crash window is made again."""
    made: list[int] = []

    def body() -> str:
        made.append(1)
        return "through" if len(made) > 3 else fail()

    agent = scripted(lambda c: c.step("call", body, retry=POLICY), lambda c: c.step("end", len, ""))

    def check() -> None:
        assert len(made) in (4, 5)

    def told(engine: Engine) -> Any:
        run = engine.describe(RUN_ID)
        assert len(recorded(engine, "try")) in (2, 3)  # 2 where the failure was lost in the window
        return run.status, run.result, kinds(engine)[-3:]

    options: Any = {"begin": made.clear, "check": check, "told": told}
    assert die_everywhere(tmp_path, [agent], driven(work, agent), **options) > 20
