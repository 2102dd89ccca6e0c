"""The exercises of the course by name, and the chapter that each belongs to.

Guarantees: an exercise and its chapter share their number. Leaves to others: what an exercise asks
(`solutions/`), and grading it.
"""

from __future__ import annotations

from collections.abc import Sequence

EXERCISES = (
    *("01_history", "02_replay", "03_keys", "04_phases", "05_leaks", "06_fraud_check"),
    *("07_approval", "08_trip", "09_fence", "10_budget", "11_capstone", "12_memo"),
)
PASSED_AT = 0.6  # of the points that a machine gives


def exercise_of(chapter: str, exercises: Sequence[str] = EXERCISES) -> str | None:
    """The exercise of a chapter; None where it has none.

    >>> exercise_of("02_replay"), exercise_of("04_results"), exercise_of("00_start_here")
    ('02_replay', '04_phases', None)
    """
    number, _, _ = chapter.partition("_")
    return next((each for each in exercises if each.partition("_")[0] == number), None)
