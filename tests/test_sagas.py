"""Compensations: each effect that was done is undone once, in reverse, whatever dies where.

About: registration before the effect; the keys of undos and of what they undo; every death and
every pair of deaths; which endings compensate and which don't; failed undos; the point of no
return; the receiver's side, where an undo voids the effect's key.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import pytest
from booking import Receiver, die_twice, events, raiser, run_it
from hypothesis import given, settings, strategies as st
from interrupted import by_worker, die_everywhere, story
from support import RUN_ID, Call, scripted

from durable_mini import (
    Budget,
    Context,
    DurableError,
    Effect,
    Engine,
    Event,
    EventKind,
    FakeClock,
    LeaseLostError,
    MemoryJournal,
    NonDeterminismError,
    Position,
    RetryPolicy,
    RunFailed,
    RunStatus,
    Step,
    StepFailedError,
    UnknownRunError,
    Worker,
    Workflow,
    in_turn,
    workflow,
)
from durable_mini.lab.crashes import CrashAt, InjectedCrash

no_line = raiser(ConnectionError("no line"))
sold_out = raiser(RunFailed("sold out"))


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


def book(receiver: Receiver, *names: str) -> list[Call]:
    """For each name a compensation, and the effect that it undoes."""
    return [call for name in names for call in (undo_by(receiver, name), book_by(receiver, name))]


def undo_by(receiver: Receiver, name: str) -> Call:
    return lambda c: c.compensate(name, receiver.undo, name)


def book_by(receiver: Receiver, name: str) -> Call:
    return lambda c: c.effect(name, receiver.book, name)


def payloads(engine: Engine, *kinds: str) -> list[Any]:
    return [event.payload for event in engine.history(RUN_ID) if event.kind in kinds]


# The order of things


def test_compensation_is_on_record_before_its_effect_begins(journal, receiver):
    recorded = []

    def probe(position: Position, kind: EventKind, _name: str) -> None:
        if (position, kind) == ("before", "effect"):
            recorded.append(events(Engine(journal))[-1])

    agent = scripted(*book(receiver, "hotel", "flight"))
    Engine(journal, [agent], probe=probe).run(agent, run_id=RUN_ID)
    assert recorded == ["compensate 'hotel'", "compensate 'flight'"]


def test_undos_run_as_steps_and_the_last_registered_runs_first(journal, receiver):
    agent = scripted(*book(receiver, "hotel", "flight", "car"), sold_out)
    run = Engine(journal, [agent]).run(agent, run_id=RUN_ID)
    assert (run.status, run.error.type, run.error.message) == ("failed", "RunFailed", "sold out")
    assert receiver.log[3:] == [("undo", "car"), ("undo", "flight"), ("undo", "hotel")]
    engine = Engine(journal)
    assert events(engine)[7:] == [
        "undo 'car'",
        "undo 'flight'",
        "undo 'hotel'",
        "failed 'scripted'",
    ]
    registered, undone = payloads(engine, "compensate"), payloads(engine, "undo")
    assert [undo["args"] for undo in undone] == [one["args"] for one in reversed(registered)]
    assert [undo["result"] for undo in undone] == ["car undone", "flight undone", "hotel undone"]


def test_undo_that_is_on_record_is_never_run_again(journal, receiver):
    agent = scripted(*book(receiver, "hotel", "flight"), sold_out)

    def dies(position: Position, kind: EventKind, name: str) -> None:
        if (position, kind, name) == ("before", "undo", "hotel"):
            raise InjectedCrash(position, kind, name)

    for _ in range(3):
        with pytest.raises(InjectedCrash):
            run_it(agent)(Engine(journal, [agent], probe=dies))
    assert run_it(agent)(Engine(journal, [agent])).status is RunStatus.FAILED
    assert [asked[:2] for asked in receiver.asked if asked[0] == "undo"] == [
        ("undo", "flight"),
        ("undo", "hotel"),
    ]


def test_a_run_that_completes_undoes_nothing_even_if_a_step_failed_on_the_way(journal, receiver):
    @workflow(version="1")
    def agent(ctx: Context, _: Any) -> str:
        ctx.compensate("hotel", receiver.undo, "hotel")
        ctx.effect("hotel", receiver.book, "hotel")
        try:
            ctx.effect("flight", no_line)
        except StepFailedError:
            return "by train"
        return "by plane"

    assert Engine(journal, [agent]).run(agent, run_id=RUN_ID).result == "by train"
    assert receiver.log == [("book", "hotel")]


# Every death


class Trip:
    """Two bookings and an ending; what came of it, and what should have."""

    LOG = ("book", "hotel"), ("book", "flight"), ("undo", "flight"), ("undo", "hotel")

    def __init__(self, receiver: Receiver, ending: str) -> None:
        self.receiver, self.ending = receiver, ending
        self.options: dict[str, Any] = {"budget": Budget(max_steps=3)} if ending == "budget" else {}
        self.engine: Engine | None = None

        @workflow(version="1")
        def trip(ctx: Context, _: Any) -> NoReturn:
            for name in ("hotel", "flight"):
                ctx.compensate(name, receiver.undo, name)
                ctx.effect(name, receiver.book, name)
            ctx.step("ask", self.ask)
            ctx.step("more", len, "")
            raise RunFailed("sold out")

        self.workflow = trip

    def ask(self) -> None:
        if self.ending == "a step fails":
            no_line()
        if self.ending == "cancelled":
            self.engine.cancel(RUN_ID)

    def drive(self, engine: Engine) -> None:
        self.engine = engine
        run_it(self.workflow)(engine)

    def drive_by_worker(self, engine: Engine) -> None:
        self.engine = engine
        engine.start(self.workflow, run_id=RUN_ID)
        by_worker(engine)

    def check(self, where: Any = None) -> None:
        assert tuple(self.receiver.log) == self.LOG, where

    def told(self, engine: Engine) -> Any:
        """How the run ended, and all of its saga; a request to cancel may stop it earlier."""
        run, saga = engine.describe(RUN_ID), ("compensate", "effect", "undo")
        status = "cancelled" if self.ending == "cancelled" else "failed"
        assert (run.status, run.error.type) == (status, ENDINGS[self.ending])
        return [event for event in story(engine, RUN_ID)[0] if event[0] in saga]


ENDINGS = {
    "a step fails": "ConnectionError",
    "fails on purpose": "RunFailed",
    "cancelled": "RunCancelledError",
    "budget": "BudgetExceededError",
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.slow
def test_each_effect_is_undone_once_wherever_the_process_dies(tmp_path, receiver, ending):
    """Before and after every commit, and in every body: registration, effect, undo, ending."""
    trip = Trip(receiver, ending)
    options = {"told": trip.told, "begin": receiver.forget, "check": trip.check, **trip.options}
    assert die_everywhere(tmp_path, [trip.workflow], trip.drive, **options) > 40


def test_a_worker_that_dies_anywhere_leaves_its_undos_to_the_next(tmp_path, receiver):
    trip = Trip(receiver, "fails on purpose")
    options = {"told": trip.told, "begin": receiver.forget, "check": trip.check}
    assert die_everywhere(tmp_path, [trip.workflow], trip.drive_by_worker, **options) > 40


@pytest.mark.parametrize(
    "ending",
    [
        "cancelled",
        *(
            pytest.param(ending, marks=pytest.mark.slow)
            for ending in ENDINGS
            if ending != "cancelled"
        ),
    ],
)
def test_each_effect_is_undone_once_at_every_pair_of_deaths(receiver, ending):
    """The second one strikes during the recovery from the first."""
    trip, pairs, crash_free = Trip(receiver, ending), 0, None
    for places, engine in die_twice(trip.workflow, receiver.forget, trip.drive, **trip.options):
        trip.check(places)
        crash_free = crash_free or trip.told(engine)
        assert trip.told(engine) == crash_free, places
        pairs += 1
    assert pairs > 1_000


# Keys


class Keys:
    """A receiver of another kind: it notes which keys it was handed, and takes anything."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.undos: list[tuple[str, str]] = []

    def do(self, *_: Any, idempotency_key: str) -> None:
        self.effects.append(idempotency_key)

    def undo(self, *_: Any, idempotency_key: str, effect_key: str) -> None:
        self.undos.append((idempotency_key, effect_key))


