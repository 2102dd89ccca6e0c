"""Sweeping: every byte is damaged, the original isn't touched, and a journal that lies is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from durable_mini import (
    Context,
    Engine,
    FakeClock,
    FileJournal,
    JournalCorruptError,
    NotAJournalError,
    SQLiteJournal,
    Workflow,
    workflow,
)
from durable_mini.lab import sweep
from durable_mini.lab.agent import agent_in
from durable_mini.lab.exploring import approval_in
from durable_mini.lab.ledger import Ledger
from durable_mini.lab.sweep import sweep_journal
from durable_mini.lab.sweep_report import Verdict, damaged

pytestmark = pytest.mark.slow

START_S = 1_000.0


def short_in(world: Ledger) -> Workflow:
    """Two calls: its journal is small enough to be swept in a moment."""

    @workflow(version="1")
    def short(ctx: Context, order: str) -> str:
        ctx.step("think", lambda: "yes")
        return str(ctx.effect("charge", world.charge, order, 1))

    return short


def finished(path: Path, make: Callable[[Ledger], Workflow] = short_in) -> bytes:
    """A file journal with a run that has ended."""
    agent = make(Ledger())
    with FileJournal(path) as journal:
        Engine(journal, [agent], clock=FakeClock(START_S)).run(agent, "t-1", run_id="r-1")
    return path.read_bytes()


def waited(journal: Any) -> None:
    """A run of the approval that was asked, waited, was answered in time, slept, and has ended."""
    agent, clock = approval_in(Ledger()), FakeClock(START_S)
    engine = Engine(journal, [agent], clock=clock)
    engine.run(agent, "t-1", run_id="r-1")
    clock.advance(90_000.0)
    engine.resume("r-1")
    engine.signal("r-1", "director", "yes", signal_id="s-1")
    engine.resume("r-1")
    clock.advance(60.0)
    assert engine.resume("r-1").status == "completed"


# ---- every byte of a file ----------------------------------------------------------------------


def test_every_cut_and_every_flip_of_a_file_is_told_or_refused(tmp_path: Path) -> None:
    data = finished(tmp_path / "j")
    found = sweep_journal(tmp_path / "j", short_in)
    assert found.ok, str(found)
    lines = data.count(b"\n")
    header = data.index(b"\n") + 1
    last = len(data) - (data.rindex(b"\n", 0, -1) + 1)
    whole_cuts = header + lines  # inside the header nothing has been written yet
    assert found.counts["cut"] == {
        Verdict.WHOLE: whole_cuts,
        Verdict.TORN: len(data) + 1 - whole_cuts,
    }
    assert found.counts["flip"] == {Verdict.TORN: last, Verdict.REFUSED: len(data) - last}
    assert found.named == len(data) - last - header
    assert found.resumed == lines - 1  # as many as there are states before the end
    assert len(found.cuts) == len(data) + 1 and len(found.flips) == len(data)


def test_sweep_names_the_lines_of_a_file(tmp_path: Path) -> None:
    data = finished(tmp_path / "j")
    found = sweep_journal(data, max_bytes=10)
    words = [word for _, word in found.lines]
    assert words == ["header", "admitted", "claimed", "step think", "effect charge", "completed"]
    assert all(at == 0 or data[at - 1 : at] == b"\n" for at, _ in found.lines)
    assert found.notes == (f"One byte in {-(-len(data) // 10)} was damaged.",)
    assert Verdict.UNTRIED in found.flips


@pytest.mark.slow
def test_every_single_bit_of_a_file_is_told_or_refused(tmp_path: Path, figure: Any) -> None:
    data = finished(tmp_path / "j")
    found = sweep_journal(data, short_in, bits=True)
    figure(f"sweep: {len(data) * 9 + 1:,} damaged copies of a file in {found.seconds:.1f} s")
    assert found.ok, str(found)
    assert sum(found.counts["flip"].values()) == 8 * len(data)


@pytest.mark.parametrize("make", [agent_in, approval_in])
@pytest.mark.slow
def test_whatever_a_cut_left_of_a_run_ends_as_it_did(
    tmp_path: Path, make: Callable[[Ledger], Workflow], figure: Any
) -> None:
    path = tmp_path / "j"
    if make is approval_in:
        with FileJournal(path) as journal:
            waited(journal)
    else:
        finished(path, make)
    found = sweep_journal(path, make)
    figure(f"sweep {make.__name__}: {found.size:,} bytes, {found.seconds:.1f} s")
    assert found.ok, str(found)
    assert found.resumed >= path.read_bytes().count(b"\n") - 2


def test_file_with_a_torn_tail_is_swept_as_it_stands(tmp_path: Path) -> None:
    data = finished(tmp_path / "j")[:-9]
    found = sweep_journal(data)
    assert found.ok, str(found)
    assert found.lines[-1][1] == "torn"


def test_original_is_read_once_and_never_touched(tmp_path: Path) -> None:
    path = tmp_path / "j"
    data = finished(path)
    path.chmod(0o444)
    with FileJournal(path, read_only=True):
        found = sweep_journal(path, max_bytes=40)
    assert found.ok and path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


def test_journal_that_is_damaged_already_is_refused(tmp_path: Path) -> None:
    data = finished(tmp_path / "j")
    with pytest.raises(JournalCorruptError):
        sweep_journal(damaged(data, 100, 1))
    with pytest.raises(NotAJournalError):
        sweep_journal(b"a poem, not a journal\n")
    with pytest.raises(FileNotFoundError):
        sweep_journal(tmp_path / "none")


# ---- a journal that lies is found --------------------------------------------------------------


def reading(monkeypatch: pytest.MonkeyPatch, journal: Callable[[Path], Any]) -> None:
    monkeypatch.setattr(sweep, "FileJournal", journal)


class Forged:
    """A journal that changes what another one tells, or how it refuses."""

    def __init__(self, path: Path, change: Callable[[FileJournal], None]) -> None:
        self._inner = FileJournal(path)
        change(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> Any:
        return self._inner

    def __exit__(self, *_: object) -> None:
        self._inner.close()


def test_journal_that_loses_its_torn_bytes_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(journal: FileJournal) -> None:
        for aside in journal.path.parent.glob("*.torn-*"):
            aside.unlink()

    data = finished(tmp_path / "j")
    reading(monkeypatch, lambda path: Forged(path, lose))
    found = sweep_journal(data, max_bytes=200)
    assert {one.said for one in found.wrong} == {
        "the torn bytes are not kept aside, or nobody says so"
    }
    assert len(found.wrong) == found.counts["cut"][Verdict.WRONG] + found.counts["flip"]["WRONG"]


def test_refusal_that_names_another_event_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(path: Path) -> FileJournal:
        try:
            return FileJournal(path)
        except JournalCorruptError as error:
            raise JournalCorruptError("damaged", error.run_id, (error.seq or 0) + 1) from error

    data = finished(tmp_path / "j")
    reading(monkeypatch, opened)
    found = sweep_journal(data, max_bytes=200)
    assert found.wrong[0].said.startswith("the damage is at run r-1, event 1, but it said: run r-1")
    assert all(one.mask for one in found.wrong)


def test_traceback_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(path: Path) -> FileJournal:
        path.read_bytes().decode("ascii")
        return FileJournal(path)

    data = finished(tmp_path / "j")
    reading(monkeypatch, opened)
    found = sweep_journal(data, max_bytes=200)
    assert found.wrong and found.wrong[0].said.startswith("it raised UnicodeDecodeError")


def test_checksum_that_nobody_checks_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real journal, with a line's own checksum made to fit whatever stands there."""
    data = finished(tmp_path / "j")

    def opened(path: Path) -> FileJournal:
        lines = path.read_bytes().split(b"\n")
        fitting = [_fitting(line) for line in lines[1:-1]]
        path.write_bytes(b"\n".join([lines[0], *fitting, lines[-1]]))
        return FileJournal(path)

    reading(monkeypatch, opened)
    found = sweep_journal(data, max_bytes=200)
    said = {one.said for one in found.wrong}
    assert any("opened, with line" in text for text in said)


