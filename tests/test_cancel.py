"""Cancelling a run: a request from outside, seen at the next durable call and anchored there.

About: what a run may be doing when the request comes; who is refused; replays that stop at the same
call; code that swallows the stop; children; and a request at every place of a run, together with a
death at every other.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from booking import MortalMemory, Receiver, events, live_until, raiser, run_it
from children import Child
from interrupted import Fate, die_everywhere
from support import RUN_ID, Call, Counted, scripted

from durable_mini import (
    Context,
    DurableError,
    Engine,
    EventKind,
    FakeClock,
    LeaseLostError,
    Position,
    RetryPolicy,
    Run,
    RunCancelledError,
    RunFailed,
    RunStatus,
    SQLiteJournal,
    Step,
    StepFailedError,
    UnknownRunError,
    Worker,
    Workflow,
    workflow,
)
from durable_mini.lab.crashes import InjectedCrash
from durable_mini.lease import Holder

WEEK_S = 604_800.0

no_line = raiser(ConnectionError("no line"))


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@workflow(version="1")
def kid(ctx: Context, _: Any) -> str:
    ctx.wait_signal("grow up")
    return "grown"


def with_undo(receiver: Receiver, *calls: Call) -> Workflow:
    """A booking with its undo, then these calls."""
    return scripted(
        lambda c: c.compensate("hotel", receiver.undo, "hotel"),
        lambda c: c.effect("hotel", receiver.book, "hotel"),
        *calls,
    )


UNDONE = [("book", "hotel"), ("undo", "hotel")]

# What the run is doing


def test_a_pending_run_ends_without_any_of_its_steps(journal, receiver):
    body = Counted()
    agent = scripted(lambda c: c.step("work", body, 1))
    engine = Engine(journal, [agent])
    engine.start(agent, run_id=RUN_ID)
    assert engine.cancel(RUN_ID) is True
    assert engine.describe(RUN_ID).status is RunStatus.PENDING
    run = engine.resume(RUN_ID)
    assert (run.status, run.result, run.error.type) == ("cancelled", None, "RunCancelledError")
    assert events(engine) == [
        "admitted 'scripted'",
        "cancel",
        "stop 'cancelled'",
        "cancelled 'scripted'",
    ]
    assert body.calls == []
    assert engine.describe(RUN_ID) == run


RETRY = RetryPolicy(max_attempts=9, initial_s=WEEK_S, max_s=WEEK_S)

WAITS: dict[str, Call] = {
    "a timer": lambda c: c.sleep(WEEK_S),
    "a signal": lambda c: c.wait_signal("go"),
    "a signal or a time": lambda c: c.wait_signal("go", timeout_s=WEEK_S),
    "a child": lambda c: c.child(kid),
    "the next try of a step": lambda c: c.step("ask", no_line, retry=RETRY),
    "the next try of an effect": lambda c: c.effect("ask", no_line, retry=RETRY),
    "the next try of a branch": lambda c: c.gather(
        {"ask": Step(no_line, retry=RETRY), "work": (len, "")}
    ),
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_suspended_run_is_cancelled_at_once_whatever_it_waits_for(journal, receiver, wait):
    """No wait is waited out, no further try is made, and a worker that is idle takes it up."""
    body = Counted()
    agent = with_undo(receiver, WAITS[wait], lambda c: c.step("after", body, 1))
    engine = Engine(journal, [agent, kid], clock=FakeClock())
    engine.start(agent, run_id=RUN_ID)
    Worker(engine).run_until_idle()
    waiting = engine.describe(RUN_ID)
    tries = events(engine).count("try 'ask'")
    assert (waiting.status, receiver.log) == ("suspended", [("book", "hotel")])
    assert engine.cancel(RUN_ID) is True
    assert Worker(engine).run_until_idle() >= 1
    run = engine.describe(RUN_ID)
    assert (run.status, run.waiting_for, engine.clock.now()) == ("cancelled", None, 0.0)
    assert (receiver.log, body.calls) == (UNDONE, [])
    assert events(engine).count("try 'ask'") == tries
    assert events(engine)[-4:] == [
        "cancel",
        "stop 'cancelled'",
        "undo 'hotel'",
        "cancelled 'scripted'",
    ]


@pytest.mark.parametrize("wait", WAITS)
def test_a_suspended_run_is_cancelled_by_resume_too(journal, receiver, wait):
    agent = with_undo(receiver, WAITS[wait])
    engine = Engine(journal, [agent, kid], clock=FakeClock())
    engine.start(agent, run_id=RUN_ID)
    Worker(engine).run_until_idle()
    engine.cancel(RUN_ID)
    assert engine.resume(RUN_ID).status is RunStatus.CANCELLED
    assert (receiver.log, engine.clock.now()) == (UNDONE, 0.0)


def just_before(
    journal: Any, operation: str, happening: Callable[[], Any], kind: str | None = None
) -> None:
    """Let something happen once, right before an operation of the journal.

    With `kind` it has to be the append of such an event, or the admission of a child.
    """
    own = getattr(journal, operation)

    def interrupted(*args: Any, **options: Any) -> Any:
        happens = {"append": lambda: args[1] and args[1][0], "admit": lambda: args[2:] and "child"}
        if kind in (None, happens.get(operation, lambda: None)()):
            setattr(journal, operation, own)
            happening()
        return own(*args, **options)

    setattr(journal, operation, interrupted)


def asked_at(journal: Any, position: Position, name: str) -> Callable[..., None]:
    """A probe: somebody asks for the cancellation at this moment of this call."""

    def probe(at: Position, _kind: EventKind, of: str) -> None:
        if (at, of) == (position, name):
            Engine(journal).cancel(RUN_ID)

    return probe


NEXT: dict[str, Call] = {
    "step": lambda c: c.step("next", no_line),
    "effect": lambda c: c.effect("next", no_line),
    "now": lambda c: c.now(),
    "random": lambda c: c.random(),
    "uuid": lambda c: c.uuid(),
    "gather": lambda c: c.gather({"next": (no_line,)}),
    "sleep": lambda c: c.sleep(0),
    "wait_signal": lambda c: c.wait_signal("go", timeout_s=0),
    "child": lambda c: c.child(kid),
    "compensate": lambda c: c.compensate("next", no_line),
    "point_of_no_return": lambda c: c.point_of_no_return(),
    "continue_as_new": lambda c: c.continue_as_new(None),
}


@pytest.mark.parametrize("call", NEXT)
@pytest.mark.parametrize("position", Position)
def test_a_running_run_stops_at_its_next_durable_call_before_anything_is_done(
    journal, receiver, call, position
):
    """Whichever call that is; the step during which somebody asked is finished and recorded."""
    agent = with_undo(receiver, lambda c: c.step("ask", len, ""), NEXT[call])
    engine = Engine(journal, [agent, kid], probe=asked_at(journal, position, "ask"))
    run = engine.run(agent, run_id=RUN_ID)
    assert (run.status, run.error.type) == ("cancelled", "RunCancelledError")
    ending = ["stop 'cancelled'", "undo 'hotel'", "cancelled 'scripted'"]
    told = events(engine)
    assert (
        told[3:] == sorted(told[3:5], key="step 'ask'".__eq__, reverse=position == "after") + ending
    )
    assert receiver.log == UNDONE
    assert [run.run_id for run in engine.runs()] == [RUN_ID], "no child was admitted"


def test_a_running_run_stops_between_two_steps_in_another_process(journal_path, receiver):
    """The request comes from this process while the other stands between two steps."""
    stands, go = os.pipe(), os.pipe()
    agent = scripted(
        lambda c: c.step("first", len, ""),
        lambda _: os.write(stands[1], b".") + len(os.read(go[0], 1)),
        lambda c: c.step("second", len, ""),
    )

    def drive() -> Run:
        with SQLiteJournal(journal_path) as journal:
            return Engine(journal, [agent]).resume(RUN_ID)

    with SQLiteJournal(journal_path) as journal:
        Engine(journal, [agent]).start(agent, run_id=RUN_ID)
    child = Child(drive)
    os.read(stands[0], 1)
    with SQLiteJournal(journal_path) as journal:
        assert Engine(journal).cancel(RUN_ID) is True
        os.write(go[1], b".")
        assert child.result().status is RunStatus.CANCELLED
        assert events(Engine(journal))[1:4] == ["step 'first'", "cancel", "stop 'cancelled'"]


def test_a_back_off_that_resume_waits_out_is_followed_by_no_try(journal, receiver):
    """Somebody asks while `resume` sleeps between two tries."""
    tried = Counted()

    class Asking(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            Engine(journal).cancel(RUN_ID)

    def ask() -> None:
        tried(1)
        no_line()

    agent = with_undo(receiver, lambda c: c.step("ask", ask, retry=RETRY))
    run = Engine(journal, [agent], clock=Asking()).run(agent, run_id=RUN_ID)
    assert (run.status, len(tried.calls), receiver.log) == ("cancelled", 1, UNDONE)


def test_a_run_without_a_further_durable_call_completes(journal):
    agent = scripted(lambda c: c.step("last", len, ""), lambda c: "home")
    engine = Engine(journal, [agent], probe=asked_at(journal, Position.WINDOW, "last"))
    run = engine.run(agent, run_id=RUN_ID)
    assert (run.status, run.result) == ("completed", [0, "home"])
    assert events(engine)[1:] == ["cancel", "step 'last'", "completed 'scripted'"]


def test_a_run_that_fails_at_the_same_time_is_failed(journal, receiver):
    """The verdict came before the next durable call: it isn't lost, and what was done is undone."""
    agent = with_undo(receiver, lambda c: c.step("last", len, ""), raiser(RunFailed("sold out")))
    engine = Engine(journal, [agent], probe=asked_at(journal, Position.WINDOW, "last"))
    run = engine.run(agent, run_id=RUN_ID)
    assert (run.status, run.error.message, receiver.log) == ("failed", "sold out", UNDONE)


