"""Drawings of workers on one run: who did what when, a lease that ends, how long one should be.

Guarantees: nothing is told by colour alone. A worker that holds a run is a solid bar, a paused one
a dotted bar, one that has lost it a crossed bar; a refused write is an arrow that ends in a cross
before its goal. A night is drawn in the order in which things happened, not to scale: the same
story gives the same bytes. Leaves to others: what is drawn (`zombie`, `leases`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

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
    quiet_axes,
)


class Happening(Protocol):
    """One thing that happened on a stage, such as a `zombie.Act`."""

    @property
    def who(self) -> str: ...
    @property
    def verb(self) -> str: ...
    @property
    def what(self) -> str: ...
    @property
    def more(self) -> str: ...


# ---- a night of workers ------------------------------------------------------------------------

_W_IN, _ROW_IN, _HEAD_IN, _KEY_IN = 9.6, 0.285, 0.8, 0.42
_BAR_IN, _TOKEN_IN = 0.17, 0.3
_QUIET = frozenset({"ends"})
_FROM_OUTSIDE = frozenset({"is paused", "wakes up", "is told to stop", "is killed"})


@dataclass(frozen=True, slots=True)
class _Stage:
    """Where the lanes stand, in inches, and what row each thing is in."""

    workers: Mapping[str, float]
    journal: float
    outside: float

    @classmethod
    def of(cls, names: Sequence[str]) -> _Stage:
        if len(names) < 3:
            places = [1.15, 8.45]
            return cls(dict(zip(names, places, strict=False)), 3.75, 6.1)
        left, first, last = 1.0, 6.75, 8.75
        step = (last - first) / (len(names) - 2)
        right = [first + step * number for number in range(len(names) - 1)]
        return cls(dict(zip(names, [left, *right], strict=True)), 3.1, 5.1)

    def side(self, name: str) -> int:
        """The side of a worker's lane that faces journal and outside: 1 for its right."""
        return 1 if self.workers[name] < self.journal else -1


@dataclass(slots=True)
class _Bar:
    """A stretch of a worker's lane: it holds the run, is paused, or has lost it."""

    state: str
    begins: float
    ends: float = 0.0


@dataclass(slots=True)
class _Lane:
    bars: list[_Bar] = field(default_factory=list)
    lost: bool = False

    def turn(self, state: str | None, at: float) -> None:
        """End the stretch that is open and begin another one."""
        if self.bars and not self.bars[-1].ends:
            self.bars[-1].ends = at
        if state is not None:
            self.bars.append(_Bar(state, at))


