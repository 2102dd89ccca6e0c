"""Where a worker process can die, as one line that can be printed, read back and replayed.

A place is a durable call and one of its three positions, or a write of the run itself (admitted,
claimed, suspended, completed and so on), which has a before and an after. Written down it is
`charge.window`, `wait:approval.before`, `undo:charge.after`, `parcel/weigh.window` (a step of a
child), `plan#2.before` (for the second time in one process), `run:claimed.after`.

    charge.window > send_email.before      a process dies, and the one after it
    charge.before stalls                   it hangs, another takes over, then it goes on

Guarantees: no two places of one process have the same text, whatever the names. Leaves to others:
getting there (`process`).
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from durable_mini.events import EventKind, Position

NO_CRASH = "no crash"
RUN = "run"
"""What stands for the kind in the name of a run's own write."""

_SIGNS = str.maketrans({sign: f"%{ord(sign):02X}" for sign in "%#:/>"})
_UNMARKED = frozenset({EventKind.STEP, EventKind.EFFECT})
_NAMED_BY_ID = frozenset({EventKind.CHILD, EventKind.JOINED})
_WITHOUT_WORK = frozenset({EventKind.TRY, EventKind.STOP})  # they are only written
_ARROW, _STALLS = " > ", " stalls"


class Place(NamedTuple):
    """A call of a process, as it is written down, and where in it."""

    call: str
    position: Position

    def __str__(self) -> str:
        return f"{self.call}.{self.position}"

    @property
    def plain_call(self) -> str:
        """The call without a number, the same for every time that it is made."""
        return self.call.partition("#")[0]


class Fault(NamedTuple):
    """What befalls a process: it dies at a place, or hangs there while another works."""

    place: Place
    stalls: bool = False

    def __str__(self) -> str:
        return f"{self.place}{_STALLS if self.stalls else ''}"


Schedule = tuple[Fault, ...]
"""One fault for each process in turn; the process after the last one meets none."""


class Names:
    """Gives the calls of one process their names.

    Args:
        root_id: the run that is explored; calls of other runs are marked with the end of their id.
    """

    def __init__(self, root_id: str) -> None:
        self._root_id = root_id
        self._made = Counter[str]()

    def place(self, run_id: str, kind: str, name: str, position: Position) -> Place:
        """The place that a process has come to; a call is numbered from the second time on."""
        call = call_name(self._root_id, run_id, kind, name)
        first = Position.WINDOW if kind in _WITHOUT_WORK else Position.BEFORE
        self._made[call] += position is first
        count = self._made[call]
        return Place(call if count <= 1 else f"{call}#{count}", position)


def call_name(root_id: str, run_id: str, kind: str, name: str) -> str:
    """A durable call, or a run's own write, as it is written down.

    >>> call_name("r", "r", "effect", "charge"), call_name("r", "r", "wait", "approval")
    ('charge', 'wait:approval')
    >>> call_name("r", "r/parcel", "step", "weigh"), call_name("r", "r", "now", "now")
    ('parcel/weigh', 'now')
    """
    whose = "" if run_id == root_id else f"{_last_part(run_id)}/"
    word = _last_part(name) if kind in _NAMED_BY_ID else name.translate(_SIGNS)
    return f"{whose}{word}" if kind in _UNMARKED or kind == name else f"{whose}{kind}:{word}"


def _last_part(run_id: str) -> str:
    return run_id.rpartition("/")[2].translate(_SIGNS)


def recipe_of(schedule: Schedule) -> str:
    """The schedule in one line."""
    return _ARROW.join(map(str, schedule)) or NO_CRASH


def schedule_of(recipe: str) -> Schedule:
    """The schedule that a line stands for: what `recipe_of` wrote, as it was or typed by hand.

    Raises:
        ValueError: a part of it names no position.
    """
    text = recipe.strip()
    return () if text in ("", NO_CRASH) else tuple(map(_fault, text.split(_ARROW.strip())))


def _fault(text: str) -> Fault:
    spot, stalls = text.strip(), text.strip().endswith(_STALLS)
    call, _, position = spot.removesuffix(_STALLS).rpartition(".")
    if not call or position not in tuple(Position):
        known = ", ".join(Position)
        raise ValueError(f"{spot!r} is no place. Next: write call.position, with one of {known}")
    return Fault(Place(call, Position(position)), stalls)
