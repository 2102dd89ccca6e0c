"""The mock interview: a durable run of this project's own engine.

Guarantees: whatever kills the process in the middle, the next one goes on at the same question with
the same clock, since every answer is a signal in the journal and the time of each question is
recorded. The clock of an interview doesn't stop for a dead process, as an interviewer's wouldn't.
Nothing is taught before the debrief. The failures are put into the candidate's own design: they
name the candidate's steps and hit a part that the design has.
Leaves to others: showing it (`mock_widget`, `durable-mini quiz`), what an answer is worth
(`rubric`), what to make of the scores (`debrief`), and keeping them for ever (`reviews`): an
interview lasts an hour, not months.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from durable_mini.clock import SystemClock
from durable_mini.context import Context
from durable_mini.engine import Engine
from durable_mini.errors import RunIdConflictError
from durable_mini.events import Event, EventKind, Run, RunStatus
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.school.bank import (
    ALWAYS,
    FAILURE,
    OPENING,
    SYSTEM,
    Question,
    load_briefs,
    load_failures,
    load_questions,
)
from durable_mini.school.rubric import Heard, score
from durable_mini.structure import workflow

CLARIFY, DESIGN, NUMBER = "clarify", "design", "number"

AREAS = {
    CLARIFY: "Clarify",
    DESIGN: "Design",
    FAILURE: "A failure in your design",
    NUMBER: "A number",
}
"""The parts of an interview that are scored, by the names that stages carry."""

LENGTHS: Mapping[int, Sequence[tuple[str, int]]] = {
    20: ((CLARIFY, 2), (DESIGN, 8), (FAILURE, 4), (NUMBER, 4)),
    45: ((CLARIFY, 5), (DESIGN, 20), (FAILURE, 5), (FAILURE, 5), (NUMBER, 5)),
    60: ((CLARIFY, 6), (DESIGN, 26), *((FAILURE, 6),) * 3, (NUMBER, 5)),
}
"""The stages of an interview and their minutes, by its length; what is left is the debrief."""

PARTS = {
    "queue": "messages on a queue",
    "journal": "a journal, or a durable engine",
    "keys": "idempotency keys",
    "leases": "workers with leases or locks",
    "waits": "a wait for a person, or a timer",
    "undo": "compensations",
    "model": "calls to a language model",
    "versions": "deploys while runs are on their way",
}
"""What a design may have, for the candidate to tick: a failure hits one of these."""

FIRST_STEP = "the first step"
LAST_STEP = "the last step"

_Answered = TypeVar("_Answered")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked now.

    Attributes:
        number: of the stage, from 0.
        of: how many stages there are.
        area: one of `AREAS`.
        question: the id of the question, failure or brief.
        follow_up: the id of the follow-up; empty while the question itself is asked.
        text: what the interviewer says.
        exhibit: a history or code that goes with it.
        since_s: when the stage began, by the recorded clock.
        seconds: how long it may take with its follow-up; None without a clock.
    """

    number: int
    of: int
    area: str
    question: str
    follow_up: str
    text: str
    exhibit: str
    since_s: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the candidate gave: words, and for a design its steps and parts.

    Attributes:
        text: what was typed, or notes of what was said.
        confidence: 0 to 3.
        steps: names of the design's steps in their order.
        irreversible: the step that can't be taken back; one of `steps`.
        parts: which of `PARTS` the design has.
    """

    text: str
    confidence: int = 2
    steps: tuple[str, ...] = ()
    irreversible: str = ""
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.confidence not in range(4):
            raise ValueError(f"confidence {self.confidence}: right is 0 to 3")
        if self.irreversible and self.irreversible not in self.steps:
            raise ValueError(f"{self.irreversible!r} is none of the steps {list(self.steps)}")
        if unknown := set(self.parts) - set(PARTS):
            raise ValueError(f"{min(unknown)!r} is none of the parts {', '.join(PARTS)}")


@dataclass(frozen=True, slots=True)
class Told:
    """One stage of an interview as far as it has come.

    Attributes:
        area, question, text, exhibit: as they were asked.
        answer: what was given.
        answered_s: when, in seconds since the epoch.
        seconds: how long the stage took.
        limit_s: how long it could take; None without a clock.
        follow_up: the id of the follow-up that was asked; empty if none was.
        follow_up_text, follow_up_answer: what was asked there, and given.
        steps: of the design, as they stand in a failure's words.
        heard: what was ticked; None before the debrief.
        worth, because: the score; None and nothing before the debrief.
    """

    area: str
    question: str
    text: str
    exhibit: str
    answer: Answer
    answered_s: float
    seconds: float
    limit_s: float | None
    follow_up: str = ""
    follow_up_text: str = ""
    follow_up_answer: str = ""
    steps: tuple[str, str] = (FIRST_STEP, LAST_STEP)
    heard: Heard | None = None
    worth: int | None = None
    because: tuple[str, ...] = ()


# ---- the workflow ------------------------------------------------------------------------------


@workflow(name="mock-interview", version="1")
def mock_interview(ctx: Context, plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Ask stage after stage, then hear what was ticked for each; returns the whole interview."""
    told: list[dict[str, Any]] = []
    for number, stage in enumerate(plan["stages"]):
        asked = ctx.step("ask", choose, plan, stage, told)
        one = {**asked, "since_s": ctx.now(), "answer": ctx.wait_signal(f"answer-{number}")}
        if asked["follow_up"]:
            one["followed"] = ctx.wait_signal(f"follow-{number}")
        told.append(one)
    for number, one in enumerate(told):
        one["heard"] = ctx.wait_signal(f"heard-{number}")
        one["score"] = ctx.step("score", scored, one)
    return told


