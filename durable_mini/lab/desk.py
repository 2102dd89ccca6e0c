"""The clock desk: a run that waits, a clock that is moved by hand, a box to send signals from.

Guarantees: whatever happens at a desk happened to a real run of the real engine, on a journal in
memory and a fake clock. Nothing wakes the run but `work`, which lets a worker look for what is due.
The same acts on a new desk give the same journal, so the widget plays them all again for each
picture and can take the last one back. Leaves to others: the drawing (`desk_pictures`), how widgets
behave (`widgets`), journals that outlive the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import ipywidgets as widgets

from durable_mini.clock import FakeClock
from durable_mini.engine import Engine
from durable_mini.events import ENDED, Event, Run, RunStatus
from durable_mini.journal.memory import MemoryJournal
from durable_mini.lab.desk_pictures import DAY_S, Look, day_text, desk_picture
from durable_mini.lab.pictures import Picture
from durable_mini.lab.widgets import Control, LivePicture, Values, choice, slider
from durable_mini.structure import Workflow
from durable_mini.worker import Worker

RUN_ID = "r-1"


class Desk:
    """A run that was admitted on day 0, and all that can happen to it.

    Every act returns a sentence that says what came of it.

    Args:
        workflow: what runs.
        value: its input.
        outside: the list in which the world outside notes what reaches it; emptied first.
        children: further workflows that it starts.
    """

    def __init__(
        self,
        workflow: Workflow,
        value: Any = None,
        outside: list[str] | None = None,
        children: Sequence[Workflow] = (),
    ) -> None:
        self.outside = [] if outside is None else outside
        self.outside.clear()
        self.clock = FakeClock()
        self.engine = Engine(MemoryJournal(), [workflow, *children], clock=self.clock)
        self.engine.start(workflow, value, run_id=RUN_ID)
        self.looks: list[Look] = []

    @property
    def run(self) -> Run:
        """How the run stands."""
        return self.engine.describe(RUN_ID)

    @property
    def history(self) -> list[Event]:
        """Its journal."""
        return self.engine.history(RUN_ID)

    def advance(self, *, days: float = 0.0, hours: float = 0.0) -> str:
        """Let time pass. Nobody notices."""
        self.clock.advance(days * DAY_S + hours * 3600.0)
        return f"The clock was moved to {day_text(self.clock.now())}, and nobody noticed"

    def advance_to_due(self) -> str:
        """Let time pass until something is due; no time where nothing is."""
        now = self.clock.now()
        due = [row.due_at for row in self.engine.journal.rows() if row.due_at is not None]
        if not due:
            return "Nothing will become due by itself: the clock stays where it is"
        if min(due) <= now:
            return "Something is due already: the clock stays where it is until a worker comes by"
        self.clock.advance(min(due) - now)
        return self.advance()

    def work(self) -> str:
        """Let a worker come by, do what is due, and leave."""
        attempts = Worker(self.engine, "w-1").run_until_idle()
        self.looks.append(Look(self.clock.now(), attempts))
        if not attempts:
            return "A worker came by, found nothing due, and left without touching the run"
        return f"A worker came by, made {_counted(attempts, 'attempt')}, and left"

    def send(self, name: str, payload: Any, signal_id: str | None = None) -> str:
        """Send the run a signal: it is journalled, and nobody wakes up."""
        told = f"signal {name!r}" + (f" with id {signal_id!r}" if signal_id else "")
        if self.engine.signal(RUN_ID, name, payload, signal_id=signal_id):
            return f"The {told} was taken: it is in the journal, and nobody has read it yet"
        why = f"the run is {self.run.status}" if self.run.status in ENDED else "its id is known"
        return f"The {told} was not taken: {why}"

    def cancel(self) -> str:
        """Ask the run to stop."""
        if self.engine.cancel(RUN_ID):
            return (
                "The request to cancel is in the journal; the next worker that comes by acts on it"
            )
        return "The request to cancel was not taken: the run has ended, or was asked before"

    def standing(self) -> str:
        """Say how the run stands and what it waits for, in a few words."""
        run = self.run
        if run.status is RunStatus.SUSPENDED and run.waiting_for:
            what, _, until = run.waiting_for.partition(" until ")
            due = f" until {day_text(float(until))}" if until else ""
            due += ", which has come" if until and float(until) <= self.clock.now() else ""
            return f"suspended, waits for {what}{due}"
        if run.status is RunStatus.COMPLETED:
            return f"completed, result {run.result!r}"
        return str(run.status)

    def picture(self, known: int | None = None) -> Picture:
        """Draw the desk as it is now; events after the first `known` are marked as new."""
        known = len(self.history) if known is None else known
        title = f"{day_text(self.clock.now())}: {self.standing()}"
        told = (self.history, self.looks, self.clock.now(), self.outside)
        return desk_picture(title, *told, known=known)


Act: TypeAlias = Callable[[Desk], str]
"""Something that happens at a desk; it returns what came of it."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A desk after some acts: how many events there were before the last one, and what it did."""

    desk: Desk
    known: int
    said: str


