"""The lab of chapter 11: the shipped experiments, what kills can tell, and the museum, drawn."""

from __future__ import annotations

import json
import random
import shlex
from collections import Counter
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest

from durable_mini.events import Position
from durable_mini.lab import agent_in, exact, explore
from durable_mini.lab.chaos_shipped import DATA, packed, shipped_experiments
from durable_mini.lab.conformance import LAWS
from durable_mini.lab.experiment.books import Books
from durable_mini.lab.kill_pictures import StrategyLine, kills_picture, seen_picture
from durable_mini.lab.kill_rates import (
    MOST_KILLS,
    at_kills,
    bound_after_none,
    kills_sentence,
    kills_slider,
    rate_for,
    schedules_of,
    share_seen,
    tries_to_see,
)
from durable_mini.lab.museum import MUSEUM, HonestEngine, PatientEngine
from durable_mini.lab.museum_pictures import exhibit_cards, museum_grid
from durable_mini.lab.notebooks import MAX_PNG_BYTES
from durable_mini.lab.theory import STRATEGIES

pytestmark = pytest.mark.slow

SHIPPED = shipped_experiments()
STORED = json.loads((files("durable_mini.lab") / DATA).read_text(encoding="utf-8"))


# ---- the shipped experiments ---------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_experiment_is_what_its_command_asks_for(name: str) -> None:
    one = SHIPPED[name]
    words = shlex.split(one.command)
    asked = dict(pairwise(words))
    assert words[:2] == ["durable-mini", "chaos"] and words[-1] == "--json"
    assert one.report.runs == int(asked["--runs"])
    assert one.report.seed == int(asked["--seed"])
    assert one.report.workers == int(asked["--workers"])
    if "--random-kills" in asked:
        assert one.report.crash_rate is None
        assert {found.kills for found in one.report.strategies} == {int(asked["--random-kills"])}
    else:
        assert one.report.crash_rate == float(asked["--crash-rate"])
    assert ("--journal" in asked) >= bool(one.kills_at)


@pytest.mark.parametrize("name", SHIPPED)
def test_experiment_lost_nothing_and_contradicts_nothing(name: str) -> None:
    report = SHIPPED[name].report
    assert report.complaints() == [] and not report.stopped
    assert all(found.completed == found.runs for found in report.strategies)
    assert SHIPPED[name].outcome("journal+key").duplicates == 0


@pytest.mark.parametrize("name", SHIPPED)
def test_theory_computed_anew_is_what_was_printed_beside_the_experiment(name: str) -> None:
    for told, found in zip(
        STORED[name]["report"]["strategies"], SHIPPED[name].report.strategies, strict=True
    ):
        printed = {"cost": "cost_per_run", "restarts": "restarts_per_run"}
        for what, column in {**printed, "duplicates": "expected_duplicates"}.items():
            wanted = found.expected.get(what)
            stored = told[column]["exact"]
            assert stored == (None if wanted is None else pytest.approx(wanted.mean, abs=1e-5))
            assert found.measured()[what] == pytest.approx(told[column]["simulated"], abs=1e-5)


