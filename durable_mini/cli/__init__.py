"""The command `durable-mini`: the course, both results tables, and what a journal file holds.

Guarantees: exit status 0 for done, 1 when the answer is no, 2 for wrong use, 130 after Ctrl-C. What
went wrong is one line on stderr. A command that looks at a journal changes nothing in it, creates
no file, and needs none of its workflows. Everything that is more than reading arguments and
printing answers is left to the modules below.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from durable_mini import DurableError
from durable_mini.cli import journals, killing, marking, quizzing
from durable_mini.cli.journals import AsJson
from durable_mini.cli.printing import (
    ANSWER_IS_NO,
    DONE,
    PROGRAM,
    STOPPED,
    WRONG_USE,
    add,
    complain,
    console,
    print_json,
    table,
)
from durable_mini.cli.working import work
from durable_mini.lab import results as lab_results
from durable_mini.lab.bench import bench as measure
from durable_mini.lab.course import jupyter_command, open_jupyter, working_folder

SILENT_S = 1.0  # a command that takes longer than this says how far it is

app = typer.Typer(
    name=PROGRAM,
    help="Learn durable execution by running it.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; every error of use is one line on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, for_jupyter = _split(given)
    try:
        status = app(own, prog_name=PROGRAM, standalone_mode=False, obj=for_jupyter) or DONE
        sys.stdout.flush()
    except typer.TyperException as error:
        return complain(error.format_message(), WRONG_USE)
    except (KeyboardInterrupt, typer.Abort):
        status = STOPPED
    except BrokenPipeError:  # the reader of our output, `head` perhaps, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ANSWER_IS_NO
    except OSError as error:
        known = error.strerror and error.filename
        return complain(f"{error.filename}: {error.strerror}" if known else f"{error}", WRONG_USE)
    except (DurableError, ValueError) as error:
        return complain(str(error), WRONG_USE)
    return complain("stopped by Ctrl-C", STOPPED) if status == STOPPED else int(status)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Cut off what follows `--` in `course FOLDER -- …`: it is meant for JupyterLab."""
    if arguments[:1] != ["course"] or "--" not in arguments:
        return arguments, []
    cut = arguments.index("--")
    return arguments[:cut], arguments[cut + 1 :]


@app.callback(invoke_without_command=True)
def _program(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.")
    ] = False,
) -> None:
    if show_version:
        typer.echo(f"{PROGRAM} {_version()}")
        raise typer.Exit(DONE)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(WRONG_USE)


def _version() -> str:
    try:
        return version("durable-mini")
    except PackageNotFoundError:
        return "of a folder that is not installed"


# ---- course ------------------------------------------------------------------------------------


@app.command(epilog=f"Example: {PROGRAM} course my-copy -- --no-browser --port 9000")
def course(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER",
            help="A folder for your own copy; nothing in it is ever overwritten. Without it you "
            "work on the clone itself or, where there is none, in ./durable-mini-course.",
        ),
    ] = None,
) -> None:
    """Open the course in JupyterLab at the first chapter; what follows -- goes to jupyter lab."""
    root, copied = working_folder(folder)
    command = jupyter_command(root, context.obj or [])
    if copied.added:
        typer.echo(f"Copied {len(copied.added)} files to {root}.", err=True)
    if copied.kept:
        kept = ", ".join(copied.kept)
        typer.echo(f"Kept as you have it: {kept}. Delete a file to get it anew.", err=True)
    typer.echo("JupyterLab is starting; Ctrl-C here stops it.", err=True)
    open_jupyter(command)


# ---- results -----------------------------------------------------------------------------------