def script_of(text: str, keys: Keys) -> list[Call]:
    """`undo NAME`, `do NAME`, `do NAME as KEY`, `side by side NAME NAME`, `step NAME`."""
    calls: list[Call] = []
    for line in text.split(", "):
        verb, _, rest = line.partition(" ")
        name, _, key = rest.partition(" as ")
        if verb == "undo":
            calls.append(lambda c, name=name: c.compensate(name, keys.undo))
        elif verb == "do":
            calls.append(lambda c, name=name, key=key: c.effect(name, keys.do, key=key or None))
        elif verb == "step":
            calls.append(lambda c, name=name: c.step(name, len, ""))
        else:
            names = rest.split()[2:]
            calls.append(lambda c, names=names: c.gather({n: Effect(keys.do) for n in names}))
    return calls


BINDINGS = {
    "undo charge, do charge": ["charge~undo charge"],
    "undo refund, do charge": ["refund~undo charge"],
    "do audit, undo refund, do charge": ["refund~undo charge"],
    "undo refund, step think, do charge, do audit": ["refund~undo charge"],
    "undo ship, undo charge, do charge, do ship": ["charge~undo charge", "ship~undo ship"],
    "undo call_back, undo refund, do ship, do charge": [
        "refund~undo charge",
        "call_back~undo ship",
    ],
    "undo refund, undo ship, do ship, do charge": ["ship~undo ship", "refund~undo charge"],
    "undo charge, do charge, undo charge, do charge": [
        "charge#2~undo charge#2",
        "charge~undo charge",
    ],
    "undo charge, undo charge, do charge, do charge": [
        "charge#2~undo charge#2",
        "charge~undo charge",
    ],
    "do charge, undo charge, do charge": ["charge~undo charge#2"],
    "undo refund, do charge, undo refund, do charge": [
        "refund#2~undo charge#2",
        "refund~undo charge",
    ],
    "undo charge, do audit, do charge": ["charge~undo charge"],
    "undo charge, do audit, undo charge, do charge": ["charge#2~undo charge", "charge~undo audit"],
    "undo charge, side by side ship charge": ["charge~undo charge"],
    "undo ship, undo charge, side by side charge ship": ["charge~undo charge", "ship~undo ship"],
    "undo a, undo b, side by side charge ship": ["b~undo ship", "a~undo charge"],
    "undo charge, step think": ["charge~undo charge"],
    "undo charge, do charge, undo charge": ["charge#2~undo charge#2", "charge~undo charge"],
}


