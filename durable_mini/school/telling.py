"""Questions and answers as HTML: for the widgets, for a page without a kernel, for a printed page.

Guarantees: what a reader typed, and what stands in the bank, is shown and never obeyed: HTML in it
is escaped, a link stays a link. Leaves to others: figures (`figures`), and what is shown when.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from functools import cache
from typing import Any

import mistune

from durable_mini.school.bank import ALWAYS, Question
from durable_mini.school.figures import Figures

WIDE = "max-width: 62em; line-height: 1.45"


@cache
def _markdown() -> Any:
    return mistune.create_markdown(escape=True)


def as_html(text: str) -> str:
    """Markdown as HTML; HTML inside it is escaped, and wide code can be scrolled by keyboard."""
    return str(_markdown()(text)).strip().replace("<pre>", '<pre tabindex="0">')


def spoken(inside: str, style: str = "") -> str:
    """HTML that a screen reader reads out when it changes."""
    return f'<div role="status" aria-live="polite" style="{WIDE}; {style}">{inside}</div>'


def shown(inside: str) -> str:
    """HTML that is read when one comes to it."""
    return f'<div style="{WIDE}">{inside}</div>'


def asked_html(text: str, exhibit: str = "", before: str = "") -> str:
    """What an interviewer says; `before` is a quiet line above it."""
    quiet = f"<p><em>{html.escape(before)}</em></p>" if before else ""
    printed = f'<pre tabindex="0">{html.escape(exhibit)}</pre>' if exhibit else ""
    return f"{quiet}{as_html(text)}{printed}"


def sources_html(question: Question) -> str:
    """Where the claims about other systems come from."""
    rows = "".join(
        f'<li>{html.escape(one.claim)}: <a href="{html.escape(one.where)}">'
        f"{html.escape(one.where)}</a></li>"
        for one in question.sources
    )
    return f"<p>Sources:</p><ul>{rows}</ul>" if rows else ""


def points_html(question: Question) -> str:
    """What is ticked, as a list to read."""
    points = "".join(
        f"<li>{'must: ' if one.must else ''}{html.escape(one.text)}</li>" for one in question.points
    )
    flags = "".join(f"<li>{html.escape(one)}</li>" for one in question.red_flags)
    return f"<p>Said?</p><ul>{points}</ul><p>Red flags:</p><ul>{flags}</ul>"


def folded_html(question: Question, figures: Figures, number: int) -> str:
    """One question with all that belongs to it folded away."""
    follow_ups = "".join(
        f"{as_html(f'**Then ({_when(question, one.asked)}):** {one.prompt}')}"
        f"<details><summary>Answer to the follow-up {html.escape(one.id)}</summary>"
        f"{as_html(figures.fill(one.answer, question))}</details>"
        for one in question.follow_ups
    )
    inside = (
        f"{as_html(figures.answer(question))}{points_html(question)}{follow_ups}"
        f"{sources_html(question)}"
    )
    core = ", core" if question.core else ""
    about = f"{question.chapter}, {question.kind}, level {question.level}{core}"
    return (
        f"{asked_html(f'**{number}.** {question.prompt}', question.exhibit, about)}"
        f"<details><summary>Worked answer to {html.escape(question.id)}</summary>{inside}</details>"
    )


def sample_html(questions: Sequence[Question], figures: Figures) -> str:
    """Some questions, each with its answer folded away."""
    told = (folded_html(one, figures, number) for number, one in enumerate(questions, 1))
    return shown("".join(told))


def _when(question: Question, asked: str) -> str:
    if asked == ALWAYS:
        return ALWAYS
    return f"if missed: {next(one.text for one in question.points if one.id == asked)}"
