"""The detector lab: a run begun by one code and resumed by another, under five identity policies.

Guarantees: every outcome is that of a run. The first code makes some calls and dies; the changed
code goes on from the journal that is left, in the same shop; what the shop has in its books is
compared with what either code alone would have put there. `Replayer` is the engine of chapter 02
with the comparison as a parameter; `on_the_engine` does the same on `durable_mini`, for the two
policies that it has. Leaves to others: the pictures (`drift_pictures`), and code that stays as it
is in a world that doesn't (`leaks`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from durable_mini.context import Context
from durable_mini.engine import Engine
from durable_mini.errors import NonDeterminismError
from durable_mini.events import EventKind, Position
from durable_mini.journal.memory import MemoryJournal
from durable_mini.lab.crashes import InjectedCrash
from durable_mini.structure import structure, workflow

Code: TypeAlias = Callable[[Any, Any], Any]
"""A workflow of the lab: a context and a shop."""

State: TypeAlias = Literal["handed out", "executed", "refused", "ended"]
Verdict: TypeAlias = Literal["refused", "right", "wrong"]

RECORDED = 5
"""How many calls the first code gets recorded, unless something else is said: all but the last."""

_RUN_ID = "t-1"


class Call(NamedTuple):
    """A durable call: what the code asks for, and what a record was made for."""

    kind: str
    name: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} {self.args}"


class Record(NamedTuple):
    """One entry of the lab's journal."""

    call: Call
    result: Any


class Row(NamedTuple):
    """One thing that a shop has really done."""

    what: str
    facts: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.what} {', '.join(f'{key} {value}' for key, value in self.facts.items())}"


NONE, COUNT, NAME, KIND_NAME, ARGUMENTS = (
    "none",
    "count",
    "name",
    "kind + name",
    "kind + name + arguments",
)

POLICIES: dict[str, Callable[[Call], tuple[Any, ...]]] = {
    NONE: lambda call: (),
    COUNT: lambda call: (),
    NAME: lambda call: (call.name,),
    KIND_NAME: lambda call: (call.kind, call.name),
    ARGUMENTS: lambda call: (call.kind, call.name, call.args),
}
"""What of a call each policy compares. All but "none" also refuse records that are left over."""


# ---- the world, and the code of the run --------------------------------------------------------

_ANSWERS = {"price in EUR": 40, "weight in kg": 3, "weight in g": 3000, "fragile?": "no"}
_RESERVATION = 501
_SHELVES_OF_RESERVATIONS = {_RESERVATION: 7, 7: 2}  # number 7 is somebody else's


class Shop:
    """The world outside: a model to ask, an address book, shelves, and the books of what was done.

    It takes every request at its word: it doesn't know idempotency keys.

    Args:
        books: what was done before; the list is shared, as the world is.
    """

    lowest_shelf = 1

    def __init__(self, books: list[Row] | None = None) -> None:
        self.books = [] if books is None else books

    def ask(self, question: str) -> Any:
        """Ask the model."""
        return _ANSWERS[question]

    def look_up(self, customer: str) -> str:
        """The customer's address."""
        return "Elm Street 1" if customer == "Ann" else "Oak Street 9"

    def shelf_of(self, item: str) -> int:
        """The number of the shelf where the item lies: the seventh."""
        return 6 + self.lowest_shelf

    def reserve(self, item: str, *, idempotency_key: str) -> int:
        """Keep an item for this order; the number of the reservation."""
        self._book("reserve", item=item)
        return _RESERVATION

    def charge(self, price: Any, *, idempotency_key: str) -> str:
        """Charge the customer's card."""
        self._book("charge", price=price)
        return "paid"

    def ship(self, shelf: Any, weight: Any, address: Any, *, idempotency_key: str) -> str:
        """Send what lies on a shelf."""
        self._book("ship", shelf=shelf, weight=weight, address=address)
        return "sent"

    def ship_kept(self, number: Any, weight: Any, address: Any, *, idempotency_key: str) -> str:
        """Send what is kept under the number of a reservation."""
        shelf = _SHELVES_OF_RESERVATIONS.get(number, number)
        self._book("ship", shelf=shelf, weight=weight, address=address)
        return "sent"

    def _book(self, what: str, **facts: Any) -> None:
        self.books.append(Row(what, facts))


