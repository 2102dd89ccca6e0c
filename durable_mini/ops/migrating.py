"""Migrating a run to code of another structure: its journal rewritten into that of a successor.

Guarantees: the successor's history is replayed against the new code before anything is written, and
answers every call that it has; the successor keeps the old run's key base, spend and deadline; the
old run ends and the successor begins in one transaction. Leaves to others: saying what a step is
called now (the mapping), and driving the successor.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from durable_mini.codec import check_name
from durable_mini.engine import Engine
from durable_mini.errors import (
    DurableError,
    LeaseLostError,
    NonDeterminismError,
    RunIdConflictError,
    message_of,
)
from durable_mini.events import (
    ENDED,
    OUTSIDE,
    Event,
    EventKind as Kind,
    RunError,
    RunRow,
    RunStatus,
)
from durable_mini.journal import Journal, Opening
from durable_mini.ops.laws import MIGRATED, is_migrated
from durable_mini.ops.replaying import replay
from durable_mini.structure import Workflow, structure

Names = Mapping[str, str | None]

_RENAMED = frozenset(
    {
        *(Kind.STEP, Kind.EFFECT, Kind.TRY, Kind.COMPENSATE, Kind.UNDO, Kind.PATCH),
        *(Kind.WAIT, Kind.RECEIVED, Kind.TIMED_OUT, Kind.SIGNAL),
    }
)
_HAPPENED: dict[str, str] = {
    Kind.EFFECT: "the effect has happened",
    Kind.UNDO: "the undo has happened",
    Kind.CHILD: "the child has been admitted",
    Kind.JOINED: "the child has been admitted",
    Kind.PIVOT: "the run is past its point of no return",
}
_LET_IT_END = "let it go to its end"


class MigrationError(DurableError):
    """A run can't be carried over to other code in this way. Nothing was written.

    Facts: `run_id`; `seq` of the old run's event, None where it is no single one; `recorded` and
    `requested` where the new code asked for something else, otherwise None; `reason`, `hint`.
    """

    _says = "run {run_id}{where} can't be migrated: {reason}. Next: {hint}."

    def __init__(
        self, run_id: str, reason: str, hint: str, seq: int | None = None, **facts: Any
    ) -> None:
        where = "" if seq is None else f", event {seq},"
        facts = {"recorded": None, "requested": None, **facts}
        super().__init__(run_id=run_id, reason=reason, hint=hint, seq=seq, where=where, **facts)


class _Copy(NamedTuple):
    """An event of the old run, and what the successor has of it."""

    old: Event
    new: Event


def migrate(
    engine: Engine,
    run_id: str,
    mapping: Names,
    *,
    to: Workflow | None = None,
    successor_id: str | None = None,
    patches: Iterable[str] | None = None,
) -> str:
    """Carry a run over to code whose durable calls are others than it started with.

    The run ends as cancelled, with its successor's id as the message of an error of type
    "Migrated", and the successor goes on where it stood: with the same input, the same recorded
    results under their new names, its signals, its spend and its deadline. Effects keep their keys,
    since those are made from the old run's id, unless they are renamed.

    Refused is whatever the new code doesn't ask for in the order in which it is recorded, and what
    a rewritten journal can't undo: dropping an effect, an undo, a child or the point of no return;
    renaming an effect whose key would change while it is still tried, may be in its crash window,
    or may have to be undone; a run with a child on its way, or whose parent waits for it.

    Args:
        engine: whose journal; the new code is registered with it.
        run_id: a run that hasn't ended; somebody who drives it is fenced out.
        mapping: by the old name of a durable call its new name, or None for one that is gone, with
            all its occurrences. What isn't named stays. A renamed wait renames its signals.
        to: the new code; by default what is registered under the run's workflow and version.
        successor_id: the successor's run id; by default the old one with "-migrated".
        patches: the patches of the new code that the successor takes, whatever was recorded about
            them; by default those that the old run knew.

    Returns:
        The successor's run id; it is pending, and due at once.

    Raises:
        MigrationError: it isn't possible so, naming the event; nothing was written.
        RunIdConflictError: the successor's id is taken.
        UnknownRunError, UnknownWorkflowError, InvalidNameError: nothing was written.

    Crash:
        Before the commit the old run stands as it did, at most with a new fencing token; after it
        the successor does.
    """
    journal = engine.journal
    new_id = f"{run_id}-migrated" if successor_id is None else successor_id
    check_name(new_id, "run id")
    for name in filter(None, mapping.values()):
        check_name(name, "step name")
    taken = None if patches is None else frozenset(patches)
    while True:
        row, events = journal.find(run_id), engine.history(run_id)
        _refuse_over(row, events[-1])
        _refuse_relatives(journal, row)
        _refuse_taken(journal, new_id)
        name, version = (to.name, to.version) if to else (row.workflow, row.version)
        workflow = engine._registered(name, version, run_id)
        opening = _Plan(engine, row, events, mapping, taken).opening(workflow, new_id)
        held = row._replace(token=row.token + 1)  # fences out whoever drives it, and nothing else
        if journal.replace(row, held) and _handed_over(engine, held, events[-1].seq, opening):
            return new_id


def _handed_over(engine: Engine, held: RunRow, read_to: int, opening: Opening) -> bool:
    """End the old run and begin the new; not if anything came in between.

    Crash: both or neither.
    """
    journal, now = engine.journal, engine.clock.now()
    error = RunError(MIGRATED, opening[0].run_id)
    entry = Kind.CANCELLED, held.workflow, json.dumps({"error": error._asdict()}), now
    changes: dict[str, Any] = {"status": RunStatus.CANCELLED, "due_at": None, "error": None}
    changes |= {"token": held.token + 1, "worker": None, "lease_until": now}
    opens = _free(journal, opening)
    try:
        return journal.append(held, entry, expected=read_to, opens=opens, **changes) > 0
    except LeaseLostError:
        return False


def _free(journal: Journal, opening: Opening) -> Iterator[Opening]:
    """The opening, if its id is free when the transaction comes to it."""
    _refuse_taken(journal, opening[0].run_id)
    yield opening


def _refuse_taken(journal: Journal, run_id: str) -> None:
    stands = journal.row(run_id)
    if stands is not None:
        facts = {"recorded": f"workflow {stands.workflow!r}", "requested": "a successor"}
        raise RunIdConflictError(run_id=run_id, **facts)


def _refuse_over(row: RunRow, last: Event) -> None:
    if row.status in ENDED:
        how, hint = f"it is {row.status}", "migrate runs that haven't ended"
        if is_migrated(last):
            how, hint = "it was migrated", f"see run {last.payload['error']['message']}"
        raise MigrationError(row.run_id, how, hint, last.seq)


def _refuse_relatives(journal: Journal, row: RunRow) -> None:
    """Refuse a run that is tied by its id to another: the end of either would find nobody."""
    parent = None if row.parent is None else journal.row(row.parent)
    if parent is not None and parent.status not in ENDED:
        why = f"run {parent.run_id} waits for it under this id"
        raise MigrationError(row.run_id, why, _LET_IT_END)
    for child in journal.rows():
        if child.parent == row.run_id and child.status not in ENDED:
            why = f"its child {child.run_id} hasn't ended, and would tell a run that is over"
            raise MigrationError(row.run_id, why, f"{_LET_IT_END} or cancel it, then migrate")


class _Plan:
    """What the successor of a run will be.

    Args:
        engine: whose clock, and whose way of comparing arguments.
        row: the old run.
        events: its history.
        mapping: the new names.
        patches: what the successor takes; None for what the old run knew.
    """

    def __init__(
        self,
        engine: Engine,
        row: RunRow,
        events: Sequence[Event],
        mapping: Names,
        patches: frozenset[str] | None,
    ) -> None:
        self._engine, self._row, self._events, self._mapping = engine, row, events, mapping
        self._admitted: dict[str, Any] = events[0].payload
        self._redecided = patches or frozenset()
        self._taken = frozenset(self._admitted.get("patches", ())) if patches is None else patches
        self._key_base = self._admitted.get("key_base", _own_key_base(row))
        self._copies = list(self._copied())

    def opening(self, workflow: Workflow, new_id: str) -> Opening:
        """The successor's row and history, once the new code has taken it."""
        self._refuse_changed_keys()
        row, now = self._row, self._engine.clock.now()
        patches = [taken for taken in structure(workflow).patches if taken in self._taken]
        found = structure(workflow, patches)
        carried = {"since": self._events[0].recorded_at, **self._admitted, "parent": None}
        carried |= {"version": workflow.version, "calls": found.calls}
        carried |= {"patches": patches, "key_base": self._key_base}
        carried["spent"] = self._spent()
        admission = Event(1, Kind.ADMITTED, workflow.name, json.dumps(carried), now)
        history = [admission, *(copy.new for copy in self._copies)]
        self._prove(workflow, new_id, history)
        identity = new_id, 1, workflow.name, workflow.version, found.hash, RunStatus.PENDING
        new = RunRow(*identity, attempts=row.attempts, token=row.token + 1, lease_until=now)
        return new, [event[1:] for event in history]

    def _copied(self) -> Iterator[_Copy]:
        """The events that the successor has, numbered anew, its admission left out."""
        seq = 1
        for event in self._events[1:]:
            name = self._name_of(event)
            if name is not None:
                seq += 1
                yield _Copy(event, event._replace(seq=seq, name=name))

    def _name_of(self, event: Event) -> str | None:
        """What an event is called from now on; None if it is dropped."""
        if event.kind is Kind.PATCH and event.name in self._redecided:
            return None
        name = self._mapping.get(event.name, event.name)
        if name == event.name or event.kind is Kind.STOP:
            return event.name
        if name is None and event.kind not in OUTSIDE:
            of = event.payload.get("of", event.kind)
            if of in _HAPPENED:
                hint = "keep the call in the new code, under this name or another"
                raise self._error(f"{event} can't be dropped: {_HAPPENED[of]}", hint, event)
            return None
        if event.kind in (Kind.CHILD, Kind.JOINED):
            why = f"{event} can't be renamed: its name is the id of a run"
            raise self._error(why, "leave it out of the mapping", event)
        return name if name is not None and event.kind in _RENAMED else event.name

    def _spent(self) -> tuple[float, int]:
        """What earlier generations spent, and the calls that the successor doesn't have."""
        cost, steps = self._admitted.get("spent", (0.0, 0))
        kept = {copy.old.seq for copy in self._copies}
        gone = [event for event in self._events[1:] if event.seq not in kept]
        cost += sum(event.payload.get("cost", 0.0) for event in gone)
        return cost, steps + sum(event.kind is Kind.STEP for event in gone)

    def _refuse_changed_keys(self) -> None:
        """Refuse to rename an effect whose key would change while the old one may be needed.

        A default key is made of the name. A receiver takes a repeat under another key for a new
        request, and an undo would be told of an effect that nobody knows.
        """
        counts, changed = Counter[tuple[str, str]](), dict[str, Event]()
        pivoted = any(copy.old.kind is Kind.PIVOT for copy in self._copies)
        undoable = False
        for old, new in self._copies:
            undoable = not pivoted and (undoable or old.kind is Kind.COMPENSATE)
            if old.payload.get("of", old.kind) != Kind.EFFECT:
                continue
            was = self._key("old", old.name, counts)
            if old.payload["key"] == was != self._key("new", new.name, counts):
                changed[new.name] = old
            if old.kind is Kind.EFFECT:
                counts.update([("old", old.name), ("new", new.name)])
                if changed.pop(new.name, None) and undoable:
                    raise self._changed_key(old, "it may have to be undone under the old one")
        for old in changed.values():
            raise self._changed_key(old, "a try under the old one may have had its effect")

    def _key(self, which: str, name: str, counts: Counter[tuple[str, str]]) -> str:
        """The default key of the next effect of a name, as `Context.effect` makes it."""
        key, count = f"{self._key_base}/{_quoted(name)}", counts[which, name] + 1
        return key if count == 1 else f"{key}#{count}"

    def _changed_key(self, event: Event, why: str) -> MigrationError:
        key = event.payload["key"]
        reason = f"{event} can't be renamed: its key {key!r} would change, and {why}"
        return self._error(reason, "keep its name in the new code", event)

    def _prove(self, workflow: Workflow, new_id: str, history: Sequence[Event]) -> None:
        """Replay the successor's history against the new code."""
        compared = self._engine.compare_arguments
        try:
            call, said = replay(workflow, history, new_id, 1, compare_arguments=compared)
        except NonDeterminismError as error:
            facts = {"recorded": error.recorded, "requested": error.requested}
            why = f"the journal has {error.recorded}, the new code asks for {error.requested}"
            hint = "say in the mapping what the call is called now, or None for a step that is gone"
            old = self._copies[error.seq - 2].old
            raise self._error(why, hint, old, **facts) from error
        except Exception as error:
            why = f"the new code raises {type(error).__name__}: {message_of(error)}"
            raise self._error(why, "mend it: it has to take every recorded call") from error
        renamed = {new for old, new in self._mapping.items() if new != old}
        unsure = self._row.status is RunStatus.RUNNING and call is not None
        if unsure and call and call.kind is Kind.EFFECT and call.name in renamed:
            why = f"its last attempt didn't end, and {said} may have happened under its old name"
            hint = "keep the name, or let the old code drive the run until it is suspended"
            raise self._error(why, hint, requested=said)

    def _error(
        self, reason: str, hint: str, event: Event | None = None, **facts: Any
    ) -> MigrationError:
        seq = None if event is None else event.seq
        return MigrationError(self._row.run_id, reason, hint, seq, **facts)


def _own_key_base(row: RunRow) -> str:
    """What the keys of a generation begin with, as `Context` makes them."""
    base = _quoted(row.run_id)
    return base if row.generation == 1 else f"{base}~{row.generation}"


def _quoted(part: str) -> str:
    return "".join(f"%{ord(sign):X}" if sign in "/#~%" else sign for sign in part)
