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
from collections.abc import Callable
from math import isfinite
from threading import get_ident
from typing import Any, NamedTuple, NoReturn

from durable_mini.clock import SystemClock
from durable_mini.codec import check_name, decode, detached, digest_arguments, round_trip
from durable_mini.errors import DurableCallError, StepFailedError, StorageError, message_of
from durable_mini.events import Event, EventKind, Position, RunRow
from durable_mini.journal import Journal
from durable_mini.replay import Cursor
from durable_mini.retry import ONCE, RetryPolicy

Fn = Callable[..., Any]
Retry = RetryPolicy | None
Cost = float | Callable[[Any], float]
Probe = Callable[[Position, EventKind, str], None]
# A durable call: kind, name, body, arguments by place and by name, policy, cost, an effect's key. A
# plain tuple, since one is made for every step, and a named one takes eight times as long to make.
_Call = tuple[EventKind, str, Fn, tuple[Any, ...], dict[str, Any], Retry, Cost, str | None]

_KEY_SIGNS = str.maketrans({"/": "%2F", "#": "%23", "~": "%7E", "%": "%25"})


class Settings(NamedTuple):
    """What every attempt of an engine shares.

    `probe` is called at the three positions of every live durable call: a test may raise a
    `BaseException` there, or die.
    """

    journal: Journal
    clock: SystemClock
    max_payload_bytes: int
    compare_arguments: bool
    probe: Probe | None


