"""When to see a question again: FSRS, by the `fsrs` library, computed anew from the log each time.

Guarantees: the same reviews give the same due dates (the library's own, fuzzing off); with a date
of the interview no question waits for longer than half of what is left. Nothing is stored.
Leaves to others: the reviews (`reviews`), the formula (the library).
Source: the FSRS algorithm, https://github.com/open-spaced-repetition/py-fsrs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from fsrs import Card, Rating, Scheduler

from durable_mini.school.bank import Question
from durable_mini.school.reviews import Review, in_force

UNSURE = 1
"""A good answer given with no more confidence than this counts as a hard one."""

LONGEST_DAYS = 365


@dataclass(frozen=True, slots=True)
class Standing:
    """How one question stands: when it is due, and the chance that it would be answered now."""

    question: Question
    due: datetime | None  # None: it was never asked
    recall: float
    reviews: int
    score: int | None  # of the last answer


def rating(review: Review) -> Rating:
    """What the library is told of a review.

    A 0 or a 1 is no answer that would pass, so the question comes again soon. The library's "hard"
    means remembered with effort: a 2 that was given unsure.
    """
    if review.score < 2:
        return Rating.Again
    if review.score == 2:
        return Rating.Hard if review.confidence <= UNSURE else Rating.Good
    return Rating.Easy


def scheduler(now: datetime, interview: date | None = None) -> Scheduler:
    """The library's scheduler; before an interview with its intervals cut to fit.

    Args:
        now: in the time zone of the reader.
        interview: the day; nothing is compressed from that day on.
    """
    days = LONGEST_DAYS
    if interview is not None and interview > now.date():
        days = max((interview - now.date()).days // 2, 1)
    return Scheduler(enable_fuzzing=False, maximum_interval=days)


def standings(
    questions: Sequence[Question],
    reviews: Iterable[Review],
    now: datetime,
    interview: date | None = None,
) -> list[Standing]:
    """How each question stands, in the order of the bank.

    Args:
        questions: the bank.
        reviews: oldest first; those of questions that the bank no longer has are left out, and so
            are mis-ticks.
        now: in the time zone of the reader.
        interview: the day of the interview.
    """
    by_question: dict[str, list[Review]] = {one.id: [] for one in questions}
    for review in in_force(reviews):
        by_question.get(review.question, []).append(review)
    library = scheduler(now, interview)
    at = now.astimezone(UTC)  # the library takes no other time zone
    return [_standing(one, by_question[one.id], library, at) for one in questions]


def due_now(standing: Standing, now: datetime) -> bool:
    """Whether it was asked before and has to be asked again."""
    return standing.due is not None and standing.due <= now


def _standing(
    question: Question, reviews: Sequence[Review], library: Scheduler, now: datetime
) -> Standing:
    if not reviews:
        return Standing(question, None, 0.0, 0, None)
    card = Card(card_id=1, due=reviews[0].at)
    for review in reviews:
        card, _ = library.review_card(card, rating(review), review.at.astimezone(UTC))
    recall = library.get_card_retrievability(card, now)
    return Standing(question, card.due, recall, len(reviews), reviews[-1].score)
