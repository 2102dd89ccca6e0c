"""Drawings of the detector lab: who catches which change, what it costs, and one run call by call.

Guarantees that an outcome is never told by colour alone: a refusal is a dark box, a right end a
pale one with a dot, a wrong end has a cross and says in words what went wrong. Leaves to others:
the runs (`drift`).
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from durable_mini.lab.drift import (
    ARGUMENTS,
    COUNT,
    DRIFTS,
    KIND_NAME,
    MEASURED_DRIFTS,
    NAME,
    NONE,
    PEERS,
    POLICIES,
    RECORDED,
    Call,
    Drift,
    Look,
    Outcome,
    Record,
    Tally,
    calls,
    try_drift,
)
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
from durable_mini.lab.widgets import StepThrough, Values, choice, slider

_W_IN = 9.6
_DARK = "#3A424C"  # a refusal: dark in print too
_PALE = "#9AA4AF"  # one that wasn't needed
_BOLD: dict[str, Any] = {"fontsize": TEXT_PT, "fontweight": "bold", "color": INK, "va": "center"}


@dataclass(frozen=True, slots=True)
class _Cell:
    """One box of a grid: how it ended, in words."""

    verdict: str
    words: str


# ---- drift by policy ---------------------------------------------------------------------------


def grid_picture(grid: Mapping[str, Mapping[str, Outcome]]) -> Picture:
    """Draw which policy refuses which change, and what comes of the others.

    Args:
        grid: outcomes by drift, then by policy, as `drift.detector_grid` gives them.
    """
    rows = [
        [_cell(outcome, by_policy.get(NONE)) for outcome in by_policy.values()]
        for by_policy in grid.values()
    ]
    labels = [(name, DRIFTS[name].says if name in DRIFTS else "") for name in grid]
    columns = list(next(iter(grid.values())))
    return _grid_of(labels, columns, rows, "what the resumed run compares", _grid_alt(grid))


def _cell(outcome: Outcome, unchecked: Outcome | None) -> _Cell:
    """The box of an outcome, given what came of it where nothing was compared."""
    if outcome.seq is None:
        return _Cell(outcome.verdict, outcome.cost or "right")
    needless = unchecked is not None and unchecked.verdict == "right"
    return _Cell("needless" if needless else "refused", f"refused\nat event {outcome.seq}")


def _grid_alt(grid: Mapping[str, Mapping[str, Outcome]]) -> str:
    policies = list(next(iter(grid.values())))
    refused = [
        f"{policy} {sum(ends[policy].verdict == 'refused' for ends in grid.values())}"
        for policy in policies
    ]
    wrong = [
        f"{name} ({ends[policies[0]].cost}), refused {_stopped_by(ends)}"
        for name, ends in grid.items()
        if ends[policies[0]].verdict == "wrong"
    ]
    return (
        f"Refused of {len(grid)} changes, by what is compared: {', '.join(refused)}. "
        f"What goes wrong where nothing is compared: {'; '.join(wrong) or 'nothing'}."
    )


def _stopped_by(ends: Mapping[str, Outcome]) -> str:
    """From which policy on a change is refused."""
    stops = (policy for policy, end in ends.items() if end.verdict == "refused")
    first = next(stops, None)
    return "by none" if first is None else f"from {first} on"


def peers_picture(own: Mapping[str, Outcome]) -> Picture:
    """Draw what other engines did with four of the changes, and what this one does.

    Args:
        own: by the name of the change what `drift.on_the_engine` gave just now; the others were
            measured elsewhere, once.
    """
    rows = [[_Cell(_peer_verdict(words), words) for words in said] for said in PEERS.values()]
    rows.append([_cell(own[drift], None) for drift in MEASURED_DRIFTS])
    labels = [*((name, "") for name in PEERS), ("durable_mini, run here", "")]
    told = []
    for place, drift in enumerate(MEASURED_DRIFTS):
        wrong = [name for name, said in PEERS.items() if _peer_verdict(said[place]) == "wrong"]
        who = f", namely {' and '.join(wrong)}" if 0 < len(wrong) < 3 else ""
        told.append(f"{drift}: {len(wrong)} of {len(PEERS)}{who}")
    refused = sum(own[drift].verdict == "refused" for drift in MEASURED_DRIFTS)
    alt = (
        f"Other engines that went wrong in silence, by the change. {'; '.join(told)}. "
        f"durable_mini refused {refused} of {len(MEASURED_DRIFTS)}."
    )
    return _grid_of(labels, MEASURED_DRIFTS, rows, "the change", alt, label_w=2.2, row_h=0.42)


def _peer_verdict(words: str) -> str:
    """How a measured outcome is drawn: the words of `PEERS` begin with what it came to."""
    kinds = {"error": "refused", "never": "stuck", "right": "right"}
    return kinds.get(words.split(maxsplit=1)[0].rstrip(","), "wrong")


def _grid_of(
    labels: Sequence[tuple[str, str]],
    columns: Sequence[str],
    rows: Sequence[Sequence[_Cell]],
    over: str,
    alt: str,
    *,
    label_w: float = 2.75,
    row_h: float = 0.5,
) -> Picture:
    pitch = (_W_IN - label_w - 0.1) / len(columns)
    height = 0.86 + len(rows) * row_h + 0.34
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    sheet.text(
        label_w, height - 0.2, over, fontsize=TEXT_PT, color=SOFT_INK, va="center", style="italic"
    )
    for place, name in enumerate(columns):
        sheet.text(
            label_w + place * pitch + pitch / 2,
            height - 0.76,
            textwrap.fill(name, 14),
            fontsize=TEXT_PT,
            fontweight="bold",
            color=INK,
            ha="center",
            va="bottom",
            linespacing=1.1,
        )
    for number, ((name, says), cells) in enumerate(zip(labels, rows, strict=True), 1):
        base = height - 0.86 - number * row_h
        _draw_label(sheet, name, says, base + row_h / 2)
        for place, cell in enumerate(cells):
            box = (label_w + place * pitch + 0.04, base + 0.03, pitch - 0.08, row_h - 0.06)
            _draw_cell(sheet, cell, box)
    _draw_key(sheet, {cell.verdict for cells in rows for cell in cells}, 0.08)
    return Picture(figure, alt)


def _draw_label(sheet: Axes, name: str, says: str, middle: float) -> None:
    lift = 0.1 if says else 0.0
    sheet.text(0.08, middle + lift, name, **_BOLD)
    sheet.text(0.08, middle - 0.1, says, fontsize=SMALL_PT - 1.2, color=SOFT_INK, va="center")


_LOOKS = {
    "refused": (_DARK, _DARK, PAPER),
    "needless": (_PALE, _DARK, INK),
    "right": (LIVE_TINT, LIVE, INK),
    "wrong": (FAILURE_TINT, FAILURE, INK),
    "stuck": (FAINT, WAITING, INK),
}
_MARKS = {"right": ("o", LIVE), "wrong": ("X", FAILURE)}
_KEY = {
    "refused": "refused",
    "needless": "refused, would have ended right",
    "right": "goes on, right",
    "wrong": "goes on, wrong in silence",
    "stuck": "never taken up again",
}


def _draw_cell(sheet: Axes, cell: _Cell, box: tuple[float, float, float, float]) -> None:
    left, base, width, height = box
    face, edge, ink = _LOOKS[cell.verdict]
    sheet.add_patch(
        Rectangle(
            (left, base),
            width,
            height,
            facecolor=face,
            edgecolor=edge,
            linewidth=1.2,
            linestyle=(0, (3, 2)) if cell.verdict == "stuck" else "-",
        )
    )
    indent = 0.0
    if cell.verdict in _MARKS:
        indent = 0.2
        _draw_mark(sheet, cell.verdict, left + 0.14, base + height / 2)
    sheet.text(
        left + indent + (width - indent) / 2,
        base + height / 2,
        cell.words if "\n" in cell.words else textwrap.fill(cell.words, max(9, int(width / 0.082))),
        fontsize=SMALL_PT - 0.6,
        color=ink,
        ha="center",
        va="center",
        linespacing=1.1,
    )


def _draw_mark(sheet: Axes, verdict: str, x: float, y: float) -> None:
    marker, colour = _MARKS[verdict]
    sheet.plot(
        [x],
        [y],
        marker=marker,
        markersize=9 if marker == "X" else 7,
        markerfacecolor=colour,
        markeredgecolor=PAPER,
        linestyle="none",
    )


def _draw_key(sheet: Axes, verdicts: set[str], left: float) -> None:
    for verdict in (one for one in _KEY if one in verdicts):
        face, edge, _ = _LOOKS[verdict]
        sheet.add_patch(Rectangle((left, 0.09), 0.24, 0.17, facecolor=face, edgecolor=edge))
        if verdict in _MARKS:
            _draw_mark(sheet, verdict, left + 0.12, 0.175)
        sheet.text(
            left + 0.32, 0.175, _KEY[verdict], fontsize=SMALL_PT - 0.6, color=SOFT_INK, va="center"
        )
        left += 0.32 + 0.072 * len(_KEY[verdict]) + 0.2


# ---- all places to die -------------------------------------------------------------------------

_ENDS = (
    ("saved", "refused, would have gone wrong", _DARK, ""),
    ("needless", "refused, would have ended right", _PALE, "///"),
    ("right", "went on, right", LIVE_TINT, ""),
    ("wrong", "went on, wrong in silence", FAILURE_TINT, "xx"),
)


def tally_picture(tallies: Mapping[str, Tally]) -> Picture:
    """Draw how the runs of all changes ended under each policy, wherever the worker died.

    Args:
        tallies: by policy, as `drift.tally_all_places` gives them.
    """
    label_w, bar_h, row_h = 2.3, 0.34, 0.5
    height = 0.45 + len(tallies) * row_h + 0.4
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    runs = next(iter(tallies.values())).runs
    title = f"{runs} runs per policy: every change, the worker dead at every call"
    sheet.text(0.08, height - 0.22, title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    scale = (_W_IN - label_w - 0.15) / runs
    for number, (policy, tally) in enumerate(tallies.items(), 1):
        base = height - 0.45 - number * row_h + (row_h - bar_h) / 2
        sheet.text(0.08, base + bar_h / 2, policy, **_BOLD)
        left = label_w
        for end, _, face, hatch in _ENDS:
            count = getattr(tally, end)
            _draw_share(sheet, (left, base, count * scale, bar_h), count, face, hatch)
            left += count * scale
    _draw_ends_key(sheet)
    return Picture(figure, _tally_alt(tallies))


def _draw_share(
    sheet: Axes, box: tuple[float, float, float, float], count: int, face: str, hatch: str
) -> None:
    if not count:
        return
    left, base, width, height = box
    failed = face == FAILURE_TINT
    sheet.add_patch(
        Rectangle(
            (left, base),
            width,
            height,
            facecolor=face,
            edgecolor=FAILURE if failed else PAPER,
            hatch=hatch,
            hatch_linewidth=0.5,
            linewidth=1.0,
        )
    )
    sheet.text(
        left + width / 2,
        base + height / 2,
        str(count),
        fontsize=SMALL_PT,
        fontweight="bold",
        color=PAPER if face == _DARK else INK,
        ha="center",
        va="center",
        bbox=None
        if face in {_DARK, LIVE_TINT}
        else {"boxstyle": "round,pad=0.12", "facecolor": PAPER, "linewidth": 0},
    )


def _draw_ends_key(sheet: Axes) -> None:
    left = 0.08
    for _, words, face, hatch in _ENDS:
        edge = FAILURE if face == FAILURE_TINT else INK
        sheet.add_patch(
            Rectangle(
                (left, 0.1),
                0.24,
                0.17,
                facecolor=face,
                edgecolor=edge,
                hatch=hatch,
                hatch_linewidth=0.5,
                linewidth=0.8,
            )
        )
        sheet.text(left + 0.31, 0.185, words, fontsize=SMALL_PT - 0.6, color=SOFT_INK, va="center")
        left += 0.31 + 0.0665 * len(words) + 0.18


def _tally_alt(tallies: Mapping[str, Tally]) -> str:
    told = [
        f"{policy}: {one.wrong} wrong in silence, {one.saved} saved, "
        f"{one.needless} stopped that would have ended right"
        for policy, one in tallies.items()
    ]
    runs = next(iter(tallies.values())).runs
    return f"Of {runs} runs per policy, by what is compared. {'; '.join(told)}."


# ---- one run, call by call ---------------------------------------------------------------------

_LINE_H_IN, _HEAD_H_IN, _GAP_IN, _CHAR_W_IN = 0.25, 0.4, 0.14, 0.082
_SPLIT_IN = 5.5
_MONO: dict[str, Any] = {"fontsize": SMALL_PT, "family": "monospace", "color": INK, "va": "center"}
_TINTS = {
    "handed out": (REPLAYED_TINT, REPLAYED),
    "executed": (LIVE_TINT, LIVE),
    "refused": (PAPER, _DARK),
}
_COMPARED = {
    NONE: (),
    COUNT: (),
    NAME: ("name",),
    KIND_NAME: ("kind", "name"),
    ARGUMENTS: ("kind", "name", "args"),
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A look at a resumed run, with what it takes to draw it."""

    look: Look
    drift: Drift
    policy: str

    @property
    def said(self) -> str:
        """What happens, in plain text."""
        return _said(self)


