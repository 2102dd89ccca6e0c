"""Every exception that the engine raises.

Guarantees: an error says what happened, in which run and at which sequence number, what was
recorded and what was asked for, and what to do next; the same facts are attributes. Leaves to
others: deciding when.
"""

from collections.abc import Sequence


class DurableError(Exception):
    """Base of every error of the engine: `except DurableError` catches them all."""


class InvalidNameError(DurableError, ValueError):
    """A run id, workflow name, step name or key that can't be stored or printed. Nothing was
    written.

    Attributes: `what` (e.g. "step name"), `reason`.
    """

    def __init__(self, what: str, reason: str) -> None:
        self.what, self.reason = what, reason
        super().__init__(f"{what} {reason}. Next: use 1 to 200 printable characters.")


class PayloadError(DurableError, ValueError):
    """A value that JSON can't hold, or that is too large. Never retried: it would fail the same
    way.

    Attributes: `kind` and `name` (whose value: a step and its name, a run and its id), `path`
    (the place in it, e.g. "result['a'][2]"), `reason`; for a size also `size_bytes` and
    `limit_bytes`.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        path: str,
        reason: str,
        *,
        size_bytes: int | None = None,
        limit_bytes: int | None = None,
    ) -> None:
        self.kind, self.name, self.path, self.reason = kind, name, path, reason
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes
        hint = "pass plain JSON values (None, bool, int, float, str, list, dict)"
        if size_bytes is not None:
            hint = "store the value elsewhere and pass a reference to it"
        who = kind if name == kind else f"{kind} {name!r}"
        super().__init__(f"{who}: {path} {reason}. Next: {hint}.")


class DurableCallError(DurableError):
    """A durable call in a place where it can't be replayed: in a step's body, in another thread,
    after the end.

    Attributes: `run_id`, `call` (what was called), `reason`.
    """

    def __init__(self, run_id: str, call: str, reason: str) -> None:
        self.run_id, self.call, self.reason = run_id, call, reason
        super().__init__(
            f"run {run_id}: {call} was called {reason}. "
            "Next: make durable calls in the workflow function, in the thread that drives it."
        )


class StepFailedError(DurableError):
    """A step failed for good, and the journal says so: live and replay raise it alike.

    Attributes: `type` and `message` of the original exception, `step`, `run_id`, `seq`.
    """

    def __init__(self, type: str, message: str, *, step: str, run_id: str, seq: int) -> None:  # noqa: A002 - the journal's word
        self.type, self.message = type, message
        self.step, self.run_id, self.seq = step, run_id, seq
        super().__init__(f"run {run_id}, event {seq}: step {step!r} failed: {type}: {message}")


class RunFailed(DurableError):  # noqa: N818 - a verdict that workflow code raises, not a fault
    """Raised by workflow code to end its run as failed, on purpose: `raise RunFailed("out of
    stock")`.
    """


class NonDeterminismError(DurableError):
    """The code asked for something else than the journal holds. Nothing was executed or written.

    Attributes: `run_id`, `seq`, `recorded`, `requested` (both readable).
    """

    def __init__(self, run_id: str, seq: int, recorded: str, requested: str) -> None:
        self.run_id, self.seq = run_id, seq
        self.recorded, self.requested = recorded, requested
        super().__init__(
            f"run {run_id}, event {seq}: the journal has {recorded}, "
            f"the code asked for {requested}. "
            "Next: restore what the code did when the run started, then resume; "
            "or give the changed code a new version and let this run finish on the old one."
        )


class StructureUnreadableError(DurableError):
    """The source of a workflow can't be read, so it has no structure hash.

    Attributes: `workflow`, `reason`.
    """

    def __init__(self, workflow: str, reason: str, hint: str) -> None:
        self.workflow, self.reason = workflow, reason
        super().__init__(f"workflow {workflow!r}: {reason}. Next: {hint}.")


class StructureChangedError(DurableError):
    """The workflow's durable calls are not those that the run started with. Nothing was executed
    or written.

    Attributes: `run_id`, `workflow`, `version`, `recorded`, `requested` (both lists of durable
    calls), `position` (1-based, of the first difference).
    """

    def __init__(
        self,
        run_id: str,
        workflow: str,
        version: str,
        recorded: Sequence[str],
        requested: Sequence[str],
    ) -> None:
        self.run_id, self.workflow, self.version = run_id, workflow, version
        self.recorded, self.requested = list(recorded), list(requested)
        same = 0
        while same < min(len(recorded), len(requested)) and recorded[same] == requested[same]:
            same += 1
        self.position = same + 1
        before = recorded[same].strip() if same < len(recorded) else "nothing more"
        after = requested[same].strip() if same < len(requested) else "nothing more"
        super().__init__(
            f"run {run_id}: workflow {workflow!r} version {version!r} changed "
            "since this run started. "
            f"First difference, durable call {self.position}: recorded {before}, now {after}. "
            "Next: restore the code, or register the changed code under a new version "
            "beside the old one and let this run finish on its own."
        )


class RunIdConflictError(DurableError):
    """The run id is taken by a run with another workflow or another input. Nothing was written.

    Attributes: `run_id`, `recorded`, `requested`.
    """

    def __init__(self, run_id: str, recorded: str, requested: str) -> None:
        self.run_id, self.recorded, self.requested = run_id, recorded, requested
        super().__init__(
            f"run {run_id} exists already: recorded {recorded}, requested {requested}. "
            "Next: choose another run id, or start it with the input it has."
        )


class UnknownRunError(DurableError):
    """The journal holds no such run (or no such generation of it). Attributes: `run_id`,
    `generation`.
    """

    def __init__(self, run_id: str, generation: int | None = None) -> None:
        self.run_id, self.generation = run_id, generation
        part = "" if generation is None else f" generation {generation} of"
        super().__init__(
            f"the journal holds no{part} run {run_id!r}. "
            "Next: `durable-mini runs JOURNAL` lists what is there."
        )


class UnknownWorkflowError(DurableError):
    """No such workflow version is registered with this engine.

    Attributes: `workflow`, `version`, `registered`, and `run_id` where a run asked for it.
    """

    def __init__(
        self, workflow: str, version: str, registered: Sequence[str], run_id: str | None = None
    ) -> None:
        self.workflow, self.version, self.run_id = workflow, version, run_id
        self.registered = list(registered)
        who = f"run {run_id} needs" if run_id else "asked for"
        known = ", ".join(registered) or "none"
        super().__init__(
            f"{who} workflow {workflow!r} version {version!r}; registered: {known}. "
            "Next: pass it in Engine(journal, workflows=[...])."
        )


class NotAJournalError(DurableError):
    """The path holds something that is not a journal of this engine. It was not touched.

    Attributes: `path`, `reason`.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(
            f"{path} is not a journal: {reason}. Next: check the path; nothing was changed."
        )


