"""The command `grade`: one line for each mistake, a table, JSON, exit status, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import school_class
import small_exercise

from durable_mini import cli
from durable_mini.school import grading, submissions
from durable_mini.school.marks import CheckMark, HandIn, Submission


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HandIn:
    """A submission that earns 4 of 10 points, without a grader; where progress would be kept."""
    hand_in = HandIn(Path("x"), "class/[red]x\x1b[31m.ipynb", "ada", "03_keys")
    checks = (
        CheckMark("q1-a", "q1", 4.0, 4.0),
        CheckMark("q2-b", "q2", 0.0, 6.0, "A key names the intent.\ngot=1", hidden=True),
    )
    done = Submission(hand_in.shown, "ada", "03_keys", checks)
    monkeypatch.setattr(submissions, "find", lambda paths, scratch: [hand_in])
    monkeypatch.setattr(grading, "grade_all", lambda hand_ins, **options: [done])
    monkeypatch.setattr(grading, "exercise_points", lambda reference: {"03_keys": 10.0})
    monkeypatch.setattr(grading, "is_reference", lambda path: False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return hand_in


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line on stderr of a wrong use that prints nothing else."""
    assert cli.main(["grade", *map(str, arguments)]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("durable-mini: ")
    return said.err


def test_help_shows_an_example_and_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["grade", "--help"]) == 0
    said = capsys.readouterr().out
    assert "Example: durable-mini grade handed-in/" in said
    for option in ("out", "reference", "roster", "against", "pseudonyms", "seed", "cell-timeout"):
        assert f"--{option}" in said


def test_table_has_a_line_for_each_submission_and_obeys_nothing_in_it(
    one: HandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["grade", "class"]) == 0
    said = capsys.readouterr().out
    assert "[red]x\\x1b[31m.ipynb" in said
    assert "4 of 10" in said
    assert "All visible checks passed; 1 hidden: 0 passed." in said
    assert "A key names the intent." in said


def test_strict_says_no_below_full_marks(one: HandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["grade", "class", "--strict"]) == 1
    assert "4 of 10" in capsys.readouterr().out


def test_json_is_all_that_is_printed(one: HandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["grade", "class", "--json"]) == 0
    said = capsys.readouterr()
    (told,) = json.loads(said.out)["submissions"]
    assert (told["path"], told["points"], told["max_points"]) == (one.shown, 4.0, 10.0)
    assert [check["name"] for check in told["checks"]] == ["q1-a", "q2-b"]


def test_seed_that_was_drawn_is_said(one: HandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["grade", "class"]) == 0
    assert "Graded with --seed " in capsys.readouterr().err
    assert cli.main(["grade", "class", "--seed", "3"]) == 0
    assert "--seed" not in capsys.readouterr().err


def test_changes_are_printed_with_what_they_were(
    one: HandIn, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    old = tmp_path / "old.csv"
    assert cli.main(["grade", "class", "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "grades.csv").read_text(encoding="utf-8")
    old.write_text(text.replace("q1-a,4,4", "q1-a,2,4"), encoding="utf-8")
    capsys.readouterr()

    assert cli.main(["grade", "class", "--against", str(old)]) == 0
    said = capsys.readouterr().out
    assert "1 changed since the earlier grading." in said
    assert said.splitlines()[-1].split()[-3:] == ["q1-a", "2", "4"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--roster", "nowhere.csv"], "nowhere.csv"),
        (["--against", "nowhere.csv"], "nowhere.csv"),
        (["--out", "mine"], "holds other files"),
        (["--out", "class/out"], "lies inside"),
        (["--out", "a-file"], "is a file"),
        (["--pseudonyms", "a-file"], "no key file"),
        (["--seed", "many"], "--seed"),
        (["--cell-timeout", "0"], "cell-timeout"),
        (["--resluts"], "--resluts"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(
    one: HandIn,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("class", "mine"):
        (tmp_path / folder).mkdir()
    for path in ("mine/thesis.txt", "a-file"):
        (tmp_path / path).write_text("mine", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))

    assert what in complaint(capsys, "class", *arguments)
    assert sorted(tmp_path.rglob("*")) == before


def test_path_that_is_not_there_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "nowhere" in complaint(capsys, tmp_path / "nowhere")


def test_no_path_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert "PATH" in complaint(capsys)


@pytest.mark.slow
def test_ctrl_c_writes_nothing_and_leaves_no_process(tmp_path: Path) -> None:
    solution = school_class.published(
        small_exercise.solution(), tmp_path / "solutions", small_exercise.NAME
    )
    school_class.make(tmp_path, [solution], ["stubborn loop", "left behind", "good"])
    for name in ("scratch", "home"):
        (tmp_path / name).mkdir()

    command = [sys.executable, "-m", "durable_mini", "grade", "class", "--out", "out"]
    command += ["--reference", "solutions", "--cell-timeout", "100"]
    home = {"XDG_DATA_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "scratch")}
    grader = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, **home},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _wait_until(lambda: len(_descendants(grader.pid)) >= 3, grader)
    there = _descendants(grader.pid)
    os.killpg(grader.pid, signal.SIGINT)  # a terminal sends it to the whole group
    out, err = grader.communicate(timeout=30)

    assert (grader.returncode, out) == (130, "")
    assert err == "durable-mini: stopped by Ctrl-C\n"
    _wait_until(lambda: not [pid for pid in there if Path(f"/proc/{pid}").exists()])
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "scratch").iterdir()) == []


def _descendants(pid: int) -> list[int]:
    """Every process below `pid`."""
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def _wait_until(happened: Any, process: subprocess.Popen[str] | None = None) -> None:
    """Look again and again until it happened; a minute is too long."""
    until = time.monotonic() + 60
    while not happened():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
