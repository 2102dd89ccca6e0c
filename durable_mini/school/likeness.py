"""How much the answers of two people look alike: a hint for a teacher to look, never a mark.

Guarantees: renaming, comments, layout and the text of strings change nothing; what the stub gave
to everybody, and values that are only picked or labelled, don't count; the same answers give the
same table. It can't tell who copied from whom, nor whether anybody did: short right answers look
alike by themselves, which is why each row says what is usual for the exercise.

Source: comparing the short runs that two files share, as MOSS does
(http://www2.math.uic.edu/~saul/Maths/winnowing.html).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Name, Number, String, Text, Whitespace

from durable_mini.school.marks import Submission

RUN_LENGTH = 6  # tokens in a row: shorter ones are idiom, longer ones are lost by a small edit
FEWEST_RUNS = 25  # below that two people who think alike write the same
ALIKE = 0.6
PUBLISHED = "the published solution"
HEADER = ("exercise", "one", "other", "likeness", "usual", "runs_shared")
_MOST_CHARACTERS = 200_000
_TEXT = "text"

Answers = Mapping[str, str]  # id of an answer → its source
Run = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Alike:
    """Two answers to one exercise: `likeness` is how much of the smaller the other holds."""

    exercise: str
    one: str
    other: str
    likeness: float
    usual: float  # the median over all pairs of the exercise
    runs_shared: int

    def row(self) -> tuple[str | float, ...]:
        """As it stands in the table."""
        return (
            *(self.exercise, self.one, self.other),
            *(round(self.likeness, 2), round(self.usual, 2), self.runs_shared),
        )


def alike(
    submissions: Sequence[Submission],
    published: Mapping[str, Answers],
    stubs: Mapping[str, Answers],
    *,
    at_least: float = ALIKE,
) -> list[Alike]:
    """Compare the answers to each exercise, with each other and with the published solution.

    Args:
        published: exercise → the answers of its solution.
        stubs: exercise → what was handed out.
        at_least: pairs below this likeness are left out.
    """
    found: list[Alike] = []
    for exercise in sorted({each.exercise for each in submissions if each.answers}):
        given = runs(stubs.get(exercise, {}))
        written = {
            each.path: runs(each.answers) - given
            for each in submissions
            if each.exercise == exercise and each.answers
        }
        solution = runs(published.get(exercise, {})) - given
        found += _pairs(exercise, written, solution, at_least)
    return found


def _pairs(
    exercise: str, written: Mapping[str, frozenset[Run]], solution: frozenset[Run], at_least: float
) -> list[Alike]:
    """The pairs of one exercise, the most alike first; people before the published solution."""
    people = [
        (one, other, *_overlap(written[one], written[other]))
        for one, other in combinations(written, 2)
    ]
    from_book = [(one, PUBLISHED, *_overlap(runs_, solution)) for one, runs_ in written.items()]
    made = []
    for group in (people, from_book):
        usual = median(likeness for *_, likeness, _ in group) if group else 0.0
        made += sorted(
            (
                Alike(exercise, one, other, likeness, usual, shared)
                for one, other, likeness, shared in group
                if likeness >= at_least
            ),
            key=lambda pair: (-pair.likeness, pair.one, pair.other),
        )
    return made


def _overlap(one: frozenset[Run], other: frozenset[Run]) -> tuple[float, int]:
    """The share of the smaller answer that the other holds; 0 where there is too little to tell."""
    smaller = min(len(one), len(other))
    shared = len(one & other)
    return (shared / smaller if smaller >= FEWEST_RUNS else 0.0), shared


# ---- normalised runs of tokens -----------------------------------------------------------------


def runs(answers: Answers) -> frozenset[Run]:
    """Every run of tokens of the answers, normalised; a run never leaves its answer."""
    return frozenset(
        run for answer in sorted(answers) for run in _runs(list(tokens(answers[answer])))
    )


def _runs(of: Sequence[str]) -> Iterable[Run]:
    return (tuple(of[at : at + RUN_LENGTH]) for at in range(len(of) - RUN_LENGTH + 1))


def tokens(source: str) -> Iterator[str]:
    """The code's tokens: names that the student chose, strings and numbers by their kind alone.

    >>> list(tokens("total = ctx.step('a', price)  # pay"))
    ['name', '=', 'name', '.', 'step', '(', 'text', ',', 'name', ')']
    """
    code = _without_picks(source[:_MOST_CHARACTERS])
    said = ""
    for kind, text in PythonLexer().get_tokens(code):
        if _is_layout(kind):
            continue
        before, said = said, _normal(kind, text, said)
        if not said == before == _TEXT:  # one literal is several tokens to the lexer
            yield said


def _normal(kind: object, text: str, before: str) -> str:
    if kind in String:
        return _TEXT
    if kind in Number:
        return "number"
    chosen = kind in Name and kind not in Name.Builtin and before != "."
    return "name" if chosen else text


def _is_layout(kind: object) -> bool:
    return kind in Comment or kind in Text or kind in Whitespace or kind in String.Doc


def _without_picks(source: str) -> str:
    """The code without assignments of plain values: everybody who is right picked the same."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    lines = source.split("\n")
    for statement in body:
        if isinstance(statement, ast.Assign) and _is_plain(statement.value):
            end = statement.end_lineno or statement.lineno
            lines[statement.lineno - 1 : end] = [""] * (end - statement.lineno + 1)
    return "\n".join(lines)


def _is_plain(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True
