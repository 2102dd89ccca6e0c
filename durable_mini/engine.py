"""The engine: starts runs, drives them attempt by attempt, and tells how they stand.

Guarantees: a run is in the journal before any of it executes; an attempt that dies anywhere
leaves a run that `resume` finishes as if nothing had happened, with no recorded step executed
again; how a run ended is recorded once. Leaves to others: what workflow code may call
(`context`), where runs are kept (`journal`).
"""

import json
import math
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from durable_mini.clock import Clock, SystemClock
from durable_mini.codec import check_name, decode, detached, encode_sorted, round_trip
from durable_mini.context import Context, Probe, Settings
from durable_mini.errors import (
    ConcurrentAppendError,
    JournalCorruptError,
    NonDeterminismError,
    RunFailed,
    RunIdConflictError,
    StepFailedError,
    StorageError,
    StructureChangedError,
    UnknownRunError,
    UnknownWorkflowError,
)
from durable_mini.events import (
    ENDED,
    ENDINGS,
    Event,
    EventKind,
    Run,
    RunError,
    RunRow,
    RunStatus,
)
from durable_mini.journal import Journal
from durable_mini.structure import Workflow, structure

MAX_SHOWN = 80


class Engine:
    """Drives the runs of one journal.

    Args: journal: where runs are kept; the engine doesn't close it. workflows: the workflows,
        every version that may have runs, that this engine can drive. clock: where time comes
        from. max_payload_bytes: the largest input, result or recorded value, as JSON.
        compare_arguments: False lets a recorded step answer a call with other arguments. probe:
        called as `probe(position, kind, name)` at the three positions of every live durable call;
        what it raises there ends the attempt as a crash would.

    Raises:
        StructureUnreadableError: a workflow has no readable source.
        ValueError: two workflows share name and version.
    """

    def __init__(
        self,
        journal: Journal,
        workflows: Iterable[Workflow] = (),
        *,
        clock: Clock | None = None,
        max_payload_bytes: int = 262_144,
        compare_arguments: bool = True,
        probe: Probe | None = None,
    ) -> None:
        self._journal = journal
        self._clock = clock or SystemClock()
        self._settings = Settings(journal, self._clock, max_payload_bytes, compare_arguments, probe)
        self._workflows: dict[tuple[str, str], Workflow] = {}
        for workflow in workflows:
            known = self._workflows.setdefault((workflow.name, workflow.version), workflow)
            if known is not workflow:
                raise ValueError(f"two workflows are {workflow!r}. Next: give one another version.")
            structure(workflow)

    def start(self, workflow: Workflow, input: Any = None, *, run_id: str | None = None) -> str:  # noqa: A002 - the field's word
        """Admit a run: it is journalled, and nothing of it is executed.

        Args:
            workflow: one of the registered workflows.
            input: a JSON value for the workflow function.
            run_id: the run's name, for a caller that may ask twice; a random one by default.

        Returns:
            The run id. The same id with the same workflow and input gives the same run.

        Raises:
            RunIdConflictError: the id is taken by another workflow or input.
            PayloadError, InvalidNameError, UnknownWorkflowError: nothing was written.

        Crash:
            Before the commit there is no run, and asking again with the same id admits it.
        """
        if not isinstance(workflow, Workflow):
            raise TypeError(
                f"{workflow!r} is no workflow. Next: decorate the function with @workflow."
            )
        self._registered(workflow.name, workflow.version)
        run_id = str(uuid.uuid4()) if run_id is None else run_id
        check_name(run_id, "run id")
        text, value = round_trip(input, "run", run_id, "input", self._settings.max_payload_bytes)
        found = structure(workflow)
        payload = f'{{"calls":{json.dumps(found.calls)},"input":{text}}}'
        row = RunRow(run_id, 1, workflow.name, workflow.version, found.hash, RunStatus.PENDING)
        event = Event(1, EventKind.ADMITTED, workflow.name, payload, self._clock.now())
        if not self._journal.admit(row, event):
            self._refuse_conflict(run_id, workflow, value)
        return run_id

    def resume(self, run_id: str) -> Run:
        """Drive a run until it ends; a run that has ended is only told.

        A failed run is returned, as is one whose workflow code raised something that is no
        verdict: it needs attention, and `resume` with repaired code goes on.

        Raises: UnknownRunError, UnknownWorkflowError: there is nothing to drive, or no code to
            drive it with. StructureChangedError: the workflow's durable calls changed; nothing
            was executed or written. NonDeterminismError: the code left the recorded path; the run
            needs attention. JournalCorruptError, StorageError: the journal can't be trusted, or
            can't be written.

        Crash: Whatever was recorded stays; the next `resume` replays it and goes on at the first
            call that isn't.
        """
        row = self._row(run_id)
        if row.status in ENDED:
            return self.describe(run_id)
        workflow = self._registered(row.workflow, row.version, run_id)
        events = self._history(row)
        admitted = events[0].payload
        found = structure(workflow)
        if found.hash != row.structure:
            raise StructureChangedError(
                run_id, row.workflow, row.version, admitted["calls"], found.calls
            )
        attempt = self._journal.begin_attempt(run_id)
        context = Context(self._settings, row, attempt, events)
        return self._drive(workflow, row, context, admitted["input"])

    def run(self, workflow: Workflow, input: Any = None, *, run_id: str | None = None) -> Run:  # noqa: A002 - the field's word
        """`start` and `resume` in one call."""
        return self.resume(self.start(workflow, input, run_id=run_id))

    def describe(self, run_id: str) -> Run:
        """How a run stands, read from its journal; works without its workflow being registered.

        Raises:
            UnknownRunError: there is no such run.
            JournalCorruptError: its history is damaged.
        """
        return self._told(self._row(run_id))

    def runs(self, status: RunStatus | str | None = None) -> Iterator[Run]:
        """All runs in the order of their admission, or those of one status."""
        wanted = None if status is None else RunStatus(status)
        for row in self._journal.rows():
            if wanted is None or row.status is wanted:
                yield self._told(row)

    def history(self, run_id: str, generation: int | None = None) -> list[Event]:
        """A run's events in order, those of its newest generation by default.

        Raises:
            UnknownRunError: there is no such run or generation.
            JournalCorruptError: the history is damaged, naming the first event that is.
        """
        row = self._row(run_id)
        events = self._journal.events(run_id, generation or row.generation)
        if not events:
            raise UnknownRunError(run_id, generation)
        return events

    def _drive(self, workflow: Workflow, row: RunRow, context: Context, value: Any) -> Run:
        """One attempt: call the workflow function, and record how the run ended if it did."""
        try:
            result, error = self._verdict(workflow, context, value)
        except NonDeterminismError as divergence:
            self._needs_attention(row.run_id, divergence)
            raise
        except (StorageError, ConcurrentAppendError, JournalCorruptError):
            raise
        except Exception as bug:
            self._needs_attention(row.run_id, bug)
            return self.describe(row.run_id)
        finally:
            context.leave()
        if error is None:
            text, result = result
            kind, status, payload = EventKind.COMPLETED, RunStatus.COMPLETED, f'{{"result":{text}}}'
        else:
            kind, status, payload = (
                EventKind.FAILED,
                RunStatus.FAILED,
                json.dumps({"error": asdict(error)}),
            )
        event = Event(context.next_seq, kind, row.workflow, payload, self._clock.now())
        # A crash before this commit replays the whole run and comes here again.
        self._journal.append(row.run_id, row.generation, event, status)
        return Run(
            row.run_id,
            row.generation,
            row.workflow,
            row.version,
            status,
            value,
            result,
            error,
            context.attempt,
            context.cost,
        )

    def _verdict(
        self, workflow: Workflow, context: Context, value: Any
    ) -> tuple[Any, RunError | None]:
        """What the workflow code came to: its result with its text, or the failure that ends the
        run.
        """
        try:
            result = workflow.fn(context, detached(value))
        except (StepFailedError, RunFailed) as verdict:
            context.check_end("the run to fail")
            return None, _run_error(verdict)
        except BaseException:
            context.check_stopped()  # an exception of the code's own doesn't hide a stop
            raise
        context.check_end("the end of the workflow")
        limit_bytes = self._settings.max_payload_bytes
        return round_trip(result, "run", context.run_id, "result", limit_bytes), None

    def _needs_attention(self, run_id: str, error: Exception) -> None:
        self._journal.mark(run_id, RunStatus.NEEDS_ATTENTION, json.dumps(asdict(_run_error(error))))

    def _registered(self, name: str, version: str, run_id: str | None = None) -> Workflow:
        found = self._workflows.get((name, version))
        if found is None:
            known = [f"{other!r} version {of!r}" for other, of in self._workflows]
            raise UnknownWorkflowError(name, version, known, run_id)
        return found

    def _row(self, run_id: str) -> RunRow:
        row = self._journal.row(run_id)
        if row is None:
            raise UnknownRunError(run_id)
        return row

    def _history(self, row: RunRow) -> list[Event]:
        """The events of a run's generation, refused where they can't be what its row says."""
        events = self._journal.events(row.run_id, row.generation)
        if not events or events[0].kind is not EventKind.ADMITTED:
            raise JournalCorruptError("its admission is missing", run_id=row.run_id, seq=1)
        if (events[-1].kind in ENDINGS) != (row.status in ENDED):
            raise JournalCorruptError(
                f"its row says {row.status}, its last event is {events[-1].kind}",
                run_id=row.run_id,
                seq=len(events),
            )
        return events

    def _told(self, row: RunRow) -> Run:
        events = self._history(row)
        payloads = [event.payload for event in events]
        last = payloads[-1] if row.status in ENDED else {}
        error = last.get("error") or (decode(row.error) if row.error else None)
        return Run(
            row.run_id,
            row.generation,
            row.workflow,
            row.version,
            row.status,
            payloads[0]["input"],
            last.get("result"),
            RunError(**error) if error else None,
            row.attempts,
            math.fsum(payload.get("cost", 0.0) for payload in payloads),
        )

    def _refuse_conflict(self, run_id: str, workflow: Workflow, value: Any) -> None:
        """The second half of `start` for a taken id: the same request is no error, another one
        is.
        """
        row = self._row(run_id)
        if row.workflow != workflow.name:
            raise RunIdConflictError(
                run_id, f"workflow {row.workflow!r}", f"workflow {workflow.name!r}"
            )
        recorded = self._history(row)[0].payload["input"]
        if encode_sorted(recorded) != encode_sorted(value):
            raise RunIdConflictError(run_id, f"input {_short(recorded)}", f"input {_short(value)}")


def _run_error(error: BaseException) -> RunError:
    if isinstance(error, StepFailedError):
        return RunError(error.type, error.message, error.step)
    return RunError(type(error).__name__, str(error))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
