"""The museum, drawn and as cards: which laws each broken engine breaks, and what is wrong with it.

Guarantees: what is drawn is what the exhibits declare (a test of the museum holds each of them to
all laws); the alt text states the finding in numbers from it; a broken law is a cross on a dark
ground, one that isn't offered a small dash, in grey too. Leaves to others: the checking.
"""

from __future__ import annotations

import html
import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from durable_mini.lab.conformance import LAWS, Law
from durable_mini.lab.museum import MUSEUM, Exhibit
from durable_mini.lab.museum.tour import fault, ranges
from durable_mini.lab.pictures import (
    FAILURE,
    INK,
    LIVE_TINT,
    PAPER,
    SMALL_PT,
    SOFT_INK,
    TITLE_PT,
    WAITING,
    Picture,
    bare_axes,
    blank_figure,
)

_WIDTH_IN, _LEFT_IN, _TOP_IN, _BOTTOM_IN = 9.6, 2.3, 1.42, 0.62
_ROW_IN, _COLUMN_IN = 0.2, 0.245
_TEXT: dict[str, Any] = {"fontsize": SMALL_PT, "color": INK}
_SOFT: dict[str, Any] = {"fontsize": SMALL_PT, "color": SOFT_INK}


def museum_grid(exhibits: Sequence[Exhibit] = MUSEUM, laws: Sequence[Law] = LAWS) -> Picture:
    """Draw every exhibit in a row and every law in a column, with a cross where one breaks it.

    Args:
        exhibits: the engines; they are sorted by the first law that each breaks.
        laws: what they were held to, in the order of their numbers.
    """
    rows = sorted(exhibits, key=lambda exhibit: (min(exhibit.breaks), max(exhibit.breaks)))
    height = _TOP_IN + len(rows) * _ROW_IN + _BOTTOM_IN
    figure = blank_figure(_WIDTH_IN, height)
    sheet = bare_axes(figure, _WIDTH_IN, height)
    top = height - _TOP_IN
    title = f"{len(rows)} broken engines, {len(laws)} laws"
    sheet.text(0.12, height - 0.28, title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    _draw_heads(sheet, laws, top, len(rows))
    for number, exhibit in enumerate(rows):
        base = top - (number + 1) * _ROW_IN
        style = {**_TEXT, "ha": "right", "va": "center"}
        sheet.text(_LEFT_IN - 0.08, base + _ROW_IN / 2, exhibit.__name__, **style)
        _draw_row(sheet, base, [_state(exhibit, law) for law in laws])
    _draw_key(sheet)
    return Picture(figure, _alt(rows, laws))


def _state(exhibit: Exhibit, law: Law) -> str:
    """Whether an exhibit breaks a law, keeps it, or has nothing of what it is about."""
    if law.number in exhibit.breaks:
        return "breaks"
    offers: frozenset[str] = getattr(exhibit, "offers", frozenset())
    return "keeps" if not law.needs or law.needs in offers else "not offered"


def _draw_heads(sheet: Axes, laws: Sequence[Law], top: float, rows: int) -> None:
    """Write the laws' numbers and, at a slant, the names of their groups."""
    for column, law in enumerate(laws):
        middle = _LEFT_IN + (column + 0.5) * _COLUMN_IN
        sheet.text(middle, top + 0.1, str(law.number), ha="center", va="center", **_SOFT)
    runs = groupby(enumerate(laws), key=lambda pair: pair[1].group)
    for group, members in runs:
        columns = [column for column, _ in members]
        left = _LEFT_IN + columns[0] * _COLUMN_IN
        right = _LEFT_IN + (columns[-1] + 1) * _COLUMN_IN
        sheet.plot([left + 0.04, right - 0.04], [top + 0.23] * 2, color=INK, linewidth=1.2)
        sheet.plot([left] * 2, [top - rows * _ROW_IN, top], color=WAITING, linewidth=0.7, zorder=3)
        slant: dict[str, Any] = {"rotation": 45, "rotation_mode": "anchor", "va": "bottom"}
        sheet.text((left + right) / 2 - 0.02, top + 0.27, group, **_TEXT, **slant)


def _draw_row(sheet: Axes, base: float, states: Sequence[str]) -> None:
    """Draw one engine's cells; neighbours of one kind share a ground."""
    for state, members in groupby(enumerate(states), key=lambda pair: pair[1]):
        columns = [column for column, _ in members]
        _draw_cells(sheet, _LEFT_IN + columns[0] * _COLUMN_IN, base, state, len(columns))


def _draw_cells(sheet: Axes, left: float, base: float, state: str, count: int = 1) -> None:
    """Draw so many cells of one kind beside each other."""
    face = {"breaks": FAILURE, "keeps": LIVE_TINT, "not offered": PAPER}[state]
    size = count * _COLUMN_IN, _ROW_IN - 0.03
    sheet.add_patch(Rectangle((left, base + 0.015), *size, facecolor=face, linewidth=0))
    style: dict[str, dict[str, Any]] = {
        "breaks": {"marker": "x", "color": PAPER, "markersize": 6, "markeredgewidth": 1.7},
        "not offered": {"marker": "_", "color": WAITING, "markersize": 4, "markeredgewidth": 0.8},
    }
    if state in style:
        middles = [left + (place + 0.5) * _COLUMN_IN for place in range(count)]
        sheet.plot(middles, [base + _ROW_IN / 2] * count, linestyle="none", **style[state])


def _draw_key(sheet: Axes) -> None:
    words = {"breaks": "breaks the law", "keeps": "keeps it", "not offered": "doesn't offer this"}
    left = _LEFT_IN
    for state, said in words.items():
        _draw_cells(sheet, left, 0.2, state)
        sheet.text(left + 0.32, 0.3, said, va="center", **_SOFT)
        left += 0.62 + 0.075 * len(said)


def _alt(rows: Sequence[Exhibit], laws: Sequence[Law]) -> str:
    broken = frozenset[int]().union(*(exhibit.breaks for exhibit in rows))
    single = sum(len(exhibit.breaks) == 1 for exhibit in rows)
    worst = max(rows, key=lambda exhibit: len(exhibit.breaks))
    return (
        f"{len(rows)} broken engines and {len(laws)} laws. Between them they break {len(broken)} "
        f"laws. {single} break just one; {worst.__name__} breaks {len(worst.breaks)}."
    )


# ---- cards -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExhibitCards:
    """Each exhibit to unfold: what it does, where it was seen, which laws it breaks, its code."""

    exhibits: tuple[Exhibit, ...]

    def __str__(self) -> str:
        return "\n".join(
            f"{exhibit.__name__}: {fault(exhibit)} Breaks {ranges(exhibit.breaks)}. "
            f"Seen: {exhibit.report}."
            for exhibit in self.exhibits
        )

    def to_html(self) -> str:
        """The cards as HTML that works without a kernel."""
        cards = "".join(map(_card, self.exhibits))
        return f'<div style="max-width: 62em; line-height: 1.4">{cards}</div>'

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self.to_html(), "text/plain": str(self)}


def exhibit_cards(exhibits: Sequence[Exhibit] = MUSEUM) -> ExhibitCards:
    """The exhibits to be read, each folded."""
    return ExhibitCards(tuple(exhibits))


def _card(exhibit: Exhibit) -> str:
    _, _, story = inspect.cleandoc(exhibit.__doc__ or "").partition("\n\n")
    parts = [f"<p>{html.escape(' '.join(story.split()))}</p>"] if story else []
    parts.append(f"<p>Seen: {html.escape(exhibit.report)}.</p>")
    parts.append(f"<pre>{html.escape(_code(exhibit))}</pre>")
    title = f"<strong>{exhibit.__name__}</strong> (breaks {ranges(exhibit.breaks)})"
    summary = f"{title}: {html.escape(fault(exhibit))}"
    return f"<details><summary>{summary}</summary>{''.join(parts)}</details>"


def _code(exhibit: Exhibit) -> str:
    """What the exhibit does otherwise: its source without its docstring and its label."""
    lines = inspect.getsource(exhibit).splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("    breaks"))
    return textwrap.dedent("\n".join(lines[begin + 1 :])).strip()
