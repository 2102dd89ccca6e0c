"""A plain model of what runs do: their workflows, the world outside, and what each must come to.

A program is a list of operations, which the workflows of this file interpret. `Plain` interprets
the same program with no engine under it: it is told what chance, the clock and the callers brought,
computes everything else itself, and compares it with the history of the run, call for call.

Guarantees: nothing here asks the engine what is right. Leaves to others: driving runs, and the
random interleavings (`test_model`).
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, NamedTuple, NoReturn

from durable_mini import (
    TIMED_OUT,
    Effect,
    Event,
    EventKind,
    FakeClock,
    RetryPolicy,
    RunFailed,
    Step,
    StepFailedError,
    Workflow,
    in_threads,
    in_turn,
    workflow,
)
from durable_mini.journal import Journal

Program = list[Any]
Me = list[Any]
"""Whose call it is: run id, generation, and the number of the call in its generation."""

_OUTSIDE = {EventKind.SIGNAL, EventKind.CANCEL, EventKind.CHILD_ENDED}
_ASIDE = _OUTSIDE | {EventKind.PATCH, EventKind.TRY}
_SETTLES = {EventKind.STEP, EventKind.EFFECT, EventKind.UNDO}
_CLOSES = {EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELLED, EventKind.CONTINUED}
MOST_BRANCHES = 3


# The world outside


class RefusedError(Exception):
    """The receiver has been told that this key must never take effect."""


class Receiver:
    """Whom the effects reach. The first answer to a key is the answer to every repeat.

    Attributes: `standing` (by key, what was taken and not undone), `voided` (keys that were
    undone), `taken` (how often each effect was taken), `refused` (late effects that were not).
    """

    def __init__(self) -> None:
        self.standing: dict[str, tuple[Any, ...]] = {}
        self.voided: set[str] = set()
        self.taken = Counter[tuple[Any, ...]]()
        self.refused = 0
        self._answers: dict[str, str] = {}

    def post(self, key: str, what: tuple[Any, ...]) -> str:
        """Take an effect, unless its key was voided."""
        if key in self.voided:
            self.refused += 1
            raise RefusedError(f"key {key!r} was voided")
        if key not in self._answers:
            self.standing[key] = what
            self.taken[what] += 1
        return self._answers.setdefault(key, f"receipt of {key}")

    def void(self, key: str, own_key: str) -> str:
        """Undo what was taken under `key`, and refuse whatever comes under it from now on."""
        if own_key not in self._answers:
            self.voided.add(key)
            self.standing.pop(key, None)
        return self._answers.setdefault(own_key, f"{key} is void")


class World:
    """Where the bodies of steps, effects and undos do their work.

    Attributes: `buggy` (workflow code with a bug is deployed), `undo_broken` (undos fail), `drift`
    (whose code asks for something else than it did, and how), `drifted` (the history when it did),
    `meanwhile` (called inside each body), `faults` (laws that were seen broken).
    """

    def __init__(self, journal: Journal, clock: FakeClock) -> None:
        self.receiver, self.faults = Receiver(), list[str]()
        self.buggy = self.undo_broken = False
        self.drift: tuple[str, str] | None = None
        self.drifted: list[Event] | None = None
        self.meanwhile: Callable[[], None] = lambda: None
        self._journal, self._clock = journal, clock

    def work(self, me: Me, fails: int) -> dict[str, Any]:
        """A step that fails so many times."""
        tries = self._enter(me)
        return self._leave(me, tries, fails, {})

    def post(self, me: Me, fails: int, *, idempotency_key: str) -> dict[str, Any]:
        """An effect; where it fails, the receiver has taken it, and the answer was lost."""
        tries = self._enter(me)
        receipt = self.receiver.post(idempotency_key, tuple(me))
        return self._leave(me, tries, fails, {"receipt": receipt})

    def undo(self, me: Me, *, idempotency_key: str, effect_key: str) -> dict[str, Any]:
        """Undo an effect, whether or not it happened."""
        self._enter(me)
        if self.undo_broken:
            raise ConnectionError(failure(me))
        return {"call": me[2], "void": self.receiver.void(effect_key, idempotency_key)}

    def asks(self, run_id: str, replaying: bool) -> str | None:
        """How the code of this run has drifted, where the journal will notice."""
        if self.drift is None or self.drift[0] != run_id or not replaying:
            return None
        row = self._journal.row(run_id)
        self.drifted = self._journal.events(row) if row else []
        return self.drift[1]

    def _enter(self, me: Me) -> int:
        """See that this call may run now; how many tries of it are recorded."""
        row = self._journal.row(me[0])
        log = self._journal.events(row._replace(generation=me[1])) if row else []
        tries = tries_of(me, log)
        if not LATE.joined:
            if any(_number(event) == me[2] for event in log):
                self.faults.append(f"{me} runs although it is recorded")
            if tries and tries[-1].payload["due_at"] > self._clock.now():
                self.faults.append(f"{me} is tried again too early")
            self.meanwhile()
        return len(tries)

    def _leave(self, me: Me, tries: int, fails: int, result: dict[str, Any]) -> dict[str, Any]:
        if tries < fails:
            raise ConnectionError(failure(me))
        return {"call": me[2], **result}


def failure(me: Sequence[Any]) -> str:
    """What a failing call says."""
    return f"call {me[2]} fails"


def tries_of(me: Sequence[Any], log: list[Event]) -> list[Event]:
    """The failed tries that are recorded of a call."""
    tries = [event for event in log if event.kind is EventKind.TRY]
    return [event for event in tries if event.payload["error"]["message"] == failure(me)]


def _number(event: Event) -> int | None:
    """Of which call an event records the outcome."""
    if event.kind not in _SETTLES:
        return None
    payload = event.payload
    if "result" in payload:
        return int(payload["result"]["call"])
    return int(payload["error"]["message"].split()[1])


class _Late(threading.local):
    """Whether this thread's branch of a `gather` only runs on to be joined."""

    joined = False


