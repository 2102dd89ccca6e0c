"""Monte Carlo through the engine: repeatable, in agreement with the closed forms, and refusable."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from schedules import simulate_by_schedule

from durable_mini.lab import (
    EQUAL_WEIGHTS,
    REFERENCE_SHAPE,
    STRATEGIES,
    exact,
    shape_of,
    simulate,
    simulation,
)
from durable_mini.lab.crashes import CrashPlan
from durable_mini.lab.shape import StepSpec
from durable_mini.lab.simulation import simulating
from durable_mini.lab.theory import Quantity, Result

LIMIT_SE = 3.5
ODD_SHAPE = (
    StepSpec("look", "step", 0.5),
    StepSpec("pay", "effect", 0.0),
    StepSpec("ask", "step", 4.0),
    StepSpec("mail", "effect", 0.0),
)
EFFECTS_FIRST = (StepSpec("pay", "effect", 0.0), StepSpec("ask", "step", 3.0))


def three(result: Result) -> dict[str, Quantity]:
    return {name: getattr(result, name) for name in ("cost", "restarts", "duplicates")}


def distances_se(found: Result, expected: Result) -> dict[str, float]:
    """How many standard errors of what was expected each quantity is away from it."""
    distances = {}
    for name, quantity in three(expected).items():
        off = three(found)[name].mean - quantity.mean
        if quantity.se:
            distances[name] = abs(off) / quantity.se
        else:
            distances[name] = math.inf if off else 0.0
    return distances


SETTINGS = [
    (0.2, (0.1, 0.6, 0.3), REFERENCE_SHAPE),
    (0.3, EQUAL_WEIGHTS, ODD_SHAPE),
    (0.08, EQUAL_WEIGHTS, REFERENCE_SHAPE),
    (0.4, (0.0, 0.0, 1.0), EFFECTS_FIRST),
    (0.05, (0.0, 1.0, 0.0), shape_of(9, llm_cost=1.0)),
]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("crash_rate", "weights", "shape"), SETTINGS[:2])
@pytest.mark.slow
def test_a_thousand_runs_agree_with_the_closed_forms(
    strategy: str, crash_rate: float, weights: Any, shape: Any
) -> None:
    setting = {"weights": weights, "shape": shape}
    found = simulate(strategy, crash_rate, 1_000, seed=7, **setting)
    distances = distances_se(found, exact(strategy, crash_rate, 1_000, **setting))
    assert max(distances.values()) <= LIMIT_SE, distances


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("crash_rate", "weights", "shape"), SETTINGS)
def test_four_thousand_runs_agree_in_means_and_spreads(
    strategy: str, crash_rate: float, weights: Any, shape: Any
) -> None:
    setting = {"weights": weights, "shape": shape}
    found = simulate_by_schedule(strategy, crash_rate, 4_000, seed=11, **setting)
    expected = exact(strategy, crash_rate, 4_000, **setting)
    distances = distances_se(found, expected)
    assert max(distances.values()) <= LIMIT_SE, distances
    for name, quantity in three(expected).items():
        assert three(found)[name].sd == pytest.approx(quantity.sd, rel=0.15, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("crash_rate", "weights", "shape"), SETTINGS)
def test_runs_by_their_crashes_come_to_what_every_run_through_the_engine_comes_to(
    strategy: str, crash_rate: float, weights: Any, shape: Any
) -> None:
    setting = {"weights": weights, "shape": shape}
    assert simulate_by_schedule(strategy, crash_rate, 200, seed=13, **setting) == simulate(
        strategy, crash_rate, 200, seed=13, **setting
    )


class LenientPlan(CrashPlan):
    """A faulty plan: the crash after the last step's record never happens."""

    def __call__(self, position: Any, kind: Any, name: str) -> None:
        if (position, name) != ("after", "update_crm"):
            super().__call__(position, kind, name)


