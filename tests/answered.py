"""What an exercise's checks say to given answers, on the backend that a notebook has.

Guarantees: the cells of the solution are executed in order in one namespace, with the answer cells
replaced as asked, and nothing is displayed. Leaves to others: grading for real.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from durable_mini.lab import notebooks
from durable_mini.school import exercise, source

SOLUTIONS = Path(__file__).resolve().parent.parent / "solutions"


def checked(
    name: str,
    answers: Mapping[str, str] | None = None,
    *,
    stubs: bool = False,
    skip: Callable[[Any], bool] = lambda cell: False,
) -> dict[str, tuple[float, str]]:
    """For each check its points, or 0 and why; `answers` replaces answer cells by their ids.

    Args:
        name: the exercise.
        answers: sources by the id of the cell.
        stubs: every other answer is the stub instead of the solution.
        skip: cells that aren't executed, to save time.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    executed: list[str] = []
    marks = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exercise, "backend_for", lambda _: exercise.Here(names, lambda: executed))
        for cell in notebooks.read(SOLUTIONS / f"{name}.ipynb").cells:
            if cell.cell_type != "code" or skip(cell):
                continue
            text = (answers or {}).get(cell.id)
            if text is None:
                stub = stubs and source.is_answer(cell)
                text = source.stub_of(cell.source) if stub else cell.source
            executed.append(text)
            said = _executed(text, cell.id, names, strict=source.is_check(cell))
            if source.is_check(cell):
                marks[cell.id] = (0.0 if said else source.points(cell), said)
    return marks


def _executed(text: str, cell_id: str, names: dict[str, Any], *, strict: bool) -> str:
    """What a check missed; a given cell may fail where a wrong answer lets it."""
    file = f"<{cell_id} {id(names)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    try:
        with redirect_stdout(StringIO()):
            exec(compile(text, file, "exec"), names)
    except exercise.Missed as missed:
        return str(missed)
    except Exception:
        if strict:
            raise
    return ""
