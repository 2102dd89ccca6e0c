"""What the world does with a request: the rules of idempotency keys, and how they are broken.

Guarantees, for an endpoint whose switches are off: the first answer under a key is what every
repeat of it gets (200); the same key with another request is refused (422), as is a repeat while
the first one is still under way (409), and a key that was voided (410). A request that is refused
has done nothing. Leaves to others: HTTP (`server`), what is kept (`books`).

What is under way is known in memory only, so a receiver that was killed has forgotten it; it did
nothing of it either, since the row and the answer to its key are written together.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from http import HTTPStatus
from threading import Event, Lock
from typing import Any, NamedTuple

from durable_mini.lab.ledger import KeyReusedError, Ledger, LedgerRow
from durable_mini.lab.world.books import Answer, Books, KeyVoidedError
from durable_mini.lab.world.endpoints import (
    BOOKS,
    BY_NAME,
    BY_PATH,
    LOOKUP,
    POSTED,
    READ,
    SWITCHED,
    THINK,
    Endpoint,
)
from durable_mini.lab.world.switches import Setting, Switches

KEY_LIMIT_BYTES = 4_096
PRICE_LIMIT = 1e9

_THOUGHT = {"task": str, "price": float, "account": str}
_EMPTY: Mapping[str, str] = {}


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """A request that isn't taken: with which status, the reason in one word, and what to do next.

    Args:
        status: of HTTP.
        reason: for programs, such as "key_reused".
        message: for people.
        then: what its sender may do.
    """

    def __init__(self, status: HTTPStatus, reason: str, message: str, then: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message, self.then = status, reason, message, then

    @property
    def said(self) -> dict[str, Any]:
        """The answer's body."""
        return {"error": self.reason, "message": self.message, "next": self.then}


def failed(reason: str, message: str) -> Refusal:
    """What a sender is told that is to be told nothing certain."""
    then = "ask again with the same key, or look up what happened"
    return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, reason, message, then)


class DroppedError(Exception):
    """The sender gets no answer: the connection ends."""


class Asked(NamedTuple):
    """A request as it came: where to, what it says, and the query or the key that came with it."""

    path: str
    said: Any = None
    key: str | None = None
    query: Mapping[str, str] = _EMPTY


class Receiver:
    """The receiver behind the endpoints; any number of threads may ask it at once.

    Args:
        books: where it keeps what happened.
        switches: how its endpoints misbehave.

    Raises:
        ValueError: there is no such endpoint.
    """

    def __init__(self, books: Books, switches: Setting = None) -> None:
        self.books = books
        self._lock, self._under_way = Lock(), set[str]()
        self._stopping = Event()
        self._model = Ledger()  # for its script; its books stay unread
        self._switches: dict[str, tuple[Switches, random.Random]] = {}
        self.switch(dict.fromkeys(SWITCHED, Switches()))
        self.switch(switches)

    def switch(self, switches: Setting) -> None:
        """From the next request on, let endpoints behave like this; others stay as they are.

        Raises:
            ValueError: there is no such endpoint; nothing was switched.
        """
        if isinstance(switches, Switches):
            switches = dict.fromkeys(BY_NAME, switches)
        if unknown := sorted((switches or {}).keys() - set(SWITCHED)):
            known = ", ".join(SWITCHED)
            raise ValueError(f"no endpoint {unknown[0]!r}. Next: choose from {known}.")
        for name, chosen in (switches or {}).items():
            self._switches[name] = chosen, random.Random(chosen.seed)

    def stop(self) -> None:
        """Let requests that are under way come to nothing, as if the receiver had been killed."""
        self._stopping.set()

    def post(self, asked: Asked) -> Answer:
        """Let a request take effect.

        Raises:
            Refusal: it isn't taken, or its sender is told that something went wrong.
            DroppedError: its sender is to be told nothing.
        """
        if asked.path == THINK:
            return self._behaving("think", lambda switches: self._think(asked.said, switches))
        endpoint = BY_PATH.get(asked.path)
        if endpoint is None:
            raise _no_such(asked.path, READ, "POST")
        order, body = _read_request(endpoint, asked.said)

        def take(switches: Switches) -> Answer:
            key = _checked_key(asked.key, needed=not switches.ignores_keys)
            row = LedgerRow(endpoint.name, order, body, key)
            with nullcontext() if switches.ignores_keys else self._alone(key):
                return self._take(row, switches)

        return self._behaving(endpoint.name, take)

    def get(self, asked: Asked) -> dict[str, Any]:
        """Tell what is in the books; nothing is changed, and nothing goes wrong.

        Raises:
            Refusal: there is nothing to read there.
        """
        if asked.path == BOOKS:
            rows, repeats = self.books.rows(), self.books.repeats()
            return {"rows": rows, "repeats": repeats, "spent": self.books.spent()}
        if asked.path != LOOKUP:
            raise _no_such(asked.path, POSTED, "GET")
        if "key" in asked.query:
            return self._state_of(asked.query["key"])
        if "order" in asked.query:
            endpoint, order = asked.query.get("endpoint"), asked.query["order"]
            return {"rows": self.books.rows(endpoint, order)}
        raise _bad("a look-up is for ?key=… or ?order=…, with &endpoint=… if wanted")

    # ---- one request ----------------------------------------------------------------------------

    def _behaving(self, name: str, take: Callable[[Switches], Answer]) -> Answer:
        """Take a request the way the endpoint's switches say."""
        switches, chance = self._switches[name]
        if switches.refuses and chance.random() < switches.refuses:
            why = "the receiver has too much to do, and did nothing"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "busy", why, "ask again later")
        answer = take(switches)
        if not answer.replayed and switches.fails_after and chance.random() < switches.fails_after:
            if switches.drops:
                raise DroppedError
            raise failed("failed", "something went wrong; what you asked for may have happened")
        return answer

    def _take(self, row: LedgerRow, switches: Switches) -> Answer:
        self._work_for(switches.slow_s)
        try:
            return self.books.take(
                row, honour_key=not switches.ignores_keys, keeps_key_s=switches.keeps_keys_s
            )
        except KeyReusedError as error:
            then = "send another request under another key"
            raise Refusal(
                HTTPStatus.UNPROCESSABLE_ENTITY, "key_reused", str(error), then
            ) from error
        except KeyVoidedError as error:
            then = "nothing: whoever voided it wanted this"
            raise Refusal(HTTPStatus.GONE, "key_voided", str(error), then) from error

    def _think(self, said: Any, switches: Switches) -> Answer:
        thought = _members(said, ("task", "about", "price", "account"))
        for member, wanted in _THOUGHT.items():
            _check_member(thought, member, wanted)
        task, price = thought["task"], thought["price"]
        if not 0 <= price <= PRICE_LIMIT:
            raise _bad(f"'price' is at least 0, and at most {PRICE_LIMIT:g}")
        self._work_for(switches.slow_s)
        self.books.bill(thought["account"], task, float(price))
        return Answer({"text": self._model.think(task, thought["about"])}, replayed=False)

    def _work_for(self, seconds: float) -> None:
        """Take that long; if the receiver is stopped meanwhile, it never happened."""
        if seconds and self._stopping.wait(seconds):
            raise DroppedError

    @contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        """Hold a key: a second request with it is refused until the first has been answered."""
        with self._lock:
            if key in self._under_way:
                why = f"a request with key {key!r} is under way"
                raise Refusal(HTTPStatus.CONFLICT, "in_flight", why, "ask again later")
            self._under_way.add(key)
        try:
            yield
        finally:
            with self._lock:
                self._under_way.discard(key)

    def _state_of(self, key: str) -> dict[str, Any]:
        state, answer = self.books.state_of(key)
        with self._lock:
            if state == "unknown" and key in self._under_way:
                state = "in flight"
        return {"key": key, "state": state, "answer": answer}


