"""Crash plans: seeded, at three positions, at the rate and with the weights that were asked for."""

import copy
import pickle
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from durable_mini.events import EventKind, Position
from durable_mini.lab.crashes import EQUAL_WEIGHTS, CrashAt, CrashPlan, InjectedCrash

STEP, EFFECT = EventKind.STEP, EventKind.EFFECT
BEFORE, WINDOW, AFTER = Position.BEFORE, Position.WINDOW, Position.AFTER


def call(probe, name="plan", kind=STEP):
    """Call the probe as the engine does for one live call; return the crash, or None."""
    try:
        for position in Position:
            probe(position, kind, name)
    except InjectedCrash as crash:
        return crash
    return None


def schedule(probe, calls):
    crashes = (call(probe) for _ in range(calls))
    return [crash and crash.position for crash in crashes]


def test_the_same_seed_gives_the_same_schedule():
    first, second = (schedule(CrashPlan(0.3, seed=11), 2_000) for _ in range(2))
    assert first == second
    assert first != schedule(CrashPlan(0.3, seed=12), 2_000)


def test_a_rate_of_zero_never_crashes():
    assert set(schedule(CrashPlan(0.0, seed=1), 5_000)) == {None}


@pytest.mark.parametrize(
    ("weights", "position"), [((1, 0, 0), BEFORE), ((0, 1, 0), WINDOW), ((0, 0, 1), AFTER)]
)
def test_all_the_weight_on_one_position_crashes_there_only(weights, position):
    assert set(schedule(CrashPlan(0.5, 3, weights), 2_000)) == {None, position}


@pytest.mark.parametrize("weights", [EQUAL_WEIGHTS, (0.45, 0.275, 0.275), (0.1, 0.2, 0.7)])
@pytest.mark.slow
def test_crashes_come_at_the_rate_and_with_the_weights_that_were_asked_for(weights):
    calls, rate = 200_000, 0.08
    counts = Counter(schedule(CrashPlan(rate, 5, weights), calls))
    for position, weight in zip(Position, weights, strict=True):
        chance = rate * weight
        sd = (calls * chance * (1 - chance)) ** 0.5
        assert abs(counts[position] - calls * chance) < 4 * sd


@given(st.integers(), st.floats(0, 0.99), st.lists(st.booleans(), max_size=60))
def test_other_kinds_of_call_never_crash_and_draw_nothing(seed, rate, extras):
    plain, mixed = CrashPlan(rate, seed), CrashPlan(rate, seed)
    for extra in extras:
        if extra:
            assert call(mixed, "now", EventKind.NOW) is None
        assert (call(plain) is None) == (call(mixed) is None)


def test_a_crash_that_was_due_in_a_call_that_failed_does_not_hit_the_next_call():
    probe = CrashPlan(0.999, 1, (0, 0, 1))
    probe(BEFORE, STEP, "plan")  # its work raises: neither of the later positions is reached
    assert call(probe, "now", EventKind.NOW) is None


def test_steps_and_effects_both_crash():
    probe = CrashPlan(0.9, seed=2)
    crashes = [call(probe, "charge", EFFECT) for _ in range(20)]
    assert {crash.kind for crash in crashes if crash} == {EFFECT}


@pytest.mark.parametrize("rate", [1.0, -0.1, 2, float("nan")])
def test_a_rate_outside_zero_to_one_is_refused(rate):
    with pytest.raises(ValueError, match="crash rate must be at least 0 and below 1"):
        CrashPlan(rate, seed=0)


@pytest.mark.parametrize(
    "weights", [(0.5, 0.5), (0.5, 0.5, 0.5), (-0.5, 0.5, 1.0), (float("nan"), 0.5, 0.5), ()]
)
def test_weights_that_are_no_three_chances_are_refused(weights):
    with pytest.raises(ValueError, match="weights must be three numbers"):
        CrashPlan(0.1, 0, weights)


@pytest.mark.parametrize(
    ("position", "work_done", "recorded", "words"),
    [
        (BEFORE, False, False, "injected crash before effect 'charge': no work was done"),
        (WINDOW, True, False, "in the crash window of effect 'charge': the work was done, the"),
        (AFTER, True, True, "after effect 'charge' was journalled: the work was done and is on"),
    ],
)
def test_a_crash_tells_what_was_done_and_what_is_recorded(position, work_done, recorded, words):
    crash = InjectedCrash(position, EFFECT, "charge")
    assert (crash.position, crash.kind, crash.name) == (position, EFFECT, "charge")
    assert (crash.work_done, crash.recorded) == (work_done, recorded)
    assert words in str(crash)


def test_a_crash_is_not_caught_as_an_ordinary_exception_and_can_be_copied():
    crash = InjectedCrash(WINDOW, EFFECT, "charge")
    assert not isinstance(crash, Exception)
    for twin in (copy.copy(crash), pickle.loads(pickle.dumps(crash))):
        assert str(twin) == str(crash)


@pytest.mark.parametrize("position", list(Position))
def test_crash_at_fires_once_at_the_chosen_execution(position):
    probe = CrashAt("draft", position, occurrence=2)
    outcomes = []
    for name in ["plan", "draft", "plan", "draft", "draft", "draft"]:
        crash = call(probe, name)
        outcomes.append(crash and (crash.name, crash.position))
    assert outcomes == [None, None, None, ("draft", position), None, None]
    assert probe.fired


def test_crash_at_has_not_fired_when_its_place_was_never_reached():
    probe = CrashAt("draft", WINDOW, occurrence=2)
    assert call(probe, "draft") is None
    assert call(probe, "draft", EventKind.NOW) is None
    assert not probe.fired


def test_crash_at_refuses_an_occurrence_below_one_and_an_unknown_position():
    with pytest.raises(ValueError, match="counts live executions from 1"):
        CrashAt("draft", WINDOW, occurrence=0)
    with pytest.raises(ValueError, match="nowhere"):
        CrashAt("draft", "nowhere")
