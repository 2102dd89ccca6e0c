"""Under the quiz: the interview's date, the seed, the clock, and the log itself.

Guarantees: nothing is forgotten at one press; a file that is there is never overwritten; what went
wrong is said. Leaves to others: the log (`reviews`).
"""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from durable_mini.school.rehearsal import Rehearsal
from durable_mini.school.telling import spoken


class LogPanel:
    """Settings and the log's buttons; `changed` is called after each change."""

    def __init__(self, rehearsal: Rehearsal, changed: Callable[[], None]) -> None:
        self._rehearsal, self._changed = rehearsal, changed
        self._following = False
        self.interview = widgets.DatePicker(description="Interview on", value=None)
        self.interview.style.description_width = "7em"
        self.seed = widgets.BoundedIntText(value=0, min=0, max=999_999, description="Seed")
        self.clock = widgets.Checkbox(value=True, description="a clock for answers", indent=False)
        self.path = widgets.Text(description="File", placeholder="my-reviews.jsonl")
        self.export_button = widgets.Button(description="Export")
        self.import_button = widgets.Button(description="Import")
        self.reset_button = widgets.Button(description="Reset …")
        self.keep_button = widgets.Button(description="Keep it all")
        self.said = widgets.HTML()
        self._ask(sure=False)
        self._follow()
        self._wire()
        settings = widgets.HBox([self.interview, self.seed, self.clock])
        files = widgets.HBox([self.path, self.export_button, self.import_button])
        resets = widgets.HBox([self.reset_button, self.keep_button])
        for row in (settings, files, resets):
            row.layout.flex_flow = "row wrap"
        title = widgets.HTML("<h4>Settings and log</h4>")
        self.widget: widgets.Widget = widgets.VBox([title, settings, files, resets, self.said])

    def _wire(self) -> None:
        for box, name in (
            (self.interview, "interview"),
            (self.seed, "seed"),
            (self.clock, "clock"),
        ):
            box.observe(lambda change, name=name: self._set(name, change["new"]), names="value")
        self.export_button.on_click(lambda _button: self._try(self._export))
        self.import_button.on_click(lambda _button: self._try(self._import))
        self.reset_button.on_click(lambda _button: self._try(self._reset))
        self.keep_button.on_click(lambda _button: self._ask(sure=False))

    def _set(self, name: str, value: Any) -> None:
        if not self._following:
            self._try(lambda: self._change(name, value))

    def _change(self, name: str, value: Any) -> None:
        self._rehearsal.change(**{name: value})
        self._changed()

    def _follow(self) -> None:
        """Show what is set."""
        try:
            settings = self._rehearsal.settings()
        except (OSError, ValueError) as error:
            self._say(f"Not read: {error}")
            return
        self._following = True
        self.interview.value = settings.interview
        self.seed.value, self.clock.value = settings.seed, settings.clock
        self._following = False

    def _export(self) -> None:
        count = self._rehearsal.log.export(self._named())
        self._say(f"{count} reviews were written to {self._named()}.")

    def _import(self) -> None:
        count = self._rehearsal.log.take_in(self._named())
        self._say(f"{count} reviews were new.")
        self._changed()

    def _named(self) -> Path:
        if not self.path.value.strip():
            raise ValueError("name a file first")
        return Path(self.path.value.strip()).expanduser()

    def _reset(self) -> None:
        """Begin anew at the second press only."""
        if not self._sure:
            self._ask(sure=True)
            self._say("Sure? The old log is put aside, so it can be imported again.")
            return
        aside = self._rehearsal.log.reset()
        self._ask(sure=False)
        self._follow()
        self._changed()
        self._say("There was no log." if aside is None else f"The old log is {aside}.")

    def _ask(self, *, sure: bool) -> None:
        self._sure = sure
        self.reset_button.description = "Really begin anew?" if sure else "Reset …"
        self.keep_button.layout.display = "" if sure else "none"

    def _say(self, text: str) -> None:
        self.said.value = spoken(f"<p>{html.escape(text)}</p>")

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except (OSError, ValueError) as error:
            self._say(f"Not done: {error}")
