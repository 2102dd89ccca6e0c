"""The answers in processes of their own, as the checks see them when a notebook is graded.

The kernel with the checks never executes a line of a student. What it asks goes to a process that
can be killed; what comes back is JSON, and counts for no more than that. The ledger is here, and so
is the decision where a process dies: at a probe, or right after a request took effect, with a real
SIGKILL. Guarantees: an answer that hangs, dies, or says what nobody understands is an `AnswerError`
of the check that asked; a cell that does so is set aside, and the others count. Time is the
processor's; a process that only sleeps is told by its doing nothing. Leaves to others: what these
processes may do (`confinement`), what a check makes of the answer (`exercise`), marks (`grading`).
"""

from __future__ import annotations

import atexit
import json
import math
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

from durable_mini.codec import decode, encode
from durable_mini.errors import message_of
from durable_mini.events import RunError
from durable_mini.school import confinement, exercise
from durable_mini.school.answering import GoneError, Pictures, Setting, framed, receive, send
from durable_mini.school.driving import Drive, Places, keep_only_journals, scratch_folder
from durable_mini.school.exercise import (
    DIED,
    AnswerError,
    Dies,
    Ended,
    Fresh,
    Function,
    packed,
    printable,
    question_of,
)
from durable_mini.school.outside import HeldLedger, World

POLL_S = 0.05
MOST_QUESTIONS, MOST_ASKED = 20_000, 50_000_000  # of one call, and their characters with answers
MOST_BYTES = 300_000_000
TOTAL_FACTOR = 60  # of the processor time for one call: what a whole notebook may take
WALL_FACTOR = 20  # of the allowed processor time: where a system doesn't tell what a process does
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
OWN = ""
"""Stands for every question whose answers are the student's own throughout."""
_REFERENCE, _TIMED_OUT = ("the reference", 0), "TimedOut"
_MOST_PRINTED, _PATIENCE_S, _PAGE_BYTES = 2_000, 10.0, 4_096
_STOPS_WITHIN = 500  # milliseconds

Serves = Callable[[str, list[Any]], Any]


class Cell(NamedTuple):
    """A cell that answers consist of: its number among the code cells, its id and its source."""

    number: int
    id: str
    source: str


class Order(NamedTuple):
    """What a kernel that checks is told, by `grading`.

    Attributes:
        cells: whose cells the answers are, by question; those of all others under "".
        reference: the cells of the reference.
        seed: of the drawn inputs.
        cell_timeout_s: seconds of processor time for one cell, or one call.
        notes: a file for what came of each check, a JSON line each.
        remove: files that nobody else is to read; they are gone before the first answer runs.
        folder: where answers may write, each below it; whoever gives it removes it.
    """

    cells: dict[str, list[Cell]]
    reference: list[Cell]
    seed: int
    cell_timeout_s: float
    notes: str
    remove: list[str]
    folder: str


class Allowance:
    """The processor time that all processes of one notebook have left together.

    Args:
        left_s: in seconds.
    """

    def __init__(self, left_s: float) -> None:
        self.left_s = left_s


# ---- processes ---------------------------------------------------------------------------------


