"""The log of reviews: one line of JSON for each answer, in the reader's own folder, kept for ever.

Guarantees: a review is appended and synced under a lock, so two windows can be open; a line that a
dying writer left half-written is lost and nothing else; a line that can't be read is passed over
and told of, never removed; a file of a future version is refused and left as it is; `reset` puts
the file aside. Leaves to others: when a question is due (`schedule`), what it is worth (`rubric`).

Months of progress don't live in a durable run: the next version of the code would strand it. They
are plain facts in the order in which they happened, and whatever is shown is computed from them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import platformdirs

VERSION = 1
_HEADER = {"durable_mini": "reviews", "version": VERSION}


class ReviewsError(ValueError):
    """The file isn't a log of reviews, or not one of a version that is known here."""


@dataclass(frozen=True, slots=True)
class Review:
    """One answer to one question.

    Attributes:
        at: when, in UTC.
        question: its id.
        score: 0 to 3, by the rubric.
        confidence: 0 to 3, said before the worked answer was shown.
        seconds: how long the answer took; None without a clock.
        missed: ids of the points that weren't said.
        mode: where it was asked: due, core, chapter, weak or mock.
    """

    at: datetime
    question: str
    score: int
    confidence: int
    seconds: float | None = None
    missed: tuple[str, ...] = field(default=())
    mode: str = "due"

    def __post_init__(self) -> None:
        if self.at.tzinfo is None:
            raise ValueError("a review's time needs a time zone")
        if self.score not in range(4) or self.confidence not in range(4):
            raise ValueError(f"score {self.score}, confidence {self.confidence}: right is 0 to 3")


class Reviews:
    """The log.

    Args:
        path: where it is; None for this system's place for a program's data.

    Attributes: `passed_over`, what the last reading couldn't read, each with its line number.
    """

    def __init__(self, path: Path | None = None) -> None:
        folder = platformdirs.user_data_path("durable-mini", appauthor=False)
        self.path = path or folder / "reviews.jsonl"
        self.passed_over: tuple[str, ...] = ()

    def read(self) -> list[Review]:
        """Every review, oldest first; nothing where there is no file.

        Raises:
            ReviewsError: the file is something else, or of a future version.
            OSError: it can't be read.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            self.passed_over = ()
            return []
        return self._parsed(data)

    def append(self, *reviews: Review) -> None:
        """Add reviews.

        Crash: none of a line, or all of it; a half one is cut off by the next `append`.

        Raises:
            ReviewsError: as `read`.
            OSError: the disk is full, the folder can't be written.
        """
        with self._locked() as file:
            data = file.read()
            self._parsed(data)
            whole = data.rpartition(b"\n")[0] + b"\n" if b"\n" in data else b""
            lines = [_line(asdict(review)) for review in reviews]
            if not whole:
                lines.insert(0, _line(_HEADER))
            file.truncate(len(whole))
            file.write(b"".join(lines))
            file.flush()
            os.fsync(file.fileno())

    def export(self, path: Path) -> int:
        """Write a copy to a new file, and return how many reviews it has.

        Raises:
            FileExistsError: there is a file of that name.
        """
        reviews = self.read()
        with path.open("xb") as file:
            file.write(b"".join([_line(_HEADER), *(_line(asdict(one)) for one in reviews)]))
        return len(reviews)

    def take_in(self, path: Path) -> int:
        """Add what another log has and this one hasn't, and return how many reviews that were.

        Raises:
            ReviewsError, OSError: as `read`, for either file.
        """
        known = {(one.at, one.question) for one in self.read()}
        other = Reviews(path)
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such file")
        new = [one for one in other.read() if (one.at, one.question) not in known]
        if new:
            self.append(*new)
        return len(new)

    def reset(self, now: datetime | None = None) -> Path | None:
        """Begin anew; the old log is put aside, and its path returned (None: there was none)."""
        if not self.path.exists():
            return None
        stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%S")
        aside = self.path.with_name(f"{self.path.stem}-until-{stamp}{self.path.suffix}")
        self.path.rename(aside)
        return aside

    def _parsed(self, data: bytes) -> list[Review]:
        lines = data.split(b"\n")[:-1]  # what stands after the last newline was never finished
        if lines:
            _check_header(self.path, lines[0])
        elif not _line(_HEADER).startswith(data):
            raise _not_ours(self.path)
        reviews, passed_over = [], []
        for number, line in enumerate(lines[1:], start=2):
            try:
                reviews.append(_review(json.loads(line)))
            except (ValueError, TypeError, KeyError) as error:
                passed_over.append(f"{self.path}, line {number} was passed over: {error}")
        self.passed_over = tuple(passed_over)
        return sorted(reviews, key=lambda one: one.at)

    @contextmanager
    def _locked(self) -> Iterator[IO[bytes]]:
        import fcntl  # noqa: PLC0415 - not everywhere

        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            yield file


def latest(reviews: Iterable[Review]) -> dict[str, Review]:
    """The last review of each question."""
    return {one.question: one for one in reviews}


def _line(stored: dict[str, Any]) -> bytes:
    return json.dumps(stored, default=datetime.isoformat).encode() + b"\n"


def _review(stored: dict[str, Any]) -> Review:
    known = {one.name for one in fields(Review)}
    values = {name: value for name, value in stored.items() if name in known}
    values["at"] = datetime.fromisoformat(values["at"])
    values["missed"] = tuple(values.get("missed", ()))
    return Review(**values)


def _check_header(path: Path, line: bytes) -> None:
    try:
        header = json.loads(line)
        ours, version = header["durable_mini"] == "reviews", int(header["version"])
    except (ValueError, TypeError, KeyError):
        raise _not_ours(path) from None
    if not ours:
        raise _not_ours(path)
    if version > VERSION:
        raise ReviewsError(
            f"{path} has version {version}, and this durable_mini knows up to {VERSION}. It was "
            "left as it is. Next: update durable-mini, or put the file aside and begin anew."
        )


def _not_ours(path: Path) -> ReviewsError:
    return ReviewsError(f"{path} is no log of reviews. Next: put it aside, it was left as it is.")
