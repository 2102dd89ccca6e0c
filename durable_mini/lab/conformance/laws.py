"""What a law is: a number, a sentence, and cases that each look at one side of it.

Guarantees: a law is judged case by case, so that an engine which is half right is told what holds.
Leaves to others: what the laws say (`replaying`, `failing`, `storing`, `waiting`, `undoing`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from durable_mini.lab.conformance.machine import Broken, Machine, SkippedError

Case = Callable[[Machine], None]


@dataclass(frozen=True)
class Law:
    """One law: its number, its sentence, the group it counts for, and what it needs of an engine.

    `needs` is one of `adapter.CAPABILITIES`; empty for the core.
    """

    number: int
    group: str
    title: str
    needs: str = ""
    cases: list[Case] = field(default_factory=list)

    def case(self, case: Case) -> Case:
        """Add a case; its docstring is its sentence."""
        self.cases.append(case)
        return case


@dataclass(frozen=True)
class Judged:
    """What became of a case: whether it holds (None: nobody can judge it here), and how so."""

    holds: bool | None
    said: str


def judge(case: Case, machine: Machine) -> Judged:
    """Try one case on a new machine.

    An engine that executes nothing at all keeps many a law; here it breaks them.
    """
    machine.new()
    executed = machine.body_count
    try:
        case(machine)
        machine.expect(machine.body_count > executed, "nothing was executed")
    except SkippedError as why:
        return Judged(None, str(why))
    except Broken as how:
        return Judged(False, str(how))
    return Judged(True, "")


def sentence(case: Case) -> str:
    """What a case says."""
    return " ".join((case.__doc__ or "").split()).rstrip(".")
