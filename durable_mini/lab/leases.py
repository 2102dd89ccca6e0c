"""How long a lease should be: how soon a dead worker's run goes on, how often a live one loses it.

The model: a worker renews its lease at every heartbeat; others look for free runs at every look. A
worker that dies leaves what is left of its lease. A worker that is paused loses its run if the
lease ends and somebody looks before it wakes; when it wakes its next heartbeat comes at once.

Guarantees: closed forms (`recovery`, `takeover_chance`), a simulation that plays the mechanism
without them (`simulate`), and two that use the engine itself (`engine_recovery`,
`engine_takeovers`) agree within their intervals. Leaves to others: the drawing
(`workers_pictures`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil, exp, sqrt
from typing import Any

from durable_mini.clock import FakeClock
from durable_mini.context import Context
from durable_mini.engine import Engine
from durable_mini.errors import LeaseLostError
from durable_mini.events import EventKind, Position
from durable_mini.journal.memory import MemoryJournal
from durable_mini.lab.crashes import InjectedCrash
from durable_mini.lab.widgets import LivePicture, Values, choice, slider
from durable_mini.lab.workers_pictures import LeaseCurves, Span, lease_figure
from durable_mini.structure import workflow
from durable_mini.worker import Worker

SHORT, LONG = "mostly short", "now and then very long"
TAILS = (SHORT, LONG)
HEAVY = 2.5
"""The shape of the long pauses: twice as long becomes rarer by 2 to this power, and no faster."""

_DAY_S = 86_400.0
_Z = 1.96
_PAUSES, _DEATHS = 20_000, 2_000


@dataclass(frozen=True, slots=True)
class Setting:
    """A fleet of workers, and how it is paused.

    Args:
        lease_s: how long a lease is without a sign of life.
        beats: heartbeats per lease; at least two.
        look_s: how often somebody looks for free runs.
        pause_s: how long a pause is on average.
        pauses: how many of them a worker has in an hour.
        workers: how many there are, all of them busy.
        tail: `SHORT` or `LONG`: how the lengths of the pauses are spread around the average.

    Raises:
        ValueError: a number is out of its range, or there is no such tail.
    """

    lease_s: float = 5.0
    beats: int = 5
    look_s: float = 0.05
    pause_s: float = 1.0
    pauses: float = 6.0
    workers: int = 10
    tail: str = SHORT

    def __post_init__(self) -> None:
        if self.beats < 2 or min(self.lease_s, self.look_s, self.pause_s) <= 0:
            raise ValueError("a lease has two heartbeats or more, and its times are positive")
        if self.tail not in TAILS:
            raise ValueError(f"the pauses are {' or '.join(TAILS)}, not {self.tail!r}")

    @property
    def heartbeat_s(self) -> float:
        """The seconds from one heartbeat to the next."""
        return self.lease_s / self.beats

    @property
    def pauses_per_day(self) -> float:
        """How many pauses the fleet has in a day."""
        return self.workers * self.pauses * 24

    @property
    def writes_per_s(self) -> float:
        """How many heartbeats the journal takes in a second."""
        return self.workers / self.heartbeat_s


# ---- closed forms --------------------------------------------------------------------------------


def recovery(setting: Setting) -> Span:
    """How long a dead worker's run stands still: the mean, and the shortest and longest.

    The lease, less the time since the last heartbeat, and then the time until somebody looks.
    """
    beat, look = setting.heartbeat_s, setting.look_s
    mean = setting.lease_s - beat / 2 + look / 2
    return Span(mean, setting.lease_s - beat, setting.lease_s + look)


def takeover_chance(setting: Setting) -> float:
    """The chance that a pause costs a live worker its run.

    A pause of length D begins U after a heartbeat, and V passes from the lease's end to the next
    look, both equally likely anywhere in their interval: the run is lost if D > lease - U + V. The
    mean over U and V is a second difference of what the chance of a longer pause integrates to.
    """
    least, beat, look = setting.lease_s - setting.heartbeat_s, setting.heartbeat_s, setting.look_s
    mean = setting.pause_s
    if setting.tail == SHORT:
        begun, looked = (1 - exp(-beat / mean)) / beat, (1 - exp(-look / mean)) / look
        return exp(-least / mean) * mean * begun * mean * looked
    scale = mean * (HEAVY - 1)

    def twice(length: float) -> float:
        """The chance of a pause that is longer, integrated twice from here to infinity."""
        power = pow(1 + length / scale, 2 - HEAVY)
        return float(scale**2 * power / ((HEAVY - 1) * (HEAVY - 2)))

    ends = twice(least) - twice(least + beat) - twice(least + look) + twice(least + beat + look)
    return ends / (beat * look)


def false_takeovers(setting: Setting) -> float:
    """How many live workers lose their run in a day, in the whole fleet."""
    return setting.pauses_per_day * takeover_chance(setting)


def lapse_chance(beats: int, loss: float) -> float:
    """The chance that a lease ends though its worker is well, because its renewals got lost.

    Between two renewals that arrive `beats - 1` come in time; the lease ends if all are lost.
    """
    return float(loss ** (beats - 1))


# ---- playing it ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Played:
    """What a simulation found: how long runs stood still, and takeovers per day with `hits`."""

    recovery: Span
    takeovers: Span
    hits: int
    pauses: int


def simulate(
    setting: Setting, *, pauses: int = _PAUSES, deaths: int = _DEATHS, seed: int = 0
) -> Played:
    """Let workers die and be paused, and count: heartbeats and looks on their own clocks."""
    chance = random.Random(f"{seed}/{setting}")
    waits = [_next_look(setting, chance) - _moment(setting, chance) for _ in range(deaths)]
    hits = sum(
        _next_look(setting, chance) < _moment(setting, chance) + pause_length(setting, chance)
        for _ in range(pauses)
    )
    mean = sum(waits) / deaths
    spread = sqrt(sum((wait - mean) ** 2 for wait in waits) / (deaths - 1) / deaths)
    found = Span(mean, mean - _Z * spread, mean + _Z * spread)
    return Played(found, _per_day(setting, hits, pauses), hits, pauses)


def pause_length(setting: Setting, chance: random.Random) -> float:
    """The seconds that one pause takes."""
    if setting.tail == SHORT:
        return chance.expovariate(1 / setting.pause_s)
    return (chance.paretovariate(HEAVY) - 1) * setting.pause_s * (HEAVY - 1)


def _moment(setting: Setting, chance: random.Random) -> float:
    """When something happens to a worker, counted from its last heartbeat."""
    return chance.random() * setting.heartbeat_s


def _next_look(setting: Setting, chance: random.Random) -> float:
    """When somebody first finds the lease over, counted from the heartbeat that it began with."""
    first = chance.random() * setting.look_s
    return first + ceil((setting.lease_s - first) / setting.look_s) * setting.look_s


def _per_day(setting: Setting, hits: int, pauses: int) -> Span:
    """Takeovers per day, with Wilson's 95 % interval, which holds for no hit at all too."""
    share, scale = hits / pauses, setting.pauses_per_day
    middle = (share + _Z**2 / (2 * pauses)) / (1 + _Z**2 / pauses)
    arm = _Z / (1 + _Z**2 / pauses)
    arm *= sqrt(share * (1 - share) / pauses + _Z**2 / (4 * pauses**2))
    low = 0.0 if hits == 0 else (middle - arm) * scale
    return Span(share * scale, low, (middle + arm) * scale)


