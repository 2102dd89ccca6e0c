"""The results tables: what is in them, how they print, and a check that tells fault from noise."""

import json
import random
from dataclasses import replace
from functools import partial
from io import StringIO

import pytest
from rich.console import Console
from schedules import simulate_by_schedule

from durable_mini.events import Position
from durable_mini.lab import results as tables, simulation
from durable_mini.lab.crashes import EQUAL_WEIGHTS, CrashPlan
from durable_mini.lab.results import (
    DEFAULT_RATES,
    PUBLISHED,
    check_effort,
    check_results,
    print_results,
    results,
    runs_in_results,
)
from durable_mini.lab.theory import STRATEGIES, Quantity, Result, exact

MANY_RUNS = 40_000


def drawn(strategy, crash_rate, runs, seed, *, weights=EQUAL_WEIGHTS, progress=None):
    """Stand in for `simulate`: exact means with the noise that so many runs would have."""
    expected = exact(strategy, crash_rate, runs, weights=weights)
    rng = random.Random(f"{seed}/{crash_rate}/{weights}")
    if progress is not None:
        progress(runs // 2)
        progress(runs - runs // 2)
    noisy = [
        Quantity(rng.gauss(q.mean, q.se), q.sd, q.low, q.high)
        for q in (expected.cost, expected.restarts, expected.duplicates)
    ]
    return Result(strategy, crash_rate, runs, *noisy)


@pytest.fixture
def simulate_with(monkeypatch):
    """Return a function that replaces the simulation which `results` calls."""
    return partial(monkeypatch.setattr, tables, "simulate")


@pytest.fixture
def table(simulate_with):
    simulate_with(drawn)
    return results()


def printed(table, width=80):
    out = StringIO()
    print_results(table, Console(file=out, width=width))
    return out.getvalue()


def test_the_first_table_has_a_row_for_every_strategy_and_crash_rate(table):
    rows = table["by_strategy"]
    assert [(row["strategy"], row["crash_rate"]) for row in rows] == [
        (strategy, rate) for strategy in STRATEGIES for rate in DEFAULT_RATES
    ]
    for row in rows:
        expected = exact(row["strategy"], row["crash_rate"], 400)
        for name in ("cost", "restarts", "duplicates"):
            quantity = getattr(expected, name)
            assert row[name]["exact"] == quantity.mean
            assert (row[name]["low95"], row[name]["high95"]) == (quantity.low, quantity.high)
            assert set(row[name]) == {"simulated", "exact", "low95", "high95", "published"}


def test_the_second_table_has_the_cost_of_two_strategies_at_every_crash_rate(table):
    rows = table["by_crash_rate"]
    assert [row["crash_rate"] for row in rows] == list(DEFAULT_RATES)
    for row in rows:
        assert set(row) == {"crash_rate", "restart", "journal"}
        for strategy in ("restart", "journal"):
            assert set(row[strategy]) == {"cost"}
            expected = exact(strategy, row["crash_rate"], 400).cost.mean
            assert row[strategy]["cost"]["exact"] == expected


def test_published_figures_stand_where_the_source_gives_one_and_nowhere_else(table):
    row = {(row["strategy"], row["crash_rate"]): row for row in table["by_strategy"]}
    first = [row[strategy, 0.08] for strategy in STRATEGIES]
    assert [line["cost"]["published"] for line in first] == [12.43, 8.22, 8.22]
    assert [line["restarts"]["published"] for line in first] == [0.86, 0.63, 0.63]
    assert [line["duplicates"]["published"] for line in first] == [243, 35, 0]
    assert row["restart", 0.02]["cost"]["published"] == 9.02
    assert row["journal+key", 0.02]["cost"]["published"] is None
    assert row["restart", 0.20]["restarts"]["published"] is None
    second = [
        (line["restart"]["cost"]["published"], line["journal"]["cost"]["published"])
        for line in table["by_crash_rate"]
    ]
    assert second == [(9.02, 8.06), (11.94, 8.24), (25.50, 8.53)]


def test_the_two_tables_are_simulated_from_seeds_of_their_own(simulate_with):
    seeds = []

    def noting(strategy, crash_rate, runs, seed, **options):
        seeds.append(seed)
        return drawn(strategy, crash_rate, runs, seed, **options)

    simulate_with(noting)
    table = results(seed=5, crash_rates=(0.08,))
    assert seeds[:3] == [5, 5, 5]
    assert seeds[3] == seeds[4] != 5
    first = table["by_strategy"][0]["cost"]
    second = table["by_crash_rate"][0]["restart"]["cost"]
    assert first["exact"] == second["exact"]
    assert first["simulated"] != second["simulated"]


def test_the_same_seed_gives_the_same_tables_and_they_are_json(simulate_with):
    simulate_with(drawn)
    assert results(seed=3) == results(seed=3) != results(seed=4)
    table = results(seed=3)
    assert json.loads(json.dumps(table)) == table


def test_progress_adds_up_to_all_the_runs(simulate_with):
    simulate_with(drawn)
    finished = []
    results(runs=401, crash_rates=(0.02, 0.3), progress=finished.append)
    assert sum(finished) == runs_in_results(401, (0.02, 0.3)) == 401 * 2 * 5


@pytest.mark.parametrize(
    ("setting", "words"),
    [({"crash_rates": (0.08, 1.0)}, "crash rate must be"), ({"runs": 0}, "runs must be")],
)
def test_nothing_is_simulated_for_a_setting_without_an_answer(simulate_with, setting, words):
    simulate_with(lambda *_, **__: pytest.fail("simulated before the setting was checked"))
    with pytest.raises(ValueError, match=words):
        results(**setting)


def test_every_published_figure_lies_within_two_standard_errors_of_exact():
    for column, figures in PUBLISHED.items():
        for (strategy, rate), figure in figures.items():
            quantity = getattr(exact(strategy, rate, 400), column.removesuffix("_by_crash_rate"))
            assert abs(figure - quantity.mean) <= 2 * quantity.se


@pytest.mark.parametrize("runs", [400, MANY_RUNS])
def test_the_check_takes_noise_for_noise(simulate_with, runs):
    simulate_with(drawn)
    assert check_results(results(runs=runs, seed=1)) == []


def test_the_check_sees_position_weights_that_are_not_equal(simulate_with):
    simulate_with(partial(drawn, weights=(0.45, 0.275, 0.275)))
    complaints = check_results(results(runs=MANY_RUNS))
    assert any("journal at 0.08: cost: simulated" in line for line in complaints)
    assert any("journal at 0.2: duplicates: simulated" in line for line in complaints)


def test_the_check_sees_a_crash_after_the_last_step_that_is_not_counted(simulate_with):
    def forgetful(strategy, crash_rate, runs, seed, *, progress=None):
        found = drawn(strategy, crash_rate, runs, seed, progress=progress)
        tries_of_last = 1 / (1 - crash_rate if strategy == "restart" else 1 - crash_rate * 2 / 3)
        fewer = replace(found.restarts, mean=found.restarts.mean - tries_of_last * crash_rate / 3)
        return replace(found, restarts=fewer)

    simulate_with(forgetful)
    complaints = check_results(results(runs=MANY_RUNS))
    assert any("journal at 0.2: restarts: simulated" in line for line in complaints)
    assert not any("cost" in line for line in complaints)


def test_the_check_sees_a_duplicate_that_a_key_let_through(table):
    table["by_strategy"][-1]["duplicates"]["simulated"] = 1
    complaints = check_results(table)
    assert "journal+key at 0.2: 1 duplicates, not 0" in complaints


def test_the_check_sees_an_exact_value_that_is_none(table):
    table["by_strategy"][0]["cost"]["exact"] += 0.01
    assert any("restart at 0.02: cost: the table's exact" in line for line in check_results(table))


def test_the_check_sees_a_published_figure_that_is_too_far_off(table):
    table["by_crash_rate"][2]["journal"]["cost"]["published"] = 8.35
    (complaint,) = check_results(table)
    assert "journal at 0.2: cost: published 8.35, exact 8.61538" in complaint
    assert "standard errors away, above 2" in complaint


@pytest.mark.parametrize("runs", [1, 400, MANY_RUNS, 10_000_000])
def test_the_printed_tables_fit_eighty_columns_uncut(simulate_with, runs):
    simulate_with(drawn)
    text = printed(results(runs=runs, crash_rates=(0.0, 0.02, 0.08, 0.2)))
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "…" not in text
    for word in ("simulated", "exact", "95 % interval", "published", "12.154", "12.43", "11.94"):
        assert word in text


def test_the_printed_tables_say_outside_where_a_number_is_outside(table):
    for row in table["by_strategy"]:
        for name in ("cost", "restarts", "duplicates"):
            row[name]["simulated"] = row[name]["exact"]
    for rate_row in table["by_crash_rate"]:
        for strategy in ("restart", "journal"):
            rate_row[strategy]["cost"]["simulated"] = rate_row[strategy]["cost"]["exact"]
    assert "0 of 33 simulated numbers outside" in " ".join(printed(table).split())
    table["by_strategy"][1]["cost"]["simulated"] = 13.0
    text = printed(table)
    (line,) = [line for line in text.splitlines() if "13.000" in line]
    assert line.split()[-1] == "outside"
    assert "1 of 33 simulated numbers outside" in " ".join(text.split())


def test_a_total_of_the_source_says_of_how_many_runs_it_is(simulate_with):
    simulate_with(drawn)
    assert "243 in 400" in printed(results(runs=MANY_RUNS))
    assert "243 in 400" not in printed(results(runs=400))


@pytest.mark.slow
def test_many_runs_through_the_engine_agree_with_the_closed_forms(simulate_with):
    simulate_with(simulate_by_schedule)
    assert check_results(results(runs=MANY_RUNS)) == []


@pytest.mark.slow
def test_tables_of_runs_by_their_crashes_are_those_of_every_run_through_the_engine(simulate_with):
    every_run = results(runs=400)
    simulate_with(simulate_by_schedule)
    assert results(runs=400) == every_run


@pytest.fixture
def journal_through_the_engine(simulate_with):
    """Return a function that puts a simulation in place of the journal's, noise for the rest."""

    def replace_journal(through_engine):
        def mixed(strategy, *arguments, **options):
            chosen = through_engine if strategy == "journal" else drawn
            return chosen(strategy, *arguments, **options)

        simulate_with(mixed)

    return replace_journal


class ForgetfulPlan(CrashPlan):
    """A faulty plan: the crash after the last step's record never happens."""

    def __call__(self, position, kind, name):
        if (position, name) != (Position.AFTER, "update_crm"):
            super().__call__(position, kind, name)


@pytest.mark.slow
def test_a_crash_after_the_last_step_left_out_of_the_engine_turns_the_check_red(
    journal_through_the_engine, monkeypatch
):
    monkeypatch.setattr(simulation, "CrashPlan", ForgetfulPlan)
    journal_through_the_engine(simulate_by_schedule)
    complaints = check_results(results(runs=10_000, crash_rates=(0.2,)))
    assert [line.partition(", exact")[0].rpartition(" ")[0] for line in complaints] == [
        "journal at 0.2: restarts: simulated"
    ]


@pytest.mark.slow
def test_unequal_position_weights_in_the_engine_turn_the_check_red(journal_through_the_engine):
    journal_through_the_engine(partial(simulate_by_schedule, weights=(0.45, 0.275, 0.275)))
    complaints = check_results(results(runs=10_000, crash_rates=(0.2,)))
    assert any("journal at 0.2: cost: simulated" in line for line in complaints)
    assert any("journal at 0.2: duplicates: simulated" in line for line in complaints)


def test_a_rate_that_would_never_finish_is_refused():
    with pytest.raises(ValueError, match=r"crash rate 0\.9 needs about .* attempts"):
        check_effort(400, (0.02, 0.9))
    check_effort(40_000, DEFAULT_RATES)
