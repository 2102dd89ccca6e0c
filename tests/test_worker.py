"""Workers: who claims what and when, what a stale one may not do, and what none of them loses.

Time is a fake clock's, so that a lease ends when a test says so. Each worker has a connection and
an engine of its own on one file, as in another process; `test_worker_processes` has real ones.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import count
from pathlib import Path
from threading import Event, Lock, Thread, Timer
from typing import Any

import pytest
from support import RUN_ID, Counted, scripted

from durable_mini import (
    Budget,
    Context,
    Engine,
    FakeClock,
    RetryPolicy,
    Run,
    RunFailed,
    RunStatus,
    SQLiteJournal,
    StorageError,
    SystemClock,
    Worker,
    Workflow,
    workflow,
)
from durable_mini.events import RunRow
from durable_mini.lab import CrashAt, InjectedCrash

LEASE_S, POLL_S, LIMIT_S = 5.0, 0.05, 10.0
TWO_DAYS_S = 2 * 24 * 3_600.0


class Clock(FakeClock):
    """A clock that keeps how often a worker slept, calls `asleep` then, and stops one that polls
    for ever."""

    def __init__(self) -> None:
        super().__init__(1_000_000.0)
        self.naps = 0
        self.asleep: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.naps += 1
        assert self.naps < 1_000, "a worker polls and polls"
        self.advance(seconds)
        self.asleep()


class Place:
    """A journal file and what the workers on it have in common."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock, self.closing = path, Clock(), ExitStack()
        self.journal = self.opened()

    def opened(self) -> SQLiteJournal:
        """A connection without fsync: workers die here, machines don't."""
        journal = self.closing.enter_context(SQLiteJournal(self.path))
        journal._db.execute("PRAGMA synchronous=OFF")
        return journal

    def engine(self, *workflows: Workflow, **options: Any) -> Engine:
        """An engine as another process would have it."""
        return Engine(self.opened(), workflows, **{"clock": self.clock, **options})

    def started(self, agent: Workflow, *run_ids: str, **options: Any) -> Engine:
        """An engine with runs admitted a second apart."""
        engine = self.engine(agent, **options)
        for run_id in run_ids or (RUN_ID,):
            engine.start(agent, run_id, run_id=run_id)
            self.clock.advance(1.0)
        return engine

    def row(self, run_id: str = RUN_ID) -> RunRow:
        row = self.journal.row(run_id)
        assert row is not None
        return row

    def rows(self) -> dict[str, RunStatus]:
        return {row.run_id: row.status for row in self.journal.rows()}

    def history(self, run_id: str = RUN_ID) -> list[tuple[str, str, str]]:
        return [event[1:4] for event in self.journal.events(self.row(run_id))]

    def seize(self) -> tuple[RunRow, list[tuple[str, str, str]]]:
        """What a claim by worker w-2 writes, and nothing more; how the run stands then."""
        row, lease_until = self.row(), self.clock.now() + LEASE_S
        claimed = row._replace(status=RunStatus.RUNNING, worker="w-2", token=row.token + 1)
        claimed = claimed._replace(due_at=0.0, lease_s=LEASE_S, lease_until=lease_until)
        assert self.journal.replace(row, claimed)
        return self.row(), self.history()

    def glance(self, engine: Engine, name: str = "w-2") -> int:
        """Let a worker drive what is free now, and stop it where it would wait."""
        worker = Worker(engine, name, lease_s=LEASE_S, poll_s=POLL_S)
        self.clock.asleep = worker.stop
        try:
            return worker.run_until_idle()
        finally:
            self.clock.asleep = lambda: None


@pytest.fixture
def place(journal_path: Path) -> Iterator[Place]:
    made = Place(journal_path)
    with made.closing:
        yield made


def idle(engine: Engine, name: str = "w-1", **options: Any) -> int:
    """Let a worker drive until it is idle; how many attempts."""
    return Worker(engine, name, lease_s=LEASE_S, poll_s=POLL_S, **options).run_until_idle()


def killed(engine: Engine, name: str = "w-0") -> None:
    """Let a worker drive until the engine's probe kills it."""
    with pytest.raises(InjectedCrash):
        idle(engine, name)


def handlers() -> list[Any]:
    """What this process does at the signals that stop a worker."""
    return [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]


