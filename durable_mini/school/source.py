"""Makes exercises out of solutions, and says what is wrong with a solution as a source.

    python -m durable_mini.school.source                # every exercise, from every solution
    python -m durable_mini.school.source check          # what has drifted, leaks or isn't in order

A solution notebook is the only source of an exercise. In an answer cell stands

    ### BEGIN SOLUTION
    ### STUB: raise NotImplementedError("the sum of a and b")
    return a + b
    ### END SOLUTION

of which the exercise has the STUB lines alone; what is between BEGIN and END HIDDEN TESTS it hasn't
got at all. Guarantees: the same solution gives the same bytes, without outputs and with a stamp of
the version; a file is replaced in one go. Leaves to others: executing solutions (`lab.notebooks`)
and grading (`grading`).
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from durable_mini.lab.course import source_folder
from durable_mini.lab.notebooks import NotANotebookError, find, read
from durable_mini.school.exercise import question_of
from durable_mini.school.writing import replace_file

STAMP = "durable_mini"
"""The key in a notebook's metadata under which an exercise says which one it is."""

_BEGIN = re.compile(r"^(\s*)### BEGIN (SOLUTION|HIDDEN TESTS)\s*$")
_END = re.compile(r"^\s*### END (SOLUTION|HIDDEN TESTS)\s*$")
_STUB = re.compile(r"^\s*### STUB: ?(.*)$")
_ASSIGNS = re.compile(r"^([A-Za-z_]\w*)\s*=[^=]")
_HIDDEN_NOTE = "# a hidden check: it runs when this notebook is graded"
_SOLUTION = "SOLUTION"
_OPENING = re.compile(r"^# (exercise|check): (\S+)$")
_POINTS = re.compile(r"""ex\.check\(\s*["']([^"']+)["'],\s*points=([\d.]+)\)""")


class SourceError(ValueError):
    """A solution that no exercise can be made of; it says which cell, and why."""


@dataclass(frozen=True, slots=True)
class Region:
    """Lines between two markers: `kind` is SOLUTION or HIDDEN TESTS, `start` the BEGIN line."""

    kind: str
    start: int
    end: int
    indent: str


# ---- roles of cells ----------------------------------------------------------------------------


def grade_id(cell: Any) -> str:
    """What nbgrader calls a cell; "" for one that it doesn't know."""
    return str(_about(cell).get("grade_id", ""))


def is_answer(cell: Any) -> bool:
    """Whether the learner writes here."""
    return bool(_about(cell).get("solution"))


def is_check(cell: Any) -> bool:
    """Whether a machine gives points here."""
    return bool(_about(cell).get("grade")) and not is_answer(cell)


def is_by_person(cell: Any) -> bool:
    """Whether a person gives points for what the learner writes here."""
    return bool(_about(cell).get("grade")) and is_answer(cell)


def points(cell: Any) -> float:
    """How many points a cell is worth."""
    return float(_about(cell).get("points", 0))


def is_hidden(cell: Any) -> bool:
    """Whether the exercise has this check as a blank: its `with` itself stands in the region."""
    regions = [region for region in regions_of(cell.source) if region.kind != _SOLUTION]
    lines = cell.source.splitlines()
    opened = next((n for n, line in enumerate(lines) if "ex.check(" in line), 0)
    return any(region.start < opened < region.end for region in regions)


def has_hidden_part(cell: Any) -> bool:
    """Whether the exercise shows this check without a part of it."""
    regions = [region for region in regions_of(cell.source) if region.kind != _SOLUTION]
    return bool(regions) and not is_hidden(cell)


def _about(cell: Any) -> Any:
    about = cell.metadata.get("nbgrader", {})
    return about if isinstance(about, dict) else {}


# ---- solution → exercise -----------------------------------------------------------------------


