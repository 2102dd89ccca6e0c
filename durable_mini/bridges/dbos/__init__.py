"""Workflows of this project on DBOS: in SQLite or PostgreSQL, on one machine or several.

    from durable_mini.bridges.dbos import DBOSEngine

    engine = DBOSEngine("postgresql://…", [agent])
    with engine.working("worker-1"):          # this process drives; without it, it only asks
        run = engine.run(agent, ticket, run_id="t-1")

Guarantees: a `@workflow` runs unchanged, with the idempotency keys, errors and results that it has on
durable_mini. Nothing is stored as pickle. Leaves to others: storing, queues and recovery (DBOS).

| here | on DBOS | what is otherwise |
| --- | --- | --- |
| `engine.start` | an enqueued workflow, in a queue of its workflow's version | the same id with another input: DBOS keeps the first silently, the bridge refuses |
| `step`, `effect` | a DBOS step whose result is the codec's text, with digest, key and cost | DBOS compares names; the bridge kind, name and arguments, first |
| the key | the engine's own, `t-1/charge` | not DBOS's workflow id and step number, which an edit before it changes |
| a failed step | a result that says so, raised as `StepFailedError` | DBOS would store the exception as pickle |
| `retry=` | a DBOS step for each try, a durable wait in between | DBOS's own retries count anew after a crash |
| `now`, `random`, `uuid` | a DBOS step | |
| `sleep`, the wait of `wait_signal` | `DBOS.recv` with a time-out | a waiting run keeps a thread, and its process |
| `engine.signal` | a message, with the signal id as its idempotency key | its time is that of the sender's clock; within a millisecond the order is chance |
| `gather` | DBOS steps at places reserved in the order of the code | tries of one round wait for the longest back-off |
| `child` | a child workflow in its queue, which tells its parent by a message | |
| `compensate`, undos | steps, before DBOS records the workflow's end | |
| `engine.cancel` | an attribute and a message, recorded in place of the next step | not DBOS's cancel, which undoes nothing; one that comes while the point of no return is recorded may say yes in vain |
| `point_of_no_return` | a DBOS step | |
| `patched` | decided by what the admission says | `DBOS.patch` decides at the place where it is asked; no marker is recorded |
| structure | compared by the bridge as each execution begins | DBOS's version, one for the application, is pinned: it would leave all runs of the old code lying |
| needs attention | DBOS's CANCELLED with a reason; `resume` is `resume_workflow` | a divergence is told so, not raised by `resume` |
| `Budget(max_attempts)` | `max_recovery_attempts` | DBOS counts executions in all, not those in a row that recorded nothing |
| other budgets, `cost=` | counted by the bridge from the records | |
| a lease | none: DBOS recovers what its executor id left, when it is launched again | `take_over` for a worker that never comes back; who lost a run is told at its next record |
| `continue_as_new` | nothing: refused when the workflow is registered | start a child for each round of work |
| `reuse=True`, `max_events`, `prune`, `migrate` | nothing | DBOS has retention and forks of its own |
"""  # noqa: E501 - the table's rows

from durable_mini.bridges.dbos.context import UNMAPPED as UNMAPPED
from durable_mini.bridges.dbos.engine import (
    DBOSEngine as DBOSEngine,
    UnmappedCallError as UnmappedCallError,
)
