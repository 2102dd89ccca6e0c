"""Simulated numbers beside exact and published ones, as tables for a page.

Guarantees that every cell comes from the results handed in or from the closed forms. Leaves to
others: the simulation (`results`, `simulation`), the formulas (`theory`), the terminal's tables
(`results.print_results`).
"""

from __future__ import annotations

from collections.abc import Iterator

from durable_mini.lab.pictures import Cell, NumbersTable, numbers_table
from durable_mini.lab.results import QuantityRow, Results
from durable_mini.lab.theory import Quantity, Result, exact

LIMIT_SE = 3.5
"""How many standard errors from exact a simulated number may lie; chance alone does it once in two
thousand."""

_DIGITS = {"cost": 2, "restarts": 2, "duplicates": 0}


def first_table(found: Results, crash_rate: float) -> NumbersTable:
    """Return the table of all strategies at one crash rate.

    Raises:
        ValueError: when `found` has nothing at this crash rate.
    """
    rows = [
        {"quantity": quantity, "strategy": strategy} | _cells(row, _DIGITS[quantity])
        for quantity, strategy, row in _at(found, crash_rate)
    ]
    return numbers_table(rows, f"{found['runs']:,} runs, crash rate {crash_rate:g} per step")


def second_table(found: Results) -> NumbersTable:
    """Return the table of costs by crash rate."""
    rows = [
        {"crash rate": f"{rate:g}", "strategy": strategy} | _cells(row, _DIGITS["cost"])
        for rate, strategy, row in _by_rate(found)
    ]
    return numbers_table(rows, f"Cost per run, {found['runs']:,} other runs")


def figures(found: Results, crash_rate: float) -> list[QuantityRow]:
    """Return every number of both tables, the first of them at one crash rate."""
    first = [row for _, _, row in _at(found, crash_rate)]
    return first + [row for _, _, row in _by_rate(found)]


def distance(found: Result, quantity: str) -> float:
    """Return how many standard errors a simulated number lies from exact, at equal weights.

    Args:
        found: what `simulate` gave, for the reference agent.
        quantity: "cost", "restarts" or "duplicates".

    Raises:
        ValueError: when nothing about that number is random.
    """
    true: Quantity = getattr(exact(found.strategy, found.crash_rate, found.runs), quantity)
    if true.se == 0.0:
        raise ValueError(f"{quantity} with {found.strategy}: nothing about it is random")
    simulated: Quantity = getattr(found, quantity)
    return (simulated.mean - true.mean) / true.se


def distances(*found: Result) -> NumbersTable:
    """Return the distances of simulations as a table; one beyond `LIMIT_SE` is marked."""
    rows: list[dict[str, Cell]] = []
    for one in found:
        marked = {quantity: _marked(distance(one, quantity)) for quantity in _DIGITS}
        rows.append({"strategy": one.strategy, "runs": one.runs, **marked})
    return numbers_table(rows, "Distance from exact, in standard errors")


def _at(found: Results, crash_rate: float) -> Iterator[tuple[str, str, QuantityRow]]:
    """Yield quantity, strategy and number, quantity by quantity."""
    here = [row for row in found["by_strategy"] if row["crash_rate"] == crash_rate]
    for row in here:
        yield "cost", row["strategy"], row["cost"]
    for row in here:
        yield "restarts", row["strategy"], row["restarts"]
    for row in here:
        yield "duplicates", row["strategy"], row["duplicates"]


def _by_rate(found: Results) -> Iterator[tuple[float, str, QuantityRow]]:
    for row in found["by_crash_rate"]:
        yield row["crash_rate"], "restart", row["restart"]["cost"]
        yield row["crash_rate"], "journal", row["journal"]["cost"]


def _cells(row: QuantityRow, digits: int) -> dict[str, str]:
    published = row["published"]
    return {
        "simulated": f"{row['simulated']:,.{digits}f}",
        "exact": f"{row['exact']:,.{digits}f}",
        "95 % interval": f"{row['low95']:,.{digits}f} to {row['high95']:,.{digits}f}",
        "published": "-" if published is None else f"{published:.{digits}f}",
    }


def _marked(off: float) -> str:
    return f"{off:.1f}{' CAUGHT' if abs(off) > LIMIT_SE else ''}"
