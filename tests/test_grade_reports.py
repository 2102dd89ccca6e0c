"""What a grading leaves: tables that no spreadsheet runs, pages that no browser obeys."""

from __future__ import annotations

import csv
import io
import json
import stat
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup

from durable_mini.school import reports, writing
from durable_mini.school.feedback import feedback, visible_and_hidden
from durable_mini.school.marks import (
    Chain,
    CheckMark,
    HandIn,
    Limit,
    Rubric,
    SetAside,
    Submission,
    ungraded,
)
from durable_mini.school.reports import Extra, ReportError, write
from durable_mini.school.roster import (
    EARLIER,
    MISSING,
    RosterError,
    hidden,
    identity,
    pseudonyms,
    read_roster,
    with_roster,
)

NASTY = "<script>alert('x')</script> & \"q\" ``` | * _ \x1b[31m \u202e \ud800"
RUNS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
FORMULA = '=HYPERLINK("http://evil","x")'

GOOD = CheckMark("q1-label", "q1", 4.0, 4.0)
MISS = CheckMark(
    "q2-keys",
    "q2",
    0.0,
    3.0,
    'A key names the intent, not the content.\ngot="a/charge"\n| order | amount |\n| --- | --- |',
    hidden=True,
    printed="hello from the answer\n",
)
CARRIED = CheckMark("q3-receiver", "q3", 3.0, 3.0, chain=Chain.REFERENCE)
WHOLE = Submission(
    "ada/03_keys.ipynb",
    "ada",
    "03_keys",
    (GOOD, MISS, CARRIED),
    version_note="It was made from version 1 of the exercise; it is graded against version 2.",
    notes=("The cell q1-label was split in two; both parts were run, in order.",),
    printed="loaded\n",
    set_aside=(SetAside("q2-keys", "it ran for 5 s of processor time, twice"),),
    limits=(Limit("memory", True, "1 GB"), Limit("network", False, "this kernel has no Landlock")),
)


def nasty(text: str = NASTY) -> Submission:
    """A submission in which everything that can be typed is typed by an enemy."""
    check = CheckMark(text, "q1", 0.0, 1.0, f"{text}\n{text}", printed=text)
    return Submission(
        path=f"{text}/03.ipynb",
        student=text,
        exercise=text,
        checks=(check,),
        version_note=text,
        notes=(text,),
        printed=text,
        set_aside=(SetAside(text, text),),
        limits=(Limit(text, True, text),),
        rubrics=(Rubric(text, 4.0, text, "- names an engine"),),
    )


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def words(page: str) -> str:
    return " ".join(BeautifulSoup(page, "html.parser").get_text().split())


# ---- CSV ---------------------------------------------------------------------------------------


def test_grades_have_the_columns_of_the_contract_and_a_row_for_each_check() -> None:
    text = reports.grades_csv([WHOLE])

    assert text.splitlines()[0] == "submission,exercise,check,points,max_points,note"
    assert [(row["check"], row["points"], row["max_points"]) for row in rows(text)] == [
        ("q1-label", "4", "4"),
        ("q2-keys", "0", "3"),
        ("q3-receiver", "3", "3"),
    ]
    assert "A key names the intent" in rows(text)[1]["note"]
    assert "\n" not in rows(text)[1]["note"]


def test_file_that_could_not_be_graded_is_one_row_with_the_reason() -> None:
    broken = ungraded(HandIn(Path(), "bob/x.txt", "bob", "03_keys"), 10.0, "It is no notebook.")
    (row,) = rows(reports.grades_csv([broken]))

    assert row == {
        "submission": "bob/x.txt",
        "exercise": "03_keys",
        "check": "",
        "points": "0",
        "max_points": "10",
        "note": "It is no notebook.",
    }


@pytest.mark.parametrize("start", [*RUNS, "\t=", "\r=", ' "=', "\n@"])
@pytest.mark.parametrize("before", ["", "a;", "a | ", "a\n;"])
def test_no_cell_begins_with_what_a_spreadsheet_runs(start: str, before: str) -> None:
    """Not even when the sheet takes another separator than ours."""
    typed = f"{before}{start}cmd|'/C calc'!A0"
    text = writing.csv_text(("note", "again"), [(typed, typed)])

    for separator in ",;|\t":
        for row in csv.reader(io.StringIO(text), delimiter=separator):
            assert not [cell for cell in row if cell.strip(' "\t').startswith(RUNS)]


def test_negative_number_stays_a_number() -> None:
    assert writing.csv_text(("x",), [(-1.5,)]) == "x\n-1.5\n"


