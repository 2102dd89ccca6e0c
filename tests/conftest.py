"""What every test may use, and what pytest says at its end.

Guarantees that `pytest -m "not slow"` starts no kernel: each cell that nbval collects is slow.
A test that measures something hands the line to `figure`, and the line is printed after the run.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from durable_mini import SQLiteJournal

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # the test extra isn't installed: property tests skip themselves
    pass
else:
    settings.register_profile("here", deadline=None)
    settings.register_profile(
        "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("ci" if os.environ.get("CI") else "here")

# A shell lets what runs in its background ignore Ctrl-C, and every process started from there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FIGURE = "figure"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.suffix == ".ipynb":
            item.add_marker(pytest.mark.slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == FIGURE
    ]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(str(line))


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """A function that keeps one measured line for the end of the test run."""
    return lambda line: record_property(FIGURE, line)


@pytest.fixture
def journal_path(tmp_path: Path) -> Path:
    """Where a journal may be created; nothing is there yet."""
    return tmp_path / "journal.db"


@pytest.fixture
def journal(journal_path: Path) -> Iterator[SQLiteJournal]:
    """An empty journal on disk, closed after the test."""
    from durable_mini import SQLiteJournal

    with SQLiteJournal(journal_path) as opened:
        yield opened
