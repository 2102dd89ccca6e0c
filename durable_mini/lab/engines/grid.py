"""Code that is changed under a run: each edit of the reference agent, on each engine, measured.

Guarantees: both versions are texts of the agent's own file, before and after an edit. A worker of
the first is killed when plan, research, draft and charge are on record; one of the second goes on;
where that one doesn't finish, the first is put back. What became of it is read from the run's
result, from what the world was asked, and from what the engine said. Leaves to others: the trial
(`trial`), what an engine could have been told beforehand (patches, versions: chapter 12).

In all of them the four LLM steps bear one name, `think`, as in an agent that calls its model in a
loop. Some files name each step on its own; here these names are changed first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from durable_mini.lab.engines.catalogue import Setup
from durable_mini.lab.engines.gate import EFFECTS, Place
from durable_mini.lab.engines.trial import Outcome, Theatre, theatre
from durable_mini.lab.ledger import Ledger

Verdict: TypeAlias = Literal[
    "right",
    "wrong",
    "repeated",
    "wrong and repeated",
    "refused",
    "refused again and again",
    "stuck",
]
"""What became of a run after its code was changed.

"right" and "wrong" have come to their end: with the values that the new code asks for, or, with no
word said, with others. "repeated": an effect that was on record was executed again. "refused": the
worker ended with an error. "refused again and again": the engine says no, and goes on trying.
"stuck": nothing happens, and nothing is said.
"""

KILLED_AT: Place = ("compose", "before")
"""Plan, research, draft and charge are on record, nothing later is."""

_RECORDED = ("plan", "research", "draft", "charge")
_LLM_NAMES = re.compile(r'(ctx\.step|ctx\.run_typed)\("(plan|research|draft|compose)"')
_RETURN = 'return {"order": order, "letter": letter'
_VALUES = {"plan": "plan", "notes": "research", "draft": "draft", "letter": "compose"}


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of the code.

    Attributes:
        name: in a few words.
        change: makes the new text from the old one.
        values: further variables of the new code, by the task whose answer they are to hold.
    """

    name: str
    change: Callable[[str], str]
    values: Mapping[str, str]


def before_edit(text: str) -> str:
    """The text that begins the run: one name for the LLM steps, and a result that tells of each."""
    shared = _LLM_NAMES.sub(r'\1("think"', text)
    told = ", ".join(f'"{name}": {name}' for name in _VALUES if name != "letter")
    return _once(shared, _RETURN, f"{_RETURN}, {told}")


def _line(text: str, variable: str) -> str:
    """The line in which a variable of the agent is bound."""
    (found,) = re.findall(rf"^ +{variable} = .*\n", text, re.MULTILINE)
    return str(found)


