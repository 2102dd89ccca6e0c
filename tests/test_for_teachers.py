"""The teachers' page: every command on it is run, in its order, and does what the page says."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import school_class
import small_exercise

from durable_mini import cli
from durable_mini.school import grading
from durable_mini.school.marks import CheckMark, HandIn, Submission
from durable_mini.school.reports import CHANGES, GRADEBOOK, GRADES, JUNIT, PAGES, SIMILAR, TOTALS

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "course" / "for_teachers.md").read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


def test_page_names_every_file_of_a_grading() -> None:
    table = re.findall(r"^\| `([^`]+)` \|", PAGE, flags=re.MULTILINE)
    assert set(table) == {GRADES, TOTALS, GRADEBOOK, f"{PAGES}/", SIMILAR, JUNIT}
    assert CHANGES in PAGE


def test_page_is_one_page() -> None:
    assert len(PAGE.split()) < 1_100
    assert len(COMMANDS) == 6


def test_no_published_check_asks_for_a_reference_which_nbgrader_has_not_got() -> None:
    asking = [
        path.name
        for path in (ROOT / "solutions").glob("*.ipynb")
        if "ex.reference" in path.read_text(encoding="utf-8")
    ]
    assert asking == []


@pytest.mark.slow
def test_every_command_does_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for the marks alone; earning them takes longer, and has its own tests."""
    solution = school_class.published(
        small_exercise.solution(), tmp_path / "solutions", small_exercise.NAME
    )
    school_class.make(tmp_path, [solution], ["good", "partial"])
    (tmp_path / "class").rename(tmp_path / "handed-in")
    monkeypatch.setattr(grading, "grade_all", _one_point_each)
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        _run(shlex.split(command))

    assert (tmp_path / "hand-out" / solution.name).is_file()
    assert _rows(tmp_path / "results-2" / CHANGES) == []  # the same class, the same seed
    assert [(row["student"], row["points"]) for row in _rows(tmp_path / "results" / GRADEBOOK)] == [
        ("<script>alert(1)<script>", "1"),
        ("Ada Lovelace", "1"),
        ("missing", "0"),
    ]
    blind = "".join(each.read_text(encoding="utf-8") for each in (tmp_path / "blind").rglob("*.*"))
    assert "Lovelace" not in blind
    for folder in ("results", "blind"):
        assert len(list((tmp_path / folder / PAGES).glob("*.html"))) == 3


def _one_point_each(hand_ins: Sequence[HandIn], **_: Any) -> list[Submission]:
    check = CheckMark("q1-add-two", "q1", 1.0, 9.0)
    return [Submission(each.shown, each.student, each.exercise, (check,)) for each in hand_ins]


def _run(words: list[str]) -> None:
    """Run a command of the page in the current folder; our own one here, where marks stand in."""
    if words[0] == "durable-mini":
        assert cli.main(words[1:]) == 0, words
        return
    if words[0] == "python":
        words = [sys.executable, *words[1:]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{words}\n{done.stderr}"


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