@app.command(epilog=f"Example: {PROGRAM} results --runs 1000 --crash-rate 0.05 --crash-rate 0.3")
def results(
    runs: Annotated[int, typer.Option(help="Runs per strategy and crash rate.")] = 400,
    seed: Annotated[int, typer.Option(help="The same seed gives the same tables.")] = 0,
    crash_rate: Annotated[
        list[float] | None,
        typer.Option(
            help="Chance of a crash at each live step, in [0, 1). Give it again for more rates.",
            show_default="0.02, 0.08, 0.2",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print both results tables: simulated, exact, 95 % interval, published figure."""
    rates = tuple(crash_rate or lab_results.DEFAULT_RATES)
    lab_results.check_effort(runs, rates)
    with _progress("runs", lab_results.runs_in_results(runs, rates)) as advance:
        tables = lab_results.results(runs, seed, rates, progress=advance)
    if as_json:
        print_json(tables)
    else:
        lab_results.print_results(tables, console())


# ---- bench -------------------------------------------------------------------------------------


@app.command(epilog=f"Example: {PROGRAM} bench --quick")
def bench(
    quick: Annotated[bool, typer.Option(help="Fewer repetitions, for a look.")] = False,
    engines: Annotated[
        bool, typer.Option(help="Also every other engine that is installed, on the same work.")
    ] = True,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the engines into this PNG file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure what a durable step costs here, against this disk's floor and against others."""
    with Console(stderr=True).status("measuring") as status:
        options: dict[str, Any] = {"quick": quick, "engines": engines}
        try:
            measured = measure(**options, progress=lambda part: status.update(f"measuring {part}"))
        except RuntimeError as error:  # an engine that doesn't come up
            raise ValueError(str(error)) from error
    if picture is not None:
        _draw_engines(measured, picture)
    if as_json:
        print_json(measured)
        return
    shown = table("what", "measured")
    for group in ("floor", "durable_mini", "ratios"):
        for name, value in measured[group].items():
            add(shown, f"{group}: {name.replace('_', ' ')}", f"{value:,.3g}")
    console().print(shown)
    if measured["peers"]:
        beside = table("engine", "storage", "steps/s", "durable_mini makes")
        for peer in measured["peers"]:
            rate, ratio = f"{peer['steps_per_s']:,.3g}", f"{peer['ratio']:,.3g} times as many"
            add(beside, f"{peer['name']} {peer['version']}", peer["storage"], rate, ratio)
        console().print(beside)


def _draw_engines(measured: dict[str, Any], path: Path) -> None:
    """Draw them into a file, and print the sentence for whoever can't see it."""
    from durable_mini.lab.engines.pictures import bench_figure  # noqa: PLC0415 - takes a second

    drawn = bench_figure(measured)
    path.write_bytes(drawn.png())
    typer.echo(f"{path}: {drawn.alt}", err=True)


# ---- chaos, journals, grading --------------------------------------------------------------------

for _command, _example in (
    (killing.chaos, "chaos --runs 100 --crash-rate 0.2 --journal chaos.db"),
    (journals.runs, "runs journal.db --status failed --status needs_attention --older-than 2h"),
    (journals.show, "show journal.db t-1"),
    (journals.verify, "verify journal.db"),
    (journals.prune, "prune journal.db --older-than 30d --dry-run"),
    (marking.grade, "grade handed-in/ --roster class.csv --out results --seed 271828"),
    (quizzing.quiz, "quiz --core --no-clock"),
    (work, "work journal.db --workflows my_package.flows --forever"),
):
    app.command(epilog=f"Example: {PROGRAM} {_example}")(_command)


# ---- printing ----------------------------------------------------------------------------------


@contextmanager
def _progress(what: str, total: int) -> Iterator[Any]:
    """Give a function that counts work done; a bar appears on a terminal after a second of work."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=total)
    shown_at_s = time.monotonic() + SILENT_S
    shows = sys.stderr.isatty()

    def advance(done: int) -> None:
        bar.advance(task, done)
        if shows and not bar.live.is_started and time.monotonic() > shown_at_s:
            bar.start()

    try:
        yield advance
    finally:
        if bar.live.is_started:
            bar.stop()