@pytest.mark.parametrize("text", BINDINGS)
def test_undo_is_told_the_key_of_the_effect_that_it_undoes(journal, text):
    """The one of its name, else the next; and what that would have been if none was reached.

    Each undo is lost in its crash window once: the next attempt hands out the same two keys.
    """
    keys, lost = Keys(), itertools.cycle([True, False])
    agent = scripted(*script_of(text, keys), sold_out)

    def probe(position: Position, kind: EventKind, name: str) -> None:
        if (position, kind) == ("window", "undo") and next(lost):
            raise InjectedCrash(position, kind, name)

    for _ in BINDINGS[text]:
        with pytest.raises(InjectedCrash):
            run_it(agent)(Engine(journal, [agent], probe=probe))
    assert run_it(agent)(Engine(journal, [agent], probe=probe)).status is RunStatus.FAILED
    pairs = [tuple(f"{RUN_ID}/{key}" for key in pair.split()) for pair in BINDINGS[text]]
    assert keys.undos == [pair for pair in pairs for _ in range(2)]


def test_undo_is_told_the_key_that_replaced_the_effects_own(journal):
    keys = Keys()
    agent = scripted(
        *script_of("undo charge, do charge as order-7, undo ship, do ship", keys), sold_out
    )
    Engine(journal, [agent]).run(agent, run_id=RUN_ID)
    assert keys.effects == ["order-7", "r-1/ship"]
    assert keys.undos == [("r-1/ship~undo", "r-1/ship"), ("r-1/charge~undo", "order-7")]


def test_keys_of_a_later_generation_are_its_own(journal):
    """The undo of a name in one generation is no repeat of that in the one before."""
    keys = Keys()

    @workflow(version="1")
    def agent(ctx: Context, last: bool) -> None:
        ctx.compensate("charge", keys.undo)
        ctx.effect("charge", keys.do)
        if last:
            raise RunFailed("sold out")
        ctx.point_of_no_return()
        ctx.continue_as_new(True)

    Engine(journal, [agent]).run(agent, False, run_id=RUN_ID)
    assert keys.effects == ["r-1/charge", "r-1~2/charge"]
    assert keys.undos == [("r-1~2/charge~undo", "r-1~2/charge")]


SIGNS = st.text("/#~%2a", min_size=1, max_size=6)
SCRIPTS = st.lists(
    st.tuples(st.sampled_from(["undo", "do"]), SIGNS | st.just("a~undo")), max_size=8
)


@given(
    scripts=st.lists(st.tuples(SIGNS, SCRIPTS), min_size=1, max_size=3, unique_by=lambda s: s[0])
)
@settings(max_examples=150)
@pytest.mark.slow
def test_keys_of_undos_and_effects_never_meet_whatever_the_names(scripts):
    """All runs in one world: no key is handed out twice, and each undo has one of its own."""
    keys, journal = Keys(), MemoryJournal()
    for run_id, script in scripts:
        calls = [f"{verb} {name}" for verb, name in script]
        agent = scripted(*script_of(", ".join(calls), keys) if calls else [], sold_out)
        Engine(journal, [agent]).run(agent, run_id=run_id)
    undos = [key for key, _ in keys.undos]
    assert len(undos) == sum(verb == "undo" for _, script in scripts for verb, _ in script)
    assert len({*undos, *keys.effects}) == len(undos) + len(keys.effects)
    assert all(key.endswith("~undo") for key in undos)
    assert not any("~undo" in key for key in keys.effects)


@given(names=st.lists(SIGNS, max_size=6))
@settings(max_examples=100)
def test_undo_of_each_effect_of_a_repeated_name_is_told_its_key(names):
    keys = Keys()
    text = ", ".join(f"undo {name}, do {name}" for name in names)
    agent = scripted(*script_of(text, keys) if names else [], sold_out)
    Engine(MemoryJournal(), [agent]).run(agent, run_id=RUN_ID)
    assert keys.undos == [(f"{key}~undo", key) for key in reversed(keys.effects)]


# Which endings compensate


@workflow(version="1", name="kid")
def failing_kid(ctx: Context, _: Any) -> NoReturn:
    raise RunFailed("too small")


def spends(limit: str) -> Budget:
    return Budget(**{limit: 1})


VERDICTS: dict[str, tuple[Call, str, Budget]] = {
    "a step that failed": (lambda c: c.step("ask", no_line), "ConnectionError", Budget()),
    "a step that failed three times": (
        lambda c: c.step("ask", no_line, retry=RetryPolicy()),
        "ConnectionError",
        Budget(),
    ),
    "an effect that failed": (lambda c: c.effect("ask", no_line), "ConnectionError", Budget()),
    "a branch that failed": (
        lambda c: c.gather({"a": Step(len, ""), "b": Step(no_line)}),
        "ConnectionError",
        Budget(),
    ),
    "a result that can't be kept": (
        lambda c: c.step("ask", lambda: {1, 2}),
        "PayloadError",
        Budget(),
    ),
    "a child that failed": (lambda c: c.child(failing_kid), "RunFailed", Budget()),
    "a verdict of the code": (sold_out, "RunFailed", Budget()),
    "steps": (lambda c: c.step("ask", len, ""), "BudgetExceededError", spends("max_steps")),
    "cost": (lambda c: c.step("ask", len, "", cost=1.5), "BudgetExceededError", spends("max_cost")),
    "cost of a result": (
        lambda c: (c.step("ask", len, "ab", cost=float), c.now()),
        "BudgetExceededError",
        spends("max_cost"),
    ),
    "seconds": (lambda c: c.sleep(10), "BudgetExceededError", spends("max_seconds")),
}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_verdict_undoes_what_was_done_and_fails_the_run(journal, receiver, verdict):
    ending, error_type, budget = VERDICTS[verdict]
    agent, clock = scripted(*book(receiver, "hotel"), ending), FakeClock()
    engine = Engine(journal, [agent, failing_kid], budget=budget, clock=clock)
    run = engine.run(agent, run_id=RUN_ID)
    if verdict == "seconds":
        clock.advance(1.0)
        run = engine.resume(RUN_ID)
    assert (run.status, run.error.type) == ("failed", error_type)
    assert receiver.log == [("book", "hotel"), ("undo", "hotel")]
    assert events(engine)[-2:] == ["undo 'hotel'", "failed 'scripted'"]
    assert engine.resume(RUN_ID).error == run.error


