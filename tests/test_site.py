"""The static site: pages that lead somewhere, load nothing, and shut nobody out."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import browser_support as support
import nbformat
import pytest
from bs4 import BeautifulSoup, Tag

from durable_mini.lab import notebooks
from durable_mini.lab.chapters import CHAPTERS, ROUTES, Chapter
from durable_mini.lab.pictures import Picture, blank_figure, caption_bundle, numbers_table
from durable_mini.lab.site import SiteError, build
from durable_mini.lab.site.__main__ import main
from durable_mini.lab.site.pages import chapter_page, index_page

pytestmark = pytest.mark.slow

COURSE = Path(__file__).resolve().parent.parent / "course"
SMALL = (Chapter("01_one.ipynb", "What is one?", 5), Chapter("02_two.ipynb", "And two?", 5))
LOADING = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
}

# ---- one page ----------------------------------------------------------------------------------


def page_of(*cells: Any, folder: Path = COURSE) -> BeautifulSoup:
    notebook = nbformat.v4.new_notebook(cells=list(cells), metadata=notebooks.NOTEBOOK_METADATA)
    return BeautifulSoup(chapter_page(notebook, folder), "html.parser")


def text(source: str, **metadata: Any) -> Any:
    return nbformat.v4.new_markdown_cell(source, metadata=metadata)


def code(source: str = "1 + 1", *outputs: Any, **metadata: Any) -> Any:
    return nbformat.v4.new_code_cell(
        source, outputs=list(outputs), execution_count=1, metadata=metadata
    )


def shown(data: dict[str, Any], metadata: dict[str, Any] | None = None) -> Any:
    return nbformat.v4.new_output("display_data", data=data, metadata=metadata or {})


def printed(words: str) -> Any:
    return nbformat.v4.new_output("stream", name="stdout", text=words)


def one(page: BeautifulSoup, selector: str) -> Tag:
    (found,) = page.select(selector)
    return found


def test_link_to_a_notebook_leads_to_its_page() -> None:
    page = page_of(text("[a](02_two.ipynb) [b](02_two.ipynb#3.-Store-it) [c](#Here)"))

    assert [link["href"] for link in page.select(".prose a")] == [
        "02_two.html",
        "02_two.html#3.-Store-it",
        "#Here",
    ]


def test_link_in_an_output_leads_to_a_page_too() -> None:
    table = "| chapter |\n| --- |\n| [two](02_two.ipynb) |"
    page = page_of(code("x", shown({"text/markdown": table, "text/plain": "-"})))

    assert one(page, "main a")["href"] == "02_two.html"


def test_link_to_another_host_stays_as_it_is() -> None:
    address = "https://example.org/a.ipynb"

    assert one(page_of(text(f"[x]({address})")), ".prose a")["href"] == address


def test_fold_holds_what_it_folds() -> None:
    """nbconvert's own way of embedding pictures lets the answers fall out of it."""
    fold = "<details><summary>Answer</summary>\n\n1. first\n2. *second*\n\n</details>"
    page = page_of(text(f"A question.\n\n{fold}"))

    assert one(page, ".prose details em").get_text() == "second"


def test_picture_says_what_it_shows() -> None:
    bundle = Picture(blank_figure(4, 2), "A bar, twice as long as before.")._repr_mimebundle_()
    picture = one(page_of(code("x", shown(*bundle))), "img")

    assert picture["alt"] == "A bar, twice as long as before."
    assert (picture["width"], picture["height"]) == ("440", "220")


def test_alt_text_falls_back_on_the_plain_text() -> None:
    data, _ = Picture(blank_figure(1, 1), "As text.")._repr_mimebundle_()

    assert one(page_of(code("x", shown(data))), "img")["alt"] == "As text."


def test_caption_that_repeats_the_alt_text_is_read_out_once() -> None:
    bundle = Picture(blank_figure(1, 1), "The finding.")._repr_mimebundle_()
    page = page_of(code("x", shown(*bundle), shown(caption_bundle("The finding."))))

    caption = one(page, "figure figcaption")
    assert caption["aria-hidden"] == "true"
    assert one(page, ".outputs").get_text().count("The finding.") == 1


