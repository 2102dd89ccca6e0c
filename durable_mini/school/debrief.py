"""After a mock interview: what it was worth, what to reread, the transcript, and a friend's script.

Guarantees: the total is the sum of the stages and the areas; what is due to a chapter names it; the
transcript has every word that was given and no other. Handing the scores on to the log twice adds
them once: a review is known by the time that the run recorded.
Leaves to others: asking (`mock`), ticking (`mock_widget`, `durable-mini quiz`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from durable_mini.school.bank import ALWAYS, FAILURE, Question, load_failures
from durable_mini.school.figures import Figures
from durable_mini.school.mock import (
    AREAS,
    LENGTHS,
    PARTS,
    MockInterview,
    Told,
    into_design,
    plan_of,
    question_of,
)
from durable_mini.school.reviews import Review, Reviews
from durable_mini.school.rubric import missed, words

BEST = 3
_RUBRIC = {0: "wrong", 1: "the happy path", 2: "it would do", 3: "strong"}


@dataclass(frozen=True, slots=True)
class Area:
    """What one part of an interview was worth."""

    name: str
    worth: int
    of: int


@dataclass(frozen=True, slots=True)
class Debrief:
    """An interview that was heard to its end.

    Attributes:
        told: its stages.
        areas: what each part was worth.
        reread: chapters, each with the musts that were missing there, the most first.
        habits: what wasn't ticked besides the points, and in how many stages, the most first.
        too_sure: the titles of stages that were given with certainty and are worth 1 or less.
    """

    told: tuple[Told, ...]
    areas: tuple[Area, ...]
    reread: tuple[tuple[str, tuple[str, ...]], ...]
    habits: tuple[tuple[str, int], ...]
    too_sure: tuple[str, ...]

    @property
    def worth(self) -> int:
        """The sum."""
        return sum(one.worth for one in self.areas)

    @property
    def of(self) -> int:
        """What it could have been."""
        return sum(one.of for one in self.areas)


def debrief(told: Sequence[Told]) -> Debrief:
    """Sum up the stages that were heard."""
    heard = [one for one in told if one.worth is not None]
    areas = tuple(
        Area(title, sum(one.worth or 0 for one in of), BEST * len(of))
        for area, title in AREAS.items()
        if (of := [one for one in heard if one.area == area])
    )
    lacking = dict[str, list[str]]()
    for one in heard:
        question = question_of(one.question)
        if gaps := tuple(_gaps(question, one)):
            lacking.setdefault(question.chapter, []).extend(gaps)
    most_first = sorted(lacking.items(), key=lambda item: -len(item[1]))
    return Debrief(
        told=tuple(told),
        areas=areas,
        reread=tuple((name, tuple(dict.fromkeys(gaps))) for name, gaps in most_first),
        habits=tuple(_habits(heard).most_common()),
        too_sure=tuple(_too_sure(told)),
    )


def _gaps(question: Question, told: Told) -> Iterator[str]:
    """The musts that weren't said, and a follow-up that was missed."""
    if told.heard is None:
        return
    unsaid = set(missed(question, told.heard))
    yield from (one.text for one in question.points if one.must and one.id in unsaid)
    if told.heard.follow_up is False:
        yield f"the follow-up: {told.follow_up_text}"


def _habits(heard: Sequence[Told]) -> Counter[str]:
    """Which boxes of the rubric stayed empty."""
    return Counter(
        said
        for name, said in words("explain").items()
        for one in heard
        if not getattr(one.heard, name)
    )


def _too_sure(told: Sequence[Told]) -> Iterator[str]:
    for number, one in enumerate(told, 1):
        if one.worth is not None and one.worth <= 1 and one.answer.confidence == BEST:
            yield f"{number}. {AREAS[one.area]}"


def keep_scores(told: Sequence[Told], log: Reviews) -> int:
    """Add what was heard to the log, and return how many reviews that were; 0 the second time.

    Raises:
        ReviewsError, OSError: as `Reviews.append`.
    """
    return log.append(*(_review(one) for one in told if one.heard is not None))


