"""The page to take along: its sentences with figures, filled in from runs, and how it is printed.

Guarantees: every figure comes from a simulation through the engine with the seed that it names,
from the closed forms, or from the experiment with real kills that travels with the course; the
sentences themselves hold no digit. Printed (JupyterLab's *File → Print*, which is nbconvert's
page, or the page of the site) the notebook is one sheet, A4 or Letter, with no text below 9.5
points: tests print it. What needs no figure stands in the notebook. Leaves to others: whether
simulated and exact agree (the notebook asserts it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from durable_mini.lab.chaos_shipped import Shipped, shipped_experiments
from durable_mini.lab.results import DEFAULT_RATES, percent
from durable_mini.lab.sagas import End, Endings, end_states
from durable_mini.lab.shape import REFERENCE_SHAPE
from durable_mini.lab.simulation import simulate
from durable_mini.lab.theory import STRATEGIES, Quantity, Result, exact

USUAL_RATE, HIGH_RATE, SAGA_RATE = 0.08, 0.20, 0.10

ALOUD = """
**Why it pays.** Simulated: {runs} runs of an agent with {steps} steps, {effects} of them effects,
crash rate {rate} a step (assumed), cost {free} without a crash. Starting over costs
{restart_cost}, a journal {journal_cost}. At {high_rate} the gap widens: {restart_cost_high}
against {journal_cost_high}. Real workers, {kills} of them killed: starting over {real_restart}, a
queue with retries {real_queue}, a journal {real_journal}.

**The dangerous moment** lies between an effect and its journal write. Effects repeated when
starting over: {restart_duplicates}; with a journal alone still {journal_duplicates}; with an
idempotency key on each effect the books show {keyed_duplicates}. The step does run again, the
receiver drops the repeat: "exactly once" is said of the effect, never of the execution. *Why not
{free}?* A model call that wasn't recorded is made and paid again, and no key helps there.

**What the {keyed_duplicates} proves.** Without keys the same crashes made {exposed} repeats. None
in so many bounds the chance of one at about {bound} (rule of three); that receivers honour keys
was assumed.
"""

SAGAS_ALOUD = """
**Sagas** undo what no retry can mend, in reverse order, by idempotent steps that were registered
*before* the deed. No rollback: others see the middle. Of {sagas} under crashes and failures
(assumed) {completed} completed, {undone} were undone, {person} went to a person. It is best
effort, so what can't be undone comes last, after an approval.
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run of every simulation gave: by strategy and crash rate, and of the sagas."""

    runs: int
    seed: int
    found: Mapping[tuple[str, float], Result]
    sagas: Endings
    real: Shipped

    @classmethod
    def from_run(cls, runs: int = 400, seed: int = 0) -> Figures:
        """Simulate every strategy at every crash rate of the tables, and as many sagas."""
        found = {
            (strategy, rate): simulate(strategy, rate, runs, seed)
            for rate in DEFAULT_RATES
            for strategy in STRATEGIES
        }
        sagas = end_states(crash_rate=SAGA_RATE, sagas=runs, seed=seed)
        return cls(runs, seed, found, sagas, shipped_experiments()["large"])

    def aloud(self) -> str:
        """Return the sentences on cost and duplicates as Markdown."""
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
            kills=f"{sum(one.kills for one in self.real.report.strategies):,}",
            **{f"real_{name}": self._measured(name) for name in ("restart", "queue", "journal")},
        )

    def sagas_aloud(self) -> str:
        """Return the sentences on sagas as Markdown."""
        return SAGAS_ALOUD.format(
            sagas=len(self.sagas.endings),
            completed=self.sagas.count(End.COMPLETED),
            undone=self.sagas.count(End.UNDONE),
            person=self.sagas.count(End.PERSON),
        )

    def table(self) -> str:
        """Return the simulated figures as a Markdown table, with interval and exact value."""
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

    def _measured(self, strategy: str) -> str:
        return f"{self.real.outcome(strategy).measured()['cost']:.2f}"


# ---- on paper ----------------------------------------------------------------------------------

PRINT_PT = 9.6  # a little above what is promised, since browsers round

NOT_PRINTED = ("figures", "on-paper", "check-figures", "onwards")
"""The cells that stay on the screen, by their ids."""

_PRINT_CSS = """
@page { margin: 9mm; }
body { margin: 0; padding: 0 !important; }
nav, header, footer, %(hidden)s, %(title)s :is(p, ol) { display: none !important; }
main { columns: 2; column-gap: 6mm; column-fill: auto; }
main, main * {
  font-family: "Times New Roman", "Liberation Serif", Tinos, Times,
    "DejaVu Serif Condensed", serif !important;
  font-size: %(size)spt !important; line-height: 1.2 !important; color: #000 !important;
  max-width: none !important; text-decoration: none !important; overflow: visible !important;
  margin: 0 !important; padding: 0 !important; background: none !important;
}
main code { font-family: "Courier New", "Liberation Mono", monospace !important; }
main .jp-Cell { border: none !important; }
.jp-CodeCell > .jp-Cell-inputWrapper, .jp-Cell .jp-InputPrompt, .jp-Cell .jp-OutputPrompt,
.anchor-link, main details, main .highlight { display: none !important; }
%(title)s { column-span: all; }
[id="cell-id=ten-design-rules"] { break-before: column; }
main a { white-space: nowrap; }
main :is(h1, h2) { font-weight: bold !important; break-after: avoid; }
main h1, main h1 * { font-size: 14pt !important; }
main h2, main h2 * { font-size: 11pt !important; }
main h2 { margin-top: 1.5mm !important; border: none !important; }
main h2 { border-bottom: 0.4pt solid #000 !important; }
main p { margin-bottom: 0.9mm !important; }
main table { width: 100%% !important; table-layout: auto !important; border-collapse: collapse; }
main thead { display: none; }
main tr { border: none !important; border-bottom: 0.3pt solid #999 !important; }
main tr { break-inside: avoid; }
main tr:first-child { border-top: none !important; }
main td { text-align: left !important; vertical-align: top !important; }
main td { padding: 0.25mm 1mm 0.25mm 0 !important; }
main td:last-child { padding-right: 0 !important; }
main li { display: inline; }
main li:not(:last-child)::after { content: "\\a0•"; }
"""


class OnPaper:
    """What a page prints like: a style for the printer, and a sentence for the screen."""

    _SAID = "This notebook prints on one sheet: File → Print."

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        style = f"<style>@media print {{{print_css()}}}</style>"
        return {"text/html": f"{style}<p>{self._SAID}</p>", "text/plain": self._SAID}


def on_paper() -> OnPaper:
    """Put the style into the running cell's output."""
    return OnPaper()


def print_css() -> str:
    """Return the rules of the printed page, for the page that nbconvert makes of a notebook."""
    cells = {name: f'[id="cell-id={name}"]' for name in (*NOT_PRINTED, "title")}
    return _PRINT_CSS % {
        "hidden": ", ".join(cells[name] for name in NOT_PRINTED),
        "title": cells["title"],
        "size": PRINT_PT,
    }
