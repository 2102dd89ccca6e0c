"""The measurements as tables of text, for a terminal and for a chapter.

Guarantees: every figure of a row is in its table; the same rows give the same text. Leaves to
others: pictures (`pictures`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from durable_mini.lab.engines.catalogue import Setup
from durable_mini.lab.engines.crashes import Row, summaries
from durable_mini.lab.engines.grid import Cell
from durable_mini.lab.engines.speed import Speed


def listed(setups: Iterable[Setup]) -> str:
    """Which engines there are, on what, and what is missing here."""
    lines = [
        (setup.name, setup.missing() or f"{setup.engine} {setup.version()}", setup.storage)
        for setup in setups
    ]
    return _table(("name", "here", "storage"), lines)


def crash_table(rows: Sequence[Row]) -> str:
    """Each engine at each place, then each engine added up."""
    return f"{_places(rows)}\n\n{summary_table(rows)}"


def _places(rows: Sequence[Row]) -> str:
    """One line for an engine and a place, with and without a key beside each other."""
    keyed = {(row.setup, row.step, row.position): row for row in rows if row.with_key}
    lines = []
    for key in dict.fromkeys((row.setup, row.step, row.position) for row in rows):
        both = [row for row in rows if (row.setup, row.step, row.position) == key]
        again = [f"{step} x{times}" for row in both for step, times in row.again.items()]
        with_key = keyed.get(key)
        without = next((row for row in both if not row.with_key), None)
        lines.append(
            (
                *key,
                f"{sum(row.completed for row in both)}/{sum(row.trials for row in both)}",
                _added(again) or "-",
                "" if with_key is None else str(with_key.duplicates),
                "" if without is None else str(without.duplicates),
                " ".join(f"{row.recovered_s:.1f}" for row in both),
            )
        )
    heads = ("engine", "killed at", "where", "completed", "executed again", "dup. keyed")
    return _table((*heads, "dup. without", "recovered s"), lines)


def summary_table(rows: Sequence[Row]) -> str:
    """Each engine in one line."""
    lines = [
        (
            one.setup,
            f"{one.completed}/{one.trials}",
            str(one.again_in_window),
            str(one.lost_records),
            f"{one.duplicates_with_key}/{one.effect_windows}",
            f"{one.duplicates_without_key}/{one.effect_windows}",
            f"{one.recovered_s:.1f}",
        )
        for one in summaries(rows)
    ]
    heads = ("engine", "completed", "again in window", "again though on record")
    return _table((*heads, "dup. keyed", "dup. without", "recovered s"), lines)


def edit_table(cells: Sequence[Cell]) -> str:
    """Each engine and edit, with what became of the run."""
    lines = [
        (
            cell.setup,
            cell.edit,
            cell.verdict,
            ", ".join(cell.executed_again) or "-",
            str(cell.duplicates),
            ", ".join(cell.wrong_values) or "-",
            {None: "-", True: "yes", False: "no"}[cell.back],
            (cell.said or "-").splitlines()[0][:60],
        )
        for cell in cells
    ]
    heads = ("engine", "edit", "outcome", "again", "dup.", "wrong values", "old code finishes")
    return _table((*heads, "said"), lines)


def speed_table(rows: Sequence[Speed]) -> str:
    """Each engine with its rate, and how many times as fast durable_mini is."""
    lines = [
        (
            row.setup,
            row.version,
            row.storage,
            f"{row.steps_per_s:,.0f}",
            f"{row.ratio:.1f}",
            f"{row.low:.1f} to {row.high:.1f}",
        )
        for row in rows
    ]
    heads = ("engine", "version", "storage", "steps/s", "durable_mini is faster by", "rounds")
    return _table(heads, lines)


TABLES: dict[str, Callable[[Any], str]] = {
    "crashes": crash_table,
    "edits": edit_table,
    "speeds": speed_table,
}


def _added(again: Iterable[str]) -> str:
    """ "charge x1" and "charge x2" as "charge x3"."""
    total: dict[str, int] = {}
    for one in again:
        step, times = one.split(" x")
        total[step] = total.get(step, 0) + int(times)
    return ", ".join(f"{step} x{times}" for step, times in total.items())


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Markdown, with columns of equal width, so that it reads as text as well."""
    widths = [max(len(row[place]) for row in (heads, *lines)) for place in range(len(heads))]
    rule = ["-" * width for width in widths]
    rows = (heads, rule, *lines)
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |"
        for row in rows
    )
