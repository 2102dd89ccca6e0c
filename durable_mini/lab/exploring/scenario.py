"""What is explored: a workflow and its input, the world it works in, and what comes from outside.

Guarantees: every trial gets a new world, and every process new workflows, so that nothing of one
is left over for another but what journal and world keep. Leaves to others: running it (`trial`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

from durable_mini.journal import Journal
from durable_mini.journal.file import FileJournal
from durable_mini.journal.memory import MemoryJournal
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.lab.ledger import Ledger
from durable_mini.retry import Budget
from durable_mini.structure import Workflow

Make = Callable[[Any], Workflow | Iterable[Workflow]]
Signals = Mapping[str, Any] | Iterable["SignalAt"]

JOURNALS: dict[str, Callable[[Path], Journal]] = {
    "memory": lambda _: MemoryJournal(),
    "file": FileJournal,
    "sqlite": SQLiteJournal,
}


@dataclass(frozen=True, slots=True)
class SignalAt:
    """A signal that somebody sends at a time, whether anybody waits for it or not.

    Args:
        name: the signal's name.
        payload: a JSON value.
        at_s: seconds after the run was started.
    """

    name: str
    payload: Any = None
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AfterDoing:
    """A failure after the deed: the request is taken, and its answer gets lost.

    Args:
        error: what the sender gets instead.
    """

    error: Exception


@dataclass(frozen=True)
class Scenario:
    """See `explore`, whose arguments these are; `answers` and `letters` are its `signals`."""

    workflow: Workflow | Make
    input: Any = None
    world: Callable[[], Any] = Ledger
    answers: Mapping[str, Any] = field(default_factory=dict)
    letters: tuple[SignalAt, ...] = ()
    cancel_at_s: float | None = None
    fail: Mapping[str, Exception | AfterDoing] = field(default_factory=dict)
    journal: str = "memory"
    budget: Budget = Budget()  # noqa: RUF009 - frozen

    @classmethod
    def of(
        cls, workflow: Workflow | Make, value: Any, signals: Signals = (), **options: Any
    ) -> Scenario:
        """A scenario from the arguments of `explore`; `value` is the input.

        Raises:
            TypeError: an option that there isn't, or signals of another type.
            ValueError: there is no such journal.
        """
        if isinstance(signals, Mapping):
            options["answers"] = dict(signals)
        else:
            options["letters"] = tuple(signals)
        found = cls(workflow, value, **options)
        if not all(isinstance(letter, SignalAt) for letter in found.letters):
            raise TypeError("signals are a mapping, name to payload, or SignalAt(name, …, at_s=…)")
        if found.journal not in JOURNALS:
            raise ValueError(f"journal={found.journal!r} is none of {', '.join(JOURNALS)}")
        return found

    @property
    def is_seen(self) -> bool:
        """Whether the workflow works in the scenario's world, and not in one of its own."""
        return not isinstance(self.workflow, Workflow) or self.world is not Ledger

    def new_world(self) -> Any:
        """A world where nothing has happened yet, with the failures that were asked for.

        Raises:
            ValueError: it has nothing of that name that could fail.
        """
        world = self.world()
        for name, failure in self.fail.items():
            if not hasattr(world, name):
                what = type(world).__name__
                raise ValueError(f"fail: {what} has no {name!r}. Next: name a method of the world")
            setattr(world, name, _failing(getattr(world, name), failure))
        return world

    def new_workflows(self, world: Any) -> list[Workflow]:
        """The workflows as a new process has them, the one that is explored first."""
        if isinstance(self.workflow, Workflow):
            return [self.workflow]
        made = self.workflow(world)
        found = [made] if isinstance(made, Workflow) else list(made)
        if not found or not all(isinstance(one, Workflow) for one in found):
            raise TypeError(f"{self.workflow!r} made {made!r}. Next: return one or more workflows")
        return found


class Code:
    """The workflows of a scenario, made anew for every process; their source is read only once.

    Reading it takes as long as driving a short run from its start to its end.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._read: list[Workflow] = []

    def load(self, world: Any) -> list[Workflow]:
        """The workflows as a new process has them."""
        made = self._scenario.new_workflows(world)
        if [one.fn.__code__ for one in self._read] != [one.fn.__code__ for one in made]:
            self._read = made
        for known, new in zip(self._read, made, strict=True):
            # What was read about the source is shared, what a closure holds isn't.
            vars(new).update({**vars(known), "fn": new.fn, "__wrapped__": new.fn})
        return made


def _failing(method: Callable[..., Any], failure: Exception | AfterDoing) -> Callable[..., Any]:
    @wraps(method)
    def fails(*args: Any, **kwargs: Any) -> Any:
        if isinstance(failure, AfterDoing):
            method(*args, **kwargs)
            raise failure.error
        raise failure

    return fails
