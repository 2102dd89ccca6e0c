"""One worker process as the explorer sees it: where it has been, what it did, and how it was ended.

A process is the engine's probe, and stands between the engine and the journal. It notes each place
that it comes to, and at one of them it dies, or stalls while others do its work.

Guarantees: between two places that it notes, either one step's body runs or one write is made; so
a crash that isn't among them leaves the same behind as one that is, as long as a step's body is
taken for one deed. A dead process writes nothing more, or that is told. Leaves to others: driving
it (`trial`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any, NamedTuple, cast

from durable_mini.events import CLOSING, EventKind, Position, RunRow, RunStatus
from durable_mini.journal import Journal
from durable_mini.lab.exploring.places import RUN, Fault, Names, Place

_BEFORE, _AFTER = Position.BEFORE, Position.AFTER
BODIES = frozenset(
    {
        EventKind.STEP,
        EventKind.EFFECT,
        EventKind.NOW,
        EventKind.RANDOM,
        EventKind.UUID,
        EventKind.UNDO,
    }
)
"""Kinds of durable call that execute something."""


MAX_PLACES = 20_000
"""At how many places of one process it is taken for one that goes round in circles."""


class Call(NamedTuple):
    """A durable call that executes something: whose it is, its kind and its name."""

    run_id: str
    kind: EventKind
    name: str


class ProcessDiedError(BaseException):
    """The process is dead; a `BaseException`, so that no `except Exception` lets it live on."""


class EndlessError(BaseException):
    """The process comes to place after place and to no end."""


class Process:
    """Follows one process, and ends it at a place.

    Args:
        root_id: the run that is explored.
        fault: what befalls it; None lets it live.
        meanwhile: what happens elsewhere while it stalls.

    Attributes: `places` it has come to, in order; `met` (whether it has come to its fault);
    `executed` counts the bodies that were begun; `wrote_dead` has what it tried to write when it
    was dead.
    """

    def __init__(self, root_id: str, fault: Fault | None, meanwhile: Callable[[], None]) -> None:
        self.places: list[Place] = []
        self.executed = Counter[Call]()
        self.met = self.dead = False
        self.wrote_dead: list[str] = []
        self._fault, self._meanwhile, self._names = fault, meanwhile, Names(root_id)
        self._run_id, self._working = root_id, cast("Call | None", None)
        self._thread = get_ident()

    @property
    def stalled(self) -> bool:
        """Whether others did its work while it hung."""
        return self.met and not self.dead

    @property
    def lost(self) -> Call | None:
        """The body that was begun and whose outcome this process didn't record, once it is over."""
        return self._working if self.met else None

    def __call__(self, position: Position, kind: EventKind, name: str) -> None:
        """The engine's probe."""
        if position is _AFTER:
            self._working = None
        self._come_to(self._names.place(self._run_id, kind, name, position))
        if position is _BEFORE and kind in BODIES:
            self._working = Call(self._run_id, kind, name)
            self.executed[self._working] += 1

    def begin(self, row: RunRow) -> None:
        """It has claimed a run: the calls that follow are that run's."""
        self._run_id = row.run_id

    def write(self, run_id: str, what: str, make: Callable[[], Any]) -> Any:
        """Make a write of the run itself, with a place before it, and one after it if it took."""
        if get_ident() != self._thread:  # a heartbeat, which changes no run
            return make()
        if self.dead:
            self.wrote_dead.append(f"{what} of run {run_id}")
            raise ProcessDiedError
        if not what:
            return make()
        self._come_to(self._names.place(run_id, RUN, what, _BEFORE))
        made = make()
        if made:
            self._come_to(self._names.place(run_id, RUN, what, _AFTER))
        return made

    def _come_to(self, place: Place) -> None:
        self.places.append(place)
        if len(self.places) > MAX_PLACES:
            raise EndlessError
        if self._fault is None or self.met or place != self._fault.place:
            return
        self.met = True
        if not self._fault.stalls:
            self.dead = True
            raise ProcessDiedError(str(place))
        self._meanwhile()


class WatchedJournal:
    """A journal whose every write passes through a process; reads go straight to the journal."""

    def __init__(self, journal: Journal, process: Process) -> None:
        self._journal, self._process = journal, process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def admit(self, new: Any, over: RunRow | None = None, parent: RunRow | None = None) -> bool:
        """See `Journal.admit`."""
        row, entries = new
        if not entries:
            return over is not None and self.replace(over, row)
        return self._write(row, "admitted", lambda: self._journal.admit(new, over, parent))

    def replace(self, row: RunRow, changed: RunRow) -> bool:
        """See `Journal.replace`."""
        claimed = changed.status is RunStatus.RUNNING and changed.token != row.token

        def make() -> bool:
            made = self._journal.replace(row, changed)
            if made and claimed:
                self._process.begin(changed)
            return made

        return self._write(row, "claimed" if claimed else "changed", make)

    def append(self, row: RunRow, entry: Any, *, opens: Iterable[Any] = (), **more: Any) -> int:
        """See `Journal.append`; a durable call's event has its places in the engine already."""
        if entry is None:
            what = str(more.get("status", ""))
        else:
            what = str(entry[0]) if entry[0] in CLOSING else ""
        seq: int = self._process.write(
            row.run_id, what, lambda: self._journal.append(row, entry, opens=opens, **more)
        )
        return seq

    def update(self, row: RunRow, *, expected: int | None = None, **changes: Any) -> bool:
        """See `Journal.update`."""
        return self.append(row, None, expected=expected, **changes) > 0

    def request(self, run_id: str, asks: Any) -> bool:
        """See `Journal.request`."""
        made: bool = self._process.write(
            run_id, "told", lambda: self._journal.request(run_id, asks)
        )
        return made

    def _write(self, row: RunRow, what: str, make: Callable[[], bool]) -> bool:
        made: bool = self._process.write(row.run_id, what, make)
        return made


def watched(journal: Journal, process: Process) -> Journal:
    """The journal as a process has it."""
    return cast("Journal", WatchedJournal(journal, process))
