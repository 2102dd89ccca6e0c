"""Widgets: what moves, what is said, what is overtaken, and what is left without a kernel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import nbformat
import pytest

from durable_mini.lab import predictions, sliders, widgets
from durable_mini.lab.pictures import Picture, blank_figure
from durable_mini.lab.sliders import (
    LivePicture,
    StepThrough,
    choice,
    compare,
    explain,
    predict,
    results_slider,
    setting_from,
    slider,
    stepped_slider,
)
from durable_mini.lab.theory import exact

DISPLAYED = "IPython.display.display"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Every bundle that a cell would have shown."""
    bundles: list[dict[str, Any]] = []

    def display(data: dict[str, Any], *, metadata: dict[str, Any], raw: bool) -> None:
        assert raw
        bundles.append({"data": data, "metadata": metadata})

    monkeypatch.setattr(DISPLAYED, display)
    return bundles


@pytest.fixture(autouse=True)
def forget_predictions() -> Iterator[None]:
    yield
    predictions._questions.clear()


def draw(number: float) -> Picture:
    return Picture(blank_figure(1, 1), f"The number {number}.")


def live(compute: Callable[[Any], Iterable[Any]]) -> LivePicture[Any]:
    return LivePicture(
        [slider("size", "size", 3, 1, 9, 1)], compute, draw, lambda number: f"It is {number}."
    )


def said(picture: LivePicture[Any]) -> str:
    return str(picture._words.value)


# ---- controls ----------------------------------------------------------------------------------


def test_slider_and_field_say_the_same_whichever_is_moved() -> None:
    control = slider("rate", "crash rate", 0.08, 0.0, 0.3, 0.01)
    field, handle = control.row.children
    handle.value = 0.2
    assert field.value == 0.2
    field.value = 0.05
    assert handle.value == 0.05
    assert field.description == "crash rate"


def test_slider_value_is_what_the_reader_sees() -> None:
    control = slider("rate", "crash rate", 0.08, 0.0, 1.0, 0.1)
    control.value = 0.1 + 0.2
    assert control.value == 0.3


def test_stepped_slider_stops_unevenly_and_its_field_takes_anything_between() -> None:
    control = stepped_slider("runs", "runs", 400, (50, 400, 4_000))
    field, handle = control.row.children
    handle.value = 2
    assert control.value == 4_000
    field.value = 500
    assert control.value == 500
    assert handle.value == 1


def test_slider_refuses_a_value_beyond_its_ends() -> None:
    control = slider("steps", "steps", 7, 1, 14, 1)
    control.value = 99
    assert control.value == 14


# ---- a live picture ----------------------------------------------------------------------------


def test_first_picture_is_there_before_the_cell_ends() -> None:
    picture = live(lambda values: [0.5, values["size"]])
    assert "It is 3." in said(picture)
    assert bytes(picture._image.value).startswith(b"\x89PNG")
    assert picture._image.tooltip == "The number 3."


def test_moving_the_slider_changes_picture_and_sentence() -> None:
    picture = live(lambda values: [values["size"]])
    picture.controls["size"].value = 5
    assert picture.wait(10)
    assert "It is 5." in said(picture)
    assert picture._image.tooltip == "The number 5."


def test_every_result_is_shown_and_an_unchanged_picture_is_not_sent_again() -> None:
    pictures = {number: draw(number) for number in range(1, 10)}
    drawn: list[object] = []
    picture = LivePicture[tuple[int, str]](
        [slider("size", "size", 3, 1, 9, 1)],
        lambda values: [(values["size"], "first"), (values["size"], "whole")],
        lambda result: pictures[result[0]],
        lambda result: f"{result[1]} {result[0]}",
    )
    picture._image.observe(lambda _change: drawn.append(picture._said), names="value")
    picture.controls["size"].value = 4
    assert picture.wait(10)
    assert "whole 4" in said(picture)
    assert len(drawn) <= 1


