"""A worker: looks for runs that are due, claims them with a lease, and drives them.

Guarantees: a run has one holder at a time as far as the journal goes, since a claim raises the
fencing token; what a worker held when it died is taken over when its lease ends; a worker that is
told to stop finishes the step it is in and gives the run back. Leaves to others: driving
(`engine`), refusing a stale worker's writes (`journal`).
"""

import logging
import os
import signal
import threading
import uuid
from collections.abc import Callable

from durable_mini import errors
from durable_mini.engine import Engine
from durable_mini.events import Run, RunRow
from durable_mini.lease import Holder

log = logging.getLogger("durable_mini.worker")

_AT_ONCE = 16  # due runs that are read at a time; all of them when none of these is to be had


class Worker:
    """Drives the runs of an engine's journal, several workers and processes beside each other.

    Args:
        engine: whose runs and workflows; runs of other workflows are left alone.
        worker_id: this worker's name in the journal; made of the process id by default.
        lease_s: how long a run stays claimed without a sign of life.
        heartbeat_s: how often a lease is renewed, however long a step takes.
        poll_s: how long to wait when nothing is due.
        on_attempt: called with the run after each attempt, for a progress display.

    Raises:
        ValueError: the heartbeats would come too late for the lease.
    """

    def __init__(
        self,
        engine: Engine,
        worker_id: str | None = None,
        *,
        lease_s: float = 5.0,
        heartbeat_s: float = 1.0,
        poll_s: float = 0.05,
        on_attempt: Callable[[Run], None] = lambda run: None,
    ) -> None:
        if not 0 < heartbeat_s <= lease_s / 2 or poll_s <= 0:
            given = f"lease_s={lease_s}, heartbeat_s={heartbeat_s}, poll_s={poll_s}"
            raise ValueError(f"{given}: all above 0, and two heartbeats in a lease")
        self.worker_id = worker_id or f"worker-{os.getpid()}-{uuid.uuid4().hex[:4]}"
        self._engine, self._poll_s, self._on_attempt = engine, poll_s, on_attempt
        self._stop = threading.Event()
        self._holder = Holder(self.worker_id, lease_s, heartbeat_s, self._stop.is_set)
        self._refused: set[RunRow] = set()  # what can't be driven, as long as it stands like this

    def stop(self) -> None:
        """Ask the worker to finish the step it is in, to give its run back, and to return."""
        self._stop.set()

    def run_until_idle(self) -> int:
        """Drive runs until nothing is due, claimable, or leased by anyone; how many attempts.

        A run that is suspended until later, for a back-off too, doesn't keep it.
        """
        return self._work(until_idle=True)

    def run_forever(self) -> int:
        """Drive runs until `stop` is called, or SIGTERM or SIGINT arrives; how many attempts.

        The second signal of a kind does what it would have done without this worker.
        """
        numbers = (signal.SIGTERM, signal.SIGINT)
        if threading.current_thread() is not threading.main_thread():
            return self._work(until_idle=False)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        self._before = before
        try:
            return self._work(until_idle=False)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: object) -> None:
        log.info("%s stops after this step", self.worker_id, extra={"signal": number})
        signal.signal(number, self._before[signal.Signals(number)])
        self.stop()

    def _work(self, *, until_idle: bool) -> int:
        attempts = 0
        while not self._stop.is_set():
            drove, waits = self._take_one()
            attempts += drove
            if not drove and not waits and until_idle:
                break
            if not drove:
                self._engine.clock.sleep(self._poll_s)
        return attempts

    def _take_one(self) -> tuple[bool, bool]:
        """Drive the run that has waited longest: whether there was one, and whether to wait on."""
        waits = False
        for limit in (_AT_ONCE, -1):
            rows = self._engine.journal.due(self._engine.clock.now(), limit)
            for row in rows:
                waits = waits or row.lease_until > self._engine.clock.now()
                if self._is_free(row) and self._drove(row):
                    return True, waits
            if len(rows) < _AT_ONCE:
                break
        return False, waits

    def _is_free(self, row: RunRow) -> bool:
        """Whether this worker may claim a run that is due."""
        if not self._engine.registers(row) or row in self._refused:
            return False
        now = self._engine.clock.now()
        if row.lease_until > now + row.lease_s:  # the clock was set back: nobody waits for that
            self._engine.journal.replace(row, row._replace(lease_until=now + row.lease_s))
        return row.lease_until <= now

    def _drove(self, row: RunRow) -> bool:
        """Claim and drive one run; what is wrong with one doesn't keep the worker from others."""
        try:
            run = self._engine.drive(row, self._holder)
        except errors.LeaseLostError as lost:
            log.warning("%s", lost, extra={"run_id": row.run_id})
            return True
        except errors.StorageError:
            raise
        except errors.DurableError as refused:
            log.error("%s", refused, extra={"run_id": row.run_id})
            self._refused.add(row)
            return False
        if run is not None:
            self._on_attempt(run)
        return run is not None