def test_totals_name_the_feedback_and_what_a_person_still_gives() -> None:
    memo = CheckMark("c-memo", "c", 0.0, 4.0, by_person=True)
    submission = replace(WHOLE, checks=(GOOD, memo), set_aside=())
    (row,) = rows(reports.totals_csv([submission], ["ada-03_keys"]))

    assert (row["points"], row["max_points"], row["by_person"]) == ("4", "8", "4")
    assert row["feedback"] == "feedback/ada-03_keys.html"
    assert submission.is_full


def test_gradebook_has_a_line_for_each_student_and_a_column_for_each_exercise() -> None:
    second = replace(WHOLE, exercise="05_leaks", path="ada/05_leaks.ipynb")
    missing = ungraded(HandIn(Path(), "bob/03_keys", "bob", "03_keys"), 10.0, MISSING)

    assert reports.gradebook_csv([WHOLE, second, missing]) == (
        "student,03_keys,05_leaks,points\nada,7,7,14\nbob,0,0,0\n"
    )


# ---- JUnit -------------------------------------------------------------------------------------


def test_junit_counts_misses_and_carries_the_settings() -> None:
    broken = ungraded(HandIn(Path(), "bob", "bob", "03_keys"), 10.0, "It is no notebook.")
    suites = ElementTree.fromstring(reports.junit_xml([WHOLE, broken], {"seed": "7"}))

    good, bad = suites.findall("testsuite")
    assert (good.get("tests"), good.get("failures"), good.get("errors")) == ("3", "1", "0")
    assert (bad.get("tests"), bad.get("errors")) == ("1", "1")
    assert good.find("properties/property").attrib == {"name": "seed", "value": "7"}  # type: ignore[union-attr]
    assert "A key names the intent" in good.findall("testcase/failure")[0].get("message", "")


def test_junit_of_anything_typed_can_be_parsed() -> None:
    typed = "".join(map(chr, range(0, 0x300))) + NASTY
    suites = ElementTree.fromstring(reports.junit_xml([nasty(typed)], {}))

    assert "<script>" in (suites.find("testsuite/testcase/failure").text or "")  # type: ignore[union-attr]


# ---- pages -------------------------------------------------------------------------------------


def test_missed_check_of_which_a_part_is_hidden_says_so() -> None:
    """In the notebook it may have said that it holds."""
    check = CheckMark("q1-label", "q1", 0.0, 4.0, "An idea.", partly_hidden=True)
    told = feedback(Submission("a.ipynb", "ann", "03_keys", (check,)))
    assert told.rows[0].result == "missed, a part of it is hidden"


def test_feedback_says_what_was_missed_printed_carried_and_set_aside() -> None:
    said = words(reports.html_page(WHOLE))

    for part in (
        "Feedback: 03_keys, ada",
        "7 of 10 points.",
        "All visible checks passed; 1 hidden: 0 passed.",
        "A mistake is paid for once",
        "passed, on the reference's answers",
        "A key names the intent, not the content.",
        "hello from the answer",
        "The answer q2-keys was set aside: it ran for 5 s of processor time, twice.",
        "It was made from version 1",
        "was split in two",
        "loaded",
        "Held on this system: memory (1 GB).",
        "Not held on this system: network (this kernel has no Landlock).",
    ):
        assert part in said
    assert all(part in reports.markdown_page(WHOLE) for part in ("7 of 10", "set aside", "loaded"))


def test_visible_checks_are_never_called_all_of_them() -> None:
    passed = replace(MISS, points=3.0, note="")
    assert visible_and_hidden(replace(WHOLE, checks=(GOOD, passed))) == (
        "All visible checks passed; 1 hidden: 1 passed."
    )
    failed = replace(GOOD, points=0.0)
    assert visible_and_hidden(replace(WHOLE, checks=(failed, CARRIED))) == (
        "1 of 2 visible checks passed; none is hidden."
    )


def test_nothing_that_was_typed_becomes_markup_in_the_page() -> None:
    page = reports.html_page(nasty())
    soup = BeautifulSoup(page, "html.parser")

    assert soup.find_all("script") == []
    assert "<script>alert('x')</script>" in soup.get_text()
    assert all(bad not in page for bad in ("\x1b", "\u202e", "\ud800"))


def test_nothing_that_was_typed_becomes_markup_in_markdown() -> None:
    import mistune

    page = reports.markdown_page(nasty("<script>x</script> ```\n# no heading\n| a | b |"))
    rendered = BeautifulSoup(str(mistune.html(page)), "html.parser")  # as a careless viewer would

    assert rendered.find_all("script") == []
    assert "no heading" not in " ".join(h.get_text() for h in rendered.find_all("h1")[1:])
    assert len(rendered.find_all("h1")) == 1


