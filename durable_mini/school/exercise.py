"""What a check cell asks the answers with: `ex = Exercise("03_keys")`.

A check never touches an answer by its Python name. In a notebook `ex` calls the functions of the
kernel that it stands in, so prints and debuggers work; when it is graded the same calls go to a
process of their own, and the ledger stays with the checks (`child`).

    with ex.check("q1-add-negative", points=1) as check:
        got = ex.call("add", -1, 1)
        check.expect(got == 0, "A sum may be zero.", got=got)

Guarantees: values go through JSON both ways, on both sides; a check prints one line when it holds,
and raises `Missed` with the missed idea in words when it doesn't, whatever an answer did. Leaves to
others: the processes (`child`), marks (`grading`).
"""

from __future__ import annotations

import json
import linecache
import os
import random
import re
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from durable_mini.codec import decode, encode, round_trip
from durable_mini.context import Probe
from durable_mini.errors import DurableError, message_of
from durable_mini.events import EventKind, Position, RunError, RunStatus
from durable_mini.lab.crashes import InjectedCrash
from durable_mini.lab.ledger import LedgerRow
from durable_mini.school.driving import (
    REQUEST,
    UNSENT,
    Crash,
    Drive,
    Driven,
    Places,
    drive,
    outside,
    places_of,
    read_back,
    scratch_folder,
)
from durable_mini.school.outside import HeldLedger, World
from durable_mini.structure import Workflow

MAX_SHOWN = 400
MAX_BYTES = 1_000_000
DIED = "ProcessDied"
_TRACE_LINES = 3
_BLANK = re.compile(r"\s*(if |[\w, ]+ = (\.\.\., )*)?\.\.\.:?\s*#")  # as exercises hand it out
_MOST_PROCESSES = 20  # of one run; more is a run that never comes on


def question_of(name: str) -> str:
    """The question to which a cell or a check belongs: the part of its id before the first dash."""
    return name.partition("-")[0]


class Missed(AssertionError):  # noqa: N818 - an assertion about an answer, not a fault of the code
    """A check that doesn't hold: the missed idea, and what was seen."""


class AnswerError(Exception):
    """What an answer raised, or that it hung or died.

    Attributes: `type`, `message`, `trace` (the last lines of the answer's own code).
    """

    def __init__(self, type: str, message: str, trace: str = "") -> None:  # noqa: A002
        super().__init__(f"{type}: {message}")
        self.type, self.message, self.trace = type, message, trace


class Dies(BaseException):
    """Raised by a function that a check hands to an answer: the answers' process dies here."""


class NotHereError(RuntimeError):
    """Something that only exists where an exercise is checked, or where it is graded."""


class Backend(Protocol):
    """Where the answers live."""

    ledger: HeldLedger
    world: World
    seed: int
    scratch: str

    def reach(self, check_id: str) -> None:
        """A check begins: the cells above it have been executed."""

    def note(self, check_id: str, missed: str) -> None:
        """A check ended; `missed` is empty if it holds."""

    def ask(self, what: str, *args: Any) -> Any:
        """Ask for a value, a call, an object (`what` is a method of `Answers`)."""

    def drive(self, order: Drive, places: Places, fresh: Fresh | None) -> Ended:
        """Let a process drive a run, and die where it comes to its place."""

    def reference(self, name: str, args: list[Any]) -> Any:
        """What the reference's function gives."""

    def engine(self, name: str) -> Any:
        """A class of the answers as a factory for the conformance kit; see `remote_engine`."""


Fresh = dict[str, Any]
"""What a process is to find: `env`, `cwd_files`; `hash_seed` and `fresh` make it one of its own."""
Ended = tuple[bool, RunError | None]
"""Whether it was killed at the place that was asked for, and what stopped the engine."""


