"""The conformance kit: whole engines obey it, half an engine is told which half, and what the kit
does to an engine is what it says.

The broken engines have tests of their own (`test_museum`).
"""

from __future__ import annotations

import ast
import json
import os
import resource
import sqlite3
import sys
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import pytest
from code_lines import code_lines

from durable_mini import SQLiteJournal
from durable_mini.lab.conformance import (
    CAPABILITIES,
    ENGINES,
    LAWS,
    Report,
    check_engine,
    memory_engine,
)
from durable_mini.lab.conformance.engines import DurableMini
from durable_mini.lab.conformance.machine import Broken, Machine, Runaway
from durable_mini.lab.conformance.storing import appends, torn
from durable_mini.lab.museum import HonestEngine, PatientEngine
from durable_mini.lab.museum.honest import Context, Stop, kept

pytestmark = pytest.mark.slow

TIERS = ["replay", "identity", "failures", "keys", "torn writes", "fencing"]  # of the capstone


class Nothing:
    """Has no method at all."""

    def __init__(self, folder, clock):
        del folder, clock


class ThirtyLines:
    """What chapter 02 builds, with a file: no kinds, no arguments, no failures, no sync."""

    offers = frozenset({"files"})

    def __init__(self, folder, clock):
        del clock
        self.folder = folder

    def start(self, run_id, workflow, value):
        del workflow
        if not self.lines(run_id):
            self.put(run_id, {"step": "the input", "result": value})

    def resume(self, run_id, workflow):
        journal = self.lines(run_id)
        return workflow(ThirtyContext(self, run_id, journal), journal[0]["result"])

    def history(self, run_id):
        named = enumerate(self.lines(run_id), start=1)
        return [(number, "step", line["step"]) for number, line in named]

    def lines(self, run_id):
        path = self.folder / run_id.replace("/", "_")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def put(self, run_id, event):
        with (self.folder / run_id.replace("/", "_")).open("a") as file:
            file.write(json.dumps(event) + "\n")


class ThirtyContext:
    def __init__(self, engine, run_id, journal):
        self.engine, self.run_id, self.journal, self.place = engine, run_id, journal, 1

    def step(self, name, fn, *args):
        if self.place == len(self.journal):
            event = {"step": name, "result": fn(*args)}
            self.engine.put(self.run_id, event)
            self.journal.append(json.loads(json.dumps(event)))
        event = self.journal[self.place]
        if event["step"] != name:
            raise RuntimeError(f"the journal has {event['step']!r}, the code asked for {name!r}")
        self.place += 1
        return event["result"]

    def effect(self, name, fn, *args):
        key = f"{self.run_id}/{name}"
        return self.step(name, lambda *given: fn(*given, idempotency_key=key), *args)


@pytest.fixture
def machine(tmp_path):
    return Machine(HonestEngine, tmp_path)


def verdicts(report: Report) -> dict[int, str]:
    return {row.law: row.verdict for row in report.rows}


def details(report: Report) -> str:
    return "\n".join(f"{row.law}: {row.detail}" for row in report.rows if row.law in report.broken)


# ---- durable_mini, and engines that have nothing to do with it ----------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("journal", ENGINES)
def test_durable_mini_obeys_every_law_on_each_journal(journal):
    report = check_engine(ENGINES[journal])

    offered = set(CAPABILITIES) - ({"files"} if journal == "MemoryJournal" else set())
    expected = {law.number: not law.needs or law.needs in offered for law in LAWS}
    assert report.ok, details(report)
    assert {row.law: row.verdict == "holds" for row in report.rows} == expected
    assert report.score == 1.0
    assert report.kills > 400


@pytest.mark.parametrize("journal", ENGINES)
def test_durable_mini_obeys_the_laws_of_keys_and_failures(journal):
    report = check_engine(ENGINES[journal], only=[10, 12, "keys"])

    assert report.ok, details(report)
    assert [row.law for row in report.rows] == [10, 12, 14, 15]


def test_foreign_engine_of_the_core_obeys_its_laws():
    report = check_engine(HonestEngine, require=["files", "fencing"])

    assert report.ok, details(report)
    assert report.groups == dict.fromkeys(TIERS, 1.0)
    assert [row.law for row in report.rows if row.verdict == "not offered"] == [*range(21, 29)]


@pytest.mark.slow
def test_foreign_engine_with_waits_and_sagas_obeys_every_law():
    report = check_engine(PatientEngine, require=CAPABILITIES)

    assert report.ok, details(report)
    assert set(verdicts(report).values()) == {"holds"}