class ShopFromZero(Shop):
    """The shop after a deploy that counts shelves from 0, as the rest of the code knows."""

    lowest_shelf = 0

    def ship(self, shelf: Any, weight: Any, address: Any, *, idempotency_key: str) -> str:
        """Send what lies on a shelf, counted from 0; the books count from 1 as ever."""
        place = shelf + 1 if isinstance(shelf, int) else shelf
        self._book("ship", shelf=place, weight=weight, address=address)
        return "sent"


def begun(ctx: Any, shop: Any) -> None:  # the code that began the run
    price = ctx.step("ask", shop.ask, "price in EUR")
    weight = ctx.step("ask", shop.ask, "weight in kg")
    address = ctx.step("look_up", shop.look_up, "Ann")
    shelf = ctx.step("shelf", shop.shelf_of, "lamp")
    ctx.effect("charge", shop.charge, price)
    ctx.effect("ship", shop.ship, shelf, weight, address)


def renamed(ctx: Any, shop: Any) -> None:
    price = ctx.step("ask", shop.ask, "price in EUR")
    weight = ctx.step("ask", shop.ask, "weight in kg")
    address = ctx.step("find_address", shop.look_up, "Ann")  # <
    shelf = ctx.step("shelf", shop.shelf_of, "lamp")
    ctx.effect("charge", shop.charge, price)
    ctx.effect("ship", shop.ship, shelf, weight, address)


def reordered(ctx: Any, shop: Any) -> None:
    price = ctx.step("ask", shop.ask, "price in EUR")
    address = ctx.step("look_up", shop.look_up, "Ann")  # <
    weight = ctx.step("ask", shop.ask, "weight in kg")  # <
    shelf = ctx.step("shelf", shop.shelf_of, "lamp")
    ctx.effect("charge", shop.charge, price)
    ctx.effect("ship", shop.ship, shelf, weight, address)


def swapped(ctx: Any, shop: Any) -> None:
    weight = ctx.step("ask", shop.ask, "weight in kg")  # <
    price = ctx.step("ask", shop.ask, "price in EUR")  # <
    address = ctx.step("look_up", shop.look_up, "Ann")
    shelf = ctx.step("shelf", shop.shelf_of, "lamp")
    ctx.effect("charge", shop.charge, price)
    ctx.effect("ship", shop.ship, shelf, weight, address)


def argument_changed(ctx: Any, shop: Any) -> None:
    price = ctx.step("ask", shop.ask, "price in EUR")
    weight = ctx.step("ask", shop.ask, "weight in g")  # <
    address = ctx.step("look_up", shop.look_up, "Ann")
    shelf = ctx.step("shelf", shop.shelf_of, "lamp")
    ctx.effect("charge", shop.charge, price)
    ctx.effect("ship", shop.ship, shelf, weight / 1000, address)  # <


def kind_changed(ctx: Any, shop: Any) -> None:
    price = ctx.step("ask", shop.ask, "price in EUR")
    weight = ctx.step("ask", shop.ask, "weight in kg")
    address = ctx.step("look_up", shop.look_up, "Ann")
    number = ctx.effect("shelf", shop.reserve, "lamp")  # <
    ctx.effect("charge", shop.charge, price)
    ctx.effect("ship", shop.ship_kept, number, weight, address)  # <


def added(ctx: Any, shop: Any) -> None:
    price = ctx.step("ask", shop.ask, "price in EUR")
    ctx.step("ask", shop.ask, "fragile?")  # <
    weight = ctx.step("ask", shop.ask, "weight in kg")
    address = ctx.step("look_up", shop.look_up, "Ann")
    shelf = ctx.step("shelf", shop.shelf_of, "lamp")
    ctx.effect("charge", shop.charge, price)
    ctx.effect("ship", shop.ship, shelf, weight, address)


def removed(ctx: Any, shop: Any) -> None:
    price = ctx.step("ask", shop.ask, "price in EUR")
    address = ctx.step("look_up", shop.look_up, "Ann")
    shelf = ctx.step("shelf", shop.shelf_of, "lamp")
    ctx.effect("charge", shop.charge, price)
    ctx.effect("ship", shop.ship, shelf, 5, address)  # <


def body_changed(ctx: Any, shop: Any) -> None:
    price = ctx.step("ask", shop.ask, "price in EUR")
    weight = ctx.step("ask", shop.ask, "weight in kg")
    address = ctx.step("look_up", shop.look_up, "Ann")
    shelf = ctx.step("shelf", shop.shelf_of, "lamp")  # < from 0
    ctx.effect("charge", shop.charge, price)
    ctx.effect("ship", shop.ship, shelf, weight, address)  # <


