"""Laws 10 to 15: failures, bugs, a full disk, values that can't be kept, and idempotency keys.

Guarantees: each case is one sentence and the smallest workflow that shows it. A full disk is real:
the operating system refuses the process's writes. Leaves to others: tries (`waiting`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from durable_mini.lab.conformance.adapter import Workflow
from durable_mini.lab.conformance.laws import Law
from durable_mini.lab.conformance.machine import Machine
from durable_mini.lab.conformance.replaying import times

FAILURE = Law(10, "failures", "A step's final failure is on record, and raised alike on replay.")
BUG = Law(11, "failures", "An error in workflow code ends no run: repaired code goes on.")
STORAGE = Law(12, "failures", "A disk that refuses is no failure of the step that was recorded.")
PAYLOAD = Law(13, "failures", "A value that can't be kept is refused once and for all, by name.")
WINDOW = Law(14, "keys", "An effect that is repeated comes with the key that it came with before.")
KEYS = Law(15, "keys", "No two calls share a key, within a run or between runs.")


def refuses() -> Exception:
    """What a body raises for good."""
    return ValueError("no such customer")


# ---- 10: final failures -------------------------------------------------------------------------


def catching(m: Machine, **options: Any) -> Workflow:
    """A workflow that catches the failure of its step and goes on."""

    def workflow(ctx: Any, value: Any) -> Any:
        try:
            m.step("a", **options)(ctx)
        except Exception as error:
            m.saw("the failure", f"{type(error).__name__}: {error}")
        return m.step("b")(ctx)

    return workflow


@FAILURE.case
def failure_looks_alike(m: Machine) -> None:
    """Code that catches it sees one type and one text, live and on replay."""
    workflow = catching(m, fails=refuses)
    for state in m.kills(workflow):
        m.expect_result(m.run(workflow), "b")
        for name, failure in (*state.seen, *m.seen):
            lost = name == "the failure" and "no such customer" not in failure
            m.expect(not lost, f"what was wrong is lost: {failure}")
        for (name, live), (_, replayed) in zip(state.seen, m.seen, strict=False):
            m.expect(live == replayed, f"of {name} it saw {live} live, {replayed} on replay")


@FAILURE.case
def failed_step_is_not_executed_again(m: Machine) -> None:
    """A failure that the code has seen is not tried again, wherever the process was killed."""
    workflow = catching(m, fails=refuses)
    for state in m.kills(workflow):
        m.run(workflow)
        m.expect(m.count("a") <= (1 if state.seen else 2), times(m, "a"))


@FAILURE.case
def failed_run_stays_failed(m: Machine) -> None:
    """A failure that nobody catches ends the run: told alike ever after, and nothing executed."""
    mended = list[str]()
    workflow = m.script(m.step("a", fails=lambda: None if mended else refuses()))
    first = m.run(workflow)
    m.expect_refusal(first)
    mended.append("now the body would succeed")
    again = m.run(workflow)
    m.expect(m.count("a") == 1, times(m, "a"))
    m.expect(str(again.error) == str(first.error), f"first: {first}; later: {again}")


# ---- 11: bugs -----------------------------------------------------------------------------------


def buggy(m: Machine, bugs: list[str]) -> Workflow:
    """A workflow with a bug between its two steps, as long as `bugs` has one."""

    def workflow(ctx: Any, value: Any) -> Any:
        m.step("a")(ctx)
        for bug in bugs:
            raise KeyError(bug)
        return m.step("b")(ctx)

    return workflow


@BUG.case
def repaired_code_ends_the_run(m: Machine) -> None:
    """Workflow code that raised is repaired; the run goes on and repeats no step."""
    bugs = ["price"]
    workflow = buggy(m, bugs)
    m.expect_refusal(m.run(workflow))
    bugs.clear()
    m.expect_result(m.run(workflow), "b")
    m.expect(m.count("a") == 1, times(m, "a"))


@BUG.case
def bug_before_the_first_step(m: Machine) -> None:
    """So does one that raised before its first step."""
    bugs = ["price"]

    def workflow(ctx: Any, value: Any) -> Any:
        for bug in bugs:
            raise KeyError(bug)
        return m.step("a")(ctx)

    m.expect_refusal(m.run(workflow))
    bugs.clear()
    m.expect_result(m.run(workflow), "a")


# ---- 12: a full disk ----------------------------------------------------------------------------


def filling(m: Machine, fill: Callable[[], None], kind: str) -> Workflow:
    """A workflow that would catch a failure of its step and go on; the disk fills up meanwhile."""

    def workflow(ctx: Any, value: Any) -> Any:
        try:
            getattr(m, kind)("a", during=fill)(ctx)
        except Exception as error:
            m.step("after the failure", str(error))(ctx)
        return m.step("b")(ctx)

    return workflow


@STORAGE.case
def full_disk_ends_the_attempt(m: Machine) -> None:
    """The process stops: workflow code doesn't see a failed step, and nothing more is executed."""
    with m.full_disk() as fill:
        outcome = m.run(filling(m, fill, "step"))
    m.expect_refusal(outcome)
    others = [call.name for call in m.calls if call.name != "a"]
    m.expect(not others, f"{others[:1]} was executed after the disk had refused")