def regions_of(source: str) -> list[Region]:
    """The marked regions of a cell.

    Raises:
        SourceError: one is nested, not closed, or closed by another word.
    """
    found: list[Region] = []
    opened: tuple[str, int, str] | None = None
    for number, line in enumerate(source.splitlines()):
        if begin := _BEGIN.match(line):
            if opened is not None:
                raise SourceError(f"line {number + 1}: BEGIN {begin[2]} inside {opened[0]}")
            opened = begin[2], number, begin[1]
        elif end := _END.match(line):
            if opened is None or opened[0] != end[1]:
                raise SourceError(f"line {number + 1}: END {end[1]} without its BEGIN")
            found.append(Region(opened[0], opened[1], number, opened[2]))
            opened = None
        elif "### BEGIN" in line or "### END" in line:
            raise SourceError(f"line {number + 1}: a marker that nobody knows: {line.strip()}")
    if opened is not None:
        raise SourceError(f"line {opened[1] + 1}: BEGIN {opened[0]} is never closed")
    return found


def stub_of(source: str) -> str:
    """A cell's source as the exercise has it.

    Raises:
        SourceError: as `regions_of`.
    """
    lines = source.splitlines()
    for region in reversed(regions_of(source)):
        inside = lines[region.start + 1 : region.end]
        lines[region.start : region.end + 1] = [
            (region.indent + line).rstrip() for line in _replacement(region, inside)
        ]
    return "\n".join(lines)


def _replacement(region: Region, inside: Sequence[str]) -> list[str]:
    if region.kind != _SOLUTION:
        return [_HIDDEN_NOTE]
    if told := [stub[1] for line in inside if (stub := _STUB.match(line))]:
        return told
    if region.indent:
        return ['raise NotImplementedError("write this")']
    names = [assigned[1] for line in inside if (assigned := _ASSIGNS.match(line))]
    return [f"{name} = ..." for name in dict.fromkeys(names)] or ["# write this"]


def exercise_from(solution: Any, name: str) -> Any:
    """The exercise notebook of a solution notebook.

    Raises:
        SourceError: naming the cell.
    """
    exercise = deepcopy(solution)
    for number, cell in enumerate(exercise.cells, 1):
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        try:
            cell.source = stub_of(cell.source)
        except SourceError as error:
            raise SourceError(f"{name}, cell {number} ({cell.get('id')}): {error}") from None
    exercise.metadata[STAMP] = {"exercise": name, "version": version_of(solution)}
    return exercise


