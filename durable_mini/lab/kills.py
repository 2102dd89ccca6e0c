"""A run whose worker process is killed once and that another process finishes, told and drawn.

Guarantees: `kill_and_resume` really does it, in a folder of its own that is gone afterwards: two
processes, one SIGKILL, a SQLite journal and a ledger file between them. `as_drawn` turns what the
processes told into the attempts that `run_pictures.run_timeline` draws. Leaves to others: the
processes themselves (`attempt`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from durable_mini.engine import Engine
from durable_mini.events import Position
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.lab import watch
from durable_mini.lab.agent import reference_agent
from durable_mini.lab.attempt import Attempt, attempt
from durable_mini.lab.ledger import Ledger, LedgerRow
from durable_mini.lab.shape import REFERENCE_SHAPE

Place: TypeAlias = tuple[str, str]
"""Where a worker is killed: the name of a step, and "before", "window" or "after"."""

_KINDS = {spec.name: spec.kind for spec in REFERENCE_SHAPE}


@dataclass(frozen=True, slots=True)
class KilledRun:
    """What became of a run: where the first process was killed, what both executed, who was told.

    `rows` are the outside world's books after the second process.
    """

    kill_at: Place
    first: Attempt
    second: Attempt
    rows: tuple[LedgerRow, ...]

    @property
    def drawn(self) -> tuple[watch.Attempt, ...]:
        """The two attempts as `run_timeline` wants them."""
        return as_drawn([self.first, self.second], [self.kill_at])

    def executions(self, step: str) -> int:
        """How often the work of a step was done, by both processes together."""
        return (self.first.executed + self.second.executed).count(step)


def kill_and_resume(step: str, position: str, *, honour_keys: bool = True) -> KilledRun:
    """Run the reference agent in a process, kill it at a place, let another process finish.

    Args:
        step: the step at which the first process is killed, such as "charge".
        position: "before" its work, in the crash "window", or "after" its journal write.
        honour_keys: whether the world outside drops a repeated idempotency key.

    Raises:
        ValueError: the agent has no such step, or there is no such position; nothing is started.
    """
    if step not in _KINDS:
        raise ValueError(f"the agent has no step {step!r}. Next: choose one of {', '.join(_KINDS)}")
    kill_at = (step, str(Position(position)))
    with TemporaryDirectory() as folder:
        journal, world = Path(folder, "journal.db"), Path(folder, "world.jsonl")
        with SQLiteJournal(journal) as store:
            run_id = Engine(store, [reference_agent]).start(reference_agent, "order-9", run_id="r")
        first = attempt(journal, run_id, world, kill_at=kill_at, honour_keys=honour_keys)
        second = attempt(journal, run_id, world, honour_keys=honour_keys)
        rows = tuple(Ledger(path=world).rows)
    return KilledRun(kill_at, first, second, rows)


def as_drawn(told: Sequence[Attempt], kills: Sequence[Place]) -> tuple[watch.Attempt, ...]:
    """Return the attempts of one run of the reference agent as data for its timeline.

    Args:
        told: what each process told, in order.
        kills: the place where each of them was killed; the last process may have none.
    """
    drawn = []
    recorded: list[str] = []
    for number, one in enumerate(told):
        kill_at = kills[number] if number < len(kills) else None
        names = list(one.executed)
        if kill_at and kill_at[1] == Position.BEFORE:  # its work was never begun
            names.append(kill_at[0])
        replayed = [watch.Box(name, "replayed", _KINDS[name]) for name in recorded]
        live = [watch.Box(name, "live", _KINDS[name]) for name in names]
        drawn.append(watch.Attempt((*replayed, *live), kill_at))
        unrecorded = kill_at is not None and kill_at[1] != Position.AFTER
        recorded += names[:-1] if unrecorded else names
    return tuple(drawn)
