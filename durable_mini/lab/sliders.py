"""The sliders of the course: every result regenerated through the real engine as the reader moves.

`results_slider` guarantees that each number it shows was simulated by the engine for exactly the
setting that its controls show, and stands beside its closed form and its 95 % interval. The same
setting always gives the same numbers. How a widget behaves (threads, progress, pages without a
kernel) is for `widgets` to say; predictions are in `predictions`; the names that chapters use can
all be imported from here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from durable_mini.lab.crashes import Weights
from durable_mini.lab.figures import results_figure
from durable_mini.lab.pictures import Picture, numbers_table
from durable_mini.lab.predictions import compare, explain, predict
from durable_mini.lab.results import DEFAULT_RATES, percent, second_seed
from durable_mini.lab.shape import Shape, StepSpec, shape_of
from durable_mini.lab.simulation import simulating
from durable_mini.lab.theory import STRATEGIES, Quantity, Result, exact
from durable_mini.lab.widgets import (
    Control,
    LivePicture,
    StepThrough,
    choice,
    slider,
    stepped_slider,
)

__all__ = [
    "LivePicture",
    "StepThrough",
    "choice",
    "compare",
    "explain",
    "predict",
    "results_slider",
    "slider",
    "stepped_slider",
]

RUN_STOPS = (50, 100, 200, 400, 1_000, 2_000, 4_000, 10_000, 20_000, 40_000)
"""Where the slider for the number of runs stops; its field takes what lies between."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything that a result depends on."""

    crash_rate: float
    runs: int
    seed: int
    weights: Weights
    shape: Shape


@dataclass(frozen=True, slots=True)
class ResultsFrame:
    """What the slider shows at one position; `by_rate` is filled in last."""

    setting: Setting
    by_strategy: tuple[Result, ...]
    picture: Picture
    by_rate: tuple[Result, ...] = ()


def results_slider() -> LivePicture[ResultsFrame]:
    """Return the slider of chapter 04: the figure and both results tables, simulated anew.

    Controls: crash rate, runs, steps, cost per LLM step, the weights of the three crash positions
    (they need not add up to anything), and the seed of the crash schedule.
    """
    known: dict[_Key, Result] = {}
    return LivePicture(
        _results_controls(),
        lambda values: _frames(setting_from(values), known),
        lambda frame: frame.picture,
        results_sentence,
        tables=results_tables,
    )


def setting_from(values: Mapping[str, Any]) -> Setting:
    """Return the setting that the controls' values stand for; weights are brought to a sum of 1.

    Raises:
        ValueError: when all three weights are zero.
    """
    parts = (values["before"], values["window"], values["after"])
    total = sum(parts)
    if total <= 0:
        raise ValueError("all three position weights are 0, so a crash could fall nowhere")
    before, window, after = (part / total for part in parts)
    return Setting(
        values["crash_rate"],
        values["runs"],
        values["seed"],
        (before, window, after),
        shape_of(values["steps"], values["llm_cost"]),
    )


def results_sentence(frame: ResultsFrame) -> str:
    """Say what the frame's three strategies cost, and how well simulated and exact agree."""
    setting, (restart, journal, keyed) = frame.setting, frame.by_strategy
    before, window, after = map(percent, setting.weights)
    steps = len(setting.shape)
    outside = [pair for pair in _pairs(frame) if not pair[1].low <= pair[0].mean <= pair[1].high]
    return (
        f"{steps} {'step' if steps == 1 else 'steps'}, crash rate {setting.crash_rate:g}, "
        f"{setting.runs:,} runs; "
        f"crashes fall {before} before the work, {window} in the crash window, {after} after the "
        f"journal write. A run costs {restart.cost.mean:.2f} when it starts over and "
        f"{journal.cost.mean:.2f} with a journal. Effects repeated: "
        f"{restart.duplicates.mean:,.0f} when runs start over, {journal.duplicates.mean:,.0f} with "
        f"a journal, {keyed.duplicates.mean:,.0f} with a journal and a key. Outside their 95 % "
        f"interval: {len(outside)} of {len(_pairs(frame))} simulated numbers; chance puts about "
        "one in twenty there."
    )


def results_tables(frame: ResultsFrame) -> str:
    """Return both results tables as HTML; the second one says so while it is being simulated."""
    rows = [
        {"": name, "strategy": found.strategy}
        | _numbers(getattr(found, name), getattr(_expected(frame.setting, found), name), name)
        for name in _QUANTITIES
        for found in frame.by_strategy
    ]
    first = numbers_table(rows, f"Crash rate {frame.setting.crash_rate:g}").to_html()
    second_rows = [
        {"crash rate": f"{found.crash_rate:g}", "strategy": found.strategy}
        | _numbers(found.cost, _expected(frame.setting, found).cost, "cost")
        for found in frame.by_rate
    ]
    second = (
        numbers_table(second_rows, "Cost per run by crash rate, simulated afresh").to_html()
        if second_rows
        else "<p>The second table is being simulated.</p>"
    )
    side_by_side = "display: flex; flex-wrap: wrap; align-items: flex-start; gap: 0 3em"
    return f'<div style="{side_by_side}">{first}{second}</div>'


