"""Imports go down, and the engine needs the standard library alone."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from graphlib import CycleError, TopologicalSorter

import layers
import pytest

MODULES = layers.modules()
ENGINE = [name for name in MODULES if layers.rank_of(name) in layers.ENGINE_RANKS]


def test_every_module_has_a_rank_and_every_rank_a_module() -> None:
    assert {name for name in MODULES if layers.rank_of(name) is None} == set()
    assert {name.partition(".")[0] for name in MODULES} == set(layers.RANKS)


@pytest.mark.parametrize("name", MODULES)
def test_imports_come_from_a_lower_rank_or_the_same_folder(name: str) -> None:
    upward = [
        f"{MODULES[name]}:{line} imports {imported}"
        for imported, line in layers.imports(name, MODULES[name])
        if (target := layers.inner(imported)) is not None and not _may_import(name, target)
    ]

    assert upward == []


def _may_import(name: str, target: str) -> bool:
    own, other = layers.rank_of(name), layers.rank_of(target)
    if own is None or other is None:
        return False
    same_folder = layers.folder_of(name) != "" and layers.folder_of(name) == layers.folder_of(
        target
    )
    return other < own or same_folder or layers.WITHIN_A_RANK.get(name) == target


def test_imports_have_no_cycle() -> None:
    graph = {
        name: {
            target
            for imported, _ in layers.imports(name, path)
            if (target := layers.inner(imported)) not in (None, name)
        }
        for name, path in MODULES.items()
    }

    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("name", ENGINE)
def test_engine_imports_only_the_standard_library(name: str) -> None:
    foreign = [
        f"{MODULES[name]}:{line} imports {imported}"
        for imported, line in layers.imports(name, MODULES[name])
        if imported.partition(".")[0] not in sys.stdlib_module_names | {"durable_mini"}
    ]

    assert foreign == []


def test_simulate_and_exact_run_where_only_a_browser_s_python_is_left() -> None:
    """No site-packages, subprocess, file locks, threads: what a Python in a browser page lacks."""
    program = f"""
        import _thread, sys
        def refuse(*_):
            raise RuntimeError("can't start new thread")
        _thread.start_new_thread = refuse
        sys.path.insert(0, {str(layers.PACKAGE.parent)!r})
        for absent in ("_posixsubprocess", "fcntl", "msvcrt", "multiprocessing", "termios"):
            sys.modules[absent] = None
        import durable_mini
        from durable_mini.lab import STRATEGIES, exact, simulate
        for strategy in STRATEGIES:
            print(exact(strategy, 0.08).cost.mean, simulate(strategy, 0.08, runs=3).cost.mean)
        print(sorted(name for name in sys.modules if name in ("numpy", "matplotlib", "threading")))
    """
    command = [sys.executable, "-I", "-S", "-c", textwrap.dedent(program)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4
