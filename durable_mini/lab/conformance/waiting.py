"""Laws 21 to 24: tries, timers and signals, for engines that offer them.

Guarantees: each case is one sentence and the smallest workflow that shows it. Leaves to others:
what happens to a failed step that isn't tried again (`failing`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from durable_mini.lab.conformance.adapter import Workflow
from durable_mini.lab.conformance.laws import Law
from durable_mini.lab.conformance.machine import Machine
from durable_mini.lab.conformance.replaying import times
from durable_mini.retry import RetryPolicy

TRIES = Law(21, "retries", "A crash doesn't start the count of tries again.", "retries")
WAITS = Law(
    22,
    "waits",
    "A wait holds no worker, and what was finished before it never runs again.",
    "waits",
)
SIGNALS = Law(23, "waits", "Signals are kept, in order, and each counts once.", "waits")
RACE = Law(24, "waits", "Signal or time-out: the recorded times decide, once.", "waits")

THREE_TRIES = RetryPolicy(max_attempts=3, initial_s=10.0, factor=1.0)


# ---- 21: tries ----------------------------------------------------------------------------------


def failing_until(m: Machine, succeeds_at: int) -> Workflow:
    """An effect that is tried three times, and fails until the try of this number."""

    def fails() -> Exception | None:
        return ConnectionError("no line") if m.count("a") < succeeds_at else None

    return m.script(m.effect("a", fails=fails, retry=THREE_TRIES))


@TRIES.case
def step_is_tried_until_it_succeeds(m: Machine) -> None:
    """A step that fails twice and may be tried three times succeeds, with one key throughout."""
    m.expect_result(m.settle(failing_until(m, 3)), ["a"])
    m.expect(m.count("a") == 3, times(m, "a"))
    m.expect(len(set(m.keys("a"))) == 1, f"its tries came with the keys {m.keys('a')}")


@TRIES.case
def tries_are_not_counted_anew(m: Machine) -> None:
    """Killed anywhere, a step that always fails is tried three times, one of them twice at most."""
    workflow = failing_until(m, 99)
    for _ in m.kills(workflow, lambda: m.settle(workflow)):
        m.expect_refusal(m.settle(workflow))
        m.expect(3 <= m.count("a") <= 4, times(m, "a"))
        m.expect(len(set(m.keys("a"))) == 1, f"its tries came with the keys {m.keys('a')}")


@TRIES.case
def back_off_is_kept(m: Machine) -> None:
    """The next try comes no earlier than its time, though the process was killed in between."""
    workflow = failing_until(m, 99)
    for _ in m.kills(workflow):
        m.settle(workflow, waits_s=1.0)
        waits_s = [later.at_s - earlier.at_s for earlier, later in pairwise(m.calls)]
        short = [wait_s for wait_s in waits_s if wait_s < THREE_TRIES.initial_s]
        repeated = m.count("a") > 3  # the try that was under way when the process was killed
        m.expect(len(short) <= repeated, f"it waited {waits_s} s between its tries, right is 10")


@TRIES.case
def value_that_can_not_be_kept_is_not_tried_again(m: Machine) -> None:
    """A value that can't be kept is refused after one execution, whatever the policy says."""
    workflow = m.script(m.step("a", gives={1, 2}, retry=THREE_TRIES))
    m.expect_refusal(m.settle(workflow))
    m.expect(m.count("a") == 1, times(m, "a"))


# ---- 22: waits ----------------------------------------------------------------------------------


def approval(m: Machine, timeout_s: float | None = None) -> Workflow:
    """A step, a wait for a signal, an effect with what it brought."""

    def workflow(ctx: Any, value: Any) -> list[Any]:
        m.step("a")(ctx)
        answer = m.saw("the answer", ctx.wait_signal("approval", timeout_s)) or "too late"
        return [answer, m.effect("b", answer)(ctx)]

    return workflow


@WAITS.case
def wait_lets_its_worker_go(m: Machine) -> None:
    """A run that waits for a signal gives its process back at once, and no time is slept away."""
    m.expect_refusal(m.run(approval(m)))
    m.expect(m.clock.slept_s == 0, f"the process slept for {m.clock.slept_s:g} s")
    m.expect([call.name for call in m.calls] == ["a"], f"executed was {m.calls}")


@WAITS.case
def finished_steps_do_not_run_again(m: Machine) -> None:
    """Killed anywhere before the signal or after it, the run ends and repeats nothing finished."""
    workflow = approval(m)

    def story() -> None:
        m.run(workflow)
        m.tell("signal", "approval", "yes", "s-1")
        m.run(workflow)

    for state in m.kills(workflow, story):
        m.run(workflow)
        m.tell("signal", "approval", "yes", "s-1")
        m.expect_result(m.run(workflow), ["yes", "b"])
        a_is_known = len(state.calls) > 1 or any(name == "a" for name, _ in state.seen)
        m.expect(m.count("a") <= (1 if a_is_known else 2), times(m, "a"))