def detector_walk() -> StepThrough[Scene]:
    """Let the reader choose a change and a policy, and step through the resumed run.

    It opens where "kind + name" hands out the record of another call: two questions swapped.
    """
    change = choice("drift", "the change", list(DRIFTS))
    compared = choice("policy", "compared", list(POLICIES))
    change.value, compared.value = "same-name swap", KIND_NAME

    def scenes(values: Values) -> list[Scene]:
        drift, policy = DRIFTS[values["drift"]], values["policy"]
        looks = try_drift(drift, policy, values["recorded"]).looks
        return [Scene(look, drift, policy) for look in looks]

    return StepThrough(
        scenes,
        scene_picture,
        lambda scene: scene.said,
        choices=[change, compared, slider("recorded", "calls on record", RECORDED, 0, calls(), 1)],
        start=1,
    )


def scene_picture(scene: Scene) -> Picture:
    """Draw a call of the resumed run: the changed code, what is compared, journal and books."""
    code = code_lines(scene.drift)
    above, below = len(code), calls() + 2
    height = 0.5 + 2 * (_HEAD_H_IN + 0.08) + (above + below) * _LINE_H_IN + _GAP_IN + 0.1
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    sheet.text(0.12, height - 0.26, _title(scene), fontsize=TITLE_PT, fontweight="bold", color=INK)
    left, middle, right = 0.12, _SPLIT_IN, _W_IN - 0.12
    top = height - 0.5
    panes = _Pane("the code after the change (changed lines: »)", left, middle, top, above)
    compared = _Pane("compared", middle + _GAP_IN, right, top, above)
    lower = panes.base - _GAP_IN
    journal = _Pane("journal", left, middle, lower, below)
    books = _Pane("what the shop has done", middle + _GAP_IN, right, lower, below)
    _draw_code(sheet, panes, code, scene.look)
    _draw_comparison(sheet, compared, scene)
    _draw_journal(sheet, journal, scene.look)
    _draw_frame(sheet, books, INK)
    done = [textwrap.wrap(str(row), 40, subsequent_indent="  ") for row in scene.look.books]
    _draw_lines(sheet, books, [line for row in done for line in row] or ["(nothing yet)"])
    return Picture(figure, scene.said)


