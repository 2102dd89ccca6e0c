"""Breaks the engine in one place at a time, in a copy, and looks which test notices.

`python tests/mutations.py` prints the table; exit status 1 if a mutation goes unnoticed. Each one
takes away a single guarantee. The text that it replaces has to stand in the file exactly once, so
that a change of the engine can't make a mutation silently harmless.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

_NO_PLUGINS = ("-o", "addopts=")
"""None of these tests is a notebook, and starting pytest with nbval takes longer than a test."""


class Mutation(NamedTuple):
    """One guarantee taken away: in which file, by what replacements, and which tests see it."""

    name: str
    file: str
    replacements: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]


class Verdict(NamedTuple):
    """The first test that turned red under a mutation; None if none did."""

    mutation: Mutation
    red: str | None


MUTATIONS = (
    Mutation(
        "identity check off",
        "replay.py",
        (("if event.name != name or not (tried or event.kind is kind):", "if False:"),),
        ("test_replay.py",),
    ),
    Mutation(
        "argument digest off",
        "replay.py",
        (('if self._compare_arguments and payload.get("args") != digest:', "if False:"),),
        ("test_replay.py",),
    ),
    Mutation(
        "fencing check off",
        "journal/__init__.py",
        (
            (
                "        token, lease_until, last = self._stand(row)\n"
                "        if token != row.token:",
                "        token, lease_until, last = self._stand(row)\n        if False:",
            ),
        ),
        ("test_journals.py",),
    ),
    Mutation(
        "commit after return",
        "context.py",
        (
            (
                "        seq: int = self._journal.append(self._row, entry, expected=expected, **"
                "self._first)\n",
                '        for late in vars(self).pop("_late", ()):\n'
                "            self._journal.append(self._row, late)\n"
                "        self._late, seq = [entry], self._journal.peek(self._row) + 1\n",
            ),
        ),
        ("test_context.py", "test_engine.py"),
    ),
    Mutation(
        "synchronous weakened",
        "journal/sqlite.py",
        (('"synchronous=FULL"', '"synchronous=NORMAL"'),),
        ("test_sqlite.py",),
    ),
    Mutation(
        "fsync dropped",
        "journal/file.py",
        (("    os.fsync(descriptor)\n", "    descriptor.bit_length()\n"),),
        ("test_file_journal.py",),
    ),
    Mutation(
        "append returns before its fsync",
        "journal/file.py",
        (
            (
                "        data = data[file.write(data) :]\n    sync(file.fileno())\n",
                "        data = data[file.write(data) :]\n",
            ),
        ),
        ("test_file_journal.py",),
    ),
    Mutation(
        "torn tail kept",
        "journal/file.py",
        (("            self._file.truncate(at)", "            self._file.seek(0, os.SEEK_END)"),),
        ("test_file_journal.py",),
    ),
    Mutation(
        "key without run id",
        "context.py",
        (('return f"{self._key_base}/{name', 'return f"{name'),),
        ("test_context.py",),
    ),
    Mutation(
        "undo key is the effect's key",
        "context.py",
        (("detached(kwargs), None, 0.0, key\n", "detached(kwargs), None, 0.0, effect_key\n"),),
        ("test_sagas.py",),
    ),
    Mutation(
        "admission after the first step",
        "engine.py",
        (
            (
                "        if not self.journal.admit((row, [self._admission(row, found, text, "
                "**more)]), over, parent):\n            self._refuse_conflict(row, value)\n",
                "        self._late = (row, [self._admission(row, found, text, **more)]), over, "
                "parent\n",
            ),
            (
                "        run: Run | None = None\n",
                '        run = self.journal.admit(*vars(self).pop("_late")) and None\n',
            ),
        ),
        ("test_engine.py",),
    ),
    Mutation(
        "undo registered after the step",
        "context.py",
        (
            (
                "        self._fact(name, dict, EventKind.COMPENSATE, args=digest_arguments(args, "
                "kwargs)[0])\n",
                "        digest = digest_arguments(args, kwargs)[0]\n",
            ),
            ("        self._undos.append(undo)\n", "        self._late = name, digest, undo\n"),
            (
                "        return self._answer(name, found, call[7])\n\n    def _asked",
                '        if call[1] is _EFFECT and (late := vars(self).pop("_late", None)):\n'
                "            self._fact(late[0], dict, EventKind.COMPENSATE, args=late[1])\n"
                "            self._undos.append(late[2])\n"
                "        return self._answer(name, found, call[7])\n\n    def _asked",
            ),
        ),
        ("test_sagas.py",),
    ),
)


def verdict(mutation: Mutation) -> Verdict:
    """Run the tests of a mutation in a copy of the project that has it.

    Raises:
        ValueError: the text to replace isn't there, or more than once.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "durable_mini", copy / "durable_mini")
        shutil.copytree(ROOT / "tests", copy / "tests")
        shutil.copy(ROOT / "pyproject.toml", copy)
        _apply(mutation, copy / "durable_mini" / mutation.file)
        tests = [f"tests/{name}" for name in mutation.tests]
        options = ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-m", "not slow"]
        command = [sys.executable, "-m", "pytest", *_NO_PLUGINS, *options, *tests]
        done = subprocess.run(
            command,
            cwd=copy,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )
    red = re.search(r"^FAILED tests/(\S+)", done.stdout, re.MULTILINE)
    return Verdict(mutation, red[1] if red else None)


def _apply(mutation: Mutation, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for before, after in mutation.replacements:
        if text.count(before) != 1:
            raise ValueError(f"{mutation.name}: {before!r} stands {text.count(before)} times")
        text = text.replace(before, after)
    file.write_text(text, encoding="utf-8")


def main() -> int:
    """Print the table of all mutations."""
    unnoticed = 0
    print(f"{'mutation':32} {'in':22} turned red")
    for mutation in MUTATIONS:
        red = verdict(mutation).red
        unnoticed += red is None
        print(f"{mutation.name:32} {mutation.file:22} {red or 'NOTHING'}", flush=True)
    return min(unnoticed, 1)


if __name__ == "__main__":
    sys.exit(main())
