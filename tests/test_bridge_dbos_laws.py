"""The conformance kit on the bridge to DBOS: the shipped report can be had again, and explains."""

from __future__ import annotations

import pytest

from durable_mini.bridges.measured import DIFFERENCES, kill_table, law_table, shipped_dbos
from durable_mini.lab.conformance import CAPABILITIES, LAWS, check_engine


@pytest.mark.slow
def test_kit_runs_on_dbos() -> None:
    """The cheap laws: the whole kit is the command's, and takes minutes."""
    pytest.importorskip("dbos", reason="no dbos here: pip install durable-mini[dbos]")
    from durable_mini.bridges.dbos.conformance import dbos_engine

    report = check_engine(dbos_engine, require=CAPABILITIES, only=[13, 18, 19])
    shipped = {law.law: law for law in shipped_dbos().laws}
    for row in report.rows:
        law = shipped[row.law]
        assert (row.verdict, row.passed, row.broken) == (law.verdict, law.passed, law.broken)


def test_shipped_report_explains_each_broken_law() -> None:
    shipped = shipped_dbos()
    assert [law.law for law in shipped.laws] == [law.number for law in LAWS]
    assert all(law.why for law in shipped.laws if law.verdict != "holds")
    assert set(DIFFERENCES) <= {law.law for law in shipped.laws}
    assert shipped.killed.ok
    assert shipped.killed.kills
    assert shipped.killed.repeated
    for table, what in ((law_table(shipped.laws), "laws"), (kill_table(shipped.killed), "kill")):
        assert table.count("\n") > 5
        assert "with: python -m durable_mini.bridges.dbos" in shipped.sources[what]
