"""A class from its files to the folder of results: every row there, the same bytes twice.

The fast tests put a stand-in where marks are earned; the slow ones grade a small class for real.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import school_class
import small_exercise

from durable_mini.lab.exercises import EXERCISES
from durable_mini.lab.progress_file import ProgressFile, Score
from durable_mini.school import grade, grading, submissions
from durable_mini.school.classes import GradesError, Options, grade_class
from durable_mini.school.marks import CheckMark, HandIn, Submission
from durable_mini.school.reports import ReportError
from durable_mini.school.roster import EARLIER, MISSING
from durable_mini.school.writing import harmless

# ---- with a stand-in for the marks -------------------------------------------------------------


@pytest.fixture
def keeper(tmp_path: Path) -> ProgressFile:
    return ProgressFile(tmp_path / "reader" / "progress.json")


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What each file earns of 4 and 6 points, by what rows call it; 10 where it isn't said."""
    earned: dict[str, float] = {}

    def grade_all(hand_ins: Sequence[HandIn], *, progress: Any, **_: Any) -> list[Submission]:
        graded = [_earns(each, earned.get(each.shown, 10.0)) for each in hand_ins]
        for each in graded:
            progress(each)
        return graded

    monkeypatch.setattr(grading, "grade_all", grade_all)
    monkeypatch.setattr(grading, "exercise_points", lambda _: dict.fromkeys(EXERCISES, 10.0))
    monkeypatch.setattr(grading, "reference_answers", lambda _: {})
    monkeypatch.setattr(grading, "stub_answers", lambda _: {})
    monkeypatch.setattr(grading, "is_reference", lambda path: path.parent.name == "solutions")
    return earned


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[HandIn]:
    """What there is to grade."""
    hand_ins: list[HandIn] = []
    monkeypatch.setattr(submissions, "find", lambda paths, scratch: list(hand_ins))
    return hand_ins


def _earns(hand_in: HandIn, points: float) -> Submission:
    first = min(points, 4.0)
    checks = (
        CheckMark("q1-a", "q1", first, 4.0, "" if first == 4.0 else "The first idea."),
        CheckMark("q2-b", "q2", points - first, 6.0, "" if points == 10.0 else "The second idea."),
    )
    return Submission(hand_in.shown, hand_in.student, hand_in.exercise, checks)


def handed_in(shown: str, student: str = "", exercise: str = "03_keys", **more: Any) -> HandIn:
    return HandIn(Path(shown), shown, student, exercise, **more)


def options(**more: Any) -> Options:
    return Options((Path("class"),), **more)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def roster(tmp_path: Path, *names: str) -> Path:
    path = tmp_path / "class.csv"
    path.write_text("\n".join(["student", *names, ""]), encoding="utf-8")
    return path


def test_rows_are_ordered_by_their_names_whatever_was_graded_first(
    points: dict[str, float], found: list[HandIn]
) -> None:
    found += [
        handed_in("c"),
        handed_in("a", exercise="05_leaks"),
        handed_in("b", trouble="Broken."),
    ]
    assert [each.path for each in grade_class(options()).submissions] == ["a", "b", "c"]


def test_seed_that_is_not_given_is_drawn_and_told(
    points: dict[str, float], found: list[HandIn], tmp_path: Path
) -> None:
    """A student who knew it could compute what the hidden checks ask."""
    found += [handed_in("a")]
    seeds = {grade_class(options(out=tmp_path / "out")).seed for _ in range(4)}
    assert len(seeds) == 4
    assert grade_class(options(seed=7, out=tmp_path / "out")).seed == 7
    assert 'name="seed" value="7"' in (tmp_path / "out" / "junit.xml").read_text(encoding="utf-8")


def test_json_is_that_of_the_contract(points: dict[str, float], found: list[HandIn]) -> None:
    found += [handed_in("a", "ada")]
    points["a"] = 7.0

    (told,) = grade("class")["submissions"]
    assert (told["path"], told["points"], told["max_points"]) == ("a", 7.0, 10.0)
    assert told["checks"][1] == {
        "name": "q2-b",
        "points": 3.0,
        "max_points": 6.0,
        "note": "The second idea.",
    }
    assert json.loads(json.dumps(told)) == told


def test_file_that_cannot_be_graded_costs_what_its_exercise_is_worth(
    points: dict[str, float], found: list[HandIn], tmp_path: Path
) -> None:
    found += [
        handed_in("a", trouble="It is no notebook."),
        handed_in("b", exercise="", trouble="?"),
    ]
    grade_class(options(out=tmp_path / "out"))

    rows = rows_of(tmp_path / "out" / "grades.csv")
    assert [(row["points"], row["max_points"], row["note"]) for row in rows] == [
        ("0", "10", "It is no notebook."),
        ("0", "0", "?"),
    ]


