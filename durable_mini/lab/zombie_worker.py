"""The processes of a stage: a small one that forks the workers, and what each worker does.

Guarantees: a worker holds still at the places it was given until it is let go, and tells of each
claim, request and journal write when it happens, in lines shorter than what a pipe takes whole.
When the stage is gone, whatever became of it, every worker is killed, a stopped one too: the
forking process notices the end of its input and is never stopped itself. Leaves to others: who does
what when (`zombie`).
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, NoReturn

from durable_mini.context import Context
from durable_mini.engine import Engine
from durable_mini.errors import LeaseLostError, StorageError
from durable_mini.events import Entry, RunRow
from durable_mini.journal import Journal
from durable_mini.journal.file import FileJournal
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.lab.fences import FencedByName, Page, Unfenced
from durable_mini.lab.ledger import Ledger
from durable_mini.structure import Workflow, workflow
from durable_mini.worker import Worker

PLACES = ("draft", "before charge", "after charge", "before mail", "after mail")
PAGE_PLACES = ("before look", "before put")
RUN_ID = "r-1"

_PATIENCE_S = 0.005


class Part(NamedTuple):
    """What a worker is to do: where its things are, how it is fenced, where it holds still.

    `who` names the process on the stage, `name` is its worker id in the journal.
    """

    who: str
    name: str
    folder: str
    fence: str
    door: str
    honour_keys: bool
    lease_s: float
    versions: str
    stands_at: Sequence[str]
    forever: bool


# ---- what the workers run ------------------------------------------------------------------------


class World:
    """What an order's steps touch. Each tells what it does, and holds still where it is asked to.

    Args:
        who: whose world it is; the model answers each worker differently.
        ledger: the bank and the mail server.
        at: called at each place that a worker may hold still at.
        tell: called with what is done.
    """

    def __init__(
        self,
        who: str,
        ledger: Ledger,
        at: Callable[[str], None] = lambda place: None,
        tell: Callable[..., None] = lambda **told: None,
    ) -> None:
        self._who, self._ledger, self._at, self._tell = who, ledger, at, tell

    def draft(self) -> str:
        """Ask the model for a letter: another one each time."""
        self._tell(does="draft")
        self._at("draft")
        return f"letter by {self._who}"

    def charge(self, order: str, *, idempotency_key: str) -> str:
        """Charge the card."""
        return self._ask("charge", order, 40, idempotency_key)

    def mail(self, order: str, text: str, *, idempotency_key: str) -> str:
        """Send the letter."""
        return self._ask("mail", order, text, idempotency_key)

    def _ask(self, what: str, order: str, body: Any, key: str) -> str:
        self._at(f"before {what}")
        self._tell(asks=what)
        receipt = self._ledger.post(what, order, body, key)
        self._at(f"after {what}")
        return receipt


def order_in(world: World) -> Workflow:
    """The workflow of the stage: draft a letter, charge the card, mail the letter."""

    @workflow(version="1")
    def order(ctx: Context, number: str) -> str:
        letter = ctx.step("draft", world.draft)
        ctx.effect("charge", world.charge, number)
        ctx.effect("mail", world.mail, number, letter)
        return str(letter)

    return order


def checked_order_in(world: World) -> Workflow:
    """Its second version, with a check for fraud before the card is charged."""

    @workflow(name="order", version="2")
    def order(ctx: Context, number: str) -> str:
        letter = ctx.step("draft", world.draft)
        ctx.step("fraud check", str, "passed")
        ctx.effect("charge", world.charge, number)
        ctx.effect("mail", world.mail, number, letter)
        return str(letter)

    return order


def publishing(put: Callable[[int], str]) -> Workflow:
    """A workflow of one step: ask the model for a text, and put it on the page."""

    @workflow(version="1")
    def publish(ctx: Context, _: Any) -> str:
        # What the body captures isn't compared on replay, so another attempt may bring another.
        return str(ctx.step("publish", lambda: put(ctx.attempt)))

    return publish


class Publisher:
    """Puts a worker's text on the page through one of three doors."""

    def __init__(self, part: Part, journal: Journal, stand: _Standing) -> None:
        self._name, self._text, self._door = part.name, f"text by {part.who}", part.door
        self._journal, self._at, self._tell = journal, stand.at, stand.tell
        self._page = Page(Path(part.folder, "page.db"))

    def put(self, token: int) -> str:
        """Put what the model answered this worker on the page."""
        self._at("before look")
        if self._door == "look first" and not self._is_mine():
            self._tell(looks="not mine")
            return self._text
        self._at("before put")
        if self._door == "token":
            taken = self._page.put_fenced(self._text, token)
        else:
            taken = self._page.put(self._text)
        self._tell(**{"asks" if taken else "turned_away": "page"})
        return self._text

    def _is_mine(self) -> bool:
        row = self._journal.find(RUN_ID)
        return row.worker == self._name and row.lease_until > time.time()


# ---- one worker ----------------------------------------------------------------------------------


HUSH, GO = b"h", b"g"  # what the stage says to a worker that stands


class _Standing:
    """Holds a worker still at its places, each of them once, until it is let go.

    Args:
        part: where it is to stand.
        said: the pipe down which the stage says `GO`, or `HUSH` before it.
        writing: what each journal write of this process holds. After `HUSH` this worker holds it,
            so that a pause finds no heartbeat in the middle of its transaction: a stopped process
            would keep the database's lock, and nobody could take over.
    """

    def __init__(self, part: Part, said: int, writing: AbstractContextManager[Any]) -> None:
        self._who, self._places = part.who, list(part.stands_at)
        self._said, self._writing = said, writing

    def tell(self, **told: Any) -> None:
        tell(self._who, **told)

    def at(self, place: str) -> None:
        if place not in self._places:
            return
        self._places.remove(place)
        drains = signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        self.tell(stands=place)
        with ExitStack() as held:
            while True:
                if select.select([self._said], [], [], _PATIENCE_S)[0]:
                    if os.read(self._said, 1) == GO:
                        return
                    held.enter_context(self._writing)
                    self.tell(hushed=place)
                if drains and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                    drains = False  # the worker has taken its handler back: it has heard
                    self.tell(hears="SIGTERM")


