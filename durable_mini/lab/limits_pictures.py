"""Drawings of limits: what a record covers, what finer and coarser ones cost, how journals grow.

Guarantees what the other figures do: an alt text that states the finding in numbers taken from the
data that was drawn, and nothing that is told by colour alone: writing and doing again have their
own hatches, lines have their names at their ends, the chosen number in a map has a frame.

Knows nothing of engines: what is drawn is handed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import log10
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from durable_mini.lab.pictures import (
    FAILURE,
    FAILURE_INK,
    FAILURE_TINT,
    FAINT,
    INK,
    LIVE,
    PAPER,
    REPLAYED,
    REPLAYED_TINT,
    SMALL_PT,
    SOFT_INK,
    TEXT_PT,
    TITLE_PT,
    WAITING,
    Picture,
    bare_axes,
    blank_figure,
    quiet_axes,
)
from durable_mini.lab.theory import Quantity

_W_IN = 9.6
_SMALL: dict[str, Any] = {"fontsize": SMALL_PT, "color": INK}
_BOLD: dict[str, Any] = {"fontsize": TEXT_PT, "fontweight": "bold", "color": INK}
_LABEL: dict[str, Any] = {"fontsize": TEXT_PT, "color": SOFT_INK}
_PLATE: dict[str, Any] = {"boxstyle": "round,pad=0.15", "facecolor": PAPER, "linewidth": 0}


# ---- one crash, several ways to record ---------------------------------------------------------

_ROW_IN, _BOX_IN, _NAME_IN = 0.62, 0.34, 1.75


def phases_picture(lengths: Sequence[Sequence[int]], dies_after: int, title: str) -> Picture:
    """Draw the same calls with different records, and what one crash makes each of them do again.

    Args:
        lengths: for each row the numbers of calls that share a record, in order.
        dies_after: how many calls had been made when the worker died; the crash falls before the
            record of the last one.
        title: a line above the drawing.
    """
    calls = sum(lengths[0])
    height = 1.08 + len(lengths) * _ROW_IN
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    sheet.text(0.12, height - 0.27, title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    pitch = (_W_IN - _NAME_IN - 1.55) / calls
    told = []
    for row, phases in enumerate(lengths):
        base = height - 1.1 - row * _ROW_IN
        kept = max(end for end in (0, *accumulate(phases)) if end < dies_after)
        sheet.text(0.12, base + _BOX_IN / 2, _records(phases), va="center", **_BOLD)
        for call in range(calls):
            _draw_call(sheet, (_NAME_IN + call * pitch, base, pitch), call, kept, dies_after)
        for end in accumulate(phases):
            _draw_record(sheet, _NAME_IN + end * pitch, base, written=end <= kept)
        again = f"{dies_after - kept} again"
        sheet.text(_W_IN - 0.12, base + _BOX_IN / 2, again, ha="right", va="center", **_BOLD)
        told.append(f"{_records(phases)}: {dies_after - kept} of {dies_after} done again")
    _draw_death(sheet, _NAME_IN + dies_after * pitch, height - 0.58, len(lengths))
    _draw_phases_key(sheet)
    return Picture(figure, f"{title}. The worker dies after call {dies_after}. {'; '.join(told)}.")


def _records(phases: Sequence[int]) -> str:
    return "1 record" if len(phases) == 1 else f"{len(phases)} records"


def _draw_call(
    sheet: Axes, spot: tuple[float, float, float], call: int, kept: int, made: int
) -> None:
    x, base, pitch = spot
    look: dict[str, Any] = {"facecolor": PAPER, "edgecolor": WAITING, "linewidth": 1.0}
    if call < kept:
        look = {"facecolor": REPLAYED_TINT, "edgecolor": REPLAYED, "linewidth": 1.3}
    elif call < made:
        look = {"facecolor": FAILURE_TINT, "edgecolor": FAILURE, "linewidth": 1.3, "hatch": "////"}
    sheet.add_patch(Rectangle((x + 0.03, base), pitch - 0.14, _BOX_IN, **look))


def _draw_record(sheet: Axes, x: float, base: float, *, written: bool) -> None:
    colour = INK if written else "#B9BEC4"
    bar = Rectangle((x - 0.085, base - 0.06), 0.055, _BOX_IN + 0.12)
    bar.set(facecolor=colour, edgecolor=colour)
    sheet.add_patch(bar)


def _draw_death(sheet: Axes, x: float, top: float, rows: int) -> None:
    x -= 0.1
    base = top - 0.16 - rows * _ROW_IN
    sheet.plot([x, x], [base, top], color=FAILURE_INK, linewidth=1.6, linestyle=(0, (4, 2)))
    words: dict[str, Any] = {"fontsize": SMALL_PT, "fontweight": "bold", "color": FAILURE_INK}
    sheet.text(x, top + 0.1, "the worker dies", ha="center", va="center", **words)


def _draw_phases_key(sheet: Axes) -> None:
    x = _NAME_IN
    for face, edge, hatch, words in (
        (REPLAYED_TINT, REPLAYED, None, "kept"),
        (FAILURE_TINT, FAILURE, "////", "done, and lost"),
        (PAPER, WAITING, None, "not made yet"),
        (INK, INK, None, "a record"),
    ):
        width = 0.055 if words == "a record" else 0.26
        box = Rectangle((x, 0.1), width, 0.16, facecolor=face, edgecolor=edge, hatch=hatch)
        sheet.add_patch(box)
        sheet.text(x + width + 0.08, 0.18, words, va="center", **_SMALL)
        x += width + 0.4 + 0.085 * len(words)


# ---- the bill by number of records -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bar:
    """What so many records cost: for writing them, and on average for what is done again."""

    records: int
    writing: float
    rework: float

    @property
    def height(self) -> float:
        """Both together."""
        return self.writing + self.rework


def bill_picture(bars: Sequence[Bar], points: Mapping[int, Quantity], title: str) -> Picture:
    """Draw the exact bill of each number of records, with simulated ones as points.

    Args:
        bars: in order of the number of records.
        points: the simulated cost beyond the work, by number of records, with its 95 % interval.
        title: a line above the drawing.
    """
    figure = blank_figure(8.4, 3.7)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.075, right=0.985, top=0.87, bottom=0.24)
    best = min(bars, key=lambda bar: bar.height)
    _draw_bars(axes, bars, max(q.high for q in points.values()) if points else 0.0)
    for records, simulated in points.items():
        arms = [[simulated.mean - simulated.low], [simulated.high - simulated.mean]]
        look: dict[str, Any] = {"fmt": "o", "markersize": 6, "markerfacecolor": PAPER}
        look |= {"color": INK, "markeredgewidth": 1.4, "elinewidth": 1.3, "capsize": 3.5}
        axes.errorbar([records], [simulated.mean], yerr=arms, zorder=5, clip_on=False, **look)
    quiet_axes(axes, title)
    axes.set_xlabel(f"records per run (1: all in one, {len(bars)}: one for each call)", **_LABEL)
    axes.set_ylabel("cost beyond the work", **_LABEL)
    _draw_bars_key(axes, points=bool(points))
    heights = {bar.records: bar.height for bar in bars}
    off = [abs(q.mean - heights[k]) / q.se for k, q in points.items() if q.se]
    beside = (
        f" {sum(z <= 1.96 for z in off)} of {len(off)} simulated costs have the exact one in their "
        "95 % interval."
        if off
        else ""
    )
    return Picture(figure, f"{title}. {_bars_alt(bars, best)}{beside}")


@dataclass(frozen=True, slots=True)
class BestMap:
    """The best number of calls for one record, over write costs and crash rates.

    `writes` rise from column to column, `rates` fall from row to row; `best` has a row for each
    rate.
    """

    writes: Sequence[float]
    rates: Sequence[float]
    best: Sequence[Sequence[int]]


def granularity_picture(
    bars: Sequence[Bar], around: BestMap, at: tuple[float, float], alt: str
) -> Picture:
    """Draw one setting: the bill of each number of records, and the map of the best ones.

    Args:
        bars: in order of the number of records; the last is a record for each call.
        around: the map.
        at: write cost and crash rate of the setting, to be marked in the map.
        alt: what the picture says.
    """
    figure = blank_figure(_W_IN, 3.75)
    left, right = figure.subplots(1, 2, width_ratios=(1.12, 1))
    figure.subplots_adjust(left=0.058, right=0.988, top=0.875, bottom=0.235, wspace=0.2)
    _draw_bars(left, bars, 0.0)
    quiet_axes(left, "Cost beyond the work")
    left.set_xlabel(f"records per run (1: all in one, {len(bars)}: one per call)", **_LABEL)
    _draw_bars_key(left, points=False)
    _draw_map(right, around, len(bars))
    _draw_place(right, around, at)
    return Picture(figure, alt)


def _draw_bars(axes: Axes, bars: Sequence[Bar], highest: float) -> None:
    """Draw the bars as high as there is something to see, and say of what is cut how high it is."""
    best, each = min(bars, key=lambda bar: bar.height), bars[-1]
    top = max(2.6 * best.height, 1.18 * each.height, 1.1 * highest)
    top = min(top, max(1.15 * max(bar.height for bar in bars), 1.1 * highest)) or 1.0
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    edges = [0.5 + place for place in range(len(bars) + 1)]
    heights = [min(bar.height, top) for bar in bars]
    writing = [min(bar.writing, top) for bar in bars]
    for values, below, colour, tint, hatch in (
        (writing, 0.0, REPLAYED, REPLAYED_TINT, "...."),
        (heights, writing, FAILURE, FAILURE_TINT, "////"),
    ):
        look: dict[str, Any] = {"facecolor": tint, "edgecolor": colour, "linewidth": 1.2}
        axes.stairs(values, edges, baseline=below, fill=True, hatch=hatch, **look)
    if bars[0].height > top:
        words = f"↑ 1 record: {_number(bars[0].height)}"
        axes.text(0.8, 0.975 * top, words, va="top", bbox=_PLATE, **_SMALL)
    mark: dict[str, Any] = {"markersize": 8, "markerfacecolor": INK, "markeredgecolor": INK}
    # Above the point of a simulation, where there are points.
    lifted = best.height + (0.1 if highest else 0.045) * top
    axes.plot([best.records], [lifted], marker="v", zorder=6, **mark)
    noun = "record" if best.records == 1 else "records"
    words = f"best: {best.records} {noun}, {_number(best.height)}"
    axes.set_title(words, loc="right", pad=10, **_BOLD)
    axes.set_xlim(0.3, len(bars) + 0.7)
    axes.set_ylim(0, top)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def _draw_bars_key(axes: Axes, *, points: bool) -> None:
    marks: list[Any] = [
        Patch(facecolor=REPLAYED_TINT, edgecolor=REPLAYED, hatch="....", label="writing records"),
        Patch(facecolor=FAILURE_TINT, edgecolor=FAILURE, hatch="////", label="doing calls again"),
    ]
    if points:
        look: dict[str, Any] = {"color": INK, "markersize": 6, "linewidth": 1.3}
        look |= {"markerfacecolor": PAPER, "markeredgewidth": 1.4, "marker": "o"}
        marks += axes.plot([], [], label="simulated, with its 95 % interval", **look)
    axes.legend(
        handles=marks,
        loc="upper left",
        bbox_to_anchor=(-0.02, -0.17),
        ncols=3,
        frameon=False,
        fontsize=SMALL_PT,
        labelcolor=SOFT_INK,
        columnspacing=1.6,
    )


def _draw_map(axes: Axes, around: BestMap, calls: int) -> None:
    quiet_axes(axes, "Best number of calls for one record")
    for row, line in enumerate(around.best):
        for column, best in enumerate(line):
            share = log10(best) / log10(calls) if calls > 1 else 0.0
            spot = (column - 0.5, row - 0.5)
            face = _mixed(REPLAYED_TINT, REPLAYED, 0.85 * share) if best > 1 else PAPER
            axes.add_patch(Rectangle(spot, 1, 1, facecolor=face, edgecolor=PAPER, linewidth=1.5))
            words = "all" if best == calls > 1 else str(best)
            ink = PAPER if share > 0.62 else INK
            axes.text(column, row, words, ha="center", va="center", fontsize=TEXT_PT, color=ink)
    columns, rows = len(around.writes), len(around.rates)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xticks(range(columns), [f"{write:g}" for write in around.writes])
    axes.set_yticks(range(rows), [f"{rate:g}" for rate in around.rates])
    axes.set_xlabel("cost of a write, in calls", **_LABEL)
    axes.set_ylabel("crash rate per call", labelpad=1, **_LABEL)


def _draw_place(axes: Axes, around: BestMap, at: tuple[float, float]) -> None:
    """Mark the setting: between the map's lines, or at its edge where it lies outside."""
    write, rate = at
    x = _between(write, around.writes)
    y = len(around.rates) - 1 - _between(rate, around.rates[::-1])
    look: dict[str, Any] = {"markersize": 17, "markerfacecolor": "none", "clip_on": False}
    axes.plot([x], [y], "o", markeredgecolor=PAPER, markeredgewidth=4.5, zorder=5, **look)
    axes.plot([x], [y], "o", markeredgecolor=INK, markeredgewidth=2.2, zorder=6, **look)
    words: dict[str, Any] = {"fontsize": SMALL_PT, "color": SOFT_INK, "va": "center"}
    axes.text(0.0, -0.232, "ring: the setting of the sliders", transform=axes.transAxes, **words)