def test_a_run_that_needs_attention_is_cancelled_when_it_is_repaired(journal, receiver):
    broken = with_undo(receiver, raiser(KeyError("seat")))
    engine = Engine(journal, [broken])
    engine.run(broken, run_id=RUN_ID)
    assert engine.cancel(RUN_ID) is True
    assert Worker(engine).run_until_idle() == 0
    assert engine.describe(RUN_ID).status is RunStatus.NEEDS_ATTENTION
    repaired = with_undo(receiver, lambda c: c.step("work", len, ""))
    assert Engine(journal, [repaired]).resume(RUN_ID).status is RunStatus.CANCELLED
    assert receiver.log == UNDONE


# Who is asked


def test_asking_twice_counts_once(journal):
    agent = scripted(lambda c: c.wait_signal("go"))
    engine = Engine(journal, [agent])
    engine.run(agent, run_id=RUN_ID)
    assert [engine.cancel(RUN_ID), Engine(journal).cancel(RUN_ID)] == [True, False]
    assert events(engine).count("cancel") == 1
    assert engine.resume(RUN_ID).status is RunStatus.CANCELLED
    assert [engine.cancel(RUN_ID), events(engine).count("cancel")] == [False, 1]


@pytest.mark.parametrize(
    ("last", "status"), [(lambda c: 1, "completed"), (raiser(RunFailed("sold out")), "failed")]
)
def test_a_run_that_has_ended_is_not_asked(journal, last, status):
    agent = scripted(last)
    engine = Engine(journal, [agent])
    run = engine.run(agent, run_id=RUN_ID)
    history = engine.history(RUN_ID)
    assert (run.status, engine.cancel(RUN_ID)) == (status, False)
    assert (engine.resume(RUN_ID), engine.history(RUN_ID)) == (run, history)