LATE = _Late()


def one_by_one(branches: Any) -> Generator[Any, None, None]:
    """The engine's own way of running branches in turn; the stage knows that they have begun."""
    with Stage.gathering():
        yield from in_turn(branches)


def side_by_side(branches: Any) -> Generator[Any, None, None]:
    """The engine's threads, one branch at a time and the last one first: always the same order.

    When the attempt ends early the branches that are left run on, as threads do, and are joined.
    """
    order = list(reversed(branches))
    turns, leaving = {name: threading.Event() for name in order}, deque[bool]()

    def leave() -> None:
        leaving.append(True)
        for turn in turns.values():
            turn.set()

    def taken(name: str, body: Callable[[], Any]) -> Any:
        turns[name].wait()
        LATE.joined = bool(leaving)
        try:
            return body()
        except BaseException:
            leave()
            raise

    threads = in_threads({name: partial(taken, name, body) for name, body in branches.items()})
    try:
        with Stage.gathering():
            for name in order:
                turns[name].set()
                yield next(threads)
    finally:
        leave()
        threads.close()


class Stage:
    """Where the workflows of this file find their world: their structure is then read once.

    Attributes: `begun` (how many branches of a `gather` are on their way, whoever takes the run).
    """

    world: Any = None
    begun = 0

    @classmethod
    @contextmanager
    def showing(cls, world: World) -> Iterator[None]:
        """Inside, the workflows find another world."""
        cls.world, before = world, cls.world
        try:
            yield
        finally:
            cls.world = before

    @classmethod
    @contextmanager
    def gathering(cls, begun: int = 1) -> Iterator[None]:
        """Inside, branches are on their way; or none, where another attempt begins."""
        cls.begun, before = begun, cls.begun
        try:
            yield
        finally:
            cls.begun = before


# The workflows