def _between(value: float, stops: Sequence[float]) -> float:
    """Where a value lies among rising stops, on a logarithmic scale."""
    if value <= stops[0]:
        return 0.0
    for place, (low, high) in enumerate(pairwise(stops)):
        if value <= high:
            return place + (log10(value) - log10(low)) / (log10(high) - log10(low))
    return float(len(stops) - 1)


def _mixed(low: str, high: str, share: float) -> tuple[float, float, float]:
    ends = [[int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)] for colour in (low, high)]
    red, green, blue = (a + share * (b - a) for a, b in zip(*ends, strict=True))
    return red, green, blue


def _bars_alt(bars: Sequence[Bar], best: Bar) -> str:
    one, each = bars[0], bars[-1]
    return (
        f"Cheapest with {best.records} records: {_number(best.writing)} for writing and "
        f"{_number(best.rework)} for calls done again. One record for all of them costs "
        f"{_number(one.height)}, one for each call {_number(each.height)}."
    )


# ---- growth ------------------------------------------------------------------------------------


def growth_picture(
    lines: Mapping[str, Sequence[float]],
    title: str,
    unit: str,
    *,
    over: str = "turns",
    limit: tuple[float, str] | None = None,
) -> Picture:
    """Draw how something grows with the turns of a run, one line for each way of keeping it.

    Args:
        lines: by name the value after 1, 2, 3 … turns; one that is shorter than the others ends
            with a cross.
        title: a line above the drawing.
        unit: what the values are.
        over: what is counted along the axis.
        limit: a value that must not be passed, and what it is called.
    """
    figure = blank_figure(8.4, 3.4)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.085, right=0.775, top=0.87, bottom=0.16)
    looks = ((FAILURE, "-"), (REPLAYED, (0, (5, 1.5))), (LIVE, (0, (1.5, 1.2))), (WAITING, "-."))
    longest = max(map(len, lines.values()))
    top = 1.08 * max([max(values) for values in lines.values()] + ([limit[0]] if limit else []))
    ends = {name: values[-1] for name, values in lines.items() if len(values) == longest}
    heights = _apart(ends, 0.085 * top)
    quiet_axes(axes, title)
    axes.set_xlim(0, longest)
    axes.set_ylim(0, top)
    for (name, values), (colour, style) in zip(lines.items(), looks, strict=False):
        look: dict[str, Any] = {"color": colour, "linewidth": 2.3, "linestyle": style, "zorder": 3}
        axes.plot(range(1, len(values) + 1), values, **look)
        _name_line(axes, name, values, heights.get(name), colour)
    if limit:
        axes.axhline(limit[0], color=INK, linewidth=1.3, linestyle=(0, (4, 2)))
        axes.text(1, limit[0] + 0.02 * top, limit[1], va="bottom", **_SMALL)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(over, **_LABEL)
    axes.set_ylabel(unit, **_LABEL)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    return Picture(figure, f"{title}, in {unit}, by {over}. {_growth_alt(lines, limit)}")


