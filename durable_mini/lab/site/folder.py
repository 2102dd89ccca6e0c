"""Writes a folder of pages: one for each chapter, and an index with the map and the routes.

Guarantees: a folder that holds anything but a site made earlier is left alone. All pages are made,
and their links followed, before the first is put in place; each is put there in one step. Leaves to
others: what a page looks like (`pages`, `polishing`).

Crash: some pages of an earlier site may be the new ones and the rest still the old; run it again.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from durable_mini.lab import notebooks
from durable_mini.lab.chapters import CHAPTERS, ROUTES, Chapter
from durable_mini.lab.course import FIRST_CHAPTER, source_folder
from durable_mini.lab.site import pages
from durable_mini.lab.site.polishing import page_name

INDEX = "index.html"


class SiteError(ValueError):
    """The site can't be written; the message says why and what to do."""


def course_folder() -> Path:
    """The notebooks of this clone, or those that an installed wheel carries."""
    return source_folder() / FIRST_CHAPTER.parent


def build(
    folder: Path,
    *,
    course: Path,
    chapters: Sequence[Chapter] = CHAPTERS,
    tell: Callable[[str], None] = lambda line: None,
) -> Path:
    """Write the site into `folder`, which is made if it isn't there.

    Args:
        folder: absent, empty, or a site made by this function, which is then replaced.
        course: the folder of the notebooks.
        chapters: what the site holds, in order.
        tell: called with one line for each page, when it is made.

    Returns: the index page.

    Raises: SiteError when the folder holds other files, a chapter is missing or a link leads
        nowhere; NotANotebookError; OSError when the folder can't be written.
    """
    _refuse_unless_ours(folder)
    if missing := [each.file for each in chapters if not (course / each.file).is_file()]:
        raise SiteError(
            f"{course} lacks {', '.join(missing)}. "
            "Next: name the folder that holds the chapters with --course."
        )
    made = dict(_made(course, chapters, tell))
    if broken := list(_broken_links(made)):
        raise SiteError("links that lead nowhere:\n" + "\n".join(f"  {each}" for each in broken))
    _put(made, folder)
    return folder / INDEX


def _refuse_unless_ours(folder: Path) -> None:
    """Raise SiteError when the folder holds anything that this module didn't write."""
    if folder.exists() and not folder.is_dir():
        raise SiteError(f"{folder} is a file. Next: name a folder.")
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    if others := [path.name for path in there if not _is_ours(path)]:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise SiteError(
            f"{folder} holds other files: {', '.join(others[:3])}{more}. Nothing was written. "
            "Next: name a new or an empty folder."
        )


def _is_ours(path: Path) -> bool:
    if path.suffix != ".html" or path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as page:
        return pages.GENERATOR.encode() in page.read(1000)


def _made(
    course: Path, chapters: Sequence[Chapter], tell: Callable[[str], None]
) -> Iterator[tuple[str, str]]:
    """Yield name and text of each page, and tell of it."""
    total = len(chapters) + 1
    for number, chapter in enumerate(chapters, 1):
        notebook = notebooks.read(course / chapter.file)
        before = chapters[number - 2] if number > 1 else None
        after = chapters[number] if number < total - 1 else None
        page = pages.chapter_page(notebook, course, before, after)
        name = page_name(chapter.file)
        yield name, page
        tell(f"{number}/{total} {name}, {len(page) // 1000:,} kB{_unrun(notebook)}")
    routes = [route for route in ROUTES if set(route.chapters) <= set(chapters)]
    yield INDEX, pages.index_page(chapters, routes)
    tell(f"{total}/{total} {INDEX}")


def _unrun(notebook: Any) -> str:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source]
    count = sum(cell.execution_count is None for cell in cells)
    return f" (cells never run, so without a result: {count})" if count else ""


class _Places(HTMLParser):
    """What a page can be linked to by, and what it links to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: dict[str, None] = {}  # in order, each once
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            elif name == "href" and tag == "a":
                self.links[value or ""] = None


def _broken_links(made: Mapping[str, str]) -> Iterator[str]:
    """Yield each link between the pages that leads to no page, or to no place on it."""
    places = {name: _Places(page) for name, page in made.items()}
    for name, page in places.items():
        for target in page.links:
            if re.match(r"[a-z]+:", target):
                continue
            file, _, place = unquote(target).partition("#")
            there = places.get(file or name)
            if there is None or (place and place not in there.ids):
                yield f"{name} links to {target}"


def _put(made: Mapping[str, str], folder: Path) -> None:
    """Put every page in place, and remove pages of an earlier site that the new one hasn't got."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as beside:
        for name, page in made.items():
            Path(beside, name).write_text(page, encoding="utf-8")
        for name in made:
            Path(beside, name).replace(folder / name)
    for path in folder.iterdir():
        if path.name not in made:
            path.unlink()
