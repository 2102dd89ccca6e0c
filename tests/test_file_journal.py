"""The journal in one file of lines: what makes it durable, and what happens to a file that is cut,
damaged, shared, full or somebody else's.

`test_journals` has what every journal does. Where the power is cut in these tests, a layer under
the journal keeps of every file what was there when it was last synced, and nothing else.
"""

from __future__ import annotations

import json
import logging
import os
import random
import resource
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from zlib import crc32

import pytest
from children import Child, ChildError, as_nobody, in_child
from support import prune_at
from test_journals import ADMITTED, HELD, RUN, busy, event, named, step, told

from durable_mini import (
    DurableError,
    EventKind,
    JournalCorruptError,
    MemoryJournal,
    NotAJournalError,
    RunStatus,
    SQLiteJournal,
    StorageError,
)
from durable_mini.journal import file as implementation
from durable_mini.journal.file import FileJournal

JOURNAL_FILES = {str(path) for path in Path(implementation.__file__).parent.glob("*.py")}
HEADER = b'{"format":"durable_mini journal","version":1}\n'


def aside_of(path: Path, at: int, tail: bytes) -> Path:
    """Where bytes are kept that are no whole line."""
    return path.with_name(f"{path.name}.torn-{at}-{crc32(tail):08x}")


def put(path: Path, data: bytes) -> None:
    """Make a file anew: some file systems wait for the disk when one is written over."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder, to the byte."""
    found = sorted(folder.iterdir())
    return {path.name: path.read_bytes() if path.is_file() else None for path in found}


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk, in tests that open thousands of files and cut no power."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def journal(journal_path: Path) -> Iterator[FileJournal]:
    with FileJournal(journal_path) as opened:
        yield opened


@pytest.fixture
def held(journal: FileJournal) -> FileJournal:
    """A journal with the run r-1 in it, claimed by w1."""
    journal.admit((RUN, [ADMITTED]))
    journal.replace(RUN, HELD)
    return journal


# What the file looks like


def test_a_file_is_a_header_and_a_line_of_json_for_each_transaction(
    held: FileJournal, journal_path: Path
) -> None:
    held.append(HELD, step("téa", text='{"result":"\\n"}'), crashes=0)
    header, *lines = journal_path.read_bytes().splitlines()
    assert json.loads(header) == {"format": "durable_mini journal", "version": 1}
    told_by_lines = [json.loads(line)[2] for line in lines]
    assert [number for number, *_ in told_by_lines] == [1, 2, 3]
    assert [after for _, after, *_ in told_by_lines] == [[], ["r-1", 1], ["r-1", 1]]
    assert told_by_lines[2][2:] == [
        ["event", "r-1", 1, 2, "step", "téa", '{"result":"\\n"}', 13.5],
        ["run", *HELD],
    ]
    for line in lines:
        length, checksum, said = json.loads(line)
        body = json.dumps(said, separators=(",", ":"))
        assert length == f"{len(body):08x}"
        assert checksum == f"{crc32(f'{length}{body}'.encode()):08x}"


def test_a_transaction_is_one_write_behind_all_others(
    held: FileJournal, journal_path: Path
) -> None:
    before = journal_path.read_bytes()
    held.append(HELD, step(), opens=[(named("r-2"), [ADMITTED, step()])], crashes=1)
    after = journal_path.read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == before.count(b"\n") + 1


