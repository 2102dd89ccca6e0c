"""Replay: what the code sees live it sees again, and code that left the recorded path is stopped.

Divergence is tested twice: case by case, and by generated pairs of scripts, where an oracle that
only compares lists says which of them may go on.
"""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, strategies as st
from support import RUN_ID, Counted, crash, resume, run_live, scripted, texts

from durable_mini import (
    Effect,
    Engine,
    FakeClock,
    MemoryJournal,
    NonDeterminismError,
    RunFailed,
    RunStatus,
    StepFailedError,
    in_turn,
    workflow,
)
from durable_mini.events import EventKind, Position
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.ops import verify

# Live equals replay


@workflow(version="1")
def showing(ctx, value):
    """Returns, as text, all that the code sees of its input and of a step's result."""
    result = ctx.step("make", copy.deepcopy, value)
    seen = f"{value!r} {result!r}"
    ctx.step("last", len, seen)
    return seen


SURPRISING = {
    "tuple": (1, (2, 3)),
    "keys": [{1: "a", None: "b", 1.5: "d"}, {True: "c"}],
    "surrogate halves": ["\ud83d\ude00", {"\ud83d\ude00": 1}],
    "lone surrogate": "\ud83d",
    "numbers": [1, 1.0, True, -0.0, 1e300, 10**30, 0.1 + 0.2],
    "nothing": [None, "", [], {}, 0, False],
    "dictionary order": {"b": 1, "a": 2},
    "line breaks": "a\nb\r\u2028\x00",
}


@pytest.mark.parametrize("value", SURPRISING.values(), ids=SURPRISING.keys())
def test_code_sees_the_same_value_live_and_on_replay(journal_path, value):
    from durable_mini import SQLiteJournal

    live = run_live(MemoryJournal(), showing, value)
    with SQLiteJournal(journal_path) as journal:
        crash(journal, showing, "make", "after", value)
    with SQLiteJournal(journal_path) as journal:  # as after the death of the process
        replayed = resume(journal, showing)
        assert replayed.result == live.result
        assert replayed.attempts == 2
        assert Engine(journal).describe(RUN_ID) == replayed


def test_code_sees_a_list_where_a_tuple_was_given_the_first_time_too(journal):
    run = run_live(journal, showing, (1, {2: "b"}))
    assert run.result == "[1, {'2': 'b'}] [1, {'2': 'b'}]"
    assert run.input == [1, {"2": "b"}]


def test_code_that_changes_what_it_got_changes_no_journal(journal):
    @workflow(version="1")
    def careless(ctx, value):
        value["seen"] = True
        first = ctx.step("make", dict, {"items": [1]})
        first["items"].append(2)
        second = ctx.step("count", len, first["items"])
        return [value, first, second]

    run = run_live(journal, careless, {"id": 7})
    assert run.result == [{"id": 7, "seen": True}, {"items": [1, 2]}, 2]
    assert run.input == {"id": 7}
    assert Engine(journal).describe(RUN_ID) == run
    assert Engine(journal).history(RUN_ID)[1].payload["result"] == {"items": [1]}


def test_time_chance_and_uuid_are_what_the_first_execution_drew(journal):
    clock = FakeClock(1_000.5)
    script = (
        lambda c: [c.now(), c.random(), c.uuid()],
        lambda c: [c.now(), c.random(), c.uuid()],
        lambda c: c.step("last", len, []),
    )
    crash(journal, scripted(*script), "last", "before", clock=clock)
    recorded = [event.payload["result"] for event in Engine(journal).history(RUN_ID)[1:]]
    clock.advance(3_600)
    run = resume(journal, scripted(*script), clock=clock)
    assert run.result == [recorded[:3], recorded[3:], 0]
    assert recorded[0] == recorded[3] == 1_000.5
    assert 0 <= recorded[1] < 1
    assert len(set(recorded)) == 5, "two draws are two values"


@workflow(version="1")
def describing(ctx, _):
    """Returns all that code can ask of a failed step's error."""
    seen = []
    for name in ("fail", "fail"):
        try:
            ctx.step(name, int, "no number")
        except StepFailedError as error:
            seen.append([error.type, error.message, error.step, error.run_id, error.seq])
            seen[-1] += [str(error), repr(error.__cause__), repr(error.__context__)]
    ctx.step("last", len, seen)
    return seen


