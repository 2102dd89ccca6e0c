"""The world as an exercise has it: books that the checks hold, and what the answers see of them.

Guarantees: whatever an answer charges, sends or takes back is a row in books that no answer can
write to by itself; what it is told is JSON, in a notebook as in a process that is graded. Leaves to
others: carrying a request from one process to another (`child`, `answering`).
"""

from __future__ import annotations

import builtins
import math
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from durable_mini.codec import decode, encode
from durable_mini.errors import RunFailed
from durable_mini.lab.ledger import LLM_COST, KeyReusedError, Ledger, LedgerRow
from durable_mini.lab.world.books import KeyVoidedError
from durable_mini.lab.world.client import RefusedError, Sender, UnknownOutcomeError, WorldError

VOID = "void"
Ask = Callable[[str, list[Any]], Any]


class HeldLedger(Ledger):
    """The books of one check.

    Args:
        honour_keys: whether repeated keys are dropped.
        ignore_keys: endpoints that don't look at keys, although the others do.
        refuse: how often an endpoint turns requests away before it takes the first;
            `math.inf` for good.
        lose: how many answers of an endpoint are lost: the request took effect, and whoever sent
            it is told that nobody knows.

    Attributes: `rows`, `repeats`, `spent` as in `Ledger`; `requests` (how many were made, whatever
    came of them); `thoughts` (the tasks that the model was asked, in order).
    """

    def __init__(
        self,
        *,
        honour_keys: bool = True,
        ignore_keys: tuple[str, ...] = (),
        refuse: Mapping[str, float] | None = None,
        lose: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(honour_keys=honour_keys)
        self.requests, self.thoughts = 0, list[str]()
        self._ignore_keys, self._voided = frozenset(ignore_keys), set[str]()
        self._refuse, self._lose = Counter(refuse or {}), Counter(lose or {})

    def think(self, task: str, about: Any, price: float = LLM_COST) -> str:
        """See `Ledger.think`."""
        if not 0 <= price < math.inf:
            raise ValueError(f"a price is a finite number of at least 0, not {price!r}")
        self.thoughts.append(task)
        return super().think(task, about, price)

    def post(self, endpoint: str, order: str, body: Any, key: str) -> str:
        """See `Ledger.post`.

        Raises:
            RefusedError: nothing was done, and nothing will be at a repeat.
            UnknownOutcomeError: it may have happened.
            KeyVoidedError, KeyReusedError: nothing was done.
        """
        if endpoint == VOID or not all(isinstance(word, str) for word in (endpoint, order, key)):
            raise ValueError("endpoint, order and key are texts, and a void is asked for by `void`")
        if self._refuse[endpoint] > 0:
            self._refuse[endpoint] -= 1
            raise RefusedError(f"{endpoint} for {order}: refused", 403, "refused", key)
        if key in self._voided:
            raise KeyVoidedError(f"key {key!r} was voided: nothing takes effect under it")
        count = len(self.rows)
        receipt = super().post(endpoint, order, body, key)
        if self._lose[endpoint] > 0 and len(self.rows) > count:
            self._lose[endpoint] -= 1
            why = f"{endpoint} for {order}: no answer; it may have happened"
            raise UnknownOutcomeError(why, None, "no_answer", key)
        return receipt

    def _take(self, row: LedgerRow, file: Any) -> None:
        if row.endpoint in self._ignore_keys:
            self._enter(row)
        else:
            super()._take(row, file)

    def void(self, key: str) -> int:
        """Take back what came under a key, and let nothing come under it; how much was undone."""
        if self._refuse[VOID] > 0:
            self._refuse[VOID] -= 1
            raise RefusedError(f"void of {key}: refused", 403, "refused", key)
        found = [row for row in self.standing() if row.key == key]
        self._voided.add(key)
        self.rows += [LedgerRow(VOID, row.order, row.endpoint, key) for row in found]
        return len(found)

    def look_up(self, order: str, endpoint: str | None = None) -> list[LedgerRow]:
        """What stands for an order: `[endpoint, order, body, key]` each."""
        rows = [row for row in self.standing() if row.order == order]
        return [row for row in rows if endpoint in (None, row.endpoint)]

    def standing(self, endpoint: str | None = None) -> list[LedgerRow]:
        """What took effect and wasn't taken back, of one endpoint if wanted."""
        rows = [row for row in self.rows if row.endpoint != VOID and row.key not in self._voided]
        return [row for row in rows if endpoint in (None, row.endpoint)]

    def ask(self, method: str, args: list[Any]) -> Any:
        """Answer a request of the answers' `world`."""
        self.requests += 1
        known: dict[str, Callable[..., Any]] = {"post": self.post, "think": self.think}
        return (known | {VOID: self.void, "look_up": self.look_up})[method](*args)


class World(Sender):
    """What the answers know as `world`. Each method is one request to the ledger of the check.

    Args:
        ask: carries a request; what comes back, or is raised, is what the ledger said.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def think(self, task: str, about: Any = None, price: float = LLM_COST) -> str:
        """Ask the scripted model; each time it is asked it costs `price`."""
        return str(self._said("think", task, about, price))

    def post(self, endpoint: str, order: str, body: Any = None, key: str = "") -> str:
        """Let something take effect; returns a receipt."""
        return str(self._said("post", endpoint, order, body, key))

    def void(self, key: str) -> int:
        """Take back what came under a key, and let nothing come under it any more.

        Nothing to undo is success. Returns how much was undone.
        """
        return int(self._said(VOID, key))

    def look_up(self, order: str, endpoint: str | None = None) -> list[LedgerRow]:
        """What stands for an order."""
        return [LedgerRow(*row) for row in self._said("look_up", order, endpoint)]

    def _said(self, method: str, *args: Any) -> Any:
        return self._ask(method, decode(encode(args)))


_WORLD = {kind.__name__: kind for kind in (WorldError, RefusedError, UnknownOutcomeError)}
_KNOWN = {kind.__name__: kind for kind in (KeyReusedError, KeyVoidedError)}


def error_named(name: str, message: str) -> Exception:
    """An exception of the other side, as this side can raise it."""
    if name in _WORLD:
        reason = "refused" if name == "RefusedError" else "no_answer"
        return _WORLD[name](message, None, reason, None)
    if name in _KNOWN:
        return _KNOWN[name](message)
    plain = getattr(builtins, name, None)
    if isinstance(plain, type) and issubclass(plain, Exception):
        with suppress(TypeError):  # a few want more than a message
            return plain(message)
    return RunFailed(message) if name == "RunFailed" else RuntimeError(f"{name}: {message}")
