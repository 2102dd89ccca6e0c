"""What the engine is handed that it can't use: one clear error, nothing lost, nothing touched.

Paths that are no journal, folders and files that can't be written, full disks, journals that were
cut off, names and values that can't be kept. The commands' side of it is in `test_cli`.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from children import as_nobody, in_child

from durable_mini import (
    Context,
    DurableError,
    Effect,
    Engine,
    InvalidNameError,
    JournalCorruptError,
    MemoryJournal,
    NotAJournalError,
    Run,
    RunStatus,
    SQLiteJournal,
    StorageError,
    Workflow,
    workflow,
)
from durable_mini.ops import verify

BIG = "x" * 20_000


@workflow(version="1")
def fill(ctx: Context, steps: int) -> int:
    """Steps whose results take room."""
    return len("".join(ctx.step(f"step {number}", str, BIG) for number in range(steps)))


def contents(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder, to the byte."""
    found = sorted(folder.iterdir())
    return {path.name: path.read_bytes() if path.is_file() else None for path in found}


# Paths that are something else


def text_file(path: Path) -> None:
    path.write_text("dear diary\n" * 100)


def short_file(path: Path) -> None:
    path.write_bytes(b"SQLite")


def header_only(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(84))


def random_bytes(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 64)


def folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("kept")


def other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (x)")
        db.execute("INSERT INTO theirs VALUES ('kept')")
        db.commit()


