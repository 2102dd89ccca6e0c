"""Runs that begin in one process and are resumed in another one, with another environment."""

from __future__ import annotations

from typing import Any

import pytest

from durable_mini.lab.leaks import KilledRun, orders

pytestmark = pytest.mark.slow


def by_setting(ctx: Any, order: str) -> Any:
    import os

    way = os.environ.get("CARRIER", "by road")
    ctx.step(way, str.upper, way)
    return ctx.step("letter", str.title, order)


def broken(ctx: Any, order: str) -> Any:
    ctx.step("plan", str.upper, order)
    return ctx.step("letter", int, order)


def test_first_process_dies_and_the_second_goes_on_from_its_journal() -> None:
    left = KilledRun(by_setting, "o-1", kill_before="letter", CARRIER="by air")

    assert left.first.executed == ("by air",)
    assert (left.first.status, left.first.said) == (None, "killed")
    end = left.resume()
    assert (end.executed, end.status, end.result) == (("letter",), "completed", "O-1")


def test_resumed_run_in_another_environment_is_refused_and_can_be_tried_again() -> None:
    left = KilledRun(by_setting, "o-1", kill_before="letter", CARRIER="by air")

    for _ in range(2):  # each time from the journal that the first process left
        end = left.resume(CARRIER="by sea")
        assert (end.seq, end.executed, end.status) == (2, (), "needs_attention")
        assert end.said == "event 2: step 'by air' in the journal, step 'by sea' asked for"
    assert left.resume(CARRIER="by air").status == "completed"


def test_run_that_never_comes_to_the_call_is_refused() -> None:
    with pytest.raises(ValueError, match="no call 'lunch' was reached"):
        KilledRun(by_setting, "o-1", kill_before="lunch")


def test_run_that_fails_says_why() -> None:
    left = KilledRun(broken, "o-1", kill_before="letter")
    with pytest.raises(RuntimeError, match=r"ValueError: invalid literal for int\(\)"):
        left.resume()


def test_orders_of_a_set_depend_on_the_hash_seed_alone() -> None:
    tags = 'list({"urgent", "refund", "lamp", "gift", "return", "paid"})'
    first, again = orders(tags, range(1, 4)), orders(tags, range(1, 4))

    assert first == again
    assert len({tuple(order) for order in first}) > 1
