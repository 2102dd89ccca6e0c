"""Laws 25 to 28: compensation, cancellation, changed structure and cost, for who offers them.

Guarantees: each case is one sentence and the smallest workflow that shows it. Leaves to others:
what the receiver makes of an undo (it is handed both keys).
"""

from __future__ import annotations

from typing import Any

from durable_mini.lab.conformance.adapter import Workflow
from durable_mini.lab.conformance.failing import refuses
from durable_mini.lab.conformance.laws import Law
from durable_mini.lab.conformance.machine import Machine
from durable_mini.lab.conformance.replaying import times

SAGA = Law(25, "sagas", "A failed run undoes what it did, the last first, each undo once.", "sagas")
CANCEL = Law(26, "sagas", "A cancelled run undoes what it did, too.", "sagas")
STRUCTURE = Law(
    27,
    "structure",
    "Changed durable calls are refused before anything runs, an edit isn't.",
    "structure",
)
COST = Law(28, "cost", "What was spent is counted once, whatever was killed.", "cost")


# ---- 25 and 26: sagas ---------------------------------------------------------------------------


def trip(m: Machine, before_last: Any = lambda: None, **last: Any) -> Workflow:
    """Two bookings with their undos, and a last step."""

    def workflow(ctx: Any, value: Any) -> Any:
        for name in ("flight", "hotel"):
            ctx.compensate(name, m.body(f"undo {name}", "undone"), name)
            m.effect(name, name)(ctx)
        before_last()
        return m.step("last", **last)(ctx)

    return workflow


def undone(m: Machine) -> list[str]:
    """The undos that took effect, in order: a repeat with the same key takes none."""
    first = {call.key: call.name for call in m.calls if call.name.startswith("undo")}
    return list(first.values())


@SAGA.case
def failed_run_undoes_in_reverse(m: Machine) -> None:
    """The last step fails: both bookings are undone, the hotel first, and the run has failed."""
    m.expect_refusal(m.run(trip(m, fails=refuses)))
    names = [call.name for call in m.calls]
    right = ["flight", "hotel", "last", "undo hotel", "undo flight"]
    m.expect(names == right, f"executed was {names}, right is {right}")


@SAGA.case
def undo_is_known_before_what_it_undoes(m: Machine) -> None:
    """A booking that fails is undone too: nobody knows what it has left behind."""

    def workflow(ctx: Any, value: Any) -> Any:
        ctx.compensate("flight", m.body("undo flight", "undone"))
        return m.effect("flight", fails=refuses)(ctx)

    m.expect_refusal(m.run(workflow))
    m.expect(m.count("undo flight") == 1, times(m, "undo flight"))


@SAGA.case
def undos_survive_a_kill(m: Machine) -> None:
    """Killed anywhere, each undo takes effect once, in reverse, under a key of its own."""
    workflow = trip(m, fails=refuses)
    for _ in m.kills(workflow):
        m.expect_refusal(m.run(workflow))
        m.expect(undone(m) == ["undo hotel", "undo flight"], f"undone was {undone(m)}")
        m.expect(len(m.calls) <= 6, f"more than one body was executed again: {m.calls}")
        keys = {call.key for call in m.calls if call.name != "last"}
        m.expect(len(keys) == 4, f"two effects and two undos came with the keys {keys}")


@SAGA.case
def undone_run_stays_failed(m: Machine) -> None:
    """A run that has failed and undone is told alike ever after, and undoes nothing again."""
    workflow = trip(m, fails=refuses)
    first = m.run(workflow)
    again = m.run(workflow)
    m.expect(str(again.error) == str(first.error), f"first {first}; later {again}")
    m.expect(len(m.calls) == 5, f"{len(m.calls)} bodies were executed, there are 5")


@SAGA.case
def completed_run_undoes_nothing(m: Machine) -> None:
    """A run that comes to its end undoes nothing."""
    m.expect_result(m.run(trip(m)), "last")
    m.expect(not undone(m), f"undone was {undone(m)}")


@CANCEL.case
def cancelled_run_undoes(m: Machine) -> None:
    """Cancelled after its bookings, a run does no further step, and undoes both."""
    workflow = trip(m, lambda: m.engine.cancel("r-1"))
    m.expect_refusal(m.run(workflow))
    names = [call.name for call in m.calls]
    right = ["flight", "hotel", "undo hotel", "undo flight"]
    m.expect(names == right, f"executed was {names}, right is {right}")


