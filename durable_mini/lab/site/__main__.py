"""The command: `python -m durable_mini.lab.site FOLDER`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from durable_mini.lab.notebooks import NotANotebookError
from durable_mini.lab.site.folder import SiteError, build, course_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns: 0 done, 2 wrong use, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    started_s = time.monotonic()
    try:
        index = build(options.folder, course=options.course or course_folder(), tell=_tell)
    except (SiteError, NotANotebookError, OSError) as error:
        print(f"site: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nsite: stopped; the folder is as it was", file=sys.stderr)
        return 130
    print(f"done in {time.monotonic() - started_s:.1f} s. Next: open {index} in a browser")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m durable_mini.lab.site",
        description="Write the chapters, with the outputs that they hold, as a static site.",
        epilog="example: python -m durable_mini.lab.site site",
    )
    parser.add_argument(
        "folder", type=Path, help="where to: a new or an empty folder, or a site made by this"
    )
    parser.add_argument(
        "--course", type=Path, metavar="FOLDER", help="the notebooks (default: those of the course)"
    )
    return parser


def _tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
