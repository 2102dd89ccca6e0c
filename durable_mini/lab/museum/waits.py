"""Exhibits: engines that get tries, waits, sagas, structure or cost wrong.

Guarantees and what it leaves to others: as in `records`; here the honest engine is the patient one.
"""

import inspect
from collections.abc import Callable
from typing import Any

from durable_mini.lab.museum.honest import Event, StepFailed, Stop
from durable_mini.lab.museum.patient import Cancelled, PatientContext, PatientEngine


class NewKeyEachTry(PatientEngine):
    """Each try of a step has a key of its own, and what the first one did is done again."""

    report = "dbos-transact-py, issue 770"
    breaks = frozenset({21})

    class Ctx(PatientContext):
        def one_try(
            self, number: int, name: str, fn: Any, args: list[Any], more: dict[str, Any]
        ) -> Event:
            more = {what: f"{key}, try {number}" for what, key in more.items()}
            return super().one_try(number, name, fn, args, more)


class CountsTriesAnew(PatientEngine):
    """How often a step was tried is in memory: after a crash the count begins again."""

    report = "home-made retries around a step"
    breaks = frozenset({21})

    class Ctx(PatientContext):
        def tries(self, name: str) -> tuple[int, float]:
            return 0, 0.0


class RunsAgainAfterAWait(PatientEngine):
    """What was finished before a wait is forgotten when the run wakes up, and done again."""

    report = "langgraph, issue 6792"
    breaks = frozenset({22})

    class Ctx(PatientContext):
        def call(self, kind: str, name: str, fn: Any, args: Any, more: Any) -> Any:
            woken = self.events[-1]["kind"] == "signal"
            if woken and self.place < len(self.calls):
                fn(*args, **more)
            return super().call(kind, name, fn, args, more)


class HoldsItsWorker(PatientEngine):
    """A process that waits sleeps and looks again, until the signal comes or the process dies."""

    report = "a loop with a sleep"
    breaks = frozenset({22, 23, 24})

    class Ctx(PatientContext):
        def verdict(self, name: str, wait: Event) -> Event:
            while True:
                try:
                    return super().verdict(name, wait)
                except Stop:
                    self.engine.clock.sleep(1.0)


class CountsSignalsTwice(PatientEngine):
    """A sender that asks twice is heard twice: the second approval answers the next question."""

    report = "a callback without an id"
    breaks = frozenset({23})

    def is_known(self, signal_id: str, events: list[Event]) -> bool:
        return False


class WhoeverLooksDecides(PatientEngine):
    """A signal that came too late wins if it is there when somebody looks."""

    report = "a time-out that is looked at after the queue"
    breaks = frozenset({24})

    class Ctx(PatientContext):
        def in_time(self, signal: Event, wait: Event) -> bool:
            return True


class KeepsUndosInMemory(PatientEngine):
    """What is to be undone is a list in the process that did it; the next begins with none."""

    report = "a saga in a `try` with a list of undos"
    breaks = frozenset({25, 26})

    class Ctx(PatientContext):
        def compensate(self, name: str, fn: Callable[..., Any], *args: Any) -> None:
            known = self.place < len(self.calls)
            super().compensate(name, fn, *args)
            if known:
                self.undos.pop()


class CancelSkipsUndos(PatientEngine):
    """A run that fails undoes what it did; one that is cancelled leaves everything as it is."""

    report = "temporal sdk-java, issue 305"
    breaks = frozenset({26})

    def unwind(self, ctx: PatientContext, why: StepFailed) -> None:
        if not isinstance(why, Cancelled):
            super().unwind(ctx, why)


class HashesTheSource(PatientEngine):
    """Its structure is the text of the source, and a comment strands every run.

    They were stranded silently, too.
    """

    report = "decocms/studio, pull request 4143; czpython/druks, issue 619"
    breaks = frozenset({27})

    def fingerprint(self, workflow: Callable[..., Any]) -> Any:
        return inspect.getsource(workflow)


class CountsSpendAgain(PatientEngine):
    """What a step costs is added up beside the journal, each time that it is executed."""

    report = "pydantic-ai-harness, issue 531"
    breaks = frozenset({28})

    class Ctx(PatientContext):
        def one_try(
            self, number: int, name: str, fn: Any, args: list[Any], more: dict[str, Any]
        ) -> Event:
            with self.engine.path(self.run_id, "spent").open("a") as file:
                file.write(f"{self.cost}\n")
            return super().one_try(number, name, fn, args, more)

    def cost(self, run_id: str) -> float:
        path = self.path(run_id, "spent")
        return sum(map(float, path.read_text().split())) if path.exists() else 0.0
