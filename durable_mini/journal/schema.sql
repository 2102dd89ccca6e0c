-- The tables of a journal, and the life of a run in them.
--
--   runs      one row a run: which workflow it is, and how it stands
--    └─ events  what happened, in order: (run_id, generation, seq), seq dense from 1
--
--   start     INSERT runs (pending)  + INSERT events 1 'admitted'     one transaction
--   resume    UPDATE runs (running, attempts + 1)                     one transaction
--   step      INSERT events n                                         one transaction a step
--   end       INSERT events n + UPDATE runs (completed, failed)       one transaction
--   trouble   UPDATE runs (needs_attention, error)                    one transaction, no event
--
-- A crash between two of these leaves the earlier one whole. The file carries its own name and
-- version: application_id is 'dMin', user_version is the version of this schema.

CREATE TABLE runs (
    run_id     TEXT    NOT NULL PRIMARY KEY,     -- rowid is the order of admission
    generation INTEGER NOT NULL CHECK (generation >= 1),
    workflow   TEXT    NOT NULL,
    version    TEXT    NOT NULL,
    structure  TEXT    NOT NULL,                 -- hash of the durable calls at admission
    status     TEXT    NOT NULL,
    attempts   INTEGER NOT NULL CHECK (attempts >= 0),
    error      TEXT                              -- JSON, only while the run needs attention
) STRICT;

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
