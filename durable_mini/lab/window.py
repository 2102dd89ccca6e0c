"""One worker that dies at the charge, seen from three places: journal, memory, outside ledger.

Guarantees: what is shown was photographed during a run of the reference agent through the real
engine, with one injected crash at the position asked for; nothing is staged. Leaves to others: the
drawing (`run_pictures`), stepping through it (`widgets`), crashes at other steps (`crashes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from durable_mini.engine import Engine
from durable_mini.events import Event, EventKind, Position
from durable_mini.journal.memory import MemoryJournal
from durable_mini.lab.agent import agent_in
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.lab.ledger import Ledger
from durable_mini.lab.run_pictures import Moment, three_views
from durable_mini.lab.theory import STRATEGIES
from durable_mini.lab.widgets import StepThrough, Values, choice

ORDER = "t-1"
POSITIONS = {
    Position.BEFORE: "before the work",
    Position.WINDOW: "in the crash window",
    Position.AFTER: "after the journal write",
}
"""Where the crash falls, in words, in the order in which a call passes the three places."""

_LINES = 9  # rows of the longest column: admission, seven steps, the end
_SECOND_BOOKING = 5  # the scene of the default story at which the bank books the charge again


@dataclass(frozen=True, slots=True)
class Scene:
    """One moment of the story, and what it means in plain text."""

    moment: Moment
    said: str


@dataclass(frozen=True, slots=True)
class Story:
    """A run with one crash at its charge, from shortly before until its end.

    Args:
        scenes: in order.
        executions: how often the charge was executed live.
        charges: how many of them the outside ledger holds.
        llm_cost: what the LLM billed.
    """

    scenes: tuple[Scene, ...]
    executions: int
    charges: int
    llm_cost: float


def crash_story(position: Position | str = "window", strategy: str = "journal") -> Story:
    """Run the reference agent with one crash at its charge, and tell what each place knew when.

    Args:
        position: where in the charge the worker dies: "before", "window" or "after".
        strategy: "restart" (nothing kept), "journal" (the receiver ignores keys), "journal+key".

    Raises:
        ValueError: for another position or strategy.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, not {strategy!r}")
    world = Ledger(honour_keys=strategy == "journal+key")
    keeps_journal = strategy != "restart"
    camera = _Camera(world, CrashAt("charge", Position(position)), keeps_journal=keeps_journal)
    agent = agent_in(world)
    kept = MemoryJournal()
    for attempt in (1, 2):
        run_id = ORDER if keeps_journal else f"{ORDER}.{attempt}"
        journal = kept if keeps_journal else MemoryJournal()
        engine = Engine(journal, [agent], probe=camera)
        engine.start(agent, ORDER, run_id=run_id)
        camera.follow(engine, run_id)
        try:
            engine.resume(run_id)
        except InjectedCrash as crash:
            camera.saw_death(crash)
    camera.saw_end()
    return Story(tuple(camera.scenes), camera.executions, _charges(world), world.spent)


def crash_explorer() -> StepThrough[Scene]:
    """Return the step-through of chapter 03: where the crash falls by what is done."""
    by_words = {words: position for position, words in POSITIONS.items()}
    positions = sorted(by_words, key=lambda words: by_words[words] is not Position.WINDOW)
    strategies = sorted(STRATEGIES, key=lambda strategy: strategy != "journal")

    def scenes(values: Values) -> tuple[Scene, ...]:
        return crash_story(by_words[values["position"]], values["strategy"]).scenes

    return StepThrough(
        scenes,
        lambda scene: three_views(scene.moment, lines=_LINES),
        lambda scene: f"{scene.moment.title}. {scene.said}",
        choices=[
            choice("position", "the crash falls", positions),
            choice("strategy", "what is done", strategies),
        ],
        start=_SECOND_BOOKING,
    )


