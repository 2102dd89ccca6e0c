"""Several worker processes on one journal: killed, paused and told to stop, and nothing is lost.

The processes are real, so time is too. What one worker does to another's run at a chosen instant is
in `test_worker`.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from fleet import Fleet, Tally, two_steps

from durable_mini import Engine, FakeClock, Run, RunStatus, SQLiteJournal, Worker
from durable_mini.events import RunRow
from durable_mini.lab import REFERENCE_SHAPE, Ledger, agent_in
from durable_mini.ops import verify

pytestmark = pytest.mark.slow

STEPS = [spec.name for spec in REFERENCE_SHAPE]
EFFECTS = [spec.name for spec in REFERENCE_SHAPE if spec.kind == "effect"]
RUN_ID = "r-1"
LEASE_S = 5.0

Figure = Callable[[str], None]


class Place(NamedTuple):
    """The files that outlive every worker."""

    journal: Path
    ledger: Path

    def admit(self, runs: int) -> list[str]:
        agent = agent_in(Ledger())
        with SQLiteJournal(self.journal) as journal:
            engine = Engine(journal, [agent])
            orders = [f"o-{number}" for number in range(runs)]
            return [engine.start(agent, {"order": order}, run_id=order) for order in orders]

    def work_off(self, workers: int, runs: int, kills: int = 0) -> Tally:
        with Fleet(self.journal, self.ledger, lease_s=LEASE_S) as fleet:
            return fleet.work_off(workers, runs, kills)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "journal.db", tmp_path / "ledger.jsonl")


def assert_all_done_once(place: Place, run_ids: list[str]) -> None:
    """Every run has the history and the result of a crash-free run, and acted once outside."""
    with SQLiteJournal(place.journal) as journal:
        assert verify(journal).problems == ()
        engine = Engine(journal)
        runs = list(engine.runs())
        assert [run.run_id for run in runs] == run_ids
        assert Counter(run.status for run in runs) == {RunStatus.COMPLETED: len(run_ids)}
        assert all(run.result["order"] == run.run_id and run.cost == 8.0 for run in runs)
        for run_id in run_ids:
            names = [event.name for event in engine.history(run_id)]
            assert names == ["reference_agent", *STEPS, "reference_agent"]
    world = Ledger(path=place.ledger, honour_keys=False)
    keys = Counter(row.key for row in world.rows)
    assert keys == Counter(f"{run_id}/{name}" for run_id in run_ids for name in EFFECTS)
    assert world.repeats == 0


def test_eight_processes_killed_hundreds_of_times_complete_every_run_once(
    place: Place, figure: Figure
) -> None:
    run_ids = place.admit(2_000)
    tally = place.work_off(8, len(run_ids), kills=240)

    dead = [holder for holder in tally.takeovers if holder in tally.killed]
    repeats = tally.effects - len(EFFECTS) * len(run_ids)
    figure(
        f"{len(run_ids):,} runs, 8 worker processes: {len(tally.killed)} killed with SIGKILL, "
        f"{len(dead)} takeovers, {repeats} repeated effects asked for and 0 done, "
        f"longest wait for the write lock {tally.longest_wait_s:.3f} s, {tally.seconds:.0f} s"
    )
    assert_all_done_once(place, run_ids)
    assert len(tally.killed) >= 200
    assert len(dead) >= 100
    assert len(dead) == len(tally.takeovers), "a run was taken from a worker that was alive"
    assert repeats > 0, "no kill fell in a crash window: the receiver had nothing to drop"
    assert tally.longest_wait_s < LEASE_S / 10


def test_processes_share_the_runs_and_none_is_taken_from_a_living_one(
    tmp_path: Path, figure: Figure
) -> None:
    runs_per_s: list[float] = []
    for workers in (1, 8):
        folder = tmp_path / str(workers)
        folder.mkdir()
        place = Place(folder / "journal.db", folder / "ledger.jsonl")
        run_ids = place.admit(400)
        tally = place.work_off(workers, len(run_ids))
        runs_per_s.append(len(run_ids) / tally.seconds)
        assert_all_done_once(place, run_ids)
        assert tally.takeovers == []
        assert tally.effects == len(EFFECTS) * len(run_ids)
        assert tally.longest_wait_s < LEASE_S / 10
    one, eight = runs_per_s
    figure(
        f"{eight:.0f} runs/s with 8 worker processes on one journal, {one:.0f} runs/s with one: "
        f"{eight / one:.1f} times as many"
    )


# ---- one process in a long step ----------------------------------------------------------------


class Scene:
    """A process that stands in the first of two steps until the gate is opened."""

    def __init__(self, folder: Path) -> None:
        self.journal = SQLiteJournal(folder / "journal.db")
        self.executed: list[str] = []
        self.clock = FakeClock(time.time() + 3_600.0)  # of somebody for whom each lease is over
        agent = two_steps(self._body)
        self.engine = Engine(self.journal, [agent], clock=self.clock)
        Engine(self.journal, [agent]).start(agent, run_id=RUN_ID)
        self._gate = folder / "gate"
        # A process that is paused in the middle of a heartbeat would keep the write lock.
        lease = {"lease_s": 60.0, "heartbeat_s": 30.0}
        self.fleet = Fleet(folder / "journal.db", self._gate, "two_steps", forever=True, **lease)
        self.worker = self.fleet.start()
        assert self.fleet.wait_for(self.worker, "inside") == "long"

    def _body(self, name: str) -> str:
        self.executed.append(name)
        return name

    def open_gate(self) -> None:
        self._gate.touch()

    def row(self) -> RunRow:
        row = self.journal.row(RUN_ID)
        assert row is not None
        return row

    def names(self) -> list[str]:
        return [event.name for event in self.engine.history(RUN_ID)][1:]

    def finish_here(self) -> Run:
        """Let a worker of this process finish the run."""
        assert Worker(self.engine, "here").run_until_idle() == 1
        return self.engine.describe(RUN_ID)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    with scene.fleet, scene.journal:
        yield scene


def test_sigterm_in_a_long_step_ends_the_process_after_the_step_and_loses_nothing(
    scene: Scene,
) -> None:
    scene.fleet.send(scene.worker, signal.SIGTERM)
    scene.fleet.wait_for(scene.worker, "stopping")
    assert scene.names() == []
    scene.open_gate()
    scene.fleet.wait_for(scene.worker, "left")
    assert scene.fleet.exit_status(scene.worker) == 0

    row = scene.row()
    assert (row.status, row.worker, scene.names()) == (RunStatus.PENDING, None, ["long"])
    assert row.lease_until <= time.time(), "the run is still leased"
    run = scene.finish_here()
    assert (run.status, run.result, run.attempts) == (RunStatus.COMPLETED, ["long", "next"], 2)
    assert scene.executed == ["next"]


def test_a_second_sigterm_kills_the_process_and_the_run_is_taken_over(scene: Scene) -> None:
    scene.fleet.send(scene.worker, signal.SIGTERM)
    scene.fleet.wait_for(scene.worker, "stopping")
    scene.fleet.send(scene.worker, signal.SIGTERM)
    assert scene.fleet.exit_status(scene.worker) == -signal.SIGTERM

    row = scene.row()
    assert (row.status, row.worker, scene.names()) == (RunStatus.RUNNING, scene.worker, [])
    run = scene.finish_here()
    assert (run.status, run.result) == (RunStatus.COMPLETED, ["long", "next"])
    assert scene.executed == ["long", "next"]


def test_sigterm_ends_a_process_that_has_nothing_to_do(scene: Scene) -> None:
    scene.open_gate()
    assert scene.fleet.wait_for(scene.worker, "completed") == RUN_ID
    scene.fleet.send(scene.worker, signal.SIGTERM)
    assert scene.fleet.exit_status(scene.worker) == 0


def test_a_paused_process_that_wakes_after_its_lease_writes_and_executes_nothing(
    scene: Scene,
) -> None:
    scene.fleet.send(scene.worker, signal.SIGSTOP)
    before = scene.row()
    assert (before.status, before.worker) == (RunStatus.RUNNING, scene.worker)
    run = scene.finish_here()
    assert (run.status, scene.executed) == (RunStatus.COMPLETED, ["long", "next"])
    after, history = scene.row(), scene.engine.history(RUN_ID)

    scene.open_gate()
    scene.fleet.send(scene.worker, signal.SIGCONT)
    assert "run r-1: w-1 holds token 1" in scene.fleet.wait_for(scene.worker, "log")
    scene.fleet.send(scene.worker, signal.SIGTERM)
    assert scene.fleet.exit_status(scene.worker) == 0
    assert [line["inside"] for line in scene.fleet.told if "inside" in line] == ["long"]
    assert (scene.row(), scene.engine.history(RUN_ID)) == (after, history)
