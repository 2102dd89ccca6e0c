"""What a run may use up before it is stopped: numbers only.

Guarantees: a budget that makes sense, or an error at once. Leaves to others: counting (`context`)
and stopping (`engine`).
"""

from dataclasses import dataclass
from math import isfinite


@dataclass(frozen=True, slots=True)
class Budget:
    """What each run of an engine may use; None is without limit.

    Args:
        max_seconds: from admission to the last durable call, waiting included.
        max_steps: how many steps and effects, over all generations.
        max_cost: committed spend, in the units of `cost=`. A step of known cost that would exceed
            it is not begun; one whose cost comes from its result may exceed it once. Work that is
            lost in a crash window was spent and isn't counted.
        max_attempts: after so many attempts in a row that crashed without recording anything, a run
            needs attention.

    Raises:
        ValueError: a limit below 0, not finite, or no attempt at all.
    """

    max_seconds: float | None = None
    max_steps: int | None = None
    max_cost: float | None = None
    max_attempts: int = 100

    def __post_init__(self) -> None:
        limits = (self.max_seconds, self.max_steps, self.max_cost)
        sound = all(limit is None or (isfinite(limit) and limit >= 0) for limit in limits)
        if not sound or self.max_attempts < 1:
            raise ValueError(f"{self}: limits from 0, max_attempts from 1")

    @property
    def limited(self) -> bool:
        """Whether durable calls have to be counted against it."""
        return (self.max_seconds, self.max_steps, self.max_cost) != (None, None, None)
