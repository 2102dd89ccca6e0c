"""Work on whole journals: checking them, pruning them, replaying and migrating what they hold.

Guarantees: what only looks changes nothing; what changes something does it in one transaction a
run. Leaves to others: driving runs (`engine`, `worker`).
"""

from durable_mini.ops.checking import (
    Problem as Problem,
    Verification as Verification,
    verify as verify,
)
from durable_mini.ops.migrating import MigrationError as MigrationError, migrate as migrate
from durable_mini.ops.pruning import prune as prune
from durable_mini.ops.replaying import Replayed as Replayed, replay_history as replay_history
