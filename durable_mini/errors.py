"""Every exception that the engine raises.

Guarantees: an error says what happened, in which run and at which sequence number, what was
recorded and what was asked for, and what to do next; the same facts are attributes. Leaves to
others: deciding when.
"""

from typing import TYPE_CHECKING, Any


def message_of(error: BaseException) -> str:
    """What an exception says, in 2,000 characters at most; some fail at saying anything."""
    try:
        return str(error)[:2_000]
    except Exception:
        return "(its message can't be read)"


_REPAIR = "restore the code and resume, keep the old path with ctx.patched, or add a new version"


class DurableError(Exception):
    """Base of every error of the engine: what happened and what to do next, with places for facts.

    Each fact is an attribute too: `error.run_id`, `error.seq`, whatever the sentences speak of.
    `where` is what `run_id` and `seq` come to.
    """

    _says, _next = "{reason}", ""

    def __init__(self, reason: Any = "", run_id: Any = None, seq: Any = None, **facts: Any) -> None:
        event = f", event {seq}" if seq else ""
        where = f"run {run_id}{event}" if run_id else "the journal is damaged"
        self.__dict__.update({"where": where, **facts}, reason=reason, run_id=run_id, seq=seq)
        text = f"{self._says}. Next: {self._next}." if self._next else self._says
        super().__init__(text.format_map(self.__dict__))

    if TYPE_CHECKING:

        def __getattr__(self, fact: str) -> Any: ...


class InvalidNameError(DurableError, ValueError):
    """A run id, name or key that can't be stored or printed. Nothing was written.

    Facts: `what` (e.g. "step name"), `reason`.
    """

    _says, _next = "{what} {reason}", "use 1 to 200 printable characters"


class PayloadError(DurableError, ValueError):
    """A value that can't be kept. Never retried: it would fail the same way.

    Facts: `kind` and `name` (whose value: a step and its name, a run and its id), `path` (the place
    in it, e.g. "result['a'][2]"), `reason`; for a size also `size_bytes`, `limit_bytes`.
    """

    _says = "{kind} {name!r}: {path} {reason}"
    _next = "pass plain JSON, or a reference to the value"


class DurableCallError(DurableError):
    """A durable call that replay couldn't find again: in a step's body, in a thread, too late.

    Facts: `run_id`, `call` (what was called), `reason`.
    """

    _says, _next = "run {run_id}: {call} was called {reason}", "call it from the workflow function"


class StepFailedError(DurableError):
    """A step failed for good, and the journal says so: live and replay raise it alike.

    Facts: `type` and `message` of the original exception, `step`, `run_id`, `seq`.
    """

    _says = "{where}: step {step!r} failed: {type}: {message}"


class RunFailed(DurableError):  # noqa: N818 - a verdict that workflow code raises, not a fault
    """Raised by workflow code to end its run as failed, on purpose: `raise RunFailed("sold out")`.

    Facts: `reason`.
    """


class NonDeterminismError(DurableError):
    """The code asked for something else than the journal holds. Nothing was executed or written.

    Facts: `run_id`, `seq`, `recorded`, `requested` (both readable).
    """

    _says, _next = "{where}: the journal has {recorded}, the code asked for {requested}", _REPAIR


class StructureUnreadableError(DurableError):
    """The source of a workflow can't be read, so it has no structure hash.

    Facts: `workflow`, `reason`, `hint`.
    """

    _says, _next = "workflow {workflow!r}: {reason}", "{hint}"


class StructureChangedError(DurableError):
    """The workflow's durable calls aren't those that the run started with. Nothing was written.

    Facts: `run_id`, `workflow`, `version`, `recorded`, `requested` (lists of durable calls),
    `position` (from 1, of the first difference), `before`, `after` (the calls there).
    """

    _says = (
        "run {run_id}: workflow {workflow!r} version {version!r} changed since this run started. "
        "First difference, durable call {position}: recorded {before}, now {after}"
    )
    _next = _REPAIR


