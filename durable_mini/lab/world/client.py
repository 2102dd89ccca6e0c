"""The sender's side of the world: a `Ledger` that is somewhere else, and all that may go wrong.

Guarantees: a request is sent once; this client repeats nothing on its own. What comes back is the
answer, or an error that says which of three it is: refused, not now, or nobody knows. Leaves to
others: asking again (a step's `retry=`, or the next attempt).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from durable_mini.lab.ledger import LLM_COST, KeyReusedError, LedgerRow
from durable_mini.lab.world import endpoints


class WorldError(Exception):
    """A request that wasn't answered as its sender hoped.

    Attributes:
        status: of HTTP; None where there was no answer.
        reason: the receiver's word for it, such as "in_flight".
        key: the idempotency key, if there was one.
    """

    def __init__(self, message: str, status: int | None, reason: str, key: str | None) -> None:
        super().__init__(message)
        self.status, self.reason, self.key = status, reason, key


class RefusedError(WorldError):
    """Nothing was done, and the same request will never be taken: name it `non_retryable=`."""


class KeyTakenError(RefusedError, KeyReusedError):
    """The key came before with another request."""


class NotNowError(WorldError):
    """This request did nothing, but a later one may: busy, under way already, or nobody there."""


class UnknownOutcomeError(WorldError):
    """No answer, or one that doesn't tell: what was asked for may have happened, or yet happen."""


class KeyState(NamedTuple):
    """What became of a key: "unknown", "in flight", "done" or "void", and what it was answered."""

    state: str
    answer: dict[str, Any] | None


class BookPage(NamedTuple):
    """The receiver's books: all rows, how many are repeats, and the model's bill."""

    rows: list[LedgerRow]
    repeats: int
    spent: float


class Sender(ABC):
    """What the reference agent asks of the world, with every effect in one place: `post`."""

    @abstractmethod
    def think(self, task: str, about: Any, price: float = LLM_COST) -> str:
        """Ask the model, which bills `price` each time it is asked."""

    @abstractmethod
    def post(self, endpoint: str, order: str, body: Any, key: str) -> str:
        """What every effect comes down to; returns a receipt."""

    def charge(self, order: str, amount: int, *, idempotency_key: str) -> str:
        """Charge the customer's card."""
        return self.post(endpoints.CHARGE.name, order, amount, idempotency_key)

    def send_email(self, order: str, text: str, *, idempotency_key: str) -> str:
        """Send the customer a mail."""
        return self.post(endpoints.EMAIL.name, order, text, idempotency_key)

    def update_crm(self, order: str, note: str, *, idempotency_key: str) -> str:
        """Note in the customer records what was done."""
        return self.post(endpoints.CRM.name, order, note, idempotency_key)


