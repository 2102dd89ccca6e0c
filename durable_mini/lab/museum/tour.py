"""A tour of the museum: every exhibit held to the laws, beside what it is expected to break.

Guarantees: `Tour` is data for a figure (laws by engines) and a table for people; the same each
time. Leaves to others: the laws (`conformance`), the drawing.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from durable_mini.lab.conformance import Report, check_engine
from durable_mini.lab.conformance.report import BROKEN, HOLDS


class Exhibit(Protocol):
    """An engine in the museum: a class whose docstring says what is wrong with it.

    `report` is where such a fault was seen, `breaks` are the laws that it breaks.
    """

    report: str
    breaks: frozenset[int]
    __name__: str
    __doc__: str | None

    def __call__(self, folder: Any, clock: Any) -> Any:
        """A process of the engine."""


@dataclass(frozen=True, slots=True)
class Tour:
    """What the kit found out about each exhibit.

    Args:
        exhibits: the engines.
        reports: one for each of them.
    """

    exhibits: tuple[Exhibit, ...]
    reports: tuple[Report, ...]

    @property
    def ok(self) -> bool:
        """Whether each breaks the laws that it is expected to break, and no other."""
        return all(
            exhibit.breaks == report.broken
            for exhibit, report in zip(self.exhibits, self.reports, strict=True)
        )

    @property
    def engines(self) -> tuple[str, ...]:
        """The names of the exhibits: the columns of `holds`."""
        return tuple(exhibit.__name__ for exhibit in self.exhibits)

    @property
    def laws(self) -> tuple[int, ...]:
        """The numbers of the laws: the rows of `holds`."""
        return tuple(row.law for row in self.reports[0].rows) if self.reports else ()

    @property
    def titles(self) -> tuple[str, ...]:
        """The sentences of the laws, in the order of `laws`."""
        return tuple(row.title for row in self.reports[0].rows) if self.reports else ()

    @property
    def holds(self) -> tuple[tuple[bool | None, ...], ...]:
        """For each law and each engine whether it holds; None where the engine doesn't offer it."""
        answers = {HOLDS: True, BROKEN: False}
        columns = [[answers.get(row.verdict) for row in report.rows] for report in self.reports]
        return tuple(zip(*columns, strict=True))

    def __str__(self) -> str:
        lines = [self._verdict, "", f"{'exhibit':24}  {'breaks':16}  what it does"]
        for exhibit, report in zip(self.exhibits, self.reports, strict=True):
            also = (
                "" if exhibit.breaks == report.broken else f" (expected {ranges(exhibit.breaks)})"
            )
            lines.append(
                f"{exhibit.__name__:24}  {ranges(report.broken) + also:16}  {fault(exhibit)}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{exhibit.__name__}</td><td>{ranges(report.broken)}</td>"
            f'<td style="text-align:left">{html.escape(fault(exhibit))}</td>'
            f'<td style="text-align:left">{html.escape(exhibit.report)}</td></tr>'
            for exhibit, report in zip(self.exhibits, self.reports, strict=True)
        )
        head = "".join(f"<th>{name}</th>" for name in ("exhibit", "breaks", "what it does", "seen"))
        return (
            f"<p>{self._verdict}</p><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )

    @property
    def _verdict(self) -> str:
        right = sum(e.breaks == r.broken for e, r in zip(self.exhibits, self.reports, strict=True))
        broken = frozenset[int]().union(*(report.broken for report in self.reports))
        return (
            f"{right} of {len(self.exhibits)} exhibits break the laws that they are expected to "
            f"break, and no other. Between them they break {len(broken)} of {len(self.laws)} laws."
        )


def tour(
    exhibits: Iterable[Exhibit],
    *,
    only: Iterable[int | str] | None = None,
    on_report: Callable[[Report], object] = lambda report: None,
) -> Tour:
    """Hold some exhibits to the laws.

    Args:
        exhibits: which; a second or three each.
        only: see `check_engine`; with it an exhibit may break less than it is expected to.
        on_report: called with each report as it is found, for a progress display.
    """
    visited, reports = tuple(exhibits), list[Report]()
    for exhibit in visited:
        reports.append(check_engine(exhibit, only=only))
        on_report(reports[-1])
    return Tour(visited, tuple(reports))


def fault(exhibit: Exhibit) -> str:
    """What is wrong with an exhibit, in a sentence."""
    return " ".join((exhibit.__doc__ or "").partition("\n\n")[0].split())


def ranges(numbers: frozenset[int]) -> str:
    """Numbers with their runs drawn together: "1, 4-6"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
