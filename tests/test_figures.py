"""Figures: what they say in words, what they refuse, and that their bytes don't change."""

from __future__ import annotations

import re
import struct
from dataclasses import replace

import nbformat
import pytest

from durable_mini.events import EventKind, Position
from durable_mini.lab.chapters import titles_on_map
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.lab.figures import (
    Attempt,
    Box,
    Moment,
    Picture,
    Watch,
    cost_curves,
    course_map,
    duplicate_counts,
    numbers_table,
    results_figure,
    run_timeline,
    three_views,
)
from durable_mini.lab.pictures import DPI, blank_figure
from durable_mini.lab.shape import REFERENCE_SHAPE, Shape, shape_of
from durable_mini.lab.simulation import simulate
from durable_mini.lab.theory import STRATEGIES, Result, exact


def expected_results(
    crash_rate: float = 0.08, runs: int = 400, shape: Shape = REFERENCE_SHAPE
) -> list[Result]:
    return [exact(strategy, crash_rate, runs, shape=shape) for strategy in STRATEGIES]


def size_of(png: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", png[16:24])
    return width, height


MOMENT = Moment(
    "After recovery",
    ("1 admitted", "2 step      plan"),
    ("plan       replayed",),
    ("charge     t-1/charge", "charge     t-1/charge"),
    frozenset({1}),
)

PICTURES = {
    "results": lambda: results_figure(expected_results()),
    "curves": lambda: cost_curves(expected_results()),
    "duplicates": lambda: duplicate_counts(expected_results()),
    "timeline": lambda: run_timeline([Attempt((Box("plan"), Box("charge", "live", "effect")))]),
    "views": lambda: three_views(MOMENT),
    "map": lambda: course_map({"kill": "00 Start here"}),
    "whole map": lambda: course_map(titles_on_map()),
}


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.slow
def test_picture_drawn_twice_has_the_same_bytes(name: str) -> None:
    assert PICTURES[name]().png() == PICTURES[name]().png()


@pytest.mark.parametrize("name", PICTURES)
def test_picture_fits_a_notebook_and_names_no_program(name: str) -> None:
    png = PICTURES[name]().png()
    assert size_of(png)[0] <= 9.6 * DPI
    assert len(png) < 150_000
    assert b"matplotlib" not in png.lower()


def test_picture_hands_over_png_and_alt_text_in_both_places() -> None:
    picture = Picture(blank_figure(1, 1), "Nothing is drawn.")
    data, metadata = picture._repr_mimebundle_()
    assert data["text/plain"] == "Nothing is drawn."
    assert metadata == {"image/png": {"alt": "Nothing is drawn."}}
    assert "\n" not in data["image/png"]


@pytest.mark.slow
def test_page_made_by_nbconvert_shows_the_finding_under_the_picture(tmp_path) -> None:
    nbconvert = pytest.importorskip("nbconvert")
    from durable_mini.lab.notebooks import execute

    source = "from durable_mini.lab.figures import course_map\ncourse_map({})"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    execute(notebook, tmp_path / "one.ipynb")
    alt = course_map({}).alt
    lab_page, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    assert f"<em>{alt}</em>" in lab_page
    classic_page, _ = nbconvert.HTMLExporter(template_name="classic").from_notebook_node(notebook)
    assert f'alt="{alt}"' in classic_page


# ---- results -----------------------------------------------------------------------------------


def test_results_figure_says_what_its_data_say() -> None:
    alt = results_figure(expected_results()).alt
    assert "12.15 with restart" in alt
    assert "227 with restart, 34 with journal, 0 with journal+key" in alt
    assert "Crash rate 0.08, 400 simulated runs" in alt


def test_results_figure_takes_results_in_any_order() -> None:
    assert results_figure(expected_results()[::-1]).alt == results_figure(expected_results()).alt


def test_results_figure_without_each_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not restart, journal$"):
        results_figure(expected_results()[:2])


def test_results_figure_of_mixed_settings_is_refused() -> None:
    restart, journal, keyed = expected_results()
    with pytest.raises(ValueError, match="different settings"):
        results_figure([restart, journal, replace(keyed, runs=50)])


@pytest.mark.parametrize(
    ("crash_rate", "runs", "steps"), [(0.0, 1, 1), (0.3, 40_000, 14), (0.6, 400, 3), (0.01, 50, 7)]
)
@pytest.mark.slow
def test_results_figure_draws_every_corner_of_the_slider(
    crash_rate: float, runs: int, steps: int
) -> None:
    shape = shape_of(steps)
    picture = results_figure(expected_results(crash_rate, runs, shape), shape=shape)
    assert size_of(picture.png())[0] == 1056


def test_results_figure_of_simulated_runs_names_simulated_and_exact() -> None:
    simulated = [simulate(strategy, runs=50) for strategy in STRATEGIES]
    alt = results_figure(simulated).alt
    assert f"{simulated[0].cost.mean:.2f} with restart" in alt
    assert "(exact 12.15, 8.23, 8.23)" in alt


def test_cost_curves_count_the_points_whose_interval_holds_the_exact_value() -> None:
    good = exact("restart", 0.08)
    far = replace(good, cost=replace(good.cost, mean=20.0, low=19.0, high=21.0))
    assert "interval of 1 of 2 simulated points" in cost_curves([good, far]).alt
    assert "simulated" not in cost_curves().alt
    assert "from 8.84 to 25.36 when it starts over" in cost_curves().alt


def test_duplicate_counts_names_exact_beside_simulated() -> None:
    alt = duplicate_counts(expected_results()).alt
    assert alt.endswith("0 with journal+key (exact 226.6, 33.8, 0.0).")


# ---- a run's attempts --------------------------------------------------------------------------


def drive(watch: Watch, calls: list[tuple[str, EventKind]], *, keeps_journal: bool = True) -> None:
    """Make the calls as the engine does: the probe sees live calls only."""
    recorded = 0
    while True:
        if not keeps_journal:
            recorded = 0
        try:
            for name, kind in calls[recorded:]:
                watch(Position.BEFORE, kind, name)
                watch(Position.WINDOW, kind, name)
                recorded += 1
                watch(Position.AFTER, kind, name)
        except InjectedCrash:
            continue
        return


CALLS = [("plan", EventKind.STEP), ("charge", EventKind.EFFECT), ("tell", EventKind.STEP)]


def states(attempt: Attempt) -> list[str]:
    return [f"{box.name} {box.state}" for box in attempt.boxes]


@pytest.mark.parametrize(
    ("position", "replayed"),
    [
        (Position.BEFORE, ["plan"]),
        (Position.WINDOW, ["plan"]),
        (Position.AFTER, ["plan", "charge"]),
    ],
)
def test_watch_replays_what_was_journalled_before_the_crash(
    position: Position, replayed: list[str]
) -> None:
    watch = Watch(CrashAt("charge", position))
    drive(watch, CALLS)
    first, second = watch.attempts
    assert first.crash == ("charge", str(position))
    assert states(first) == ["plan live", "charge live"]
    assert [box.name for box in second.boxes if box.state == "replayed"] == replayed
    assert [box.name for box in second.boxes] == ["plan", "charge", "tell"]
    assert second.crash is None


def test_watch_of_a_run_without_journal_replays_nothing() -> None:
    watch = Watch(CrashAt("tell", Position.AFTER), keeps_journal=False)
    drive(watch, CALLS, keeps_journal=False)
    assert states(watch.attempts[1]) == ["plan live", "charge live", "tell live"]


def test_watch_agrees_with_the_engine() -> None:
    from durable_mini import Engine, MemoryJournal
    from durable_mini.lab.agent import agent_in
    from durable_mini.lab.ledger import Ledger

    agent = agent_in(Ledger())
    watch = Watch(CrashAt("charge", Position.WINDOW))
    engine = Engine(MemoryJournal(), [agent], probe=watch)
    run_id = engine.start(agent, "t-1")
    with pytest.raises(InjectedCrash):
        engine.resume(run_id)
    engine.resume(run_id)
    alt = run_timeline(watch.attempts).alt
    assert "Attempt 2 replayed plan, research, draft; executed charge" in alt
    assert alt.endswith("Executed again: charge (2 times).")


def test_timeline_says_where_an_attempt_died() -> None:
    boxes = (Box("plan"), Box("charge", "live", "effect"))
    alts = {
        position: run_timeline([Attempt(boxes, ("charge", position))]).alt
        for position in ("before", "window", "after")
    }
    assert "executed plan; died at charge, before the work" in alts["before"]
    assert "executed plan, charge; died at charge, in the crash window" in alts["window"]
    assert "died at charge, after the journal write" in alts["after"]


def test_timeline_tells_a_failed_step_from_an_executed_one() -> None:
    alt = run_timeline([Attempt((Box("plan"), Box("charge", "failed", "effect")))]).alt
    assert alt == (
        "Attempt 1 executed plan; saw the failure of charge. Nothing was executed twice."
    )


def test_timeline_of_many_steps_stays_inside_its_sheet() -> None:
    boxes = tuple(Box(spec.name, "live", spec.kind) for spec in shape_of(14))
    assert size_of(run_timeline([Attempt(boxes)]).png())[0] <= 9.6 * DPI


@pytest.mark.parametrize("crash", [("plan", "window"), ("charge", "somewhere")])
def test_timeline_of_an_impossible_crash_is_refused(crash: tuple[str, str]) -> None:
    boxes = (Box("plan"), Box("charge", "live", "effect"))
    with pytest.raises(ValueError, match="attempt 1 crashed at"):
        run_timeline([Attempt(boxes, crash)])


def test_timeline_without_an_attempt_is_refused() -> None:
    with pytest.raises(ValueError, match="without an attempt"):
        run_timeline([])


# ---- three views and the map -------------------------------------------------------------------


def test_three_views_name_the_duplicate() -> None:
    alt = three_views(MOMENT).alt
    assert alt.startswith("After recovery. Rows: 2 in the journal, 2 in the outside ledger")
    assert alt.endswith("Duplicate: charge t-1/charge.")


def test_three_views_of_a_dead_process_say_so() -> None:
    alt = three_views(replace(MOMENT, memory=None, duplicates=frozenset())).alt
    assert "the worker's process is dead" in alt
    assert alt.endswith("No duplicate.")


def test_three_views_keep_their_size_while_there_is_room() -> None:
    empty = Moment("Start", (), (), ())
    assert size_of(three_views(MOMENT).png()) == size_of(three_views(empty).png())
    assert size_of(three_views(empty, lines=9).png())[1] > size_of(three_views(empty).png())[1]


def test_course_map_refuses_a_place_it_has_not_got() -> None:
    with pytest.raises(ValueError, match="no place 'moon', only words, kill, window, replay, path"):
        course_map({"moon": "99"})


def test_course_map_says_in_words_what_its_cards_ask() -> None:
    alt = course_map({"wait": "07 waits"}).alt

    assert alt.endswith("And what if somebody must say yes first: 07 waits.")
    assert "And what if" not in course_map({"kill": "00 start here"}).alt


# ---- numbers -----------------------------------------------------------------------------------

ROWS = [
    {"strategy": "restart", "runs": 4000, "cost": 12.1539, "published": 12.43},
    {"strategy": "journal", "runs": 400, "cost": 8.2254, "published": None},
]


def test_numbers_table_prints_aligned_text() -> None:
    assert str(numbers_table(ROWS, "Cost per run")).splitlines() == [
        "Cost per run",
        "strategy   runs    cost  published",
        "----------------------------------",
        "restart   4,000  12.154     12.430",
        "journal     400   8.225          -",
    ]


def test_numbers_table_has_header_cells_and_escapes_its_text() -> None:
    page = numbers_table([{"<b>": "a & b", "n": 1}], "x < y").to_html()
    assert "&lt;b&gt;" in page and "a &amp; b" in page and "x &lt; y" in page
    assert re.findall(r'scope="(\w+)"', page) == ["col", "col", "row"]


def test_numbers_table_shows_the_same_text_and_html_each_time() -> None:
    assert numbers_table(ROWS)._repr_mimebundle_() == numbers_table(ROWS)._repr_mimebundle_()


def test_numbers_table_refuses_rows_that_do_not_match() -> None:
    with pytest.raises(ValueError, match="row 2 has columns"):
        numbers_table([{"a": 1}, {"b": 1}])
    with pytest.raises(ValueError, match="at least one row"):
        numbers_table([])
