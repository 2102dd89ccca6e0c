"""Chaos: real worker processes on a real journal, really killed, beside what theory expects.

Guarantees: every figure is read from durable books after the fact: runs from the journal, costs and
duplicates from the receiver, kills from the experiment's own; nothing is counted in a process that
may be killed. An experiment that was stopped anywhere goes on from its files, and no process
outlives it. Leaves to others: the worker processes (`crew`, `duty`), the receiver (`world`), and
what the numbers should be (`theory`).

Two ways to kill. With a crash rate the workers take part: each draws, for each live step, whether
it dies there and at which of the three positions, says so, holds still, and is killed by a signal
from outside. That is the crash model of the closed forms, so the numbers can be compared. At random
times nothing in the worker knows of it: a kill falls on any worker at any moment, within a commit
or a request too. There is no closed form for that, but what must hold holds: every run completes,
and no keyed effect happens twice.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Any

from durable_mini.engine import Engine
from durable_mini.events import Run, RunStatus
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.lab.crashes import check_rate
from durable_mini.lab.experiment.books import Books
from durable_mini.lab.experiment.crew import Crew
from durable_mini.lab.experiment.duty import Duty, agent_for, failure_of
from durable_mini.lab.ledger import Ledger
from durable_mini.lab.model import Model
from durable_mini.lab.theory import Quantity, exact
from durable_mini.lab.world import Switches, World

CHAOS_STRATEGIES = ("restart", "queue", "journal", "journal+key")
"""Ways to go on after a crash. What `theory` doesn't know is the queue: see `expected`."""

MOST_WORKERS = 32

_STILL_OPEN = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.SUSPENDED)
_KILL_WITHIN_S = 0.05  # of the moment when a random kill is due: about what a run takes
_LAST_KILL = 0.9  # random kills are spread over this much of the runs


@dataclass(frozen=True, slots=True)
class StrategyOutcome:
    """What the runs of one strategy came to.

    Attributes:
        strategy: one of `CHAOS_STRATEGIES`.
        runs: how many were begun.
        completed: how many came to their end.
        lost: how many ended otherwise, or are known to nobody any more.
        kills: how many workers were killed.
        cost: what the model was paid, over all runs.
        duplicates: effects beyond the first of their kind for an order, as the receiver counts.
        wall_s: seconds from the first worker's start to the last one's end, over all sessions.
        expected: what theory expects, by the name of the quantity. Of kills at random times it
            expects nothing, and nothing of what a real model costs.
        failure: what the first run that wasn't completed ended with, if it says.
    """

    strategy: str
    runs: int
    completed: int
    lost: int
    kills: int
    cost: float
    duplicates: int
    wall_s: float
    expected: dict[str, Quantity]
    failure: str = ""

    def to_json(self) -> dict[str, Any]:
        """The same for a machine."""
        expected = self.expected.get
        return {
            "strategy": self.strategy,
            "runs": self.runs,
            "completed": self.completed,
            "lost": self.lost,
            "failure": self.failure or None,
            "kills": self.kills,
            "cost_per_run": _beside(self.cost / self.runs, expected("cost")),
            "restarts_per_run": _beside(self.kills / self.runs, expected("restarts")),
            "duplicate_effects": self.duplicates,
            "expected_duplicates": _beside(self.duplicates, expected("duplicates")),
            "wall_s": self.wall_s,
        }

    def complaints(self, sigmas: float = 4.0) -> list[str]:
        """What contradicts the theory or the guarantees; empty when all is well.

        Args:
            sigmas: how many standard errors a number may be from its closed form.
        """
        said = []
        if self.lost or self.completed != self.runs:
            why = f"; the first failed: {self.failure}" if self.failure else ""
            said.append(f"{self.strategy}: {self.completed} of {self.runs} runs completed{why}")
        if self.strategy == "journal+key" and self.duplicates:
            said.append(f"{self.strategy}: {self.duplicates} duplicates, with keys")
        for what, wanted in self.expected.items():
            measured = self.measured()[what]
            if abs(measured - wanted.mean) > sigmas * wanted.se:
                said.append(f"{self.strategy}: {what} {measured:g}, exact {wanted.mean:g}")
        return said

    def measured(self) -> dict[str, float]:
        """Cost and restarts per run, duplicates over all of them."""
        per_run = {"cost": self.cost / self.runs, "restarts": self.kills / self.runs}
        return {**per_run, "duplicates": self.duplicates}


@dataclass(frozen=True, slots=True)
class ChaosReport:
    """What an experiment came to; `stopped` says that Ctrl-C ended it before its end."""

    runs: int
    crash_rate: float | None
    workers: int
    seed: int
    strategies: tuple[StrategyOutcome, ...]
    stopped: bool = False

    def to_json(self) -> dict[str, Any]:
        """As `durable-mini chaos --json` prints it."""
        return {
            "runs": self.runs,
            "crash_rate": self.crash_rate,
            "workers": self.workers,
            "seed": self.seed,
            "stopped": self.stopped,
            "strategies": [outcome.to_json() for outcome in self.strategies],
        }

    def complaints(self, sigmas: float = 4.0) -> list[str]:
        """What contradicts the theory or the guarantees; empty when all is well."""
        return [line for outcome in self.strategies for line in outcome.complaints(sigmas)]


