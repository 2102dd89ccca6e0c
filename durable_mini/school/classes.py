"""Grades a class from its files to the folder of results.

Guarantees: whatever is wrong with the options is said before anything is graded; every file and
every student of the roster has a row; rows are ordered by their names, so that the same class gives
the same bytes; nothing is written before everything is graded, and nothing but `out` and the key
file of pseudonyms then. Only somebody who grades their own exercises gets a tick, never a teacher.

Leaves to others: the marks (`grading`), the files (`reports`), the words (`feedback`).
"""

from __future__ import annotations

import csv
import io
import platform
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from durable_mini.lab.exercises import PASSED_AT
from durable_mini.lab.progress_file import ProgressFile, Score
from durable_mini.school import grading, likeness, reports, submissions
from durable_mini.school.marks import HandIn, Submission, ungraded
from durable_mini.school.reports import Extra, ReportError
from durable_mini.school.roster import (
    EARLIER,
    Member,
    Sorted,
    hidden,
    identity,
    pseudonyms,
    read_roster,
    with_roster,
)
from durable_mini.school.writing import harmless, number, read_text

_SEEDS = 2**31
CHANGES_HEADER = ("submission", "exercise", "check", "before", "now", "note")


class GradesError(ValueError):
    """The table of an earlier grading can't be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to grade, and how; the marks depend on `reference`, `seed` and `cell_timeout_s` alone.

    Attributes:
        seed: draws the inputs of hidden checks; None draws one, since whoever knows it knows them.
        cell_timeout_s: processor seconds that one answer or check may take.
        pseudonyms: the key file; None leaves the names as they are.
        workers: submissions graded beside each other; None for one a core.
    """

    paths: tuple[Path, ...]
    out: Path | None = None
    reference: Path | None = None
    roster: Path | None = None
    against: Path | None = None
    pseudonyms: Path | None = None
    seed: int | None = None
    cell_timeout_s: float = 5.0
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A check whose points aren't those of the earlier grading; "" where there was or is none."""

    submission: str
    exercise: str
    check: str
    before: str
    now: str
    note: str

    def row(self) -> tuple[str, ...]:
        """As it stands in the table."""
        return self.submission, self.exercise, self.check, self.before, self.now, self.note


@dataclass(frozen=True, slots=True)
class Graded:
    """What came of a grading; `ticked` names the exercises that reached the reader's threshold."""

    submissions: tuple[Submission, ...]
    seed: int
    changes: tuple[Change, ...] = ()
    alike: tuple[likeness.Alike, ...] = ()
    ticked: tuple[str, ...] = ()

    @property
    def all_full(self) -> bool:
        """Whether every submission has all points that a machine gives; earlier attempts aside."""
        counting = (each for each in self.submissions if not _is_earlier(each))
        return all(each.is_full for each in counting)

    def to_json(self) -> dict[str, Any]:
        """For a machine."""
        return {"submissions": [_told(each) for each in self.submissions]}


def grade(
    paths: str | Path | Iterable[str | Path],
    out: str | Path | None = None,
    cell_timeout: float = 5,
    **options: Any,
) -> dict[str, Any]:
    """Grade notebooks, or folders or archives of them, and return what `grade --json` prints.

    Args:
        paths: one path or several.
        out: a folder for the results; None writes none.
        cell_timeout: processor seconds that one answer or check may take.
        options: more of `Options`.

    Raises: ValueError when a path or an option can't be used; OSError.
    """
    several = [paths] if isinstance(paths, str | Path) else paths
    folder = None if out is None else Path(out)
    chosen = Options(tuple(map(Path, several)), folder, cell_timeout_s=cell_timeout, **options)
    return grade_class(chosen).to_json()


