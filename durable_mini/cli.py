"""The command `durable-mini`: the course, both results tables, and what a journal file holds.

Guarantees: exit status 0 for done, 1 when the answer is no, 2 for wrong use, 130 after Ctrl-C. What
went wrong is one line on stderr. A command that looks at a journal changes nothing in it, creates
no file, and needs none of its workflows. Everything that is more than reading arguments and
printing answers is left to the modules below.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from durable_mini import DurableError, Engine, Event, JournalCorruptError, Run, SQLiteJournal
from durable_mini.lab import results as lab_results
from durable_mini.lab.bench import bench as measure
from durable_mini.lab.course import jupyter_command, open_jupyter, working_folder
from durable_mini.ops import Problem, Verification, verify as verify_journal

PROGRAM = "durable-mini"
DONE, ANSWER_IS_NO, WRONG_USE, STOPPED = 0, 1, 2, 130
SHOWN_CHARACTERS = 60
SILENT_S = 1.0  # a command that takes longer than this says how far it is

app = typer.Typer(
    name=PROGRAM,
    help="Learn durable execution by running it.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

JournalPath = Annotated[Path, typer.Argument(metavar="JOURNAL", help="A journal file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; every error of use is one line on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, for_jupyter = _split(given)
    try:
        status = app(own, prog_name=PROGRAM, standalone_mode=False, obj=for_jupyter) or DONE
        sys.stdout.flush()
    except typer.TyperException as error:
        return _complain(error.format_message(), WRONG_USE)
    except (KeyboardInterrupt, typer.Abort):
        status = STOPPED
    except BrokenPipeError:  # the reader of our output, `head` perhaps, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ANSWER_IS_NO
    except OSError as error:
        known = error.strerror and error.filename
        return _complain(f"{error.filename}: {error.strerror}" if known else f"{error}", WRONG_USE)
    except (DurableError, ValueError) as error:
        return _complain(str(error), WRONG_USE)
    return _complain("stopped by Ctrl-C", STOPPED) if status == STOPPED else int(status)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Cut off what follows `--` in `course FOLDER -- …`: it is meant for JupyterLab."""
    if arguments[:1] != ["course"] or "--" not in arguments:
        return arguments, []
    cut = arguments.index("--")
    return arguments[:cut], arguments[cut + 1 :]


def _complain(message: str, status: int) -> int:
    print(_plain(f"{PROGRAM}: {' '.join(message.split())}"), file=sys.stderr)
    return status


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
        _print_json(tables)
    else:
        lab_results.print_results(tables, _console())


# ---- bench -------------------------------------------------------------------------------------


