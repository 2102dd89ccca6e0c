"""Steps and effects side by side: recorded as each ends, replayed in that order, none lost.

`spread=` decides in which order branches end. Most tests choose an order; those about threads take
the one that comes.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from interrupted import by_resume, by_worker, die_everywhere, driven, is_free, wait_until
from support import RUN_ID, Counted, resume, run_live, scripted, texts

from durable_mini import (
    Budget,
    Effect,
    Engine,
    EventKind,
    FakeClock,
    MemoryJournal,
    NonDeterminismError,
    Position,
    RetryPolicy,
    RunStatus,
    Step,
    StepFailedError,
    StorageError,
    in_threads,
    in_turn,
    workflow,
)
from durable_mini.lab.crashes import CrashAt, InjectedCrash

HANDS = pytest.mark.parametrize("work", [by_resume, by_worker])
SPREADS = pytest.mark.parametrize("spread", [in_turn, in_threads])

Spread = Callable[[Any], Iterator[Any]]


def ending_as(*order: str) -> Spread:
    """Branches that are all executed, and end in this order."""

    def spread(branches: Any) -> Iterator[Any]:
        ended = {name: body() for name, body in branches.items()}
        for name in order:
            if name in ended:
                yield name, ended[name]

    return spread


def dies_after(*recorded: str) -> Any:
    """A probe for a process that dies once the last of these events has been recorded."""

    def probe(position: Position, kind: EventKind, name: str) -> None:
        if position is Position.AFTER and name == recorded[-1]:
            raise InjectedCrash(position, kind, name)

    return probe


class World:
    """Branch bodies that count what is executed, and may fail so many times each."""

    def __init__(self, **failures: int) -> None:
        self._failures = failures
        self.begin()

    def begin(self) -> None:
        """Forget what was executed."""
        self.executed: Counter[str] = Counter()
        self.keys: dict[str, set[str]] = {}

    def work(self, name: str) -> str:
        self.executed[name] += 1
        if self.executed[name] <= self._failures.get(name, 0):
            raise ConnectionError(f"{name}: no line")
        return f"{name} done"

    def post(self, name: str, *, idempotency_key: str) -> str:
        self.keys.setdefault(name, set()).add(idempotency_key)
        return self.work(name)


def gathering(calls: Callable[[], Any], *more: Any) -> Any:
    """A workflow of one gather, and what comes after it."""
    return scripted(lambda c: c.gather(calls()), *more)


def steps(world: World, names: Sequence[str], **options: Any) -> dict[str, Step]:
    """A branch for each name."""
    return {name: Step(world.work, name, **options) for name in names}


def branches(journal: Any) -> list[str]:
    """The names of the recorded steps and effects, in the order of the journal."""
    history = Engine(journal).history(RUN_ID)
    return [event.name for event in history if event.kind in ("step", "effect")]


# Results and their order


@pytest.mark.parametrize("order", list(itertools.permutations("abc")), ids="".join)
def test_gather_gives_results_by_name_in_the_order_of_the_calls(journal, order):
    world = World()
    agent = gathering(lambda: steps(world, "abc"), lambda c: c.now())
    run = run_live(journal, agent, spread=ending_as(*order))
    assert list(run.result[0].items()) == [(name, f"{name} done") for name in "abc"]
    assert branches(journal) == list(order)


def test_gather_takes_steps_effects_and_bare_functions(journal):
    def effect(value, *, idempotency_key):
        return [value, idempotency_key]

    agent = gathering(
        lambda: {
            "bare": (len, "four"),
            "step": Step(sorted, "cab", reverse=True),
            "effect": Effect(effect, 1),
            "own key": Effect(effect, 2, key="order 7"),
        }
    )
    assert run_live(journal, agent).result[0] == {
        "bare": 4,
        "step": ["c", "b", "a"],
        "effect": [1, f"{RUN_ID}/effect"],
        "own key": [2, "order 7"],
    }
    kinds = {event.name: str(event.kind) for event in Engine(journal).history(RUN_ID)[1:-1]}
    assert kinds == {"bare": "step", "step": "step", "effect": "effect", "own key": "effect"}


@pytest.mark.parametrize("order", list(itertools.permutations("abcd")), ids="".join)
def test_gather_replays_the_order_in_which_branches_ended(order):
    """A death after each record, and the rest ends the other way round: four attempts agree."""
    for recorded in range(1, 5):
        journal, world = MemoryJournal(), World()
        agent = gathering(
            lambda world=world: steps(world, "abcd"), lambda c: c.step("end", len, "")
        )
        engine = Engine(
            journal, [agent], spread=ending_as(*order), probe=dies_after(*order[:recorded])
        )
        with pytest.raises(InjectedCrash):
            engine.run(agent, run_id=RUN_ID)
        assert branches(journal) == list(order[:recorded])
        executed = world.executed.copy()

        rest = [name for name in reversed(order) if name not in order[:recorded]]
        engine = Engine(journal, [agent], spread=ending_as(*rest), probe=CrashAt("end", "before"))
        with pytest.raises(InjectedCrash):
            engine.resume(RUN_ID)
        assert branches(journal) == [*order[:recorded], *rest]
        assert world.executed == executed + Counter(rest)

        run = resume(journal, agent, spread=ending_as())
        assert list(run.result[0].items()) == [(name, f"{name} done") for name in "abcd"]
        assert world.executed == executed + Counter(rest)


@SPREADS
def test_gather_of_nothing_is_nothing(journal, spread):
    run = run_live(journal, gathering(dict, lambda c: c.step("end", len, "")), spread=spread)
    assert run.result == [{}, 0]
    assert branches(journal) == ["end"]


def test_gather_gives_what_a_replay_will_give(journal):
    seen: list[str] = []

    @workflow()
    def agent(ctx, _):
        got = ctx.gather({"a": (lambda: (1, {2: 3}),)})
        seen.append(repr(got))
        got["a"].append("changed by the code")
        ctx.wait_signal("end")
        return got

    engine = Engine(journal, [agent], clock=FakeClock())
    engine.run(agent, run_id=RUN_ID)
    engine.signal(RUN_ID, "end")
    engine.resume(RUN_ID)
    assert seen == [repr({"a": [1, {"2": 3}]})] * 2


def test_gather_hands_branches_copies_of_their_arguments(journal):
    @workflow()
    def agent(ctx, _):
        shared = [1]
        ctx.gather({"a": (list.append, shared, 2), "b": Effect(spoil, order={"lines": shared})})
        return shared

    def spoil(*, order, idempotency_key):
        order["lines"].clear()

    assert run_live(journal, agent).result == [1]


def test_gather_runs_branches_side_by_side(journal):
    """Each branch waits for the other: one after the other they would never end."""
    both = threading.Barrier(2, timeout=10)
    agent = gathering(lambda: {"a": (lambda: both.wait() >= 0,), "b": (lambda: both.wait() >= 0,)})
    assert run_live(journal, agent, spread=in_threads).result == [{"a": True, "b": True}]


def test_gather_in_turn_runs_every_branch_in_the_driving_thread(journal):
    agent = gathering(lambda: dict.fromkeys("abc", (threading.get_ident,)))
    assert set(run_live(journal, agent, spread=in_turn).result[0].values()) == {
        threading.get_ident()
    }


# Keys and names


@SPREADS
def test_gather_hands_out_the_keys_of_its_effects_by_name_and_occurrence(journal, spread):
    world = World(b=2)
    posts = {name: Effect(world.post, name, retry=RetryPolicy(initial_s=1)) for name in "ab"}
    agent = scripted(
        lambda c: c.effect("a", world.post, "a"),
        lambda c: c.gather(posts),
        lambda c: c.effect("b", world.post, "b"),
        lambda c: c.gather({"a": posts["a"]}),
    )
    run = run_live(journal, agent, clock=FakeClock(), spread=spread)
    assert run.status is RunStatus.COMPLETED
    assert world.keys == {
        "a": {f"{RUN_ID}/a", f"{RUN_ID}/a#2", f"{RUN_ID}/a#3"},
        "b": {f"{RUN_ID}/b", f"{RUN_ID}/b#2"},
    }


def test_gather_numbers_its_keys_by_its_calls_and_not_by_what_ends_first(journal):
    keys: list[dict[str, str]] = []

    def key(*, idempotency_key: str) -> str:
        return idempotency_key

    agent = gathering(lambda: {"b": Effect(key), "a": Effect(key)}, lambda c: c.effect("a", key))
    for order in ("ab", "ba"):
        with MemoryJournal() as other:
            keys.append(run_live(other, agent, spread=ending_as(*order)).result)
    assert keys[0] == keys[1] == [{"b": "r-1/b", "a": "r-1/a"}, "r-1/a#2"]


def test_gather_may_repeat_names_of_steps_around_it(journal):
    world = World()
    agent = scripted(
        lambda c: c.step("a", world.work, "a"),
        lambda c: c.gather(steps(world, "ab")),
        lambda c: c.step("b", world.work, "b"),
        lambda c: c.gather(steps(world, "ba")),
        lambda c: c.wait_signal("end"),
    )
    engine = Engine(journal, [agent], spread=ending_as("b", "a"))
    engine.run(agent, run_id=RUN_ID)
    engine.signal(RUN_ID, "end")
    assert engine.resume(RUN_ID).result[1] == {"a": "a done", "b": "b done"}
    assert branches(journal) == ["a", "b", "a", "b", "b", "a"]
    assert world.executed == {"a": 3, "b": 3}


@pytest.mark.parametrize(
    "calls",
    [
        {"": (len, "")},
        {"a\nb": (len, "")},
        {1: (len, "")},
        {"a": ("no function",)},
        {"a": Step(len, "", retry=3)},
        {"a": Step(len, "", cost=-1)},
        {"a": Step(len, "", cost="dear")},
        {"a": Effect(len, "", idempotency_key="mine")},
        {"a": Effect(len, "", key="")},
        {"a": ()},
        {"a": len},
    ],
)
def test_gather_refuses_a_call_that_cannot_be_made_before_any_is(journal, calls):
    world = World()
    agent = gathering(lambda: {"first": (world.work, "first"), **calls})
    run = run_live(journal, agent)
    assert (run.status, world.executed) == ("needs_attention", {})
    assert branches(journal) == []


# Failures


FAILING = {"b": 1, "d": 1}


@pytest.mark.parametrize("order", ["abcd", "dcba", "bdac", "dabc"])
def test_gather_raises_the_first_failure_in_the_order_of_its_calls(journal, order):
    """Of all that have ended: whichever of them was first, the others' work is kept."""
    world = World(**FAILING)
    agent = gathering(lambda: steps(world, "abcd"))
    run = run_live(journal, agent, spread=ending_as(*order))
    assert (run.status, run.error) == ("failed", ("ConnectionError", "b: no line", "b"))
    assert branches(journal) == list(order)
    assert world.executed == {"a": 1, "b": 1, "c": 1, "d": 1}


