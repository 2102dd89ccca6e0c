"""What workflow code may call, and from where; keys, costs, names; no stop is swallowed."""

from __future__ import annotations

import collections
import enum
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
from support import RUN_ID, Counted, crash, resume, run_live, scripted, texts

from durable_mini import (
    Context,
    DurableCallError,
    Engine,
    FakeClock,
    LeaseLostError,
    MemoryJournal,
    NonDeterminismError,
    RetryPolicy,
    RunCancelledError,
    RunFailed,
    RunStatus,
    SQLiteJournal,
    StepFailedError,
    StorageError,
    in_threads,
    in_turn,
    workflow,
)
from durable_mini.events import Position
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.ops import verify

# Steps and their arguments


def test_step_hands_on_all_arguments_and_gives_back_the_result(journal):
    def body(*args, **kwargs):
        return [list(args), kwargs]

    @workflow(version="1")
    def agent(ctx, value):
        return ctx.step("s", body, value, "b", name="n", fn=1, retry=None, cost=0.0)

    assert run_live(journal, agent, 1).result == [[1, "b"], {"name": "n", "fn": 1}]


@dataclass
class Order:
    item: str
    lines: list[Any] = field(default_factory=list)


def spoil(value):
    """Change a value wherever it can be changed."""
    match value:
        case Order():
            spoil(value.lines)
            value.item = "spoiled"
        case dict():
            for item in value.values():
                spoil(item)
            value["spoiled"] = True
        case list():
            for item in value:
                spoil(item)
            value.append("spoiled")
        case tuple():
            for item in value:
                spoil(item)
        case set() | bytearray():
            value.clear()


@pytest.mark.parametrize(
    "make",
    [
        lambda: [1, [2]],
        lambda: {"a": {"b": [1]}},
        lambda: ([1], {"a": 1}),
        lambda: Order("tea", [1, [2]]),
        lambda: [Order("tea", [Order("milk", [])])],
        lambda: {"orders": (Order("tea"),)},
        lambda: collections.OrderedDict(a=[1]),
        lambda: collections.defaultdict(list, a=[1]),
        lambda: {1, 2},
        lambda: bytearray(b"ab"),
    ],
)
def test_step_that_changes_its_arguments_changes_nothing_of_the_workflow(journal, make):
    seen = []

    def body(given, *, also):
        seen.append([repr(given), repr(also)])
        spoil(given)
        spoil(also)
        if len(seen) == 1:
            raise ValueError("once more")

    @workflow(version="1")
    def agent(ctx, _):
        mine = make()
        ctx.step("s", body, mine, also=mine, retry=RetryPolicy(initial_s=0))
        return repr(mine)

    untouched = repr(make())
    assert run_live(journal, agent).result == untouched
    assert seen == [[untouched, untouched]] * 2, "a second try gets what the first one got"


def test_step_result_that_its_body_changes_later_stays_as_recorded(journal):
    kept = {"items": [1]}

    @workflow(version="1")
    def agent(ctx, _):
        result = ctx.step("s", lambda: kept)
        kept["items"].append(2)
        return result

    assert run_live(journal, agent).result == {"items": [1]}


def test_step_is_executed_once_and_answered_from_the_journal_after_that(journal):
    body = Counted(result=None)  # a result that is nothing is a result
    script = scripted(lambda c: c.step("a", body), lambda c: c.step("b", body))
    crash(journal, script, "b", "before")
    assert resume(journal, script).result == [None, None]
    assert len(body.calls) == 2


# Keys


def keys_given(journal, *calls, **options):
    """The keys of a workflow's effects, each call a name or (name, own key)."""
    seen = []

    def body(*, idempotency_key):
        seen.append(idempotency_key)
        return idempotency_key

    def call(spec):
        name, own = spec if isinstance(spec, tuple) else (spec, None)
        return lambda c: c.effect(name, body, key=own)

    run = Engine(journal, [agent := scripted(*map(call, calls))]).run(agent, **options)
    assert seen == run.result
    recorded = [event.payload["key"] for event in Engine(journal).history(run.run_id)[1:-1]]
    assert recorded == seen
    return seen