def test_experiments_theory_does_not_depend_on_the_model_of_today(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DURABLE_MINI_MODEL_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("DURABLE_MINI_MODEL", "some-model")
    assert "cost" in shipped_experiments()["large"].outcome("journal").expected


def test_exposures_are_the_kills_in_the_windows_of_effects() -> None:
    one = replace(
        SHIPPED["large"],
        kills_at={
            "journal": {
                ("charge", Position.WINDOW): 2,
                ("send_email", Position.WINDOW): 3,
                ("charge", Position.AFTER): 10,
                ("plan", Position.WINDOW): 10,
            }
        },
    )
    assert (one.exposures("journal"), one.exposures("restart")) == (5, 0)


def test_journal_without_keys_has_a_duplicate_for_each_exposure() -> None:
    """Two books, of the receiver and of the experiment, kept by two processes."""
    told = [one for one in SHIPPED.values() if "journal" in one.kills_at]
    assert told
    assert all(one.exposures("journal") == one.outcome("journal").duplicates for one in told)


def test_packed_experiment_has_the_places_of_its_kills(tmp_path: Path) -> None:
    path = tmp_path / "books.db"
    with Books(path) as books:
        for _ in range(2):
            books.note_kill("journal", "charge", "window")
        books.note_kill("journal", None, None)
        books.note_kill("queue", "plan", "after")
    stored = packed('{"runs": 3}', "durable-mini chaos", "2026-01-01", path)
    assert stored["kills_at"] == {"journal": {"charge.window": 2}, "queue": {"plan.after": 1}}
    assert stored["report"] == {"runs": 3}
    assert packed("{}", "", "")["kills_at"] == {}


def test_unknown_strategy_of_an_experiment_is_said() -> None:
    with pytest.raises(KeyError, match="restart"):
        SHIPPED["again"].outcome("restart")


# ---- what a zero is worth ------------------------------------------------------------------------


@pytest.mark.parametrize("tries", [1, 2, 37, 1_000, 10**9])
def test_bound_is_the_chance_at_which_none_happens_once_in_twenty(tries: int) -> None:
    bound = bound_after_none(tries)
    assert (1 - bound) ** tries == pytest.approx(0.05, rel=1e-4)
    if tries > 30:
        assert bound == pytest.approx(3 / tries, rel=0.06)


@pytest.mark.parametrize("chance", [0.5, 0.1, 0.01, 0.0001])
def test_tries_to_see_are_the_fewest_that_leave_one_miss_in_twenty(chance: float) -> None:
    tries = tries_to_see(chance)
    assert (1 - chance) ** tries <= 0.05 < (1 - chance) ** (tries - 1)


def test_a_bound_needs_a_try_and_a_chance() -> None:
    with pytest.raises(ValueError, match="without a single try"):
        bound_after_none(0)
    for chance in (0.0, 1.0):
        with pytest.raises(ValueError, match="chance="):
            tries_to_see(chance)
    with pytest.raises(ValueError, match="confidence="):
        bound_after_none(3, confidence=1.0)
    assert bound_after_none(10, confidence=0.5) < bound_after_none(10)


# ---- what was seen -------------------------------------------------------------------------------


def test_places_of_steps_are_those_that_the_explorer_finds() -> None:
    found = explore(agent_in, "t-1", depth=2, progress=False)
    for crashes in (1, 2):
        of_steps = [
            one
            for one in found.outcomes
            if len(one.schedule) == crashes
            and not any(fault.place.call.startswith("run:") for fault in one.schedule)
        ]
        assert len(of_steps) == schedules_of(crashes)


def test_share_seen_is_what_a_simulation_meets() -> None:
    """Runs of three steps, drawn by hand from the crash model, without any code of the lab."""
    luck, rate, runs, repeats = random.Random(5), 0.3, 30, 400
    met = Counter[int]()
    for _ in range(repeats):
        seen = {tuple(_crashes_of_a_run(luck, rate)) for _ in range(runs)}
        met.update(len(schedule) for schedule in seen)
    for crashes in (1, 2):
        simulated = met[crashes] / repeats / schedules_of(crashes, steps=3)
        assert share_seen(runs, rate, crashes, steps=3) == pytest.approx(simulated, abs=0.02)


def _crashes_of_a_run(luck: random.Random, rate: float) -> list[tuple[int, int]]:
    found, step = [], 0
    while step < 3:
        if luck.random() < rate:
            position = luck.randrange(3)
            found.append((step, position))
            step += position == 2
        else:
            step += 1
    return found


def test_share_seen_begins_at_none_and_ends_at_all() -> None:
    assert share_seen(0, 0.08) == share_seen(400, 0.0) == 0.0
    assert share_seen(10**6, 0.08, 2) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="crashes=0"):
        share_seen(1, 0.1, 0)