def two_steps(body: Callable[..., Any]) -> Workflow:
    """The steps "a" and "b", each given its name."""
    return scripted(lambda c: c.step("a", body, "a"), lambda c: c.step("b", body, "b"))


@workflow(version="1")
def unknown_here(ctx: Context, _: Any) -> None:
    """A workflow that the workers of these tests don't have."""


# ---- claims ------------------------------------------------------------------------------------


def test_claim_and_release_raise_the_token_and_say_who_holds_the_run(place: Place) -> None:
    held: list[RunRow] = []
    agent = scripted(lambda c: c.step("a", lambda: held.append(place.row())))
    engine = place.started(agent)
    admitted, claimed_at = place.row(), place.clock.now()
    assert Worker(engine, worker_id="anna", lease_s=8.0).run_until_idle() == 1

    claimed = admitted._replace(status=RunStatus.RUNNING, worker="anna", token=1, due_at=0.0)
    claimed = claimed._replace(lease_s=8.0, lease_until=claimed_at + 8.0, attempts=1, crashes=1)
    assert held == [claimed]
    freed = claimed._replace(status=RunStatus.COMPLETED, worker=None, token=2, due_at=None)
    assert place.row() == freed._replace(lease_until=claimed_at, crashes=0)


def test_workers_without_a_name_get_one_each_that_shows_the_process(place: Place) -> None:
    engine = place.engine()
    names = [Worker(engine).worker_id for _ in range(2)]
    assert names[0] != names[1]
    assert all(re.fullmatch(rf"worker-{os.getpid()}-[0-9a-f]+", name) for name in names)


def test_the_run_that_has_waited_longest_is_claimed_first(place: Place) -> None:
    body = Counted()

    @workflow(version="1")
    def waiting(ctx: Context, run_id: str) -> None:
        if run_id == "r-1":
            ctx.wait_signal("go")
        ctx.step("done", body, run_id)

    engine = place.started(waiting, "r-1")
    idle(engine)
    place.started(waiting, "r-3", "r-2")
    engine.signal("r-1", "go")  # suspended before the others came: it is the longest there
    place.started(waiting, "r-4")
    assert idle(engine) == 4
    assert body.calls == [("r-1",), ("r-3",), ("r-2",), ("r-4",)]


def test_a_run_that_is_given_back_waits_behind_those_that_came_before_that(place: Place) -> None:
    body = Counted()

    @workflow(version="1")
    def waiting(ctx: Context, run_id: str) -> None:
        ctx.step("begun", body, run_id)
        if run_id == "r-1":
            ctx.wait_signal("go")
            ctx.step("woken", body, run_id)

    engine = place.started(waiting, "r-1", "r-2")
    first = Worker(engine, on_attempt=lambda run: first.stop())
    assert first.run_until_idle() == 1
    engine.signal("r-1", "go")
    assert place.rows() == {"r-1": "suspended", "r-2": "pending"}
    place.started(waiting, "r-3")
    assert idle(engine) == 3
    assert body.calls == [("r-1",), ("r-2",), ("r-1",), ("r-3",)]


@pytest.mark.parametrize("takes_s", [0.0, 0.1], ids=["standing clock", "running clock"])
def test_a_run_that_is_woken_all_the_time_starves_nobody(place: Place, takes_s: float) -> None:
    @workflow(version="1")
    def busy(ctx: Context, run_id: str) -> None:
        place.clock.advance(takes_s)
        while run_id == "r-0":
            ctx.wait_signal("again")

    engine = place.started(busy, "r-0", "r-1", "r-2", "r-3")
    made: list[str] = []

    def wake(run: Run) -> None:
        made.append(run.run_id)
        engine.signal("r-0", "again")
        if len(made) == 12:
            worker.stop()

    worker = Worker(engine, on_attempt=wake)
    worker.run_until_idle()
    assert {"r-1", "r-2", "r-3"} <= set(made)
    assert max(made.index(f"r-{number}") for number in (1, 2, 3)) < 6


def test_orphans_at_the_front_keep_the_worker_from_nothing(place: Place) -> None:
    place.started(unknown_here, *(f"orphan-{number}" for number in range(40)))
    body = Counted()
    assert idle(place.started(two_steps(body))) == 1
    assert body.calls == [("a",), ("b",)]
    assert set(place.rows().values()) == {RunStatus.COMPLETED, RunStatus.PENDING}


