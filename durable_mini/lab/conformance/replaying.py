"""Laws 1 to 9: admission, replay, and whether a record is given to the call that it belongs to.

Guarantees: each case is one sentence and the smallest workflow that shows it. Leaves to others:
killing and the disk (`machine`), failures, keys and storage (`failing`, `storing`).
"""

from collections.abc import Iterator
from typing import Any

from durable_mini.lab.conformance.adapter import Workflow
from durable_mini.lab.conformance.laws import Law
from durable_mini.lab.conformance.machine import VALUE, Ask, Machine, State

ADMISSION = Law(1, "replay", "A run is on record before anything of it executes.")
REPLAY = Law(2, "replay", "What is on record is never executed again.")
LIVE = Law(3, "failures", "The code sees the first time what it will see on replay.")
ORDER = Law(4, "replay", "Events are numbered without a gap, in the code's order, after any kill.")
NAMES = Law(5, "identity", "A record is not given to a call of another name.")
KINDS = Law(6, "identity", "A record is not given to a call of another kind.")
ARGUMENTS = Law(7, "identity", "A record is not given to a call with other arguments.")
NUMBER = Law(8, "identity", "Code that leaves recorded calls out doesn't come to an end.")
DIVERGENCE = Law(9, "identity", "A divergence is told, can't be swallowed, and changes nothing.")


# ---- 1: admission -------------------------------------------------------------------------------


@ADMISSION.case
def start_executes_nothing(m: Machine) -> None:
    """Starting a run executes nothing of it."""
    workflow = m.script(m.step("a"))
    started = m.start(workflow)
    m.expect(started.error is None, f"start: {started}")
    m.expect(not m.calls, "something was executed")
    m.run(workflow)


@ADMISSION.case
def accepted_run_survives(m: Machine) -> None:
    """A process that is killed right after it accepted a run leaves one that another can drive."""

    def workflow(ctx: Any, value: Any) -> list[Any]:
        return [value, m.step("a")(ctx)]

    states = m.states(lambda: m.start(workflow))
    m.rewind(m.state_where(states, lambda state: state.started, "a run is accepted"))
    m.expect_result(m.resume(workflow), [VALUE, "a"])


@ADMISSION.case
def same_request_is_the_same_run(m: Machine) -> None:
    """The same request again, before and after the end, is the same run."""
    workflow = m.script(m.step("a"))
    for _ in range(2):
        again = m.start(workflow)
        m.expect(again.error is None, f"the same start again: {again}")
        m.expect_result(m.run(workflow), ["a"])
    m.expect(m.count("a") == 1, f"'a' was executed {m.count('a')} times")


@ADMISSION.case
def other_input_is_refused(m: Machine) -> None:
    """The same run id with another input is refused, and the first run stands."""

    def workflow(ctx: Any, value: Any) -> list[Any]:
        return [value, m.step("a")(ctx)]

    m.start(workflow, "first")
    m.expect_refusal(m.start(workflow, "second"))
    m.expect_result(m.resume(workflow), ["first", "a"])


@ADMISSION.case
def start_can_be_killed_anywhere(m: Machine) -> None:
    """Killed anywhere in start, a process leaves a run or none, and asking again ends it."""
    workflow = m.script(m.step("a"))
    for _ in m.kills(workflow, lambda: m.start(workflow)):
        m.expect_result(m.run(workflow), ["a"])
        m.expect(m.count("a") == 1, f"'a' was executed {m.count('a')} times")


# ---- 2: replay ----------------------------------------------------------------------------------


def times(m: Machine, name: str) -> str:
    """How often a body was executed, in words."""
    return f"{name!r} was executed {m.count(name)} times"


def once_each(m: Machine, workflow: Workflow, result: list[Any]) -> None:
    """Kill it everywhere: only a call that had not returned, and isn't on record, is repeated."""
    for state in m.kills(workflow):
        on_record = m.recorded()
        m.expect_result(m.run(workflow), result)
        known = {name for name, _ in state.seen} | set(on_record)
        for name in {call.name for call in m.calls}:
            most = 1 if name in known else 2
            m.expect(m.count(name) <= most, times(m, name))