FAULTS: dict[str, tuple[Call, dict[str, Any]]] = {
    "a bug": (raiser(KeyError("seat")), {}),
    "a bug that looks like an engine's error": (raiser(DurableError(reason="mine")), {}),
    "a durable call in a body": (lambda c: c.step("ask", c.now), {}),
    "a name that can't be kept": (lambda c: c.step("", len, ""), {}),
    "a history that is too long": (lambda c: c.now(), {"max_events": 3}),
    "a result of the run that can't be kept": (lambda c: {1}, {}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_undoes_nothing_and_repaired_code_completes(journal, receiver, fault):
    bad, options = FAULTS[fault]
    agent = scripted(*book(receiver, "hotel"), bad)
    run = Engine(journal, [agent], **options).run(agent, run_id=RUN_ID)
    assert run.status is RunStatus.NEEDS_ATTENTION
    assert Worker(Engine(journal, [agent])).run_until_idle() == 0
    repaired = scripted(*book(receiver, "hotel"), lambda c: "home")
    run = Engine(journal, [repaired]).resume(RUN_ID)
    assert (run.status, run.result[-1]) == ("completed", "home")
    assert receiver.log == [("book", "hotel")]


def test_a_divergence_undoes_nothing(journal, receiver):
    good = scripted(*book(receiver, "hotel", "flight"), sold_out)
    bad = scripted(*book(receiver, "hotel"), sold_out)
    engine = Engine(journal, [good], probe=CrashAt("flight", "after"))
    with pytest.raises(InjectedCrash):
        run_it(good)(engine)
    before = events(engine)
    with pytest.raises(NonDeterminismError, match="compensate 'flight'"):
        Engine(journal, [bad]).resume(RUN_ID)
    assert (events(engine), receiver.log) == (before, [("book", "hotel"), ("book", "flight")])
    assert Engine(journal, [good]).resume(RUN_ID).status is RunStatus.FAILED
    assert receiver.log[2:] == [("undo", "flight"), ("undo", "hotel")]


def test_a_crash_loop_undoes_nothing(journal, receiver):
    killed = raiser(InjectedCrash(Position.WINDOW, EventKind.STEP, "kills"))
    agent = scripted(*book(receiver, "hotel"), lambda c: c.step("kills", killed))
    options: dict[str, Any] = {"budget": Budget(max_attempts=2)}
    engine = Engine(journal, [agent], **options)
    engine.start(agent, run_id=RUN_ID)
    for _ in range(3):
        with pytest.raises(InjectedCrash):
            engine.resume(RUN_ID)
    assert engine.resume(RUN_ID).status is RunStatus.NEEDS_ATTENTION
    assert receiver.log == [("book", "hotel")]


def test_attempts_that_ended_by_themselves_are_no_crash_loop(journal, receiver):
    """Whoever repairs a run may need several attempts; one crash after that is only one."""
    buggy = scripted(*book(receiver, "hotel"), raiser(KeyError("seat")))
    engine = Engine(journal, [buggy], budget=Budget(max_attempts=2))
    for _ in range(4):
        assert run_it(buggy)(engine).status is RunStatus.NEEDS_ATTENTION
    good = scripted(*book(receiver, "hotel", "car"))
    dies = Engine(journal, [good], budget=Budget(max_attempts=2), probe=dies_at_registration)
    with pytest.raises(InjectedCrash):
        dies.resume(RUN_ID)
    run = Engine(journal, [good], budget=Budget(max_attempts=2)).resume(RUN_ID)
    assert run.status is RunStatus.COMPLETED


def dies_at_registration(position: Position, kind: EventKind, name: str) -> None:
    if (position, kind, name) == ("before", "compensate", "car"):
        raise InjectedCrash(position, kind, name)


def test_a_deadline_that_passes_in_a_back_off_is_seen_then(journal, receiver):
    """A worker doesn't wait for the next try, and doesn't go round in circles until it is due."""
    retry = RetryPolicy(initial_s=100.0, max_s=100.0)
    agent = scripted(*book(receiver, "hotel"), lambda c: c.step("ask", no_line, retry=retry))
    engine = Engine(journal, [agent], clock=FakeClock(), budget=Budget(max_seconds=10))
    engine.start(agent, run_id=RUN_ID)
    by_worker(engine)
    assert engine.describe(RUN_ID).status is RunStatus.SUSPENDED
    engine.clock.advance(10)
    by_worker(engine)
    run = engine.describe(RUN_ID)
    assert (run.status, run.error.type, run.attempts) == ("failed", "BudgetExceededError", 2)
    assert receiver.log == [("book", "hotel"), ("undo", "hotel")]


@pytest.mark.parametrize("limit", ["max_steps", "max_cost", "max_seconds"])
def test_undos_are_exempt_from_the_budget_that_was_spent(journal, limit):
    clock, undone = FakeClock(), []

    def undo(name: str, *, idempotency_key: str, effect_key: str) -> None:
        clock.advance(1_000.0)
        undone.append(name)

    @workflow(version="1")
    def agent(ctx: Context, _: Any) -> None:
        for name in ("hotel", "flight", "car"):
            ctx.compensate(name, undo, name)
            ctx.effect(name, lambda idempotency_key: clock.advance(1.0), cost=1.0)

    budget = Budget(**{limit: 2})
    run = Engine(journal, [agent], budget=budget, clock=clock).run(agent, run_id=RUN_ID)
    assert (run.status, run.error.type) == ("failed", "BudgetExceededError")
    assert (undone[-2:], run.cost) == (["flight", "hotel"], 2.0)


def test_undos_are_exempt_from_the_limit_of_events(journal, receiver):
    agent = scripted(*book(receiver, "hotel", "flight"), sold_out)
    run = Engine(journal, [agent], max_events=5).run(agent, run_id=RUN_ID)
    assert (run.status, receiver.log[2:]) == ("failed", [("undo", "flight"), ("undo", "hotel")])


def test_a_request_to_cancel_stops_no_undo(journal, receiver):
    """It comes while the first of two undos runs, and changes nothing of how the run ends."""
    asked = []

    def undo(name: str, **keys: str) -> str:
        asked.append(Engine(journal).cancel(RUN_ID))
        return receiver.undo(name, **keys)

    undos = [
        lambda c: c.compensate("hotel", undo, "hotel"),
        book_by(receiver, "hotel"),
        lambda c: c.compensate("flight", undo, "flight"),
        book_by(receiver, "flight"),
    ]
    agent = scripted(*undos, sold_out)
    run = Engine(journal, [agent]).run(agent, run_id=RUN_ID)
    assert (run.status, run.error.type, asked) == ("failed", "RunFailed", [True, False])
    assert receiver.log[2:] == [("undo", "flight"), ("undo", "hotel")]


def test_a_worker_that_is_told_to_stop_gives_the_run_back_between_two_undos(journal, receiver):
    """It finishes the undo that it is in; the next worker goes on with the rest at once."""
    agent = scripted(*book(receiver, "hotel", "flight", "car"), sold_out)
    engine = Engine(journal, [agent], clock=FakeClock())
    engine.start(agent, run_id=RUN_ID)

    def probe(position: Position, kind: EventKind, _name: str) -> None:
        if (position, kind) == ("before", "undo"):
            worker.stop()

    worker = Worker(Engine(journal, [agent], clock=engine.clock, probe=probe))
    assert worker.run_until_idle() == 1
    assert (engine.describe(RUN_ID).status, journal.row(RUN_ID).worker) == ("pending", None)
    assert receiver.log[3:] == [("undo", "car")]
    assert Worker(engine).run_until_idle() == 1
    assert (engine.describe(RUN_ID).status, engine.clock.now()) == ("failed", 0.0)
    assert receiver.log[3:] == [("undo", "car"), ("undo", "flight"), ("undo", "hotel")]


# A failed undo


NAMES = ("hotel", "flight", "car")


@pytest.fixture
def stranded(journal, receiver) -> Engine:
    """An engine whose run failed and could undo one of three bookings."""
    receiver.down = {"flight"}
    agent = scripted(*book(receiver, *NAMES), sold_out)
    engine = Engine(journal, [agent], clock=FakeClock())
    engine.run(agent, run_id=RUN_ID)
    return engine


def test_a_failed_undo_needs_attention_and_what_is_left_waits(stranded, receiver):
    run = stranded.describe(RUN_ID)
    assert run.status is RunStatus.NEEDS_ATTENTION
    assert run.error == ("ConnectionError", "flight: no line", "flight")
    assert receiver.log[3:] == [("undo", "car")]
    assert events(stranded)[-2:] == ["undo 'car'", "try 'flight'"]
    tried = payloads(stranded, "try")[0]
    assert (tried["of"], tried["key"]) == ("undo", "r-1/flight~undo")
    assert tried["error"] == {"type": "ConnectionError", "message": "flight: no line"}
    history = events(stranded)
    assert Worker(stranded).run_until_idle() == 0
    assert (events(stranded), stranded.orphans()) == (history, [])


@pytest.mark.parametrize("again", ["retry_compensation", "resume"])
def test_a_mended_undo_goes_on_with_the_rest_and_ends_the_run(stranded, receiver, again):
    for tries in (2, 3):  # still down
        run = getattr(stranded, again)(RUN_ID)
        assert (run.status, run.error.step) == ("needs_attention", "flight")
        assert events(stranded)[-tries:] == ["try 'flight'"] * tries
    receiver.down.clear()
    run = getattr(stranded, again)(RUN_ID)
    assert (run.status, run.error) == ("failed", ("RunFailed", "sold out", None))
    assert receiver.log[3:] == [("undo", "car"), ("undo", "flight"), ("undo", "hotel")]
    assert payloads(stranded, "undo")[1]["tries"] == 4
    keys = {key for verb, what, key in receiver.asked if (verb, what) == ("undo", "flight")}
    assert keys == {"r-1/flight~undo"}, "the key is the same at every try"
    assert stranded.describe(RUN_ID) == run


def test_a_request_to_cancel_changes_nothing_of_a_run_with_a_failed_undo(stranded, receiver):
    stranded.cancel(RUN_ID)
    assert Worker(stranded).run_until_idle() == 0
    assert stranded.describe(RUN_ID).status is RunStatus.NEEDS_ATTENTION
    receiver.down.clear()
    assert stranded.resume(RUN_ID).status is RunStatus.FAILED
    assert receiver.log[3:] == [("undo", "car"), ("undo", "flight"), ("undo", "hotel")]


def test_a_failed_undo_is_made_up_for_wherever_the_process_dies(tmp_path, receiver):
    agent = scripted(*book(receiver, *NAMES), sold_out)

    def begin() -> None:
        receiver.forget()
        receiver.down = {"flight"}

    def drive(engine: Engine) -> None:
        if run_it(agent)(engine).status is RunStatus.NEEDS_ATTENTION:
            receiver.down.clear()
            engine.retry_compensation(RUN_ID)

    def told(engine: Engine) -> Any:
        return engine.describe(RUN_ID)._replace(attempts=0), list(receiver.log)

    assert die_everywhere(tmp_path, [agent], drive, told=told, begin=begin) > 50
    assert receiver.log[3:] == [("undo", "car"), ("undo", "flight"), ("undo", "hotel")]


def test_retrying_a_compensation_is_refused_where_none_has_failed(journal, receiver):
    """Of a run that needs attention for another reason nothing is executed."""
    calls: list[Call] = [lambda c: c.step("ask", len, ""), raiser(KeyError("seat"))]
    done, waits = scripted(), scripted(lambda c: c.wait_signal("go"))
    engine = Engine(journal, [buggy := scripted(*book(receiver, "hotel"), *calls)])
    engine.run(buggy, run_id="bug")
    repaired = Engine(
        journal, [scripted(*book(receiver, "hotel"), calls[0], book_by(receiver, "car"))]
    )
    Engine(journal, [done]).start(done, run_id="pending")
    Engine(journal, [done]).run(done, run_id="completed")
    Engine(journal, [waits]).run(waits, run_id="suspended")
    failing = scripted(*book(receiver, "flight"), sold_out)
    Engine(journal, [failing]).run(failing, run_id="failed")
    histories = {run.run_id: engine.history(run.run_id) for run in engine.runs()}
    for run_id in histories:
        with pytest.raises(DurableError, match=run_id):
            repaired.retry_compensation(run_id)
    with pytest.raises(UnknownRunError):
        repaired.retry_compensation("nobody")
    assert {run_id: engine.history(run_id) for run_id in histories} == histories
    assert ("book", "car") not in receiver.log


def test_an_undo_that_returns_what_cant_be_kept_is_a_failed_undo(journal):
    agent = scripted(lambda c: c.compensate("hotel", lambda **_: {1, 2}), sold_out)
    run = Engine(journal, [agent]).run(agent, run_id=RUN_ID)
    assert (run.status, run.error.type, run.error.step) == (
        "needs_attention",
        "PayloadError",
        "hotel",
    )


# The point of no return


def pivoting(receiver: Receiver, *after: Call) -> Workflow:
    return scripted(*book(receiver, "hotel"), lambda c: c.point_of_no_return(), *after)


def test_a_run_past_its_point_of_no_return_refuses_to_be_cancelled(journal, receiver):
    agent = pivoting(receiver, lambda c: c.wait_signal("go"), *book(receiver, "car"))
    engine = Engine(journal, [agent])
    engine.run(agent, run_id=RUN_ID)
    before = events(engine)
    with pytest.raises(DurableError, match="r-1 is past its point of no return") as refused:
        Engine(journal).cancel(RUN_ID)
    assert (refused.value.run_id, events(engine)) == (RUN_ID, before)
    engine.signal(RUN_ID, "go")
    assert engine.resume(RUN_ID).status is RunStatus.COMPLETED
    assert receiver.log == [("book", "hotel"), ("book", "car")]
    assert engine.cancel(RUN_ID) is False, "a run that has ended is not asked"


@pytest.mark.parametrize("position", Position)
def test_of_a_request_to_cancel_and_the_pivot_one_wins(journal, receiver, position):
    """It comes between the run's looking and its recording, or right after that."""
    asked = []

    def probe(at: Position, kind: EventKind, _name: str) -> None:
        if (at, kind) == (position, "pivot"):
            try:
                asked.append(Engine(journal).cancel(RUN_ID))
            except DurableError:
                asked.append("refused")

    agent = pivoting(receiver, *book(receiver, "car"))
    engine = Engine(journal, [agent], probe=probe)
    run = engine.run(agent, run_id=RUN_ID)
    if position == "after":
        assert (run.status, asked) == ("completed", ["refused"])
        assert receiver.log == [("book", "hotel"), ("book", "car")]
    else:
        assert (run.status, asked) == ("cancelled", [True])
        assert "pivot" not in events(engine)
        assert receiver.log == [("book", "hotel"), ("undo", "hotel")]


def ask_calmly(ctx: Context) -> str:
    with suppress(StepFailedError):
        ctx.step("ask", no_line)
    return "home"


AFTER_THE_PIVOT = {
    "a verdict of the code": (sold_out, lambda c: "home", "RunFailed"),
    "a step that failed": (lambda c: c.step("ask", no_line), ask_calmly, "ConnectionError"),
    "a bug": (raiser(KeyError("seat")), lambda c: "home", "KeyError"),
}


@pytest.mark.parametrize("failure", AFTER_THE_PIVOT)
def test_a_failure_past_the_point_of_no_return_undoes_nothing_and_waits_for_a_repair(
    journal, receiver, failure
):
    bad, repaired, error_type = AFTER_THE_PIVOT[failure]
    late = book(receiver, "car")  # registered past the pivot: not undone either
    agent = pivoting(receiver, *late, bad)
    for _ in range(3):
        run = Engine(journal, [agent]).resume(Engine(journal, [agent]).start(agent, run_id=RUN_ID))
        assert (run.status, run.error.type) == ("needs_attention", error_type)
    assert Worker(Engine(journal, [agent])).run_until_idle() == 0
    run = Engine(journal, [pivoting(receiver, *late, repaired)]).resume(RUN_ID)
    assert (run.status, run.result[-1]) == ("completed", "home")
    assert receiver.log == [("book", "hotel"), ("book", "car")]


@pytest.mark.parametrize("limit", ["max_steps", "max_cost", "max_seconds"])
def test_a_budget_spent_past_the_point_of_no_return_is_not_recorded(journal, receiver, limit):
    """A larger budget is a repair: the same run goes on and completes."""
    clock = FakeClock()

    def work() -> None:
        clock.advance(1.0)

    steps = [lambda c, n=n: c.step(f"work {n}", work, cost=1.0) for n in range(4)]
    agent, budget = pivoting(receiver, *steps), Budget(**{limit: 2})
    run = Engine(journal, [agent], clock=clock, budget=budget).run(agent, run_id=RUN_ID)
    assert (run.status, run.error.type) == ("needs_attention", "BudgetExceededError")
    assert "stop" not in [event.kind for event in Engine(journal).history(RUN_ID)]
    assert Engine(journal, [agent], clock=clock).resume(RUN_ID).status is RunStatus.COMPLETED
    assert receiver.log == [("book", "hotel")]


def test_a_pivot_is_found_again_wherever_the_process_dies(tmp_path, receiver):
    """Every death before the failure, in it, and after it: nothing is undone."""
    agent = pivoting(receiver, *book(receiver, "car"), sold_out)
    told = lambda engine: (engine.describe(RUN_ID)._replace(attempts=0), list(receiver.log))  # noqa: E731
    options = {"told": told, "begin": receiver.forget}
    assert die_everywhere(tmp_path, [agent], run_it(agent), **options) > 25
    assert receiver.log == [("book", "hotel"), ("book", "car")]


# What a compensation may be


def test_durable_call_in_an_undo_is_refused_and_a_repaired_undo_runs(journal, receiver):
    for number, call in enumerate(
        (
            lambda c: c.now(),
            lambda c: c.step("inner", len, ""),
            lambda c: c.compensate("inner", receiver.undo, "inner"),
            lambda c: c.patched("inner"),
        )
    ):
        run_id = f"r-{number}"

        def undo(ctx: Context, swallow: bool, call: Call = call, **keys: str) -> None:
            try:
                call(ctx)
            except DurableError:
                if not swallow:
                    raise

        for swallow in (False, True):
            bad = scripted(
                lambda c, s=swallow: c.compensate("hotel", lambda **keys: undo(c, s, **keys)),
                book_by(receiver, "hotel"),
                sold_out,
            )
            run = Engine(journal, [bad]).resume(Engine(journal, [bad]).start(bad, run_id=run_id))
            assert (run.status, run.error.type) == ("needs_attention", "DurableCallError")
            assert events(Engine(journal), run_id)[1:] == ["compensate 'hotel'", "effect 'hotel'"]
        good = scripted(
            lambda c: c.compensate("hotel", lambda **keys: receiver.undo("hotel", **keys)),
            book_by(receiver, "hotel"),
            sold_out,
        )
        assert Engine(journal, [good]).resume(run_id).status is RunStatus.FAILED
        assert receiver.log == [("book", "hotel"), ("undo", "hotel")]
        receiver.forget()


def test_arguments_of_an_undo_are_those_of_its_registration(journal):
    """Neither the code nor an undo that fails half-way can change them; a replay has them too."""
    undone, fails = [], [True]

    def undo(rooms: list[str], *, guest: dict[str, Any], **_: str) -> None:
        undone.append((list(rooms), dict(guest)))
        rooms.clear()
        guest.clear()
        if fails:
            no_line()

    @workflow(version="1")
    def agent(ctx: Context, rooms: list[str]) -> None:
        guest = {"name": "Ada", "rooms": rooms}
        ctx.compensate("hotel", undo, rooms, guest=guest)
        rooms.append("102")
        guest["name"] = "Bob"
        raise RunFailed("sold out")

    engine = Engine(journal, [agent])
    run = engine.run(agent, ["101"], run_id=RUN_ID)
    assert run.status is RunStatus.NEEDS_ATTENTION
    fails.clear()
    assert engine.retry_compensation(RUN_ID).status is RunStatus.FAILED
    assert undone == [(["101"], {"name": "Ada", "rooms": ["101"]})] * 2


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda c, r: c.compensate("car", r.undo, "hotel"), "compensate 'car'"),
        (lambda c, r: c.compensate("hotel", r.undo, "motel"), "arguments of digest"),
        (lambda c, r: c.step("hotel", len, ""), "step 'hotel'"),
        (lambda c, r: None, "effect 'hotel'"),
    ],
)
def test_registration_is_compared_with_the_journal_and_nothing_is_done(
    journal, receiver, other, said
):
    good = scripted(*book(receiver, "hotel"), lambda c: c.now(), sold_out)
    bad = scripted(
        lambda c: other(c, receiver), book_by(receiver, "hotel"), lambda c: c.now(), sold_out
    )
    with pytest.raises(InjectedCrash):
        run_it(good)(Engine(journal, [good], probe=CrashAt("hotel", "after")))
    before = events(Engine(journal))
    with pytest.raises(NonDeterminismError, match=said) as caught:
        Engine(journal, [bad]).resume(RUN_ID)
    assert (caught.value.seq, events(Engine(journal))) == (2, before)
    assert receiver.log == [("book", "hotel")]


