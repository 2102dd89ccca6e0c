"""The ranks of the package's modules, and which module imports which, read from their source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "durable_mini"
ENGINE_RANKS = range(7)

# A module imports only from lower ranks, or from its own folder; a folder has one rank.
RANKS = {
    "errors": 0,
    "clock": 0,
    "events": 1,
    "codec": 1,
    "retry": 1,
    "journal": 2,
    "replay": 3,
    "structure": 3,
    "lease": 3,
    "context": 4,
    "engine": 5,
    "worker": 5,
    "": 6,  # durable_mini/__init__.py
    "ops": 7,
    "lab": 8,
    "school": 9,
    "bridges": 10,
    "cli": 11,
    "__main__": 12,
}
WITHIN_A_RANK = {"worker": "engine"}  # a worker drives an engine, which knows nothing of it


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name below `durable_mini` ("" is the package)."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path
    return found


def rank_of(name: str) -> int | None:
    """The rank of a module; None when the table doesn't know it."""
    return RANKS.get(name.partition(".")[0])


def folder_of(name: str) -> str:
    """The folder that a module shares with its siblings; "" for one at the top of the package."""
    first = name.partition(".")[0]
    return first if (PACKAGE / first / "__init__.py").exists() and first else ""


@cache
def imports(name: str, path: Path) -> tuple[tuple[str, int], ...]:
    """Each imported dotted name with its line, wherever in the module the import stands."""
    return tuple(_imports(name, path))


def _imports(name: str, path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, name, path)
            # `from durable_mini import x` may name a module as well as something inside one.
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


def _absolute(node: ast.ImportFrom, name: str, path: Path) -> str:
    if not node.level:
        return node.module or ""
    parts = ["durable_mini", *filter(None, name.split("."))]
    keep = len(parts) - node.level + (path.name == "__init__.py")
    return ".".join([*parts[:keep], *filter(None, [node.module])])


def inner(imported: str) -> str | None:
    """The package's module that an imported name leads to; None for a name from elsewhere."""
    if imported.partition(".")[0] != "durable_mini":
        return None
    known = modules()
    parts = imported.split(".")[1:]
    while ".".join(parts) not in known:
        parts.pop()
    return ".".join(parts)