@REPLAY.case
def ended_run_is_told(m: Machine) -> None:
    """A run that has ended is told again by every later process, and executes nothing."""
    workflow = m.script(m.step("a"), m.effect("b"))
    for _ in range(3):
        m.expect_result(m.run(workflow), ["a", "b"])
    m.expect(len(m.calls) == 2, f"{len(m.calls)} bodies were executed, there are 2")


@REPLAY.case
def killed_run_goes_on(m: Machine) -> None:
    """Killed anywhere, the run ends with the same result, and nothing recorded is repeated."""
    once_each(
        m, m.script(m.step("a", VALUE), m.effect("b", "a"), m.step("c", "b")), ["a", "b", "c"]
    )


@REPLAY.case
def empty_result_is_a_result(m: Machine) -> None:
    """A result that is None, zero or empty is on record like any other."""
    nothings: tuple[Any, ...] = (None, 0, "", [])
    for value in nothings:
        once_each(m, m.script(m.effect("a", gives=value)), [value])


@REPLAY.case
def repeated_name_has_a_record_each(m: Machine) -> None:
    """A name that comes three times has three records, and each call gets its own."""
    asks = [m.step("think", topic, gives=f"on {topic}") for topic in ("price", "date", "owner")]
    result = ["on price", "on date", "on owner"]
    workflow = m.script(*asks)
    for state in m.kills(workflow):
        m.expect_result(m.run(workflow), result)
        for topic in ("price", "date", "owner"):
            executed = sum(call.args == (topic,) for call in m.calls)
            most = 1 if (("think", repr(f"on {topic}")) in state.seen) else 2
            m.expect(executed <= most, f"'think' about {topic} was executed {executed} times")


@REPLAY.case
def recovery_can_be_killed(m: Machine) -> None:
    """Killed anywhere, and again anywhere in the recovery, it still ends right."""
    workflow = m.script(m.effect("a"))
    for first in [*m.kills(workflow)]:
        m.rewind(first)
        for second in m.kills(workflow, lambda: m.run(workflow)):
            m.expect_result(m.run(workflow), ["a"])
            most = 1 if first.seen else 2 if second.seen else 3
            m.expect(m.count("a") <= most, times(m, "a"))


# ---- 3: live equals replay ----------------------------------------------------------------------


def seen_alike(m: Machine, workflow: Workflow, value: Any = VALUE) -> None:
    """Kill it everywhere: what the next process hands to the code is what the code saw before."""
    m.new()
    for state in m.kills(workflow, lambda: m.run(workflow, value)):
        if not state.seen:
            continue  # it has nothing to compare with
        m.resume(workflow)
        for (name, live), (_, replayed) in zip(state.seen, m.seen, strict=False):
            m.expect(
                live == replayed, f"of {name!r} the code saw {live} live, {replayed} on replay"
            )


@LIVE.case
def tuples_and_keys_look_alike(m: Machine) -> None:
    """A tuple or a number as a key looks the same live and on replay."""
    for value in (("EUR", 40), {1: "one"}):
        seen_alike(m, m.script(m.step("a", gives=value)))


@LIVE.case
def input_looks_alike(m: Machine) -> None:
    """The run's input looks the same in the first process and in every later one."""

    def workflow(ctx: Any, value: Any) -> Any:
        m.saw("the input", value)
        return m.step("a")(ctx)

    seen_alike(m, workflow, {"pair": ("EUR", 40), 1: "one"})


@LIVE.case
def record_can_not_be_changed_by_code(m: Machine) -> None:
    """What workflow code does to a result or to the input changes no record."""

    def workflow(ctx: Any, value: Any) -> Any:
        m.saw("the input", value)
        value.append("mine")
        got = m.step("a", gives=["theirs"])(ctx)
        got.append("mine")
        return m.step("b")(ctx)

    seen_alike(m, workflow, ["theirs"])


