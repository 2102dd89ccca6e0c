"""What workflow code may call: steps, effects, and recorded time and chance.

Guarantees: a durable call that the journal knows returns what was recorded and executes nothing;
one that it doesn't know is executed, and its outcome is stored before the code sees it, so that
live equals replay. After anything that stops the engine every later call raises it again: no
`except` in workflow code can go on. Leaves to others: starting, ending and resuming runs
(`engine`).
"""

import json
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from threading import get_ident
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote

from durable_mini.clock import Clock
from durable_mini.codec import check_name, detached, digest_arguments, round_trip
from durable_mini.errors import DurableCallError, PayloadError, StepFailedError
from durable_mini.events import Event, EventKind, Position, RunRow
from durable_mini.journal import Journal
from durable_mini.replay import Cursor
from durable_mini.retry import ONCE, RetryPolicy

Probe = Callable[[Position, EventKind, str], None]
Cost = float | Callable[[Any], float]

MAX_MESSAGE_LENGTH = 2_000
_KEY_SAFE = "!$&'()*+,:;=@ "  # everything printable but the key's own signs: / # ~ %


@dataclass(frozen=True, slots=True)
class Settings:
    """What every attempt of an engine shares.

    `probe` is called at the three positions of every live durable call: a test may raise there, or
    die.
    """

    journal: Journal
    clock: Clock
    max_payload_bytes: int
    compare_arguments: bool
    probe: Probe | None


class _Call(NamedTuple):
    """A step or an effect as the workflow code asked for it; `key` is None for a step."""

    kind: EventKind
    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    retry: RetryPolicy
    cost: Cost
    key: str | None


