"""The detector lab: what comes of eight changes of the code under five identity policies."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from durable_mini.lab import drift_pictures as pictures
from durable_mini.lab.drift import (
    ARGUMENTS,
    BEGUN,
    COUNT,
    DRIFTS,
    KIND_NAME,
    MEASURED_DRIFTS,
    NAME,
    NONE,
    PEERS,
    POLICIES,
    Drift,
    Outcome,
    calls,
    detector_grid,
    hash_notices,
    on_the_engine,
    tally_all_places,
    try_drift,
)

PLACES = range(calls() + 1)


@pytest.fixture(scope="module")
def grid() -> dict[str, dict[str, Outcome]]:
    return detector_grid()


def silent(grid: dict[str, dict[str, Outcome]], policy: str) -> dict[str, str]:
    """The drifts that go wrong under a policy, and what they cost."""
    ends = {name: by_policy[policy] for name, by_policy in grid.items()}
    return {name: end.cost for name, end in ends.items() if end.verdict == "wrong"}


# ---- the grid ----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("recorded", PLACES)
def test_code_that_stayed_as_it_was_is_never_refused_and_ends_right(
    policy: str, recorded: int
) -> None:
    assert try_drift(BEGUN, policy, recorded).verdict == "right"


def test_each_policy_misses_what_it_does_not_compare(grid: dict[str, dict[str, Outcome]]) -> None:
    assert silent(grid, NONE) == silent(grid, COUNT)
    assert silent(grid, NONE) == {
        "reordered": "wrong weight and address",
        "same-name swap": "wrong weight",
        "argument changed": "wrong weight",
        "kind changed": "not reserved, wrong shelf",
        "added": "charged twice, ship all wrong",
        "removed": "not shipped",
        "body changed": "wrong shelf",
    }
    missed = {policy: set(silent(grid, policy)) for policy in POLICIES}
    assert missed[NAME] - missed[KIND_NAME] == {"kind changed"}
    assert missed[KIND_NAME] - missed[ARGUMENTS] == {"same-name swap", "argument changed"}
    assert missed[ARGUMENTS] == {"body changed"}


def test_rename_is_refused_though_it_would_have_ended_right(
    grid: dict[str, dict[str, Outcome]],
) -> None:
    said = {policy: end.said for policy, end in grid["renamed"].items()}
    refused = "refused at event 4"
    assert list(said.values()) == ["right", "right", refused, refused, refused]


def test_added_call_is_noticed_one_call_late_where_only_names_are_compared(
    grid: dict[str, dict[str, Outcome]],
) -> None:
    late, at_once = grid["added"][NAME], grid["added"][ARGUMENTS]

    assert (late.seq, at_once.seq) == (4, 3)
    assert [look.mistaken for look in late.looks] == [False, True, False]
    assert not any(look.mistaken for look in at_once.looks)


def test_count_refuses_only_records_that_are_left_over() -> None:
    refused = [
        (name, recorded)
        for name, drift in DRIFTS.items()
        for recorded in PLACES
        if try_drift(drift, COUNT, recorded).verdict == "refused"
    ]
    assert refused == [("removed", calls())]


@pytest.mark.parametrize("name", DRIFTS)
def test_lab_and_engine_end_alike_wherever_the_worker_dies(name: str) -> None:
    for policy, compare_arguments in ((KIND_NAME, False), (ARGUMENTS, True)):
        for recorded in PLACES:
            small = try_drift(DRIFTS[name], policy, recorded)
            real = on_the_engine(DRIFTS[name], recorded, compare_arguments=compare_arguments)
            assert (small.verdict, small.cost, small.seq) == (real.verdict, real.cost, real.seq)
            assert small.books == real.books


def test_refusal_does_nothing_in_the_shop() -> None:
    for drift in DRIFTS.values():
        for policy in POLICIES:
            end = try_drift(drift, policy)
            if end.verdict == "refused":
                assert [row.what for row in end.books] == ["charge"]
                assert {look.state for look in end.looks} <= {"handed out", "refused"}


def test_stricter_policy_lets_fewer_runs_go_wrong_and_stops_more() -> None:
    tallies = tally_all_places()

    assert {one.runs for one in tallies.values()} == {len(DRIFTS) * len(PLACES)}
    wrong = [one.wrong for one in tallies.values()]
    needless = [one.needless for one in tallies.values()]
    assert wrong == sorted(wrong, reverse=True)
    assert needless == sorted(needless)
    assert all(one.saved + one.wrong == tallies[NONE].wrong for one in tallies.values())


def test_structure_hash_notices_what_the_source_shows_of_the_calls() -> None:
    noticed = {name for name, drift in DRIFTS.items() if hash_notices(drift)}
    assert noticed == {"renamed", "reordered", "kind changed", "added", "removed"}


def test_unknown_policy_or_place_is_refused() -> None:
    with pytest.raises(ValueError, match="policy must be one of none, count"):
        try_drift(BEGUN, "hope")
    with pytest.raises(ValueError, match="has 0 to 6 calls, not 7"):
        try_drift(BEGUN, NAME, 7)


def test_code_of_ones_own_can_be_tried() -> None:
    def mine(ctx: Any, shop: Any) -> None:
        weight = ctx.step("ask", shop.ask, "weight in kg")
        ctx.effect("ship", shop.ship, 1, weight, "Oak Street 9")

    end = try_drift(Drift("mine", "ships at once", mine), KIND_NAME)
    assert end.said == "refused at event 3"
    assert [look.line for look in end.looks] == [2, 3]


# ---- the pictures ------------------------------------------------------------------------------


def test_grid_picture_says_what_it_found(grid: dict[str, dict[str, Outcome]]) -> None:
    alt = pictures.grid_picture(grid).alt

    assert "none 0, count 0, name 4, kind + name 5, kind + name + arguments 7" in alt
    assert "body changed (wrong shelf), refused by none" in alt
    assert "same-name swap (wrong weight), refused from kind + name + arguments on" in alt


def test_tally_picture_says_how_many_went_wrong() -> None:
    assert "none: 25 wrong in silence, 0 saved" in pictures.tally_picture(tally_all_places()).alt


def test_peers_picture_names_who_went_wrong_and_what_this_engine_did() -> None:
    own = {name: on_the_engine(DRIFTS[name]) for name in MEASURED_DRIFTS}
    alt = pictures.peers_picture(own).alt

    assert all(len(said) == len(MEASURED_DRIFTS) for said in PEERS.values())
    assert "same-name swap: 6 of 7" in alt
    assert alt.endswith("durable_mini refused 4 of 4.")


def test_code_that_is_shown_is_the_code_that_runs_with_its_changed_lines_marked() -> None:
    for drift in DRIFTS.values():
        lines = pictures.code_lines(drift)
        assert len(lines) == len(inspect.getsource(drift.code).splitlines())
        assert lines[0] == f"def {drift.code.__name__}(ctx, shop):"
        assert any("# <" in line for line in lines) or drift.name == "removed"


def test_all_scenes_of_a_story_have_one_size() -> None:
    drift = DRIFTS["added"]
    looks = try_drift(drift, NONE).looks
    sizes = {
        tuple(pictures.scene_picture(pictures.Scene(look, drift, NONE)).figure.get_size_inches())
        for look in looks
    }
    assert len(sizes) == 1
    assert [look.state for look in looks] == [*["handed out"] * 5, "executed", "executed", "ended"]


def test_walk_opens_where_the_price_is_taken_for_the_weight_and_follows_its_choices() -> None:
    walk = pictures.detector_walk()

    assert walk.values == {
        "drift": "same-name swap",
        "policy": KIND_NAME,
        "recorded": 5,
        "frame": 1,
    }
    assert "it is handed 40, the record of another call" in walk._said
    walk.controls["policy"].value = ARGUMENTS
    assert walk.wait()
    assert "they differ: refused" in walk._said
    walk.controls["recorded"].value = 0
    assert walk.wait()
    assert "has nothing there, so it is executed" in walk._said
