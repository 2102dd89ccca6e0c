"""The rehearsal in a notebook: a question, an answer, how sure, and only then what a good one says.

Guarantees: "Run all" ticks nothing and keeps nothing; a review is kept at one button, and can be
given again; the button that goes on stays where it is, so a keyboard stays on it; on a page without
a kernel there is a sample of questions with their answers folded away, the same whatever the log.
Leaves to others: what is asked next (`rehearsal`), the boxes (`ticking`), the log (`reviews`).
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from durable_mini.lab.pictures import show_bundle
from durable_mini.lab.widgets import live_view
from durable_mini.school.bank import FollowUp, Question
from durable_mini.school.figures import Figures
from durable_mini.school.log_widget import LogPanel
from durable_mini.school.rehearsal import MODES, Kept, Rehearsal
from durable_mini.school.reviews import Review
from durable_mini.school.rubric import MOST_SECONDS
from durable_mini.school.telling import (
    as_html,
    asked_html,
    sample_html,
    shown,
    sources_html,
    spoken,
)
from durable_mini.school.ticking import Ticks, confidence_buttons
from durable_mini.school.ticking_clock import running, stood

SHOW, ASK_FURTHER, SHOW_FURTHER, KEEP, NEXT, LOOK = (
    "Show the worked answer",
    "Ticked: ask the follow-up",
    "Show its answer",
    "Keep the score",
    "Next question",
    "Look again",
)


class Quiz:
    """The questions of a mode, one after the other.

    Args:
        rehearsal: whose; None for the reader's own.
        mode: one of `MODES`.
        chapter: for the mode "chapter".

    Raises:
        ValueError: there is no such mode or chapter.
    """

    def __init__(
        self, rehearsal: Rehearsal | None = None, mode: str = "due", chapter: str = ""
    ) -> None:
        self.rehearsal = rehearsal or Rehearsal()
        self.question: Question | None = None
        self._again: Review | None = None  # the review that the next one corrects
        self._last: tuple[Question, Kept] | None = None
        self._build(mode, chapter)
        self._try(self._ask)

    # ---- what is there -------------------------------------------------------------------------

    def _build(self, mode: str, chapter: str) -> None:
        chapters = list(dict.fromkeys(one.chapter for one in self.rehearsal.questions))
        if mode not in MODES:
            self.rehearsal.queue(mode)  # says what would be right
        if chapter and chapter not in chapters:
            self.rehearsal.queue("chapter", chapter)
        named = [(text, name) for name, text in MODES.items()]
        self.mode = widgets.Dropdown(options=named, value=mode, description="Ask")
        self.chapter = widgets.Dropdown(
            options=chapters, value=chapter or chapters[0], description="Chapter"
        )
        self.status, self.asked = widgets.HTML(), widgets.HTML()
        self.answer = widgets.Textarea(
            description="Answer",
            placeholder="Type it, or say it aloud and leave this empty.",
            layout=widgets.Layout(width="95%", height="7em"),
        )
        self.clock_button = widgets.Button(description="Start the clock")
        self.clock = widgets.HTML()
        self.body = widgets.VBox([])
        self.go = widgets.Button(button_style="primary", layout=widgets.Layout(width="auto"))
        self.skip = widgets.Button(description="Another one")
        self.rate_again = widgets.Button(
            description="Mis-ticked: rate again", layout=widgets.Layout(width="auto")
        )
        self.log_panel = LogPanel(self.rehearsal, self._changed)
        self._wire()
        first = widgets.HBox([self.mode, self.chapter])
        buttons = widgets.HBox([self.go, self.skip, self.rate_again])
        parts = [first, self.asked, self.body, self.status, buttons, self.log_panel.widget]
        self._panel = widgets.VBox(parts)

    def _wire(self) -> None:
        self.mode.observe(lambda _change: self._try(self._ask), names="value")
        self.chapter.observe(lambda _change: self._try(self._ask), names="value")
        self.go.on_click(lambda _button: self._try(self._go_on))
        self.skip.on_click(lambda _button: self._try(self._another))
        self.rate_again.on_click(lambda _button: self._try(self._rate_again))
        self.clock_button.on_click(lambda _button: self._start_or_stop())

    def _ipython_display_(self) -> None:
        questions = sample(self.rehearsal.questions)
        lines = [f"{number}. {one.prompt}" for number, one in enumerate(questions, 1)]
        text = {"text/html": sample_html(questions, Figures()), "text/plain": "\n\n".join(lines)}
        show_bundle(live_view(self._panel) | text)

    # ---- one question --------------------------------------------------------------------------

    def _ask(self, skipped: Question | None = None) -> None:
        """Ask the first of the queue, or after a skipped one the one behind it."""
        self.chapter.layout.display = "" if self.mode.value == "chapter" else "none"
        queue = [one.question for one in self.rehearsal.queue(self.mode.value, self.chapter.value)]
        if skipped in queue and len(queue) > 1:
            queue = queue[queue.index(skipped) + 1 :] or queue
        self._again = None
        if queue:
            self._put(queue[0], f"{len(queue)} in the queue")
        else:
            self._say_nothing_is_there()

    def _put(self, question: Question, quiet: str) -> None:
        self.question = question
        self.follow_up: FollowUp | None = None
        self.ticks, self.confidence = Ticks(question), confidence_buttons()
        self.further = widgets.RadioButtons(
            options=[("answered it", True), ("missed it", False)],
            value=None,
            description="Follow-up",
        )
        self.seconds: float | None = None
        self._since: datetime | None = None
        self.answer.value = ""
        about = f"{question.chapter}, {question.kind}, level {question.level}; {quiet}"
        self.asked.value = shown(asked_html(question.prompt, question.exhibit, about))
        self._show_clock()
        self.body.children = [self.answer, *self._clock_row(), self.confidence]
        self._stage(SHOW, self._trouble() or "Answer first. Then say how sure you are.")

    def _say_nothing_is_there(self) -> None:
        self.question = None
        self.asked.value, self.body.children = "", []
        self._stage(LOOK, f"{self.rehearsal.nothing(self.mode.value)} {self._trouble()}")

    def _stage(self, button: str, said: str) -> None:
        self.go.description = button
        self.status.value = spoken(as_html(said))
        self.skip.layout.display = "" if button == SHOW else "none"
        self.rate_again.layout.display = "" if self._last and button in {NEXT, LOOK} else "none"

    def _go_on(self) -> None:
        steps: dict[str, Callable[[], None]] = {
            SHOW: self._show_answer,
            ASK_FURTHER: self._ask_further,
            SHOW_FURTHER: self._show_further,
            KEEP: self._keep,
        }
        steps.get(self.go.description, self._ask)()

    def _show_answer(self) -> None:
        if self.question is None or self.confidence.value is None:
            self._stage(SHOW, "First say how sure you are: it is asked before you see the answer.")
            return
        self._stop_clock()
        worked = as_html(self.rehearsal.figures.answer(self.question))
        told = shown(f"<h4>Worked answer</h4>{worked}{sources_html(self.question)}")
        self.body.children = [*self._given(), widgets.HTML(told), self.ticks.widget]
        self._stage(ASK_FURTHER, "Compare, and tick what you said. Unsure means no.")

    def _given(self) -> list[widgets.Widget]:
        """What was typed, if anything, to compare with."""
        typed = (
            f"<h4>Yours</h4><p>{html.escape(self.answer.value)}</p>" if self.answer.value else ""
        )
        took = "" if self.seconds is None else stood(self.seconds)
        return [widgets.HTML(shown(typed + took))]

    def _ask_further(self) -> None:
        if self.question is None:
            return
        self.follow_up = self.rehearsal.follow_up(self.question, self.ticks.heard())
        if self.follow_up is None:
            self._keep()
            return
        self.asked.value = shown(asked_html(self.follow_up.prompt, before="The follow-up"))
        self.answer.value = ""
        self.body.children = [self.answer]
        self._stage(SHOW_FURTHER, "Answer it. It doesn't count against the clock.")

    def _show_further(self) -> None:
        if self.question is None or self.follow_up is None:
            return
        worked = as_html(self.rehearsal.figures.fill(self.follow_up.answer, self.question))
        told = widgets.HTML(shown(f"<h4>Worked answer</h4>{worked}"))
        self.body.children = [*self._given()[:1], told, self.further]
        self._stage(KEEP, "Did you answer it?")

    def _keep(self) -> None:
        if self.question is None:
            return
        if self.follow_up is not None and self.further.value is None:
            self._stage(KEEP, "Say first whether you answered the follow-up.")
            return
        kept = self.rehearsal.keep(
            self.question,
            self.ticks.heard(seconds=self.seconds, follow_up=self.further.value),
            self.confidence.value,
            mode=self.mode.value,
            follow_up=self.follow_up.id if self.follow_up else "",
            instead_of=self._again,
        )
        self._last, self._again = (self.question, kept), None
        self.body.children = []
        self._stage(NEXT, self._verdict(kept))

    def _verdict(self, kept: Kept) -> str:
        why = "".join(f"\n- {one}" for one in kept.score.because)
        again = self.rehearsal.when_again(kept.standing)
        return f"**{kept.score.worth} of 3.** It comes again {again}.\n{why}"

    def _rate_again(self) -> None:
        if self._last is None:
            return
        question, kept = self._last
        self._put(question, "once more, instead of the last score")
        self._again = kept.review
        self.confidence.value, self.seconds = kept.review.confidence, kept.review.seconds
        self._show_answer()

    def _another(self) -> None:
        self._ask(self.question)

    # ---- clock, trouble, log -------------------------------------------------------------------

    def _clock_row(self) -> list[widgets.Widget]:
        clock = self.rehearsal.log.settings.clock
        return [widgets.HBox([self.clock_button, self.clock])] if clock else []

    def _start_or_stop(self) -> None:
        if self._since is None:
            self._since, self.seconds = self.rehearsal.now(), None
        else:
            self._stop_clock()
        self._show_clock()

    def _stop_clock(self) -> None:
        if self._since is not None:
            self.seconds = (self.rehearsal.now() - self._since).total_seconds()
        self._since = None

    def _show_clock(self) -> None:
        self.clock_button.description = "Stop the clock" if self._since else "Start the clock"
        if self._since is not None:
            self.clock.value = running(0.0, MOST_SECONDS)
        else:
            self.clock.value = "" if self.seconds is None else stood(self.seconds)

    def _trouble(self) -> str:
        """What the log couldn't read."""
        return " ".join(self.rehearsal.log.passed_over)

    def _changed(self) -> None:
        """The log, the date or the seed is another one now."""
        self._last = None
        self._try(self._ask)

    def _try(self, act: Callable[..., None], *arguments: Any) -> None:
        """Do it, or say why it can't be done: what was typed and ticked stays."""
        try:
            act(*arguments)
        except (OSError, ValueError) as error:
            self.status.value = spoken(f"<p>Not done: {html.escape(str(error))}</p>")


