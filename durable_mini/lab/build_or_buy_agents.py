"""Parts of the agents in `course/engines`, read from their files: what is shown is what runs.

Guarantees: an excerpt is the text of the file as it is now. Leaves to others: the agents, running
them (`engines`).
"""

from __future__ import annotations

import ast
from textwrap import dedent

from durable_mini.lab.course import source_folder

WORKFLOWS = {
    "durable_mini": "reference_agent",
    "DBOS": "reference_agent",
    "Temporal": "ReferenceAgent.run",
    "Restate": "run",
    "Absurd": "reference_agent",
    "LangGraph": "reference_agent",
    "huey": "reference_agent",
}
"""By the engine's name for people: what its file calls the workflow."""

KEYS = {
    "DBOS": "key",
    "Temporal": "key",
    "Restate": "run.key",
    "Absurd": "reference_agent.key",
    "LangGraph": "key",
}
"""What its file calls the function that makes a key of what the engine offers."""


def excerpt(engine: str, name: str) -> str:
    """Return a function or class of an engine's file, with its decorators.

    Args:
        engine: its name for people, as in `WORKFLOWS`.
        name: with a dot for what stands inside of another.

    Raises:
        KeyError: the file has nothing of that name.
    """
    path = source_folder() / "course" / "engines" / f"{engine.lower()}_agent.py"
    text = path.read_text(encoding="utf-8")
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        node = _inside(node, part)
    lines = text.splitlines()[_first_line(node) - 1 : getattr(node, "end_lineno", None)]
    return dedent("\n".join(lines))


def workflow_text(engine: str) -> str:
    """The workflow of an engine's file."""
    return excerpt(engine, WORKFLOWS[engine])


def key_text(engine: str) -> str:
    """What an engine's file makes a key of: the expression of its last line."""
    return (
        excerpt(engine, KEYS[engine]).splitlines()[-1].strip().removeprefix("return f").strip('"')
    )


def _inside(node: ast.AST, name: str) -> ast.AST:
    for child in ast.iter_child_nodes(node):
        if getattr(child, "name", None) == name:
            return child
    raise KeyError(name)


def _first_line(node: ast.AST) -> int:
    """Where a function begins, its decorators included."""
    own: int = getattr(node, "lineno", 1)
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([own, *(one.lineno for one in decorators)])
