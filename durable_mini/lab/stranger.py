"""A stranger's order, for exercise 01: a run that its worker left, and who goes on with it.

Guarantees: each history is what the engine recorded and each call is what the world outside saw, so
what a learner reads off a history can be held against what the next worker really did. Leaves to
others: what is to be read off it, which is the exercise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import count, takewhile
from typing import Any, NamedTuple

from durable_mini.clock import FakeClock
from durable_mini.context import Context
from durable_mini.engine import Engine
from durable_mini.errors import StepFailedError
from durable_mini.events import Event, EventKind, Position
from durable_mini.journal.memory import MemoryJournal
from durable_mini.lab.crashes import InjectedCrash
from durable_mini.lab.ledger import Ledger
from durable_mini.retry import RetryPolicy
from durable_mini.structure import Workflow, workflow

Row = dict[str, Any]
"""One event of a history as plain data: its `seq`, `kind`, `name` and `payload`."""

Death = tuple[str, str] | int | None
"""Where a worker dies: a call's name and "before", "window" or "after"; or the number of the place
among all that the engine passes, from 1; or nowhere."""

_WORK = frozenset({EventKind.STEP, EventKind.EFFECT})
_CALLS = _WORK | {EventKind.TRY}
_NINE_S = 9 * 3600.0


class Left(NamedTuple):
    """What a dead worker leaves behind, and what the next one does.

    Args:
        history: the journal's events.
        called: what the world outside was asked for until then, in order; a failed try counts.
        next_calls: what the next worker then asks it for.
        books: what the receiver has in the end, as pairs of endpoint and key.
        lost: the call in whose crash window the worker died, if it was in one.
    """

    history: list[Row]
    called: list[str]
    next_calls: list[str]
    books: list[tuple[str, str]]
    lost: list[str]


class _World:
    """Counts calls; its stock system is busy at first, and it knows one voucher at most."""

    def __init__(self, busy: int, voucher: str | None) -> None:
        self.called: list[str] = []
        self.ledger = Ledger()
        self.busy, self.voucher = busy, voucher

    def ask_model(self, order: str) -> str:
        self.called.append("offer")
        return f"offer no. {len(self.called)}"

    def reserve(self, order: str) -> None:
        self.called.append("reserve")
        if self.called.count("reserve") <= self.busy:
            raise TimeoutError("the stock system is busy")

    def redeem(self, code: str) -> int:
        self.called.append("voucher")
        if code != self.voucher:
            raise LookupError("no such voucher")
        return 10

    def charge(self, order: str, amount: int, *, idempotency_key: str) -> str:
        self.called.append("charge")
        return self.ledger.charge(order, amount, idempotency_key=idempotency_key)

    def refund(self, order: str, *, idempotency_key: str, effect_key: str) -> None:
        self.called.append("refund")

    def ship(self, order: str, *, idempotency_key: str) -> None:
        self.called.append("ship")


def _order_in(world: _World) -> Workflow:
    @workflow(name="order", version="1")
    def order(ctx: Context, number: str) -> Any:
        offer = ctx.step("offer", world.ask_model, number)
        ctx.step("reserve", world.reserve, number, retry=RetryPolicy(max_attempts=9))
        try:
            off = ctx.step("voucher", world.redeem, "SPRING")
        except StepFailedError:
            off = 0
        ctx.wait_signal("approval")
        ctx.compensate("charge", world.refund, number)
        ctx.effect("charge", world.charge, number, 40 - off)
        ctx.effect("ship", world.ship, number)
        return offer

    return order


def stranger(
    dies: Death = None,
    *,
    busy: int = 2,
    voucher: str | None = None,
    early: bool = False,
    start_over: bool = False,
) -> Left:
    """Let a worker drive order-7 until it dies, and another one finish it.

    Args:
        dies: where the first worker dies.
        busy: how many tries of `reserve` fail before one succeeds, 8 at most.
        voucher: the only code that there is; the order comes with "SPRING".
        early: whether the approval comes before the run waits for it.
        start_over: the second worker begins a new run instead of going on with this one.
    """
    world = _World(busy, voucher)
    again = "order-7-again" if start_over else "order-7"
    return _told(
        _order_in(world), world.called, world.ledger, _Dies(dies), early=early, again=again
    )


def agent(dies: Death = None) -> Left:
    """The same for the reference agent: nothing is tried twice, and nothing comes from outside."""
    from durable_mini.lab.agent import agent_in  # noqa: PLC0415 - here only

    ledger = Ledger()
    called: list[str] = []

    def note(position: Position, kind: EventKind, name: str) -> None:
        if position is Position.WINDOW:
            called.append(name)

    return _told(agent_in(ledger), called, ledger, _Dies(dies, note))


@cache
def every_death(**settings: Any) -> tuple[Left, ...]:
    """`stranger` with a death at each place of the run that nobody dies in; see there."""
    deaths = (stranger(place, **settings) for place in count(1))
    return tuple(takewhile(lambda left: left.history[-1]["kind"] != "completed", deaths))


def steps_of(history: Sequence[Row]) -> list[str]:
    """The names of the steps and effects of a run's code, in order, as its admission has them."""
    calls = (call.split() for call in history[0]["payload"]["calls"])
    return [call[1].strip("'") for call in calls if call[0] in ("step", "effect")]


