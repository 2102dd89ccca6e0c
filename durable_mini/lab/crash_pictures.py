"""Drawings of the crash lab: every place for a crash, every pair, every byte of a journal.

Guarantees what the other figures do: an alt text that states the finding in numbers taken from the
data that was drawn, and no state that is told by colour alone. What went right is pale, what was
done again is hatched or darker, what went wrong is dark and has a cross, in grey too.

Knows nothing of engines: it draws an `Exploration` or a `Sweep`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import FancyBboxPatch, Rectangle
from numpy.typing import NDArray

from durable_mini.events import Position
from durable_mini.lab.exploring import AGAIN, RIGHT, WRONG, Exploration, Place
from durable_mini.lab.pictures import (
    FAILURE,
    FAILURE_INK,
    FAINT,
    INK,
    LIVE,
    LIVE_TINT,
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
)
from durable_mini.lab.sweep_report import Sweep, Verdict

_SHEET_W_IN = 9.6
_MIDDLE_BLUE = "#86B9DD"  # between the tint and the colour of what is replayed, in grey as well
_WORDS = {
    RIGHT: "ends as without a crash",
    AGAIN: "so too, after work was done again",
    WRONG: "goes wrong",
}
_NONE = ""
_SLANT_DEG = 55

_SOFT_TEXT: dict[str, Any] = {"fontsize": SMALL_PT, "color": SOFT_INK}

States: TypeAlias = NDArray[np.int_]
Style: TypeAlias = dict[str, Any]

# ---- one crash ---------------------------------------------------------------------------------

_GRID_LABEL_W_IN, _GRID_CELL_H_IN, _GRID_TOP_IN = 1.78, 0.4, 0.5
_POSITION_WORDS = {
    Position.BEFORE: "before the work",
    Position.WINDOW: "in the window",
    Position.AFTER: "after the write",
}


def crash_grid(found: Exploration) -> Picture:
    """Draw what came of one crash at each place: a column a call, a row a position.

    Args:
        found: an exploration of any depth; of longer schedules nothing is drawn.

    Raises:
        ValueError: no schedule has a crash, as when the crash-free run failed.
    """
    groups = _crash_rows(found)
    calls = list(dict.fromkeys(call for cells in groups.values() for call, _ in cells))
    if not calls:
        raise ValueError("nothing was crashed. Next: see .failures of the exploration")
    room = _SHEET_W_IN - _GRID_LABEL_W_IN - max(_name_overhang(calls) - 0.1, 0.15)
    pitch = min(1.0, room / len(calls))
    name_h = _name_height(calls)
    rows = [(how, position) for how in groups for position in Position]
    height = _GRID_TOP_IN + name_h + len(rows) * _GRID_CELL_H_IN + 0.62
    figure = blank_figure(_SHEET_W_IN, height)
    sheet = bare_axes(figure, _SHEET_W_IN, height)
    title = _grid_title(found)
    sheet.text(0.12, height - 0.28, title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    top = height - _GRID_TOP_IN - name_h
    for place, call in enumerate(calls):
        _write_call(sheet, _GRID_LABEL_W_IN + (place + 0.5) * pitch, top + 0.06, call)
    for number, (how, position) in enumerate(rows):
        base = top - (number + 1) * _GRID_CELL_H_IN
        word = f"{how} {_POSITION_WORDS[position]}"
        middle = base + _GRID_CELL_H_IN / 2
        sheet.text(0.12, middle, word, **_SOFT_TEXT, va="center")
        for place, call in enumerate(calls):
            spot = (_GRID_LABEL_W_IN + place * pitch, base, pitch, _GRID_CELL_H_IN)
            _draw_cell(sheet, spot, groups[how].get((call, position), _NONE))
    _draw_grid_key(sheet, {verdict for cells in groups.values() for verdict in cells.values()})
    return Picture(figure, _grid_alt(found))


def _crash_rows(found: Exploration) -> dict[str, dict[tuple[str, Position], str]]:
    """The verdicts of single faults, for processes that die and for those that stall."""
    groups: dict[str, dict[tuple[str, Position], str]] = {}
    for outcome in found.outcomes:
        if len(outcome.schedule) == 1:
            place, stalls = outcome.schedule[0]
            cells = groups.setdefault("hangs" if stalls else "dies", {})
            cells[place.call, place.position] = outcome.verdict
    return groups


def _grid_title(found: Exploration) -> str:
    number = sum(len(outcome.schedule) == 1 for outcome in found.outcomes)
    hangs = any(fault.stalls for outcome in found.outcomes for fault in outcome.schedule)
    what = "one crash or one stall" if hangs else "one crash"
    return f"{found.workflow}: {what}, {number:,} schedules"


def _name_height(names: Sequence[str]) -> float:
    """How much room slanted names take above what they name."""
    return 0.067 * max(map(len, names)) + 0.14


def _name_overhang(names: Sequence[str]) -> float:
    """How far the last of them reach beyond its right end, at the usual distances."""
    return max(0.047 * len(name) - 0.3 * back for back, name in enumerate(reversed(names)))


def _write_call(sheet: Axes, x: float, y: float, call: str) -> None:
    """Write a name upwards at a slant."""
    slant: Style = {"rotation": _SLANT_DEG, "rotation_mode": "anchor", "ha": "left", "va": "bottom"}
    sheet.text(x - 0.06, y, call, **_call_style(call), **slant)


def _call_style(call: str) -> Style:
    """A run's own writes are set apart from durable calls."""
    own = call.startswith("run:")
    colour = SOFT_INK if own else INK
    return {"fontsize": SMALL_PT, "color": colour, "style": "italic" if own else "normal"}


