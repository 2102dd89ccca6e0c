"""Every exercise, as it is handed out and as it is solved, through the real grader."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_mini.lab.exercises import EXERCISES
from durable_mini.school import grading, source, submissions
from durable_mini.school.marks import Submission

pytestmark = pytest.mark.slow
SEED = 20_27


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Submission]:
    folders = source.exercises_folder(), source.solutions_folder()
    paths = [folder / f"{name}.ipynb" for folder in folders for name in EXERCISES]
    hand_ins = submissions.find(paths, tmp_path_factory.mktemp("unpacked"))
    return dict(zip(paths, grading.grade_all(hand_ins, seed=SEED), strict=True))


@pytest.mark.parametrize("name", EXERCISES)
def test_stub_earns_nothing(name: str, graded: dict[Path, Submission]) -> None:
    stub = graded[source.exercises_folder() / f"{name}.ipynb"]
    assert (stub.graded, stub.exercise, stub.points) == (True, name, 0)


@pytest.mark.parametrize("name", EXERCISES)
def test_solution_earns_all_that_a_machine_marks(name: str, graded: dict[Path, Submission]) -> None:
    solution = graded[source.solutions_folder() / f"{name}.ipynb"]
    worth = 100 if name == "11_capstone" else 10
    assert (solution.exercise, solution.max_points) == (name, worth)
    assert [one for one in solution.checks if one.note and not one.by_person] == []
    assert solution.points == solution.machine_points == (6 if name == "12_memo" else worth)
