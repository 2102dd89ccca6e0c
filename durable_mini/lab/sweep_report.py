"""What a sweep found: an outcome for every byte, the counts of them, and what was wrong.

Guarantees: plain data that prints the same everywhere; a damaged copy can be made again from its
line. Leaves to others: damaging and opening (`sweep`), drawing (`crash_pictures`).
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

_SHOWN = 5


class Verdict(StrEnum):
    """What a damaged journal did."""

    WHOLE = "recovered"
    """It tells what was written there, up to the damage, and nothing else."""
    TORN = "torn last"
    """So it does, without a last line that isn't whole, whose bytes are kept aside."""
    REFUSED = "refused"
    """It says that it is damaged, and where, and tells nothing."""
    WRONG = "WRONG"
    UNTRIED = "not tried"


class Damage(NamedTuple):
    """One damaged copy: cut to `offset` bytes, or with the bits of `mask` flipped in one byte.

    `said` is what the journal answered, or what is wrong with its answer; `named` whether it says
    in which run and at which event the damage is.
    """

    offset: int
    mask: int
    verdict: Verdict
    said: str = ""
    named: bool = False

    def __str__(self) -> str:
        what = f"flip {self.offset} by {self.mask:#04x}" if self.mask else f"cut to {self.offset}"
        return f"{what}: {self.verdict}{f', {self.said}' if self.said else ''}"


def damaged(data: bytes, offset: int, mask: int = 0) -> bytes:
    """The bytes of a journal cut to `offset` bytes or, with a mask, with that byte flipped.

    >>> damaged(b"abc", 1), damaged(b"abc", 1, 0x20)
    (b'a', b'aBc')
    """
    if not mask:
        return data[:offset]
    return data[:offset] + bytes([data[offset] ^ mask]) + data[offset + 1 :]


@dataclass(frozen=True, repr=False)
class Sweep:
    """What `sweep_journal` found.

    Args:
        kind: "file" or "sqlite".
        size: of the journal, in bytes.
        cuts: the outcome of a cut to each length, from 0 to `size`.
        flips: the worst outcome of a flip of each byte.
        counts: how many cuts and how many flips had each outcome.
        wrong: the damaged copies that did what none may do.
        examples: of the refusals, one of each wording.
        named: how many refusals name the run and the event.
        resumed: how many recovered states were driven to their end.
        lines: where each transaction begins, and what it is; for a file journal.
        seconds: how long it took.
        notes: what wasn't tried.
    """

    kind: str
    size: int
    cuts: tuple[Verdict, ...]
    flips: tuple[Verdict, ...]
    counts: dict[str, Counter[Verdict]]
    wrong: tuple[Damage, ...]
    examples: tuple[Damage, ...]
    named: int
    resumed: int
    lines: tuple[tuple[int, str], ...]
    seconds: float
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return not self.wrong

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
        tried = ", ".join(f"{number:,} {how}s" for how, number in self._totals())
        bad = f"{len(self.wrong):,} of them WRONG" if self.wrong else "none of them wrong"
        return f"{self.kind} journal of {self.size:,} bytes: {tried}, {bad}."

    def _totals(self) -> Iterator[tuple[str, int]]:
        return ((how, sum(counted.values())) for how, counted in self.counts.items())

    def rows(self) -> list[tuple[str, ...]]:
        """The table: how many cuts and flips had each outcome."""
        shown = [verdict for verdict in Verdict if verdict is not Verdict.UNTRIED]
        return [
            (str(verdict), *(f"{counted[verdict]:,}" for counted in self.counts.values()))
            for verdict in shown
        ]

    def _told(self) -> Iterator[str]:
        refused = sum(counted[Verdict.REFUSED] for counted in self.counts.values())
        if refused:
            yield f"{self.named:,} of {refused:,} refusals name the run and the event."
        if self.resumed:
            yield f"{self.resumed:,} recovered states were resumed, and ended as recorded."
        yield from self.notes
        yield from map(str, self.wrong[:_SHOWN])

    def __str__(self) -> str:
        table = [("", *self.counts), *self.rows()]
        lines = [f"{name:<10}{''.join(f'{cell:>10}' for cell in cells)}" for name, *cells in table]
        return "\n".join([self.sentence, "", *lines, "", *self._told()])

    __repr__ = __str__  # what a notebook shows of it, too

    def _repr_html_(self) -> str:
        cell = "text-align: right; padding: 0.15em 0.9em 0.15em 0; font-weight: normal"
        titles = "".join(f'<th scope="col" style="{cell}">{how}</th>' for how in ("", *self.counts))
        body = "".join(
            f'<tr><th scope="row" style="{cell}">{row[0]}</th>'
            + "".join(f'<td style="{cell}">{number}</td>' for number in row[1:])
            + "</tr>"
            for row in self.rows()
        )
        told = "".join(f"<br>{html.escape(line)}" for line in self._told())
        return (
            f'<p style="margin: 0.4em 0">{html.escape(self.sentence)}{told}</p><table><thead><tr>'
            f"{titles}</tr></thead><tbody>{body}</tbody></table>"
        )
