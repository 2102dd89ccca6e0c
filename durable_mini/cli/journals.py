"""The commands about a journal file: `runs`, `show`, `verify`, `prune`.

Guarantees: what looks at a journal changes nothing in it, creates no file, and needs none of its
workflows; a file of either kind is known by what is in it. Leaves to others: driving runs (`work`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from durable_mini import (
    Engine,
    Event,
    JournalCorruptError,
    NotAJournalError,
    Run,
    RunStatus,
    SQLiteJournal,
    SystemClock,
    UnknownRunError,
)
from durable_mini.cli import printing, timeline
from durable_mini.cli.printing import ANSWER_IS_NO, complain, console, lasting, print_json
from durable_mini.events import RunRow
from durable_mini.journal import Journal
from durable_mini.journal.file import FileJournal
from durable_mini.ops import Problem, Verification, prune as prune_journal, verify as verify_journal

JournalPath = Annotated[Path, typer.Argument(metavar="JOURNAL", help="A journal file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")]


def runs(
    journal: JournalPath,
    status: Annotated[
        list[RunStatus] | None,
        typer.Option(help="Only runs that stand so. Give it again for more."),
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option(
            parser=printing.seconds, metavar="AGE", help="Admitted so long ago: 90s, 2h, 3d."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of a journal and how they stand; exit status 1 if some can't be read."""
    now_s = SystemClock().now()
    told: list[tuple[RunRow, Run, list[Event]]] = []
    damaged: list[str] = []
    pruned = known = 0
    with opened(journal) as store:
        for row in _rows(store, damaged):
            known += 1
            pruned += row.pruned_at is not None
            if row.pruned_at is None and (not status or row.status in status):
                told += _read(store, row, damaged)
    chosen = [one for one in told if now_s - _begun_at_s(one[2]) >= (older_than or 0.0)]
    if as_json:
        print_json([_run_row(*one) for one in chosen])
    elif chosen:
        console().print(_runs_table(chosen, now_s))
    elif not damaged:
        typer.echo(f"{journal} holds {f'none such, of {known} runs' if known else 'no runs yet'}.")
    if pruned and not as_json:
        typer.echo(f"Not listed: {pruned} pruned, of which only the id is left.")
    for message in damaged:
        complain(message, ANSWER_IS_NO)
    if damaged:
        raise typer.Exit(ANSWER_IS_NO)