@SPREADS
def test_gather_keeps_what_the_other_branches_did_when_one_fails(journal, spread):
    world = World(b=99)

    @workflow()
    def agent(ctx, _):
        try:
            return ctx.gather(steps(world, "abc"))
        except StepFailedError as failure:
            told = [failure.step, failure.type, failure.message, failure.seq]
        ctx.wait_signal("end")
        return told

    engine = Engine(journal, [agent], spread=spread)
    engine.run(agent, run_id=RUN_ID)
    engine.signal(RUN_ID, "end")
    run = engine.resume(RUN_ID)
    seq = branches(journal).index("b") + 2
    assert run.result == ["b", "ConnectionError", "b: no line", seq]
    assert world.executed == {"a": 1, "b": 1, "c": 1}
    history = engine.history(RUN_ID)
    assert {event.name for event in history if "result" in event.payload} >= {"a", "c"}


@pytest.mark.parametrize(
    "value", [float("nan"), object(), {1: 1, "1": 2}], ids=["nan", "object", "two keys"]
)
def test_gather_fails_the_branch_whose_result_cannot_be_kept(journal, value):
    agent = gathering(lambda: {"bad": (lambda: value,), "good": (len, "")})
    run = run_live(journal, agent)
    assert (run.status, run.error.type, run.error.step) == ("failed", "PayloadError", "bad")
    assert sorted(branches(journal)) == ["bad", "good"]