class Context:
    """A run as its workflow code sees it, for the length of one attempt.

    Attributes: `run_id`; `generation` (from 1); `attempt` (from 1, this one included); `replaying`
    (whether the next durable call will be answered from the journal).
    """

    def __init__(
        self, settings: Settings, row: RunRow, attempt: int, events: Sequence[Event]
    ) -> None:
        self.run_id, self.generation, self.attempt = row.run_id, row.generation, attempt
        self._journal, self._clock, self._probe = settings.journal, settings.clock, settings.probe
        self._max_payload_bytes = settings.max_payload_bytes
        self._cursor = Cursor(row.run_id, events, compare_arguments=settings.compare_arguments)
        self._seq = len(events)
        self._thread = get_ident()
        self._body_of: str | None = None  # the step whose body is running
        self._keys_given: dict[str, int] = {}
        self._stopped: BaseException | None = None
        self._cost = 0.0

    @property
    def replaying(self) -> bool:
        """Whether the next durable call is answered from the journal, executing nothing."""
        return self._cursor.replaying

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        retry: RetryPolicy | None = None,
        cost: Cost = 0.0,
        **kwargs: Any,
    ) -> Any:
        """Run `fn(*args, **kwargs)` once and record its result; on replay return the record.

        Args: name: what the step is called in the journal, 1 to 200 printable characters. fn: a
            plain function that returns a JSON value. It gets copies of lists and dictionaries.
            retry: how often it is tried; once by default. cost: what it costs, in units of your
            choice, or a function of its result.

        Returns: The result as JSON gives it back: tuples are lists, keys are strings, the first
            time too.

        Raises:
            StepFailedError: it failed for good; that is recorded, and raised again on replay.
            NonDeterminismError: the journal holds another call at this place.

        Crash:
            Before the commit the step is unknown, and the next attempt runs it again.
        """
        return self._perform(
            _Call(EventKind.STEP, name, fn, args, kwargs, retry or ONCE, cost, None)
        )

    def effect(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        retry: RetryPolicy | None = None,
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
        check_name(name, "step name")
        if key is None:
            key = self._key_for(name)
        else:
            check_name(key, "idempotency key")
        return self._perform(
            _Call(EventKind.EFFECT, name, fn, args, kwargs, retry or ONCE, cost, key)
        )

    def now(self) -> float:
        """The time of the first execution, in seconds since the epoch; on replay the recorded
        one.
        """
        return float(self._record(EventKind.NOW, self._clock.now))

    def random(self) -> float:
        """A random number in [0, 1), drawn once and recorded."""
        return float(self._record(EventKind.RANDOM, random.random))

    def uuid(self) -> str:
        """A random UUID as a string, drawn once and recorded."""
        return str(self._record(EventKind.UUID, lambda: str(uuid.uuid4())))

    def _record(self, kind: EventKind, produce: Callable[[], Any]) -> Any:
        """A value from outside the run, kept from its first reading on."""
        self._enter(kind, kind)
        try:
            recorded = self._cursor.take(kind, kind)
            if recorded is None:
                self._reach(Position.BEFORE, kind, kind)
                text, value = round_trip(produce(), kind, kind, "value", self._max_payload_bytes)
                self._commit(kind, kind, f'{{"result":{text}}}')
                return value
        except BaseException as stop:
            self.stop(stop)
        return recorded[1]["result"]

    def _perform(self, call: _Call) -> Any:
        """Answer a step or an effect from the journal, or execute it."""
        kind, name, _, args, kwargs, _, cost, _ = call
        self._enter(kind, name)
        check_name(name, "step name")
        if cost and not callable(cost):
            _check_cost(cost)
        digest, opaque = digest_arguments(args, kwargs, kind, name)
        try:
            recorded = self._cursor.take(kind, name, digest)
            if recorded is None:
                return self._execute(call, digest, opaque)
        except StepFailedError:
            raise
        except BaseException as stop:
            self.stop(stop)
        return self._outcome(name, *recorded)

    def _outcome(self, name: str, event: Event, payload: Any) -> Any:
        """What a recorded step gave: its result, or the failure that it ended in."""
        if "error" in payload:
            kind_of_error, message = payload["error"]["type"], payload["error"]["message"]
            raise StepFailedError(
                kind_of_error, message, step=name, run_id=self.run_id, seq=event.seq
            )
        self._cost += payload.get("cost", 0.0)
        return payload["result"]

    def _execute(self, call: _Call, digest: str, opaque: tuple[str, ...]) -> Any:
        """Do the work, as often as the policy allows, and commit how it ended."""
        head = f'"args":"{digest}"'
        if opaque:
            head += f',"opaque":{json.dumps(opaque)}'
        if call.key is not None:
            head += f',"key":{json.dumps(call.key)}'
        tries = 1
        while True:
            try:
                text, value, spent = self._try(call)
                break
            except _TryFailed as failed:
                error = failed.error
            if isinstance(error, PayloadError) or not call.retry.allows(tries, error):
                raise self._fail(call, head, tries, error)
            self._clock.sleep(call.retry.delay_s(tries))
            tries += 1
        if tries > 1:
            head += f',"tries":{tries}'
        if spent:
            head += f',"cost":{spent!r}'
        self._commit(call.kind, call.name, f'{{{head},"result":{text}}}')
        self._cost += spent
        return value

    def _try(self, call: _Call) -> tuple[str, Any, float]:
        """One try: the result's text, the result as replay will see it, and what it cost."""
        kind, name, fn, args, kwargs, _, cost, key = call
        self._reach(Position.BEFORE, kind, name)
        given = detached(kwargs) if kwargs else {}
        if key is not None:
            given["idempotency_key"] = key
        self._body_of = name
        try:
            result = fn(*[detached(argument) for argument in args], **given)
            text, value = round_trip(result, kind, name, "result", self._max_payload_bytes)
            spent = _spent(cost, value, kind, name) if callable(cost) else cost
        except Exception as error:
            if self._stopped is not None:  # a durable call in the body: not the step's failure
                raise self._stopped from None
            raise _TryFailed(error) from error
        finally:
            self._body_of = None
        return text, value, spent

    def _fail(self, call: _Call, head: str, tries: int, error: Exception) -> StepFailedError:
        """Commit a final failure as stable fields: a traceback would differ at the next attempt."""
        kind_of_error, message = type(error).__name__, str(error)[:MAX_MESSAGE_LENGTH]
        if tries > 1:
            head += f',"tries":{tries}'
        stored = json.dumps({"type": kind_of_error, "message": message})
        self._commit(call.kind, call.name, f'{{{head},"error":{stored}}}')
        failure = StepFailedError(
            kind_of_error, message, step=call.name, run_id=self.run_id, seq=self._seq
        )
        failure.__cause__ = error
        return failure

    def _commit(self, kind: EventKind, name: str, text: str) -> None:
        self._reach(Position.WINDOW, kind, name)
        # The crash window: the body has done its work, and until append returns no journal knows.
        event = Event(self._seq + 1, kind, name, text, self._clock.now())
        self._journal.append(self.run_id, self.generation, event)
        self._seq += 1
        self._reach(Position.AFTER, kind, name)

    def _reach(self, position: Position, kind: EventKind, name: str) -> None:
        if self._probe is not None:
            self._probe(position, kind, name)

    def _enter(self, kind: EventKind, name: str) -> None:
        """Refuse a durable call that replay couldn't find again, and any call after a stop."""
        if self._stopped is not None:
            raise self._stopped
        body = self._body_of
        if body is None and get_ident() == self._thread:
            return
        reason = "from another thread" if body is None else f"inside the body of step {body!r}"
        self.stop(DurableCallError(self.run_id, f"{kind} {name!r}", reason))

    def _key_for(self, name: str) -> str:
        count = self._keys_given.get(name, 0) + 1
        self._keys_given[name] = count
        key = f"{_quoted(self.run_id)}/{_quoted(name)}"
        return key if count == 1 else f"{key}#{count}"

    @property
    def next_seq(self) -> int:
        """The sequence number of the event that would be appended next."""
        return self._seq + 1

    @property
    def cost(self) -> float:
        """Committed spend of the steps so far, replayed and live."""
        return self._cost

    def check_stopped(self) -> None:
        """Raise what stopped this attempt, whatever the workflow code made of it."""
        if self._stopped is not None:
            raise self._stopped

    def check_end(self, ending: str) -> None:
        """Raise unless the run may end here: not stopped, and nothing recorded left unasked for."""
        self.check_stopped()
        self._cursor.finish(ending)

    def leave(self) -> None:
        """Refuse durable calls from now on: the attempt is over."""
        if self._stopped is None:
            self._stopped = DurableCallError(
                self.run_id, "a durable call", "after the attempt ended"
            )

    def stop(self, reason: BaseException) -> NoReturn:
        """End this attempt: every later durable call raises the first reason again."""
        if self._stopped is None:
            self._stopped = reason
        raise reason


class _TryFailed(Exception):  # noqa: N818 - never leaves this module
    """Carries a step's own exception past the engine's, so that neither is taken for the other."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__()


@lru_cache(maxsize=4096)
def _quoted(part: str) -> str:
    return quote(part, safe=_KEY_SAFE)


def _check_cost(cost: Any) -> float:
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        raise TypeError(f"the cost is of type {type(cost).__name__}, not a number")
    if not (isfinite(cost) and cost >= 0):
        raise ValueError(f"the cost is {cost!r}, not a finite number of at least 0")
    return cost


def _spent(cost: Callable[[Any], float], result: Any, kind: EventKind, name: str) -> float:
    try:
        return _check_cost(cost(result))
    except Exception as error:
        raise PayloadError(kind, name, "cost", f"can't be had from the result: {error}") from error
