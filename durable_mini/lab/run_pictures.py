"""Drawings of one run: its attempts in rows, its three memories side by side, the course's map.

Guarantees that state is never told by colour alone: live boxes are solid, replayed ones hatched and
say so, a crash is a cross at the exact place where it fell, an effect carries a diamond, a journal
write is a dark bar at the end of its box. Every drawing is measured in inches, so that text has the
same size however many steps a run has.

Knows nothing of engines: what is drawn is handed in as data (`watch` makes it from a real run).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from durable_mini.lab.pictures import (
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
    TITLE_PT,
    WAITING,
    Picture,
    bare_axes,
    blank_figure,
)
from durable_mini.lab.watch import Attempt, Box, BoxState
from durable_mini.lab.what_ifs import CARDS_H_IN, WHAT_IFS, draw_what_ifs

_SHEET_W_IN = 9.6
_LABEL_W_IN = 0.98  # the row's name at the left
_NARROW_PITCH_IN = 0.95  # below this a step's name doesn't fit across its box and is turned


@dataclass(frozen=True, slots=True)
class _Grid:
    """Where the boxes of a timeline stand, in inches."""

    pitch: float  # from one step to the next
    box_h: float
    row_h: float
    window_w: float  # between the work and its journal write: the crash window
    write_w: float  # the journal write, a bar after its box
    gap_w: float  # from one step's write to the next step
    turned: bool

    @classmethod
    def for_steps(cls, count: int) -> _Grid:
        pitch = min(1.3, (_SHEET_W_IN - _LABEL_W_IN - 0.2) / count)
        if pitch < _NARROW_PITCH_IN:
            return cls(pitch, 1.1, 1.5, 0.07, 0.06, 0.13, turned=True)
        return cls(pitch, 0.48, 0.88, 0.10, 0.075, 0.15, turned=False)

    @property
    def body_w(self) -> float:
        return self.pitch - self.window_w - self.write_w - self.gap_w


_KEY_TEXT: dict[str, Any] = {"fontsize": SMALL_PT, "color": SOFT_INK, "va": "center"}

_WHERE = {
    "before": "before the work",
    "window": "in the crash window",
    "after": "after the journal write",
}


def run_timeline(attempts: Sequence[Attempt], title: str = "") -> Picture:
    """Draw one row per attempt: what it replayed, what it executed, where it was crashed.

    Args:
        attempts: in order; `Watch.attempts` gives them for a run of the engine.
        title: a line above the drawing.

    Raises:
        ValueError: when there is no attempt, or a crash isn't at its attempt's last step.
    """
    _check_attempts(attempts)
    most = max(1, *(len(attempt.boxes) for attempt in attempts))
    grid = _Grid.for_steps(most)
    title_h = 0.45 if title else 0.14
    width = max(_LABEL_W_IN + most * grid.pitch + 0.2, 7.0)
    height = title_h + len(attempts) * grid.row_h + 0.38
    figure = blank_figure(width, height)
    sheet = bare_axes(figure, width, height)
    sheet.text(0.12, height - 0.28, title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    for number, attempt in enumerate(attempts, 1):
        base = height - title_h - number * grid.row_h + (grid.row_h - grid.box_h - 0.08)
        _draw_attempt(sheet, f"attempt {number}", attempt, base, grid)
    _draw_key(sheet, attempts, turned=grid.turned)
    return Picture(figure, _timeline_alt(attempts))


def _check_attempts(attempts: Sequence[Attempt]) -> None:
    if not attempts:
        raise ValueError("a run without an attempt has no timeline")
    for number, attempt in enumerate(attempts, 1):
        if attempt.crash is None:
            continue
        name, position = attempt.crash
        if not attempt.boxes or attempt.boxes[-1].name != name or position not in _WHERE:
            raise ValueError(
                f"attempt {number} crashed at {name!r}, {position!r}: the crash must be before, "
                "in the window of, or after the attempt's last step"
            )


def _draw_attempt(sheet: Axes, label: str, attempt: Attempt, base: float, grid: _Grid) -> None:
    middle = base + grid.box_h / 2
    sheet.text(0.12, middle, label, fontsize=TEXT_PT, fontweight="bold", color=INK, va="center")
    for place, box in enumerate(attempt.boxes):
        left = _LABEL_W_IN + place * grid.pitch
        last = place == len(attempt.boxes) - 1
        crashed = attempt.crash[1] if attempt.crash and last else ""
        _draw_call(sheet, box, (left, base), grid, crashed)


def _draw_call(
    sheet: Axes, box: Box, corner: tuple[float, float], grid: _Grid, crashed: str
) -> None:
    """Draw one durable call: its work, its journal write, its mark as an effect, its crash."""
    left, base = corner
    begun = crashed != "before"
    _draw_work(sheet, box, corner, grid, begun=begun)
    write = left + grid.body_w + grid.window_w
    if box.state != "replayed" and begun:
        spot = (write, base + 0.03, grid.write_w, grid.box_h - 0.06)
        _draw_write(sheet, spot, written=crashed != "window")
    if box.kind == "effect" and begun and box.state != "failed":
        _draw_diamond(sheet, left + 0.09, base + grid.box_h, out=box.state == "live")
    if crashed:
        cross = {
            "before": left - 0.02,
            "window": left + grid.body_w + grid.window_w / 2,
            "after": write + grid.write_w + 0.09,
        }[crashed]
        _draw_cross(sheet, cross, base + grid.box_h / 2)
        _say_where(sheet, cross, base - 0.07, f"dies {_WHERE[crashed]}")


def _draw_work(
    sheet: Axes, box: Box, corner: tuple[float, float], grid: _Grid, *, begun: bool
) -> None:
    left, base = corner
    face, edge, hatch = {
        "live": (LIVE_TINT, LIVE, ""),
        "replayed": (PAPER, REPLAYED, "/////"),
        "failed": (FAILURE_TINT, FAILURE, "xxx"),
    }[box.state]
    if not begun:
        face, edge = PAPER, WAITING
    sheet.add_patch(
        FancyBboxPatch(
            (left, base),
            grid.body_w,
            grid.box_h,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=face,
            edgecolor=edge,
            hatch=hatch,
            hatch_linewidth=0.6,
            linewidth=1.5,
            linestyle="-" if begun else (0, (3, 2)),
        )
    )
    state = box.state if begun else "not begun"
    sheet.text(
        left + grid.body_w / 2,
        base + grid.box_h / 2,
        box.name if grid.turned else f"{box.name}\n{state}",
        fontsize=SMALL_PT,
        color=INK if begun else SOFT_INK,
        ha="center",
        va="center",
        rotation=90 if grid.turned else 0,
        linespacing=1.15,
        bbox={"boxstyle": "round,pad=0.12", "facecolor": face, "linewidth": 0},
    )


def _draw_write(sheet: Axes, spot: tuple[float, float, float, float], *, written: bool) -> None:
    """Draw the journal write after a box: a dark bar, or the outline of the one that's missing."""
    left, base, width, height = spot
    sheet.add_patch(
        Rectangle(
            (left, base),
            width,
            height,
            facecolor=INK if written else PAPER,
            edgecolor=INK if written else FAILURE,
            linestyle="-" if written else (0, (1.5, 1.2)),
            linewidth=1.0,
        )
    )