@SPREADS
def test_gather_ends_the_attempt_at_a_storage_error_in_a_branch(journal, spread):
    """It is never a step's failure: nothing of that branch is recorded, and it runs again."""
    world, broken = World(), [True]

    def stored() -> str:
        if broken:
            raise StorageError(path="elsewhere.db", reason="disk full")
        return "stored"

    agent = gathering(
        lambda: {"a": (world.work, "a"), "b": Step(stored, retry=RetryPolicy(initial_s=0))}
    )
    with pytest.raises(StorageError, match="disk full"):
        run_live(journal, agent, spread=spread)
    assert "b" not in branches(journal)
    assert Engine(journal).describe(RUN_ID).error is None
    broken.clear()
    assert resume(journal, agent).result == [{"a": "a done", "b": "stored"}]


@SPREADS
@pytest.mark.parametrize("swallowed", [False, True])
def test_gather_refuses_a_durable_call_in_a_branch(journal, spread, swallowed):
    inner, after = Counted(), Counted()

    @workflow()
    def agent(ctx, _):
        def body():
            with suppress(BaseException if swallowed else ()):
                hidden(ctx).step("inner", inner, 1)
            return "swallowed"

        with suppress(Exception):
            ctx.gather({"a": (body,)})
        ctx.step("after", after, 2)

    run = run_live(journal, agent, spread=spread)
    assert (run.status, run.error.type) == ("needs_attention", "DurableCallError")
    assert "step 'inner'" in run.error.message
    assert (inner.calls, after.calls, branches(journal)) == ([], [], [])


