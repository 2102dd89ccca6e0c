"""Real workers, really killed: what comes of it, and that nothing of it is left behind."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from durable_mini import SQLiteJournal
from durable_mini.cli import main
from durable_mini.lab import chaos, exact
from durable_mini.lab.chaos_pictures import chaos_figure
from durable_mini.lab.experiment import CHAOS_STRATEGIES, ChaosReport, StrategyOutcome, expected
from durable_mini.lab.experiment.books import Books
from durable_mini.lab.experiment.crew import Crew
from durable_mini.lab.experiment.duty import Duty
from durable_mini.ops import verify

COMMAND = [sys.executable, "-m", "durable_mini", "chaos"]
LIMIT_S = 60.0
TWO = ("restart", "journal+key")


def processes_with(text: str) -> list[int]:
    """The processes whose command line has this text in it."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                command = (folder / "cmdline").read_bytes()
            except OSError:  # it has ended
                continue
            if text.encode() in command:
                found.append(int(folder.name))
    return found


def wait_until(what: Callable[[], Any]) -> None:
    give_up_at = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


# ---- books --------------------------------------------------------------------------------------


def test_books_hand_a_job_out_again_only_when_its_time_is_over(tmp_path: Path) -> None:
    with Books(tmp_path / "books.db") as books:
        books.put("queue", ["a"])
        assert books.take("queue", "w1", now=10.0, hidden_s=2.0) == ("a", 1)
        assert books.take("queue", "w2", now=11.9, hidden_s=2.0) is None
        assert books.take("queue", "w2", now=12.0, hidden_s=2.0) == ("a", 2)
        books.finish("queue", "a", "completed")
        assert books.take("queue", "w3", now=99.0, hidden_s=2.0) is None
        assert books.jobs_left("queue") == 0
        assert books.endings("queue") == [("completed", "")]


def test_books_give_back_what_a_dead_worker_had(tmp_path: Path) -> None:
    with Books(tmp_path / "books.db") as books:
        books.put("restart", ["a", "b"])
        books.put("restart", ["a", "b"])
        first = books.take("restart", "dead", now=0.0, hidden_s=1e9)
        second = books.take("restart", "alive", now=0.0, hidden_s=1e9)
        assert first and second and {first.name, second.name} == {"a", "b"}
        books.release("restart", "dead")
        assert books.take("restart", "next", now=0.0, hidden_s=1e9) == (first.name, 2)
        assert books.take("restart", "next", now=0.0, hidden_s=1e9) is None
        books.release("restart")
        assert books.take("restart", "next", now=0.0, hidden_s=1e9)


def test_books_keep_strategies_apart(tmp_path: Path) -> None:
    with Books(tmp_path / "books.db") as books:
        books.put("queue", ["a"])
        assert books.take("restart", "w", now=0.0, hidden_s=1.0) is None
        books.note_kill("queue", "charge", "window")
        books.note_session("queue", 1.5)
        books.note_session("queue", 2.0)
        assert (books.kills("queue"), books.kills("restart")) == (1, 0)
        assert (books.wall_s("queue"), books.wall_s("restart")) == (3.5, 0.0)


def test_books_of_another_experiment_are_refused_by_name(tmp_path: Path) -> None:
    with Books(tmp_path / "books.db") as books:
        books.agree_on({"runs": 40, "crash rate": 0.08})
        books.agree_on({"runs": 40, "crash rate": 0.08})
        with pytest.raises(ValueError, match=r"crash rate 0\.08, asked for is 0\.2"):
            books.agree_on({"runs": 40, "crash rate": 0.2})


def test_books_refuse_a_file_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "books.db").write_bytes(b"a diary, not a database" * 100)
    with pytest.raises(ValueError, match="isn't the books of an experiment"):
        Books(tmp_path / "books.db")
    assert (tmp_path / "books.db").read_bytes() == b"a diary, not a database" * 100