def _draw_diamond(sheet: Axes, x: float, y: float, *, out: bool) -> None:
    """Draw an effect's mark: filled when it went out into the world, hollow when it didn't."""
    _draw_mark(sheet, "D", x, y, size=8, face=INK if out else PAPER, edge=INK)


def _draw_cross(sheet: Axes, x: float, y: float) -> None:
    _draw_mark(sheet, "X", x, y, size=15, face=FAILURE, edge=PAPER)


def _draw_mark(
    sheet: Axes, marker: str, x: float, y: float, *, size: float, face: str, edge: str
) -> None:
    sheet.plot(
        [x],
        [y],
        marker=marker,
        markersize=size,
        markerfacecolor=face,
        markeredgecolor=edge,
        markeredgewidth=1.2,
        linestyle="none",
        zorder=5,
    )


def _say_where(sheet: Axes, x: float, top: float, text: str) -> None:
    """Write under a cross, moved inwards where the sheet ends."""
    width = sheet.get_xlim()[1]
    x = min(max(x, _LABEL_W_IN + 0.75), width - 1.0)
    sheet.text(x, top, text, fontsize=SMALL_PT, color=FAILURE_INK, ha="center", va="top")


def _draw_key(sheet: Axes, attempts: Sequence[Attempt], *, turned: bool) -> None:
    """Say under the rows what the marks mean, as far as they occur."""
    effects = {box.state for attempt in attempts for box in attempt.boxes if box.kind == "effect"}
    _draw_write(sheet, (0.16, 0.11, 0.06, 0.2), written=True)
    sheet.text(0.32, 0.2, "journal write", **_KEY_TEXT)
    x = 1.55
    if "live" in effects:
        _draw_diamond(sheet, x, 0.2, out=True)
        sheet.text(x + 0.16, 0.2, "effect: it changes the outside world", **_KEY_TEXT)
        x += 2.85
    if "replayed" in effects:
        _draw_diamond(sheet, x, 0.2, out=False)
        sheet.text(x + 0.16, 0.2, "effect, replayed: nothing goes out", **_KEY_TEXT)
        x += 2.75
    if turned:  # boxes this narrow don't say it themselves
        sheet.text(x, 0.2, "solid: live, hatched: replayed", **_KEY_TEXT)


