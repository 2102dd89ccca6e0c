"""What happened in a run, attempt by attempt, as data that can be drawn.

A `Watch` goes between the engine and a crash plan as the engine's probe. It guarantees that it sees
every live durable call and where each attempt was crashed, and that it changes nothing: what the
plan behind it raises goes on. Replayed calls never reach a probe, so a watch works them out: an
attempt that follows a crash replays what the attempts before it got journalled.

It draws nothing; `run_pictures.run_timeline` does. It sees one run, from its first attempt on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from durable_mini.events import EventKind, Position

BoxState: TypeAlias = Literal["live", "replayed", "failed"]
Probe: TypeAlias = Callable[[Position, EventKind, str], None]


@dataclass(frozen=True, slots=True)
class Box:
    """One durable call within one attempt.

    Args:
        name: the call's name.
        state: "live" when its work was asked for, "replayed" when the journal had its result,
            "failed" when it failed for good.
        kind: "step", "effect", or another kind of durable call.
    """

    name: str
    state: BoxState = "live"
    kind: str = "step"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a run, in the order of its calls.

    Args:
        boxes: what the attempt replayed and executed; the step that it crashed at is the last.
        crash: the name of the step it crashed at and the position ("before", "window", "after");
            None when the attempt was not crashed.
    """

    boxes: tuple[Box, ...]
    crash: tuple[str, str] | None = None


class Watch:
    """A probe that records what it sees and hands every call on to the probe behind it.

    Args:
        plan: the probe to hand calls to, such as a `CrashPlan`; None lets the run go through.
        keeps_journal: False for a run that starts over with an empty journal after each crash.
    """

    def __init__(self, plan: Probe | None = None, *, keeps_journal: bool = True) -> None:
        self._plan = plan
        self._keeps_journal = keeps_journal
        self._recorded: list[Box] = []
        self._done: list[Attempt] = []
        self._live: list[Box] = []
        self._replayed: tuple[Box, ...] = ()

    def __call__(self, position: Position, kind: EventKind, name: str) -> None:
        """Record the call, then ask the plan behind; a crash it raises closes the attempt."""
        if position == Position.BEFORE:
            self._live.append(Box(name, "live", str(kind)))
        if position == Position.AFTER:
            self._recorded.append(Box(name, "replayed", str(kind)))
        if self._plan is None:
            return
        try:
            self._plan(position, kind, name)
        except BaseException:
            self._close(name, position)
            raise

    def _close(self, name: str, position: Position) -> None:
        boxes = (*self._replayed, *self._live)
        self._done.append(Attempt(boxes, (name, str(position))))
        self._live = []
        if not self._keeps_journal:
            self._recorded = []
        self._replayed = tuple(self._recorded)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts so far; the last one is whatever has happened since the last crash."""
        if not (self._live or self._replayed or not self._done):
            return tuple(self._done)
        return (*self._done, Attempt((*self._replayed, *self._live)))
