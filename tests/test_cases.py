"""Faults that other engines were reported to have, each as the whole kind of fault.

About: a recorded result taken by another call; a divergence retried for ever; a divergence that
writes; a detector that only counts; a write done twice inside a retried step; a hash that changes
with an unrelated edit; an oversized payload retried for ever; an exception or a value that can't be
read back; a tuple live and a list on replay; a failure that differs on replay; write order; an
accepted run lost before its first event; spend counted again on recovery; the input taken for the
first step.
"""

from __future__ import annotations

import itertools

import pytest
from support import RUN_ID, Counted, crash, resume, run_live, scripted, texts

from durable_mini import (
    DurableCallError,
    Engine,
    EventKind,
    FakeClock,
    MemoryJournal,
    NonDeterminismError,
    RetryPolicy,
    RunStatus,
    SQLiteJournal,
    StructureChangedError,
    structure,
    workflow,
)
from durable_mini.events import Position
from durable_mini.lab.agent import agent_in
from durable_mini.lab.crashes import InjectedCrash
from durable_mini.lab.ledger import Ledger

CALLS = {
    "step": lambda c, body: c.step("work", body, 1),
    "effect": lambda c, body: c.effect("work", body, 1),
    "now": lambda c, _: c.now(),
    "random": lambda c, _: c.random(),
    "uuid": lambda c, _: c.uuid(),
    "step of another name": lambda c, body: c.step("other", body, 1),
    "step with other arguments": lambda c, body: c.step("work", body, 2),
}


@pytest.mark.parametrize(("recorded", "asked"), list(itertools.permutations(CALLS, 2)))
def test_recorded_result_is_never_taken_by_another_call(recorded, asked):
    """Kind, name and arguments are compared before the result is used, in every combination."""
    journal, body = MemoryJournal(), Counted()

    def script(first):
        return scripted(lambda c: CALLS[first](c, body), lambda c: c.step("last", body, 3))

    crash(journal, script(recorded), "last", "before")
    history, executed = texts(journal), len(body.calls)
    with pytest.raises(NonDeterminismError) as caught:
        resume(journal, script(asked))
    assert caught.value.seq == 2
    assert (texts(journal), len(body.calls)) == (history, executed)


def test_a_count_of_calls_that_fits_is_not_enough(journal):
    """Two charges that only differ in whom they charge: as many calls, of one kind and name."""
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


def test_diverged_run_stands_still_until_its_code_is_repaired(journal):
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
    """The receiver took the charge, the answer was lost, three times over."""
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
    before, unrelated, related = (
        workflow(version="1", name="agent")(function)
        for function in (before_an_edit, after_an_unrelated_edit, after_a_related_edit)
    )
    assert structure(before) == structure(unrelated)
    crash(journal, before, "draft", "before", "ticket")
    with pytest.raises(StructureChangedError, match="step 'draft'"):
        resume(journal, related)
    assert resume(journal, unrelated).result == "ticket"


def test_payload_that_is_too_large_fails_once_and_says_step_size_and_limit(journal):
    body = Counted(result="x" * 2_000)
    agent = scripted(lambda c: c.step("report", body, retry=RetryPolicy(max_attempts=9)))
    for _ in range(3):
        run = run_live(journal, agent, max_payload_bytes=1_000)
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
    run = run_live(journal, scripted(lambda c: c.step("make", lambda: bad)))
    assert (run.status, run.error.type) == (RunStatus.FAILED, "PayloadError")
    assert "'make'" in run.error.message
    assert place in run.error.message
    assert "result" not in Engine(journal).history(RUN_ID)[1].payload


def test_tuple_is_a_list_live_as_on_replay_wherever_code_can_see_it(journal):
    @workflow(version="1")
    def agent(ctx, value):
        seen = [type(value), type(ctx.step("make", lambda: (1, (2,)))), type(ctx.now())]
        ctx.step("last", len, "")
        return [kind.__name__ for kind in seen]

    crash(journal, agent, "last", "before", (1, 2))
    replayed = resume(journal, agent).result
    assert replayed == run_live(MemoryJournal(), agent, (1, 2)).result == ["list", "list", "float"]


def test_failure_is_compared_by_stable_fields_alone(journal):
    """The traceback and the address in the repr differ in every attempt; neither is recorded."""

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
    """At each commit the journal holds exactly what the code has asked for up to there."""
    lengths = []

    def probe(position, _kind, _name):
        if position is not Position.BEFORE:
            lengths.append((str(position), len(Engine(journal).history(RUN_ID))))

    run_live(journal, agent_in(Ledger()), "t-1", probe=probe)
    assert lengths == [pair for n in range(1, 8) for pair in (("window", n), ("after", n + 1))]
    history = Engine(journal).history(RUN_ID)
    assert [event.seq for event in history] == list(range(1, 10))


def test_accepted_run_is_in_the_journal_before_anything_of_it_executes(journal_path):
    body = Counted()
    agent = scripted(lambda c: c.step("work", body, 1))
    with SQLiteJournal(journal_path) as journal:
        Engine(journal, [agent]).start(agent, run_id=RUN_ID)
    assert body.calls == []
    with SQLiteJournal(journal_path) as journal:  # the process that accepted it has died
        assert [run.status for run in Engine(journal).runs()] == [RunStatus.PENDING]
        assert resume(journal, agent).result == [1]


def test_spend_is_counted_once_whatever_crashes(journal_path):
    """Every step of the reference agent is crashed at every position, in one run."""
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
    """Admission has a kind of its own: the first step is executed, whatever the input is."""
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
