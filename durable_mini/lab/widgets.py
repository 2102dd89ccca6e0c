"""Widgets that are alive in JupyterLab and still a picture and a sentence everywhere else.

A `LivePicture` guarantees:
- each slider has a number field beside it that says and sets the same value, with a label;
- a sentence (and tables, if any) with the current result stands under the picture, for those who
  can't see it too;
- a page without a kernel shows the picture and the sentence that "Run all" left behind;
- the first drawing is finished when the cell is: the same output every time;
- a long computation shows its progress and is overtaken by a newer position: only the newest result
  is ever shown;
- an exception in a computation is said in the sentence's place, and the next position works again.

It leaves to its caller what is computed, drawn and said. A computation runs in a thread of its own,
because a kernel takes one message at a time: a callback that computed would not hear that the slider
has moved on. Where there are no threads it runs in place.

Everything is displayed as raw bundles, never through an Output widget, which nbval can't compare.
"""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import ipywidgets as widgets

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

    def __init__(self, name: str, holder: widgets.Widget, row: widgets.Widget) -> None:
        self.name = name
        self.row = row
        self._holder = holder

    @property
    def value(self) -> Any:
        """The current value. A float is rounded, for a slider's 0.1 + 0.2 is the reader's 0.3."""
        value = self._holder.value
        return round(value, 9) if isinstance(value, float) else value

    @value.setter
    def value(self, value: Any) -> None:
        self._holder.value = value

    def observe(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change of the value."""
        self._holder.observe(lambda _change: callback(), names="value")


def slider(  # noqa: PLR0917 - a slider is these six things in this order
    name: str, label: str, value: float, low: float, high: float, step: float
) -> Control:
    """Return a slider with its number field; whole numbers when `value` and `step` are whole."""
    whole = isinstance(value, int) and isinstance(step, int)
    handle_kind = widgets.IntSlider if whole else widgets.FloatSlider
    handle = handle_kind(value=value, min=low, max=high, step=step, readout=False)
    field = _number_field(label, value, low, high, step)
    _mirror(handle, field, lambda place: place, lambda number: number)
    return Control(name, field, _row(field, handle))


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


def _number_field(
    label: str, value: float, low: float, high: float, step: float
) -> widgets.Widget:
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


class LivePicture(Generic[Result]):
    """A picture, a sentence and optional tables that follow their controls.

    Args:
        controls: what the reader can change, shown in two columns.
        compute: called with the values by name; yields floats between 0 and 1 as its progress, and
            results, each of which is shown. The last result is the final one. A `ValueError` refuses
            the values: its message is shown, and the picture stays. Between two yields it can't be
            overtaken, so yield often.
        draw: the picture of a result.
        sentence: what a result says, in plain text.
        tables: HTML under the sentence.
        buttons: widgets to stand above the controls.

    Raises:
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
        buttons: Sequence[widgets.Widget] = (),
    ) -> None:
        self.controls = {control.name: control for control in controls}
        self._compute, self._draw, self._sentence = compute, draw, sentence
        self._tables = tables or (lambda _result: "")
        self._image = widgets.Image(format="png", layout=widgets.Layout(max_width="100%"))
        self._words = widgets.HTML()
        self._numbers = widgets.HTML()
        self._progress = widgets.FloatProgress(min=0, max=1, description="simulating")
        self._progress.layout.visibility = "hidden"
        self._newest = 0
        self._counting = threading.Lock()
        self._turn = threading.Lock()  # held while computing: an overtaken one leaves before the next
        self._worker: threading.Thread | None = None
        self._last_progress_s = 0.0
        self._run(self.values)
        for control in controls:
            control.observe(self._moved)
        rows = [control.row for control in controls]
        self._panel = widgets.VBox([*buttons, _columns(rows), self._progress, self._image])
        self._report = widgets.VBox([self._words, self._numbers])

    @property
    def values(self) -> dict[str, Any]:
        """The controls' values by name."""
        return {name: control.value for name, control in self.controls.items()}

    def wait(self, timeout_s: float = 60.0) -> bool:
        """Wait for the computation of the newest position; return whether it is finished."""
        if self._worker is not None:
            self._worker.join(timeout_s)
        return self._worker is None or not self._worker.is_alive()
