"""What an engine has to offer so that the kit can check it: one factory, four methods.

Guarantees: nothing here is checked by type; a class that has these methods will do, and it needs
no import from this package. Leaves to others: the checking (`check_engine`).

The smallest engine that can be checked:

    class MyEngine:
        offers = {"files", "fencing"}            # what it has beyond the core; may be left out

        def __init__(self, folder, clock): ...   # a process begins: open what is in the folder

        def start(self, run_id, workflow, value): ...     # put the run on the disk, execute nothing
        def resume(self, run_id, workflow): ...           # drive it; return its result, or raise
        def history(self, run_id): ...                    # [(1, "start", "…"), (2, "step", "a"), …]

    print(check_engine(MyEngine))

`resume` calls `workflow(ctx, value)` with a context of the engine's own. A context has
`ctx.step(name, fn, *args)`, which returns what `fn(*args)` gave, and `ctx.effect(name, fn, *args)`,
for which `fn` also gets `idempotency_key=`, a string.

- **A return is the end of the run, an exception is anything else.** A run that failed for good, a
  divergence, a stale holder, a wait that isn't over: `resume` raises, whatever type the engine likes.
  The kit finds out by asking again which of these it was.
- **Nothing has to be told to the kit.** It owns the folder, the workflow and the bodies of the steps.
  It sees for itself when the disk changed, and starts the next process from any such moment.
- **Another process is another object.** The factory is called again, with a folder that holds what
  the dead process had written. `close()` is called at the end of a process if there is one.
- **Time comes from the clock**: `clock.now()` in seconds, `clock.sleep(seconds)`. It costs no time.
- Work is done in the thread that calls, and a sync is `os.fsync(…)`, so that the kit can see them.
- `resume` takes the run over from whoever drives it, or refuses because somebody does.
- `history` says what is on record of the run, oldest first, a number, a kind and a name each.
  Kinds are the engine's own words. What differs from attempt to attempt (claims, tries, times) may
  be left out.

Beyond the core, each of these in `offers` adds laws:

| offered | the engine has |
| --- | --- |
| files | nothing more: the journal is in files in the folder |
| fencing | nothing more: a second process may open the folder while the first is at work |
| retries | `retry=` of `step` and `effect`: has `max_attempts` and `delay_s(failed_tries)` |
| waits | `engine.signal(run_id, name, payload, signal_id)`, `ctx.wait_signal(name, timeout_s)` (the payload; something falsy when the time is over), `ctx.sleep(seconds)` |
| sagas | `ctx.compensate(name, fn, *args)` before the effect of that name (`fn` gets `idempotency_key=` and `effect_key=`), `engine.cancel(run_id)` |
| structure | nothing more: changed durable calls are refused before anything runs |
| cost | `cost=` of `step` and `effect`, `engine.cost(run_id)` |
"""  # noqa: E501 - the table's rows

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from durable_mini.clock import SystemClock

CAPABILITIES = {
    "files": "a journal in files",
    "fencing": "a second process while the first is at work",
    "retries": "steps that are tried again",
    "waits": "signals and timers",
    "sagas": "compensations and cancellation",
    "structure": "a check of the durable calls before anything runs",
    "cost": "what a run has spent",
}
"""What an engine may offer beyond the core, in words."""

Workflow = Callable[[Any, Any], Any]  # of a context and the run's input


class CheckedEngine(Protocol):
    """One process of an engine; see the module's docstring for what the methods mean."""

    def start(self, run_id: str, workflow: Workflow, value: Any) -> Any:
        """Put the run on the disk and execute nothing of it."""

    def resume(self, run_id: str, workflow: Workflow) -> Any:
        """Drive the run; return its result, or raise where it hasn't come to one."""

    def history(self, run_id: str) -> Sequence[tuple[int, str, str]]:
        """Number, kind and name of what is on record, oldest first."""


Factory = Callable[[Path, SystemClock], Any]
"""Makes a `CheckedEngine`: what it can do beyond that is in its `offers`."""
