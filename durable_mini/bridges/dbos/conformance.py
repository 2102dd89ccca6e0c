"""The bridge as the conformance kit sees it, on SQLite.

Guarantees: the code under check is the bridge's and DBOS's own. Around it three things are other
than at work, so that the kit can kill and wait: DBOS's executions run in the thread that asks for
them, and none of its background threads is there; its time is the kit's; and where a thread of DBOS
would wait for a timer or a signal, the process gives up instead, a millisecond later, since at work
the thread is held; it waits out only what lies between two tries. The
kit looks before and after every statement that DBOS sends, and at every commit, not at every line
of DBOS. Two processes at a time are two executions of one DBOS, since a Python process can hold but
one; that is what DBOS fences. Leaves to others: the laws, and why some are broken (`measured`).
"""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import get_ident
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch
from weakref import WeakKeyDictionary

import sqlalchemy
from dbos import DBOS
from dbos._core import execute_dequeued_workflow
from dbos._dbos import _get_dbos_instance
from dbos._error import DBOSWorkflowConflictIDError
from dbos._utils import LoopAwareEvent

from durable_mini.bridges.dbos.context import BridgedContext, Halt
from durable_mini.bridges.dbos.engine import APPLICATION, DBOSEngine, _name_of, _queue_of
from durable_mini.bridges.measured import Law
from durable_mini.clock import SystemClock
from durable_mini.events import ENDED, RunStatus
from durable_mini.lab.conformance import CAPABILITIES, Row, adapter, check_engine
from durable_mini.lab.conformance.engines import ByRunId, NotCompletedError
from durable_mini.lab.conformance.surroundings import Surroundings
from durable_mini.lab.conformance.watching import Look
from durable_mini.structure import Workflow, workflow as durable

_HELD_S = 0.001
_wait_until = BridgedContext._wait_until
_STATEMENTS = "before_cursor_execute", "after_cursor_execute", "commit"


class _WouldWaitError(BaseException):
    """A thread of DBOS would wait here."""


class _AtStatements(Surroundings):
    """Looks at the statements of the calling thread instead of at lines."""

    @contextmanager
    def watching(self, look: Look) -> Iterator[None]:
        """See `Surroundings.watching`."""
        thread, going_on = get_ident(), True

        def hook(event: str) -> Callable[..., None]:
            def at(*given: Any) -> None:
                nonlocal going_on
                if going_on and get_ident() == thread:
                    said = str(given[2])[:60] if len(given) > 2 else ""
                    going_on = look(f"{event.replace('_', ' ')} {said}".strip)

            return at

        hooks = [(event, hook(event)) for event in _STATEMENTS]
        for event, at in hooks:
            sqlalchemy.event.listen(sqlalchemy.Engine, event, at)
        try:
            yield
        finally:
            for event, at in hooks:
                sqlalchemy.event.remove(sqlalchemy.Engine, event, at)


class _Engine(DBOSEngine):
    """The bridge, with the workflow that the calling thread asks for."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.asked, self.lost = dict[int, Workflow](), set[int]()

    def _attempt(self, workflow: Workflow, run_id: str, admitted: dict[str, Any]) -> str:
        try:
            return super()._attempt(self.asked[get_ident()], run_id, admitted)
        except DBOSWorkflowConflictIDError:
            self.lost.add(get_ident())
            raise


class CheckedBridge(ByRunId):
    """The bridge as one process of the kit."""

    offers = frozenset(CAPABILITIES)
    open_now: ClassVar[dict[str, CheckedBridge]] = {}

    def __init__(self, folder: Path, clock: SystemClock) -> None:
        self._key = str(folder)
        beside = self.open_now.get(self._key)
        self._stack, self._clock = ExitStack(), clock
        self._engine: _Engine = beside._engine if beside else self._launched(folder / "runs.db")
        if not beside:
            self.open_now[self._key] = self

    def _launched(self, path: Path) -> _Engine:
        if not path.exists():
            shutil.copy(_template(), path)
        for target, stub in _stubs(self._clock).items():
            self._stack.enter_context(patch(target, stub))
        engine = _Engine(f"sqlite:///{path}", [_CHECKED], clock=self._clock)
        self._stack.callback(engine.close)
        threads = SimpleNamespace(Thread=_NoThread, Event=threading.Event)
        with patch("dbos._dbos.threading", threads):
            self._stack.enter_context(engine.working(f"kit-{uuid.uuid4()}"))
        _get_dbos_instance()._executor_field = _Here()  # type: ignore[assignment]
        return engine

    def start(self, run_id: str, workflow: adapter.Workflow, value: Any) -> None:
        """Admit a run."""
        self._engine.registered[_NAME] = _made_durable(workflow)
        self._engine.start(_made_durable(workflow), value, run_id=run_id)

    def resume(self, run_id: str, workflow: adapter.Workflow) -> Any:
        """Drive a run in this thread.

        Raises:
            NotCompletedError: it has no result.
        """
        engine, me = self._engine, get_ident()
        engine.asked[me] = _made_durable(workflow)
        engine.lost.discard(me)
        if engine.describe(run_id).status not in ENDED:
            engine._client.resume_workflow(run_id, queue_name=_queue_of(_NAME))
            _claim_and_execute(run_id, engine._worker)
        run = engine.describe(run_id)
        if run.status is not RunStatus.COMPLETED or me in engine.lost:
            raise NotCompletedError(f"run {run_id} is {run.status}: {run.error}")
        return run.result

    def close(self) -> None:
        """End the process."""
        if self.open_now.get(self._key) is self:
            del self.open_now[self._key]
        self._stack.close()


def dbos_engine(folder: Path, clock: SystemClock) -> CheckedBridge:
    """The bridge on DBOS with SQLite: a factory for `check_engine`."""
    return CheckedBridge(folder, clock)


dbos_engine.surroundings = _AtStatements()  # type: ignore[attr-defined]


def _claim_and_execute(run_id: str, worker_id: str) -> None:
    """What DBOS's queue thread does, in this one; what ends an execution without a word is over."""
    dbos, token = _get_dbos_instance(), str(uuid.uuid4())
    queue = DBOS.retrieve_queue(_queue_of(_NAME))
    if queue is None:
        raise RuntimeError("the queue is gone")
    dbos._sys_db.start_queued_workflows(queue, worker_id, APPLICATION, None, owner_xid=token)
    (status,) = dbos._sys_db.get_workflow_statuses([run_id])
    handle: Any = execute_dequeued_workflow(dbos, status, token)
    error = handle.future.exception()
    if error is not None and not isinstance(error, Exception | Halt | _WouldWaitError):
        raise error


