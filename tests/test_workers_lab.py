"""Workers on one run: real ones, paused and woken; fences that fail; how long a lease is."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import scripted

from durable_mini import Engine, EventKind, FakeClock, LeaseLostError, RunStatus
from durable_mini.events import RunRow
from durable_mini.lab.fences import FencedByName, Page, Unfenced
from durable_mini.lab.leases import (
    LONG,
    SHORT,
    Setting,
    engine_recovery,
    engine_takeovers,
    false_takeovers,
    lapse_chance,
    lapses,
    lease_frame,
    lease_slider,
    pause_length,
    recovery,
    simulate,
    takeover_chance,
)
from durable_mini.lab.workers_pictures import Lapse, lapse_strip, lease_figure, stage_picture
from durable_mini.lab.zombie import Act, Stage, night_explorer, night_sentence, zombie_night

pytestmark = pytest.mark.slow

AGENT = scripted(lambda c: None)


def said(stage: Stage) -> list[str]:
    return [str(act) for act in stage.story]


def nobody_left(group: int, limit_s: float = 10.0) -> bool:
    """Whether a process group comes to its end."""
    give_up_at = time.monotonic() + limit_s
    while time.monotonic() < give_up_at:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


# A zombie


@pytest.mark.slow
def test_write_of_a_woken_worker_is_refused_by_its_token() -> None:
    night = zombie_night("after charge")
    told = [str(act) for act in night.story]

    assert told.index("A is paused") < told.index("B claims 2") < told.index("A wakes up")
    assert told[-2:] == ["A is refused charge", "A ends"]
    assert "A holds token 1, the run is at token 3 of nobody" in night.story[-2].more
    assert (night.problem, night.status, night.asked, night.booked) == (
        "",
        "completed",
        (2, 1),
        (1, 1),
    )


@pytest.mark.slow
@pytest.mark.parametrize("place", ["draft", "before charge", "before mail", "after mail"])
def test_fence_keeps_the_journal_right_wherever_the_worker_was_paused(place: str) -> None:
    night = zombie_night(place, honour_keys=False)

    assert night.refused
    assert (night.problem, night.status) == ("", "completed")
    assert [event.split()[0] for event in night.events].count("completed") == 1


@pytest.mark.slow
def test_without_a_fence_a_run_ends_twice_and_its_token_goes_back() -> None:
    night = zombie_night("draft", fence="off")

    assert [event.split()[0] for event in night.events][4::4] == ["completed", "failed"]
    assert night.problem == "4 more events follow the ending"
    assert [a.more for a in night.story if a.what in {"completed", "failed"}] == ["3", "2"]
    assert (night.status, night.letters, night.booked) == ("failed", ("letter by B",), (1, 1))


@pytest.mark.slow
def test_request_that_was_under_way_is_not_called_back_by_the_fence() -> None:
    night = zombie_night("before charge", honour_keys=False)

    assert night.booked == (2, 1)
    assert "booked 2 charges; the customer got 1 letter, by A." in night_sentence(night)


@pytest.mark.slow
def test_same_night_tells_the_same_story() -> None:
    first = zombie_night("draft")
    zombie_night.cache_clear()

    assert zombie_night("draft") == first


@pytest.mark.slow
def test_pause_never_falls_into_a_journal_write() -> None:
    """A heart that beats every few milliseconds is nearly always in one, with the file's lock."""
    for _ in range(4):
        with Stage(lease_s=0.01) as stage:
            a = stage.worker("A", stands_at="after charge")
            a.pause()
            began = time.monotonic()
            assert stage.worker("B").ends() == 0
            assert time.monotonic() - began < 20.0
            a.wakes()
            a.ends()


@pytest.mark.slow
def test_lock_lets_nobody_in_while_its_holder_is_paused() -> None:
    with Stage(fence="lock") as stage:
        a = stage.worker("A", stands_at="after charge")
        a.pause()
        assert stage.worker("B").ends() == 0
        a.is_killed()
        stage.worker("C").ends()
        story = said(stage)

    assert story.index("B is locked out") < story.index("A is killed") < story.index("C claims 2")


