"""The folder that a grading leaves: tables, JUnit, and a page of feedback for each submission.

Guarantees: the same submissions give the same bytes; the folder is the teacher's alone (0700, files
0600); what students wrote is escaped in every format; a page loads nothing from anywhere and can be
read without seeing or without colour. Files are replaced one by one, `grades.csv` last, and pages
of an earlier grading that no longer belong to anybody are removed. A folder that holds anything
else is refused before the first byte.

Crash: `grades.csv` is still the one before; run the command again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jinja2
import mistune

from durable_mini.school.feedback import feedback
from durable_mini.school.marks import CheckMark, Submission
from durable_mini.school.writing import (
    csv_text,
    cut,
    fenced,
    file_name,
    markdown,
    number,
    one_line,
    replace_file,
    visible,
)

GRADES, TOTALS, GRADEBOOK, JUNIT = "grades.csv", "totals.csv", "gradebook.csv", "junit.xml"
SIMILAR, CHANGES, PAGES = "similar.csv", "changes.csv", "feedback"
_TABLES = (TOTALS, GRADEBOOK, JUNIT, SIMILAR, CHANGES)
GRADES_HEADER = ("submission", "exercise", "check", "points", "max_points", "note")
_TOTALS_HEADER = (
    *("submission", "student", "exercise", "points", "max_points"),
    *("by_person", "note", "feedback"),
)


class ReportError(ValueError):
    """The folder can't be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Extra:
    """A table beside the marks: what changed, what looks alike."""

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]


def write(
    folder: Path,
    submissions: Sequence[Submission],
    *,
    extras: Sequence[Extra] = (),
    settings: Mapping[str, str] | None = None,
    gradebook: bool = False,
) -> None:
    """Write every file of a grading.

    Args:
        folder: absent, empty, or one that an earlier grading wrote.
        extras: more tables, for the teacher.
        settings: what the marks depend on (seed, versions); kept in the JUnit file.
        gradebook: whether the students are known, so that each can have one line.

    Raises: ReportError; OSError.
    """
    refuse_unless_ours(folder)
    files = dict(_files(submissions, extras, settings or {}, gradebook=gradebook))
    pages = folder / PAGES
    for each in (folder, pages):
        each.mkdir(parents=True, exist_ok=True)
        each.chmod(0o700)
    for name, text in files.items():
        replace_file(folder / name, text)
    there = [folder / name for name in _TABLES] + [*pages.glob("*.html"), *pages.glob("*.md")]
    for path in there:
        if path.relative_to(folder).as_posix() not in files:
            path.unlink(missing_ok=True)
    replace_file(folder / GRADES, grades_csv(submissions))


