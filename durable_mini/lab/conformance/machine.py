"""The kit's laboratory: a disk, a clock and an outside world, on which processes live and die.

Guarantees: `kills` has every state of disk and world that a process can leave behind when it is
killed. A first process runs to its end while each line of the engine's code is watched. Whenever
disk or world differ from what they were a line before, the state is kept; from each a new process
goes on, with a new object and a copy of the disk. So a kill needs nothing from the engine, and what
a dying engine does in its last moment, such as flushing a buffer, counts for nothing.
Leaves to others: what has to hold afterwards (the laws).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread, get_ident
from typing import Any, NamedTuple

from durable_mini.clock import FakeClock
from durable_mini.lab.conformance.adapter import Factory, Workflow
from durable_mini.lab.conformance.disk import Disk, Files
from durable_mini.lab.conformance.scripts import script
from durable_mini.lab.conformance.surroundings import Surroundings

RUN_ID = "r-1"
VALUE = "ticket"
Ask = Callable[[Any], Any]  # a durable call that a workflow makes: of a context

_MOST_BODIES, _MOST_SLEEPS = 400, 300  # in one process: more is a loop
_LOOK_EVERY_S = 0.002  # at a second process that may wait for the first
_PATIENCE_S = (
    60.0 if Path("/proc/self/task").exists() else 1.0
)  # short where nobody says who sleeps


class Broken(Exception):  # noqa: N818 - a verdict of the kit on an engine, not a fault of the kit
    """A law was broken; the text says how, in a sentence."""


class SkippedError(Exception):
    """A case that can't be judged, here or on this engine; the text says why."""


class Runaway(BaseException):
    """The engine goes round in circles."""


class Call(NamedTuple):
    """A body that was executed: whose, with which arguments and key, when and by which process."""

    name: str
    args: tuple[Any, ...]
    key: str | None
    at_s: float
    process: int


class Outcome(NamedTuple):
    """What became of one process's try at a run: its result, or what was raised."""

    value: Any
    error: BaseException | None

    def __str__(self) -> str:
        if self.error is None:
            return f"it returned {self.value!r}"
        return f"it raised {type(self.error).__name__}: {str(self.error)[:160]}"


class State(NamedTuple):
    """What a process leaves behind when it is killed at a place.

    `files` is the disk, `spared` what of it a power cut spares. `calls` are the bodies executed so
    far, `seen` the durable calls that had returned, with what the workflow saw. `started` says
    whether `start` had returned.
    """

    place: str
    files: Files
    spared: Files
    calls: tuple[Call, ...]
    seen: tuple[tuple[str, str], ...]
    started: bool
    now_s: float
    story: tuple[str, ...]


class BoundedClock(FakeClock):
    """A clock that costs no time, counts what is slept, and ends a sleep that never ends."""

    def __init__(self, start_s: float = 0.0) -> None:
        super().__init__(start_s)
        self.slept_s, self._sleeps = 0.0, 0

    def sleep(self, seconds: float) -> None:
        """Move on by `seconds`."""
        self.slept_s, self._sleeps = self.slept_s + seconds, self._sleeps + 1
        if self._sleeps > _MOST_SLEEPS:
            raise Runaway(f"it slept {_MOST_SLEEPS} times and got nowhere")
        self.advance(seconds)


