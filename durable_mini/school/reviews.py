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
from datetime import UTC, date, datetime
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
        follow_up: id of the follow-up that was asked; empty if none was.
        instead_of: the time of an earlier review of the question that was a mis-tick; that one is
            kept in the log and counts no more.
    """

    at: datetime
    question: str
    score: int
    confidence: int
    seconds: float | None = None
    missed: tuple[str, ...] = field(default=())
    mode: str = "due"
    follow_up: str = ""
    instead_of: datetime | None = None

    def __post_init__(self) -> None:
        if self.at.tzinfo is None:
            raise ValueError("a review's time needs a time zone")
        if self.score not in range(4) or self.confidence not in range(4):
            raise ValueError(f"score {self.score}, confidence {self.confidence}: right is 0 to 3")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a reader has set: the interview's day, the seed of the figures, whether a clock runs."""

    interview: date | None = None
    seed: int = 0
    clock: bool = True


class Reviews:
    """The log.

    Args:
        path: where it is; None for this system's place for a program's data.

    Attributes: `passed_over`, what the last reading couldn't read, each with its line number, and
        `settings`, the last ones that it found. Both are as `read` left them.
    """

    def __init__(self, path: Path | None = None) -> None:
        folder = platformdirs.user_data_path("durable-mini", appauthor=False)
        self.path = path or folder / "reviews.jsonl"
        self.passed_over: tuple[str, ...] = ()
        self.settings = Settings()

    def read(self) -> list[Review]:
        """Every review, oldest first; nothing where there is no file.

        Raises:
            ReviewsError: the file is something else, or of a future version.
            OSError: it can't be read.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            self.passed_over, self.settings = (), Settings()
            return []
        return self._parsed(data)

    def append(self, *reviews: Review) -> int:
        """Add reviews, and return how many; one that is in the log already is left out.

        A review is known by its time and its question, so whoever isn't sure may add it again.

        Crash: none of a line, or all of it; a half one is cut off by the next `append`.

        Raises:
            ReviewsError: as `read`.
            OSError: the disk is full, the folder can't be written.
        """
        with self._locked() as file:
            data = file.read()
            known = {(one.at, one.question) for one in self._parsed(data)}
            new = [one for one in reviews if (one.at, one.question) not in known]
            _extend(file, data, [_line(asdict(one)) for one in new])
        return len(new)

    def set(self, settings: Settings, now: datetime) -> None:
        """Note new settings, as one more line of the log.

        Raises:
            ReviewsError, OSError: as `append`.
        """
        with self._locked() as file:
            data = file.read()
            self._parsed(data)
            _extend(file, data, [_line({"at": now, "settings": asdict(settings)})])
        self.settings = settings

    def export(self, path: Path) -> int:
        """Write a copy of the reviews to a new file, and return how many there are.

        Raises:
            FileExistsError: there is a file of that name.
            ReviewsError, OSError: as `read`.
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
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such file")
        return self.append(*Reviews(path).read())

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
        reviews, passed_over, settings = [], [], Settings()
        for number, line in enumerate(lines[1:], start=2):
            try:
                stored = json.loads(line)
                if "settings" in stored:
                    settings = _settings(stored["settings"])
                else:
                    reviews.append(_review(stored))
            except (ValueError, TypeError, KeyError) as error:
                passed_over.append(f"{self.path}, line {number} was passed over: {error}")
        self.passed_over, self.settings = tuple(passed_over), settings
        return sorted(reviews, key=lambda one: one.at)

    @contextmanager
    def _locked(self) -> Iterator[IO[bytes]]:
        import fcntl  # noqa: PLC0415 - not everywhere

        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            yield file


def in_force(reviews: Iterable[Review]) -> list[Review]:
    """The reviews that count: all but those that were said to be a mis-tick."""
    found = list(reviews)
    undone = {(one.instead_of, one.question) for one in found}
    return [one for one in found if (one.at, one.question) not in undone]


def _extend(file: IO[bytes], data: bytes, lines: list[bytes]) -> None:
    """Put lines after the last whole one of a file that holds `data`."""
    if not lines:
        return
    whole = data[: data.rfind(b"\n") + 1]
    file.truncate(len(whole))
    file.write(b"".join(lines if whole else [_line(_HEADER), *lines]))
    file.flush()
    os.fsync(file.fileno())


def _line(stored: dict[str, Any]) -> bytes:
    return json.dumps(stored, default=_iso).encode() + b"\n"


def _iso(day: date) -> str:
    return day.isoformat()


def _review(stored: dict[str, Any]) -> Review:
    known = {one.name for one in fields(Review)}
    values = {name: value for name, value in stored.items() if name in known}
    values["at"] = datetime.fromisoformat(values["at"])
    values["missed"] = tuple(values.get("missed", ()))
    if values.get("instead_of") is not None:
        values["instead_of"] = datetime.fromisoformat(values["instead_of"])
    return Review(**values)


def _settings(stored: dict[str, Any]) -> Settings:
    day = stored.get("interview")
    return Settings(
        interview=None if day is None else date.fromisoformat(day),
        seed=int(stored.get("seed", 0)),
        clock=bool(stored.get("clock", True)),
    )


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
