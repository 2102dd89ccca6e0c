"""What honest people's notebooks look like: whatever saved them, all that was solved counts."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grading_support as support
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from durable_mini.school import grading, source, submissions


def cell_of(notebook: Any, name: str) -> Any:
    return next(cell for cell in notebook.cells if cell.id == name)


def _with(name: str, before: str = "", after: str = "") -> Callable[[Any], None]:
    def change(notebook: Any) -> None:
        cell = cell_of(notebook, name)
        head, _, rest = cell.source.partition("\n")
        cell.source = f"{head}\n{before}\n{rest}\n{after}"

    return change


def _debug_cells(notebook: Any) -> None:
    for place in (1, 4, len(notebook.cells)):
        notebook.cells.insert(place, new_code_cell("print(add(1, 2))\n1 / 0"))
    notebook.cells.insert(2, new_code_cell("%matplotlib inline\n!pip list\nadd?"))


def _split(notebook: Any) -> None:
    """As JupyterLab splits a cell: both halves have its metadata, one of them its id."""
    at = notebook.cells.index(cell_of(notebook, "q3-pay"))
    head, _, tail = notebook.cells[at].source.partition("\n\n\n")
    second = copy.deepcopy(notebook.cells[at])
    second.id, second.source, notebook.cells[at].source = "d41d8cd9", tail, head
    notebook.cells.insert(at + 1, second)


def _helper_in_a_cell_of_its_own(notebook: Any) -> None:
    cell_of(
        notebook, "q1-add"
    ).source = "# exercise: q1-add\ndef add(a, b):\n    return total([a, b])"
    at = notebook.cells.index(cell_of(notebook, "q1-add"))
    notebook.cells.insert(at, new_code_cell("def total(numbers):\n    return sum(numbers)"))


def _run(notebook: Any) -> None:
    """Executed, out of order, with outputs and warnings in them."""
    for count, cell in enumerate(notebook.cells, 3):
        if cell.cell_type == "code":
            cell.execution_count = 100 - count
            cell.outputs = [new_output("stream", name="stderr", text="DeprecationWarning: old")]


def _vs_code(notebook: Any) -> None:
    """VS Code keeps metadata, gives new ids and adds its own."""
    for number, cell in enumerate(notebook.cells):
        cell.id = f"{number:08x}"
        cell.metadata["vscode"] = {"languageId": "python"}
    notebook.metadata["language_info"] = {"name": "python", "version": "3.12.1"}


def _colab(notebook: Any) -> None:
    """Colab moves ids into the metadata, and keeps little else."""
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({"id": cell.id, "colab": {"base_uri": "https://x"}})
        del cell["id"]
    notebook.metadata = nbformat.from_dict({"colab": {"provenance": []}, "kernelspec": {}})
    notebook.nbformat_minor = 0


def _lost_everything_but_the_first_lines(notebook: Any) -> None:
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"{number:08x}", nbformat.from_dict({})
    notebook.metadata = nbformat.from_dict({})


def _lost_the_first_lines(notebook: Any) -> None:
    for cell in notebook.cells:
        cell.source = cell.source.removeprefix(f"# exercise: {cell.id}\n")


def _old_format(notebook: Any) -> bytes:
    return nbformat.writes(nbformat.convert(notebook, 3)).encode()


def _format_4_4(notebook: Any) -> None:
    for cell in notebook.cells:
        del cell["id"]
    notebook.nbformat_minor = 4


def _byte_order_mark(notebook: Any) -> bytes:
    return b"\xef\xbb\xbf" + json.dumps(notebook).encode()


def _sources_in_lists(notebook: Any) -> bytes:
    for cell in notebook.cells:
        cell.source = cell.source.splitlines(keepends=True)
    return json.dumps(notebook).encode()


def _shuffled_prose(notebook: Any) -> None:
    notebook.cells.insert(0, new_markdown_cell("My notes: # exercise: q1-add\n\n# check: q1"))
    notebook.cells.append(new_markdown_cell("# check: q1-add-two"))


def _deleted_given_and_checks(notebook: Any) -> None:
    kept = [cell for cell in notebook.cells if source.is_answer(cell)]
    notebook.cells = kept


HONEST: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda _: None,
    "a stray print": _with("q1-add", "print('loading', flush=True)", "print(add(1, 1))"),
    "a print in an answer": _with("q3-pay", after="print(charge, pay)\nworld.look_up('o-1')"),
    "prints from a thread": _with(
        "q2-labels", "import threading\nthreading.Thread(target=print, args=('late',)).start()"
    ),
    "a warning": _with("q1-add", "import warnings\nwarnings.warn('deprecated', stacklevel=1)"),
    "standard error": _with("q1-add", "import sys\nprint('hm', file=sys.stderr)"),
    "logging": _with("q1-add", "import logging\nlogging.error('hm')"),
    "much output": _with("q1-add", "for _ in range(50): print('x' * 100_000)"),
    "a comment for nbval": _with("q1-add", "# NBVAL_SKIP\n# NBVAL_IGNORE_OUTPUT"),
    "magic in an answer": _with("q1-add", "%load_ext autoreload\nfiles = !ls", "%time add(1, 2)"),
    "imports": _with("q1-add", "import json, collections, dataclasses, typing, decimal"),
    "a dataclass": _with(
        "q1-add", "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 1\nP(2)"
    ),
    "future annotations": _with("q3-pay", "from __future__ import annotations"),
    "debug cells that fail": _debug_cells,
    "a split cell": _split,
    "a helper in a cell of its own": _helper_in_a_cell_of_its_own,
    "executed out of order": _run,
    "saved by VS Code": _vs_code,
    "saved by Colab": _colab,
    "ids and metadata lost": _lost_everything_but_the_first_lines,
    "first lines lost": _lost_the_first_lines,
    "format 3": _old_format,
    "format 4.4": _format_4_4,
    "a byte-order mark": _byte_order_mark,
    "sources in lists": _sources_in_lists,
    "prose that talks of cells": _shuffled_prose,
    "given cells and checks deleted": _deleted_given_and_checks,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_honest_notebook_gets_full_marks(name: str, tmp_path: Path) -> None:
    notebook = support.handed_in()
    changed = HONEST[name](notebook)
    path = tmp_path / "handed_in.ipynb"
    path.write_bytes(changed or json.dumps(notebook).encode())

    points, said = support.points_of(submissions.read(path))

    assert (sum(points.values()), said) == (support.FULL, {})


# ---- what is said of them ----------------------------------------------------------------------


def notes_of(notebook: Any, tmp_path: Path) -> list[str]:
    return submissions.match(support.sheet_of(notebook, tmp_path), support.solution()).notes


def test_split_cell_is_told(tmp_path: Path) -> None:
    notebook = support.handed_in()
    _split(notebook)

    assert notes_of(notebook, tmp_path) == [
        "Cell q3-pay stands there in 2 pieces; all were run, in order."
    ]


def test_changed_check_is_told_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    notebook = support.handed_in()
    assert notes_of(notebook, tmp_path) == []
    cell_of(notebook, "q1-add-two").source += "\npass"

    assert notes_of(notebook, tmp_path) == [
        "A check cell was changed: q1-add-two. The original was run."
    ]


def test_answer_that_was_turned_into_text_is_told(tmp_path: Path) -> None:
    notebook = support.handed_in()
    at = notebook.cells.index(cell_of(notebook, "q1-add"))
    notebook.cells[at] = new_markdown_cell(notebook.cells[at].source)

    assert notes_of(notebook, tmp_path) == [
        "Cell q1-add was turned into text, and counts as empty."
    ]


def test_answers_that_lost_points_come_from_the_reference_and_the_others_stay_the_student_s(
    tmp_path: Path,
) -> None:
    notebook = support.handed_in({"q1-add": "1 / 0", "q2-labels": "2 / 0", "q3-pay": "3 / 0"})
    matched = submissions.match(support.sheet_of(notebook, tmp_path), support.solution())

    cells = grading.cells_of(support.reference(), matched, {"q1"})

    assert [(cell.id, cell.source[:5]) for cell in cells] == [
        ("tools", "from "),
        ("q1-add", "# exe"),
        ("q2-labels", "2 / 0"),
        ("q3-pay", "3 / 0"),
    ]


def test_question_is_looked_at_again_only_with_answers_that_lost_points(tmp_path: Path) -> None:
    matched = submissions.match(support.sheet_of(support.handed_in(), tmp_path), support.solution())
    full = {cell.id: source.points(cell) for cell in support.reference().checks}

    def again(*missed: str) -> dict[str, set[str]]:
        lost = {name: 0.0 for name in full if source.question_of(name) in missed}
        checked = grading.Checked(marks=full | lost)
        return grading._worth_another_look(support.reference(), matched, checked)

    assert again("q3") == {}
    assert again("q1", "q3") == {"q3": {"q1"}}
    assert again("q1", "q2", "q3") == {"q2": {"q1"}, "q3": {"q1", "q2"}}


# ---- finding them ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "student", "exercise"),
    [
        ("Ann Lee_12345_assignsubmission_file_02_replay.ipynb", "Ann Lee", "02_replay"),
        ("Ann Lee_12345_assignsubmission_file_/02_replay.ipynb", "Ann Lee", "02_replay"),
        ("leeann_LATE_12_34_03_keys-2.ipynb", "leeann", "03_keys"),
        ("leeann_12_34_06_fraud_check.ipynb", "leeann", "06_fraud_check"),
        ("E_leeann_attempt_2026-01-31-10-00-00_03_keys.ipynb", "leeann", "03_keys"),
        ("ada/03_keys.ipynb", "ada", "03_keys"),
        ("03_keys_ada.ipynb", "ada", "03_keys"),
        ("03_keys (1).ipynb", "", "03_keys"),
        ("03_keys.ipynb", "", "03_keys"),
        ("exercises/03_keys.ipynb", "", "03_keys"),
        ("O'Neill, <b>Zoë/homework 03_keys.ipynb", "O'Neill, <b>Zoë", "03_keys"),
    ],
)
def test_student_and_exercise_are_read_from_the_name(
    name: str, student: str, exercise: str, tmp_path: Path
) -> None:
    path = tmp_path / "class" / name
    path.parent.mkdir(parents=True)
    path.write_text("{}", encoding="utf-8")

    (found,) = submissions.find([tmp_path / "class"], tmp_path)

    assert (found.shown, found.student, found.exercise) == (name, student, exercise)


def test_later_attempt_sorts_behind(tmp_path: Path) -> None:
    for name in ("03_keys (10)", "03_keys (9)", "03_keys"):
        (tmp_path / f"{name}.ipynb").write_text("{}", encoding="utf-8")

    found = sorted(submissions.find([tmp_path], tmp_path), key=lambda one: one.attempt)

    assert [one.shown for one in found] == [
        "03_keys.ipynb",
        "03_keys (9).ipynb",
        "03_keys (10).ipynb",
    ]


def test_what_is_no_notebook_has_a_row_and_what_is_hidden_has_none(tmp_path: Path) -> None:
    handed = tmp_path / "handed"
    for name in (".git/x", ".ipynb_checkpoints/a.ipynb", "__MACOSX/b.ipynb", "report.pdf"):
        (handed / name).parent.mkdir(parents=True, exist_ok=True)
        (handed / name).write_text("x", encoding="utf-8")

    found = submissions.find([handed], tmp_path)

    assert [(one.shown, bool(one.trouble)) for one in found] == [("report.pdf", True)]


@pytest.mark.parametrize("held", ["nothing", "no such path"])
def test_path_that_holds_nothing_is_refused_in_one_line(held: str, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()

    with pytest.raises(submissions.HandInError) as refused:
        submissions.find([tmp_path / held], tmp_path)

    assert "\n" not in str(refused.value)