def _review(told: Told) -> Review:
    if told.heard is None or told.worth is None:
        raise ValueError(f"{told.question} wasn't heard yet")
    return Review(
        at=datetime.fromtimestamp(told.answered_s, UTC),
        question=told.question,
        score=told.worth,
        confidence=told.answer.confidence,
        seconds=told.seconds if told.limit_s is not None else None,
        missed=tuple(missed(question_of(told.question), told.heard)),
        mode="mock",
        follow_up=told.follow_up,
    )


def worked(told: Told, figures: Figures) -> str:
    """The worked answer of a stage; of a failure, in the words of the candidate's design."""
    question = question_of(told.question)
    return into_design(figures.answer(question), told.steps)


def worked_follow_up(told: Told, figures: Figures) -> str:
    """The worked answer of the follow-up; empty if none was asked."""
    question = question_of(told.question)
    found = next((one for one in question.follow_ups if one.id == told.follow_up), None)
    return "" if found is None else figures.fill(found.answer, question)


# ---- Markdown ----------------------------------------------------------------------------------


def transcript(told: Sequence[Told], plan: Mapping[str, Any], name: str) -> str:
    """The whole interview as Markdown: what was said on both sides, and what it was worth."""
    begun = f"{datetime.fromtimestamp(told[0].answered_s, UTC):%Y-%m-%d}" if told else "not begun"
    clock = "with a clock" if plan["timed"] else "without a clock"
    lines = [f"# Mock interview {name}", "", f"{begun}, {plan['minutes']} minutes, {clock}.", ""]
    for number, one in enumerate(told, 1):
        lines += [f"## {number}. {AREAS[one.area]}", *_exchange(one), *_verdict(one)]
    found = debrief(told)
    if found.areas:
        lines += ["## Debrief", "", *summary(found)]
    return "\n".join(lines).rstrip() + "\n"


def _exchange(told: Told) -> Iterator[str]:
    yield from ("", "**Interviewer**", "", told.text, "")
    if told.exhibit:
        yield from ("```text", told.exhibit, "```", "")
    yield from (f"**Candidate** (confidence {told.answer.confidence})", "")
    yield from (_quoted(told.answer.text), "")
    if told.answer.steps:
        yield f"Steps: {' → '.join(told.answer.steps)}. "
        yield f"Can't be taken back: {told.answer.irreversible or told.answer.steps[-1]}."
        yield ""
    if told.answer.parts:
        yield from (f"It has {'; '.join(PARTS[one] for one in told.answer.parts)}.", "")
    if told.follow_up:
        yield from ("**Interviewer**", "", told.follow_up_text, "", "**Candidate**", "")
        yield from (_quoted(told.follow_up_answer), "")


def _quoted(text: str) -> str:
    """A candidate's words as a quotation, whatever Markdown is in them."""
    return "\n".join(f"> {line}".rstrip() for line in (text.strip() or "(nothing)").splitlines())


def _verdict(told: Told) -> Iterator[str]:
    if told.limit_s is not None:
        yield f"It took {told.seconds:.0f} of {told.limit_s:.0f} seconds."
        yield ""
    if told.worth is not None:
        yield f"**{told.worth} of {BEST}**, {_RUBRIC[told.worth]}."
        yield from ("", *(f"- {why}" for why in told.because), "")


def summary(found: Debrief) -> list[str]:
    """The debrief in lines of Markdown: a score for each area, the sum, what to do about it."""
    lines = [f"- {one.name}: {one.worth} of {one.of}" for one in found.areas]
    lines += [f"- Together: {found.worth} of {found.of}", ""]
    stages = sum(one.worth is not None for one in found.told)
    if found.reread:
        gaps = [f"- {chapter}: {'; '.join(missing)}" for chapter, missing in found.reread]
        lines += ["Reread:", "", *gaps, ""]
    if found.habits:
        often = [f"- {said}: not in {count} of {stages}" for said, count in found.habits]
        lines += ["What you left out, by how often:", "", *often, ""]
    if found.too_sure:
        lines += [f"You were certain, and it was worth 1 or less: {', '.join(found.too_sure)}."]
    return lines