class _Here:
    """An executor that does at once what it is handed."""

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        """Do it, and hand back what came of it."""
        done = Future[Any]()
        try:
            done.set_result(work(*args))
        except BaseException as error:
            done.set_exception(error)
        return done

    def shutdown(self, **_: Any) -> None:
        """Nothing is left to be done."""


class _NoThread:
    """A thread that is never started."""

    def __init__(self, **_: Any) -> None:
        self.name = "none"

    def start(self) -> None:
        """Not here."""

    def join(self, timeout: float = 0.0) -> None:
        """It never ran."""

    def is_alive(self) -> bool:
        """It never ran."""
        return False


def _stubs(clock: SystemClock) -> dict[str, Any]:
    """DBOS's time and its waits, by the names that DBOS knows them by."""

    class Time:
        time = staticmethod(clock.now)

        def __getattr__(self, name: str) -> Any:
            return getattr(time, name)

    class Event(LoopAwareEvent):
        until: float | None = None

        def wait(self, timeout: float | None = None) -> bool:
            if not self.is_set():
                clock.sleep(_HELD_S + max((Event.until or 0.0) - clock.now(), 0.0))
                if Event.until is None:
                    raise _WouldWaitError
            return self.is_set()

    def wait_until(context: BridgedContext, due_at: float, *, patient: bool = False) -> Any:
        Event.until = due_at if patient else None
        return _wait_until(context, due_at, patient=patient)

    waits = {f"{BridgedContext.__module__}.BridgedContext._wait_until": wait_until}
    return {"dbos._sys_db.time": Time(), "dbos._sys_db.LoopAwareEvent": Event, **waits}


_workflows: WeakKeyDictionary[adapter.Workflow, Workflow] = WeakKeyDictionary()


def _made_durable(fn: adapter.Workflow) -> Workflow:
    if fn not in _workflows:
        _workflows[fn] = durable(version="1", name="checked")(fn)
    return _workflows[fn]


@durable(version="1", name="checked")
def _CHECKED(ctx: Any, value: Any) -> Any:  # noqa: N802 - stands for whichever the kit brings
    return value


_NAME = _name_of(_CHECKED)
_made: list[TemporaryDirectory[str]] = []  # removed with the process


def _template() -> Path:
    """A database with DBOS's tables and no run: made once, since that takes longer than a run."""
    if not _made:
        _made.append(TemporaryDirectory())
        DBOSEngine(f"sqlite:///{_made[0].name}/empty.db", [_CHECKED]).close()
    return Path(_made[0].name, "empty.db")


def checked(on_row: Callable[[Row], object] = lambda row: None) -> list[Law]:
    """Hold the bridge to all laws of the kit.

    Args:
        on_row: called with each row as it is found, for a progress display.
    """
    report = check_engine(dbos_engine, require=CAPABILITIES, on_row=on_row)
    told = ((r.law, r.title, r.verdict, r.passed, r.of, r.detail, r.broken) for r in report.rows)
    return [Law(*law) for law in told]
