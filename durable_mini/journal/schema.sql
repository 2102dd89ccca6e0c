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
    run_id      TEXT    NOT NULL PRIMARY KEY,    -- rowid is the order of admission
    generation  INTEGER NOT NULL CHECK (generation >= 1),
    workflow    TEXT    NOT NULL,
    version     TEXT    NOT NULL,
    structure   TEXT    NOT NULL,                -- hash of the durable calls at admission
    status      TEXT    NOT NULL,
    parent      TEXT,                            -- the run that waits for this one
    due_at      REAL,                            -- from when on a worker may take it; NULL never
    attempts    INTEGER NOT NULL CHECK (attempts >= 0),
    crashes     INTEGER NOT NULL,                -- attempts in a row that recorded nothing
    error       TEXT,                            -- JSON, only while the run needs attention
    token       INTEGER NOT NULL,                -- fencing token: claim and release raise it
    worker      TEXT,
    lease_s     REAL    NOT NULL,
    lease_until REAL    NOT NULL,                -- when the lease ends, or when it was given back
    pruned_at   REAL                             -- set: the events are gone, the id is not free
) STRICT;

CREATE INDEX runs_due ON runs (lease_until) WHERE due_at IS NOT NULL;

CREATE TABLE events (
    run_id      TEXT    NOT NULL REFERENCES runs (run_id),
    generation  INTEGER NOT NULL,
    seq         INTEGER NOT NULL CHECK (seq >= 1),
    kind        TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    payload     TEXT    NOT NULL,                -- JSON, ASCII
    recorded_at REAL    NOT NULL,                -- seconds since the epoch
    checksum    INTEGER NOT NULL,                -- CRC-32 over run, generation and the rest
    PRIMARY KEY (run_id, generation, seq)        -- the second writer of a number is refused
) STRICT, WITHOUT ROWID;
