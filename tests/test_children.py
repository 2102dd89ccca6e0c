"""A run that another run waits for: started once, driven by anybody, its end seen by its parent."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from interrupted import (
    LEASE_S,
    answered,
    by_resume,
    by_worker,
    die_everywhere,
    driven,
    is_free,
    stories,
)
from support import RUN_ID, prune_at, scripted, texts

from durable_mini import (
    Budget,
    Engine,
    FakeClock,
    MemoryJournal,
    NonDeterminismError,
    Position,
    RetryPolicy,
    RunFailed,
    RunIdConflictError,
    RunStatus,
    SQLiteJournal,
    StepFailedError,
    Worker,
    workflow,
)
from durable_mini.journal.file import FileJournal
from durable_mini.lab.crashes import InjectedCrash
from durable_mini.lease import Holder

HANDS = pytest.mark.parametrize("work", [by_resume, by_worker])
CHILD_ID = f"{RUN_ID}/leaf"


class Stage:
    """What the steps of the workflows here do; new for each test and each schedule."""

    done: list[Any]
    keys: set[str]

    @classmethod
    def set_up(cls) -> None:
        cls.done, cls.keys = [], set()

    @classmethod
    def work(cls, value: Any) -> Any:
        cls.done.append(value)
        return value

    @classmethod
    def post(cls, value: Any, *, idempotency_key: str) -> Any:
        cls.keys.add(idempotency_key)
        return cls.work(value)


@pytest.fixture(autouse=True)
def stage() -> None:
    Stage.set_up()


@workflow()
def leaf(ctx, value):
    """One effect; a string is what it fails with, and a list what it waits for."""
    if isinstance(value, list):
        return [ctx.wait_signal(name) for name in value]
    done = ctx.effect("work", Stage.post, value)
    if isinstance(value, str):
        raise RunFailed(value)
    return done


@workflow()
def parent(ctx, value):
    return ctx.child(leaf, value)


@workflow()
def grandparent(ctx, value):
    return ctx.child(parent, value)


@workflow()
def patient(ctx, value):
    """A parent that goes on after its child's failure."""
    try:
        return ctx.child(leaf, value)
    except StepFailedError as failure:
        told = [failure.type, failure.message, failure.step]
    return ctx.step("after", Stage.work, told)


FAMILY = [leaf, parent, grandparent, patient]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000.0)


@pytest.fixture
def engine(journal: SQLiteJournal, clock: FakeClock) -> Engine:
    return Engine(journal, FAMILY, clock=clock)


def attempt(engine: Engine, run_id: str = RUN_ID) -> None:
    """One attempt of one run, and of no other."""
    engine.drive(engine.journal.row(run_id), Holder("by hand"))


def statuses(engine: Engine) -> dict[str, str]:
    return {run.run_id: str(run.status) for run in engine.runs()}


# Starting and joining


@HANDS
@pytest.mark.parametrize("value", [1, None, {"a": [1, 2.5]}], ids=repr)
def test_child_gives_its_result_to_its_parent(engine, work, value):
    driven(work, parent, value)(engine)
    run = engine.describe(RUN_ID)
    assert (run.status, run.result) == ("completed", value)
    child = engine.describe(CHILD_ID)
    assert (child.status, child.input, child.result) == ("completed", value, value)
    assert Stage.done == [value]
    assert Stage.keys == {"r-1%2Fleaf/work"}


def test_child_is_a_run_like_any_other(engine):
    engine.start(parent, 1, run_id=RUN_ID)
    attempt(engine)
    assert statuses(engine) == {RUN_ID: "suspended", CHILD_ID: "pending"}
    run = engine.describe(RUN_ID)
    assert run.waiting_for == f"child {CHILD_ID!r}"
    assert is_free(engine)
    assert engine.journal.row(RUN_ID).due_at is None
    assert engine.journal.row(CHILD_ID).parent == RUN_ID
    assert engine.resume(CHILD_ID).result == 1
    assert engine.journal.row(RUN_ID).due_at <= engine.clock.now()
    assert engine.resume(RUN_ID).result == 1


