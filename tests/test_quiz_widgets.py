"""The quiz in a notebook: nothing is shown too early, nothing is kept unasked, nothing leaks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from noon import Now

from durable_mini import FakeClock
from durable_mini.school import board_widget, quiz_widget, rehearse
from durable_mini.school.bank import Question, load_questions
from durable_mini.school.board_widget import Board
from durable_mini.school.mock import MockInterview
from durable_mini.school.mock_widget import Mock
from durable_mini.school.quiz_widget import Quiz, sample
from durable_mini.school.rehearsal import Rehearsal
from durable_mini.school.reviews import Reviews

BANK = [one for one in load_questions() if one.core]


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def quiz(tmp_path: Path, now: Now) -> Quiz:
    return Quiz(Rehearsal(Reviews(tmp_path / "reviews.jsonl"), BANK, now))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a cell displays."""
    bundles: list[dict[str, Any]] = []
    for module in (quiz_widget, board_widget):
        monkeypatch.setattr(module, "show_bundle", lambda data, metadata=None: bundles.append(data))
    return bundles


def press(quiz: Quiz, *names: str) -> None:
    """Press the button that goes on, which has to have these names in turn."""
    for name in names:
        assert quiz.go.description == name
        quiz.go.click()


def asked(quiz: Quiz) -> Question:
    assert quiz.question is not None
    return quiz.question


def to_ticks(quiz: Quiz, sure: int = 2) -> None:
    quiz.confidence.value = sure
    press(quiz, quiz_widget.SHOW)


def to_the_end(quiz: Quiz, *, followed: bool = True) -> None:
    press(quiz, quiz_widget.ASK_FURTHER, quiz_widget.SHOW_FURTHER)
    quiz.further.value = followed
    press(quiz, quiz_widget.KEEP)


def everything(quiz: Quiz) -> str:
    """All text that is on the page."""
    found, left = [], [quiz._panel]
    while left:
        widget = left.pop()
        left += list(getattr(widget, "children", ()))
        found += [str(getattr(widget, name, "")) for name in ("value", "description")]
    return " ".join(found)


def test_showing_it_keeps_nothing_and_ticks_nothing(
    quiz: Quiz, shown: list[dict[str, Any]]
) -> None:
    quiz._ipython_display_()
    assert not quiz.rehearsal.log.path.exists()
    assert quiz.confidence.value is None
    assert not any(box.value for box in quiz.ticks.points.values())


def test_static_part_is_the_same_whatever_the_log(quiz: Quiz, shown: list[dict[str, Any]]) -> None:
    quiz._ipython_display_()
    to_ticks(quiz)
    to_the_end(quiz)
    quiz.log_panel.seed.value = 99
    quiz._ipython_display_()
    static = [{name: one[name] for name in ("text/html", "text/plain")} for one in shown]
    assert static[0] == static[1]
    assert static[0]["text/html"].count("<details>") == 3 * len(sample(BANK))


def test_answer_is_not_on_the_page_before_confidence_is_said(quiz: Quiz) -> None:
    worked = quiz.rehearsal.figures.answer(asked(quiz))[:60]
    press(quiz, quiz_widget.SHOW)
    assert "First say how sure you are" in quiz.status.value
    assert worked not in everything(quiz)
    assert asked(quiz).points[0].text not in everything(quiz)
    to_ticks(quiz)
    assert asked(quiz).points[0].text in everything(quiz)


def test_answer_has_the_readers_figures(quiz: Quiz) -> None:
    quiz.log_panel.seed.value = 4_711
    while "seed" not in asked(quiz).answer:
        quiz.skip.click()
    to_ticks(quiz)
    assert "seed 4711" in everything(quiz)


