"""Three ways out of a receiver that ignores keys: which duplicates each prevents, which it leaves.

The table of `ways_tried` is checked cell by cell; what it shows with injected deaths is shown here
again with processes that are really killed.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest
from children import Child, ChildError

from durable_mini import Engine, MemoryJournal, Position, SQLiteJournal
from durable_mini.lab import agent_in
from durable_mini.lab.ledger import KeyReusedError, LedgerRow
from durable_mini.lab.ways_out import AskFirst, Inbox, Outbox, Wrapper, relay, transaction
from durable_mini.lab.ways_tried import EFFECTS, TROUBLES, WAYS, Tried, try_all, try_way
from durable_mini.lab.world import (
    Client,
    RefusedError,
    Sender,
    SpawnedWorld,
    Switches,
    UnknownOutcomeError,
    World,
)

pytestmark = pytest.mark.slow

IGNORING = Switches(ignores_keys=True)

# Duplicates and losses under each trouble, in the order of `TROUBLES`: a worker dies; who posts
# dies before the receiver hears of it, when it is done, or with the request still to arrive; two
# workers at once.
EXPECTED = {
    "nothing": [(3, 0), (0, 0), (3, 0), (3, 0), (3, 0)],
    "ask first": [(0, 0), (0, 0), (0, 0), (3, 0), (3, 0)],
    "outbox": [(0, 0), (0, 0), (3, 0), (3, 0), (0, 0)],
    "outbox, marked first": [(0, 0), (0, 3), (0, 0), (0, 0), (0, 0)],
    "outbox, relay asks first": [(0, 0), (0, 0), (0, 0), (3, 0), (0, 0)],
    "wrapper": [(0, 0), (0, 0), (3, 0), (3, 0), (0, 0)],
    "receiver de-duplicates": [(0, 0)] * 5,
    "receiver honours keys": [(0, 0)] * 5,
}
RUNS = [9, 3, 3, 3, 1]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpawnedWorld]:
    """A receiver that ignores keys, in a process of its own, since the tests fork."""
    with World.spawned(tmp_path_factory.mktemp("world") / "world.db", IGNORING) as running:
        yield running


@pytest.fixture
def charge(request: pytest.FixtureRequest) -> LedgerRow:
    """A charge of an order that no other test has."""
    return LedgerRow("charge", request.node.name, 40, f"{request.node.name}/charge")


@pytest.fixture
def client(world: SpawnedWorld) -> Client:
    return Client(world.url)


# ---- the table -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_way_prevents_and_leaves_what_it_says(figure: Callable[[str], None]) -> None:
    expected = [
        Tried(way, trouble, runs, *counts)
        for way in WAYS
        for trouble, runs, counts in zip(TROUBLES, RUNS, EXPECTED[way], strict=True)
    ]
    assert try_all() == expected
    figure(f"ways out: {len(expected)} cells, {sum(cell.runs for cell in expected)} runs")


@pytest.mark.parametrize("way", WAYS)
def test_two_workers_at_once_are_one_effect_where_a_key_is_unique(way: str) -> None:
    trouble = "two workers at once"
    assert try_way(way, trouble) == Tried(way, trouble, 1, *EXPECTED[way][-1])


# ---- what each way says of itself ----------------------------------------------------------------


def test_ask_first_takes_a_second_charge_of_an_order_for_a_repeat(
    world: SpawnedWorld, client: Client, charge: LedgerRow
) -> None:
    asking, order = AskFirst(client), charge.order
    asking.post(*charge)
    asking.post(*charge._replace(body=25, key=f"{order}/charge#2"))
    asking.send_email(order, "hello", idempotency_key=f"{order}/send_email")
    asking.charge(f"{order} again", 40, idempotency_key=f"{order} again/charge")
    assert [row.endpoint for row in world.rows(order=order)] == ["charge", "send_email"]
    assert len(world.rows(order=f"{order} again")) == 1


def test_an_outbox_posts_nothing_until_its_relay_does_and_then_once_in_order(
    tmp_path: Path, world: SpawnedWorld, client: Client, charge: LedgerRow
) -> None:
    outbox, order = Outbox(client, tmp_path / "outbox.db"), charge.order
    agent = agent_in(outbox)
    Engine(MemoryJournal(), [agent]).run(agent, order, run_id="r-1")
    noted = outbox.waiting()
    assert world.rows(order=order) == []
    assert [row.key for row in noted] == [f"r-1/{name}" for name in EFFECTS]
    assert (relay(outbox, client), relay(outbox, client)) == (3, 0)
    assert world.rows(order=order) == noted


def test_a_workflow_with_an_outbox_completes_although_the_receiver_refuses(
    tmp_path: Path, client: Client
) -> None:
    outbox = Outbox(client, tmp_path / "outbox.db")
    assert outbox.charge("o-1", "forty", idempotency_key="k")  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="'amount' is of type int"):
        relay(outbox, client)
    assert len(outbox.waiting()) == 1


def test_a_second_relay_is_sent_away_while_one_is_at_work(
    tmp_path: Path, client: Client, charge: LedgerRow
) -> None:
    outbox = Outbox(client, tmp_path / "outbox.db")
    outbox.post(*charge)

    class Meddling(Client):
        def post(self, *request: Any) -> str:
            with pytest.raises(BlockingIOError):
                relay(outbox, client)
            return super().post(*request)

    assert relay(outbox, Meddling(client.url)) == 1
    assert relay(outbox, client) == 0


@pytest.mark.parametrize("kind", [Outbox, Inbox, Wrapper])
def test_a_key_with_another_request_is_refused_by_whoever_notes_keys(
    tmp_path: Path, client: Client, kind: Any, charge: LedgerRow
) -> None:
    way = kind(client, tmp_path / "notes.db")
    assert way.post(*charge) == way.post(*charge)
    with pytest.raises(KeyReusedError, match=r"came first with .*40.*, now with .*41"):
        way.post(*charge._replace(body=41))


def test_work_that_fails_leaves_no_key_behind(
    tmp_path: Path, client: Client, charge: LedgerRow
) -> None:
    class Failing(Inbox):
        broken = True

        def work(self, db: sqlite3.Connection, row: LedgerRow) -> None:
            super().work(db, row)
            if self.broken:
                raise ConnectionError

    inbox = Failing(client, tmp_path / "inbox.db")
    with pytest.raises(ConnectionError):
        inbox.post(*charge)
    assert inbox.rows() == []
    inbox.broken = False
    inbox.post(*charge)
    assert inbox.rows() == [charge]


def test_a_wrapper_hands_on_that_nobody_knows_what_happened(
    tmp_path: Path, charge: LedgerRow
) -> None:
    lossy = Switches(ignores_keys=True, fails_after=1.0)
    with World.serving(tmp_path / "w.db", lossy) as world:
        wrapper = Wrapper(Client(world.url), tmp_path / "wrapper.db")
        for booked in (1, 2):
            with pytest.raises(UnknownOutcomeError):
                wrapper.post(*charge)
            assert len(world.rows()) == booked


def test_notes_are_durable(tmp_path: Path) -> None:
    with transaction(tmp_path / "notes.db") as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    with pytest.raises(ZeroDivisionError), transaction(tmp_path / "notes.db") as db:
        db.execute("INSERT INTO bookings (request) VALUES ('x')")
        raise ZeroDivisionError
    with transaction(tmp_path / "notes.db") as db:
        assert db.execute("SELECT count(*) FROM bookings").fetchone() == (0,)


# ---- real kills ----------------------------------------------------------------------------------

Sending = Callable[[Client, Path], Sender]

SENDERS: dict[str, Sending] = {
    "nothing": lambda client, _: client,
    "ask first": lambda client, _: AskFirst(client),
    "outbox": lambda client, folder: Outbox(client, folder / "outbox.db"),
    "wrapper": lambda client, folder: Wrapper(client, folder / "wrapper.db"),
    "receiver de-duplicates": lambda client, folder: Inbox(client, folder / "inbox.db"),
}


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def killed(work: Callable[[], Any]) -> None:
    """Run something in a process that doesn't survive it."""
    with pytest.raises(ChildError, match=f"wait status {int(signal.SIGKILL)}"):
        Child(work).result()


