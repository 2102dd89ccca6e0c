"""A mock interview in a real browser, by keyboard, through the death of its kernel."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import browser_support as support
import nbformat
import pytest

from durable_mini.school.mock import MockInterview
from durable_mini.school.reviews import Reviews

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(support.missing_part() is not None, reason=str(support.missing_part())),
]

PID = "import os\nos.getpid()"
INTERVIEW = "from durable_mini.school import rehearse\nrehearse('mock', minutes=20)"


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return tmp_path / "profile"


@pytest.fixture
def page(tmp_path: Path, profile: Path) -> Iterator[Any]:
    """A page with the interview's cell, run once."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    cells = [nbformat.v4.new_code_cell(source) for source in (PID, INTERVIEW)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / "mock.ipynb")
    with support.jupyter_lab(folder, profile) as lab, support.browser() as browser:
        support.open_notebook(browser.page, lab, "mock.ipynb")
        support.run_all(browser.page)
        assert support.errors_in_notebook(browser.page) == []
        yield browser.page
        assert browser.foreign == []


def press(page: Any, button: str) -> None:
    page.get_by_role("button", name=button, exact=True).focus()
    page.keyboard.press("Enter")


def type_into(page: Any, label: str, text: str) -> None:
    page.get_by_label(label, exact=True).focus()
    page.keyboard.insert_text(text)


def tick(page: Any, label: str | re.Pattern[str], place: int = 0) -> None:
    box = page.get_by_label(label, exact=isinstance(label, str)).nth(place)
    box.focus()
    page.keyboard.press("Space")
    assert box.is_checked()


def wait_for(page: Any, said: str) -> None:
    page.locator("[role=status]").get_by_text(said).first.wait_for(timeout=20_000)


def answer(page: Any, text: str) -> None:
    type_into(page, "Answer", text)
    tick(page, "2, fairly sure")
    press(page, "That is my answer")


def kill_the_kernel(page: Any) -> None:
    """SIGKILL, as an operating system does it; JupyterLab starts another one."""
    pid = page.locator(".jp-OutputArea-output pre").first.inner_text()
    os.kill(int(pid), signal.SIGKILL)
    page.get_by_role("button", name=re.compile("^Ok$", re.IGNORECASE)).click(timeout=30_000)
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status"
        " === 'idle'",
        timeout=30_000,
    )
    support.run_all(page)
    assert page.locator(".jp-OutputArea-output pre").first.inner_text() != pid


def test_interview_survives_its_kernel_and_its_debrief_adds_up(
    page: Any, profile: Path, figure: Callable[[str], None]
) -> None:
    page.get_by_label("with a clock", exact=True).focus()
    page.keyboard.press("Space")
    press(page, "Begin")
    wait_for(page, "Stage 1 of 4: Clarify")
    answer(page, "What is worst?")
    wait_for(page, "Stage 2 of 4: Design")
    type_into(page, "Steps", "reserve\ncharge\nship")
    type_into(page, "No way back", "charge")
    tick(page, "compensations")
    answer(page, "A saga.")
    wait_for(page, "Stage 3 of 4")

    kill_the_kernel(page)

    wait_for(page, "An interview of 20 minutes is under way, at stage 3 of 4.")
    press(page, "Go on")
    wait_for(page, "Stage 3 of 4: A failure in your design")
    page.get_by_text(re.compile('"(reserve|charge)"')).first.wait_for()
    answer(page, "It is repeated under its key.")
    wait_for(page, "Stage 4 of 4: A number")
    answer(page, "About two.")
    wait_for(page, "the follow-up to it")
    type_into(page, "Answer", "About five.")
    press(page, "That is my answer")

    for number in range(1, 5):
        wait_for(page, f"Debrief, {number} of 4")
        tick(page, re.compile("^must: "), 0)
        if number == 4:
            tick(page, "missed it")
            support.keep_screenshot(page, "quiz-debrief")
        press(page, "Ticked")
    wait_for(page, "4 scores were added to the log.")
    page.get_by_text("Together: 4 of 12").wait_for()

    data = profile / "share" / "durable-mini"
    told = MockInterview(data / "interviews.db").told("mock-1")
    assert [one.worth for one in told] == [1, 1, 1, 1]
    assert [one.limit_s for one in told] == [None] * 4
    assert told[1].answer.steps == ("reserve", "charge", "ship")
    assert len(Reviews(data / "reviews.jsonl").read()) == 4
    figure("browser: a mock interview of 4 stages, its kernel killed after 2, debrief 4 of 12")
