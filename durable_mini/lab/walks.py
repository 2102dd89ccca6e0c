"""Runs to walk through in a chapter, one durable call after another, forwards and backwards.

Guarantees: every pause is taken from a real attempt on the real engine, while the workflow stands
at that line: the variables are those of its own stack frame, the rows are read from the journal.
Leaves to others: buttons and keys (`widgets.StepThrough`).
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, TypeAlias

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from durable_mini.context import Context
from durable_mini.engine import Engine
from durable_mini.events import Event, EventKind, Position
from durable_mini.journal.memory import MemoryJournal
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.lab.pictures import (
    FAILURE,
    FAILURE_INK,
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
from durable_mini.lab.widgets import StepThrough, choice
from durable_mini.structure import workflow

State: TypeAlias = Literal["live", "replayed", "dead", "ended"]

NEVER = "never"
_RUN_ID = "t-1"
_DURABLE = frozenset({"step", "effect", "now", "random", "uuid"})


@dataclass(frozen=True, slots=True)
class Pause:
    """A run at one moment: about to make a durable call, just killed, or at its end.

    Args:
        attempt: which attempt, from 1.
        state: what becomes of the call ("live": executed, "replayed": answered from the journal),
            or "dead", or "ended".
        call: the name of the durable call that it stands at; empty at the end.
        seq: the event that this call is, or will be; None where no call is made.
        line: the line of the workflow that it stands at, from 1; None where no code runs.
        code: the workflow's source.
        variables: the workflow's local variables; None once the process is dead.
        journal: the recorded events.
        outside: what has reached the outside world.
        sentence: what happens here.
    """

    attempt: int
    state: State
    call: str
    seq: int | None
    line: int | None
    code: tuple[str, ...]
    variables: tuple[str, ...] | None
    journal: tuple[str, ...]
    outside: tuple[str, ...]
    sentence: str


def replay_walk(fn: Callable[..., Any], value: Any, outside: list[Any]) -> StepThrough[Pause]:
    """Let the reader step through a run of `fn`, killed before the call of their choice.

    It opens where the second attempt begins, the process being new and the journal not.

    Args:
        fn: a workflow function without `@workflow`, so that a chapter can show it as it is.
        value: its input.
        outside: the list in which the world notes what reaches it; emptied for each run.
    """
    whole = replay_pauses(fn, value, outside)
    calls = [pause.call for pause in whole if pause.state == "live"]
    killed_at = len(calls) // 2
    crash = choice("crash", "killed before", [*calls, NEVER])
    crash.value = calls[killed_at]
    rows = len(whole[-1].journal)
    return StepThrough(
        lambda values: replay_pauses(fn, value, outside, crash_before=values["crash"]),
        lambda pause: replay_picture(pause, rows=rows),
        lambda pause: pause.sentence,
        choices=[crash],
        start=killed_at + 3,  # the calls that went well, the fatal one, the dead process, and on
    )


def replay_pauses(
    fn: Callable[..., Any], value: Any, outside: list[Any], *, crash_before: str = NEVER
) -> list[Pause]:
    """Run `fn` on the engine, kill it once before a named call, resume it, and note each moment.

    Args:
        fn: a workflow function without `@workflow`.
        value: its input.
        outside: the list in which the world notes what reaches it; emptied first.
        crash_before: the step or effect before whose work the process dies.

    Raises:
        ValueError: the run doesn't complete, or a durable call was made outside of `fn` itself.
    """
    outside.clear()
    camera = _Camera(fn, outside)

    @workflow(name=fn.__name__, version="1")
    def watched(ctx: Context, given: Any) -> Any:
        camera.begin(ctx)
        return fn(_Noting(ctx, camera), given)

    probe = None if crash_before == NEVER else CrashAt(crash_before, Position.BEFORE)
    engine = Engine(MemoryJournal(), [watched], probe=probe)
    camera.history = lambda: engine.history(_RUN_ID)
    engine.start(watched, value, run_id=_RUN_ID)
    try:
        run = engine.resume(_RUN_ID)
    except InjectedCrash:
        camera.take_dead()
        run = engine.resume(_RUN_ID)
    if run.error is not None:
        raise ValueError(f"the run doesn't complete: {run.error.type}: {run.error.message}")
    camera.take_ended(run.result)
    return camera.pauses


class _Noting:
    """A context that lets a camera look at the workflow before each durable call."""

    def __init__(self, ctx: Context, camera: _Camera) -> None:
        self._ctx, self._camera = ctx, camera

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._ctx, attribute)
        if attribute not in _DURABLE:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._camera.take_call(args[0] if args else attribute, sys._getframe(1))
            return found(*args, **kwargs)

        return call


class _Camera:
    """Takes the pauses of one run."""

    def __init__(self, fn: Callable[..., Any], outside: list[Any]) -> None:
        self.pauses: list[Pause] = []
        self.history: Callable[[], Sequence[Event]] = tuple
        self._outside = outside
        self._frame_code = fn.__code__
        self._source = tuple(textwrap.dedent(inspect.getsource(fn)).rstrip().splitlines())
        self._ctx: Context | None = None
        self._asked = 0

    def begin(self, ctx: Context) -> None:
        """A new attempt begins: a new context, and nothing asked of it yet."""
        self._ctx, self._asked = ctx, 0

    def take_call(self, call: str, frame: FrameType | None) -> None:
        """Note the workflow as it stands at a durable call, before anything comes of it."""
        while frame is not None and frame.f_code is not self._frame_code:
            frame = frame.f_back
        if frame is None or self._ctx is None:
            raise ValueError(f"{call!r} was not called in the workflow that is walked through")
        self._asked += 1
        seq = self._asked + 1  # event 1 is the admission
        line = frame.f_lineno - self._frame_code.co_firstlineno + 1
        state: State = "replayed" if self._ctx.replaying else "live"
        found = f"The journal has event {seq}: its result is handed out, nothing is executed."
        missing = f"The journal has no event {seq}: next comes its work, then its record."
        told = found if state == "replayed" else missing
        hidden = self._frame_code.co_varnames[0]  # the context: the engine's, not the workflow's
        variables = [f"{key} = {item!r}" for key, item in frame.f_locals.items() if key != hidden]
        sentence = f"line {line} asks for {call!r}. {told}"
        self._take(state, call, sentence, seq=seq, line=line, variables=tuple(variables))

    def take_dead(self) -> None:
        """Note what a killed process leaves behind."""
        call = self.pauses[-1].call
        sentence = (
            f"the process dies before the work of {call!r}. Its variables and its place in the "
            "code are gone; the journal and the world outside are as they were."
        )
        self._take("dead", call, sentence, variables=None)

    def take_ended(self, result: Any) -> None:
        """Note the run's end."""
        self._take("ended", "", f"the workflow returns {result!r}; the journal has the end.")

    def _take(
        self,
        state: State,
        call: str,
        sentence: str,
        *,
        seq: int | None = None,
        line: int | None = None,
        variables: tuple[str, ...] | None = (),
    ) -> None:
        attempt = self._ctx.attempt if self._ctx is not None else 0
        self.pauses.append(
            Pause(
                attempt,
                state,
                call,
                seq,
                line,
                self._source,
                variables,
                tuple(_row(event) for event in self.history()),
                tuple(f"{number}  {item}" for number, item in enumerate(self._outside, 1)),
                f"Attempt {attempt}: {sentence}",
            )
        )