def _fitting(line: bytes) -> bytes:
    """The line with a length and a checksum that fit its body, if that is JSON at all."""
    body = line[len('["00000000","00000000",') : -1]
    try:
        json.loads(body)
    except ValueError:
        return line
    length = b"%08x" % len(body)
    return b'["%s","%08x",%s]' % (length, crc32(length + body), body)


def test_state_that_ends_otherwise_when_it_is_resumed_is_found(tmp_path: Path) -> None:
    def other(world: Ledger) -> Workflow:
        @workflow(version="1")
        def short(ctx: Context, order: str) -> str:
            ctx.step("think", lambda: "yes")
            return str(ctx.effect("charge", world.charge, order, 1)).upper()

        return short

    data = finished(tmp_path / "j")
    found = sweep_journal(data, other, max_bytes=200)
    assert "recorded was completed, result" in found.wrong[0].said
    assert {one.mask for one in found.wrong} == {0, 0xFF}


# ---- a database --------------------------------------------------------------------------------


def database(path: Path) -> Path:
    agent = short_in(Ledger())
    with SQLiteJournal(path) as journal:
        Engine(journal, [agent], clock=FakeClock(START_S)).run(agent, "t-1", run_id="r-1")
    return path


def test_damaged_database_tells_the_truth_or_refuses(tmp_path: Path) -> None:
    """It tells no event that was never written, and loses none unnoticed."""
    path = database(tmp_path / "j.db")
    data = path.read_bytes()
    found = sweep_journal(path, short_in, max_bytes=1_000)
    assert found.wrong == ()
    assert found.kind == "sqlite" and found.notes[0].endswith("evenly spread ones.")
    assert found.named > 0 and found.counts["flip"][Verdict.REFUSED] > 0
    assert path.read_bytes() == data and list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_every_byte_of_a_database_is_told_or_refused(tmp_path: Path, figure: Any) -> None:
    path = database(tmp_path / "j.db")
    found = sweep_journal(path, short_in, max_bytes=path.stat().st_size)
    figure(f"sweep of a database: {found.size:,} bytes, {found.seconds:.1f} s")
    assert found.ok, str(found)


