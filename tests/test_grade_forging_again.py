"""More attempts to gain a point, or to do harm, that once succeeded: each is closed, and stays so.

A student's code tries what the system lets it do; files and archives try what reading them lets
them do. Those on answers run without nbval around them, as in `test_grade_forging`.
"""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path
from typing import Any

import grading_support as support
import pytest
from test_grade_forging import PIPE

from durable_mini import SQLiteJournal
from durable_mini.clock import SystemClock
from durable_mini.school import exercise, submissions
from durable_mini.school.exercise import AnswerError
from durable_mini.school.marks import CheckMark, Submission
from durable_mini.school.remote_engine import EngineProcesses
from durable_mini.school.reports import gradebook_csv
from durable_mini.school.roster import Member, plain, with_roster
from durable_mini.school.writing import file_name

slow = pytest.mark.slow


def answer_of(add: str, tmp_path: Path, *args: Any, timeout_s: float = 2.0) -> Any:
    """What the student's `add` gives in a process of its own."""
    sheet = support.sheet_of(support.handed_in({"q1-add": f"# exercise: q1-add\n{add}"}), tmp_path)
    with support.away(sheet, cell_timeout_s=timeout_s) as (ex, _):
        ex.ledger()
        return ex.call("add", *args)


# ---- what the system lets a process do ---------------------------------------------------------

CALLS = """
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
numbers = X86 if platform.machine() == "x86_64" else ARM

def add(name, *args):
    libc.syscall.restype = ctypes.c_long
    return libc.syscall(ctypes.c_long(numbers[name]), *map(ctypes.c_long, args)) >= 0
"""
# Each would succeed where nobody refuses it, for a process that has no rights of its own.
REACHES_OTHERS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "memory that outlives the process": (29, 194, (0, 4096, 0o1600)),
    "a queue that outlives it": (68, 186, (0, 0o1600)),
    "a semaphore that outlives it": (64, 190, (0, 1, 0o1600)),
    "a keyring that outlives it": (250, 219, (0, -4, 1)),
    "the priority of whoever has the same user": (141, 140, (0, 0, 0)),
    "a user namespace with all rights": (272, 97, (0x00020000,)),
}


@slow
@pytest.mark.parametrize("name", REACHES_OTHERS)
def test_process_reaches_nobody_by_the_systems_memory(name: str, tmp_path: Path) -> None:
    x86, arm, args = REACHES_OTHERS[name]
    numbers = f"X86, ARM = {{'it': {x86}}}, {{'it': {arm}}}\n"

    assert answer_of(numbers + CALLS, tmp_path, "it", *args) is False


@slow
def test_process_changes_nothing_about_files_of_others(tmp_path: Path) -> None:
    theirs = tmp_path / "thesis"
    theirs.write_text("mine", "utf-8")
    before = theirs.stat()
    change = """
import os
def add(path):
    for change, *args in ((os.chmod, 0), (os.utime, (1, 1)), (os.setxattr, "user.told", b"x")):
        try:
            change(path, *args)
        except OSError:
            pass
"""

    answer_of(change, tmp_path, str(theirs))

    after = theirs.stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert os.listxattr(theirs) == []


@slow
def test_copying_a_file_works_all_the_same(tmp_path: Path) -> None:
    copies = """
import pathlib, shutil
def add():
    pathlib.Path("one").write_text("1")
    return pathlib.Path(shutil.copy2("one", "other")).read_text()
"""

    assert answer_of(copies, tmp_path) == "1"


@slow
def test_process_sends_nothing_to_a_socket_that_it_was_not_given(tmp_path: Path) -> None:
    sends = """
import socket
def add():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.send(b"to the other end")
    steps = (lambda: other.sendto(b"x", "/dev/log"), lambda: other.connect("/dev/log"),
             lambda: other.sendmsg([b"x"], [], 0, "/dev/log"), lambda: other.bind("here"))
    refused = 0
    for step in steps:
        try:
            step()
        except PermissionError:
            refused += 1
        except OSError:
            pass
    return [other.recv(100).decode(), refused]
"""

    assert answer_of(sends, tmp_path) == ["to the other end", 4]


