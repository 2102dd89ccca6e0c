"""Fifteen questions about the whole subject, asked before the course and again after it.

Guarantees: "Run all" ticks nothing and waits for nothing; nothing is graded; the truths are shown
only on request. Two numbers are kept, and only when the reader asks for the count: how many were
right before the course, and how many after it (`progress` says where). On a page without a kernel
the questions can be read and the truths unfolded. Figures in the questions come from the closed
forms and from the published table, so that none goes stale. It leaves teaching to the chapters,
each of which is named beside its truth.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

import ipywidgets as widgets

from durable_mini.lab.pictures import show_bundle
from durable_mini.lab.progress import ProgressFile, Score, compared
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


def _zero_item() -> Item:
    """The question what a test without a failure has shown, by the rule of three."""
    tests = round(exact("journal", _RATE, PUBLISHED_RUNS).duplicates.mean)
    truth = f"at most about {percent(3 / tests)} of repeats get through"
    return Item(
        f"{PUBLISHED_RUNS} runs under crashes, with keys: the receiver was sent {tests} repeats "
        "and booked none of them. What has that shown?",
        ("no repeat ever gets through", truth, "nothing, it was chance"),
        truth,
        "None in so many is also what a receiver shows that lets a few through. The rule of "
        "three bounds their share, with 95 % confidence.",
        "11",
    )


INVENTORY: tuple[Item, ...] = (
    Item(
        "A worker dies in step 5 of 7 and another one takes over. Where does its code begin?",
        ("at step 5", "right after the last finished step", "at the top of the function"),
        "at the top of the function",
        "No stack and no line number is kept. The function runs from its first line, and what is "
        "on record is answered from the record, without being executed.",
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
        ("at most once", "once or more", "exactly once"),
        "once or more",
        "A worker can die after charging and before writing it down. Nobody knows, so it is "
        "charged again.",
        "03",
    ),
    Item(
        "Now the charge carries an idempotency key that the receiver honours, and a worker dies "
        "after charging, before writing it down. What does the next worker do?",
        ("it charges again", "it skips the charge", "it asks the receiver first"),
        "it charges again",
        "The step does run again. The receiver knows the key and drops the repeat: what happens "
        "once is the effect, not the execution.",
        "03",
    ),
    Item(
        "Which of these is a good key for charging the card in a run?",
        (
            "a fresh random id at each attempt",
            "the order's number and the step's name",
            "a hash of customer and amount",
        ),
        "the order's number and the step's name",
        "A fresh id at each attempt protects nobody. A hash of the content takes two honest "
        "orders of the same amount for one. A key names what is wanted.",
        "03",
    ),
    _chance_item(),
    _noise_item(),
    Item(
        "A workflow needs chance. Its first line seeds the generator with the run's id; steps draw "
        "from it, and so does the workflow. Is it fit for replay now?",
        (
            "yes: the same seed gives the same numbers",
            "no: on replay the steps don't draw",
            "yes, as long as it stays in one process",
        ),
        "no: on replay the steps don't draw",
        "A seed fixes the sequence, and replay changes who draws from it: a recorded step isn't "
        "executed, so the next number goes to somebody else. Record what was drawn.",
        "05",
    ),
    Item(
        "You deploy new code. The structure hash of its workflow is what it was. May the runs that "
        "are on their way go on safely?",
        ("perhaps", "yes: that is what the hash is for", "no: each deploy needs a new version"),
        "perhaps",
        "The hash knows the list of durable calls. What a step does, what its result means and "
        "which branch is taken aren't in it.",
        "06",
    ),
    Item(
        "Runs that wait for a person: 500. Workers: one. Somebody starts a new run. When is it "
        "executed?",
        ("at once", "when one of the 500 has its answer", "when all 500 have theirs"),
        "at once",
        "A run that waits is a few lines in a journal. It holds no worker, no thread, no process.",
        "07",
    ),
    Item(
        "A charge went through and its answer got lost. Then a later step fails for good, and all "
        "is to be undone. When must the refund have been registered for the money to come back?",
        ("before the charge", "when the charge was confirmed", "when the later step failed"),
        "before the charge",
        "Whoever registers an undo after its step undoes what he heard of. Here nobody heard.",
        "08",
    ),
    Item(
        "A worker is frozen for a minute in the middle of a step. Its lease ends, another one "
        "takes over and finishes the run. Then the first one wakes up. What stops its late write?",
        (
            "its lease: it knows that it has ended",
            "its own check, right before the write",
            "the journal: it compares a number that each claim raises",
        ),
        "the journal: it compares a number that each claim raises",
        "A pause can fall between any check and the write that follows. Only the place that is "
        "written to can refuse, and the number is the fencing token.",
        "09",
    ),
    Item(
        "After each model call the workflow's own code adds the price to a counter outside. The "
        "worker dies five times on the way. What does the counter show in the end?",
        ("more than was spent", "what was spent", "less than was spent"),
        "more than was spent",
        "Workflow code runs again from the top in every attempt, and adds again for each replayed "
        "call. The price belongs in the step's own record.",
        "10",
    ),
    Item(
        "A queue starts a job again from its beginning when the worker dies. For which job is that "
        "good enough?",
        (
            "for any, if workers seldom die",
            "for any whose effects carry keys",
            "for one of seconds that waits for nobody",
        ),
        "for one of seconds that waits for nobody",
        "How often workers die is half of it; the rest is how much is done again, and whether "
        "somebody has to be waited for. Keys stop a repeated effect, not the repeated work.",
        "12",
    ),
    _zero_item(),
)


class Inventory:
    """The questions with their options to click on, a count that is kept, and the truths.

    Args:
        items: what is asked.
        after: whether this is the second time, after the course.
        file: where the count is kept; None for the reader's own file.
    """

    def __init__(
        self,
        items: Sequence[Item] = INVENTORY,
        *,
        after: bool = False,
        file: ProgressFile | None = None,
    ) -> None:
        self._items, self._after = tuple(items), after
        self._file = file or ProgressFile()
        self._ticked = [
            widgets.RadioButtons(
                options=list(item.options), value=None, layout=widgets.Layout(width="max-content")
            )
            for item in items
        ]
        self.count_button = widgets.Button(description="Count mine", tooltip="The count is kept")
        self.count_button.on_click(lambda _button: self._count())
        self._button = widgets.Button(description="Show the answers")
        self._button.on_click(lambda _button: self._show())
        self._counted = widgets.HTML()
        self._truths = widgets.HTML()
        rows = [
            row
            for number, (item, ticked) in enumerate(zip(items, self._ticked, strict=True), 1)
            for row in (widgets.HTML(_asked(number, item)), ticked)
        ]
        buttons = widgets.HBox([self.count_button, self._button])
        self._panel = widgets.VBox([*rows, buttons, self._counted, self._truths])

    @property
    def right(self) -> int:
        """How many questions are ticked as they should be."""
        return sum(map(_is_right, self._items, self.ticked))

    @property
    def ticked(self) -> tuple[str | None, ...]:
        """What is ticked, question by question; None where nothing is."""
        return tuple(buttons.value for buttons in self._ticked)

    def _count(self) -> None:
        """Say how many are right, not which, and keep the number."""
        score = Score(self.right, len(self._items))
        kept = self._file.count(score, after=self._after)
        if self._after:
            more = compared(kept)
        elif kept.began == score:
            more = "That is kept: it is where you began."
        else:
            more = f"Kept is your first count, {kept.began}."
        said = f"{score} right. {more} {self._file.trouble}".strip()
        self._counted.value = _spoken(f"<p><strong>{html.escape(said)}</strong></p>")

    def _show(self) -> None:
        """Show the truths beside what is ticked now; a later click shows them afresh."""
        told = [
            _told(number, item, ticked)
            for number, (item, ticked) in enumerate(zip(self._items, self.ticked, strict=True), 1)
        ]
        summary = f"{self.right} of {len(self._items)} right."
        self._truths.value = _spoken(f"<p><strong>{summary}</strong></p>{''.join(told)}")
        self._button.description = "Show them again"

    def _ipython_display_(self) -> None:
        text = self._again() if self._after else self._asked_and_told()
        show_bundle(live_view(self._panel) | text)

    def _again(self) -> dict[str, str]:
        """What a page without a kernel shows the second time: not all of it once more."""
        said = f"The same {len(self._items)} questions as above."
        return {"text/html": f"<p><em>{said}</em></p>", "text/plain": said}

    def _asked_and_told(self) -> dict[str, str]:
        numbered = list(enumerate(self._items, 1))
        asked = "".join(f"{_asked(number, item)}{_options(item)}" for number, item in numbered)
        told = "".join(_told(number, item, None) for number, item in numbered)
        lines = [
            line
            for number, item in numbered
            for line in (f"{number}. {item.question}", *(f"   - {text}" for text in item.options))
        ]
        return {
            "text/html": f"{asked}<details><summary>Show the answers</summary>{told}</details>",
            "text/plain": "\n".join(lines),
        }


def inventory(*, after: bool = False) -> Inventory:
    """Ask the questions of `INVENTORY`, before the course or after it."""
    return Inventory(after=after)


def _spoken(inside: str) -> str:
    """Return HTML that a screen reader reads out when it changes."""
    return (
        f'<div role="status" aria-live="polite" style="max-width: 62em; line-height: 1.4">'
        f"{inside}</div>"
    )


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
