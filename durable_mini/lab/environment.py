"""Whether this Python and this machine have what the course needs, and what to do where not.

Guarantees: a look, no change: nothing is installed, and the one file that is written as a trial is
gone again. Where all is there it says the same sentence everywhere, so that a committed output
stays true. Leaves to others: installing (`pip`), and the versions of packages, which the
installation has settled.
"""

from __future__ import annotations

import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from durable_mini.errors import DurableError
from durable_mini.journal.sqlite import SQLiteJournal

PACKAGES = {
    "ipywidgets": "sliders and questions to click",
    "jupyterlab_widgets": "the page's half of every slider",
    "matplotlib": "figures",
    "platformdirs": "where your ticks are kept",
    "rich": "tables",
}
"""What the chapters import beyond the standard library, and what for."""

OLDEST_SQLITE = (3, 37)  # the journal's tables are STRICT, which came with 3.37


@dataclass(frozen=True, slots=True)
class Lack:
    """One thing that is missing: what it is, and the next move."""

    what: str
    next_move: str

    def __str__(self) -> str:
        return f"{self.what}. Next: {self.next_move}."


@dataclass(frozen=True, slots=True, repr=False)
class Environment:
    """What `check_environment` found; a notebook shows it as its sentence."""

    lacks: tuple[Lack, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is missing."""
        return not self.lacks

    def __repr__(self) -> str:
        if self.ok:
            return "Nothing is missing: processes, journal, figures and sliders will work here."
        lines = [f"{number}. {lack}" for number, lack in enumerate(self.lacks, 1)]
        return "\n".join([f"Missing here ({len(lines)}):", *lines])


def check_environment(
    *,
    has_kill: bool = hasattr(signal, "SIGKILL"),
    sqlite: tuple[int, ...] = sqlite3.sqlite_version_info,
    has_module: Callable[[str], object] = find_spec,
    folder: Path | None = None,
) -> Environment:
    """Look for what the chapters need.

    Args:
        has_kill: whether this system knows SIGKILL.
        sqlite: the version of the SQLite library.
        has_module: tells whether a module can be imported, by its name.
        folder: where temporary folders are made; None for the system's own place.
    """
    found = [*_lacks_of_system(has_kill, sqlite), *_lacks_of_packages(has_module)]
    return Environment((*found, *_lacks_of_disk(folder)))


def _lacks_of_system(has_kill: bool, sqlite: tuple[int, ...]) -> Iterator[Lack]:
    if not has_kill:
        yield Lack(
            "this system has no SIGKILL, so no worker can be killed for the demonstrations",
            "on Windows open the course inside WSL2; Linux and macOS have it",
        )
    if sqlite < OLDEST_SQLITE:
        yield Lack(
            f"SQLite is {'.'.join(map(str, sqlite))}, the journal needs "
            f"{'.'.join(map(str, OLDEST_SQLITE))} or newer",
            "use a Python from python.org or a newer release of your system",
        )


def _lacks_of_packages(has_module: Callable[[str], object]) -> Iterator[Lack]:
    for name, purpose in PACKAGES.items():
        if not has_module(name):
            yield Lack(
                f"the package {name} ({purpose})",
                f"{sys.executable} -m pip install {name}, then restart the kernel",
            )


def _lacks_of_disk(folder: Path | None) -> Iterator[Lack]:
    """Write a journal as the demonstrations do: permissions alone don't tell of a full disk."""
    try:
        with TemporaryDirectory(dir=folder) as trial:
            SQLiteJournal(Path(trial, "journal.db")).close()
    except (OSError, DurableError) as error:
        reason = str(error).rstrip(".")
        yield Lack(
            f"a journal can't be written in the folder for temporary files: {reason}",
            "free some space, or set TMPDIR to a folder of yours and start JupyterLab again",
        )
