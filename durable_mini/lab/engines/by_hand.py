"""An agent's file, run by hand: one ticket, in a process that may be killed, and what was seen.

Guarantees: what is printed was seen by the world, not told by the worker. Leaves to others: the
trial (`trial`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from durable_mini.lab.engines.catalogue import Setup, setup_named
from durable_mini.lab.engines.gate import EFFECTS, POSITIONS, STEPS, Place
from durable_mini.lab.engines.trial import Outcome, theatre


def main(name: str, arguments: Sequence[str] | None = None) -> None:
    """Run one ticket, and print what happened.

    Args:
        name: the engine, as the catalogue has it.
        arguments: of the command line; by default the process's own.
    """
    setup = setup_named(name)
    parser = argparse.ArgumentParser(
        prog=f"python course/engines/{setup.script}",
        description=f"Run the reference agent once on {setup.engine}.",
        epilog=f"example:  python course/engines/{setup.script} --kill charge window",
    )
    parser.add_argument(
        "--kill",
        nargs=2,
        metavar=("STEP", "POSITION"),
        help=f"kill the worker at a step, {' or '.join(POSITIONS)}, and start another",
    )
    parser.add_argument("--without-key", action="store_true", help="send effects without their key")
    options = parser.parse_args(arguments)
    kill_at: Place | None = tuple(options.kill) if options.kill else None
    if kill_at and (kill_at[0] not in STEPS or kill_at[1] not in POSITIONS):
        parser.error(f"--kill: choose from {', '.join(STEPS)}, and {' or '.join(POSITIONS)}")
    if missing := setup.missing():
        sys.exit(missing)
    with_key = not options.without_key
    with theatre(setup, honours_keys=with_key) as there:
        outcome = there.trial("ticket-1", kill_at, with_key=with_key)
    print("\n".join(told(setup, outcome)))
    sys.exit(outcome.result is None)


def told(setup: Setup, outcome: Outcome) -> Iterator[str]:
    """What happened in one run, line by line."""
    yield f"{setup.engine} {setup.version()}; {setup.storage}"
    worker = 0
    for request in outcome.requests:
        if request.worker != worker and outcome.kill_at:
            worker = request.worker
            step, position = outcome.kill_at
            where = "before the work of" if position == "before" else "in the window after"
            later = f"another worker goes on {outcome.recovered_s:.1f} s later"
            yield f"   -- SIGKILL {where} {step}; {later}"
        key = f"   key {request.key or 'none'}" if request.step in EFFECTS else ""
        yield f"   {request.step:<12}{key}".rstrip()
    if outcome.result is None:
        yield f"It never came to its end. {outcome.error or outcome.refusal or 'Nothing was said.'}"
        return
    yield f"Result: {outcome.result}"
    yield f"Effects that happened twice: {outcome.duplicates}"