class ClockDesk(LivePicture[Scene]):
    """A desk with buttons; see `clock_desk`."""

    def __init__(
        self,
        fresh: Callable[[], Desk],
        signals: Sequence[str],
        answers: Mapping[str, Any],
        acts: Sequence[Act],
    ) -> None:
        self.acts = list(acts)
        self._fresh, self._answers = fresh, answers
        signal_id = widgets.Text(value="", description="signal id", placeholder="none")
        signal_id.style.description_width = "9.5em"
        signal_id.layout.width = "16em"
        super().__init__(
            [
                choice("signal", "signal", signals),
                choice("answer", "says", list(answers)),
                Control("signal_id", signal_id, signal_id),
                slider("hours", "hours", 24, 1, 168, 1),
            ],
            self._play,
            lambda scene: scene.desk.picture(scene.known),
            lambda scene: scene.said,
            extra_row=self._buttons(),
        )

    def _buttons(self) -> widgets.Widget:
        made = {
            "Advance the clock": lambda: self.do(
                partial(Desk.advance, hours=float(self.values["hours"]))
            ),
            "To the next due time": lambda: self.do(Desk.advance_to_due),
            "A worker comes by": lambda: self.do(Desk.work),
            "Send the signal": lambda: self.do(self._signal()),
            "Cancel the run": lambda: self.do(Desk.cancel),
            "Take back": self.take_back,
            "New run": self.begin_again,
        }
        self.buttons = {name: _button(name, does) for name, does in made.items()}
        return widgets.HBox(
            list(self.buttons.values()), layout=widgets.Layout(flex_flow="row wrap")
        )

    def _signal(self) -> Act:
        values = self.values
        payload = self._answers[values["answer"]]
        return partial(
            Desk.send,
            name=values["signal"],
            payload=payload,
            signal_id=values["signal_id"].strip() or None,
        )

    def do(self, act: Act) -> None:
        """Let something happen, and show what came of it."""
        self.acts.append(act)
        self._moved()

    def take_back(self) -> None:
        """Undo the last act, if there is one."""
        del self.acts[-1:]
        self._moved()

    def begin_again(self) -> None:
        """Put a new run on the desk."""
        self.acts.clear()
        self._moved()

    def _play(self, _values: Values) -> Iterable[Scene]:
        """Play all acts on a new desk: quick, and the same each time."""
        desk, known, said = self._fresh(), 0, "A new run was admitted; no worker has seen it yet"
        for act in list(self.acts):
            known = len(desk.history)
            said = act(desk)
        held = sum(look.attempts for look in desk.looks)
        tail = f"The run is {desk.standing()}. So far it took {_counted(held, 'attempt')}."
        yield Scene(desk, known, f"{said}. {tail}")


def clock_desk(
    workflow: Workflow,
    value: Any,
    outside: list[str],
    *,
    signals: Sequence[str],
    answers: Mapping[str, Any],
    acts: Sequence[Act] = (),
) -> ClockDesk:
    """Put a run on the desk: move its clock, send it signals, let a worker come by.

    Args:
        workflow: what runs; its effects note in `outside` what they do.
        value: its input.
        outside: the world outside; emptied for each run.
        signals: the names of the signals that can be sent.
        answers: the payloads that can be sent, by the words on their buttons.
        acts: what has happened when it opens; also what a page without a kernel shows.
    """
    return ClockDesk(lambda: Desk(workflow, value, outside), signals, answers, acts)


def _button(name: str, does: Callable[[], None]) -> widgets.Widget:
    button = widgets.Button(description=name, layout=widgets.Layout(width="auto"))
    button.on_click(lambda _button: does())
    return button


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
