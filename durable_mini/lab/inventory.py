"""Questions about the whole subject, asked before the course and again after it.

Guarantees: nothing is ticked, asked of "Run all", stored or graded; the truths are shown only on
request; on a page without a kernel the same questions can be read and the truths unfolded. Figures
in the questions come from the closed forms and from the published table, so that none goes stale.
It leaves teaching to the chapters, each of which is named beside its question.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

import ipywidgets as widgets

from durable_mini.lab.pictures import show_bundle
from durable_mini.lab.results import PUBLISHED, PUBLISHED_RUNS, percent
from durable_mini.lab.shape import REFERENCE_SHAPE
from durable_mini.lab.theory import exact
from durable_mini.lab.widgets import live_view

_RATE = 0.08


@dataclass(frozen=True, slots=True)
class Item:
    """One question: what is asked, what can be ticked, what is true and why, where it is shown."""

    question: str
    options: tuple[str, ...]
    truth: str
    why: str
    chapter: str


def _chance_item() -> Item:
    """The question whose options are computed: does an attempt at all the steps get through?"""
    steps = len(REFERENCE_SHAPE)
    restarts = exact("restart", _RATE).restarts.mean  # 1/q - 1, q the chance to get through
    truth = percent(1 - 1 / (restarts + 1))
    return Item(
        f"Each of {steps} steps crashes with a chance of {percent(_RATE)}. "
        "How likely is it that one attempt at all of them crashes somewhere?",
        (percent(_RATE), truth, percent(steps * _RATE)),
        truth,
        f"It gets through when all {steps} do: the chances of not crashing are multiplied. Adding "
        "the crash chances counts attempts twice that would have crashed at two steps.",
        "04",
    )


def _noise_item() -> Item:
    """The question about the source's two figures for one setting."""
    one = PUBLISHED["cost"]["restart", _RATE]
    other = PUBLISHED["cost_by_crash_rate"]["restart", _RATE]
    return Item(
        f"A text gives the cost of one and the same setting twice, each time from "
        f"{PUBLISHED_RUNS} simulated runs: {one:.2f} and {other:.2f}. What do you make of it?",
        ("one of them is a mistake", "both are right, as far as they go", "the agent got cheaper"),
        "both are right, as far as they go",
        "Two simulations of one thing differ by chance. How much is what a 95 % interval tells, "
        "and the two figures are no further apart than that.",
        "04",
    )


INVENTORY: tuple[Item, ...] = (
    Item(
        "A worker dies in step 5 of 7 and another one takes over. Where does its code begin?",
        ("at step 5", "right after the last finished step", "at the top of the function"),
        "at the top of the function",
        "No stack and no line number is kept. The function runs from its first line, and what is "
        "on record is answered from the record.",
        "02",
    ),
    Item(
        "What happens on the way to step 5 with the four steps that were finished?",
        (
            "they run again, which does no harm",
            "their recorded results are returned, nothing runs",
            "they run again, and the results are compared",
        ),
        "their recorded results are returned, nothing runs",
        "That is replay. It isn't a retry: no model is asked and no card is charged.",
        "02",
    ),
    Item(
        'For each finished step a journal holds the word "done". Is that enough to go on?',
        ("yes", "yes, if the steps come in a fixed order", "no"),
        "no",
        "The steps that follow need the results, and a model asked again gives another one.",
        "02",
    ),
    Item(
        "Each finished step goes into a journal before the next begins. Workers crash now and "
        "then. How often is a card charged for one order?",
        ("at most once", "exactly once", "once or more"),
        "once or more",
        "A worker can die after charging and before writing it down. Nobody knows, so it is "
        "charged again.",
        "03",
    ),
    Item(
        "Now the charge carries an idempotency key that the receiver honours, and a worker dies "
        "after charging, before writing it down. What does the next worker do?",
        ("it skips the charge", "it charges again", "it asks the receiver first"),
        "it charges again",
        "The step does run again. The receiver knows the key and drops the repeat: what happens "
        "once is the effect, not the execution.",
        "03",
    ),
    Item(
        "Which of these is a good key for charging the card in a run?",
        (
            "the run's id and the step's name",
            "a fresh random id at each attempt",
            "a hash of customer and amount",
        ),
        "the run's id and the step's name",
        "A fresh id at each attempt protects nobody. A hash of the content takes two honest "
        "orders of the same amount for one.",
        "03",
    ),
    _chance_item(),
    _noise_item(),
)


