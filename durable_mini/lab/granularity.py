"""How much work one record covers: what it costs to write often, and what to write seldom.

A run makes a number of calls, and consecutive calls share a **phase**: one step of the workflow,
with one record. Guarantees: the closed form is exact for independent crashes, any costs and any
position weights; the simulation goes through the real engine; the slider shows the closed form,
so that it follows the hand at once. Leaves to others: the drawing (`limits_pictures`), one record
for each call and no record at all (`theory`).

**The model.** Each call crashes with chance `p`; given a crash it falls before the call's work with
chance `a`, right after it with `b` (were it a step: in its window), or later with `1-a-b`. In the
middle of a phase the last two are one: the work was done and nothing is recorded. At a phase's last
call they differ, for there the record is written in between. A crash before the record loses all
that this phase has done; no crash ever loses a phase that is recorded.

**Closed form.** Take a phase of `m` calls with costs `c_0 … c_{m-1}`, and let `S_j` be the sum of
the first `j`. One attempt at it gets recorded with chance `s = (1-p)^(m-1) (1-(a+b)p)`. Otherwise
it loses `S_j` or `S_{j+1}`, depending on the side of call `j` on which the crash fell. With `m1`
and `m2` the means of the loss of one attempt and of its square, 0 where it is recorded:

    m1 = Σ_{j<m-1} (1-p)^j p [a S_j + (1-a) S_{j+1}] + (1-p)^(m-1) p [a S_{m-1} + b S_m]
    E[T] = m1/s        Var(T) = m2/s + (m1/s)²

where `T` is what all attempts at the phase lose: after a failed one the phase stands where it
began. With `m = 1` this is the journal of `theory`: `m1/s = bpc/(1-(a+b)p)`. The phases are
independent, so means and variances add up. Each record is written once, whatever crashes.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import ipywidgets as widgets

from durable_mini.context import Context, Probe
from durable_mini.engine import Engine
from durable_mini.events import EventKind, Position
from durable_mini.journal import Journal
from durable_mini.journal.memory import MemoryJournal
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.lab.crashes import (
    EQUAL_WEIGHTS,
    CrashPlan,
    InjectedCrash,
    Weights,
    check_rate,
    check_weights,
)
from durable_mini.lab.ledger import Ledger
from durable_mini.lab.limits_pictures import Bar, BestMap, granularity_picture
from durable_mini.lab.pictures import Picture, show_bundle
from durable_mini.lab.theory import Quantity
from durable_mini.lab.widgets import LivePicture, Values, choice, live_view, slider
from durable_mini.structure import Workflow, workflow

Phase: TypeAlias = tuple[float, ...]
"""The costs of the calls that share a record, in order."""

PLACES: dict[str, Weights] = {
    "anywhere": EQUAL_WEIGHTS,
    "before the work": (1.0, 0.0, 0.0),
    "right after it": (0.0, 1.0, 0.0),
    "after the record": (0.0, 0.0, 1.0),
}
"""Where crashes fall, as the slider names it."""

MAP_RATES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
MAP_WRITES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)

_SMALLEST_S = 1e-150  # what is divided by it stays well within the range of a float


@dataclass(frozen=True, slots=True)
class Bill:
    """What a run costs with its calls in so many phases.

    Attributes:
        phases: how many, which is how many records it writes.
        work: the cost of the calls, each done once.
        writing: the cost of the records.
        rework: mean cost of the calls that are done again, with its interval.
    """

    phases: int
    work: float
    writing: float
    rework: Quantity

    @property
    def extra(self) -> float:
        """What the run costs beyond its work, on average."""
        return self.writing + self.rework.mean

    @property
    def total(self) -> float:
        """What the run costs on average."""
        return self.work + self.extra


def phases_of(calls: int, phases: int, call_cost: float = 1.0) -> tuple[Phase, ...]:
    """Return so many calls in so many phases, as even as can be, the longer ones first.

        >>> [len(phase) for phase in phases_of(7, 3)]
        [3, 2, 2]

    Raises:
        ValueError: no phase, or more phases than calls.
    """
    if not 1 <= phases <= calls:
        raise ValueError(f"{calls} calls make 1 to {calls} phases, not {phases!r}")
    short, longer = divmod(calls, phases)
    return tuple((call_cost,) * (short + (number < longer)) for number in range(phases))


def exact_bill(
    phases: Sequence[Phase],
    crash_rate: float,
    write_cost: float,
    runs: int = 400,
    *,
    weights: Weights = EQUAL_WEIGHTS,
) -> Bill:
    """Return what a simulation of `runs` runs should give, from the closed form above.

        >>> bill = exact_bill([(2.0, 2.0), (2.0,)], 0.08, 0.5)
        >>> round(bill.rework.mean, 3), bill.writing
        (0.348, 1.0)

    Args:
        phases: the run's calls.
        crash_rate: chance of a crash per call that is made, in [0, 1).
        write_cost: what one record costs, in the unit of the calls.
        runs: how many runs the interval is for.
        weights: chances of (before the call, right after it, later), given a crash.

    Raises:
        ValueError: a number out of range, or phases of which an attempt hardly ever gets through.
    """
    _check(phases, crash_rate, write_cost, weights)
    lost = {phase: _lost(phase, crash_rate, weights) for phase in set(phases)}
    mean = sum(lost[phase][0] for phase in phases)
    sd = math.sqrt(sum(lost[phase][1] for phase in phases))
    return _bill(phases, write_cost, Quantity.per_run(mean, sd, runs))


def simulate_bill(
    phases: Sequence[Phase],
    crash_rate: float,
    write_cost: float,
    runs: int = 400,
    seed: int = 0,
    *,
    weights: Weights = EQUAL_WEIGHTS,
) -> Bill:
    """Drive `runs` runs through the engine, each phase a step, and count what it took.

    Args and raises as `exact_bill`; `seed` is of the crash schedule. The records are counted in
    the journals, the rework is what the model billed beyond the work.
    """
    _check(phases, crash_rate, write_cost, weights)
    world = Ledger()
    plan = CrashPlan(crash_rate, f"{seed}/{crash_rate}/{len(phases)}", weights)
    agent = phased_agent(world, phases, plan)
    rework: list[float] = []
    for _ in range(runs):
        spent = world.spent
        engine = Engine(MemoryJournal(), [agent], probe=_at_records(plan))
        _drive(engine, engine.start(agent, run_id="r"))
        records = sum(event.kind is EventKind.STEP for event in engine.history("r"))
        if records != len(phases):
            raise RuntimeError(f"{records} records of {len(phases)} phases")
        rework.append(world.spent - spent - _work(phases))
    sd = statistics.stdev(rework) if runs > 1 else 0.0
    return _bill(phases, write_cost, Quantity.per_run(statistics.fmean(rework), sd, runs))


def phased_agent(world: Ledger, phases: Sequence[Phase], plan: CrashPlan) -> Workflow:
    """An agent whose calls share records: each phase is one step, and `plan` meets every call.

    Drive it with an engine whose probe tells `plan` of the records, as `simulate_bill` does.
    """

    def work(number: int, costs: list[float]) -> int:
        name = f"phase-{number}"
        for place, cost in enumerate(costs, start=1):
            plan(Position.BEFORE, EventKind.STEP, name)
            world.think(name, place, cost)
            if place < len(costs):  # no record follows: whatever crashes now loses the phase
                plan(Position.WINDOW, EventKind.STEP, name)
                plan(Position.AFTER, EventKind.STEP, name)
        return len(costs)

    @workflow(name="phased_agent", version="1")
    def agent(ctx: Context, _: Any) -> int:
        done = 0
        for number, costs in enumerate(phases, start=1):
            done += ctx.step(f"phase-{number}", work, number, list(costs), cost=sum(costs))
        return done

    return agent


def best_phases(
    calls: int,
    crash_rate: float,
    write_cost: float,
    *,
    call_cost: float = 1.0,
    weights: Weights = EQUAL_WEIGHTS,
) -> int:
    """Return in how many phases the run is cheapest, by the closed form; the fewest of equal ones.

    >>> best_phases(24, 0.02, 0.25)
    5
    """
    bills = bills_by_phases(calls, crash_rate, write_cost, call_cost=call_cost, weights=weights)
    return min(bills, key=lambda bill: bill.extra).phases


def bills_by_phases(
    calls: int,
    crash_rate: float,
    write_cost: float,
    *,
    call_cost: float = 1.0,
    weights: Weights = EQUAL_WEIGHTS,
) -> list[Bill]:
    """Return the exact bill of each number of phases, from one phase to one for each call.

    Its rework has no interval: `exact_bill` gives one.
    """
    lengths = range(1, calls + 1)
    split = [phases_of(calls, number, call_cost) for number in lengths]
    _check(split[0], crash_rate, write_cost, weights)
    lost = {length: _lost((call_cost,) * length, crash_rate, weights)[0] for length in lengths}
    return [
        _bill(phases, write_cost, Quantity.per_run(sum(lost[len(p)] for p in phases), 0.0, 1))
        for phases in split
    ]


def beyond_work(bill: Bill) -> Quantity:
    """Return what the run costs beyond its work, with the interval of its rework."""
    rework, writing = bill.rework, bill.writing
    return Quantity(rework.mean + writing, rework.sd, rework.low + writing, rework.high + writing)


def rule_of_thumb(crash_rate: float, write_cost: float, call_cost: float = 1.0) -> float:
    """Return Young's number of calls for one record: √(2 write / (crash rate · call)).

    >>> rule_of_thumb(0.02, 0.25)
    5.0
    """
    if crash_rate * call_cost == 0.0:
        return math.inf
    return math.sqrt(2 * write_cost / (crash_rate * call_cost))


def _check(phases: Sequence[Phase], crash_rate: float, write_cost: float, weights: Weights) -> None:
    check_rate(crash_rate)
    check_weights(weights)
    if not phases or not all(phases):
        raise ValueError("a run needs a phase, and a phase a call")
    if not all(0 <= cost < math.inf for cost in (write_cost, *(c for p in phases for c in p))):
        raise ValueError("the cost of a call or a write is zero or more")


def _bill(phases: Sequence[Phase], write_cost: float, rework: Quantity) -> Bill:
    return Bill(len(phases), _work(phases), len(phases) * write_cost, rework)


def _work(phases: Sequence[Phase]) -> float:
    return sum(cost for phase in phases for cost in phase)


def _lost(phase: Phase, crash_rate: float, weights: Weights) -> tuple[float, float]:
    """Mean and variance of what the attempts at one phase lose: `m1/s` and `m2/s + (m1/s)²`."""
    before, window, _ = weights
    reached, done, m1, m2 = 1.0, 0.0, 0.0, 0.0
    for place, cost in enumerate(phase, start=1):
        behind = window if place == len(phase) else 1.0 - before
        fails_here = reached * crash_rate
        m1 += fails_here * (before * done + behind * (done + cost))
        m2 += fails_here * (before * done**2 + behind * (done + cost) ** 2)
        done += cost
        reached *= 1.0 - crash_rate if place < len(phase) else 1.0 - (before + window) * crash_rate
    if reached < _SMALLEST_S:
        raise ValueError(
            f"crash rate {crash_rate!r} over a phase of {len(phase)} calls: it would take more "
            "than 10^150 attempts"
        )
    mean = m1 / reached
    return mean, m2 / reached + mean**2


def _at_records(plan: CrashPlan) -> Probe:
    """A probe that tells the plan of a phase's record; of its calls the body tells it."""

    def probe(position: Position, kind: EventKind, name: str) -> None:
        if position is not Position.BEFORE:
            plan(position, kind, name)

    return probe


