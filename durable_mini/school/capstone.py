"""Holding the learner's own engine to the laws, as the checks of exercise 11 do.

Guarantees: in a notebook the engine is the class that stands there, so prints and debuggers work;
graded, each of its processes is a process, and laws, bodies and disk stay with the checks. A right
engine comes through alike. Leaves to others: the laws (`lab.conformance`) and the points (the
notebook).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from random import Random
from typing import Any

from durable_mini.lab.conformance import LAWS, Law, Report, Row, check_engine
from durable_mini.lab.conformance.adapter import Factory
from durable_mini.lab.conformance.disguise import Disguise
from durable_mini.lab.conformance.drawn import TITLES, drawn_law
from durable_mini.school.exercise import Check, Exercise

ENGINE = "MyEngine"
REQUIRED = ("files", "fencing")
_WIDTH = 96
_FOLDER = re.compile(r"/[^\s'\"]*/tmp\w+/?")
_MARKS = ("Zoë", "ключ", "a/b", "№ 7", "x#2")


def hold(ex: Exercise, check: Check, law: int) -> None:
    """Hold the engine to one law.

    Raises:
        Missed: it breaks it; with the law's sentence and the smallest counter-example.
    """
    _expect(check, _checked(ex.engine(ENGINE), only=[law]))


def hold_drawn(ex: Exercise, check: Check, group: str, laws: Sequence[int] = ()) -> None:
    """Hold the engine to a group of laws with words and workflows that it can't know.

    Args:
        ex: the exercise.
        check: the check that asks.
        group: of the laws; one that has a drawn law of its own is held to that as well.
        laws: which of the numbered laws are repeated, in other words.

    Raises:
        Missed: it breaks one.
    """
    rng, factory = ex.rng(f"engine-{group}"), ex.engine(ENGINE)
    if group in TITLES:
        _expect(check, _checked(factory, laws=[drawn_law(group, rng)]))
    if laws:
        _expect(check, _checked(Disguise(factory, _mark(rng)), only=laws))


def _mark(rng: Random) -> str:
    return f"{rng.choice(_MARKS)}-{rng.randrange(10**6)}."


def _checked(factory: Factory, laws: Sequence[Law] = LAWS, only: Any = None) -> Report:
    return check_engine(factory, only=only, laws=laws, require=REQUIRED)


def _expect(check: Check, report: Report) -> None:
    row = next((row for row in report.rows if not row.ok), None)
    check.expect(row is None, _told(row) if row else "")


def counter_example(engine: Factory, law: int) -> str:
    """The smallest case in which an engine breaks a law, in words; or that it holds."""
    (row,) = check_engine(engine, only=[law], require=REQUIRED).rows
    return f"Law {law} holds." if row.ok else _told(row)


def _told(row: Row) -> str:
    """A broken law in words, without the path of the folder that played the disk."""
    law = f"Law {row.law}" if row.law else "A drawn workflow"
    held = f"{row.passed} of its {row.of} cases hold." if row.of > 1 else ""
    detail, _, how = _FOLDER.sub("", row.detail).partition(" How: ")
    lines = [f"{law}: {row.title} {held}".rstrip(), detail, f"How: {how}" if how else ""]
    return "\n".join(text for line in lines for text in textwrap.wrap(line, _WIDTH))
