"""The world outside over real HTTP: what its receiver does with keys, switches, noise and kills."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from children import Child

from durable_mini import Context, Engine, FakeClock, MemoryJournal, RetryPolicy, Run, workflow
from durable_mini.lab import CrashAt, Ledger, agent_in
from durable_mini.lab.keys import drive
from durable_mini.lab.ledger import KeyReusedError, LedgerRow
from durable_mini.lab.shape import REFERENCE_SHAPE
from durable_mini.lab.world import (
    Books,
    Client,
    KeyTakenError,
    NotNowError,
    RefusedError,
    Switches,
    UnknownOutcomeError,
    World,
)
from durable_mini.lab.world.__main__ import main
from durable_mini.lab.world.endpoints import BY_NAME, KEY_HEADER, REPLAYED_HEADER
from durable_mini.lab.world.place import ServingWorld
from durable_mini.lab.world.receiver import Asked, Receiver, Refusal
from durable_mini.lab.world.server import BODY_LIMIT_BYTES
from durable_mini.lab.world.switches import switches_from

STEPS = [spec.name for spec in REFERENCE_SHAPE]
EFFECTS = [spec.name for spec in REFERENCE_SHAPE if spec.kind == "effect"]
CHARGE = LedgerRow("charge", "o-1", 40, "r-1/charge")
IGNORING = Switches(ignores_keys=True)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ServingWorld]:
    """A world that behaves, in a thread."""
    with World.serving(tmp_path / "world.db") as running:
        yield running


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingWorld]:
    """A world for requests that do nothing."""
    with World.serving(tmp_path_factory.mktemp("untouched") / "world.db") as running:
        yield running


@pytest.fixture
def client(world: ServingWorld) -> Client:
    return Client(world.url)


def asked_raw(
    url: str, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, Any]:
    """Status, headers and JSON of an answer; headers are given with underscores for dashes."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=20)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        return answer.status, answer.headers, json.loads(answer.read())
    finally:
        connection.close()


