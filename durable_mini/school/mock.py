"""The mock interview: a durable run of this project's own engine.

Guarantees: whatever kills the process in the middle, the next one goes on at the same question with
the same clock, since every answer is a signal in the journal and the clock is what was recorded.
Nothing is taught before the debrief. The failures are put into the candidate's own design: they
name the candidate's steps and hit a part that the design has.
Leaves to others: showing it (`course/quiz.ipynb`, `durable-mini quiz`), what an answer is worth
(`rubric`), and keeping scores for ever (`reviews`): an interview lasts an hour, not months.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs

from durable_mini.clock import SystemClock
from durable_mini.context import Context
from durable_mini.engine import Engine
from durable_mini.events import Event, EventKind, Run, RunStatus
from durable_mini.journal.sqlite import SQLiteJournal
from durable_mini.school.bank import Question, load_failures, load_questions
from durable_mini.school.rubric import Heard, score
from durable_mini.structure import workflow

AREAS = {
    "clarify": "Clarify",
    "design": "Design",
    "failure": "A failure in your design",
    "number": "A number",
}
"""The parts of an interview that are scored, by the names that stages carry."""

LENGTHS: Mapping[int, Sequence[tuple[str, int]]] = {
    20: (("clarify", 2), ("design", 8), ("failure", 4), ("number", 4)),
    45: (("clarify", 5), ("design", 20), ("failure", 5), ("failure", 5), ("number", 5)),
    60: (("clarify", 6), ("design", 26), *(("failure", 6),) * 3, ("number", 5)),
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


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked now.

    Attributes:
        number: of the stage, from 0.
        of: how many stages there are.
        area: one of `AREAS`.
        question: the id of the question or failure.
        text: what the interviewer says.
        exhibit: a history or code that goes with it.
        since_s: when it was asked, by the recorded clock.
        seconds: how long it may take; None without a clock.
    """

    number: int
    of: int
    area: str
    question: str
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
        irreversible: the step that can't be taken back.
        parts: which of `PARTS` the design has.
    """

    text: str
    confidence: int = 2
    steps: tuple[str, ...] = ()
    irreversible: str = ""
    parts: tuple[str, ...] = ()


@workflow(name="mock-interview", version="1")
def mock_interview(ctx: Context, plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Ask stage after stage, then hear what was ticked for each; returns the whole interview."""
    told: list[dict[str, Any]] = []
    for number, stage in enumerate(plan["stages"]):
        asked = ctx.step("ask", _choose, plan["seed"], stage, told)
        since_s = ctx.now()
        answer = ctx.wait_signal(f"answer-{number}")
        told.append({**asked, "answer": answer, "seconds": ctx.now() - since_s})
    for number, one in enumerate(told):
        heard = ctx.wait_signal(f"heard-{number}")
        one["heard"] = heard
        one["score"] = ctx.step("score", _scored, one["question"], heard)
    return told