def test_key_is_run_id_and_name_and_counts_repeats_of_a_name(journal):
    assert keys_given(journal, "charge", "mail", "charge", "charge", run_id="t-1") == [
        "t-1/charge",
        "t-1/mail",
        "t-1/charge#2",
        "t-1/charge#3",
    ]
    assert keys_given(journal, "charge", run_id="t-2") == ["t-2/charge"]


def test_key_has_its_own_signs_percent_encoded_in_both_parts(journal):
    assert keys_given(journal, "x/y", "x#2", "x~undo", "50%", "a b", run_id="r~2/#%") == [
        "r%7E2%2F%23%25/x%2Fy",
        "r%7E2%2F%23%25/x%232",
        "r%7E2%2F%23%25/x%7Eundo",
        "r%7E2%2F%23%25/50%25",
        "r%7E2%2F%23%25/a b",
    ]


def test_keys_of_different_calls_differ_whatever_the_names(journal):
    names = [
        "a",
        "a",
        "a",
        "a#2",
        "a%232",
        "a/b",
        "a%2Fb",
        "a~",
        "a%7E",
        "é",
        "%C3%A9",
        "é",
        "e\u0301",
    ]
    first = keys_given(journal, *names, run_id="r")
    second = keys_given(journal, *names, run_id="r/a")
    assert len({*first, *second}) == 2 * len(names)


def test_key_can_be_replaced_by_one_of_the_business_operation(journal):
    assert keys_given(journal, ("charge", "order-7"), "mail", run_id="r") == ["order-7", "r/mail"]


def test_key_is_not_handed_over_under_the_name_that_the_body_gets_it_by(journal):
    @workflow(version="1")
    def pay(ctx, _input):
        ctx.effect("pay", lambda idempotency_key: None, idempotency_key="mine")

    run = Engine(journal, [pay]).run(pay, None, run_id="r")

    assert run.status == "needs_attention"
    assert "key=" in run.error.message


def test_key_is_the_same_at_every_try_in_every_attempt_and_after_replay(journal):
    seen = []

    def charge(amount, *, idempotency_key):
        seen.append(idempotency_key)
        if len(seen) in (1, 2, 4):
            raise ConnectionError("reset")
        return amount

    retry = RetryPolicy(max_attempts=5)
    script = (
        lambda c: c.effect("pay", lambda idempotency_key: None),
        lambda c: c.effect("pay", charge, 40, retry=retry),
        lambda c: c.effect("pay", lambda idempotency_key: idempotency_key),
    )
    clock = FakeClock()
    for executions in (4, 2):  # each attempt dies in the crash window of the second effect
        probe = CrashAt("pay", Position.WINDOW, occurrence=executions)
        engine = Engine(journal, [agent := scripted(*script)], probe=probe, clock=clock)
        engine.start(agent, run_id=RUN_ID)
        with pytest.raises(InjectedCrash):
            engine.resume(RUN_ID)
    run = resume(journal, scripted(*script), clock=clock)
    assert seen == [f"{RUN_ID}/pay#2"] * 6
    assert run.result == [None, 40, f"{RUN_ID}/pay#3"]
    *_, charged, _, _ = history = Engine(journal).history(RUN_ID)
    keyed = [event.payload["key"] for event in history if event.kind in ("try", "effect")]
    assert keyed == [f"{RUN_ID}/pay", *[f"{RUN_ID}/pay#2"] * 4, f"{RUN_ID}/pay#3"]
    assert charged.payload["tries"] == 4, "three failures are on record, two successes were lost"


# Cost


def test_cost_is_a_number_or_a_function_of_the_result(journal):
    @workflow(version="1")
    def agent(ctx, _):
        ctx.step("flat", len, "", cost=2)
        ctx.step("free", len, "")
        ctx.effect(
            "counted", lambda idempotency_key: {"tokens": 30}, cost=lambda r: r["tokens"] / 4
        )

    run = run_live(journal, agent)
    assert run.cost == 9.5
    assert Engine(journal).describe(RUN_ID).cost == 9.5
    payloads = [event.payload for event in Engine(journal).history(RUN_ID)]
    assert [payload.get("cost") for payload in payloads] == [None, 2, None, 7.5, None]


