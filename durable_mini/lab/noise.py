"""Pictures of chance: how widely single runs spread, and how much less their means do.

Guarantees a `Picture` whose alt text is computed from what it drew. Every value handed in is drawn,
none is left out as an outlier. Leaves to others: where the values come from (`simulation`), what
they should be (`theory`).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from matplotlib.axes import Axes

from durable_mini.lab.pictures import (
    FAILURE,
    FAILURE_TINT,
    FAINT,
    INK,
    PAPER,
    SMALL_PT,
    SOFT_INK,
    TEXT_PT,
    WAITING,
    Picture,
    blank_figure,
    quiet_axes,
)
from durable_mini.lab.theory import Z_95

_BIN = 0.2  # means that lie closer than this are stacked
_DOT_H = 0.115  # how much of a row's height one dot takes
_ROW_TOP = 0.88  # how much of a row's height a stack may take
_BAR_W = 0.8  # of the distance between two costs


def run_costs(costs: Sequence[float], chances: Mapping[float, float] | None = None) -> Picture:
    """Draw how many runs out of a hundred came to each cost.

    Args:
        costs: the cost of each run, two runs or more.
        chances: the exact chance of each cost, drawn as diamonds over the bars.

    Raises:
        ValueError: for fewer than two costs.
    """
    if len(costs) < 2:
        raise ValueError(f"a spread needs two runs or more, not {len(costs)}")
    counts = Counter(costs)
    shares = {cost: 100 * count / len(costs) for cost, count in sorted(counts.items())}
    mean, sd = statistics.fmean(costs), statistics.stdev(costs)
    figure = blank_figure(8.0, 3.1)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.075, right=0.985, top=0.87, bottom=0.17)
    quiet_axes(axes, f"What each of {len(costs):,} single runs cost")
    _draw_shares(axes, shares, _gap(shares))
    if chances is not None:
        _draw_chances(axes, {cost: 100 * chances.get(cost, 0.0) for cost in shares})
    _draw_mean(axes, mean, sd, max(shares.values()))
    axes.set_xlabel("cost of a run", fontsize=TEXT_PT, color=SOFT_INK)
    axes.set_ylabel("runs in a hundred", fontsize=TEXT_PT, color=SOFT_INK)
    return Picture(figure, _spread_alt(shares, mean, sd, chances is not None))


def mean_costs(
    means: Mapping[int, Sequence[float]],
    true_mean: float,
    sd: float,
    marks: Mapping[str, float] | None = None,
) -> Picture:
    """Draw the means of many simulations as dots, a row for each number of runs.

    Args:
        means: by number of runs, the mean that each simulation of so many runs gave.
        true_mean: the exact mean, drawn as a line.
        sd: standard deviation of one run, for the band in which 95 % of means should fall.
        marks: means from elsewhere by name, drawn as diamonds in a row of their own; of as many
            runs as the last row.

    Raises:
        ValueError: when there is nothing to draw.
    """
    if not means or not all(means.values()):
        raise ValueError("at least one number of runs with at least one mean is needed")
    marks = marks or {}
    rows = [(f"{runs:,} runs", runs) for runs in means]
    if marks:
        rows.append((f"published\n({rows[-1][0]})", rows[-1][1]))
    figure = blank_figure(8.0, 1.0 + 0.95 * len(rows))
    axes = figure.subplots()
    bottom = 0.5 / figure.get_figheight()
    figure.subplots_adjust(left=0.13, right=0.985, top=1 - 0.8 * bottom, bottom=bottom)
    _prepare_rows(axes, [name for name, _ in rows])
    axes.axvline(true_mean, color=INK, linewidth=1.2, zorder=2)
    for place, (_, runs) in enumerate(rows):
        _draw_band(axes, place, true_mean, Z_95 * sd / math.sqrt(runs))
    for place, found in enumerate(means.values()):
        _draw_dots(axes, place, found)
    _draw_marks(axes, len(means), marks)
    return Picture(figure, _means_alt(means, true_mean, sd, marks))


def _prepare_rows(axes: Axes, names: Sequence[str]) -> None:
    quiet_axes(axes, "One dot, one simulation: the mean cost it reported")
    axes.spines["left"].set_visible(False)
    axes.set_ylim(len(names) - 0.9, -1.05)
    axes.set_yticks([place - 0.4 for place in range(len(names))], list(names))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(
        "mean cost; line: exact; shaded: where 95 % of means should fall",
        fontsize=TEXT_PT,
        color=SOFT_INK,
    )


def _gap(shares: Mapping[float, float]) -> float:
    """Return the smallest distance between two costs; 1 when there is only one."""
    costs = sorted(shares)
    return min((high - low for low, high in pairwise(costs)), default=1.0)


def _draw_shares(axes: Axes, shares: Mapping[float, float], gap: float) -> None:
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.bar(
        list(shares),
        list(shares.values()),
        width=_BAR_W * gap,
        color=FAILURE_TINT,
        edgecolor=FAILURE,
        hatch="////",
        linewidth=1.2,
        label="simulated",
    )


def _draw_chances(axes: Axes, chances: Mapping[float, float]) -> None:
    axes.plot(
        list(chances),
        list(chances.values()),
        marker="D",
        markersize=5.5,
        markerfacecolor=PAPER,
        markeredgecolor=INK,
        markeredgewidth=1.3,
        linestyle="none",
        zorder=5,
        label="exact chance",
    )
    axes.legend(frameon=False, fontsize=TEXT_PT, labelcolor=SOFT_INK, loc="center right")


def _draw_mean(axes: Axes, mean: float, sd: float, top: float) -> None:
    axes.axvline(mean, color=INK, linewidth=1.2)
    axes.annotate(
        f"mean {mean:.2f}, standard deviation {sd:.2f}",
        (mean, top),
        xytext=(7, -4),
        textcoords="offset points",
        va="top",
        fontsize=TEXT_PT,
        color=INK,
    )


def _draw_band(axes: Axes, row: int, middle: float, half: float) -> None:
    axes.fill_between(
        [middle - half, middle + half], row - _ROW_TOP, row, color=WAITING, alpha=0.2, linewidth=0
    )
    axes.axhline(row, color=FAINT, linewidth=1.0, zorder=1)


def _draw_dots(axes: Axes, row: int, found: Sequence[float]) -> None:
    """Stack the dots of means that lie close together; each keeps its own place from left."""
    stacks = Counter[int]()
    heights = []
    for mean in sorted(found):
        place = math.floor(mean / _BIN)
        heights.append(stacks[place])
        stacks[place] += 1
    step = min(_DOT_H, _ROW_TOP / max(stacks.values()))
    axes.plot(
        sorted(found),
        [row - step * (height + 0.6) for height in heights],
        marker="o",
        markersize=6,
        markerfacecolor=FAILURE,
        markeredgecolor=INK,
        markeredgewidth=0.7,
        linestyle="none",
        zorder=3,
    )


def _draw_marks(axes: Axes, row: int, marks: Mapping[str, float]) -> None:
    middle = statistics.fmean(marks.values()) if marks else 0.0
    for name, mean in marks.items():
        axes.plot(
            [mean],
            [row - 0.4],
            marker="D",
            markersize=9,
            markerfacecolor=PAPER,
            markeredgecolor=INK,
            markeredgewidth=1.6,
            zorder=5,
        )
        left = mean < middle
        axes.annotate(
            f"{name}: {mean:.2f}",
            (mean, row - 0.4),
            xytext=(-34 if left else 34, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=SMALL_PT,
            color=INK,
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.9},
        )


def _spread_alt(shares: Mapping[float, float], mean: float, sd: float, exact: bool) -> str:
    lowest, highest = min(shares), max(shares)
    commonest = max(shares, key=lambda cost: shares[cost])
    beside = " Diamonds show the exact chances." if exact else ""
    return (
        f"{shares[commonest]:.0f} runs in a hundred cost {commonest:g}; the rest spread up to "
        f"{highest:g} (from {lowest:g}). Mean {mean:.2f}, standard deviation {sd:.2f}.{beside}"
    )


def _means_alt(
    means: Mapping[int, Sequence[float]], true_mean: float, sd: float, marks: Mapping[str, float]
) -> str:
    rows = []
    for runs, found in means.items():
        half = Z_95 * sd / math.sqrt(runs)
        inside = sum(abs(mean - true_mean) <= half for mean in found)
        rows.append(
            f"of {runs:,} runs from {min(found):.2f} to {max(found):.2f}, {inside} of "
            f"{len(found)} within {true_mean:.2f} ± {half:.2f}"
        )
    named = ", ".join(f"{name} {mean:.2f}" for name, mean in marks.items())
    return f"Means {'; '.join(rows)}.{f' Marked: {named}.' if named else ''}"
