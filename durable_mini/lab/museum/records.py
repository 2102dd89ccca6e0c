"""Exhibits: engines that give a record to the wrong call, or don't find what they recorded.

Guarantees: each is an honest engine with one method as it was in a real one; `breaks` are the laws
that the kit finds broken, all of them. Leaves to others: finding them (`tour`).
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from durable_mini.lab.museum.honest import Context, Event, HonestEngine, Refused, Stop, kept


class TakesAnyKind(HonestEngine):
    """Its records are compared by name and arguments only.

    A recorded wait was consumed by a step of the changed code. The step's body never ran, and the
    run "succeeded".
    """

    report = "aws durable execution SDK for Python, issue 692"
    breaks = frozenset({6})

    class Ctx(Context):
        def is_same(self, found: Event, asked: Event) -> bool:
            return all(found[part] == asked[part] for part in ("name", "args"))


class OnlyCounts(HonestEngine):
    """Its detector counts the calls: as many as are on record will do.

    A call that became another one went through, and so did two that changed places.
    """

    report = "Azure durabletask, issue 443"
    breaks = frozenset({5, 6, 7, 9})

    class Ctx(Context):
        def is_same(self, found: Event, asked: Event) -> bool:
            return True


class LooksUpByName(HonestEngine):
    """Its records are found by their names, wherever they stand.

    A call that was added is executed among recorded ones, one that was taken out isn't missed, and
    two that changed places are served without a word.
    """

    report = "Absurd 0.5.1 and LangGraph 1.2.24, measured"
    breaks = frozenset({5, 6, 7, 8, 9})

    class Ctx(Context):
        def __init__(self, *about: Any) -> None:
            super().__init__(*about)
            self.asked = Counter[str]()

        def recorded(self, asked: Event) -> Event | None:
            name = asked["name"]
            self.asked[name] += 1
            found = [event for event in self.calls if event["name"] == name]
            return found[self.asked[name] - 1] if len(found) >= self.asked[name] else None

        def finish(self) -> None:
            """Nothing is missed."""


class TrustsArguments(HonestEngine):
    """Its records are compared by kind and name; with which arguments a call was made is forgotten.

    Two charges of one name swapped their customers, and each got the other's receipt.
    """

    report = "DBOS 3.4.0, Restate 1.7.12, Temporal 1.9.1 and Absurd 0.5.1, measured"
    breaks = frozenset({7})

    class Ctx(Context):
        def is_same(self, found: Event, asked: Event) -> bool:
            return all(found[part] == asked[part] for part in ("kind", "name"))


class NoticesTooLate(HonestEngine):
    """It executes a call first, and finds out then that another one is on record.

    The error came one step late: what should never have run had run.
    """

    report = "DBOS 3.4.0 with a pinned version and a step added, measured"
    breaks = frozenset({5, 6, 7, 9})

    class Ctx(Context):
        def call(self, kind: str, name: str, fn: Any, args: Any, more: Any) -> Any:
            try:
                return super().call(kind, name, fn, args, more)
            except Stop:
                if self.place < len(self.calls):
                    fn(*args, **more)
                raise


class CallsItPending(HonestEngine):
    """Its divergences come back as "pending", as a run does that waits for something.

    The caller tried again, for ever, and nobody was told that the code didn't fit.
    """

    report = "aws durable execution SDK for JavaScript, issue 865"
    breaks = frozenset({9})

    class Ctx(Context):
        def diverged(self, found: Event, asked: str) -> BaseException:
            return Stop(f"run {self.run_id} is pending")


class RecordsItsDivergence(HonestEngine):
    """It writes into the history of a run that has diverged, at each attempt."""

    report = "azure-functions-durable-extension, issue 3119"
    breaks = frozenset({9})

    class Ctx(Context):
        def diverged(self, found: Event, asked: str) -> BaseException:
            self.engine.append(self.run_id, self.token, {"kind": "diverged", "name": asked})
            return super().diverged(found, asked)


class LetsCodeGoOn(HonestEngine):
    """Its divergence is an ordinary exception, and `except Exception` in a workflow swallows it.

    The workflow takes it for a failed step, and goes on.
    """

    report = "an engine whose own stops derive from Exception"
    breaks = frozenset({9})

    class Ctx(Context):
        def diverged(self, found: Event, asked: str) -> BaseException:
            self.place = len(self.calls)
            return Refused(str(super().diverged(found, asked)))


class LooksForTruth(HonestEngine):
    """It takes a record that says None for no record: `journal.get(name) or fn()`.

    A step that has nothing to say is executed again in every process.
    """

    report = "a home-made journal, see chapter 02"
    breaks = frozenset({2})

    class Ctx(Context):
        def recorded(self, asked: Event) -> Event | None:
            found = super().recorded(asked)
            return found if found and found.get("value", "an error") else None


class AdmitsAtTheFirstRecord(HonestEngine):
    """A run that was accepted is in memory until somebody drives it.

    A crash before the first checkpoint lost it.
    """

    report = "langgraph, issue 8764"
    breaks = frozenset({1, 16})
    accepted: dict[str, tuple[Callable[..., Any], Any]]

    def start(self, run_id: str, workflow: Callable[..., Any], value: Any) -> None:
        self.accepted = {run_id: (workflow, kept(value))}

    def resume(self, run_id: str, workflow: Callable[..., Any]) -> Any:
        for accepted in getattr(self, "accepted", {}).values():
            super().start(run_id, *accepted)
        return super().resume(run_id, workflow)


class NumbersByProcess(HonestEngine):
    """Its events are numbered by the process that writes them, and nobody checks the order.

    After a crash the numbers begin again. Which event came first is anybody's guess, and one that
    is missing is not missed.
    """

    report = "langgraph, issue 8039"
    breaks = frozenset({4, 18})
    written = 0

    def write(self, run_id: str, event: Event) -> Event:
        self.written += 1
        return super().write(run_id, {**event, "seq": self.written})

    def parse(self, run_id: str, number: int, line: bytes) -> Event:
        return self.checked(run_id, number, line)


class CountsTheInput(HonestEngine):
    """The run's input has the first place among the records: the first step counts as done."""

    report = "persistasaurus for Python"
    breaks = frozenset(range(1, 21))

    class Ctx(Context):
        kinds: ClassVar[frozenset[str]] = Context.kinds | {"start"}

        def is_same(self, found: Event, asked: Event) -> bool:
            return found["kind"] == "start" or super().is_same(found, asked)
