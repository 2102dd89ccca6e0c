"""The page to take along: figures from a run and none typed, links to cells, one printed sheet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import browser_support as support
import nbconvert
import pytest

from durable_mini.lab import notebooks
from durable_mini.lab.chaos_shipped import shipped_experiments
from durable_mini.lab.one_page import ALOUD, NOT_PRINTED, PRINT_PT, SAGAS_ALOUD, Figures, on_paper
from durable_mini.lab.simulation import simulate
from durable_mini.lab.theory import STRATEGIES, exact

RUNS, SEED = 60, 3
PAGE = Path(__file__).resolve().parent.parent / "course" / "one_page.ipynb"
TYPED = re.compile(r"(?<![\w/.])\d+(?:\.\d+)?")


@pytest.fixture(scope="module")
def figures() -> Figures:
    return Figures.from_run(RUNS, SEED)


def test_sentences_hold_no_digit_of_their_own() -> None:
    assert re.findall(r"\d", ALOUD + SAGAS_ALOUD) == []


def test_sentences_give_what_the_simulation_gave(figures: Figures) -> None:
    said = " ".join(figures.aloud().split())

    found = simulate("restart", 0.08, RUNS, SEED).cost
    true = exact("restart", 0.08).cost.mean
    half = found.high - found.mean
    assert f"Starting over costs {found.mean:.2f} ± {half:.2f} (exact {true:.2f})" in said
    assert f"Simulated: {RUNS} runs of an agent with 7 steps, 3 of them effects" in said
    assert "Why not 8.0?" in said
    assert "{" not in said


def test_receiver_is_tested_as_often_as_the_journal_alone_repeats(figures: Figures) -> None:
    repeats = simulate("journal", 0.08, RUNS, SEED).duplicates.mean

    assert f"made {repeats:.0f} repeats" in " ".join(figures.aloud().split())


def test_receiver_that_was_never_tested_is_bounded_by_nothing() -> None:
    said = " ".join(Figures.from_run(runs=1, seed=0).aloud().split())

    assert "at about 100 %" in said


def test_sentences_give_what_the_real_kills_gave(figures: Figures) -> None:
    said = " ".join(figures.aloud().split())

    report = shipped_experiments()["large"].report
    costs = {one.strategy: f"{one.measured()['cost']:.2f}" for one in report.strategies}
    assert f"Real workers, {sum(one.kills for one in report.strategies):,} of them killed" in said
    assert f"starting over {costs['restart']}, a queue with retries {costs['queue']}" in said


def test_sentence_on_sagas_counts_every_one_of_them(figures: Figures) -> None:
    said = " ".join(figures.sagas_aloud().split())

    sagas, completed, undone, person = map(int, re.findall(r"\d+", said))
    assert (sagas, completed + undone + person) == (RUNS, RUNS)


def test_table_has_a_row_for_each_figure_and_a_column_for_each_strategy(figures: Figures) -> None:
    head, rule, *rows = figures.table().splitlines()

    assert f"seed {SEED}, {RUNS} runs" in head
    assert all(strategy in head for strategy in STRATEGIES)
    assert [row.split("|")[1].strip() for row in rows] == [
        "cost per run at 2 %",
        "cost per run at 8 %",
        "cost per run at 20 %",
        "restarts per run at 8 %",
        "duplicates at 8 %",
    ]
    assert {line.count("|") for line in (head, rule, *rows)} == {5}
    assert rows[-1].rstrip(" |").endswith("0 ± 0 (exact 0)")


# ---- the notebook ------------------------------------------------------------------------------


def cells() -> dict[str, Any]:
    return {cell.id: cell for cell in notebooks.read(PAGE).cells}


def test_every_rule_and_every_mistake_leads_to_the_cell_that_shows_it() -> None:
    """`notebooks.check` holds each link to a cell that exists; here: that there is one."""
    lines = cells()["ten-design-rules"].source.splitlines()
    rules = [line for line in lines if re.match(r"\| \d", line)]
    mistakes = [line for line in cells()["common-mistakes"].source.splitlines() if line[:1] == "-"]

    assert [line.split("|")[1].strip() for line in rules] == [str(n) for n in range(1, 11)]
    assert len(mistakes) >= 15
    for line in [*rules, *mistakes]:
        assert re.search(r"\]\(\d\d_\w+\.ipynb#cell-id=[\w-]+\)", line), line


def test_page_leads_into_every_chapter_that_teaches() -> None:
    text = " ".join(cell.source for cell in cells().values())

    assert {f"{n:02}" for n in range(12)} - set(re.findall(r"\((\d\d)_", text)) == {"01"}


def test_no_figure_is_typed_into_the_prose() -> None:
    prose = " ".join(cell.source for cell in cells().values() if cell.cell_type == "markdown")
    prose = re.sub(r"\[[^\]]*\]\([^)]*\)", "", prose)  # a link's words name chapter and section

    settings = {"10", "95"}  # the minutes and the interval
    numbering = {str(number) for number in range(1, 11)}
    assert set(TYPED.findall(prose)) <= settings | numbering | {"08", "4"}


# ---- on paper ----------------------------------------------------------------------------------


def test_what_stays_on_the_screen_is_in_the_notebook() -> None:
    assert set(NOT_PRINTED) < set(cells())


def test_style_is_for_the_printer_alone() -> None:
    shown = on_paper()._repr_mimebundle_()["text/html"]

    style, _, said = shown.partition("</style>")
    assert style.startswith("<style>@media print {")
    assert style.count("{") == style.count("}")
    assert said == "<p>This notebook prints on one sheet: File → Print.</p>"


@pytest.fixture(scope="module")
def printer() -> Any:
    """A browser that has the page as nbconvert makes it, code cells and all."""
    if missing := support.missing_part():
        pytest.skip(missing)
    made, _ = nbconvert.HTMLExporter().from_notebook_node(notebooks.read(PAGE))
    with support.browser() as browser:
        browser.page.set_content(made)
        yield browser.page


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_page_prints_on_exactly_one_sheet(printer: Any, paper: str) -> None:
    pdf = printer.pdf(format=paper)

    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1


SIZES = """() => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    while (walker.nextNode()) {
        const node = walker.currentNode, element = node.parentElement;
        if (node.textContent.trim() && element.checkVisibility())
            found.push([parseFloat(getComputedStyle(element).fontSize), node.textContent.trim()]);
    }
    return found;
}"""


@pytest.mark.browser
@pytest.mark.slow
def test_printed_page_has_all_of_it_and_nothing_small(printer: Any) -> None:
    printer.emulate_media(media="print")
    found = printer.evaluate(SIZES)
    printer.emulate_media(media="screen")

    assert min(size for size, _ in found) * 72 / 96 == pytest.approx(PRINT_PT) and PRINT_PT >= 9.5
    text = " ".join(text for _, text in found)
    for wanted in ("What it is.", "Why it pays.", "Limits.", "Build or buy", "TIMED_OUT", "(11)"):
        assert wanted.strip("()") in text
    for hidden in ("import", "In [", "minutes", "When you are done"):
        assert hidden not in text
