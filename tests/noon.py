"""A clock for the rehearsal's tests: it stands at noon until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


class Now:
    """What a rehearsal asks for the time."""

    def __init__(self) -> None:
        self.at = NOON

    def __call__(self) -> datetime:
        return self.at
