"""What is kept of a reader: one small file in their own folder, for 00 and for `grade`.

Guarantees: the file is replaced in one go; one that can't be read is put aside, not overwritten;
and where nothing can be written that is said, and the ticks last as long as the process. The best
result of an exercise stays. Two programs that write in the same instant: one tick may be lost.

Leaves to others: showing it (`progress`), and deciding what is kept.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import platformdirs


@dataclass(frozen=True, slots=True)
class Score:
    """How many questions of the inventory were ticked as they should be, or points earned."""

    right: float
    of: float

    def __str__(self) -> str:
        return f"{self.right:g} of {self.of:g}"

    @property
    def share(self) -> float:
        """Between 0 and 1."""
        return self.right / self.of if self.of else 0.0


@dataclass(frozen=True, slots=True)
class Kept:
    """All that is kept of a reader: ticked chapters, two counts of the inventory, exercises."""

    finished: frozenset[str] = frozenset()
    began: Score | None = None  # the first count before the course
    now: Score | None = None  # the latest one after it
    exercises: Mapping[str, Score] = field(default_factory=dict)  # the best result of each


class ProgressFile:
    """The file; `trouble` says in a sentence what went wrong with it last, and is empty otherwise.

    Args:
        path: where it is; None for this system's place for a program's data, in the user's home.
    """

    def __init__(self, path: Path | None = None) -> None:
        folder = platformdirs.user_data_path("durable-mini", appauthor=False)
        self.path = path or folder / "progress.json"
        self.trouble = ""
        self._unwritten: Kept | None = None

    def read(self) -> Kept:
        """Return what is kept; nothing where there is no file, or none that can be read."""
        if self._unwritten is not None:
            return self._unwritten
        try:
            return _parsed(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return Kept()
        except (OSError, ValueError) as error:
            self.trouble = f"{self.path} can't be read ({error}). It is put aside at the next tick."
            return Kept()

    def tick(self, chapter: str, *, done: bool) -> None:
        """Note that a chapter is finished, or that it isn't."""
        kept = self.read()
        others = kept.finished - {chapter}
        self._keep(replace(kept, finished=others | {chapter} if done else others))

    def count(self, score: Score, *, after: bool) -> Kept:
        """Keep a count of the inventory and return what is kept now. The first beginning stays."""
        kept = self.read()
        kept = replace(kept, now=score) if after else replace(kept, began=kept.began or score)
        self._keep(kept)
        return kept

    def solve(self, exercise: str, score: Score) -> None:
        """Keep what an exercise gave, unless a better result is kept already."""
        kept = self.read()
        best = kept.exercises.get(exercise)
        if best is None or score.share > best.share:
            self._keep(replace(kept, exercises={**kept.exercises, exercise: score}))

    def reset(self) -> None:
        """Forget everything."""
        self._keep(Kept())

    def _keep(self, kept: Kept) -> None:
        """Write, or hold until the program ends where that fails.

        Crash: the file holds what it held before, or all that is new.
        """
        try:
            self._put_aside_unreadable()
            _replace(self.path, _text(kept))
        except OSError as error:
            self._unwritten = kept
            self.trouble = (
                f"{self.path} can't be written ({error}). The ticks last until this program ends."
            )
        else:
            self._unwritten, self.trouble = None, ""

    def _put_aside_unreadable(self) -> None:
        try:
            _parsed(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        except ValueError:
            self.path.replace(self.path.with_suffix(".unreadable"))


def _text(kept: Kept) -> str:
    stored: dict[str, Any] = {"finished": sorted(kept.finished)}
    for name, score in (("began", kept.began), ("now", kept.now)):
        if score is not None:
            stored[name] = _stored(score)
    if kept.exercises:
        stored["exercises"] = {
            name: _stored(kept.exercises[name]) for name in sorted(kept.exercises)
        }
    return json.dumps(stored, indent=2) + "\n"


def _stored(score: Score) -> dict[str, float]:
    return {"right": score.right, "of": score.of}


def _parsed(text: str) -> Kept:
    """Read a stored text. Raises: ValueError when it isn't one of ours."""
    stored = json.loads(text)
    try:
        exercises = stored.get("exercises", {}).items()
        return Kept(
            frozenset(str(name) for name in stored["finished"]),
            began=_count(stored.get("began")),
            now=_count(stored.get("now")),
            exercises={str(name): _points(score) for name, score in exercises},
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not what this course keeps: {error!r}") from None


def _count(stored: dict[str, Any] | None) -> Score | None:
    return None if stored is None else Score(int(stored["right"]), int(stored["of"]))


def _points(stored: dict[str, Any]) -> Score:
    return Score(float(stored["right"]), float(stored["of"]))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".progress-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