_QUANTITIES = ("cost", "restarts", "duplicates")
_Key: TypeAlias = tuple[str, float, int, int, Weights, Shape]


def _results_controls() -> list[Control]:
    return [
        slider("crash_rate", "crash rate", 0.08, 0.0, 0.30, 0.01),
        stepped_slider("runs", "runs", 400, RUN_STOPS),
        slider("steps", "steps", 7, 1, 14, 1),
        slider("llm_cost", "cost per LLM step", 2.0, 0.0, 10.0, 0.5),
        slider("before", "weight: before", 1.0, 0.0, 5.0, 0.25),
        slider("window", "weight: window", 1.0, 0.0, 5.0, 0.25),
        slider("after", "weight: after", 1.0, 0.0, 5.0, 0.25),
        slider("seed", "seed", 0, 0, 99, 1),
    ]


def _frames(setting: Setting, known: dict[_Key, Result]) -> Iterator[float | ResultsFrame]:
    """Simulate the position and show it, then the table over crash rates; yield the progress."""
    here = [(strategy, setting.crash_rate, setting.seed) for strategy in STRATEGIES]
    by_rate = [
        (strategy, rate, second_seed(setting.seed))
        for rate in DEFAULT_RATES
        for strategy in ("restart", "journal")
    ]
    found = yield from _simulated(setting, here, known)
    figure = results_figure(found, weights=setting.weights, shape=setting.shape)
    frame = ResultsFrame(setting, tuple(found), figure)
    yield frame
    rest = yield from _simulated(setting, by_rate, known)
    yield replace(frame, by_rate=tuple(rest))


def _simulated(
    setting: Setting, jobs: list[tuple[str, float, int]], known: dict[_Key, Result]
) -> Generator[float, None, list[Result]]:
    """Simulate jobs of (strategy, crash rate, seed), each once; yield the share of work done."""
    work = [_executions(setting, strategy, rate) for strategy, rate, _ in jobs]
    found: list[Result] = []
    for number, (strategy, rate, seed) in enumerate(jobs):
        key = (strategy, rate, setting.runs, seed, setting.weights, setting.shape)
        if key not in known:
            pieces = simulating(
                strategy, rate, setting.runs, seed, weights=setting.weights, shape=setting.shape
            )
            known[key] = yield from _shares(pieces, setting.runs, work, number)
        found.append(known[key])
    return found


def _shares(
    pieces: Generator[int, None, Result], runs: int, work: list[float], number: int
) -> Generator[float, None, Result]:
    """Turn the runs finished of one simulation into the share done of all of them."""
    before, own, total = sum(work[:number]), work[number], sum(work)
    finished = 0
    while True:
        try:
            finished += next(pieces)
        except StopIteration as end:
            result: Result = end.value
            return result
        yield (before + own * finished / runs) / total


def _executions(setting: Setting, strategy: str, rate: float) -> float:
    """Return how many live executions a run should take: what simulating it costs in time."""
    unit = tuple(StepSpec(spec.name, spec.kind, 1.0) for spec in setting.shape)
    return exact(strategy, rate, weights=setting.weights, shape=unit).cost.mean


def _expected(setting: Setting, found: Result) -> Result:
    return exact(
        found.strategy, found.crash_rate, found.runs, weights=setting.weights, shape=setting.shape
    )


def _pairs(frame: ResultsFrame) -> list[tuple[Quantity, Quantity]]:
    """Return each simulated number of both tables with its exact one."""
    pairs = []
    for found in frame.by_strategy:
        true = _expected(frame.setting, found)
        pairs += [(getattr(found, name), getattr(true, name)) for name in _QUANTITIES]
    pairs += [(found.cost, _expected(frame.setting, found).cost) for found in frame.by_rate]
    return pairs


def _numbers(simulated: Quantity, true: Quantity, quantity: str) -> dict[str, str]:
    """Return the cells of one number: simulated, exact, and where 95 % of simulations fall."""
    total = quantity == "duplicates"
    digits = 3 if not total else 1
    return {
        "simulated": f"{simulated.mean:,.{0 if total else 3}f}",
        "exact": f"{true.mean:,.{digits}f}",
        "95 % interval": f"{true.low:,.{digits}f} to {true.high:,.{digits}f}",
    }
