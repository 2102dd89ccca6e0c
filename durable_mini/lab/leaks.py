"""A run begun in one process and resumed in another one, which may live in another world.

Guarantees: both are real processes of their own, started for this, with the environment that they
were given (a hash seed, a time zone, a setting of yours); the first kills itself with SIGKILL
before the call that was named, the second gets the journal that is left. The workflow is sent as
its source, so that what a notebook's cell says is what runs. Leaves to others: code that changes
between the two (`drift`), kills from outside (`attempt`).
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from durable_mini.engine import Engine
from durable_mini.errors import NonDeterminismError
from durable_mini.events import EventKind, Position
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.structure import workflow

_LIMIT_S = 60.0
_RUN_ID = "t-1"
_PRELUDE = (
    "from __future__ import annotations\n\nimport os\nimport random\nimport time\nimport uuid\n\n\n"
)


@dataclass(frozen=True, slots=True)
class Told:
    """What a process told: the calls that it executed, and how the run stands.

    Args:
        executed: the names of its live calls, in order.
        status: the run's status; None where the process was killed.
        result: what the run returned.
        seq: the event at which replay stopped, if it did.
        recorded: what the journal has there.
        requested: what the code asked for instead.
    """

    executed: tuple[str, ...]
    status: str | None = None
    result: Any = None
    seq: int | None = None
    recorded: str | None = None
    requested: str | None = None

    @property
    def said(self) -> str:
        """How it ended, in words."""
        if self.seq is not None:
            return f"event {self.seq}: {self.recorded} in the journal, {self.requested} asked for"
        return self.status or "killed"


class KilledRun:
    """A run whose first process is dead; `resume` it as often as you like, each time from there.

    Args:
        flow: a function of a context and a value. It may use `os`, `random`, `time` and `uuid`,
            what Python has built in, and nothing else of its surroundings.
        value: its input.
        kill_before: the name of the call before whose work the first process dies.
        environment: variables of the first process, over those that this process has.

    Attributes: `first`, what the first process told.

    Raises:
        ValueError: it was not killed: the run made no such call.
    """

    def __init__(
        self, flow: Callable[..., Any], value: Any, *, kill_before: str, **environment: str
    ) -> None:
        self._source = _PRELUDE + textwrap.dedent(inspect.getsource(flow))
        self._name, self._value, self._environment = flow.__name__, value, environment
        with TemporaryDirectory() as folder:
            self.first = self._attempt(Path(folder), environment, kill_before)
            if self.first.status is not None:
                raise ValueError(f"no call {kill_before!r} was reached; the run is over")
            self._journal = {path.name: path.read_bytes() for path in Path(folder).glob("journal*")}

    def resume(self, **environment: str) -> Told:
        """Let a second process take the run over, on a copy of the journal.

        Args:
            environment: variables of that process that are others than the first one's.
        """
        with TemporaryDirectory() as folder:
            for name, content in self._journal.items():
                Path(folder, name).write_bytes(content)
            return self._attempt(Path(folder), {**self._environment, **environment}, None)

    def _attempt(
        self, folder: Path, environment: Mapping[str, str], kill_before: str | None
    ) -> Told:
        source = folder / "flow.py"
        source.write_text(self._source, encoding="utf-8")
        order = [str(folder / "journal.db"), str(source), self._name, self._value, kill_before]
        ended = subprocess.run(
            [sys.executable, "-m", "durable_mini.lab.leaks"],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            timeout=_LIMIT_S,
            check=False,
        )
        lines = [json.loads(line) for line in ended.stdout.splitlines()]
        executed = tuple(line for line in lines if isinstance(line, str))
        if ended.returncode == -signal.SIGKILL:
            return Told(executed)
        if ended.returncode:
            raise RuntimeError(f"the process failed: {ended.stderr.strip().splitlines()[-1]}")
        return Told(executed, **lines[-1])


def orders(expression: str, hash_seeds: range) -> list[Any]:
    """What an expression gives in a process of its own for each hash seed, in their order.

    Args:
        expression: Python, with a JSON value as its value; nothing is imported for it but `json`.
        hash_seeds: one process each.
    """
    program = f"import json; print(json.dumps({expression}))"
    return [
        json.loads(
            subprocess.run(  # noqa: S603 - this Python, the chapter's own expression
                [sys.executable, "-S", "-c", program],
                capture_output=True,
                env={**os.environ, "PYTHONHASHSEED": str(seed)},
                timeout=_LIMIT_S,
                check=True,
            ).stdout
        )
        for seed in hash_seeds
    ]


# ---- in the process ----------------------------------------------------------------------------


def main() -> None:
    """Drive the run that standard input tells of for one attempt; print a line for each call."""
    journal, source, name, value, kill_before = json.load(sys.stdin)
    flow = workflow(version="1")(_loaded(source, name))

    def probe(position: Position, kind: EventKind, call: str) -> None:
        if position is not Position.BEFORE:
            return
        if call == kill_before:
            os.kill(os.getpid(), signal.SIGKILL)
        print(json.dumps(call), flush=True)

    with SQLiteJournal(journal) as store:
        engine = Engine(store, [flow], probe=probe)
        try:
            run = engine.run(flow, value, run_id=_RUN_ID)
            told = {"status": run.status, "result": run.result}
            if run.error is not None:
                raise RuntimeError(f"{run.error.type}: {run.error.message}")
        except NonDeterminismError as error:
            told = {"status": engine.describe(_RUN_ID).status, "seq": error.seq}
            told |= {"recorded": error.recorded, "requested": error.requested}
    print(json.dumps(told), flush=True)


def _loaded(path: str, name: str) -> Any:
    spec = importlib.util.spec_from_file_location("flow", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


if __name__ == "__main__":
    main()