def test_a_failed_step_raises_the_same_error_live_and_on_replay(journal):
    live = run_live(MemoryJournal(), describing)
    crash(journal, describing, "last", "window")
    assert resume(journal, describing).result == live.result
    assert live.result[0][:5] == ["ValueError", live.result[0][1], "fail", RUN_ID, 2]
    assert live.result[1][4] == 3
    assert "no number" in live.result[0][1]


@pytest.mark.parametrize("message", ["", "\ud83d\ude00", "a\nb\x00", "long " * 10_000])
def test_a_failure_message_is_the_same_live_and_on_replay(journal, message):
    def fail():
        raise ValueError(message)

    @workflow(version="1")
    def agent(ctx, _):
        try:
            ctx.step("fail", fail)
        except StepFailedError as error:
            seen = ascii(error.message)
        ctx.step("last", len, seen)
        return seen

    live = run_live(MemoryJournal(), agent)
    crash(journal, agent, "last", "before")
    assert resume(journal, agent).result == live.result


def test_a_run_is_told_the_same_by_resume_and_by_describe(journal):
    @workflow(version="1")
    def spending(ctx, _):
        for _ in range(10):
            ctx.step("think", len, "", cost=0.1)
        raise RunFailed("sold out")

    run = run_live(journal, spending)
    assert run.status == "failed"
    assert (run.error.type, run.error.message, run.error.step) == ("RunFailed", "sold out", None)
    assert run.cost == pytest.approx(1.0)
    assert Engine(journal).describe(RUN_ID) == run
    assert list(Engine(journal).runs()) == [run]


def test_replaying_says_whether_the_next_call_is_answered_from_the_journal(journal):
    seen = []

    def look(c):
        seen.append((c.attempt, c.replaying))
        return c.step("look", len, "")

    crash(journal, scripted(look, look), "look", "after")
    resume(journal, scripted(look, look))
    assert seen == [(1, False), (2, True), (2, False)]


def test_a_finished_run_is_only_told(journal):
    body = Counted()
    agent = scripted(lambda c: c.step("plan", body, 1))
    run = run_live(journal, agent)
    before = texts(journal)
    assert resume(journal, agent) == run
    assert run_live(journal, agent) == run
    assert (texts(journal), len(body.calls)) == (before, 1)


# Divergence, case by case


def recorded_script(body):
    return (
        lambda c: c.step("plan", body, {"order": 7}, fast=True),
        lambda c: c.effect("charge", body, 40),
        lambda c: c.now(),
        lambda c: c.step("note", body, 1),
        lambda c: c.step("note", body, 2),
        lambda c: c.step("last", body, 3),
    )


def changed(at, *calls):
    """A change of the recorded script: what stands at a place instead of one call."""
    return lambda body, old: (*old[:at], *(call(body) for call in calls), *old[at + 1 :])


