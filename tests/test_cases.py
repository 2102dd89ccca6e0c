"""Faults that other engines were reported to have, each as the whole kind of fault.

A docstring begins with the number of its case:

 1 a recorded result was taken by another call
 2 a divergence was retried for ever
 3 a diverged run went on writing
 4 the detector only counted calls
 5 steps side by side were replayed in another order
 6 of two executors of a run the loser went on
 7 an error during recovery, or an overlap of deploys, left runs pending for ever
 8 a write inside a retried step was done twice
 9 an unrelated edit stranded runs, and nobody said so
10 an oversized payload was retried for ever
11 a value or an exception couldn't be read back
12 live code saw a tuple, replay a list
13 a failure differed on replay and was taken for a mismatch
14 commits came out of order
15 an accepted run was lost before its first event
16 finished steps ran again after a wait
17 spend was counted again on recovery
18 a torn last line blocked a journal, or swallowed the next append
19 the input counted as the first step
20 a cancelled run skipped its compensations
"""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from threading import Event

import pytest
from interrupted import by_worker, die_everywhere
from support import RUN_ID, Counted, crash, resume, run_live, scripted, texts

from durable_mini import (
    DurableCallError,
    Engine,
    EventKind,
    FakeClock,
    JournalCorruptError,
    LeaseLostError,
    MemoryJournal,
    NonDeterminismError,
    RetryPolicy,
    RunStatus,
    SQLiteJournal,
    Step,
    StorageError,
    StructureChangedError,
    Worker,
    structure,
    workflow,
)
from durable_mini.events import Position
from durable_mini.journal.file import FileJournal
from durable_mini.lab.agent import agent_in
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.lab.ledger import Ledger


@workflow(version="1")
def quick(ctx, value):
    return value


@workflow(version="1")
def slow(ctx, value):
    ctx.sleep(60)
    return value


CALLS = {
    "step": lambda c, body: c.step("work", body, 1),
    "effect": lambda c, body: c.effect("work", body, 1),
    "now": lambda c, _: c.now(),
    "random": lambda c, _: c.random(),
    "uuid": lambda c, _: c.uuid(),
    "sleep": lambda c, _: c.sleep(0),
    "wait_signal": lambda c, _: str(c.wait_signal("work", timeout_s=0)),
    "wait for another signal": lambda c, _: str(c.wait_signal("other", timeout_s=0)),
    "gather": lambda c, body: c.gather({"one": (body, 1), "two": (body, 2)}),
    "child": lambda c, _: c.child(quick),
    "child with another input": lambda c, _: c.child(quick, 1),
    "compensate": lambda c, body: c.compensate("work", body, 1),
    "point_of_no_return": lambda c, _: c.point_of_no_return(),
    "step of another name": lambda c, body: c.step("other", body, 1),
    "step with other arguments": lambda c, body: c.step("work", body, 2),
}


@pytest.mark.parametrize(("recorded", "asked"), list(itertools.permutations(CALLS, 2)))
def test_recorded_result_is_never_taken_by_another_call(recorded, asked):
    """Case 1: kind, name and arguments are compared first, in every combination of calls."""
    journal, body = MemoryJournal(), Counted()

    def engine(first, **options):
        agent = scripted(lambda c: CALLS[first](c, body), lambda c: c.step("last", body, 3))
        return agent, Engine(journal, [agent, quick], **options)

    agent, crashing = engine(recorded, probe=CrashAt("last", "before"))
    with pytest.raises(InjectedCrash):
        crashing.run(agent, run_id=RUN_ID)
    history, executed, runs = texts(journal), len(body.calls), len(list(crashing.runs()))
    with pytest.raises(NonDeterminismError) as caught:
        engine(asked)[1].resume(RUN_ID)
    assert caught.value.seq == 2
    assert (texts(journal), len(body.calls), len(list(crashing.runs()))) == (
        history,
        executed,
        runs,
    )
    assert engine(recorded)[1].resume(RUN_ID).status is RunStatus.COMPLETED


