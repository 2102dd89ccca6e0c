"""The reference agent: seven steps, of which three touch the outside world.

Guarantees: `agent_in(ledger)` is the agent of every published figure, written as one would write it
at work; `shaped_agent` makes the same calls for a shape of any length. Leaves to others: what the
world does with a request (`ledger`), where crashes fall (`crashes`).
"""

from typing import Any

from durable_mini.context import Context
from durable_mini.lab.ledger import AMOUNT, LLM_COST, Ledger, Outside
from durable_mini.lab.shape import Shape, StepSpec
from durable_mini.structure import Workflow, workflow


def agent_in(world: Outside) -> Workflow:
    """The reference agent, working in a given world."""

    @workflow(name="reference_agent", version="1")
    def agent(ctx: Context, ticket: Any) -> dict[str, Any]:
        order = order_of(ticket)
        plan = ctx.step("plan", world.think, "plan", ticket, cost=LLM_COST)
        notes = ctx.step("research", world.think, "research", plan, cost=LLM_COST)
        draft = ctx.step("draft", world.think, "draft", notes, cost=LLM_COST)
        receipt = ctx.effect("charge", world.charge, order, AMOUNT)
        letter = ctx.step("compose", world.think, "compose", [draft, receipt], cost=LLM_COST)
        ctx.effect("send_email", world.send_email, order, letter)
        ctx.effect("update_crm", world.update_crm, order, "upgraded")
        return {"order": order, "letter": letter}

    return agent


def shaped_agent(world: Ledger, shape: Shape) -> Workflow:
    """An agent with the steps of a shape, each fed with the result of the one before."""

    @workflow(name="shaped_agent", version="1")
    def agent(ctx: Context, ticket: Any) -> Any:
        order = order_of(ticket)
        latest = ticket
        for spec in shape:
            if spec.kind == "effect":
                latest = ctx.effect(spec.name, _post, world, spec, order, cost=spec.cost)
            else:
                latest = ctx.step(
                    spec.name, world.think, spec.name, latest, spec.cost, cost=spec.cost
                )
        return latest

    return agent


def _post(world: Ledger, spec: StepSpec, order: str, *, idempotency_key: str) -> str:
    world.spent += spec.cost
    return world.post(spec.name, order, None, idempotency_key)


def order_of(ticket: Any) -> str:
    """The business operation that a ticket is about: its `order`, or the ticket itself as text."""
    return str(ticket["order"]) if isinstance(ticket, dict) and "order" in ticket else str(ticket)


reference_agent = agent_in(Ledger())
"""The reference agent in a world of its own, for a first look at it."""
