"""Three ways to live with a receiver that ignores idempotency keys, each a few lines to imitate.

    AskFirst    look up what the order has already, and post only what is missing
    Outbox      note the effect in a database of our own, once; one relay posts what is noted
    Inbox       the receiver does its work in the transaction that notes the key
    Wrapper     as `Inbox`, around a receiver that isn't ours

Guarantees: each is a world for the reference agent, `agent_in(AskFirst(client))`, and each says
which duplicates it prevents and what window is left. Only `Inbox` leaves none, and that only for
work in its own database. Leaves to others: showing all this by experiment (`ways_tried`).
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from durable_mini.lab.ledger import LLM_COST, KeyReusedError, LedgerRow
from durable_mini.lab.world import Client, Sender
from durable_mini.lab.world.endpoints import receipt

StrPath = str | os.PathLike[str]

_LOCK_WAIT_S = 30.0
_NOTES = """CREATE TABLE IF NOT EXISTS notes (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, request TEXT NOT NULL,
    posted INTEGER NOT NULL DEFAULT 0
)"""
_BOOKINGS = (
    "CREATE TABLE IF NOT EXISTS bookings (number INTEGER PRIMARY KEY, request TEXT NOT NULL)"
)
_NOTE = "INSERT OR IGNORE INTO notes (key, request) VALUES (?, ?)"


class Way(Sender):
    """A detour for effects; the model is asked as ever."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def think(self, task: str, about: Any, price: float = LLM_COST) -> str:
        """See `Client.think`."""
        return self.client.think(task, about, price)


class AskFirst(Way):
    """Asks the receiver before each request, and posts only what isn't there.

    Prevents the duplicate of a sender that died after its request had taken effect. Left is the
    time between asking and being booked: two senders that ask at the same time both hear "no", and
    so does one that asks while the request of a dead one is still under way. And it takes a second
    charge that the order really is to have for a repeat.
    """

    def post(self, endpoint: str, order: str, body: Any, key: str) -> str:
        """Post unless the order has it.

        Crash:
            The next attempt asks again.
        """
        if self.client.rows_of(order, endpoint):
            return receipt(endpoint, order)
        return self.client.post(endpoint, order, body, key)


class Outbox(Way):
    """Notes what is to be posted, in a database of our own where a key is unique; posts nothing.

    Prevents the duplicates of senders, however often they die and however many there are. What is
    left is the relay's own window. The workflow gets a receipt for the note, not for the effect: it
    doesn't hear that a card was refused, unless it waits for a signal that the relay sends.

    Args:
        client: asks the model.
        path: the database; it is created where it doesn't exist.
    """

    def __init__(self, client: Client, path: StrPath) -> None:
        super().__init__(client)
        self.path = path

    def post(self, endpoint: str, order: str, body: Any, key: str) -> str:
        """Note a request, unless it is noted.

        Raises:
            KeyReusedError: another request is noted under the key.

        Crash:
            Before the commit there is no note; after it the relay knows, whatever becomes of us.
        """
        row = LedgerRow(endpoint, order, body, key)
        with transaction(self.path) as db:
            note_once(db, row)
        return receipt(endpoint, order)

    def waiting(self) -> list[LedgerRow]:
        """What is noted and not marked as posted, in order."""
        with transaction(self.path) as db:
            notes = db.execute("SELECT request FROM notes WHERE NOT posted ORDER BY number")
            return [LedgerRow(*json.loads(request)) for (request,) in notes]

    def mark(self, key: str) -> None:
        """Note that a request was posted."""
        with transaction(self.path) as db:
            db.execute("UPDATE notes SET posted = 1 WHERE key = ?", (key,))


