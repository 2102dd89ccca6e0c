"""Pruning: the histories of runs that ended long ago go, their ids stay.

Guarantees: nothing of a run that isn't over is removed, nor of a child that somebody may still wait
for; each run goes in one transaction. Leaves to others: giving disk space back to the system (a
SQLite file keeps its free pages, a `FileJournal` its lines).
"""

from durable_mini.clock import SystemClock
from durable_mini.errors import JournalCorruptError
from durable_mini.events import ENDED, RunRow
from durable_mini.journal import Journal


def prune(
    journal: Journal, *, older_than_s: float, now: float | None = None, dry_run: bool = False
) -> list[str]:
    """Remove the histories of runs that ended at least so long ago, and leave tombstones.

    A tombstone keeps the run's id taken: `Engine.start` gives it away only with `reuse=True`. Runs
    that need attention are not over. A child stays as long as its parent hasn't ended, and a
    damaged history stays for whoever looks into the damage.

    Args:
        journal: whose runs.
        older_than_s: seconds since a run's ending was recorded; 0 prunes all that have ended.
        now: the time it is, in seconds since the epoch; that of this machine by default.
        dry_run: remove nothing, and tell what would be.

    Returns:
        The ids of the pruned runs, in the order of their admission.

    Raises:
        ValueError: a negative age.
        StorageError: the journal can't be written; what was pruned before stays pruned.

    Crash:
        A run is pruned whole or not at all; prune again for the rest.
    """
    if not older_than_s >= 0:
        raise ValueError(f"older_than_s={older_than_s}: an age in seconds from 0")
    now = SystemClock().now() if now is None else now
    old = (row for row in journal.rows() if _may_go(journal, row, now - older_than_s))
    return [
        row.run_id
        for row in old
        if dry_run or journal.replace(row, row._replace(pruned_at=now, due_at=None))
    ]


def _may_go(journal: Journal, row: RunRow, ended_by: float) -> bool:
    """Whether a run ended by that time, as its history has it too, and nobody waits for it."""
    if row.status not in ENDED or row.pruned_at is not None:
        return False
    try:
        parent = None if row.parent is None else journal.row(row.parent)
        last = journal.events(row)[-1:]
    except JournalCorruptError:
        return False
    waited_for = row.parent is not None and (parent is None or parent.status not in ENDED)
    ended = last and last[0].kind in ENDED and last[0].recorded_at <= ended_by
    return bool(ended) and not waited_for