def attempt(journal: Path, sender: Sender, order: str, kill_at: Any = None) -> str:
    """One worker process's try at an order; it is killed where it is asked to be."""

    def probe(position: Position, _kind: Any, name: str) -> None:
        if (name, position) == kill_at:
            die()

    agent = agent_in(sender)
    with SQLiteJournal(journal) as opened:
        engine = Engine(opened, [agent], probe=probe)
        return engine.resume(engine.start(agent, order, run_id=order)).status


@pytest.mark.slow
@pytest.mark.parametrize("way", SENDERS)
def test_a_worker_killed_at_any_position_of_any_effect_repeats_it_only_with_no_way_out(
    tmp_path: Path, world: SpawnedWorld, client: Client, way: str
) -> None:
    sender, journal = SENDERS[way](client, tmp_path), tmp_path / "journal.db"
    places = [(effect, position) for effect in EFFECTS for position in Position]
    orders = [f"{way}: {effect}, {position}" for effect, position in places]
    for order, kill_at in zip(orders, places, strict=True):
        killed(lambda order=order, kill_at=kill_at: attempt(journal, sender, order, kill_at))
        assert Child(attempt, journal, sender, order).result() == "completed"
    if isinstance(sender, Outbox):
        assert Child(relay, sender, client).result() == 3 * len(places)
    rows = sender.rows() if type(sender) is Inbox else world.rows()
    booked = Counter((row.order, row.endpoint) for row in rows if row.order in orders)
    assert set(booked) == {(order, endpoint) for order in orders for endpoint in EFFECTS}
    in_window = zip(orders, places, strict=True)
    repeated = {(order, effect) for order, (effect, position) in in_window if position == "window"}
    expected = repeated if way == "nothing" else set()
    assert {which for which, count in booked.items() if count > 1} == expected
    assert sum(booked.values()) == len(booked) + len(expected)


