"""`verify`: clean where all is well, and every broken law named by run and sequence number."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gallery import Change, fill, made, order, parcel, place, rewrite, sql

from durable_mini import (
    Engine,
    Event,
    EventKind,
    FakeClock,
    MemoryJournal,
    SQLiteJournal,
    StorageError,
)
from durable_mini.events import checksum
from durable_mini.journal.file import FileJournal
from durable_mini.ops import Problem, verify

RUNS, EVENTS = 15, 115


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gallery") / "journal.db"
    with SQLiteJournal(path) as journal:
        fill(journal)
    return path


@pytest.fixture
def path(original: Path, journal_path: Path) -> Path:
    """A copy of the gallery, to be broken."""
    return Path(shutil.copy(original, journal_path))


def problems_in(path: Path) -> tuple[Problem, ...]:
    with SQLiteJournal(path) as journal:
        report = verify(journal)
    assert report.runs == RUNS
    assert report.ok == (not report.problems)
    return report.problems


@pytest.mark.parametrize("kind", [MemoryJournal, FileJournal, SQLiteJournal])
def test_a_journal_in_which_all_is_well_has_no_problems(kind: Any, journal_path: Path) -> None:
    with MemoryJournal() if kind is MemoryJournal else kind(journal_path) as journal:
        assert verify(journal) == (0, 0, ())
        fill(journal)
        assert verify(journal) == (RUNS, EVENTS, ())
        assert verify(journal).ok


def test_the_gallery_has_every_kind_of_event(original: Path) -> None:
    with SQLiteJournal(original) as journal:
        kinds = {
            event.kind
            for row in journal.rows()
            for generation in range(1, row.generation + 1)
            for event in journal.events(row._replace(generation=generation))
        }
    assert kinds == set(EventKind)


# ---- the storage and its checksums ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "run_id", "seq"),
    [
        ("UPDATE events SET payload = '{}' WHERE seq = 24", "complete", 24),
        ("UPDATE events SET checksum = 0 WHERE seq = 25", "complete", 25),
        ("DELETE FROM events WHERE run_id = 'complete' AND seq = 4", "complete", 4),
        ("DELETE FROM events WHERE run_id = 'pending'", "pending", 1),
        ("DELETE FROM events WHERE seq = 1 AND run_id = 'attention'", "attention", 1),
        ("DELETE FROM events WHERE seq = 25", "complete", 24),
        ("DELETE FROM events WHERE run_id = 'continued' AND generation = 2", "continued", 1),
        ("DELETE FROM events WHERE run_id = 'continued' AND generation < 3", "continued", 1),
        ("UPDATE events SET generation = 9 WHERE run_id = 'pending'", "pending", 1),
        ("UPDATE runs SET status = 'asleep' WHERE run_id = 'pending'", "pending", None),
    ],
)
def test_damage_is_named_by_run_and_number_and_hides_no_other_run(
    path: Path, statement: str, run_id: str, seq: int | None
) -> None:
    sql(path, statement)
    assert [(found.run_id, found.seq) for found in problems_in(path)] == [(run_id, seq)]


def test_damage_in_an_older_generation_is_named_by_the_generation(path: Path) -> None:
    sql(path, "UPDATE events SET name = 'x' WHERE run_id = 'continued' AND generation = 2")
    (problem,) = problems_in(path)
    assert problem == ("continued", 1, "generation 2: the checksum doesn't fit")


def test_every_damaged_run_is_reported(path: Path) -> None:
    sql(path, "UPDATE runs SET status = 'asleep' WHERE run_id = 'running'")
    sql(path, "UPDATE events SET name = 'x' WHERE run_id = 'complete' AND seq IN (2, 5)")
    sql(path, "DELETE FROM events WHERE run_id = 'spent' AND seq = 2")
    sql(path, "INSERT INTO events VALUES ('stray', 1, 1, 'step', 'x', '{}', 0.0, 0)")
    found = problems_in(path)
    assert [(problem.run_id, problem.seq) for problem in found] == [
        (None, None),
        ("complete", 2),
        ("spent", 2),
        ("running", None),
    ]
    assert "stray" in found[0].problem


def test_a_file_with_a_broken_page_is_reported_and_nothing_raised(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4_096 + 8)
        file.write(b"\xff" * 200)
    with SQLiteJournal(path) as journal:
        report = verify(journal)
    assert not report.ok
    assert all("\n" not in problem.problem for problem in report.problems)


def test_verify_reads_only(path: Path) -> None:
    before = path.read_bytes()
    assert problems_in(path) == ()
    assert path.read_bytes() == before


def test_a_journal_that_cannot_be_read_at_all_is_an_error(journal: SQLiteJournal) -> None:
    journal.close()
    with pytest.raises(StorageError):
        verify(journal)


# ---- the shape of each event ---------------------------------------------------------------------


class Swept(MemoryJournal):
    """A copy of a journal, in memory since each of its events is broken in turn."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        with SQLiteJournal(path) as journal:
            for row in journal.rows():
                self._put(row)
                for generation in range(1, row.generation + 1):
                    of = row._replace(generation=generation)
                    for event in journal.events(of):
                        self._insert(of, event)

    def each_event(
        self, change: Callable[[Event], Event]
    ) -> Iterator[tuple[Event, Problem | None]]:
        """Change one event at a time: the event, and the one problem that its run then has."""
        for (run_id, generation), log in list(self._events.items()):
            row = self._rows[run_id]._replace(generation=generation)
            for at, kept in enumerate(log[:]):
                changed = change(kept[0])
                if changed == kept[0]:
                    continue
                log[at] = changed, checksum(row, changed)
                found = verify(self).problems
                log[at] = kept
                assert [problem.run_id for problem in found] in ([], [run_id])
                yield kept[0], found[0] if found else None


