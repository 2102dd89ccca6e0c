"""A journal in one append-only file of JSON lines, small enough to be read by eye.

Guarantees: a returned append is on the disk. One line is one transaction, with its length and a
CRC-32 over both, so that a file cut at any byte keeps every whole line, and damage before the last
line is refused, naming run and event. The file is locked while it is open. Leaves to others: many
processes at once, and journals that don't fit in memory (`SQLiteJournal` does both).

    {"format":"durable_mini journal","version":1}
    ["<length>","<checksum>",[1,[],["run","r-1",1,…],["event","r-1",1,1,"admitted",…]]]
    ["<length>","<checksum>",[2,["r-1",1],["event","r-1",1,2,"step",…]]]

A line has a number and says whose the line before it was (a run, its generation), so that damage
has a name even where the damaged bytes tell nothing. Then come its entries: `run` is how a run
stands from here on (one that is pruned loses its events), `event` is one more event.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any
from zlib import crc32

from durable_mini.errors import JournalCorruptError, NotAJournalError
from durable_mini.events import Event, RunRow, log
from durable_mini.journal import OnDisk, row_from
from durable_mini.journal.memory import MemoryJournal

_HEADER = b'{"format":"durable_mini journal","version":1}\n'
_HEAD = re.compile(rb'\["[0-9a-f]{8}","[0-9a-f]{8}",')  # begins a line, and nothing inside one


class FileJournal(OnDisk, MemoryJournal):
    """Runs in one file, read whole at opening and mirrored in memory; one opener at a time.

    An append that was cut off is set aside at the next opening, in a file beside the journal:
    `torn` tells, and a warning is logged. Pruning is one more line: the bytes stay in the file.

    Args:
        path: the file; it is created where it doesn't exist, its folder is not.
        read_only: look at the file as it stands: no lock, nothing cut, nothing created.

    Raises:
        NotAJournalError: the path holds something else, or a journal of another format version.
        JournalCorruptError: a line before the last is damaged or missing.
        StorageError: the file can't be opened or created, or it is open elsewhere.
    Crash:
        An append is there whole or not at all, wherever it stopped.
    """

    torn: str | None = None

    def _begin(self, opened: ExitStack, read_only: bool) -> None:
        self._next: list[Any] = [1, []]  # what the next line begins with
        self._file = opened.enter_context(FileIO(self.path, "r" if read_only else "a+"))
        if not read_only:
            with suppress(ImportError):  # a platform without locks goes without
                import fcntl  # noqa: PLC0415

                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                opened.callback(fcntl.flock, self._file, fcntl.LOCK_UN)  # or a fork's child has it
        self._file.seek(0)
        data, at = self._file.readall(), len(_HEADER)
        if data[:at] != _HEADER[: len(data)]:
            reason = f"it begins {data[:at]!r}, this engine reads {_HEADER!r}"
            raise self._error(NotAJournalError, reason)
        if len(data) < at and not read_only:  # new, or its creation was cut off
            _sync_folder(self.path)  # first: a whole header says that the file has its name
            _store(self._file, _HEADER[len(data) :])
        while at < len(data):
            line, size = _line_at(data, at)
            if not line and not _HEAD.search(data, at + 1):
                self._tear_off(data, at, read_only)
                break
            if line[:2] != self._next:  # whose was it? The next whole line tells
                why = f"line {self._next[0] + 1}, at offset {at}, is damaged or missing"
                later = (_line_at(data, head.start())[0] for head in _HEAD.finditer(data, at))
                run_id, generation = next((one[1] for one in later if one and one[1]), (None, 0))
                seq = len(self._events[run_id, generation]) + 1 if run_id else None
                raise JournalCorruptError(f"{self.path}: {why}", run_id, seq)
            self._take(line)
            at += size

    def _tear_off(self, data: bytes, at: int, read_only: bool) -> None:
        """Crash: the tail stays in the journal until a copy of it is on the disk."""
        tail = data[at:]
        self.torn = f"the last {len(tail)} bytes, from offset {at} on, are no whole line"
        if not read_only:
            aside = self.path.with_name(f"{self.path.name}.torn-{at}-{crc32(tail):08x}")
            with FileIO(aside, "w") as file:  # what may stand there is the same, or a part of it
                _store(file, tail)
            _sync_folder(aside)
            self._file.truncate(at)  # durable with the next append; till then there are two copies
            self.torn += f"; they are in {aside} now"
        log.getChild("journal").warning("%s: %s", self.path, self.torn)

    def integrity(self) -> list[str]:
        """See `Journal.integrity`: the file is read again."""
        with self._alone(), FileJournal(self.path, read_only=True) as found:
            lost: int = self._next[0] - found._next[0]
            return [f"the last {lost} lines of the file are lost"] if lost > 0 else []

    def _put(self, row: RunRow) -> None:
        self._draft.append(["run", *row])

    def _insert(self, row: RunRow, event: Event) -> None:
        self._draft.append(["event", *row[:2], *event])

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Reads inside see what was there before: no operation reads what it has written.

        Crash: a line that isn't whole is torn off at the next opening.
        """
        with self._alone(writing=True):
            self._draft = [*self._next]
            yield
            if len(self._draft) > 2:
                # Where an interruption leaves it, only the file can tell.
                self._closed = "was interrupted in the middle of an append"
                _store(self._file, _framed(json.dumps(self._draft, separators=(",", ":")).encode()))
                self._take(self._draft)
                self._closed = ""

    def _take(self, line: list[Any]) -> None:
        """Bring what is in memory to where a line leaves it."""
        self._next = [line[0] + 1, line[2][1:3]]
        for what, *values in line[2:]:
            if what == "run":
                super()._put(row_from(values))
            elif what == "event":
                row = self._rows[values[0]]._replace(generation=values[1])
                super()._insert(row, Event(*values[2:]))


def _store(file: FileIO, data: bytes) -> None:
    """Append to a file and come back when it is on the disk."""
    while data:  # the operating system may take it in parts
        data = data[file.write(data) :]
    sync(file.fileno())


def sync(descriptor: int) -> None:
    """Come back when a file's bytes, or a folder's names, are on the disk."""
    os.fsync(descriptor)
    with suppress(ImportError):  # only macOS has it: there fsync stops at the drive's cache
        from fcntl import F_FULLFSYNC, fcntl  # type: ignore[attr-defined] # noqa: PLC0415

        fcntl(descriptor, F_FULLFSYNC)


def _sync_folder(path: Path) -> None:
    with ExitStack() as opened:
        folder = os.open(path.resolve().parent, os.O_RDONLY)
        opened.callback(os.close, folder)
        sync(folder)


def _framed(body: bytes) -> bytes:
    length = b"%08x" % len(body)
    return b'["%s","%08x",%s]\n' % (length, crc32(length + body), body)


def _line_at(data: bytes, at: int) -> tuple[list[Any], int]:
    """What the line at an offset says, and its length; nothing if a byte of it isn't as written."""
    line = data[at : data.find(b"\n", at) + 1]
    body = line.split(b",", 2)[-1][:-2]
    return json.loads(body) if line == _framed(body) else [], len(line)