class Answers:
    """The answers by name, in the process in which they live; what comes out is JSON text.

    Args:
        names: the namespace in which the cells were executed.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self.names, self._objects, self._count = names, dict[int, Any](), 0

    def value(self, name: str) -> str:
        """A variable."""
        return _packed(self._found(name), name)

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> str:
        """What a function returns."""
        return _packed(self._found(name)(*args, **kwargs), f"{name}()")

    def new(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> str:
        """A number for a new object of a class."""
        self._count += 1
        self._objects[self._count] = self._found(name)(*args, **kwargs)
        return str(self._count)

    def method(self, number: int, name: str, args: list[Any], kwargs: dict[str, Any]) -> str:
        """What a method of such an object returns."""
        return _packed(getattr(self._objects[number], name)(*args, **kwargs), f"{name}()")

    def drop(self, number: int) -> str:
        """Forget such an object."""
        self._objects.pop(number, None)
        return "null"

    def drive(self, order: Drive, probe: Probe) -> RunError | None:
        """See `driving.drive`."""
        wanted = self._found(order.workflow)
        if not isinstance(wanted, Workflow):
            why = "is no workflow. Next: decorate the function with @workflow"
            raise TypeError(f"{order.workflow} {why}.")
        others = [value for value in self.names.values() if isinstance(value, Workflow)]
        return drive(order, wanted, others, probe)

    def _found(self, name: str) -> Any:
        if name not in self.names:
            raise NameError(f"{name!r} isn't defined. Next: write it, and run its cell.")
        return self.names[name]


def _packed(value: Any, what: str) -> str:
    text, _ = round_trip(value, "the value of", what, "it", MAX_BYTES)
    return text


class Here:
    """The answers in this very kernel.

    Args:
        names: the kernel's namespace.
        cells: gives the sources of the cells executed so far, for a process of their own.
    """

    seed, scratch = 0, ""

    def __init__(self, names: dict[str, Any], cells: Callable[[], list[str]]) -> None:
        self._answers, self._cells = Answers(names), cells
        self.ledger, self.world = HeldLedger(), World(self._answer)
        self._places = Places()
        self._crashed: InjectedCrash | None = None

    def reach(self, check_id: str) -> None:
        """Nothing to do: the cells above have been executed, or not."""

    def note(self, check_id: str, missed: str) -> None:
        """Nothing to do: the cell says it."""

    def ask(self, what: str, *args: Any) -> Any:
        """See `Backend.ask`."""
        functions: list[Function] = []
        given = unpacked(packed(args, functions), lambda number: _like_a_pipe(functions[number]))
        try:
            return decode(getattr(self._answers, what)(*given))
        except Dies:
            raise AnswerError(DIED, "the process of your answers ended") from None
        except (Exception, SystemExit) as error:
            raise answer_error(error) from error

    def reference(self, name: str, args: list[Any]) -> Any:
        """In the solution itself the reference is what stands there."""
        return self.ask("call", name, args, {})

    def engine(self, name: str) -> Any:
        """See `Backend.engine`."""
        return _later("remote_engine").own_engine(self._answers.names, name)

    def drive(self, order: Drive, places: Places, fresh: Fresh | None) -> Ended:
        """See `Backend.drive`: an injected crash, or a process that executes the cells again."""
        fresh = fresh or {}
        if fresh.keys() & {"fresh", "hash_seed"}:
            ended: Ended = _later("child").in_a_process(
                self._cells(), self.ledger, order, places, fresh
            )
            return ended
        self._places, self._crashed = places, None
        stop = None
        try:
            with _surroundings(fresh.get("env", {}), fresh.get("cwd_files", {})):
                stop = self._answers.drive(order, self._probe)
        except InjectedCrash:
            pass
        except (Exception, SystemExit) as error:
            raise answer_error(error) from error
        finally:
            killed, self._places, self._crashed = bool(self._crashed), Places(), None
        return killed, None if killed else stop

    def _probe(self, position: Position, kind: EventKind, name: str) -> None:
        if self._places.at_call(position, kind, name):
            self._crashed = InjectedCrash(position, kind, name)
        if self._crashed:
            raise self._crashed

    def _answer(self, method: str, args: list[Any]) -> Any:
        """A request of the answers; one of a process that is dead comes to nothing."""
        if self._places.before_request(self.ledger.requests + 1):
            self._crashed = InjectedCrash(Position.BEFORE, EventKind.EFFECT, UNSENT)
        if self._crashed:
            raise self._crashed
        try:
            return decode(encode(self.ledger.ask(method, args)))
        finally:
            if self._places.at_request(self.ledger.requests):
                self._crashed = InjectedCrash(Position.WINDOW, EventKind.EFFECT, REQUEST)
                raise self._crashed


def _later(module: str) -> Any:
    """A module that knows this one, and isn't needed where nobody asks for processes."""
    return import_module(f"durable_mini.school.{module}")


@contextmanager
def _surroundings(env: Mapping[str, str], files: Mapping[str, str]) -> Iterator[None]:
    """Variables of the environment and files in the working folder, for as long as the block."""
    before, folder = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory() as own:
        try:
            os.environ.update(env)
            time.tzset()
            for name, text in files.items():
                Path(own, Path(name).name).write_text(text, encoding="utf-8")
            if files:
                os.chdir(own)
            yield
        finally:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(before)
            time.tzset()


