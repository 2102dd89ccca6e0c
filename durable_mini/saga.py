"""What a run has to undo if it doesn't get to its end.

Guarantees: what is registered last is undone first; each undo has a key of its own, which no effect
has, and knows the key of the effect that it undoes. Leaves to others: journalling the registrations
and the undos, one event each (`context`).
"""

from dataclasses import dataclass
from typing import Any

from durable_mini.retry import Fn


@dataclass(slots=True)
class Undo:
    """A compensation: its name, body and arguments, its key, and the key of what it undoes."""

    name: str
    fn: Fn
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str
    effect_key: str
    bound: bool = False


class Saga:
    """The compensations of a run, in the order in which they were registered."""

    def __init__(self) -> None:
        self._undos: list[Undo] = []

    def __bool__(self) -> bool:
        return bool(self._undos)

    def register(
        self, name: str, fn: Fn, args: tuple[Any, ...], kwargs: dict[str, Any], key: str
    ) -> None:
        """Add a compensation; `key` is the key of an effect of the same name.

        Until an effect is bound to it, that is the effect that it is told to undo.
        """
        self._undos.append(Undo(name, fn, args, kwargs, f"{key}~undo", key))

    def bind(self, name: str, key: str) -> None:
        """Tell a compensation which effect it undoes: the one of that name, or the oldest free."""
        free = [undo for undo in self._undos if not undo.bound]
        for undo in sorted(free, key=lambda undo: undo.name != name)[:1]:
            undo.effect_key, undo.bound = key, True

    def pop(self) -> Undo:
        """The compensation that is due next; it is forgotten."""
        return self._undos.pop()