def test_sentence_of_a_widget_stays_beside_its_picture() -> None:
    bundle = Picture(blank_figure(1, 1), "The picture.")._repr_mimebundle_()
    sentence = '<p role="status" aria-live="polite">3 of 9: dead.</p>'
    page = page_of(code("x", shown(*bundle), shown({"text/html": sentence})))

    line = one(page, ".answer")
    assert line.get_text() == "3 of 9: dead."
    assert "aria-live" not in line.attrs


def test_picture_of_the_folder_becomes_part_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "a map.png").write_bytes(Picture(blank_figure(2, 1), "-").png())

    picture = one(page_of(text("![The map](<a map.png>)"), folder=tmp_path), "img")

    assert str(picture["src"]).startswith("data:image/png;base64,")
    assert (picture["alt"], picture["width"]) == ("The map", "220")


def test_picture_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.png"):
        page_of(text("![x](gone.png)"), folder=tmp_path)


@pytest.mark.parametrize(
    "metadata", [{"jupyter": {"source_hidden": True}}, {"tags": ["hide-input"]}]
)
def test_hidden_code_is_folded_under_what_it_shows(metadata: dict[str, Any]) -> None:
    page = page_of(code("secret()", printed("shown\n"), **metadata))

    assert "secret" in one(page, "main details.folded").get_text()
    words = one(page, ".cell").get_text()
    assert words.index("shown") < words.index("secret")


@pytest.mark.parametrize(
    "metadata", [{"jupyter": {"outputs_hidden": True}}, {"tags": ["hide_output"]}]
)
def test_hidden_output_is_folded(metadata: dict[str, Any]) -> None:
    page = page_of(code("plain()", printed("long\n"), **metadata))

    assert "long" in one(page, "details.folded .outputs").get_text()
    assert "plain" not in one(page, "details.folded").get_text()


def test_hidden_cell_is_folded_in_both_parts() -> None:
    page = page_of(code("secret()", printed("long\n"), tags=["hide-cell"]))

    assert len(page.select(".cell > details.folded")) == 2


@pytest.mark.parametrize(
    ("tag", "left"), [("remove-cell", ""), ("remove-input", "output"), ("remove_output", "source")]
)
def test_removed_part_is_not_on_the_page(tag: str, left: str) -> None:
    page = page_of(text("# T"), code("source", printed("output"), tags=[tag]))

    words = "".join(cell.get_text() for cell in page.select(".cell"))
    assert {word for word in ("source", "output") if word in words} == set(filter(None, [left]))


def test_error_of_a_cell_is_shown() -> None:
    error = nbformat.v4.new_output(
        "error", ename="OSError", evalue="full", traceback=["OSError: \x1b[31mfull\x1b[0m"]
    )

    assert one(page_of(code("x", error)), "pre.raised").get_text() == "OSError: full"


def test_text_of_an_output_is_not_taken_for_html() -> None:
    page = page_of(code("x", printed("<b>&</b>"), shown({"text/plain": "<object at home>"})))

    assert [each.get_text() for each in page.select("pre.printed")] == [
        "<b>&</b>",
        "<object at home>",
    ]


def test_code_keeps_its_spaces() -> None:
    source = "from a import b\n\n\ndef f(x):\n    return x  # why"

    assert one(page_of(code(source)), ".cell pre").get_text() == f"{source}\n"


def test_table_stands_in_a_box_with_its_name_and_its_headers() -> None:
    table = numbers_table([{"step": "charge", "times": 2}], "Executed")
    page = page_of(code("x", shown({"text/html": table.to_html()})))

    assert one(page, ".wide")["aria-label"] == "Table: Executed"
    assert [cell["scope"] for cell in page.select(".wide th")] == ["col", "col", "row"]


def test_empty_corner_of_a_table_is_no_header() -> None:
    page = page_of(text("| | rule |\n| --- | --- |\n| 1 | Record. |"))

    assert [cell.get_text() for cell in page.select("th")] == ["rule"]
    assert one(page, "th")["scope"] == "col"


