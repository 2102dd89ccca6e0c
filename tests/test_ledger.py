"""The world outside: what a receiver does with a key, and what it does without one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from children import Child

from durable_mini.lab import Ledger, ledger
from durable_mini.lab.ledger import KeyReusedError, LedgerRow

CHARGE = LedgerRow("charge", "o-1", 40, "r-1/charge")


def test_a_request_is_entered_with_all_that_it_said() -> None:
    world = Ledger()
    receipt = world.charge("o-1", 40, idempotency_key="r-1/charge")
    assert world.rows == [CHARGE]
    assert "o-1" in receipt
    assert world.repeats == 0


def test_a_repeated_key_is_answered_with_the_first_response_and_not_entered() -> None:
    world = Ledger()
    receipts = {world.charge("o-1", 40, idempotency_key="r-1/charge") for _ in range(3)}
    assert len(receipts) == 1
    assert world.rows == [CHARGE]
    assert world.repeats == 0


def test_a_receiver_that_ignores_keys_enters_every_repeat() -> None:
    world = Ledger(honour_keys=False)
    for _ in range(3):
        world.charge("o-1", 40, idempotency_key="r-1/charge")
    assert world.rows == [CHARGE] * 3
    assert world.repeats == 2


@pytest.mark.parametrize("honour_keys", [True, False])
def test_a_fresh_key_protects_nobody(honour_keys: bool) -> None:
    world = Ledger(honour_keys=honour_keys)
    for key in ("k-1", "k-2"):
        world.send_email("o-1", "thank you", idempotency_key=key)
    assert [row.key for row in world.rows] == ["k-1", "k-2"]
    assert world.repeats == 1


def test_what_differs_in_order_or_endpoint_is_no_repeat() -> None:
    world = Ledger(honour_keys=False)
    world.charge("o-1", 40, idempotency_key="a")
    world.charge("o-2", 40, idempotency_key="b")
    world.update_crm("o-1", "upgraded", idempotency_key="c")
    world.send_email("o-1", "thank you", idempotency_key="d")
    assert world.repeats == 0
    assert [row.endpoint for row in world.rows] == ["charge", "charge", "update_crm", "send_email"]


@pytest.mark.parametrize(
    ("endpoint", "order", "body"),
    [("charge", "o-1", 41), ("charge", "o-2", 40), ("send_email", "o-1", 40)],
)
def test_a_key_with_another_request_is_refused_and_says_both(
    endpoint: str, order: str, body: int
) -> None:
    world = Ledger()
    world.post(*CHARGE)
    with pytest.raises(KeyReusedError, match=r"'r-1/charge' came first with .*'charge', 'o-1', 40"):
        world.post(endpoint, order, body, CHARGE.key)
    assert world.rows == [CHARGE]


def test_a_receiver_that_ignores_keys_takes_a_reused_one() -> None:
    world = Ledger(honour_keys=False)
    world.post(*CHARGE)
    world.post("charge", "o-1", 41, CHARGE.key)
    assert [row.body for row in world.rows] == [40, 41]


def test_every_thought_is_billed_a_repeated_one_too() -> None:
    world = Ledger()
    answers = {world.think("plan", "a ticket") for _ in range(3)}
    assert len(answers) == 1
    assert world.spent == 6.0
    assert world.think("unheard of", None, price=0.5)
    assert world.spent == 6.5


def test_the_file_keeps_the_rows_and_what_is_known_of_their_keys(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    world = Ledger(path=path)
    world.charge("o-1", 40, idempotency_key="r-1/charge")
    world.charge("o-1", 40, idempotency_key="r-1/charge")
    world.send_email("o-1", "café", idempotency_key="r-1/send_email")
    again = Ledger(path=path)
    assert again.rows == world.rows
    again.charge("o-1", 40, idempotency_key="r-1/charge")
    assert len(path.read_text("utf-8").splitlines()) == 2
    with pytest.raises(KeyReusedError):
        again.charge("o-1", 99, idempotency_key="r-1/charge")


def test_the_file_of_a_receiver_that_ignores_keys_counts_repeats_over_processes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.jsonl"
    for _ in range(3):
        Ledger(path=path, honour_keys=False).charge("o-1", 40, idempotency_key="r-1/charge")
    assert Ledger(path=path, honour_keys=False).repeats == 2


def test_a_row_is_in_the_file_when_the_request_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    world = Ledger(path=path)
    for number in range(3):
        world.charge(f"o-{number}", 40, idempotency_key=str(number))
        rows = [LedgerRow(*json.loads(line)) for line in path.read_text("utf-8").splitlines()]
        assert rows == world.rows


def test_a_receiver_knows_what_another_process_posted_since_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    here, there = Ledger(path=path), Ledger(path=path)
    here.charge("o-1", 40, idempotency_key="r-1/charge")
    there.charge("o-1", 40, idempotency_key="r-1/charge")
    there.charge("o-2", 40, idempotency_key="r-2/charge")
    with pytest.raises(KeyReusedError):
        here.charge("o-2", 41, idempotency_key="r-2/charge")
    assert here.rows == there.rows == Ledger(path=path).rows
    assert [row.order for row in here.rows] == ["o-1", "o-2"]


def test_a_line_that_its_writer_did_not_live_to_end_is_cut_and_asked_for_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path=path).post(*CHARGE)
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        world = Ledger(path=path)
        assert world.rows == ([CHARGE] if length == len(whole) else [])
        world.post(*CHARGE)
        assert path.read_bytes() == whole


def test_processes_that_post_the_same_keys_at_once_leave_one_row_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, at_once = tmp_path / "ledger.jsonl", ledger._append_line
    orders = [f"o-{number}" for number in range(10)]

    def append_late(*args: Any) -> int:
        time.sleep(0.002)  # between the look at the books and the entry the others get their turn
        return at_once(*args)

    def post_all() -> int:
        world = Ledger(path=path)
        for order in orders:
            world.charge(order, 40, idempotency_key=f"{order}/charge")
        return len(world.rows)

    monkeypatch.setattr(ledger, "_append_line", append_late)
    processes = [Child(post_all) for _ in range(4)]
    assert [process.result() for process in processes] == [len(orders)] * 4
    assert [row.order for row in Ledger(path=path).rows] == orders
    assert Ledger(path=path).repeats == 0
