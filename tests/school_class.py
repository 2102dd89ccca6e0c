"""A class that hands in: good work, half of it, and everything that has ever come in a zip file.

`make` writes the files and the roster; each student is one kind of trouble, and `KINDS` says what
has to come of it. Nothing here outlives its submission by design: what should be stopped tries to
stay.

python tests/school_class.py FOLDER SOLUTIONS... [--students 40]   # by hand, on real exercises
"""

from __future__ import annotations

import argparse
import csv
import json
import zipfile
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from durable_mini.school import source

Edit = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Student:
    """Who handed in what, and whether the whole of it counts."""

    name: str
    kind: str
    file: str


def published(solution: Any, folder: Path, name: str) -> Path:
    """Write a solution with the outputs that executing it gives: what each check prints.

    It saves a kernel. Were it wrong, right answers would earn nothing.
    """
    for number, cell in enumerate(filter(is_code, solution.cells), 1):
        cell.execution_count = number
        if source.is_check(cell):
            points = source.points(cell)
            text = f"{source.grade_id(cell)}: {points:g} point{'' if points == 1 else 's'}\n"
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(solution, folder / f"{name}.ipynb")
    return folder / f"{name}.ipynb"


def is_code(cell: Any) -> bool:
    """Whether it can be executed."""
    return bool(cell.cell_type == "code")


# ---- a notebook as a student would hand it in --------------------------------------------------


def stub_of(solution: Any, name: str) -> Any:
    """The exercise that is handed out."""
    return source.exercise_from(deepcopy(solution), name)


def answered(solution: Any, name: str, edit: Edit = lambda notebook: None) -> Any:
    """The exercise with the right answers in it, then spoilt by `edit`."""
    right = {
        source.grade_id(cell): cell.source for cell in solution.cells if source.is_answer(cell)
    }
    notebook = stub_of(solution, name)
    for cell in filter(source.is_answer, notebook.cells):
        lines = right[source.grade_id(cell)].splitlines()
        cell.source = "\n".join(line for line in lines if not line.strip().startswith("### "))
    edit(notebook)
    return notebook


def answers_of(notebook: Any) -> list[Any]:
    """Its answer cells, those with code."""
    return [cell for cell in notebook.cells if is_code(cell) and source.is_answer(cell)]


def spoilt(code: str, which: int = -1) -> Edit:
    """Add a line to an answer; it runs when the answer is executed."""

    def edit(notebook: Any) -> None:
        answers = answers_of(notebook)
        if answers:
            answers[which].source += f"\n{code}"

    return edit


def _unanswered(notebook: Any) -> None:
    last = answers_of(notebook)[-1]
    last.source = f"# exercise: {source.grade_id(last)}\npass"


def _rotten(notebook: Any) -> None:
    answers_of(notebook)[-1].source = "def ("


LEFT_BEHIND = (
    "import subprocess, sys\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)  # left-behind'], "
    "start_new_session=True)"
)
SWALLOWS = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"

# What is done to right answers, by kind of student.
EDITS: dict[str, Edit] = {
    "good": lambda notebook: None,
    "partial": _unanswered,
    "syntax": _rotten,
    "loop": spoilt("while True: pass"),
    "stubborn loop": spoilt(SWALLOWS),
    "dead": spoilt("import os; os._exit(0)"),
    "killed": spoilt("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
    "memory": spoilt("hog = []\nwhile True: hog.append(bytearray(10_000_000))"),
    "flood": spoilt("print('x' * 50_000_000)"),
    "recursion": spoilt("def down(): down()\ndown()"),
    "left behind": spoilt(LEFT_BEHIND),
    "printing": spoilt("import warnings\nwarnings.warn('careful')\nprint('debug')", 0),
}

# What needs no notebook: bytes as they come.
_RAW: dict[str, tuple[str, bytes]] = {
    "broken": (".ipynb", b'{"cells": [{"cell_type": "code", "sou'),
    "empty": (".ipynb", b""),
    "list": (".ipynb", b"[1, 2, 3]"),
    "binary": (".ipynb", bytes(range(256)) * 50),
    "word": (".docx", b"PK\x03\x04 not really"),
    "python": (".py", b"def add(a, b):\n    return a + b\n"),
    "deep": (".ipynb", b"[" * 200_000),
}

KINDS = (*EDITS, "stub", *_RAW)
FULL = frozenset({"good", "printing", "left behind"})
UNREADABLE = frozenset(_RAW)

# Names that a table, a page, a shell or a file system might trip over.
NAMES = (
    "Ada Lovelace",
    "<script>alert(1)<script>",
    '=HYPERLINK("x")',
    'O\'Neill "Zoë"',
    "; rm -rf $HOME",
    "@SUM(1+1)",
    "李雷",
    "-2+3",
    "a\tb",
    "{{ 7 * 7 }}",
    "%s%n",
    "Renée du Pré, Jr.",
)


def names(count: int) -> list[str]:
    """As many names, the odd ones first."""
    return [*NAMES, *(f"student {number:02}" for number in range(count))][:count]


def make(folder: Path, solutions: Sequence[Path], kinds: Sequence[str]) -> list[Student]:
    """Write `folder/class/<student>/<exercise>` for each kind, `class.csv`, and one more missing.

    Args:
        solutions: executed notebooks; the students are dealt them in turn.
    """
    students = []
    read = [(path.stem, nbformat.read(path, 4)) for path in solutions]
    for number, (name, kind) in enumerate(zip(names(len(kinds)), kinds, strict=True)):
        exercise, solution = read[number % len(read)]
        students.append(_hand_in(folder / "class", name, kind, exercise, solution))
    with (folder / "class.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["student"], *([each.name] for each in students), ["missing"]])
    return students


def _hand_in(folder: Path, name: str, kind: str, exercise: str, solution: Any) -> Student:
    suffix, raw = _RAW.get(kind, (".ipynb", b""))
    if kind not in _RAW:
        stub = kind == "stub"
        notebook = (
            stub_of(solution, exercise) if stub else answered(solution, exercise, EDITS[kind])
        )
        raw = nbformat.writes(notebook).encode()
    path = folder / name / f"{exercise}{suffix}"
    path.parent.mkdir(parents=True)
    path.write_bytes(raw)
    return Student(name, kind, f"{name}/{path.name}")


def zipped(folder: Path, archive: Path) -> Path:
    """The folder as a learning platform gives it away."""
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(folder).as_posix())
    return archive


def main() -> None:
    """Write a large class on real exercises, for a grading by hand."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("solutions", type=Path, nargs="+")
    parser.add_argument("--students", type=int, default=40)
    given = parser.parse_args()
    trouble = [kind for kind in KINDS if kind not in FULL]
    good = ["good"] * (given.students - len(trouble) - len(FULL))
    kinds = (*good, *sorted(FULL), *trouble)[: given.students]
    made = make(given.folder, given.solutions, kinds)
    print(json.dumps({each.file: each.kind for each in made}, indent=2))


if __name__ == "__main__":
    main()
