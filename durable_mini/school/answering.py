"""The processes that run answers: one that never does, and its forks, one for each time.

Started by `child` with the number of a socket. This process keeps no secret and executes no answer;
asked to, it forks. Each fork confines itself, executes cells, and then says what the answers give.
Guarantees: nothing outlives a fork but what it wrote into its folder; when whoever started this
process is gone, so is everything here. What a fork says is JSON in messages of bounded length.
Leaves to others: believing it (`child`).
"""

from __future__ import annotations

import ast
import io
import linecache
import os
import random
import re
import signal
import socket
import sys
import time
import types
from collections.abc import Callable
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from durable_mini.codec import decode, encode
from durable_mini.events import EventKind, Position
from durable_mini.school import confinement, exercise
from durable_mini.school.driving import Drive
from durable_mini.school.exercise import Answers, NotHereError, answer_error, unpacked
from durable_mini.school.outside import HeldLedger, World, error_named

MESSAGE_BYTES = 4_000_000
PRINTED_CHARACTERS = 2_000
CPU_S = 120.0
"""Seconds after which the system ends a fork, should nobody else have done so."""

_LENGTH_BYTES = 4


class GoneError(Exception):
    """Nobody is at the other end, or what came from there is no message."""


# ---- messages ----------------------------------------------------------------------------------


def framed(message: str) -> bytes:
    """A message as it is sent."""
    data = message.encode("utf-8", "surrogatepass")
    return len(data).to_bytes(_LENGTH_BYTES) + data


def send(end: socket.socket, message: str) -> None:
    """Send a message.

    Raises:
        GoneError: nobody will read it.
    """
    try:
        end.sendall(framed(message))
    except OSError as error:
        raise GoneError(str(error)) from None


def receive(end: socket.socket, ready: Callable[[], None] = lambda: None) -> str:
    """Wait for a message.

    Args:
        ready: called before each reading; comes back when there is something to read, or raises.

    Raises:
        GoneError: the other end is closed, or sends something else.
    """
    length = int.from_bytes(_exactly(end, _LENGTH_BYTES, ready))
    if length > MESSAGE_BYTES:
        raise GoneError(f"a message of {length:,} bytes")
    try:
        return _exactly(end, length, ready).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise GoneError("a message that is no text") from error


def _exactly(end: socket.socket, length: int, ready: Callable[[], None]) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        ready()
        try:
            part = end.recv(min(length - len(parts), 65_536))
        except OSError as error:
            raise GoneError(str(error)) from None
        if not part:
            raise GoneError("it is closed")
        parts += part
    return bytes(parts)


# ---- the process that forks --------------------------------------------------------------------


class Setting(NamedTuple):
    """What a fork finds: folders it may write to, its own, environment, and files in its folder."""

    writable: list[str]
    folder: str
    env: dict[str, str]
    files: dict[str, str]


def main() -> None:
    """Fork when asked to, kill when asked to, and end with whoever asks."""
    control = socket.socket(fileno=int(sys.argv[1]))
    confinement.adopt_orphans()
    confinement.leave_network()
    confinement.harden()  # last: what is closed to others it can't set up itself
    forks = set[int]()
    try:
        while True:
            order = decode(receive(control, lambda: None))
            if "kill" in order:
                send(control, encode(_kill(forks, order["kill"])))
            else:
                pid = _fork(control, Setting(**order["fork"]))
                forks.add(pid)
                send(control, encode(pid))
    except GoneError:
        for pid in set(forks):
            _kill(forks, pid)


def _fork(control: socket.socket, setting: Setting) -> int:
    """Start a process that answers at the socket that comes with the order; its number."""
    _, fds, _, _ = socket.recv_fds(control, 1, 1)
    pid = os.fork()
    if pid:
        os.close(fds[0])
        return pid
    code = 1
    with suppress(BaseException):
        control.close()
        os.setsid()
        _Fork(socket.socket(fileno=fds[0]), setting).serve()
        code = 0
    os._exit(code)


def _kill(forks: set[int], pid: int) -> bool:
    """End a fork and all that it has started; whether it was one."""
    if pid not in forks:
        return False
    forks.discard(pid)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while orphans := [child for child in _children() if child not in forks]:
        for orphan in orphans:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(orphan, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(orphan, 0)
    return True


def _children() -> list[int]:
    """The children of this process, adopted ones too, as far as the system tells."""
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(pid) for pid in text.split()]


# ---- a fork ------------------------------------------------------------------------------------


