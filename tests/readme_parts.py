"""The parts of the README that are computed: tables between markers, and the picture.

python tests/readme_parts.py        # renews them; a test compares them
"""

from __future__ import annotations

from pathlib import Path

import code_lines

from durable_mini.lab.chapters import chapters_table, routes_table, titles_on_map
from durable_mini.lab.results import percent
from durable_mini.lab.run_pictures import course_map
from durable_mini.lab.simulation import simulate
from durable_mini.lab.theory import STRATEGIES, Quantity, exact

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PICTURE = ROOT / "course" / "course_map.png"

CRASH_RATE, RUNS, SEED = 0.08, 400, 0


def picture() -> bytes:
    """The drawn map, with the chapter of each place."""
    return course_map(titles_on_map()).png()


def parts() -> dict[str, str]:
    """The text of each marked part."""
    return {
        "course": chapters_table().replace("](", "](course/"),
        "routes": routes_table().replace("](", "](course/"),
        "results": _results_table(),
        "lines": code_lines.table(),
    }


def renewed(readme: str) -> str:
    """The README's text with every marked part computed anew.

    Raises: ValueError when a part's two markers aren't there, once each and in order.
    """
    for name, text in parts().items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        if readme.count(begin) != 1 or readme.count(end) != 1:
            raise ValueError(f"README.md needs {begin} and {end}, once each")
        before, rest = readme.split(begin)
        if end not in rest:
            raise ValueError(f"README.md has {end} before {begin}")
        readme = f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"
    return readme


def _results_table() -> str:
    setting = f"{RUNS} runs, {percent(CRASH_RATE)} chance of a crash at each step"
    rows = [f"| {setting} | cost per run | duplicate effects |", "| --- | --- | --- |"]
    for strategy in STRATEGIES:
        simulated = simulate(strategy, CRASH_RATE, RUNS, SEED)
        expected = exact(strategy, CRASH_RATE, RUNS)
        rows.append(
            f"| {strategy} | {_beside(simulated.cost, expected.cost, 2)} "
            f"| {_beside(simulated.duplicates, expected.duplicates, 0)} |"
        )
    return "\n".join(rows)


def _beside(simulated: Quantity, expected: Quantity, decimals: int) -> str:
    shown, formula, low, high = (
        f"{number:.{decimals}f}"
        for number in (simulated.mean, expected.mean, expected.low, expected.high)
    )
    return f"**{shown}** (formula {formula}; 95 % of such simulations give {low} to {high})"


if __name__ == "__main__":
    PICTURE.write_bytes(picture())
    README.write_text(renewed(README.read_text(encoding="utf-8")), encoding="utf-8")
