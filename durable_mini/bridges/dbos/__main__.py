"""The command for what is measured on the bridge: `python -m durable_mini.bridges.dbos`.

Guarantees: what is stored with `--into` is what was measured. Leaves to others: the measurements
(`conformance`, `killing`), reading them again (`bridges.measured`).
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from sqlite3 import sqlite_version
from typing import Any

from rich.console import Console

from durable_mini.bridges.dbos.killing import PACKAGE, kill_workers, postgres_version, work
from durable_mini.bridges.measured import DBOS_DATA, Killed, Law, kill_table, law_table, packed

PROGRAM = f"python -m {PACKAGE}"
EXAMPLES = f"""examples:
  {PROGRAM} laws
  {PROGRAM} kill --runs 200 --workers 2
  {PROGRAM} kill --into durable_mini/bridges/{DBOS_DATA}"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for, and print it; exit status 1 where a promise was broken."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["work"]:
        work(given[1], Path(given[2]), given[3])
    options = _parser().parse_args(given)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server is left behind
    command = f"{PROGRAM} {shlex.join(given)}".partition(" --into")[0].removesuffix(" --json")
    with Console(stderr=True).status("measuring") as status:
        found: Any = _laws(status) if options.what == "laws" else _kill(options, status)
    rows = found if isinstance(found, list) else [found]
    stored = packed(
        command,
        rows,
        [f"SQLite {sqlite_version}"] if options.what == "laws" else [postgres_version()],
    )
    if options.into:
        told = json.loads(options.into.read_text("utf-8")) if options.into.exists() else {}
        told[options.what] = stored
        options.into.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(stored, indent=1) if options.json else _table(found))
    sys.exit(0 if not isinstance(found, Killed) or found.ok else 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Measure this project's workflows on DBOS.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what",
        choices=["laws", "kill"],
        help="laws: the conformance kit, on SQLite; kill: workers on PostgreSQL under SIGKILL",
    )
    parser.add_argument("--runs", type=int, default=200, help="kill: how many runs")
    parser.add_argument("--workers", type=int, default=2, help="kill: how many processes")
    parser.add_argument("--seed", type=int, default=0, help="kill: of when which one is killed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--into", type=Path, metavar="FILE", help="store it in a JSON file as well")
    return parser


def _laws(status: Any) -> list[Law]:
    from durable_mini.bridges.dbos.conformance import checked  # noqa: PLC0415 - workers need it not

    return checked(lambda row: status.update(f"law {row.law} {row.verdict}"))


def _kill(options: argparse.Namespace, status: Any) -> Killed:
    def look(ended: int, kills: int) -> None:
        status.update(f"{ended} of {options.runs} runs have ended, {kills} kills")

    return kill_workers(options.runs, options.workers, options.seed, look)


def _table(found: list[Law] | Killed) -> str:
    return kill_table(found) if isinstance(found, Killed) else law_table(found)


if __name__ == "__main__":
    main()