def test_workers_side_by_side_never_hold_a_run_together(place: Place) -> None:
    runs, workers, in_hand, lock = 25, 4, set[str](), Lock()
    twice: list[str] = []

    @workflow(version="1")
    def held(ctx: Context, run_id: str) -> None:
        ctx.step("hold", hold, run_id)

    def hold(run_id: str) -> None:
        with lock:
            twice.extend({run_id} & in_hand)
            in_hand.add(run_id)

    place.started(held, *(f"r-{number}" for number in range(runs)))
    attempts: list[int] = []

    def work() -> None:
        with SQLiteJournal(place.path) as journal:
            attempts.append(Worker(Engine(journal, [held])).run_until_idle())

    threads = [Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert twice == []
    assert (len(attempts), sum(attempts), len(in_hand)) == (workers, runs, runs)
    assert set(place.rows().values()) == {RunStatus.COMPLETED}


# ---- leases ------------------------------------------------------------------------------------


def test_the_run_of_a_dead_worker_is_taken_over_when_its_lease_ends_and_not_before(
    place: Place,
) -> None:
    body = Counted()
    agent = two_steps(body)
    killed(place.started(agent, probe=CrashAt("b", "before")))
    lease_until = place.row().lease_until
    engine = place.engine(agent)
    place.clock.advance(LEASE_S - 0.001)
    assert place.glance(engine) == 0
    assert (place.row().worker, place.row().token) == ("w-0", 1)
    assert place.clock.now() >= lease_until
    assert place.glance(engine) == 1
    assert (place.row().status, place.row().attempts) == (RunStatus.COMPLETED, 2)
    assert body.calls == [("a",), ("b",)]


def test_a_run_in_a_long_step_is_nobody_elses_however_long_it_takes(place: Place) -> None:
    """The heartbeats are real here, and the time is not: it runs as they come."""
    entered, others = count(1), list[int]()

    def long() -> str:
        for _ in range(4 if next(entered) == 1 else 0):
            before = place.row().lease_until
            place.clock.advance(0.9 * LEASE_S)
            others.append(place.glance(place.engine(agent)))
            give_up_at = time.monotonic() + LIMIT_S
            while place.row().lease_until == before and time.monotonic() < give_up_at:
                Event().wait(0.001)
        return "done"

    agent = scripted(lambda c: c.step("long", long))
    engine = place.started(agent)
    assert idle(engine, heartbeat_s=0.01) == 1
    assert others == [0, 0, 0, 0]
    assert engine.describe(RUN_ID)[4:7] == (RunStatus.COMPLETED, RUN_ID, ["done"])
    assert place.row().attempts == 1


def test_a_worker_that_lost_its_run_stops_before_the_next_steps_work(place: Place) -> None:
    body, attempts = Counted(), count(1)

    @workflow(version="1")
    def agent(ctx: Context, _: Any) -> None:
        ctx.step("a", body, "a")
        if next(attempts) == 1:
            place.clock.advance(LEASE_S)
            assert place.glance(place.engine(agent)) == 1
        with suppress(Exception):
            ctx.step("b", body, "b")
        ctx.step("c", body, "c")

    engine = place.started(agent)
    assert place.glance(engine, "w-1") == 1
    assert body.calls == [("a",), ("b",), ("c",)]
    assert (place.row().status, place.row().attempts) == (RunStatus.COMPLETED, 2)


def fail(*_: Any) -> None:
    raise ConnectionError("no line")


@workflow(version="1")
def smaller(ctx: Context, _: Any) -> None:
    """A child that goes on with nothing."""
    ctx.wait_signal("never")


def _undone(ctx: Context) -> None:
    ctx.compensate("undo", Counted())
    ctx.effect("do", Counted())
    raise RunFailed


DURABLE_CALLS: dict[str, Callable[[Context], Any]] = {
    "step": lambda c: c.step("s", Counted()),
    "effect": lambda c: c.effect("e", Counted()),
    "try": lambda c: c.step("s", fail, retry=RetryPolicy()),
    "now": lambda c: c.now(),
    "random": lambda c: c.random(),
    "uuid": lambda c: c.uuid(),
    "timer": lambda c: c.sleep(9.0),
    "fired": lambda c: c.sleep(0.0),
    "wait": lambda c: c.wait_signal("go"),
    "received": lambda c: c.wait_signal("sent"),
    "timed_out": lambda c: c.wait_signal("go", timeout_s=0.0),
    "child": lambda c: c.child(smaller),
    "patch": lambda c: c.patched("p"),
    "compensate": lambda c: c.compensate("undo", Counted()),
    "undo": _undone,
    "pivot": lambda c: c.point_of_no_return(),
}


@pytest.mark.parametrize("kind", DURABLE_CALLS)
def test_what_a_worker_writes_after_it_lost_the_run_is_refused_whole(
    place: Place, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Another claims the run when the work is done and the journal isn't written."""
    taken: list[Any] = []

    def probe(position: str, of: str, _name: str) -> None:
        if (position, of) == ("window", kind) and not taken:
            taken.append(place.seize())

    agent = scripted(DURABLE_CALLS[kind])
    engine = place.started(agent, probe=probe)
    engine = place.engine(agent, smaller, probe=probe)
    engine.signal(RUN_ID, "sent")
    assert place.glance(engine, "w-1") >= 1
    assert taken == [(place.row(), place.history())]
    assert re.search("w-1 holds token 1, .* token 2 of w-2", caplog.text)


def _ends(_: Context) -> None:
    """A run that is completed."""


def _fails(_: Context) -> None:
    raise RunFailed("sold out")


def _breaks(_: Context) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("ending", [_ends, _fails, _breaks])
def test_how_a_run_ended_for_a_worker_that_lost_it_is_not_written(
    place: Place, ending: Callable[[Context], None]
) -> None:
    taken: list[Any] = []

    @workflow(version="1")
    def agent(ctx: Context, _: Any) -> None:
        taken.append(place.seize())
        ending(ctx)

    assert place.glance(place.started(agent), "w-1") == 1
    assert taken == [(place.row(), place.history())]


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.wait_signal("go"),
        lambda c: c.continue_as_new("more"),
        lambda c: c.step("s", fail, retry=RetryPolicy()),
    ],
    ids=["suspended", "continued", "back-off"],
)
def test_a_worker_that_lost_a_run_does_not_give_it_back(
    place: Place, call: Callable[[Context], Any]
) -> None:
    taken: list[Any] = []

    @workflow(version="1")
    def agent(ctx: Context, _: Any) -> None:
        try:
            call(ctx)
        finally:
            taken.append(place.seize())

    assert place.glance(place.started(agent), "w-1") == 1
    assert taken == [(place.row(), place.history())]


