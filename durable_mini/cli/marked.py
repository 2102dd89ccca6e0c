"""What `grade` prints: a line for each submission, what one reader missed, what changed.

Guarantees: what a student wrote is shown and never obeyed. Leaves to others: the files (`reports`).
"""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.console import Console

from durable_mini.cli.printing import add, table
from durable_mini.lab.exercises import PASSED_AT
from durable_mini.school.classes import Graded, Options
from durable_mini.school.feedback import visible_and_hidden
from durable_mini.school.marks import Submission
from durable_mini.school.reports import GRADES, summary_note
from durable_mini.school.writing import number, one_line

_MOST_CHANGES = 20
_NAME_CHARACTERS = 48


def show(graded: Graded, options: Options, screen: Console) -> None:
    """Print one line for each submission, then what changed and where the rest is."""
    shown = table("submission", "exercise", "points", "")
    for each in graded.submissions:
        points = f"{number(each.points)} of {number(each.max_points)}"
        name = one_line(each.path, _NAME_CHARACTERS)
        add(shown, name, one_line(each.exercise), points, one_line(_said(each), 120))
    screen.print(shown)
    if len(graded.submissions) == 1 and options.out is None:
        _print_missed(graded.submissions[0], screen)
    if options.against is not None:
        _print_changes(graded, screen)
    for exercise in graded.ticked:
        typer.echo(f"{exercise} is over the {100 * PASSED_AT:g} % line: 00_start_here shows it.")
    if options.seed is None:
        typer.echo(f"Graded with --seed {graded.seed}: give it to get the same marks.", err=True)
    if options.out is not None:
        typer.echo(f"Written to {options.out}: {GRADES}, totals, feedback and more.", err=True)


def _said(submission: Submission) -> str:
    note = summary_note(submission)
    if not submission.graded:
        return note
    return f"{visible_and_hidden(submission)} {note}".strip()


def _print_missed(submission: Submission, screen: Console) -> None:
    """What somebody who grades one notebook wants to know first."""
    shown = table("missed", "")
    missed = [one for one in submission.checks if one.name and one.points < one.max_points]
    for check in missed:
        if not check.by_person:
            add(shown, check.name, one_line(check.note.partition("\n")[0]))
    if shown.row_count:
        screen.print()
        screen.print(shown)


def _print_changes(graded: Graded, screen: Console) -> None:
    changes: Sequence[tuple[str, ...]] = [each.row() for each in graded.changes]
    typer.echo(f"\n{len(changes)} changed since the earlier grading.")
    shown = table("submission", "check", "before", "now")
    for name, _, check, before, now, _ in changes[:_MOST_CHANGES]:
        add(shown, one_line(name, _NAME_CHARACTERS), check, before or "-", now or "-")
    if changes:
        screen.print(shown)
    if len(changes) > _MOST_CHANGES:
        typer.echo(f"… and {len(changes) - _MOST_CHANGES} more; --out keeps them all.")
