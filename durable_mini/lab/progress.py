"""What a reader has finished: boxes to tick, kept in one small file in the reader's own folder.

Guarantees: only a reader's click ticks or forgets anything, never "Run all"; what a cell leaves in
the notebook is the same whatever was ticked, so a notebook that is handed on says nothing of its
reader; the file is replaced in one go; one that can't be read is put aside, not overwritten; and
where nothing can be written the page says so, and the ticks last as long as the kernel. Two
notebooks that tick in the same instant: one tick may be lost.

Leaves to others: which chapters there are (`chapters`), what the inventory asks (`inventory`).
"""

from __future__ import annotations

import html
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import platformdirs

from durable_mini.lab.chapters import CHAPTERS, ROUTES, Chapter, Route, duration
from durable_mini.lab.pictures import show_bundle
from durable_mini.lab.widgets import live_view


@dataclass(frozen=True, slots=True)
class Score:
    """How many questions of the inventory were ticked as they should be."""

    right: int
    of: int

    def __str__(self) -> str:
        return f"{self.right} of {self.of}"


@dataclass(frozen=True, slots=True)
class Kept:
    """All that is kept of a reader: finished chapters by name, and two counts of the inventory."""

    finished: frozenset[str] = frozenset()
    began: Score | None = None  # the first count before the course
    now: Score | None = None  # the latest one after it


