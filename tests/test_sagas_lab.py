"""The lab of chapter 08: the shop, one saga watched, 400 to their ends, and the pictures."""

from __future__ import annotations

from typing import Any

import pytest

from durable_mini import Engine, MemoryJournal
from durable_mini.lab.exploring import explore
from durable_mini.lab.sagas import (
    CRASHES,
    ORDER,
    STEPS,
    UNDOS,
    End,
    Setting,
    Shop,
    ShopError,
    draw_ends,
    end_states,
    ends_sentence,
    ends_slider,
    history_table,
    order_in,
    saga_scenes,
    saga_walk,
    setting_from,
)
from durable_mini.lab.sagas_pictures import (
    Bar,
    Count,
    Reading,
    ends_by_rate,
    ends_picture,
    readings_picture,
)

pytestmark = pytest.mark.slow

KEYS = {"idempotency_key": "k~undo", "effect_key": "k"}
FEW: dict[str, Any] = {"sagas": 60}


# The shop


def test_undo_takes_back_what_came_under_the_effects_key_once() -> None:
    shop = Shop()
    shop.reserve(ORDER, idempotency_key="k")
    assert shop.standing() == ["reserve"]
    for _ in range(2):
        shop.release(ORDER, **KEYS)
    assert (shop.standing(), shop.told()) == ([], ["reserve", "release"])


def test_undo_of_nothing_is_success_and_lets_nothing_come_after_it() -> None:
    shop = Shop()
    shop.refund(ORDER, **KEYS)
    with pytest.raises(Exception, match="voided"):
        shop.charge_card(ORDER, idempotency_key="k")
    assert shop.told() == []


def test_payment_has_one_number_however_often_it_is_asked_for() -> None:
    shop = Shop()
    shop.reserve(ORDER, idempotency_key="r")
    numbers = {shop.charge_card(ORDER, idempotency_key="k") for _ in range(2)}
    assert numbers == {"P-2"}
    shop.refund_payment("P-2", idempotency_key="u", effect_key="another")
    assert shop.standing() == ["reserve"]


@pytest.mark.parametrize("call", ["reserve", "release", "mail"])
def test_what_the_shop_refuses_it_refuses_each_time_and_books_nothing(call: str) -> None:
    shop = Shop()
    shop.refuses = {call}
    keys = KEYS if call in UNDOS.values() else {"idempotency_key": "k"}
    for _ in range(2):
        with pytest.raises(ShopError, match=call):
            getattr(shop, call)(ORDER, **keys)
    assert shop.told() == []


def test_order_ends_the_same_wherever_it_is_crashed() -> None:
    fail = {"book_courier": ShopError("no")}
    found = explore(order_in, ORDER, world=Shop, fail=fail, progress=False)
    assert found.ok
    assert found.schedules > 30


# One saga, watched


@pytest.mark.parametrize("dies", CRASHES)
def test_every_walk_ends_with_nothing_standing_and_each_undo_once(dies: str) -> None:
    scenes = saga_scenes(dies)
    last = scenes[-1].moment
    assert last.ledger == ("reserve", "charge", "refund", "release")
    assert last.journal[-1].endswith("failed")
    dead = [scene for scene in scenes if scene.moment.memory is None]
    assert len(dead) == (CRASHES[dies] is not None)


def test_walk_shows_the_undo_registered_before_its_step_is_done() -> None:
    before, after = (scene.moment for scene in saga_scenes()[:2])
    assert before.memory == ("to undo: release",)
    assert (before.ledger, after.ledger) == ((), ("reserve",))


def test_new_worker_has_the_undos_that_the_journal_says_are_left() -> None:
    scenes = saga_scenes("between two undos")
    woken = next(scene for scene in scenes if scene.moment.title.endswith("replays"))
    assert woken.moment.memory == ("to undo: refund", "to undo: release")


def test_refund_in_its_crash_window_is_booked_once_and_made_again() -> None:
    scenes = saga_scenes("in the refund's crash window")
    made = next(
        scene for scene in scenes if scene.moment.title.endswith("has made the call: refund")
    )
    assert made.moment.ledger[-1] == "refund"
    assert not any("charge" in row for row in made.moment.journal if "undo" in row)


def test_walk_is_gone_through_for_each_place_of_the_crash() -> None:
    walk = saga_walk()
    seen = set()
    for dies in CRASHES:
        walk.controls["dies"].value = dies
        walk.controls["frame"].value = 5
        assert walk.wait()
        seen.add(walk._said)
    assert len(seen) > 1
    assert all(said.startswith("5 of ") for said in seen)


def test_history_is_told_with_what_was_refused() -> None:
    shop = Shop()
    shop.refuses = {"courier"}
    order = order_in(shop)
    engine = Engine(MemoryJournal(), [order])
    engine.run(order, ORDER, run_id=ORDER)
    text = str(history_table(engine.history(ORDER), "caption"))
    assert text.startswith("caption")
    assert "7      effect      courier  ShopError: courier: no" in text


# Four hundred, to their ends


