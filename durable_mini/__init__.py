"""A tiny durable execution engine that hides nothing: the public names.

A run survives the process that was executing it. Finished steps are in a journal; after a crash
the workflow code is replayed against it and goes on at the first unfinished step.

>>> from durable_mini import Engine, MemoryJournal, workflow
>>> @workflow(version="1")
... def greet(ctx, name):
...     return ctx.step("greeting", str.title, name)
>>> Engine(MemoryJournal(), workflows=[greet]).run(greet, "ada", run_id="r-1").result
'Ada'
"""

from durable_mini.clock import Clock, FakeClock, SystemClock
from durable_mini.context import Context
from durable_mini.engine import Engine
from durable_mini.errors import (
    ConcurrentAppendError,
    DurableCallError,
    DurableError,
    InvalidNameError,
    JournalCorruptError,
    NonDeterminismError,
    NotAJournalError,
    PayloadError,
    RunFailed,
    RunIdConflictError,
    StepFailedError,
    StorageError,
    StructureChangedError,
    StructureUnreadableError,
    UnknownRunError,
    UnknownWorkflowError,
)
from durable_mini.events import Event, EventKind, Position, Run, RunError, RunStatus
from durable_mini.journal.memory import MemoryJournal
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.retry import RetryPolicy
from durable_mini.structure import Structure, Workflow, structure, workflow

__all__ = [
    "Clock",
    "ConcurrentAppendError",
    "Context",
    "DurableCallError",
    "DurableError",
    "Engine",
    "Event",
    "EventKind",
    "FakeClock",
    "InvalidNameError",
    "JournalCorruptError",
    "MemoryJournal",
    "NonDeterminismError",
    "NotAJournalError",
    "PayloadError",
    "Position",
    "RetryPolicy",
    "Run",
    "RunError",
    "RunFailed",
    "RunIdConflictError",
    "RunStatus",
    "SQLiteJournal",
    "StepFailedError",
    "StorageError",
    "Structure",
    "StructureChangedError",
    "StructureUnreadableError",
    "SystemClock",
    "UnknownRunError",
    "UnknownWorkflowError",
    "Workflow",
    "structure",
    "workflow",
]