@pytest.fixture
def gallery(original: Path) -> Swept:
    return Swept(original)


@pytest.mark.parametrize("text", ["{oops", "5", "[]"])
def test_a_payload_that_is_no_json_object_is_named(gallery: Swept, text: str) -> None:
    for event, problem in gallery.each_event(lambda event: event._replace(text=text)):
        assert problem is not None
        assert problem.seq == event.seq
        assert problem.problem.endswith("the payload is no JSON object")


def test_every_kind_of_event_misses_what_it_needs(gallery: Swept) -> None:
    silent = set()
    for event, problem in gallery.each_event(lambda event: event._replace(text="{}")):
        if problem is None:
            silent.add((str(event.kind), event.name))
        else:
            assert problem.seq == event.seq
    assert silent == {("fired", "sleep"), ("timed_out", "hurry"), ("stop", "cancelled")}


def test_every_field_of_every_event_is_of_its_type(gallery: Swept) -> None:
    """What may hold any JSON value came from outside, and is said nowhere else."""
    free = set()
    for number in range(6):

        def other(event: Event, number: int = number) -> Event:
            payload, fields = event.payload, [*event.payload]
            if number >= len(fields):
                return event
            return event._replace(text=json.dumps(payload | {fields[number]: {"another": "type"}}))

        for event, problem in gallery.each_event(other):
            if problem is None:
                free.add((str(event.kind), [*event.payload][number]))
    assert free == {
        *(("step", "result"), ("effect", "result"), ("undo", "result"), ("completed", "result")),
        *(("admitted", "input"), ("admitted", "began_with"), ("signal", "result")),
    }


def named(kind: str, name: str) -> Change:
    def change(events: list[Event]) -> list[Event]:
        at = place(events, kind)
        return [*events[:at], events[at]._replace(name=name), *events[at + 1 :]]

    return change


def as_kind(kind: str, other: str) -> Change:
    def change(events: list[Event]) -> list[Event]:
        at = place(events, kind)
        return [*events[:at], events[at]._replace(kind=EventKind(other)), *events[at + 1 :]]

    return change


def failing(name: str) -> Event:
    return made("failed", name, error={"type": "E", "message": "", "step": None})


@pytest.mark.parametrize("kind", ["now", "random", "uuid", "pivot", "timer", "fired", "stop"])
def test_an_event_that_the_engine_names_has_its_name(path: Path, kind: str) -> None:
    events = rewrite(path, "complete" if kind != "stop" else "spent", named(kind, "other"))
    (problem,) = problems_in(path)
    assert problem.seq == place(events, kind) + 1
    assert "its name is 'other'" in problem.problem