# ---- what is refused, and what is said of it ----------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"runs": 0},
        {"crash_rate": 1.0},
        {"crash_rate": -0.1},
        {"workers": 0},
        {"workers": 33},
        {"strategies": ("hope",)},
        {"random_kills": -1},
    ],
)
def test_chaos_refuses_what_makes_no_experiment(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\d|hope"):
        chaos(**options)


@pytest.mark.parametrize("option", ["--runs=0", "--crash-rate=1", "--workers=0", "--strategy=hope"])
def test_command_says_in_one_line_what_makes_no_experiment(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chaos", option]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1


def outcome(**changes: Any) -> StrategyOutcome:
    theory = exact("journal+key", 0.08, 400)
    usual: dict[str, Any] = {
        "strategy": "journal+key",
        "runs": 400,
        "completed": 400,
        "lost": 0,
        "failure": "",
        "kills": round(theory.restarts.mean * 400),
        "cost": theory.cost.mean * 400,
        "duplicates": 0,
        "wall_s": 1.0,
        "expected": expected("journal+key", 0.08, 400),
    }
    return StrategyOutcome(**{**usual, **changes})


def test_complaints_name_what_contradicts_theory_and_guarantees() -> None:
    assert outcome().complaints() == []
    cost = exact("journal+key", 0.08, 400).cost
    assert outcome(cost=400 * (cost.mean + 3.9 * cost.se)).complaints() == []
    [said] = outcome(cost=400 * (cost.mean + 4.1 * cost.se)).complaints()
    assert "cost" in said
    [said] = outcome(completed=399, lost=1, failure="WorldError: no").complaints()
    assert said.endswith("399 of 400 runs completed; the first failed: WorldError: no")
    assert any("1 duplicates, with keys" in line for line in outcome(duplicates=1).complaints())
    few = {"restarts": expected("queue", 0.02, 400)["restarts"]}
    [said] = outcome(kills=400, expected=few).complaints()
    assert "restarts 1" in said


def test_theory_of_the_queue_is_that_of_starting_over() -> None:
    assert expected("queue", 0.08, 400) == expected("restart", 0.08, 400)
    assert expected("restart", 0.08, 400)["cost"] == exact("restart", 0.08, 400).cost
    assert expected("journal", None, 400) == {}


@pytest.mark.parametrize("path", ["no/folder/c.db", "diary.txt", "."])
def test_command_refuses_what_is_no_journal_and_leaves_nothing_beside_it(
    tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    assert main(["chaos", "--runs=1", "--journal", str(tmp_path / path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    [line] = said.err.splitlines()
    assert str(tmp_path) in line
    assert [found.name for found in tmp_path.iterdir()] == ["diary.txt"]


# ---- the experiment -----------------------------------------------------------------------------


def test_chaos_kills_and_completes(tmp_path: Path) -> None:
    report = chaos(8, 0.3, 2, tmp_path / "c.db", strategies=("restart",))
    [found] = report.strategies
    assert (found.completed, found.lost) == (8, 0)
    assert found.kills > 0
    assert found.cost >= 8 * 8.0
    assert not report.stopped
    with sqlite3.connect(tmp_path / "c.db-books.db") as base:
        places = base.execute("SELECT DISTINCT position FROM kill").fetchall()
    assert {place for (place,) in places} <= {"before", "window", "after"}
    assert processes_with(str(tmp_path)) == []


def test_report_has_what_machines_read(tmp_path: Path) -> None:
    told = ChaosReport(400, 0.08, 2, 0, (outcome(),)).to_json()
    assert json.loads(json.dumps(told)) == told
    [strategy] = told["strategies"]
    assert set(strategy) == {
        *("strategy", "runs", "completed", "lost", "failure", "kills", "wall_s"),
        *("cost_per_run", "restarts_per_run", "duplicate_effects", "expected_duplicates"),
    }
    for quantity in ("cost_per_run", "restarts_per_run", "expected_duplicates"):
        assert set(strategy[quantity]) == {"simulated", "exact", "low95", "high95", "published"}
    unexpected = outcome(expected={}).to_json()
    assert unexpected["cost_per_run"]["exact"] is None


def test_figure_says_what_it_draws() -> None:
    report = ChaosReport(400, 0.08, 2, 0, (outcome(), outcome(strategy="queue", duplicates=17)))
    picture = chaos_figure(report)
    assert "journal+key: cost per run 8.23" in picture.alt
    assert "queue: " in picture.alt
    assert "duplicate effects 17" in picture.alt
    assert "0.08" in picture.alt
    assert picture.png() == chaos_figure(report).png()
    names = [label.get_text() for label in picture.figure.axes[0].get_yticklabels()]
    assert names == ["journal+key", "queue"]
    alone = chaos_figure(ChaosReport(400, None, 2, 0, (outcome(expected={}),)))
    assert "exact" not in alone.alt
    assert "at random times" in alone.alt


@pytest.mark.slow
def test_chaos_agrees_with_theory(tmp_path: Path, figure: Callable[[str], None]) -> None:
    report = chaos(60, 0.08, 2, tmp_path / "c.db", seed=1)
    for found in report.strategies:
        numbers = ", ".join(
            f"{what} {measured:.3f} (exact {found.expected[what].mean:.3f})"
            for what, measured in found.measured().items()
        )
        figure(f"chaos, {found.strategy}: {found.kills} kills, {numbers}, {found.wall_s:.1f} s")
    assert [found.strategy for found in report.strategies] == [*CHAOS_STRATEGIES]
    assert report.complaints() == []
    with SQLiteJournal(tmp_path / "c.db", read_only=True) as journal:
        found_ok = verify(journal)
    assert (found_ok.ok, found_ok.runs) == (True, 120)
    with sqlite3.connect(tmp_path / "c.db-books.db") as base:
        places = Counter(place for (place,) in base.execute("SELECT position FROM kill"))
    third, kills = places.total() / 3, places.total()
    spread = (kills * (1 / 3) * (2 / 3)) ** 0.5
    assert all(abs(places[place] - third) < 4 * spread for place in ("before", "window", "after"))


@pytest.mark.slow
def test_chaos_at_random_times_loses_and_repeats_nothing(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    report = chaos(
        100, workers=2, journal=tmp_path / "c.db", strategies=("journal+key",), random_kills=100
    )
    [found] = report.strategies
    figure(f"chaos at random times: {found.kills} kills, {found.runs} runs, {found.wall_s:.1f} s")
    assert report.complaints() == []
    assert found.kills >= 100
    with SQLiteJournal(tmp_path / "c.db", read_only=True) as journal:
        assert verify(journal).ok


def started(journal: Path) -> subprocess.Popen[str]:
    """An experiment on its way: one that has begun to kill."""
    options = ["--runs=20", "--crash-rate=0.2", "--journal", str(journal), "--json"]
    options += [f"--strategy={strategy}" for strategy in TWO]
    process = subprocess.Popen(
        [*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    books = Path(f"{journal}-books.db")

    def kills() -> int:
        if not books.exists():
            return 0
        with Books(books) as opened:
            return opened.kills("restart")

    wait_until(lambda: kills() > 5)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_stopped_experiment_and_another_goes_on(
    tmp_path: Path, how: signal.Signals
) -> None:
    journal = tmp_path / "c.db"
    process = started(journal)
    wait_until(lambda: len(processes_with(str(journal))) > 2)  # a nursery and workers besides
    process.send_signal(how)
    said, complaint = process.communicate(timeout=LIMIT_S)
    wait_until(lambda: not processes_with(str(journal)))
    if how is signal.SIGINT:
        assert process.returncode == 130
        assert "goes on" in complaint
        told = json.loads(said)
        assert told["stopped"]
        assert told["strategies"][0]["kills"] > 5
    else:
        assert process.returncode == -signal.SIGKILL
    with Books(f"{journal}-books.db") as books:
        before = books.kills("restart")
    report = chaos(20, 0.2, 2, journal, strategies=TWO)
    assert report.strategies[0].kills >= before
    assert report.complaints() == []


def test_a_worker_that_fails_by_itself_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "no" / "folder")
    with Crew(Duty("restart", nowhere, nowhere, "http://127.0.0.1:1", 0.0, 0)) as crew:
        crew.start("w-1")
        with pytest.raises(RuntimeError, match=r"worker w-1: ValueError: .*unable to open"):
            wait_until(lambda: list(crew.listen()) and False)
    assert processes_with(nowhere) == []
