"""The lower half of the course's map: what else can happen to a run, one small card for each.

Guarantees that a card says its question in words; its sketch repeats it with the shapes that the
other pictures use (a cross where something dies or is refused, dashes where something waits), never
by colour alone. Leaves to others: the run above the cards, and which chapter a card belongs to
(`run_pictures.course_map`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle

from durable_mini.lab.pictures import (
    COMPENSATION,
    FAILURE,
    FAINT,
    INK,
    LIVE,
    LIVE_TINT,
    PAPER,
    REPLAYED,
    SMALL_PT,
    TEXT_PT,
    TITLE_PT,
    WAITING,
)

CARDS_H_IN = 2.05
"""How much room the cards need, their heading included, in inches."""

_LEFT_IN, _FOOT_IN, _PITCH_IN = 0.12, 0.1, 1.575
_CARD_W_IN, _CARD_H_IN = 1.485, 1.58
_MIDDLE_IN = 0.84  # of a sketch, above the card's lower edge
_BOX_IN = 0.27


def draw_what_ifs(sheet: Axes, base: float, chapters: Mapping[str, str]) -> None:
    """Draw the card of each place in `chapters`, from left to right.

    Args:
        sheet: axes that count in inches.
        base: where the lower edge of the cards' room is.
        chapters: chapter titles by the names in `WHAT_IFS`.
    """
    heading: dict[str, Any] = {"fontsize": TITLE_PT, "fontweight": "bold", "color": INK}
    foot = base + _FOOT_IN
    top = foot + _CARD_H_IN + 0.22
    sheet.text(_LEFT_IN, top, "And what if …", va="center", **heading)
    for number, (place, (question, sketch)) in enumerate(WHAT_IFS.items()):
        if place in chapters:
            left = _LEFT_IN + number * _PITCH_IN
            _draw_card(sheet, (left, foot), chapters[place], question)
            sketch(sheet, left + _CARD_W_IN / 2, foot + _MIDDLE_IN)


def _draw_card(sheet: Axes, corner: tuple[float, float], title: str, question: str) -> None:
    left, foot = corner
    sheet.add_patch(
        FancyBboxPatch(
            corner,
            _CARD_W_IN,
            _CARD_H_IN,
            boxstyle="round,pad=0,rounding_size=0.07",
            facecolor=PAPER,
            edgecolor=FAINT,
            linewidth=1.5,
        )
    )
    middle = left + _CARD_W_IN / 2
    sheet.text(
        middle,
        foot + _CARD_H_IN - 0.2,
        title,
        fontsize=TEXT_PT,
        color=PAPER,
        ha="center",
        va="center",
        bbox={"boxstyle": "round,pad=0.3,rounding_size=0.3", "facecolor": INK, "linewidth": 0},
    )
    sheet.text(
        middle,
        foot + 0.28,
        question,
        fontsize=SMALL_PT,
        color=INK,
        ha="center",
        va="center",
        linespacing=1.15,
    )


# ---- the sketches: each is given its middle ------------------------------------------------------


def _changed_code(sheet: Axes, x: float, y: float) -> None:
    """Three calls on record, and the same three asked for with another one in the middle."""
    for row, letters in ((y + 0.15, "ABC"), (y - 0.17, "AXC")):
        for place, letter in enumerate(letters):
            other = letter == "X"
            spot = (x + (place - 1) * 0.36, row)
            _box(sheet, spot, REPLAYED if row > y else LIVE, letter, dashed=other)


def _waiting(sheet: Axes, x: float, y: float) -> None:
    """Work, a long dashed nothing with a clock in it, work."""
    _box(sheet, (x - 0.5, y), LIVE)
    _box(sheet, (x + 0.5, y), LIVE)
    sheet.plot([x - 0.36, x + 0.36], [y, y], color=WAITING, linewidth=1.5, linestyle=(0, (3, 2)))
    sheet.add_patch(Circle((x, y), 0.19, facecolor=PAPER, edgecolor=WAITING, linewidth=1.5))
    for tip in ((x, y + 0.13), (x + 0.09, y - 0.03)):
        sheet.plot([x, tip[0]], [y, tip[1]], color=WAITING, linewidth=1.5)


def _undone(sheet: Axes, x: float, y: float) -> None:
    """Three deeds forwards, the last one fails, and the arrows back."""
    places = [x - 0.45, x, x + 0.45]
    for place in places[:2]:
        _box(sheet, (place, y - 0.12), LIVE)
    _box(sheet, (places[2], y - 0.12), FAILURE, dashed=True)
    _cross(sheet, places[2], y - 0.12, 8)
    for start, end in ((places[2], places[1]), (places[1], places[0])):
        _arrow(sheet, (start - 0.06, y + 0.04), (end + 0.06, y + 0.04), COMPENSATION, bend=0.55)


def _refused(sheet: Axes, x: float, y: float) -> None:
    """Two workers with the numbers of their claims before one journal: the older one is refused."""
    sheet.add_patch(
        Rectangle((x + 0.28, y - 0.31), 0.3, 0.62, facecolor=FAINT, edgecolor=INK, linewidth=1)
    )
    sheet.text(x + 0.43, y, "2", fontsize=SMALL_PT, color=INK, ha="center", va="center")
    for row, number in ((y + 0.17, 1), (y - 0.17, 2)):
        late = number == 1
        _box(sheet, (x - 0.42, row), WAITING if late else LIVE, str(number))
        _arrow(sheet, (x - 0.26, row), (x + 0.27, row), FAILURE if late else INK, dashed=late)
    _cross(sheet, x + 0.02, y + 0.17, 8)


def _growing(sheet: Axes, x: float, y: float) -> None:
    """Bars that grow, and the line that they mustn't cross."""
    for place in range(7):
        height = 0.05 + 0.012 * place**2
        left = x - 0.52 + place * 0.15
        sheet.add_patch(
            Rectangle((left, y - 0.29), 0.1, height, facecolor=LIVE_TINT, edgecolor=LIVE)
        )
    sheet.plot(
        [x - 0.56, x + 0.58],
        [y + 0.1, y + 0.1],
        color=FAILURE,
        linewidth=1.5,
        linestyle=(0, (3, 2)),
    )