def hidden(value: Any) -> Any:
    """The value, where no reader of sources sees it go."""
    return value


@SPREADS
def test_gather_takes_a_computed_cost_that_fails_for_a_bug_and_not_a_failure(journal, spread):
    agent = gathering(lambda: {"a": Step(len, "", cost=lambda result: 1 / result)})
    run = run_live(journal, agent, spread=spread)
    assert (run.status, run.error.type) == ("needs_attention", "ZeroDivisionError")
    assert branches(journal) == []


# Retries


@SPREADS
@HANDS
def test_gather_retries_a_branch_and_runs_no_other_again(journal, spread, work):
    world = World(b=2, d=1)
    policy = RetryPolicy(max_attempts=3, initial_s=10)
    posts = {name: Effect(world.post, name, retry=policy) for name in "abcd"}
    agent = gathering(lambda: posts)
    engine = Engine(journal, [agent], clock=FakeClock(), spread=spread)
    driven(work, agent)(engine)
    assert engine.describe(RUN_ID).result == [{name: f"{name} done" for name in "abcd"}]
    assert world.executed == {"a": 1, "b": 3, "c": 1, "d": 2}
    assert world.keys == {name: {f"{RUN_ID}/{name}"} for name in "abcd"}
    assert engine.clock.now() == 30.0  # ten seconds, then twenty: both branches wait at once


