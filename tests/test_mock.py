"""The mock interview: it outlives its process, asks into the design, and its debrief adds up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from durable_mini import Engine, FakeClock, SQLiteJournal, workflow
from durable_mini.ops import verify
from durable_mini.school.bank import load_failures
from durable_mini.school.debrief import debrief, finished, keep_scores, script, transcript, worked
from durable_mini.school.figures import Figures
from durable_mini.school.mock import (
    AREAS,
    LENGTHS,
    PARTS,
    Answer,
    MockInterview,
    Told,
    plan_of,
    question_of,
    steps_of,
)
from durable_mini.school.reviews import Reviews
from durable_mini.school.rubric import Heard

START_S = 1_800_000_000.0
DESIGN = Answer("A saga.", 1, ("reserve", "charge", "ship"), "charge", ("undo", "keys"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START_S)


@pytest.fixture
def mock(tmp_path: Path, clock: FakeClock) -> MockInterview:
    return MockInterview(tmp_path / "data" / "interviews.db", clock)


def answered(mock: MockInterview, run_id: str, stop_at: int | None = None) -> None:
    """Answer all, or up to a stage."""
    while (asked := mock.asked(run_id)) is not None and asked.number != stop_at:
        if asked.follow_up:
            assert mock.follow(run_id, asked.number, f"more of {asked.number}")
        else:
            given = DESIGN if asked.area == "design" else Answer(f"answer {asked.number}", 2)
            assert mock.answer(run_id, asked.number, given)


def heard(told: Told, **changes: object) -> Heard:
    """The best answer there is, but for the changes."""
    points = frozenset(point.id for point in question_of(told.question).points)
    follow_up = True if told.follow_up else None
    values = {"points": points, "instant": True, "trade_off": True, "edge": True, "number": True}
    values |= {"test": True, "follow_up": follow_up, "seconds": told.seconds}
    return Heard(**{**values, **changes})  # type: ignore[arg-type]


def test_nothing_is_written_before_an_interview_begins(mock: MockInterview) -> None:
    assert mock.under_way() is None
    assert not mock.path.exists()


@pytest.mark.parametrize("minutes", LENGTHS)
def test_interview_asks_its_stages_in_their_order(mock: MockInterview, minutes: int) -> None:
    run_id = mock.begin(minutes, timed=True, seed=2)
    areas, seconds = [], []
    while (asked := mock.asked(run_id)) is not None:
        if not asked.follow_up:
            areas.append(asked.area)
            seconds.append(asked.seconds)
        answered(mock, run_id, stop_at=asked.number + 1)
    assert areas == [area for area, _ in LENGTHS[minutes]]
    assert seconds == [length * 60.0 for _, length in LENGTHS[minutes]]
    assert sum(length for _, length in LENGTHS[minutes]) < minutes  # the debrief has some left


def test_other_length_is_refused_and_begins_nothing(mock: MockInterview) -> None:
    with pytest.raises(ValueError, match="no interview of 30 minutes: right is 20, 45, 60"):
        mock.begin(30)
    assert not mock.path.exists()


@pytest.mark.slow
def test_clarifying_and_designing_are_about_the_same_system(mock: MockInterview) -> None:
    for seed in range(4):
        run_id = mock.begin(20, seed=seed)
        answered(mock, run_id)
        opening, system = (question_of(one.question) for one in mock.told(run_id)[:2])
        assert opening.brief == system.brief != ""


def test_next_interview_is_another_one_unless_a_seed_is_given(mock: MockInterview) -> None:
    assert mock.next_seed() == 0
    seeds = [mock.plan(mock.begin(20, seed=seed))["seed"] for seed in (None, None, 9, None)]
    assert seeds == [0, 1, 9, 3]


@pytest.mark.slow
def test_failures_hit_one_part_after_the_other(mock: MockInterview) -> None:
    for seed in range(3):
        run_id = mock.begin(60, seed=seed)
        answered(mock, run_id, stop_at=1)
        mock.answer(run_id, 1, Answer("x", 0, ("a", "b"), "b", ("journal", "model", "keys")))
        answered(mock, run_id)
        hits = [question_of(one.question).hits for one in mock.told(run_id)[2:5]]
        assert sorted(hits) == ["journal", "keys", "model"]


def test_longer_interview_asks_for_no_easy_number(mock: MockInterview) -> None:
    levels = {
        question_of(plan_of(45, timed=False, seed=n)["stages"][-1]["question"]).level
        for n in range(30)
    }
    assert min(levels) > 1


@pytest.mark.slow
def test_same_seed_asks_the_same(mock: MockInterview) -> None:
    asked = []
    for seed in (4, 4, 5):
        run_id = mock.begin(45, seed=seed)
        answered(mock, run_id)
        asked.append([one.question for one in mock.told(run_id)])
    assert asked[0] == asked[1] != asked[2]


def test_failures_hit_what_the_design_has_and_name_its_steps(mock: MockInterview) -> None:
    run_id = mock.begin(60, seed=1)
    answered(mock, run_id)
    failures = [one for one in mock.told(run_id) if one.area == "failure"]
    hits = [question_of(one.question).hits for one in failures]
    assert len({one.question for one in failures}) == 3
    assert sorted(hits) == ["", "keys", "undo"] and hits[-1] == ""  # one of each is all there is
    for one in failures:
        assert one.steps == ('"reserve"', '"charge"')
        assert '"reserve"' in one.text or '"charge"' in one.text
        assert "[" not in one.text + worked(one, Figures())


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_failure_fits_each_part_alone(mock: MockInterview, part: str) -> None:
    run_id = mock.begin(60, seed=3)
    answered(mock, run_id, stop_at=1)
    mock.answer(run_id, 1, Answer("x", 0, ("a", "b"), "b", (part,)))
    answered(mock, run_id)
    found = [question_of(one.question).hits for one in mock.told(run_id)[2:5]]
    here = sum(one.hits == part for one in load_failures())
    assert found == [*[part] * min(here, 3), *[""] * (3 - min(here, 3))]


@pytest.mark.parametrize(
    ("steps", "last", "named"),
    [
        (("a", "b", "c"), "b", ('"a"', '"b"')),
        (("a", "b", "c"), "", ('"b"', '"c"')),
        (("a", "b"), "a", ("the preparation", '"a"')),
        ((), "", ("the first step", "the last step")),
    ],
)
def test_steps_are_named_as_the_candidate_did(
    steps: tuple[str, ...], last: str, named: tuple[str, str]
) -> None:
    assert steps_of(steps, last) == named


@pytest.mark.parametrize(
    "wrong", [{"confidence": 4}, {"steps": ("a",), "irreversible": "b"}, {"parts": ("luck",)}]
)
def test_answer_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"right is 0 to 3|none of the"):
        Answer("x", **wrong)  # type: ignore[arg-type]


CANDIDATE = """
import os, signal, sys
from pathlib import Path
from durable_mini import FakeClock
from durable_mini.school.mock import Answer, MockInterview
clock = FakeClock(float(sys.argv[2]))
mock = MockInterview(Path(sys.argv[1]), clock)
run_id = mock.begin(20, seed=1)
clock.advance(30)
mock.answer(run_id, 0, Answer("What is worst?"))
clock.advance(60)
mock.answer(run_id, 1, Answer("S.", steps=("reserve", "charge"), irreversible="charge"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_killed_interview_goes_on_at_the_same_question_with_the_same_clock(
    mock: MockInterview, clock: FakeClock
) -> None:
    arguments = [sys.executable, "-c", CANDIDATE, str(mock.path), str(START_S)]
    died = subprocess.run(arguments, timeout=60, env=os.environ)
    assert died.returncode == -signal.SIGKILL
    clock.advance(1_000)
    run_id = mock.under_way()
    assert run_id == "mock-1"
    asked = mock.asked(run_id)
    assert asked is not None
    assert (asked.number, asked.area, asked.since_s) == (2, "failure", START_S + 90)
    assert asked == mock.asked(run_id)
    assert '"charge"' in asked.text
    assert [one.seconds for one in mock.told(run_id)] == [30, 60]
    with SQLiteJournal(mock.path) as journal:
        assert verify(journal).ok


def test_second_window_cannot_answer_what_is_answered(
    mock: MockInterview, clock: FakeClock
) -> None:
    other, run_id = MockInterview(mock.path, clock), mock.begin(20)
    assert mock.answer(run_id, 0, Answer("mine"))
    assert not other.answer(run_id, 0, Answer("theirs"))
    assert not other.answer(run_id, 3, Answer("too early"))
    assert not other.heard(run_id, 0, Heard())
    assert [one.answer.text for one in mock.told(run_id)] == ["mine"]
    asked = mock.asked(run_id)
    assert asked is not None and asked.number == 1


def test_time_of_a_stage_counts_its_follow_up_and_costs_one_when_it_is_over(
    mock: MockInterview, clock: FakeClock
) -> None:
    run_id = mock.begin(20, seed=1)
    answered(mock, run_id, stop_at=3)
    clock.advance(200)
    mock.answer(run_id, 3, Answer("slowly"))
    clock.advance(50)
    mock.follow(run_id, 3, "and more")
    told = mock.told(run_id)
    assert [one.seconds for one in told] == [0, 0, 0, 250]
    for number, one in enumerate(told):
        mock.heard(run_id, number, heard(one))
    assert [one.worth for one in mock.told(run_id)] == [3, 3, 3, 2]
    assert mock.told(run_id)[3].because == ("It took more than 240 seconds: one less.",)


def test_follow_up_is_asked_where_there_is_one_and_caps_where_it_was_missed(
    mock: MockInterview,
) -> None:
    run_id = mock.begin(20, timed=False)
    answered(mock, run_id)
    told = mock.told(run_id)
    assert [bool(one.follow_up) for one in told] == [False, False, False, True]
    for number, one in enumerate(told):
        missed = {"follow_up": False} if one.follow_up else {}
        mock.heard(run_id, number, heard(one, seconds=None, **missed))
    assert [one.worth for one in mock.told(run_id)] == [3, 3, 3, 2]


def test_tick_of_another_question_is_refused_and_the_run_lives(mock: MockInterview) -> None:
    run_id = mock.begin(20)
    answered(mock, run_id)
    with pytest.raises(ValueError, match="has no point 'other'"):
        mock.heard(run_id, 0, Heard(points=frozenset({"other"})))
    assert mock.heard(run_id, 0, Heard())
    assert [one.worth for one in mock.told(run_id)] == [0, None, None, None]
    assert mock.under_way() == run_id


def test_debrief_adds_up_and_names_what_to_reread(mock: MockInterview) -> None:
    run_id = mock.begin(45, timed=False, seed=7)
    answered(mock, run_id)
    told = mock.told(run_id)
    for number, one in enumerate(told):
        assert finished(mock, run_id) is None
        unsaid = {"points": frozenset({question_of(one.question).points[0].id})} if number else {}
        mock.heard(run_id, number, heard(one, seconds=None, **unsaid))
    found = finished(mock, run_id)
    assert found is not None
    told = mock.told(run_id)
    assert found.worth == sum(one.worth or 0 for one in told) == 3 + 4 * 1
    assert (found.of, [one.name for one in found.areas]) == (15, list(AREAS.values()))
    assert [one.of for one in found.areas] == [3, 3, 6, 3]
    chapters = {question_of(one.question).chapter for one in told[1:]}
    assert {name for name, _ in found.reread} == chapters
    musts = [point.text for point in question_of(told[1].question).points if point.must]
    assert set(musts[1:]) <= {gap for _, gaps in found.reread for gap in gaps}
    assert (found.habits, found.too_sure) == ((), ())
    assert mock.under_way() is None


def test_debrief_says_what_is_left_out_again_and_again(mock: MockInterview) -> None:
    run_id = mock.begin(20, timed=False)
    mock.answer(run_id, 0, Answer("I am certain.", 3))
    answered(mock, run_id)
    for number, one in enumerate(mock.told(run_id)):
        changes = {"trade_off": False, "test": number > 0}
        mock.heard(run_id, number, heard(one, seconds=None, **changes))
    found = debrief(mock.told(run_id))
    assert [count for _, count in found.habits] == [4, 1]
    assert "trade-off" in found.habits[0][0]
    assert found.too_sure == ("1. Clarify",)
    assert found.reread == ()


def test_scores_go_into_the_log_once(mock: MockInterview, tmp_path: Path) -> None:
    run_id = mock.begin(20)
    answered(mock, run_id)
    for number, one in enumerate(mock.told(run_id)):
        mock.heard(run_id, number, heard(one))
    log = Reviews(tmp_path / "reviews.jsonl")
    assert [keep_scores(mock.told(run_id), log) for _ in range(2)] == [4, 0]
    assert {one.mode for one in log.read()} == {"mock"}
    assert [one.score for one in log.read()] == [3, 3, 3, 3]


def test_transcript_has_what_was_said_and_obeys_nothing_in_it(mock: MockInterview) -> None:
    run_id = mock.begin(20, timed=False)
    mock.answer(run_id, 0, Answer("# no heading\n\n<b>plain</b>"))
    answered(mock, run_id)
    text = transcript(mock.told(run_id), mock.plan(run_id), run_id)
    assert "> # no heading\n>\n> <b>plain</b>" in text
    assert "reserve → charge → ship" in text
    assert "2027-01-15, 20 minutes, without a clock." in text
    assert "Debrief" not in text
    mock.heard(run_id, 0, Heard())
    assert "**0 of 3**" in transcript(mock.told(run_id), mock.plan(run_id), run_id)


def test_interview_that_is_given_up_is_not_offered_again(mock: MockInterview) -> None:
    run_id = mock.begin(20)
    mock.abandon(run_id)
    assert mock.under_way() is None
    assert mock.begin(20) == "mock-2"
    assert mock.under_way() == "mock-2"


def test_interview_of_another_version_is_not_offered(mock: MockInterview) -> None:
    @workflow(name="mock-interview", version="0")
    def earlier(ctx, plan):  # type: ignore[no-untyped-def]
        return ctx.wait_signal("answer-0")

    mock.path.parent.mkdir()
    with SQLiteJournal(mock.path) as journal:
        Engine(journal, [earlier]).run(earlier, {}, run_id="mock-1")
    assert mock.under_way() is None
    assert mock.begin(20) == "mock-2"


def test_script_has_all_that_a_friend_says_and_ticks() -> None:
    text = script(45, seed=2)
    assert text.count("**Worked answer**") == 3 + len(load_failures())
    for one in load_failures():
        assert one.prompt in text
        assert all(f"- [ ] {'must: ' if p.must else ''}{p.text}" in text for p in one.points)
    assert "## 2. Design (20 minutes)" in text
    assert "## 6. Debrief (5 minutes)" in text
    assert text == script(45, seed=2) != script(45, seed=3)


def test_debrief_of_nothing_is_nothing() -> None:
    assert (debrief([]).worth, debrief([]).of, debrief([]).reread) == (0, 0, ())
