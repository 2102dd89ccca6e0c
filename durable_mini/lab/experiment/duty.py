"""What one worker process of the experiment does: the same agent, kept going in four ways.

Guarantees: the four differ in nothing but what a crash leaves behind. Where the crash model asks
for a crash the worker tells so and holds still, so that the kill that follows falls exactly there.
Leaves to others: sending the kill (`chaos`), starting the next worker (`crew`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn

from durable_mini.engine import Engine
from durable_mini.events import EventKind, Position, Run
from durable_mini.journal.memory import MemoryJournal
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.lab.agent import agent_in
from durable_mini.lab.crashes import CrashPlan, InjectedCrash
from durable_mini.lab.experiment.books import Books
from durable_mini.lab.ledger import Outside
from durable_mini.lab.model import Model, asking_agent
from durable_mini.lab.world import Client
from durable_mini.structure import Workflow
from durable_mini.worker import Worker

LEASE_S = 2.0
_POLL_S = 0.02
_HEARTBEAT_S = 0.4
_FOR_EVER_S = 1e9  # a job of a supervised worker comes back when its supervisor sees it dead

Tell = Callable[..., None]


class Duty(NamedTuple):
    """What the workers of a strategy have to do.

    `journal`, `books` and `url` say where runs, jobs and the world outside are; `crash_rate` is the
    chance of a crash at each live step, None where nothing in the worker takes part in the killing.
    """

    strategy: str
    journal: str
    books: str
    url: str
    crash_rate: float | None
    seed: int


class _Standing:
    """A probe that holds still where the plan has a crash, until somebody kills the process."""

    def __init__(self, plan: CrashPlan, tell: Callable[..., None]) -> None:
        self._plan, self._tell = plan, tell

    def __call__(self, position: Position, kind: EventKind, name: str) -> None:
        try:
            self._plan(position, kind, name)
        except InjectedCrash:
            self._tell(standing=name, position=position)
            _hold_still()


def _hold_still() -> NoReturn:
    while True:
        threading.Event().wait()


def work(duty: Duty, worker_id: str, tell: Callable[..., None]) -> None:
    """Work until nothing of the strategy is left to do.

    Args:
        duty: what to do.
        worker_id: this worker's name.
        tell: called with the name and what happened: `up`, `standing`, a run's status, `left`.
    """
    say = partial(tell, worker_id)
    say(up=True)
    probe = None
    if duty.crash_rate is not None:  # every worker has luck of its own
        plan = CrashPlan(duty.crash_rate, f"{duty.seed}/{duty.strategy}/{worker_id}")
        probe = _Standing(plan, say)
    agent = agent_for(Client(duty.url))
    if duty.strategy.startswith("journal"):
        _work_on_journal(duty, worker_id, agent, probe, say)
    else:
        _work_on_jobs(duty, worker_id, agent, probe, say)
    say(left=True)


def agent_for(world: Outside) -> Workflow:
    """The reference agent with the model that the settings name, or with the scripted one."""
    model = Model.from_environment()
    return asking_agent(world, model) if model else agent_in(world)


def _work_on_journal(
    duty: Duty, worker_id: str, agent: Workflow, probe: _Standing | None, say: Callable[..., None]
) -> None:
    """Durable: whoever takes over a dead worker's run goes on at its first unfinished step."""

    def ended(run: Run) -> None:
        say(**{str(run.status): run.run_id})

    with SQLiteJournal(duty.journal) as journal:
        engine = Engine(journal, [agent], probe=probe)
        limits = {"lease_s": LEASE_S, "heartbeat_s": _HEARTBEAT_S, "poll_s": _POLL_S}
        worker = Worker(engine, worker_id, on_attempt=ended, **limits)
        worker.run_until_idle()
        while any(row.due_at is not None for row in journal.rows()):  # some wait for their next try
            time.sleep(_POLL_S)
            worker.run_until_idle()


def _work_on_jobs(
    duty: Duty, worker_id: str, agent: Workflow, probe: _Standing | None, say: Callable[..., None]
) -> None:
    """Not durable: each delivery of a job starts the agent from scratch, with nothing kept."""
    hidden_s = LEASE_S if duty.strategy == "queue" else _FOR_EVER_S
    with Books(duty.books) as books:
        while books.jobs_left(duty.strategy):
            job = books.take(duty.strategy, worker_id, time.time(), hidden_s)
            if job is None:
                time.sleep(_POLL_S)
                continue
            engine = Engine(MemoryJournal(), [agent], probe=probe)
            run = engine.run(agent, _ticket(job.name), run_id=f"{job.name}.{job.number}")
            books.finish(duty.strategy, job.name, run.status, failure_of(run))
            say(**{str(run.status): job.name})


def failure_of(run: Run) -> str:
    """What a run ended or stopped with; nothing where all went well."""
    return f"{run.error.type}: {run.error.message}" if run.error else ""


def _ticket(name: str) -> Any:
    return {"order": name}