def said(**members: Any) -> bytes:
    return json.dumps(members).encode()


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Call all of them at the same time, and return what each gave or raised."""
    outcomes: list[Any] = [None] * len(calls)
    start = threading.Barrier(len(calls))

    def run(number: int, call: Callable[[], Any]) -> None:
        start.wait()
        try:
            outcomes[number] = call()
        except Exception as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=one) for one in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def until(happened: Callable[[], Any], limit_s: float = 10.0) -> None:
    """Wait for something that another thread or process does."""
    deadline = time.monotonic() + limit_s
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


# ---- the same as the ledger ----------------------------------------------------------------------


def outcome_of(world: Any, row: LedgerRow) -> str:
    try:
        return str(world.post(*row))
    except KeyReusedError:
        return "key reused"


@pytest.mark.parametrize("honours", [True, False])
def test_the_world_answers_and_books_what_a_ledger_does(tmp_path: Path, honours: bool) -> None:
    hypothesis = pytest.importorskip("hypothesis")
    st = pytest.importorskip("hypothesis.strategies")
    bodies = {"charge": [40, 41], "send_email": ["a", "b"], "update_crm": ["a", "é"]}
    rows = [
        LedgerRow(endpoint, order, body, key)
        for endpoint, allowed in bodies.items()
        for body, order, key in product(allowed, ("o-1", "o-2"), ("k", "k/2", "k%2F2"))
    ]
    folder = iter(range(10_000))

    @hypothesis.settings(max_examples=12)
    @hypothesis.given(st.lists(st.sampled_from(rows), max_size=14))
    def same(requests: list[LedgerRow]) -> None:
        ledger = Ledger(honour_keys=honours)
        with Books(tmp_path / f"{next(folder)}.db") as books:
            world.switch(Switches(ignores_keys=not honours))
            world._receiver.books = books
            for row in requests:
                assert outcome_of(client, row) == outcome_of(ledger, row)
            assert (books.rows(), books.repeats()) == (ledger.rows, ledger.repeats)

    with World.serving(tmp_path / "world.db") as world:
        client = Client(world.url)
        same()


def run_agent(client: Client, probe: Any = None, run_id: str = "r-1") -> Run:
    agent = agent_in(client)
    engine = Engine(MemoryJournal(), [agent], probe=probe)
    return drive(engine, engine.start(agent, {"order": "o-1"}, run_id=run_id))


def test_the_reference_agent_does_in_the_world_what_it_does_in_a_ledger(
    world: ServingWorld, client: Client
) -> None:
    ledger, client.account = Ledger(), "r-1"
    agent = agent_in(ledger)
    here = Engine(MemoryJournal(), [agent]).run(agent, {"order": "o-1"}, run_id="r-1")
    assert run_agent(client) == here
    assert world.rows() == ledger.rows
    assert (world.repeats(), world.spent("r-1"), world.spent()) == (0, ledger.spent, 8.0)
    assert client.books() == (ledger.rows, 0, 8.0)


@pytest.mark.parametrize("position", ["before", "window", "after"])
@pytest.mark.parametrize("honours", [True, False])
def test_a_crash_anywhere_repeats_an_effect_only_in_the_window_and_without_keys(
    tmp_path: Path, position: str, honours: bool
) -> None:
    with World.serving(tmp_path / "w.db", Switches(ignores_keys=not honours)) as world:
        for number, step in enumerate(STEPS, start=1):
            client = Client(world.url, account=step)
            before = world.repeats()
            probe = CrashAt(step, position)
            assert run_agent(client, probe, run_id=step).status == "completed"
            assert probe.fired
            doubled = position == "window"
            spent_again = 2.0 if doubled and step not in EFFECTS else 0.0
            assert world.spent(step) == 8.0 + spent_again
            keyed = {row.key for row in world.rows() if row.key.startswith(f"{step}/")}
            assert len(keyed) == 3
            # every run has the same order: what it adds beyond the first run's three is a repeat
            own = world.repeats() - before - (0 if number == 1 else 3)
            assert own == (1 if doubled and step in EFFECTS and not honours else 0)


# ---- keys ----------------------------------------------------------------------------------------


def test_a_repeated_key_is_answered_alike_and_says_that_it_is_a_replay(world: ServingWorld) -> None:
    body = said(order="o-1", amount=40)
    first = asked_raw(world.url, "POST", "/charges", body, Idempotency_Key="k")
    second = asked_raw(world.url, "POST", "/charges", body, Idempotency_Key="k")
    assert first[0] == second[0] == 200
    assert first[2] == second[2] == {"receipt": "charge accepted for o-1"}
    assert [answer[1].get(REPLAYED_HEADER) for answer in (first, second)] == [None, "true"]
    assert world.rows() == [LedgerRow("charge", "o-1", 40, "k")]


@pytest.mark.parametrize(
    "other", [("charge", "o-1", 41), ("charge", "o-2", 40), ("update_crm", "o-1", "40")]
)
def test_a_key_with_another_request_is_refused_and_both_are_named(
    world: ServingWorld, client: Client, other: tuple[str, str, Any]
) -> None:
    client.post(*CHARGE)
    with pytest.raises(KeyTakenError, match=r"422 .*'charge', 'o-1', 40\), now with .*Next: ") as e:
        client.post(*other, CHARGE.key)
    assert (e.value.status, e.value.reason, e.value.key) == (422, "key_reused", CHARGE.key)
    assert world.rows() == [CHARGE]


def test_a_key_arrives_as_it_was_sent_whatever_it_is_made_of(client: Client) -> None:
    hypothesis = pytest.importorskip("hypothesis")
    st = pytest.importorskip("hypothesis.strategies")
    printable = st.characters(blacklist_categories=["Cs"]).filter(str.isprintable)

    @hypothesis.settings(max_examples=60)
    @hypothesis.example("run 1%2F2/charge#2~undo")
    @hypothesis.example("à")  # its last byte is a space to who takes it for Latin-1
    @hypothesis.given(st.text(printable, min_size=1, max_size=30))
    def arrives(key: str) -> None:
        if key.strip(" ") != key:
            with pytest.raises(ValueError, match="can't be sent"):
                client.charge("o-1", 40, idempotency_key=key)
            return
        client.charge("o-1", 40, idempotency_key=key)
        assert client.state_of(key).state == "done"
        assert key in [row.key for row in client.rows_of("o-1")]

    arrives()


def receive(receiver: Receiver, row: LedgerRow) -> tuple[int, bool]:
    """The status that a request gets, and whether it is a replay."""
    endpoint = BY_NAME[row.endpoint]
    request = Asked(endpoint.path, endpoint.request(row.order, row.body), row.key)
    try:
        return 200, receiver.post(request).replayed
    except Refusal as refusal:
        return int(refusal.status), False


def test_a_key_is_known_until_it_expires_and_then_it_is_a_new_one(tmp_path: Path) -> None:
    clock = FakeClock(1_000.0)
    with Books(tmp_path / "w.db", clock=clock) as books:
        receiver = Receiver(books, {"charge": Switches(keeps_keys_s=60.0)})
        told = []
        for wait_s in (0.0, 59.0, 1.0, 59.0, 1.0):  # new at 0, at 60 and at 120 s
            clock.advance(wait_s)
            told.append((receive(receiver, CHARGE), len(books.rows())))
        assert told == [
            ((200, False), 1),
            ((200, True), 1),
            ((200, False), 2),
            ((200, True), 2),
            ((200, False), 3),
        ]
        assert receive(receiver, CHARGE._replace(body=41)) == (422, False)
        clock.advance(60.0)
        assert receive(receiver, CHARGE._replace(body=41)) == (200, False)
        other = LedgerRow("update_crm", "o-1", "x", "r-1/crm")
        assert receive(receiver, other) == (200, False)
        clock.advance(1e9)
        assert receive(receiver, other) == (200, True)  # the other endpoints keep theirs


def test_a_receiver_that_ignores_keys_needs_none_and_books_every_repeat(tmp_path: Path) -> None:
    with World.serving(tmp_path / "w.db", {"charge": IGNORING}) as world:
        for _ in range(2):
            Client(world.url).post(*CHARGE)
        body = said(order="o-1", amount=40)
        assert asked_raw(world.url, "POST", "/charges", body)[0] == 200
        assert world.repeats() == world.repeats("charge") == world.repeats(order="o-1") == 2
        assert world.repeats("send_email") == world.repeats(order="o-2") == 0
        assert Client(world.url).state_of(CHARGE.key).state == "unknown"
        crm = said(order="o-1", note="x")
        assert asked_raw(world.url, "POST", "/crm", crm)[0] == 400  # this one looks at keys


# ---- voids ---------------------------------------------------------------------------------------


def test_a_voided_key_takes_effect_never_more(world: ServingWorld, client: Client) -> None:
    client.void("o-1", idempotency_key="r-1/charge~undo", effect_key="r-1/charge")
    with pytest.raises(RefusedError, match="410 key_voided") as refused:
        client.post(*CHARGE)
    assert refused.value.status == 410
    assert world.rows("charge") == []
    assert client.state_of("r-1/charge") == ("void", None)
    client.charge("o-1", 40, idempotency_key="r-2/charge")
    assert [row.key for row in world.standing()] == ["r-2/charge"]


def test_a_void_takes_back_what_came_under_the_key_and_says_so_each_time(
    world: ServingWorld, client: Client
) -> None:
    client.post(*CHARGE)
    client.send_email("o-1", "hello", idempotency_key="r-1/send_email")
    for path_key, undone in (("u-1", 1), ("u-1", 1), ("u-2", 0)):
        body = said(order="o-1", key=CHARGE.key)
        answer = asked_raw(world.url, "POST", "/void", body, Idempotency_Key=path_key)
        assert (answer[0], answer[2]["undone"]) == (200, undone)
    with pytest.raises(RefusedError, match="key_voided"):
        client.post(*CHARGE)  # not even a replay: who still asks for it has been overtaken
    assert [row.endpoint for row in world.standing()] == ["send_email"]
    assert world.rows("void")[0] == LedgerRow("void", "o-1", "r-1/charge", "u-1")
    assert world.repeats() == 0


def test_a_void_stops_a_request_that_is_under_way(tmp_path: Path) -> None:
    with World.serving(tmp_path / "w.db", {"charge": Switches(slow_s=0.3)}) as world:
        client = Client(world.url)

        def void() -> str:
            until(lambda: client.state_of(CHARGE.key).state == "in flight")
            return client.void("o-1", idempotency_key="u", effect_key=CHARGE.key)

        charged, voided = at_once(lambda: client.post(*CHARGE), void)
        assert voided == "void accepted for o-1"
        assert isinstance(charged, RefusedError)
        assert world.rows("charge") == []


def test_a_receiver_that_ignores_keys_books_the_charge_of_a_zombie(tmp_path: Path) -> None:
    with World.serving(tmp_path / "w.db", {"charge": IGNORING}) as world:
        client = Client(world.url)
        client.void("o-1", idempotency_key="u", effect_key=CHARGE.key)
        client.post(*CHARGE)
        assert world.rows("charge") == [CHARGE]


def test_a_saga_is_undone_at_the_receiver_and_a_late_charge_of_it_refused(
    world: ServingWorld, client: Client
) -> None:
    @workflow(version="1")
    def selling(ctx: Context, order: str) -> None:
        ctx.compensate("charge", client.void, order)
        ctx.effect("charge", client.charge, order, 40)
        ctx.compensate("send_email", client.void, order)
        ctx.step("pack", int, "no number")

    run = Engine(MemoryJournal(), [selling]).run(selling, "o-1", run_id="r-1")
    assert (run.status, run.error and run.error.type) == ("failed", "ValueError")
    assert [(row.endpoint, row.body) for row in world.rows()] == [
        ("charge", 40),
        ("void", "r-1/send_email"),
        ("void", "r-1/charge"),
    ]
    assert world.standing() == []
    for late in (CHARGE, LedgerRow("send_email", "o-1", "late", "r-1/send_email")):
        with pytest.raises(RefusedError, match="key_voided"):
            client.post(*late)


# ---- switches ------------------------------------------------------------------------------------


def test_a_repeat_while_the_first_is_under_way_is_told_to_come_again(tmp_path: Path) -> None:
    with World.serving(tmp_path / "w.db", {"charge": Switches(slow_s=0.3)}) as world:
        client = Client(world.url)

        def repeat() -> str:
            until(lambda: client.state_of(CHARGE.key).state == "in flight")
            return client.post(*CHARGE)

        first, second = at_once(lambda: client.post(*CHARGE), repeat)
        assert first == "charge accepted for o-1"
        assert isinstance(second, NotNowError)
        assert (second.status, second.reason) == (409, "in_flight")
        assert client.post(*CHARGE) == first
        assert world.rows() == [CHARGE]


def test_a_request_takes_effect_although_its_sender_has_given_up(tmp_path: Path) -> None:
    with World.serving(tmp_path / "w.db", {"charge": Switches(slow_s=0.2)}) as world:
        with pytest.raises(UnknownOutcomeError, match="may have happened") as gave_up:
            Client(world.url, timeout_s=0.05).post(*CHARGE)
        assert gave_up.value.status is None
        assert world.rows() == []
        until(lambda: world.rows() == [CHARGE])


def test_a_stopped_world_does_not_do_what_was_under_way(tmp_path: Path) -> None:
    before = threading.active_count()
    with World.serving(tmp_path / "w.db", {"charge": Switches(slow_s=30.0)}) as world:
        with pytest.raises(UnknownOutcomeError):
            Client(world.url, timeout_s=0.05).post(*CHARGE)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    until(lambda: threading.active_count() == before, 5)
    with pytest.raises(NotNowError, match="nobody listens"):
        Client(world.url).post(*CHARGE)
    with Books(tmp_path / "w.db") as books:
        assert books.rows() == []


@pytest.mark.parametrize(("drops", "status"), [(False, 500), (True, None)])
@pytest.mark.parametrize("honours", [True, False])
def test_a_request_that_fails_after_taking_effect_is_repeated_safely_only_with_keys(
    tmp_path: Path, drops: bool, status: int | None, honours: bool
) -> None:
    failing = Switches(fails_after=1.0, drops=drops, ignores_keys=not honours)
    with World.serving(tmp_path / "w.db", {"charge": failing}) as world:
        client = Client(world.url)
        with pytest.raises(UnknownOutcomeError) as lost:
            client.post(*CHARGE)
        assert lost.value.status == status
        assert world.rows() == [CHARGE]
        if honours:
            assert client.post(*CHARGE) == "charge accepted for o-1"
        else:
            with pytest.raises(UnknownOutcomeError):
                client.post(*CHARGE)
        assert world.repeats() == (not honours)


def test_a_refusal_at_random_does_nothing_and_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    def pattern(name: str, seed: int) -> list[bool]:
        refusing = Switches(refuses=0.5, seed=seed)
        with World.serving(tmp_path / name, {"charge": refusing, "think": refusing}) as world:
            client, taken = Client(world.url), []
            for number in range(20):
                try:
                    client.charge(f"o-{number}", 40, idempotency_key=str(number))
                    taken.append(True)
                except NotNowError as error:
                    assert (error.status, error.reason) == (503, "busy")
                    taken.append(False)
            assert [row.order for row in world.rows()] == [
                f"o-{number}" for number, was_taken in enumerate(taken) if was_taken
            ]
            thoughts = 0
            for _ in range(20):
                with suppress(NotNowError):
                    client.think("plan", "x")
                    thoughts += 1
            assert (world.spent(), thoughts) == (2.0 * sum(taken), sum(taken))
            return taken

    first = pattern("a.db", 7)
    assert first == pattern("b.db", 7)
    assert first != pattern("c.db", 8)
    assert 0 < sum(first) < 20


def test_a_thought_is_billed_although_nobody_hears_the_answer(tmp_path: Path) -> None:
    deaf = Switches(fails_after=1.0, drops=True)
    with World.serving(tmp_path / "w.db", {"think": deaf}) as world:
        client = Client(world.url, account="r-1")
        for _ in range(2):
            with pytest.raises(UnknownOutcomeError):
                client.think("plan", "x", price=0.5)
        client.account = "r-2"
        world.switch({"think": Switches()})
        assert client.think("plan", ["x", None]) == Ledger().think("plan", "x")
        assert (world.spent("r-1"), world.spent("r-2"), world.spent("r-3")) == (1.0, 2.0, 0.0)
        assert world.spent() == 3.0


def test_a_retry_policy_gets_an_effect_through_a_receiver_that_refuses_and_fails(
    tmp_path: Path,
) -> None:
    rough = Switches(refuses=0.4, fails_after=0.4, seed=3)
    patient = RetryPolicy(max_attempts=50, initial_s=0.0, non_retryable=(RefusedError,))

    @workflow(version="1")
    def pay(ctx: Context, order: str) -> Any:
        return ctx.effect("charge", client.charge, order, 40, retry=patient)

    with World.serving(tmp_path / "w.db", rough) as world:
        client = Client(world.url)
        engine = Engine(MemoryJournal(), [pay])
        for number in range(6):
            assert engine.run(pay, f"o-{number}", run_id=f"r-{number}").status == "completed"
        assert len(world.rows()) == 6
        assert world.repeats() == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"refuses": 1.5}, "refuses is a chance from 0 to 1, not 1.5"),
        ({"fails_after": -0.1}, "fails_after is a chance"),
        ({"slow_s": -1}, "slow_s is a number of seconds"),
        ({"keeps_keys_s": float("nan")}, "keeps_keys_s is a number of seconds"),
        ({"refuses": True}, "refuses is a chance"),
    ],
)
def test_a_switch_that_makes_no_sense_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Switches(**wrong)


def test_switches_are_read_from_json_or_refused_with_what_there_is() -> None:
    told = {"charge": {"ignores_keys": True}, "think": {"slow_s": 1}}
    assert switches_from(told) == {"charge": IGNORING, "think": Switches(slow_s=1)}
    for wrong, message in (
        ([], "an object of objects"),
        ({"charge": 1}, "an object of objects"),
        ({"charge": {"slow": 1}}, "Next: choose from ignores_keys"),
    ):
        with pytest.raises(ValueError, match=message):
            switches_from(wrong)


def test_an_unknown_endpoint_has_no_switches(world: ServingWorld) -> None:
    with pytest.raises(ValueError, match=r"no endpoint 'charges'\. Next: choose from charge,"):
        world.switch({"charges": IGNORING})


# ---- requests that are no requests ---------------------------------------------------------------

GOOD = said(order="o-1", amount=40)
BAD_REQUESTS: dict[str, tuple[str, str, bytes | None, dict[str, str], int, str]] = {
    "no key": ("POST", "/charges", GOOD, {}, 400, "Idempotency-Key is missing"),
    "empty key": ("POST", "/charges", GOOD, {"Idempotency_Key": " "}, 400, "is missing"),
    "long key": ("POST", "/charges", GOOD, {"Idempotency_Key": "k" * 4_097}, 400, "4,096 bytes"),
    "odd key": ("POST", "/charges", GOOD, {"Idempotency_Key": "a\tb"}, 400, "printable"),
    "not UTF-8": ("POST", "/charges", GOOD, {"Idempotency_Key": "\xff"}, 400, "can't decode"),
    "no body": ("POST", "/charges", b"", {"Idempotency_Key": "k"}, 400, "no JSON"),
    "no JSON": ("POST", "/charges", b"{", {"Idempotency_Key": "k"}, 400, "no JSON"),
    "no UTF-8": ("POST", "/charges", b'"\xff"', {"Idempotency_Key": "k"}, 400, "no JSON"),
    "NaN": ("POST", "/think", b'{"price": NaN}', {}, 400, "NaN is no JSON number"),
    "too deep": ("POST", "/charges", b"[" * 100_000, {"Idempotency_Key": "k"}, 400, "no JSON"),
    "too long a number": ("POST", "/charges", b"9" * 9_999, {"Idempotency_Key": "k"}, 400, "JSON"),
    "a list": ("POST", "/charges", b"[]", {"Idempotency_Key": "k"}, 400, "an object with order"),
    "null": ("POST", "/charges", b"null", {"Idempotency_Key": "k"}, 400, "not null"),
    "no amount": ("POST", "/charges", said(order="o"), {"Idempotency_Key": "k"}, 400, "'amount'"),
    "a stray member": (
        *("POST", "/charges", said(order="o", amount=1, x=2), {"Idempotency_Key": "k"}),
        *(400, "not 'x'"),
    ),
    "text for a number": (
        *("POST", "/charges", said(order="o", amount="1"), {"Idempotency_Key": "k"}),
        *(400, "'amount' is of type int, not str"),
    ),
    "truth for a number": (
        *("POST", "/charges", said(order="o", amount=True), {"Idempotency_Key": "k"}),
        *(400, "not bool"),
    ),
    "no order": (
        *("POST", "/charges", said(order="", amount=1), {"Idempotency_Key": "k"}),
        *(400, "'order' is empty"),
    ),
    "half a character": (
        *("POST", "/crm", b'{"order": "\\ud800", "note": ""}', {"Idempotency_Key": "k"}),
        *(400, "'order' is no text"),
    ),
    "a negative price": (
        *("POST", "/think", said(task="t", about=1, price=-1, account="")),
        *({}, 400, "at least 0"),
    ),
    "an endless price": (
        *("POST", "/think", b'{"task": "t", "about": 1, "price": 1e999, "account": ""}'),
        *({}, 400, "at most 1e+09"),
    ),
    "a price beyond all numbers": (
        *("POST", "/think", said(task="t", about=1, price=10**999, account="")),
        *({}, 400, "at most 1e+09"),
    ),
    "too large": ("POST", "/crm", b" " * (BODY_LIMIT_BYTES + 1), {}, 413, "1,048,576"),
    "far too large": ("POST", "/crm", b" " * (BODY_LIMIT_BYTES * 8), {}, 413, "the limit is"),
    "bad length": ("POST", "/crm", b"", {"Content_Length": "-1"}, 400, "Content-Length is '-1'"),
    "odd length": ("POST", "/crm", b"", {"Content_Length": "²"}, 400, "Content-Length is"),
    "no such path": ("POST", "/refunds", GOOD, {}, 404, "nothing is at /refunds"),
    "an odd path": ("GET", "//[x", None, {}, 404, "nothing is at"),
    "nothing to read": ("GET", "/charges", None, {}, 405, "takes no GET"),
    "nothing to do": ("POST", "/books", GOOD, {}, 405, "takes no POST"),
    "no such method": ("BREW", "/charges", None, {}, 405, "no method BREW"),
    "deleting": ("DELETE", "/charges", None, {}, 405, "no method DELETE"),
    "a look-up of nothing": ("GET", "/lookup?k=1", None, {}, 400, "?key="),
    "many headers": ("GET", "/books", None, {f"h{n}": "" for n in range(101)}, 431, "eaders"),
    "a long path": ("GET", "/" + "x" * 70_000, None, {}, 414, ""),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_a_bad_request_is_answered_with_what_is_wrong_and_what_to_do(
    untouched: ServingWorld, name: str
) -> None:
    method, path, body, headers, status, message = BAD_REQUESTS[name]
    answer = asked_raw(untouched.url, method, path, body, **headers)
    assert answer[0] == status, answer[2]
    assert message in answer[2]["message"]
    assert answer[2]["error"]
    assert answer[2]["next"]
    assert answer[1]["Content-Type"] == "application/json"
    assert (answer[1]["Allow"] == "GET, POST") == (status == 405)
    assert untouched.rows() == []
    assert asked_raw(untouched.url, "GET", "/books")[2] == {"rows": [], "repeats": 0, "spent": 0.0}


def test_a_bad_request_leaves_the_connection_fit_for_the_next(world: ServingWorld) -> None:
    place = urlsplit(world.url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=20)
    for body, status in ((b"{", 400), (GOOD, 200), (b"[]", 400), (GOOD, 200)):
        connection.request("POST", "/charges", body, {KEY_HEADER: "k"})
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (status, True)
    connection.close()
    assert len(world.rows()) == 1


def send_bytes(url: str, sent: bytes) -> bytes:
    """What comes back for these bytes on a bare connection."""
    place = urlsplit(url)
    with socket.create_connection((str(place.hostname), place.port or 0), timeout=20) as line:
        with suppress(OSError):  # the receiver may have heard enough
            line.sendall(sent)
            line.shutdown(socket.SHUT_WR)
        got = b""
        with suppress(ConnectionError):
            while part := line.recv(65_536):
                got += part
        return got


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", b'"error": "bad_request"'),
        (b"POST /charges HTTP/9.9\r\n\r\n", b'"error": "http_version_not_supported"'),
        (b"POST /charges HTTP/1.1\r\nno header\r\n\r\n", b'"error": "no_length"'),
        (b"POST /crm HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"POST /crm HTTP/1.1\r\nContent-Length: 9\r\n\r\n{}", b'"error": "bad_request"'),
        (b"", b""),
    ],
)
def test_bytes_that_are_no_request_are_answered_or_nothing(
    untouched: ServingWorld, sent: bytes, answered: bytes
) -> None:
    got = send_bytes(untouched.url, sent)
    assert answered in got
    assert b"Traceback" not in got
    assert asked_raw(untouched.url, "GET", "/books")[0] == 200


def test_no_bytes_whatever_get_an_answer_that_is_no_json(untouched: ServingWorld) -> None:
    hypothesis = pytest.importorskip("hypothesis")
    st = pytest.importorskip("hypothesis.strategies")
    words = [b"POST", b"GET", b"/crm", b"/books", b"HTTP/1.1", b"HTTP/1.0", b"\r\n", b"\n", b" "]
    words += [b"Content-Length: 2", b"Idempotency-Key: k", b": ", b"{}", b"Expect: 100-continue"]

    @hypothesis.settings(max_examples=60)
    @hypothesis.given(st.lists(st.sampled_from(words) | st.binary(max_size=3), max_size=12))
    def answered(parts: list[bytes]) -> None:
        got = send_bytes(untouched.url, b"".join(parts) + b"\r\n\r\n")
        assert not got or b'{"error": ' in got or b'{"rows": [], ' in got, got

    answered()
    assert untouched.rows() == []


def test_no_body_whatever_gets_an_answer_that_is_no_json_or_blames_the_receiver(
    world: ServingWorld,
) -> None:
    hypothesis = pytest.importorskip("hypothesis")
    st = pytest.importorskip("hypothesis.strategies")
    json_value = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
    members = st.sampled_from(["order", "amount", "text", "note", "key", "task", "about", "price"])
    objects = st.dictionaries(members, json_value, max_size=4)
    bodies = st.binary() | (json_value | objects).map(lambda value: json.dumps(value).encode())
    paths = st.sampled_from(["/charges", "/emails", "/crm", "/void", "/think", "/x"])

    @hypothesis.settings(max_examples=80)
    @hypothesis.given(bodies, paths, st.sampled_from(["k", "k2"]))
    def answered(body: bytes, path: str, key: str) -> None:
        rows = len(world.rows())
        status, _, answer = asked_raw(world.url, "POST", path, body, Idempotency_Key=key)
        assert status == 200 or 400 <= status < 500, answer
        assert status == 200 or {"error", "message", "next"} == set(answer)
        assert len(world.rows()) == rows or status == 200

    answered()


def test_a_fault_of_the_receiver_is_one_answer_and_not_its_end(
    world: ServingWorld, client: Client, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(world.books, "take", lambda *_, **__: 1 / 0)
        with pytest.raises(UnknownOutcomeError, match="500 broken: ZeroDivisionError"):
            client.post(*CHARGE)
    assert client.post(*CHARGE)
    assert capfd.readouterr().err == ""


def test_a_client_says_at_once_that_an_address_or_a_key_is_none(client: Client) -> None:
    with pytest.raises(ValueError, match="is no address"):
        Client("localhost:80")
    with pytest.raises(ValueError, match="can't be sent"):
        client.charge("o-1", 40, idempotency_key="a\nb")


def test_a_stranger_that_answers_is_told_of_as_such(tmp_path: Path) -> None:
    for reply, kind in ((b"HTTP/1.0 404 No\r\n\r\n[]", RefusedError), (b"x", UnknownOutcomeError)):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=answer_once, args=(listener, reply))
            thread.start()
            with pytest.raises(kind):
                Client(f"http://127.0.0.1:{listener.getsockname()[1]}").post(*CHARGE)
            thread.join()


def answer_once(listener: socket.socket, reply: bytes) -> None:
    line, _ = listener.accept()
    with line:
        line.recv(65_536)
        line.sendall(reply)
        line.shutdown(socket.SHUT_WR)
        while line.recv(65_536):
            pass


# ---- many at once --------------------------------------------------------------------------------


@pytest.mark.parametrize("slow_s", [0.0, 0.05])
def test_eight_threads_with_one_key_leave_one_row(tmp_path: Path, slow_s: float) -> None:
    with World.serving(tmp_path / "w.db", Switches(slow_s=slow_s)) as world:
        client = Client(world.url)
        for number in range(5):
            key = f"k-{number}"
            outcomes = at_once(*[lambda key=key: client.charge(key, 1, idempotency_key=key)] * 8)
            refused = [one for one in outcomes if not isinstance(one, str)]
            assert all(isinstance(one, NotNowError) and one.status == 409 for one in refused)
            assert {one for one in outcomes if isinstance(one, str)} == {
                f"charge accepted for {key}"
            }
        assert [row.order for row in world.rows()] == [f"k-{number}" for number in range(5)]


def test_eight_threads_with_keys_of_their_own_all_get_their_row(
    world: ServingWorld, client: Client
) -> None:
    def post_ten(thread: int) -> list[str]:
        keys = [f"{thread}-{number}" for number in range(10)]
        return [client.charge(key, 1, idempotency_key=key) for key in keys]

    outcomes = at_once(*[lambda thread=thread: post_ten(thread) for thread in range(8)])
    assert all(isinstance(outcome, list) for outcome in outcomes)
    assert Counter(row.key for row in world.rows()) == Counter(
        f"{thread}-{number}" for thread in range(8) for number in range(10)
    )


def test_eight_threads_at_a_receiver_that_ignores_keys_leave_eight_rows(tmp_path: Path) -> None:
    with World.serving(tmp_path / "w.db", IGNORING) as world:
        client = Client(world.url)
        assert len(set(at_once(*[lambda: client.post(*CHARGE)] * 8))) == 1
        assert world.repeats() == 7


def test_processes_with_the_same_keys_leave_one_row_for_each(tmp_path: Path) -> None:
    with World.spawned(tmp_path / "w.db") as world:
        client = Client(world.url)

        def post_all() -> int:
            done = 0
            for number in range(10):
                with suppress(NotNowError):
                    client.charge(f"o-{number}", 40, idempotency_key=f"{number}")
                    done += 1
            return done

        children = [Child(post_all) for _ in range(3)]
        assert sum(child.result() for child in children) >= 10
        assert sorted(row.order for row in world.rows()) == [f"o-{n}" for n in range(10)]


# ---- books, places and processes -----------------------------------------------------------------


def test_the_books_are_durable_and_another_world_goes_on_with_them(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with World.serving(path) as world:
        Client(world.url).post(*CHARGE)
        assert world.books._db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert world.books._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with World.serving(path) as world:
        client = Client(world.url)
        client.post(*CHARGE)
        assert world.rows() == [CHARGE]
        with pytest.raises(KeyTakenError):
            client.post(*CHARGE._replace(body=41))


def test_a_file_that_holds_something_else_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (a)")
    other.close()
    text = tmp_path / "text"
    text.write_text("no database\n" * 100)
    for what in (path, text):
        before = what.read_bytes()
        with pytest.raises(ValueError, match=str(what)):
            Books(what)
        assert what.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["other.db", "text"]


def test_nothing_of_a_world_runs_on_after_its_block(tmp_path: Path) -> None:
    before = threading.active_count()
    with World.serving(tmp_path / "w.db") as world:
        Client(world.url).post(*CHARGE)
    until(lambda: threading.active_count() == before)
    with World.spawned(tmp_path / "w.db") as spawned:
        assert Client(spawned.url).post(*CHARGE)
    with pytest.raises(ProcessLookupError):
        os.kill(spawned.pid, 0)


def test_a_spawned_world_that_cannot_start_says_why(tmp_path: Path) -> None:
    with (
        World.serving(tmp_path / "a.db") as world,
        pytest.raises(RuntimeError, match="Address already in use"),
        World.spawned(tmp_path / "b.db", port=urlsplit(world.url).port or 0),
    ):
        pass


def test_a_spawned_world_has_its_switches_and_keeps_its_address(tmp_path: Path) -> None:
    rough = {"charge": Switches(ignores_keys=True, keeps_keys_s=5.0)}
    with World.spawned(tmp_path / "w.db", rough) as world:
        url, pid = world.url, world.pid
        client = Client(url)
        for _ in range(2):
            client.post(*CHARGE)
        world.kill()
        with pytest.raises(NotNowError):
            client.post(*CHARGE)
        world.start()
        world.start()
        assert (world.url, world.pid != pid) == (url, True)
        client.post(*CHARGE)
        client.send_email("o-1", "x", idempotency_key="k")
        client.send_email("o-1", "x", idempotency_key="k")
        assert (len(world.rows()), world.repeats()) == (4, 2)


PARENT = """
import sys, time
from durable_mini.lab.world import World
with World.spawned(sys.argv[1]) as world:
    print(world.url, flush=True)
    time.sleep(60)