def test_a_run_that_nobody_knows_is_said_by_name(journal):
    with pytest.raises(UnknownRunError, match="'nobody'"):
        Engine(journal).cancel("nobody")


def test_a_request_needs_no_workflow_to_be_registered(journal):
    agent = scripted(lambda c: c.now())
    Engine(journal, [agent]).start(agent, run_id=RUN_ID)
    assert Engine(journal).cancel(RUN_ID) is True
    assert Engine(journal, [agent]).resume(RUN_ID).status is RunStatus.CANCELLED


def test_a_request_that_meets_the_end_of_a_generation_is_for_the_run(journal):
    """It comes between the last look of the old generation and the first event of the new."""

    @workflow(version="1")
    def agent(ctx: Context, round_: int) -> None:
        ctx.step("work", len, "")
        if round_ < 3:
            ctx.continue_as_new(round_ + 1)

    engine = Engine(journal, [agent])
    just_before(journal, "append", lambda: engine.cancel(RUN_ID), kind="continued")
    run = engine.run(agent, 1, run_id=RUN_ID)
    assert (run.status, run.generation) == ("cancelled", 1)
    assert events(engine)[1:4] == ["step 'work'", "cancel", "stop 'cancelled'"]


def test_a_request_in_an_earlier_generation_is_not_for_the_next_run_of_the_id(journal):
    agent = scripted(lambda c: c.now())
    engine = Engine(journal, [agent])
    engine.start(agent, run_id=RUN_ID)
    engine.cancel(RUN_ID)
    assert engine.resume(RUN_ID).status is RunStatus.CANCELLED
    engine.start(agent, run_id=RUN_ID, reuse=True)
    run = engine.resume(RUN_ID)
    assert (run.status, run.generation) == ("completed", 2)


