"""The honest engine with tries, waits, sagas, a check of the structure, and cost.

Guarantees: every law of the kit. What is new is recorded the same way: one more kind of event each.
Leaves to others: everything that `honest` does.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from types import CodeType
from typing import Any, ClassVar

from durable_mini.lab.museum.honest import (
    Context,
    Event,
    HonestEngine,
    Refused,
    StepFailed,
    Stop,
    kept,
)


class Cancelled(StepFailed):
    """Somebody asked for the run to be cancelled."""


class PatientContext(Context):
    """A run as the workflow's code sees it, with what takes longer than a call."""

    kinds: ClassVar[frozenset[str]] = Context.kinds | {
        *("try", "wait", "verdict", "compensate", "undo", "stop")
    }

    def __init__(self, engine: HonestEngine, run_id: str, token: int, events: list[Event]) -> None:
        super().__init__(engine, run_id, token, events)
        self.undos: list[Callable[[], Any]] = []
        self.unwinding = False

    # ---- tries and cost -------------------------------------------------------------------------

    def step(
        self, name: str, fn: Callable[..., Any], *args: Any, retry: Any = None, cost: float = 0.0
    ) -> Any:
        """As in `Context`; tried as `retry` says, and it costs `cost`."""
        self.retry, self.cost = retry, cost
        return super().step(name, fn, *args)

    def effect(
        self, name: str, fn: Callable[..., Any], *args: Any, retry: Any = None, cost: float = 0.0
    ) -> Any:
        """As in `Context`; tried as `retry` says, and it costs `cost`."""
        self.retry, self.cost = retry, cost
        return super().effect(name, fn, *args)

    def execute(
        self, name: str, fn: Callable[..., Any], args: list[Any], more: dict[str, Any]
    ) -> Event:
        """Do the work, and again while it fails and may be tried; each failed try is on record."""
        tries, due_at = self.tries(name)
        while True:
            self.clock_to(due_at)
            tries += 1
            outcome = {**self.one_try(tries, name, fn, args, more), "cost": self.cost}
            if "error" not in outcome or not self.again(tries, outcome):
                return outcome
            due_at = self.engine.clock.now() + self.retry.delay_s(tries)
            self.record({"kind": "try", "name": name, "args": args, "due_at": due_at})

    def one_try(
        self, number: int, name: str, fn: Callable[..., Any], args: list[Any], more: dict[str, Any]
    ) -> Event:
        """Do the work once; `number` tells which try it is, and the work doesn't get to know."""
        del number
        return super().execute(name, fn, args, more)

    def again(self, tries: int, outcome: Event) -> bool:
        """Whether a failed try may be followed by another one; a value that can't be kept never."""
        may = self.retry is not None and tries < self.retry.max_attempts
        return may and ": TypeError: " not in outcome["error"]

    def tries(self, name: str) -> tuple[int, float]:
        """How often the call was tried in vain so far, and when it may be tried next."""
        failed = []
        for event in reversed(self.calls):
            if event["kind"] != "try" or event["name"] != name:
                break
            failed.append(event["due_at"])
        return len(failed), max(failed, default=0.0)

    def clock_to(self, due_at: float) -> None:
        """Wait for a time; a try is worth holding a process."""
        self.engine.clock.sleep(max(0.0, due_at - self.engine.clock.now()))

    # ---- waits ----------------------------------------------------------------------------------

    def wait_signal(self, name: str, timeout_s: float | None = None) -> Any:
        """The next signal of this name, or None when the time is over."""
        asked = {"kind": "wait", "name": name, "args": [timeout_s]}
        wait = self.recorded(asked)
        if wait is None:
            due_at = None if timeout_s is None else self.engine.clock.now() + timeout_s
            wait = self.record({**asked, "due_at": due_at})
        verdict = self.recorded({"kind": "verdict", "name": name, "args": []})
        if verdict is None:
            value = self.verdict(name, wait)
            verdict = self.record({"kind": "verdict", "name": name, "args": [], **value})
        return kept(verdict["value"])

    def sleep(self, seconds: float) -> None:
        """Wait for a time, holding nothing."""
        self.wait_signal("(nobody sends this)", seconds)

    def verdict(self, name: str, wait: Event) -> Event:
        """Who won, by the recorded times: the signal, or the time."""
        events, _ = self.engine.read(self.run_id)
        read = {event.get("signal") for event in self.calls}
        for event in events:
            new = event["kind"] == "signal" and event["name"] == name
            if new and event["seq"] not in read and self.in_time(event, wait):
                return {"value": event["value"], "signal": event["seq"]}
        if wait["due_at"] is None or self.engine.clock.now() < wait["due_at"]:
            raise Stop(f"run {self.run_id} waits for {name}")
        return {"value": None}

    def in_time(self, signal: Event, wait: Event) -> bool:
        """Whether a signal was recorded before the wait was over, or before it began."""
        due_at = wait["due_at"]
        return due_at is None or signal["at"] <= due_at or signal["seq"] < wait["seq"]

    # ---- sagas ----------------------------------------------------------------------------------

    def compensate(self, name: str, fn: Callable[..., Any], *args: Any) -> None:
        """Say how the next effect of this name is undone, before it is done."""
        asked = {"kind": "compensate", "name": name, "args": kept(list(args))}
        if self.recorded(asked) is None:
            self.record(asked)
        effect_key = self.key(name, self.named[name] + 1)
        more = {"idempotency_key": f"{effect_key}~undo", "effect_key": effect_key}
        self.undos.append(lambda: self.call("undo", name, fn, args, more))

    def recorded(self, asked: Event) -> Event | None:
        """As in `Context`; passes over failed tries, and stops a run that is to be cancelled."""
        while self.place < len(self.calls) and self.is_try_of(self.calls[self.place], asked):
            self.place += 1
        if self.place < len(self.calls) and self.calls[self.place]["kind"] == "stop":
            self.place += 1
            raise Cancelled(f"run {self.run_id} was cancelled")
        if self.place == len(self.calls) and not self.unwinding and self.is_cancelled():
            self.record({"kind": "stop", "name": "cancelled"})
            raise Cancelled(f"run {self.run_id} was cancelled")
        return super().recorded(asked)

    def is_try_of(self, event: Event, asked: Event) -> bool:
        """Whether an event is a failed try of a call."""
        return event["kind"] == "try" and (event["name"], event["args"]) == (
            asked["name"],
            asked["args"],
        )

    def is_cancelled(self) -> bool:
        """Whether somebody asked for it."""
        return any(event["kind"] == "cancel" for event in self.engine.read(self.run_id)[0])

    def unwind(self) -> None:
        """Undo what was done, the last first."""
        self.unwinding, self.retry, self.cost = True, None, 0.0
        for undo in reversed(self.undos):
            undo()