def test_review_has_what_was_ticked_and_said(quiz: Quiz, now: Now) -> None:
    question = asked(quiz)
    quiz.clock_button.click()
    now.at += timedelta(seconds=80)
    quiz.clock_button.click()
    to_ticks(quiz, sure=1)
    for point in question.points:
        quiz.ticks.points[point.id].value = point.must
    quiz.ticks.rubric["instant"].value = quiz.ticks.rubric["trade_off"].value = True
    to_the_end(quiz)
    (review,) = quiz.rehearsal.log.read()
    assert (review.question, review.score, review.confidence) == (question.id, 2, 1)
    assert (review.seconds, review.mode) == (80, "due")
    assert review.missed == tuple(one.id for one in question.points if not one.must)
    assert review.follow_up in {one.id for one in question.follow_ups}
    assert "2 of 3" in quiz.status.value
    press(quiz, quiz_widget.NEXT)
    assert asked(quiz) != question


def test_follow_up_waits_for_a_missed_must(quiz: Quiz) -> None:
    question = next(
        one
        for one in BANK
        if any(f.asked == p.id for f in one.follow_ups for p in one.points if p.must)
    )
    while asked(quiz) != question:
        quiz.skip.click()
    to_ticks(quiz)
    press(quiz, quiz_widget.ASK_FURTHER)
    musts = {point.id for point in question.points if point.must}
    assert quiz.follow_up is not None and quiz.follow_up.asked in musts
    press(quiz, quiz_widget.SHOW_FURTHER, quiz_widget.KEEP)
    assert "whether you answered the follow-up" in quiz.status.value
    assert not quiz.rehearsal.log.path.exists()


def test_clock_that_is_off_is_not_shown_and_costs_nothing(quiz: Quiz, now: Now) -> None:
    quiz.log_panel.clock.value = False
    assert quiz.clock_button not in [
        w for row in quiz.body.children for w in getattr(row, "children", ())
    ]
    now.at += timedelta(seconds=500)
    to_ticks(quiz)
    to_the_end(quiz)
    assert quiz.rehearsal.log.read()[0].seconds is None


def test_mis_tick_is_rated_again(quiz: Quiz) -> None:
    question = asked(quiz)
    to_ticks(quiz, sure=3)
    to_the_end(quiz)
    assert "0 of 3" in quiz.status.value
    quiz.rate_again.click()
    assert asked(quiz) == question
    assert quiz.confidence.value == 3
    for box in (*quiz.ticks.points.values(), *quiz.ticks.rubric.values()):
        box.value = True
    to_the_end(quiz)
    assert "3 of 3" in quiz.status.value
    (standing,) = [one for one in quiz.rehearsal.standings() if one.question == question]
    assert (standing.reviews, standing.score) == (1, 3)


def test_empty_queue_says_why(quiz: Quiz) -> None:
    quiz.mode.value = "weak"
    assert quiz.question is None
    assert "Nothing is weak" in quiz.status.value
    press(quiz, quiz_widget.LOOK)
    quiz.mode.value = "core"
    assert asked(quiz).core


def test_reset_asks_first_and_puts_aside(quiz: Quiz) -> None:
    to_ticks(quiz)
    to_the_end(quiz)
    panel = quiz.log_panel
    panel.reset_button.click()
    assert len(quiz.rehearsal.log.read()) == 1
    panel.keep_button.click()
    assert panel.reset_button.description == "Reset …"
    panel.reset_button.click()
    panel.reset_button.click()
    assert quiz.rehearsal.log.read() == []
    assert "reviews-until-" in panel.said.value


def test_export_and_import_by_button(quiz: Quiz, tmp_path: Path) -> None:
    to_ticks(quiz)
    to_the_end(quiz)
    panel = quiz.log_panel
    panel.export_button.click()
    assert "name a file first" in panel.said.value
    panel.path.value = str(tmp_path / "copy.jsonl")
    panel.export_button.click()
    assert "1 reviews were written" in panel.said.value
    panel.export_button.click()
    assert "Not done" in panel.said.value
    panel.import_button.click()
    assert "0 reviews were new" in panel.said.value


def damaged(path: Path) -> None:
    path.write_text('{"durable_mini": "reviews", "version": 1}\nnonsense\n')


def of_the_future(path: Path) -> None:
    path.write_text('{"durable_mini": "reviews", "version": 2}\n')


