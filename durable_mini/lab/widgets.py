"""Widgets that are alive in JupyterLab and still a picture and a sentence everywhere else.

A `LivePicture` guarantees:
- each slider has a number field beside it that says and sets the same value, with a label;
- a sentence (and tables, if any) with the current result stands under the picture, for those who
  can't see it too;
- a page without a kernel shows the picture and the sentence that "Run all" left behind;
- the first drawing is finished when the cell is, so that the output is the same every time;
- a long computation shows its progress and is overtaken by a newer position: an older result never
  replaces a newer one;
- an exception in a computation is said in the sentence's place, and the next position works again.

It leaves to its caller what is computed, drawn and said. A computation runs in a thread of its own,
because a kernel takes one message at a time: a callback that computed would not hear that the
slider has moved on. Where there are no threads it runs in place.

Everything is displayed as raw bundles, never through an Output widget, which nbval can't compare.
"""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import ipywidgets as widgets
import traitlets

from durable_mini.lab.pictures import Picture, show_bundle

Result = TypeVar("Result")
Values: TypeAlias = Mapping[str, Any]
Compute: TypeAlias = Callable[[Values], Iterable[float | Result]]

_PATIENCE_S = 0.4  # what is done by then shows no progress bar and keeps the slider's drag smooth
_PROGRESS_EVERY_S = 0.1
_LABEL_WIDTH = "9.5em"


