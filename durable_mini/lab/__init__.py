"""The lab: the reference agent, its world, crashes on demand, simulation beside theory.

Importing it needs the standard library alone; figures and sliders are modules to import by name.
"""

from durable_mini.lab.agent import agent_in, reference_agent, shaped_agent
from durable_mini.lab.crashes import EQUAL_WEIGHTS, CrashAt, CrashPlan, InjectedCrash
from durable_mini.lab.ledger import Ledger
from durable_mini.lab.shape import REFERENCE_SHAPE, StepSpec, shape_of
from durable_mini.lab.simulation import simulate
from durable_mini.lab.theory import STRATEGIES, exact

__all__ = [
    "EQUAL_WEIGHTS",
    "REFERENCE_SHAPE",
    "STRATEGIES",
    "CrashAt",
    "CrashPlan",
    "InjectedCrash",
    "Ledger",
    "StepSpec",
    "agent_in",
    "exact",
    "reference_agent",
    "shape_of",
    "shaped_agent",
    "simulate",
]
