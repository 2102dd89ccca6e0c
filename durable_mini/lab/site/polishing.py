"""What nbconvert leaves undone on a page, done on its HTML.

Guarantees of the HTML that comes out:
- a link to a notebook leads to its page;
- no two elements share an id, and each heading has one;
- a picture is part of the page, and has its width and height, so that nothing jumps; the caption
  that repeats its alt text belongs to it, and isn't read out twice;
- code that is folded stands after what it shows;
- a table stands in a box that scrolls when the table is wider than the page; its header cells say
  what they head, and an empty one isn't announced as a header;
- nothing is announced as changing, because nothing on a page changes.

Leaves to others: whether a link leads anywhere (`folder`), and the order of the headings, which is
the chapter's.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from mimetypes import guess_type
from pathlib import Path, PurePosixPath
from struct import unpack
from urllib.parse import unquote

from bs4 import BeautifulSoup, Tag

_HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
_LONG_CELL, _SHORT_CELL = 40, 12  # characters; between and above, a column gets room for words
_PNG = "data:image/png;base64,"


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of the first or second rank, and the id that a link to it names."""

    words: str
    place: str


def page_name(notebook: str) -> str:
    """Return the file name of a notebook's page.

    >>> page_name("02_replay.ipynb")
    '02_replay.html'
    """
    return str(PurePosixPath(notebook).with_suffix(".html"))


def polished(body: str, folder: Path) -> tuple[str, list[Section]]:
    """Return the body of a page as it should be, and its sections with the title first.

    Args:
        body: as nbconvert made it.
        folder: where the pictures are that it shows by their names.

    Raises: OSError when one of them isn't there.
    """
    soup = BeautifulSoup(body, "html.parser")
    _lead_to_pages(soup)
    _tell_ids_apart(soup)
    _embed_pictures(soup, folder)
    _frame_pictures(soup)
    for cell in soup.select(".cell"):
        cell.extend(cell.find_all("details", class_="folded", recursive=False))
    _box_tables(soup)
    _mark_talk(soup)
    return str(soup), list(_sections(soup))


def _lead_to_pages(soup: BeautifulSoup) -> None:
    for mark in soup.select("a.anchor-link"):  # a sign at each heading, read out as "pilcrow"
        mark.decompose()
    for link in soup.find_all("a", href=True):
        file, *place = str(link["href"]).split("#", 1)
        if file.startswith("../"):  # exercises are worked on, so the site has no page of them
            link.unwrap()
        elif file.endswith(".ipynb") and "//" not in file:
            link["href"] = "#".join([page_name(file), *place])


def _tell_ids_apart(soup: BeautifulSoup) -> None:
    """Give each heading an id, and a number to the second element with the same one."""
    for number, heading in enumerate(soup.find_all(_HEADINGS), 1):
        # nbconvert writes them as they stand in a link; a browser decodes the link, not the id
        heading["id"] = unquote(str(heading.get("id", ""))) or f"heading-{number}"
    taken: set[str] = set()
    for element in soup.find_all(id=True):
        first = name = str(element["id"])
        number = 1
        while name in taken:
            number += 1
            name = f"{first}-{number}"
        element["id"] = name
        taken.add(name)


def _embed_pictures(soup: BeautifulSoup, folder: Path) -> None:
    """Put pictures into the page (nbconvert can, and then closes every <details> too early)."""
    for picture in soup.find_all("img"):
        source = str(picture.get("src", ""))
        if not source.startswith("data:"):
            kind, _ = guess_type(source)
            data = b64encode((folder / unquote(source)).read_bytes()).decode("ascii")
            picture["src"] = f"data:{kind};base64,{data}"


def _frame_pictures(soup: BeautifulSoup) -> None:
    for picture in soup.find_all("img"):
        source = str(picture.get("src", ""))
        if source.startswith(_PNG):
            width, height = _png_size(source.removeprefix(_PNG))
            picture["width"], picture["height"] = str(width), str(height)
            picture["style"] = f"--own-width: {width}px"
        frame = picture.find_parent("figure")
        line = frame.find_next_sibling() if frame else None
        if frame and line and _words(line) == str(picture.get("alt")):
            caption = soup.new_tag("figcaption", attrs={"aria-hidden": "true"})
            caption.string = _words(line)
            frame.append(caption)
            line.decompose()


def _png_size(data: str) -> tuple[int, int]:
    """Read width and height, which stand in the first 24 bytes of every PNG."""
    width, height = unpack(">II", b64decode(data[:32])[16:24])
    return width, height


def _box_tables(soup: BeautifulSoup) -> None:
    for table in soup.find_all("table"):
        for header in table.select("thead th, tr:first-child th"):
            header["scope"] = header.get("scope") or "col"
        for header in table.find_all("th"):
            if not _words(header):
                header.name = "td"
                del header["scope"]
        for cell in table.select("tbody :is(td, th)"):
            length = len(_words(cell))
            if length > _SHORT_CELL:
                _add_class(cell, "long" if length > _LONG_CELL else "some")
        caption = table.find("caption")
        named = f"Table: {_words(caption)}" if caption and _words(caption) else "Table"
        box = soup.new_tag("div", attrs={"class": "wide", "role": "group", "aria-label": named})
        table.wrap(box)


def _mark_talk(soup: BeautifulSoup) -> None:
    """Name what was asked and what was answered, for the style to set it off."""
    for line in soup.select("[aria-live]"):
        del line["aria-live"]
        del line["role"]
        _add_class(line, "answer")
    for lead in soup.select(".shown > p > strong:first-child"):
        box = lead.find_parent("div")
        if box and _words(lead) == "Predict.":
            _add_class(box, "asked")


def _add_class(element: Tag, name: str) -> None:
    element["class"] = " ".join(filter(None, [*element.get_attribute_list("class"), name]))


def _sections(soup: BeautifulSoup) -> Iterator[Section]:
    for heading in soup.find_all(["h1", "h2"]):
        yield Section(_words(heading), str(heading["id"]))


def _words(element: Tag) -> str:
    return re.sub(r"\s+", " ", element.get_text()).strip()
