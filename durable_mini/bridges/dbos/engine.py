"""Starting, driving and asking about runs that DBOS keeps.

Guarantees: a run is in DBOS's tables before anything of it executes; it ends as it would on
durable_mini, or waits for a person with nothing undone. Leaves to others: workflow code's calls
(`context`), looking for runs that are due, and storing (DBOS).
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event as Flag, Lock
from typing import Any

from dbos import (
    DBOS,
    DBOSClient,
    DBOSConfig,
    DBOSPortableJSONSerializer,
    StepInfo,
    WorkflowStatus,
    error as dbos_error,
)

from durable_mini import errors
from durable_mini.bridges.dbos.context import INBOX, UNMAPPED, BridgedContext, Halt
from durable_mini.clock import SystemClock
from durable_mini.codec import check_name, decode, detached, encode, encode_sorted, round_trip
from durable_mini.engine import refuse_changed, run_error
from durable_mini.events import (
    ENDED,
    OUTSIDE,
    Event,
    EventKind,
    Run,
    RunError,
    RunRow,
    RunStatus,
    waiting_for,
)
from durable_mini.lease import Holder
from durable_mini.retry import Budget
from durable_mini.structure import Structure, Workflow, structure

APPLICATION = "durable_mini"
"""DBOS's application, and its application version too: each workflow has its own version here."""

_FOREVER_S = float("inf")
_at_work = Lock()  # DBOS is one for a process
_STATUSES = {
    "ENQUEUED": RunStatus.PENDING,
    "DELAYED": RunStatus.PENDING,
    "PENDING": RunStatus.RUNNING,
    "SUCCESS": RunStatus.COMPLETED,
    "ERROR": RunStatus.FAILED,
    "CANCELLED": RunStatus.NEEDS_ATTENTION,
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": RunStatus.NEEDS_ATTENTION,
}


class UnmappedCallError(errors.DurableError):
    """A workflow makes a call that DBOS has nothing for. It wasn't registered.

    Facts: `workflow`, `call`, `reason` (with a way out).
    """

    _says = "workflow {workflow!r} can't run on DBOS: {call}: {reason}"


class RunEndedError(Exception):
    """What a DBOS workflow raises so that DBOS shows a failed or cancelled run as an error.

    DBOS stores `data`: the run's status, and the error's type, message and step.
    """

    def __init__(self, status: RunStatus, error: RunError) -> None:
        super().__init__(f"{status}: {error.type}: {error.message}")
        self.data = {"status": str(status), **error._asdict()}


