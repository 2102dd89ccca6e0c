"""The reader's ticks: kept in a file of theirs, by their click alone, and told to nobody else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser_support as support
import platformdirs
import pytest

from durable_mini.lab import progress as module
from durable_mini.lab.chapters import CHAPTERS, Chapter, Route
from durable_mini.lab.progress import Kept, Progress, ProgressFile, Score, compared

ONE, TWO = Chapter("00_one.ipynb", "One?", 30), Chapter("01_two.ipynb", "Two?", 45)
ROUTE = Route("all", "You want it all.", (ONE, TWO))
BAD_EXERCISES = '{"finished": [], "exercises": {"03_keys": 7}}'
EXERCISES = ("02_of_no_chapter_here",)


@pytest.fixture
def file(tmp_path: Path) -> ProgressFile:
    return ProgressFile(tmp_path / "reader" / "progress.json")


def page(file: ProgressFile) -> Progress:
    return Progress(file, [ONE, TWO], [ROUTE], EXERCISES)


# ---- the file ----------------------------------------------------------------------------------


def test_file_stands_in_the_users_own_folder() -> None:
    assert ProgressFile().path.is_relative_to(platformdirs.user_data_path("durable-mini", False))


def test_ticks_and_counts_are_there_for_the_next_kernel(file: ProgressFile) -> None:
    file.tick("00_one", done=True)
    file.tick("01_two", done=True)
    file.tick("00_one", done=False)
    file.count(Score(4, 15), after=False)
    file.count(Score(13, 15), after=True)

    assert ProgressFile(file.path).read() == Kept(
        frozenset({"01_two"}), Score(4, 15), Score(13, 15)
    )


def test_first_count_is_where_the_reader_began_and_the_last_is_now(file: ProgressFile) -> None:
    for right in (4, 9):
        file.count(Score(right, 15), after=False)
        kept = file.count(Score(right + 3, 15), after=True)

    assert (kept.began, kept.now) == (Score(4, 15), Score(12, 15))


def test_reading_alone_writes_nothing(file: ProgressFile) -> None:
    assert file.read() == Kept()
    assert not file.path.parent.exists()


def test_reset_forgets_ticks_and_counts(file: ProgressFile) -> None:
    file.tick("00_one", done=True)
    file.count(Score(4, 15), after=False)
    file.reset()

    assert ProgressFile(file.path).read() == Kept()


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"finished": 3}', '{"finished": [], "now": 4}', BAD_EXERCISES, "\0"]
)
def test_file_that_cannot_be_read_is_said_and_put_aside(file: ProgressFile, text: str) -> None:
    file.path.parent.mkdir()
    file.path.write_text(text, encoding="utf-8")

    assert file.read() == Kept()
    assert "can't be read" in file.trouble
    assert file.path.read_text(encoding="utf-8") == text  # reading alone moves nothing

    file.tick("00_one", done=True)
    assert file.trouble == ""
    assert file.path.with_suffix(".unreadable").read_text(encoding="utf-8") == text
    assert ProgressFile(file.path).read().finished == {"00_one"}


def test_ticks_last_as_long_as_the_kernel_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be", encoding="utf-8")
    file = ProgressFile(tmp_path / "taken" / "progress.json")
    file.tick("00_one", done=True)

    assert "can't be written" in file.trouble
    assert file.read().finished == {"00_one"}


def test_chapter_that_this_version_does_not_have_stays_ticked(file: ProgressFile) -> None:
    file.tick("99_later", done=True)
    page(file).boxes["00_one"].value = True

    assert file.read().finished == {"00_one", "99_later"}


def test_file_holds_names_and_counts_and_nothing_else(file: ProgressFile) -> None:
    file.tick("00_one", done=True)
    file.count(Score(4, 15), after=False)

    stored = json.loads(file.path.read_text(encoding="utf-8"))
    assert stored == {"finished": ["00_one"], "began": {"right": 4, "of": 15}}
    assert list(file.path.parent.iterdir()) == [file.path]


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (Kept(), ""),
        (Kept(began=Score(4, 15)), "Where you began: 4 of 15 in the inventory."),
        (Kept(now=Score(13, 15)), "In the inventory: 13 of 15."),
        (Kept(began=Score(4, 15), now=Score(13, 15)), "Where you began: 4 of 15, now 13."),
    ],
)
def test_counts_before_and_after_are_set_side_by_side(kept: Kept, said: str) -> None:
    assert compared(kept) == said


# ---- the page ----------------------------------------------------------------------------------


def test_box_of_each_chapter_says_how_long_it_takes() -> None:
    boxes = Progress(ProgressFile(Path("nowhere", "progress.json"))).boxes

    assert list(boxes) == [chapter.name for chapter in CHAPTERS]
    assert "02_replay, 1 h 00 min" in [box.description for box in boxes.values()]


def test_showing_the_page_ticks_nothing_and_writes_nothing(
    file: ProgressFile, shown: list[dict[str, Any]]
) -> None:
    page(file)._ipython_display_()

    assert len(shown) == 1
    assert not file.path.exists()


def test_click_is_kept_and_shown_and_taken_back(file: ProgressFile) -> None:
    at_first = page(file)
    at_first.boxes["00_one"].value = True

    assert "Finished: 1 of 2 chapters, 30 min of 1 h 15 min." in at_first.words
    assert "Route all: 1 of 2; 45 min to go, next 01_two." in at_first.words
    assert page(file).boxes["00_one"].value  # the next kernel finds it

    at_first.boxes["00_one"].value = False
    assert "Finished: 0 of 2" in at_first.words
    assert file.read().finished == frozenset()


def test_finished_route_is_done(file: ProgressFile) -> None:
    ticked = page(file)
    for box in ticked.boxes.values():
        box.value = True

    assert "Route all: done." in ticked.words


def test_page_follows_what_another_page_ticked(file: ProgressFile) -> None:
    one, other = page(file), page(file)
    one.boxes["00_one"].value = True
    other.boxes["01_two"].value = True

    assert other.boxes["00_one"].value
    assert file.read().finished == {"00_one", "01_two"}


def test_reset_needs_two_presses_and_says_so(file: ProgressFile) -> None:
    ticked = page(file)
    ticked.boxes["00_one"].value = True

    ticked.reset_button.click()
    assert ticked.reset_button.description == "Really forget all?"
    ticked.keep_button.click()
    ticked.reset_button.click()
    assert ticked.boxes["00_one"].value

    ticked.reset_button.click()
    assert not ticked.boxes["00_one"].value
    assert file.read() == Kept()
    assert ticked.reset_button.description == "Reset …"


def test_chapter_with_an_exercise_is_finished_when_that_has_reached_its_share(
    file: ProgressFile,
) -> None:
    def said() -> str:
        return Progress(file, [ONE, TWO], [ROUTE], ["01_exercise"]).words

    file.tick("01_two", done=True)
    assert "Finished: 0 of 2" in said()
    assert "01_two is ticked; its exercise 01_exercise isn&#x27;t graded yet." in said()

    file.solve("01_exercise", Score(5.5, 10))
    assert "its exercise 01_exercise stands at 5.5 of 10." in said()

    file.solve("01_exercise", Score(6, 10))
    assert "Finished: 1 of 2" in said()
    assert "Exercises at 60 % or more: 1 of 1: 01_exercise (6 of 10)." in said()


def test_exercise_alone_ticks_no_chapter(file: ProgressFile) -> None:
    file.solve("01_exercise", Score(10, 10))

    shown = Progress(file, [ONE, TWO], [ROUTE], ["01_exercise"])
    assert "Finished: 0 of 2" in shown.words
    assert not shown.boxes["01_two"].value


def test_best_result_of_an_exercise_is_kept_until_all_is_forgotten(file: ProgressFile) -> None:
    for points in (4.5, 8, 3):
        file.solve("03_keys", Score(points, 10))
    assert ProgressFile(file.path).read().exercises == {"03_keys": Score(8, 10)}

    file.tick("01_two", done=True)
    assert ProgressFile(file.path).read().exercises == {"03_keys": Score(8, 10)}
    file.reset()
    assert ProgressFile(file.path).read() == Kept()


def test_page_says_where_it_keeps_and_how_the_inventory_went(file: ProgressFile) -> None:
    file.count(Score(4, 15), after=False)
    file.count(Score(13, 15), after=True)

    words = page(file).words
    assert "Where you began: 4 of 15, now 13." in words
    assert f"Kept in {file.path}, and nowhere else." in words


def test_what_the_notebook_keeps_is_the_same_for_every_reader(
    file: ProgressFile, shown: list[dict[str, Any]]
) -> None:
    page(file)._ipython_display_()
    file.tick("00_one", done=True)
    file.count(Score(4, 15), after=False)
    page(file)._ipython_display_()

    before, after = (
        {mime: text for mime, text in bundle.items() if mime.startswith("text/")}
        for bundle in shown
    )
    assert before == after
    assert before["text/plain"] == "[ ] 00_one, 30 min\n[ ] 01_two, 45 min"
    assert str(file.path) not in before["text/html"]


# ---- in a browser ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, support.Lab, Path]]:
    """A page, a JupyterLab on a copy of the course, and where this reader's file would be."""
    if missing := support.missing_part():
        pytest.skip(missing)
    folder, profile = (tmp_path_factory.mktemp(name) for name in ("lab", "profile"))
    shutil.copytree(support.REPOSITORY / "course", folder / "course")
    with support.jupyter_lab(folder, profile) as lab, support.browser() as browser:
        yield browser.page, lab, profile / "share" / "durable-mini" / "progress.json"
        assert browser.foreign == []


