"""`verify`: clean where all is well, and every kind of damage named by run and sequence number."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from durable_mini import (
    Context,
    Engine,
    Event,
    EventKind,
    MemoryJournal,
    RunFailed,
    SQLiteJournal,
    StorageError,
    workflow,
)
from durable_mini.events import checksum
from durable_mini.journal import Journal
from durable_mini.lab import CrashAt, InjectedCrash
from durable_mini.ops import Verification, verify


@workflow(version="1")
def order(ctx: Context, item: str) -> float:
    ctx.step("reserve", str.upper, item)
    if item == "sold out":
        raise RunFailed(item)
    if item == "bug":
        raise ZeroDivisionError
    ctx.effect("charge", lambda *, idempotency_key: idempotency_key)
    return ctx.now() + ctx.random()


def fill(journal: Journal) -> None:
    """A run for every way in which one can stand."""
    engine = Engine(journal, [order], probe=CrashAt("charge", "before"))
    with pytest.raises(InjectedCrash):
        engine.run(order, "tea", run_id="running")
    for run_id, item in (("completed", "tea"), ("failed", "sold out"), ("broken", "bug")):
        engine.run(order, item, run_id=run_id)
    engine.start(order, "tea", run_id="pending")


@pytest.fixture
def filled(journal: SQLiteJournal) -> SQLiteJournal:
    fill(journal)
    return journal


@pytest.mark.parametrize("kind", [MemoryJournal, SQLiteJournal])
def test_a_journal_in_which_all_is_well_has_no_problems(kind: Any, journal_path: Path) -> None:
    with MemoryJournal() if kind is MemoryJournal else SQLiteJournal(journal_path) as journal:
        assert verify(journal) == Verification(0, 0, ())
        fill(journal)
        assert verify(journal) == Verification(runs=5, events=2 + 6 + 3 + 2 + 1, problems=())
        assert verify(journal).ok


def change(journal: SQLiteJournal, sql: str, *values: Any) -> None:
    with closing(sqlite3.connect(journal.path, isolation_level=None)) as db:
        db.execute(sql, values)


def rewrite(
    journal: SQLiteJournal, run_id: str, seq: int, news: Callable[[Event], dict[str, Any]]
) -> None:
    """Change an event as a faulty engine would: with a checksum that fits."""
    row = journal.row(run_id)
    assert row is not None
    event = journal.events(row)[seq - 1]
    event = event._replace(**news(event))
    change(
        journal,
        "UPDATE events SET kind = ?, name = ?, payload = ?, checksum = ? WHERE run_id = ?"
        " AND seq = ?",
        *(event.kind, event.name, event.text, checksum(row, event), run_id, seq),
    )


def without(*fields: str) -> Callable[[Event], dict[str, Any]]:
    return lambda event: {
        "text": json.dumps({k: v for k, v in event.payload.items() if k not in fields})
    }


def with_field(name: str, value: Any) -> Callable[[Event], dict[str, Any]]:
    return lambda event: {"text": json.dumps(event.payload | {name: value})}


def as_kind(kind: EventKind, **more: Any) -> Callable[[Event], dict[str, Any]]:
    return lambda event: {"kind": kind, "text": json.dumps(event.payload | more)}


@pytest.mark.parametrize(
    ("sql", "run_id", "seq"),
    [
        ("UPDATE events SET payload = '{}' WHERE seq = 5", "completed", 5),
        ("UPDATE events SET checksum = 0 WHERE seq = 6", "completed", 6),
        ("DELETE FROM events WHERE seq = 4", "completed", 4),
        ("DELETE FROM events WHERE run_id = 'pending'", "pending", 1),
        ("DELETE FROM events WHERE seq = 1 AND run_id = 'failed'", "failed", 1),
        ("DELETE FROM events WHERE seq = 6", "completed", 5),
        ("UPDATE runs SET status = 'running' WHERE run_id = 'completed'", "completed", 6),
        ("UPDATE runs SET status = 'completed' WHERE run_id = 'failed'", "failed", 3),
        ("UPDATE runs SET status = 'completed' WHERE run_id = 'broken'", "broken", 2),
        ("UPDATE runs SET structure = 'beef' WHERE run_id = 'pending'", "pending", 1),
        ("UPDATE runs SET workflow = 'refund' WHERE run_id = 'running'", "running", 1),
        ("UPDATE runs SET error = '{oops' WHERE run_id = 'broken'", "broken", 2),
        ("UPDATE runs SET error = '{}' WHERE run_id = 'broken'", "broken", 2),
        ("UPDATE runs SET error = NULL WHERE run_id = 'broken'", "broken", 2),
        ("UPDATE runs SET error = 'x' WHERE run_id = 'completed'", "completed", 6),
        ("UPDATE runs SET status = 'asleep' WHERE run_id = 'broken'", "broken", None),
    ],
)
def test_damage_is_named_by_run_and_number_and_hides_no_other_run(
    filled: SQLiteJournal, sql: str, run_id: str, seq: int | None
) -> None:
    change(filled, sql)
    report = verify(filled)
    assert [(problem.run_id, problem.seq) for problem in report.problems] == [(run_id, seq)]
    assert report.runs == 5
    assert not report.ok


@pytest.mark.parametrize(
    ("run_id", "seq", "news", "words"),
    [
        ("completed", 2, as_kind(EventKind.ADMITTED), "admission is not where it belongs"),
        ("completed", 1, as_kind(EventKind.STEP), "admission is not where it belongs"),
        ("completed", 3, as_kind(EventKind.COMPLETED), "3 more events follow"),
        ("completed", 6, as_kind(EventKind.FAILED, error={}), "the last event is failed"),
        ("completed", 6, as_kind(EventKind.NOW, args=""), "the last event is now"),
        ("completed", 2, without("args"), "argument digest"),
        ("completed", 3, without("result"), "either a result or an error"),
        ("completed", 2, with_field("error", {}), "either a result or an error"),
        ("completed", 4, without("result"), "either a result or an error"),
        ("completed", 2, lambda _: {"text": "{oops"}, "no JSON"),
        ("completed", 2, lambda _: {"text": "5"}, "no JSON object"),
        ("completed", 1, without("calls"), "calls"),
        ("completed", 1, without("input"), "input"),
        ("completed", 1, with_field("calls", ["step 'other'"]), "structure hash"),
        ("completed", 6, without("result"), "result"),
        ("failed", 3, without("error"), "error"),
    ],
)
def test_a_history_that_breaks_a_law_is_named_though_its_checksums_fit(
    filled: SQLiteJournal,
    run_id: str,
    seq: int,
    news: Callable[[Event], dict[str, Any]],
    words: str,
) -> None:
    rewrite(filled, run_id, seq, news)
    (problem,) = verify(filled).problems
    assert (problem.run_id, problem.seq) == (run_id, seq)
    assert words in problem.problem


def test_every_damaged_run_is_reported(filled: SQLiteJournal) -> None:
    change(filled, "UPDATE runs SET status = 'asleep' WHERE run_id = 'running'")
    change(filled, "UPDATE events SET name = 'x' WHERE run_id = 'completed' AND seq IN (2, 5)")
    change(filled, "DELETE FROM events WHERE run_id = 'failed' AND seq = 2")
    change(filled, "UPDATE runs SET status = 'pending ' WHERE run_id = 'pending'")
    change(filled, "INSERT INTO events VALUES ('stray', 1, 1, 'step', 'x', '{}', 0.0, 0)")
    report = verify(filled)
    assert [(problem.run_id, problem.seq) for problem in report.problems] == [
        (None, None),
        ("running", None),
        ("completed", 2),
        ("failed", 2),
        ("pending", None),
    ]
    assert "stray" in report.problems[0].problem
    assert report.runs == 5


def test_a_file_with_a_broken_page_is_reported_and_nothing_raised(
    filled: SQLiteJournal, journal_path: Path
) -> None:
    filled.close()
    with journal_path.open("r+b") as file:
        file.seek(4_096 + 8)
        file.write(b"\xff" * 200)
    with SQLiteJournal(journal_path) as journal:
        report = verify(journal)
    assert not report.ok
    assert all("\n" not in problem.problem for problem in report.problems)


def test_verify_reads_only(filled: SQLiteJournal, journal_path: Path) -> None:
    filled.close()
    before = journal_path.read_bytes()
    with SQLiteJournal(journal_path) as journal:
        assert verify(journal).ok
    assert journal_path.read_bytes() == before


def test_a_journal_that_cannot_be_read_at_all_is_an_error(filled: SQLiteJournal) -> None:
    filled.close()
    with pytest.raises(StorageError):
        verify(filled)


def test_a_run_that_moves_on_while_it_is_verified_is_no_problem() -> None:
    journal = MemoryJournal()
    engine = Engine(journal, [order])
    engine.start(order, "tea", run_id="r-1")
    events = journal.events

    def events_after_the_end(row: Any) -> list[Event]:
        journal.events = events  # type: ignore[method-assign]
        engine.resume("r-1")
        return events(row)

    journal.events = events_after_the_end  # type: ignore[method-assign]
    assert verify(journal).problems == ()