@pytest.mark.parametrize("asked", ["effect", "step of another name", "step with other arguments"])
def test_failed_tries_are_never_counted_for_another_call(journal, asked):
    """Case 1: what a back-off waits for is compared too."""
    body, retry = Counted(), RetryPolicy(max_attempts=2)

    def fail(*_):
        raise ConnectionError("no line")

    agent = scripted(lambda c: c.step("work", fail, 1, retry=retry))
    engine = Engine(journal, [agent], clock=FakeClock())
    engine.start(agent, run_id=RUN_ID)
    Worker(engine).run_until_idle()
    history = texts(journal)
    with pytest.raises(NonDeterminismError) as caught:
        resume(journal, scripted(lambda c: CALLS[asked](c, body)), clock=FakeClock(100.0))
    assert (caught.value.seq, body.calls, texts(journal)) == (2, [], history)


def test_a_count_of_calls_that_fits_is_not_enough(journal):
    """Case 4: two charges, as many calls of one kind and name; they differ in whom they charge."""
    charged = []

    def charge(customer, *, idempotency_key):
        charged.append((customer, idempotency_key))

    def of(*customers):
        return scripted(
            *(lambda c, who=who: c.effect("charge", charge, who) for who in customers),
            lambda c: c.step("last", len, ""),
        )

    crash(journal, of("ada", "bob"), "last", "before")
    with pytest.raises(NonDeterminismError, match="event 2"):
        resume(journal, of("bob", "ada"))
    assert [who for who, _ in charged] == ["ada", "bob"]