def lapses(beats: int, loss: float, *, renewals: int = 100_000, seed: int = 0) -> float:
    """Let renewals get lost, and count: which share of them leaves a lease that ends."""
    chance = random.Random(f"{seed}/{beats}/{loss}")
    ended = 0
    for _ in range(renewals):
        ended += all(chance.random() < loss for _ in range(beats - 1))
    return ended / renewals


# ---- the engine itself ---------------------------------------------------------------------------


def engine_recovery(setting: Setting, died_s: float, looks_s: float) -> float:
    """How long the engine lets a dead worker's run stand still, on a clock that is moved by hand.

    Args:
        setting: lease and looks.
        died_s: how long after its last heartbeat the worker died.
        looks_s: how long after that the other one first looks.
    """
    clock, journal = FakeClock(), MemoryJournal()
    taken: list[float] = []

    @workflow(version="1")
    def once(ctx: Context, _: Any) -> None:
        ctx.step("work", lambda: taken.append(clock.now()))

    def dies(position: Position, kind: EventKind, name: str) -> None:
        raise InjectedCrash(position, kind, name)

    def worker(name: str, **more: Any) -> Worker:
        engine, beat_s = Engine(journal, [once], clock=clock, **more), setting.heartbeat_s
        lease: dict[str, Any] = {"lease_s": setting.lease_s, "heartbeat_s": beat_s}
        return Worker(engine, name, poll_s=setting.look_s, **lease)

    Engine(journal, [once], clock=clock).start(once, run_id="r-1")
    try:
        worker("A", probe=dies).run_until_idle()
    except InjectedCrash:
        clock.advance(died_s + looks_s)
    worker("B").run_until_idle()
    return taken[0] - died_s


