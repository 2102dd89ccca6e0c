"""Finds the course and opens JupyterLab on it.

Guarantees: in a clone the chapters themselves are opened. Everywhere else it is a working copy in a
folder of the reader's, in which nothing that exists is ever overwritten. The server asks nobody on
the network for news or updates, and one Ctrl-C stops it. What happens in the browser is
JupyterLab's.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from filecmp import cmp
from pathlib import Path

FIRST_CHAPTER = Path("course", "00_start_here.ipynb")
DEFAULT_FOLDER = Path("durable-mini-course")
COPIED = ("course", "exercises")

_PACKAGE = Path(__file__).resolve().parent.parent
_NOT_COPIED = {".ipynb_checkpoints", "__pycache__"}


class CourseError(ValueError):
    """The course can't be opened; the message says what is missing and what to do."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What copying the course into a folder did, in paths relative to that folder."""

    added: tuple[str, ...]
    kept: tuple[str, ...]  # there already and different: the reader's own work, or an older version


def clone_root() -> Path | None:
    """The folder of the clone that this package is imported from; None for an installed wheel."""
    root = _PACKAGE.parent
    in_clone = (root / FIRST_CHAPTER).is_file() and (root / "pyproject.toml").is_file()
    return root if in_clone else None


def source_folder() -> Path:
    """The folder that holds `course/` and the rest: the clone's, or the one in a wheel."""
    return clone_root() or _PACKAGE / "_bundle"


def working_folder(folder: Path | None) -> tuple[Path, Copied]:
    """Settle where the course is read, and copy there what is missing.

    Args:
        folder: where the reader wants a working copy; None for the clone itself, or, without a
            clone, for `./durable-mini-course`.

    Returns: the absolute folder that holds `course/`, and what was copied into it.

    Raises: CourseError when there is no course to copy, or the folder is a file; OSError when it
        can't be written.
    """
    root = clone_root()
    if root is not None and folder is None:
        return root, Copied((), ())
    target = (folder or DEFAULT_FOLDER).absolute()
    source = source_folder()
    if target.exists() and not target.is_dir():
        raise CourseError(f"{target} is a file. Next: name a folder for your copy of the course.")
    if not (source / FIRST_CHAPTER).is_file():
        raise CourseError(
            f"this installation holds no course: {source / FIRST_CHAPTER} is missing. "
            "Next: install durable-mini again."
        )
    return target, copy_course(source, target)


def copy_course(source: Path, target: Path) -> Copied:
    """Add to `target` each file of the course that isn't there yet.

    Crash: a file is there whole or not at all, so the next call adds what is still missing.
    """
    added, kept = [], []
    for name in _course_files(source):
        here, there = source / name, target / name
        if not there.exists():
            _copy_whole(here, there)
            added.append(name.as_posix())
        elif not cmp(here, there, shallow=False):
            kept.append(name.as_posix())
    return Copied(tuple(added), tuple(kept))


def _course_files(source: Path) -> Iterator[Path]:
    for folder in COPIED:
        for path in sorted((source / folder).rglob("*")):
            name = path.relative_to(source)
            if path.is_file() and not _NOT_COPIED & set(name.parts):
                yield name


def _copy_whole(here: Path, there: Path) -> None:
    there.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=there.parent, prefix=".copying-")
    try:
        with os.fdopen(descriptor, "wb") as copy, here.open("rb") as original:
            shutil.copyfileobj(original, copy)
        Path(name).chmod(0o644)
        Path(name).replace(there)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def jupyter_command(folder: Path, arguments: Sequence[str] = ()) -> list[str]:
    """The command that opens JupyterLab on the first chapter in `folder`.

    Args:
        folder: absolute; the server shows it and nothing above it.
        arguments: more arguments for `jupyter lab`; they come last, so they win.

    Raises: CourseError when JupyterLab isn't installed beside this package.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise CourseError(
            f"JupyterLab is not installed for {sys.executable}. "
            f"Next: {sys.executable} -m pip install jupyterlab"
        )
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{FIRST_CHAPTER.as_posix()}",
        "--ServerApp.log_level=WARN",  # leaves the address to open and what goes wrong
        "--ServerApp.answer_yes=True",  # or Ctrl-C asks first, and takes silence for a no
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",  # the other one lists the extensions of PyPI
        *as_root,
        *arguments,
    ]


def open_jupyter(command: Sequence[str]) -> None:
    """Become JupyterLab: signals, exit status and terminal are its own from here on."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], list(command))  # noqa: S606 - our own interpreter, no shell