@pytest.mark.parametrize("fails_at", range(len(STEPS) + 1))
@pytest.mark.parametrize("undo_fails", [0, 2])
def test_every_saga_with_a_journal_ends_in_one_of_three_ways(
    fails_at: int, undo_fails: int
) -> None:
    found = end_states(fails_at=fails_at, undo_fails=undo_fails, **FEW)
    assert sum(found.counts.values()) == 60
    assert found.count(End.LOST) == 0
    behind = fails_at > len(UNDOS)
    asked = fails_at >= undo_fails > 0  # what is registered only later is never undone
    assert (found.count(End.UNDONE) > 0) == (0 < fails_at <= len(UNDOS))
    assert (found.count(End.PERSON) > 0) == (behind or asked)


def test_crashes_change_the_attempts_and_no_ending() -> None:
    calm, stormy = end_states(crash_rate=0.0, **FEW), end_states(crash_rate=0.3, **FEW)
    assert [one.end for one in calm.endings] == [one.end for one in stormy.endings]
    assert [one.standing for one in calm.endings] == [one.standing for one in stormy.endings]
    assert calm.attempts == 60 < stormy.attempts


def test_saga_that_completed_or_was_undone_leaves_all_or_nothing() -> None:
    found = end_states(fails_at=2, undo_fails=0, **FEW)
    left = {ending.end: ending.standing for ending in found.endings}
    assert left == {End.COMPLETED: STEPS, End.UNDONE: ()}


def test_try_block_ends_as_the_journal_does_until_something_crashes() -> None:
    calm = end_states(crash_rate=0.0, durable=False, **FEW)
    durable = end_states(crash_rate=0.0, **FEW)
    assert [one.end for one in calm.endings] == [one.end for one in durable.endings]
    crashed = end_states(crash_rate=0.1, durable=False, **FEW)
    assert crashed.count(End.LOST) > 0
    assert crashed.attempts == 60


def test_same_setting_gives_the_same_ends() -> None:
    assert end_states(seed=3, **FEW) == end_states(seed=3, **FEW)
    assert end_states(seed=3, **FEW) != end_states(seed=4, **FEW)


def test_ends_that_contradict_the_books_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shop, "standing", lambda _: ["a leftover"])
    with pytest.raises(RuntimeError, match="in its books"):
        end_states(fails_at=0, sagas=1)


@pytest.mark.parametrize(
    "changes",
    [{"fails_at": 6}, {"undo_fails": -1}, {"chance": 1.1}, {"sagas": 0}, {"crash_rate": 1.0}],
)
def test_setting_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\d"):
        end_states(**changes)


# The slider


def values(**changes: Any) -> dict[str, Any]:
    usual = {"crash_rate": 0.1, "fails_at": 3, "undo_fails": 2, "percent": 30}
    return usual | {"memory": "a journal"} | changes


def test_setting_is_what_the_controls_say() -> None:
    assert setting_from(values()) == Setting()
    assert setting_from(values(memory="a try block", percent=5)) == Setting(
        chance=0.05, durable=False
    )


def test_sentence_says_how_many_ended_in_which_way_and_what_stands() -> None:
    said = ends_sentence(end_states())
    assert "Of 400 sagas: 297 completed, 81 undone, 22 handed to a person" in said
    assert "Every one has an end" in said
    assert "standing: reserve, charge (22)" in said
    assert ends_sentence(end_states(fails_at=0, undo_fails=0, **FEW)).startswith("Nothing fails")
    assert "nobody knows" in ends_sentence(end_states(durable=False, **FEW))


def test_slider_moves_by_its_number_fields_and_drives_the_sagas_anew() -> None:
    slider = ends_slider()
    before = slider._said
    slider.controls["fails_at"].value = 4
    assert slider.wait()
    assert "hand_over fails for good" in slider._said != before
    slider.controls["memory"].value = "a try block"
    assert slider.wait()
    assert "left half-way" in slider._said
    slider.controls["memory"].value = "a journal"
    slider.controls["fails_at"].value = 3
    assert slider.wait()
    assert slider._said == before


# The pictures


def test_picture_of_ends_says_how_many_and_what_fails() -> None:
    found = end_states(**FEW)
    picture = draw_ends(found)
    assert all(f"{number} {end}" in picture.alt for end, number in found.counts.items())
    assert "courier fails for good" in picture.alt
    assert picture.png() == draw_ends(found).png()


def test_picture_of_ends_has_one_size_however_the_sagas_end() -> None:
    shape = Setting().shape
    heights = {
        ends_picture("", shape, [Count("completed", 400)]).figure.get_figheight(),
        ends_picture("", shape, [Count(str(end), 100) for end in End]).figure.get_figheight(),
    }
    assert len(heights) == 1


def test_bars_are_told_in_words_too() -> None:
    counts = [Count("completed", 3), Count("left half-way", 1)]
    picture = ends_by_rate("Title", {"group": [Bar("bar", counts, "4 attempts")]})
    assert picture.alt == "Title. group, bar: 3 completed, 1 left half-way, 4 attempts."
    assert picture.png().startswith(b"\x89PNG")


def test_reading_in_the_middle_is_what_is_neither_first_nor_last() -> None:
    rows = [Reading("still", ["a", "a", "a"]), Reading("saga", ["a", "b", "a"])]
    picture = readings_picture("Title", ["one", "two", "three"], rows, (1, "He looks."))
    assert picture.alt == (
        "Title. still: nothing in between. saga: something in between after two. "
        "After two: He looks."
    )
    assert picture.png().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="3 values"):
        readings_picture("Title", ["one", "two", "three"], [Reading("short", ["a"])])