def test_a_worker_that_is_stopped_does_not_give_back_what_it_lost(place: Place) -> None:
    taken: list[Any] = []

    @workflow(version="1")
    def agent(ctx: Context, _: Any) -> None:
        worker.stop()
        try:
            ctx.step("a", Counted())
        finally:
            taken.append(place.seize())

    worker = Worker(place.started(agent), "w-1")
    assert worker.run_until_idle() == 1
    assert taken == [(place.row(), place.history())]


def test_a_worker_that_lost_a_run_goes_on_with_the_others(place: Place) -> None:
    body = Counted()

    @workflow(version="1")
    def agent(ctx: Context, run_id: str) -> None:
        if run_id == RUN_ID:
            place.seize()
        ctx.step("a", body, run_id)

    engine = place.started(agent, RUN_ID, "r-2", "r-3")
    assert place.glance(engine, "w-1") == 3
    assert body.calls == [("r-2",), ("r-3",)]
    assert place.row().worker == "w-2"


# ---- clocks that jump --------------------------------------------------------------------------


def test_a_late_append_that_nobody_challenged_is_stored_and_extends_the_lease(place: Place) -> None:
    leases: list[float] = []

    def long(name: str) -> str:
        if name == "b":
            leases.append(place.row().lease_until - place.clock.now())
        place.clock.advance(TWO_DAYS_S)
        return name

    body = Counted()
    agent = scripted(
        lambda c: c.step("a", long, "a"),
        lambda c: c.step("b", long, "b"),
        lambda c: c.step("c", body, "c"),
    )
    assert idle(place.started(agent)) == 1
    assert leases == [LEASE_S]
    assert body.calls == [("c",)]
    assert (place.row().status, place.row().attempts) == (RunStatus.COMPLETED, 1)


