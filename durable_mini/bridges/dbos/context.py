"""What workflow code may call, answered by DBOS.

Guarantees: a durable call is one DBOS step or more, at places that follow from records alone, so
that replay finds each of them again; kind, name and arguments are compared before DBOS is asked.
Names, keys, digests, compensations and budgets are the engine's own, by inheritance. Leaves to
others: starting and ending runs (`engine`), storing (DBOS).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from contextvars import copy_context
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, NoReturn

from dbos import DBOS, StepReservation, error as dbos_error

from durable_mini import errors
from durable_mini.codec import check_name, decode, encode
from durable_mini.context import Context, Step, in_threads, in_turn
from durable_mini.events import Event, EventKind
from durable_mini.replay import Found, stop_error
from durable_mini.retry import Fn

INBOX = "durable_mini"
"""The topic on which a run hears of signals, of a cancel request and of its children's ends."""

UNMAPPED = {
    "continue_as_new": "a DBOS workflow has one history, and its id can't be taken again. Next: "
    "start a child for each round of work, or a run with an id of its own"
}
"""The calls that DBOS has nothing for, each with the reason and a way out."""

_FOREVER_S = 10 * 365 * 86_400.0  # DBOS has no wait without a time-out
_MARGIN_S = 0.001  # so that the budget of time is over when a wait is over with it
_STOPS = errors.RunCancelledError, errors.BudgetExceededError


class Halt(BaseException):
    """Ends an execution without a verdict: DBOS records nothing, and the run stays pending."""


class _EndsHere(BaseException):
    """The run was stopped at this step; the text is what is recorded in place of its result."""


class _HeardError(Exception):
    """Something came into the inbox: look again at what is waited for."""


class Recorded(NamedTuple):
    """What a DBOS step has on record; `live` says whether it was executed just now."""

    seq: int
    kind: EventKind
    payload: Any
    live: bool