@pytest.mark.parametrize("body", [None, "undo", 7])
def test_a_compensation_that_is_no_function_is_refused_before_the_effect(journal, receiver, body):
    agent = scripted(lambda c: c.compensate("hotel", body), book_by(receiver, "hotel"))
    run = Engine(journal, [agent]).run(agent, run_id=RUN_ID)
    assert (run.status, run.error.type) == ("needs_attention", "TypeError")
    assert (receiver.log, len(events(Engine(journal)))) == ([], 1)


@pytest.mark.parametrize("word", ["idempotency_key", "effect_key"])
def test_a_compensation_is_not_handed_keys_by_the_code(journal, receiver, word):
    agent = scripted(lambda c: c.compensate("hotel", receiver.undo, "hotel", **{word: "mine"}))
    run = Engine(journal, [agent]).run(agent, run_id=RUN_ID)
    assert (run.status, run.error.type) == ("needs_attention", "TypeError")
    assert len(events(Engine(journal))) == 1


def test_a_generation_doesnt_end_with_something_to_undo(journal, receiver):
    """The next one wouldn't know of it; past the point of no return there is nothing to undo."""
    agent = scripted(*book(receiver, "hotel"), lambda c: c.continue_as_new(None))
    run = Engine(journal, [agent]).run(agent, run_id=RUN_ID)
    assert (run.status, run.generation) == ("needs_attention", 1)
    assert "continue_as_new would forget" in run.error.message
    assert receiver.log == [("book", "hotel")]


