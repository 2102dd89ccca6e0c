"""Figures of the crash lab: what they say in words, what they refuse, that they fit a notebook."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from durable_mini import Engine, FakeClock, FileJournal, Position
from durable_mini.lab.agent import agent_in
from durable_mini.lab.crash_pictures import byte_map, crash_grid, pair_grid
from durable_mini.lab.exploring import (
    Exploration,
    Fault,
    Outcome,
    Place,
    ReversibleLedger,
    approval_in,
    explore,
    saga_in,
)
from durable_mini.lab.ledger import Ledger
from durable_mini.lab.pictures import DPI, Picture
from durable_mini.lab.sweep import sweep_journal
from durable_mini.lab.sweep_report import Damage, Sweep, Verdict

pytestmark = pytest.mark.slow

TALLEST_IN = 10.5


@cache
def agent(*, keys: bool = True) -> Exploration:
    return explore(agent_in, "t-1", depth=2, world=lambda: Ledger(honour_keys=keys))


@cache
def saga() -> Exploration:
    fail = {"update_crm": ConnectionError("no line")}
    return explore(saga_in, "t-1", stalls=True, world=ReversibleLedger, fail=fail)


@cache
def swept() -> Sweep:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path, workflow = Path(folder, "j"), agent_in(Ledger())
        with FileJournal(path) as journal:
            engine = Engine(journal, [workflow], clock=FakeClock())
            engine.run(workflow, "t-1", run_id="r-1")
        return sweep_journal(path)


def long_one(calls: int) -> Exploration:
    """An exploration of so many calls, none of them crashed twice in the same place but one."""
    places = [Place(f"step-{n}", position) for n in range(calls) for position in Position]
    singles = [Outcome((Fault(place),)) for place in places]
    pairs = [Outcome((Fault(places[0]), Fault(place))) for place in places]
    wrong = Outcome((Fault(places[1]), Fault(places[7])), ("it went wrong",))
    return Exploration("long", 2, (Outcome(()), *singles, *pairs, wrong), 1.0)


def paged(**changes: object) -> Sweep:
    """A sweep of a database, made by hand."""
    flips = (Verdict.WHOLE, Verdict.UNTRIED) * 4_000 + (Verdict.REFUSED,) * 192
    cuts = (Verdict.REFUSED, *(Verdict.UNTRIED,) * 63) * 128 + (Verdict.WHOLE,)
    counts = {"cut": Counter(cuts), "flip": Counter(flips)}
    for counted in counts.values():
        del counted[Verdict.UNTRIED]
    found = replace(swept(), kind="sqlite", size=8_192, lines=(), cuts=cuts, flips=flips)
    return replace(found, counts=counts, **changes)


PICTURES = {
    "grid": lambda: crash_grid(agent()),
    "grid without keys": lambda: crash_grid(agent(keys=False)),
    "grid with stalls": lambda: crash_grid(saga()),
    "grid of many calls": lambda: crash_grid(long_one(30)),
    "pairs": lambda: pair_grid(agent()),
    "pairs without keys": lambda: pair_grid(agent(keys=False)),
    "pairs of many calls": lambda: pair_grid(long_one(30)),
    "lines": lambda: byte_map(swept()),
    "pages": lambda: byte_map(paged()),
}


def drawn(name: str) -> Picture:
    return PICTURES[name]()


@pytest.mark.parametrize("name", PICTURES)
def test_picture_fits_a_notebook_and_names_no_program(name: str) -> None:
    png = drawn(name).png()
    width, height = struct.unpack(">II", png[16:24])
    assert width <= 9.6 * DPI and height <= TALLEST_IN * DPI
    assert len(png) < 150_000
    assert b"matplotlib" not in png.lower()


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.slow
def test_picture_drawn_twice_has_the_same_bytes(name: str) -> None:
    assert drawn(name).png() == drawn(name).png()


# ---- crashes -----------------------------------------------------------------------------------


def test_crash_grid_says_how_many_places_and_what_is_done_again() -> None:
    assert crash_grid(agent()).alt == (
        "reference_agent with one crash at each of 27 places. 27 end as without a crash. In 7 of "
        "these work is done again: plan, research, draft, charge, compose, send_email, update_crm. "
        "None goes wrong."
    )


def test_crash_grid_names_the_first_crash_that_goes_wrong() -> None:
    alt = crash_grid(agent(keys=False)).alt
    assert "24 end as without a crash" in alt
    assert alt.endswith("3 go wrong, the first charge.window: charge for t-1: 40 is booked twice; "
                        "without a crash once.")  # fmt: skip


def test_crash_grid_of_stalls_has_rows_of_its_own() -> None:
    both, deaths = crash_grid(saga()), replace(saga(), outcomes=saga().outcomes[::2])
    assert "54 places" in both.alt
    assert both.figure.get_figheight() > crash_grid(deaths).figure.get_figheight() + 1.0


def test_crash_grid_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nothing was crashed\. Next: see \.failures"):
        crash_grid(replace(agent(), outcomes=agent().outcomes[:1]))


def test_pair_grid_counts_pairs_and_those_that_go_wrong() -> None:
    assert pair_grid(agent()).alt == (
        "reference_agent with two crashes, 421 pairs of places. 421 end as without a crash. "
        "None goes wrong."
    )
    found = agent(keys=False)
    wrong = [one for one in found.failures if len(one.schedule) == 2]
    assert f"{len(wrong)} go wrong, the first {wrong[0]}" in pair_grid(found).alt


def test_pair_grid_draws_every_pair_of_a_run_that_waits() -> None:
    found = explore(approval_in, "t-1", depth=2, only=["wait:manager", "run:claimed"])
    assert "not drawn" not in pair_grid(found).alt


def test_pair_grid_says_what_it_leaves_out() -> None:
    elsewhere = Outcome((Fault(Place("step-0", Position.AFTER)), Fault(Place("x", Position.AFTER))))
    found = long_one(3)
    found = replace(found, outcomes=(*found.outcomes, elsewhere))
    assert pair_grid(found).alt.endswith("1 of them are not drawn.")


def test_pair_grid_of_many_calls_has_one_row_a_call() -> None:
    few, many = pair_grid(long_one(22)).figure, pair_grid(long_one(23)).figure
    assert few.axes[0].images[1].get_array().shape == (66, 66)
    assert many.axes[0].images[1].get_array().shape == (23, 23)
    assert many.axes[0].images[1].get_array()[0, 2] == 3  # the worst of its nine


def test_pair_grid_of_single_crashes_is_refused() -> None:
    with pytest.raises(ValueError, match="depth=2"):
        pair_grid(explore(agent_in, "t-1", only=["charge"]))


# ---- bytes -------------------------------------------------------------------------------------


def test_byte_map_says_what_its_sweep_found() -> None:
    found, alt = swept(), byte_map(swept()).alt
    assert alt.startswith(f"file journal of {found.size:,} bytes: {found.size + 1:,} cuts")
    for verdict in (Verdict.TORN, Verdict.REFUSED):
        assert f"{found.counts['flip'][verdict]:,} {verdict}" in alt
    assert "none of them wrong" in alt


def test_byte_map_draws_each_line_of_a_file_in_two_halves() -> None:
    found = swept()
    images = byte_map(found).figure.axes[0].images
    sizes = [image.get_array().shape[1] for image in images[: 2 * len(found.lines)]]
    starts = [start for start, _ in found.lines]
    lengths = [end - start for start, end in zip(starts, [*starts[1:], found.size], strict=True)]
    assert sizes == [length for length in lengths for _ in range(2)]


def test_byte_map_of_a_database_takes_the_worst_of_each_cell() -> None:
    figure = byte_map(paged()).figure
    cuts, flips = (image.get_array() for image in figure.axes[0].images[:2])
    assert cuts.shape == (64, 2) and flips.shape == (64, 64)
    assert (flips[:62] == 1).all() and (flips[-1] == 3).all()


def test_byte_map_marks_what_is_wrong() -> None:
    flips = list(swept().flips)
    flips[100] = Verdict.WRONG
    wrong = (Damage(100, 0xFF, Verdict.WRONG, "it lied"),)
    found = replace(swept(), flips=tuple(flips), wrong=wrong)
    picture = byte_map(found)
    crosses = [line for line in picture.figure.axes[0].lines if len(line.get_xdata())]
    assert len(crosses) == 1 and "1 of them WRONG" in picture.alt
