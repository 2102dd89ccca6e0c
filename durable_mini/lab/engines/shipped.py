"""What was measured on the engines, stored with its date, versions and command, and read again.

Guarantees: what travels with the course is what the command printed, so that a reader without the
engines sees a real measurement, when it was made, and how busy the machine was. Leaves to others:
measuring (`crashes`, `grid`, `speed`).

    shipped = shipped_measurements()
    shipped.crashes.rows, shipped.edits.cell("temporal", "add a step"), shipped.speeds.rows
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Generic, TypeVar

from durable_mini.lab.engines.catalogue import BY_NAME, setup_named
from durable_mini.lab.engines.crashes import Row, Summary, summaries
from durable_mini.lab.engines.grid import Cell
from durable_mini.lab.engines.speed import Speed

DATA = "engines_shipped.json"

_Kind = TypeVar("_Kind", Row, Cell, Speed)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where rows come from.

    Attributes:
        version: what was installed.
        command: what was typed.
        date: the day on which it ended, in UTC.
        load: how many processes wanted a processor in the last minute; above the number of
            processors everything that takes time took longer.
    """

    version: str
    command: str
    date: str
    load: float | None = None


@dataclass(frozen=True, slots=True)
class Measured(Generic[_Kind]):
    """One measurement on several engines.

    Attributes:
        machine: processors, system and Python.
        origins: by the engine's name in the catalogue, where its rows come from.
        rows: what was measured.
    """

    machine: str
    origins: Mapping[str, Origin]
    rows: tuple[_Kind, ...]

    def of(self, setup: str) -> tuple[_Kind, ...]:
        """The rows of one engine.

        Raises:
            KeyError: the measurement has none of it.
        """
        found = tuple(row for row in self.rows if row.setup == setup)
        if not found:
            raise KeyError(setup)
        return found

    def source(self) -> str:
        """A sentence for below a table: when, where and how it was measured."""
        dates = sorted({one.date for one in self.origins.values()})
        typed = (one.command for one in self.origins.values())
        commands = sorted({re.sub(r" --engine \S+", "", command) for command in typed})
        when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
        busy = max((one.load or 0.0 for one in self.origins.values()), default=0.0)
        beside = (
            f", where up to {busy:g} processes wanted one" if busy > 2 * self.processors else ""
        )
        return f"Measured {when} ({self.machine}{beside}) with: {'; '.join(commands)}"

    @property
    def processors(self) -> int:
        """How many processors the machine had."""
        return int(self.machine.split()[0])


class Crashes(Measured[Row]):
    """The crash experiment, row by row and added up."""

    __slots__ = ()

    def summaries(self) -> list[Summary]:
        """One line for each engine."""
        return summaries(self.rows)


class Edits(Measured[Cell]):
    """The grid of code changes."""

    __slots__ = ()

    def cell(self, setup: str, edit: str) -> Cell:
        """One edit on one engine.

        Raises:
            KeyError: there is no such cell.
        """
        return {cell.edit: cell for cell in self.of(setup)}[edit]


class Speeds(Measured[Speed]):
    """Steps per second, beside durable_mini in the same run."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Shipped:
    """All that travels with the course."""

    crashes: Crashes
    edits: Edits
    speeds: Speeds


def shipped_measurements() -> Shipped:
    """Read what travels with the course."""
    text = (files("durable_mini.lab.engines") / DATA).read_text(encoding="utf-8")
    told = json.loads(text)
    return Shipped(
        _loaded(Crashes, Row, told["crashes"]),
        _loaded(Edits, Cell, told["edits"]),
        _loaded(Speeds, Speed, told["speeds"]),
    )


def packed(command: str, rows: Sequence[Row] | Sequence[Cell] | Sequence[Speed]) -> dict[str, Any]:
    """A measurement as it is stored: with today's date, this machine, and what is installed.

    Args:
        command: what was typed.
        rows: what was measured.
    """
    date, load = datetime.now(UTC).date().isoformat(), round(os.getloadavg()[0], 1)
    origins = {
        name: asdict(Origin(setup_named(name).version(), command, date, load))
        for name in dict.fromkeys(map(_engine_of, rows))
    }
    processors, python = os.cpu_count(), platform.python_version()
    machine = f"{processors} processors, {platform.system()}, Python {python}"
    return {"machine": machine, "origins": origins, "rows": [asdict(row) for row in rows]}


def merged(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> dict[str, Any]:
    """A stored measurement with that of other engines added, in the catalogue's order.

    What was measured anew replaces all that there was of the same engine.
    """
    if old is None:
        return dict(new)
    kept = [row for row in old["rows"] if _name_of(row["setup"]) not in new["origins"]]
    places = list(BY_NAME)
    rows = sorted([*kept, *new["rows"]], key=lambda row: places.index(_name_of(row["setup"])))
    return {**new, "origins": {**old["origins"], **new["origins"]}, "rows": rows}


def _engine_of(row: Row | Cell | Speed) -> str:
    return _name_of(row.setup)


def _name_of(setup: str) -> str:
    """The catalogue's name in "dbos, version pinned"."""
    return setup.partition(",")[0]


_Loaded = TypeVar("_Loaded", Crashes, Edits, Speeds)


def _loaded(kind: type[_Loaded], row: Any, told: Mapping[str, Any]) -> _Loaded:
    rows = tuple(
        row(**{name: _frozen(value) for name, value in one.items()}) for one in told["rows"]
    )
    origins = {name: Origin(**one) for name, one in told["origins"].items()}
    return kind(told["machine"], origins, rows)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