@pytest.mark.slow
@pytest.mark.parametrize(("fence", "refused"), [("name", False), ("token", True)])
def test_fence_by_name_takes_one_process_for_another(fence: str, refused: bool) -> None:
    with Stage(fence=fence) as stage:
        old = stage.worker("pod-0", stands_at="after charge")
        old.pause()
        new = stage.worker("pod-0", stands_at="before mail")
        assert new.stands() == "before mail"
        old.wakes()
        old.is_through()
        new.goes_on()
        new.ends()
        old.ends()
        assert ("pod-0 is refused charge" in said(stage)) is refused
        assert bool(stage.problems) is not refused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("door", "place", "on_page"),
    [
        ("open", "before put", "text by A"),
        ("look first", "before look", "text by B"),
        ("look first", "before put", "text by A"),
        ("token", "before put", "text by B"),
    ],
)
def test_only_the_check_within_the_write_protects_a_page(
    door: str, place: str, on_page: str
) -> None:
    with Stage("page", door=door) as stage:
        a = stage.worker("A", stands_at=place)
        a.pause()
        stage.worker("B").ends()
        a.wakes()
        a.ends()
        assert (stage.page, stage.result) == (on_page, "text by B")


@pytest.mark.slow
@pytest.mark.parametrize(("evict", "exit_status", "charges"), [(False, 0, 1), (True, -9, 2)])
def test_drained_worker_gives_its_run_back_and_an_evicted_one_does_not(
    evict: bool, exit_status: int, charges: int
) -> None:
    with Stage() as stage:
        old = stage.worker("old", stands_at="after charge", forever=True)
        old.is_told_to_stop()
        if evict:
            old.is_killed()
        else:
            old.goes_on()
        assert old.ends() == exit_status
        assert (stage.row.worker, stage.row.status) == (
            ("old", RunStatus.RUNNING) if evict else (None, RunStatus.PENDING)
        )
        stage.worker("new").ends()
        assert (stage.asked("charge"), stage.row.status) == (charges, RunStatus.COMPLETED)


@pytest.mark.slow
def test_worker_of_another_version_leaves_the_run_alone() -> None:
    with Stage() as stage:
        stage.worker("new", versions="2").ends()
        assert said(stage) == ["new finds nothing to do", "new ends"]
        assert (stage.row.status, stage.attempts) == (RunStatus.PENDING, 0)
        stage.worker("both", versions="12").ends()
        assert stage.row.status is RunStatus.COMPLETED


@pytest.mark.slow
def test_two_workers_share_runs_without_doing_one_twice() -> None:
    with Stage(runs=8, lease_s=30.0) as stage:
        for worker in (stage.worker("A"), stage.worker("B")):
            worker.ends()
        found = (stage.ended, stage.attempts, stage.asked("charge"), stage.booked("mail"))
    assert found == (8, 8, 8, 8)


@pytest.mark.slow
def test_stage_leaves_no_process_behind_not_even_a_stopped_one() -> None:
    with Stage() as stage:
        a = stage.worker("A", stands_at="draft")
        a.pause()
        group = stage._nursery.pid
        os.killpg(group, 0)
    assert nobody_left(group)


@pytest.mark.slow
def test_stopped_worker_ends_with_a_stage_that_was_killed() -> None:
    script = (
        "import sys, time\n"
        "from durable_mini.lab.zombie import Stage\n"
        "with Stage() as stage:\n"
        "    stage.worker('A', stands_at='draft').pause()\n"
        "    print(stage._nursery.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        group = int(holder.stdout.readline())
        holder.send_signal(signal.SIGKILL)
    assert nobody_left(group)


@pytest.mark.parametrize(
    ("options", "what"),
    [({"fence": "high"}, "fence"), ({"door": "back"}, "door"), ({"play": "hamlet"}, "play")],
)
def test_unknown_setting_of_a_stage_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=f"{what} is one of"):
        Stage(**options)


@pytest.mark.slow
def test_unknown_place_and_a_worker_that_ends_too_early_are_said() -> None:
    with Stage() as stage:
        with pytest.raises(ValueError, match="no place 'roof'"):
            stage.worker("A", stands_at="roof")
        b = stage.worker("B")
        with pytest.raises(RuntimeError, match="B never told"):
            b.stands()


