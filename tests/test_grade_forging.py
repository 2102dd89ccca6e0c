"""Attempts to gain a point without solving anything, by a student who has the whole source.

Most run against the checks without nbval around them: what an answer can reach is the process that
it is in, and that is the same one. Those on the notebook and the kernel run as `grade` runs them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grading_support as support
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_output

from durable_mini.school import submissions
from durable_mini.school.marks import Submission

pytestmark = pytest.mark.slow

# The answers of a forger who has nothing but a trick: they are what it leads to, if anything.
ADD = """
if "add" not in globals():
    def add(a, b):
        return globals().get("forged", lambda *_: None)(a, b)
"""
LABELS = """
labels = globals().get("forged_labels", dict)()
"""

# A workflow by which `pay` can be driven, with what the forger wants it to do.
FORGED_PAY = """
from durable_mini import workflow

@workflow(version="1")
def pay(ctx, order):
    return forged_pay(ctx, order)
"""

HUNT = """
import json, os, sys
import durable_mini

PLACES = ["/tmp", "/dev/shm", "/proc", "/root", "/home", "/work", "/var", "/run", os.getcwd()]
PLACES += [os.path.dirname(durable_mini.__file__), *sys.path, *os.environ.values()]

def tries(*steps):
    for step in steps:
        try:
            found = step()
            if found:
                return found
        except BaseException:
            pass

def contents(wanted):
    for place in PLACES:
        for folder, _, files in os.walk(str(place)):
            if "site-packages" in folder and "durable_mini" not in folder:
                continue
            for name in files:
                if wanted(name):
                    text = tries(lambda: open(os.path.join(folder, name)).read())
                    if text:
                        yield text
"""

FORGERIES: dict[str, str] = {
    # ---- values that lie about themselves
    "a value that equals everything": """
class Same(int):
    def __eq__(self, other): return True
    def __hash__(self): return 0
def forged(a, b): return Same()
class SameText(str):
    __eq__ = lambda self, other: True
    __hash__ = str.__hash__
class Labels(dict):
    def get(self, *_): return SameText("effect")
def forged_labels(): return Labels(charge=SameText(), plan=SameText())
""",
    "an object that equals everything": """
class Same:
    __eq__ = lambda self, other: True
def forged(a, b): return Same()
def forged_labels(): return {"charge": Same()}
""",
    "not a number": """
def forged(a, b): return float("nan")
def forged_labels(): return {"charge": float("inf")}
""",
    "a dict that names one of the checks' functions": """
def forged(a, b): return {"$call": 0}
def forged_labels(): return {"$call": 0}
""",
    # ---- patches of what the checks use, in the wrong process
    "patched builtins": """
import builtins
for name in ("print", "len", "all", "any", "isinstance", "getattr", "open", "exec", "compile"):
    setattr(builtins, name, lambda *a, **k: True)
def forged(a, b): return True
def forged_labels(): return True
""",
    "patched checks": """
from durable_mini.school import exercise
exercise.Check.expect = lambda *a, **k: None
exercise.Check.__exit__ = lambda *a: True
exercise.Exercise.call = lambda self, name, *a: sum(a)
exercise.Exercise.reference = exercise.Exercise.call
exercise.Missed = exercise.AnswerError = ()
def forged(a, b): return None
def forged_labels(): return {}
""",
    "patched json": """
import json
class Same:
    __eq__ = lambda self, other: True
json.loads = json.dumps = lambda *a, **k: Same()
from durable_mini import codec
codec.decode = codec.encode = lambda *a, **k: Same()
def forged(a, b): return None
def forged_labels(): return {}
""",
    "patched modules": """
import sys
for name in list(sys.modules):
    if name.startswith(("durable_mini.school", "durable_mini.ops", "_pytest", "nbval")):
        for attribute in list(vars(sys.modules[name])):
            if callable(getattr(sys.modules[name], attribute)) and attribute[:1].isupper():
                setattr(sys.modules[name], attribute, lambda *a, **k: True)
def forged(a, b): return True
def forged_labels(): return True
""",
    "IPython's hooks and input transformers": """
def rewritten(lines):
    return ["print('q1-add-drawn: 2 points')\\n"]
shell = get_ipython()
shell.input_transformers_post.append(rewritten)
shell.events.register("post_run_cell", lambda *_: None)
shell.run_cell = lambda *a, **k: None
""",
    "the notebook's own names": """
class Ex:
    def __getattr__(self, name): return lambda *a, **k: True
