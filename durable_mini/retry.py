"""How often a failing step is tried, and how long to wait in between: arithmetic only.

Guarantees: the same policy gives the same delays. Leaves to others: waiting, and counting what
    was tried.
"""

from collections.abc import Callable
from dataclasses import dataclass
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


ONCE = RetryPolicy(max_attempts=1)