"""


def test_a_spawned_world_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "w.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        client = Client(parent.stdout.readline().strip())
        assert client.post(*CHARGE)
        parent.kill()

    def is_gone() -> bool:
        try:
            client.books()
        except (NotNowError, UnknownOutcomeError):
            return True
        return False

    until(is_gone)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["{folder}"], "unable to open"),
        (["{folder}/w.db", "--switches={{"], "Expecting property name"),
        (["{folder}/w.db", '--switches={{"charges": {{}}}}'], "no endpoint 'charges'"),
        (["{folder}/w.db", '--switches={{"charge": {{"x": 1}}}}'], "no such switch"),
        (["{folder}/w.db", "--port=70000"], "port"),
        (["{folder}/w.db", "--port=x"], "invalid int value"),
        ([], "required: books"),
    ],
)
def test_the_command_says_in_one_line_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: Sequence[str], complaint: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([argument.format(folder=tmp_path) for argument in arguments])
    assert ended.value.code == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert complaint in said


def test_the_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "ignores_keys" in capsys.readouterr().out


@pytest.mark.slow
def test_a_world_that_is_killed_again_and_again_keeps_what_it_answered(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """Four senders go on until each of their requests is answered; meanwhile the receiver dies."""
    kills, threads, requests = 12, 4, 40
    answered: list[str] = []
    asked, heard = Counter[str](), Counter[str]()

    def send(thread: int) -> None:
        client = Client(world.url, account=f"a-{thread}")
        for number in range(requests):
            key = f"{thread}-{number}"
            persist(lambda: client.charge(key, 1, idempotency_key=key), f"charge {thread}")  # noqa: B023
            answered.append(key)
            persist(lambda: client.think("plan", "x", 1.0), f"think {thread}")

    def persist(call: Callable[[], str], what: str) -> None:
        while True:
            asked[what] += 1
            try:
                call()
            except (NotNowError, UnknownOutcomeError):
                time.sleep(0.01)
            else:
                heard[what] += 1
                return

    with World.spawned(tmp_path / "w.db") as world:
        senders = [threading.Thread(target=send, args=(number,)) for number in range(threads)]
        for sender in senders:
            sender.start()
        for kill in range(1, kills + 1):
            until(lambda goal=kill * threads * requests // (kills + 1): len(answered) >= goal, 60)
            known = set(answered)
            os.kill(world.pid, signal.SIGKILL)
            world.kill()
            assert known <= {row.key for row in world.rows()}
            world.start()
        for sender in senders:
            sender.join()
        keys = Counter(row.key for row in world.rows())
        assert keys == Counter(f"{t}-{n}" for t in range(threads) for n in range(requests))
        for thread in range(threads):
            billed = world.spent(f"a-{thread}")
            assert heard[f"think {thread}"] <= billed <= asked[f"think {thread}"]
        lost = sum(asked.values()) - sum(heard.values())
        figure(f"world: {kills} kills, {sum(heard.values())} answers, {lost} requests unanswered")
        assert lost > 0


@pytest.mark.slow
def test_the_world_takes_some_hundred_requests_a_second(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    with World.spawned(tmp_path / "w.db") as world:
        for threads in (1, 8):
            each = 400 // threads

            def send(thread: int, threads: int = threads, each: int = each) -> None:
                client = Client(world.url)
                for number in range(each):
                    key = f"{threads}/{thread}/{number}"
                    client.charge(key, 1, idempotency_key=key)

            began = time.perf_counter()
            outcomes = at_once(*[lambda n=n: send(n) for n in range(threads)])
            took_s = time.perf_counter() - began
            assert outcomes == [None] * threads
            figure(f"world: {each * threads / took_s:,.0f} charges a second from {threads} threads")
        assert len(world.rows()) == 800
