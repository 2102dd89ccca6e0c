"""What the commands print: tables, JSON, times, and text that a terminal can be trusted with.

Guarantees: what comes out of a journal is shown and never obeyed. Leaves to others: what is said.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

PROGRAM = "durable-mini"
DONE, ANSWER_IS_NO, WRONG_USE, STOPPED = 0, 1, 2, 130
SHOWN_CHARACTERS = 60

_NUMBERS = frozenset({"seq", "attempts", "events", "cost", "age", "+"})
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def complain(message: str, status: int) -> int:
    """One line on stderr; the status is handed back."""
    print(plain(f"{PROGRAM}: {' '.join(message.split())}"), file=sys.stderr)
    return status


@contextmanager
def warnings_told() -> Iterator[None]:
    """What the engine warns of, a line each on stderr."""
    handler, logger = _Warnings(level=logging.WARNING), logging.getLogger("durable_mini")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage(), DONE)


def console() -> Console:
    """Where tables go: as wide as the terminal, and uncut where something else reads them."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 1_000)


def table(*headings: str) -> Table:
    """An empty table, its columns of numbers to the right."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        made.add_column(
            heading, justify="right" if heading in _NUMBERS else "left", overflow="fold"
        )
    return made


def add(to: Table, *cells: str) -> None:
    """Add a row as plain text: what stands in square brackets is the reader's, not markup."""
    to.add_row(*(Text(plain(cell)) for cell in cells))


def print_json(value: Any) -> None:
    """For a machine to read."""
    typer.echo(json.dumps(value, indent=2))


def as_json(value: Any) -> str:
    """A JSON value in one short line."""
    return shortened(json.dumps(value, ensure_ascii=False))


def shortened(text: str) -> str:
    """The beginning of a text."""
    shown = plain(text)
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[: SHOWN_CHARACTERS - 1]}…"


def plain(text: str) -> str:
    """The text with every character that a terminal would obey instead of show written out."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def time(at_s: float) -> str:
    """Seconds since the epoch for people; a clock beyond the calendar keeps its number."""
    try:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{at_s:g} s"


def lasting(seconds: float) -> str:
    """A length of time in its two largest units.

    >>> [lasting(number) for number in (0.0125, 59, 61, 7_200, 200_000, -90)]
    ['0.0125 s', '59 s', '1 m 1 s', '2 h', '2 d 7 h', '-1 m 30 s']
    """
    if seconds < 0:
        return f"-{lasting(-seconds)}"
    if seconds < 60:
        return f"{seconds:.3g} s"
    parts, left = [], round(seconds)
    for length, unit in (*_UNITS, (1, "s")):
        parts += [f"{left // length} {unit}"] if left >= length else []
        left %= length
    return " ".join(parts[:2])


def seconds(text: str) -> float:
    """A length of time as it is given on the command line.

    >>> [seconds(text) for text in ("90s", "2h", "0.5d")]
    [90.0, 7200.0, 43200.0]

    Raises:
        BadParameter: it is none.
    """
    lengths = {unit: length for length, unit in (*_UNITS, (1, "s"))}
    number, length = text[:-1], lengths.get(text[-1:])
    if length is None or not number.replace(".", "", 1).isdecimal():
        reason = f"{text!r} is no length of time; write e.g. 90s, 15m, 2h or 30d."
        raise typer.BadParameter(reason)
    return float(number) * length
