"""Finds what was handed in, and in each notebook the answers, whatever saved it.

Guarantees: a file that can't be used is a row with the reason, never an end; nothing is unpacked
outside the folder that was given for it, and a link that a student could have made isn't followed.
An answer is found by nbgrader's id, the cell's id, Colab's id or its first line, in this order; of
an answer in several pieces all count, in order. Leaves to others: what an answer is worth
(`grading`), which attempt counts (`roster`).
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import nbformat

from durable_mini.lab.exercises import EXERCISES
from durable_mini.school import source
from durable_mini.school.marks import HandIn

MAX_BYTES = 30_000_000
MAX_UNPACKED_BYTES = 500_000_000
MAX_UNPACKED_FILES = 5_000
MAX_CELLS = 1_000
MAX_DEPTH = 2  # an archive of a class holds the archives of its students
MAX_FOLDERS = 40  # one inside the other

_LEFT_OUT = {"__MACOSX", "Thumbs.db", "desktop.ini"}
_OWN_FOLDERS = {"exercises", "solutions", "course"}
_EXERCISE = re.compile(rf"(?<!\d)(?:{'|'.join(EXERCISES)}|\d{{2}}_[a-z]+)")
_MOODLE = re.compile(r"^(.+?)_\d+_assignsubmission_file_?")
_BLACKBOARD = re.compile(r"^.*?_([^_]+)_attempt_(\d{4}(?:-\d{2}){5})_?")
_CANVAS = re.compile(r"^([a-z0-9]+)_(?:LATE_)?\d+_\d+_")
_COPY = re.compile(r"(?:[ _-]?\((\d+)\)|-(\d+)|-Copy(\d+))$")
_MARKER = re.compile(r"^\s*#\s*(?:exercise|check):\s*(\S+)\s*$")


class HandInError(ValueError):
    """A path that holds nothing to grade; one line says which, and why."""


class UnreadableError(ValueError):
    """A file that is no notebook; the message says why, for a row."""


# ---- files -------------------------------------------------------------------------------------


def find(paths: Sequence[Path], scratch: Path) -> list[HandIn]:
    """Every file that was handed in under some paths.

    Args:
        paths: notebooks, archives, or folders of either.
        scratch: where archives are unpacked.

    Raises:
        HandInError: a path doesn't exist, or holds nothing.
    """
    found: list[HandIn] = []
    for path in paths:
        if not path.exists():
            raise HandInError(f"{path}: there is no such file or folder")
        inside = list(_inside(path, scratch))
        if not inside:
            raise HandInError(f"{path}: this folder holds no notebook")
        if any(each.shown == other.shown for each in inside for other in found):
            inside = [replace(each, shown=f"{path.resolve().name}/{each.shown}") for each in inside]
        found += inside
    return found


def _inside(path: Path, scratch: Path) -> Iterator[HandIn]:
    if path.is_dir():
        yield from _in_folder(path, path, PurePosixPath(), scratch, 0)
    else:
        yield from _in_file(path, PurePosixPath(path.name), scratch, 0)


def _in_folder(
    folder: Path, root: Path, shown: PurePosixPath, scratch: Path, depth: int
) -> Iterator[HandIn]:
    for path in sorted(folder.iterdir()):
        name = shown / path.name
        if path.name.startswith(".") or path.name in _LEFT_OUT:
            continue
        if path.is_symlink():
            yield _hand_in(path, name, "It is a link. Hand in the file itself.")
        elif path.is_dir() and len(name.parts) > MAX_FOLDERS:
            yield _hand_in(path, name, f"It lies in more than {MAX_FOLDERS} folders.")
        elif path.is_dir():
            yield from _in_folder(path, root, name, scratch, depth)
        elif not path.is_file():  # a pipe would never be read to its end
            yield _hand_in(path, name, "It is no plain file.")
        else:
            yield from _in_file(path, name, scratch, depth)


def _in_file(path: Path, shown: PurePosixPath, scratch: Path, depth: int) -> Iterator[HandIn]:
    if path.suffix.lower() == ".ipynb":
        yield _hand_in(path, shown)
    elif path.suffix.lower() == ".zip" and depth < MAX_DEPTH:
        try:
            folder = _unpacked(path, scratch)
        except Exception as error:  # whatever a broken archive makes of its reader
            yield _hand_in(path, shown, f"The archive can't be unpacked: {error}.")
            return
        yield from _in_folder(folder, folder, shown.with_suffix(""), scratch, depth + 1)
    else:
        yield _hand_in(path, shown, "It is no notebook: its name doesn't end in .ipynb.")


def _unpacked(path: Path, scratch: Path) -> Path:
    """A folder with the contents of an archive.

    Raises:
        ValueError: it holds too much.
        Exception: whatever is wrong with it.
    """
    folder = scratch / f"archive-{len(list(scratch.iterdir()))}"
    with zipfile.ZipFile(path) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        if len(entries) > MAX_UNPACKED_FILES:
            raise ValueError(f"it holds {len(entries):,} files")
        left = MAX_UNPACKED_BYTES
        for entry in entries:
            # A path that begins with `//` has a root of its own; what has none stays in the folder.
            path_in_it = PurePosixPath(entry.filename).parts
            parts = [part for part in path_in_it if part.strip("/") and part != ".."]
            if len(parts) > MAX_FOLDERS:
                raise ValueError(f"it holds more than {MAX_FOLDERS} folders one inside the other")
            target = folder.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as packed, target.open("wb") as file:
                while block := packed.read(min(1 << 20, left + 1)):
                    left -= file.write(block)
                    if left < 0:  # what an archive says of its sizes may be a lie
                        shutil.rmtree(folder)
                        raise ValueError(f"it holds more than {MAX_UNPACKED_BYTES:,} bytes")
    folder.mkdir(exist_ok=True)
    return folder


def _hand_in(path: Path, shown: PurePosixPath, trouble: str = "") -> HandIn:
    student, attempt, rest = _named(shown)
    exercise = _exercise_in(rest)
    if not trouble and path.stat().st_size > MAX_BYTES:
        trouble = f"It has more than {MAX_BYTES:,} bytes."
    if not trouble:
        exercise = _stamped(path) or exercise
    return HandIn(path, str(shown), student, exercise, attempt, trouble)


def _named(shown: PurePosixPath) -> tuple[str, tuple[str | int, ...], str]:
    """The student, the attempt, and what is left of the name, as learning platforms write them.

    The outermost name counts: those inside an archive were chosen by whoever made it.
    """
    stem = shown.stem
    for part in (*shown.parts[:-1], stem):
        if moodle := _MOODLE.match(part):
            return moodle[1], _attempt(stem), _MOODLE.sub("", stem)
        if blackboard := _BLACKBOARD.match(part):
            return blackboard[1], (blackboard[2],), stem
        if canvas := _CANVAS.match(part):
            return canvas[1], _attempt(stem), _CANVAS.sub("", stem)
    folder = shown.parts[0] if len(shown.parts) > 1 else ""
    if folder and folder not in _OWN_FOLDERS and not _EXERCISE.search(folder):
        return folder, _attempt(stem), stem
    rest = _COPY.sub("", stem)
    words = _EXERCISE.sub("", rest, count=1).strip("_- .")
    return (words if _EXERCISE.search(rest) else ""), _attempt(stem), stem


def _attempt(stem: str) -> tuple[str, ...]:
    """The number that platforms and browsers put behind a name; later ones sort behind."""
    copy = _COPY.search(stem)
    return (f"{int(next(filter(None, copy.groups()))):09d}",) if copy else ()


def _exercise_in(name: str) -> str:
    known = _EXERCISE.search(name)
    return known[0] if known else ""


def _stamped(path: Path) -> str:
    """The exercise as the notebook itself says it; "" if it doesn't."""
    try:
        said = str(read(path).stamp.get("exercise", ""))
        return said if re.fullmatch(r"\d{2}_[a-z_]{1,40}", said) else ""
    except (OSError, UnreadableError):
        return ""


