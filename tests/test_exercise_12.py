"""Exercise 12: plausible wrong answers lose what they should, for the reason given."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest
from answered import SOLUTIONS, checked

from durable_mini.lab import notebooks
from durable_mini.school import grading, source
from durable_mini.school.marks import HandIn

NAME = "12_memo"


class Wrong(NamedTuple):
    """An answer that somebody might well give.

    Attributes:
        what: in a few words.
        cell: the answer cell that it replaces.
        text: what stands there.
        lost: the checks that it doesn't pass.
        reason: words of what the first of them says.
    """

    what: str
    cell: str
    text: str
    lost: tuple[str, ...]
    reason: str


RIGHT = {
    "welcome": ("queue", 5),
    "thumbnails": ("queue", 5),
    "research": ("library", 4),
    "refunds": ("library", 1),
    "trips": ("library", 2),
    "claims": ("server", 1),
}


def _decided(**changed: tuple[str, int]) -> str:
    return f"decided = {RIGHT | changed}"


FORM = """
from math import expm1, log, sqrt

def break_even_h(deaths_per_h, step_h, write_h, upkeep_h):
    {how}
"""

QUEUE = ("queue", 5)
WRONG = [
    Wrong(
        "by the crash rate alone",
        "a-decide",
        _decided(thumbnails=("library", 4), refunds=QUEUE, trips=QUEUE, claims=QUEUE),
        ("a-short", "a-waits"),
        "deaths per attempt, not deaths per day",
    ),
    Wrong(
        "by the length of the work alone",
        "a-decide",
        _decided(refunds=QUEUE, trips=QUEUE),
        ("a-short", "a-waits"),
        "Effects that belong together decide",
    ),
    Wrong(
        "a short job with a two-day approval goes on the queue",
        "a-decide",
        _decided(refunds=QUEUE),
        ("a-waits",),
        "the wait decides, not the deaths",
    ),
    Wrong(
        "a library for five teams and three languages",
        "a-decide",
        _decided(claims=("library", 1)),
        ("a-waits",),
        "three languages don't share a library",
    ),
    Wrong(
        "retries carry a job of six hours",
        "a-decide",
        _decided(research=QUEUE),
        ("a-long",),
        "with it all its hours",
    ),
    Wrong(
        "the right engine, for the crash rate's sake",
        "a-decide",
        _decided(refunds=("library", 4)),
        ("a-waits",),
        "the wait decides, not the deaths",
    ),
    Wrong(
        "the rule of thumb",
        "b-break-even",
        FORM.format(how="return sqrt(2 * upkeep_h / deaths_per_h) if deaths_per_h else None"),
        ("b-drawn", "b-ends"),
        "The engine's own bill counts too",
    ),
    Wrong(
        "a death loses the whole job, on an engine nothing",
        "b-break-even",
        FORM.format(how="return sqrt(upkeep_h / deaths_per_h) if deaths_per_h else None"),
        ("b-four-a-day", "b-drawn", "b-ends"),
        "Half a job for each death",
    ),
    Wrong(
        "no records, and no step done again",
        "b-break-even",
        FORM.format(
            how="""if not deaths_per_h: return None
    work_h = step_h
    while expm1(min(700, deaths_per_h * work_h)) / deaths_per_h < work_h + upkeep_h:
        work_h *= 1.001
    return work_h"""
        ),
        ("b-drawn",),
        "The engine's own bill counts too",
    ),
    Wrong(
        "the square, with the records",
        "b-break-even",
        FORM.format(
            how="""if not deaths_per_h: return None
    b = deaths_per_h * step_h / 2 + write_h / step_h
    return (b + sqrt(b * b + 2 * deaths_per_h * upkeep_h)) / deaths_per_h"""
        ),
        ("b-drawn", "b-ends"),
        "The engine's own bill counts too",
    ),
    Wrong(
        "a number where the engine never wins",
        "b-break-even",
        """
def break_even_h(deaths_per_h, step_h, write_h, upkeep_h, own=break_even_h):
    return own(deaths_per_h, step_h, write_h, upkeep_h) or 0.0
""",
        ("b-ends",),
        "an engine has nothing to save",
    ),
]


@pytest.mark.parametrize("wrong", WRONG, ids=[wrong.what for wrong in WRONG])
def test_wrong_answer_loses_its_points_for_the_reason(wrong: Wrong) -> None:
    marks = checked(NAME, {wrong.cell: _text(wrong)})
    lost = {check: said for check, (points, said) in marks.items() if not points}
    assert set(lost) == set(wrong.lost), lost
    assert wrong.reason in lost[wrong.lost[0]]


def test_solution_has_every_point_that_a_machine_gives() -> None:
    marks = checked(NAME)
    assert [points for points, _ in marks.values()] == [1.0] * 6


def test_tempting_answers_pass_the_visible_checks() -> None:
    cells = notebooks.read(SOLUTIONS / f"{NAME}.ipynb").cells
    hidden = {cell.id for cell in cells if source.is_check(cell) and source.is_hidden(cell)}
    for what in ("by the crash rate alone", "the rule of thumb"):
        (wrong,) = (wrong for wrong in WRONG if wrong.what == what)
        assert set(wrong.lost) <= hidden


@pytest.mark.slow
def test_memo_is_marked_by_a_person_and_its_rubric_goes_along(tmp_path: Path) -> None:
    """The two tempting answers for real, and a memo that is handed in with them."""
    tempting = {"by the crash rate alone", "the rule of thumb"}
    answers = {wrong.cell: _text(wrong) for wrong in WRONG if wrong.what in tempting}
    solution = notebooks.read(SOLUTIONS / f"{NAME}.ipynb")
    exercise, path = source.exercise_from(solution, NAME), tmp_path / f"{NAME}.ipynb"
    for cell in exercise.cells:
        cell.source = answers.get(cell.id, cell.source)
        if cell.id == "c-memo":
            cell.source = "We take nothing. PostgreSQL stays."
    nbformat.write(exercise, path)
    (graded,) = grading.grade_all([HandIn(path, path.name, "ann", NAME)], seed=7)
    points = {check.name: (check.points, check.by_person) for check in graded.checks}
    assert points["c-memo"] == (0.0, True)
    assert {name for name, (given, _) in points.items() if given} == {"a-long", "b-four-a-day"}
    (rubric,) = graded.rubrics
    assert rubric.answer == "We take nothing. PostgreSQL stays."
    assert rubric.max_points == 4.0
    assert "Versioning" in rubric.rubric


def _text(wrong: Wrong) -> str:
    """The answer cell as it would stand there; one answer builds on the right one."""
    own = f"# exercise: {wrong.cell}\n"
    if "own=" in wrong.text:
        cells = notebooks.read(SOLUTIONS / f"{NAME}.ipynb").cells
        return next(cell.source for cell in cells if cell.id == wrong.cell) + "\n" + wrong.text
    return own + wrong.text