def other_database_with_our_version(path: Path) -> None:
    other_database(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 1")


def other_database_in_wal_mode(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    other_database(path)


def other_database_cut_off(path: Path) -> None:
    other_database(path)
    os.truncate(path, path.stat().st_size - 4_096)


OTHERS = [
    text_file,
    short_file,
    header_only,
    random_bytes,
    folder,
    other_database,
    other_database_with_our_version,
    other_database_in_wal_mode,
    other_database_cut_off,
]


@pytest.mark.parametrize("make", OTHERS)
def test_a_path_that_is_something_else_is_refused_and_not_touched(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "something.db"
    make(path)
    before = contents(tmp_path)
    with pytest.raises(NotAJournalError) as refusal:
        SQLiteJournal(path)
    assert contents(tmp_path) == before
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_another_programs_database_is_not_touched_while_it_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    other_database_in_wal_mode(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO theirs VALUES ('in the log')")
        db.commit()
        with pytest.raises(NotAJournalError):
            SQLiteJournal(path)
        assert {"theirs.db-wal", "theirs.db-shm"} <= {p.name for p in tmp_path.iterdir()}
        db.execute("INSERT INTO theirs VALUES ('afterwards')")
        db.commit()
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT x FROM theirs").fetchall()
    assert rows == [("kept",), ("in the log",), ("afterwards",)]


def test_a_pipe_is_refused_and_nobody_waits_on_it(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(NotAJournalError, match="no regular file"):
        SQLiteJournal(path)


def test_an_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    """It is nobody's: a process that died while creating a journal leaves one behind."""
    path = tmp_path / "empty.db"
    path.touch()
    with SQLiteJournal(path) as journal:
        assert Engine(journal, [fill]).run(fill, 1).status is RunStatus.COMPLETED


@pytest.mark.parametrize("name", ["missing/journal.db", "file/journal.db", "y" * 300])
def test_a_path_that_cannot_be_created_is_a_storage_error_in_one_line(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").touch()
    before = contents(tmp_path)
    with pytest.raises(StorageError) as refusal:
        SQLiteJournal(tmp_path / name)
    assert name in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert contents(tmp_path) == before


# Places that can't be written


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may enter, unlike those of `tmp_path`."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)
        Path(name).chmod(0o777)


def refusal_of(work: Callable[[], Any]) -> tuple[str, str]:
    """The type and the words of the engine's error; anything else is passed on."""
    try:
        return ("", str(work()))
    except DurableError as error:
        return (type(error).__name__, str(error))


def test_a_folder_that_cannot_be_written_refuses_a_new_journal(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    kind, words = as_nobody(refusal_of, lambda: SQLiteJournal(open_folder / "new.db"))
    assert kind == "StorageError"
    assert str(open_folder / "new.db") in words
    assert list(open_folder.iterdir()) == []


def filled_journal(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        engine = Engine(journal, [fill])
        engine.start(fill, 2, run_id="r-1")
        engine.run(fill, 1, run_id="r-2")
    path.chmod(0o444)


def test_a_file_that_cannot_be_written_loses_nothing(open_folder: Path) -> None:
    path = open_folder / "journal.db"
    filled_journal(path)
    before = path.read_bytes()

    def try_to_write() -> list[tuple[str, str]]:
        with SQLiteJournal(path) as journal:
            engine = Engine(journal, [fill])
            told = str(engine.describe("r-2").result)
            return [
                ("", told),
                refusal_of(lambda: engine.start(fill, 1, run_id="r-3")),
                refusal_of(lambda: engine.resume("r-1")),
            ]

    read, start, resume = as_nobody(try_to_write)
    assert read == ("", str(len(BIG)))
    assert {start[0], resume[0]} == {"StorageError"}
    assert "readonly" in start[1]
    assert path.read_bytes() == before


def test_a_journal_in_a_folder_that_cannot_be_written_loses_nothing(open_folder: Path) -> None:
    path = open_folder / "journal.db"
    filled_journal(path)
    before = contents(open_folder)
    open_folder.chmod(0o555)
    kind, words = as_nobody(refusal_of, lambda: SQLiteJournal(path))
    assert kind == "StorageError"
    assert "\n" not in words
    assert contents(open_folder) == before


def test_a_file_that_cannot_be_read_is_a_storage_error(open_folder: Path) -> None:
    path = open_folder / "journal.db"
    filled_journal(path)
    path.chmod(0)
    kind, words = as_nobody(refusal_of, lambda: SQLiteJournal(path))
    assert kind == "StorageError"
    assert str(path) in words


# Full disks


class Executions:
    """Counts what is really executed, by step."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def work(self, name: str) -> str:
        self.names.append(name)
        return BIG


def counting(executions: Executions) -> Workflow:
    @workflow(name="counted", version="1")
    def counted(ctx: Context, steps: int) -> int:
        for number in range(steps):
            with suppress(Exception):  # careless code must not hide a full disk
                ctx.step(f"step {number}", executions.work, f"step {number}")
        return steps

    return counted


def limit_file_size(_journal: SQLiteJournal, path: Path) -> Callable[[], None]:
    """The operating system writes no file beyond this length; the disk error is a real one."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 150_000, hard))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def limit_pages(journal: SQLiteJournal, _path: Path) -> Callable[[], None]:
    """SQLite finds no room for another page, as on a full disk."""
    ((pages,),) = journal._db.execute("PRAGMA page_count").fetchall()
    journal._db.execute(f"PRAGMA max_page_count = {pages + 30}")
    return lambda: None


@pytest.mark.parametrize("fill_up", [limit_file_size, limit_pages])
def test_a_full_disk_stops_the_attempt_and_the_run_goes_on_when_there_is_room(
    journal_path: Path, fill_up: Callable[..., Callable[[], None]]
) -> None:
    first = in_child(run_until_full, journal_path, fill_up)
    executed, known = first["executed"], first["known"]
    assert 1 <= known < 12
    assert executed == [f"step {number}" for number in range(known + 1)]
    assert first["failed"][0] == "StorageError"
    assert "\n" not in first["failed"][1]
    for refused in (first["again"], first["with_room_again"], first["start"]):
        assert refused[0] == "StorageError"
        assert "refuses appends after a failed write" in refused[1]
    assert first["status"] == "running"

    executions = Executions()
    with SQLiteJournal(journal_path) as journal:
        assert verify(journal).ok
        engine = Engine(journal, [counted := counting(executions)])
        assert engine.resume("r-1").result == 12
        assert executions.names == [f"step {number}" for number in range(known, 12)]
        assert engine.run(counted, 1, run_id="r-2").status is RunStatus.COMPLETED


def run_until_full(path: Path, fill_up: Callable[..., Callable[[], None]]) -> dict[str, Any]:
    executions = Executions()
    counted = counting(executions)
    with SQLiteJournal(path) as journal:
        engine = Engine(journal, [counted])
        engine.start(counted, 12, run_id="r-1")
        make_room = fill_up(journal, path)
        told: dict[str, Any] = {"failed": refusal_of(lambda: engine.resume("r-1"))}
        told["executed"] = list(executions.names)
        told["again"] = refusal_of(lambda: engine.resume("r-1"))
        make_room()
        told["with_room_again"] = refusal_of(lambda: engine.resume("r-1"))
        told["start"] = refusal_of(lambda: engine.start(counted, 1, run_id="r-2"))
        told["known"] = len(engine.history("r-1")) - 1
        told["status"] = str(engine.describe("r-1").status)
    return told


# Journals that were cut off


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed journal of several pages, with three runs."""
    path = tmp_path_factory.mktemp("whole") / "journal.db"
    with SQLiteJournal(path) as journal:
        engine = Engine(journal, [small])
        for number in range(3):
            engine.run(small, f"item {number}", run_id=f"r-{number}")
    return path


@workflow(version="1")
def small(ctx: Context, item: str) -> list[str]:
    return [ctx.step(f"step {number}", str.upper, item * 40) for number in range(6)]


def told_by(path: Path) -> list[Any]:
    """All that a reader can learn from a journal, or the engine's error for it."""
    told: list[Any] = []
    try:
        with SQLiteJournal(path) as journal:
            engine = Engine(journal, [small])
            for number in range(3):
                for ask in (engine.describe, engine.history, engine.resume):
                    try:
                        told.append(ask(f"r-{number}"))
                    except DurableError as error:
                        told.append(error)
            try:
                told.append(list(engine.runs()))
            except DurableError as error:
                told.append(error)
            told.append(verify(journal).ok)
    except DurableError as error:
        told.append(error)
    return told


def test_a_journal_cut_at_any_length_tells_the_truth_or_says_that_it_is_damaged(
    whole: Path, tmp_path: Path
) -> None:
    truth, size = told_by(whole), whole.stat().st_size
    assert truth[-1] is True
    refused = 0
    for length in [*range(1, size, 97), size - 1]:
        path = tmp_path / "cut.db"
        path.write_bytes(whole.read_bytes()[:length])
        for answer, right in zip(told_by(path), truth, strict=False):
            if isinstance(answer, DurableError):
                assert isinstance(answer, JournalCorruptError | NotAJournalError), answer
                assert "\n" not in str(answer)
                refused += 1
            else:
                assert answer in (right, False)
        path.unlink()
    assert refused > size / 97 / 2


@pytest.mark.slow
def test_a_log_cut_at_any_length_keeps_the_whole_commits_before_the_cut(tmp_path: Path) -> None:
    living, copied = tmp_path / "living.db", tmp_path / "copied.db"
    in_child(leave_a_log, living)
    log = living.with_name("living.db-wal").read_bytes()
    file = living.read_bytes()
    with SQLiteJournal(living) as journal:
        history = Engine(journal).history("r-1")
    lengths = set()
    for length in range(0, len(log) + 1, 977):
        copied.write_bytes(file)
        copied.with_name("copied.db-wal").write_bytes(log[:length])
        with SQLiteJournal(copied) as journal:
            engine = Engine(journal, [small])
            assert verify(journal).ok
            found = engine.history("r-1") if journal.row("r-1") else []
            assert found == history[: len(found)]
            lengths.add(len(found))
            assert engine.run(small, "item", run_id="r-1").result == ["ITEM" * 40] * 6
    assert lengths == set(range(len(history)))


KEPT_OPEN: list[SQLiteJournal] = []


def leave_a_log(path: Path) -> None:
    """Drive a run to its end and die without closing: every commit is still in the log."""
    KEPT_OPEN.append(SQLiteJournal(path))
    Engine(KEPT_OPEN[-1], [small]).run(small, "item", run_id="r-1")


@pytest.mark.slow
def test_a_byte_flipped_anywhere_in_the_file_is_told_or_harmless(
    whole: Path, tmp_path: Path
) -> None:
    """The events are checked to the byte; of the rows only what a checksum can vouch for."""
    truth, stored = told_by(whole), whole.read_bytes()
    path = tmp_path / "flipped.db"
    for place in range(0, len(stored), 61):
        shutil.copyfile(whole, path)
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([stored[place] ^ 0x40]))
        for answer, right in zip(told_by(path), truth, strict=False):
            if isinstance(answer, list) and answer and hasattr(answer[0], "seq"):
                assert answer == right
            elif isinstance(answer, Run):
                assert (answer.input, answer.result) == (right.input, right.result)


# Names and values


# By name: the call with a name and a body that must not run, and what its error calls the name.
NAMED_CALLS: dict[str, tuple[Callable[..., Any], str]] = {
    "step": (lambda ctx, name, body: ctx.step(name, body, "x"), "step name"),
    "effect": (lambda ctx, name, body: ctx.effect(name, body, "x"), "step name"),
    "branch": (lambda ctx, name, body: ctx.gather({"a": (body,), name: (body,)}), "step name"),
    "effect in a branch": (lambda ctx, name, body: ctx.gather({name: Effect(body)}), "step name"),
    "wait_signal": (lambda ctx, name, _: ctx.wait_signal(name), "wait name"),
    "compensate": (lambda ctx, name, body: ctx.compensate(name, body), "compensate name"),
}


@pytest.mark.parametrize(
    "name", ["", "m" * 1_048_576, "two\nlines", "tab\t", "\ud800", None, b"bytes", 7]
)
@pytest.mark.parametrize(("call", "words"), NAMED_CALLS.values(), ids=NAMED_CALLS.keys())
def test_a_name_that_cannot_be_stored_is_refused_by_name(
    call: Callable[..., Any], words: str, name: Any
) -> None:
    executed: list[str] = []

    @workflow(version="1")
    def order(ctx: Context, item: Any) -> None:
        call(ctx, name, executed.append)

    engine = Engine(MemoryJournal(), [order])
    stopped = engine.run(order, None, run_id="r-1")
    assert stopped.status is RunStatus.NEEDS_ATTENTION
    assert stopped.error is not None
    assert stopped.error.type == "InvalidNameError"
    assert stopped.error.message.startswith(f"{words} is ")
    assert "1 to 200 printable characters" in stopped.error.message
    assert len(stopped.error.message) < 300
    assert executed == []
    assert len(engine.history("r-1")) == 1


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", "two\nlines", None, 3])
def test_a_signal_name_or_id_that_cannot_be_stored_writes_nothing(name: Any) -> None:
    engine = Engine(MemoryJournal(), [fill])
    engine.start(fill, 1, run_id="r-1")
    with pytest.raises(InvalidNameError, match=r"^signal name "):
        engine.signal("r-1", name, 1)
    if name is not None:  # None asks for a random one
        with pytest.raises(InvalidNameError, match=r"^signal id "):
            engine.signal("r-1", "go", 1, signal_id=name)
    assert len(engine.history("r-1")) == 1


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", 3])
def test_a_workflow_name_or_version_that_cannot_be_stored_is_refused(name: Any) -> None:
    def order(ctx: Context, item: Any) -> None:
        """Nothing to do."""

    with pytest.raises(InvalidNameError, match=r"^workflow name "):
        workflow(version="1", name=name)(order)
    with pytest.raises(InvalidNameError, match=r"^workflow version "):
        workflow(version=name)(order)


async def later() -> int:
    return 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("result", "words"),
    [
        (float("nan"), "result is nan"),
        ({"a": [1.5, float("-inf")]}, "result['a'][1] is -inf"),
        ({"a": {1: "x", "1": "y"}}, "result['a'] has the keys 1 and '1', which become one"),
        ({(1, 2): "x"}, "result has the key (1, 2)"),
        ([b"bytes"], "result[0] is of type bytes"),
        (object(), "result is of type object"),
        ("coroutine", "coroutine"),
    ],
)
def test_a_value_that_is_not_json_fails_its_step_once_and_names_the_place(
    result: Any, words: str
) -> None:
    executed: list[int] = []

    def give() -> Any:
        executed.append(1)
        return later() if result == "coroutine" else result

    @workflow(version="1")
    def order(ctx: Context, item: Any) -> None:
        ctx.step("give", give)

    ended = Engine(MemoryJournal(), [order]).run(order, None, run_id="r-1")
    assert ended.status is RunStatus.FAILED
    assert ended.error is not None
    assert (ended.error.type, ended.error.step) == ("PayloadError", "give")
    assert words in ended.error.message
    assert executed == [1]