DRIFTS = {
    "kind": (lambda c: c.effect("pay", Counted(), 1), "step 'pay'", "effect 'pay'"),
    "name": (lambda c: c.step("sell", Counted(), 1), "step 'pay'", "step 'sell'"),
    "arguments": (lambda c: c.step("pay", Counted(), 2), "with arguments of", "with arguments of"),
    "no call": (lambda c: None, "step 'pay'", "the end of the workflow"),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_each_kind_of_drift_is_caught_and_said(journal, drift):
    """Case 4: kind, name, arguments and number, each with what was recorded and what was asked."""
    asked, recorded_text, requested_text = DRIFTS[drift]
    good = scripted(lambda c: c.step("pay", Counted(), 1), lambda c: c.step("last", len, ""))
    crash(journal, good, "last", "before")
    with pytest.raises(NonDeterminismError, match="run r-1, event 2") as caught:
        resume(journal, scripted(asked))
    assert recorded_text in caught.value.recorded
    assert requested_text in caught.value.requested
    assert caught.value.recorded != caught.value.requested


def test_divergence_is_an_error_that_no_worker_retries(journal):
    """Case 2: it never looks like a run that waits; `resume` with repaired code goes on."""
    good = scripted(lambda c: c.step("a", len, ""), lambda c: c.wait_signal("go"))
    bad = scripted(lambda c: c.step("b", len, ""), lambda c: c.wait_signal("go"))
    clock = FakeClock()
    run_live(journal, good, clock=clock)
    Engine(journal).signal(RUN_ID, "go", "now")
    engine = Engine(journal, [bad], clock=clock)
    attempts = []
    for _ in range(3):
        Worker(engine, on_attempt=attempts.append).run_until_idle()
        run = engine.describe(RUN_ID)
        assert (run.status, run.error.type) == ("needs_attention", "NonDeterminismError")
        assert (run.waiting_for, run.attempts, clock.now()) == (None, 2, 0.0)
    assert attempts == []
    engine.signal(RUN_ID, "go", "again")
    assert Worker(Engine(journal, [good], clock=clock)).run_until_idle() == 0
    run = resume(journal, good)
    assert (run.status, run.result, run.error) == ("completed", [0, "now"], None)


ORDERS = list(itertools.permutations("abc"))


def in_this_order(order):
    """Branches of a `gather` that end in this order."""

    def spread(branches):
        for name in order:
            if name in branches:
                yield name, branches[name]()

    return spread


@pytest.mark.parametrize("known", [1, 2, 3])
@pytest.mark.parametrize("order", ORDERS, ids="".join)
def test_completion_order_is_journalled_and_replayed(journal, order, known):
    """Case 5: in whatever order the branches would end the second time; none runs again."""
    body = Counted()
    agent = scripted(
        lambda c: list(c.gather({name: (body, name) for name in "abc"}).items()),
        lambda c: c.step("last", len, ""),
    )

    def ended():
        return [event.name for event in Engine(journal).history(RUN_ID) if event.kind == "step"]

    crash(journal, agent, order[known - 1], "after", spread=in_this_order(order))
    assert ended() == [*order[:known]]
    backwards = order[::-1]
    crash(journal, agent, "last", "before", spread=in_this_order(backwards))
    on_record = [*order[:known], *(name for name in backwards if name not in order[:known])]
    assert ended() == on_record
    run = resume(journal, agent, spread=in_this_order(order))
    assert ended() == [*on_record, "last"]
    assert run.result == [[[name, name] for name in "abc"], 0]
    assert sorted(body.calls) == [("a",), ("b",), ("c",)]


def test_branches_that_end_in_another_order_in_threads_are_journalled_so(journal):
    """Case 5: live, the later ones in the code let the earlier ones wait."""
    may_end = {name: Event() for name in "abc"}
    may_end["c"].set()

    def branch(name):
        assert may_end[name].wait(10)
        return name

    def probe(position, _kind, name):
        if position is Position.AFTER and name in "bc":
            may_end["b" if name == "c" else "a"].set()

    agent = scripted(lambda c: c.gather({name: (branch, name) for name in "abc"}))
    run = run_live(journal, agent, probe=probe)
    assert [name for _, _, name, _ in texts(journal)[1:4]] == ["c", "b", "a"]
    assert list(run.result[0].items()) == [("a", "a"), ("b", "b"), ("c", "c")]


NEXT = {
    "step": lambda c, body: c.step("next", body, 1),
    "effect": lambda c, body: c.effect("next", body, 1),
    "gather": lambda c, body: c.gather({"next": (body, 1), "other": (body, 2)}),
    "now": lambda c, _: c.now(),
    "sleep": lambda c, _: c.sleep(0),
    "wait_signal": lambda c, _: str(c.wait_signal("go", timeout_s=0)),
    "child": lambda c, _: c.child(quick),
    "compensate": lambda c, body: c.compensate("next", body),
    "point_of_no_return": lambda c, _: c.point_of_no_return(),
    "continue_as_new": lambda c, _: c.continue_as_new(None) if c.generation == 1 else None,
}


@pytest.mark.parametrize("where", ["in a step", "between two calls"])
@pytest.mark.parametrize("call", NEXT)
def test_executor_that_lost_its_claim_stops_at_its_next_durable_call(journal, call, where):
    """Case 6: before that call's work starts; what the winner made is untouched."""
    body, takeovers = Counted(), []

    def taken_over(place):
        if place == where and not takeovers:
            takeovers.append(place)
            winner = Engine(journal, [agent, quick], clock=FakeClock(500.0)).resume(RUN_ID)
            assert winner.status is RunStatus.COMPLETED
            takeovers.append(([*map(str, journal.rows())], texts(journal), len(body.calls)))

    agent = scripted(
        lambda c: c.step("first", taken_over, "in a step"),
        lambda c: taken_over("between two calls"),
        lambda c: NEXT[call](c, body),
    )
    loser = Engine(journal, [agent, quick], clock=FakeClock())
    loser.start(agent, run_id=RUN_ID)
    with pytest.raises(LeaseLostError, match="the run goes on without this worker"):
        loser.resume(RUN_ID)
    afterwards = [*map(str, journal.rows())], texts(journal), len(body.calls)
    assert takeovers[1:] == [afterwards]


@pytest.mark.parametrize("failing", ["events", "replace", "peek", "append"])
def test_error_during_recovery_leaves_the_run_to_the_next_worker(journal, monkeypatch, failing):
    """Case 7: the storage refuses once; no run is left that nobody takes."""
    body = Counted()
    agent = scripted(lambda c: c.step("a", body, 1), lambda c: c.step("b", body, 2))
    clock = FakeClock()
    crash(journal, agent, "b", "before", clock=clock)

    def refuse(*_, **__):
        raise StorageError(path="journal.db", reason="the disk is away")

    engine = Engine(journal, [agent], clock=clock)
    with monkeypatch.context() as broken:
        broken.setattr(journal, failing, refuse)
        with pytest.raises(StorageError):
            Worker(engine).run_until_idle()
    assert Worker(engine).run_until_idle() == 1
    lost = failing == "append"  # the work was done before the journal refused
    assert (engine.describe(RUN_ID).result, len(body.calls)) == ([1, 2], 2 + lost)


def test_worker_that_dies_anywhere_in_a_recovery_leaves_the_run_to_the_next(tmp_path):
    """Case 7: at every place; the lease ends by itself, and the next worker goes on."""
    agent = scripted(lambda c: c.step("a", len, ""), lambda c: c.step("b", len, ""))

    def drive(engine):
        engine.start(agent, run_id=RUN_ID)
        by_worker(engine)

    assert die_everywhere(tmp_path, [agent], drive) > 10


def test_runs_that_nobody_can_take_are_reported_and_keep_no_other_waiting(journal, journal_path):
    """Case 7: deploys overlap, and one run's history is damaged."""
    versions = [workflow(version=v, name="agent")(before_an_edit) for v in ("1", "2", "3")]
    everybody = Engine(journal, versions, clock=FakeClock())
    for agent in versions:
        everybody.start(agent, "ticket", run_id=f"run {agent.version}")
    everybody.start(versions[1], "ticket", run_id="damaged")
    with closing(sqlite3.connect(journal_path)) as db, db:
        db.execute("UPDATE events SET checksum = checksum + 1 WHERE run_id = 'damaged'")
    old, new = (Engine(journal, two, clock=everybody.clock) for two in (versions[:2], versions[1:]))
    assert [Worker(engine).run_until_idle() for engine in (old, new, old, new)] == [2, 1, 0, 0]
    with closing(sqlite3.connect(journal_path)) as db, db:
        db.execute("DELETE FROM events WHERE run_id = 'damaged'")
        db.execute("DELETE FROM runs WHERE run_id = 'damaged'")
    assert {run.run_id: run.status for run in old.runs()} == {
        f"run {version}": RunStatus.COMPLETED for version in "123"
    }
    everybody.start(versions[2], "ticket", run_id="run 3 again")
    assert [orphan.run_id for orphan in old.orphans()] == ["run 3 again"]
    assert "version '3' isn't registered" in old.orphans()[0].reason
    assert new.orphans() == []


def test_diverged_run_stands_still_until_its_code_is_repaired(journal):
    """Case 3: whatever it is asked, it writes and executes nothing."""
    body = Counted()
    good = scripted(lambda c: c.step("a", body, 1), lambda c: c.step("b", body, 2))
    bad = scripted(lambda c: c.step("b", body, 2), lambda c: c.step("a", body, 1))
    crash(journal, good, "b", "before")
    before = texts(journal)
    for _ in range(5):
        with pytest.raises(NonDeterminismError):
            resume(journal, bad)
        run = Engine(journal).describe(RUN_ID)
        assert (run.status, run.error.type) == ("needs_attention", "NonDeterminismError")
        assert texts(journal) == before
    assert [run.run_id for run in Engine(journal).runs(RunStatus.PENDING)] == []
    assert resume(journal, good).result == [1, 2]
    assert len(body.calls) == 2


def test_write_inside_a_retried_step_has_one_key_and_the_world_takes_it_once(journal):
    """Case 8: the receiver took the charge, the answer was lost, three times over."""
    ledger, tries = Ledger(), itertools.count(1)

    def charge(order, *, idempotency_key):
        receipt = ledger.charge(order, 40, idempotency_key=idempotency_key)
        if next(tries) < 4:
            raise ConnectionError("the answer was lost")
        return receipt

    retry = RetryPolicy(max_attempts=4)
    agent = scripted(lambda c: c.effect("charge", charge, "order-7", retry=retry))
    run = run_live(journal, agent, clock=FakeClock())
    assert run.status is RunStatus.COMPLETED
    assert (len(ledger.rows), ledger.repeats) == (1, 0)
    assert next(tries) == 5


def test_durable_write_inside_a_steps_body_is_refused_at_the_first_try(journal):
    """Case 8: it would be done at every try, and replay wouldn't find it."""
    written, tried = [], []

    def body(ctx):
        tried.append(1)
        try:
            ctx.effect("write", lambda idempotency_key: written.append(1))
        except DurableCallError:
            raise ValueError("hidden") from None

    retry = RetryPolicy(max_attempts=4)
    agent = scripted(lambda c: c.step("outer", lambda: body(c), retry=retry))
    run = run_live(journal, agent, clock=FakeClock())
    assert run.error.type == "DurableCallError"
    assert (written, tried, len(texts(journal))) == ([], [1], 1)


def before_an_edit(ctx, ticket):
    plan = ctx.step("plan", lambda t: t, ticket)
    return ctx.step("draft", lambda p: p, plan)


def after_an_unrelated_edit(context, request):
    """The same durable calls; the text, the names and the steps' work are others."""
    # It was time to say what this is for.
    outline = context.step("plan", lambda r: [r, r][0], request)
    if not outline:
        outline = request

    return context.step("draft", lambda o: o, outline)


def after_a_related_edit(ctx, ticket):
    plan = ctx.step("plan", lambda t: t, ticket)
    return ctx.effect("draft", lambda p, idempotency_key: p, plan)


def test_unrelated_edit_strands_no_run_and_a_related_one_says_so(journal):
    """Case 9: names, comments, layout and bodies don't count; kinds do."""
    before, unrelated, related = (
        workflow(version="1", name="agent")(function)
        for function in (before_an_edit, after_an_unrelated_edit, after_a_related_edit)
    )
    assert structure(before) == structure(unrelated)
    crash(journal, before, "draft", "before", "ticket")
    with pytest.raises(StructureChangedError, match="step 'draft'"):
        resume(journal, related)
    (stranded,) = Engine(journal, [related]).orphans()
    assert stranded.run_id == RUN_ID
    assert "recorded step 'draft', now effect 'draft'" in stranded.reason
    assert Engine(journal, [unrelated]).orphans() == []
    assert resume(journal, unrelated).result == "ticket"


def test_payload_that_is_too_large_fails_once_and_says_step_size_and_limit(journal):
    """Case 10: no retry policy tries it again."""
    body = Counted(result="x" * 2_000)
    agent = scripted(lambda c: c.step("report", body, retry=RetryPolicy(max_attempts=9)))
    for _ in range(3):
        run = run_live(journal, agent, max_payload_bytes=1_000, clock=FakeClock())
        assert (run.status, run.error.type) == (RunStatus.FAILED, "PayloadError")
        for part in ("'report'", "2,002", "1,000"):
            assert part in run.error.message
    assert len(body.calls) == 1


class OddError(Exception):
    """Needs two values to be made, so it can't be rebuilt from its message."""

    def __init__(self, code, client):
        self.code, self.client = code, client
        super().__init__(f"code {code}")


def test_exception_that_cant_be_rebuilt_is_read_back_as_its_type_and_message(journal):
    """Case 11: it needs nothing of its class."""

    def fail():
        raise OddError(7, object())

    agent = scripted(lambda c: c.step("fail", fail))
    crash(journal, agent, "fail", "after")
    run = resume(journal, agent)
    assert (run.error.type, run.error.message, run.error.step) == ("OddError", "code 7", "fail")


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        ({"rows": [{"when": FakeClock()}]}, "result['rows'][0]['when']"),
        ([1, (2, {3})], "result[1][1]"),
        ({"a": {1: 0, "1": 0}}, "result['a']"),
        ({"a": [float("inf")]}, "result['a'][0]"),
    ],
)
def test_value_that_cant_be_read_back_fails_before_the_commit_and_names_the_place(
    journal, bad, place
):
    """Case 11: the step, and the path in the value."""
    run = run_live(journal, scripted(lambda c: c.step("make", lambda: bad)))
    assert (run.status, run.error.type) == (RunStatus.FAILED, "PayloadError")
    assert "'make'" in run.error.message
    assert place in run.error.message
    assert "result" not in Engine(journal).history(RUN_ID)[1].payload