@pytest.mark.slow
def test_explorer_plays_the_night_that_is_chosen() -> None:
    explorer = night_explorer()
    assert "A's late writes: refused." in explorer._said
    explorer.controls["fence"].value = "off"
    assert explorer.wait()

    assert "Journal: 4 more events follow the ending." in explorer._said
    assert explorer._said.endswith("A's late writes: taken.")


# Fences


def claimed(journal: Unfenced, worker: str) -> RunRow:
    row = journal.find("r-1")
    held = row._replace(worker=worker, token=row.token + 1, lease_until=60.0)
    assert journal.replace(row, held)
    return held


@pytest.mark.parametrize(
    ("kind", "second", "taken"),
    [(Unfenced, "B", True), (FencedByName, "B", False), (FencedByName, "A", True)],
)
def test_fence_that_is_off_or_asks_for_the_name_takes_a_stale_write(
    tmp_path: Path, kind: type[Unfenced], second: str, taken: bool
) -> None:
    entry = (EventKind.NOW, "now", '{"result":1}', 0.0)
    with kind(tmp_path / "journal.db") as journal:
        Engine(journal, [AGENT], clock=FakeClock()).start(AGENT, run_id="r-1")
        stale = claimed(journal, "A")
        claimed(journal, second)
        if taken:
            assert journal.append(stale, entry) == 2
            assert journal.peek(stale) == 2
        else:
            with pytest.raises(LeaseLostError):
                journal.append(stale, entry)
            with pytest.raises(LeaseLostError):
                journal.peek(stale)


def test_page_takes_an_equal_or_higher_token_and_no_lower_one(tmp_path: Path) -> None:
    page = Page(tmp_path / "page.db")

    assert page.put_fenced("two", 2)
    assert not page.put_fenced("one", 1)
    assert page.read() == ("two", 2)
    assert page.put_fenced("two again", 2)
    assert Page(tmp_path / "page.db").put("anybody's")
    assert page.read() == ("anybody's", 2)


# How long a lease is

SETTINGS = [
    Setting(),
    Setting(lease_s=2.0, tail=LONG),
    Setting(lease_s=10.0, beats=3, look_s=2.0, pause_s=4.0, pauses=20.0),
    Setting(lease_s=0.5, beats=2, look_s=5.0, pause_s=20.0, tail=LONG),
]


def survival(setting: Setting, length: float) -> float:
    """The chance of a longer pause, written down apart from the module's integral of it."""
    mean = setting.pause_s
    if setting.tail == SHORT:
        return float(2.718281828459045 ** (-length / mean))
    return float((1 + length / (1.5 * mean)) ** -2.5)


@pytest.mark.parametrize("setting", SETTINGS, ids=range(len(SETTINGS)))
def test_takeover_chance_is_the_mean_over_pause_and_look(setting: Setting) -> None:
    parts = 200
    middles = [(part + 0.5) / parts for part in range(parts)]
    total = sum(
        survival(setting, setting.lease_s - u * setting.heartbeat_s + v * setting.look_s)
        for u in middles
        for v in middles
    )

    assert takeover_chance(setting) == pytest.approx(total / parts**2, rel=1e-3)


@pytest.mark.parametrize("setting", SETTINGS, ids=range(len(SETTINGS)))
def test_simulation_agrees_with_the_formulas(setting: Setting) -> None:
    played = simulate(setting, pauses=40_000, deaths=4_000, seed=1)
    exact, wait = false_takeovers(setting), recovery(setting)
    slack_s = 0.4 * (played.recovery.high - played.recovery.low)

    assert played.recovery.low - slack_s <= wait.mean <= played.recovery.high + slack_s
    arm = played.takeovers.high - played.takeovers.low
    assert played.takeovers.low - 0.4 * arm <= exact <= played.takeovers.high + 0.4 * arm


@pytest.mark.parametrize("setting", SETTINGS[1:3], ids=range(2))
def test_the_journals_fence_counts_as_many_zombies_as_the_formula(setting: Setting) -> None:
    found = engine_takeovers(setting, pauses=1_000).takeovers
    arm = found.high - found.low

    assert found.low - 0.4 * arm <= false_takeovers(setting) <= found.high + 0.4 * arm