@pytest.fixture
def opened(lab: tuple[Any, support.Lab, Path]) -> tuple[Any, Path]:
    """Chapter 00 as it is before anybody ticks anything, every cell run."""
    page, server, file = lab
    file.unlink(missing_ok=True)
    support.open_notebook(page, server, "course/00_start_here.ipynb")
    support.run_all(page)
    return page, file


@pytest.mark.browser
@pytest.mark.slow
def test_chapter_is_ticked_and_forgotten_by_keyboard_alone(opened: tuple[Any, Path]) -> None:
    page, file = opened
    assert not file.exists()  # "Run all" ticked nothing

    box = page.get_by_label("00_start_here, 35 min")
    box.focus()
    page.keyboard.press("Space")
    page.get_by_text(f"Finished: 1 of {len(CHAPTERS)} chapters, 35 min").wait_for()
    assert json.loads(file.read_text(encoding="utf-8")) == {"finished": ["00_start_here"]}
    cell = page.locator(".jp-CodeCell").filter(has_text="import progress")
    support.keep_screenshot(page, "00_progress", cell)

    page.get_by_role("button", name="Reset …").press("Enter")
    page.get_by_role("button", name="Really forget all?").press("Enter")
    page.get_by_text(f"Finished: 0 of {len(CHAPTERS)} chapters").wait_for()
    assert not box.is_checked()
    assert json.loads(file.read_text(encoding="utf-8")) == {"finished": []}


@pytest.mark.browser
@pytest.mark.slow
def test_inventory_is_counted_before_and_after_by_keyboard_alone(opened: tuple[Any, Path]) -> None:
    page, file = opened
    first, second = page.get_by_label("at the top of the function").all()
    counts = page.get_by_role("button", name="Count mine")
    counts.nth(0).press("Enter")
    page.get_by_text("0 of 15 right. That is kept: it is where you began.").wait_for()

    second.focus()
    page.keyboard.press("Space")
    counts.nth(1).press("Enter")
    page.get_by_text("1 of 15 right. Where you began: 0 of 15, now 1.").wait_for()
    assert not first.is_checked()
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert kept["began"] == {"right": 0, "of": 15}
    cell = page.locator(".jp-CodeCell").filter(has_text="inventory(after=True)")
    support.keep_screenshot(page, "00_inventory_after", cell)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The bundles that a cell would have displayed."""
    bundles: list[dict[str, Any]] = []
    monkeypatch.setattr(module, "show_bundle", lambda data, metadata=None: bundles.append(data))
    return bundles
