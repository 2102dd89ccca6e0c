"""The reference agent: the seven steps of every published figure, in both of its forms."""

from __future__ import annotations

from typing import Any

import pytest

from durable_mini import Engine, Event, MemoryJournal, RunStatus, structure
from durable_mini.lab import (
    REFERENCE_SHAPE,
    Ledger,
    agent_in,
    reference_agent,
    shape_of,
    shaped_agent,
)
from durable_mini.lab.agent import order_of
from durable_mini.lab.shape import Shape, StepSpec


def history_of(agent: Any, order: Any = "o-1") -> list[Event]:
    engine = Engine(MemoryJournal(), [agent])
    assert engine.run(agent, order, run_id="r-1").status is RunStatus.COMPLETED
    return engine.history("r-1")


def steps(history: list[Event]) -> list[tuple[str, str, Any]]:
    return [(event.kind, event.name, event.payload["result"]) for event in history[1:-1]]


def test_the_reference_agent_makes_the_calls_of_the_reference_shape() -> None:
    world = Ledger()
    history = history_of(agent_in(world))
    found = [(e.name, str(e.kind), e.payload.get("cost", 0.0)) for e in history[1:-1]]
    assert found == [(spec.name, spec.kind, spec.cost) for spec in REFERENCE_SHAPE]
    assert world.spent == 8.0
    assert [row.endpoint for row in world.rows] == ["charge", "send_email", "update_crm"]
    assert {row.order for row in world.rows} == {"o-1"}
    assert [row.key for row in world.rows] == ["r-1/charge", "r-1/send_email", "r-1/update_crm"]


def test_the_structure_shows_every_call_by_its_name() -> None:
    calls = structure(agent_in(Ledger())).calls
    assert list(calls) == [f"{spec.kind} {spec.name!r}" for spec in REFERENCE_SHAPE]
    assert structure(reference_agent) == structure(agent_in(Ledger(honour_keys=False)))


def test_both_forms_of_the_agent_write_the_same_history() -> None:
    written, generic = agent_in(Ledger()), shaped_agent(Ledger(), REFERENCE_SHAPE)
    assert steps(history_of(written)) == steps(history_of(generic))


def test_what_the_agent_returns_is_what_it_mailed() -> None:
    world = Ledger()
    engine = Engine(MemoryJournal(), [agent := agent_in(world)])
    run = engine.run(agent, {"order": "o-7", "text": "please"}, run_id="r-1")
    (mail,) = [row for row in world.rows if row.endpoint == "send_email"]
    assert run.result == {"order": "o-7", "letter": mail.body}
    assert mail.order == "o-7"
    assert run.cost == world.spent == 8.0


ONE_EFFECT: Shape = (StepSpec("pay", "effect", 0.0),)


@pytest.mark.parametrize("shape", [shape_of(1), shape_of(16, llm_cost=0.5), ONE_EFFECT])
def test_the_generic_agent_follows_any_shape(shape: Shape) -> None:
    world = Ledger()
    history = history_of(shaped_agent(world, shape))
    found = [(e.name, str(e.kind), e.payload.get("cost", 0.0)) for e in history[1:-1]]
    assert found == [(spec.name, spec.kind, spec.cost) for spec in shape]
    assert world.spent == sum(spec.cost for spec in shape)
    assert [row.endpoint for row in world.rows] == [s.name for s in shape if s.kind == "effect"]
    assert world.repeats == 0


@pytest.mark.parametrize(
    ("ticket", "order"),
    [("o-1", "o-1"), ({"order": "o-2"}, "o-2"), ({"order": 3}, "3"), (4, "4"), (None, "None")],
)
def test_a_ticket_names_its_order_or_is_it(ticket: Any, order: str) -> None:
    assert order_of(ticket) == order


def test_the_ready_made_agent_works_in_a_world_of_its_own() -> None:
    one, other = Ledger(), Ledger()
    history_of(reference_agent, "first look")
    history_of(agent_in(one), "first look")
    assert [row.order for row in one.rows] == ["first look"] * 3
    assert other.rows == []
