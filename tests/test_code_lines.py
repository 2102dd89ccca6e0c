"""The engine can be read in one sitting: its lines of code are counted, printed and limited."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import code_lines
import pytest

LIMIT = 1_750


def test_engine_stays_below_its_limit(figure: Callable[[str], None]) -> None:
    counted = code_lines.counted()
    total = sum(counted.values())
    for name, lines in counted.items():
        figure(f"{lines:6} lines of code in {name}")
    figure(f"{total:6} lines of code in the engine (limit {LIMIT})")

    assert total < LIMIT


def test_engine_lines_fit_in_a_hundred_columns() -> None:
    long = [
        f"{path}:{number}"
        for path in code_lines.engine_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > code_lines.MAX_COLUMNS
    ]

    assert long == []


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.py", '"""Says\n\nwhat."""\n\nimport os  # why\n\n# a comment\n', 1),
        (
            "a.py",
            'def f():\n    """Does."""\n    return (\n        1,  # one\n\n        2,\n    )\n',
            5,
        ),
        ("a.py", 'LIMIT = 3\n"""What it limits,\nand why."""\n', 1),
        ("a.py", 'SQL = """\n-- a comment in a string is part of it\n\nSELECT 1\n"""\n', 4),
        ("a.py", "x = 1; y = 2\nz = x + \\\n    y\n", 3),
        ("a.sql", "-- a map\n\nCREATE TABLE t (\n    a INTEGER  -- why\n);\n", 3),
    ],
)
def test_count_leaves_out_blank_lines_comments_and_docstrings(
    tmp_path: Path, name: str, text: str, lines: int
) -> None:
    path = tmp_path / name
    path.write_text(text)

    assert code_lines.code_lines(path) == lines