class DBOSEngine:
    """The runs of one DBOS database, with the methods of `Engine`; in `working` it drives them.

    Args:
        url: the database, such as "sqlite:///runs.db" or "postgresql://…"; DBOS's tables are made
            where they are missing.
        workflows: the workflows, every version that may have runs, that this process knows.
        clock: what is read for recorded times; DBOS's own waits are on the system's clock.
        budget: as in `Engine`; `max_attempts` is DBOS's `max_recovery_attempts`.
        max_payload_bytes, compare_arguments: as in `Engine`.
        concurrency: how many runs of one workflow a worker has at once; each has a thread, also
            while it waits.
        poll_s: how often a worker looks for runs, and on SQLite for messages.

    Raises:
        UnmappedCallError: a workflow makes a call that DBOS has nothing for.
        StructureUnreadableError, ValueError: as in `Engine`.
    """

    journal = probe = None  # what the engine's `Context` may have and this one doesn't
    max_events = 0

    def __init__(
        self,
        url: str,
        workflows: Iterable[Workflow],
        *,
        clock: SystemClock | None = None,
        budget: Budget | None = None,
        max_payload_bytes: int = 262_144,
        compare_arguments: bool = True,
        concurrency: int = 16,
        poll_s: float = 0.1,
    ) -> None:
        self.clock, self.budget = clock or SystemClock(), budget or Budget()
        self.max_payload_bytes, self.compare_arguments = max_payload_bytes, compare_arguments
        self.registered: dict[str, Workflow] = {}
        for workflow in workflows:
            if self.registered.setdefault(_name_of(workflow), workflow) is not workflow:
                raise ValueError(f"two workflows are {workflow!r}. Next: give one another version.")
            _refuse_unmapped(workflow)
        self._url, self._poll_s, self._worker = url, poll_s, ""
        self._halted = dict[str, errors.DurableError]()  # runs that this worker let go of, and why
        self._stopping = Flag()
        DBOS.migrate(url)
        self._client = DBOSClient(
            system_database_url=url,
            serializer=DBOSPortableJSONSerializer(),  # DBOS's default is pickle
            application_name=APPLICATION,
        )
        for name in self.registered:
            limits = {"worker_concurrency": concurrency, "polling_interval_sec": poll_s}
            self._client.register_queue(_queue_of(name), **limits)  # type: ignore[arg-type]

    def close(self) -> None:
        """Close the connections to the database."""
        self._client.destroy()

    # ---- driving ---------------------------------------------------------------------------------

    @contextmanager
    def working(
        self, worker_id: str = "local", log_level: str = "CRITICAL"
    ) -> Iterator[DBOSEngine]:
        """Within the block this process is a DBOS executor and drives the runs of its workflows.

        What an executor of this id left unfinished, DBOS takes up at once. Runs that still wait
        when the block is left keep their thread, and the process with it.

        Args:
            worker_id: DBOS's executor id: no two living processes may share one, and a process that
                comes after one that died has to have the same.
            log_level: DBOS's; at ERROR it prints the trace of each run that fails.

        Raises:
            DurableError: another one is working in this process; DBOS is one for all of it.
        """
        if _at_work.locked():
            why = "this process has a DBOS at work already. Next: give all workflows to one engine"
            raise errors.DurableError(why)
        with _at_work, self._launched(worker_id, log_level):
            yield self

    @contextmanager
    def _launched(self, worker_id: str, log_level: str) -> Iterator[None]:
        config = DBOSConfig(
            name=APPLICATION,
            application_version=APPLICATION,
            system_database_url=self._url,
            executor_id=worker_id,
            serializer=DBOSPortableJSONSerializer(),
            notification_listener_polling_interval_sec=self._poll_s,
            run_migrations=False,
            log_level=log_level,
        )
        DBOS(config=config)
        try:
            for name in self.registered:
                made = partial(self._execute, name)
                options = {"name": name, "max_recovery_attempts": self.budget.max_attempts}
                DBOS.workflow(**options)(_as_function(made))  # type: ignore[arg-type]
            DBOS.listen_queues([_queue_of(name) for name in self.registered])
            self._worker = worker_id
            self._stopping.clear()
            DBOS.launch()
            yield
        finally:
            self._stopping.set()
            DBOS.destroy(destroy_registry=True)

    def take_over(self, worker_id: str) -> list[str]:
        """Put the runs of a worker that never comes back into their queues again; their ids.

        Nobody looks whether it is dead: DBOS has no lease. If it lives, DBOS drops what it records
        from now on, and the step that it is in is executed twice, with one key.
        """
        left = self._client.list_workflows(status="PENDING", executor_id=worker_id)
        for status in left:
            self._client.resume_workflow(status.workflow_id, queue_name=_queue_of(status.name))
        return [status.workflow_id for status in left]

    # ---- from outside ----------------------------------------------------------------------------

    def start(
        self,
        workflow: Workflow,
        input: Any = None,  # noqa: A002 - as in `Engine`
        *,
        run_id: str | None = None,
        parent: RunRow | None = None,
    ) -> str:
        """Admit a run: DBOS has it in its queue, and a worker takes it from there. See `Engine`."""
        run_id = str(uuid.uuid4()) if run_id is None else run_id
        check_name(run_id, "run id")
        found = self._structure_of(workflow, run_id)
        _, value = round_trip(input, "run", run_id, "input", self.max_payload_bytes)
        admitted = {
            "version": workflow.version,
            "calls": found.calls,
            "patches": found.patches,
            "since": self.clock.now(),
            "parent": parent and parent.run_id,
            "input": value,
        }
        name = _name_of(workflow)
        options: Any = {"workflow_name": name, "queue_name": _queue_of(name)}
        options |= {"workflow_id": run_id, "app_version": APPLICATION}
        # Inside a run DBOS records that the child was started, and shows it as one.
        enqueue = DBOS.enqueue_workflow_with_options if parent else self._client.enqueue
        with suppress(dbos_error.DBOSConflictingWorkflowError):  # the id of another workflow's run
            enqueue(options, encode(admitted))
        status = self._status(run_id)
        recorded, asked = _asked(status.name, _admitted(status)), _asked(name, admitted)
        if recorded != asked:  # DBOS keeps the first and says nothing
            facts = {"recorded": f"{recorded:.120}", "requested": f"{asked:.120}"}
            raise errors.RunIdConflictError(run_id=run_id, **facts)
        return run_id

    def resume(self, run_id: str, *, wait_s: float = _FOREVER_S) -> Run:
        """Take a run over unless this worker has it, and wait until it ends or needs attention.

        Args:
            run_id: whose run; a worker has to be there that drives it.
            wait_s: after so many seconds it is told as it stands. A run that waits for a signal
                doesn't come back by itself.

        Raises:
            UnknownRunError: there is no such run.
            StorageError: the database refuses; the run stays as it was recorded.
        """
        status = self._status(run_id)
        parked = _STATUSES[status.status] is RunStatus.NEEDS_ATTENTION
        others = status.status == "PENDING" and status.executor_id != self._worker
        let_go = self._halted.pop(run_id, None)
        if parked or others or let_go is not None:
            self._client.update_workflow_attributes(run_id, {"stopped": None}, merge=True)
            self._client.resume_workflow(run_id, queue_name=_queue_of(status.name))
        return self._waited(run_id, wait_s)

    def _waited(self, run_id: str, wait_s: float) -> Run:
        until_s = time.monotonic() + wait_s
        while True:
            if run_id in self._halted:
                raise self._halted[run_id]
            run = self.describe(run_id)
            over = run.status in ENDED or run.status is RunStatus.NEEDS_ATTENTION
            if over or time.monotonic() >= until_s:
                return run
            time.sleep(min(self._poll_s, max(until_s - time.monotonic(), 0.0)))

    def run(
        self,
        workflow: Workflow,
        input: Any = None,  # noqa: A002 - as in `Engine`
        *,
        run_id: str | None = None,
        wait_s: float = _FOREVER_S,
    ) -> Run:
        """`start`, and wait as `resume` does; nothing is taken over."""
        return self._waited(self.start(workflow, input, run_id=run_id), wait_s)

    def signal(
        self, run_id: str, name: str, payload: Any = None, *, signal_id: str | None = None
    ) -> bool:
        """Give a run something from outside; whether the run can still take it. See `Engine`."""
        signal_id = str(uuid.uuid4()) if signal_id is None else signal_id
        check_name(name, "signal name")
        check_name(signal_id, "signal id")
        _, value = round_trip(payload, "signal", name, "payload", self.max_payload_bytes)
        if _STATUSES[self._status(run_id).status] in ENDED:
            return False
        said = {"signal_id": signal_id, "result": value}
        self._client.send(run_id, self._message("signal", name, said), INBOX, f"signal {signal_id}")
        return True

    def cancel(self, run_id: str) -> bool:
        """Ask a run to stop: at its next durable call, or out of its wait. See `Engine`.

        DBOS's own `cancel_workflow` is another thing: it undoes nothing, and can be resumed.
        """
        status = self._status(run_id)
        if _STATUSES[status.status] in ENDED or (status.attributes or {}).get("cancel"):
            return False
        if any(event.kind is EventKind.PIVOT for event in self.history(run_id)):
            why = f"run {run_id} is past its point of no return. Next: let it go to its end"
            raise errors.DurableError(why, run_id=run_id)
        self._client.update_workflow_attributes(run_id, {"cancel": True}, merge=True)
        self._client.send(run_id, self._message("cancel", "cancel", {}), INBOX, "cancel")
        return True

    def is_cancel_requested(self, run_id: str) -> bool:
        """Whether somebody asked for this run to be cancelled."""
        options: Any = {"load_input": False, "load_output": False}
        (status,) = self._client.list_workflows(workflow_ids=[run_id], **options)
        return bool((status.attributes or {}).get("cancel"))

    # ---- looking in ------------------------------------------------------------------------------

    def describe(self, run_id: str) -> Run:
        """How a run stands. See `Engine`; a run that waits is told as suspended, in its thread."""
        status = self._status(run_id)
        admitted, events = _admitted(status), self._events(status)
        stands, ended = _ending_of(status)
        error = ended.get("error")
        waits = waiting_for(events[-1:]) if stands is RunStatus.RUNNING else None
        return Run(
            run_id,
            1,
            status.name.rpartition("@")[0],
            admitted["version"],
            RunStatus.SUSPENDED if waits else stands,
            admitted["input"],
            ended.get("result"),
            RunError(**error) if error else None,
            waits,
            status.recovery_attempts or 0,
            sum((event.payload.get("cost", 0.0) for event in events), 0.0),
        )

    def history(self, run_id: str) -> list[Event]:
        """A run's events in the order of its code: DBOS's steps and received messages."""
        return self._events(self._status(run_id))

    def standing(self) -> Counter[RunStatus]:
        """How many runs stand how; one question to DBOS, however many there are."""
        options: Any = {"load_input": False, "load_output": False}
        statuses = self._client.list_workflows(**options)
        return Counter(_STATUSES[status.status] for status in statuses)

    def _status(self, run_id: str) -> WorkflowStatus:
        with suppress(dbos_error.DBOSNonExistentWorkflowError):
            return self._client.retrieve_workflow(run_id).get_status()
        raise errors.UnknownRunError(run_id=run_id, generation=None)

    def _events(self, status: WorkflowStatus) -> list[Event]:
        begun_s = (status.created_at or 0) / 1000
        name = status.name.rpartition("@")[0]
        events = [Event(1, EventKind.ADMITTED, name, encode(_admitted(status)), begun_s)]
        steps = self._client.list_workflow_steps(status.workflow_id)
        for said, at_s in _said_in(sorted(steps, key=lambda step: step["function_id"])):
            kind, name, payload, *sent_at_s = decode(said)
            when_s = sent_at_s[0] if sent_at_s else at_s
            events.append(Event(len(events) + 1, EventKind(kind), name, encode(payload), when_s))
        stands, ended = _ending_of(status)
        if stands in ENDED:
            name, at_s = events[0].name, (status.completed_at or 0) / 1000
            events.append(Event(len(events) + 1, EventKind(stands), name, encode(ended), at_s))
        return events

    # ---- one execution ---------------------------------------------------------------------------

    def _execute(self, name: str, text: str) -> str:
        """What DBOS calls; it returns or raises how the run ended, or records nothing."""
        run_id = str(DBOS.workflow_id)
        try:
            return self._attempt(self.registered[name], run_id, decode(text))
        except errors.StorageError as error:
            self._halted[run_id] = error
            raise Halt from error
        except RunEndedError:
            raise
        except Exception as bug:
            self._park(run_id, bug)
            raise Halt from bug

    def _attempt(self, workflow: Workflow, run_id: str, admitted: dict[str, Any]) -> str:
        context = self._context(workflow, run_id, admitted)
        outcome: BaseException | None = None
        try:
            result = workflow.fn(context, detached(admitted["input"]))
        except BaseException as raised:
            outcome = raised
        outcome = context.stopped or outcome  # what code makes of a stop doesn't count
        if outcome is None:
            context.cursor.finish("the end of the workflow")
            _, value = round_trip(result, "run", run_id, "result", self.max_payload_bytes)
            return self._ended(run_id, admitted, {"result": value})
        if not isinstance(outcome, errors.VERDICTS) or context.pivoted:
            raise outcome
        cancelled = isinstance(outcome, errors.RunCancelledError)
        if cancelled and context.child_id:
            with suppress(errors.DurableError):  # past its point of no return
                self.cancel(context.child_id)
        context.unwind()
        context.cursor.finish("the run to fail")
        error = run_error(outcome)
        self._ended(run_id, admitted, {"error": error._asdict()})
        raise RunEndedError(RunStatus.CANCELLED if cancelled else RunStatus.FAILED, error)

    def _context(self, workflow: Workflow, run_id: str, admitted: dict[str, Any]) -> BridgedContext:
        """A context for the code that may go on with a run.

        Raises:
            StructureChangedError: this code may not.
        """
        status, known = self._status(run_id), admitted["patches"]
        found = structure(workflow, known)
        of = run_id, 1, workflow.name, workflow.version, found.hash, RunStatus.RUNNING
        row = RunRow(*of, admitted["parent"], attempts=status.recovery_attempts or 1)
        refuse_changed(row, admitted["calls"], found.calls)
        past = [event for event in self._events(status) if event.kind not in OUTSIDE]
        patches = {patch_id: patch_id in known for patch_id in (*found.patches, *known)}
        holder = Holder(self._worker, stopping=self._stopping.is_set)
        return BridgedContext(self, row, past, patches, holder)

    def _ended(self, run_id: str, admitted: dict[str, Any], how: dict[str, Any]) -> str:
        """Tell the parent, if there is one; a crash after this tells it no second time."""
        if admitted["parent"]:
            said = self._message("child_ended", run_id, how)
            DBOS.send(admitted["parent"], said, INBOX, idempotency_key=f"child {run_id}")
        return encode(how)

    def _park(self, run_id: str, bug: Exception) -> None:
        """Let a run wait for a person: as DBOS has it, cancelled, and to be resumed."""
        status = self._status(run_id)
        if (status.status, status.executor_id) == ("PENDING", self._worker):  # nobody else has it
            stopped = run_error(bug)._asdict()
            self._client.update_workflow_attributes(run_id, {"stopped": stopped}, merge=True)
            self._client.cancel_workflow(run_id)

    def _message(self, kind: str, name: str, payload: dict[str, Any]) -> str:
        return encode([kind, name, payload, self.clock.now()])

    def _structure_of(self, workflow: Workflow, run_id: str) -> Structure:
        known = self.registered.get(_name_of(workflow))
        if known is None:
            facts = {"workflow": workflow.name, "version": workflow.version}
            registered = ", ".join(self.registered) or "none"
            raise errors.UnknownWorkflowError(run_id=run_id, registered=registered, **facts)
        return structure(known)