@STORAGE.case
def run_goes_on_when_there_is_room(m: Machine) -> None:
    """Once there is room the run ends as if nothing had been."""
    with m.full_disk() as fill:
        m.run(filling(m, fill, "effect"))
    m.expect_result(m.run(filling(m, lambda: None, "effect")), "b")
    m.expect(not m.count("after the failure"), "the step is on record as failed")


@STORAGE.case
def start_on_a_full_disk_raises(m: Machine) -> None:
    """A run that can't be put on the disk is not accepted, and can be asked for again."""
    workflow = m.script(m.step("a"))
    with m.full_disk() as fill:
        fill()
        started = m.start(workflow)
    if m.disk.files():
        m.expect_refusal(started)
    m.expect_result(m.run(workflow), ["a"])


# ---- 13: values that can't be kept --------------------------------------------------------------


def kept_by_nobody(m: Machine, value: Any) -> None:
    """A step returns a value that can't be kept: refused, by name, after one execution."""
    workflow = m.script(m.step("elephant", gives=value))
    first = m.run(workflow)
    m.expect(first.error is not None, f"{first}, which no JSON text can hold")
    m.expect("elephant" in str(first.error), f"{first}, which doesn't name the step 'elephant'")
    again = m.run(workflow)
    m.expect_refusal(again)
    m.expect(m.count("elephant") == 1, times(m, "elephant"))


@PAYLOAD.case
def object_is_refused(m: Machine) -> None:
    """An object that JSON doesn't have."""
    kept_by_nobody(m, {1, 2})


@PAYLOAD.case
def not_a_number_is_refused(m: Machine) -> None:
    """A number that JSON doesn't have."""
    kept_by_nobody(m, float("nan"))


@PAYLOAD.case
def keys_that_become_one_are_refused(m: Machine) -> None:
    """Two keys that JSON makes one of: 1 and "1"."""
    kept_by_nobody(m, {1: "one", "1": "uno"})


@PAYLOAD.case
def input_is_refused(m: Machine) -> None:
    """An input that can't be kept is refused by start, and no run is there."""
    workflow = m.script(m.step("a"))
    m.expect_refusal(m.start(workflow, {1, 2}))
    m.expect_result(m.run(workflow), ["a"])


# ---- 14 and 15: keys ----------------------------------------------------------------------------


@WINDOW.case
def effect_gets_a_key(m: Machine) -> None:
    """An effect is handed a key, which is a text."""
    m.run(m.script(m.effect("a")))
    m.expect(m.calls, "it was not executed")
    m.expect(all(isinstance(key, str) and key for key in m.keys("a")), f"its key is {m.keys('a')}")


@WINDOW.case
def key_survives_a_kill(m: Machine) -> None:
    """Killed anywhere, each effect comes with one key in both processes."""
    workflow = m.script(m.effect("a"), m.effect("b"))
    for _ in m.kills(workflow):
        m.run(workflow)
        for name in ("a", "b"):
            m.expect(len(set(m.keys(name))) == 1, f"{name!r} came with the keys {m.keys(name)}")


@WINDOW.case
def key_survives_many_kills(m: Machine) -> None:
    """Killed in its crash window three times over, it comes with one key."""
    workflow = m.script(m.effect("a"))
    for times_killed in range(3):
        states = m.states(lambda: m.run(workflow))
        executed = [state for state in states if len(state.calls) > times_killed]
        m.rewind(m.state_where(executed, lambda _: True, "it is executed again"))
    m.run(workflow)
    m.expect(len(set(m.keys("a"))) == 1, f"'a' came with the keys {m.keys('a')}")


def all_differ(m: Machine) -> None:
    """Say that the law is broken unless each body that was executed had a key of its own."""
    keys = [call.key for call in m.calls]
    m.expect(len(set(keys)) == len(keys), f"the keys are {keys}")


@KEYS.case
def names_have_keys_of_their_own(m: Machine) -> None:
    """Two effects of a run with the same arguments."""
    m.run(m.script(m.effect("charge", "ada", 40), m.effect("mail", "ada", 40)))
    all_differ(m)


@KEYS.case
def repeated_name_has_a_key_each(m: Machine) -> None:
    """A name that a run repeats, with the same arguments."""
    m.run(m.script(*[m.effect("charge", "ada", 40)] * 3))
    all_differ(m)


@KEYS.case
def runs_have_keys_of_their_own(m: Machine) -> None:
    """The same effect with the same arguments in two runs."""
    workflow = m.script(m.effect("charge", "ada", 40))
    for run_id in ("r-1", "r-2"):
        m.run(workflow, run_id=run_id)
    all_differ(m)


@KEYS.case
def signs_in_names_make_no_key_twice(m: Machine) -> None:
    """Slashes and number signs in run ids and names."""
    m.run(m.script(m.effect("b/c")), run_id="a")
    m.run(m.script(m.effect("c")), run_id="a/b")
    m.run(m.script(m.effect("x"), m.effect("x"), m.effect("x#2"), m.effect("x/2")), run_id="r")
    all_differ(m)
