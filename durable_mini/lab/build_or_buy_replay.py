"""A stored Temporal history, replayed against edited code: no server, no activity, no world.

Guarantees: the history is one that a server wrote (`course/engines/temporal_history.json`: the
shipped agent, killed after its charge), and the code is the shipped file, with an edit. What a
reader sees is what was recorded once. Where `temporalio` is installed the replay is done again, and
another outcome than the recorded one is an error. Leaves to others: code that is changed under a
live run (`engines.grid`).

    python -m durable_mini.lab.build_or_buy_replay
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

from durable_mini.lab.course import source_folder
from durable_mini.lab.engines.grid import EDITS, Edit, before_edit
from durable_mini.lab.engines.job import TOLD, tell

COMMAND = "python -m durable_mini.lab.build_or_buy_replay"
DATA = "build_or_buy_replay.json"
PATCH = "review"

Verdict: TypeAlias = Literal["fits", "refused"]

_REFUSAL = re.compile(r"TMPRL1100\] Nondeterminism error: ([^\"]*)")


@dataclass(frozen=True, slots=True)
class Replayed:
    """One version of the code, held against the stored history.

    Attributes:
        code: what was done to the shipped file.
        verdict: whether the replay came to the end of the history.
        said: what Temporal says where it refuses; else "".
    """

    code: str
    verdict: Verdict
    said: str


@dataclass(frozen=True, slots=True)
class Replays:
    """All versions of the code, and what they were replayed with."""

    version: str
    date: str
    rows: tuple[Replayed, ...]


def history_file() -> Path:
    """Where the stored history is."""
    return source_folder() / "course" / "engines" / "temporal_history.json"


def agent_text() -> str:
    """The text of the shipped agent."""
    path = source_folder() / "course" / "engines" / "temporal_agent.py"
    return path.read_text(encoding="utf-8")


def patched(text: str) -> str:
    """The shipped file with a review that only runs which haven't passed the place come to see."""
    line = '        notes = await call(think, "research", plan)\n'
    guarded = (
        f'        if workflow.patched("{PATCH}"):\n            await call(think, "review", plan)\n'
    )
    if text.count(line) != 1:
        raise ValueError("the agent has no research. Next: see build_or_buy_replay.patched.")
    return text.replace(line, guarded + line)


def versions() -> dict[str, Callable[[str], str]]:
    """What is done to the shipped file, by its name: nothing, each edit of the grid, a patch."""
    edited = {edit.name: _after_before(edit) for edit in EDITS}
    return {"unchanged": str, **edited, "add a step, patched": patched}


def _after_before(edit: Edit) -> Callable[[str], str]:
    return lambda text: edit.change(before_edit(text))


def replays() -> Replays:
    """What was recorded; where `temporalio` is installed, after it was found again.

    Raises:
        RuntimeError: the replay here comes to another verdict than the recorded one.
    """
    recorded = _recorded()
    if not _installed():
        return recorded
    for was, now in zip(recorded.rows, replay_all(), strict=True):
        if (was.code, was.verdict) != (now.code, now.verdict):
            raise RuntimeError(f"{was.code}: recorded {was.verdict}, here {now.verdict}. {_NEXT}")
    return recorded


_NEXT = f"Next: see whether Temporal has changed, and record it again with {COMMAND} --record."


def replay_all() -> list[Replayed]:
    """Replay the history against every version of the code, with the installed `temporalio`.

    It is done in another process: a notebook's own has a loop that runs, and Temporal's core
    writes each refusal to the terminal.

    Raises:
        RuntimeError: the replay failed for another reason than the code.
    """
    command = [sys.executable, "-m", "durable_mini.lab.build_or_buy_replay", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if ended.returncode:
        why = ended.stderr.strip().splitlines() or ["nothing was said"]
        raise RuntimeError(f"the replay didn't come to its end: {why[-1]}")
    told = next(line for line in ended.stdout.splitlines() if line.startswith(TOLD))
    return [Replayed(**row) for row in json.loads(told.removeprefix(TOLD))["rows"]]


async def _replay_all() -> list[Replayed]:
    from temporalio.client import WorkflowHistory  # noqa: PLC0415 - an extra
    from temporalio.worker import Replayer, UnsandboxedWorkflowRunner  # noqa: PLC0415

    history = WorkflowHistory.from_json("o-1", history_file().read_text(encoding="utf-8"))
    rows = []
    with TemporaryDirectory() as folder:
        for number, (code, change) in enumerate(versions().items()):
            agent = _loaded(Path(folder, f"replayed_agent_{number}.py"), change(agent_text()))
            runner = UnsandboxedWorkflowRunner()  # the sandbox would look for the file by its name
            replayer = Replayer(workflows=[agent], workflow_runner=runner)
            told = await replayer.replay_workflow(history, raise_on_replay_failure=False)
            rows.append(_row(code, told.replay_failure))
    return rows


def _row(code: str, failure: Exception | None) -> Replayed:
    if failure is None:
        return Replayed(code, "fits", "")
    said = _REFUSAL.search(str(failure))
    if said is None:
        raise RuntimeError(f"{code}: the replay failed, but not for the code: {failure}")
    return Replayed(code, "refused", said[1].strip())


def _loaded(path: Path, text: str) -> Any:
    """The workflow of a text, as a module of its own."""
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} can't be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[path.stem]
    return module.ReferenceAgent


def _installed() -> str:
    try:
        return version("temporalio")
    except PackageNotFoundError:
        return ""


def _recorded() -> Replays:
    told = json.loads((files("durable_mini.lab") / DATA).read_text(encoding="utf-8"))
    return Replays(told["version"], told["date"], tuple(Replayed(**row) for row in told["rows"]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay, and print the verdicts; with `--record` store them beside this file."""
    options = set(sys.argv[1:] if arguments is None else arguments)
    if not _installed():
        raise SystemExit("no temporalio here. Next: pip install temporalio.")
    rows = asyncio.run(_replay_all())
    if "--json" in options:
        tell(rows=[asdict(row) for row in rows])
        return
    for row in rows:
        print(f"{row.code:38} {row.verdict:8} {row.said}")
    if "--record" in options:
        date = datetime.now(UTC).date().isoformat()
        told = {"version": _installed(), "date": date, "rows": [asdict(row) for row in rows]}
        text = json.dumps(told, indent=1) + "\n"
        Path(__file__).with_name(DATA).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
