"""Laws over workflows that are drawn: other names, other values, loops and failures.

Guarantees: what has to hold is worked out from the drawn calls alone; no engine is asked for it.
The same source of chance draws the same. Leaves to others: the laws by name and their smallest
workflows (`replaying`, `failing`, `storing`), which a counter-example should come from first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from durable_mini.lab.conformance.adapter import Workflow
from durable_mini.lab.conformance.laws import Law
from durable_mini.lab.conformance.machine import Ask, Machine, State
from durable_mini.lab.conformance.replaying import times
from durable_mini.lab.conformance.storing import Append, appends

NAMES = ("charge", "charge", "think", "büro/öffnen", "größe #2", "a b", "mail", "step", "0")
VALUES: tuple[Any, ...] = (
    *(None, False, True, 0, 0.0, "", [], {}, -1, 3.5, "done", "Zoë", "zwei\nZeilen", "„ja“ \\ / #"),
    *([None, [False]], {"a": {"b": None}}, ("EUR", 40), [("x", 1)], {"": 0}, 10**20, "x" * 300),
)
FAILURES = (ValueError("no such customer"), KeyError("price"), ConnectionError(""))
SIGNS = "/#:|-_.,;%@+ ~\\"


class Drawn(NamedTuple):
    """One durable call: its label among the drawn ones, what it is and what its body comes to."""

    label: str
    kind: str
    name: str
    args: tuple[Any, ...]
    gives: Any
    fails: Exception | None = None

    def ask(self, m: Machine) -> Ask:
        """The call, for a workflow."""
        body = m.body(self.label, self.gives, lambda: self.fails)

        def ask(ctx: Any) -> Any:
            try:
                got = getattr(ctx, self.kind)(self.name, body, *self.args)
            except Exception as error:
                return m.saw(self.label, f"failed: {error}") and "failed"
            return m.saw(self.label, got)

        return ask

    @property
    def result(self) -> Any:
        """What the workflow makes of it: live as on replay what JSON gives back."""
        return "failed" if self.fails else json.loads(json.dumps(self.gives))


def drawn_calls(rng: Random, failures: int = 0) -> list[Drawn]:
    """Four to six calls, names among them that come again; so many of them fail."""
    calls = []
    for number in range(rng.randint(4, 6)):
        about = rng.choice(("step", "effect")), rng.choice(NAMES), (number, rng.choice(VALUES))
        calls.append(Drawn(f"call {number}", *about, rng.choice(VALUES)))
    for number in rng.sample(range(len(calls)), failures):
        calls[number] = calls[number]._replace(fails=rng.choice(FAILURES))
    return calls


def drawn_law(group: str, rng: Random) -> Law:
    """A law of a group over drawn workflows; law 0 has no place among the numbered ones.

    Args:
        group: one of `TITLES`.
        rng: where the draw comes from.
    """
    law = Law(0, group, TITLES[group])
    law.case(_CASES[group](rng))
    return law


TITLES = {
    "replay": "Whatever is called: killed anywhere, a run ends as if nothing had been.",
    "identity": "Whatever call was changed since, code that doesn't fit is refused.",
    "failures": "Whatever a step gives or raises, the code sees it alike, now and later.",
    "keys": "Whatever signs names have, each call has a key of its own, and keeps it.",
    "torn writes": "Whatever was acknowledged survives a power cut and a torn write.",
}
"""What is drawn for each group."""


def _killed(rng: Random) -> Any:
    calls = drawn_calls(rng)

    def case(m: Machine) -> None:
        """A drawn workflow."""
        workflow = m.script(*[call.ask(m) for call in calls])
        for state in m.kills(workflow):
            m.expect_result(m.run(workflow), [call.result for call in calls])
            known = {label for label, _ in state.seen}
            for call in calls:
                most = 1 if call.label in known else 2
                m.expect(m.count(call.label) <= most, f"{_told(call)}: {times(m, call.label)}")

    return case


def _seen(rng: Random) -> Any:
    calls, value = drawn_calls(rng, failures=2), rng.choice(VALUES)

    def case(m: Machine) -> None:
        """A drawn workflow."""
        workflow = m.script(*[call.ask(m) for call in calls])
        m.new()
        for state in m.kills(workflow, lambda: m.run(workflow, {"order": [value]})):
            if state.started:
                m.expect_result(m.resume(workflow), [call.result for call in calls])
                for (label, live), (_, replayed) in zip(state.seen, m.seen, strict=False):
                    what = _told(calls[[call.label for call in calls].index(label)])
                    m.expect(live == replayed, f"{what}: {live} live, {replayed} on replay")

    return case


def _keys(rng: Random) -> Any:
    calls = [call._replace(kind="effect") for call in drawn_calls(rng)]

    def case(m: Machine) -> None:
        """A drawn workflow, and names whose signs could be taken for those of a key."""
        workflow = m.script(*[call.ask(m) for call in calls])
        for _ in m.kills(workflow):
            m.run(workflow)
            for call in calls:
                got = m.keys(call.label)
                m.expect(len(set(got)) == 1, f"{_told(call)} came with the keys {got}")
        m.new()
        for sign in SIGNS:
            m.run(m.script(m.effect(f"b{sign}c")), run_id="a")
            m.run(m.script(m.effect("c")), run_id=f"a{sign}b")
            repeated = [m.effect(name) for name in ("x", "x", f"x{sign}1", f"x{sign}2")]
            m.run(m.script(*repeated), run_id=f"r{sign}")
            keys = [call.key for call in m.calls]
            alike = sorted({str(key) for key in keys if keys.count(key) > 1})
            m.expect(not alike, f"with {sign!r} in names two calls have the key {alike[:1]}")
            m.new()

    return case


def _changed(rng: Random) -> Any:
    calls = drawn_calls(rng)
    at = rng.randrange(len(calls))
    edits = {
        "another name": [*calls[:at], calls[at]._replace(name="other"), *calls[at + 1 :]],
        "another kind": [*calls[:at], _other_kind(calls[at]), *calls[at + 1 :]],
        "other arguments": [*calls[:at], calls[at]._replace(args=("other",)), *calls[at + 1 :]],
        "one call more": [*calls[:at], Drawn("new", "step", "new", (), 1), *calls[at:]],
        "one call less": [*calls[:at], *calls[at + 1 :]],
        "its end cut off": calls[:at],
    }

    def case(m: Machine) -> None:
        """A drawn workflow of which a recorded call was changed."""
        good = m.script(*[call.ask(m) for call in calls], m.step("last"))
        state = _stopped(m, good, len(calls))
        for what, edited in edits.items():
            m.rewind(state, how=f"killed {state.place}, and deployed with {what} at call {at + 1}")
            before = m.history()
            m.expect_refusal(m.resume(m.script(*[call.ask(m) for call in edited])))
            new = [call.name for call in m.calls[len(state.calls) :]]
            m.expect(not new, f"{new[:1]} was executed by code that doesn't fit")
            m.expect(m.history() == before, f"the history was {before}, it became {m.history()}")
        m.expect_result(m.resume(good), [*[call.result for call in calls], "last"])

    return case


def _other_kind(call: Drawn) -> Drawn:
    return call._replace(kind="step" if call.kind == "effect" else "effect")


def _stopped(m: Machine, workflow: Workflow, seen: int) -> State:
    """The state in which so many calls have returned and the next is not yet executed."""
    m.new()
    states = m.states(lambda: m.run(workflow))
    return m.state_where(states, lambda state: len(state.seen) == seen, f"{seen} calls return")


def _stored(rng: Random) -> Any:
    calls = drawn_calls(rng)

    def case(m: Machine) -> None:
        """A drawn workflow, and a disk that keeps what it must."""
        workflow, results = m.script(*[call.ask(m) for call in calls]), [c.result for c in calls]
        m.new()
        states = [state for state in m.states(lambda: m.run(workflow)) if state.started]
        for state in states:
            m.rewind(state, state.spared, f"power cut {state.place}")
            m.expect_result(m.run(workflow), results)
            for label, _ in state.seen:
                m.expect(m.count(label) == 1, f"{times(m, label)}: its record was never synced")
        for append in appends([state for state in states if state.seen]):
            for files, how in _harmed(append, rng):
                m.rewind(append.before, files, how)
                m.expect_result(m.run(workflow), results)
                m.expect_result(m.run(workflow), results)
                for label, _ in append.before.seen:
                    m.expect(m.count(label) == 1, times(m, label))

    return case


def _harmed(append: Append, rng: Random) -> Iterator[tuple[dict[str, bytes], str]]:
    old, new = append.lengths
    for length in {old + 1, new - 1, rng.randrange(old, new)}:
        whole = append.after.files[append.name]
        how = f"{append.name} cut to {length} of {len(whole)} bytes"
        yield {**append.before.files, append.name: whole[:length]}, how


def _told(call: Drawn) -> str:
    return f"{call.kind} {call.name!r}, which gives {call.gives!r:.60}"


_CASES = {
    "replay": _killed,
    "identity": _changed,
    "failures": _seen,
    "keys": _keys,
    "torn writes": _stored,
}
