"""The measurements on the engines as pictures: speed, and what became of runs whose code changed.

Guarantees a `Picture` each, whose alt text states the finding in the numbers that were drawn;
colour never stands alone. Leaves to others: the numbers (`speed`, `grid`), tables (`tables`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from durable_mini.lab.engines.catalogue import setup_named
from durable_mini.lab.engines.grid import Cell
from durable_mini.lab.engines.speed import OWN, Speed
from durable_mini.lab.pictures import (
    FAILURE,
    FAILURE_TINT,
    FAINT,
    INK,
    LIVE,
    LIVE_TINT,
    REPLAYED_TINT,
    SMALL_PT,
    SOFT_INK,
    TEXT_PT,
    WAITING,
    Picture,
    bare_axes,
    blank_figure,
    quiet_axes,
)

_NAMES_IN, _CELL_IN, _ROW_IN, _HEAD_IN = 2.05, 1.5, 0.62, 0.75
_LOOKS = {  # tint and sign; the words stand beside the sign
    "right": (LIVE_TINT, "✓"),
    "refused": (REPLAYED_TINT, "■"),
    "refused again and again": (REPLAYED_TINT, "↻"),
    "stuck": (FAINT, "…"),
    "repeated": (FAILURE_TINT, "✗"),
    "wrong": (FAILURE_TINT, "✗"),
    "wrong and repeated": (FAILURE_TINT, "✗"),
}
_SHORT = {"wrong": "silently\nwrong", "wrong and repeated": "wrong, and\neffect again"}
_SHORT |= {"repeated": "effect again", "refused again and again": "refused,\nretried"}


def speed_figure(rows: Sequence[Speed]) -> Picture:
    """Draw how many steps a second each engine makes, durable_mini among them.

    Args:
        rows: what `compare` returned.
    """
    height = 1.12 + 0.5 * len(rows)
    figure = blank_figure(9.6, height)
    axes = figure.add_axes((0.36, 0.62 / height, 0.56, 1 - 1.12 / height))
    quiet_axes(axes, "Durable steps per second")
    for place, row in enumerate(rows):
        _draw_speed(axes, place, row)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 1.4 * max(row.steps_per_s for row in rows))
    axes.set_yticks([])
    axes.set_xlabel("steps per second, one run after the other", fontsize=SMALL_PT, color=SOFT_INK)
    return Picture(figure, _speed_alt(rows))


def bench_figure(measured: Mapping[str, Any]) -> Picture:
    """Draw the engines of what `durable-mini bench --json` prints.

    Raises:
        ValueError: no engine but this one was measured.
    """
    if not measured["peers"]:
        why = "no engine was measured beside durable_mini"
        raise ValueError(f"there is nothing to draw: {why}. Next: install one, such as dbos.")
    rate = measured["durable_mini"]["agent_steps_per_s"]
    own = Speed(OWN, OWN, "", setup_named(OWN).storage, rate, 1.0, 1.0, 1.0)
    others = [Speed(one["name"], low=0.0, high=0.0, **one) for one in measured["peers"]]
    return speed_figure([own, *others])


def _draw_speed(axes: Axes, place: int, row: Speed) -> None:
    own = row.setup == OWN
    axes.barh(place, row.steps_per_s, height=0.56, color=LIVE if own else WAITING)
    beside = "" if own else f"   {_compared(row.ratio)}"
    axes.annotate(
        f"{row.steps_per_s:,.0f}{beside}",
        (row.steps_per_s, place),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=TEXT_PT,
        color=INK,
        annotation_clip=False,
    )
    for text, up, size, colour in (
        (row.name, 5, TEXT_PT, INK),
        (row.storage, -7, SMALL_PT, SOFT_INK),
    ):
        where: dict[str, Any] = {
            "xytext": (-8, up),
            "textcoords": "offset points",
            "ha": "right",
            "va": "center",
        }
        axes.annotate(text, (0, place), fontsize=size, color=colour, **where)


def _compared(ratio: float) -> str:
    return f"{ratio:.1f} times slower" if ratio >= 1 else f"{1 / ratio:.1f} times faster"


def _speed_alt(rows: Sequence[Speed]) -> str:
    """The finding, in numbers."""
    own = next(row for row in rows if row.setup == OWN)
    said = [f"durable_mini makes {own.steps_per_s:,.0f} durable steps a second on {own.storage}."]
    for row in rows:
        if row.setup != OWN:
            times = f"durable_mini {row.ratio:.1f} times as many"
            said.append(f"{row.name} on {row.storage}: {row.steps_per_s:,.0f}, {times}.")
    return " ".join(said)


def edit_figure(cells: Sequence[Cell]) -> Picture:
    """Draw what became of a run under each edit on each engine, as a grid.

    Args:
        cells: what `measure` returned, for any engines and edits.
    """
    setups = list(dict.fromkeys(cell.setup for cell in cells))
    edits = list(dict.fromkeys(cell.edit for cell in cells))
    width = _NAMES_IN + _CELL_IN * len(edits) + 0.05
    height = _HEAD_IN + _ROW_IN * len(setups) + 0.05
    figure = blank_figure(width, height)
    axes = bare_axes(figure, width, height)
    for column, edit in enumerate(edits):
        middle = _NAMES_IN + _CELL_IN * (column + 0.5)
        text = edit.replace(" steps with ", " steps,\n")
        _write(axes, middle, height - _HEAD_IN / 2, text, TEXT_PT)
    for line, setup in enumerate(setups):
        middle = height - _HEAD_IN - _ROW_IN * (line + 0.5)
        axes.text(_NAMES_IN - 0.12, middle, setup, ha="right", va="center", fontsize=TEXT_PT)
        for cell in cells:
            if cell.setup == setup:
                _draw_cell(axes, _NAMES_IN + _CELL_IN * edits.index(cell.edit), middle, cell)
    return Picture(figure, _edit_alt(cells))


def _draw_cell(axes: Axes, left: float, middle: float, cell: Cell) -> None:
    tint, sign = _LOOKS[cell.verdict]
    box = (left + 0.03, middle - _ROW_IN / 2 + 0.03)
    silent = tint == FAILURE_TINT
    edge: dict[str, Any] = {"edgecolor": FAILURE if silent else tint, "linewidth": 1.0}
    axes.add_patch(Rectangle(box, _CELL_IN - 0.06, _ROW_IN - 0.06, facecolor=tint, **edge))
    words = _SHORT.get(cell.verdict, cell.verdict)
    _write(axes, left + _CELL_IN / 2, middle, f"{sign} {words}", SMALL_PT)


def _write(axes: Axes, x: float, y: float, text: str, size: float) -> None:
    middle: dict[str, Any] = {"ha": "center", "va": "center"}
    axes.text(x, y, text, fontsize=size, color=INK, linespacing=1.1, **middle)


def _edit_alt(cells: Sequence[Cell]) -> str:
    """The finding: who says nothing where the run goes on with wrong values, and each row."""
    by_setup: dict[str, list[str]] = {}
    for cell in cells:
        by_setup.setdefault(cell.setup, []).append(f"{cell.edit}: {cell.verdict}")
    silent = [cell for cell in cells if cell.verdict.startswith("wrong")]
    share = f"in {len(silent)} of {len(cells)} cases"
    first = f"Code changed under a run: {share} it ends with wrong values and no word."
    return " ".join([first, *(f"{setup}: {', '.join(said)}." for setup, said in by_setup.items())])