# Anchored


@pytest.mark.parametrize(
    "call", ["step", "gather", "wait_signal", "child", "compensate", "continue_as_new", "patched"]
)
@pytest.mark.slow
def test_a_cancelled_run_stops_at_the_same_call_wherever_the_process_dies(tmp_path, receiver, call):
    """However often it is replayed: the code between that call and the next never runs."""
    passed = []

    @workflow(version="1", name="scripted")
    def patching(ctx: Context, _: Any) -> None:
        ctx.compensate("hotel", receiver.undo, "hotel")
        ctx.effect("hotel", receiver.book, "hotel")
        ctx.step("ask", ask)
        if ctx.patched("seats"):
            passed.append("patched")

    def ask() -> None:
        stage[0].cancel(RUN_ID)

    agent, stage = patching, []
    if call != "patched":
        agent = with_undo(
            receiver, lambda c: c.step("ask", ask), NEXT[call], lambda c: passed.append(call)
        )

    def drive(engine: Engine) -> None:
        stage[:] = [engine]
        run_it(agent)(engine)

    def told(engine: Engine) -> Any:
        run = engine.describe(RUN_ID)
        return run.status, run.error.type, run.cost

    def check() -> None:
        assert (receiver.log, passed) == (UNDONE, [])

    options = {"told": told, "begin": receiver.forget, "check": check}
    assert die_everywhere(tmp_path, [agent, kid], drive, **options) > 25


class Meanwhile(Fate):
    """Lets something happen from outside at one place, and the process die at another."""

    def __init__(self, happens_at: int, happening: Callable[[], Any], dies_at: int = 0) -> None:
        super().__init__(dies_at)
        self.happened = False
        self._happens_at, self._happening = happens_at, happening

    def __call__(self, *_: Any) -> None:
        super().__call__()
        if self._places == self._happens_at and not self.happened:
            self.happened = True
            self._happening()


