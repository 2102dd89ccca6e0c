"""The README: two commands of one line, links that lead somewhere, figures from the code."""

from __future__ import annotations

import re
from pathlib import Path

import code_lines
import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL)
BLOCKS = re.findall(r"^```(?:sh|bash|shell)\s*\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
LINKS = re.findall(r"!?\[[^\]]*\]\(([^)\s]+)", PROSE) + re.findall(r'(?:src|href)="([^"]+)"', PROSE)
HEADINGS = re.findall(r"^#+ (.+)$", PROSE, flags=re.MULTILINE)


@pytest.mark.parametrize(("block", "ends_in"), [(0, "durable-mini course"), (1, "pytest")])
def test_first_two_shell_blocks_are_one_line_each(block: int, ends_in: str) -> None:
    lines = BLOCKS[block].splitlines()

    assert len(lines) == 1
    assert lines[0].endswith(ends_in)


def test_both_commands_are_on_the_first_screen() -> None:
    assert README[: README.index(BLOCKS[1])].count("\n") < 40


@pytest.mark.parametrize("target", sorted(set(LINKS)))
def test_link_leads_somewhere(target: str) -> None:
    if re.match(r"[a-z]+:", target):
        assert target.startswith("https://")
        return
    name, _, anchor = target.partition("#")
    assert (ROOT / name).exists()
    if anchor and not name:
        assert anchor in {_github_anchor(heading) for heading in HEADINGS}


def _github_anchor(heading: str) -> str:
    plain = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
    return plain.strip().replace(" ", "-")


def test_every_picture_is_local_and_has_an_alt_text() -> None:
    pictures = re.findall(r"!\[([^\]]*)\]\(([^)\s]+)", PROSE)
    pictures += [
        (next(iter(re.findall(r'alt="([^"]*)"', tag)), ""), source)
        for tag, source in re.findall(r'(<img\b[^>]*src="([^"]+)"[^>]*>)', PROSE)
    ]

    assert pictures, "the first screen shows a picture"
    for alt, source in pictures:
        assert alt.strip(), source
        assert "//" not in source


def test_line_counts_are_those_of_the_code() -> None:
    assert code_lines.with_table(README) == README, "Next: python tests/code_lines.py"
