"""Exploring: every crash is really tried, what goes wrong is found, and its line replays it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from functools import cache
from typing import Any

import pytest

from durable_mini import (
    TIMED_OUT,
    Budget,
    Context,
    MemoryJournal,
    Position,
    RetryPolicy,
    StepFailedError,
    Workflow,
    workflow,
)
from durable_mini.events import EventKind
from durable_mini.lab.agent import agent_in
from durable_mini.lab.exploring import (
    AGAIN,
    RIGHT,
    WRONG,
    AfterDoing,
    Exploration,
    Fault,
    KeyVoidedError,
    Place,
    ReversibleLedger,
    SignalAt,
    StuckError,
    TooManySchedulesError,
    approval_in,
    explore,
    nothing_left_over,
    replay_schedule,
    saga_in,
)
from durable_mini.lab.exploring.places import Names, recipe_of, schedule_of
from durable_mini.lab.ledger import Ledger
from durable_mini.lab.shape import REFERENCE_SHAPE

STEPS = [spec.name for spec in REFERENCE_SHAPE]
EFFECTS = [spec.name for spec in REFERENCE_SHAPE if spec.kind == "effect"]
DOWN = {"update_crm": ConnectionError("no line")}


def forgetful() -> Ledger:
    return Ledger(honour_keys=False)


@cache
def agent_pairs() -> Exploration:
    return explore(agent_in, "t-1", depth=2)


@cache
def pairs_without_keys() -> Exploration:
    return explore(agent_in, "t-1", depth=2, world=forgetful)


def made(*calls: Any, name: str = "made") -> Any:
    """A function from a world to a workflow that makes these calls, each given context and world.

    The calls are made one level down, so that the structure shows that it can't see them.
    """

    def in_world(world: Ledger) -> Workflow:
        @workflow(name=name, version="1")
        def agent(ctx: Context, _: Any) -> list[Any]:
            return [call(ctx, world) for call in calls]

        return agent

    return in_world


def recipes(found: Exploration, length: int) -> list[str]:
    return [one.recipe for one in found.outcomes if len(one.schedule) == length]


# ---- the schedules are exhaustive --------------------------------------------------------------


def test_explore_crashes_every_call_of_the_agent_at_every_position() -> None:
    found = explore(agent_in, "t-1")
    expected = [f"{step}.{position}" for step in STEPS for position in Position]
    own = [f"run:{what}.{when}" for what in ("admitted", "claimed") for when in ("before", "after")]
    end = ["run:completed.before", "run:completed.after"]
    assert recipes(found, 1) == [*own, *expected, *end]
    assert found.ok and found.schedules == len(recipes(found, 1))


def test_explore_at_depth_two_takes_every_place_of_every_recovery() -> None:
    """The recovery replays what was recorded: its places are a claim, and the calls that are left.

    Counted from that alone: after a crash before or in call i, calls i and later are executed;
    after one that follows its write, calls i+1 and later.
    """
    found = agent_pairs()
    claim = end = 2
    after_first = {
        f"{step}.{position}": claim + 3 * (len(STEPS) - at - (position is Position.AFTER)) + end
        for at, step in enumerate(STEPS)
        for position in Position
    }
    seconds = Counter(one.schedule[0] for one in found.outcomes if len(one.schedule) == 2)
    counted = {str(fault): number for fault, number in seconds.items()}
    whole = claim + 3 * len(STEPS) + end
    after_first |= {
        "run:admitted.before": whole + 2,
        "run:admitted.after": whole,
        "run:claimed.before": whole,
        "run:claimed.after": whole,
        "run:completed.before": claim + end,
        "run:completed.after": 0,
    }
    assert counted == {place: number for place, number in after_first.items() if number}
    assert found.ok and found.schedules == len(recipes(found, 1)) + sum(after_first.values())


def test_explore_at_depth_three_goes_on_the_same_way() -> None:
    one = made(lambda ctx, world: ctx.effect("charge", world.charge, "o", 1))
    found = explore(one, depth=3, only=["charge"])
    assert found.ok
    assert "charge.window > charge.window > charge.after" in recipes(found, 3)


def test_explore_meets_every_kind_of_call_that_is_recorded() -> None:
    found = explore(approval_in, "t-1", signals={"director": "yes"})
    calls = {one.schedule[0].place.plain_call for one in found.outcomes[1:]}
    assert {"uuid", "now", "ask manager", "wait:manager", "timed_out:manager"} <= calls
    assert {"received:director", "timer:sleep", "fired:sleep", "run:suspended"} <= calls
    saga = explore(saga_in, "t-1", world=ReversibleLedger, fail=DOWN)
    calls = {one.schedule[0].place.plain_call for one in saga.outcomes[1:]}
    assert {"compensate:charge", "undo:charge", "undo:reserve", "run:failed"} <= calls


def test_explore_with_only_some_calls_leaves_the_others_alone() -> None:
    found = explore(agent_in, "t-1", depth=2, only=["charge"])
    places = {fault.place.call for one in found.outcomes for fault in one.schedule}
    assert places == {"charge"} and found.schedules == 3 + 3 + 3


# ---- what ends right ---------------------------------------------------------------------------


def family(world: Ledger) -> tuple[Workflow, Workflow]:
    """A parent with a patch, branches and tries, and its child."""

    @workflow(version="1")
    def parcel(ctx: Context, order: str) -> float:
        ctx.effect("weigh", world.charge, order, 3)
        ctx.sleep(5.0)
        return ctx.random()

    @workflow(version="1")
    def shop(ctx: Context, order: str) -> list[Any]:
        if ctx.patched("greet"):
            ctx.effect("greet", world.send_email, order, "hello")
        both = ctx.gather({"a": (str.upper, "a"), "b": (str.upper, "b")})
        try:
            ctx.effect("crm", world.update_crm, order, "x", retry=RetryPolicy(max_attempts=2))
        except StepFailedError as error:
            both["crm"] = error.type
        return [both, ctx.child(parcel, f"{order}-p")]

    return shop, parcel


SHOWN: dict[str, tuple[Any, dict[str, Any]]] = {
    "agent": (agent_in, {}),
    "approval without an answer": (approval_in, {}),
    "approval by the director": (approval_in, {"signals": {"director": "yes"}}),
    "family": (
        family,
        {"fail": DOWN, "only": ["b", "crm", "child:parcel", "parcel/run:completed"]},
    ),
    "saga": (saga_in, {"world": ReversibleLedger, "fail": DOWN, "invariants": [nothing_left_over]}),
}


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.slow
def test_every_pair_of_crashes_ends_right(name: str, figure: Any) -> None:
    make, options = SHOWN[name]
    found = explore(make, "t-1", depth=2, **options)
    figure(f"explore {name}: {found.schedules:,} schedules in {found.seconds:.1f} s")
    assert found.ok, str(found)


def test_every_crash_ends_right_whenever_the_answer_comes() -> None:
    early = [SignalAt("manager", "yes", 5.0)]
    for signals in ({"manager": "yes"}, early, [SignalAt("manager", "no", 0.0)]):
        assert explore(approval_in, "t-1", signals=signals).ok


@pytest.mark.parametrize("journal", ["file", "sqlite"])
@pytest.mark.slow
def test_every_crash_ends_right_on_a_disk_too(journal: str) -> None:
    options = {"world": ReversibleLedger, "fail": DOWN, "invariants": [nothing_left_over]}
    assert explore(saga_in, "t-1", journal=journal, **options).ok
    assert explore(agent_in, "t-1", journal=journal).ok


def test_a_stalled_process_does_no_harm_when_it_goes_on() -> None:
    assert explore(agent_in, "t-1", stalls=True).ok
    options = {"world": ReversibleLedger, "fail": DOWN, "invariants": [nothing_left_over]}
    found = explore(saga_in, "t-1", stalls=True, **options)
    assert found.ok and "charge.before stalls" in recipes(found, 1)


def test_a_crash_and_a_stall_can_follow_each_other() -> None:
    found = explore(agent_in, "t-1", depth=2, stalls=True, only=["charge", "send_email"])
    assert found.ok
    assert "charge.window > send_email.before stalls" in recipes(found, 2)
    assert "charge.before stalls > send_email.window" in recipes(found, 2)


def test_children_patches_tries_and_branches_are_crashed_too() -> None:
    found = explore(family, "t-1", fail=DOWN)
    assert found.ok, str(found)
    calls = {one.schedule[0].place.call for one in found.outcomes[1:]}
    assert {"patch:greet", "a", "b", "try:crm", "child:parcel", "parcel/weigh"} <= calls
    assert {"parcel/run:admitted", "parcel/random", "parcel/run:completed"} <= calls
    assert "joined:parcel" in calls
    tries = [recipe for recipe in recipes(found, 1) if "crm" in recipe]
    assert tries == [
        "crm.before",
        "try:crm.window",
        "try:crm.after",
        "crm#2.before",
        "crm#2.window",
        "crm#2.after",
    ]


def test_generations_are_told_apart() -> None:
    def polling(world: Ledger) -> Workflow:
        @workflow(version="1")
        def poll(ctx: Context, left: int) -> str:
            ctx.effect("ask", world.charge, f"o-{left}", left)
            if left:
                ctx.continue_as_new(left - 1)
            return "asked"

        return poll

    found = explore(polling, 1, depth=2)
    assert found.ok, str(found)
    assert {"ask#2.window", "run:continued.before"} <= set(recipes(found, 1))


def test_a_cancelled_saga_undoes_wherever_it_crashes() -> None:
    def slow_saga(world: ReversibleLedger) -> Workflow:
        @workflow(version="1")
        def saga(ctx: Context, order: str) -> None:
            ctx.compensate("charge", world.take_back, "charge", order)
            ctx.effect("charge", world.charge, order, 1)
            ctx.sleep(100.0)

        return saga

    options = {"world": ReversibleLedger, "invariants": [nothing_left_over]}
    found = explore(slow_saga, "t-1", cancel_at_s=50.0, **options)
    assert found.ok, str(found)
    assert {one.status for one in found.outcomes} == {"cancelled"}
    assert {"stop:cancelled.window", "undo:charge.window"} <= set(recipes(found, 1))


def test_drawn_values_may_differ_and_nothing_else() -> None:
    draws = made(lambda ctx, world: f"case {ctx.uuid()}", lambda ctx, world: ctx.random())
    assert explore(draws).ok
    leaks = iter(range(10_000))
    unrecorded = made(lambda ctx, world: ctx.step("think", lambda: 1), lambda *_: next(leaks))
    found = explore(unrecorded)
    assert found.smallest is not None
    assert "without a crash it is" in found.smallest.broken[0]


def test_spent_budget_ends_alike_after_each_crash() -> None:
    found = explore(agent_in, "t-1", depth=1, budget=Budget(max_cost=5.0))
    assert found.ok and {one.status for one in found.outcomes} == {"failed"}


# ---- what goes wrong is found ------------------------------------------------------------------


def test_receiver_without_keys_is_found_with_the_smallest_schedule() -> None:
    found = pairs_without_keys()
    assert not found.ok and found.smallest is not None
    assert found.smallest.recipe == "charge.window"
    assert found.smallest.broken == ("charge for t-1: 40 is booked twice; without a crash once",)
    single = {one.recipe for one in found.failures if len(one.schedule) == 1}
    assert single == {f"{effect}.window" for effect in EFFECTS}
    pairs = {one.recipe for one in found.failures if len(one.schedule) == 2}
    assert pairs == {
        one.recipe
        for one in found.outcomes
        if len(one.schedule) == 2 and any(str(fault) in single for fault in one.schedule)
    }


def test_stalled_process_without_keys_books_twice_before_the_work_already() -> None:
    found = explore(agent_in, "t-1", stalls=True, world=forgetful, only=["charge"])
    assert [one.recipe for one in found.failures] == [
        "charge.before stalls",
        "charge.window",
        "charge.window stalls",
    ]


def test_key_of_the_name_alone_is_found_without_a_crash() -> None:
    keyed = made(lambda ctx, world: ctx.effect("charge", world.charge, "o", 1, key="charge"))
    found = explore(keyed)
    assert found.smallest is not None and found.smallest.recipe == "no crash"
    assert "names neither the run nor anything" in found.smallest.broken[0]
    assert found.schedules == 0


def test_key_of_the_business_is_as_good_as_one_of_the_run() -> None:
    def charging(world: Ledger) -> Workflow:
        @workflow(version="1")
        def agent(ctx: Context, order: str) -> str:
            number = ctx.step("number", lambda: "n-77")
            ctx.effect("mail", world.send_email, order, "hello", key=f"mail-{number}")
            return str(ctx.effect("charge", world.charge, order, 1, key=f"charge-{order}"))

        return agent

    assert explore(charging, "t-1").ok


def test_failure_after_the_deed_is_undone() -> None:
    options: dict[str, Any] = {"world": ReversibleLedger, "invariants": [nothing_left_over]}
    lost = {"charge": AfterDoing(TimeoutError("no answer"))}
    assert explore(saga_in, "t-1", fail=lost, **options).ok

    def late(world: ReversibleLedger) -> Workflow:
        @workflow(version="1")
        def saga(ctx: Context, order: str) -> None:
            ctx.effect("charge", world.charge, order, 1)
            ctx.compensate("charge", world.take_back, "charge", order)

        return saga

    found = explore(late, "t-1", fail=lost, **options)
    assert found.smallest is not None
    assert "charge for t-1 still stands" in found.smallest.broken[0]


def test_memory_that_outlives_no_process_is_not_relied_on() -> None:
    """A closure that remembers is empty in every new process: code that counts on it is found."""

    def forgetting(world: Ledger) -> Workflow:
        seen: list[str] = []

        @workflow(version="1")
        def agent(ctx: Context, order: str) -> list[str]:
            ctx.step("note", lambda: seen.append("noted"))
            ctx.step("more", lambda: None)
            return list(seen)

        return agent

    found = explore(forgetting, "t-1")
    assert found.smallest is not None
    assert found.smallest.recipe == "note.after"


def test_swallowed_crash_is_not_survived() -> None:
    def stubborn(ctx: Context, world: Ledger) -> Any:
        try:
            return ctx.effect("charge", world.charge, "o", 1)
        except BaseException:
            return ctx.effect("charge", world.charge, "o", 1)

    assert explore(made(stubborn), depth=2).ok


def test_invariants_may_say_return_or_raise_what_is_wrong() -> None:
    def raises(run: Any, events: Any, world: Any) -> None:
        assert not any(event.payload.get("attempt") for event in events), "a second attempt"

    def says(run: Any) -> str | None:
        return None if run.attempts == 1 else f"{run.attempts} attempts"

    def denies(run: Any, events: Any) -> bool:
        return len(events) == 9 and run.attempts == 1

    for invariant, said in ((raises, "a second attempt"), (says, "2 attempts"), (denies, "denies")):
        found = explore(agent_in, "t-1", invariants=[invariant])
        assert found.smallest is not None and found.outcomes[0].ok
        assert said in found.smallest.broken[0]


def test_plain_workflow_is_explored_and_its_world_is_not_compared() -> None:
    @workflow(version="1")
    def plain(ctx: Context, value: int) -> int:
        return int(ctx.step("double", lambda: value * 2))

    for options in ({}, {"world": lambda: None}):
        found = explore(plain, 4, depth=2, **options)
        assert found.ok and found.notes[0].startswith("What reached the world was not compared")
        assert found.notes[0] in str(found)
    assert explore(agent_in, "t-1", only=["charge"]).notes == ()


# ---- engines with a guarantee taken away -------------------------------------------------------


def test_fence_that_lets_a_stalled_process_write_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unfenced(method: Any) -> Any:
        def call(self: Any, row: Any, *args: Any, **kwargs: Any) -> Any:
            return method(self, row._replace(token=self.find(row.run_id).token), *args, **kwargs)

        return call

    for name in ("append", "peek"):
        monkeypatch.setattr(MemoryJournal, name, unfenced(getattr(MemoryJournal, name)))
    assert explore(agent_in, "t-1").ok
    found = explore(agent_in, "t-1", stalls=True)
    assert found.smallest is not None and found.smallest.recipe.endswith(" stalls")


def test_key_of_the_attempt_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    effect = Context.effect

    def keyed(self: Context, name: str, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return effect(self, name, fn, *args, key=f"{self.run_id}/{name}-{self.attempt}", **kwargs)

    monkeypatch.setattr(Context, "effect", keyed)
    found = explore(agent_in, "t-1")
    assert [one.recipe for one in found.failures] == [f"{effect}.window" for effect in EFFECTS]


def test_undo_that_replay_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    compensate = Context.compensate

    def forgotten(self: Context, name: str, fn: Any, /, *args: Any) -> None:
        compensate(self, name, str if self.replaying else fn, *args)

    monkeypatch.setattr(Context, "compensate", forgotten)
    found = explore(saga_in, "t-1", world=ReversibleLedger, fail=DOWN)
    assert found.smallest is not None and found.smallest.recipe == "compensate:reserve.after"


def test_engine_that_never_gets_on_is_told_from_one_that_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryJournal, "append", lambda self, row, *_, **__: 0)
    monkeypatch.setattr("durable_mini.lab.exploring.process.MAX_PLACES", 500)
    waits = made(lambda ctx, world: ctx.sleep(1.0))
    found = explore(waits)
    assert found.smallest is not None
    assert found.smallest.broken[0].startswith("goes round in circles at ")


# ---- one line, again ---------------------------------------------------------------------------


def test_recipe_replays_the_schedule_that_it_was_printed_for() -> None:
    found = pairs_without_keys()
    for failure in found.failures[::18]:
        again = replay_schedule(agent_in, "t-1", failure.recipe, world=forgetful)
        assert again.outcome == failure


def test_replay_shows_processes_events_and_books() -> None:
    again = replay_schedule(agent_in, "t-1", "charge.window > send_email.before")
    told = str(again)
    assert "process 1 dies at charge.window" in told
    assert "process 2 dies at send_email.before" in told
    assert "process 3 comes to the end" in told
    assert "  5 effect     charge  (attempt 2)" in told
    assert "booked: charge for t-1, key r-1/charge" in told
    assert [event.name for event in again.events[1:-1]] == STEPS
    assert len(again.world.rows) == len(EFFECTS)
    assert told.endswith("charge.window > send_email.before: right, charge done again")


def test_replay_of_no_crash_is_the_crash_free_run() -> None:
    again = replay_schedule(agent_in, "t-1", "no crash")
    assert len(again.processes) == 1 and again.outcome.ok


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("charge", "'charge' is no place. Next: write call.position"),
        ("charge.during", "with one of before, window, after"),
        ("buy.window", "no process comes to buy.window. Next: choose among run:admitted"),
        ("charge.after > charge.before", "no process comes to charge.before"),
    ],
)
def test_recipe_that_leads_nowhere_says_where_it_could_lead(recipe: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        replay_schedule(agent_in, "t-1", recipe)


def test_places_of_odd_names_are_told_apart_and_read_back() -> None:
    names = Names("r")
    odd = ["a.b", "a > b", "a#2", "wait:a", "p/a", "a stalls", "50%", "x.before stalls", "a", "a"]
    places = [names.place("r", EventKind.STEP, name, Position.BEFORE) for name in odd]
    places += [
        names.place("r", EventKind.WAIT, "a", Position.BEFORE),
        names.place("r/p", EventKind.STEP, "a", Position.BEFORE),
        names.place("r", EventKind.NOW, "now", Position.BEFORE),
    ]
    assert len(set(places)) == len(places)
    for place in places:
        for stalls in (False, True):
            schedule = (Fault(place, stalls), Fault(Place("end", Position.AFTER)))
            assert schedule_of(recipe_of(schedule)) == schedule


# ---- bounds, options, progress -----------------------------------------------------------------


def test_bound_says_how_many_schedules_there_are_and_what_to_do() -> None:
    with pytest.raises(TooManySchedulesError) as refused:
        explore(agent_in, "t-1", depth=2, max_schedules=100)
    wanted = agent_pairs().schedules
    assert refused.value.wanted == wanted
    assert refused.value.found.ok and refused.value.found.schedules == 27
    text = str(refused.value)
    assert f"depth 2 takes {wanted} schedules, max_schedules is 100; {wanted - 27} more" in text
    assert f"Next: explore(…, max_schedules={wanted}), or choose calls by only=[…]" in text
    with pytest.raises(TooManySchedulesError, match="depth 1 takes 27 schedules"):
        explore(agent_in, "t-1", max_schedules=10)


def test_progress_is_told_level_by_level() -> None:
    told: list[tuple[int, int]] = []
    one = made(lambda ctx, world: ctx.effect("charge", world.charge, "o", 1))
    found = explore(one, depth=2, progress=lambda *done: told.append(done))
    singles = len(recipes(found, 1))
    pairs = found.schedules - singles
    expected = [(n + 1, total) for total in (singles, pairs) for n in range(total)]
    assert told == expected


def test_progress_bar_is_drawn_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    explore(agent_in, "t-1", progress=True, only=["charge"])
    explore(agent_in, "t-1", only=["charge"])
    assert "one crash" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"depth": 0}, ValueError, "depth is the number of crashes"),
        ({"journal": "paper"}, ValueError, "none of memory, file, sqlite"),
        ({"journal": "file", "stalls": True}, ValueError, "one opener at a time"),
        ({"fail": {"pay": OSError()}}, ValueError, "Ledger has no 'pay'"),
        ({"signals": ["approval"]}, TypeError, "SignalAt"),
        ({"retries": 3}, TypeError, "retries"),
    ],
)
def test_option_that_cannot_be_is_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        explore(agent_in, "t-1", **options)


def test_run_that_waits_for_ever_says_what_it_waits_for() -> None:
    waits = made(lambda ctx, world: ctx.wait_signal("go"))
    with pytest.raises(StuckError, match=r"waits for signal 'go', and nobody sends it\. Next"):
        explore(waits)
    assert explore(waits, signals={"go": 1}).ok


def test_factory_that_makes_no_workflow_is_refused() -> None:
    with pytest.raises(TypeError, match="return one or more workflows"):
        explore(lambda world: [agent_in], "t-1")


def test_late_signal_loses_against_the_time_out_after_each_crash() -> None:
    def waiting(world: Ledger) -> Workflow:
        @workflow(version="1")
        def agent(ctx: Context, _: Any) -> list[Any]:
            first = ctx.wait_signal("go", timeout_s=10.0)
            return [first is TIMED_OUT, ctx.wait_signal("go")]

        return agent

    found = explore(waiting, signals=[SignalAt("go", "late", 11.0)])
    assert found.ok
    assert replay_schedule(waiting, signals=[SignalAt("go", "late", 11.0)]).events[-1].payload == {
        "result": [True, "late"]
    }


# ---- the report --------------------------------------------------------------------------------


def test_report_says_which_work_was_done_again_where() -> None:
    found = explore(agent_in, "t-1")
    cells = {row.call: row.cells for row in found.rows}
    for step in STEPS:
        assert cells[step] == dict(zip(Position, (RIGHT, AGAIN, RIGHT), strict=True))
    assert cells["run:claimed"] == {Position.BEFORE: RIGHT, Position.AFTER: RIGHT}
    again = {one.recipe: one.again for one in found.outcomes if one.again}
    assert again == {f"{step}.window": (step,) for step in STEPS}


def test_report_prints_table_smallest_failure_and_recipe() -> None:
    found = pairs_without_keys()
    lines = str(found).splitlines()
    wrong = len(found.failures)
    assert lines[0].startswith(
        f"reference_agent: {found.schedules} schedules of up to 2 crashes, {wrong} of them go wrong"
    )
    row = next(line for line in lines if line.startswith("charge "))
    assert re.fullmatch(r"charge +right +WRONG +right +21 of 45 WRONG", row)
    assert "charge.window: charge for t-1: 40 is booked twice; without a crash once" in lines
    assert lines[-1] == f"… and {wrong - 5} more in .failures"


def test_report_for_a_notebook_has_header_cells_and_words_in_every_cell() -> None:
    page = pairs_without_keys()._repr_html_()
    assert page.count('scope="row"') == len(STEPS) + 3
    assert page.count('scope="col"') == 5
    assert f">{WRONG}<" in page and f">{AGAIN}<" in page and f">{RIGHT}<" in page


def test_reversible_ledger_refuses_a_key_that_was_voided() -> None:
    world = ReversibleLedger()
    world.take_back("charge", "o", idempotency_key="u", effect_key="k")
    assert world.rows == []
    with pytest.raises(KeyVoidedError):
        world.charge("o", 1, idempotency_key="k")
    world.charge("o", 1, idempotency_key="k2")
    for _ in range(2):
        world.take_back("charge", "o", idempotency_key="u2", effect_key="k2")
    assert [row.endpoint for row in world.rows] == ["charge", "undo charge"]


def test_exploring_needs_the_standard_library_alone() -> None:
    code = (
        "import sys; from durable_mini.lab.exploring import explore; "
        "from durable_mini.lab import agent_in; assert explore(agent_in, 't').ok; "
        "heavy = {'matplotlib', 'numpy', 'rich', 'IPython', 'ipywidgets'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