def test_a_clock_that_jumps_forward_repeats_one_effect_at_most_and_under_its_key(
    place: Place,
) -> None:
    """The other worker claims the run in the effect; the holder is refused, and does no more."""
    asked: list[str] = []

    def post(name: str, *, idempotency_key: str) -> str:
        asked.append(idempotency_key)
        if asked == [f"{RUN_ID}/a", f"{RUN_ID}/b"]:
            place.clock.advance(TWO_DAYS_S)
            assert place.glance(place.engine(agent)) == 1
        return name

    agent = scripted(*(lambda c, name=name: c.effect(name, post, name) for name in "abc"))
    assert place.glance(place.started(agent), "w-1") == 1
    assert asked == [f"{RUN_ID}/{name}" for name in "abbc"]
    assert place.row().status is RunStatus.COMPLETED


def _pending(place: Place, agent: Workflow) -> None:
    place.started(agent)


def _leased(place: Place, agent: Workflow) -> None:
    killed(place.started(agent, probe=CrashAt("a", "before")))


def _woken(place: Place, agent: Workflow) -> None:
    engine = place.started(agent)
    idle(engine)
    assert place.row().status is RunStatus.SUSPENDED
    engine.signal(RUN_ID, "go")


@pytest.mark.parametrize("stand", [_pending, _leased, _woken])
def test_a_clock_that_is_set_back_strands_no_run_for_longer_than_a_lease(
    place: Place, stand: Callable[[Place, Workflow], None]
) -> None:
    body = Counted()
    agent = scripted(
        lambda c: c.wait_signal("go") if stand is _woken else None, lambda c: c.step("a", body, "a")
    )
    stand(place, agent)
    place.clock.advance(-TWO_DAYS_S)
    set_back_at = place.clock.now()
    assert idle(place.engine(agent), "w-2") == 1
    assert place.row().status is RunStatus.COMPLETED
    assert body.calls == [("a",)]
    assert place.clock.now() - set_back_at <= LEASE_S + 2 * POLL_S


def test_a_clock_that_is_set_back_gives_a_held_run_to_nobody_else(place: Place) -> None:
    def long() -> None:
        place.clock.advance(-TWO_DAYS_S)
        assert place.glance(place.engine(agent)) == 0
        assert place.glance(place.engine(agent)) == 0

    agent = scripted(lambda c: c.step("long", long))
    assert idle(place.started(agent)) == 1
    assert (place.row().status, place.row().token) == (RunStatus.COMPLETED, 2)


def test_a_worker_waits_for_no_orphan_whose_clock_was_set_back(place: Place) -> None:
    place.started(unknown_here)
    place.clock.advance(-TWO_DAYS_S)
    assert idle(place.engine()) == 0
    assert place.clock.naps <= (LEASE_S + 1.0) / POLL_S


# ---- idle --------------------------------------------------------------------------------------


def test_a_worker_waits_while_another_holds_a_run_and_then_takes_it_over(place: Place) -> None:
    body = Counted()
    engine = place.started(two_steps(body))
    held, _ = place.seize()
    assert idle(engine) == 1
    assert 0.0 <= place.clock.now() - held.lease_until <= 2 * POLL_S
    assert body.calls == [("a",), ("b",)]


def test_a_worker_that_came_second_to_a_run_waits_while_the_first_holds_it(place: Place) -> None:
    """The other claims it between this worker's look and its claim."""
    body, held = Counted(), list[RunRow]()
    engine = place.started(two_steps(body))
    look = engine.journal.due

    def due(now: float) -> list[RunRow]:
        rows = look(now)
        held.extend([] if held else [place.seize()[0]])
        return rows

    engine.journal.due = due  # type: ignore[method-assign]
    assert idle(engine) == 1
    assert place.clock.now() >= held[0].lease_until
    assert (place.row().status, place.row().attempts) == (RunStatus.COMPLETED, 1)


def test_a_worker_is_idle_when_the_other_has_finished(place: Place) -> None:
    body = Counted()
    engine = place.started(two_steps(body))
    held, _ = place.seize()

    def finish() -> None:
        if place.clock.naps == 3:
            place.journal.append(
                held, None, status=RunStatus.COMPLETED, due_at=None, lease_until=0.0
            )

    place.clock.asleep = finish
    assert idle(engine) == 0
    assert place.clock.naps == 3
    assert body.calls == []


def test_a_worker_waits_for_a_run_of_another_workflow_that_is_held(place: Place) -> None:
    place.started(unknown_here)
    held, _ = place.seize()
    assert idle(place.engine()) == 0
    assert place.clock.now() >= held.lease_until