@pytest.mark.parametrize("strategy", ["restart", "journal"])
@pytest.mark.slow
def test_the_comparison_sees_a_crash_after_the_last_step_that_is_left_out(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting: dict[str, Any] = {"weights": (0.0, 0.0, 1.0)}
    monkeypatch.setattr(simulation, "CrashPlan", LenientPlan)
    found, expected = (f(strategy, 0.2, 1_000, **setting) for f in (simulate_by_schedule, exact))
    assert distances_se(found, expected)["restarts"] > LIMIT_SE


@pytest.mark.slow
def test_the_comparison_sees_position_weights_that_are_not_equal() -> None:
    found = simulate_by_schedule("journal", 0.2, 4_000, weights=(0.45, 0.275, 0.275))
    distances = distances_se(found, exact("journal", 0.2, 4_000))
    assert min(distances["cost"], distances["duplicates"]) > LIMIT_SE


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(strategy: str) -> None:
    first, second, other = (simulate(strategy, 0.2, 120, seed=seed) for seed in (3, 3, 4))
    assert first == second
    assert first.cost != other.cost
    assert (first.strategy, first.crash_rate, first.runs) == (strategy, 0.2, 120)


SIMULATES = "from durable_mini.lab import simulate; print(simulate('journal', 0.2, 60, seed=1))"


def test_a_seed_gives_the_same_numbers_in_a_process_of_any_hash_seed() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", SIMULATES],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    ]
    assert told == [str(simulate("journal", 0.2, 60, seed=1))] * 2


def test_a_journal_with_keys_meets_the_same_crashes_and_leaves_no_duplicates() -> None:
    journal, keyed = (simulate(name, 0.2, 400, seed=5) for name in ("journal", "journal+key"))
    assert (journal.cost, journal.restarts) == (keyed.cost, keyed.restarts)
    assert journal.duplicates.mean > 0
    assert keyed.duplicates == Quantity(0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_crashes_nothing_is_repeated(strategy: str) -> None:
    found = simulate(strategy, 0.0, 60)
    assert found.cost == Quantity(8.0, 0.0, 8.0, 8.0)
    assert found.restarts == found.duplicates == Quantity(0.0, 0.0, 0.0, 0.0)


def test_one_run_has_no_spread() -> None:
    found = simulate("journal", 0.5, runs=1, seed=2)
    assert found.cost.sd == 0.0
    assert found.cost.low == found.cost.high == found.cost.mean


@pytest.mark.parametrize("runs", [1, 50, 51, 130])
def test_progress_tells_of_every_run_once(runs: int) -> None:
    finished: list[int] = []
    found = simulate("restart", 0.1, runs, progress=finished.append)
    assert sum(finished) == runs == found.runs
    assert all(piece > 0 for piece in finished)
    assert len(finished) == math.ceil(runs / simulation.CHUNK_RUNS)


def test_a_simulation_in_pieces_gives_what_one_in_one_go_gives() -> None:
    finished: list[int] = []
    result = drained(simulating("journal", 0.2, 120, 9), finished)
    assert finished == [50, 50, 20]
    assert result == simulate("journal", 0.2, 120, seed=9)


def drained(pieces: Any, finished: list[int]) -> Any:
    while True:
        try:
            finished.append(next(pieces))
        except StopIteration as end:
            return end.value


def test_a_simulation_can_be_abandoned_between_two_pieces() -> None:
    abandoned = simulating("restart", 0.2, 100_000, 9)
    assert next(abandoned) == 50
    abandoned.close()
    assert list(abandoned) == []
    assert simulate("restart", 0.2, 60, seed=9) == simulate("restart", 0.2, 60, seed=9)


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing may be simulated here."""
    monkeypatch.setattr(simulation, "Engine", lambda *_, **__: pytest.fail("an engine was made"))
    yield


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"strategy": "hope"}, "unknown strategy 'hope': .*'restart', 'journal', 'journal.key'"),
        ({"crash_rate": 1.0}, "crash rate must be at least 0 and below 1, not 1.0"),
        ({"crash_rate": -0.1}, "crash rate must be"),
        ({"crash_rate": math.nan}, "crash rate must be"),
        ({"runs": 0}, "runs must be a whole number, one or more, not 0"),
        ({"runs": -5}, "runs must be"),
        ({"runs": 1.5}, "runs must be"),
        ({"weights": (0.5, 0.5)}, "weights must be three numbers"),
        ({"weights": (0.6, 0.6, -0.2)}, "weights must be three numbers"),
        ({"shape": ()}, "shape must have at least one step"),
    ],
)
def test_a_setting_without_an_answer_is_refused_in_one_line(
    change: dict[str, Any], words: str
) -> None:
    setting: dict[str, Any] = {"strategy": "journal", "crash_rate": 0.08, "runs": 10} | change
    with pytest.raises(ValueError, match=words) as refusal:
        simulate(**setting)
    assert "\n" not in str(refusal.value)
