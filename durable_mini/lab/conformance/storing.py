"""Laws 16 to 20: what the disk keeps, what it is torn into, and who may write.

Guarantees: an append is cut at every byte; one of more than 2,000 bytes (a database's pages) at
every disk sector and before its last byte. Leaves to others: what a database does with its own file
when it creates it; and for SQLite the sync itself, which happens below Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from durable_mini.lab.conformance.adapter import Workflow
from durable_mini.lab.conformance.disk import of_sqlite
from durable_mini.lab.conformance.laws import Law
from durable_mini.lab.conformance.machine import Beside, Machine, Outcome, SkippedError, State
from durable_mini.lab.conformance.replaying import three, times

SYNCED = Law(
    16, "torn writes", "What was acknowledged is on the disk, for a power cut too.", "files"
)
TORN = Law(17, "torn writes", "A write that was cut off costs at most its own record.", "files")
DAMAGE = Law(
    18, "torn writes", "Damage before the last record is refused, never handed out.", "files"
)
FENCED = Law(
    19, "fencing", "Who lost a run writes nothing more and executes nothing more.", "fencing"
)
ATOMIC = Law(
    20, "fencing", "The refusal and the write are one: no gap between look and write.", "fencing"
)

_EVERY_BYTE, _SECTOR = 2_000, 512
MARK = "a-value-that-stands-nowhere-else"


# ---- 16: synced ---------------------------------------------------------------------------------


@SYNCED.case
def accepted_run_survives_a_power_cut(m: Machine) -> None:
    """A run is still there when the power fails right after start returned."""
    workflow = m.script(m.step("a"))
    states = m.states(lambda: m.start(workflow))
    state = m.state_where(states, lambda state: state.started, "a run is accepted")
    m.rewind(state, state.spared, f"power cut {state.place}")
    m.expect_result(m.resume(workflow), ["a"])


@SYNCED.case
def seen_result_survives_a_power_cut(m: Machine) -> None:
    """A step whose result the workflow has seen is not executed again after a power cut."""
    workflow = three(m)
    for state in m.kills(workflow):
        m.rewind(state, state.spared, f"power cut {state.place}")
        m.expect_result(m.run(workflow), ["a", "b", "c"])
        for name, _ in state.seen:
            m.expect(m.count(name) == 1, f"{times(m, name)}: its record was never synced")


@SYNCED.case
def told_result_survives_a_power_cut(m: Machine) -> None:
    """A result that was returned is told again after a power cut, and nothing is executed."""
    workflow = three(m)
    m.run(workflow)
    state = m.state("after the end")
    m.rewind(state, state.spared, f"power cut {state.place}")
    m.expect_result(m.resume(workflow), ["a", "b", "c"])
    m.expect(len(m.calls) == 3, "a body was executed again: its record was never synced")


# ---- 17: torn -----------------------------------------------------------------------------------


class Append(NamedTuple):
    """What one line of the engine's code appended to a file: before it, after it, to which."""

    before: State
    after: State
    name: str

    @property
    def lengths(self) -> tuple[int, int]:
        """How long the file was, and became."""
        return len(self.before.files.get(self.name, b"")), len(self.after.files[self.name])

    def cuts(self) -> Iterator[int]:
        """The lengths that a cut may leave."""
        old, new = self.lengths
        for length in range(old, new):
            if new - old <= _EVERY_BYTE or (length - old) % _SECTOR == 0 or length == new - 1:
                yield length


def appends(states: list[State]) -> Iterator[Append]:
    """Every append of a run; to a database only that to its log, which a cut can leave behind."""
    for before, after in pairwise(states):
        for name, data in after.files.items():
            old, is_new = before.files.get(name, b""), name not in before.files
            database = of_sqlite(name, after.files)
            cut_by_a_crash = not database or (name.endswith("-wal") and not is_new)
            if cut_by_a_crash and data.startswith(old) and data != old:
                yield Append(before, after, name)


