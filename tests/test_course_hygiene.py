"""Every committed chapter is in normal form and holds nothing that a page trips over."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_mini.lab import notebooks

COURSE = Path(__file__).resolve().parent.parent / "course"
CHAPTERS = sorted(COURSE.rglob("*.ipynb"))


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_is_clean(chapter: Path) -> None:
    assert [str(fault) for fault in notebooks.check(chapter)] == []


def test_first_chapter_is_where_the_course_command_opens_it() -> None:
    assert COURSE / "00_start_here.ipynb" in CHAPTERS


def test_cell_ids_are_unique_over_the_course() -> None:
    """A link or a question may name a cell by its id alone within its chapter."""
    for chapter in CHAPTERS:
        ids = [cell.id for cell in notebooks.read(chapter).cells]
        assert len(ids) == len(set(ids)), chapter