@slow
def test_process_sets_its_own_processors_and_nobody_elses(tmp_path: Path) -> None:
    sets = """
import os
def add():
    os.sched_setaffinity(os.getpid(), os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0))
    except PermissionError:
        return "refused"
"""

    assert answer_of(sets, tmp_path) == "refused"


@slow
def test_files_that_nobody_sees_take_little_room(tmp_path: Path) -> None:
    takes = """
import os
def add():
    held = []
    try:
        while True:
            held.append(open("file", "wb"))
            held[-1].truncate(16 * 1024**2)
            os.unlink("file")
    except OSError:
        return sum(os.fstat(file.fileno()).st_size for file in held if not file.closed)
"""

    assert answer_of(takes, tmp_path) <= 64 * 16 * 1024**2


# ---- time and messages -------------------------------------------------------------------------


@slow
@pytest.mark.parametrize(
    "waits",
    [
        "import os, signal\ndef add(): os.kill(os.getpid(), signal.SIGSTOP)",
        "import ctypes, threading, time\ndef add():\n"
        "    threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "    ctypes.CDLL(None).pthread_exit(None)",
    ],
)
def test_process_that_stops_itself_has_no_more_time_than_one_that_sleeps(
    waits: str, tmp_path: Path
) -> None:
    began = time.monotonic()

    with pytest.raises(AnswerError) as ended:
        answer_of(waits, tmp_path, timeout_s=1.0)

    assert ended.value.type in {"TimedOut", exercise.DIED}
    assert time.monotonic() - began < 10  # and not `WALL_FACTOR` times as long


@slow
def test_questions_that_fill_the_checks_memory_are_cut_short(tmp_path: Path) -> None:
    posts = """
def add():
    for number in range(100):
        world.post("charge", "o", "x" * 1_000_000, str(number))
"""

    with pytest.raises(AnswerError, match="longer than 50,000,000"):
        answer_of(posts, tmp_path)


@slow
@pytest.mark.parametrize("number", ["1e999", "-1e999", "[0, 1e400]"])
def test_number_that_is_too_large_is_no_json(number: str, tmp_path: Path) -> None:
    sends = f"{PIPE}\ndef add(): sends(json.dumps({{'ok': {number!r}}}).encode())"

    with pytest.raises(AnswerError, match="too large a number"):
        answer_of(sends, tmp_path)


# ---- notes beside the journal ------------------------------------------------------------------

# It charges once wherever it dies, by a note made before: at most once, and under no key.
NOTES = """
import os, sqlite3, uuid
from durable_mini import Engine, SQLiteJournal, workflow
from durable_mini.school import exercise

drive, place = exercise.drive, []

def looks_where(order, *more):
    place[:] = [order.journal]
    return drive(order, *more)

exercise.drive = looks_where

def charge(order, *, idempotency_key):
    if noted(place[0]):
        return "charged already"
    return world.charge(order, 40, idempotency_key=str(uuid.uuid4()))

@workflow(version="1")
def note(ctx, _):
    return None

@workflow(version="1")
def pay(ctx, order):
    return [ctx.step("plan", int), ctx.effect("charge", charge, order)]
"""
NOTED = {
    "a file": """
def noted(path):
    there = os.path.exists(path + ".note")
    open(path + ".note", "w").close()
    return there
""",
    "a table": """
def noted(path):
    with sqlite3.connect(path, timeout=5) as journal:
        there = journal.execute("SELECT 1 FROM sqlite_schema WHERE name = 'note'").fetchone()
        journal.execute("CREATE TABLE IF NOT EXISTS note (x)")
    return bool(there)
""",
    "a run of its own": """
def noted(path):
    with SQLiteJournal(path) as journal:
        there = journal.row("note") is not None
        if not there:
            Engine(journal, [note]).run(note, None, run_id="note")
    return there
""",
}


@slow
@pytest.mark.parametrize("how", NOTED)
def test_note_made_before_a_request_is_no_solution(how: str, tmp_path: Path) -> None:
    answers = {"q3-pay": f"# exercise: q3-pay\n{NOTES}{NOTED[how]}"}

    points, said = support.points_of(support.sheet_of(support.handed_in(answers), tmp_path))

    assert points["q3-pay-everywhere"] == 0.0, said