DIVERGENCES = {
    # what changed: (the change, seq of the first difference, words recorded, words requested)
    "step became effect": (
        changed(0, lambda body: lambda c: c.effect("plan", body, {"order": 7}, fast=True)),
        2,
        "step 'plan'",
        "effect 'plan'",
    ),
    "effect became step": (
        changed(1, lambda body: lambda c: c.step("charge", body, 40)),
        3,
        "effect 'charge'",
        "step 'charge'",
    ),
    "time became chance": (changed(2, lambda _: lambda c: c.random()), 4, "now", "random"),
    "time became a step of that name": (
        changed(2, lambda body: lambda c: c.step("now", body)),
        4,
        "now",
        "step 'now'",
    ),
    "renamed": (
        changed(0, lambda body: lambda c: c.step("plans", body, {"order": 7}, fast=True)),
        2,
        "step 'plan'",
        "step 'plans'",
    ),
    "renamed effect": (
        changed(1, lambda body: lambda c: c.effect("refund", body, 40)),
        3,
        "effect 'charge'",
        "effect 'refund'",
    ),
    "argument changed": (
        changed(1, lambda body: lambda c: c.effect("charge", body, 41)),
        3,
        "effect 'charge' with arguments",
        "effect 'charge' with arguments",
    ),
    "argument changed deep inside": (
        changed(0, lambda body: lambda c: c.step("plan", body, {"order": 8}, fast=True)),
        2,
        "step 'plan' with arguments",
        "step 'plan' with arguments",
    ),
    "keyword argument changed": (
        changed(0, lambda body: lambda c: c.step("plan", body, {"order": 7}, fast=False)),
        2,
        "step 'plan' with arguments",
        "step 'plan' with arguments",
    ),
    "argument dropped": (
        changed(1, lambda body: lambda c: c.effect("charge", body)),
        3,
        "effect 'charge' with arguments",
        "effect 'charge' with arguments",
    ),
    "two steps of one name swapped": (
        lambda _, old: (*old[:3], old[4], old[3], old[5]),
        5,
        "step 'note' with arguments",
        "step 'note' with arguments",
    ),
    "two calls swapped": (
        lambda _, old: (old[1], old[0], *old[2:]),
        2,
        "step 'plan'",
        "effect 'charge'",
    ),
    "removed at the start": (lambda _, old: old[1:], 2, "step 'plan'", "effect 'charge'"),
    "removed in the middle": (changed(2), 4, "now", "step 'note'"),
    "removed at the end": (lambda _, old: old[:4], 6, "step 'note'", "end of the workflow"),
    "all removed": (lambda _, _old: (), 2, "step 'plan'", "end of the workflow"),
    "inserted": (
        lambda body, old: (old[0], lambda c: c.step("check", body), *old[1:]),
        3,
        "effect 'charge'",
        "step 'check'",
    ),
    "fails before the rest": (
        lambda _, old: (*old[:2], lambda c: fail_run()),
        4,
        "now",
        "the run to fail",
    ),
}


def fail_run():
    raise RunFailed("sold out")


@pytest.mark.parametrize(
    ("change", "seq", "recorded", "requested"), DIVERGENCES.values(), ids=DIVERGENCES.keys()
)
def test_divergence_executes_and_writes_nothing_until_the_code_is_repaired(
    journal, change, seq, recorded, requested
):
    body = Counted(result="done")
    script = recorded_script(body)
    crash(journal, scripted(*script), "last", "before")
    history, executed = texts(journal), len(body.calls)
    drifted = scripted(*change(body, script))

    for attempt in (2, 3):  # it stays refused, however often it is tried
        with pytest.raises(NonDeterminismError) as caught:
            resume(journal, drifted)
        error = caught.value
        assert (error.run_id, error.seq) == (RUN_ID, seq)
        assert recorded in error.recorded
        assert requested in error.requested
        assert error.recorded != error.requested
        for part in (RUN_ID, f"event {seq}", error.recorded, error.requested, "Next:"):
            assert part in str(error)
        assert texts(journal) == history, "a divergence appends nothing"
        assert len(body.calls) == executed, "a divergence executes nothing"
        run = Engine(journal).describe(RUN_ID)
        assert (run.status, run.attempts) == (RunStatus.NEEDS_ATTENTION, attempt)
        assert (run.error.type, run.error.message) == ("NonDeterminismError", str(error))

    repaired = resume(journal, scripted(*script))
    assert (repaired.status, repaired.error) == (RunStatus.COMPLETED, None)
    assert repaired.result[3:] == [1, 2, 3]
    assert len(body.calls) == executed + 1
    assert verify(journal).ok


@workflow(version="1")
def inner(ctx, value):
    return ctx.step("inside", len, value)


@workflow(version="1")
def other(ctx, value):
    return ctx.step("inside", len, value)


def waiting_script(body):
    """Recorded as: 2 the signal, 3 compensate, 4 and 5 the branches, 6 wait, 7 received, 8 timer,
    9 fired, 10 child, 11 its end, 12 joined, 13 pivot."""
    return (
        lambda c: c.compensate("undo", body, 1),
        lambda c: c.gather({"a": (body, 1), "b": (body, 2)}),
        lambda c: c.wait_signal("go"),
        lambda c: c.sleep(0),
        lambda c: c.child(inner, "five"),
        lambda c: c.point_of_no_return(),
        lambda c: c.step("last", body, 3),
    )


