"""One attempt in a process of its own, which really can be killed.

Guarantees: the attempt runs the reference agent on a SQLite journal and a ledger file, nothing
else is shared with this process; where a kill is asked for, this process sends SIGKILL while the
worker stands at that place, so that no code of the worker runs after it. Leaves to others: more
than one worker.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import NoReturn

from durable_mini.engine import Engine
from durable_mini.events import EventKind, Position
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.lab.agent import agent_in
from durable_mini.lab.ledger import Ledger

_STANDING_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a worker process did: the steps it executed live, in order, and how it ended.

    `status` is the run's status when the worker finished, None when it was killed; `killed_by` is
    the name of the signal that ended the process, None when it ended by itself.
    """

    executed: tuple[str, ...]
    status: str | None
    killed_by: str | None


def attempt(
    journal: str | os.PathLike[str],
    run_id: str,
    ledger: str | os.PathLike[str],
    *,
    kill_at: tuple[str, Position | str] | None = None,
    honour_keys: bool = True,
) -> Attempt:
    """Let a new worker process resume a run, and kill it with SIGKILL at a place if asked to.

    Args:
        journal: path of the SQLite journal; the run has been started there.
        run_id: which run to resume.
        ledger: path of the ledger file, the world that outlives the worker.
        kill_at: step name and position ("before", "window", "after") at which to kill.
        honour_keys: whether the ledger drops a repeated idempotency key.

    Raises:
        RuntimeError: the worker ended with an error of its own (its last line says which), or never
            came to the place where it was to be killed.
    """
    command = [sys.executable, "-m", __spec__.name]
    if kill_at is not None:
        command += ["--stand-at", kill_at[0], str(Position(kill_at[1]))]
    if not honour_keys:
        command.append("--ignore-keys")
    command += ["--", os.fspath(journal), run_id, os.fspath(ledger)]
    worker = subprocess.Popen(  # noqa: S603 - this module itself
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        executed, status = _follow(worker)
        _, complaint = worker.communicate(timeout=_STANDING_LIMIT_S)
    finally:
        worker.kill()
        worker.wait()
    if worker.returncode > 0:
        raise RuntimeError(f"the worker failed: {complaint.strip().splitlines()[-1]}")
    killed_by = signal.Signals(-worker.returncode).name if worker.returncode < 0 else None
    if kill_at is not None and killed_by is None:
        raise RuntimeError(
            f"the worker never executed {kill_at[0]!r}, so it could not be killed there"
        )
    return Attempt(tuple(executed), status, killed_by)


def _follow(worker: subprocess.Popen[str]) -> tuple[list[str], str | None]:
    """Read what the worker tells, and kill it when it says that it stands where it was asked to."""
    executed: list[str] = []
    status = None
    for line in worker.stdout or ():
        told = json.loads(line)
        if "executed" in told:
            executed.append(told["executed"])
        elif "standing" in told:
            worker.send_signal(signal.SIGKILL)
        else:
            status = told["status"]
    return executed, status


def _tell(**told: str) -> None:
    print(json.dumps(told), flush=True)


def _stand() -> NoReturn:
    """Hold still at the place where the kill is to fall; give up if nobody ever comes."""
    time.sleep(_STANDING_LIMIT_S)
    raise SystemExit("nobody killed this worker")


def main() -> None:
    """The worker process: resume one run and tell, line by line, what is executed."""
    parser = argparse.ArgumentParser(description="Resume one run of the reference agent.")
    parser.add_argument("journal")
    parser.add_argument("run_id")
    parser.add_argument("ledger")
    parser.add_argument("--stand-at", nargs=2, metavar=("STEP", "POSITION"))
    parser.add_argument("--ignore-keys", action="store_true")
    options = parser.parse_args()
    stand_at = tuple(options.stand_at or ())

    def probe(position: Position, _kind: EventKind, name: str) -> None:
        if position is Position.WINDOW:
            _tell(executed=name)
        if (name, position) == stand_at:
            _tell(standing=name)
            _stand()

    world = Ledger(honour_keys=not options.ignore_keys, path=options.ledger)
    with SQLiteJournal(options.journal) as journal:
        run = Engine(journal, [agent_in(world)], probe=probe).resume(options.run_id)
        _tell(status=run.status)


if __name__ == "__main__":
    main()
