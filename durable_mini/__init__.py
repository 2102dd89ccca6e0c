"""A tiny durable execution engine that hides nothing: the public names.

A run survives the process that was executing it. Finished steps are in a journal; after a crash the
workflow code is replayed against it and goes on at the first unfinished step.

>>> from durable_mini import Engine, MemoryJournal, workflow
>>> @workflow(version="1")
... def greet(ctx, name):
...     return ctx.step("greeting", str.title, name)
>>> Engine(MemoryJournal(), workflows=[greet]).run(greet, "ada", run_id="r-1").result
'Ada'
"""

from durable_mini.clock import FakeClock as FakeClock, SystemClock as SystemClock
from durable_mini.context import *  # noqa: F403 - what its __all__ names
from durable_mini.engine import Engine as Engine
from durable_mini.errors import *  # noqa: F403 - every error is public
from durable_mini.events import *  # noqa: F403 - what its __all__ names
from durable_mini.journal.file import FileJournal as FileJournal
from durable_mini.journal.memory import MemoryJournal as MemoryJournal
from durable_mini.journal.sqlite import SQLiteJournal as SQLiteJournal
from durable_mini.retry import Budget as Budget, RetryPolicy as RetryPolicy
from durable_mini.structure import *  # noqa: F403 - what its __all__ names
from durable_mini.worker import Worker as Worker
