"""Drawings of a run that waits: who was there when, what it waited for, what arrived meanwhile.

Guarantees: every mark is read from the run's history, but for the looks of workers, which leave no
trace where nothing was due. State is never told by colour alone: a wait is a hatched bar with its
verdict written behind it, the time that it may still take a dashed frame, a signal a diamond with
the number of its event, filled once it has been read. Times are days since the run was admitted.

Knows nothing of engines: the history is handed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from durable_mini.events import Event, EventKind
from durable_mini.lab.pictures import (
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
    Cell,
    NumbersTable,
    Picture,
    bare_axes,
    blank_figure,
    numbers_table,
)

DAY_S = 86_400.0

_OPENS = frozenset({EventKind.WAIT, EventKind.TIMER, EventKind.CHILD})
_CLOSES = frozenset(
    {EventKind.RECEIVED, EventKind.TIMED_OUT, EventKind.FIRED, EventKind.JOINED, EventKind.STOP}
)
_COUNTED = frozenset({EventKind.STEP, EventKind.EFFECT})
_VERDICTS = {
    EventKind.RECEIVED: "received",
    EventKind.TIMED_OUT: "timed out",
    EventKind.FIRED: "fired",
    EventKind.JOINED: "joined",
    EventKind.STOP: "stopped",
}


@dataclass(frozen=True, slots=True)
class Look:
    """A worker came by at `at_s` and made so many attempts; none where nothing was due."""

    at_s: float
    attempts: int


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait of a run, in seconds: begun, due at the latest (None: never), ended (None: not yet).

    `verdict` says how it ended; it is empty while it lasts.
    """

    name: str
    begun_s: float
    due_s: float | None
    ended_s: float | None = None
    verdict: str = ""


def waits_of(history: Sequence[Event]) -> tuple[Wait, ...]:
    """Return the waits that a history tells of, in their order."""
    waits: list[Wait] = []
    for event in history:
        if event.kind in _OPENS:
            waits.append(Wait(event.name, event.recorded_at, event.payload.get("due_at")))
        elif event.kind in _CLOSES and waits and not waits[-1].verdict:
            last, verdict = waits[-1], _VERDICTS[event.kind]
            waits[-1] = Wait(last.name, last.begun_s, last.due_s, event.recorded_at, verdict)
    return tuple(waits)


def unread(history: Sequence[Event]) -> tuple[int, ...]:
    """Return the numbers of the signals that no wait has read."""
    read = {e.payload["signal_id"] for e in history if e.kind is EventKind.RECEIVED}
    signals = (event for event in history if event.kind is EventKind.SIGNAL)
    return tuple(event.seq for event in signals if event.payload["signal_id"] not in read)


def day_text(seconds: float) -> str:
    """Return a time as a reader says it.

    >>> day_text(3 * 86_400), day_text(3.5 * 86_400)
    ('day 3', 'day 3 12:00')
    """
    days, rest = divmod(round(seconds / 60), 24 * 60)
    return f"day {days}" + (f" {rest // 60:02}:{rest % 60:02}" if rest else "")


def event_text(event: Event, since_s: float = 0.0) -> str:
    """Return one line for an event: number, time, kind, name, and what it says."""
    name = "" if event.kind in {EventKind.ADMITTED, EventKind.COMPLETED} else event.name
    says = "" if event.kind in _COUNTED else _says(event, since_s)
    told = "  ".join(filter(None, (name, says)))
    return f"{event.seq:>2}  {day_text(event.recorded_at - since_s):<12}{event.kind:<10} {told}"


def events_table(history: Sequence[Event], caption: str = "") -> NumbersTable:
    """Return a history as a table; times are days since its first event."""
    since = history[0].recorded_at if history else 0.0
    rows: list[dict[str, Cell]] = [
        {
            "event": event.seq,
            "time": day_text(event.recorded_at - since),
            "kind": str(event.kind),
            "name": event.name,
            "says": _says(event, since),
        }
        for event in history
    ]
    return numbers_table(rows, caption)


