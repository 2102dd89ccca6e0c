"""What workflow code may call: steps, effects, recorded time and chance, waits, children, undos.

Guarantees: a durable call that the journal knows returns what was recorded and executes nothing;
one that it doesn't know is executed, and its outcome is stored before the code sees it, so that
live equals replay. Before anything is executed the worker's hold on the run is looked at. After
anything that stops the engine every later call raises it again: no `except` in workflow code can
go on. Leaves to others: starting, ending and resuming runs (`engine`).
"""

import random
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import inf
from threading import get_ident
from typing import Any, NoReturn

from durable_mini import errors
from durable_mini.codec import check_name, decode, detached, digest_arguments, encode, round_trip
from durable_mini.events import OUTSIDE, Event, EventKind, Position, RunRow, RunStatus, log
from durable_mini.lease import Holder
from durable_mini.replay import COUNTED, UNTRIED, Cursor, Found, stop_error
from durable_mini.retry import Fn, RetryPolicy
from durable_mini.structure import Workflow

__all__ = ["TIMED_OUT", "Context", "Effect", "Step", "in_threads", "in_turn"]

Retry = RetryPolicy | None
Cost = float | Callable[[Any], float]
Probe = Callable[[Position, EventKind, str], None]
Outcome = tuple[str, Any, Exception | None]  # a result as text and as read back, or an error
Branches = Mapping[str, Callable[[], Outcome]]
Ended = Generator[tuple[str, Outcome], None, None]
Spread = Callable[[Branches], Ended]
# A durable call: name, kind, body, arguments by place and by name, policy, cost, an effect's key. A
# plain tuple, since one is made for every step, and a named one takes eight times as long to make.
_Call = tuple[str, EventKind, Fn, tuple[Any, ...], dict[str, Any], Retry, Cost, str | None]
_Asked = tuple[*_Call, str, list[str]]  # and the digest of its arguments, and their opaque types

_KEY_SIGNS = str.maketrans({"/": "%2F", "#": "%23", "~": "%7E", "%": "%25"})
# Looked up once: an enum's attribute takes as long as a call.
_STEP, _EFFECT, _UNDO = EventKind.STEP, EventKind.EFFECT, EventKind.UNDO
_ONCE = RetryPolicy(max_attempts=1)
MAX_THREADS = 32


class _TimedOut(Enum):
    TIMED_OUT = "timed out"

    def __bool__(self) -> bool:
        return False

    __repr__ = Enum.__str__


TIMED_OUT = _TimedOut.TIMED_OUT
"""What `wait_signal` returns when no signal came in time; it is falsy. Compare with `is`."""


class LetGo(BaseException):
    """The attempt ends and the run doesn't: it is suspended, free for others, or continued as new.

    Arguments: its status; from when on it may be taken again (seconds; None: when something
    arrives); the input of its next generation, as text.
    """


@dataclass(slots=True)
class Undo:
    """A compensation as the step that it will be, and the key of the effect that it undoes.

    `effect` is the name of that effect once it has been met; until then `effect_key` is that of the
    compensation's own name.
    """

    name: str
    call: _Call
    effect_key: str
    effect: str = ""


class Step:
    """A step as a branch of `gather`: `fn(*args, **kwargs)`, with what `Context.step` takes."""

    def __init__(
        self, fn: Fn, /, *args: Any, retry: Retry = None, cost: Cost = 0.0, **kwargs: Any
    ) -> None:
        self.call: tuple[Any, ...] = _STEP, fn, args, kwargs, retry, cost, None


class Effect(Step):
    """An effect as a branch of `gather`; `fn` also receives `idempotency_key=`."""

    def __init__(self, fn: Fn, /, *args: Any, key: str | None = None, **options: Any) -> None:
        super().__init__(fn, *args, **options)
        self.call = _EFFECT, *self.call[1:6], key


def in_threads(branches: Branches) -> Ended:
    """Run the branches of a `gather` side by side; each is given as it ends, and all are joined."""
    with ThreadPoolExecutor(MAX_THREADS) as pool:
        started = {pool.submit(body): name for name, body in branches.items()}
        for ended in as_completed(started):
            yield started[ended], ended.result()


