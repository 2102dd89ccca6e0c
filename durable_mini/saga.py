"""What a run has to undo if it doesn't get to its end.

Guarantees: each undo has a key of its own, which no effect has, and knows the key of the effect
that it undoes. Leaves to others: journalling the registrations and the undos (`context`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from durable_mini.retry import Fn


@dataclass(slots=True)
class Undo:
    """A compensation: its name, body and arguments, and the key of the effect that it undoes.

    `effect` is the name of that effect once it has been met; until then `effect_key` is that of the
    compensation's own name.
    """

    name: str
    fn: Fn
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str
    effect_key: str
    effect: str = ""


def bind(undos: Iterable[Undo], name: str, key: str) -> None:
    """Tell a compensation which effect it undoes: the one of that name, or the oldest free."""
    free = (undo for undo in undos if not undo.effect or undo.name == name != undo.effect)
    for undo in sorted(free, key=lambda undo: (undo.name != name, undo.effect))[:1]:
        undo.effect_key, undo.effect = key, name
