"""The figures of the results: what a crash costs under each strategy, simulated beside exact.

Every function guarantees a `Picture` whose alt text states the finding in numbers taken from the
data it drew. A strategy has a colour and, so that colour is never needed, its own marker, hatch and
name beside the mark. Simulated values carry their 95 % interval; exact values come from `theory`.

Drawings of one run (its attempts, its journal, its world) are in `run_pictures`; palette and table
of numbers in `pictures`. The names that chapters use can all be imported from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import offset_copy

from durable_mini.lab.crashes import EQUAL_WEIGHTS, Weights
from durable_mini.lab.pictures import (
    FAILURE,
    FAILURE_TINT,
    FAINT,
    INK,
    LIVE,
    LIVE_TINT,
    PAPER,
    REPLAYED,
    REPLAYED_TINT,
    SMALL_PT,
    SOFT_INK,
    TEXT_PT,
    NumbersTable,
    Picture,
    blank_figure,
    numbers_table,
    quiet_axes,
)
from durable_mini.lab.run_pictures import Moment, course_map, run_timeline, three_views
from durable_mini.lab.shape import REFERENCE_SHAPE, Shape
from durable_mini.lab.theory import STRATEGIES, Quantity, Result, exact
from durable_mini.lab.watch import Attempt, Box, Watch

__all__ = [
    "Attempt",
    "Box",
    "Moment",
    "NumbersTable",
    "Picture",
    "Watch",
    "cost_curves",
    "course_map",
    "duplicate_counts",
    "numbers_table",
    "results_figure",
    "run_timeline",
    "three_views",
]

WIDEST_RATE = 0.30
"""The crash rate at which a cost panel ends, unless a point lies beyond it."""

_CURVE_POINTS = 60
_HEADROOM = 1.7  # how far above the highest point a cost panel reaches: the curve leaves at the top


@dataclass(frozen=True, slots=True)
class _Style:
    """How one strategy is drawn everywhere."""

    colour: str
    tint: str
    hatch: str
    marker: str
    size: float
    shift_pt: float


_STYLES = {
    "restart": _Style(FAILURE, FAILURE_TINT, "////", "o", 7.0, 0.0),
    "journal": _Style(REPLAYED, REPLAYED_TINT, "\\\\\\\\", "s", 6.5, -4.5),
    "journal+key": _Style(LIVE, LIVE_TINT, "....", "^", 7.5, 4.5),
}


def results_figure(
    results: Sequence[Result], *, weights: Weights = EQUAL_WEIGHTS, shape: Shape = REFERENCE_SHAPE
) -> Picture:
    """Draw what one setting costs: money against crash rate, restarts, and duplicate effects.

    Args:
        results: one simulated result per strategy, in any order, all of the same crash rate and
            number of runs.
        weights: the position weights of that simulation, for the exact values.
        shape: the shape of that simulation.

    Raises:
        ValueError: when a strategy is missing or given twice, or the settings differ.
    """
    simulated = _one_per_strategy(results)
    expected = [
        exact(one.strategy, one.crash_rate, one.runs, weights=weights, shape=shape)
        for one in simulated
    ]
    runs = simulated[0].runs
    figure = blank_figure(9.6, 3.75)
    cost, restarts, duplicates = figure.subplots(1, 3, width_ratios=(1.5, 1, 1.04))
    figure.subplots_adjust(left=0.055, right=0.985, top=0.87, bottom=0.225, wspace=0.13)
    _draw_cost(cost, simulated, runs, weights, shape)
    _list_costs(cost, simulated)
    _draw_rows(
        restarts,
        "Restarts per run",
        [(one.strategy, one.restarts) for one in simulated],
        [one.restarts for one in expected],
    )
    _draw_rows(
        duplicates,
        f"Duplicates in {runs:,} {_runs(runs)}",
        [(one.strategy, one.duplicates) for one in simulated],
        [one.duplicates for one in expected],
        whole=True,
    )
    _draw_key(figure, runs)
    return Picture(figure, _results_alt(simulated, expected))


def cost_curves(
    points: Sequence[Result] = (),
    *,
    runs: int = 400,
    weights: Weights = EQUAL_WEIGHTS,
    shape: Shape = REFERENCE_SHAPE,
) -> Picture:
    """Draw the cost of a run against the crash rate, with simulated points if there are any.

    Args:
        points: simulated results at any crash rates; they should be of `runs` runs each.
        runs: for how many runs the band is drawn in which 95 % of simulations fall.
        weights: the position weights.
        shape: the agent's durable calls.
    """
    figure = blank_figure(7.2, 3.9)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.08, right=0.975, top=0.88, bottom=0.24)
    _draw_cost(axes, points, runs, weights, shape)
    for point in points:
        _label_point(axes, point)
    _draw_key(figure, runs, bars=False, points=bool(points))
    return Picture(figure, _curves_alt(points, weights, shape))


def duplicate_counts(
    results: Sequence[Result], *, weights: Weights = EQUAL_WEIGHTS, shape: Shape = REFERENCE_SHAPE
) -> Picture:
    """Draw how many effects each strategy repeated, beside the exact expectation.

    Args:
        results: one simulated result per strategy, all of the same setting.
        weights: the position weights of that simulation.
        shape: the shape of that simulation.

    Raises:
        ValueError: when a strategy is missing or given twice, or the settings differ.
    """
    simulated = _one_per_strategy(results)
    runs, rate = simulated[0].runs, simulated[0].crash_rate
    expected = [
        exact(one.strategy, rate, runs, weights=weights, shape=shape).duplicates
        for one in simulated
    ]
    figure = blank_figure(6.4, 3.1)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.03, right=0.97, top=0.86, bottom=0.29)
    title = f"Duplicate effects in {runs:,} {_runs(runs)}, crash rate {rate:g}"
    rows = [(one.strategy, one.duplicates) for one in simulated]
    _draw_rows(axes, title, rows, expected, whole=True)
    _draw_key(figure, runs, curves=False)
    return Picture(figure, _duplicates_alt(simulated, expected))


# ---- the cost panel ----------------------------------------------------------------------------


def _draw_cost(
    axes: Axes, points: Sequence[Result], runs: int, weights: Weights, shape: Shape
) -> None:
    widest = max([WIDEST_RATE, *(point.crash_rate for point in points)])
    rates = [widest * number / _CURVE_POINTS for number in range(_CURVE_POINTS + 1)]
    restart, journal = (
        [exact(name, rate, runs, weights=weights, shape=shape).cost for rate in rates]
        for name in ("restart", "journal")
    )
    top = _cost_top(points, restart)
    quiet_axes(axes, "Cost per run")
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    _draw_curve(axes, rates, restart, _STYLES["restart"].colour)
    _draw_curve(axes, rates, journal, _STYLES["journal"].colour)
    for point in points:
        _draw_point(axes, point)
    axes.set_xlim(0, widest * 1.02)
    axes.set_ylim(0, top)
    _plain_ticks(axes.yaxis, 6)
    _name_restart(axes, rates, restart, points, top)
    _name_journal(axes, rates, restart, journal, top)
    axes.set_xlabel("crash rate per live step", fontsize=TEXT_PT, color=SOFT_INK, labelpad=2)


def _cost_top(points: Sequence[Result], restart: Sequence[Quantity]) -> float:
    """Return where the panel ends.

    The same for every moderate crash rate, so that a point which moves is seen to move; higher once
    a point would come near the top.
    """
    usual = restart[_CURVE_POINTS * 3 // 4].mean
    highest = max((point.cost.high for point in points), default=0.0)
    return max(usual, highest * _HEADROOM) or 1.0


def _draw_curve(axes: Axes, rates: Sequence[float], curve: Sequence[Quantity], colour: str) -> None:
    lows = [quantity.low for quantity in curve]
    highs = [quantity.high for quantity in curve]
    axes.fill_between(rates, lows, highs, color=colour, alpha=0.2, linewidth=0)
    axes.plot(rates, [quantity.mean for quantity in curve], color=colour, linewidth=1.8)


def _name_restart(
    axes: Axes,
    rates: Sequence[float],
    restart: Sequence[Quantity],
    points: Sequence[Result],
    top: float,
) -> None:
    """Write the curve's name to its left, where a curve that bends upwards always leaves room."""
    means = [quantity.mean for quantity in restart]
    in_the_way = any(abs(point.cost.mean - 0.6 * top) < 0.1 * top for point in points)
    share = 0.4 if in_the_way else 0.6
    height = min(share * top, means[0] + 0.7 * (means[-1] - means[0]))
    place = next(number for number, mean in enumerate(means) if mean >= height)
    _name_curve(axes, "restart", (rates[place], means[place]), (-10.0, 0.0), "baseline")


