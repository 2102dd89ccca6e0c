"""The reference agent on production engines: the gate, the edits, and real kills on real engines.

An engine that isn't installed is skipped, with what is missing; its agent's text is checked anyway.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from durable_mini.cli import main as command
from durable_mini.lab.bench import bench
from durable_mini.lab.engines import by_hand, tables
from durable_mini.lab.engines.__main__ import main
from durable_mini.lab.engines.catalogue import BY_NAME, SETUPS, Setup, setup_named
from durable_mini.lab.engines.crashes import Row, crash_everywhere, summaries
from durable_mini.lab.engines.gate import PLACES, STEPS, Request, gated_world
from durable_mini.lab.engines.grid import (
    EDITS,
    KILLED_AT,
    Cell,
    Column,
    _judged,
    before_edit,
    measure,
)
from durable_mini.lab.engines.job import KEYLESS, WORLD
from durable_mini.lab.engines.pictures import bench_figure, edit_figure, speed_figure
from durable_mini.lab.engines.shipped import packed, shipped_measurements
from durable_mini.lab.engines.speed import OWN, Speed, compare
from durable_mini.lab.engines.stage import outside
from durable_mini.lab.engines.trial import Outcome
from durable_mini.lab.ledger import Ledger
from durable_mini.lab.world import Client
from durable_mini.lab.world.client import UnknownOutcomeError

REAL = [
    pytest.param(
        setup,
        id=setup.name,
        marks=[pytest.mark.slow, pytest.mark.skipif(bool(setup.missing()), reason=setup.missing())],
    )
    for setup in SETUPS
    if setup.name != "langgraph-sync"  # the same library as "langgraph", with one word changed
]
SCRIPTS = sorted({setup.path for setup in SETUPS})


# ---- the agents' files -------------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_agent_file_is_short_and_makes_the_seven_steps_in_order(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    _, _, body = text.rpartition("plan = ")
    names = ["plan", "research", "draft", "charge", "compose", "send_email", "update_crm"]
    places = [body.index(f'"{name}"' if f'"{name}"' in body else name) for name in names[1:]]

    assert len(text.splitlines()) <= 120
    assert places == sorted(places)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_edit_changes_every_agents_file_into_one_that_compiles(script: Path, edit: Any) -> None:
    text = before_edit(script.read_text(encoding="utf-8"))

    changed = edit.change(text)

    assert changed != text
    compile(changed, script.name, "exec")
    assert '"notes": notes' in text


def test_setup_that_is_unknown_is_refused_with_what_there_is() -> None:
    with pytest.raises(
        ValueError, match=r"no engine 'cadence'\. Next: choose from durable_mini, dbos"
    ):
        setup_named("cadence")


def test_setup_says_which_package_and_which_program_is_missing() -> None:
    about: tuple[Any, ...] = ("x", "Engine X", "nowhere", "x.py", ("no-such-package",), None)
    here: tuple[Any, ...] = ("x", "Engine X", "nowhere", "x.py", ("durable-mini",), None)
    programs = {"restate-server": lambda: None}

    assert Setup(*about).missing() == (
        "Engine X: no no-such-package here. Next: pip install no-such-package."
    )
    assert "npm install" in Setup(*here, programs=programs).missing()
    assert Setup(*here).missing() == ""


# ---- the world, and its gate -------------------------------------------------------------------


def test_agent_finds_the_world_it_was_started_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.delenv(WORLD, raising=False)
    assert isinstance(outside(), Ledger)
    with gated_world(tmp_path / "world.db", honours_keys=False) as gate:
        monkeypatch.setenv(WORLD, gate.url)
        outside().charge("o-1", 40, idempotency_key="k")
        monkeypatch.setenv(KEYLESS, "yes")
        outside().charge("o-1", 40, idempotency_key="k")

    assert [request.key for request in gate.requests] == ["k", ""]


@pytest.mark.parametrize(("position", "booked"), [("before", 0), ("window", 1)])
def test_gate_strikes_once_and_leaves_the_sender_without_an_answer(
    tmp_path: Path, position: str, booked: int
) -> None:
    struck = []
    with gated_world(tmp_path / "world.db") as gate:
        client = Client(gate.url)
        gate.arm(("charge", position), lambda: struck.append(gate.books.rows()))
        client.think("plan", "o-1")
        with pytest.raises(UnknownOutcomeError):
            client.charge("o-1", 40, idempotency_key="k")
        client.charge("o-1", 40, idempotency_key="k")
        assert len(gate.books.rows()) == 1

    assert [len(rows) for rows in struck] == [booked]
    assert [request.step for request in gate.requests] == ["plan", "charge", "charge"]


# ---- real kills --------------------------------------------------------------------------------


@pytest.mark.parametrize("setup", REAL)
def test_engine_repeats_the_charge_in_its_window_and_the_key_prevents_a_second_one(
    setup: Setup, figure: Any
) -> None:
    began_s = time.monotonic()
    (row,) = crash_everywhere(setup, places=[("charge", "window")], ways=[True])

    assert (row.completed, row.duplicates, row.again) == (1, 0, {"charge": 1})
    took_s = time.monotonic() - began_s
    figure(f"{setup.name}: gone on {row.recovered_s:.1f} s after the kill, {took_s:.1f} s in all")


@pytest.mark.slow
def test_without_a_key_the_charge_happens_twice() -> None:
    places = [("charge", "before"), ("charge", "window")]

    before, window = crash_everywhere(setup_named(OWN), places=places, ways=[False])

    assert (before.again, before.duplicates) == ({}, 0)
    assert (window.again, window.duplicates) == ({"charge": 1}, 1)


@pytest.mark.slow
def test_edit_that_exchanges_two_results_is_refused_and_the_old_code_goes_on() -> None:
    swap = next(edit for edit in EDITS if edit.name == "swap two steps with the same name")

    cell = measure(Column(OWN, setup_named(OWN), {}), swap)

    assert (cell.verdict, cell.executed_again, cell.back) == ("refused", (), True)
    assert cell.said is not None
    assert cell.said.startswith("NonDeterminismError: run o-1, event 3")


@pytest.mark.slow
def test_agents_file_run_by_hand_says_what_the_world_saw() -> None:
    by_hand_of = [sys.executable, str(setup_named(OWN).path), "--kill", "charge", "window"]

    done = subprocess.run(by_hand_of, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("key ticket-1/charge") == 2
    assert "Effects that happened twice: 0" in done.stdout


def test_by_hand_an_unknown_place_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        by_hand.main(OWN, ["--kill", "lunch", "before"])

    assert ended.value.code == 2
    assert "choose from plan, research" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(bool(BY_NAME["dbos"].missing()), reason=BY_NAME["dbos"].missing())
def test_engines_take_turns_and_the_ratio_is_of_each_turn() -> None:
    own, other = compare([setup_named("dbos")], rounds=1, round_s=0.01)

    assert (own.setup, own.ratio) == (OWN, 1.0)
    assert other.ratio == pytest.approx(own.steps_per_s / other.steps_per_s, rel=0.02)


def test_bench_without_engines_has_no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable_mini.lab.bench._paired", lambda *_: (1.0, 1.0, 1.0))
    asked: list[Any] = []
    speeds = [_speed(OWN, 700.0, 1.0), _speed("dbos", 100.0, 7.0)]
    monkeypatch.setattr("durable_mini.lab.bench._peers", lambda *_: asked.append(1) or speeds)

    assert bench()["peers"] == []
    measured = bench(engines=True)

    assert asked == [1]
    assert measured["durable_mini"]["agent_steps_per_s"] == 700.0
    (peer,) = measured["peers"]
    assert set(peer) == {"name", "version", "storage", "steps_per_s", "ratio"}
    assert "dbos: 100, durable_mini 7.0 times as many" in bench_figure(measured).alt.replace(
        " on a file", ""
    )


def test_bench_command_prints_the_engines_and_draws_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = {"name": "X", "version": "1.2", "storage": "a file", "steps_per_s": 80.0, "ratio": 9.0}
    own = {"floor": {}, "durable_mini": {"agent_steps_per_s": 720.0}, "ratios": {}}
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("durable_mini.cli.measure", lambda **given: asked.append(given) or measured)
    measured = {**own, "peers": [peer]}
    path = tmp_path / "engines.png"

    assert command(["bench", "--picture", str(path)]) == 0
    said = capsys.readouterr()

    assert "X 1.2" in said.out
    assert "9 times as many" in said.out
    assert "X on a file: 80, durable_mini 9.0 times as many" in said.err
    assert path.read_bytes().startswith(b"\x89PNG")
    assert asked[0]["engines"] is True

    measured = {**own, "peers": []}
    assert command(["bench", "--no-engines", "--picture", str(path)]) == 2
    assert "there is nothing to draw" in capsys.readouterr().err


# ---- what is made of it ------------------------------------------------------------------------


def _speed(name: str, rate: float, ratio: float) -> Speed:
    return Speed(name, name, "1", "a file", rate, ratio, ratio, ratio)


def _outcome(steps: str, **changed: Any) -> Outcome:
    requests = [Request(step, None, "", 0.0, 1) for step in steps.split()]
    values = {name: Ledger().think(task, None) for name, task in _TASKS.items()}
    told: dict[str, Any] = {"duplicates": 0, "result": values, "error": None, "refusal": None}
    return Outcome(KILLED_AT, tuple(requests), **{**told, **changed}, recovered_s=1.0)


_TASKS = {"plan": "plan", "notes": "research", "draft": "draft", "letter": "compose"}


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (_outcome("compose"), "right"),
        (_outcome("draft compose"), "right"),
        (_outcome("charge compose"), "repeated"),
        (_outcome("compose", result={"draft": "something else"}), "wrong"),
        (_outcome("charge", result={"draft": "something else"}), "wrong and repeated"),
        (_outcome("", result=None, error="Mismatch: no"), "refused"),
        (_outcome("", result=None, refusal="TMPRL1100"), "refused again and again"),
        (_outcome("", result=None), "stuck"),
    ],
)
def test_verdict_says_what_became_of_the_run(outcome: Outcome, verdict: str) -> None:
    assert _judged("x", EDITS[0], outcome, None).verdict == verdict


def test_summary_tells_lost_records_from_what_every_engine_repeats() -> None:
    rows = [
        Row("x", "charge", "window", True, 2, 2, {"charge": 2}, 0, 1.0),
        Row("x", "charge", "window", False, 2, 2, {"charge": 2}, 2, 1.0),
        Row("x", "compose", "before", True, 2, 1, {"charge": 1}, 0, 3.0),
    ]

    (one,) = summaries(rows)

    assert (one.trials, one.completed, one.again_in_window, one.lost_records) == (6, 5, 4, 1)
    assert (one.effect_windows, one.duplicates_with_key, one.duplicates_without_key) == (2, 0, 2)
    assert "charge x4" in tables.crash_table(rows)


def test_measurement_is_stored_with_its_versions_and_read_back() -> None:
    cell = Cell("durable_mini, edited", "add a step", "refused", (), 0, (), "No", True)

    stored = packed("a command", [cell])

    assert stored["origins"].keys() == {"durable_mini"}
    assert (
        Cell(
            **{
                **json.loads(json.dumps(stored["rows"][0])),
                "executed_again": (),
                "wrong_values": (),
            }
        )
        == cell
    )


def test_pictures_say_what_they_show() -> None:
    cells = [Cell("x", edit.name, "wrong", (), 0, (), None, None) for edit in EDITS]

    assert "in 5 of 5 cases it ends with wrong values and no word" in edit_figure(cells).alt
    speeds = speed_figure([_speed(OWN, 2_000.0, 1.0), _speed("x", 250.0, 8.0)])
    assert "x on a file: 250, durable_mini 8.0 times as many" in speeds.alt


def test_command_lists_what_is_here_and_refuses_what_isnt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["list", "--engine", OWN])
    assert "SQLite, WAL, synchronous=FULL" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["crashes", "--engine", "cadence"])

    assert ended.value.code == 2
    assert "no engine 'cadence'" in capsys.readouterr().err


# ---- what travels with the course --------------------------------------------------------------


def test_shipped_crashes_cover_every_place_and_no_keyed_effect_happened_twice() -> None:
    crashes = shipped_measurements().crashes

    assert {row.setup for row in crashes.rows} == set(BY_NAME)
    for name in BY_NAME:
        rows = crashes.of(name)
        assert {(row.step, row.position, row.with_key) for row in rows} == {
            (*place, way) for place in PLACES for way in (True, False)
        }
        assert all(row.completed == row.trials for row in rows)
        assert not any(row.duplicates for row in rows if row.with_key)
    for one in crashes.summaries():
        assert one.duplicates_without_key >= one.effect_windows
    assert crashes.origins.keys() == set(BY_NAME)
    assert "python -m durable_mini.lab.engines crashes" in crashes.source()


def test_shipped_edits_show_this_engine_refusing_and_the_others_as_they_are() -> None:
    edits = shipped_measurements().edits
    own = edits.of(OWN)

    assert {cell.edit for cell in own} == {edit.name for edit in EDITS}
    assert all(cell.verdict == "refused" and cell.back for cell in own)
    same_name = "swap two steps with the same name"
    for name in ("dbos, version pinned", "temporal", "restate", "absurd", "langgraph"):
        assert edits.cell(name, same_name).verdict == "wrong"
    with pytest.raises(KeyError):
        edits.of("cadence")


def test_shipped_speeds_are_beside_this_engine() -> None:
    speeds = shipped_measurements().speeds

    assert speeds.rows[0].setup == OWN
    assert {row.setup for row in speeds.rows} == set(BY_NAME)
    assert len(STEPS) == 7
    assert "durable_mini" in tables.speed_table(speeds.rows)