def trip_with_pivot(receiver: Receiver) -> Workflow:
    @workflow(version="1")
    def trip(ctx: Context, _: Any) -> str:
        for name in ("hotel", "flight"):
            ctx.compensate(name, receiver.undo, name)
            ctx.effect(name, receiver.book, name)
        ctx.wait_signal("go", timeout_s=0)
        ctx.point_of_no_return()
        ctx.effect("mail", receiver.book, "mail")
        return "home"

    return trip


def cancelled_at(
    place: int, dies_at: int, agent: Workflow, receiver: Receiver
) -> tuple[Meanwhile, Engine, list[Any]]:
    """A run that somebody asks to stop at one place, that dies at another, and goes on then."""
    receiver.forget()
    answers: list[Any] = []
    journal = MortalMemory()

    def ask() -> None:
        journal.fate = None
        try:
            answers.append(Engine(journal).cancel(RUN_ID))
        except DurableError:
            answers.append("refused")
        journal.fate = fate

    fate = Meanwhile(place, ask, dies_at)
    live_until(journal, fate, run_it(agent), workflows=[agent])
    engine = Engine(journal, [agent])
    run_it(agent)(engine)
    return fate, engine, answers


def check_books(engine: Engine, receiver: Receiver, answers: list[Any], where: Any) -> None:
    """A request that was taken leaves nothing booked; one that was refused changes nothing."""
    run, done = engine.describe(RUN_ID), [name for verb, name in receiver.log if verb == "book"]
    undone = [name for verb, name in receiver.log if verb == "undo"]
    if answers == [True]:
        assert (run.status, undone) == ("cancelled", done[::-1]), where
        assert "mail" not in done, where
    else:
        assert answers in ([], ["refused"], [False]), where
        assert (run.status, done, undone) == ("completed", ["hotel", "flight", "mail"], []), where


def test_a_request_at_any_place_leaves_everything_booked_or_nothing(receiver):
    agent, outcomes = trip_with_pivot(receiver), []
    for place in count(2):  # the first is the admission: nobody to ask before
        fate, engine, answers = cancelled_at(place, 0, agent, receiver)
        if not fate.happened:
            break
        check_books(engine, receiver, answers, place)
        outcomes += answers
    assert outcomes == sorted(outcomes, key=[True, "refused", False].index), "first taken, then not"
    assert {True, "refused", False} == set(outcomes)


def test_a_request_at_any_place_and_a_death_at_any_later_one(receiver):
    agent, schedules = trip_with_pivot(receiver), 0
    for place in count(2):
        for dies_at in count(place + 1):
            fate, engine, answers = cancelled_at(place, dies_at, agent, receiver)
            check_books(engine, receiver, answers, (place, dies_at))
            schedules += 1
            if not fate.dead:
                break
        if not fate.happened:
            break
    assert schedules > 500


# Swallowed


def catches_exception(ctx: Context, _: Any) -> str:
    try:
        ctx.step("next", len, "")
    except Exception:
        return "swallowed"
    return "done"


def catches_everything(ctx: Context, _: Any) -> str:
    try:
        ctx.step("next", len, "")
    except:  # noqa: E722 - what such code may look like
        return "swallowed"
    return "done"


def returns_in_finally(ctx: Context, _: Any) -> str:
    try:
        ctx.step("next", len, "")
    finally:
        return "swallowed"  # noqa: B012 - what such code may look like


def suppresses(ctx: Context, _: Any) -> str:
    with contextlib.suppress(BaseException):
        ctx.step("next", len, "")
    return "swallowed"


def goes_on_and_on(ctx: Context, done: list[int]) -> str:
    for number in range(5):
        with contextlib.suppress(BaseException):
            ctx.step(f"next {number}", done.append, number)
        with contextlib.suppress(BaseException):
            ctx.effect(f"pay {number}", lambda idempotency_key: done.append(1))
        with contextlib.suppress(BaseException):
            ctx.compensate(f"more {number}", lambda **_: done.append(2))
    return "swallowed"