WAITING_DIVERGENCES = {
    "compensation renamed": (
        changed(0, lambda body: lambda c: c.compensate("refund", body, 1)),
        3,
        "compensate 'undo'",
        "compensate 'refund'",
    ),
    "compensation with another argument": (
        changed(0, lambda body: lambda c: c.compensate("undo", body, 2)),
        3,
        "compensate 'undo' with arguments",
        "compensate 'undo' with arguments",
    ),
    "compensation removed": (changed(0), 3, "compensate 'undo'", "one of 'a', 'b'"),
    "branch renamed": (
        changed(1, lambda body: lambda c: c.gather({"x": (body, 1), "b": (body, 2)})),
        4,
        "step 'a'",
        "one of 'x', 'b'",
    ),
    "branch with another argument": (
        changed(1, lambda body: lambda c: c.gather({"a": (body, 1), "b": (body, 3)})),
        5,
        "step 'b' with arguments",
        "step 'b' with arguments",
    ),
    "branch became an effect": (
        changed(1, lambda body: lambda c: c.gather({"a": Effect(body, 1), "b": (body, 2)})),
        4,
        "step 'a'",
        "effect 'a'",
    ),
    "branch removed": (
        changed(1, lambda body: lambda c: c.gather({"a": (body, 1)})),
        5,
        "step 'b'",
        "wait 'go'",
    ),
    "branch added": (
        changed(
            1, lambda body: lambda c: c.gather({"a": (body, 1), "c": (body, 3), "b": (body, 2)})
        ),
        6,
        "wait 'go'",
        "one of 'c'",
    ),
    "branches became steps in another order": (
        changed(
            1,
            lambda body: lambda c: c.step("b", body, 2),
            lambda body: lambda c: c.step("a", body, 1),
        ),
        4,
        "step 'a'",
        "step 'b'",
    ),
    "other signal": (
        changed(2, lambda _: lambda c: c.wait_signal("come")),
        6,
        "wait 'go'",
        "wait 'come'",
    ),
    "signal became a sleep": (
        changed(2, lambda _: lambda c: c.sleep(0)),
        6,
        "wait 'go'",
        "timer 'sleep'",
    ),
    "signal removed": (changed(2), 6, "wait 'go'", "timer 'sleep'"),
    "sleep removed": (changed(3), 8, "timer 'sleep'", f"child '{RUN_ID}/inner'"),
    "child of another workflow": (
        changed(4, lambda _: lambda c: c.child(other, "five")),
        10,
        f"child '{RUN_ID}/inner'",
        f"child '{RUN_ID}/other'",
    ),
    "child with another input": (
        changed(4, lambda _: lambda c: c.child(inner, "six")),
        10,
        f"child '{RUN_ID}/inner' with arguments",
        f"child '{RUN_ID}/inner' with arguments",
    ),
    "child removed": (changed(4), 10, f"child '{RUN_ID}/inner'", "pivot"),
    "pivot removed": (changed(5), 13, "pivot", "step 'last'"),
    "ended before the pivot": (lambda _, old: old[:5], 13, "pivot", "end of the workflow"),
}


@pytest.mark.parametrize(
    ("change", "seq", "recorded", "requested"),
    WAITING_DIVERGENCES.values(),
    ids=WAITING_DIVERGENCES.keys(),
)
def test_divergence_in_waits_and_branches_executes_and_writes_nothing(
    journal, change, seq, recorded, requested
):
    body = Counted(result="done")
    script = waiting_script(body)
    options = {"clock": FakeClock(), "spread": in_turn}

    def engine_of(*calls, **more):
        return Engine(journal, [scripted(*calls), inner, other], **options, **more)

    engine = engine_of(*script, probe=CrashAt("last", "before"))
    engine.start(scripted(*script), run_id=RUN_ID)
    engine.signal(RUN_ID, "go", "now")
    with pytest.raises(InjectedCrash):
        engine.resume(RUN_ID)
    history, executed, runs = texts(journal), len(body.calls), [*engine.runs()]

    with pytest.raises(NonDeterminismError) as caught:
        engine_of(*change(body, script)).resume(RUN_ID)
    error = caught.value
    assert (error.run_id, error.seq) == (RUN_ID, seq)
    assert recorded in error.recorded
    assert requested in error.requested
    assert (texts(journal), len(body.calls)) == (history, executed)
    assert [run.run_id for run in engine.runs()] == [run.run_id for run in runs], "no child either"
    assert engine.describe(RUN_ID).status is RunStatus.NEEDS_ATTENTION

    repaired = engine_of(*script).resume(RUN_ID)
    assert (repaired.status, repaired.result[1:5]) == (
        "completed",
        [{"a": 1, "b": 2}, "now", None, 4],
    )
    assert len(body.calls) == executed + 1


