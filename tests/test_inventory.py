"""The inventory of chapter 00: true answers, nothing ticked, nothing told before it is asked."""

from __future__ import annotations

from typing import Any

import pytest

from durable_mini.lab import inventory as module
from durable_mini.lab.inventory import INVENTORY, Inventory, Item

ITEM = Item("Is it so?", ("yes", "no <b>"), "no <b>", "Because & therefore.", "02")


@pytest.mark.parametrize("item", INVENTORY, ids=lambda item: item.truth)
def test_inventory_item_has_its_truth_among_different_options(item: Item) -> None:
    assert item.truth in item.options
    assert len(set(item.options)) == len(item.options) >= 2
    assert item.chapter in {"02", "03", "04"}


def test_inventory_covers_every_chapter_that_teaches() -> None:
    assert {item.chapter for item in INVENTORY} == {"02", "03", "04"}


def test_truth_stands_at_every_place() -> None:
    """Ticking always the first, or always the longest, must not do."""
    places = [item.options.index(item.truth) for item in INVENTORY]
    assert {0, 1, 2} == set(places)
    assert max(places.count(place) for place in set(places)) <= len(places) // 2


def test_computed_figures_are_those_of_the_closed_form() -> None:
    chance = next(item for item in INVENTORY if "crashes somewhere" in item.question)

    assert chance.truth == f"{100 * (1 - 0.92**7):.0f} %"
    assert chance.options == ("8 %", "44 %", "56 %")


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


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The bundles that a cell would have displayed."""
    bundles: list[dict[str, Any]] = []
    monkeypatch.setattr(module, "show_bundle", lambda data, metadata=None: bundles.append(data))
    return bundles