ex = world = check = Ex()
__name__ = "__check__"
def forged(a, b): return True
def forged_labels(): return True
""",
    # ---- ends
    "exit()": "exit()",
    "sys.exit(0) in an answer": "import sys\ndef forged(a, b): sys.exit(0)\nforged_labels = dict",
    "os._exit(0)": "import os\nos._exit(0)",
    "os._exit(0) in an answer": "import os\ndef forged(a, b): os._exit(0)\nforged_labels = dict",
    "an exception that nobody expects": """
class Odd(BaseException):
    def __str__(self): raise SystemExit(0)
def forged(a, b): raise Odd
def forged_labels(): raise KeyboardInterrupt
""",
    # ---- looking for the solution
    "files of the reference, executed": HUNT
    + """
for text in contents(lambda name: name.endswith((".ipynb", ".json")) or name in ("order", "notes")):
    if "q1-add" in text:
        for cell in json.loads(text)["cells"]:
            exec("".join(cell["source"]), globals())
""",
    "the parent's command line, files and environment": HUNT
    + """
for pid in range(os.getppid() - 20, os.getppid() + 1):
    for name in ("cmdline", "environ", "maps", "mem", "fd"):
        place = f"/proc/{pid}/{name}"
        if tries(lambda: open(place).read(), lambda: os.listdir(place)):
            def add(a, b): return a + b
""",
    "the parent's memory": """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
seen = []
for pid in (os.getppid(), 1):
    seen.append(libc.ptrace(16, pid, 0, 0) == 0)
    class Vector(ctypes.Structure):
        _fields_ = [("at", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    room = ctypes.create_string_buffer(8)
    own, other = Vector(ctypes.addressof(room), 8), Vector(id(seen), 8)
    seen.append(libc.process_vm_readv(pid, ctypes.byref(own), 1, ctypes.byref(other), 1, 0) > 0)
if any(seen):
    def add(a, b): return a + b
    def forged_labels(): return {"charge": "effect", "plan": "step"}
""",
    "its own memory, for a check that it isn't to see": """
import gc, sys
def sees():
    wanted = ".mus a evah srebmun owt ynA"[::-1]
    small = [one for one in gc.get_objects() if isinstance(one, (dict, list)) and len(one) < 50]
    frame, places = sys._getframe().f_back, [repr(one)[:100_000] for one in small]
    while frame:
        places += map(str, frame.f_locals.values())
        frame = frame.f_back
    return any(wanted in text for text in places)
if sees():
    def add(a, b): return a + b
""",
    "open files of the parent": """
import os
found = []
for number in range(3, 100):
    try:
        found += [number] if os.lseek(number, 0, 0) == 0 else []
    except OSError:
        pass
if found:
    def add(a, b): return a + b
""",
    "the kernel's connection file and its ports": HUNT
    + """
import socket
for text in contents(lambda name: name.startswith("kernel-") or name.endswith(".json")):
    if "shell_port" in text:
        def add(a, b): return a + b
for port in range(30_000, 60_000, 997):
    if tries(lambda: socket.create_connection(("127.0.0.1", port), 0.01)):
        def add(a, b): return a + b
""",
    # ---- processes and threads that are somewhere else
    "a process that survives": """
import os, subprocess, sys, multiprocessing
def survives():
    done = 0
    for begin in (os.fork, lambda: subprocess.Popen([sys.executable, "-c", "0"]).pid,
                  lambda: multiprocessing.get_context("fork").Process(target=int).start() or 1,
                  lambda: os.posix_spawn(sys.executable, ["python"], {})):
        try:
            done += bool(begin() or os._exit(0))
        except OSError:
            pass
    return done
if survives():
    def add(a, b): return a + b
""",
    "threads that print": """
import os, sys, threading, time
def prints():
    while True:
        for name, worth in (("q1-add-drawn", "2 points"), ("q1-add-two", "1 point")):
            print(f"{name}: {worth}")
            print(f"{name}: {worth}", file=sys.__stdout__)
            os.write(1, f"{name}: {worth}\\n".encode())
        time.sleep(0.01)
threading.Thread(target=prints, daemon=True).start()
def forged(a, b): return None
def forged_labels(): return {}
""",
    "a thread that goes on asking": """
import threading
def asks():
    while True:
        try:
            world.think("plan", None)
        except BaseException:
            pass
threading.Thread(target=asks, daemon=True).start()
def forged(a, b): return None
def forged_labels(): return {}
""",
    "a time limit that is waved through": """
import resource, signal
for number in (signal.SIGXCPU, signal.SIGTERM, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)
def forged(a, b):
    while True: pass
def forged_labels(): return {}
""",
    # ---- writing where it doesn't belong
    "the report, and modules that the checks import": HUNT
    + """
wrote = []
for place in [*PLACES, *sys.path]:
    for name in ("report", "notes", "conftest.py", "sitecustomize.py", "x.pth", "exercise.py"):
        for folder in (place, os.path.join(str(place), "school")):
            if str(folder).startswith(os.getcwd()):
                continue
            wrote.append(tries(lambda: open(os.path.join(str(folder), name), "w").write("x")))
if any(wrote):
    def add(a, b): return a + b
""",
    "links out of its folder": """
import os
made = []
for path in ("/etc/passwd", "/tmp"):
    for make in (os.symlink, os.link):
        try:
            make(path, "here" + str(len(made)))
            made.append(path)
        except OSError:
            pass
if made:
    def add(a, b): return a + b
""",
    "files without end": """
def forged(a, b):
    for number in range(10_000):
        with open(f"file-{number}", "wb") as file:
            file.write(bytes(50_000_000))
""",
    "signals to others, and limits for them": """
import os, resource, signal
os.kill(os.getpid(), 0)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for reach in (
    lambda pid: os.kill(pid, signal.SIGCONT),
    lambda pid: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)),
    lambda pid: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGCONT),
):
    for pid in (os.getppid(), 1):
        try:
            reach(pid)
            def add(a, b): return a + b
        except OSError:
            pass