# ---- notebooks ---------------------------------------------------------------------------------


class Written(NamedTuple):
    """A cell of a notebook that was handed in: whether it is code, all its names, its text."""

    code: bool
    names: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """A notebook that was handed in; by its `stamp` it is this exercise, in this version."""

    cells: tuple[Written, ...]
    stamp: Mapping[str, Any]


def read(path: Path) -> Sheet:
    """Read a notebook of any format, saved by whatever program.

    Raises:
        UnreadableError: it is none.
        OSError: it can't be read.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
        stored = json.loads(text)
        if int(stored.get("nbformat", 0)) < 4:
            stored = nbformat.reads(text, as_version=4)
        cells = [_written(cell) for cell in stored["cells"]]
        stamp = stored.get("metadata", {}).get(source.STAMP, {})
        if len(cells) > MAX_CELLS:
            raise ValueError(f"{len(cells):,} cells")  # noqa: TRY301 - told like all that is wrong
    except OSError:
        raise
    except Exception as error:  # whatever a broken file makes of its reader
        what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise UnreadableError(f"It is no notebook ({what}).") from None
    return Sheet(tuple(cells), stamp if isinstance(stamp, dict) else {})


def _written(cell: Any) -> Written:
    text = cell.get("source", "")
    text = text if isinstance(text, str) else "".join(text)
    about = cell.get("metadata", {})
    marked = _MARKER.match(text.lstrip().partition("\n")[0])
    names = (
        about.get("nbgrader", {}).get("grade_id"),
        cell.get("id"),
        about.get("id"),
        marked[1] if marked else None,
    )
    kept = tuple(name for name in names if isinstance(name, str))
    return Written(cell["cell_type"] == "code", kept, text)


# ---- which cell is which -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Matched:
    """What of a notebook belongs where in the reference.

    Attributes:
        answers: id of an answer → its pieces, in order.
        scratch: id of the cell before which cells of the student's own stand → those cells; "" for
            those behind everything.
        texts: id of a cell that a person marks → what was written there.
        notes: what the student should know, in sentences.
    """

    answers: dict[str, list[str]]
    scratch: dict[str, list[str]]
    texts: dict[str, str]
    notes: list[str]


def match(sheet: Sheet, reference: Any) -> Matched:
    """Find the answers of a reference's exercise in a notebook."""
    cells = {source.grade_id(cell): cell for cell in reference.cells if source.grade_id(cell)}
    found = Matched(defaultdict(list), defaultdict(list), {}, [])
    waiting: list[str] = []
    changed = Counter[str]()
    for written in sheet.cells:
        name = next((name for name in written.names if name in cells), "")
        if not name:
            waiting += [written.text] if written.code and written.text.strip() else []
            continue
        if waiting:
            found.scratch[name] += waiting
            waiting = []
        changed[_place(found, name, cells[name], written)] += 1
    found.scratch[""] += waiting
    found.notes.extend(_notes(found, changed))
    return found


def _place(found: Matched, name: str, cell: Any, written: Written) -> str:
    """Put a cell where it belongs; what there is to say of it."""
    if source.is_by_person(cell):
        found.texts[name] = f"{found.texts.get(name, '')}\n\n{written.text}".strip()
    elif source.is_answer(cell) and written.code:
        found.answers[name].append(written.text)
    elif source.is_answer(cell):
        return f"Cell {name} was turned into text, and counts as empty."
    elif written.text.strip() != source.stub_of(cell.source).strip() != "":
        original = cell.source.strip()
        if written.text.strip() != original:
            what = "check" if source.is_check(cell) else "given"
            return f"A {what} cell was changed: {name}. The original was run."
    return ""


def _notes(found: Matched, changed: Counter[str]) -> Iterator[str]:
    for name, pieces in found.answers.items():
        if len(pieces) > 1:
            yield f"Cell {name} stands there in {len(pieces)} pieces; all were run, in order."
    yield from (note for note in changed if note)
