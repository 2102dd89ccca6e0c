"""A walk shows what a real run held at each durable call, and what its killed process left."""

from __future__ import annotations

from typing import Any

import pytest

from durable_mini.lab.walks import NEVER, Pause, replay_pauses, replay_picture, replay_walk

bill: list[str] = []


def think(task: str, about: Any) -> str:
    bill.append(task)
    return f"{task}{len(bill)}({about})"


def agent(ctx: Any, ticket: str) -> Any:
    plan = ctx.step("plan", think, "plan", ticket)
    draft = ctx.step("draft", think, "draft", plan)
    return ctx.step("compose", think, "compose", draft)


def pauses(crash_before: str = NEVER) -> list[Pause]:
    return replay_pauses(agent, "T-1", bill, crash_before=crash_before)


def test_walk_of_a_killed_run_replays_what_was_recorded_and_goes_on_live() -> None:
    told = [(pause.attempt, pause.state, pause.call) for pause in pauses("draft")]
    assert told == [
        (1, "live", "plan"),
        (1, "live", "draft"),
        (1, "dead", "draft"),
        (2, "replayed", "plan"),
        (2, "live", "draft"),
        (2, "live", "compose"),
        (2, "ended", ""),
    ]


def test_walk_without_a_kill_has_one_attempt() -> None:
    assert {pause.attempt for pause in pauses()} == {1}
    assert [pause.line for pause in pauses()] == [2, 3, 4, None]


def test_variables_are_the_workflows_own_and_start_empty_in_each_attempt() -> None:
    walk = pauses("draft")
    assert walk[1].variables == ("ticket = 'T-1'", "plan = 'plan1(T-1)'")
    assert walk[2].variables is None
    assert walk[3].variables == ("ticket = 'T-1'",)
    assert walk[4].variables == walk[1].variables


def test_journal_and_outside_world_survive_the_kill() -> None:
    walk = pauses("draft")
    assert walk[2].journal == walk[3].journal == walk[1].journal
    assert walk[1].journal == ("1  admitted agent: 'T-1'", "2  step plan: 'plan1(T-1)'")
    assert walk[-1].outside == ("1  plan", "2  draft", "3  compose")
    assert [pause.seq for pause in walk] == [2, 3, None, 2, 3, 4, None]


def test_each_walk_begins_in_an_empty_world() -> None:
    assert pauses() == pauses()


def test_walk_refuses_a_run_that_does_not_complete() -> None:
    def broken(ctx: Any, ticket: str) -> Any:
        return ctx.step("plan", int, ticket)

    with pytest.raises(ValueError, match="doesn't complete: ValueError"):
        replay_pauses(broken, "T-1", [])


def test_picture_has_one_size_for_all_pauses_of_a_walk_and_says_what_happens() -> None:
    pictures = [replay_picture(pause, rows=5) for pause in pauses("draft")]
    assert len({tuple(picture.figure.get_size_inches()) for picture in pictures}) == 1
    assert "the process dies before the work of 'draft'" in pictures[2].alt
    assert pictures[0].alt.endswith("1 variable, 1 event in the journal, 0 requests outside.")


def test_step_through_opens_where_the_second_attempt_begins_and_follows_the_choice() -> None:
    walk = replay_walk(agent, "T-1", bill)
    assert walk.values == {"crash": "draft", "frame": 4}
    walk.controls["crash"].value = NEVER
    assert walk.wait()
    walk.controls["frame"].value = 4
    assert walk.wait()
    assert bill == ["plan", "draft", "compose"]
