"""Looking at an engine's code while it runs, line by line, without asking it.

Guarantees: every line of code that is neither Python's own nor the kit's, in the thread that calls.
Leaves to others: what to make of it.
"""

from __future__ import annotations

import linecache
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

Look = Callable[[Callable[[], str]], bool]
"""Is handed a function that says where the engine is; returns whether to go on looking."""

_STDLIB, _KIT = sysconfig.get_path("stdlib"), str(Path(__file__).parent)


@contextmanager
def watching(look: Look) -> Iterator[None]:
    """Look before each line of the engine's code, and at each return; what watched before waits."""

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        if event in {"line", "return"} and not look(lambda: _place_in(frame, event)):
            sys.settrace(None)
        return on_line

    def on_call(frame: FrameType, *_: Any) -> Any:
        return on_line if _is_engine_code(frame.f_code) else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield
    finally:
        sys.settrace(before)


@cache
def _is_engine_code(code: CodeType) -> bool:
    name = code.co_filename
    if (name, code.co_name) == ("<string>", "<lambda>"):  # makes a named tuple
        return False
    return "site-packages" in name or not name.startswith((_STDLIB, _KIT, "<frozen"))


def place(event: str, name: str, line: str) -> str:
    """Where an engine is: at which event of the function of this name, before which line."""
    return f"as {name} returned" if event == "return" else f"in {name} before `{line.strip()[:70]}`"


def _place_in(frame: FrameType, event: str) -> str:
    code = frame.f_code
    return place(event, code.co_name, linecache.getline(code.co_filename, frame.f_lineno))
