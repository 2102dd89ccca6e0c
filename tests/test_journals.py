"""What every journal does, whatever it keeps its runs in: one suite for all of them.

A journal is asked here as the engine asks it, without an engine. What only a file can do (damage,
forks, full disks) is in `test_sqlite` and `test_bad_input`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from durable_mini import (
    ConcurrentAppendError,
    Event,
    EventKind,
    MemoryJournal,
    RunStatus,
    SQLiteJournal,
)
from durable_mini.events import RunRow
from durable_mini.journal import Journal

RUN = RunRow("r-1", 1, "agent", "1", "0f0f", RunStatus.PENDING)
ADMITTED = Event(1, EventKind.ADMITTED, "agent", '{"calls":[],"input":7}', 12.5)


def step(seq: int, name: str = "plan", text: str = '{"args":"ab","result":1}') -> Event:
    return Event(seq, EventKind.STEP, name, text, 12.5 + seq)


def named(run_id: str) -> RunRow:
    return RUN._replace(run_id=run_id)


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, journal_path: Path) -> Iterator[Journal]:
    opened = MemoryJournal() if request.param == "memory" else SQLiteJournal(journal_path)
    with opened:
        yield opened


@pytest.fixture
def admitted(journal: Journal) -> Journal:
    """A journal with the run r-1 in it, admitted and nothing more."""
    journal.admit(RUN, ADMITTED)
    return journal


def test_an_empty_journal_has_no_runs_and_no_faults(journal: Journal) -> None:
    assert list(journal.rows()) == []
    assert journal.row("r-1") is None
    assert journal.events(RUN) == []
    assert journal.integrity() == []


def test_admission_stores_the_run_and_its_first_event(journal: Journal) -> None:
    assert journal.admit(RUN, ADMITTED) is True
    assert journal.row("r-1") == RUN
    assert journal.events(RUN) == [ADMITTED]


def test_admission_of_a_taken_id_writes_nothing(admitted: Journal) -> None:
    admitted.append(RUN, step(2))
    other = RUN._replace(workflow="other", version="9")
    assert admitted.admit(other, ADMITTED._replace(text='{"calls":[],"input":8}')) is False
    assert list(admitted.rows()) == [RUN]
    assert admitted.events(RUN) == [ADMITTED, step(2)]


def test_events_come_back_in_order_and_as_they_were(admitted: Journal) -> None:
    events = [step(seq, name=f"step {seq}") for seq in range(2, 30)]
    for event in events:
        admitted.append(RUN, event)
    found = admitted.events(RUN)
    assert found == [ADMITTED, *events]
    assert {type(event.kind) for event in found} == {EventKind}


def test_an_append_with_a_status_changes_both(admitted: Journal) -> None:
    ending = Event(2, EventKind.COMPLETED, "agent", '{"result":1}', 20.0)
    admitted.append(RUN, ending, RunStatus.COMPLETED)
    row = admitted.row("r-1")
    assert row is not None
    assert (row.status, row.error) == (RunStatus.COMPLETED, None)
    assert admitted.events(RUN)[-1] == ending


def test_the_second_writer_of_a_number_is_refused_and_nothing_is_written(admitted: Journal) -> None:
    admitted.append(RUN, step(2, "first"))
    for late in (step(2, "second"), step(1, "third")):
        with pytest.raises(ConcurrentAppendError, match=f"run r-1, event {late.seq}") as refusal:
            admitted.append(RUN, late, RunStatus.FAILED)
        assert (refusal.value.run_id, refusal.value.seq) == ("r-1", late.seq)
    assert admitted.events(RUN) == [ADMITTED, step(2, "first")]
    assert admitted.row("r-1") == RUN
    admitted.append(RUN, step(3))
    assert [event.seq for event in admitted.events(RUN)] == [1, 2, 3]


def test_of_threads_that_append_the_same_number_one_wins(admitted: Journal) -> None:
    together = Barrier(8)
    outcomes: list[str | None] = []

    def compete(name: str) -> None:
        together.wait()
        try:
            admitted.append(RUN, step(2, name))
        except ConcurrentAppendError:
            outcomes.append(None)
        else:
            outcomes.append(name)

    in_threads([partial(compete, f"thread {number}") for number in range(8)])
    (winner,) = [name for name in outcomes if name]
    assert len(outcomes) == 8
    assert admitted.events(RUN) == [ADMITTED, step(2, winner)]


def test_threads_that_drive_runs_of_their_own_lose_nothing(journal: Journal) -> None:
    def drive(run_id: str) -> None:
        journal.admit(named(run_id), ADMITTED)
        journal.replace(named(run_id), named(run_id)._replace(status=RunStatus.RUNNING))
        for seq in range(2, 8):
            journal.append(named(run_id), step(seq, f"{run_id} step {seq}"))

    ids = [f"run {number}" for number in range(6)]
    in_threads([partial(drive, run_id) for run_id in ids])
    assert sorted(row.run_id for row in journal.rows()) == ids
    for run_id in ids:
        names = [event.name for event in journal.events(named(run_id))]
        assert names == ["agent", *(f"{run_id} step {seq}" for seq in range(2, 8))]


def in_threads(calls: list[Callable[[], None]]) -> None:
    threads = [Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)


RUNNING = RUN._replace(status=RunStatus.RUNNING, attempts=1)
STOPPED = RUNNING._replace(status=RunStatus.NEEDS_ATTENTION, error='{"type":"ValueError"}')


def test_how_a_run_stands_is_replaced_without_touching_its_history(admitted: Journal) -> None:
    for before, after in [(RUN, RUNNING), (RUNNING, STOPPED), (STOPPED, RUNNING)]:
        assert admitted.replace(before, after) is True
        assert admitted.row("r-1") == after
    assert admitted.events(RUN) == [ADMITTED]


def test_an_append_with_a_status_forgets_why_attention_was_needed(admitted: Journal) -> None:
    admitted.replace(RUN, STOPPED)
    admitted.append(RUN, step(2), RunStatus.COMPLETED)
    assert admitted.row("r-1") == STOPPED._replace(status=RunStatus.COMPLETED, error=None)


def test_a_row_that_another_driver_has_changed_is_not_replaced(admitted: Journal) -> None:
    assert admitted.replace(RUN, RUNNING)
    assert admitted.replace(RUN, RUNNING) is False
    assert admitted.replace(RUN, STOPPED) is False
    second = RUNNING._replace(attempts=2)
    assert admitted.replace(RUNNING, second)
    assert admitted.replace(RUNNING, STOPPED) is False
    assert admitted.row("r-1") == second


def test_a_run_that_has_ended_is_never_reopened(admitted: Journal) -> None:
    """A second driver may have read the row before the first one ended the run."""
    admitted.replace(RUN, RUNNING)
    admitted.append(RUN, step(2), RunStatus.COMPLETED)
    ended = admitted.row("r-1")
    assert admitted.replace(RUNNING, RUNNING._replace(attempts=2)) is False
    assert admitted.replace(RUNNING, STOPPED) is False
    assert admitted.row("r-1") == ended


def test_of_threads_that_begin_the_same_attempt_one_wins(admitted: Journal) -> None:
    together = Barrier(8)
    answers: list[bool] = []

    def begin() -> None:
        together.wait()
        answers.append(admitted.replace(RUN, RUNNING))

    in_threads([begin] * 8)
    assert sorted(answers) == [False] * 7 + [True]
    assert admitted.row("r-1") == RUNNING


def test_runs_are_listed_in_the_order_of_their_admission(journal: Journal) -> None:
    ids = ["c", "a", "d", "b", "B", "ä"]
    for run_id in ids:
        journal.admit(named(run_id), ADMITTED)
    for run_id in ("d", "c"):
        journal.replace(named(run_id), STOPPED._replace(run_id=run_id))
    assert [row.run_id for row in journal.rows()] == ids


def test_the_runs_of_one_listing_are_those_of_one_moment(journal: Journal) -> None:
    journal.admit(named("a"), ADMITTED)
    listing = journal.rows()
    journal.admit(named("b"), ADMITTED)
    assert [row.run_id for row in listing] == ["a"]


def test_a_generation_that_was_never_opened_has_no_events(admitted: Journal) -> None:
    assert admitted.events(RUN._replace(generation=2)) == []


@pytest.mark.parametrize("recorded_at", [0, 1_000, -3, 1_000.25])
def test_a_clock_of_whole_seconds_is_as_good_as_any(journal: Journal, recorded_at: float) -> None:
    event = ADMITTED._replace(recorded_at=recorded_at)
    journal.admit(RUN, event)
    assert journal.events(RUN) == [event]


def test_closing_twice_is_harmless_and_leaving_the_block_closes(journal: Journal) -> None:
    with journal as same:
        assert same is journal
    journal.close()
    journal.close()


NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=30)
TEXTS = st.text(st.characters(max_codepoint=126, min_codepoint=32), max_size=200)
TIMES = st.floats(allow_nan=False, allow_infinity=False)
EVENTS = st.lists(st.tuples(st.sampled_from(EventKind), NAMES, TEXTS, TIMES), max_size=5)


@settings(max_examples=60)
@given(NAMES, EVENTS)
def test_any_printable_name_text_and_time_comes_back_unchanged(
    run_id: str, contents: list[tuple[EventKind, str, str, float]]
) -> None:
    with both_journals() as journals:
        events = [ADMITTED, *(Event(seq, *content) for seq, content in enumerate(contents, 2))]
        for journal in journals:
            journal.admit(named(run_id), ADMITTED)
            for event in events[1:]:
                journal.append(named(run_id), event)
            assert journal.events(named(run_id)) == events


IDS = st.sampled_from(["a", "b", "c"])
OPERATIONS = st.one_of(
    st.tuples(st.just("admit"), IDS),
    st.tuples(st.just("append"), IDS, st.integers(0, 3), st.sampled_from([None, *RunStatus])),
    st.tuples(st.just("replace"), IDS, st.integers(0, 1), st.sampled_from(RunStatus)),
)


@settings(max_examples=60)
@given(st.lists(OPERATIONS, max_size=12))
def test_the_journals_answer_any_sequence_of_requests_alike(
    operations: list[tuple[Any, ...]],
) -> None:
    """The journal in memory stands in for the disk in simulations, so it has to be the disk."""
    with both_journals() as (memory, sqlite):
        for operation in operations:
            answers = [ask(journal, *operation) for journal in (memory, sqlite)]
            assert answers[0] == answers[1]
        assert list(memory.rows()) == list(sqlite.rows())
        for row in memory.rows():
            assert memory.events(row) == sqlite.events(row)


@contextmanager
def both_journals() -> Iterator[tuple[Journal, Journal]]:
    """A memory journal and a new SQLite journal, closed and removed at the end."""
    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryJournal() as memory,
        SQLiteJournal(Path(folder, "journal.db")) as sqlite,
    ):
        yield memory, sqlite


def ask(journal: Journal, request: str, run_id: str, *details: Any) -> object:
    """What the journal answers: a value, or its refusal."""
    if request == "admit":
        return journal.admit(named(run_id), ADMITTED)
    row = journal.row(run_id)
    if row is None:
        return "no such run"
    back, status = details
    if request == "replace":
        return journal.replace(
            row._replace(attempts=row.attempts - back),
            row._replace(status=status, attempts=row.attempts + 1, error="{}"),
        )
    seq = max(1, len(journal.events(row)) + 1 - back)
    try:
        journal.append(row, step(seq), status)
    except ConcurrentAppendError as refusal:
        return refusal.run_id, refusal.seq
    return "stored"
