"""A small honest engine: a journal of JSON lines, replay, keys, a fence; nothing from durable_mini.

Guarantees: the laws of the core, of torn writes and of fencing, which the kit checks. Each method
does one thing that the engines in the museum get wrong. Leaves to others: tries, waits, sagas
(`patient`). It needs `fcntl`, so Linux or macOS.

    r-1.journal    one line for each event: its checksum, its JSON text
    r-1.holder     the fencing token of whoever drives the run; its lock is everybody's lock
"""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote
from zlib import crc32

Event = dict[str, Any]


class Stop(BaseException):
    """The attempt ends and the run doesn't: no `except Exception` in workflow code holds it up."""


class Refused(Exception):  # noqa: N818 - named as its sister
    """What was asked for isn't done: another input under this id, a damaged journal."""


class StepFailed(Exception):  # noqa: N818 - it says what happened
    """A step failed for good; it is on record."""


class Context:
    """A run as the workflow's code sees it, in one process.

    Args:
        engine: whose journal it is.
        run_id: the run.
        token: the process's fencing token.
        events: what is on record.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"step", "effect"})

    def __init__(
        self, engine: "HonestEngine", run_id: str, token: int, events: list[Event]
    ) -> None:
        self.engine, self.run_id, self.token, self.events = engine, run_id, token, events
        self.calls = [event for event in events if event["kind"] in self.kinds]
        self.place, self.named = 0, Counter[str]()

    def step(self, name: str, fn: Callable[..., Any], *args: Any) -> Any:
        """What `fn(*args)` gave, now or in an earlier process."""
        return self.call("step", name, fn, args, {})

    def effect(self, name: str, fn: Callable[..., Any], *args: Any) -> Any:
        """The same for work in the outside world: `fn` is handed a key."""
        self.named[name] += 1
        key = self.key(name, self.named[name])
        return self.call("effect", name, fn, args, {"idempotency_key": key})

    def key(self, name: str, number: int) -> str:
        """The same in every process, and that of no other call."""
        return f"{quote(self.run_id, safe='')}/{quote(name, safe='')}#{number}"

    def call(
        self, kind: str, name: str, fn: Callable[..., Any], args: Any, more: dict[str, Any]
    ) -> Any:
        """What is on record for this call; if nothing is, do it and record it first."""
        asked = {"kind": kind, "name": name, "args": kept(list(args))}
        found = self.recorded(asked)
        if found is None:
            self.may_go_on()
            found = self.record({**asked, **self.execute(name, fn, asked["args"], more)})
        return self.engine.told(found)

    def recorded(self, asked: Event) -> Event | None:
        """The record of this call; nothing where the journal ends.

        Raises:
            Stop: the journal has another call at this place.
        """
        if self.place == len(self.calls):
            return None
        found = self.calls[self.place]
        if not self.is_same(found, asked):
            raise self.diverged(found, self.described(asked))
        self.place += 1
        return found

    def is_same(self, found: Event, asked: Event) -> bool:
        """Whether a record belongs to a call."""
        return all(found.get(part) == asked[part] for part in ("kind", "name", "args"))

    def diverged(self, found: Event, asked: str) -> BaseException:
        """Why the code can't go on."""
        return Stop(f"event {found['seq']} is {self.described(found)}, the code asked for {asked}")

    def described(self, event: Event) -> str:
        """A call in words."""
        return f"{event['kind']} {event['name']!r} with {event.get('args')}"

    def may_go_on(self) -> None:
        """Look, before anything is executed, whether the run is still this process's."""
        with self.engine.alone(self.run_id) as holder:
            self.engine.check(self.run_id, self.token, holder)

    def execute(
        self, name: str, fn: Callable[..., Any], args: list[Any], more: dict[str, Any]
    ) -> Event:
        """Do the work; a failure is data too."""
        try:
            return {"value": kept(fn(*kept(args), **more))}
        except Exception as error:
            return {"error": f"{name}: {type(error).__name__}: {error}"}

    def record(self, event: Event) -> Event:
        """Put an event on record; the code is told what was written, not what was returned."""
        written = self.engine.append(self.run_id, self.token, event)
        self.calls.append(written)
        self.place = len(self.calls)
        return dict(written)

    def finish(self) -> None:
        """Refuse an end that leaves recorded calls unasked for."""
        if self.place < len(self.calls):
            raise self.diverged(self.calls[self.place], "the end")