def test_roster_adds_what_is_missing_and_counts_the_latest_attempt(
    points: dict[str, float], found: list[HandIn], tmp_path: Path
) -> None:
    found += [handed_in("ada-1", "ada", attempt=(1,)), handed_in("ada-2", "ada", attempt=(2,))]
    graded = grade_class(options(roster=roster(tmp_path, "ada", "bob"), out=tmp_path / "out"))

    told = {each.path: (each.points, each.max_points) for each in graded.submissions}
    assert told == {"ada-1": (0.0, 0.0), "ada-2": (10.0, 10.0), "bob/03_keys": (0.0, 10.0)}
    notes = {row["submission"]: row["note"] for row in rows_of(tmp_path / "out" / "grades.csv")}
    assert (notes["ada-1"], notes["bob/03_keys"]) == (EARLIER, MISSING)
    book = (tmp_path / "out" / "gradebook.csv").read_text(encoding="utf-8")
    assert book == "student,03_keys,points\nada,10,10\nbob,0,0\n"
    assert not graded.all_full  # bob has handed in nothing


def test_earlier_attempt_does_not_spoil_full_marks(
    points: dict[str, float], found: list[HandIn], tmp_path: Path
) -> None:
    found += [handed_in("ada-1", "ada", attempt=(1,)), handed_in("ada-2", "ada", attempt=(2,))]
    assert grade_class(options(roster=roster(tmp_path, "ada"))).all_full


def test_exercise_that_nobody_knows_is_asked_of_nobody(
    points: dict[str, float], found: list[HandIn], tmp_path: Path
) -> None:
    found += [handed_in("x", "ada", "99_holiday", trouble="There is no such exercise.")]
    graded = grade_class(options(roster=roster(tmp_path, "ada", "bob")))
    assert {each.exercise for each in graded.submissions} == {"99_holiday", ""}


def test_changes_since_an_earlier_grading_are_listed(
    points: dict[str, float], found: list[HandIn], tmp_path: Path
) -> None:
    found += [handed_in("=a", "ada"), handed_in("b", "bob"), handed_in("gone", "cyd")]
    points |= {"=a": 4.0, "b": 10.0}
    grade_class(options(out=tmp_path / "old"))
    found[2:] = [handed_in("new", "dee")]
    points["=a"] = 9.0
    old = tmp_path / "old" / "grades.csv"
    graded = grade_class(options(out=tmp_path / "new", against=old))

    changes = [(each.submission, each.check, each.before, each.now) for each in graded.changes]
    assert changes == [
        ("=a", "q2-b", "0", "5"),
        ("new", "q1-a", "", "4"),
        ("new", "q2-b", "", "6"),
        ("gone", "q1-a", "4", ""),
        ("gone", "q2-b", "6", ""),
    ]
    assert len(rows_of(tmp_path / "new" / "changes.csv")) == 5


def test_nothing_changed_says_so_in_a_table_without_rows(
    points: dict[str, float], found: list[HandIn], tmp_path: Path
) -> None:
    found += [handed_in("a; =1", "ada")]
    grade_class(options(out=tmp_path / "out"))
    grade_class(options(out=tmp_path / "out", against=tmp_path / "out" / "grades.csv"))
    assert rows_of(tmp_path / "out" / "changes.csv") == []


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "submission,exercise,check,points,max_points,note\na,b\n", "\0"]
)
def test_table_that_is_no_grading_is_refused(
    points: dict[str, float], found: list[HandIn], tmp_path: Path, text: str
) -> None:
    path = tmp_path / "old.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(GradesError, match="Next:"):
        grade_class(options(against=path))


def test_pseudonyms_are_the_same_at_the_next_grading_and_no_name_is_written(
    points: dict[str, float], found: list[HandIn], tmp_path: Path
) -> None:
    found += [handed_in("Ada/03_keys.ipynb", "Ada Lovelace")]
    class_list, key = roster(tmp_path, "Ada Lovelace", "Bob"), tmp_path / "key.json"
    tables = []
    for _ in range(2):
        grade_class(options(roster=class_list, pseudonyms=key, out=tmp_path / "out"))
        tables.append((tmp_path / "out" / "grades.csv").read_bytes())

    assert tables[0] == tables[1]
    for path in (tmp_path / "out").rglob("*"):
        written = path.name + (path.read_text(encoding="utf-8") if path.is_file() else "")
        assert not any(name in written for name in ("Ada", "Lovelace", "Bob"))


@pytest.mark.parametrize("where", ["class/results", "class"])
def test_results_never_land_among_the_submissions(
    points: dict[str, float], found: list[HandIn], tmp_path: Path, where: str
) -> None:
    (tmp_path / "class").mkdir()
    with pytest.raises(ReportError, match="lies inside"):
        grade_class(Options((tmp_path / "class",), out=tmp_path / where))
    assert list((tmp_path / "class").iterdir()) == []


def test_key_never_lands_in_the_folder_that_is_handed_on(
    points: dict[str, float], found: list[HandIn], tmp_path: Path
) -> None:
    with pytest.raises(ReportError, match="keep the key elsewhere"):
        grade_class(options(out=tmp_path / "out", pseudonyms=tmp_path / "out" / "key.json"))


