"""The closed forms, against three oracles that share no line with them.

The oracles walk the crash model outcome by outcome. `enumerated` follows every path of a run until
less than 1e-13 of all chance is left, `solved` takes first and second moments of an absorbing
Markov chain from two linear systems, `played` draws runs at random. None of them uses the engine.
"""

import math
import random
import timeit
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from durable_mini.lab.crashes import EQUAL_WEIGHTS
from durable_mini.lab.shape import REFERENCE_SHAPE, StepSpec, shape_of
from durable_mini.lab.theory import STRATEGIES, Quantity, check_setting, cost_with_one_crash, exact

ODD_SHAPE = (
    StepSpec("look", "step", 0.5),
    StepSpec("pay", "effect", 3.0),
    StepSpec("ask", "step", 4.0),
    StepSpec("mail", "effect", 0.25),
)
NO_EFFECTS = (StepSpec("think", "step", 1.0), StepSpec("write", "step", 2.5))
ONE_STEP = (StepSpec("think", "step", 2.0),)
ONE_EFFECT = (StepSpec("pay", "effect", 1.5),)
WEIGHTS = [
    EQUAL_WEIGHTS,
    (0.45, 0.275, 0.275),
    (0.1, 0.6, 0.3),
    (1.0, 0.0, 0.0),
    (0.0, 1.0, 0.0),
    (0.0, 0.0, 1.0),
]


def outcomes(strategy, place, crash_rate, weights):
    """Return (chance, work_done, crashed, next place) of one live execution at `place`.

    A place equal to the number of steps is the end. A crash after the last record is a restart too:
    under a journal the next attempt only replays, from scratch it begins again.
    """
    before, window, after = weights
    scratch = strategy == "restart"
    ways = [
        (crash_rate * before, False, True, 0 if scratch else place),
        (crash_rate * window, True, True, 0 if scratch else place),
        (crash_rate * after, True, True, 0 if scratch else place + 1),
        (1 - crash_rate, True, False, place + 1),
    ]
    return [way for way in ways if way[0] > 0]


def gain(strategy, spec, work_done, crashed):
    """Return what one execution adds to (cost, restarts, executions of effects)."""
    counts = work_done and spec.kind == "effect" and strategy != "journal+key"
    return spec.cost * work_done, float(crashed), float(counts)


def wanted(strategy, shape):
    """Return how many of a run's effect executions are its first ones, hence no duplicates."""
    return 0 if strategy == "journal+key" else sum(spec.kind == "effect" for spec in shape)


def enumerated(strategy, crash_rate, weights, shape):
    going, done = {(0, 0.0, 0.0, 0.0): 1.0}, defaultdict(float)
    while sum(going.values()) > 1e-13:
        onwards = defaultdict(float)
        for (place, cost, restarts, effects), chance in going.items():
            for share, work_done, crashed, target in outcomes(strategy, place, crash_rate, weights):
                spent, died, touched = gain(strategy, shape[place], work_done, crashed)
                total = (cost + spent, restarts + died, effects + touched)
                if target == len(shape):
                    done[total] += chance * share
                else:
                    onwards[target, *total] += chance * share
        going = onwards
    values, chances = np.array(list(done)), np.array(list(done.values()))
    means = chances @ values
    sds = np.sqrt(chances @ (values - means) ** 2)
    return means - [0, 0, wanted(strategy, shape)], sds


def solved(strategy, crash_rate, weights, shape):
    steps = len(shape)
    moves, first, second = np.zeros((steps, steps)), np.zeros((steps, 3)), np.zeros((steps, 3))
    carried = []
    for place in range(steps):
        for share, work_done, crashed, target in outcomes(strategy, place, crash_rate, weights):
            gained = np.array(gain(strategy, shape[place], work_done, crashed))
            first[place] += share * gained
            second[place] += share * gained**2
            if target < steps:
                moves[place, target] += share
                carried.append((place, share * gained, target))
    mean = np.linalg.solve(np.eye(steps) - moves, first)
    for place, gained, target in carried:
        second[place] += 2 * gained * mean[target]
    square = np.linalg.solve(np.eye(steps) - moves, second)
    sds = np.sqrt(np.maximum(square[0] - mean[0] ** 2, 0))
    return mean[0] - [0, 0, wanted(strategy, shape)], sds


def played(strategy, crash_rate, weights, shape, runs, seed):
    rng, rows = random.Random(seed), []
    ways = [outcomes(strategy, place, crash_rate, weights) for place in range(len(shape))]
    chances = [[way[0] for way in choices] for choices in ways]
    for _ in range(runs):
        place, cost, restarts, effects = 0, 0.0, 0.0, -float(wanted(strategy, shape))
        while place < len(shape):
            _, work_done, crashed, target = rng.choices(ways[place], chances[place])[0]
            spent, died, touched = gain(strategy, shape[place], work_done, crashed)
            cost, restarts, effects = cost + spent, restarts + died, effects + touched
            place = target
        rows.append((cost, restarts, effects))
    return np.array(rows)