# ---- what may follow what ------------------------------------------------------------------------


def gone(kind: str, name: str | None = None) -> Change:
    """The history without the first event of a kind (and a name)."""
    return lambda events: [
        event for at, event in enumerate(events) if at != place(events, kind, name)
    ]


def says(kind: str, name: str | None = None, **fields: Any) -> Change:
    """The history in which the first event of a kind has other fields in its payload."""

    def change(events: list[Event]) -> list[Event]:
        at = place(events, kind, name)
        text = json.dumps(events[at].payload | fields)
        return [*events[:at], events[at]._replace(text=text), *events[at + 1 :]]

    return change


def without(field: str, kind: str, name: str | None = None) -> Change:
    """The history in which the first event of a kind lacks a field."""

    def change(events: list[Event]) -> list[Event]:
        at = place(events, kind, name)
        kept = {key: value for key, value in events[at].payload.items() if key != field}
        return [*events[:at], events[at]._replace(text=json.dumps(kept)), *events[at + 1 :]]

    return change


def after(kind: str, name: str | None, *new: Event) -> Change:
    """The history with more events after the first of a kind (and a name)."""
    return lambda events: [
        *events[: place(events, kind, name) + 1],
        *new,
        *events[place(events, kind, name) + 1 :],
    ]


def swapped(kind: str, name: str, other_kind: str, other_name: str) -> Change:
    def change(events: list[Event]) -> list[Event]:
        changed = events[:]
        first, second = place(events, kind, name), place(events, other_kind, other_name)
        changed[first], changed[second] = events[second], events[first]
        return changed

    return change


def step(name: str = "more", **more: Any) -> Event:
    return made("step", name, args="", **({"result": 1} | more))


def tried(name: str, of: str, **more: Any) -> Event:
    error = {"type": "E", "message": ""}
    return made("try", name, args="", of=of, error=error, due_at=0.0, **more)


CANCEL = made("cancel", "cancel")
COMPLETED = made("completed", "trip", result=None)
SECOND = {"signal_id": "s-2", "result": {"street": 2}}


