"""HTTP around the receiver, on loopback, with nothing but the standard library.

Guarantees: every request that can be read as one is answered with JSON, also a bad one: what was
wrong and what to do next. Nobody but this machine can connect. Leaves to others: what is done with
a request (`receiver`), starting and stopping (`place`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qsl

from durable_mini.events import log
from durable_mini.lab.world.endpoints import KEY_HEADER, REPLAYED_HEADER
from durable_mini.lab.world.receiver import Asked, DroppedError, Receiver, Refusal, failed

HOST = "127.0.0.1"
BODY_LIMIT_BYTES = 1_048_576

DRAIN_LIMIT_BYTES = 16 * BODY_LIMIT_BYTES
_IDLE_LIMIT_S = 30.0


class Server(ThreadingHTTPServer):
    """A receiver that listens; each connection has a thread.

    Args:
        receiver: what answers.
        port: where; 0 takes a free one.
        tick: called several times a second while it serves.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True
    request_queue_size = 128  # a connection that finds the queue full is tried again a second later

    def __init__(
        self, receiver: Receiver, port: int = 0, tick: Callable[[], None] = lambda: None
    ) -> None:
        self.receiver, self._tick = receiver, tick
        super().__init__((HOST, port), _Handler)

    @property
    def url(self) -> str:
        """Where it can be asked."""
        return f"http://{HOST}:{self.server_port}"

    def server_bind(self) -> None:
        """Bind, and look up no name: that could ask the network."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def service_actions(self) -> None:
        """See `socketserver`: called between requests."""
        self._tick()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note what no handler could answer: mostly a client that is gone."""
        log.debug("world: %s: %r", client_address, sys.exc_info()[1])


class _Handler(BaseHTTPRequestHandler):
    """One connection: reads requests, and answers each."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE_LIMIT_S
    wbufsize = -1  # an answer leaves in one piece; two would wait for each other
    server: Server

    def do_POST(self) -> None:
        """A request that may take effect."""
        self._answer(self._post)

    def do_GET(self) -> None:
        """A request that reads the books."""
        self._answer(self._get)

    def _post(self) -> tuple[Any, bool]:
        path, _, _ = self.path.partition("?")
        return self.server.receiver.post(Asked(path, self._body(), self._key()))

    def _get(self) -> tuple[Any, bool]:
        path, _, query = self.path.partition("?")
        asked = Asked(path, query=dict(parse_qsl(query, keep_blank_values=True)))
        return self.server.receiver.get(asked), False

    def _answer(self, work: Callable[[], tuple[Any, bool]]) -> None:
        try:
            said, replayed = work()
        except Refusal as refusal:
            self._send(refusal.status, refusal.said)
        except DroppedError:
            self.close_connection = True
        except Exception as error:  # the receiver's own fault; its sender is told no less
            log.exception("world: %s", self.requestline)
            self.close_connection = True
            own = failed("broken", f"{type(error).__name__}: {error}")
            self._send(own.status, own.said)
        else:
            self._send(HTTPStatus.OK, said, replayed=replayed)

    def _body(self) -> Any:
        """What the request says."""
        text = self.rfile.read(self._length())
        try:
            return json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            why = f"the body is no JSON: {error}"
            raise _refused(HTTPStatus.BAD_REQUEST, "bad_json", why) from error

    def _length(self) -> int:
        told = self.headers.get("Content-Length")
        if told is None:
            self.close_connection = True
            why = "the header Content-Length is missing"
            raise _refused(HTTPStatus.LENGTH_REQUIRED, "no_length", why)
        if not (told.isascii() and told.isdigit() and len(told) <= 18):
            self.close_connection = True
            raise _refused(HTTPStatus.BAD_REQUEST, "bad_length", f"Content-Length is {told!r}")
        if int(told) > BODY_LIMIT_BYTES:
            self._drain(int(told))
            why = f"the body has {int(told):,} bytes, the limit is {BODY_LIMIT_BYTES:,}"
            raise _refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", why)
        return int(told)

    def _drain(self, length: int) -> None:
        """Read on for a while: who is cut off while sending doesn't read the answer."""
        self.close_connection = True
        left = min(length, DRAIN_LIMIT_BYTES)
        while left and (read := len(self.rfile.read(min(left, 65_536)))):
            left -= read

    def _key(self) -> str | None:
        """The key's text is sent as UTF-8; what reads headers takes every byte for a letter."""
        key = self.headers.get(KEY_HEADER)
        try:
            return key and key.encode("latin-1").decode().strip(" \t")
        except UnicodeDecodeError as error:
            raise _refused(HTTPStatus.BAD_REQUEST, "bad_key", f"{KEY_HEADER}: {error}") from error

    def _send(self, status: int, said: Any, *, replayed: bool = False) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if replayed:
            self.send_header(REPLAYED_HEADER, "true")
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, POST")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What `http.server` itself refuses, said as everything else here."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code, message = HTTPStatus.METHOD_NOT_ALLOWED, f"no method {self.command}"
        status = HTTPStatus(code)
        self.close_connection = True
        why = message or status.description
        self._send(status, _refused(status, status.name.lower(), why).said)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the override
        """Every request, for who wants to see them."""
        log.debug("world: " + format, *args)


def _refused(status: HTTPStatus, reason: str, why: str) -> Refusal:
    return Refusal(status, reason, why, "mend the request")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