def _everywhere(sheet: Axes, x: float, y: float) -> None:
    """Every step and every place in it, and a cross at each."""
    for column in range(7):
        for row in range(3):
            _cross(sheet, x + (column - 3) * 0.17, y + (row - 1) * 0.2, 6)


def _box(
    sheet: Axes, middle: tuple[float, float], edge: str, letter: str = "", *, dashed: bool = False
) -> None:
    x, y = middle
    sheet.add_patch(
        FancyBboxPatch(
            (x - _BOX_IN / 2, y - _BOX_IN / 2),
            _BOX_IN,
            _BOX_IN,
            boxstyle="round,pad=0,rounding_size=0.04",
            facecolor=LIVE_TINT if edge == LIVE and not dashed else PAPER,
            edgecolor=FAILURE if dashed else edge,
            linewidth=1.4,
            linestyle=(0, (3, 2)) if dashed else "-",
        )
    )
    sheet.text(x, y, letter, fontsize=SMALL_PT, color=INK, ha="center", va="center_baseline")


def _cross(sheet: Axes, x: float, y: float, size: float) -> None:
    sheet.plot(
        [x],
        [y],
        marker="X",
        markersize=size,
        markerfacecolor=FAILURE,
        markeredgecolor=PAPER,
        markeredgewidth=0.8,
        linestyle="none",
        zorder=5,
    )


def _arrow(
    sheet: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str,
    *,
    bend: float = 0.0,
    dashed: bool = False,
) -> None:
    sheet.annotate(
        "",
        end,
        xytext=start,
        arrowprops={
            "arrowstyle": "-|>",
            "connectionstyle": f"arc3,rad={bend}",
            "color": colour,
            "linewidth": 1.4,
            "linestyle": "--" if dashed else "-",
            "shrinkA": 0,
            "shrinkB": 0,
        },
    )


WHAT_IFS: dict[str, tuple[str, Callable[[Axes, float, float], None]]] = {
    "change": ("the code has\nchanged by then?", _changed_code),
    "wait": ("somebody must\nsay yes first?", _waiting),
    "undo": ("it has to be\ntaken back?", _undone),
    "slow": ("worker 1 was\nonly slow?", _refused),
    "year": ("it goes on\nfor a year?", _growing),
    "elsewhere": ("it dies at any\nother place?", _everywhere),
}
"""What can happen to the run, by a short name: the question in words, and its sketch."""
