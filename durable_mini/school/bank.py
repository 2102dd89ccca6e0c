"""The question bank: TOML files, one a chapter, read into questions and checked on the way.

Guarantees: what is returned is whole. Ids are unique over the bank, a follow-up that waits for a
missed point names a point of its question, and a number in an answer is either filled in from a run
or declared with its reason. An error names the file, the question and the field.
Leaves to others: filling the figures in (`figures`), asking (`rehearsal`), keeping (`reviews`).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import fastjsonschema

from durable_mini.lab.chapters import CHAPTERS

FAILURE, OPENING, SYSTEM = "failure", "opening", "system"
"""The kinds that a mock interview alone asks: what is put into the candidate's own design, what is
asked before a design, and the design. They need no demo, and their follow-ups are the failures."""

ONLY_IN_INTERVIEWS = frozenset({FAILURE, OPENING, SYSTEM})

ALWAYS = "always"
"""A follow-up that is asked whatever was said."""

_FOLDER = files("durable_mini.school") / "questions"
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")


class BankError(ValueError):
    """A file of the bank that isn't as it should be; the text says where, and what is expected."""


@dataclass(frozen=True, slots=True)
class Point:
    """Something that a good answer says; without every `must` an answer is at most half one."""

    id: str
    text: str
    must: bool


@dataclass(frozen=True, slots=True)
class FollowUp:
    """What is asked next, and its answer; `asked` is "always", or the point that was missed."""

    id: str
    asked: str
    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class Source:
    """A claim about another system, and the public page that says so."""

    claim: str
    where: str


@dataclass(frozen=True, slots=True)
class Question:
    """One question with its worked answer.

    Attributes:
        id: permanent; reviews are kept under it.
        chapter: the notebook that teaches it, without its ending.
        kind: explain, trade-off, debug, design, number, code, clarify or war-story; or one of
            `ONLY_IN_INTERVIEWS`.
        level: 1 to 3.
        core: whether it is one of the few for the evening before.
        prompt: what the interviewer says.
        exhibit: a printed history or code that goes with it; empty if there is none.
        answer: a template of spoken length, in Markdown; `figures` fills it in.
        points: what a good answer says.
        red_flags: what caps it.
        follow_ups: at least two, in the order in which they are asked.
        demo: at most ten lines of Python that prove the answer.
        numbers: the numbers that stand in the answers as they are, each with its reason.
        sources: for every claim about another system.
        hits: of a failure, the part of a design that it hits; empty if it hits any.
        brief: which opening and system belong together; empty for all others.
        facts: of a system, what the interviewer answers when asked.
    """

    id: str
    chapter: str
    kind: str
    level: int
    core: bool
    prompt: str
    exhibit: str
    answer: str
    points: tuple[Point, ...]
    red_flags: tuple[str, ...]
    follow_ups: tuple[FollowUp, ...]
    demo: str
    numbers: dict[str, str]
    sources: tuple[Source, ...]
    hits: str = ""
    brief: str = ""
    facts: tuple[str, ...] = ()


def load_questions(folder: Traversable | None = None) -> list[Question]:
    """Read the whole bank, in the order of the chapters.

    Args:
        folder: other TOML files than the course's own.

    Raises:
        BankError: a file isn't TOML or isn't as the schema says, an id comes twice, a follow-up
            waits for an unknown point, a number is typed in without a reason.
    """
    home = _FOLDER if folder is None else folder
    found = sorted((one for one in home.iterdir() if one.name.endswith(".toml")), key=_name)
    questions = [question for file in found for question in _questions_of(file)]
    seen = dict[str, str]()
    for question in questions:
        if question.id in seen:
            where = f"{seen[question.id]} and {question.chapter}"
            raise BankError(f"question {question.id!r} is in {where}. Next: ids are unique.")
        seen[question.id] = question.chapter
    return questions


def load_failures() -> list[Question]:
    """Read the failures that a mock interview injects; their prompts name the candidate's steps.

    Raises:
        BankError: as `load_questions`.
    """
    return load_questions(files("durable_mini.school") / "failures")


def load_briefs() -> list[Question]:
    """Read what a mock interview has designed: an opening and a system for each brief.

    Raises:
        BankError: as `load_questions`.
    """
    return load_questions(files("durable_mini.school") / "briefs")


def _name(file: Traversable) -> str:
    return file.name


