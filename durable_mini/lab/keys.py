"""What keys are made of, tried out: a charge keyed by a recipe, in situations that recipes fail in.

Guarantees: each count comes from runs on the engine and is read in the receiver's books. Leaves to
others: the recipes, which a chapter writes itself, and the receivers (`receivers`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from durable_mini.clock import FakeClock
from durable_mini.context import Context
from durable_mini.engine import Engine
from durable_mini.events import Position, Run
from durable_mini.journal.memory import MemoryJournal
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.lab.ledger import Ledger
from durable_mini.lab.receivers import ForgetfulLedger
from durable_mini.structure import Workflow, workflow

Order: TypeAlias = dict[str, Any]
"""A wish: its `number`, the `customer`, the `amount`."""

Recipe: TypeAlias = Callable[[Context, Order], str | None]
"""Makes the key of an order's charge; None takes the engine's own."""

ANN: Order = {"number": "o-1", "customer": "ann", "amount": 40}
ANN_AGAIN: Order = {"number": "o-2", "customer": "ann", "amount": 40}
BOB: Order = {"number": "o-3", "customer": "bob", "amount": 40}

KEEP_S = 24 * 3600.0
"""For how long the receiver of `play` keeps a key."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Some runs, how many charges they should end with, and whether the first dies in its window.

    Args:
        wanted: the number of charges that the customers asked for.
        runs: pairs of run id and order.
        crash: whether the worker dies once in the window of the charge.
    """

    wanted: int
    runs: Sequence[tuple[str, Order]]
    crash: bool = False


SITUATIONS = {
    "crash in the window": Situation(1, [("r-1", ANN)], crash=True),
    "two customers": Situation(2, [("r-1", ANN), ("r-2", BOB)]),
    "Ann buys twice": Situation(2, [("r-1", ANN), ("r-2", ANN_AGAIN)]),
    "one order, two runs": Situation(1, [("r-1", ANN), ("r-2", ANN)]),
}
"""What keys have to stand: a repeat, equal amounts, equal content, the same wish started twice."""


def paying(recipe: Recipe, world: Ledger) -> Workflow:
    """A workflow that charges an order's customer under the key that `recipe` makes.

    The receiver is sent the customer and the amount, and nothing else.
    """

    @workflow(version="1")
    def pay(ctx: Context, order: Order) -> Any:
        key = recipe(ctx, order)
        return ctx.effect("charge", world.charge, order["customer"], order["amount"], key=key)

    return pay


def bookings(
    recipe: Recipe, situation: Situation, receiver: Callable[[], Ledger] = Ledger
) -> tuple[int, tuple[str, ...]]:
    """Play a situation with keys made by a recipe.

    Args:
        recipe: what the charge's key is made of.
        situation: the runs, and whether the worker dies.
        receiver: makes the ledger; one that honours keys by default.

    Returns: how many charges were booked, and the error type of each run that failed.
    """
    world = receiver()
    pay = paying(recipe, world)
    probe = CrashAt("charge", Position.WINDOW) if situation.crash else None
    engine = Engine(MemoryJournal(), [pay], probe=probe)
    ended = [
        drive(engine, engine.start(pay, order, run_id=run_id)) for run_id, order in situation.runs
    ]
    return len(world.rows), tuple(run.error.type for run in ended if run.error)


def verdict(recipe: Recipe, situation: Situation) -> str:
    """Say how many charges a situation ended with, and whether that is right."""
    count, failed = bookings(recipe, situation)
    if count == situation.wanted:
        return f"{count}: right"
    refused = ", one refused" if failed else ""
    return f"{count} of {situation.wanted}{refused}: WRONG"


def play(
    recipe: Recipe,
    *,
    honours_keys: bool = True,
    dies: Position | str = "window",
    hours_down: float = 1.0,
    run_ids: Sequence[str] = ("r-1",),
) -> int:
    """Pay one order while things go wrong, and count the charges.

    Args:
        recipe: what the charge's key is made of.
        honours_keys: whether the receiver looks at keys; it forgets them after 24 hours.
        dies: where in the charge the first worker dies: "before", "window" or "after".
        hours_down: how long it takes until the run is resumed.
        run_ids: the order is started once under each of these.

    Raises:
        ValueError: for another position.
    """
    clock = FakeClock()
    world = ForgetfulLedger(clock, KEEP_S) if honours_keys else Ledger(honour_keys=False)
    pay = paying(recipe, world)
    engine = Engine(MemoryJournal(), [pay], clock=clock, probe=CrashAt("charge", Position(dies)))
    for run_id in run_ids:
        engine.start(pay, ANN, run_id=run_id)
        drive(engine, run_id, after_crash=lambda: clock.advance(hours_down * 3600))
    return len(world.rows)


def drive(engine: Engine, run_id: str, *, after_crash: Callable[[], None] = lambda: None) -> Run:
    """Resume a run until it has ended, as a supervisor does whose workers die.

    Args:
        engine: whose run it is.
        run_id: a run that was started.
        after_crash: called before each new attempt.
    """
    while True:
        try:
            return engine.resume(run_id)
        except InjectedCrash:
            after_crash()