class Deadly(Client):
    """A process whose post is its last deed: before the receiver hears of it, or after."""

    def __init__(self, url: str, *, after: bool) -> None:
        super().__init__(url)
        self._after = after

    def post(self, *request: Any) -> str:
        if self._after:
            super().post(*request)
        die()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("mark_first", [False, True])
@pytest.mark.parametrize("asks", [False, True])
def test_a_relay_that_is_killed_repeats_or_loses_or_has_asked(
    tmp_path: Path,
    world: SpawnedWorld,
    client: Client,
    after: bool,
    mark_first: bool,
    asks: bool,
    charge: LedgerRow,
) -> None:
    outbox = Outbox(client, tmp_path / "outbox.db")
    outbox.post(*charge)
    deadly = Deadly(world.url, after=after)

    def to(one: Client) -> Sender:
        return AskFirst(one) if asks else one

    killed(lambda: relay(outbox, to(deadly), mark_first=mark_first))
    relay(outbox, to(client), mark_first=mark_first)
    expected = 1 + (after and not mark_first and not asks) - (mark_first and not after)
    assert len(world.rows(order=charge.order)) == expected
    assert outbox.waiting() == []


@pytest.mark.parametrize(("after", "charges"), [(False, 1), (True, 2)])
def test_a_wrapper_that_is_killed_between_request_and_commit_repeats(
    tmp_path: Path,
    world: SpawnedWorld,
    client: Client,
    after: bool,
    charges: int,
    charge: LedgerRow,
) -> None:
    path = tmp_path / "wrapper.db"
    killed(lambda: Wrapper(Deadly(world.url, after=after), path).post(*charge))
    for _ in range(2):
        Wrapper(client, path).post(*charge)
    assert len(world.rows(order=charge.order)) == charges


@pytest.mark.parametrize("worked", [False, True])
def test_a_receiver_that_is_killed_inside_its_transaction_has_done_nothing(
    tmp_path: Path, client: Client, worked: bool, charge: LedgerRow
) -> None:
    class Dying(Inbox):
        def work(self, db: sqlite3.Connection, row: LedgerRow) -> None:
            if worked:
                super().work(db, row)
            die()

    path = tmp_path / "inbox.db"
    killed(lambda: Dying(client, path).post(*charge))
    inbox = Inbox(client, path)
    assert inbox.rows() == []
    for _ in range(2):
        inbox.post(*charge)
    assert inbox.rows() == [charge]


@pytest.mark.parametrize("kind", [Outbox, Inbox, Wrapper])
def test_processes_that_post_the_same_keys_at_once_leave_one_of_each(
    tmp_path: Path, world: SpawnedWorld, client: Client, charge: LedgerRow, kind: Any
) -> None:
    path, keys = tmp_path / "notes.db", [f"{charge.order}/{number}" for number in range(5)]

    def post_all() -> int:
        way = kind(client, path)
        return len([way.post(*charge._replace(key=key)) for key in keys])

    children = [Child(post_all) for _ in range(4)]
    assert [child.result() for child in children] == [5] * 4
    way = kind(client, path)
    if kind is Outbox:
        relay(way, client)
    rows = way.rows() if kind is Inbox else world.rows(order=charge.order)
    assert sorted(row.key for row in rows) == keys


def test_threads_that_share_an_inbox_all_get_their_booking(tmp_path: Path, client: Client) -> None:
    inbox = Inbox(client, tmp_path / "inbox.db")

    def post(key: str) -> str:
        return inbox.charge("o-1", 40, idempotency_key=key)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(post, "abcdefgh"))
    assert sorted(row.key for row in inbox.rows()) == list("abcdefgh")