def _name_journal(
    axes: Axes,
    rates: Sequence[float],
    restart: Sequence[Quantity],
    journal: Sequence[Quantity],
    top: float,
) -> None:
    """Write the curve's name over its end, or under it where the other curve comes too near."""
    name, end = "journal, with or without key", (rates[-1], journal[-1].mean)
    gap = restart[_CURVE_POINTS * 2 // 5].mean - end[1]
    if gap > 0.12 * top:
        _name_curve(axes, name, end, (0.0, 7.0), "bottom")
    else:
        _name_curve(axes, name, end, (0.0, -8.0), "top")
        axes.set_ylim(min(0.0, journal[-1].mean - 0.13 * top), top)


def _name_curve(
    axes: Axes, name: str, at: tuple[float, float], shift_pt: tuple[float, float], side: str
) -> None:
    axes.annotate(
        name,
        at,
        xytext=shift_pt,
        textcoords="offset points",
        ha="right",
        va=side,
        fontsize=TEXT_PT,
        fontweight="bold",
        color=INK,
    )


def _draw_point(axes: Axes, point: Result) -> None:
    style = _STYLES[point.strategy]
    # The two journals cost the same: side by side, so that neither hides the other.
    figure = axes.get_figure(root=True)
    shifted = offset_copy(axes.transData, figure, x=style.shift_pt, units="points")
    axes.errorbar(
        [point.crash_rate],
        [point.cost.mean],
        yerr=_arms(point.cost),
        fmt=style.marker,
        markersize=style.size,
        markerfacecolor=style.colour,
        markeredgecolor=INK,
        markeredgewidth=0.9,
        ecolor=INK,
        elinewidth=1.3,
        capsize=3.5,
        zorder=4,
        clip_on=False,
        transform=shifted,
    )


def _label_point(axes: Axes, point: Result) -> None:
    """Write the point's value beside it; the two journals, which cost the same, share one label."""
    if point.strategy == "journal+key":
        return
    above = point.strategy == "restart"
    axes.annotate(
        _number(point.cost.mean),
        (point.crash_rate, point.cost.high if above else point.cost.low),
        xytext=(-5, 6) if above else (0, -6),
        textcoords="offset points",
        ha="right" if above and point.crash_rate > 0.05 else "center",
        va="bottom" if above else "top",
        fontsize=TEXT_PT,
        color=INK,
    )


def _list_costs(axes: Axes, simulated: Sequence[Result]) -> None:
    """Write the simulated costs into the corner above the curves, each after its marker."""
    for place, point in enumerate(simulated):
        style = _STYLES[point.strategy]
        height = 0.955 - 0.085 * place
        axes.plot(
            [0.035],
            [height],
            style.marker,
            markersize=style.size,
            markerfacecolor=style.colour,
            markeredgecolor=INK,
            markeredgewidth=0.9,
            transform=axes.transAxes,
        )
        half = point.cost.high - point.cost.mean
        axes.text(
            0.065,
            height,
            f"{point.strategy} {_number(point.cost.mean)} ± {_number(half)}",
            transform=axes.transAxes,
            fontsize=TEXT_PT,
            color=INK,
            va="center",
        )


# ---- panels with one row per strategy ----------------------------------------------------------


def _draw_rows(
    axes: Axes,
    title: str,
    rows: Sequence[tuple[str, Quantity]],
    expected: Sequence[Quantity],
    *,
    whole: bool = False,
) -> None:
    """Draw a bar per strategy with its interval, a mark at the exact value, both as numbers."""
    quiet_axes(axes, title)
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])
    widest = max(quantity.high for quantity in [*(row[1] for row in rows), *expected])
    limit = widest * 1.06 if widest > 0 else 1.0
    axes.set_xlim(0, limit)
    _plain_ticks(axes.xaxis, 5)
    axes.set_ylim(len(rows) - 0.42, -0.68)
    for place, ((strategy, simulated), true) in enumerate(zip(rows, expected, strict=True)):
        _draw_bar(axes, place, _STYLES[strategy], simulated, true)
        axes.text(
            0, place - 0.29, strategy, fontsize=TEXT_PT, fontweight="bold", color=INK, va="bottom"
        )
        value, target = (
            (_count(simulated.mean), _count(true.mean, decimals=1))
            if whole
            else (_number(simulated.mean), _number(true.mean))
        )
        axes.text(
            limit,
            place - 0.29,
            f"{value}  (exact {target})",
            fontsize=TEXT_PT,
            color=INK,
            ha="right",
            va="bottom",
        )