def test_headings_have_ids_that_jupyterlab_links_to_and_that_differ() -> None:
    page = page_of(text('# T\n\n## 2. "Done" is not enough\n\n### Why?\n\n## A\n\n### Why?'))

    ids = [str(heading["id"]) for heading in page.select("main :is(h1, h2, h3)")]
    assert ids == ["T", '2.-"Done"-is-not-enough', "Why?", "A", "Why?-2"]


def test_cell_can_be_linked_to_by_its_id() -> None:
    cell = code()
    cell.id = "kill-run"

    assert page_of(cell).find(id="cell-id=kill-run")


def test_sections_are_listed_and_the_title_names_the_page() -> None:
    page = page_of(text("# 01 · One\n\n## First `step`\n\n### Deeper\n\n## Last"))

    assert one(page, "title").get_text() == "01 · One"
    for navigation in page.select("nav[aria-label^=Sections]"):
        assert [link.get_text() for link in navigation.select("a")] == ["First step", "Last"]


def test_chapters_before_and_after_are_linked() -> None:
    notebook = nbformat.v4.new_notebook(cells=[text("# T")])
    page = BeautifulSoup(chapter_page(notebook, COURSE, *SMALL), "html.parser")

    assert [link["href"] for link in page.select("footer a")] == ["01_one.html", "02_two.html"]
    assert "And two?" in one(page, "footer .after").get_text()


def test_prediction_is_set_off_from_the_text() -> None:
    asked = "<p><strong>Predict.</strong> How long?</p><ul><li>short</li></ul>"

    assert "short" in one(page_of(code("x", shown({"text/html": asked}))), ".asked").get_text()


def test_page_has_what_a_reader_finds_the_way_by() -> None:
    page = page_of(text("# T\n\n## S"))

    assert one(page, "html")["lang"] == "en"
    assert one(page, "a.skip")["href"] == f"#{one(page, 'main')['id']}"
    assert one(page, "header a")["href"] == "index.html"


def test_index_has_the_map_and_the_routes() -> None:
    page = BeautifulSoup(index_page(CHAPTERS, ROUTES), "html.parser")

    table = one(page, "table")
    assert [link["href"] for link in table.select("a")] == [
        chapter.file.replace(".ipynb", ".html") for chapter in CHAPTERS
    ]
    assert len(page.select(".route")) == len(ROUTES)
    assert str(one(page, "img")["alt"]).startswith("A run of seven steps")
    assert faults(page) == []


# ---- a folder of pages -------------------------------------------------------------------------


@pytest.fixture
def course(tmp_path: Path) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    write(folder, "01_one", "# One\n\n[there](02_two.ipynb#Here), [cell](02_two.ipynb#cell-id=c-0)")
    write(folder, "02_two", "# Two\n\n## Here\n\n[back](01_one.ipynb)")
    return folder


def write(folder: Path, name: str, *sources: str) -> None:
    cells = [text(source) for source in sources]
    for number, cell in enumerate(cells):
        cell.id = f"c-{number}"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / f"{name}.ipynb")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_site_has_a_page_for_each_chapter_and_tells_of_each(course: Path, tmp_path: Path) -> None:
    told: list[str] = []

    index = build(tmp_path / "site", course=course, chapters=SMALL, tell=told.append)

    assert names(index.parent) == ["01_one.html", "02_two.html", "index.html"]
    assert [line.split()[0] for line in told] == ["1/3", "2/3", "3/3"]


def test_building_twice_gives_the_same_bytes(course: Path, tmp_path: Path) -> None:
    texts = [
        [path.read_bytes() for path in sorted(index.parent.iterdir())]
        for index in (build(tmp_path / name, course=course, chapters=SMALL) for name in ("a", "b"))
    ]

    assert texts[0] == texts[1]


