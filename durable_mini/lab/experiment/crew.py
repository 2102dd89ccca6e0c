"""Worker processes: started, watched over one pipe, killed with SIGKILL, and never left behind.

Guarantees: no process of a crew outlives the block that opened it, nor the process that holds it:
each holds one end of a leash, a pipe whose other end is ours alone, and ends itself when that is
gone, whatever became of us. Leaves to others: starting them (`nursery`), what a worker does
(`duty`), whom to kill and when (the experiment).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, Any, Self, cast

from durable_mini.lab.experiment.duty import Duty

_NURSERY = f"{__package__}.nursery"
_PATIENCE_S = 0.02  # how long one look at the pipe waits


class Crew:
    """The worker processes of one strategy.

    Args:
        duty: what each of them does.

    Attributes: `alive` (worker ids of those that were started and have not ended).
    """

    def __init__(self, duty: Duty) -> None:
        self._leash_out, self._leash_in = os.pipe()
        command = [sys.executable, "-m", _NURSERY, str(self._leash_out), json.dumps(duty)]
        self._nursery = subprocess.Popen(  # noqa: S603 - this package itself
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            pass_fds=(self._leash_out,),
            start_new_session=True,  # so that Ctrl-C is ours to answer
        )
        os.close(self._leash_out)
        self._asks = cast(IO[bytes], self._nursery.stdin)
        self._tells = cast(IO[bytes], self._nursery.stdout)
        self.alive: set[str] = set()
        self._rest = b""

    def start(self, worker_id: str) -> None:
        """Start a worker; it tells `up` with its process id when it begins."""
        self.alive.add(worker_id)
        self._ask("start", worker_id)

    def kill(self, worker_id: str) -> None:
        """Send SIGKILL; the worker tells nothing more, and its end is told for it."""
        self._ask("kill", worker_id)

    def listen(self) -> Iterator[dict[str, Any]]:
        """What was told since, after waiting a moment for it; `worker` is who told it.

        Raises:
            RuntimeError: a worker ended with an error of its own, or all of them vanished.
        """
        if not select.select([self._tells], [], [], _PATIENCE_S)[0]:
            return
        data = os.read(self._tells.fileno(), 65_536)
        if not data:
            raise RuntimeError("the process that starts the workers has ended")
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "broke" in told:
                raise RuntimeError(f"worker {told['worker']}: {told['broke']}")
            if "ended" in told:
                self.alive.discard(told["worker"])
            yield told

    def _ask(self, *command: str) -> None:
        self._asks.write(json.dumps(command).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._leash_in)
        self._asks.close()
        self._tells.close()
        self._nursery.wait()
