"""How far a long exploration is: a bar in a terminal, a callback anywhere else.

Guarantees: says nothing where nobody asked and no terminal is there, and imports `rich` only to
draw a bar. Leaves to others: the work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Tell = Callable[[int, int], None]
Progress = Tell | bool | None
"""Called with how much is done and how much it is in all; False for silence, None for a bar where
there is a terminal, True for a bar anyway."""

Item = TypeVar("Item")


def followed(items: Iterable[Item], total: int, progress: Progress, what: str) -> Iterator[Item]:
    """Hand out the items, and tell each time one more is done.

    Args:
        items: what is worked through.
        total: how many they are.
        progress: who is told.
        what: what a bar is called.
    """
    if callable(progress):
        for done, item in enumerate(items, 1):
            yield item
            progress(done, total)
    elif progress or (progress is None and sys.stderr.isatty()):
        yield from _behind_a_bar(items, total, what)
    else:
        yield from items


def _behind_a_bar(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import track  # noqa: PLC0415

    yield from track(items, what, total, console=Console(stderr=True))