# ---- reading a request --------------------------------------------------------------------------


def _read_request(endpoint: Endpoint, said: Any) -> tuple[str, Any]:
    members = _members(said, ("order", endpoint.field))
    _check_member(members, "order", str)
    _check_member(members, endpoint.field, endpoint.type)
    if not members["order"]:
        raise _bad("'order' is empty")
    return members["order"], members[endpoint.field]


def _members(said: Any, wanted: tuple[str, ...]) -> dict[str, Any]:
    """A body's members, if it has the wanted ones and no others."""
    if not isinstance(said, dict):
        raise _bad(f"the body is an object with {', '.join(wanted)}, not {_type_of(said)}")
    if missing := [name for name in wanted if name not in said]:
        raise _bad(f"the body has no {missing[0]!r}")
    if unknown := sorted(said.keys() - set(wanted)):
        raise _bad(f"the body may have {', '.join(wanted)}, not {unknown[0]!r}")
    return said


def _check_member(members: dict[str, Any], name: str, wanted: type) -> None:
    value = members[name]
    numbers = (int, float) if wanted is float else wanted
    if not isinstance(value, numbers) or isinstance(value, bool):
        raise _bad(f"{name!r} is of type {wanted.__name__}, not {_type_of(value)}")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _bad(f"{name!r} is no text: {error.reason}") from error


def _checked_key(key: str | None, *, needed: bool) -> str:
    if not key and needed:
        raise _bad("the header Idempotency-Key is missing", "send the key of the operation")
    if key and (not key.isprintable() or len(key.encode()) > KEY_LIMIT_BYTES):
        raise _bad(f"a key has printable characters, at most {KEY_LIMIT_BYTES:,} bytes in UTF-8")
    return key or ""


def _type_of(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _bad(message: str, then: str = "mend the request") -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, "bad_request", message, then)


def _no_such(path: str, elsewhere: tuple[str, ...], method: str) -> Refusal:
    if path in elsewhere:
        why, other = f"{path} takes no {method}", "GET" if method == "POST" else "POST"
        return Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "no_such_method", why, f"use {other}")
    known = ", ".join((*POSTED, *READ))
    return Refusal(HTTPStatus.NOT_FOUND, "no_such_path", f"nothing is at {path}", f"try {known}")