def test_tuple_is_a_list_live_as_on_replay_wherever_code_can_see_it(journal):
    """Case 12: of the input, of results, of what is recorded."""

    @workflow(version="1")
    def agent(ctx, value):
        seen = [type(value), type(ctx.step("make", lambda: (1, (2,)))), type(ctx.now())]
        ctx.step("last", len, "")
        return [kind.__name__ for kind in seen]

    crash(journal, agent, "last", "before", (1, 2))
    replayed = resume(journal, agent).result
    assert replayed == run_live(MemoryJournal(), agent, (1, 2)).result == ["list", "list", "float"]


def test_failure_is_compared_by_stable_fields_alone(journal):
    """Case 13: traceback and address differ in every attempt, and neither is recorded."""

    def fail(depth):
        if depth:
            return fail(depth - 1)
        raise RuntimeError("no line")

    depths = iter([1, 30])
    agent = scripted(lambda c: c.step("fail", lambda: fail(next(depths))))
    crash(journal, agent, "fail", "after")
    run = resume(journal, agent)
    assert (run.error.type, run.error.message) == ("RuntimeError", "no line")
    error = Engine(journal).history(RUN_ID)[1].payload["error"]
    assert error == {"type": "RuntimeError", "message": "no line"}


def test_commits_are_ordered_and_sequence_numbers_dense(journal):
    """Case 14: at each commit the journal holds exactly what the code has asked for up to there."""
    lengths = []

    def probe(position, _kind, _name):
        if position is not Position.BEFORE:
            lengths.append((str(position), len(Engine(journal).history(RUN_ID))))

    run_live(journal, agent_in(Ledger()), "t-1", probe=probe)
    assert lengths == [pair for n in range(1, 8) for pair in (("window", n), ("after", n + 1))]
    history = Engine(journal).history(RUN_ID)
    assert [event.seq for event in history] == list(range(1, 10))