def _row(event: Event) -> str:
    payload = event.payload
    value = payload["input"] if event.kind is EventKind.ADMITTED else payload.get("result")
    return f"{event.seq}  {event.kind} {event.name}: {value!r}"


# ---- the picture of a pause --------------------------------------------------------------------

_W_IN, _SPLIT_IN, _LINE_H_IN, _HEAD_H_IN, _GAP_IN = 9.6, 5.62, 0.25, 0.4, 0.14
_CHAR_W_IN = 0.0755  # a monospaced character of SMALL_PT

_TINTS = {"live": (LIVE_TINT, LIVE), "replayed": (REPLAYED_TINT, REPLAYED)}


@dataclass(frozen=True, slots=True)
class _Pane:
    """A framed list of lines: its heading, what becomes of it in a crash, where it stands."""

    heading: str
    fate: str
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


def replay_picture(pause: Pause, *, rows: int = 6) -> Picture:
    """Draw a pause: the process with code and variables above, what outlives it below.

    Args:
        pause: what to draw.
        rows: for how many journal rows there is room; the same number for every pause of a series.
    """
    above, below = max(len(pause.code), len(pause.variables or ())), max(rows, len(pause.journal))
    height = 0.5 + 2 * (_HEAD_H_IN + 0.08) + (above + below) * _LINE_H_IN + _GAP_IN + 0.1
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    sheet.text(0.12, height - 0.26, _title(pause), fontsize=TITLE_PT, fontweight="bold", color=INK)
    left, middle, right = 0.12, _SPLIT_IN, _W_IN - 0.12
    code = _Pane("workflow code", "one line after the other", left, middle, height - 0.5, above)
    memory = _Pane(
        "variables", "die with the process", middle + _GAP_IN, right, height - 0.5, above
    )
    top = code.base - _GAP_IN
    journal = _Pane("journal", "survives", left, middle, top, below)
    outside = _Pane("outside world", "not ours", middle + _GAP_IN, right, top, below)
    dead = pause.state == "dead"
    _draw_pane(sheet, code, pause.code, LIVE, faded=dead)
    _draw_pane(sheet, memory, pause.variables or (), LIVE, faded=dead)
    _draw_pane(sheet, journal, pause.journal, REPLAYED)
    _draw_pane(sheet, outside, pause.outside, INK)
    if dead:
        _draw_death(sheet, memory)
    _draw_marks(sheet, pause, code, journal)
    return Picture(figure, f"{pause.sentence} {_counts(pause)}")


