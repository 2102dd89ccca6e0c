"""The shape of an agent: which durable calls it makes, in which order, and what each costs.

A shape is data. It guarantees that a step has a name, a kind and a cost that can be added up. It
knows nothing of engines, crashes or worlds: the generic agent walks it, the closed forms add over
it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

_KINDS = ("step", "effect")


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One durable call of an agent: `cost` is spent each time its work is done, crash or no crash.

    Args:
        name: the name under which the journal records it.
        kind: "step", or "effect" when it touches the outside world.
        cost: what one execution costs, in the reference agent's unit (one LLM call is 2.0).

    Raises:
        ValueError: for an empty name, an unknown kind, or a cost that is negative or not finite.
    """

    name: str
    kind: Literal["step", "effect"]
    cost: float

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a step of a shape needs a name, not an empty one")
        if self.kind not in _KINDS:
            raise ValueError(
                f"step {self.name!r}: kind must be 'step' or 'effect', not {self.kind!r}"
            )
        if not (self.cost >= 0.0 and math.isfinite(self.cost)):
            raise ValueError(f"step {self.name!r}: cost must be zero or more, not {self.cost!r}")


Shape: TypeAlias = tuple[StepSpec, ...]

REFERENCE_SHAPE: Shape = (
    StepSpec("plan", "step", 2.0),
    StepSpec("research", "step", 2.0),
    StepSpec("draft", "step", 2.0),
    StepSpec("charge", "effect", 0.0),
    StepSpec("compose", "step", 2.0),
    StepSpec("send_email", "effect", 0.0),
    StepSpec("update_crm", "effect", 0.0),
)


def shape_of(steps: int = 7, llm_cost: float = 2.0) -> Shape:
    """Return a shape of exactly `steps` calls: the reference pattern, cut short or repeated.

    The second round has the names `plan-2`, `research-2`, and so on, so that no two calls share
    one.

        >>> [spec.name for spec in shape_of(steps=9)][-3:]
        ['update_crm', 'plan-2', 'research-2']
        >>> shape_of() == REFERENCE_SHAPE
        True

    Args:
        steps: how many durable calls, one or more.
        llm_cost: what each call of kind "step" costs; effects cost nothing.

    Raises:
        ValueError: when `steps` is below one or not whole, or `llm_cost` is negative or not finite.
    """
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps must be a whole number, one or more, not {steps!r}")
    return tuple(_nth_call(index, llm_cost) for index in range(steps))


def _nth_call(index: int, llm_cost: float) -> StepSpec:
    """Return call number `index` (from 0) of the endlessly repeated reference pattern."""
    lap, place = divmod(index, len(REFERENCE_SHAPE))
    pattern = REFERENCE_SHAPE[place]
    name = pattern.name if lap == 0 else f"{pattern.name}-{lap + 1}"
    return StepSpec(name, pattern.kind, llm_cost if pattern.kind == "step" else 0.0)