@LIVE.case
def argument_can_not_be_changed_by_a_body(m: Machine) -> None:
    """A body that changes its argument changes nothing that the workflow sees."""

    def fill(basket: list[str]) -> str:
        basket.append("apple")
        return str(m.body("a", "filled")())

    def workflow(ctx: Any, value: Any) -> Any:
        basket: list[str] = []
        ctx.step("a", fill, basket)
        m.saw("the basket after 'a'", basket)
        return m.step("b")(ctx)

    seen_alike(m, workflow)


@LIVE.case
def result_can_not_be_changed_by_a_body(m: Machine) -> None:
    """A body that changes later what it returned changes nothing that the workflow sees."""

    def workflow(ctx: Any, value: Any) -> Any:
        kept: list[str] = []

        def change() -> str:
            kept.append("later")
            return str(m.body("b", "changed")())

        got = ctx.step("a", lambda: m.body("a")() or kept)
        ctx.step("b", change)
        m.saw("the result of 'a' after 'b'", got)
        return m.step("c")(ctx)

    seen_alike(m, workflow)


# ---- 4: order -----------------------------------------------------------------------------------


def three(m: Machine) -> Workflow:
    """A step, an effect and a step."""
    return m.script(m.step("a"), m.effect("b"), m.step("c"))


def dense(m: Machine, history: list[tuple[int, str, str]]) -> None:
    """Say that the law is broken unless the numbers have no gap."""
    numbers = [seq for seq, _, _ in history]
    m.expect(numbers == [*range(1, len(numbers) + 1)], f"the events have the numbers {numbers}")


@ORDER.case
def calls_are_in_order(m: Machine) -> None:
    """Without a kill, the history has the calls in order and numbers them from 1."""
    m.expect_result(m.run(three(m)), ["a", "b", "c"])
    dense(m, m.history())
    names = [name for name in m.recorded() if name in {"a", "b", "c"}]
    m.expect(names == ["a", "b", "c"], f"the history has {names}")


@ORDER.case
def history_after_a_kill_is_the_same(m: Machine) -> None:
    """After a kill anywhere and a recovery, the history is that of a run which was never killed."""
    workflow = three(m)
    m.run(workflow)
    undisturbed = m.history()
    for _ in m.kills(workflow):
        m.run(workflow)
        history = m.history()
        dense(m, history)
        m.expect(history == undisturbed, f"the history is {history}, undisturbed {undisturbed}")


# ---- 5 to 8: identity ---------------------------------------------------------------------------


def conflicts(m: Machine, recorded: list[Ask], asked: list[Ask], at: str) -> Iterator[State]:
    """Resume with other code wherever `at` is on record, and see that it gets nothing."""
    good, bad, tried = m.script(*recorded, m.step("last")), m.script(*asked), 0
    for state in m.kills(good):
        on_record = m.recorded() if m.count(at) and not m.count("last") else []
        if at not in on_record:
            continue
        tried += 1
        outcome = m.resume(bad)
        m.expect(outcome.error is not None, f"{outcome}; another call is on record")
        new = [call.name for call in m.calls[len(state.calls) :]]
        m.expect(not new, f"{new[:1]} was executed, though another call is on record")
        yield state
    m.expect(tried, f"{at!r} never comes on record before 'last' is executed")


def refused(m: Machine, recorded: list[Ask], asked: list[Ask], at: str) -> None:
    """Resume with other code wherever `at` is on record: it gets nothing."""
    for _ in conflicts(m, recorded, asked, at):
        pass


@NAMES.case
def first_name(m: Machine) -> None:
    """Another name at the first call is refused."""
    refused(m, [m.step("a")], [m.step("x"), m.step("last")], "a")