def show(
    journal: JournalPath,
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="A run of this journal.")],
    generation: Annotated[
        int | None, typer.Option(help="Which generation's history; the newest by default.", min=1)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show one run and its history as a timeline: tries, waits, attempts, costs."""
    with opened(journal) as store:
        row = store.row(run_id)
        if row is not None and row.pruned_at is not None:
            raise ValueError(
                f"run {run_id} was pruned at {printing.time(row.pruned_at)}: its history is gone. "
                f"Next: its id can be used again with engine.start(..., reuse=True)."
            )
        engine = Engine(store)
        run, events = engine.describe(run_id), engine.history(run_id, generation)
        row = store.find(run_id)
    shown = generation or run.generation
    if as_json:
        rows = [_event_row(event) for event in events]
        more = {"input": run.input, "shown_generation": shown, "history": rows}
        print_json({**_run_row(row, run, events), **more})
        return
    screen = console()
    for line in timeline.header(run, row, shown, SystemClock().now()):
        screen.print(Text(printing.plain(line)), soft_wrap=True)
    screen.print(timeline.timeline(events))
    for line in (line for event in events for line in timeline.remarks(event)):
        screen.print(Text(printing.plain(line)), soft_wrap=True)


def verify(journal: JournalPath, as_json: AsJson = False) -> None:
    """Check every checksum and law of a journal; exit status 1 if anything is broken."""
    try:
        with opened(journal) as store:
            report = verify_journal(store)
    except JournalCorruptError as error:  # so damaged that it can't even be opened
        report = Verification(0, 0, (Problem(error.run_id, error.seq, error.reason),))
    if as_json:
        problems = [problem._asdict() for problem in report.problems]
        print_json({"ok": report.ok, **report._asdict(), "problems": problems})
    else:
        for found in report.problems:
            typer.echo(printing.plain(_problem_line(found)))
        verdict = "all is well" if report.ok else f"{len(report.problems)} problems"
        typer.echo(f"{report.runs} runs, {report.events} events: {verdict}")
    if not report.ok:
        raise typer.Exit(ANSWER_IS_NO)


def prune(
    journal: JournalPath,
    older_than: Annotated[
        float,
        typer.Option(
            parser=printing.seconds, metavar="AGE", help="Ended so long ago: 90s, 2h, 30d."
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Remove nothing, and list what would go.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove the histories of runs that ended long ago; their ids stay taken."""
    with opened(journal, read_only=dry_run) as store:
        pruned = prune_journal(store, older_than_s=older_than, dry_run=dry_run)
    if as_json:
        print_json({"pruned": pruned, "dry_run": dry_run})
        return
    for run_id in pruned:
        typer.echo(run_id)
    done = "would be pruned" if dry_run else "pruned"
    typer.echo(f"{len(pruned)} runs {done} that ended at least {lasting(older_than)} ago")


@contextmanager
def opened(path: Path, *, read_only: bool = True) -> Iterator[Journal]:
    """The journal at a path, of whichever kind it is; one that isn't there is never created."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file. Next: check the path.")
    if path.is_file() and path.stat().st_size == 0:
        raise ValueError(f"{path} is not a journal: it is empty. Next: check the path.")
    with printing.warnings_told(), _of_its_kind(path, read_only=read_only) as journal:
        yield journal


def _of_its_kind(path: Path, *, read_only: bool) -> Journal:
    """SQLite has to look first: only it knows how to, without giving up locks on its file."""
    locked_out = not os.access(path.absolute().parent, os.W_OK)
    try:
        if not locked_out:
            return SQLiteJournal(path, read_only=read_only)
        reason = "its folder is read-only, and SQLite keeps a lock file there even to read"
        refusal: Exception = PermissionError(
            f"{path}: {reason}. Next: copy the journal to a folder that you can write."
        )
    except NotAJournalError as error:
        refusal = error
    try:
        return FileJournal(path, read_only=read_only)
    except NotAJournalError:
        raise refusal from None


def _rows(journal: Journal, damaged: list[str]) -> Iterator[RunRow]:
    """Each run's row; one that is damaged is told and doesn't hide the next."""
    rows = journal.rows()
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except JournalCorruptError as error:
            damaged.append(str(error))


def _read(
    journal: Journal, row: RunRow, damaged: list[str]
) -> list[tuple[RunRow, Run, list[Event]]]:
    engine = Engine(journal)
    try:
        return [(row, engine.describe(row.run_id), engine.history(row.run_id))]
    except JournalCorruptError as error:
        damaged.append(str(error))
    except UnknownRunError:  # pruned in this moment
        pass
    return []


def _begun_at_s(events: Sequence[Event]) -> float:
    """When a run was admitted, in its first generation."""
    return float(events[0].payload.get("since", events[0].recorded_at))


def _run_row(row: RunRow, run: Run, events: Sequence[Event]) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "generation": run.generation,
        "workflow": run.workflow,
        "version": run.version,
        "status": run.status.value,
        "attempts": run.attempts,
        "events": len(events),
        "cost": run.cost,
        "result": run.result,
        "error": None if run.error is None else run.error._asdict(),
        "waiting_for": run.waiting_for,
        "admitted_at": _begun_at_s(events),
        "due_at": row.due_at,
        "parent": row.parent,
        "worker": row.worker,
        "lease_until": row.lease_until,
    }


def _event_row(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "kind": event.kind.value,
        "name": event.name,
        "recorded_at": event.recorded_at,
        "payload": event.payload,
    }


def _runs_table(told: Sequence[tuple[RunRow, Run, list[Event]]], now_s: float) -> Table:
    columns = "run", "workflow", "version", "status", "attempts", "events", "cost", "age"
    table = printing.table(*columns, "waits for, or error")
    for _, run, events in told:
        note = "" if run.waiting_for is None else timeline.with_time(run.waiting_for)
        if run.error is not None:
            note = timeline.told_error(run.error)
        printing.add(
            table,
            run.run_id,
            run.workflow,
            run.version,
            run.status.value,
            f"{run.attempts}",
            f"{len(events)}",
            f"{run.cost:g}",
            lasting(now_s - _begun_at_s(events)),
            printing.shortened(note),
        )
    return table


def _problem_line(found: Problem) -> str:
    where = "journal" if found.run_id is None else f"run {found.run_id}"
    return f"{where}{'' if found.seq is None else f', event {found.seq}'}: {found.problem}"