def show(history: Sequence[Row], caption: str = "") -> Any:
    """The history as a table, one row an event."""
    from durable_mini.lab.pictures import numbers_table  # noqa: PLC0415 - no answer draws anything

    return numbers_table(
        [
            {
                "seq": row["seq"],
                "kind": row["kind"],
                "name": row["name"],
                "payload": _shown(row["payload"]),
            }
            for row in history
        ],
        caption,
    )


class _Dies:
    """A probe that raises once, and counts the places that it passes."""

    def __init__(self, dies: Death, note: Callable[..., None] = lambda *_: None) -> None:
        self.passed, self._dies, self._note = 0, dies, note

    def __call__(self, position: Position, kind: EventKind, name: str) -> None:
        self.passed += 1
        self._note(position, kind, name)
        here = kind in _WORK and (name, position) == self._dies
        if here or self.passed == self._dies:
            self._dies = None
            raise InjectedCrash(position, kind, name)


def _told(
    flow: Workflow,
    called: list[str],
    ledger: Ledger,
    dies: _Dies,
    *,
    early: bool = False,
    again: str = "order-7",
) -> Left:
    engine = Engine(MemoryJournal(), [flow], clock=FakeClock(_NINE_S), probe=dies)
    run_id = engine.start(flow, "order-7", run_id="order-7")
    if early:
        _approve(engine, run_id)
    lost: list[str] = []
    try:
        _drive(engine, run_id)
    except InjectedCrash as crash:
        lost += [crash.name] * (crash.position is Position.WINDOW and crash.kind in _CALLS)
    history, until_then = _rows(engine.history(run_id)), len(called)
    _drive(engine, engine.start(flow, "order-7", run_id=again))
    books = [(row.endpoint, row.key) for row in ledger.rows]
    return Left(history, called[:until_then], called[until_then:], books, lost)


def _drive(engine: Engine, run_id: str) -> None:
    """To its end, with an approval as soon as it waits for one."""
    if engine.resume(run_id).status == "suspended":
        _approve(engine, run_id)
        engine.resume(run_id)


def _approve(engine: Engine, run_id: str) -> None:
    engine.signal(run_id, "approval", {"ok": True}, signal_id=f"ann on {run_id}")


def _rows(events: Sequence[Event]) -> list[Row]:
    return [
        {"seq": e.seq, "kind": str(e.kind), "name": e.name, "payload": e.payload} for e in events
    ]


def _shown(payload: Row) -> str:
    """The part of a payload that this exercise asks about."""
    told = {name: payload[name] for name in ("input", "key", "result", "error") if name in payload}
    return "; ".join(f"{name}: {value}" for name, value in told.items())
