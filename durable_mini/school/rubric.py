"""The rubric: what was heard in an answer, and the 0 to 3 that it is worth.

Guarantees: the same ticks give the same score, and the score says why it isn't higher.
Leaves to others: hearing (a person ticks), and what a point or a red flag is (`bank`).
"""

from __future__ import annotations

from dataclasses import dataclass

from durable_mini.school.bank import Question

MOST_SECONDS = 120.0
"""What is said after that is no longer listened to."""

_DEFAULT_WORDS = {
    "instant": "named the exact instant of failure",
    "trade_off": "named a trade-off, or when not to do it",
    "edge": "said what the guarantee leaves out",
    "number": "gave a number, and where it comes from",
    "test": "said how to test it, or to notice it",
}
_ASKING_WORDS = {
    "instant": "asked about one exact moment of failure",
    "trade_off": "said what an answer would change in the design",
    "edge": "asked what need not be guaranteed",
    "number": "asked for a number, and said why that one",
    "test": "asked how anybody would notice that it went wrong",
}
_WORDS = {
    "number": {
        "instant": "said which event is counted, and when it happens",
        "trade_off": "said what the figure decides, or doesn't",
        "edge": "said what the figure assumes",
        "number": "came to the figure, by a way that can be followed",
        "test": "said how to measure it",
    },
    "war-story": {
        "instant": "named the moment at which it went wrong",
        "trade_off": "named a decision, and what it cost",
        "edge": "said what the repair doesn't cover",
        "number": "gave a number that was measured",
        "test": "said how it would be noticed the next time",
    },
    "failure": {
        "instant": "said what notices it, and when",
        "trade_off": "said what the way out costs, or when not to take it",
        "edge": "said what stays unprotected",
        "number": "gave a number (a time-out, a horizon, a count), and why that one",
        "test": "said how to bring it about on purpose, and what to look at then",
    },
    "clarify": _ASKING_WORDS,
    "opening": _ASKING_WORDS,
}


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


def words(kind: str) -> dict[str, str]:
    """What is ticked besides the points, by the attribute of `Heard`: the same five for each kind
    of question, in the words that fit it."""
    return _WORDS.get(kind, _DEFAULT_WORDS)


def score(
    question: Question, heard: Heard, *, most_seconds: float = MOST_SECONDS, follows_up: bool = True
) -> Score:
    """Score one answer.

    Args:
        question: what was asked.
        heard: what was ticked.
        most_seconds: how long the answer could take.
        follows_up: False where no follow-up belongs to the question: a design is followed up by
            the failures in it.

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
        missing = _short_of_best(question, heard, follows_up)
        worth = 2 if missing else 3
    capped, why = _capped(worth, heard, most_seconds)
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
    said = words(question.kind)
    needed = [name for name in ("instant", "trade_off") if not getattr(heard, name)]
    return unsaid + tuple(f"Needed for a 2: {said[name]}." for name in needed)


def _short_of_best(question: Question, heard: Heard, follows_up: bool) -> tuple[str, ...]:
    """What a 2 needs for a 3."""
    said = words(question.kind)
    needed = [name for name in ("edge", "number", "test") if not getattr(heard, name)]
    missing = tuple(f"Needed for a 3: {said[name]}." for name in needed)
    if follows_up and heard.follow_up is None:
        missing += ("Needed for a 3: a follow-up that was asked, and answered.",)
    return missing


def _capped(worth: int, heard: Heard, most_seconds: float) -> tuple[int, tuple[str, ...]]:
    why = []
    if heard.red_flags:
        worth = min(worth, 1)
        why.append("A red flag: no more than 1.")
    if heard.follow_up is False:
        worth = min(worth, 2)
        why.append("The follow-up was missed: no more than 2.")
    if heard.seconds is not None and heard.seconds > most_seconds:
        worth = max(worth - 1, 0)
        why.append(f"It took more than {most_seconds:.0f} seconds: one less.")
    return worth, tuple(why)
