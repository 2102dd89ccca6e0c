"""The log of reviews: nothing that was answered is forgotten, whatever happens to the file."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from durable_mini.school.reviews import Review, Reviews, ReviewsError, Settings, in_force

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def review(number: int, **changes: object) -> Review:
    values = {"at": NOON + timedelta(minutes=number), "question": f"q-{number}"}
    return Review(**{**values, "score": 2, "confidence": 3, **changes})  # type: ignore[arg-type]


@pytest.fixture
def log(tmp_path: Path) -> Reviews:
    return Reviews(tmp_path / "data" / "reviews.jsonl")


def test_log_that_is_not_there_is_empty(log: Reviews) -> None:
    assert log.read() == []
    assert not log.path.exists()


def test_reviews_come_back_as_they_were(log: Reviews) -> None:
    first = review(1, seconds=81.5, missed=("key", "window"), mode="mock")
    log.append(first)
    log.append(review(2), review(3))
    assert log.read() == [first, review(2), review(3)]


def test_log_is_plain_lines_that_a_reader_can_read(log: Reviews) -> None:
    log.append(review(1))
    header, line = log.path.read_text().splitlines()
    assert json.loads(header) == {"durable_mini": "reviews", "version": 1}
    assert json.loads(line)["question"] == "q-1"


def test_cut_anywhere_loses_the_cut_line_and_nothing_else(log: Reviews) -> None:
    log.append(review(1), review(2), review(3))
    data = log.path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
    for length in range(len(data) + 1):
        log.path.write_bytes(data[:length])
        whole = max(sum(end <= length for end in ends) - 1, 0)
        assert log.read() == [review(n) for n in range(1, whole + 1)]
        log.append(review(9))
        assert log.read() == [*(review(n) for n in range(1, whole + 1)), review(9)]
        assert log.passed_over == ()


def test_header_that_was_cut_is_written_again_when_nothing_else_was_there(log: Reviews) -> None:
    log.path.parent.mkdir()
    log.path.write_bytes(b"")
    log.append(review(1))
    assert log.read() == [review(1)]


def test_line_that_cannot_be_read_is_passed_over_told_of_and_kept(log: Reviews) -> None:
    log.append(review(1), review(2), review(3))
    lines = log.path.read_bytes().splitlines(keepends=True)
    lines[2] = b'{"at": "yesterday"}\n'
    log.path.write_bytes(b"".join(lines))
    assert log.read() == [review(1), review(3)]
    assert "line 3" in log.passed_over[0]
    log.append(review(4))
    assert b"yesterday" in log.path.read_bytes()


def test_future_version_is_refused_and_left_as_it_is(log: Reviews) -> None:
    log.path.parent.mkdir()
    log.path.write_text('{"durable_mini": "reviews", "version": 2}\n{"new": 1}\n')
    before = log.path.read_bytes()
    for act in (log.read, lambda: log.append(review(1))):
        with pytest.raises(ReviewsError, match=r"version 2.*Next: update"):
            act()
    assert log.path.read_bytes() == before


@pytest.mark.parametrize("text", ["no log", "no log\n", '{"other": 1}\n', "[]\n", "\n"])
def test_file_that_is_something_else_is_refused_and_left_as_it_is(log: Reviews, text: str) -> None:
    log.path.parent.mkdir()
    log.path.write_text(text)
    for act in (log.read, lambda: log.append(review(1))):
        with pytest.raises(ReviewsError, match="is no log of reviews"):
            act()
    assert log.path.read_text() == text


def test_two_windows_lose_nothing_of_each_other(log: Reviews) -> None:
    with ThreadPoolExecutor(8) as windows:
        for _ in windows.map(lambda n: Reviews(log.path).append(review(n)), range(40)):
            pass
    assert log.read() == [review(n) for n in range(40)]


def test_reset_puts_the_log_aside(log: Reviews) -> None:
    assert log.reset() is None
    log.append(review(1))
    aside = log.reset(NOON)
    assert aside is not None
    assert aside.name == "reviews-until-20260504T120000.jsonl"
    assert log.read() == []
    assert log.take_in(aside) == 1
    assert log.read() == [review(1)]


def test_export_and_import_carry_reviews_over_once(log: Reviews, tmp_path: Path) -> None:
    log.append(review(1), review(2))
    copy = tmp_path / "copy.jsonl"
    assert log.export(copy) == 2
    with pytest.raises(FileExistsError):
        log.export(copy)
    other = Reviews(tmp_path / "other.jsonl")
    other.append(review(0), review(2))
    assert other.take_in(copy) == 1
    assert other.take_in(copy) == 0
    assert other.read() == [review(0), review(1), review(2)]
    with pytest.raises(FileNotFoundError):
        other.take_in(tmp_path / "missing")


@pytest.mark.parametrize("wrong", [{"score": 4}, {"confidence": -1}, {"at": datetime(2026, 1, 1)}])
def test_review_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"right is 0 to 3|time zone"):
        review(1, **wrong)


def test_review_that_is_there_already_is_not_added_again(log: Reviews) -> None:
    assert log.append(review(1), review(2)) == 2
    assert log.append(review(2), review(3), review(2, score=0)) == 1
    assert log.read() == [review(1), review(2), review(3)]


def test_setting_is_a_line_of_the_log_and_no_review(log: Reviews) -> None:
    log.set(Settings(seed=3), NOON)
    log.append(review(1))
    log.set(Settings(interview=NOON.date(), clock=False), NOON)
    again = Reviews(log.path)
    assert again.read() == [review(1)]
    assert again.settings == Settings(interview=NOON.date(), clock=False)
    log.reset(NOON)
    assert (again.read(), again.settings) == ([], Settings())


def test_mis_tick_is_in_the_log_and_not_in_force(log: Reviews) -> None:
    wrong, right = review(1, score=0), review(2, question="q-1", instead_of=review(1).at)
    other = review(1, question="q-7")
    log.append(wrong, other, right)
    assert in_force(log.read()) == [other, right]