def test_cost_is_counted_once_however_often_a_run_is_recovered(journal):
    script = scripted(
        lambda c: c.step("a", len, "", cost=1.5), lambda c: c.step("b", len, "", cost=2.0)
    )
    for position in ("before", "window", "after"):
        crash(journal, script, "b", position)
    run = resume(journal, script)
    assert (run.cost, run.attempts) == (3.5, 4)
    assert Engine(journal).describe(RUN_ID) == run


def test_cost_function_that_changes_the_result_changes_nothing(journal):
    script = scripted(lambda c: c.step("a", lambda: {"tokens": 3}, cost=lambda r: r.pop("tokens")))
    crash(journal, script, "a", "after")
    live = run_live(MemoryJournal(), script)
    assert live.result == resume(journal, script).result == [{"tokens": 3}]
    assert live.cost == 3


class Tariff(enum.IntEnum):
    LLM = 2


class Euro(float):
    def __repr__(self):
        return f"{float(self)} €"


@pytest.mark.parametrize("cost", [Tariff.LLM, Euro(2.0), lambda _: Tariff.LLM, lambda _: Euro(2)])
def test_cost_of_a_numeric_type_of_ones_own_is_stored_as_a_number(journal, cost):
    assert run_live(journal, scripted(lambda c: c.step("a", len, "", cost=cost))).cost == 2
    assert Engine(journal).describe(RUN_ID).cost == 2
    assert verify(journal).ok


@pytest.mark.parametrize(
    "cost", [-1, float("nan"), float("inf"), True, "2.0", "", None, [], 2 + 0j, {}]
)
def test_cost_that_is_no_price_is_refused_before_anything_is_executed(journal, cost):
    body = Counted()
    run = run_live(journal, scripted(lambda c: c.step("think", body, cost=cost)))
    assert run.status is RunStatus.NEEDS_ATTENTION
    assert "cost" in run.error.message
    assert (body.calls, len(texts(journal))) == ([], 1)
    repaired = resume(journal, scripted(lambda c: c.step("think", body, cost=1.0)))
    assert (repaired.status, repaired.cost) == (RunStatus.COMPLETED, 1.0)


@pytest.mark.parametrize("cost", [lambda _: -1, lambda _: None, lambda r: r["tokens"]])
def test_cost_function_that_gives_no_price_is_a_bug_and_records_nothing(journal, cost):
    run = run_live(journal, scripted(lambda c: c.step("think", dict, cost=cost)))
    assert (run.status, run.cost) == (RunStatus.NEEDS_ATTENTION, 0)
    assert run.error.type in ("ValueError", "KeyError")
    assert len(texts(journal)) == 1
    repaired = resume(journal, scripted(lambda c: c.step("think", dict, cost=lambda _: 1)))
    assert (repaired.status, repaired.cost) == (RunStatus.COMPLETED, 1)


# Names

BAD_NAMES = ["", "x" * 1_000_000, "a\nb", "\ud83d", None, 7, b"plan", "\x00"]


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("kind", ["step", "effect"])
def test_name_that_cant_be_kept_is_refused_before_anything_is_executed(journal, kind, name):
    body = Counted()
    run = run_live(journal, scripted(lambda c: getattr(c, kind)(name, body)))
    assert (run.status, run.error.type) == (RunStatus.NEEDS_ATTENTION, "InvalidNameError")
    assert "step name" in run.error.message
    assert len(run.error.message) < 300
    assert (body.calls, len(texts(journal))) == ([], 1)


@pytest.mark.parametrize("key", BAD_NAMES[:4] + BAD_NAMES[5:])
def test_key_that_cant_be_kept_is_refused_before_anything_is_executed(journal, key):
    body = Counted()
    run = run_live(journal, scripted(lambda c: c.effect("charge", body, key=key)))
    assert (run.status, run.error.type) == (RunStatus.NEEDS_ATTENTION, "InvalidNameError")
    assert (body.calls, len(texts(journal))) == ([], 1)


def test_arguments_that_contain_themselves_are_refused_before_anything_is_executed(journal):
    ring: list[Any] = []
    ring.append(ring)
    body = Counted()
    run = run_live(journal, scripted(lambda c: c.step("plan", body, ring)))
    assert run.status is RunStatus.NEEDS_ATTENTION
    assert (body.calls, len(texts(journal))) == ([], 1)


# Every durable call there is


@workflow(version="1")
def grandchild(ctx, _):
    return ctx.step("work", len, "")


