"""The command: its answers, its exit status, one line for each mistake, JupyterLab started."""

from __future__ import annotations

import importlib
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
import typer
from gallery import fill as gallery_of_runs, rewrite

from durable_mini import Context, Engine, FakeClock, RetryPolicy, SQLiteJournal, cli, workflow
from durable_mini.cli.printing import lasting, seconds
from durable_mini.journal.file import FileJournal
from durable_mini.lab import course, notebooks

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = ("course", "results", "runs", "show", "verify", "prune", "work")


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


def fill(journal: Any) -> None:
    """A completed run, a failed one and one that nobody has driven."""
    with journal:
        engine = Engine(journal, workflows=[order], clock=FakeClock(1_700_000_000.0))
        engine.run(order, "book", run_id="good-1")
        engine.run(order, "bad", run_id="[red]bad")
        engine.start(order, "book", run_id="waiting")


@pytest.fixture
def filled(journal_path: Path) -> Path:
    fill(SQLiteJournal(journal_path))
    return journal_path


@pytest.fixture(params=[SQLiteJournal, FileJournal])
def either(journal_path: Path, request: pytest.FixtureRequest) -> Path:
    """A journal of either kind: its name doesn't tell which."""
    fill(request.param(journal_path))
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
        (["runs", "j", "--status", "asleep"], "needs_attention"),
        (["runs", "j", "--older-than", "2x"], "'2x' is no length of time"),
        (["runs", "j", "--older-than", "h"], "'h' is no length of time"),
        (["runs", "j", "--older-than", "-2h"], "'-2h' is no length of time"),
        (["show", "j", "r", "--generation", "0"], "--generation"),
        (["prune", "j"], "--older-than"),
        (["work", "j"], "--workflows"),
        (["work", "j", "--workflows", "flows", "--lease", "0"], "--lease"),
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

    try:
        said = read_until(terminal, "/15000000")
        process.send_signal(signal.SIGINT)
        said += read_until(terminal, "Ctrl-C")
        printed, _ = process.communicate(timeout=20)
    finally:
        process.kill()
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
    either: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["runs", str(either)]) == 0

    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1][:7] == ["good-1", "order", "2", "completed", "1", "7", "2"]
    assert rows[2][:7] == ["[red]bad", "order", "2", "failed", "1", "5", "2"]
    assert rows[2][-2:] == ["ConnectionError:", r"lost\n\x1b[31m"]
    assert rows[3][:7] == ["waiting", "order", "2", "pending", "0", "1", "0"]