def test_gather_in_a_back_off_holds_no_worker(journal):
    world = World(b=1)
    agent = gathering(lambda: steps(world, "ab", retry=RetryPolicy(initial_s=10)))
    engine = Engine(journal, [agent], clock=FakeClock(), spread=in_turn)
    engine.start(agent, run_id=RUN_ID)
    by_worker(engine)
    assert is_free(engine)
    assert engine.describe(RUN_ID).waiting_for == "the next try of 'b' until 10"
    engine.clock.advance(9.0)
    by_worker(engine)
    assert world.executed == {"a": 1, "b": 1}
    engine.clock.advance(1.0)
    by_worker(engine)
    assert engine.describe(RUN_ID).status is RunStatus.COMPLETED


def test_gather_says_which_try_it_waits_for_first(journal):
    slow, fast = RetryPolicy(initial_s=100, max_s=100), RetryPolicy(initial_s=10)
    world = World(a=1, b=1)
    agent = gathering(
        lambda: {"a": Step(world.work, "a", retry=fast), "b": Step(world.work, "b", retry=slow)}
    )
    engine = Engine(journal, [agent], clock=FakeClock(), spread=in_turn)
    engine.start(agent, run_id=RUN_ID)
    by_worker(engine)
    assert journal.row(RUN_ID).due_at == 10.0
    assert engine.describe(RUN_ID).waiting_for == "the next try of 'a' until 10"


def test_gather_tries_each_branch_when_it_is_due(journal):
    tried: list[tuple[str, float]] = []
    clock = FakeClock()

    def body(name: str, failures: int) -> str:
        tried.append((name, clock.now()))
        if len([one for one, _ in tried if one == name]) <= failures:
            raise ConnectionError
        return name

    policies = {"a": RetryPolicy(initial_s=10, factor=1), "b": RetryPolicy(initial_s=15)}
    agent = gathering(
        lambda: {name: Step(body, name, 2, retry=policies[name]) for name in policies}
    )
    run_live(journal, agent, clock=clock, spread=in_turn)
    assert tried == [("a", 0), ("b", 0), ("a", 10), ("b", 15), ("a", 20), ("b", 45)]


@HANDS
def test_gather_goes_on_with_the_count_of_tries_after_a_crash(journal, work):
    world = World(a=99, b=99)
    policy = RetryPolicy(max_attempts=3, initial_s=10)
    agent = gathering(lambda: steps(world, "ab", retry=policy))
    clock = FakeClock()
    engine = Engine(journal, [agent], clock=clock, spread=in_turn, probe=dies_after("b"))
    with pytest.raises(InjectedCrash):
        engine.run(agent, run_id=RUN_ID)
    engine = Engine(journal, [agent], clock=clock, spread=in_turn)
    driven(work, agent)(engine)
    assert engine.describe(RUN_ID).error.step == "a"
    assert world.executed == {"a": 3, "b": 3}
    payloads = [event.payload for event in engine.history(RUN_ID) if event.kind == "step"]
    assert [payload["tries"] for payload in payloads] == [3, 3]


@pytest.mark.parametrize("stop", ["cancel", "deadline"])
@HANDS
def test_gather_stops_in_a_back_off(journal, stop, work):
    world = World(b=99)
    policy = RetryPolicy(max_attempts=9, initial_s=100, max_s=100)
    agent = gathering(lambda: steps(world, "ab", retry=policy))
    clock = FakeClock()
    budget = Budget(max_seconds=50 if stop == "deadline" else None)
    engine = Engine(journal, [agent], clock=clock, spread=in_turn, budget=budget)
    engine.start(agent, run_id=RUN_ID)
    by_worker(engine)
    clock.advance(50.0)
    if stop == "cancel":
        engine.cancel(RUN_ID)
    work(engine)
    assert engine.describe(RUN_ID).status == ("cancelled" if stop == "cancel" else "failed")
    assert world.executed == {"a": 1, "b": 1}
    assert branches(journal) == ["a"]


# Divergence