def _says(event: Event, since_s: float) -> str:
    """Return what of an event decides something later: a due time, or a value."""
    payload = event.payload
    if payload.get("due_at") is not None:
        return f"due {day_text(payload['due_at'] - since_s)}"
    return "" if payload.get("result") is None else _short(payload["result"])


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={_short(item)}" for key, item in value.items())
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


# ---- the strip ---------------------------------------------------------------------------------

_W_IN, _LABEL_IN, _RIGHT_IN = 9.6, 1.32, 1.3
_LANE_IN, _BAR_IN, _AXIS_IN, _NOW_IN = 0.42, 0.24, 0.34, 0.3


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where a time stands on the sheet, in inches."""

    since_s: float
    until_s: float

    def x(self, at_s: float) -> float:
        width = _W_IN - _LABEL_IN - _RIGHT_IN
        return _LABEL_IN + (at_s - self.since_s) / (self.until_s - self.since_s) * width

    @property
    def days(self) -> int:
        return round((self.until_s - self.since_s) / DAY_S)


def _scale(history: Sequence[Event], waits: Sequence[Wait], now_s: float) -> _Scale:
    since = history[0].recorded_at
    times = [now_s, *(time for wait in waits for time in (wait.due_s, wait.ended_s) if time)]
    return _Scale(since, since + max(1, ceil((max(times) - since) / DAY_S)) * DAY_S)


def wait_strip(
    history: Sequence[Event], looks: Sequence[Look], now_s: float, title: str = ""
) -> Picture:
    """Draw who was there while a run waited: workers, waits and signals over the days.

    Args:
        history: the run's events.
        looks: when a worker came by.
        now_s: what the clock says.
        title: a line above the drawing.

    Raises:
        ValueError: there is no event.
    """
    if not history:
        raise ValueError("a run without an event has no strip. Next: start it first")
    waits, top = waits_of(history), 0.42 if title else 0.1
    height = top + _strip_height(len(waits))
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    sheet.text(0.12, height - 0.27, title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    _draw_strip(sheet, height - top, history, looks, now_s)
    return Picture(figure, _strip_alt(history, looks, now_s))


def _strip_height(lanes: int) -> float:
    return _NOW_IN + (lanes + 2) * _LANE_IN + _AXIS_IN


def _draw_strip(
    sheet: Axes,
    top: float,
    history: Sequence[Event],
    looks: Sequence[Look],
    now_s: float,
    *,
    lanes: int = 0,
) -> None:
    waits = waits_of(history)
    scale = _scale(history, waits, now_s)
    lanes = max(lanes, len(waits))
    first = top - _NOW_IN
    floor = first - (lanes + 2) * _LANE_IN
    _draw_days(sheet, scale, first, floor)
    _draw_workers(sheet, scale, first - _LANE_IN / 2, looks, now_s)
    for place, wait in enumerate(waits, 1):
        _draw_wait(sheet, scale, first - (place + 0.5) * _LANE_IN, wait, now_s)
    _draw_signals(sheet, scale, first - (lanes + 1.5) * _LANE_IN, history)
    _draw_now(sheet, scale.x(now_s), first, floor)


def _draw_days(sheet: Axes, scale: _Scale, first: float, floor: float) -> None:
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 365) if scale.days <= 11 * step)
    for day in range(0, scale.days + 1, step):
        x = scale.x(scale.since_s + day * DAY_S)
        sheet.plot([x, x], [floor, first], color=FAINT, linewidth=1.0, zorder=0)
        sheet.text(x, floor - 0.15, str(day), fontsize=SMALL_PT, color=SOFT_INK, ha="center")
    sheet.text(_W_IN - _RIGHT_IN + 0.18, floor - 0.15, "day", fontsize=SMALL_PT, color=SOFT_INK)


def _draw_workers(
    sheet: Axes, scale: _Scale, middle: float, looks: Sequence[Look], now_s: float
) -> None:
    _name_lane(sheet, middle, "a worker")
    ends = (scale.since_s, max(now_s, scale.since_s))
    sheet.plot([scale.x(end) for end in ends], [middle] * 2, color=FAINT, linewidth=1.4, zorder=0)
    for look in looks:
        busy = look.attempts > 0
        sheet.add_patch(
            Rectangle(
                (scale.x(look.at_s) - 0.045, middle - 0.15),
                0.09,
                0.3,
                facecolor=LIVE if busy else PAPER,
                edgecolor=LIVE if busy else WAITING,
                linewidth=1.3,
                zorder=4,
            )
        )


def _draw_wait(sheet: Axes, scale: _Scale, middle: float, wait: Wait, now_s: float) -> None:
    _name_lane(sheet, middle, wait.name if wait.name == "sleep" else f"wait: {wait.name}")
    end_s = now_s if wait.ended_s is None else wait.ended_s
    left, right = scale.x(wait.begun_s), scale.x(max(end_s, wait.begun_s))
    due = right if wait.due_s is None else scale.x(wait.due_s)
    bar: dict[str, Any] = {"edgecolor": WAITING, "linewidth": 1.3}
    if due > right:
        spot = (right, middle - _BAR_IN / 2)
        rest = Rectangle(spot, due - right, _BAR_IN, facecolor="none", linestyle=(0, (3, 2)), **bar)
        sheet.add_patch(rest)
    spot, width = (left, middle - _BAR_IN / 2), max(right - left, 0.02)
    sheet.add_patch(
        Rectangle(
            spot, width, _BAR_IN, facecolor="#E9EAEC", hatch="....", hatch_linewidth=0.4, **bar
        )
    )
    if due < right:  # nobody looked in time
        sides = [middle - _BAR_IN / 2, middle + _BAR_IN / 2]
        sheet.plot([due, due], sides, color=INK, linewidth=1.4, linestyle=(0, (2, 1)), zorder=2)
    words = wait.verdict or ("waits" if wait.due_s is None else f"until {day_text(wait.due_s)}")
    sheet.text(
        max(due, right) + 0.1,
        middle,
        words,
        fontsize=SMALL_PT,
        color=INK,
        va="center",
        fontweight="bold" if wait.verdict else "normal",
        bbox={"boxstyle": "round,pad=0.08", "facecolor": PAPER, "linewidth": 0},
        zorder=6,
    )


def _draw_signals(sheet: Axes, scale: _Scale, middle: float, history: Sequence[Event]) -> None:
    _name_lane(sheet, middle, "signals")
    left_over = unread(history)
    came = [event for event in history if event.kind in {EventKind.SIGNAL, EventKind.CANCEL}]
    places = [*(scale.x(event.recorded_at) for event in came), _W_IN]
    said = ""
    for event, x, following in zip(came, places, places[1:], strict=False):
        hollow = event.seq in left_over
        sheet.plot(
            [x],
            [middle],
            marker="D",
            markersize=9,
            markerfacecolor=PAPER if hollow else INK,
            markeredgecolor=INK,
            markeredgewidth=1.4,
            zorder=5,
        )
        told = " unread" if hollow else " cancel" if event.kind is EventKind.CANCEL else ""
        said += f"#{event.seq}{told}"
        if following - x < 0.16:  # one on top of the other: one text for both
            said += ", "
            continue
        room = said if following - x > 0.2 + 0.082 * len(said) else f"#{event.seq}"
        if following - x > 0.45:
            sheet.text(x + 0.12, middle, room, fontsize=SMALL_PT, color=INK, va="center", zorder=5)
        said = ""


def _draw_now(sheet: Axes, x: float, first: float, floor: float) -> None:
    sheet.plot([x, x], [floor, first + 0.04], color=INK, linewidth=1.6, zorder=3)
    words: dict[str, Any] = {"fontsize": SMALL_PT, "fontweight": "bold", "color": INK}
    sheet.text(x, first + 0.09, "now", ha="center", **words)


def _name_lane(sheet: Axes, middle: float, name: str) -> None:
    name = name if len(name) <= 15 else f"{name[:14]}…"
    sheet.text(0.12, middle, name, fontsize=TEXT_PT, fontweight="bold", color=INK, va="center")


def _strip_alt(history: Sequence[Event], looks: Sequence[Look], now_s: float) -> str:
    since, waits = history[0].recorded_at, waits_of(history)
    told = [f"It is {day_text(now_s - since)}."]
    for wait in waits:
        until = "" if wait.due_s is None else f", due {day_text(wait.due_s - since)}"
        end = "still waiting"
        if wait.ended_s is not None:
            end = f"{wait.verdict} on {day_text(wait.ended_s - since)}"
        told.append(f"Wait for {wait.name} from {day_text(wait.begun_s - since)}{until}: {end}.")
    busy = [day_text(look.at_s - since) for look in looks if look.attempts]
    told.append(f"A worker had something to do on {', '.join(busy) or 'no day'}, and only then.")
    left = ", ".join(f"#{seq}" for seq in unread(history))
    return " ".join(told) + (f" Signals that nobody has read: {left}." if left else "")


# ---- the desk ----------------------------------------------------------------------------------

_LINE_IN, _HEAD_IN, _SPLIT_IN = 0.25, 0.4, 5.75


def desk_picture(
    title: str,
    history: Sequence[Event],
    looks: Sequence[Look],
    now_s: float,
    outside: Sequence[str],
    *,
    known: int = 0,
    lanes: int = 2,
    lines: int = 12,
) -> Picture:
    """Draw the strip, and under it the journal and what has reached the world outside.

    Args:
        title: a line above the drawing.
        history: the run's events.
        looks: when a worker came by.
        now_s: what the clock says.
        outside: what has reached the outside world.
        known: how many events there were before; those after them are marked as new.
        lanes: for how many waits there is room; more make the drawing taller.
        lines: for how many events there is room; of more the last ones are shown.
    """
    lanes = max(lanes, len(waits_of(history)))
    strip, panes = _strip_height(lanes), _HEAD_IN + lines * _LINE_IN + 0.1
    height = 0.42 + strip + panes + 0.16
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    sheet.text(0.12, height - 0.27, title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    _draw_strip(sheet, height - 0.42, history, looks, now_s, lanes=lanes)
    top, base = panes + 0.08, 0.08
    _draw_pane(sheet, (0.12, base, _SPLIT_IN, top), ("journal", "survives the worker"), REPLAYED)
    _draw_pane(sheet, (_SPLIT_IN + 0.14, base, _W_IN - 0.12, top), ("outside", "not ours"), INK)
    since = history[0].recorded_at
    first = top - _HEAD_IN - _LINE_IN / 2
    for place, event in enumerate(history[-lines:]):
        if event.seq > known:
            _mark_new(sheet, first - place * _LINE_IN)
        _write(sheet, 0.24, first - place * _LINE_IN, event_text(event, since), 64)
    for place, line in enumerate(outside[-lines:]):
        _write(sheet, _SPLIT_IN + 0.26, first - place * _LINE_IN, line, 44)
    new = len(history) - known
    grew = f" The journal has {len(history)} events, {new} of them new."
    return Picture(figure, f"{title}. {_strip_alt(history, looks, now_s)}{grew}")


def _draw_pane(
    sheet: Axes, spot: tuple[float, float, float, float], head: tuple[str, str], colour: str
) -> None:
    left, base, right, top = spot
    style = "round,pad=0,rounding_size=0.07"
    frame: dict[str, Any] = {"facecolor": PAPER, "edgecolor": colour, "linewidth": 1.5, "zorder": 0}
    sheet.add_patch(FancyBboxPatch((left, base), right - left, top - base, boxstyle=style, **frame))
    words: dict[str, Any] = {"va": "center", "color": INK}
    sheet.text(left + 0.12, top - 0.2, head[0], fontsize=TEXT_PT, fontweight="bold", **words)
    words |= {"ha": "right", "color": SOFT_INK}
    sheet.text(right - 0.1, top - 0.2, head[1], fontsize=SMALL_PT, **words)


def _mark_new(sheet: Axes, middle: float) -> None:
    spot, width = (0.18, middle - _LINE_IN / 2), _SPLIT_IN - 0.24
    sheet.add_patch(
        Rectangle(spot, width, _LINE_IN, facecolor=LIVE_TINT, edgecolor="none", zorder=0.5)
    )
    words: dict[str, Any] = {"fontsize": SMALL_PT, "fontweight": "bold", "color": INK}
    sheet.text(_SPLIT_IN - 0.14, middle, "new", ha="right", va="center", **words)


def _write(sheet: Axes, x: float, y: float, line: str, longest: int) -> None:
    text = line if len(line) <= longest else f"{line[: longest - 1]}…"
    sheet.text(x, y, text, fontsize=SMALL_PT, family="monospace", color=INK, va="center")


# ---- the race ----------------------------------------------------------------------------------


def race_picture(due_s: float, cases: Sequence[tuple[float, float, str]]) -> Picture:
    """Draw one wait again and again: when the signal came, when a worker looked, who won.

    Args:
        due_s: when the wait times out.
        cases: for each the second at which the signal was recorded, the second at which a worker
            looked, and the kind of event that was recorded as the verdict.
    """
    height = 0.72 + len(cases) * _LANE_IN + _AXIS_IN
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    title = f"One wait, due {day_text(due_s)}: who wins?"
    sheet.text(0.12, height - 0.27, title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    _draw_race_key(sheet, height - 0.22)
    scale = _Scale(0.0, ceil(max(look for _, look, _ in cases) / DAY_S) * DAY_S)
    first = height - 0.72
    floor = first - len(cases) * _LANE_IN
    _draw_days(sheet, scale, first, floor)
    due = scale.x(due_s)
    sheet.plot([due, due], [floor, first + 0.04], color=INK, linewidth=1.4, linestyle=(0, (4, 2)))
    words: dict[str, Any] = {"fontsize": SMALL_PT, "fontweight": "bold", "color": INK}
    sheet.text(due, first + 0.09, "due", ha="center", **words)
    for place, (came, looked, verdict) in enumerate(cases):
        _draw_case(sheet, scale, first - (place + 0.5) * _LANE_IN, (came, looked), verdict)
    told = "; ".join(
        f"signal {day_text(came)}, worker {day_text(looked)}: {verdict.replace('_', ' ')}"
        for came, looked, verdict in cases
    )
    return Picture(figure, f"{title} {told}.")


def _draw_race_key(sheet: Axes, middle: float) -> None:
    words: dict[str, Any] = {"fontsize": SMALL_PT, "color": SOFT_INK, "va": "center"}
    for x, face, told in ((4.85, INK, "signal, it won"), (6.35, PAPER, "signal, too late")):
        sheet.plot(
            [x], [middle], marker="D", markersize=8, markerfacecolor=face, markeredgecolor=INK
        )
        sheet.text(x + 0.15, middle, told, **words)
    sheet.add_patch(Rectangle((7.94, middle - 0.1), 0.07, 0.2, facecolor=LIVE, edgecolor=LIVE))
    sheet.text(8.1, middle, "a worker looks", **words)


def _draw_case(
    sheet: Axes, scale: _Scale, middle: float, times: tuple[float, float], verdict: str
) -> None:
    came, looked = map(scale.x, times)
    line: dict[str, Any] = {"markeredgecolor": INK, "markeredgewidth": 1.3, "zorder": 5}
    sheet.plot([scale.x(0.0), looked], [middle] * 2, color=WAITING, linewidth=1.2)
    won = verdict == EventKind.RECEIVED
    face = INK if won else PAPER
    sheet.plot([came], [middle], marker="D", markersize=9, markerfacecolor=face, **line)
    spot = (looked - 0.045, middle - 0.15)
    sheet.add_patch(
        Rectangle(spot, 0.09, 0.3, facecolor=LIVE, edgecolor=LIVE, linewidth=1.3, zorder=4)
    )
    words: dict[str, Any] = {"fontsize": SMALL_PT, "color": INK, "va": "center"}
    sheet.text(0.12, middle, f"signal: day {times[0] / DAY_S:g}", **words)
    sheet.text(
        _W_IN - 0.1, middle, verdict.replace("_", " "), ha="right", fontweight="bold", **words
    )
