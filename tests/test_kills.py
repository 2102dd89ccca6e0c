"""A run killed in one process and finished in another, as chapter 00 tells and draws it."""

from __future__ import annotations

import pytest

from durable_mini.lab.attempt import Attempt
from durable_mini.lab.kills import as_drawn, kill_and_resume
from durable_mini.lab.shape import REFERENCE_SHAPE

NAMES = tuple(spec.name for spec in REFERENCE_SHAPE)


@pytest.mark.slow
@pytest.mark.parametrize(("position", "times"), [("before", 1), ("window", 2), ("after", 1)])
def test_killed_step_is_executed_twice_only_from_the_window(position: str, times: int) -> None:
    run = kill_and_resume("draft", position)

    assert run.first.killed_by == "SIGKILL"
    assert run.second.status == "completed"
    assert run.executions("draft") == times
    assert [run.executions(name) for name in NAMES if name != "draft"] == [1] * 6


@pytest.mark.slow
@pytest.mark.parametrize(("honour_keys", "charges"), [(True, 1), (False, 2)])
def test_repeated_charge_is_in_the_books_once_where_keys_are_honoured(
    honour_keys: bool, charges: int
) -> None:
    run = kill_and_resume("charge", "window", honour_keys=honour_keys)

    assert run.executions("charge") == 2
    assert [row.endpoint for row in run.rows].count("charge") == charges


def test_unknown_step_is_refused_before_a_process_starts() -> None:
    with pytest.raises(ValueError, match=r"no step 'pay'.*choose one of plan, research"):
        kill_and_resume("pay", "window")


def test_unknown_position_is_refused() -> None:
    with pytest.raises(ValueError, match="middle"):
        kill_and_resume("charge", "middle")


@pytest.mark.parametrize(
    ("position", "executed", "replayed"),
    [
        ("before", NAMES[:3], NAMES[:3]),
        ("window", NAMES[:4], NAMES[:3]),
        ("after", NAMES[:4], NAMES[:4]),
    ],
)
def test_drawn_attempts_replay_what_was_recorded_before_the_kill(
    position: str, executed: tuple[str, ...], replayed: tuple[str, ...]
) -> None:
    rest = NAMES[len(replayed) :]
    told = [Attempt(executed, None, "SIGKILL"), Attempt(rest, "completed", None)]

    first, second = as_drawn(told, [("charge", position)])

    assert first.crash == ("charge", position)
    assert [box.name for box in first.boxes] == list(NAMES[:4])
    assert [box.name for box in second.boxes if box.state == "replayed"] == list(replayed)
    assert [box.name for box in second.boxes] == list(NAMES)
    assert second.crash is None
    assert {box.name for box in second.boxes if box.kind == "effect"} == {
        "charge",
        "send_email",
        "update_crm",
    }
