"""What a check cell can do, in a notebook: one line when it holds, the missed idea when not."""

from __future__ import annotations

import linecache
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from durable_mini import Context, workflow
from durable_mini.lab.world import RefusedError, UnknownOutcomeError
from durable_mini.lab.world.books import KeyVoidedError
from durable_mini.school import driving, exercise
from durable_mini.school.exercise import AnswerError, Dies, Exercise, Here, Missed


@pytest.fixture
def names() -> dict[str, Any]:
    """The namespace in which the answers stand."""
    return {}


@pytest.fixture
def ex(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Exercise]:
    monkeypatch.setattr(exercise, "backend_for", lambda _: Here(names, list))
    made = Exercise("90_small")
    names["world"] = made.world
    yield made


@pytest.fixture
def pay(names: dict[str, Any]) -> dict[str, Any]:
    """A workflow with a step and an effect among the answers."""

    def charge(order: str, *, idempotency_key: str) -> str:
        return str(names["world"].charge(order, 40, idempotency_key=idempotency_key))

    @workflow(version="1", name="pay")
    def flow(ctx: Context, order: str) -> list[Any]:
        return [ctx.step("plan", len, order), ctx.effect("charge", charge, order)]

    names["pay"] = flow
    return names


# ---- a check -----------------------------------------------------------------------------------


def test_trace_of_an_answer_has_no_lines_of_files_that_arent_there() -> None:
    names: dict[str, Any] = {}
    exec(compile("def f(): raise ValueError('no')", "<string>", "exec"), names)
    with pytest.raises(ValueError, match="no") as caught:
        names["f"]()
    assert exercise.answer_error(caught.value).trace == ""


@pytest.mark.parametrize("line", ["if ...:  # 1", "...  # the next", "a, b = ..., ...  # both"])
def test_blank_that_was_left_is_told_where_its_cell_fails(line: str) -> None:
    names: dict[str, Any] = {}
    text = f"def f():\n    {line}\n{'        1' if line.startswith('if') else ''}\n    return 1 / 0"
    linecache.cache["<q1-blank>"] = len(text), None, text.splitlines(keepends=True), "<q1-blank>"
    exec(compile(text, "<q1-blank>", "exec"), names)
    with pytest.raises((ZeroDivisionError, TypeError)) as caught:
        names["f"]()
    assert f"A blank is still empty: {line}" in exercise.answer_error(caught.value).trace


def test_check_that_holds_prints_one_line(ex: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    with ex.check("q1-add-two", points=1) as check:
        check.expect(True, "never said")
    with ex.check("q1-add-all", points=2.5):
        pass

    assert capsys.readouterr().out == "q1-add-two: 1 point\nq1-add-all: 2.5 points\n"


def test_check_that_misses_names_the_idea_what_was_seen_and_the_rows(ex: Exercise) -> None:
    ledger = ex.ledger()
    ex.world.charge("o-1", 40, idempotency_key="k-1")

    with pytest.raises(Missed) as missed, ex.check("q1-add-two", points=1) as check:
        check.expect(False, "A sum counts both.", rows=ledger.rows, got={"a": "\x1b[2J" * 300})

    lines = str(missed.value).splitlines()
    assert lines[0] == "A sum counts both."
    assert lines[1].startswith("  got: {'a': '\\x1b[2J") and len(lines[1]) < 450
    assert [line.split() for line in lines[3:]] == [
        ["endpoint", "order", "body", "key"],
        ["charge", "o-1", "40", "k-1"],
    ]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda: 1 / 0, "Your answer ended with ZeroDivisionError"),
        (lambda: {"total": 1}, "another shape than was asked for (TypeError"),
        (object, "Your answer ended with PayloadError"),
        (lambda: {"total": ...}, "A blank is still empty: the value of 'f()' holds `...`."),
        (lambda: {1: "a", "1": "b"}, "which become one"),
        (lambda: exit(0), "Your answer ended with SystemExit"),
    ],
)
def test_check_says_what_an_answer_did_instead_of_answering(
    ex: Exercise, names: dict[str, Any], answer: Any, said: str
) -> None:
    names["f"] = answer

    with pytest.raises(Missed) as missed, ex.check("q1-f", points=1) as check:
        check.expect(ex.call("f")["total"][0] == 1, "never said")

    assert said in str(missed.value)


