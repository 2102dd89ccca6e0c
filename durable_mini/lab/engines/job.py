"""What passes between an agent's process and whoever started it.

Guarantees: the names are in one place. Leaves to others: saying it (`stage`), hearing it (`trial`).
"""

import json
from typing import Any

WORLD = "DURABLE_MINI_WORLD"
"""Names the variable with the address of the HTTP world; without it the world is in the process."""
KEYLESS = "DURABLE_MINI_KEYLESS"
"""Names the variable that is set where effects are to be sent without their key."""
ORDER = "DURABLE_MINI_ORDER"
"""Names the variable with the one order that the process is to run."""
BENCH = "DURABLE_MINI_BENCH"
"""Names the variable that is set where the process is to run orders until its input ends."""
TOLD = "told: "
"""How a line begins that is meant for whoever started the process."""


def tell(**told: Any) -> None:
    """Say something to whoever started this process."""
    print(f"{TOLD}{json.dumps(told)}", flush=True)
