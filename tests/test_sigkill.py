"""A real worker process, killed with SIGKILL at each step of the reference agent and each position.

What `test_crash_properties` shows with injected crashes is shown here with processes that die: the
journal and the ledger are files, and nothing but them outlives a worker.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from durable_mini import Engine, Position, Run, SQLiteJournal
from durable_mini.lab import REFERENCE_SHAPE, Ledger, agent_in
from durable_mini.lab.attempt import Attempt, attempt
from durable_mini.ops import verify

STEPS = [spec.name for spec in REFERENCE_SHAPE]
EFFECTS = [spec.name for spec in REFERENCE_SHAPE if spec.kind == "effect"]
RUN_ID, TICKET = "run 1/2", {"order": "o-1"}


class Place(NamedTuple):
    """The two files that outlive a worker."""

    journal: Path
    ledger: Path

    def work(self, **options: Any) -> Attempt:
        return attempt(self.journal, RUN_ID, self.ledger, **options)

    def described(self) -> tuple[Run, list[tuple[str, str, Any]]]:
        """The run, and its history without the times and without who recorded what."""
        with SQLiteJournal(self.journal) as journal:
            engine = Engine(journal)
            assert verify(journal).ok
            history = engine.history(RUN_ID)
            told: list[tuple[str, str, Any]] = [(*event[1:3], event.payload) for event in history]
            for _, _, payload in told:
                payload.pop("attempt", None)
            return engine.describe(RUN_ID), told

    def firsts(self) -> dict[str, int]:
        """The first event that each attempt recorded, after the first attempt."""
        with SQLiteJournal(self.journal) as journal:
            history = Engine(journal).history(RUN_ID)
        marked = {event.name: event.payload.get("attempt") for event in history}
        return {name: attempt for name, attempt in marked.items() if attempt is not None}

    def keys(self) -> list[str]:
        """The idempotency key of each row of the ledger, as the file has them."""
        return [json.loads(line)[3] for line in self.ledger.read_text("utf-8").splitlines()]


def started(folder: Path) -> Place:
    """A place with the run admitted, by a process that is no worker."""
    folder.mkdir(exist_ok=True)
    place = Place(folder / "journal.db", folder / "ledger.jsonl")
    with SQLiteJournal(place.journal) as journal:
        agent = agent_in(Ledger())
        Engine(journal, [agent]).start(agent, TICKET, run_id=RUN_ID)
    return place


@pytest.fixture(scope="module")
def crash_free(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[tuple[str, str, Any]]]:
    place = started(tmp_path_factory.mktemp("crash-free"))
    assert place.work() == Attempt(tuple(STEPS), "completed", None)
    assert place.keys() == [f"run 1%2F2/{name}" for name in EFFECTS]
    return place.described()


@pytest.mark.slow
@pytest.mark.parametrize("position", list(Position))
@pytest.mark.parametrize("step", STEPS)
def test_a_run_whose_worker_is_killed_anywhere_ends_as_if_nothing_had_happened(
    tmp_path: Path, crash_free: tuple[Run, list[Any]], step: str, position: Position
) -> None:
    place, killed_at = started(tmp_path), STEPS.index(step)
    first = place.work(kill_at=(step, position))
    done = killed_at + (position is not Position.BEFORE)
    assert first == Attempt(tuple(STEPS[:done]), None, "SIGKILL")
    between, history = place.described()
    recorded = killed_at + (position is Position.AFTER)
    assert (between.status, between.attempts) == ("running", 1)
    assert [name for _, name, _ in history[1:]] == STEPS[:recorded]

    assert place.work() == Attempt(tuple(STEPS[recorded:]), "completed", None)
    run, history = place.described()
    assert (run._replace(attempts=1), history) == crash_free
    assert run.attempts == 2
    assert place.firsts() == dict.fromkeys(STEPS[recorded : recorded + 1], 2)
    assert Counter(place.keys()) == Counter(f"run 1%2F2/{name}" for name in EFFECTS)


@pytest.mark.slow
@pytest.mark.parametrize("step", EFFECTS)
def test_a_receiver_that_ignores_keys_records_the_effect_killed_in_its_window_twice(
    tmp_path: Path, crash_free: tuple[Run, list[Any]], step: str
) -> None:
    place = started(tmp_path)
    place.work(kill_at=(step, "window"), honour_keys=False)
    assert place.work(honour_keys=False).status == "completed"
    run, history = place.described()
    assert (run._replace(attempts=1), history) == crash_free
    twice = [f"run 1%2F2/{name}" for name in [*EFFECTS, step]]
    assert Counter(place.keys()) == Counter(twice)
    assert Ledger(path=place.ledger, honour_keys=False).repeats == 1


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_gets_to_its_end(
    tmp_path: Path, crash_free: tuple[Run, list[Any]]
) -> None:
    place = started(tmp_path)
    executed: list[str] = []
    for step in STEPS:
        for position in (Position.BEFORE, Position.WINDOW):
            worker = place.work(kill_at=(step, position))
            assert worker.killed_by == "SIGKILL"
            executed += worker.executed
    assert place.work().status == "completed"
    run, history = place.described()
    assert (run._replace(attempts=1), history) == crash_free
    assert run.attempts == 2 * len(STEPS) + 1
    assert place.firsts() == dict(zip(STEPS, range(3, run.attempts + 1, 2), strict=True))
    assert Counter(place.keys()) == Counter(f"run 1%2F2/{name}" for name in EFFECTS)


@pytest.mark.slow
def test_a_worker_says_in_one_line_what_it_cannot_do(tmp_path: Path) -> None:
    place = started(tmp_path)
    with pytest.raises(RuntimeError, match="no run 'r-9'") as failure:
        attempt(place.journal, "r-9", place.ledger)
    assert "\n" not in str(failure.value)
    with pytest.raises(ValueError, match="'during'"):
        place.work(kill_at=("plan", "during"))