def grade_class(
    options: Options,
    begin: Callable[[int], None] = lambda total: None,
    progress: Callable[[Submission], None] = lambda submission: None,
    keeper: ProgressFile | None = None,
) -> Graded:
    """Grade everything, write the results, and keep the reader's own progress.

    Args:
        begin: called once with the number of submissions to grade.
        progress: called with each of them as it is done, in any order.
        keeper: where progress is kept; None for the reader's own file.

    Raises: ValueError when an option can't be used; OSError; KeyboardInterrupt, after which no
        process and no file is left.
    """
    _refuse(options)
    seed = secrets.randbelow(_SEEDS) if options.seed is None else options.seed
    options = replace(options, seed=seed)
    members = read_roster(options.roster) if options.roster else []
    old = read_grades(options.against) if options.against else None
    points = grading.exercise_points(options.reference)
    with tempfile.TemporaryDirectory(prefix="durable-mini-grade-") as scratch:
        found = submissions.find(options.paths, Path(scratch))
        rows = _named(found, members, points, options)
        begin(len(rows.to_grade))
        graded = _graded(rows.to_grade, points, options, progress)
    graded += [ungraded(one, _lost(one, why, points), why) for one, why in rows.only_rows]
    graded.sort(key=lambda each: (each.path, each.exercise))
    changes = () if old is None else tuple(changed(old, graded))
    alike = _alike(graded, options.reference)
    if options.out:
        extras = _extras(alike, changes if old is not None else None)
        about, known = _settings(options), bool(members)
        reports.write(options.out, graded, extras=extras, settings=about, gradebook=known)
    ticked = _ticked(found, graded, options, keeper)
    return Graded(tuple(graded), seed, changes, tuple(alike), tuple(ticked))


def _refuse(options: Options) -> None:
    """Raise ReportError when results or keys would land where they mustn't."""
    if options.out is None:
        return
    reports.refuse_unless_ours(options.out)
    out = options.out.resolve()
    for path in options.paths:
        if path.is_dir() and out.is_relative_to(path.resolve()):
            raise ReportError(
                f"--out {options.out} lies inside {path}, which is graded. Next: name a folder "
                "elsewhere, so that no results are handed back with a submission."
            )
    if options.pseudonyms and options.pseudonyms.resolve().is_relative_to(out):
        raise ReportError(
            f"--pseudonyms {options.pseudonyms} lies in the folder of the results. Next: keep the "
            "key elsewhere."
        )


def _named(
    found: Sequence[HandIn], members: Sequence[Member], points: dict[str, float], options: Options
) -> Sorted:
    """What is graded and what only has a row, under the names that rows show."""
    rows = Sorted(tuple(found), ())
    if members:
        exercises = sorted({each.exercise for each in found} & set(points))
        rows = with_roster(found, members, exercises)
    if options.pseudonyms is None:
        return rows
    everybody = [*rows.to_grade, *(one for one, _ in rows.only_rows)]
    names = pseudonyms(options.pseudonyms, map(identity, everybody))
    under = hidden(everybody, names)
    cut = len(rows.to_grade)
    notes = [note for _, note in rows.only_rows]
    return Sorted(tuple(under[:cut]), tuple(zip(under[cut:], notes, strict=True)))


def _graded(
    hand_ins: Sequence[HandIn],
    points: dict[str, float],
    options: Options,
    progress: Callable[[Submission], None],
) -> list[Submission]:
    """What each file earned; one that can't even be opened is told at once."""
    broken = [each for each in hand_ins if each.trouble]
    told = [ungraded(each, points.get(each.exercise, 0.0), each.trouble) for each in broken]
    for submission in told:
        progress(submission)
    return told + grading.grade_all(
        [each for each in hand_ins if not each.trouble],
        reference=options.reference,
        seed=options.seed or 0,
        cell_timeout_s=options.cell_timeout_s,
        workers=options.workers,
        progress=progress,
    )


def _lost(hand_in: HandIn, note: str, points: dict[str, float]) -> float:
    """What a row without a grading could have earned: an earlier attempt counts nowhere."""
    return 0.0 if note == EARLIER else points.get(hand_in.exercise, 0.0)


def _is_earlier(submission: Submission) -> bool:
    return not submission.graded and submission.checks[0].note == EARLIER


