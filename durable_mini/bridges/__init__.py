"""The same workflows on production engines; each bridge needs an extra of its own.

Guarantees: a `@workflow` runs unchanged, with the same idempotency keys. What an engine has nothing
for is refused when the workflow is registered. Leaves to others: what the engine below does;
`measured` has what was measured, and needs no engine.

| bridge | extra | where the runs are |
| --- | --- | --- |
| `durable_mini.bridges.dbos` | `dbos` | in SQLite or PostgreSQL, driven by DBOS |
"""
