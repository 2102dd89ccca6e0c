"""Heartbeats: whose leases are renewed, from when to when, and what a lost one comes to.

The heartbeats are real and come every few milliseconds. That something is not renewed any more is
seen by another run that is: the witness.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from children import in_child
from support import Counted, scripted

from durable_mini import Engine, FakeClock, RunStatus, SQLiteJournal, StorageError, Worker
from durable_mini.events import Entry, RunRow
from durable_mini.lease import Heart

BEAT_S, LEASE_S, LIMIT_S = 0.005, 5.0, 10.0
AGENT = scripted()


class Watched(SQLiteJournal):
    """A journal that counts the renewals of each run; `before` is called before each of them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[str] = []
        self.before: Callable[[str], None] = lambda run_id: None
        self._beaten = threading.Condition()

    def append(self, row: RunRow, entry: Entry | None, **options: Any) -> int:
        if entry is None:
            with self._beaten:
                self.asked.append(row.run_id)
                self._beaten.notify_all()
            self.before(row.run_id)
        return super().append(row, entry, **options)

    def wait_for(self, run_id: str, beats: int = 2) -> None:
        """Come back when so many more renewals of a run have been asked for."""
        wanted = self.asked.count(run_id) + beats
        with self._beaten:
            assert self._beaten.wait_for(lambda: self.asked.count(run_id) >= wanted, LIMIT_S)

    def claimed(self, run_id: str, clock: FakeClock, lease_s: float = LEASE_S) -> RunRow:
        """A run as its holder has it."""
        Engine(self, [AGENT], clock=clock).start(AGENT, run_id=run_id)
        row = self.find(run_id)
        held = row._replace(status=RunStatus.RUNNING, worker="w-1", token=1, lease_s=lease_s)
        assert self.replace(row, held)
        return held


@pytest.fixture
def watched(journal_path: Path) -> Iterator[Watched]:
    with Watched(journal_path) as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000.0)


def hearts() -> list[Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "heartbeats"]


def test_heart_renews_each_run_that_is_held_by_the_clock_and_its_own_lease(
    watched: Watched, clock: FakeClock
) -> None:
    before = len(hearts())
    heart = Heart(BEAT_S)
    one, other = watched.claimed("r-1", clock), watched.claimed("r-2", clock, lease_s=60.0)
    clock.advance(100.0)
    with heart.holding(watched, one, clock), heart.holding(watched, other, clock):
        watched.wait_for("r-1")
        watched.wait_for("r-2")
    assert watched.find("r-1") == one._replace(lease_until=1_100.0 + LEASE_S)
    assert watched.find("r-2") == other._replace(lease_until=1_160.0)
    assert len(hearts()) == before + 1
    assert all(thread.daemon for thread in hearts())


def test_heart_renews_nothing_that_was_let_go(watched: Watched, clock: FakeClock) -> None:
    heart = Heart(BEAT_S)
    row, witness = watched.claimed("r-1", clock), watched.claimed("witness", clock)
    with heart.holding(watched, witness, clock):
        with heart.holding(watched, row, clock):
            watched.wait_for("r-1")
        asked = watched.asked.count("r-1")
        watched.wait_for("witness", beats=5)
        assert watched.asked.count("r-1") == asked


