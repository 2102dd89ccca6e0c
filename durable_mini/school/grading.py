"""Marks: each notebook's answers in processes of their own, its checks under nbval.

What is executed is made of the reference alone: its given cells and its checks, with the outputs
that its author committed. Of the notebook that was handed in only the answers are taken, and those
go to processes that the checks ask (`child`). A check has its points when nbval finds nothing wrong
with its cell, and for no other reason.

Guarantees: one file that can't be used is one row; the same files with the same seed give the same
marks, unless an answer draws lots; a question is marked with the student's own answers to the
earlier ones, or with the reference's to those of them that lost a point, whichever gives more; when
it ends, also by Ctrl-C, no process and no file is left.
Leaves to others: finding files (`submissions`), tables and pages (`reports`), who belongs to a
class (`roster`).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from typing import Any
from xml.etree import ElementTree

import nbformat
import psutil
from nbformat.v4 import new_code_cell, new_notebook

from durable_mini.lab.notebooks import read as read_notebook
from durable_mini.school import confinement, source, submissions
from durable_mini.school.child import OWN, Cell, Order
from durable_mini.school.driving import SCRATCH_PREFIX, scratch_folder
from durable_mini.school.exercise import question_of
from durable_mini.school.marks import (
    Chain,
    CheckMark,
    HandIn,
    Limit,
    Rubric,
    SetAside,
    Submission,
    ungraded,
)

CHECKS_ONLY = "checks-only"
"""The tag of a given cell that answers have no use for, such as a picture."""

_OTHER_VERSION = (
    "This file was made from another version of the exercise, and graded against the present one."
)
_MOST_PRINTED = 2_000
# Wall-clock time decides nothing: these only end what hangs although nothing in it should.
_CELL_S, _PASS_S = 900.0, 1_800.0
_ADDRESS, _SCRATCH = re.compile(r"0x[0-9a-fA-F]{6,}"), re.compile(rf"\S*/{SCRATCH_PREFIX}[\w-]+")
_PYTEST = (
    "from durable_mini.school.confinement import harden; harden(); "
    "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
)


# ---- references --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """A solution: what a submission is graded against."""

    name: str
    notebook: Any
    path: Path

    @property
    def code(self) -> list[Any]:
        """Its code cells, in order."""
        return [cell for cell in self.notebook.cells if cell.cell_type == "code"]

    @property
    def checks(self) -> list[Any]:
        """The cells that give points, a machine's or a person's."""
        cells = self.notebook.cells
        return [cell for cell in cells if source.is_check(cell) or source.is_by_person(cell)]

    @cached_property
    def names(self) -> set[str]:
        """The ids of its cells."""
        return {source.grade_id(cell) for cell in self.notebook.cells} - {""}

    @cached_property
    def version(self) -> str:
        """The fingerprint that its exercise is stamped with."""
        return source.version_of(self.notebook)


@cache
def _references(folder: Path) -> dict[str, Reference]:
    paths = sorted(folder.glob("*.ipynb"))
    return {path.stem: Reference(path.stem, read_notebook(path), path) for path in paths}


def references(folder: Path | None) -> dict[str, Reference]:
    """The solutions by exercise; where a folder of one's own has none, the published one.

    Raises:
        NotANotebookError: one of them can't be read.
        ValueError: the folder holds none.
    """
    published = _references(source.solutions_folder())
    if folder is None:
        return published
    own = _references(folder.resolve())
    if not own:
        raise ValueError(f"{folder}: there is no solution in it. Next: name a folder of notebooks.")
    return published | own


def exercise_points(reference: Path | None = None) -> dict[str, float]:
    """What each exercise is worth."""
    return {
        name: sum(map(source.points, one.checks)) for name, one in references(reference).items()
    }


def reference_answers(reference: Path | None = None) -> dict[str, dict[str, str]]:
    """The answers of each solution, by id."""
    return {
        name: {source.grade_id(cell): cell.source for cell in one.code if source.is_answer(cell)}
        for name, one in references(reference).items()
    }


def stub_answers(reference: Path | None = None) -> dict[str, dict[str, str]]:
    """What was handed out of each answer, by id."""
    return {
        name: {answer: source.stub_of(text) for answer, text in answers.items()}
        for name, answers in reference_answers(reference).items()
    }


def is_reference(path: Path) -> bool:
    """Whether a file is one of the published solutions."""
    return path.resolve().parent == source.solutions_folder().resolve()


# ---- a class -----------------------------------------------------------------------------------


def grade_all(
    hand_ins: Sequence[HandIn],
    *,
    reference: Path | None = None,
    seed: int = 0,
    cell_timeout_s: float = 5.0,
    workers: int | None = None,
    progress: Callable[[Submission], None] | None = None,
) -> list[Submission]:
    """Grade files side by side.

    Args:
        hand_ins: the files.
        reference: a folder of solutions to grade against; the published ones by default.
        seed: of the inputs that hidden checks draw.
        cell_timeout_s: seconds of processor time that one answer, or one call of it, may take.
        workers: how many are graded at once; one a core by default.
        progress: called with each as it is done, in any order, from this thread.

    Returns:
        What each earned, in the order of `hand_ins`.

    Raises:
        KeyboardInterrupt: of whoever stops it; no process is left then.
    """
    known, limits = references(reference), _limits()
    job = _Job(known, seed, cell_timeout_s, limits)
    done: dict[int, Submission] = {}
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        try:
            begun = {pool.submit(job.grade, one): at for at, one in enumerate(hand_ins)}
            for ended in as_completed(begun):
                done[begun[ended]] = ended.result()
                if progress is not None:
                    progress(done[begun[ended]])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            job.stop()
            raise
    return [done[at] for at in range(len(hand_ins))]


def _limits() -> tuple[Limit, ...]:
    return tuple(Limit(*hold) for hold in confinement.holds())


class _Job:
    """One grading: what all its files have in common, and the processes that are at work."""

    def __init__(
        self,
        known: Mapping[str, Reference],
        seed: int,
        cell_timeout_s: float,
        limits: tuple[Limit, ...],
    ) -> None:
        self._known, self._seed, self._cell_timeout_s = known, seed, cell_timeout_s
        self._limits, self._running, self._lock = limits, set[subprocess.Popen[bytes]](), Lock()
        self._stopped = False

    def grade(self, hand_in: HandIn) -> Submission:
        """What one file earned; whatever is wrong with it is its note."""
        if hand_in.trouble:
            return ungraded(hand_in, self._worth(hand_in.exercise), hand_in.trouble)
        try:
            sheet = submissions.read(hand_in.path)
        except (submissions.UnreadableError, OSError) as error:
            return ungraded(hand_in, self._worth(hand_in.exercise), _clean(str(error)))
        reference = self._reference_for(hand_in, sheet)
        if reference is None:
            why = "It can't be told which exercise this is: no cell of it is known."
            return ungraded(hand_in, self._worth(hand_in.exercise), why)
        try:
            return self._graded(hand_in, reference, sheet)
        except _StoppedError:
            raise
        except Exception as error:  # of one file, never of the class
            why = f"It couldn't be graded: {type(error).__name__}: {error}"
            return ungraded(hand_in, self._worth(reference.name), _clean(why))

    def _worth(self, exercise: str) -> float:
        one = self._known.get(exercise)
        return sum(map(source.points, one.checks)) if one else 0.0

    def _reference_for(self, hand_in: HandIn, sheet: submissions.Sheet) -> Reference | None:
        """By the stamp, or the ids of cells, or the file's name, as long as an id is known."""
        there = {name for cell in sheet.cells for name in cell.names}
        shared = {name: len(one.names & there) for name, one in self._known.items()}
        for name in (str(sheet.stamp.get("exercise")), hand_in.exercise):
            if shared.get(name):
                return self._known[name]
        best = max(shared, key=lambda name: shared[name], default="")
        return self._known[best] if shared.get(best) else None

    def _graded(
        self, hand_in: HandIn, reference: Reference, sheet: submissions.Sheet
    ) -> Submission:
        matched = submissions.match(sheet, reference.notebook)
        own = cells_of(reference, matched)
        with scratch_folder() as folder:
            first = self._checked(Path(folder, "own"), reference, {OWN: own}, None)
            runs = {Chain.OWN: first}
            if missed := _worth_another_look(reference, matched, first):
                chains = {
                    one: cells_of(reference, matched, replaced) for one, replaced in missed.items()
                }
                second = self._checked(
                    Path(folder, "reference"), reference, {OWN: own} | chains, set(missed)
                )
                runs[Chain.REFERENCE] = second
        version = sheet.stamp.get("version", "")
        return Submission(
            path=hand_in.shown,
            student=hand_in.student,
            exercise=reference.name,
            checks=tuple(_marks(reference, runs)),
            version_note=_OTHER_VERSION if version not in ("", reference.version) else "",
            notes=tuple(_sentences(matched, first)),
            printed="\n".join(first.loaded.values())[-_MOST_PRINTED:],
            set_aside=tuple(first.aside),
            limits=self._limits,
            rubrics=tuple(_rubrics(reference, matched)),
            answers={name: "\n\n".join(pieces) for name, pieces in matched.answers.items()},
        )

    # ---- nbval ----------------------------------------------------------------------------------

    def _checked(
        self,
        folder: Path,
        reference: Reference,
        cells: Mapping[str, list[Cell]],
        only: set[str] | None,
    ) -> Checked:
        """Let nbval run the checks, all or those of some questions."""
        answers = folder / "answers"
        answers.mkdir(parents=True)
        notebook, order, report = (folder / name for name in ("checks.ipynb", "order", "report"))
        notes = folder / "notes"
        told = Order(
            dict(cells),
            cells_of_solution(reference),
            self._seed,
            self._cell_timeout_s,
            str(notes),
            [str(notebook)],
            str(answers),
        )
        order.write_text(json.dumps(told._asdict()), encoding="utf-8")
        nbformat.write(checks_notebook(reference, order, only), notebook)
        self._run(folder, notebook, report)
        return Checked.read(reference, report, notes)

    def _run(self, folder: Path, notebook: Path, report: Path) -> None:
        command = [sys.executable, "-P", "-c", _PYTEST, "-q", "-p", "nbval.plugin", "--nbval"]
        command += ["--nbval-current-env", f"--nbval-cell-timeout={_CELL_S:g}", "-c", os.devnull]
        command += ["--rootdir", str(folder), "-p", "no:cacheprovider", f"--junitxml={report}"]
        own = dict.fromkeys(("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "TMPDIR"), str(folder))
        own |= {"PYTHONHASHSEED": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
        with self._lock:
            if self._stopped:
                raise _StoppedError
            process = subprocess.Popen(  # noqa: S603 - Python itself, on files made here
                [*command, str(notebook)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={**os.environ, **own},
                start_new_session=True,  # Ctrl-C is for the grader, which ends it in its own way
            )
            self._running.add(process)
        try:
            process.wait(_PASS_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _end(process)
            with self._lock:
                self._running.discard(process)
        if self._stopped:
            raise _StoppedError

    def stop(self) -> None:
        """End everything that is at work, and begin nothing more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _end(process)


class _StoppedError(Exception):
    """The grading was stopped."""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all below it."""
    if process.poll() is not None:
        return
    below: list[psutil.Process] = []
    with suppress(psutil.Error):
        below = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for one in below:
        with suppress(psutil.Error):
            one.kill()
    process.wait()
    psutil.wait_procs(below, timeout=5)


# ---- what is executed --------------------------------------------------------------------------


def checks_notebook(reference: Reference, order: Path, only: set[str] | None) -> Any:
    """The notebook that nbval runs: a cell that begins, then one for each of the reference's.

    Args:
        only: the questions whose checks are run; None for all.
    """
    first = "from durable_mini.school.child import begin\n\n" + f"begin({str(order)!r})"
    cells = [new_code_cell(first, execution_count=1)]
    for number, cell in enumerate(reference.code, 2):
        question = question_of(source.grade_id(cell))
        blank = source.is_answer(cell) or (
            source.is_check(cell) and only is not None and question not in only
        )
        text, outputs = ("pass", []) if blank else (cell.source, cell.outputs)
        cells.append(new_code_cell(text, outputs=outputs, execution_count=number))
    return new_notebook(cells=cells)


def cells_of_solution(reference: Reference) -> list[Cell]:
    """The cells that the reference's own answers consist of."""
    return [
        Cell(number, source.grade_id(cell), cell.source)
        for number, cell in enumerate(reference.code)
        if _is_told(cell)
    ]


def cells_of(
    reference: Reference, matched: submissions.Matched, replaced: Set[str] = frozenset()
) -> list[Cell]:
    """The cells that a student's answers consist of, where they stand in the reference.

    Args:
        replaced: questions whose answers are the reference's, without the cells put between them.
    """
    found: list[Cell] = []
    question = ""
    for number, cell in enumerate(reference.code):
        name = source.grade_id(cell)
        question = question_of(name) if source.is_answer(cell) else question
        own = question not in replaced
        if own:
            found += _numbered(number, f"above {name}", matched.scratch.get(name, []))
        if own and source.is_answer(cell):
            found += _numbered(number, name, matched.answers.get(name, []))
        elif _is_told(cell):
            found.append(Cell(number, name, cell.source))
    return found + _numbered(len(reference.code), "at the end", matched.scratch.get("", []))


def _numbered(number: int, name: str, pieces: Sequence[str]) -> list[Cell]:
    several = len(pieces) > 1
    return [
        Cell(number, f"{name} ({at})" if several else name, text)
        for at, text in enumerate(pieces, 1)
    ]


def _is_told(cell: Any) -> bool:
    return not source.is_check(cell) and CHECKS_ONLY not in cell.metadata.get("tags", [])


# ---- what came of it ---------------------------------------------------------------------------


@dataclass
class Checked:
    """What nbval and the kernel with the checks say of one run.

    Attributes:
        marks: check → its points.
        notes: check → the missed idea, and what was shown with it.
        printed: check → what the answers wrote meanwhile.
        loaded: cell → what it wrote when it was executed.
        raised: cell → what it raised when it was executed.
        aside: answers that were set aside.
    """

    marks: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    printed: dict[str, str] = field(default_factory=dict)
    loaded: dict[str, str] = field(default_factory=dict)
    raised: dict[str, str] = field(default_factory=dict)
    aside: list[SetAside] = field(default_factory=list)

    @classmethod
    def read(cls, reference: Reference, report: Path, notes: Path) -> Checked:
        """Read both; a run that left no report gave no points."""
        checked = cls()
        held = checked._read_notes(notes)
        passed = _passed(report)
        for number, cell in enumerate(reference.code, 1):  # case 0 is the cell that begins
            name = source.grade_id(cell)
            if source.is_check(cell):
                holds = number in passed and name in held
                checked.marks[name] = source.points(cell) if holds else 0.0
                if not holds and not checked.notes.get(name):
                    checked.notes[name] = "The check didn't come to its end in time."
        return checked

    def total(self, question: str) -> float:
        """The points of a question."""
        return sum(of for name, of in self.marks.items() if question_of(name) == question)

    def _read_notes(self, path: Path) -> set[str]:
        """The checks that hold, as the kernel says; the rest is kept."""
        held = set[str]()
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            match json.loads(line):
                case {"check": name, "missed": missed, "printed": printed}:
                    self.notes[name], self.printed[name] = _clean(missed), _clean(printed)
                    held |= {name} if not missed else set()
                case {"set_aside": name, "reason": reason}:
                    self.aside.append(SetAside(name, _clean(reason)))
                case {"cell": name, "printed": printed}:
                    self.loaded[name] = _clean(printed)
                case {"cell": name, "raised": raised}:
                    self.raised[name] = _clean(raised)
        return held


def _passed(report: Path) -> set[int]:
    """The numbers of the cells with which nbval found nothing wrong."""
    try:
        cases = ElementTree.parse(report).iter("testcase")  # noqa: S314 - pytest wrote it
        return {number for number, case in enumerate(cases) if not len(case)}
    except (OSError, ElementTree.ParseError):
        return set()


def _clean(text: str) -> str:
    """Without what differs from one run to the next."""
    return _ADDRESS.sub("0x…", _SCRATCH.sub("…", text))


def _worth_another_look(
    reference: Reference, matched: submissions.Matched, first: Checked
) -> dict[str, set[str]]:
    """The questions that lost points although something was written; the earlier ones that did."""
    answers = [cell for cell in reference.code if source.is_answer(cell)]
    asked = list(dict.fromkeys(question_of(source.grade_id(cell)) for cell in answers))
    written = {
        question_of(source.grade_id(cell))
        for cell in answers
        if (pieces := matched.answers.get(source.grade_id(cell)))
        and "\n".join(pieces).strip() != source.stub_of(cell.source).strip()
    }
    lost = {
        question_of(source.grade_id(cell))
        for cell in reference.code
        if source.is_check(cell) and first.marks[source.grade_id(cell)] < source.points(cell)
    }
    earlier = {one: lost & set(asked[:at]) for at, one in enumerate(asked) if one in lost & written}
    return {one: replaced for one, replaced in earlier.items() if replaced}


def _marks(reference: Reference, runs: Mapping[Chain, Checked]) -> Iterator[CheckMark]:
    """Each check with the points of the run that gave its question more."""
    for cell in reference.checks:
        name = source.grade_id(cell)
        question, worth = question_of(name), source.points(cell)
        if source.is_by_person(cell):
            yield CheckMark(name, question, 0.0, worth, by_person=True)
            continue
        chain = max(runs, key=lambda one: (runs[one].total(question), one is Chain.OWN))
        own, got = runs[Chain.OWN], runs[chain].marks[name]
        yield CheckMark(
            name,
            question,
            got,
            worth,
            # Always of their own run: in the other one they could make it tell the reference.
            note="" if got == worth else _note(own, name),
            hidden=source.is_hidden(cell),
            partly_hidden=source.has_hidden_part(cell),
            chain=chain,
            printed=own.printed.get(name, ""),
        )


def _note(run: Checked, name: str) -> str:
    """Why a check wasn't passed; if answers to its question are missing, that too."""
    question = question_of(name)
    aside = (one for one in run.aside if question_of(one.answer) == question)
    return "\n".join(
        [run.notes[name], *(f"Cell {one.answer} was set aside: {one.reason}." for one in aside)]
    )


def _sentences(matched: submissions.Matched, run: Checked) -> Iterator[str]:
    """What the student should know of the notebook."""
    yield from matched.notes
    for name, raised in run.raised.items():
        if name.partition(" (")[0] in matched.answers:
            yield f"Cell {name} ended with {raised}".splitlines()[0]


def _rubrics(reference: Reference, matched: submissions.Matched) -> Iterator[Rubric]:
    """What a person marks; the rubric is the cell after whose id `-rubric` is put."""
    texts = {cell.get("id"): cell.source for cell in reference.notebook.cells}
    for cell in reference.checks:
        if source.is_by_person(cell):
            name = source.grade_id(cell)
            lines = texts.get(f"{name}-rubric", "").splitlines()
            rubric = "\n".join(line for line in lines if not line.startswith("#")).strip()
            yield Rubric(name, source.points(cell), matched.texts.get(name, ""), rubric)
