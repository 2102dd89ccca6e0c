"""The command `quiz`: the rehearsal in a terminal, on the same bank, log and interviews.

Guarantees: a wrong option is one line before anything is asked; options that write a file never
overwrite one; nothing is forgotten without a yes. Leaves to others: the dialogue (`asking`), and
everything that is more than reading arguments and printing answers (`durable_mini.school`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from durable_mini.cli.journals import AsJson
from durable_mini.cli.printing import ANSWER_IS_NO, DONE, print_json

_FILE = {"metavar": "FILE"}

Due = Annotated[bool, typer.Option("--due", help="What is due today; that is the default.")]
Core = Annotated[bool, typer.Option("--core", help="The core questions, for the evening before.")]
Weak = Annotated[bool, typer.Option("--weak", help="What was answered worst, or is forgotten.")]
ChapterName = Annotated[
    str, typer.Option("--chapter", metavar="NAME", help="One chapter, e.g. 03_crash_window.")
]
Minutes = Annotated[
    int | None,
    typer.Option("--mock", metavar="MINUTES", help="A mock interview: 20, 45 or 60 minutes."),
]
Clock = Annotated[
    bool | None, typer.Option("--clock/--no-clock", help="Whether a clock runs; it is kept.")
]
Seed = Annotated[
    int | None,
    typer.Option(min=0, help="Of the figures in answers (it is kept), and of an interview."),
]
Interview = Annotated[
    str, typer.Option(metavar="DATE", help="The day of your interview, e.g. 2027-01-31; or none.")
]
Anki = Annotated[Path | None, typer.Option("--export-anki", help="Write notes for Anki.", **_FILE)]
Page = Annotated[
    Path | None, typer.Option("--print", help="Write a page of all questions.", **_FILE)
]
Script = Annotated[
    Path | None, typer.Option(help="Write what a friend needs who plays the interviewer.", **_FILE)
]
Export = Annotated[Path | None, typer.Option("--export", help="Write the log.", **_FILE)]
Import = Annotated[Path | None, typer.Option("--import", help="Take in another log.", **_FILE)]
Reset = Annotated[bool, typer.Option("--reset", help="Put the log aside, and begin anew.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask before a reset.")]


def quiz(
    *,
    due: Due = False,
    core: Core = False,
    weak: Weak = False,
    chapter: ChapterName = "",
    mock: Minutes = None,
    clock: Clock = None,
    seed: Seed = None,
    interview: Interview = "",
    export_anki: Anki = None,
    page: Page = None,
    script: Script = None,
    export: Export = None,
    import_: Import = None,
    reset: Reset = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Rehearse questions, or a whole interview, in the terminal; what you score is kept."""
    mode = _mode(due, core, weak, chapter, mock)
    rehearsal = import_module("durable_mini.school.rehearsal").Rehearsal()
    changes = _changes(interview, seed, clock)
    if changes:
        rehearsal.change(**changes)
    files = {"export_anki": export_anki, "print": page, "script": script}
    files |= {"export": export, "import": import_}
    if written := _written(rehearsal, mock or 45, seed, files):
        typer.echo("\n".join(written))
    elif reset:
        raise typer.Exit(_reset(rehearsal, yes=yes))
    elif as_json:
        print_json(_standing(rehearsal, mode, chapter))
    elif mock is not None:
        import_module("durable_mini.cli.interviewing").interview(rehearsal, mock, seed)
    else:
        import_module("durable_mini.cli.asking").ask(rehearsal, mode, chapter)


def _mode(due: bool, core: bool, weak: bool, chapter: str, mock: int | None) -> str:
    """The one mode that was asked for."""
    asked = {"due": due, "core": core, "weak": weak, "chapter": chapter, "mock": mock is not None}
    named = [name for name, wanted in asked.items() if wanted]
    if len(named) > 1:
        raise typer.BadParameter(f"--{' and --'.join(named)} can't go together; choose one.")
    return named[0] if named else "due"


def _changes(interview: str, seed: int | None, clock: bool | None) -> dict[str, Any]:
    """What is to be set from now on."""
    wanted = {"seed": seed, "clock": clock}
    changes: dict[str, Any] = {name: new for name, new in wanted.items() if new is not None}
    if interview == "none":
        changes["interview"] = None
    elif interview:
        try:
            changes["interview"] = date.fromisoformat(interview)
        except ValueError:
            reason = f"{interview!r} is no date; write e.g. 2027-01-31, or none."
            raise typer.BadParameter(reason) from None
    return changes


def _written(
    rehearsal: Any, minutes: int, seed: int | None, files: dict[str, Path | None]
) -> list[str]:
    """Write and read the files that were asked for; a line for each."""
    acts: dict[str, Callable[[Path], str]] = {
        "export_anki": lambda path: _write(path, "anki", "anki_text", rehearsal),
        "print": lambda path: _write(path, "printable", "questions_page", rehearsal),
        "script": lambda path: _write_script(path, minutes, seed or 0),
        "export": lambda path: f"{rehearsal.log.export(path)} reviews written",
        "import": lambda path: f"{rehearsal.log.take_in(path)} reviews were new",
    }
    return [f"{path}: {acts[name](path)}." for name, path in files.items() if path is not None]


def _write(path: Path, module: str, function: str, rehearsal: Any) -> str:
    make = getattr(import_module(f"durable_mini.school.{module}"), function)
    _new(path, make(rehearsal.questions, rehearsal.figures))
    return f"{len(rehearsal.questions)} questions written"


def _write_script(path: Path, minutes: int, seed: int) -> str:
    _new(path, import_module("durable_mini.school.debrief").script(minutes, seed))
    return f"a script of {minutes} minutes written"


def _new(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


def _reset(rehearsal: Any, *, yes: bool) -> int:
    """Put the log aside, if that is what is wanted."""
    if not yes and not typer.confirm("Put the log of all reviews aside, and begin anew?"):
        typer.echo("Nothing was changed.")
        return ANSWER_IS_NO
    aside = rehearsal.log.reset()
    typer.echo("There was no log." if aside is None else f"The old log is {aside}.")
    return DONE


def _standing(rehearsal: Any, mode: str, chapter: str) -> dict[str, Any]:
    """What would be asked, for a machine."""
    queue = rehearsal.queue(mode, chapter) if mode != "mock" else []
    settings = rehearsal.settings()
    return {
        "mode": mode,
        "log": str(rehearsal.log.path),
        "interview": settings.interview and settings.interview.isoformat(),
        "seed": settings.seed,
        "passed_over": list(rehearsal.log.passed_over),
        "queue": [
            {
                "id": one.question.id,
                "chapter": one.question.chapter,
                "due": one.due and one.due.isoformat(),
                "recall": one.recall,
                "reviews": one.reviews,
                "score": one.score,
            }
            for one in queue
        ],
    }
