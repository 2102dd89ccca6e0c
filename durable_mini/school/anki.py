"""The bank for Anki: tab-separated text, a note for each question and each follow-up.

Guarantees: a note's guid comes from the permanent ids, so importing a newer file changes the words
of a note and keeps its schedule; a note is one line with five fields, whatever is in it.
Leaves to others: the schedule, which is Anki's own there and isn't brought back.
Source: the file headers, https://docs.ankiweb.net/importing/text-files.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from durable_mini.school.bank import FollowUp, Question
from durable_mini.school.figures import Figures
from durable_mini.school.telling import as_html, asked_html, points_html, sources_html

DECK = "Durable execution"
_HEADERS = (
    "#separator:tab",
    "#html:true",
    "#notetype:Basic",
    "#guid column:1",
    "#deck column:2",
    "#tags column:3",
)
_PRE = re.compile(r"<pre.*?</pre>", re.DOTALL)


def anki_text(questions: Sequence[Question], figures: Figures) -> str:
    """The file that Anki imports."""
    notes = ("\t".join(fields) for one in questions for fields in _notes(one, figures))
    return "\n".join([*_HEADERS, *notes]) + "\n"


def _notes(question: Question, figures: Figures) -> Iterator[tuple[str, ...]]:
    """A question and its follow-ups: guid, deck, tags, front, back."""
    deck = f"{DECK}::{question.chapter}"
    tags = ["durable-mini", f"kind::{question.kind}", f"level::{question.level}"]
    if question.core:
        tags.append("core")
    answer = as_html(figures.answer(question)) + points_html(question) + sources_html(question)
    front = _one_line(asked_html(question.prompt, question.exhibit))
    yield guid(question), deck, " ".join(tags), front, _one_line(answer)
    for one in question.follow_ups:
        asked = asked_html(one.prompt, before=f"After: {question.prompt}")
        told = as_html(figures.fill(one.answer, question))
        tagged = " ".join([*tags, "follow-up"])
        yield guid(question, one), deck, tagged, _one_line(asked), _one_line(told)


def guid(question: Question, follow_up: FollowUp | None = None) -> str:
    """What Anki knows a note by."""
    ending = "" if follow_up is None else f"/{follow_up.id}"
    return f"durable-mini:{question.id}{ending}"


def _one_line(text: str) -> str:
    """HTML without line breaks and tabs; those of code become HTML."""
    kept = _PRE.sub(lambda found: found[0].replace("\n", "<br>"), text)
    return " ".join(kept.replace("\t", "    ").split("\n"))
