"""Archives of a class: unpacked where they may be, and nowhere else, and never without end."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from durable_mini.school import submissions


def archive(path: Path, **files: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return path


def scratch_in(tmp_path: Path) -> Path:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return scratch


def test_archive_in_an_archive_is_unpacked(tmp_path: Path) -> None:
    inner = archive(tmp_path / "ada.zip", **{"03_keys.ipynb": b"{}"})
    outer = archive(tmp_path / "class.zip", **{"ada.zip": inner.read_bytes()})

    (found,) = submissions.find([outer], scratch_in(tmp_path))

    assert (found.shown, found.exercise) == ("class/ada/03_keys.ipynb", "03_keys")
    assert found.path.read_bytes() == b"{}"


def test_archive_can_t_write_outside(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", **{"../../evil.ipynb": b"{}", "/abs.ipynb": b"{}"})

    found = submissions.find([path], scratch_in(tmp_path))

    assert {one.path.parent for one in found} == {tmp_path / "scratch" / "archive-0"}
    assert not (tmp_path.parent / "evil.ipynb").exists()


def test_link_in_an_archive_is_a_plain_file(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("03_keys.ipynb")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened:
        opened.writestr(link, "/etc/passwd")

    (found,) = submissions.find([tmp_path / "a.zip"], scratch_in(tmp_path))

    assert found.path.read_text(encoding="utf-8") == "/etc/passwd"


def test_archive_that_unpacks_without_end_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "MAX_UNPACKED_BYTES", 1_000_000)
    path = archive(tmp_path / "a.zip", **{"03_keys.ipynb": bytes(1_000_001)})
    scratch = scratch_in(tmp_path)

    (found,) = submissions.find([path], scratch)

    assert found.trouble == "The archive can't be unpacked: it holds more than 1,000,000 bytes."
    assert list(scratch.iterdir()) == []


def test_archive_that_is_none_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(b"no archive")

    (found,) = submissions.find([path], scratch_in(tmp_path))

    assert "can't be unpacked" in found.trouble
