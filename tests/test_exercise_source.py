"""Exercises come from solutions: what is left out, what is stamped, and each fault of a source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grading_support as support
import nbformat
import pytest
import small_exercise

from durable_mini.lab import notebooks
from durable_mini.school import source

NAME = f"{small_exercise.NAME}.ipynb"


@pytest.mark.parametrize(
    ("solution", "stub"),
    [
        ("x = 1\n### BEGIN SOLUTION\nx = 2\n### END SOLUTION\nx", "x = 1\nx = ...\nx"),
        (
            "def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION",
            'def f():\n    raise NotImplementedError("write this")',
        ),
        (
            "def f():\n    ### BEGIN SOLUTION\n    ### STUB: a = ...  # say what\n"
            "    ### STUB:\n    ### STUB:     b\n    a = 1\n    ### END SOLUTION\n    return a",
            "def f():\n    a = ...  # say what\n\n        b\n    return a",
        ),
        ("### BEGIN SOLUTION\nprint()\n### END SOLUTION", "# write this"),
        (
            "# check: q1\n### BEGIN HIDDEN TESTS\nassert 1\n### END HIDDEN TESTS",
            "# check: q1\n# a hidden check: it runs when this notebook is graded",
        ),
        ("no\nmarkers", "no\nmarkers"),
    ],
)
def test_stub_has_what_the_markers_say(solution: str, stub: str) -> None:
    assert source.stub_of(solution) == stub


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("### BEGIN SOLUTION\nx = 1", "line 1: BEGIN SOLUTION is never closed"),
        ("x = 1\n### END SOLUTION", "line 2: END SOLUTION without its BEGIN"),
        (
            "### BEGIN SOLUTION\n### BEGIN HIDDEN TESTS\n",
            "line 2: BEGIN HIDDEN TESTS inside SOLUTION",
        ),
        ("### BEGIN SOLUTION\n### END HIDDEN TESTS", "line 2: END HIDDEN TESTS without its BEGIN"),
        ("### BEGIN SOLUTIONS\n", "line 1: a marker that nobody knows: ### BEGIN SOLUTIONS"),
        ("#### END SOLUTION\n", "line 1: a marker that nobody knows: #### END SOLUTION"),
    ],
)
def test_marker_that_is_wrong_is_named_with_its_line(text: str, fault: str) -> None:
    with pytest.raises(source.SourceError, match=fault):
        source.stub_of(text)


# ---- a notebook --------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with the small solution, and one with its exercise."""
    solutions, exercises = tmp_path / "solutions", tmp_path / "exercises"
    solutions.mkdir()
    solution = nbformat.reads(nbformat.writes(support.solution()), 4)
    (solutions / NAME).write_text(notebooks.normalise(solution), encoding="utf-8")
    return solutions, exercises


def run(command: str, folders: tuple[Path, Path]) -> int:
    options = ["--solutions", str(folders[0]), "--exercises", str(folders[1])]
    return source.main([command, *options])


def test_exercise_is_made_alike_twice_and_holds_no_outputs(folders: tuple[Path, Path]) -> None:
    assert run("make", folders) == 0
    first = (folders[1] / NAME).read_bytes()
    assert run("make", folders) == 0
    assert (folders[1] / NAME).read_bytes() == first

    exercise = json.loads(first)
    assert all(not cell.get("outputs") for cell in exercise["cells"])
    assert exercise["metadata"]["durable_mini"]["exercise"] == small_exercise.NAME
    assert b"a + b" not in first
    assert b"Any two numbers have a sum" not in first
    assert b"### " not in first


def test_exercise_as_made_has_no_fault(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run("make", folders)

    assert run("check", folders) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("all exercises are")


def _edit(name: str, change: Callable[[Any], None]) -> Callable[[Any], None]:
    def edit(notebook: Any) -> None:
        change(next(cell for cell in notebook.cells if cell.id == name))

    return edit


def _points(cell: Any) -> None:
    cell.metadata["nbgrader"]["points"] = 3


def _unrun(cell: Any) -> None:
    cell.execution_count, cell.outputs = None, []


def _nameless(cell: Any) -> None:
    cell.source = cell.source.partition("\n")[2]


def _unmarked(cell: Any) -> None:
    cell.metadata = {}


def _prints_more(cell: Any) -> None:
    cell.outputs[0].text += "seed 7\n"


def _given(cell: Any) -> None:
    cell.metadata["nbgrader"]["solution"] = False


FAULTS = {
    "other points than its metadata": (_edit("q1-add-two", _points), "isn't exactly one"),
    "never executed": (_edit("q1-add-two", _unrun), "didn't print 'q1-add-two: 1 point\\n'"),
    "prints what differs": (_edit("q1-add-two", _prints_more), "didn't print"),
    "no first line": (_edit("q1-add", _nameless), "doesn't begin with `# exercise: q1-add`"),
    "no role": (_edit("q1-add", _unmarked), "has no role"),
    "an answer that is given": (_edit("q2-labels", _given), "its metadata says that it's given"),
    "a question without an answer": (
        lambda notebook: notebook.cells.pop(5),
        "question 'q2' has no answer cell",
    ),
    "an id twice": (
        _edit("q2-labels", lambda cell: cell.metadata["nbgrader"].update(grade_id="q1-add")),
        "'q1-add' stands there twice",
    ),
    "a marker left open": (
        _edit("q1-add", lambda cell: setattr(cell, "source", cell.source[:-20])),
        "BEGIN SOLUTION",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_of_a_source_is_told(
    name: str, folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    change, fault = FAULTS[name]
    path = folders[0] / NAME
    notebook = nbformat.read(path, 4)
    change(notebook)
    path.write_text(json.dumps(notebook), encoding="utf-8")

    assert run("check", folders) == 1
    assert fault in capsys.readouterr().out


def test_exercise_that_was_edited_has_drifted(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run("make", folders)
    path = folders[1] / NAME
    path.write_text(path.read_text("utf-8").replace("the sum of", "a sum of"), encoding="utf-8")

    assert run("check", folders) == 1
    assert "isn't what its solution makes" in capsys.readouterr().out


def test_version_changes_with_what_was_handed_out_and_with_nothing_else() -> None:
    def version(**changes: str) -> str:
        notebook = nbformat.reads(nbformat.writes(support.solution()), 4)
        for cell in notebook.cells:
            cell.source = changes.get(cell.id.replace("-", "_"), cell.source)
        return source.version_of(notebook)

    hidden = small_exercise.ADD_DRAWN.replace("-99, 99", "-9, 9")
    solved = small_exercise.ADD.replace("a + b", "b + a")
    given = small_exercise.TOOLS + "\nmore = 1"

    assert version(small="# Another title", q1_add_drawn=hidden, q1_add=solved) == version()
    assert version(tools=given) != version()


# ---- the exercises of the course ---------------------------------------------------------------


def test_exercises_of_the_course_are_what_their_solutions_make(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert source.main(["check"]) == 0, capsys.readouterr().out
