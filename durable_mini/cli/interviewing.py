"""A mock interview in a terminal, the same run that a notebook shows.

Guarantees: one that is under way is offered first; each answer is in the journal before the next
question is printed, so whatever ends this process costs the answer that is being typed and nothing
else. Leaves to others: the run (`school.mock`), the dialogue's lines (`asking`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from durable_mini.cli.asking import (
    StoppedError,
    chosen,
    number,
    say,
    show_exhibit,
    tick,
    typed,
    yes,
)
from durable_mini.school.debrief import (
    debrief,
    keep_scores,
    summary,
    transcript,
    worked,
    worked_follow_up,
)
from durable_mini.school.figures import Figures
from durable_mini.school.mock import AREAS, DESIGN, PARTS, Answer, Asked, MockInterview, question_of
from durable_mini.school.rehearsal import Rehearsal


def interview(rehearsal: Rehearsal, minutes: int, seed: int | None) -> None:
    """Hold an interview, or go on with the one that is under way.

    Raises:
        ValueError: there is no interview of so many minutes.
        ReviewsError, OSError: the log can't be used.
    """
    mock = MockInterview(rehearsal.log.path.with_name("interviews.db"))
    try:
        run_id = _begun(mock, minutes, seed, timed=rehearsal.settings().clock)
        while (asked := mock.asked(run_id)) is not None:
            _put(mock, run_id, asked)
        _hear_all(mock, run_id)
    except StoppedError:
        say("Stopped. What you answered is kept: the same command goes on from here.")
        return
    _tell(mock, run_id, rehearsal)


def _begun(mock: MockInterview, minutes: int, seed: int | None, *, timed: bool) -> str:
    """The interview to hold."""
    run_id = mock.under_way()
    if run_id is not None:
        begun = mock.plan(run_id)["minutes"]
        if yes(f"An interview of {begun} minutes is under way. Go on with it?"):
            return run_id
        if not yes("Give it up, and begin another?"):
            raise StoppedError
        mock.abandon(run_id)
    return mock.begin(minutes, timed=timed, seed=seed)


def _put(mock: MockInterview, run_id: str, asked: Asked) -> None:
    """Ask one question and take its answer."""
    part = "the follow-up to it" if asked.follow_up else AREAS[asked.area]
    say(f"Stage {asked.number + 1} of {asked.of}: {part}{_left(mock, asked)}")
    say(asked.text)
    show_exhibit(asked.exhibit)
    if asked.follow_up:
        mock.follow(run_id, asked.number, typed())
    else:
        mock.answer(run_id, asked.number, _answer(asked))


def _left(mock: MockInterview, asked: Asked) -> str:
    if asked.seconds is None:
        return ""
    left = asked.seconds - (mock.clock.now() - asked.since_s)
    return f"; {left / 60:.0f} minutes left" if left > 0 else "; its time is over"


def _answer(asked: Asked) -> Answer:
    text = typed()
    if asked.area != DESIGN:
        return Answer(text, _sure())
    lines = typed("The names of your steps in their order, one a line; an empty line ends them:")
    steps = tuple(dict.fromkeys(one.strip() for one in lines.splitlines() if one.strip()))
    if len(steps) < 2:
        say("That is less than two. Your design has them, so name them.")
        return _answer(asked)
    for place, step in enumerate(steps, 1):
        typer.echo(f"  {place}. {step}")
    last = number("Which of them can't be taken back?", range(1, len(steps) + 1))
    has = chosen("What does your design have?", list(PARTS.values()))
    parts = tuple(name for place, name in enumerate(PARTS) if place in has)
    return Answer(text, _sure(), steps, steps[last - 1], parts)


def _sure() -> int:
    return number("How sure are you, 0 a guess to 3 certain?", range(4))


def _hear_all(mock: MockInterview, run_id: str) -> None:
    """The debrief: for each stage what was said, the worked answer, and the boxes."""
    figures = Figures(mock.plan(run_id)["seed"])
    for place, one in enumerate(mock.told(run_id)):
        if one.heard is not None:
            continue
        say(f"Debrief, stage {place + 1}: {AREAS[one.area]}")
        say(f"You were asked: {one.text}")
        say(f"You answered: {one.answer.text or '(aloud)'}")
        say("Worked answer:")
        say(worked(one, figures))
        heard = replace(tick(question_of(one.question)), seconds=one.seconds)
        if one.limit_s is None:
            heard = replace(heard, seconds=None)
        if one.follow_up:
            say(f"The follow-up: {one.follow_up_text}")
            say(f"You answered: {one.follow_up_answer or '(aloud)'}")
            say(worked_follow_up(one, figures))
            heard = replace(heard, follow_up=yes("Did you answer it?"))
        mock.heard(run_id, place, heard)
        scored = mock.told(run_id)[place]
        say(f"Score: {scored.worth} of 3. {' '.join(scored.because)}")


def _tell(mock: MockInterview, run_id: str, rehearsal: Rehearsal) -> None:
    told = mock.told(run_id)
    say("\n".join(summary(debrief(told))))
    added = keep_scores(told, rehearsal.log)
    say(f"{added} scores were added to the log.")
    path = mock.path.with_name(f"{run_id}.md")
    _write(path, transcript(told, mock.plan(run_id), run_id))
    say(f"Transcript: {path}")


def _write(path: Path, text: str) -> None:
    """A transcript says the same each time, so an older one may stay."""
    if not path.exists():
        path.write_text(text, encoding="utf-8")
