"""Figures in answers: a template is filled in from runs of this machine, with the reader's seed.

Guarantees: a number comes from the closed form, from a simulation through the engine, from the real
experiment that travels with the course, or from the question's own demo; the same seed gives the
same text. Leaves to others: the templates (`bank`).

In a template (a filter binds tighter than arithmetic, hence the brackets):

    {{ exact("journal").cost | n(2) }}              closed form; 8 % unless a rate is given second
    {{ simulated("restart", 0.2).duplicates | whole }}    400 runs with the reader's seed
    {{ simulated("restart").cost | interval(2) }}         their 95 % interval: "11.50 to 12.80"
    {{ measured("journal+key").duplicates }}       the real experiment, by strategy
    {{ published("cost", "restart") }}                    the source's figure
    {{ demo.name }}                                       what the question's demo left
    {{ seed }}, {{ runs }}, {{ (1 / 0.92 ** 7) | n(2) }}  the setting, and arithmetic
"""

from __future__ import annotations

import contextlib
import io
import linecache
from collections.abc import Callable
from functools import cache
from typing import Any

import jinja2

from durable_mini.lab.chaos_shipped import shipped_experiments
from durable_mini.lab.results import PUBLISHED, percent
from durable_mini.lab.simulation import simulate
from durable_mini.lab.theory import Quantity, Result, exact
from durable_mini.school.bank import Question

RATE, RUNS = 0.08, 400


class Figures:
    """Fills in the templates of a bank.

    Args:
        seed: of the simulations.
        runs: how many a simulation has.
    """

    def __init__(self, seed: int = 0, runs: int = RUNS) -> None:
        self.seed, self.runs = seed, runs
        self._simulated = cache(self._simulate)
        self._templates = jinja2.Environment(
            undefined=jinja2.StrictUndefined,
            autoescape=False,  # noqa: S701 - whoever makes a page of an answer escapes the whole
        )
        self._templates.filters.update(n=_rounded, whole=_whole, interval=_interval, pct=_percent)
        self._templates.globals.update(
            exact=self._exact,
            simulated=self._simulated,
            measured=_measured,
            published=_published,
            seed=seed,
            runs=runs,
        )

    def answer(self, question: Question) -> str:
        """The worked answer."""
        return self.fill(question.answer, question)

    def fill(self, template: str, question: Question) -> str:
        """A template of a question's, with its figures.

        Raises:
            jinja2.TemplateError: it asks for what isn't there.
        """
        return self._templates.from_string(template).render(demo=_Demo(question))

    def _exact(self, strategy: str, crash_rate: float = RATE) -> Result:
        return exact(strategy, crash_rate, self.runs)

    def _simulate(self, strategy: str, crash_rate: float = RATE) -> Result:
        return simulate(strategy, crash_rate, self.runs, self.seed)


class _Demo:
    """The names that a question's demo leaves; it is executed when the first one is asked for."""

    def __init__(self, question: Question) -> None:
        self._question, self._left = question, dict[str, Any]()

    def __getattr__(self, name: str) -> Any:
        if not self._left:
            self._left.update(run_demo(self._question))
        return self._left[name]


def run_demo(question: Question) -> dict[str, Any]:
    """Execute a question's demo and return the names that it leaves; what it prints is dropped."""
    left: dict[str, Any] = {"__name__": f"demo of {question.id}"}
    name = f"<demo of {question.id}>"
    code = compile(question.demo, name, "exec")
    # An engine reads the source of a workflow, and this one stands in no file.
    linecache.cache[name] = (len(question.demo), None, question.demo.splitlines(True), name)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, left)  # noqa: S102 - the bank's own code, which a test executes too
    return left


def _measured(strategy: str) -> Any:
    return shipped_experiments()["large"].outcome(strategy)


def _published(quantity: str, strategy: str, crash_rate: float = RATE) -> float:
    return PUBLISHED[quantity][strategy, crash_rate]


def _value(number: float | Quantity) -> float:
    return number.mean if isinstance(number, Quantity) else number


def _rounded(number: float | Quantity, digits: int = 2) -> str:
    return f"{_value(number):.{digits}f}"


def _whole(number: float | Quantity) -> str:
    return f"{_value(number):,.0f}"


def _interval(number: Quantity, digits: int = 2) -> str:
    return f"{number.low:.{digits}f} to {number.high:.{digits}f}"


_percent: Callable[[float], str] = percent
