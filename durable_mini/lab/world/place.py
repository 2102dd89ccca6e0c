"""A running world: in a thread of this process, or as a process of its own that can be killed.

Guarantees: when the block is left nothing of it runs on; a process of its own ends with its
parent, whatever that died of. What was answered stays in the file, for the next world on it. Leaves
to others: who asks it (`client`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from threading import Thread
from typing import Any

from durable_mini.lab.ledger import LedgerRow
from durable_mini.lab.world.books import Books
from durable_mini.lab.world.endpoints import BY_NAME
from durable_mini.lab.world.receiver import Receiver
from durable_mini.lab.world.server import Server
from durable_mini.lab.world.switches import Setting, Switches

POLL_S = 0.02

StrPath = str | os.PathLike[str]


class World:
    """A world that runs, and its books; made by `serving` or `spawned`.

    Attributes: `url` (where a `Client` asks), `books` (its file, open for reading).
    """

    def __init__(self, url: str, books: Books) -> None:
        self.url, self.books = url, books

    @classmethod
    @contextmanager
    def serving(
        cls, path: StrPath, switches: Setting = None, *, port: int = 0
    ) -> Iterator[ServingWorld]:
        """Serve from a thread of this process, until the block is left.

        Args:
            path: the file with the books; it is created where it doesn't exist, and gone on with
                where it does.
            switches: how endpoints misbehave: those of all effects, or by endpoint.
            port: where to listen; 0 takes a free one.

        Raises:
            ValueError: the path holds something else, or there is no such endpoint.
            OSError: the port is taken.

        Crash:
            What was answered is in the file; what wasn't has happened or hasn't, never half.
        """
        with Books(path) as books:
            receiver = Receiver(books, switches)
            with Server(receiver, port) as server:
                thread = Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
                thread.start()
                try:
                    yield ServingWorld(server.url, books, receiver)
                finally:
                    receiver.stop()
                    server.shutdown()
                    thread.join()

    @classmethod
    @contextmanager
    def spawned(
        cls, path: StrPath, switches: Setting = None, *, port: int = 0
    ) -> Iterator[SpawnedWorld]:
        """Serve from a process of its own, which can be killed and started again; as `serving`.

        Raises:
            RuntimeError: the process doesn't come up; its last line says why.
        """
        with Books(path) as books:
            world = SpawnedWorld(books, switches, port)
            try:
                world.start()
                yield world
            finally:
                world.kill()

    def rows(self, endpoint: str | None = None, order: str | None = None) -> list[LedgerRow]:
        """What took effect, in order: all of it, or that of one endpoint, of one order."""
        return self.books.rows(endpoint, order)

    def standing(self) -> list[LedgerRow]:
        """What took effect and wasn't taken back."""
        return self.books.standing()

    def repeats(self, endpoint: str | None = None, order: str | None = None) -> int:
        """The duplicates: rows beyond the first of one endpoint and order; voids don't count."""
        return self.books.repeats(endpoint, order)

    def spent(self, account: str | None = None) -> float:
        """What the model billed, to everybody or to one account."""
        return self.books.spent(account)


class ServingWorld(World):
    """A world in a thread of this process."""

    def __init__(self, url: str, books: Books, receiver: Receiver) -> None:
        super().__init__(url, books)
        self._receiver = receiver

    def switch(self, switches: Setting) -> None:
        """From the next request on, let endpoints behave like this; others stay as they are.

        Raises:
            ValueError: there is no such endpoint; nothing was switched.
        """
        self._receiver.switch(switches)


class SpawnedWorld(World):
    """A world in a process of its own.

    Attributes: as `World`; `pid` of the process that serves, or served last.
    """

    def __init__(self, books: Books, switches: Setting, port: int) -> None:
        super().__init__("", books)
        self._switches, self._port = switches, port
        self._process: subprocess.Popen[str] | None = None
        self.pid = 0

    def start(self) -> None:
        """Start a process unless one runs: on the same books and, after the first, the same url.

        Raises:
            RuntimeError: it doesn't come up; its last line says why.
        """
        if self._process is not None:
            return
        self._process = process = subprocess.Popen(  # noqa: S603 - this package itself
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the parent, which ends it in its own time
        )
        self.pid = process.pid
        self.url = (process.stdout.readline() if process.stdout else "").strip()
        if not self.url:
            _, complaint = process.communicate()
            self._process = None
            said = (complaint.strip().splitlines() or ["nothing was said"])[-1]
            raise RuntimeError(f"the world's process ended: {said}")
        self._port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """End the process with SIGKILL, wherever it stands; do nothing if none runs."""
        if self._process is None:
            return
        self._process.kill()
        self._process.communicate()
        self._process = None

    def _command(self) -> list[str]:
        own = [sys.executable, "-m", __package__, os.fspath(self.books.path)]
        told = {"--port": str(self._port), "--parent": str(os.getpid())}
        if self._switches is not None:
            told["--switches"] = json.dumps(_as_json(self._switches))
        return own + [f"{name}={value}" for name, value in told.items()]


def _as_json(switches: Setting) -> dict[str, dict[str, Any]]:
    """What `switches_from` reads; what is as ever isn't said, infinity has no JSON."""
    if isinstance(switches, Switches):
        switches = dict.fromkeys(BY_NAME, switches)
    usual = asdict(Switches())
    return {
        endpoint: {name: value for name, value in asdict(one).items() if value != usual[name]}
        for endpoint, one in (switches or {}).items()
    }
