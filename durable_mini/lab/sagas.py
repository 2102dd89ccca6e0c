"""The order of chapter 08: a saga in a shop, watched step by step, and 400 of them to their ends.

Guarantees: every saga runs through the real engine; how it ended is read from the run's status
*and* from the shop's books, and an end that doesn't fit the books is an error. Which sagas meet a
permanent failure depends on their number alone, so that two crash rates strike the same ones. A
crash may fall at every durable call that is executed, undos included, at each of its three
positions. Leaves to others: the drawing (`sagas_pictures`), real processes (`experiment`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, cast

from durable_mini.context import Context
from durable_mini.engine import Engine
from durable_mini.events import Event, EventKind, Position, RunStatus
from durable_mini.journal.memory import MemoryJournal
from durable_mini.lab.crashes import CrashPlan, InjectedCrash
from durable_mini.lab.exploring import ReversibleLedger
from durable_mini.lab.pictures import Cell, NumbersTable, Picture, numbers_table
from durable_mini.lab.run_pictures import Moment, three_views
from durable_mini.lab.sagas_pictures import Count, Shape, ends_picture
from durable_mini.lab.widgets import LivePicture, StepThrough, Values, choice, slider
from durable_mini.structure import Workflow, workflow

UNDOS = {"reserve": "release", "charge": "refund", "courier": "cancel"}
"""The steps that can be undone, in order, and how that is called."""

STEPS = (*UNDOS, "hand_over", "mail")
"""The order's steps; the point of no return lies before `hand_over`."""

SAGAS = 400
ORDER = "o-1"
_CHUNK = 25  # sagas between two looks at whether the reader has moved on


class ShopError(Exception):
    """The shop, the bank or the courier says no, and will say so each time."""


class Shop(ReversibleLedger):
    """What the order touches, with the books of all three companies.

    What takes effect is a row; so is an undo, whose endpoint begins with "undo ". An undo finds by
    its effect's key what there is to undo, and lets nothing come under that key any more.

    Attributes: `refuses`, the calls that fail for good, by name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refuses: set[str] = set()

    def reserve(self, order: str, *, idempotency_key: str) -> str:
        """Put the camera aside."""
        return self._do("reserve", order, idempotency_key)

    def charge_card(self, order: str, *, idempotency_key: str) -> str:
        """Charge the customer's card; returns the bank's own number of the payment."""
        self._do("charge", order, idempotency_key)
        return next(f"P-{n}" for n, row in enumerate(self.rows, 1) if row.key == idempotency_key)

    def book_courier(self, order: str, *, idempotency_key: str) -> str:
        """Have the parcel fetched tomorrow."""
        return self._do("courier", order, idempotency_key)

    def hand_over(self, order: str, *, idempotency_key: str) -> str:
        """Give the parcel away. It doesn't come back."""
        return self._do("hand_over", order, idempotency_key)

    def mail(self, order: str, *, idempotency_key: str) -> str:
        """Tell the customer that it is on its way."""
        return self._do("mail", order, idempotency_key)

    def release(self, order: str, *, idempotency_key: str, effect_key: str) -> str:
        """Put the camera back."""
        return self._undo("reserve", order, idempotency_key, effect_key)

    def refund(self, order: str, *, idempotency_key: str, effect_key: str) -> str:
        """Give the money back."""
        return self._undo("charge", order, idempotency_key, effect_key)

    def refund_payment(self, payment: str, *, idempotency_key: str, effect_key: str) -> str:
        """Give the money back, by the bank's own number of the payment."""
        row = self.rows[int(payment.removeprefix("P-")) - 1]
        return self._undo("charge", row.order, idempotency_key, row.key)

    def cancel(self, order: str, *, idempotency_key: str, effect_key: str) -> str:
        """Tell the courier to stay away."""
        return self._undo("courier", order, idempotency_key, effect_key)

    def standing(self, order: str = ORDER) -> list[str]:
        """What was done for an order and not undone."""
        rows = [row for row in self.rows if row.order == order]
        undone = {row.body for row in rows if row.endpoint.startswith("undo ")}
        done = [row for row in rows if not row.endpoint.startswith("undo ")]
        return [row.endpoint for row in done if row.key not in undone]

    def told(self) -> list[str]:
        """The books in short: what was done and undone, in order."""
        undos = {f"undo {step}": undo for step, undo in UNDOS.items()}
        return [undos.get(row.endpoint, row.endpoint) for row in self.rows]

    def _do(self, step: str, order: str, key: str) -> str:
        self._check(step)
        return self.post(step, order, 1, key)

    def _undo(self, step: str, order: str, key: str, effect_key: str) -> str:
        self._check(UNDOS[step])
        return self.take_back(step, order, idempotency_key=key, effect_key=effect_key)

    def _check(self, call: str) -> None:
        if call in self.refuses:
            raise ShopError(f"{call}: no, and it will stay no")