def torn(m: Machine, append: Append) -> Iterator[int]:
    """One append cut to each length, with the machine in that state."""
    whole = append.after.files[append.name]
    for length in append.cuts():
        how = f"{append.name} cut to {length} of {len(whole)} bytes"
        m.rewind(append.before, {**append.before.files, append.name: whole[:length]}, how)
        m.cut_count += 1
        yield length


def two(m: Machine) -> Workflow:
    """A step and an effect."""
    return m.script(m.step("a"), m.effect("b"))


@TORN.case
def torn_tail_costs_one_record(m: Machine) -> None:
    """A journal cut anywhere opens, and has every record that was there before the cut one."""
    states = [state for state in m.states(lambda: m.run(two(m))) if state.started]
    for append in appends(states):
        allowed = []
        for state in append[:2]:
            m.rewind(state)
            allowed.append(m.history())
        for _ in torn(m, append):
            found = m.history()
            m.expect(found in allowed, f"the history is {found}, before this append {allowed[0]}")


@TORN.case
def next_append_starts_clean(m: Machine) -> None:
    """After a cut the run goes on, and what it records then is read by the next process."""
    workflow = two(m)
    states = m.states(lambda: m.run(workflow))
    for append in appends([state for state in states if state.seen]):
        for _ in torn(m, append):
            m.expect_result(m.run(workflow), ["a", "b"])
            m.expect(m.count("a") == 1, times(m, "a"))
            executed = len(m.calls)
            m.expect_result(m.run(workflow), ["a", "b"])
            m.expect(len(m.calls) == executed, "what was recorded after the cut is lost")


@TORN.case
def cut_admission_can_be_asked_for_again(m: Machine) -> None:
    """An admission that was cut off is a whole run or none: asking again brings it to its end."""
    workflow = m.script(m.step("a"))
    for append in appends(m.states(lambda: m.start(workflow))):
        for _ in torn(m, append):
            m.expect_result(m.run(workflow), ["a"])
    m.new()
    m.expect_result(m.run(workflow), ["a"])


# ---- 18: damage ---------------------------------------------------------------------------------


def stopped_before_last(m: Machine) -> tuple[Workflow, State, list[Append]]:
    """A run with two calls on record and a third like them to come, put away in good order.

    Returns:
        Its workflow, the state of the machine, and the appends until the first call was on record.
    """
    workflow = m.script(*[m.step("a", gives=MARK)] * 3)
    states = m.states(lambda: m.run(workflow))
    early = [state for state in states if not state.seen]
    killed = m.state_where(states, lambda state: len(state.seen) == 2, "two calls have returned")
    m.rewind(killed)
    m.history()  # a process that opens the journal, and closes it
    return workflow, killed._replace(files=m.disk.files()), [*appends(early)]


def places_of_damage(state: State, early: list[Append]) -> Iterator[tuple[str, int]]:
    """Every byte before the last record; in a large file or a database every byte of one result."""
    grown = {append.name: append.lengths[1] for append in early}
    for name, data in state.files.items():
        if of_sqlite(name, state.files) or len(data) > _EVERY_BYTE:
            at = data.find(MARK.encode())
            while at >= 0:
                yield from ((name, place) for place in range(at, at + len(MARK)))
                at = data.find(MARK.encode(), at + len(MARK))
        else:
            yield from ((name, place) for place in range(grown.get(name, 0)))


@DAMAGE.case
def flipped_byte_is_refused(m: Machine) -> None:
    """A bit turned over in any byte before the last record: refused, or it changes nothing."""
    workflow, state, early = stopped_before_last(m)
    for name, at in places_of_damage(state, early):
        data = bytearray(state.files[name])
        data[at] ^= 1
        m.rewind(state, {**state.files, name: bytes(data)}, f"byte {at} of {name} damaged")
        m.cut_count += 1
        outcome = m.resume(workflow)
        harmless = outcome.value == [MARK] * 3 and len(m.calls) == 3
        m.expect(outcome.error is not None or harmless, f"{outcome}, from a damaged journal")


