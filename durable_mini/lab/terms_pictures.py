"""A told run as a drawing with numbered marks, and the widget that lights one of them up.

Guarantees: a column is an event of the journal, so that the same call stands under itself in every
attempt; what is drawn is what `told_run` tells. State is never told by colour alone: replayed boxes
are hatched, a failed one is crossed, an undo has a double edge, a death is a cross where it fell.
The chosen mark is filled, its part framed, and its word written at the top. Leaves to others: what
is said of a mark (`told_run`), what a word means (`terms`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from durable_mini.events import ENDED, OUTSIDE, Event, EventKind, Position
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
    REPLAYED,
    SMALL_PT,
    SOFT_INK,
    TEXT_PT,
    WAITING,
    NumbersTable,
    Picture,
    bare_axes,
    blank_figure,
    numbers_table,
)
from durable_mini.lab.terms import VOCABULARY
from durable_mini.lab.told_run import Place, ToldAttempt, ToldRun, places
from durable_mini.lab.widgets import LivePicture, Values, slider

_W_IN, _LABEL_IN, _RIGHT_IN = 9.6, 1.22, 0.08
_TITLE_IN, _ROW_IN, _JOURNAL_IN, _WORLD_IN, _KEY_IN = 0.62, 0.98, 1.08, 0.66, 0.36
_BOX_IN, _CELL_IN, _MARK_IN = 0.5, 0.64, 0.118
_WINDOW_IN, _WRITE_IN, _GAP_IN = 0.07, 0.055, 0.075
_TITLE_X = (0.16, 2.0, 4.5)

_WHAT = {
    EventKind.RECEIVED: "answer",
    EventKind.COMPENSATE: "its undo",
    EventKind.TIMED_OUT: "too late",
}
_TINT_UNDO = "#F7E6F0"


@dataclass(frozen=True, slots=True)
class _Spot:
    """A rectangle on the sheet, in inches."""

    left: float
    base: float
    right: float
    top: float


class _Sheet:
    """Where the parts of a told run stand."""

    def __init__(self, told: ToldRun) -> None:
        self.told = told
        rows = max(1, len(told.attempts))
        self.pitch = (_W_IN - _LABEL_IN - _RIGHT_IN) / max(8, len(told.history))
        self.height = _TITLE_IN + rows * _ROW_IN + _JOURNAL_IN + _WORLD_IN + _KEY_IN
        self.journal_top = self.height - _TITLE_IN - rows * _ROW_IN - 0.3
        self.world_top = self.journal_top - _CELL_IN - 0.2

    @property
    def body(self) -> float:
        return self.pitch - _WINDOW_IN - _WRITE_IN - _GAP_IN

    def x(self, seq: int) -> float:
        """The left edge of an event's column."""
        return _LABEL_IN + (seq - 1) * self.pitch

    def box_base(self, attempt: int) -> float:
        return self.height - _TITLE_IN - attempt * _ROW_IN + 0.14

    def spot(self, place: Place) -> _Spot:
        """What of the drawing a place means."""
        left, base = self.x(place.first), self.box_base(max(1, place.attempt))
        top, until = self.journal_top, self.box_base(max(1, place.attempt, place.until))
        ends = self.x(place.last) + self.pitch
        wide, write = _W_IN - 0.06, left + self.body
        row_top, title = base + (0.17 if place.spot else _BOX_IN + 0.3), self.height - 0.36
        title_end = (*_TITLE_X[1:], 6.7)[place.spot]
        return {
            "title": _Spot(_TITLE_X[place.spot] - 0.06, title - 0.2, title_end, title + 0.2),
            "attempt": _Spot(0.06, base - 0.1, 1.16 if place.spot else wide, row_top),
            "work": _Spot(left - 0.04, until - 0.05, ends - 0.16, base + _BOX_IN + 0.05),
            "window": _Spot(write - 0.05, base - 0.04, write + 0.17, base + _BOX_IN + 0.04),
            "lease": self.lease_spot(place.attempt),
            "idle": self.idle_spot(place.attempt, place.first),
            "event": _Spot(left, top - _CELL_IN, ends, top),
            "world": _Spot(left - 0.02, self.world_top - 0.44, ends, self.world_top + 0.02),
        }[place.part]

    def idle_spot(self, attempt: int, first: int) -> _Spot:
        """The bar of a wait: until the event that ended it was recorded."""
        history, base = self.told.history, self.box_base(max(1, attempt))
        ended = [e.seq for e in history if e.seq >= first and e.kind not in OUTSIDE]
        until = self.x(ended[0] if ended else len(history)) - 0.06
        right = max(until, self.x(first) + self.pitch - 0.14)  # its own column is free here
        return _Spot(self.x(first), base + 0.12, right, base + _BOX_IN - 0.12)

    def lease_spot(self, attempt: int) -> _Spot:
        """The bar of what was left of a dead worker's lease."""
        live = self.told.attempts[attempt - 1].live if attempt else ()
        base, left = self.box_base(max(1, attempt)), self.x(live[-1] + 1 if live else 1) + 0.06
        right = min(left + 2.1, _W_IN - 0.12)
        return _Spot(left, base + 0.13, right, base + _BOX_IN - 0.13)