def test_calls_added_at_the_end_are_executed(journal):
    body = Counted()
    script = recorded_script(body)
    crash(journal, scripted(*script), "last", "after")
    run = resume(journal, scripted(*script, lambda c: c.step("more", body, "new")))
    assert (run.status, run.result[-1]) == ("completed", "new")


def test_arguments_can_be_left_out_of_the_comparison(journal):
    body = Counted()
    crash(journal, scripted(lambda c: c.step("plan", body, "old")), "plan", "after")
    for other in (
        scripted(lambda c: c.step("plans", body, "old")),
        scripted(lambda c: c.effect("plan", body, "old")),
    ):
        with pytest.raises(NonDeterminismError):
            resume(journal, other, compare_arguments=False)
    run = resume(journal, scripted(lambda c: c.step("plan", body, "new")), compare_arguments=False)
    assert (run.result, len(body.calls)) == (["old"], 1)


def test_an_opaque_argument_may_be_another_object_of_its_type(journal):
    class Client:
        def ask(self):
            return "answer"

    class Rival(Client):
        pass

    def asking(client):
        return scripted(
            lambda c: c.step("ask", Client.ask, client), lambda c: c.step("last", len, "")
        )

    crash(journal, asking(Client()), "last", "before")
    assert Engine(journal).history(RUN_ID)[1].payload["opaque"] == [Client.__qualname__]
    with pytest.raises(NonDeterminismError):
        resume(journal, asking(Rival()))
    assert resume(journal, asking(Client())).result == ["answer", 0]


# Divergence, generated

BODY = Counted()


def one_call(spec):
    kind, name, value = spec
    if kind == "now":
        return lambda c: c.now() * 0
    return lambda c: getattr(c, kind)(name, BODY, value)


specs = st.tuples(
    st.sampled_from(["step", "step", "effect", "now"]),
    st.sampled_from(["a", "b", "now"]),
    st.sampled_from([1, 2, [1], {"k": 1}]),
).map(lambda spec: ("now", "now", None) if spec[0] == "now" else spec)
scripts = st.lists(specs, max_size=5)


@given(scripts, scripts, st.integers(0, 5))
@pytest.mark.slow
def test_changed_code_goes_on_exactly_when_it_asks_for_all_that_is_recorded(old, new, stop_at):
    journal = MemoryJournal()
    begun = 0

    def probe(position, _kind, _name):
        nonlocal begun
        if position is Position.BEFORE:
            begun += 1
            if begun > stop_at:
                raise InjectedCrash(position, EventKind.STEP, "any")

    engine = Engine(journal, [scripted(*map(one_call, old))], probe=probe)
    engine.start(scripted(*map(one_call, old)), run_id=RUN_ID)
    if stop_at >= len(old):
        engine.resume(RUN_ID)
        return  # it has ended: there is nothing to diverge from
    with pytest.raises(InjectedCrash):
        engine.resume(RUN_ID)

    history, executed = texts(journal), len(BODY.calls)
    changed_code = scripted(*map(one_call, new))
    if new[:stop_at] == old[:stop_at]:
        run = resume(journal, changed_code)
        assert run.result == [0 if kind == "now" else value for kind, _, value in new]
        assert texts(journal)[: len(history)] == history
        live = sum(kind != "now" for kind, _, _ in new[stop_at:])
        assert len(BODY.calls) == executed + live
    else:
        with pytest.raises(NonDeterminismError):
            resume(journal, changed_code)
        assert (texts(journal), len(BODY.calls)) == (history, executed)
