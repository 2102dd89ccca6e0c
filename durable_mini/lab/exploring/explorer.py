"""Every crash, not some crashes: a workflow is crashed at each place that it comes to.

Guarantees: the schedules are exhaustive. The first crash is at each place of the crash-free run,
the second at each place that the process after it really came to, and so on. A place is every
durable call that is executed live, at the three positions, and every write of the run itself
(`process` says why that is all there is). Leaves to others: crashes inside a step's body, which
only its author can see, and what a disk forgets (`sweep`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from durable_mini.errors import DurableError
from durable_mini.lab.exploring.judging import (
    NO_ENDING,
    Ending,
    Invariant,
    accounts,
    broken_laws,
    ending_of,
)
from durable_mini.lab.exploring.places import Fault, Place, Schedule, call_name, schedule_of
from durable_mini.lab.exploring.progress import Progress, followed
from durable_mini.lab.exploring.report import Exploration, Outcome, Rerun
from durable_mini.lab.exploring.scenario import Code, Make, Scenario
from durable_mini.lab.exploring.trial import RUN_ID, StuckError, Trial
from durable_mini.structure import Workflow

MAX_SCHEDULES = 20_000
_UNSEEN = "What reached the world was not compared: it keeps no rows here, or is out of sight."

_Tried = tuple[Outcome, Trial, Ending]


class TooManySchedulesError(ValueError):
    """An exploration would take more schedules than it may.

    Attributes: `found` (what the shorter schedules came to), `wanted` (how many there would be).
    """

    def __init__(self, text: str, found: Exploration, wanted: int) -> None:
        super().__init__(text)
        self.found, self.wanted = found, wanted


def explore(
    workflow: Workflow | Make,
    input: Any = None,  # noqa: A002 - a run's input, as everywhere in the field
    *,
    depth: int = 1,
    invariants: Sequence[Invariant] = (),
    stalls: bool = False,
    only: Collection[str] = (),
    max_schedules: int = MAX_SCHEDULES,
    progress: Progress = None,
    **scenario: Any,
) -> Exploration:
    """Crash a run at every place, or at every pair of places; each time it has to end right.

    Every schedule is resumed until the run has ended, and judged: status, result, error, cost and
    calls as without a crash; nothing recorded lost, and no recorded step executed again; the
    world's books as without a crash, each undo at most once and only of what was done; keys that
    tell runs, effects and undos apart; the journal verified.

    Args:
        workflow: a function from a world to the workflow, such as `agent_in`, or to several of
            which the first is run and the others are its children. A plain workflow will do, if
            nothing that it keeps outlives a crash.
        input: its input.
        depth: how many crashes the longest schedules have: 2 is every pair.
        invariants: what has to hold besides: functions of the run, its events and the world.
        stalls: let processes also hang at each place, until another has finished the run, and then
            go on, as one does after a long pause.
        only: the calls to crash in, such as "charge" or "undo:charge"; all of them by default.
        max_schedules: how many schedules it may be.
        progress: called with how many are done and how many there are; a bar in a terminal by
            default, False for silence.
        **scenario: `world`, a function that makes a new one (`Ledger`); `signals`, either what to
            answer a wait with, by name, or a list of `SignalAt`; `cancel_at_s`, when the run is
            cancelled, in seconds from its start; `fail`, what the world's methods raise, by name;
            `journal`, "memory", "file" or "sqlite"; `budget`.

    Raises:
        TooManySchedulesError: they would be more than `max_schedules`; it says how many.
        StuckError: without a crash the run never ends.
        DurableError: without a crash the engine refuses to drive the run.
        ValueError, TypeError: an option that can't be.
    """
    if depth < 1:
        raise ValueError(f"depth is the number of crashes, from 1, not {depth!r}")
    found = Scenario.of(workflow, input, **scenario)
    if stalls and found.journal == "file":
        raise ValueError("a file journal has one opener at a time. Next: stalls with another one")
    began = time.perf_counter()
    with _bench(found, invariants) as bench:
        search = _Search(bench, set(only), (False, True) if stalls else (False,), max_schedules)
        for level in range(1, depth + 1):
            search.deepen(level, progress)
        return replace(search.found, seconds=time.perf_counter() - began)


def replay_schedule(
    workflow: Workflow | Make,
    input: Any = None,  # noqa: A002 - as above
    recipe: str = "",
    *,
    invariants: Sequence[Invariant] = (),
    **scenario: Any,
) -> Rerun:
    """Carry out one schedule that `explore` printed, and show its processes and its events.

    Args:
        workflow: as for `explore`, as are the arguments that aren't named here.
        input: its input.
        recipe: the line, such as "charge.window > send_email.before".
        invariants: what has to hold besides.
        **scenario: what `explore` was given.

    Raises:
        ValueError: the line is no recipe, or no process comes to one of its places.
        StuckError, DurableError: the run doesn't end.
    """
    schedule = schedule_of(recipe)
    with _bench(Scenario.of(workflow, input, **scenario), invariants) as bench:
        outcome, trial, ending = bench.tried(schedule)
    for fault, process in zip(schedule, trial.processes, strict=False):
        if not process.met:
            known = ", ".join(dict.fromkeys(place.call for place in process.places))
            raise ValueError(f"no process comes to {fault.place}. Next: choose among {known}")
    run = ending.runs[RUN_ID]
    places = tuple(tuple(process.places) for process in trial.processes)
    return Rerun(outcome, places, tuple(ending.histories[RUN_ID, run.generation]), trial.world)


@contextmanager
def _bench(scenario: Scenario, invariants: Sequence[Invariant]) -> Iterator[_Bench]:
    with TemporaryDirectory() as folder:
        yield _Bench(scenario, tuple(invariants), Path(folder))


class _Bench:
    """Carries out one schedule after the other, and judges each by the crash-free run.

    Attributes: `crash_free`, that run's outcome, trial and ending.
    """

    def __init__(self, scenario: Scenario, more: tuple[Invariant, ...], folder: Path) -> None:
        self._scenario, self._code = scenario, Code(scenario)
        self._more, self._folder = more, folder
        self.crash_free: _Tried = self.tried(())

    def tried(self, schedule: Schedule) -> _Tried:
        """Carry a schedule out."""
        trial = Trial(self._scenario, self._code, schedule, self._folder)
        try:
            trial.carry_out()
        except (DurableError, StuckError) as error:
            if not schedule:
                raise
            trial.trouble.append(f"{type(error).__name__}: {error}")
        ending, broken = self._read(trial)
        for path in self._folder.iterdir():
            path.unlink()
        lost = [call for call, (_, _, lost) in accounts(trial, ending).items() if lost]
        again = tuple(call_name(RUN_ID, *call) for call in lost)
        run = ending.runs.get(RUN_ID)
        how = (run.status, run.attempts) if run else (None, 0)
        return Outcome(schedule, tuple(broken), again, *how), trial, ending

    def _read(self, trial: Trial) -> tuple[Ending, list[str]]:
        """How a trial ended, and what is wrong with that."""
        try:
            with trial.journal() as journal:
                ending = ending_of(trial, journal)
                first = self.crash_free[2] if trial.schedule else ending
                return ending, broken_laws(trial, ending, journal, first, self._more)
        except DurableError as error:  # the journal can't even be read
            if not trial.schedule:
                raise
            return NO_ENDING, [*trial.trouble, f"{type(error).__name__}: {error}"]


class _Search:
    """The schedules, level by level: those of one crash, those of two, and so on.

    Attributes: `found`, what came of all so far.
    """

    def __init__(
        self, bench: _Bench, only: set[str], kinds: tuple[bool, ...], max_schedules: int
    ) -> None:
        self._bench, self._only, self._kinds, self._most = bench, only, kinds, max_schedules
        outcome, trial, ending = bench.crash_free
        notes = () if trial.scenario.is_seen and ending.booked is not None else (_UNSEEN,)
        name = ending.runs[RUN_ID].workflow
        self.found = Exploration(name, 0, (outcome,), 0.0, notes)
        self._ends: list[tuple[Schedule, list[Place]]] = [((), trial.next_places)]

    def deepen(self, level: int, progress: Progress) -> None:
        """Add one more crash to every schedule, at each place that its last process came to."""
        if not self.found.outcomes[0].ok:
            return  # what goes wrong without a crash goes wrong with each
        schedules = [
            (*schedule, Fault(place, stalls))
            for schedule, places in self._ends
            for place in places
            if not self._only or place.plain_call in self._only
            for stalls in self._kinds
        ]
        began, number = time.perf_counter(), len(schedules)
        self._check_number(level, number)
        self._ends, outcomes = [], []
        title = "one crash" if level == 1 else f"{level} crashes"
        for schedule in followed(schedules, number, progress, title):
            outcome, trial, _ = self._bench.tried(schedule)
            outcomes.append(outcome)
            self._ends.append((schedule, trial.next_places))
        seconds = time.perf_counter() - began
        all_of_them = (*self.found.outcomes, *outcomes)
        self.found = replace(self.found, depth=level, outcomes=all_of_them, seconds=seconds)

    def _check_number(self, level: int, more: int) -> None:
        wanted = self.found.schedules + more
        if wanted <= self._most:
            return
        text = f"depth {level} takes {wanted:,} schedules, max_schedules is {self._most:,}"
        if level > 1:
            last = len(self._ends)
            text += f"; {more:,} more take {self.found.seconds / max(last, 1) * more:,.0f} s"
        text += f". Next: explore(…, max_schedules={wanted}), or choose calls by only=[…]"
        if level > 1:
            text += f"; what depth {level - 1} found is in .found of this error"
        raise TooManySchedulesError(text, self.found, wanted)
