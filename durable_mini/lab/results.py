"""Both results tables: simulated beside exact, the 95 % interval, and the published figure.

Guarantees that one seed gives one pair of tables, and that the second table is simulated afresh,
from a seed of its own: where both give the same setting, the difference between them is noise, as
it was in the source. Running steps is left to `simulation`, what they should cost to `theory`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

from rich.console import Console
from rich.table import Table

from durable_mini.lab.simulation import simulate
from durable_mini.lab.theory import STRATEGIES, Quantity, Result, exact

MOST_ATTEMPTS = 20_000_000
"""So many attempts take some tens of minutes."""

DEFAULT_RATES = (0.02, 0.08, 0.20)

PUBLISHED_RUNS = 400
"""How many runs the source's figures come from; its duplicates are totals over them."""

PUBLISHED: dict[str, dict[tuple[str, float], float]] = {
    "cost": {("restart", 0.08): 12.43, ("journal", 0.08): 8.22, ("journal+key", 0.08): 8.22},
    "restarts": {("restart", 0.08): 0.86, ("journal", 0.08): 0.63, ("journal+key", 0.08): 0.63},
    "duplicates": {("restart", 0.08): 243, ("journal", 0.08): 35, ("journal+key", 0.08): 0},
    "cost_by_crash_rate": {
        ("restart", 0.02): 9.02,
        ("journal", 0.02): 8.06,
        ("restart", 0.08): 11.94,
        ("journal", 0.08): 8.24,
        ("restart", 0.20): 25.50,
        ("journal", 0.20): 8.53,
    },
}
"""The source's figures by (strategy, crash rate): three columns of its first table, its second one.

It gives the cost at 0.08 in both, from two simulations.
"""

_ROUNDING = 1e-9  # what adding floats in another order may change, relative to the number

Progress: TypeAlias = Callable[[int], None]


class QuantityRow(TypedDict):
    """A simulated number beside its exact value; `published` is None where the source has none."""

    simulated: float
    exact: float
    low95: float
    high95: float
    published: float | None


class StrategyRow(TypedDict):
    """One strategy at one crash rate: means per run, and duplicates in all runs together."""

    strategy: str
    crash_rate: float
    cost: QuantityRow
    restarts: QuantityRow
    duplicates: QuantityRow


class CostOnly(TypedDict):
    """The one column of the second table."""

    cost: QuantityRow


class RateRow(TypedDict):
    """What a run costs at one crash rate, from scratch and with a journal."""

    crash_rate: float
    restart: CostOnly
    journal: CostOnly


class Results(TypedDict):
    """Both tables, as `durable-mini results --json` prints them."""

    runs: int
    seed: int
    by_strategy: list[StrategyRow]
    by_crash_rate: list[RateRow]


def results(
    runs: int = 400,
    seed: int = 0,
    crash_rates: Sequence[float] = DEFAULT_RATES,
    progress: Progress | None = None,
) -> Results:
    """Simulate both tables through the engine and set each number beside its exact value.

    Args:
        runs: how many runs each number comes from.
        seed: the same seed gives the same tables; the second table uses another, derived from it.
        crash_rates: chances of a crash per live execution, each in [0, 1).
        progress: called with the number of runs finished since the last call; `runs_in_results`
            tells how many there will be.

    Returns:
        A plain dictionary of numbers, strings and lists, ready for JSON.

    Raises:
        ValueError: for a crash rate or a number of runs without an answer, before anything runs.
    """
    for rate in crash_rates:
        exact("restart", rate, runs)
    return {
        "runs": runs,
        "seed": seed,
        "by_strategy": [
            _strategy_row(strategy, rate, runs, seed, progress)
            for strategy in STRATEGIES
            for rate in crash_rates
        ],
        "by_crash_rate": [
            _rate_row(rate, runs, second_seed(seed), progress) for rate in crash_rates
        ],
    }


def check_effort(runs: int, crash_rates: Sequence[float]) -> None:
    """Refuse what would take hours: runs that start over after nearly every step.

    Raises:
        ValueError: naming the rate and how many attempts it needs.
    """
    for rate in crash_rates:
        attempts = runs * (1 + exact("restart", rate, runs).restarts.mean)
        if attempts > MOST_ATTEMPTS:
            raise ValueError(
                f"crash rate {rate!r} needs about {attempts:.1g} attempts for {runs:,} runs that "
                f"start over, more than {MOST_ATTEMPTS:,}. Next: a lower rate, or fewer runs."
            )


