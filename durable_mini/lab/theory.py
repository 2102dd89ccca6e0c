"""Closed forms for what crashes cost: means and variances of cost, restarts and duplicates.

Guarantees exact values for independent crashes, for any shape and any position weights. It leaves
the engine out altogether, which is what makes it worth comparing with a simulation that goes
through one.

**The model.** Each live execution of a step crashes with chance `p`. Given a crash, it falls before
the work with chance `a`, in the crash window with `b`, after the journal write with `1-a-b`.
Replayed steps never crash. A crash after the last step's journal write still kills the attempt, so
it counts as a restart. A run has steps `0 … n-1`; step `i` costs `c_i` each time its work is done;
`q = (1-p)^n` is the chance that one attempt at all `n` steps succeeds.

**Restart from scratch.** Attempts repeat until one succeeds. Let `L` be what one attempt loses:
nothing with chance `q`; otherwise, with chance `(1-p)^k p` for each step `k` at which it can crash,
the worth of the steps before `k`, and of `k` itself unless the crash came before its work. Write
`m1 = E[L]` and `m2 = E[L²]`. A run loses `T`, and after a failed attempt it stands where it began:

    T = L, then another T if the attempt failed
    E[T]  = m1 + (1-q) E[T]                       =>  E[T]   = m1 / q
    E[T²] = m2 + 2 m1 E[T] + (1-q) E[T²]          =>  Var(T) = m2 / q + (m1 / q)²

With worth `c_i` this is the cost above that of a crash-free run; with worth 1 for an effect and 0
for a step it is the number of duplicates; with 1 for the failed attempt itself it is the number of
restarts, `1/q - 1`. With `F` failed attempts the variance can also be written as
`E[F] Var(L|fail) + Var(F) E[L|fail]²`: the same number, but conditioning on a failure divides by
`1-q`, which is 0 when nothing crashes.

**Journal.** A step is tried until it is on record; the steps are independent. Let `s = 1 - (a+b)p`
be the chance that a try gets recorded.
- *Executions.* Leave out the tries that crash before the work: they execute nothing. Of the rest, a
  share `s/(1-ap)` is recorded, so executions are geometric from 1, with mean `x = (1-ap)/s` and
  variance `x(x-1)`. Costs add `c_i` times that, duplicates `x-1` per effect with the same variance.
- *Restarts.* Unrecorded tries are geometric from 0: mean `(1-s)/s`, variance `(1-s)/s²`. The
  recorded try is followed by a crash with chance `β = (1-a-b)p/s`, independently of how many went
  before: mean `β`, variance `β(1-β)`. The means add up to `p/s` per step.

**Journal + idempotency key.** The same executions and restarts; the receiver drops each repeat, so
no duplicates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from durable_mini.lab.crashes import EQUAL_WEIGHTS, Weights, check_rate, check_weights
from durable_mini.lab.shape import REFERENCE_SHAPE, Shape

STRATEGIES = ("restart", "journal", "journal+key")

Z_95 = 1.96
"""Half the width of a 95 % interval, in standard errors."""

_SMALLEST_Q = 1e-150  # what is divided by it stays well within the range of a float


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its 95 % interval: what a simulation gave, or what one should give.

    Attributes:
        mean: the mean per run; for duplicates the total over all runs.
        sd: standard deviation of one run's value, for duplicates too.
        low: lower end of the 95 % interval, never below 0.
        high: upper end.
    """

    mean: float
    sd: float
    low: float
    high: float

    @classmethod
    def per_run(cls, mean: float, sd: float, runs: int) -> Quantity:
        """Return the mean over `runs` runs, from one run's mean and standard deviation."""
        return cls._around(mean, sd, sd / math.sqrt(runs))

    @classmethod
    def total(cls, mean: float, sd: float, runs: int) -> Quantity:
        """Return the total over `runs` runs, from one run's mean and standard deviation."""
        return cls._around(mean * runs, sd, sd * math.sqrt(runs))

    @classmethod
    def _around(cls, mean: float, sd: float, se: float) -> Quantity:
        return cls(mean, sd, low=max(0.0, mean - Z_95 * se), high=mean + Z_95 * se)

    @property
    def value(self) -> float:
        """The same as `mean`."""
        return self.mean

    @property
    def se(self) -> float:
        """Standard error of `mean`. Read off the upper end, which is never cut at zero."""
        return (self.high - self.mean) / Z_95


@dataclass(frozen=True, slots=True)
class Result:
    """One strategy at one crash rate: cost and restarts per run, duplicates over all the runs."""

    strategy: str
    crash_rate: float
    runs: int
    cost: Quantity
    restarts: Quantity
    duplicates: Quantity


@dataclass(frozen=True, slots=True)
class _Spread:
    """Mean and standard deviation of something in one run."""

    mean: float
    sd: float


