"""What is asked next: due first, new ones in time for the interview, follow-ups that fit."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from noon import NOON, Now

from durable_mini.school.bank import FollowUp, Point, Question
from durable_mini.school.rehearsal import NEW_A_DAY, Rehearsal, follow_up_to
from durable_mini.school.rehearsal_pictures import ahead_rows, pictures, strength_rows
from durable_mini.school.reviews import Review, Reviews, ReviewsError
from durable_mini.school.rubric import Heard

POINTS = (Point("bonus", "b", False), Point("first", "f", True), Point("second", "s", True))
FOLLOW_UPS = (
    FollowUp("always-1", "always", "?", "!"),
    FollowUp("on-second", "second", "?", "!"),
    FollowUp("on-bonus", "bonus", "?", "!"),
    FollowUp("on-first", "first", "?", "!"),
    FollowUp("always-2", "always", "?", "!"),
)
BEST = Heard(
    points=frozenset({"first", "second"}), instant=True, trade_off=True, edge=True, number=True,
    test=True, follow_up=True,
)  # fmt: skip


def question(name: str, *, core: bool = False, chapter: str = "02_replay") -> Question:
    return Question(
        name, chapter, "explain", 1, core, "?", "", "!", POINTS, ("flag",), FOLLOW_UPS, "", {}, ()
    )


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def bank() -> list[Question]:
    others = [question(f"q-{n:02}", chapter="03_crash_window") for n in range(20)]
    return [*others, question("core-a", core=True), question("core-b", core=True)]


@pytest.fixture
def rehearsal(tmp_path: Path, bank: list[Question], now: Now) -> Rehearsal:
    return Rehearsal(Reviews(tmp_path / "reviews.jsonl"), bank, now)


def ids(rehearsal: Rehearsal, mode: str = "due", chapter: str = "") -> list[str]:
    return [one.question.id for one in rehearsal.queue(mode, chapter)]


def answered(rehearsal: Rehearsal, name: str, heard: Heard = BEST, sure: int = 3) -> None:
    found = next(one for one in rehearsal.questions if one.id == name)
    rehearsal.keep(found, heard, sure)


def test_asking_writes_nothing(rehearsal: Rehearsal) -> None:
    for mode in ("due", "core", "weak"):
        rehearsal.queue(mode)
    rehearsal.change(seed=0)
    assert not rehearsal.log.path.exists()


def test_first_day_has_some_new_questions_the_core_first(rehearsal: Rehearsal) -> None:
    assert ids(rehearsal) == ["core-a", "core-b", "q-00", "q-01", "q-02"]
    assert len(ids(rehearsal)) == NEW_A_DAY


def test_new_questions_of_today_are_counted_until_midnight_of_the_reader(
    rehearsal: Rehearsal, now: Now
) -> None:
    answered(rehearsal, "core-a")
    assert len(ids(rehearsal)) == NEW_A_DAY - 1
    now.at = NOON.astimezone(timezone(timedelta(hours=13)))  # the same instant, tomorrow over there
    assert len(ids(rehearsal)) == NEW_A_DAY - 1
    now.at += timedelta(days=1)
    new = [one for one in rehearsal.queue() if one.due is None]
    assert len(new) == NEW_A_DAY


def test_due_ones_come_first_and_the_likeliest_forgotten_before_the_others(
    rehearsal: Rehearsal, now: Now
) -> None:
    hard = Heard(points=frozenset({"first"}))
    for name in ("q-00", "q-01", "q-02"):
        answered(rehearsal, name)
    now.at += timedelta(days=20)
    answered(rehearsal, "q-01", hard)
    now.at += timedelta(days=3)
    due = [one for one in rehearsal.queue() if one.due is not None]
    assert [one.question.id for one in due][-1] == "q-01"
    recalls = [one.recall for one in due]
    assert recalls == sorted(recalls)
    assert ids(rehearsal)[: len(due)] == [one.question.id for one in due]


def test_all_are_met_a_day_before_the_interview(rehearsal: Rehearsal, now: Now) -> None:
    day = NOON.date() + timedelta(days=6)
    rehearsal.change(interview=day)
    met = set[str]()
    while now.at.date() < day - timedelta(days=1):
        for name in ids(rehearsal):
            answered(rehearsal, name)
            met.add(name)
        now.at += timedelta(days=1)
    assert met == {one.id for one in rehearsal.questions}


def test_interview_tomorrow_asks_for_everything_today(rehearsal: Rehearsal) -> None:
    rehearsal.change(interview=NOON.date() + timedelta(days=1))
    assert len(ids(rehearsal)) == len(rehearsal.questions)


def test_core_and_chapter_come_round_and_round(rehearsal: Rehearsal, now: Now) -> None:
    assert ids(rehearsal, "core") == ["core-a", "core-b"]
    answered(rehearsal, "core-a")
    assert ids(rehearsal, "core") == ["core-b", "core-a"]
    assert ids(rehearsal, "chapter", "02_replay") == ["core-b", "core-a"]
    now.at += timedelta(minutes=1)
    answered(rehearsal, "core-b")
    assert ids(rehearsal, "core") == ["core-a", "core-b"]


def test_weak_spots_are_low_scores_and_what_is_forgotten(rehearsal: Rehearsal, now: Now) -> None:
    answered(rehearsal, "q-00", Heard(points=frozenset({"first"})))
    answered(rehearsal, "q-01", Heard())
    answered(rehearsal, "q-02")
    now.at += timedelta(hours=1)
    assert ids(rehearsal, "weak") == ["q-01", "q-00"]
    answered(rehearsal, "q-01", Heard())
    assert ids(rehearsal, "weak") == ["q-00", "q-01"]  # what was asked a moment ago waits
    now.at += timedelta(days=300)
    assert set(ids(rehearsal, "weak")) == {"q-00", "q-01", "q-02"}


@pytest.mark.parametrize(
    ("mode", "chapter"), [("luck", ""), ("chapter", "99_end"), ("chapter", "")]
)
def test_mode_or_chapter_that_is_not_there_is_refused(
    rehearsal: Rehearsal, mode: str, chapter: str
) -> None:
    with pytest.raises(ValueError, match=r"right is (due|03_crash_window, 02_replay)"):
        rehearsal.queue(mode, chapter)


def test_empty_queue_says_why_and_when(rehearsal: Rehearsal) -> None:
    while queue := ids(rehearsal):
        answered(rehearsal, queue[0])
    assert "The next one comes in 8 days, on 2026-05-12." in rehearsal.nothing("due")
    assert "Nothing is weak" in rehearsal.nothing("weak")


@pytest.mark.parametrize(
    ("missing", "asked", "chosen"),
    [
        (["first", "second", "bonus"], {}, "on-first"),
        (["second", "bonus"], {}, "on-second"),
        (["bonus"], {}, "on-bonus"),
        ([], {}, "always-1"),
        ([], {"always-1": 1}, "always-2"),
        (["second"], {"on-second": 1}, "always-1"),
        (["second"], {"on-second": 1, "always-1": 1, "always-2": 1}, "on-second"),
    ],
)
def test_follow_up_is_chosen_by_what_was_missed(
    missing: list[str], asked: dict[str, int], chosen: str
) -> None:
    found = follow_up_to(question("q"), missing, Counter(asked))
    assert found is not None
    assert found.id == chosen


def test_next_follow_up_comes_the_next_time(rehearsal: Rehearsal, bank: list[Question]) -> None:
    heard, asked = Heard(points=frozenset({"first"})), []
    for _ in range(4):
        follow_up = rehearsal.follow_up(bank[0], heard)
        assert follow_up is not None
        asked.append(follow_up.id)
        rehearsal.keep(bank[0], heard, 1, follow_up=follow_up.id)
    assert asked == ["on-second", "on-bonus", "always-1", "always-2"]


def test_mis_tick_is_corrected_by_a_new_review_and_counts_no_more(
    rehearsal: Rehearsal, bank: list[Question], now: Now
) -> None:
    wrong = rehearsal.keep(bank[0], Heard(), 3)
    now.at += timedelta(minutes=1)
    right = rehearsal.keep(bank[0], BEST, 3, instead_of=wrong.review)
    assert (right.standing.reviews, right.standing.score) == (1, 3)
    assert len(rehearsal.log.read()) == 2
    alone = Rehearsal(Reviews(rehearsal.log.path.with_name("other")), bank, now)
    assert right.standing == alone.keep(bank[0], BEST, 3).standing


def test_settings_are_kept_in_the_log_and_come_back(rehearsal: Rehearsal, now: Now) -> None:
    day = NOON.date() + timedelta(days=9)
    rehearsal.change(interview=day, seed=7, clock=False)
    rehearsal.change(seed=8)
    again = Rehearsal(Reviews(rehearsal.log.path), rehearsal.questions, now)
    assert (again.settings().interview, again.settings().seed) == (day, 8)
    assert again.settings().clock is False
    assert again.figures.seed == 8
    assert again.log.read() == [] and again.log.passed_over == ()


def test_damaged_settings_are_passed_over_and_the_ones_before_hold(rehearsal: Rehearsal) -> None:
    rehearsal.change(seed=7)
    with rehearsal.log.path.open("a") as file:
        file.write('{"settings": {"seed": "many"}}\n{"settings": {"interview": "soon"}}\n')
    assert rehearsal.settings().seed == 7
    assert len(rehearsal.log.passed_over) == 2


def test_future_log_stops_everything_and_nothing_is_written(rehearsal: Rehearsal) -> None:
    rehearsal.log.path.write_text('{"durable_mini": "reviews", "version": 9}\n')
    for act in (rehearsal.queue, lambda: rehearsal.change(seed=3)):
        with pytest.raises(ReviewsError, match="version 9"):
            act()


def test_pictures_say_what_the_log_says(rehearsal: Rehearsal, bank: list[Question]) -> None:
    answered(rehearsal, "q-00")
    answered(rehearsal, "q-01", Heard())
    found = rehearsal.standings()
    assert strength_rows(found) == [
        {"chapter": "03_crash_window", "questions": 20, "asked": 2, "strong": 1},
        {"chapter": "02_replay", "questions": 2, "asked": 0, "strong": 0},
    ]
    rows = ahead_rows(found, NOON)
    assert [row["due"] for row in rows].index(1) == 0
    assert sum(int(row["due"]) for row in rows) == 2
    drawn = list(pictures(found, rehearsal.log.read(), NOON))
    assert "of 22 questions 2 were asked, and 1 would be answered today" in drawn[0][0].alt
    assert "1 were given sure" in drawn[2][0].alt
    assert all(len(picture.png()) > 5_000 for picture, _ in drawn)


def test_pictures_of_an_empty_log_say_so(rehearsal: Rehearsal) -> None:
    alts = [picture.alt for picture, _ in pictures(rehearsal.standings(), [], NOON)]
    assert "none of the 22 questions was asked yet" in alts[0]
    assert "nothing is due" in alts[1]
    assert "no answer yet" in alts[2]


def test_overdue_counts_for_today(bank: list[Question]) -> None:
    from durable_mini.school.schedule import standings

    long_ago = [Review(NOON - timedelta(days=90), "q-00", 2, 3)]
    assert ahead_rows(standings(bank, long_ago, NOON), NOON)[0] == {"day": "2026-05-04", "due": 1}
