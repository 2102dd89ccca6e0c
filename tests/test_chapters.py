"""The map of the course says what the notebooks say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from durable_mini.lab import notebooks
from durable_mini.lab.chapters import (
    CHAPTERS,
    ROUTES,
    Chapter,
    chapters_table,
    duration,
    routes_table,
)

COURSE = Path(__file__).resolve().parent.parent / "course"


def test_map_has_every_notebook_of_the_course() -> None:
    assert {chapter.file for chapter in CHAPTERS} == {path.name for path in COURSE.glob("*.ipynb")}


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)
def test_chapter_states_the_minutes_of_the_map(chapter: Chapter) -> None:
    first = notebooks.read(COURSE / chapter.file).cells[0].source

    assert re.findall(r"(\d+)\s+minutes", first) == [str(chapter.minutes)]


def test_every_link_of_the_tables_leads_to_a_notebook() -> None:
    for table in (chapters_table(), routes_table()):
        targets = re.findall(r"\]\(([^)]+)\)", table)
        assert targets
        assert all((COURSE / target).is_file() for target in targets)


def test_route_takes_as_long_as_its_chapters() -> None:
    for route in ROUTES:
        assert set(route.chapters) <= set(CHAPTERS)
        assert route.minutes == sum(chapter.minutes for chapter in route.chapters)
        assert duration(route.minutes) in routes_table()


@pytest.mark.parametrize(
    ("minutes", "said"), [(10, "10 min"), (60, "1 h 00 min"), (165, "2 h 45 min")]
)
def test_duration_is_said_in_hours_and_minutes(minutes: int, said: str) -> None:
    assert duration(minutes) == said
