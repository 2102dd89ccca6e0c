"""Functions run in a process of their own, for tests about several processes, users or limits.

The child is a fork: it has the test's objects, and whatever it does to itself (another user, a
limit, a death) leaves the test's process as it was.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

NOBODY = 65534


class ChildError(Exception):
    """The function raised in the child, or the child died; the message says which."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")


class Child:
    """A function that runs beside the test, in a process of its own."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        reading, writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(reading)
            _answer(writing, function, args)
        os.close(writing)
        self._pipe = os.fdopen(reading, "rb")

    def send_signal(self, number: int) -> None:
        """Send the child a signal, as `subprocess` does."""
        os.kill(self._pid, number)

    def result(self) -> Any:
        """Wait for what the function returns.

        Raises:
            ChildError: it raised, or the process died before it could answer.
        """
        with self._pipe:
            answer = self._pipe.read()
        _, status = os.waitpid(self._pid, 0)
        if not answer:
            raise ChildError("ProcessDied", f"wait status {status}")
        value, error = pickle.loads(answer)
        if error is not None:
            raise ChildError(*error)
        return value


def in_child(function: Callable[..., Any], *args: Any) -> Any:
    """What `function(*args)` returns when another process runs it."""
    return Child(function, *args).result()


def as_nobody(function: Callable[..., Any], *args: Any) -> Any:
    """What `function(*args)` returns for a user whom file permissions stop, as they don't root."""

    def demoted() -> Any:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return function(*args)

    return in_child(demoted)


def _answer(pipe: int, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Run the function, send what came of it, and end without running anything of the test's."""
    answer: tuple[Any, Any] = (None, ("NothingSent", "the result can't be pickled"))
    try:
        try:
            answer = (function(*args), None)
        except BaseException as error:
            answer = (None, (type(error).__name__, str(error)))
        sent = pickle.dumps(answer)
        while sent:
            sent = sent[os.write(pipe, sent) :]
    finally:
        os._exit(0)