def _drive(engine: Engine, run_id: str) -> None:
    while True:
        try:
            engine.resume(run_id)
        except InjectedCrash:
            continue
        return


# ---- what a write costs here -------------------------------------------------------------------

MODEL_CALL_S = 2.0
_STEPS, _ROUNDS = 100, 5


class WriteCost:
    """What one durable step costs on this machine, measured when it is made.

    A page without a kernel, and a comparison of outputs, see only what holds on every machine; the
    figures of this one are for whoever runs the cell.

    Attributes: `disk_s` and `memory_s`, the medians of seconds per step.
    """

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".write-cost-") as folder:
            pairs = [
                (self._on_disk(Path(folder, f"{number}.db")), _seconds_a_step(MemoryJournal()))
                for number in range(_ROUNDS + 1)
            ][1:]  # the first pair warms up
        self.disk_s, self.memory_s = (statistics.median(side) for side in zip(*pairs, strict=True))

    @staticmethod
    def _on_disk(path: Path) -> float:
        with SQLiteJournal(path) as journal:
            return _seconds_a_step(journal)

    def verdict(self) -> str:
        """Say in which class the figures are: the same on any machine with an ordinary disk."""
        above = "more" if self.disk_s > self.memory_s else "no more"
        below = "less" if self.disk_s < MODEL_CALL_S / 20 else "not less"
        return (
            f"A step with a journal on disk costs {above} than one with a journal in memory, and "
            f"{below} than a twentieth of a model call of {MODEL_CALL_S:g} s."
        )

    def figures(self) -> str:
        """Say what was measured here, and what follows from it."""
        write = self.disk_s / MODEL_CALL_S
        small = rule_of_thumb(0.02, self.disk_s, 0.001)
        return (
            f"Here it is {1000 * self.disk_s:.2f} ms on disk and {1000 * self.memory_s:.3f} ms in "
            f"memory. A model call of {MODEL_CALL_S:g} s is worth a record of its own down to a "
            f"crash rate of about {write:.1g} a call. With calls of 1 ms and a crash rate of 0.02 "
            f"the rule of thumb says {max(1.0, small):.1f} calls for one record."
        )

    def _ipython_display_(self) -> None:
        line = '<p style="max-width: 62em; line-height: 1.4">{}</p>'
        shown = widgets.HTML(line.format(f"{self.verdict()} {self.figures()}"))
        left = f"{self.verdict()} (Run the cell for the figures of your machine.)"
        show_bundle(live_view(shown) | {"text/html": line.format(left), "text/plain": left})


