"""Tables of the results for a page: what stands in them, and what is marked."""

from __future__ import annotations

import pytest

from durable_mini.lab.compared import (
    LIMIT_SE,
    distance,
    distances,
    figures,
    first_table,
    second_table,
)
from durable_mini.lab.results import Results, results
from durable_mini.lab.simulation import simulate
from durable_mini.lab.theory import STRATEGIES, Result, exact


@pytest.fixture(scope="module")
def found() -> Results:
    return results(runs=20, crash_rates=(0.08,))


def test_first_table_has_each_quantity_of_each_strategy_beside_the_published_figure(
    found: Results,
) -> None:
    rows = first_table(found, 0.08).rows

    assert [row[:2] for row in rows] == [
        (quantity, strategy)
        for quantity in ("cost", "restarts", "duplicates")
        for strategy in STRATEGIES
    ]
    assert [row[-1] for row in rows] == [
        *("12.43", "8.22", "8.22", "0.86", "0.63", "0.63", "243", "35", "0")
    ]
    assert rows[0][3] == f"{exact('restart', 0.08).cost.mean:.2f}"


def test_second_table_has_the_cost_from_scratch_and_with_a_journal(found: Results) -> None:
    rows = second_table(found).rows

    assert [row[:2] for row in rows] == [("0.08", "restart"), ("0.08", "journal")]
    assert [row[-1] for row in rows] == ["11.94", "8.24"]


def test_figures_are_those_of_both_tables(found: Results) -> None:
    assert len(figures(found, 0.08)) == len(first_table(found, 0.08).rows) + 2


def test_first_table_of_a_rate_that_was_not_simulated_is_refused(found: Results) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        first_table(found, 0.5)


def test_distance_of_the_exact_values_is_none() -> None:
    assert distance(exact("restart", 0.08, 100), "duplicates") == 0.0


def test_distance_counts_standard_errors_and_marks_what_lies_beyond_the_limit() -> None:
    honest = simulate("restart", 0.08, 50)
    true = exact("restart", 0.2, 50)
    wrong = Result("restart", 0.08, 50, true.cost, honest.restarts, honest.duplicates)

    assert distance(wrong, "cost") > LIMIT_SE > abs(distance(honest, "cost"))
    cells = distances(honest, wrong).rows
    assert ["CAUGHT" in str(row[2]) for row in cells] == [False, True]


def test_distance_of_a_number_that_is_not_random_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing about it is random"):
        distance(exact("journal+key", 0.08, 10), "duplicates")