def order_in(shop: Shop) -> Workflow:
    """The order: three steps that can be undone, the point of no return, two that can't."""

    @workflow(name="order", version="1")
    def order(ctx: Context, number: str) -> str:
        ctx.compensate("reserve", shop.release, number)
        ctx.effect("reserve", shop.reserve, number)
        ctx.compensate("charge", shop.refund, number)
        ctx.effect("charge", shop.charge_card, number)
        ctx.compensate("courier", shop.cancel, number)
        ctx.effect("courier", shop.book_courier, number)
        ctx.point_of_no_return()
        ctx.effect("hand_over", shop.hand_over, number)
        ctx.effect("mail", shop.mail, number)
        return "on its way"

    return order


# ---- one saga, watched -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scene:
    """One moment of a saga, and what it means in plain text."""

    moment: Moment
    said: str


CRASHES: dict[str, tuple[Position, EventKind, str] | None] = {
    "nowhere": None,
    "in the charge's crash window": (Position.WINDOW, EventKind.EFFECT, "charge"),
    "between two undos": (Position.AFTER, EventKind.UNDO, "courier"),
    "in the refund's crash window": (Position.WINDOW, EventKind.UNDO, "charge"),
}
"""Where the worker of `saga_walk` may die, in words."""


def saga_scenes(dies: str = "nowhere") -> tuple[Scene, ...]:
    """Run an order whose courier says no, with one crash at most, and tell who knew what when.

    Args:
        dies: where the worker dies, one of `CRASHES`.

    Raises:
        KeyError: for another place.
    """
    shop = Shop()
    shop.refuses = {"courier"}
    camera = _Camera(shop, CRASHES[dies])
    order, journal = order_in(shop), MemoryJournal()
    engine = Engine(journal, [order], probe=camera)
    engine.start(order, ORDER, run_id=ORDER)
    camera.begin(engine)
    try:
        engine.resume(ORDER)
    except InjectedCrash:
        camera.shoot("dies", "The process is gone, and its list of undos with it.", alive=False)
        camera.begin(engine)
        engine.resume(ORDER)
    camera.shoot("has ended the run", "It ends as failed, and nothing of it stands outside.")
    return tuple(camera.scenes)


def saga_walk() -> StepThrough[Scene]:
    """Return the step-through of chapter 08: journal, list of undos and books, moment by moment."""
    return StepThrough(
        lambda values: saga_scenes(values["dies"]),
        lambda scene: three_views(scene.moment, lines=11),
        lambda scene: f"{scene.moment.title}. {scene.said}",
        choices=[choice("dies", "the worker dies", list(CRASHES))],
        start=8,
    )