@workflow(name="write_cost", version="1")
def _bare_steps(ctx: Context, count: int) -> None:
    """Steps that do nothing, so that what they take is the engine and the journal."""
    for number in range(count):
        ctx.step("nothing", len, str(number))


def _seconds_a_step(journal: Journal) -> float:
    engine = Engine(journal, [_bare_steps])
    began = time.perf_counter()
    engine.run(_bare_steps, _STEPS, run_id="r")
    return (time.perf_counter() - began) / _STEPS


# ---- the slider --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Granularity:
    """One position of the slider: the bills of all numbers of phases, and the map around it."""

    calls: int
    crash_rate: float
    write_cost: float
    place: str
    bills: tuple[Bill, ...]

    @property
    def best(self) -> Bill:
        """The cheapest."""
        return min(self.bills, key=lambda bill: bill.extra)

    def sentence(self) -> str:
        """Say which number of records is best, and what the two ends would cost."""
        best, one, each = self.best, self.bills[0], self.bills[-1]
        thumb = rule_of_thumb(self.crash_rate, self.write_cost)
        rule = "no record at all" if thumb == math.inf else f"{thumb:.1f} calls for one record"
        return (
            f"{self.calls} calls, crash rate {self.crash_rate:g} a call, crashes fall "
            f"{self.place}; a write costs {self.write_cost:g} of a call. Best: "
            f"{_records(best, self.calls)}. That adds {_short(best.extra)} to the {self.calls} "
            f"calls, {_short(best.writing)} for writing and {_short(best.rework.mean)} for calls "
            f"done again. A record for each call adds {_short(each.extra)}, one for all of them "
            f"{_short(one.extra)}. The rule of thumb says {rule}."
        )

    def picture(self) -> Picture:
        """Draw the bills, and the map around the setting."""
        bars = [Bar(bill.phases, bill.writing, bill.rework.mean) for bill in self.bills]
        around = BestMap(MAP_WRITES, MAP_RATES, best_map(self.calls, PLACES[self.place]))
        at = (self.write_cost, self.crash_rate)
        return granularity_picture(bars, around, at, self.sentence())


