"""What every journal does, whatever it keeps its runs in: one suite for all of them.

A journal is asked here as the engine asks it, without an engine. What only a file can do (damage,
forks, locks, full disks) is in `test_file_journal`, `test_sqlite` and `test_bad_input`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support import prune_at

from durable_mini import (
    Event,
    EventKind,
    LeaseLostError,
    MemoryJournal,
    RunStatus,
    SQLiteJournal,
    UnknownRunError,
)
from durable_mini.events import ENDED, Entry, RunRow
from durable_mini.journal import Journal
from durable_mini.journal.file import FileJournal

FILE_KINDS: list[Callable[[Path], Journal]] = [FileJournal, SQLiteJournal]
NAMES_OF_KINDS = ["memory", "file", "sqlite"]

RUN = RunRow("r-1", 1, "agent", "1", "0f0f", RunStatus.PENDING)
ADMITTED: Entry = (EventKind.ADMITTED, "agent", '{"calls":[],"input":7}', 12.5)

# The run once the worker w1 has claimed it, and what a worker that claimed it before thinks.
HELD = RUN._replace(
    status=RunStatus.RUNNING, attempts=1, token=2, worker="w1", lease_s=5.0, lease_until=20.0
)
STALE = HELD._replace(token=1, worker="w0", lease_until=10.0)
STOPPED = RUN._replace(status=RunStatus.NEEDS_ATTENTION, error='{"type":"ValueError"}', due_at=None)


def step(name: str = "plan", at: float = 13.5, text: str = '{"args":"ab","result":1}') -> Entry:
    return EventKind.STEP, name, text, at


def signal(name: str = "approval", at: float = 14.0) -> Entry:
    return EventKind.SIGNAL, name, '{"id":"s-1","value":true}', at


def event(seq: int, entry: Entry) -> Event:
    return Event(seq, *entry)


def named(run_id: str, row: RunRow = RUN, **changes: Any) -> RunRow:
    return row._replace(run_id=run_id, **changes)


def opened(kind: str, path: Path) -> Journal:
    """A journal of one of the kinds; the path is where one in a file has it."""
    if kind == "memory":
        return MemoryJournal()
    return FileJournal(path) if kind == "file" else SQLiteJournal(path)


@pytest.fixture(params=NAMES_OF_KINDS)
def journal(request: pytest.FixtureRequest, journal_path: Path) -> Iterator[Journal]:
    with opened(request.param, journal_path) as journal:
        yield journal


@pytest.fixture
def admitted(journal: Journal) -> Journal:
    """A journal with the run r-1 in it, admitted and nothing more."""
    journal.admit((RUN, [ADMITTED]))
    return journal


@pytest.fixture
def held(admitted: Journal) -> Journal:
    """A journal with the run r-1 in it, claimed by w1 until 20 s."""
    admitted.replace(RUN, HELD)
    return admitted


def told(journal: Journal, generations: int = 2) -> dict[str, Any]:
    """All that a journal tells of all its runs."""
    rows = list(journal.rows())
    logs = [row._replace(generation=n) for row in rows for n in range(1, generations + 1)]
    return {
        "rows": rows,
        "by id": [journal.row(row.run_id) for row in rows],
        "events": [journal.events(row) for row in logs],
        "due": [journal.due(now) for now in (0.0, 15.0, 1e9)],
        "last": [journal.peek(row) for row in rows if row.pruned_at is None],
    }


def test_an_empty_journal_has_no_runs_and_no_faults(journal: Journal) -> None:
    assert list(journal.rows()) == []
    assert journal.row("r-1") is None
    assert journal.events(RUN) == []
    assert journal.due(1e9) == []
    assert journal.integrity() == []


# Admission


def test_admission_stores_the_run_and_its_first_events(journal: Journal) -> None:
    assert journal.admit((RUN, [ADMITTED, signal()])) is True
    assert journal.row("r-1") == RUN
    assert journal.events(RUN) == [event(1, ADMITTED), event(2, signal())]
    assert journal.integrity() == []


def test_admission_of_a_taken_id_writes_nothing(admitted: Journal) -> None:
    admitted.append(RUN, step())
    before = told(admitted)
    other = RUN._replace(workflow="other", version="9", generation=2)
    assert admitted.admit((other, [ADMITTED])) is False
    assert admitted.admit((other, [ADMITTED]), over=RUN._replace(token=7)) is False
    assert told(admitted) == before


def test_admission_over_a_tombstone_opens_the_next_generation_in_its_place(
    journal: Journal,
) -> None:
    for run_id in ("a", "b"):
        journal.admit((named(run_id), [ADMITTED, signal()]))
    prune_at(journal, named("a"), 50.0)
    tombstone = journal.row("a")
    again = named("a", generation=2, version="2")
    assert journal.admit((again, [ADMITTED])) is False
    assert journal.admit((again, [ADMITTED]), over=tombstone) is True
    assert list(journal.rows()) == [again, named("b")]
    assert journal.events(again) == [event(1, ADMITTED)]
    assert journal.events(named("a")) == []


def test_admission_over_a_tombstone_that_is_gone_writes_nothing(journal: Journal) -> None:
    journal.admit((RUN, [ADMITTED]))
    prune_at(journal, RUN, 50.0)
    tombstone = journal.row("r-1")
    again = RUN._replace(generation=2)
    journal.admit((again, [ADMITTED]), over=tombstone)
    before = told(journal)
    assert journal.admit((again._replace(version="3"), [ADMITTED]), over=tombstone) is False
    assert told(journal) == before


def test_a_worker_that_lost_its_run_begins_no_child_of_it(held: Journal) -> None:
    before = told(held)
    opening = (named("child", parent="r-1"), [ADMITTED])
    with pytest.raises(LeaseLostError, match="run r-1: w0 holds token 1"):
        held.admit(opening, parent=STALE)
    with pytest.raises(UnknownRunError, match="nobody"):
        held.admit(opening, parent=named("nobody"))
    assert told(held) == before
    assert held.admit(opening, parent=HELD) is True
    assert held.admit(opening, parent=HELD) is False
    assert held.row("child") == opening[0]
    assert held.row("r-1") == HELD


# Appending


def test_events_are_numbered_without_gaps_and_come_back_as_they_were(held: Journal) -> None:
    entries = [step(f"step {number}", at=14.0 + number / 8) for number in range(30)]
    assert [held.append(HELD, entry) for entry in entries] == list(range(2, 32))
    found = held.events(HELD)
    assert found == [event(seq, entry) for seq, entry in enumerate([ADMITTED, *entries], 1)]
    assert {type(one.kind) for one in found} == {EventKind}
    assert held.row("r-1") == HELD
    assert held.peek(HELD) == 31


@pytest.mark.parametrize("after", [0, 1, 3, 4, 9])
def test_events_after_a_number_are_the_rest(held: Journal, after: int) -> None:
    for number in range(3):
        held.append(HELD, step(f"step {number}"))
    assert held.events(HELD, after) == held.events(HELD)[after:]


def test_an_append_changes_the_row_in_the_same_moment(held: Journal) -> None:
    ending: Entry = (EventKind.COMPLETED, "agent", '{"result":1}', 15.0)
    changes = {"status": RunStatus.COMPLETED, "due_at": None, "token": 3}
    assert held.append(HELD, ending, **changes) == 2
    assert held.row("r-1") == HELD._replace(**changes)
    assert held.events(HELD)[-1] == event(2, ending)


def test_a_worker_that_lost_its_run_writes_nothing_and_hears_who_has_it(held: Journal) -> None:
    before = told(held)
    opening = (named("r-2"), [ADMITTED])
    for write in (
        lambda: held.append(STALE, step(), opens=[opening], status=RunStatus.FAILED),
        lambda: held.append(STALE, step(), expected=1),
        lambda: held.append(STALE._replace(token=3), step()),
        lambda: held.append(STALE, None, status=RunStatus.FAILED),
        lambda: held.peek(STALE),
    ):
        with pytest.raises(LeaseLostError, match=r"run r-1: w0 holds token \d, .* 2 of w1") as lost:
            write()
        assert (lost.value.run_id, lost.value.worker) == ("r-1", "w0")
        assert (lost.value.holder, lost.value.held) == ("w1", 2)
    assert told(held) == before
    assert held.append(HELD, step()) == 2


def test_only_the_token_fences_and_not_what_else_a_worker_remembers(held: Journal) -> None:
    held.append(HELD, None, lease_until=99.0, crashes=3)
    assert held.append(HELD._replace(lease_until=1.0, worker="renamed"), step()) == 2
    assert held.row("r-1") == HELD._replace(lease_until=99.0, crashes=3)


def test_an_append_that_expects_another_last_event_writes_nothing(held: Journal) -> None:
    held.request("r-1", lambda _: signal())
    before = told(held)
    for expected in (0, 1, 3):
        assert held.append(HELD, step(), expected=expected, status=RunStatus.FAILED) == 0
        assert held.append(HELD, None, expected=expected, status=RunStatus.FAILED) == 0
    assert told(held) == before
    assert held.append(HELD, step(), expected=2) == 3
    assert held.append(HELD, None, expected=3, crashes=1) == 3


@pytest.mark.parametrize(
    ("recorded_at", "lease_until"), [(19.0, 20.0), (20.0, 20.0), (20.5, 25.5), (900.0, 905.0)]
)
def test_a_late_append_that_nobody_challenged_extends_the_lease(
    held: Journal, recorded_at: float, lease_until: float
) -> None:
    assert held.append(HELD, step(at=recorded_at)) == 2
    assert held.row("r-1") == HELD._replace(lease_until=lease_until)


def test_a_late_append_keeps_a_lease_that_it_is_told(held: Journal) -> None:
    assert held.append(HELD, step(at=900.0), lease_until=0.0) == 2
    assert held.row("r-1") == HELD._replace(lease_until=0.0)


def test_the_lease_that_counts_is_the_one_in_the_journal(held: Journal) -> None:
    """A heartbeat may have extended it since the worker claimed the run."""
    held.append(HELD, None, lease_until=1000.0)
    held.append(HELD, step(at=900.0))
    assert held.row("r-1") == HELD._replace(lease_until=1000.0)


def test_continuing_closes_a_generation_and_opens_the_next_together(held: Journal) -> None:
    held.append(HELD, step())
    entry: Entry = (EventKind.CONTINUED, "agent", '{"input":8}', 15.0)
    following = HELD._replace(generation=2, status=RunStatus.PENDING, token=3)
    assert held.append(HELD, entry, expected=2, opens=[(following, [ADMITTED, signal()])]) == 3
    assert held.row("r-1") == following
    assert held.events(HELD) == [event(1, ADMITTED), event(2, step()), event(3, entry)]
    assert held.events(following) == [event(1, ADMITTED), event(2, signal())]
    assert held.append(following, step()) == 3
    with pytest.raises(LeaseLostError):
        held.append(HELD, step())


def test_an_append_can_open_a_run_and_tell_another(held: Journal) -> None:
    parent = named("parent", status=RunStatus.SUSPENDED, due_at=None, lease_until=7.0)
    held.admit((parent, [ADMITTED]))
    news: Entry = (EventKind.CHILD_ENDED, "r-1", '{"status":"completed"}', 15.0)
    opening = (named("child"), [ADMITTED])
    assert held.append(HELD, step(), opens=[opening], tell=("parent", news), crashes=0) == 2
    assert held.row("child") == named("child")
    assert held.events(named("child")) == [event(1, ADMITTED)]
    assert held.row("parent") == parent._replace(due_at=0.0)
    assert held.events(parent) == [event(1, ADMITTED), event(2, news)]


@pytest.mark.parametrize("status", sorted({*RunStatus} - {RunStatus.SUSPENDED}))
def test_who_is_told_becomes_due_only_if_it_was_suspended_and_hears_nothing_once_ended(
    held: Journal, status: RunStatus
) -> None:
    parent = named("parent", HELD, status=status, due_at=None)
    held.admit((parent, [ADMITTED]))
    held.append(HELD, step(), tell=("parent", signal()))
    assert held.row("parent") == parent
    assert len(held.events(parent)) == (1 if status in ENDED else 2)
    assert held.events(HELD)[-1] == event(2, step())


def test_telling_a_run_that_is_gone_keeps_the_append(held: Journal) -> None:
    assert held.append(HELD, step(), tell=("nobody", signal())) == 2
    assert held.row("nobody") is None
    assert held.integrity() == []


def test_a_write_to_a_run_that_is_not_there_is_refused(journal: Journal) -> None:
    for write in (
        lambda: journal.append(RUN, step()),
        lambda: journal.append(RUN, None, crashes=1),
        lambda: journal.peek(RUN),
        lambda: journal.request("r-1", lambda _: signal()),
    ):
        with pytest.raises(UnknownRunError, match="r-1"):
            write()
    assert journal.replace(RUN, HELD) is False
    assert prune_at(journal, RUN, 1.0) is False
    assert list(journal.rows()) == []


# How a run stands


def test_an_update_changes_the_row_and_no_event(held: Journal) -> None:
    changes = {"status": RunStatus.SUSPENDED, "due_at": 60.0, "worker": None, "token": 3}
    assert held.append(HELD, None, **changes) == 1
    assert held.row("r-1") == HELD._replace(**changes)
    assert held.events(HELD) == [event(1, ADMITTED)]
    with pytest.raises(LeaseLostError):
        held.append(HELD, None, crashes=1)


def test_how_a_run_stands_is_replaced_without_touching_its_history(admitted: Journal) -> None:
    for before, after in [(RUN, HELD), (HELD, STOPPED), (STOPPED, HELD)]:
        assert admitted.replace(before, after) is True
        assert admitted.row("r-1") == after
    assert admitted.events(RUN) == [event(1, ADMITTED)]


@pytest.mark.parametrize("field", RunRow._fields[1:])
def test_a_row_that_differs_in_any_field_is_not_replaced(admitted: Journal, field: str) -> None:
    other: dict[str, Any] = {"status": RunStatus.SUSPENDED, "error": "{}", "pruned_at": 1.0}
    believed = getattr(RUN, field)
    changed = other.get(field, f"{believed}?" if isinstance(believed, str) else 41)
    assert admitted.replace(RUN._replace(**{field: changed}), HELD) is False
    assert prune_at(admitted, RUN._replace(**{field: changed}), 1.0) is False
    assert admitted.row("r-1") == RUN
    assert admitted.replace(RUN, HELD) is True


def test_every_field_of_a_row_is_kept(journal: Journal) -> None:
    full = RunRow(
        *("r-1", 3, "agent", "2", "beef", RunStatus.NEEDS_ATTENTION, "parent", 17.25, 4, 3),
        *('{"type":"KeyError"}', 9, "w1", 2.5, 1e12 + 0.25, 99.5),
    )
    journal.admit((full, [ADMITTED]))
    (found,) = journal.rows()
    assert found == full
    assert type(found.status) is RunStatus
    assert journal.row("r-1") == full


# Requests from outside


def test_a_request_makes_a_suspended_run_due_and_needs_no_token(held: Journal) -> None:
    for status, due_at in [(RunStatus.SUSPENDED, 0.0), (RunStatus.RUNNING, 60.0)]:
        held.append(HELD, None, status=status, due_at=60.0)
        assert held.request("r-1", lambda _: signal()) is True
        assert held.row("r-1") == HELD._replace(status=status, due_at=due_at)
    assert [one.seq for one in held.events(HELD)] == [1, 2, 3]
    assert held.append(HELD, step()) == 4


def test_a_request_is_decided_from_the_row_as_it_stands(held: Journal) -> None:
    seen: list[RunRow] = []

    def asks(row: RunRow) -> None:
        seen.append(row)
        seen.extend(held.rows())

    before = told(held)
    assert held.request("r-1", asks) is False
    assert seen == [HELD, HELD]
    assert told(held) == before


def test_a_request_whose_decision_fails_writes_nothing(held: Journal) -> None:
    before = told(held)
    with pytest.raises(ZeroDivisionError):
        held.request("r-1", lambda _: signal() if 1 / 0 else None)
    assert told(held) == before
    assert held.request("r-1", lambda _: signal()) is True


@pytest.mark.parametrize("status", sorted(ENDED))
def test_a_run_that_has_ended_takes_no_request(held: Journal, status: RunStatus) -> None:
    held.append(HELD, None, status=status, due_at=None)
    before = told(held)
    assert held.request("r-1", lambda _: signal()) is False
    assert told(held) == before


def test_a_request_goes_to_the_generation_that_is_open(held: Journal) -> None:
    following = HELD._replace(generation=2)
    held.append(HELD, step(), opens=[(following, [ADMITTED])])
    held.request("r-1", lambda _: signal())
    assert [one.seq for one in held.events(following)] == [1, 2]
    assert len(held.events(HELD)) == 2


# Pruning


def test_pruning_leaves_a_tombstone_and_nothing_else(held: Journal) -> None:
    following = HELD._replace(generation=2, status=RunStatus.COMPLETED)
    held.append(HELD, signal(), opens=[(following, [ADMITTED, signal()])])
    held.admit((named("other"), [ADMITTED, signal()]))
    assert prune_at(held, following, 50.0) is True
    assert held.row("r-1") == following._replace(pruned_at=50.0, due_at=None)
    assert [held.events(row) for row in (HELD, following)] == [[], []]
    assert held.events(named("other")) == [event(1, ADMITTED), event(2, signal())]
    assert held.integrity() == []


def test_a_run_that_changed_meanwhile_is_not_pruned(held: Journal) -> None:
    before = told(held)
    assert prune_at(held, RUN, 50.0) is False
    assert told(held) == before


def test_a_pruned_run_is_unknown_to_a_request_and_to_a_worker_that_held_it(held: Journal) -> None:
    ended = HELD._replace(status=RunStatus.COMPLETED, due_at=None)
    held.append(HELD, None, status=RunStatus.COMPLETED, due_at=None)
    assert prune_at(held, ended, 50.0) is True
    before = told(held)
    for write in (
        lambda: held.request("r-1", lambda _: signal()),
        lambda: held.append(HELD, step()),
        lambda: held.append(HELD, step(), crashes=1),
        lambda: held.append(HELD, None, crashes=1),
        lambda: held.peek(HELD),
    ):
        with pytest.raises(UnknownRunError, match="r-1"):
            write()
    assert told(held) == before
    assert held.events(HELD) == []


# What is due


def test_what_has_waited_longest_for_a_worker_comes_first(journal: Journal) -> None:
    for run_id, lease_until in [("c", 30.0), ("a", 10.0), ("d", 40.0), ("b", 10.0)]:
        journal.admit((named(run_id, lease_until=lease_until), [ADMITTED]))
    assert [row.run_id for row in journal.due(0.0)] == ["a", "b", "c", "d"]
    journal.replace(named("a", lease_until=10.0), named("a", HELD, lease_until=50.0))
    found = journal.due(0.0)
    assert [row.run_id for row in found] == ["b", "c", "d", "a"]
    assert found[-1] == named("a", HELD, lease_until=50.0)


def test_a_run_is_due_from_its_time_on_and_never_without_one(journal: Journal) -> None:
    for run_id, due_at in [("now", 0.0), ("later", 60.0), ("never", None)]:
        journal.admit((named(run_id, due_at=due_at), [ADMITTED]))
    for now, due in [(-1.0, []), (0.0, ["now"]), (59.9, ["now"]), (60.0, ["now", "later"])]:
        assert [row.run_id for row in journal.due(now)] == due


# Listings


def test_runs_are_listed_in_the_order_of_their_admission(journal: Journal) -> None:
    ids = ["c", "a", "d", "b", "B", "ä"]
    for run_id in ids:
        journal.admit((named(run_id), [ADMITTED]))
    for run_id in ("d", "c"):
        journal.replace(named(run_id), named(run_id, STOPPED))
    assert [row.run_id for row in journal.rows()] == ids


def test_the_runs_of_one_listing_are_those_of_one_moment(journal: Journal) -> None:
    journal.admit((named("a"), [ADMITTED]))
    listing = journal.rows()
    journal.admit((named("b"), [ADMITTED]))
    assert [row.run_id for row in listing] == ["a"]


def test_a_generation_that_was_never_opened_has_no_events(admitted: Journal) -> None:
    assert admitted.events(RUN._replace(generation=2)) == []


def test_a_history_that_was_handed_out_does_not_grow(held: Journal) -> None:
    history, due = held.events(HELD), held.due(15.0)
    held.append(HELD, step(), due_at=None)
    assert (len(history), due) == (1, [HELD])


@pytest.mark.parametrize("recorded_at", [0, 1_000, -3, 1_000.25, -0.0, 1e300])
def test_a_clock_of_whole_seconds_is_as_good_as_any(journal: Journal, recorded_at: float) -> None:
    entry = (*ADMITTED[:3], recorded_at)
    journal.admit((RUN, [entry]))
    assert journal.events(RUN) == [event(1, entry)]


def test_closing_twice_is_harmless_and_leaving_the_block_closes(journal: Journal) -> None:
    with journal as same:
        assert same is journal
    journal.close()
    journal.close()


# Several threads


def in_threads(calls: list[Callable[[], None]]) -> None:
    threads = [Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)


def test_of_threads_that_begin_the_same_attempt_one_wins(admitted: Journal) -> None:
    together = Barrier(8)
    answers: list[bool] = []

    def begin() -> None:
        together.wait()
        answers.append(admitted.replace(RUN, HELD))

    in_threads([begin] * 8)
    assert sorted(answers) == [False] * 7 + [True]
    assert admitted.row("r-1") == HELD


def test_threads_that_append_to_one_run_get_numbers_without_gaps(held: Journal) -> None:
    together = Barrier(6)
    numbers: dict[str, int] = {}

    def append(name: str) -> None:
        together.wait()
        for part in ("first", "second", "third"):
            numbers[f"{name} {part}"] = held.append(HELD, step(f"{name} {part}"))
            assert held.peek(HELD) >= numbers[f"{name} {part}"]

    in_threads([partial(append, f"thread {number}") for number in range(6)])
    assert sorted(numbers.values()) == list(range(2, 20))
    assert {one.name: one.seq for one in held.events(HELD, 1)} == numbers


def test_of_threads_that_expect_the_same_last_event_one_wins(held: Journal) -> None:
    together = Barrier(8)
    answers: list[int] = []

    def compete() -> None:
        together.wait()
        answers.append(held.append(HELD, step(), expected=1))

    in_threads([compete] * 8)
    assert sorted(answers) == [0] * 7 + [2]


def test_threads_that_drive_runs_of_their_own_lose_nothing(journal: Journal) -> None:
    def drive(run_id: str) -> None:
        journal.admit((named(run_id), [ADMITTED]))
        journal.replace(named(run_id), named(run_id, HELD))
        for number in range(6):
            journal.append(named(run_id, HELD), step(f"{run_id} step {number}"))
            journal.due(99.0)

    ids = [f"run {number}" for number in range(6)]
    in_threads([partial(drive, run_id) for run_id in ids])
    assert sorted(row.run_id for row in journal.rows()) == ids
    for run_id in ids:
        names = [one.name for one in journal.events(named(run_id))]
        assert names == ["agent", *(f"{run_id} step {number}" for number in range(6))]


# What a file keeps


def busy(journal: Journal) -> None:
    """Write something of everything: three runs, generations, signals, a tombstone."""
    journal.admit((RUN, [ADMITTED]))
    journal.replace(RUN, HELD)
    journal.append(HELD, step("téa", text='{"args":"ab","result":"\\u00e9 \\" \\n"}'))
    journal.admit((named("parent", STOPPED, status=RunStatus.SUSPENDED), [ADMITTED]))
    journal.request("parent", lambda _: signal())
    following = HELD._replace(generation=2, token=3)
    carried = [ADMITTED, signal("carried")]
    journal.append(HELD, (EventKind.CONTINUED, "agent", "{}", 15.0), opens=[(following, carried)])
    journal.admit((named("gone"), [ADMITTED]))
    prune_at(journal, named("gone"), 30.0)
    ending: Entry = (EventKind.COMPLETED, "agent", '{"result":1}', 31.0)
    news: Entry = (EventKind.CHILD_ENDED, "r-1", "{}", 31.0)
    journal.append(following, ending, tell=("parent", news), status=RunStatus.COMPLETED)


@pytest.mark.parametrize("kind", FILE_KINDS)
def test_everything_is_there_when_the_file_is_opened_again(
    kind: Callable[[Path], Journal], journal_path: Path
) -> None:
    memory = MemoryJournal()
    busy(memory)
    with kind(journal_path) as journal:
        busy(journal)
        assert told(journal) == told(memory)
    for _ in range(2):
        with kind(journal_path) as journal:
            assert told(journal) == told(memory)
            assert journal.integrity() == []


@pytest.mark.parametrize("kind", FILE_KINDS)
def test_a_file_that_is_opened_again_goes_on_where_it_was(
    kind: Callable[[Path], Journal], journal_path: Path
) -> None:
    for number in range(4):
        with kind(journal_path) as journal:
            journal.admit((RUN, [ADMITTED]))
            assert journal.append(RUN, step(f"step {number}")) == number + 2
    with kind(journal_path) as journal:
        names = [one.name for one in journal.events(RUN)]
        assert names == ["agent", "step 0", "step 1", "step 2", "step 3"]


# Any values, and any sequence of requests

NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=30)
TEXTS = st.text(st.characters(max_codepoint=126, min_codepoint=32), max_size=200)
TIMES = st.floats(allow_nan=False, allow_infinity=False)
ENTRIES = st.lists(st.tuples(st.sampled_from(EventKind), NAMES, TEXTS, TIMES), max_size=5)


@settings(max_examples=40)
@given(NAMES, ENTRIES)
def test_any_printable_name_text_and_time_comes_back_unchanged(
    run_id: str, entries: list[Entry]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal")
        for kind in NAMES_OF_KINDS:
            with opened(kind, path.with_suffix(f".{kind}")) as journal:
                journal.admit((named(run_id), [ADMITTED, *entries]))
                expected = [event(seq, entry) for seq, entry in enumerate([ADMITTED, *entries], 1)]
                assert journal.events(named(run_id)) == expected


IDS = st.sampled_from(["a", "b", "c"])
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(RunStatus),
        "due_at": st.sampled_from([None, 0.0, 15.0, 60.0]),
        "token": st.integers(0, 3),
        "lease_until": st.sampled_from([0.0, 10.0, 20.0]),
        "error": st.sampled_from([None, "{}"]),
    },
)
ANY_ENTRY = st.tuples(
    st.sampled_from([EventKind.STEP, EventKind.SIGNAL, EventKind.PIVOT, EventKind.COMPLETED]),
    st.sampled_from(["plan", "pay"]),
    st.just('{"args":"ab","result":1}'),
    st.sampled_from([5.0, 15.0, 25.0]),
)


class AllJournals(RuleBasedStateMachine):
    """The same requests to all journals: each has to answer as the others do.

    The journal in memory stands in for the disk in simulations, so it has to be the disk.
    """

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(os, "fsync", lambda _: None)  # nobody cuts the power here
        self._journals = {kind: self._open(kind) for kind in NAMES_OF_KINDS}
        self._reached: dict[str, int] = {}

    def _open(self, kind: str) -> Journal:
        journal = opened(kind, Path(self._folder.name, kind))
        if isinstance(journal, SQLiteJournal):
            journal._db.execute("PRAGMA synchronous=OFF")
        return journal

    def teardown(self) -> None:
        for journal in self._journals.values():
            journal.close()
        self._patch.undo()
        self._folder.cleanup()

    def ask(self, request: Callable[[Journal], object]) -> None:
        answers = []
        for journal in self._journals.values():
            try:
                answers.append(request(journal))
            except (LeaseLostError, UnknownRunError) as refusal:
                answers.append(str(refusal))
        assert answers == answers[:1] * len(answers)

    def believed(self, run_id: str, back: int) -> RunRow:
        """The row that a worker has in mind, which may hold an old token."""
        row = self._journals["memory"].row(run_id) or named(run_id)
        return row._replace(token=row.token - back, worker="w", lease_s=5.0)

    @rule(
        run_id=IDS,
        carried=st.lists(ANY_ENTRY, max_size=2),
        over=st.booleans(),
        parent=st.one_of(st.none(), st.tuples(IDS, st.integers(0, 1))),
    )
    def admit(
        self, run_id: str, carried: list[Entry], over: bool, parent: tuple[str, int] | None
    ) -> None:
        stands = self._journals["memory"].row(run_id)
        opens = stands is not None and over and stands.pruned_at is not None
        generation = stands.generation + 1 if stands and opens else 1
        row = named(run_id, generation=generation)
        opening = (row, [ADMITTED, *carried])
        begun_by = self.believed(*parent) if parent else None
        self.ask(lambda journal: journal.admit(opening, stands if opens else None, begun_by))

    @rule(
        run_id=IDS,
        entry=ANY_ENTRY,
        back=st.integers(0, 1),
        late=st.one_of(st.none(), st.integers(0, 1)),
        tell=st.one_of(st.none(), IDS),
        changes=CHANGES,
    )
    def append(
        self,
        run_id: str,
        entry: Entry,
        back: int,
        late: int | None,
        tell: str | None,
        changes: dict[str, Any],
    ) -> None:
        row = self.believed(run_id, back)
        expected = None if late is None else len(self._journals["memory"].events(row)) - late
        news = (tell, signal()) if tell is not None and tell != run_id else None
        self.ask(
            lambda journal: journal.append(row, entry, expected=expected, tell=news, **changes)
        )

    @rule(run_id=IDS, back=st.integers(0, 1), carried=st.lists(ANY_ENTRY, max_size=2))
    def go_on_as_new(self, run_id: str, back: int, carried: list[Entry]) -> None:
        row = self.believed(run_id, back)
        following = row._replace(generation=row.generation + 1, token=row.token + 1)
        entry: Entry = (EventKind.CONTINUED, "agent", "{}", 15.0)
        opening = (following, [ADMITTED, *carried])
        self.ask(lambda journal: journal.append(row, entry, opens=[opening]))

    @rule(run_id=IDS, back=st.integers(0, 1), changes=CHANGES)
    def update(self, run_id: str, back: int, changes: dict[str, Any]) -> None:
        row = self.believed(run_id, back)
        self.ask(lambda journal: journal.append(row, None, **changes))

    @rule(run_id=IDS, back=st.integers(0, 1), changes=CHANGES)
    def replace(self, run_id: str, back: int, changes: dict[str, Any]) -> None:
        row = self._journals["memory"].row(run_id) or named(run_id)
        before = row._replace(attempts=row.attempts - back)
        after = row._replace(attempts=row.attempts + 1)._replace(**changes)
        self.ask(lambda journal: journal.replace(before, after))

    @rule(run_id=IDS, entry=ANY_ENTRY, statuses=st.sets(st.sampled_from(RunStatus)))
    def request(self, run_id: str, entry: Entry, statuses: set[RunStatus]) -> None:
        self.ask(
            lambda journal: journal.request(
                run_id, lambda row: entry if row.status in statuses else None
            )
        )

    @rule(run_id=IDS, back=st.integers(0, 1))
    def prune(self, run_id: str, back: int) -> None:
        row = self._journals["memory"].row(run_id) or named(run_id)
        if row.status not in ENDED:  # nobody prunes a run that goes on
            return
        believed = row._replace(attempts=row.attempts - back)
        self.ask(lambda journal: prune_at(journal, believed, 40.0))

    @precondition(lambda self: any(self._journals["memory"].rows()))
    @rule()
    def open_the_files_again(self) -> None:
        for kind in ("file", "sqlite"):
            self._journals[kind].close()
            self._journals[kind] = self._open(kind)

    @invariant()
    def they_tell_the_same(self) -> None:
        tells = {kind: told(journal, 4) for kind, journal in self._journals.items()}
        assert tells["file"] == tells["memory"]
        assert tells["sqlite"] == tells["memory"]

    @invariant()
    def numbers_have_no_gaps_and_no_event_is_ever_lost(self) -> None:
        memory = self._journals["memory"]
        for row in memory.rows():
            seqs = [one.seq for one in memory.events(row)]
            assert seqs == list(range(1, len(seqs) + 1))
            key = f"{row.run_id} {row.generation}"
            assert row.pruned_at is not None or len(seqs) >= self._reached.get(key, 0)
            self._reached[key] = len(seqs)


AllJournals.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestAllJournals = AllJournals.TestCase
