"""The crash experiment: on each engine a worker killed at every place, with and without a key.

Guarantees: one row for each engine, place and way to send; it says how many trials there were, how
many runs came to their end, which steps were executed again, and what happened twice outside. The
same world, the same kill, the same recovery (the command is started again) for all. Leaves to
others: one trial (`trial`), what was measured once and travels with the course (`shipped`).
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from durable_mini.lab.engines.catalogue import Setup
from durable_mini.lab.engines.gate import EFFECTS, PLACES, STEPS, Place
from durable_mini.lab.engines.trial import Outcome, theatre


@dataclass(frozen=True, slots=True)
class Row:
    """What one engine made of kills at one place.

    Attributes:
        setup: the engine's name in the catalogue.
        step: at which step the worker was killed.
        position: "before" its work, which is also after the record of the step before it, or in
            the "window" after its request took effect.
        with_key: whether effects were sent with their key to a receiver that honours it; the other
            receiver wants none.
        trials: how many runs were killed there.
        completed: how many of them came to their end.
        again: by step, how many executions there were beyond the first, over all trials.
        duplicates: effects that happened beyond the first time, over all trials.
        recovered_s: median seconds from the kill to the next request of the run.
    """

    setup: str
    step: str
    position: str
    with_key: bool
    trials: int
    completed: int
    again: Mapping[str, int]
    duplicates: int
    recovered_s: float

    @property
    def lost_records(self) -> int:
        """How often a step was executed again that the worker had been past before its death."""
        return sum(times for step, times in self.again.items() if step != self.step)


def crash_everywhere(
    setup: Setup,
    *,
    repeats: int = 1,
    places: Sequence[Place] = PLACES,
    ways: Sequence[bool] = (True, False),
    folder: Path | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> list[Row]:
    """Kill workers of one engine at each place, `repeats` times each, with and without a key.

    Args:
        setup: the engine.
        repeats: how many runs are killed at each place.
        places: where; by default everywhere.
        ways: with a key, without one, or both.
        folder: below which folder the stores lie; by default where temporary files go.
        progress: called with 1 after each trial.

    Raises:
        RuntimeError: the engine doesn't come up, or a worker never came to a place.
    """
    rows = []
    for with_key in ways:
        with theatre(setup, honours_keys=with_key, folder=folder) as there:
            for number, place in enumerate(places):
                outcomes = []
                for repeat in range(repeats):
                    order = f"{place[0]}-{number}-{repeat}"
                    outcomes.append(there.trial(order, place, with_key=with_key))
                    progress(1)
                rows.append(_row(setup, place, with_key, outcomes))
    return rows


def _row(setup: Setup, place: Place, with_key: bool, outcomes: Sequence[Outcome]) -> Row:
    again: Counter[str] = Counter()
    for outcome in outcomes:
        again.update(request.step for request in outcome.requests)
    for step in again:
        again[step] -= len(outcomes)
    if place[1] == "before":  # its request had come, but nothing of it was done
        again[place[0]] -= len(outcomes)
    recovered = [one.recovered_s for one in outcomes if one.recovered_s is not None]
    return Row(
        setup.name,
        *place,
        with_key,
        len(outcomes),
        sum(outcome.result is not None for outcome in outcomes),
        {step: again[step] for step in STEPS if again[step] > 0},
        sum(outcome.duplicates for outcome in outcomes),
        round(statistics.median(recovered), 2) if recovered else float("nan"),
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """All rows of one engine, added up.

    Attributes:
        setup: the engine's name in the catalogue.
        trials: how many workers were killed.
        completed: how many runs came to their end.
        again_in_window: executions of the step in whose window the worker was killed.
        lost_records: executions of steps that the killed worker had been past.
        effect_windows: trials in which the kill fell into the window of an effect, for each way.
        duplicates_with_key: effects that happened twice, of the trials with a key.
        duplicates_without_key: the same of those without.
        recovered_s: the median of the rows' medians, in seconds.
    """

    setup: str
    trials: int
    completed: int
    again_in_window: int
    lost_records: int
    effect_windows: int
    duplicates_with_key: int
    duplicates_without_key: int
    recovered_s: float


def summaries(rows: Iterable[Row]) -> list[Summary]:
    """One line for each engine, in the order of the rows."""
    by_setup: dict[str, list[Row]] = {}
    for row in rows:
        by_setup.setdefault(row.setup, []).append(row)
    return [_summary(name, some) for name, some in by_setup.items()]


def _summary(name: str, rows: Sequence[Row]) -> Summary:
    windows = [row for row in rows if row.position == "window"]
    in_effects = {
        way: [r for r in windows if r.step in EFFECTS and r.with_key is way]
        for way in (True, False)
    }
    return Summary(
        name,
        sum(row.trials for row in rows),
        sum(row.completed for row in rows),
        sum(row.again.get(row.step, 0) for row in windows),
        sum(row.lost_records for row in rows),
        max(sum(row.trials for row in some) for some in in_effects.values()),
        sum(row.duplicates for row in rows if row.with_key),
        sum(row.duplicates for row in rows if not row.with_key),
        round(statistics.median(row.recovered_s for row in rows), 2),
    )
