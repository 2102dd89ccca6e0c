"""Two workflows to explore besides the reference agent, and a world that can take things back.

Guarantees: `approval_in` has every kind of wait, `saga_in` undoes what it did when its last effect
fails. Leaves to others: crashing them (`explore`).

    explore(approval_in, "t-1", depth=2)                                    nobody answers
    explore(approval_in, "t-1", depth=2, signals={"director": "yes"})       after the escalation
    explore(saga_in, "t-1", world=ReversibleLedger, fail={"update_crm": ConnectionError("down")})
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from durable_mini.context import TIMED_OUT, Context
from durable_mini.events import Event, Run, RunStatus
from durable_mini.lab.ledger import AMOUNT, Ledger
from durable_mini.structure import Workflow, workflow

DAY_S = 86_400.0


class KeyVoidedError(Exception):
    """What belongs to this key was taken back: the receiver does nothing under it any more."""


class ReversibleLedger(Ledger):
    """A world that takes back what it booked, and from then on refuses the key that it came with.

    An undo is a row too: its endpoint begins with "undo ", its body is the key of what is undone.
    "Nothing to undo" is success, and books nothing.

    Args:
        honour_keys: see `Ledger`.
    """

    def __init__(self, *, honour_keys: bool = True) -> None:
        super().__init__(honour_keys=honour_keys)
        self._voided = set[str]()

    def reserve(self, order: str, *, idempotency_key: str) -> str:
        """Put what was ordered aside."""
        return self.post("reserve", order, 1, idempotency_key)

    def take_back(self, endpoint: str, order: str, *, idempotency_key: str, effect_key: str) -> str:
        """Undo what came to an endpoint with `effect_key`, and let nothing come with it any more.

        Raises:
            KeyReusedError: see `Ledger.post`.
        """
        self._voided.add(effect_key)
        if any(row.key == effect_key for row in self.rows):
            super().post(f"undo {endpoint}", order, effect_key, idempotency_key)
        return f"{endpoint} undone for {order}"

    def post(self, endpoint: str, order: str, body: Any, key: str) -> str:
        """See `Ledger.post`.

        Raises:
            KeyVoidedError: what belongs to the key was taken back.
        """
        if key in self._voided:
            raise KeyVoidedError(f"key {key!r} was voided")
        return super().post(endpoint, order, body, key)


def approval_in(world: Ledger) -> Workflow:
    """A charge that a manager has to approve within a day, or else the director within another."""

    @workflow(name="approval", version="1")
    def approval(ctx: Context, order: str) -> dict[str, Any]:
        case = {"case": ctx.uuid(), "opened_at": ctx.now()}
        ctx.effect("ask manager", world.send_email, f"{order} manager", "please approve")
        answer = ctx.wait_signal("manager", timeout_s=DAY_S)
        if answer is TIMED_OUT:
            ctx.effect("ask director", world.send_email, f"{order} director", "please approve")
            answer = ctx.wait_signal("director", timeout_s=DAY_S)
        if answer != "yes":
            return {**case, "approved": False}
        ctx.sleep(60.0)
        receipt = ctx.effect("charge", world.charge, order, AMOUNT)
        return {**case, "approved": True, "receipt": receipt}

    return approval


def saga_in(world: ReversibleLedger) -> Workflow:
    """An order in three effects, of which the first two can be undone."""

    @workflow(name="saga", version="1")
    def saga(ctx: Context, order: str) -> str:
        ctx.compensate("reserve", world.take_back, "reserve", order)
        ctx.effect("reserve", world.reserve, order)
        ctx.compensate("charge", world.take_back, "charge", order)
        ctx.effect("charge", world.charge, order, AMOUNT)
        ctx.effect("update_crm", world.update_crm, order, "ordered")
        return f"{order} is on its way"

    return saga


def nothing_left_over(run: Run, _: Sequence[Event], world: ReversibleLedger) -> str | None:
    """An invariant for a saga: if the run didn't complete, all that was booked is taken back."""
    undone = {row.body for row in world.rows if row.endpoint.startswith("undo ")}
    booked = [row for row in world.rows if not row.endpoint.startswith("undo ")]
    left = [f"{row.endpoint} for {row.order}" for row in booked if row.key not in undone]
    if run.status is RunStatus.COMPLETED or not left:
        return None
    return f"the run is {run.status}, and {', '.join(left)} still stands"