def test_values_are_what_json_makes_of_them(ex: Exercise, names: dict[str, Any]) -> None:
    names |= {"pair": (1, 2), "f": lambda given, *, more: [type(given).__name__, more]}

    assert ex.value("pair") == [1, 2]
    assert ex.call("f", (1, 2), more={1: None}) == ["list", {"1": None}]
    with pytest.raises(AnswerError, match="'absent' isn't defined"):
        ex.value("absent")


def test_functions_among_arguments_stay_with_the_check(ex: Exercise, names: dict[str, Any]) -> None:
    names["twice"] = lambda steps: [steps[0]["do"](2), steps[0]["do"](3)]
    seen = list[int]()

    assert ex.call("twice", [{"do": lambda n: seen.append(n) or (n, n)}]) == [[2, 2], [3, 3]]
    assert seen == [2, 3]

    def dies(_: int) -> None:
        raise Dies

    with pytest.raises(AnswerError, match="ProcessDied"):
        ex.call("twice", [{"do": dies}])


def test_objects_live_until_they_are_dropped(ex: Exercise, names: dict[str, Any]) -> None:
    class Till:
        def __init__(self, start: int) -> None:
            self.sum = start

        def add(self, amount: int) -> int:
            self.sum += amount
            return self.sum

    names["Till"] = Till
    till, other = ex.new("Till", 5), ex.new("Till", 0)

    assert [till.call("add", 1), till.call("add", 1), other.call("add", 1)] == [6, 7, 1]
    till.drop()
    with pytest.raises(AnswerError):
        till.call("add", 1)


def test_random_numbers_depend_on_the_check_and_nothing_else(ex: Exercise) -> None:
    drawn = [ex.rng(name).random() for name in ("q1-a", "q1-b", "q1-a")]

    assert drawn[0] == drawn[2] != drawn[1]


# ---- the ledger --------------------------------------------------------------------------------


def test_ledger_refuses_loses_and_voids_as_it_is_told(ex: Exercise) -> None:
    ledger = ex.ledger(refuse={"car": math.inf, "hotel": 1}, lose={"flight": 1})
    world = ex.world

    with pytest.raises(RefusedError):
        world.post("car", "t-1", 1, "k-car")
    with pytest.raises(RefusedError):
        world.post("hotel", "t-1", 1, "k-hotel")
    world.post("hotel", "t-1", 1, "k-hotel")
    with pytest.raises(UnknownOutcomeError):
        world.post("flight", "t-1", 1, "k-flight")
    assert [row.endpoint for row in world.look_up("t-1")] == ["hotel", "flight"]

    assert [world.void("k-flight"), world.void("k-flight"), world.void("k-never")] == [1, 0, 0]
    with pytest.raises(KeyVoidedError):
        world.post("flight", "t-1", 1, "k-flight")
    assert [row.endpoint for row in ledger.standing()] == ["hotel"]
    assert [row.endpoint for row in ledger.rows] == ["hotel", "flight", "void"]


def test_ledger_may_ignore_the_keys_of_one_endpoint(ex: Exercise) -> None:
    ledger = ex.ledger(ignore_keys=("charge",))
    for _ in range(2):
        ex.world.charge("o-1", 40, idempotency_key="k")
        ex.world.send_email("o-1", "hello", idempotency_key="m")

    assert [row.endpoint for row in ledger.rows] == ["charge", "send_email", "charge"]
    assert ledger.repeats == 1


@pytest.mark.parametrize("price", [-1, math.inf])
def test_ledger_takes_no_price_that_would_give_money_back(ex: Exercise, price: float) -> None:
    with pytest.raises(ValueError):
        ex.world.think("plan", None, price)