# ---- values between the two sides --------------------------------------------------------------

Function = Callable[..., Any]
_CALL = "$call"


def packed(value: Any, functions: list[Function]) -> str:
    """A value as JSON text; functions in it are collected, and named by their place."""

    def named(found: Any) -> dict[str, int]:
        if not callable(found):
            raise TypeError(f"{found!r:.80} isn't JSON")
        functions.append(found)
        return {_CALL: len(functions) - 1}

    return json.dumps(value, allow_nan=False, default=named)


def unpacked(text: str, function: Callable[[int], Function]) -> Any:
    """The value of such a text; `function` makes the functions in it."""

    def hook(found: dict[str, Any]) -> Any:
        return function(found[_CALL]) if found.keys() == {_CALL} else found

    return json.loads(text, object_hook=hook)


def _like_a_pipe(function: Function) -> Function:
    """A function of the checks as the answers see it: what goes in and out is JSON."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return decode(encode(function(*decode(encode(args)), **decode(encode(kwargs)))))

    return call


def answer_error(error: BaseException) -> AnswerError:
    """What an answer raised, with the last lines of its own code."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.line and re.match(r"<(?!frozen)|.*ipykernel", frame.filename)
    ][-_TRACE_LINES:]
    lines = [f"line {frame.lineno}, in {frame.name}: {frame.line}" for frame in frames]
    cell = linecache.getlines(frames[-1].filename) if frames else []
    lines += [f"A blank is still empty: {line.strip()}" for line in cell if _BLANK.match(line)][:1]
    return AnswerError(type(error).__name__, message_of(error), "\n".join(lines))


# ---- what a check cell uses --------------------------------------------------------------------


class Check:
    """One check: all or nothing of its points; made by `Exercise.check`."""

    def __init__(self, backend: Backend, check_id: str, points: float) -> None:
        self._backend, self._id, self._points = backend, check_id, points

    def __enter__(self) -> Self:
        self._backend.reach(self._id)
        return self

    def expect(
        self, holds: object, missed_idea: str, rows: Sequence[LedgerRow] | None = None, **shown: Any
    ) -> None:
        """Go on if it holds.

        Args:
            holds: what has to be true.
            missed_idea: what has been missed, in words, for whoever wrote the answer.
            rows: rows of the ledger that it cost.
            shown: what was given and what came back, by name.

        Raises:
            Missed: it doesn't.
        """
        if not holds:
            lines = [f"  {name}: {shorten(value)}" for name, value in shown.items()]
            raise Missed("\n".join([missed_idea, *lines, *_table(rows or ())]))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self._backend.note(self._id, "")
            print(f"{self._id}: {self._points:g} point{'s' * (self._points != 1)}")
        elif isinstance(error, Exception):
            told = printable(_told(error))
            self._backend.note(self._id, told)
            raise Missed(told) from None


def _told(error: Exception) -> str:
    """A check's end in words."""
    match error:
        case Missed():
            return str(error)
        case AnswerError(type="PayloadError", message=message) if "type ellipsis" in message:
            return f"A blank is still empty: {message.partition(':')[0]} holds `...`."
        case AnswerError(type=type_, message=message, trace=trace):
            return "\n".join([f"Your answer ended with {type_}: {message}"[:2_000], trace]).rstrip()
        case DurableError():
            return f"The engine that reads your journal says: {error}"
    return f"What came back has another shape than was asked for ({type(error).__name__}: {error})."


def printable(text: str) -> str:
    """A text without what a terminal obeys, or an encoder refuses."""
    plain = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(one if one.isprintable() or one in "\n\t" else ascii(one)[1:-1] for one in plain)


