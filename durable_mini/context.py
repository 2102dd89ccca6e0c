"""What workflow code may call: steps, effects, recorded time and chance, waits, children, undos.

Guarantees: a durable call that the journal knows returns what was recorded and executes nothing;
one that it doesn't know is executed, and its outcome is stored before the code sees it, so that
live equals replay. Before anything is executed the worker's hold on the run is looked at. After
anything that stops the engine every later call raises it again: no `except` in workflow code can
go on. Leaves to others: starting, ending and resuming runs (`engine`).
"""

import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from enum import Enum
from functools import partial
from itertools import chain
from math import inf, isfinite
from threading import get_ident
from typing import Any, NamedTuple, NoReturn

from durable_mini import errors
from durable_mini.clock import SystemClock
from durable_mini.codec import check_name, decode, detached, digest_arguments, encode, round_trip
from durable_mini.events import OUTSIDE, Entry, Event, EventKind, Position, RunRow, RunStatus, log
from durable_mini.journal import Journal
from durable_mini.lease import Holder
from durable_mini.limits import Budget
from durable_mini.replay import Cursor, stop_error
from durable_mini.retry import ONCE, Fn, RetryPolicy
from durable_mini.saga import Undo, bind
from durable_mini.structure import Workflow

__all__ = ["TIMED_OUT", "Context", "Effect", "Step", "in_threads", "in_turn"]

Retry = RetryPolicy | None
Cost = float | Callable[[Any], float]
Probe = Callable[[Position, EventKind, str], None]
Fact = tuple[EventKind, Any]  # what happened, and its payload
Decide = Callable[[], Fact]
Found = tuple[int, Any]  # what replay hands out: a sequence number and a payload
Outcome = tuple[str, Any, Exception | None]  # a result as text and as read back, or an error
Branches = Mapping[str, Callable[[], Outcome]]
Spread = Callable[[Branches], Generator[tuple[str, Outcome], None, None]]
Patches = Mapping[str, bool]
# A durable call: kind, name, body, arguments by place and by name, policy, cost, an effect's key. A
# plain tuple, since one is made for every step, and a named one takes eight times as long to make.
_Head = tuple[str, list[str]]  # the digest of a call's arguments, and their opaque types
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


class LetGo(BaseException):
    """The attempt ends and the run doesn't: it is suspended, free for others, or continued as new.

    `due_at` is from when on it may be taken again (seconds; None: when something arrives), `text`
    the input of its next generation.
    """

    def __init__(self, status: RunStatus, due_at: float | None, text: str | None = None) -> None:
        self.status, self.due_at, self.text = status, due_at, text


class Step:
    """A step as a branch of `gather`: `fn(*args, **kwargs)`, with what `Context.step` takes."""

    kind = EventKind.STEP
    key: str | None = None

    def __init__(
        self, fn: Fn, /, *args: Any, retry: Retry = None, cost: Cost = 0.0, **kwargs: Any
    ) -> None:
        self.call = fn, args, kwargs, retry, cost


class Effect(Step):
    """An effect as a branch of `gather`; `fn` also receives `idempotency_key=`."""

    kind = EventKind.EFFECT

    def __init__(self, fn: Fn, /, *args: Any, key: str | None = None, **options: Any) -> None:
        super().__init__(fn, *args, **options)
        self.key = key


