"""The three pictures of a reader's rehearsal in a notebook, drawn anew at a button.

Guarantees: what a cell leaves in the notebook is a made-up log, the same every time, and says
so; a notebook that is handed on says nothing of its reader. Leaves to others: the pictures
(`rehearsal_pictures`).
"""

from __future__ import annotations

import html
from datetime import UTC, datetime

import ipywidgets as widgets

from durable_mini.lab.pictures import caption_bundle, show_bundle
from durable_mini.lab.widgets import NamedImage, live_view
from durable_mini.school.rehearsal import Rehearsal
from durable_mini.school.rehearsal_pictures import made_up, pictures
from durable_mini.school.telling import spoken

_SOME_DAY = datetime(2026, 3, 2, 9, tzinfo=UTC)


class Board:
    """Strength by chapter, the days ahead, confidence against score."""

    def __init__(self, rehearsal: Rehearsal | None = None) -> None:
        self.rehearsal = rehearsal or Rehearsal()
        self.images = [
            NamedImage(format="png", layout=widgets.Layout(max_width="100%")) for _ in range(3)
        ]
        self.words = [widgets.HTML() for _ in range(3)]
        self.button = widgets.Button(description="Draw again")
        self.said = widgets.HTML()
        self.button.on_click(lambda _button: self._draw())
        self._draw()
        self._below = widgets.HBox([self.button, self.said])

    def _draw(self) -> None:
        try:
            reviews, now = self.rehearsal.log.read(), self.rehearsal.now()
            drawn = list(pictures(self.rehearsal.standings(), reviews, now))
        except (OSError, ValueError) as error:
            self.said.value = spoken(f"<p>Not drawn: {html.escape(str(error))}</p>")
            return
        for image, words, (picture, table) in zip(self.images, self.words, drawn, strict=True):
            image.value, image.tooltip = picture.png(), picture.alt
            folded = f"<details><summary>As a table</summary>{table.to_html()}</details>"
            words.value = f"<p>{html.escape(picture.alt)}</p>{folded}"
        self.said.value = spoken(f"<p>{len(reviews)} reviews in the log.</p>")

    def _ipython_display_(self) -> None:
        example = pictures(*made_up(self.rehearsal.questions, _SOME_DAY), _SOME_DAY)
        for image, words, (picture, _table) in zip(self.images, self.words, example, strict=True):
            data, metadata = picture._repr_mimebundle_()
            show_bundle(live_view(widgets.VBox([image])) | data, metadata)
            show_bundle(live_view(words) | caption_bundle(picture.alt))
        note = caption_bundle("Made up, to show what it looks like; run this cell for your own.")
        show_bundle(live_view(self._below) | note)
