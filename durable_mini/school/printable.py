"""All questions on one page, their answers folded away: to print, to read without a kernel.

Guarantees: the page loads nothing and its policy forbids it to; everything from the bank is
escaped; its headings, ids and landmarks are in order; the same seed gives the same bytes.
Leaves to others: how a question is told (`telling`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2

from durable_mini.school.bank import Question
from durable_mini.school.figures import Figures
from durable_mini.school.telling import folded_html

_TEMPLATE = Path(__file__).parent / "templates" / "questions.html.j2"


def questions_page(questions: Sequence[Question], figures: Figures) -> str:
    """The page as HTML."""
    chapters = {
        chapter: [one for one in questions if one.chapter == chapter]
        for chapter in dict.fromkeys(one.chapter for one in questions)
    }
    numbers = {one.id: number for number, one in enumerate(questions, 1)}
    told = {one.id: folded_html(one, figures, numbers[one.id]) for one in questions}
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(chapters=chapters, told=told, figures=figures, count=len(questions))