def run_picture(told: ToldRun, chosen: Place | None = None) -> Picture:
    """Draw a told run with a numbered mark for each word that it has.

    Args:
        told: what to draw.
        chosen: the place whose mark is lit up, one of `places(told)`; None lights up none.
    """
    sheet = _Sheet(told)
    figure = blank_figure(_W_IN, sheet.height)
    axes = bare_axes(figure, _W_IN, sheet.height)
    _draw_title(axes, sheet)
    for attempt in told.attempts:
        _draw_attempt(axes, sheet, attempt)
    _draw_journal(axes, sheet)
    _draw_world(axes, sheet)
    _draw_key(axes, sheet)
    marked = places(told)
    if chosen is not None:
        whole = _Spot(0.05, 0.05, _W_IN - 0.05, sheet.height - 0.05)
        _frame(axes, whole if chosen.word == "run" else sheet.spot(chosen))
        _draw_tag(axes, sheet, f"{marked.index(chosen) + 1}  {chosen.title}")
    for number, (place, at) in enumerate(zip(marked, _mark_spots(sheet, marked), strict=True), 1):
        _draw_mark(axes, at, number, lit=place == chosen)
    return Picture(figure, _alt(told, chosen))


def _draw_title(axes: Axes, sheet: _Sheet) -> None:
    told = sheet.told
    pieces = (
        f"run {told.run_id}",
        f"workflow {told.workflow}, version {told.version}",
        f"structure {told.structure[:8]}…",
    )
    for x, text in zip(_TITLE_X, pieces, strict=True):
        axes.text(
            x + 0.3,
            sheet.height - 0.36,
            text,
            fontsize=TEXT_PT,
            fontweight="bold",
            color=INK,
            va="center",
        )


def _draw_attempt(axes: Axes, sheet: _Sheet, attempt: ToldAttempt) -> None:
    base = sheet.box_base(attempt.number)
    words: dict[str, Any] = {"va": "center", "color": INK}
    axes.text(
        0.36, base + 0.36, f"attempt {attempt.number}", fontsize=TEXT_PT, fontweight="bold", **words
    )
    claim = f"{attempt.worker}, token {attempt.token}"
    axes.text(0.36, base + 0.05, claim, fontsize=SMALL_PT, **(words | {"color": SOFT_INK}))
    for event in sheet.told.history:
        if event.seq == 1 or event.kind in OUTSIDE:
            continue
        if event.kind in ENDED:
            if attempt is sheet.told.attempts[-1]:
                _draw_end(axes, sheet, attempt, event)
        elif event.seq <= attempt.known or event.seq in attempt.live:
            _draw_call(axes, sheet, attempt, event)
    if attempt.died:
        _draw_death(axes, sheet, attempt)
    _draw_idle(axes, sheet, attempt)


