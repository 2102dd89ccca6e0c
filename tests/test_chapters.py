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
    titles_on_map,
)

COURSE = Path(__file__).resolve().parent.parent / "course"


def test_map_has_every_notebook_of_the_course() -> None:
    assert {chapter.file for chapter in CHAPTERS} == {path.name for path in COURSE.glob("*.ipynb")}


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)
def test_chapter_states_the_minutes_of_the_map(chapter: Chapter) -> None:
    first = notebooks.read(COURSE / chapter.file).cells[0].source

    assert re.findall(r"(\d+)\s+minutes", first) == [str(chapter.minutes)]


@pytest.mark.parametrize("chapter", CHAPTERS[:-1], ids=lambda chapter: chapter.name)
def test_chapter_asks_in_its_title_what_the_map_says(chapter: Chapter) -> None:
    title = notebooks.read(COURSE / chapter.file).cells[0].source.splitlines()[0]

    assert chapter.question.split(". ")[-1].lower() in title.lower()


def test_every_link_of_the_tables_leads_to_a_notebook() -> None:
    for table in (chapters_table(), routes_table()):
        targets = re.findall(r"\]\(([^)]+)\)", table)
        assert targets
        assert all((COURSE / target).is_file() for target in targets)


def test_drawn_map_has_every_numbered_chapter_once() -> None:
    numbered = [chapter.name for chapter in CHAPTERS if chapter.name[0].isdigit()]

    titles = [title.replace(" ", "_") for title in titles_on_map().values()]
    assert sorted(titles) == numbered


def test_routes_end_with_the_whole_course() -> None:
    names = [route.name for route in ROUTES]

    assert names == ["tomorrow", "decide", "all"]
    assert ROUTES[-1].chapters == CHAPTERS


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
