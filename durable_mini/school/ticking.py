"""The boxes in which a reader ticks what was heard: points, red flags, and the rubric's own.

Guarantees: each box is reached by keyboard and has its whole text as its label. Leaves to others:
what the ticks are worth (`rubric`).
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from durable_mini.school.bank import Question
from durable_mini.school.rubric import Heard, words

# ipywidgets cuts a long label off; this lets it wrap.
_STYLE = (
    "<style>.quiz-ticks .widget-checkbox, .quiz-ticks .widget-checkbox > * "
    "{height: auto; white-space: normal; overflow: visible; line-height: 1.4}</style>"
)
CONFIDENCE = (("0, a guess", 0), ("1, unsure", 1), ("2, fairly sure", 2), ("3, certain", 3))


class Ticks:
    """The boxes for one answer; `widget` shows them, `heard` reads them."""

    def __init__(self, question: Question) -> None:
        self.points = {one.id: _box(_must(one.text, one.must)) for one in question.points}
        self.flags = [_box(text) for text in question.red_flags]
        self.rubric = {name: _box(text) for name, text in words(question.kind).items()}
        self.wrong = _box("it was wrong, or claimed experience or a guarantee that isn't there")
        rows = [
            widgets.HTML(f"{_STYLE}<p><strong>Tick only what was said, unprompted.</strong></p>"),
            *self.points.values(),
            *self.rubric.values(),
            widgets.HTML("<p><strong>Red flags</strong></p>"),
            *self.flags,
            self.wrong,
        ]
        self.widget: widgets.Widget = widgets.VBox(rows)
        self.widget.add_class("quiz-ticks")

    def heard(self, *, seconds: float | None = None, follow_up: bool | None = None) -> Heard:
        """What is ticked now."""
        ticked: dict[str, Any] = {name: box.value for name, box in self.rubric.items()}
        return Heard(
            points=frozenset(name for name, box in self.points.items() if box.value),
            red_flags=frozenset(place for place, box in enumerate(self.flags) if box.value),
            wrong=self.wrong.value,
            follow_up=follow_up,
            seconds=seconds,
            **ticked,
        )


def confidence_buttons() -> widgets.RadioButtons:
    """How sure the reader is: asked before the worked answer is shown; nothing is ticked."""
    return widgets.RadioButtons(
        options=list(CONFIDENCE),
        value=None,
        description="How sure?",
        layout=widgets.Layout(width="max-content"),
    )


def _must(text: str, must: bool) -> str:
    return f"must: {text}" if must else text


def _box(text: str) -> widgets.Checkbox:
    return widgets.Checkbox(
        value=False, description=text, indent=False, layout=widgets.Layout(width="auto")
    )