@pytest.mark.parametrize("last", [lambda c: c.step("end", len, ""), lambda c: c.wait_signal("end")])
@pytest.mark.parametrize("changed", ["ab", "abx", "abcx", "", "xyz"])
def test_gather_of_other_branches_is_a_divergence(journal, changed, last):
    world = World()
    rest = (last, lambda c: c.wait_signal("never"))
    run_live(journal, gathering(lambda: steps(world, "abc"), *rest), spread=in_turn)
    history = texts(journal)
    with pytest.raises(NonDeterminismError) as caught:
        resume(journal, gathering(lambda: steps(world, changed), *rest), spread=in_turn)
    assert caught.value.seq in (2, 4, 5)
    assert texts(journal) == history
    assert world.executed == {"a": 1, "b": 1, "c": 1}
    assert resume(journal, gathering(lambda: steps(world, "abc"), *rest)).status == "suspended"


def test_gather_of_fewer_branches_is_a_divergence_at_the_end_of_the_workflow(journal):
    world = World()
    agent = gathering(lambda: steps(world, "ab"))
    engine = Engine(journal, [agent], spread=in_turn, probe=dies_after("b"))
    with pytest.raises(InjectedCrash):
        engine.run(agent, run_id=RUN_ID)
    with pytest.raises(NonDeterminismError) as caught:
        resume(journal, gathering(lambda: steps(world, "a")))
    assert (caught.value.seq, caught.value.recorded) == (3, "step 'b'")


def test_gather_in_another_order_of_calls_is_the_same(journal):
    world = World()
    run_live(journal, gathering(lambda: steps(world, "abc"), lambda c: c.wait_signal("end")))
    agent = gathering(lambda: steps(world, "cab"), lambda c: c.wait_signal("end"))
    engine = Engine(journal, [agent])
    engine.signal(RUN_ID, "end")
    assert list(engine.resume(RUN_ID).result[0]) == ["c", "a", "b"]


@pytest.mark.parametrize("try_first", [False, True])
def test_gather_compares_the_arguments_of_each_branch(journal, try_first):
    world = World(b=99 if try_first else 0)
    policy = RetryPolicy(initial_s=10)

    def agent_with(argument):
        calls = {"a": (world.work, "a"), "b": Step(argued, argument, retry=policy)}
        return gathering(lambda: calls, lambda c: c.wait_signal("end"))

    def argued(_: Any) -> str:
        return world.work("b")

    agent = agent_with(1)
    engine = Engine(journal, [agent], clock=FakeClock(), spread=in_turn)
    engine.start(agent, run_id=RUN_ID)
    by_worker(engine)
    history, executed = texts(journal), world.executed.copy()
    with pytest.raises(NonDeterminismError, match="digest") as caught:
        resume(journal, agent_with(2), clock=FakeClock(), spread=in_turn)
    assert caught.value.seq == 3
    assert (texts(journal), world.executed) == (history, executed)


def test_gather_and_steps_of_the_same_names_are_told_apart_by_kind(journal):
    world = World()
    run_live(journal, gathering(lambda: steps(world, "ab"), lambda c: c.wait_signal("end")))
    effects = {name: Effect(world.post, name) for name in "ab"}
    with pytest.raises(NonDeterminismError) as caught:
        resume(journal, gathering(lambda: effects, lambda c: c.wait_signal("end")))
    assert caught.value.seq == 2
    assert world.keys == {}


# Costs and budgets


COSTS = {"a": 1.0, "b": 2.0, "c": 4.0}


def costly(world: World, names: str = "abc", *, computed: bool = False) -> dict[str, Step]:
    """Branches that cost what `COSTS` says, known beforehand or computed from the result."""
    return {
        name: Step(
            world.work, name, cost=(lambda _, name=name: COSTS[name]) if computed else COSTS[name]
        )
        for name in names
    }


@SPREADS
@pytest.mark.parametrize("computed", [False, True])
def test_gather_costs_what_its_branches_cost(journal, spread, computed):
    world = World()
    agent = scripted(
        lambda c: c.step("before", len, "", cost=0.5),
        lambda c: c.gather(costly(world, computed=computed)),
        lambda c: c.wait_signal("end"),
    )
    engine = Engine(journal, [agent], spread=spread)
    assert engine.run(agent, run_id=RUN_ID).cost == 7.5
    engine.signal(RUN_ID, "end")
    assert engine.resume(RUN_ID).cost == 7.5
    assert engine.describe(RUN_ID).cost == 7.5


