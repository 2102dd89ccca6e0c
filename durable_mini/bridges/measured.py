"""What was measured on the bridges, stored with its date, versions and command, and read again.

Guarantees: importing it needs no engine, so that a reader without one sees a real measurement.
`DIFFERENCES` has a sentence on each law that the bridge to DBOS breaks, and on each that DBOS alone
wouldn't keep. Leaves to others: measuring (`python -m durable_mini.bridges.dbos`).

    shipped = shipped_dbos()
    print(law_table(shipped.laws))
    print(kill_table(shipped.killed), shipped.sources["kill"])
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from typing import Any, NamedTuple

DBOS_DATA = "dbos_measured.json"

DIFFERENCES: Mapping[int, str] = {
    6: "DBOS compares the names of steps; the bridge gives each a name that says its kind.",
    7: "DBOS never looks at arguments; the bridge records their digest, and compares.",
    8: "DBOS lets a workflow end before its records do; the bridge looks whether any are left.",
    9: "DBOS raises an error that workflow code can catch; the bridge raises its own before.",
    11: "DBOS would record the error as the run's end; the bridge parks the run, to be resumed.",
    12: "DBOS raises the database's error into workflow code; the bridge ends the execution.",
    17: "Nothing is cut here: DBOS keeps SQLite's rollback journal, and appends to no file.",
    18: "DBOS's records have no checksum: a damaged byte reaches the code like any other.",
    19: "DBOS looks whose run it is when it records, not before it executes: who lost the run "
    "between two calls reads the other's record, or does a step whose record is then refused.",
    21: "Each try is a DBOS step; DBOS's own retries would count anew after a crash.",
    22: "A DBOS workflow that waits keeps its thread; nothing gives it back until it is told.",
    26: "DBOS's own cancel undoes nothing and can be resumed; the bridge records a stop instead.",
    27: "DBOS would leave a run of other code lying, unsaid; the bridge compares durable calls.",
}
"""By the number of a law, why the bridge breaks it, or how it keeps what DBOS alone wouldn't."""


class Law(NamedTuple):
    """What became of one law of the conformance kit: as `conformance.Row`, and why."""

    law: int
    title: str
    verdict: str
    passed: int
    of: int
    detail: str
    broken: tuple[str, ...]

    @property
    def why(self) -> str:
        """Why it is broken, or what is otherwise though it holds; empty where nothing is."""
        return DIFFERENCES.get(self.law, "")


class Killed(NamedTuple):
    """What came of runs whose workers were killed.

    `completed` of `runs` were brought to their end by `workers` workers that were killed `kills`
    times; `repeated` requests came to the receivers once more, of which `duplicates` took effect.
    `same_results` and `same_effects` say whether results, and requests with their keys, are those
    of durable_mini, undisturbed. `wall_s` is how long it took.
    """

    runs: int
    workers: int
    kills: int
    completed: int
    repeated: int
    duplicates: int
    same_results: bool
    same_effects: bool
    wall_s: float

    @property
    def ok(self) -> bool:
        """Whether nothing was lost, and nothing was done twice."""
        whole = self.completed == self.runs and not self.duplicates
        return whole and self.same_results and self.same_effects


@dataclass(frozen=True, slots=True)
class Shipped:
    """All that travels with the course; `sources` has a sentence for below each table."""

    laws: tuple[Law, ...]
    killed: Killed
    sources: Mapping[str, str]


def shipped_dbos() -> Shipped:
    """Read what travels with the course."""
    text = (files("durable_mini.bridges") / DBOS_DATA).read_text(encoding="utf-8")
    told = json.loads(text)
    laws = tuple(Law(**{**row, "broken": tuple(row["broken"])}) for row in told["laws"]["rows"])
    (killed,) = told["kill"]["rows"]
    return Shipped(laws, Killed(**killed), {what: _source(told[what]) for what in told})


def packed(command: str, rows: Sequence[Law | Killed], versions: Iterable[str]) -> dict[str, Any]:
    """A measurement as it is stored: with today's date, this machine, and what is installed.

    Args:
        command: what was typed.
        rows: what was measured.
        versions: of what it was measured on, beside DBOS.
    """
    machine = (
        f"{os.cpu_count()} processors, {platform.system()}, Python {platform.python_version()}"
    )
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "command": command,
        "versions": [f"DBOS {version('dbos')}", *versions],
        "machine": machine,
        "load": round(os.getloadavg()[0], 1),
        "rows": [row._asdict() for row in rows],
    }


def _source(told: Mapping[str, Any]) -> str:
    versions = ", ".join(told["versions"])
    return f"Measured {told['date']} ({versions}; {told['machine']}) with: {told['command']}"


def law_table(laws: Sequence[Law]) -> str:
    """The laws as a table in Markdown, with the reason of each difference."""
    lines = ["| law | | cases | what it says | on DBOS |", "| --- | --- | --- | --- | --- |"]
    for law in laws:
        cells = (law.law, law.verdict, f"{law.passed}/{law.of}", law.title, law.why)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def kill_table(killed: Killed) -> str:
    """What came of it as a table in Markdown."""
    said = {
        "runs": killed.runs,
        "workers": killed.workers,
        "workers killed": killed.kills,
        "runs completed": killed.completed,
        "requests that came again": killed.repeated,
        "of these that took effect": killed.duplicates,
        "results as on durable_mini": "yes" if killed.same_results else "NO",
        "requests and keys as on durable_mini": "yes" if killed.same_effects else "NO",
    }
    lines = [f"| {what} | {value} |" for what, value in said.items()]
    return "\n".join(["| | |", "| --- | --- |", *lines])
