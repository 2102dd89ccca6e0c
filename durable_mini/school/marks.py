"""What grading hands on: files that were handed in, and what each earned, check by check.

Guarantees: plain data that compares, pickles and says nothing about time or place beyond what it
holds; the sums are those of the checks. Leaves to others: finding the files (`submissions`),
earning the points (`grading`), who belongs to the class (`roster`), and telling people (`reports`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

_NOTHING: Mapping[str, str] = MappingProxyType({})


class Chain(StrEnum):
    """With whose answers to earlier questions a check was passed."""

    OWN = "own"
    REFERENCE = "reference"  # follow-through: a mistake made earlier is paid for once


@dataclass(frozen=True, slots=True)
class HandIn:
    """One file that was handed in, before anybody looked into it."""

    path: Path  # the file to read; a temporary one where it came out of an archive
    shown: str  # how every row names it, the same on any machine: relative to what was given
    student: str  # "" where neither the file's name nor its folder tells
    exercise: str  # "03_keys"; "" where it can't be told
    attempt: tuple[str | int, ...] = ()  # sorts; of two the larger is the later one
    trouble: str = ""  # why this file can't be graded, in a sentence


@dataclass(frozen=True, slots=True)
class CheckMark:
    """What one check gave."""

    name: str  # "q2-replay-none"; "" is the one row of a file that couldn't be graded at all
    question: str  # "q2"
    points: float
    max_points: float
    note: str = ""  # the missed idea and what was shown with it; "" at full points
    hidden: bool = False
    chain: Chain = Chain.OWN
    printed: str = ""  # what the answers wrote while this check ran, cut
    by_person: bool = False  # no machine marks it; then `points` is 0
    partly_hidden: bool = False  # the exercise shows the check, and not all that it asks


@dataclass(frozen=True, slots=True)
class SetAside:
    """An answer that was taken out, so that the rest could be marked."""

    answer: str  # the answer's id, "q2-replay"
    reason: str  # "it ran for 5 s of processor time, twice"


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit on the process that runs the answers, and whether this system keeps it."""

    name: str  # "memory", "network", …
    holds: bool
    words: str  # "1 GB" or why it doesn't hold


@dataclass(frozen=True, slots=True)
class Rubric:
    """A part that a person marks: what was written, and by what it is judged."""

    name: str  # the cell's id, also the name of its check
    max_points: float
    answer: str  # what the student wrote
    rubric: str  # Markdown


@dataclass(frozen=True, slots=True)
class Submission:
    """What one file earned."""

    path: str  # `HandIn.shown`
    student: str
    exercise: str
    checks: tuple[CheckMark, ...]
    version_note: str = ""  # says so where the file was made from another version of the exercise
    notes: tuple[str, ...] = ()  # sentences about the file: split cells, edited checks, warnings
    printed: str = ""  # what the answer cells wrote while they were loaded, cut
    set_aside: tuple[SetAside, ...] = ()
    limits: tuple[Limit, ...] = ()
    rubrics: tuple[Rubric, ...] = ()
    answers: Mapping[str, str] = field(default_factory=lambda: _NOTHING)  # id → source as run
    graded: bool = True  # False: missing, unreadable, or an earlier attempt

    @property
    def points(self) -> float:
        """What was earned."""
        return sum(check.points for check in self.checks)

    @property
    def max_points(self) -> float:
        """What could be earned, parts that a person marks among them."""
        return sum(check.max_points for check in self.checks)

    @property
    def machine_points(self) -> float:
        """What could be earned without the parts that a person marks."""
        return sum(check.max_points for check in self.checks if not check.by_person)

    @property
    def is_full(self) -> bool:
        """Whether everything that a machine marks was earned."""
        return self.graded and self.points == self.machine_points


def ungraded(hand_in: HandIn, max_points: float, note: str) -> Submission:
    """The one row of a file that couldn't be graded: no points, and why."""
    row = CheckMark("", "", 0.0, max_points, note)
    return Submission(hand_in.shown, hand_in.student, hand_in.exercise, (row,), graded=False)