@dataclass(frozen=True, slots=True)
class _Pane:
    """A framed list of lines."""

    heading: str
    left: float
    right: float
    top: float
    lines: int

    @property
    def base(self) -> float:
        return self.top - _HEAD_H_IN - self.lines * _LINE_H_IN - 0.08

    def middle(self, number: int) -> float:
        """The height of a line's middle, counted from 0."""
        return self.top - _HEAD_H_IN - (number + 0.5) * _LINE_H_IN


def code_lines(drift: Drift) -> list[str]:
    """The lines of a code of the lab; a changed one ends in a comment that begins with "<"."""
    lines = textwrap.dedent(inspect.getsource(drift.code)).rstrip().splitlines()
    return [line.replace(": Any", "").replace(") -> None:", "):") for line in lines]


def _title(scene: Scene) -> str:
    look = scene.look
    if look.asked is None:
        return "refused: records are left over" if look.state == "refused" else "the run is over"
    if look.state == "refused":
        return f"event {look.event}: refused"
    if look.state == "executed":
        return f"event {look.event}: not in the journal, so it is executed"
    whose = "the record of ANOTHER call" if look.mistaken else "its own record"
    return f"event {look.event}: handed {whose}"


def _draw_frame(sheet: Axes, pane: _Pane, colour: str) -> None:
    sheet.add_patch(
        FancyBboxPatch(
            (pane.left, pane.base),
            pane.right - pane.left,
            pane.top - pane.base,
            boxstyle="round,pad=0,rounding_size=0.07",
            facecolor=PAPER,
            edgecolor=colour,
            linewidth=1.5,
            zorder=0,
        )
    )
    sheet.text(pane.left + 0.12, pane.top - 0.2, pane.heading, **_BOLD)


