"""How often a failing step is tried, and how long to wait in between: arithmetic only.

Guarantees: the same policy gives the same delays. Leaves to others: waiting, and counting what
    was tried.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with a cap; exceptions named in `non_retryable` fail at once.

    Args:
        max_attempts: how often the step is tried in all, the first try included.
        initial_s: seconds before the second try.
        factor: by how much each wait is longer than the one before.
        max_s: no wait is longer than this many seconds.
        non_retryable: exception types that another try can't mend.

    Raises:
        ValueError: a count below 1, a negative wait, or a factor below 1.
    """

    max_attempts: int = 3
    initial_s: float = 1.0
    factor: float = 2.0
    max_s: float = 60.0
    non_retryable: tuple[type[BaseException], ...] = (TypeError,)

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, not {self.max_attempts}")
        if not (self.initial_s >= 0 and self.max_s >= 0 and self.factor >= 1):
            raise ValueError("initial_s and max_s must not be negative, factor must be at least 1")

    def delay_s(self, tries: int) -> float:
        """Seconds to wait after `tries` failed tries.

        >>> [RetryPolicy(initial_s=1, factor=2, max_s=5).delay_s(n) for n in (1, 2, 3, 4)]
        [1, 2, 4, 5]
        """
        try:
            return min(self.initial_s * self.factor ** (tries - 1), self.max_s)
        except OverflowError:
            return self.max_s

    def allows(self, tries: int, error: BaseException) -> bool:
        """Whether another try may follow `tries` failed ones, the last with `error`."""
        return tries < self.max_attempts and not isinstance(error, self.non_retryable)


ONCE = RetryPolicy(max_attempts=1)