def test_accepted_run_is_in_the_journal_before_anything_of_it_executes(journal_path):
    """Case 15: admission is the first write."""
    body = Counted()
    agent = scripted(lambda c: c.step("work", body, 1))
    with SQLiteJournal(journal_path) as journal:
        Engine(journal, [agent]).start(agent, run_id=RUN_ID)
    assert body.calls == []
    with SQLiteJournal(journal_path) as journal:  # the process that accepted it has died
        assert [run.status for run in Engine(journal).runs()] == [RunStatus.PENDING]
        assert resume(journal, agent).result == [1]


def test_spend_is_counted_once_whatever_crashes(journal_path):
    """Case 17: every step of the reference agent is crashed at every position, in one run."""
    ledger = Ledger()
    agent = agent_in(ledger)
    with SQLiteJournal(journal_path) as journal:
        Engine(journal, [agent]).start(agent, "t-1", run_id=RUN_ID)
        pending = [
            (name, position)
            for name in (
                "plan",
                "research",
                "draft",
                "charge",
                "compose",
                "send_email",
                "update_crm",
            )
            for position in Position
        ]

        def probe(position, kind, name):
            if (name, position) in pending:
                pending.remove((name, position))
                raise InjectedCrash(position, kind, name)

        for _ in range(len(pending)):
            with pytest.raises(InjectedCrash):
                Engine(journal, [agent], probe=probe).resume(RUN_ID)
        run = resume(journal, agent)
    assert (run.cost, run.attempts) == (8.0, 22)
    assert ledger.spent == 16.0, "the four LLM steps were each billed once more in the window"
    assert (len(ledger.rows), ledger.repeats) == (3, 0)


