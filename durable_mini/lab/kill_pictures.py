"""Drawings of tests with kills: what kills cost by strategy, and what so many runs have seen.

Guarantees what the other figures do: an alt text that states the finding in the numbers that were
drawn; a strategy has its own kind of line, its own marker and its name beside it, so that grey is
enough. Leaves to others: the numbers (`kill_rates`, `chaos_shipped`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from durable_mini.lab.pictures import (
    FAILURE,
    FAILURE_INK,
    FAINT,
    INK,
    LIVE,
    PAPER,
    REPLAYED,
    SMALL_PT,
    SOFT_INK,
    TEXT_PT,
    WAITING,
    Picture,
    blank_figure,
    quiet_axes,
)
from durable_mini.lab.theory import Quantity

_COLOURS = {"restart": FAILURE, "queue": FAILURE, "journal": REPLAYED, "journal+key": LIVE}
_INKS = {"restart": FAILURE_INK, "journal": REPLAYED, "journal+key": "#00684C"}
_DASHES: dict[str, Any] = {"restart": "-", "journal": (0, (6, 2)), "journal+key": (0, (1.2, 1.6))}
_MARKERS = {"restart": "^", "queue": "v", "journal": "s", "journal+key": "D"}
_NAMES = {"restart": "restart, queue", "journal": "journal", "journal+key": "journal+key"}
_COST_NAMES = {"restart": "restart, queue", "journal": "journal, journal+key"}
_LABEL: dict[str, Any] = {"fontsize": TEXT_PT, "color": SOFT_INK}
_PLATE: dict[str, Any] = {"boxstyle": "round,pad=0.12", "facecolor": PAPER, "linewidth": 0}


@dataclass(frozen=True, slots=True)
class StrategyLine:
    """One strategy's line: at each number of kills per run its cost and its duplicates.

    `here` is what it comes to at the chosen number of kills: cost, duplicates.
    """

    strategy: str
    kills: tuple[float, ...]
    cost: tuple[Quantity, ...]
    duplicates: tuple[Quantity, ...]
    here: tuple[Quantity, Quantity]


@dataclass(frozen=True, slots=True)
class Dot:
    """What an experiment measured for one strategy, all of it per run."""

    strategy: str
    kills: float
    cost: float
    duplicates: float


# ---- what kills cost ---------------------------------------------------------------------------


def kills_picture(
    lines: Sequence[StrategyLine], kills: float, runs: int, measured: Sequence[Dot] = ()
) -> Picture:
    """Draw cost and duplicates over the number of kills per run, with a mark at one number.

    Args:
        lines: the strategies; journal and journal+key cost alike, so the last one's cost is left
            out.
        kills: where the mark is.
        runs: how many runs the bands and the duplicates are for.
        measured: what experiments with real kills came to.
    """
    figure = blank_figure(9.6, 3.75)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.062, right=0.985, top=0.9, bottom=0.255, wspace=0.17)
    for axes, title in ((left, "Cost per run"), (right, f"Duplicate effects in {runs:,} runs")):
        quiet_axes(axes, title)
        axes.grid(color=FAINT, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.axvline(kills, color=INK, linewidth=1.1, zorder=2)
        axes.set_xlabel("kills per run", **_LABEL)
    costs = [line for line in lines if line.strategy in _COST_NAMES]
    for line in costs:
        _draw_line(left, line, line.cost, _COST_NAMES[line.strategy])
    for line in lines:
        _draw_line(right, line, line.duplicates, _NAMES[line.strategy])
    for dot in measured:
        _draw_dot(left, dot, dot.cost)
        _draw_dot(right, dot, dot.duplicates * runs)
    for axes in (left, right):
        axes.set_xlim(0, lines[0].kills[-1])
        axes.set_ylim(bottom=0)
    _draw_here(left, kills, [(line.strategy, line.here[0], ".2f") for line in costs])
    _draw_here(right, kills, [(line.strategy, line.here[1], ",.0f") for line in lines])
    _draw_key(figure, runs, measured)
    return Picture(figure, _kills_alt(lines, kills, runs, measured))


def _draw_line(axes: Axes, line: StrategyLine, numbers: Sequence[Quantity], name: str) -> None:
    colour = _COLOURS[line.strategy]
    lows, highs = [one.low for one in numbers], [one.high for one in numbers]
    axes.fill_between(line.kills, lows, highs, color=colour, alpha=0.18, linewidth=0)
    style = _DASHES[line.strategy]
    axes.plot(line.kills, [one.mean for one in numbers], color=colour, linewidth=2, linestyle=style)
    below = line.strategy == "restart"
    axes.annotate(
        name,
        (line.kills[-1], (lows if below else highs)[-1]),
        xytext=(-5, -26 if below else 4),
        textcoords="offset points",
        ha="right",
        va="top" if below else "bottom",
        fontsize=TEXT_PT,
        fontweight="bold",
        color=_INKS[line.strategy],
    )


def _draw_here(axes: Axes, kills: float, found: Sequence[tuple[str, Quantity, str]]) -> None:
    """Mark the chosen number on every line, and write what it comes to beside the upright."""
    at_left = kills > axes.get_xlim()[1] / 2
    for row, (strategy, number, form) in enumerate(found):
        axes.errorbar(
            [kills],
            [number.mean],
            [[number.mean - number.low], [number.high - number.mean]],
            fmt="o",
            markersize=7,
            color=INK,
            markerfacecolor=_COLOURS[strategy],
            capsize=4,
            linewidth=1.3,
            zorder=5,
            clip_on=False,
        )
        axes.annotate(
            f"{number.mean:{form}} {strategy}",
            (kills, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-7 if at_left else 7, -3 - 15 * row),
            textcoords="offset points",
            ha="right" if at_left else "left",
            va="top",
            fontsize=TEXT_PT,
            fontweight="bold",
            color=_INKS[strategy],
            bbox=_PLATE,
        )


def _draw_dot(axes: Axes, dot: Dot, value: float) -> None:
    axes.plot(
        [dot.kills],
        [value],
        _MARKERS[dot.strategy],
        markersize=6.5,
        markerfacecolor=PAPER,
        markeredgecolor=_COLOURS[dot.strategy],
        markeredgewidth=1.6,
        zorder=4,
        clip_on=False,
    )


def _draw_key(figure: Any, runs: int, measured: Sequence[Dot]) -> None:
    here = Line2D([], [], linestyle="none", marker="o", markersize=7, color=SOFT_INK)
    here.set_markeredgecolor(INK)
    marks = [(here, f"theory, with the 95 % interval of {runs:,} runs")]
    for strategy in dict.fromkeys(dot.strategy for dot in measured):
        mark = Line2D([], [], linestyle="none", marker=_MARKERS[strategy], markersize=6.5)
        mark.set(markerfacecolor=PAPER, markeredgecolor=_COLOURS[strategy], markeredgewidth=1.6)
        marks.append((mark, strategy))
    if measured:
        marks[1] = (marks[1][0], f"measured with real kills: {marks[1][1]}")
    figure.legend(
        [mark for mark, _ in marks],
        [name for _, name in marks],
        loc="lower left",
        bbox_to_anchor=(0.03, -0.015),
        ncols=len(marks),
        columnspacing=1.4,
        handletextpad=0.3,
        frameon=False,
        fontsize=SMALL_PT,
        labelcolor=SOFT_INK,
    )


def _kills_alt(
    lines: Sequence[StrategyLine], kills: float, runs: int, measured: Sequence[Dot]
) -> str:
    told = (
        f"{_NAMES[line.strategy]}: cost {line.here[0].mean:.2f}, duplicates "
        f"{line.here[1].mean:,.0f}"
        for line in lines
    )
    along = ""
    if measured:
        along = f" {len(measured)} points measured with real kills lie along the lines."
    return f"At {kills:g} kills per run, in {runs:,} runs, in theory: {'; '.join(told)}.{along}"


# ---- what was seen -----------------------------------------------------------------------------


def seen_picture(curves: Mapping[str, Mapping[int, float]], runs: int) -> Picture:
    """Draw which share of all schedules so many random runs should have met.

    Args:
        curves: by the name of a kind of schedule, the share seen by the number of runs.
        runs: a number of runs that every curve has, to be marked.
    """
    figure = blank_figure(8.0, 3.2)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.085, right=0.95, top=0.87, bottom=0.17)
    quiet_axes(axes, "How many of all crash schedules have random kills met?")
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.axvline(runs, color=WAITING, linewidth=1.1)
    styles = ((REPLAYED, "-"), (FAILURE, (0, (6, 2))), (LIVE, (0, (1.2, 1.6))))
    for (name, curve), (colour, dashes) in zip(curves.items(), styles, strict=False):
        axes.plot(
            list(curve),
            [100 * share for share in curve.values()],
            color=colour,
            linestyle=dashes,
            linewidth=2.2,
        )
        _draw_share(axes, name, runs, curve[runs], colour)
    axes.set_xscale("log")
    first = next(iter(curves.values()))
    axes.set_xlim(min(first), max(first))
    axes.set_ylim(0, 106)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.set_xlabel("runs with random kills", **_LABEL)
    parts = [f"{name}: {100 * curve[runs]:.1f} %" for name, curve in curves.items()]
    alt = f"Of all schedules, {runs:,} runs with random kills should have met: {', '.join(parts)}."
    return Picture(figure, alt)


def _draw_share(axes: Axes, name: str, runs: int, share: float, colour: str) -> None:
    axes.plot([runs], [100 * share], "o", markersize=8, color=colour, markeredgecolor=INK, zorder=5)
    axes.annotate(
        f"{name}: {100 * share:.1f} %",
        (runs, 100 * share),
        xytext=(10, -16) if share > 0.5 else (-10, 8),
        textcoords="offset points",
        ha="left" if share > 0.5 else "right",
        fontsize=TEXT_PT,
        fontweight="bold",
        color=INK,
        bbox=_PLATE,
    )