class BridgedContext(Context):
    """A run as its workflow code sees it, for one execution by DBOS; made like `Context`."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.read_to = 1  # the admission; the rest is counted again as it is met
        self._lock, self._event = Lock(), ""

    # ---- calls that are answered otherwise than by the engine ------------------------------------

    def gather(self, calls: Mapping[str, Step | tuple[Any, ...]]) -> dict[str, Any]:
        """See `Context.gather`; each branch is a DBOS step, and each round waits for all of it."""
        self._guard(EventKind.STEP, ", ".join(map(str, calls)))
        steps = [given if isinstance(given, Step) else Step(*given) for given in calls.values()]
        made = {n: self._asked((n, *step.call)) for n, step in zip(calls, steps, strict=True)}
        wanted = {name: (call[1], call[8]) for name, call in made.items()}
        done = self._settled(made, partial(self.cursor.take_any, wanted))
        return {name: self._answer(name, done[name], call[7]) for name, call in made.items()}

    def patched(self, patch_id: str) -> bool:
        """See `Context.patched`; the admission alone decides, and no marker is recorded."""
        check_name(patch_id, "patch id")
        self._guard(EventKind.PATCH, patch_id)
        return self._patches.setdefault(patch_id, not self.replaying)

    def continue_as_new(self, input: Any = None) -> NoReturn:  # noqa: A002 - as in `Context`
        """Refused; where the source shows it, at registration."""
        why = f"run {self.run_id}: no continue_as_new on DBOS: {UNMAPPED['continue_as_new']}"
        self._stop(errors.DurableError(why, run_id=self.run_id))

    # ---- how a durable call is answered ----------------------------------------------------------

    def _perform(self, asked: Any) -> Any:
        call = self._asked(asked)
        name, kind, digest = call[0], call[1], call[8]
        found = self._settled({name: call}, partial(self.cursor.take, kind, name, digest))
        return self._answer(name, found[name], call[7])

    def _settled(self, calls: dict[str, Any], take: Callable[[], Any]) -> dict[str, Found]:
        """The outcome of each call, by DBOS's records or executed now; a round for each try.

        Args:
            calls: by name, as `_asked` made them.
            take: compares them with what is on record.
        """
        done, waiting = dict[str, Found](), dict(calls)
        try:
            with suppress(*_STOPS):  # DBOS has the stop on record too, at its own place
                take()
            while waiting:
                due_at = 0.0
                for name, it in self._round(waiting).items():
                    if it.kind is EventKind.TRY:
                        due_at = max(due_at, self._failed_try(name, waiting[name][1], it))
                    else:
                        done[name] = it.seq, it.payload
                        del waiting[name]
                if due_at:
                    self._decided(partial(self._wait_until, due_at, patient=True))
        except BaseException as stop:
            self._stop(stop)
        return done

    def _round(self, calls: dict[str, Any]) -> dict[str, Recorded]:
        """Each call tried once, or as its try is on record."""
        looked: list[BaseException | None] = []

        def look() -> None:  # whichever is executed first looks for all of them
            with self._lock:
                if not looked:
                    looked.append(_raised_by(partial(self._look, *calls.values())))
                if looked[0] is not None:
                    raise looked[0]

        bodies = {
            name: (call[1], partial(self._one_try, look, call)) for name, call in calls.items()
        }
        return self._steps(bodies)

    def _one_try(self, look: Callable[[], None], call: Any) -> str:
        """The body of a DBOS step; its result is the text of an event."""
        look()
        outcome = self._try(call)
        with self._lock:
            with suppress(errors.CompensationFailedError):  # raised once the try is on record
                self._settle(call, outcome)
            return self._event

    def _failed_try(self, name: str, kind: EventKind, it: Recorded) -> float:
        """When the next try is due; an undo has none until a person has mended the cause."""
        if kind is EventKind.UNDO and it.live:
            facts = {"run_id": self.run_id, "step": name, "seq": it.seq}
            raise errors.CompensationFailedError(**facts, **it.payload["error"])
        return float(it.payload["due_at"])

    def _fact(self, name: str, decide: Fn, *kinds: EventKind, args: str | None = None) -> Found:
        """See `Context._fact`; on replay `decide` is called too, since DBOS replays its waits."""
        check_name(name, f"{kinds[0]} name")
        self._guard(kinds[0], name)
        try:
            with suppress(*_STOPS):
                self.cursor.take(next(filter(self.cursor.next_is, kinds), kinds[0]), name, args)
            payload = self._decided(decide)

            def body() -> str:
                self._look()
                text = encode(payload if args is None else {**payload, "args": args})
                self._commit(kinds[0 if payload else -1], name, text)
                return self._event

            found = self._steps({name: (kinds[0], body)})[name]
        except BaseException as stop:
            self._stop(stop)
        return found.seq, found.payload

    def _decided(self, decide: Fn) -> Any:
        """What it comes to, however many messages come in before."""
        while True:
            try:
                return decide()
            except _HeardError:
                if self._cancelled and not (self.pivoted or self._unwinding):
                    return {}  # the step that comes next ends the run

    def _wait_until(self, due_at: float, *, patient: bool = False) -> dict[str, Any]:
        """Come back, with nothing to record, once it is that late; the thread waits in DBOS.

        It does so in any case, patient or not: DBOS can't give a run back and take it up later.
        """
        until = due_at if self._unwinding or self.pivoted else min(due_at, self._deadline)
        wait_s = max(until - self._clock.now(), 0.0) + (_MARGIN_S if until < due_at else 0.0)
        text = self._asked_of_dbos(partial(DBOS.recv, INBOX, min(wait_s, _FOREVER_S)))
        if text is None:
            return {}
        kind, name, payload, at_s = decode(text)
        self._hear([Event(self.read_to + 1, EventKind(kind), name, encode(payload), at_s)])
        raise _HeardError

    # ---- DBOS steps ------------------------------------------------------------------------------

    def _steps(
        self, bodies: Mapping[str, tuple[EventKind, Callable[[], str]]]
    ) -> dict[str, Recorded]:
        """A DBOS step for each body, side by side, at places taken in the order of the code.

        Raises:
            RunCancelledError, BudgetExceededError: one of them says that the run ends here.
        """
        asked = dict[str, Callable[[], Any]]()
        for name, (kind, body) in bodies.items():
            label = str(kind) if name == kind else f"{kind} {name}"
            step = partial(self._step, DBOS.reserve_step(), label, body)
            asked[name] = partial(copy_context().run, step)
        with closing((in_threads if len(asked) > 1 else in_turn)(asked)) as ended:
            told = dict(ended)
        recorded = dict[str, Recorded]()
        for name in bodies:
            (kind, _, payload), live = decode(told[name][0]), told[name][1]
            self.read_to += 1
            recorded[name] = Recorded(self.read_to, EventKind(kind), payload, live)
        for it in recorded.values():
            if it.kind is EventKind.STOP:
                raise stop_error(self.run_id, it.seq, it.payload)
        return recorded

    def _step(
        self, place: StepReservation, label: str, body: Callable[[], str]
    ) -> tuple[str, bool]:
        """One DBOS step: the text on record, and whether it was executed just now."""
        live = False

        def run() -> str:
            nonlocal live
            live = True
            try:
                return body()
            except _EndsHere as stop:
                return str(stop)
            except Exception as bug:  # DBOS would record it as the step's failure
                raise Halt from bug

        try:
            return self._asked_of_dbos(partial(place.run, {"name": label}, run)), live
        except Halt as halt:
            raise halt.__cause__ or halt from None

    def _asked_of_dbos(self, ask: Callable[[], Any]) -> Any:
        """Ask DBOS, and tell apart what workflow code may not take for a failed step.

        Raises:
            NonDeterminismError: DBOS has another step at this place.
            StorageError: its database refuses.
        """
        try:
            return ask()
        except dbos_error.DBOSUnexpectedStepError as error:
            _, _, requested, recorded = error.inputs
            facts = {"recorded": recorded, "requested": requested, "seq": self.read_to + 1}
            raise errors.NonDeterminismError(run_id=self.run_id, **facts) from error
        except Exception as error:
            what = f"{type(error).__name__}: {errors.message_of(error)}"
            raise errors.StorageError(path="the database of DBOS", reason=what) from error

    # ---- looking before anything is executed -----------------------------------------------------

    def _look(self, *calls: Any) -> None:
        """See whether the run may make these calls; that it is still ours, DBOS sees as it records.

        Raises:
            Halt: this worker is to stop.
        """
        if self._holder.stopping():
            raise Halt
        if self._unwinding:
            return
        self._cancelled = self._cancelled or self._engine.is_cancel_requested(self.run_id)
        if self._cancelled and not self.pivoted:
            self._end_by("cancelled", {})
        if self._limits:
            self._judge(calls)

    def _end_by(self, name: str, payload: dict[str, Any]) -> NoReturn:
        if self.pivoted:  # nothing is anchored after it
            raise stop_error(self.run_id, self.read_to, payload)
        raise _EndsHere(f'["{EventKind.STOP}","{name}",{encode(payload)}]')

    def _commit(self, kind: EventKind, name: str, text: str, expected: int | None = None) -> int:
        """Leave the event to the DBOS step that is being executed, which records it."""
        self._event = f'["{kind}",{encode(name)},{text}]'
        return self.read_to + 1


def _raised_by(act: Callable[[], None]) -> BaseException | None:
    try:
        act()
    except BaseException as error:
        return error
    return None
