"""The world outside, with a gate: it sees each request, and at one of them the worker is killed.

Guarantees: the worker is dead before its request goes on, so that a place is hit exactly: "before"
is a request that has come and of which nothing is done, "window" one that took effect and isn't
answered. Between the record of one step and the work of the next nobody outside can look: the place
after a step's record is the one before the next step's work. The worker takes no part and knows of
nothing. Leaves to others: what a request does (`lab.world`), starting workers (`trial`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TypeAlias

from durable_mini.lab.shape import REFERENCE_SHAPE
from durable_mini.lab.world import Switches
from durable_mini.lab.world.books import Answer, Books
from durable_mini.lab.world.endpoints import BY_PATH, THINK
from durable_mini.lab.world.place import POLL_S
from durable_mini.lab.world.receiver import Asked, DroppedError, Receiver
from durable_mini.lab.world.server import Server

Place: TypeAlias = tuple[str, str]
"""Where a worker is killed: a step of the reference agent, and "before" or "window"."""

POSITIONS = ("before", "window")
STEPS = tuple(spec.name for spec in REFERENCE_SHAPE)
EFFECTS = tuple(spec.name for spec in REFERENCE_SHAPE if spec.kind == "effect")
PLACES: tuple[Place, ...] = tuple((step, position) for step in STEPS for position in POSITIONS)
"""Every place at which a worker can be killed from outside, in the order of a run."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request that came: the step, what it said, its key, when, and from which worker.

    `worker` counts from 0; `at_s` is of the monotonic clock.
    """

    step: str
    said: Any
    key: str
    at_s: float
    worker: int


class Gate:
    """A world that runs, and its gate.

    Attributes:
        url: where it is asked.
        requests: what came, in order.
        books: what took effect.
        worker: the number of the worker that works now; whoever starts the next one counts on.
        struck_at_s: when the worker was killed, of the monotonic clock; None before that.
    """

    def __init__(self, url: str, books: Books) -> None:
        self.url, self.books, self.worker = url, books, 0
        self.requests: list[Request] = []
        self.struck_at_s: float | None = None
        self._place: Place | None = None
        self._strike: Callable[[], None] = lambda: None
        self._lock = Lock()

    def arm(self, place: Place | None, strike: Callable[[], None]) -> None:
        """Call `strike` once, at the next request of a step and at a position.

        Args:
            place: where; None lets all requests pass.
            strike: kills the worker, and returns when it is dead.
        """
        self._place, self._strike, self.struck_at_s = place, strike, None

    def note(self, request: Request) -> None:
        """Take note of a request that has come."""
        with self._lock:
            self.requests.append(request)

    def pass_by(self, step: str, position: str) -> None:
        """Kill the worker if this is the place.

        Raises:
            DroppedError: it was; nobody is there any more to be answered.
        """
        with self._lock:
            if self.struck_at_s is not None or (step, position) != self._place:
                return
            self.struck_at_s = time.monotonic()  # first: whoever sees the worker die looks here
            self._strike()
        raise DroppedError


class _Watched(Receiver):
    """A receiver behind a gate."""

    gate: Gate

    def post(self, asked: Asked) -> Answer:
        """See `Receiver.post`."""
        step = _step_of(asked)
        at_s, worker = time.monotonic(), self.gate.worker
        self.gate.note(Request(step, asked.said, asked.key or "", at_s, worker))
        self.gate.pass_by(step, "before")
        answer = super().post(asked)
        self.gate.pass_by(step, "window")
        return answer


@contextmanager
def gated_world(path: Path, *, honours_keys: bool = True) -> Iterator[Gate]:
    """Serve the world outside from a thread of this process, behind a gate.

    Args:
        path: the file of its books.
        honours_keys: whether a repeated key is answered with the first response.
    """
    with Books(path) as books:
        receiver = _Watched(books, Switches(ignores_keys=not honours_keys))
        with Server(receiver) as server:
            receiver.gate = Gate(server.url, books)
            thread = Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
            thread.start()
            try:
                yield receiver.gate
            finally:
                receiver.stop()
                server.shutdown()
                thread.join()


def _step_of(asked: Asked) -> str:
    """The step whose request this is: the model is told its task, an effect has its own path."""
    if asked.path == THINK:
        return str(asked.said["task"])
    return BY_PATH[asked.path].name
