"""Steps per second of each engine, on the seven steps of the reference agent, paired in one run.

Guarantees: every engine has a worker process of its own that runs the agent's file, with the world
in that process, so that nothing but the engine takes time; one run follows the other. The engines
take turns, round after round, so that a machine that is slow for a while is slow for all; a ratio
is the median over the rounds of durable_mini's rate divided by the other's in the same round. Each
store has the durability it ships with. Leaves to others: the floor of the disk (`lab.bench`).
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import Any

from durable_mini.lab.engines.catalogue import Setup, setup_named
from durable_mini.lab.engines.gate import STEPS
from durable_mini.lab.engines.job import BENCH, KEYLESS, ORDER, WORLD
from durable_mini.lab.engines.trial import listen, worker_process

OWN = "durable_mini"
LIMIT_S = 120.0
_MOST_RUNS = 100


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast one engine is.

    Attributes:
        setup: its name in the catalogue.
        name: its name for people.
        version: what is installed.
        storage: where its records are, with the durability that it ships with.
        steps_per_s: the median over the rounds.
        ratio: how many times as many steps durable_mini makes; the median over the rounds.
        low: the smallest ratio of a round.
        high: the largest.
    """

    setup: str
    name: str
    version: str
    storage: str
    steps_per_s: float
    ratio: float
    low: float
    high: float


class _Side:
    """One engine that is up, and takes its turns."""

    def __init__(self, setup: Setup, process: Popen[str]) -> None:
        self.setup, self._process = setup, process
        self.rates: list[float] = []
        self._hear("come up")

    def warm_up(self, round_s: float) -> None:
        """Settle how many runs fill a turn; the first runs are slower and count for nothing."""
        self._turn(2)
        self.runs = max(2, min(_MOST_RUNS, round(round_s / (self._turn(2) / 2))))

    def take_turn(self) -> None:
        """Do a turn's work, and note the rate."""
        self.rates.append(self.runs * len(STEPS) / self._turn(self.runs))

    def _turn(self, runs: int) -> float:
        if self._process.stdin is not None:
            self._process.stdin.write(f"{runs}\n")
            self._process.stdin.flush()
        return float(self._hear("run")["seconds"])

    def _hear(self, what: str) -> dict[str, Any]:
        told = listen(self._process, LIMIT_S)
        if not told:
            raise RuntimeError(f"{self.setup.name} didn't {what}. Next: run its file by hand.")
        return told


def compare(
    setups: Sequence[Setup],
    *,
    rounds: int = 5,
    round_s: float = 1.0,
    folder: Path | None = None,
    progress: Callable[[str], None] = lambda _part: None,
) -> list[Speed]:
    """Let durable_mini and other engines take turns at running the reference agent.

    Args:
        setups: the others; durable_mini, which comes first in every round, isn't named.
        rounds: how many turns each takes.
        round_s: about how long a turn lasts.
        folder: below which folder the stores lie, on the disk that is to be measured.
        progress: called with what begins.

    Returns:
        One for each of the setups, in their order, after durable_mini's own.

    Raises:
        RuntimeError: an engine doesn't come up, or stops.
    """
    with ExitStack() as stack:
        sides = []
        for setup in (setup_named(OWN), *setups):
            progress(f"{setup.name}: starting")
            sides.append(stack.enter_context(_up(setup, folder)))
            sides[-1].warm_up(round_s)
        for number in range(rounds):
            for side in sides:
                progress(f"{side.setup.name}: turn {number + 1} of {rounds}")
                side.take_turn()
        return [_speed(side, sides[0]) for side in sides]


@contextmanager
def _up(setup: Setup, folder: Path | None) -> Iterator[_Side]:
    """An engine on a fresh store, with a worker that waits for its turns."""
    with (
        TemporaryDirectory(dir=folder, prefix="speed-") as made,
        setup.service(Path(made)) as where,
    ):
        ours = (WORLD, KEYLESS, ORDER)
        inherited = {name: value for name, value in os.environ.items() if name not in ours}
        environment = {**inherited, **where, **setup.settings, BENCH: "yes"}
        with worker_process(setup.path, environment, Path(made, "worker.log")) as process:
            yield _Side(setup, process)


def _speed(side: _Side, own: _Side) -> Speed:
    pairs = zip(own.rates, side.rates, strict=True)
    ratios = [ours / theirs for ours, theirs in pairs]
    return Speed(
        side.setup.name,
        side.setup.engine,
        side.setup.version(),
        side.setup.storage,
        round(statistics.median(side.rates), 1),
        round(statistics.median(ratios), 2),
        round(min(ratios), 2),
        round(max(ratios), 2),
    )