# Side by side, and the receiver


def test_branches_that_ran_beside_a_failed_one_are_undone_too(tmp_path, receiver):
    """The failed one as well: that there is nothing to undo is success."""

    def fail(**_: str) -> NoReturn:
        no_line()

    @workflow(version="1")
    def agent(ctx: Context, _: Any) -> None:
        for name in NAMES:
            ctx.compensate(name, receiver.undo, name)
        calls = {name: Effect(receiver.book, name) for name in NAMES}
        ctx.gather({**calls, "flight": Effect(fail)})

    def check() -> None:
        assert sorted(receiver.log[:2]) == [("book", "car"), ("book", "hotel")]
        undone = [("undo", "car"), ("nothing to undo", "flight"), ("undo", "hotel")]
        assert receiver.log[2:] == undone

    def told(engine: Engine) -> Any:
        run = engine.describe(RUN_ID)
        return run.status, run.error

    options = {"told": told, "begin": receiver.forget, "check": check, "spread": in_turn}
    assert die_everywhere(tmp_path, [agent], run_it(agent), **options) > 40


def test_an_effect_that_the_journal_never_knew_is_undone_by_its_key(journal, receiver):
    """It was done in the crash window; then somebody cancelled the run."""
    agent = scripted(*book(receiver, "hotel"))
    with pytest.raises(InjectedCrash):
        run_it(agent)(Engine(journal, [agent], probe=CrashAt("hotel", "window")))
    engine = Engine(journal, [agent])
    engine.cancel(RUN_ID)
    assert engine.resume(RUN_ID).status is RunStatus.CANCELLED
    assert "effect 'hotel'" not in events(engine)
    assert receiver.log == [("book", "hotel"), ("undo", "hotel")]


