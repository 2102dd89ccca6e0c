"""How an endpoint misbehaves: each switch is something that real receivers do.

Guarantees: a setting that makes no sense is refused when it is made. Leaves to others: doing it
(`receiver`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """How one endpoint treats requests; by default as well as any receiver does.

    Args:
        ignores_keys: every request is a new one; the header may be missing.
        keeps_keys_s: for how many seconds a key is known; after that a repeat counts as new.
        slow_s: how long a request takes before it takes effect. Its sender may be gone by then.
        refuses: the chance that a request is turned away (503) before anything is done.
        fails_after: the chance that a request takes effect and its sender doesn't hear of it, but
            of an internal error (500). The answer to a repeated key is never lost like that.
        drops: what `fails_after` says is nothing at all: the connection ends.
        seed: of the two chances. The same seed makes the same choices for the same requests in
            the same order; a server that starts again begins anew.

    Raises:
        ValueError: for a chance outside [0, 1], or a time below 0.
    """

    ignores_keys: bool = False
    keeps_keys_s: float = inf
    slow_s: float = 0.0
    refuses: float = 0.0
    fails_after: float = 0.0
    drops: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("refuses", "fails_after"):
            _check(name, getattr(self, name), "a chance from 0 to 1", 1.0)
        for name in ("keeps_keys_s", "slow_s"):
            _check(name, getattr(self, name), "a number of seconds, at least 0", inf)


Setting = Switches | Mapping[str, Switches] | None
"""The switches of all effects, or those of single endpoints by name, or none."""


def switches_from(told: Any) -> dict[str, Switches]:
    """The switches of endpoints as JSON has them: `{"charge": {"ignores_keys": true}}`.

    Raises:
        ValueError: that is no such setting; it says what is wrong with it.
    """
    if not isinstance(told, dict) or not all(isinstance(one, dict) for one in told.values()):
        raise ValueError('switches are an object of objects, such as {"charge": {"slow_s": 1}}')
    try:
        return {endpoint: Switches(**one) for endpoint, one in told.items()}
    except TypeError as error:
        known = ", ".join(Switches.__slots__)
        raise ValueError(f"no such switch: {error}. Next: choose from {known}.") from error


def _check(name: str, value: Any, wanted: str, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError(f"{name} is {wanted}, not {value!r}")