def perform(ctx: Any, op: list[Any], found: list[Any], numbers: Iterator[int]) -> None:
    """One operation of a program; what it gives goes to `found`, its calls are numbered."""
    match op:
        case ["step", name, fails, tries]:
            found.append(ask(ctx, name, fails, tries, numbers))
        case ["effect", name, fails, tries]:
            work = Stage.world.post, me(ctx, numbers), fails
            found.append(ctx.effect(name, *work, retry=patience(tries), cost=0.5))
        case ["saga", undo, between, name, fails, tries]:
            ctx.compensate(undo, Stage.world.undo, me(ctx, numbers))
            for inner in between:
                perform(ctx, inner, found, numbers)
            perform(ctx, ["effect", name, fails, tries], found, numbers)
        case ["gather", branches, compensated]:
            gather(ctx, branches, compensated, found, numbers)
        case ["chance"]:
            found += [ctx.now(), ctx.random(), ctx.uuid()]
        case ["sleep", seconds]:
            ctx.sleep(seconds)
        case ["wait", name, timeout_s]:
            approve(ctx, name, timeout_s, found, numbers)
        case ["child", program, name]:
            child_id = f"{name} of {ctx.run_id}" if name else None
            found.append(ctx.child(helper, program, run_id=child_id))
        case ["again", program]:
            ctx.continue_as_new(program)
        case ["pivot"]:
            ctx.point_of_no_return()
        case ["try", *program]:
            attempt(ctx, program, found, numbers)
        case ["fail"]:
            raise RunFailed("on purpose")
        case ["bug"] if Stage.world.buggy:
            raise ZeroDivisionError


def ask(ctx: Any, name: str, fails: int, tries: int, numbers: Iterator[int]) -> Any:
    """A step; code that has drifted asks for something else than it asked for before."""
    drift, own = Stage.world.asks(ctx.run_id, ctx.replaying), me(ctx, numbers)
    work, retry = Stage.world.work, patience(tries)
    if drift == "kind":
        return ctx.effect(name, Stage.world.post, own, fails, retry=retry, cost=1.0)
    if drift == "name":
        return ctx.step(f"{name}!", work, own, fails, retry=retry, cost=1.0)
    return ctx.step(name, work, own, fails + (drift == "arguments"), retry=retry, cost=1.0)


class Calls(dict[str, Any]):
    """The branches of a `gather`, and the same as the model reads them."""

    def __init__(self) -> None:
        self.told: dict[str, tuple[EventKind, Any, Any, float]] = {}


def gather(
    ctx: Any, branches: Program, compensated: bool, found: list[Any], numbers: Iterator[int]
) -> None:
    """Steps and effects side by side, with an undo registered for each effect or for none."""
    calls = Calls()
    for kind, name, fails, tries in branches:
        work = Stage.world.post if kind == "effect" else Stage.world.work
        branch = Effect if kind == "effect" else Step
        if compensated and kind == "effect":
            ctx.compensate(name, Stage.world.undo, me(ctx, numbers))
        own, options = me(ctx, numbers), {"retry": patience(tries), "cost": 1.0}
        calls[name] = branch(work, own, fails, **options)  # type: ignore[arg-type]
        calls.told[name] = EventKind(kind), (own, fails), options["retry"], 1.0
    found.append(ctx.gather(calls))


def approve(
    ctx: Any, name: str, timeout_s: float | None, found: list[Any], numbers: Iterator[int]
) -> None:
    """Wait for a signal; a late one is escalated, a "no" fails the run."""
    answer = ctx.wait_signal(name, timeout_s)
    if answer is TIMED_OUT:
        perform(ctx, ["effect", "escalate", 0, 1], found, numbers)
    elif answer == "no":
        raise RunFailed(f"no {name}")
    else:
        found.append(answer)


