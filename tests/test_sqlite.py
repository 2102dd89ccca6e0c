"""The journal in a SQLite file: what makes it durable, and what happens to a file that is damaged,
shared, killed in the middle or somebody else's.

`test_journals` has what every journal does; full disks, read-only folders and other programs' files
are in `test_bad_input`.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from linecache import getline
from pathlib import Path
from threading import Lock, Thread, Timer
from typing import Any

import pytest
from children import Child, ChildError, in_child

from durable_mini import (
    Context,
    DurableError,
    Engine,
    EventKind,
    JournalCorruptError,
    NotAJournalError,
    RunStatus,
    SQLiteJournal,
    StorageError,
    workflow,
)
from durable_mini.events import Entry, RunRow, checksum
from durable_mini.journal import sqlite as implementation
from durable_mini.ops import verify

JOURNAL_FILES = {str(path) for path in Path(implementation.__file__).parent.glob("*.py")}
RUN = RunRow("r-1", 1, "order", "1", "0f0f", RunStatus.PENDING)
ADMITTED: Entry = (EventKind.ADMITTED, "order", '{"calls":[],"input":7}', 12.5)


@workflow(version="1")
def order(ctx: Context, item: Any) -> list[str]:
    return [ctx.step("reserve", str, item), ctx.step("pack", str, item)]


def step(number: int) -> Entry:
    return EventKind.STEP, f"step {number}", '{"args":"ab","result":1}', 12.5 + number


def raw(path: Path, sql: str, *values: Any) -> list[Any]:
    """What another program does with the file: one statement, committed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return db.execute(sql, values).fetchall()


@pytest.fixture
def engine(journal: SQLiteJournal) -> Engine:
    """An engine with the run r-1 completed: four events."""
    engine = Engine(journal, [order])
    engine.run(order, "téa", run_id="r-1")
    return engine


# What makes it durable


def test_the_file_says_whose_it_is_and_commits_are_written_through(
    journal: SQLiteJournal, journal_path: Path
) -> None:
    assert raw(journal_path, "PRAGMA journal_mode") == [("wal",)]
    assert raw(journal_path, "PRAGMA application_id") == [(int.from_bytes(b"dMin"),)]
    assert raw(journal_path, "PRAGMA user_version") == [(2,)]
    for pragma, value in [("synchronous", 2), ("fullfsync", 1)]:  # 2 is FULL; both per connection
        assert journal._db.execute(f"PRAGMA {pragma}").fetchone() == (value,)


def test_an_old_journal_is_written_through_too(journal_path: Path) -> None:
    SQLiteJournal(journal_path).close()
    with SQLiteJournal(journal_path) as journal:
        assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert journal._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_what_an_append_has_returned_from_is_committed(
    journal: SQLiteJournal, journal_path: Path
) -> None:
    def committed() -> list[Any]:
        return raw(journal_path, "SELECT (SELECT count(*) FROM events), status, attempts FROM runs")

    journal.admit((RUN, [ADMITTED]))
    assert committed() == [(1, "pending", 0)]
    journal.replace(RUN, RUN._replace(status=RunStatus.RUNNING, attempts=1))
    assert committed() == [(1, "running", 1)]
    journal.append(RUN, step(2))
    assert committed() == [(2, "running", 1)]
    journal.append(RUN, step(3), status=RunStatus.COMPLETED)
    assert committed() == [(3, "completed", 1)]


def test_every_acknowledged_append_survives_a_kill(journal_path: Path) -> None:
    reading, writing = os.pipe()

    def append_until_killed() -> None:
        with SQLiteJournal(journal_path) as journal:
            journal.admit((RUN, [ADMITTED]))
            for number in range(10_000):
                journal.append(RUN, step(number))
                os.write(writing, b".")

    worker = Child(append_until_killed)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        acknowledged = sum(len(pipe.read(1)) for _ in range(20))
        worker.send_signal(signal.SIGKILL)
        while rest := pipe.read(4096):
            acknowledged += len(rest)
    with pytest.raises(ChildError):
        worker.result()
    with SQLiteJournal(journal_path) as journal:
        found = len(journal.events(RUN)) - 1
        assert acknowledged <= found <= acknowledged + 1
        assert journal.integrity() == []


