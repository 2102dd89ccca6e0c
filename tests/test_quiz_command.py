"""`durable-mini quiz`: keyboard only, line by line, on the same log and interviews."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from durable_mini import cli
from durable_mini.school.mock import MockInterview
from durable_mini.school.reviews import Reviews

Run = Callable[..., "Said"]
BEST = ("1 2 3", "1 2 3 4 5", "", "n")
"""Points, rubric, no red flag, not wrong."""


class Said:
    """What a command printed, and how it ended."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "durable-mini"


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object, keys: tuple[str, ...] = ()) -> Said:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{key}\n" for key in keys)))
        status = cli.main(["quiz", *map(str, arguments)])
        return Said(status, *capsys.readouterr())

    return run


def test_help_shows_an_example_and_the_options(run: Run) -> None:
    said = run("--help")
    assert said.status == 0
    assert "Example: durable-mini quiz --core" in said.out
    for option in ("due", "mock", "export-anki", "reset", "interview", "print", "script"):
        assert f"--{option}" in said.out


def test_question_is_asked_answered_scored_and_kept(run: Run, home: Path) -> None:
    said = run("--core", "--no-clock", keys=("I know", "", "2", *BEST, "", "y", "q"))
    assert said.status == 0
    (review,) = Reviews(home / "reviews.jsonl").read()
    assert (review.confidence, review.mode, review.seconds) == (2, "core", None)
    assert review.follow_up
    order = ["Question:", "How sure", "Worked answer:", "The follow-up:", "Score:", "comes again"]
    places = [said.out.index(text) for text in order]
    assert places == sorted(places)


def test_answer_is_not_printed_before_confidence_is_said(run: Run) -> None:
    said = run("--core", "--no-clock", keys=("I know", "", "7", "sure"))
    assert "'7' isn't it: a number from 0 to 3." in said.out
    assert "Worked answer" not in said.out


def test_clock_is_kept_and_counts(run: Run, home: Path) -> None:
    run("--core", keys=("", "", "2", *BEST, "", "y", "q"))
    (review,) = Reviews(home / "reviews.jsonl").read()
    assert review.seconds is not None and 0 <= review.seconds < 60


def test_rating_again_counts_once(run: Run, home: Path) -> None:
    nothing = ("", "", "", "n")
    said = run("--no-clock", keys=("", "1", *nothing, "", "y", "r", *BEST, "q"))
    assert "Score: 0 of 3." in said.out
    first, second = Reviews(home / "reviews.jsonl").read()
    assert second.instead_of == first.at
    assert second.score > first.score == 0


@pytest.mark.parametrize("keys", [(), ("q",), ("", "2", "q"), ("", "2", "1", "q")])
def test_stopping_half_way_keeps_nothing_of_that_question(
    run: Run, home: Path, keys: tuple[str, ...]
) -> None:
    said = run("--no-clock", keys=keys)
    assert (said.status, "Stopped." in said.out) == (0, True)
    assert Reviews(home / "reviews.jsonl").read() == []


def test_empty_queue_says_why(run: Run) -> None:
    said = run("--weak")
    assert (said.status, "Nothing is weak" in said.out) == (0, True)


def test_json_says_what_would_be_asked(run: Run) -> None:
    said = run("--json", "--interview", "2099-01-31", "--seed", "5")
    found = json.loads(said.out)
    assert (found["interview"], found["seed"], found["mode"]) == ("2099-01-31", 5, "due")
    assert found["queue"][0]["due"] is None
    assert json.loads(run("--json", "--interview", "none").out)["interview"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--due", "--core"), "--due and --core can't go together"),
        (("--interview", "soon"), "'soon' is no date"),
        (("--chapter", "99_end"), "no question of chapter '99_end'"),
        (("--mock", "30"), "no interview of 30 minutes"),
        (("--import", "missing.jsonl"), "no such file"),
        (("--export-anki", "no/such/folder.txt"), "No such file"),
    ],
)
def test_wrong_use_is_one_line(run: Run, arguments: tuple[str, ...], said: str) -> None:
    found = run(*arguments)
    assert (found.status, found.out, found.err.count("\n")) == (2, "", 1)
    assert said in found.err


