"""The version editor: code that is edited while orders are in flight, and what becomes of each.

Guarantees: every fate is that of a run. The orders are begun by the real engine with the code of
`BEGUN`; the edited code then goes on with them, in the same shop. Where the structure hash refuses
an order, it goes on where the hash can't look: so it shows what the refusal spared, or spoiled. An
edited text has a source that the engine can read, and text that never comes to an end is stopped.
Leaves to others: the pictures (`versions_pictures`), what replay compares (`drift`).
"""

from __future__ import annotations

import linecache
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, count, zip_longest
from types import FrameType
from typing import Any, Literal, NamedTuple, TypeAlias

from durable_mini.clock import FakeClock
from durable_mini.engine import Engine
from durable_mini.errors import NonDeterminismError, StructureUnreadableError
from durable_mini.events import Run, RunStatus
from durable_mini.journal.memory import MemoryJournal
from durable_mini.lab.crashes import CrashAt, InjectedCrash
from durable_mini.retry import Budget
from durable_mini.structure import Structure, Workflow, structure, workflow
from durable_mini.worker import Worker

BEGUN = """\
SMALL = ("card", "pen")  # needs no approval

def quote(item):
    return 40  # euros

def order(ctx, item):
    price = ctx.step("quote", quote, item)
    ctx.effect("reserve", reserve, item)
    if item not in SMALL:
        ctx.wait_signal("approval")
    ctx.effect("charge", charge, price)
    ctx.wait_signal("delivered")
    ctx.effect("receipt", receipt, price)
"""
"""The code that began the orders in flight. What it doesn't define is the shop's; see `Shop`."""

IN_FLIGHT = {
    "o-1": "admitted, not begun",
    "o-2": "waits for the approval",
    "o-3": "charged, not recorded",
    "o-4": "charged, to be delivered",
}
"""The orders in flight: where each stands when an edited text is deployed.

The worker of o-3 died in the crash window of its charge.
"""

_WORKFLOW, _ITEM = "order", "lamp"
_SIGNALS = ("approval", "delivered")
_PATIENCE = 50_000  # instructions that a text may run through before it is stopped
_FILE = "<edit "
_DOOR = "def order(ctx, item):\n    return deployed['code'].fn(ctx, item)\n"
_numbers = count(1)  # of the texts that were loaded


# ---- the prepared edits ------------------------------------------------------------------------


class Edit(NamedTuple):
    """A prepared edit: the whole text after it, and what it does in a few words."""

    text: str
    says: str


def _edited(says: str, *changes: tuple[str, str]) -> Edit:
    text = BEGUN
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{old!r} isn't once in the text, so it can't be changed")
        text = text.replace(old, new)
    return Edit(text, says)


_CHARGE = '    ctx.effect("charge", charge, price)\n'
_RECEIPT = '    ctx.effect("receipt", receipt, price)\n'
_QUOTE = '    price = ctx.step("quote", quote, item)\n'
_RESERVE = '    ctx.effect("reserve", reserve, item)\n'
_CHECK = '    ctx.step("check_fraud", check_fraud, item)\n'
_PATCHED = '    if ctx.patched("fraud"):\n    '