class JournalCorruptError(DurableError):
    """The journal holds something that its checksums or laws say was never written.

    Attributes: `run_id` and `seq` of the first damage where known, `reason`.
    """

    def __init__(self, reason: str, *, run_id: str | None = None, seq: int | None = None) -> None:
        self.run_id, self.seq, self.reason = run_id, seq, reason
        where = ""
        if run_id is not None:
            where = f"run {run_id}: " if seq is None else f"run {run_id}, event {seq}: "
        super().__init__(
            f"{where}{reason}. Next: keep the file as it is and restore a copy; "
            "`durable-mini verify JOURNAL` lists the damage."
        )


class StorageError(DurableError):
    """The disk or the database refused. The attempt ends; the run stays resumable.

    After a failed write the journal refuses every further append until it is opened again,
    because nobody can tell what the disk kept. Attributes: `path`, `reason`.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(
            f"{path}: {reason}. Next: mend the cause, open the journal again and resume."
        )


class ConcurrentAppendError(DurableError):
    """Somebody else appended to this run while it was being driven. Nothing was written by the
    loser.

    Attributes: `run_id`, `seq` (the event that was there first).
    """

    def __init__(self, run_id: str, seq: int) -> None:
        self.run_id, self.seq = run_id, seq
        super().__init__(
            f"run {run_id}, event {seq}: another driver appended first; this attempt stops. "
            "Next: let one process drive a run; `resume` it again when the other has ended."
        )