@dataclass(frozen=True, slots=True)
class Drift:
    """A change of the code while a run is on its way.

    Args:
        name: what kind of change it is.
        says: the change in a few words.
        code: the code after the change.
        shop: the shop after the change, where that is what changed.
    """

    name: str
    says: str
    code: Code
    shop: type[Shop] = Shop


DRIFTS = {
    drift.name: drift
    for drift in (
        Drift("renamed", "a step gets another name", renamed),
        Drift("reordered", "two steps with different names swap places", reordered),
        Drift("same-name swap", "two steps with one name swap places", swapped),
        Drift("argument changed", "a question is asked in grams", argument_changed),
        Drift("kind changed", "finding the shelf becomes reserving it", kind_changed),
        Drift("added", "one more question of the same name", added),
        Drift("removed", "a question is dropped", removed),
        Drift("body changed", "shelves are counted from 0", body_changed, ShopFromZero),
    )
}
"""The changes of the lab, by name."""

BEGUN = Drift("begun", "the code that began the run", begun)
"""No change at all: the code that begins every run of the lab."""


# ---- the engine of chapter 02, with the comparison as a parameter ------------------------------


class Killed(BaseException):
    """The first worker is dead."""


@dataclass(frozen=True, slots=True)
class Look:
    """The resumed run at one durable call, or at its end.

    Args:
        state: what became of the call.
        line: the line of the code that made it, from 1; 0 at the end.
        event: the place in the journal, as the number of an event: the admission is event 1.
        asked: what the code asked for; None at the end.
        record: what the journal has there; None where it has nothing.
        result: what the code was handed.
        journal: all records, as they are then.
        books: what the shop has done, as of then.
    """

    state: State
    line: int
    event: int
    asked: Call | None
    record: Record | None
    result: Any
    journal: tuple[Record, ...]
    books: tuple[Row, ...]

    @property
    def mistaken(self) -> bool:
        """Whether the code was handed the record of another call."""
        return (
            self.state == "handed out"
            and self.record is not None
            and self.record.call != self.asked
        )


class Replayer:
    """A run as its code sees it: the n-th call belongs to the n-th record, if the policy agrees.

    Args:
        journal: the records so far; new ones are added to it.
        policy: one of `POLICIES`.
        die_after: die at the call for which there would be more records than these.
        books: the shop's, for the looks.

    Attributes: `looks`, what was seen at each call.
    """

    def __init__(
        self,
        journal: list[Record],
        policy: str,
        *,
        die_after: int | None = None,
        books: Sequence[Row] = (),
    ) -> None:
        self.looks: list[Look] = []
        self._journal, self._policy, self._die_after = journal, policy, die_after
        self._identity, self._books, self._place = POLICIES[policy], books, 0

    def step(self, name: str, fn: Callable[..., Any], *args: Any) -> Any:
        """A step, as in `Context.step`."""
        return self._answer(Call("step", name, args), lambda: fn(*args))

    def effect(self, name: str, fn: Callable[..., Any], *args: Any) -> Any:
        """An effect, as in `Context.effect`."""
        key = f"{_RUN_ID}/{name}"
        return self._answer(Call("effect", name, args), lambda: fn(*args, idempotency_key=key))

    def end(self) -> None:
        """The code has returned: under every policy but none, no record may be left.

        Raises:
            NonDeterminismError: one is.
        """
        record = self._record()
        if record is not None and self._policy != NONE:
            raise self._refusal(None, record)
        self._look("ended", None, record, None)

    def _answer(self, asked: Call, execute: Callable[[], Any]) -> Any:
        record = self._record()
        if record is not None and self._identity(record.call) != self._identity(asked):
            raise self._refusal(asked, record)
        state: State = "executed" if record is None else "handed out"
        if record is None:
            if self._place == self._die_after:
                raise Killed
            record = Record(asked, execute())
            self._journal.append(record)
        self._look(state, asked, record, record.result)
        self._place += 1
        return record.result

    def _record(self) -> Record | None:
        return self._journal[self._place] if self._place < len(self._journal) else None

    def _refusal(self, asked: Call | None, record: Record) -> NonDeterminismError:
        self._look("refused", asked, record, None)
        requested = "the end of the workflow" if asked is None else str(asked)
        facts = {"run_id": _RUN_ID, "seq": self._place + 2}
        return NonDeterminismError(**facts, recorded=str(record.call), requested=requested)

    def _look(self, state: State, asked: Call | None, record: Record | None, result: Any) -> None:
        seen = tuple(self._journal), tuple(self._books)
        line = self._line_of_code() if asked is not None else 0
        self.looks.append(Look(state, line, self._place + 2, asked, record, result, *seen))

    def _line_of_code(self) -> int:
        """The line, from 1, at which the code stands that made the call."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_locals.get("self") is self:
            frame = frame.f_back
        return frame.f_lineno - frame.f_code.co_firstlineno + 1


# ---- what comes of a drift ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run that one code began and another one resumed.

    Args:
        verdict: "refused" before anything was executed; "right", the shop did what one of the two
            codes alone would have had it do; "wrong", in silence.
        cost: what is wrong, in words; empty unless the verdict is "wrong".
        seq: the event at which it was refused; None otherwise.
        books: what the shop has done in the end.
        looks: the resumed run, call by call; none of a run on the engine.
    """

    verdict: Verdict
    cost: str
    seq: int | None
    books: tuple[Row, ...]
    looks: tuple[Look, ...] = ()

    @property
    def said(self) -> str:
        """The outcome in words."""
        return f"refused at event {self.seq}" if self.seq else self.cost or "right"


