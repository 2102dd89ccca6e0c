"""The command: its answers, its exit status, one line for each mistake, JupyterLab started."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from durable_mini import Context, Engine, FakeClock, RetryPolicy, SQLiteJournal, cli, workflow
from durable_mini.lab import course, notebooks

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = ("course", "results", "runs", "show", "verify")


class Client:
    """An opaque argument: only its type can be compared."""


@workflow(version="2")
def order(ctx: Context, item: str) -> str:
    ctx.step("price", lambda _client, _item: 7.5, Client(), item, cost=2.0)
    ctx.effect("charge", flaky(item), retry=RetryPolicy(max_attempts=2, initial_s=1.0))
    ctx.now()
    return ctx.step("say", lambda text: f"[bold]{text}", "done " + "x" * 100)


def flaky(item: str) -> Any:
    """A charge that works at the second try; an item called `bad` never does."""
    tries = iter(["lost", "lost" if item == "bad" else ""])

    def charge(*, idempotency_key: str) -> str:
        if problem := next(tries):
            raise ConnectionError(f"{problem}\n\x1b[31m")
        return idempotency_key

    return charge


@pytest.fixture
def filled(journal_path: Path) -> Path:
    """A journal with a completed run, a failed one and one that nobody has driven."""
    with SQLiteJournal(journal_path) as journal:
        engine = Engine(journal, workflows=[order], clock=FakeClock(1_700_000_000.0))
        engine.run(order, "book", run_id="good-1")
        engine.run(order, "bad", run_id="[red]bad")
        engine.start(order, "book", run_id="waiting")
    return journal_path


def run_command(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "durable_mini", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    """The exit status and the one line on stderr of a command that must print nothing else."""
    status = cli.main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("durable-mini: ")
    assert said.err.count("\n") == 1
    return status, said.err


# ---- help, version, wrong use ------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    assert f"Example: durable-mini {command}" in capsys.readouterr().out


def test_no_command_shows_the_help_and_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    said = capsys.readouterr().out
    assert all(command in said for command in COMMANDS)


def test_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert re.fullmatch(r"durable-mini \S.*\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["resluts"], "resluts"),
        (["runs"], "JOURNAL"),
        (["show", "a", "b", "c"], "c"),
        (["results", "--runs", "many"], "integer"),
        (["results", "--runs", "0"], "runs"),
        (["results", "--crash-rate", "1"], "crash rate"),
        (["results", "--crash-rate", "-0.1"], "crash rate"),
        (["results", "--crash-rate", "nan"], "crash rate"),
        (["results", "--nonsense"], "--nonsense"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(
    arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = complaint(capsys, *arguments)

    assert status == 2
    assert what in said


# ---- results -----------------------------------------------------------------------------------


def test_results_as_json_holds_every_number_of_both_tables(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["results", "--runs", "5", "--seed", "3", "--crash-rate", "0.3", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    quantity = {"simulated", "exact", "low95", "high95", "published"}
    assert (told["runs"], told["seed"]) == (5, 3)
    for row in told["by_strategy"]:
        assert row["crash_rate"] == 0.3
        assert all(set(row[name]) == quantity for name in ("cost", "restarts", "duplicates"))
    assert [set(row) for row in told["by_crash_rate"]] == [{"crash_rate", "restart", "journal"}]


def test_results_prints_both_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["results", "--runs", "5"]) == 0

    said = capsys.readouterr()
    assert "journal+key" in said.out
    assert "12.43" in said.out
    assert "11.94" in said.out
    assert said.err == ""


@pytest.mark.slow
def test_results_shows_a_bar_on_a_terminal_and_ctrl_c_is_one_line() -> None:
    pty = pytest.importorskip("pty", reason="a terminal of our own needs a POSIX system")
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-m", "durable_mini", "results", "--runs", "1000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)

    said = read_until(terminal, "/15000000")
    process.send_signal(signal.SIGINT)
    said += read_until(terminal, "Ctrl-C")
    printed, _ = process.communicate(timeout=20)
    os.close(terminal)

    assert (process.returncode, printed) == (130, b"")
    assert said.splitlines()[-1].endswith("durable-mini: stopped by Ctrl-C")
    assert "Traceback" not in said


def read_until(terminal: int, text: str) -> str:
    """What appears on a terminal up to and including `text`."""
    said = ""
    while text not in said:
        ready, _, _ = select.select([terminal], [], [], 30)
        assert ready, said
        said += os.read(terminal, 4096).decode()
    return said


# ---- journals ----------------------------------------------------------------------------------


def test_runs_lists_each_run_with_its_status(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["runs", str(filled)]) == 0

    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1] == ["good-1", "order", "2", "completed", "1", "6", "2"]
    assert rows[2] == ["[red]bad", "order", "2", "failed", "1", "4", "2"]
    assert rows[3] == ["waiting", "order", "2", "pending", "0", "1", "0"]


def test_runs_as_json_is_read_back(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", str(filled), "--json"]) == 0

    good, bad, _ = json.loads(capsys.readouterr().out)
    assert good["run_id"] == "good-1"
    assert good["cost"] == 2.0
    assert good["error"] is None
    assert bad["error"]["type"] == "ConnectionError"


def test_runs_of_an_empty_journal_says_so(
    journal_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SQLiteJournal(journal_path).close()

    assert cli.main(["runs", str(journal_path)]) == 0
    assert capsys.readouterr().out == f"{journal_path} holds no runs yet.\n"


def test_show_prints_the_history_shortened_and_harmless(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["show", str(filled), "good-1"]) == 0

    said = capsys.readouterr().out
    assert "2023-11-14 22:13:20.000" in said
    assert "good-1/charge" in said
    assert "[bold]done xxx" in said
    assert "…" in said
    assert "event 2: compared by its type alone: " in said
    assert "Client" in said
    assert "event 3: it took 2 tries" in said

    assert cli.main(["show", str(filled), "[red]bad"]) == 0
    said = capsys.readouterr().out
    assert r"ConnectionError: lost\n\x1b[31m" in said
    assert "\x1b" not in said


def test_show_as_json_holds_every_event(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", str(filled), "good-1", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert [event["seq"] for event in told["history"]] == [1, 2, 3, 4, 5, 6]
    assert told["history"][2]["payload"]["key"] == "good-1/charge"
    assert told["input"] == "book"


def test_show_of_an_unknown_run_is_status_2(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = complaint(capsys, "show", filled, "nobody")

    assert status == 2
    assert "'nobody'" in said


def test_verify_says_that_all_is_well(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(filled)]) == 0
    assert capsys.readouterr().out == "3 runs, 11 events: all is well\n"

    assert cli.main(["verify", str(filled), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"ok": True, "runs": 3, "events": 11, "problems": []}


def damage(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute(
            "UPDATE events SET payload = '{\"result\":1}' WHERE run_id = 'good-1' AND seq >= 3"
        )
    database.close()


def test_runs_lists_the_others_beside_a_damaged_one(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(filled)

    assert cli.main(["runs", str(filled)]) == 1

    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()[1:]] == ["[red]bad", "waiting"]
    assert said.err.startswith("durable-mini: run good-1, event 3: the checksum")


def test_verify_names_the_first_broken_event_and_is_status_1(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(filled)

    assert cli.main(["verify", str(filled)]) == 1
    said = capsys.readouterr().out
    assert "run good-1, event 3: " in said
    assert "event 4" not in said
    assert "[red]bad" not in said

    assert cli.main(["verify", str(filled), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["ok"]
    assert [(found["run_id"], found["seq"]) for found in told["problems"]] == [("good-1", 3)]


def test_show_of_a_damaged_run_is_one_line_that_names_the_event(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(filled)

    status, said = complaint(capsys, "show", filled, "good-1")

    assert status == 2
    assert "run good-1, event 3" in said


@pytest.mark.parametrize("command", [["runs"], ["show"], ["verify"]])
@pytest.mark.parametrize("kind", ["missing", "empty", "text", "folder", "foreign", "cut"])
def test_what_is_no_journal_is_refused_and_left_alone(
    command: list[str], kind: str, tmp_path: Path, filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "thing"
    if kind == "empty":
        path.touch()
    elif kind == "text":
        path.write_text("to do: " * 100)
    elif kind == "folder":
        path.mkdir()
    elif kind == "foreign":
        sqlite3.connect(path).execute("CREATE TABLE t (a)").connection.close()
    elif kind == "cut":
        path.write_bytes(filled.read_bytes()[:60])
    before = contents(tmp_path)

    status, said = complaint(capsys, *command, path, *(["r"] if command == ["show"] else []))

    assert status == 2
    assert str(path) in said
    assert contents(tmp_path) == before


def test_a_journal_in_a_read_only_folder_is_one_line(
    filled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.os, "access", lambda _, mode: mode != os.W_OK)

    status, said = complaint(capsys, "runs", filled)

    assert status == 2
    assert "its folder is read-only" in said


def contents(folder: Path) -> dict[str, bytes | None]:
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


@pytest.mark.slow
def test_a_reader_that_closes_the_pipe_is_no_error(filled: Path) -> None:
    show = f"{sys.executable} -m durable_mini show {filled} good-1 --json | true"

    done = subprocess.run(["bash", "-c", show], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_python_m_is_the_command(filled: Path) -> None:
    done = run_command("runs", filled, "--json")

    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)) == 3


# ---- course ------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "course" / "pictures").mkdir(parents=True)
    (folder / "course" / ".ipynb_checkpoints").mkdir()
    (folder / "course" / ".ipynb_checkpoints" / "x.ipynb").write_text("no")
    (folder / "course" / "00_start_here.ipynb").write_text("first")
    (folder / "course" / "pictures" / "a.png").write_bytes(b"png")
    return folder


def test_copy_never_overwrites_what_the_reader_has(tmp_path: Path, source: Path) -> None:
    target = tmp_path / "mine"
    names = ("course/00_start_here.ipynb", "course/pictures/a.png")

    assert course.copy_course(source, target) == course.Copied(names, ())
    assert course.copy_course(source, target) == course.Copied((), ())
    (target / names[0]).write_text("my notes")
    (source / "course" / "02_replay.ipynb").write_text("new")

    copied = course.copy_course(source, target)

    assert copied == course.Copied(("course/02_replay.ipynb",), (names[0],))
    assert (target / names[0]).read_text() == "my notes"
    assert not (target / "course" / ".ipynb_checkpoints").exists()


def test_copy_that_dies_leaves_no_half_a_file(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "mine"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
        patched.setattr(course.shutil, "copyfileobj", full)
        course.copy_course(source, target)

    assert [path for path in target.rglob("*") if path.is_file()] == []
    assert len(course.copy_course(source, target).added) == 2


def test_course_refuses_a_folder_that_is_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    status, said = complaint(capsys, "course", tmp_path / "file")

    assert status == 2
    assert "is a file" in said


def test_course_without_jupyterlab_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(course.importlib.util, "find_spec", lambda _: None)

    status, said = complaint(capsys, "course")

    assert status == 2
    assert "pip install jupyterlab" in said


def test_course_hands_on_what_follows_the_dashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(cli, "open_jupyter", started.append)

    assert cli.main(["course", str(tmp_path / "mine"), "--", "--no-browser", "--port", "9000"]) == 0
    assert cli.main(["course", "--", "--no-browser"]) == 0

    copy, clone = started
    assert copy[-3:] == ["--no-browser", "--port", "9000"]
    assert f"--ServerApp.root_dir={tmp_path / 'mine'}" in copy
    assert (tmp_path / "mine" / "course" / "00_start_here.ipynb").is_file()
    assert clone[-1] == "--no-browser"
    assert f"--ServerApp.root_dir={ROOT}" in clone
    assert "Copied" in capsys.readouterr().err


@pytest.mark.slow
def test_course_serves_the_first_chapter_and_one_ctrl_c_stops_it(tmp_path: Path) -> None:
    with_output = tmp_path / "out"
    with with_output.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "durable_mini", "course", "--", "--no-browser"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=own_jupyter(tmp_path),
        )
    try:
        address, token = wait_for_server(with_output, process)
        page = get(f"{address}/lab/tree/course/00_start_here.ipynb?token={token}")
        chapter = json.loads(
            get(f"{address}/api/contents/course/00_start_here.ipynb?content=0&token={token}")
        )
    finally:
        process.send_signal(signal.SIGINT)
        status = process.wait(timeout=30)

    assert chapter["path"] == "course/00_start_here.ipynb"
    assert '"news": {"disabled": true}' in page
    assert status == 0


def own_jupyter(folder: Path) -> dict[str, str]:
    """An environment in which JupyterLab reads and writes nothing of whoever runs the tests."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    names += ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    return {**os.environ, **{name: str(folder / name.lower()) for name in names}}


