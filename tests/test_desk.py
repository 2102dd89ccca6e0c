"""The clock desk: a run that waits, whatever happens to it, and the pictures of that."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from durable_mini import TIMED_OUT, Engine, FakeClock, MemoryJournal, workflow
from durable_mini.lab.desk import ClockDesk, Desk, clock_desk
from durable_mini.lab.desk_pictures import (
    DAY_S,
    Look,
    Wait,
    day_text,
    desk_picture,
    event_text,
    events_table,
    race_picture,
    unread,
    wait_strip,
    waits_of,
)

pytestmark = pytest.mark.slow

outside: list[str] = []


def note(line: str, *, idempotency_key: str) -> str:
    outside.append(line)
    return line


@workflow(version="1")
def refund(ctx: Any, order: str) -> str:
    ctx.effect("ask_clerk", note, f"clerk: {order}?")
    answer = ctx.wait_signal("clerk", timeout_s=3 * DAY_S)
    if answer is TIMED_OUT:
        ctx.effect("ask_manager", note, f"manager: {order}?")
        answer = ctx.wait_signal("manager", timeout_s=2 * DAY_S)
    if answer is TIMED_OUT:
        return "nobody answered"
    return str(ctx.effect("pay", note, f"paid {order}")) if answer["ok"] else "refused"


@workflow(version="1")
def napping(ctx: Any, _: Any) -> None:
    ctx.sleep(7 * DAY_S)
    ctx.wait_signal("go")


YES, NO = {"ok": True}, {"ok": False}


def press(desk: ClockDesk, name: str) -> str:
    """Press a button and wait for what the desk says to it."""
    desk.buttons[name].click()
    assert desk.wait()
    return desk._said


def widget(*acts: Any) -> ClockDesk:
    answers = {"yes": YES, "no": NO}
    return clock_desk(
        refund, "o-1", outside, signals=["clerk", "manager"], answers=answers, acts=acts
    )


# The desk


def test_desk_admits_a_run_that_no_worker_has_seen() -> None:
    desk = Desk(refund, "o-1", outside)

    assert [event.kind for event in desk.history] == ["admitted"]
    assert (outside, desk.standing(), unread(desk.history)) == ([], "pending", ())


def test_time_alone_changes_nothing() -> None:
    desk = Desk(refund, "o-1", outside)
    desk.work()
    before = desk.history
    desk.advance(days=30)

    assert desk.history == before
    assert desk.standing() == "suspended, waits for signal 'clerk' until day 3, which has come"


def test_signal_is_recorded_and_wakes_nobody_until_a_worker_comes_by() -> None:
    desk = Desk(refund, "o-1", outside)
    desk.work()
    said = desk.send("clerk", YES, "s-1")
    assert "was taken" in said
    assert unread(desk.history) == (4,)
    assert desk.run.status == "suspended"
    desk.work()

    assert unread(desk.history) == ()
    assert desk.standing() == "completed, result 'paid o-1'"


def test_signal_that_is_not_taken_says_why() -> None:
    desk = Desk(refund, "o-1", outside)
    desk.work()
    desk.send("clerk", NO, "s-1")
    assert desk.send("clerk", YES, "s-1") == (
        "The signal 'clerk' with id 's-1' was not taken: its id is known"
    )
    desk.work()

    assert desk.send("clerk", YES) == "The signal 'clerk' was not taken: the run is completed"


def test_clock_goes_to_the_next_due_time_and_no_further() -> None:
    desk = Desk(refund, "o-1", outside)
    assert desk.advance_to_due().startswith("Something is due already")
    desk.work()
    for due_day in (3, 5):
        desk.advance_to_due()
        assert desk.clock.now() == due_day * DAY_S
        desk.work()

    assert desk.advance_to_due().startswith("Nothing will become due")
    assert desk.run.result == "nobody answered"


def test_look_without_anything_due_leaves_the_run_alone() -> None:
    desk = Desk(refund, "o-1", outside)
    desk.work()
    desk.advance(days=1)
    said = desk.work()

    assert "found nothing due" in said
    assert (desk.run.attempts, [look.attempts for look in desk.looks]) == (1, [1, 0])


def test_cancel_takes_hold_when_a_worker_comes_by() -> None:
    desk = Desk(refund, "o-1", outside)
    desk.work()
    assert "is in the journal" in desk.cancel()
    assert "was not taken" in desk.cancel()
    assert desk.run.status == "suspended"
    desk.work()

    assert desk.standing() == "cancelled"
    assert waits_of(desk.history)[-1].verdict == "stopped"


# What a history tells


def test_waits_are_read_from_a_history_with_their_verdicts() -> None:
    desk = Desk(refund, "o-1", outside)
    desk.work()
    desk.advance(days=4)
    desk.work()
    desk.advance(hours=6)

    assert waits_of(desk.history) == (
        Wait("clerk", 0.0, 3 * DAY_S, 4 * DAY_S, "timed out"),
        Wait("manager", 4 * DAY_S, 6 * DAY_S),
    )


def test_sleep_and_a_wait_without_an_end_are_waits_too() -> None:
    desk = Desk(napping)
    desk.work()
    desk.advance_to_due()
    desk.work()

    assert waits_of(desk.history) == (
        Wait("sleep", 0.0, 7 * DAY_S, 7 * DAY_S, "fired"),
        Wait("go", 7 * DAY_S, None),
    )
    assert desk.standing() == "suspended, waits for signal 'go'"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "day 0"), (DAY_S - 20, "day 1"), (3.5 * DAY_S, "day 3 12:00"), (-DAY_S, "day -1")],
)
def test_time_is_said_in_days_and_hours(seconds: float, told: str) -> None:
    assert day_text(seconds) == told


def test_events_are_told_in_days_since_the_admission() -> None:
    engine = Engine(MemoryJournal(), [refund], clock=FakeClock(1e9))
    engine.run(refund, "o-1", run_id="r-1")
    engine.signal("r-1", "clerk", {"ok": True, "by": "ann"})
    history = engine.history("r-1")

    assert "3  day 0       wait       clerk  due day 3" in event_text(history[2], 1e9)
    table = str(events_table(history, "what happened"))
    assert table.startswith("what happened")
    assert "ok=yes by=ann" in table


# The pictures


def test_strip_says_who_was_there_and_what_is_unread() -> None:
    desk = Desk(refund, "o-1", outside)
    desk.work()
    desk.advance(days=3)
    desk.work()
    desk.send("clerk", YES)
    picture = wait_strip(desk.history, desk.looks, desk.clock.now(), "title")

    assert "Wait for clerk from day 0, due day 3: timed out on day 3." in picture.alt
    assert "A worker had something to do on day 0, day 3, and only then." in picture.alt
    assert picture.alt.endswith("Signals that nobody has read: #7.")
    assert picture.png()[:4] == b"\x89PNG"


def test_strip_of_no_event_is_refused() -> None:
    with pytest.raises(ValueError, match="start it first"):
        wait_strip([], [], 0.0)


@pytest.mark.parametrize("hours", [[0, 0, 0], [1, 2, 3], [48, 1, 20]])
def test_strip_draws_signals_however_close(hours: list[int]) -> None:
    desk = Desk(refund, "o-1", outside)
    desk.work()
    for gap in hours:
        desk.advance(hours=gap)
        desk.send("manager", NO)

    assert unread(desk.history) == (4, 5, 6)
    assert len(desk.picture().png()) > 10_000


def test_long_history_shows_its_last_lines_and_grows_no_picture() -> None:
    desk = Desk(refund, "o-1", outside)
    desk.work()
    short = desk.picture().figure.get_size_inches()
    for number in range(30):
        desk.send("manager", number)
    told = (desk.history, [Look(0.0, 1)], 0.0, ["line"] * 30)
    long = desk_picture("many", *told, known=0)

    assert tuple(long.figure.get_size_inches()) == tuple(short)
    assert long.alt.endswith("The journal has 33 events, 33 of them new.")


def test_race_says_each_case_and_its_verdict() -> None:
    picture = race_picture(3 * DAY_S, [(DAY_S, 2 * DAY_S, "received"), (DAY_S, 9e5, "timed_out")])

    assert "signal day 1, worker day 2: received" in picture.alt
    assert "timed out." in picture.alt
    assert picture.png() == picture.png()


# The widget


def test_widget_opens_on_its_acts_and_says_what_the_last_one_did() -> None:
    late = partial(Desk.send, name="clerk", payload=YES, signal_id="s-1")
    desk = widget(Desk.work, Desk.advance_to_due, Desk.work, late)

    assert desk._said.startswith("The signal 'clerk' with id 's-1' was taken")
    assert "waits for signal 'manager' until day 5" in desk._said
    assert desk._picture is not None
    assert desk._picture.alt.endswith("The journal has 7 events, 1 of them new.")


def test_buttons_do_what_they_say_with_what_the_controls_say() -> None:
    desk = widget()
    for name in ("A worker comes by", "To the next due time", "A worker comes by"):
        press(desk, name)
    desk.controls["hours"].value = 30
    assert press(desk, "Advance the clock").startswith("The clock was moved to day 4 06:00")
    desk.controls["signal"].value = "manager"
    desk.controls["answer"].value = "no"
    desk.controls["signal_id"].value = "s-9"
    press(desk, "Send the signal")
    assert "with id 's-9' was not taken: its id is known" in press(desk, "Send the signal")
    said = press(desk, "A worker comes by")

    assert "The run is completed, result 'refused'. So far it took 3 attempts." in said


def test_last_act_can_be_taken_back_and_a_new_run_begun() -> None:
    desk = widget(Desk.work)
    before = desk._said
    assert press(desk, "Cancel the run") != before
    assert press(desk, "Take back") == before
    assert press(desk, "New run").startswith("A new run was admitted")
    assert press(desk, "Take back").startswith("A new run was admitted")
    assert desk.acts == []


def test_same_acts_give_the_same_bytes() -> None:
    first, second = widget(Desk.work, Desk.cancel), widget(Desk.work, Desk.cancel)

    assert first._picture is not None
    assert second._picture is not None
    assert first._picture.png() == second._picture.png()