def makes_it_a_failure(ctx: Context, _: Any) -> None:
    try:
        ctx.step("next", len, "")
    except RunCancelledError:
        raise RunFailed("I prefer to fail") from None


def makes_it_a_bug(ctx: Context, _: Any) -> None:
    try:
        ctx.step("next", len, "")
    finally:
        raise KeyError("seat")


@pytest.mark.parametrize(
    "body",
    [
        catches_exception,
        catches_everything,
        returns_in_finally,
        suppresses,
        goes_on_and_on,
        makes_it_a_failure,
        makes_it_a_bug,
    ],
)
def test_a_cancellation_cant_be_swallowed(journal, receiver, body):
    done: list[int] = []

    @workflow(version="1")
    def agent(ctx: Context, _: Any) -> Any:
        ctx.compensate("hotel", receiver.undo, "hotel")
        ctx.effect("hotel", receiver.book, "hotel")
        ctx.step("ask", len, "")
        return body(ctx, done)

    def probe(at: Position, kind: EventKind, name: str) -> None:
        if (at, name) == ("window", "ask"):
            Engine(journal).cancel(RUN_ID)
        if (at, kind) == ("after", "stop"):
            raise InjectedCrash(at, kind, name)

    engine = Engine(journal, [agent], probe=probe)
    with pytest.raises(InjectedCrash):  # and replayed: swallowed once more
        run_it(agent)(engine)
    run = engine.resume(RUN_ID)
    assert (run.status, run.result, run.error.type) == ("cancelled", None, "RunCancelledError")
    assert (receiver.log, done) == (UNDONE, [])
    assert events(engine)[-2:] == ["undo 'hotel'", "cancelled 'agent'"]


def test_an_undo_is_told_the_same_key_when_code_goes_on_after_the_stop(journal):
    """What the code asks for after its end binds nothing: that effect was never done."""
    told = []

    @workflow(version="1")
    def agent(ctx: Context, _: Any) -> None:
        ctx.compensate("hotel", lambda effect_key, **_: told.append(effect_key))
        with contextlib.suppress(BaseException):
            ctx.step("ask", len, "")
        ctx.effect("audit", no_line)

    engine = Engine(journal, [agent], probe=asked_at(journal, Position.AFTER, "hotel"))
    assert engine.run(agent, run_id=RUN_ID).status is RunStatus.CANCELLED
    assert told == [f"{RUN_ID}/hotel"]


# Children


class Family:
    """A parent that waits for a child, which waits for one of its own; each has booked a room."""

    def __init__(self, receiver: Receiver) -> None:
        def of(name: str, then: Call) -> Workflow:
            @workflow(version="1", name=name)
            def member(ctx: Context, _: Any) -> Any:
                ctx.compensate(name, receiver.undo, name)
                ctx.effect(name, receiver.book, name)
                return then(ctx)

            return member

        self.last = of("last", lambda c: c.wait_signal("grow up"))
        self.middle = of("middle", lambda c: c.child(self.last, run_id="last"))
        self.first = of("first", lambda c: c.child(self.middle, run_id="middle"))
        self.workflows = [self.first, self.middle, self.last]

    def waiting(self, journal: Any) -> Engine:
        engine = Engine(journal, self.workflows, clock=FakeClock())
        engine.start(self.first, run_id="first")
        Worker(engine).run_until_idle()
        return engine


def statuses(engine: Engine) -> dict[str, str]:
    return {run.run_id: str(run.status) for run in engine.runs()}


def test_cancelling_a_parent_cancels_its_children_and_theirs(journal, receiver):
    engine = Family(receiver).waiting(journal)
    assert set(statuses(engine).values()) == {"suspended"}
    engine.cancel("first")
    Worker(engine).run_until_idle()
    assert statuses(engine) == dict.fromkeys(("first", "middle", "last"), "cancelled")
    assert sorted(receiver.log[3:]) == [("undo", "first"), ("undo", "last"), ("undo", "middle")]


