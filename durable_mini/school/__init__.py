"""The school: exercises that are graded, a class in one command, and the rehearsal.

Importing it loads nothing; each public name is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from durable_mini.school.bank import load_questions
    from durable_mini.school.classes import grade
    from durable_mini.school.quiz_widget import rehearse

__all__ = ["grade", "load_questions", "rehearse"]

_HOMES = {"grade": "classes", "load_questions": "bank", "rehearse": "quiz_widget"}


def __getattr__(name: str) -> Any:
    """Import what is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
