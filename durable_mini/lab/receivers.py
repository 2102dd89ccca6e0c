"""Receivers that treat idempotency keys as real ones do: some forget them, some never look twice.

Guarantees: each differs from `Ledger` in one rule, which its first line states. Leaves to others:
receivers that ignore keys altogether (`Ledger(honour_keys=False)`).
"""

from __future__ import annotations

from typing import Any

from durable_mini.clock import SystemClock
from durable_mini.lab.ledger import Ledger


class ForgetfulLedger(Ledger):
    """Forgets a key `keep_s` seconds after its request, so that a later repeat counts as new.

    Args:
        clock: what the receiver goes by.
        keep_s: for how many seconds it keeps a key.
    """

    def __init__(self, clock: SystemClock, keep_s: float) -> None:
        super().__init__()
        self._clock, self._keep_s = clock, keep_s
        self._forgets_at: dict[str, float] = {}

    def post(self, endpoint: str, order: str, body: Any, key: str) -> str:
        """See `Ledger.post`; a forgotten key is taken for one that was never seen."""
        now = self._clock.now()
        if now >= self._forgets_at.get(key, now):
            self._first.pop(key, None)
            self._forgets_at[key] = now + self._keep_s
        return super().post(endpoint, order, body, key)


class IncuriousLedger(Ledger):
    """Answers a known key as if all was well, without comparing what is asked with the first time.

    Nothing is refused: a second request under a used key is lost, and its sender gets a receipt.
    """

    def post(self, endpoint: str, order: str, body: Any, key: str) -> str:
        """See `Ledger.post`; it never raises."""
        if key in self._first:
            return f"{endpoint} accepted for {order}"
        return super().post(endpoint, order, body, key)
