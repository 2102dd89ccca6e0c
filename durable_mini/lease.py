"""Keeping the lease of a run while it is driven.

Guarantees: a run that is held is renewed every `heartbeat_s`, however long its step takes, until it
is let go or the process dies; a lease that was lost is not asked for again. Leaves to others:
refusing what a stale holder writes (`journal`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import NamedTuple

from durable_mini.clock import SystemClock
from durable_mini.errors import DurableError, LeaseLostError
from durable_mini.events import RunRow, log
from durable_mini.journal import Journal


class Holder(NamedTuple):
    """Who drives a run, and how: a worker's name, its lease and heartbeat in seconds.

    `stopping` says whether to let go at the next durable call; `patient` waits out the back-offs
    between tries instead of suspending the run.
    """

    name: str
    lease_s: float = 5.0
    heartbeat_s: float = 1.0
    stopping: Callable[[], bool] = bool  # False
    patient: bool = False


class Heart:
    """Renews the leases of the runs that are held in this process, from one background thread.

    Args:
        heartbeat_s: seconds between renewals; a good deal shorter than the leases.
    """

    def __init__(self, heartbeat_s: float) -> None:
        self._heartbeat_s, self._lock = heartbeat_s, Lock()
        self._held: dict[tuple[Journal, RunRow], SystemClock] = {}
        with suppress(RuntimeError):  # a platform without threads: its steps fit into a lease
            Thread(target=self._beat, name="heartbeats", daemon=True).start()

    @contextmanager
    def holding(self, journal: Journal, row: RunRow, clock: SystemClock) -> Iterator[None]:
        """Renew the lease of `row` until the block is left.

        Crash:
            The renewals end with the process, and the lease with its time.
        """
        self._held[journal, row] = clock
        try:
            yield
        finally:
            with self._lock:  # not in the middle of a renewal: the journal may be closed next
                self._held.pop((journal, row), None)

    def _beat(self) -> None:
        while True:
            Event().wait(self._heartbeat_s)
            with self._lock:
                for (journal, row), clock in list(self._held.items()):
                    try:
                        journal.append(row, None, lease_until=clock.now() + row.lease_s)
                    except LeaseLostError:  # or given back a moment ago: whoever drives will see
                        del self._held[journal, row]
                    except DurableError as error:
                        log.warning("heartbeat: %s", error, extra={"run_id": row.run_id})