def _name_line(
    axes: Axes, name: str, values: Sequence[float], height: float | None, colour: str
) -> None:
    """Write a line's name and number at its end; a line that ends early gets a cross there."""
    longest, top = axes.get_xlim()[1], axes.get_ylim()[1]
    words = f"{name}: {_number(values[-1])}"
    if values[-1] < max(values):
        words = f"{name}:\nat most {_number(max(values))}"
    if height is not None:
        spot = (longest * 1.015, height + 0.05 * top * words.count("\n"))
        axes.text(*spot, words, va="center", **_BOLD)
        return
    mark: dict[str, Any] = {"markersize": 11, "markeredgecolor": PAPER, "zorder": 4}
    axes.plot([len(values)], [values[-1]], "X", color=colour, **mark)
    spot = (len(values) + 0.015 * longest, values[-1] - 0.1 * top)
    axes.text(*spot, words, va="center", bbox=_PLATE, **_BOLD)


def _growth_alt(lines: Mapping[str, Sequence[float]], limit: tuple[float, str] | None) -> str:
    told = "; ".join(
        f"{name}: {_number(values[len(values) // 2 - 1])} after {len(values) // 2}, "
        f"{_number(values[-1])} after {len(values)}, {_number(max(values))} at most"
        for name, values in lines.items()
    )
    return f"{told}.{f' {limit[1]}: {_number(limit[0])}.' if limit else ''}"


def _apart(ends: Mapping[str, float], gap: float) -> dict[str, float]:
    """Heights for the names of lines, each near its line's end and no two on top of each other."""
    placed: dict[str, float] = {}
    lowest = 0.02 * gap
    for name in sorted(ends, key=lambda name: ends[name]):
        placed[name] = max(ends[name], lowest)
        lowest = placed[name] + gap
    return placed


def _number(value: float) -> str:
    """Write a value as its size deserves: 2.62, 41.5, 6,230, millions."""
    if value >= 1_000_000:
        return "millions"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
