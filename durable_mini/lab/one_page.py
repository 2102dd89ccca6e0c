"""The sentences of the last chapter that carry figures, filled in from a run.

Guarantees: every figure comes from a simulation through the engine with the seed that it names, or
from the closed forms; the sentences themselves hold no digit. Sentences without figures stand in
the notebook. Leaves to others: whether simulated and exact agree (the notebook asserts it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from durable_mini.lab.results import DEFAULT_RATES, percent
from durable_mini.lab.shape import REFERENCE_SHAPE
from durable_mini.lab.simulation import simulate
from durable_mini.lab.theory import STRATEGIES, Quantity, Result, exact

USUAL_RATE, HIGH_RATE = 0.08, 0.20

ALOUD = """
**Why it pays.** I simulated {runs} runs of an agent with {steps} steps, {effects} of them effects,
at an assumed crash rate of {rate} a step. Without crashes a run costs {free}. Starting over costs
{restart_cost}, with a journal it is {journal_cost}. At {high_rate} the gap widens:
{restart_cost_high} against {journal_cost_high}.

**The dangerous moment** lies between an effect having happened and its journal write. Effects
repeated when runs start over: {restart_duplicates}; with a journal alone, still
{journal_duplicates}; with an idempotency key on each effect the books show {keyed_duplicates}. The
step does run again; the receiver drops the repeat. "Exactly once" is said of the effect, never of
the execution.

**Why not {free}?** A model call that was made and not recorded is made and paid again. No key helps
there.

**What the {keyed_duplicates} proves.** The same crashes without keys made {exposed} repeats, so
that is how often the receiver was put to the test. No failure in so many bounds the chance of one
at about {bound} (the rule of three); and that receivers honour keys was assumed, not found.
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run of every simulation gave, by strategy and crash rate."""

    runs: int
    seed: int
    found: Mapping[tuple[str, float], Result]

    @classmethod
    def from_run(cls, runs: int = 400, seed: int = 0) -> Figures:
        """Simulate every strategy at every crash rate of the tables."""
        found = {
            (strategy, rate): simulate(strategy, rate, runs, seed)
            for rate in DEFAULT_RATES
            for strategy in STRATEGIES
        }
        return cls(runs, seed, found)

    def aloud(self) -> str:
        """Return the sentences as Markdown."""
        exposed = self.found["journal", USUAL_RATE].duplicates.mean
        return ALOUD.format(
            runs=self.runs,
            steps=len(REFERENCE_SHAPE),
            effects=sum(spec.kind == "effect" for spec in REFERENCE_SHAPE),
            rate=percent(USUAL_RATE),
            high_rate=percent(HIGH_RATE),
            free=f"{exact('journal', 0.0).cost.mean:.1f}",
            restart_cost=self._said("restart", USUAL_RATE, "cost"),
            journal_cost=self._said("journal", USUAL_RATE, "cost"),
            restart_cost_high=self._said("restart", HIGH_RATE, "cost"),
            journal_cost_high=self._said("journal", HIGH_RATE, "cost"),
            restart_duplicates=self._said("restart", USUAL_RATE, "duplicates"),
            journal_duplicates=self._said("journal", USUAL_RATE, "duplicates"),
            keyed_duplicates=f"{self.found['journal+key', USUAL_RATE].duplicates.mean:.0f}",
            exposed=f"{exposed:.0f}",
            bound=percent(3 / max(exposed, 3)),  # the rule of three
        )

    def table(self) -> str:
        """Return all figures as a Markdown table: simulated with its interval, and exact."""
        head = f"| seed {self.seed}, {self.runs} runs | {' | '.join(STRATEGIES)} |"
        rows = [
            *(
                self._row(f"cost per run at {percent(rate)}", "cost", rate)
                for rate in DEFAULT_RATES
            ),
            self._row(f"restarts per run at {percent(USUAL_RATE)}", "restarts", USUAL_RATE),
            self._row(f"duplicates at {percent(USUAL_RATE)}", "duplicates", USUAL_RATE),
        ]
        return "\n".join([head, "| :--- | ---: | ---: | ---: |", *rows])

    def _row(self, label: str, quantity: str, rate: float) -> str:
        cells = [self._said(strategy, rate, quantity) for strategy in STRATEGIES]
        return f"| {label} | {' | '.join(cells)} |"

    def _said(self, strategy: str, rate: float, quantity: str) -> str:
        """Say one figure: `12.27 ± 0.65 (exact 12.15)`; a total is a whole number."""
        digits = 0 if quantity == "duplicates" else 2
        simulated: Quantity = getattr(self.found[strategy, rate], quantity)
        true: Quantity = getattr(exact(strategy, rate, self.runs), quantity)
        half = simulated.high - simulated.mean
        return f"{simulated.mean:.{digits}f} ± {half:.{digits}f} (exact {true.mean:.{digits}f})"