def test_site_made_earlier_is_replaced(course: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    build(site, course=course, chapters=SMALL)
    write(course, "01_one", "# One, again")

    build(site, course=course, chapters=SMALL[:1])

    assert names(site) == ["01_one.html", "index.html"]
    assert "One, again" in (site / "01_one.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("other", ["notes.txt", "mine.html", ".git/config"])
def test_folder_with_other_files_is_left_alone(course: Path, tmp_path: Path, other: str) -> None:
    file = tmp_path / "site" / other
    file.parent.mkdir(parents=True)
    file.write_text("mine", encoding="utf-8")

    with pytest.raises(SiteError, match=re.escape(other.split("/", maxsplit=1)[0])):
        build(tmp_path / "site", course=course, chapters=SMALL)

    assert file.read_text(encoding="utf-8") == "mine"
    assert names(tmp_path / "site") == [other.split("/", maxsplit=1)[0]]


def test_file_in_the_place_of_the_folder_is_refused(course: Path, tmp_path: Path) -> None:
    (tmp_path / "site").write_text("", encoding="utf-8")

    with pytest.raises(SiteError, match="is a file"):
        build(tmp_path / "site", course=course, chapters=SMALL)


def test_missing_chapter_is_named(course: Path, tmp_path: Path) -> None:
    (course / "02_two.ipynb").unlink()

    with pytest.raises(SiteError, match=r"lacks 02_two\.ipynb"):
        build(tmp_path / "site", course=course, chapters=SMALL)


@pytest.mark.parametrize("target", ["03_three.ipynb", "01_one.ipynb#Nowhere", "#Nowhere", "a.txt"])
def test_link_that_leads_nowhere_stops_the_site(course: Path, tmp_path: Path, target: str) -> None:
    write(course, "02_two", f"# Two\n\n## Here\n\n[x]({target})")

    with pytest.raises(SiteError, match=r"02_two\.html links to"):
        build(tmp_path / "site", course=course, chapters=SMALL)

    assert not (tmp_path / "site").exists()


def test_interrupted_site_leaves_nothing_behind(course: Path, tmp_path: Path) -> None:
    def interrupt(_line: str) -> None:
        raise KeyboardInterrupt

    before = names(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "site", course=course, chapters=SMALL, tell=interrupt)

    assert names(tmp_path) == before


def test_cells_that_were_never_run_are_told_of(course: Path, tmp_path: Path) -> None:
    cell = nbformat.v4.new_code_cell("1 + 1")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), course / "01_one.ipynb")
    told: list[str] = []

    build(tmp_path / "site", course=course, chapters=SMALL[:1], tell=told.append)

    assert "never run, so without a result: 1" in told[0]


Captured = pytest.CaptureFixture[str]


def test_command_says_what_is_wrong_in_one_line(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "notes.txt").touch()

    assert main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("site: ")
    assert "Next:" in error
    assert error.count("\n") == 1


def test_command_names_a_folder_without_the_course(tmp_path: Path, capsys: Captured) -> None:
    assert main([str(tmp_path / "site"), "--course", str(tmp_path)]) == 2
    assert "--course" in capsys.readouterr().err


# ---- the course --------------------------------------------------------------------------------


def faults(page: BeautifulSoup) -> list[str]:
    """What is wrong with a page that no browser is needed for."""
    return [fault for find in (_loads, _headings, _pictures, _ids) for fault in find(page)]


def _loads(page: BeautifulSoup) -> Iterator[str]:
    for tag, attribute in LOADING.items():
        for element in page.find_all(tag):
            if not str(element.get(attribute, "data:")).startswith("data:"):
                yield f"loads {element[attribute]}"
    for style in page.find_all("style"):
        if re.search(r"@import|url\(", style.get_text()):
            yield "its style loads something"


def _headings(page: BeautifulSoup) -> Iterator[str]:
    levels = [
        (int(each.name[1]), each.get_text()) for each in page.select("h1, h2, h3, h4, h5, h6")
    ]
    if [level for level, _ in levels].count(1) != 1:
        yield "has not exactly one title"
    for (before, _), (level, words) in zip([(0, ""), *levels], levels, strict=False):
        if level > before + 1:
            yield f"heading {words!r} skips a rank"


