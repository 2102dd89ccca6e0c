"""The crash at the charge, seen from three places: nine stories, and the step-through over them."""

from __future__ import annotations

import pytest

from durable_mini import Position
from durable_mini.lab.theory import STRATEGIES
from durable_mini.lab.window import POSITIONS, Story, crash_explorer, crash_story

NINE = [(position, strategy) for position in POSITIONS for strategy in STRATEGIES]


def dead(story: Story) -> list[int]:
    """Where in a story the process is dead."""
    return [place for place, scene in enumerate(story.scenes) if scene.moment.memory is None]


@pytest.mark.parametrize(("position", "strategy"), NINE)
def test_story_dies_once_and_ends_with_the_charges_of_its_ledger(
    position: Position, strategy: str
) -> None:
    story = crash_story(position, strategy)

    last = story.scenes[-1].moment
    assert len(dead(story)) == 1
    assert sum(row.startswith("charge") for row in last.ledger) == story.charges
    assert len(last.duplicates) == story.charges - 1
    assert last.title == "Attempt 2 completes the run"


def test_charge_is_booked_twice_where_work_is_repeated_and_no_key_is_honoured() -> None:
    twice = {(str(p), s) for p, s in NINE if crash_story(p, s).charges == 2}

    assert twice == {("window", "restart"), ("after", "restart"), ("window", "journal")}


def test_key_leaves_the_execution_as_it_was() -> None:
    ignored, honoured = crash_story("window", "journal"), crash_story("window", "journal+key")

    assert (ignored.executions, ignored.charges) == (2, 2)
    assert (honoured.executions, honoured.charges) == (2, 1)


@pytest.mark.parametrize("position", POSITIONS)
def test_starting_over_pays_the_llm_again_and_a_journal_does_not(position: Position) -> None:
    assert crash_story(position, "restart").llm_cost == 14.0
    assert crash_story(position, "journal").llm_cost == 8.0


def test_crash_takes_the_memory_and_leaves_journal_and_ledger() -> None:
    story = crash_story("window", "journal")

    (place,) = dead(story)
    before, after = story.scenes[place - 1].moment, story.scenes[place].moment
    assert before.memory is not None
    assert before.memory[-1].split() == ["charge", "executed,", "not", "recorded"]
    assert (after.journal, after.ledger) == (before.journal, before.ledger)
    assert not any("charge" in row for row in after.journal)
    assert any("charge" in row for row in after.ledger)


def test_second_attempt_holds_what_replay_handed_out() -> None:
    story = crash_story("after", "journal")

    resumed = story.scenes[dead(story)[0] + 1].moment
    assert resumed.memory is not None
    assert [row.split() for row in resumed.memory] == [
        [name, "replayed"] for name in ("plan", "research", "draft", "charge")
    ]


@pytest.mark.parametrize("position", POSITIONS)
def test_strategy_without_a_journal_shows_none(position: Position) -> None:
    assert {scene.moment.journal for scene in crash_story(position, "restart").scenes} == {()}


def test_unknown_strategy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="restart, journal, journal"):
        crash_story("window", "hope")


def test_explorer_opens_at_the_second_booking_and_follows_its_choices() -> None:
    explorer = crash_explorer()

    assert "booked again" in explorer._said
    explorer.controls["strategy"].value = "journal+key"
    assert explorer.wait()
    assert "books nothing" in explorer._said
