"""Every error, caused for real: its facts are attributes, and its text says what to do next.

The verdicts on a run (`StepFailedError`, `RunFailed`, `RunCancelledError`) are data: they say what
happened, and what to do about it is the workflow's business.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from unittest import mock

import pytest
from support import RUN_ID, crash, resume, run_live, scripted

import durable_mini
from durable_mini import (
    Budget,
    BudgetExceededError,
    CompensationFailedError,
    Context,
    DurableCallError,
    DurableError,
    Engine,
    HistoryTooLongError,
    InvalidNameError,
    JournalCorruptError,
    LeaseLostError,
    MemoryJournal,
    NonDeterminismError,
    NotAJournalError,
    PayloadError,
    RunCancelledError,
    RunFailed,
    RunIdConflictError,
    SQLiteJournal,
    StepFailedError,
    StorageError,
    StructureChangedError,
    StructureUnreadableError,
    UnknownRunError,
    UnknownWorkflowError,
    workflow,
)


@workflow(version="1")
def agent(ctx, order):
    return ctx.step("plan", str, order)


def renamed():
    @workflow(version="1", name="agent")
    def other(ctx, order):
        return ctx.step("planned", str, order)

    return other


def bad_name(_):
    Engine(MemoryJournal(), [agent]).start(agent, run_id="a\nb")


def bad_input(_):
    Engine(MemoryJournal(), [agent]).start(agent, {"a": [1, {2}]}, run_id=RUN_ID)


def big_input(_):
    Engine(MemoryJournal(), [agent], max_payload_bytes=10).start(agent, "x" * 9, run_id=RUN_ID)


def call_after_the_end(_):
    escaped = []
    run_live(MemoryJournal(), scripted(escaped.append))
    escaped[0].step("late", len, "")


def step_failure(_):
    caught = []

    def attempt(ctx):
        try:
            ctx.step("plan", int, "no number")
        except StepFailedError as error:
            caught.append(error)

    run_live(MemoryJournal(), scripted(attempt))
    raise caught[0]


def divergence(_):
    journal = MemoryJournal()
    crash(journal, scripted(lambda c: c.step("plan", len, "")), "plan", "after")
    resume(journal, scripted(lambda c: c.effect("charge", len, "")))


def unreadable(_):
    names = {}
    exec("from durable_mini import workflow\n@workflow(version='1')\ndef made(ctx, x): ...", names)
    Engine(MemoryJournal(), [names["made"]])


def changed_structure(_):
    journal = MemoryJournal()
    Engine(journal, [agent]).start(agent, run_id=RUN_ID)
    resume(journal, renamed())


def other_input(_):
    engine = Engine(MemoryJournal(), [agent])
    for order in (7, 8):
        engine.start(agent, order, run_id=RUN_ID)


def other_workflow(_):
    second = scripted()
    engine = Engine(MemoryJournal(), [agent, second])
    engine.start(agent, run_id=RUN_ID)
    engine.start(second, run_id=RUN_ID)


def unknown_run(_):
    Engine(MemoryJournal(), [agent]).resume("r-9")


def unknown_workflow_of_a_run(_):
    journal = MemoryJournal()
    Engine(journal, [agent]).start(agent, run_id=RUN_ID)
    resume(journal, scripted())


def another_programs_file(folder):
    path = folder / "other.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (x)")
    SQLiteJournal(path)


def flipped_event(folder):
    path = folder / "journal.db"
    with SQLiteJournal(path) as journal:
        run_live(journal, agent, 7)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE events SET payload = replace(payload, '7', '8') WHERE seq = 2")
    with SQLiteJournal(path) as journal:
        Engine(journal).history(RUN_ID)


def missing_folder(folder):
    SQLiteJournal(folder / "nowhere" / "journal.db")


def two_drivers(_):
    journal, results = MemoryJournal(), ["first", "second"]

    def overtaken():
        result = results.pop()
        if results:
            resume(journal, script)
        return result

    script = scripted(lambda c: c.step("plan", overtaken))
    run_live(journal, script)


def raised_in_code(*calls, **options):
    """What the last of these calls raises where workflow code makes it."""
    caught = []

    def attempt(ctx):
        try:
            for call in calls:
                call(ctx)
        except DurableError as error:
            caught.append(error)

    run_live(MemoryJournal(), scripted(attempt), **options)
    raise caught[0]


def cancelled(_):
    caught, journal = [], MemoryJournal()

    def attempt(ctx):
        Engine(journal).cancel(RUN_ID)
        try:
            ctx.step("plan", len, "")
        except RunCancelledError as error:
            caught.append(error)

    run_live(journal, scripted(attempt))
    raise caught[0]


def spent_budget(_):
    spend = lambda c: c.step("think", len, "", cost=2.0)  # noqa: E731 - used twice
    raised_in_code(spend, spend, budget=Budget(max_cost=3.5))


def long_history(_):
    raised_in_code(*[lambda c: c.now()] * 3, max_events=3)


def failed_compensation(_):
    caught, unwind = [], Context.unwind

    def told(ctx):
        try:
            unwind(ctx)
        except CompensationFailedError as error:
            caught.append(error)
            raise

    def refund(**_):
        raise ConnectionError("no line")

    def refused(_):
        raise RunFailed("sold out")

    with mock.patch.object(Context, "unwind", told):
        run_live(MemoryJournal(), scripted(lambda c: c.compensate("refund", refund), refused))
    raise caught[0]


# What causes it, the error, its facts, words in its text. The facts' values are checked where they
# are known beforehand; `...` stands for any.
ERRORS = [
    (bad_name, InvalidNameError, {"what": "run id"}, ["run id"]),
    (
        bad_input,
        PayloadError,
        {"kind": "run", "name": RUN_ID, "path": "input['a'][1]", "reason": ...},
        ["set", RUN_ID],
    ),
    (big_input, PayloadError, {"size_bytes": 11, "limit_bytes": 10, "name": RUN_ID}, ["11", "10"]),
    (call_after_the_end, DurableCallError, {"run_id": RUN_ID, "call": ..., "reason": ...}, []),
    (
        step_failure,
        StepFailedError,
        {"run_id": RUN_ID, "seq": 2, "step": "plan", "type": "ValueError", "message": ...},
        ["event 2", "no number"],
    ),
    (
        divergence,
        NonDeterminismError,
        {"run_id": RUN_ID, "seq": 2, "recorded": "step 'plan'", "requested": "effect 'charge'"},
        ["event 2", "step 'plan'", "effect 'charge'"],
    ),
    (unreadable, StructureUnreadableError, {"workflow": "made", "reason": ...}, ["'made'"]),
    (
        changed_structure,
        StructureChangedError,
        {"run_id": RUN_ID, "workflow": "agent", "version": "1", "position": 1},
        ["step 'plan'", "step 'planned'"],
    ),
    (
        other_input,
        RunIdConflictError,
        {"run_id": RUN_ID, "recorded": "agent with input 7", "requested": "agent with input 8"},
        ["input 7", "input 8"],
    ),
    (
        other_workflow,
        RunIdConflictError,
        {"run_id": RUN_ID, "recorded": ..., "requested": ...},
        ["agent", "scripted"],
    ),
    (unknown_run, UnknownRunError, {"run_id": "r-9"}, ["'r-9'"]),
    (
        unknown_workflow_of_a_run,
        UnknownWorkflowError,
        {"run_id": RUN_ID, "workflow": "agent", "version": "1", "registered": ...},
        ["'agent'", "'1'", "'scripted'"],
    ),
    (another_programs_file, NotAJournalError, {"path": ..., "reason": ...}, ["other.db"]),
    (flipped_event, JournalCorruptError, {"run_id": RUN_ID, "seq": 2, "reason": ...}, ["event 2"]),
    (missing_folder, StorageError, {"path": ..., "reason": ...}, ["journal.db"]),
    (
        two_drivers,
        LeaseLostError,
        {"run_id": RUN_ID, "worker": ..., "token": 1, "holder": None, "held": 3},
        ["token 1", "token 3"],
    ),
    (cancelled, RunCancelledError, {"run_id": RUN_ID, "seq": 3}, ["event 3", "cancelled"]),
    (
        spent_budget,
        BudgetExceededError,
        {"run_id": RUN_ID, "seq": 3, "limit": "max_cost", "spent": 4.0, "allowed": 3.5},
        ["event 3", "max_cost", "3.5", "make it 4."],
    ),
    (
        long_history,
        HistoryTooLongError,
        {"run_id": RUN_ID, "seq": 3, "limit": 3},
        ["event 3", "3 events", "continue_as_new"],
    ),
    (
        failed_compensation,
        CompensationFailedError,
        {
            "run_id": RUN_ID,
            "seq": 3,
            "step": "refund",
            "type": "ConnectionError",
            "message": "no line",
        },
        ["event 3", "'refund'", "ConnectionError: no line", "retry_compensation('r-1')"],
    ),
]
VERDICTS = (StepFailedError, RunFailed, RunCancelledError)


@pytest.mark.parametrize(
    ("cause", "kind", "facts", "words"), ERRORS, ids=[cause.__name__ for cause, *_ in ERRORS]
)
def test_error_has_its_facts_as_attributes_and_says_what_to_do(tmp_path, cause, kind, facts, words):
    with pytest.raises(DurableError) as caught:
        cause(tmp_path)
    error = caught.value
    assert type(error) is kind
    for fact, value in facts.items():
        assert hasattr(error, fact), f"{fact} is no attribute"
        if value is not ...:
            assert getattr(error, fact) == value
    text = str(error)
    for word in words:
        assert word in text
    if "run_id" in facts:
        assert facts["run_id"] in text
    assert "\n" not in text
    assert len(text) < 600
    if kind not in VERDICTS:
        before, told, after = text.partition("Next: ")
        assert told
        assert len(before) > 10, "first what happened"
        assert after.endswith(".")
        assert len(after) > 10


def test_every_error_of_the_engine_is_caused_above_and_public():
    public = {
        value
        for value in vars(durable_mini).values()
        if isinstance(value, type) and issubclass(value, DurableError)
    }
    assert public == {DurableError, RunFailed, *(kind for _, kind, *_ in ERRORS)}


def test_error_with_a_huge_input_stays_short():
    engine = Engine(MemoryJournal(), [agent], max_payload_bytes=10_000_000)
    engine.start(agent, "x" * 1_000_000, run_id=RUN_ID)
    with pytest.raises(RunIdConflictError) as caught:
        engine.start(agent, "y" * 1_000_000, run_id=RUN_ID)
    assert len(str(caught.value)) < 1_000


def test_a_refused_file_is_left_as_it_is(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a journal")
    with pytest.raises(NotAJournalError) as caught:
        SQLiteJournal(path)
    assert Path(caught.value.path) == path
    assert path.read_text() == "not a journal"
    assert list(tmp_path.iterdir()) == [path]


def test_run_failed_carries_its_reason_into_the_run(journal):
    def fail(_):
        raise RunFailed("sold out")

    run = run_live(journal, scripted(fail))
    assert (run.status, run.error.type, run.error.message) == ("failed", "RunFailed", "sold out")