def choose(
    plan: Mapping[str, Any], stage: Mapping[str, Any], told: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What a stage asks. A failure is chosen by the design, and never comes twice."""
    limit_s = stage["minutes"] * 60.0 if plan["timed"] else None
    if stage["area"] != FAILURE:
        question = question_of(stage["question"])
        return _as_asked(stage["area"], question, limit_s, _said(question))
    design = next(one["answer"] for one in told if one["area"] == DESIGN)
    used = [one["question"] for one in told]
    question = _failure_for(design["parts"], used, plan["seed"])
    steps = steps_of(design["steps"], design["irreversible"])
    asked = _as_asked(FAILURE, question, limit_s, into_design(question.prompt, steps))
    return {**asked, "steps": list(steps)}


def _failure_for(parts: Sequence[str], used: Sequence[str], seed: int) -> Question:
    """A failure that hits what the design has, one part after the other; or one that hits any."""
    left = [one for one in _failures() if one.id not in used]
    hit = {question_of(name).hits for name in used}
    hitting = [one for one in left if one.hits in parts]
    fresh = [one for one in hitting if one.hits not in hit]
    anyone = [one for one in left if not one.hits]
    return random.Random(f"{seed} {len(used)}").choice(fresh or hitting or anyone)


def _said(question: Question) -> str:
    """What the interviewer says; with a system come the answers to what could be asked before."""
    if not question.facts:
        return question.prompt
    facts = "\n".join(f"- {fact}" for fact in question.facts)
    return f"{question.prompt}\n\nWhatever you asked, take this as given:\n\n{facts}"


def _as_asked(area: str, question: Question, limit_s: float | None, text: str) -> dict[str, Any]:
    # The first one that is asked whatever was said: what was missed isn't known before the debrief.
    order = sorted(question.follow_ups, key=lambda one: one.asked != ALWAYS)
    return {
        "area": area,
        "question": question.id,
        "text": text,
        "exhibit": question.exhibit,
        "limit_s": limit_s,
        "follow_up": order[0].id if order else "",
        "follow_up_text": order[0].prompt if order else "",
    }


def steps_of(steps: Sequence[str], irreversible: str) -> tuple[str, str]:
    """The step that can't be taken back and the one before it, as a failure names them."""
    if not steps:
        return FIRST_STEP, LAST_STEP
    last = irreversible or steps[-1]
    place = list(steps).index(last)
    return (f'"{steps[place - 1]}"' if place else "the preparation", f'"{last}"')


def into_design(text: str, steps: Sequence[str]) -> str:
    """Put the candidate's own steps into a failure's words."""
    before, last = steps
    return text.replace("[step]", before).replace("[irreversible]", last)


def scored(one: Mapping[str, Any]) -> dict[str, Any]:
    """The score of a stage: with its own time, and a follow-up where one was asked."""
    question = question_of(one["question"])
    told = _told(one)
    limit = {} if told.limit_s is None else {"most_seconds": told.limit_s}
    found = score(question, heard_from(one["heard"]), follows_up=bool(told.follow_up), **limit)
    return asdict(found)


def heard_from(stored: Mapping[str, Any]) -> Heard:
    """What was ticked, from its JSON form."""
    sets = {name: frozenset(stored.get(name, ())) for name in ("points", "red_flags")}
    return Heard(**{**stored, **sets})


@cache
def _by_id() -> dict[str, Question]:
    return {one.id: one for one in (*load_questions(), *load_failures(), *load_briefs())}


@cache
def _failures() -> tuple[Question, ...]:
    return tuple(one for one in _by_id().values() if one.kind == FAILURE)


def question_of(name: str) -> Question:
    """The question, failure or brief of this id.

    Raises:
        ValueError: the bank has none; it was asked by another version of the course.
    """
    if name not in _by_id():
        raise ValueError(f"the bank has no {name!r}. Next: give this interview up, begin another.")
    return _by_id()[name]


# ---- one interview -----------------------------------------------------------------------------


class MockInterview:
    """Interviews in the reader's own folder: begin one, answer, be heard, read what was told.

    Args:
        path: the journal; None for this system's place for a program's data.
        clock: whose time is recorded.

    Several windows may show the same interview; an answer to a question that another window has
    answered already is dropped.
    """

    def __init__(self, path: Path | None = None, clock: SystemClock | None = None) -> None:
        folder = platformdirs.user_data_path("durable-mini", appauthor=False)
        self.path, self.clock = path or folder / "interviews.db", clock or SystemClock()

    def under_way(self) -> str | None:
        """The id of an interview that was begun and not finished; None if there is none.

        One of another version of the course can't go on, and is left out.
        """
        if not self.path.exists():
            return None
        with SQLiteJournal(self.path) as journal:
            engine = self._engine(journal)
            orphans = {one.run_id for one in engine.orphans()}
            open_runs = [one.run_id for one in engine.runs() if _is_open(one)]
        return next((one for one in reversed(open_runs) if one not in orphans), None)

    def next_seed(self) -> int:
        """A seed that gives another interview than the ones before."""
        if not self.path.exists():
            return 0
        return self._read(lambda engine: sum(1 for _ in engine.runs()))

    def begin(self, minutes: int, *, timed: bool = True, seed: int | None = None) -> str:
        """Begin an interview and return its id.

        Args:
            minutes: 20, 45 or 60.
            timed: whether a clock runs.
            seed: of what is drawn; None for another interview than the ones before.

        Raises:
            ValueError: there is no interview of so many minutes.
        """
        plan = plan_of(minutes, timed=timed, seed=self.next_seed() if seed is None else seed)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with SQLiteJournal(self.path) as journal:
            engine = self._engine(journal)
            number = sum(1 for _ in engine.runs()) + 1
            try:
                return engine.run(mock_interview, plan, run_id=f"mock-{number}").run_id
            except RunIdConflictError:  # another window has just begun one
                return engine.run(mock_interview, plan).run_id

    def asked(self, run_id: str) -> Asked | None:
        """What is asked now; None once all was answered."""
        with SQLiteJournal(self.path) as journal:
            engine = self._engine(journal)
            waits = _waits_for(engine.resume(run_id))
            of = len(engine.describe(run_id).input["stages"])
            stages = _stages(engine.history(run_id))
        part, _, number = waits.rpartition("-")
        return None if part not in {"answer", "follow"} else _now_asked(stages, part, number, of)

    def answer(self, run_id: str, number: int, answer: Answer) -> bool:
        """Give the answer of a stage; whether it was still waited for.

        Crash: the answer is there, or it is asked for again.
        """
        given = {**asdict(answer), "at_s": self.clock.now()}
        return self._give(run_id, f"answer-{number}", given)

    def follow(self, run_id: str, number: int, text: str) -> bool:
        """Answer the follow-up of a stage; as `answer`."""
        given = {"text": text, "at_s": self.clock.now()}
        return self._give(run_id, f"follow-{number}", given)

    def heard(self, run_id: str, number: int, heard: Heard) -> bool:
        """Say in the debrief what was heard in the answer of a stage; as `answer`.

        Raises:
            ValueError: a point or a red flag was ticked that the question hasn't got.
        """
        score(question_of(self.told(run_id)[number].question), heard)
        sets = {name: sorted(getattr(heard, name)) for name in ("points", "red_flags")}
        return self._give(run_id, f"heard-{number}", {**asdict(heard), **sets})

    def told(self, run_id: str) -> list[Told]:
        """The stages that were answered, each with its score once it was heard."""
        stages = self._read(lambda engine: _stages(engine.history(run_id)))
        followed = (one for one in stages if "answer" in one)
        return [_told(one) for one in followed if not one["follow_up"] or "followed" in one]

    def plan(self, run_id: str) -> dict[str, Any]:
        """How an interview was begun: its minutes, its seed, whether a clock runs."""
        return dict(self._read(lambda engine: engine.describe(run_id).input))

    def abandon(self, run_id: str) -> None:
        """Give an interview up."""
        with SQLiteJournal(self.path) as journal:
            engine = self._engine(journal)
            engine.cancel(run_id)
            engine.resume(run_id)

    def _give(self, run_id: str, name: str, payload: dict[str, Any]) -> bool:
        """Signal what the run waits for; what it doesn't wait for is dropped."""
        with SQLiteJournal(self.path) as journal:
            engine = self._engine(journal)
            if _waits_for(engine.resume(run_id)) != name:
                return False
            taken = engine.signal(run_id, name, payload, signal_id=name)
            engine.resume(run_id)
            return taken

    def _read(self, look: Callable[[Engine], _Answered]) -> _Answered:
        with SQLiteJournal(self.path) as journal:
            return look(self._engine(journal))

    def _engine(self, journal: SQLiteJournal) -> Engine:
        return Engine(journal, [mock_interview], clock=self.clock)


def plan_of(minutes: int, *, timed: bool, seed: int) -> dict[str, Any]:
    """The stages of an interview, with the questions that don't depend on what is said.

    Raises:
        ValueError: there is no interview of so many minutes.
    """
    if minutes not in LENGTHS:
        lengths = ", ".join(map(str, LENGTHS))
        raise ValueError(f"there is no interview of {minutes} minutes: right is {lengths}")
    draw, briefs = random.Random(seed), [one for one in _by_id().values() if one.brief]
    brief = draw.choice(sorted({one.brief for one in briefs}))
    chosen = {
        CLARIFY: next(one.id for one in briefs if (one.kind, one.brief) == (OPENING, brief)),
        DESIGN: next(one.id for one in briefs if (one.kind, one.brief) == (SYSTEM, brief)),
        NUMBER: draw.choice(_numbers(hardest=minutes > min(LENGTHS))),
    }
    stages = [
        {"area": area, "minutes": length, "question": chosen.get(area, "")}
        for area, length in LENGTHS[minutes]
    ]
    return {"seed": seed, "timed": timed, "minutes": minutes, "stages": stages}


def _numbers(*, hardest: bool) -> list[str]:
    """The questions for a number; in a longer interview none of the first level."""
    return [one.id for one in _by_id().values() if one.kind == NUMBER and one.level > hardest]


def _is_open(run: Run) -> bool:
    return run.workflow == mock_interview.name and run.status is RunStatus.SUSPENDED


def _waits_for(run: Run) -> str:
    """The name of the signal that an interview waits for; empty if it waits for none."""
    return (run.waiting_for or "").removeprefix("signal '").removesuffix("'")


def _stages(events: Sequence[Event]) -> list[dict[str, Any]]:
    """What the history of an interview says of each stage, in the form that the workflow keeps."""
    stages = [one.payload["result"] for one in _steps(events, "ask")]
    times = [one.payload["result"] for one in events if one.kind is EventKind.NOW]
    found = [{**one, "since_s": at} for one, at in zip(stages, times, strict=False)]
    for part, key in (("answer", "answer"), ("follow", "followed"), ("heard", "heard")):
        for number, payload in _received(events, part):
            found[number][key] = payload
    for one, event in zip(found, _steps(events, "score"), strict=False):
        one["score"] = event.payload["result"]
    return found


def _steps(events: Sequence[Event], name: str) -> list[Event]:
    return [one for one in events if (one.kind, one.name) == (EventKind.STEP, name)]


def _received(events: Sequence[Event], part: str) -> list[tuple[int, Any]]:
    """The signals "part-0", "part-1", … that the run has taken, with their numbers."""
    return [
        (int(one.name.rpartition("-")[2]), one.payload["result"])
        for one in events
        if one.kind is EventKind.RECEIVED and one.name.startswith(f"{part}-")
    ]


def _now_asked(stages: Sequence[Mapping[str, Any]], part: str, number: str, of: int) -> Asked:
    stage, follows = stages[int(number)], part == "follow"
    return Asked(
        number=int(number),
        of=of,
        area=stage["area"],
        question=stage["question"],
        follow_up=stage["follow_up"] if follows else "",
        text=stage["follow_up_text"] if follows else stage["text"],
        exhibit="" if follows else stage["exhibit"],
        since_s=stage["since_s"],
        seconds=stage["limit_s"],
    )


def _told(one: Mapping[str, Any]) -> Told:
    """A stage from its JSON form."""
    given = dict(one["answer"])
    at_s = given.pop("at_s")
    followed = one.get("followed") or {"text": "", "at_s": at_s}
    lists = {name: tuple(given[name]) for name in ("steps", "parts")}
    found = one.get("score") or {"worth": None, "because": ()}
    return Told(
        area=one["area"],
        question=one["question"],
        text=one["text"],
        exhibit=one["exhibit"],
        answer=Answer(**{**given, **lists}),
        answered_s=at_s,
        seconds=max(followed["at_s"] - one["since_s"], 0.0),
        limit_s=one["limit_s"],
        follow_up=one["follow_up"],
        follow_up_text=one["follow_up_text"],
        follow_up_answer=followed["text"],
        steps=tuple(one.get("steps", (FIRST_STEP, LAST_STEP))),
        heard=None if "heard" not in one else heard_from(one["heard"]),
        worth=found["worth"],
        because=tuple(found["because"]),
    )
