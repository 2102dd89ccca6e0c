"""What leaves the quiz: notes for Anki, and a page of all questions."""

from __future__ import annotations

import re
from collections.abc import Iterator

import browser_support as support
import pytest
from bs4 import BeautifulSoup
from test_site import faults, violations

from durable_mini.school.anki import anki_text, guid
from durable_mini.school.bank import FollowUp, Point, Question, Source, load_questions
from durable_mini.school.figures import Figures
from durable_mini.school.printable import questions_page

FOLLOW_UP = FollowUp("more", "why", "And\tthen?", "Then <i>that</i>.")
NASTY = Question(
    "nasty", "02_replay", "debug", 2, True, 'What does "<b>this</b>" say?',
    "line 1\n\tline <2>", "First.\n\nSecond & last: `a < b`.", (Point("why", "<why>", True),),
    ("</details>",), (FOLLOW_UP, FollowUp("also", "always", "Also?", "Yes.")), "", {},
    (Source("a claim", "https://example.org/?a=1&b=2"),),
)  # fmt: skip


@pytest.fixture(scope="module")
def bank() -> list[Question]:
    return load_questions()


@pytest.fixture(scope="module")
def page(bank: list[Question]) -> str:
    return questions_page(bank, Figures(5, 40))


def notes(questions: list[Question], seed: int = 0) -> list[list[str]]:
    lines = anki_text(questions, Figures(seed, 40)).splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def test_anki_file_begins_with_the_headers_that_say_what_is_where() -> None:
    headers = [line for line in anki_text([NASTY], Figures()).splitlines() if line[0] == "#"]
    assert headers == [
        "#separator:tab", "#html:true", "#notetype:Basic", "#guid column:1", "#deck column:2",
        "#tags column:3",
    ]  # fmt: skip


def test_note_is_one_line_of_five_fields_whatever_is_in_it() -> None:
    first, second, third = notes([NASTY])
    assert first[:3] == [
        "durable-mini:nasty",
        "Durable execution::02_replay",
        "durable-mini kind::debug level::2 core",
    ]
    assert second[0] == "durable-mini:nasty/more"
    assert third[2].endswith("core follow-up")
    assert [len(note) for note in (first, second, third)] == [5, 5, 5]
    assert "&lt;b&gt;this" in first[3] and "line 1<br>    line &lt;2&gt;" in first[3]


def test_guids_are_permanent_and_unique(bank: list[Question]) -> None:
    one, other = notes(bank, seed=1), notes(bank[::-1], seed=2)
    guids = [note[0] for note in one]
    assert len(set(guids)) == len(guids) == len(bank) + sum(len(q.follow_ups) for q in bank)
    assert set(guids) == {note[0] for note in other}
    assert guid(bank[0]) == f"durable-mini:{bank[0].id}"


def test_page_has_every_question_with_its_answer_folded(bank: list[Question], page: str) -> None:
    found = BeautifulSoup(page, "html.parser")
    assert [one["id"] for one in found.select("article")] == [f"q-{one.id}" for one in bank]
    assert len(found.select("details")) == len(bank) + sum(len(one.follow_ups) for one in bank)
    assert found.select("details[open]") == []
    assert all(one.select_one("summary") for one in found.select("details"))


def test_page_is_sound_and_loads_nothing(page: str) -> None:
    assert faults(BeautifulSoup(page, "html.parser")) == []
    assert re.findall(r"<(script|iframe|img|object)\b", page) == []
    assert "default-src 'none'" in page


def test_page_shows_what_is_in_the_bank_and_obeys_nothing() -> None:
    found = BeautifulSoup(questions_page([NASTY], Figures()), "html.parser")
    assert found.select("article b, article i") == []
    words = found.select("article")[0].get_text(" ")
    assert "</details>" in words and "<why>" in words and "line <2>" in words
    assert found.select_one("article a")["href"] == "https://example.org/?a=1&b=2"  # type: ignore[index]


def test_same_seed_gives_the_same_page(bank: list[Question]) -> None:
    figures = Figures(5, 40)
    assert questions_page(bank[:9], figures) == questions_page(bank[:9], figures)


@pytest.fixture
def browser() -> Iterator[support.Browser]:
    with support.browser() as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(support.missing_part() is not None, reason=str(support.missing_part()))
def test_page_shuts_nobody_out(page: str, browser: support.Browser) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    browser.page.set_content(page)
    browser.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert violations(axe, browser.page, 1280) == []
    browser.page.set_viewport_size({"width": 390, "height": 850})
    assert violations(axe, browser.page, 390) == []
    assert browser.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.foreign == []
