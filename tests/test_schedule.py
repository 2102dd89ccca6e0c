"""When a question is due: the library's own dates, and what an interview's date does to them."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta

import fsrs
import pytest

from durable_mini.school.bank import Question
from durable_mini.school.reviews import Review
from durable_mini.school.schedule import LONGEST_DAYS, due_now, rating, standings

START = datetime(2026, 5, 4, 12, tzinfo=UTC)


def question(name: str) -> Question:
    return Question(name, "02_replay", "explain", 1, False, "?", "", "!", (), (), (), "", {}, ())


def log(seed: int, names: list[str]) -> list[Review]:
    draw, at, reviews = random.Random(seed), START, []
    for _ in range(60):
        at += timedelta(hours=draw.randint(1, 40))
        reviews.append(Review(at, draw.choice(names), draw.randint(0, 3), draw.randint(0, 3)))
    return reviews


@pytest.mark.parametrize("seed", range(5))
def test_due_dates_are_the_librarys(seed: int) -> None:
    names = ["a", "b", "c"]
    reviews = log(seed, names)
    now = reviews[-1].at
    library = fsrs.Scheduler(enable_fuzzing=False, maximum_interval=LONGEST_DAYS)
    said = {0: fsrs.Rating.Again, 1: fsrs.Rating.Again, 3: fsrs.Rating.Easy}
    for one in standings([question(name) for name in names], reviews, now):
        card = fsrs.Card(card_id=7)
        for review in (one_ for one_ in reviews if one_.question == one.question.id):
            unsure = fsrs.Rating.Hard if review.confidence < 2 else fsrs.Rating.Good
            card, _ = library.review_card(card, said.get(review.score, unsure), review.at)
        assert one.due == card.due
        assert one.recall == library.get_card_retrievability(card, now)


def test_question_that_was_never_asked_is_not_due() -> None:
    (one,) = standings([question("a")], [], START)
    assert (one.due, one.reviews, one.score, due_now(one, START)) == (None, 0, None, False)


def test_question_is_due_from_its_date_on() -> None:
    (one,) = standings([question("a")], [Review(START, "a", 2, 3)], START)
    assert one.due is not None
    assert not due_now(one, one.due - timedelta(seconds=1))
    assert due_now(one, one.due)


def test_reviews_of_a_question_that_is_gone_are_left_out() -> None:
    reviews = [Review(START, "gone", 3, 3), Review(START, "a", 3, 3)]
    assert [one.question.id for one in standings([question("a")], reviews, START)] == ["a"]


def test_interview_compresses_the_waits_to_half_of_what_is_left() -> None:
    reviews = [Review(START + timedelta(days=n), "a", 3, 3) for n in range(5)]
    now = reviews[-1].at
    (free,) = standings([question("a")], reviews, now)
    (soon,) = standings([question("a")], reviews, now, interview=date(2026, 5, 18))
    assert free.due is not None and soon.due is not None
    assert free.due > now + timedelta(days=10)
    assert soon.due == now + timedelta(days=5)


@pytest.mark.parametrize("interview", [START.date(), START.date() - timedelta(days=9)])
def test_interview_that_is_over_compresses_nothing(interview: date) -> None:
    reviews = [Review(START, "a", 3, 3)]
    free, over = (standings([question("a")], reviews, START, day)[0] for day in (None, interview))
    assert free == over


@pytest.mark.parametrize(
    ("score", "confidence", "told"),
    [(0, 3, "Again"), (1, 3, "Again"), (2, 1, "Hard"), (2, 2, "Good"), (3, 0, "Easy")],
)
def test_rating_says_what_the_library_means_by_it(score: int, confidence: int, told: str) -> None:
    assert rating(Review(START, "a", score, confidence)).name == told
