"""What a student is told about one submission, in words: the same for a page and for Markdown.

Guarantees: every text of the student is kept apart from ours, so that whoever shows it can escape
it; nothing here knows HTML or Markdown. Leaves to others: the files (`reports`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from durable_mini.school.marks import Chain, CheckMark, Rubric, SetAside, Submission
from durable_mini.school.writing import cut, number, one_line

_SHOWN_LINES = 24
_SHOWN_CHARACTERS = 3_000
_SENTENCE_CHARACTERS = 1_000
_MEMO_LINES, _MEMO_CHARACTERS = 400, 20_000


@dataclass(frozen=True, slots=True)
class Row:
    """One check in the table."""

    name: str
    points: str
    result: str


@dataclass(frozen=True, slots=True)
class Missed:
    """A check that wasn't passed: the idea in a sentence, then what was given and what came."""

    name: str
    idea: str
    shown: str
    printed: str


@dataclass(frozen=True, slots=True)
class Feedback:
    """All that one page says; each text is plain."""

    title: str
    summary: tuple[str, ...]
    rows: tuple[Row, ...]
    missed: tuple[Missed, ...]
    set_aside: tuple[str, ...]
    notes: tuple[str, ...]
    printed: str
    limits: tuple[str, ...]
    rubrics: tuple[Rubric, ...]


def feedback(submission: Submission) -> Feedback:
    """Put into words what a submission earned and why."""
    checks = [check for check in submission.checks if check.name]
    whose = f", {submission.student}" if submission.student else ""
    return Feedback(
        title=one_line(f"{submission.exercise or 'unknown exercise'}{whose}"),
        summary=tuple(map(_sentence, _summary(submission))),
        rows=tuple(Row(one_line(each.name), _points(each), _result(each)) for each in checks),
        missed=tuple(_missed(check) for check in checks if _is_missed(check)),
        set_aside=tuple(_sentence(_words_of(each)) for each in submission.set_aside),
        notes=tuple(map(_sentence, filter(None, (submission.version_note, *submission.notes)))),
        printed=_cut(submission.printed),
        limits=tuple(map(_sentence, _limits(submission))),
        rubrics=tuple(
            replace(each, answer=cut(each.answer, _MEMO_LINES, _MEMO_CHARACTERS))
            for each in submission.rubrics
        ),
    )


def _summary(submission: Submission) -> Iterator[str]:
    earned, highest = number(submission.points), number(submission.max_points)
    yield f"{earned} of {highest} points."
    if not submission.graded:
        yield from (check.note for check in submission.checks)
        return
    yield visible_and_hidden(submission)
    if by_person := sum(check.max_points for check in submission.checks if check.by_person):
        yield f"{number(by_person)} points are given by a person and not in this sum yet."
    if any(check.chain is Chain.REFERENCE and check.points for check in submission.checks):
        yield (
            "A mistake is paid for once: checks marked “on the reference's answers” were passed "
            "when the earlier answers were replaced by right ones."
        )


def visible_and_hidden(submission: Submission) -> str:
    """How many visible and hidden checks were passed, without calling the visible ones all."""
    marked = [check for check in submission.checks if check.name and not check.by_person]
    seen = [check for check in marked if not check.hidden]
    unseen = [check for check in marked if check.hidden]
    passed = sum(not _is_missed(check) for check in seen)
    first = (
        "All visible checks passed"
        if passed == len(seen)
        else f"{passed} of {len(seen)} visible checks passed"
    )
    if not unseen:
        return f"{first}; none is hidden."
    return f"{first}; {len(unseen)} hidden: {sum(not _is_missed(each) for each in unseen)} passed."


def _is_missed(check: CheckMark) -> bool:
    return not check.by_person and check.points < check.max_points


def _points(check: CheckMark) -> str:
    earned = "–" if check.by_person else number(check.points)  # noqa: RUF001 - a dash in a table
    return f"{earned} of {number(check.max_points)}"


def _result(check: CheckMark) -> str:
    if check.by_person:
        return "given by a person"
    hidden = ", hidden" if check.hidden else ""
    if _is_missed(check):
        partly = ", a part of it is hidden" if check.partly_hidden else ""
        return f"missed{hidden}{partly}"
    chain = ", on the reference's answers" if check.chain is Chain.REFERENCE else ""
    return f"passed{hidden}{chain}"


def _missed(check: CheckMark) -> Missed:
    idea, _, shown = check.note.strip().partition("\n")
    said = _sentence(idea) or "No reason was kept."
    return Missed(one_line(check.name), said, _cut(shown), _cut(check.printed))


def _words_of(each: SetAside) -> str:
    return (
        f"The answer {each.answer} was set aside: {each.reason.rstrip('.')}. "
        "What needs it earned nothing; everything else was marked."
    )


def _limits(submission: Submission) -> Iterator[str]:
    held = [f"{limit.name} ({limit.words})" for limit in submission.limits if limit.holds]
    open_ones = [f"{limit.name} ({limit.words})" for limit in submission.limits if not limit.holds]
    if held:
        yield f"Held on this system: {', '.join(held)}."
    if open_ones:
        yield f"Not held on this system: {', '.join(open_ones)}."


def _sentence(text: str) -> str:
    return one_line(text, _SENTENCE_CHARACTERS)


def _cut(text: str) -> str:
    return cut(text, _SHOWN_LINES, _SHOWN_CHARACTERS) if text.strip() else ""
