"""The rubric: each rule decides a score on its own."""

from __future__ import annotations

import pytest

from durable_mini.school.bank import Point, Question
from durable_mini.school.rubric import Heard, missed, score

POINTS = (
    Point("window", "the window", True),
    Point("bonus", "more", False),
    Point("key", "k", True),
)
QUESTION = Question(
    "q", "03_crash_window", "explain", 1, False, "?", "", "!", POINTS, ("locks",), (), "", {}, ()
)
BEST = Heard(
    points=frozenset({"window", "key"}), instant=True, trade_off=True, edge=True, number=True,
    test=True, follow_up=True, seconds=120.0,
)  # fmt: skip


def but(**changes: object) -> Heard:
    values = {name: getattr(BEST, name) for name in BEST.__slots__}
    return Heard(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("heard", "worth"),
    [
        (BEST, 3),
        (but(wrong=True), 0),
        (but(points=frozenset()), 0),
        (but(points=frozenset({"window", "bonus"})), 1),
        (but(instant=False), 1),
        (but(trade_off=False), 1),
        (but(edge=False), 2),
        (but(number=False), 2),
        (but(test=False), 2),
        (but(follow_up=None), 2),
        (but(follow_up=False), 2),
        (but(red_flags=frozenset({0})), 1),
        (but(seconds=120.1), 2),
        (but(seconds=121.0, edge=False), 1),
        (but(seconds=121.0, points=frozenset({"window"})), 0),
        (but(seconds=None), 3),
        (but(red_flags=frozenset({0}), seconds=300.0), 0),
    ],
)
def test_score_follows_the_rubric(heard: Heard, worth: int) -> None:
    told = score(QUESTION, heard)
    assert told.worth == worth
    assert bool(told.because) == (worth < 3)


def test_score_names_the_must_that_was_missing() -> None:
    told = score(QUESTION, but(points=frozenset({"key"})))
    assert told.because == ("A must was missing: the window",)


def test_missed_points_come_with_the_musts_first() -> None:
    assert missed(QUESTION, Heard()) == ["window", "key", "bonus"]
    assert missed(QUESTION, BEST) == ["bonus"]


@pytest.mark.parametrize(
    "heard", [Heard(points=frozenset({"other"})), Heard(red_flags=frozenset({1}))]
)
def test_what_the_question_has_not_got_cannot_be_ticked(heard: Heard) -> None:
    with pytest.raises(ValueError, match="question 'q' has"):
        score(QUESTION, heard)
