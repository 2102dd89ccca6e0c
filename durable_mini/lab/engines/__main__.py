"""The command for what is measured on other engines: `python -m durable_mini.lab.engines`.

Guarantees: what isn't installed is named, and left out; what is stored with `--into` is what was
measured. Leaves to others: the measurements (`crashes`, `grid`, `speed`), the tables (`tables`).
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from durable_mini.lab.engines import tables
from durable_mini.lab.engines.catalogue import SETUPS, Setup, setup_named
from durable_mini.lab.engines.crashes import Row, crash_everywhere
from durable_mini.lab.engines.gate import PLACES
from durable_mini.lab.engines.grid import EDITS, Cell, columns, measure
from durable_mini.lab.engines.shipped import merged, packed
from durable_mini.lab.engines.speed import OWN, Speed, compare

PROGRAM = "python -m durable_mini.lab.engines"
EXAMPLES = f"""examples:
  {PROGRAM} list
  {PROGRAM} crashes --engine dbos --engine restate
  {PROGRAM} edits --engine temporal --json
  {PROGRAM} speeds --rounds 9"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for, and print it; exit status 2 where an engine isn't installed."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server is left behind
    try:
        wanted = [setup_named(name) for name in options.engine or []] or list(SETUPS)
    except ValueError as error:
        sys.exit(_wrong(str(error)))
    missing = [why for setup in wanted if (why := setup.missing())]
    if options.what == "list":
        print(tables.listed(wanted))
        return
    print("\n".join(missing), file=sys.stderr, end="\n" if missing else "")
    there = [setup for setup in wanted if not setup.missing()]
    if (missing and options.engine) or not there:
        sys.exit(2)
    rows = _MEASURE[options.what](there, options)
    command = f"{PROGRAM} {shlex.join(sys.argv[1:] if arguments is None else arguments)}"
    stored = packed(command.partition(" --into")[0], rows)
    if options.into:
        _put(options.into, options.what, stored)
    print(json.dumps(stored, indent=1) if options.json else tables.TABLES[options.what](rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Measure the reference agent on production engines, as far as installed.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what",
        choices=["list", *_MEASURE],
        help="list: what is installed; crashes: a kill at every place; edits: code changed under a "
        "run; speeds: steps per second",
    )
    parser.add_argument(
        "--engine", action="append", metavar="NAME", help="only this one; repeatable"
    )
    parser.add_argument("--repeats", type=int, default=1, help="crashes: kills at each place")
    parser.add_argument("--rounds", type=int, default=7, help="speeds: turns of each engine")
    parser.add_argument("--folder", type=Path, help="below which folder the stores lie")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--into", type=Path, metavar="FILE", help="store it in a JSON file as well")
    return parser


def _crashes(setups: list[Setup], options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    kills = 2 * len(PLACES) * options.repeats
    for setup in setups:
        with _bar(setup.name, kills) as advance:
            about: dict[str, Any] = {"repeats": options.repeats, "folder": options.folder}
            rows += crash_everywhere(setup, progress=advance, **about)
    return rows


def _edits(setups: list[Setup], options: argparse.Namespace) -> list[Cell]:
    if not options.engine:  # what replay checks doesn't depend on the store
        setups = list({setup.engine: setup for setup in reversed(setups)}.values())[::-1]
    cells = []
    for column in [column for setup in setups for column in columns(setup)]:
        with _bar(column.name, len(EDITS)) as advance:
            for edit in EDITS:
                cells.append(measure(column, edit, options.folder))
                advance(1)
    return cells


def _speeds(setups: list[Setup], options: argparse.Namespace) -> list[Speed]:
    screen = Console(stderr=True)
    others = [setup for setup in setups if setup.name != OWN]
    with screen.status("measuring") as status:
        about: dict[str, Any] = {"rounds": options.rounds, "folder": options.folder or Path.cwd()}
        return compare(others, progress=status.update, **about)


_MEASURE: dict[str, Callable[[list[Setup], argparse.Namespace], Any]] = {
    "crashes": _crashes,
    "edits": _edits,
    "speeds": _speeds,
}


@contextmanager
def _bar(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; nothing elsewhere."""
    columns = (TextColumn(f"{name:<22}"), BarColumn(), MofNCompleteColumn())
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, disable=not screen.is_terminal) as bar:
        task = bar.add_task(name, total=total)
        yield lambda done: bar.advance(task, done)


def _put(path: Path, what: str, stored: dict[str, Any]) -> None:
    """Put a measurement into a file beside those of other kinds.

    Rows of engines that weren't measured this time stay; speeds don't, since they are of one run.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else "{}"
    told = json.loads(text)
    told[what] = stored if what == "speeds" else merged(told.get(what), stored)
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _wrong(why: str) -> int:
    print(why, file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