class ProgressFile:
    """The file; `trouble` says in a sentence what went wrong with it last, and is empty otherwise.

    Args:
        path: where it is; None for this system's place for a program's data, in the user's home.
    """

    def __init__(self, path: Path | None = None) -> None:
        folder = platformdirs.user_data_path("durable-mini", appauthor=False)
        self.path = path or folder / "progress.json"
        self.trouble = ""
        self._unwritten: Kept | None = None

    def read(self) -> Kept:
        """Return what is kept; nothing where there is no file, or none that can be read."""
        if self._unwritten is not None:
            return self._unwritten
        try:
            return _parsed(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return Kept()
        except (OSError, ValueError) as error:
            self.trouble = f"{self.path} can't be read ({error}). It is put aside at the next tick."
            return Kept()

    def tick(self, chapter: str, *, done: bool) -> None:
        """Note that a chapter is finished, or that it isn't."""
        kept = self.read()
        others = kept.finished - {chapter}
        self._keep(replace(kept, finished=others | {chapter} if done else others))

    def count(self, score: Score, *, after: bool) -> Kept:
        """Keep a count of the inventory and return what is kept now. The first beginning stays."""
        kept = self.read()
        kept = replace(kept, now=score) if after else replace(kept, began=kept.began or score)
        self._keep(kept)
        return kept

    def reset(self) -> None:
        """Forget everything."""
        self._keep(Kept())

    def _keep(self, kept: Kept) -> None:
        """Write, or hold until the kernel ends where that fails.

        Crash: the file holds what it held before, or all that is new.
        """
        try:
            self._put_aside_unreadable()
            _replace(self.path, _text(kept))
        except OSError as error:
            self._unwritten = kept
            self.trouble = (
                f"{self.path} can't be written ({error}). The ticks last until the kernel ends."
            )
        else:
            self._unwritten, self.trouble = None, ""

    def _put_aside_unreadable(self) -> None:
        try:
            _parsed(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        except ValueError:
            self.path.replace(self.path.with_suffix(".unreadable"))


def _text(kept: Kept) -> str:
    stored: dict[str, Any] = {"finished": sorted(kept.finished)}
    for name, score in (("began", kept.began), ("now", kept.now)):
        if score is not None:
            stored[name] = {"right": score.right, "of": score.of}
    return json.dumps(stored, indent=2) + "\n"


def _parsed(text: str) -> Kept:
    """Read a stored text. Raises: ValueError when it isn't one of ours."""
    stored = json.loads(text)
    try:
        return Kept(
            frozenset(str(name) for name in stored["finished"]),
            *(_score(stored.get(name)) for name in ("began", "now")),
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not what this course keeps: {error!r}") from None


def _score(stored: dict[str, Any] | None) -> Score | None:
    return None if stored is None else Score(int(stored["right"]), int(stored["of"]))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".progress-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class Progress:
    """A box for each chapter, what is left of each route, and a button that forgets; `progress`."""

    def __init__(
        self,
        file: ProgressFile | None = None,
        chapters: Sequence[Chapter] = CHAPTERS,
        routes: Sequence[Route] = ROUTES,
    ) -> None:
        self._file = file or ProgressFile()
        self._chapters, self._routes = tuple(chapters), tuple(routes)
        self._following = False
        self.boxes = {chapter.name: _box(chapter) for chapter in chapters}
        self._words = widgets.HTML()
        self.reset_button = widgets.Button(description="Reset …")
        self.keep_button = widgets.Button(description="Keep it all")
        self._ask(sure=False)
        self._follow()
        for name, box in self.boxes.items():
            box.observe(partial(self._ticked, name), names="value")
        self.reset_button.on_click(lambda _button: self._reset())
        self.keep_button.on_click(lambda _button: self._ask(sure=False))
        flowing = widgets.Layout(display="flex", flex_flow="row wrap")
        self._panel = widgets.VBox(
            [
                widgets.HBox(list(self.boxes.values()), layout=flowing),
                self._words,
                widgets.HBox([self.reset_button, self.keep_button]),
            ]
        )

    @property
    def words(self) -> str:
        """What stands under the boxes, as HTML."""
        return str(self._words.value)

    def _ticked(self, name: str, change: dict[str, bool]) -> None:
        if not self._following:
            self._file.tick(name, done=change["new"])
            self._ask(sure=False)
            self._follow()

    def _reset(self) -> None:
        """Forget at the second press only."""
        if not self._sure:
            self._ask(sure=True)
            return
        self._file.reset()
        self._ask(sure=False)
        self._follow()

    def _ask(self, *, sure: bool) -> None:
        self._sure = sure
        self.reset_button.description = "Really forget all?" if sure else "Reset …"
        self.keep_button.layout.display = "" if sure else "none"

    def _follow(self) -> None:
        """Show what the file says, which another notebook may have changed."""
        kept = self._file.read()
        self._following = True
        for name, box in self.boxes.items():
            box.value = name in kept.finished
        self._following = False
        first, *others = (html.escape(line) for line in self._lines(kept))
        below = "".join(f'<p style="margin: 0.2em 0">{line}</p>' for line in others)
        self._words.value = (
            f'<div role="status" aria-live="polite" style="max-width: 62em; line-height: 1.4">'
            f"<p><strong>{first}</strong></p>{below}</div>"
        )

    def _lines(self, kept: Kept) -> Iterator[str]:
        done = [chapter for chapter in self._chapters if chapter.name in kept.finished]
        spent = duration(sum(chapter.minutes for chapter in done))
        whole = duration(sum(chapter.minutes for chapter in self._chapters))
        yield f"Finished: {len(done)} of {len(self._chapters)} chapters, {spent} of {whole}."
        yield from (_left_of(route, kept.finished) for route in self._routes)
        if said := compared(kept):
            yield said
        yield self._file.trouble or f"Kept in {self._file.path}, and nowhere else."

    def _ipython_display_(self) -> None:
        lines = [f"{chapter.name}, {duration(chapter.minutes)}" for chapter in self._chapters]
        boxes = "".join(f"<li>☐ {html.escape(line)}</li>" for line in lines)
        text = {
            "text/html": f'<ul style="list-style: none; padding-left: 0">{boxes}</ul>',
            "text/plain": "\n".join(f"[ ] {line}" for line in lines),
        }
        show_bundle(live_view(self._panel) | text)


def progress() -> Progress:
    """Show a box to tick for each chapter of the course."""
    return Progress()


def compared(kept: Kept) -> str:
    """Say how the inventory went before the course and after it; empty where nothing is kept."""
    if kept.began and kept.now:
        return f"Where you began: {kept.began}, now {kept.now.right}."
    if kept.began:
        return f"Where you began: {kept.began} in the inventory."
    return f"In the inventory: {kept.now}." if kept.now else ""


def _box(chapter: Chapter) -> widgets.Checkbox:
    return widgets.Checkbox(
        value=False,
        description=f"{chapter.name}, {duration(chapter.minutes)}",
        indent=False,
        layout=widgets.Layout(width="17em"),
    )


def _left_of(route: Route, finished: frozenset[str]) -> str:
    left = [chapter for chapter in route.chapters if chapter.name not in finished]
    if not left:
        return f"Route {route.name}: done."
    minutes = duration(sum(chapter.minutes for chapter in left))
    done = len(route.chapters) - len(left)
    return (
        f"Route {route.name}: {done} of {len(route.chapters)}; {minutes} to go, "
        f"next {left[0].name}."
    )