EDITS: dict[str, Edit] = {
    "nothing": _edited("the code as it was"),
    "a comment": _edited(
        "and a variable renamed",
        ("    price = ", "    # ask the catalogue\n    amount = "),
        ("charge, price", "charge, amount"),
        ("receipt, price", "receipt, amount"),
    ),
    "a helper": _edited(
        "the charge in a function",
        ("def order", f"def pay(ctx, price):\n{_CHARGE}\ndef order"),
        (f"{_CHARGE}    ctx.wait", "    pay(ctx, price)\n    ctx.wait"),
    ),
    "a fraud check": _edited("a step before the charge", (_CHARGE, _CHECK + _CHARGE)),
    "a survey": _edited(
        "a step at the very end", (_RECEIPT, f'{_RECEIPT}    ctx.step("survey", survey, item)\n')
    ),
    "a new name": _edited("the charge is called pay", ('"charge"', '"pay"')),
    "a swap": _edited("reserve before quote", (_QUOTE + _RESERVE, _RESERVE + _QUOTE)),
    "a shorthand": _edited(
        "ctx.effect under a short name",
        (_QUOTE, f"    do = ctx.effect\n{_QUOTE}"),
        ('ctx.effect("charge"', 'do("charge"'),
    ),
    "a looser rule": _edited("lamps need no approval", ('"pen")', '"pen", "lamp")')),
    "shipping costs": _edited("five more are charged", ("charge, price)", "charge, price + 5)")),
    "prices in cents": _edited(
        "quote gives cents",
        ("return 40  # euros", "return 4000  # cents"),
        ("charge, price)", "charge, price / 100)"),
        ("receipt, price)", "receipt, price / 100)"),
    ),
    "a currency": _edited(
        "quote gives a mapping",
        ("return 40  # euros", 'return {"amount": 40, "currency": "EUR"}'),
        ("charge, price)", 'charge, price["amount"])'),
        ("receipt, price)", 'receipt, price["amount"])'),
    ),
    "a patch": _edited("the check behind a patch", (_CHARGE, f"{_PATCHED}{_CHECK}{_CHARGE}")),
    "a patch misused": _edited(
        "the patch inside a condition",
        (_CHARGE, f'    if item and ctx.patched("fraud"):\n    {_CHECK}{_CHARGE}'),
    ),
}
"""Edits to choose from, by name."""


# ---- the world, and how a text becomes a workflow ----------------------------------------------


class Row(NamedTuple):
    """One thing that the shop has really done."""

    what: str
    value: Any

    def __str__(self) -> str:
        return f"{self.what} {self.value}"


class Shop:
    """What the orders' code can call. A request whose key is known is dropped, as at a good bank.

    The same key with another value is refused: nobody can know which of the two is meant.
    """

    def __init__(self) -> None:
        self.books: list[Row] = []
        self._known: dict[str, Row] = {}

    def names(self) -> dict[str, Callable[..., Any]]:
        """The functions that a text finds without defining them."""
        bodies = self.reserve, self.charge, self.receipt, self.check_fraud, self.survey
        return {body.__name__: body for body in bodies}

    def clear(self) -> None:
        """Begin with empty books, and no key that is known."""
        self.books.clear()
        self._known.clear()

    def reserve(self, item: Any, *, idempotency_key: str) -> str:
        """Put an item aside."""
        return self._once(Row("reserve", item), idempotency_key)

    def charge(self, amount: Any, *, idempotency_key: str) -> str:
        """Charge the customer's card."""
        return self._once(Row("charge", amount), idempotency_key)

    def receipt(self, amount: Any, *, idempotency_key: str) -> str:
        """Mail a receipt."""
        return self._once(Row("receipt", amount), idempotency_key)

    def check_fraud(self, item: Any) -> str:
        """Look whether somebody is being cheated."""
        self.books.append(Row("check", item))
        return "fine"

    def survey(self, item: Any) -> str:
        """Ask the customer how it was."""
        self.books.append(Row("survey", item))
        return "sent"

    def _once(self, row: Row, key: str) -> str:
        if key not in self._known:
            self._known[key] = row
            self.books.append(row)
        elif self._known[key] != row:
            raise ValueError(f"key {key} was used for {self._known[key]}, now for {row}")
        return "done"


class EditError(ValueError):
    """The text is no workflow, and why."""


class _EndlessError(BaseException):
    """The text ran for too long; no `except Exception` in it can stop this."""


