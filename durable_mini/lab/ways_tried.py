"""What each way out of a receiver without keys prevents, and what it leaves: found by trying.

Guarantees: every cell of the table is counted in the receiver's books after real requests to a real
world, with the deaths that its row names, each at every effect of the reference agent. Nothing in
it depends on how fast the machine is. Leaves to others: the ways themselves (`ways_out`), and real
kills, which the tests add.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier
from typing import Any, NamedTuple

from durable_mini.engine import Engine
from durable_mini.events import EventKind, Position
from durable_mini.journal.memory import MemoryJournal
from durable_mini.lab.agent import agent_in
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.lab.keys import drive
from durable_mini.lab.ledger import AMOUNT, LedgerRow
from durable_mini.lab.shape import REFERENCE_SHAPE
from durable_mini.lab.ways_out import AskFirst, Inbox, Outbox, Wrapper, relay
from durable_mini.lab.world import Client, NotNowError, Sender, Switches, World

EFFECTS = tuple(spec.name for spec in REFERENCE_SHAPE if spec.kind == "effect")

_MEETING_LIMIT_S = 30.0

Request = tuple[str, str, Any, str]
"""What `post` takes: endpoint, order, body, key."""


class Tried(NamedTuple):
    """What a way came to under one trouble.

    `runs` is how many runs met that trouble, each with an order and three effects; `duplicates` are
    effects beyond the first of their kind for an order, `lost` those that never happened although
    their run completed.
    """

    way: str
    trouble: str
    runs: int
    duplicates: int
    lost: int


class Mortal(Client):
    """A process that posts, and dies at its n-th request: `dies` says where.

    "before" the receiver hears of it; when it is "done"; or "under way", so that the request comes
    to the receiver later, when others have long gone on: whoever made it calls `deliver`.

    Args:
        url: where the world is.
        dies: where in the request.
        at: which request, from 1; 0 is none.
        receiver: who gets the requests, if it isn't the world.
    """

    def __init__(
        self, url: str, dies: str = "done", at: int = 0, receiver: Sender | None = None
    ) -> None:
        super().__init__(url)
        self.receiver = receiver or Client(url)
        self._dies, self._at, self._requests = dies, at, 0
        self._under_way: list[Request] = []

    def post(self, endpoint: str, order: str, body: Any, key: str) -> str:
        """See `Client.post`; for one request it is the last thing that this process does."""
        self._requests += 1
        request = endpoint, order, body, key
        if self._requests != self._at:
            return self.receiver.post(*request)
        if self._dies == "done":
            self.receiver.post(*request)
        elif self._dies == "under way":
            self._under_way.append(request)
        raise InjectedCrash(Position.WINDOW, EventKind.EFFECT, endpoint)

    def deliver(self) -> None:
        """Let what was under way arrive."""
        for request in self._under_way:
            self.receiver.post(*request)


class Hesitant(Client):
    """Hears the answer to a question, and goes on when another one has heard it too."""

    def __init__(self, url: str, both_heard: Barrier) -> None:
        super().__init__(url)
        self._both_heard = both_heard

    def rows_of(self, order: str, endpoint: str | None = None) -> list[LedgerRow]:
        """See `Client.rows_of`."""
        heard = super().rows_of(order, endpoint)
        self._both_heard.wait()
        return heard


class _Way(NamedTuple):
    """How effects get out: who sends them, who receives, and what happens when the run is over."""

    sender: Callable[[Client, Path], Sender] = lambda client, _: client
    finish: Callable[[Any, Client], Any] = lambda _sender, _client: None
    receiver: Callable[[Client, Path], Sender | None] = lambda _client, _folder: None
    honours_keys: bool = False


def _outbox(client: Client, folder: Path) -> Outbox:
    return Outbox(client, folder / "outbox.db")


def _inbox(client: Client, folder: Path) -> Inbox:
    return Inbox(client, folder / "inbox.db")


def _relay_asking(outbox: Outbox, client: Client) -> None:
    relay(outbox, AskFirst(client))


WAYS = {
    "nothing": _Way(),
    "ask first": _Way(lambda client, _: AskFirst(client)),
    "outbox": _Way(_outbox, relay),
    "outbox, marked first": _Way(_outbox, partial(relay, mark_first=True)),
    "outbox, relay asks first": _Way(_outbox, _relay_asking),
    "wrapper": _Way(lambda client, folder: Wrapper(client, folder / "wrapper.db")),
    "receiver de-duplicates": _Way(receiver=_inbox),
    "receiver honours keys": _Way(honours_keys=True),
}
"""What may be done about a receiver that ignores keys; the last two are other receivers."""


class _Place(NamedTuple):
    """Where a way is tried: a world, and a folder for databases of our own."""

    way: _Way
    url: str
    folder: Path

    def run(self, order: str, probe: Any = None, **death: Any) -> None:
        """Let an agent work on an order, and whoever comes after it, until nobody dies any more."""
        client = Mortal(self.url, **death)
        client.receiver = self.way.receiver(client, self.folder) or client.receiver
        sender = self.way.sender(client, self.folder)
        agent = agent_in(sender)
        engine = Engine(MemoryJournal(), [agent], probe=probe)
        drive(engine, engine.start(agent, order, run_id=order))
        self._finish(sender, client)
        client.deliver()

    def _finish(self, sender: Sender, client: Client) -> None:
        try:
            self.way.finish(sender, client)
        except InjectedCrash:
            self.way.finish(sender, client)

    def send_twice_at_once(self, order: str, endpoint: str) -> None:
        """Let two workers, one of which should be dead, post the same effect at the same time."""
        both_heard = Barrier(2, timeout=_MEETING_LIMIT_S)
        body = AMOUNT if endpoint == "charge" else "hello"

        def post(_: int) -> None:
            client = Hesitant(self.url, both_heard)
            to = self.way.receiver(client, self.folder) or self.way.sender(client, self.folder)
            with suppress(NotNowError):  # the other one's request is under way
                to.post(endpoint, order, body, f"{order}/{endpoint}")

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(post, range(2)))
        client = Client(self.url)
        self.way.finish(self.way.sender(client, self.folder), client)


def _worker_dies(place: _Place) -> int:
    deaths = list(product(EFFECTS, Position))
    for number, (effect, position) in enumerate(deaths):
        place.run(f"o-{number}", CrashAt(effect, position))
    return len(deaths)


def _poster_dies(place: _Place, dies: str) -> int:
    for number in range(1, len(EFFECTS) + 1):
        place.run(f"o-{number}", dies=dies, at=number)
    return len(EFFECTS)


def _two_at_once(place: _Place) -> int:
    for endpoint in EFFECTS:
        place.send_twice_at_once("o-1", endpoint)
    return 1


TROUBLES: dict[str, Callable[[_Place], int]] = {
    "a worker dies": _worker_dies,
    "who posts dies before": partial(_poster_dies, dies="before"),
    "who posts dies when it is done": partial(_poster_dies, dies="done"),
    "who posts dies, the request arrives late": partial(_poster_dies, dies="under way"),
    "two workers at once": _two_at_once,
}
"""What may go wrong; each gives the number of runs to which it happened."""


def try_way(way: str, trouble: str) -> Tried:
    """Let runs get into a trouble, and count what the receiver has in its books.

    Args:
        way: one of `WAYS`.
        trouble: one of `TROUBLES`.

    Raises:
        KeyError: there is no such way, or no such trouble.
    """
    chosen = WAYS[way]
    switches = Switches(ignores_keys=not chosen.honours_keys)
    with TemporaryDirectory() as name, World.serving(Path(name, "world.db"), switches) as world:
        runs = TROUBLES[trouble](_Place(chosen, world.url, Path(name)))
        rows = world.rows()
        if chosen.receiver is _inbox:
            rows = _inbox(Client(world.url), Path(name)).rows()
        happened = {(row.endpoint, row.order) for row in rows}
        lost = runs * len(EFFECTS) - len(happened)
        return Tried(way, trouble, runs, len(rows) - len(happened), lost)


def try_all() -> list[Tried]:
    """Every way under every trouble."""
    return [try_way(way, trouble) for way in WAYS for trouble in TROUBLES]