def test_future_log_is_refused_with_a_way_out(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "reviews.jsonl").write_text('{"durable_mini": "reviews", "version": 2}\n')
    found = run()
    assert (found.status, "Next: update" in found.err) == (2, True)


def test_damaged_line_is_told_of(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "reviews.jsonl").write_text('{"durable_mini": "reviews", "version": 1}\nnonsense\n')
    assert "line 2 was passed over" in " ".join(run(keys=("q",)).out.split())


def test_log_is_exported_imported_and_reset(run: Run, home: Path, tmp_path: Path) -> None:
    run("--no-clock", keys=("", "2", *BEST, "", "y", "q"))
    copy = tmp_path / "copy.jsonl"
    assert "1 reviews written" in run("--export", copy).out
    assert run("--export", copy).status == 2
    assert run("--reset", keys=("n",)).status == 1
    assert len(Reviews(home / "reviews.jsonl").read()) == 1
    assert run("--reset", "--yes").status == 0
    assert Reviews(home / "reviews.jsonl").read() == []
    assert "1 reviews were new" in run("--import", copy).out


def answers(mock: MockInterview, run_id: str) -> tuple[str, ...]:
    """The keys for what is asked now."""
    asked = mock.asked(run_id)
    assert asked is not None
    if asked.follow_up:
        return ("fine", "")
    if asked.area == "design":
        return ("a saga", "", "reserve", "charge", "", "2", "3", "2")
    return ("words", "", "1")


@pytest.mark.slow
def test_interview_goes_on_after_its_process_and_ends_with_a_debrief(run: Run, home: Path) -> None:
    mock = MockInterview(home / "interviews.db")
    said = run("--mock", 20, "--no-clock", keys=("words", "", "1"))
    assert "the same command goes on from here" in said.out
    assert mock.under_way() == "mock-1"
    while mock.asked("mock-1") is not None:
        said = run("--mock", 20, keys=("y", *answers(mock, "mock-1")))
    assert 'charge"' in said.out or "Debrief" in said.out
    heard = (*BEST, *BEST, *BEST, *BEST, "y")
    said = run("--mock", 20, keys=("y", *heard))
    assert "Together:" in said.out
    assert len(Reviews(home / "reviews.jsonl").read()) == 4
    told = mock.told("mock-1")
    total = sum(one.worth or 0 for one in told)
    assert f"Together: {total} of 12" in said.out
    assert f"Together: {total} of 12" in (home / "mock-1.md").read_text()


def test_interview_can_be_given_up_for_another(run: Run, home: Path) -> None:
    run("--mock", 20, "--no-clock")
    run("--mock", 45, keys=("n", "y"))
    mock = MockInterview(home / "interviews.db")
    assert mock.under_way() == "mock-2"
    assert mock.plan("mock-2")["minutes"] == 45


@pytest.mark.slow
def test_terminal_shows_plain_lines_and_nothing_that_moves_a_cursor(home: Path) -> None:
    """In a real terminal: no colours, no boxes, no control characters but those that end a line."""
    mine, theirs = pty.openpty()
    command = [sys.executable, "-m", "durable_mini", "quiz", "--core", "--no-clock"]
    environment = {**os.environ, "TERM": "dumb", "COLUMNS": "60"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    text = ""
    for key, waited_for in (("", "ends it:"), ("1", "certain?"), ("q", "none:")):
        text += read_until(mine, waited_for)
        os.write(mine, f"{key}\n".encode())
    text += read_until(mine, "is kept.")
    assert process.wait(timeout=30) == 0
    os.close(mine)
    assert re.findall(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u2500-\u257f]", text) == []
    assert max(map(len, text.splitlines())) <= 120


def read_until(terminal: int, waited_for: str) -> str:
    text, deadline_s = "", time.monotonic() + 60
    while waited_for not in text:
        ready, _, _ = select.select([terminal], [], [], max(deadline_s - time.monotonic(), 0))
        assert ready, f"waited for {waited_for!r} after {text[-300:]!r}"
        text += os.read(terminal, 4_096).decode(errors="replace")
    return text