class _Camera:
    """A probe that photographs the three places after each durable call, and lets one crash happen.

    The worker's list of undos is worked out as the engine keeps it: a registration adds to it, an
    undo that begins is taken off, and a new attempt finds what the journal says.
    """

    def __init__(self, shop: Shop, dies: tuple[Position, EventKind, str] | None) -> None:
        self.scenes: list[Scene] = []
        self._shop, self._dies = shop, dies
        self._engine: Engine | None = None
        self._attempt, self._undos = 0, list[str]()
        self._woken = False  # whether this attempt has made its first live call

    def begin(self, engine: Engine) -> None:
        """Turn to a new attempt."""
        self._engine, self._woken = engine, False
        self._attempt += 1
        events = engine.history(ORDER)
        done = {event.name for event in events if event.kind is EventKind.UNDO}
        registered = [event.name for event in events if event.kind is EventKind.COMPENSATE]
        self._undos = [name for name in registered if name not in done]

    def __call__(self, position: Position, kind: EventKind, name: str) -> None:
        if position is Position.BEFORE and not self._woken:
            self._woken = True
            if self._attempt > 1:
                told = "Replay has registered the undos again, from the journal alone."
                self.shoot("replays", told)
        undoing = kind is EventKind.UNDO
        if position is Position.BEFORE and undoing:
            self._undos = [other for other in self._undos if other != name]
        if position is Position.AFTER and kind is EventKind.COMPENSATE:
            self._undos.append(name)
        dies = (position, kind, name) == self._dies
        if position is Position.AFTER:
            self.shoot(*self._recorded(kind, name))
        elif dies:
            self.shoot(f"has made the call: {_act(kind, name)}", "No journal knows of it yet.")
        if dies:
            self._dies = None
            raise InjectedCrash(position, kind, name)

    def _recorded(self, kind: EventKind, name: str) -> tuple[str, str]:
        if kind is EventKind.COMPENSATE:
            return f"registers the undo of {name}", f"Nothing has been asked of {name} yet."
        if kind is EventKind.UNDO:
            return f"has undone: {_act(kind, name)}", self._undone(name)
        if name in self._shop.refuses:
            return f"is refused: {name}", "For good. From here on the run goes backwards."
        return f"has done: {name}", "From here on there is something to undo."

    def _undone(self, name: str) -> str:
        if name in self._shop.refuses:
            return "There was nothing to undo, and that is success."
        left = f"{len(self._undos)} left to undo." if self._undos else "Nothing is left to undo."
        return f"Taken back; {name} happened, and so did its undo. {left}"

    def shoot(self, what: str, said: str, *, alive: bool = True) -> None:
        """Photograph what each place knows now."""
        events = [] if self._engine is None else self._engine.history(ORDER)
        rows = [f"{event.seq:>2} {_row(event.kind, event.name, event.payload)}" for event in events]
        undos = tuple(f"to undo: {UNDOS[name]}" for name in reversed(self._undos))
        memory = (undos or ("(nothing to undo)",)) if alive else None
        moment = Moment(
            f"Attempt {self._attempt} {what}", tuple(rows), memory, tuple(self._shop.told())
        )
        self.scenes.append(Scene(moment, said))


def _act(kind: EventKind, name: str) -> str:
    return UNDOS[name] if kind is EventKind.UNDO else name


def _row(kind: EventKind, name: str, payload: Any) -> str:
    """One line of the journal, as the picture shows it."""
    if kind in {EventKind.ADMITTED, EventKind.FAILED}:
        return str(kind)
    failed = "  refused" if "error" in payload else ""
    return f"{kind:<11}{_act(kind, name)}{failed}"


def history_table(history: Sequence[Event], caption: str = "") -> NumbersTable:
    """Return a saga's journal as a table: what was registered, done, undone, and what failed."""
    rows: list[dict[str, Cell]] = [
        {"event": event.seq, "kind": str(event.kind), "name": event.name, "says": _says(event)}
        for event in history
    ]
    return numbers_table(rows, caption)


def _says(event: Event) -> str:
    payload = event.payload
    if payload.get("error"):
        return f"{payload['error']['type']}: {payload['error']['message']}"
    result = payload.get("result")
    return result if isinstance(result, str) else ""


# ---- four hundred, to their ends ---------------------------------------------------------------


class End(StrEnum):
    """How a saga ended."""

    COMPLETED, UNDONE, PERSON, LOST = "completed", "undone", "handed to a person", "left half-way"


@dataclass(frozen=True, slots=True)
class Setting:
    """What happens to the sagas.

    Args:
        crash_rate: chance that a durable call which is executed crashes its worker, in [0, 1).
        fails_at: the step that fails for good, counted from 1; 0 is none.
        undo_fails: the undo that fails for good, counted as its step; 0 is none.
        chance: of each of the two, for each saga, in [0, 1].
        durable: whether the undos are in the journal, or in a `try` block of one process.
        sagas: how many.
        seed: of crashes and failures.

    Raises:
        ValueError: a step or an undo that there isn't, or a chance out of range.
    """

    crash_rate: float = 0.1
    fails_at: int = 3
    undo_fails: int = 2
    chance: float = 0.3
    durable: bool = True
    sagas: int = SAGAS
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.fails_at <= len(STEPS) or not 0 <= self.undo_fails <= len(UNDOS):
            raise ValueError(
                f"there are {len(STEPS)} steps and {len(UNDOS)} undos, "
                f"not {self.fails_at} and {self.undo_fails}"
            )
        if not 0 <= self.chance <= 1 or self.sagas < 1:
            raise ValueError(f"{self}: the chance is from 0 to 1, the sagas are 1 or more")

    @property
    def shape(self) -> Shape:
        """The saga as it is drawn, with what fails in it."""
        step = STEPS[self.fails_at - 1] if self.fails_at else ""
        undo = list(UNDOS)[self.undo_fails - 1] if self.undo_fails else ""
        return Shape(STEPS, UNDOS, step, undo)


