"""Pictures of chance: what they say in words, and that every value is drawn."""

from __future__ import annotations

import pytest

from durable_mini.lab.noise import mean_costs, run_costs

COSTS = [8.0, 8.0, 8.0, 14.0, 22.0]


def test_spread_says_the_commonest_cost_the_range_and_the_mean() -> None:
    alt = run_costs(COSTS).alt

    assert alt.startswith("60 runs in a hundred cost 8;")
    assert "up to 22 (from 8). Mean 12.00, standard deviation 6.16." in alt
    assert "Diamonds" not in alt


def test_spread_with_chances_says_that_they_are_drawn() -> None:
    assert run_costs(COSTS, {8.0: 0.6, 14.0: 0.3}).alt.endswith("Diamonds show the exact chances.")


def test_spread_has_a_bar_for_each_cost_and_a_diamond_on_each() -> None:
    axes = run_costs(COSTS, {8.0: 0.6, 14.0: 0.3}).figure.axes[0]

    assert [round(bar.get_height()) for bar in axes.patches] == [60, 20, 20]
    drawn = axes.lines[0]
    assert list(drawn.get_xdata()) == [8.0, 14.0, 22.0]
    assert list(drawn.get_ydata()) == [60.0, 30.0, 0.0]


@pytest.mark.parametrize("costs", [[], [8.0]])
def test_spread_of_fewer_than_two_runs_is_refused(costs: list[float]) -> None:
    with pytest.raises(ValueError, match="two runs or more"):
        run_costs(costs)


def test_spread_of_equal_costs_is_one_bar() -> None:
    assert "100 runs in a hundred cost 8" in run_costs([8.0, 8.0]).alt


def test_means_say_how_many_lie_within_the_interval_of_their_number_of_runs() -> None:
    alt = mean_costs({25: [10.5, 12.0, 17.0], 400: [12.0, 12.1]}, 12.0, 5.0, {"table": 12.4}).alt

    assert "of 25 runs from 10.50 to 17.00, 2 of 3 within 12.00 ± 1.96" in alt
    assert "2 of 2 within 12.00 ± 0.49" in alt
    assert alt.endswith("Marked: table 12.40.")


def test_means_are_all_drawn_each_at_its_own_place() -> None:
    found = {25: [10.0, 10.0, 17.0], 400: [12.0, 12.05]}
    axes = mean_costs(found, 12.0, 5.0).figure.axes[0]

    dots = [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"]
    assert dots == list(found.values())


def test_means_that_lie_together_are_stacked() -> None:
    axes = mean_costs({25: [10.0, 10.0, 10.0]}, 12.0, 5.0).figure.axes[0]

    heights = next(line.get_ydata() for line in axes.lines if line.get_marker() == "o")
    assert len(set(heights)) == 3


@pytest.mark.parametrize("means", [{}, {25: []}])
def test_means_without_a_dot_are_refused(means: dict[int, list[float]]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        mean_costs(means, 12.0, 5.0)


def test_pictures_have_the_same_bytes_when_drawn_twice() -> None:
    assert run_costs(COSTS).png() == run_costs(COSTS).png()
    assert mean_costs({25: COSTS}, 12.0, 5.0).png() == mean_costs({25: COSTS}, 12.0, 5.0).png()
