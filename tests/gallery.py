"""A journal with a run for every way in which one can stand, and every kind of event in it.

And the tool to break it: a history rewritten as a faulty engine would leave it, with sequence
numbers and checksums that fit.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from durable_mini import (
    Budget,
    Context,
    Engine,
    Event,
    EventKind,
    FakeClock,
    RetryPolicy,
    RunFailed,
    SQLiteJournal,
    workflow,
)
from durable_mini.events import checksum
from durable_mini.journal import Journal
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.ops import migrate, prune

START_S = 1_000.0


def pay(*, idempotency_key: str) -> str:
    return idempotency_key


def give_back(name: str, *, idempotency_key: str, effect_key: str) -> str:
    if name in closed:
        raise ConnectionError(f"{name} is closed")
    return effect_key


closed: set[str] = set()


class Flaky:
    """A charge that fails so many times."""

    def __init__(self, failures: int) -> None:
        self._left = failures

    def __call__(self, *, idempotency_key: str) -> str:
        self._left -= 1
        if self._left >= 0:
            raise ConnectionError("lost")
        return idempotency_key


@workflow()
def parcel(ctx: Context, weight: float) -> float:
    ctx.sleep(5.0)
    return ctx.step("weigh", float, weight)


@workflow()
def order(ctx: Context, item: str) -> list[Any]:
    if ctx.patched("greet"):
        ctx.step("greet", str.title, item)
    ctx.step("reserve", str.upper, item, cost=2.0)
    ctx.compensate("charge", give_back, "charge")
    ctx.effect("charge", Flaky(2), retry=RetryPolicy(max_attempts=3), cost=1.5)
    drawn = [ctx.now(), ctx.random(), ctx.uuid()]
    ctx.sleep(60.0)
    answers = [ctx.wait_signal("hurry", timeout_s=10.0) or "none", ctx.wait_signal("address")]
    ctx.point_of_no_return()
    return [*drawn, *answers, ctx.child(parcel, 1.5)]


@workflow()
def trip(ctx: Context, names: list[str]) -> None:
    for name in names:
        ctx.compensate(name, give_back, name)
        ctx.effect(name, pay)
    ctx.wait_signal("go")


@workflow()
def poll(ctx: Context, left: int) -> str:
    ctx.step("ask", lambda: None, cost=0.25)
    if left:
        ctx.continue_as_new(left - 1)
    return str(ctx.wait_signal("answer"))


@workflow()
def refusing(ctx: Context, how: str) -> None:
    ctx.step("look", str.upper, how)
    if how == "bug":
        raise ZeroDivisionError
    ctx.step("pay", pay, idempotency_key="k")
    raise RunFailed(how)


@workflow(version="2", name="trip")
def longer_trip(ctx: Context, names: list[str]) -> None:
    for name in names:
        ctx.compensate(name, give_back, name)
        ctx.effect(name, pay)
    ctx.wait_signal("depart")


WORKFLOWS = [order, parcel, trip, poll, refusing, longer_trip]


BOTH = ["hotel", "flight"]


def fill(journal: Journal) -> None:
    """Admit the runs and drive them as far as their names say."""
    clock = FakeClock(START_S)
    engine = Engine(journal, WORKFLOWS, clock=clock)
    for run_id in ("pruned", "pruned and reused"):
        engine.run(refusing, "sold out", run_id=run_id)
    prune(journal, older_than_s=0.0, now=clock.now())
    engine.start(poll, 0, run_id="pruned and reused", reuse=True)
    _complete(engine)
    _cancel(engine)
    frugal = Engine(journal, WORKFLOWS, clock=clock, budget=Budget(max_steps=1))
    frugal.run(trip, BOTH, run_id="spent")
    engine.start(poll, 2, run_id="continued")
    engine.signal("continued", "answer", "yes", signal_id="s-1")
    engine.signal("continued", "other", "no", signal_id="s-2")
    engine.resume("continued")
    engine.run(refusing, "sold out", run_id="reused")
    engine.start(poll, 0, run_id="reused", reuse=True)
    engine.run(refusing, "bug", run_id="attention")
    with pytest.raises(InjectedCrash):
        _crashing(engine, "pay").run(refusing, "later", run_id="running")
    engine.run(trip, BOTH, run_id="migrated")
    migrate(engine, "migrated", {"go": "depart"}, to=longer_trip, successor_id="successor")
    engine.start(order, "tea", run_id="pending")
    _drive_to_the_child(engine, "waiting")


def _crashing(engine: Engine, name: str) -> Engine:
    probe = CrashAt(name, "before")
    return Engine(engine.journal, WORKFLOWS, clock=engine.clock, probe=probe)


def _complete(engine: Engine) -> None:
    """A run with everything in it that can happen to one that ends well, a crash included."""
    engine.start(order, "tea", run_id="complete")
    with pytest.raises(InjectedCrash):
        _crashing(engine, "reserve").resume("complete")
    _drive_to_the_child(engine, "complete")
    engine.clock.sleep(5.0)
    engine.resume("complete")


def _drive_to_the_child(engine: Engine, run_id: str) -> None:
    engine.run(order, "tea", run_id=run_id)
    engine.clock.sleep(60.0)
    engine.resume(run_id)
    engine.clock.sleep(20.0)
    engine.signal(run_id, "hurry", "too late", signal_id="s-0")
    engine.signal(run_id, "address", {"street": 1}, signal_id="s-1")
    engine.signal(run_id, "address", {"street": 2}, signal_id="s-2")
    engine.resume(run_id)


def _cancel(engine: Engine) -> None:
    """A run that undid everything, one thing at the second try."""
    engine.run(trip, BOTH, run_id="cancelled")
    engine.cancel("cancelled")
    closed.add("flight")
    engine.resume("cancelled")
    closed.clear()
    engine.retry_compensation("cancelled")


Change = Callable[[list[Event]], list[Event]]


def rewrite(path: Path, run_id: str, change: Change, generation: int = 1) -> list[Event]:
    """Put another history into a journal file, with numbers and checksums that fit."""
    with SQLiteJournal(path) as journal:
        row = journal.row(run_id)
        assert row is not None
        row = row._replace(generation=generation)
        changed = change(journal.events(row))
    events = [event._replace(seq=seq) for seq, event in enumerate(changed, start=1)]
    whose = run_id, generation
    values = [(*whose, *event, checksum(row, event)) for event in events]
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA synchronous=OFF")
        database.execute("DELETE FROM events WHERE run_id = ? AND generation = ?", whose)
        database.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
    return events


def sql(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(statement, values)


def place(events: list[Event], kind: str, name: str | None = None) -> int:
    """Where the first event of a kind (and a name) stands in a list."""
    return next(
        at for at, event in enumerate(events) if event.kind == kind and name in (None, event.name)
    )


def made(kind: str, name: str, recorded_at: float = START_S, **payload: Any) -> Event:
    return Event(0, EventKind(kind), name, json.dumps(payload), recorded_at)
