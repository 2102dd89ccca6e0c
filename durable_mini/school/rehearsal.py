"""The rehearsal: what to ask next, which follow-up, and keeping what was answered.

Guarantees: what is due comes first, the likeliest to be forgotten before the others; then new
questions, so many a day that all of them are met a day before the interview; the same log at the
same time gives the same order. Nothing is stored but reviews and settings, each at one call.
Leaves to others: the schedule (`schedule`), the log (`reviews`), the score (`rubric`), the windows
(`quiz_widget`, `durable-mini quiz`), and the mock interview (`mock`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from durable_mini.school.bank import ALWAYS, FollowUp, Question, load_questions
from durable_mini.school.figures import Figures
from durable_mini.school.reviews import Review, Reviews, Settings, in_force
from durable_mini.school.rubric import Heard, Score, missed, score
from durable_mini.school.schedule import Standing, due_now, standings

MODES = {
    "due": "due today",
    "core": "the core questions",
    "chapter": "one chapter",
    "weak": "weak spots",
}
"""What can be asked, by the names that reviews keep; a mock interview is apart."""

NEW_A_DAY = 5
"""How many new questions a day without a date to meet."""

PASSES = 2
"""The score from which an answer would do; what is below is a weak spot."""

WEAK_RECALL = 0.8

_JUST_ASKED = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Kept:
    """What came of an answer: its review, why it is worth that, and how the question stands now."""

    review: Review
    score: Score
    standing: Standing


class Rehearsal:
    """One reader's rehearsal.

    Args:
        log: where reviews are kept; None for the reader's own.
        questions: the bank; None for the course's own.
        now: gives the time, in the reader's time zone.
    """

    def __init__(
        self,
        log: Reviews | None = None,
        questions: Sequence[Question] | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self.log = log or Reviews()
        self.questions = tuple(load_questions() if questions is None else questions)
        self.now = now or _local_now
        self._figures: Figures | None = None

    @property
    def figures(self) -> Figures:
        """What fills in the answers, with the reader's seed; runs are simulated when asked for."""
        seed = self.settings().seed
        if self._figures is None or self._figures.seed != seed:
            self._figures = Figures(seed)
        return self._figures

    def settings(self) -> Settings:
        """What the reader has set."""
        self.log.read()
        return self.log.settings

    def change(self, **settings: Any) -> Settings:
        """Set the interview's day, the seed, or whether a clock runs; only a change is written.

        Raises:
            ReviewsError, OSError: as `Reviews.append`.
        """
        before = self.settings()
        after = replace(before, **settings)
        if after != before:
            self.log.set(after, self._utc())
        return after

    def standings(self) -> list[Standing]:
        """How each question of the bank stands now."""
        reviews = self.log.read()
        return standings(self.questions, reviews, self.now(), self.log.settings.interview)

    def queue(self, mode: str = "due", chapter: str = "") -> list[Standing]:
        """What would be asked now, in this order.

        Raises:
            ValueError: there is no such mode or chapter.
        """
        if mode not in MODES:
            raise ValueError(f"there is no mode {mode!r}: right is {', '.join(MODES)}")
        chapters = dict.fromkeys(one.chapter for one in self.questions)
        if mode == "chapter" and chapter not in chapters:
            raise ValueError(f"no question of chapter {chapter!r}: right is {', '.join(chapters)}")
        found, now = self.standings(), self.now()
        if mode == "due":
            return _due(found, in_force(self.log.read()), now, self.log.settings.interview)
        last = {one.question: one.at for one in in_force(self.log.read())}
        if mode == "weak":
            return _weak(found, last, now)
        among = [one for one in found if _belongs(one.question, mode, chapter)]
        long_ago = datetime.min.replace(tzinfo=UTC)
        return sorted(among, key=lambda one: last.get(one.question.id, long_ago))

    def nothing(self, mode: str) -> str:
        """Why `queue` is empty, and when it won't be."""
        if mode == "weak":
            return (
                "Nothing is weak: no answer that counts is below "
                f"{PASSES}, and none is likely to be forgotten by now."
            )
        if not self.questions:
            return "The bank is empty."
        dates = [one.due for one in self.standings() if one.due is not None]
        first = min(dates).astimezone(self.now().tzinfo) if dates else None
        again = "" if first is None else f" The next one comes {_when(first, self.now())}."
        return f"Nothing is due: what is new for today was asked.{again} The core is always there."

    def follow_up(self, question: Question, heard: Heard) -> FollowUp | None:
        """The follow-up to ask after an answer; None if the question has none."""
        asked = Counter(one.follow_up for one in self.log.read() if one.question == question.id)
        return follow_up_to(question, missed(question, heard), asked)

    def keep(
        self,
        question: Question,
        heard: Heard,
        confidence: int,
        *,
        mode: str = "due",
        follow_up: str = "",
        instead_of: Review | None = None,
    ) -> Kept:
        """Score an answer and add it to the log.

        Args:
            question: what was asked.
            heard: what was ticked.
            confidence: 0 to 3, said before the worked answer was shown.
            mode: where it was asked.
            follow_up: the id of the follow-up that was asked.
            instead_of: the review that this one corrects; it counts no more.

        Raises:
            ReviewsError, OSError: it wasn't kept.
            ValueError: it can't be scored.
        """
        found = score(question, heard)
        review = Review(
            at=self._utc(),
            question=question.id,
            score=found.worth,
            confidence=confidence,
            seconds=heard.seconds,
            missed=tuple(missed(question, heard)),
            mode=mode,
            follow_up=follow_up,
            instead_of=None if instead_of is None else instead_of.at,
        )
        while not self.log.append(review):  # a clock that stands still, or was set back
            review = replace(review, at=review.at + timedelta(microseconds=1))
        standing = next(one for one in self.standings() if one.question.id == question.id)
        return Kept(review, found, standing)

    def when_again(self, standing: Standing) -> str:
        """When a question that was asked comes again, in words."""
        if standing.due is None:
            return "when it is its turn"
        return _when(standing.due.astimezone(self.now().tzinfo), self.now())

    def _utc(self) -> datetime:
        return self.now().astimezone(UTC)


