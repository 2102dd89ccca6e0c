"""The command `work`: a worker on a journal, with the workflows of a module.

Guarantees: Ctrl-C and SIGTERM end it between two steps, and what it holds is given back; a second
one ends it at once. Leaves to others: claiming and driving (`Worker`).
"""

from __future__ import annotations

import importlib
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from durable_mini import Engine, Run, RunStatus, Worker, Workflow
from durable_mini.cli.journals import AsJson, JournalPath, opened
from durable_mini.cli.printing import DONE, STOPPED, print_json
from durable_mini.events import ENDED
from durable_mini.journal import Journal

_HEARTBEATS = 5  # in a lease
_POLL_S = 0.05


Workflows = Annotated[
    list[str],
    typer.Option(
        metavar="MODULE[:NAME]",
        help="Where the workflows are: all of a module, or one by its name. May be repeated.",
    ),
]
Forever = Annotated[bool, typer.Option(help="Go on when nothing is due, until Ctrl-C or SIGTERM.")]
Lease = Annotated[
    float, typer.Option(help="Seconds that a run stays claimed without a sign of life.", min=0.1)
]


def work(
    journal: JournalPath,
    workflows: Workflows,
    *,
    forever: Forever = False,
    worker_id: Annotated[
        str | None, typer.Option(help="This worker's name in the journal.")
    ] = None,
    lease: Lease = 5.0,
    as_json: AsJson = False,
) -> None:
    """Drive the runs that are due, until there are none; several may work on one SQLite journal."""
    found = [one for place in workflows for one in workflows_in(place)]
    with opened(journal, read_only=False) as store:
        tally = Tally()
        options: dict[str, Any] = {"lease_s": lease, "heartbeat_s": lease / _HEARTBEATS}
        engine = Engine(store, found)
        worker = Worker(engine, worker_id, on_attempt=tally.count, **options)
        tally.name = worker.worker_id
        with _stopped_by_signals(worker) as stopped, _watched(tally):
            worker.run_until_idle()
            while forever and not stopped:
                time.sleep(_POLL_S)
                worker.run_until_idle()
        left = _left_alone(engine, store)
    if as_json:
        print_json(tally.told())
    typer.echo(tally.line(), err=True)
    for line in left:
        typer.echo(line, err=True)
    raise typer.Exit(STOPPED if signal.SIGINT in stopped else DONE)


def workflows_in(place: str) -> list[Workflow]:
    """The workflows of a module, or the one that is named; modules of this folder are found too.

    Raises:
        ValueError: there is no such module, it can't be imported, or there is no workflow there.
    """
    name, _, wanted = place.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
        why = "there is no such module" if missing else f"{type(error).__name__}: {error}"
        hint = "name it as Python imports it from this folder, e.g. package.module"
        raise ValueError(f"--workflows {place}: {why}. Next: {hint}.") from error
    found = {key: one for key, one in vars(module).items() if isinstance(one, Workflow)}
    if wanted:
        found = {key: one for key, one in found.items() if key == wanted}
    if not found:
        there = "no workflow in it" if not wanted else f"no workflow {wanted!r} in it"
        hint = "decorate a function of it with @workflow"
        raise ValueError(f"--workflows {place}: there is {there}. Next: {hint}.")
    return list(found.values())


class Tally:
    """What a worker has done so far."""

    def __init__(self) -> None:
        self.name, self._begun_at_s = "", time.monotonic()
        self._counts = Counter[RunStatus]()

    def count(self, run: Run) -> None:
        """Called after each attempt, with the run as it stands then."""
        self._counts[run.status] += 1

    def told(self) -> dict[str, Any]:
        """For a machine."""
        counts = {status.value: self._counts[status] for status in RunStatus}
        taken_s = time.monotonic() - self._begun_at_s
        return {"worker": self.name, "attempts": self._counts.total(), **counts, "wall_s": taken_s}

    def line(self) -> str:
        """For people: attempts, how they ended, and how many runs ended a second."""
        told = self.told()
        counts = [f"{told[status]} {status}" for status in ("completed", "suspended", "failed")]
        rare = (RunStatus.CANCELLED, RunStatus.NEEDS_ATTENTION, RunStatus.PENDING)
        counts += [f"{told[one]} {one.replace('_', ' ')}" for one in rare if told[one]]
        rate = sum(self._counts[status] for status in map(RunStatus, ENDED)) / told["wall_s"]
        return f"{self.name}: {told['attempts']} attempts, {', '.join(counts)}, {rate:.1f} runs/s"


@contextmanager
def _stopped_by_signals(worker: Worker) -> Iterator[list[int]]:
    """Collects the signals that stopped the worker; a second one does what it always does."""
    stopped: list[int] = []
    before: dict[int, Any] = {}

    def stop(number: int, _: object) -> None:
        stopped.append(number)
        worker.stop()
        for one, handler in before.items():
            signal.signal(one, handler)

    for number in (int(signal.SIGINT), int(signal.SIGTERM)):
        before[number] = signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watched(tally: Tally) -> AbstractContextManager[Any]:
    """On a terminal, a line that counts."""
    if not sys.stderr.isatty():
        return nullcontext()
    screen = Console(stderr=True, highlight=False)
    options: dict[str, Any] = {"transient": True, "refresh_per_second": 4}
    return Live(console=screen, get_renderable=lambda: Text(tally.line()), **options)


def _left_alone(engine: Engine, journal: Journal) -> list[str]:
    """The workflows whose runs are due, and that nobody gave this worker."""
    waiting = (row for row in journal.rows() if row.due_at is not None)
    rows = (row for row in waiting if (row.workflow, row.version) not in engine.registered)
    due = Counter(f"{row.workflow!r} version {row.version!r}" for row in rows)
    why = "whose workflow wasn't given"
    return [f"left alone: {count} runs of {which}, {why}" for which, count in due.items()]
