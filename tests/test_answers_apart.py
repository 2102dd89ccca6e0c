"""Answers in processes of their own: killed for real, held to limits, leaving nothing behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grading_support as support
import psutil
import pytest

from durable_mini.school import answering, confinement
from durable_mini.school.exercise import AnswerError, Dies, Exercise, Missed

PAY = support.ANSWERS["q3-pay"]
STATE = """
import os
import random
state = {"calls": 0}
def calls():
    state["calls"] += 1
    return [state["calls"], os.getpid()]
def twice(steps): return [steps[0]["do"](2), steps[0]["do"](3)]
def hashes(): return [hash("a"), os.environ.get("TOLD"), os.path.exists("setting")]
def drawn(): return [random.random(), random.randrange(10 ** 9)]
def asleep():
    import time
    time.sleep(600)
def busy():
    while True: pass
class Till:
    def __init__(self, start): self.sum = start
    def add(self, amount):
        self.sum += amount
        return self.sum
@workflow(version="1")
def draws(ctx, _): return ctx.step("draw", drawn)
@workflow(version="1")
def looks(ctx, _): return [*hashes(), ctx.now()]
"""


@pytest.fixture(scope="module")
def ex(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exercise]:
    answers = {**support.ANSWERS, "q3-pay": f"{PAY}\n{STATE}"}
    sheet = support.sheet_of(support.handed_in(answers), tmp_path_factory.mktemp("answers"))
    with support.away(sheet, cell_timeout_s=0.5) as (made, _):
        yield made


def test_state_lives_between_calls_and_not_beyond_a_death(ex: Exercise) -> None:
    first, pid = ex.call("calls")
    assert ex.call("calls") == [first + 1, pid]
    assert pid != os.getpid()

    def dies(_: int) -> None:
        raise Dies

    with pytest.raises(AnswerError, match="ProcessDied"):
        ex.call("twice", [{"do": dies}])

    assert not psutil.pid_exists(pid)
    again, other = ex.call("calls")
    assert (again, other != pid) == (1, True)


def test_functions_and_objects_work_as_in_a_notebook(ex: Exercise) -> None:
    seen = list[int]()
    assert ex.call("twice", [{"do": lambda n: seen.append(n) or (n, n)}]) == [[2, 2], [3, 3]]
    assert seen == [2, 3]

    till = ex.new("Till", 5)
    assert [till.call("add", 1), till.call("add", 1)] == [6, 7]


@pytest.mark.parametrize("place", [("charge", "window"), ("1", "request"), ("plan", "after")])
def test_process_is_killed_at_its_place_and_another_goes_on(
    ex: Exercise, place: tuple[str, str]
) -> None:
    ledger, journal = ex.ledger(honour_keys=False), ex.journal()

    first = ex.drive("pay", "o-1", journal=journal, crash=place)
    then = ex.drive("pay", "o-1", journal=journal)

    assert (first.killed, first.status) == (True, "running")
    assert (then.status, then.attempts) == ("completed", 2)
    assert ledger.repeats == (place[0] != "plan")


def test_place_that_is_never_reached_is_a_miss(ex: Exercise) -> None:
    with pytest.raises(Missed, match="never came to refund"):
        ex.drive("pay", "o-1", journal=ex.journal(), crash=("refund", "window"))


def test_each_process_draws_numbers_of_its_own(ex: Exercise) -> None:
    """Otherwise two runs draw the same pin, and an answer that draws in a step is taken for one
    that doesn't draw."""
    ends = [ex.drive("draws", journal=ex.journal()).result for _ in range(3)]
    assert len({str(drawn) for drawn in ends}) == 3


def test_drive_finds_what_it_is_given(ex: Exercise) -> None:
    def looks(**given: Any) -> Any:
        return ex.drive("looks", journal=ex.journal(), **given).result

    plain = looks()
    assert looks() == plain == [plain[0], None, False, 1e9]
    assert looks(env={"TOLD": "yes"}, cwd_files={"setting": "on"}, now_s=5.0) == [
        plain[0],
        "yes",
        True,
        5.0,
    ]
    assert looks(hash_seed=7)[0] != plain[0]


@pytest.mark.parametrize(("name", "said"), [("busy", "it ran for"), ("asleep", "it waited for")])
def test_answer_that_hangs_is_ended_and_the_next_is_asked(
    ex: Exercise, name: str, said: str
) -> None:
    with pytest.raises(AnswerError, match=f"TimedOut: {said} more than 0.5 s"):
        ex.call(name)

    assert ex.call("add", 2, 3) == 5


def test_everything_ends_with_the_exercise(tmp_path: Path) -> None:
    sheet = support.sheet_of(support.handed_in(), tmp_path)
    before = set(psutil.Process().children(recursive=True))
    with support.away(sheet) as (ex, _):
        ex.call("add", 2, 3)
        ex.reference("add", 2, 3)
        ex.drive("pay", "o-1", journal=ex.journal())
        below = set(psutil.Process().children(recursive=True)) - before
        assert len(below) == 3

    assert not any(process.is_running() for process in below)


# ---- cells -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "harmless"),
    [
        ("x = 5 % 2\ny = '%matplotlib'", "x = 5 % 2\ny = '%matplotlib'\n"),
        ("%matplotlib inline\nx = 1", "pass\nx = 1\n"),
        ("if a:\n    !ls\nx?", "if a:\n    pass\npass\n"),
        ("files = !ls\nx = %time 1", "files = None\nx = None\n"),
        ("%%time\nx = 1", "\nx = 1\n"),
        ("%%bash\nrm -rf /", ""),
        ("x = (", "x = (\n"),
    ],
)
def test_cell_loses_what_only_ipython_understands(cell: str, harmless: str) -> None:
    assert answering.harmless(cell) == harmless


# ---- limits ------------------------------------------------------------------------------------


def test_limits_are_said_one_by_one() -> None:
    held = {hold.name: hold for hold in confinement.holds()}

    assert set(held) == {
        "processor time",
        "memory",
        "file size",
        "files",
        "network",
        "other processes",
    }
    assert held["files"].holds == (confinement.landlock_version() > 0)
    assert all(hold.words for hold in held.values())


def test_library_holds_no_solution_and_nothing_that_grades() -> None:
    package = Path(confinement.__file__).resolve().parents[1]
    readable = [Path(path) for path in confinement.library()]

    for secret in (package / "school" / "grading.py", package / "_bundle" / "solutions"):
        assert not any(secret.is_relative_to(path) for path in readable)
    assert any((package / "engine.py").is_relative_to(path) for path in readable)
    without = [Path(path) for path in confinement.library(package=False)]
    assert not any((package / "engine.py").is_relative_to(path) for path in without)
