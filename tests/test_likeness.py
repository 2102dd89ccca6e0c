"""How alike answers look: renaming hides nothing, the stub and short answers accuse nobody."""

from __future__ import annotations

import pytest

from durable_mini.school.likeness import PUBLISHED, alike, runs, tokens
from durable_mini.school.marks import CheckMark, Submission

ADA = '''
def replay(journal, key, work):
    """Give what was recorded, or do it and record that."""
    for row in journal:
        if row["key"] == key:
            return row["value"]
    value = work()
    journal.append({"key": key, "value": value})
    return value
'''
RENAMED = """
def replay(log, name, fn):
    # my own words
    for entry in log:
        if entry["k"] == name:
            return entry["v"]
    result = fn()

    log.append({"k": name, "v": result})
    return result
"""
OTHER = """
def replay(journal, key, work):
    known = {row["key"]: row["value"] for row in journal}
    if key not in known:
        known[key] = work()
        journal += [dict(key=key, value=known[key])]
    return known.get(key)
"""
STUB = 'def replay(journal, key, work):\n    raise NotImplementedError("give what was recorded")\n'


def handed_in(name: str, **answers: str) -> Submission:
    return Submission(name, name, "02_replay", (CheckMark("q1", "q1", 1, 1),), answers=answers)


def found(
    *submissions: Submission, published: str = "", stub: str = ""
) -> dict[tuple[str, str], float]:
    pairs = alike(
        submissions, {"02_replay": {"q1": published}}, {"02_replay": {"q1": stub}}, at_least=0.0
    )
    return {(pair.one, pair.other): pair.likeness for pair in pairs}


def test_renamed_and_laid_out_anew_is_still_the_same() -> None:
    assert set(tokens(ADA)) == set(tokens(RENAMED))
    assert found(handed_in("ada", q1=ADA), handed_in("bob", q1=RENAMED))["ada", "bob"] == 1.0


def test_another_way_of_writing_it_is_little_alike() -> None:
    likeness = found(handed_in("ada", q1=ADA), handed_in("bob", q1=OTHER))["ada", "bob"]
    assert likeness < 0.35


def test_copy_with_lines_of_ones_own_is_found_by_the_smaller_of_the_two() -> None:
    likeness = found(handed_in("ada", q1=ADA), handed_in("bob", q1=RENAMED + OTHER))["ada", "bob"]
    assert likeness > 0.9


def test_what_was_handed_out_to_all_counts_for_nothing() -> None:
    given = ADA + "\n"
    ada = handed_in("ada", q1=given + "\nlate = work() + 1\n")
    bob = handed_in("bob", q1=given + "\nprint(sum(journal))\n")

    assert found(ada, bob)["ada", "bob"] > 0.8
    assert found(ada, bob, stub=ADA)["ada", "bob"] == 0.0  # too little of their own to tell


def test_values_that_are_picked_say_nothing() -> None:
    picked = "labels = " + repr({f"row {number}": "step" for number in range(40)})
    assert runs({"q1": picked}) == frozenset()
    assert runs({"q1": f"{picked}\n{ADA}"}) == runs({"q1": ADA})


def test_short_answers_accuse_nobody() -> None:
    short = "def key(order):\n    return f'{order}/charge'\n"
    assert found(handed_in("ada", q1=short), handed_in("bob", q1=short))["ada", "bob"] == 0.0


def test_published_solution_is_a_row_of_its_own_after_the_people() -> None:
    ada, bob = handed_in("ada", q1=RENAMED), handed_in("bob", q1=OTHER)
    likeness = found(ada, bob, published=ADA)

    assert list(likeness) == [("ada", "bob"), ("ada", PUBLISHED), ("bob", PUBLISHED)]
    assert likeness["ada", PUBLISHED] == 1.0 > likeness["bob", PUBLISHED]


def test_row_says_what_is_usual_for_the_exercise() -> None:
    class_of_three = [handed_in(name, q1=ADA) for name in "abc"]
    (first, *_) = alike(class_of_three, {}, {})

    assert first.row() == ("02_replay", "a", "b", 1.0, 1.0, first.runs_shared)


def test_answers_to_two_exercises_are_never_compared() -> None:
    other = Submission("bob", "bob", "03_keys", (), answers={"q1": ADA})
    assert alike([handed_in("ada", q1=ADA), other], {}, {}) == []


@pytest.mark.parametrize(
    "broken", ["def (", "'''", "\tx\n y", "\0", "é = 1 +", "\ud800", "(" * 500]
)
def test_code_that_no_parser_takes_is_compared_all_the_same(broken: str) -> None:
    assert runs({"q1": ADA}) <= runs({"q1": ADA + "\n" + broken})


def test_same_class_gives_the_same_table() -> None:
    people = [
        handed_in(name, q1=code) for name, code in zip("abc", (ADA, RENAMED, OTHER), strict=True)
    ]
    first, again = (alike(people, {"02_replay": {"q1": ADA}}, {}) for _ in range(2))
    assert first == again != []
