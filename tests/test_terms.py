"""The vocabulary, the run that was looked on, where each word is in it, and the drawing of that."""

from __future__ import annotations

from functools import reduce
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import durable_mini
from durable_mini import TIMED_OUT, Engine, FakeClock, SQLiteJournal, Worker, workflow
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.lab.terms import (
    CHAPTERS,
    CORE,
    ENGINES,
    FALSE_FRIENDS,
    GROUPS,
    VOCABULARY,
    cards,
    friends_table,
    names_table,
    translate,
)
from durable_mini.lab.terms_pictures import (
    TermWalk,
    _mark_spots,
    _Sheet,
    places_table,
    run_picture,
    term_walk,
)
from durable_mini.lab.told_run import Notes, Place, ToldRun, places

pytestmark = pytest.mark.slow

COURSE = Path(__file__).resolve().parent.parent / "course"
HOUR = 3_600.0

stock: set[str] = set()


def offer(order: str) -> str:
    return f"offer for {order}"


def charge(order: str, *, idempotency_key: str) -> str:
    return f"receipt for {order}"


def refund(order: str, *, idempotency_key: str, effect_key: str) -> None:
    return None


def ship(order: str, *, idempotency_key: str) -> str:
    if order not in stock:
        raise LookupError("out of stock")
    return "on its way"


@workflow(version="1")
def buy(ctx: Any, order: str) -> Any:
    ctx.step("offer", offer, order)
    if ctx.wait_signal("approval", timeout_s=24 * HOUR) is TIMED_OUT:
        return "nobody answered"
    ctx.compensate("charge", refund, order)
    receipt = ctx.effect("charge", charge, order)
    ctx.effect("ship", ship, order)
    return receipt


@pytest.fixture
def tell(tmp_path: Path) -> Any:
    """Tell of a run: `dies` in the charge, `in_stock`, `after_h` hours until it is approved."""

    def told_run(dies: str | None = "window", *, in_stock: bool = False, after_h: int = 3) -> Any:
        stock.clear()
        stock.update({"o-1"} if in_stock else ())
        notes, clock = Notes(CrashAt("charge", dies) if dies else None), FakeClock()
        with SQLiteJournal(tmp_path / f"{dies}-{in_stock}-{after_h}.db") as journal:
            engine = Engine(journal, [buy], clock=clock, probe=notes)
            engine.start(buy, "o-1", run_id="o-1")
            notes.follow(engine, "o-1")
            first, second = (Worker(engine, name, lease_s=30) for name in ("w-1", "w-2"))
            first.run_until_idle()
            clock.advance(after_h * HOUR)
            if after_h < 24:
                engine.signal("o-1", "approval", {"ok": True})
            try:
                first.run_until_idle()
            except InjectedCrash:
                second.run_until_idle()
            return notes.told(engine, "o-1")

    return told_run


@pytest.fixture
def told(tell: Any) -> ToldRun:
    run: ToldRun = tell()
    return run


def place(told: ToldRun, title: str) -> Place:
    return next(one for one in places(told) if one.title == title)


# The vocabulary


def test_vocabulary_has_each_word_once_and_every_word_of_the_design() -> None:
    words = [term.word for terms in GROUPS.values() for term in terms]
    assert len(words) == len(set(words)) == len(VOCABULARY)
    assert set(VOCABULARY) >= {
        *("workflow", "run", "attempt", "step", "effect", "journal", "replay", "crash window"),
        *("signal", "timer", "compensation", "lease", "heartbeat", "fencing token"),
        *("structure hash", "patch marker", "continue-as-new", "idempotency key", "deterministic"),
        *("at-least-once", "at-most-once", "exactly-once effect", "checkpoint", "saga", "outbox"),
        "durable execution",
    }


@pytest.mark.parametrize("term", VOCABULARY.values(), ids=lambda term: term.word)
def test_term_says_something_and_names_only_what_there_is(term: Any) -> None:
    assert term.meaning.endswith(".") and len(term.meaning) < 240
    assert set(term.elsewhere) <= set(ENGINES) and all(term.elsewhere.values())
    assert term.chapter in CHAPTERS or term.chapter == "01"
    if term.here:
        assert reduce(getattr, term.here.split("."), durable_mini) is not None


