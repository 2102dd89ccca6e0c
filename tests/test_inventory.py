"""The inventory of chapter 00: true answers, nothing ticked, told or kept before it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from durable_mini.lab import inventory as module
from durable_mini.lab.chapters import CHAPTERS
from durable_mini.lab.inventory import INVENTORY, Inventory, Item
from durable_mini.lab.progress import ProgressFile
from durable_mini.lab.theory import exact

ITEM = Item("Is it so?", ("yes", "no <b>"), "no <b>", "Because & therefore.", "02")


@pytest.mark.parametrize("item", INVENTORY, ids=lambda item: item.truth)
def test_inventory_item_has_its_truth_among_different_options(item: Item) -> None:
    assert item.truth in item.options
    assert len(set(item.options)) == len(item.options) >= 2


def test_inventory_has_fifteen_items_from_every_chapter_that_teaches() -> None:
    teaching = {chapter.name[:2] for chapter in CHAPTERS} - {"00", "01", "on", "qu"}

    assert len(INVENTORY) == len({item.question for item in INVENTORY}) == 15
    assert {item.chapter for item in INVENTORY} == teaching


def test_truth_stands_at_every_place() -> None:
    """Ticking always the first, or always the longest, must not do."""
    places = [item.options.index(item.truth) for item in INVENTORY]
    assert {0, 1, 2} == set(places)
    assert max(places.count(place) for place in set(places)) <= len(places) // 2


def test_computed_figures_are_those_of_the_closed_form() -> None:
    chance = next(item for item in INVENTORY if "crashes somewhere" in item.question)

    assert chance.truth == f"{100 * (1 - 0.92**7):.0f} %"
    assert chance.options == ("8 %", "44 %", "56 %")


def test_bound_on_what_a_test_has_shown_is_the_rule_of_three() -> None:
    repeats = round(exact("journal", 0.08, 400).duplicates.mean)

    assert f"about {300 / repeats:.0f} %" in INVENTORY[-1].truth
    assert f"was sent {repeats} repeats" in INVENTORY[-1].question


def test_nothing_is_ticked_and_no_truth_is_told_at_first(shown: list[dict[str, Any]]) -> None:
    asked = Inventory()
    asked._ipython_display_()

    assert asked.ticked == (None,) * len(INVENTORY)
    (bundle,) = shown
    assert "text/html" in bundle
    assert "<details><summary>" in bundle["text/html"]
    assert INVENTORY[0].why not in bundle["text/plain"]
    assert INVENTORY[0].why not in asked._truths.value


def test_button_tells_the_truth_beside_what_was_ticked() -> None:
    asked = Inventory([ITEM, ITEM])
    asked._ticked[0].value, asked._ticked[1].value = "yes", "no <b>"
    asked._button.click()

    assert asked.right == 1
    told = asked._truths.value
    assert "1 of 2 right" in told
    assert "You ticked <em>yes</em>" in told
    assert told.count("You ticked") == 1
    assert "no &lt;b&gt;" in told
    assert "Because &amp; therefore." in told


def test_unticked_question_is_told_without_a_reproach() -> None:
    asked = Inventory([ITEM])
    asked._button.click()

    assert asked.right == 0
    assert "You ticked" not in asked._truths.value


# ---- the count ---------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> ProgressFile:
    return ProgressFile(tmp_path / "progress.json")


def counted(file: ProgressFile, *said: str, after: bool = False) -> str:
    """Tick what is said, question by question, count, and return what the page tells."""
    asked = Inventory([ITEM, ITEM], after=after, file=file)
    for buttons, option in zip(asked._ticked, said, strict=False):
        buttons.value = option
    asked.count_button.click()
    assert asked._truths.value == ""  # a count gives no answer away
    return str(asked._counted.value)


def test_count_before_the_course_is_kept(file: ProgressFile) -> None:
    assert "1 of 2 right. That is kept: it is where you began." in counted(file, "yes", "no <b>")
    assert "2 of 2 right. Kept is your first count, 1 of 2." in counted(file, "no <b>", "no <b>")


def test_count_after_the_course_is_set_beside_the_beginning(file: ProgressFile) -> None:
    counted(file, "no <b>")

    told = counted(file, "no <b>", "no <b>", after=True)
    assert "2 of 2 right. Where you began: 1 of 2, now 2." in told


def test_nothing_is_kept_unless_the_count_is_asked_for(file: ProgressFile) -> None:
    asked = Inventory([ITEM], file=file)
    asked._ticked[0].value = "yes"
    asked._button.click()

    assert not file.path.exists()


def test_second_time_the_page_without_a_kernel_points_back(shown: list[dict[str, Any]]) -> None:
    Inventory(after=True)._ipython_display_()

    assert shown[0]["text/plain"] == "The same 15 questions as above."


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The bundles that a cell would have displayed."""
    bundles: list[dict[str, Any]] = []
    monkeypatch.setattr(module, "show_bundle", lambda data, metadata=None: bundles.append(data))
    return bundles
