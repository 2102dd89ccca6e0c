"""Work on a whole journal: checking it.

Guarantees: reads only; one damaged run doesn't hide the others. Leaves to others: mending.
"""

from dataclasses import dataclass

from durable_mini.errors import JournalCorruptError
from durable_mini.events import ENDED, Event, EventKind, RunRow
from durable_mini.journal import Journal
from durable_mini.structure import structure_hash

_WITH_OUTCOME = frozenset({EventKind.STEP, EventKind.EFFECT})


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
    follows an ending; a step has its argument digest and either a result or an error; the row's
    status and structure hash are those that the events tell.

    Returns:
        The counts, and the first broken event of each run that has one.

    Raises:
        StorageError: the journal can't be read at all.
    """
    problems: list[Problem] = []
    runs = events = 0
    try:
        problems += [Problem(None, None, text) for text in journal.integrity()]
        for row in journal.rows():
            runs += 1
            try:
                history = journal.events(row)
            except JournalCorruptError as error:
                problems.append(Problem(error.run_id or row.run_id, error.seq, error.reason))
                continue
            events += len(history)
            broken = _first_broken_law(row, history)
            if broken is not None:
                problems.append(broken)
    except JournalCorruptError as error:  # the file itself can't be read on
        problems.append(Problem(error.run_id, error.seq, error.reason))
    return Verification(runs, events, tuple(problems))


def _first_broken_law(row: RunRow, history: list[Event]) -> Problem | None:
    if not history:
        return Problem(row.run_id, 1, "the admission is missing")
    for event in history:
        broken = _broken_event(event, len(history))
        if broken is not None:
            return Problem(row.run_id, event.seq, broken)
    last = history[-1]
    ended = str(last.kind) if last.kind in ENDED else None
    if ended != (str(row.status) if row.status in ENDED else None):
        return Problem(
            row.run_id, last.seq, f"the row says {row.status}, the last event is {last.kind}"
        )
    calls = history[0].payload["calls"]
    if structure_hash(calls) != row.structure:
        return Problem(row.run_id, 1, "the structure hash doesn't fit the recorded durable calls")
    return None


def _broken_event(event: Event, count: int) -> str | None:
    if (event.kind is EventKind.ADMITTED) != (event.seq == 1):
        return "the admission is not where it belongs"
    if event.kind in ENDED and event.seq != count:
        return f"{count - event.seq} more events follow the run's ending"
    try:
        payload = event.payload
    except ValueError:
        return "the payload is no JSON"
    outcomes = {"result", "error"} & set(payload)
    if event.kind in _WITH_OUTCOME and ("args" not in payload or len(outcomes) != 1):
        return "a step needs an argument digest and either a result or an error"
    return None