def engine_takeovers(setting: Setting, *, pauses: int = 2_000, seed: int = 0) -> Played:
    """Pause the holder of a run again and again: claims, heartbeats and fence are the journal's.

    Whether the run was lost is what the journal says when the holder's next heartbeat comes.
    """
    chance, clock, journal = random.Random(f"{seed}/engine"), FakeClock(), MemoryJournal()

    @workflow(version="1")
    def idle(ctx: Context, _: Any) -> None: ...

    Engine(journal, [idle], clock=clock).start(idle, run_id="r-1")
    refused = 0
    for _ in range(pauses):
        began, row = clock.now(), journal.find("r-1")
        held = row._replace(worker="A", token=row.token + 1, lease_until=began + setting.lease_s)
        journal.replace(row, held)
        wakes = began + _moment(setting, chance) + pause_length(setting, chance)
        looks = began + _next_look(setting, chance)
        if looks < wakes:
            clock.advance(looks - began)
            seen = journal.find("r-1")
            if seen.lease_until <= clock.now():
                journal.replace(seen, seen._replace(worker="B", token=seen.token + 1))
        clock.advance(wakes - clock.now())
        try:
            journal.append(held, None, lease_until=clock.now() + setting.lease_s)
        except LeaseLostError:
            refused += 1
    return Played(recovery(setting), _per_day(setting, refused, pauses), refused, pauses)


# ---- the slider ----------------------------------------------------------------------------------


def lease_slider() -> LivePicture[Frame]:
    """Return the slider of chapter 09: lease length against recovery time and false takeovers."""
    return LivePicture(
        [
            slider("lease_s", "lease, seconds", 5.0, 0.5, 60.0, 0.5),
            slider("beats", "beats per lease", 5, 2, 10, 1),
            slider("look_s", "look every, s", 0.05, 0.05, 5.0, 0.05),
            slider("pause_s", "mean pause, s", 1.0, 0.1, 20.0, 0.1),
            slider("pauses", "pauses per hour", 6.0, 0.0, 60.0, 1.0),
            slider("workers", "workers", 10, 1, 200, 1),
            choice("tail", "pauses are", TAILS),
        ],
        _frames,
        lambda frame: lease_figure(frame.curves),
        lambda frame: frame.sentence,
    )


@dataclass(frozen=True, slots=True)
class Frame:
    """What the slider shows at one position."""

    curves: LeaseCurves
    sentence: str


def lease_frame(setting: Setting) -> Frame:
    """Compute and simulate one setting, and its curves over all lengths of a lease."""
    played = simulate(setting)
    lengths = [0.5 * 1.06**power for power in range(83)]
    here = [replace(setting, lease_s=length) for length in lengths]
    other = TAILS[setting.tail == SHORT]
    curves = LeaseCurves(
        lengths=lengths,
        recovery=[recovery(each) for each in here],
        takeovers={
            setting.tail: [false_takeovers(each) for each in here],
            other: [false_takeovers(replace(each, tail=other)) for each in here],
        },
        lease_s=setting.lease_s,
        exact=(recovery(setting), false_takeovers(setting)),
        played=(played.recovery, played.takeovers),
    )
    return Frame(curves, lease_sentence(setting, played))


def lease_sentence(setting: Setting, played: Played) -> str:
    """Say what a setting comes to, simulated and exact."""
    stands, exact = recovery(setting), false_takeovers(setting)
    return (
        f"Lease {setting.lease_s:g} s, a heartbeat every {setting.heartbeat_s:.3g} s, a look every "
        f"{setting.look_s:g} s. A dead worker's run stands still for {played.recovery.mean:.2f} s "
        f"on average (exact {stands.mean:.2f}), never longer than {stands.high:.2f} s. "
        f"{setting.workers} busy workers with {setting.pauses:g} pauses an hour of "
        f"{setting.pause_s:g} s on average, {setting.tail}, lose "
        f"{_number(played.takeovers.mean)} runs a day while they live (exact {_number(exact)}, "
        f"95 % interval {_number(played.takeovers.low)} to {_number(played.takeovers.high)}). "
        f"Heartbeats write {setting.writes_per_s:.3g} times a second."
    )


def _frames(values: Values) -> Iterable[Frame]:
    yield lease_frame(Setting(**values))


def _number(value: float) -> str:
    """A number a day, as short as it can be said."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.01 else f"{value:.0e}"