@pytest.mark.slow
def test_cancelling_a_parent_reaches_its_children_wherever_the_process_dies(tmp_path, receiver):
    family = Family(receiver)

    def drive(engine: Engine) -> None:
        engine.start(family.first, run_id="first")
        Worker(engine).run_until_idle()
        engine.cancel("first")
        Worker(engine).run_until_idle()

    def check() -> None:
        undone = [name for verb, name in receiver.log if verb == "undo"]
        assert sorted(undone) == ["first", "last", "middle"]

    options = {"told": statuses, "begin": receiver.forget, "check": check}
    assert die_everywhere(tmp_path, family.workflows, drive, **options) > 80


def suspended_by_one_attempt(journal: Any, parent: Workflow, child: Workflow) -> Engine:
    """A parent that waits for a child which nobody has driven."""
    engine = Engine(journal, [parent, child], clock=FakeClock())
    engine.start(parent, run_id=RUN_ID)
    engine.drive(journal.row(RUN_ID), Holder("one attempt"))
    return engine


def test_a_child_that_nobody_has_driven_yet_is_cancelled_too(journal):
    parent = scripted(lambda c: c.child(kid, run_id="kid"))
    engine = suspended_by_one_attempt(journal, parent, kid)
    assert statuses(engine) == {RUN_ID: "suspended", "kid": "pending"}
    engine.cancel(RUN_ID)
    assert engine.resume(RUN_ID).status is RunStatus.CANCELLED
    assert events(engine, "kid") == ["admitted 'kid'", "cancel"]
    Worker(engine).run_until_idle()
    assert statuses(engine) == {RUN_ID: "cancelled", "kid": "cancelled"}


def test_a_child_in_the_middle_of_a_step_stops_after_it(journal):
    """Another worker drives it while its parent is cancelled."""
    body = Counted()

    @workflow(version="1")
    def busy(ctx: Context, _: Any) -> None:
        ctx.step("first", cancel_parent)
        ctx.step("second", body, 1)

    def cancel_parent() -> None:
        other = Engine(journal, [parent, busy])
        other.cancel(RUN_ID)
        assert other.resume(RUN_ID).status is RunStatus.CANCELLED

    parent = scripted(lambda c: c.child(busy, run_id="busy"))
    engine = suspended_by_one_attempt(journal, parent, busy)
    run = engine.resume("busy")
    assert (run.status, body.calls) == ("cancelled", [])
    assert events(engine, "busy")[1:] == [
        "cancel",
        "step 'first'",
        "stop 'cancelled'",
        "cancelled 'busy'",
    ]


def test_a_child_past_its_point_of_no_return_goes_on(journal):
    @workflow(version="1")
    def pivoted(ctx: Context, _: Any) -> str:
        ctx.point_of_no_return()
        return str(ctx.wait_signal("go"))

    parent = scripted(lambda c: c.child(pivoted, run_id="kid"))
    engine = Engine(journal, [parent, pivoted])
    engine.run(parent, run_id=RUN_ID)
    engine.cancel(RUN_ID)
    assert engine.resume(RUN_ID).status is RunStatus.CANCELLED
    assert engine.describe("kid").status is RunStatus.SUSPENDED
    engine.signal("kid", "go", "on")
    run = engine.resume("kid")
    assert (run.status, run.result) == ("completed", "on")
    assert events(engine)[-1] == "cancelled 'scripted'", "the parent hears no more"