class Client(Sender):
    """Asks the world over HTTP; the reference agent takes it for a `Ledger`: `agent_in(client)`.

    Each request has a connection of its own, so that one client serves any number of threads and
    of forked processes.

    Args:
        url: where the world is, as it says itself.
        account: whom the model bills, such as a run id; may be changed at any time.
        timeout_s: how long to wait for the receiver. It may do what was asked for even later.
    """

    def __init__(self, url: str, *, account: str = "", timeout_s: float = 30.0) -> None:
        self.url, self.account, self.timeout_s = url, account, timeout_s
        place = urlsplit(url)
        if place.scheme != "http" or place.hostname is None:
            raise ValueError(f"{url!r} is no address. Next: pass what the world says as its url.")
        self._host, self._port = place.hostname, place.port

    def think(self, task: str, about: Any, price: float = LLM_COST) -> str:
        """Ask the scripted model; it bills each time, and before it answers.

        Raises:
            WorldError: as `post`; what wasn't answered may have been billed.
        """
        said = {"task": task, "about": about, "price": price, "account": self.account}
        return str(self._ask("POST", endpoints.THINK, said)["text"])

    def void(self, order: str, *, idempotency_key: str, effect_key: str) -> str:
        """Take back what came under a key, and let nothing come under it any more.

        What `ctx.compensate` wants: `ctx.compensate("charge", client.void, order)`. Nothing to undo
        is success.
        """
        return self.post(endpoints.VOID.name, order, effect_key, idempotency_key)

    def post(self, endpoint: str, order: str, body: Any, key: str) -> str:
        """What every effect comes down to.

        Returns:
            A receipt: as long as the receiver honours the key, the same for each repeat.

        Raises:
            RefusedError: it was refused for good; `KeyTakenError` if the key came with another
                request before.
            NotNowError: nothing was done; ask again.
            UnknownOutcomeError: nobody here knows whether it was done.

        Crash:
            A sender that dies in here doesn't know whether it was done. The request may even be
            under way still.
        """
        to = endpoints.BY_NAME[endpoint]
        return str(self._ask("POST", to.path, to.request(order, body), key)["receipt"])

    def state_of(self, key: str) -> KeyState:
        """Ask what became of a key; a receiver that ignores keys knows none.

        Raises:
            WorldError: as `post`.
        """
        told = self._ask("GET", f"{endpoints.LOOKUP}?{urlencode({'key': key})}")
        return KeyState(told["state"], told["answer"])

    def rows_of(self, order: str, endpoint: str | None = None) -> list[LedgerRow]:
        """Ask what took effect for an order, at one endpoint if wanted.

        What is under way isn't in it yet.

        Raises:
            WorldError: as `post`.
        """
        asked = {"order": order} | ({} if endpoint is None else {"endpoint": endpoint})
        told = self._ask("GET", f"{endpoints.LOOKUP}?{urlencode(asked)}")
        return [LedgerRow(*row) for row in told["rows"]]

    def books(self) -> BookPage:
        """Read the receiver's books, all of them.

        Raises:
            WorldError: as `post`.
        """
        told = self._ask("GET", endpoints.BOOKS)
        return BookPage([LedgerRow(*row) for row in told["rows"]], told["repeats"], told["spent"])

    def _ask(self, method: str, path: str, said: Any = None, key: str | None = None) -> Any:
        request = f"{method} {path}" + ("" if key is None else f", key {key!r}")
        text = None if said is None else json.dumps(said, allow_nan=False).encode()
        headers = {} if key is None else {endpoints.KEY_HEADER: _header(key)}
        connection = HTTPConnection(self._host, self._port, timeout=self.timeout_s)
        try:
            connection.request(method, path, text, {**headers, "Connection": "close"})
            response = connection.getresponse()
            answer = json.loads(response.read())
        except ConnectionRefusedError as error:
            message = f"{request}: nobody listens at {self.url}. Next: ask again later."
            raise NotNowError(message, None, "nobody_there", key) from error
        except (OSError, HTTPException, ValueError) as error:
            message = (
                f"{request}: no answer ({type(error).__name__}: {error}); it may have happened. "
                "Next: ask again with the same key, or look up what happened."
            )
            raise UnknownOutcomeError(message, None, "no_answer", key) from error
        finally:
            connection.close()
        if response.status == 200:
            return answer
        raise _error(request, response.status, answer, key)


def _header(key: str) -> bytes:
    """A key as header; spaces around it would be lost on the way, and it be another key."""
    if not key.isprintable() or key != key.strip(" "):
        why = "a header has printable characters, and no spaces around them"
        raise ValueError(f"key {key!r} can't be sent: {why}. Next: name the run otherwise.")
    return key.encode()


def _error(request: str, status: int, answer: Any, key: str | None) -> WorldError:
    """What an answer other than 200 means to its sender."""
    told = answer if isinstance(answer, dict) else {"message": answer}  # a stranger's
    reason, why = str(told.get("error", "unknown")), told.get("message", "no reason given")
    message = f"{request}: {status} {reason}: {why}. Next: {told.get('next', 'see who answers')}."
    kinds: dict[int, type[WorldError]] = {409: NotNowError, 503: NotNowError, 422: KeyTakenError}
    kind = kinds.get(status, RefusedError if status < 500 else UnknownOutcomeError)
    return kind(message, status, reason, key)