def _once(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise ValueError(f"{old!r} is {text.count(old)} times in the agent's text. Next: see grid.")
    return text.replace(old, new)


def _swap_different(text: str) -> str:
    draft, charge = _line(text, "draft"), _line(text, "receipt")
    return _once(text, draft + charge, charge + draft)


def _swap_same(text: str) -> str:
    notes, draft = _line(text, "notes"), _line(text, "draft")
    swapped = _once(draft, ", notes)", ", plan)") + _once(notes, ", plan)", ", draft)")
    return _once(text, notes + draft, swapped)


def _add(text: str) -> str:
    notes = _line(text, "notes")
    added = _once(_once(notes, "notes =", "checked ="), '"research"', '"review"')
    return _once(_once(text, notes, added + notes), _RETURN, f'{_RETURN}, "checked": checked')


def _remove(text: str) -> str:
    draft = _line(text, "draft")
    without = _once(text, draft, _once(draft, ", notes)", ", plan)"))
    return _once(_once(without, _line(text, "notes"), ""), ', "notes": notes', "")


def _rename(text: str) -> str:
    """As an editor's rename does it: also where a key is made of the name."""
    return re.sub(r"(?<!world\.)\bcharge\b", "pay", text)


EDITS = (
    Edit("swap two steps with different names", _swap_different, {}),
    Edit("swap two steps with the same name", _swap_same, {}),
    Edit("add a step", _add, {"checked": "review"}),
    Edit("remove a step", _remove, {}),
    Edit("rename a step", _rename, {}),
)
"""Draft with charge; research with draft; a review before research; research; charge to pay."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One edit on one engine.

    Attributes:
        setup: the engine's name in the catalogue, with what was set, such as "dbos, pinned".
        edit: the edit's name.
        verdict: what became of the run.
        executed_again: the steps on record that were executed again all the same.
        duplicates: effects that the world counts twice, although keys were sent and honoured.
        wrong_values: the new code's variables that hold something else than they are named for.
        said: what the engine said, if it said anything.
        back: whether the run finishes rightly once the old code is back; None where it had ended.
    """

    setup: str
    edit: str
    verdict: Verdict
    executed_again: tuple[str, ...]
    duplicates: int
    wrong_values: tuple[str, ...]
    said: str | None
    back: bool | None


@dataclass(frozen=True, slots=True)
class Column:
    """A setup as the grid measures it, with settings of its own: its name and those."""

    name: str
    setup: Setup
    settings: Mapping[str, str]


def columns(setup: Setup) -> list[Column]:
    """The columns of a setup: DBOS twice, since its own versioning hides what it checks."""
    found = [Column(setup.name, setup, {})]
    if setup.name == "dbos":
        found.append(Column("dbos, version pinned", setup, {"DBOS__APPVERSION": "1"}))
    return found


def measure(column: Column, edit: Edit, folder: Path | None = None) -> Cell:
    """Change the code under a run, on a fresh store, and see what becomes of it.

    Raises:
        ValueError: the agent's text has no such place.
        RuntimeError: the engine doesn't come up, or the run never gets to where it is killed.
    """
    with theatre(column.setup, folder=folder) as there:
        old, new = there.folder / "old" / "agent.py", there.folder / "new" / "agent.py"
        text = before_edit(column.setup.path.read_text(encoding="utf-8"))
        for path, said in ((old, text), (new, edit.change(text))):
            path.parent.mkdir()
            path.write_text(said, encoding="utf-8")
        options: dict[str, Any] = {"script": old, "settings": column.settings}
        limit_s = column.setup.patience_s
        outcome = there.trial("o-1", KILLED_AT, script_after=new, limit_s=limit_s, **options)
        back = _put_back(there, outcome, **options)
    return _judged(column.name, edit, outcome, back)


def _put_back(there: Theatre, outcome: Outcome, **options: Any) -> bool | None:
    """Whether the old code still brings the run to its end; None where it came to one."""
    if outcome.result is not None:
        return None
    ended = there.trial("o-1", limit_s=2 * there.setup.patience_s, **options)
    return ended.result is not None and not _wrong(ended.result, {})


def _judged(name: str, edit: Edit, outcome: Outcome, back: bool | None) -> Cell:
    later = [request.step for request in outcome.requests if request.worker == 1]
    again = tuple(step for step in _RECORDED if step in later)
    wrong = _wrong(outcome.result, edit.values) if outcome.result else ()
    said = outcome.error or outcome.refusal
    about = (again, outcome.duplicates, wrong, said, back)
    return Cell(name, edit.name, _verdict(outcome, again, wrong), *about)


def _verdict(outcome: Outcome, again: tuple[str, ...], wrong: tuple[str, ...]) -> Verdict:
    if outcome.error:
        return "refused"
    if outcome.result is None:
        return "refused again and again" if outcome.refusal else "stuck"
    repeated = any(step in EFFECTS for step in again)
    if wrong:
        return "wrong and repeated" if repeated else "wrong"
    return "repeated" if repeated else "right"


def _wrong(result: Mapping[str, Any], values: Mapping[str, str]) -> tuple[str, ...]:
    """The variables in a result that don't hold the answer to the task that they are named for."""
    model = Ledger()
    wanted = {name: model.think(task, None) for name, task in {**_VALUES, **values}.items()}
    return tuple(name for name in wanted if result.get(name, wanted[name]) != wanted[name])