def _draw_cell(sheet: Axes, spot: tuple[float, float, float, float], verdict: str) -> None:
    """Draw one outcome: pale and a tick, hatched and a round arrow, dark and a cross."""
    left, base, width, height = spot
    middle = left + width / 2, base + height / 2
    if verdict == _NONE:
        sheet.plot(*middle, marker="_", markersize=5, color=FAINT)
        return
    face, edge, hatch, sign, ink = {
        RIGHT: (LIVE_TINT, LIVE, "", "✓", INK),
        AGAIN: (REPLAYED_TINT, REPLAYED, "////", "↻", INK),
        WRONG: (FAILURE, FAILURE_INK, "", "✗", PAPER),
    }[verdict]
    inset = min(0.03, width / 12)
    sheet.add_patch(
        FancyBboxPatch(
            (left + inset, base + 0.03),
            width - 2 * inset,
            height - 0.06,
            boxstyle="round,pad=0,rounding_size=0.05",
            facecolor=face,
            edgecolor=edge,
            hatch=hatch,
            hatch_linewidth=0.5,
            linewidth=1.1,
        )
    )
    box = {"boxstyle": "circle,pad=0.05", "facecolor": face, "linewidth": 0}
    style: Style = {"fontsize": TITLE_PT, "fontweight": "bold", "color": ink, "bbox": box}
    sheet.text(*middle, sign, ha="center", va="center", **style)


def _draw_grid_key(sheet: Axes, verdicts: set[str]) -> None:
    x = 0.12
    for verdict, words in _WORDS.items():
        if verdict in verdicts:
            _draw_cell(sheet, (x, 0.12, 0.42, 0.34), verdict)
            sheet.text(x + 0.5, 0.29, words, **_SOFT_TEXT, va="center")
            x += 0.85 + 0.075 * len(words)


def _grid_alt(found: Exploration) -> str:
    single = [outcome for outcome in found.outcomes if len(outcome.schedule) == 1]
    count = Counter(outcome.verdict for outcome in single)
    wrong = [outcome for outcome in single if not outcome.ok]
    again = list(dict.fromkeys(call for one in single for call in one.again if one.ok))
    said = [f"{found.workflow} with one crash at each of {len(single):,} places."]
    said += [f"{count[RIGHT] + count[AGAIN]:,} end as without a crash."]
    if again:
        said += [f"In {count[AGAIN]:,} of these work is done again: {', '.join(again)}."]
    said += [f"{len(wrong):,} go wrong, the first {wrong[0]}." if wrong else "None goes wrong."]
    return " ".join(said)


# ---- two crashes -------------------------------------------------------------------------------