class RunIdConflictError(DurableError):
    """The run id is taken by a run with another workflow or another input. Nothing was written.

    Facts: `run_id`, `recorded`, `requested`.
    """

    _says, _next = "run {run_id} has {recorded}, requested was {requested}", "choose another run id"


class UnknownRunError(DurableError):
    """The journal holds no such run, or no such generation of it. Facts: `run_id`, `generation`."""

    _says = "no run {run_id!r}, generation {generation}{reason}"
    _next = "see `durable-mini runs JOURNAL`"


class UnknownWorkflowError(DurableError):
    """No such workflow version is registered with this engine.

    Facts: `workflow`, `version`, `registered`, `run_id`.
    """

    _says = "run {run_id}: {workflow!r} version {version!r} isn't registered; what is: {registered}"
    _next = "pass it in Engine(journal, workflows=[...])"


class NotAJournalError(DurableError):
    """The path holds something that is no journal of this engine. It was not touched.

    Facts: `path`, `reason`.
    """

    _says, _next = "{path} is not a journal: {reason}", "check the path; nothing was changed"


class JournalCorruptError(DurableError):
    """The journal holds something that its checksums or laws say was never written.

    Facts: `run_id` and `seq` of the first damage (None where unknown), `reason`.
    """

    _says = "{where}: {reason}"
    _next = "keep the file, restore a copy; `durable-mini verify JOURNAL` lists the damage"


class StorageError(DurableError):
    """The disk or the database refused. The attempt ends; the run stays resumable.

    After a failed write the journal refuses every further append until it is opened again, because
    nobody can tell what the disk kept. Facts: `path`, `reason`.
    """

    _says, _next = "{path}: {reason}", "mend the cause, open the journal again and resume"


class LeaseLostError(DurableError):
    """Another worker took the run over: the fencing token has changed, and nothing was written.

    What this worker did since its last commit will be done again by the one that holds the run.

    Facts: `run_id`, `worker`, `token` (what this worker held), `holder`, `held` (who holds what).
    """

    _says = "run {run_id}: {worker} holds token {token}, the run is at token {held} of {by}"
    _next = "nothing; the run goes on without this worker"


class RunCancelledError(DurableError):
    """Somebody asked for this run to be cancelled; raised at the next durable call.

    Workflow code can't go on after it: every later durable call raises it again, the compensations
    run, and the run ends as cancelled.

    Facts: `run_id`, `seq`.
    """

    _says = "{where}: cancelled on request"


class BudgetExceededError(DurableError):
    """The run has used up a budget. The verdict is journalled, and the run compensates and ends.

    Facts: `run_id`, `seq`, `limit` (the name of the budget), `spent`, `allowed`.
    """

    _says = "{where}: {limit} is {allowed:g}, this call would make it {spent:g}"
    _next = "start another run with a larger budget"


class HistoryTooLongError(DurableError):
    """The run's journal has as many events as the engine allows. The run needs attention.

    Facts: `run_id`, `seq`, `limit`.
    """

    _says = "{where}: the history may have {limit:,} events"
    _next = "use ctx.continue_as_new in time; for this run raise max_events, then resume"


class CompensationFailedError(DurableError):
    """An undo failed. The run needs attention, and what else is to be undone waits.

    Facts: `run_id`, `step` (the compensation), `seq`, `type`, `message`.
    """

    _says = "{where}: compensation {step!r} failed: {type}: {message}"
    _next = "mend the cause, then engine.retry_compensation({run_id!r})"


VERDICTS = (StepFailedError, RunFailed, RunCancelledError, BudgetExceededError)
"""What ends a run; anything else that comes out of workflow code is a bug."""

NO_BUGS = (StorageError, LeaseLostError, JournalCorruptError, UnknownRunError)
"""What ends an attempt without being its code's fault."""