@app.command(epilog=f"Example: {PROGRAM} bench --quick")
def bench(
    quick: Annotated[bool, typer.Option(help="Fewer repetitions, for a look.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure what a durable step costs here, against the floor of this folder's disk."""
    console = Console(stderr=True)
    with console.status("measuring") as status:
        measured = measure(quick=quick, progress=lambda part: status.update(f"measuring {part}"))
    if as_json:
        _print_json(measured)
        return
    table = _table("what", "measured")
    for group in ("floor", "durable_mini", "ratios"):
        for name, value in measured[group].items():
            _add(table, f"{group}: {name.replace('_', ' ')}", f"{value:,.3g}")
    _console().print(table)


# ---- journals ----------------------------------------------------------------------------------


@app.command(epilog=f"Example: {PROGRAM} runs journal.db")
def runs(journal: JournalPath, as_json: AsJson = False) -> None:
    """List the runs of a journal and how they stand; exit status 1 if some can't be read."""
    told: list[tuple[Run, int]] = []
    damaged: list[str] = []
    with _checked(journal) as opened:
        engine = Engine(opened)
        for row in opened.rows():
            try:
                told.append((engine.describe(row.run_id), len(engine.history(row.run_id))))
            except JournalCorruptError as error:  # one damaged run doesn't hide the others
                damaged.append(str(error))
    if as_json:
        _print_json([_run_row(run, events) for run, events in told])
    elif told:
        _console().print(_runs_table(told))
    elif not damaged:
        typer.echo(f"{journal} holds no runs yet.")
    for message in damaged:
        _complain(message, ANSWER_IS_NO)
    if damaged:
        raise typer.Exit(ANSWER_IS_NO)


@app.command(epilog=f"Example: {PROGRAM} show journal.db t-1")
def show(
    journal: JournalPath,
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="A run of this journal.")],
    as_json: AsJson = False,
) -> None:
    """Show one run and its history, event by event."""
    with _opened(journal) as engine:
        run, events = engine.describe(run_id), engine.history(run_id)
    if as_json:
        rows = [_event_row(event) for event in events]
        _print_json({**_run_row(run, len(events)), "input": run.input, "history": rows})
    else:
        _print_run(run, events)


@app.command(epilog=f"Example: {PROGRAM} verify journal.db")
def verify(journal: JournalPath, as_json: AsJson = False) -> None:
    """Check every checksum and law of a journal; exit status 1 if anything is broken."""
    try:
        with _checked(journal) as opened:
            report = verify_journal(opened)
    except JournalCorruptError as error:  # so damaged that it can't even be opened
        report = Verification(0, 0, (Problem(error.run_id, error.seq, error.reason),))
    if as_json:
        problems = [
            {"run_id": found.run_id, "seq": found.seq, "problem": found.problem}
            for found in report.problems
        ]
        summary = {"ok": report.ok, "runs": report.runs, "events": report.events}
        _print_json({**summary, "problems": problems})
    else:
        for found in report.problems:
            typer.echo(_problem_line(found.run_id, found.seq, found.problem))
        verdict = "all is well" if report.ok else f"{len(report.problems)} problems"
        typer.echo(f"{report.runs} runs, {report.events} events: {verdict}")
    if not report.ok:
        raise typer.Exit(ANSWER_IS_NO)


@contextmanager
def _opened(path: Path) -> Iterator[Engine]:
    """An engine that reads the journal at `path` and knows no workflow."""
    with _checked(path) as journal:
        yield Engine(journal)


def _checked(path: Path) -> SQLiteJournal:
    """Open a journal that is there already; the engine itself would create a missing one."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file. Next: check the path.")
    if path.is_file() and path.stat().st_size == 0:
        raise ValueError(f"{path} is not a journal: it is empty. Next: check the path.")
    if not os.access(path.absolute().parent, os.W_OK):
        raise PermissionError(
            f"{path}: its folder is read-only, and SQLite keeps a lock file there even to read. "
            "Next: copy the journal to a folder that you can write."
        )
    return SQLiteJournal(path, read_only=True)


def _run_row(run: Run, events: int) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "generation": run.generation,
        "workflow": run.workflow,
        "version": run.version,
        "status": run.status.value,
        "attempts": run.attempts,
        "events": events,
        "cost": run.cost,
        "result": run.result,
        "error": None if run.error is None else run.error._asdict(),
    }


def _event_row(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "kind": event.kind.value,
        "name": event.name,
        "recorded_at": event.recorded_at,
        "payload": event.payload,
    }


def _runs_table(told: Sequence[tuple[Run, int]]) -> Table:
    table = _table("run", "workflow", "version", "status", "attempts", "events", "cost")
    for run, events in told:
        _add(
            table,
            run.run_id,
            run.workflow,
            run.version,
            run.status.value,
            f"{run.attempts}",
            f"{events}",
            f"{run.cost:g}",
        )
    return table


def _print_run(run: Run, events: Sequence[Event]) -> None:
    console = _console()
    for line in _run_lines(run):
        console.print(Text(line), soft_wrap=True)
    table = _table("seq", "time (UTC)", "kind", "name", "result", "cost", "key")
    for event in events:
        payload = event.payload
        cost = payload.get("cost")
        _add(
            table,
            f"{event.seq}",
            _time(event.recorded_at),
            event.kind.value,
            event.name if event.name != event.kind else "",
            _outcome(payload),
            "" if cost is None else f"{cost:g}",
            payload.get("key", ""),
        )
    console.print(table)
    for event in events:
        for line in _remarks(event):
            console.print(Text(line), soft_wrap=True)


def _run_lines(run: Run) -> Iterator[str]:
    yield f"run {run.run_id}: workflow {run.workflow}, version {run.version}"
    yield f"{run.status.value}, attempts {run.attempts}, cost {run.cost:g}"
    if run.error is not None:
        yield _plain(f"error: {run.error.type}: {run.error.message}")
    yield ""


def _remarks(event: Event) -> Iterator[str]:
    """What else a reader of the history must know about an event."""
    payload = event.payload
    if payload.get("tries", 1) > 1:
        yield f"event {event.seq}: it took {payload['tries']} tries"
    if payload.get("opaque"):
        kinds = ", ".join(payload["opaque"])
        yield f"event {event.seq}: compared by its type alone: {kinds}"


def _outcome(payload: dict[str, Any]) -> str:
    if "error" in payload:
        return _shortened(f"{payload['error']['type']}: {payload['error']['message']}")
    if "result" in payload:
        return _shortened(json.dumps(payload["result"], ensure_ascii=False))
    return _shortened(f"input {json.dumps(payload.get('input'), ensure_ascii=False)}")


def _problem_line(run_id: str | None, seq: int | None, problem: str) -> str:
    where = "journal" if run_id is None else f"run {run_id}"
    return f"{where}{'' if seq is None else f', event {seq}'}: {problem}"


# ---- printing ----------------------------------------------------------------------------------


def _console() -> Console:
    """Where tables go: as wide as the terminal, and uncut where something else reads them."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 1_000)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        number = heading in {"seq", "attempts", "events", "cost"}
        table.add_column(heading, justify="right" if number else "left", overflow="fold")
    return table


def _add(table: Table, *cells: str) -> None:
    """Add a row as plain text: what stands in square brackets is the reader's, not markup."""
    table.add_row(*(Text(cell) for cell in cells))


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def _shortened(text: str) -> str:
    plain = _plain(text)
    return plain if len(plain) <= SHOWN_CHARACTERS else f"{plain[: SHOWN_CHARACTERS - 1]}…"


def _plain(text: str) -> str:
    """The text with every character that a terminal would obey instead of show written out."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def _time(recorded_at: float) -> str:
    """Seconds since the epoch for people; a clock beyond the calendar keeps its number."""
    try:
        return datetime.fromtimestamp(recorded_at, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{recorded_at:g} s"


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