def _draw_lines(sheet: Axes, pane: _Pane, lines: Sequence[str]) -> None:
    longest = int((pane.right - pane.left - 0.2) / _CHAR_W_IN)
    for number, line in enumerate(lines):
        text = line if len(line) <= longest else f"{line[: longest - 1]}…"
        sheet.text(pane.left + 0.12, pane.middle(number), text, **_MONO)


def _draw_code(sheet: Axes, pane: _Pane, code: Sequence[str], look: Look) -> None:
    _draw_frame(sheet, pane, LIVE)
    _draw_lines(sheet, pane, [line.removesuffix("  # <").replace("# < ", "# ") for line in code])
    for number, line in enumerate(code):
        if "  # <" in line:
            sheet.text(pane.left + 0.14, pane.middle(number), "»", **_BOLD)
    if look.line:
        _draw_band(sheet, pane, look.line - 1, look)


def _draw_journal(sheet: Axes, pane: _Pane, look: Look) -> None:
    _draw_frame(sheet, pane, REPLAYED)
    rows = ["1  admitted", *(_row(number, one) for number, one in enumerate(look.journal, 2))]
    _draw_lines(sheet, pane, rows)
    if look.asked is None and look.state != "refused":
        return
    word = {"handed out": "handed out", "executed": "new", "refused": "not handed out"}[look.state]
    _draw_band(sheet, pane, look.event - 1, look)
    sheet.text(
        pane.right - 0.14,
        pane.middle(look.event - 1),
        word,
        fontsize=SMALL_PT,
        fontweight="bold",
        color=INK,
        ha="right",
        va="center",
    )


