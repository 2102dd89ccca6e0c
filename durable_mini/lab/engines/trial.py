"""One trial: the reference agent on an engine, its worker killed at a place, the run gone on with.

Guarantees: the worker is a process of its own, killed with SIGKILL by this one; after that the same
command starts another, which is all that anybody does for the recovery. What was executed is
counted by the world. No process outlives a trial. Leaves to others: which trials (`experiment`,
`grid`).
"""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from durable_mini.lab.engines.catalogue import Setup
from durable_mini.lab.engines.gate import Gate, Place, Request, gated_world
from durable_mini.lab.engines.job import BENCH, KEYLESS, ORDER, TOLD, WORLD
from durable_mini.lab.engines.services import Settings

LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one run.

    Attributes:
        kill_at: where its worker was killed; None for a run that was left alone.
        requests: what the world was asked, in order.
        duplicates: effects beyond the first of their kind for the order, as the world counts.
        result: what the run returned; None if it never did.
        error: what the last worker ended with, if it ended with an error.
        refusal: what the engine's log says of code that it refuses, if it says that.
        recovered_s: seconds from the kill to the next request of the run; None where none came.
    """

    kill_at: Place | None
    requests: tuple[Request, ...]
    duplicates: int
    result: dict[str, Any] | None
    error: str | None
    refusal: str | None
    recovered_s: float | None


class Theatre:
    """A fresh store with a world beside it, for any number of trials of one setup.

    Attributes: `gate` (of the world), `settings` (where the store is), `folder`.
    """

    def __init__(self, setup: Setup, gate: Gate, settings: Settings, folder: Path) -> None:
        self.setup, self.gate, self.settings, self.folder = setup, gate, settings, folder

    def trial(
        self,
        order: str,
        kill_at: Place | None = None,
        *,
        script: Path | None = None,
        script_after: Path | None = None,
        with_key: bool = True,
        settings: Mapping[str, str] | None = None,
        limit_s: float = LIMIT_S,
    ) -> Outcome:
        """Run one order; kill its worker at a place; let another one go on.

        Args:
            order: names the run; another one for each trial.
            kill_at: where the worker is killed; None leaves it alone.
            script: the agent's file; by default the one in `course/engines`.
            script_after: the file that goes on after the kill; by default the same.
            with_key: whether the effects are sent with their key.
            settings: further environment variables of the workers.
            limit_s: how long the last worker may take, before it counts as stuck and is ended.

        Raises:
            RuntimeError: the worker never came to the place.
        """
        gate, log = self.gate, self.folder / f"{order}.log"
        first = len(gate.requests)
        before, gate.worker = gate.books.repeats(), 0
        environment = self._environment(order, with_key=with_key) | dict(settings or {})
        path, killed_at_s = script or self.setup.path, 0.0
        told = self._work(path, environment, log, LIMIT_S if kill_at else limit_s, kill_at)
        if kill_at is not None:
            if gate.struck_at_s is None:
                raise RuntimeError(f"{self.setup.name}: never came to {kill_at}: {_tail(log)}")
            gate.worker, killed_at_s = 1, gate.struck_at_s
            told = self._work(script_after or path, environment, log, limit_s)
        requests = tuple(gate.requests[first:])
        again = [request.at_s for request in requests if request.worker == 1]
        return Outcome(
            kill_at,
            requests,
            gate.books.repeats() - before,
            told.get("result"),
            f"{told['error']}: {told['message']}" if "error" in told else None,
            self._refusal(order, log),
            again[0] - killed_at_s if again else None,
        )

    def _environment(self, order: str, *, with_key: bool) -> dict[str, str]:
        own = {WORLD: self.gate.url, ORDER: order} | ({} if with_key else {KEYLESS: "yes"})
        left = {name: value for name, value in os.environ.items() if name not in (KEYLESS, BENCH)}
        return {**left, **self.settings, **self.setup.settings, **own}

    def _work(
        self,
        script: Path,
        environment: Mapping[str, str],
        log: Path,
        limit_s: float,
        kill_at: Place | None = None,
    ) -> dict[str, Any]:
        """One worker, from its start to its end; what it told."""
        with worker_process(script, environment, log) as process:

            def strike() -> None:
                process.kill()
                process.wait()

            self.gate.arm(kill_at, strike)
            return listen(process, limit_s)

    def _refusal(self, order: str, log: Path) -> str | None:
        """What the engine said of code that it refuses; a server says it in its own place."""
        said = "".join(_text(path) for path in {log, *self.folder.glob("*.log")})
        said += self.setup.history(self.settings, order)
        found = re.search(self.setup.refusal, said)
        return " ".join(found.group().split()) if found else None


@contextmanager
def theatre(
    setup: Setup, *, honours_keys: bool = True, folder: Path | None = None
) -> Iterator[Theatre]:
    """Open a fresh store of a setup and a world; both are gone when the block is left.

    Args:
        setup: the engine.
        honours_keys: whether the world looks at keys.
        folder: below which folder the files lie; by default where temporary files go.
    """
    with TemporaryDirectory(dir=folder, prefix="engine-") as made:
        place = Path(made)
        world = gated_world(place / "world.db", honours_keys=honours_keys)
        with setup.service(place) as settings, world as gate:
            yield Theatre(setup, gate, settings, place)


# ---- the worker's process ----------------------------------------------------------------------


@contextmanager
def worker_process(
    script: Path, environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[str]]:
    """An agent's file in a process of its own, which doesn't outlive the block."""
    with log.open("a") as complaints:
        process = subprocess.Popen(  # noqa: S603 - a file of this project
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            env=dict(environment),
            cwd=log.parent,
        )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def listen(process: subprocess.Popen[str], limit_s: float) -> dict[str, Any]:
    """The next thing that a worker tells; nothing when it ended or the time is up."""
    until_s = time.monotonic() + limit_s
    stream: Any = process.stdout
    with selectors.DefaultSelector() as ready:
        ready.register(stream, selectors.EVENT_READ)
        while ready.select(max(0.0, until_s - time.monotonic())):
            line = stream.readline()
            if not line:
                break
            if line.startswith(TOLD):
                told: dict[str, Any] = json.loads(line.removeprefix(TOLD))
                return told
    return {}


def _text(path: Path) -> str:
    return path.read_text(errors="replace")


def _tail(log: Path) -> str:
    lines = _text(log).strip().splitlines()
    return lines[-1] if lines else "nothing was said"