# ---- runs --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("pay")
@pytest.mark.parametrize("place", [("charge", "window"), ("1", "request")])
def test_drive_dies_at_its_place_and_the_next_one_goes_on(
    ex: Exercise, place: tuple[str, str]
) -> None:
    ledger, journal = ex.ledger(honour_keys=False), ex.journal()

    first = ex.drive("pay", "o-1", journal=journal, crash=place)
    then = ex.drive("pay", "o-1", journal=journal)

    assert (first.killed, first.status, first.names()) == (True, "running", ["plan"])
    assert (then.killed, then.status, then.names()) == (False, "completed", ["plan", "charge"])
    assert then.result == [3, "charge accepted for o-1"]
    assert ledger.repeats == 1


@pytest.mark.usefixtures("pay")
def test_drive_that_never_comes_to_its_place_is_a_miss(ex: Exercise) -> None:
    with pytest.raises(Missed, match="never came to charge#2"):
        ex.drive("pay", "o-1", journal=ex.journal(), crash=("charge#2", "before"))


@pytest.mark.usefixtures("pay")
def test_everywhere_goes_through_every_place_and_each_on_books_of_its_own(ex: Exercise) -> None:
    found = [(one.place, one.killed, len(one.ledger.rows)) for one in ex.everywhere("pay", "o-1")]

    places = [f"{call}.{at}" for call in ("plan", "charge") for at in ("before", "window", "after")]
    assert found == [
        ("no crash", False, 1),
        *((place, True, 1) for place in [*places, "1.unsent", "1.request"]),
    ]


def test_everywhere_sends_what_the_run_waits_for(ex: Exercise, names: dict[str, Any]) -> None:
    @workflow(version="1")
    def asks(ctx: Context, _: Any) -> Any:
        ctx.step("ask", int)
        return [ctx.wait_signal("answer"), ctx.now()]

    names["asks"] = asks

    def answer(journal: str) -> None:
        ex.signal(journal, "r-1", "answer", "yes", now_s=2e9)

    results = [one.result for one in ex.everywhere("asks", meanwhile=answer)]

    assert len(results) == 4
    assert {tuple(result) for result in results} == {("yes", 2e9)}


def test_drive_sets_environment_and_files_for_its_time_only(
    ex: Exercise, names: dict[str, Any]
) -> None:
    @workflow(version="1")
    def looks(ctx: Context, _: Any) -> Any:
        return [os.environ["LOOKED_AT"], Path("setting").read_text(encoding="utf-8"), ctx.now()]

    names["looks"] = looks
    here = Path.cwd()

    driven = ex.drive(
        "looks",
        journal=ex.journal(),
        env={"LOOKED_AT": "yes"},
        cwd_files={"setting": "on"},
        now_s=5.0,
    )

    assert driven.result == ["yes", "on", 5.0]
    assert "LOOKED_AT" not in os.environ
    assert Path.cwd() == here


def test_drive_tells_what_stopped_the_engine(ex: Exercise, names: dict[str, Any]) -> None:
    calls = ["one", "other"]

    @workflow(version="1")
    def changes(ctx: Context, _: Any) -> Any:
        ctx.step(calls[0], int)
        return ctx.wait_signal("go")

    names["changes"], journal = changes, ex.journal()
    ex.drive("changes", journal=journal)
    calls.reverse()
    ex.signal(journal, "r-1", "go")

    driven = ex.drive("changes", journal=journal)

    assert driven.status == "needs_attention"
    assert driven.error is not None and driven.error.type == "NonDeterminismError"


def test_journal_that_no_engine_wrote_is_told_as_such(ex: Exercise) -> None:
    journal = ex.journal()
    Path(journal).write_text("once upon a time", encoding="utf-8")

    with pytest.raises(Missed, match="The engine that reads your journal says"), ex.check("q", 1):
        ex.drive("pay", journal=journal)


def test_folder_of_a_process_that_was_killed_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving.os, "access", lambda *_: False)
    monkeypatch.setattr(driving.tempfile, "gettempdir", lambda: str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead, living = (
        tmp_path / f"{driving.SCRATCH_PREFIX}{pid}-x" for pid in (gone.pid, os.getppid())
    )
    for folder in (dead, living):
        (folder / "journals").mkdir(parents=True)

    with driving.scratch_folder() as made:
        assert {path.name for path in tmp_path.iterdir()} == {living.name, Path(made).name}