def test_a_zombies_late_effect_is_refused_by_a_receiver_that_voids_keys(journal, receiver):
    """It stood before its request while the run was taken over, cancelled and undone."""
    other: list[Callable[[], Any]] = []

    def book_late(name: str, *, idempotency_key: str) -> str:
        if other:
            other.pop()()
        return receiver.book(name, idempotency_key=idempotency_key)

    agent = scripted(undo_by(receiver, "hotel"), lambda c: c.effect("hotel", book_late, "hotel"))
    zombie = Engine(journal, [agent])
    zombie.start(agent, run_id=RUN_ID)

    def take_over() -> None:
        assert Engine(journal, [agent]).cancel(RUN_ID)
        assert Engine(journal, [agent]).resume(RUN_ID).status is RunStatus.CANCELLED

    other.append(take_over)
    with pytest.raises(LeaseLostError):
        zombie.resume(RUN_ID)
    assert receiver.log == [("nothing to undo", "hotel")]
    assert [asked[0] for asked in receiver.asked] == ["undo", "book"], "the zombie did ask"
    history: list[Event] = zombie.history(RUN_ID)
    assert [str(event.kind) for event in history[2:]] == ["cancel", "stop", "undo", "cancelled"]
    assert zombie.resume(RUN_ID).status is RunStatus.CANCELLED