def _pictures(page: BeautifulSoup) -> Iterator[str]:
    for number, picture in enumerate(page.find_all("img"), 1):
        if not str(picture.get("alt", "")).strip():
            yield f"picture {number} says nothing"


def _ids(page: BeautifulSoup) -> Iterator[str]:
    ids = [str(element["id"]) for element in page.find_all(id=True)]
    yield from (f"two elements are called {name!r}" for name in set(ids) if ids.count(name) > 1)


def test_page_of_a_real_chapter_is_sound() -> None:
    page = chapter_page(notebooks.read(COURSE / "00_start_here.ipynb"), COURSE)

    assert faults(BeautifulSoup(page, "html.parser")) == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole course as a site; a link that leads nowhere is an error here already."""
    return build(tmp_path_factory.mktemp("built") / "site", course=COURSE).parent


@pytest.mark.slow
def test_pages_of_the_course_are_sound(site: Path) -> None:
    for path in sorted(site.iterdir()):
        page = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        assert (path.name, faults(page)) == (path.name, [])


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        log_message: Callable[..., None] = lambda *_: None

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(support.missing_part() is not None, reason=str(support.missing_part()))
@pytest.mark.parametrize("width", [1280, 390], ids=["desk", "phone"])
def test_pages_in_a_browser(site: Path, address: str, width: int) -> None:
    """Nothing is fetched, nothing complains, nothing is wider than the page, and axe is content."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found: list[str] = []
    with support.browser() as browser:
        page = browser.page
        page.set_viewport_size({"width": width, "height": 850})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: found.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: found.append(f"{page.url}: {error}"))
        for path in sorted(site.iterdir()):
            asked.clear()
            page.goto(f"{address}/{path.name}")
            support.keep_screenshot(page, f"site-{path.stem}-{width}")
            found += [f"{path.name} asks for {url}" for url in beside(asked, path.name)]
            page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            page.wait_for_timeout(50)  # until the folds have told the page's script
            if page.evaluate("document.documentElement.scrollWidth") > width:
                found.append(f"{path.name} is wider than {width} pixels")
            found += [f"{path.name}: {fault}" for fault in violations(axe, page, width)]
    assert found + browser.foreign == []


def beside(asked: list[str], name: str) -> list[str]:
    return [url for url in asked if not url.startswith("data:") and not url.endswith(f"/{name}")]


def violations(axe: Any, page: Any, width: int) -> list[str]:
    """What axe calls serious. Colours are looked at once: they are the same at each width."""
    found = _violations(axe, page, rules={"color-contrast": {"enabled": False}})
    if width > 1000:
        page.evaluate(MARK_EACH_LOOK)
        found += _violations(axe, page, "[data-look]", runOnly=["color-contrast"])
    return found


def _violations(axe: Any, page: Any, context: str | None = None, **options: Any) -> list[str]:
    options |= {"resultTypes": ["violations"], "preload": False}
    return [
        f"{each['id']} at {each['nodes'][0]['html'][:100]}"
        for each in axe.run(page, context, options).response["violations"]
        if each["impact"] in {"serious", "critical"}
    ]


MARK_EACH_LOOK = """() => {
    // Contrast depends on a text's colour and size and on what lies under it, and on nothing else:
    // of the thousands of words that look alike axe gets the first.
    const seen = new Set(), typed = 'input, select, textarea';
    for (const element of document.querySelectorAll('body, body *')) {
        const own = [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
        if (!own && !element.matches(typed)) continue;
        if (!element.checkVisibility()) continue;
        const look = getComputedStyle(element);
        const key = [look.color, look.fontSize, look.fontWeight, look.textShadow];
        for (let under = element; under; under = under.parentElement) {
            const style = getComputedStyle(under);
            key.push(style.backgroundColor, style.backgroundImage, style.opacity);
        }
        if (!seen.has(key.join())) element.dataset.look = '';
        seen.add(key.join());
    }
}"""
