"""Three pictures of a rehearsal: strength by chapter, the days ahead, confidence against score.

Guarantees: each says its finding in words, computed from the same numbers, and has a table; an
empty log gives a picture too. Leaves to others: the numbers' origin (`schedule`, `reviews`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from durable_mini.lab.pictures import (
    FAILURE,
    FAINT,
    INK,
    LIVE,
    REPLAYED,
    SMALL_PT,
    SOFT_INK,
    TEXT_PT,
    NumbersTable,
    Picture,
    blank_figure,
    numbers_table,
    quiet_axes,
)
from durable_mini.school.bank import Question
from durable_mini.school.reviews import Review, in_force
from durable_mini.school.schedule import Standing, standings

DAYS_AHEAD = 14
LEVELS = range(4)


# ---- strength by chapter -----------------------------------------------------------------------


def strength_rows(found: Sequence[Standing]) -> list[dict[str, str | int]]:
    """For each chapter: how many questions it has, were asked, and would be answered today."""
    rows = list[dict[str, str | int]]()
    for chapter in dict.fromkeys(one.question.chapter for one in found):
        of = [one for one in found if one.question.chapter == chapter]
        sure = sum(one.recall for one in of if one.score is not None and one.score >= 2)
        asked = sum(one.score is not None for one in of)
        rows.append(
            {"chapter": chapter, "questions": len(of), "asked": asked, "strong": round(sure)}
        )
    return rows


def strength(found: Sequence[Standing]) -> Picture:
    """Bars: of each chapter's questions, those asked, and those that would be answered today."""
    rows = strength_rows(found)
    figure = blank_figure(9.0, 0.9 + 0.34 * len(rows))
    axes = figure.subplots()
    for place, row in enumerate(rows):
        axes.barh(place, row["questions"], color=FAINT, height=0.7)
        axes.barh(place, row["asked"], color="none", edgecolor=REPLAYED, hatch="///", height=0.7)
        axes.barh(place, row["strong"], color=LIVE, height=0.4)
        words = f"{row['strong']} strong, {row['asked']} asked of {row['questions']}"
        axes.text(_number(row, "questions") + 0.1, place, words, va="center", fontsize=SMALL_PT)
    quiet_axes(axes, "Strength by chapter")
    axes.set_yticks(range(len(rows)), [str(row["chapter"]) for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, max(_number(row, "questions") for row in rows) * 1.45)
    axes.set_xticks([])
    figure.subplots_adjust(left=0.17, right=0.98, top=0.86, bottom=0.04)
    return Picture(figure, _strength_words(rows))


def _number(row: dict[str, str | int], name: str) -> int:
    return int(row[name])


def _strength_words(rows: Sequence[dict[str, str | int]]) -> str:
    total, asked, strong = (
        sum(_number(row, name) for row in rows) for name in ("questions", "asked", "strong")
    )
    if not asked:
        return f"Strength by chapter: none of the {total} questions was asked yet."
    weakest = min(rows, key=lambda row: _number(row, "strong") / _number(row, "questions"))
    return (
        f"Strength by chapter: of {total} questions {asked} were asked, and {strong} would be "
        f"answered today. Weakest: {weakest['chapter']}, {weakest['strong']} of "
        f"{weakest['questions']}."
    )


# ---- the days ahead ----------------------------------------------------------------------------


def ahead_rows(found: Sequence[Standing], now: datetime) -> list[dict[str, str | int]]:
    """How many questions are due on each of the next days; what is overdue counts for today."""
    dates = [one.due.astimezone(now.tzinfo).date() for one in found if one.due is not None]
    on = Counter(max(due, now.date()) for due in dates)
    days = [now.date() + timedelta(days=n) for n in range(DAYS_AHEAD)]
    return [{"day": day.isoformat(), "due": on[day]} for day in days]


def ahead(found: Sequence[Standing], now: datetime) -> Picture:
    """Bars: what is due today and on the days after it."""
    rows = ahead_rows(found, now)
    counts = [_number(row, "due") for row in rows]
    figure = blank_figure(9.0, 2.6)
    axes = figure.subplots()
    axes.bar(range(len(rows)), counts, color=REPLAYED, width=0.7)
    for place, count in enumerate(counts):
        if count:
            axes.text(place, count, f"{count}", ha="center", va="bottom", fontsize=SMALL_PT)
    quiet_axes(axes, "The days ahead: questions due")
    axes.set_xticks(range(len(rows)), ["today", *(str(row["day"])[5:] for row in rows[1:])])
    axes.set_yticks([])
    axes.set_ylim(0, max(*counts, 1) * 1.25)
    figure.subplots_adjust(left=0.02, right=0.99, top=0.85, bottom=0.13)
    busiest = max(rows, key=lambda row: row["due"])
    words = (
        f"The next {DAYS_AHEAD} days: {counts[0]} due today, {sum(counts)} in all; most on "
        f"{busiest['day']}, {busiest['due']}."
        if sum(counts)
        else f"The next {DAYS_AHEAD} days: nothing is due."
    )
    return Picture(figure, words)


# ---- confidence against score ------------------------------------------------------------------


def confidence_counts(reviews: Sequence[Review]) -> Counter[tuple[int, int]]:
    """How many answers had each confidence and score."""
    return Counter((one.confidence, one.score) for one in in_force(reviews))


def confidence_rows(reviews: Sequence[Review]) -> list[dict[str, str | int]]:
    """For each confidence: how many answers had each score."""
    counts = confidence_counts(reviews)
    return [
        {"confidence": str(said), **{f"score {got}": counts[said, got] for got in LEVELS}}
        for said in LEVELS
    ]


def confidence(reviews: Sequence[Review]) -> Picture:
    """A grid: how sure you were against what it was worth; above the diagonal you knew more."""
    counts = confidence_counts(reviews)
    figure = blank_figure(5.6, 4.3)
    axes = figure.subplots()
    most = max(counts.values(), default=1)
    for (said, got), count in counts.items():
        colour = FAILURE if said - got >= 2 else REPLAYED
        marker = "X" if said - got >= 2 else "o"
        axes.scatter(said, got, s=500 * count / most + 150, color=colour, marker=marker)
        axes.text(said + 0.2, got + 0.14, f"{count}", fontsize=TEXT_PT, color=INK)
    axes.plot([-0.4, 3.4], [-0.4, 3.4], color=FAINT, zorder=0)
    axes.text(3.4, 0.45, "sure, and wrong: crosses", ha="right", fontsize=SMALL_PT, color=SOFT_INK)
    quiet_axes(axes, "Confidence against score")
    axes.set(xlim=(-0.5, 3.6), ylim=(-0.5, 3.6), xticks=LEVELS, yticks=LEVELS)
    axes.set_xlabel("confidence, before the answer", fontsize=SMALL_PT)
    axes.set_ylabel("score", fontsize=SMALL_PT)
    figure.subplots_adjust(left=0.1, right=0.97, top=0.9, bottom=0.13)
    return Picture(figure, _confidence_words(counts))


def _confidence_words(counts: Counter[tuple[int, int]]) -> str:
    total = counts.total()
    if not total:
        return "Confidence against score: no answer yet."
    over = sum(count for (said, got), count in counts.items() if said - got >= 2)
    under = sum(count for (said, got), count in counts.items() if got - said >= 2)
    return (
        f"Confidence against score: of {total} answers {over} were given sure and worth two less "
        f"or worse; {under} were worth at least two more than you thought."
    )


# ---- all three ---------------------------------------------------------------------------------


def pictures(
    found: Sequence[Standing], reviews: Sequence[Review], now: datetime
) -> Iterator[tuple[Picture, NumbersTable]]:
    """The three pictures, each with its numbers."""
    yield strength(found), numbers_table(strength_rows(found), "Strength by chapter")
    yield ahead(found, now), numbers_table(ahead_rows(found, now), "Questions due")
    rows = confidence_rows(reviews)
    yield confidence(reviews), numbers_table(rows, "Answers by confidence and score")


def made_up(questions: Sequence[Question], now: datetime) -> tuple[list[Standing], list[Review]]:
    """Somebody's first ten days, made up, to show the pictures without anybody's log."""
    reviews = list[Review]()
    for day in range(10):
        for turn, question in enumerate(questions[day % 5 :: 11][:4]):
            score = (day + 2 * turn) % 4
            sure = 3 if (day + turn) % 5 == 0 else max(score - turn % 2, 0)
            at = now - timedelta(days=10 - day, minutes=-10 * turn)
            reviews.append(Review(at, question.id, score, sure))
    return standings(questions, reviews, now), reviews
