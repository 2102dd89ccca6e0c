"""What every figure of the course shares: palette, size, alt text, stable bytes, a numbers table.

A `Picture` guarantees that its PNG has the same bytes each time it is drawn with the same
matplotlib, and that the sentence for a reader who can't see it travels with it. That sentence
stands in three places, because no single one is enough: in the output's metadata (nbconvert's
classic templates read it there), as `text/plain` (a terminal), and as a visible line under the
picture (JupyterLab and nbconvert's default template give a picture no alt text at all).

What is drawn is for `figures` and `run_pictures` to say. Only `Figure` is used, never pyplot: no
global state, no backend to choose, nothing to close.
"""

from __future__ import annotations

import html
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Any, TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure

REPLAYED = "#0072B2"
LIVE = "#009E73"
FAILURE = "#D55E00"
WAITING = "#767676"
COMPENSATION = "#CC79A7"
INK = "#1F2328"
SOFT_INK = "#57606A"
FAINT = "#E4E8EC"
PAPER = "#FFFFFF"
FAILURE_INK = "#A64500"  # the palette's failure colour is too pale for small text on white
REPLAYED_TINT = "#DCEBF5"
LIVE_TINT = "#BFE5D8"
FAILURE_TINT = "#FBE3D5"

DPI = 110
# A cell of JupyterLab on a small laptop is 850 pixels wide. There the widest figure (9.6 inches)
# shrinks to four fifths, and its smallest text is still a little above 9 points on the page.
SMALL_PT = 9.8
TEXT_PT = 10.0
TITLE_PT = 11.5

Cell: TypeAlias = str | float | int | None


@dataclass(frozen=True)
class Picture:
    """One finished figure and the sentence that says what it shows.

    Args:
        figure: the matplotlib figure; it is drawn once, when its bytes are first asked for.
        alt: the finding in words, computed from the data that was drawn.
    """

    figure: Figure
    alt: str

    def png(self) -> bytes:
        """Return the picture as PNG bytes: the same ones each time."""
        return self._png

    @cached_property
    def _png(self) -> bytes:
        buffer = BytesIO()
        # Left alone, matplotlib writes its version into the file.
        self.figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
        return buffer.getvalue()

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        data = {"image/png": b64encode(self.png()).decode("ascii"), "text/plain": self.alt}
        return data, {"image/png": {"alt": self.alt}}

    def _ipython_display_(self) -> None:
        show_bundle(*self._repr_mimebundle_())
        show_bundle(caption_bundle(self.alt))


def show_bundle(data: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> None:
    """Display one output of the running cell, in several forms that the page chooses from."""
    from IPython import display as shown  # noqa: PLC0415  # only a notebook has an output to show

    show: Callable[..., object] = shown.display
    show(dict(data), metadata=dict(metadata or {}), raw=True)


def caption_bundle(text: str) -> dict[str, str]:
    """Return the display bundle of a quiet line under a picture."""
    line = f'<p style="max-width: 62em; margin: 0"><em>{html.escape(text)}</em></p>'
    return {"text/html": line, "text/plain": text}


@dataclass(frozen=True)
class NumbersTable:
    """The numbers behind a figure, as a table with a caption; see `numbers_table`."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str

    def __str__(self) -> str:
        texts = [self.columns, *([_cell_text(cell) for cell in row] for row in self.rows)]
        widths = [max(len(row[place]) for row in texts) for place in range(len(self.columns))]
        lines = [self._aligned(row, widths) for row in texts]
        head = [self.caption] if self.caption else []
        return "\n".join([*head, lines[0], "-" * sum(widths, 2 * len(widths) - 2), *lines[1:]])

    def _aligned(self, texts: Sequence[str], widths: Sequence[int]) -> str:
        padded = [
            text.rjust(width) if self._is_numeric(place) else text.ljust(width)
            for place, (text, width) in enumerate(zip(texts, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    def _is_numeric(self, place: int) -> bool:
        texts = [_cell_text(row[place]) for row in self.rows]
        return place > 0 and all(text[:1].isdigit() or text[:1] in "-" for text in texts)

    def to_html(self) -> str:
        """Return the table as HTML with header cells that a screen reader announces."""
        # Styled in place: inside a widget JupyterLab's own table style doesn't hold.
        head = "".join(
            f'<th scope="col" style="{self._style(place)}">{html.escape(name)}</th>'
            for place, name in enumerate(self.columns)
        )
        body = "".join(f"<tr>{self._row_html(row)}</tr>" for row in self.rows)
        return (
            '<table style="border-collapse: collapse; margin: 0.4em 0; line-height: 1.3">'
            f'<caption style="text-align: left; font-weight: bold">{html.escape(self.caption)}'
            f"</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )

    def _row_html(self, row: Sequence[Cell]) -> str:
        cells = []
        for place, cell in enumerate(row):
            tag, scope = ("th", ' scope="row"') if place == 0 else ("td", "")
            text = html.escape(_cell_text(cell))
            cells.append(f'<{tag}{scope} style="{self._style(place)}">{text}</{tag}>')
        return "".join(cells)

    def _style(self, place: int) -> str:
        side = "right" if self._is_numeric(place) else "left"
        return f"text-align: {side}; padding: 0.15em 0.9em 0.15em 0; font-weight: normal"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self.to_html(), "text/plain": str(self)}


def numbers_table(rows: Sequence[Mapping[str, Cell]], caption: str = "") -> NumbersTable:
    """Return a table that prints the same everywhere: to stand beside a figure.

        >>> print(numbers_table([{"strategy": "restart", "cost": 12.1539}]))
        strategy    cost
        ----------------
        restart   12.154

    Args:
        rows: one mapping per row, all with the same keys in the same order; the keys are the
            columns. A float is shown with three decimals, None as a hyphen; hand in text to show
            it otherwise.
        caption: what the numbers are.

    Raises:
        ValueError: when there is no row, or a row has other columns than the first.
    """
    if not rows:
        raise ValueError("a table of numbers needs at least one row")
    columns = tuple(rows[0])
    for number, row in enumerate(rows, 1):
        if tuple(row) != columns:
            raise ValueError(f"row {number} has columns {tuple(row)}, the first has {columns}")
    return NumbersTable(columns, tuple(tuple(row.values()) for row in rows), caption)


def _cell_text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:,.3f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def blank_figure(width_in: float, height_in: float) -> Figure:
    """Return an empty white figure of this size in inches."""
    return Figure(figsize=(width_in, height_in), dpi=DPI, facecolor=PAPER)


def bare_axes(figure: Figure, width_in: float, height_in: float) -> Axes:
    """Return a sheet to draw on: axes that count in inches from the figure's lower left."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width_in)
    axes.set_ylim(0, height_in)
    axes.axis("off")
    return axes


def quiet_axes(axes: Axes, title: str) -> None:
    """Give axes the house look: title at the left, two soft spines, small ticks."""
    axes.set_title(title, loc="left", fontsize=TITLE_PT, fontweight="bold", color=INK, pad=10)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(WAITING)
    axes.tick_params(labelsize=SMALL_PT, colors=SOFT_INK, length=3)