@pytest.mark.parametrize(
    ("run_id", "change", "seq", "words"),
    [
        # the admission and the ending
        (
            "complete",
            after("patch", "greet", made("admitted", "order", calls=[], input=1)),
            3,
            "adm",
        ),
        ("complete", gone("admitted"), 1, "the admission is not where it belongs"),
        (
            "complete",
            after("pivot", None, made("completed", "order", result=1)),
            22,
            "4 more events",
        ),
        ("complete", named("completed", "parcel"), 25, "ends workflow 'parcel'"),
        # a call has one outcome, and is tried one time after the other
        (
            "complete",
            says("step", "greet", error={"type": "E", "message": ""}),
            3,
            "either a result",
        ),
        ("complete", without("result", "effect"), 8, "either a result or an error"),
        ("complete", says("effect", tries=2), 8, "it is try 2, and 2 before it failed"),
        ("complete", gone("try", "charge"), 6, "it is try 2, and 0 before it failed"),
        ("complete", says("step", "greet", tries=2), 3, "it is try 2, and 0 before it failed"),
        ("complete", says("step", "greet", attempt=2), 4, "attempt 2 begins after attempt 2"),
        ("complete", says("fired", attempt=9), 18, "attempt 4 begins after attempt 9"),
        (
            "complete",
            after("patch", None, made("patch", "greet", result=True)),
            3,
            "decided already",
        ),
        # an answer follows what it answers, and nothing comes between
        ("complete", gone("timer"), 12, "nothing before it asks for it"),
        ("complete", gone("wait", "hurry"), 17, "nothing before it asks for it"),
        ("complete", gone("wait", "address"), 19, "nothing before it asks for it"),
        ("complete", gone("child"), 23, "nothing before it asks for it"),
        ("complete", gone("fired"), 13, "event 12, timer 'sleep', has no answer yet"),
        (
            "complete",
            after("wait", "hurry", step()),
            15,
            "event 14, wait 'hurry', has no answer yet",
        ),
        ("complete", gone("joined"), 24, "event 22, child 'complete/parcel', has no answer yet"),
        ("complete", swapped("wait", "hurry", "wait", "address"), 18, "it answers a wait 'hurry'"),
        # what is received, joined or timed out is what was there
        ("complete", gone("signal", "address"), 19, "to be read next, which is event 16"),
        ("complete", says("received", **SECOND), 20, "to be read next, which is event 16"),
        ("complete", says("received", result="forged"), 20, "to be read next, which is event 16"),
        ("complete", says("wait", "hurry", due_at=1_083.0), 18, "event 15 came in time"),
        ("complete", says("wait", "hurry", due_at=None), 18, "event 15 came in time"),
        ("complete", says("signal", "hurry", signal_id="s-1"), 16, "signal 's-1' is here already"),
        ("complete", gone("child_ended"), 23, "it isn't what the run was told"),
        ("complete", says("joined", result=7), 24, "it isn't what the run was told"),
        # undos go backwards through what was registered, and there is no way back
        (
            "cancelled",
            swapped("undo", "flight", "undo", "hotel"),
            10,
            "to be undone next is 'flight'",
        ),
        ("cancelled", gone("compensate", "hotel"), 10, "to be undone next is nothing"),
        ("cancelled", gone("undo", "hotel"), 11, "compensation 'hotel' was not carried out"),
        ("cancelled", after("stop", None, tried("hotel", "undo")), 9, "undone next is 'flight'"),
        ("cancelled", after("stop", None, step()), 9, "it comes after the stop"),
        ("cancelled", after("stop", None, tried("flight", "effect")), 9, "had begun to undo"),
        ("cancelled", gone("cancel"), 7, "nobody had asked for it"),
        ("spent", after("undo", "flight", step()), 7, "it comes after the stop"),
        ("spent", lambda it: [*gone("stop")(it)[:6], step()], 7, "it comes after the first undo"),
        ("complete", after("pivot", None, CANCEL), 22, "after the point of no return"),
        (
            "complete",
            after("pivot", None, made("stop", "budget", limit="", spent=1, allowed=1)),
            22,
            "re",
        ),
        (
            "complete",
            after("pivot", None, made("undo", "charge", args="", key="", result=1)),
            22,
            "point",
        ),
        # an ending fits what led to it
        ("spent", as_kind("failed", "cancelled"), 8, "was stopped (budget) and ended as cancelled"),
        (
            "cancelled",
            as_kind("cancelled", "failed"),
            12,
            "stopped (cancelled) and ended as failed",
        ),
        ("cancelled", lambda it: [*it[:11], COMPLETED], 12, "ended as compl"),
        (
            "spent",
            lambda it: [*gone("stop")(it)[:6], COMPLETED],
            7,
            "undid something and ended as c",
        ),
        ("complete", lambda it: [*it[:24], failing("order")], 25, "after the point of no return"),
        ("complete", lambda it: [*it[:8], failing("order")], 9, "'charge' was not carried out"),
    ],
)
def test_a_history_that_breaks_a_law_is_named_though_its_checksums_fit(
    path: Path, run_id: str, change: Change, seq: int, words: str
) -> None:
    rewrite(path, run_id, change)
    (problem,) = problems_in(path)
    assert (problem.run_id, problem.seq) == (run_id, seq)
    assert words in problem.problem


def test_of_two_broken_events_the_first_is_named(path: Path) -> None:
    rewrite(path, "complete", lambda events: gone("fired")(says("step", "greet", tries=2)(events)))
    (problem,) = problems_in(path)
    assert problem.seq == 3


# ---- between generations -------------------------------------------------------------------------

UNREAD = made("signal", "other", signal_id="s-2", result="no")