def _draw_call(axes: Axes, sheet: _Sheet, attempt: ToldAttempt, event: Event) -> None:
    left, base = sheet.x(event.seq), sheet.box_base(attempt.number)
    live = event.seq in attempt.live
    died = attempt.died if live and event.seq == attempt.live[-1] else ""
    recorded = not died or died == Position.AFTER
    _draw_box(axes, sheet, (left, base), _style(event, live=live, died=died), _words(event))
    if live and died != Position.BEFORE:
        _draw_write(axes, left + sheet.body + _WINDOW_IN, base, written=recorded)
    if event.kind in {EventKind.EFFECT, EventKind.UNDO} and died != Position.BEFORE:
        failed = live and recorded and "error" in event.payload
        _draw_diamond(axes, left + sheet.body - 0.1, base + 0.01, out=live and not failed)


@dataclass(frozen=True, slots=True)
class _Style:
    face: str
    edge: str
    hatch: str = ""
    dashed: bool = False
    double: bool = False


def _style(event: Event, *, live: bool, died: str) -> _Style:
    if died == Position.BEFORE:
        return _Style(PAPER, WAITING, dashed=True)
    if not live:
        return _Style(PAPER, REPLAYED, "/////")
    if "error" in event.payload and not died:
        return _Style(FAILURE_TINT, FAILURE, "xxx")
    if event.kind is EventKind.UNDO:
        return _Style(_TINT_UNDO, COMPENSATION, double=True)
    return _Style(LIVE_TINT, LIVE)


def _words(event: Event) -> str:
    return f"{event.name}\n{_WHAT.get(event.kind, str(event.kind).replace('_', ' '))}"


def _draw_box(
    axes: Axes, sheet: _Sheet, corner: tuple[float, float], style: _Style, words: str
) -> None:
    left, base = corner
    edges = ((0.0, 1.5), (0.035, 1.0)) if style.double else ((0.0, 1.5),)
    for inside, width in edges:
        axes.add_patch(
            FancyBboxPatch(
                (left + inside, base + inside),
                sheet.body - 2 * inside,
                _BOX_IN - 2 * inside,
                boxstyle="round,pad=0,rounding_size=0.05",
                facecolor=style.face,
                edgecolor=style.edge,
                hatch=style.hatch,
                hatch_linewidth=0.6,
                linewidth=width,
                linestyle=(0, (3, 2)) if style.dashed else "-",
            )
        )
    axes.text(
        left + sheet.body / 2,
        base + _BOX_IN / 2,
        words,
        fontsize=SMALL_PT,
        color=INK,
        ha="center",
        va="center",
        linespacing=1.1,
        bbox={"boxstyle": "round,pad=0.06", "facecolor": style.face, "linewidth": 0},
    )


def _draw_end(axes: Axes, sheet: _Sheet, attempt: ToldAttempt, event: Event) -> None:
    left, base = sheet.x(event.seq), sheet.box_base(attempt.number)
    _draw_box(axes, sheet, (left, base), _Style(PAPER, INK), "the run\nends")
    _draw_write(axes, left + sheet.body + _WINDOW_IN, base, written=True)


def _draw_write(axes: Axes, left: float, base: float, *, written: bool) -> None:
    axes.add_patch(
        Rectangle(
            (left, base + 0.03),
            _WRITE_IN,
            _BOX_IN - 0.06,
            facecolor=INK if written else PAPER,
            edgecolor=INK if written else FAILURE,
            linestyle="-" if written else (0, (1.5, 1.2)),
            linewidth=1.0,
        )
    )


def _draw_diamond(axes: Axes, x: float, y: float, *, out: bool) -> None:
    _draw_sign(axes, "D", (x, y), 7, INK if out else PAPER, INK)


def _draw_sign(  # noqa: PLR0917 - a sign is these five things on axes
    axes: Axes, marker: str, at: tuple[float, float], size: float, face: str, edge: str
) -> None:
    axes.plot(
        [at[0]],
        [at[1]],
        marker=marker,
        markersize=size,
        markerfacecolor=face,
        markeredgecolor=edge,
        markeredgewidth=1.1,
        linestyle="none",
        zorder=5,
    )


