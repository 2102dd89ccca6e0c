"""The world outside a run, in this process: what was charged, sent and noted, and the LLM's bill.

Guarantees: the receiver's side of an idempotency key, as real APIs have it: the first response is
replayed, the same key with another body is refused. With `honour_keys=False` it is one of the many
receivers that ignore keys. With a file it is one receiver for any number of processes. Leaves to
others: the network between here and there.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

LLM_COST = 2.0
AMOUNT = 40

_SCRIPT = {
    "plan": "1. read the ticket; 2. look up the order; 3. answer and charge the upgrade",
    "research": "the order is paid, the customer asks for the annual plan, the difference is due",
    "draft": "Thank you for choosing the annual plan. We charge the difference to your card today.",
    "compose": "Your card was charged, your annual plan is active. Reply to this mail if not.",
}


class LedgerRow(NamedTuple):
    """One thing that happened outside: where, for which order, what, and under which key."""

    endpoint: str
    order: str
    body: Any
    key: str


class Outside(Protocol):
    """What the reference agent needs of the world, wherever that is."""

    def think(self, task: str, about: Any, price: float = LLM_COST) -> str:
        """Ask the model, which bills `price`."""

    def charge(self, order: str, amount: int, *, idempotency_key: str) -> str:
        """Charge the customer's card."""

    def send_email(self, order: str, text: str, *, idempotency_key: str) -> str:
        """Send the customer a mail."""

    def update_crm(self, order: str, note: str, *, idempotency_key: str) -> str:
        """Note in the customer records what was done."""


class KeyReusedError(Exception):
    """A key came again with another body: the receiver refuses (HTTP 422) rather than guess."""


class Ledger:
    """Everything outside that a run can touch, with the books kept by the receiver.

    Args:
        honour_keys: whether a repeated idempotency key is answered with the first response; False
            records every repeat.
        path: a file of JSON lines that keeps the rows, for worlds that outlive a worker process or
            are shared by several: whoever posts has read what the others have posted before.

    Attributes: `rows` (in order, as of the last post), `spent` (the LLM's bill for this object),
    `repeats` (rows beyond the first of one endpoint and order: the duplicates).
    """

    def __init__(
        self, *, honour_keys: bool = True, path: str | os.PathLike[str] | None = None
    ) -> None:
        self.rows: list[LedgerRow] = []
        self.spent = 0.0
        self.repeats = 0
        self._honour_keys = honour_keys
        self._known: set[tuple[str, str]] = set()
        self._first: dict[str, LedgerRow] = {}
        self._path = Path(path) if path is not None else None
        self._read_to_byte = 0
        if self._path is not None and self._path.exists():
            with self._books(self._path):
                pass  # opening the books reads them

    def think(self, task: str, about: Any, price: float = LLM_COST) -> str:
        """Ask the scripted model, which bills `price` each time it is asked, also for a repeat."""
        self.spent += price
        return _SCRIPT.get(task) or f"{task}: done"

    def charge(self, order: str, amount: int, *, idempotency_key: str) -> str:
        """Charge the customer's card."""
        return self.post("charge", order, amount, idempotency_key)

    def send_email(self, order: str, text: str, *, idempotency_key: str) -> str:
        """Send the customer a mail."""
        return self.post("send_email", order, text, idempotency_key)

    def update_crm(self, order: str, note: str, *, idempotency_key: str) -> str:
        """Note in the customer records what was done."""
        return self.post("update_crm", order, note, idempotency_key)

    def post(self, endpoint: str, order: str, body: Any, key: str) -> str:
        """What every effect comes down to: take the request unless its key was seen before.

        Returns:
            A receipt, the same for the repeat of a request as for the request.

        Raises:
            KeyReusedError: the key was seen with another endpoint, order or body.
        """
        row = LedgerRow(endpoint, order, body, key)
        if self._path is None:
            self._take(row, None)
        else:
            with self._books(self._path) as file:
                self._take(row, file)
        return f"{endpoint} accepted for {order}"

    def _take(self, row: LedgerRow, file: IO[bytes] | None) -> None:
        first = self._first.get(row.key) if self._honour_keys else None
        if first is None:
            if file is not None:
                self._read_to_byte += _append_line(file, json.dumps(row))
            self._enter(row)
        elif first != row:
            raise KeyReusedError(f"key {row.key!r} came first with {first[:3]}, now with {row[:3]}")

    @contextmanager
    def _books(self, path: Path) -> Iterator[IO[bytes]]:
        """The file, for nobody else until the block is left, with all that it holds entered.

        A line that its writer didn't live to end is no request that was taken: it is cut off.
        """
        import fcntl  # noqa: PLC0415 - not in a browser

        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(self._read_to_byte)
            whole, _, _ = file.read().rpartition(b"\n")
            for line in whole.splitlines():
                self._enter(LedgerRow(*json.loads(line)))
            self._read_to_byte += len(whole) + 1 if whole else 0
            file.truncate(self._read_to_byte)
            yield file

    def _enter(self, row: LedgerRow) -> None:
        self.rows.append(row)
        self._first.setdefault(row.key, row)
        operation = (row.endpoint, row.order)
        if operation in self._known:
            self.repeats += 1
        self._known.add(operation)


def _append_line(file: IO[bytes], text: str) -> int:
    """How many bytes it took."""
    written = file.write(text.encode() + b"\n")
    file.flush()
    os.fsync(file.fileno())
    return written
