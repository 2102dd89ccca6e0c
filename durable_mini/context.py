"""What workflow code may call: steps, effects, recorded time and chance, waits, children, undos.

Guarantees: a durable call that the journal knows returns what was recorded and executes nothing;
one that it doesn't know is executed, and its outcome is stored before the code sees it, so that
live equals replay. Before anything is executed the worker's hold on the run is looked at. After
anything that stops the engine every later call raises it again: no `except` in workflow code can
go on. Leaves to others: starting, ending and resuming runs (`engine`).
"""

import json
import logging
import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from enum import Enum
from functools import partial
from math import inf, isfinite
from threading import get_ident
from typing import Any, NamedTuple, NoReturn

from durable_mini import errors
from durable_mini.clock import SystemClock
from durable_mini.codec import check_name, decode, detached, digest_arguments, round_trip
from durable_mini.events import Entry, Event, EventKind, Position, RunRow
from durable_mini.journal import Journal
from durable_mini.lease import Holder
from durable_mini.limits import Budget
from durable_mini.replay import Cursor, stop_error
from durable_mini.retry import ONCE, Fn, RetryPolicy
from durable_mini.saga import Saga
from durable_mini.structure import Workflow

log = logging.getLogger("durable_mini.run")

Retry = RetryPolicy | None
Cost = float | Callable[[Any], float]
Probe = Callable[[Position, EventKind, str], None]
Found = tuple[int, Any]  # what replay hands out: a sequence number and a payload
Outcome = tuple[str, Any, Exception | None]  # a result as text and as read back, or an error
Branches = Mapping[str, Callable[[], Outcome]]
Spread = Callable[[Branches], Generator[tuple[str, Outcome], None, None]]
# A durable call: kind, name, body, arguments by place and by name, policy, cost, an effect's key. A
# plain tuple, since one is made for every step, and a named one takes eight times as long to make.
_Call = tuple[EventKind, str, Fn, tuple[Any, ...], dict[str, Any], Retry, Cost, str | None]

_KEY_SIGNS = str.maketrans({"/": "%2F", "#": "%23", "~": "%7E", "%": "%25"})
_COUNTED = frozenset({EventKind.STEP, EventKind.EFFECT})
_UNTRIED = 0, 0.0
_NEAR = 0.8  # of the limit: from here on a warning
MAX_THREADS = 32


class _TimedOut(Enum):
    TIMED_OUT = "timed out"

    def __bool__(self) -> bool:
        return False

    __repr__ = Enum.__str__


TIMED_OUT = _TimedOut.TIMED_OUT
"""What `wait_signal` returns when no signal came in time; it is falsy. Compare with `is`."""


class Suspended(BaseException):
    """The run waits, until `due_at` at most (seconds; None: until something arrives)."""

    def __init__(self, due_at: float | None) -> None:
        self.due_at = due_at


class Released(BaseException):
    """The worker is stopping: somebody else goes on."""


class Continued(BaseException):
    """This generation is over; `text` is the input of the next."""

    def __init__(self, text: str) -> None:
        self.text = text


class Step:
    """A step as a branch of `gather`: `fn(*args, **kwargs)`, with what `Context.step` takes."""

    kind = EventKind.STEP
    key: str | None = None

    def __init__(
        self, fn: Fn, /, *args: Any, retry: Retry = None, cost: Cost = 0.0, **kwargs: Any
    ) -> None:
        self.fn, self.args, self.kwargs, self.retry, self.cost = fn, args, kwargs, retry, cost


class Effect(Step):
    """An effect as a branch of `gather`; `fn` also receives `idempotency_key=`."""

    kind = EventKind.EFFECT

    def __init__(self, fn: Fn, /, *args: Any, key: str | None = None, **options: Any) -> None:
        super().__init__(fn, *args, **options)
        self.key = key


def in_threads(branches: Branches) -> Generator[tuple[str, Outcome], None, None]:
    """Run the branches of a `gather` side by side; each is given as it ends, and all are joined."""
    from concurrent.futures import ThreadPoolExecutor, as_completed  # no threads in a browser

    with ThreadPoolExecutor(min(len(branches), MAX_THREADS)) as pool:
        started = {pool.submit(body): name for name, body in branches.items()}
        for ended in as_completed(started):
            yield started[ended], ended.result()


