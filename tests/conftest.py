"""What every test may use, and what pytest says at its end.

Guarantees that `pytest -m "not slow"` starts no kernel: each cell that nbval collects is slow.
A test that measures something hands the line to `figure`, and the line is printed after the run.
The files that take longest come first, so that no core is left alone with one of them at the end.
"""

from __future__ import annotations

import gc
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

# How many processes and which report were asked for is not meant for the pytest that a test starts.
os.environ.pop("PYTEST_ADDOPTS", None)

# A shell lets what runs in its background ignore Ctrl-C, and every process started from there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FIGURE = "figure"

LONGEST_FIRST = (
    *("test_exercises_graded.py", "test_grade_forging.py", "test_grade_fair.py", "test_grade.py"),
    *("test_capstone.py", "test_exercises_07_10.py", "test_exercises_01_03.py"),
    *("test_exercises_04_06.py", "test_grade_class.py", "test_engines_native.py"),
    *(
        "test_nbgrader.py",
        "test_quiz_browser.py",
        "test_bridge_dbos.py",
        "test_bridge_dbos_laws.py",
    ),
    *("test_browser.py", "test_site.py", "test_model.py", "test_chaos.py", "test_museum.py"),
    *("test_results.py", "11_chaos.ipynb", "test_readme.py", "04_results.ipynb"),
    *("test_worker_processes.py", "test_progress.py", "test_conformance.py", "test_sweep.py"),
    *("test_notebooks_tool.py", "test_sliders.py", "test_explore.py", "test_cli.py"),
    *("09_workers.ipynb", "03_crash_window.ipynb", "test_mutations.py", "test_simulation.py"),
)
"""Which files take long enough to matter when several processes share them out."""


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # xdist would begin with the files of many tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.suffix == ".ipynb":
            item.add_marker(pytest.mark.slow)
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = {name: number for number, name in enumerate(LONGEST_FIRST)}
        items.sort(key=lambda item: place.get(item.path.name, len(place)))


def pytest_collection_finish() -> None:
    """What is there from here on stays: the collector needn't look through it in each test."""
    gc.freeze()


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
