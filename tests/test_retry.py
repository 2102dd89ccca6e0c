"""Retries: the arithmetic, the waits on the clock, what isn't retried, and what is journalled."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st
from support import RUN_ID, crash, resume, run_live, scripted, texts

from durable_mini import (
    Engine,
    FakeClock,
    MemoryJournal,
    NonDeterminismError,
    RetryPolicy,
    RunStatus,
    Step,
    Worker,
)
from durable_mini.events import EventKind, Position
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.ops import verify


class Waits(FakeClock):
    """A clock that remembers for how long it was asked to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waited_s.append(seconds)
        super().sleep(seconds)


class Flaky:
    """A step body that raises these errors in turn, then returns."""

    def __init__(self, *errors: BaseException | type[BaseException]) -> None:
        self.errors = list(errors)
        self.times: list[float] = []
        self.clock = Waits()

    def __call__(self, result: str = "done", **_: str) -> str:
        self.times.append(self.clock.now())
        if self.errors:
            raise self.errors.pop(0)
        return result


def run_flaky(journal, body, retry, kind="step"):
    agent = scripted(lambda c: getattr(c, kind)("work", body, retry=retry))
    return run_live(journal, agent, clock=body.clock)


# Arithmetic


@pytest.mark.parametrize(
    ("policy", "delays_s"),
    [
        (RetryPolicy(), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]),
        (RetryPolicy(initial_s=0.5, factor=3.0, max_s=10.0), [0.5, 1.5, 4.5, 10.0, 10.0]),
        (RetryPolicy(factor=1.0), [1.0, 1.0, 1.0]),
        (RetryPolicy(initial_s=0.0), [0.0, 0.0, 0.0]),
        (RetryPolicy(initial_s=90.0), [60.0, 60.0]),
    ],
)
def test_delays_grow_by_the_factor_up_to_the_cap(policy, delays_s):
    assert [policy.delay_s(tries) for tries in range(1, len(delays_s) + 1)] == delays_s


@given(st.floats(0, 1e6), st.floats(1, 1e3), st.floats(0, 1e6), st.integers(1, 5_000))
def test_delays_never_fall_and_never_pass_the_cap(initial_s, factor, max_s, tries):
    policy = RetryPolicy(initial_s=initial_s, factor=factor, max_s=max_s)
    delay_s, next_s = policy.delay_s(tries), policy.delay_s(tries + 1)
    assert 0 <= delay_s <= next_s <= max_s
    if initial_s == 0:
        assert delay_s == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": -1},
        {"initial_s": -1.0},
        {"max_s": -1.0},
        {"factor": 0.5},
        {"initial_s": math.nan},
        {"max_s": math.nan},
        {"factor": math.nan},
    ],
)
def test_policy_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RetryPolicy(**wrong)


# Waiting and trying


def test_step_is_tried_until_it_works_with_the_policys_waits(journal):
    body = Flaky(OSError("1"), OSError("2"), OSError("3"))
    run = run_flaky(journal, body, RetryPolicy(max_attempts=4, initial_s=1.0, factor=3.0))
    assert run.result == ["done"]
    assert body.times == [0.0, 1.0, 4.0, 13.0]
    assert body.clock.waited_s == [1.0, 3.0, 9.0]
    *tries, event = Engine(journal).history(RUN_ID)[1:-1]
    assert [(tried.kind, tried.name) for tried in tries] == [(EventKind.TRY, "work")] * 3
    assert [tried.payload["due_at"] for tried in tries] == body.times[1:]
    assert (event.kind, event.payload["tries"], event.payload["result"]) == ("step", 4, "done")


def test_step_fails_after_the_last_try_without_another_wait(journal):
    body = Flaky(*[OSError(f"no {n}") for n in range(9)])
    run = run_flaky(journal, body, RetryPolicy(max_attempts=3))
    assert (run.status, run.error.type, run.error.step) == (RunStatus.FAILED, "OSError", "work")
    assert run.error.message == "no 2", "the last try's error is the one that is kept"
    assert len(body.times) == 3
    assert body.clock.waited_s == [1.0, 2.0]