@dataclass(frozen=True, slots=True)
class Ending:
    """How one saga ended: what stands outside, and how many attempts it took."""

    end: End
    standing: tuple[str, ...]
    attempts: int


@dataclass(frozen=True, slots=True)
class Endings:
    """How the sagas of one setting ended, in the order of their numbers."""

    setting: Setting
    endings: tuple[Ending, ...]

    def count(self, end: End) -> int:
        """How many ended like this."""
        return sum(ending.end is end for ending in self.endings)

    @property
    def counts(self) -> dict[End, int]:
        """How many ended in each way; nothing is left half-way where there is a journal."""
        ends = [end for end in End if not self.setting.durable or end is not End.LOST]
        return {end: self.count(end) for end in ends}

    @property
    def attempts(self) -> int:
        """How many attempts all of them took."""
        return sum(ending.attempts for ending in self.endings)


def end_states(setting: Setting | None = None, **changes: Any) -> Endings:
    """Drive the sagas of a setting until each has ended, and say how.

    Args:
        setting: what happens to them.
        **changes: fields of the setting that are other than by default, or than in `setting`.

    Raises:
        ValueError: see `Setting`.
        RuntimeError: a run's status and the shop's books contradict each other.
    """
    for found in _ending_all(replace(setting or Setting(), **changes)):
        if isinstance(found, Endings):
            return found
    raise AssertionError


class _Street:
    """Whatever shop is the next: one workflow serves all sagas, since reading it takes a while."""

    shop: Shop

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shop, name)


def _ending_all(setting: Setting) -> Iterator[float | Endings]:
    """As `end_states`, in pieces: the share that is done, and in the end what came of all."""
    plan = CrashPlan(setting.crash_rate, f"{setting.seed}/{setting.crash_rate}")
    street = _Street()
    order = order_in(cast(Shop, street))
    done: list[Ending] = []
    for number in range(setting.sagas):
        street.shop = _shop_for(setting, number)
        if setting.durable:
            done.append(_by_journal(order, street.shop, plan))
        else:
            done.append(_by_hand(street.shop, plan))
        if len(done) % _CHUNK == 0:
            yield len(done) / setting.sagas
    yield Endings(setting, tuple(done))


def _shop_for(setting: Setting, number: int) -> Shop:
    """A new shop, with what this saga will meet there: the same at every crash rate."""
    chance = random.Random(f"{setting.seed}/{number}").random
    unlucky, stuck = chance() < setting.chance, chance() < setting.chance
    shop, shape = Shop(), setting.shape
    shop.refuses = {
        *([shape.fails] if shape.fails and unlucky else []),
        *([UNDOS[shape.undo_fails]] if shape.undo_fails and stuck else []),
    }
    return shop


def _by_journal(order: Workflow, shop: Shop, plan: CrashPlan) -> Ending:
    """Resume a saga until it has ended, as workers do."""

    def probe(position: Position, _: EventKind, name: str) -> None:
        plan(position, EventKind.STEP, name)  # a plan spares what isn't a step; here nothing is

    engine = Engine(MemoryJournal(), [order], probe=probe)
    engine.start(order, ORDER, run_id=ORDER)
    while True:
        try:
            run = engine.resume(ORDER)
            break
        except InjectedCrash:
            continue
    ends = {
        RunStatus.COMPLETED: (End.COMPLETED, list(STEPS)),
        RunStatus.FAILED: (End.UNDONE, []),
        RunStatus.NEEDS_ATTENTION: (End.PERSON, shop.standing()),
    }
    end, expected = ends[run.status]
    if shop.standing() != expected or shop.repeats:
        raise RuntimeError(f"a saga is {run.status}, and {shop.told()} is in its books")
    return Ending(end, tuple(shop.standing()), run.attempts)


def _by_hand(shop: Shop, plan: CrashPlan) -> Ending:
    """The same saga in one process: the undos are in a list, and a crash ends it."""
    try:
        end = _try_block(shop, plan)
    except InjectedCrash:
        end = End.LOST
    return Ending(end, tuple(shop.standing()), 1)