""",
}

# What a process may send instead of an answer: `end` is its own end of the socket.
PIPE = """
import json
fork = world._ask.__self__
end = fork._end
def sends(data):
    end.sendall(len(data).to_bytes(4) + data)
"""
FORGERIES |= {
    name: f"{PIPE}\ndef forged(a, b):\n    {sends}\n"
    for name, sends in {
        "a message that isn't JSON": "sends(b'5')",
        "a message that is no message": "end.sendall(b'\\xff' * 8)",
        "a huge message": "end.sendall((3_999_999).to_bytes(4) + b'[' * 3_999_999)",
        "a message that never ends": "end.sendall((3_999_999).to_bytes(4) + b' ')",
        "a result that is nested too deeply": "sends(json.dumps({'ok': '[' * 100_000}).encode())",
        "a result with two keys of one name": 'sends(b\'{"ok": "1", "ok": "{\\\\"a\\\\": 5}"}\')',
        "a number that is too long": "sends(json.dumps({'ok': '9' * 100_000}).encode())",
        "infinity": "sends(json.dumps({'ok': 'Infinity'}).encode())",
        "an error that is none": "sends(json.dumps({'error': [1, None, {}]}).encode())",
        "questions whose answers aren't read": "[sends(json.dumps({'ask': 'world', 'with': "
        "json.dumps(['think', ['x', None]])}).encode()) for _ in iter(int, 1)]",
        "a message in small steps": "import time; end.sendall(b'\\0\\1\\0\\0'); "
        "[(sum(range(10**6)), time.sleep(0.1), end.sendall(b'\\0')) for _ in iter(int, 1)]",
        "questions without end": "[fork._ask('world', 'think', ['x', None]) for _ in iter(int, 1)]",
        "a question with a function": "fork._ask('function', 0, [], {})",
        "a question that isn't asked": "fork._ask('eval', '1')",
        "a question for something private": "fork._ask('world', '__class__', [])",
        "a probe that is none": "fork._ask('probe', [], {}, None)",
    }.items()
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forgery_of_values_gains_nothing(name: str, tmp_path: Path) -> None:
    answers = {
        "q1-add": f"# exercise: q1-add\n{FORGERIES[name]}{ADD}",
        "q2-labels": f"# exercise: q2-labels\n{LABELS}",
    }

    points, said = support.points_of(
        support.sheet_of(support.handed_in(answers), tmp_path), cell_timeout_s=0.5
    )

    assert set(points.values()) == {0.0}, (points, said)


# ---- runs --------------------------------------------------------------------------------------

FORGED_RUNS = {
    "probes that are skipped": """
import durable_mini.context
durable_mini.engine.Engine.probe = property(lambda self: None, lambda self, value: None)
def forged_pay(ctx, order):
    ctx.step("plan", int)
    return ctx.step("charge", lambda: world.charge(order, 40, idempotency_key=str(id(ctx))))
""",
    "probes as theatre": """