class PatientEngine(HonestEngine):
    """One process of the engine."""

    offers: ClassVar[frozenset[str]] = HonestEngine.offers | {
        "retries",
        "waits",
        "sagas",
        "structure",
        "cost",
    }
    Ctx: ClassVar[type[Context]] = PatientContext

    def drive(self, ctx: Context, workflow: Callable[..., Any]) -> Event:
        """As in `HonestEngine`; a run that fails or is cancelled undoes what it did."""

        def with_undos(of: Any, value: Any) -> Any:
            try:
                return workflow(of, value)
            except StepFailed as why:
                self.unwind(of, why)
                raise

        self.check_structure(ctx.events[0], workflow)
        return super().drive(ctx, with_undos)

    def unwind(self, ctx: PatientContext, why: StepFailed) -> None:
        """Let a run undo what it did, whatever it fails for."""
        del why
        ctx.unwind()

    def signal(self, run_id: str, name: str, payload: Any, signal_id: str) -> None:
        """Put something from outside on record; one signal id counts once."""
        with self.alone(run_id):
            events, _ = self.read(run_id)
            if not self.is_known(signal_id, events):
                event = {"kind": "signal", "name": name, "value": kept(payload)}
                self.write(run_id, {**event, "signal_id": signal_id, "at": self.clock.now()})

    def is_known(self, signal_id: str, events: list[Event]) -> bool:
        """Whether a signal is on record already."""
        return any(
            event["kind"] == "signal" and event["signal_id"] == signal_id for event in events
        )

    def cancel(self, run_id: str) -> None:
        """Ask a run to stop at its next call."""
        with self.alone(run_id):
            self.write(run_id, {"kind": "cancel", "name": "cancel"})

    def cost(self, run_id: str) -> float:
        """What a run has spent: the sum over its events."""
        return float(sum(event.get("cost", 0.0) for event in self.read(run_id)[0]))

    def admission(self, workflow: Callable[..., Any], value: Any) -> Event:
        """What a run begins with: its input, and what its code will ask for."""
        return {**super().admission(workflow, value), "calls": self.fingerprint(workflow)}

    def check_structure(self, admitted: Event, workflow: Callable[..., Any]) -> None:
        """Refuse code that will ask for something else than the code that the run began with."""
        if admitted["calls"] != self.fingerprint(workflow):
            raise Refused(f"the run began with {admitted['calls']}")

    def fingerprint(self, workflow: Callable[..., Any]) -> Any:
        """The durable calls that the source of a workflow shows, with their names."""
        return calls_in(workflow.__code__)


@cache
def calls_in(code: CodeType) -> list[str]:
    """The calls of `ctx` in a function's source, in their order."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [(ast.unparse(node.func), node.args) for node in calls]
    return [f"{func} {ast.unparse(args[0])}" for func, args in named if func.startswith("ctx.")]
