"""What the kit found: one row for each law, as a table for people and as data for programs.

Guarantees: the same engine gives the same report, with no time and no path of this machine in it.
Leaves to others: judging.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

HOLDS, BROKEN, NOT_OFFERED, NOT_JUDGED = "holds", "BROKEN", "not offered", "not judged"
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one law.

    Args:
        law: its number.
        title: its sentence.
        group: what it counts for, such as "identity".
        verdict: "holds", "BROKEN", "not offered" (the engine doesn't have what the law is about)
            or "not judged" (no case of it could be tried here).
        required: whether the law has to hold for the report to be ok.
        passed: how many of its cases hold.
        of: how many cases were judged, or would have been.
        detail: of a broken law the smallest counter-example of its first broken case.
        holding: the sentences of the cases that hold.
        broken: the sentences of the cases that don't.
    """

    law: int
    title: str
    group: str
    verdict: str
    required: bool
    passed: int
    of: int
    detail: str
    holding: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the law stands in nobody's way."""
        return self.verdict in {HOLDS, NOT_JUDGED} or not self.required

    @property
    def counts(self) -> bool:
        """Whether it counts for the score."""
        return self.required and self.of > 0


@dataclass(frozen=True, slots=True)
class Report:
    """What the kit found out about an engine; `print` it, or let a notebook show it.

    Args:
        engine: the engine's name.
        rows: one for each law.
        kills: from how many killed processes another one went on.
        cuts: how many journals were cut or damaged. These two may differ a little between two
            checks of an engine that writes by itself from time to time, as with heartbeats.
    """

    engine: str
    rows: tuple[Row, ...]
    kills: int
    cuts: int

    @property
    def ok(self) -> bool:
        """Whether every law holds that the engine has to obey."""
        return all(row.ok for row in self.rows)

    @property
    def score(self) -> float:
        """The share of the cases that hold, from 0 to 1, each law counting alike."""
        return _share(self.rows)

    @property
    def groups(self) -> dict[str, float]:
        """The same for each group of laws that counts."""
        counted = [row for row in self.rows if row.counts]
        names = dict.fromkeys(row.group for row in counted)
        return {name: _share([row for row in counted if row.group == name]) for name in names}

    @property
    def broken(self) -> frozenset[int]:
        """The numbers of the laws that are broken."""
        return frozenset(row.law for row in self.rows if row.verdict == BROKEN)

    @property
    def verdict(self) -> str:
        """The whole in a sentence."""
        held = sum(row.verdict == HOLDS for row in self.rows)
        tried = sum(row.verdict in {HOLDS, BROKEN} for row in self.rows)
        missing = sum(row.verdict == NOT_OFFERED for row in self.rows)
        rest = f"; {missing} more are about what it doesn't offer" if missing else ""
        return f"{self.engine}: {held} of {tried} laws hold{rest}."

    def __str__(self) -> str:
        return "\n".join([self.verdict, "", *_table(self.rows), "", *_counter_examples(self.rows)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("law", "", "cases", "what it says"))
        rows = "".join(map(_html_row, self.rows))
        return (
            f"<p>{html.escape(self.verdict)}</p><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )


def _share(rows: Sequence[Row]) -> float:
    counted = [row for row in rows if row.counts]
    return sum(row.passed / row.of for row in counted) / len(counted) if counted else 0.0


def _table(rows: Sequence[Row]) -> list[str]:
    lines = [f"{'law':>3}  {'':11}  {'cases':>5}  what it says"]
    for row in rows:
        cases = f"{row.passed}/{row.of}" if row.verdict in {HOLDS, BROKEN} else ""
        lines.append(f"{row.law:>3}  {row.verdict:11}  {cases:>5}  {row.title}")
    return lines


def _counter_examples(rows: Sequence[Row]) -> list[str]:
    lines = []
    for row in rows:
        if row.verdict == BROKEN:
            lines += textwrap.wrap(f"Law {row.law}. {row.detail}", _WIDTH, subsequent_indent="  ")
    return lines


def _html_row(row: Row) -> str:
    cases = f"{row.passed}/{row.of}" if row.verdict in {HOLDS, BROKEN} else ""
    more = f"<br><small>{html.escape(row.detail)}</small>" if row.detail else ""
    text = html.escape(row.title) + more
    cells = (str(row.law), row.verdict, cases)
    start = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
    return f'<tr>{start}<td style="text-align:left">{text}</td></tr>'
