"""A journal's files cut short: a shorter history or a refusal, never another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_mini.journal.file import FileJournal
from durable_mini.lab.torn import ALL, PREFIX, REFUSED, TornJournal, file_journal_bytes

EVENTS = 9  # admission, seven steps, completion


@pytest.fixture(scope="module")
def torn() -> TornJournal:
    return TornJournal()


def test_log_cut_anywhere_keeps_whole_commits(torn: TornJournal) -> None:
    told = {torn.cut_log(torn.log_bytes * part // 40) for part in range(40)}

    assert told == {PREFIX}
    assert torn.cut_log(torn.log_bytes) == ALL


def test_commit_that_lacks_a_byte_counts_as_not_written(torn: TornJournal) -> None:
    for events in range(1, EVENTS + 1):
        length = torn.length_for(events)

        assert len(torn.history(length)) == events
        assert len(torn.history(length - 1)) == events - 1


def test_file_cut_short_is_refused(torn: TornJournal) -> None:
    told = {torn.cut_file(torn.file_bytes * part // 40) for part in range(1, 40)}

    assert told == {REFUSED}
    assert torn.cut_file(0) == PREFIX  # an empty file is what a new journal looks like
    assert torn.cut_file(torn.file_bytes) == ALL


def test_lost_events_are_repeated_unless_the_receiver_knows_their_keys(torn: TornJournal) -> None:
    lengths = [torn.length_for(events) for events in (9, 8, 7, 5, 4, 0)]

    assert [torn.repeats(length, honour_keys=False) for length in lengths] == [0, 0, 1, 2, 3, 3]
    assert {torn.repeats(length, honour_keys=True) for length in lengths} == {0}


def test_length_for_more_events_than_there_are_is_refused(torn: TornJournal) -> None:
    with pytest.raises(ValueError, match="0 to 9 events, not 10"):
        torn.length_for(EVENTS + 1)


def test_file_journal_has_the_same_bytes_each_time_and_opens(tmp_path: Path) -> None:
    data = file_journal_bytes()
    (tmp_path / "journal.jsonl").write_bytes(data)
    with FileJournal(tmp_path / "journal.jsonl") as journal:
        (row,) = journal.rows()

        assert len(journal.events(row)) == EVENTS
        assert journal.torn is None
    assert file_journal_bytes() == data
