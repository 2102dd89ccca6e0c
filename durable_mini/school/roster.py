"""Who belongs to the class, which of several attempts counts, and names that give nobody away.

Guarantees: a student of the roster has a row for every exercise that the class was set, also where
nothing was handed in; of several attempts the latest counts, and the earlier ones are rows that say
so; a hand-in of somebody who isn't on the roster keeps a row under the name that its file gives;
a pseudonym stays the same as long as its key file is kept, and can't be computed from a name.

Leaves to others: how a file's name gives away student and attempt (`submissions`).
"""

from __future__ import annotations

import csv
import io
import json
import secrets
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from durable_mini.school.marks import HandIn
from durable_mini.school.writing import read_text, replace_file

NAME_COLUMNS = ("student", "name", "id", "username", "user", "login", "email")
EARLIER = "An earlier attempt: it was not graded, the latest one counts."
MISSING = "Nothing was handed in."
_TOKEN_BYTES = 4


class RosterError(ValueError):
    """A roster or a key file can't be used; the message says where and what to do."""


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody on the roster: `name` is what rows show, `forms` how a file may spell it."""

    name: str
    forms: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sorted:
    """The hand-ins of a class: what is graded, and what has a row all the same."""

    to_grade: tuple[HandIn, ...]
    only_rows: tuple[tuple[HandIn, str], ...]  # with the note that says why


def read_roster(path: Path) -> list[Member]:
    """Read a CSV file with a header; the first known column, or else the first, is the name.

    Every other column is another way in which a file may name the same student: an id, an address.

    Raises: RosterError; OSError when the file can't be read.
    """
    header, rows = _table(path)
    shown = next((header.index(each) for each in NAME_COLUMNS if each in header), 0)
    members = [Member(row[shown], _forms(row)) for row in rows if row[shown]]
    if not members:
        raise RosterError(f"{path}: no student in it. Next: a line `student`, then a name a line.")
    names = [member.name for member in members]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RosterError(
            f"{path}: {twice[0]!r} stands there twice. Next: a column `id`, first, that tells them "
            "apart."
        )
    return members


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    """The header in small letters, and the rows, as long as the header, without empty ones."""
    text = read_text(path, RosterError)
    first, _, _ = text.partition("\n")
    separator = ";" if first.count(";") > first.count(",") else ","
    rows = [
        [cell.strip() for cell in row] for row in csv.reader(io.StringIO(text), delimiter=separator)
    ]
    rows = [row for row in rows if any(row)]
    if not rows:
        raise RosterError(f"{path}: the file is empty. Next: a line `student`, then a name a line.")
    header = [cell.casefold() for cell in rows[0]]
    return header, [(row + [""] * len(header))[: len(header)] for row in rows[1:]]


def _forms(cells: Iterable[str]) -> frozenset[str]:
    """How a file may spell somebody: each cell, an address without its host, names turned round."""
    forms: set[str] = set()
    for cell in cells:
        words = cell.partition("@")[0].replace(",", " ").split()
        forms |= {plain(cell), plain("".join(words)), plain("".join(words[::-1]))}
        if len(words) > 1:
            forms.add(plain(words[-1] + "".join(words[:-1])))
    return frozenset(forms - {""})


def plain(name: str) -> str:
    """Letters and digits alone, without case or accents.

    >>> plain("Zoë  O'Neill_2")
    'zoeoneill2'
    """
    apart = unicodedata.normalize("NFKD", name).casefold()
    return "".join(character for character in apart if character.isalnum())


def with_roster(
    hand_ins: Sequence[HandIn], members: Sequence[Member], exercises: Sequence[str] | None = None
) -> Sorted:
    """Name each hand-in as the roster does, set earlier attempts aside, and add what is missing.

    Args:
        exercises: what the class was set; without it, whatever anybody handed in.
    """
    named = [replace(each, student=_name_of(each, members)) for each in hand_ins]
    to_grade, earlier = latest(named)
    there = {(each.student, each.exercise) for each in to_grade}
    if exercises is None:
        exercises = [each.exercise for each in to_grade if each.exercise]
    wanted = sorted(set(exercises)) or [""]
    missing = [
        (_nothing(member.name, exercise), MISSING)
        for member in members
        for exercise in wanted
        if (member.name, exercise) not in there
    ]
    return Sorted(tuple(to_grade), (*((each, EARLIER) for each in earlier), *missing))


def _name_of(hand_in: HandIn, members: Sequence[Member]) -> str:
    # A student's own folder comes first: what is written on the files in it was the student's word.
    folders = PurePosixPath(hand_in.shown).parts[:-1]
    whose = _member_of(folders[0], members) if folders else ""
    return whose or _member_of(hand_in.student, members) or hand_in.student


def _member_of(name: str, members: Sequence[Member]) -> str:
    """Who of the class is called so; "" if nobody is, or several are."""
    if any(member.name == name for member in members):
        return name
    form = plain(name)
    found = [member.name for member in members if form and form in member.forms]
    return found[0] if len(found) == 1 else ""


def _nothing(student: str, exercise: str) -> HandIn:
    shown = f"{student}/{exercise}" if exercise else student
    return HandIn(Path(), shown, student, exercise)


def latest(hand_ins: Sequence[HandIn]) -> tuple[list[HandIn], list[HandIn]]:
    """The latest attempt of each student at each exercise, and the earlier ones, both in order.

    A hand-in without a student or an exercise stands for itself. A file that can't be read counts
    as an attempt only where there is no other.
    """
    groups: defaultdict[tuple[str, ...], list[HandIn]] = defaultdict(list)
    for each in hand_ins:
        known = each.student and each.exercise
        groups[(each.student, each.exercise) if known else ("", "", each.shown)].append(each)
    counts = {max(group, key=_later).shown for group in groups.values()}
    return (
        [each for each in hand_ins if each.shown in counts],
        [each for each in hand_ins if each.shown not in counts],
    )


def _later(hand_in: HandIn) -> tuple[bool, tuple[tuple[bool, int, str], ...], str]:
    parts = tuple(
        (isinstance(part, str), 0 if isinstance(part, str) else part, str(part))
        for part in hand_in.attempt
    )
    return not hand_in.trouble, parts, hand_in.shown


# ---- pseudonyms --------------------------------------------------------------------------------


def pseudonyms(key_file: Path, students: Iterable[str]) -> dict[str, str]:
    """A pseudonym for each student: those of the key file, and new ones, which are added to it.

    Crash: the key file holds what it held before, or all that is new.

    Raises: RosterError when the file is none; OSError.
    """
    known = _read_key(key_file) if key_file.exists() else {}
    new = sorted(set(students) - set(known))
    given = set(known.values())
    for student in new:
        while (name := f"p-{secrets.token_hex(_TOKEN_BYTES)}") in given:
            continue
        given.add(name)
        known[student] = name
    if new:
        replace_file(key_file, json.dumps(known, indent=2, sort_keys=True) + "\n")
    return known


def _read_key(path: Path) -> dict[str, str]:
    try:
        stored = json.loads(read_text(path, RosterError))
    except ValueError:
        stored = None
    if not isinstance(stored, dict) or not all(isinstance(name, str) for name in stored.values()):
        hint = "name a file that this command wrote, or one that isn't there yet"
        raise RosterError(f"{path}: it is no key file. Next: {hint}.")
    return stored


def hidden(hand_ins: Sequence[HandIn], names: Mapping[str, str]) -> list[HandIn]:
    """The hand-ins under pseudonyms; their paths give nobody away either."""
    seen: Counter[str] = Counter()
    under = []
    for each in hand_ins:
        name = names[identity(each)]
        shown = f"{name}/{each.exercise or 'unknown'}"
        seen[shown] += 1
        again = f"-{seen[shown]}" if seen[shown] > 1 else ""
        under.append(replace(each, student=name, shown=f"{shown}{again}"))
    return under


def identity(hand_in: HandIn) -> str:
    """Whose it is; a file that doesn't say stands for itself."""
    return hand_in.student or hand_in.shown