def test_honest_engine_imports_nothing_of_durable_mini_and_is_small():
    path = Path(sys.modules[HonestEngine.__module__].__file__)
    tree = ast.parse(path.read_text("utf-8"))
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]

    assert not [name for name in imported if name.startswith("durable_mini")]
    assert code_lines(path) < 170


class InSQLite:
    """An engine on SQLite as it comes, which looks and writes in one transaction."""

    offers = frozenset({"files", "fencing"})

    def __init__(self, folder, clock):
        del clock
        self.db = sqlite3.connect(folder / "runs.sqlite", isolation_level=None)
        self.db.executescript(
            "PRAGMA synchronous=FULL; CREATE TABLE IF NOT EXISTS events(run, seq, event, "
            "UNIQUE(run, seq)); CREATE TABLE IF NOT EXISTS holders(run PRIMARY KEY, token)"
        )

    def close(self):
        self.db.close()

    def start(self, run_id, workflow, value):
        del workflow
        event = {"kind": "start", "name": "run", "value": kept(value)}
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            events = self.events(run_id)
            if not events:
                self.put(run_id, 1, event)
            elif events[0]["value"] != event["value"]:
                raise ValueError("another input")

    def resume(self, run_id, workflow):
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            self.db.execute("INSERT OR IGNORE INTO holders VALUES (?, 0)", (run_id,))
            self.db.execute("UPDATE holders SET token = token + 1 WHERE run = ?", (run_id,))
            find = "SELECT token FROM holders WHERE run = ?"
            ((token,),) = self.db.execute(find, (run_id,)).fetchall()
        *_, last = events = self.events(run_id)
        if last["kind"] != "end":
            last = HonestEngine.drive(self, Context(self, run_id, token, events), workflow)
        return self.told(last)

    def told(self, event):
        return HonestEngine.told(self, event)

    def history(self, run_id):
        numbered = enumerate(self.events(run_id), start=1)
        return [(number, event["kind"], event["name"]) for number, event in numbered]

    @contextmanager
    def alone(self, run_id):
        yield run_id

    def check(self, run_id, token, holder):
        find = "SELECT 1 FROM holders WHERE run = ? AND token = ?"
        if not self.db.execute(find, (run_id, token)).fetchall():
            raise Stop(f"{holder} was taken over")

    def append(self, run_id, token, event):
        try:
            with self.db:
                self.db.execute("BEGIN IMMEDIATE")
                self.check(run_id, token, run_id)
                seq = len(self.events(run_id)) + 1
                self.put(run_id, seq, event)
        except sqlite3.Error as error:
            raise Stop(str(error)) from error
        return {"seq": seq, **event}

    def put(self, run_id, seq, event):
        text = json.dumps(event)
        line = f"{crc32(text.encode())} {text}"
        self.db.execute("INSERT INTO events VALUES (?, ?, ?)", (run_id, seq, line))

    def events(self, run_id):
        find = "SELECT event FROM events WHERE run = ? ORDER BY seq"
        lines = [line.partition(" ") for (line,) in self.db.execute(find, (run_id,))]
        if any(int(check) != crc32(text.encode()) for check, _, text in lines):
            raise ValueError("damaged")
        return [{"seq": n, **json.loads(text)} for n, (_, _, text) in enumerate(lines, start=1)]


@pytest.mark.slow
def test_foreign_engine_on_sqlite_obeys_the_laws_of_the_core():
    report = check_engine(InSQLite, require=["files", "fencing"])

    assert report.ok, details(report)


class InSubfolders(HonestEngine):
    def path(self, run_id, suffix):
        folder = self.folder / "runs" / suffix
        folder.mkdir(parents=True, exist_ok=True)
        return folder / super().path(run_id, suffix).name


def test_engine_with_subfolders_is_killed_and_cut_as_any_other():
    report = check_engine(InSubfolders, only=[1, 2, 16, 17])

    assert report.ok, details(report)
    assert report.cuts > 200


def test_durable_mini_that_is_told_not_to_compare_arguments_breaks_that_law_alone():
    def lenient(folder, clock):
        journal = SQLiteJournal(folder / "journal.db")
        return DurableMini(journal, clock, frozenset(), compare_arguments=False)

    assert check_engine(lenient, only=["identity"]).broken == {7}


# ---- half an engine -----------------------------------------------------------------------------


def test_half_an_engine_is_told_what_holds_and_what_does_not():
    report = check_engine(ThirtyLines)

    assert not report.ok
    assert report.broken == {1, 3, 6, 7, 8, 10, 12, 13, 15, 16, 17, 18}
    assert {law for law, verdict in verdicts(report).items() if verdict == "holds"} == {
        2,
        4,
        5,
        9,
        11,
        14,
    }
    assert 0.4 < report.score < 0.6
    keys = next(row for row in report.rows if row.law == 15)
    assert (keys.passed, keys.of) == (2, 4)
    assert "Two effects of a run with the same arguments" in keys.holding
    assert "A name that a run repeats, with the same arguments" in keys.broken