def test_children_are_numbered_by_the_parents_generation_and_their_occurrence(journal, clock):
    @workflow()
    def other(ctx, value):
        return value

    @workflow(name="many/children")
    def many(ctx, generation):
        found = [ctx.child(leaf, 1), ctx.child(leaf, 1), ctx.child(other, 1), ctx.child(leaf, 2)]
        if generation < 2:
            ctx.continue_as_new(generation + 1)
        return found

    engine = Engine(journal, [leaf, other, many], clock=clock)
    assert engine.run(many, 1, run_id="order/1").result == [1, 1, 1, 2]
    assert [run.run_id for run in engine.runs()][1:] == [
        *("order%2F1/leaf", "order%2F1/leaf#2", "order%2F1/other", "order%2F1/leaf#3"),
        *("order%2F1~2/leaf", "order%2F1~2/leaf#2", "order%2F1~2/other", "order%2F1~2/leaf#3"),
    ]
    assert Stage.done == [1, 1, 2] * 2


def test_child_may_have_an_id_of_the_business_operation(engine, journal, clock):
    agent = scripted(lambda c: c.child(leaf, 1, run_id="invoice 7"))
    run = Engine(journal, [leaf, agent], clock=clock).run(agent, run_id=RUN_ID)
    assert run.result == [1]
    assert engine.describe("invoice 7").result == 1
    assert Stage.keys == {"invoice 7/work"}


def test_child_asked_for_twice_under_one_id_is_one_run(journal, clock):
    agent = scripted(*(lambda c: c.child(leaf, [], run_id="c") for _ in range(2)))
    engine = Engine(journal, [leaf, agent], clock=clock)
    assert engine.run(agent, run_id=RUN_ID).result == [[], []]
    assert set(statuses(engine)) == {RUN_ID, "c"}