def test_runs_as_json_is_read_back(either: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", str(either), "--json"]) == 0

    good, bad, pending = json.loads(capsys.readouterr().out)
    assert good["run_id"] == "good-1"
    assert good["cost"] == 2.0
    assert good["error"] is None
    assert bad["error"]["type"] == "ConnectionError"
    assert (pending["admitted_at"], pending["due_at"]) == (1_700_000_002.0, 0.0)


def told_ids(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> list[str]:
    assert cli.main(["runs", str(path), "--json", *options]) == 0
    return [run["run_id"] for run in json.loads(capsys.readouterr().out)]


def test_runs_are_chosen_by_status_and_by_age(
    filled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("durable_mini.clock.SystemClock.now", lambda _: 1_700_003_601.0)

    assert told_ids(capsys, filled, "--status", "failed") == ["[red]bad"]
    both = ["--status", "failed", "--status", "pending"]
    assert told_ids(capsys, filled, *both) == ["[red]bad", "waiting"]
    assert told_ids(capsys, filled, "--older-than", "1h") == ["good-1", "[red]bad"]
    assert told_ids(capsys, filled, "--older-than", "1h", *both) == ["[red]bad"]
    assert told_ids(capsys, filled, "--older-than", "3599s") == ["good-1", "[red]bad", "waiting"]
    assert told_ids(capsys, filled, "--older-than", "2d") == []


def test_runs_of_an_empty_journal_says_so(
    journal_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SQLiteJournal(journal_path).close()

    assert cli.main(["runs", str(journal_path)]) == 0
    assert capsys.readouterr().out == f"{journal_path} holds no runs yet.\n"


def test_runs_of_which_none_is_chosen_says_how_many_there_are(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["runs", str(filled), "--status", "suspended"]) == 0
    assert capsys.readouterr().out == f"{filled} holds none such, of 3 runs.\n"


def test_show_prints_the_history_shortened_and_harmless(
    either: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["show", str(either), "good-1"]) == 0

    said = capsys.readouterr().out
    assert "2023-11-14 22:13:20.000" in said
    assert "good-1/charge" in said
    assert "[bold]done xxx" in said
    assert "…" in said
    assert "event 2: compared by its type alone: " in said
    assert "Client" in said

    assert cli.main(["show", str(either), "[red]bad"]) == 0
    said = capsys.readouterr().out
    assert r"ConnectionError: lost\n\x1b[31m" in said
    assert "\x1b" not in said


def test_show_as_json_holds_every_event(either: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", str(either), "good-1", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert [event["seq"] for event in told["history"]] == [1, 2, 3, 4, 5, 6, 7]
    assert told["history"][3]["payload"]["key"] == "good-1/charge"
    assert told["input"] == "book"
    assert told["status"] == "completed"


def test_show_of_an_unknown_run_is_status_2(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = complaint(capsys, "show", filled, "nobody")

    assert status == 2
    assert "'nobody'" in said


def test_verify_says_that_all_is_well(either: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(either)]) == 0
    assert capsys.readouterr().out == "3 runs, 13 events: all is well\n"

    assert cli.main(["verify", str(either), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"ok": True, "runs": 3, "events": 13, "problems": []}


# ---- the timeline ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of every kind; their clock begins with the thousandth second."""
    path = tmp_path_factory.mktemp("gallery") / "journal"
    with FileJournal(path) as journal:
        gallery_of_runs(journal)
    return path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[str]:
    """The lines that `show` prints, with single blanks."""
    assert cli.main(["show", *map(str, arguments)]) == 0
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_show_tells_tries_waits_and_where_each_attempt_began(
    gallery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(capsys, gallery, "complete")

    assert lines[:2] == [
        "run complete: workflow order, version 1",
        "completed, attempts 6, cost 3.5",
    ]
    day = "1970-01-01 00:1"
    lost = "ConnectionError: lost; next try at"
    key = "complete/charge"
    for expected in (
        f"2 {day}6:40.000 0 s patch greet taken",
        "attempt 2 replays events 1 to 3, then goes on live",
        f'4 {day}6:40.000 0 s step reserve "TEA" 2',
        f"5 {day}6:40.000 0 s compensate charge registered",
        f"6 {day}6:40.000 0 s try charge {lost} {day}6:41.000 {key}",
        f"7 {day}6:41.000 1 s try charge {lost} {day}6:43.000 {key}",
        f'8 {day}6:43.000 3 s effect charge "{key}" at try 3 1.5 {key}',
        f"12 {day}6:43.000 3 s timer sleep until {day}7:43.000",
        f"13 {day}7:43.000 1 m 3 s fired sleep after 1 m",
        f"14 {day}7:43.000 1 m 3 s wait hurry until {day}7:53.000",
        f'15 {day}8:03.000 1 m 23 s signal hurry "too late"',
        f"18 {day}8:03.000 1 m 23 s timed_out hurry after 20 s",
        f"19 {day}8:03.000 1 m 23 s wait address without a time limit",
        f'20 {day}8:03.000 1 m 23 s received address {{"street": 1}} after 0 s',
        f"21 {day}8:03.000 1 m 23 s pivot",
        f"22 {day}8:03.000 1 m 23 s child complete/parcel workflow parcel",
        "attempt 6 replays events 1 to 23, then goes on live",
        f"24 {day}8:08.000 1 m 28 s joined complete/parcel 1.5 after 5 s",
    ):
        assert expected in lines


def test_show_tells_what_was_undone_and_why(
    gallery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(capsys, gallery, "cancelled")
    assert any(line.endswith("stop cancelled on request") for line in lines)
    assert any(
        line.endswith("is closed; waits for a person cancelled/flight~undo") for line in lines
    )
    assert any(" undo hotel " in line for line in lines)
    lines = shown(capsys, gallery, "spent")
    assert any(line.endswith("stop budget max_steps: 2 of 1") for line in lines)
    assert lines[2].startswith("error: BudgetExceededError: run spent, event 5: max_steps is 1")


def test_show_tells_what_a_run_waits_for_and_who_holds_it(
    gallery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, gallery, "waiting")[2] == "waits for child 'waiting/parcel'"
    parcel = shown(capsys, gallery, "waiting/parcel")
    until = "1970-01-01 00:19:36.000"
    assert parcel[2:4] == ["a child of run waiting", f"waits for timer 'sleep' until {until}"]
    held = shown(capsys, gallery, "running")[2]
    assert re.fullmatch(
        r"held by resume-\d+ until 1970-01-01 00:18:13.000, which is over: any worker may take it",
        held,
    )
    assert shown(capsys, gallery, "pending")[2] == "due at once"
    assert shown(capsys, gallery, "attention")[2] == "error: ZeroDivisionError"


def test_show_of_a_generation_names_the_others(
    gallery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = shown(capsys, gallery, "continued")
    assert newest[2] == "generation 3 of 3; --generation shows another: 1, 2"
    assert sum(" received " in line for line in newest) == 1
    first = shown(capsys, gallery, "continued", "--generation", "1")
    assert first[2] == "generation 1 of 3; --generation shows another: 2, 3"
    assert first[-1].endswith("continued poll input 1")
    assert cli.main(["show", str(gallery), "continued", "--generation", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["generation"], told["shown_generation"], len(told["history"])) == (3, 1, 5)

    status, said = complaint(capsys, "show", gallery, "continued", "--generation", "4")
    assert (status, "generation 4" in said) == (2, True)


def test_show_has_a_line_for_every_event_of_every_run(
    gallery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FileJournal(gallery, read_only=True) as journal:
        runs = [(row, journal.events(row)) for row in journal.rows() if row.pruned_at is None]
    assert len(runs) == 14
    for row, events in runs:
        lines = shown(capsys, gallery, row.run_id)
        rows = [line for line in lines if line[:1].isdigit()]
        assert [line.split()[0] for line in rows] == [str(event.seq) for event in events]


def test_show_of_a_payload_that_breaks_its_law_shows_it_as_it_is(
    journal_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with SQLiteJournal(journal_path) as journal:
        gallery_of_runs(journal)
    rewrite(
        journal_path,
        "waiting/parcel",
        lambda events: [events[0], events[1]._replace(text='{"odd":true}')],
    )
    assert shown(capsys, journal_path, "waiting/parcel")[-1].endswith('timer sleep {"odd": true}')


def test_a_pruned_run_is_counted_and_its_history_is_said_to_be_gone(
    gallery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["runs", str(gallery)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "Not listed: 1 pruned, of which only the id is left."

    status, said = complaint(capsys, "show", gallery, "pruned")
    assert status == 2
    assert "run pruned was pruned at 1970-01-01 00:16:40.000: its history is gone" in said


# ---- prune -------------------------------------------------------------------------------------


def test_prune_tells_what_it_removed(either: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["prune", str(either), "--older-than", "1d", "--dry-run"]) == 0
    would = "2 runs would be pruned that ended at least 1 d ago\n"
    assert capsys.readouterr().out == f"good-1\n[red]bad\n{would}"
    assert told_ids(capsys, either) == ["good-1", "[red]bad", "waiting"]

    assert cli.main(["prune", str(either), "--older-than", "1d", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"pruned": ["good-1", "[red]bad"], "dry_run": False}
    assert told_ids(capsys, either) == ["waiting"]

    assert cli.main(["prune", str(either), "--older-than", "1d"]) == 0
    assert capsys.readouterr().out == "0 runs pruned that ended at least 1 d ago\n"
    assert cli.main(["verify", str(either)]) == 0


def test_a_file_that_is_open_elsewhere_can_be_read_and_not_pruned(
    journal_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(FileJournal(journal_path))
    with FileJournal(journal_path):
        assert told_ids(capsys, journal_path) == ["good-1", "[red]bad", "waiting"]
        status, said = complaint(capsys, "prune", journal_path, "--older-than", "1d")
    assert status == 2
    assert "is open already, here or in another process" in said


# ---- damage ------------------------------------------------------------------------------------


def test_a_cut_off_last_line_is_told_and_changes_nothing(
    journal_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(FileJournal(journal_path))
    whole = journal_path.read_bytes()
    journal_path.write_bytes(whole[:-9])

    assert cli.main(["verify", str(journal_path)]) == 0
    said = capsys.readouterr()
    assert said.out == "2 runs, 12 events: all is well\n"
    assert "are no whole line" in said.err
    assert journal_path.read_bytes() == whole[:-9]


def test_a_damaged_line_of_a_file_is_named_by_run_and_event(
    journal_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(FileJournal(journal_path))
    lines = journal_path.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b"good-1", b"good-2")
    journal_path.write_bytes(b"".join(lines))

    assert cli.main(["verify", str(journal_path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["ok"]
    assert [(found["run_id"], found["seq"]) for found in told["problems"]] == [("good-1", 3)]

    status, said = complaint(capsys, "show", journal_path, "good-1")
    assert status == 2
    assert "run good-1, event 3" in said


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


def test_what_damage_left_behind_is_shown_and_never_obeyed(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(filled) as database:
        database.execute("INSERT INTO events VALUES ('\x1b[31m', 1, 1, 'x', 'x', 'x', 0.0, 0)")
        database.execute("UPDATE runs SET worker = '\x1b[31m' WHERE run_id = 'waiting'")
        database.execute("UPDATE runs SET status = 'running' WHERE run_id = 'waiting'")
    database.close()

    assert cli.main(["verify", str(filled)]) == 1
    said = capsys.readouterr().out
    assert r"run \x1b[31m has events only" in said
    assert cli.main(["show", str(filled), "waiting"]) == 0
    said += capsys.readouterr().out
    assert r"held by \x1b[31m until" in said
    assert "\x1b" not in said


def test_show_of_a_damaged_run_is_one_line_that_names_the_event(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(filled)

    status, said = complaint(capsys, "show", filled, "good-1")

    assert status == 2
    assert "run good-1, event 3" in said


@pytest.mark.parametrize("command", ["runs", "show", "verify", "prune", "work"])
@pytest.mark.parametrize("kind", ["missing", "empty", "text", "folder", "foreign", "cut"])
def test_what_is_no_journal_is_refused_and_left_alone(
    command: str, kind: str, tmp_path: Path, filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = {"show": ["r"], "prune": ["--older-than", "1d"], "work": ["--workflows", "test_cli"]}
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

    status, said = complaint(capsys, command, path, *needed.get(command, []))

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

    filled.unlink()
    fill(FileJournal(filled))
    assert told_ids(capsys, filled) == ["good-1", "[red]bad", "waiting"]


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


# ---- work --------------------------------------------------------------------------------------

FLOWS = """
import time
from pathlib import Path
from durable_mini import RunFailed, structure, workflow

@workflow()
def flow(ctx, what):
    ctx.step("begin", len, what)
    if what == "fails":
        raise RunFailed(what)
    if what == "breaks":
        raise KeyError(what)
    if what == "waits":
        ctx.wait_signal("go")
    return what

@workflow()
def other(ctx, _):
    return ctx.step("look", int)

@workflow()
def slow(ctx, folder):
    ctx.step("first", touch, folder)
    return ctx.step("second", int)

def touch(folder):
    Path(folder, "begun").touch()
    time.sleep(1.5)
    Path(folder, "done").touch()
"""


@pytest.fixture
def flows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with workflows, in the folder where the command runs."""
    name = f"flows_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(FLOWS)
    (tmp_path / f"{name}_empty.py").write_text("import json\n")
    (tmp_path / f"{name}_broken.py").write_text("import not_there_at_all\n")
    (tmp_path / f"{name}_odd.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def admit(journal: Any, flows: str, **runs: Any) -> None:
    module = importlib.import_module(flows)
    with journal:
        engine = Engine(journal, [module.flow, module.other, module.slow])
        for run_id, value in runs.items():
            which = run_id.partition("_")[0] if run_id.startswith(("slow", "other")) else "flow"
            engine.start(getattr(module, which), value, run_id=run_id)


@pytest.mark.parametrize("kind", [SQLiteJournal, FileJournal])
def test_work_drives_what_is_due_and_tells_what_came_of_it(
    kind: Any, journal_path: Path, flows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    admit(kind(journal_path), flows, a="a", b="fails", c="waits", d="breaks", other_1=1, other_2=2)
    command = ["work", str(journal_path), "--workflows", f"{flows}:flow", "--worker-id", "w1"]
    assert cli.main([*command, "--json"]) == 0

    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told.pop("wall_s") > 0
    counts = {"completed": 1, "failed": 1, "suspended": 1, "needs_attention": 1}
    none = dict.fromkeys(("pending", "running", "cancelled"), 0)
    assert told == {"worker": "w1", "attempts": 4, **counts, **none}
    warning, summary, left = said.err.splitlines()
    assert warning.startswith("durable-mini: run d needs attention")
    begin = "w1: 4 attempts, 1 completed, 1 suspended, 1 failed, 1 needs attention, "
    assert re.fullmatch(re.escape(begin) + r"[\d.]+ runs/s", summary)
    assert left == "left alone: 2 runs of 'other' version '1', whose workflow wasn't given"

    assert cli.main(["work", str(journal_path), "--workflows", flows]) == 0
    assert ": 2 attempts, 2 completed, 0 suspended, 0 failed, " in capsys.readouterr().err
    assert cli.main(["verify", str(journal_path)]) == 0


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("{}x", "there is no such module"),
        ("nowhere.{}", "there is no such module"),
        ("{}.more", "there is no such module"),
        ("{}_empty", "there is no workflow in it"),
        ("{}:touch", "there is no workflow 'touch' in it"),
        ("{}_broken", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("{}_odd", "ZeroDivisionError"),
        ("", "Empty module name"),
        (".flows", "relative"),
    ],
)
def test_work_with_a_module_that_it_cannot_use_is_one_line(
    filled: Path, flows: str, place: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = filled.read_bytes()
    status, said = complaint(capsys, "work", filled, "--workflows", place.format(flows))
    assert status == 2
    assert words in said
    assert filled.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_worker_that_is_told_to_stop_ends_its_step_and_gives_the_run_back(
    journal_path: Path, flows: str, tmp_path: Path, number: int, status: int
) -> None:
    admit(SQLiteJournal(journal_path), flows, slow_1=str(tmp_path))
    command = [sys.executable, "-m", "durable_mini", "work", str(journal_path)]
    options = ["--workflows", flows, "--worker-id", "w1", "--forever"]
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    wait_for(tmp_path / "begun")
    process.send_signal(number)
    _, said = process.communicate(timeout=30)

    assert process.returncode == status
    assert (tmp_path / "done").exists()
    lines = said.splitlines()
    assert lines[0].startswith("w1: 1 attempts, 0 completed, 0 suspended, 0 failed, 1 pending, ")
    assert lines[1:] == (["durable-mini: stopped by Ctrl-C"] if status else [])
    with SQLiteJournal(journal_path) as journal:
        row = journal.find("slow_1")
        assert (row.status, row.worker, row.due_at) == ("pending", None, 0.0)
        assert [event.name for event in journal.events(row)[1:]] == ["first"]


@pytest.mark.slow
def test_the_second_ctrl_c_ends_a_worker_at_once(
    journal_path: Path, flows: str, tmp_path: Path
) -> None:
    admit(SQLiteJournal(journal_path), flows, slow_1=str(tmp_path))
    command = [sys.executable, "-m", "durable_mini", "work", str(journal_path)]
    process = subprocess.Popen([*command, "--workflows", flows], stderr=subprocess.PIPE, text=True)
    wait_for(tmp_path / "begun")
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)

    assert process.returncode == 130
    assert said == "durable-mini: stopped by Ctrl-C\n"
    assert not (tmp_path / "done").exists()
    with SQLiteJournal(journal_path) as journal:
        assert journal.find("slow_1").status == "running"


@pytest.mark.slow
def test_work_shows_a_line_that_counts_on_a_terminal(
    journal_path: Path, flows: str, tmp_path: Path
) -> None:
    pty = pytest.importorskip("pty", reason="a terminal of our own needs a POSIX system")
    admit(SQLiteJournal(journal_path), flows, a="a", slow_1=str(tmp_path))
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-m", "durable_mini", "work", str(journal_path), "--workflows"]
    process = subprocess.Popen([*command, flows], stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    said = read_until(terminal, "1 attempts, 1 completed")
    said += read_until(terminal, "2 attempts, 2 completed, 0 suspended, 0 failed")
    printed, _ = process.communicate(timeout=30)
    os.close(terminal)
    assert (process.returncode, printed) == (0, b"")


def wait_for(path: Path) -> None:
    deadline_s = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("text", "number"), [("90s", 90), ("15m", 900), ("2h", 7_200), ("0.5d", 43_200), ("0s", 0)]
)
def test_a_length_of_time_is_read_with_its_unit(text: str, number: float) -> None:
    assert seconds(text) == number


@pytest.mark.parametrize("text", ["", "s", "2", "2 h", "-2h", "2hh", "nans", "1e3s", "2.5.1h"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no length of time"):
        seconds(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 s"), (0.0125, "0.0125 s"), (59.99, "60 s"), (60, "1 m"), (86_399, "23 h 59 m")],
)
def test_a_length_of_time_is_told_in_its_two_largest_units(number: float, text: str) -> None:
    assert lasting(number) == text


# ---- course ------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "course" / "pictures").mkdir(parents=True)
    (folder / "course" / ".ipynb_checkpoints").mkdir()
    (folder / "course" / ".ipynb_checkpoints" / "x.ipynb").write_text("no")
    (folder / "course" / "00_start_here.ipynb").write_text("first")
    (folder / "course" / "pictures" / "a.png").write_bytes(b"png")
    (folder / "exercises").mkdir()
    (folder / "exercises" / "02_replay.ipynb").write_text("stub")
    return folder


def test_copy_never_overwrites_what_the_reader_has(tmp_path: Path, source: Path) -> None:
    target = tmp_path / "mine"
    names = ("course/00_start_here.ipynb", "course/pictures/a.png", "exercises/02_replay.ipynb")

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
    assert len(course.copy_course(source, target).added) == 3


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