def _title(pause: Pause) -> str:
    what = {
        "live": f"{pause.call} is not in the journal, so it goes live",
        "replayed": f"{pause.call} is in the journal, so it is replayed",
        "dead": f"killed before {pause.call}",
        "ended": "the run is completed",
    }[pause.state]
    return f"attempt {pause.attempt}: {what}"


def _counts(pause: Pause) -> str:
    counted = [
        f"{number} {what}{'' if number == 1 else 's'}"
        for number, what in (
            (len(pause.variables or ()), "variable"),
            (len(pause.journal), "event"),
            (len(pause.outside), "request"),
        )
    ]
    return f"Now: {counted[0]}, {counted[1]} in the journal, {counted[2]} outside."


def _draw_pane(
    sheet: Axes, pane: _Pane, lines: Sequence[str], colour: str, *, faded: bool = False
) -> None:
    sheet.add_patch(
        FancyBboxPatch(
            (pane.left, pane.base),
            pane.right - pane.left,
            pane.top - pane.base,
            boxstyle="round,pad=0,rounding_size=0.07",
            facecolor=PAPER,
            edgecolor=WAITING if faded else colour,
            linewidth=1.5,
            linestyle=(0, (3, 2)) if faded else "-",
            zorder=0,
        )
    )
    head = pane.top - 0.2
    sheet.text(
        pane.left + 0.12, head, pane.heading, fontsize=TEXT_PT, fontweight="bold", va="center"
    )
    sheet.text(
        pane.right - 0.1,
        head,
        pane.fate,
        fontsize=SMALL_PT,
        color=SOFT_INK,
        va="center",
        ha="right",
    )
    longest = int((pane.right - pane.left - 0.2) / _CHAR_W_IN)
    for number, line in enumerate(lines):
        sheet.text(
            pane.left + 0.12,
            pane.middle(number),
            line if len(line) <= longest else line[: longest - 1] + "…",
            fontsize=SMALL_PT,
            family="monospace",
            color=WAITING if faded else INK,
            va="center",
        )


def _draw_marks(sheet: Axes, pause: Pause, code: _Pane, journal: _Pane) -> None:
    """Mark the line that the workflow stands at, and the event that answers it or will be there."""
    if pause.line is None or pause.seq is None:
        return
    replayed = pause.state == "replayed"
    _draw_band(sheet, code, pause.line - 1, pause.state, "replayed" if replayed else "live")
    word = "handed out" if replayed else "comes here"
    _draw_band(sheet, journal, pause.seq - 1, pause.state, word, there=replayed)


def _draw_band(
    sheet: Axes, pane: _Pane, number: int, state: State, word: str, *, there: bool = True
) -> None:
    tint, ink = _TINTS[state]
    face, middle = tint if there else PAPER, pane.middle(number)
    sheet.add_patch(
        Rectangle(
            (pane.left + 0.06, middle - _LINE_H_IN / 2),
            pane.right - pane.left - 0.12,
            _LINE_H_IN,
            facecolor=face,
            edgecolor=ink,
            linewidth=1.2,
            linestyle="-" if there else (0, (3, 2)),
            zorder=0.5,
        )
    )
    sheet.text(
        pane.right - 0.14,
        middle,
        word,
        fontsize=SMALL_PT,
        fontweight="bold",
        color=INK,
        ha="right",
        va="center",
        bbox={"boxstyle": "round,pad=0.1", "facecolor": face, "linewidth": 0},
    )


def _draw_death(sheet: Axes, pane: _Pane) -> None:
    x, y = (pane.left + pane.right) / 2, (pane.base + pane.top - _HEAD_H_IN) / 2
    sheet.plot(
        [x],
        [y + 0.12],
        marker="X",
        markersize=15,
        markerfacecolor=FAILURE,
        markeredgecolor=PAPER,
        linestyle="none",
    )
    sheet.text(
        x, y - 0.18, "the process is dead", fontsize=SMALL_PT, color=FAILURE_INK, ha="center"
    )