def test_a_child_that_has_ended_keeps_its_result(journal):
    @workflow(version="1")
    def quick(ctx: Context, _: Any) -> str:
        return "done"

    parent = scripted(lambda c: c.child(quick, run_id="kid"))
    engine = suspended_by_one_attempt(journal, parent, quick)
    run = engine.resume("kid")
    engine.cancel(RUN_ID)
    assert engine.resume(RUN_ID).status is RunStatus.CANCELLED
    assert engine.describe("kid") == run
    assert (run.status, run.result) == ("completed", "done")


def test_a_cancelled_child_is_a_failure_that_its_parent_can_live_with(journal):
    @workflow(version="1")
    def parent(ctx: Context, _: Any) -> list[str]:
        try:
            return ctx.child(kid, run_id="kid")
        except StepFailedError as failed:
            return [failed.type, failed.step, ctx.step("plan B", str, "alone")]

    engine = Engine(journal, [parent, kid])
    engine.run(parent, run_id=RUN_ID)
    engine.cancel("kid")
    run = engine.resume(RUN_ID)
    assert (run.status, run.result) == ("completed", ["RunCancelledError", "kid", "alone"])
    assert statuses(engine) == {RUN_ID: "completed", "kid": "cancelled"}


def test_a_parent_that_lets_the_failure_pass_fails_and_undoes(journal, receiver):
    parent = with_undo(receiver, lambda c: c.child(kid, run_id="kid"))
    engine = Engine(journal, [parent, kid])
    engine.run(parent, run_id=RUN_ID)
    engine.cancel("kid")
    run = engine.resume(RUN_ID)
    assert (run.status, run.error.type, receiver.log) == ("failed", "RunCancelledError", UNDONE)


@pytest.mark.parametrize("dies", [False, True])
def test_a_request_that_meets_the_admission_of_a_child_reaches_the_child(journal, dies):
    """It comes when the child is admitted and the parent hasn't recorded that yet."""
    parent = scripted(lambda c: c.child(kid, run_id="kid"))
    engine = Engine(journal, [parent, kid])

    def ask() -> None:
        engine.cancel(RUN_ID)
        if dies:
            raise InjectedCrash(Position.WINDOW, EventKind.CHILD, "kid")

    just_before(journal, "append", ask, kind="child")
    with pytest.raises(InjectedCrash) if dies else contextlib.nullcontext():
        engine.run(parent, run_id=RUN_ID)
    assert engine.resume(RUN_ID).status is RunStatus.CANCELLED
    assert engine.resume("kid").status is RunStatus.CANCELLED


def test_cancelling_a_parent_leaves_a_run_alone_that_only_has_the_childs_name(journal):
    """The parent stops at a call that would have been refused as a conflict."""
    parent = scripted(lambda c: c.step("ask", len, ""), lambda c: c.child(kid, run_id="other"))
    engine = Engine(journal, [parent, kid], probe=asked_at(journal, Position.AFTER, "ask"))
    engine.run(kid, run_id="other")
    history = engine.history("other")
    assert engine.run(parent, run_id=RUN_ID).status is RunStatus.CANCELLED
    assert engine.history("other") == history


def test_a_zombie_admits_no_child_of_a_parent_that_was_cancelled(journal, receiver):
    """It stood before the admission while the run was taken over and cancelled."""
    body = Counted()

    @workflow(version="1")
    def busy(ctx: Context, _: Any) -> None:
        ctx.step("work", body, 1)

    parent = with_undo(receiver, lambda c: c.child(busy, run_id="kid"))
    zombie, other = (Engine(journal, [parent, busy]) for _ in range(2))
    zombie.start(parent, run_id=RUN_ID)

    def take_over() -> None:
        other.cancel(RUN_ID)
        assert other.resume(RUN_ID).status is RunStatus.CANCELLED

    just_before(journal, "admit", take_over, kind="child")
    with pytest.raises(LeaseLostError):
        zombie.resume(RUN_ID)
    Worker(other).run_until_idle()
    assert body.calls == [], "nobody is left who would cancel it"
    assert statuses(other) == {RUN_ID: "cancelled"}