def attempt(ctx: Any, program: Program, found: list[Any], numbers: Iterator[int]) -> None:
    """Operations of which one may fail."""
    try:
        for op in program:
            perform(ctx, op, found, numbers)
    except StepFailedError as failed:
        found.append(f"{failed.step}: {failed.type}: {failed.message}")


def me(ctx: Any, numbers: Iterator[int]) -> Me:
    """The next call's own number, with whose it is."""
    return [ctx.run_id, ctx.generation, next(numbers)]


def patience(tries: int) -> RetryPolicy:
    """So many tries, three seconds after the first and six after the second."""
    return RetryPolicy(max_attempts=tries, initial_s=3.0)


@workflow(version="1", name="agent")
def agent_before(ctx: Any, program: Program) -> list[Any]:
    """The code before the patch."""
    found: list[Any] = []
    numbers = count()
    for op in program:
        if op == ["price"]:
            found.append(ctx.step("price", Stage.world.work, me(ctx, numbers), 0, cost=1.0))
        else:
            perform(ctx, op, found, numbers)
    return found


@workflow(version="1", name="agent")
def agent_after(ctx: Any, program: Program) -> list[Any]:
    """The code with the patch."""
    found: list[Any] = []
    numbers = count()
    for op in program:
        if op == ["price"]:
            if ctx.patched("with tax"):
                found.append(ctx.step("tax", Stage.world.work, me(ctx, numbers), 0, cost=1.0))
            else:
                found.append(ctx.step("price", Stage.world.work, me(ctx, numbers), 0, cost=1.0))
        else:
            perform(ctx, op, found, numbers)
    return found


@workflow(version="2", name="agent")
def agent_two(ctx: Any, program: Program) -> dict[str, Any]:
    """Another version, which lives beside the first."""
    found: list[Any] = []
    numbers = count()
    ctx.step("greet", Stage.world.work, me(ctx, numbers), 0, cost=1.0)
    for op in program:
        perform(ctx, op, found, numbers)
    return {"version": 2, "found": found}


@workflow(version="1")
def helper(ctx: Any, program: Program) -> list[Any]:
    """What the others use as a child."""
    found: list[Any] = []
    numbers = count()
    for op in program:
        perform(ctx, op, found, numbers)
    return found


CODES: dict[str, list[Workflow]] = {
    "old": [agent_before, helper],
    "patched": [agent_after, helper],
    "both": [agent_after, agent_two, helper],
}
"""What can be deployed: the code before the patch, with it, and with version 2 beside it."""


# What a run must come to


class Asked(NamedTuple):
    """What a generation was opened with: workflow and version, program, whether it knows the patch;
    what its caller asked for, if earlier generations began with that; its parent; what those spent;
    the signals that they left unread.
    """

    workflow: str
    version: str
    program: Program
    patched: bool
    began_with: Program | None = None
    parent: str | None = None
    spent: float = 0.0
    unread: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """What a generation came to: the kind of its last event, or None while it isn't over.

    `asks` is what it then asks for next (kinds, name, due time), None where nothing but a person
    helps; `result` the result or the next program; `error` type, message and step.
    """

    ending: EventKind | None
    asks: tuple[tuple[EventKind, ...], str, float | None] | None = None
    result: Any = None
    error: tuple[Any, ...] | None = None


class _Over(BaseException):
    """The history is at its end, and the code asks for more."""

    def __init__(self, *asks: Any) -> None:
        self.asks: Any = asks


class _Stopped(Exception):  # noqa: N818 - a verdict of the model
    """The run was cancelled here."""


class _Again(BaseException):
    def __init__(self, program: Program) -> None:
        self.program = program


class _Undo:
    """An undo, and the key and name of the effect that it is for, once that was asked for."""

    def __init__(self, name: str, own: Me) -> None:
        self.name, self.own, self.key, self.effect = name, own, "", ""