def test_newer_position_overtakes_a_long_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widgets, "_PATIENCE_S", 0.01)
    started, go_on, finished = threading.Event(), threading.Event(), []

    def compute(values: Any) -> Iterator[float | int]:
        if values["size"] == 9:
            yield 0.0
            started.set()
            go_on.wait(10)
            yield 0.5
            finished.append(9)
        yield values["size"]

    picture = live(compute)
    picture.controls["size"].value = 9
    assert started.wait(10)
    picture.controls["size"].value = 4
    go_on.set()
    assert picture.wait(10)
    assert "It is 4." in said(picture)
    assert finished == []


def test_long_computation_shows_its_progress_until_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(widgets, "_PATIENCE_S", -1.0)
    monkeypatch.setattr(widgets, "_PROGRESS_EVERY_S", -1.0)
    seen: list[tuple[float, str]] = []
    picture = live(lambda values: [0.25, 0.75, values["size"]])
    bar = picture._progress
    bar.observe(lambda change: seen.append((change["new"], bar.layout.visibility)), names="value")
    picture.controls["size"].value = 6
    assert picture.wait(10)
    assert [value for value, _ in seen] == [0.25, 0.75]
    assert bar.layout.visibility == "hidden"


def test_exception_is_said_and_the_next_position_works() -> None:
    def compute(values: Any) -> Iterator[int]:
        if values["size"] == 8:
            raise ZeroDivisionError("eight & more")
        yield values["size"]

    picture = live(compute)
    picture.controls["size"].value = 8
    assert picture.wait(10)
    assert "ZeroDivisionError: eight &amp; more" in said(picture)
    assert picture._image.tooltip == "The number 3."
    picture.controls["size"].value = 2
    assert picture.wait(10)
    assert "It is 2." in said(picture)


def test_exception_in_the_first_computation_fails_the_cell() -> None:
    def compute(_values: Any) -> Iterator[int]:
        raise ZeroDivisionError("at once")

    with pytest.raises(ZeroDivisionError):
        live(compute)
    with pytest.raises(ValueError, match="no result"):
        live(lambda _values: [0.5])


def test_without_threads_the_picture_is_computed_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_threads(_self: object) -> None:
        raise RuntimeError("can't start new thread")

    picture = live(lambda values: [values["size"]])
    monkeypatch.setattr(threading.Thread, "start", no_threads)
    picture.controls["size"].value = 7
    assert "It is 7." in said(picture)


def test_display_carries_picture_and_sentence_for_a_page_without_a_kernel(
    shown: list[dict[str, Any]],
) -> None:
    live(lambda values: [values["size"]])._ipython_display_()
    picture, words = shown
    assert set(picture["data"]) == {widget_view(), "image/png", "text/plain"}
    assert picture["metadata"] == {"image/png": {"alt": "The number 3."}}
    assert "It is 3." in words["data"]["text/html"]
    assert words["data"]["text/plain"] == "It is 3."


def widget_view() -> str:
    return "application/vnd.jupyter.widget-view+json"


# ---- stepping through --------------------------------------------------------------------------


def test_step_through_goes_forwards_and_backwards_and_stops_at_its_ends() -> None:
    steps = StepThrough(["a", "b", "c"], lambda _frame: draw(0), lambda frame: f"frame {frame}")
    steps._forward.click()
    assert "2 of 3: frame b" in said(steps)
    steps._forward.click()
    assert steps._forward.disabled
    steps._forward.click()
    assert "3 of 3: frame c" in said(steps)
    steps._back.click()
    steps._back.click()
    assert "1 of 3: frame a" in said(steps)
    assert steps._back.disabled


def test_step_through_with_choices_finds_the_chosen_frames() -> None:
    frames = {"short": ["one"], "long": ["one", "two", "three"]}
    steps = StepThrough(
        lambda values: frames[values["length"]],
        lambda _frame: draw(0),
        lambda frame: frame,
        choices=[choice("length", "length", ["long", "short"])],
        start=3,
    )
    assert "3 of 3: three" in said(steps)
    steps.controls["length"].value = "short"
    assert steps.wait(10)
    assert "1 of 1: one" in said(steps)
    steps.controls["length"].value = "long"
    assert steps.wait(10)
    assert "1 of 3: one" in said(steps)