@pytest.mark.parametrize(
    ("spoil", "said"), [(damaged, "line 2 was passed over"), (of_the_future, "Next: update")]
)
def test_log_in_trouble_is_told_of(
    tmp_path: Path, spoil: Callable[[Path], None], said: str
) -> None:
    path = tmp_path / "reviews.jsonl"
    spoil(path)
    before = path.read_bytes()
    quiz = Quiz(Rehearsal(Reviews(path), BANK))
    assert said in quiz.status.value
    assert path.read_bytes() == before


def test_what_was_typed_is_shown_and_not_obeyed(quiz: Quiz) -> None:
    quiz.answer.value = "<script>alert(1)</script>"
    to_ticks(quiz)
    assert "<script>" not in "".join(
        row.value for row in quiz.body.children if hasattr(row, "value")
    )


@pytest.mark.parametrize(
    "wrong", [{"mode": "luck"}, {"chapter": "99_end"}, {"mode": "mock", "minutes": 5}]
)
def test_rehearse_refuses_what_is_not_there(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="right is"):
        rehearse(**wrong, folder=tmp_path)


def test_board_shows_a_made_up_log_without_a_kernel(
    quiz: Quiz, shown: list[dict[str, Any]]
) -> None:
    Board(quiz.rehearsal)._ipython_display_()
    to_ticks(quiz)
    to_the_end(quiz)
    board = Board(quiz.rehearsal)
    board._ipython_display_()
    half = len(shown) // 2
    plain = [one["text/plain"] for one in shown]
    assert plain[:half] == plain[half:]
    assert "1 were asked" in board.words[0].value
    assert "Made up" in plain[half - 1]


# ---- the mock interview ------------------------------------------------------------------------


@pytest.fixture
def mock(tmp_path: Path) -> Mock:
    interview = MockInterview(tmp_path / "interviews.db", FakeClock(1_800_000_000.0))
    return Mock(interview, Reviews(tmp_path / "reviews.jsonl"), minutes=20)


def give(mock: Mock) -> None:
    """Answer what is asked, whatever it is."""
    mock.answer.value, mock.confidence.value = "Something.", 2
    mock.steps.value, mock.irreversible.value = "reserve\n\n charge ", "charge"
    mock.go.click()


def test_mock_begins_at_its_button_only(mock: Mock) -> None:
    assert not mock.interview.path.exists()
    mock.go.click()
    assert "Stage 1 of 4: Clarify" in mock.status.value
    assert mock.interview.under_way() == "mock-1"


def test_mock_asks_for_confidence_and_for_the_steps_of_a_design(mock: Mock) -> None:
    mock.go.click()
    mock.go.click()
    assert "how sure" in mock.status.value
    give(mock)
    assert "Stage 2 of 4: Design" in mock.status.value
    mock.confidence.value = 1
    mock.steps.value, mock.irreversible.value = "charge", "charge"
    mock.go.click()
    assert "Name two steps or more" in mock.status.value
    give(mock)
    assert "charge" in mock.asked.value


def test_mock_that_is_under_way_is_offered_first_and_finished_once(mock: Mock) -> None:
    mock.go.click()
    give(mock)
    give(mock)
    again = Mock(mock.interview, mock.log)
    assert "An interview of 20 minutes is under way, at stage 3 of 4" in again.status.value
    again.go.click()
    for _ in range(3):
        give(again)
    assert "Debrief, 1 of 4" in again.status.value
    give(mock)  # the first window is late
    assert "Another window had answered that already" in mock.status.value
    for _ in range(4):
        again.followed.value = True
        again.go.click()
    assert "Together: 0 of 12" in again.asked.value
    assert "4 scores were added" in again.status.value
    assert len(again.log.read()) == 4
    again.body.children[1].click()
    assert again.interview.path.with_name("mock-1.md").read_text().startswith("# Mock interview")
    again.go.click()
    assert again.go.description == "Begin"


def test_mock_is_given_up_at_the_second_press(mock: Mock) -> None:
    mock.go.click()
    mock.give_up.click()
    assert mock.interview.under_way() is not None
    mock.give_up.click()
    assert mock.interview.under_way() is None
    assert mock.go.description == "Begin"
