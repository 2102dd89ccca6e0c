"""One schedule carried out: processes come and go, until the run has come to its end.

Guarantees: only the journal, the world and the clock outlive a process. Time stands still but for
waits: a run that can go on does so at the same time as without a crash. What comes from outside
comes under one signal id, however often a process dies. Leaves to others: judging how it ended
(`judging`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

from durable_mini.clock import FakeClock
from durable_mini.context import in_turn
from durable_mini.engine import Engine
from durable_mini.errors import LeaseLostError
from durable_mini.events import ENDED, OUTSIDE, Event, EventKind, Run, RunStatus
from durable_mini.journal import Journal
from durable_mini.lab.exploring.places import Place, Schedule
from durable_mini.lab.exploring.process import EndlessError, Process, ProcessDiedError, watched
from durable_mini.lab.exploring.scenario import JOURNALS, Code, Scenario
from durable_mini.structure import Workflow

RUN_ID = "r-1"
START_S = 1_000_000_000.0
Histories = dict[tuple[str, int], list[Event]]

_MOST_ROUNDS = 500  # of driving and waiting; a run that takes more goes round in circles
_OVER = ENDED | {RunStatus.NEEDS_ATTENTION}


class StuckError(ValueError):
    """A run that never comes to its end, whatever time passes."""


class Trial:
    """Carries out one schedule.

    Args:
        scenario: what is explored.
        code: its workflows.
        schedule: one fault for each process in turn.
        folder: where a journal may be kept.

    Attributes: `world`; `processes` in the order in which they began; `kept` (the histories as
    each process left them); `trouble` (sentences about what went wrong on the way).
    """

    def __init__(self, scenario: Scenario, code: Code, schedule: Schedule, folder: Path) -> None:
        self.scenario, self.schedule, self._code = scenario, schedule, code
        self.world = scenario.new_world()
        self.processes: list[Process] = []
        self.kept: list[Histories] = []
        self.trouble: list[str] = []
        self._clock = FakeClock(START_S)
        self._letters = sorted(enumerate(scenario.letters), key=lambda pair: pair[1].at_s)
        self._cancel_at_s = scenario.cancel_at_s
        self._path = folder / "journal"
        self._memory = JOURNALS["memory"](self._path) if scenario.journal == "memory" else None

    def carry_out(self) -> None:
        """Let processes live one after the other, until one sees the end of the run.

        Raises:
            StuckError: the run waits for something that never comes.
            DurableError: the engine stopped.
        """
        while not self._live():
            pass
        for process, fault in zip(self.processes, self.schedule, strict=False):
            if not process.met:
                self.trouble.append(f"no process came to {fault.place}: each trial goes its way")

    @property
    def next_places(self) -> list[Place]:
        """Where the process after the last fault has been: the places for one more."""
        after = self.processes[len(self.schedule) :]
        return after[0].places if after else []

    @contextmanager
    def journal(self) -> Iterator[Journal]:
        """The journal, as a new process finds it."""
        opened = self._memory or JOURNALS[self.scenario.journal](self._path)
        with opened:
            yield opened

    def _live(self) -> bool:
        """One process, from its start to its death or to the end of the run; whether that came."""
        faults = self.schedule[len(self.processes) :]
        process = Process(RUN_ID, faults[0] if faults else None, self._go_on_elsewhere)
        self.processes.append(process)
        with self.journal() as journal:
            workflows = self._code.load(self.world)
            outside = self._engine(journal, workflows)
            inside = self._engine(watched(journal, process), workflows, probe=process)
            try:
                self._drive(inside, outside, workflows[0])
            except ProcessDiedError:
                pass
            except EndlessError:
                self.trouble.append(f"goes round in circles at {process.places[-1]}")
            except LeaseLostError:
                if not process.stalled:
                    raise
            self.kept.append(histories(journal))
        self.trouble += [f"a dead process wrote: {what}" for what in process.wrote_dead]
        return not process.dead

    def _go_on_elsewhere(self) -> None:
        """What others do while a process hangs: all that is left to do."""
        while not self._live():
            pass

    def _engine(self, journal: Journal, workflows: list[Workflow], **probe: Any) -> Engine:
        clock, budget = self._clock, self.scenario.budget
        return Engine(journal, workflows, clock=clock, budget=budget, spread=in_turn, **probe)

    def _drive(self, inside: Engine, outside: Engine, workflow: Workflow) -> None:
        """Start the run unless it is there, and drive it to its end through all its waits."""
        if outside.journal.row(RUN_ID) is None:
            inside.start(workflow, self.scenario.input, run_id=RUN_ID)
            outside.describe(RUN_ID)  # a run that was started is there, or this raises
        for _ in range(_MOST_ROUNDS):
            self._deliver(outside)
            run = inside.resume(RUN_ID)
            if run.status in _OVER:
                return
            abandoned = self._abandoned(outside)
            if abandoned:
                inside.resume(abandoned)
            else:
                self._wait(outside, run)
        raise StuckError(f"the run goes round in circles: {run.status}, {run.waiting_for}")

    def _abandoned(self, outside: Engine) -> str | None:
        """A run that a dead process was driving: nobody has to wait for the end of its lease."""
        rows = outside.journal.rows()
        return next((row.run_id for row in rows if row.status is RunStatus.RUNNING), None)

    def _wait(self, outside: Engine, run: Run) -> None:
        """Answer who waits for a signal that is ready for it, or let the time pass."""
        waiting = list(outside.runs(RunStatus.SUSPENDED))
        for one in waiting:
            history = outside.history(one.run_id)
            last = [event for event in history if event.kind not in OUTSIDE][-1]
            if last.kind is EventKind.WAIT and last.name in self.scenario.answers:
                asked = sum(event[1:3] == last[1:3] for event in history)
                signal_id = f"{last.name}-{one.generation}-{asked}"
                payload = self.scenario.answers[last.name]
                outside.signal(one.run_id, last.name, payload, signal_id=signal_id)
                return
        now = self._clock.now()
        due = (outside.journal.find(one.run_id).due_at for one in waiting)
        from_outside = [letter.at_s for _, letter in self._letters] + [self._cancel_at_s]
        times = [*due, *(None if at_s is None else START_S + at_s for at_s in from_outside)]
        until = min((time for time in times if time is not None), default=inf)
        if until == inf:
            raise StuckError(
                f"the run waits for {run.waiting_for}, and nobody sends it. Next: explore(…, "
                "signals={name: payload})"
            )
        self._clock.advance(max(until - now, 0.0))

    def _deliver(self, outside: Engine) -> None:
        """Send what has become due, each thing once."""
        passed_s = self._clock.now() - START_S
        while self._letters and self._letters[0][1].at_s <= passed_s:
            number, letter = self._letters.pop(0)
            outside.signal(RUN_ID, letter.name, letter.payload, signal_id=f"letter-{number}")
        if self._cancel_at_s is not None and self._cancel_at_s <= passed_s:
            self._cancel_at_s = None
            outside.cancel(RUN_ID)


def histories(journal: Journal) -> Histories:
    """Everything that a journal tells, by run and generation."""
    found = {}
    for row in journal.rows():
        for generation in range(1, row.generation + 1):
            events = journal.events(row._replace(generation=generation))
            found[row.run_id, generation] = events
    return found