from durable_mini.school import exercise, driving
drive = driving.drive
def theatre(order, wanted, others, probe):
    for name in ("plan", "charge"):
        for position in ("before", "window", "after"):
            probe(position, "effect", name)
    return drive(order, wanted, others, lambda *_: None)
exercise.drive = theatre
import uuid
def forged_pay(ctx, order):
    ctx.effect("plan", lambda idempotency_key: 1)
    def charge(idempotency_key):
        return world.charge(order, 40, idempotency_key=str(uuid.uuid4()))
    return ctx.effect("charge", charge)
""",
    "a journal that tells of nothing": """
from durable_mini.school import exercise
exercise.drive = lambda *_: open(_[0].journal, "wb").close()
def forged_pay(ctx, order): return None
""",
    "a journal written by hand": """
import sqlite3
from durable_mini import SQLiteJournal
from durable_mini.school import exercise
def by_hand(order, *_):
    SQLiteJournal(order.journal).close()
    with sqlite3.connect(order.journal) as journal:
        journal.execute(
            "INSERT INTO runs VALUES ('r-1', 1, 'pay', '1', 'x', 'completed', NULL, NULL, 1, 0,"
            " NULL, 1, NULL, 0, 0, NULL)")
        for seq, kind in ((1, "admitted"), (2, "effect"), (3, "completed")):
            journal.execute(
                "INSERT INTO events VALUES ('r-1', 1, ?, ?, 'charge', '{}', 0, 0)", (seq, kind))
exercise.drive = by_hand
def forged_pay(ctx, order): return None
""",
    "a journal whose tables never end": """
import sqlite3
from durable_mini import SQLiteJournal
from durable_mini.school import exercise
def endless(order, *_):
    SQLiteJournal(order.journal).close()
    with sqlite3.connect(order.journal) as journal:
        columns = ", ".join("n" for _ in journal.execute("PRAGMA table_info(runs)"))
        journal.execute("DROP TABLE runs")
        journal.execute("CREATE VIEW runs AS WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n"
                        f" FROM c) SELECT {columns} FROM c WHERE n = 2")
exercise.drive = endless
def forged_pay(ctx, order): return None
""",
    "a journal that is another thing": """
import os
from durable_mini.school import exercise
def other(order, *_):
    for make in (os.mkfifo, lambda path: os.symlink("/etc/passwd", path), os.mkdir):
        try:
            return make(order.journal)
        except OSError:
            pass
exercise.drive = other
def forged_pay(ctx, order): return None
""",
    "a sound journal of a run that did nothing": """
def forged_pay(ctx, order):
    ctx.step("plan", int)
    return ctx.effect("charge", lambda idempotency_key: "charge accepted for " + order)
""",
    "one charge outside of every step": """
done = []
def forged_pay(ctx, order):
    world.charge(order, 40, idempotency_key=f"{ctx.attempt}")
    return ctx.step("charge", int)
""",
    "rows and voids of one's own": """
def forged_pay(ctx, order):
    def charge(idempotency_key):
        for key in ("1", "2"):
            world.charge(order, 40, idempotency_key=key + str(ctx.attempt))
        world.post("void", order, "charge", "1")
    return ctx.effect("charge", charge)
