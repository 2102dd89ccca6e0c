"""The world as a process of its own: `python -m durable_mini.lab.world BOOKS` prints its URL.

Guarantees: it ends with its parent, within moments. Leaves to others: everything but starting.
"""

import argparse
import json
import os
from collections.abc import Sequence
from contextlib import suppress

from durable_mini.lab.world.books import Books
from durable_mini.lab.world.place import POLL_S
from durable_mini.lab.world.receiver import Receiver
from durable_mini.lab.world.server import Server
from durable_mini.lab.world.switches import switches_from

EXAMPLE = """example:
  python -m durable_mini.lab.world world.db --switches='{"charge": {"ignores_keys": true}}'"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the parent process is gone, or somebody interrupts."""
    parser = argparse.ArgumentParser(
        prog="python -m durable_mini.lab.world",
        description="Serve the world outside on loopback, and print where.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("books", help="the file that keeps what happened; created if missing")
    parser.add_argument("--port", type=int, default=0, help="where to listen; 0 is a free one")
    parser.add_argument("--switches", default="{}", help="how endpoints misbehave, as JSON")
    parser.add_argument(
        "--parent", type=int, default=os.getppid(), help="the process that it ends with"
    )
    options = parser.parse_args(arguments)

    def end_with_parent() -> None:
        if os.getppid() != options.parent:
            raise SystemExit(0)

    try:
        books = Books(options.books)
        receiver = Receiver(books, switches_from(json.loads(options.switches)))
        server = Server(receiver, options.port, end_with_parent)
    except (ValueError, OSError, OverflowError) as error:
        parser.error(str(error))
    with books, server, suppress(KeyboardInterrupt):
        print(server.url, flush=True)
        server.serve_forever(POLL_S)


if __name__ == "__main__":
    main()