class Control:
    """One setting that a reader changes; `name` is its key in the values handed to `compute`.

    Made by `slider`, `stepped_slider` or `choice`.
    """

    def __init__(
        self,
        name: str,
        holder: widgets.Widget,
        row: widgets.Widget,
        handle: widgets.Widget | None = None,
    ) -> None:
        self.name = name
        self.row = row
        self._holder = holder
        self._handle = handle

    @property
    def value(self) -> Any:
        """The current value. A float is rounded: a slider's 0.1 + 0.2 is the reader's 0.3."""
        value = self._holder.value
        return round(value, 9) if isinstance(value, float) else value

    @value.setter
    def value(self, value: Any) -> None:
        self._holder.value = value

    def observe(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change of the value."""
        self._holder.observe(lambda _change: callback(), names="value")

    def limit(self, high: float) -> None:
        """Set the largest value of a `slider`; a value above it becomes that."""
        for widget in (self._handle, self._holder):
            if widget is not None:
                widget.max = high


def slider(  # noqa: PLR0917 - a slider is these six things in this order
    name: str, label: str, value: float, low: float, high: float, step: float
) -> Control:
    """Return a slider with its number field; whole numbers when `value` and `step` are whole."""
    whole = isinstance(value, int) and isinstance(step, int)
    handle_kind = widgets.IntSlider if whole else widgets.FloatSlider
    handle = handle_kind(value=value, min=low, max=high, step=step, readout=False)
    field = _number_field(label, value, low, high, step)
    _mirror(handle, field, lambda place: place, lambda number: number)
    return Control(name, field, _row(field, handle), handle)


def stepped_slider(name: str, label: str, value: int, stops: Sequence[int]) -> Control:
    """Return a slider over uneven stops; its field takes any whole number between them."""
    handle = widgets.IntSlider(
        value=_nearest(stops, value), min=0, max=len(stops) - 1, readout=False
    )
    field = _number_field(label, value, stops[0], stops[-1], 1)
    _mirror(handle, field, lambda place: stops[place], lambda number: _nearest(stops, number))
    return Control(name, field, _row(field, handle))


def choice(name: str, label: str, options: Sequence[str]) -> Control:
    """Return a row of buttons of which one is pressed; the first to begin with."""
    buttons = widgets.ToggleButtons(options=list(options), value=options[0])
    buttons.style.button_width = "auto"
    caption = widgets.Label(label, layout=widgets.Layout(width=_LABEL_WIDTH))
    return Control(name, buttons, widgets.HBox([caption, buttons]))


def _number_field(label: str, value: float, low: float, high: float, step: float) -> widgets.Widget:
    kind = widgets.BoundedIntText if isinstance(value, int) else widgets.BoundedFloatText
    field = kind(
        value=value,
        min=low,
        max=high,
        step=step,
        description=label,
        layout=widgets.Layout(width="16em"),
    )
    field.style.description_width = _LABEL_WIDTH
    return field


def _row(field: widgets.Widget, handle: widgets.Widget) -> widgets.Widget:
    handle.layout.width = "12em"
    return widgets.HBox([field, handle])


def _mirror(
    handle: widgets.Widget,
    field: widgets.Widget,
    to_number: Callable[[Any], Any],
    to_place: Callable[[Any], Any],
) -> None:
    """Keep handle and field together. The field holds the value, so it is never moved to a stop."""

    def follow_handle(_change: object) -> None:
        if to_place(field.value) != handle.value:
            field.value = to_number(handle.value)

    def follow_field(_change: object) -> None:
        handle.value = to_place(field.value)

    handle.observe(follow_handle, names="value")
    field.observe(follow_field, names="value")


def _nearest(stops: Sequence[int], number: float) -> int:
    return min(range(len(stops)), key=lambda place: abs(stops[place] - number))


class NamedImage(widgets.Image):  # type: ignore[misc] # ipywidgets ships no types
    """An image whose tooltip reaches the page as its title, the name that a screen reader says.

    The front end looks up the description of every widget that has a tooltip, and fails on a plain
    Image, which has none.
    """

    description = traitlets.Unicode("").tag(sync=True)


class LivePicture(Generic[Result]):
    """A picture, a sentence and optional tables that follow their controls.

    Args:
        controls: what the reader can change, shown in two columns.
        compute: called with the values by name; yields floats between 0 and 1 as its progress, and
            results, each of which is shown. The last result is the final one. A `ValueError`
            refuses the values: its message is shown, and the picture stays. Between two yields it
            can't be overtaken, so yield often.
        draw: the picture of a result.
        sentence: what a result says, in plain text.
        tables: HTML under the sentence.
        extra_row: a widget under the controls.

    Raises:
        ValueError: when `compute` yields no result.
        Exception: whatever `compute`, `draw`, `sentence` or `tables` raise for the first values.
    """

    def __init__(
        self,
        controls: Sequence[Control],
        compute: Compute[Result],
        draw: Callable[[Result], Picture],
        sentence: Callable[[Result], str],
        *,
        tables: Callable[[Result], str] | None = None,
        extra_row: widgets.Widget | None = None,
    ) -> None:
        self.controls = {control.name: control for control in controls}
        self._compute, self._draw, self._sentence = compute, draw, sentence
        self._tables = tables or (lambda _result: "")
        self._image = NamedImage(
            format="png", layout=widgets.Layout(max_width="100%", align_self="flex-start")
        )
        self._words = widgets.HTML()
        self._numbers = widgets.HTML()
        self._progress = widgets.FloatProgress(min=0, max=1, description="computing")
        self._progress.layout.visibility = "hidden"
        self._newest = 0
        self._counting = threading.Lock()
        self._turn = (
            threading.Lock()
        )  # held while computing: an overtaken one leaves before the next
        self._worker: threading.Thread | None = None
        self._progress_shown_s = 0.0
        self._picture: Picture | None = None
        self._said = ""
        for item in compute(self.values):
            self._take(item)
        if self._picture is None:
            raise ValueError("compute yielded no result to draw")
        for control in controls:
            control.observe(self._moved)
        below = [] if extra_row is None else [extra_row]
        settings = _columns([control.row for control in controls])
        self._panel: widgets.Widget = widgets.VBox([settings, *below, self._progress, self._image])
        self._report: widgets.Widget = widgets.VBox([self._words, self._numbers])

    @property
    def values(self) -> dict[str, Any]:
        """The controls' values by name."""
        return {name: control.value for name, control in self.controls.items()}

    def wait(self, timeout_s: float = 60.0) -> bool:
        """Wait for the computation of the newest position; return whether it is finished."""
        if self._worker is not None:
            self._worker.join(timeout_s)
        return self._worker is None or not self._worker.is_alive()

    def _moved(self) -> None:
        """Compute for the newest position: done when this returns if it is quick, later if not."""
        with self._counting:
            self._newest += 1
            position = self._newest
        worker = threading.Thread(target=self._work, args=(position, self.values), daemon=True)
        try:
            worker.start()
        except RuntimeError:  # a Python without threads
            self._work(position, self.values)
            return
        self._worker = worker
        worker.join(_PATIENCE_S)

    def _work(self, position: int, values: Values) -> None:
        with self._turn:
            try:
                self._compute_unless_overtaken(position, values)
            except Exception as error:  # whatever it is, the reader sees it and can go on
                self._refuse(error)
            finally:
                self._progress.layout.visibility = "hidden"

    def _compute_unless_overtaken(self, position: int, values: Values) -> None:
        if position != self._newest:
            return
        started_s = time.monotonic()
        for item in self._compute(values):
            if position != self._newest:
                return
            self._take(item, time.monotonic() - started_s)

    def _take(self, item: float | Result, elapsed_s: float = 0.0) -> None:
        """Show a result, or from time to time how far the computation is."""
        if not isinstance(item, float):
            self._show(item)
            return
        now_s = time.monotonic()
        if elapsed_s > _PATIENCE_S and now_s - self._progress_shown_s > _PROGRESS_EVERY_S:
            self._progress_shown_s = now_s
            self._progress.value = item
            self._progress.layout.visibility = "visible"

    def _show(self, result: Result) -> None:
        picture, sentence, tables = self._draw(result), self._sentence(result), self._tables(result)
        if picture is not self._picture:
            self._picture = picture
            self._image.value = picture.png()
            self._image.tooltip = picture.alt
        self._said = sentence
        self._words.value = _spoken(sentence)
        self._numbers.value = tables

    def _refuse(self, error: Exception) -> None:
        """Say why there is no new result; the picture of the last one stays."""
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        text = f"Not drawn: {kind}{error}. The picture still shows the last setting that was."
        self._words.value = _spoken(text, style="color: #A64500; font-weight: bold")

    def _ipython_display_(self) -> None:
        if self._picture is not None:
            picture, metadata = self._picture._repr_mimebundle_()
            show_bundle(live_view(self._panel) | picture, metadata)
        words = {"text/html": self._words.value + self._numbers.value, "text/plain": self._said}
        show_bundle(live_view(self._report) | words)


def live_view(widget: widgets.Widget) -> dict[str, Any]:
    """Return the part of a display bundle that a page with a kernel shows: the live widget."""
    bundle: dict[str, Any] = widget._repr_mimebundle_()
    return {mime: data for mime, data in bundle.items() if mime != "text/plain"}


def _columns(rows: Sequence[widgets.Widget]) -> widgets.Widget:
    """Return the rows in two columns, which wrap into one where the page is narrow."""
    middle = (len(rows) + 1) // 2
    columns = [widgets.VBox(rows[:middle]), widgets.VBox(rows[middle:])]
    return widgets.HBox(columns, layout=widgets.Layout(flex_flow="row wrap"))


def _spoken(text: str, style: str = "") -> str:
    """Return a paragraph that a screen reader reads out when it changes."""
    return (
        f'<p role="status" aria-live="polite" style="max-width: 62em; line-height: 1.4; {style}">'
        f"{html.escape(text)}</p>"
    )


Frame = TypeVar("Frame")


class StepThrough(LivePicture[tuple[int, Frame]]):
    """Frames that a reader goes through forwards and backwards, by button, slider, field or key.

    Args:
        frames: the frames in order; or, with `choices`, what gives them for the chosen values.
        draw: the picture of a frame.
        sentence: what a frame says, in plain text; its number is put before it.
        choices: settings that select which frames there are, made by `choice`.
        start: the frame to begin with, from 1; it is also the picture of a page without a kernel.

    Raises:
        ValueError: when there is no frame, or no frame `start`.
    """

    def __init__(
        self,
        frames: Sequence[Frame] | Callable[[Values], Sequence[Frame]],
        draw: Callable[[Frame], Picture],
        sentence: Callable[[Frame], str],
        *,
        choices: Sequence[Control] = (),
        start: int = 1,
    ) -> None:
        self._frames_of = frames if callable(frames) else lambda _values: frames
        self._choices = choices
        self._frames = self._chosen_frames()
        self._trouble: Exception | None = None
        if not 1 <= start <= len(self._frames):
            raise ValueError(f"there is no frame {start}: there are {len(self._frames)} frames")
        self._place = slider("frame", "frame", start, 1, len(self._frames), 1)
        self._back = widgets.Button(description="Back", icon="arrow-left")
        self._forward = widgets.Button(description="Forward", icon="arrow-right")
        self._back.on_click(lambda _button: self._step(-1))
        self._forward.on_click(lambda _button: self._step(1))
        for control in choices:  # before the picture listens, so that it finds the new frames
            control.observe(self._choose)
        super().__init__(
            [*choices, self._place],
            self._shown,
            lambda shown: draw(shown[1]),
            lambda shown: f"{shown[0]} of {len(self._frames)}: {sentence(shown[1])}",
            extra_row=widgets.HBox([self._back, self._forward]),
        )

    def _chosen_frames(self) -> Sequence[Frame]:
        return self._frames_of({control.name: control.value for control in self._choices})

    def _choose(self) -> None:
        try:
            self._frames, self._trouble = self._chosen_frames(), None
            self._place.limit(len(self._frames))
        except Exception as error:  # kept for `_shown`, which is asked next and can say it
            self._trouble = error

    def _step(self, by: int) -> None:
        self._place.value = min(max(1, self._place.value + by), len(self._frames))

    def _shown(self, values: Values) -> Iterable[tuple[int, Frame]]:
        if self._trouble is not None:
            raise self._trouble
        number = min(values["frame"], len(self._frames))
        self._back.disabled = number == 1
        self._forward.disabled = number == len(self._frames)
        return [(number, self._frames[number - 1])]
