"""The benchmark: it measures what it says, and gives the keys that a reader's script expects."""

from __future__ import annotations

import pytest

from durable_mini.lab.bench import (
    _CALLS,
    _fdatasync_appends,
    _memory_steps,
    _paired,
    _replay,
    bench,
)
from durable_mini.lab.shape import REFERENCE_SHAPE


def test_the_values_are_those_of_the_reference_agent():
    assert [name for name, _, _ in _CALLS] == [spec.name for spec in REFERENCE_SHAPE]


def test_paired_gives_medians_and_leaves_the_first_pair_out():
    ones, others = iter([100.0, 2.0, 6.0, 4.0]), iter([1.0, 1.0, 2.0, 4.0])

    assert _paired(lambda: next(ones), lambda: next(others), 3) == (4.0, 2.0, 2.0)


def test_a_side_does_its_work_anew_each_time():
    for side in (_memory_steps(2), _replay(20)):
        assert side() > 0
        assert side() > 0


def test_a_system_without_fdatasync_is_measured_with_fsync(monkeypatch):
    monkeypatch.delattr("os.fdatasync")

    assert _fdatasync_appends(3)() > 0


@pytest.mark.slow
def test_bench_gives_every_key_and_says_what_it_is_at():
    parts = []
    measured = bench(quick=True, progress=parts.append)

    assert len(parts) == 6
    assert set(measured) == {"floor", "durable_mini", "ratios", "peers"}
    assert set(measured["ratios"]) == {
        "sqlite_steps_to_floor",
        "live_step_to_unavoidable",
        "slider_frame_to_drawing",
        "replay_10x_history",
    }
    numbers = [
        value for part in ("floor", "durable_mini", "ratios") for value in measured[part].values()
    ]
    assert all(number > 0 for number in numbers)
