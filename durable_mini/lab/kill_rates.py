"""How much a test with kills can tell: what kills cost, what it has seen, what a zero is worth.

Guarantees closed forms only, for independent kills: kills per run turned into a crash rate and
back into cost and duplicates; the share of all crash schedules that so many runs should meet; the
bound that no event in so many tries leaves. Leaves to others: the model (`theory`), the drawing
(`kill_pictures`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from durable_mini.lab.chaos_shipped import shipped_experiments
from durable_mini.lab.crashes import check_rate
from durable_mini.lab.kill_pictures import Dot, StrategyLine, kills_picture
from durable_mini.lab.pictures import numbers_table
from durable_mini.lab.shape import REFERENCE_SHAPE
from durable_mini.lab.sliders import RUN_STOPS, LivePicture, slider, stepped_slider
from durable_mini.lab.theory import STRATEGIES, Result, exact

CONFIDENCE = 0.95
MOST_KILLS = 5.0

_STEPS = len(REFERENCE_SHAPE)
_CURVE = [MOST_KILLS * place / 80 for place in range(81)]
_SHOWN_EXPERIMENTS = ("few kills", "large", "many kills")


# ---- what a zero is worth ----------------------------------------------------------------------


def bound_after_none(tries: int, confidence: float = CONFIDENCE) -> float:
    """The largest chance of an event that fits with its absence in so many independent tries.

    If the event had a larger chance, so many tries without it would happen less often than once in
    twenty times. For more than 30 tries that is nearly 3 / tries.

        >>> round(bound_after_none(37), 3), round(3 / 37, 3)
        (0.078, 0.081)

    Args:
        tries: how many there were, from 1.
        confidence: of the bound, between 0 and 1.

    Raises:
        ValueError: there was no try, or the confidence isn't one.
    """
    _check_confidence(confidence)
    if tries < 1:
        raise ValueError(f"tries={tries}: without a single try nothing is known")
    return -math.expm1(math.log(1.0 - confidence) / tries)


def tries_to_see(chance: float, confidence: float = CONFIDENCE) -> int:
    """How many tries it takes to see an event of this chance at least once, that confidently.

        >>> tries_to_see(0.01)
        299

    Raises:
        ValueError: the chance isn't between 0 and 1, or the confidence isn't one.
    """
    _check_confidence(confidence)
    if not 0.0 < chance < 1.0:
        raise ValueError(f"chance={chance}: between 0 and 1")
    return math.ceil(math.log(1.0 - confidence) / math.log1p(-chance))


def _check_confidence(confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence}: between 0 and 1")


# ---- what was seen -----------------------------------------------------------------------------


def share_seen(runs: int, crash_rate: float, crashes: int = 1, steps: int = _STEPS) -> float:
    """The share of all schedules of so many crashes that so many journalled runs should meet.

    A schedule is met when a run has just these crashes, at these steps and positions. A place is a
    step and one of three positions; a run that died after a record goes on behind that step, one
    that died before it has that step once more.

        >>> round(share_seen(400, 0.08), 2), round(share_seen(400, 0.08, crashes=2), 2)
        (1.0, 0.15)

    Args:
        runs: how many runs there are.
        crash_rate: chance of a crash per live step, in [0, 1).
        crashes: how many crashes a schedule has, from 1.
        steps: how many steps a run has.

    Raises:
        ValueError: for a number out of range.
    """
    check_rate(crash_rate)
    if runs < 0 or crashes < 1 or steps < 1:
        raise ValueError(f"runs={runs}, crashes={crashes}, steps={steps}: from 0, 1 and 1")
    each, unseen, schedules = (crash_rate / 3) ** crashes, 0.0, 0
    for recorded, number in _by_records(crashes, steps).items():
        chance = each * (1.0 - crash_rate) ** (steps - recorded)
        unseen += number * (1.0 - chance) ** runs
        schedules += number
    return 1.0 - unseen / schedules


def schedules_of(crashes: int, steps: int = _STEPS) -> int:
    """How many schedules of so many crashes a run of so many steps has.

    >>> schedules_of(1), schedules_of(2)
    (21, 231)
    """
    return sum(_by_records(crashes, steps).values())


def _by_records(crashes: int, steps: int) -> dict[int, int]:
    """The number of schedules, by how many of their crashes fall after a record."""
    places: dict[tuple[int, int], int] = {(0, 0): 1}  # by first step to do, and records so far
    for _ in range(crashes):
        further: dict[tuple[int, int], int] = {}
        for (begin, recorded), number in places.items():
            for step in range(begin, steps):
                for spot, ways in (((step, recorded), 2), ((step + 1, recorded + 1), 1)):
                    further[spot] = further.get(spot, 0) + ways * number
        places = further
    found: dict[int, int] = {}
    for (_, recorded), number in places.items():
        found[recorded] = found.get(recorded, 0) + number
    return found


# ---- what kills cost ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KillsFrame:
    """What the slider shows: by strategy what so many kills per run should come to."""

    kills: float
    runs: int
    found: tuple[Result, ...]


def rate_for(strategy: str, kills_per_run: float) -> float:
    """The crash rate at which a run is killed so often, on average.

        >>> round(rate_for("restart", exact("restart", 0.08).restarts.mean), 4)
        0.08

    Raises:
        ValueError: an unknown strategy, or fewer than no kills.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown strategy {strategy!r}; there are {', '.join(STRATEGIES)}")
    if not kills_per_run >= 0.0:
        raise ValueError(f"kills_per_run={kills_per_run}: from 0")
    if strategy == "restart":
        return -math.expm1(-math.log1p(kills_per_run) / _STEPS)
    return kills_per_run / (_STEPS + 2.0 * kills_per_run / 3.0)