def test_what_changes_nothing_writes_nothing(held: FileJournal, journal_path: Path) -> None:
    before = journal_path.read_bytes()
    assert held.append(HELD, step(), expected=9) == 0
    assert held.replace(RUN, HELD) is False
    assert held.request("r-1", lambda _: None) is False
    with pytest.raises(TypeError):
        held.append(HELD, (EventKind.STEP, "plan", "{}", "no time"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unheard_of"):
        held.append(HELD, None, unheard_of=1)
    assert journal_path.read_bytes() == before
    assert held.append(HELD, step()) == 2


def test_a_pruned_run_stays_in_the_file_as_bytes(held: FileJournal, journal_path: Path) -> None:
    held.append(HELD, step("secret"))
    prune_at(held, HELD, 50.0)
    held.close()
    assert b"secret" in journal_path.read_bytes()
    with FileJournal(journal_path) as journal:
        assert journal.events(HELD) == []
        assert journal.row("r-1") == HELD._replace(pruned_at=50.0, due_at=None)


@pytest.mark.parametrize("name", ["a b", "50%.journal", "what?", "#1", "ünïcode", "x" * 200])
def test_any_file_name_will_do_and_closing_leaves_one_file(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        with FileJournal(tmp_path / name) as journal:
            journal.admit((RUN, [ADMITTED]))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_journal_stays_the_same_file_when_the_working_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with FileJournal("journal") as journal:
        monkeypatch.chdir(tmp_path / "elsewhere")
        journal.admit((RUN, [ADMITTED]))
        assert journal.path == tmp_path / "journal"
        assert journal.integrity() == []


# Power cuts


class PowerCutError(BaseException):
    """The machine went off: nothing that runs in it may go on."""


class ForgetfulDisk:
    """A folder whose files lose, when the power is cut, all that was never synced.

    A file's name is lost too until its folder was synced. `off_at` is the number of the sync (from
    1) at which the power goes; `reached` says whether what that sync was to save is saved.
    """

    def __init__(self, folder: Path, off_at: int = 0, *, reached: bool = False) -> None:
        self._folder, self._off_at, self._reached = folder, off_at, reached
        self._bytes = {path.stat().st_ino: path.read_bytes() for path in folder.iterdir()}
        self._names = self._listed()
        self.syncs = 0

    def _listed(self) -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in self._folder.iterdir()}

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        if self.syncs != self._off_at or self._reached:
            self._save(os.fstat(descriptor))
        if self.syncs == self._off_at:
            raise PowerCutError

    def _save(self, synced: os.stat_result) -> None:
        if stat.S_ISDIR(synced.st_mode):
            self._names = self._listed()
        else:
            (path,) = [p for p in self._folder.iterdir() if p.stat().st_ino == synced.st_ino]
            self._bytes[synced.st_ino] = path.read_bytes()

    def cut_power(self) -> None:
        """Leave in the folder what a machine finds when it is on again."""
        for path in self._folder.iterdir():
            path.unlink()
        for name, number in self._names.items():
            (self._folder / name).write_bytes(self._bytes.get(number, b""))


Sync = Callable[[int], None]


def forget_files(sync: Sync, descriptor: int) -> None:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        sync(descriptor)


def forget_folders(sync: Sync, descriptor: int) -> None:
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        sync(descriptor)


def after_a_power_cut(
    path: Path, patch: pytest.MonkeyPatch, careless: Callable[[Sync, int], None] | None = None
) -> int | None:
    """How many events of six returned appends are left by a power cut; None without the file."""
    disk = ForgetfulDisk(path.parent)
    patch.setattr(os, "fsync", partial(careless, disk.sync) if careless else disk.sync)
    with FileJournal(path) as journal:
        journal.admit((RUN, [ADMITTED]))
        for number in range(5):
            journal.append(RUN, step(f"step {number}"))
    disk.cut_power()
    if not path.exists():
        return None
    with FileJournal(path, read_only=True) as journal:
        return len(journal.events(RUN))


def test_a_returned_append_survives_a_power_cut(
    journal_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert after_a_power_cut(journal_path, monkeypatch) == 6


def test_the_power_cut_would_show_an_append_that_is_not_synced(
    journal_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert after_a_power_cut(journal_path, monkeypatch, forget_files) == 0


def test_the_power_cut_would_show_a_folder_that_is_not_synced(
    journal_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert after_a_power_cut(journal_path, monkeypatch, forget_folders) is None


def every_power_cut(
    folder: Path, patch: pytest.MonkeyPatch, work: Callable[[], None]
) -> Iterator[None]:
    """Do the work again and again in a folder, with the power going at each sync in turn."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for off_at, reached in ((n, reached) for n in count(1) for reached in (False, True)):
        for path in folder.iterdir():
            path.unlink()
        for path, found in before.items():
            path.write_bytes(found)
        disk = ForgetfulDisk(folder, off_at, reached=reached)
        patch.setattr(os, "fsync", disk.sync)
        try:
            work()
        except PowerCutError:
            disk.cut_power()
            yield
        else:
            assert disk.syncs == off_at - 1
            return


def test_a_power_cut_at_any_sync_keeps_every_append_that_had_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, returned = tmp_path / "journal", 0

    def work() -> None:
        nonlocal returned
        returned = 0
        with FileJournal(path) as journal:
            for number in range(3):
                journal.admit((named(f"r-{number}"), [ADMITTED]))
                returned += 1

    found = set()
    for _ in every_power_cut(tmp_path, monkeypatch, work):
        monkeypatch.setattr(os, "fsync", lambda _: None)
        with FileJournal(path) as journal:
            ids = [row.run_id for row in journal.rows()]
            assert returned <= len(ids) <= returned + 1
            assert ids == [f"r-{number}" for number in range(len(ids))]
            assert journal.torn is None
            found.add(len(ids))
    assert found == {0, 1, 2, 3}


def test_a_file_whose_creator_died_keeps_its_name_at_a_later_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the process dies, not the machine: what is not on the disk yet is still in the file."""
    for died_at in count(1):
        folder = tmp_path / str(died_at)
        folder.mkdir()
        first = ForgetfulDisk(folder, off_at=died_at)
        monkeypatch.setattr(os, "fsync", first.sync)
        try:
            FileJournal(folder / "journal").close()
        except PowerCutError:
            second = ForgetfulDisk(folder)
            second._bytes, second._names = first._bytes, first._names
            monkeypatch.setattr(os, "fsync", second.sync)
            with FileJournal(folder / "journal") as journal:
                journal.admit((RUN, [ADMITTED]))
            second.cut_power()
            with FileJournal(folder / "journal", read_only=True) as journal:
                assert journal.row("r-1") == RUN
        else:
            assert died_at == 3  # the folder, the header, and then it was whole
            return


def test_a_power_cut_while_a_torn_end_is_set_aside_loses_no_byte_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    with FileJournal(path) as journal:
        journal.admit((RUN, [ADMITTED]))
    whole = path.read_bytes()
    path.write_bytes(whole + b'["0000')
    aside = aside_of(path, len(whole), b'["0000')
    cuts = 0

    def work() -> None:
        with FileJournal(path) as journal:
            journal.append(RUN, step())

    for _ in every_power_cut(tmp_path, monkeypatch, work):
        files = contents(tmp_path)
        set_aside = {name for name, found in files.items() if found == b'["0000'}
        assert files["journal"] == whole + b'["0000' or set_aside == {aside.name}
        monkeypatch.setattr(os, "fsync", lambda _: None)
        work()
        files = contents(tmp_path)
        assert files[aside.name] == b'["0000'
        assert len(files) == 2
        with FileJournal(path, read_only=True) as journal:
            assert len(journal.events(RUN)) in (2, 3)
        cuts += 1
    assert cuts == 6  # before and after: the copy, its folder, the append


def test_every_acknowledged_append_survives_a_kill(journal_path: Path) -> None:
    reading, writing = os.pipe()

    def append_until_killed() -> None:
        with FileJournal(journal_path) as journal:
            journal.admit((RUN, [ADMITTED]))
            for _ in range(10_000):
                journal.append(RUN, step())
                os.write(writing, b".")

    worker = Child(append_until_killed)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        acknowledged = sum(len(pipe.read(1)) for _ in range(20))
        worker.send_signal(signal.SIGKILL)
        while rest := pipe.read(4096):
            acknowledged += len(rest)
    with pytest.raises(ChildError):
        worker.result()
    with FileJournal(journal_path) as journal:  # the lock went with the process
        found = len(journal.events(RUN)) - 1
        assert acknowledged <= found <= acknowledged + 1


def test_a_mac_is_told_to_write_through_the_drives_cache(
    held: FileJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    synced: list[str] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda _, command: synced.append(f"fcntl {command}"))
    held.append(HELD, step())
    assert synced == ["fcntl 51"]


def test_a_platform_without_locks_goes_without(
    journal_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)  # an import of it fails now
    with FileJournal(journal_path) as journal, FileJournal(journal_path):
        journal.admit((RUN, [ADMITTED]))
    with FileJournal(journal_path) as journal:
        assert journal.row("r-1") == RUN


# Files that are cut


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a journal with several runs, generations, requests and a tombstone."""
    path = tmp_path_factory.mktemp("whole") / "journal"
    with FileJournal(path) as journal:
        busy(journal)
    return path.read_bytes()


@pytest.fixture(scope="module")
def states(whole: bytes, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the journal told after each of its lines; the first is the empty journal's."""
    path = tmp_path_factory.mktemp("states") / "journal"
    lines = whole.splitlines(keepends=True)
    found = []
    for number in range(1, len(lines) + 1):
        path.write_bytes(b"".join(lines[:number]))
        with FileJournal(path) as journal:
            found.append(told(journal))
    memory = MemoryJournal()
    busy(memory)
    assert found[-1] == told(memory)
    assert all(one != other for one, other in pairwise(found))
    return found


def ends_of_lines(whole: bytes) -> list[int]:
    ends = [len(HEADER)]
    for line in whole.splitlines(keepends=True)[1:]:
        ends.append(ends[-1] + len(line))
    return ends


@pytest.mark.slow
def test_a_file_cut_at_any_byte_keeps_every_whole_line(
    tmp_path: Path, whole: bytes, states: list[dict[str, Any]], unsynced: None
) -> None:
    path, ends = tmp_path / "journal", ends_of_lines(whole)
    for length in range(len(whole) + 1):
        put(path, whole[:length])
        lines = sum(end <= length for end in ends)
        end = ends[lines - 1] if lines else 0
        with FileJournal(path) as journal:
            assert told(journal) == states[max(lines - 1, 0)]
            aside = aside_of(path, end, whole[end:length])
            if length in (0, end) or length < len(HEADER):
                assert journal.torn is None
                assert contents(tmp_path).keys() == {"journal"}
            else:
                tail = f"last {length - end} bytes, from offset {end} on, are no whole line"
                assert journal.torn == f"the {tail}; they are in {aside} now"
                assert aside.read_bytes() == whole[end:length]
                aside.unlink()
            assert path.read_bytes() == (whole[:end] if lines else HEADER)
            journal.admit((named("next"), [ADMITTED]))
        with FileJournal(path) as journal:  # the next append began on a line of its own
            assert journal.torn is None
            assert [row.run_id for row in journal.rows()][-1] == "next"


def test_a_torn_end_is_reported_once_and_kept_apart_from_earlier_ones(
    held: FileJournal, journal_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert held.torn is None
    held.close()
    end = journal_path.stat().st_size
    tails = [b'["00', b'["00000012","aa', b'["00000012","bb', b"\0" * 40]
    for tail in [*tails, tails[1]]:
        with journal_path.open("ab") as file:
            file.write(tail)
        for _ in range(2):
            FileJournal(journal_path).close()
    asides = {aside_of(journal_path, end, tail): tail for tail in tails}
    found = {path: path.read_bytes() for path in tmp_path.iterdir() if path != journal_path}
    assert found == asides
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.name for record in warnings] == ["durable_mini.journal"] * 5
    assert f"{journal_path}: the last 4 bytes, from offset {end} on" in warnings[0].getMessage()


def test_a_copy_that_was_cut_off_itself_is_made_anew(held: FileJournal, journal_path: Path) -> None:
    held.close()
    end, tail = journal_path.stat().st_size, b'["00000012","aa'
    with journal_path.open("ab") as file:
        file.write(tail)
    aside = aside_of(journal_path, end, tail)
    aside.write_bytes(tail[:3])
    FileJournal(journal_path).close()
    assert aside.read_bytes() == tail


@pytest.mark.parametrize("make", [bytes, random.Random(3).randbytes, lambda n: b"\n" * n])
def test_an_end_that_was_never_written_is_torn_off(
    tmp_path: Path, whole: bytes, states: list[dict[str, Any]], make: Callable[[int], bytes]
) -> None:
    """Some file systems leave zeros or old blocks where an append was to be."""
    path = tmp_path / "journal"
    for length in (1, 30, 5_000):
        path.write_bytes(whole + make(length))
        with FileJournal(path) as journal:
            assert told(journal) == states[-1]
            assert journal.torn
        assert path.read_bytes() == whole


# Damage


def about_lines(whole: bytes) -> list[tuple[str, int]]:
    """For each line whose it is, and the number of that run's next event before it."""
    reached: dict[tuple[str, int], int] = {}
    found = []
    for line in whole.splitlines()[1:]:
        entries = json.loads(line)[2][2:]
        run_id, generation = entries[0][1:3]
        found.append((run_id, reached.get((run_id, generation), 0) + 1))
        for entry in entries:
            if entry[0] == "event":
                reached[entry[1], entry[2]] = entry[3]
    return found


def flips(whole: bytes, masks: list[int]) -> Iterator[tuple[int, bytes]]:
    """The file with one byte changed: by each mask, and into a line break."""
    for place, byte in enumerate(whole):
        for changed in {*(byte ^ mask for mask in masks), 0x0A} - {byte}:
            yield place, whole[:place] + bytes([changed]) + whole[place + 1 :]


def assert_told_or_refused(
    path: Path, whole: bytes, states: list[dict[str, Any]], masks: list[int]
) -> None:
    ends, about = ends_of_lines(whole), about_lines(whole)
    for place, broken in flips(whole, masks):
        put(path, broken)
        line = sum(end <= place for end in ends)
        try:
            with FileJournal(path) as journal:
                assert line == len(about), place
                assert told(journal) == states[-2]
                assert journal.torn
        except NotAJournalError:
            assert line == 0, place
        except JournalCorruptError as damaged:
            assert 0 < line < len(about), place
            assert (damaged.run_id, damaged.seq) == about[line - 1]
            assert f"line {line + 1}, at offset {ends[line - 1]}" in str(damaged)
        left = contents(path.parent)
        if line == len(about):
            aside = aside_of(path, ends[-2], broken[ends[-2] :])
            assert left == {path.name: whole[: ends[-2]], aside.name: broken[ends[-2] :]}
            aside.unlink()
        else:
            assert left == {path.name: broken}


@pytest.mark.slow
def test_any_flipped_byte_is_refused_where_it_is_or_costs_the_last_line(
    tmp_path: Path, whole: bytes, states: list[dict[str, Any]], unsynced: None
) -> None:
    assert_told_or_refused(tmp_path / "journal", whole, states, [0x01, 0x80])


def test_a_digit_in_capitals_is_a_flipped_byte_too(
    tmp_path: Path, whole: bytes, states: list[dict[str, Any]]
) -> None:
    path, ends = tmp_path / "journal", ends_of_lines(whole)
    for line, end in enumerate(ends[:-2], start=1):
        for place in [*range(end + 2, end + 10), *range(end + 13, end + 21)]:
            if chr(whole[place]) in "abcdef":
                path.write_bytes(
                    whole[:place] + whole[place : place + 1].upper() + whole[place + 1 :]
                )
                with pytest.raises(JournalCorruptError, match=f"line {line + 1}, "):
                    FileJournal(path)


@pytest.mark.slow
def test_any_flipped_bit_is_refused_where_it_is_or_costs_the_last_line(
    tmp_path: Path, whole: bytes, states: list[dict[str, Any]], unsynced: None
) -> None:
    assert_told_or_refused(
        tmp_path / "journal", whole, states, [1 << bit for bit in range(8)] + [0xFF]
    )


def test_a_file_that_is_only_looked_at_says_the_same_of_damage_and_changes_nothing(
    tmp_path: Path, whole: bytes, states: list[dict[str, Any]]
) -> None:
    path, ends = tmp_path / "journal", ends_of_lines(whole)
    for place, broken in [*flips(whole, [0x01])][::7]:
        put(path, broken)
        line = sum(end <= place for end in ends)
        try:
            with FileJournal(path, read_only=True) as journal:
                assert line == len(ends) - 1
                assert told(journal) == states[-2]
                assert journal.torn == (
                    f"the last {len(whole) - ends[-2]} bytes, from offset {ends[-2]} on,"
                    " are no whole line"
                )
        except (NotAJournalError, JournalCorruptError):
            assert line < len(ends) - 1
        assert contents(tmp_path) == {"journal": broken}


def test_a_cut_and_a_flipped_byte_together_never_tell_a_wrong_value(
    tmp_path: Path, whole: bytes, states: list[dict[str, Any]], unsynced: None
) -> None:
    path, dice = tmp_path / "journal", random.Random(7)
    refused = 0
    for _ in range(1_500):
        length = dice.randrange(len(HEADER) + 1, len(whole))
        broken = bytearray(whole[:length])
        broken[dice.randrange(len(HEADER), length)] ^= dice.randrange(1, 256)
        put(path, broken)
        try:
            with FileJournal(path) as journal:
                assert told(journal) in states
        except JournalCorruptError:
            refused += 1
        for aside in tmp_path.glob("journal.torn-*"):
            aside.unlink()
    assert refused > 500


@pytest.mark.parametrize("first", range(1, 9))
@pytest.mark.parametrize("lines", [1, 2, 3])
def test_lines_that_are_missing_are_noticed(
    tmp_path: Path, whole: bytes, first: int, lines: int
) -> None:
    path, about = tmp_path / "journal", about_lines(whole)
    kept = whole.splitlines(keepends=True)
    del kept[first : first + lines]
    path.write_bytes(b"".join(kept))
    if first + lines > len(about):
        return  # the end is missing: no file can know
    with pytest.raises(JournalCorruptError, match=f"line {first + 1}, .* missing") as damaged:
        FileJournal(path)
    missing = about[first - 1 : first - 1 + lines]
    run_id, _ = missing[-1]  # whose the last of them was, from the first that it lost
    assert damaged.value.run_id == run_id
    assert damaged.value.seq == next(seq for other, seq in missing if other == run_id)


def test_lines_that_changed_places_or_came_twice_are_noticed(tmp_path: Path, whole: bytes) -> None:
    path, lines = tmp_path / "journal", whole.splitlines(keepends=True)
    for number in range(1, len(lines) - 1):
        swapped = [*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]]
        twice = [*lines[: number + 1], *lines[number:]]
        for changed in (swapped, twice):
            path.write_bytes(b"".join(changed))
            with pytest.raises(JournalCorruptError):
                FileJournal(path)
            assert path.read_bytes() == b"".join(changed)


def test_damage_with_nothing_readable_behind_it_is_told_by_its_place(
    tmp_path: Path, whole: bytes
) -> None:
    path, ends = tmp_path / "journal", ends_of_lines(whole)
    broken = bytearray(whole)
    for place in (ends[-3] + 60, ends[-2] + 60):  # both of the last two lines
        broken[place] ^= 0x01
    path.write_bytes(broken)
    with pytest.raises(JournalCorruptError, match=f"offset {ends[-3]}, is damaged") as damaged:
        FileJournal(path)
    assert (damaged.value.run_id, damaged.value.seq) == (None, None)


def forged(whole: bytes, number: int, change: Callable[[list[Any]], None]) -> bytes:
    """The file with a line changed by somebody who knows how to make the checksum fit."""
    lines = whole.splitlines(keepends=True)
    said = json.loads(lines[number])[2]
    change(said)
    lines[number] = implementation._framed(json.dumps(said, separators=(",", ":")).encode())
    return b"".join(lines)


def test_a_status_that_nobody_knows_is_refused_even_with_a_fitting_checksum(
    tmp_path: Path, whole: bytes
) -> None:
    path = tmp_path / "journal"
    path.write_bytes(forged(whole, 1, lambda said: said[2].__setitem__(6, "asleep")))
    with pytest.raises(JournalCorruptError, match="run r-1: unknown status 'asleep'"):
        FileJournal(path)


def test_a_kind_that_nobody_knows_is_refused_when_the_run_is_read(
    tmp_path: Path, whole: bytes
) -> None:
    path = tmp_path / "journal"
    path.write_bytes(forged(whole, 3, lambda said: said[2].__setitem__(4, "dream")))
    with (
        FileJournal(path) as journal,
        pytest.raises(JournalCorruptError, match="run r-1, event 2: unknown kind 'dream'"),
    ):
        journal.events(RUN)


def test_damage_to_the_file_of_an_open_journal_is_found_when_it_is_verified(
    held: FileJournal, journal_path: Path
) -> None:
    held.append(HELD, step())
    held.append(HELD, step())
    assert held.integrity() == []
    good = journal_path.read_bytes()
    ends = ends_of_lines(good)
    with journal_path.open("r+b") as file:
        file.write(good[: ends[3]][:-9] + b"X" + good[: ends[3]][-8:])
    with pytest.raises(JournalCorruptError) as damaged:
        held.integrity()
    assert (damaged.value.run_id, damaged.value.seq) == ("r-1", 2)
    with journal_path.open("r+b") as file:
        file.write(good[:-9] + b"X" + good[-8:])
    assert held.integrity() == ["the last 1 lines of the file are lost"]


# Files that are somebody else's


def text_file(path: Path) -> None:
    path.write_text("dear diary\n" * 100)


def short_file(path: Path) -> None:
    path.write_bytes(b'{"')
    path.write_bytes(b'{"form at')


def other_json(path: Path) -> None:
    path.write_bytes(b'{"format":"durable_mini journal"}\n')


def random_bytes(path: Path) -> None:
    path.write_bytes(random.Random(5).randbytes(3_000))


def sqlite_journal(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        busy(journal)


def folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("kept")


def newer(path: Path) -> None:
    path.write_bytes(HEADER.replace(b"1", b"2") + b"[1]\n")


def much_newer(path: Path) -> None:
    path.write_bytes(HEADER.replace(b"1", b"12"))


def header_without_its_break(path: Path) -> None:
    path.write_bytes(HEADER[:-1] + b" \n")


OTHERS = [
    text_file,
    short_file,
    other_json,
    random_bytes,
    sqlite_journal,
    folder,
    newer,
    much_newer,
    header_without_its_break,
]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("make", OTHERS)
def test_a_path_that_is_something_else_is_refused_and_not_touched(
    tmp_path: Path, make: Callable[[Path], None], read_only: bool
) -> None:
    path = tmp_path / "something"
    make(path)
    before = contents(tmp_path)
    with pytest.raises(NotAJournalError) as refusal:
        FileJournal(path, read_only=read_only)
    assert contents(tmp_path) == before
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_newer_file_says_which_version_it_is_and_which_is_read(tmp_path: Path) -> None:
    newer(tmp_path / "newer")
    with pytest.raises(NotAJournalError, match=r'"version":2.* reads .*"version":1'):
        FileJournal(tmp_path / "newer")


@pytest.mark.parametrize("read_only", [False, True])
def test_a_pipe_is_refused_and_nobody_waits_on_it(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(NotAJournalError, match="no regular file"):
        FileJournal(path, read_only=read_only)


def test_a_file_journal_is_none_of_sqlite(journal: FileJournal, journal_path: Path) -> None:
    before = journal_path.read_bytes()
    with pytest.raises(NotAJournalError):
        SQLiteJournal(journal_path)
    assert journal_path.read_bytes() == before


def test_a_link_to_a_file_is_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "journal")
    synced: list[Path] = []
    monkeypatch.setattr(
        os,
        "fsync",
        lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink()),
    )
    with FileJournal(tmp_path / "link") as journal:
        journal.admit((RUN, [ADMITTED]))
    assert set(synced) == {tmp_path / "far", tmp_path / "far" / "journal"}
    with FileJournal(tmp_path / "far" / "journal") as journal:
        assert journal.row("r-1") == RUN


# Places that can't be written


def refusal_of(work: Callable[[], Any]) -> tuple[str, str]:
    """The type and the words of the engine's error; anything else is passed on."""
    try:
        return ("", str(work()))
    except DurableError as error:
        return (type(error).__name__, str(error))


@pytest.mark.parametrize("name", ["missing/journal", "file/journal", "y" * 300])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_path_that_cannot_be_opened_is_a_storage_error_in_one_line(
    tmp_path: Path, name: str, read_only: bool
) -> None:
    (tmp_path / "file").touch()
    before = contents(tmp_path)
    kind, words = refusal_of(lambda: FileJournal(tmp_path / name, read_only=read_only))
    assert kind == "StorageError"
    assert name in words
    assert "\n" not in words
    assert contents(tmp_path) == before


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may enter, unlike those of `tmp_path`."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)
        Path(name).chmod(0o777)


def test_a_folder_that_cannot_be_written_refuses_a_new_journal(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    kind, words = as_nobody(refusal_of, lambda: FileJournal(open_folder / "new"))
    assert kind == "StorageError"
    assert str(open_folder / "new") in words
    assert list(open_folder.iterdir()) == []


@pytest.mark.parametrize(("mode", "read"), [(0o444, ""), (0o000, "StorageError")])
def test_a_file_that_cannot_be_written_can_be_looked_at_if_it_can_be_read(
    open_folder: Path, whole: bytes, mode: int, read: str
) -> None:
    path = open_folder / "journal"
    path.write_bytes(whole)
    path.chmod(mode)

    def look() -> list[str]:
        with FileJournal(path, read_only=True) as journal:
            return [row.run_id for row in journal.rows()]

    assert as_nobody(refusal_of, lambda: FileJournal(path))[0] == "StorageError"
    kind, words = as_nobody(refusal_of, look)
    assert kind == read
    assert words == "['r-1', 'parent', 'gone']" or read
    assert path.read_bytes() == whole


def test_a_torn_end_that_cannot_be_set_aside_stays_where_it_is(
    open_folder: Path, whole: bytes, states: list[dict[str, Any]]
) -> None:
    path = open_folder / "journal"
    path.write_bytes(whole + b'["0000')
    path.chmod(0o666)
    open_folder.chmod(0o555)
    kind, words = as_nobody(refusal_of, lambda: FileJournal(path))
    assert kind == "StorageError"
    assert "\n" not in words
    assert contents(open_folder) == {"journal": whole + b'["0000'}
    with FileJournal(path, read_only=True) as journal:
        assert told(journal) == states[-1]


# Full disks and failing ones


def test_a_full_disk_refuses_further_appends_until_the_journal_is_opened_again(
    journal_path: Path,
) -> None:
    known, told_then = in_child(append_until_full, journal_path)
    assert known > 2
    first, *rest = told_then
    assert first == ("StorageError", f"{journal_path}: File too large." + NEXT)
    refusal = "refuses appends after a failed write (File too large)."
    assert rest == [("StorageError", f"{journal_path}: {refusal}{NEXT}")] * 4
    with FileJournal(journal_path) as journal:
        assert len(journal.events(RUN)) == known
        assert journal.append(RUN, step()) == known + 1


NEXT = " Next: mend the cause, open the journal again and resume."


def append_until_full(path: Path) -> tuple[int, list[tuple[str, str]]]:
    """The operating system writes no file beyond a length; the disk error is a real one."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with FileJournal(path) as journal:
        journal.admit((RUN, [ADMITTED]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 1_000, hard))
        known, refusals = 1, []
        while not refusals:
            before = told(journal)
            kind, words = refusal_of(lambda: journal.append(RUN, step()))
            known += not kind
            refusals = [(kind, words)] if kind else []
        assert told(journal) == before
        refusals += [refusal_of(lambda: journal.append(RUN, step()))]
        refusals += [refusal_of(lambda: journal.admit((named("r-2"), [ADMITTED])))]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        refusals += [refusal_of(lambda: journal.replace(RUN, HELD))]
        refusals += [refusal_of(lambda: prune_at(journal, RUN, 1.0))]
        assert told(journal) == before
    return known, refusals


def test_a_disk_that_is_full_at_creation_leaves_what_counts_as_new(journal_path: Path) -> None:
    def create() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, resource.RLIM_INFINITY))
        FileJournal(journal_path)

    assert in_child(refusal_of, create)[0] == "StorageError"
    assert journal_path.read_bytes() == HEADER[:20]
    with FileJournal(journal_path) as journal:
        assert journal.admit((RUN, [ADMITTED]))


def failing(_: int) -> None:
    raise OSError(5, "Input/output error")


def test_a_failed_sync_is_no_append_until_the_file_is_read_again(
    held: FileJournal, journal_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = told(held)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(StorageError, match="Input/output error"):
            held.append(HELD, step(), status=RunStatus.COMPLETED)
    assert told(held) == before
    size = journal_path.stat().st_size
    with pytest.raises(StorageError, match=r"after a failed write \(Input/output error\)"):
        held.append(HELD, step())
    assert journal_path.stat().st_size == size
    held.close()
    with FileJournal(journal_path) as journal:  # nobody can tell what the disk kept: look
        assert len(journal.events(RUN)) in (1, 2)


def test_an_opening_that_fails_gives_the_lock_back(
    journal_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(StorageError) as refusal:
            FileJournal(journal_path)
        with pytest.raises(StorageError):
            FileJournal(journal_path)
    assert refusal.value.path == str(journal_path)
    FileJournal(journal_path).close()


# One opener at a time


def test_a_second_opener_is_refused_here_and_in_another_process(
    held: FileJournal, journal_path: Path
) -> None:
    before = journal_path.read_bytes()
    for refused in (refusal_of, partial(in_child, refusal_of)):
        kind, words = refused(lambda: FileJournal(journal_path))
        assert kind == "StorageError"
        assert words == f"{journal_path}: is open already, here or in another process.{NEXT}"
    assert journal_path.read_bytes() == before
    assert held.append(HELD, step()) == 2
    held.close()
    with FileJournal(journal_path) as journal:
        assert journal.append(HELD, step()) == 3


def test_a_journal_can_be_looked_at_while_it_is_open(held: FileJournal, journal_path: Path) -> None:
    with FileJournal(journal_path, read_only=True) as looking:
        held.append(HELD, step())
        assert looking.events(HELD) == [event(1, ADMITTED)]  # as it was when it was opened
        assert looking.integrity() == []
        for write in (
            lambda: looking.append(HELD, step()),
            lambda: looking.admit((named("r-2"), [ADMITTED])),
        ):
            with pytest.raises(StorageError, match="is open for reading only"):
                write()
    with FileJournal(journal_path, read_only=True) as looking:
        assert looking.events(HELD) == [event(1, ADMITTED), event(2, step())]


@pytest.mark.parametrize("found", [b"", HEADER[:20], HEADER])
def test_looking_at_a_file_without_runs_creates_nothing(tmp_path: Path, found: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(found)
    with FileJournal(path, read_only=True) as journal:
        assert list(journal.rows()) == []
    assert contents(tmp_path) == {"journal": found}


def test_looking_at_a_missing_file_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        FileJournal(tmp_path / "journal", read_only=True)
    assert list(tmp_path.iterdir()) == []


def asks(journal: FileJournal) -> list[Callable[[], object]]:
    return [
        lambda: journal.row("r-1"),
        lambda: list(journal.rows()),
        lambda: journal.events(HELD),
        lambda: journal.due(1e9),
        lambda: journal.peek(HELD),
        lambda: journal.append(HELD, step()),
        journal.integrity,
    ]


def test_a_closed_journal_says_so(held: FileJournal, journal_path: Path) -> None:
    held.close()
    before = journal_path.read_bytes()
    for ask in asks(held):
        with pytest.raises(StorageError, match="is closed"):
            ask()
    assert journal_path.read_bytes() == before


def test_a_journal_is_refused_after_a_fork_and_the_parents_is_unharmed(
    held: FileJournal, journal_path: Path
) -> None:
    def ask_and_close() -> list[tuple[str, str]]:
        refusals = [refusal_of(ask) for ask in asks(held)]
        held.close()
        return refusals

    for kind, words in in_child(ask_and_close):
        assert (kind, "was opened before a fork" in words) == ("StorageError", True)
    assert refusal_of(lambda: FileJournal(journal_path))[0] == "StorageError"  # locked as before
    assert held.append(HELD, step()) == 2


def test_a_fork_while_another_thread_writes_is_refused_too(held: FileJournal) -> None:
    """The child inherits the lock, and nobody who would release it."""
    taken, release = Lock(), Lock()
    taken.acquire()
    release.acquire()

    def write() -> None:
        with held._lock:
            taken.release()
            release.acquire()

    writer = Thread(target=write)
    writer.start()
    taken.acquire()

    def ask() -> tuple[str, str]:
        signal.alarm(20)
        held.close()
        return refusal_of(lambda: list(held.rows()))

    try:
        assert "fork" in in_child(ask)[1]
    finally:
        release.release()
        writer.join()


def test_a_child_that_lives_on_holds_no_journal_that_its_parent_has_closed(
    held: FileJournal, journal_path: Path
) -> None:
    reading, writing = os.pipe()

    def wait_and_open() -> int:
        signal.alarm(20)  # if the test fails before it says when
        os.read(reading, 1)
        with FileJournal(journal_path) as journal:
            return journal.append(HELD, step())

    child = Child(wait_and_open)
    held.close()
    with FileJournal(journal_path) as journal:
        assert journal.append(HELD, step()) == 2
    os.write(writing, b".")
    assert child.result() == 3
    os.close(reading)
    os.close(writing)


# Interruption


class Interruption:
    """A Ctrl-C that arrives at the n-th line that the journal executes."""

    def __init__(self, at_line: int) -> None:
        self.left = at_line

    def __call__(self, frame: Any, happening: str, _argument: object) -> Any:
        if frame.f_code.co_filename not in JOURNAL_FILES:
            return self if "contextlib" in frame.f_code.co_filename else None
        if happening == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


def interrupted(work: Callable[[], Any], at_line: int) -> bool:
    """Do the work, interrupted at a line; whether there was such a line."""
    interruption, tracing = Interruption(at_line), sys.gettrace()
    sys.settrace(interruption)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(tracing)
    return interruption.left <= 0


def test_ctrl_c_at_any_line_of_an_append_leaves_all_of_it_or_nothing(
    held: FileJournal, journal_path: Path, unsynced: None
) -> None:
    seen = set()
    for at_line in count(1):
        before = told(held)
        opening = (named(f"r-{at_line + 1}"), [ADMITTED])
        append = partial(held.append, HELD, step(), opens=[opening], crashes=at_line)
        was_reached = interrupted(append, at_line)
        there = refusal_of(partial(told, held))
        held.close()
        held = FileJournal(journal_path)
        assert held.torn is None
        now = told(held)
        if not was_reached:
            break
        if now != before:
            assert held.row(opening[0].run_id) == opening[0]
            assert held.row("r-1") == HELD._replace(crashes=at_line)
        assert there in (("", str(before)), ("", str(now))) or "interrupted" in there[1]
        seen.add((now != before, there[0]))
    held.close()
    assert at_line > 30
    assert seen >= {(False, ""), (True, ""), (True, "StorageError")}


def test_ctrl_c_at_any_line_of_an_opening_loses_nothing(
    tmp_path: Path, whole: bytes, states: list[dict[str, Any]], unsynced: None
) -> None:
    path, tail = tmp_path / "journal", b'["0000'
    for at_line in count(1):
        put(path, whole + tail)
        was_reached = interrupted(lambda: FileJournal(path).close(), at_line)
        with FileJournal(path) as journal:
            assert told(journal) == states[-1]
        asides = [*tmp_path.glob("journal.torn-*")]
        assert [aside.read_bytes() for aside in asides] == [tail]
        asides[0].unlink()
        if not was_reached:
            break
    assert at_line > 100