def granularity_slider() -> LivePicture[Granularity]:
    """Return the slider of chapter 10: write cost and crash rate to the best granularity."""
    return LivePicture(
        [
            slider("write_cost", "write cost, in calls", 0.25, 0.0, 3.0, 0.01),
            slider("crash_rate", "crash rate", 0.02, 0.0, 0.3, 0.002),
            slider("calls", "calls", 24, 2, 48, 1),
            choice("place", "crashes fall", list(PLACES)),
        ],
        lambda values: iter([granularity(values)]),
        Granularity.picture,
        Granularity.sentence,
    )


def granularity(values: Values) -> Granularity:
    """Return one position of the slider."""
    calls, rate, write, place = (
        values[name] for name in ("calls", "crash_rate", "write_cost", "place")
    )
    bills = bills_by_phases(calls, rate, write, weights=PLACES[place])
    return Granularity(calls, rate, write, place, tuple(bills))


def best_map(calls: int, weights: Weights) -> list[list[int]]:
    """Return the best number of calls for one record: a row for each of `MAP_RATES`."""
    return [list(_best_row(calls, rate, weights)) for rate in MAP_RATES]


def _best_row(calls: int, rate: float, weights: Weights) -> Iterator[int]:
    bills = bills_by_phases(calls, rate, 0.0, weights=weights)
    for write in MAP_WRITES:
        best = min(bills, key=lambda bill: write * bill.phases + bill.rework.mean)
        yield math.ceil(calls / best.phases)


def _records(bill: Bill, calls: int) -> str:
    if bill.phases == calls:
        return "a record for each call"
    if bill.phases == 1:
        return f"one record for all {calls} calls"
    longest = math.ceil(calls / bill.phases)
    return f"{bill.phases} records, of up to {longest} calls each"


def _short(number: float) -> str:
    return f"{number:,.2f}" if number < 1_000 else f"{number:,.0f}" if number < 1e6 else "millions"
