"""Where time comes from: the system, or a clock that a test moves by hand.

Guarantees: no other module of the engine asks the operating system for the time. Leaves to
    others: recording it.
"""

import time


class SystemClock:
    """The wall clock of this machine."""

    now = staticmethod(time.time)
    """Seconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Come back after `seconds`."""
        time.sleep(seconds)


class FakeClock(SystemClock):
    """A clock that stands still until it is told: a week passes in no time.

    Args:
        start_s: seconds since the epoch that `now()` begins with.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now(self) -> float:
        """The seconds it was set to."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move on by `seconds`; a negative number is a clock that was set back."""
        self._now_s += seconds

    sleep = advance