def test_child_s_result_that_the_code_changes_stays_what_it_was(journal, clock):
    @workflow()
    def agent(ctx, _):
        ctx.child(leaf, ["a"], run_id="c").append("changed by the code")
        return ctx.child(leaf, ["a"], run_id="c")

    engine = Engine(journal, [leaf, agent], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    attempt(engine)
    engine.signal("c", "a", 1)
    assert engine.resume(RUN_ID).result == [1]


def test_child_of_the_same_id_and_input_is_joined_in_a_later_generation_too(journal, clock):
    """It ended when the first generation waited for it; the second isn't told again by anybody."""

    @workflow()
    def agent(ctx, generation):
        found = ctx.child(leaf, 7, run_id="c")
        if generation < 3:
            ctx.continue_as_new(generation + 1)
        return found

    engine = Engine(journal, [leaf, agent], clock=clock)
    assert engine.run(agent, 1, run_id=RUN_ID).result == 7
    assert Stage.done == [7]


@HANDS
def test_child_of_a_cancelled_parent_is_known_to_the_run_that_takes_its_id(journal, clock, work):
    """The child's end had nobody to tell it to; the parent's next generation asks for it."""
    agent = scripted(lambda c: c.child(leaf, ["go"], run_id="c"))
    engine = Engine(journal, [leaf, agent], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    work(engine)
    engine.cancel(RUN_ID)
    engine.resume(RUN_ID)
    engine.resume("c")
    assert statuses(engine) == {RUN_ID: "cancelled", "c": "cancelled"}
    engine.start(agent, run_id=RUN_ID, reuse=True)
    work(engine)
    run = engine.describe(RUN_ID)
    assert (run.generation, run.status, run.error.type) == (2, "failed", "RunCancelledError")


def test_child_in_a_later_generation_is_told_to_that_generation(journal, clock):
    @workflow()
    def agent(ctx, generation):
        found = ctx.child(leaf, ["go"])
        if generation < 2:
            ctx.continue_as_new(generation + 1)
        return found

    engine = Engine(journal, [leaf, agent], clock=clock)
    driven(by_worker, agent, 1)(engine)
    assert engine.describe(RUN_ID).result == [{"for": "go"}]
    for generation, child_id in ((1, CHILD_ID), (2, f"{RUN_ID}~2/leaf")):
        told = [e.name for e in engine.history(RUN_ID, generation) if e.kind == "child_ended"]
        assert told == [child_id]


@HANDS
def test_child_may_have_children(engine, work):
    driven(work, grandparent, 5)(engine)
    assert engine.describe(RUN_ID).result == 5
    assert list(statuses(engine)) == [RUN_ID, f"{RUN_ID}/parent", f"{RUN_ID}%2Fparent/leaf"]
    assert set(statuses(engine).values()) == {"completed"}
    assert Stage.done == [5]


@pytest.mark.parametrize("length", [150, 200])
def test_child_of_a_parent_whose_id_is_too_long_is_refused_clearly(engine, length):
    @workflow(name="a workflow with quite a long name, as some people like to have them, or not")
    def wordy(ctx, value):
        return value

    agent = scripted(lambda c: c.child(wordy, 1))
    engine = Engine(engine.journal, [wordy, agent], clock=engine.clock)
    run = engine.run(agent, run_id="x" * length)
    assert (run.status, run.error.type) == ("needs_attention", "InvalidNameError")
    assert run.error.message.startswith("child name is 'xxx")
    assert "1 to 200 printable characters" in run.error.message
    assert [event.kind for event in engine.history(run.run_id)] == ["admitted"]


@pytest.mark.parametrize("value", [float("nan"), {1: 1, "1": 2}, object(), "x" * 300_000])
def test_child_s_input_that_cannot_be_kept_admits_nobody(engine, value):
    agent = scripted(lambda c: c.child(leaf, value))
    engine = Engine(engine.journal, [leaf, agent], clock=engine.clock)
    run = engine.run(agent, run_id=RUN_ID)
    assert (run.status, run.error.type) == ("needs_attention", "PayloadError")
    assert set(statuses(engine)) == {RUN_ID}


def test_child_of_a_workflow_that_is_not_registered_needs_attention_until_it_is(journal, clock):
    @workflow()
    def stranger(ctx, value):
        return value

    agent = scripted(lambda c: c.child(stranger, 1))
    run = Engine(journal, [agent], clock=clock).run(agent, run_id=RUN_ID)
    assert (run.status, run.error.type) == ("needs_attention", "UnknownWorkflowError")
    assert Engine(journal, [agent, stranger], clock=clock).resume(RUN_ID).result == [1]


# Endings


@HANDS
def test_child_s_failure_is_visible_in_its_parent(engine, work):
    driven(work, patient, "sold out")(engine)
    run = engine.describe(RUN_ID)
    assert run.result == ["RunFailed", "sold out", CHILD_ID]
    assert engine.describe(CHILD_ID).error == ("RunFailed", "sold out", None)


@HANDS
def test_child_s_failure_fails_a_parent_that_does_not_catch_it(engine, work):
    driven(work, grandparent, "sold out")(engine)
    assert engine.describe(f"{RUN_ID}/parent").error == (
        "RunFailed",
        "sold out",
        f"{RUN_ID}%2Fparent/leaf",
    )
    assert engine.describe(RUN_ID).error == ("RunFailed", "sold out", f"{RUN_ID}/parent")


def test_child_s_failed_step_is_told_with_its_type_and_message(journal, clock):
    @workflow()
    def fails(ctx, _):
        ctx.step("call", [].pop)

    agent = scripted(lambda c: c.child(fails))
    engine = Engine(journal, [fails, agent], clock=clock)
    run = engine.run(agent, run_id=RUN_ID)
    assert run.error == ("IndexError", "pop from empty list", f"{RUN_ID}/fails")


@HANDS
def test_child_that_is_cancelled_fails_its_parent_s_call(engine, work):
    engine.start(patient, ["go"], run_id=RUN_ID)
    work(engine)
    assert engine.cancel(CHILD_ID)
    work(engine)
    by_worker(engine)
    kind, message, step = engine.describe(RUN_ID).result
    assert (kind, step) == ("RunCancelledError", CHILD_ID)
    assert "cancelled on request" in message


@HANDS
def test_child_that_needs_attention_keeps_its_parent_waiting(journal, clock, work):
    def family(body):
        @workflow(name="fragile")
        def fragile(ctx, _):
            return body()

        return [fragile, scripted(lambda c: c.child(fragile))]

    broken = family(lambda: 1 / 0)
    engine = Engine(journal, broken, clock=clock)
    engine.start(broken[1], run_id=RUN_ID)
    for _ in range(3):
        work(engine)
    assert statuses(engine) == {RUN_ID: "suspended", f"{RUN_ID}/fragile": "needs_attention"}
    assert engine.describe(f"{RUN_ID}/fragile").attempts == 1  # nobody tries again unasked
    engine = Engine(journal, family(lambda: "repaired"), clock=clock)
    engine.resume(f"{RUN_ID}/fragile")
    work(engine)
    assert engine.describe(RUN_ID).result == ["repaired"]


def test_child_of_a_spent_budget_fails_like_any_other(journal, clock):
    engine = Engine(journal, FAMILY, clock=clock, budget=Budget(max_steps=0))
    run = engine.run(parent, 1, run_id=RUN_ID)
    assert (run.status, run.error.type) == ("failed", "BudgetExceededError")


@HANDS
def test_child_that_is_suspended_is_waited_for(engine, work):
    driven(work, grandparent, ["first", "second"])(engine)
    assert engine.describe(RUN_ID).result == [{"for": "first"}, {"for": "second"}]


@HANDS
def test_child_that_sleeps_and_retries_is_waited_for(journal, clock, work):
    tries: list[float] = []

    @workflow()
    def slow(ctx, _):
        ctx.sleep(60)
        return ctx.step("call", call, retry=RetryPolicy(initial_s=10))

    def call():
        tries.append(clock.now())
        if len(tries) < 3:
            raise ConnectionError
        return "through"

    agent = scripted(lambda c: c.child(slow))
    engine = Engine(journal, [slow, agent], clock=clock)
    driven(work, agent)(engine)
    assert engine.describe(RUN_ID).result == ["through"]
    assert tries == [1_060.0, 1_070.0, 1_090.0]


def test_child_that_continues_as_new_is_waited_for(journal, clock):
    @workflow()
    def counting(ctx, left):
        if left:
            ctx.continue_as_new(left - 1)
        return ctx.generation

    agent = scripted(lambda c: c.child(counting, 3))
    engine = Engine(journal, [counting, agent], clock=clock)
    assert engine.run(agent, run_id=RUN_ID).result == [4]
    assert engine.describe(f"{RUN_ID}/counting").generation == 4


# Whose child it is


@pytest.mark.parametrize("whose", ["nobody's", "another's", "other input", "other workflow"])
def test_child_id_that_is_taken_is_a_conflict(journal, clock, whose):
    @workflow()
    def other(ctx, value):
        return value

    agent = scripted(lambda c: c.child(leaf, [], run_id="c"))
    engine = Engine(journal, [leaf, agent, other], clock=clock)
    if whose == "another's":
        engine.run(agent, run_id="r-0")
    else:
        engine.start(
            other if whose == "other workflow" else leaf,
            1 if whose == "other input" else [],
            run_id="c",
        )
    rows = list(journal.rows())
    run = engine.run(agent, run_id=RUN_ID)
    assert (run.status, run.error.type) == ("needs_attention", "RunIdConflictError")
    assert "a child of r-1" in run.error.message
    assert [row for row in journal.rows() if row.run_id != RUN_ID] == rows
    assert [event.kind for event in engine.history(RUN_ID)] == ["admitted"]


def test_child_id_of_another_child_with_another_input_is_a_conflict(journal, clock):
    agent = scripted(lambda c: c.child(leaf, 1, run_id="c"), lambda c: c.child(leaf, 2, run_id="c"))
    engine = Engine(journal, [leaf, agent], clock=clock)
    run = engine.run(agent, run_id=RUN_ID)
    assert (run.status, run.error.type) == ("needs_attention", "RunIdConflictError")
    assert Stage.done == [1]


def test_run_of_its_own_does_not_take_a_child_s_id(engine):
    engine.start(parent, 1, run_id=RUN_ID)
    attempt(engine)
    with pytest.raises(RunIdConflictError, match="a child of r-1"):
        engine.start(leaf, 1, run_id=CHILD_ID)


def test_pruned_child_s_id_is_a_conflict(journal, clock):
    @workflow()
    def agent(ctx, generation):
        ctx.child(leaf, 1, run_id="c")
        if generation < 2:
            ctx.wait_signal("go")
            ctx.continue_as_new(generation + 1)

    engine = Engine(journal, [leaf, agent], clock=clock)
    engine.run(agent, 1, run_id=RUN_ID)
    prune_at(journal, journal.row("c"), clock.now())
    engine.signal(RUN_ID, "go")
    run = engine.resume(RUN_ID)
    assert (run.status, run.error.type) == ("needs_attention", "RunIdConflictError")
    assert "pruned" in run.error.message


# Divergence


@workflow(name="other")
def other_leaf(ctx, value):
    return [value, "other"]


@pytest.mark.parametrize(
    "changed",
    [
        lambda c: c.child(leaf, 2, run_id="c"),
        lambda c: c.child(leaf, 1, run_id="d"),
        lambda c: c.child(leaf, 1),
        lambda c: c.child(other_leaf, 1, run_id="c"),
        lambda c: c.step("c", len, ""),
    ],
    ids=["other input", "other id", "no id", "other workflow", "a step"],
)
@pytest.mark.parametrize("joined", [True, False])
def test_child_of_changed_code_is_a_divergence(journal, clock, changed, joined):
    """Kind, id, workflow and input are each compared with what was started."""
    rest = (lambda c: c.wait_signal("end"),)
    agent = scripted(lambda c: c.child(leaf, 1, run_id="c"), *rest)
    engine = Engine(journal, [leaf, other_leaf, agent], clock=clock)
    engine.start(agent, run_id=RUN_ID)
    attempt(engine)
    if joined:
        engine.resume(RUN_ID)
    history = texts(journal)
    agent = scripted(changed, *rest)
    engine = Engine(journal, [leaf, other_leaf, agent], clock=clock)
    with pytest.raises(NonDeterminismError) as caught:
        engine.resume(RUN_ID)
    assert caught.value.seq == 2
    assert texts(journal) == history
    assert set(statuses(engine)) == {RUN_ID, "c"}


# Who drives


def test_child_is_driven_by_its_parent_s_resume(engine):
    run = engine.run(grandparent, 3, run_id=RUN_ID)
    assert (run.result, run.attempts) == (3, 2)


def test_child_is_driven_by_a_worker_of_its_own(journal, clock):
    """The two workers know one workflow each."""
    parents = Engine(journal, [parent], clock=clock)
    everybody = Engine(journal, FAMILY, clock=clock)
    everybody.start(parent, 1, run_id=RUN_ID)
    attempt(everybody)
    Worker(parents).run_until_idle()
    assert statuses(parents) == {RUN_ID: "suspended", CHILD_ID: "pending"}
    Worker(Engine(journal, [leaf], clock=clock)).run_until_idle()
    assert statuses(parents) == {RUN_ID: "suspended", CHILD_ID: "completed"}
    Worker(parents).run_until_idle()
    assert parents.describe(RUN_ID).result == 1


def test_child_that_somebody_else_drives_is_left_to_them(engine, clock):
    engine.start(parent, 1, run_id=RUN_ID)
    attempt(engine)
    row = engine.journal.row(CHILD_ID)
    held = row._replace(
        status=RunStatus.RUNNING,
        worker="another",
        token=row.token + 1,
        lease_s=5.0,
        lease_until=clock.now() + 5.0,
    )
    assert engine.journal.replace(row, held)
    assert engine.resume(RUN_ID).status is RunStatus.SUSPENDED
    assert engine.journal.row(CHILD_ID) == held
    clock.advance(5.0)
    assert engine.resume(RUN_ID).result == 1  # its worker is dead: anybody may


def test_child_that_nobody_holds_is_driven_though_the_clock_was_set_back(engine, clock):
    engine.start(parent, 1, run_id=RUN_ID)
    attempt(engine)
    clock.advance(-500.0)
    assert engine.resume(RUN_ID).result == 1


def test_child_goes_on_while_its_parent_is_dead(engine):
    """Its end is kept in the parent's history, and found there by the next attempt."""

    def probe(position, kind, name):
        if (position, kind) == (Position.AFTER, "child"):
            raise InjectedCrash(position, kind, name)

    dying = Engine(engine.journal, FAMILY, clock=engine.clock, probe=probe)
    dying.start(parent, 1, run_id=RUN_ID)
    with pytest.raises(InjectedCrash):
        attempt(dying)
    assert engine.resume(CHILD_ID).result == 1
    assert [event.kind for event in engine.history(RUN_ID)] == ["admitted", "child", "child_ended"]
    assert statuses(engine)[RUN_ID] == "running"
    assert engine.resume(RUN_ID).result == 1


def test_child_that_ends_before_its_start_is_recorded_is_not_started_again(engine):
    def probe(position, kind, name):
        if (position, kind) == (Position.WINDOW, "child"):
            raise InjectedCrash(position, kind, name)

    dying = Engine(engine.journal, FAMILY, clock=engine.clock, probe=probe)
    dying.start(parent, 1, run_id=RUN_ID)
    with pytest.raises(InjectedCrash):
        attempt(dying)
    engine.resume(CHILD_ID)
    assert engine.resume(RUN_ID).result == 1
    kinds = [str(event.kind) for event in engine.history(RUN_ID)]
    assert kinds == ["admitted", "child_ended", "child", "joined", "completed"]
    assert Stage.done == [1]


def test_child_that_continued_as_new_before_its_start_is_recorded_is_not_a_conflict(journal, clock):
    """Its input isn't the one that it was started with any more; it is the same child."""

    @workflow()
    def counting(ctx, left):
        if left:
            ctx.continue_as_new(left - 1)
        return ctx.wait_signal("go")

    def probe(position, kind, name):
        if (position, kind) == (Position.WINDOW, "child"):
            raise InjectedCrash(position, kind, name)

    agent = scripted(lambda c: c.child(counting, 2))
    dying = Engine(journal, [counting, agent], clock=clock, probe=probe)
    dying.start(agent, run_id=RUN_ID)
    with pytest.raises(InjectedCrash):
        attempt(dying)
    engine = Engine(journal, [counting, agent], clock=clock)
    assert engine.resume(f"{RUN_ID}/counting").generation == 3
    driven(by_resume, agent)(engine)
    assert engine.describe(RUN_ID).result == [{"for": "go"}]


def test_child_that_ends_while_its_parent_is_being_suspended_is_not_missed(engine, monkeypatch):
    append, came = SQLiteJournal.append, []

    def ended_meanwhile(self, row, entry, **changes):
        if row.run_id == RUN_ID and changes.get("status") is RunStatus.SUSPENDED:
            came.append(engine.resume(CHILD_ID).status)
        return append(self, row, entry, **changes)

    monkeypatch.setattr(SQLiteJournal, "append", ended_meanwhile)
    engine.start(parent, 1, run_id=RUN_ID)
    by_worker(engine)
    assert engine.describe(RUN_ID).result == 1
    assert came == ["completed"]


def test_child_s_end_and_the_word_to_its_parent_are_one_transaction(engine, monkeypatch):
    """A parent that was told nothing would wait for ever."""
    told = SQLiteJournal._tell

    def broken(self, *args: Any) -> Any:
        raise InjectedCrash(Position.WINDOW, "completed", "leaf")

    engine.start(parent, 1, run_id=RUN_ID)
    attempt(engine)
    monkeypatch.setattr(SQLiteJournal, "_tell", broken)
    with pytest.raises(InjectedCrash):
        engine.resume(CHILD_ID)
    assert engine.describe(CHILD_ID).status is RunStatus.RUNNING
    monkeypatch.setattr(SQLiteJournal, "_tell", told)
    assert engine.resume(CHILD_ID).status is RunStatus.COMPLETED
    assert engine.resume(RUN_ID).result == 1


def test_child_of_a_parent_that_ended_otherwise_ends_in_peace(journal, clock):
    agent = scripted(lambda c: c.child(leaf, ["go"]))
    engine = Engine(journal, [leaf, agent], clock=clock, budget=Budget(max_seconds=60))
    engine.run(agent, run_id=RUN_ID)
    clock.advance(60.0)
    engine = Engine(journal, [leaf, agent], clock=clock, budget=Budget(max_seconds=60))
    attempt(engine)
    assert engine.describe(RUN_ID).status is RunStatus.FAILED
    history = engine.history(RUN_ID)
    engine = Engine(journal, [leaf, agent], clock=clock)
    engine.signal(CHILD_ID, "go", 1)
    assert engine.resume(CHILD_ID).result == [1]
    assert engine.history(RUN_ID) == history


# Cancelling


@HANDS
def test_cancelling_a_parent_cancels_its_child_and_their_children(engine, work):
    engine.start(grandparent, ["go"], run_id=RUN_ID)
    work(engine)
    assert engine.cancel(RUN_ID)
    work(engine)
    by_worker(engine)
    assert set(statuses(engine).values()) == {"cancelled"}
    assert len(statuses(engine)) == 3


def test_cancelling_a_parent_leaves_children_that_have_ended(journal, clock):
    agent = scripted(lambda c: c.child(leaf, 1), lambda c: c.child(leaf, ["go"]))
    engine = Engine(journal, [leaf, agent], clock=clock)
    engine.run(agent, run_id=RUN_ID)
    engine.cancel(RUN_ID)
    engine.resume(RUN_ID)
    by_worker(engine)
    assert statuses(engine) == {
        RUN_ID: "cancelled",
        CHILD_ID: "completed",
        f"{CHILD_ID}#2": "cancelled",
    }


def test_cancelling_a_parent_lets_a_child_past_its_pivot_go_on(journal, clock):
    @workflow()
    def determined(ctx, _):
        ctx.point_of_no_return()
        return ctx.wait_signal("go")

    agent = scripted(lambda c: c.child(determined))
    engine = Engine(journal, [determined, agent], clock=clock)
    engine.run(agent, run_id=RUN_ID)
    engine.cancel(RUN_ID)
    assert engine.resume(RUN_ID).status is RunStatus.CANCELLED
    child_id = f"{RUN_ID}/determined"
    assert engine.resume(child_id).status is RunStatus.SUSPENDED
    engine.signal(child_id, "go", 1)
    assert engine.resume(child_id).result == 1


def test_cancelling_a_parent_leaves_a_run_that_only_has_the_child_s_id(journal, clock):
    """The parent was cancelled at the call, before it could see that the id is somebody else's."""
    agent = scripted(
        lambda c: c.step("before", len, ""), lambda c: c.child(leaf, ["go"], run_id="c")
    )

    def probe(position, kind, name):
        if (position, name) == (Position.AFTER, "before"):
            engine.cancel(RUN_ID)

    engine = Engine(journal, [leaf, agent], clock=clock, probe=probe)
    engine.run(leaf, ["go"], run_id="c")
    assert engine.run(agent, run_id=RUN_ID).status is RunStatus.CANCELLED
    by_worker(engine)
    assert statuses(engine)["c"] == "suspended"
    assert "cancel" not in [event.kind for event in engine.history("c")]


def test_cancelling_a_parent_cancels_a_child_whose_start_was_not_recorded(engine):
    def probe(position, kind, name):
        if (position, kind) == (Position.WINDOW, "child"):
            raise InjectedCrash(position, kind, name)

    dying = Engine(engine.journal, FAMILY, clock=engine.clock, probe=probe)
    dying.start(parent, ["go"], run_id=RUN_ID)
    with pytest.raises(InjectedCrash):
        attempt(dying)
    engine.cancel(RUN_ID)
    assert engine.resume(RUN_ID).status is RunStatus.CANCELLED
    by_worker(engine)
    assert statuses(engine) == {RUN_ID: "cancelled", CHILD_ID: "cancelled"}


def test_cancelling_a_child_leaves_its_parent_to_decide(engine):
    engine.run(patient, ["go"], run_id=RUN_ID)
    engine.cancel(CHILD_ID)
    engine.resume(RUN_ID)
    assert statuses(engine) == {RUN_ID: "completed", CHILD_ID: "cancelled"}


# A death anywhere


@HANDS
@pytest.mark.slow
def test_child_survives_a_death_anywhere(tmp_path, work):
    """Of parent, child and grandchild, at every place; each history is that of quiet days."""

    def check() -> None:
        assert Stage.keys == {"r-1%252Fparent%2Fleaf/work"}
        assert len(Stage.done) <= 2

    drive = driven(work, grandparent, 5)
    options: Any = {"begin": Stage.set_up, "check": check}
    assert die_everywhere(tmp_path, FAMILY, drive, **options) > 40


@HANDS
@pytest.mark.slow
def test_child_that_waits_and_fails_survives_a_death_anywhere(tmp_path, work):
    @workflow()
    def troubled(ctx, _):
        ctx.wait_signal("go")
        ctx.sleep(60)
        raise RunFailed("sold out")

    @workflow()
    def agent(ctx, _):
        try:
            return ctx.child(troubled)
        except StepFailedError as failure:
            return [failure.type, failure.message, ctx.child(leaf, 1)]

    drive = driven(work, agent, answer=answered)
    options: Any = {"begin": Stage.set_up}
    assert die_everywhere(tmp_path, [troubled, agent, leaf], drive, **options) > 40


@HANDS
@pytest.mark.slow
def test_cancelled_family_survives_a_death_anywhere(tmp_path, work):
    """All three are cancelled, whatever dies between the request and the last one's end."""

    def drive(engine: Engine) -> None:
        engine.start(grandparent, ["go"], run_id=RUN_ID)
        for _ in range(20):
            work(engine)
            if all(run.status is RunStatus.SUSPENDED for run in engine.runs()):
                engine.cancel(RUN_ID)
            elif engine.describe(RUN_ID).status is RunStatus.CANCELLED:
                break
            engine.clock.advance(LEASE_S)
        by_worker(engine)

    assert die_everywhere(tmp_path, FAMILY, drive, told=statuses) > 40


def test_crash_free_family_is_what_the_sweeps_compare_with(engine):
    """The comparison sees every run and both sides of the family."""
    driven(by_resume, grandparent, 5)(engine)
    told = stories(engine)
    assert list(told) == list(statuses(engine))
    ((inside, outside),) = told[RUN_ID][1]
    assert [kind for kind, _, _ in inside] == ["admitted", "child", "joined", "completed"]
    assert [kind for kind, _, _ in outside] == ["child_ended"]


@pytest.mark.parametrize("made", [MemoryJournal, FileJournal, SQLiteJournal])
@pytest.mark.parametrize("drives", list(itertools.product([RUN_ID, CHILD_ID], repeat=3)))
def test_child_and_parent_may_be_driven_in_any_order(journal_path, made, drives):
    with made() if made is MemoryJournal else made(journal_path) as journal:
        engine = Engine(journal, FAMILY, clock=FakeClock())
        engine.start(parent, 1, run_id=RUN_ID)
        attempt(engine)
        for run_id in drives:
            if engine.describe(run_id).status is not RunStatus.COMPLETED:
                attempt(engine, run_id)
        assert engine.resume(RUN_ID).result == 1
        assert Stage.done == [1]