class Plain:
    """A context without an engine: it answers each call itself, and compares the history with it.

    Attributes: `children` (by run id, the program of each child that the code asked for),
    `effects` (by number, the key of each effect asked for), `undone` (the numbers of the effects
    that were undone), `spent`, `unread` (the texts of the signals that are left).
    """

    replaying = False

    def __init__(
        self, run_id: str, generation: int, log: list[Event], asked: Asked, endings: dict[str, Any]
    ) -> None:
        self.run_id, self.generation, self._endings = run_id, generation, endings
        self.children: dict[str, Program] = {}
        self.effects: dict[int, str] = {}
        self.done, self.undone = set[int](), set[int]()
        self.spent, self.pivoted = asked.spent, False
        self._asked, self._log, self._at, self._wait_seq = asked, log, 1, 0
        self._tape = [event for event in log if event.kind not in _ASIDE]
        self._signals = [event for event in log if event.kind is EventKind.SIGNAL]
        self._undos: list[_Undo] = []
        self._names = Counter[tuple[str, str]]()
        self._base = encoded(run_id) + (f"~{generation}" if generation > 1 else "")

    @property
    def unread(self) -> tuple[str, ...]:
        """The texts of the signals that nobody has read."""
        return tuple(event.text for event in self._signals)

    def come_to(self) -> Outcome:
        """Interpret the program, and compare the whole history with it."""
        try:
            outcome = self._come_to()
        except _Over as over:
            return Outcome(None, over.asks)
        if outcome.ending is None:
            assert self._at == len(self._tape), "a run past its pivot went on after it failed"
        elif self._at == len(self._tape):
            return Outcome(None, ((outcome.ending,), "", None))
        else:
            self._compare_end(outcome)
        return outcome

    def _come_to(self) -> Outcome:
        try:
            result = _agent(self._asked).fn(self, self._asked.program)
        except _Again as again:
            return Outcome(EventKind.CONTINUED, result=again.program)
        except (StepFailedError, RunFailed, _Stopped) as verdict:
            if self.pivoted:
                return Outcome(None)
            self._unwind()
            if isinstance(verdict, _Stopped):
                return Outcome(EventKind.CANCELLED, error=("RunCancelledError",))
            return Outcome(EventKind.FAILED, error=_told(verdict))
        return Outcome(EventKind.COMPLETED, result=result)

    def _compare_end(self, outcome: Outcome) -> None:
        assert outcome.ending is not None
        payload = self._take((outcome.ending,), None).payload
        assert self._at == len(self._tape), "something follows the ending"
        if outcome.error is None:
            what = "input" if outcome.ending is EventKind.CONTINUED else "result"
            assert payload == {what: outcome.result}
        else:
            error = payload["error"]
            told = error["type"], error["message"], error["step"]
            assert told[: len(outcome.error)] == outcome.error

    def _unwind(self) -> None:
        for undo in reversed(self._undos):
            payload = self._take((EventKind.UNDO,), undo.name).payload
            self._compare_tries(undo.own, payload)
            told = payload["result"]["void"].removesuffix(" is void")
            assert told == undo.key or (not undo.key and told not in self.effects.values())
            self.undone |= {number for number, of in self.effects.items() if of == undo.key}
            assert payload["result"] == {"call": undo.own[2], "void": f"{told} is void"}

    # The calls

    def step(self, name: str, _fn: Any, *work: Any, retry: Any = None, cost: float) -> Any:
        """See `Context.step`."""
        return self._settled(EventKind.STEP, name, work, retry, cost, {})

    def effect(self, name: str, _fn: Any, *work: Any, retry: Any, cost: float) -> Any:
        """See `Context.effect`."""
        receipt = self._receipt(name, work[0])
        return self._settled(EventKind.EFFECT, name, work, retry, cost, receipt)

    def gather(self, calls: Calls) -> dict[str, Any]:
        """See `Context.gather`: the order in which the branches ended is the history's."""
        wanted: dict[str, dict[str, Any]] = {}
        for name, (kind, (own, _), _, _) in calls.told.items():
            wanted[name] = self._receipt(name, own) if kind is EventKind.EFFECT else {}
        found: dict[str, Any] = {}
        failed: dict[str, StepFailedError] = {}
        while left := [name for name in calls if name not in found]:
            if self._at == len(self._tape):
                raise _Over((EventKind.STEP, EventKind.EFFECT), left[0], None)
            name = self._tape[self._at].name
            assert name in left or self._tape[self._at].kind is EventKind.STOP
            kind, work, retry, cost = calls.told.get(name, calls.told[left[0]])
            try:
                found[name] = self._settled(kind, name, work, retry, cost, wanted.get(name, {}))
            except StepFailedError as failure:
                found[name], failed[name] = None, failure
        for name in calls:
            if name in failed:
                raise failed[name]
        return {name: found[name] for name in calls}

    def now(self) -> Any:
        """See `Context.now`; told, as the other two are."""
        return self._take((EventKind.NOW,), "now").payload["result"]

    def random(self) -> Any:
        """See `Context.random`."""
        return self._take((EventKind.RANDOM,), "random").payload["result"]

    def uuid(self) -> Any:
        """See `Context.uuid`."""
        return self._take((EventKind.UUID,), "uuid").payload["result"]

    def sleep(self, seconds: float) -> None:
        """See `Context.sleep`."""
        timer = self._take((EventKind.TIMER,), "sleep")
        due_at = timer.payload["due_at"]
        assert due_at - seconds <= timer.recorded_at
        assert self._take((EventKind.FIRED,), "sleep", due_at).recorded_at >= due_at

    def wait_signal(self, name: str, timeout_s: float | None) -> Any:
        """See `Context.wait_signal`: the race is decided here from the recorded times."""
        wait = self._take((EventKind.WAIT,), name)
        due_at, self._wait_seq = wait.payload["due_at"], wait.seq
        assert (due_at is None) == (timeout_s is None)
        assert due_at is None or due_at - (timeout_s or 0) <= wait.recorded_at
        verdict = self._take((EventKind.RECEIVED, EventKind.TIMED_OUT), name, due_at)
        for signal in self._in_time(name, due_at):
            if signal.seq < verdict.seq:
                assert verdict.kind is EventKind.RECEIVED, f"{signal} was there in time"
                assert verdict.payload["signal_id"] == signal.payload["signal_id"]
                assert verdict.payload["result"] == signal.payload["result"]
                self._signals.remove(signal)
                return signal.payload["result"]
        assert verdict.kind is EventKind.TIMED_OUT, f"{verdict}: nothing was there in time"
        assert verdict.recorded_at >= due_at
        return TIMED_OUT

    def _in_time(self, name: str, due_at: float | None) -> list[Event]:
        """The unread signals that win against the time-out of the last wait."""
        own = [signal for signal in self._signals if signal.name == name]
        early = [signal for signal in own if due_at is None or signal.seq < self._wait_seq]
        return [one for one in own if one in early or one.recorded_at <= (due_at or 0.0)]

    def hears(self, kinds: tuple[EventKind, ...], name: str, due_at: float | None) -> bool:
        """Whether what ends the last wait has come from outside."""
        came = {event.kind for event in self._log}
        ended = [event.name for event in self._log if event.kind is EventKind.CHILD_ENDED]
        if EventKind.CANCEL in came and not self.pivoted:
            return True
        if EventKind.RECEIVED in kinds:
            return bool(self._in_time(name, due_at))
        return EventKind.JOINED in kinds and name in ended

    def child(self, workflow: Workflow, program: Program, run_id: str | None) -> Any:
        """See `Context.child`: how it ended is for the child's own history to justify."""
        child_id = run_id or self._key("child", workflow.name)
        self.children[child_id] = program
        self._take((EventKind.CHILD,), child_id)
        payload = self._take((EventKind.JOINED,), child_id).payload
        payload.pop("attempt", None)
        assert payload == self._endings[child_id]
        if "error" in payload:
            error = payload["error"]
            facts = {"type": error["type"], "message": error["message"], "step": child_id}
            raise StepFailedError(run_id=self.run_id, seq=0, **facts)
        return payload["result"]

    def continue_as_new(self, program: Program) -> NoReturn:
        """See `Context.continue_as_new`."""
        if self._at < len(self._tape) and self._tape[self._at].kind is EventKind.STOP:
            self._take((), None)
        raise _Again(program)

    def patched(self, _patch_id: str) -> bool:
        """See `Context.patched`: it depends on the code that opened the generation."""
        return self._asked.patched

    def compensate(self, name: str, _fn: Any, own: Me) -> None:
        """See `Context.compensate`."""
        self._take((EventKind.COMPENSATE,), name)
        self._undos.append(_Undo(name, own))

    def point_of_no_return(self) -> None:
        """See `Context.point_of_no_return`."""
        self._take((EventKind.PIVOT,), "pivot")
        self.pivoted = True

    # The history

    def _take(
        self, kinds: tuple[EventKind, ...], name: str | None, due_at: float | None = None
    ) -> Event:
        """The next event, which has to be this one."""
        if self._at == len(self._tape):
            raise _Over(kinds, name, due_at)
        event = self._tape[self._at]
        self._at += 1
        if event.kind is EventKind.STOP:
            assert not self.pivoted, f"{event} after the point of no return"
            raise _Stopped
        assert event.kind in kinds, f"{event.seq} is {event}, not {kinds[0]} {name!r}"
        assert name in (event.name, None), f"{event.seq} is {event}, not {kinds[0]} {name!r}"
        return event

    def _settled(
        self, kind: EventKind, name: str, work: Any, retry: Any, cost: float, result: Any
    ) -> Any:
        own, fails = work
        most = retry.max_attempts if retry else 1
        payload = self._take((kind,), name).payload
        assert payload.get("tries", 1) == min(fails + 1, most)
        self._compare_tries(own, payload)
        if fails >= most:
            facts = {"type": "ConnectionError", "message": failure(own), "step": name}
            assert payload["error"] == {key: facts[key] for key in ("type", "message")}
            raise StepFailedError(run_id=self.run_id, seq=0, **facts)
        self.done.add(own[2])
        self.spent += cost
        assert payload["result"] == {"call": own[2], **result}
        return {"call": own[2], **result}

    def _compare_tries(self, own: Me, payload: Any) -> None:
        assert payload.get("tries", 1) == len(tries_of(own, self._log)) + 1

    def _key(self, what: str, name: str) -> str:
        self._names[what, name] += 1
        times = self._names[what, name]
        return f"{self._base}/{encoded(name)}" + (f"#{times}" if times > 1 else "")

    def _receipt(self, name: str, own: Me) -> dict[str, str]:
        """What comes back from an effect; an undo of its name, or the oldest free, is for it."""
        key = self.effects[own[2]] = self._key("effect", name)
        misled = [undo for undo in self._undos if undo.name == name != undo.effect]
        free = [undo for undo in self._undos if not undo.effect]
        for undo in [*sorted(misled, key=lambda undo: undo.effect), *free][:1]:
            undo.key, undo.effect = key, name
        return {"receipt": f"receipt of {key}"}


def encoded(part: str) -> str:
    """A part of a key, without the signs that mean something in one."""
    return "".join(f"%{ord(sign):02X}" if sign in "/#~%" else sign for sign in part)


def _agent(asked: Asked) -> Workflow:
    """The code of a generation, as the model runs it."""
    if asked.workflow == "helper":
        return helper
    return agent_two if asked.version == "2" else agent_after


def _told(verdict: StepFailedError | RunFailed) -> tuple[Any, ...]:
    if isinstance(verdict, StepFailedError):
        return verdict.type, verdict.message, verdict.step
    return "RunFailed", str(verdict), None