def sample(questions: Sequence[Question]) -> list[Question]:
    """One question of each kind, core ones where there are: enough to see what the bank is like."""
    chosen = dict[str, Question]()
    for one in sorted(questions, key=lambda one: not one.core):
        chosen.setdefault(one.kind, one)
    return list(chosen.values())


def rehearse(
    mode: str = "due", *, chapter: str = "", minutes: int = 45, folder: Path | None = None
) -> Any:
    """Rehearse in a notebook; in a terminal it is `durable-mini quiz`.

    Args:
        mode: "due", "core", "chapter", "weak" or "mock".
        chapter: a notebook's name, for the mode "chapter".
        minutes: 20, 45 or 60, for the mode "mock".
        folder: where progress is kept; None for the reader's own folder.

    Raises:
        ValueError: there is no such mode, chapter or length.
    """
    from durable_mini.school.mock import MockInterview  # noqa: PLC0415 - either or
    from durable_mini.school.mock_widget import Mock  # noqa: PLC0415
    from durable_mini.school.reviews import Reviews  # noqa: PLC0415

    log = Reviews(None if folder is None else folder / "reviews.jsonl")
    if mode == "mock":
        interview = MockInterview(None if folder is None else folder / "interviews.db")
        return Mock(interview, log, minutes=minutes)
    return Quiz(Rehearsal(log), mode, chapter)
