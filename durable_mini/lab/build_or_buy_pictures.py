"""Build or buy, drawn: which of queue and engine holds workers for fewer hours.

Guarantees a `Picture` each, whose alt text states the finding in the numbers that were drawn; the
regions have their own hatches and their names in them, so that colour never stands alone. Leaves to
others: the bill (`build_or_buy`), the slider (`build_or_buy_slider`), engines (`engines.pictures`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from durable_mini.lab.build_or_buy import Terms, break_even_h, engine_h, queue_h
from durable_mini.lab.pictures import (
    FAILURE,
    FAILURE_INK,
    INK,
    LIVE,
    LIVE_TINT,
    PAPER,
    SMALL_PT,
    SOFT_INK,
    TEXT_PT,
    WAITING,
    Picture,
    blank_figure,
    quiet_axes,
)

LENGTHS_H = {
    "1 s": 1 / 3600,
    "10 s": 10 / 3600,
    "1 min": 1 / 60,
    "10 min": 1 / 6,
    "1 h": 1.0,
    "6 h": 6.0,
    "1 day": 24.0,
    "1 week": 168.0,
}
"""Lengths of jobs, as the axis has them."""

DEATHS_A_DAY = {
    "1 a month": 1 / 30,
    "1 a week": 1 / 7,
    "1 a day": 1.0,
    "4 a day": 4.0,
    "1 an hour": 24.0,
    "4 an hour": 96.0,
}
"""How often a worker dies, as the axis has it."""

_SHORTEST_H, _LONGEST_H = 0.8 / 3600, 210.0
_RAREST, _OFTENEST = 1 / 40, 130.0
_ROWS = 80
_HARDLY = 100.0
_SMALL: dict[str, Any] = {"fontsize": SMALL_PT, "color": INK}


def length(hours: float) -> str:
    """Say hours as people do.

    >>> length(7 / 60), length(2.0), length(26.0), length(0.001), length(1e9)
    ('7 min', '2 h', '1.1 days', '3.6 s', 'a lifetime')
    """
    if hours > 24 * 36_500:
        return "a lifetime"
    for unit, size_h in (("days", 24.0), ("h", 1.0), ("min", 1 / 60)):
        if hours >= size_h * (1.0 if unit != "days" else 1.05):
            return f"{hours / size_h:,.2g} {unit}" if hours < 100 * size_h else _whole(hours, unit)
    return f"{3600 * hours:.2g} s"


def _whole(hours: float, unit: str) -> str:
    return f"{hours / {'days': 24.0, 'h': 1.0, 'min': 1 / 60}[unit]:,.0f} {unit}"


def build_or_buy_picture(terms: Terms, work_h: float) -> Picture:
    """Draw which wins for every length of a job and every rate of deaths, and the bill of one job.

    Args:
        terms: the setting; the map varies its deaths.
        work_h: the length of the job that is marked.
    """
    figure = blank_figure(9.6, 4.3)
    around = figure.add_axes((0.105, 0.145, 0.535, 0.745))
    bill = figure.add_axes((0.735, 0.145, 0.25, 0.745))
    _draw_map(around, terms, work_h)
    _draw_bill(bill, terms, work_h)
    return Picture(figure, _alt(terms, work_h))


def _draw_map(axes: Axes, terms: Terms, work_h: float) -> None:
    quiet_axes(axes, "Fewer hours of workers: queue or engine?")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(_SHORTEST_H, _LONGEST_H)
    axes.set_ylim(_RAREST, _OFTENEST)
    rates = [_RAREST * (_OFTENEST / _RAREST) ** (row / _ROWS) for row in range(_ROWS + 1)]
    even = [_on_map(break_even_h(replace(terms, deaths_per_h=rate / 24))) for rate in rates]
    hardly = [_on_map(max(0.0, math.log(_HARDLY) / (rate / 24) - terms.wait_h)) for rate in rates]
    axes.fill_betweenx(rates, even, _LONGEST_H, facecolor=LIVE_TINT, linewidth=0)
    lost: dict[str, Any] = {"facecolor": "none", "edgecolor": FAILURE, "hatch": "////"}
    axes.fill_betweenx(rates, hardly, _LONGEST_H, linewidth=0, **lost)
    axes.plot(even, rates, color=LIVE, linewidth=2.2)
    axes.xaxis.set_major_locator(FixedLocator(list(LENGTHS_H.values())))
    axes.set_xticklabels(list(LENGTHS_H), fontsize=SMALL_PT)
    axes.yaxis.set_major_locator(FixedLocator(list(DEATHS_A_DAY.values())))
    axes.set_yticklabels(list(DEATHS_A_DAY), fontsize=SMALL_PT)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.set_xlabel("work in a job", fontsize=TEXT_PT, color=SOFT_INK)
    axes.set_ylabel("a worker dies", fontsize=TEXT_PT, color=SOFT_INK, labelpad=2)
    _name_regions(axes, (even, hardly), rates, _deaths_on_map(terms))
    _mark(axes, terms, work_h)


def _deaths_on_map(terms: Terms) -> float:
    return min(max(24 * terms.deaths_per_h, _RAREST), _OFTENEST)


def _on_map(hours: float) -> float:
    return min(max(hours, _SHORTEST_H), _LONGEST_H)


def _name_regions(
    axes: Axes, bounds: tuple[list[float], list[float]], rates: list[float], marked: float
) -> None:
    """Write each region's name where it is widest, out of the marked job's way."""
    even, hardly = bounds
    ends = [_SHORTEST_H] * len(rates), [_LONGEST_H] * len(rates)
    free = [row for row in range(8, len(rates) - 8) if abs(math.log(rates[row] / marked)) > 0.9]
    plate: dict[str, Any] = {"boxstyle": "round,pad=0.25", "facecolor": PAPER, "linewidth": 0}
    for left, right, words, colour in (
        (ends[0], even, "queue", INK),
        (even, hardly, "engine", "#00694C"),
        (hardly, ends[1], "a queue hardly\never ends", FAILURE_INK),
    ):
        row = max(free, key=lambda row: min(right[row] / left[row], 1_000.0))
        if right[row] / left[row] < (40 if "\n" in words else 12):  # it wouldn't fit
            continue
        text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": TEXT_PT}
        text |= {"color": colour, "fontweight": "bold", "bbox": plate}
        axes.text(math.sqrt(left[row] * right[row]), rates[row], words, **text)


def _mark(axes: Axes, terms: Terms, work_h: float) -> None:
    look: dict[str, Any] = {"markersize": 13, "markeredgecolor": PAPER, "markeredgewidth": 1.5}
    axes.plot(
        [_on_map(work_h)], [_deaths_on_map(terms)], "D", color=INK, zorder=6, clip_on=False, **look
    )


def _draw_bill(axes: Axes, terms: Terms, work_h: float) -> None:
    """Two bars: the hours of the job's work, and what each of the two adds to them."""
    quiet_axes(axes, "This job")
    queue, engine = queue_h(terms, work_h), engine_h(terms, work_h)
    top = max(min(queue, 20 * engine), engine, 1e-9)
    for place, (name, hours, colour, hatch) in enumerate(
        (("queue", queue, FAILURE, "////"), ("engine", engine, LIVE, ".."))
    ):
        shown, work = min(hours, 1.22 * top), min(work_h, 1.22 * top)
        axes.bar(place, work, width=0.56, color="#C9CED3", edgecolor=WAITING)
        more: dict[str, Any] = {"facecolor": PAPER, "edgecolor": colour, "hatch": hatch}
        axes.bar(place, max(0.0, shown - work), bottom=work, width=0.56, **more)
        if shown < hours:  # the bar is cut: two lines across it
            for cut in (0.86, 0.9):
                across = [cut * shown, (cut + 0.03) * shown]
                axes.plot([place - 0.34, place + 0.34], across, color=PAPER, linewidth=4)
        said: dict[str, Any] = {"ha": "center", "va": "bottom", "fontweight": "bold", **_SMALL}
        axes.text(place, shown + 0.02 * top, length(hours), **said)
        axes.text(place, -0.035 * top, name, ha="center", va="top", **_SMALL)
    axes.set_xlim(-0.55, 1.55)
    axes.set_ylim(0, 1.36 * top)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("grey: the work; hatched: the rest", fontsize=SMALL_PT, color=SOFT_INK)
    axes.xaxis.set_label_coords(0.5, -0.105)


def _alt(terms: Terms, work_h: float) -> str:
    even = break_even_h(terms)
    where = (
        "the engine is cheaper for a job of any length"
        if even == 0.0
        else "the queue is cheaper for a job of any length"
        if even == math.inf
        else f"the engine is cheaper from {length(even)} of work on"
    )
    waits = f"for {length(terms.wait_h)}" if terms.wait_h else "for nobody"
    return (
        f"A worker dies {24 * terms.deaths_per_h:.3g} times a day, and a job waits {waits}: "
        f"{where}. A job of {length(work_h)} holds workers for "
        f"{length(queue_h(terms, work_h))} on a queue, for {length(engine_h(terms, work_h))} on an "
        "engine."
    )