def tell(who: str, **told: Any) -> None:
    """Write one line for the stage, whole or not at all."""
    os.write(1, json.dumps({"who": who, **told}).encode() + b"\n")


class _Telling(Journal):
    """Goes before a journal, and tells who claims, records, gives back, and is refused."""

    who = ""
    has_claimed = False
    writing: AbstractContextManager[Any]

    def replace(self, row: RunRow, changed: RunRow) -> bool:
        done = super().replace(row, changed)
        if done and changed.token > row.token:
            self.has_claimed = True
            tell(self.who, claims=changed.token, former=row.worker)
        return done

    def append(self, row: RunRow, entry: Entry | None, **rest: Any) -> int:
        gives_back = entry is None and "worker" in rest
        what = entry[1] if entry else "hand-back" if gives_back else ""
        with self.writing, self._telling_of(what):
            seq = super().append(row, entry, **rest)
        freed = {"token": self.find(row.run_id).token} if "worker" in rest else {}
        if entry is not None:
            tell(self.who, records=entry[0] if freed else entry[1], **freed)
        elif gives_back:
            verb = "gives_up" if "error" in rest else "gives_back"
            tell(self.who, **{verb: "the run"}, **freed)
        return seq

    def peek(self, row: RunRow) -> int:
        with self._telling_of("next step"):
            return super().peek(row)

    @contextmanager
    def _telling_of(self, what: str) -> Iterator[None]:
        try:
            yield
        except LeaseLostError as error:
            if what:  # a heartbeat that is refused tells nothing
                tell(self.who, refused=what, because=str(error))
            raise


_KINDS: dict[str, type[Journal]] = {
    "token": SQLiteJournal,
    "off": Unfenced,
    "name": FencedByName,
    "lock": FileJournal,
}
FENCES = tuple(_KINDS)


def _work(part: Part, said: int) -> None:
    """What a worker process does from its start to its end."""
    log = logging.getLogger("durable_mini")
    log.setLevel(logging.CRITICAL)  # what the engine would say is told already
    writing = RLock()
    stand = _Standing(part, said, writing)
    facts = {"who": part.who, "writing": writing}
    kind = type("Told", (_Telling, _KINDS[part.fence]), facts)
    try:
        journal = kind(Path(part.folder, "journal"))
    except StorageError as error:
        stand.tell(locked_out="", because=error.reason)
        return
    with journal:
        world = World(part.who, _ledger(part), stand.at, stand.tell)
        makers = {"1": order_in, "2": checked_order_in}
        flows = [makers[version](world) for version in part.versions]
        flows.append(publishing(Publisher(part, journal, stand).put))
        limits: dict[str, Any] = {"lease_s": part.lease_s, "heartbeat_s": part.lease_s / 5}
        worker = Worker(Engine(journal, flows), part.name, poll_s=0.01, **limits)
        if part.forever:
            worker.run_forever()
        else:
            worker.run_until_idle()
        if not journal.has_claimed:
            stand.tell(finds="nothing to do")


def _ledger(part: Part) -> Ledger:
    return Ledger(honour_keys=part.honour_keys, path=Path(part.folder, "ledger.jsonl"))


def _serve(part: Part, said: int) -> NoReturn:
    """Be a worker, and never return into the process that forked it."""
    status = 1
    try:
        os.close(0)
        _work(part, said)
        status = 0
    except BaseException:
        tell(part.who, failed=traceback.format_exc()[-1_000:])
    finally:
        os._exit(status)


# ---- the process that forks them -----------------------------------------------------------------


class _Nursery:
    """Forks workers, sends them signals, lets them go, and tells what the system says of each."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}
        self._pipes: dict[str, int] = {}

    def start(self, who: str, *part: Any) -> None:
        said, say = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(say)
            _serve(Part(*part), said)
        os.close(said)
        self._pids[who], self._pipes[who] = pid, say

    def send(self, who: str, number: int) -> None:
        if who in self._pids:  # not reaped yet: the id is still its own
            os.kill(self._pids[who], number)

    def say(self, who: str, word: str) -> None:
        os.write(self._pipes[who], word.encode())

    def look(self) -> None:
        """Tell who was stopped or has ended since the last look."""
        for who, pid in list(self._pids.items()):
            ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if ended and os.WIFSTOPPED(status):
                tell(who, stopped=signal.Signals(os.WSTOPSIG(status)).name)
            elif ended:
                del self._pids[who]
                os.close(self._pipes.pop(who))
                tell(who, ended=os.waitstatus_to_exitcode(status))

    def end(self) -> None:
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)  # reaches a stopped process too
            os.waitpid(pid, 0)


def main() -> None:
    """Do as asked, line by line, until there is nobody who asks any more."""
    nursery, asked = _Nursery(), FileIO(0, closefd=False)  # unbuffered: select has to see the rest
    verbs: dict[str, Callable[..., None]] = {
        "start": nursery.start,
        "send": nursery.send,
        "say": nursery.say,
    }
    try:
        while True:
            if select.select([0], [], [], _PATIENCE_S)[0]:
                line = asked.readline()
                if not line:
                    return
                verb, *rest = json.loads(line)
                verbs[verb](*rest)
            nursery.look()
    finally:
        nursery.end()


if __name__ == "__main__":
    main()