def exact(
    strategy: str,
    crash_rate: float,
    runs: int = 400,
    *,
    weights: Weights = EQUAL_WEIGHTS,
    shape: Shape = REFERENCE_SHAPE,
) -> Result:
    """Return what a simulation of `runs` runs should give, from the closed forms above.

        >>> round(exact("journal", 0.08).cost.mean, 3)
        8.225

    Args:
        strategy: one of `STRATEGIES`.
        crash_rate: chance of a crash per live execution, in [0, 1).
        runs: how many runs the intervals and the total of duplicates are for.
        weights: chances of (before, window, after) given a crash.
        shape: the agent's durable calls.

    Raises:
        ValueError: for a setting that `check_setting` refuses, or a restart that would take more
            than 10^150 attempts.
    """
    check_setting(strategy, crash_rate, runs, weights, shape)
    costs = [spec.cost for spec in shape]
    effects = [float(spec.kind == "effect") for spec in shape]
    if strategy == "restart":
        repeated, restarts = _lost_from_scratch, _restarts_from_scratch(crash_rate, len(shape))
    else:
        repeated = _repeated_with_journal
        restarts = _restarts_with_journal(crash_rate, weights, len(shape))
    extra = repeated(costs, crash_rate, weights)
    duplicates = repeated(effects, crash_rate, weights)
    if strategy == "journal+key":
        duplicates = _Spread(0.0, 0.0)
    crash_free = sum(costs)
    return Result(
        strategy,
        crash_rate,
        runs,
        cost=Quantity.per_run(crash_free + extra.mean, extra.sd, runs),
        restarts=Quantity.per_run(restarts.mean, restarts.sd, runs),
        duplicates=Quantity.total(duplicates.mean, duplicates.sd, runs),
    )


def cost_with_one_crash(
    strategy: str,
    step_number: int,
    *,
    weights: Weights = EQUAL_WEIGHTS,
    shape: Shape = REFERENCE_SHAPE,
) -> float:
    """Return what a run costs that crashes once, at step `step_number`, averaged over the position.

    Starting over pays for the steps before it again; both strategies pay for the step itself again
    when its work was done and is not kept. Weights of (0, 1, 0) give the crash window alone.

        >>> round(cost_with_one_crash("restart", 5), 2), round(cost_with_one_crash("journal", 5), 2)
        (15.33, 8.67)

    Args:
        strategy: one of `STRATEGIES`.
        step_number: which step, counted from 1 as people do: step 5 of the reference agent is
            `compose`.
        weights: chances of (before, window, after) given the crash.
        shape: the agent's durable calls.

    Raises:
        ValueError: for a setting that `check_setting` refuses, or a step that the shape hasn't got.
    """
    check_setting(strategy, 0.0, 1, weights, shape)
    if not 1 <= step_number <= len(shape):
        raise ValueError(f"step {step_number!r} is none of the shape's steps 1 to {len(shape)}")
    before, window, _ = weights
    costs = [spec.cost for spec in shape]
    own_cost = costs[step_number - 1]
    if strategy == "restart":
        return sum(costs) + sum(costs[: step_number - 1]) + (1.0 - before) * own_cost
    return sum(costs) + window * own_cost


def check_setting(
    strategy: str, crash_rate: float, runs: int, weights: Weights, shape: Shape
) -> None:
    """Refuse what neither a simulation nor a closed form has an answer for.

    Raises:
        ValueError: naming the first of strategy, crash rate, runs, weights, shape that is wrong.
    """
    if strategy not in STRATEGIES:
        known = ", ".join(repr(name) for name in STRATEGIES)
        raise ValueError(f"unknown strategy {strategy!r}: the strategies are {known}")
    check_rate(crash_rate)
    if not isinstance(runs, int) or runs < 1:
        raise ValueError(f"runs must be a whole number, one or more, not {runs!r}")
    check_weights(weights)
    if not shape:
        raise ValueError("shape must have at least one step, not none")


def _success_chance(crash_rate: float, steps: int) -> float:
    """Return `q`, the chance that one attempt gets through all `steps`."""
    q = (1.0 - crash_rate) ** steps
    if q < _SMALLEST_Q:
        raise ValueError(
            f"crash rate {crash_rate!r} over {steps} steps: starting over would take more than "
            "10^150 attempts"
        )
    return float(q)


def _restarts_from_scratch(crash_rate: float, steps: int) -> _Spread:
    """Return the failed attempts before the first success: geometric from 0."""
    q = _success_chance(crash_rate, steps)
    return _Spread((1.0 - q) / q, math.sqrt(1.0 - q) / q)


def _lost_from_scratch(worth: Sequence[float], crash_rate: float, weights: Weights) -> _Spread:
    """Return the worth that failed attempts add up to: `m1/q` and the root of `m2/q + (m1/q)²`."""
    q = _success_chance(crash_rate, len(worth))
    before = weights[0]
    reached, done, m1, m2 = 1.0, 0.0, 0.0, 0.0
    for own in worth:
        fails_here = reached * crash_rate
        m1 += fails_here * (before * done + (1.0 - before) * (done + own))
        m2 += fails_here * (before * done**2 + (1.0 - before) * (done + own) ** 2)
        done += own
        reached *= 1.0 - crash_rate
    mean = m1 / q
    return _Spread(mean, math.hypot(math.sqrt(m2 / q), mean))


def _repeated_with_journal(worth: Sequence[float], crash_rate: float, weights: Weights) -> _Spread:
    """Return the worth of all repeated executions: `Σw (x-1)` and the root of `Σw² x(x-1)`."""
    before, window, _ = weights
    recorded = 1.0 - (before + window) * crash_rate
    executions = (1.0 - before * crash_rate) / recorded
    repeats = window * crash_rate / recorded  # x - 1, without the rounding of a subtraction
    variance = sum(own**2 for own in worth) * executions * repeats
    return _Spread(sum(worth) * repeats, math.sqrt(variance))


def _restarts_with_journal(crash_rate: float, weights: Weights, steps: int) -> _Spread:
    """Return unrecorded tries plus crashes right after a record, over all steps."""
    unrecorded = (weights[0] + weights[1]) * crash_rate
    recorded = 1.0 - unrecorded
    crash_after = weights[2] * crash_rate / recorded
    no_crash_after = (1.0 - crash_rate) / recorded
    variance = unrecorded / recorded**2 + crash_after * no_crash_after
    return _Spread(steps * crash_rate / recorded, math.sqrt(steps * variance))
