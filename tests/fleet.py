"""Real worker processes for tests: started, stopped, killed, and all heard on one pipe.

This file is also the program that they are: it forks a worker for each that it is asked for, so
that a new one costs no start of an interpreter, and ends all of them when its input ends. They
tell what they do in lines shorter than what a pipe takes whole, so that no kill tears one.
Guarantees that no process outlives its `Fleet`. Leaves to the tests: what should come of it.
"""

from __future__ import annotations

import json
import logging
import os
import random
import select
import signal
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Self

from durable_mini import (
    Context,
    Engine,
    EventKind,
    Position,
    Run,
    RunStatus,
    SQLiteJournal,
    Worker,
    Workflow,
    workflow,
)
from durable_mini.events import RunRow
from durable_mini.lab import Ledger, agent_in

LIMIT_S = 60.0  # nothing that a test waits for takes as long
LAST_KILL = 0.95  # the kills are spread over this much of the runs


def two_steps(body: Callable[[str], str]) -> Workflow:
    """A workflow of two steps, "long" and "next", both done by `body`."""

    @workflow(name="two_steps", version="1")
    def both(ctx: Context, _: Any) -> list[str]:
        return [ctx.step("long", body, "long"), ctx.step("next", body, "next")]

    return both


# ---- the tests' side ---------------------------------------------------------------------------


@dataclass
class Tally:
    """What a fleet came to, as its processes told it.

    `completed` lacks the runs whose workers were killed before they could say so. `takeovers` has
    the former holder of each run that was claimed while its row said running. `effects` counts what
    was asked of the receiver, repeats too. `longest_wait_s` is the longest that a process waited
    for the write lock, `seconds` the time from the first worker's start to the last run's end.
    """

    completed: set[str] = field(default_factory=set)
    killed: set[str] = field(default_factory=set)
    takeovers: list[str] = field(default_factory=list)
    effects: int = 0
    longest_wait_s: float = 0.0
    seconds: float = 0.0

    def enter(self, line: dict[str, Any]) -> None:
        """Add what a process told."""
        self.takeovers += [line["takeover"]] if "takeover" in line else []
        self.completed |= {line["completed"]} if "completed" in line else set()
        self.effects += "effect" in line
        self.longest_wait_s = max(self.longest_wait_s, line.get("waited", 0.0))
        self.killed |= {line["worker"]} if line.get("ended") == -signal.SIGKILL else set()