def _draw_death(axes: Axes, sheet: _Sheet, attempt: ToldAttempt) -> None:
    left, base = sheet.x(attempt.live[-1]), sheet.box_base(attempt.number)
    write = left + sheet.body + _WINDOW_IN
    x = {
        Position.BEFORE: left - 0.02,
        Position.WINDOW: left + sheet.body + _WINDOW_IN / 2,
        Position.AFTER: write + _WRITE_IN + 0.04,
    }[Position(attempt.died)]
    _draw_sign(axes, "X", (x, base + _BOX_IN / 2), 13, FAILURE, PAPER)
    after = [one for one in sheet.told.attempts if one.number == attempt.number + 1]
    if not after:
        return
    spot = sheet.lease_spot(attempt.number)
    _draw_bar(axes, spot, "....", FAILURE_TINT, FAILURE)
    words = f"its lease runs out, {after[0].since_s - attempt.since_s:.0f} s"
    _write_in(axes, spot, words, FAILURE_INK)


def _draw_idle(axes: Axes, sheet: _Sheet, attempt: ToldAttempt) -> None:
    """Draw the wait that an attempt ended in, from its event to what came of it."""
    last = sheet.told.history[attempt.live[-1] - 1] if attempt.live and not attempt.died else None
    if last is None or last.kind not in {EventKind.WAIT, EventKind.TIMER}:
        return
    spot = sheet.idle_spot(attempt.number, last.seq + 1)
    _draw_bar(axes, spot, "....", FAINT, WAITING)
    _write_in(axes, spot, "waits", INK)


def _draw_bar(axes: Axes, spot: _Spot, hatch: str, face: str, edge: str) -> None:
    axes.add_patch(
        Rectangle(
            (spot.left, spot.base),
            spot.right - spot.left,
            spot.top - spot.base,
            facecolor=face,
            edgecolor=edge,
            hatch=hatch,
            hatch_linewidth=0.4,
            linewidth=1.1,
        )
    )


def _write_in(axes: Axes, spot: _Spot, text: str, colour: str) -> None:
    axes.text(
        (spot.left + spot.right) / 2,
        (spot.base + spot.top) / 2,
        text,
        fontsize=SMALL_PT,
        color=colour,
        ha="center",
        va="center",
        bbox={"boxstyle": "round,pad=0.08", "facecolor": PAPER, "linewidth": 0},
    )


def _draw_journal(axes: Axes, sheet: _Sheet) -> None:
    top = sheet.journal_top
    ink: dict[str, Any] = {"va": "center", "color": INK}
    axes.add_patch(
        FancyBboxPatch(
            (_LABEL_IN - 0.07, top - _CELL_IN - 0.07),
            _W_IN - _LABEL_IN - 0.02,
            _CELL_IN + 0.14,
            boxstyle="round,pad=0,rounding_size=0.05",
            facecolor=FAINT,
            edgecolor="none",
            zorder=0,
        )
    )
    axes.text(0.36, top - _CELL_IN / 2, "journal", fontsize=TEXT_PT, fontweight="bold", **ink)
    for event in sheet.told.history:
        left, middle = sheet.x(event.seq), sheet.x(event.seq) + sheet.pitch / 2
        cell = Rectangle((left, top - _CELL_IN), sheet.pitch, _CELL_IN, linewidth=1)
        cell.set(facecolor=PAPER, edgecolor=INK)
        axes.add_patch(cell)
        name = "" if event.name == sheet.told.workflow else event.name
        kind = str(event.kind).replace("_", " ")
        lines = ((0.12, str(event.seq), "bold"), (0.32, kind, "normal"), (0.5, name, "normal"))
        for down, text, weight in lines:
            small: dict[str, Any] = {"fontsize": SMALL_PT, "fontweight": weight, "ha": "center"}
            axes.text(middle, top - down, text, **small, **ink)


def _draw_world(axes: Axes, sheet: _Sheet) -> None:
    top = sheet.world_top
    words: dict[str, Any] = {"va": "center", "color": INK}
    axes.text(0.36, top - 0.2, "outside", fontsize=TEXT_PT, fontweight="bold", **words)
    for event in sheet.told.history:
        middle = sheet.x(event.seq) + sheet.pitch / 2
        if event.kind in OUTSIDE:
            _draw_arrow(axes, middle, top - 0.12, top + 0.17)
            text = "somebody\noutside"
        elif event.kind in {EventKind.EFFECT, EventKind.UNDO}:
            count = sheet.told.executions(event.seq)
            text = f"{count} request{'' if count == 1 else 's'}\n{_ending(sheet.told, event)}"
        else:
            continue
        axes.text(
            middle,
            top - 0.24 if event.kind in OUTSIDE else top - 0.2,
            text,
            fontsize=SMALL_PT,
            ha="center",
            linespacing=1.15,
            **words,
        )


