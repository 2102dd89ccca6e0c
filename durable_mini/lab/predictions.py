"""Predict first, compare afterwards: one click kept in the kernel, shown again beside the result.

Guarantees that nothing is asked of "Run all": nothing is ticked, nothing waits, nothing fails, and
what a committed notebook shows is the same whether or not anybody predicted. A prediction made
after its comparison was shown is still compared. Restarting the kernel forgets every prediction;
nothing is stored and nothing is graded.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ipywidgets as widgets

from durable_mini.lab.pictures import show_bundle
from durable_mini.lab.widgets import live_view


@dataclass
class _Question:
    """What the kernel knows of a question: its options, what was clicked, who wants to know."""

    options: tuple[str, ...]
    said: str | None = None
    on_change: Callable[[], None] = lambda: None


_questions: dict[str, _Question] = {}


class Prediction:
    """A question with its options to click on; see `predict`."""

    def __init__(self, question: str, options: Sequence[str], key: str) -> None:
        if len(set(options)) != len(options) or len(options) < 2:
            raise ValueError(f"question {key!r} needs two or more different options: {options}")
        known = _questions.get(key)
        if known is None or known.options != tuple(options):
            _questions[key] = _Question(tuple(options))
        self._kept = _questions[key]
        self._question = question
        buttons = widgets.RadioButtons(
            options=list(options), value=self._kept.said, layout=widgets.Layout(width="max-content")
        )
        buttons.observe(self._keep, names="value")
        title = widgets.HTML(f"<p><strong>Predict.</strong> {html.escape(question)}</p>")
        self._widget = widgets.VBox([title, buttons])

    def _keep(self, change: dict[str, str]) -> None:
        self._kept.said = change["new"]
        self._kept.on_change()

    def _ipython_display_(self) -> None:
        options = "".join(f"<li>{html.escape(option)}</li>" for option in self._kept.options)
        lines = [f"Predict. {self._question}", *(f"- {option}" for option in self._kept.options)]
        text = {
            "text/html": f"<p><strong>Predict.</strong> {html.escape(self._question)}</p>"
            f"<ul>{options}</ul>",
            "text/plain": "\n".join(lines),
        }
        show_bundle(live_view(self._widget) | text)


class Comparison:
    """The answer, and beside it what the reader had said; see `compare`."""

    def __init__(self, key: str, truth: str, why: str) -> None:
        if key not in _questions:
            raise ValueError(f"no question {key!r} was asked. Next: run its `predict` cell first")
        self._kept = _questions[key]
        if truth not in self._kept.options:
            raise ValueError(f"{truth!r} is none of the options of {key!r}: {self._kept.options}")
        self._truth, self._why = truth, why
        self._widget = widgets.HTML()
        self._kept.on_change = self._refresh
        self._refresh()

    def _refresh(self) -> None:
        said = self._kept.said
        if said is None:
            opening = ""
        elif said == self._truth:
            opening = f"You said <em>{html.escape(said)}</em>, and so it is. "
        else:
            opening = f"You said <em>{html.escape(said)}</em>. "
        self._widget.value = self._html(opening)

    def _html(self, opening: str) -> str:
        return (
            f'<p role="status" aria-live="polite" style="max-width: 62em; line-height: 1.4">'
            f"{opening}<strong>{html.escape(self._truth)}.</strong> {html.escape(self._why)}</p>"
        )

    def _ipython_display_(self) -> None:
        text = {"text/html": self._html(""), "text/plain": f"{self._truth}. {self._why}"}
        show_bundle(live_view(self._widget) | text)


def predict(question: str, options: Sequence[str], key: str) -> Prediction:
    """Ask for a prediction: one click, before the result is shown.

    Args:
        question: in plain text.
        options: two or more; none is ticked unless this kernel has already heard an answer.
        key: what `compare` calls the question.

    Raises:
        ValueError: for fewer than two different options.
    """
    return Prediction(question, options, key)


def compare(key: str, truth: str, why: str) -> Comparison:
    """Show the answer, the reason, and what the reader had predicted, if anything.

    Args:
        key: the question, whose `predict` cell has run.
        truth: the option that is right; take it from a computed result, so that it can't go stale.
        why: one sentence, in plain text.

    Raises:
        ValueError: for a question that wasn't asked, or a truth that isn't one of its options.
    """
    return Comparison(key, truth, why)


def explain(key: str, found: Callable[[], str], right: str, why: str) -> Comparison | None:
    """Compare as `compare` does, if the reader's own code came to what `why` explains.

    An explanation of a result that isn't there would teach a wrong thing, so a sentence says that
    it isn't, and the reason is left out.

    Args:
        key: the question, whose `predict` cell has run.
        found: gives what the reader's code came to; it may fail where that is missing.
        right: the option that right code comes to.
        why: as for `compare`.
    """
    try:
        came_to_it = found() == right
    except Exception:
        print("There is nothing to compare yet: fill in the exercise first.")
        return None
    if came_to_it:
        return compare(key, right, why)
    print("Your code came to something else than it should. The checks below say more.")
    return None
