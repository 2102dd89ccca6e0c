"""Exhibits: engines that get the disk or the other process wrong.

Guarantees and what it leaves to others: as in `records`.
"""

import json
from collections.abc import Callable
from typing import Any

from durable_mini.lab.museum.honest import Context, Event, HonestEngine, Refused, Stop


class AnswersBeforeTheSync(HonestEngine):
    """It goes on before the record is on the disk, and lets the system write when it likes.

    A process that is killed loses nothing by it; a machine that loses its power loses finished
    steps, and an engine that writes in a thread of its own loses them with the process.
    """

    report = "LangGraph 1.2.24 with its default durability, measured"
    breaks = frozenset({16})

    def sync(self, file: Any) -> None:
        file.flush()


class BlockedByATornLine(HonestEngine):
    """A last line that was cut off counts as damage, and nobody can open the run any more."""

    report = "bernstein, issue 3910"
    breaks = frozenset({17})

    def read(self, run_id: str) -> tuple[list[Event], int]:
        path = self.path(run_id, "journal")
        data = path.read_bytes() if path.exists() else b""
        if data and not data.endswith(b"\n"):
            raise Refused(f"run {run_id}: its journal is damaged")
        return super().read(run_id)


class AppendsToATornLine(HonestEngine):
    """The next record is written behind a line that was cut off, and both make one broken line."""

    report = "opensre, pull request 5871"
    breaks = frozenset({17})

    def read(self, run_id: str) -> tuple[list[Event], int]:
        events, _ = super().read(run_id)
        path = self.path(run_id, "journal")
        return events, path.stat().st_size if path.exists() else 0


class TrustsTheBytes(HonestEngine):
    """Its lines have no checksum: what stands there is what was written."""

    report = "a home-made journal"
    breaks = frozenset({18})

    def parse(self, run_id: str, number: int, line: bytes) -> Event:
        return dict(json.loads(line.partition(b" ")[2]))


class LoserGoesOn(HonestEngine):
    """Two processes that drive one run both execute, and only the record of one is refused."""

    report = "dbos-transact-py, issues 742 and 818"
    breaks = frozenset({19})

    class Ctx(Context):
        def may_go_on(self) -> None:
            """It is asked when it writes, and that is too late for the work."""


class TakesALeaseForALock(HonestEngine):
    """Who has lost a run isn't refused: it took the run once, and believes that it has it."""

    report = "a lease without a fencing token"
    breaks = frozenset({19, 20})

    def check(self, run_id: str, token: int, holder: Any) -> None:
        """Nobody is refused."""


class LooksThenWrites(HonestEngine):
    """It looks at the token, and then it writes; in between the run can be taken over."""

    report = "the tempting way to write a fence"
    breaks = frozenset({20})

    def append(self, run_id: str, token: int, event: Event) -> Event:
        with self.alone(run_id) as holder:
            self.check(run_id, token, holder)
        with self.alone(run_id):
            return self.write(run_id, event)


class LeavesItsMark(HonestEngine):
    """A run that is being driven is marked so, and a process that dies can't take the mark away.

    Runs stayed pending for ever after an error in their recovery.
    """

    report = "dbos-transact-py, issues 716 and 804"
    breaks = frozenset({2, 4, 9, 10, 11, 12, 14, 17})

    def resume(self, run_id: str, workflow: Callable[..., Any]) -> Any:
        mark = self.path(run_id, "driven")
        if mark.exists():
            raise Stop(f"run {run_id} is being driven")
        mark.touch()
        result = super().resume(run_id, workflow)
        mark.unlink()
        return result
