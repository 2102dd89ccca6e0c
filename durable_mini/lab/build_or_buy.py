"""A queue with retries or a durable engine: what a job costs on either, and where they are even.

Guarantees: the closed forms are exact for deaths that come at a constant rate, independently of
each other, to a worker that is started again at once; the simulation draws the deaths one by one
and knows nothing of the forms. Leaves to others: effects that are repeated (`theory`), waits that
you cut a job in two for, and everything else that isn't hours: those decide first.

**The model.** A worker dies `λ` times in an hour, busy or waiting. A job has `T` hours of work in
steps of `t` hours each, and waits `W` hours for somebody. Counted are hours for which a worker is
held.

- *A queue* holds a worker from the first step to the last one, the wait included, and starts over
  after each death. An attempt of `x` hours gets through with chance `e^(-λx)`; until one does, it
  takes `Q(x) = (e^(λx) - 1) / λ` hours on average. A job costs `Q(T + W)`.
- *An engine* starts over one step only, and holds nobody while it waits; each step costs `w` more,
  for its record, and each job `s`, its share of what the engine takes to operate. A job costs
  `(T/t) (Q(t) + w) + s`. A job that is shorter than a step is one step.

`Q` is the closed form for starting over of chapter 04, with a death at any instant instead of at
three places. Where `λT` is small, `Q(T) - T` is nearly `λT²/2`: half a job for each of `λT` deaths.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from random import Random

from durable_mini.lab.theory import Quantity

_MOST = 700.0  # what a float can raise e to


@dataclass(frozen=True, slots=True)
class Terms:
    """Everything that the bill depends on but the job's length.

    Attributes:
        deaths_per_h: how often a worker dies in an hour.
        step_h: hours of work in a step.
        write_h: hours that the record of a step adds.
        upkeep_h: a job's share of what operating the engine takes, in hours of a worker.
        wait_h: for how long the job waits for somebody.
    """

    deaths_per_h: float
    step_h: float
    write_h: float
    upkeep_h: float
    wait_h: float = 0.0

    def __post_init__(self) -> None:
        for name in ("deaths_per_h", "write_h", "upkeep_h", "wait_h"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is zero or more, not {getattr(self, name)!r}")
        if not 0.0 < self.step_h < math.inf:
            raise ValueError(f"a step takes some time, not {self.step_h!r} hours")


def until_done_h(deaths_per_h: float, span_h: float) -> float:
    """Return `Q`: the mean hours until a span is got through without a death; inf beyond floats.

    >>> round(until_done_h(0.5, 2.0), 3), until_done_h(0.0, 2.0)
    (3.437, 2.0)
    """
    if deaths_per_h == 0.0 or span_h == 0.0:
        return span_h
    deaths = deaths_per_h * span_h
    return math.expm1(deaths) / deaths_per_h if deaths < _MOST else math.inf


def queue_h(terms: Terms, work_h: float) -> float:
    """Return for how many hours a queue holds workers for one job, on average."""
    return until_done_h(terms.deaths_per_h, work_h + terms.wait_h)


def engine_h(terms: Terms, work_h: float) -> float:
    """Return for how many hours an engine holds workers for one job, its own cost included."""
    step_h = min(terms.step_h, work_h)
    if step_h == 0.0:
        return terms.upkeep_h
    one_step_h = until_done_h(terms.deaths_per_h, step_h) + terms.write_h
    return work_h / step_h * one_step_h + terms.upkeep_h


def break_even_h(terms: Terms) -> float:
    """Return the hours of work from which on the engine is cheaper.

        >>> round(break_even_h(Terms(1 / 6, step_h=1 / 120, write_h=0.0, upkeep_h=0.01)), 3)
        0.347

    Returns:
        0 where it is cheaper for any job, inf where it never is.
    """

    def ahead(work_h: float) -> bool:
        return queue_h(terms, work_h) > engine_h(terms, work_h)

    if ahead(0.0):
        return 0.0
    low, high = 0.0, terms.step_h
    while not ahead(high):
        low, high = high, 2 * high
        if high > 1e12:
            return math.inf
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if ahead(middle) else (middle, high)
    return high


def rule_of_thumb_h(terms: Terms) -> float:
    """Return `√(2s/λ)`, the break-even where steps are short, records cheap, deaths rare, no wait.

    >>> round(rule_of_thumb_h(Terms(1 / 6, step_h=1 / 120, write_h=0.0, upkeep_h=0.01)), 3)
    0.346
    """
    if terms.deaths_per_h == 0.0:
        return math.inf
    return math.sqrt(2 * terms.upkeep_h / terms.deaths_per_h)


def simulate_h(terms: Terms, work_h: float, runs: int, seed: int) -> tuple[Quantity, Quantity]:
    """Draw the deaths of `runs` jobs, on the queue and on the engine.

    Returns: the hours of one job on each, with a 95 % interval.
    """
    rng, steps = Random(f"{seed}/{work_h}"), max(1, round(work_h / terms.step_h))
    queue, engine = [], []
    for _ in range(runs):
        queue.append(_tried(rng, terms.deaths_per_h, work_h + terms.wait_h))
        spent = sum(_tried(rng, terms.deaths_per_h, work_h / steps) for _ in range(steps))
        engine.append(spent + steps * terms.write_h + terms.upkeep_h)
    return _measured(queue), _measured(engine)


def _tried(rng: Random, deaths_per_h: float, span_h: float) -> float:
    """The hours until one attempt at a span outlives it."""
    spent = 0.0
    while deaths_per_h and (lived_h := rng.expovariate(deaths_per_h)) < span_h:
        spent += lived_h
    return spent + span_h


def _measured(hours: list[float]) -> Quantity:
    return Quantity.per_run(statistics.fmean(hours), statistics.stdev(hours), len(hours))
