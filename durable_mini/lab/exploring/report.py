"""What an exploration found: one outcome a schedule, the smallest that failed, a table of all.

Guarantees: plain data, the same each time it is printed; state is never told by colour alone.
Leaves to others: drawing (`crash_pictures`), running a schedule again (`explorer.replay_schedule`).
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from durable_mini.events import Event, Position
from durable_mini.lab.exploring.places import Place, Schedule, recipe_of

RIGHT, AGAIN, WRONG = "right", "again", "WRONG"
"""How a schedule ended: as without a crash; so too, with work done again; otherwise."""

_COLOURS = {RIGHT: "#E4F4EE", AGAIN: "#DCEBF5", WRONG: "#FBE3D5", "": "transparent"}
_MOST_SHOWN = 5
_CELL = "text-align: left; padding: 0.15em 0.9em 0.15em 0.4em; font-weight: normal"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one schedule ended.

    Args:
        schedule: a fault for each process in turn.
        broken: what was wrong, in sentences; nothing where it ended as without a crash.
        again: the calls whose work was done and lost, so that another process did it again.
        status: the run's status in the end; None where it never came to one.
        attempts: how many attempts it took.
    """

    schedule: Schedule
    broken: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    status: str | None = None
    attempts: int = 0

    @property
    def recipe(self) -> str:
        """The schedule in one line, for `replay_schedule`."""
        return recipe_of(self.schedule)

    @property
    def ok(self) -> bool:
        """Whether it ended as without a crash."""
        return not self.broken

    @property
    def verdict(self) -> str:
        """`RIGHT`, `AGAIN` or `WRONG`."""
        if self.broken:
            return WRONG
        return AGAIN if self.again else RIGHT

    def __str__(self) -> str:
        again = f", {' and '.join(self.again)} done again" if self.again else ""
        return f"{self.recipe}: {'; '.join(self.broken) or f'right{again}'}"


class Row(NamedTuple):
    """The outcomes of dying in one call: a cell for each position, and what came of a second crash.

    `later` counts the longer schedules that begin in this call, `later_wrong` those that failed.
    """

    call: str
    cells: dict[Position, str]
    later: int
    later_wrong: int