def relay(outbox: Outbox, to: Sender, *, mark_first: bool = False) -> int:
    """Post what waits in an outbox, in order; there is one relay at a time.

    A relay is alone, so it may ask first and nobody asks at the same time: with `to=AskFirst(…)`
    only a request that is still under way when the relay dies is posted twice.

    Args:
        outbox: what to post.
        to: where to.
        mark_first: mark before posting: a relay that dies then loses a request instead of
            repeating it. Without keys there is this choice, and no third.

    Returns:
        How many were posted.

    Raises:
        BlockingIOError: another relay is at work.

    Crash:
        Between posting and marking: the next relay posts it again. This is the window that is left.
    """
    with _alone(f"{os.fspath(outbox.path)}-relay"):
        waiting = outbox.waiting()
        for row in waiting:
            if mark_first:
                outbox.mark(row.key)
            to.post(*row)
            if not mark_first:
                outbox.mark(row.key)
    return len(waiting)


class Inbox(Way):
    """A receiver that de-duplicates: a key and what it stands for are one transaction.

    Prevents every duplicate, of any number of senders, at any moment, as long as its work is done
    in the same database: then the unique key and the work are there together, or neither is.

    Args:
        client: asks the model.
        path: the receiver's database; it is created where it doesn't exist.
    """

    def __init__(self, client: Client, path: StrPath) -> None:
        super().__init__(client)
        self.path = path

    def post(self, endpoint: str, order: str, body: Any, key: str) -> str:
        """Do the work unless the key says that it is done.

        Raises:
            KeyReusedError: the key came with another request.

        Crash:
            Before the commit neither the key nor the work is there, and the next attempt begins
            anew; after it the next one is told that all is done.
        """
        row = LedgerRow(endpoint, order, body, key)
        with transaction(self.path) as db:
            if note_once(db, row):
                self.work(db, row)
        return receipt(endpoint, order)

    def work(self, db: sqlite3.Connection, row: LedgerRow) -> None:
        """What the request is for; here a booking in the same database."""
        db.execute("INSERT INTO bookings (request) VALUES (?)", (json.dumps(row),))

    def rows(self) -> list[LedgerRow]:
        """The bookings, in order."""
        with transaction(self.path) as db:
            bookings = db.execute("SELECT request FROM bookings ORDER BY number")
            return [LedgerRow(*json.loads(request)) for (request,) in bookings]


class Wrapper(Inbox):
    """The same around a receiver that isn't ours: its work is a request, which no rollback undoes.

    Prevents the duplicates of senders, as an outbox does, and hands its own answer on. Left is its
    own death after the request and before the commit: the key is gone then, and the next attempt
    posts again. All who post wait for each other, as long as a request takes.
    """

    def work(self, db: sqlite3.Connection, row: LedgerRow) -> None:
        """Pass the request on."""
        self.client.post(*row)


def note_once(db: sqlite3.Connection, row: LedgerRow) -> bool:
    """Note a request under its key, which is unique; whether it is new.

    Raises:
        KeyReusedError: another request is noted under the key.
    """
    request = json.dumps(row)
    if db.execute(_NOTE, (row.key, request)).rowcount:
        return True
    ((first,),) = db.execute("SELECT request FROM notes WHERE key = ?", (row.key,))
    if first != request:
        raise KeyReusedError(f"key {row.key!r} came first with {first}, now with {request}")
    return False


@contextmanager
def transaction(path: StrPath) -> Iterator[sqlite3.Connection]:
    """All of the block is on the disk when it has been left, or none of it; one at a time.

    Each has a connection of its own, so that threads and forked processes don't share one.
    """
    with closing(sqlite3.connect(path, timeout=_LOCK_WAIT_S, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA fullfsync = ON")
        with db:  # commits, or rolls back
            db.execute("BEGIN IMMEDIATE")
            db.execute(_NOTES)
            db.execute(_BOOKINGS)
            yield db


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Hold a lock that goes with its process, whatever that dies of."""
    import fcntl  # noqa: PLC0415 - not everywhere

    with open(path, "ab") as lock:  # noqa: PTH123 - a name, not a path to work with
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
