"""A journal in one append-only file of JSON lines, small enough to be read by eye.

Guarantees: a returned append is on the disk. One line is one transaction, with its length and a
CRC-32 over both, so that a file cut at any byte keeps every whole line, and damage before the last
line is refused, naming run and event. The file is locked while it is open. Leaves to others: many
processes at once, and journals that don't fit in memory (`SQLiteJournal` does both).

    {"format":"durable_mini journal","version":1}
    ["<length>","<checksum>",[1,null,["run","r-1",1,…],["event","r-1",1,1,"admitted",…]]]
    ["<length>","<checksum>",[2,["r-1",1],["event","r-1",1,2,"step",…]]]

A line has a number and says whose the line before was (a run and its generation), so that damage
has a name even where the damaged bytes tell nothing. Then come the entries: `run` is how a run
stands, `event` is one more event, `pruned` takes a run's events away.
"""

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any
from zlib import crc32

from durable_mini.errors import JournalCorruptError, NotAJournalError, StorageError
from durable_mini.events import Event, EventKind, RunRow, RunStatus
from durable_mini.journal.memory import MemoryJournal

FORMAT_VERSION = 1
_HEADER = b'{"format":"durable_mini journal","version":%d}\n' % FORMAT_VERSION
_HEAD = re.compile(rb'\["([0-9a-f]{8})","[0-9a-f]{8}",')  # begins a line, and nothing inside one
_ANY_RUN = RunRow("", 1, "", "", "", RunStatus.PENDING)


class FileJournal(MemoryJournal):
    """Runs in one file, read whole at opening and mirrored in memory; one opener at a time.

    An append that was cut off is set aside at the next opening, in a file beside the journal:
    `torn` tells, and a warning is logged. Pruning is one more line: the bytes stay in the file.

    Args:
        path: the file; it is created where it doesn't exist, its folder is not.
        read_only: look at the file as it stands: no lock, nothing cut, nothing created.

    Raises:
        NotAJournalError: the path holds something else, or a journal of a newer format.
        JournalCorruptError: a line before the last is damaged or missing.
        StorageError: the file can't be opened or created, or it is open elsewhere.
    Crash:
        An append is there whole or not at all, wherever it stopped.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        super().__init__()
        self.path = Path(path).absolute()
        self.torn: str | None = None
        self._pid = os.getpid()
        self._refusal = "is open for reading only" if read_only else None
        self._lines, self._about = 0, None
        with self._translated():
            if self.path.exists() and not self.path.is_file():
                raise NotAJournalError(path=str(self.path), reason="it is no regular file")
            self._file = FileIO(self.path, "r" if read_only else "a+")
            try:
                self._load(read_only)
            except BaseException:
                self._file.close()
                raise

    def _load(self, read_only: bool) -> None:
        if not read_only:
            _lock(self._file, "LOCK_EX", "LOCK_NB")
        self._file.seek(0)
        data = self._file.readall()
        if _HEADER.startswith(data) and data != _HEADER:  # new, or its creation was cut off
            return None if read_only else self._create(_HEADER[len(data) :])
        if not data.startswith(_HEADER):
            reason = f"it begins {data[: len(_HEADER)]!r}, this engine reads {_HEADER!r}"
            raise NotAJournalError(path=str(self.path), reason=reason)
        at = len(_HEADER)
        while line := _line_at(data, at):
            number, about, *entries = json.loads(line[_BODY])
            if number != self._lines + 1: 
                break
            self._take(entries)
            at += len(line)
        if at < len(data):
            ...
        return None