def test_step_through_says_when_the_chosen_frames_cannot_be_made() -> None:
    def frames(values: Any) -> list[str]:
        if values["which"] == "bad":
            raise LookupError("no such frames")
        return ["one"]

    steps = StepThrough(
        frames,
        lambda _frame: draw(0),
        lambda frame: frame,
        choices=[choice("which", "which", ["good", "bad"])],
    )
    steps.controls["which"].value = "bad"
    assert steps.wait(10)
    assert "LookupError: no such frames" in said(steps)
    steps.controls["which"].value = "good"
    assert steps.wait(10)
    assert "1 of 1: one" in said(steps)


@pytest.mark.parametrize(("frames", "start"), [([], 1), (["a"], 2)])
def test_step_through_without_its_first_frame_is_refused(frames: list[str], start: int) -> None:
    with pytest.raises(ValueError, match="there is no frame"):
        StepThrough(frames, lambda _frame: draw(0), str, start=start)


# ---- the results slider ------------------------------------------------------------------------

VALUES = {
    "crash_rate": 0.08,
    "runs": 400,
    "steps": 7,
    "llm_cost": 2.0,
    "before": 1.0,
    "window": 1.0,
    "after": 1.0,
    "seed": 0,
}


@pytest.fixture(scope="module")
def results() -> LivePicture[sliders.ResultsFrame]:
    return results_slider()


def move(results: LivePicture[sliders.ResultsFrame], **values: float) -> str:
    for name, value in values.items():
        results.controls[name].value = value
    assert results.wait(120)
    return said(results)


def test_results_slider_starts_on_the_reference_setting(
    results: LivePicture[sliders.ResultsFrame],
) -> None:
    assert results.values == VALUES
    assert "7 steps, crash rate 0.08, 400 runs" in results._said
    assert "12.154" in results._numbers.value
    assert results._numbers.value.count("<table") == 2


@pytest.mark.slow
def test_results_slider_shows_what_the_command_prints(
    results: LivePicture[sliders.ResultsFrame],
) -> None:
    from durable_mini.lab import results as both_tables

    move(results, **VALUES)
    table = both_tables.results(runs=400, seed=0)
    first = next(row for row in table["by_strategy"] if row["crash_rate"] == 0.08)
    last = table["by_crash_rate"][-1]
    assert f">{first['cost']['simulated']:.3f}<" in results._numbers.value
    assert f">{last['restart']['cost']['simulated']:.3f}<" in results._numbers.value


@pytest.mark.slow
def test_results_slider_regenerates_everything_for_another_setting(
    results: LivePicture[sliders.ResultsFrame],
) -> None:
    before = results._image.value
    text = move(results, **VALUES | {"crash_rate": 0.02, "runs": 50, "steps": 3, "llm_cost": 1.0})
    assert "3 steps, crash rate 0.02, 50 runs" in text
    shape = sliders.shape_of(3, 1.0)
    assert f">{exact('restart', 0.02, shape=shape).cost.mean:.3f}<" in results._numbers.value
    assert results._image.value != before


@pytest.mark.slow
def test_results_slider_refuses_weights_that_are_all_zero(
    results: LivePicture[sliders.ResultsFrame],
) -> None:
    text = move(results, runs=50, before=0.0, window=0.0, after=0.0)
    assert "all three position weights are 0" in text
    assert "Error" not in text
    assert "100 % before the work" in move(results, before=1.0)


def test_weights_are_brought_to_a_sum_of_one() -> None:
    setting = setting_from(VALUES | {"before": 45.0, "window": 27.5, "after": 27.5})
    assert setting.weights == pytest.approx((0.45, 0.275, 0.275))
    assert setting_from(VALUES).weights == pytest.approx((1 / 3, 1 / 3, 1 / 3))


