"""Shapes: the reference agent's seven calls, cut, repeated and priced; nonsense is refused."""

import math

import pytest

from durable_mini.lab.shape import REFERENCE_SHAPE, StepSpec, shape_of


def test_reference_shape_costs_eight_and_has_three_effects():
    assert sum(spec.cost for spec in REFERENCE_SHAPE) == 8.0
    assert [spec.name for spec in REFERENCE_SHAPE if spec.kind == "effect"] == [
        "charge",
        "send_email",
        "update_crm",
    ]


def test_shape_of_defaults_to_the_reference_shape():
    assert shape_of() == REFERENCE_SHAPE


@pytest.mark.parametrize("steps", range(1, 8))
def test_a_shorter_shape_is_the_start_of_the_reference(steps):
    assert shape_of(steps) == REFERENCE_SHAPE[:steps]


def test_a_longer_shape_repeats_the_pattern_under_new_names():
    shape = shape_of(16)
    assert [spec.name for spec in shape[7:]] == [
        "plan-2",
        "research-2",
        "draft-2",
        "charge-2",
        "compose-2",
        "send_email-2",
        "update_crm-2",
        "plan-3",
        "research-3",
    ]
    assert [spec.kind for spec in shape[7:14]] == [spec.kind for spec in REFERENCE_SHAPE]
    assert len({spec.name for spec in shape}) == 16


def test_llm_cost_is_what_steps_cost_and_effects_stay_free():
    shape = shape_of(llm_cost=3.5)
    assert {spec.cost for spec in shape if spec.kind == "step"} == {3.5}
    assert {spec.cost for spec in shape if spec.kind == "effect"} == {0.0}


@pytest.mark.parametrize("steps", [0, -1, 2.5, "7"])
def test_shape_of_refuses_a_count_that_is_none(steps):
    with pytest.raises(ValueError, match="steps must be a whole number, one or more"):
        shape_of(steps)


@pytest.mark.parametrize("cost", [-0.01, math.nan, math.inf])
def test_a_cost_that_cannot_be_added_up_is_refused(cost):
    with pytest.raises(ValueError, match="step 'plan': cost must be zero or more"):
        shape_of(llm_cost=cost)


def test_a_step_without_a_name_or_with_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="needs a name"):
        StepSpec("", "step", 1.0)
    with pytest.raises(ValueError, match="kind must be 'step' or 'effect', not 'timer'"):
        StepSpec("wait", "timer", 1.0)