@pytest.mark.parametrize(("limit", "allowed"), [(6.9, False), (7.0, True), (7.1, True)])
def test_gather_is_judged_by_the_cost_of_all_its_branches(journal, limit, allowed):
    world = World()
    agent = gathering(lambda: costly(world))
    run = run_live(journal, agent, spread=in_turn, budget=Budget(max_cost=limit))
    assert run.status == ("completed" if allowed else "failed")
    assert len(world.executed) == (3 if allowed else 0)  # none is begun that can't be paid


@pytest.mark.parametrize(("limit", "allowed"), [(2, False), (3, True), (4, True)])
def test_gather_is_judged_by_the_number_of_all_its_branches(journal, limit, allowed):
    world = World()
    agent = gathering(lambda: costly(world))
    run = run_live(journal, agent, spread=in_turn, budget=Budget(max_steps=limit))
    assert run.status == ("completed" if allowed else "failed")
    assert len(world.executed) == (3 if allowed else 0)


@HANDS
def test_gather_counts_what_its_finished_branches_spent_before_another_try(journal, work):
    """The first branch turns out to be dear: the second's next try can't be paid any more."""
    world = World(b=1)
    agent = gathering(
        lambda: {
            "a": Step(world.work, "a", cost=lambda _: 10.0),
            "b": Step(world.work, "b", cost=1.0, retry=RetryPolicy(initial_s=10)),
        }
    )
    engine = Engine(
        journal, [agent], clock=FakeClock(), spread=in_turn, budget=Budget(max_cost=5.0)
    )
    driven(work, agent)(engine)
    run = engine.describe(RUN_ID)
    assert (run.status, run.error.type, run.cost) == ("failed", "BudgetExceededError", 10.0)
    assert world.executed == {"a": 1, "b": 1}


@pytest.mark.parametrize(("limit", "allowed"), [(2.9, False), (3.0, True)])
def test_gather_counts_what_was_recorded_before_a_crash_once(journal, limit, allowed):
    world = World()
    agent = gathering(lambda: costly(world, "ab"))
    engine = Engine(journal, [agent], spread=in_turn, probe=dies_after("a"))
    with pytest.raises(InjectedCrash):
        engine.run(agent, run_id=RUN_ID)
    run = resume(journal, agent, spread=in_turn, budget=Budget(max_cost=limit))
    assert run.status == ("completed" if allowed else "failed")
    assert run.cost == (3.0 if allowed else 1.0)


# A death anywhere


@HANDS
def test_gather_survives_a_death_anywhere(tmp_path, work):
    """One after the other, with a retry: every record, and at most one repeat, of what was lost."""
    world = World(b=1)
    policy = RetryPolicy(initial_s=10)
    agent = scripted(
        lambda c: c.step("before", world.work, "before"),
        lambda c: c.gather(
            {
                "a": Step(world.work, "a", cost=1.0),
                "b": Effect(world.post, "b", retry=policy),
                "c": Effect(world.post, "c"),
            }
        ),
        lambda c: c.step("after", world.work, "after"),
    )

    def check() -> None:
        expected = Counter({"before": 1, "a": 1, "b": 2, "c": 1, "after": 1})
        assert world.executed >= expected
        assert (world.executed - expected).total() <= 1
        assert world.keys == {"b": {f"{RUN_ID}/b"}, "c": {f"{RUN_ID}/c"}}

    def told(engine: Engine) -> Any:
        run = engine.describe(RUN_ID)
        return run.status, run.result, run.cost, sorted(branches(engine.journal))

    options: Any = {"told": told, "begin": world.begin, "check": check, "spread": in_turn}
    assert die_everywhere(tmp_path, [agent], driven(work, agent), **options) > 30