@DAMAGE.case
def lost_record_is_refused(m: Machine) -> None:
    """A record that is missing from the middle of a file is noticed."""
    workflow, state, early = stopped_before_last(m)
    own = [append for append in early if not of_sqlite(append.name, state.files)]
    if not own:
        raise SkippedError("the records of a database don't stand one behind the other")
    append = own[-1]
    data, (begin, end) = state.files[append.name], append.lengths
    how = f"bytes {begin} to {end} of {append.name} taken out"
    m.rewind(state, {**state.files, append.name: data[:begin] + data[end:]}, how)
    m.expect_refusal(m.resume(workflow))


# ---- 19 and 20: fencing -------------------------------------------------------------------------


def undisturbed(m: Machine, workflow: Workflow) -> list[tuple[str, str]]:
    """What is on record of a run that nobody interferes with; the machine is new afterwards."""
    m.run(workflow)
    records = m.records()
    m.new()
    return records


def one_driver(
    m: Machine,
    first: Outcome,
    others: list[Beside],
    result: list[str],
    records: list[tuple[str, str]],
) -> None:
    """Say that the law is broken unless the second was kept out, or the first gave way."""
    m.expect(others, f"it never comes so far that it can be taken over: {first}")
    beside = others[0]
    waited, second = beside.waited, beside.ended()
    took_over = any(call.process == beside.number for call in m.calls)
    for outcome in (first, second):
        right = outcome.error is not None or outcome.value == result
        m.expect(right, f"{outcome}; right is {result}")
    m.expect(
        first.error is None or second.error is None, f"nobody ended the run: {first}; {second}"
    )
    if took_over and not waited:
        m.expect(first.error is not None, f"the process that had lost the run: {first}")
        began = next(n for n, call in enumerate(m.calls) if call.process == beside.number)
        late = [call.name for call in m.calls[began:] if call.process != beside.number]
        m.expect(not late, f"{late[:1]} was executed by the process that had lost the run")
    m.expect(m.records() == records, f"on record is {m.records()}, undisturbed {records}")


def taken_over_in(m: Machine, name: str) -> None:
    """A second process takes the run over while the first is inside a body."""
    plain = two(m)
    records, others = undisturbed(m, plain), list[Beside]()

    def once() -> None:
        if not others:
            others.append(m.beside(plain))

    first = m.run(
        m.script(
            *(
                ask(each, during=once if each == name else _nothing)
                for each, ask in (("a", m.step), ("b", m.effect))
            )
        )
    )
    one_driver(m, first, others, ["a", "b"], records)


def _nothing() -> None:
    """Nothing happens meanwhile."""


@FENCED.case
def taken_over_in_the_first_body(m: Machine) -> None:
    """Taken over inside its first step, a process stops before its second."""
    taken_over_in(m, "a")


@FENCED.case
def taken_over_in_the_last_body(m: Machine) -> None:
    """Taken over inside its last call, a process records neither the call nor the end."""
    taken_over_in(m, "b")


@FENCED.case
def taken_over_between_two_calls(m: Machine) -> None:
    """Taken over between two calls, a process doesn't begin the second."""
    plain, others = m.script(m.step("a"), lambda _: "", m.effect("b")), list[Beside]()
    records = undisturbed(m, plain)

    def taken_over(_: Any) -> str:
        others.append(m.beside(plain))
        return ""

    first = m.run(m.script(m.step("a"), taken_over, m.effect("b")))
    one_driver(m, first, others, ["a", "", "b"], records)


@ATOMIC.case
def no_gap_before_the_write(m: Machine) -> None:
    """Taken over at any line between a body and its record, a process leaves no second record."""
    workflow = m.script(m.effect("a"))
    records = undisturbed(m, workflow)
    for _, *outcomes in m.takeovers(workflow):
        for outcome in outcomes:
            m.expect(outcome.error is not None or outcome.value == ["a"], f"{outcome}")
        m.expect_result(m.run(workflow), ["a"])
        m.expect(m.records() == records, f"on record is {m.records()}, undisturbed {records}")
