"""The reference agent on DBOS and PostgreSQL, while its workers are killed with SIGKILL.

Guarantees: the workers are real processes, killed whatever they are doing, whenever a number of
runs drawn at random has ended, and started again under the same executor id; the books of the world
outside are one file, beside which every request is counted too. The same tickets on durable_mini,
undisturbed, are what it is compared with. Leaves to others: PostgreSQL (`lab.engines.services`).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from durable_mini.bridges.dbos.engine import DBOSEngine
from durable_mini.bridges.measured import Killed
from durable_mini.engine import Engine
from durable_mini.events import ENDED, RunStatus
from durable_mini.journal.memory import MemoryJournal
from durable_mini.lab.agent import agent_in
from durable_mini.lab.engines.services import postgres, postgres_binary
from durable_mini.lab.ledger import Ledger, LedgerRow

PACKAGE = "durable_mini.bridges.dbos"
URL = "DBOS_SYSTEM_DATABASE_URL"
_LIMIT_S = 600.0
_LOOK_EVERY_S = 0.1
_MOST_BETWEEN = 8  # runs that end between two kills
_EFFECTS = 3


class CountingLedger(Ledger):
    """A ledger with a file of its own in which each request leaves a line, taken or not."""

    def __init__(self, folder: Path) -> None:
        super().__init__(path=folder / "ledger.jsonl")
        self._requests = folder / "requests"

    def post(self, endpoint: str, order: str, body: object, key: str) -> str:
        """See `Ledger.post`."""
        line = os.open(self._requests, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(line, f"{key}\n".encode())
        os.close(line)
        return super().post(endpoint, order, body, key)


def kill_workers(
    runs: int = 200,
    workers: int = 2,
    seed: int = 0,
    on_look: Callable[[int, int], object] = lambda ended, kills: None,
) -> Killed:
    """Start runs, and kill the workers that drive them until all have ended.

    Args:
        runs: how many.
        workers: how many processes at a time.
        seed: of when which one is killed; what it is at then is up to the machine.
        on_look: called with the number of runs that have ended, and of kills, now and then.

    Raises:
        RuntimeError: there is no PostgreSQL, or the runs don't come to their end in time.
    """
    tickets = {f"o-{number}": {"order": f"o-{number}"} for number in range(runs)}
    begun_s = time.monotonic()
    with TemporaryDirectory() as made, postgres(URL)(Path(made)) as settings, ExitStack() as stack:
        folder, url, agent = Path(made), settings[URL], agent_in(Ledger())
        engine = DBOSEngine(url, [agent])
        stack.callback(engine.close)
        for run_id, ticket in tickets.items():
            engine.start(agent, ticket, run_id=run_id)
        crew = [_Worker(f"worker-{n}", url, folder) for n in range(workers)]
        for worker in crew:
            stack.callback(worker.kill)
        kills = _killing(engine, crew, runs, random.Random(seed), on_look)
        told = {run_id: engine.describe(run_id) for run_id in tickets}
        rows = CountingLedger(folder)
        requests = len((folder / "requests").read_bytes().splitlines())
    results, expected = _undisturbed(tickets)
    return Killed(
        runs,
        workers,
        kills,
        completed=sum(run.status is RunStatus.COMPLETED for run in told.values()),
        repeated=requests - runs * _EFFECTS,
        duplicates=rows.repeats,
        same_results={run_id: run.result for run_id, run in told.items()} == results,
        same_effects=set(map(repr, rows.rows)) == set(map(repr, expected)),
        wall_s=round(time.monotonic() - begun_s, 1),
    )


def _killing(
    engine: DBOSEngine,
    crew: Sequence[_Worker],
    runs: int,
    drawn: random.Random,
    on_look: Callable[[int, int], object],
) -> int:
    """Kill and restart workers until all runs have ended; how often one was killed."""
    kills, until_s, due = 0, time.monotonic() + _LIMIT_S, drawn.randint(1, _MOST_BETWEEN)
    while (ended := sum(engine.standing()[RunStatus(one)] for one in ENDED)) < runs:
        on_look(ended, kills)
        up = [worker for worker in crew if worker.is_up()]
        if up and ended >= due:
            drawn.choice(up).begin_again()
            kills, due = kills + 1, ended + drawn.randint(1, _MOST_BETWEEN)
        if time.monotonic() > until_s:
            raise RuntimeError(f"{ended} of {runs} runs had ended after {_LIMIT_S:g} s")
        time.sleep(_LOOK_EVERY_S)
    return kills


class _Worker:
    """A process that drives runs, and what it is called."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self._up = folder / f"{name}.up"
        self._command = [sys.executable, "-m", PACKAGE, "work", url, str(folder), name]
        self._process = self._begun()

    def _begun(self) -> subprocess.Popen[bytes]:
        self._up.unlink(missing_ok=True)
        return subprocess.Popen(self._command, stdin=subprocess.DEVNULL)  # noqa: S603

    def is_up(self) -> bool:
        """Whether it has said so."""
        return self._up.exists()

    def kill(self) -> None:
        """SIGKILL, in the middle of whatever it is doing."""
        self._process.kill()
        self._process.wait()

    def begin_again(self) -> None:
        """Kill it, and start it under the same name."""
        self.kill()
        self._process = self._begun()


def work(url: str, folder: Path, name: str) -> None:
    """Be a worker, until killed."""
    with DBOSEngine(url, [agent_in(CountingLedger(folder))], concurrency=8).working(name):
        (folder / f"{name}.up").touch()
        while True:
            time.sleep(1.0)


def _undisturbed(
    tickets: dict[str, dict[str, str]],
) -> tuple[dict[str, object], Sequence[LedgerRow]]:
    """Results and requests of the same tickets on durable_mini."""
    ledger = Ledger()
    engine = Engine(MemoryJournal(), [agent := agent_in(ledger)])
    told = {run_id: engine.run(agent, ticket, run_id=run_id) for run_id, ticket in tickets.items()}
    return {run_id: run.result for run_id, run in told.items()}, ledger.rows


def postgres_version() -> str:
    """What the PostgreSQL here says that it is."""
    asked = [postgres_binary("postgres") or "postgres", "--version"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout  # noqa: S603
    return f"PostgreSQL {said.split()[2]}"