def test_gather_has_the_same_history_after_a_death_anywhere(tmp_path):
    world = World()
    agent = gathering(lambda: steps(world, "abc"), lambda c: c.sleep(1))
    die_everywhere(tmp_path, [agent], driven(by_resume, agent), spread=in_turn)


@pytest.mark.parametrize("stop", ["cancel", "deadline"])
def test_gather_that_is_stopped_survives_a_death_anywhere(tmp_path, stop):
    """The stop is anchored in the middle of the gather; what was recorded before it is kept."""
    world = World(b=99)
    policy = RetryPolicy(max_attempts=9, initial_s=100, max_s=100)
    agent = gathering(lambda: steps(world, "ab", retry=policy))

    def drive(engine: Engine) -> None:
        engine.start(agent, run_id=RUN_ID)
        by_worker(engine)
        if stop == "cancel":
            engine.cancel(RUN_ID)
        else:
            wait_until(engine, 1_050.0)
        by_worker(engine)

    def told(engine: Engine) -> Any:
        kinds = [str(event.kind) for event in engine.history(RUN_ID) if event.kind != "cancel"]
        return engine.describe(RUN_ID).status, branches(engine.journal), kinds

    budget = Budget(max_seconds=50 if stop == "deadline" else None)
    options: Any = {"told": told, "spread": in_turn, "budget": budget}
    assert die_everywhere(tmp_path, [agent], drive, begin=world.begin, **options) > 20


def test_gather_in_threads_survives_a_death_anywhere(tmp_path):
    world = World()
    agent = gathering(lambda: {name: Effect(world.post, name) for name in "abcd"})

    def check() -> None:
        assert set(world.executed) == set("abcd")
        assert max(world.executed.values()) <= 2
        assert world.keys == {name: {f"{RUN_ID}/{name}"} for name in "abcd"}

    def told(engine: Engine) -> Any:
        run = engine.describe(RUN_ID)
        return run.status, run.result, sorted(branches(engine.journal))

    options: Any = {"told": told, "begin": world.begin, "check": check, "spread": in_threads}
    assert die_everywhere(tmp_path, [agent], driven(by_resume, agent), **options) > 12


def test_crash_in_a_branch_thread_waits_for_the_other_branches(journal):
    """No thread of a dead attempt is left that could still do something."""
    crashed, ended = threading.Event(), []

    def probe(position, kind, name):
        if (position, name) == (Position.BEFORE, "a"):
            crashed.set()
            raise InjectedCrash(position, kind, name)

    def slow() -> None:
        crashed.wait(10)
        time.sleep(0.05)
        ended.append("b")

    agent = gathering(lambda: {"a": (len, ""), "b": (slow,)})
    threads = threading.active_count()
    with pytest.raises(InjectedCrash):
        run_live(journal, agent, spread=in_threads, probe=probe)
    assert ended == ["b"]
    assert threading.active_count() <= threads + 1  # the heartbeats'
    assert resume(journal, agent).status is RunStatus.COMPLETED


def test_crash_while_recording_a_branch_waits_for_the_other_branches(journal):
    recording, ended = threading.Event(), []

    def probe(position, kind, name):
        if (position, name) == (Position.WINDOW, "a"):
            recording.set()
            raise InjectedCrash(position, kind, name)

    def slow() -> None:
        recording.wait(10)
        time.sleep(0.05)
        ended.append("b")

    agent = gathering(lambda: {"a": (len, ""), "b": (slow,)})
    with pytest.raises(InjectedCrash):
        run_live(journal, agent, spread=in_threads, probe=probe)
    assert ended == ["b"]
    assert branches(journal) == []


def test_gather_of_many_branches_ends(journal):
    world = World()
    names = [f"branch {n}" for n in range(100)]
    agent = gathering(lambda: steps(world, names))
    assert list(run_live(journal, agent, spread=in_threads).result[0]) == names
    assert sorted(branches(journal)) == sorted(names)