def in_turn(branches: Branches) -> Ended:
    """Run the branches of a `gather` one after the other: the same order every time."""
    for name, body in branches.items():
        yield name, body()


class Context:
    """A run as its workflow code sees it, for the length of one attempt.

    Attributes: `run_id`; `generation` (from 1); `attempt` (from 1, this one included); `replaying`
    (whether the next durable call will be answered from the journal). The others are the engine's.

    Args:
        engine: what all attempts share: journal, clock, limits, probe, and `start` for children.
        row: the run as its holder claimed it.
        past: the history so far.
        patches: for each patch of the code, whether the run knows it.
        holder: who drives the run.
    """

    def __init__(
        self, engine: Any, row: RunRow, past: list[Event], patches: dict[str, bool], holder: Holder
    ) -> None:
        self.run_id, self.generation, self.attempt = row.run_id, row.generation, row.attempts
        self._engine, self._row, self._holder, self._patches = engine, row, holder, patches
        self._journal, self._clock, self._probe = engine.journal, engine.clock, engine.probe
        self.cursor = Cursor(row.run_id, past, compare_arguments=engine.compare_arguments)
        self.stopped: BaseException | None = None  # what ended this attempt
        self.pivoted = self._unwinding = self._cancelled = False
        # Who may call, the step whose body is running, and the child that the run waits for.
        self.driver, self._body_of, self.child_id = get_ident(), "", ""
        self._first: dict[str, Any] = {"crashes": 0}  # what its first commit changes
        own = row.run_id.translate(_KEY_SIGNS) + f"~{row.generation}" * (row.generation > 1)
        # A migrated run goes on with the old keys.
        self._key_base = self.cursor.admitted.get("key_base", own)
        self._numbers, self._undos = Counter[tuple[str, str]](), list[Undo]()
        self._limits, self._watch_at = engine.budget.limits, int(engine.max_events * 0.8)
        self._deadline = self.cursor.admitted["since"] + self._limits.get("max_seconds", inf)
        # What came from outside: signals by id while they are unread, and children that ended.
        self.signals, self._ended = dict[str, Event](), dict[str, Event]()
        self._hear(past)

    @property
    def replaying(self) -> bool:
        """Whether the next durable call is answered from the journal, executing nothing."""
        return bool(self.cursor.ahead)

    # ---- steps and effects ----------------------------------------------------------------------

    def step(
        self, name: str, fn: Fn, /, *args: Any, retry: Retry = None, cost: Cost = 0.0, **kwargs: Any
    ) -> Any:
        """Run `fn(*args, **kwargs)` once and record its result; on replay return the record.

        Args:
            name: what the step is called in the journal, 1 to 200 printable characters.
            fn: a plain function that returns a JSON value. It gets copies of lists and mappings.
            retry: how often it is tried; once by default. Each failed try is recorded, with the
                time of the next: a crash doesn't start the count again.
            cost: what it costs, in units of your choice, or a function of its result. The function
                is workflow code: an error in it is a bug, not the step's failure.

        Returns:
            The result as JSON gives it back, the first time too: tuples are lists, keys strings.

        Raises:
            StepFailedError: it failed for good; that is recorded, and raised again on replay.
            NonDeterminismError: the journal holds another call at this place.

        Crash:
            Before the commit the step is unknown, and the next attempt runs it again.
        """
        return self._perform((name, _STEP, fn, args, kwargs, retry, cost, None))

    def effect(self, name: str, fn: Fn, /, *args: Any, key: str | None = None, **more: Any) -> Any:
        """A step that touches the outside world: `fn` also receives `idempotency_key=`.

        The key is the same at every try and in every attempt: run id and name, with `#2`, `#3` …
        for a name that the run repeats. `key` replaces it with one of the business operation.
        Otherwise as `step`: `more` is `retry`, `cost`, and what `fn` takes by name.

        Crash:
            In the crash window, after the effect and before the commit, the next attempt repeats
            the call. Only a receiver that knows the key can drop the repeat.
        """
        return self._perform((name, *Effect(fn, *args, key=key, **more).call))

    def now(self) -> float:
        """The time when this was first executed, in seconds since the epoch; recorded.

        Crash:
            Before the commit nobody has seen it, and the next attempt reads the clock anew; this
            holds of `random` and `uuid` too.
        """
        return float(self._record(EventKind.NOW, self._clock.now))

    def random(self) -> float:
        """A random number in [0, 1), drawn once and recorded."""
        return float(self._record(EventKind.RANDOM, random.SystemRandom().random))

    def uuid(self) -> str:
        """A random UUID as a string, drawn once and recorded."""
        return str(self._record(EventKind.UUID, lambda: str(uuid.uuid4())))

    def gather(self, calls: Mapping[str, Step | tuple[Any, ...]]) -> dict[str, Any]:
        """Run several steps and effects side by side, and record each as it ends.

        Args:
            calls: by name `(fn, *args)` for a step, or `Step(fn, …)` or `Effect(fn, …)`. The names
                are the steps' names.

        Returns:
            The results by name, in the order of `calls`.

        Raises:
            StepFailedError: a branch failed for good: of several the first in the order of `calls`.
                It is raised when all have ended and are recorded.

        Crash:
            What was recorded stays; the other branches run again, with the same keys.
        """
        self._guard(EventKind.STEP, ", ".join(map(str, calls)))
        steps = [given if isinstance(given, Step) else Step(*given) for given in calls.values()]
        made = {n: self._asked((n, *step.call)) for n, step in zip(calls, steps, strict=True)}
        waiting = {name: (call[1], call[8]) for name, call in made.items()}
        try:
            done = self.cursor.take_any(waiting)
            done |= self._execute({name: made[name] for name in waiting}, self._engine.spread)
        except BaseException as stop:
            self._stop(stop)
        return {name: self._answer(name, done[name], call[7]) for name, call in made.items()}

    # ---- waits ----------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """Wait until `seconds` from now; the run is suspended and holds nothing.

        Crash:
            The wake-up time is recorded once: neither a crash nor a restart moves it.
        """
        _, begun = self._fact("sleep", lambda: self._due_in(seconds), EventKind.TIMER)
        self._fact("sleep", lambda: self._wait_until(begun["due_at"]), EventKind.FIRED)

    def wait_signal(self, name: str, timeout_s: float | None = None) -> Any:
        """The payload of the next signal of this name, or `TIMED_OUT`; the run is suspended.

        Signals that came before the wait are kept, and read in the order of their arrival.

        Args:
            name: the signal's name.
            timeout_s: how long to wait at most, in seconds. A signal that was recorded no later
                than that wins, however late anybody looks; a later one waits for the next wait.

        Crash:
            The time-out counts from the first time that this was executed. Which of the two won is
            recorded, and never decided again.
        """

        def begin() -> dict[str, Any]:
            return {"due_at": None} if timeout_s is None else self._due_in(timeout_s)

        wait_seq, begun = self._fact(name, begin, EventKind.WAIT)
        due_at = inf if begun["due_at"] is None else begun["due_at"]

        def outcome() -> Any:
            own = (signal for signal in self.signals.values() if signal.name == name)
            in_time = (s.payload for s in own if s.seq < wait_seq or s.recorded_at <= due_at)
            return next(in_time, None) or self._wait_until(due_at)

        _, got = self._fact(name, outcome, EventKind.RECEIVED, EventKind.TIMED_OUT)
        self.signals.pop(got.get("signal_id"), None)
        return got.get("result", TIMED_OUT)

    def child(self, workflow: Workflow, input: Any = None, run_id: str | None = None) -> Any:
        """Run another workflow as a run of its own, and return its result.

        Args:
            workflow: one that is registered with the engine.
            input: its input, a JSON value.
            run_id: its run id; by default one made from this run's, the same in every attempt.

        Raises:
            StepFailedError: the child failed or was cancelled; with its error's type and message.
            RunIdConflictError: the id is taken by a run that isn't this one's child.

        Crash:
            The child is admitted once, however often this run crashes, and goes on without it.
        """
        child_id = self._numbered("child", workflow.name) if run_id is None else run_id
        _, value = round_trip(input, "child", child_id, "input", self._engine.max_payload_bytes)
        digest, _ = digest_arguments((workflow.name, value), {})

        def begin() -> dict[str, Any]:
            self._engine.start(workflow, value, run_id=child_id, parent=self._row)
            return {"workflow": workflow.name}

        def join() -> Any:
            ended = self._ended.get(child_id)
            return ended.payload if ended else self._wait_until(inf)

        self.child_id = child_id
        self._fact(child_id, begin, EventKind.CHILD, args=digest)
        found = self._fact(child_id, join, EventKind.JOINED)
        return self._answer(child_id, found)

    def continue_as_new(self, input: Any = None) -> NoReturn:
        """End this generation and go on with a new history, from the start of the workflow.

        Unread signals and what was spent go with it; `generation` counts up, the run id stays.

        Args:
            input: what the next generation begins with, a JSON value.

        Raises:
            DurableError: there is something to undo, which the next generation wouldn't know.

        Crash:
            The old generation ends and the new one is admitted in one transaction.
        """
        text, _ = round_trip(input, "run", self.run_id, "input", self._engine.max_payload_bytes)

        def leave() -> NoReturn:
            if self._undos and not self.pivoted:
                why = "has compensations, which continue_as_new would forget"
                raise errors.DurableError(reason=f"run {self.run_id} {why}", run_id=self.run_id)
            raise LetGo(RunStatus.PENDING, 0.0, text)

        self._fact(EventKind.CONTINUED, leave, EventKind.CONTINUED)
        raise AssertionError

    # ---- versions and sagas ---------------------------------------------------------------------

    def patched(self, patch_id: str) -> bool:
        """Whether this run takes the new path of a change: `if ctx.patched("id"): … else: …`.

        A run that was admitted by code with the patch in it does, for good; one from before keeps
        the old path throughout. Once no run keeps it, the `if` can go and the new path stay.

        Args:
            patch_id: names the change; written out, so that the structure shows both paths.

        Raises:
            NonDeterminismError: later, if a run that keeps the old path is no longer asked.

        Crash:
            What was decided follows from the run's admission: a crash before it is recorded changes
            nothing.
        """
        check_name(patch_id, "patch id")
        self._guard(EventKind.PATCH, patch_id)
        self.cursor.unasked.pop(patch_id, None)
        taken = self.cursor.decided.get(patch_id)
        if taken is None:
            taken = self._patches.setdefault(patch_id, not self.replaying)
            if not self.replaying or self.cursor.next_is(EventKind.STOP):  # it ended here last time
                self._fact(patch_id, lambda: {"result": taken}, EventKind.PATCH)
                self.cursor.decided[patch_id] = taken
        return taken

    def compensate(self, name: str, fn: Fn, /, *args: Any, **kwargs: Any) -> None:
        """Register what undoes the next effect, before that effect is done.

        If the run fails, is cancelled or spends its budget, `fn(*args, **kwargs)` runs as a step,
        the last registered first, also where the effect itself never happened: "nothing to undo" is
        success, and the undo is to make sure that the effect's key takes effect never more.

        Args:
            name: the compensation's name; that of the effect, if several are registered at once.
            fn: also receives `idempotency_key=`, a key of its own that ends in `~undo`, and
                `effect_key=`, the key of the effect that it undoes.

        Crash:
            Once registered it is known to every later attempt; a crash among the undos goes on with
            the first that isn't recorded.
        """
        if not callable(fn) or {"idempotency_key", "effect_key"} & kwargs.keys():
            raise TypeError(f"compensation {name!r} takes a function, and its keys from the engine")
        self._fact(name, dict, EventKind.COMPENSATE, args=digest_arguments(args, kwargs)[0])
        key = f"{self._numbered('undo', name)}~undo"
        effect_key = self._key(name, self._numbers["effect", name] + 1)  # of the next of that name

        def body(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, effect_key=undo.effect_key, **kwargs)

        call = name, _UNDO, body, detached(args), detached(kwargs), None, 0.0, key
        undo = Undo(name, call, effect_key)
        self._undos.append(undo)

    def point_of_no_return(self) -> None:
        """From here on the run goes forward only: it can't be cancelled, and undoes nothing.

        A failure after it needs attention instead of ending the run; a budget likewise.

        Crash:
            Before the commit the run can still be cancelled, and a request that was recorded first
            wins; after it every attempt goes forward.
        """
        self._fact(EventKind.PIVOT, dict, EventKind.PIVOT)
        self.pivoted = True

    def unwind(self) -> None:
        """Run the compensations; called by the engine when the workflow function has been left.

        Raises:
            CompensationFailedError: one of them failed; the failed try is recorded.
        """
        self.stopped, self._unwinding = None, True
        while self._undos:
            self._perform(self._undos.pop().call)

    # ---- how a durable call is answered ---------------------------------------------------------

    def _record(self, kind: EventKind, read: Callable[[], Any]) -> Any:
        """A value from outside the run, kept from its first reading on."""
        return self._perform((kind, kind, read, (), {}, None, 0.0, None))

    def _perform(self, asked: _Call) -> Any:
        """Answer a durable call from the journal, or execute it until it has an outcome."""
        call = self._asked(asked)
        name = call[0]
        try:
            found = self.cursor.take(call[1], name, call[8])
            if found is None and not self.cursor.tried:  # most calls need one try, and no loop
                self._look(call)
                found = self._settle(call, self._try(call))
            if found is None:
                found = self._execute({name: call}, in_turn)[name]
        except BaseException as stop:
            self._stop(stop)
        return self._answer(name, found, call[7])

    def _asked(self, call: _Call) -> _Asked:
        """A call that can be made at all: with its key, if it is an effect, and its digest."""
        name, kind, fn, args, kwargs, retry, cost, key = call
        self._guard(kind, name)
        check_name(name, "step name")
        if not callable(fn) or not (retry is None or isinstance(retry, RetryPolicy)):
            raise TypeError(f"{kind} {name!r} takes a function, and as retry= a RetryPolicy")
        if cost != 0.0 and not callable(cost):
            _check_number(cost, "the cost")
        if kind is _EFFECT:
            key = self._effect_key(name, key, kwargs)
        digest, opaque = digest_arguments(args, kwargs)
        return name, kind, fn, args, kwargs, retry, cost, key, digest, opaque

    def _answer(self, name: str, found: Found, key: str | None = None) -> Any:
        """What the code sees of a call that is recorded."""
        seq, payload = found
        if key is not None and payload.get("key", key) != key:  # it was done under another key
            for undo in self._undos:
                undo.effect_key = payload["key"] if undo.effect_key == key else undo.effect_key
        if "error" in payload:
            failed = {**payload["error"], "run_id": self.run_id, "step": name, "seq": seq}
            raise errors.StepFailedError(**failed)  # without its cause, which no replay would have
        return payload["result"]

    def _execute(self, waiting: dict[str, _Asked], spread: Spread) -> dict[str, Found]:
        """Try calls that the journal doesn't know until each has an outcome, committed at once."""
        done, tried = dict[str, Found](), self.cursor.tried
        while waiting:
            due_at = {n: tried.get((call[1], n), UNTRIED)[1] for n, call in waiting.items()}
            now = self._clock.now()
            ready = {name: call for name, call in waiting.items() if due_at[name] <= now}
            self._look(*ready.values())
            if not ready:  # what is due after the wait, the next round looks at
                self._wait_until(min(due_at.values()), patient=self._holder.patient)
            bodies = {name: partial(self._try, call) for name, call in ready.items()}
            with closing(spread(bodies)) as outcomes:
                for name, outcome in outcomes:
                    if found := self._settle(ready[name], outcome):
                        done[name] = found
                        del waiting[name]
        return done

    def _try(self, call: _Asked) -> Outcome:
        """One try: the result's text and the result as it reads back, or what it failed with."""
        name, kind, fn, args, kwargs, _, _, key, _, _ = call
        if self._probe is not None:
            self._probe(Position.BEFORE, kind, name)
        given = detached(kwargs) if kwargs else {}
        if key is not None:
            given["idempotency_key"] = key
        self._body_of = name
        try:
            result = fn(*map(detached, args), **given)
            return *round_trip(result, kind, name, "result", self._engine.max_payload_bytes), None
        except errors.StorageError:
            raise  # never a step's failure
        except Exception as error:
            # Stable fields: a traceback would differ at the next attempt.
            text = encode({"type": type(error).__name__, "message": errors.message_of(error)})
            return text, decode(text), error

    def _settle(self, call: _Asked, outcome: Outcome) -> Found | None:
        """Commit how a try ended: what replay will find, or None where another is to follow."""
        name, kind, _, _, _, retry, cost, key, digest, opaque = call
        text, value, error = outcome
        self._body_of = ""
        if self.stopped is not None:  # by a durable call in the body: the code's fault, no outcome
            raise self.stopped
        failed, _ = self.cursor.tried.pop((kind, name), UNTRIED)
        said, what, spent = f'{{"args":"{digest}"', "result" if error is None else "error", 0.0
        if error is None and cost != 0.0:
            spent = _check_number(cost(decode(text)) if callable(cost) else cost, "the cost")
        if opaque or key or failed or spent:
            more = {"opaque": opaque, "key": key, "tries": failed and failed + 1, "cost": spent}
            said += "".join(f',"{fact}":{encode(more[fact])}' for fact in more if more[fact])
        undo, policy = kind is _UNDO, retry or _ONCE
        if error is None or not (undo or policy.allows(failed + 1, error)):
            self.cursor.steps += kind in COUNTED
            self.cursor.spent += spent
            return self._commit(kind, name, f'{said},"{what}":{text}}}'), {what: value}
        due_at = 0.0 if undo else float(self._clock.now() + policy.delay_s(failed + 1))
        said += f',"of":"{kind}","error":{text},"due_at":{due_at!r}}}'
        seq = self._commit(EventKind.TRY, name, said)
        if undo:  # never final: a person mends the cause, and it is tried again
            raise errors.CompensationFailedError(run_id=self.run_id, step=name, seq=seq, **value)
        self.cursor.tried[kind, name] = failed + 1, due_at
        return None

    def _fact(self, name: str, decide: Fn, *kinds: EventKind, args: str | None = None) -> Found:
        """A fact of the run: as recorded, or decided now and recorded.

        It is of the first kind, and of the last one where nothing is what was decided. `args` is
        the digest of its arguments.
        """
        check_name(name, f"{kinds[0]} name")
        self._guard(kinds[0], name)
        try:
            kind, seq = next(filter(self.cursor.next_is, kinds), kinds[0]), 0
            if found := self.cursor.take(kind, name, args):
                return found
            while not seq:  # until nothing came in between looking and recording
                self._look()
                payload = decide()
                kind = kinds[0 if payload else -1]
                if self._probe is not None:
                    self._probe(Position.BEFORE, kind, name)
                text = encode(payload if args is None else {**payload, "args": args})
                seq = self._commit(kind, name, text, expected=self.read_to)
        except BaseException as stop:
            self._stop(stop)
        return seq, payload

    def _commit(self, kind: EventKind, name: str, text: str, expected: int | None = None) -> int:
        """Store an event; its sequence number, or 0 where another came after the expected one."""
        if self._probe is not None:
            self._probe(Position.WINDOW, kind, name)
        # The crash window: the body has done its work, and until append returns no journal knows.
        if self._first and self.attempt > 1:  # the history tells which attempt got somewhere
            text = f'{{"attempt":{self.attempt}{"," if len(text) > 2 else ""}{text[1:]}'
        entry = kind, name, text, self._clock.now()
        seq: int = self._journal.append(self._row, entry, expected=expected, **self._first)
        self._first = {} if seq else self._first
        self.read_to += seq == self.read_to + 1
        if self._probe is not None and seq:
            self._probe(Position.AFTER, kind, name)
        return seq

    # ---- looking before anything is executed ----------------------------------------------------

    def _look(self, *calls: _Asked) -> None:
        """See that the run is still ours and may make these calls; hear what came from outside.

        Raises:
            LeaseLostError: another worker has the run.
            RunCancelledError, BudgetExceededError: it ends here, which is recorded.
            HistoryTooLongError: there is no room for more.
        """
        last = self._journal.peek(self._row)
        if last > self.read_to:
            self._hear(self._journal.events(self._row, self.read_to))
        if self._holder.stopping():
            raise LetGo(RunStatus.PENDING, 0.0, None)
        if self._unwinding:
            return
        if last >= self._watch_at:
            limit = self._watch_at = self._engine.max_events
            if last >= limit:
                raise errors.HistoryTooLongError(run_id=self.run_id, seq=last, limit=limit)
            here = {"run_id": self.run_id, "seq": last}
            log.warning("run %s has %d events of %d", self.run_id, last, limit, extra=here)
        if self._cancelled and not self.pivoted:
            self._end_by("cancelled", {})
        if self._limits:
            self._judge(calls)

    def _hear(self, events: Sequence[Event]) -> None:
        """Put what came from outside where the code will ask for it."""
        heard = [event for event in events if event.kind in OUTSIDE]
        signals = (event for event in heard if event.kind is EventKind.SIGNAL)
        self.signals |= {signal.payload["signal_id"]: signal for signal in signals}
        self._ended |= {event.name: event for event in heard if event.kind is EventKind.CHILD_ENDED}
        self._cancelled |= any(event.kind is EventKind.CANCEL for event in heard)
        self.read_to = events[-1].seq

    def _judge(self, calls: Sequence[_Asked]) -> None:
        """End the run if these calls would use more than its budget."""
        now, cursor = self._clock.now(), self.cursor
        used: dict[str, float] = {"max_seconds": now - cursor.admitted["since"]}
        used["max_steps"] = cursor.steps + sum(call[1] in COUNTED for call in calls)
        used["max_cost"] = cursor.spent + sum(call[6] for call in calls if not callable(call[6]))
        for limit, allowed in self._limits.items():
            late = limit == "max_seconds" and now >= self._deadline
            if late or used[limit] > allowed:
                self._end_by("budget", {"limit": limit, "spent": used[limit], "allowed": allowed})

    def _end_by(self, name: str, payload: dict[str, Any]) -> NoReturn:
        """Anchor the end of the run at this call; after the pivot nothing is anchored."""
        seq = self.read_to if self.pivoted else self._commit(EventKind.STOP, name, encode(payload))
        raise stop_error(self.run_id, seq, payload)

    def _due_in(self, seconds: float) -> dict[str, Any]:
        return {"due_at": self._clock.now() + _check_number(seconds, "the time to wait")}

    def _wait_until(self, due_at: float, *, patient: bool = False) -> dict[str, Any]:
        """Come back, with nothing to record, once it is that late; until then the run is suspended.

        A patient holder waits instead.
        """
        while (wait_s := due_at - self._clock.now()) > 0:
            if not patient:
                wake_at = min(due_at, inf if self._unwinding or self.pivoted else self._deadline)
                raise LetGo(RunStatus.SUSPENDED, None if wake_at == inf else wake_at, None)
            self._clock.sleep(wait_s)
        return {}

    # ---- small things ---------------------------------------------------------------------------

    def _effect_key(self, name: str, key: str | None, kwargs: Mapping[str, Any]) -> str:
        """The key of an effect, told to the compensation of its name or to the oldest free one."""
        check_name(name if key is None else key, "idempotency key")
        if "idempotency_key" in kwargs:
            raise TypeError(f"effect {name!r}: the engine hands the key out; say key= instead")
        own_key = self._numbered("effect", name)
        key = own_key if key is None else key
        free = (undo for undo in self._undos if not undo.effect or undo.name == name != undo.effect)
        for undo in sorted(free, key=lambda undo: (undo.name != name, undo.effect))[:1]:
            undo.effect_key, undo.effect = key, name
        return key

    def _numbered(self, what: str, name: str) -> str:
        """A key for this occurrence of a name: the same in every attempt, and no other's."""
        self._numbers[what, name] += 1
        return self._key(name, self._numbers[what, name])

    def _key(self, name: str, count: int) -> str:
        return f"{self._key_base}/{name.translate(_KEY_SIGNS)}" + f"#{count}" * (count > 1)

    def _guard(self, kind: EventKind, name: str) -> None:
        """Refuse a durable call that replay couldn't find again, and any call after a stop."""
        if self.stopped is not None:
            raise self.stopped
        if self._body_of or get_ident() != self.driver:
            reason = "from another thread" if self.driver else "after the attempt ended"
            reason = f"inside the body of step {self._body_of!r}" if self._body_of else reason
            call = f"{kind} {name!r}"
            self._stop(errors.DurableCallError(run_id=self.run_id, call=call, reason=reason))

    def _stop(self, reason: BaseException) -> NoReturn:
        """End this attempt: every later durable call raises the first reason again."""
        self.stopped = self.stopped or reason
        raise reason


def _check_number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
        raise ValueError(f"{what} is {value!r}, not a finite number of at least 0")
    return float(value)
