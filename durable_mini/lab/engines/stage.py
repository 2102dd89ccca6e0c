"""What an agent's file needs to be run by hand, in a crash experiment and in the benchmark.

Guarantees: the agent's own code is the same in all three; it knows of no experiment. Run by hand
the file starts a store and a world, runs one ticket in a process of its own, kills that process if
asked to, and says what the world saw. Leaves to others: the stores (`services`), the kill
(`gate`), the counting (`trial`).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeAlias

from durable_mini.lab.engines.job import BENCH, KEYLESS, ORDER, WORLD, tell
from durable_mini.lab.ledger import AMOUNT, Ledger, Outside
from durable_mini.lab.world import Client

__all__ = ["AMOUNT", "Result", "outside", "stage"]

Result: TypeAlias = Any
"""What the agent returns: a mapping of its order and its letter, as the engine gives it back."""

Working: TypeAlias = (
    Callable[[], AbstractContextManager[Callable[[str], Result]]]
    | Callable[[], AbstractAsyncContextManager[Callable[[str], Awaitable[Result]]]]
)
"""Opens an engine for as long as the block lasts, and gives what runs one order to its end."""


class _Keyless(Client):
    """A sender that leaves the key out, whatever it is handed."""

    def post(self, endpoint: str, order: str, body: Any, key: str) -> str:
        """As `Client.post`, without the key."""
        return super().post(endpoint, order, body, "")


def outside() -> Outside:
    """The HTTP world that was started for this process; where none was, a ledger in it."""
    url = os.environ.get(WORLD)
    if url is None:
        return Ledger()
    return (_Keyless if KEYLESS in os.environ else Client)(url)


def stage(name: str, working: Working) -> None:
    """What an agent's file does when it is run.

    Args:
        name: the engine, as the catalogue has it.
        working: opens the engine in this process.
    """
    if ORDER in os.environ:
        _with(working, lambda run: _tell_of(run, os.environ[ORDER]))
    elif BENCH in os.environ:
        _with(working, _bench)
    else:
        from durable_mini.lab.engines.by_hand import main  # noqa: PLC0415 - no worker needs it

        main(name)


def _with(working: Working, work: Callable[[Callable[[str], Result]], None]) -> None:
    """Open the engine and work in it; an engine for `asyncio` has its loop in this thread."""
    opened: Any = working()
    if not hasattr(opened, "__aenter__"):
        with opened as run:
            work(run)
        return

    async def inside() -> None:
        loop = asyncio.get_running_loop()
        async with opened as run:

            def waiting(order: str) -> Result:
                found: Result = asyncio.run_coroutine_threadsafe(run(order), loop).result()
                return found

            await asyncio.to_thread(work, waiting)

    asyncio.run(inside())


def _tell_of(run: Callable[[str], Result], order: str) -> None:
    try:
        tell(result=run(order))
    except Exception as error:
        tell(error=type(error).__name__, message=str(error))
        raise


def _bench(run: Callable[[str], Result]) -> None:
    """Run as many orders as each line asks for, and tell how long all of them took."""
    tell(ready=True)
    number = 0
    for line in sys.stdin:
        orders = [f"bench-{number + one}" for one in range(int(line))]
        number += len(orders)
        began_s = time.perf_counter()
        for order in orders:
            run(order)
        tell(seconds=time.perf_counter() - began_s)