def _name_of(workflow: Workflow) -> str:
    """A workflow's name on DBOS."""
    return f"{workflow.name}@{workflow.version}"


def _queue_of(name: str) -> str:
    """A queue for each version of a workflow: a worker leaves alone what it has no code for."""
    return f"{APPLICATION}/{name}"


def _as_function(call: Any) -> Any:
    """A plain function, as DBOS wants one."""

    def execute(text: str) -> str:
        return str(call(text))

    return execute


def _refuse_unmapped(workflow: Workflow) -> None:
    for found in (structure(workflow), structure(workflow, ())):  # the paths of its patches too
        for line in found.calls:
            call = line.split()[0]
            if call in UNMAPPED:
                facts = {"workflow": workflow.name, "call": call}
                raise UnmappedCallError(reason=UNMAPPED[call], **facts)


def _admitted(status: WorkflowStatus) -> dict[str, Any]:
    """What a run was started with."""
    given = status.input["args"][0] if status.input else "{}"
    return dict(decode(given))


def _ending_of(status: WorkflowStatus) -> tuple[RunStatus, dict[str, Any]]:
    """How a run stands, and its `result`, or the `error` that ended or stopped it."""
    stands = _STATUSES[status.status]
    if stands is RunStatus.COMPLETED:
        return stands, dict(decode(str(status.output)))
    if stands is RunStatus.FAILED:
        error = dict(getattr(status.error, "data", None) or {})
        return RunStatus(error.pop("status", stands)), {"error": error}
    stopped = (status.attributes or {}).get("stopped")
    return stands, {"error": stopped} if stopped else {}


def _asked(name: str, admitted: dict[str, Any]) -> str:
    whose = f", a child of {admitted['parent']}" if admitted["parent"] else ""
    return f"{name}{whose} with input {encode_sorted(admitted['input'])}"


def _said_in(steps: Sequence[StepInfo]) -> Iterator[tuple[str, float]]:
    """The events' texts in DBOS's steps, and when each was recorded, in seconds."""
    for step in steps:
        own = step["function_name"] == "DBOS.recv" or not step["function_name"].startswith("DBOS.")
        if own and step["output"] is not None:
            yield str(step["output"]), (step["completed_at_epoch_ms"] or 0) / 1000
