"""The figure of the experiment with real kills: what was measured against what theory expects.

Guarantees a `Picture` whose alt text states the finding in the numbers that were drawn. A strategy
has its name beside its row; measured and exact differ by shape. Leaves to others: the experiment.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from durable_mini.lab.experiment import ChaosReport, StrategyOutcome
from durable_mini.lab.pictures import (
    FAILURE,
    FAINT,
    INK,
    LIVE,
    PAPER,
    REPLAYED,
    SMALL_PT,
    SOFT_INK,
    TEXT_PT,
    WAITING,
    Picture,
    blank_figure,
    quiet_axes,
)

_COLOURS = {"restart": FAILURE, "queue": WAITING, "journal": REPLAYED, "journal+key": LIVE}
_TITLES = {"cost": "Cost per run", "restarts": "Kills per run", "duplicates": "Duplicate effects"}
_BAND = 0.34  # the height of the band of theory, in rows


def chaos_figure(report: ChaosReport) -> Picture:
    """Draw cost, kills and duplicates of each strategy beside their closed forms.

    Args:
        report: what `chaos` returned. Where theory expects nothing, only what was measured is
            drawn.
    """
    rows = len(report.strategies)
    figure = blank_figure(9.6, 1.4 + 0.55 * rows)
    panels = figure.subplots(1, len(_TITLES))
    bottom = 0.78 / figure.get_figheight()
    figure.subplots_adjust(left=0.105, right=0.985, top=0.88, bottom=bottom, wspace=0.12)
    for axes, (what, title) in zip(panels, _TITLES.items(), strict=True):
        _draw_panel(axes, what, title, report.strategies)
    panels[0].set_yticks(range(rows), [outcome.strategy for outcome in report.strategies])
    panels[0].tick_params(axis="y", labelsize=TEXT_PT, labelcolor=INK, length=0)
    _draw_key(figure, report)
    return Picture(figure, _alt(report))


def _draw_panel(axes: Axes, what: str, title: str, outcomes: tuple[StrategyOutcome, ...]) -> None:
    quiet_axes(axes, title)
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])
    axes.grid(axis="x", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    for row, outcome in enumerate(outcomes):
        _draw_row(axes, row, what, outcome)
    axes.set_ylim(len(outcomes) - 0.45, -0.62)
    axes.set_xlim(left=0, right=axes.get_xlim()[1] * 1.04 or 1)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


def _draw_row(axes: Axes, row: int, what: str, outcome: StrategyOutcome) -> None:
    measured, theory = outcome.measured()[what], outcome.expected.get(what)
    colour = _COLOURS[outcome.strategy]
    if theory is not None:
        band = theory.high - theory.low
        axes.barh(row, band, left=theory.low, height=_BAND, color=colour, alpha=0.28, linewidth=0)
        ends = [row - _BAND / 2, row + _BAND / 2]
        axes.plot([theory.mean] * 2, ends, color=INK, linewidth=1.6, solid_capstyle="butt")
    axes.plot(
        [measured],
        [row],
        "o",
        markersize=7.5,
        markerfacecolor=colour,
        markeredgecolor=INK,
        markeredgewidth=0.9,
        clip_on=False,
        zorder=4,
    )
    axes.annotate(
        _said(what, measured),
        (measured, row - _BAND / 2),
        xytext=(0, 2),
        textcoords="offset points",
        ha="left" if measured == 0 else "center",
        va="bottom",
        fontsize=TEXT_PT,
        color=INK,
    )


def _draw_key(figure: Figure, report: ChaosReport) -> None:
    point = Line2D([], [], linestyle="none", marker="o", markersize=7, color=SOFT_INK)
    point.set_markeredgecolor(INK)
    marks: list[tuple[Line2D | Patch, str]] = [(point, "measured")]
    if any(outcome.expected for outcome in report.strategies):
        exact = Line2D([], [], color=INK, linestyle="none", marker="|", markersize=11)
        exact.set_markeredgewidth(1.6)
        marks.append((exact, "exact"))
        band = f"where 95 % of experiments of {report.runs:,} runs fall"
        marks.append((Patch(facecolor=SOFT_INK, alpha=0.28), band))
    figure.legend(
        [mark for mark, _ in marks],
        [name for _, name in marks],
        loc="lower left",
        bbox_to_anchor=(0.09, -0.01),
        ncols=len(marks),
        columnspacing=2.2,
        frameon=False,
        fontsize=SMALL_PT,
        labelcolor=SOFT_INK,
    )
    figure.set_facecolor(PAPER)


def _said(what: str, value: float) -> str:
    return f"{value:,.0f}" if what == "duplicates" else f"{value:,.2f}"


def _alt(report: ChaosReport) -> str:
    """The finding, in numbers."""
    rate = report.crash_rate
    how = "at random times" if rate is None else f"at a crash rate of {rate:g} per live step"
    parts = [f"Real worker processes killed {how}, {report.runs:,} runs of each strategy."]
    for outcome in report.strategies:
        numbers = []
        for what, measured in outcome.measured().items():
            theory = outcome.expected.get(what)
            beside = f" (exact {theory.mean:,.2f})" if theory else ""
            numbers.append(f"{_TITLES[what].lower()} {_said(what, measured)}{beside}")
        parts.append(f"{outcome.strategy}: {', '.join(numbers)}.")
    return " ".join(parts)
