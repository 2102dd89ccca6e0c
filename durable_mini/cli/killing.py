"""The command `chaos`: real worker processes, really killed, beside what theory expects.

Guarantees: a bar counts on a terminal; Ctrl-C prints what was measured until then, with exit status
130, and leaves no process behind. Leaves to others: the experiment (`lab.experiment`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from durable_mini.cli.journals import AsJson
from durable_mini.cli.printing import (
    ANSWER_IS_NO,
    DONE,
    STOPPED,
    add,
    complain,
    console,
    print_json,
    table,
)
from durable_mini.lab.experiment import (
    CHAOS_STRATEGIES,
    ChaosReport,
    StrategyOutcome,
    chaos as experiment,
)

_Advance = Callable[[str, int, int], None]


def chaos(
    *,
    runs: Annotated[int, typer.Option(help="Runs of each strategy.")] = 40,
    crash_rate: Annotated[
        float, typer.Option(help="Chance of a kill at each live step, in [0, 1).")
    ] = 0.08,
    workers: Annotated[int, typer.Option(help="Worker processes beside each other.")] = 2,
    journal: Annotated[
        Path | None,
        typer.Option(
            help="A SQLite journal to keep, with the experiment's files beside it; "
            "what was begun there goes on."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the workers' luck.")] = 0,
    strategy: Annotated[
        list[str] | None,
        typer.Option(help="Only this one; may be repeated.", show_default="all four"),
    ] = None,
    random_kills: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Kill N workers per strategy at random times instead, with nothing in the workers "
            "that knows of it.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Kill real worker processes that drive the reference agent, and compare with the theory."""
    chosen = tuple(strategy or CHAOS_STRATEGIES)
    options: dict[str, Any] = {"strategies": chosen, "random_kills": random_kills}
    with _bars(chosen, runs) as advance:
        try:
            report = experiment(
                runs, crash_rate, workers, journal, seed, progress=advance, **options
            )
        except RuntimeError as error:  # a worker that failed by itself
            raise ValueError(str(error)) from error
    if as_json:
        print_json(report.to_json())
    else:
        print_report(report, console())
    if report.stopped:
        if journal:
            typer.echo("no worker is left. Next: the same command goes on.", err=True)
        raise typer.Exit(STOPPED)
    complaints = report.complaints()
    for line in complaints:
        complain(line, ANSWER_IS_NO)
    raise typer.Exit(ANSWER_IS_NO if complaints else DONE)


def print_report(report: ChaosReport, screen: Console) -> None:
    """Print one strategy after the other, each number beside what theory expects of it."""
    rate = report.crash_rate
    how = "killed at random times" if rate is None else f"crash rate {rate:g} per live step"
    shown = table("strategy", "", "measured", "exact", "95 % interval")
    screen.print(f"{report.runs:,} runs of each strategy, {report.workers} workers, {how}\n")
    for outcome in report.strategies:
        for row in _rows(outcome):
            add(shown, *row)
    screen.print(shown)


def _rows(outcome: StrategyOutcome) -> Iterator[tuple[str, ...]]:
    done = f"{outcome.completed:,} of {outcome.runs:,}"
    yield outcome.strategy, "completed", done, "", ""
    yield "", "lost", f"{outcome.lost:,}", "", ""
    yield "", "kills", f"{outcome.kills:,}", "", ""
    for what, measured in outcome.measured().items():
        digits = 0 if what == "duplicates" else 3
        expected = ("", "")
        if exact := outcome.expected.get(what):
            expected = f"{exact.mean:,.3f}", f"{exact.low:,.3f} to {exact.high:,.3f}"
        yield "", what, f"{measured:,.{digits}f}", *expected
    yield "", "seconds", f"{outcome.wall_s:,.1f}", "", ""


@contextmanager
def _bars(strategies: tuple[str, ...], runs: int) -> Iterator[_Advance | None]:
    """A bar for each strategy on a terminal, with its kills."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description:12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[kills]:,} killed"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {
            strategy: bars.add_task(strategy, total=runs, kills=0) for strategy in strategies
        }

        def advance(strategy: str, done: int, kills: int) -> None:
            bars.update(tasks[strategy], completed=done, kills=kills)

        yield advance
