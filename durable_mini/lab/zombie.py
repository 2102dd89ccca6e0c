"""A stage for two workers: real processes on one run, paused, woken, told to stop, killed.

Guarantees: what is told happened, in this order: a pause is a SIGSTOP that the system has
confirmed, a death a SIGKILL or an end that was waited for. Nobody moves unless they were let go, so
the same script tells the same story every time. No process outlives its stage. Leaves to others:
what the workers are (`zombie_worker`), the drawing (`workers_pictures`).
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Self, cast

from durable_mini.engine import Engine
from durable_mini.events import Event, RunRow, RunStatus
from durable_mini.journal.file import FileJournal
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.lab.fences import Page
from durable_mini.lab.ledger import Ledger, LedgerRow
from durable_mini.lab.widgets import LivePicture, Values, choice
from durable_mini.lab.workers_pictures import stage_picture
from durable_mini.lab.zombie_worker import (
    FENCES,
    GO,
    HUSH,
    PAGE_PLACES,
    PLACES,
    RUN_ID,
    Part,
    World,
    order_in,
    publishing,
)
from durable_mini.ops import verify
from durable_mini.ops.checking import Problem

LEASE_S = 0.2
DOORS = ("open", "look first", "token")

_LIMIT_S = 60.0
_NURSERY = "durable_mini.lab.zombie_worker"


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that happened: who, what ("claims", "records", "is paused" …), and of what.

    `more` is what else is to be said: the former holder for a claim, the error for a refusal, the
    run's token after it was given back or ended.
    """

    who: str
    verb: str
    what: str = ""
    more: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.who, self.verb, self.what)))


