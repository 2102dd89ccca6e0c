"""The world outside, for real: an HTTP server on loopback that keeps its books in a SQLite file.

| module | what it is |
| --- | --- |
| `endpoints` | which requests there are |
| `books` | what took effect, under which key, and what was answered: the only SQL |
| `switches` | how an endpoint misbehaves, as receivers do |
| `receiver` | what is done with a request |
| `server` | HTTP around the receiver |
| `client` | the sender: what the reference agent asks, and what may go wrong on the way |
| `place` | a running world: in a thread of this process, or in a process of its own |

    with World.serving("world.db", {"charge": Switches(ignores_keys=True)}) as world:
        engine.run(agent_in(Client(world.url)), "o-1")
        world.rows(), world.repeats(), world.spent()

Guarantees: what was answered is in the books, also when the server is killed. Needs the standard
library alone. Leaves to others: who asks, and who dies while asking.
"""

from durable_mini.lab.world.books import Books
from durable_mini.lab.world.client import (
    Client,
    KeyTakenError,
    NotNowError,
    RefusedError,
    Sender,
    UnknownOutcomeError,
    WorldError,
)
from durable_mini.lab.world.place import SpawnedWorld, World
from durable_mini.lab.world.switches import Switches

__all__ = [
    "Books",
    "Client",
    "KeyTakenError",
    "NotNowError",
    "RefusedError",
    "Sender",
    "SpawnedWorld",
    "Switches",
    "UnknownOutcomeError",
    "World",
    "WorldError",
]
