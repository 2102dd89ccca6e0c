"""Counts the engine's lines of code.

A line of code is one that is neither blank nor only a comment nor part of a docstring. SQL counts
as code, wherever it stands. The engine is what has a rank up to 6 in `layers.py`.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

from layers import ENGINE_RANKS, PACKAGE, modules, rank_of

MAX_COLUMNS = 100

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(path: Path) -> int:
    """Count the lines of code of one Python or SQL file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        lines = (line.strip() for line in text.splitlines())
        return sum(bool(line) and not line.startswith("--") for line in lines)
    return len(_python_rows(text) - _docstring_rows(text))


def _python_rows(text: str) -> set[int]:
    lines = text.splitlines()
    return {
        row
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NO_CODE
        for row in range(token.start[0], token.end[0] + 1)
        if lines[row - 1].strip()
    }


def _docstring_rows(text: str) -> set[int]:
    """The rows of each string that is a statement of its own: it does nothing but explain."""
    return {
        row
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
        for row in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def engine_files() -> list[Path]:
    """The files of ranks 0 to 6 in reading order, with the SQL that belongs to them."""
    python = [(rank_of(name), path) for name, path in modules().items()]
    engine = [(rank, path) for rank, path in python if rank in ENGINE_RANKS]
    folders = {path.parent for _, path in engine}
    sql = [(2, path) for folder in folders for path in folder.glob("*.sql")]
    return [path for _, path in sorted(engine + sql)]


def counted() -> dict[str, int]:
    """Lines of code by file, the file named as it stands in the package."""
    return {path.relative_to(PACKAGE).as_posix(): code_lines(path) for path in engine_files()}


def table() -> str:
    """The README's table: each file of the engine with its first sentence and its lines of code."""
    lines = counted()
    rows = [
        f"| [`{name}`](durable_mini/{name}) | {_first_sentence(PACKAGE / name)} | {count} |"
        for name, count in lines.items()
    ]
    total = f"| **the engine** | | **{sum(lines.values())}** |"
    return "\n".join(
        ["| file | what it does | lines of code |", "| --- | --- | ---: |", *rows, total]
    )


def _first_sentence(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        said = text.splitlines()[0].lstrip("- ")
    else:
        said = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
    return " ".join(said.split()).split(". ")[0].rstrip(".")
