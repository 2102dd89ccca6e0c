"""Questions in a terminal: asked, answered aloud or typed, scored, kept.

Guarantees: keyboard alone, line by line: no cursor is moved, nothing is drawn, each choice is said
in words, so a screen reader reads it in order; the end of the input stops it as politely as a q,
and what was kept before that stays. Leaves to others: what is asked (`school.rehearsal`),
interviews (`interviewing`).
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import typer

from durable_mini.cli.printing import plain
from durable_mini.school.bank import FollowUp, Question
from durable_mini.school.rehearsal import Kept, Rehearsal
from durable_mini.school.reviews import Review
from durable_mini.school.rubric import MOST_SECONDS, Heard, words

_WIDEST = 88
_LIST = re.compile(r"^(- |\d+\. )")
_FENCE = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


class StoppedError(Exception):
    """The reader has had enough, or the input has ended."""


def ask(rehearsal: Rehearsal, mode: str, chapter: str) -> None:
    """Ask what a mode has, one question after the other, until the reader stops.

    Raises:
        ReviewsError, OSError: the log can't be used.
    """
    queue = rehearsal.queue(mode, chapter)
    for line in rehearsal.log.passed_over:
        say(f"Note: {line}")
    if not queue:
        say(rehearsal.nothing(mode))
    try:
        while queue := rehearsal.queue(mode, chapter):
            _one(rehearsal, queue[0].question, mode, len(queue))
    except StoppedError:
        say("Stopped. What was scored is kept.")


def _one(rehearsal: Rehearsal, question: Question, mode: str, left: int) -> None:
    """One question to its end."""
    say(f"Question: {question.chapter}, {question.kind}, level {question.level}; {left} to ask")
    say(question.prompt)
    show_exhibit(question.exhibit)
    seconds = _timed_answer(rehearsal) if rehearsal.settings().clock else None
    if seconds is None:
        typed()
    sure = number("How sure are you, 0 a guess to 3 certain?", range(4))
    say("Worked answer:")
    say(rehearsal.figures.answer(question))
    heard = replace(tick(question), seconds=seconds)
    follow_up = rehearsal.follow_up(question, heard)
    heard = _followed(rehearsal, question, follow_up, heard)
    ending = follow_up.id if follow_up else ""
    kept = rehearsal.keep(question, heard, sure, mode=mode, follow_up=ending)
    _tell(rehearsal, kept)
    while line("Enter for the next one, r to rate this one again, q to stop:") == "r":
        again: Review = kept.review
        heard = replace(tick(question), seconds=seconds, follow_up=heard.follow_up)
        kept = rehearsal.keep(question, heard, sure, mode=mode, follow_up=ending, instead_of=again)
        _tell(rehearsal, kept)


def _followed(
    rehearsal: Rehearsal, question: Question, follow_up: FollowUp | None, heard: Heard
) -> Heard:
    """Ask the follow-up, if there is one."""
    if follow_up is None:
        return heard
    say(f"The follow-up: {follow_up.prompt}")
    typed()
    say("Worked answer:")
    say(rehearsal.figures.fill(follow_up.answer, question))
    return replace(heard, follow_up=yes("Did you answer it?"))


def _tell(rehearsal: Rehearsal, kept: Kept) -> None:
    say(f"Score: {kept.score.worth} of 3.")
    for why in kept.score.because:
        say(f"- {why}")
    say(f"It comes again {rehearsal.when_again(kept.standing)}.")


def _timed_answer(rehearsal: Rehearsal) -> float:
    """Let the reader speak against the clock; how many seconds it took."""
    line("Press Enter to start the clock, then answer aloud:")
    since: datetime = rehearsal.now()
    line(f"The clock runs, {MOST_SECONDS:.0f} seconds are the most. Press Enter when you are done:")
    seconds = (rehearsal.now() - since).total_seconds()
    say(f"{seconds:.0f} seconds.")
    return seconds


# ---- saying and hearing ------------------------------------------------------------------------


def say(text: str) -> None:
    """Print text, wrapped to the terminal; code keeps its lines."""
    for place, part in enumerate(_FENCE.split(text)):
        if place % 2:
            show_exhibit(part.strip("\n"))
            continue
        for paragraph in filter(None, (one.strip("\n") for one in part.split("\n\n"))):
            _wrap(paragraph)


def _wrap(paragraph: str) -> None:
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    for part in _joined(paragraph):
        hanging = "  " if _LIST.match(part) else ""
        typer.echo(textwrap.fill(plain(part), width, subsequent_indent=hanging))
    typer.echo("")


def _joined(paragraph: str) -> list[str]:
    """The lines of a paragraph as they are to be wrapped: items of a list stay apart."""
    parts = list[str]()
    for text in paragraph.split("\n"):
        if parts and not _LIST.match(text):
            parts[-1] += f" {text}"
        else:
            parts.append(text)
    return parts


def show_exhibit(text: str) -> None:
    """Print what goes with a question as it is."""
    if text:
        typer.echo("\n".join(f"    {plain(one)}" for one in text.split("\n")) + "\n")


def line(prompt: str) -> str:
    """One line from the reader.

    Raises:
        StoppedError: at a q, or at the end of the input.
    """
    try:
        said = input(f"{prompt} ").strip()
    except EOFError:
        raise StoppedError from None
    if said.lower() in {"q", "quit"}:
        raise StoppedError
    return said


def typed(prompt: str = "Answer aloud, or type it; an empty line ends it:") -> str:
    """What is typed until an empty line."""
    lines = [line(prompt)]
    while lines[-1]:
        lines.append(line(">"))
    return "\n".join(lines).strip()


def number(prompt: str, right: Sequence[int]) -> int:
    """A number out of some; asked again until it is one."""
    while True:
        said = line(prompt)
        if said.isdecimal() and int(said) in right:
            return int(said)
        say(f"{said!r} isn't it: a number from {right[0]} to {right[-1]}.")


def yes(prompt: str) -> bool:
    """Yes or no; asked again until it is one of them."""
    while True:
        said = line(f"{prompt} y or n:").lower()
        if said in {"y", "yes", "n", "no"}:
            return said.startswith("y")


def chosen(title: str, texts: Sequence[str]) -> set[int]:
    """Which of some lines, by their numbers; places from 0."""
    say(title)
    for place, text in enumerate(texts, 1):
        typer.echo(f"  {place}. {plain(text)}")
    while True:
        said = line("Which, e.g. 1 3? Enter for none:").replace(",", " ").split()
        numbers = {int(one) for one in said if one.isdecimal() and 1 <= int(one) <= len(texts)}
        if len(numbers) == len(set(said)):
            return {one - 1 for one in numbers}
        say(f"Numbers from 1 to {len(texts)}, please.")


def tick(question: Question) -> Heard:
    """What was heard in an answer."""
    points = chosen(
        "Which points did you say, unprompted?",
        [f"must: {one.text}" if one.must else one.text for one in question.points],
    )
    names, texts = zip(*words(question.kind).items(), strict=True)
    said = {names[place]: True for place in chosen("And you", texts)}
    flags = chosen("Red flags: did you say one of these?", question.red_flags)
    wrong = yes("Was it wrong, or did it claim experience or a guarantee that isn't there?")
    return Heard(
        points=frozenset(question.points[place].id for place in points),
        red_flags=frozenset(flags),
        wrong=wrong,
        **said,
    )
