"""The version editor: texts that become workflows, the fates of orders in flight, the pictures."""

from __future__ import annotations

import gc
import linecache
import sys
from collections.abc import Iterator

import pytest

from durable_mini import Engine, MemoryJournal, structure
from durable_mini.lab import versions
from durable_mini.lab.versions import (
    BEGUN,
    EDITS,
    IN_FLIGHT,
    EditError,
    Judgement,
    Life,
    Row,
    Shop,
    judge,
    judge_all,
    load,
    patch_life,
    tally,
)
from durable_mini.lab.versions_pictures import (
    VersionEditor,
    diff,
    editor_picture,
    edits_picture,
    patch_life_picture,
    version_editor,
)

pytestmark = pytest.mark.slow

REFUSED = {"a fraud check", "a survey", "a new name", "a swap", "a shorthand"}
UNDEPLOYABLE = "a patch misused"


def fates(name: str) -> dict[str, str]:
    """What becomes of each order under a prepared edit, in words."""
    return {fate.run_id: fate.words for fate in judge(EDITS[name].text).fates}


@pytest.fixture(scope="module")
def judged() -> dict[str, Judgement]:
    return judge_all()


@pytest.fixture(scope="module")
def widget() -> Iterator[VersionEditor]:
    yield version_editor()


def typed(widget: VersionEditor, text: str) -> str:
    """Put a text into the box and wait for what the editor says to it."""
    widget.controls["text"].value = text
    assert widget.wait()
    return widget._said


# A text becomes a workflow


def test_text_has_a_source_that_the_engine_can_read_as_long_as_its_workflow_lives() -> None:
    made = load(BEGUN)
    file = made.fn.__code__.co_filename
    linecache.checkcache(file)

    assert structure(made).calls[0] == "step 'quote'"
    assert file in linecache.cache
    del made
    gc.collect()
    assert file not in linecache.cache


def test_two_texts_of_one_wording_do_not_share_a_source() -> None:
    first, second = load(BEGUN), load(BEGUN)
    del first
    gc.collect()

    assert Engine(MemoryJournal(), [second]).orphans() == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def order(", "line 1"),
        ("x = 1", "it has no function order"),
        ("order = 1", "has to be a plain function"),
        ("async def order(ctx, item): pass", "has to be a plain function"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit", "SystemExit"),
        ("while True: pass", "doesn't come to an end"),
    ],
)
def test_text_that_is_no_workflow_says_why(text: str, why: str) -> None:
    with pytest.raises(EditError, match=why):
        load(text)
    assert why in judge(text).trouble


@pytest.mark.parametrize("body", ["\n    while True: pass", "\n    while True:\n        pass"])
def test_workflow_that_never_ends_is_stopped_and_tracing_is_as_before(body: str) -> None:
    before = sys.gettrace()

    assert judge(f"def order(ctx, item): {body}").trouble == "it doesn't come to an end"
    assert sys.gettrace() is before


def test_workflow_that_waits_for_time_or_for_somebody_else_is_judged() -> None:
    sleeps = BEGUN + "    ctx.sleep(60)\n"
    waits = BEGUN + '    ctx.wait_signal("godot")\n'

    assert [fate.words for fate in judge(sleeps).fates] == ["ends right"] * 4
    newcomer = judge(waits).newcomer
    assert newcomer is not None
    assert newcomer.words == "waits for signal 'godot'"


# The shop


def test_shop_drops_a_repeat_and_refuses_a_key_with_another_value() -> None:
    shop = Shop()
    shop.charge(40, idempotency_key="k")
    shop.charge(40, idempotency_key="k")

    assert shop.books == [Row("charge", 40)]
    with pytest.raises(ValueError, match="was used for charge 40, now for charge 45"):
        shop.charge(45, idempotency_key="k")
    shop.clear()
    shop.charge(45, idempotency_key="k")
    assert shop.books == [Row("charge", 45)]


# The prepared edits


def test_hash_refuses_these_edits_and_no_others(judged: dict[str, Judgement]) -> None:
    assert set(EDITS) - set(judged) == {UNDEPLOYABLE}
    assert {name for name, found in judged.items() if not found.accepted} == REFUSED


@pytest.mark.parametrize("name", ["nothing", "a comment", "a helper", "a patch"])
def test_edits_that_change_no_call_of_an_old_order_leave_it_right(name: str) -> None:
    assert set(fates(name).values()) == {"ends right"}


@pytest.mark.parametrize("name", ["a survey", "a shorthand"])
def test_false_alarms_are_refused_and_would_end_right(name: str) -> None:
    assert name in REFUSED
    assert set(fates(name).values()) == {"ends right"}


def test_hash_spares_an_order_in_its_crash_window_what_replay_cannot_see() -> None:
    assert fates("a new name")["o-3"] == "is charged twice"
    assert fates("a fraud check")["o-3"] == "check after charge"
    assert fates("a fraud check")["o-4"] == "stops at event 7"


def test_hash_and_replay_miss_a_body_that_speaks_of_cents() -> None:
    found = judge(EDITS["prices in cents"].text)
    o_2 = next(fate for fate in found.fates if fate.run_id == "o-2")

    assert found.accepted
    assert (o_2.verdict, o_2.words) == ("wrong", "is charged 0.4")
    assert o_2.books == (Row("reserve", "lamp"), Row("charge", 0.4), Row("receipt", 0.4))