class Nursery:
    """Starts and ends the processes of one exercise; a context manager.

    Args:
        folder: where each has a folder of its own.
        allowance: what they have left together.
        hash_seed: of their hashes.
    """

    def __init__(self, folder: Path, allowance: Allowance, hash_seed: int = 0) -> None:
        self._folder, self._allowance = folder, allowance
        own, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parents[2])
        program = (
            f"import sys; sys.path.append({root!r}); "
            "from durable_mini.school.answering import main; main()"
        )
        self._env = {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONHASHSEED": str(hash_seed)}
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this package itself
                [sys.executable, "-s", "-P", "-B", "-c", program, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=self._env,
                cwd=folder,
                start_new_session=True,
            )
        self._control = own

    def start(self, fresh: Fresh | None = None) -> Process:
        """A process that has executed nothing yet.

        Args:
            fresh: `env` and `cwd_files` of its own, and folders that are `writable` besides.
        """
        told = fresh or {}
        folder = Path(tempfile.mkdtemp(prefix="process-", dir=self._folder))
        own_env = {"HOME": str(folder), "TMPDIR": str(folder)}
        env = {**self._env, **own_env, **told.get("env", {})}
        writable = [str(folder), *told.get("writable", [])]
        setting = Setting(writable, str(folder), env, told.get("cwd_files", {}))
        own, theirs = socket.socketpair()
        with theirs:
            send(self._control, encode({"fork": setting._asdict()}))
            socket.send_fds(self._control, [b"."], [theirs.fileno()])
        pid = int(receive(self._control))
        return Process(own, pid, self._allowance, self._folder, lambda: self._end(pid, folder))

    def _end(self, pid: int, folder: Path) -> None:
        send(self._control, encode({"kill": pid}))
        receive(self._control)
        shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End every process, and wait until none is there."""
        self._control.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Process:
    """A process that answers; made by `Nursery.start`."""

    def __init__(
        self,
        end: socket.socket,
        pid: int,
        allowance: Allowance,
        folder: Path,
        kill: Callable[[], None],
    ) -> None:
        self._end, self._pid, self._allowance = end, pid, allowance
        self._folder, self._kill = folder, kill
        self.alive, self._printed = True, ""

    def ask(self, what: str, args: Sequence[Any], limit_s: float, serves: Serves) -> str:
        """What it says to something, as JSON text.

        Args:
            what: `cell`, `drive`, or a method of `Answers`.
            args: what comes with it.
            limit_s: seconds of processor time; after as many of doing nothing it is ended too.
            serves: answers what it asks meanwhile.

        Raises:
            AnswerError: it raised. If it hung, died or talked nonsense it is ended, too, and so it
                is where `serves` or a function among the arguments raises `Dies`.
        """
        functions: list[Function] = []
        text = packed(args, functions)
        if self._allowance.left_s <= 0:
            raise AnswerError(_TIMED_OUT, "the answers have used up the time they have together")
        watch = _Watch(self._pid, limit_s, self._folder)
        self._hold(signal.SIGCONT)
        try:
            self._send(encode({"do": what, "with": text}), watch)
            asked = 0
            for _ in range(MOST_QUESTIONS):
                message = receive(self._end, lambda: self._ready(watch))
                told = _message(message)
                if "ask" not in told:
                    return self._said(told)
                reply = _served(told, functions, serves)
                asked += len(message) + len(reply)
                if asked > MOST_ASKED:  # what the checks keep of it takes room
                    watch.end(f"what it asked was longer than {MOST_ASKED:,} characters")
                self._send(reply, watch)
            watch.end(f"it asked {MOST_QUESTIONS:,} times")
        except (GoneError, Dies):
            self.end()
            raise AnswerError(DIED, "the process of your answers ended") from None
        except AnswerError as error:
            if error.type == _TIMED_OUT:
                self.end()
            raise
        except BaseException:
            self.end()
            raise
        finally:
            self._hold(signal.SIGSTOP)
            self._allowance.left_s -= watch.spent_s() + watch.idle_s

    def _hold(self, how: signal.Signals) -> None:
        """Let it run, or stop it: between two questions no thread of it goes on."""
        if not self.alive:
            return
        with suppress(ProcessLookupError):
            os.kill(self._pid, how)
        for _ in range(_STOPS_WITHIN if how == signal.SIGSTOP else 0):
            if _state_of(self._pid)[1] not in ("R", "S", "D"):
                return
            time.sleep(0.001)

    def _ready(self, watch: _Watch) -> None:
        """Come back when there is something to read."""
        watch.look()
        while not select.select([self._end], [], [], POLL_S)[0]:
            watch.look(waited=True)

    def _send(self, message: str, watch: _Watch) -> None:
        """Send a message to a process that may not read it."""
        data = framed(message)
        while data:
            if not select.select([], [self._end], [], POLL_S)[1]:
                watch.look(waited=True)
                continue
            try:
                data = data[self._end.send(data, socket.MSG_DONTWAIT) :]
            except OSError as error:
                raise GoneError(str(error)) from None

    def _said(self, told: dict[str, Any]) -> str:
        self._printed += str(told.get("printed", ""))[-_MOST_PRINTED:]
        match told:
            case {"ok": str(text)}:
                return text
            case {"error": [str(kind), str(message), str(trace)]}:
                raise AnswerError(*(printable(text[:2_000]) for text in (kind, message, trace)))
        raise GoneError("an answer that is none")

    def take(self) -> str:
        """What it has printed since this was last asked."""
        text, self._printed = self._printed, ""
        return text

    def end(self) -> None:
        """End it with SIGKILL, and whatever it has started."""
        if self.alive:
            self.alive = False
            self._kill()
            self._end.close()


def _message(text: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        raise GoneError("a message that is no JSON") from None
    if not isinstance(told, dict):
        raise GoneError("a message that is no object")
    return told


def _served(told: dict[str, Any], functions: Sequence[Function], serves: Serves) -> str:
    """The answer to what a process asked, whatever that was."""
    try:
        asked, given = told["ask"], json.loads(told["with"])
        if asked == "function":
            number, args, kwargs = given
            return encode({"ok": functions[number](*args, **kwargs)})
        return encode({"ok": serves(asked, given)})
    except Exception as error:
        return encode({"error": [type(error).__name__, message_of(error)]})


class _Watch:
    """Looks at a process from time to time, and says when it has used up its time."""

    def __init__(self, pid: int, limit_s: float, folder: Path) -> None:
        self._pid, self._limit_s, self._folder = pid, limit_s, folder
        self._began_s, _ = self._state()
        self._used_s, self.idle_s, self._looked_at = self._began_s, 0.0, time.monotonic()
        self._wall_ends = self._looked_at + limit_s * WALL_FACTOR

    def look(self, *, waited: bool = False) -> None:
        """Come back if it may go on; often called, it looks from time to time.

        Args:
            waited: whether it was waited for all the while since the last look.

        Raises:
            AnswerError: it has had its time.
        """
        now = time.monotonic()
        if not waited and now < self._looked_at + POLL_S:
            return
        used_s, sleeps = self._state()
        # Not by the clock: a process that has to wait for a processor isn't asleep.
        self.idle_s += POLL_S * (waited and sleeps and used_s == self._used_s)
        self._used_s, self._looked_at = used_s, now
        if self.spent_s() > self._limit_s:
            self.end(f"it ran for more than {self._limit_s:g} s")
        if _size(self._folder) > MOST_BYTES:
            self.end(f"it wrote more than {MOST_BYTES:,} bytes")
        if self.idle_s > self._limit_s or now > self._wall_ends:
            self.end(f"it waited for more than {self._limit_s:g} s")

    def end(self, why: str) -> NoReturn:
        """Say why it may not go on."""
        raise AnswerError(_TIMED_OUT, why)

    def spent_s(self) -> float:
        """The processor time that it has used since this began to watch."""
        return max(self._used_s, self._state()[0]) - self._began_s

    def _state(self) -> tuple[float, bool]:
        """Seconds of processor time so far, and whether it does nothing."""
        used_s, state = _state_of(self._pid)
        return used_s, state not in "RD"  # it doesn't run, nor wait for a disk


def _state_of(pid: int) -> tuple[float, str]:
    """Seconds of processor time so far, and the system's letter for what a process does."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S, fields[0]
    except (OSError, IndexError, ValueError):
        return 0.0, ""


def _size(folder: Path) -> int:
    """How much room the files below a folder take, each counted as a page at least."""
    total = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            whole = entry.is_dir(follow_symlinks=False)
            size = entry.stat(follow_symlinks=False).st_size
            total += _size(Path(entry.path)) if whole else max(size, _PAGE_BYTES)
    return total


# ---- the answers, as `Exercise` asks for them --------------------------------------------------


class Notes:
    """What happens while a notebook is checked, a JSON line each, for whoever gives feedback.

    Args:
        path: the file; "" keeps nothing.
    """

    def __init__(self, path: str) -> None:
        self._path, self._loaded = path, set[tuple[str, str]]()

    def write(self, **told: Any) -> None:
        """Note something."""
        if self._path:
            with Path(self._path).open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")

    def loaded(self, cell_id: str, **told: str) -> None:
        """Note what came of executing a cell, the first time that there is something to note."""
        for what, text in told.items():
            if text and (cell_id, what) not in self._loaded:
                self._loaded.add((cell_id, what))
                self.write(cell=cell_id, **told)


class Chain:
    """Cells, and the process that has executed those above the place at which a check stands.

    Args:
        nursery: where its processes come from.
        cells: all cells, in order.
        limit_s: for each.
        notes: what cells printed, and why cells were set aside.
        writable: folders to which its processes may write besides their own.
    """

    def __init__(
        self,
        nursery: Nursery,
        cells: Sequence[Cell],
        limit_s: float,
        notes: Notes,
        *,
        writable: Sequence[str] = (),
    ) -> None:
        self._nursery, self._cells, self._limit_s, self._notes = nursery, cells, limit_s, notes
        self._writable = list(writable)
        self._aside: set[Cell] = set()
        self._host: Process | None = None
        self._done = 0

    def host(self, number: int) -> Process:
        """The process that stays, once it has executed every cell above a number."""
        if self._host is None or not self._host.alive:
            self._host, self._done = self._start(), 0
        self._host, self._done = self._executed(self._host, self._done, number)
        return self._host

    def start(self, number: int, fresh: Fresh | None) -> Process:
        """A process of its own that has executed them."""
        return self._executed(self._start(fresh), 0, number, fresh)[0]

    def _start(self, fresh: Fresh | None = None) -> Process:
        told = fresh or {}
        return self._nursery.start(
            {**told, "writable": [*self._writable, *told.get("writable", [])]}
        )

    def _executed(
        self, process: Process, done: int, number: int, fresh: Fresh | None = None
    ) -> tuple[Process, int]:
        tries = dict[Cell, int]()
        while done < len(self._cells) and self._cells[done].number < number:
            cell = self._cells[done]
            done += 1
            if cell in self._aside:
                continue
            why = self._execute(process, cell)
            if why:
                tries[cell] = tries.get(cell, 0) + 1
                if tries[cell] > 1:  # a second time, alone in a new process, settles it
                    self._aside.add(cell)
                    self._notes.write(set_aside=cell.id, reason=why)
                process, done = self._start(fresh), 0
        return process, done

    def _execute(self, process: Process, cell: Cell) -> str:
        """Let a process execute a cell; why it can't go on after that, if so."""
        try:
            # What a cell asks of the world while it is executed is in no check's books.
            books = HeldLedger()
            process.ask(
                "cell", (cell.id, cell.source), self._limit_s, lambda _, given: books.ask(*given)
            )
        except AnswerError as error:
            if not process.alive:
                return error.message
            self._notes.loaded(cell.id, raised=str(error))
        self._notes.loaded(cell.id, printed=process.take())
        return ""

    def end(self) -> None:
        """End the process that stays."""
        if self._host is not None:
            self._host.end()


class Away:
    """The answers in processes of their own, for one notebook whose checks run in this kernel.

    Args:
        order: what `grading` says.
        here: gives the number of the code cell that is being executed.
    """

    def __init__(self, order: Order, here: Callable[[], int]) -> None:
        self.seed, self.ledger = order.seed, HeldLedger()
        self.world = World(lambda method, args: decode(encode(self.ledger.ask(method, args))))
        self._order, self._here, self._notes = order, here, Notes(order.notes)
        self.scratch = str(Path(order.folder, "journals"))
        Path(self.scratch).mkdir()
        self._nurseries = dict[int, Nursery]()
        self._allowance = Allowance(order.cell_timeout_s * TOTAL_FACTOR)
        self._chains = dict[tuple[str, int], Chain]()
        self._engines = dict[str, Any]()  # by what they are made of
        self._question, self._printed = OWN, ""
        atexit.register(self.close)

    def reach(self, check_id: str) -> None:
        """A check begins."""
        self._question, self._printed = question_of(check_id), ""

    def note(self, check_id: str, missed: str) -> None:
        """A check ended."""
        self._notes.write(check=check_id, missed=missed, printed=self._printed[-_MOST_PRINTED:])
        self._question = OWN

    def cells(self) -> list[tuple[str, str]]:
        """What the answers consist of above this check: ids and sources."""
        here, cells = self._here(), self._order.cells
        own = cells.get(self._question, cells[OWN])
        return [(cell.id, cell.source) for cell in own if cell.number < here]

    def ask(self, what: str, *args: Any) -> Any:
        """See `Backend.ask`."""
        host = self._chain().host(self._here())
        return self._asked(host, what, args, self._serves(Places()))

    def reference(self, name: str, args: list[Any]) -> Any:
        """See `Backend.reference`."""
        if _REFERENCE not in self._chains:
            self._chains[_REFERENCE] = self._new_chain(self._order.reference, writable=())
        host = self._chains[_REFERENCE].host(self._here())
        return self._asked(host, "call", (name, args, {}), self._serves(Places()))

    def engine(self, name: str) -> Any:
        """See `Backend.engine`: each of its processes is one; the clean one serves all checks."""
        from durable_mini.school.remote_engine import EngineProcesses  # noqa: PLC0415 - 11 alone

        made_of = encode([name, self.cells()])
        if made_of not in self._engines:
            self._engines[made_of] = EngineProcesses(self.cells(), name)
        return self._engines[made_of]

    def drive(self, order: Drive, places: Places, fresh: Fresh | None) -> Ended:
        """See `Backend.drive`: a process that has executed the cells, and does nothing else."""
        hash_seed = int((fresh or {}).get("hash_seed", 0))
        process = self._chain(hash_seed).start(self._here(), fresh)
        killed = False

        def dies() -> None:
            nonlocal killed
            killed = True
            raise Dies

        try:
            said = self._asked(process, "drive", order, self._serves(places, dies))
        except AnswerError:
            if not killed:
                raise
            return True, None
        finally:
            process.end()
        return False, _stop(said)

    def _asked(self, process: Process, what: str, args: Sequence[Any], serves: Serves) -> Any:
        try:
            return _plain(process.ask(what, args, self._order.cell_timeout_s, serves))
        finally:
            self._printed += process.take()
            keep_only_journals(Path(self.scratch))

    def _serves(self, places: Places, dies: Callable[[], None] = lambda: None) -> Serves:
        """What answers a process that asks, and lets it die where it has come to its place."""

        def serve(what: str, given: list[Any]) -> Any:
            if what == "probe":
                if places.at_call(*given):
                    dies()
                return None
            if what != "world":
                raise ValueError("nobody answers that")
            if places.before_request(self.ledger.requests + 1):
                dies()
            try:
                return self.ledger.ask(*given)
            finally:
                if places.at_request(self.ledger.requests):
                    dies()

        return serve

    def _chain(self, hash_seed: int = 0) -> Chain:
        question = self._question if self._question in self._order.cells else OWN
        if (question, hash_seed) not in self._chains:
            chain = self._new_chain(self._order.cells[question], hash_seed)
            self._chains[question, hash_seed] = chain
        return self._chains[question, hash_seed]

    def _new_chain(
        self, cells: Sequence[Cell], hash_seed: int = 0, writable: Sequence[str] | None = None
    ) -> Chain:
        if hash_seed not in self._nurseries:
            folder = Path(self._order.folder)
            self._nurseries[hash_seed] = Nursery(folder, self._allowance, hash_seed)
        nursery, limit_s = self._nurseries[hash_seed], self._order.cell_timeout_s
        writable = (self.scratch,) if writable is None else writable
        return Chain(nursery, cells, limit_s, self._notes, writable=writable)

    def close(self) -> None:
        """End every process, and leave no file."""
        for engines in self._engines.values():
            engines.close()
        for nursery in self._nurseries.values():
            nursery.close()


def _plain(text: str) -> Any:
    """A value that an answer gave, of plain JSON."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise AnswerError("NotJson", f"what came back is no JSON ({error})"[:200]) from None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} isn't JSON")


def _finite(word: str) -> float:
    if not math.isfinite(number := float(word)):
        raise ValueError(f"{word[:20]} is too large a number")
    return number


def _stop(said: Any) -> RunError | None:
    """What stopped the engine over there, as far as that is understood."""
    match said:
        case [str(kind), str(message), *_]:
            return RunError(kind[:200], message[:2_000])
    return None


def begin(path: str) -> None:
    """Make this kernel one that checks: called in the first cell of the notebook that it executes.

    Args:
        path: the file with the order. It is removed, as is whatever the order says.
    """
    from IPython.core.getipython import get_ipython  # noqa: PLC0415 - a kernel has it

    told = json.loads(Path(path).read_text(encoding="utf-8"))
    cells = {name: [Cell(*cell) for cell in chain] for name, chain in told.pop("cells").items()}
    order = Order(cells, [Cell(*cell) for cell in told.pop("reference")], **told)
    for name in (path, *order.remove):
        Path(name).unlink(missing_ok=True)
    confinement.harden()
    sys.meta_path.insert(0, Pictures())
    shell: Any = get_ipython()
    here, begun = [0], count()
    away = Away(order, lambda: here[0])

    def counts(_: Any) -> None:  # nbval keeps no history, so the kernel's own count stands still
        here[0] = next(begun)

    shell.events.register("pre_run_cell", counts)
    exercise.backend_for = lambda _: away


def in_a_process(
    cells: Sequence[str], ledger: HeldLedger, order: Drive, places: Places, fresh: Fresh
) -> Ended:
    """Let a process drive a run that executes the cells of a notebook anew; see `Backend.drive`."""
    listed = [Cell(number, f"cell {number}", source) for number, source in enumerate(cells)]
    writable = {"writable": [str(Path(order.journal).parent)]}
    with scratch_folder() as folder:
        away = Away(Order({OWN: listed}, [], 0, _PATIENCE_S, "", [], folder), lambda: len(listed))
        away.ledger = ledger
        try:
            return away.drive(order, places, {**fresh, **writable})
        finally:
            away.close()