@WAITS.case
def timer_wakes_the_run_and_no_crash_moves_it(m: Machine) -> None:
    """A sleep ends when it was to end, wherever the process was killed, and not before."""

    def workflow(ctx: Any, value: Any) -> Any:
        m.step("a")(ctx)
        ctx.sleep(60.0)
        return m.step("b")(ctx)

    for state in m.kills(workflow):
        if not state.seen:
            continue
        m.run(workflow)  # if it wasn't recorded yet, the timer begins here
        for wait_s, ended in ((30.0, False), (29.0, False), (1.0, True)):
            m.clock.advance(wait_s)
            outcome = m.run(workflow)
            after_s = m.clock.now() - state.now_s
            m.expect((outcome.error is None) is ended, f"after {after_s:g} of 60 s {outcome}")


# ---- 23: signals --------------------------------------------------------------------------------


def two_answers(m: Machine) -> Workflow:
    """A step, and two waits for signals of one name."""

    def workflow(ctx: Any, value: Any) -> list[Any]:
        m.step("a")(ctx)
        return [m.saw("an answer", ctx.wait_signal("answer", None)) for _ in range(2)]

    return workflow


@SIGNALS.case
def signals_before_the_wait_are_kept_in_order(m: Machine) -> None:
    """Signals that come before anybody waits are kept, and read in the order of their arrival."""
    workflow = two_answers(m)
    m.start(workflow)
    for number in ("first", "second"):
        m.tell("signal", "answer", number, number)
    m.expect_result(m.run(workflow), ["first", "second"])


@SIGNALS.case
def same_signal_counts_once(m: Machine) -> None:
    """The same signal id again counts once, before the run has read it and afterwards."""
    workflow = two_answers(m)
    m.start(workflow)
    for number in ("first", "first"):
        m.tell("signal", "answer", number, number)
    m.expect_refusal(m.run(workflow))
    m.tell("signal", "answer", "first", "first")
    m.expect_refusal(m.run(workflow))
    m.tell("signal", "answer", "second", "second")
    m.expect_result(m.run(workflow), ["first", "second"])


@SIGNALS.case
def taken_signal_survives(m: Machine) -> None:
    """Killed anywhere while it takes a signal, a process leaves it taken once or not at all."""
    workflow = two_answers(m)
    m.run(workflow)
    for _ in m.kills(workflow, lambda: m.tell("signal", "answer", "first", "s-1")):
        m.tell("signal", "answer", "first", "s-1")
        m.tell("signal", "answer", "second", "s-2")
        m.expect_result(m.run(workflow), ["first", "second"])


@SIGNALS.case
def wait_takes_signals_of_its_name_only(m: Machine) -> None:
    """A wait takes no signal of another name."""
    workflow = approval(m)
    m.start(workflow)
    m.tell("signal", "rumour", "no", "s-1")
    m.expect_refusal(m.run(workflow))
    m.tell("signal", "approval", "yes", "s-2")
    m.expect_result(m.run(workflow), ["yes", "b"])


# ---- 24: the race -------------------------------------------------------------------------------


@RACE.case
def signal_in_time_wins_however_late_anybody_looks(m: Machine) -> None:
    """A signal that came in time wins, though nobody looks before the time is over."""
    workflow = approval(m, 60.0)
    m.run(workflow)
    m.clock.advance(59.0)
    m.tell("signal", "approval", "yes", "s-1")
    m.clock.advance(1_000.0)
    m.expect_result(m.run(workflow), ["yes", "b"])


@RACE.case
def late_signal_loses_however_late_anybody_looks(m: Machine) -> None:
    """A signal that came too late loses, though nobody had looked yet when it came."""
    workflow = approval(m, 60.0)
    m.run(workflow)
    m.clock.advance(61.0)
    m.tell("signal", "approval", "yes", "s-1")
    m.expect_result(m.run(workflow), ["too late", "b"])


@RACE.case
def late_signal_waits_for_the_next_wait(m: Machine) -> None:
    """A signal that came too late is there for the next wait of its name."""

    def workflow(ctx: Any, value: Any) -> list[Any]:
        m.step("a")(ctx)
        return [ctx.wait_signal("answer", 60.0) or "too late", ctx.wait_signal("answer", None)]

    m.run(workflow)
    m.clock.advance(61.0)
    m.tell("signal", "answer", "yes", "s-1")
    m.expect_result(m.run(workflow), ["too late", "yes"])


@RACE.case
def verdict_is_recorded(m: Machine) -> None:
    """Once the code has seen who won, no later process decides otherwise."""
    workflow = approval(m, 60.0)
    m.run(workflow)
    m.clock.advance(61.0)
    for _ in m.kills(workflow, lambda: m.run(workflow)):
        m.tell("signal", "approval", "yes", "s-1")
        m.expect_result(m.run(workflow), ["too late", "b"])
        m.expect(m.count("b") <= 2, times(m, "b"))