_ALONE = "one crash only"
_MOST_PLACES = 66  # more of them are drawn a call at a time
_STATES = (_NONE, RIGHT, AGAIN, WRONG)
_PAIR_COLOURS = (PAPER, LIVE_TINT, _MIDDLE_BLUE, FAILURE)
_PAIR_LEFT_IN, _WIDEST_CELL_IN, _ASIDE_CELLS = 1.75, 0.2, 3  # the first of these is one crash only


def pair_grid(found: Exploration) -> Picture:
    """Draw what came of two crashes: the first one's place downwards, the second one's across.

    The column at the left has the first crash alone. A second crash at a place that the crash-free
    run doesn't come to is left out, which the picture says.

    Args:
        found: an exploration of depth 2.

    Raises:
        ValueError: it has no schedules of two crashes.
    """
    by_places = found.by_schedule
    places = [spot[0] for spot in by_places if len(spot) == 1]
    firsts = {place: number for number, place in enumerate(places)}
    if not any(len(spot) == 2 for spot in by_places):
        raise ValueError("no schedule has two crashes. Next: explore(…, depth=2)")
    states = np.zeros((len(places), len(places)), dtype=int)
    left_out = 0
    for row, column, verdict in _pairs(found, places, firsts):
        left_out += column < 0
        if column >= 0:
            states[row, column] = max(states[row, column], _STATES.index(verdict))
    alone = np.array([[_STATES.index(by_places[place,].verdict)] for place in places])
    return _draw_pairs(found, places, states, alone, left_out)


def _pairs(
    found: Exploration, places: list[Place], firsts: Mapping[Place, int]
) -> list[tuple[int, int, str]]:
    """Row, column and verdict of each pair; column -1 where the second place has none.

    A process counts its calls anew, so a second place is found from the end: what a recovery comes
    to is the end of what the crash-free run came to, and a claim before it.
    """
    seconds: dict[Place, list[tuple[Place, str]]] = {}
    for spot, outcome in found.by_schedule.items():
        if len(spot) == 2:
            seconds.setdefault(spot[0], []).append((spot[1], outcome.verdict))
    wanted = [(place.plain_call, place.position) for place in places]
    pairs = []
    for first, later in seconds.items():
        bound = len(places)
        for second, verdict in reversed(later):
            same = (second.plain_call, second.position)
            column = next((at for at in range(bound - 1, -1, -1) if wanted[at] == same), -1)
            bound = column if column >= 0 else bound
            pairs.append((firsts[first], column, verdict))
    return pairs


