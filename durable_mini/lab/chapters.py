"""The map of the course as data: its chapters, the question each answers, and routes through them.

Guarantees: a route names only chapters of the map, and its length is the sum of their minutes. A
test holds each chapter to the title and the minutes that stand here. Leaves to others: the
drawn map (`run_pictures.course_map`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chapter:
    """One notebook of the course: `minutes` is what a reader who runs everything takes."""

    file: str
    question: str
    minutes: int

    @property
    def name(self) -> str:
        """The file's name without its ending, as a link shows it."""
        return self.file.removesuffix(".ipynb")


@dataclass(frozen=True, slots=True)
class Route:
    """Some chapters in the order in which to read them, and whom that is for."""

    name: str
    reader: str
    chapters: tuple[Chapter, ...]

    @property
    def minutes(self) -> int:
        """How long it takes."""
        return sum(chapter.minutes for chapter in self.chapters)


START = Chapter("00_start_here.ipynb", "A worker dies half-way. What is lost?", 35)
DEFINITIONS = Chapter("01_definitions.ipynb", "What do the words mean, in one run read slowly?", 60)
REPLAY = Chapter("02_replay.ipynb", "How does a run go on in another process?", 60)
WINDOW = Chapter("03_crash_window.ipynb", "Why can a card still be charged twice?", 70)
RESULTS = Chapter("04_results.ipynb", "What does a crash cost, with and without a journal?", 60)
DETERMINISM = Chapter("05_determinism.ipynb", "Why does a resumed run refuse to go on?", 80)
VERSIONING = Chapter(
    "06_versioning.ipynb", "How does code change under runs that are on their way?", 75
)
WAITS = Chapter("07_waits.ipynb", "Who keeps a run for a week?", 70)
SAGAS = Chapter("08_sagas.ipynb", "How do you take back what others have done?", 75)
WORKERS = Chapter("09_workers.ipynb", "Two workers have the same run. Who may write?", 75)
LIMITS = Chapter("10_limits.ipynb", "How often to write, how far to grow, when to stop?", 90)
CHAOS = Chapter("11_chaos.ipynb", "How do you know that it survives?", 80)
BUILD_OR_BUY = Chapter("12_build_or_buy.ipynb", "Which engine, or none?", 90)
QUIZ = Chapter("quiz.ipynb", "Can you say it when somebody asks?", 30)
ONE_PAGE = Chapter("one_page.ipynb", "What must you be able to say?", 10)

CHAPTERS = (
    *(START, DEFINITIONS, REPLAY, WINDOW, RESULTS, DETERMINISM),
    *(VERSIONING, WAITS, SAGAS, WORKERS, LIMITS, CHAOS, BUILD_OR_BUY, QUIZ, ONE_PAGE),
)

ROUTES = (
    Route(
        "tomorrow",
        "You have an interview tomorrow.",
        (START, REPLAY, WINDOW, DETERMINISM, QUIZ, ONE_PAGE),
    ),
    Route(
        "decide",
        "You decide whether your team needs this: the gap, the bill, the market.",
        (START, WINDOW, RESULTS, BUILD_OR_BUY),
    ),
    Route("all", "You want all of it, at your own pace.", CHAPTERS),
)


PLACES = {
    "words": DEFINITIONS,
    "kill": START,
    "replay": REPLAY,
    "path": DETERMINISM,
    "window": WINDOW,
    "results": RESULTS,
    "change": VERSIONING,
    "wait": WAITS,
    "undo": SAGAS,
    "slow": WORKERS,
    "year": LIMITS,
    "elsewhere": CHAOS,
    "others": BUILD_OR_BUY,
}
"""The chapter of each place on the drawn map."""


def titles_on_map() -> dict[str, str]:
    """Return what `run_pictures.course_map` writes at each of its places."""
    return {place: chapter.name.replace("_", " ") for place, chapter in PLACES.items()}


def chapters_table(chapters: Sequence[Chapter] = CHAPTERS) -> str:
    """Return the map as a Markdown table with a link to each chapter."""
    rows = [
        f"| [{chapter.name}]({chapter.file}) | {chapter.question} | {chapter.minutes} |"
        for chapter in chapters
    ]
    return "\n".join(
        ["| chapter | the question it answers | minutes |", "| --- | --- | ---: |", *rows]
    )


def routes_table(routes: Sequence[Route] = ROUTES) -> str:
    """Return the routes as a Markdown table with their hours."""
    rows = [
        f"| **{route.name}** | {route.reader} | "
        f"{' → '.join(f'[{_short(chapter)}]({chapter.file})' for chapter in route.chapters)} | "
        f"{duration(route.minutes)} |"
        for route in routes
    ]
    return "\n".join(
        ["| route | for whom | chapters | time |", "| --- | --- | --- | ---: |", *rows]
    )


def duration(minutes: int) -> str:
    """Return minutes as people say them.

    >>> duration(160), duration(45)
    ('2 h 40 min', '45 min')
    """
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02} min" if hours else f"{rest} min"


def _short(chapter: Chapter) -> str:
    number = chapter.name.split("_")[0]
    return number if number.isdigit() else chapter.name