def test_page_has_a_language_one_title_headings_in_order_and_table_headers() -> None:
    soup = BeautifulSoup(reports.html_page(nasty()), "html.parser")

    assert soup.html is not None
    assert soup.html["lang"] == "en"
    levels = [int(heading.name[1]) for heading in soup.find_all(["h1", "h2", "h3"])]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for table in soup.find_all("table"):
        assert table.caption is not None
        assert {cell["scope"] for cell in table.find_all("th")} == {"col", "row"}


def test_page_loads_nothing() -> None:
    soup = BeautifulSoup(reports.html_page(nasty()), "html.parser")

    loading = [
        tag.get("src") or tag.get("href")
        for tag in soup.find_all(src=True) + soup.find_all(href=True)
    ]
    assert loading == ["data:,"]
    assert "default-src 'none'" in str(soup.find("meta", attrs={"http-equiv": True}))


def test_part_that_a_person_marks_carries_what_was_written_and_the_rubric() -> None:
    memo = CheckMark("c-memo", "c", 0.0, 4.0, by_person=True)
    rubric = Rubric(
        "c-memo", 4.0, "We take a queue.", "- **1** names the engine\n- **1** names storage"
    )
    submission = replace(WHOLE, checks=(GOOD, memo), rubrics=(rubric,))
    page = BeautifulSoup(reports.html_page(submission), "html.parser")

    assert "4 points are given by a person and not in this sum yet." in page.get_text()
    assert "We take a queue." in page.get_text()
    assert [strong.parent.get_text() for strong in page.select("li strong")] == [
        "1 names the engine",
        "1 names storage",
    ]
    assert "- **1** names the engine" in reports.markdown_page(submission)


def test_endless_output_is_cut_with_a_word_about_the_rest() -> None:
    long = replace(WHOLE, printed="x" * 50_000_000)
    page = reports.html_page(long)

    assert len(page) < 30_000
    assert "more characters" in page


# ---- the folder --------------------------------------------------------------------------------


def test_folder_is_the_teacher_s_alone_and_holds_every_file(tmp_path: Path) -> None:
    out = tmp_path / "new" / "results"
    write(out, [WHOLE, nasty()], extras=[Extra("similar.csv", ("one",), (("x",),))], gradebook=True)

    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert {"grades.csv", "totals.csv", "junit.xml", "gradebook.csv", "similar.csv"} < names
    assert sum(name.endswith(".html") for name in names) == 2
    assert sum(name.endswith(".md") for name in names) == 2
    for path in [out, *out.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_same_submissions_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, [WHOLE, nasty()], settings={"seed": "1"}, gradebook=True)

    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*") if path.is_file()}
        for name in ("one", "two")
    )
    assert one == two


def test_second_grading_replaces_the_first_and_removes_pages_of_nobody(tmp_path: Path) -> None:
    write(tmp_path / "out", [WHOLE, nasty()], gradebook=True)
    write(tmp_path / "out", [WHOLE])

    pages = sorted(path.name for path in (tmp_path / "out" / "feedback").iterdir())
    assert pages == ["ada-03_keys.html", "ada-03_keys.md"]
    assert not (tmp_path / "out" / "gradebook.csv").exists()


def test_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ReportError, match=r"holds other files and no grades\.csv"):
        write(tmp_path, [WHOLE])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_writing_that_fails_leaves_the_old_grades_and_no_part_of_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "out", [WHOLE])
    before = (tmp_path / "out" / "grades.csv").read_bytes()

    real = writing.replace_file

    def full(path: Path, *args: Any, **options: Any) -> None:
        if path.name == "totals.csv":
            raise OSError(28, "No space left on device", str(path))
        real(path, *args, **options)

    monkeypatch.setattr(reports, "replace_file", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "out", [WHOLE, nasty()])
    assert (tmp_path / "out" / "grades.csv").read_bytes() == before
    assert list((tmp_path / "out").rglob(".grading-*")) == []


def test_file_names_are_safe_unique_and_the_same_whatever_the_case(tmp_path: Path) -> None:
    typed = ["a/../../etc", "A etc", '"; rm -rf ~ <script>', "李雷", "", "x" * 500, FORMULA]
    names = reports.page_names([replace(WHOLE, path=text) for text in typed])

    assert len({name.casefold() for name in names}) == len(typed)
    for name in names:
        assert name == writing.file_name(name)
        assert len(name) < 100


# ---- roster and pseudonyms ---------------------------------------------------------------------


def handed_in(
    shown: str, student: str, exercise: str = "03_keys", *attempt: int, **more: Any
) -> HandIn:
    return HandIn(Path(shown), shown, student, exercise, attempt, **more)


@pytest.fixture
def roster(tmp_path: Path) -> Callable[[str], Path]:
    def write_it(text: str) -> Path:
        path = tmp_path / "class.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write_it