def wait_for_server(output: Path, process: subprocess.Popen[bytes]) -> tuple[str, str]:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s and process.poll() is None:
        found = re.search(r"(http://127\.0\.0\.1:\d+)/lab\S*token=([0-9a-f]+)", output.read_text())
        if found:
            return found[1], found[2]
        time.sleep(0.1)
    raise AssertionError(output.read_text())


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


@pytest.mark.slow
def test_wheel_carries_the_course_and_copies_it(tmp_path: Path) -> None:
    """Built, unpacked beside nothing else, and run outside the clone."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheel; the test extra has it")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, timeout=120)
    wheel = next(tmp_path.glob("*.whl"))
    installed = tmp_path / "installed"
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", str(installed), str(wheel)],
        check=True,
        timeout=120,
    )
    program = (
        "from durable_mini import cli; from durable_mini.lab import course;"
        "cli.open_jupyter = print; assert course.clone_root() is None;"
        "raise SystemExit(cli.main(['course']))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    copy = tmp_path / "durable-mini-course"
    assert f"--ServerApp.root_dir={copy}" in done.stdout
    committed = sorted(path.name for path in (ROOT / "course").glob("*.ipynb"))
    chapters = sorted((copy / "course").glob("*.ipynb"))
    assert [path.name for path in chapters] == committed
    assert [fault for path in chapters for fault in notebooks.check(path)] == []