def _ending(told: ToldRun, event: Event) -> str:
    """The end of an event's key, which is what tells keys of one run apart."""
    key = told.key(event)
    return "" if not key else f"…~{key.rpartition('~')[2]}" if "~" in key else f"…/{event.name}"


def _draw_arrow(axes: Axes, x: float, start: float, end: float) -> None:
    axes.annotate(
        "",
        (x, end),
        xytext=(x, start),
        arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.3},
    )


def _draw_key(axes: Axes, sheet: _Sheet) -> None:
    """Say at the bottom what the signs mean."""
    words: dict[str, Any] = {"fontsize": SMALL_PT, "color": SOFT_INK, "va": "center"}
    y, x = 0.2, 0.2
    for style, text, width in (
        (_Style(LIVE_TINT, LIVE), "live", 0.84),
        (_Style(PAPER, REPLAYED, "/////"), "replayed", 1.18),
        (_Style(FAILURE_TINT, FAILURE, "xxx"), "failed for good", 1.62),
    ):
        axes.add_patch(
            Rectangle(
                (x, y - 0.08),
                0.26,
                0.16,
                facecolor=style.face,
                edgecolor=style.edge,
                hatch=style.hatch,
                hatch_linewidth=0.6,
                linewidth=1.2,
            )
        )
        axes.text(x + 0.34, y, text, **words)
        x += width
    axes.add_patch(Rectangle((x, y - 0.1), _WRITE_IN, 0.2, facecolor=INK, edgecolor=INK))
    axes.text(x + 0.14, y, "journal write", **words)
    _draw_diamond(axes, x + 1.36, y, out=True)
    axes.text(x + 1.5, y, "reached the world outside", **words)
    if sheet.told.dead is not None:
        _draw_sign(axes, "X", (x + 3.5, y), 11, FAILURE, PAPER)
        axes.text(x + 3.66, y, "the worker dies", **words)


# ---- marks -------------------------------------------------------------------------------------


def _mark_spots(sheet: _Sheet, marked: Iterable[Place]) -> list[tuple[float, float]]:
    """The middle of each mark; marks of one place stand beside each other."""
    taken: Counter[tuple[float, float]] = Counter()
    spots = []
    for place in marked:
        anchor = _anchor(sheet, place)
        spots.append((anchor[0] + 0.255 * taken[anchor], anchor[1]))
        taken[anchor] += 1
    return spots


def _anchor(sheet: _Sheet, place: Place) -> tuple[float, float]:
    spot = sheet.spot(place)
    left, base = sheet.x(place.first), sheet.box_base(max(1, place.attempt))
    whole = (place.first, place.last) == (1, len(sheet.told.history))
    cell = (0.2, spot.top - _CELL_IN / 2) if whole else (left + 0.13, spot.top + 0.15)
    return {
        "title": (_TITLE_X[place.spot] + 0.12, sheet.height - 0.36),
        "attempt": (0.2, base + (0.05 if place.spot else 0.36)),
        "work": (left + 0.12, base + _BOX_IN + 0.16),
        "window": ((spot.left + spot.right) / 2, base + _BOX_IN + 0.16),
        "lease": (spot.left + 0.12, spot.top + 0.15),
        "idle": (spot.left + 0.12, spot.top + 0.15),
        "event": cell,
        "world": (left - 0.12, sheet.world_top - 0.2),
    }[place.part]


def _draw_mark(axes: Axes, at: tuple[float, float], number: int, *, lit: bool) -> None:
    size = _MARK_IN * (1.35 if lit else 1.0)
    axes.plot(
        [at[0]],
        [at[1]],
        marker="o",
        markersize=2 * size * 72,
        markerfacecolor=INK if lit else PAPER,
        markeredgecolor=INK if lit else SOFT_INK,
        markeredgewidth=1.0,
        zorder=8 if lit else 6,
    )
    axes.text(
        *at,
        str(number),
        fontsize=SMALL_PT + (1.5 if lit else -0.8),
        fontweight="bold" if lit else "normal",
        color=PAPER if lit else INK,
        ha="center",
        va="center_baseline",
        zorder=9 if lit else 7,
    )