class _Fork:
    """A process that executes answers and says what they give."""

    def __init__(self, end: socket.socket, setting: Setting) -> None:
        self._end, self._lock, self._busy = end, Lock(), False
        self._printed = Tail()
        self._enter(setting)
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        self._names = module.__dict__
        self._names |= {"world": World(self._world), "display": print, "get_ipython": lambda: None}
        self._answers = Answers(self._names)
        exercise.backend_for = lambda _: Aside(self._names["world"])

    def _enter(self, setting: Setting) -> None:
        os.environ.clear()
        os.environ.update(setting.env)
        time.tzset()
        os.chdir(setting.folder)
        for name, text in setting.files.items():
            Path(setting.folder, Path(name).name).write_text(text, encoding="utf-8")
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.closerange(3, self._end.fileno())
        os.closerange(self._end.fileno() + 1, confinement.OPEN_FILES)
        sys.stdout = sys.stderr = self._printed
        sys.argv = [""]
        random.seed()  # of the system, not of the process that forks: each draws its own numbers
        sys.meta_path.insert(0, Pictures())
        confinement.confine(setting.writable, CPU_S, confinement.library())

    def serve(self) -> None:
        """Answer until nobody asks any more."""
        while True:
            order = decode(receive(self._end))
            what, given = order["do"], unpacked(order["with"], self._function)
            self._busy = True
            told = {**self._told(what, given), "printed": self._printed.take()}
            with self._lock:  # a thread of the answers may still be asking
                self._busy = False
                send(self._end, encode(told))

    def _told(self, what: str, given: Any) -> dict[str, Any]:
        try:
            if what == "cell":
                return {"ok": self._cell(*given)}
            if what == "drive":
                stop = self._answers.drive(Drive(*given), self._probe)
                return {"ok": encode(stop)}
            return {"ok": getattr(self._answers, what)(*given)}
        except GoneError:
            raise
        except BaseException as error:
            told = answer_error(error)
            return {"error": [told.type, told.message, told.trace]}

    def _cell(self, name: str, source: str) -> str:
        file, text = f"<{name}>", harmless(source)
        while file in linecache.cache:
            file = f"{file[:-1]}+>"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
        exec(compile(text, file, "exec", dont_inherit=True), self._names)  # noqa: S102
        return "null"

    # ---- asking the checks ----------------------------------------------------------------------

    def _ask(self, what: str, *args: Any) -> Any:
        """Ask the checks, from whatever thread, while they wait for an answer of this process."""
        with self._lock:
            if not self._busy:
                raise RuntimeError("nobody is listening any more")
            send(self._end, encode({"ask": what, "with": encode(args)}))
            told = decode(receive(self._end))
        if "error" in told:
            raise error_named(*told["error"])
        return told["ok"]

    def _world(self, method: str, args: list[Any]) -> Any:
        return self._ask("world", method, args)

    def _function(self, number: int) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._ask("function", number, args, kwargs)

        return call

    def _probe(self, position: Position, kind: EventKind, name: str) -> None:
        self._ask("probe", position, kind, name)


class Aside:
    """What `Exercise` finds in such a process: the world, and nothing to check with."""

    seed, scratch = 0, ""

    def __init__(self, world: World) -> None:
        self.world, self.ledger = world, HeldLedger()

    def __getattr__(self, name: str) -> Any:
        raise NotHereError("only `ex.world` is there where answers are run")


class Tail(io.TextIOBase):
    """Keeps the end of what is written to it."""

    def __init__(self) -> None:
        self._text = ""

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Take it, and forget what is too much."""
        self._text = (self._text + str(text)[-PRINTED_CHARACTERS:])[-PRINTED_CHARACTERS:]
        return len(text)

    def take(self) -> str:
        """What was written since it was last taken."""
        text, self._text = self._text, ""
        return text


class Pictures(MetaPathFinder, Loader):
    """Stands in for modules that only draw: where nobody looks they would cost half a second."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """A module without contents in place of one that draws."""
        package, _, module = name.rpartition(".")
        draws = module.endswith("pictures") or module in ("figures", "sliders", "widgets")
        return ModuleSpec(name, self) if package == "durable_mini.lab" and draws else None

    def exec_module(self, module: types.ModuleType) -> None:
        """Whatever is asked of it takes everything and gives nothing."""
        module.__dict__["__getattr__"] = _drawing


def _drawing(name: str) -> Callable[..., None]:
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *_, **__: None


# ---- cells -------------------------------------------------------------------------------------

_MAGIC_LINE = re.compile(r"^(\s*)(?:[\w, ]+=\s*)?[%!]|^(\s*)\?|^(\s*)[\w.]+\?{1,2}\s*$")
_PYTHON_MAGICS = ("%%time", "%%timeit", "%%capture", "%%prun")


def harmless(source: str) -> str:
    """A cell without what only IPython understands; what is Python stays as it is, line by line."""
    lines = source.splitlines()
    if lines and lines[0].startswith("%%"):
        if not lines[0].startswith(_PYTHON_MAGICS):
            return ""
        lines[0] = ""
    with suppress(SyntaxError, ValueError):
        ast.parse("\n".join(lines))
        return "\n".join(lines) + "\n"
    return "\n".join(_without_magic(line) for line in lines) + "\n"


def _without_magic(line: str) -> str:
    magic = _MAGIC_LINE.match(line)
    if magic is None:
        return line
    name, equals, _ = line.partition("=")
    assigns = equals and name.strip().isidentifier()
    return f"{name}= None" if assigns else f"{magic[1] or ''}pass"


if __name__ == "__main__":
    main()