def stage_picture(story: Sequence[Happening], title: str = "", outside: str = "outside") -> Picture:
    """Draw what happened on a stage, from top to bottom: workers, journal, the world outside.

    Args:
        story: in order; `zombie.Stage.story` gives it.
        title: a line above the drawing.
        outside: what the lane of the outside world is called.

    Raises:
        ValueError: nothing happened.
    """
    if not story:
        raise ValueError("there is no story to draw. Next: call a worker to the stage first")
    drawn = [act for act in story if act.verb not in _QUIET]
    names = list(dict.fromkeys(act.who for act in story))
    height = _HEAD_IN + (len(drawn) + 0.5) * _ROW_IN + _KEY_IN + (0 if title else -0.32)
    figure = blank_figure(_W_IN, height)
    sheet = bare_axes(figure, _W_IN, height)
    sheet.text(0.12, height - 0.27, title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    stage = _Stage.of(names)
    top = height - _HEAD_IN - (0 if title else -0.32)
    floor = _KEY_IN + 0.02
    heads = {**stage.workers, "journal": stage.journal}
    for name, x in {**heads, outside: stage.outside}.items():
        known = f"worker {name}" if name in stage.workers and len(name) == 1 else name
        sheet.text(
            x, top + 0.12, known, fontsize=TEXT_PT, fontweight="bold", color=INK, ha="center"
        )
        sheet.plot([x, x], [floor, top + 0.04], color=FAINT, linewidth=1.6, zorder=0)
    _draw_bars(sheet, stage, story, drawn, top)
    _draw_tokens(sheet, stage.journal, drawn, top, floor)
    asked = set[str]()
    for number, act in enumerate(drawn):
        _draw_act(sheet, stage, act, top - (number + 0.55) * _ROW_IN, again=act.what in asked)
        asked |= {act.what} if act.verb == "asks" else set()
    _draw_key(sheet)
    return Picture(figure, _stage_alt(story, title))


def _draw_bars(
    sheet: Axes, stage: _Stage, story: Sequence[Happening], drawn: Sequence[Happening], top: float
) -> None:
    lanes = {name: _Lane() for name in stage.workers}
    number = 0
    for act in story:
        at = top - (number + 0.55) * _ROW_IN
        _follow(lanes, act, at)
        number += act.verb not in _QUIET
    floor = top - (len(drawn) + 0.1) * _ROW_IN
    for name, lane in lanes.items():
        lane.turn(None, floor)
        for bar in lane.bars:
            _draw_bar(sheet, stage.workers[name], bar)


def _follow(lanes: Mapping[str, _Lane], act: Happening, at: float) -> None:
    """Note what an act means for the workers' lanes."""
    own = lanes[act.who]
    if act.verb == "claims":
        for name, lane in lanes.items():
            lane.lost |= name != act.who
        own.lost = False
        own.turn("holds", at)
    elif act.verb == "is paused":
        own.turn("paused", at)
    elif act.verb == "wakes up":
        own.turn("lost" if own.lost else "holds", at)
    elif act.verb in {"is killed", "is locked out"} or _ends(act):
        own.turn(None, at - 0.1)
    elif act.verb == "ends":
        own.turn(None, at + 0.1)  # after the row before it


def _ends(act: Happening) -> bool:
    """Whether a worker is done with the run; `more` is the token that the run has then."""
    ended = act.verb == "records" and act.what in {"completed", "failed"}
    return ended or act.verb in {"gives back", "gives up"}


def _draw_bar(sheet: Axes, x: float, bar: _Bar) -> None:
    face, edge, hatch = {
        "holds": (LIVE_TINT, LIVE, ""),
        "paused": ("#E9EAEC", WAITING, "...."),
        "lost": (FAILURE_TINT, FAILURE, "xxx"),
    }[bar.state]
    height = max(bar.begins - bar.ends, 0.02)
    spot = (x - _BAR_IN / 2, bar.ends)
    style: dict[str, Any] = {"hatch_linewidth": 0.5, "linewidth": 1.3}
    box = Rectangle(
        spot, _BAR_IN, height, facecolor=face, edgecolor=edge, hatch=hatch, zorder=1, **style
    )
    sheet.add_patch(box)


def _draw_tokens(
    sheet: Axes, x: float, drawn: Sequence[Happening], top: float, floor: float
) -> None:
    """Draw the journal's lane: which token is the run's, from when on."""
    changes, token = [(top + 0.02, 0)], 0
    for number, act in enumerate(drawn):
        at = top - (number + 0.55) * _ROW_IN
        if act.verb == "claims":
            token = int(act.what)
        elif _ends(act):
            token = int(act.more)
        if token != changes[-1][1]:
            changes.append((at, token))
    ends = [at for at, _ in changes[1:]] + [floor]
    for place, ((begins, number), end) in enumerate(zip(changes, ends, strict=True)):
        tint = REPLAYED_TINT if place % 2 else PAPER
        spot = (x - _TOKEN_IN / 2, end)
        sheet.add_patch(
            Rectangle(
                spot,
                _TOKEN_IN,
                begins - end,
                facecolor=tint,
                edgecolor=REPLAYED,
                linewidth=1.2,
                zorder=1,
            )
        )
        words: dict[str, Any] = {"fontsize": SMALL_PT, "fontweight": "bold", "color": INK}
        words |= {"bbox": {"boxstyle": "round,pad=0.1", "facecolor": tint, "linewidth": 0}}
        if number:
            middle = (begins + end) / 2
            sheet.text(x, middle, str(number), ha="center", va="center", zorder=6, **words)


def _draw_act(sheet: Axes, stage: _Stage, act: Happening, y: float, *, again: bool) -> None:
    x, side = stage.workers[act.who], stage.side(act.who)
    begins = x + side * _BAR_IN / 2
    if act.verb in {"claims", "records", "is refused"} or _ends(act):
        said = _said(act)
        goal = stage.journal - side * _TOKEN_IN / 2
        _draw_arrow(sheet, begins, goal, y, said, refused=act.verb == "is refused")
    elif act.verb in {"asks", "is turned away"}:
        said = f"{act.what}{', again' if again else ''}"
        _draw_arrow(
            sheet, begins, stage.outside, y, said, refused=act.verb == "is turned away", ends=True
        )
    else:
        bold = act.verb in _FROM_OUTSIDE or act.verb == "is locked out"
        sheet.text(
            x + side * 0.2,
            y,
            _told(act),
            fontsize=SMALL_PT,
            fontweight="bold" if bold else "normal",
            color=INK,
            ha="left" if side > 0 else "right",
            va="center",
            zorder=6,
        )
        if bold:
            _draw_mark(sheet, act.verb, x, y)


def _said(act: Happening) -> str:
    if act.verb == "claims":
        return f"claims: token {act.what}"
    if act.verb == "is refused":
        return f"{act.what}: refused"
    return f"{act.verb} {act.what}"


def _draw_arrow(
    sheet: Axes,
    begins: float,
    goal: float,
    y: float,
    said: str,
    *,
    refused: bool,
    ends: bool = False,
) -> None:
    """Draw an arrow with its words above it; a refused one stops in a cross before its goal."""
    side = 1 if goal > begins else -1
    tip = goal - side * (0.16 if refused else 0.0)
    colour = FAILURE if refused else INK
    sheet.plot([begins, tip], [y - 0.07] * 2, color=colour, linewidth=1.2, zorder=3)
    marker = "X" if refused else ">" if side > 0 else "<"
    place = tip if refused else tip - side * (0.1 if ends else 0.05)
    sheet.plot(
        [place],
        [y - 0.07],
        marker=marker,
        markersize=10 if refused else 6,
        markerfacecolor=colour,
        markeredgecolor=PAPER if refused else colour,
        markeredgewidth=1.0,
        linestyle="none",
        zorder=5,
    )
    if ends:
        sheet.plot([goal], [y - 0.07], marker="D", markersize=6, color=INK, zorder=4)
    sheet.text(
        begins + side * 0.1,
        y - 0.035,
        said,
        fontsize=SMALL_PT,
        fontweight="bold" if refused else "normal",
        color=FAILURE_INK if refused else INK,
        ha="left" if side > 0 else "right",
        va="bottom",
        zorder=6,
    )


def _draw_mark(sheet: Axes, verb: str, x: float, y: float) -> None:
    marker = {"is paused": "s", "wakes up": "^", "is told to stop": "v"}.get(verb, "X")
    failed = marker == "X"
    sheet.plot(
        [x],
        [y],
        marker=marker,
        markersize=11 if failed else 8,
        markerfacecolor=FAILURE if failed else INK,
        markeredgecolor=PAPER,
        markeredgewidth=1.0,
        linestyle="none",
        zorder=5,
    )


def _draw_key(sheet: Axes) -> None:
    words: dict[str, Any] = {"fontsize": SMALL_PT, "color": SOFT_INK, "va": "center"}
    x = 0.2
    for state, told, room in (
        ("holds", "holds the run", 1.55),
        ("paused", "paused", 1.1),
        ("lost", "runs, and has lost it", 1.95),
    ):
        _draw_bar(sheet, x, _Bar(state, 0.31, 0.1))
        sheet.text(x + 0.17, 0.2, told, **words)
        x += room
    spot = (x - 0.09, 0.1)
    sheet.add_patch(
        Rectangle(spot, 0.2, 0.21, facecolor=REPLAYED_TINT, edgecolor=REPLAYED, linewidth=1.2)
    )
    sheet.text(x + 0.21, 0.2, "the run's fencing token; time goes down, not to scale", **words)


def _told(act: Happening) -> str:
    special = {"claims": f"claims with token {act.what}", "does": "asks the model"}
    return special.get(act.verb, f"{act.verb} {act.what}".strip())


def _stage_alt(story: Sequence[Happening], title: str) -> str:
    turns: list[tuple[str, list[str]]] = []
    for act in story:
        if act.verb in _QUIET:
            continue
        if not turns or turns[-1][0] != act.who:
            turns.append((act.who, []))
        turns[-1][1].append(_told(act))
    told = " ".join(f"{who} {', '.join(acts)}." for who, acts in turns)
    refused = sum(act.verb in {"is refused", "is turned away"} for act in story)
    found = f"Refused writes: {refused}." if refused else "Nothing was refused."
    return f"{title}: {told} {found}" if title else f"{told} {found}"


# ---- one lease ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lapse:
    """One lease that runs out, in seconds: heartbeats, the death, when others looked, who took it.

    `taken_s` is the look at which the lease was over.
    """

    beats_s: Sequence[float]
    lease_s: float
    died_s: float
    looks_s: Sequence[float]

    @property
    def until_s(self) -> float:
        """When the lease ends."""
        return self.beats_s[-1] + self.lease_s

    @property
    def taken_s(self) -> float:
        """The first look that finds the lease over.

        Raises:
            ValueError: nobody looks after that.
        """
        found = [look for look in self.looks_s if look >= self.until_s]
        if not found:
            raise ValueError(f"nobody looks after second {self.until_s:g}, when the lease is over")
        return min(found)


def lapse_strip(lapse: Lapse, title: str = "") -> Picture:
    """Draw how a dead worker's run is found: heartbeats, the rest of the lease, the next look."""
    figure = blank_figure(_W_IN, 2.55)
    sheet = bare_axes(figure, _W_IN, 2.55)
    sheet.text(0.12, 2.28, title, fontsize=TITLE_PT, fontweight="bold", color=INK)
    since, until = lapse.beats_s[0], max(lapse.looks_s)
    left, right = 1.32, _W_IN - 0.3

    def x(at_s: float) -> float:
        return left + (at_s - since) / (until - since) * (right - left)

    _draw_lease(sheet, lapse, x)
    for name, y in (("worker A", 1.62), ("others look", 0.88)):
        sheet.text(0.12, y, name, fontsize=TEXT_PT, fontweight="bold", color=INK, va="center")
    for look in lapse.looks_s:
        taken = look == lapse.taken_s
        face = LIVE if taken else PAPER
        spot = (x(look) - 0.045, 0.73)
        sheet.add_patch(
            Rectangle(spot, 0.09, 0.3, facecolor=face, edgecolor=LIVE if taken else WAITING)
        )
    words: dict[str, Any] = {"fontsize": SMALL_PT, "color": INK, "ha": "center"}
    sheet.text(x(lapse.taken_s) + 0.12, 1.1, "taken over", fontweight="bold", **words)
    stands, y = lapse.taken_s - lapse.died_s, 0.36
    ends = [x(lapse.died_s), x(lapse.taken_s)]
    sheet.plot(ends, [y, y], color=INK, linewidth=1.6, marker="|", markersize=9)
    middle = sum(ends) / 2
    told = f"the run stands still for {stands:g} s"
    sheet.text(middle, y - 0.22, told, fontweight="bold", **words)
    return Picture(figure, _lapse_alt(lapse))


def _draw_lease(sheet: Axes, lapse: Lapse, x: Any) -> None:
    y, died = 1.62, x(lapse.died_s)
    begin = x(lapse.beats_s[0])
    sheet.add_patch(
        Rectangle((begin, y - 0.12), died - begin, 0.24, facecolor=LIVE_TINT, edgecolor=LIVE)
    )
    end = x(lapse.until_s)
    rest: dict[str, Any] = {"facecolor": "none", "edgecolor": WAITING, "linestyle": (0, (3, 2))}
    sheet.add_patch(Rectangle((died, y - 0.12), end - died, 0.24, **rest))
    for beat in lapse.beats_s:
        sheet.plot([x(beat)] * 2, [y - 0.2, y + 0.2], color=INK, linewidth=1.8, zorder=3)
    mark: dict[str, Any] = {"markerfacecolor": FAILURE, "markeredgecolor": PAPER, "zorder": 5}
    sheet.plot([died], [y], marker="X", markersize=14, linestyle="none", **mark)
    words: dict[str, Any] = {"fontsize": SMALL_PT, "color": INK}
    sheet.text(x(lapse.beats_s[-1]), y + 0.26, "last heartbeat", ha="center", **words)
    sheet.text(died + 0.14, y, "dead; its lease goes on", va="center", **words)
    sheet.plot([end, end], [y - 0.3, y + 0.2], color=INK, linewidth=1.4, linestyle=(0, (4, 2)))
    sheet.text(end, y + 0.26, "lease over", ha="center", fontweight="bold", **words)


def _lapse_alt(lapse: Lapse) -> str:
    return (
        f"A worker renews its lease of {lapse.lease_s:g} s at "
        f"{', '.join(f'{beat:g}' for beat in lapse.beats_s)} s and dies at {lapse.died_s:g} s. "
        f"The lease is over at {lapse.until_s:g} s; the next look, at {lapse.taken_s:g} s, takes "
        f"the run over. It stood still for {lapse.taken_s - lapse.died_s:g} s."
    )


# ---- how long a lease should be ----------------------------------------------------------------


class Span(NamedTuple):
    """A mean, and what it lies between."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LeaseCurves:
    """Recovery time and false takeovers over the length of the lease, and one setting of it.

    Args:
        lengths: of the lease, in seconds.
        recovery: how long a dead worker's run stands still, for each.
        takeovers: false ones per day, for each, by the kind of pauses; the chosen kind first.
        lease_s: the chosen length.
        exact: both at that length, by formula.
        played: both at that length, simulated, with their 95 % intervals.
    """

    lengths: Sequence[float]
    recovery: Sequence[Span]
    takeovers: Mapping[str, Sequence[float]]
    lease_s: float
    exact: tuple[Span, float]
    played: tuple[Span, Span]


_LEAST = 1e-3  # what happens less often than once in three years is drawn as this


def lease_figure(curves: LeaseCurves) -> Picture:
    """Draw how soon a dead worker's run goes on, and how often a live one loses it."""
    figure = blank_figure(_W_IN, 3.9)
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
    figure.subplots_adjust(left=0.075, right=0.975, top=0.86, bottom=0.245, wspace=0.24)
    _draw_recovery(left, curves)
    _draw_takeovers(right, curves)
    for axes in (left, right):
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(curves.lengths[0], curves.lengths[-1])
        axes.xaxis.set_major_locator(FixedLocator([0.5, 1, 2, 5, 10, 20, 60]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())  # hundreds of them would take half the time
        axes.set_xlabel("length of the lease, seconds", fontsize=SMALL_PT, color=SOFT_INK)
        axes.grid(color=FAINT, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.axvline(curves.lease_s, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=2)
    words = "line: exact; point: simulated, 95 % interval"
    figure.text(0.075, 0.045, words, fontsize=SMALL_PT, color=SOFT_INK)
    return Picture(figure, _lease_alt(curves))


def _draw_recovery(axes: Axes, curves: LeaseCurves) -> None:
    quiet_axes(axes, "A dead worker's run stands still, seconds")
    lows, highs = [[span[place] for span in curves.recovery] for place in (1, 2)]
    axes.fill_between(curves.lengths, lows, highs, color=REPLAYED_TINT, linewidth=0)
    means = [span.mean for span in curves.recovery]
    axes.plot(curves.lengths, means, color=REPLAYED, linewidth=2)
    axes.set_ylim(0.2, 100)
    axes.yaxis.set_major_locator(FixedLocator([0.5, 1, 2, 5, 10, 20, 50]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _draw_point(axes, curves.lease_s, curves.played[0], f"{curves.exact[0].mean:.3g} s", below=True)


def _draw_takeovers(axes: Axes, curves: LeaseCurves) -> None:
    quiet_axes(axes, "Live workers that lose their run, a day")
    for place, (tail, counts) in enumerate(curves.takeovers.items()):
        shown = [max(count, _LEAST / 10) for count in counts]
        style: dict[str, Any] = {"color": FAILURE, "linewidth": 2.2}
        if place:
            style = {"color": WAITING, "linewidth": 1.6, "linestyle": (0, (1, 1.2))}
        axes.plot(curves.lengths, shown, label=f"pauses {tail}", **style)
    top = max(10.0, *(max(counts) for counts in curves.takeovers.values()))
    axes.set_ylim(_LEAST, top * 3)
    axes.yaxis.set_major_locator(FixedLocator([10.0**power for power in range(-3, 7)]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.legend(
        loc="upper right",
        bbox_to_anchor=(1.03, -0.19),
        ncols=2,
        frameon=False,
        fontsize=SMALL_PT,
        labelcolor=INK,
        handlelength=1.7,
        columnspacing=1.2,
    )
    _draw_point(axes, curves.lease_s, curves.played[1], f"{curves.exact[1]:,.3g} a day")


def _draw_point(axes: Axes, x: float, played: Span, said: str, *, below: bool = False) -> None:
    """Draw the simulated value with its interval, and write the exact one beside it."""
    if played.mean > 0:
        arms = [[played.mean - max(played.low, _LEAST / 10)], [played.high - played.mean]]
        axes.errorbar([x], [played.mean], yerr=arms, fmt="none", ecolor=INK, capsize=4, zorder=4)
        axes.plot(
            [x],
            [played.mean],
            "o",
            markersize=7,
            markerfacecolor=PAPER,
            markeredgecolor=INK,
            markeredgewidth=1.6,
            zorder=5,
        )
    right = x < 18  # further on there is no room for the words
    below &= right
    axes.annotate(
        f"exact {said}",
        (x, played.low if below else played.high),
        xytext=(8 if right else -8, -18 if below else 8),
        textcoords="offset points",
        fontsize=TEXT_PT,
        fontweight="bold",
        color=INK,
        ha="left" if right else "right",
        bbox={"boxstyle": "round,pad=0.12", "facecolor": PAPER, "linewidth": 0, "alpha": 0.9},
        zorder=6,
    )


def _few(count: float) -> str:
    return f"less than {_LEAST:g}" if count < _LEAST else f"{count:,.2g}"


def _lease_alt(curves: LeaseCurves) -> str:
    stands, losses = curves.exact
    first, last = curves.recovery[0].mean, curves.recovery[-1].mean
    tail, counts = next(iter(curves.takeovers.items()))
    return (
        f"With a lease of {curves.lease_s:g} s a dead worker's run stands still for "
        f"{stands.mean:.3g} s on average, and {losses:.3g} live workers lose their run in a day. "
        f"From a lease of {curves.lengths[0]:.2g} s to one of {curves.lengths[-1]:.0f} s the wait "
        f"grows from {first:.2g} to {last:.0f} s, and the false takeovers, with pauses {tail}, "
        f"fall from {counts[0]:,.3g} to {_few(counts[-1])} a day."
    )
