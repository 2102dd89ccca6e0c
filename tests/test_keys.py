"""What keys are made of: recipes against situations, counted in the receiver's books."""

from __future__ import annotations

from uuid import uuid4

import pytest

from durable_mini import Context
from durable_mini.lab.keys import SITUATIONS, Order, Recipe, bookings, play, verdict
from durable_mini.lab.receivers import IncuriousLedger


def own(_ctx: Context, _order: Order) -> None:
    """The engine's key."""


def fresh(_ctx: Context, _order: Order) -> str:
    return str(uuid4())


def by_content(_ctx: Context, order: Order) -> str:
    return f"{order['customer']}/{order['amount']}"


def by_step(_ctx: Context, _order: Order) -> str:
    return "charge"


def by_number(_ctx: Context, order: Order) -> str:
    return f"{order['number']}/charge"


@pytest.mark.parametrize(
    ("recipe", "wrong"),
    [
        (fresh, {"crash in the window", "one order, two runs"}),
        (by_content, {"Ann buys twice"}),
        (by_step, {"two customers", "Ann buys twice"}),
        (own, {"one order, two runs"}),
        (by_number, set()),
    ],
)
def test_recipe_fails_in_its_situations_and_in_no_other(recipe: Recipe, wrong: set[str]) -> None:
    verdicts = {name: verdict(recipe, situation) for name, situation in SITUATIONS.items()}

    assert {name for name, said in verdicts.items() if said.endswith("WRONG")} == wrong


def test_used_key_with_another_request_is_refused_or_swallowed() -> None:
    two_customers = SITUATIONS["two customers"]

    assert bookings(by_step, two_customers) == (1, ("KeyReusedError",))
    assert bookings(by_step, two_customers, IncuriousLedger) == (1, ())


def test_play_charges_once_unless_something_goes_wrong() -> None:
    assert play(own) == play(own, hours_down=23.9) == 1
    assert play(own, honours_keys=False) == play(own, hours_down=24) == play(fresh) == 2
    assert play(own, honours_keys=False, dies="before") == 1
    assert play(own, run_ids=["r-1", "r-2"]) == 2
    assert play(by_number, run_ids=["r-1", "r-2"]) == 1


def test_play_refuses_an_unknown_position() -> None:
    with pytest.raises(ValueError, match="nowhere"):
        play(own, dies="nowhere")
