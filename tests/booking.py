"""What sagas are tested with: a receiver that keeps its books by key, and processes that die.

Guarantees: the receiver takes a key once, remembers what came with it, and refuses a key that was
voided before it came. Leaves to the tests: what a run should have left behind there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

from interrupted import Died, Fate
from support import RUN_ID

from durable_mini import Engine, MemoryJournal, Workflow


class RefusedError(Exception):
    """The receiver takes no such request: its key was voided, or came with another body."""


class Receiver:
    """A travel agency that books and undoes.

    Attributes: `log` (what took effect, in order); `asked` (every request with its key, repeats
    too); `down` (for which bookings an undo fails); `keys` (of bookings, by what was booked).
    """

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.forget()

    def forget(self) -> None:
        """Begin with empty books."""
        self.log: list[tuple[str, str]] = []
        self.asked: list[tuple[str, str, str]] = []
        self.keys: dict[str, list[str]] = {}
        self._seen: dict[str, tuple[Any, ...]] = {}
        self._voided: set[str] = set()

    def book(self, what: str, *, idempotency_key: str) -> str:
        """Take a booking, once for each key."""
        self.asked.append(("book", what, idempotency_key))
        if idempotency_key in self._voided:
            raise RefusedError(f"key {idempotency_key!r} was voided")
        if self._is_new(idempotency_key, "book", what):
            self.keys.setdefault(what, []).append(idempotency_key)
            self.log.append(("book", what))
        return f"{what} booked"

    def undo(self, what: str, *, idempotency_key: str, effect_key: str) -> str:
        """Undo what came with `effect_key`, and let nothing come with it any more."""
        self.asked.append(("undo", what, idempotency_key))
        if what in self.down:
            raise ConnectionError(f"{what}: no line")
        if self._is_new(idempotency_key, "undo", what, effect_key):
            self._voided.add(effect_key)
            done = effect_key in self._seen
            self.log.append(("undo" if done else "nothing to undo", what))
        return f"{what} undone"

    def _is_new(self, key: str, *body: Any) -> bool:
        first = self._seen.get(key)
        if first is not None and first != body:
            raise RefusedError(f"key {key!r} came first with {first}, now with {body}")
        self._seen[key] = body
        return first is None


class MortalMemory(MemoryJournal):
    """A journal in memory whose process dies when its time has come; the journal lives on."""

    fate: Fate | None = None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        writing = super()._writing()
        with writing if self.fate is None else self.fate.around(writing):
            yield


def live_until(
    journal: MortalMemory, fate: Fate, drive: Callable[[Engine], Any], **options: Any
) -> None:
    """One process: drive until its time has come, if it does; what a dead one writes is an error.

    Args:
        options: the engine's, its workflows among them.
    """
    journal.fate = fate
    with suppress(Died):
        drive(Engine(journal, probe=fate, **options))
    journal.fate = None
    assert fate.written == 0, "a dead process went on writing"


def die_twice(
    agent: Workflow, begin: Callable[[], None], drive: Callable[[Engine], Any], **options: Any
) -> Iterator[tuple[tuple[int, int], Engine]]:
    """A run that dies at each place, and again at each place of the recovery.

    Args:
        begin: called before each schedule.
        drive: starts the run unless it is there, and drives it.
        options: the engine's.

    Yields:
        The two places, and an engine with the run, driven once more without a death.
    """
    for first in count(1):
        for second in count(1):
            begin()
            journal, fates = MortalMemory(), (Fate(first), Fate(second), Fate(0))
            for fate in fates:
                live_until(journal, fate, drive, workflows=[agent], **options)
            if not fates[0].dead:
                return
            yield (first, second), Engine(journal, [agent], **options)
            if not fates[1].dead:
                break


def run_it(agent: Workflow, value: Any = None) -> Callable[[Engine], Any]:
    """Start the run unless it is there, and drive it."""

    def drive(engine: Engine) -> Any:
        engine.start(agent, value, run_id=RUN_ID)
        return engine.resume(RUN_ID)

    return drive


def raiser(error: BaseException) -> Callable[..., Any]:
    """A function that takes anything and raises this."""

    def raise_it(*_: Any, **__: Any) -> Any:
        raise error

    return raise_it


def events(engine: Engine, run_id: str = RUN_ID) -> list[str]:
    """The run's history, each event as it speaks of itself."""
    return [str(event) for event in engine.history(run_id)]
