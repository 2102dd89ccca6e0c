"""The engine: starts runs, drives them attempt by attempt, and tells how they stand.

Guarantees: a run is in the journal before any of it executes; an attempt that dies anywhere
leaves a run that another attempt finishes as if nothing had happened, with no recorded step
executed again; how a run ended is recorded once. Leaves to others: what workflow code may call
(`context`), where runs are kept (`journal`), looking for runs that are due (`worker`).
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import cache
from itertools import chain, zip_longest
from typing import Any

from durable_mini import errors, events
from durable_mini.clock import SystemClock
from durable_mini.codec import check_name, decode, detached, encode, encode_sorted, round_trip
from durable_mini.context import Context, LetGo, Probe, Spread, in_threads
from durable_mini.events import ENDED, Event, EventKind, Run, RunError, RunRow, RunStatus, log
from durable_mini.journal import Journal
from durable_mini.lease import Heart, Holder
from durable_mini.retry import Budget
from durable_mini.structure import Structure, Workflow, structure

# One for all that beats alike in a process; a thread doesn't survive a fork.
_heart_of = cache(lambda _pid, heartbeat_s: Heart(heartbeat_s))


@dataclass(eq=False, repr=False)
class Engine:
    """Drives the runs of one journal; `registered` has the workflows by name and version.

    Args:
        journal: where runs are kept; the engine doesn't close it.
        workflows: the workflows, every version that may have runs, that this engine can drive.
        clock: where time comes from.
        budget: what each run may use up; without limit by default, but for attempts that crash.
        max_payload_bytes: the largest input, result or recorded value, as JSON.
        max_events: how many events a generation may have; a warning is logged before.
        compare_arguments: False lets a recorded step answer a call with other arguments.
        probe: called as `probe(position, kind, name)` at the three positions of every live durable
            call; a `BaseException` that it raises there ends the attempt as a crash would.
        spread: runs the branches of a `gather`: `in_threads`, or `in_turn` for the same order
            every time.

    Raises:
        StructureUnreadableError: a workflow has no readable source.
        ValueError: two workflows share name and version.
    """

    journal: Journal
    workflows: InitVar[Iterable[Workflow]] = ()
    _: KW_ONLY
    clock: SystemClock = SystemClock()  # noqa: RUF009 - it keeps nothing
    budget: Budget = Budget()  # noqa: RUF009 - frozen
    max_payload_bytes: int = 262_144
    max_events: int = 200_000
    compare_arguments: bool = True
    probe: Probe | None = None
    spread: Spread = in_threads

    def __post_init__(self, workflows: Iterable[Workflow]) -> None:
        self.registered: dict[tuple[str, str], Workflow] = {}
        for workflow in workflows:
            known = self.registered.setdefault((workflow.name, workflow.version), workflow)
            if known is not workflow:
                raise ValueError(f"two workflows are {workflow!r}. Next: give one another version.")
            structure(workflow)

    # ---- from outside ---------------------------------------------------------------------------

    def start(
        self,
        workflow: Workflow,
        input: Any = None,
        *,
        run_id: str | None = None,
        reuse: bool = False,
        parent: RunRow | None = None,
    ) -> str:
        """Admit a run: it is journalled, and nothing of it is executed.

        Args:
            workflow: one of the registered workflows; the registered function is what will run.
            input: a JSON value for the workflow function.
            run_id: the run's name, for a caller that may ask twice; a random one by default.
            reuse: take the id of a run that has ended, or was pruned, for a new generation.
            parent: the run that waits for this one; `Context.child` says so.

        Returns:
            The run id. The same id with the same workflow and input gives the same run.

        Raises:
            RunIdConflictError: the id is taken by another workflow or input, or of a pruned run.
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
        text, value = round_trip(input, "run", run_id, "input", self.max_payload_bytes)
        over = self.journal.row(run_id) if reuse else None
        over = over if over is not None and over.status in ENDED else None
        generation, token = (over.generation + 1, over.token + 1) if over else (1, 0)
        of = run_id, generation, workflow.name, workflow.version, found.hash, RunStatus.PENDING
        row = RunRow(*of, parent and parent.run_id, token=token, lease_until=self.clock.now())
        refuse_changed(row, found.calls, structure(workflow).calls)
        more = {"parent": row.parent} if parent else {}
        if not self.journal.admit((row, [self._admission(row, found, text, **more)]), over, parent):
            self._refuse_conflict(row, value)
        return run_id

    def resume(self, run_id: str) -> Run:
        """Take a run over and drive it until it ends or is suspended; one that has ended is told.

        Back-offs between tries are waited out; the children that the run waits for are driven too.
        A failed run is returned, as is one whose workflow code raised something that is no
        verdict: it needs attention, and `resume` with repaired code goes on.

        Raises:
            UnknownRunError, UnknownWorkflowError: nothing to drive, or no code to drive it with.
            StructureChangedError: the durable calls changed; nothing was executed or written.
            NonDeterminismError: the code left the recorded path; the run needs attention.
            LeaseLostError: somebody else took the run over meanwhile, and goes on with it.
            JournalCorruptError, StorageError: the journal can't be trusted, or can't be written.

        Crash:
            What was recorded stays; the next attempt replays it and goes on at the first call
            that isn't.
        """
        holder = Holder(f"resume-{os.getpid()}", patient=True)
        run: Run | None = None
        while run is None or run.status not in ENDED | {RunStatus.NEEDS_ATTENTION}:
            row = self.journal.find(run_id)
            due = row.due_at is not None and row.due_at <= self.clock.now()
            if row.status in ENDED or (run and not due and not self._drive_child(run_id)):
                return self.describe(run_id)
            run = self.drive(row, holder)
        return run

    def run(self, workflow: Workflow, input: Any = None, *, run_id: str | None = None) -> Run:
        """`start` and `resume` in one call; what these raise, and what a crash leaves, holds here.

        Without a `run_id` a caller that dies in between doesn't know which run it has started.
        """
        return self.resume(self.start(workflow, input, run_id=run_id))

    def signal(
        self, run_id: str, name: str, payload: Any = None, *, signal_id: str | None = None
    ) -> bool:
        """Give a run something from outside; it is journalled on arrival.

        Args:
            run_id: whose signal it is; it may not wait for it yet.
            name: what `wait_signal` asks for.
            payload: a JSON value.
            signal_id: names this signal, for a sender that may ask twice: over all generations of
                the run it counts once. A random one by default.

        Returns:
            Whether it was taken: not if its id is known, or the run has ended.

        Raises:
            UnknownRunError, PayloadError, InvalidNameError: nothing was written.

        Crash:
            Before the commit the run knows nothing of it; send it again with the same id.
        """
        signal_id = str(uuid.uuid4()) if signal_id is None else signal_id
        check_name(name, "signal name")
        check_name(signal_id, "signal id")
        text, _ = round_trip(payload, "signal", name, "payload", self.max_payload_bytes)
        text = f'{{"signal_id":{encode(signal_id)},"result":{text}}}'

        def asks(row: RunRow) -> events.Entry | None:
            generations = (row._replace(generation=n + 1) for n in range(row.generation))
            history = chain.from_iterable(map(self.journal.events, generations))
            signals = (event.payload for event in history if event.kind is EventKind.SIGNAL)
            known = any(signal["signal_id"] == signal_id for signal in signals)
            return None if known else self._entry(EventKind.SIGNAL, name, text)

        return self.journal.request(run_id, asks)

    def cancel(self, run_id: str) -> bool:
        """Ask a run to stop: at its next durable call it compensates and ends as cancelled.

        Returns:
            Whether it was asked: not if it has ended or was asked before.

        Raises:
            UnknownRunError: there is no such run.
            DurableError: the run is past its point of no return, and goes on.

        Crash:
            Before the commit nobody was asked; after it every attempt knows.
        """

        def asks(row: RunRow) -> events.Entry | None:
            kinds = {event.kind for event in self.journal.events(row)}
            if EventKind.PIVOT in kinds and row.status not in ENDED:
                why = "is past its point of no return. Next: let it go to its end"
                raise errors.DurableError(f"run {run_id} {why}", run_id=run_id)
            known = EventKind.CANCEL in kinds
            return None if known else self._entry(EventKind.CANCEL, "cancel", "{}")

        return self.journal.request(run_id, asks)

    def retry_compensation(self, run_id: str) -> Run:
        """Try a failed compensation again, once its cause has been mended, and the rest after it.

        Raises:
            DurableError: the run doesn't need attention.
            UnknownRunError, and what `resume` raises.

        Crash:
            Undos that are recorded stay done; the next call goes on with the first that isn't.
        """
        row, history = self._read(run_id)
        last = [event for event in history if event.kind not in events.OUTSIDE][-1]
        if row.status is not RunStatus.NEEDS_ATTENTION or last.payload.get("of") != EventKind.UNDO:
            why = f"run {run_id} is {row.status}: no compensation of it has failed"
            raise errors.DurableError(why, run_id=run_id)
        return self.resume(run_id)

    # ---- looking in -----------------------------------------------------------------------------

    def describe(self, run_id: str) -> Run:
        """How a run stands, read from its journal; works without its workflow being registered.

        Raises:
            UnknownRunError: there is no such run, or it was pruned.
            JournalCorruptError: its history is damaged.
        """
        row, history = self._read(run_id)
        payloads = [event.payload for event in history]
        last = payloads[-1] if row.status in ENDED else {"error": row.error and decode(row.error)}
        carried, _ = payloads[0].get("spent", (0.0, 0))
        cost = sum((payload.get("cost", 0.0) for payload in payloads), carried)
        waits = events.waiting_for(history) if row.status is RunStatus.SUSPENDED else None
        return _told(row, payloads[0]["input"], last, waits, cost)

    def runs(self, status: RunStatus | str | None = None) -> Iterator[Run]:
        """All runs in the order of their admission, or those of one status; no pruned ones.

        Raises:
            ValueError: there is no such status.
            JournalCorruptError: at the run whose history is damaged.
        """
        wanted = tuple(RunStatus) if status is None else (RunStatus(status),)
        for row in self.journal.rows():
            if row.status in wanted and row.pruned_at is None:
                yield self.describe(row.run_id)

    def history(self, run_id: str, generation: int | None = None) -> list[Event]:
        """A run's events in order, those of its newest generation by default.

        Raises:
            UnknownRunError: there is no such run or generation.
            JournalCorruptError: the history is damaged, naming the first event that is.
        """
        row, history = self._read(run_id)
        if generation not in (None, row.generation):
            history = self.journal.events(row._replace(generation=generation))
        if not history:
            raise errors.UnknownRunError(run_id=run_id, generation=generation)
        return history

    def orphans(self) -> list[events.Orphan]:
        """The runs that haven't ended and that no registered workflow version accepts, and why."""
        found = []
        for row in (row for row in self.journal.rows() if row.status not in ENDED):
            try:
                self._accepting(*self._read(row.run_id))
            except (errors.UnknownWorkflowError, errors.StructureChangedError) as error:
                found.append(events.Orphan(row.run_id, str(error)))
        return found

    # ---- one attempt ----------------------------------------------------------------------------

    def drive(self, row: RunRow, holder: Holder) -> Run | None:
        """Claim a run and drive it for one attempt.

        Args:
            row: the run as the caller has read it; somebody else may have been there since.
            holder: who drives it.

        Returns:
            How it stands afterwards; None where somebody else was first, and nothing was done.

        Raises:
            What `resume` raises.

        Crash:
            The lease ends by itself, and whoever claims the run next goes on with it.
        """
        now, history = self._read(row.run_id)
        if now != row:
            return None
        workflow, patches = self._accepting(row, history)
        if row.crashes >= self.budget.max_attempts and row.status is not RunStatus.NEEDS_ATTENTION:
            why = f"{row.crashes} attempts in a row crashed and recorded nothing"
            return self._give_up(row, RunError("CrashLoop", why), crashes=row.crashes)
        claim: dict[str, Any] = {"status": RunStatus.RUNNING, "due_at": 0.0, "error": None}
        claim |= {"token": row.token + 1, "worker": holder.name, "lease_s": holder.lease_s}
        claim |= {"attempts": row.attempts + 1, "crashes": row.crashes + 1}
        held = row._replace(lease_until=self.clock.now() + holder.lease_s, **claim)
        if not self.journal.replace(row, held):
            return None
        log.debug("%s drives run %s", holder.name, row.run_id, extra={"run_id": row.run_id})
        history += self.journal.events(held, after=len(history))  # of a holder replaced just now
        with _heart_of(os.getpid(), holder.heartbeat_s).holding(self.journal, held, self.clock):
            context = Context(self, held, history, patches, holder)
            try:
                return self._attempt(workflow, held, context, history[0].payload["input"])
            except LetGo as why:
                return self._let_go(held, context, why)
            except errors.NO_BUGS:
                raise
            except Exception as bug:
                run = self._give_up(held, bug)
                if isinstance(bug, errors.NonDeterminismError):
                    raise
                return run
            finally:
                context.driver = 0  # no thread is the driving one any more

    def _attempt(self, workflow: Workflow, row: RunRow, context: Context, value: Any) -> Run:
        """Call the workflow function and record what it came to; raise what is no ending."""
        outcome: BaseException | None = None
        try:
            result = workflow.fn(context, detached(value))
        except BaseException as raised:
            outcome = raised
        outcome = context.stopped or outcome  # what code makes of a stop doesn't count
        if outcome is None:
            context.cursor.finish("the end of the workflow")
            text, _ = round_trip(result, "run", row.run_id, "result", self.max_payload_bytes)
            status, text = RunStatus.COMPLETED, f'{{"result":{text}}}'
        elif isinstance(outcome, errors.VERDICTS) and not context.pivoted:
            cancelled = isinstance(outcome, errors.RunCancelledError)
            with suppress(errors.DurableError):  # no child, or past its point of no return
                if cancelled and self.journal.find(context.child_id).parent == row.run_id:
                    self.cancel(context.child_id)
            context.unwind()
            context.cursor.finish("the run to fail")
            status = RunStatus.CANCELLED if cancelled else RunStatus.FAILED
            text = encode({"error": run_error(outcome)._asdict()})
        else:
            raise outcome
        entry = self._entry(EventKind(status), row.workflow, text)
        told = self._entry(EventKind.CHILD_ENDED, row.run_id, text)
        changes = self._freed(row, status, None)
        # A crash before this commit replays the whole run and comes here again.
        self.journal.append(row, entry, tell=(row.parent, told) if row.parent else None, **changes)
        log.debug("run %s is %s", row.run_id, status, extra={"run_id": row.run_id})
        return _told(row._replace(status=status), value, decode(text), None, context.cursor.spent)

    def _let_go(self, row: RunRow, context: Context, why: LetGo) -> Run:
        """Give a run back: suspended, to another worker, or as its next generation."""
        status, due_at, text = why.args
        entry, opens, freed = None, [], self._freed(row, status, due_at)
        if text is not None:
            found, cursor = structure(self.registered[row.workflow, row.version]), context.cursor
            carried = {name: cursor.admitted[name] for name in ("since", "began_with")}
            carried["spent"] = [cursor.spent, cursor.steps]
            first = self._admission(row, found, text, **carried)
            after = row._replace(generation=row.generation + 1, structure=found.hash, **freed)
            opens = [(after, [first, *(signal[1:] for signal in context.signals.values())])]
            entry = self._entry(EventKind.CONTINUED, row.workflow, f'{{"input":{text}}}')
        if not self.journal.append(row, entry, expected=context.read_to, opens=opens, **freed):
            # Something arrived in this very moment: the next attempt will see it.
            self.journal.append(row, None, **self._freed(row, RunStatus.PENDING, 0.0))
        return self.describe(row.run_id)

    def _give_up(self, row: RunRow, error: Exception | RunError, **more: Any) -> Run:
        """Let a run wait for a person; not if somebody else has it meanwhile."""
        told = error if isinstance(error, RunError) else run_error(error)
        log.error("run %s needs attention: %s", row.run_id, told, extra={"run_id": row.run_id})
        changes = {**self._freed(row, RunStatus.NEEDS_ATTENTION, None), **more}
        with suppress(errors.LeaseLostError):
            self.journal.append(row, None, error=encode(told._asdict()), **changes)
        return self.describe(row.run_id)

    def _freed(self, row: RunRow, status: RunStatus, due_at: float | None) -> dict[str, Any]:
        """The changes with which a holder gives a run back."""
        freed = {"worker": None, "token": row.token + 1, "lease_until": self.clock.now()}
        return {**freed, "crashes": 0, "status": status, "due_at": due_at}

    # ---- admission and children -----------------------------------------------------------------

    def _refuse_conflict(self, requested: RunRow, value: Any) -> None:
        """The second half of `start` for a taken id: only the same request may ask again."""
        run_id, asked = requested.run_id, _asked(requested, value)
        recorded = "a run that was pruned"
        with suppress(errors.UnknownRunError):
            row, history = self._read(run_id)
            admitted = history[0].payload
            recorded = _asked(row, admitted.get("began_with", admitted["input"]))
        if recorded != asked:
            facts = {"recorded": f"{recorded:.120}", "requested": f"{asked:.120}"}
            raise errors.RunIdConflictError(run_id=run_id, **facts)
        if requested.parent and row.status in ENDED:
            ended, text = (EventKind.CHILD_ENDED, run_id), history[-1].text

            def asks(parent: RunRow) -> events.Entry | None:
                known = any(event[1:3] == ended for event in self.journal.events(parent))
                return None if known else self._entry(*ended, text)

            self.journal.request(requested.parent, asks)  # only an earlier generation may know

    def _drive_child(self, run_id: str) -> bool:
        """Drive the child that a suspended run waits for; whether that brought it on."""
        waits = [event.name for event in self.history(run_id) if event.kind is EventKind.CHILD]
        child = self.journal.row(waits[-1]) if waits else None
        if child is None or child.status in ENDED | {RunStatus.NEEDS_ATTENTION}:
            return False
        driven = child.worker and child.lease_until > self.clock.now()  # by somebody else
        return not driven and self.resume(child.run_id).status in ENDED

    # ---- reading --------------------------------------------------------------------------------

    def _registered(self, name: str, version: str, run_id: str) -> Workflow:
        if (name, version) not in self.registered:
            known = ", ".join(f"{other!r} version {of!r}" for other, of in self.registered)
            facts = {"workflow": name, "version": version, "registered": known or "none"}
            raise errors.UnknownWorkflowError(run_id=run_id, **facts)
        return self.registered[name, version]

    def _accepting(self, row: RunRow, history: list[Event]) -> tuple[Workflow, dict[str, bool]]:
        """The code that may go on with a run, and for each of its patches whether the run knows it.

        Raises:
            UnknownWorkflowError, StructureChangedError: there is none.
        """
        workflow = self._registered(row.workflow, row.version, row.run_id)
        admitted = history[0].payload
        known = admitted.get("patches", [])
        found = structure(workflow, known)
        refuse_changed(row, admitted["calls"], found.calls)
        return workflow, {patch_id: patch_id in known for patch_id in (*found.patches, *known)}

    def _read(self, run_id: str) -> tuple[RunRow, list[Event]]:
        """A run's row and history as of one moment, refused where they can't belong together."""
        row = self.journal.find(run_id)
        history = self.journal.events(row)
        if row != self.journal.row(run_id):
            return self._read(run_id)  # another driver went on in between
        if not history or history[0][1:3] != (EventKind.ADMITTED, row.workflow):
            raise errors.JournalCorruptError("the admission is missing", run_id, 1)
        last = history[-1].kind
        if (last in events.CLOSING) != (row.status in ENDED):
            why = f"its row says {row.status}, its last event is {last}"
            raise errors.JournalCorruptError(why, run_id, len(history))
        return row, history

    def _admission(self, row: RunRow, found: Structure, text: str, **more: Any) -> events.Entry:
        """The event that a generation begins with; `text` is its input."""
        patches = {"patches": found.patches} if found.patches else {}
        head = encode({"version": row.version, "calls": found.calls, **patches, **more})
        return self._entry(EventKind.ADMITTED, row.workflow, f'{head[:-1]},"input":{text}}}')

    def _entry(self, kind: EventKind, name: str, text: str) -> events.Entry:
        return kind, name, text, self.clock.now()


