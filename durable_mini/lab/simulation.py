"""Monte Carlo through the real engine: every step of every run is journalled, crashed and replayed.

Guarantees: the same seed gives the same numbers on every machine; a strategy differs from another
in nothing but what it does after a crash and whether the receiver honours keys. Works in a Python
that has the standard library alone. Leaves to others: what the numbers should be (`theory`).
"""

import statistics
from collections.abc import Callable, Generator
from typing import NamedTuple

from durable_mini.engine import Engine
from durable_mini.journal.memory import MemoryJournal
from durable_mini.lab.agent import agent_in, shaped_agent
from durable_mini.lab.crashes import EQUAL_WEIGHTS, CrashPlan, InjectedCrash, Weights
from durable_mini.lab.ledger import Ledger
from durable_mini.lab.shape import REFERENCE_SHAPE, Shape
from durable_mini.lab.theory import Quantity, Result, check_setting
from durable_mini.structure import Workflow

CHUNK_RUNS = 50


class _Run(NamedTuple):
    """What one finished run came to."""

    cost: float
    restarts: int
    duplicates: int


def simulate(
    strategy: str,
    crash_rate: float = 0.08,
    runs: int = 400,
    seed: int = 0,
    *,
    weights: Weights = EQUAL_WEIGHTS,
    shape: Shape = REFERENCE_SHAPE,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Drive `runs` agents to completion under injected crashes, and count what it took.

    Args:
        strategy: "restart" (a crash starts over, nothing kept), "journal" (resume, the receiver
            ignores keys), "journal+key" (resume, the receiver drops a repeated key).
        crash_rate: chance that a live step crashes its worker, in [0, 1).
        runs: how many runs, at least 1.
        seed: of the crash schedule; "journal" and "journal+key" meet the same crashes.
        weights: chances of the three positions, given a crash.
        shape: the agent's steps and what each costs.
        progress: called with the number of runs finished since its last call.

    Returns:
        Means per run of cost and restarts, the total of duplicates, each with a 95 % interval.

    Raises:
        ValueError: an unknown strategy, or a number out of range.
    """
    steps = simulating(strategy, crash_rate, runs, seed, weights=weights, shape=shape)
    while True:
        try:
            finished = next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        if progress is not None:
            progress(finished)


def simulating(
    strategy: str,
    crash_rate: float,
    runs: int,
    seed: int,
    *,
    weights: Weights = EQUAL_WEIGHTS,
    shape: Shape = REFERENCE_SHAPE,
) -> Generator[int, None, Result]:
    """`simulate` in pieces: yields how many runs each piece finished, returns the result.

    Whoever drives it may stop in between, as a slider does when it is moved on.
    """
    check_setting(strategy, crash_rate, runs, weights, shape)
    plan = CrashPlan(crash_rate, f"{seed}/{crash_rate}", weights)  # rates don't share their luck
    done: list[_Run] = []
    world = Ledger(honour_keys=strategy == "journal+key")
    agent = agent_in(world) if shape == REFERENCE_SHAPE else shaped_agent(world, shape)
    drive = _restart_until_done if strategy == "restart" else _resume_until_done
    while len(done) < runs:
        count = min(CHUNK_RUNS, runs - len(done))
        engine = Engine(
            MemoryJournal(), [agent], probe=plan
        )  # a new one, so that memory stays flat
        for number in range(len(done), len(done) + count):
            spent, repeats = world.spent, world.repeats
            restarts = drive(engine, agent, f"r{number}")
            done.append(_Run(world.spent - spent, restarts, world.repeats - repeats))
        yield count
    return _summary(strategy, crash_rate, done)


def _restart_until_done(engine: Engine, agent: Workflow, order: str) -> int:
    """No memory: after a crash a new run works on the order, and knows nothing of the old one."""
    restarts = 0
    while True:
        try:
            engine.run(agent, order, run_id=f"{order}.{restarts}")
        except InjectedCrash:
            restarts += 1
        else:
            return restarts


def _resume_until_done(engine: Engine, agent: Workflow, order: str) -> int:
    """A journal: after a crash the same run is resumed, and replay skips what is recorded."""
    run_id = engine.start(agent, order, run_id=order)
    restarts = 0
    while True:
        try:
            engine.resume(run_id)
        except InjectedCrash:
            restarts += 1
        else:
            return restarts


def _summary(strategy: str, crash_rate: float, done: list[_Run]) -> Result:
    runs = len(done)
    cost, restarts, duplicates = (
        [float(value) for value in column] for column in zip(*done, strict=True)
    )
    return Result(
        strategy,
        crash_rate,
        runs,
        Quantity.per_run(statistics.fmean(cost), _sd(cost), runs),
        Quantity.per_run(statistics.fmean(restarts), _sd(restarts), runs),
        Quantity.total(statistics.fmean(duplicates), _sd(duplicates), runs),
    )


def _sd(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