class Context:
    """A run as its workflow code sees it, for the length of one attempt.

    Attributes: `run_id`; `generation` (from 1); `attempt` (from 1, this one included); `replaying`
    (whether the next durable call will be answered from the journal).
    """

    def __init__(self, settings: Settings, row: RunRow, attempt: int, events: list[Event]) -> None:
        self.run_id, self.generation, self.attempt = row.run_id, row.generation, attempt
        self._settings, self._row, self._probe = settings, row, settings.probe
        self._cursor = Cursor(row.run_id, events, compare_arguments=settings.compare_arguments)
        self._seq, self._thread = len(events), get_ident()
        self._body_of: str | None = None  # the step whose body is running
        self._keys_given: dict[str, int] = {}
        self._stopped: BaseException | None = None
        self._costs: list[float] = []

    @property
    def replaying(self) -> bool:
        """Whether the next durable call is answered from the journal, executing nothing."""
        return self._cursor.replaying

    def step(
        self, name: str, fn: Fn, /, *args: Any, retry: Retry = None, cost: Cost = 0.0, **kwargs: Any
    ) -> Any:
        """Run `fn(*args, **kwargs)` once and record its result; on replay return the record.

        Args:
            name: what the step is called in the journal, 1 to 200 printable characters.
            fn: a plain function that returns a JSON value. It gets copies of lists and mappings.
            retry: how often it is tried; once by default.
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
        check_name(name, "step name")
        if "idempotency_key" in kwargs:
            raise TypeError(f"effect {name!r}: the engine hands the key out; say key= instead")
        own_key = self._key_for(name)
        if key is not None:
            check_name(key, "idempotency key")
        key = own_key if key is None else key
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

    def _record(self, kind: EventKind, read: Callable[[], Any]) -> Any:
        """A value from outside the run, kept from its first reading on."""
        return self._perform((kind, kind, read, (), {}, None, 0.0, None))

    def _perform(self, call: _Call) -> Any:
        """Answer a durable call from the journal, or execute it."""
        kind, name, fn, args, kwargs, retry, cost, _ = call
        if self._stopped is not None or self._body_of is not None or get_ident() != self._thread:
            self._refuse(kind, name)
        check_name(name, "step name")
        if not callable(fn) or not (retry is None or isinstance(retry, RetryPolicy)):
            raise TypeError(f"{kind} {name!r} takes a function, and as retry= a RetryPolicy")
        if cost != 0.0 and not callable(cost):
            _check_cost(cost)
        digest, opaque = digest_arguments(args, kwargs)
        try:
            recorded = self._cursor.take(kind, name, digest)
            seq, payload = recorded or self._execute(call, digest, opaque)
        except BaseException as stop:
            self._stop(stop)
        self._costs.append(payload.get("cost", 0.0))
        if "error" in payload:
            failed = {"run_id": self.run_id, "step": name, "seq": seq, **payload["error"]}
            raise StepFailedError(**failed)  # without its cause, which no replay would have
        return payload["result"]

    def _execute(self, call: _Call, digest: str, opaque: list[str]) -> tuple[int, Any]:
        """Do the work as often as the policy allows, and commit how it ended.

        Returns:
            What replay will find: sequence number and payload.
        """
        kind, name, _, _, _, retry, cost, key = call
        head = f'"args":"{digest}"'
        if opaque:
            head += f',"opaque":{json.dumps(opaque)}'
        if key is not None:
            head += f',"key":{json.dumps(key)}'
        tries, policy = 1, retry or ONCE
        text, value, error = self._try(call)
        while error is not None and policy.allows(tries, error):
            self._settings.clock.sleep(policy.delay_s(tries))
            tries += 1
            text, value, error = self._try(call)
        if tries > 1:
            head += f',"tries":{tries}'
        if error is not None:  # stable fields: a traceback would differ at the next attempt
            fields = {"type": type(error).__name__, "message": message_of(error)}
            text = json.dumps(fields)
            self._commit(kind, name, f'{{{head},"error":{text}}}')
            return self._seq, {"error": decode(text)}
        spent = _check_cost(cost(decode(text))) if callable(cost) else float(cost)
        if spent:
            head += f',"cost":{spent!r}'
        self._commit(kind, name, f'{{{head},"result":{text}}}')
        return self._seq, {"result": value, "cost": spent}

    def _try(self, call: _Call) -> tuple[str, Any, Exception | None]:
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
        except StorageError:
            raise  # never a step's failure
        except Exception as error:
            self.check_stopped()  # a durable call in the body is the code's fault, not the step's
            return "", None, error
        finally:
            self._body_of = None

    def _commit(self, kind: EventKind, name: str, text: str) -> None:
        if self._probe is not None:
            self._probe(Position.WINDOW, kind, name)
        # The crash window: the body has done its work, and until append returns no journal knows.
        event = Event(self._seq + 1, kind, name, text, self._settings.clock.now())
        self._settings.journal.append(self._row, event)
        self._seq += 1
        if self._probe is not None:
            self._probe(Position.AFTER, kind, name)

    def _refuse(self, kind: EventKind, name: str) -> NoReturn:
        """Refuse a durable call that replay couldn't find again, and any call after a stop."""
        self.check_stopped()
        reason = "from another thread" if self._thread else "after the attempt ended"
        if self._body_of is not None:
            reason = f"inside the body of step {self._body_of!r}"
        call = f"{kind} {name!r}"
        self._stop(DurableCallError(run_id=self.run_id, call=call, reason=reason))

    def _key_for(self, name: str) -> str:
        count = self._keys_given.get(name, 0) + 1
        self._keys_given[name] = count
        key = f"{self.run_id.translate(_KEY_SIGNS)}/{name.translate(_KEY_SIGNS)}"
        return key if count == 1 else f"{key}#{count}"

    def _stop(self, reason: BaseException) -> NoReturn:
        """End this attempt: every later durable call raises the first reason again."""
        self._stopped = self._stopped or reason
        raise reason

    def check_stopped(self) -> None:
        """Raise what stopped this attempt, whatever the workflow code made of it."""
        if self._stopped is not None:
            raise self._stopped

    def check_end(self, ending: str) -> None:
        """Raise unless the run may end here: not stopped, and nothing recorded left unasked for."""
        self.check_stopped()
        self._cursor.finish(ending)

    def leave(self) -> tuple[int, float]:
        """Refuse durable calls from now on; the last sequence number and the committed spend."""
        self._thread = 0  # no thread is the driving one any more
        return self._seq, sum(self._costs, 0.0)


def _check_cost(cost: Any) -> float:
    number = isinstance(cost, int | float) and not isinstance(cost, bool)
    if not (number and isfinite(cost) and cost >= 0):
        raise ValueError(f"the cost is {cost!r}, not a finite number of at least 0")
    return float(cost)
