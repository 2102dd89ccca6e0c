"""A queue with retries under trouble: an error in a job, and a worker that is killed in it.

Guarantees: the queue is huey's own, and so is what it does with a job; the killed worker is a
process that gets SIGKILL from outside, at every step, between the step's work and its answer. A
reader sees what was recorded once, with its date and version. Leaves to others: the queue that
hides a job and hands it out again (chapter 11), the engines (`engines.crashes`).

    python -m durable_mini.lab.build_or_buy_queue
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from durable_mini.lab.engines.catalogue import Setup
from durable_mini.lab.engines.gate import Request
from durable_mini.lab.engines.job import KEYLESS, ORDER, WORLD
from durable_mini.lab.engines.services import sqlite_file
from durable_mini.lab.engines.trial import LIMIT_S, Theatre, listen, theatre, worker_process

COMMAND = "python -m durable_mini.lab.build_or_buy_queue"
DATA = "build_or_buy_queue.json"

JOBS: dict[str, tuple[str, ...]] = {
    "short": ("draft", "send_email"),
    "agent": ("plan", "research", "draft", "charge", "compose", "send_email", "update_crm"),
}
"""The steps of both jobs, in order."""

SETUP = Setup(
    "huey",
    "huey",
    "SQLite, synchronous=FULL",
    "huey_agent.py",
    ("huey",),
    sqlite_file("HUEY_SQLITE"),
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What became of a job whose trouble fell at each of its steps in turn, right after its work.

    Attributes:
        job: "short" or "agent".
        trouble: "error" or "kill".
        trials: one for each step.
        completed: how many jobs came to their end.
        again: executions of steps beyond the first of each, in all trials.
        duplicates: effects that the world has twice, where no key is sent.
        duplicates_with_key: the same where keys are sent.
    """

    job: str
    trouble: str
    trials: int
    completed: int
    again: int
    duplicates: int
    duplicates_with_key: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """The measurement as it is stored."""

    version: str
    date: str
    rows: tuple[Trouble, ...]

    def source(self) -> str:
        """A sentence for below a table."""
        return f"Measured {self.date} with huey {self.version}: {COMMAND}"

    def row(self, job: str, trouble: str) -> Trouble:
        """One row."""
        return next(row for row in self.rows if (row.job, row.trouble) == (job, trouble))


class _Seen(NamedTuple):
    """What the world saw of one job, and whether it came to its end."""

    requests: tuple[Request, ...]
    duplicates: int
    completed: bool


def measure() -> list[Trouble]:
    """Run both jobs under both troubles at every step, with and without keys.

    Raises:
        RuntimeError: huey isn't installed; it says what to do.
    """
    if missing := SETUP.missing():
        raise RuntimeError(missing)
    with theatre(SETUP, honours_keys=False) as careless, theatre(SETUP) as careful:
        places = careless, careful
        return [_measured(places, job, trouble) for job in JOBS for trouble in ("error", "kill")]


def _measured(places: tuple[Theatre, Theatre], job: str, trouble: str) -> Trouble:
    keyless, keyed = (
        [_trial(there, job, trouble, step, with_key=number == 1) for step in JOBS[job]]
        for number, there in enumerate(places)
    )
    return Trouble(
        job,
        trouble,
        len(keyless),
        sum(seen.completed for seen in keyless),
        sum(map(_again, keyless)),
        sum(seen.duplicates for seen in keyless),
        sum(seen.duplicates for seen in keyed),
    )


def _trial(there: Theatre, job: str, trouble: str, step: str, *, with_key: bool) -> _Seen:
    order = f"{job}-{trouble}-{step}-{'key' if with_key else 'none'}"
    settings = {"HUEY_JOB": job}
    if trouble == "kill":
        outcome = there.trial(order, (step, "window"), settings=settings, with_key=with_key)
        return _Seen(outcome.requests, outcome.duplicates, outcome.result is not None)
    settings |= {WORLD: there.gate.url, ORDER: order} | ({} if with_key else {KEYLESS: "yes"})
    return _with_error(there, settings, step)


def _with_error(there: Theatre, settings: dict[str, str], step: str) -> _Seen:
    """One job, to which the answer of one request gets lost: an error, after the work is done."""
    gate, first, before = there.gate, len(there.gate.requests), there.gate.books.repeats()
    gate.arm((step, "window"), lambda: None)  # nobody is killed, and nobody answers
    environment = {**os.environ, **there.settings, **settings}
    with worker_process(SETUP.path, environment, there.folder / "worker.log") as process:
        told = listen(process, LIMIT_S)
    return _Seen(tuple(gate.requests[first:]), gate.books.repeats() - before, "result" in told)


def _again(seen: _Seen) -> int:
    return sum(times - 1 for times in Counter(r.step for r in seen.requests).values())


def recorded() -> Recorded:
    """What was measured once."""
    told = json.loads((files("durable_mini.lab") / DATA).read_text(encoding="utf-8"))
    return Recorded(told["version"], told["date"], tuple(Trouble(**row) for row in told["rows"]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the rows; with `--record` store them beside this file."""
    options = set(sys.argv[1:] if arguments is None else arguments)
    rows = measure()
    for row in rows:
        print(" ".join(f"{name}={value}" for name, value in asdict(row).items()))
    if "--record" in options:
        date = datetime.now(UTC).date().isoformat()
        told = {"version": SETUP.version(), "date": date, "rows": [asdict(row) for row in rows]}
        text = json.dumps(told, indent=1) + "\n"
        Path(__file__).with_name(DATA).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