def try_drift(drift: Drift, policy: str, recorded: int = RECORDED) -> Outcome:
    """Begin a run, let it die, and resume it with the changed code.

    Args:
        drift: the change.
        policy: what the resumed run compares, one of `POLICIES`.
        recorded: how many of the six calls are on record when the first worker dies.

    Raises:
        ValueError: there is no such policy, or the run never has so many calls.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, not {policy!r}")
    if not 0 <= recorded <= calls():
        raise ValueError(f"the run has 0 to {calls()} calls, not {recorded}")
    journal, books = list[Record](), list[Row]()
    first = Replayer(journal, ARGUMENTS, die_after=recorded)
    with suppress(Killed):  # the first worker dies; what it did stays
        begun(first, Shop(books))
    second = Replayer(journal, policy, books=books)
    before = len(books)
    try:
        drift.code(second, drift.shop(books))
        second.end()
    except NonDeterminismError as refusal:
        _check_nothing_done(books, before, second)
        return Outcome("refused", "", refusal.seq, tuple(books), tuple(second.looks))
    return _judged(drift, books, tuple(second.looks))


def on_the_engine(
    drift: Drift, recorded: int = RECORDED, *, compare_arguments: bool = True
) -> Outcome:
    """The same as `try_drift`, on `durable_mini` itself.

    The changed code is reached through a table, where the structure hash doesn't see it: what
    replay compares is the question here.
    """
    books = list[Row]()
    code = {"deployed": begun, "shop": Shop(books)}

    @workflow(version="1", name="shop")
    def shop_flow(ctx: Context, _: Any) -> Any:
        return code["deployed"](ctx, code["shop"])  # type: ignore[operator]

    journal, compares = MemoryJournal(), compare_arguments
    probe = _DieAfter(recorded)
    engine = Engine(journal, [shop_flow], compare_arguments=compares, probe=probe)
    engine.start(shop_flow, run_id=_RUN_ID)
    with suppress(InjectedCrash):  # the first worker dies
        engine.resume(_RUN_ID)
    code.update(deployed=drift.code, shop=drift.shop(books))
    try:
        run = Engine(journal, [shop_flow], compare_arguments=compares).resume(_RUN_ID)
    except NonDeterminismError as refusal:
        return Outcome("refused", "", refusal.seq, tuple(books))
    if run.error is not None:
        raise ValueError(f"the run doesn't complete: {run.error.type}: {run.error.message}")
    return _judged(drift, books, ())


class _DieAfter:
    """A probe that ends the attempt once so many calls are recorded."""

    def __init__(self, recorded: int) -> None:
        self._left = recorded

    def __call__(self, position: Position, kind: EventKind, name: str) -> None:
        self._left -= position is Position.AFTER
        if self._left == 0 and position is not Position.WINDOW:
            raise InjectedCrash(position, kind, name)


@cache
def calls() -> int:
    """How many durable calls the code makes that begins the run."""
    return len(structure(workflow(version="1")(begun)).calls)


def _check_nothing_done(books: Sequence[Row], before: int, resumed: Replayer) -> None:
    """Refuse to tell of a refusal that came after work was executed; no policy here gives one."""
    if len(books) != before or any(look.state == "executed" for look in resumed.looks):
        raise ValueError("a run was refused after it had executed something")


def _judged(drift: Drift, books: Sequence[Row], looks: tuple[Look, ...]) -> Outcome:
    wanted = [_books_of(BEGUN), _books_of(drift)]
    if list(books) in wanted:
        return Outcome("right", "", None, tuple(books), looks)
    return Outcome("wrong", _cost(books, wanted), None, tuple(books), looks)


def _books_of(drift: Drift) -> list[Row]:
    """What the shop does for a run that this code begins and ends."""
    shop = drift.shop()
    drift.code(Replayer([], ARGUMENTS), shop)
    return shop.books


_DONE = {"reserve": "reserved", "charge": "charged", "ship": "shipped"}


def _cost(books: Sequence[Row], wanted: Sequence[Sequence[Row]]) -> str:
    """Say how the books differ from what the code after the change would have had done."""
    found = []
    for what, done in _DONE.items():
        rows, right = _rows(what, books), [_rows(what, every) for every in wanted]
        if len(rows) > max(map(len, right)):
            found.append(f"{done} twice")
        elif not rows and right[-1]:
            found.append(f"not {done}")
        known = [row.facts for every in right for row in every]
        facts = rows[-1].facts if rows else {}
        wrong = [key for key in facts if facts[key] not in [one[key] for one in known]]
        if wrong:
            all_of_it = 1 < len(facts) == len(wrong)
            found.append(f"{what} all wrong" if all_of_it else f"wrong {' and '.join(wrong)}")
    return ", ".join(found)


def _rows(what: str, books: Sequence[Row]) -> list[Row]:
    return [row for row in books if row.what == what]


def detector_grid(recorded: int = RECORDED) -> dict[str, dict[str, Outcome]]:
    """Every drift under every policy, each one run: the outcomes by drift, then by policy."""
    return {
        name: {policy: try_drift(drift, policy, recorded) for policy in POLICIES}
        for name, drift in DRIFTS.items()
    }


@dataclass(frozen=True, slots=True)
class Tally:
    """How the runs of all drifts ended under one policy, wherever the first worker died.

    Args:
        saved: refused, and without any comparison the run would have gone wrong.
        needless: refused, and without any comparison it would have ended right.
        right: not refused, and right.
        wrong: not refused, and wrong in silence.
    """

    saved: int = 0
    needless: int = 0
    right: int = 0
    wrong: int = 0

    @property
    def runs(self) -> int:
        """How many runs there were."""
        return self.saved + self.needless + self.right + self.wrong


def tally_all_places() -> dict[str, Tally]:
    """Try every drift under every policy, whichever call the worker died at; count the ends."""
    ends = ("saved", "needless", "right", "wrong")
    counted = {policy: dict.fromkeys(ends, 0) for policy in POLICIES}
    for drift in DRIFTS.values():
        for recorded in range(calls() + 1):
            unchecked = try_drift(drift, NONE, recorded).verdict
            for policy in POLICIES:
                verdict = try_drift(drift, policy, recorded).verdict
                stopped = "saved" if unchecked == "wrong" else "needless"
                counted[policy][stopped if verdict == "refused" else verdict] += 1
    return {policy: Tally(**counts) for policy, counts in counted.items()}


def hash_notices(drift: Drift) -> bool:
    """Whether the structure hash of `durable_mini` changes with this drift, before any replay."""
    old, new = (structure(workflow(version="1")(code)) for code in (begun, drift.code))
    return old.hash != new.hash


# ---- what others do ----------------------------------------------------------------------------

MEASURED_DRIFTS = ("reordered", "same-name swap", "added", "removed")
"""The drifts that were tried on other engines too."""

PEERS: dict[str, tuple[str, ...]] = {
    "DBOS 3.4.0": ("never recovered",) * 4,
    "DBOS, version pinned": ("error, final", "wrong value", "error, a call late", "error, final"),
    "Restate 1.7.12": ("error, retried", "wrong value", "error, retried", "error, retried"),
    "Temporal 1.9.1": ("error, stays open", "wrong value", *["error, stays open"] * 2),
    "AWS 3.0.0": ("error, final", "wrong value", "error, final", "error, final"),
    "Absurd 0.5.1": ("right", "wrong value", "wrong value", "wrong value"),
    "LangGraph 1.2.24": ("charged again", "wrong value", "wrong, charged again", "charged again"),
}
"""What other engines did when an agent's code changed before a resume, in the order of
`MEASURED_DRIFTS`. Measured once, on a machine of this project; the course doesn't run them."""