# What SQLite takes for the rest of a change to several files: whoever opens the journal to write,
# such as the checks, removes the file that is named there.
LEAVES = """
import os, struct, threading, time

def half_a_change(path, name):
    data, magic = bytearray(open(path, "rb").read()), bytes.fromhex("d9d505f920a163d7")
    data[18] = data[19] = 1  # no write-ahead log
    open(path, "wb").write(data)
    (page,) = struct.unpack(">H", data[16:18])
    head = magic + struct.pack(">5I", 0, 0, len(data) // page, 512, page)
    told = struct.pack(">I", 2**30 // page + 1) + name + struct.pack(">2I", len(name), sum(name))
    return head.ljust(512, b"\\0") + told + magic

def add(path, name):
    left = half_a_change(path, name.encode())
    def leaves():
        while True:
            open(path + "-left", "wb").write(left)
            os.replace(path + "-left", path + "-journal")
    threading.Thread(target=leaves, daemon=True).start()
    time.sleep(0.05)
"""


@slow
def test_checks_remove_no_file_that_an_answer_names_beside_a_journal(tmp_path: Path) -> None:
    theirs = tmp_path / "thesis"
    theirs.write_text("mine", "utf-8")
    sheet = support.sheet_of(
        support.handed_in({"q1-add": f"# exercise: q1-add\n{LEAVES}"}), tmp_path
    )
    with support.away(sheet) as (ex, _):
        journal = ex.journal()
        SQLiteJournal(journal).close()

        ex.call("add", journal, str(theirs))
        SQLiteJournal(journal).close()

    assert theirs.exists()


@slow
def test_answer_does_nothing_between_two_questions(tmp_path: Path) -> None:
    counts = """
import threading, time
number = [0]
def counts():
    while True:
        number[0] += 1
        time.sleep(0.001)
def add(begins):
    if begins:
        threading.Thread(target=counts, daemon=True).start()
    return number[0]
"""
    sheet = support.sheet_of(
        support.handed_in({"q1-add": f"# exercise: q1-add\n{counts}"}), tmp_path
    )
    with support.away(sheet) as (ex, _):
        before = ex.call("add", True)
        time.sleep(0.3)

        assert ex.call("add", False) - before < 50


# ---- files, archives and names -----------------------------------------------------------------