def follow_up_to(
    question: Question, missing: Sequence[str], asked: Counter[str]
) -> FollowUp | None:
    """Choose a follow-up: one that waits for a missed point, the musts first, or one that is always
    asked; the one that was asked least often, so that the next one comes the next time.

    Args:
        question: what was asked.
        missing: ids of the points that weren't said, the musts first.
        asked: how often each follow-up was asked before, by its id.
    """
    order = [*missing, ALWAYS]
    fitting = [one for one in question.follow_ups if one.asked in order]
    return min(
        fitting or question.follow_ups,
        key=lambda one: (asked[one.id], order.index(one.asked) if one.asked in order else 0),
        default=None,
    )


def new_today(
    found: Sequence[Standing], reviews: Sequence[Review], now: datetime, interview: date | None
) -> int:
    """How many new questions are left for today."""
    first_asked = {one.question: one.at for one in reversed(reviews)}
    today = sum(at.astimezone(now.tzinfo).date() == now.date() for at in first_asked.values())
    unseen = sum(one.due is None for one in found)
    days_left = 0 if interview is None else (interview - now.date()).days
    if days_left <= 0:
        return max(NEW_A_DAY - today, 0)
    # All of them a day before, so that each can come a second time.
    a_day = math.ceil((unseen + today) / max(days_left - 1, 1))
    return min(max(a_day - today, 0), unseen)


def _due(
    found: Sequence[Standing], reviews: Sequence[Review], now: datetime, interview: date | None
) -> list[Standing]:
    due = sorted((one for one in found if due_now(one, now)), key=lambda one: one.recall)
    new = [one for one in found if one.due is None]
    # The core first, and what is easier before what is harder.
    new.sort(key=lambda one: (not one.question.core, one.question.level))
    return due + new[: new_today(found, reviews, now, interview)]


def _weak(found: Sequence[Standing], last: dict[str, datetime], now: datetime) -> list[Standing]:
    """The lowest score first; what was asked a moment ago last."""
    weak = [
        one
        for one in found
        if one.score is not None and (one.score < PASSES or one.recall < WEAK_RECALL)
    ]
    return sorted(
        weak, key=lambda one: (now - last[one.question.id] < _JUST_ASKED, one.score, one.recall)
    )


def _belongs(question: Question, mode: str, chapter: str) -> bool:
    return question.core if mode == "core" else question.chapter == chapter


def _when(due: datetime, now: datetime) -> str:
    """A time to come, as precisely as it matters."""
    if due <= now:
        return "right now"
    if due - now < timedelta(hours=1):
        return f"in {math.ceil((due - now).total_seconds() / 60)} min"
    days = (due.date() - now.date()).days
    if days == 0:
        return f"today at {due:%H:%M}"
    return f"tomorrow, {due:%Y-%m-%d}" if days == 1 else f"in {days} days, on {due:%Y-%m-%d}"


def _local_now() -> datetime:
    return datetime.now().astimezone()
