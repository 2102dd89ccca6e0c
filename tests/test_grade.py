"""A class graded in one go: good and partial answers, loops, hogs, broken files, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import grading_support as support
import nbformat
import psutil
import pytest
import small_exercise

from durable_mini.school import driving
from durable_mini.school.marks import Chain, SetAside, Submission

pytestmark = pytest.mark.slow

ANSWERS = support.ANSWERS
LOOP = "# exercise: q1-add\ndef add(a, b):\n    return a + b\nwhile True: pass"
HOG = """# exercise: q2-labels
import os
labels = {"charge": "effect", "plan": "step"}
for _ in range(50):
    print("x" * 1_000_000)
try:
    bytearray(10 ** 11)
    labels = {}
except MemoryError:
    pass"""

CLASS = {
    "good.ipynb": support.handed_in(),
    "empty.ipynb": support.handed_in({}),
    "first missed.ipynb": support.handed_in(
        {**ANSWERS, "q1-add": "# exercise: q1-add\ndef add(a, b):\n    return len([a, b]) + 3"}
    ),
    "loop.ipynb": support.handed_in({**ANSWERS, "q1-add": LOOP}),
    "hog <script>.ipynb": support.handed_in({"q2-labels": HOG}),
    "broken.ipynb": b'{"cells": [',
    "unknown.ipynb": nbformat.writes(nbformat.v4.new_notebook()).encode(),
    "=cmd|'calc'!A0.txt": b"x",
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Submission]:
    return support.graded(CLASS, tmp_path_factory.mktemp("class"), cell_timeout_s=1.0)


def marks(submission: Submission) -> list[float]:
    return [check.points for check in submission.checks]


def test_solution_has_all_points_and_the_stub_none(graded: dict[str, Submission]) -> None:
    assert marks(graded["good.ipynb"]) == [1, 2, 1, 1, 4]
    assert marks(graded["empty.ipynb"]) == [0] * 5
    assert [check.hidden for check in graded["good.ipynb"].checks] == [0, 1, 0, 0, 1]
    assert all(check.note for check in graded["empty.ipynb"].checks)


def test_visible_check_isn_t_all(graded: dict[str, Submission]) -> None:
    """A sum that is right for 2 and 3 passes what the exercise shows, and not what it hides."""
    submission = graded["first missed.ipynb"]

    assert marks(submission) == [1, 0, 1, 1, 4]
    assert submission.checks[1].note.startswith("Any two numbers have a sum.")


def test_cell_that_never_ends_is_set_aside_and_later_answers_count(
    graded: dict[str, Submission],
) -> None:
    submission = graded["loop.ipynb"]

    assert submission.set_aside == (SetAside("q1-add", "it ran for more than 1 s"),)
    assert marks(submission) == [0, 0, 1, 1, 4]
    assert [check.chain for check in submission.checks][3:] == [Chain.REFERENCE] * 2
    assert "was set aside: it ran for more than 1 s." in submission.checks[0].note


def test_hog_and_flood_are_held_and_told(graded: dict[str, Submission]) -> None:
    submission = graded["hog <script>.ipynb"]

    assert marks(submission) == [0, 0, 1, 0, 0]
    assert len(submission.printed) == 2_000
    assert {limit.name for limit in submission.limits} >= {"memory", "network", "files"}


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("broken.ipynb", "It is no notebook (JSONDecodeError"),
        ("unknown.ipynb", "It can't be told which exercise this is"),
        ("=cmd|'calc'!A0.txt", "It is no notebook: its name"),
    ],
)
def test_file_that_can_t_be_graded_is_one_row(
    graded: dict[str, Submission], name: str, note: str
) -> None:
    submission = graded[name]

    assert not submission.graded
    assert submission.checks[0].note.startswith(note)


def test_same_seed_gives_the_same_marks_and_words(
    graded: dict[str, Submission], tmp_path: Path
) -> None:
    some = {name: CLASS[name] for name in ("empty.ipynb", "first missed.ipynb")}

    again = support.graded(some, tmp_path, cell_timeout_s=1.0)

    assert again == {name: graded[name] for name in some}


def test_ctrl_c_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    for folder in ("solutions", "handed", "temporary"):
        (tmp_path / folder).mkdir()
    nbformat.write(support.solution(), tmp_path / "solutions" / f"{small_exercise.NAME}.ipynb")
    nbformat.write(CLASS["loop.ipynb"], tmp_path / "handed" / "loop.ipynb")
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from durable_mini.school import grading, submissions\n"
        "root = Path(sys.argv[1])\n"
        "found = submissions.find([root / 'handed'], root)\n"
        "grading.grade_all(found, reference=root / 'solutions', cell_timeout_s=60)"
    )
    grader = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        stderr=subprocess.PIPE,
        text=True,
    )
    below = _when_answers_run(grader.pid)

    grader.send_signal(signal.SIGINT)
    _, said = grader.communicate(timeout=60)

    assert "KeyboardInterrupt" in said
    gone, alive = psutil.wait_procs(below, timeout=10)
    assert (len(gone) >= 4, alive) == (True, [])
    assert list((tmp_path / "temporary").iterdir()) == []
    memory = Path("/dev/shm")
    own = f"{driving.SCRATCH_PREFIX}{grader.pid}-"
    assert [path for path in memory.glob(f"{own}*") if memory.exists()] == []


def _when_answers_run(pid: int) -> list[psutil.Process]:
    """All below a grader, as soon as a process with answers has used some time."""
    ends = time.monotonic() + 120
    while time.monotonic() < ends:
        below = psutil.Process(pid).children(recursive=True)
        if len(below) >= 4 and below[-1].cpu_times().user > 0.3:
            return below
        time.sleep(0.05)
    raise AssertionError("no answers were run")