@pytest.mark.slow
def test_progress_of_a_setting_rises_to_its_end() -> None:
    items = list(sliders._frames(setting_from(VALUES | {"runs": 200}), {}))
    first = next(place for place, item in enumerate(items) if not isinstance(item, float))
    shares = [item for item in items[:first] if isinstance(item, float)]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


# ---- predictions -------------------------------------------------------------------------------


def test_nothing_is_ticked_and_nothing_is_asked_of_run_all(shown: list[dict[str, Any]]) -> None:
    question = predict("How much?", ["little", "much"], "q")
    question._ipython_display_()
    compare("q", "much", "It adds up.")._ipython_display_()
    asked, answer = shown
    assert question._widget.children[1].value is None
    assert "<li>little</li><li>much</li>" in asked["data"]["text/html"]
    assert asked["data"]["text/plain"] == "Predict. How much?\n- little\n- much"
    assert answer["data"]["text/plain"] == "much. It adds up."


def test_comparison_says_what_was_predicted_and_keeps_the_committed_text(
    shown: list[dict[str, Any]],
) -> None:
    question = predict("How much?", ["little", "much"], "q")
    comparison = compare("q", "much", "It adds up.")
    comparison._ipython_display_()
    question._widget.children[1].value = "little"
    assert "You said <em>little</em>. <strong>much.</strong>" in comparison._widget.value
    question._widget.children[1].value = "much"
    assert "You said <em>much</em>, and so it is." in comparison._widget.value
    comparison._ipython_display_()
    texts = [{k: v for k, v in bundle["data"].items() if k.startswith("text")} for bundle in shown]
    assert texts[0] == texts[1]


def test_prediction_survives_running_its_cell_again() -> None:
    predict("How much?", ["little", "much"], "q")._widget.children[1].value = "little"
    assert predict("How much?", ["little", "much"], "q")._widget.children[1].value == "little"
    assert predict("How much?", ["a bit", "much"], "q")._widget.children[1].value is None


def test_comparison_with_a_truth_that_went_stale_is_refused() -> None:
    predict("How much?", ["little", "much"], "q")
    with pytest.raises(ValueError, match="none of the options"):
        compare("q", "12.2", "It adds up.")
    with pytest.raises(ValueError, match="no question 'other' was asked"):
        compare("other", "much", "It adds up.")
    with pytest.raises(ValueError, match="two or more different options"):
        predict("How much?", ["little", "little"], "q")


def test_explanation_of_a_result_that_isnt_there_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    predict("How much?", ["little", "much"], "q")
    found = explain("q", lambda: "much", "much", "It adds up.")
    assert found is not None
    assert "It adds up." in found._widget.value
    assert explain("q", lambda: "little", "much", "It adds up.") is None
    assert "something else than it should" in capsys.readouterr().out
    assert explain("q", lambda: {}["much"], "much", "It adds up.") is None
    assert "fill in the exercise first" in capsys.readouterr().out


# ---- in a notebook -----------------------------------------------------------------------------

CELLS = [
    "from durable_mini.lab.sliders import compare, predict, results_slider",
    'predict("What does a run cost?", ["about 8", "about 12"], "cost")',
    "results_slider()",
    'compare("cost", "about 12", "It starts over.")',
]


@pytest.mark.slow
def test_widgets_leave_the_same_output_each_time_and_show_without_a_kernel(tmp_path) -> None:
    from durable_mini.lab.notebooks import build, read

    nbconvert = pytest.importorskip("nbconvert")
    path = tmp_path / "widgets.ipynb"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbformat.write(notebook, path)
    assert build(path)
    assert not build(path)
    page, _ = nbconvert.HTMLExporter().from_notebook_node(read(path))
    assert page.count('src="data:image/png;base64,') == 1
    assert "A run costs" in page and "<li>about 8</li>" in page
    assert "widget-view" not in page
