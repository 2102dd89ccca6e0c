"""Every crash, not some crashes: crash a workflow at every place, and at every pair of places.

    from durable_mini.lab import agent_in, explore
    print(explore(agent_in, "t-1", depth=2))

Guarantees: needs the standard library alone; rich draws the bar where there is a terminal. Leaves
to others: figures (`crash_pictures`), damaged files (`sweep`), real kills.
"""

from durable_mini.lab.exploring.examples import (
    KeyVoidedError as KeyVoidedError,
    ReversibleLedger as ReversibleLedger,
    approval_in as approval_in,
    nothing_left_over as nothing_left_over,
    saga_in as saga_in,
)
from durable_mini.lab.exploring.explorer import (
    MAX_SCHEDULES as MAX_SCHEDULES,
    TooManySchedulesError as TooManySchedulesError,
    explore as explore,
    replay_schedule as replay_schedule,
)
from durable_mini.lab.exploring.places import Fault as Fault, Place as Place, Schedule as Schedule
from durable_mini.lab.exploring.report import (
    AGAIN as AGAIN,
    RIGHT as RIGHT,
    WRONG as WRONG,
    Exploration as Exploration,
    Outcome as Outcome,
    Rerun as Rerun,
)
from durable_mini.lab.exploring.scenario import AfterDoing as AfterDoing, SignalAt as SignalAt
from durable_mini.lab.exploring.trial import StuckError as StuckError