class Machine:
    """The disk, the clock and the world of one case.

    Attributes: `calls` (the bodies executed, over all processes), `seen` (of this process: durable
    calls that returned, with what the workflow saw), `clock`, `disk`; `offers` is what the engine
    says it has. `kill_count`, `cut_count` and `body_count` go through all cases.

    Args:
        factory: makes a process of the engine.
        folder: plays the disk; for the kit alone.
    """

    def __init__(self, factory: Factory, folder: Path) -> None:
        self._factory, self.disk, self._processes = factory, Disk(folder), 0
        self.surroundings: Surroundings = getattr(factory, "surroundings", Surroundings())
        self.kill_count = self.cut_count = self.body_count = 0
        self.new()
        self.offers = frozenset[str]()
        with suppress(Broken):  # it will be found out again, and then there is a case to say it
            told = self._in_process(lambda engine: getattr(engine, "offers", ())).value
            self.offers = frozenset(told or ())

    def new(self) -> None:
        """Begin with an empty disk in an untouched world."""
        self.disk.lay_out({})
        self.calls, self.seen, self.story = list[Call](), list[tuple[str, str]](), list[str]()
        self.clock, self.started = BoundedClock(1_000.0), False
        self.engine: Any = None  # of the process that is alive

    # ---- bodies and workflows -------------------------------------------------------------------

    def step(self, name: str, *args: Any, gives: Any = ..., **options: Any) -> Ask:
        """A step for a workflow to ask for.

        Args:
            name: of the step and of its body in `calls`.
            args: what the body is called with.
            gives: what it returns; its name by default.
            options: those of `body`; others go to `ctx.step`.
        """
        return self._ask("step", name, args, gives, options)

    def effect(self, name: str, *args: Any, gives: Any = ..., **options: Any) -> Ask:
        """An effect for a workflow to ask for; as `step`."""
        return self._ask("effect", name, args, gives, options)

    def _ask(
        self, kind: str, name: str, args: tuple[Any, ...], gives: Any, options: dict[str, Any]
    ) -> Ask:
        of_body = {key: options.pop(key) for key in ("fails", "during") if key in options}
        body = self.body(name, name if gives is ... else gives, **of_body)

        def ask(ctx: Any) -> Any:
            return self.saw(name, getattr(ctx, kind)(name, body, *args, **options))

        return ask

    script = staticmethod(script)

    def body(
        self,
        name: str,
        gives: Any = None,
        fails: Callable[[], Exception | None] = lambda: None,
        during: Callable[[], Any] = lambda: None,
    ) -> Callable[..., Any]:
        """The work of a step.

        Args:
            name: under which it is noted in `calls`.
            gives: what it returns, a fresh copy each time.
            fails: what it raises instead, if anything.
            during: something that happens meanwhile, once the work is done.
        """

        def work(*args: Any, idempotency_key: str | None = None, **_: Any) -> Any:
            by = self._drivers.get(get_ident(), self._processes)
            when_s = self.clock.now()
            self._note(Call(name, copy.deepcopy(args), idempotency_key, when_s, by))
            during()
            error = fails()
            if error is not None:
                raise error
            return copy.deepcopy(gives)

        return work

    def saw(self, name: str, value: Any) -> Any:
        """Note what a durable call gave to the workflow, and pass it on."""
        self.seen.append((name, repr(value)))
        return value

    def _note(self, call: Call) -> None:
        self.calls.append(call)
        self.body_count += 1
        self.story.append(f"{call.name} executed" + (f" with key {call.key}" if call.key else ""))
        if len(self.calls) > _MOST_BODIES:
            raise Runaway(f"it executed {_MOST_BODIES} bodies and got nowhere")

    def count(self, name: str) -> int:
        """How often the body of this name was executed."""
        return sum(call.name == name for call in self.calls)

    def keys(self, name: str) -> list[str | None]:
        """The keys that the body of this name was handed."""
        return [call.key for call in self.calls if call.name == name]

    # ---- processes ------------------------------------------------------------------------------

    @contextmanager
    def process(self) -> Iterator[Any]:
        """A process of the engine on this disk."""
        self._processes += 1
        self._drivers = {get_ident(): self._processes}
        self.seen = []
        engine = self.engine = self._factory(self.disk.folder, self.clock)
        try:
            yield engine
        finally:
            _close(engine)

    def start(self, workflow: Workflow, value: Any = VALUE, run_id: str = RUN_ID) -> Outcome:
        """One process that only admits a run."""
        return self._in_process(lambda engine: self._start(engine, run_id, workflow, value))

    def resume(self, workflow: Workflow, run_id: str = RUN_ID) -> Outcome:
        """One process that only drives a run."""
        return self._in_process(lambda engine: self._resume(engine, run_id, workflow))

    def run(self, workflow: Workflow, value: Any = VALUE, run_id: str = RUN_ID) -> Outcome:
        """One process that asks for a run, as a client does that doesn't know of it, and drives it.

        A `start` that raises is passed over: the run may be there.
        """

        def both(engine: Any) -> Any:
            with suppress(Exception):
                self._start(engine, run_id, workflow, value)
            return self._resume(engine, run_id, workflow)

        return self._in_process(both)

    def settle(self, workflow: Workflow, waits_s: float = 1_000.0) -> Outcome:
        """Run it in process after process, with time passing in between, until it returns.

        Returns:
            The result, or the error of the fourth process.
        """
        for _ in range(4):
            outcome = self.run(workflow)
            if outcome.error is None:
                break
            self.clock.advance(waits_s)
        return outcome

    def tell(self, method: str, *args: Any) -> Any:
        """One process that only calls a method of the engine for the run."""
        outcome = self._in_process(lambda engine: getattr(engine, method)(RUN_ID, *args))
        if outcome.error is not None:
            raise self.broken(f"{method}() was called, and {outcome}")
        return outcome.value

    def history(self) -> list[tuple[int, str, str]]:
        """What is on record of the run."""
        told = self.tell("history")
        try:
            return [(int(seq), str(kind), str(name)) for seq, kind, name in told]
        except (TypeError, ValueError):
            raise self.broken(f"history() gave {told!r}; right is a list of tuples of 3") from None

    def records(self) -> list[tuple[str, str]]:
        """Kind and name of what is on record of the run."""
        return [(kind, name) for _, kind, name in self.history()]

    def recorded(self) -> list[str]:
        """The names of what is on record; nothing where the engine knows no such run."""
        try:
            return [name for _, _, name in self.history()]
        except Broken:
            return []

    def _in_process(self, act: Callable[[Any], Any]) -> Outcome:
        try:
            with self.process() as engine:
                return Outcome(act(engine), None)
        except (KeyboardInterrupt, SystemExit, Broken):
            raise
        except Runaway as circles:
            raise self.broken(str(circles)) from None
        except BaseException as error:
            self.story.append(f"{type(error).__name__} raised")
            return Outcome(None, error)

    def _start(self, engine: Any, run_id: str, workflow: Workflow, value: Any) -> None:
        self.story.append("start")
        engine.start(run_id, workflow, copy.deepcopy(value))
        self.started = True

    def _resume(self, engine: Any, run_id: str, workflow: Workflow) -> Any:
        self.story.append("resume")
        return engine.resume(run_id, workflow)

    def beside(self, workflow: Workflow) -> Beside:
        """A second process that takes the run over while the first is in the middle of something.

        It comes to its end before the first goes on, unless it waits for the first.
        """
        self._processes += 1
        number, outcomes = self._processes, list[Outcome]()

        def live() -> None:
            self._drivers[get_ident()] = number
            engine = None
            try:
                engine = self._factory(self.disk.folder, self.clock)
                outcomes.append(Outcome(engine.resume(RUN_ID, workflow), None))
            except BaseException as error:
                outcomes.append(Outcome(None, error))
            finally:
                _close(engine)

        self.story.append("another process resumes")
        thread = Thread(target=live, daemon=True)
        thread.start()
        _until_ended_or_asleep(thread, self.surroundings.is_asleep)
        return Beside(thread, outcomes, number, waited=not outcomes)

    @contextmanager
    def full_disk(self) -> Iterator[Callable[[], None]]:
        """Within the block, the call of what it gives makes the system refuse the engine's writes.

        Raises:
            SkippedError: the platform can't.
        """
        with ExitStack() as stack:
            try:
                fill = stack.enter_context(self.surroundings.full_disk())
            except ImportError:
                raise SkippedError("this platform can't refuse writes") from None
            yield fill

    # ---- killing --------------------------------------------------------------------------------

    def kills(self, workflow: Workflow, act: Callable[[], Any] | None = None) -> Iterator[State]:
        """Each state that a killed process leaves behind; the machine is in it, the process gone.

        Args:
            workflow: is asked for on a new machine and driven; the process is killed once the run
                has been accepted.
            act: what the process does instead, on this machine.
        """
        if act is None:
            self.new()
        for state in self.states(act or (lambda: self.run(workflow))):
            if act is None and not state.started:
                continue
            self.rewind(state)
            self.kill_count += 1
            yield state

    def states(self, act: Callable[[], Any]) -> list[State]:
        """Run something to its end, and keep each state of disk and world on the way."""
        states = [self.state("before anything")]

        def look(place: Callable[[], str]) -> bool:
            if self._differs(states[-1]):
                states.append(self.state(place()))
            return True

        with self.surroundings.watching(look):
            act()
        look(lambda: "when it had returned")
        return states

    def state_where(self, states: list[State], holds: Callable[[State], Any], text: str) -> State:
        """The first state for which something holds.

        Raises:
            Broken: there is none; with `text`, which says what never happens.
        """
        found = next((state for state in states if holds(state)), None)
        if found is None:
            raise self.broken(f"it never comes so far that {text}")
        return found

    def rewind(self, state: State, files: Files | None = None, how: str = "") -> None:
        """Put the machine into a state: a new disk, and no process.

        Args:
            state: what a killed process left behind.
            files: what is on the disk, if it isn't what the process left there.
            how: how it came to that, for the story, if the process wasn't just killed.
        """
        self.disk.lay_out(state.files if files is None else files)
        self.calls, self.seen = list(state.calls), list(state.seen)
        self.clock, self.started = BoundedClock(state.now_s), state.started
        self.story = [*state.story, how or f"killed {state.place}"]

    def state(self, place: str) -> State:
        """Disk and world as they are now."""
        world = tuple(self.calls), tuple(self.seen), self.started, self.clock.now()
        return State(place, self.disk.files(), self.disk.spared(), *world, tuple(self.story))

    def _differs(self, state: State) -> bool:
        counts = len(self.calls), len(self.seen), self.started
        known = len(state.calls), len(state.seen), state.started
        return counts != known or self.disk.files() != state.files

    def takeovers(self, workflow: Workflow) -> Iterator[tuple[str, Outcome, Outcome]]:
        """Let a second process take the run over at each line between a body and its record.

        Yields:
            The place, and what became of the first and of the second process; nothing where the
            second waits until the first has left the place, since who is next then is chance.
        """
        self.new()
        self.start(workflow)
        begun = self.state("after start")
        for line in range(1, 5_000):
            self.rewind(begun)
            second = list[tuple[str, Beside]]()
            first = self._interrupted(workflow, line, second)
            if not second:
                return
            place, beside = second[0]
            outcome = beside.ended()
            if not beside.waited:
                yield place, first, outcome

    def _interrupted(
        self, workflow: Workflow, line: int, second: list[tuple[str, Beside]]
    ) -> Outcome:
        """A first process that a second one interrupts, so many lines after the first body."""
        passed = 0

        def look(place: Callable[[], str]) -> bool:
            nonlocal passed
            passed += bool(self.calls)
            if passed == line and not self.seen:
                self.story.append(f"taken over {place()}")
                second.append((place(), self.beside(workflow)))
            return passed < line and not self.seen

        with self.surroundings.watching(look):
            return self.resume(workflow)

    # ---- verdicts -------------------------------------------------------------------------------

    def expect(self, holds: Any, text: str) -> None:
        """Say that a law is broken unless this holds.

        Raises:
            Broken: with `text` and how it came to that.
        """
        if not holds:
            raise self.broken(text)

    def expect_result(self, outcome: Outcome, result: Any) -> None:
        """Say that a law is broken unless the run ended with this result."""
        right = outcome.error is None and outcome.value == result
        self.expect(right, f"{outcome}; right is {result!r}")

    def expect_refusal(self, outcome: Outcome) -> None:
        """Say that a law is broken unless the process raised."""
        self.expect(outcome.error is not None, f"{outcome}; it should have raised")

    def broken(self, text: str) -> Broken:
        """The verdict with its story."""
        return Broken(f"{text}. How: {', '.join(self.story) or 'nothing was done'}")


class Beside(NamedTuple):
    """A second process: its thread, what became of it, its number, whether it had to wait."""

    thread: Thread
    outcomes: list[Outcome]
    number: int
    waited: bool

    def ended(self) -> Outcome:
        """What became of it, once the first is out of its way."""
        self.thread.join(_PATIENCE_S)
        if not self.outcomes:
            raise Broken("a second process waits for ever for a first one that has ended")
        return self.outcomes[0]


def _until_ended_or_asleep(thread: Thread, is_asleep: Callable[[Thread], bool]) -> None:
    """Wait for a thread to end, or to sleep: then it waits for somebody.

    Where the system doesn't say who sleeps, the time alone decides.
    """
    asleep, until_s = 0, time.monotonic() + _PATIENCE_S
    while thread.is_alive() and asleep < 2 and time.monotonic() < until_s:
        thread.join(_LOOK_EVERY_S)
        asleep = asleep + 1 if is_asleep(thread) else 0


def _close(engine: Any) -> None:
    with suppress(Exception):
        getattr(engine, "close", lambda: None)()
