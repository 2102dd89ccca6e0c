"""How much one record covers: closed form, list of all futures and engine agree; the pictures."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import pytest

from durable_mini import Engine, MemoryJournal
from durable_mini.lab.crashes import EQUAL_WEIGHTS, CrashPlan, Weights
from durable_mini.lab.granularity import (
    MAP_RATES,
    MAP_WRITES,
    PLACES,
    Phase,
    WriteCost,
    best_map,
    best_phases,
    beyond_work,
    bills_by_phases,
    exact_bill,
    granularity,
    granularity_slider,
    phased_agent,
    phases_of,
    rule_of_thumb,
    simulate_bill,
)
from durable_mini.lab.ledger import Ledger
from durable_mini.lab.limits_pictures import Bar, bill_picture, growth_picture, phases_picture
from durable_mini.lab.theory import exact

pytestmark = pytest.mark.slow

UNEVEN: list[Phase] = [(1.0, 2.0, 0.0), (3.0,), (1.0, 1.0)]
WEIGHTS = [EQUAL_WEIGHTS, (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.2, 0.5, 0.3)]


def all_futures(phase: Phase, rate: float, weights: Weights) -> tuple[float, float]:
    """Mean and variance of what a phase loses, by following every future call by call."""
    before, window, after = weights
    here = {(0, 0.0, 0.0): 1.0}  # call, spent in this attempt, lost before
    ended: defaultdict[float, float] = defaultdict(float)
    for _ in range(600):
        ahead: defaultdict[tuple[int, float, float], float] = defaultdict(float)
        for (call, spent, lost), chance in here.items():
            paid, last = spent + phase[call], call == len(phase) - 1
            ahead[0, 0.0, lost + spent] += chance * rate * before
            ahead[0, 0.0, lost + paid] += chance * rate * (window if last else window + after)
            if last:
                ended[lost] += chance * (1 - rate + rate * after)
            else:
                ahead[call + 1, paid, lost] += chance * (1 - rate)
        here = {state: chance for state, chance in ahead.items() if chance > 1e-16}
    mean = sum(lost * chance for lost, chance in ended.items())
    return mean, sum((lost - mean) ** 2 * chance for lost, chance in ended.items())


# Phases


@pytest.mark.parametrize(("calls", "phases"), [(7, 1), (7, 3), (7, 7), (24, 5), (1, 1)])
def test_calls_are_shared_out_evenly(calls: int, phases: int) -> None:
    lengths = [len(phase) for phase in phases_of(calls, phases)]

    assert (sum(lengths), len(lengths)) == (calls, phases)
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("phases", [0, -1, 8])
def test_calls_make_no_more_phases_than_there_are(phases: int) -> None:
    with pytest.raises(ValueError, match="1 to 7 phases"):
        phases_of(7, phases)


# The closed form


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_one_call_a_record_is_the_journal_of_the_theory(rate: float, weights: Weights) -> None:
    costs: list[Phase] = [(2.0,), (2.0,), (2.0,), (0.0,), (2.0,), (0.0,), (0.0,)]
    bill, true = (
        exact_bill(costs, rate, 0.0, weights=weights),
        exact("journal", rate, weights=weights),
    )

    assert bill.total == pytest.approx(true.cost.mean)
    assert bill.rework.sd == pytest.approx(true.cost.sd)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("phase", [(1.0,), (1.0, 1.0), (1.0, 2.0, 0.0, 3.0)])
def test_closed_form_agrees_with_the_list_of_all_futures(phase: Phase, weights: Weights) -> None:
    mean, variance = all_futures(phase, 0.2, weights)
    found = exact_bill([phase], 0.2, 0.0, weights=weights).rework

    assert found.mean == pytest.approx(mean)
    assert found.sd == pytest.approx(math.sqrt(variance))


def test_crash_costs_what_its_phase_has_done_and_no_more() -> None:
    """Crashes before the work: the tempting answer charges a full phase for each of them."""
    found = exact_bill([(1.0, 1.0)], 0.2, 0.0, weights=(1.0, 0.0, 0.0)).rework.mean

    assert found == pytest.approx(0.8 * 0.2 / 0.8**2)
    assert found < 2 * (1 / 0.8**2 - 1)


def test_run_without_crashes_pays_for_its_work_and_its_records() -> None:
    bill = exact_bill(UNEVEN, 0.0, 0.5)

    assert (bill.work, bill.writing, bill.rework.mean, bill.rework.sd) == (8.0, 1.5, 0.0, 0.0)
    assert (bill.extra, bill.total) == (1.5, 9.5)


def test_interval_of_the_bill_is_that_of_its_rework() -> None:
    bill = exact_bill(UNEVEN, 0.1, 0.5, 400)
    both = beyond_work(bill)

    assert both.mean == pytest.approx(bill.extra)
    assert both.high - both.mean == pytest.approx(bill.rework.high - bill.rework.mean)


@pytest.mark.parametrize(
    ("phases", "rate", "write", "weights", "told"),
    [
        ([], 0.1, 0.0, EQUAL_WEIGHTS, "needs a phase"),
        ([(1.0,), ()], 0.1, 0.0, EQUAL_WEIGHTS, "needs a phase"),
        ([(1.0,)], 1.0, 0.0, EQUAL_WEIGHTS, "crash rate"),
        ([(1.0,)], 0.1, -1.0, EQUAL_WEIGHTS, "zero or more"),
        ([(-1.0,)], 0.1, 0.0, EQUAL_WEIGHTS, "zero or more"),
        ([(1.0,)], 0.1, 0.0, (1.0, 1.0, 1.0), "weights"),
        ([(1.0,) * 400], 0.9, 0.0, EQUAL_WEIGHTS, "attempts"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(
    phases: Any, rate: float, write: float, weights: Weights, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        exact_bill(phases, rate, write, weights=weights)


# Through the engine


@pytest.mark.parametrize("weights", WEIGHTS)
def test_simulation_agrees_with_the_closed_form(weights: Weights) -> None:
    true = exact_bill(UNEVEN, 0.2, 0.25, 1_500, weights=weights)
    found = simulate_bill(UNEVEN, 0.2, 0.25, 1_500, weights=weights)

    assert abs(found.rework.mean - true.rework.mean) <= 3.5 * true.rework.se
    assert found.rework.sd == pytest.approx(true.rework.sd, rel=0.15)
    assert (found.work, found.writing) == (true.work, true.writing)


def test_simulation_of_one_seed_is_one_simulation() -> None:
    assert simulate_bill(UNEVEN, 0.2, 0.0, 50, 7) == simulate_bill(UNEVEN, 0.2, 0.0, 50, 7)
    assert simulate_bill(UNEVEN, 0.2, 0.0, 50, 7) != simulate_bill(UNEVEN, 0.2, 0.0, 50, 8)


def test_spend_of_lost_phases_is_billed_and_on_no_record() -> None:
    world = Ledger()
    agent = phased_agent(world, UNEVEN, CrashPlan(0.0, 0))
    run = Engine(MemoryJournal(), [agent]).run(agent, run_id="r")

    assert (run.result, run.cost, world.spent) == (6, 8.0, 8.0)


# The best size


def test_best_is_what_the_bills_say() -> None:
    bills = bills_by_phases(24, 0.02, 0.25)

    assert [bill.phases for bill in bills] == list(range(1, 25))
    assert min(bills, key=lambda bill: bill.extra).phases == best_phases(24, 0.02, 0.25) == 5
    for bill in bills:
        true = exact_bill(phases_of(24, bill.phases), 0.02, 0.25)
        assert bill.rework.mean == pytest.approx(true.rework.mean)


@pytest.mark.parametrize(("share", "size"), [(0.5, 1), (0.9, 1), (1.1, 2), (2.0, 2), (32.0, 8)])
def test_sharing_a_record_pays_from_where_a_write_costs_a_crash_of_one_call(
    share: float, size: int
) -> None:
    assert 480 / best_phases(480, 0.01, share * 0.01) == pytest.approx(size, abs=0.5)


def test_best_size_follows_the_rule_of_thumb_where_crashes_are_rare() -> None:
    for write in (0.01, 0.04, 0.16):
        best = 480 / best_phases(480, 0.001, write)
        assert abs(best - rule_of_thumb(0.001, write)) < 1


def test_cost_of_a_call_is_a_matter_of_units() -> None:
    assert best_phases(24, 0.02, 0.5, call_cost=2.0) == best_phases(24, 0.02, 0.25)
    assert rule_of_thumb(0.02, 0.5, 2.0) == rule_of_thumb(0.02, 0.25)


def test_without_crashes_or_without_a_price_the_best_is_an_end() -> None:
    assert (best_phases(24, 0.0, 0.01), rule_of_thumb(0.0, 0.01)) == (1, math.inf)
    assert (best_phases(24, 0.1, 0.0), rule_of_thumb(0.1, 0.0)) == (24, 0.0)


def test_map_grows_with_the_write_and_shrinks_with_the_crash_rate() -> None:
    grid = best_map(24, EQUAL_WEIGHTS)

    assert (len(grid), {len(row) for row in grid}) == (len(MAP_RATES), {len(MAP_WRITES)})
    assert all(row == sorted(row) for row in grid)
    assert all(list(column) == sorted(column) for column in zip(*grid, strict=True))
    assert grid[0][0] == 1
    assert grid[-1][-1] == 24


# The slider and the pictures


def test_slider_says_the_best_and_both_ends() -> None:
    widget = granularity_slider()
    assert "Best: 5 records, of up to 5 calls each. That adds 2.38 to the 24 calls" in widget._said
    assert "A record for each call adds 6.16, one for all of them 7.03." in widget._said
    widget.controls["write_cost"].value = 0.0
    assert widget.wait()
    assert "Best: a record for each call." in widget._said
    widget.controls["crash_rate"].value = 0.0
    widget.controls["write_cost"].value = 1.0
    assert widget.wait()
    assert "Best: one record for all 24 calls." in widget._said
    assert "The rule of thumb says no record at all." in widget._said


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("calls", "rate", "write"), [(2, 0.3, 3.0), (48, 0.3, 0.01), (48, 0.0, 0.0), (24, 0.002, 3.0)]
)
def test_every_corner_of_the_slider_can_be_drawn(
    calls: int, rate: float, write: float, place: str
) -> None:
    at = granularity({"calls": calls, "crash_rate": rate, "write_cost": write, "place": place})
    picture = at.picture()

    assert picture.alt == at.sentence()
    assert picture.png()[:4] == b"\x89PNG"


def test_bills_are_drawn_with_what_was_simulated() -> None:
    bars = [
        Bar(bill.phases, bill.writing, bill.rework.mean) for bill in bills_by_phases(8, 0.1, 0.1)
    ]
    points = {2: beyond_work(simulate_bill(phases_of(8, 2), 0.1, 0.1, 100))}
    picture = bill_picture(bars, points, "eight calls")

    assert picture.alt.startswith("eight calls. Cheapest with ")
    assert "of 1 simulated costs have the exact one" in picture.alt
    assert "simulated" not in bill_picture(bars, {}, "eight calls").alt
    assert picture.png() == picture.png()


def test_one_crash_is_drawn_for_each_way_to_record() -> None:
    alt = phases_picture([[1] * 6, [3, 3], [6]], 5, "six calls").alt

    assert alt.startswith("six calls. The worker dies after call 5. ")
    assert "6 records: 1 of 5 done again; 2 records: 2 of 5 done again; 1 record: 5 of 5" in alt


def test_growth_says_its_middle_its_end_and_its_limit() -> None:
    lines = {"whole": [1.0, 3.0, 6.0, 10.0], "reset": [1.0, 2.0, 1.0, 2.0], "short": [5.0, 20.0]}
    picture = growth_picture(lines, "sizes", "kB", limit=(20.0, "the limit"))

    assert "whole: 3 after 2, 10 after 4, 10 at most" in picture.alt
    assert "short: 5 after 1, 20 after 2" in picture.alt
    assert picture.alt.endswith("the limit: 20.")
    assert len(picture.png()) > 5_000


# What a write costs


def test_write_cost_shows_its_figures_to_the_live_page_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    bundles: list[dict[str, Any]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: bundles.append(data))
    measured = WriteCost()
    measured._ipython_display_()

    assert 0 < measured.memory_s < measured.disk_s
    assert list(tmp_path.iterdir()) == []
    (bundle,) = bundles
    assert bundle["text/plain"].startswith(measured.verdict())
    assert "ms" not in bundle["text/plain"] + bundle["text/html"]
    assert "ms on disk" in measured.figures()
