"""What the machine needs of the place where an engine's code runs: here, the process of the kit.

Guarantees: the machine asks for nothing else, so that an engine may run elsewhere (a factory then
has `surroundings` of its own, with these methods). Leaves to others: what is done with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

from durable_mini.lab.conformance.disk import Disk
from durable_mini.lab.conformance.watching import Look, watching


class Surroundings:
    """An engine's code runs in this process, in the thread that calls."""

    def watching(self, look: Look) -> AbstractContextManager[None]:
        """Within the block look before each line of the engine's code, and at each return."""
        return watching(look)

    @contextmanager
    def noting_syncs(self, disk: Disk) -> Iterator[None]:
        """Within the block Python's syncs are noted, and nothing is synced."""

        def sync(file: Any) -> None:
            disk.synced(os.fstat(file).st_ino)

        with patch.object(os, "fsync", sync), patch.object(os, "fdatasync", sync, create=True):
            yield

    @contextmanager
    def full_disk(self) -> Iterator[Callable[[], None]]:
        """Within the block, the call of what it gives makes the system refuse the engine's writes.

        Raises:
            ImportError: the platform can't.
        """
        import resource  # noqa: PLC0415 - not on every platform

        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    def is_asleep(self, thread: Thread) -> bool:
        """Whether the engine that this thread drives waits for somebody.

        Where the system doesn't say who sleeps, nobody does.
        """
        with suppress(OSError):  # it has ended, or there is no such file here
            state = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
            return state.rpartition(") ")[2][0] == "S"
        return False