class Fleet:
    """Worker processes on one journal; those that are left are killed at the end of the block.

    Args:
        journal: path of the SQLite journal.
        world: path of what the steps share: the ledger, or the gate of `two_steps`.
        kind: "agent" for the reference agent, or "two_steps".
        lease_s: the workers' lease in seconds.
        heartbeat_s: and their heartbeat.
        forever: whether they go on when nothing is due, until SIGTERM.

    Attributes: `told` (each line that was heard, as a dictionary; `worker` in it is who told it).
    """

    def __init__(
        self,
        journal: Path,
        world: Path,
        kind: str = "agent",
        *,
        lease_s: float = 5.0,
        heartbeat_s: float = 1.0,
        forever: bool = False,
    ) -> None:
        given = [journal, world, kind, lease_s, heartbeat_s, "forever" if forever else "until idle"]
        self._nursery = subprocess.Popen(
            [sys.executable, __file__, *map(str, given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._nursery.stdin and self._nursery.stdout
        self._asks, self._tells = self._nursery.stdin, self._nursery.stdout
        self.told: list[dict[str, Any]] = []
        self._rest, self._heard = b"", deque[dict[str, Any]]()
        self._count = 0

    def start(self) -> str:
        """Start a worker process; its worker id."""
        self._count += 1
        self._ask("start", worker_id := f"w-{self._count}")
        return worker_id

    def send(self, worker_id: str, number: int) -> None:
        """Send a signal to a process whose end hasn't been waited for."""
        self._ask("signal", worker_id, number)

    def exit_status(self, worker_id: str) -> int:
        """Wait for the end of a process; minus the signal's number if one ended it."""
        self._ask("wait", worker_id)
        return int(self.wait_for(worker_id, "ended"))

    def wait_for(self, worker_id: str, what: str) -> Any:
        """Listen until a process tells this; what it told.

        Raises:
            TimeoutError: it never did; the message has what was told instead.
        """
        give_up_at = time.monotonic() + LIMIT_S
        while time.monotonic() < give_up_at:
            for line in self.listen():
                if line["worker"] == worker_id and what in line:
                    return line[what]
        raise TimeoutError(f"{worker_id} never told {what!r}, but at last {self.told[-20:]}")

    def listen(self) -> Iterator[dict[str, Any]]:
        """What has been told; waits a moment for it.

        Raises:
            RuntimeError: a worker ended with an error of its own.
        """
        if not self._heard and select.select([self._tells], [], [], 0.02)[0]:
            *lines, self._rest = (self._rest + os.read(self._tells.fileno(), 65_536)).split(b"\n")
            self._heard.extend(map(json.loads, lines))
        while self._heard:
            line = self._heard.popleft()
            if "failed" in line:
                raise RuntimeError(f"{line['worker']}: {line['failed']}")
            self.told.append(line)
            yield line

    def work_off(self, workers: int, runs: int, kills: int = 0, seed: int = 0) -> Tally:
        """Let processes work until nothing is left, and kill some with SIGKILL meanwhile.

        The kills are spread evenly over the runs, each falls on a random process at a random
        moment, and a new process takes the dead one's place.
        """
        tally, chance, began = Tally(), random.Random(seed), 0.0
        alive, working, victims = {self.start() for _ in range(workers)}, set[str](), 0
        while alive:
            for line in self.listen():
                began = began or time.monotonic()
                tally.enter(line)
                if "completed" in line:
                    tally.seconds = time.monotonic() - began
                elif "up" in line:
                    working.add(line["worker"])
                elif "left" in line and line["worker"] in working:
                    working.remove(line["worker"])
                    self._ask("wait", line["worker"])
                elif "ended" in line:
                    alive.remove(line["worker"])
            while working and victims < kills * len(tally.completed) / (LAST_KILL * runs):
                time.sleep(chance.uniform(0, 0.01))
                working.remove(victim := chance.choice(sorted(working)))
                self.send(victim, signal.SIGKILL)
                self._ask("wait", victim)
                alive.add(self.start())
                victims += 1
        return tally

    def _ask(self, *command: str | int) -> None:
        self._asks.write(json.dumps(command).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._asks.close()
        self._tells.close()
        self._nursery.wait()


# ---- the worker processes ----------------------------------------------------------------------


class WatchedJournal(SQLiteJournal):
    """A journal that tells how long it waited for the write lock, and of runs taken over."""

    _longest_s = 0.0

    @contextmanager
    def _writing(self) -> Iterator[None]:
        asked_at = time.monotonic()
        with super()._writing():
            waited_s = time.monotonic() - asked_at
            if waited_s > self._longest_s:
                self._longest_s = waited_s
                tell(waited=waited_s)
            yield

    def replace(self, row: RunRow, changed: RunRow) -> bool:
        done = super().replace(row, changed)
        if done and row.status is RunStatus.RUNNING and changed.token > row.token:
            tell(takeover=row.worker)
        return done


class Teller(logging.Handler):
    """Tells what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(log=record.getMessage()[:1_000])


def tell(**told: Any) -> None:
    """One line for the fleet, whole or not at all."""
    os.write(1, json.dumps({"worker": os.environ["WORKER"], **told}).encode() + b"\n")


def tell_run(run: Run) -> None:
    tell(**{str(run.status): run.run_id})


def tell_effect(position: Position, kind: EventKind, name: str) -> None:
    if position is Position.WINDOW and kind is EventKind.EFFECT:
        tell(effect=name)


def pass_gate(gate: Path, name: str) -> str:
    """The body of `two_steps`: tells where it is and when it is to stop; waits for the gate."""
    tell(inside=name)
    stopping = False
    while not gate.exists():
        if not stopping and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            stopping = True
            tell(stopping=name)
        time.sleep(0.005)
    return name


def work(
    journal: str, world: str, kind: str, lease_s: str, heartbeat_s: str, how_long: str
) -> None:
    """What a worker process does from its start to its end."""
    agent = two_steps(lambda name: pass_gate(Path(world), name))
    if kind == "agent":
        agent = agent_in(Ledger(path=world))
    with WatchedJournal(journal) as opened:
        engine = Engine(opened, [agent], probe=tell_effect)
        lease = {"lease_s": float(lease_s), "heartbeat_s": float(heartbeat_s)}
        worker = Worker(engine, os.environ["WORKER"], on_attempt=tell_run, **lease)
        tell(up=os.getpid())
        if how_long == "until idle":
            worker.run_until_idle()
        else:
            worker.run_forever()
    tell(left=os.getpid())


def forked(worker_id: str, given: list[str]) -> int:
    """Start a worker process; its process id."""
    pid = os.fork()
    if pid == 0:
        os.environ["WORKER"] = worker_id
        end_with_work(given)
    return pid


def end_with_work(given: list[str]) -> NoReturn:
    try:
        work(*given)
        os._exit(0)
    except BaseException:
        tell(failed=traceback.format_exc()[-1_000:])
    finally:
        os._exit(1)


def main(*given: str) -> None:
    """Start, signal and wait for worker processes as asked; at the end of the input kill them."""
    log = logging.getLogger("durable_mini")
    log.addHandler(Teller(logging.INFO))
    log.setLevel(logging.INFO)
    processes: dict[str, int] = {}
    for asked in iter(sys.stdin.buffer.readline, b""):
        command, worker_id, *number = json.loads(asked)
        if command == "start":
            processes[worker_id] = forked(worker_id, [*given])
        elif command == "signal":
            os.kill(processes[worker_id], *number)
        else:
            _, status = os.waitpid(processes.pop(worker_id), 0)
            tell(worker=worker_id, ended=os.waitstatus_to_exitcode(status))
    for pid in processes.values():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    os.environ["WORKER"] = "nursery"
    main(*sys.argv[1:])
