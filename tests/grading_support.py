"""Notebooks as students hand them in, and their checks without nbval around them.

`points_of` lets the checks of the small exercise judge answers that run in processes of their own,
as when a notebook is graded, but in the test's process: a fraction of a second instead of several.
`handed_in` is a notebook; `graded` grades many in one go, with kernels and nbval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import nbformat
import pytest
import small_exercise
from nbformat.v4 import new_output

from durable_mini.school import exercise, grading, source, submissions
from durable_mini.school.child import OWN, Away, Order
from durable_mini.school.driving import scratch_folder
from durable_mini.school.marks import Submission

SEED = 7
ANSWERS = {
    "q1-add": "# exercise: q1-add\ndef add(a, b):\n    return a + b",
    "q2-labels": '# exercise: q2-labels\nlabels = {"charge": "effect", "plan": "step"}',
    "q3-pay": source.stub_of(small_exercise.PAY)
    .replace(
        'raise NotImplementedError("charge 40 for the order, under its key")',
        "return world.charge(order, 40, idempotency_key=idempotency_key)",
    )
    .replace(
        'raise NotImplementedError("charge the card, once")',
        'receipt = ctx.effect("charge", charge, order)',
    ),
}
FULL = 9.0


@cache
def solution() -> Any:
    """The small exercise's solution, with the outputs that executing it gives."""
    notebook = small_exercise.solution()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for count, cell in enumerate(code, 1):
        cell.execution_count = count
        if source.is_check(cell):
            worth = source.points(cell)
            text = f"{cell.id}: {worth:g} point{'s' * (worth != 1)}\n"
            cell.outputs = [new_output("stream", name="stdout", text=text)]
    return notebook


def reference() -> grading.Reference:
    """The same as what submissions are graded against."""
    return grading.Reference(small_exercise.NAME, solution(), Path("90_small.ipynb"))


def handed_in(answers: Mapping[str, str] = ANSWERS) -> Any:
    """The exercise with these answers written into it; others stay stubs."""
    notebook = source.exercise_from(solution(), small_exercise.NAME)
    for cell in notebook.cells:
        cell.source = answers.get(cell.id, cell.source)
    return notebook


def sheet_of(notebook: Any, folder: Path) -> submissions.Sheet:
    """A notebook as the grader reads it."""
    path = folder / "handed_in.ipynb"
    nbformat.write(notebook, path)
    return submissions.read(path)


@contextmanager
def away(
    sheet: submissions.Sheet, *, cell_timeout_s: float = 2.0, notes: str = ""
) -> Iterator[tuple[exercise.Exercise, list[int]]]:
    """An `Exercise` whose answers live in processes, and the number of the cell that asks."""
    matched = submissions.match(sheet, solution())
    own, here = grading.cells_of(reference(), matched), [99]
    told = grading.cells_of_solution(reference())
    with scratch_folder() as folder, pytest.MonkeyPatch.context() as patch:
        order = Order({OWN: own}, told, SEED, cell_timeout_s, notes, [], folder)
        apart = Away(order, lambda: here[0])
        patch.setattr(exercise, "backend_for", lambda _: apart)
        try:
            yield exercise.Exercise(small_exercise.NAME), here
        finally:
            apart.close()


def points_of(
    sheet: submissions.Sheet, *, cell_timeout_s: float = 2.0
) -> tuple[dict[str, float], dict[str, str]]:
    """What the checks give, and what they say where they give nothing."""
    points, said = dict[str, float](), dict[str, str]()
    with away(sheet, cell_timeout_s=cell_timeout_s) as (ex, here):
        for number, cell in enumerate(reference().code):
            if not source.is_check(cell):
                continue
            here[0], printed = number, StringIO()
            try:
                with redirect_stdout(printed):
                    exec(compile(cell.source, cell.id, "exec"), {"ex": ex})
            except exercise.Missed as missed:
                said[cell.id] = str(missed)
            holds = printed.getvalue() == cell.outputs[0].text
            points[cell.id] = source.points(cell) if holds else 0.0
    return points, said


def graded(notebooks: Mapping[str, Any], folder: Path, **how: Any) -> dict[str, Submission]:
    """Grade notebooks, or files of other contents given as bytes, all at once; by their names."""
    solutions, handed = folder / "solutions", folder / "handed"
    for made in (solutions, handed, folder / "scratch"):
        made.mkdir()
    nbformat.write(solution(), solutions / f"{small_exercise.NAME}.ipynb")
    for name, notebook in notebooks.items():
        if isinstance(notebook, bytes):
            (handed / name).write_bytes(notebook)
        else:
            nbformat.write(notebook, handed / name)
    found = submissions.find([handed], folder / "scratch")
    done = grading.grade_all(found, **{"reference": solutions, "seed": SEED, **how})
    return {one.path: one for one in done}