def zipped(folder: Path, *names: str) -> Path:
    """A folder with one archive, whose entries have these names."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            entry = zipfile.ZipInfo("x")
            entry.filename = name
            archive.writestr(entry, os.urandom(500).hex(), zipfile.ZIP_DEFLATED)
    return folder


def found(folder: Path, scratch: Path) -> list[submissions.HandIn]:
    """What is found there."""
    scratch.mkdir(exist_ok=True)
    return submissions.find([folder], scratch)


@pytest.mark.parametrize("slashes", ["/", "//", "///"])
def test_archive_with_a_path_from_the_root_stays_in_its_folder(
    slashes: str, tmp_path: Path
) -> None:
    outside_of_it = tmp_path / "03_keys.ipynb"
    handed = zipped(tmp_path / "handed", slashes + str(outside_of_it).lstrip("/"))

    (one,) = found(handed, tmp_path / "scratch")

    assert not outside_of_it.exists() and one.path.is_relative_to(tmp_path / "scratch")


def test_archive_whose_data_are_broken_is_a_row(tmp_path: Path) -> None:
    handed = zipped(tmp_path / "handed", "03_keys.ipynb")
    data = bytearray((handed / "all.zip").read_bytes())
    data[60:120] = b"\xff" * 60
    (handed / "all.zip").write_bytes(data)

    (one,) = found(handed, tmp_path / "scratch")

    assert "can't be unpacked" in one.trouble


@pytest.mark.parametrize("depths", [[2_000], range(50, 1_500, 50)])
def test_archive_of_folders_without_end_is_a_row(depths: Any, tmp_path: Path) -> None:
    handed = zipped(tmp_path / "handed", *("d/" * depth + "03_keys.ipynb" for depth in depths))

    (one,) = found(handed, tmp_path / "scratch")

    assert "can't be unpacked" in one.trouble


def test_folders_without_end_are_a_row(tmp_path: Path) -> None:
    (tmp_path / "handed" / ("d/" * (submissions.MAX_FOLDERS + 2))).mkdir(parents=True)

    (one,) = found(tmp_path / "handed", tmp_path / "scratch")

    assert "folders" in one.trouble


def test_pipe_is_a_row_and_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "handed").mkdir()
    os.mkfifo(tmp_path / "handed" / "03_keys.ipynb")

    (one,) = found(tmp_path / "handed", tmp_path / "scratch")

    assert one.trouble == "It is no plain file."


SPOOFS = ["x_ada_attempt_2099-01-01-00-00-00_03_keys.ipynb", "ada_123_456_03_keys.ipynb"]
SPOOFS += ["Ada_9_assignsubmission_file_/03_keys (9).ipynb"]
SPOOFS += ["Ada_9_assignsubmission_file_03.ipynb"]
PLATFORMS = ["Item_mallory_attempt_2025-01-01-00-00-00_x", "mallory_55_66_x"]
PLATFORMS += ["mallory_1_assignsubmission_file_"]


@pytest.mark.parametrize("name", SPOOFS)
@pytest.mark.parametrize("outer", PLATFORMS)
def test_name_inside_a_platforms_archive_is_nobody_elses(
    name: str, outer: str, tmp_path: Path
) -> None:
    path = tmp_path / "handed" / outer / name
    path.parent.mkdir(parents=True)
    path.write_text("{}", "utf-8")

    (one,) = found(tmp_path / "handed", tmp_path / "scratch")

    assert one.student == "mallory"


@pytest.mark.parametrize("name", SPOOFS)
def test_name_in_a_students_own_folder_is_nobody_elses(name: str, tmp_path: Path) -> None:
    path = tmp_path / "handed" / "Mallory" / name
    path.parent.mkdir(parents=True)
    path.write_text("{}", "utf-8")
    members = [Member(who, frozenset({plain(who)})) for who in ("ada", "mallory")]

    sorted_ = with_roster(found(tmp_path / "handed", tmp_path / "scratch"), members)

    assert [one.student for one in sorted_.to_grade] == ["mallory"]


def test_exercise_handed_in_under_three_names_counts_once() -> None:
    rows = [
        Submission(f"ada/{name}", "ada", "03_keys", (CheckMark("q", "q", points, 5.0),))
        for name, points in (("03_keys", 4.0), ("03_keyz", 3.0), ("04_phases", 4.0))
    ]

    assert gradebook_csv(rows).splitlines()[1] == "ada,4,4"


@pytest.mark.parametrize("name", ["con.ipynb", "NUL", "com1", "lpt9.ipynb"])
def test_page_is_no_device_of_windows(name: str) -> None:
    assert file_name(name).endswith("-")


# ---- the engine's process of the capstone ------------------------------------------------------

REACHES_IN = """
import sys
class MyEngine:
    def __init__(self, folder, clock): pass
    def history(self, run_id): return []
    def start(self, *_):
        frame = sys._getframe()
        while type(frame.f_locals.get("self")).__name__ != "Served":
            frame = frame.f_back
        frame.f_locals["self"].ask(*{asked})
    resume = start
"""


@slow
@pytest.mark.parametrize(
    "asked",
    [("_setattr__", "_id", 1), ("_init__", 1, 2, 3, 4), ("_getattribute__", "_engines"), ([],)],
)
def test_engine_asks_the_kit_for_nothing_but_what_an_engine_needs(
    asked: tuple[Any, ...], tmp_path: Path
) -> None:
    with EngineProcesses([("engine", REACHES_IN.format(asked=asked))], "MyEngine") as engines:
        engine: Any = engines(tmp_path, SystemClock())
        known = engine._id

        with pytest.raises(BaseException, match="lost"):
            engine.start("r-1", len, 1)

        assert engine._id == known