def test_result_of_another_shape_needs_attention() -> None:
    assert set(fates("a currency").values()) == {"ends right", "needs attention: TypeError"}


def test_patch_gives_old_orders_their_old_calls_and_a_new_one_the_check() -> None:
    found = judge(EDITS["a patch"].text)

    assert found.now is not None
    assert found.fresh is not None
    assert found.now.hash == found.before.hash != found.fresh.hash
    assert found.newcomer is not None
    assert Row("check", "lamp") in found.newcomer.books
    assert all(Row("check", "lamp") not in fate.books for fate in found.fates)


def test_patch_inside_a_condition_cannot_be_deployed() -> None:
    found = judge(EDITS[UNDEPLOYABLE].text)

    assert "isn't the whole test of an if" in found.trouble
    assert (found.accepted, found.fates, found.newcomer) == (False, (), None)


def test_first_difference_is_told_with_its_place() -> None:
    found = judge(EDITS["a fraud check"].text)

    assert found.difference == (5, "effect 'charge'", "step 'check_fraud'")
    assert found.said.startswith(
        "Refused at durable call 5: recorded effect 'charge', now step 'check_fraud'. "
        "Without the hash: o-1 ends right"
    )
    assert judge(EDITS["a survey"].text).difference == (8, "nothing more", "step 'survey'")


def test_tally_counts_every_order_once(judged: dict[str, Judgement]) -> None:
    counts = tally(judged)

    assert sum(counts.values()) == len(judged) * len(IN_FLIGHT)
    assert counts[False, "right"] > counts[False, "wrong"] > 0 < counts[True, "wrong"]


def test_edit_that_finds_nothing_to_change_is_refused() -> None:
    with pytest.raises(ValueError, match="isn't once in the text"):
        versions._edited("nothing", ("no such line", ""))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BEGUN.replace('    ctx.effect("receipt", receipt, price)\n', ""), "ends right"),
        (BEGUN.replace("receipt, price", "receipt, price + (ctx.run_id == 'o-1')"), "is receipt"),
        (
            BEGUN.replace("price)\n    ctx.w", "price * (ctx.run_id == 'new'))\n    ctx.w"),
            "charged 0",
        ),
    ],
)
def test_wrong_books_are_told_in_words(text: str, words: str) -> None:
    assert words in " ".join(fate.words for fate in judge(text).fates)


# The life of a patch


def test_old_path_is_needed_until_the_last_order_from_before_has_ended() -> None:
    lives, stranded = patch_life({-2: 5, -1: 1, 1: 4})

    assert lives == [
        Life("day -2", -2, 3, False),
        Life("day -1", -1, 0, False),
        Life("day 1", 1, 5, True),
    ]
    assert stranded == {0: 1, 1: 1, 2: 1, 3: 0, 4: 0, 5: 0}


# The pictures


def test_diff_puts_what_went_before_what_came() -> None:
    assert [str(line.sign) for line in diff(["a", "b"], ["a", "c", "d"])] == [" ", "-", "+", "+"]


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_is_drawn_and_told(name: str) -> None:
    found = judge(EDITS[name].text)
    picture = editor_picture(found)

    assert picture.alt == found.said
    assert picture.png()[:4] == b"\x89PNG"


def test_same_text_gives_the_same_bytes() -> None:
    first, second = (editor_picture(judge(BEGUN)) for _ in range(2))

    assert first.png() == second.png()


def test_long_text_shows_its_first_change_and_grows_no_picture() -> None:
    short = editor_picture(judge(BEGUN)).figure.get_size_inches()
    text = BEGUN + '    ctx.step("survey", survey, item)\n' * 40
    long = editor_picture(judge(text))

    assert tuple(long.figure.get_size_inches()) == tuple(short)
    assert "durable call 8" in long.alt


def test_edits_picture_says_what_is_missed(judged: dict[str, Judgement]) -> None:
    picture = edits_picture(judged)

    assert "Refused by the hash: 20 orders; without it 13 end right" in picture.alt
    assert "prices in cents, o-2 is charged 0.4" in picture.alt
    assert picture.png()[:4] == b"\x89PNG"


def test_patch_life_picture_says_when_the_old_path_can_go() -> None:
    picture = patch_life_picture(*patch_life())

    assert picture.alt.startswith("A patch deployed on day 0 can go on day 8. 4 of 8 orders")
    assert "day 7: 1, day 8: 0" in picture.alt
    assert picture.png()[:4] == b"\x89PNG"


# The widget


def test_widget_opens_on_a_prepared_edit(widget: VersionEditor) -> None:
    assert widget.controls["text"].value == EDITS["a fraud check"].text
    assert widget._said.startswith("Refused at durable call 5")


def test_choosing_a_prepared_edit_fills_the_box(widget: VersionEditor) -> None:
    widget._menu.value = "a survey"
    assert widget.wait()

    assert widget.controls["text"].value == EDITS["a survey"].text
    assert widget._said.startswith("Refused at durable call 8")


def test_each_keystroke_is_judged_half_a_line_too(widget: VersionEditor) -> None:
    assert typed(widget, BEGUN + "    ctx.").startswith("Can't be deployed: line 14")
    assert typed(widget, BEGUN + "    ctx.now()\n").startswith("Refused at durable call 8")
    assert typed(widget, BEGUN).startswith("Accepted: the hash is the same")