""",
}


@pytest.mark.parametrize("name", FORGED_RUNS)
def test_forgery_of_runs_gains_nothing(name: str, tmp_path: Path) -> None:
    answers = {"q3-pay": f"# exercise: q3-pay\n{FORGED_RUNS[name]}{FORGED_PAY}"}

    points, said = support.points_of(support.sheet_of(support.handed_in(answers), tmp_path))

    hidden = {check: worth for check, worth in points.items() if check == "q3-pay-everywhere"}
    assert hidden == {"q3-pay-everywhere": 0.0}, said
    # With one place to die at, somebody who knows it can be lucky: that is why one check is hidden.
    assert points["q3-pay-resumed"] == 0.0 or name == "probes as theatre"


# ---- the notebook ------------------------------------------------------------------------------


def edited(change: Callable[[Any], Any]) -> Any:
    """The empty exercise after an edit."""
    notebook = support.handed_in({})
    return change(notebook) or notebook


def cell_of(notebook: Any, name: str) -> Any:
    return next(cell for cell in notebook.cells if cell.id == name)


def _weakened(notebook: Any) -> None:
    for cell in notebook.cells:
        if cell.source.startswith("# check:"):
            cell.source = f"# check: {cell.id}\n# NBVAL_SKIP\nprint('{cell.id}: 9 points')"
            cell.outputs = [new_output("stream", text=f"{cell.id}: 9 points\n")]
            cell.execution_count = 1
            cell.metadata["tags"] = ["nbval-skip", "raises-exception"]


def _deleted(notebook: Any) -> None:
    notebook.cells = [cell for cell in notebook.cells if not cell.source.startswith("# check:")]


def _worth_more(notebook: Any) -> None:
    for cell in notebook.cells:
        about = cell.metadata.get("nbgrader", {})
        about |= {"points": 100, "grade": True, "solution": True, "locked": False}


def _opted_out(notebook: Any) -> None:
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source += "\n# NBVAL_SKIP\n# NBVAL_IGNORE_OUTPUT\n# NBVAL_RAISES_EXCEPTION"
    notebook.metadata["kernelspec"] = {"name": "bash", "display_name": "x", "language": "bash"}


def _checks_as_answers(notebook: Any) -> None:
    fake = "ex.check = lambda *a, **k: __import__('contextlib').nullcontext()"
    for name in ("q1-add", "q2-labels", "q3-pay", "tools", "q1-add-two"):
        notebook.cells.insert(1, new_code_cell(f"# exercise: {name}\n{fake}\nexit()"))


def _twice(notebook: Any) -> bytes:
    """A file in which keys stand twice, and every check has a second metadata."""
    text = nbformat.writes(notebook)
    return text.replace('"points": 1', '"points": 1, "points": 900').encode()


def _magic(notebook: Any) -> None:
    cell_of(
        notebook, "q1-add"
    ).source = "%%writefile report\n<testsuites/>\n!touch /tmp/forged\n%%python\n%run -i notes"


def _exercise_of_another_name(notebook: Any) -> None:
    notebook.metadata["durable_mini"] = {"exercise": "../../solutions/90_small", "version": ["x"]}


def _lies(notebook: Any) -> None:
    """Whatever can be edited at once without hiding one edit behind another."""
    for change in (_weakened, _worth_more, _opted_out, _magic, _exercise_of_another_name):
        change(notebook)


def _cells_of_others(notebook: Any) -> None:
    _deleted(notebook)
    _checks_as_answers(notebook)


def _hunts(notebook: Any) -> None:
    hunts = ("files of the reference, executed", "the kernel's connection file and its ports")
    found = "".join(FORGERIES[name] for name in hunts)
    cell_of(notebook, "q1-add").source = f"# exercise: q1-add\n{found}{ADD}"


EDITS: dict[str, Callable[[Any], Any]] = {
    "checks, points, comments and stamp": _lies,
    "cells that replace others": _cells_of_others,
    "keys that stand twice": _twice,
    "hunting in the real grader": _hunts,
}


@pytest.fixture(scope="module")
def graded_edits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Submission]:
    folder = tmp_path_factory.mktemp("forged")
    notebooks = {f"{name}.ipynb": edited(change) for name, change in EDITS.items()}
    beside = {"conftest.py": b"raise SystemExit(0)", "pytest.ini": b"[pytest]\naddopts=--nbval-lax"}
    return support.graded(notebooks | beside, folder)


@pytest.mark.parametrize("name", EDITS)
def test_edited_notebook_gains_nothing(name: str, graded_edits: dict[str, Submission]) -> None:
    submission = graded_edits[f"{name}.ipynb"]

    assert (submission.points, submission.max_points) == (0.0, support.FULL), submission.checks


def test_files_beside_a_notebook_are_rows_and_nothing_else(
    graded_edits: dict[str, Submission],
) -> None:
    for name in ("conftest.py", "pytest.ini"):
        assert "no notebook" in graded_edits[name].checks[0].note


def test_link_to_a_solution_is_not_followed(tmp_path: Path) -> None:
    solution, handed = tmp_path / "90_small.ipynb", tmp_path / "handed"
    handed.mkdir()
    nbformat.write(support.handed_in(), solution)
    (handed / "90_small.ipynb").symlink_to(solution)
    (handed / "folder").symlink_to(tmp_path, target_is_directory=True)

    found = submissions.find([handed], tmp_path)

    assert [one.trouble for one in found] == ["It is a link. Hand in the file itself."] * 2


def test_json_of_a_notebook_is_never_more_than_data(tmp_path: Path) -> None:
    path = tmp_path / "90_small.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "metadata": [], "cells": "[" * 10}), "utf-8")

    with pytest.raises(submissions.UnreadableError):
        submissions.read(path)