def _timeline_alt(attempts: Sequence[Attempt]) -> str:
    rows = " ".join(
        f"Attempt {number} {_told(attempt)}." for number, attempt in enumerate(attempts, 1)
    )
    executed = Counter(name for attempt in attempts for name in _executed(attempt))
    repeated = [f"{name} ({count} times)" for name, count in executed.items() if count > 1]
    again = ", ".join(repeated)
    return f"{rows} " + (f"Executed again: {again}." if again else "Nothing was executed twice.")


def _told(attempt: Attempt) -> str:
    replayed = [box.name for box in attempt.boxes if box.state == "replayed"]
    failed = [box.name for box in attempt.boxes if box.state == "failed"]
    parts = [
        f"{verb} {', '.join(names)}"
        for verb, names in (
            ("replayed", replayed),
            ("executed", _executed(attempt)),
            ("saw the failure of", failed),
        )
        if names
    ]
    if attempt.crash:
        name, position = attempt.crash
        parts.append(f"died at {name}, {_WHERE[position]}")
    return "; ".join(parts) or "did nothing"


def _executed(attempt: Attempt) -> list[str]:
    """Return the names of the steps whose work was done live in this attempt."""
    live = [box.name for box in attempt.boxes if box.state == "live"]
    return live[:-1] if attempt.crash and attempt.crash[1] == "before" else live


# ---- three views -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moment:
    """What three places know at one moment of a run; each row is one short line of text.

    Args:
        title: which moment it is.
        journal: the recorded events.
        memory: what the worker's process holds; None once the process is dead.
        ledger: what the outside world has recorded.
        duplicates: the indices of the ledger rows that should not be there.
    """

    title: str
    journal: tuple[str, ...]
    memory: tuple[str, ...] | None
    ledger: tuple[str, ...]
    duplicates: frozenset[int] = frozenset()


_LINE_H_IN = 0.27
_COLUMN_W_IN = 3.15
_LONGEST_LINE = 33