def shorten(value: Any) -> str:
    """A value in one line of bounded length, in ASCII."""
    text = ascii(str(value) if isinstance(value, RunStatus) else value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… ({len(text):,} characters)"


def _table(rows: Sequence[LedgerRow]) -> list[str]:
    if not rows:
        return []
    cells = [("endpoint", "order", "body", "key"), *(tuple(map(_cell, row)) for row in rows[:12])]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    lines = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
    return ["  In the ledger:", *lines, *([f"  … {len(rows)} rows"] if len(rows) > 12 else [])]


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return ascii(text)[1:-1][:40]


class Thing:
    """An object of a class of the answers, wherever it lives; made by `Exercise.new`."""

    def __init__(self, backend: Backend, number: int) -> None:
        self._backend, self._number = backend, number

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """What a method returns, as JSON.

        Raises:
            AnswerError: it raised, hung or died.
        """
        return self._backend.ask("method", self._number, method, list(args), kwargs)

    def drop(self) -> None:
        """Let it go."""
        self._backend.ask("drop", self._number)


class Exercise:
    """The checks' way to the answers of an exercise.

    Args:
        name: the exercise, as its file is called.

    Attributes: `world`, which the answers use.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._backend = backend_for(name)
        self.world = self._backend.world
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._numbers = count(1)

    def check(self, check_id: str, points: float) -> Check:
        """A check, for a `with` block: it is left with a line that says its points, or `Missed`."""
        return Check(self._backend, check_id, points)

    # ---- values and calls -----------------------------------------------------------------------

    def value(self, name: str) -> Any:
        """The value of a variable of the answers.

        Raises:
            AnswerError: there is none, or it isn't JSON.
        """
        return self._backend.ask("value", name)

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """What a function of the answers returns, as JSON gives it back: tuples are lists.

        Functions among the arguments stay with the checks: what the answers call is a proxy.

        Raises:
            AnswerError: it raised, hung or died, or what it returned isn't JSON.
        """
        return self._backend.ask("call", name, list(args), kwargs)

    def calls(self, name: str) -> Callable[..., Any]:
        """A function of the answers, to be called several times: `add = ex.calls("add")`."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return self.call(name, *args, **kwargs)

        return call

    def new(self, name: str, /, *args: Any, **kwargs: Any) -> Thing:
        """An object of a class of the answers; it lives until it is dropped, or its process ends.

        Raises:
            AnswerError: as `call`.
        """
        return Thing(self._backend, self._backend.ask("new", name, list(args), kwargs))

    def rng(self, check_id: str) -> random.Random:
        """Random numbers for drawn inputs: the same for the same grading seed and check."""
        return random.Random(f"{self._backend.seed}/{self.name}/{check_id}")

    def engine(self, name: str) -> Any:
        """A class of the answers as a factory for `check_engine`: here, or in processes of its own.

        Raises:
            AnswerError: there is none, or it stands on durable_mini.
        """
        return self._backend.engine(name)

    def reference(self, name: str, *args: Any) -> Any:
        """What the function of the reference solution returns; for hidden checks only.

        Raises:
            AnswerError: as `call`.
        """
        return self._backend.reference(name, list(args))

    # ---- ledger, journal, runs ------------------------------------------------------------------

    def ledger(self, honour_keys: bool = True, **switches: Any) -> HeldLedger:
        """Fresh books, which `world` writes to from now on; the switches are `HeldLedger`'s."""
        self._backend.ledger = HeldLedger(honour_keys=honour_keys, **switches)
        return self._backend.ledger

    def journal(self) -> str:
        """A path at which there is no journal yet, in a folder that the answers may write to."""
        folder = self._backend.scratch
        if not folder:
            self._scratch = self._scratch or scratch_folder()
            folder = self._scratch.name
        return str(Path(folder, f"journal-{next(self._numbers)}.db"))

    def drive(
        self,
        workflow: str,
        input: Any = None,  # noqa: A002 - as everywhere in the field
        *,
        journal: str,
        run_id: str = "r-1",
        crash: Crash | None = None,
        now_s: float | None = None,
        fresh: bool = False,
        hash_seed: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd_files: Mapping[str, str] | None = None,
    ) -> Driven:
        """Let one process drive a run: start it if it is new, or else resume it.

        Args:
            workflow: the name of the variable that holds it.
            input: the run's input.
            journal: what `journal` gave.
            run_id: the run's name.
            crash: where the process is killed: a call and a position, e.g. `("charge", "window")`,
                `("charge#2", "before")` for its second live execution, `("undo:charge", "after")`;
                `("3", "request")` is right after the third request to the ledger took effect, and
                `("3", "unsent")` right before.
            now_s: the time that the process's clock shows; that of the last event by default.
            fresh: in a process of its own, also in a notebook, that executes the cells again.
            hash_seed: its hash seed, which makes it fresh.
            env: variables of its environment, besides those that every process has.
            cwd_files: files in its working folder, by name.

        Returns:
            How the run stands, read from the journal once that has proved to be sound.

        Raises:
            AnswerError: the answers raised something that no engine answers for, hung, or died.
            Missed: it was to be killed at a place to which it never came.
        """
        wanted = {"hash_seed": hash_seed, "env": env, "cwd_files": cwd_files}
        told = {name: value for name, value in wanted.items() if value is not None}
        told |= {"fresh": True} if fresh else {}
        driven = self._drive(Drive(workflow, input, journal, run_id, now_s), crash, told or None)
        if crash is not None and not driven.killed:
            raise Missed(f"The run never came to {driven.place}, where it was to be killed.")
        return driven

    def _drive(self, order: Drive, crash: Crash | None, fresh: Fresh | None) -> Driven:
        recorded = read_back(order.journal, order.run_id).history
        killed, stop = self._backend.drive(order, Places(crash, recorded), fresh)
        driven = read_back(order.journal, order.run_id, stop)
        ledger = self._backend.ledger
        return driven._replace(killed=killed, ledger=ledger, place=_placed(crash))

    def signal(
        self,
        journal: str,
        run_id: str,
        name: str,
        payload: Any = None,
        signal_id: str = "s-1",
        *,
        now_s: float | None = None,
    ) -> bool:
        """Send a run a signal, with the checks' own engine; see `Engine.signal`.

        It is recorded at `now_s`; at the time of the run's last event by default.
        """
        with outside(journal, run_id, now_s) as engine:
            return engine.signal(run_id, name, payload, signal_id=signal_id)

    def cancel(self, journal: str, run_id: str, *, now_s: float | None = None) -> bool:
        """Ask a run to stop, with the checks' own engine; see `Engine.cancel` and `signal`."""
        with outside(journal, run_id, now_s) as engine:
            return engine.cancel(run_id)

    def everywhere(
        self,
        workflow: str,
        input: Any = None,  # noqa: A002
        *,
        meanwhile: Callable[[str], Any] | None = None,
        positions: Sequence[str] = ("before", "window", "after", UNSENT, REQUEST),
        fresh: bool = False,
        **ledger: Any,
    ) -> Iterator[Driven]:
        """A run for every place at which its process can die, finished by another process.

        The first one dies nowhere; from it come the places: each step, effect and undo before,
        in the crash window and after, and each request to the ledger, unsent and taken.

        Args:
            workflow: as in `drive`, as are `input` and `fresh`.
            meanwhile: called with the journal whenever the run is suspended, e.g. to send a signal.
            positions: only these.
            ledger: the switches of each run's own ledger.

        Raises:
            AnswerError, Missed: as `drive`.
        """
        order = Drive(workflow, input, "")
        own: Fresh | None = {"fresh": True} if fresh else None
        free = self._trial(order, meanwhile, own, None, ledger)
        yield free
        for place in places_of(free.history, free.ledger.requests):
            if place[1] in positions:
                yield self._trial(order, meanwhile, own, place, ledger)

    def _trial(
        self,
        order: Drive,
        meanwhile: Callable[[str], Any] | None,
        fresh: Fresh | None,
        crash: Crash | None,
        switches: Mapping[str, Any],
    ) -> Driven:
        """A run on books and a journal of its own, killed at a place, and finished elsewhere."""
        self.ledger(**switches)
        order = order._replace(journal=self.journal())
        killed = False
        for _ in range(_MOST_PROCESSES):
            driven = self._drive(order, None if killed else crash, fresh)
            killed |= driven.killed
            if driven.killed:
                continue
            if driven.status != RunStatus.SUSPENDED or meanwhile is None:
                break
            meanwhile(order.journal)
        place = _placed(crash)
        if crash is not None and not killed:
            raise Missed(f"The run never came to {place}, where it was to be killed.")
        return driven._replace(killed=killed, place=place)


def _placed(crash: Crash | None) -> str:
    return "no crash" if crash is None else f"{crash[0]}.{crash[1]}"


def _here(_: str) -> Backend:
    """The kernel that this stands in."""
    from IPython.core.getipython import get_ipython  # noqa: PLC0415 - not where answers are run

    shell: Any = get_ipython()
    if shell is None:
        raise NotHereError("this is no notebook. Next: run the cell in one.")
    cells = [*shell.history_manager.input_hist_raw[:-1], shell.get_parent()["content"]["code"]]
    shell.events.register("pre_run_cell", lambda info: cells.append(info.raw_cell))
    return Here(shell.user_ns, lambda: list(cells))


backend_for: Callable[[str], Backend] = _here
"""Makes the backend of an exercise by its name; set by whoever executes a notebook elsewhere."""
