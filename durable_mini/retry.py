"""How often a failing step is tried, and what a run may use up: arithmetic only.

Guarantees: the same policy gives the same delays; a policy or a budget that makes no sense is an
error at once. Leaves to others: waiting, counting, and stopping the run (`context`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from durable_mini.errors import PayloadError

Fn = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with a cap; exceptions named in `non_retryable` fail at once.

    Args:
        max_attempts: how often the step is tried in all, the first try included.
        initial_s: seconds before the second try.
        factor: by how much each wait is longer than the one before, from 1 to 1,000.
        max_s: no wait is longer than this many seconds.
        non_retryable: exception types that another try can't mend.

    Raises:
        ValueError: a count below 1, a negative wait, or a factor out of range.
        TypeError: `non_retryable` holds something that is no exception type.
    """

    max_attempts: int = 3
    initial_s: float = 1.0
    factor: float = 2.0
    max_s: float = 60.0
    non_retryable: tuple[type[BaseException], ...] = (TypeError,)

    def __post_init__(self) -> None:
        isinstance(self, self.non_retryable)  # a TypeError where something in it is no type
        counts = self.max_attempts >= 1 <= self.factor <= 1_000
        if not (counts and self.initial_s >= 0 <= self.max_s):
            raise ValueError(f"{self}: max_attempts from 1, factor from 1 to 1,000, seconds from 0")

    def delay_s(self, tries: int) -> float:
        """Seconds to wait after `tries` failed tries.

        >>> [RetryPolicy(initial_s=1, factor=2, max_s=5).delay_s(n) for n in (1, 2, 3, 4)]
        [1, 2, 4, 5]
        """
        # At most 1,000 to the power of 64: enough to reach any cap, and still a float.
        return min(self.initial_s * self.factor ** min(tries - 1, 64), self.max_s)

    def allows(self, tries: int, error: BaseException) -> bool:
        """Whether another try may follow `tries` failed ones, the last with `error`.

        A value that can't be stored is final, whatever the policy says.
        """
        final = isinstance(error, (*self.non_retryable, PayloadError))
        return tries < self.max_attempts and not final


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
        if self.max_attempts < 1 or not all(0 <= limit < inf for limit in self.limits.values()):
            raise ValueError(f"{self}: limits from 0, max_attempts from 1")

    @property
    def limits(self) -> dict[str, float]:
        """The limits that durable calls are counted against, by name."""
        limits = {name: getattr(self, name) for name in ("max_seconds", "max_steps", "max_cost")}
        return {name: limit for name, limit in limits.items() if limit is not None}