def test_step_without_a_policy_is_tried_once(journal):
    body = Flaky(OSError)
    run = run_flaky(journal, body, None)
    assert (run.status, len(body.times), body.clock.waited_s) == (RunStatus.FAILED, 1, [])


def test_effect_is_retried_as_a_step_is(journal):
    body = Flaky(OSError)
    assert run_flaky(journal, body, RetryPolicy(), kind="effect").result == ["done"]
    assert len(body.times) == 2


@pytest.mark.parametrize(
    ("error", "policy"),
    [
        (TypeError("wrong"), RetryPolicy()),
        (KeyError("k"), RetryPolicy(non_retryable=(KeyError,))),
        (KeyError("k"), RetryPolicy(non_retryable=(LookupError,))),
    ],
    ids=["by default", "named", "subclass of what is named"],
)
def test_error_that_another_try_cant_mend_fails_at_once(journal, error, policy):
    body = Flaky(error)
    run = run_flaky(journal, body, policy)
    assert (run.status, run.error.type) == (RunStatus.FAILED, type(error).__name__)
    assert (len(body.times), body.clock.waited_s) == (1, [])


def test_error_that_isnt_named_is_retried_even_after_the_default_was_replaced(journal):
    body = Flaky(TypeError("now it may mend"))
    assert run_flaky(journal, body, RetryPolicy(non_retryable=())).result == ["done"]


@pytest.mark.parametrize(
    "bad",
    [
        object(),
        b"x",
        {1: 1, "1": 2},
        float("nan"),
        {float("nan"): 1},
        "x" * 300_000,
        {10**5_000: 1},
    ],
    ids=["object", "bytes", "keys", "nan", "nan key", "size", "long key"],
)
def test_value_that_cant_be_stored_is_never_retried(journal, bad):
    calls = []

    def body():
        calls.append(1)
        return bad

    clock = Waits()
    retry = RetryPolicy(max_attempts=9, non_retryable=())
    agent = scripted(lambda c: c.step("work", body, retry=retry))
    run = run_live(journal, agent, clock=clock)
    assert (run.status, run.error.type, run.error.step) == (
        RunStatus.FAILED,
        "PayloadError",
        "work",
    )
    assert "step 'work'" in run.error.message
    assert (len(calls), clock.waited_s) == (1, [])
    assert resume(journal, agent) == run
    assert len(calls) == 1