def _draw_bar(axes: Axes, place: int, style: _Style, simulated: Quantity, true: Quantity) -> None:
    axes.barh(
        place,
        simulated.mean,
        height=0.44,
        color=style.tint,
        edgecolor=style.colour,
        hatch=style.hatch,
        linewidth=1.3,
    )
    if simulated.high > simulated.low:
        axes.errorbar(
            [simulated.mean],
            [place],
            xerr=_arms(simulated),
            ecolor=INK,
            elinewidth=1.3,
            capsize=4,
            fmt="none",
        )
    axes.plot(
        [true.mean],
        [place],
        marker="D",
        markersize=6.5,
        markerfacecolor=PAPER,
        markeredgecolor=INK,
        markeredgewidth=1.4,
        linestyle="none",
        clip_on=False,
        zorder=5,
    )


def _arms(quantity: Quantity) -> list[list[float]]:
    """Return how far the interval reaches below and above the value, as matplotlib wants it."""
    return [[quantity.mean - quantity.low], [quantity.high - quantity.mean]]


def _plain_ticks(axis: Axis, most: int) -> None:
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(_tick)


def _draw_key(
    figure: Figure, runs: int, *, curves: bool = True, bars: bool = True, points: bool = True
) -> None:
    """Say once, under the panels, what the marks mean."""
    marks: list[tuple[Line2D | Patch, str]] = []
    if points:
        marks.append((_mark("o", INK, linewidth=1.3), "simulated, with its 95 % interval"))
    marks.append((_mark("D" if bars else "", PAPER, linewidth=1.8 if curves else 0), "exact"))
    if curves:
        band = f"where 95 % of simulations of {runs:,} {_runs(runs)} fall"
        marks.append((Patch(facecolor=SOFT_INK, alpha=0.25), band))
    figure.legend(
        [mark for mark, _ in marks],
        [name for _, name in marks],
        loc="lower left",
        bbox_to_anchor=(0.02, -0.01),
        ncols=len(marks),
        columnspacing=2.2,
        frameon=False,
        fontsize=SMALL_PT,
        labelcolor=SOFT_INK,
    )


