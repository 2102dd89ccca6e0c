"""The reference agent on production engines: killed, edited and timed as this course's engine is.

Guarantees: the agents in `course/engines` know of no experiment; each is killed from outside, by
the world that they ask. Importing these modules needs none of the engines; where one is missing it
is left out, and what was measured once is there to be read. Leaves to others: the agents.

| module | what it does |
| --- | --- |
| `catalogue` | which engines there are, on which store, and whether one can be run here |
| `services` | starts what an engine needs: a file, PostgreSQL, a server |
| `job`, `stage` | what an agent's file is handed, and what it does when it is run |
| `by_hand` | one ticket, and what was seen: `python course/engines/dbos_agent.py` |
| `gate` | the world outside, which kills the worker at one of its requests |
| `trial` | one run, its worker killed, another one going on |
| `crashes` | a kill at every place: steps executed again, and duplicates |
| `grid` | code changed under a run |
| `speed` | steps per second, in turns |
| `shipped` | what was measured once, with its date, versions and command |
| `tables`, `pictures` | the same to be read and looked at |

    python -m durable_mini.lab.engines crashes --engine dbos
"""
