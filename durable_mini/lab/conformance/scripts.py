"""A workflow that is a list of calls; alone in its file, since an engine may read the source of it.

Guarantees: all scripts have one source, so a check of the source can't tell two of them apart, and
what is compared is the journal. Leaves to others: the calls (`machine`).
"""

from collections.abc import Callable
from typing import Any


def script(*asks: Callable[[Any], Any]) -> Callable[[Any, Any], list[Any]]:
    """A workflow that makes these calls in order and returns what each gave."""

    def scripted(ctx: Any, value: Any) -> list[Any]:
        return [ask(ctx) for ask in asks]

    return scripted