class _Camera:
    """A probe that photographs the three places around the charge, and lets one crash happen."""

    def __init__(self, world: Ledger, crash: CrashAt, *, keeps_journal: bool) -> None:
        self.scenes: list[Scene] = []
        self.executions = 0
        self._world, self._crash, self._keeps_journal = world, crash, keeps_journal
        self._history: Callable[[], list[Event]] = list
        self._attempt = 0
        self._held: dict[str, str] = {}  # the results in the worker's memory, and where from
        self._opened = False  # whether this attempt has made its first live call

    def follow(self, engine: Engine, run_id: str) -> None:
        """Turn to a new attempt: its memory will hold what replay hands it."""
        self._history = lambda: engine.history(run_id)
        self._attempt += 1
        self._opened = False
        recorded = [event.name for event in self._history()[1:]]
        self._held = dict.fromkeys(recorded, "replayed")

    def __call__(self, position: Position, kind: EventKind, name: str) -> None:
        if position is Position.BEFORE and not self._opened:
            self._opened = True
            if self._attempt > 1 and name != "charge":
                self._shoot("starts", self._said_at_start(name))
        if position is Position.WINDOW:
            self._held[name] = "executed, not recorded" if self._keeps_journal else "executed"
            self.executions += name == "charge"
        if position is Position.AFTER:
            self._held[name] = "executed"
        if name == "charge":
            self._shoot(*self._at_charge(position))
        self._crash(position, kind, name)

    def saw_death(self, crash: InjectedCrash) -> None:
        """Photograph what is left of an attempt that died."""
        self._shoot(
            f"dies {POSITIONS[crash.position]}",
            "The process is gone, and its memory with it. What is left: "
            f"{len(self._recorded())} events in the journal, {self._counted()} in the ledger.",
            alive=False,
        )

    def saw_end(self) -> None:
        """Photograph the finished run."""
        self._shoot(
            "completes the run",
            f"The ledger holds {self._counted()}. The charge was executed "
            f"{'once' if self.executions == 1 else 'twice'}. The LLM billed {self._world.spent:g}.",
        )

    def _at_charge(self, position: Position) -> tuple[str, str]:
        if position is Position.BEFORE:
            return "is about to charge", self._said_before()
        if position is Position.WINDOW:
            unknown = "; the journal doesn't know" if self._keeps_journal else ""
            return f"has called the bank{unknown}", self._said_in_window()
        if self._keeps_journal:
            return (
                "has recorded the charge",
                "The journal has it. From here on no attempt of this run executes it again.",
            )
        return "has charged", "The step is over, and nothing is recorded anywhere."

    def _said_before(self) -> str:
        if not self._keeps_journal:
            return "Three results are in this process's memory, and nowhere else."
        if self._attempt == 1:
            return "Three results are recorded. The bank has heard nothing yet."
        return (
            f"This new worker replayed {_listed(self._held)}. The journal has no charge, "
            "so charge is executed."
        )

    def _said_in_window(self) -> str:
        if self.executions == 1:
            return "The bank has booked the charge. Only the bank and this process know."
        if _charges(self._world) == 1:
            return (
                "The charge was executed again, with the key of the first time. "
                "The bank knows that key and books nothing."
            )
        return f"The charge was executed again, and booked again: {self._counted()}."

    def _said_at_start(self, name: str) -> str:
        if not self._keeps_journal:
            return "Nothing was kept. A new run of the same order begins with plan."
        return f"This new worker replayed {_listed(self._held)}. The next live step is {name}."

    def _shoot(self, what: str, said: str, *, alive: bool = True) -> None:
        rows = self._world.rows
        booked = [number for number, row in enumerate(rows) if row.endpoint == "charge"]
        moment = Moment(
            f"Attempt {self._attempt} {what}",
            tuple(self._recorded()),
            tuple(f"{name:<11}{source}" for name, source in self._held.items()) if alive else None,
            tuple(f"{row.endpoint:<11}{row.key}" for row in rows),
            frozenset(booked[1:]),
        )
        self.scenes.append(Scene(moment, said))

    def _recorded(self) -> list[str]:
        """Return the journal's rows; none where the strategy keeps no journal."""
        if not self._keeps_journal:
            return []
        return [
            f"{event.seq} {event.kind:<10}{event.name if event.seq > 1 else ''}".rstrip()
            for event in self._history()
        ]

    def _counted(self) -> str:
        charges = _charges(self._world)
        return f"{charges} charge" if charges == 1 else f"{charges} charges"


def _charges(world: Ledger) -> int:
    return sum(row.endpoint == "charge" for row in world.rows)


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