# By name: the call, with a body that must not run, and the words that an error has for it.
CALLS = {
    "step": (lambda c, body: c.step("inner", body), "step 'inner'"),
    "effect": (lambda c, body: c.effect("inner", body), "effect 'inner'"),
    "now": (lambda c, _: c.now(), "now"),
    "random": (lambda c, _: c.random(), "random"),
    "uuid": (lambda c, _: c.uuid(), "uuid"),
    "gather": (lambda c, body: c.gather({"inner": (body,)}), "step 'inner'"),
    "sleep": (lambda c, _: c.sleep(1), "timer 'sleep'"),
    "wait_signal": (lambda c, _: c.wait_signal("go"), "wait 'go'"),
    "child": (lambda c, _: c.child(grandchild), f"child '{RUN_ID}/grandchild'"),
    "patched": (lambda c, _: c.patched("p"), "patch 'p'"),
    "compensate": (lambda c, body: c.compensate("inner", body), "compensate 'inner'"),
    "point_of_no_return": (lambda c, _: c.point_of_no_return(), "pivot"),
    "continue_as_new": (lambda c, _: c.continue_as_new(), "continued"),
}


def test_every_durable_call_is_in_the_table():
    attributes = {name for name, value in vars(Context).items() if not name.startswith("_")}
    engines = {"check_end", "check_stopped", "leave", "replaying", "unread", "unwind"}
    assert attributes - engines == CALLS.keys()


def only_run(journal):
    """Whether no child was admitted either."""
    return [run.run_id for run in Engine(journal).runs()] == [RUN_ID]


# A stop can't be swallowed


def swallowing(*calls, then=None, seen):
    """Code that catches everything around each call and goes on."""

    def drive(ctx):
        for call in calls:
            try:
                call(ctx)
            except BaseException as stop:
                seen.append(stop)
        return then() if then else "went on"

    return scripted(drive)


def raise_(error):
    raise error


ENDINGS = {
    "returns": None,
    "fails on purpose": lambda: raise_(RunFailed("hidden")),
    "raises a bug": lambda: raise_(ZeroDivisionError("hidden")),
    "raises an exit": lambda: raise_(SystemExit(3)),
}


@pytest.mark.parametrize("then", ENDINGS.values(), ids=ENDINGS.keys())
def test_swallowed_divergence_still_stops_the_run(journal, then):
    body = Counted()
    crash(journal, scripted(lambda c: c.step("a", body, 1)), "a", "after")
    history, seen = texts(journal), []
    calls = (
        lambda c: c.step("b", body, 1),
        lambda c: c.step("a", body, 1),  # what the journal has: too late
        *(lambda c, call=call: call(c, body) for call, _ in CALLS.values()),
    )
    with pytest.raises(NonDeterminismError) as caught:
        resume(journal, swallowing(*calls, then=then, seen=seen))
    assert seen == [caught.value] * len(calls), "every later call raises the first stop"
    assert (texts(journal), len(body.calls)) == (history, 1)
    assert only_run(journal)
    assert Engine(journal).describe(RUN_ID).status is RunStatus.NEEDS_ATTENTION


@pytest.mark.parametrize("position", Position)
@pytest.mark.parametrize("then", ENDINGS.values(), ids=ENDINGS.keys())
def test_swallowed_crash_still_ends_the_attempt(journal, position, then):
    body = Counted()
    seen: list[BaseException] = []
    calls = [lambda c, name=name: c.step(name, body, name) for name in "abc"]
    engine = Engine(
        journal, [agent := swallowing(*calls, then=then, seen=seen)], probe=CrashAt("b", position)
    )
    engine.start(agent, run_id=RUN_ID)
    with pytest.raises(InjectedCrash) as caught:
        engine.resume(RUN_ID)
    assert seen == [caught.value] * 2
    recorded = [name for _, _, name, _ in texts(journal)[1:]]
    assert recorded == (["a", "b"] if position is Position.AFTER else ["a"])
    assert engine.describe(RUN_ID).status is RunStatus.RUNNING, "resumable"
    assert resume(journal, scripted(*calls)).result == ["a", "b", "c"]


WAITS = {
    "a sleep": lambda c: c.sleep(60),
    "a signal": lambda c: str(c.wait_signal("go", timeout_s=60)),
    "a child": lambda c: c.child(slow),
}


