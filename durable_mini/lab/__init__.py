"""The lab: the reference agent, its world, crashes on demand, experiments beside theory.

Importing it needs the standard library alone, and neither processes nor sockets: what does is
imported when it is first asked for. Figures and sliders are modules to import by name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from durable_mini.lab.agent import agent_in, reference_agent, shaped_agent
from durable_mini.lab.crashes import EQUAL_WEIGHTS, CrashAt, CrashPlan, InjectedCrash
from durable_mini.lab.ledger import Ledger
from durable_mini.lab.shape import REFERENCE_SHAPE, StepSpec, shape_of
from durable_mini.lab.simulation import simulate
from durable_mini.lab.theory import STRATEGIES, exact

if TYPE_CHECKING:
    from durable_mini.lab.experiment import chaos
    from durable_mini.lab.exploring import explore, replay_schedule
    from durable_mini.lab.sweep import sweep_journal
    from durable_mini.lab.world import Client, Switches, World

__all__ = [
    "EQUAL_WEIGHTS",
    "REFERENCE_SHAPE",
    "STRATEGIES",
    "Client",
    "CrashAt",
    "CrashPlan",
    "InjectedCrash",
    "Ledger",
    "StepSpec",
    "Switches",
    "World",
    "agent_in",
    "chaos",
    "exact",
    "explore",
    "reference_agent",
    "replay_schedule",
    "shape_of",
    "shaped_agent",
    "simulate",
    "sweep_journal",
]

_HOMES = {
    "chaos": "experiment",
    "explore": "exploring",
    "replay_schedule": "exploring",
    "sweep_journal": "sweep",
    **dict.fromkeys(("Client", "Switches", "World"), "world"),
}


def __getattr__(name: str) -> Any:
    """Import what needs more than a bare Python, once it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
