"""Chapter 04 quotes no result by hand: what it says in numbers, a cell has computed."""

from __future__ import annotations

import re
from pathlib import Path

from durable_mini.lab import notebooks
from durable_mini.lab.results import DEFAULT_RATES, PUBLISHED
from durable_mini.lab.theory import STRATEGIES, cost_with_one_crash, exact

CHAPTER = Path(__file__).resolve().parent.parent / "course" / "04_results.ipynb"


def results_by_hand() -> set[str]:
    """Every published and exact figure as somebody would type it."""
    typed = {f"{figure:g}" for column in PUBLISHED.values() for figure in column.values()}
    for strategy in STRATEGIES:
        for rate in DEFAULT_RATES:
            found = exact(strategy, rate)
            typed |= {f"{found.cost.mean:.2f}", f"{found.restarts.mean:.2f}"}
            typed |= {f"{found.duplicates.mean:.0f}", f"{found.duplicates.mean:.1f}"}
        typed |= {f"{cost_with_one_crash(strategy, step):.2f}" for step in range(1, 8)}
    return {figure for figure in typed if len(figure) > 1}


def test_no_result_is_typed_into_the_prose_of_chapter_04() -> None:
    prose = [cell.source for cell in notebooks.read(CHAPTER).cells if cell.cell_type == "markdown"]
    numbers = set(re.findall(r"(?<![\w/.])\d+(?:\.\d+)?", " ".join(prose)))

    assert numbers & {"14", "400"}  # the settings are found, so figures would be
    assert numbers & results_by_hand() == set()