def three_views(moment: Moment, *, lines: int = 7) -> Picture:
    """Draw journal, worker memory and outside ledger side by side, duplicates marked.

    Args:
        moment: what to draw.
        lines: for how many rows there is room; give the same number for every moment of a series,
            so that the picture doesn't jump. More rows than that make it taller.
    """
    longest = max(len(moment.journal), len(moment.memory or ()), len(moment.ledger), lines)
    width, height = 9.6, 1.2 + longest * _LINE_H_IN
    figure = blank_figure(width, height)
    sheet = bare_axes(figure, width, height)
    sheet.text(0.12, height - 0.28, moment.title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    columns = (
        _Column("journal", "survives the crash", moment.journal, REPLAYED),
        _Column("worker memory", "dies with the process", moment.memory, LIVE),
        _Column("outside ledger", "not ours", moment.ledger, INK),
    )
    for place, column in enumerate(columns):
        _draw_column(sheet, column, _COLUMN_W_IN * place, height - 0.42)
    _mark_duplicates(sheet, 2 * _COLUMN_W_IN, height - 0.42, moment.duplicates)
    return Picture(figure, _moment_alt(moment))


@dataclass(frozen=True, slots=True)
class _Column:
    """One of the three places: its name, what becomes of it in a crash, its rows, its colour."""

    name: str
    fate: str
    rows: tuple[str, ...] | None
    colour: str


def _draw_column(sheet: Axes, column: _Column, start: float, top: float) -> None:
    left, right, base = start + 0.12, start + _COLUMN_W_IN, 0.1
    _draw_frame(sheet, column, (left, base, right - left, top - base))
    heading: dict[str, Any] = {"va": "center", "color": INK}
    sheet.text(left + 0.12, top - 0.2, column.name, fontsize=TEXT_PT, fontweight="bold", **heading)
    heading |= {"ha": "right", "color": SOFT_INK}
    sheet.text(right - 0.1, top - 0.2, column.fate, fontsize=SMALL_PT, **heading)
    if column.rows is None:
        _say_dead(sheet, (left + right) / 2, (base + top - 0.4) / 2)
        return
    for number, row in enumerate(column.rows or ("(nothing)",)):
        sheet.text(
            left + 0.12,
            _line_y(top, number),
            row if len(row) <= _LONGEST_LINE else row[: _LONGEST_LINE - 1] + "…",
            fontsize=SMALL_PT,
            family="monospace",
            color=INK if column.rows else SOFT_INK,
            va="center",
        )


def _draw_frame(sheet: Axes, column: _Column, spot: tuple[float, float, float, float]) -> None:
    left, base, width, height = spot
    dead = column.rows is None
    sheet.add_patch(
        FancyBboxPatch(
            (left, base),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.07",
            facecolor=PAPER,
            edgecolor=WAITING if dead else column.colour,
            linewidth=1.5,
            linestyle=(0, (3, 2)) if dead else "-",
            zorder=0,
        )
    )
    rule = base + height - 0.4
    sheet.plot([left + 0.02, left + width - 0.02], [rule, rule], color=FAINT, linewidth=1.2)


def _say_dead(sheet: Axes, x: float, y: float) -> None:
    _draw_cross(sheet, x, y + 0.12)
    sheet.text(
        x, y - 0.18, "the process is dead", fontsize=SMALL_PT, color=FAILURE_INK, ha="center"
    )


def _line_y(top: float, number: int) -> float:
    """Return the height of a row's middle, below a heading that ends 0.4 inches under `top`."""
    return top - 0.4 - (number + 0.6) * _LINE_H_IN


def _mark_duplicates(sheet: Axes, start: float, top: float, numbers: Iterable[int]) -> None:
    right = start + _COLUMN_W_IN
    for number in numbers:
        middle = _line_y(top, number)
        sheet.add_patch(
            Rectangle(
                (start + 0.17, middle - 0.125),
                right - start - 0.22,
                0.25,
                facecolor=FAILURE_TINT,
                edgecolor=FAILURE,
                linewidth=1.2,
                zorder=0.5,
            )
        )
        sheet.text(
            right - 0.1,
            middle,
            "duplicate",
            fontsize=SMALL_PT,
            fontweight="bold",
            color=FAILURE_INK,
            ha="right",
            va="center",
        )


def _moment_alt(moment: Moment) -> str:
    known = f"{len(moment.journal)} in the journal, {len(moment.ledger)} in the outside ledger"
    memory = (
        "the worker's process is dead"
        if moment.memory is None
        else f"the worker's memory holds {_joined(moment.memory)}"
    )
    doubles = [" ".join(moment.ledger[number].split()) for number in sorted(moment.duplicates)]
    verdict = f"Duplicate: {'; '.join(doubles)}." if doubles else "No duplicate."
    return f"{moment.title}. Rows: {known}; {memory}. {verdict}"


def _joined(rows: Sequence[str]) -> str:
    return ", ".join(" ".join(row.split()) for row in rows) or "nothing"


# ---- the course map ----------------------------------------------------------------------------

_MAP_W_IN, _MAP_H_IN = 9.6, 3.75
_FIRST_IN, _PITCH_IN, _CELL_W_IN, _CELL_H_IN = 1.3, 1.17, 0.98, 0.44
_WORKER_1_IN, _JOURNAL_IN, _WORKER_2_IN = 3.1, 1.92, 0.74
_MAP_STEPS = (
    ("plan", "step"),
    ("research", "step"),
    ("draft", "step"),
    ("charge", "effect"),
    ("compose", "step"),
    ("send_email", "effect"),
    ("update_crm", "effect"),
)
_MAP_RECORDED = 3  # how many steps the first worker got journalled

_PLACES = {
    "words": (0.12, 0.4),
    "kill": (5.98, 3.32),
    "window": (7.82, 2.73),
    "replay": (1.4, 0.4),
    "path": (2.5, 0.4),
    "results": (5.98, 0.4),
    "others": (7.55, 0.4),
}
"""Where beside the run a chapter's name can stand, in inches, left and middle."""


def course_map(chapters: Mapping[str, str]) -> Picture:
    """Draw a run whose worker is killed and that another worker finishes, with chapters beside it.

    Args:
        chapters: chapter titles by the place that they are about. Beside the run: "words" (what
            all of it is called), "kill" (the worker that dies), "window" (the charge that no
            journal knows of), "replay" (what the second worker need not do again), "path" (that it
            comes to the same steps), "results" (what it all costs), "others" (whose engine does
            all that). Below it, a card each: the names of `WHAT_IFS`. A place may be left out.

    Raises:
        ValueError: for a place that the map hasn't got.
    """
    known = {**_PLACES, **WHAT_IFS}
    unknown = sorted(set(chapters) - set(known))
    if unknown:
        raise ValueError(f"the map has no place {unknown[0]!r}, only {', '.join(known)}")
    cards = [place for place in WHAT_IFS if place in chapters]
    below = CARDS_H_IN if cards else 0.0
    figure = blank_figure(_MAP_W_IN, _MAP_H_IN + below)
    sheet = bare_axes(figure, _MAP_W_IN, _MAP_H_IN + below)
    sheet.set_ylim(-below, _MAP_H_IN)  # the run keeps its measures, the cards stand under it
    _draw_lanes(sheet)
    for place, (name, kind) in enumerate(_MAP_STEPS):
        _draw_first_worker(sheet, place, name, kind)
        _draw_record(sheet, place, name)
        _draw_second_worker(sheet, place, name, kind)
    for spot in _PLACES.keys() & chapters.keys():
        _draw_tag(sheet, _PLACES[spot], chapters[spot])
    if cards:
        draw_what_ifs(sheet, -below, chapters)
    return Picture(figure, _map_alt(chapters, cards))


def _map_alt(chapters: Mapping[str, str], cards: Sequence[str]) -> str:
    asked = [f"{WHAT_IFS[place][0]} {chapters[place]}".replace("\n", " ") for place in cards]
    asked = [text.replace("?", ":") for text in asked]
    return f"{_MAP_ALT} And what if {'; '.join(asked)}." if asked else _MAP_ALT


_MAP_ALT = (
    "A run of seven steps on two workers. Worker 1 executes plan, research, draft and charge and "
    "writes the first three into the journal; it is killed before it can record the charge. Worker "
    "2 replays those three from the journal, executes charge again with the same idempotency key, "
    "and finishes the run."
)


def _draw_lanes(sheet: Axes) -> None:
    for label, note, base in (
        ("worker 1", "killed", _WORKER_1_IN),
        ("journal", "on disk", _JOURNAL_IN),
        ("worker 2", "finishes", _WORKER_2_IN),
    ):
        middle = base + _CELL_H_IN / 2
        sheet.text(
            0.12, middle + 0.09, label, fontsize=TITLE_PT, fontweight="bold", color=INK, va="center"
        )
        sheet.text(0.12, middle - 0.13, note, fontsize=SMALL_PT, color=SOFT_INK, va="center")
    sheet.add_patch(
        FancyBboxPatch(
            (_FIRST_IN - 0.12, _JOURNAL_IN - 0.1),
            6 * _PITCH_IN + _CELL_W_IN + 0.24,
            _CELL_H_IN + 0.2,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=FAINT,
            edgecolor="none",
        )
    )


def _draw_first_worker(sheet: Axes, place: int, name: str, kind: str) -> None:
    if place > _MAP_RECORDED:
        return
    left, middle = _map_x(place)
    _draw_cell(sheet, left, _WORKER_1_IN, name, "live")
    if kind == "effect":
        _draw_diamond(sheet, left + 0.1, _WORKER_1_IN + _CELL_H_IN, out=True)
    if place < _MAP_RECORDED:
        _draw_arrow(sheet, (middle, _WORKER_1_IN), (middle, _JOURNAL_IN + _CELL_H_IN), INK, "-")
        return
    _draw_arrow(sheet, (middle, _WORKER_1_IN), (middle, _JOURNAL_IN + _CELL_H_IN), FAILURE, "--")
    _draw_cross(sheet, middle, (_WORKER_1_IN + _JOURNAL_IN + _CELL_H_IN) / 2)
    sheet.text(
        middle + 0.2,
        (_WORKER_1_IN + _JOURNAL_IN + _CELL_H_IN) / 2,
        "charged, but not recorded",
        fontsize=SMALL_PT,
        color=FAILURE_INK,
        va="center",
    )


def _draw_record(sheet: Axes, place: int, name: str) -> None:
    left, middle = _map_x(place)
    sheet.add_patch(
        Rectangle(
            (left, _JOURNAL_IN), _CELL_W_IN, _CELL_H_IN, facecolor=PAPER, edgecolor=INK, linewidth=1
        )
    )
    by = "worker 1" if place < _MAP_RECORDED else "worker 2"
    sheet.text(
        middle,
        _JOURNAL_IN + _CELL_H_IN / 2,
        f"{name}\nby {by}",
        fontsize=SMALL_PT,
        color=INK,
        ha="center",
        va="center",
        linespacing=1.1,
    )


def _draw_second_worker(sheet: Axes, place: int, name: str, kind: str) -> None:
    left, middle = _map_x(place)
    replayed = place < _MAP_RECORDED
    _draw_cell(sheet, left, _WORKER_2_IN, name, "replayed" if replayed else "live")
    record, box = (middle, _JOURNAL_IN), (middle, _WORKER_2_IN + _CELL_H_IN)
    if replayed:
        _draw_arrow(sheet, record, box, REPLAYED, "-")
    else:
        _draw_arrow(sheet, box, record, INK, "-")
    if kind == "effect":
        _draw_diamond(sheet, left + 0.1, _WORKER_2_IN + _CELL_H_IN, out=True)
    if place == _MAP_RECORDED:
        words = "same key:\ncharged once"
        sheet.text(
            middle, _WORKER_2_IN - 0.08, words, fontsize=SMALL_PT, color=INK, ha="center", va="top"
        )


def _map_x(place: int) -> tuple[float, float]:
    """Return the left edge and the middle of the column of a step."""
    left = _FIRST_IN + place * _PITCH_IN
    return left, left + _CELL_W_IN / 2


def _draw_cell(sheet: Axes, left: float, base: float, name: str, state: BoxState) -> None:
    grid = _Grid(_CELL_W_IN, _CELL_H_IN, 0.0, 0.0, 0.0, 0.0, turned=False)
    _draw_work(sheet, Box(name, state), (left, base), grid, begun=True)


def _draw_arrow(
    sheet: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, line: str
) -> None:
    sheet.annotate(
        "",
        end,
        xytext=start,
        arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.4, "linestyle": line},
    )


def _draw_tag(sheet: Axes, at: tuple[float, float], title: str) -> None:
    sheet.text(
        at[0] + 0.08,
        at[1],
        title,
        fontsize=TEXT_PT,
        color=PAPER,
        va="center",
        bbox={"boxstyle": "round,pad=0.35,rounding_size=0.3", "facecolor": INK, "linewidth": 0},
    )