@workflow(version="1")
def slow(ctx, _):
    ctx.sleep(60)


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
@pytest.mark.parametrize("then", ENDINGS.values(), ids=ENDINGS.keys())
def test_swallowed_suspension_still_suspends_the_run(journal, wait, then):
    body, clock = Counted(), FakeClock()
    seen: list[BaseException] = []
    calls = (wait, lambda c: c.step("b", body, "b"))
    engine = Engine(journal, [agent := swallowing(*calls, then=then, seen=seen), slow], clock=clock)
    run = engine.run(agent, run_id=RUN_ID)
    assert (run.status, run.error) == (RunStatus.SUSPENDED, None)
    assert seen == [seen[0]] * 2
    assert body.calls == []
    assert journal.row(RUN_ID).worker is None, "it holds nothing"
    clock.advance(60)
    repaired = Engine(journal, [agent := scripted(*calls), slow], clock=clock).resume(RUN_ID)
    assert (repaired.status, repaired.result[1]) == (RunStatus.COMPLETED, "b")


@pytest.mark.parametrize("then", ENDINGS.values(), ids=ENDINGS.keys())
def test_swallowed_cancellation_still_cancels_and_compensates(journal, then):
    body, undone = Counted(), Counted()
    seen: list[BaseException] = []
    calls = (
        lambda c: c.compensate("a", undone, "a"),
        lambda c: c.step("a", body, "a"),
        lambda c: engine.cancel(RUN_ID),
        lambda c: c.step("b", body, "b"),
        lambda c: c.step("c", body, "c"),
    )
    engine = Engine(journal, [agent := swallowing(*calls, then=then, seen=seen)])
    run = engine.run(agent, run_id=RUN_ID)
    assert (run.status, run.error.type) == (RunStatus.CANCELLED, "RunCancelledError")
    assert [type(error) for error in seen] == [RunCancelledError] * 2
    assert (body.calls, undone.calls) == ([("a",)], [("a",)])
    assert resume(journal, agent) == run


@pytest.mark.parametrize("then", ENDINGS.values(), ids=ENDINGS.keys())
def test_swallowed_loss_of_the_lease_still_ends_the_attempt(journal, then):
    body, taken = Counted(), []
    seen: list[BaseException] = []
    calls = [lambda c, name=name: c.step(name, body, name) for name in "abc"]

    def take_over(_):
        taken.append(resume(journal, scripted(*calls)))

    agent = swallowing(calls[0], take_over, *calls[1:], then=then, seen=seen)
    with pytest.raises(LeaseLostError) as caught:
        run_live(journal, agent)
    assert seen == [caught.value] * 2
    assert body.calls == [("a",), ("b",), ("c",)], "the loser's next step did no work"
    assert Engine(journal).describe(RUN_ID) == taken[0]
    assert (taken[0].result, taken[0].attempts) == (["a", "b", "c"], 2)


def test_crash_isnt_taken_by_code_that_catches_exceptions(journal):
    @workflow(version="1")
    def agent(ctx, _):
        try:
            return ctx.step("a", len, "")
        except Exception:
            return "swallowed"

    crash(journal, agent, "a", "window")
    assert resume(journal, agent).result == 0


class FailingJournal(MemoryJournal):
    """A journal whose disk fails at one append."""

    def __init__(self, seq):
        super().__init__()
        self.fails_at = seq

    def append(self, row, entry, **options):
        if self.peek(row) + 1 == self.fails_at:
            raise StorageError(path="journal.db", reason="the disk is full")
        return super().append(row, entry, **options)


@pytest.mark.parametrize("then", ENDINGS.values(), ids=ENDINGS.keys())
def test_swallowed_storage_error_still_ends_the_attempt_and_is_no_steps_failure(then):
    body, seen, journal = Counted(), [], FailingJournal(3)
    calls = [lambda c, name=name: c.step(name, body, name) for name in "abc"]
    with pytest.raises(StorageError) as caught:
        run_live(journal, swallowing(*calls, then=then, seen=seen))
    assert seen == [caught.value] * 2
    assert len(texts(journal)) == 2
    assert Engine(journal).describe(RUN_ID).status is RunStatus.RUNNING
    journal.fails_at = None
    assert resume(journal, scripted(*calls)).result == ["a", "b", "c"]


