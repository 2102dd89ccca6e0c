"""The command `grade`: exercises marked in one go, one's own or those of a class.

Guarantees: a wrong option is one line before anything is graded; a bar counts on a terminal; Ctrl-C
writes nothing and leaves no process behind. Leaves to others: everything but reading arguments and
printing answers (`school.classes`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from durable_mini.cli.journals import AsJson
from durable_mini.cli.printing import ANSWER_IS_NO, DONE, console, print_json
from durable_mini.school.marks import Submission

# They bring the machinery of notebooks with them, for which no other command should wait.
_LOADED_LATE = ("durable_mini.school.classes", "durable_mini.cli.marked")

Paths = Annotated[
    list[Path], typer.Argument(metavar="PATH", help="Notebooks, folders of them, or archives.")
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="A folder for tables and feedback; without it, this table."),
]
Reference = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Your own solutions to mark against, instead of the published ones."
    ),
]
Roster = Annotated[
    Path | None,
    typer.Option(
        metavar="CSV", help="Who belongs to the class: missing work gets a row, the latest counts."
    ),
]
Against = Annotated[
    Path | None, typer.Option(metavar="OLD.csv", help="Earlier grades: list what has changed.")
]
Pseudonyms = Annotated[
    Path | None,
    typer.Option(
        metavar="KEY", help="Write pseudonyms; KEY is kept and extended, and is yours alone."
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Draws the hidden inputs: the same seed gives the same marks.",
        show_default="one that nobody knows",
    ),
]
Timeout = Annotated[
    float, typer.Option(metavar="SECONDS", min=0.1, help="Processor time of one answer or check.")
]
Strict = Annotated[bool, typer.Option(help="Exit 1 unless every submission has full marks.")]


def grade(
    paths: Paths,
    *,
    out: Out = None,
    reference: Reference = None,
    roster: Roster = None,
    against: Against = None,
    pseudonyms: Pseudonyms = None,
    seed: Seed = None,
    cell_timeout: Timeout = 5.0,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Mark exercises: your own after each chapter, or those of a class with a roster."""
    classes, marked = map(import_module, _LOADED_LATE)
    options = classes.Options(
        paths=tuple(paths),
        out=out,
        reference=reference,
        roster=roster,
        against=against,
        pseudonyms=pseudonyms,
        seed=seed,
        cell_timeout_s=cell_timeout,
    )
    with _bar() as (begin, advance):
        graded = classes.grade_class(options, begin, advance)
    if as_json:
        print_json(graded.to_json())
    else:
        marked.show(graded, options, console())
    raise typer.Exit(ANSWER_IS_NO if strict and not graded.all_full else DONE)


@contextmanager
def _bar() -> Iterator[tuple[Callable[[int], None], Callable[[Submission], None]]]:
    """A bar on a terminal, from the moment that the number of submissions is known."""
    if not sys.stderr.isatty():
        yield lambda total: None, lambda submission: None
        return
    columns = (TextColumn("grading"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("grading", total=None)
        yield (lambda total: bar.update(task, total=total), lambda submission: bar.advance(task))