def _questions_of(file: Traversable) -> Iterator[Question]:
    try:
        stored = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise BankError(f"{file.name} is not TOML: {error}.") from None
    _hold_to_the_schema(file.name, stored)
    chapter = stored["chapter"]
    if chapter not in {one.name for one in CHAPTERS}:
        raise BankError(f"{file.name}, field chapter: the course has no chapter {chapter!r}.")
    for entry in stored["question"]:
        question = _question(chapter, entry)
        _check(f"{file.name}, question {question.id!r}", question)
        yield question


@cache
def _validator() -> Callable[[dict[str, Any]], object]:
    schema = json.loads((_FOLDER / "schema.json").read_text(encoding="utf-8"))
    made: Callable[[dict[str, Any]], object] = fastjsonschema.compile(schema)
    return made


def _hold_to_the_schema(file: str, stored: dict[str, Any]) -> None:
    try:
        _validator()(stored)
    except fastjsonschema.JsonSchemaValueException as error:
        said = error.message.removeprefix(f"{error.name} ")
        where, path = file, error.path[1:]
        if path[:1] == ["question"] and len(path) > 1:
            place = int(path[1])
            entry = stored["question"][place]
            where += f", question {entry.get('id', f'number {place + 1}')!r}"
            path = path[2:]
        field = ".".join(path) or "the whole"
        raise BankError(f"{where}, field {field}: {said}; it is {error.value!r:.60}.") from None


def _question(chapter: str, entry: dict[str, Any]) -> Question:
    return Question(
        id=entry["id"],
        chapter=chapter,
        kind=entry["kind"],
        level=entry["level"],
        core=entry.get("core", False),
        prompt=entry["prompt"].strip(),
        exhibit=entry.get("exhibit", "").strip("\n"),
        answer=entry["answer"].strip(),
        points=tuple(Point(**one) for one in entry["point"]),
        red_flags=tuple(entry["red_flags"]),
        follow_ups=tuple(FollowUp(**one) for one in entry.get("follow_up", ())),
        demo=entry.get("demo", "").strip(),
        numbers=dict(entry.get("numbers", {})),
        sources=tuple(Source(**one) for one in entry.get("source", ())),
        hits=entry.get("hits", ""),
        brief=entry.get("brief", ""),
        facts=tuple(entry.get("facts", ())),
    )


def _check(where: str, question: Question) -> None:
    known = {point.id for point in question.points}
    for name, ids in (
        ("point", [point.id for point in question.points]),
        ("follow_up", [one.id for one in question.follow_ups]),
    ):
        if twice := next((one for one in ids if ids.count(one) > 1), None):
            raise BankError(f"{where}, field {name}: the id {twice!r} comes twice.")
    if not any(point.must for point in question.points):
        raise BankError(f"{where}, field point: none of them is a must.")
    for one in question.follow_ups:
        if one.asked != ALWAYS and one.asked not in known:
            raise BankError(
                f"{where}, follow-up {one.id!r}, field asked: {one.asked!r} is no point of the "
                f"question. Next: 'always' or one of {', '.join(sorted(known))}."
            )
    for field, text in _spoken(question):
        if number := next(typed_in(text, question.numbers), None):
            raise BankError(
                f"{where}, field {field}: {number} is typed in. Next: fill it in from a run, or "
                "give its reason under numbers."
            )
    if question.kind not in ONLY_IN_INTERVIEWS:
        if len(question.follow_ups) < 2:
            raise BankError(f"{where}, field follow_up: there have to be two at least.")
        if not question.demo:
            raise BankError(f"{where}, field demo: there is none.")
    if len(question.demo.splitlines()) > 10:
        raise BankError(f"{where}, field demo: it has more than ten lines.")


def _spoken(question: Question) -> Iterator[tuple[str, str]]:
    yield "answer", question.answer
    for one in question.follow_ups:
        yield f"follow_up {one.id}", one.answer


def typed_in(text: str, declared: Sequence[str] | dict[str, str]) -> Iterator[str]:
    """The numbers that stand in a template as they are and aren't declared.

    What a template fills in, and code between backquotes, counts for nothing.
    """
    bare = _CODE.sub(" ", _TEMPLATE.sub(" ", text))
    for found in _NUMBER.finditer(bare):
        if found[0].rstrip(",") not in declared:
            yield found[0].rstrip(",")
