"""The course in a real browser: widgets that move, say what they show, and reach no other host."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import browser_support as support
import nbformat
import pytest

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(support.missing_part() is not None, reason=str(support.missing_part())),
]

LIVE = """
import time
from durable_mini.lab.figures import numbers_table
from durable_mini.lab.pictures import Picture, blank_figure
from durable_mini.lab.sliders import LivePicture, StepThrough, compare, predict, slider

def compute(values):
    if values["size"] == 8:
        raise ZeroDivisionError("eight is too many")
    pieces = 200 if values["size"] == 9 else 1
    for piece in range(pieces):
        time.sleep(0.05)
        yield piece / pieces
    yield values["size"]

def draw(size):
    figure = blank_figure(4, 1.5)
    figure.subplots().barh([0], [size])
    return Picture(figure, f"A bar of length {size}.")

LivePicture(
    [slider("size", "size", 3, 1, 9, 1)], compute, draw, lambda size: f"The bar is {size} long.",
    tables=lambda size: numbers_table([{"what": "bar", "length": size}]).to_html(),
)
"""
PREDICT = 'predict("How long is the bar?", ["short", "long"], "bar")'
COMPARE = 'compare("bar", "long", "It grew.")'
STEPS = 'StepThrough([1, 2, 3], draw, lambda size: f"Now it is {size}.")'


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[support.Lab]:
    """A JupyterLab on copies: it saves what it has open, and that must not be the course."""
    folder = tmp_path_factory.mktemp("notebooks")
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source.strip()) for source in SOURCES],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(notebook, folder / "widgets.ipynb")
    shutil.copytree(support.REPOSITORY / "course", folder / "course")
    with support.jupyter_lab(folder, tmp_path_factory.mktemp("profile")) as running:
        yield running


SOURCES = [LIVE, PREDICT, COMPARE, STEPS]


@pytest.fixture(scope="module")
def page(lab: support.Lab) -> Iterator[Any]:
    """A page that is checked at its end for requests to other hosts."""
    with support.browser() as browser:
        yield browser.page
        assert browser.foreign == []


@pytest.fixture
def widgets_page(page: Any, lab: support.Lab) -> Any:
    """The page with the notebook of widgets, run once; each test finds it as the last left it."""
    if not support.shows(page, "widgets.ipynb"):
        support.open_notebook(page, lab, "widgets.ipynb")
        support.run_all(page)
        assert support.errors_in_notebook(page) == []
    return page


def cell_of(page: Any, source: str) -> Any:
    """The cell whose code holds `source`."""
    code = page.locator(".cm-content", has_text=source)
    return page.locator(".jp-CodeCell", has=code).first


def words_of(cell: Any) -> Any:
    return cell.locator("[role=status]")


def picture_of(cell: Any) -> str:
    return str(cell.locator("img.widget-image").get_attribute("src"))


def set_size(cell: Any, size: int) -> None:
    cell.get_by_label("size").fill(str(size))
    cell.get_by_label("size").press("Enter")


def test_key_on_the_slider_changes_picture_sentence_table_and_field(widgets_page: Any) -> None:
    cell = cell_of(widgets_page, "LivePicture(")
    set_size(cell, 3)
    words_of(cell).get_by_text("The bar is 3 long.").wait_for()
    before = picture_of(cell)
    cell.locator(".noUi-handle").focus()
    widgets_page.keyboard.press("ArrowRight")
    words_of(cell).get_by_text("The bar is 4 long.").wait_for()
    assert picture_of(cell) != before
    assert cell.get_by_label("size").input_value() == "4"
    assert cell.locator("img.widget-image").get_attribute("title") == "A bar of length 4."
    assert cell.locator("table td").inner_text() == "4"


def test_long_computation_shows_progress_and_a_newer_position_overtakes_it(
    widgets_page: Any,
) -> None:
    cell = cell_of(widgets_page, "LivePicture(")
    set_size(cell, 9)
    progress = cell.locator(".widget-hprogress")
    progress.wait_for(state="visible")
    set_size(cell, 2)
    words_of(cell).get_by_text("The bar is 2 long.").wait_for(timeout=5_000)
    progress.wait_for(state="hidden")
    widgets_page.wait_for_timeout(500)
    assert words_of(cell).inner_text() == "The bar is 2 long."


def test_exception_is_said_where_the_sentence_stands(widgets_page: Any) -> None:
    cell = cell_of(widgets_page, "LivePicture(")
    set_size(cell, 8)
    words_of(cell).get_by_text("ZeroDivisionError: eight is too many").wait_for()
    set_size(cell, 5)
    words_of(cell).get_by_text("The bar is 5 long.").wait_for()


def test_prediction_is_compared_once_it_is_clicked(widgets_page: Any) -> None:
    answer = words_of(cell_of(widgets_page, "compare("))
    assert answer.inner_text() == "long. It grew."
    cell_of(widgets_page, "predict(").get_by_label("short").check()
    answer.get_by_text("You said short. long. It grew.").wait_for()


def test_steps_are_gone_through_by_button_and_by_key(widgets_page: Any) -> None:
    cell = cell_of(widgets_page, "StepThrough(")
    first = picture_of(cell)
    cell.get_by_role("button", name="Forward").click()
    words_of(cell).get_by_text("2 of 3: Now it is 2.").wait_for()
    assert picture_of(cell) != first
    cell.get_by_role("button", name="Back").press("Enter")
    words_of(cell).get_by_text("1 of 3: Now it is 1.").wait_for()
    cell.locator(".noUi-handle").focus()
    widgets_page.keyboard.press("End")
    words_of(cell).get_by_text("3 of 3: Now it is 3.").wait_for()
    assert cell.get_by_role("button", name="Forward").is_disabled()


def test_results_chapter_shows_its_picture_before_anything_runs_and_moves_after(
    page: Any, lab: support.Lab
) -> None:
    support.open_notebook(page, lab, "course/04_results.ipynb")
    cell = cell_of(page, "results_slider()")
    cell.locator("img[src^='data:image/png']").wait_for()
    cell.get_by_text("A run costs").wait_for()

    support.run_down_to(page, "results_slider()")
    assert support.errors_in_notebook(page) == []
    before, table = picture_of(cell), cell.locator("table").first.inner_text()
    cell.locator(".noUi-handle").first.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    words_of(cell).get_by_text("crash rate 0.12").wait_for()
    assert cell.get_by_label("crash rate").input_value() == "0.12"
    assert picture_of(cell) != before
    assert cell.locator("table").first.inner_text() != table
    kept = support.keep_screenshot(page, "04_results_slider", cell)
    assert kept.stat().st_size > 10_000


@pytest.mark.parametrize(
    "name", [path.name for path in sorted((support.REPOSITORY / "course").glob("*.ipynb"))]
)
def test_every_chapter_runs_and_each_of_its_widgets_moves_without_an_error(
    page: Any, lab: support.Lab, name: str, figure: Callable[[str], None]
) -> None:
    support.open_notebook(page, lab, f"course/{name}")
    support.run_all(page, timeout_s=300)

    assert support.errors_in_notebook(page) == []
    assert support.keep_screenshot(page, name.removesuffix(".ipynb")).stat().st_size > 10_000

    sliders, buttons = support.move_every_widget(page)
    figure(f"browser, {name}: {sliders} sliders and {buttons} buttons moved by keyboard")
    assert support.errors_in_notebook(page) == []
    assert support.complaints_of_widgets(page) == []