def refuse_unless_ours(folder: Path) -> None:
    """Raise ReportError when the folder is a file, or holds files but no grades."""
    if folder.exists() and not folder.is_dir():
        raise ReportError(f"--out {folder} is a file. Next: name a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / GRADES).is_file():
        raise ReportError(
            f"--out {folder} holds other files and no {GRADES}; nothing was written. "
            "Next: name a new or an empty folder."
        )


def _files(
    submissions: Sequence[Submission],
    extras: Sequence[Extra],
    settings: Mapping[str, str],
    *,
    gradebook: bool,
) -> Iterator[tuple[str, str]]:
    """Name and text of each file but the grades."""
    names = page_names(submissions)
    for name, submission in zip(names, submissions, strict=True):
        yield f"{PAGES}/{name}.html", html_page(submission)
        yield f"{PAGES}/{name}.md", markdown_page(submission)
    for extra in extras:
        yield extra.name, csv_text(extra.header, extra.rows)
    if gradebook:
        yield GRADEBOOK, gradebook_csv(submissions)
    yield JUNIT, junit_xml(submissions, settings)
    yield TOTALS, totals_csv(submissions, names)


def page_names(submissions: Sequence[Submission]) -> list[str]:
    """A file name without its ending for each submission, unique, on any system."""
    names: list[str] = []
    taken: set[str] = set()
    for submission in submissions:
        first = name = file_name(submission.path)
        number_of_it = 1
        while name.casefold() in taken:
            number_of_it += 1
            name = f"{first}-{number_of_it}"
        taken.add(name.casefold())
        names.append(name)
    return names


# ---- tables ------------------------------------------------------------------------------------


def grades_csv(submissions: Sequence[Submission]) -> str:
    """One row for each check, or one for a file that couldn't be graded."""
    return csv_text(
        GRADES_HEADER,
        (
            (each.path, each.exercise, check.name, check.points, check.max_points, _note(check))
            for each in submissions
            for check in each.checks
        ),
    )


def _note(check: CheckMark) -> str:
    return check.note or ("to be marked by a person" if check.by_person else "")


def totals_csv(submissions: Sequence[Submission], names: Sequence[str]) -> str:
    """One row for each submission, with the name of its feedback."""
    return csv_text(_TOTALS_HEADER, map(_total, submissions, names))


def _total(submission: Submission, name: str) -> tuple[str | float, ...]:
    open_points = submission.max_points - submission.machine_points
    return (
        *(submission.path, submission.student, submission.exercise),
        *(submission.points, submission.max_points, open_points),
        summary_note(submission),
        f"{PAGES}/{name}.html",
    )


def summary_note(submission: Submission) -> str:
    """What a teacher wants to see at a glance: why it wasn't graded, what was set aside."""
    if not submission.graded:
        return " ".join(check.note for check in submission.checks)
    aside = [f"{each.answer} was set aside: {each.reason}" for each in submission.set_aside]
    return "; ".join(filter(None, (*aside, submission.version_note)))


def gradebook_csv(submissions: Sequence[Submission]) -> str:
    """One row for each student, one column for each exercise; a later row's earlier attempt is 0.

    What a person marks is not in it yet. Of several files of one exercise the best counts, never
    their sum: a file may say that it is another exercise than it turns out to be.
    """
    exercises = sorted({each.exercise for each in submissions if each.exercise})
    students = sorted({each.student for each in submissions if each.student})
    points = dict.fromkeys(((who, what) for who in students for what in exercises), 0.0)
    for each in submissions:
        if (each.student, each.exercise) in points:
            best = max(points[each.student, each.exercise], each.points)
            points[each.student, each.exercise] = best
    rows = [[points[who, what] for what in exercises] for who in students]
    return csv_text(
        ("student", *exercises, "points"),
        ((who, *row, sum(row)) for who, row in zip(students, rows, strict=True)),
    )


# ---- JUnit -------------------------------------------------------------------------------------


def junit_xml(submissions: Sequence[Submission], settings: Mapping[str, str]) -> str:
    """A suite for each submission and a case for each check, as CI servers read them."""
    suites = ElementTree.Element("testsuites", name="durable-mini grade")
    for submission in submissions:
        suites.append(_suite(submission, settings))
    ElementTree.indent(suites)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ElementTree.tostring(suites, 'unicode')}\n"


def _suite(submission: Submission, settings: Mapping[str, str]) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=one_line(submission.path))
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in settings.items():
        ElementTree.SubElement(properties, "property", name=name, value=one_line(value))
    counts = dict.fromkeys(("failures", "errors", "skipped"), 0)
    for check in submission.checks:
        case = ElementTree.SubElement(suite, "testcase", _case(submission, check))
        if kind := _kind(submission, check):
            counts[f"{kind}s" if kind != "skipped" else kind] += 1
            ElementTree.SubElement(case, kind, message=one_line(_note(check))).text = cut(
                check.note
            )
        if check.printed:
            ElementTree.SubElement(case, "system-out").text = cut(check.printed)
    suite.attrib |= {"tests": str(len(submission.checks))}
    suite.attrib |= {name: str(count) for name, count in counts.items()}
    return suite


def _case(submission: Submission, check: CheckMark) -> dict[str, str]:
    name = one_line(check.name) or "the file"
    return {"classname": one_line(submission.exercise) or "unknown", "name": name}


def _kind(submission: Submission, check: CheckMark) -> str:
    if not submission.graded:
        return "error"
    if check.by_person:
        return "skipped"
    return "failure" if check.points < check.max_points else ""


# ---- pages -------------------------------------------------------------------------------------


def html_page(submission: Submission) -> str:
    """The feedback as one page that stands alone."""
    return _page("feedback.html.j2", submission)


def markdown_page(submission: Submission) -> str:
    """The same as Markdown."""
    return _page("feedback.md.j2", submission)


def _page(template: str, submission: Submission) -> str:
    text = _environment().get_template(template).render(told=feedback(submission))
    return visible(text).rstrip("\n") + "\n"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("durable_mini.school"),
        autoescape=jinja2.select_autoescape(["html.j2"]),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    tools: dict[str, Any] = {"points": number, "rendered": mistune.create_markdown(escape=True)}
    environment.globals |= tools
    environment.filters |= {"line": markdown, "block": fenced}
    return environment