@pytest.mark.parametrize(
    ("run_id", "generation", "change", "told"),
    [
        ("continued", 1, gone("continued"), (4, "generation 1: there is a next generation")),
        (
            "continued",
            1,
            says("continued", input=7),
            (1, "generation 2: it doesn't begin with what"),
        ),
        (
            "continued",
            3,
            says("admitted", input=7),
            (1, "generation 3: it doesn't begin with what"),
        ),
        (
            "continued",
            2,
            says("admitted", spent=[9.0, 1]),
            (1, "generation 2: it begins with 9 spent"),
        ),
        (
            "continued",
            2,
            says("admitted", spent=[0.25, 2]),
            (1, "generation 2: it begins with 0.25"),
        ),
        ("continued", 2, says("step", cost=1.0), (1, "generation 3: it begins with 0.5 spent")),
        ("continued", 2, without("since", "admitted"), (1, "generation 2: whether it continues")),
        ("reused", 2, says("admitted", since=1.0), (1, "generation 2: whether it continues")),
        (
            "pruned and reused",
            2,
            says("admitted", since=1.0),
            (1, "generation 2: whether it contin"),
        ),
        (
            "continued",
            2,
            gone("signal", "other"),
            (3, "generation 2: signal 'other', unread so far"),
        ),
        ("continued", 2, gone("signal", "answer"), (2, "generation 2: signal 'answer', unread")),
        (
            "continued",
            3,
            says("signal", "other", result="x"),
            (3, "generation 3: signal 'other', unr"),
        ),
        (
            "continued",
            2,
            after("step", None, UNREAD),
            (5, "generation 2: signal 's-2' is here already"),
        ),
        ("reused", 1, after("step", None, UNREAD), None),
    ],
)
def test_generations_hand_over_what_the_next_one_begins_with(
    path: Path, run_id: str, generation: int, change: Change, told: tuple[int, str] | None
) -> None:
    rewrite(path, run_id, change, generation)
    found = problems_in(path)
    if told is None:
        assert found == ()
    else:
        assert [problem.seq for problem in found] == [told[0]]
        assert found[0].problem.startswith(told[1])


def test_a_signal_id_counts_once_over_all_generations(path: Path) -> None:
    rewrite(path, "reused", after("step", None, UNREAD), 1)
    rewrite(path, "reused", after("admitted", None, UNREAD), 2)
    (problem,) = problems_in(path)
    assert problem == ("reused", 2, "generation 2: signal 's-2' came before")


def test_a_generation_that_continues_has_a_next_one(path: Path) -> None:
    rewrite(path, "pending", lambda events: [*events, made("continued", "order", input=1)])
    (problem,) = problems_in(path)
    assert problem == ("pending", 2, "it continues in a generation that isn't there")


# ---- rows and relatives --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "run_id", "seq", "words"),
    [
        ("status = 'running'", "complete", 25, "the row says running, the last event is completed"),
        ("status = 'failed'", "complete", 25, "the row says failed, the last event is completed"),
        ("status = 'completed'", "attention", 2, "the row says completed, the last event is step"),
        ("workflow = 'refund'", "running", 1, "the row says workflow 'refund'"),
        ("structure = 'beef'", "pending", 1, "the structure hash doesn't fit"),
        ("parent = 'spent'", "pending", 1, "the row says parent 'spent', the admission None"),
        ("parent = NULL", "waiting/parcel", 1, "the row says parent None, the admission 'waiting'"),
        ("error = '{oops'", "attention", 2, "readably why it needs attention"),
        ("error = '{}'", "attention", 2, "readably why it needs attention"),
        ("error = '[]'", "attention", 2, "readably why it needs attention"),
        ("error = NULL", "attention", 2, "readably why it needs attention"),
        ('error = \'{"type":"E","message":""}\'', "complete", 25, "readably why"),
        ("due_at = 0.0", "complete", 25, "the row says completed, due at 0.0"),
        ("due_at = 0.0", "attention", 2, "the row says needs_attention, due at 0.0"),
        ("due_at = NULL", "pending", 1, "the row says pending, due at None"),
        ("due_at = NULL", "running", 2, "the row says running, due at None"),
        ("worker = 'w'", "complete", 25, "the row says completed, held by w"),
        ("worker = 'w'", "waiting", 22, "the row says suspended, held by w"),
        ("worker = NULL", "running", 2, "the row says running, held by nobody"),
        ("token = -1", "pending", 1, "the row says token -1"),
        ("crashes = -1", "pending", 1, "the row says crashes -1"),
        ("lease_s = -1.0", "running", 2, "the row says lease_s -1.0"),
        ("crashes = 2", "running", 2, "the row counts 1 attempts, there were more"),
        ("attempts = 5", "complete", 25, "the row counts 5 attempts, there were more"),
        ("token = 0", "running", 2, "the row says token 0 after 1 claims"),
        ("pruned_at = 1.0", "complete", 1, "the run was pruned, and there are events"),
    ],
)
def test_a_row_says_what_its_events_say(
    path: Path, change: str, run_id: str, seq: int, words: str
) -> None:
    sql(path, f"UPDATE runs SET {change} WHERE run_id = ?", run_id)
    (problem,) = problems_in(path)
    assert (problem.run_id, problem.seq) == (run_id, seq)
    assert words in problem.problem


