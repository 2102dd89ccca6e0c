"""A school that runs nbgrader can: the real one makes the exercise and marks it, unchanged.

Skipped where nbgrader isn't installed; it is no dependency.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
import pytest
import school_class
import small_exercise

from durable_mini.school import source

pytest.importorskip("nbgrader", reason="nbgrader is not installed: pip install nbgrader")
pytestmark = pytest.mark.slow

NAME = small_exercise.NAME
SOLUTIONS = sorted((Path(__file__).resolve().parent.parent / "solutions").glob("*.ipynb"))


def nbgrader(folder: Path, *arguments: str) -> None:
    """Run one command of nbgrader in a course folder of its own, with nobody's settings."""
    profile = folder / "profile"
    apart = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    environment = {**os.environ, **{name: str(profile / name) for name in apart}}
    environment["HOME"] = str(profile)
    here = Path(sys.executable).parent  # nbgrader calls alembic by its bare name
    environment["PATH"] = os.pathsep.join([str(here), os.environ["PATH"]])
    command = [sys.executable, "-m", "nbgrader", *arguments, f"--course-dir={folder}"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course whose one assignment is the small exercise; three students have handed in."""
    folder = tmp_path_factory.mktemp("course")
    solution = small_exercise.solution()
    for cell in solution.cells:  # nbgrader has no reference to ask: see the teachers' page
        cell.source = cell.source.replace('ex.reference("add", a, b)', "a + b")
    school_class.published(solution, folder / "source" / "small", NAME)
    nbgrader(folder, "generate_assignment", "small", "--create")
    released = nbformat.read(folder / "release" / "small" / f"{NAME}.ipynb", 4)
    for student, notebook in _work(solution, released).items():
        path = folder / "submitted" / student / "small" / f"{NAME}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)
    nbgrader(folder, "autograde", "small", "--create")
    return folder


def _work(solution: Any, released: Any) -> dict[str, Any]:
    right = school_class.answered(solution, NAME)
    wrong = deepcopy(right)
    wrong.cells[2].source = "# exercise: q1-add\ndef add(a, b):\n    return 5"
    return {"right": right, "wrong": wrong, "released": released}


def points(course: Path, student: str) -> dict[str, float]:
    """What nbgrader's own gradebook says, by check."""
    return {check: earned for check, (earned, _) in marks(course, student).items()}


def marks(course: Path, student: str) -> dict[str, tuple[float, float]]:
    """The same, with what each check is worth."""
    rows = """
        SELECT base_cell.name, grade.auto_score, grade_cells.max_score FROM grade
        JOIN base_cell ON base_cell.id = grade.cell_id
        JOIN grade_cells ON grade_cells.id = grade.cell_id
        JOIN submitted_notebook ON submitted_notebook.id = grade.notebook_id
        JOIN submitted_assignment ON submitted_assignment.id = submitted_notebook.assignment_id
        WHERE submitted_assignment.student_id = ?
    """
    with sqlite3.connect(course / "gradebook.db") as book:
        return {name: (earned, most) for name, earned, most in book.execute(rows, (student,))}


def test_right_answers_earn_what_the_exercise_is_worth(course: Path) -> None:
    assert points(course, "right") == {
        "q1-add-two": 1.0,
        "q1-add-drawn": 2.0,
        "q2-labels-all": 1.0,
        "q3-pay-resumed": 1.0,
        "q3-pay-everywhere": 4.0,
    }


def test_what_is_handed_out_earns_nothing(course: Path) -> None:
    assert set(points(course, "released").values()) == {0.0}


def test_hidden_check_is_put_back_and_catches_what_the_visible_one_lets_through(
    course: Path,
) -> None:
    earned = points(course, "wrong")
    assert (earned["q1-add-two"], earned["q1-add-drawn"]) == (1.0, 0.0)


def test_released_notebook_tells_no_solution_and_no_hidden_check(course: Path) -> None:
    text = (course / "release" / "small" / f"{NAME}.ipynb").read_text(encoding="utf-8")
    assert not any(told in text for told in ("return a + b", "rng.randint", "SOLUTION", "HIDDEN"))
    assert json.loads(text)["nbformat"] == 4


AUTOGRADED = "02_replay"
"""Of the published ones; all are released, one is enough to be marked at every test."""


def published_course(folder: Path, exercises: Sequence[str]) -> None:
    """Release every published solution, and have the right answers to some of them marked."""
    (folder / "source" / "course").mkdir(parents=True)
    submitted = folder / "submitted" / "right" / "course"
    submitted.mkdir(parents=True)
    for path in SOLUTIONS:
        shutil.copy(path, folder / "source" / "course")
        if path.stem in exercises:
            solution = nbformat.read(path, 4)
            nbformat.write(school_class.answered(solution, path.stem), submitted / path.name)
    nbgrader(folder, "generate_assignment", "course", "--create")
    nbgrader(folder, "autograde", "course", "--create")


def test_every_published_solution_is_released_and_one_is_marked_in_full(tmp_path: Path) -> None:
    published_course(tmp_path, [AUTOGRADED])

    released = sorted((tmp_path / "release" / "course").glob("*.ipynb"))
    assert [path.name for path in released] == [path.name for path in SOLUTIONS]
    for path in released:
        text = path.read_text(encoding="utf-8")
        assert not any(marker in text for marker in ("BEGIN SOLUTION", "BEGIN HIDDEN")), path.name
    checks = [cell for cell in nbformat.read(released[1], 4).cells if source.is_check(cell)]
    earned = marks(tmp_path, "right")
    told = {check: pair for check, pair in earned.items() if pair[0]}
    assert {source.grade_id(cell) for cell in checks} == set(told)
    assert all(points == most for points, most in told.values())