def test_the_runs_input_is_no_steps_result(journal):
    """Case 19: admission has a kind of its own, and the first step is always executed."""
    body = Counted()
    agent = scripted(lambda c: c.step("admitted", body, "first"))
    run = run_live(journal, agent, {"result": "the input"})
    assert run.result == ["first"]
    assert [event.kind for event in Engine(journal).history(RUN_ID)] == [
        EventKind.ADMITTED,
        EventKind.STEP,
        EventKind.COMPLETED,
    ]
    assert len(body.calls) == 1


WAITS = {
    "timer": lambda c, _: c.sleep(60),
    "signal": lambda c, _: c.wait_signal("go"),
    "signal in time": lambda c, _: c.wait_signal("go", timeout_s=90),
    "timed out": lambda c, _: str(c.wait_signal("never", timeout_s=60)),
    "child": lambda c, _: c.child(slow),
    "back-off": lambda c, tries: c.step("ask", ask, tries, retry=RetryPolicy(initial_s=60)),
    "branch in a back-off": lambda c, tries: c.gather(
        {"ask": Step(ask, tries, retry=RetryPolicy(initial_s=60)), "fine": (len, "")}
    ),
}


def ask(tries):
    if next(tries.calls) < 2:
        raise ConnectionError("no line")


class Tries:
    """Counts over all attempts, and is no value that a digest would look into."""

    def __init__(self):
        self.calls = itertools.count()


