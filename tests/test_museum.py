"""The museum: each exhibit breaks the laws that it is expected to break, and no other."""

from __future__ import annotations

import inspect

import pytest

from durable_mini.lab.conformance import LAWS, check_engine
from durable_mini.lab.museum import MUSEUM, HonestEngine, PatientEngine, Tour, tour
from durable_mini.lab.museum.disks import LooksThenWrites, TrustsTheBytes
from durable_mini.lab.museum.records import LooksForTruth, TakesAnyKind

pytestmark = pytest.mark.slow

NAMES = [exhibit.__name__ for exhibit in MUSEUM]


@pytest.mark.slow
@pytest.mark.parametrize("exhibit", MUSEUM, ids=NAMES)
def test_exhibit_breaks_the_declared_laws_and_no_other(exhibit):
    report = check_engine(exhibit)

    assert report.broken == exhibit.breaks, report


@pytest.mark.parametrize("exhibit", MUSEUM, ids=NAMES)
def test_exhibit_breaks_its_first_law_where_the_honest_engine_keeps_it(exhibit):
    law = min(exhibit.breaks)
    (row,) = check_engine(exhibit, only=[law]).rows

    assert row.verdict == "BROKEN"
    assert row.detail.startswith("Case ")


def test_every_law_is_broken_by_an_exhibit():
    assert frozenset().union(*(exhibit.breaks for exhibit in MUSEUM)) == {
        law.number for law in LAWS
    }
    assert len(MUSEUM) >= 12
    assert len(set(NAMES)) == len(MUSEUM)


@pytest.mark.parametrize("exhibit", MUSEUM, ids=NAMES)
def test_exhibit_says_what_is_wrong_and_differs_in_a_few_lines(exhibit):
    lines = inspect.getsource(exhibit).replace(f'"""{exhibit.__doc__}"""', "").splitlines()

    assert issubclass(exhibit, HonestEngine)
    assert exhibit.__doc__.endswith(".") or exhibit.__doc__.endswith(".\n    ")
    assert exhibit.report
    assert len([line for line in lines if line.strip()]) <= 22


def test_tour_is_a_matrix_of_laws_and_engines():
    visited = tour([TakesAnyKind, LooksForTruth, PatientEngine_without_a_fault], only=[2, 6, 28])

    assert visited.laws == (2, 6, 28)
    assert visited.engines == ("TakesAnyKind", "LooksForTruth", "PatientEngine_without_a_fault")
    assert visited.holds == ((True, False, True), (False, True, True), (None, None, True))
    assert len(visited.titles) == 3
    assert visited.ok
    assert "3 of 3 exhibits break the laws that they are expected to break" in str(visited)
    for text in (str(visited), visited._repr_html_()):
        assert "Its records are compared by name and arguments only." in text


class PatientEngine_without_a_fault(PatientEngine):  # noqa: N801 - as it is called in the table
    """Nothing is wrong with it."""

    report = "nowhere"
    breaks: frozenset[int] = frozenset()


def test_tour_says_where_an_exhibit_is_not_as_expected():
    wrong = type("Wrong", (TakesAnyKind,), {"breaks": frozenset({5, 6, 7, 9})})
    visited = tour([wrong], only=[5, 6])

    assert not visited.ok
    assert "6 (expected 5-7, 9)" in str(visited)
    assert Tour((), ()).holds == ()


def test_gap_between_look_and_write_is_found_at_its_line():
    (row,) = check_engine(LooksThenWrites, only=[20]).rows

    assert "taken over as alone returned, another process resumes" in row.detail


def test_damaged_value_is_named_with_its_byte():
    (row,) = check_engine(TrustsTheBytes, only=[18]).rows

    assert "byte " in row.detail
    assert "from a damaged journal" in row.detail
