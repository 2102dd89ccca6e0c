"""The mock interview in a notebook: one that is under way is offered first, whatever has died.

Guarantees: nothing begins by "Run all"; every answer is in the journal before the next question is
shown, so a kernel that dies loses what is being typed and nothing else; another window that shows
the same interview can't answer a question twice; the scores go into the log once.
Leaves to others: the run (`mock`), what it was worth (`debrief`), the boxes (`ticking`).
"""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from durable_mini.errors import DurableError
from durable_mini.lab.pictures import show_bundle
from durable_mini.lab.widgets import live_view
from durable_mini.school.debrief import (
    debrief,
    keep_scores,
    summary,
    transcript,
    worked,
    worked_follow_up,
)
from durable_mini.school.figures import Figures
from durable_mini.school.mock import (
    AREAS,
    DESIGN,
    LENGTHS,
    PARTS,
    Answer,
    Asked,
    MockInterview,
    Told,
    question_of,
)
from durable_mini.school.reviews import Reviews
from durable_mini.school.telling import as_html, asked_html, shown, spoken
from durable_mini.school.ticking import Ticks, confidence_buttons
from durable_mini.school.ticking_clock import running

BEGIN, GO_ON, ANSWER, TICKED, ANEW = (
    "Begin",
    "Go on",
    "That is my answer",
    "Ticked",
    "Another interview",
)


