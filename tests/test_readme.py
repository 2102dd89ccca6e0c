"""The README: two commands of one line, links that lead somewhere, figures from the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import readme_parts

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


def test_tables_are_those_that_the_code_gives() -> None:
    assert readme_parts.renewed(README) == README, "Next: python tests/readme_parts.py"


def test_picture_is_the_one_that_the_code_draws() -> None:
    assert readme_parts.PICTURE.read_bytes() == readme_parts.picture(), (
        "Next: python tests/readme_parts.py"
    )


EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_first_run_of_your_own_runs(tmp_path: Path) -> None:
    example, _ = EXAMPLES
    script = tmp_path / "first.py"
    script.write_text(example, encoding="utf-8")

    for _ in range(2):  # the second time the run has ended, and is only told
        done = subprocess.run(
            [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert "12 for a book, under order-1/charge" in done.stdout


@pytest.mark.slow
def test_crash_lab_of_the_readme_finds_nothing_wrong(tmp_path: Path) -> None:
    _, example = EXAMPLES
    script = tmp_path / "lab.py"
    script.write_text(example, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "every one ends as without a crash" in done.stdout
    assert "flips, none of them wrong" in done.stdout
    assert "exhibits break the laws that they are expected to break, and no other" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