def in_turn(branches: Branches) -> Generator[tuple[str, Outcome], None, None]:
    """Run the branches of a `gather` one after the other: the same order every time."""
    for name, body in branches.items():
        yield name, body()


class Settings(NamedTuple):
    """What every attempt of an engine shares.

    `probe` is called at the three positions of every live durable call: a test may raise a
    `BaseException` there, or die. `spread` runs the branches of a `gather`. `begin_child` admits a
    run for a parent: workflow, input, run id, the parent's run id.
    """

    journal: Journal
    clock: SystemClock
    max_payload_bytes: int
    compare_arguments: bool
    probe: Probe | None
    budget: Budget
    max_events: int
    spread: Spread
    begin_child: Callable[[Workflow, Any, str, str], str]


class Context:
    """A run as its workflow code sees it, for the length of one attempt.

    Attributes: `run_id`; `generation` (from 1); `attempt` (from 1, this one included); `replaying`
    (whether the next durable call will be answered from the journal). The others are the engine's.

    Args:
        settings: what all attempts share.
        row: the run as its holder claimed it.
        events: the history so far.
        patches: for each patch of the code, whether the run knows it.
        holder: who drives the run.
    """

    def __init__(
        self,
        settings: Settings,
        row: RunRow,
        events: list[Event],
        patches: Mapping[str, bool],
        holder: Holder,
    ) -> None:
        self.run_id, self.generation, self.attempt = row.run_id, row.generation, row.attempts
        self.stopped: BaseException | None = None  # what ended this attempt
        self.pivoted, self.read_to, admitted = False, 0, events[0].payload
        self.spent, self.steps = admitted.get("spent", (0.0, 0))  # of earlier generations too
        self.since: float = admitted.get("since", events[0].recorded_at)
        self._settings, self._row, self._probe = settings, row, settings.probe
        self._cursor = Cursor(row.run_id, events, compare_arguments=settings.compare_arguments)
        self._thread, self._holder, self._key_base = get_ident(), holder, key_base(row, admitted)
        self._body_of: str | None = None  # the step whose body is running
        self._patches, self._decided = patches, dict[str, bool]()
        self._numbers: dict[tuple[str, str], int] = {}
        self._saga, self._unwinding, self._cancelled, self._fresh = Saga(), False, False, True
        max_seconds = settings.budget.max_seconds
        self._deadline = inf if max_seconds is None else self.since + max_seconds
        self._watch_at = int(settings.max_events * _NEAR)
        self._signals: defaultdict[str, list[Event]] = defaultdict(list)  # those not yet read
        self._children: dict[str, Any] = {}  # how children ended
        self._hear(events)

    @property
    def replaying(self) -> bool:
        """Whether the next durable call is answered from the journal, executing nothing."""
        return self._cursor.replaying

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
        return self._perform((EventKind.STEP, name, fn, args, kwargs, retry, cost, None))

    def effect(
        self,
        name: str,
        fn: Fn,
        /,
        *args: Any,
        key: str | None = None,
        retry: Retry = None,
        cost: Cost = 0.0,
        **kwargs: Any,
    ) -> Any:
        """A step that touches the outside world: `fn` also receives `idempotency_key=`.

        The key is the same at every try and in every attempt: run id and name, with `#2`, `#3` …
        for a name that the run repeats. `key` replaces it with one of the business operation.
        Otherwise as `step`.

        Crash:
            In the crash window, after the effect and before the commit, the next attempt repeats
            the call. Only a receiver that knows the key can drop the repeat.
        """
        key = self._effect_key(name, key, kwargs)
        return self._perform((EventKind.EFFECT, name, fn, args, kwargs, retry, cost, key))

    def now(self) -> float:
        """The time when this was first executed, in seconds since the epoch; recorded."""
        return float(self._record(EventKind.NOW, self._settings.clock.now))

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
        made = {name: self._branch(name, given) for name, given in calls.items()}
        self._guard(EventKind.STEP, ", ".join(calls))
        done: dict[str, Found] = {}
        try:
            heads = {name: self._checked(call) for name, call in made.items()}
            waiting = {name: (call[0], heads[name][0]) for name, call in made.items()}
            while waiting and (found := self._cursor.take_any(waiting)):
                done[found[0]] = found[1]
                del waiting[found[0]]
            if waiting:
                self._spread({name: made[name] for name in waiting}, heads, done)
        except BaseException as stop:
            self._stop(stop)
        for _, payload in done.values():
            self._count(EventKind.STEP, payload)
        return {name: self._result(name, *done[name]) for name in calls}

    # ---- waits ----------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """Wait until `seconds` from now; the run is suspended and holds nothing.

        Crash:
            The wake-up time is recorded once: neither a crash nor a restart moves it.
        """
        timer, fired = EventKind.TIMER, EventKind.FIRED
        _, (_, begun) = self._fact((timer,), "sleep", lambda: (timer, self._due_in(seconds)))
        self._fact((fired,), "sleep", lambda: self._wait_until(begun["due_at"], fired))

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
        wait, received, timed_out = EventKind.WAIT, EventKind.RECEIVED, EventKind.TIMED_OUT
        _, (_, begun) = self._fact((wait,), name, lambda: (wait, self._due_in(timeout_s)))

        def outcome() -> tuple[EventKind, Any]:
            for signal in self._signals[name]:
                if begun["due_at"] is None or signal.recorded_at <= begun["due_at"]:
                    return received, {"signal": signal.payload["signal_id"]}
            return self._wait_until(begun["due_at"], timed_out)

        kind, (seq, verdict) = self._fact((received, timed_out), name, outcome)
        if kind is timed_out:
            return TIMED_OUT
        for signal in self._signals[name]:
            if (payload := signal.payload)["signal_id"] == verdict["signal"]:
                self._signals[name].remove(signal)
                return payload["result"]
        raise errors.JournalCorruptError("the signal received here is missing", self.run_id, seq)

    def child(
        self,
        workflow: Workflow,
        input: Any = None,  # noqa: A002 - as in Engine.start
        run_id: str | None = None,
    ) -> Any:
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
        limit_bytes, kind = self._settings.max_payload_bytes, EventKind.CHILD
        _, value = round_trip(input, "child", child_id, "input", limit_bytes)

        def begin() -> tuple[EventKind, Any]:
            if child_id not in self._children:
                self._settings.begin_child(workflow, value, child_id, self.run_id)
            return kind, {"workflow": workflow.name}

        def ended() -> tuple[EventKind, Any]:
            if child_id not in self._children:
                self._suspend(None)
            return EventKind.JOINED, self._children[child_id]

        self._fact((kind,), child_id, begin, digest_arguments((value,), {})[0])
        _, found = self._fact((EventKind.JOINED,), child_id, ended)
        return self._result(child_id, *found)

    def continue_as_new(self, input: Any = None) -> NoReturn:  # noqa: A002 - as in Engine.start
        """End this generation and go on with a new history, from the start of the workflow.

        Unread signals and what was spent go with it; `generation` counts up, the run id stays.

        Args:
            input: what the next generation begins with, a JSON value.

        Raises:
            DurableError: there is something to undo, which the next generation wouldn't know.

        Crash:
            The old generation ends and the new one is admitted in one transaction.
        """
        limit_bytes, kind = self._settings.max_payload_bytes, EventKind.CONTINUED
        text, _ = round_trip(input, "run", self.run_id, "input", limit_bytes)

        def leave() -> NoReturn:
            if self._saga and not self.pivoted:
                why = "has compensations, which continue_as_new would forget"
                raise errors.DurableError(reason=f"run {self.run_id} {why}", run_id=self.run_id)
            self._at(Position.BEFORE, kind, kind)
            raise Continued(text)

        self._fact((kind,), kind, leave)
        raise AssertionError

    # ---- versions and sagas ---------------------------------------------------------------------

    def patched(self, patch_id: str) -> bool:
        """Whether this run takes the new path of a change: `if ctx.patched("id"): … else: …`.

        A run that was admitted by code with the patch in it does, for good; one from before keeps
        the old path throughout. Once no run keeps it, the `if` can go and the new path stay.

        Args:
            patch_id: names the change; written out, so that the structure shows both paths.
        """
        check_name(patch_id, "patch id")
        self._guard(EventKind.PATCH, patch_id)
        taken = self._decided.get(patch_id, self._cursor.decision(patch_id))
        if taken is None:
            taken = self._patches.get(patch_id, not self.replaying)
            kind, fact = EventKind.PATCH, {"result": taken}
            if not self.replaying:  # what was decided in a replay is decided so again
                self._fact((kind,), patch_id, lambda: (kind, fact))
        self._decided[patch_id] = taken
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
        if {"idempotency_key", "effect_key"} & kwargs.keys():
            raise TypeError(f"compensation {name!r}: the engine hands the keys out")
        kind, key = EventKind.COMPENSATE, self._numbered("undo", name)
        self._fact((kind,), name, lambda: (kind, {}), digest_arguments(args, kwargs)[0])
        self._saga.register(name, fn, detached(args), detached(kwargs), key)

    def point_of_no_return(self) -> None:
        """From here on the run goes forward only: it can't be cancelled, and undoes nothing.

        A failure after it needs attention instead of ending the run; a budget likewise.
        """
        kind = EventKind.PIVOT
        self._fact((kind,), kind, lambda: (kind, {}))
        self.pivoted = True

    def unwind(self) -> None:
        """Run the compensations; called by the engine when the workflow function has been left.

        Raises:
            CompensationFailedError: one of them failed; the failed try is recorded.
        """
        self.stopped, self._unwinding, kind = None, True, EventKind.UNDO
        while self._saga:
            undo = self._saga.pop()
            body = partial(undo.fn, effect_key=undo.effect_key)
            self._perform((kind, undo.name, body, undo.args, undo.kwargs, None, 0.0, undo.key))

    # ---- how a durable call is answered ---------------------------------------------------------

    def _record(self, kind: EventKind, read: Callable[[], Any]) -> Any:
        """A value from outside the run, kept from its first reading on."""
        return self._perform((kind, kind, read, (), {}, None, 0.0, None))

    def _perform(self, call: _Call) -> Any:
        """Answer a durable call from the journal, or execute it."""
        kind, name = call[0], call[1]
        if self.stopped is not None or self._body_of is not None or get_ident() != self._thread:
            self._refuse(kind, name)
        digest, opaque = self._checked(call)
        try:
            recorded = self._cursor.take(kind, name, digest)
            seq, payload = recorded or self._execute(call, digest, opaque)
        except BaseException as stop:
            self._stop(stop)
        self._count(kind, payload)
        return self._result(name, seq, payload)

    def _checked(self, call: _Call) -> tuple[str, list[str]]:
        """The digest of a call that can be made at all, and the types that count by name only."""
        kind, name, fn, args, kwargs, retry, cost, _ = call
        check_name(name, "step name")
        if not callable(fn) or not (retry is None or isinstance(retry, RetryPolicy)):
            raise TypeError(f"{kind} {name!r} takes a function, and as retry= a RetryPolicy")
        if cost != 0.0 and not callable(cost):
            _check_number(cost, "the cost")
        return digest_arguments(args, kwargs)

    def _count(self, kind: EventKind, payload: Any) -> None:
        self.steps += kind in _COUNTED
        self.spent += payload.get("cost", 0.0)

    def _result(self, name: str, seq: int, payload: Any) -> Any:
        if "error" in payload:
            failed = {**payload["error"], "run_id": self.run_id, "step": name, "seq": seq}
            raise errors.StepFailedError(**failed)  # without its cause, which no replay would have
        return payload["result"]

    def _execute(self, call: _Call, digest: str, opaque: list[str]) -> tuple[int, Any]:
        """Do the work as often as the policy allows, and commit how it ended.

        Returns:
            What replay will find: sequence number and payload.
        """
        kind, name, _, _, _, _, cost, key = call
        head = _head(digest, opaque, key)
        tries, due_at = self._cursor.tried.pop(name, _UNTRIED)
        while True:
            if due_at:
                self._pause_until(due_at)
            self._look(cost, steps=kind in _COUNTED)
            tries += 1
            settled = self._settle(call, head, tries, self._try(call))
            if not isinstance(settled, float):
                return settled
            due_at = settled

    def _spread(
        self,
        waiting: dict[str, _Call],
        heads: Mapping[str, tuple[str, list[str]]],
        done: dict[str, Found],
    ) -> None:
        """Execute the branches that the journal doesn't know, and commit each as it ends."""
        tried = {name: self._cursor.tried.pop(name, _UNTRIED) for name in waiting}
        while waiting:
            self._pause_until(min(tried[name][1] for name in waiting))
            now = self._settings.clock.now()
            ready = {name: call for name, call in waiting.items() if tried[name][1] <= now}
            costs = (call[-2] for call in ready.values())
            self._look(sum(cost for cost in costs if not callable(cost)), steps=len(ready))
            bodies = {name: partial(self._try, call) for name, call in ready.items()}
            with closing(self._settings.spread(bodies)) as outcomes:
                for name, outcome in outcomes:
                    tries, head = tried[name][0] + 1, _head(*heads[name], ready[name][-1])
                    settled = self._settle(ready[name], head, tries, outcome)
                    if isinstance(settled, float):
                        tried[name] = tries, settled
                    else:
                        done[name] = settled
                        del waiting[name]

    def _try(self, call: _Call) -> Outcome:
        """One try: the result's text and the result as it reads back, or what it failed with."""
        kind, name, fn, args, kwargs, _, _, key = call
        if self._probe is not None:
            self._probe(Position.BEFORE, kind, name)
        given = detached(kwargs) if kwargs else {}
        if key is not None:
            given["idempotency_key"] = key
        self._body_of = name
        try:
            result = fn(*map(detached, args), **given)
            self.check_stopped()  # what the body made of a refused call is no result
            limit_bytes = self._settings.max_payload_bytes
            return *round_trip(result, kind, name, "result", limit_bytes), None
        except errors.StorageError:
            raise  # never a step's failure
        except Exception as error:
            self.check_stopped()  # a durable call in the body is the code's fault, not the step's
            return "", None, error
        finally:
            self._body_of = None

    def _settle(
        self, call: _Call, head: str, tries: int, outcome: Outcome
    ) -> tuple[int, Any] | float:
        """Commit how a try ended: what replay will find, or when the next try is due."""
        kind, name, _, _, _, retry, cost, _ = call
        text, value, error = outcome
        if tries > 1:
            head += f',"tries":{tries}'
        if error is None:
            spent = _check_number(cost(decode(text)), "the cost") if callable(cost) else float(cost)
            if spent:
                head += f',"cost":{spent!r}'
            seq = self._commit(kind, name, f'{{{head},"result":{text}}}')
            return seq, {"result": value, "cost": spent}
        # Stable fields: a traceback would differ at the next attempt.
        fields = {"type": type(error).__name__, "message": errors.message_of(error)}
        text, policy, undo = json.dumps(fields), retry or ONCE, kind is EventKind.UNDO
        if not undo and not policy.allows(tries, error):
            return self._commit(kind, name, f'{{{head},"error":{text}}}'), {"error": decode(text)}
        due_at = 0.0 if undo else float(self._settings.clock.now() + policy.delay_s(tries))
        head += f',"of":"{kind}","error":{text},"due_at":{due_at!r}'
        seq = self._commit(EventKind.TRY, name, f"{{{head}}}")
        if undo:  # never final: a person mends the cause, and it is tried again
            raise errors.CompensationFailedError(run_id=self.run_id, step=name, seq=seq, **fields)
        return due_at

    def _fact(
        self,
        kinds: tuple[EventKind, ...],
        name: str,
        decide: Callable[[], tuple[EventKind, Any]],
        digest: str | None = None,
    ) -> tuple[EventKind, Found]:
        """A fact of the run, of one of these kinds: as recorded, or decided now and recorded."""
        check_name(name, f"{kinds[0]} name")
        self._guard(kinds[0], name)
        try:
            kind, seq = self._cursor.upcoming(kinds), 0
            if found := self._cursor.take(kind, name, digest):
                return kind, found
            while not seq:  # until nothing came in between looking and recording
                self._look()
                kind, payload = decide()
                self._at(Position.BEFORE, kind, name)
                text = json.dumps(payload if digest is None else {**payload, "args": digest})
                seq = self._commit(kind, name, text, expected=self.read_to)
        except BaseException as stop:
            self._stop(stop)
        return kind, (seq, payload)

    def _commit(self, kind: EventKind, name: str, text: str, expected: int | None = None) -> int:
        """Store an event; its sequence number, or 0 where another came after the expected one."""
        self._at(Position.WINDOW, kind, name)
        # The crash window: the body has done its work, and until append returns no journal knows.
        progress: dict[str, Any] = {}
        if self._fresh:  # the attempt gets somewhere, and the history tells which it was
            progress, self._fresh = {"crashes": 0}, False
            if self.attempt > 1:
                text = f'{{"attempt":{self.attempt}{"," if len(text) > 2 else ""}{text[1:]}'
        entry = kind, name, text, self._settings.clock.now()
        seq = self._settings.journal.append(self._row, entry, expected=expected, **progress)
        if seq == self.read_to + 1:
            self.read_to = seq
        if seq:
            self._at(Position.AFTER, kind, name)
        return seq

    # ---- looking before anything is executed ----------------------------------------------------

    def _look(self, cost: Cost = 0.0, *, steps: int = 0) -> None:
        """See that the run is still ours and may go on, and hear what came from outside.

        Args:
            cost: what is about to be spent, where that is known.
            steps: how many steps are about to be executed.

        Raises:
            LeaseLostError: another worker has the run.
            RunCancelledError, BudgetExceededError: it ends here, which is recorded.
            HistoryTooLongError: there is no room for more.
        """
        last = self._settings.journal.peek(self._row)
        if last != self.read_to:
            self._hear(self._settings.journal.events(self._row, self.read_to))
        if self._holder.stopping is not None and self._holder.stopping():
            raise Released
        if self._unwinding:
            return
        if last >= self._watch_at:
            limit, self._watch_at = self._settings.max_events, self._settings.max_events
            if last >= limit:
                raise errors.HistoryTooLongError(run_id=self.run_id, seq=last, limit=limit)
            log.warning("run %s has %d events of %d at most", self.run_id, last, limit)
        if self._cancelled and not self.pivoted:
            self._end_by("cancelled", {})
        if self._settings.budget.limited:
            self._judge(0.0 if callable(cost) else cost, steps)

    def _hear(self, events: Iterable[Event]) -> None:
        """Sort what came from outside to where the code will ask for it."""
        for event in events:
            if event.kind is EventKind.SIGNAL:
                self._signals[event.name].append(event)
            elif event.kind is EventKind.CHILD_ENDED:
                self._children[event.name] = event.payload
            elif event.kind is EventKind.CANCEL:
                self._cancelled = True
            self.read_to = event.seq

    def _judge(self, cost: float, steps: int) -> None:
        """End the run if this call would use more than its budget."""
        budget, now = self._settings.budget, self._settings.clock.now()
        steps, cost = self.steps + steps, self.spent + cost
        for limit, allowed, spent, exceeded in (
            ("max_seconds", budget.max_seconds, now - self.since, now >= self._deadline),
            ("max_steps", budget.max_steps, steps, steps > (budget.max_steps or 0)),
            ("max_cost", budget.max_cost, cost, cost > (budget.max_cost or 0)),
        ):
            if allowed is not None and exceeded:
                self._end_by("budget", {"limit": limit, "spent": spent, "allowed": allowed})

    def _end_by(self, name: str, payload: dict[str, Any]) -> NoReturn:
        """Anchor the end of the run at this call; after the pivot nothing is anchored."""
        seq = self.read_to
        if not self.pivoted:
            seq = self._commit(EventKind.STOP, name, json.dumps(payload))
        raise stop_error(self.run_id, seq, payload)

    def _due_in(self, seconds: float | None) -> dict[str, Any]:
        if seconds is None:
            return {"due_at": None}
        return {"due_at": self._settings.clock.now() + _check_number(seconds, "the time to wait")}

    def _wait_until(self, due_at: float | None, kind: EventKind) -> tuple[EventKind, Any]:
        """What is recorded if it is that late; otherwise the run is suspended until then."""
        if due_at is None or self._settings.clock.now() < due_at:
            self._suspend(due_at)
        return kind, {}

    def _pause_until(self, due_at: float) -> None:
        """A back-off: waited out by `resume`, and by no worker."""
        clock = self._settings.clock
        while (wait_s := due_at - clock.now()) > 0:
            if not self._holder.patient:
                self._suspend(due_at)
            clock.sleep(wait_s)

    def _suspend(self, due_at: float | None) -> NoReturn:
        if self._deadline < inf and not self._unwinding and not self.pivoted:
            due_at = min(inf if due_at is None else due_at, self._deadline)
        raise Suspended(due_at)

    # ---- small things ---------------------------------------------------------------------------

    def _branch(self, name: str, given: Step | tuple[Any, ...]) -> _Call:
        step = given if isinstance(given, Step) else Step(*given)
        key = None
        if step.kind is EventKind.EFFECT:
            key = self._effect_key(name, step.key, step.kwargs)
        return step.kind, name, step.fn, step.args, step.kwargs, step.retry, step.cost, key

    def _effect_key(self, name: str, key: str | None, kwargs: Mapping[str, Any]) -> str:
        check_name(name, "step name")
        if "idempotency_key" in kwargs:
            raise TypeError(f"effect {name!r}: the engine hands the key out; say key= instead")
        own_key = self._numbered("effect", name)
        if key is not None:
            check_name(key, "idempotency key")
        key = own_key if key is None else key
        self._saga.bind(name, key)
        return key

    def _numbered(self, what: str, name: str) -> str:
        """A key for this occurrence of a name: the same in every attempt, and no other's."""
        count = self._numbers.get((what, name), 0) + 1
        self._numbers[what, name] = count
        key = f"{self._key_base}/{name.translate(_KEY_SIGNS)}"
        return key if count == 1 else f"{key}#{count}"

    def _at(self, position: Position, kind: EventKind, name: str) -> None:
        if self._probe is not None:
            self._probe(position, kind, name)

    def _guard(self, kind: EventKind, name: str) -> None:
        if self.stopped is not None or self._body_of is not None or get_ident() != self._thread:
            self._refuse(kind, name)

    def _refuse(self, kind: EventKind, name: str) -> NoReturn:
        """Refuse a durable call that replay couldn't find again, and any call after a stop."""
        self.check_stopped()
        reason = "from another thread" if self._thread else "after the attempt ended"
        if self._body_of is not None:
            reason = f"inside the body of step {self._body_of!r}"
        call = f"{kind} {name!r}"
        self._stop(errors.DurableCallError(run_id=self.run_id, call=call, reason=reason))

    def _stop(self, reason: BaseException) -> NoReturn:
        """End this attempt: every later durable call raises the first reason again."""
        self.stopped = self.stopped or reason
        raise reason

    def check_stopped(self) -> None:
        """Raise what stopped this attempt."""
        if self.stopped is not None:
            raise self.stopped

    def check_end(self, ending: str) -> None:
        """Raise unless the run may end here: nothing recorded left unasked for."""
        self._cursor.finish(ending)

    def unread(self) -> list[Entry]:
        """The signals that nobody has read, in the order of their arrival."""
        waiting = [signal for queue in self._signals.values() for signal in queue]
        return [signal[1:] for signal in sorted(waiting)]

    def leave(self) -> None:
        """Refuse durable calls from now on."""
        self._thread = 0  # no thread is the driving one any more


def key_base(row: RunRow, admitted: Mapping[str, Any]) -> str:
    """What a generation's keys begin with; a migrated run goes on with those of the old one."""
    base = row.run_id.translate(_KEY_SIGNS)
    own = base if row.generation == 1 else f"{base}~{row.generation}"
    return str(admitted.get("key_base", own))


def _head(digest: str, opaque: list[str], key: str | None) -> str:
    head = f'"args":"{digest}"'
    if opaque:
        head += f',"opaque":{json.dumps(opaque)}'
    return head if key is None else f'{head},"key":{json.dumps(key)}'


def _check_number(value: Any, what: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and isfinite(value) and value >= 0):
        raise ValueError(f"{what} is {value!r}, not a finite number of at least 0")
    return float(value)
