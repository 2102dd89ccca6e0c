"""Figures in answers: where each comes from, and that nothing missing goes unnoticed."""

from __future__ import annotations

import jinja2
import pytest

from durable_mini.lab.simulation import simulate
from durable_mini.lab.theory import exact
from durable_mini.school.bank import Question
from durable_mini.school.figures import Figures, run_demo


def question(answer: str, demo: str = "") -> Question:
    return Question(
        "q", "04_results", "number", 1, False, "?", "", answer, (), (), (), demo, {}, ()
    )


def filled(answer: str, seed: int = 3, runs: int = 40, demo: str = "") -> str:
    return Figures(seed, runs).answer(question(answer, demo))


def test_closed_form_is_the_labs() -> None:
    found = exact("restart", 0.2, 40).cost.mean
    assert filled('{{ exact("restart", 0.2).cost | n(2) }}') == f"{found:.2f}"


def test_simulation_has_the_readers_seed_and_runs() -> None:
    found = simulate("journal", 0.2, 40, 3).duplicates.mean
    assert filled('{{ simulated("journal", 0.2).duplicates | whole }}') == f"{found:.0f}"
    assert filled("{{ runs }} runs, seed {{ seed }}") == "40 runs, seed 3"


def test_interval_and_share_are_said_as_people_say_them() -> None:
    cost = simulate("restart", 0.08, 40, 3).cost
    low_high = f"{cost.low:.2f} to {cost.high:.2f}"
    assert filled('{{ simulated("restart").cost | interval(2) }}') == low_high
    assert filled("{{ 0.08 | pct }} {{ 1234.5 | whole }}") == "8 % 1,234"


def test_demo_runs_when_its_first_name_is_asked_for_and_once() -> None:
    demo = "import itertools, sys\nsys.quiz_count = getattr(sys, 'quiz_count', 0) + 1\nn = 5"
    assert filled("no name", demo=demo) == "no name"
    assert filled("{{ demo.n + demo.n }}", demo=demo) == "10"
    import sys

    assert sys.quiz_count == 1  # type: ignore[attr-defined]
    del sys.quiz_count  # type: ignore[attr-defined]


def test_demo_may_define_a_workflow_and_what_it_prints_is_dropped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    demo = (
        "from durable_mini import Engine, MemoryJournal, workflow\n"
        "@workflow(version='1')\ndef w(ctx, order):\n    return ctx.step('a', lambda: 4)\n"
        "print('hello')\nn = Engine(MemoryJournal(), [w]).run(w).result"
    )
    assert run_demo(question("", demo))["n"] == 4
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("template", ["{{ nothing }}", "{{ demo.x }}", '{{ exact("other").cost }}'])
def test_what_is_not_there_is_an_error(template: str) -> None:
    with pytest.raises((jinja2.TemplateError, KeyError, ValueError)):
        filled(template, demo="y = 1")


def test_same_seed_gives_the_same_text() -> None:
    template = '{{ simulated("restart").cost | n(4) }}'
    assert filled(template, seed=8) == filled(template, seed=8) != filled(template, seed=9)