class HonestEngine:
    """One process of the engine.

    Args:
        folder: where the journals are.
        clock: where time comes from.
    """

    offers: ClassVar[frozenset[str]] = frozenset({"files", "fencing"})
    Ctx: ClassVar[type[Context]] = Context

    def __init__(self, folder: Path, clock: Any) -> None:
        self.folder, self.clock = folder, clock

    # ---- from outside ---------------------------------------------------------------------------

    def start(self, run_id: str, workflow: Callable[..., Any], value: Any) -> None:
        """Put a run on the disk; the same request again finds it there."""
        asked = self.admission(workflow, kept(value))
        with self.alone(run_id):
            events, _ = self.read(run_id)
            if not events:
                self.write(run_id, asked)
            elif events[0]["value"] != asked["value"]:
                raise Refused(f"run {run_id} has the input {events[0]['value']!r}")

    def admission(self, workflow: Callable[..., Any], value: Any) -> Event:
        """What a run begins with."""
        del workflow  # what its code looks like is for engines that check it
        return {"kind": "start", "name": "run", "value": value}

    def resume(self, run_id: str, workflow: Callable[..., Any]) -> Any:
        """Take a run over, and drive it to its end; one that has ended is told."""
        token, events = self.claim(run_id)
        if not events:
            raise Refused(f"there is no run {run_id}")
        if events[-1]["kind"] == "end":
            return self.told(events[-1])
        return self.told(self.drive(self.Ctx(self, run_id, token, events), workflow))

    def drive(self, ctx: Context, workflow: Callable[..., Any]) -> Event:
        """Run the workflow's code once, and record what it came to."""
        try:
            outcome = {"value": kept(workflow(ctx, kept(ctx.events[0]["value"])))}
        except StepFailed as failure:
            outcome = {"error": str(failure)}
        ctx.finish()
        return ctx.record({"kind": "end", "name": "run", **outcome})

    def told(self, event: Event) -> Any:
        """What an event says: its value, or the failure that it records."""
        if "error" in event:
            raise StepFailed(event["error"])
        return kept(event["value"])

    def history(self, run_id: str) -> list[tuple[int, str, str]]:
        """Number, kind and name of each event."""
        events, _ = self.read(run_id)
        return [(event["seq"], event["kind"], event["name"]) for event in events]

    # ---- the journal ----------------------------------------------------------------------------

    @contextmanager
    def alone(self, run_id: str) -> Iterator[Any]:
        """Nobody else reads or writes the run until the block is left."""
        with self.path(run_id, "holder").open("a+b") as holder:
            fcntl.flock(holder, fcntl.LOCK_EX)
            yield holder

    def claim(self, run_id: str) -> tuple[int, list[Event]]:
        """Raise the fencing token: from now on nobody else writes to the run."""
        with self.alone(run_id) as holder:
            token = self.token(holder) + 1
            holder.truncate(0)
            holder.write(b"%d" % token)
            return token, self.read(run_id)[0]

    def token(self, holder: Any) -> int:
        """The token of whoever drives the run."""
        holder.seek(0)
        return int(holder.read() or 0)

    def append(self, run_id: str, token: int, event: Event) -> Event:
        """Record an event, unless the run was taken over: one lock holds the look and the write."""
        with self.alone(run_id) as holder:
            self.check(run_id, token, holder)
            return self.write(run_id, event)

    def check(self, run_id: str, token: int, holder: Any) -> None:
        """Refuse a process that has lost the run."""
        if self.token(holder) != token:
            raise Stop(f"run {run_id} was taken over")

    def read(self, run_id: str) -> tuple[list[Event], int]:
        """The run's events, and how many bytes they take; a torn last line is none of them."""
        path = self.path(run_id, "journal")
        *lines, torn = path.read_bytes().split(b"\n") if path.exists() else [b""]
        events = [self.parse(run_id, number, line) for number, line in enumerate(lines, start=1)]
        return events, path.stat().st_size - len(torn) if path.exists() else 0

    def parse(self, run_id: str, number: int, line: bytes) -> Event:
        """A line that is what was written there, and where it was written."""
        event = self.checked(run_id, number, line)
        if event["seq"] != number:
            raise Refused(f"run {run_id}: event {number} is missing")
        return event

    def checked(self, run_id: str, number: int, line: bytes) -> Event:
        """A line that is what was written."""
        check, _, text = line.partition(b" ")
        if check != b"%08x" % crc32(text):
            raise Refused(f"run {run_id}: event {number} is damaged")
        return dict(json.loads(text))

    def write(self, run_id: str, event: Event) -> Event:
        """Put an event behind the last whole one, and come back when it is on the disk."""
        events, size = self.read(run_id)
        text = json.dumps({"seq": len(events) + 1, **event}).encode()
        try:
            with self.path(run_id, "journal").open("ab") as file:
                file.truncate(size)
                file.write(b"%08x %s\n" % (crc32(text), text))
                self.sync(file)
        except OSError as error:
            raise Stop(f"run {run_id}: {error}") from error
        return dict(json.loads(text))

    def sync(self, file: Any) -> None:
        """Come back when what was written is on the disk."""
        file.flush()
        os.fsync(file.fileno())

    def path(self, run_id: str, suffix: str) -> Path:
        """A file of a run."""
        return self.folder / f"{quote(run_id, safe='')}.{suffix}"


def kept(value: Any) -> Any:
    """A value as it reads back.

    Raises:
        TypeError, ValueError: JSON doesn't have it, or makes one key of two.
    """
    text = json.dumps(value, allow_nan=False)
    back = json.loads(text)
    if json.dumps(back) != text:
        raise ValueError(f"two keys of {value!r} become one")
    return back
