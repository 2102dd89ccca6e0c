"""The small process that a crew's workers are forked from, and what each of them is.

Guarantees: everything is imported before the first worker is asked for, so that a new one is there
in milliseconds; nothing here outlives the holder of the leash. What to do comes on standard input.
The workers tell what they do on standard output, in lines shorter than what a pipe takes whole, so
that no kill tears one. Leaves to others: what a worker does (`duty`).
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import traceback
from io import FileIO
from threading import Thread
from typing import Any, NoReturn

from durable_mini.lab.experiment.duty import Duty, work

_PATIENCE_S = 0.02  # between two looks at which workers have ended


def tell(worker_id: str, **told: Any) -> None:
    """Write one line for the crew, whole or not at all."""
    os.write(1, json.dumps({"worker": worker_id, **told}).encode() + b"\n")


def _end_with(leash: int) -> None:
    """End this process when the holder of the leash is gone."""
    os.read(leash, 1)
    os._exit(1)


def _fork(worker_id: str, leash: int, duty: Duty) -> int:
    """Start a worker process; its process id."""
    pid = os.fork()
    if pid == 0:
        _serve(worker_id, leash, duty)
    return pid


def _serve(worker_id: str, leash: int, duty: Duty) -> NoReturn:
    """What a worker process does from its start to its end; it never returns into its parent."""
    status = 1
    try:
        os.close(0)
        Thread(target=_end_with, args=(leash,), daemon=True).start()
        work(duty, worker_id, tell)
        status = 0
    except BaseException:
        tell(worker_id, broke=traceback.format_exception_only(*sys.exc_info()[:2])[-1].strip())
    finally:
        os._exit(status)


def main(leash: int, duty: Duty) -> None:
    """Start and kill workers as asked, and tell how each ended; kill the rest at the end."""
    pids: dict[str, int] = {}
    asked = FileIO(0, closefd=False)  # unbuffered: select has to see what is left to read
    while True:
        ready, _, _ = select.select([0, leash], [], [], _PATIENCE_S)
        if leash in ready:
            break
        if ready:
            command = asked.readline()
            if not command:
                break
            what, worker_id = json.loads(command)
            if what == "start":
                pids[worker_id] = _fork(worker_id, leash, duty)
            elif worker_id in pids:
                os.kill(pids[worker_id], signal.SIGKILL)  # not reaped yet: the id is still its own
        _reap(pids)
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _reap(pids: dict[str, int]) -> None:
    """Tell of the workers that have ended."""
    for worker_id, pid in list(pids.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            del pids[worker_id]
            tell(worker_id, ended=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(int(sys.argv[1]), Duty(*json.loads(sys.argv[2])))