def load(text: str, names: Mapping[str, Any] | None = None) -> Workflow:
    """Make a workflow of a text that defines `order`.

    What `exec` makes has no file to be read again, so the text is put into `linecache` under a name
    of its own, where tracebacks, `inspect` and the engine look. It stays as long as the workflow.

    Args:
        text: Python source.
        names: what it may use without defining it; those of a new `Shop` by default.

    Raises:
        EditError: it isn't Python, fails, or defines no such function.
    """
    file = f"{_FILE}{next(_numbers)}>"
    scope = dict(Shop().names() if names is None else names)
    try:
        with _watched():
            exec(compile(text, file, "exec", dont_inherit=True), scope)  # noqa: S102 - their own
        found = scope.get(_WORKFLOW)
        made = workflow(version="1", name=_WORKFLOW)(found) if found is not None else None
    except EditError:
        raise
    except SyntaxError as error:
        raise EditError(f"line {error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        raise EditError(f"{type(error).__name__}: {error}") from error
    if made is None:
        raise EditError(f"it has no function {_WORKFLOW}(ctx, item)")
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    weakref.finalize(made, linecache.cache.pop, file, None)
    return made


@contextmanager
def _watched() -> Iterator[None]:
    """Stop a text once it has run through too many instructions.

    Raises:
        EditError: it did.
    """
    left = _PATIENCE

    def count_down(_frame: FrameType, _event: str, _arg: object) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise _EndlessError
        return count_down

    def on_call(frame: FrameType, _event: str, _arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(_FILE):
            return None
        frame.f_trace_opcodes = True  # a loop on one line has no second line event
        return count_down

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield
    except _EndlessError as error:
        raise EditError("it doesn't come to an end") from error
    finally:
        sys.settrace(before)


# ---- what becomes of an order ------------------------------------------------------------------

Verdict: TypeAlias = Literal["right", "wrong", "stopped", "failed"]
"""How an order ends under edited code. "right": the books are those of one of the two codes alone.
"wrong": they are those of neither. "stopped": replay refused, with nothing done. "failed":
the code raised an error, and the order waits for a person."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one order under edited code.

    Args:
        run_id: which order.
        verdict: how it ends; where the hash refuses it, how it would end without the hash.
        words: the same in a few words.
        books: what the shop has done in the end.
    """

    run_id: str
    verdict: Verdict
    words: str
    books: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the engine makes of an edited text.

    Args:
        text: the text.
        before: the durable calls that the orders in flight were admitted with.
        now: those that the text has for them; None where they can't be read.
        fresh: those of an order that starts now; None likewise.
        trouble: why the text can't be deployed at all; empty if it can.
        fates: what becomes of each order in flight; none where there is trouble.
        newcomer: what becomes of an order that starts now; None where there is trouble.
    """

    text: str
    before: Structure
    now: Structure | None = None
    fresh: Structure | None = None
    trouble: str = ""
    fates: tuple[Fate, ...] = ()
    newcomer: Fate | None = None

    @property
    def accepted(self) -> bool:
        """Whether the structure hash lets the text go on with the orders in flight."""
        return not self.trouble and self.now is not None and self.now.hash == self.before.hash

    @property
    def difference(self) -> tuple[int, str, str] | None:
        """Place (from 1) of the first durable call that differs, what it was, and what it is."""
        if self.now is None:
            return None
        pairs = zip_longest(self.before.calls, self.now.calls, fillvalue="nothing more")
        differ = ((at, was, now) for at, (was, now) in enumerate(pairs, 1) if was != now)
        return next(((at, was.strip(), now.strip()) for at, was, now in differ), None)

    @property
    def headline(self) -> str:
        """Accepted, refused or not deployable, in one line."""
        if self.trouble:
            return f"Can't be deployed: {self.trouble}"
        if self.difference is None:
            return "Accepted: the hash is the same"
        place, was, now = self.difference
        return f"Refused at durable call {place}: recorded {was}, now {now}"

    @property
    def said(self) -> str:
        """What came of it, for a reader who doesn't see the picture."""
        told = [f"{fate.run_id} {fate.words}" for fate in self.fates]
        if not told:
            return f"{self.headline}."
        if self.accepted:
            return f"{self.headline}. Then {', '.join(told)}."
        return f"{self.headline}. Without the hash: {', '.join(told)}."


def judge(text: str) -> Judgement:
    """Deploy a text while the orders of `IN_FLIGHT` are on their way, and tell what comes of it."""
    before = structure(load(BEGUN))
    try:
        edited = load(text)
        now, fresh = structure(edited, ()), structure(edited)
    except StructureUnreadableError as error:
        return Judgement(text, before, trouble=str(error.reason))
    except EditError as error:
        return Judgement(text, before, trouble=str(error))
    try:
        wanted = [_alone(BEGUN), _alone(text)]
        accepted = now.hash == before.hash
        fates = tuple(_fate(run_id, text, wanted, accepted=accepted) for run_id in IN_FLIGHT)
    except EditError as error:
        return Judgement(text, before, now, fresh, trouble=str(error))
    return Judgement(text, before, now, fresh, fates=fates, newcomer=_newcomer(*wanted[1]))


_End: TypeAlias = tuple[Run, tuple[Row, ...]]
"""A run at its end, and the shop's books then."""


@lru_cache(maxsize=64)
def _alone(text: str) -> _End:
    """How an order ends that one text begins and ends."""
    shop, journal = Shop(), MemoryJournal()
    made = load(text, shop.names())
    _engine(journal, made).start(made, _ITEM, run_id="new")
    return _driven(journal, made, "new"), tuple(shop.books)


def _newcomer(run: Run, books: tuple[Row, ...]) -> Fate:
    broken = run.status in {RunStatus.NEEDS_ATTENTION, RunStatus.FAILED}
    words = "ends right" if run.status is RunStatus.COMPLETED else _standing(run)
    return Fate("new", "failed" if broken else "right", words, books)


def _fate(run_id: str, text: str, wanted: Sequence[_End], *, accepted: bool) -> Fate:
    shop, journal = Shop(), MemoryJournal()
    old, new = (load(each, shop.names()) for each in (BEGUN, text))
    deployed = {"code": old}
    if accepted:
        _begin(journal, old, run_id)
    else:  # both codes behind one door, through which the hash doesn't look
        door = load(_DOOR, {"deployed": deployed})
        _begin(journal, door, run_id)
        deployed["code"], new = new, door
    try:
        run = _driven(journal, new, run_id)
    except NonDeterminismError as stop:
        return Fate(run_id, "stopped", f"stops at event {stop.seq}", tuple(shop.books))
    verdict, words = _verdict((run, tuple(shop.books)), wanted)
    return Fate(run_id, verdict, words, tuple(shop.books))


def _engine(journal: MemoryJournal, made: Workflow, probe: CrashAt | None = None) -> Engine:
    budget = Budget(max_steps=100)
    return Engine(journal, [made], clock=FakeClock(), budget=budget, probe=probe)


def _begin(journal: MemoryJournal, made: Workflow, run_id: str) -> None:
    """Bring an order to where `IN_FLIGHT` says that it stands."""
    engine = _engine(journal, made)
    engine.start(made, _ITEM, run_id=run_id)
    if run_id == "o-1":
        return
    engine.resume(run_id)
    if run_id == "o-2":
        return
    engine.signal(run_id, "approval", True, signal_id="approval")
    probe = CrashAt("charge", "window") if run_id == "o-3" else None
    with suppress(InjectedCrash):
        _engine(journal, made, probe).resume(run_id)


def _driven(journal: MemoryJournal, made: Workflow, run_id: str) -> Run:
    """Let everything come that an order waits for, and drive it as far as it goes."""
    engine = _engine(journal, made)
    for name in _SIGNALS:
        engine.signal(run_id, name, True, signal_id=name)
    with _watched():
        run = engine.resume(run_id)
        for _ in range(20):
            due_at = journal.find(run_id).due_at
            if run.status is not RunStatus.SUSPENDED or due_at is None:
                break
            engine.clock.sleep(due_at - engine.clock.now())
            run = engine.resume(run_id)
    return run


def _standing(run: Run) -> str:
    if run.status is RunStatus.SUSPENDED:
        return f"waits for {run.waiting_for}"
    if run.status is RunStatus.COMPLETED or run.error is None:
        return str(run.status)
    return f"{str(run.status).replace('_', ' ')}: {run.error.type}"


def _verdict(end: _End, wanted: Sequence[_End]) -> tuple[Verdict, str]:
    run, books = end
    if run.status is RunStatus.NEEDS_ATTENTION:
        return "failed", f"needs attention: {run.error.type if run.error else 'unknown'}"
    if (run.status, books) in [(alone.status, rows) for alone, rows in wanted]:
        return "right", "ends right" if run.status is RunStatus.COMPLETED else _standing(run)
    return "wrong", _wrong(end, [rows for _, rows in wanted])


_DONE = {"charge": "charged", "reserve": "reserved", "receipt": "receipted", "check": "checked"}


def _wrong(end: _End, wanted: Sequence[tuple[Row, ...]]) -> str:
    """Say how the books differ from those of either code alone."""
    run, books = end
    what = [row.what for row in books]
    if what.count("charge") > 1:
        return "is charged twice"
    if run.status is RunStatus.FAILED:
        return "fails after charging" if "charge" in what else "fails"
    known = [row for rows in wanted for row in rows]
    for row in books:
        if row not in known:
            return f"is {_DONE.get(row.what, row.what)} {row.value}"
    order = [row.what for row in wanted[-1]]
    for first, second in combinations(order, 2):
        if {first, second} <= set(what) and what.index(first) > what.index(second):
            return f"{first} after {second}"
    missing = next((one for one in order if one not in what), "")
    return f"isn't {_DONE.get(missing, missing)}" if missing else "has other books"


# ---- all edits ---------------------------------------------------------------------------------


def judge_all() -> dict[str, Judgement]:
    """Every prepared edit that can be deployed, judged; by name."""
    judged = {name: judge(edit.text) for name, edit in EDITS.items()}
    return {name: found for name, found in judged.items() if not found.trouble}


def tally(judged: Mapping[str, Judgement]) -> dict[tuple[bool, Verdict], int]:
    """Count the orders in flight by whether the hash accepts them, and how they end."""
    verdicts: tuple[Verdict, ...] = ("right", "stopped", "failed", "wrong")
    counted = {(accepted, verdict): 0 for accepted in (True, False) for verdict in verdicts}
    for found in judged.values():
        for fate in found.fates:
            counted[found.accepted, fate.verdict] += 1
    return counted


# ---- the life of a patch -----------------------------------------------------------------------

DAY_S = 86_400.0

_SLOW = """\
def order(ctx, days):
    ctx.sleep(days * 86_400)
{patch}    ctx.effect("charge", charge, 40)
"""
_SLOW_OLD, _SLOW_PATCHED, _SLOW_NEW = (
    _SLOW.format(patch=patch.replace("item", "days")) for patch in ("", _PATCHED + _CHECK, _CHECK)
)
_STARTS = {-6: 14, -5: 3, -3: 7, -1: 4, 1: 2, 2: 5, 4: 7, 6: 3}


@dataclass(frozen=True, slots=True)
class Life:
    """One order and a patch: the days of its beginning and end, and whether it knows the patch."""

    run_id: str
    begun: int
    ended: int
    knows: bool


def patch_life(starts: Mapping[int, int] | None = None) -> tuple[list[Life], dict[int, int]]:
    """Deploy a patch on day 0 while orders come and go, and ask each day whether it could go.

    Args:
        starts: by the day on which an order starts how many days it waits; one order a day.

    Returns:
        The orders, and for each day from 0 how many of them would be stranded if the old path were
        removed on that day: those that an engine with only the new path calls orphans.
    """
    starts = _STARTS if starts is None else starts
    shop, journal, first = Shop(), MemoryJournal(), min(starts)
    old, patched, new = (load(text, shop.names()) for text in (_SLOW_OLD, _SLOW_PATCHED, _SLOW_NEW))
    clock, ended, stranded = FakeClock(), dict[str, int](), dict[int, int]()
    last = max(start + days for start, days in starts.items())
    for day in range(first, last + 1):
        deployed = patched if day >= 0 else old
        engine = Engine(journal, [deployed], clock=clock)
        if day in starts:
            engine.start(deployed, starts[day], run_id=f"day {day}")
        Worker(engine, "w-1").run_until_idle()
        ended |= {run.run_id: ended.get(run.run_id, day) for run in engine.runs("completed")}
        if day >= 0:
            stranded[day] = len(Engine(journal, [new], clock=clock).orphans())
        clock.advance(DAY_S)
    return [Life(f"day {day}", day, ended[f"day {day}"], day >= 0) for day in starts], stranded