def _mark(marker: str, face: str, linewidth: float) -> Line2D:
    return Line2D(
        [],
        [],
        color=INK,
        marker=marker,
        markersize=6,
        markerfacecolor=face,
        markeredgecolor=INK,
        linewidth=linewidth,
    )


# ---- words and checks --------------------------------------------------------------------------


def _one_per_strategy(results: Sequence[Result]) -> list[Result]:
    """Return the three results in the order of `STRATEGIES`, or say what is wrong with them."""
    by_strategy = {result.strategy: result for result in results}
    if len(results) != len(STRATEGIES) or set(by_strategy) != set(STRATEGIES):
        given = ", ".join(result.strategy for result in results) or "none"
        raise ValueError(f"one result for each of {', '.join(STRATEGIES)} is needed, not {given}")
    settings = {(result.crash_rate, result.runs) for result in results}
    if len(settings) > 1:
        raise ValueError(f"results of different settings (crash rate, runs): {sorted(settings)}")
    return [by_strategy[strategy] for strategy in STRATEGIES]


def _results_alt(simulated: Sequence[Result], expected: Sequence[Result]) -> str:
    rate, runs = simulated[0].crash_rate, simulated[0].runs
    costs = _listed(simulated, [_number(one.cost.mean) for one in simulated])
    restarts = _listed(simulated, [_number(one.restarts.mean) for one in simulated])
    duplicates = _listed(simulated, [_count(one.duplicates.mean) for one in simulated])
    true_costs = ", ".join(_number(one.cost.mean) for one in expected)
    return (
        f"Crash rate {rate:g}, {runs:,} simulated {_runs(runs)} per strategy. "
        f"Cost per run: {costs} (exact {true_costs}). Restarts per run: {restarts}. "
        f"Duplicate effects in all: {duplicates}."
    )