def script(minutes: int, seed: int = 0, figures: Figures | None = None) -> str:
    """What a friend needs to play the interviewer, as Markdown: questions, answers, points to tick.

    Raises:
        ValueError: there is no interview of so many minutes.
    """
    plan = plan_of(minutes, timed=True, seed=seed)
    filled = figures or Figures(seed)
    lines = [f"# You are the interviewer: {minutes} minutes", "", *_MANNERS, ""]
    for number, stage in enumerate(plan["stages"], 1):
        lines += [f"## {number}. {AREAS[stage['area']]} ({stage['minutes']} minutes)", ""]
        if stage["area"] == FAILURE:
            lines += ["Choose one that you haven't used from the list at the end.", ""]
        else:
            lines += _to_say(question_of(stage["question"]), filled)
    rest = minutes - sum(stage["minutes"] for stage in plan["stages"])
    lines += [f"## {len(plan['stages']) + 1}. Debrief ({rest} minutes)", "", *_DEBRIEF, ""]
    lines += ["# The failures", "", *_CHOOSING, ""]
    return "\n".join([*lines, *_failures_to_choose(filled)]).rstrip() + "\n"


_MANNERS = (
    "Read each question aloud, then be silent. Don't nod, don't help, don't teach before the end.",
    "If the candidate asks, answer from the facts; where there is none, say: choose, and tell me",
    "why. Tick a point only when it was said without your help. When in doubt, don't tick it. When",
    "the time of a part is over, stop it kindly in the middle of a sentence and go on.",
)
_DEBRIEF = (
    "Now you may teach. For each part: ask first how sure the candidate was, then read what you",
    "ticked, then the worked answer. Score 0 to 3: 0 wrong, or a guarantee that isn't there; 1 a",
    "must is missing, or the moment of failure, or a trade-off; 2 all of these; 3 also the edge of",
    "the guarantee, a number with its origin, a test, and the follow-up if there was one. A red",
    "flag: no more than 1. A missed follow-up: no more than 2. Over time: one less.",
)
_CHOOSING = (
    "Take one that hits what the candidate has drawn. For [irreversible] say the step that can't",
    "be taken back, in the candidate's own words, and for [step] the one before it.",
)


def _failures_to_choose(figures: Figures) -> list[str]:
    lines = list[str]()
    for one in load_failures():
        hits = PARTS[one.hits] if one.hits else "any design"
        lines += [
            f"## {one.id.removeprefix('failure-').replace('-', ' ')}",
            "",
            f"Hits: {hits}.",
            "",
        ]
        lines += _to_say(one, figures)
    return lines


def _to_say(question: Question, figures: Figures) -> list[str]:
    lines = ["**Say**", "", question.prompt, ""]
    if question.exhibit:
        lines += ["```text", question.exhibit, "```", ""]
    if question.facts:
        lines += ["**If asked**", "", *(f"- {fact}" for fact in question.facts), ""]
    lines += ["**Tick**", ""]
    lines += [f"- [ ] {'must: ' if one.must else ''}{one.text}" for one in question.points]
    lines += [f"- [ ] {text}" for text in words(question.kind).values()]
    lines += ["", "**Red flags**", "", *(f"- [ ] {one}" for one in question.red_flags), ""]
    for one in question.follow_ups:
        missing = "" if one.asked == ALWAYS else _point(question, one.asked)
        when = f'if "{missing}" was missed' if missing else ALWAYS
        lines += [f"**Then ask** ({when}): {one.prompt}", ""]
        lines += [f"*Worked answer:* {_one_paragraph(figures.fill(one.answer, question))}", ""]
    return [*lines, "**Worked answer**", "", figures.answer(question), ""]


def _point(question: Question, name: str) -> str:
    return next(one.text for one in question.points if one.id == name)


def _one_paragraph(text: str) -> str:
    return " ".join(text.split())


def finished(interview: MockInterview, run_id: str) -> Debrief | None:
    """The debrief of an interview, if all of its stages were heard."""
    told = interview.told(run_id)
    whole = len(told) == len(LENGTHS[interview.plan(run_id)["minutes"]])
    return debrief(told) if whole and all(one.worth is not None for one in told) else None
