"""The rubric: what was heard in an answer, and the 0 to 3 that it is worth.

Guarantees: the same ticks give the same score, and the score says why it isn't higher.
Leaves to others: hearing (a person ticks), and what a point or a red flag is (`bank`).
"""

from __future__ import annotations

from dataclasses import dataclass

from durable_mini.school.bank import Question

MOST_SECONDS = 120.0
"""What is said after that is no longer listened to."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What was ticked after an answer: only what was said, and unprompted.

    Attributes:
        points: ids of the question's points.
        red_flags: which of its red flags, by their numbers from 0.
        wrong: it was wrong, or claimed experience or a guarantee that isn't there.
        instant: the exact instant of failure was named.
        trade_off: a trade-off was.
        edge: what the guarantee leaves out.
        number: a number, and where it comes from.
        test: how it would be tested or noticed.
        follow_up: whether the follow-up was answered; None if none was asked.
        seconds: how long the answer took; None without a clock.
    """

    points: frozenset[str] = frozenset()
    red_flags: frozenset[int] = frozenset()
    wrong: bool = False
    instant: bool = False
    trade_off: bool = False
    edge: bool = False
    number: bool = False
    test: bool = False
    follow_up: bool | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """0 to 3, and in words what each step upwards would have taken."""

    worth: int
    because: tuple[str, ...]


def score(question: Question, heard: Heard) -> Score:
    """Score one answer.

    Raises:
        ValueError: a point or red flag was ticked that the question hasn't got.
    """
    _check(question, heard)
    if heard.wrong:
        return Score(0, ("It was wrong, or claimed what isn't so.",))
    if not heard.points:
        return Score(0, ("None of its points was said.",))
    missing = _missing(question, heard)
    worth = 1 if missing else 2
    if not missing:
        missing = _short_of_best(heard)
        worth = 2 if missing else 3
    capped, why = _capped(worth, heard)
    return Score(capped, (*why, *missing))


def missed(question: Question, heard: Heard) -> list[str]:
    """Ids of the points that weren't said, the musts first."""
    return [
        point.id
        for point in sorted(question.points, key=lambda one: not one.must)
        if point.id not in heard.points
    ]


def _check(question: Question, heard: Heard) -> None:
    known = {point.id for point in question.points}
    if unknown := heard.points - known:
        raise ValueError(f"question {question.id!r} has no point {min(unknown)!r}")
    if heard.red_flags - set(range(len(question.red_flags))):
        raise ValueError(f"question {question.id!r} has {len(question.red_flags)} red flags")


def _missing(question: Question, heard: Heard) -> tuple[str, ...]:
    """What an answer needs for a 2."""
    unsaid = tuple(
        f"A must was missing: {point.text}"
        for point in question.points
        if point.must and point.id not in heard.points
    )
    asked = (
        (heard.instant, "The exact instant of failure wasn't named."),
        (heard.trade_off, "No trade-off was named."),
    )
    return unsaid + tuple(said for there, said in asked if not there)


def _short_of_best(heard: Heard) -> tuple[str, ...]:
    """What a 2 needs for a 3."""
    asked = (
        (heard.edge, "For a 3: say what the guarantee leaves out."),
        (heard.number, "For a 3: give a number, and say where it comes from."),
        (heard.test, "For a 3: say how you would test it or notice it."),
        (heard.follow_up is not None, "For a 3: a follow-up has to be asked, and answered."),
    )
    return tuple(said for there, said in asked if not there)


def _capped(worth: int, heard: Heard) -> tuple[int, tuple[str, ...]]:
    why = []
    if heard.red_flags:
        worth = min(worth, 1)
        why.append("A red flag: no more than 1.")
    if heard.follow_up is False:
        worth = min(worth, 2)
        why.append("The follow-up was missed: no more than 2.")
    if heard.seconds is not None and heard.seconds > MOST_SECONDS:
        worth = max(worth - 1, 0)
        why.append(f"It took more than {MOST_SECONDS:.0f} seconds: one less.")
    return worth, tuple(why)
