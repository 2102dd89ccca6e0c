"""The large experiments with real kills that travel with the course, and what they were made by.

Guarantees: each carries its command, seed and date, and is what that command printed; beside the
measured numbers stand the closed forms, computed anew. None was run a second time for a nicer
number. Leaves to others: running one (`experiment`), drawing it (`chaos_pictures`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from durable_mini.events import Position
from durable_mini.lab.experiment import ChaosReport, StrategyOutcome
from durable_mini.lab.shape import REFERENCE_SHAPE
from durable_mini.lab.theory import Quantity, exact

DATA = "chaos_shipped.json"

KillsAt: TypeAlias = Mapping[tuple[str, Position], int]
"""How many workers were killed at each step and position."""

_EFFECTS = frozenset(spec.name for spec in REFERENCE_SHAPE if spec.kind == "effect")


@dataclass(frozen=True, slots=True)
class Shipped:
    """One experiment.

    Attributes:
        command: what was typed.
        date: the day on which it ended, in UTC.
        report: what it came to.
        kills_at: by strategy, where its workers were killed; empty where the experiment's books
            weren't kept, or where the kills came at random times.
    """

    command: str
    date: str
    report: ChaosReport
    kills_at: Mapping[str, KillsAt]

    def outcome(self, strategy: str) -> StrategyOutcome:
        """What one strategy came to.

        Raises:
            KeyError: the experiment hasn't tried it.
        """
        return {one.strategy: one for one in self.report.strategies}[strategy]

    def exposures(self, strategy: str) -> int:
        """How many kills fell between an effect and its record: the only ones that test a key."""
        places = self.kills_at.get(strategy, {})
        return sum(places.get((effect, Position.WINDOW), 0) for effect in _EFFECTS)


def shipped_experiments() -> dict[str, Shipped]:
    """The experiments by name: "large", "again", "few kills", "many kills", "random times"."""
    text = (files("durable_mini.lab") / DATA).read_text(encoding="utf-8")
    return {name: _loaded(stored) for name, stored in json.loads(text).items()}


def packed(printed: str, command: str, date: str, books: Path | None = None) -> dict[str, Any]:
    """An experiment as it is stored.

    Args:
        printed: what `durable-mini chaos --json` printed.
        command: what was typed.
        date: the day.
        books: the experiment's books, beside its journal, for the places of the kills.
    """
    return {
        "command": command,
        "date": date,
        "report": json.loads(printed),
        "kills_at": {} if books is None else _places(books),
    }


def _places(books: Path) -> dict[str, dict[str, int]]:
    query = (
        "SELECT strategy, step || '.' || position, count(*) FROM kill WHERE step IS NOT NULL "
        "GROUP BY 1, 2 ORDER BY 1, 2"
    )
    found: dict[str, dict[str, int]] = {}
    with closing(sqlite3.connect(books)) as base:
        for strategy, place, count in base.execute(query):
            found.setdefault(strategy, {})[place] = count
    return found


def _loaded(stored: Mapping[str, Any]) -> Shipped:
    told = stored["report"]
    about = (told["runs"], told["crash_rate"], told["workers"], told["seed"])
    outcomes = tuple(_outcome(one, told["crash_rate"]) for one in told["strategies"])
    report = ChaosReport(*about, outcomes, told["stopped"])
    kills_at = {
        strategy: {_place(text): count for text, count in places.items()}
        for strategy, places in stored["kills_at"].items()
    }
    return Shipped(stored["command"], stored["date"], report, kills_at)


def _outcome(told: Mapping[str, Any], crash_rate: float | None) -> StrategyOutcome:
    runs, strategy = told["runs"], told["strategy"]
    return StrategyOutcome(
        strategy,
        runs,
        told["completed"],
        told["lost"],
        told["kills"],
        round(told["cost_per_run"]["simulated"] * runs, 6),
        told["duplicate_effects"],
        told["wall_s"],
        _expected(strategy, crash_rate, runs),
    )


def _expected(strategy: str, crash_rate: float | None, runs: int) -> dict[str, Quantity]:
    """What theory expects of the scripted model, whatever model the settings name today."""
    if crash_rate is None:
        return {}
    theory = exact("restart" if strategy == "queue" else strategy, crash_rate, runs)
    return {"cost": theory.cost, "restarts": theory.restarts, "duplicates": theory.duplicates}


def _place(text: str) -> tuple[str, Position]:
    step, _, position = text.rpartition(".")
    return step, Position(position)
