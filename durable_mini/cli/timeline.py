"""A run's history as a timeline: what each event says, how long waits took, where attempts began.

Guarantees: every event has its line, whatever its kind. Leaves to others: which run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.table import Table

from durable_mini import Event, EventKind as Kind, Run, RunError, RunStatus
from durable_mini.cli.printing import add, as_json, lasting, plain, shortened, table, time
from durable_mini.events import ENDED, RunRow

_BEGINS = frozenset({Kind.TIMER, Kind.WAIT, Kind.CHILD})
_ANSWERS = frozenset({Kind.FIRED, Kind.RECEIVED, Kind.TIMED_OUT, Kind.JOINED})


def header(run: Run, row: RunRow, generation: int, now_s: float) -> Iterator[str]:
    """How a run stands, in a few lines."""
    yield f"run {run.run_id}: workflow {run.workflow}, version {run.version}"
    yield f"{run.status.value}, attempts {run.attempts}, cost {run.cost:g}"
    if row.generation > 1:
        all_of_them = range(1, row.generation + 1)
        others = ", ".join(f"{one}" for one in all_of_them if one != generation)
        yield f"generation {generation} of {row.generation}; --generation shows another: {others}"
    if row.parent is not None:
        yield f"a child of run {row.parent}"
    if run.waiting_for is not None:
        yield f"waits for {with_time(run.waiting_for)}"
    if run.status is RunStatus.RUNNING:
        over = "" if row.lease_until > now_s else ", which is over: any worker may take it"
        yield f"held by {row.worker} until {time(row.lease_until)}{over}"
    elif run.status not in ENDED and row.due_at is not None:
        yield "due at once" if row.due_at <= now_s else f"due at {time(row.due_at)}"
    if run.error is not None:
        step = "" if run.error.step is None else f" (in {run.error.step!r})"
        yield f"error: {told_error(run.error)}{step}"
    yield ""


def with_time(waiting_for: str) -> str:
    """What a run waits for, with the time as people write it."""
    return re.sub(r" until (\S+)$", lambda found: f" until {time(float(found[1]))}", waiting_for)


def timeline(events: Sequence[Event]) -> Table:
    """A row an event, and one before the first event of every attempt but the first."""
    shown = table("seq", "time (UTC)", "+", "kind", "name", "what", "cost", "key")
    begun_at_s = events[0].payload.get("since", events[0].recorded_at)
    waits: dict[str, float] = {}
    for event in events:
        payload, seq = event.payload, event.seq
        if event.kind in _BEGINS:
            waits[event.name] = event.recorded_at
        if "attempt" in payload:
            replayed = f"replays events 1 to {seq - 1}, then goes on live"
            add(shown, "", "", "", f"attempt {payload['attempt']}", "", replayed, "", "")
        answers = event.kind in _ANSWERS and event.name in waits
        waited = event.recorded_at - waits[event.name] if answers else None
        cost = payload.get("cost")
        add(
            shown,
            f"{seq}",
            time(event.recorded_at),
            lasting(event.recorded_at - begun_at_s),
            event.kind.value,
            event.name if event.name != event.kind else "",
            what(event, payload) + ("" if waited is None else f" after {lasting(waited)}"),
            "" if cost is None else f"{cost:g}",
            payload.get("key", ""),
        )
    return shown


def what(event: Event, payload: dict[str, Any]) -> str:
    """What an event says beyond its name; a payload that is no such event's is shown as it is."""
    try:
        said = _SAYS.get(event.kind, _outcome)(payload)
    except (KeyError, TypeError, ValueError):
        return as_json(payload)
    tries = payload.get("tries", 1)
    return f"{said} at try {tries}" if tries > 1 and event.kind is not Kind.TRY else said


def remarks(event: Event) -> Iterator[str]:
    """What else a reader of the history must know about an event."""
    if event.payload.get("opaque"):
        kinds = ", ".join(event.payload["opaque"])
        yield f"event {event.seq}: compared by its type alone: {kinds}"


def told_error(error: RunError) -> str:
    """An error in one line: its message may be empty."""
    return plain(f"{error.type}: {error.message}" if error.message else error.type)


def _outcome(payload: dict[str, Any]) -> str:
    if "error" in payload:
        return shortened(told_error(RunError(**payload["error"])))
    return as_json(payload["result"]) if "result" in payload else ""


def _until(payload: dict[str, Any]) -> str:
    due_at = payload["due_at"]
    return "without a time limit" if due_at is None else f"until {time(due_at)}"


def _failed_try(payload: dict[str, Any]) -> str:
    again = "waits for a person" if payload["of"] == Kind.UNDO else None
    again = again or f"next try at {time(payload['due_at'])}"
    return f"{_outcome(payload)}; {again}"


def _stop(payload: dict[str, Any]) -> str:
    if "limit" not in payload:
        return "on request"
    return f"{payload['limit']}: {payload['spent']:g} of {payload['allowed']:g}"


def _begun(payload: dict[str, Any]) -> str:
    return f"input {as_json(payload['input'])}"


_SAYS: dict[Kind, Callable[[dict[str, Any]], str]] = {
    Kind.ADMITTED: _begun,
    Kind.CONTINUED: _begun,
    Kind.TRY: _failed_try,
    Kind.TIMER: _until,
    Kind.WAIT: _until,
    Kind.COMPENSATE: lambda _: "registered",
    Kind.CHILD: lambda payload: f"workflow {payload['workflow']}",
    Kind.PATCH: lambda payload: "taken" if payload["result"] else "not taken",
    Kind.STOP: _stop,
}
