"""Drawings of sagas: how many ended in which way, and what somebody reads in the middle of one.

Guarantees what the other figures do: an alt text that states the finding in numbers taken from the
data that was drawn, and no state that is told by colour alone: each end has a shape and a word of
its own, a reading in the middle is hatched.

Knows nothing of engines: what is drawn is handed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from durable_mini.lab.pictures import (
    COMPENSATION,
    FAILURE,
    FAILURE_INK,
    FAILURE_TINT,
    FAINT,
    INK,
    LIVE,
    LIVE_TINT,
    PAPER,
    SMALL_PT,
    SOFT_INK,
    TEXT_PT,
    TITLE_PT,
    WAITING,
    Picture,
    bare_axes,
    blank_figure,
)

_W_IN = 9.6
_UNDO_TINT = "#F6E6EF"
_TEXT: dict[str, Any] = {"fontsize": SMALL_PT, "color": INK, "va": "center"}
_SOFT: dict[str, Any] = _TEXT | {"color": SOFT_INK}
_BOLD: dict[str, Any] = _TEXT | {"fontsize": TEXT_PT, "fontweight": "bold"}


@dataclass(frozen=True, slots=True)
class Shape:
    """A saga to draw.

    Args:
        steps: in order.
        undos: the steps that have an undo, and its name; the pivot follows the last of them.
        fails: the step that fails for good; empty where none does.
        undo_fails: the step whose undo fails for good; empty where none does.
    """

    steps: Sequence[str]
    undos: Mapping[str, str]
    fails: str = ""
    undo_fails: str = ""


@dataclass(frozen=True, slots=True)
class Count:
    """How many sagas ended in a way that this word names."""

    end: str
    number: int


# ---- the ends ----------------------------------------------------------------------------------

_MARKS: dict[str, tuple[str, str, str]] = {  # marker, face, edge
    "completed": ("o", LIVE, LIVE),
    "undone": ("s", PAPER, "#8C4A74"),
    "handed to a person": ("D", FAILURE, INK),
    "left half-way": ("x", FAILURE_INK, FAILURE_INK),
}
_PER_ROW, _PITCH_IN, _LINE_IN = 50, 0.136, 0.15
_DOTS_X_IN = 2.55
_ROWS = 11  # of dots, for 400 sagas in up to four groups
_GROUP_IN = 0.22  # between two groups


def ends_picture(title: str, shape: Shape, counts: Sequence[Count]) -> Picture:
    """Draw a saga with what fails in it, and one mark for each saga in the group of its end.

    Args:
        title: a line above the drawing.
        shape: the saga.
        counts: the groups, in order; a group of none is drawn as such.
    """
    dots_h = _ROWS * _LINE_IN + 4 * _GROUP_IN + 0.1
    height = 0.45 + 1.28 + dots_h
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    sheet.text(0.12, height - 0.27, title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    _draw_saga(sheet, height - 0.62, shape)
    top = height - 1.86
    for count in counts:
        top = _draw_group(sheet, top, count)
    return Picture(figure, _ends_alt(title, shape, counts))


def _draw_saga(sheet: Axes, top: float, shape: Shape) -> None:
    """Draw the steps from left to right, below them the undos, between them the pivot."""
    width, gap, x = 1.2, 0.16, _DOTS_X_IN
    sheet.text(0.12, top - 0.17, "the saga", **_BOLD)
    sheet.text(0.12, top - 0.72, "its undos", **_BOLD)
    pivot = list(shape.undos)[-1:]
    for step in shape.steps:
        _draw_box(sheet, (x, top - 0.34, width, 0.34), step, (LIVE_TINT, LIVE), step == shape.fails)
        if step in shape.undos:
            spot, cross = (x, top - 0.89, width, 0.34), step == shape.undo_fails
            _draw_box(sheet, spot, shape.undos[step], (_UNDO_TINT, COMPENSATION), cross)
            ends: dict[str, Any] = {"arrowstyle": "<-", "color": WAITING, "linewidth": 1.2}
            middle = x + width / 2
            sheet.annotate("", (middle, top - 0.35), xytext=(middle, top - 0.54), arrowprops=ends)
        x += width + gap
        if [step] == pivot:
            line = x - gap / 2 + 0.09
            sheet.plot([line, line], [top - 0.89, top + 0.06], color=INK, linewidth=2.2)
            sheet.text(line + 0.1, top - 0.72, "point of no return", **_SOFT)
            x += 0.18


def _draw_box(
    sheet: Axes,
    spot: tuple[float, float, float, float],
    name: str,
    colours: tuple[str, str],
    fails: bool,
) -> None:
    left, base, width, height = spot
    style = "round,pad=0,rounding_size=0.06"
    face, edge = colours
    if fails:
        face, edge = FAILURE_TINT, FAILURE
    patch = FancyBboxPatch(
        (left, base), width, height, boxstyle=style, facecolor=face, edgecolor=edge, linewidth=1.5
    )
    sheet.add_patch(patch)
    shift = 0.1 if fails else 0.0
    words: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL_PT, "color": INK}
    sheet.text(left + width / 2 + shift, base + height / 2, name.replace("_", " "), **words)
    if fails:
        mark: dict[str, Any] = {"markerfacecolor": FAILURE, "markeredgecolor": PAPER}
        sheet.plot([left + 0.16], [base + height / 2], marker="X", markersize=12, **mark)


def _draw_group(sheet: Axes, top: float, count: Count) -> float:
    """Draw one end with its sagas; return where the next one begins."""
    rows = max(1, -(-count.number // _PER_ROW))
    first = top - _LINE_IN / 2
    sheet.text(0.72, first, f"{count.number:,}", ha="right", **_BOLD)
    sheet.text(0.82, first, count.end, **_TEXT)
    marker, face, edge = _MARKS[count.end]
    places = range(count.number)
    sheet.plot(
        [_DOTS_X_IN + 0.06 + place % _PER_ROW * _PITCH_IN for place in places],
        [first - place // _PER_ROW * _LINE_IN for place in places],
        marker=marker,
        markersize=5.8 if marker != "D" else 5.4,
        markerfacecolor=face,
        markeredgecolor=edge,
        markeredgewidth=1.3 if marker != "D" else 0.8,
        linestyle="none",
    )
    if not count.number:
        sheet.text(_DOTS_X_IN, first, "none", **_SOFT)
    base = top - rows * _LINE_IN - _GROUP_IN / 2
    sheet.plot([0.12, _W_IN - 0.12], [base, base], color=FAINT, linewidth=1.0)
    return base - _GROUP_IN / 2


def _ends_alt(title: str, shape: Shape, counts: Sequence[Count]) -> str:
    told = ", ".join(f"{count.number} {count.end}" for count in counts)
    fails = f" {shape.fails} fails for good in some." if shape.fails else ""
    stuck = f" So does {shape.undos[shape.undo_fails]}." if shape.undo_fails else ""
    return f"{title}: {told}.{fails}{stuck}".replace("_", " ")


# ---- the ends by crash rate --------------------------------------------------------------------

_BARS = {  # face, edge, hatch
    "completed": (LIVE_TINT, LIVE, ""),
    "undone": (PAPER, "#8C4A74", "////"),
    "handed to a person": ("#F0A46F", INK, ""),
    "left half-way": (PAPER, FAILURE_INK, "xxxx"),
}


@dataclass(frozen=True, slots=True)
class Bar:
    """How the sagas of one setting ended, to be drawn as one bar with its words at both sides."""

    name: str
    counts: Sequence[Count]
    told: str


def ends_by_rate(title: str, groups: Mapping[str, Sequence[Bar]]) -> Picture:
    """Draw one bar for each setting, divided by how its sagas ended.

    Args:
        title: a line above the drawing.
        groups: bars by what they have in common.
    """
    bars = sum(map(len, groups.values()))
    height = 0.85 + 0.36 * bars + 0.42 * len(groups)
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    sheet.text(0.12, height - 0.27, title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    top = height - 0.5
    for group, members in groups.items():
        sheet.text(0.12, top - 0.14, group, **_BOLD)
        top -= 0.34
        for bar in members:
            _draw_bar(sheet, top - 0.14, bar)
            top -= 0.36
        top -= 0.08
    _draw_bar_key(
        sheet, {count.end: None for b in groups.values() for bar in b for count in bar.counts}
    )
    told = " ".join(_bar_alt(group, bar) for group, members in groups.items() for bar in members)
    return Picture(figure, f"{title}. {told}")


def _draw_bar(sheet: Axes, middle: float, bar: Bar) -> None:
    left, width = 1.55, 6.2
    sheet.text(0.12, middle, bar.name, **_TEXT)
    total = sum(count.number for count in bar.counts)
    for count in bar.counts:
        part = width * count.number / total
        face, edge, hatch = _BARS[count.end]
        spot: dict[str, Any] = {"facecolor": face, "edgecolor": edge, "hatch": hatch}
        if part:
            sheet.add_patch(
                Rectangle(
                    (left, middle - 0.13), part, 0.26, linewidth=1.2, hatch_linewidth=0.7, **spot
                )
            )
        if part > 0.32:
            words = {"boxstyle": "round,pad=0.1", "facecolor": face, "linewidth": 0}
            sheet.text(left + part / 2, middle, str(count.number), ha="center", bbox=words, **_TEXT)
        left += part
    sheet.text(7.9, middle, bar.told, **_SOFT)


def _draw_bar_key(sheet: Axes, ends: Mapping[str, None]) -> None:
    x = 1.55
    for end in ends:
        face, edge, hatch = _BARS[end]
        sheet.add_patch(
            Rectangle(
                (x, 0.1), 0.24, 0.17, facecolor=face, edgecolor=edge, hatch=hatch, linewidth=1.2
            )
        )
        sheet.text(x + 0.32, 0.185, end, **_SOFT)
        x += 0.62 + 0.083 * len(end)


def _bar_alt(group: str, bar: Bar) -> str:
    told = ", ".join(f"{count.number} {count.end}" for count in bar.counts)
    return f"{group}, {bar.name}: {told}, {bar.told}."


# ---- somebody reads in the middle --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader sees after each moment, in one way of doing the work."""

    name: str
    seen: Sequence[str]