class Inventory:
    """The questions with their options to click on, and a button that shows the truths."""

    def __init__(self, items: Sequence[Item] = INVENTORY) -> None:
        self._items = tuple(items)
        self._ticked = [
            widgets.RadioButtons(
                options=list(item.options), value=None, layout=widgets.Layout(width="max-content")
            )
            for item in items
        ]
        self._button = widgets.Button(description="Show the answers")
        self._button.on_click(lambda _button: self._show())
        self._truths = widgets.HTML()
        rows = [
            row
            for number, (item, ticked) in enumerate(zip(items, self._ticked, strict=True), 1)
            for row in (widgets.HTML(_asked(number, item)), ticked)
        ]
        self._panel = widgets.VBox([*rows, self._button, self._truths])

    @property
    def right(self) -> int:
        """How many questions are ticked as they should be."""
        return sum(map(_is_right, self._items, self.ticked))

    @property
    def ticked(self) -> tuple[str | None, ...]:
        """What is ticked, question by question; None where nothing is."""
        return tuple(buttons.value for buttons in self._ticked)

    def _show(self) -> None:
        """Show the truths beside what is ticked now; a later click shows them afresh."""
        told = [
            _told(number, item, ticked)
            for number, (item, ticked) in enumerate(zip(self._items, self.ticked, strict=True), 1)
        ]
        summary = f"{self.right} of {len(self._items)} right."
        self._truths.value = (
            f'<div role="status" aria-live="polite" style="max-width: 62em; line-height: 1.4">'
            f"<p><strong>{summary}</strong></p>{''.join(told)}</div>"
        )
        self._button.description = "Show them again"

    def _ipython_display_(self) -> None:
        numbered = list(enumerate(self._items, 1))
        asked = "".join(f"{_asked(number, item)}{_options(item)}" for number, item in numbered)
        told = "".join(_told(number, item, None) for number, item in numbered)
        lines = [
            line
            for number, item in numbered
            for line in (f"{number}. {item.question}", *(f"   - {text}" for text in item.options))
        ]
        text = {
            "text/html": f"{asked}<details><summary>Show the answers</summary>{told}</details>",
            "text/plain": "\n".join(lines),
        }
        show_bundle(live_view(self._panel) | text)


def inventory() -> Inventory:
    """Ask the questions of `INVENTORY`."""
    return Inventory()


def _is_right(item: Item, ticked: str | None) -> bool:
    return ticked == item.truth


def _asked(number: int, item: Item) -> str:
    return (
        f'<p style="max-width: 62em; line-height: 1.4; margin: 0.6em 0 0">'
        f"<strong>{number}.</strong> {html.escape(item.question)}</p>"
    )


def _options(item: Item) -> str:
    options = "".join(f"<li>{html.escape(option)}</li>" for option in item.options)
    return f'<ul style="margin: 0.2em 0">{options}</ul>'


def _told(number: int, item: Item, ticked: str | None) -> str:
    """The truth of one question, and what was ticked where it is something else."""
    other = ticked is not None and not _is_right(item, ticked)
    said = f" You ticked <em>{html.escape(ticked or '')}</em>." if other else ""
    return (
        f"<p><strong>{number}. {html.escape(item.truth)}.</strong>{said} {html.escape(item.why)} "
        f"(Chapter {item.chapter}.)</p>"
    )