def _sleeping(c: Context) -> None:
    c.sleep(60.0)


def _listening(c: Context) -> None:
    c.wait_signal("go", timeout_s=60.0)


def _backing_off(c: Context) -> None:
    c.step("s", fail, retry=RetryPolicy(initial_s=60.0))


@pytest.mark.parametrize("waiting", [_sleeping, _listening, _backing_off])
def test_a_worker_does_not_wait_for_what_is_due_later(
    place: Place, waiting: Callable[[Context], None]
) -> None:
    engine = place.started(scripted(waiting))
    assert idle(engine) == 1
    assert (idle(engine), place.clock.naps) == (0, 0)
    assert place.row().status is RunStatus.SUSPENDED
    place.clock.advance(60.0)
    assert idle(engine) == 1


def test_a_worker_waits_for_nothing_that_it_cannot_drive(place: Place) -> None:
    place.started(unknown_here, "orphan")
    engine = place.started(scripted(_breaks), "broken")
    assert idle(engine) == 1
    assert place.row("broken").status is RunStatus.NEEDS_ATTENTION
    assert (idle(engine), place.clock.naps) == (0, 0)
    assert [orphan.run_id for orphan in engine.orphans()] == ["orphan"]


# ---- stopping ----------------------------------------------------------------------------------


def test_stop_in_a_step_lets_it_end_and_gives_the_run_to_another_worker(place: Place) -> None:
    body = Counted()

    def stop(name: str) -> str:
        worker.stop()
        return str(body(name))

    agent = scripted(lambda c: c.step("a", stop, "a"), lambda c: c.step("b", body, "b"))
    engine = place.started(agent, RUN_ID, "r-2")
    worker = Worker(engine, "w-1")
    assert worker.run_until_idle() == 1
    row = place.row()
    assert (row.status, row.due_at, row.worker, row.crashes) == (RunStatus.PENDING, 0.0, None, 0)
    assert row.lease_until <= place.clock.now()
    assert [name for _, name, _ in place.history()] == ["scripted", "a"]
    assert (place.row("r-2").status, place.row("r-2").attempts) == (RunStatus.PENDING, 0)

    assert idle(place.engine(agent), "w-2") == 2
    assert engine.describe(RUN_ID).result == ["a", "b"]
    assert (place.row().attempts, place.clock.naps) == (2, 0)
    assert sorted(body.calls) == [("a",), ("a",), ("b",), ("b",)]


def test_stop_in_the_last_step_lets_the_run_end(place: Place) -> None:
    agent = scripted(lambda c: c.step("a", worker.stop))
    worker = Worker(place.started(agent), "w-1")
    assert worker.run_until_idle() == 1
    assert place.row().status is RunStatus.COMPLETED


def test_a_stopped_worker_claims_nothing(place: Place) -> None:
    worker = Worker(place.started(two_steps(Counted())))
    worker.stop()
    assert worker.run_until_idle() == 0
    worker.run_forever()
    assert place.row().attempts == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_forever_stops_at_a_signal_and_leaves_the_handlers_as_they_were(
    place: Place, number: signal.Signals
) -> None:
    before = handlers()
    agent = scripted(
        lambda c: c.step("a", signal.raise_signal, number), lambda c: c.step("b", Counted())
    )
    Worker(place.started(agent)).run_forever()
    assert [name for _, name, _ in place.history()] == ["scripted", "a"]
    assert place.row().status is RunStatus.PENDING
    assert handlers() == before


def test_run_forever_waits_for_new_runs_until_another_thread_stops_it(place: Place) -> None:
    agent = two_steps(Counted())
    engine, done = place.engine(agent, clock=SystemClock()), Event()
    worker = Worker(engine, poll_s=0.001, on_attempt=lambda run: done.set())
    thread = Thread(target=worker.run_forever)
    thread.start()
    try:
        for run_id in ("r-1", "r-2"):
            done.clear()
            engine.start(agent, None, run_id=run_id)
            assert done.wait(LIMIT_S)
        assert thread.is_alive()
    finally:
        worker.stop()
        thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert place.rows() == {"r-1": "completed", "r-2": "completed"}