@pytest.mark.parametrize("wait", WAITS)
def test_finished_steps_never_run_again_after_a_wait(journal, wait):
    """Case 16: the run is woken for nothing again and again, then for what it waits for."""
    body, tries, clock = Counted(), Tries(), FakeClock()
    agent = scripted(
        lambda c: c.step("before", body, 1),
        lambda c: c.effect("pay", body, 2),
        lambda c: c.gather({"side": (body, 3), "other side": (body, 4)}),
        lambda c: WAITS[wait](c, tries),
        lambda c: c.step("after", body, 5),
    )
    engine = Engine(journal, [agent, slow], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    for number in range(4):
        Worker(engine).run_until_idle()
        engine.signal(RUN_ID, "something else", number)
    Worker(engine).run_until_idle()
    engine.signal(RUN_ID, "go")
    for _ in range(3):
        clock.advance(60)
        Worker(engine).run_until_idle()
    assert engine.describe(RUN_ID).status is RunStatus.COMPLETED
    assert sorted(body.calls) == [(1,), (2,), (3,), (4,), (5,)]


def test_torn_last_line_is_cut_and_reported_and_the_next_append_is_clean(tmp_path):
    """Case 18: wherever it tore, every whole record is kept, and the run goes on."""
    path, body = tmp_path / "journal.jsonl", Counted()
    agent = scripted(*(lambda c, n=n: c.step(f"step {n}", body, n) for n in range(3)))
    with FileJournal(path) as journal:
        crash(journal, agent, "step 2", "before")
        known = texts(journal)
    lines = path.read_bytes().splitlines(keepends=True)
    whole, last = b"".join(lines[:-1]), lines[-1]
    assert b"step 1" in last
    for cut in (*range(0, len(last), 8), len(last) - 1):
        path.write_bytes(whole + last[:cut])
        with FileJournal(path) as journal:
            assert (journal.torn is None) == (cut == 0)
            assert texts(journal) == known[:-1], "the record that was cut is gone, and no other"
            assert resume(journal, agent).result == [0, 1, 2]
        with FileJournal(path) as journal:
            assert journal.torn is None
            assert [kind for _, kind, _, _ in texts(journal)[1:]] == ["step"] * 3 + ["completed"]


def test_damage_before_the_last_line_is_refused(tmp_path):
    """Case 18: what comes after it is whole, so nothing was torn: naming the run and the event."""
    path = tmp_path / "journal.jsonl"
    with FileJournal(path) as journal:
        run_live(journal, scripted(lambda c: c.step("a", len, ""), lambda c: c.step("b", len, "")))
    whole = path.read_bytes()
    damaged = whole.replace(b'"a"', b'"A"', 1)
    assert damaged != whole
    path.write_bytes(damaged)
    with pytest.raises(JournalCorruptError, match="run r-1, event 2"):
        FileJournal(path)
    assert path.read_bytes() == damaged, "nothing was cut"


@pytest.mark.parametrize("wait", ["pending", *WAITS])
def test_cancelling_runs_the_compensations(journal, wait):
    """Case 20: in reverse, whatever the run was doing; where nothing was done nothing is undone."""
    undone, tries, clock = [], Tries(), FakeClock()

    def undo(name, *, idempotency_key, effect_key):
        undone.append((name, idempotency_key, effect_key))

    agent = scripted(
        lambda c: c.compensate("hotel", undo, "hotel"),
        lambda c: c.effect("hotel", Counted(), 1),
        lambda c: c.compensate("flight", undo, "flight"),
        lambda c: c.effect("flight", Counted(), 1),
        lambda c: WAITS[wait](c, tries),
    )
    engine = Engine(journal, [agent, slow], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    if wait != "pending":
        Worker(engine).run_until_idle()
        assert engine.describe(RUN_ID).status is RunStatus.SUSPENDED
    engine.cancel(RUN_ID)
    Worker(engine).run_until_idle()
    run = engine.describe(RUN_ID)
    assert (run.status, run.error.type, clock.now()) == ("cancelled", "RunCancelledError", 0.0)
    expected = [(name, f"r-1/{name}~undo", f"r-1/{name}") for name in ("flight", "hotel")]
    assert undone == ([] if wait == "pending" else expected)