def _told(submission: Submission) -> dict[str, Any]:
    return {
        "path": submission.path,
        "student": submission.student,
        "exercise": submission.exercise,
        "points": submission.points,
        "max_points": submission.max_points,
        "checks": [
            {
                "name": check.name,
                "points": check.points,
                "max_points": check.max_points,
                "note": check.note,
            }
            for check in submission.checks
        ],
    }


def _settings(options: Options) -> dict[str, str]:
    """What the marks depend on, for whoever asks a year later."""
    return {
        "seed": str(options.seed),
        "cell_timeout_s": number(options.cell_timeout_s),
        "reference": "published" if options.reference is None else options.reference.name,
        "python": platform.python_version(),
    }


# ---- likeness and changes ----------------------------------------------------------------------


def _alike(graded: Sequence[Submission], reference: Path | None) -> list[likeness.Alike]:
    if sum(bool(each.answers) for each in graded) < 2:
        return []
    published = grading.reference_answers(reference)
    return likeness.alike(graded, published, grading.stub_answers(reference))


def _extras(alike: Sequence[likeness.Alike], changes: Sequence[Change] | None) -> list[Extra]:
    tables = [Extra(reports.SIMILAR, likeness.HEADER, tuple(each.row() for each in alike))]
    if changes is not None:
        rows = tuple(each.row() for each in changes)
        tables.append(Extra(reports.CHANGES, CHANGES_HEADER, rows))
    return tables


def read_grades(path: Path) -> dict[tuple[str, str, str], str]:
    """The points of an earlier `grades.csv` by submission, exercise and check, as written.

    Raises: GradesError when it is no such table; OSError.
    """
    rows = list(csv.reader(io.StringIO(read_text(path, GradesError))))
    width = len(reports.GRADES_HEADER)
    if not rows or tuple(rows[0]) != reports.GRADES_HEADER:
        header = ",".join(reports.GRADES_HEADER)
        raise GradesError(
            f"{path}: its first line is not {header}. Next: name the grades.csv of a grading."
        )
    if short := next((at for at, row in enumerate(rows, 1) if len(row) != width), None):
        raise GradesError(f"{path}, line {short}: not {width} cells. Next: take the file unedited.")
    return {(row[0], row[1], row[2]): row[3] for row in rows[1:]}


def changed(old: dict[tuple[str, str, str], str], now: Sequence[Submission]) -> Iterator[Change]:
    """Every check whose points differ, and those that are new or gone, in the order of the rows."""
    left = dict(old)
    for submission in now:
        for check in submission.checks:
            row = (submission.path, submission.exercise, check.name)
            before = left.pop(_cells(row), "")
            points = number(check.points)
            if before != points:
                yield Change(*row, before, points, check.note)
    for gone, before in left.items():
        yield Change(*gone, before, "", "this row is gone")


def _cells(row: tuple[str, str, str]) -> tuple[str, str, str]:
    """A row's names as a table writes them."""
    submission, exercise, check = map(harmless, row)
    return submission, exercise, check


# ---- the reader's own progress -----------------------------------------------------------------


def _ticked(
    found: Sequence[HandIn],
    graded: Sequence[Submission],
    options: Options,
    keeper: ProgressFile | None,
) -> list[str]:
    """Keep what a reader reached in their own exercises, and name what is at the threshold.

    Whoever grades others keeps nothing: a roster, pseudonyms, a student's name, a second
    submission of one exercise, or another reference says so. Published solutions tick nothing.
    """
    exercises = [each.exercise for each in found]
    is_a_class = (
        any((options.roster, options.pseudonyms, options.against, options.reference))
        or any(each.student for each in found)
        or len(set(exercises)) < len(exercises)
    )
    if is_a_class or any(grading.is_reference(each.path) for each in found):
        return []
    kept = keeper or ProgressFile()
    reached = []
    for each in graded:
        if each.graded and each.points and each.machine_points:
            kept.solve(each.exercise, Score(each.points, each.machine_points))
            reached += [each.exercise] * (each.points >= PASSED_AT * each.machine_points)
    return [] if kept.trouble else reached