def test_events_of_a_generation_that_the_row_does_not_know_are_named(path: Path) -> None:
    rewrite(path, "pending", lambda _: [step()], generation=2)
    (problem,) = problems_in(path)
    assert problem == ("pending", 1, "the run has no such generation, and there are events")


@pytest.mark.parametrize(
    ("lost", "run_id", "seq", "words"),
    [
        ("waiting", "waiting/parcel", 1, "its parent 'waiting' isn't in the journal"),
        ("waiting/parcel", "waiting", 22, "a child that isn't in the journal"),
        ("successor", "migrated", 7, "its successor isn't in the journal"),
    ],
)
def test_a_run_s_relatives_are_in_the_journal(
    path: Path, lost: str, run_id: str, seq: int, words: str
) -> None:
    sql(path, "DELETE FROM events WHERE run_id = ?", lost)
    sql(path, "DELETE FROM runs WHERE run_id = ?", lost)
    with SQLiteJournal(path) as journal:
        (problem,) = verify(journal).problems
    assert (problem.run_id, problem.seq) == (run_id, seq)
    assert words in problem.problem


def end_the_child(path: Path) -> None:
    """As an engine would that ends a child and tells its parent in another transaction."""
    ended = made("completed", "parcel", result=1.5)
    rewrite(path, "waiting/parcel", lambda events: [*events, made("fired", "sleep"), step(), ended])
    sql(path, "UPDATE runs SET status = 'completed', due_at = NULL WHERE run_id = 'waiting/parcel'")


def test_a_parent_that_was_not_told_of_its_child_s_end_is_named(path: Path) -> None:
    end_the_child(path)
    (problem,) = problems_in(path)
    assert (problem.run_id, problem.seq) == ("waiting", 22)
    assert "was never told" in problem.problem


# ---- a journal that is in use --------------------------------------------------------------------


def test_a_run_that_moves_on_while_it_is_verified_is_no_problem() -> None:
    journal = MemoryJournal()
    engine = Engine(journal, [order], clock=FakeClock())
    engine.start(order, "tea", run_id="r-1")
    events = journal.events

    def events_of_a_moment_later(row: Any, after: int = 0) -> list[Event]:
        journal.events = events  # type: ignore[method-assign]
        engine.resume("r-1")
        return events(row, after)

    journal.events = events_of_a_moment_later  # type: ignore[method-assign]
    assert verify(journal).problems == ()


def test_a_child_that_ends_while_its_parent_is_verified_is_no_problem(path: Path) -> None:
    class Busy(SQLiteJournal):
        def row(self, run_id: str) -> Any:
            if run_id == "waiting/parcel":
                with SQLiteJournal(self.path) as journal:
                    Engine(journal, [order, parcel], clock=FakeClock(1e6)).resume(run_id)
            return super().row(run_id)

    with Busy(path) as journal:
        assert verify(journal).problems == ()


def test_a_heartbeat_while_a_run_is_verified_is_not_waited_for(path: Path) -> None:
    class Beating(SQLiteJournal):
        looks = 0

        def row(self, run_id: str) -> Any:
            self.looks += 1
            assert self.looks < 10 * RUNS
            sql(self.path, "UPDATE runs SET lease_until = lease_until + 1")
            return super().row(run_id)

    with Beating(path) as journal:
        assert verify(journal).ok