def runs_in_results(runs: int, crash_rates: Sequence[float] = DEFAULT_RATES) -> int:
    """Return how many runs `results` drives in all: five simulations at each crash rate."""
    return runs * len(crash_rates) * (len(STRATEGIES) + 2)


def check_results(table: Results, sigmas: float = 3.5) -> list[str]:
    """Return one complaint for each number that contradicts the closed forms; none when all agree.

    A simulated number may be `sigmas` standard errors from exact, a published one two standard
    errors of the source's own number of runs. A key must leave no duplicate at all.

    Args:
        table: what `results` returned.
        sigmas: how far a simulated number may be off. At 3.5 chance alone makes about one complaint
            in two thousand numbers.
    """
    complaints: list[str] = []
    for number in _numbers(table):
        complaints += _complaints(number, table["runs"], sigmas)
    for row in table["by_strategy"]:
        if row["strategy"] == "journal+key" and row["duplicates"]["simulated"] != 0:
            left = row["duplicates"]["simulated"]
            complaints.append(f"journal+key at {row['crash_rate']}: {left:g} duplicates, not 0")
    return complaints


def print_results(table: Results, console: Console) -> None:
    """Print both tables so that they fit 80 columns; a number outside its interval says `outside`.

    Args:
        table: what `results` returned.
        console: where to print.
    """
    runs, numbers = table["runs"], list(_numbers(table))
    for rate in dict.fromkeys(row["crash_rate"] for row in table["by_strategy"]):
        here = [number for number in numbers if number.first_table and number.crash_rate == rate]
        console.print(_rich_table(f"Crash rate {rate:g} per step, {runs:,} runs", runs, here), "")
    second = [number for number in numbers if not number.first_table]
    title = f"Cost per run by crash rate, simulated afresh, {runs:,} runs"
    console.print(_rich_table(title, runs, second, by_rate=True), "")
    outside = sum(_outside(number.row) for number in numbers)
    console.print(
        f"{outside} of {len(numbers)} simulated numbers outside their 95 % interval; "
        "chance alone puts about one in twenty there. "
        f"The published figures come from {PUBLISHED_RUNS} runs.",
        highlight=False,
    )


@dataclass(frozen=True, slots=True)
class _Number:
    """One number of the tables and where it stands."""

    first_table: bool
    strategy: str
    crash_rate: float
    quantity: str
    row: QuantityRow

    def __str__(self) -> str:
        return f"{self.strategy} at {self.crash_rate:g}: {self.quantity}"


def percent(share: float) -> str:
    """Return a share as people write it.

    >>> percent(0.08)
    '8 %'
    """
    return f"{100 * share:.0f} %"


def second_seed(seed: int) -> int:
    """Return the second table's seed: far from `seed`, and the same on every machine."""
    return random.Random(f"{seed}/by_crash_rate").getrandbits(48)


def _strategy_row(
    strategy: str, rate: float, runs: int, seed: int, progress: Progress | None
) -> StrategyRow:
    found = simulate(strategy, rate, runs, seed, progress=progress)
    cost_elsewhere = PUBLISHED["cost_by_crash_rate"].get((strategy, rate))
    place = (strategy, rate)
    return {
        "strategy": strategy,
        "crash_rate": rate,
        "cost": _quantity_row(found, "cost", PUBLISHED["cost"].get(place, cost_elsewhere)),
        "restarts": _quantity_row(found, "restarts", PUBLISHED["restarts"].get(place)),
        "duplicates": _quantity_row(found, "duplicates", PUBLISHED["duplicates"].get(place)),
    }


def _rate_row(rate: float, runs: int, seed: int, progress: Progress | None) -> RateRow:
    restart, journal = (
        _quantity_row(
            simulate(strategy, rate, runs, seed, progress=progress),
            "cost",
            PUBLISHED["cost_by_crash_rate"].get((strategy, rate)),
        )
        for strategy in ("restart", "journal")
    )
    return {"crash_rate": rate, "restart": {"cost": restart}, "journal": {"cost": journal}}