def test_run_forever_in_the_main_thread_is_stopped_from_another(place: Place) -> None:
    agent = two_steps(Counted())
    engine = place.started(agent, clock=SystemClock())
    place.clock.advance(-TWO_DAYS_S)

    def stop(_: Run) -> None:
        Thread(target=worker.stop).start()

    worker = Worker(engine, poll_s=0.001, on_attempt=stop)
    in_the_end = Timer(LIMIT_S, worker.stop)
    in_the_end.start()
    worker.run_forever()
    assert in_the_end.is_alive(), "on_attempt wasn't called"
    in_the_end.cancel()
    assert place.row().status is RunStatus.COMPLETED


# ---- what is wrong with one run or one worker --------------------------------------------------


def test_a_run_that_keeps_killing_its_workers_is_left_for_a_person(place: Place) -> None:
    body = Counted()
    agent = two_steps(body)
    budget = Budget(max_attempts=3)
    place.started(agent)
    for _ in range(3):
        killed(place.engine(agent, budget=budget, probe=CrashAt("a", "window")))
        place.clock.advance(LEASE_S)
    engine = place.engine(agent, budget=budget)
    told: list[Run] = []
    idle(engine, on_attempt=told.append)
    run = engine.describe(RUN_ID)
    assert run.status is RunStatus.NEEDS_ATTENTION
    assert run.error == ("CrashLoop", "3 attempts in a row crashed and recorded nothing", None)
    assert (run.attempts, told, len(body.calls)) == (3, [run], 3)
    assert (idle(engine), place.clock.naps) == (0, 0)
    assert engine.resume(RUN_ID).status is RunStatus.COMPLETED
    assert place.row().crashes == 0


def test_an_attempt_that_records_something_ends_a_row_of_crashes(place: Place) -> None:
    agent, budget = two_steps(Counted()), Budget(max_attempts=3)
    crashes: list[int] = []
    place.started(agent)
    for at in (("a", "before"), ("a", "window"), ("a", "after"), ("b", "window"), ("b", "after")):
        killed(place.engine(agent, budget=budget, probe=CrashAt(*at)))
        place.clock.advance(LEASE_S)
        crashes.append(place.row().crashes)
    assert crashes == [1, 2, 0, 1, 0]
    assert idle(place.engine(agent, budget=budget)) == 1
    assert (place.row().status, place.row().attempts) == (RunStatus.COMPLETED, 6)