def _curves_alt(points: Sequence[Result], weights: Weights, shape: Shape) -> str:
    low, high = 0.02, 0.20
    restart, journal = (
        [exact(name, rate, weights=weights, shape=shape).cost.mean for rate in (low, high)]
        for name in ("restart", "journal")
    )
    inside = sum(
        point.cost.low
        <= exact(point.strategy, point.crash_rate, weights=weights, shape=shape).cost.mean
        <= point.cost.high
        for point in points
    )
    checked = (
        f" The exact value lies within the interval of {inside} of {len(points)} simulated points."
        if points
        else ""
    )
    return (
        f"From crash rate {low:g} to {high:g} the cost of a run rises from "
        f"{_number(restart[0])} to {_number(restart[1])} when it starts over, and from "
        f"{_number(journal[0])} to {_number(journal[1])} with a journal.{checked}"
    )


def _duplicates_alt(simulated: Sequence[Result], expected: Sequence[Quantity]) -> str:
    rate, runs = simulated[0].crash_rate, simulated[0].runs
    counts = _listed(simulated, [_count(one.duplicates.mean) for one in simulated])
    true = ", ".join(_count(quantity.mean, decimals=1) for quantity in expected)
    return (
        f"Duplicate effects in {runs:,} {_runs(runs)} at crash rate {rate:g}: {counts} "
        f"(exact {true})."
    )


def _listed(results: Sequence[Result], values: Sequence[str]) -> str:
    named = [f"{value} with {one.strategy}" for one, value in zip(results, values, strict=True)]
    return ", ".join(named)


def _number(value: float) -> str:
    """Write a value as its size deserves: 0.79, 12.15, 226.6, 1,204."""
    return f"{value:.2f}" if value < 100 else _count(value, decimals=1)


def _count(value: float, decimals: int = 0) -> str:
    """Write a count so that it stays short: 33.8, 1,548, 152 k, 3.37 M."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:.2f} M"
    if value >= 100_000:
        return f"{value / 1_000:.0f} k"
    return f"{value:,.{decimals if value < 1000 else 0}f}"


def _tick(value: float, _place: object) -> str:
    return f"{value / 1_000_000:g} M" if value >= 1_000_000 else f"{value:,.10g}"


def _runs(count: int) -> str:
    return "run" if count == 1 else "runs"