class Mock:
    """One mock interview after the other.

    Args:
        interview: where interviews are kept; None for the reader's own folder.
        log: where their scores go; None for the reader's own.
        minutes: 20, 45 or 60, to begin with.

    Raises:
        ValueError: there is no interview of so many minutes.
    """

    def __init__(
        self,
        interview: MockInterview | None = None,
        log: Reviews | None = None,
        *,
        minutes: int = 45,
    ) -> None:
        if minutes not in LENGTHS:
            raise ValueError(f"there is no interview of {minutes} minutes: right is 20, 45 or 60")
        self.interview, self.log = interview or MockInterview(), log or Reviews()
        self.run_id = ""
        self._seen: Asked | None = None
        self._hearing: tuple[int, Ticks] | None = None
        self._build(minutes)
        self._try(self._offer)

    def _build(self, minutes: int) -> None:
        self.minutes = widgets.ToggleButtons(
            options=[(f"{length} minutes", length) for length in LENGTHS], value=minutes
        )
        self.timed = widgets.Checkbox(value=True, description="with a clock", indent=False)
        self.seed = widgets.BoundedIntText(value=0, min=0, max=999_999, description="Seed")
        self.answer = widgets.Textarea(
            description="Answer", layout=widgets.Layout(width="95%", height="9em")
        )
        self.steps = widgets.Textarea(
            description="Steps",
            placeholder="the names of your steps in their order, one a line",
            layout=widgets.Layout(width="95%", height="6em"),
        )
        self.irreversible = widgets.Text(
            description="No way back",
            placeholder="the step that can't be taken back, as you wrote it above",
            layout=widgets.Layout(width="95%"),
        )
        self.parts = {
            name: widgets.Checkbox(
                value=False, description=text, indent=False, layout=widgets.Layout(width="auto")
            )
            for name, text in PARTS.items()
        }
        self.asked, self.status = widgets.HTML(), widgets.HTML()
        self.body = widgets.VBox([])
        self.go = widgets.Button(button_style="primary", layout=widgets.Layout(width="auto"))
        self.give_up = widgets.Button(description="Give it up …")
        self.go.on_click(lambda _button: self._try(self._go_on))
        self.give_up.on_click(lambda _button: self._try(self._give_up))
        buttons = widgets.HBox([self.go, self.give_up])
        self._panel = widgets.VBox([self.asked, self.body, self.status, buttons])

    def _ipython_display_(self) -> None:
        plans = "".join(
            f"<li>{minutes} minutes: "
            f"{', '.join(f'{AREAS[area].lower()} {length}' for area, length in stages)}; "
            "then the debrief</li>"
            for minutes, stages in LENGTHS.items()
        )
        lines = "A mock interview of 20, 45 or 60 minutes. Run this cell, then press Begin."
        text = {"text/html": shown(f"<p>{lines}</p><ul>{plans}</ul>"), "text/plain": lines}
        show_bundle(live_view(self._panel) | text)

    # ---- begin, or go on -----------------------------------------------------------------------

    def _offer(self) -> None:
        """Offer what is under way first."""
        self._seen = self._hearing = None
        self.asked.value = ""
        self.run_id = self.interview.under_way() or ""
        if not self.run_id:
            self.seed.value = self.interview.next_seed()
            self.body.children = [self.minutes, self.timed, self.seed]
            self._stage(BEGIN, "Nothing is taught before the debrief. Have paper at hand.")
            return
        plan = self.interview.plan(self.run_id)
        asked = self.interview.asked(self.run_id)
        where = "its debrief" if asked is None else f"stage {asked.number + 1} of {asked.of}"
        clock = " Its clock has gone on." if plan["timed"] and asked is not None else ""
        self.body.children = []
        said = f"An interview of {plan['minutes']} minutes is under way, at {where}.{clock}"
        self._stage(GO_ON, said, may_end=True)

    def _begin(self) -> None:
        self.run_id = self.interview.begin(
            self.minutes.value, timed=self.timed.value, seed=self.seed.value
        )
        self._show()

    def _give_up(self) -> None:
        """At the second press only."""
        if self.give_up.description != "Really give it up?":
            self.give_up.description = "Really give it up?"
            return
        self.interview.abandon(self.run_id)
        self._offer()

    def _stage(self, button: str, said: str, *, may_end: bool = False) -> None:
        self.go.description, self.status.value = button, spoken(as_html(said))
        self.give_up.description = "Give it up …"
        self.give_up.layout.display = "" if may_end else "none"

    def _go_on(self) -> None:
        steps: dict[str, Callable[[], None]] = {
            BEGIN: self._begin,
            GO_ON: self._show,
            ANSWER: self._give,
            TICKED: self._hear,
        }
        steps.get(self.go.description, self._offer)()

    # ---- asking --------------------------------------------------------------------------------

    def _show(self, said: str = "") -> None:
        """Show what is asked now, or the debrief once all was answered."""
        asked = self.interview.asked(self.run_id)
        if asked is None:
            self._show_debrief(said)
            return
        self._seen = asked
        self.confidence = confidence_buttons()
        self.answer.value = ""
        part = "the follow-up to it" if asked.follow_up else AREAS[asked.area]
        before = f"Stage {asked.number + 1} of {asked.of}: {part}"
        self.asked.value = shown(asked_html(asked.text, asked.exhibit, before) + self._clock(asked))
        design = [self.steps, self.irreversible, *self._part_boxes()]
        about = design if asked.area == DESIGN else []
        sure = [] if asked.follow_up else [self.confidence]
        self.body.children = [self.answer, *about, *sure]
        self._stage(ANSWER, f"{said} {before}.".strip(), may_end=True)

    def _part_boxes(self) -> list[widgets.Widget]:
        return [widgets.HTML("<p>What does it have?</p>"), *self.parts.values()]

    def _clock(self, asked: Asked) -> str:
        if asked.seconds is None:
            return ""
        return running(self.interview.clock.now() - asked.since_s, asked.seconds)

    def _give(self) -> None:
        if self._seen is None:
            return
        number = self._seen.number
        if self._seen.follow_up:
            taken = self.interview.follow(self.run_id, number, self.answer.value)
        else:
            given = self._given(self._seen)
            if isinstance(given, str):
                self._stage(ANSWER, given, may_end=True)
                return
            taken = self.interview.answer(self.run_id, number, given)
        self._show("" if taken else "Another window had answered that already.")

    def _given(self, asked: Asked) -> Answer | str:
        """The answer, or what it still lacks."""
        if self.confidence.value is None:
            return "Say first how sure you are."
        if asked.area != DESIGN:
            return Answer(self.answer.value, self.confidence.value)
        steps = tuple(line.strip() for line in self.steps.value.splitlines() if line.strip())
        last = self.irreversible.value.strip()
        if len(steps) < 2 or last not in steps:
            return "Name two steps or more, one a line, and say which of them has no way back."
        parts = tuple(name for name, box in self.parts.items() if box.value)
        return Answer(self.answer.value, self.confidence.value, steps, last, parts)

    # ---- the debrief ---------------------------------------------------------------------------

    def _show_debrief(self, said: str = "") -> None:
        """The next stage to tick, or what all came to."""
        told = self.interview.told(self.run_id)
        number = next((n for n, one in enumerate(told) if one.heard is None), None)
        if number is None:
            self._finish(told)
            return
        one, figures = told[number], Figures(self.interview.plan(self.run_id)["seed"])
        ticks, self.followed = Ticks(question_of(one.question)), _followed()
        self._hearing = number, ticks
        before = f"Debrief, {number + 1} of {len(told)}: {AREAS[one.area]}"
        self.asked.value = shown(asked_html(one.text, one.exhibit, before))
        told_html = f"{_yours(one)}<h4>Worked answer</h4>{as_html(worked(one, figures))}"
        rows = [widgets.HTML(shown(told_html)), ticks.widget]
        if one.follow_up:
            rows += [widgets.HTML(shown(_followed_html(one, figures))), self.followed]
        self.body.children = rows
        self._stage(TICKED, f"{said} {before}. Tick what you said, and no more.".strip())

    def _hear(self) -> None:
        if self._hearing is None:
            return
        number, ticks = self._hearing
        one = self.interview.told(self.run_id)[number]
        if one.follow_up and self.followed.value is None:
            self._stage(TICKED, "Say whether you answered the follow-up.")
            return
        seconds = one.seconds if one.limit_s is not None else None
        heard = ticks.heard(seconds=seconds, follow_up=self.followed.value)
        self.interview.heard(self.run_id, number, heard)
        one = self.interview.told(self.run_id)[number]
        why = "".join(f"\n- {text}" for text in one.because)
        self._show_debrief(f"**{one.worth} of 3** for the last one.\n{why}\n\n")

    def _finish(self, told: list[Told]) -> None:
        added = keep_scores(told, self.log)
        text = transcript(told, self.interview.plan(self.run_id), self.run_id)
        self.asked.value = shown(as_html("\n".join(summary(debrief(told)))))
        box = widgets.Textarea(
            value=text, description="Transcript", layout=widgets.Layout(width="95%", height="12em")
        )
        path = self.interview.path.with_name(f"{self.run_id}.md")
        save = widgets.Button(description="Write it to a file")
        save.on_click(lambda _button: self._try(self._save, path, text))
        self.body.children = [box, save]
        kept = f"{added} scores were added to the log." if added else "The log has its scores."
        self._stage(ANEW, kept)

    def _save(self, path: Path, text: str) -> None:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        self._stage(ANEW, f"Written to `{path}`.")

    def _try(self, act: Callable[..., None], *arguments: Any) -> None:
        """Do it, or say why it can't be done: what was typed stays."""
        try:
            act(*arguments)
        except (OSError, ValueError, DurableError) as error:
            self.status.value = spoken(f"<p>Not done: {html.escape(str(error))}</p>")


def _followed() -> widgets.RadioButtons:
    return widgets.RadioButtons(
        options=[("answered it", True), ("missed it", False)], value=None, description="Follow-up"
    )


def _yours(told: Told) -> str:
    took = "" if told.limit_s is None else f" ({told.seconds:.0f} of {told.limit_s:.0f} seconds)"
    text = html.escape(told.answer.text or "(spoken)").replace("\n", "<br>")
    steps = f"<p>{html.escape(' → '.join(told.answer.steps))}</p>" if told.answer.steps else ""
    return f"<h4>Yours{took}</h4><p>{text}</p>{steps}"


def _followed_html(told: Told, figures: Figures) -> str:
    return (
        f"<h4>The follow-up</h4>{as_html(told.follow_up_text)}"
        f"<p>Yours: {html.escape(told.follow_up_answer or '(spoken)')}</p>"
        f"{as_html(worked_follow_up(told, figures))}"
    )