def test_event_of_a_database_can_be_flipped_nowhere(tmp_path: Path) -> None:
    path = database(tmp_path / "j.db")
    found = sweep_journal(path, max_bytes=1)
    data = path.read_bytes()
    with SQLiteJournal(path) as journal:
        texts = [event.text.encode() for event in Engine(journal).history("r-1")]
    for text in texts:
        at = data.index(text)
        assert set(found.flips[at : at + len(text)]) == {Verdict.REFUSED}


def test_open_database_is_swept_with_its_log(tmp_path: Path) -> None:
    path, agent = tmp_path / "j.db", short_in(Ledger())
    with SQLiteJournal(path) as journal:
        Engine(journal, [agent], clock=FakeClock(START_S)).run(agent, "t-1", run_id="r-1")
        before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
        found = sweep_journal(path, max_bytes=1)
        assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before
    assert found.size == path.stat().st_size


# ---- the report --------------------------------------------------------------------------------


def test_report_prints_the_counts_and_what_was_wrong(tmp_path: Path) -> None:
    found = sweep_journal(finished(tmp_path / "j"), short_in, max_bytes=200)
    told = str(found)
    assert told.startswith(f"file journal of {found.size:,} bytes: ")
    refused = found.counts["flip"][Verdict.REFUSED]
    assert f"{found.named} of {refused} refusals name the run and the event." in told
    assert f"{found.resumed} recovered states were resumed, and ended as recorded." in told
    page = found._repr_html_()
    assert page.count('scope="row"') == 4 and "none of them wrong" in page


def test_damage_can_be_made_again_from_its_line() -> None:
    assert damaged(b"abc", 1) == b"a"
    assert damaged(b"abc", 2, 0x20) == b"abC"


def test_progress_of_a_sweep_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    sweep_journal(finished(tmp_path / "j"), max_bytes=20, progress=lambda *done: told.append(done))
    assert told[-1][0] == told[-1][1] == len(told)