def readings_picture(
    title: str, moments: Sequence[str], readings: Sequence[Reading], note: tuple[int, str] = (0, "")
) -> Picture:
    """Draw what somebody else reads, moment by moment.

    Args:
        title: a line above the drawing.
        moments: what has just happened, first to last.
        readings: one row each; a value that was neither there at first nor at last is hatched.
        note: the place of a moment, and what somebody does then.

    Raises:
        ValueError: a row has not one value a moment.
    """
    if any(len(reading.seen) != len(moments) for reading in readings):
        raise ValueError(f"each row needs {len(moments)} values, one a moment")
    lines = max(len(value.split("\n")) for reading in readings for value in reading.seen)
    row_h = 0.2 * lines + 0.26
    extra = 0.4 if note[1] else 0.0
    height = 0.45 + 0.42 + len(readings) * row_h + extra + 0.38
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    sheet.text(0.12, height - 0.27, title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    left, top = 1.5, height - 0.87
    pitch = (_W_IN - 0.12 - left) / len(moments)
    for place, moment in enumerate(moments):
        sheet.text(left + (place + 0.5) * pitch, top + 0.2, moment, ha="center", **_SOFT)
    for row, reading in enumerate(readings):
        base = top - (row + 1) * row_h
        sheet.text(0.12, base + row_h / 2, reading.name, linespacing=1.2, **_BOLD)
        for place, seen in enumerate(reading.seen):
            _draw_seen(
                sheet, (left + place * pitch, base, pitch, row_h), seen, _between(reading, seen)
            )
    floor = top - len(readings) * row_h
    if note[1]:
        x = left + (note[0] + 0.5) * pitch
        ends: dict[str, Any] = {"arrowstyle": "->", "color": INK, "linewidth": 1.3}
        sheet.annotate("", (x, floor + 0.02), xytext=(x, floor - 0.3), arrowprops=ends)
        sheet.text(x + 0.1, floor - 0.25, note[1], **_TEXT)
    sheet.add_patch(_dirty((0.14, 0.1, 0.26, 0.18)))
    sheet.text(0.5, 0.19, "neither as at first nor as in the end", **_SOFT)
    return Picture(figure, _readings_alt(title, moments, readings, note))


def _between(reading: Reading, seen: str) -> bool:
    return seen not in (reading.seen[0], reading.seen[-1])


def _dirty(spot: tuple[float, float, float, float]) -> Rectangle:
    left, base, width, height = spot
    look: dict[str, Any] = {"facecolor": FAILURE_TINT, "edgecolor": FAILURE, "hatch": "////"}
    return Rectangle((left, base), width, height, linewidth=1.0, hatch_linewidth=0.5, **look)


def _draw_seen(
    sheet: Axes, spot: tuple[float, float, float, float], seen: str, dirty: bool
) -> None:
    left, base, width, height = spot
    inner = (left + 0.03, base + 0.03, width - 0.06, height - 0.06)
    if dirty:
        sheet.add_patch(_dirty(inner))
    else:
        look: dict[str, Any] = {"facecolor": PAPER, "edgecolor": WAITING, "linewidth": 1.0}
        sheet.add_patch(Rectangle(inner[:2], inner[2], inner[3], **look))
    words = {
        "boxstyle": "round,pad=0.14",
        "facecolor": FAILURE_TINT if dirty else PAPER,
        "linewidth": 0,
    }
    middle = (left + width / 2, base + height / 2)
    sheet.text(*middle, seen, ha="center", linespacing=1.25, bbox=words, **_TEXT)


def _readings_alt(
    title: str, moments: Sequence[str], readings: Sequence[Reading], note: tuple[int, str]
) -> str:
    rows = []
    for reading in readings:
        wrong = [
            moment
            for moment, seen in zip(moments, reading.seen, strict=True)
            if _between(reading, seen)
        ]
        told = f"something in between after {', '.join(wrong)}" if wrong else "nothing in between"
        rows.append(f"{reading.name}: {told}.")
    more = f" After {moments[note[0]]}: {note[1]}" if note[1] else ""
    return f"{title}. {' '.join(rows)}{more}".replace("\n", " ")
