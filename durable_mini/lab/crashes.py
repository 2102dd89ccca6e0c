"""Where a crash falls: seeded plans, and one chosen crash, that plug into the engine as its probe.

The engine calls its probe at the three positions of every live step and effect: before the work, in
the crash window (work done, journal not written), after the journal write. A plan answers by
returning or by raising `InjectedCrash`.

Guarantees: the same seed gives the same crashes for the same sequence of calls, and every step or
effect draws exactly one random number. What happens after a crash is for others: the engine stops,
whoever drives the run starts it again.
"""

from __future__ import annotations

import random
from typing import TypeAlias

from durable_mini.events import EventKind, Position

Weights: TypeAlias = tuple[float, float, float]
"""Chances of (before the work, in the crash window, after the journal write), given a crash."""

EQUAL_WEIGHTS: Weights = (1 / 3, 1 / 3, 1 / 3)

# A probe runs three times per live step, and globals are looked up faster than enum members.
_BEFORE, _WINDOW, _AFTER = Position.BEFORE, Position.WINDOW, Position.AFTER
_STEP, _EFFECT = EventKind.STEP, EventKind.EFFECT

_WHAT_HAPPENED = {
    _BEFORE: "before {call}: no work was done",
    _WINDOW: "in the crash window of {call}: the work was done, the journal has no record of it",
    _AFTER: "after {call} was journalled: the work was done and is on record",
}


def check_rate(crash_rate: float) -> None:
    """Refuse a crash rate outside [0, 1): at 1 no run would ever end.

    Raises:
        ValueError: naming the rate.
    """
    if not 0.0 <= crash_rate < 1.0:
        raise ValueError(f"crash rate must be at least 0 and below 1, not {crash_rate!r}")


def check_weights(weights: Weights) -> None:
    """Refuse position weights that aren't three chances which together make 1.

    Raises:
        ValueError: naming the weights.
    """
    if (
        len(weights) != 3
        or not all(weight >= 0.0 for weight in weights)
        or abs(sum(weights) - 1.0) > 1e-9
    ):
        raise ValueError(
            "weights must be three numbers (before, window, after), none negative, that sum to 1, "
            f"not {tuple(weights)!r}"
        )


class InjectedCrash(BaseException):
    """A worker's death at a chosen place: a `BaseException`, so `except Exception` can't stop it.

    Attributes:
        position: where in the call it fell.
        kind: "step" or "effect".
        name: the call's name.
        work_done: whether the call's work had happened, so that its cost was spent and its effect
            is out in the world.
        recorded: whether the journal knows. Work that is done and not recorded is done again.
    """

    def __init__(self, position: Position, kind: EventKind, name: str) -> None:
        super().__init__(position, kind, name)
        self.position = position
        self.kind = kind
        self.name = name

    @property
    def work_done(self) -> bool:
        return self.position is not _BEFORE

    @property
    def recorded(self) -> bool:
        return self.position is _AFTER

    def __str__(self) -> str:
        return "injected crash " + _WHAT_HAPPENED[self.position].format(
            call=f"{self.kind} {self.name!r}"
        )


class CrashPlan:
    """Crashes each live step or effect with chance `crash_rate`, at a position drawn by `weights`.

    One random number decides both. With p the rate and (a, b, c) the weights, [0, ap) is a crash
    before the work, [ap, (a+b)p) one in the window, [(a+b)p, p) one after the write, and the rest
    no crash.

    Args:
        crash_rate: chance p of a crash per live execution, in [0, 1).
        seed: the same seed gives the same schedule.
        weights: chances of (before, window, after) given a crash.

    Raises:
        ValueError: for a rate outside [0, 1) or weights that don't sum to 1.
    """

    __slots__ = (
        "_bound_before",
        "_bound_window",
        "_due",
        "_random",
        "crash_rate",
        "seed",
        "weights",
    )

    def __init__(
        self, crash_rate: float, seed: int | str, weights: Weights = EQUAL_WEIGHTS
    ) -> None:
        check_rate(crash_rate)
        check_weights(weights)
        self.crash_rate = crash_rate
        self.seed = seed
        self.weights = weights
        before, window, _ = weights
        self._bound_before = before * crash_rate
        self._bound_window = (before + window) * crash_rate
        self._random = random.Random(seed).random
        self._due: Position | None = None

    def __call__(self, position: Position, kind: EventKind, name: str) -> None:
        """Return, or raise `InjectedCrash` when this call's crash is due at `position`."""
        if position is _BEFORE:
            if kind is not _STEP and kind is not _EFFECT:
                self._due = None
                return
            drawn = self._random()
            if drawn >= self.crash_rate:
                self._due = None
                return
            self._due = self._position_of(drawn)
        if position is self._due:
            self._due = None
            raise InjectedCrash(position, kind, name)

    def _position_of(self, drawn: float) -> Position:
        if drawn < self._bound_before:
            return _BEFORE
        return _WINDOW if drawn < self._bound_window else _AFTER


class CrashAt:
    """Crashes exactly once: at `position` of the n-th live execution of the step called `name`.

    Executions are counted over every attempt that shares this probe; replayed steps are not
    executions.

    Args:
        name: the step's or effect's name.
        position: where in the call the crash falls.
        occurrence: which live execution, from 1.

    Attributes:
        fired: whether the crash has happened.
    """

    __slots__ = ("_executions", "fired", "name", "occurrence", "position")

    def __init__(self, name: str, position: Position | str, occurrence: int = 1) -> None:
        if occurrence < 1:
            raise ValueError(f"occurrence counts live executions from 1, not {occurrence!r}")
        self.name = name
        self.position = Position(position)
        self.occurrence = occurrence
        self.fired = False
        self._executions = 0

    def __call__(self, position: Position, kind: EventKind, name: str) -> None:
        """Return, or raise `InjectedCrash` at the one place that was asked for."""
        if name != self.name or kind not in (_STEP, _EFFECT):
            return
        if position is _BEFORE:
            self._executions += 1
        if position is self.position and self._executions == self.occurrence and not self.fired:
            self.fired = True
            raise InjectedCrash(position, kind, name)
