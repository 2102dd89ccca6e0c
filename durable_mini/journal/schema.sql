-- The tables of a journal, and the life of a run in them.
--
--   runs      one row a run: which workflow it is, how it stands, who holds it
--    └─ events  what happened, in order: (run_id, generation, seq), seq dense from 1
--
--   start     INSERT runs (pending) + INSERT events 1 'admitted'      one transaction
--   claim     UPDATE runs (running, attempts + 1, token + 1, lease)   one transaction, no event
--   step      INSERT events n, if the token is still ours             one transaction a step
--   signal    INSERT events n + UPDATE runs (due now, if suspended)   one transaction
--   suspend   UPDATE runs (suspended, due_at, no lease, token + 1)    one transaction, no event
--   continue  INSERT events n 'continued' + UPDATE runs (generation + 1)
--             + INSERT events 1 'admitted' of the next generation     one transaction
--   end       INSERT events n + UPDATE runs (completed, failed, cancelled)
--             + for a child INSERT events m 'child_ended' of its parent   one transaction
--   trouble   UPDATE runs (needs_attention, error)                    one transaction, no event
--   prune     DELETE events + UPDATE runs (pruned_at)                 one transaction
--
-- A crash between two of these leaves the earlier one whole. The file carries its own name and
-- version: application_id is 'dMin', user_version is the version of this schema.

CREATE TABLE runs (
    -- What it is: rowid is the order of admission, structure the hash of its durable calls then.
    run_id TEXT NOT NULL PRIMARY KEY, generation INTEGER NOT NULL CHECK (generation >= 1),
    workflow TEXT NOT NULL, version TEXT NOT NULL, structure TEXT NOT NULL,
    -- How it stands: parent waits for it, from due_at on a worker may take it (NULL never).
    status TEXT NOT NULL, parent TEXT, due_at REAL,
    -- Crashes are attempts in a row that recorded nothing. The error is JSON, and there only while
    -- the run needs attention.
    attempts INTEGER NOT NULL CHECK (attempts >= 0), crashes INTEGER NOT NULL, error TEXT,
    -- Who holds it: claim and release raise the fencing token, lease_until is when the lease ends,
    -- or when it was given back.
    token INTEGER NOT NULL, worker TEXT, lease_s REAL NOT NULL, lease_until REAL NOT NULL,
    -- Set: the events are gone, the id is not free.
    pruned_at REAL
) STRICT;

CREATE INDEX runs_due ON runs (lease_until) WHERE due_at IS NOT NULL;

CREATE TABLE events (
    run_id TEXT NOT NULL REFERENCES runs (run_id), generation INTEGER NOT NULL,
    seq INTEGER NOT NULL CHECK (seq >= 1),
    -- The payload is JSON in ASCII, recorded_at is in seconds since the epoch.
    kind TEXT NOT NULL, name TEXT NOT NULL, payload TEXT NOT NULL, recorded_at REAL NOT NULL,
    checksum INTEGER NOT NULL,             -- CRC-32 over run, generation and the rest
    PRIMARY KEY (run_id, generation, seq)  -- the second writer of a number is refused
) STRICT, WITHOUT ROWID;