def _quantity_row(found: Result, quantity: str, published: float | None) -> QuantityRow:
    expected = _exact(found.strategy, found.crash_rate, found.runs, quantity)
    simulated: Quantity = getattr(found, quantity)
    return {
        "simulated": simulated.mean,
        "exact": expected.mean,
        "low95": expected.low,
        "high95": expected.high,
        "published": published,
    }


def _exact(strategy: str, rate: float, runs: int, quantity: str) -> Quantity:
    expected: Quantity = getattr(exact(strategy, rate, runs), quantity)
    return expected


def _numbers(table: Results) -> Iterator[_Number]:
    """Yield every number of both tables, in the order in which they are printed."""
    for row in table["by_strategy"]:
        place = (True, row["strategy"], row["crash_rate"])
        yield _Number(*place, "cost", row["cost"])
        yield _Number(*place, "restarts", row["restarts"])
        yield _Number(*place, "duplicates", row["duplicates"])
    for rate_row in table["by_crash_rate"]:
        yield _Number(False, "restart", rate_row["crash_rate"], "cost", rate_row["restart"]["cost"])
        yield _Number(False, "journal", rate_row["crash_rate"], "cost", rate_row["journal"]["cost"])


def _complaints(number: _Number, runs: int, sigmas: float) -> Iterator[str]:
    expected = _exact(number.strategy, number.crash_rate, runs, number.quantity)
    row, published = number.row, number.row["published"]
    if not _near(row["exact"], expected.mean, 0.0):
        yield f"{number}: the table's exact value is {row['exact']:g}, not {expected.mean:g}"
    if not _near(row["simulated"], expected.mean, sigmas * expected.se):
        yield _too_far(number, "simulated", row["simulated"], expected, sigmas)
    if published is not None:
        expected = _exact(number.strategy, number.crash_rate, PUBLISHED_RUNS, number.quantity)
        if not _near(published, expected.mean, 2 * expected.se):
            yield _too_far(number, "published", published, expected, 2)


def _near(value: float, centre: float, allowed: float) -> bool:
    return abs(value - centre) <= allowed + _ROUNDING * max(1.0, abs(centre))


def _too_far(number: _Number, route: str, value: float, expected: Quantity, allowed: float) -> str:
    line = f"{number}: {route} {value:g}, exact {expected.mean:g}"
    if expected.se == 0.0:
        return f"{line}, and nothing about it is random"
    off = abs(value - expected.mean) / expected.se
    return f"{line}, which is {off:.1f} standard errors away, above {allowed:g}"


def _outside(row: QuantityRow) -> bool:
    middle = (row["low95"] + row["high95"]) / 2
    return not _near(row["simulated"], middle, row["high95"] - middle)


def _rich_table(
    title: str, runs: int, numbers: Sequence[_Number], *, by_rate: bool = False
) -> Table:
    """Lay numbers out one a line, named by strategy and quantity, or by crash rate and strategy."""
    table = Table(title=title, box=None, title_justify="left", pad_edge=False, padding=(0, 1))
    table.add_column("crash rate" if by_rate else "strategy")
    table.add_column("strategy" if by_rate else "")
    for heading in ("simulated", "exact", "95 % interval", "published"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for number in numbers:
        place = f"{number.crash_rate:g}" if by_rate else number.strategy
        table.add_row(place, number.strategy if by_rate else number.quantity, *_cells(number, runs))
    return table


def _cells(number: _Number, runs: int) -> tuple[str, ...]:
    row, total = number.row, number.quantity == "duplicates"
    digits = 3 if not total else 1 if row["exact"] < 1_000 else 0
    return (
        f"{row['simulated']:,.{0 if total else 3}f}",
        f"{row['exact']:,.{digits}f}",
        f"{row['low95']:,.{digits}f} to {row['high95']:,.{digits}f}",
        _published_cell(row["published"], total, runs),
        "outside" if _outside(row) else "",
    )


def _published_cell(published: float | None, total: bool, runs: int) -> str:
    """Show the source's figure as it was printed; a total of other runs says of how many."""
    if published is None:
        return ""
    if not total:
        return f"{published:.2f}"
    return f"{published:g}" if runs == PUBLISHED_RUNS else f"{published:g} in {PUBLISHED_RUNS}"