def _asked(row: RunRow, value: Any) -> str:
    """What a run was asked for, in one line."""
    whose = f", a child of {row.parent}" if row.parent else ""
    return f"{row.workflow}{whose} with input {encode_sorted(value)}"


def _told(row: RunRow, value: Any, last: Any, waits: str | None, cost: float) -> Run:
    """A run as its row has it, and what ended or stopped it."""
    error = RunError(**last["error"]) if last.get("error") else None
    return Run(*row[:4], row.status, value, last.get("result"), error, waits, row.attempts, cost)


def refuse_changed(row: RunRow, recorded: Sequence[str], requested: Sequence[str]) -> None:
    """Raise at the first difference between two lists of durable calls."""
    pairs = zip_longest(recorded, requested, fillvalue="nothing more")
    for position, (before, after) in enumerate(pairs, start=1):
        if before != after:
            facts = {**row._asdict(), "before": before.strip(), "after": after.strip()}
            both = {"recorded": list(recorded), "requested": list(requested)}
            raise errors.StructureChangedError(position=position, **both, **facts)


def run_error(error: BaseException) -> RunError:
    """What is recorded of an error that ended a run, or stopped it."""
    if isinstance(error, errors.StepFailedError | errors.CompensationFailedError):
        return RunError(error.type, error.message, error.step)
    return RunError(type(error).__name__, errors.message_of(error))