def assert_same(result, means, sds):
    """Compare `exact(..., runs=1)` with an oracle's means and standard deviations."""
    for quantity, mean, sd in zip(three(result), means, sds, strict=True):
        assert math.isclose(quantity.mean, mean, rel_tol=1e-9, abs_tol=1e-9)
        assert math.isclose(quantity.sd, sd, rel_tol=1e-7, abs_tol=1e-6)


def three(result):
    return result.cost, result.restarts, result.duplicates


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(
    ("shape", "crash_rate"),
    [
        (ONE_STEP, 0.4),
        (ONE_EFFECT, 0.25),
        (NO_EFFECTS, 0.2),
        (ODD_SHAPE[:2], 0.1),
        (ODD_SHAPE[:3], 0.02),
    ],
)
@pytest.mark.slow
def test_exact_agrees_with_every_path_enumerated(strategy, weights, shape, crash_rate):
    result = exact(strategy, crash_rate, runs=1, weights=weights, shape=shape)
    assert_same(result, *enumerated(strategy, crash_rate, weights, shape))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("crash_rate", [0.0, 0.02, 0.08, 0.2, 0.6, 0.8])
@pytest.mark.parametrize("shape", [REFERENCE_SHAPE, ODD_SHAPE, NO_EFFECTS, ONE_EFFECT])
def test_exact_agrees_with_the_moments_of_a_markov_chain(strategy, weights, crash_rate, shape):
    result = exact(strategy, crash_rate, runs=1, weights=weights, shape=shape)
    assert_same(result, *solved(strategy, crash_rate, weights, shape))


CALLS = st.builds(
    StepSpec, st.just("call"), st.sampled_from(["step", "effect"]), st.floats(0, 9, width=16)
)
SHAPES = st.lists(CALLS, min_size=1, max_size=9).map(tuple)
RATES = st.floats(0.001, 0.6)
SPLITS = st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8)).filter(any)
CHANCES = SPLITS.map(lambda parts: tuple(part / sum(parts) for part in parts))


@given(st.sampled_from(STRATEGIES), RATES, CHANCES, SHAPES)
def test_exact_agrees_with_the_markov_chain_on_any_shape(strategy, crash_rate, weights, shape):
    result = exact(strategy, crash_rate, runs=1, weights=weights, shape=shape)
    assert_same(result, *solved(strategy, crash_rate, weights, shape))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("weights", [EQUAL_WEIGHTS, (0.1, 0.6, 0.3)])
def test_exact_agrees_with_runs_drawn_at_random(strategy, weights):
    runs, crash_rate = 4_000, 0.15
    rows = played(strategy, crash_rate, weights, REFERENCE_SHAPE, runs, seed=20)
    result = exact(strategy, crash_rate, runs=1, weights=weights)
    for quantity, values in zip(three(result), rows.T, strict=True):
        assert abs(values.mean() - quantity.mean) <= 3.5 * quantity.sd / math.sqrt(runs)
        assert math.isclose(values.std(), quantity.sd, rel_tol=0.08)


TABLE = """
restart 0.02 8.840 0.125 0.152 0.021 49.9 10.3
restart 0.08 12.154 0.332 0.793 0.060 226.6 23.8
restart 0.20 25.364 1.008 3.768 0.212 761.5 53.3
journal 0.02 8.054 0.016 0.142 0.019 8.1 2.9
journal 0.08 8.225 0.034 0.592 0.039 33.8 5.9
journal 0.20 8.615 0.058 1.615 0.066 92.3 10.0
"""


@pytest.mark.parametrize("row", TABLE.split("\n")[1:-1])
def test_exact_gives_the_reference_table_to_every_printed_digit(row):
    strategy, crash_rate, *printed = row.split()
    result = exact(strategy, float(crash_rate))
    found = [f"{x:.3f}" for q in (result.cost, result.restarts) for x in (q.mean, q.se)]
    found += [f"{x:.1f}" for x in (result.duplicates.mean, result.duplicates.se)]
    assert found == printed


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("shape", [REFERENCE_SHAPE, ODD_SHAPE, NO_EFFECTS, ONE_STEP])
def test_without_crashes_a_run_costs_its_steps_and_nothing_varies(strategy, weights, shape):
    result = exact(strategy, 0.0, weights=weights, shape=shape)
    assert result.cost.mean == sum(spec.cost for spec in shape)
    assert result.restarts.mean == result.duplicates.mean == 0.0
    assert [quantity.sd for quantity in three(result)] == [0.0, 0.0, 0.0]
    assert result.cost.low == result.cost.high == result.cost.mean


@given(st.sampled_from(STRATEGIES), CHANCES, SHAPES, st.lists(RATES, min_size=2, max_size=5))
def test_a_higher_crash_rate_never_makes_anything_smaller(strategy, weights, shape, rates):
    results = [exact(strategy, rate, weights=weights, shape=shape) for rate in sorted(rates)]
    for lower, higher in pairwise(results):
        for less, more in zip(three(lower), three(higher), strict=True):
            assert less.mean <= more.mean * (1 + 1e-12) + 1e-12


