"""The question bank: whole, honest about its numbers, and able to prove its answers."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from durable_mini.lab.chapters import CHAPTERS
from durable_mini.school.bank import (
    ONLY_IN_INTERVIEWS,
    BankError,
    Question,
    load_briefs,
    load_failures,
    load_questions,
    typed_in,
)
from durable_mini.school.figures import Figures, run_demo
from durable_mini.school.mock import LENGTHS, PARTS

BANK = load_questions()
IN_INTERVIEWS = [*load_failures(), *load_briefs()]
KINDS = {"explain", "trade-off", "debug", "design", "number", "code", "clarify", "war-story"}
OTHER_SYSTEMS = re.compile(
    r"\b(Temporal|DBOS|Restate|Stripe|Kafka|SQS|Step Functions|LangGraph|Kubernetes|Absurd|Resonate"
    r"|Inngest|Hatchet|Cadence|Airflow|Celery|Sidekiq|RabbitMQ|Redis|Redlock|DynamoDB|Lambda)\b"
)

SMALL = """
chapter = "02_replay"

[[question]]
id = "why"
kind = "explain"
level = 1
prompt = "Why?"
answer = "Because of {{ demo.n }}."
red_flags = ["Never."]
demo = "n = 3"

[[question.point]]
id = "because"
text = "because"
must = true

[[question.point]]
id = "more"
text = "more"
must = false

[[question.follow_up]]
id = "and-then"
asked = "because"
prompt = "And then?"
answer = "Then that."

[[question.follow_up]]
id = "and-now"
asked = "always"
prompt = "And now?"
answer = "Now this."
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "02_replay.toml").write_text(SMALL, encoding="utf-8")
    return tmp_path


def test_small_bank_is_read_as_it_stands(small: Path) -> None:
    (one,) = load_questions(small)
    assert (one.id, one.chapter, one.kind, one.level, one.core) == (
        "why", "02_replay", "explain", 1, False,
    )  # fmt: skip
    assert [(point.id, point.must) for point in one.points] == [("because", True), ("more", False)]
    assert [follow.asked for follow in one.follow_ups] == ["because", "always"]
    assert Figures().answer(one) == "Because of 3."


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'kind = "explain"',
            'kind = "riddle"',
            r"02_replay\.toml, question 'why', field kind: must be one of .*; it is 'ri",
        ),
        ("level = 1", "level = 4", r"question 'why', field level: must be one of .*; it is 4"),
        ('id = "why"\n', "", r"question 'number 1', field the whole: must contain \['id'\]"),
        (
            'id = "because"',
            'id = "Because"',
            r"question 'why', field point\.0\.id: must match .*; it is 'Because'",
        ),
        ("must = true", "must = false", r"question 'why', field point: none of them is a must"),
        ('asked = "because"', 'asked = "of"', r"follow-up 'and-then', field asked: 'of' is no poi"),
        ('id = "more"', 'id = "because"', r"field point: the id 'because' comes twice"),
        ('id = "and-now"', 'id = "and-then"', r"field follow_up: the id 'and-then' comes twice"),
        ("Because of", "Because of 17 and", r"question 'why', field answer: 17 is typed in"),
        ("Now this", "In 40 days", r"field follow_up and-now: 40 is typed in"),
        ('demo = "n = 3"\n', "", r"question 'why', field demo: there is none"),
        ('"n = 3"', "'''n = 3" + "\n#" * 10 + "'''", r"field demo: it has more than ten lines"),
        ('"02_replay"', '"99_end"', r"02_replay\.toml, field chapter: the course has no chapter"),
        ("[[question]]", "[[question]", r"02_replay\.toml is not TOML"),
    ],
)
def test_error_names_file_question_and_field(small: Path, old: str, new: str, said: str) -> None:
    (small / "02_replay.toml").write_text(SMALL.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BankError, match=said):
        load_questions(small)


def test_one_follow_up_is_too_few(small: Path) -> None:
    text = SMALL[: SMALL.rindex("[[question.follow_up]]")]
    (small / "02_replay.toml").write_text(text, encoding="utf-8")
    with pytest.raises(BankError, match=r"question 'why', field follow_up"):
        load_questions(small)