def test_heart_does_not_ask_again_for_a_lease_that_was_lost(
    watched: Watched, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    heart = Heart(BEAT_S)
    row, witness = watched.claimed("r-1", clock), watched.claimed("witness", clock)
    taken = row._replace(worker="w-2", token=2)
    assert watched.replace(row, taken)
    with heart.holding(watched, witness, clock), heart.holding(watched, row, clock):
        watched.wait_for("witness", beats=5)
    assert watched.asked.count("r-1") == 1
    assert watched.find("r-1") == taken
    assert caplog.records == []


def test_heart_goes_on_after_a_storage_error_and_says_so(
    watched: Watched, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    heart, row = Heart(BEAT_S), watched.claimed("r-1", clock)

    def fail_once(_: str) -> None:
        watched.before = lambda run_id: None
        raise StorageError(path="here", reason="the disk is busy")

    watched.before = fail_once
    clock.advance(100.0)
    with heart.holding(watched, row, clock):
        watched.wait_for("r-1", beats=3)
    assert watched.find("r-1").lease_until == 1_100.0 + LEASE_S
    assert [record.run_id for record in caplog.records] == ["r-1"]  # type: ignore[attr-defined]
    assert "heartbeat: here: the disk is busy" in caplog.text


def test_a_run_is_let_go_when_its_renewal_has_ended(watched: Watched, clock: FakeClock) -> None:
    """Whoever holds it may close the journal next."""
    heart, row = Heart(BEAT_S), watched.claimed("r-1", clock)
    renewing, go_on, leaving = Event(), Event(), Event()

    def stand(_: str) -> None:
        renewing.set()
        go_on.wait(LIMIT_S)

    watched.before = stand

    def hold() -> None:
        with heart.holding(watched, row, clock):
            assert renewing.wait(LIMIT_S)
            leaving.set()

    holder = Thread(target=hold)
    holder.start()
    assert leaving.wait(LIMIT_S)
    holder.join(10 * BEAT_S)
    assert holder.is_alive()
    go_on.set()
    holder.join(LIMIT_S)
    assert not holder.is_alive()


def test_runs_of_several_journals_share_a_heart(tmp_path: Path, clock: FakeClock) -> None:
    heart = Heart(BEAT_S)
    with ExitStack() as stack:
        journals = [stack.enter_context(Watched(tmp_path / f"{name}.db")) for name in "ab"]
        for journal in journals:
            row = journal.claimed("r-1", clock)
            stack.enter_context(heart.holding(journal, row, clock))
        for journal in journals:
            journal.wait_for("r-1")


def _waits_for_heartbeats(path: Path, beats: int = 2) -> int:
    """Drive a run whose step ends when its lease has been renewed; how many hearts there are."""
    clock = FakeClock(1_000.0)
    with SQLiteJournal(path) as journal:

        def long() -> None:
            for _ in range(beats):
                clock.advance(1.0)
                until, give_up_at = clock.now() + LEASE_S, time.monotonic() + LIMIT_S
                while journal.find(run_id).lease_until != until:
                    assert time.monotonic() < give_up_at, "no renewal came"
                    Event().wait(BEAT_S)

        agent = scripted(lambda c: c.step("long", long))
        engine = Engine(journal, [agent], clock=clock)
        run_id = engine.start(agent)
        Worker(engine, lease_s=LEASE_S, heartbeat_s=2 * BEAT_S).run_until_idle()
        assert engine.describe(run_id).status is RunStatus.COMPLETED
    return len(hearts())


def test_workers_of_a_process_share_a_heart_and_a_forked_process_has_its_own(
    journal_path: Path,
) -> None:
    here = _waits_for_heartbeats(journal_path)
    assert _waits_for_heartbeats(journal_path) == here
    assert in_child(_waits_for_heartbeats, journal_path) == 1


@pytest.mark.slow
def test_resume_keeps_its_lease_as_a_worker_does(journal_path: Path, clock: FakeClock) -> None:
    held: list[RunRow] = []
    with Watched(journal_path) as journal:

        def long() -> None:
            clock.advance(100.0)
            journal.wait_for("r-1", beats=1)
            journal.wait_for("r-1", beats=1)
            held.append(journal.find("r-1"))

        agent = scripted(lambda c: c.step("long", long))
        engine = Engine(journal, [agent], clock=clock)
        assert engine.run(agent, run_id="r-1").status is RunStatus.COMPLETED
    assert [(row.worker, row.lease_until) for row in held] == [(f"resume-{os.getpid()}", 1_105.0)]


def test_a_step_shorter_than_a_heartbeat_asks_for_no_renewal(
    watched: Watched, clock: FakeClock
) -> None:
    agent = scripted(lambda c: c.step("short", Counted()))
    engine = Engine(watched, [agent], clock=clock)
    engine.start(agent, run_id="r-1")
    Worker(engine, lease_s=60.0, heartbeat_s=30.0).run_until_idle()
    assert watched.asked == []