class Stage:
    """One run, and the workers that are called to it; leaving the block ends them all.

    What is left in journal and books can be read until then; the story stays.

    Args:
        play: "order" (draft, charge, mail) or "page" (one step that replaces a page's text).
        fence: what the workers' journal asks of who writes: the "token", the holder's "name",
            nothing ("off"); or "lock", a journal that one process at a time may open.
        honour_keys: whether bank and mail server drop a repeated idempotency key.
        door: how a worker writes the page: "open", "look first", or with its "token".
        lease_s: how long a worker's lease is; a fifth of it is its heartbeat.
        runs: how many runs of the play are admitted.

    Attributes: `story` (what happened so far, in order).

    Raises:
        ValueError: there is no such play, fence or door.
    """

    def __init__(
        self,
        play: str = "order",
        *,
        fence: str = "token",
        honour_keys: bool = True,
        door: str = "open",
        lease_s: float = LEASE_S,
        runs: int = 1,
    ) -> None:
        for what, said, known in (
            ("play", play, ("order", "page")),
            ("fence", fence, FENCES),
            ("door", door, DOORS),
        ):
            if said not in known:
                raise ValueError(f"{what} is one of {', '.join(known)}, not {said!r}")
        self.story: list[Act] = []
        self._fence, self._rest = fence, b""
        self._told: dict[str, dict[str, Any]] = {}  # by worker, what nobody has waited for yet
        self._files = TemporaryDirectory()
        self._folder = Path(self._files.name)
        self._common: dict[str, Any] = {"folder": str(self._folder), "fence": fence, "door": door}
        self._common |= {"honour_keys": honour_keys, "lease_s": lease_s}
        self._admit(play, runs)
        self._nursery = subprocess.Popen(  # noqa: S603 - this package itself
            [sys.executable, "-m", _NURSERY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # so that Ctrl-C is ours to answer
        )
        self._asks = cast(IO[bytes], self._nursery.stdin)
        self._tells = cast(IO[bytes], self._nursery.stdout)

    def _admit(self, play: str, runs: int) -> None:
        flow = order_in(World("", Ledger())) if play == "order" else publishing(lambda token: "")
        with self._journal() as journal:
            engine = Engine(journal, [flow])
            for number in range(1, runs + 1):
                engine.start(flow, f"o-{number}", run_id=f"r-{number}")

    def worker(
        self,
        name: str,
        *,
        stands_at: str | tuple[str, ...] = (),
        versions: str = "1",
        forever: bool = False,
    ) -> Actor:
        """Start a worker process.

        Args:
            name: its worker id. A second one of the same name is another process.
            stands_at: where it holds still until it is let go; one of `PLACES` or `PAGE_PLACES`, or
                several.
            versions: which versions of the workflow its code has, "1", "2" or "12".
            forever: whether it goes on when nothing is left to do, until SIGTERM.

        Raises:
            ValueError: there is no such place.
        """
        places = (stands_at,) if isinstance(stands_at, str) else stands_at
        known = PLACES + PAGE_PLACES
        for place in places:
            if place not in known:
                raise ValueError(f"no place {place!r}. Next: choose of {', '.join(known)}")
        who = f"the new {name}" if name in self._told else name
        self._told[who] = {}
        own = {"who": who, "name": name, "versions": versions, "forever": forever}
        given: dict[str, Any] = own | self._common
        self._ask("start", who, *Part(stands_at=places, **given))
        return Actor(self, who, stands=bool(places))

    # ---- what is left ----------------------------------------------------------------------------

    @property
    def row(self) -> RunRow:
        """How the first run stands, as its row says."""
        with self._journal() as journal:
            return journal.find(RUN_ID)

    @property
    def history(self) -> list[Event]:
        """The first run's events."""
        with self._journal() as journal:
            return journal.events(journal.find(RUN_ID))

    @property
    def result(self) -> Any:
        """What the first run returned, as the journal has it; None if it hasn't."""
        with self._journal() as journal:
            return Engine(journal).describe(RUN_ID).result

    @property
    def attempts(self) -> int:
        """How often a run was claimed, over all runs."""
        with self._journal() as journal:
            return sum(row.attempts for row in journal.rows())

    @property
    def ended(self) -> int:
        """How many runs are completed."""
        with self._journal() as journal:
            return sum(row.status is RunStatus.COMPLETED for row in journal.rows())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What `verify` finds wrong with the journal."""
        with self._journal() as journal:
            return verify(journal).problems

    @property
    def rows(self) -> list[LedgerRow]:
        """What bank and mail server have in their books."""
        return Ledger(path=self._folder / "ledger.jsonl").rows

    def booked(self, endpoint: str) -> int:
        """How many requests of a kind are in the books: "charge" or "mail"."""
        return sum(row.endpoint == endpoint for row in self.rows)

    def asked(self, endpoint: str) -> int:
        """How often the bank or the mail server was asked, repeats too."""
        return sum(act.verb == "asks" and act.what == endpoint for act in self.story)

    @property
    def page(self) -> str:
        """What stands on the page."""
        return Page(self._folder / "page.db").read().text

    def _journal(self) -> SQLiteJournal | FileJournal:
        kind = FileJournal if self._fence == "lock" else SQLiteJournal
        return kind(self._folder / "journal")

    # ---- talking to the processes ----------------------------------------------------------------

    def note(self, who: str, verb: str, what: str = "", more: str = "") -> None:
        """Enter something into the story."""
        self.story.append(Act(who, verb, what, more))

    def send(self, who: str, number: int) -> None:
        """Send a worker a signal."""
        self._ask("send", who, number)

    def say(self, who: str, word: bytes) -> None:
        """Say `GO` or `HUSH` to a worker that stands."""
        self._ask("say", who, word.decode())

    def wait_for(self, who: str, *whats: str) -> Any:
        """Listen until a worker tells one of these, and return what it told.

        Raises:
            TimeoutError: it never did.
            RuntimeError: it ended without, or a worker failed.
        """
        told, give_up_at = self._told[who], time.monotonic() + _LIMIT_S
        while not (found := [what for what in whats if what in told]):
            if "ended" in told or time.monotonic() > give_up_at:
                error = RuntimeError if "ended" in told else TimeoutError
                raise error(f"{who} never told {whats}, but at last {self.story[-5:]}")
            self._listen()
        return told[found[0]] if found[0] == "ended" else told.pop(found[0])

    def _listen(self) -> None:
        """Hear one line, if one comes within a moment."""
        if b"\n" not in self._rest and select.select([self._tells], [], [], 0.05)[0]:
            data = os.read(self._tells.fileno(), 65_536)
            if not data:
                raise RuntimeError("the process that forks the workers has ended")
            self._rest += data
        text, whole, rest = self._rest.partition(b"\n")
        if whole:
            self._rest = rest
            self._enter(json.loads(text))

    def _enter(self, line: dict[str, Any]) -> None:
        who = line["who"]
        if "failed" in line:
            raise RuntimeError(f"worker {who}: {line['failed']}")
        self._told[who] |= line
        for verb, what in line.items():
            if verb in _VERBS:
                more = [line[fact] for fact in ("because", "former", "token") if line.get(fact)]
                self.note(who, _VERBS[verb], str(what), "".join(map(str, more)))

    def _ask(self, *command: Any) -> None:
        self._asks.write(json.dumps(command).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._asks.close()
        self._nursery.wait()  # it kills whoever is left
        self._tells.close()
        self._files.cleanup()


class Actor:
    """A worker process on a stage; made by `Stage.worker`. Each act is in the story.

    Attributes: `who` (its name on the stage).
    """

    def __init__(self, stage: Stage, who: str, *, stands: bool) -> None:
        self._stage, self.who, self._to_stand = stage, who, stands

    def stands(self) -> str:
        """Wait until it stands at its next place; which one that is."""
        self._to_stand = False
        return str(self._stage.wait_for(self.who, "stands"))

    def pause(self) -> None:
        """Stop it with SIGSTOP where it stands: not an instruction more, and it doesn't notice."""
        self._settle()
        self._stage.say(self.who, HUSH)
        self._stage.wait_for(self.who, "hushed")
        self._stage.send(self.who, signal.SIGSTOP)
        self._stage.wait_for(self.who, "stopped")
        self._stage.note(self.who, "is paused")

    def wakes(self) -> None:
        """Continue it with SIGCONT: it goes on with its next instruction."""
        self._stage.note(self.who, "wakes up")
        self._stage.send(self.who, signal.SIGCONT)
        self._stage.say(self.who, GO)

    def goes_on(self) -> None:
        """Let it go on from where it stands."""
        self._settle()
        self._stage.say(self.who, GO)

    def is_told_to_stop(self) -> None:
        """Send SIGTERM, and wait until it has heard; it still stands where it stood."""
        self._settle()
        self._stage.note(self.who, "is told to stop")
        self._stage.send(self.who, signal.SIGTERM)
        self._stage.wait_for(self.who, "hears")

    def is_killed(self) -> None:
        """Send SIGKILL, and wait for its end."""
        self._settle()
        self._stage.note(self.who, "is killed")
        self._stage.send(self.who, signal.SIGKILL)
        self._stage.wait_for(self.who, "ended")

    def is_through(self) -> None:
        """Wait until it has done what it can: a write of it was refused, or it has ended.

        One that was refused is a worker like any other again: it stays while the run is leased.
        """
        self._stage.wait_for(self.who, "refused", "ended")

    def ends(self) -> int:
        """Wait for its end; its exit status."""
        status = int(self._stage.wait_for(self.who, "ended"))
        self._stage.note(self.who, "ends")
        return status

    def _settle(self) -> None:
        if self._to_stand:
            self.stands()


_VERBS = {
    "claims": "claims",
    "does": "does",
    "asks": "asks",
    "records": "records",
    "refused": "is refused",
    "turned_away": "is turned away",
    "gives_back": "gives back",
    "gives_up": "gives up",
    "locked_out": "is locked out",
    "looks": "looks:",
    "finds": "finds",
}


# ---- a whole night -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Night:
    """How it ended after A was paused, B had finished the run, and A was woken again.

    Args:
        story: what happened, in order.
        events: the run's journal as "kind name", in order.
        status: how the run stands, as its row says.
        problem: what `verify` says of the journal; empty when all is well.
        booked: how many charges and mails are in the books.
        asked: how many the bank and the mail server were asked for.
        letters: whose letters the customer got.
    """

    story: tuple[Act, ...]
    events: tuple[str, ...]
    status: str
    problem: str
    booked: tuple[int, int]
    asked: tuple[int, int]
    letters: tuple[str, ...]

    @property
    def refused(self) -> bool:
        """Whether the journal refused a write."""
        return any(act.verb == "is refused" for act in self.story)


@cache
def zombie_night(
    pause_at: str = "after charge", *, fence: str = "token", honour_keys: bool = True
) -> Night:
    """Pause a worker past its lease, let another finish the run, and wake the first one.

    Args:
        pause_at: one of `PLACES`.
        fence: one of `FENCES` but "lock", under which nobody can finish the run meanwhile.
        honour_keys: whether bank and mail server drop a repeated key.

    Raises:
        ValueError: there is no such place or fence.
    """
    with Stage(fence=fence, honour_keys=honour_keys) as stage:
        a = stage.worker("A", stands_at=pause_at)
        a.pause()
        stage.worker("B").ends()
        a.wakes()
        a.ends()
        problems = stage.problems
        return Night(
            tuple(stage.story),
            tuple(map(str, stage.history)),
            str(stage.row.status),
            problems[0].problem if problems else "",
            (stage.booked("charge"), stage.booked("mail")),
            (stage.asked("charge"), stage.asked("mail")),
            tuple(row.body for row in stage.rows if row.endpoint == "mail"),
        )


def night_explorer() -> LivePicture[Night]:
    """Return the night of chapter 09 with its settings to choose: each starts two processes."""
    return LivePicture(
        [
            choice("pause_at", "A is paused", PLACES),
            choice("fence", "the fence is", ("on", "off")),
            choice("keys", "receivers", ("honour keys", "ignore keys")),
        ],
        _nights,
        lambda night: stage_picture(night.story, outside="bank, mail"),
        night_sentence,
    )


def _nights(values: Values) -> Iterable[Night]:
    fence = "token" if values["fence"] == "on" else "off"
    keys = values["keys"] == "honour keys"
    yield zombie_night(values["pause_at"], fence=fence, honour_keys=keys)


def night_sentence(night: Night) -> str:
    """Say what the night left in the journal and in the receivers' books."""
    writers = " and ".join(letter.removeprefix("letter by ") for letter in night.letters)
    return (
        f"Journal: {night.problem or 'all is well'}. The bank was asked {_times(night.asked[0])} "
        f"and booked {_counted(night.booked[0], 'charge')}; the customer got "
        f"{_counted(night.booked[1], 'letter')}, by {writers}. A's late writes: "
        f"{'refused' if night.refused else 'taken'}."
    )


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