def test_closing_leaves_one_file(tmp_path: Path, journal_path: Path) -> None:
    with SQLiteJournal(journal_path) as journal:
        Engine(journal, [order]).run(order, "tea")
    assert list(tmp_path.iterdir()) == [journal_path]


def test_a_closed_journal_says_so(journal: SQLiteJournal, engine: Engine) -> None:
    journal.close()
    for ask in (lambda: engine.describe("r-1"), lambda: engine.start(order, "tea")):
        with pytest.raises(StorageError, match="closed"):
            ask()


def test_the_journal_stays_the_same_file_when_the_working_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with SQLiteJournal("journal.db") as journal:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        Engine(journal, [order]).run(order, "tea", run_id="r-1")
        assert journal.path == tmp_path / "journal.db"
    with SQLiteJournal(str(tmp_path / "journal.db")) as journal:
        assert Engine(journal).describe("r-1").result == ["tea", "tea"]


@pytest.mark.parametrize("name", ["a b.db", "50%.db", "what?.db", "#1.db", "ünïcode.db", "x" * 200])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        with SQLiteJournal(tmp_path / name) as journal:
            Engine(journal, [order]).run(order, "tea", run_id="r-1")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_tables_take_no_value_of_another_type(engine: Engine, journal_path: Path) -> None:
    for change in ("attempts = 'many'", "status = NULL", "generation = 0", "attempts = -1"):
        with pytest.raises(sqlite3.IntegrityError):
            raw(journal_path, f"UPDATE runs SET {change}")


# Versions


@pytest.mark.parametrize("version", [1, 3, 99, -1])
def test_a_file_of_another_schema_version_is_refused_and_left_as_it_is(
    journal_path: Path, version: int
) -> None:
    with SQLiteJournal(journal_path) as journal:
        Engine(journal, [order]).run(order, "tea", run_id="r-1")
    raw(journal_path, f"PRAGMA user_version = {version}")
    before = journal_path.read_bytes()
    with pytest.raises(NotAJournalError, match=f"version {version}, .* version 2"):
        SQLiteJournal(journal_path)
    assert journal_path.read_bytes() == before
    assert list(journal_path.parent.iterdir()) == [journal_path]