def test_counter_example_is_the_smallest_and_tells_its_story():
    report = check_engine(ThirtyLines, only=[7, 15])

    arguments, keys = (row.detail for row in report.rows)
    assert arguments == (
        "Case 1, the same call with another argument is refused: it returned ['a', 'last']; "
        "another call is on record. How: start, resume, a executed with key r-1/a, "
        "killed as put returned, resume, last executed"
    )
    assert "the keys are ['r-1/charge', 'r-1/charge', 'r-1/charge']" in keys
    assert " ".join(str(report).split()).count(arguments) == 1


@pytest.mark.parametrize(
    "factory", [Nothing, lambda folder, clock: 1 / 0, lambda folder, clock: None]
)
def test_engine_that_does_nothing_holds_no_law(factory):
    report = check_engine(factory)

    assert report.score == 0.0
    assert not report.ok
    assert set(verdicts(report).values()) == {"BROKEN", "not offered"}


def test_what_is_required_and_not_offered_is_not_ok():
    engine = type("Bare", (HonestEngine,), {"offers": frozenset()})

    assert check_engine(engine, only=["fencing"]).ok
    required = check_engine(engine, only=["fencing"], require=["fencing"])
    assert not required.ok
    assert [(row.verdict, row.ok, row.passed, row.of) for row in required.rows] == [
        ("not offered", False, 0, 3),
        ("not offered", False, 0, 1),
    ]
    assert required.groups == {"fencing": 0.0}


class GoesInCircles(HonestEngine):
    def resume(self, run_id, workflow):
        while True:
            try:
                return super().resume(run_id, lambda ctx, value: 1 / 0)
            except ZeroDivisionError:
                self.clock.sleep(1.0)


def test_engine_that_goes_in_circles_is_stopped():
    report = check_engine(GoesInCircles, only=[20])

    assert not report.ok
    assert "slept 300 times and got nowhere" in report.rows[0].detail


# ---- the report ---------------------------------------------------------------------------------


def test_report_has_one_row_for_each_law_in_order_and_shows_them_all():
    seen = []
    report = check_engine(Nothing, on_row=seen.append)

    assert [row.law for row in report.rows] == [*range(1, 29)] == [law.number for law in LAWS]
    assert tuple(seen) == report.rows
    for row in report.rows:
        assert (row.title, row.title[-1]) == (LAWS[row.law - 1].title, ".")
        assert row.title in str(report)
        assert row.title.replace("'", "&#x27;") in report._repr_html_()
        assert row.of == len(LAWS[row.law - 1].cases)
    assert str(report).startswith("Nothing: 0 of 15 laws hold; 13 more")


def test_every_law_has_a_sentence_and_every_case_one():
    sentences = [" ".join(case.__doc__.split()) for law in LAWS for case in law.cases]

    assert len({law.title for law in LAWS}) == len(LAWS)
    assert len(set(sentences)) == len(sentences)
    assert {law.group for law in LAWS if law.needs in {"", "files", "fencing"}} == set(TIERS)
    assert {law.needs for law in LAWS} == {"", *CAPABILITIES}


def test_same_engine_gives_the_same_report():
    assert check_engine(ThirtyLines, only=TIERS[:3]) == check_engine(ThirtyLines, only=TIERS[:3])


@pytest.mark.parametrize("wrong", [{"require": ["magic"]}, {"only": ["magic"]}, {"only": [99]}])
def test_unknown_names_are_refused(wrong):
    with pytest.raises(ValueError, match="is none of"):
        check_engine(Nothing, **wrong)


def test_nothing_of_the_process_is_changed_afterwards():
    before = os.fsync, sys.gettrace(), resource.getrlimit(resource.RLIMIT_FSIZE)
    check_engine(ThirtyLines, only=[2, 12, 16])

    assert (os.fsync, sys.gettrace(), resource.getrlimit(resource.RLIMIT_FSIZE)) == before


# ---- the machine --------------------------------------------------------------------------------


def test_every_state_that_a_kill_leaves_behind_is_found(machine):
    workflow = machine.script(machine.effect("a"))
    found = [
        (machine.count("a"), tuple(machine.recorded()), len(state.seen))
        for state in machine.kills(workflow)
    ]

    assert [*dict.fromkeys(found)] == [
        (0, ("run",), 0),  # before the work
        (1, ("run",), 0),  # in the crash window
        (1, ("run", "a"), 0),  # recorded, and the workflow doesn't know
        (1, ("run", "a"), 1),  # it does
        (1, ("run", "a", "run"), 1),  # the end is recorded
    ]


