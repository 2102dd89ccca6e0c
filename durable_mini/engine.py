"""The engine: starts runs, drives them attempt by attempt, and tells how they stand.

Guarantees: a run is in the journal before any of it executes; an attempt that dies anywhere
leaves a run that `resume` finishes as if nothing had happened, with no recorded step executed
again; how a run ended is recorded once. Leaves to others: what workflow code may call
(`context`), where runs are kept (`journal`).
"""

import json
import uuid
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from durable_mini import errors
from durable_mini.clock import SystemClock
from durable_mini.codec import check_name, decode, detached, encode_sorted, round_trip
from durable_mini.context import Context, Probe, Settings
from durable_mini.events import ENDED, Event, EventKind, Run, RunError, RunRow, RunStatus
from durable_mini.journal import Journal
from durable_mini.structure import Workflow, structure


class Engine:
    """Drives the runs of one journal.

    Args:
        journal: where runs are kept; the engine doesn't close it.
        workflows: the workflows, every version that may have runs, that this engine can drive.
        clock: where time comes from.
        max_payload_bytes: the largest input, result or recorded value, as JSON.
        compare_arguments: False lets a recorded step answer a call with other arguments.
        probe: called as `probe(position, kind, name)` at the three positions of every live durable
            call; a `BaseException` that it raises there ends the attempt as a crash would.

    Raises:
        StructureUnreadableError: a workflow has no readable source.
        ValueError: two workflows share name and version.
    """

    def __init__(
        self,
        journal: Journal,
        workflows: Iterable[Workflow] = (),
        *,
        clock: SystemClock = SystemClock(),  # noqa: B008 - it keeps nothing
        max_payload_bytes: int = 262_144,
        compare_arguments: bool = True,
        probe: Probe | None = None,
    ) -> None:
        self._settings = Settings(journal, clock, max_payload_bytes, compare_arguments, probe)
        self._workflows: dict[tuple[str, str], Workflow] = {}
        for workflow in workflows:
            known = self._workflows.setdefault((workflow.name, workflow.version), workflow)
            if known is not workflow:
                raise ValueError(f"two workflows are {workflow!r}. Next: give one another version.")
            structure(workflow)

    def start(self, workflow: Workflow, input: Any = None, *, run_id: str | None = None) -> str:
        """Admit a run: it is journalled, and nothing of it is executed.

        Args:
            workflow: one of the registered workflows; the registered function is what will run.
            input: a JSON value for the workflow function.
            run_id: the run's name, for a caller that may ask twice; a random one by default.

        Returns:
            The run id. The same id with the same workflow and input gives the same run.

        Raises:
            RunIdConflictError: the id is taken by another workflow or input.
            StructureChangedError: another workflow is registered under this name and version.
            PayloadError, InvalidNameError, UnknownWorkflowError: nothing was written.

        Crash:
            Before the commit there is no run, and asking again with the same id admits it.
        """
        if not isinstance(workflow, Workflow):
            raise TypeError(f"{workflow!r} is no workflow. Next: decorate it with @workflow.")
        run_id = str(uuid.uuid4()) if run_id is None else run_id
        check_name(run_id, "run id")
        found = structure(self._registered(workflow.name, workflow.version, run_id))
        text, value = round_trip(input, "run", run_id, "input", self._settings.max_payload_bytes)
        payload = f'{{"calls":{json.dumps(found.calls)},"input":{text}}}'
        row = RunRow(run_id, 1, workflow.name, workflow.version, found.hash, RunStatus.PENDING)
        if structure(workflow) != found:
            raise _changed(row, list(found.calls), list(structure(workflow).calls))
        event = Event(1, EventKind.ADMITTED, row.workflow, payload, self._settings.clock.now())
        if not self._settings.journal.admit(row, event):
            self._refuse_conflict(run_id, workflow, value)
        return run_id

    def resume(self, run_id: str) -> Run:
        """Drive a run until it ends; a run that has ended is only told.

        A failed run is returned, as is one whose workflow code raised something that is no
        verdict: it needs attention, and `resume` with repaired code goes on.

        Raises:
            UnknownRunError, UnknownWorkflowError: nothing to drive, or no code to drive it with.
            StructureChangedError: the durable calls changed; nothing was executed or written.
            NonDeterminismError: the code left the recorded path; the run needs attention.
            JournalCorruptError, StorageError: the journal can't be trusted, or can't be written.

        Crash:
            What was recorded stays; the next `resume` replays it and goes on at the first call
            that isn't.
        """
        row, events = self._read(run_id)
        if row.status in ENDED:
            return _told(row, events)
        workflow = self._registered(row.workflow, row.version, run_id)
        admitted, calls = events[0].payload, list(structure(workflow).calls)
        if calls != admitted["calls"]:
            raise _changed(row, admitted["calls"], calls)
        begun = row._replace(status=RunStatus.RUNNING, attempts=row.attempts + 1, error=None)
        if not self._settings.journal.replace(row, begun):
            return self.resume(run_id)  # another driver was first: look again
        context = Context(self._settings, begun, begun.attempts, events)
        return self._drive(workflow, begun, context, admitted["input"])

    def run(self, workflow: Workflow, input: Any = None, *, run_id: str | None = None) -> Run:
        """`start` and `resume` in one call."""
        return self.resume(self.start(workflow, input, run_id=run_id))

    def describe(self, run_id: str) -> Run:
        """How a run stands, read from its journal; works without its workflow being registered.

        Raises:
            UnknownRunError: there is no such run.
            JournalCorruptError: its history is damaged.
        """
        return _told(*self._read(run_id))

    def runs(self, status: RunStatus | str | None = None) -> Iterator[Run]:
        """All runs in the order of their admission, or those of one status."""
        wanted = tuple(RunStatus) if status is None else (RunStatus(status),)
        for row in self._settings.journal.rows():
            if row.status in wanted:
                yield _told(*self._read(row.run_id))

    def history(self, run_id: str, generation: int | None = None) -> list[Event]:
        """A run's events in order, those of its newest generation by default.

        Raises:
            UnknownRunError: there is no such run or generation.
            JournalCorruptError: the history is damaged, naming the first event that is.
        """
        row, events = self._read(run_id)
        if generation not in (None, row.generation):
            raise errors.UnknownRunError(run_id=run_id, generation=generation)
        return events

    def _drive(self, workflow: Workflow, row: RunRow, context: Context, value: Any) -> Run:
        """One attempt: call the workflow function, and record how the run ended if it did."""
        try:
            text, result, error = self._verdict(workflow, context, value)
        except errors.NonDeterminismError as divergence:
            self._needs_attention(row, divergence)
            raise
        except (errors.StorageError, errors.ConcurrentAppendError, errors.JournalCorruptError):
            raise
        except Exception as bug:
            self._needs_attention(row, bug)
            return self.describe(row.run_id)
        finally:
            last_seq, cost = context.leave()
        kind = EventKind.COMPLETED if error is None else EventKind.FAILED
        event = Event(last_seq + 1, kind, row.workflow, text, self._settings.clock.now())
        # A crash before this commit replays the whole run and comes here again.
        self._settings.journal.append(row, event, RunStatus(kind))
        return Run(*row[:4], RunStatus(kind), value, result, error, context.attempt, cost)

    def _verdict(
        self, workflow: Workflow, context: Context, value: Any
    ) -> tuple[str, Any, RunError | None]:
        """What the code came to: the ending's payload, and the result or the error in it."""
        try:
            result = workflow.fn(context, detached(value))
        except (errors.StepFailedError, errors.RunFailed) as verdict:
            context.check_end("the run to fail")
            error = _run_error(verdict)
            return json.dumps({"error": error._asdict()}), None, error
        except BaseException:
            context.check_stopped()  # an exception of the code's own doesn't hide a stop
            raise
        context.check_end("the end of the workflow")
        limit_bytes = self._settings.max_payload_bytes
        text, result = round_trip(result, "run", context.run_id, "result", limit_bytes)
        return f'{{"result":{text}}}', result, None

    def _needs_attention(self, row: RunRow, error: Exception) -> None:
        stored = json.dumps(_run_error(error)._asdict())
        stopped = row._replace(status=RunStatus.NEEDS_ATTENTION, error=stored)
        self._settings.journal.replace(row, stopped)  # not if another driver took over meanwhile

    def _registered(self, name: str, version: str, run_id: str) -> Workflow:
        found = self._workflows.get((name, version))
        if found is None:
            known = [f"{other!r} version {of!r}" for other, of in self._workflows]
            facts = {"workflow": name, "version": version, "run_id": run_id}
            raise errors.UnknownWorkflowError(registered=", ".join(known) or "none", **facts)
        return found

    def _read(self, run_id: str) -> tuple[RunRow, list[Event]]:
        """A run's row and history as of one moment, refused where they can't belong together."""
        row = self._settings.journal.row(run_id)
        if row is None:
            raise errors.UnknownRunError(run_id=run_id, generation=1)
        events = self._settings.journal.events(row)
        if row != self._settings.journal.row(run_id):
            return self._read(run_id)  # another driver went on in between
        if not events or events[0][1:3] != (EventKind.ADMITTED, row.workflow):
            raise errors.JournalCorruptError("the admission is missing", row.run_id, 1)
        if (events[-1].kind in ENDED) != (row.status in ENDED):
            why = f"its row says {row.status}, its last event is {events[-1].kind}"
            raise errors.JournalCorruptError(why, row.run_id, len(events))
        return row, events

    def _refuse_conflict(self, run_id: str, workflow: Workflow, value: Any) -> None:
        """The second half of `start` for a taken id: only the same request may ask again."""
        row, events = self._read(run_id)
        known = events[0].payload["input"]
        recorded = f"{row.workflow} with input {encode_sorted(known)}"
        requested = f"{workflow.name} with input {encode_sorted(value)}"
        if recorded != requested:
            facts = {"recorded": f"{recorded:.120}", "requested": f"{requested:.120}"}
            raise errors.RunIdConflictError(run_id=run_id, **facts)


def _told(row: RunRow, events: list[Event]) -> Run:
    """A run as its row and its history have it."""
    payloads = [event.payload for event in events]
    last = payloads[-1] if row.status in ENDED else {}
    stored = last.get("error") or (decode(row.error) if row.error else None)
    error = RunError(**stored) if stored else None
    cost = sum((payload.get("cost", 0.0) for payload in payloads), 0.0)
    value, result = payloads[0]["input"], last.get("result")
    return Run(*row[:4], row.status, value, result, error, row.attempts, cost)


def _changed(row: RunRow, recorded: list[str], requested: list[str]) -> errors.DurableError:
    """The error with the first difference between two lists of durable calls."""
    pairs = list(zip_longest(recorded, requested, fillvalue="nothing more"))
    place = next(place for place, (before, after) in enumerate(pairs) if before != after)
    facts = {"recorded": recorded, "requested": requested, "position": place + 1}
    facts |= {"before": pairs[place][0].strip(), "after": pairs[place][1].strip()}
    return errors.StructureChangedError(**row._asdict(), **facts)


def _run_error(error: BaseException) -> RunError:
    if isinstance(error, errors.StepFailedError):
        return RunError(error.type, error.message, error.step)
    return RunError(type(error).__name__, errors.message_of(error))