@pytest.mark.parametrize(
    ("died_s", "looks_s", "stood_s"), [(7.0, 6.0, 56.0), (0.0, 0.0, 60.0), (19.0, 1.0, 41.0)]
)
def test_engine_takes_a_dead_workers_run_at_the_first_look_after_its_lease(
    died_s: float, looks_s: float, stood_s: float
) -> None:
    setting = Setting(lease_s=60.0, beats=3, look_s=10.0)

    assert engine_recovery(setting, died_s, looks_s) == stood_s
    assert recovery(setting).low <= stood_s <= recovery(setting).high


@pytest.mark.parametrize("tail", [SHORT, LONG])
def test_pauses_have_the_mean_that_was_asked_for(tail: str) -> None:
    chance, setting = random.Random(3), Setting(pause_s=2.0, tail=tail)
    mean = sum(pause_length(setting, chance) for _ in range(100_000)) / 100_000

    assert mean == pytest.approx(2.0, rel=0.03)


def test_lost_renewals_end_a_lease_only_all_together() -> None:
    assert lapse_chance(2, 0.01) == 0.01
    assert lapse_chance(3, 0.01) == pytest.approx(1e-4)
    assert lapses(3, 0.1) == pytest.approx(lapse_chance(3, 0.1), rel=0.15)


@pytest.mark.parametrize("wrong", [{"beats": 1}, {"lease_s": 0.0}, {"tail": "none"}])
def test_impossible_setting_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"lease has two|pauses are"):
        Setting(**wrong)


def test_slider_says_what_it_computed_and_follows_its_field() -> None:
    live = lease_slider()
    assert live._said == lease_frame(Setting()).sentence
    live.controls["lease_s"].value = 10.0
    assert live.wait()

    assert live._said.startswith("Lease 10 s, a heartbeat every 2 s")
    assert f"exact {recovery(Setting(lease_s=10.0)).mean:.2f}" in live._said


def test_slider_shows_a_setting_without_a_pause_and_one_without_a_hit() -> None:
    for setting in (Setting(pauses=0.0), Setting(lease_s=60.0, pause_s=0.1)):
        frame = lease_frame(setting)
        assert "lose 0 runs a day" in frame.sentence
        assert len(lease_figure(frame.curves).png()) > 10_000


# The pictures


def test_lease_figure_states_its_finding_and_has_the_same_bytes_each_time() -> None:
    curves = lease_frame(replace(Setting(), lease_s=2.0)).curves
    picture = lease_figure(curves)

    assert picture.alt.startswith("With a lease of 2 s a dead worker's run stands still for 1.82 s")
    assert picture.png() == lease_figure(curves).png()


def test_lapse_is_found_at_the_first_look_after_its_lease() -> None:
    lapse = Lapse([0.0, 20.0, 40.0], 60.0, 47.0, [53.0, 93.0, 103.0, 113.0])

    assert (lapse.until_s, lapse.taken_s) == (100.0, 103.0)
    assert "It stood still for 56 s." in lapse_strip(lapse, "title").alt
    with pytest.raises(ValueError, match="nobody looks after second 100"):
        lapse_strip(replace(lapse, looks_s=[50.0]))


STORY = [
    Act("A", "claims", "1"),
    Act("A", "does", "draft"),
    Act("A", "is paused"),
    Act("B", "claims", "2", "A"),
    Act("B", "asks", "charge"),
    Act("B", "records", "completed", "3"),
    Act("B", "ends"),
    Act("A", "wakes up"),
    Act("A", "is refused", "draft", "why"),
    Act("A", "ends"),
]


def test_stage_picture_tells_the_story_and_counts_what_was_refused() -> None:
    picture = stage_picture(STORY, "Title", "bank")

    assert picture.alt == (
        "Title: A claims with token 1, asks the model, is paused. B claims with token 2, asks "
        "charge, records completed. A wakes up, is refused draft. Refused writes: 1."
    )
    assert picture.png() == stage_picture(STORY, "Title", "bank").png()


def test_stage_picture_has_room_for_a_third_worker_and_for_every_act() -> None:
    more = [Act("C", "is locked out"), Act("C", "gives up", "the run", "4"), Act("C", "is killed")]
    acts = [Act("A", "is turned away", "page"), Act("B", "looks:", "not mine"), Act("A", "finds")]

    assert len(stage_picture([*STORY, *more, *acts]).png()) > 10_000
    with pytest.raises(ValueError, match="no story"):
        stage_picture([])