def version_of(solution: Any) -> str:
    """A fingerprint of the exercise as it is handed out: given cells, stubs and visible checks.

    Prose doesn't count, nor does what a teacher's own variant hides.
    """
    parts = [
        f"{grade_id(cell)}\n{points(cell)}\n{stub_of(cell.source)}"
        for cell in solution.cells
        if grade_id(cell)
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def exercise_text(path: Path) -> str:
    """The text of the exercise that a solution's file makes.

    Raises:
        SourceError, NotANotebookError: there is none.
    """
    return str(nbformat.writes(exercise_from(read(path), path.stem))).rstrip("\n") + "\n"


# ---- what is wrong with a source ---------------------------------------------------------------


def faults(path: Path, exercises: Path) -> Iterator[str]:
    """Everything about a solution that would make marks wrong, each in a line."""
    try:
        solution, text = read(path), exercise_text(path)
    except (SourceError, NotANotebookError) as error:
        yield str(error)
        return
    for number, cell in enumerate(solution.cells, 1):
        yield from (
            f"{path.name}, cell {number} ({cell.get('id')}): {fault}"
            for fault in _cell_faults(cell)
        )
    names = Counter(grade_id(cell) for cell in solution.cells if grade_id(cell))
    yield from (f"{path.name}: {name!r} stands there twice" for name in names if names[name] > 1)
    asked = {question_of(grade_id(cell)) for cell in solution.cells if is_answer(cell)}
    checks = {question_of(grade_id(cell)) for cell in solution.cells if is_check(cell)}
    yield from (f"{path.name}: question {name!r} has no answer cell" for name in checks - asked)
    yield from (f"{path.name}: leaks {line!r}" for line in _leaks(solution, text))
    written = exercises / path.name
    if not written.exists() or written.read_text(encoding="utf-8") != text:
        yield f"{written.name}: the exercise isn't what its solution makes. Next: {_COMMAND}"


_COMMAND = "python -m durable_mini.school.source"


def _cell_faults(cell: Any) -> Iterator[str]:
    name, first = grade_id(cell), _OPENING.match(cell.source.partition("\n")[0])
    if name and name != cell.get("id"):
        yield f"its id isn't its grade_id {name!r}"
    if cell.cell_type != "code":
        return
    if not name and not is_by_person(cell):
        yield "has no role: neither given, answer nor check"
    role = "check" if is_check(cell) else "exercise" if is_answer(cell) else ""
    if role and (first is None or (first[1], first[2]) != (role, name)):
        yield f"doesn't begin with `# {role}: {name}`"
    if not role and (first is not None or regions_of(cell.source)):
        yield "is marked as an answer or a check, and its metadata says that it's given"
    if is_check(cell):
        yield from _check_faults(cell, name)


def _check_faults(cell: Any, name: str) -> Iterator[str]:
    told = _POINTS.findall(cell.source)
    if [(check, float(worth)) for check, worth in told] != [(name, points(cell))]:
        yield f'isn\'t exactly one `with ex.check("{name}", points={points(cell):g})`'
    wanted = f"{name}: {points(cell):g} point{'s' * (points(cell) != 1)}\n"
    printed = [(out.get("name"), out.get("text")) for out in cell.outputs]
    if cell.execution_count is None or printed != [("stdout", wanted)]:
        yield f"didn't print {wanted!r}. Next: python -m durable_mini.lab.notebooks build"
    if any(region.kind == _SOLUTION for region in regions_of(cell.source)):
        yield "is a check with a solution in it"


def _leaks(solution: Any, text: str) -> Iterator[str]:
    """Lines of solutions and hidden checks that the exercise has all the same."""
    kept = {
        line.strip() for cell in nbformat.reads(text, 4).cells for line in cell.source.splitlines()
    }
    for cell in solution.cells:
        lines = cell.source.splitlines()
        for region in regions_of(cell.source) if cell.cell_type == "code" else ():
            for line in lines[region.start + 1 : region.end]:
                if len(line.strip()) > _SHORT and line.strip() in kept and is_check(cell):
                    yield line.strip()
    if "### BEGIN" in text or "### END" in text or "### STUB" in text:
        yield "a marker"


_SHORT = 30  # a line of that length may stand elsewhere by chance


# ---- the command -------------------------------------------------------------------------------


def solutions_folder() -> Path:
    """The published solutions: the clone's, or those that a wheel carries."""
    return source_folder() / "solutions"


def exercises_folder() -> Path:
    """The exercises, in the same place."""
    return source_folder() / "exercises"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns: 0 done, 1 a fault was found, 2 wrong use."""
    parser = argparse.ArgumentParser(
        prog=_COMMAND, description="Make the exercises out of the solutions, or check them."
    )
    parser.add_argument("command", nargs="?", choices=["make", "check"], default="make")
    parser.add_argument("--solutions", type=Path, default=solutions_folder())
    parser.add_argument("--exercises", type=Path, default=exercises_folder())
    options = parser.parse_args(arguments)
    try:
        paths = find([options.solutions])
        if options.command == "check":
            return _report([fault for path in paths for fault in faults(path, options.exercises)])
        options.exercises.mkdir(exist_ok=True)
        for path in paths:
            replace_file(options.exercises / path.name, exercise_text(path), mode=0o644)
    except (SourceError, NotANotebookError, OSError) as error:
        print(f"source: {error}", file=sys.stderr)
        return 2
    print(f"{len(paths)} exercises")
    return 0


def _report(found: Sequence[str]) -> int:
    print("\n".join(found) or "all exercises are what their solutions make")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
