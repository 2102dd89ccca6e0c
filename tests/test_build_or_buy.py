"""A queue or an engine: the bill agrees with drawn deaths and chapter 04; pictures say it."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from durable_mini.lab import build_or_buy_queue, build_or_buy_replay, exact
from durable_mini.lab.build_or_buy import (
    Terms,
    break_even_h,
    engine_h,
    queue_h,
    rule_of_thumb_h,
    simulate_h,
    until_done_h,
)
from durable_mini.lab.build_or_buy_agents import KEYS, WORKFLOWS, excerpt, key_text, workflow_text
from durable_mini.lab.build_or_buy_pictures import build_or_buy_picture, length
from durable_mini.lab.build_or_buy_replay import Replayed, history_file, patched, replays
from durable_mini.lab.build_or_buy_slider import (
    DEATH_STOPS,
    LENGTH_STOPS_S,
    build_or_buy_slider,
    choice_of,
)
from durable_mini.lab.shape import StepSpec

SMALL = Terms(1 / 6, step_h=10 / 3600, write_h=0.02 / 3600, upkeep_h=30 / 3600)

# The bill


@pytest.mark.parametrize(("deaths_per_h", "wait_h"), [(0.5, 0.0), (0.05, 3.0), (0.0, 1.0)])
def test_bill_is_what_drawn_deaths_come_to(deaths_per_h: float, wait_h: float) -> None:
    terms = Terms(deaths_per_h, step_h=0.25, write_h=0.01, upkeep_h=0.1, wait_h=wait_h)
    drawn = simulate_h(terms, 2.0, runs=2_000, seed=3)
    for bill, found in zip((queue_h, engine_h), drawn, strict=True):
        assert abs(bill(terms, 2.0) - found.mean) <= 4 * found.se + 1e-9


def test_bill_is_that_of_chapter_04_where_steps_are_many() -> None:
    shape = tuple(StepSpec(f"s{n}", "step", 0.01) for n in range(300))
    per_step = -math.expm1(-0.5 * 0.01)
    terms = Terms(0.5, step_h=0.01, write_h=0.0, upkeep_h=0.0)
    for way, bill in (("restart", queue_h), ("journal", engine_h)):
        found = exact(way, per_step, weights=(0.5, 0.5, 0.0), shape=shape).cost.mean
        assert bill(terms, 3.0) == pytest.approx(found, rel=0.005)


def test_crash_free_job_takes_its_work_and_what_an_engine_adds() -> None:
    terms = Terms(0.0, step_h=0.5, write_h=0.01, upkeep_h=0.1)
    assert (queue_h(terms, 2.0), engine_h(terms, 2.0)) == (2.0, pytest.approx(2.14))


def test_job_shorter_than_a_step_is_one_step() -> None:
    terms = Terms(0.5, step_h=1.0, write_h=0.01, upkeep_h=0.0)
    assert engine_h(terms, 0.2) == pytest.approx(until_done_h(0.5, 0.2) + 0.01)


def test_span_that_no_float_can_hold_takes_for_ever() -> None:
    assert until_done_h(1.0, 10_000.0) == math.inf


GRID = list(product((1 / 720, 1 / 6, 2.0), (1 / 3600, 1 / 6), (0.0, 1 / 3600), (0.001, 2.0)))


@pytest.mark.parametrize(("deaths_per_h", "step_h", "write_h", "upkeep_h"), GRID)
def test_break_even_parts_the_jobs_in_two(
    deaths_per_h: float, step_h: float, write_h: float, upkeep_h: float
) -> None:
    terms = Terms(deaths_per_h, step_h, write_h, upkeep_h)
    even = break_even_h(terms)
    assert 0 < even < math.inf
    assert queue_h(terms, 0.98 * even) < engine_h(terms, 0.98 * even)
    assert queue_h(terms, 1.02 * even) > engine_h(terms, 1.02 * even)


def test_break_even_has_two_ends() -> None:
    assert break_even_h(replace(SMALL, deaths_per_h=0.0)) == math.inf
    assert break_even_h(replace(SMALL, wait_h=48.0)) == 0.0


def test_rule_of_thumb_holds_where_records_are_cheap_and_not_where_deaths_are_rare() -> None:
    near, far = SMALL, replace(SMALL, deaths_per_h=1 / 720)
    assert rule_of_thumb_h(near) == pytest.approx(break_even_h(near), rel=0.05)
    assert rule_of_thumb_h(far) < 0.7 * break_even_h(far)
    assert rule_of_thumb_h(replace(SMALL, deaths_per_h=0.0)) == math.inf


@pytest.mark.parametrize(
    "wrong", [{"deaths_per_h": -1.0}, {"step_h": 0.0}, {"upkeep_h": math.nan}, {"wait_h": math.inf}]
)
def test_terms_that_mean_nothing_are_refused_by_name(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match="step" if name == "step_h" else name):
        replace(SMALL, **wrong)


# The slider and its picture


def test_slider_says_who_wins_and_from_where_on() -> None:
    widget = build_or_buy_slider()
    assert "By hours the engine wins. The engine wins from 20 min of work on." in widget._said
    widget.controls["work_s"].value = 2
    assert widget.wait()
    assert "By hours the queue wins." in widget._said
    widget.controls["wait_h"].value = 48
    assert widget.wait()
    assert "a wait of 2 days" in widget._said
    assert "By hours the engine wins. The engine wins for a job of any length." in widget._said


CORNERS = product((LENGTH_STOPS_S[0], LENGTH_STOPS_S[-1]), (DEATH_STOPS[0], DEATH_STOPS[-1]))


@pytest.mark.parametrize(("work_s", "deaths"), list(CORNERS))
@pytest.mark.parametrize("extreme", [0, 1])
def test_every_corner_of_the_slider_can_be_drawn(work_s: int, deaths: int, extreme: int) -> None:
    small = {"wait_h": 0, "step_s": 1, "write_ms": 0, "upkeep_s": 0}
    large = {"wait_h": 168, "step_s": 600, "write_ms": 500, "upkeep_s": 600}
    choice = choice_of({"work_s": work_s, "deaths": deaths, **(large if extreme else small)})
    assert choice.picture().png().startswith(b"\x89PNG")
    assert f"By hours the {choice.winner} wins." in choice.sentence()


def test_picture_says_in_words_what_it_draws() -> None:
    alt = build_or_buy_picture(SMALL, 1.0).alt
    assert "dies 4 times a day, and a job waits for nobody" in alt
    assert "the engine is cheaper from 20 min of work on" in alt
    assert "1.1 h on a queue" in alt


@pytest.mark.parametrize(
    ("hours", "said"), [(1 / 3600, "1 s"), (0.5, "30 min"), (24.0, "24 h"), (745 * 24, "745 days")]
)
def test_length_is_said_as_people_say_it(hours: float, said: str) -> None:
    assert length(hours) == said


# Excerpts


@pytest.mark.parametrize("engine", WORKFLOWS)
def test_excerpt_is_the_workflow_of_its_file(engine: str) -> None:
    text = workflow_text(engine)
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    assert "charge(" in text or "charge," in text
    assert 'return {"order": order, "letter": letter}' in text.splitlines()[-1]


def test_key_is_made_of_what_the_engine_offers() -> None:
    made = {engine: key_text(engine) for engine in KEYS}
    assert made["DBOS"] == "{DBOS.workflow_id}/{DBOS.step_id}"
    assert all("/" in text and "return" not in text for text in made.values())


def test_excerpt_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError, match="nobody"):
        excerpt("DBOS", "nobody")


# The stored history


def test_history_names_no_machine() -> None:
    text = history_file().read_text(encoding="utf-8")
    told = [found for found in json.loads(text)["events"] if "identity" in json.dumps(found)]
    assert told
    assert "@" not in text


def test_recorded_replay_is_shown_where_temporal_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build_or_buy_replay, "_installed", str)
    verdicts = {row.code: row.verdict for row in replays().rows}
    assert verdicts["unchanged"] == verdicts["add a step, patched"] == "fits"
    assert verdicts["add a step"] == "refused"


@pytest.mark.slow
def test_replay_done_again_comes_to_what_was_recorded() -> None:
    pytest.importorskip("temporalio")
    assert replays().rows == tuple(build_or_buy_replay.replay_all())


def test_replay_that_comes_to_another_verdict_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def other() -> Iterator[Replayed]:
        for row in build_or_buy_replay._recorded().rows:
            yield replace(row, verdict="fits")

    monkeypatch.setattr(build_or_buy_replay, "_installed", lambda: "9.9")
    monkeypatch.setattr(build_or_buy_replay, "replay_all", lambda: list(other()))
    with pytest.raises(RuntimeError, match="recorded refused, here fits"):
        replays()


def test_patch_finds_its_place_or_says_that_there_is_none() -> None:
    text = patched(build_or_buy_replay.agent_text())
    assert text.count('workflow.patched("review")') == 1
    ast.parse(text)
    with pytest.raises(ValueError, match="no research"):
        patched("pass\n")


# The queue with retries


def test_recorded_queue_loses_what_was_killed_and_repeats_what_erred() -> None:
    found = build_or_buy_queue.recorded()
    for job, steps in build_or_buy_queue.JOBS.items():
        error, kill = found.row(job, "error"), found.row(job, "kill")
        assert (error.trials, error.completed) == (len(steps), len(steps))
        assert error.again == sum(range(1, len(steps) + 1))  # all steps up to the one that erred
        assert (kill.completed, kill.again) == (0, 0)
    assert "huey" in found.source()


@pytest.mark.slow
def test_short_job_on_the_real_queue_comes_to_what_was_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("huey")
    monkeypatch.setattr(build_or_buy_queue, "JOBS", {"short": build_or_buy_queue.JOBS["short"]})
    found = build_or_buy_queue.recorded()
    assert build_or_buy_queue.measure() == [found.row("short", "error"), found.row("short", "kill")]