def test_id_is_unique_over_all_files(small: Path) -> None:
    other = SMALL.replace("02_replay", "03_crash_window")
    (small / "03_crash_window.toml").write_text(other, encoding="utf-8")
    with pytest.raises(BankError, match=r"'why' is in 02_replay and 03_crash_window"):
        load_questions(small)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{{ 3 + 4 }} of them", []),
        ("{% if 3 %}x{% endif %}", []),
        ("`retry(3)` and three", []),
        ("51,200 events, 11.4 s", ["51,200", "11.4"]),
        ("8 %, then 9.", ["9"]),
        ("o-1 and v2", ["1"]),
    ],
)
def test_number_that_is_typed_in_is_found(text: str, found: list[str]) -> None:
    assert list(typed_in(text, {"8": "given"})) == found


# ---- the course's own --------------------------------------------------------------------------


def test_bank_has_all_that_the_rehearsal_needs() -> None:
    assert len(BANK) >= 75
    assert sum(one.core for one in BANK) == 15
    assert {one.kind for one in BANK} == KINDS
    assert {one.level for one in BANK} == {1, 2, 3}
    taught = {chapter.name for chapter in CHAPTERS} - {"one_page", "quiz"}
    assert {one.chapter for one in BANK} == taught


def test_each_kind_that_an_interview_asks_is_there() -> None:
    kinds = Counter(one.kind for one in IN_INTERVIEWS)
    assert kinds["failure"] >= 10
    assert kinds["opening"] == kinds["system"] >= 3
    assert set(kinds) == ONLY_IN_INTERVIEWS


def test_ids_are_unique_over_bank_and_interviews() -> None:
    counts = Counter(one.id for one in (*BANK, *IN_INTERVIEWS))
    assert [name for name, count in counts.items() if count > 1] == []


def test_each_part_of_a_design_has_its_failure_and_any_design_has_enough() -> None:
    hits = Counter(one.hits for one in load_failures())
    assert set(hits) - {""} == set(PARTS)
    most = max(sum(area == "failure" for area, _ in stages) for stages in LENGTHS.values())
    assert hits[""] >= most


def test_failures_speak_of_the_candidates_own_steps() -> None:
    for one in load_failures():
        assert "[step]" in one.prompt or "[irreversible]" in one.prompt, one.id


def test_openings_and_systems_come_in_pairs() -> None:
    briefs = load_briefs()
    for brief in {one.brief for one in briefs}:
        pair = sorted(one.kind for one in briefs if one.brief == brief)
        assert (brief, pair) == (brief, ["opening", "system"])
    assert all(one.facts for one in briefs if one.kind == "system")


@pytest.mark.parametrize("question", BANK, ids=lambda one: one.id)
def test_demo_proves_the_answer(question: Question) -> None:
    assert "assert" in question.demo
    run_demo(question)


@pytest.fixture(scope="module")
def two_seeds() -> tuple[Figures, Figures]:
    return Figures(101), Figures(202)


@pytest.mark.parametrize("question", [*BANK, *IN_INTERVIEWS], ids=lambda one: one.id)
def test_answer_is_filled_in_from_two_seeds_and_is_of_spoken_length(
    question: Question, two_seeds: tuple[Figures, Figures]
) -> None:
    for figures in two_seeds:
        answer = figures.answer(question)
        assert "{" + "{" not in answer and "{%" not in answer
        most = 320 if question.kind in ONLY_IN_INTERVIEWS else 280
        assert 150 <= len(answer.split()) <= most
        for one in question.follow_ups:
            assert 30 <= len(figures.fill(one.answer, question).split()) <= 150, one.id


def test_figures_of_a_run_follow_the_seed(two_seeds: tuple[Figures, Figures]) -> None:
    simulated = [one for one in BANK if "simulated(" in one.answer]
    assert len(simulated) >= 8
    for question in simulated:
        first, second = (figures.answer(question) for figures in two_seeds)
        assert first != second, question.id


@pytest.mark.parametrize("question", [*BANK, *IN_INTERVIEWS], ids=lambda one: one.id)
def test_claim_about_another_system_has_a_source(question: Question) -> None:
    told: list[Any] = [question.answer, *(one.answer for one in question.follow_ups)]
    named = {name for text in told for name in OTHER_SYSTEMS.findall(text)}
    assert not named or question.sources, f"{sorted(named)} are named without a source"


def test_declared_numbers_are_used() -> None:
    unused = {}
    for question in BANK:
        told = [question.answer, *(one.answer for one in question.follow_ups)]
        found = {number for text in told for number in typed_in(text, {})}
        if left := set(question.numbers) - found:
            unused[question.id] = sorted(left)
    assert unused == {}
