"""Retries: the arithmetic, the waits on the clock, what isn't retried, and what is journalled."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st
from support import RUN_ID, crash, resume, run_live, scripted, texts

from durable_mini import Engine, FakeClock, MemoryJournal, RetryPolicy, RunStatus
from durable_mini.events import Position
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
    event = Engine(journal).history(RUN_ID)[1]
    assert (event.payload["tries"], event.payload["result"]) == (4, "done")


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


def test_each_try_is_a_live_execution_to_the_probe_and_one_commit():
    seen = []
    body = Flaky(OSError, OSError)
    agent = scripted(lambda c: c.step("work", body, retry=RetryPolicy()))
    run_live(
        MemoryJournal(), agent, clock=body.clock, probe=lambda at, kind, name: seen.append(str(at))
    )
    assert seen == ["before", "before", "before", "window", "after"]


# What is journalled


def test_final_failure_is_journalled_once_with_stable_fields(journal):
    body = Flaky(*[OSError("no way")] * 3)
    agent = scripted(lambda c: c.step("work", body, retry=RetryPolicy()))
    run = run_live(journal, agent, clock=body.clock)
    step, ending = Engine(journal).history(RUN_ID)[1:]
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