def test_storage_error_in_a_retried_step_isnt_retried():
    body, journal = Counted(), FailingJournal(2)
    agent = scripted(lambda c: c.step("a", body, 1, retry=RetryPolicy(max_attempts=5)))
    with pytest.raises(StorageError):
        run_live(journal, agent, clock=FakeClock())
    assert len(body.calls) == 1


def test_storage_error_at_the_end_of_a_run_leaves_it_resumable():
    body, journal = Counted(), FailingJournal(3)
    agent = scripted(lambda c: c.step("a", body, 1))
    with pytest.raises(StorageError):
        run_live(journal, agent)
    journal.fails_at = None
    assert resume(journal, agent).result == [1]
    assert len(body.calls) == 1


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_in_a_step_leaves_a_resumable_run_even_if_swallowed(journal, stop):
    pressed = []

    def body():
        if not pressed:
            pressed.append(True)
            raise stop
        return "done"

    seen: list[BaseException] = []
    calls = (lambda c: c.step("a", body), lambda c: c.step("b", len, ""))
    with pytest.raises(stop):
        run_live(journal, swallowing(*calls, seen=seen))
    assert [type(error) for error in seen] == [stop, stop]
    assert len(texts(journal)) == 1
    assert Engine(journal).describe(RUN_ID).status is RunStatus.RUNNING
    assert resume(journal, scripted(*calls)).result == ["done", 0]


def test_ctrl_c_between_steps_leaves_a_resumable_run(journal):
    pressed = []

    def press(_):
        if not pressed:
            pressed.append(True)
            raise KeyboardInterrupt

    agent = scripted(lambda c: c.step("a", len, ""), press, lambda c: c.step("b", len, ""))
    with pytest.raises(KeyboardInterrupt):
        run_live(journal, agent)
    assert Engine(journal).describe(RUN_ID).status is RunStatus.RUNNING
    assert resume(journal, agent).result == [0, None, 0]


def test_failed_step_that_is_caught_doesnt_stop_the_run(journal):
    @workflow(version="1")
    def agent(ctx, _):
        try:
            ctx.step("a", int, "x")
        except StepFailedError:
            return ctx.step("b", len, "")

    assert run_live(journal, agent).result == 0


# A bug in workflow code is no verdict


@pytest.mark.parametrize(
    "bug",
    [
        lambda _: 1 / 0,
        lambda _: object(),
        lambda _: float("nan"),
        lambda _: raise_(ValueError("\ud83d")),
    ],
    ids=["raises", "returns no JSON", "returns NaN", "message that UTF-8 can't hold"],
)
def test_bug_in_workflow_code_needs_attention_and_goes_on_when_repaired(journal, bug):
    body = Counted()
    run = run_live(journal, scripted(lambda c: c.step("a", body, 1), bug))
    assert (run.status, run.result) == (RunStatus.NEEDS_ATTENTION, None)
    assert run.error.type in ("ZeroDivisionError", "PayloadError", "ValueError")
    assert len(texts(journal)) == 2, "a bug is no event"
    assert Engine(journal).describe(RUN_ID) == run
    assert [r.run_id for r in Engine(journal).runs(status="needs_attention")] == [RUN_ID]
    repaired = resume(journal, scripted(lambda c: c.step("a", body, 1)))
    assert (repaired.status, repaired.result, repaired.error) == ("completed", [1], None)
    assert len(body.calls) == 1


def test_a_result_too_large_for_the_journal_needs_attention(journal):
    run = run_live(journal, scripted(lambda c: "x" * 300_000))
    assert (run.status, run.error.type) == (RunStatus.NEEDS_ATTENTION, "PayloadError")
    assert "262,144" in run.error.message


# Where a durable call may be made


@pytest.mark.parametrize(("call", "words"), CALLS.values(), ids=CALLS.keys())
def test_durable_call_in_a_steps_body_raises_at_once_and_nothing_is_recorded(journal, call, words):
    inner = Counted()
    retry = RetryPolicy(max_attempts=5)
    agent = scripted(lambda c: c.effect("outer", lambda **_: call(c, inner), retry=retry))
    run = run_live(journal, agent, clock=FakeClock())
    assert (run.status, run.error.type) == (RunStatus.NEEDS_ATTENTION, "DurableCallError")
    for part in (RUN_ID, "'outer'", words, "body", "Next:"):
        assert part in run.error.message
    assert (inner.calls, len(texts(journal))) == ([], 1)
    assert only_run(journal)


