"""Makes one page: the chapter's cells by nbconvert, and around them what a page needs to be used.

Guarantees: the same notebook gives the same bytes. A page carries its style, its pictures and its
few lines of script; its content policy forbids it to load anything. It has one main part, a way
past the navigation, a list of its sections, and links to the chapters before and after. Leaves to
others: links, tables, captions (`polishing`).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2
from nbconvert.exporters import HTMLExporter
from traitlets.config import Config

from durable_mini.lab.chapters import Chapter, Route, duration, titles_on_map
from durable_mini.lab.run_pictures import course_map
from durable_mini.lab.site.polishing import page_name, polished

GENERATOR = "durable_mini.lab.site"

_TEMPLATES = Path(__file__).parent / "templates"
_REMOVED = {  # which tags take what away; both spellings are in use
    "remove_cell_tags": {"remove-cell", "remove_cell"},
    "remove_input_tags": {"remove-input", "remove_input"},
    "remove_all_outputs_tags": {"remove-output", "remove_output"},
}


def chapter_page(
    notebook: Any, course: Path, before: Chapter | None = None, after: Chapter | None = None
) -> str:
    """Return the page of a notebook.

    Args:
        notebook: as `notebooks.read` gives it; nothing of it is executed.
        course: the folder that its pictures are in.
        before, after: the chapters to link to at the end.

    Raises: OSError when it shows a picture that isn't there.
    """
    cells, _ = _exporter().from_notebook_node(notebook)
    body, sections = polished(cells, course)
    title = sections[0].words if sections else "A chapter"
    return _page(
        title,
        body,
        is_chapter=True,
        sections=sections[1:],
        before=_entry(before),
        after=_entry(after),
    )


def index_page(chapters: Sequence[Chapter], routes: Sequence[Route]) -> str:
    """Return the page that all others lead back to: the map of the course, and the routes."""
    picture = course_map(titles_on_map())
    body = (
        _environment()
        .get_template("index.html.j2")
        .render(
            map=b64encode(picture.png()).decode("ascii"),
            map_alt=picture.alt,
            chapters=[_entry(chapter) for chapter in chapters],
            routes=[
                {
                    "name": route.name,
                    "reader": route.reader,
                    "time": duration(route.minutes),
                    "chapters": [_entry(chapter) for chapter in route.chapters],
                }
                for route in routes
            ],
        )
    )
    return _page("Durable execution: the course", polished(body, _TEMPLATES)[0])


def _page(title: str, body: str, **parts: Any) -> str:
    script = _text("page.js")
    digest = b64encode(sha256(script.encode()).digest()).decode("ascii")
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    page = _environment().get_template("page.html.j2")
    given = {"is_chapter": False, "sections": (), "before": None, "after": None, **parts}
    return page.render(
        title=title,
        body=body,
        generator=GENERATOR,
        policy=policy,
        style=_text("style.css"),
        script=script,
        **given,
    )


def _entry(chapter: Chapter | None) -> dict[str, str | int] | None:
    """What a link to a chapter says of it."""
    if chapter is None:
        return None
    return {
        "href": page_name(chapter.file),
        "name": _name(chapter),
        "question": chapter.question,
        "minutes": chapter.minutes,
    }


def _name(chapter: Chapter) -> str:
    return chapter.name.replace("_", " ")


@cache
def _text(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _exporter() -> HTMLExporter:
    return HTMLExporter(
        template_name="durable_mini_page",
        extra_template_basedirs=[str(_TEMPLATES)],
        config=Config({"TagRemovePreprocessor": {"enabled": True, **_REMOVED}}),
    )


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
