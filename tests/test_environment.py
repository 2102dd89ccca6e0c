"""The environment check of the first chapter: quiet where all is there, and clear where not."""

from __future__ import annotations

from pathlib import Path

from durable_mini.lab.environment import PACKAGES, check_environment

ALL_THERE = "Nothing is missing: processes, journal, figures and sliders will work here."


def test_environment_that_runs_these_tests_lacks_nothing() -> None:
    found = check_environment()

    assert found.ok
    assert repr(found) == ALL_THERE


def test_environment_sentence_names_no_version_and_no_path() -> None:
    assert not any(sign.isdigit() or sign in "/\\" for sign in repr(check_environment()))


def test_missing_package_is_named_with_the_command_that_installs_it() -> None:
    found = check_environment(has_module=lambda name: name != "matplotlib")

    assert not found.ok
    (lack,) = found.lacks
    assert "matplotlib (figures)" in lack.what
    assert "-m pip install matplotlib" in lack.next_move


def test_every_lack_is_counted_and_listed() -> None:
    found = check_environment(has_kill=False, sqlite=(3, 36, 0), has_module=lambda _name: None)

    lines = repr(found).splitlines()
    assert lines[0] == f"Missing here ({2 + len(PACKAGES)}):"
    assert "WSL2" in lines[1]
    assert "SQLite is 3.36.0, the journal needs 3.37 or newer" in lines[2]
    assert [line.split(".")[0] for line in lines[1:]] == [str(n) for n in range(1, len(lines))]


def test_sqlite_with_strict_tables_is_new_enough() -> None:
    assert check_environment(sqlite=(3, 37, 0)).ok


def test_folder_that_cannot_be_written_is_reported_with_its_reason(tmp_path: Path) -> None:
    found = check_environment(folder=tmp_path / "nowhere")

    (lack,) = found.lacks
    assert "No such file or directory" in lack.what
    assert "TMPDIR" in lack.next_move


def test_trial_journal_is_gone_afterwards(tmp_path: Path) -> None:
    check_environment(folder=tmp_path)

    assert list(tmp_path.iterdir()) == []