# ---- the reader's own progress -----------------------------------------------------------------


def test_own_exercise_at_its_share_is_kept(
    points: dict[str, float], found: list[HandIn], keeper: ProgressFile
) -> None:
    found += [
        handed_in("a"),
        handed_in("b", exercise="05_leaks"),
        handed_in("c", exercise="08_trip"),
    ]
    points |= {"a": 6.0, "b": 5.5, "c": 0.0}

    assert grade_class(options(), keeper=keeper).ticked == ("03_keys",)
    kept = keeper.read()
    assert kept.exercises == {"03_keys": Score(6, 10), "05_leaks": Score(5.5, 10)}
    assert kept.finished == frozenset()  # the reader's click alone ticks a chapter


@pytest.mark.parametrize(
    "case",
    ["roster", "student", "two of one exercise", "another reference", "solution", "pseudonyms"],
)
def test_whoever_grades_others_ticks_nothing(
    points: dict[str, float], found: list[HandIn], keeper: ProgressFile, tmp_path: Path, case: str
) -> None:
    more: dict[str, Any] = {
        "roster": {"roster": roster(tmp_path, "ada")},
        "another reference": {"reference": tmp_path},
        "pseudonyms": {"pseudonyms": tmp_path / "key.json"},
    }.get(case, {})
    shown = "solutions/03_keys.ipynb" if case == "solution" else "a"
    found += [handed_in(shown, "ada" if case == "student" else "")]
    found += [handed_in("b")] if case.startswith("two") else []

    assert grade_class(options(**more), keeper=keeper).ticked == ()
    assert not keeper.path.parent.exists()


def test_progress_that_cannot_be_written_spoils_no_grading(
    points: dict[str, float], found: list[HandIn], tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be", encoding="utf-8")
    found += [handed_in("a")]
    graded = grade_class(options(), keeper=ProgressFile(tmp_path / "taken" / "progress.json"))
    assert (graded.submissions[0].points, graded.ticked) == (10.0, ())


# ---- a class, graded for real ------------------------------------------------------------------


SMALL_CLASS = (
    *("good", "partial", "stubborn loop", "dead", "flood"),
    *("broken", "word", "left behind"),
)
WORTH = "9"  # the small exercise


def run(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "durable_mini", "grade", *map(str, arguments)]
    home = {**os.environ, "XDG_DATA_HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=home, cwd=folder, check=False
    )


def alive(mark: str) -> list[str]:
    """Command lines of processes that were left behind."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        lines += [line] * (mark in line)
    return lines


@pytest.mark.slow
def test_class_with_every_kind_of_trouble_is_graded_to_the_last_row(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    solution = school_class.published(
        small_exercise.solution(), tmp_path / "solutions", small_exercise.NAME
    )
    students = school_class.make(tmp_path, [solution], SMALL_CLASS)
    given = ["--reference", "solutions", "--seed", "7", "--cell-timeout", "1"]
    before, began_s = _children_s(), time.monotonic()
    done = run(tmp_path, "class", "--roster", "class.csv", *given, "--out", "one")
    took_s, cpu_s = time.monotonic() - began_s, _children_s() - before
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr

    rows = {row["student"]: row for row in rows_of(tmp_path / "one" / "totals.csv")}
    assert set(rows) == {harmless(each.name) for each in students} | {"missing"}
    told = {each.kind: rows[harmless(each.name)] for each in students}
    assert {row["max_points"] for row in rows.values()} == {WORTH}
    assert {kind: told[kind]["points"] for kind in told if kind != "stubborn loop"} == {
        **dict.fromkeys(("good", "left behind", "flood"), WORTH),
        **dict.fromkeys(("partial", "dead"), "4"),
        **dict.fromkeys(("broken", "word"), "0"),
    }
    assert told["stubborn loop"]["points"] == "4"  # what hangs is set aside, the rest counts
    assert all(told[kind]["note"] for kind in ("broken", "word", "stubborn loop"))
    assert alive("left-behind") == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "home").exists()  # a teacher's grading ticks nothing
    figure(f"a class of {len(students)}: {took_s:.1f} s, {cpu_s:.1f} s of processor time")
    _same_rows_in_other_company(tmp_path, students, given)


def _same_rows_in_other_company(
    folder: Path, students: Sequence[school_class.Student], given: Sequence[str]
) -> None:
    """Grade some of the class again: the same bytes for each of them, notes and all."""
    some = [each for each in students if each.kind in ("partial", "broken")]
    for each in some:
        target = folder / "again" / each.file
        target.parent.mkdir(parents=True)
        target.write_bytes((folder / "class" / each.file).read_bytes())
    assert run(folder, "again", *given, "--out", "two").returncode == 0

    one, two = ((folder / name / "grades.csv").read_text("utf-8") for name in ("one", "two"))
    assert len(two.splitlines()) == 1 + 5 + 1  # a header, five checks, one file that is none
    assert set(two.splitlines()) <= set(one.splitlines())


def _children_s() -> float:
    """The processor time of every child that has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