def in_threads(branches: Branches) -> Generator[tuple[str, Outcome], None, None]:
    """Run the branches of a `gather` side by side; each is given as it ends, and all are joined."""
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
    run for a parent, as `Engine.start`.
    """

    journal: Journal
    clock: SystemClock
    max_payload_bytes: int
    compare_arguments: bool
    probe: Probe | None
    budget: Budget
    max_events: int
    spread: Spread
    begin_child: Callable[..., str]


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
        self, settings: Settings, row: RunRow, events: list[Event], patches: Patches, holder: Holder
    ) -> None:
        self.run_id, self.generation, self.attempt = row.run_id, row.generation, row.attempts
        self.stopped: BaseException | None = None  # what ended this attempt
        self.child_id: str | None = None  # what the run waits for
        self.pivoted = self._unwinding = self._cancelled = False
        self.read_to, admitted = 0, events[0].payload
        self.since: float = admitted.get("since", events[0].recorded_at)
        self.began_with = admitted.get("began_with", admitted["input"])  # its first generation
        self._settings, self._row, self._holder, self._patches = settings, row, holder, patches
        self._journal, self._clock, self._probe = settings.journal, settings.clock, settings.probe
        self.cursor = Cursor(row.run_id, events, compare_arguments=settings.compare_arguments)
        self._key_base = key_base(row, admitted)
        self._thread, self._fresh = get_ident(), True
        self._body_of: str | None = None  # the step whose body is running
        self._decided, self._told, self._undos = dict[str, bool](), set[str](), list[Undo]()
        self._numbers = Counter[tuple[str, str]]()
        max_seconds, self._limited = settings.budget.max_seconds, settings.budget.limited
        self._deadline = inf if max_seconds is None else self.since + max_seconds
        self._watch_at = int(settings.max_events * _NEAR)
        self._outside = defaultdict[tuple[EventKind, str], list[Event]](list)  # and not yet read
        self._hear(events)

    @property
    def replaying(self) -> bool:
        """Whether the next durable call is answered from the journal, executing nothing."""
        return self.cursor.replaying

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
        made = {name: self._branch(name, given) for name, given in calls.items()}
        self._guard(EventKind.STEP, ", ".join(map(str, calls)))
        done: dict[str, Found] = {}
        try:
            heads = {name: self._checked(call) for name, call in made.items()}
            waiting = {name: (call[0], heads[name][0]) for name, call in made.items()}
            while waiting and (found := self.cursor.take_any(waiting)):
                done[found[0]] = found[1]
                del waiting[found[0]]
            if waiting:
                self._spread({name: made[name] for name in waiting}, heads, done)
        except BaseException as stop:
            self._stop(stop)
        return {name: self._answer(name, done[name], call[7]) for name, call in made.items()}

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

        def begin() -> Fact:
            return wait, {"due_at": None} if timeout_s is None else self._due_in(timeout_s)

        _, (wait_seq, begun) = self._fact((wait,), name, begin)

        queue = self._outside[EventKind.SIGNAL, name]

        def outcome() -> Fact:
            for signal in queue:
                due_at = begun["due_at"]
                if due_at is None or signal.seq < wait_seq or signal.recorded_at <= due_at:
                    return received, signal.payload
            return self._wait_until(begun["due_at"], timed_out)

        kind, (_, got) = self._fact((received, timed_out), name, outcome)
        if kind is timed_out:
            return TIMED_OUT
        queue[:] = [one for one in queue if one.payload["signal_id"] != got["signal_id"]]
        return got["result"]

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
        limit_bytes, kind = self._settings.max_payload_bytes, EventKind.CHILD
        _, value = round_trip(input, "child", child_id, "input", limit_bytes)

        ended = self._outside[EventKind.CHILD_ENDED, child_id]

        def begin() -> Fact:
            self._settings.begin_child(workflow, value, run_id=child_id, parent=self._row)
            return kind, {"workflow": workflow.name}

        def join() -> Fact:
            return (EventKind.JOINED, ended[0].payload) if ended else self._wait_until(None, kind)

        self.child_id = child_id
        self._fact((kind,), child_id, begin, digest_arguments((workflow.name, value), {})[0])
        _, found = self._fact((EventKind.JOINED,), child_id, join)
        self.child_id = None
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
        limit_bytes, kind = self._settings.max_payload_bytes, EventKind.CONTINUED
        text, _ = round_trip(input, "run", self.run_id, "input", limit_bytes)

        def leave() -> NoReturn:
            if self._undos and not self.pivoted:
                why = "has compensations, which continue_as_new would forget"
                raise errors.DurableError(reason=f"run {self.run_id} {why}", run_id=self.run_id)
            raise LetGo(RunStatus.PENDING, 0.0, text)

        self._fact((kind,), kind, leave)
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
        taken, kind, stop = self.cursor.decision(patch_id), EventKind.PATCH, EventKind.STOP
        if taken is None:
            known = self._patches.get(patch_id, not self.replaying)
            taken = self._decided.setdefault(patch_id, known)
            stops = self.cursor.upcoming((kind, stop)) is stop  # where it was asked the last time
            if patch_id not in self._told and (stops or not self.replaying):
                self._fact((kind,), patch_id, lambda: (kind, {"result": taken}))
                self._told.add(patch_id)
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
        check_name(name, "compensate name")
        if not callable(fn):
            raise TypeError(f"compensation {name!r} takes a function")
        kind, key = EventKind.COMPENSATE, self._numbered("undo", name)
        self._fact((kind,), name, lambda: (kind, {}), digest_arguments(args, kwargs)[0])
        effect_key = self._key(name, self._numbers["effect", name] + 1)  # of the next of that name
        undo = Undo(name, fn, detached(args), detached(kwargs), f"{key}~undo", effect_key)
        self._undos.append(undo)

    def point_of_no_return(self) -> None:
        """From here on the run goes forward only: it can't be cancelled, and undoes nothing.

        A failure after it needs attention instead of ending the run; a budget likewise.

        Crash:
            Before the commit the run can still be cancelled, and a request that was recorded first
            wins; after it every attempt goes forward.
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
        while self._undos:
            undo = self._undos.pop()
            body = partial(undo.fn, effect_key=undo.effect_key)
            self._perform((kind, undo.name, body, undo.args, undo.kwargs, None, 0.0, undo.key))

    # ---- how a durable call is answered ---------------------------------------------------------

    def _record(self, kind: EventKind, read: Callable[[], Any]) -> Any:
        """A value from outside the run, kept from its first reading on."""
        return self._perform((kind, kind, read, (), {}, None, 0.0, None))

    def _perform(self, call: _Call) -> Any:
        """Answer a durable call from the journal, or try it as often as its policy allows."""
        kind, name = call[:2]
        self._guard(kind, name)
        head = self._checked(call)
        try:
            found: Found | float | None = self.cursor.take(kind, name, head[0])
            if found is None:
                tries, found = self.cursor.tried.pop((kind, name), _UNTRIED)
            while isinstance(found, float):  # when the next try is due
                if found:
                    self._look()
                    self._wait_until(found, kind, patient=self._holder.patient)
                self._look(call)
                tries += 1
                found = self._settle(call, head, tries, self._try(call))
        except BaseException as stop:
            self._stop(stop)
        return self._answer(name, found, call[7])

    def _checked(self, call: _Call) -> _Head:
        """The digest of a call that can be made at all, and the types that count by name only."""
        kind, name, fn, args, kwargs, retry, cost, _ = call
        check_name(name, "step name")
        if not callable(fn) or not (retry is None or isinstance(retry, RetryPolicy)):
            raise TypeError(f"{kind} {name!r} takes a function, and as retry= a RetryPolicy")
        if cost != 0.0 and not callable(cost):
            _check_number(cost, "the cost")
        return digest_arguments(args, kwargs)

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

    def _spread(
        self, waiting: dict[str, _Call], heads: Mapping[str, _Head], done: dict[str, Found]
    ) -> None:
        """Execute the branches that the journal doesn't know, and commit each as it ends."""
        known = self.cursor.tried
        tried = {name: known.pop((call[0], name), _UNTRIED) for name, call in waiting.items()}
        while waiting:
            self._look()
            first_due_at = min(tried[name][1] for name in waiting)
            self._wait_until(first_due_at, EventKind.TRY, patient=self._holder.patient)
            now = self._clock.now()
            ready = {name: call for name, call in waiting.items() if tried[name][1] <= now}
            self._look(*ready.values())
            bodies = {name: partial(self._try, call) for name, call in ready.items()}
            with closing(self._settings.spread(bodies)) as outcomes:
                for name, outcome in outcomes:
                    tries = tried[name][0] + 1
                    settled = self._settle(ready[name], heads[name], tries, outcome)
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

    def _settle(self, call: _Call, head: _Head, tries: int, outcome: Outcome) -> Found | float:
        """Commit how a try ended: what replay will find, or when the next try is due."""
        kind, name, _, _, _, retry, cost, key = call
        text, value, error = outcome
        digest, opaque = head
        said = f'"args":"{digest}"'
        if opaque:
            said += f',"opaque":{encode(opaque)}'
        if key is not None:
            said += f',"key":{encode(key)}'
        if tries > 1:
            said += f',"tries":{tries}'
        if error is None:
            spent = _check_number(cost(decode(text)), "the cost") if callable(cost) else float(cost)
            self.cursor.count(kind, spent)
            if spent:
                said += f',"cost":{spent!r}'
            seq = self._commit(kind, name, f'{{{said},"result":{text}}}')
            return seq, {"result": value, "cost": spent}
        # Stable fields: a traceback would differ at the next attempt.
        fields = {"type": type(error).__name__, "message": errors.message_of(error)}
        text, policy, undo = encode(fields), retry or ONCE, kind is EventKind.UNDO
        if not undo and not policy.allows(tries, error):
            self.cursor.count(kind, 0.0)
            return self._commit(kind, name, f'{{{said},"error":{text}}}'), {"error": decode(text)}
        due_at = 0.0 if undo else float(self._clock.now() + policy.delay_s(tries))
        said += f',"of":"{kind}","error":{text},"due_at":{due_at!r}'
        seq = self._commit(EventKind.TRY, name, f"{{{said}}}")
        if undo:  # never final: a person mends the cause, and it is tried again
            raise errors.CompensationFailedError(run_id=self.run_id, step=name, seq=seq, **fields)
        return due_at

    def _fact(
        self, kinds: Sequence[EventKind], name: str, decide: Decide, digest: str | None = None
    ) -> tuple[EventKind, Found]:
        """A fact of the run, of one of these kinds: as recorded, or decided now and recorded."""
        check_name(name, f"{kinds[0]} name")
        self._guard(kinds[0], name)
        try:
            kind, seq = self.cursor.upcoming(kinds), 0
            if found := self.cursor.take(kind, name, digest):
                return kind, found
            while not seq:  # until nothing came in between looking and recording
                self._look()
                kind, payload = decide()
                if self._probe is not None:
                    self._probe(Position.BEFORE, kind, name)
                text = encode(payload if digest is None else {**payload, "args": digest})
                seq = self._commit(kind, name, text, expected=self.read_to)
        except BaseException as stop:
            self._stop(stop)
        return kind, (seq, payload)

    def _commit(self, kind: EventKind, name: str, text: str, expected: int | None = None) -> int:
        """Store an event; its sequence number, or 0 where another came after the expected one."""
        probe = self._probe
        progress: dict[str, Any] = {}
        if probe is not None:
            probe(Position.WINDOW, kind, name)
        # The crash window: the body has done its work, and until append returns no journal knows.
        if self._fresh:  # the attempt gets somewhere, and the history tells which it was
            progress = {"crashes": 0}
            if self.attempt > 1:
                text = f'{{"attempt":{self.attempt}{"," if len(text) > 2 else ""}{text[1:]}'
        entry = kind, name, text, self._clock.now()
        seq = self._journal.append(self._row, entry, expected=expected, **progress)
        self._fresh = self._fresh and not seq
        if seq == self.read_to + 1:
            self.read_to = seq
        if probe is not None and seq:
            probe(Position.AFTER, kind, name)
        return seq

    # ---- looking before anything is executed ----------------------------------------------------

    def _look(self, *calls: _Call) -> None:
        """See that the run is still ours and may make these calls; hear what came from outside.

        Raises:
            LeaseLostError: another worker has the run.
            RunCancelledError, BudgetExceededError: it ends here, which is recorded.
            HistoryTooLongError: there is no room for more.
        """
        last = self._journal.peek(self._row)
        if last != self.read_to:
            self._hear(self._journal.events(self._row, self.read_to))
        if self._holder.stopping is not None and self._holder.stopping():
            raise LetGo(RunStatus.PENDING, 0.0)
        if self._unwinding:
            return
        if last >= self._watch_at:
            limit, self._watch_at = self._settings.max_events, self._settings.max_events
            if last >= limit:
                raise errors.HistoryTooLongError(run_id=self.run_id, seq=last, limit=limit)
            here = {"run_id": self.run_id, "seq": last}
            log.warning("run %s has %d events of %d", self.run_id, last, limit, extra=here)
        if self._cancelled and not self.pivoted:
            self._end_by("cancelled", {})
        if self._limited:
            self._judge(calls)

    def _hear(self, events: Iterable[Event]) -> None:
        """Put what came from outside where the code will ask for it."""
        for event in events:
            if event.kind in OUTSIDE:
                self._outside[event.kind, event.name].append(event)
                self._cancelled = self._cancelled or event.kind is EventKind.CANCEL
            self.read_to = event.seq

    def _judge(self, calls: Sequence[_Call]) -> None:
        """End the run if these calls would use more than its budget."""
        now, budget = self._clock.now(), self._settings.budget
        costs = (call[6] for call in calls)
        known = self.cursor.spent + sum(cost for cost in costs if not callable(cost))
        steps = self.cursor.steps + sum(call[0] in _COUNTED for call in calls)
        used = {"max_seconds": now - self.since, "max_steps": steps, "max_cost": known}
        for limit, spent in used.items():
            allowed = getattr(budget, limit)
            late = limit == "max_seconds" and now >= self._deadline
            if allowed is not None and (late or spent > allowed):
                self._end_by("budget", {"limit": limit, "spent": spent, "allowed": allowed})

    def _end_by(self, name: str, payload: dict[str, Any]) -> NoReturn:
        """Anchor the end of the run at this call; after the pivot nothing is anchored."""
        seq = self.read_to
        if not self.pivoted:
            seq = self._commit(EventKind.STOP, name, encode(payload))
        raise stop_error(self.run_id, seq, payload)

    def _due_in(self, seconds: float) -> dict[str, Any]:
        return {"due_at": self._clock.now() + _check_number(seconds, "the time to wait")}

    def _wait_until(self, due_at: float | None, kind: EventKind, *, patient: bool = False) -> Fact:
        """What is recorded once it is that late; until then the run is suspended.

        A patient holder waits instead.
        """
        while due_at is None or (wait_s := due_at - self._clock.now()) > 0:
            if due_at is None or not patient:
                judged = not self._unwinding and not self.pivoted
                wake_at = min(inf if due_at is None else due_at, self._deadline if judged else inf)
                raise LetGo(RunStatus.SUSPENDED, None if wake_at == inf else wake_at)
            self._clock.sleep(wait_s)
        return kind, {}

    # ---- small things ---------------------------------------------------------------------------

    def _branch(self, name: str, given: Step | tuple[Any, ...]) -> _Call:
        step = given if isinstance(given, Step) else Step(*given)
        effect = step.kind is EventKind.EFFECT
        key = self._effect_key(name, step.key, step.call[2]) if effect else None
        return step.kind, name, *step.call, key

    def _effect_key(self, name: str, key: str | None, kwargs: Mapping[str, Any]) -> str:
        self._guard(EventKind.EFFECT, name)
        check_name(name, "step name")
        check_name(name if key is None else key, "idempotency key")
        if "idempotency_key" in kwargs:
            raise TypeError(f"effect {name!r}: the engine hands the key out; say key= instead")
        own_key = self._numbered("effect", name)
        key = own_key if key is None else key
        bind(self._undos, name, key)
        return key

    def _numbered(self, what: str, name: str) -> str:
        """A key for this occurrence of a name: the same in every attempt, and no other's."""
        self._numbers[what, name] += 1
        return self._key(name, self._numbers[what, name])

    def _key(self, name: str, count: int) -> str:
        key = f"{self._key_base}/{name.translate(_KEY_SIGNS)}"
        return key if count == 1 else f"{key}#{count}"

    def _guard(self, kind: EventKind, name: str) -> None:
        """Refuse a durable call that replay couldn't find again, and any call after a stop."""
        if self.stopped is None and self._body_of is None and get_ident() == self._thread:
            return
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

    def unread(self) -> list[Entry]:
        """The signals that nobody has read, in the order of their arrival."""
        queues = (queue for (kind, _), queue in self._outside.items() if kind is EventKind.SIGNAL)
        return [signal[1:] for signal in sorted(chain.from_iterable(queues))]

    def leave(self) -> None:
        """Refuse durable calls from now on."""
        self._thread = 0  # no thread is the driving one any more


def key_base(row: RunRow, admitted: Mapping[str, Any]) -> str:
    """What a generation's keys begin with; a migrated run goes on with those of the old one."""
    own = row.run_id.translate(_KEY_SIGNS) + (f"~{row.generation}" if row.generation > 1 else "")
    return str(admitted.get("key_base", own))


def _check_number(value: Any, what: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and isfinite(value) and value >= 0):
        raise ValueError(f"{what} is {value!r}, not a finite number of at least 0")
    return float(value)