def _try_block(shop: Shop, plan: CrashPlan) -> End:
    does: dict[str, Callable[..., str]] = {"charge": shop.charge_card, "courier": shop.book_courier}
    begun: list[str] = []

    def call(name: str, fn: Callable[..., str], **keys: str) -> None:
        plan(Position.BEFORE, EventKind.STEP, name)
        try:
            fn(ORDER, **keys)
        finally:
            plan(Position.WINDOW, EventKind.STEP, name)
        plan(Position.AFTER, EventKind.STEP, name)

    try:
        for step in STEPS:
            begun.append(step)
            call(step, does.get(step) or getattr(shop, step), idempotency_key=step)
    except ShopError:
        if begun[-1] not in UNDOS:
            return End.PERSON  # past the point of no return
    else:
        return End.COMPLETED
    try:
        for step in reversed(begun):
            undo = UNDOS[step]
            call(undo, getattr(shop, undo), idempotency_key=f"{step}~undo", effect_key=step)
    except ShopError:
        return End.PERSON
    return End.UNDONE


# ---- the slider --------------------------------------------------------------------------------

_JOURNAL, _TRY_BLOCK = "a journal", "a try block"


def ends_slider() -> LivePicture[Endings]:
    """Return the slider of chapter 08: 400 sagas, driven anew for every position."""
    known: dict[Setting, Endings] = {}

    def compute(values: Values) -> Iterator[float | Endings]:
        setting = setting_from(values)
        if setting not in known:
            for found in _ending_all(setting):
                if isinstance(found, float):
                    yield found
                else:
                    known[setting] = found
        yield known[setting]

    return LivePicture(
        [
            slider("crash_rate", "crash rate", 0.1, 0.0, 0.3, 0.01),
            slider("fails_at", "a step fails", 3, 0, len(STEPS), 1),
            slider("undo_fails", "an undo fails", 2, 0, len(UNDOS), 1),
            slider("percent", "in how many of 100", 30, 0, 100, 5),
            choice("memory", "undos kept in", [_JOURNAL, _TRY_BLOCK]),
        ],
        compute,
        draw_ends,
        ends_sentence,
    )


def setting_from(values: Values) -> Setting:
    """Return the setting that the controls' values stand for."""
    return Setting(
        values["crash_rate"],
        values["fails_at"],
        values["undo_fails"],
        values["percent"] / 100,
        durable=values["memory"] == _JOURNAL,
    )


def draw_ends(found: Endings) -> Picture:
    """Draw how the sagas of a setting ended."""
    setting = found.setting
    where = "journal" if setting.durable else "try block"
    title = f"{setting.sagas} sagas with a {where}, crash rate {setting.crash_rate:g}"
    counts = [Count(str(end), number) for end, number in found.counts.items()]
    return ends_picture(title, setting.shape, counts)


def ends_sentence(found: Endings) -> str:
    """Say how many sagas ended in which way, what stands outside, and what it took."""
    setting, parts = found.setting, []
    for end, number in found.counts.items():
        parts.append(f"{number} {end}")
    total = sum(found.counts.values())
    each = (
        "Every one has an end."
        if not found.count(End.LOST)
        else (
            f"Of the {found.count(End.LOST)} nobody knows: "
            f"{_charged(found)} have been charged and will get nothing."
        )
    )
    return (
        f"{_fails(setting)} Of {total} sagas: {', '.join(parts)}. {each} "
        f"It took {found.attempts:,} attempts.{_left(found)}"
    )


def _fails(setting: Setting) -> str:
    shape = setting.shape
    what = [f"{shape.fails} fails for good"] if shape.fails else []
    what += [f"{UNDOS[shape.undo_fails]} fails for good"] if shape.undo_fails else []
    if not what or not setting.chance:
        return "Nothing fails for good."
    both = ", each by a draw of its own" if len(what) == 2 else ""
    return f"In {setting.chance:.0%} of sagas {' and '.join(what)}{both}."


def _charged(found: Endings) -> int:
    lost = [ending for ending in found.endings if ending.end is End.LOST]
    return sum("charge" in e.standing and "hand_over" not in e.standing for e in lost)


def _left(found: Endings) -> str:
    """What a person finds who takes over."""
    left = Counter(ending.standing for ending in found.endings if ending.end is End.PERSON)
    if not left:
        return ""
    told = "; ".join(f"{_listed(what)} ({number})" for what, number in left.most_common())
    return f" What the person finds standing: {told}."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