def at_kills(kills_per_run: float, runs: int) -> KillsFrame:
    """What so many kills per run should come to, by strategy, in an experiment of so many runs."""
    found = (exact(strategy, rate_for(strategy, kills_per_run), runs) for strategy in STRATEGIES)
    return KillsFrame(kills_per_run, runs, tuple(found))


def kills_slider() -> LivePicture[KillsFrame]:
    """The slider of chapter 11: kills per run, and what they come to under each strategy."""
    controls = [
        slider("kills", "kills per run", 0.6, 0.0, MOST_KILLS, 0.05),
        stepped_slider("runs", "runs", 400, RUN_STOPS),
    ]
    measured = _measured()

    def compute(values: Mapping[str, Any]) -> Iterable[KillsFrame]:
        return [at_kills(values["kills"], values["runs"])]

    return LivePicture(
        controls,
        compute,
        lambda frame: kills_picture(_lines(frame), frame.kills, frame.runs, measured),
        kills_sentence,
        tables=_table,
    )


def kills_sentence(frame: KillsFrame) -> str:
    """What the frame says."""
    restart, journal, keyed = frame.found
    return (
        f"{frame.kills:g} kills per run: a run costs {restart.cost.mean:.2f} when it starts over, "
        f"with a queue or without, and {journal.cost.mean:.2f} with a journal. In "
        f"{frame.runs:,} runs {restart.duplicates.mean:,.0f} effects are repeated when runs start "
        f"over, {journal.duplicates.mean:,.0f} with a journal, "
        f"{keyed.duplicates.mean:,.0f} with a journal and keys."
    )


def _table(frame: KillsFrame) -> str:
    rows = [
        {
            "strategy": one.strategy,
            "crash rate": f"{one.crash_rate:.3f}",
            "cost per run": f"{one.cost.mean:.2f}",
            "95 % of experiments": f"{one.cost.low:.2f} to {one.cost.high:.2f}",
            "duplicates": f"{one.duplicates.mean:,.1f}",
            "95 % of them": f"{one.duplicates.low:,.0f} to {one.duplicates.high:,.0f}",
        }
        for one in frame.found
    ]
    return numbers_table(rows, f"{frame.kills:g} kills per run, {frame.runs:,} runs").to_html()


def _lines(frame: KillsFrame) -> list[StrategyLine]:
    curve = [at_kills(kills, frame.runs) for kills in _CURVE]
    return [
        StrategyLine(
            strategy,
            tuple(_CURVE),
            tuple(at.found[place].cost for at in curve),
            tuple(at.found[place].duplicates for at in curve),
            (frame.found[place].cost, frame.found[place].duplicates),
        )
        for place, strategy in enumerate(STRATEGIES)
    ]


def _measured() -> list[Dot]:
    """What the shipped experiments measured at chosen places, per run."""
    experiments = shipped_experiments()
    return [
        Dot(one.strategy, one.kills / one.runs, one.cost / one.runs, one.duplicates / one.runs)
        for name in _SHOWN_EXPERIMENTS
        for one in experiments[name].report.strategies
    ]