@pytest.mark.parametrize("spread", [in_threads, in_turn])
@pytest.mark.parametrize(("call", "words"), CALLS.values(), ids=CALLS.keys())
def test_durable_call_in_a_branch_raises_at_once_and_none_of_the_branches_is_recorded(
    journal, call, words, spread
):
    inner = Counted()

    def branches(ctx):
        return ctx.gather({"bad": (lambda: call(ctx, inner),), "other": (len, "abc")})

    run = run_live(journal, scripted(branches), spread=spread)
    assert (run.status, run.error.type) == (RunStatus.NEEDS_ATTENTION, "DurableCallError")
    assert words in run.error.message
    assert "'bad'" not in [name for _, _, name, _ in texts(journal)]
    assert inner.calls == []
    assert only_run(journal)


@pytest.mark.parametrize("swallowed", [Exception, BaseException])
def test_durable_call_in_a_body_that_swallows_the_error_records_nothing(journal, swallowed):
    inner = Counted()

    def body(ctx):
        try:
            ctx.step("inner", inner)
        except swallowed:
            return "swallowed"

    seen: list[BaseException] = []
    calls = (lambda c: c.step("outer", lambda: body(c)), lambda c: c.step("after", inner))
    run = run_live(journal, swallowing(*calls, seen=seen))
    assert (run.status, run.error.type) == (RunStatus.NEEDS_ATTENTION, "DurableCallError")
    assert [type(error) for error in seen] == [DurableCallError, DurableCallError]
    assert (inner.calls, len(texts(journal))) == ([], 1)
    repaired = resume(journal, scripted(lambda c: c.step("outer", lambda: "repaired")))
    assert repaired.result == ["repaired"]


def in_a_thread(work):
    """Do work in another thread and return what it raised."""
    raised = []

    def target():
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join(10)
    return raised


@pytest.mark.parametrize(("call", "words"), CALLS.values(), ids=CALLS.keys())
def test_durable_call_from_another_thread_raises_there_and_stops_the_run(journal, call, words):
    inner, raised = Counted(), []

    def threaded(ctx):
        raised.extend(in_a_thread(lambda: call(ctx, inner)))

    run = run_live(journal, scripted(threaded))
    (error,) = raised
    assert isinstance(error, DurableCallError)
    assert "another thread" in str(error)
    assert words in str(error)
    assert (run.status, run.error.message) == (RunStatus.NEEDS_ATTENTION, str(error))
    assert (inner.calls, len(texts(journal))) == ([], 1)
    assert only_run(journal)


def test_durable_call_from_another_thread_while_a_step_runs_raises_there(journal):
    raised = []

    def threaded(ctx):
        return ctx.step("outer", lambda: raised.extend(in_a_thread(ctx.now)))

    run = run_live(journal, scripted(threaded))
    assert [type(error) for error in raised] == [DurableCallError]
    assert (run.status, len(texts(journal))) == (RunStatus.NEEDS_ATTENTION, 1)


def test_a_run_can_be_driven_in_any_thread(journal_path):
    results = []

    def drive():
        with SQLiteJournal(journal_path) as journal:
            results.append(run_live(journal, scripted(lambda c: c.step("a", len, ""))).result)

    assert in_a_thread(drive) == []
    assert results == [[0]]


@pytest.mark.parametrize("outcome", ["completes", "fails", "has a bug", "crashes"])
@pytest.mark.parametrize(("call", "words"), CALLS.values(), ids=CALLS.keys())
def test_context_that_escaped_is_refused_after_the_end(journal, call, words, outcome):
    escaped, body = [], Counted()

    def end(ctx):
        escaped.append(ctx)
        if outcome == "fails":
            raise RunFailed("sold out")
        if outcome == "has a bug":
            raise ZeroDivisionError
        if outcome == "crashes":
            raise KeyboardInterrupt

    if outcome == "crashes":
        with pytest.raises(KeyboardInterrupt):
            run_live(journal, scripted(end))
    else:
        run_live(journal, scripted(end))
    before = texts(journal)
    with pytest.raises(DurableCallError, match=f"{words}.* after the attempt ended"):
        call(escaped[0], body)
    assert (texts(journal), body.calls) == (before, [])
    assert only_run(journal)
    assert escaped[0].run_id == RUN_ID