def test_what_a_dying_process_would_write_counts_for_nothing(tmp_path):
    class Buffered(HonestEngine):
        """Keeps its records in a buffer, which only the end of the process empties."""

        def __init__(self, folder, clock):
            super().__init__(folder, clock)
            self.buffer = []

        def write(self, run_id, event):
            events, _ = self.read(run_id)
            written = {"seq": len(events) + len(self.buffer) + 1, **event}
            self.buffer.append((run_id, event))
            return written

        def read(self, run_id):
            events, size = super().read(run_id)
            return [*events, *({"seq": 0, **event} for _, event in self.buffer)], size

        def close(self):
            buffer, self.buffer = self.buffer, []
            for run_id, event in buffer:
                HonestEngine.write(self, run_id, event)

    assert not check_engine(Buffered, only=[1]).ok
    machine = Machine(Buffered, tmp_path)
    assert machine.run(machine.script(machine.step("a"))).value == ["a"]
    assert machine.recorded() == ["run", "a", "run"]  # after an end in good order


def test_engine_can_not_change_what_the_kit_hands_out(tmp_path):
    class Greedy(HonestEngine):
        def start(self, run_id, workflow, value):
            super().start(run_id, workflow, list(value))
            value.append("mine")

    machine, mine = Machine(Greedy, tmp_path), ["yours"]
    machine.start(machine.script(machine.step("a")), mine)
    body = machine.body("a", gives=["yours"])
    body().append("mine")

    assert mine == body() == ["yours"]


def test_power_cut_leaves_what_was_synced(machine):
    with machine.surroundings.noting_syncs(machine.disk):
        path = machine.disk.folder / "journal"
        with path.open("wb") as file:
            file.write(b"one")
            file.flush()
            assert (machine.disk.files()["journal"], machine.disk.spared()) == (b"one", {})
            os.fsync(file.fileno())
            file.write(b"two")
            file.flush()
        assert (machine.disk.files()["journal"], machine.disk.spared()["journal"]) == (
            b"onetwo",
            b"one",
        )


def test_full_disk_is_refused_by_the_system(machine, tmp_path):
    path = tmp_path / "file"
    with path.open("wb", buffering=0) as file:
        file.write(b"before")
        with machine.full_disk() as fill:
            fill()
            with pytest.raises(OSError, match="File too large"):
                file.write(b"too late")
        file.write(b", after")

    assert path.read_bytes() == b"before, after"


def test_append_is_cut_at_every_byte(machine):
    machine.new()
    states = machine.states(lambda: machine.run(machine.script(machine.step("a"))))
    made = [append for append in appends(states) if append.name == "r-1.journal"]
    whole = states[-1].files["r-1.journal"]

    assert [append.lengths for append in made] == [
        (before, after)
        for before, after in zip(line_ends(whole), line_ends(whole)[1:], strict=False)
    ]
    assert [length for append in made for length in torn(machine, append)] == [*range(len(whole))]
    assert machine.disk.files()["r-1.journal"] == whole[:-1]


def line_ends(data: bytes) -> list[int]:
    return [0, *(place + 1 for place, byte in enumerate(data) if byte == ord("\n"))]


class Unlocked(HonestEngine):
    @contextmanager
    def alone(self, run_id):
        with self.path(run_id, "holder").open("a+b") as holder:
            yield holder


def test_run_is_taken_over_at_every_line_up_to_its_record(tmp_path):
    def places(factory):
        machine = Machine(factory, tmp_path)
        return [place for place, _, _ in machine.takeovers(machine.script(machine.effect("a")))]

    look, write = "in check before `if self.token(holder) != token:`", "before `file.write("
    unlocked, locked = places(Unlocked), places(HonestEngine)
    assert any(look in place for place in unlocked)
    assert any(write in place for place in unlocked)
    assert not any(look in place or write in place for place in locked)  # the second waits
    assert 5 < len(locked) < len(unlocked)
    assert check_engine(Unlocked, only=[20]).broken == {20}


def test_verdict_of_the_kit_is_no_error_that_an_engine_could_swallow(machine):
    assert issubclass(Runaway, BaseException)
    assert not issubclass(Runaway, Exception)
    with pytest.raises(Broken, match=r"too bad\. How: nothing was done"):
        machine.expect(False, "too bad")


def test_memory_journal_outlives_its_process_in_a_picture(tmp_path):
    machine = Machine(memory_engine, tmp_path)
    workflow = machine.script(machine.step("a"))
    machine.start(workflow)

    assert machine.resume(workflow).value == ["a"]
    assert [name for _, _, name in machine.history()] == ["checked", "a", "checked"]