def test_chapters_of_the_cards_are_there() -> None:
    assert [file for file in CHAPTERS.values() if not (COURSE / file).is_file()] == []


def test_false_friends_are_other_words_than_ours_for_engines_that_we_know() -> None:
    for friend in FALSE_FRIENDS:
        assert friend.engine in ENGINES
        assert friend.ours in {*VOCABULARY, ""}
    assert len(friends_table().rows) == len(FALSE_FRIENDS)


@pytest.mark.parametrize(
    ("word", "engine", "ours"),
    [
        ("Activity", "Temporal", "step"),
        ("run", "Absurd", "attempt"),
        ("task", "Absurd", "run"),
        ("task", "LangGraph", "step"),
        ("external event", "Durable Functions", "signal"),
    ],
)
def test_word_of_an_engine_is_translated(word: str, engine: str, ours: str) -> None:
    assert translate(word, engine) == ours


def test_translation_of_what_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="doesn't know 'widget' of DBOS"):
        translate("widget", "DBOS")
    with pytest.raises(ValueError, match="engine must be one of"):
        translate("run", "Cron")


def test_names_table_has_a_row_for_each_word_and_a_column_for_each_engine() -> None:
    table = names_table()
    assert table.columns == ("here", *ENGINES)
    assert [row[0] for row in table.rows] == list(CORE)
    with pytest.raises(KeyError):
        names_table(["widget"])


def test_cards_show_every_word_with_its_meaning_folded_and_its_chapter_linked() -> None:
    page, text = cards().to_html(), str(cards())
    assert page.count("<details") == len(VOCABULARY)
    assert all(f"<summary>{word}</summary>" in page for word in VOCABULARY)
    assert 'href="03_crash_window.ipynb"' in page and "http" not in page
    assert all(term.meaning in text for term in VOCABULARY.values())


def test_cards_of_one_group_are_that_group() -> None:
    title = "Waiting"
    assert cards(title).to_html().count("<details") == len(GROUPS[title])
    with pytest.raises(KeyError):
        cards("Weather")


# What was seen of a run


def test_notes_see_each_attempt_with_its_worker_and_token(told: ToldRun) -> None:
    seen = [(one.number, one.worker, one.known, one.live, one.died) for one in told.attempts]
    assert seen == [
        (1, "w-1", 1, (2, 3), ""),
        (2, "w-1", 4, (5, 6, 7), "window"),
        (3, "w-2", 6, (7, 8, 9), ""),
    ]
    tokens = [one.token for one in told.attempts]
    assert tokens == sorted(set(tokens))
    assert told.status == "failed" and told.executions(7) == 2


def test_notes_change_nothing(tell: Any, tmp_path: Path) -> None:
    looked_on = tell(None, in_stock=True)
    with SQLiteJournal(tmp_path / "plain.db") as journal:
        engine = Engine(journal, [buy], clock=FakeClock())
        engine.start(buy, "o-1", run_id="o-1")
        Worker(engine, "w-1").run_until_idle()
        engine.signal("o-1", "approval", {"ok": True})
        Worker(engine, "w-1").run_until_idle()
        plain = engine.history("o-1")
    assert [e[:3] for e in looked_on.history] == [e[:3] for e in plain]


def test_death_before_the_work_is_no_execution(tell: Any) -> None:
    assert [tell(dies).executions(7) for dies in ("before", "window", "after", None)] == [
        1,
        2,
        1,
        1,
    ]


def test_effect_is_shown_where_its_work_was_begun(tell: Any) -> None:
    told = tell("before", in_stock=True)
    assert place(told, "effect").attempt == 3
    assert place(tell("window"), "effect").attempt == 2


# Where the words are


def test_run_has_the_ten_words_of_the_source_and_says_of_each_what_it_is_here(
    told: ToldRun,
) -> None:
    words = {one.word for one in places(told)}
    assert words <= set(VOCABULARY)
    assert words >= {
        *("journal", "replay", "deterministic", "checkpoint", "structure hash", "effect"),
        *("idempotency key", "saga", "compensation"),  # the tenth, durable execution, is all of it
    }
    titles = [one.title for one in places(told)]
    assert len(titles) == len(set(titles))
    assert place(told, "crash window").said == (
        "w-1 died here: 'charge' was done, and event 7 wasn't written."
    )
    assert "executed twice in all" in place(told, "at-least-once").said
    assert "by 30 s" in place(told, "lease").said
    assert "'o-1/charge'" in place(told, "idempotency key").said