@pytest.mark.parametrize("call", [call for call, _ in CALLS.values()], ids=CALLS.keys())
def test_context_of_a_suspended_attempt_raises_the_suspension_again(journal, call):
    escaped, body = [], Counted()
    script = (escaped.append, lambda c: c.sleep(60), lambda c: c.step("late", body, 1))
    clock = FakeClock()
    assert run_live(journal, scripted(*script), clock=clock).status is RunStatus.SUSPENDED
    before = texts(journal)
    clock.advance(60)  # the wait is over, and this attempt with it
    with pytest.raises(BaseException) as again:
        call(escaped[0], body)
    assert not isinstance(again.value, Exception)
    assert again.value is escaped[0].stopped
    assert (texts(journal), body.calls) == (before, [])
    assert only_run(journal)
    assert resume(journal, scripted(*script), clock=clock).result == [None, None, 1]


def test_context_of_an_older_attempt_is_refused_while_a_newer_one_drives(journal):
    contexts = []

    def look(ctx):
        contexts.append(ctx)
        if len(contexts) == 1:
            raise KeyboardInterrupt
        with pytest.raises(DurableCallError):
            contexts[0].step("zombie", len, "")

    with pytest.raises(KeyboardInterrupt):
        run_live(journal, scripted(look))
    assert resume(journal, scripted(look)).result == [None]


def test_context_says_which_run_and_attempt_it_is(journal):
    seen = []

    def look(ctx):
        seen.append((ctx.run_id, ctx.generation, ctx.attempt))

    script = (look, lambda c: c.step("a", len, ""))
    crash(journal, scripted(*script), "a", "before")
    resume(journal, scripted(*script))
    assert seen == [(RUN_ID, 1, 1), (RUN_ID, 1, 2)]


@pytest.mark.parametrize("body", ["the result of a call", None])
def test_a_body_that_is_no_function_is_refused_before_anything_is_recorded(journal, body):
    @workflow(version="1")
    def slip(ctx, _input):
        ctx.step("s", body)

    run = Engine(journal, [slip]).run(slip, None, run_id="r")

    assert run.status == "needs_attention"
    assert "takes a function, and as retry= a RetryPolicy" in run.error.message


@pytest.mark.parametrize("retry", [3, 0, "often"])
def test_a_retry_that_is_no_policy_is_refused_before_the_body_runs(journal, retry):
    executed = []

    @workflow(version="1")
    def slip(ctx, _input):
        ctx.effect("s", lambda *, idempotency_key: executed.append(idempotency_key), retry=retry)

    run = Engine(journal, [slip]).run(slip, None, run_id="r")

    assert (run.status, executed) == ("needs_attention", [])
    assert "takes a function, and as retry= a RetryPolicy" in run.error.message


def test_a_storage_error_in_a_body_ends_the_attempt_and_not_the_step(journal):
    broken = [True]

    def book():
        if broken:
            raise StorageError(path="elsewhere.db", reason="disk full")
        return "booked"

    @workflow(version="1")
    def booking(ctx, _input):
        return ctx.step("book", book)

    engine = Engine(journal, [booking])
    with pytest.raises(StorageError):
        engine.run(booking, None, run_id="r")
    assert len(engine.history("r")) == 1

    broken.clear()
    assert engine.resume("r").result == "booked"


class UnsayableError(Exception):
    def __str__(self):
        raise ValueError("no words")


@pytest.mark.parametrize("error", [UnsayableError(), RuntimeError("x" * 1_000_000)])
@pytest.mark.parametrize("inside", [True, False])
def test_an_error_with_no_message_or_an_endless_one_is_recorded_all_the_same(
    journal, error, inside
):
    def fail():
        raise error

    @workflow(version="1")
    def failing(ctx, _input):
        return ctx.step("fail", fail) if inside else fail()

    run = Engine(journal, [failing]).run(failing, None, run_id="r")

    assert run.status == ("failed" if inside else "needs_attention")
    assert run.error.type == type(error).__name__
    assert 0 < len(run.error.message) <= 2_000