# ---- what kills cost -----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kills", [0.0, 0.05, 0.6, MOST_KILLS])
def test_rate_is_the_one_that_kills_so_often(strategy: str, kills: float) -> None:
    assert exact(strategy, rate_for(strategy, kills)).restarts.mean == pytest.approx(kills)


def test_kills_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown strategy 'queue'"):
        rate_for("queue", 1.0)
    for kills in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="from 0"):
            rate_for("journal", kills)


def test_sentence_has_the_numbers_of_the_frame() -> None:
    frame = at_kills(0.0, 400)
    said = (
        "0 kills per run: a run costs 8.00 when it starts over, with a queue or without, and 8.00"
    )
    assert kills_sentence(frame).startswith(said)
    restart, journal, _ = at_kills(2.0, 100).found
    said = kills_sentence(at_kills(2.0, 100))
    assert f"{restart.cost.mean:.2f}" in said and f"{journal.duplicates.mean:,.0f}" in said


def test_slider_follows_its_controls() -> None:
    live = kills_slider()
    before = live._image.value
    live.controls["kills"].value = 3.0
    live.controls["runs"].value = 50
    assert live.wait()
    assert live._said == kills_sentence(at_kills(3.0, 50)) and live._image.value != before
    assert "3 kills per run, 50 runs" in live._numbers.value
    live.controls["kills"].value = 0.0
    assert live.wait() and live._said.startswith("0 kills")


def test_kills_picture_tells_its_numbers() -> None:
    picture = kills_slider()._picture
    assert picture is not None and len(picture.png()) < MAX_PNG_BYTES
    assert "restart, queue: cost 11.19, duplicates 178" in picture.alt
    assert "12 points measured with real kills" in picture.alt


def test_kills_picture_without_points_says_nothing_of_any() -> None:
    frame = at_kills(1.0, 10)
    lines = [
        StrategyLine(
            one.strategy,
            (0.0, 5.0),
            (one.cost, one.cost),
            (one.duplicates, one.duplicates),
            (one.cost, one.duplicates),
        )
        for one in frame.found
    ]
    assert "points" not in kills_picture(lines, 1.0, 10).alt


def test_seen_picture_tells_the_share_at_the_mark() -> None:
    curves = {"one kill": {10: 0.1, 400: 0.9}, "two kills": {10: 0.0, 400: 0.154}}
    alt = seen_picture(curves, 400).alt
    assert alt.endswith("one kill: 90.0 %, two kills: 15.4 %.")


# ---- the museum ----------------------------------------------------------------------------------


def test_museum_grid_counts_what_the_exhibits_declare() -> None:
    picture = museum_grid()
    broken = frozenset().union(*(exhibit.breaks for exhibit in MUSEUM))
    begins = f"{len(MUSEUM)} broken engines and {len(LAWS)} laws."
    assert picture.alt.startswith(f"{begins} Between them they break {len(broken)} laws.")
    assert len(picture.png()) < MAX_PNG_BYTES
    assert picture.png() == museum_grid().png()


def test_museum_grid_tells_kept_laws_from_ones_that_are_not_offered() -> None:
    from durable_mini.lab.museum_pictures import _state

    waits = next(law for law in LAWS if law.needs == "waits")
    honest = next(one for one in MUSEUM if getattr(one, "offers", 0) == HonestEngine.offers)
    patient = next(one for one in MUSEUM if getattr(one, "offers", 0) == PatientEngine.offers)
    assert _state(honest, waits) == "not offered"
    assert {_state(patient, law) for law in LAWS} == {"keeps", "breaks"}


def test_cards_show_every_exhibit_with_its_fault_its_sight_and_its_code() -> None:
    cards = exhibit_cards()
    page, text = cards.to_html(), str(cards)
    assert page.count("<details>") == page.count("<pre>") == len(MUSEUM)
    for exhibit in MUSEUM:
        assert f"<strong>{exhibit.__name__}</strong>" in page
        assert f"{exhibit.__name__}: " in text
    assert "def may_go_on(self)" in page and "breaks = frozenset" not in page
    assert set(cards._repr_mimebundle_()) == {"text/html", "text/plain"}