@pytest.mark.parametrize(
    ("settings", "gone"),
    [
        ({"dies": None}, {"lease", "crash window", "at-least-once", "deterministic"}),
        ({"dies": "before"}, {"crash window", "at-least-once"}),
        ({"dies": "after"}, {"crash window", "at-least-once"}),
        ({"in_stock": True}, {"saga", "event"}),
        ({"after_h": 25}, {"signal", "effect", "idempotency key", "compensation", "saga"}),
    ],
)
def test_word_that_a_run_has_not_got_has_no_place(tell: Any, settings: Any, gone: set[str]) -> None:
    words = {one.word for one in places(tell(**settings))}
    assert words.isdisjoint(gone)
    assert {"run", "journal", "step", "attempt"} <= words


def test_places_table_has_every_mark_by_its_number(told: ToldRun) -> None:
    rows = places_table(told).rows
    assert [row[0] for row in rows] == list(range(1, len(places(told)) + 1))


# The drawing


def test_every_mark_stands_on_the_sheet_and_none_on_another(tell: Any) -> None:
    for settings in ({}, {"dies": "before", "in_stock": True}, {"dies": None}, {"after_h": 25}):
        told = tell(**settings)
        sheet = _Sheet(told)
        spots = _mark_spots(sheet, places(told))
        assert all(0.1 < x < 9.5 and 0.1 < y < sheet.height - 0.1 for x, y in spots)
        near = [
            (one, other)
            for (one, a), (other, b) in combinations(zip(places(told), spots, strict=True), 2)
            if abs(a[0] - b[0]) < 0.22 and abs(a[1] - b[1]) < 0.22
        ]
        assert near == []


def test_picture_has_the_same_bytes_each_time_and_another_mark_changes_them(told: ToldRun) -> None:
    window, key = place(told, "crash window"), place(told, "idempotency key")
    assert run_picture(told, window).png() == run_picture(told, window).png()
    assert run_picture(told, window).png() != run_picture(told, key).png()
    sizes = {tuple(run_picture(told, one).figure.get_size_inches()) for one in places(told)}
    assert len(sizes) == 1


def test_alt_text_tells_the_run_and_the_lit_mark(told: ToldRun) -> None:
    alt = run_picture(told, place(told, "crash window")).alt
    assert "Attempt 2, w-1 with token 3: 3 live calls, dies in the crash window." in alt
    assert alt.endswith("Marked: crash window. " + place(told, "crash window").said)
    assert "Marked" not in run_picture(told).alt


def test_run_that_no_worker_has_seen_can_be_drawn(tmp_path: Path) -> None:
    notes = Notes()
    with SQLiteJournal(tmp_path / "new.db") as journal:
        engine = Engine(journal, [buy], clock=FakeClock(), probe=notes)
        engine.start(buy, "o-1", run_id="o-1")
        notes.follow(engine, "o-1")
        told = notes.told(engine, "o-1")
    assert [one.word for one in places(told)] == [
        *("run", "workflow", "structure hash", "admission", "journal")
    ]
    assert "The journal has 1 event" in run_picture(told).alt


# The widget


def test_word_that_is_pressed_is_lit_and_explained(told: ToldRun) -> None:
    walk = term_walk(told)
    assert "14 of 24, crash window." in walk._said
    walk.buttons["saga"].click()
    assert walk.wait()
    number = [one.title for one in places(told)].index("saga") + 1
    assert walk.values == {"mark": number}
    assert walk._said.startswith(f"{number} of 24, saga. {VOCABULARY['saga'].meaning} Here: ")
    lit = [title for title, button in walk.buttons.items() if button.icon == "check"]
    assert lit == ["saga"]


def test_mark_is_chosen_by_its_number_too(told: ToldRun) -> None:
    walk = term_walk(told, start="run")
    walk.controls["mark"].value = 2
    assert walk.wait()
    assert "2 of 24, workflow." in walk._said


def test_walk_cannot_begin_at_a_word_that_the_run_has_not_got(tell: Any) -> None:
    with pytest.raises(ValueError, match="this run has no 'crash window', only run, workflow"):
        TermWalk(tell(None), "crash window")
