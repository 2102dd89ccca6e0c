"""`replay_history`: whether today's code still fits a stored history, with nothing executed."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from gallery import fill, longer_trip, made, order, poll, refusing, trip
from support import Call, scripted

from durable_mini import (
    Context,
    Effect,
    Engine,
    Event,
    EventKind,
    FakeClock,
    JournalCorruptError,
    MemoryJournal,
    NonDeterminismError,
    RetryPolicy,
    RunFailed,
    SQLiteJournal,
    StepFailedError,
    StructureChangedError,
    UnknownWorkflowError,
    Workflow,
    in_turn,
    workflow,
)
from durable_mini.events import CLOSING
from durable_mini.ops import Replayed, replay_history

hypothesis = pytest.importorskip("hypothesis", reason="property tests need hypothesis")
from hypothesis import given, strategies as st  # noqa: E402

CALLS = frozenset(
    {
        *("step", "effect", "now", "random", "uuid", "try", "timer", "fired", "wait", "received"),
        *("timed_out", "child", "joined", "compensate", "undo", "pivot", "stop"),
    }
)


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("executed")


def history_of(agent: Workflow, value: Any = None, **options: Any) -> list[Event]:
    """What a run of `r-1` leaves behind, driven as far as it goes."""
    engine = Engine(MemoryJournal(), [agent], clock=FakeClock(), **options)
    engine.run(agent, value, run_id="r-1")
    return engine.history("r-1")


def answered_in(events: list[Event]) -> int:
    return sum(event.kind in CALLS for event in events)


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], list[Event]]:
    """Every history of the gallery, read from its file."""
    with SQLiteJournal(tmp_path_factory.mktemp("gallery") / "journal.db") as journal:
        fill(journal)
        return {
            (row.run_id, generation): events
            for row in journal.rows()
            for generation in range(1, row.generation + 1)
            if (events := journal.events(row._replace(generation=generation)))
        }


CODE = {
    **{"complete": order, "waiting": order, "pending": order, "cancelled": trip, "spent": trip},
    **{"continued": poll, "pruned and reused": poll, "migrated": trip, "successor": longer_trip},
    "running": refusing,
}


@pytest.mark.parametrize("run_id", CODE)
def test_every_history_replays_against_its_own_code_to_the_ending_that_it_has(
    gallery: dict[tuple[str, int], list[Event]], run_id: str
) -> None:
    for (of, _), events in gallery.items():
        if of == run_id:
            found = replay_history(CODE[run_id], events)
            last = events[-1].kind
            ends = last in CLOSING and of != "migrated"
            assert (found.answered, found.ending) == (answered_in(events), last if ends else None)
            assert (found.stands_at is None) == ends


@pytest.mark.parametrize("run_id", ["complete", "cancelled", "spent", "continued", "successor"])
def test_every_beginning_of_a_history_replays_and_tells_where_it_stands(
    gallery: dict[tuple[str, int], list[Event]], run_id: str
) -> None:
    events = gallery[run_id, 1]
    for length in range(1, len(events)):
        found = replay_history(CODE[run_id], events[:length], run_id=run_id)
        assert found.answered == answered_in(events[:length])
        ends = length == len(events) - 1 and events[-1].kind in CLOSING
        assert found.ending == (events[-1].kind if ends else None)


def test_where_a_history_stands_is_the_next_call_or_what_it_waits_for(
    gallery: dict[tuple[str, int], list[Event]],
) -> None:
    complete = gallery["complete", 1]
    stands = {
        events[-1].seq: replay_history(order, events).stands_at
        for events in (complete[:length] for length in range(1, len(complete)))
    }
    assert stands[3] == "step 'reserve'"
    assert stands[6] == "the next try of 'charge' until 1001"
    assert stands[12] == "timer 'sleep' until 1063"
    assert stands[14] == "signal 'hurry' until 1073"
    assert stands[15] == "timed_out 'hurry'"
    assert stands[18] == "wait 'address'"
    assert stands[19] == "received 'address'"
    assert stands[21] == "child 'complete/parcel'"
    assert stands[22] == "child 'complete/parcel'"
    assert stands[23] == "joined 'complete/parcel'"
    assert replay_history(poll, gallery["pruned and reused", 2]).stands_at == "step 'ask'"


# ---- nothing is executed, nothing is written -----------------------------------------------------


def test_a_replay_executes_and_writes_nothing(
    journal_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow(name="agent")
    def recorded(ctx: Context, _: Any) -> Any:
        ctx.compensate("pay", lambda *, idempotency_key, effect_key: None)
        ctx.effect("pay", lambda *, idempotency_key: "paid")
        ctx.gather({"a": (int, 1), "b": Effect(lambda *, idempotency_key: 2)})
        return ctx.uuid()

    @workflow(name="agent")
    def today(ctx: Context, _: Any) -> Any:
        ctx.compensate("pay", never)
        ctx.effect("pay", never)
        ctx.gather({"a": (never, 1), "b": Effect(never)})
        return ctx.uuid()

    with SQLiteJournal(journal_path) as journal:
        engine = Engine(journal, [recorded])
        engine.run(recorded, run_id="r-1")
        events = engine.history("r-1")
        with caplog.at_level(logging.DEBUG):
            assert replay_history(today, events) == (5, EventKind.COMPLETED, None)
            for length in range(1, 6):
                assert replay_history(today, events[:length]).ending is None
        assert engine.history("r-1") == events
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


def test_a_child_that_is_not_recorded_is_not_admitted(
    gallery: dict[tuple[str, int], list[Event]],
) -> None:
    @workflow(name="order")
    def ordering(ctx: Context, _: Any) -> Any:
        return ctx.child(never_registered, 7)

    @workflow()
    def never_registered(_: Context, __: Any) -> Any:
        return never()

    events = history_of(scripted(), None)[:1]
    renamed = events[0].payload | {"calls": ["child never_registered"]}
    events = [events[0]._replace(name="order", text=json.dumps(renamed))]
    assert replay_history(ordering, events) == (0, None, "child 'replayed/never_registered'")


def test_a_step_in_its_back_off_is_not_tried() -> None:
    clock = FakeClock()

    def failing() -> None:
        raise ConnectionError

    @workflow()
    def agent(ctx: Context, body: Any) -> Any:
        return ctx.step("call", failing, retry=RetryPolicy(max_attempts=5, initial_s=8.0))

    engine = Engine(MemoryJournal(), [agent], clock=clock)
    engine.run(agent, run_id="r-1")
    events = engine.history("r-1")[:3]
    assert replay_history(agent, events) == (2, None, "the next try of 'call' until 24")


# ---- what doesn't fit ----------------------------------------------------------------------------


def reserve(ctx: Context) -> Any:
    return ctx.step("reserve", str.upper, "tea")


def charge(ctx: Context) -> Any:
    return ctx.effect("charge", lambda *, idempotency_key: 5)


@pytest.mark.parametrize(
    ("calls", "seq", "recorded", "requested"),
    [
        ([charge, reserve], 2, "step 'reserve'", "effect 'charge'"),
        ([reserve, lambda ctx: ctx.effect("bill", never)], 3, "effect 'charge'", "effect 'bill'"),
        ([reserve, lambda ctx: ctx.step("charge", never)], 3, "effect 'charge'", "step 'charge'"),
        ([reserve], 3, "effect 'charge'", "the end of the workflow"),
        ([reserve, charge, charge], 4, 'completed with {"result":["TEA",5]}', "effect 'charge'"),
        ([reserve, charge, lambda ctx: ctx.wait_signal("go")], 4, "completed with", "wait 'go'"),
        ([reserve, charge, lambda _: 6], 4, '{"result":["TEA",5]}', '{"result":["TEA",5,6]}'),
        ([lambda ctx: ctx.step("reserve", str.upper, "milk"), charge], 2, "digest", "digest"),
    ],
)
def test_code_that_left_the_recorded_path_is_refused_by_event(
    calls: list[Call], seq: int, recorded: str, requested: str
) -> None:
    events = history_of(scripted(reserve, charge))
    with pytest.raises(NonDeterminismError) as raised:
        replay_history(scripted(*calls), events)
    error = raised.value
    assert (error.run_id, error.seq) == ("r-1", seq)
    assert recorded in error.recorded
    assert requested in error.requested


def test_other_arguments_pass_where_they_are_not_compared() -> None:
    events = history_of(scripted(reserve))
    other = scripted(lambda ctx: ctx.step("reserve", str.upper, "milk"))
    assert replay_history(other, events, compare_arguments=False).ending == "completed"


def ending(error: Exception) -> Call:
    def call(_: Context) -> None:
        raise error

    return call


def test_another_error_than_the_recorded_one_is_refused() -> None:
    events = history_of(scripted(reserve, ending(RunFailed("sold out"))))
    assert (
        replay_history(scripted(reserve, ending(RunFailed("sold out"))), events).ending == "failed"
    )
    for other in (ending(RunFailed("no")), lambda _: None):
        with pytest.raises(NonDeterminismError, match="sold out"):
            replay_history(scripted(reserve, other), events)


def test_another_input_for_the_next_generation_is_refused(
    gallery: dict[tuple[str, int], list[Event]],
) -> None:
    events = gallery["continued", 1]
    changed = [*events[:-1], events[-1]._replace(text='{"input":7}')]
    with pytest.raises(NonDeterminismError, match=r'continued with {"input":7}'):
        replay_history(poll, changed)


def test_a_changed_structure_is_refused_as_resume_would() -> None:
    @workflow(name="scripted")
    def longer(ctx: Context, _: Any) -> Any:
        return [reserve(ctx), ctx.now()]

    with pytest.raises(StructureChangedError):
        replay_history(longer, history_of(scripted(reserve)))


def test_a_bug_in_the_code_comes_out_as_it_is(gallery: dict[tuple[str, int], list[Event]]) -> None:
    with pytest.raises(ZeroDivisionError):
        replay_history(refusing, gallery["attention", 1])
    events = history_of(scripted(lambda ctx: ctx.point_of_no_return(), reserve))
    late = scripted(lambda ctx: ctx.point_of_no_return(), reserve, ending(RunFailed("late")))
    with pytest.raises(RunFailed):
        replay_history(late, events)


def test_a_failed_step_is_raised_to_the_code_as_it_was() -> None:
    def caught(ctx: Context) -> Any:
        try:
            return ctx.step("call", ending(ConnectionError("lost")), ctx.attempt)
        except StepFailedError as error:
            return error.message

    events = history_of(scripted(caught))
    assert replay_history(scripted(caught), events) == (1, EventKind.COMPLETED, None)


def test_a_change_that_is_guarded_by_a_patch_takes_old_histories() -> None:
    @workflow(name="agent")
    def before(ctx: Context, _: Any) -> Any:
        return ctx.step("reserve", str.upper, "tea")

    @workflow(name="agent")
    def guarded(ctx: Context, _: Any) -> Any:
        found = ctx.step("reserve", str.upper, "tea")
        if ctx.patched("thank"):
            ctx.step("thank", never)
        return found

    @workflow(name="agent")
    def unguarded(ctx: Context, _: Any) -> Any:
        found = ctx.step("reserve", str.upper, "tea")
        ctx.step("thank", never)
        return found

    events = history_of(before)
    assert replay_history(guarded, events) == (1, EventKind.COMPLETED, None)
    assert replay_history(guarded, events[:2]) == (1, EventKind.COMPLETED, None)
    with pytest.raises(StructureChangedError):
        replay_history(unguarded, events)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "the admission is missing"),
        ([made("step", "a", args="", result=1)._replace(seq=1)], "the admission is missing"),
        ("gap", "this event is missing"),
    ],
)
def test_events_that_are_no_history_are_refused(events: Any, words: str) -> None:
    if events == "gap":
        events = history_of(scripted(reserve, charge))
        del events[1]
    with pytest.raises(JournalCorruptError, match=words):
        replay_history(scripted(reserve, charge), events)


def test_the_history_of_another_workflow_is_refused() -> None:
    with pytest.raises(UnknownWorkflowError, match="'scripted' version '1' isn't registered"):
        replay_history(order, history_of(scripted(reserve)))


# ---- whose history it is -------------------------------------------------------------------------


@workflow()
def curious(ctx: Context, _: Any) -> Any:
    ctx.step("look", lambda *_: 1, ctx.run_id, ctx.generation)
    ctx.effect("charge", lambda *, idempotency_key: 5)


@pytest.mark.parametrize("run_id", ["r-1", "a/b#c~d%e", "ü 1"])
def test_the_run_id_is_read_from_the_keys(run_id: str) -> None:
    engine = Engine(MemoryJournal(), [curious])
    engine.run(curious, run_id=run_id)
    for generation in (1, 2):
        events = engine.history(run_id)
        assert replay_history(curious, events).ending == "completed"
        with pytest.raises(NonDeterminismError, match="digest"):
            replay_history(curious, events, run_id="other")
        with pytest.raises(NonDeterminismError, match="digest"):
            replay_history(curious, events, generation=generation + 1)
        engine.resume(engine.start(curious, run_id=run_id, reuse=True))


def test_a_run_id_that_no_key_tells_can_be_said() -> None:
    events = history_of(scripted(lambda ctx: ctx.step("look", lambda _: 1, ctx.run_id)))
    agent = scripted(lambda ctx: ctx.step("look", never, ctx.run_id))
    assert replay_history(agent, events, run_id="r-1").ending == "completed"
    with pytest.raises(NonDeterminismError, match="run replayed, event 2"):
        replay_history(agent, events)


@pytest.mark.parametrize("run_id", ["cancelled", "spent"])
def test_what_a_stop_says_of_its_run_is_not_compared(
    gallery: dict[tuple[str, int], list[Event]], run_id: str
) -> None:
    ending = gallery[run_id, 1][-1]
    assert f"run {run_id}, event" in ending.payload["error"]["message"]
    found = replay_history(trip, gallery[run_id, 1], run_id="somebody else")
    assert found.ending == ending.kind


def test_keys_of_a_business_operation_tell_no_run_id() -> None:
    events = history_of(
        scripted(lambda ctx: ctx.effect("charge", lambda *, idempotency_key: 1, key="order/7"))
    )
    agent = scripted(lambda ctx: ctx.effect("charge", never, key="order/7"))
    assert replay_history(agent, events).ending == "completed"


def test_the_order_in_which_branches_ended_is_the_recorded_one() -> None:
    def backwards(branches: Any) -> Any:
        return in_turn(dict(reversed(branches.items())))

    agent = scripted(lambda ctx: list(ctx.gather({"a": (int, 1), "b": (int, 2), "c": (int, 3)})))
    events = history_of(agent, spread=backwards)
    assert [event.name for event in events[1:4]] == ["c", "b", "a"]
    assert replay_history(agent, events).ending == "completed"
    assert replay_history(agent, events[:3]).stands_at == "step 'a'"


# ---- any workflow, cut anywhere ------------------------------------------------------------------

BLOCKS: dict[str, Call] = {
    "step": lambda ctx: ctx.step("step", int, 1),
    "effect": charge,
    "now": lambda ctx: ctx.now(),
    "sleep": lambda ctx: ctx.sleep(0.0),
    "wait": lambda ctx: str(ctx.wait_signal("go", timeout_s=0.0)),
    "gather": lambda ctx: ctx.gather({"a": (int, 1), "b": (int, 2)}),
    "undo": lambda ctx: ctx.compensate("x", lambda *, idempotency_key, effect_key: None),
    "fail": ending(RunFailed("enough")),
}


@given(st.lists(st.sampled_from(sorted(BLOCKS)), max_size=8), st.data())
def test_a_history_cut_anywhere_answers_all_of_its_calls(names: list[str], data: Any) -> None:
    agent = scripted(*(BLOCKS[name] for name in names))
    events = history_of(agent)
    length = data.draw(st.integers(1, len(events)))
    found = replay_history(agent, events[:length])
    assert found.answered == answered_in(events[:length])
    if length == len(events):
        assert found == Replayed(answered_in(events), events[-1].kind, None)