def test_a_file_that_appeared_while_it_was_being_created_is_not_taken_over(
    journal_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def lose_the_race(address: Any, **options: Any) -> sqlite3.Connection:
        if "mode=rwc" in str(address):
            raw(journal_path, "CREATE TABLE theirs (x)")
        return connect(address, **options)

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", lose_the_race)
        with pytest.raises(DurableError):
            SQLiteJournal(journal_path)
    assert raw(journal_path, "SELECT name FROM sqlite_schema") == [("theirs",)]


# Damage


def damage(journal_path: Path, sql: str, *values: Any) -> None:
    """Change the file as a fault would: without a checksum that fits."""
    with closing(sqlite3.connect(journal_path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous=OFF")
        db.execute(sql, values)


def assert_refused(engine: Engine, journal: SQLiteJournal, run_id: str, seq: int) -> None:
    """Whoever asks for the run hears where it is damaged, and nobody gets a value."""
    for ask in (engine.describe, engine.resume, engine.history):
        with pytest.raises(JournalCorruptError, match=f"run {run_id}, event {seq}: ") as damaged:
            ask(run_id)
        assert (damaged.value.run_id, damaged.value.seq) == (run_id, seq)
    (problem,) = verify(journal).problems
    assert (problem.run_id, problem.seq) == (run_id, seq)


@pytest.mark.parametrize("column", ["kind", "name", "payload"])
@pytest.mark.parametrize("seq", [1, 2, 4])
def test_any_flipped_byte_of_an_event_is_noticed_where_it_is(
    engine: Engine, journal: SQLiteJournal, journal_path: Path, column: str, seq: int
) -> None:
    with closing(sqlite3.connect(journal_path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous=OFF")
        ((stored,),) = db.execute(
            f"SELECT CAST({column} AS BLOB) FROM events WHERE seq = ?", (seq,)
        )
        change = f"UPDATE events SET {column} = CAST(? AS TEXT) WHERE seq = ?"
        for place, flipped in ((p, f) for p in range(len(stored)) for f in (0x01, 0x20, 0x80)):
            broken = bytearray(stored)
            broken[place] ^= flipped
            db.execute(change, (bytes(broken), seq))
            with pytest.raises(JournalCorruptError) as damaged:
                engine.describe("r-1")
            assert (damaged.value.run_id, damaged.value.seq) == ("r-1", seq)
        assert_refused(engine, journal, "r-1", seq)
        db.execute(change, (stored, seq))
    assert engine.describe("r-1").result == ["téa", "téa"]


@pytest.mark.parametrize(
    ("change", "seq"),
    [
        ("UPDATE events SET checksum = checksum + 1 WHERE seq = 3", 3),
        ("UPDATE events SET recorded_at = recorded_at + 0.001 WHERE seq = 2", 2),
        ("UPDATE events SET payload = '' WHERE seq = 2", 2),
        ("UPDATE events SET payload = payload || ' ' WHERE seq = 2", 2),
        ("UPDATE events SET seq = 9 WHERE seq = 3", 3),
        ("UPDATE events SET generation = 2 WHERE seq = 4", 3),
        ("DELETE FROM events WHERE seq = 1", 1),
        ("DELETE FROM events WHERE seq = 3", 3),
        ("DELETE FROM events WHERE seq = 4", 3),
        ("UPDATE events SET run_id = 'r-2' WHERE seq = 2", 2),
    ],
)
def test_an_event_that_was_changed_moved_or_lost_is_noticed(
    engine: Engine, journal_path: Path, change: str, seq: int
) -> None:
    damage(journal_path, change)
    for ask in (engine.describe, engine.resume):
        with pytest.raises(JournalCorruptError) as damaged:
            ask("r-1")
        assert (damaged.value.run_id, damaged.value.seq) == ("r-1", seq)


def test_two_events_that_changed_places_are_noticed(
    engine: Engine, journal: SQLiteJournal, journal_path: Path
) -> None:
    for old, new in ((2, 99), (3, 2), (99, 3)):
        damage(journal_path, "UPDATE events SET seq = ? WHERE seq = ?", new, old)
    assert_refused(engine, journal, "r-1", 2)


def test_an_event_of_another_run_does_not_fit(
    engine: Engine, journal: SQLiteJournal, journal_path: Path
) -> None:
    engine.run(order, "coffee", run_id="r-2")
    for run_id, other in (("r-1", "tmp"), ("r-2", "r-1"), ("tmp", "r-2")):
        damage(
            journal_path, "UPDATE events SET run_id = ? WHERE run_id = ? AND seq = 3", other, run_id
        )
    for run_id in ("r-1", "r-2"):
        with pytest.raises(JournalCorruptError, match=f"run {run_id}, event 3: the checksum"):
            engine.history(run_id)
    assert {problem.run_id for problem in verify(journal).problems} == {"r-1", "r-2"}


def test_a_kind_that_nobody_knows_is_refused_even_with_a_fitting_checksum(
    engine: Engine, journal: SQLiteJournal, journal_path: Path
) -> None:
    event = engine.history("r-1")[1]._replace(kind="dream")  # type: ignore[arg-type]
    change = "UPDATE events SET kind = 'dream', checksum = ? WHERE seq = 2"
    damage(journal_path, change, checksum(RUN, event))
    with pytest.raises(JournalCorruptError, match="unknown kind 'dream'"):
        engine.history("r-1")
    assert_refused(engine, journal, "r-1", 2)


@pytest.mark.parametrize("status", ["asleep", "", "Completed", "completed "])
def test_a_status_that_nobody_knows_is_refused(
    engine: Engine, journal_path: Path, status: str
) -> None:
    damage(journal_path, "UPDATE runs SET status = ?", status)
    for ask in (engine.describe, engine.resume, engine.history):
        with pytest.raises(JournalCorruptError, match=f"run r-1.*unknown status '{status}'"):
            ask("r-1")


@pytest.mark.parametrize("status", ["pending", "running", "needs_attention"])
def test_a_row_that_forgot_the_end_of_its_run_is_noticed(
    engine: Engine, journal_path: Path, status: str
) -> None:
    damage(journal_path, "UPDATE runs SET status = ?", status)
    for ask in (engine.describe, engine.resume):
        with pytest.raises(JournalCorruptError, match=f"says {status}, .* is completed"):
            ask("r-1")


def test_a_row_under_another_workflow_is_noticed(engine: Engine, journal_path: Path) -> None:
    damage(journal_path, "UPDATE runs SET workflow = 'refund'")
    with pytest.raises(JournalCorruptError, match="run r-1"):
        engine.describe("r-1")


def test_a_structure_hash_that_was_damaged_does_not_stop_a_run(
    journal: SQLiteJournal, journal_path: Path
) -> None:
    """The calls themselves are compared, which have a checksum; `verify` tells of the hash."""
    engine = Engine(journal, [order])
    engine.start(order, "tea", run_id="r-1")
    damage(journal_path, "UPDATE runs SET structure = 'beef'")
    (problem,) = verify(journal).problems
    assert (problem.run_id, problem.seq) == ("r-1", 1)
    assert engine.resume("r-1").result == ["tea", "tea"]


def test_events_without_their_run_stop_its_id_from_being_taken_again(
    engine: Engine, journal: SQLiteJournal, journal_path: Path
) -> None:
    damage(journal_path, "DELETE FROM runs")
    with pytest.raises(JournalCorruptError, match="run r-1, event 1") as damaged:
        engine.start(order, "coffee", run_id="r-1")
    assert (damaged.value.run_id, damaged.value.seq) == ("r-1", 1)
    assert journal.row("r-1") is None
    assert len(journal.events(RUN)) == 4
    (problem,) = verify(journal).problems
    assert "r-1" in problem.problem
    assert engine.run(order, "coffee", run_id="r-2").result == ["coffee", "coffee"]


# Processes


def test_a_journal_is_refused_after_a_fork_and_the_parents_is_unharmed(
    journal: SQLiteJournal, engine: Engine
) -> None:
    def ask_and_close() -> list[str]:
        refusals = []
        for ask in (
            lambda: engine.describe("r-1"),
            lambda: engine.start(order, "tea"),
            lambda: list(journal.rows()),
            journal.integrity,
        ):
            try:
                ask()
            except StorageError as refusal:
                refusals.append(str(refusal))
        journal.close()
        return refusals

    refusals = in_child(ask_and_close)
    assert len(refusals) == 4
    assert all("fork" in refusal for refusal in refusals)
    assert engine.run(order, "coffee", run_id="r-2").result == ["coffee", "coffee"]
    assert verify(journal).ok


def test_a_fork_while_another_thread_writes_is_refused_too(journal: SQLiteJournal) -> None:
    """The child inherits the lock, and nobody who would release it."""
    held, release = Lock(), Lock()
    held.acquire()
    release.acquire()

    def write() -> None:
        with journal._lock:
            held.release()
            release.acquire()

    writer = Thread(target=write)
    writer.start()
    held.acquire()

    def ask() -> str:
        signal.alarm(20)
        try:
            list(journal.rows())
        except StorageError as refusal:
            return str(refusal)
        return "answered"

    try:
        assert "fork" in in_child(ask)
    finally:
        release.release()
        writer.join()


FORKS_AND_EXITS = """
    import os, sys
    from durable_mini import Engine, SQLiteJournal, workflow

    @workflow(version="1")
    def order(ctx, item):
        return [ctx.step("reserve", str, item), ctx.step("pack", str, item)]

    journal = SQLiteJournal(sys.argv[1])
    engine = Engine(journal, [order])
    engine.run(order, "tea", run_id="r-1")
    child = os.fork()
    if child == 0:
        sys.exit(0)  # with everything that an interpreter does when it ends
    os.waitpid(child, 0)
    engine.run(order, "coffee", run_id="r-2")
    os.kill(os.getpid(), 9)
"""


def test_a_child_that_ends_normally_takes_nothing_from_the_parents_journal(
    journal_path: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(FORKS_AND_EXITS))
    ended = subprocess.run(
        [sys.executable, str(program), str(journal_path)], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, "")
    with SQLiteJournal(journal_path) as journal:
        told = [(run.run_id, run.result) for run in Engine(journal).runs()]
        assert told == [("r-1", ["tea", "tea"]), ("r-2", ["coffee", "coffee"])]
        assert verify(journal).ok


OPENS_AND_CLOSES = """
    import sys
    from durable_mini import Engine, SQLiteJournal

    with SQLiteJournal(sys.argv[1]) as journal:
        print([run.run_id for run in Engine(journal).runs()])
"""


def test_opening_a_journal_twice_in_one_process_loses_nothing(
    engine: Engine, journal_path: Path
) -> None:
    """Closing any descriptor of a file gives up the locks that a process holds on it. With the
    locks gone, the next process to leave would take the log away under an open journal.
    """

    def told_by_another_process() -> str:
        command = [sys.executable, "-c", textwrap.dedent(OPENS_AND_CLOSES), str(journal_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with SQLiteJournal(journal_path):
        assert told_by_another_process() == "['r-1']\n"
        engine.run(order, "coffee", run_id="r-2")
        assert told_by_another_process() == "['r-1', 'r-2']\n"


def runs_in(path: Path) -> list[str]:
    with SQLiteJournal(path) as journal:
        return [run.run_id for run in Engine(journal).runs()]


def test_a_journal_is_created_while_another_process_is_looking_at_the_file(
    journal_path: Path,
) -> None:
    with closing(sqlite3.connect(journal_path, check_same_thread=False)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM sqlite_schema").fetchall()
        leaving = Timer(0.1, other.rollback)
        leaving.start()
        with SQLiteJournal(journal_path) as journal:
            assert journal.admit((RUN, [ADMITTED]))
        leaving.join()


@pytest.mark.slow
def test_processes_that_create_one_file_at_the_same_moment_share_it(tmp_path: Path) -> None:
    for number in range(8):
        path = tmp_path / f"{number}.db"
        starting_at = time.monotonic() + 0.05
        children = [Child(create_and_start, path, starting_at, f"r-{n}") for n in range(4)]
        assert [child.result() for child in children] == [f"r-{n}" for n in range(4)]
        assert sorted(in_child(runs_in, path)) == [f"r-{n}" for n in range(4)]


def create_and_start(path: Path, starting_at: float, run_id: str) -> str:
    while time.monotonic() < starting_at:
        pass
    with SQLiteJournal(path) as journal:
        return Engine(journal, [order]).start(order, "tea", run_id=run_id)


def test_processes_that_drive_runs_of_one_file_lose_nothing(journal_path: Path) -> None:
    SQLiteJournal(journal_path).close()
    ids = [[f"{worker}-{number}" for number in range(8)] for worker in range(4)]
    for child in [Child(drive_all, journal_path, mine) for mine in ids]:
        assert child.result() == 8
    with SQLiteJournal(journal_path) as journal:
        engine = Engine(journal)
        assert sorted(run.run_id for run in engine.runs()) == sorted(
            run_id for mine in ids for run_id in mine
        )
        for run in engine.runs("completed"):
            assert run.result == [run.run_id, run.run_id]
        report = verify(journal)
        assert (report.runs, report.events, report.problems) == (32, 128, ())


def drive_all(path: Path, ids: list[str]) -> int:
    with SQLiteJournal(path) as journal:
        engine = Engine(journal, [order])
        ended = [engine.run(order, run_id, run_id=run_id) for run_id in ids]
        return sum(run.status is RunStatus.COMPLETED for run in ended)


def test_processes_that_drive_one_run_execute_on_until_one_has_recorded(journal_path: Path) -> None:
    with SQLiteJournal(journal_path) as journal:
        Engine(journal, [order]).start(order, "tea", run_id="r-1")
    starting_at = time.monotonic() + 0.1
    outcomes = [
        child.result()
        for child in [Child(drive_or_lose, journal_path, starting_at) for _ in range(4)]
    ]
    assert "completed" in outcomes
    assert set(outcomes) <= {"completed", "LeaseLostError"}
    with SQLiteJournal(journal_path) as journal:
        assert Engine(journal).describe("r-1").result == ["tea", "tea"]
        assert [event.seq for event in journal.events(RUN)] == [1, 2, 3, 4]
        assert verify(journal).ok


def drive_or_lose(path: Path, starting_at: float) -> str:
    with SQLiteJournal(path) as journal:
        engine = Engine(journal, [order])
        while time.monotonic() < starting_at:
            pass
        try:
            return str(engine.resume("r-1").status)
        except DurableError as error:
            return type(error).__name__


# Waiting


@pytest.fixture
def busy(journal: SQLiteJournal, journal_path: Path) -> Iterator[sqlite3.Connection]:
    """Another program in the middle of a transaction."""
    with closing(sqlite3.connect(journal_path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


def test_a_writer_waits_for_another_and_readers_do_not(
    journal: SQLiteJournal, busy: sqlite3.Connection
) -> None:
    assert list(journal.rows()) == []
    admitted: list[bool] = []
    writer = Thread(target=lambda: admitted.append(journal.admit((RUN, [ADMITTED]))))
    writer.start()
    writer.join(timeout=0.05)
    assert writer.is_alive()
    busy.execute("COMMIT")
    writer.join(timeout=20)
    assert admitted == [True]


def test_a_writer_that_waits_too_long_gives_up_and_writes_nothing(
    journal: SQLiteJournal, busy: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implementation, "BUSY_LIMIT_S", 0.05)
    with pytest.raises(StorageError, match="locked"):
        journal.admit((RUN, [ADMITTED]))
    busy.execute("ROLLBACK")
    with SQLiteJournal(journal.path) as again:
        assert again.row("r-1") is None
        assert again.admit((RUN, [ADMITTED]))


# Interruption


class Interruption:
    """A Ctrl-C that arrives at the n-th line that the journal executes.

    Not where a lock is given back, which Python traces as a line: it handles no signal there.
    """

    def __init__(self, at_line: int) -> None:
        self._left = at_line

    def __call__(self, frame: Any, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename not in JOURNAL_FILES:
            return self if "contextlib" in frame.f_code.co_filename else None
        here = getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and "with self._lock:" not in here:
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
        return self

    @property
    def arrived(self) -> bool:
        return self._left <= 0


def interrupted(work: Callable[[], Any], at_line: int) -> bool:
    """Do the work, interrupted at a line; whether there was such a line."""
    interruption, tracing = Interruption(at_line), sys.gettrace()
    sys.settrace(interruption)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(tracing)
    return interruption.arrived


@pytest.mark.slow
def test_ctrl_c_at_any_line_of_the_journal_leaves_a_run_that_goes_on(
    journal: SQLiteJournal,
) -> None:
    journal._db.execute("PRAGMA synchronous=OFF")  # no machine dies here
    engine = Engine(journal, [order])
    for at_line in count(1):
        run = partial(engine.run, order, "tea", run_id=f"r-{at_line}")
        if not interrupted(run, at_line):
            break
        assert run().result == ["tea", "tea"]
    assert at_line > 100
    assert verify(journal).ok


def test_a_journal_that_is_only_looked_at_keeps_every_byte(tmp_path):
    path = tmp_path / "left.db"
    program = (
        "import os, signal, sys\n"
        "from durable_mini.events import EventKind, RunRow, RunStatus\n"
        "from durable_mini.journal.sqlite import SQLiteJournal\n"
        "journal = SQLiteJournal(sys.argv[1])\n"
        "row = RunRow('r', 1, 'w', '1', 'h', RunStatus.PENDING)\n"
        "journal.admit((row, [(EventKind.ADMITTED, 'w', '{}', 1.0)]))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], timeout=60)
    files = (path, tmp_path / "left.db-wal")
    before = [file.read_bytes() for file in files]

    with SQLiteJournal(path, read_only=True) as journal:
        assert [row.run_id for row in journal.rows()] == ["r"]
        assert journal.integrity() == []
        with pytest.raises(StorageError):
            journal.append(next(journal.rows()), (EventKind.NOW, "now", "{}", 2.0))

    assert [file.read_bytes() for file in files] == before