def _draw_band(sheet: Axes, pane: _Pane, number: int, look: Look) -> None:
    face, edge = _TINTS[look.state]
    if look.mistaken:
        face, edge = FAILURE_TINT, FAILURE
    sheet.add_patch(
        Rectangle(
            (pane.left + 0.06, pane.middle(number) - _LINE_H_IN / 2),
            pane.right - pane.left - 0.12,
            _LINE_H_IN,
            facecolor=face,
            edgecolor=edge,
            linewidth=2.0 if look.state == "refused" else 1.2,
            zorder=0.5,
        )
    )


def _draw_comparison(sheet: Axes, pane: _Pane, scene: Scene) -> None:
    """Draw record and request side by side, and which of their parts the policy looks at."""
    look = scene.look
    _draw_frame(sheet, pane, WAITING)
    _put(sheet, pane, 0, ("", "in the journal", "asked for", ""), SOFT_INK)
    record = look.record if look.state != "executed" else None  # there was none
    compared = _COMPARED[scene.policy]
    for number, part in enumerate(("kind", "name", "args"), 1):
        there = _part(record.call if record else None, part)
        asked = _part(look.asked, part)
        looks, same = part in compared and bool(record and look.asked), there == asked
        mark = ("=" if same else "≠") if looks else ""
        ink = (INK if same else FAILURE_INK) if looks else WAITING
        label = {"args": "arguments"}.get(part, part)
        _put(sheet, pane, number, (label, there, asked, mark), ink, bold=looks and not same)
    words = f"compares: {scene.policy}" if scene.policy != NONE else "compares nothing"
    last = pane.lines - 1
    plain: dict[str, Any] = {"fontsize": SMALL_PT, "va": "center"}
    sheet.text(pane.left + 0.12, pane.middle(last - 1), words, color=SOFT_INK, **plain)
    verdict, ink = _verdict(look)
    sheet.text(pane.left + 0.12, pane.middle(last), verdict, color=ink, fontweight="bold", **plain)


