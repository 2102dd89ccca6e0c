"""Exhibits: engines that get results, failures and keys wrong.

Guarantees and what it leaves to others: as in `records`.
"""

import json
import traceback
import uuid
from collections.abc import Callable
from typing import Any
from zlib import crc32

from durable_mini.lab.museum.honest import Context, Event, HonestEngine, StepFailed, Stop, kept


class HandsOutWhatWasReturned(HonestEngine):
    """The first time the code gets what the step returned; on replay it gets what was recorded.

    The first execution saw a tuple, replay a list, and the code turned off its path.
    """

    report = "several engines"
    breaks = frozenset({3})

    class Ctx(Context):
        def call(self, kind: str, name: str, fn: Any, args: Any, more: Any) -> Any:
            live = list[Any]()

            def noted(*given: Any, **also: Any) -> Any:
                live.append(fn(*given, **also))
                return live[-1]

            recorded = super().call(kind, name, noted, args, more)
            return live[-1] if live else recorded


class TellsTheStack(HonestEngine):
    """A failure carries its stack trace to the code, and the record doesn't have it.

    The text differed on replay, and was taken for another path.
    """

    report = "restate sdk-typescript, issue 656"
    breaks = frozenset({10})

    class Ctx(Context):
        def record(self, event: Event) -> Event:
            written = super().record(event)
            if "error" in written:
                written["error"] += "".join(traceback.format_stack(limit=2))
            return written


class LosesTheError(HonestEngine):
    """A failure is recorded as an exception's name, which nobody can make into the exception again.

    The first process raised what went wrong, later ones something that says nothing.
    """

    report = "dbos-transact-py, issues 371 and 111"
    breaks = frozenset({10})

    class Ctx(Context):
        def execute(self, name: str, fn: Any, args: list[Any], more: dict[str, Any]) -> Event:
            outcome = super().execute(name, fn, args, more)
            if "error" in outcome:
                outcome["error"] = outcome["error"].rpartition(": ")[0]
            return outcome


class EndsOnAnyError(HonestEngine):
    """Whatever the workflow's code raises ends the run, a misspelled key as much as a refused card.

    A deploy with a bug ends every run that it touches, and the repaired code finds them ended.
    """

    report = "several engines, on purpose"
    breaks = frozenset({11})

    def drive(self, ctx: Context, workflow: Callable[..., Any]) -> Event:
        def never_raising(of: Context, value: Any) -> Any:
            try:
                return workflow(of, value)
            except Exception as error:
                raise StepFailed(str(error)) from error

        return super().drive(ctx, never_raising)


class BlamesTheStep(HonestEngine):
    """A disk that refuses the record of a step is reported to the code as a failure of the step.

    The charge went through, the code was told that it failed, and went down the path for failures.
    """

    report = "one `except` around the work and its record"
    breaks = frozenset({12})

    class Ctx(Context):
        def call(self, kind: str, name: str, fn: Any, args: Any, more: Any) -> Any:
            try:
                return super().call(kind, name, fn, args, more)
            except Stop as stop:
                if isinstance(stop.__cause__, OSError):
                    raise StepFailed(str(stop)) from stop
                raise


class TriesBadValuesAgain(HonestEngine):
    """A result that can't be kept ends the attempt and leaves no record.

    The step was executed again by every attempt, for ever.
    """

    report = "pydantic-ai, issue 7164"
    breaks = frozenset({13})

    class Ctx(Context):
        def execute(self, name: str, fn: Any, args: list[Any], more: dict[str, Any]) -> Event:
            def checked(*given: Any, **also: Any) -> Any:
                result = fn(*given, **also)
                try:
                    return kept(result)
                except (TypeError, ValueError) as error:
                    raise Stop(f"step {name!r}: {error}") from None

            return super().execute(name, checked, args, more)


class WritesWhatItCanNotRead(HonestEngine):
    """Its serializer takes what JSON doesn't have, and says nothing when something is lost.

    Of two keys that became one a value was gone, and a number that is none stopped every reader but
    its own.
    """

    report = "dbos-transact-py, issue 111"
    breaks = frozenset({13})

    class Ctx(Context):
        def execute(self, name: str, fn: Any, args: list[Any], more: dict[str, Any]) -> Event:
            def lossy(*given: Any, **also: Any) -> Any:
                return json.loads(json.dumps(fn(*given, **also)).replace("NaN", "null"))

            return super().execute(name, lossy, args, more)


class NewKeyEachTime(HonestEngine):
    """Its key is drawn anew by each attempt, and no receiver can tell a repeat by it."""

    report = "aws durable execution SDK for Python 3.0.0: nothing in its step context is stable"
    breaks = frozenset({14})

    class Ctx(Context):
        def key(self, name: str, number: int) -> str:
            return str(uuid.uuid4())


class NamesItsKeysBySteps(HonestEngine):
    """Its key is the step's name: the second run's charge is taken for a repeat of the first's."""

    report = "a home-made key"
    breaks = frozenset({15})

    class Ctx(Context):
        def key(self, name: str, number: int) -> str:
            return name


class KeysByContent(HonestEngine):
    """Its key is a hash of what is sent: two customers who owe the same are charged once."""

    report = "a home-made key, see chapter 03"
    breaks = frozenset({15})

    class Ctx(Context):
        def call(self, kind: str, name: str, fn: Any, args: Any, more: Any) -> Any:
            content = f"{crc32(json.dumps(args).encode()):08x}"
            return super().call(kind, name, fn, args, dict.fromkeys(more, content))
