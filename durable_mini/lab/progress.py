"""What a reader has finished: boxes to tick, kept in one small file in the reader's own folder.

Guarantees: only a reader's click ticks or forgets a chapter, never "Run all"; a chapter that has an
exercise is finished when its box is ticked and the exercise has reached 60 % of its points; what a
cell leaves in the notebook is the same whatever was ticked, so a notebook that is handed on says
nothing of its reader; and where nothing can be written the page says so.

Leaves to others: the file (`progress_file`), which chapters there are (`chapters`), their exercises
(`exercises`), what the inventory asks (`inventory`), and grading.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import ipywidgets as widgets

from durable_mini.lab.chapters import CHAPTERS, ROUTES, Chapter, Route, duration
from durable_mini.lab.exercises import EXERCISES, PASSED_AT, exercise_of
from durable_mini.lab.pictures import show_bundle
from durable_mini.lab.progress_file import Kept, ProgressFile, Score
from durable_mini.lab.widgets import live_view

__all__ = ["Kept", "Progress", "ProgressFile", "Score", "compared", "progress"]


class Progress:
    """A box for each chapter, what is left of each route, and a button that forgets; `progress`."""

    def __init__(
        self,
        file: ProgressFile | None = None,
        chapters: Sequence[Chapter] = CHAPTERS,
        routes: Sequence[Route] = ROUTES,
        exercises: Sequence[str] = EXERCISES,
    ) -> None:
        self._file = file or ProgressFile()
        self._chapters, self._routes = tuple(chapters), tuple(routes)
        self._exercises = {each.name: exercise_of(each.name, exercises) for each in chapters}
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
        finished = self._finished(kept)
        done = [chapter for chapter in self._chapters if chapter.name in finished]
        spent = duration(sum(chapter.minutes for chapter in done))
        whole = duration(sum(chapter.minutes for chapter in self._chapters))
        yield f"Finished: {len(done)} of {len(self._chapters)} chapters, {spent} of {whole}."
        yield from self._exercise_lines(kept)
        yield from (_left_of(route, finished) for route in self._routes)
        if said := compared(kept):
            yield said
        yield self._file.trouble or f"Kept in {self._file.path}, and nowhere else."

    def _finished(self, kept: Kept) -> frozenset[str]:
        """The ticked chapters whose exercise has reached the threshold, or that have none."""
        return frozenset(
            name for name in kept.finished if _passed(self._exercises.get(name), kept.exercises)
        )

    def _exercise_lines(self, kept: Kept) -> Iterator[str]:
        """Which exercises reached the threshold, and which ticked chapter still waits for one."""
        known = [one for one in self._exercises.values() if one]
        if reached := [one for one in known if _passed(one, kept.exercises)]:
            shown = ", ".join(f"{one} ({kept.exercises[one]})" for one in reached)
            count = f"{len(reached)} of {len(known)}"
            yield f"Exercises at {100 * PASSED_AT:g} % or more: {count}: {shown}."
        for name, exercise in self._exercises.items():
            if exercise and name in kept.finished and not _passed(exercise, kept.exercises):
                so_far = kept.exercises.get(exercise)
                stands = f"stands at {so_far}" if so_far else "isn't graded yet"
                yield f"{name} is ticked; its exercise {exercise} {stands}."

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


def _passed(exercise: str | None, results: Mapping[str, Score]) -> bool:
    if exercise is None:
        return True
    return exercise in results and results[exercise].share >= PASSED_AT


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
