"""Engines of somebody else, each a process of its own, as the conformance kit sees them.

    with EngineProcesses([("engine", source)], "MyEngine") as engines:
        print(check_engine(engines))

Guarantees: laws, workflows, bodies, and clock stay in this process, which never runs a line of the
answers and executes nothing that they send. The disk is looked at from here. A process that dies,
that loops or that says what nobody understands breaks the law that it was asked about. Leaves to
others: what runs over there (`engine_process`), and what the laws are (`lab.conformance`).
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, Thread, get_ident
from types import TracebackType
from typing import Any, Self

from durable_mini.clock import SystemClock
from durable_mini.lab.conformance.adapter import Factory
from durable_mini.lab.conformance.disk import Disk
from durable_mini.lab.conformance.machine import Broken, Runaway, SkippedError
from durable_mini.lab.conformance.surroundings import Surroundings
from durable_mini.lab.conformance.watching import Look, place
from durable_mini.school import engine_process
from durable_mini.school.engine_process import Channel, Gone, Opaque, Shared
from durable_mini.school.exercise import AnswerError

_PATIENCE_S, _MOST_LOST = 15, 3  # with a process that sleeps; with an engine that loses processes
_ASKED_FOR = ("workflow", "body", "sync", "now", "sleep")
_PASSED_ON = (Broken, Runaway, SkippedError, KeyboardInterrupt, SystemExit)  # they end the case


class EngineProcesses(Surroundings):
    """A factory for `check_engine`: each engine that it makes is a process of its own.

    Args:
        cells: the answers, in order: the name of each cell and its source.
        name: what the answers call the engine.
    """

    def __init__(self, cells: Sequence[tuple[str, str]], name: str) -> None:
        self.__name__, self.surroundings = name, self
        self._lines = {f"<{cell}>": source.split("\n") for cell, source in cells}
        self._cells, self._lock = [*map(list, cells)], Lock()
        self._disk: Disk | None = None
        self._clean: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._watching: tuple[int, Look] | None = None
        self._by_thread: dict[int, EngineProcess] = {}
        self._next: tuple[str, socket.socket] | None = None  # begun ahead: where, our end
        self._full = False
        self.lost = 0

    def __call__(self, folder: Path, clock: SystemClock) -> EngineProcess:
        """A new process with an engine in it.

        Raises:
            Exception: what the engine raised at its beginning.
        """
        if self.lost >= _MOST_LOST:
            raise Runaway(f"{self.lost} of its processes were lost before; it isn't tried again")
        try:
            with self._lock:
                _, control = self._clean = self._clean or self._started()
                process_id, ours = self._taken(control, str(folder))
        except (Gone, OSError) as error:
            raise Runaway(f"no process could be begun: {error}") from None
        made = EngineProcess(self, Channel(ours), process_id, clock)
        self._by_thread[get_ident()] = made
        try:
            made.wait()
            if self._full:
                made.refuse_writes()
            made.begin(folder)
        except BaseException:
            made.end()
            raise
        return made

    def _started(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            clean = subprocess.Popen(  # noqa: S603 - Python itself, with a file of this package
                [sys.executable, "-I", "-S", engine_process.__file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PYTHONHASHSEED": "random"},
            )
        Channel(ours).send([self._cells, self.__name__])
        return clean, ours

    def _taken(self, control: socket.socket, folder: str) -> tuple[int, socket.socket]:
        """A process that has begun, and our end of its socket; meanwhile the next one begins."""
        if self._next is not None and self._next[0] != folder:
            self._next[1].close()
            self._bury(control, Channel(control).receive())
            self._next = None
        _, ours = self._next or self._ordered(control, folder)
        process_id = Channel(control).receive()
        self._next = self._ordered(control, folder)
        return process_id, ours

    def _ordered(self, control: socket.socket, folder: str) -> tuple[str, socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(control, [b"+"], [theirs.fileno()])
        Channel(control).send(folder)
        return folder, ours

    def end(self, process_id: int) -> None:
        """Have a process killed and buried."""
        with self._lock, suppress(Gone, OSError):
            if self._clean is not None:
                self._bury(self._clean[1], process_id)

    def _bury(self, control: socket.socket, process_id: int) -> None:
        control.sendall(b"-")
        Channel(control).send(process_id)

    def close(self) -> None:
        """End every process."""
        if self._clean is not None:
            clean, control = self._clean
            control.close()
            if self._next is not None:
                self._next[1].close()
            try:
                clean.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                clean.kill()
                clean.wait()
            self._clean = self._next = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    # ---- what the machine asks for --------------------------------------------------------------

    @contextmanager
    def watching(self, look: Look) -> Iterator[None]:
        """See `Surroundings.watching`; processes that this thread drives stop at each line."""
        before, self._watching = self._watching, (get_ident(), look)
        try:
            yield
        finally:
            self._watching = before

    def is_watched(self) -> bool:
        """Whether somebody looks at the processes that this thread drives."""
        return self._watching is not None and self._watching[0] == get_ident()

    def look(self, event: str, name: str, file: str, line: int) -> bool:
        """Let whoever watches look; returns whether the process is to stop again."""
        lines = self._lines.get(file, [])
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        if self._watching is None or not self.is_watched():
            return False
        goes_on = self._watching[1](lambda: place(event, name, text))
        if not goes_on:
            self._watching = None
        return goes_on

    @contextmanager
    def noting_syncs(self, disk: Disk) -> Iterator[None]:
        """See `Surroundings.noting_syncs`."""
        self._disk = disk
        try:
            yield
        finally:
            self._disk = None

    def synced(self, inode: int) -> None:
        """A process has synced a file."""
        if self._disk is not None:
            self._disk.synced(inode)

    @contextmanager
    def full_disk(self) -> Iterator[Callable[[], None]]:
        """See `Surroundings.full_disk`; from the call on it holds for each process."""

        def fill() -> None:
            self._full = True
            if (living := self._by_thread.get(get_ident())) is not None:
                living.refuse_writes()

        _prlimit()
        try:
            yield fill
        finally:
            self._full = False

    def is_asleep(self, thread: Thread) -> bool:
        """See `Surroundings.is_asleep`: the process that the thread drives is asked."""
        driven = self._by_thread.get(thread.ident or 0)
        return driven is not None and driven.is_asleep()


class EngineProcess:
    """One process with an engine in it, to be used as if it were the engine.

    Args:
        engines: whose process it is.
        channel: to the process.
        process_id: of the process.
        clock: the kit's.
    """

    def __init__(
        self, engines: EngineProcesses, channel: Channel, process_id: int, clock: SystemClock
    ) -> None:
        self._engines, self._channel, self._id, self._clock = engines, channel, process_id, clock
        self._shared, self._functions = Shared("k"), dict[str, Callable[..., Any]]()
        self._depth, self._awaited, self._unseen, self._ended = 0, False, False, False
        self.offers: list[str] = []

    def wait(self) -> None:
        """Wait until the process has limited itself, so that it can be limited further."""
        try:
            self._receive()
        except Gone as error:
            raise self._lost(f"its process was lost: {error}") from None

    def begin(self, folder: Path) -> None:
        """Have the engine made.

        Raises:
            Exception: what its factory raised.
        """
        self.offers = self._ask("make", self._engines.is_watched(), str(folder))

    def start(self, run_id: str, workflow: Callable[..., Any], value: Any) -> Any:
        """See `CheckedEngine.start`."""
        self._unseen = self._engines.is_watched()
        return self._call("start", run_id, workflow, value)

    def resume(self, run_id: str, workflow: Callable[..., Any]) -> Any:
        """See `CheckedEngine.resume`."""
        return self._call("resume", run_id, workflow)

    def history(self, run_id: str) -> Any:
        """See `CheckedEngine.history`."""
        return self._call("history", run_id)

    def close(self) -> None:
        """End the process in good order, or kill it in the middle of something."""
        with suppress(Exception, Gone, Runaway):
            if not self._depth and not self._ended:
                self._call("close")
        self.end()

    def end(self) -> None:
        """Kill the process."""
        if not self._ended:
            self._ended = True
            self._channel.end.close()
            self._engines.end(self._id)

    def is_asleep(self) -> bool:
        """Whether it sleeps though it owes an answer: then it waits for somebody."""
        with suppress(OSError, ValueError):  # it has just ended
            if self._awaited and _state(self._id)[0] == "S":
                return not select.select([self._channel.end], [], [], 0)[0]
        return False

    def refuse_writes(self) -> None:
        """From now on the system refuses what the process writes."""
        prlimit, which = _prlimit()
        if not self._ended:
            _, most = prlimit(self._id, which)
            prlimit(self._id, which, (0, most))

    # ---- asking and answering -------------------------------------------------------------------

    def _call(self, method: str, *args: Any) -> Any:
        given = [self._function(each) if callable(each) else each for each in args]
        watched = self._engines.is_watched()
        return self._ask("call", watched, method, self._shared.packed(*given))

    def _function(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        self._functions[self._shared.handle(fn)] = fn
        return fn

    def context(self, context: Opaque, method: str, args: Any, options: Any) -> Any:
        """Call a method of a context over there."""
        given = [self._function(each) if callable(each) else each for each in args]
        return self._ask("context", self._shared.packed(context, method, given, options))

    def _ask(self, *request: Any) -> Any:
        """Have the process do something, and do meanwhile what it asks for.

        Raises:
            Exception: what was raised over there.
            Runaway: the process is lost.
        """
        self._depth += 1
        try:
            self._channel.send(request)
            while (reply := self._receive())[0] not in {"return", "raise"}:
                self._answer(*reply)
            self._expect_seen()
            if reply[0] == "return":
                (value,) = self._shared.unpacked(reply[1])
            else:
                self._shared.unpacked(reply[2])
                value = self._shared.error(reply[1], _told)
        except (Gone, ValueError, TypeError, IndexError) as error:
            raise self._lost(f"its process was lost: {error}") from None
        self._depth -= 1
        if reply[0] == "raise":
            raise value
        return value

    def _receive(self) -> Any:
        self._awaited, slept_s, worked = True, 0, ""
        while not select.select([self._channel.end], [], [], 1.0)[0]:
            state, now_worked = _state(self._id)
            slept_s = slept_s + 1 if state == "S" and now_worked == worked else 0
            worked = now_worked
            if slept_s >= _PATIENCE_S:
                raise self._lost("its process waits for ever")
        self._awaited = False
        return self._channel.receive()

    def _lost(self, why: str) -> Runaway:
        self._engines.lost += 1
        return Runaway(why)

    def _answer(self, what: str, *about: Any) -> None:
        if what == "line":
            self._unseen = False
            self._channel.send(self._engines.look(*about))
            return
        try:
            asked = getattr(self, f"_{what}") if what in _ASKED_FOR else self._nothing
            done = asked(*about)
            reply: list[Any] = ["return", self._shared.packed(done)]
        except (*_PASSED_ON, Gone):
            raise
        except BaseException as error:
            reply = ["raise", self._shared.packed_error(error), self._shared.packed()]
        self._unseen = what == "body" and self._engines.is_watched()
        self._channel.send(reply)

    def _expect_seen(self) -> None:
        """Say that a law is broken if an engine that is watched has done something unseen."""
        if self._unseen and self._engines.is_watched():
            raise Broken("it went on where nobody could watch it, as if sys.settrace were changed")

    # ---- what the process asks for --------------------------------------------------------------

    def _workflow(self, handle: str, context: str, sent: Any) -> Any:
        (value,) = self._shared.unpacked(sent)
        return self._functions[handle](_Context(self, Opaque(context, "a context")), value)

    def _body(self, handle: str, sent: Any) -> Any:
        args, options = self._shared.unpacked(sent)
        return self._functions[handle](*args, **options)

    def _sync(self, inode: int) -> None:
        self._engines.synced(inode)

    def _now(self) -> float:
        return self._clock.now()

    def _sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def _nothing(self, *about: Any) -> None:
        raise Gone(f"it asked for {about[:1]}")


class _Context:
    """A context over there: whatever method of it is called is called there."""

    def __init__(self, process: EngineProcess, context: Opaque) -> None:
        self._process, self._context = process, context

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            return self._process.context(self._context, method, list(args), options)

        return call


class _Told(Exception):  # noqa: N818 - named anew after what was raised
    """An exception that was raised over there."""


class _ToldStop(BaseException):
    """One that no `except Exception` catches."""


def _told(sent: dict[str, Any]) -> BaseException:
    base = _Told if sent["ordinary"] else _ToldStop
    made: BaseException = type(str(sent["type"]), (base,), {})(str(sent["text"]))
    return made


def _state(process_id: int) -> tuple[str, str]:
    """What the system says that a process does, and how long it has worked."""
    with suppress(OSError):
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(") ")[2].split()
        return fields[0], fields[11] + fields[12]
    return "?", ""


def _prlimit() -> tuple[Callable[..., Any], int]:
    """The call that limits another process's files.

    Raises:
        ImportError: the platform has none.
    """
    from resource import RLIMIT_FSIZE, prlimit  # noqa: PLC0415 - on Linux alone

    return prlimit, RLIMIT_FSIZE


def own_engine(names: Mapping[str, Any], name: str) -> Factory:
    """The class of this name in a notebook, if it is the learner's own.

    Raises:
        AnswerError: there is none, or it stands on durable_mini.
    """
    if name not in names:
        raise AnswerError("NameError", f"there is no {name} yet. Next: write it, and run its cell.")
    engine: Factory = names[name]
    for base in getattr(engine, "__mro__", ()):
        if base.__module__.partition(".")[0] == "durable_mini":
            why = f"{name} stands on {base.__module__}, and is to stand on its own"
            raise AnswerError("ImportError", f"{why}. Next: write what you take from there.")
    return engine
