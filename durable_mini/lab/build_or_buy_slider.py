"""The slider of chapter 12: a job's length and a worker's deaths to which of queue and engine wins.

Guarantees: what it shows is the closed form for exactly the setting of its controls. Leaves to
others: the form (`build_or_buy`), the drawing (`build_or_buy_pictures`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from durable_mini.lab.build_or_buy import Terms, break_even_h, engine_h, queue_h
from durable_mini.lab.build_or_buy_pictures import build_or_buy_picture, length
from durable_mini.lab.pictures import Picture
from durable_mini.lab.widgets import LivePicture, Values, slider, stepped_slider

LENGTH_STOPS_S = (1, 5, 20, 60, 180, 600, 1_800, 3_600, 14_400, 43_200, 86_400, 604_800)
DEATH_STOPS = (1, 4, 15, 30, 60, 120, 240, 720, 2_880)
"""Deaths of a worker in 30 days: once a month up to four an hour."""


@dataclass(frozen=True)
class Choice:
    """One position of the slider."""

    terms: Terms
    work_h: float

    @cached_property
    def winner(self) -> str:
        """Which holds workers for fewer hours."""
        return "engine" if engine_h(self.terms, self.work_h) < queue_h(*self._job) else "queue"

    @property
    def _job(self) -> tuple[Terms, float]:
        return self.terms, self.work_h

    def sentence(self) -> str:
        """Say which wins, by how much, and from which length on it is the engine."""
        queue, engine = queue_h(*self._job), engine_h(*self._job)
        even, wait_h = break_even_h(self.terms), self.terms.wait_h
        tries = math.exp(min(700.0, self.terms.deaths_per_h * (self.work_h + wait_h)))
        waits = f", and a wait of {length(wait_h)}" if wait_h else ""
        turn = {0.0: "for a job of any length", math.inf: "for no job"}.get(
            even, f"from {length(even)} of work on"
        )
        return (
            f"A job with {length(self.work_h)} of work{waits}; a worker dies "
            f"{24 * self.terms.deaths_per_h:.3g} times a day. A queue holds workers for "
            f"{length(queue)}, in {_many(tries)} attempts; an engine for {length(engine)}. By "
            f"hours the {self.winner} wins. The engine wins {turn}."
        )

    def picture(self) -> Picture:
        """Draw the map around the setting, and its bill."""
        return build_or_buy_picture(self.terms, self.work_h)


def choice_of(values: Values) -> Choice:
    """Return one position of the slider; its controls count seconds, and deaths in 30 days."""
    terms = Terms(
        deaths_per_h=values["deaths"] / 720,
        step_h=values["step_s"] / 3600,
        write_h=values["write_ms"] / 3_600_000,
        upkeep_h=values["upkeep_s"] / 3600,
        wait_h=float(values["wait_h"]),
    )
    return Choice(terms, values["work_s"] / 3600)


def build_or_buy_slider() -> LivePicture[Choice]:
    """Return the slider: job length and deaths, with step, record, upkeep and wait."""
    return LivePicture(
        [
            stepped_slider("work_s", "work, in s", 3_600, LENGTH_STOPS_S),
            stepped_slider("deaths", "deaths in 30 days", 120, DEATH_STOPS),
            slider("wait_h", "wait, in h", 0, 0, 168, 1),
            slider("step_s", "a step, in s", 10, 1, 600, 1),
            slider("write_ms", "a record, in ms", 20, 0, 500, 5),
            slider("upkeep_s", "upkeep of a job, in s", 30, 0, 600, 5),
        ],
        lambda values: iter([choice_of(values)]),
        Choice.picture,
        Choice.sentence,
    )


def _many(tries: float) -> str:
    return f"{tries:,.1f}" if tries < 1_000 else f"{tries:,.0f}" if tries < 1e9 else "endless"
