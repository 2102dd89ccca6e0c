"""The figures of the last chapter: from a run, with interval and exact value, none typed."""

from __future__ import annotations

import re

import pytest

from durable_mini.lab.one_page import ALOUD, Figures
from durable_mini.lab.simulation import simulate
from durable_mini.lab.theory import STRATEGIES, exact

RUNS, SEED = 60, 3


@pytest.fixture(scope="module")
def figures() -> Figures:
    return Figures.from_run(RUNS, SEED)


def test_sentences_hold_no_digit_of_their_own() -> None:
    assert re.findall(r"\d", ALOUD) == []


def test_sentences_give_what_the_simulation_gave(figures: Figures) -> None:
    said = " ".join(figures.aloud().split())

    found = simulate("restart", 0.08, RUNS, SEED).cost
    true = exact("restart", 0.08).cost.mean
    half = found.high - found.mean
    assert f"Starting over costs {found.mean:.2f} ± {half:.2f} (exact {true:.2f})" in said
    assert f"I simulated {RUNS} runs of an agent with 7 steps, 3 of them effects" in said
    assert "Why not 8.0?" in said
    assert "{" not in said


def test_receiver_is_tested_as_often_as_the_journal_alone_repeats(figures: Figures) -> None:
    repeats = simulate("journal", 0.08, RUNS, SEED).duplicates.mean

    assert f"made {repeats:.0f} repeats" in " ".join(figures.aloud().split())


def test_receiver_that_was_never_tested_is_bounded_by_nothing() -> None:
    said = " ".join(Figures.from_run(runs=1, seed=0).aloud().split())

    assert "at about 100 %" in said


def test_table_has_a_row_for_each_figure_and_a_column_for_each_strategy(figures: Figures) -> None:
    head, rule, *rows = figures.table().splitlines()

    assert f"seed {SEED}, {RUNS} runs" in head
    assert all(strategy in head for strategy in STRATEGIES)
    assert [row.split("|")[1].strip() for row in rows] == [
        "cost per run at 2 %",
        "cost per run at 8 %",
        "cost per run at 20 %",
        "restarts per run at 8 %",
        "duplicates at 8 %",
    ]
    assert {line.count("|") for line in (head, rule, *rows)} == {5}
    assert rows[-1].rstrip(" |").endswith("0 ± 0 (exact 0)")
