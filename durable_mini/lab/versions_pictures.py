"""Drawings of the version editor: an edit, its durable calls, and every order's fate.

Guarantees that nothing is told by colour alone: an added line has a plus, a dropped one a minus,
the first differing call an arrow, and each fate says in words what it is. What would come of an
order that the hash refuses is drawn hollow: it didn't come to that. The widget is usable from the
keyboard alone. Leaves to others: what is drawn (`versions`), how widgets behave (`widgets`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import ipywidgets as widgets
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
from durable_mini.lab.versions import (
    BEGUN,
    EDITS,
    IN_FLIGHT,
    Fate,
    Judgement,
    Life,
    Verdict,
    judge,
    tally,
)
from durable_mini.lab.widgets import Control, LivePicture, Values

_W_IN = 9.6
_LINE_IN = 0.205
_DARK = "#3A424C"  # stopped: dark in print too
_MONO: dict[str, Any] = {"fontsize": SMALL_PT - 0.8, "family": "monospace", "va": "center"}
_BOLD: dict[str, Any] = {"fontsize": TEXT_PT, "fontweight": "bold", "color": INK, "va": "center"}
_SMALL: dict[str, Any] = {"fontsize": SMALL_PT, "va": "center"}


class _Line(NamedTuple):
    """A line of text and what became of it: "+" it is new, "-" it is gone, " " it stayed."""

    sign: str
    text: str


def diff(old: Sequence[str], new: Sequence[str]) -> list[_Line]:
    """Put two lists of lines into one, what was dropped before what came in its place."""
    lines: list[_Line] = []
    for what, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            lines += [_Line(" ", text) for text in old[i:j]]
        else:
            lines += [_Line("-", text) for text in old[i:j]]
            lines += [_Line("+", text) for text in new[k:m]]
    return lines


# ---- the editor's picture ----------------------------------------------------------------------

_CODE_W, _GAP = 4.72, 0.14
_CODE_LINES, _CALL_LINES = 16, 10
_HEAD_IN, _FATE_IN = 0.5, 0.3
_SIGNS = {"+": (LIVE_TINT, LIVE, INK), "-": (FAILURE_TINT, FAILURE, INK), " ": ("none", INK, INK)}


def editor_picture(found: Judgement) -> Picture:
    """Draw an edit, the durable calls before and now, and what becomes of each order in flight."""
    panes = _HEAD_IN + _CODE_LINES * _LINE_IN + 0.1
    fates = 0.34 + (len(IN_FLIGHT) + 1) * _FATE_IN + 0.08
    height = 0.46 + panes + _GAP + fates + 0.08
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    _draw_headline(sheet, height - 0.25, found)
    top = height - 0.46
    _draw_code(sheet, (0.1, top - panes, 0.1 + _CODE_W, top), found.text)
    left = 0.1 + _CODE_W + _GAP
    _draw_calls(sheet, (left, top - panes, _W_IN - 0.1, top), found)
    base = top - panes - _GAP
    _draw_fates(sheet, (0.1, base - fates, _W_IN - 0.1, base), found)
    return Picture(figure, found.said)


def _draw_headline(sheet: Axes, middle: float, found: Judgement) -> None:
    good = found.accepted
    face, words = (REPLAYED, "accepted") if good else (_DARK, "refused")
    if found.trouble:
        face, words = FAILURE_INK, "no deploy"
    sheet.add_patch(
        FancyBboxPatch(
            (0.14, middle - 0.12),
            1.02,
            0.24,
            boxstyle="round,pad=0.02,rounding_size=0.06",
            facecolor=face,
            edgecolor=face,
        )
    )
    sheet.text(0.65, middle, words, **{**_BOLD, "color": PAPER, "ha": "center"})
    _, _, told = found.headline.partition(": ")
    if found.difference is not None and not found.trouble:
        place, was, now = found.difference
        told = f"durable call {place}: recorded {was}, now {now}"
    sheet.text(1.3, middle, _cut(told, 88), **{**_BOLD, "fontsize": TITLE_PT})


def _draw_code(sheet: Axes, spot: tuple[float, float, float, float], text: str) -> None:
    left, _, right, top = spot
    _draw_pane(sheet, spot, "the code", "+ new   - gone", WAITING)
    lines = diff(BEGUN.splitlines(), text.splitlines())
    shown = _window(lines, _CODE_LINES)
    for place, line in enumerate(shown):
        middle = top - _HEAD_IN - (place + 0.5) * _LINE_IN + 0.06
        _draw_line(sheet, (left, right), middle, line, 54)


def _window(lines: list[_Line], room: int) -> list[_Line]:
    """As many lines as there is room for, with the first change in sight."""
    if len(lines) <= room:
        return lines
    first = next((place for place, line in enumerate(lines) if line.sign != " "), 0)
    start = min(max(0, first - 4), len(lines) - room + 1)
    return [*lines[start : start + room - 1], _Line(" ", "…")]


def _draw_line(
    sheet: Axes, sides: tuple[float, float], middle: float, line: _Line, longest: int
) -> None:
    left, right = sides
    face, edge, ink = _SIGNS[line.sign]
    if line.sign != " ":
        spot = (left + 0.05, middle - _LINE_IN / 2)
        width = right - left - 0.1
        sheet.add_patch(Rectangle(spot, width, _LINE_IN, facecolor=face, edgecolor="none"))
    sheet.text(left + 0.1, middle, line.sign, **{**_MONO, "color": edge, "fontweight": "bold"})
    sheet.text(left + 0.26, middle, _cut(line.text, longest), **_MONO, color=ink)


def _draw_calls(sheet: Axes, spot: tuple[float, float, float, float], found: Judgement) -> None:
    left, base, right, top = spot
    middle, now = (left + right) / 2, found.now
    place = found.difference[0] if found.difference else 0
    patched = now is not None and found.fresh is not None and found.fresh.calls != now.calls
    panes = (
        (left, middle - _GAP / 2, "at admission", found.before),
        (middle + _GAP / 2, right, "now, for these orders" if patched else "now", now),
    )
    for start, end, name, structure in panes:
        _draw_pane(sheet, (start, base, end, top), name, "", REPLAYED)
        told = "can't be read" if structure is None else f"hash {structure.hash}"
        sheet.text(start + 0.12, top - 0.4, told, **_MONO, color=SOFT_INK)
        calls = () if structure is None else structure.calls
        for number, call in enumerate([*calls, "nothing more"][: max(len(calls), place)], 1):
            at = top - _HEAD_IN - 0.06 - (number - 0.5) * _LINE_IN
            if number <= _CALL_LINES:
                _draw_call(sheet, (start, end), at, call, differs=number == place)
    if patched and found.fresh is not None and now is not None:
        changed = [line for line in diff(now.calls, found.fresh.calls) if line.sign != " "]
        extra = [f"{line.sign} {line.text.strip()}" for line in changed][:3]
        for number, text in enumerate(["a new order:", *extra]):
            at = base + (len(extra) - number + 0.5) * _LINE_IN + 0.06
            ink = INK if number else SOFT_INK
            sheet.text(middle + _GAP / 2 + 0.12, at, _cut(text, 27), **_MONO, color=ink)


def _draw_call(
    sheet: Axes, sides: tuple[float, float], middle: float, call: str, *, differs: bool
) -> None:
    left, right = sides
    if differs:
        spot, width = (left + 0.05, middle - _LINE_IN / 2), right - left - 0.1
        frame: dict[str, Any] = {"facecolor": FAINT, "edgecolor": _DARK, "linewidth": 1.2}
        sheet.add_patch(Rectangle(spot, width, _LINE_IN, **frame))
    weight = "bold" if differs else "normal"
    sheet.text(left + 0.12, middle, _cut(call, 26), **_MONO, color=INK, fontweight=weight)


def _draw_pane(
    sheet: Axes, spot: tuple[float, float, float, float], head: str, note: str, colour: str
) -> None:
    left, base, right, top = spot
    style = "round,pad=0,rounding_size=0.07"
    frame: dict[str, Any] = {"facecolor": PAPER, "edgecolor": colour, "linewidth": 1.4, "zorder": 0}
    sheet.add_patch(FancyBboxPatch((left, base), right - left, top - base, boxstyle=style, **frame))
    sheet.text(left + 0.12, top - 0.18, head, **_BOLD)
    sheet.text(right - 0.1, top - 0.18, note, **_SMALL, color=SOFT_INK, ha="right")


# ---- fates -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Look:
    """How a fate is drawn."""

    face: str
    edge: str
    ink: str
    mark: str


_LOOKS = {
    "right": _Look(LIVE_TINT, LIVE, INK, "o"),
    "stopped": _Look(_DARK, _DARK, PAPER, "s"),
    "failed": _Look(_DARK, _DARK, PAPER, "s"),
    "wrong": _Look(FAILURE_TINT, FAILURE, INK, "X"),
}


_STANDS_X, _HASH_X, _FATE_X, _BOOKS_X = 0.6, 2.72, 3.62, 6.08


def _draw_fates(sheet: Axes, spot: tuple[float, float, float, float], found: Judgement) -> None:
    left, _, _, top = spot
    hollow = not found.accepted and not found.trouble
    _draw_pane(sheet, spot, "the orders in flight", "", WAITING)
    head: dict[str, Any] = {**_SMALL, "color": SOFT_INK}
    sheet.text(left + _HASH_X, top - 0.18, "the hash", **head)
    comes = "what would come without it" if hollow else "what comes of it"
    sheet.text(left + _FATE_X, top - 0.18, comes, **head)
    sheet.text(left + _BOOKS_X, top - 0.18, "the shop's books", **head)
    by_id = {fate.run_id: fate for fate in found.fates}
    if found.newcomer is not None:
        by_id["new"] = found.newcomer
    for number, (run_id, stands) in enumerate([*IN_FLIGHT.items(), ("new", "starts now")]):
        middle = top - 0.34 - (number + 0.5) * _FATE_IN
        sheet.text(left + 0.12, middle, run_id, **_BOLD)
        sheet.text(left + _STANDS_X, middle, stands, **_SMALL, color=SOFT_INK)
        if run_id not in by_id:
            waits = "can't start" if run_id == "new" else "goes on once the old code is back"
            sheet.text(left + _HASH_X, middle, waits, **_SMALL, color=INK)
            continue
        if run_id != "new":
            words = "accepted" if found.accepted else "refused"
            sheet.text(left + _HASH_X, middle, words, **_BOLD)
        box = (left + _FATE_X, middle - 0.12, _BOOKS_X - _FATE_X - 0.12, 0.24)
        _draw_fate(sheet, box, by_id[run_id], hollow=hollow and run_id != "new")
        books = ", ".join(map(str, by_id[run_id].books))
        small = {**_SMALL, "fontsize": SMALL_PT - 1.0, "color": INK}
        sheet.text(left + _BOOKS_X, middle, _cut(books, 52), **small)


def _draw_fate(
    sheet: Axes,
    box: tuple[float, float, float, float],
    fate: Fate,
    *,
    hollow: bool,
    small: bool = False,
) -> None:
    left, base, width, height = box
    look = _LOOKS[fate.verdict]
    face, line = (PAPER, (0, (3, 2))) if hollow else (look.face, "-")
    frame: dict[str, Any] = {"facecolor": face, "edgecolor": look.edge, "linestyle": line}
    wrong = fate.verdict == "wrong"
    sheet.add_patch(
        Rectangle((left, base), width, height, linewidth=2.0 if wrong else 1.2, **frame)
    )
    if look.mark != "s" or hollow:
        mark: dict[str, Any] = {"markerfacecolor": look.edge, "markeredgecolor": PAPER}
        sheet.plot(
            [left + 0.14],
            [base + height / 2],
            marker=look.mark,
            markersize=9 if wrong else 7,
            **mark,
        )
    ink = INK if hollow else look.ink
    size = SMALL_PT - 1.0 if small else SMALL_PT
    words = fate.words.removeprefix("needs attention: ") if small else fate.words
    look_of: dict[str, Any] = {**_SMALL, "fontsize": size, "color": ink}
    look_of["fontweight"] = "bold" if wrong and not small else "normal"
    sheet.text(left + 0.28, base + height / 2, words, **look_of)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


# ---- all edits ---------------------------------------------------------------------------------

_LABEL_W, _ROW_IN = 3.3, 0.34


def edits_picture(judged: Mapping[str, Judgement]) -> Picture:
    """Draw what becomes of every order under every edit, those that the hash refuses first.

    Args:
        judged: by the edit's name, as `versions.judge_all` gives them.
    """
    groups = [
        (accepted, {name: one for name, one in judged.items() if one.accepted is accepted})
        for accepted in (False, True)
    ]
    height = 0.44 + len(groups) * 0.46 + len(judged) * _ROW_IN + 0.42
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    pitch = (_W_IN - _LABEL_W - 0.1) / len(IN_FLIGHT)
    for place, run_id in enumerate(IN_FLIGHT):
        middle = _LABEL_W + (place + 0.5) * pitch
        sheet.text(middle, height - 0.16, run_id, **_BOLD, ha="center")
        words = {**_SMALL, "fontsize": SMALL_PT - 1.2, "color": SOFT_INK, "ha": "center"}
        sheet.text(middle, height - 0.36, IN_FLIGHT[run_id], **words)
    top = height - 0.44
    for accepted, edits in groups:
        counts = tally(edits)
        _draw_group(sheet, top - 0.3, accepted=accepted, counts=counts)
        top -= 0.46
        for name, found in edits.items():
            middle = top - _ROW_IN / 2
            sheet.text(0.1, middle, name, **_BOLD)
            says = {**_SMALL, "fontsize": SMALL_PT - 1.2, "color": SOFT_INK}
            sheet.text(1.42, middle, _cut(EDITS[name].says if name in EDITS else "", 29), **says)
            for place, fate in enumerate(found.fates):
                box = (_LABEL_W + place * pitch + 0.04, middle - 0.13, pitch - 0.08, 0.26)
                _draw_fate(sheet, box, fate, hollow=not accepted, small=True)
            top -= _ROW_IN
    _draw_key(sheet, 0.18)
    return Picture(figure, _edits_alt(judged))


def _draw_group(
    sheet: Axes, middle: float, *, accepted: bool, counts: Mapping[tuple[bool, Verdict], int]
) -> None:
    sheet.plot([0.1, _W_IN - 0.1], [middle + 0.2, middle + 0.2], color=FAINT, linewidth=1.2)
    head = "The hash accepts" if accepted else "The hash refuses; without it:"
    sheet.text(0.1, middle, head, **{**_BOLD, "fontsize": TITLE_PT - 0.5})
    told = [f"{counts[accepted, verdict]} {_TOLD[verdict]}" for verdict in _TOLD]
    shown = [text for text in told if not text.startswith("0 ")]
    sheet.text(_LABEL_W, middle, ", ".join(shown), **_SMALL, color=INK)


_TOLD: dict[Verdict, str] = {
    "right": "end right",
    "stopped": "are stopped in replay",
    "failed": "need attention",
    "wrong": "go wrong",
}


def _draw_key(sheet: Axes, middle: float) -> None:
    words = {**_SMALL, "fontsize": SMALL_PT - 1.0, "color": SOFT_INK}
    left = 0.1
    for verdict, told in _TOLD.items():
        if verdict == "failed":
            continue
        look = _LOOKS[verdict]
        frame: dict[str, Any] = {"facecolor": look.face, "edgecolor": look.edge}
        sheet.add_patch(Rectangle((left, middle - 0.08), 0.24, 0.16, **frame))
        if look.mark != "s":
            mark: dict[str, Any] = {"markerfacecolor": look.edge, "markeredgecolor": PAPER}
            sheet.plot([left + 0.12], [middle], marker=look.mark, markersize=6, **mark)
        text = "stopped, or needs attention" if verdict == "stopped" else told
        sheet.text(left + 0.32, middle, text, **words)
        left += 0.5 + 0.075 * len(text)
    frame = {"facecolor": PAPER, "edgecolor": INK, "linestyle": (0, (3, 2))}
    sheet.add_patch(Rectangle((left, middle - 0.08), 0.24, 0.16, **frame))
    sheet.text(left + 0.32, middle, "dashed: would come without the hash", **words)


def _edits_alt(judged: Mapping[str, Judgement]) -> str:
    counts, told = tally(judged), []
    for accepted, head in ((False, "Refused by the hash"), (True, "Accepted by the hash")):
        number = sum(count for (group, _), count in counts.items() if group is accepted)
        ends = [f"{counts[accepted, one]} {_TOLD[one]}" for one in _TOLD if counts[accepted, one]]
        would = "" if accepted else "without it "
        told.append(f"{head}: {number} orders; {would}{', '.join(ends) or 'none'}.")
    wrong = [
        f"{name}, {fate.run_id} {fate.words}"
        for name, found in judged.items()
        for fate in found.fates
        if fate.verdict == "wrong" and found.accepted
    ]
    return " ".join(told) + f" Missed by hash and replay: {'; '.join(wrong) or 'nothing'}."


# ---- the life of a patch -----------------------------------------------------------------------


def patch_life_picture(lives: Sequence[Life], stranded: Mapping[int, int]) -> Picture:
    """Draw orders that come and go around a patch, and whom its removal would strand on each day.

    Args:
        lives: the orders, as `versions.patch_life` gives them.
        stranded: for each day how many orders couldn't go on if the old path were removed then.
    """
    lane, left, right = 0.3, 2.3, 0.35
    height = 0.78 + len(lives) * lane + 0.82
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    first, last = min(life.begun for life in lives), max(life.ended for life in lives) + 1
    scale = (_W_IN - left - right) / (last - first)
    safe = min((day for day, count in stranded.items() if not count), default=last)

    def at(day: float) -> float:
        return left + (day - first) * scale

    title = f"A patch deployed on day 0 can go on day {safe}"
    sheet.text(0.1, height - 0.2, title, **{**_BOLD, "fontsize": TITLE_PT})
    top, floor = height - 0.78, 0.82
    for number, life in enumerate(lives):
        middle = top - (number + 0.5) * lane
        path = "new" if life.knows else "old"
        sheet.text(0.1, middle, f"began {life.run_id}", **_SMALL, color=INK)
        sheet.text(1.25, middle, f"{path} path", **_SMALL, color=SOFT_INK)
        face, edge, hatch = (
            (LIVE_TINT, LIVE, "") if life.knows else (REPLAYED_TINT, REPLAYED, "////")
        )
        bar: dict[str, Any] = {"facecolor": face, "edgecolor": edge, "hatch": hatch}
        spot, width = (at(life.begun), middle - 0.095), max(life.ended - life.begun, 0.15) * scale
        sheet.add_patch(Rectangle(spot, width, 0.19, linewidth=1.2, hatch_linewidth=0.5, **bar))
    for day, words in ((0, "the patch is deployed"), (safe, "the old path can go")):
        sheet.plot([at(day)] * 2, [floor - 0.05, top + 0.06], color=INK, linewidth=1.5, zorder=4)
        sheet.text(at(day), top + 0.2, words, **_BOLD, ha="center")
    sheet.text(0.1, 0.6, "day", **_SMALL, color=SOFT_INK)
    sheet.text(0.1, 0.32, "stranded, if the", **_SMALL, color=INK)
    sheet.text(0.1, 0.12, "old path went now", **_SMALL, color=INK)
    for day in range(first, last):
        sheet.text(at(day), 0.6, str(day), **_SMALL, color=SOFT_INK, ha="center")
        if day in stranded:
            count = stranded[day]
            ink = FAILURE_INK if count else INK
            look: dict[str, Any] = {**_BOLD, "color": ink, "ha": "center", "fontsize": TITLE_PT}
            sheet.text(at(day), 0.22, str(count), **look)
    told = ", ".join(f"day {day}: {count}" for day, count in stranded.items())
    olds = sum(not life.knows for life in lives)
    return Picture(
        figure,
        f"{title}. {olds} of {len(lives)} orders began before it and keep the old path to their "
        f"end. Orders stranded if the old path were removed on that day: {told}.",
    )


# ---- the widget --------------------------------------------------------------------------------


class VersionEditor(LivePicture[Judgement]):
    """A text box with the orders' code, and beside it what the engine makes of it."""

    def __init__(self, start: str) -> None:
        self._menu = widgets.Dropdown(options=list(EDITS), value=start, description="prepared edit")
        self._menu.style.description_width = "9.5em"
        self._text = widgets.Textarea(
            value=EDITS[start].text,
            description="the code",
            rows=15,
            layout=widgets.Layout(width="54em", max_width="100%"),
        )
        self._text.style.description_width = "9.5em"
        self._text.add_class("dm-code")
        self._menu.observe(self._choose, names="value")
        style = ".dm-code textarea { font-family: monospace; white-space: pre; tab-size: 4; }"
        row = widgets.VBox([widgets.HTML(f"<style>{style}</style>"), self._menu, self._text])
        super().__init__(
            [Control("text", self._text, row)],
            self._judged,
            editor_picture,
            lambda found: found.said,
        )

    def _choose(self, change: Mapping[str, Any]) -> None:
        self._text.value = EDITS[change["new"]].text

    def _judged(self, values: Values) -> Iterable[Judgement]:
        yield judge(values["text"])


def version_editor(start: str = "a fraud check") -> VersionEditor:
    """Let the reader edit the orders' code, or choose a prepared edit, while orders are in flight.

    Args:
        start: the edit of `versions.EDITS` to begin with; also what a page without a kernel shows.
    """
    return VersionEditor(start)