@given(RATES, CHANCES, SHAPES)
def test_a_journal_never_costs_more_and_a_key_leaves_no_duplicates(crash_rate, weights, shape):
    restart, journal, keyed = (
        exact(strategy, crash_rate, weights=weights, shape=shape) for strategy in STRATEGIES
    )
    for better, worse in zip(three(journal), three(restart), strict=True):
        assert better.mean <= worse.mean * (1 + 1e-12)
    assert (keyed.cost, keyed.restarts) == (journal.cost, journal.restarts)
    assert keyed.duplicates == Quantity(0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.0, 0.0, 1.0)])
def test_a_journal_repeats_nothing_when_no_crash_falls_in_the_window(weights):
    result = exact("journal", 0.3, weights=weights)
    assert (result.cost.mean, result.cost.sd) == (8.0, 0.0)
    assert result.duplicates.mean == 0.0
    assert result.restarts.mean > 0.0


def test_a_crash_after_the_last_record_counts_as_a_restart():
    always_after = (0.0, 0.0, 1.0)
    journal = exact("journal", 0.25, weights=always_after, shape=ONE_STEP)
    restart = exact("restart", 0.25, weights=always_after, shape=ONE_STEP)
    assert journal.restarts.mean == 0.25
    assert math.isclose(restart.restarts.mean, 1 / 3)


def test_intervals_shrink_with_the_root_of_the_runs_and_totals_grow_with_them():
    few, many = exact("restart", 0.08, runs=400), exact("restart", 0.08, runs=40_000)
    assert math.isclose(few.cost.se, 10 * many.cost.se)
    assert math.isclose(few.duplicates.mean * 100, many.duplicates.mean)
    assert math.isclose(few.duplicates.se * 10, many.duplicates.se)
    assert few.cost.sd == many.cost.sd
    assert math.isclose(few.cost.high - few.cost.mean, 1.96 * few.cost.se)


def test_an_interval_never_goes_below_zero_and_still_tells_its_standard_error():
    rare = exact("journal", 0.0001).duplicates
    assert rare.low == 0.0
    assert math.isclose(rare.se, rare.sd * math.sqrt(400))
    assert rare.value == rare.mean


@pytest.mark.parametrize("step_number", range(1, 8))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_crash_costs_what_walking_its_three_positions_gives(strategy, step_number):
    costs = [spec.cost for spec in REFERENCE_SHAPE]
    done, own, crash_free = sum(costs[: step_number - 1]), costs[step_number - 1], sum(costs)
    if strategy == "restart":
        bills = [crash_free + done, crash_free + done + own, crash_free + done + own]
    else:
        bills = [crash_free, crash_free + own, crash_free]
    assert math.isclose(cost_with_one_crash(strategy, step_number), sum(bills) / 3)
    for place, bill in enumerate(bills):
        weights = tuple(float(place == here) for here in range(3))
        assert cost_with_one_crash(strategy, step_number, weights=weights) == bill


def test_one_crash_at_step_five_costs_46_thirds_from_scratch_and_26_thirds_with_a_journal():
    assert math.isclose(cost_with_one_crash("restart", 5), 46 / 3)
    assert math.isclose(cost_with_one_crash("journal", 5), 26 / 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"strategy": "hope"}, "unknown strategy 'hope': .*'restart', 'journal', 'journal.key'"),
        ({"crash_rate": 1.0}, "crash rate must be at least 0 and below 1, not 1.0"),
        ({"crash_rate": -0.01}, "crash rate must be"),
        ({"crash_rate": math.nan}, "crash rate must be"),
        ({"runs": 0}, "runs must be a whole number, one or more, not 0"),
        ({"runs": 2.5}, "runs must be a whole number, one or more, not 2.5"),
        ({"weights": (0.5, 0.2, 0.2)}, "weights must be three numbers"),
        ({"shape": ()}, "shape must have at least one step"),
    ],
)
def test_a_setting_without_an_answer_is_refused_in_one_line(change, words):
    setting = {"strategy": "journal", "crash_rate": 0.08, "runs": 400}
    setting |= {"weights": EQUAL_WEIGHTS, "shape": REFERENCE_SHAPE} | change
    for function in (exact, check_setting):
        with pytest.raises(ValueError, match=words) as refusal:
            function(**setting)
        assert "\n" not in str(refusal.value)


def test_a_restart_that_would_never_end_is_refused_and_a_journal_still_answers():
    endless = shape_of(1_000)
    with pytest.raises(ValueError, match="starting over would take more than"):
        exact("restart", 0.9, shape=endless)
    assert math.isfinite(exact("journal", 0.9, shape=endless).cost.high)


@pytest.mark.parametrize("step_number", [0, 8, -1])
def test_a_step_that_the_shape_has_not_got_is_refused(step_number):
    with pytest.raises(ValueError, match="none of the shape's steps 1 to 7"):
        cost_with_one_crash("restart", step_number)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_closed_form_takes_well_under_a_millisecond(strategy):
    best_s = min(timeit.repeat(lambda: exact(strategy, 0.08), number=100, repeat=5)) / 100
    assert best_s < 0.5e-3
