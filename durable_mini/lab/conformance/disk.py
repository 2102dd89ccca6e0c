"""The disk of the kit's machine: what is on it, and what a power cut would leave of it.

Guarantees: a sync is noted and nothing is synced, since processes die here and no machine does.
Leaves to others: when to look, and to hear of a sync (`surroundings`). That a file was made,
renamed or removed is taken as synced; what SQLite writes too, since it asks the operating system
itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

Files = dict[str, bytes]  # by their paths in the folder


class Disk:
    """A folder that can be read whole and laid out anew.

    Args:
        folder: for this disk alone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._synced: dict[int, bytes] = {}  # by file: what was in it when it was last synced

    def files(self) -> Files:
        """What is on the disk, without what is only a process's memory of it (`-shm`)."""
        return {name: _bytes_of(entry) for name, entry in self._entries(self.folder)}

    def spared(self) -> Files:
        """What a power cut spares: of each file what was in it when it was last synced."""
        files, own = self.files(), dict[str, bytes]()
        for name, entry in self._entries(self.folder):
            if of_sqlite(name, files):
                own[name] = files[name]
            elif entry.inode() in self._synced:
                own[name] = self._synced[entry.inode()]
        return own

    def lay_out(self, files: Files) -> None:
        """Put these files on the disk, and nothing else; they are synced."""
        self._synced.clear()
        for path in self.folder.iterdir():
            rmtree(path) if path.is_dir() else path.unlink()
        for name, data in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            self._synced[path.stat().st_ino] = data

    def synced(self, inode: int) -> None:
        """Note that a file was synced, as it is now."""
        for _, entry in self._entries(self.folder):
            if entry.inode() == inode:
                with suppress(FileNotFoundError):  # another process has just removed it
                    self._synced[inode] = _bytes_of(entry)

    def _entries(self, folder: str | Path, within: str = "") -> Iterator[tuple[str, Entry]]:
        """Every file with its path in the folder, in the order of the names."""
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            if entry.is_dir():
                yield from self._entries(entry.path, f"{within}{entry.name}/")
            elif not entry.name.endswith("-shm"):
                yield within + entry.name, entry


Entry = os.DirEntry[str]


def of_sqlite(name: str, files: Files) -> bool:
    """Whether a file is a SQLite database, or the log of one."""
    database = files.get(name.removesuffix("-wal").removesuffix("-journal"), b"")
    return database.startswith(b"SQLite format 3\0")


def _bytes_of(entry: Entry) -> bytes:
    with open(entry.path, "rb", buffering=0) as file:  # noqa: PTH123 - often: the quickest way
        return file.read()