def _draw_pairs(
    found: Exploration, places: list[Place], states: States, alone: States, left_out: int
) -> Picture:
    calls = [place.call for place in places]
    if len(places) > _MOST_PLACES:
        states, alone, calls = _by_call(states, alone, calls)
    count, name_h = len(calls), _name_height([*calls, _ALONE])
    right = _name_overhang(calls) + 0.1
    cell = min(_WIDEST_CELL_IN, (_SHEET_W_IN - _PAIR_LEFT_IN - right) / (count + _ASIDE_CELLS))
    width = max(_PAIR_LEFT_IN + (count + _ASIDE_CELLS) * cell + right, 8.6)
    height = 0.5 + name_h + count * cell + 0.78
    figure = blank_figure(width, height)
    sheet = bare_axes(figure, width, height)
    top = height - 0.5 - name_h
    title = f"{found.workflow}: {_pair_count(found):,} pairs of crashes"
    sheet.text(0.12, height - 0.28, title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    _draw_states(sheet, alone, (_PAIR_LEFT_IN, top), cell)
    _draw_states(sheet, states, (_PAIR_LEFT_IN + _ASIDE_CELLS * cell, top), cell)
    _write_call(sheet, _PAIR_LEFT_IN + cell / 2, top + 0.06, _ALONE)
    for middle, call in _call_middles(calls):
        x, y = _PAIR_LEFT_IN + (_ASIDE_CELLS + middle) * cell, top - middle * cell
        _write_call(sheet, x, top + 0.06, call)
        style = {**_call_style(call), "ha": "right", "va": "center"}
        sheet.text(_PAIR_LEFT_IN - 0.08, y, call, **style)
    _draw_call_lines(sheet, calls, cell, top)
    _draw_pair_key(sheet, states, left_out, by_call=count < len(places))
    return Picture(figure, _pairs_alt(found, left_out))


def _by_call(states: States, alone: States, calls: list[str]) -> tuple[States, States, list[str]]:
    """The same with one row and column a call: the worst of its positions."""
    starts = [at for at, call in enumerate(calls) if at == 0 or calls[at - 1] != call]
    states = np.maximum.reduceat(np.maximum.reduceat(states, starts, axis=0), starts, axis=1)
    return states, np.maximum.reduceat(alone, starts, axis=0), [calls[at] for at in starts]


def _draw_states(sheet: Axes, states: States, corner: tuple[float, float], cell: float) -> None:
    """Draw a block of cells from its upper left corner; what went wrong has a cross."""
    left, top = corner
    rows, columns = states.shape
    sheet.imshow(
        states,
        cmap=ListedColormap(_PAIR_COLOURS),
        norm=BoundaryNorm(range(len(_STATES) + 1), len(_STATES)),
        extent=(left, left + columns * cell, top - rows * cell, top),
        interpolation="nearest",
        aspect="auto",
    )
    for state, marker, colour in ((3, "x", PAPER), (2, ".", INK)):
        ys, xs = np.nonzero(states == state)
        sheet.plot(
            left + (xs + 0.5) * cell,
            top - (ys + 0.5) * cell,
            marker=marker,
            markersize=cell * 72 * (0.42 if marker == "x" else 0.22),
            markeredgewidth=1.2 if marker == "x" else 0,
            color=colour,
            linestyle="none",
        )


def _call_middles(calls: Sequence[str]) -> list[tuple[float, str]]:
    """Where the name of each call stands, in cells: at the middle of its positions."""
    places: dict[str, list[int]] = {}
    for place, call in enumerate(calls):
        places.setdefault(call, []).append(place)
    return [((of[0] + of[-1] + 1) / 2, call) for call, of in places.items()]


def _draw_call_lines(sheet: Axes, calls: Sequence[str], cell: float, top: float) -> None:
    """Draw thin lines between calls, and a frame."""
    left, count = _PAIR_LEFT_IN + _ASIDE_CELLS * cell, len(calls)
    bounds = [at for at in range(count + 1) if at in (0, count) or calls[at] != calls[at - 1]]
    for at in bounds:
        line: Style = {
            "color": WAITING if at in (0, count) else FAINT,
            "linewidth": 0.8,
            "zorder": 3,
        }
        sheet.plot([left + at * cell] * 2, [top - count * cell, top], **line)
        sheet.plot([left, left + count * cell], [top - at * cell] * 2, **line)
        sheet.plot([_PAIR_LEFT_IN, _PAIR_LEFT_IN + cell], [top - at * cell] * 2, **line)


def _draw_pair_key(sheet: Axes, states: States, left_out: int, *, by_call: bool) -> None:
    words = "rows: the first crash; columns: the second; of each call "
    words += "the worst place" if by_call else "before, in the window, after"
    if left_out:
        words += f" ({left_out:,} not drawn)"
    sheet.text(0.12, 0.56, words, **_SOFT_TEXT)
    x = 0.12
    for state, words in enumerate(("never comes there", *_WORDS.values())):
        if state == 0 or (states == state).any():
            _draw_states(sheet, np.array([[state]]), (x, 0.36), 0.22)
            _draw_frame(sheet, (x, x + 0.22, 0.14, 0.36))
            sheet.text(x + 0.3, 0.25, words, **_SOFT_TEXT, va="center")
            x += 0.6 + 0.073 * len(words)


def _pair_count(found: Exploration) -> int:
    return sum(len(spot) == 2 for spot in found.by_schedule)


def _pairs_alt(found: Exploration, left_out: int) -> str:
    pairs = [outcome for spot, outcome in found.by_schedule.items() if len(spot) == 2]
    wrong = [outcome for outcome in pairs if not outcome.ok]
    said = [f"{found.workflow} with two crashes, {len(pairs):,} pairs of places."]
    said += [f"{len(pairs) - len(wrong):,} end as without a crash."]
    said += [f"{len(wrong):,} go wrong, the first {wrong[0]}." if wrong else "None goes wrong."]
    if left_out:
        said += [f"{left_out:,} of them are not drawn."]
    return " ".join(said)


# ---- every byte --------------------------------------------------------------------------------

_VERDICTS = (Verdict.UNTRIED, Verdict.WHOLE, Verdict.TORN, Verdict.REFUSED, Verdict.WRONG)
_BYTE_COLOURS = (FAINT, LIVE_TINT, _MIDDLE_BLUE, REPLAYED, FAILURE)
_BYTE_WORDS = {
    Verdict.WHOLE: "tells all that is there",
    Verdict.TORN: "sets a torn last line aside",
    Verdict.REFUSED: "refuses, and says so",
    Verdict.WRONG: "wrong",
    Verdict.UNTRIED: "not tried",
}
_MOST_LINES, _MOST_ROWS = 40, 96
_ROW_BYTES = (64, 128, 256, 512, 1_024, 4_096, 16_384, 2**20)
_MOST_CROSSES = 300
_LINE_H_IN, _LINE_LABEL_W_IN = 0.32, 2.05


def byte_map(found: Sweep) -> Picture:
    """Draw every byte of a journal in the colour of what came of damaging it there.

    A file journal is drawn line by line: above what came of a cut, below of a flip. A database, or
    a long file, is drawn in rows of equally many bytes, cuts at the left and flips at the right;
    where not every byte was tried, a cell is as many bytes as it takes, in the worst one's colour.

    Args:
        found: what `sweep_journal` found.
    """
    by_line = 0 < len(found.lines) <= _MOST_LINES and Verdict.UNTRIED not in found.flips
    return _line_map(found) if by_line else _page_map(found)


def _line_map(found: Sweep) -> Picture:
    starts = [start for start, _ in found.lines]
    ends = [*starts[1:], found.size]
    longest = max(end - start for start, end in zip(starts, ends, strict=True))
    byte_w = (_SHEET_W_IN - _LINE_LABEL_W_IN - 0.75) / longest
    height = 0.78 + len(starts) * _LINE_H_IN + 0.5
    figure = blank_figure(_SHEET_W_IN, height)
    sheet = bare_axes(figure, _SHEET_W_IN, height)
    _write_map_title(sheet, found, height)
    note = "upper half: cut before this byte; lower half: this byte flipped"
    sheet.text(0.12, height - 0.55, note, **_SOFT_TEXT)
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        base = height - 0.78 - (number + 1) * _LINE_H_IN
        middle, right = base + _LINE_H_IN / 2, _LINE_LABEL_W_IN + (end - start) * byte_w
        label = found.lines[number][1]
        sheet.text(0.34, middle, str(number + 1), **_SOFT_TEXT, ha="right", va="center")
        label = label if len(label) <= 22 else f"{label[:21]}…"
        sheet.text(0.44, middle, label, fontsize=SMALL_PT, color=INK, va="center")
        for half, verdicts in enumerate((found.flips[start:end], found.cuts[start:end])):
            low = base + 0.03 + half * 0.13
            _draw_bytes(sheet, [verdicts], (_LINE_LABEL_W_IN, right, low, low + 0.13))
        size = f"{end - start:,} bytes" if number == 0 else f"{end - start:,}"
        sheet.text(right + 0.07, middle, size, **_SOFT_TEXT, va="center")
    _draw_byte_key(sheet, found)
    return Picture(figure, _map_alt(found))


def _page_map(found: Sweep) -> Picture:
    row_bytes = next(size for size in _ROW_BYTES if found.size <= _MOST_ROWS * size)
    panel_h = min(max(found.size / row_bytes * 0.06, 1.2), 5.0)
    height = 0.9 + panel_h + 0.55
    figure = blank_figure(_SHEET_W_IN, height)
    sheet = bare_axes(figure, _SHEET_W_IN, height)
    _write_map_title(sheet, found, height)
    for left, how, verdicts in (
        (0.85, "cut before this byte", found.cuts[: found.size]),
        (5.35, "this byte flipped", found.flips),
    ):
        cell_bytes = _cell_bytes(verdicts, row_bytes)
        cells, columns = _worst(verdicts, cell_bytes), row_bytes // cell_bytes
        table = [cells[at : at + columns] for at in range(0, len(cells), columns)]
        _draw_bytes(sheet, table, (left, left + 4.0, 0.55, 0.55 + panel_h))
        sheet.text(left, 0.65 + panel_h, how, fontsize=TEXT_PT, fontweight="bold", color=INK)
        if cell_bytes > 1:
            words = f"the worst of {cell_bytes} bytes"
            sheet.text(left + 4.0, 0.65 + panel_h, words, **_SOFT_TEXT, ha="right")
    for row in range(0, -(-found.size // row_bytes), 16):
        middle = 0.55 + panel_h * (1 - (row + 0.5) * row_bytes / found.size)
        sheet.text(0.77, middle, f"{row * row_bytes:,}", **_SOFT_TEXT, ha="right", va="center")
    _draw_byte_key(sheet, found)
    return Picture(figure, _map_alt(found))


def _cell_bytes(verdicts: Sequence[Verdict], row_bytes: int) -> int:
    """How many bytes a cell has to have so that at least one of them was tried."""
    gap = longest = 0
    for verdict in verdicts:
        gap = gap + 1 if verdict is Verdict.UNTRIED else 0
        longest = max(longest, gap)
    return next((1 << bit for bit in range(20) if longest < 1 << bit <= row_bytes), row_bytes)


def _worst(verdicts: Sequence[Verdict], cell_bytes: int) -> list[Verdict]:
    """For each cell the worst that came of one of its bytes."""
    starts = range(0, len(verdicts), cell_bytes)
    return [max(verdicts[at : at + cell_bytes], key=_VERDICTS.index) for at in starts]


def _draw_bytes(
    sheet: Axes, table: Sequence[Sequence[Verdict]], extent: tuple[float, float, float, float]
) -> None:
    """Draw rows of bytes, a short last row at the left; the first wrong ones have a cross."""
    columns = max(map(len, table))
    states = np.full((len(table), columns), -1)
    for row, verdicts in enumerate(table):
        states[row, : len(verdicts)] = [_VERDICTS.index(verdict) for verdict in verdicts]
    left, right, low, high = extent
    sheet.imshow(
        np.ma.masked_less(states, 0),
        cmap=ListedColormap(_BYTE_COLOURS),
        norm=BoundaryNorm(range(len(_VERDICTS) + 1), len(_VERDICTS)),
        extent=extent,
        interpolation="nearest",
        aspect="auto",
    )
    ys, xs = (found[:_MOST_CROSSES] for found in np.nonzero(states == len(_VERDICTS) - 1))
    column_w, row_h = (right - left) / columns, (high - low) / len(table)
    style: Style = {"color": INK, "markersize": 4.5, "markeredgewidth": 1.1}
    sheet.plot(left + (xs + 0.5) * column_w, high - (ys + 0.5) * row_h, "x", **style)
    _draw_frame(sheet, extent)


def _draw_frame(sheet: Axes, extent: tuple[float, float, float, float]) -> None:
    left, right, low, high = extent
    frame: Style = {"facecolor": "none", "edgecolor": WAITING, "linewidth": 0.6, "zorder": 3}
    sheet.add_patch(Rectangle((left, low), right - left, high - low, **frame))


def _write_map_title(sheet: Axes, found: Sweep, height: float) -> None:
    title = f"every byte of a {found.kind} journal ({found.size:,} bytes), damaged"
    sheet.text(0.12, height - 0.28, title, fontsize=TITLE_PT, fontweight="bold", color=INK)


def _draw_byte_key(sheet: Axes, found: Sweep) -> None:
    x, there = 0.12, {verdict for counted in found.counts.values() for verdict in counted}
    for verdict, words in _BYTE_WORDS.items():
        if verdict in there:
            _draw_bytes(sheet, [[verdict]], (x, x + 0.26, 0.14, 0.36))
            sheet.text(x + 0.34, 0.25, words, **_SOFT_TEXT, va="center")
            x += 0.62 + 0.073 * len(words)


def _map_alt(found: Sweep) -> str:
    said = [found.sentence]
    for how, counted in found.counts.items():
        parts = [f"{counted[verdict]:,} {verdict}" for verdict in _BYTE_WORDS if counted[verdict]]
        said.append(f"Of the {how}s: {', '.join(parts)}.")
    return " ".join(said)
