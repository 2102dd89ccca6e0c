"""Makes `python -m durable_mini` the same as the command `durable-mini`."""

import sys

from durable_mini.cli import main

if __name__ == "__main__":
    sys.exit(main())
