"""Work on a whole journal: checking it.

Guarantees: reads only; one damaged run doesn't hide the others. Leaves to others: mending.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from durable_mini.errors import JournalCorruptError
from durable_mini.events import ENDED, Event, EventKind, RunError, RunRow, RunStatus
from durable_mini.journal import Journal
from durable_mini.structure import structure_hash

_FIELDS = {
    EventKind.ADMITTED: {"calls", "input"},
    EventKind.COMPLETED: {"result"},
    EventKind.FAILED: {"error"},
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: in a run where known, at the first sequence number concerned."""

    run_id: str | None
    seq: int | None
    problem: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found: how many runs and events it read, and every problem."""

    runs: int
    events: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify(journal: Journal) -> Verification:
    """Check the storage, every checksum, and the laws that every history obeys.

    The laws: sequence numbers are dense from 1; the admission comes first and only there; nothing
    follows an ending; a durable call has its argument digest and either a result or an error; the
    row's workflow, status and structure hash are those that the events tell, and it says why it
    needs attention. A run that another process drives meanwhile is judged as it stands afterwards.

    Returns:
        The counts, and the first broken event of each run that has one.

    Raises:
        StorageError: the journal can't be read at all.
    """
    problems: list[Problem] = []
    runs = events = 0
    try:
        problems += [Problem(None, None, " ".join(text.split())) for text in journal.integrity()]
        for found in _rows_or_faults(journal):
            count, problem = (
                (0, _told(found))
                if isinstance(found, JournalCorruptError)
                else _checked_run(journal, found)
            )
            runs, events = runs + 1, events + count
            problems += [problem] if problem is not None else []
    except JournalCorruptError as error:  # the file itself can't be read on
        problems.append(_told(error))
    return Verification(runs, events, tuple(problems))


def _rows_or_faults(journal: Journal) -> Iterator[RunRow | JournalCorruptError]:
    """Each run's row, or what is wrong with it: a damaged row doesn't hide the next."""
    rows = journal.rows()
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except JournalCorruptError as error:
            yield error


def _checked_run(journal: Journal, row: RunRow) -> tuple[int, Problem | None]:
    """How many sound events a run has, and its first problem."""
    try:
        history, now = journal.events(row), journal.row(row.run_id)
    except JournalCorruptError as error:
        return 0, _told(error)
    if now is not None and now != row:  # another driver went on between the two looks
        return _checked_run(journal, now)
    return len(history), _first_broken_law(row, history)


def _told(error: JournalCorruptError) -> Problem:
    return Problem(error.run_id, error.seq, error.reason)


def _first_broken_law(row: RunRow, history: list[Event]) -> Problem | None:
    if not history:
        return Problem(row.run_id, 1, "the admission is missing")
    for event in history:
        broken = _broken_event(event, len(history))
        if broken is not None:
            return Problem(row.run_id, event.seq, broken)
    return _contradiction(row, history[0], history[-1])


def _contradiction(row: RunRow, admission: Event, last: Event) -> Problem | None:
    """Where a run's row says something else than its events."""
    seq = last.seq
    ended = str(last.kind) if last.kind in ENDED else None
    if admission.name != row.workflow:
        seq = 1
        said = f"the row says workflow {row.workflow!r}, the admission {admission.name!r}"
    elif ended != (str(row.status) if row.status in ENDED else None):
        said = f"the row says {row.status}, the last event is {last.kind}"
    elif not _readable(row):
        said = "the row doesn't say readably why it needs attention"
    elif structure_hash(admission.payload["calls"]) != row.structure:
        seq, said = 1, "the structure hash doesn't fit the recorded durable calls"
    else:
        return None
    return Problem(row.run_id, seq, said)


def _readable(row: RunRow) -> bool:
    """Whether a row has an error exactly when it needs attention, and one that can be read."""
    if row.error is None or row.status is not RunStatus.NEEDS_ATTENTION:
        return row.error is None and row.status is not RunStatus.NEEDS_ATTENTION
    try:
        RunError(**json.loads(row.error))
    except (TypeError, ValueError):
        return False
    return True


def _broken_event(event: Event, count: int) -> str | None:
    if (event.kind is EventKind.ADMITTED) != (event.seq == 1):
        return "the admission is not where it belongs"
    if event.kind in ENDED and event.seq != count:
        return f"{count - event.seq} more events follow the run's ending"
    try:
        payload = event.payload
    except ValueError:
        payload = None
    if not isinstance(payload, dict):
        return "the payload is no JSON object"
    return _broken_payload(event.kind, payload)


def _broken_payload(kind: EventKind, payload: dict[str, Any]) -> str | None:
    if kind in _FIELDS:
        missing = ", ".join(sorted(_FIELDS[kind] - payload.keys()))
        return f"the payload has no {missing}" if missing else None
    outcomes = {"result", "error"} & payload.keys()
    if "args" not in payload or len(outcomes) != 1:
        return "a durable call needs an argument digest and either a result or an error"
    return None