@dataclass(frozen=True, repr=False)
class Exploration:
    """What `explore` found.

    Args:
        workflow: the name of the workflow.
        depth: how many crashes the longest schedules have.
        outcomes: one a schedule, fewest crashes first; the first one is without a crash.
        seconds: how long it took.
        notes: what wasn't looked at, and why.
    """

    workflow: str
    depth: int
    outcomes: tuple[Outcome, ...]
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every schedule ended as without a crash."""
        return not self.failures

    @property
    def schedules(self) -> int:
        """How many schedules with at least one crash were run."""
        return len(self.outcomes) - 1

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes of those that didn't, fewest crashes and earliest first."""
        return tuple(outcome for outcome in self.outcomes if not outcome.ok)

    @property
    def smallest(self) -> Outcome | None:
        """The first failure: no other needs fewer crashes."""
        return next(iter(self.failures), None)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The table of outcomes: a row a call, in the order in which they are first come to."""
        first = {outcome.schedule[0]: outcome for outcome in self.outcomes if _depth(outcome) == 1}
        longer: dict[str, list[bool]] = {}
        rows: dict[str, dict[Position, str]] = {}
        for outcome in self.outcomes:
            if _depth(outcome) > 1:
                longer.setdefault(_row_name(outcome), []).append(outcome.ok)
        for fault, outcome in first.items():
            rows.setdefault(_row_name(outcome), {})[fault.place.position] = outcome.verdict
        found = ((name, cells, longer.get(name, [])) for name, cells in rows.items())
        return tuple(Row(name, cells, len(ok), ok.count(False)) for name, cells, ok in found)

    @property
    def by_schedule(self) -> dict[tuple[Place, ...], Outcome]:
        """The outcomes of the schedules in which nothing but crashes happens, by their places."""
        return {
            tuple(fault.place for fault in outcome.schedule): outcome
            for outcome in self.outcomes
            if not any(fault.stalls for fault in outcome.schedule)
        }

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
        wrong = len(self.failures)
        done = f"{self.schedules:,} schedules of up to {_crashes(self.depth)}"
        if not wrong:
            return f"{self.workflow}: {done}, and every one ends as without a crash."
        first = f"The smallest: {self.failures[0]}"
        return f"{self.workflow}: {done}, {wrong:,} of them go wrong. {first}."

    def __str__(self) -> str:
        head = ["crash in", *Position, *(["a second crash"] if self.depth > 1 else [])]
        texts = [head, *(_cells(row, self.depth) for row in self.rows)]
        widths = [max(len(row[place]) for row in texts) for place in range(len(head))]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in texts]
        lines.insert(1, "-" * (sum(widths) + 2 * len(widths) - 2))
        return "\n".join([self.sentence, *self.notes, "", *lines, *self._told_failures()])

    __repr__ = __str__  # what a notebook shows of it, too

    def _told_failures(self) -> Iterator[str]:
        """The smallest failures, each with its one-line recipe."""
        if self.failures:
            yield ""
        yield from map(str, self.failures[:_MOST_SHOWN])
        if len(self.failures) > _MOST_SHOWN:
            yield f"… and {len(self.failures) - _MOST_SHOWN:,} more in .failures"

    def _repr_html_(self) -> str:
        """The table for a notebook, with header cells that a screen reader announces."""
        head = ["crash in", *Position, *(["a second crash"] if self.depth > 1 else [])]
        titles = "".join(f'<th scope="col" style="{_CELL}">{name}</th>' for name in head)
        body = "".join(_row_html(row, self.depth) for row in self.rows)
        told = "".join(f"<br><code>{html.escape(line)}</code>" for line in self._told_failures())
        notes = "".join(f"<br>{html.escape(note)}" for note in self.notes)
        return (
            f'<p style="margin: 0.4em 0">{html.escape(self.sentence)}{notes}</p>'
            '<table style="border-collapse: collapse; line-height: 1.3"><thead><tr>'
            f"{titles}</tr></thead><tbody>{body}</tbody></table>{told}"
        )


def _depth(outcome: Outcome) -> int:
    return len(outcome.schedule)


def _row_name(outcome: Outcome) -> str:
    fault = outcome.schedule[0]
    return f"{fault.place.call}{' stalls' if fault.stalls else ''}"


def _crashes(number: int) -> str:
    return "one crash" if number == 1 else f"{number} crashes"


def _cells(row: Row, depth: int) -> list[str]:
    cells = [row.call, *(row.cells.get(position, "-") for position in Position)]
    return cells + ([_later(row)] if depth > 1 else [])


def _later(row: Row) -> str:
    if row.later_wrong:
        return f"{row.later_wrong:,} of {row.later:,} WRONG"
    return f"{row.later:,} right"


def _row_html(row: Row, depth: int) -> str:
    cells: Sequence[tuple[str, str]] = [
        (row.cells.get(position, ""), row.cells.get(position, "")) for position in Position
    ]
    if depth > 1:
        cells = [*cells, (_later(row), WRONG if row.later_wrong else RIGHT)]
    told = "".join(
        f'<td style="{_CELL}; background: {_COLOURS[verdict]}">{html.escape(text)}</td>'
        for text, verdict in cells
    )
    return f'<tr><th scope="row" style="{_CELL}">{html.escape(row.call)}</th>{told}</tr>'


@dataclass(frozen=True, repr=False)
class Rerun:
    """One schedule, carried out again to be looked at.

    Args:
        outcome: how it ended.
        processes: the places that each process came to, in the order in which they began.
        events: the run's history in the end.
        world: the world in the end.
    """

    outcome: Outcome
    processes: tuple[tuple[Place, ...], ...]
    events: tuple[Event, ...]
    world: Any

    def __str__(self) -> str:
        lines = [*self._told_processes(), "", *map(_event_line, self.events), "", *self._told_end()]
        return "\n".join(lines)

    __repr__ = __str__  # what a notebook shows of it, too

    def _told_processes(self) -> Iterator[str]:
        for number, places in enumerate(self.processes, 1):
            calls = ", ".join(dict.fromkeys(place.call for place in places))
            fault = self.outcome.schedule[number - 1 : number]
            how = "stalls" if fault and fault[0].stalls else "dies"
            end = f"{how} at {fault[0].place}" if fault else "comes to the end"
            yield f"process {number} {end}. It came to {calls}"

    def _told_end(self) -> Iterator[str]:
        rows = getattr(self.world, "rows", ())
        yield from (f"booked: {row.endpoint} for {row.order}, key {row.key}" for row in rows)
        yield str(self.outcome)


def _event_line(event: Event) -> str:
    name = event.name if event.name != event.kind else ""
    attempt = event.payload.get("attempt")
    return f"{event.seq:>3} {event.kind:<11}{name}{f'  (attempt {attempt})' if attempt else ''}"
