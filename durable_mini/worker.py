"""A worker: looks for runs that are due, claims them with a lease, and drives them.

Guarantees: a run has one holder at a time as far as the journal goes, since a claim raises the
fencing token; what a worker held when it died is taken over when its lease ends; a worker that is
told to stop finishes the step it is in and gives the run back. Leaves to others: driving
(`engine`), refusing a stale worker's writes (`journal`).
"""

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from threading import Event, current_thread, main_thread

from durable_mini import errors
from durable_mini.engine import Engine
from durable_mini.events import Run, RunRow, log
from durable_mini.lease import Holder


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
        if not 0 < heartbeat_s <= lease_s / 2:
            wanted = f"above 0 and at most half of lease_s={lease_s}"
            raise ValueError(f"heartbeat_s={heartbeat_s} isn't {wanted}")
        self.worker_id = worker_id or f"worker-{os.getpid()}-{os.urandom(2).hex()}"
        self._engine, self._poll_s, self._on_attempt = engine, poll_s, on_attempt
        self._stop = Event()
        self._holder = Holder(self.worker_id, lease_s, heartbeat_s, self._stop.is_set)
        self._refused = set[RunRow]()  # what can't be driven, as long as it stands like this

    def stop(self) -> None:
        """Ask the worker to finish the step it is in, to give its run back, and to return.

        May be called from another thread, from a signal handler, or from a step.
        """
        self._stop.set()

    def run_until_idle(self) -> int:
        """Drive runs until nothing is due, claimable, or leased by anyone; how many attempts.

        A run that is suspended until later, for a back-off too, doesn't keep it. What is wrong with
        one run (unknown code, a divergence, a damaged history) is logged and left alone.

        Raises:
            StorageError: the journal can't be written; the run stays claimable when its lease ends.

        Crash:
            What this worker held is claimed by another when the lease ends.
        """
        attempts, tried, leased, engine = 0, True, False, self._engine
        while tried or leased:
            tried = leased = False
            for row in engine.journal.due(engine.clock.now()):
                if self._stop.is_set():
                    return attempts
                if not self._is_free(row):
                    leased = True
                elif (row.workflow, row.version) in engine.registered and row not in self._refused:
                    tried = True  # whatever comes of it, something else may be due now
                    attempts += self._drive(row)
            if leased and not tried:
                engine.clock.sleep(self._poll_s)
        return attempts

    def run_forever(self) -> None:
        """Drive runs until `stop` is called, or SIGTERM or SIGINT arrives.

        The second signal does what it would have done without this worker.

        Raises:
            StorageError: the journal can't be written.

        Crash:
            As in `run_until_idle`.
        """
        caught = (signal.SIGTERM, signal.SIGINT) if current_thread() is main_thread() else ()
        before = ExitStack()

        def on_signal(*_: object) -> None:
            self.stop()
            before.close()

        with before:
            for number in caught:
                before.callback(signal.signal, number, signal.signal(number, on_signal))
            while not self._stop.is_set():
                self.run_until_idle()
                self._engine.clock.sleep(self._poll_s)

    def _is_free(self, row: RunRow) -> bool:
        now = self._engine.clock.now()
        if row.lease_until > now + row.lease_s:  # the clock was set back: nobody waits for that
            self._engine.journal.replace(row, row._replace(lease_until=now + row.lease_s))
        return row.lease_until <= now and self._engine.journal.row(row.run_id) == row

    def _drive(self, row: RunRow) -> bool:
        """Claim and drive one run; what is wrong with one doesn't keep the worker from others."""
        try:
            run = self._engine.drive(row, self._holder)
        except errors.StorageError:
            raise
        except errors.DurableError as error:
            log.warning("%s: %s", self.worker_id, error, extra={"run_id": row.run_id})
            self._refused.add(row)
            return isinstance(error, errors.LeaseLostError)
        if run is not None:
            self._on_attempt(run)
        return run is not None
