"""What a durable step costs here, as ratios that were measured in one run.

Guarantees: both sides of a ratio are timed in turn, several times over, on the same work, and the
median of the pairs is told, so that a machine that is slow for a while is slow for both. Beside
other heavy work no ratio is worth much. Leaves to others: what a number means on another disk.
"""

import json
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from durable_mini.codec import digest_arguments, round_trip
from durable_mini.context import Context
from durable_mini.engine import Engine
from durable_mini.events import Event, EventKind, Position, RunRow, RunStatus, checksum
from durable_mini.journal import Journal
from durable_mini.journal.memory import MemoryJournal
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.lab.agent import agent_in
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.lab.engines.catalogue import installed
from durable_mini.lab.engines.speed import OWN, Speed, compare
from durable_mini.lab.ledger import Ledger
from durable_mini.lab.simulation import simulate
from durable_mini.lab.theory import STRATEGIES
from durable_mini.structure import workflow

DISK_STEPS = 3_000
SLIDER_RATE, SLIDER_RUNS = 0.08, 400

Side = Callable[[], float]
"""One side of a comparison: does its work once and returns the seconds that it took."""

Call = tuple[str, tuple[Any, ...], Any]
"""A step of the reference agent: its name, its arguments, its result."""


def bench(
    *,
    quick: bool = False,
    engines: bool = False,
    progress: Callable[[str], None] = lambda _part: None,
) -> dict[str, Any]:
    """Measure the floor of this machine, and the engine on it. Takes a few minutes.

    Args:
        quick: fewer repetitions, for a look.
        engines: measure every other engine that is installed as well, beside this one.
        progress: called with the name of each part when it begins.

    Returns:
        The keys of `durable-mini bench --json`: `floor`, `durable_mini`, `ratios`, `peers` (other
        engines; `ratio` is how many times as many steps this one makes, on whole runs of the
        reference agent, of which `agent_steps_per_s` is this engine's rate). Rates are per second,
        `recover_s` is in seconds, ratios are medians over the pairs.
    """
    rounds, size, steps = (5, 1, 300) if quick else (5, 4, DISK_STEPS)
    measured: dict[str, tuple[float, float, float]] = {}
    for name, part, (one, other) in (
        ("append", "the disk's floor", (_fdatasync_appends(steps), _sqlite_commits(steps))),
        ("sqlite", "a step on SQLite", (_sqlite_steps(steps), _sqlite_commits(steps))),
        ("recover", "recovery", (_recovery(steps // 3), _sqlite_commits(steps // 3))),
        ("memory", "a step in memory", (_memory_steps(100 * size), _unavoidable(100 * size))),
        ("replay", "a replay against a tenth of it", (_replay(5_000 * size), _replay(500 * size))),
        ("frame", "a frame of the slider", (_frame, _drawing)),
    ):
        progress(part)
        measured[name] = _paired(one, other, rounds)
    speeds = _peers(quick, progress) if engines else []
    return {
        "floor": {
            "sqlite_full_commits_per_s": steps / measured["sqlite"][1],
            "fdatasync_appends_per_s": steps / measured["append"][0],
        },
        "durable_mini": {
            "memory_steps_per_s": 100 * size * len(_CALLS) / measured["memory"][0],
            "sqlite_steps_per_s": steps / measured["sqlite"][0],
            "replay_events_per_s": 5_000 * size / measured["replay"][0],
            "recover_s": measured["recover"][0],
            **_own(speeds),
        },
        "ratios": {
            "sqlite_steps_to_floor": 1 / measured["sqlite"][2],
            "live_step_to_unavoidable": measured["memory"][2],
            "slider_frame_to_drawing": measured["frame"][2],
            "replay_10x_history": measured["replay"][2],
        },
        "peers": [_peer(one) for one in speeds if one.setup != OWN],
    }


def _peers(quick: bool, progress: Callable[[str], None]) -> list[Speed]:
    """Every engine that is installed, this one first, in turns on the disk that is measured."""
    others = [setup for setup in installed() if setup.name != OWN]
    rounds, round_s = (3, 0.4) if quick else (7, 1.0)
    with _folder() as folder:
        about: dict[str, Any] = {"folder": folder, "progress": progress}
        return compare(others, rounds=rounds, round_s=round_s, **about) if others else []


def _own(speeds: list[Speed]) -> dict[str, float]:
    """This engine's rate on the work that others were measured with, if any were."""
    return {"agent_steps_per_s": speeds[0].steps_per_s} if speeds else {}


def _peer(speed: Speed) -> dict[str, Any]:
    told = asdict(speed)
    return {name: told[name] for name in ("name", "version", "storage", "steps_per_s", "ratio")}


def _paired(one: Side, other: Side, rounds: int) -> tuple[float, float, float]:
    """Median seconds of each side, and the median of one side divided by the other."""
    pairs = [(one(), other()) for _ in range(rounds + 1)][1:]  # the first pair warms up
    ratio = statistics.median(first / second for first, second in pairs)
    seconds, others = (statistics.median(column) for column in zip(*pairs, strict=True))
    return seconds, others, ratio


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _reference_calls() -> list[Call]:
    """The steps of one run of the reference agent, with the values that they take and give."""
    calls: list[Call] = []

    class Watching(Context):
        def __init__(self) -> None:
            """Nothing to set up: the calls are answered here."""

        def step(self, name: str, fn: Any, /, *args: Any, **_kwargs: Any) -> Any:
            calls.append((name, args, fn(*args)))
            return calls[-1][2]

        def effect(self, name: str, fn: Any, /, *args: Any, **_kwargs: Any) -> Any:
            return self.step(name, lambda *given: fn(*given, idempotency_key=name), *args)

    agent_in(Ledger())(Watching(), "t-1")
    return calls


_CALLS = _reference_calls()


@workflow(name="bench", version="1")
def _steps(ctx: Context, count: int) -> None:
    """`count` steps with the values of the reference agent, and nothing else to do."""
    for number in range(count):
        name, args, result = _CALLS[number % len(_CALLS)]
        ctx.step(name, _answer(result), *args)


def _answer(result: Any) -> Callable[..., Any]:
    return lambda *_args: result


def _run(journal: Journal, steps: int) -> float:
    engine = Engine(journal, [_steps])
    return _seconds(lambda: engine.run(_steps, steps, run_id="r"))


def _memory_steps(loops: int) -> Side:
    return lambda: _run(MemoryJournal(), loops * len(_CALLS))


def _unavoidable(loops: int) -> Side:
    """Encode, digest, checksum and decode of the same values, and nothing else."""
    row = RunRow("r", 1, "bench", "1", "", RunStatus.RUNNING)
    made = []
    for seq, (name, args, result) in enumerate(_CALLS, start=2):
        payload = json.dumps({"args": "0123456789abcdef", "result": result}, separators=(",", ":"))
        made.append((name, args, result, Event(seq, EventKind.STEP, name, payload, time.time())))

    def work() -> None:
        for _ in range(loops):
            for name, args, result, event in made:
                digest_arguments(args, {})
                round_trip(result, "step", name, "result", 262_144)
                checksum(row, event)

    return lambda: _seconds(work)


def _sqlite_steps(steps: int) -> Side:
    """One run of so many steps, every one of them durable."""

    def side() -> float:
        with _folder() as folder, SQLiteJournal(folder / "steps.db") as journal:
            return _run(journal, steps)

    return side


def _sqlite_commits(commits: int) -> Side:
    """The floor: as many commits into a table of two columns, WAL, synchronous=FULL."""

    def side() -> float:
        with _folder() as folder, closing(_two_columns(folder / "floor.db")) as database:

            def work() -> None:
                for seq in range(commits):
                    result = _CALLS[seq % len(_CALLS)][2]
                    database.execute("INSERT INTO steps VALUES (?, ?)", (seq, result))

            return _seconds(work)

    return side


def _two_columns(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE steps (seq INTEGER PRIMARY KEY, result TEXT)")
    return database


def _fdatasync_appends(appends: int) -> Side:
    """The floor of a plain file: as many lines appended, each forced to the disk."""
    synced = getattr(os, "fdatasync", os.fsync)  # macOS has the second only

    def side() -> float:
        with _folder() as folder, (folder / "floor.log").open("ab", buffering=0) as file:

            def work() -> None:
                for seq in range(appends):
                    file.write(f"{seq} {_CALLS[seq % len(_CALLS)][2]}\n".encode())
                    synced(file.fileno())

            return _seconds(work)

    return side


def _recovery(steps: int) -> Side:
    """Open the journal of a worker that crashed after so many steps, replay them, end the run."""

    def side() -> float:
        with _folder() as folder:
            path = folder / "crashed.db"
            with SQLiteJournal(path) as journal:
                _crash_at_the_end(journal, steps)

            def work() -> None:
                with SQLiteJournal(path) as journal:
                    Engine(journal, [_steps]).resume("r")

            return _seconds(work)

    return side


def _replay(events: int) -> Side:
    """Replay a run of so many steps in memory; nothing of it is executed."""

    def side() -> float:
        journal = MemoryJournal()
        _crash_at_the_end(journal, events)
        engine = Engine(journal, [_steps])
        return _seconds(lambda: engine.resume("r"))

    return side


def _crash_at_the_end(journal: Journal, steps: int) -> None:
    last, _, _ = _CALLS[(steps - 1) % len(_CALLS)]
    crash = CrashAt(last, Position.AFTER, (steps - 1) // len(_CALLS) + 1)
    try:
        Engine(journal, [_steps], probe=crash).run(_steps, steps, run_id="r")
    except InjectedCrash:
        return
    raise RuntimeError("the crash that was planned didn't come")


def _frame() -> float:
    """What the slider of chapter 04 does at one position: simulate all strategies, then draw."""
    from durable_mini.lab.figures import results_figure  # noqa: PLC0415 - matplotlib may be absent

    return _seconds(lambda: results_figure(_simulated()).png())


def _drawing() -> float:
    from durable_mini.lab.figures import results_figure  # noqa: PLC0415 - matplotlib may be absent

    results = _simulated()
    return _seconds(lambda: results_figure(results).png())


def _simulated() -> list[Any]:
    return [simulate(strategy, SLIDER_RATE, SLIDER_RUNS) for strategy in STRATEGIES]


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder on the disk that is measured: the usual place for such folders may be memory."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name:
        yield Path(name)