def expected(strategy: str, crash_rate: float | None, runs: int) -> dict[str, Quantity]:
    """What theory expects of a strategy: cost and restarts per run, duplicates over all of them.

    A queue with retries starts a job over after each crash, as `restart` does, so it has the same
    closed form: waiting for the delivery costs time, which no closed form here counts.
    """
    if crash_rate is None:
        return {}
    theory = exact("restart" if strategy == "queue" else strategy, crash_rate, runs)
    found = {"restarts": theory.restarts, "duplicates": theory.duplicates}
    return found if Model.from_environment() else {"cost": theory.cost, **found}


def chaos(
    runs: int = 40,
    crash_rate: float = 0.08,
    workers: int = 2,
    journal: str | Path | None = None,
    seed: int = 0,
    *,
    strategies: Sequence[str] = CHAOS_STRATEGIES,
    random_kills: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> ChaosReport:
    """Let worker processes drive the reference agent against the HTTP world, and kill them.

    Args:
        runs: how many runs each strategy has to complete.
        crash_rate: chance that a worker is killed at a live step, in [0, 1).
        workers: how many processes work beside each other.
        journal: a SQLite journal to work on and to keep, with the experiment's other files beside
            it; an experiment that was begun there goes on. By default a temporary one.
        seed: of the workers' luck, and of the random kills. Processes race each other, so the same
            seed doesn't give the same numbers.
        strategies: which of `CHAOS_STRATEGIES`.
        random_kills: kill this many workers per strategy at random times, instead of at the places
            that the crash rate asks for.
        progress: called with a strategy, its runs that are done, and its kills.

    Returns:
        What was measured beside what theory expects. After Ctrl-C what was measured until then.

    Raises:
        ValueError: a number out of range, an unknown strategy, or another experiment's journal.
        NotAJournalError, StorageError: the journal is something else, or can't be opened.
        RuntimeError: a worker failed by itself, which no experiment asks for.

    Crash:
        The workers end with this process, whatever ended it. The same call goes on.
    """
    _check(runs, crash_rate, workers, strategies, random_kills)
    rate = crash_rate if random_kills is None else None
    with _folder(journal) as path:
        settings: dict[str, Any] = {"runs": runs, "crash rate": rate, "seed": seed}
        settings |= {"random kills": random_kills, "strategies": [*strategies]}
        settings |= {"model": Model.from_environment()}
        with SQLiteJournal(path), Books(f"{path}-books.db") as books:  # refused before all else
            books.agree_on(settings)
        done, stopped = [], False
        for strategy in strategies:
            trial = _Trial(path, strategy, runs, rate, workers, seed, random_kills, progress)
            outcome, stopped = trial.run()
            done.append(outcome)
            if stopped:
                break
    return ChaosReport(runs, rate, workers, seed, tuple(done), stopped)


@dataclass(frozen=True, slots=True)
class _Trial:
    """One strategy's share of an experiment, with files of its own beside the journal."""

    path: Path
    strategy: str
    runs: int
    crash_rate: float | None
    workers: int
    seed: int
    random_kills: int | None
    progress: Callable[[str, int, int], None] | None

    def run(self) -> tuple[StrategyOutcome, bool]:
        """Work until everything is done; what it came to, and whether Ctrl-C came first."""
        stopped = False
        with Books(f"{self.path}-books.db") as books, self._world() as world:
            self._admit(books)
            began_s = time.monotonic()
            try:
                self._drive(books, world.url)
            except KeyboardInterrupt:
                stopped = True
            finally:
                books.note_session(self.strategy, time.monotonic() - began_s)
            completed, lost, failure = self._counted(books)
            outcome = StrategyOutcome(
                self.strategy,
                self.runs,
                completed,
                lost,
                books.kills(self.strategy),
                world.spent(),
                world.repeats(),
                books.wall_s(self.strategy),
                expected(self.strategy, self.crash_rate, self.runs),
                failure,
            )
        return outcome, stopped

    def _world(self) -> Any:
        switches = Switches(ignores_keys=self.strategy != "journal+key")
        return World.serving(f"{self.path}-world-{self.strategy}.db", switches)

    @property
    def _durable(self) -> bool:
        return self.strategy.startswith("journal")

    @property
    def _names(self) -> list[str]:
        return [f"{self.strategy}-{number}" for number in range(1, self.runs + 1)]

    def _admit(self, books: Books) -> None:
        """Put the work where the workers look for it; what is there already stays."""
        if not self._durable:
            books.put(self.strategy, self._names)
            books.release(self.strategy)  # nobody of an earlier session is alive
            return
        with SQLiteJournal(self.path) as journal:
            agent = agent_for(Ledger())  # of which nothing is executed here
            engine = Engine(journal, [agent])
            for name in self._names:
                engine.start(agent, {"order": name}, run_id=name)

    def _drive(self, books: Books, url: str) -> None:
        """Keep the workers' number up, and kill, until they find nothing left to do."""
        duty = Duty(
            self.strategy, str(self.path), f"{self.path}-books.db", url, self.crash_rate, self.seed
        )
        session = f"{time.time_ns():x}"  # so that no worker of an earlier session had its luck
        names = (f"{session}-{number}" for number in range(1, 1_000_000_000))
        done, *_ = self._counted(books)
        killer = _Killer(self, books.kills(self.strategy))
        with Crew(duty) as crew:
            for _ in range(self.workers):
                crew.start(next(names))
            while crew.alive:
                for told in crew.listen():
                    worker_id = told["worker"]
                    if "standing" in told:
                        books.note_kill(self.strategy, told["standing"], told["position"])
                        crew.kill(worker_id)
                    elif "completed" in told:
                        done += 1
                    elif told.get("ended") == -SIGKILL:
                        if self.strategy == "restart":
                            books.release(self.strategy, worker_id)
                        crew.start(next(names))
                    killer.hear(told, done)
                    if self.progress and {"standing", "completed"} & told.keys():
                        self.progress(self.strategy, done, books.kills(self.strategy))
                for victim in killer.victims(time.monotonic()):
                    books.note_kill(self.strategy, None, None)
                    crew.kill(victim)

    def _counted(self, books: Books) -> tuple[int, int, str]:
        """How many runs are completed and lost as the files have it, and how the first failed."""
        if self._durable:
            with SQLiteJournal(self.path) as journal:
                found = {run.run_id: run for run in Engine(journal).runs()}
            ended = [_ending(found.get(name)) for name in self._names]
        else:
            ended = books.endings(self.strategy)
        statuses = [status for status, _ in ended]
        still_open = sum(statuses.count(one) for one in _STILL_OPEN)
        completed = statuses.count(RunStatus.COMPLETED)
        failure = next((why for _, why in ended if why), "")
        return completed, len(statuses) - completed - still_open, failure


def _ending(run: Run | None) -> tuple[str, str]:
    """How a run stands, and what it failed with if it did."""
    if run is None:
        return "unknown", ""
    return str(run.status), failure_of(run)


class _Killer:
    """Chooses random workers at random times, so many that the kills are spread over the runs."""

    def __init__(self, trial: _Trial, killed: int) -> None:
        self._kills, self._chance = trial.random_kills or 0, random.Random(trial.seed)
        self._runs, self._planned, self._working = trial.runs, killed, set[str]()
        self._due_s: list[float] = []

    def hear(self, told: dict[str, Any], done: int) -> None:
        """Take note of who works, and plan the kills that have become due."""
        if "up" in told:
            self._working.add(told["worker"])
        elif {"left", "ended"} & told.keys():
            self._working.discard(told["worker"])
        share = min(1.0, done / (_LAST_KILL * self._runs))
        while self._planned < self._kills * share:
            self._planned += 1
            self._due_s.append(time.monotonic() + self._chance.uniform(0, _KILL_WITHIN_S))

    def victims(self, now_s: float) -> Iterator[str]:
        """The workers to kill now."""
        self._due_s.sort()
        while self._due_s and self._due_s[0] <= now_s and self._working:
            self._due_s.pop(0)
            victim = self._chance.choice(sorted(self._working))
            self._working.remove(victim)
            yield victim


@contextmanager
def _folder(journal: str | Path | None) -> Iterator[Path]:
    """Where the files of an experiment are: beside its journal, or in a folder that goes away."""
    if journal is not None:
        yield Path(journal)
        return
    with tempfile.TemporaryDirectory(prefix="durable-mini-chaos-") as folder:
        yield Path(folder) / "journal.db"


def _check(
    runs: int, crash_rate: float, workers: int, strategies: Iterable[str], random_kills: int | None
) -> None:
    check_rate(crash_rate)
    if runs < 1:
        raise ValueError(f"runs={runs}: at least one")
    if not 1 <= workers <= MOST_WORKERS:
        raise ValueError(f"workers={workers}: from 1 to {MOST_WORKERS}")
    if random_kills is not None and random_kills < 0:
        raise ValueError(f"random_kills={random_kills}: from 0")
    for strategy in strategies:
        if strategy not in CHAOS_STRATEGIES:
            known = ", ".join(CHAOS_STRATEGIES)
            raise ValueError(f"unknown strategy {strategy!r}; there are {known}")


def _beside(measured: float, theory: Quantity | None) -> dict[str, float | None]:
    exact, low, high = (theory.mean, theory.low, theory.high) if theory else (None, None, None)
    found: dict[str, float | None] = {"simulated": measured, "exact": exact}
    return {**found, "low95": low, "high95": high, "published": None}
