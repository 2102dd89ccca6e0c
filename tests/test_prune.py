"""`prune`: what is over and old goes, its id stays; nothing else is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dying import DyingJournal, JournalDied
from gallery import START_S, fill, order, parcel, poll, refusing, sql

from durable_mini import (
    Engine,
    FakeClock,
    MemoryJournal,
    RunIdConflictError,
    SQLiteJournal,
    UnknownRunError,
)
from durable_mini.events import RunRow
from durable_mini.journal.file import FileJournal
from durable_mini.ops import prune, verify

LATER_S = START_S + 10_000.0
OVER = ["complete", "complete/parcel", "cancelled", "spent", "continued", "migrated"]


@pytest.mark.parametrize("kind", [MemoryJournal, FileJournal, SQLiteJournal])
def test_what_is_over_goes_and_leaves_a_tombstone(kind: Any, journal_path: Path) -> None:
    with MemoryJournal() if kind is MemoryJournal else kind(journal_path) as journal:
        fill(journal)
        before = standing(journal)
        assert prune(journal, older_than_s=0.0, now=LATER_S) == OVER
        for run_id, (row, events) in standing(journal).items():
            was, had = before[run_id]
            if run_id in OVER:
                assert row == was._replace(pruned_at=LATER_S)
                assert events == 0
            else:
                assert (row, events) == (was, had)
        assert verify(journal).ok
        assert prune(journal, older_than_s=0.0, now=LATER_S) == []


def standing(journal: Any) -> dict[str, tuple[RunRow, int]]:
    """Each run's row, and how many events all its generations have."""
    return {
        row.run_id: (
            row,
            sum(
                len(journal.events(row._replace(generation=generation)))
                for generation in range(1, row.generation + 1)
            ),
        )
        for row in journal.rows()
    }


def test_a_dry_run_tells_the_same_and_removes_nothing(journal: SQLiteJournal) -> None:
    fill(journal)
    before = standing(journal)
    assert prune(journal, older_than_s=0.0, now=LATER_S, dry_run=True) == OVER
    assert standing(journal) == before


def test_the_age_counts_from_the_ending(journal: SQLiteJournal) -> None:
    clock = FakeClock(100.0)
    engine = Engine(journal, [parcel], clock=clock)
    for run_id in ("first", "second"):
        engine.run(parcel, 1.0, run_id=run_id)
        clock.advance(7.0)
        engine.resume(run_id)
    assert prune(journal, older_than_s=7.0, now=113.5) == []
    assert prune(journal, older_than_s=7.0, now=114.0) == ["first"]
    assert prune(journal, older_than_s=7.0, now=121.0) == ["second"]


def test_the_time_is_that_of_the_machine_unless_it_is_said(journal: SQLiteJournal) -> None:
    Engine(journal, [poll, refusing]).run(refusing, "no", run_id="r-1")
    assert prune(journal, older_than_s=3_600.0) == []
    assert prune(journal, older_than_s=0.0) == ["r-1"]


def test_a_child_stays_until_its_parent_has_ended(journal: SQLiteJournal) -> None:
    fill(journal)
    engine = Engine(journal, [order, parcel], clock=FakeClock(LATER_S))
    engine.resume("waiting/parcel")
    assert "waiting/parcel" not in prune(journal, older_than_s=0.0, now=LATER_S)
    engine.resume("waiting")
    assert prune(journal, older_than_s=0.0, now=LATER_S) == ["waiting", "waiting/parcel"]


@pytest.mark.parametrize("damage", ["name = 'x'", "kind = 'step'"])
def test_a_damaged_history_stays_for_whoever_looks_into_it(
    journal: SQLiteJournal, damage: str
) -> None:
    fill(journal)
    sql(journal.path, f"UPDATE events SET {damage} WHERE run_id = 'spent'")
    assert prune(journal, older_than_s=0.0, now=LATER_S) == [one for one in OVER if one != "spent"]


@pytest.mark.parametrize(
    ("run_id", "status"), [("attention", "completed"), ("spent", "needs_attention")]
)
def test_a_run_of_which_row_and_history_disagree_stays(
    journal: SQLiteJournal, run_id: str, status: str
) -> None:
    fill(journal)
    sql(journal.path, "UPDATE runs SET status = ? WHERE run_id = ?", status, run_id)
    assert run_id not in prune(journal, older_than_s=0.0, now=LATER_S)


@pytest.mark.parametrize("age_s", [-1.0, float("nan")])
def test_an_age_that_is_none_is_refused(journal: SQLiteJournal, age_s: float) -> None:
    with pytest.raises(ValueError, match="older_than_s"):
        prune(journal, older_than_s=age_s)


# ---- the id of a pruned run ----------------------------------------------------------------------


@pytest.fixture
def pruned(journal: SQLiteJournal) -> Engine:
    engine = Engine(journal, [refusing, poll])
    engine.run(refusing, "no", run_id="r-1")
    assert prune(journal, older_than_s=0.0) == ["r-1"]
    return engine


def test_a_pruned_run_is_known_to_nobody_but_its_id_is_taken(pruned: Engine) -> None:
    asks: list[Callable[[], Any]] = [
        lambda: pruned.describe("r-1"),
        lambda: pruned.history("r-1"),
        lambda: pruned.resume("r-1"),
        lambda: pruned.signal("r-1", "go"),
        lambda: pruned.cancel("r-1"),
    ]
    for ask in asks:
        with pytest.raises(UnknownRunError):
            ask()
    assert list(pruned.runs()) == []
    assert pruned.orphans() == []
    for value in ("no", "other"):
        with pytest.raises(RunIdConflictError, match="pruned"):
            pruned.start(refusing, value, run_id="r-1")


def test_a_pruned_id_is_given_away_again_as_a_new_generation_with_other_keys(
    pruned: Engine,
) -> None:
    pruned.start(poll, 0, run_id="r-1", reuse=True)
    assert pruned.describe("r-1").generation == 2
    assert [event.kind for event in pruned.history("r-1")] == ["admitted"]
    with pytest.raises(UnknownRunError):
        pruned.history("r-1", generation=1)
    assert verify(pruned.journal).ok


def test_a_run_that_is_reused_in_this_moment_is_not_pruned(journal: SQLiteJournal) -> None:
    engine = Engine(journal, [refusing, poll])
    engine.run(refusing, "no", run_id="r-1")
    events = journal.events

    def reused_meanwhile(row: RunRow, after: int = 0) -> Any:
        found = events(row, after)
        journal.events = events  # type: ignore[method-assign]
        engine.start(poll, 0, run_id="r-1", reuse=True)
        return found

    journal.events = reused_meanwhile  # type: ignore[method-assign]
    assert prune(journal, older_than_s=0.0) == []
    assert engine.describe("r-1").status == "pending"


def test_a_death_at_any_write_leaves_each_run_whole_or_pruned(journal_path: Path) -> None:
    with SQLiteJournal(journal_path) as journal:
        fill(journal)
        whole = standing(journal)
    deaths = 0
    while True:
        with DyingJournal(journal_path, after=deaths) as journal:
            try:
                prune(journal, older_than_s=0.0, now=LATER_S)
            except JournalDied:
                deaths += 1
            else:
                break
        with SQLiteJournal(journal_path) as journal:
            assert verify(journal).ok
            for run_id, (row, events) in standing(journal).items():
                gone = row.pruned_at is not None and events == 0
                assert gone or (row, events) == whole[run_id]
    assert deaths > 4
