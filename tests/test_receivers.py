"""Receivers that forget keys, or never look twice."""

from __future__ import annotations

from durable_mini import FakeClock
from durable_mini.lab.receivers import ForgetfulLedger, IncuriousLedger


def test_forgetful_ledger_drops_a_repeat_until_the_key_has_expired() -> None:
    clock = FakeClock(1_000.0)
    world = ForgetfulLedger(clock, keep_s=60.0)
    booked = []
    for wait_s in (0.0, 59.0, 1.0, 59.0, 1.0):  # the key is booked anew at 60 s, and at 120 s
        clock.advance(wait_s)
        world.charge("o-1", 40, idempotency_key="k")
        booked.append(len(world.rows))

    assert booked == [1, 1, 2, 2, 3]


def test_incurious_ledger_answers_another_request_with_a_receipt_and_loses_it() -> None:
    world = IncuriousLedger()
    world.charge("ann", 40, idempotency_key="charge")

    receipt = world.charge("bob", 40, idempotency_key="charge")

    assert receipt == "charge accepted for bob"
    assert [row.order for row in world.rows] == ["ann"]