def _frame(axes: Axes, spot: _Spot) -> None:
    axes.add_patch(
        FancyBboxPatch(
            (spot.left, spot.base),
            spot.right - spot.left,
            spot.top - spot.base,
            boxstyle="round,pad=0.02,rounding_size=0.06",
            facecolor="none",
            edgecolor=INK,
            linewidth=3.0,
            zorder=5.5,
        )
    )


def _draw_tag(axes: Axes, sheet: _Sheet, text: str) -> None:
    axes.text(
        _W_IN - 0.22,
        sheet.height - 0.36,
        text,
        fontsize=TEXT_PT,
        fontweight="bold",
        color=PAPER,
        ha="right",
        va="center",
        bbox={"boxstyle": "round,pad=0.4,rounding_size=0.3", "facecolor": INK, "linewidth": 0},
        zorder=9,
    )


def _alt(told: ToldRun, chosen: Place | None) -> str:
    rows = [
        f"Attempt {one.number}, {one.worker} with token {one.token}: {len(one.live)} live calls"
        + (f", dies {_DIED[one.died]}." if one.died else ".")
        for one in told.attempts
    ]
    events = f"{len(told.history)} event{'' if len(told.history) == 1 else 's'}"
    end = f"The journal has {events}; the run is {told.status}."
    lit = "" if chosen is None else f" Marked: {chosen.title}. {chosen.said}"
    return f"Run {told.run_id} of workflow {told.workflow}. {' '.join(rows)} {end}{lit}"


_DIED = {
    "": "",
    "before": "before the work",
    "window": "in the crash window",
    "after": "after the journal write",
}


# ---- the widget and its table ------------------------------------------------------------------


class TermWalk(LivePicture[Place]):
    """A drawn run and its words: press one, or step from mark to mark; see `term_walk`."""

    def __init__(self, told: ToldRun, start: str) -> None:
        self.marked = places(told)
        titles = [place.title for place in self.marked]
        if start not in titles:
            raise ValueError(f"this run has no {start!r}, only {', '.join(titles)}")
        self._mark = slider("mark", "mark", titles.index(start) + 1, 1, len(titles), 1)
        self.buttons = {title: self._button(n, title) for n, title in enumerate(titles, 1)}
        super().__init__(
            [self._mark],
            self._chosen,
            lambda place: run_picture(told, place),
            self._sentence,
            extra_row=widgets.HBox(
                list(self.buttons.values()), layout=widgets.Layout(flex_flow="row wrap")
            ),
        )

    def _button(self, number: int, title: str) -> widgets.Widget:
        button = widgets.Button(
            description=f"{number} {title}", layout=widgets.Layout(width="auto")
        )
        button.on_click(lambda _button: setattr(self._mark, "value", number))
        return button

    def _chosen(self, values: Values) -> Sequence[Place]:
        chosen = self.marked[values["mark"] - 1]
        for title, button in self.buttons.items():
            lit = title == chosen.title
            button.icon, button.button_style = ("check", "primary") if lit else ("", "")
        return [chosen]

    def _sentence(self, place: Place) -> str:
        number = self.marked.index(place) + 1
        meaning = VOCABULARY[place.word].meaning
        return f"{number} of {len(self.marked)}, {place.title}. {meaning} Here: {place.said}"


def term_walk(told: ToldRun, start: str = "crash window") -> TermWalk:
    """Let the reader press a word and see where in a run it is.

    Args:
        told: the run.
        start: the word whose mark is lit when it opens; also the picture of a page without a
            kernel.

    Raises:
        ValueError: the run has no such word in it.
    """
    return TermWalk(told, start)


def places_table(told: ToldRun) -> NumbersTable:
    """Return all marks of a run with what each is there: for those who can't press a word."""
    return numbers_table(
        [
            {"mark": number, "word": place.title, "in this run": place.said}
            for number, place in enumerate(places(told), 1)
        ]
    )