def test_crash_in_a_retry_is_a_crash_and_no_failed_try(journal):
    body = Flaky(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        run_flaky(journal, body, RetryPolicy(max_attempts=5))
    assert (len(texts(journal)), body.clock.waited_s) == (1, [])


def test_each_try_is_a_live_execution_to_the_probe_and_a_commit_of_its_own():
    seen = []
    body = Flaky(OSError, OSError)
    agent = scripted(lambda c: c.step("work", body, retry=RetryPolicy()))
    probe = lambda at, kind, name: seen.append(f"{at} {kind} {name}")  # noqa: E731 - one use
    run_live(MemoryJournal(), agent, clock=body.clock, probe=probe)
    failed = ["before step work", "window try work", "after try work"]
    assert seen == [*failed, *failed, "before step work", "window step work", "after step work"]


# A crash among the tries


RETRY = RetryPolicy(max_attempts=3, initial_s=10.0, factor=2.0)


def flaky_agent(body, **options):
    return scripted(lambda c: c.step("work", body, retry=RETRY, **options))


class CrashInTry:
    """A probe that crashes once, at a position of the n-th failed try."""

    def __init__(self, position, number):
        self.position, self.number, self.failed = position, number, 0

    def __call__(self, position, kind, name):
        self.failed += (position, kind) == (Position.WINDOW, EventKind.TRY)
        if (position, kind, self.failed) == (self.position, EventKind.TRY, self.number):
            self.number = 0
            raise InjectedCrash(position, kind, name)


@pytest.mark.parametrize("number", [1, 2])
def test_a_crash_after_a_failed_try_was_recorded_goes_on_with_the_count_and_the_due_time(
    journal, number
):
    body = Flaky(OSError("1"), OSError("2"), OSError("3"), OSError("4"))
    agent = flaky_agent(body)
    engine = Engine(journal, [agent], clock=body.clock, probe=CrashInTry(Position.AFTER, number))
    engine.start(agent, run_id=RUN_ID)
    with pytest.raises(InjectedCrash):
        engine.resume(RUN_ID)
    run = resume(journal, agent, clock=body.clock)
    assert (run.status, run.error.message, run.attempts) == (RunStatus.FAILED, "3", 2)
    assert body.times == [0.0, 10.0, 30.0], "three tries in all, each when it was due"
    assert [kind for _, kind, _, _ in texts(journal)] == [
        "admitted",
        "try",
        "try",
        "step",
        "failed",
    ]
    assert verify(journal).ok


def test_a_crash_in_the_window_of_a_failed_try_repeats_that_try_and_no_other(journal):
    body = Flaky(OSError("1"), OSError("lost"), OSError("2"))
    agent = flaky_agent(body)
    engine = Engine(journal, [agent], clock=body.clock, probe=CrashInTry(Position.WINDOW, 2))
    engine.start(agent, run_id=RUN_ID)
    with pytest.raises(InjectedCrash):
        engine.resume(RUN_ID)
    run = resume(journal, agent, clock=body.clock)
    assert (run.result, body.times) == (["done"], [0.0, 10.0, 10.0, 30.0])
    tries = [event.payload for event in Engine(journal).history(RUN_ID)[1:3]]
    assert [tried["error"]["message"] for tried in tries] == ["1", "2"]
    assert Engine(journal).history(RUN_ID)[3].payload["tries"] == 3


@pytest.mark.parametrize("died_for_s", [0.0, 4.0, 10.0, 500.0])
def test_a_try_is_due_when_it_was_due_however_long_nobody_drove_the_run(journal, died_for_s):
    body = Flaky(OSError("1"))
    agent = flaky_agent(body)
    engine = Engine(journal, [agent], clock=body.clock, probe=CrashInTry(Position.AFTER, 1))
    engine.start(agent, run_id=RUN_ID)
    with pytest.raises(InjectedCrash):
        engine.resume(RUN_ID)
    body.clock.advance(died_for_s)
    assert resume(journal, agent, clock=body.clock).result == ["done"]
    assert body.times == [0.0, max(10.0, died_for_s)]
    assert sum(body.clock.waited_s) == max(0.0, 10.0 - died_for_s)


def test_a_worker_holds_no_run_for_a_back_off(journal):
    body = Flaky(OSError("1"), OSError("2"))
    engine = Engine(journal, [agent := flaky_agent(body)], clock=body.clock)
    engine.start(agent, run_id=RUN_ID)
    worker = Worker(engine)
    for due_at in (10.0, 30.0):
        assert worker.run_until_idle() == 1
        run, row = engine.describe(RUN_ID), journal.row(RUN_ID)
        assert (run.status, row.due_at, row.worker) == (RunStatus.SUSPENDED, due_at, None)
        assert run.waiting_for == f"the next try of 'work' until {due_at:g}"
        assert worker.run_until_idle() == 0, "it isn't due yet"
        body.clock.advance(due_at - body.clock.now())
    assert worker.run_until_idle() == 1
    assert (engine.describe(RUN_ID).result, body.times) == (["done"], [0.0, 10.0, 30.0])
    assert body.clock.waited_s == [], "nobody slept"


def test_a_policy_that_allows_fewer_tries_than_were_made_ends_after_the_next(journal):
    body = Flaky(OSError("1"), OSError("2"), OSError("3"))
    agent = flaky_agent(body)
    engine = Engine(journal, [agent], clock=body.clock, probe=CrashInTry(Position.AFTER, 2))
    engine.start(agent, run_id=RUN_ID)
    with pytest.raises(InjectedCrash):
        engine.resume(RUN_ID)
    stricter = scripted(lambda c: c.step("work", body, retry=RetryPolicy(max_attempts=1)))
    run = resume(journal, stricter, clock=body.clock)
    assert (run.status, run.error.message, len(body.times)) == (RunStatus.FAILED, "3", 3)
    assert Engine(journal).history(RUN_ID)[3].payload["tries"] == 3


@pytest.mark.parametrize("gathered", [False, True])
def test_a_repeated_name_has_tries_of_its_own_after_a_replay_too(journal, gathered):
    """The tries of a call that has ended don't count for the next call of that name."""
    bodies = [Flaky(OSError("1"), OSError("2")) for _ in range(2)]

    def call(ctx, body):
        if gathered:
            return ctx.gather({"work": Step(body, retry=RETRY)})["work"]
        return ctx.step("work", body, retry=RETRY)

    agent = scripted(lambda c: call(c, bodies[0]), lambda c: call(c, bodies[1]))
    clock, probe = bodies[0].clock, CrashAt("work", Position.AFTER, occurrence=3)
    with pytest.raises(InjectedCrash):
        run_live(journal, agent, clock=clock, probe=probe)
    run = resume(journal, agent, clock=clock)
    assert (run.status, run.result) == (RunStatus.COMPLETED, ["done", "done"])
    assert [len(body.times) for body in bodies] == [3, 3]


def test_tries_that_were_recorded_for_another_call_are_a_divergence(journal):
    body = Flaky(OSError("1"))
    agent = flaky_agent(body)
    engine = Engine(journal, [agent], clock=body.clock, probe=CrashInTry(Position.AFTER, 1))
    engine.start(agent, run_id=RUN_ID)
    with pytest.raises(InjectedCrash):
        engine.resume(RUN_ID)
    before = texts(journal)
    for changed in (
        lambda c: c.step("other", body, retry=RETRY),
        lambda c: c.effect("work", body, retry=RETRY),
        lambda c: c.step("work", body, "other argument", retry=RETRY),
        lambda c: c.now(),
    ):
        with pytest.raises(NonDeterminismError, match="event 2"):
            resume(journal, scripted(changed), clock=body.clock)
        assert (texts(journal), len(body.times)) == (before, 1)
    assert resume(journal, agent, clock=body.clock).result == ["done"]


# What is journalled


def test_final_failure_is_journalled_once_with_stable_fields(journal):
    body = Flaky(*[OSError("no way")] * 3)
    agent = scripted(lambda c: c.step("work", body, retry=RetryPolicy()))
    run = run_live(journal, agent, clock=body.clock)
    *tries, step, ending = Engine(journal).history(RUN_ID)[1:]
    assert [tried.payload["error"] for tried in tries] == [step.payload["error"]] * 2
    assert [tried.payload["of"] for tried in tries] == ["step"] * 2
    assert step.payload["error"] == {"type": "OSError", "message": "no way"}
    assert step.payload["tries"] == 3
    assert "result" not in step.payload
    assert (ending.kind, ending.payload["error"]["step"]) == ("failed", "work")
    assert resume(journal, agent) == run
    assert len(body.times) == 3
    assert verify(journal).ok


def test_failure_that_was_journalled_before_a_crash_isnt_tried_again(journal):
    body = Flaky(OSError("no way"))
    agent = scripted(lambda c: c.step("work", body))
    crash(journal, agent, "work", Position.AFTER)
    run = resume(journal, agent)
    assert (run.status, run.error.message, len(body.times)) == (RunStatus.FAILED, "no way", 1)


@pytest.mark.parametrize(
    "error",
    [ValueError("\ud83d"), ValueError("a\x00b"), ValueError("x" * 1_000_000)],
    ids=["lone surrogate", "zero", "a megabyte"],
)
def test_failure_with_an_odd_message_is_journalled(journal, error):
    body = Flaky(error)
    run = run_flaky(journal, body, None)
    assert (run.status, run.error.type) == (RunStatus.FAILED, type(error).__name__)
    assert len(run.error.message) <= 10_000
    assert Engine(journal).describe(RUN_ID) == run


def test_a_policy_with_something_that_is_no_exception_type_is_refused():
    with pytest.raises(TypeError):
        RetryPolicy(non_retryable=("TypeError",))


@pytest.mark.parametrize("factor", [1_001, float("inf"), float("nan")])
def test_a_factor_whose_powers_no_float_holds_is_refused(factor):
    with pytest.raises(ValueError, match="factor from 1 to 1,000"):
        RetryPolicy(factor=factor)
    assert RetryPolicy(factor=1_000.0, max_attempts=10_000).delay_s(9_999) == 60.0