def test_a_run_whose_history_is_damaged_keeps_nobody_from_the_others(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    body = Counted()
    engine = place.started(two_steps(body), RUN_ID, "r-2")
    with closing(sqlite3.connect(place.path)) as other:
        other.execute("UPDATE events SET payload = '{}' WHERE run_id = ?", (RUN_ID,))
        other.commit()
    before = place.row()
    worker = Worker(engine)
    assert (worker.run_until_idle(), worker.run_until_idle()) == (1, 0)
    assert place.rows() == {RUN_ID: "pending", "r-2": "completed"}
    assert place.row() == before
    assert [record.run_id for record in caplog.records] == [RUN_ID]  # type: ignore[attr-defined]
    assert "event 1: the checksum doesn't fit" in caplog.text


def test_a_run_whose_code_changed_is_left_alone_without_an_attempt(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    body = Counted()

    @workflow(version="1", name="changing")
    def before(ctx: Context, _: Any) -> None:
        ctx.step("a", body, "a")

    @workflow(version="1", name="changing")
    def after(ctx: Context, _: Any) -> None:
        ctx.step("a", body, "a")
        ctx.step("b", body, "b")

    place.started(before, "old")
    stood = place.row("old")
    engine = place.started(after, "new")
    worker = Worker(engine)
    assert (worker.run_until_idle(), worker.run_until_idle()) == (1, 0)
    assert (place.row("old"), place.row("new").status) == (stood, RunStatus.COMPLETED)
    assert caplog.text.count("changed since this run started") == 1
    assert [orphan.run_id for orphan in engine.orphans()] == ["old"]
    assert idle(place.engine(before)) == 1
    assert place.row("old").status is RunStatus.COMPLETED


def test_a_run_that_diverges_is_left_for_a_person_and_the_others_go_on(place: Place) -> None:
    body = Counted()
    killed(place.started(two_steps(body), probe=CrashAt("b", "before")))
    place.clock.advance(LEASE_S)
    other = scripted(lambda c: c.step("z", body, "z"))
    engine = place.started(other, RUN_ID + "x")
    idle(engine)
    assert place.rows() == {RUN_ID: "needs_attention", RUN_ID + "x": "completed"}
    assert body.calls == [("a",), ("z",)]
    assert (idle(engine), place.clock.naps) == (0, 0)


class FullDisk(SQLiteJournal):
    """A journal whose disk has no room for the event called `refused`."""

    refused = "b"

    def _insert(self, row: RunRow, event: Any) -> None:
        if event.name == self.refused:
            raise sqlite3.OperationalError("database or disk is full")
        super()._insert(row, event)


def test_a_storage_error_ends_the_worker_and_another_finishes_its_run(place: Place) -> None:
    body = Counted()
    agent = two_steps(body)
    place.started(agent)
    with FullDisk(place.path) as journal:
        worker = Worker(Engine(journal, [agent], clock=place.clock), "w-1", lease_s=LEASE_S)
        with pytest.raises(StorageError, match="disk is full"):
            worker.run_until_idle()
        with pytest.raises(StorageError, match="refuses appends"):
            worker.run_until_idle()
    assert (place.row().status, place.row().worker) == (RunStatus.RUNNING, "w-1")

    engine = place.engine(agent)
    assert idle(engine, "w-2") == 1
    assert engine.describe(RUN_ID).result == ["a", "b"]
    assert body.calls == [("a",), ("b",), ("b",)]


def test_run_forever_that_ends_with_an_error_leaves_the_handlers_as_they_were(place: Place) -> None:
    agent = two_steps(Counted())
    place.started(agent)
    before = handlers()
    with FullDisk(place.path) as journal, pytest.raises(StorageError):
        Worker(Engine(journal, [agent], clock=place.clock)).run_forever()
    assert handlers() == before


# ---- telling -----------------------------------------------------------------------------------


def test_on_attempt_is_told_how_the_run_stands_after_each(place: Place) -> None:
    engine = place.started(scripted(lambda c: c.wait_signal("go")), RUN_ID, "r-2")
    engine.signal("r-2", "go", 7)
    told: list[Run] = []
    assert idle(engine, on_attempt=told.append) == 2
    assert [(run.run_id, run.status, run.result) for run in told] == [
        (RUN_ID, RunStatus.SUSPENDED, None),
        ("r-2", RunStatus.COMPLETED, [7]),
    ]
    assert told == [engine.describe(RUN_ID), engine.describe("r-2")]


@pytest.mark.parametrize(
    ("lease_s", "heartbeat_s"),
    [(5.0, 0.0), (5.0, -1.0), (5.0, 2.6), (0.0, 0.0), (-5.0, 1.0), (5.0, float("nan"))],
)
def test_a_worker_whose_heartbeats_come_too_late_is_refused(
    place: Place, lease_s: float, heartbeat_s: float
) -> None:
    with pytest.raises(ValueError, match=f"lease_s={lease_s}"):
        Worker(place.engine(), lease_s=lease_s, heartbeat_s=heartbeat_s)


def test_every_log_record_of_a_worker_names_its_run(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "durable_mini")

    @workflow(version="1")
    def agent(ctx: Context, run_id: str) -> None:
        ctx.step("a", place.seize if run_id == RUN_ID else Counted())
        for _ in range(8 if run_id == "long" else 0):
            ctx.now()
        if run_id == "broken":
            raise ZeroDivisionError

    engine = place.started(agent, RUN_ID, "broken", "long", max_events=10)
    worker = Worker(engine, "w-1", lease_s=LEASE_S)
    place.clock.asleep = worker.stop
    worker.run_until_idle()
    ours = [record for record in caplog.records if record.name.startswith("durable_mini")]
    told = {getattr(record, "run_id", record.getMessage()) for record in ours}
    assert told == {RUN_ID, "broken", "long"}
    for said in ("holds token", "needs attention", "events of 10"):
        assert said in caplog.text


def test_nothing_is_said_on_stderr_unless_logging_is_asked_for(place: Place) -> None:
    script = f"""
        from durable_mini import Engine, SQLiteJournal, Worker, workflow
        @workflow(version="1")
        def broken(ctx, _):
            raise ZeroDivisionError
        with SQLiteJournal({str(place.path)!r}) as journal:
            engine = Engine(journal, [broken])
            engine.start(broken, run_id="r-1")
            Worker(engine).run_until_idle()
    """
    path = place.path.with_name("script.py")
    path.write_text("\n".join(line[8:] for line in script.splitlines()))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert place.row().status is RunStatus.NEEDS_ATTENTION