@NAMES.case
def second_name(m: Machine) -> None:
    """Another name behind a call that fits is refused."""
    refused(m, [m.step("a"), m.effect("b")], [m.step("a"), m.effect("x")], "b")


@NAMES.case
def swapped_names(m: Machine) -> None:
    """Two calls that changed places are refused."""
    refused(m, [m.step("a"), m.step("b")], [m.step("b"), m.step("a")], "b")


@KINDS.case
def step_became_effect(m: Machine) -> None:
    """A step that became an effect is refused."""
    refused(m, [m.step("a")], [m.effect("a"), m.step("last")], "a")


@KINDS.case
def effect_became_step(m: Machine) -> None:
    """An effect that became a step is refused."""
    refused(m, [m.effect("a")], [m.step("a"), m.step("last")], "a")


@ARGUMENTS.case
def other_argument(m: Machine) -> None:
    """The same call with another argument is refused."""
    refused(m, [m.effect("a", 40)], [m.effect("a", 90), m.step("last")], "a")


@ARGUMENTS.case
def swapped_customers(m: Machine) -> None:
    """Two calls of one name that swapped their arguments are refused."""
    ada, bob = m.effect("charge", "ada"), m.effect("charge", "bob")
    refused(m, [ada, m.step("a"), bob], [bob, m.step("a"), ada, m.step("last")], "a")


@ARGUMENTS.case
def number_and_text(m: Machine) -> None:
    """1 and "1" are two arguments."""
    refused(m, [m.step("a", 1)], [m.step("a", "1"), m.step("last")], "a")


@NUMBER.case
def no_call_left(m: Machine) -> None:
    """Code that makes no call at all, where one is on record, is refused."""
    refused(m, [m.step("a")], [], "a")


@NUMBER.case
def one_call_less(m: Machine) -> None:
    """Code that ends before the last call on record is refused."""
    refused(m, [m.step("a"), m.effect("b")], [m.step("a")], "b")


# ---- 9: divergence ------------------------------------------------------------------------------


def diverging(m: Machine) -> Iterator[State]:
    """A divergence that no identity check misses: other kind, name and arguments, fewer calls."""
    return conflicts(m, [m.step("a", 1), m.step("b", 2)], [m.effect("x", "y")], "a")


@DIVERGENCE.case
def nothing_is_written(m: Machine) -> None:
    """However often it is tried, a diverged run's history stays as it was."""
    other = m.script(m.effect("x", "y"))
    for state in diverging(m):
        m.rewind(state)
        before = m.history()
        for _ in range(3):
            m.resume(other)
        m.expect(m.history() == before, f"the history was {before}, it became {m.history()}")


@DIVERGENCE.case
def error_names_both(m: Machine) -> None:
    """The error names what is on record and what was asked for."""
    other = m.script(m.effect("elephant", "y"))
    for _ in diverging(m):
        outcome = m.resume(other)
        both = "'a'" in str(outcome.error) and "'elephant'" in str(outcome.error)
        m.expect(both, f"{outcome}; it should name 'a' and 'elephant'")


@DIVERGENCE.case
def nobody_swallows_it(m: Machine) -> None:
    """Workflow code that catches every Exception can't go on after a divergence."""

    def stubborn(ctx: Any) -> Any:
        try:
            m.effect("x", "y")(ctx)
        except Exception:
            return m.step("last")(ctx)
        return "x went through"

    workflow = m.script(stubborn)
    for state in diverging(m):
        m.rewind(state)
        m.expect_refusal(m.resume(workflow))
        m.expect(not m.count("last"), "'last' was executed after the divergence")


@DIVERGENCE.case
def repaired_code_goes_on(m: Machine) -> None:
    """It is no verdict: with the code repaired the run comes to its end."""
    good = m.script(m.step("a", 1), m.step("b", 2), m.step("last"))
    for state in diverging(m):
        m.expect_result(m.resume(good), ["a", "b", "last"])
        for name, _ in state.seen:
            m.expect(m.count(name) == 1, times(m, name))
