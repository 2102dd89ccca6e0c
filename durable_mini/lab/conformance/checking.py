"""Holding an engine to the laws.

Guarantees: each case begins with an empty disk and an untouched world; nothing of it is left over.
Leaves to others: the laws, and what the machine does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from durable_mini.lab.conformance import failing, replaying, storing, undoing, waiting
from durable_mini.lab.conformance.adapter import CAPABILITIES, Factory
from durable_mini.lab.conformance.laws import Judged, Law, judge, sentence
from durable_mini.lab.conformance.machine import Machine
from durable_mini.lab.conformance.report import BROKEN, HOLDS, NOT_JUDGED, NOT_OFFERED, Report, Row

_Name = TypeVar("_Name")
_MEMORY = "/dev/shm"  # noqa: S108 - Linux has a disk in memory there; processes die here, no machine

LAWS: tuple[Law, ...] = tuple(
    law
    for module in (replaying, failing, storing, waiting, undoing)
    for law in vars(module).values()
    if isinstance(law, Law)
)
"""Every law, in the order of their numbers."""


def check_engine(
    factory: Factory,
    *,
    require: Iterable[str] = (),
    only: Iterable[int | str] | None = None,
    laws: Sequence[Law] = LAWS,
    name: str | None = None,
    on_row: Callable[[Row], object] = lambda row: None,
) -> Report:
    """Hold an engine to the laws.

    Args:
        factory: called with a folder and a clock for each process of the engine; see `adapter`.
        require: what the engine has to offer beyond the core; otherwise a law about something that
            it doesn't offer stands in nobody's way.
        only: check only laws with these numbers or of these groups, such as "identity".
        laws: what it is held to; other laws than the kit's for a workload of your own (`drawn`).
        name: what the report calls the engine; the factory's name by default.
        on_row: called with each row as it is found, for a progress display.

    Returns:
        A report with `.ok`, `.rows`, `.score` and `.groups`.

    Raises:
        ValueError: there is no such capability, law or group.
    """
    required = _known(require, CAPABILITIES)
    names = {name for law in laws for name in (law.number, law.group)}
    wanted = names if only is None else _known(only, names)
    with TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as folder:
        machine = Machine(factory, Path(folder))
        rows = []
        with machine.surroundings.noting_syncs(machine.disk):
            for law in laws:
                if wanted & {law.number, law.group}:
                    rows.append(_row(law, machine, required))
                    on_row(rows[-1])
    title = name or str(getattr(factory, "__name__", type(factory).__name__))
    return Report(title, tuple(rows), machine.kill_count, machine.cut_count)


def _known(names: Iterable[_Name], known: Collection[_Name]) -> frozenset[_Name]:
    chosen = frozenset(names)
    if unknown := chosen - frozenset(known):
        raise ValueError(f"{next(iter(unknown))!r} is none of {', '.join(map(str, known))}")
    return chosen


def _row(law: Law, machine: Machine, required: frozenset[str]) -> Row:
    offered = not law.needs or law.needs in machine.offers
    about = law.number, law.title, law.group
    if not offered:
        why = f"the engine doesn't offer {law.needs!r}: {CAPABILITIES[law.needs]}"
        return Row(*about, NOT_OFFERED, law.needs in required, 0, len(law.cases), why)
    judged = [(sentence(case), judge(case, machine)) for case in law.cases]
    holding = tuple(said for said, one in judged if one.holds)
    broken = tuple(said for said, one in judged if one.holds is False)
    tried = len(holding) + len(broken)
    verdict = BROKEN if broken else HOLDS if tried else NOT_JUDGED
    return Row(*about, verdict, True, len(holding), tried, _detail(judged), holding, broken)


def _detail(judged: list[tuple[str, Judged]]) -> str:
    for number, (said, one) in enumerate(judged, start=1):
        if one.holds is False:
            return f"Case {number}, {said[0].lower()}{said[1:]}: {one.said}"
    skipped = [one.said for _, one in judged if one.holds is None]
    return f"One case wasn't judged: {skipped[0]}" if skipped else ""