def _choose(seed: int, stage: dict[str, Any], told: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The question of a stage; a failure is chosen by the design, and never comes twice."""
    if stage["area"] != "failure":
        question = _by_id()[stage["question"]]
        return _as_asked(stage["area"], question, question.prompt)
    design = next(one["answer"] for one in told if one["area"] == "design")
    used = {one["question"] for one in told}
    hitting = [one for one in _failures() if one.id not in used and one.hits in design["parts"]]
    others = [one for one in _failures() if one.id not in used and not one.hits]
    question = random.Random(f"{seed} {len(told)}").choice(hitting or others)
    return _as_asked("failure", question, _into_design(question.prompt, design))


def _as_asked(area: str, question: Question, text: str) -> dict[str, Any]:
    return {"area": area, "question": question.id, "text": text, "exhibit": question.exhibit}


def _into_design(prompt: str, design: Mapping[str, Any]) -> str:
    """Put the candidate's own steps into a failure's words."""
    steps = list(design["steps"]) or ["the first step", "the last step"]
    last = design["irreversible"] or steps[-1]
    before = steps[max(steps.index(last) - 1, 0)] if last in steps else steps[0]
    return prompt.replace("[step]", before).replace("[irreversible]", last)


def _scored(question: str, heard: dict[str, Any]) -> dict[str, Any]:
    return asdict(score(_by_id()[question], heard_from(heard)))


def heard_from(stored: Mapping[str, Any]) -> Heard:
    """What was ticked, from its JSON form."""
    sets = {name: frozenset(stored.get(name, ())) for name in ("points", "red_flags")}
    return Heard(**{**stored, **sets})


@cache
def _by_id() -> dict[str, Question]:
    return {one.id: one for one in (*load_questions(), *load_failures())}


@cache
def _failures() -> tuple[Question, ...]:
    return tuple(load_failures())


class MockInterview:
    """One interview in the reader's own folder: begin it, answer, be heard, read the debrief.

    Args:
        path: the journal; None for this system's place for a program's data.
        clock: whose time is recorded.

    Several windows may show the same interview; an answer to a question that another window has
    answered already is dropped.
    """

    def __init__(self, path: Path | None = None, clock: SystemClock | None = None) -> None:
        folder = platformdirs.user_data_path("durable-mini", appauthor=False)
        self.path, self._clock = path or folder / "interviews.db", clock or SystemClock()

    def under_way(self) -> str | None:
        """The id of an interview that was begun and not finished; None if there is none."""
        if not self.path.exists():
            return None
        with SQLiteJournal(self.path) as journal:
            engine = self._engine(journal)
            orphans = {one.run_id for one in engine.orphans()}
            open_runs = [one.run_id for one in engine.runs() if _is_open(one)]
        return next((one for one in reversed(open_runs) if one not in orphans), None)

    def begin(self, minutes: int, *, timed: bool = True, seed: int = 0) -> str:
        """Begin an interview and return its id.

        Raises:
            ValueError: there is no interview of so many minutes.
        """
        plan = _plan(minutes, timed, seed)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with SQLiteJournal(self.path) as journal:
            engine = self._engine(journal)
            run_id = f"mock-{sum(1 for _ in engine.runs()) + 1}"
            engine.run(mock_interview, plan, run_id=run_id)
        return run_id

    def asked(self, run_id: str) -> Asked | None:
        """What is asked now; None once all was answered."""
        with SQLiteJournal(self.path) as journal:
            engine = self._engine(journal)
            engine.resume(run_id)
            plan = engine.describe(run_id).input
            events = engine.history(run_id)
        asked = [one for one in events if one.kind is EventKind.STEP and one.name == "ask"]
        answered = len(_received(events, "answer"))
        if answered == len(plan["stages"]):
            return None
        minutes = plan["stages"][answered]["minutes"]
        seconds = minutes * 60.0 if plan["timed"] else None
        now = asked[answered]
        of, since_s = len(plan["stages"]), now.recorded_at
        return Asked(answered, of, **now.payload["result"], since_s=since_s, seconds=seconds)

    def answer(self, run_id: str, number: int, answer: Answer) -> None:
        """Give the answer of a stage.

        Crash: the answer is there, or it is asked for again.
        """
        self._signal(run_id, f"answer-{number}", asdict(answer))

    def heard(self, run_id: str, number: int, heard: Heard) -> None:
        """Say in the debrief what was heard in the answer of a stage."""
        sets = {name: sorted(getattr(heard, name)) for name in ("points", "red_flags")}
        self._signal(run_id, f"heard-{number}", {**asdict(heard), **sets})

    def debrief(self, run_id: str) -> list[dict[str, Any]]:
        """The interview so far: every stage with its answer, and its score once it was heard."""
        with SQLiteJournal(self.path) as journal:
            engine = self._engine(journal)
            run = engine.resume(run_id)
            if run.status is RunStatus.COMPLETED:
                return list(run.result)
            return _told(engine.history(run_id))

    def abandon(self, run_id: str) -> None:
        """Give an interview up."""
        with SQLiteJournal(self.path) as journal:
            engine = self._engine(journal)
            engine.cancel(run_id)
            engine.resume(run_id)

    def _signal(self, run_id: str, name: str, payload: dict[str, Any]) -> None:
        with SQLiteJournal(self.path) as journal:
            engine = self._engine(journal)
            engine.signal(run_id, name, payload, signal_id=name)
            engine.resume(run_id)

    def _engine(self, journal: SQLiteJournal) -> Engine:
        return Engine(journal, [mock_interview], clock=self._clock)


def _plan(minutes: int, timed: bool, seed: int) -> dict[str, Any]:
    """The stages, with the questions that don't depend on what is said."""
    if minutes not in LENGTHS:
        raise ValueError(
            f"an interview of {minutes} minutes: right is {', '.join(map(str, LENGTHS))}"
        )
    draw = random.Random(seed)
    stages = list[dict[str, Any]]()
    for area, length in LENGTHS[minutes]:
        stage: dict[str, Any] = {"area": area, "minutes": length}
        if area != "failure":
            stage["question"] = draw.choice(
                [one.id for one in load_questions() if one.kind == area]
            )
        stages.append(stage)
    return {"seed": seed, "timed": timed, "minutes": minutes, "stages": stages}


def _is_open(run: Run) -> bool:
    return run.workflow == mock_interview.name and run.status is RunStatus.SUSPENDED


def _received(events: Sequence[Event], name: str) -> dict[int, tuple[Event, Any]]:
    """The signals "name-0", "name-1", … that the run has taken, by number."""
    return {
        int(one.name.rpartition("-")[2]): (one, one.payload["result"])
        for one in events
        if one.kind is EventKind.RECEIVED and one.name.startswith(f"{name}-")
    }


def _told(events: Sequence[Event]) -> list[dict[str, Any]]:
    """What an interview that isn't over has come to, from its history."""
    asked = [one for one in events if one.kind is EventKind.STEP and one.name == "ask"]
    scores = [one.payload["result"] for one in events if one.name == "score"]
    heard = _received(events, "heard")
    told = []
    for number, (event, answer) in sorted(_received(events, "answer").items()):
        one = {**asked[number].payload["result"], "answer": answer}
        one["seconds"] = event.recorded_at - asked[number].recorded_at
        if number < len(scores):
            one |= {"heard": heard[number][1], "score": scores[number]}
        told.append(one)
    return told