def test_missing_hand_in_is_a_row_for_every_exercise_of_the_class(roster: Any) -> None:
    members = read_roster(
        roster("student,email\nAda Lovelace,al@x.org\nBob,bob@x.org\nCyd,c@x.org\n")
    )
    found = [handed_in("1", "al"), handed_in("2", "Bob", "05_leaks")]
    sorted_ = with_roster(found, members)

    assert [(each.student, each.exercise) for each in sorted_.to_grade] == [
        ("Ada Lovelace", "03_keys"),
        ("Bob", "05_leaks"),
    ]
    assert [(each.student, each.exercise, note) for each, note in sorted_.only_rows] == [
        ("Ada Lovelace", "05_leaks", MISSING),
        ("Bob", "03_keys", MISSING),
        ("Cyd", "03_keys", MISSING),
        ("Cyd", "05_leaks", MISSING),
    ]


@pytest.mark.parametrize(
    "spelt", ["Lovelace, Ada", "ada_lovelace", "lovelaceada", "ADA LOVELACE", "al", "Ada  Lovelacé"]
)
def test_student_is_known_however_a_system_spells_the_name(roster: Any, spelt: str) -> None:
    members = read_roster(roster("id;name;email\n007;Ada Lovelace;al@x.org\n"))
    (known,) = with_roster([handed_in("1", spelt)], members).to_grade
    assert known.student == "Ada Lovelace"


def test_two_who_could_be_meant_are_both_left_alone(roster: Any) -> None:
    members = read_roster(roster("id,first\n1,Kim\n2,Kim\n"))
    (known, *_) = with_roster([handed_in("1", "Kim")], members).to_grade
    assert known.student == "Kim"


def test_latest_attempt_counts_and_earlier_ones_are_rows(roster: Any) -> None:
    members = read_roster(roster("student\nada\n"))
    found = [
        handed_in("b", "ada", "03_keys", 9),
        handed_in("a", "ada", "03_keys", 10),
        handed_in("c", "ada", "03_keys", 11, trouble="It is no notebook."),
    ]
    sorted_ = with_roster(found, members)

    assert [each.shown for each in sorted_.to_grade] == ["a"]
    assert [(each.shown, note) for each, note in sorted_.only_rows] == [
        ("b", EARLIER),
        ("c", EARLIER),
    ]


def test_somebody_who_is_not_on_the_roster_keeps_a_row(roster: Any) -> None:
    members = read_roster(roster("student\nada\n"))
    assert [each.student for each in with_roster([handed_in("1", "eve")], members).to_grade] == [
        "eve"
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "empty"),
        ("student\n", "no student"),
        ("student\nada\nada\n", "twice"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_roster_that_cannot_be_used_is_said_in_a_line(tmp_path: Path, text: Any, what: str) -> None:
    path = tmp_path / "class.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RosterError, match=what) as raised:
        read_roster(path)
    assert "Next:" in str(raised.value)


def test_pseudonyms_stay_and_are_extended_and_give_nobody_away(tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    first = pseudonyms(key, ["ada", "bob"])
    again = pseudonyms(key, ["ada", "cyd"])

    assert again["ada"] == first["ada"]
    assert len(set(again.values())) == 3
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert json.loads(key.read_text(encoding="utf-8")) == again
    elsewhere = pseudonyms(tmp_path / "other.json", ["ada"])
    assert elsewhere["ada"] != first["ada"]  # no hash of the name, which a list of names would undo


def test_hidden_hand_ins_show_no_name_and_stay_apart(tmp_path: Path) -> None:
    found = [handed_in("ada/03_keys.ipynb", "ada"), handed_in("ada/03_keys-1.ipynb", "ada")]
    found += [handed_in("eve.ipynb", "")]
    under = hidden(found, pseudonyms(tmp_path / "key.json", map(identity, found)))

    assert len({each.shown for each in under}) == 3
    assert not any(
        name in f"{each.shown}{each.student}" for each in under for name in ("ada", "eve")
    )


@pytest.mark.parametrize("text", ["", "[]", "{", '{"ada": 1}', "student,pseudonym\n"])
def test_key_file_that_is_none_is_left_alone(tmp_path: Path, text: str) -> None:
    key = tmp_path / "key.json"
    key.write_text(text, encoding="utf-8")
    with pytest.raises(RosterError, match="no key file"):
        pseudonyms(key, ["ada"])
    assert key.read_text(encoding="utf-8") == text


def test_words_of_the_feedback_are_plain_and_short() -> None:
    told = feedback(nasty())
    everything = [told.title, *told.summary, *told.notes, *told.limits, *told.set_aside]
    assert all("\n" not in text and len(text) <= 1_001 for text in everything)