@CANCEL.case
def run_cancelled_before_it_begins_does_nothing(m: Machine) -> None:
    """Cancelled before its first step, a run executes nothing."""
    workflow = trip(m)
    m.start(workflow)
    m.tell("cancel")
    m.expect_refusal(m.run(workflow))
    m.expect(not m.calls, f"executed was {m.calls}")
    m.expect_result(m.run(workflow, run_id="r-2"), "last")


@CANCEL.case
def cancelling_survives_a_kill(m: Machine) -> None:
    """Killed anywhere in a cancelled run, each undo takes effect once, in reverse."""
    asked = list[str]()

    def cancel() -> None:
        asked.append(m.engine.cancel("r-1"))

    workflow = trip(m, cancel)
    for _ in m.kills(workflow):
        m.expect_refusal(m.run(workflow))
        m.expect(undone(m) == ["undo hotel", "undo flight"], f"undone was {undone(m)}")
        m.expect(not m.count("last"), "'last' was executed in a cancelled run")


# ---- 27: structure ------------------------------------------------------------------------------


def before_an_edit(m: Machine) -> Workflow:
    """Two steps, written out."""

    def workflow(ctx: Any, value: Any) -> Any:
        ctx.step("a", m.body("a", "a"))
        return ctx.step("b", m.body("b", "b"))

    return workflow


def with_another_ending(m: Machine) -> Workflow:
    """The same, but its second step has become another."""

    def workflow(ctx: Any, value: Any) -> Any:
        ctx.step("a", m.body("a", "a"))
        return ctx.step("z", m.body("z", "z"))

    return workflow


def after_an_edit(m: Machine) -> Workflow:
    """The same durable calls as before the edit, with a comment and written in another way."""

    def workflow(ctx: Any, value: Any) -> Any:
        # An edit that changes no durable call.
        work = {name: m.body(name, name) for name in ("a", "b")}
        ctx.step("a", work["a"])
        result = ctx.step("b", work["b"])
        return result  # noqa: RET504 - another way to write it

    return workflow


def between_two_steps(m: Machine) -> list[Any]:
    """The states in which the first step is on record and the second is not yet executed."""
    states = m.states(lambda: m.run(before_an_edit(m)))
    return [state for state in states if [call.name for call in state.calls] == ["a"]]


@STRUCTURE.case
def change_ahead_is_refused(m: Machine) -> None:
    """Code whose next steps have changed is refused before any of it runs, and writes nothing."""
    changed, good = with_another_ending(m), before_an_edit(m)
    for state in between_two_steps(m):
        m.rewind(state)
        before = m.history()
        m.expect_refusal(m.resume(changed))
        new = [call.name for call in m.calls[1:]]
        m.expect(not new, f"{new[:1]} was executed by code that had changed")
        m.expect(m.history() == before, f"the history was {before}, it became {m.history()}")
        m.expect_result(m.resume(good), "b")


@STRUCTURE.case
def edit_is_accepted(m: Machine) -> None:
    """Code with the same durable calls, edited otherwise, goes on with the run."""
    edited = after_an_edit(m)
    for state in between_two_steps(m):
        m.rewind(state)
        m.expect_result(m.resume(edited), "b")


# ---- 28: cost -----------------------------------------------------------------------------------


@COST.case
def cost_adds_up(m: Machine) -> None:
    """A run has spent what its steps cost."""
    m.run(m.script(m.step("a", cost=2.0), m.effect("b", cost=0.5), m.step("c")))
    m.expect(m.tell("cost") == 2.5, f"the run has spent {m.tell('cost')}, its steps cost 2.5")


@COST.case
def cost_is_counted_once(m: Machine) -> None:
    """Killed anywhere, it has spent the same."""
    workflow = m.script(m.step("a", cost=2.0), m.effect("b", cost=0.5))
    for _ in m.kills(workflow):
        m.run(workflow)
        m.expect(m.tell("cost") == 2.5, f"the run has spent {m.tell('cost')}, its steps cost 2.5")