def _put(
    sheet: Axes, pane: _Pane, number: int, texts: Sequence[str], ink: str, *, bold: bool = False
) -> None:
    for offset, text in zip((0.12, 0.98, 2.3, 3.6), texts, strict=True):
        sheet.text(
            pane.left + offset,
            pane.middle(number),
            text if len(text) <= 17 else f"{text[:16]}…",
            fontsize=SMALL_PT,
            fontweight="bold" if bold else "normal",
            color=ink,
            va="center",
        )


def _part(call: Call | None, part: str) -> str:
    if call is None:
        return "-"
    return _args(call) if part == "args" else str(getattr(call, part))


def _args(call: Call) -> str:
    return ", ".join(map(repr, call.args))


def _verdict(look: Look) -> tuple[str, str]:
    if look.state == "refused":
        return "refused: nothing is executed", INK
    if look.state == "ended":
        return "the run is completed", INK
    if look.state == "executed":
        return "executed, and recorded", INK
    if look.mistaken:
        return f"handed out: {look.result!r}, of another call", FAILURE_INK
    return f"handed out: {look.result!r}", INK


def _row(number: int, record: Record) -> str:
    return (
        f"{number}  {record.call.kind} {record.call.name} {_args(record.call)}: {record.result!r}"
    )


def _said(scene: Scene) -> str:
    """Say what happens at a call, for those who can't see the picture."""
    look, policy = scene.look, scene.policy
    change = f"{scene.drift.name}, {scene.drift.says}"
    done = f"The shop has done: {'; '.join(map(str, look.books)) or 'nothing'}."
    if look.asked is None:
        over = "The code has returned, and the run is completed."
        left = f"The code has returned, and the journal has event {look.event} left: refused."
        return f"The change: {change}. {left if look.state == 'refused' else over} {done}"
    asks = f"The change: {change}. The code asks for {look.asked.kind} {look.asked.name}"
    asks = f"{asks} ({_args(look.asked)})."
    if look.record is None or look.state == "executed":
        return f"{asks} The journal has nothing there, so it is executed. {done}"
    call = look.record.call
    there = f"Event {look.event} is {call.kind} {call.name} ({_args(call)})."
    compares = "Nothing is compared" if policy in {NONE, COUNT} else f"Compared: {policy}"
    if look.state == "refused":
        return f"{asks} {there} {compares}, and they differ: refused. {done}"
    whose = "the record of another call" if look.mistaken else "its own record"
    return f"{asks} {there} {compares}: it is handed {look.result!r}, {whose}. {done}"
