"""Incident files on disks that are full, foreign, or cut off."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangwatch.report import files, html
from hangwatch.report.incident import recovered
from hangwatch.wire import codec
from tests import examples


def test_an_incident_is_written_privately_and_read_back(tmp_path: Path) -> None:
    made = examples.uneven_steps()
    written = files.write(made, tmp_path / "new" / "reports")
    assert written.error is None
    assert written.json_path == tmp_path / "new/reports/incident-20261120T193003Z-3f2a.json"
    assert written.best == written.html_path == written.json_path.with_suffix(".html")
    assert files.read(written.json_path) == made
    assert stat.S_IMODE(written.json_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(written.html_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(written.json_path.parent.stat().st_mode) == 0o700
    assert sorted(path.suffix for path in written.json_path.parent.iterdir()) == [".html", ".json"]


def test_the_same_files_are_rewritten_on_recovery(tmp_path: Path) -> None:
    made = examples.uneven_steps()
    before = files.write(made, tmp_path)
    closed = recovered(made, made.opened_at + 60)
    assert files.write(closed, tmp_path) == before
    assert before.json_path is not None
    assert files.read(before.json_path) == closed
    assert len(list(tmp_path.iterdir())) == 2


def test_an_id_cannot_leave_the_directory(tmp_path: Path) -> None:
    written = files.write(replace(examples.uneven_steps(), id="../../etc/x"), tmp_path)
    assert written.json_path is not None
    assert written.json_path.parent == tmp_path
    assert written.json_path.name == "incident-20261120T193003Z-______etc_x.json"


class _FullDisk:
    """os.fsync of a disk that fills up after `writes` files."""

    def __init__(self, writes: int) -> None:
        self.left = writes

    def __call__(self, descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", _FullDisk(0))
    written = files.write(examples.uneven_steps(), tmp_path)
    assert (written.json_path, written.html_path, written.best) == (None, None, None)
    assert str(written.error) == (
        f"cannot write {tmp_path}: no space left on device; mend that or choose another place (--report-dir)"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_keeps_the_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", _FullDisk(1))
    written = files.write(examples.uneven_steps(), tmp_path)
    assert written.json_path == written.best
    assert written.html_path is None
    assert "no space left" in str(written.error)
    assert list(tmp_path.iterdir()) == [written.json_path]


def test_a_full_disk_keeps_the_older_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = examples.uneven_steps()
    before = files.write(made, tmp_path)
    monkeypatch.setattr(os, "fsync", _FullDisk(0))
    files.write(recovered(made, made.opened_at + 60), tmp_path)
    assert before.json_path is not None
    assert files.read(before.json_path) == made


def test_a_directory_that_is_a_file_is_an_error_not_an_exception(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("")
    written = files.write(examples.uneven_steps(), tmp_path / "reports")
    assert "file exists" in str(written.error)


def test_json_is_there_before_the_page_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(incident: Any) -> str:
        assert len(list(tmp_path.glob("*.json"))) == 1
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(html, "page", broken)
    assert files.write(examples.uneven_steps(), tmp_path).html_path is None


def test_a_directory_that_cannot_be_synced_is_good_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    assert files.write(examples.uneven_steps(), tmp_path).error is None


def test_the_newest_incident_is_found(tmp_path: Path) -> None:
    assert files.latest(tmp_path) is None
    assert files.latest(tmp_path / "missing") is None
    made = examples.uneven_steps()
    files.write(replace(made, opened_at=made.opened_at + 60, id="a0"), tmp_path)
    older = files.write(replace(made, id="ff"), tmp_path).json_path
    (tmp_path / "incident-of-mine.json").write_text("{}")
    (tmp_path / ".incident-20991120T193003Z-3f2a.json.x").write_text("")
    newest = files.latest(tmp_path)
    assert newest is not None
    assert newest.name == "incident-20261120T193103Z-a0.json"
    # Within one second the one that was written last is the newest.
    newer = files.write(replace(made, opened_at=made.opened_at + 60, id="00"), tmp_path).json_path
    assert older is not None
    assert newer is not None
    os.utime(newer, (newest.stat().st_atime, newest.stat().st_mtime + 1))
    assert files.latest(tmp_path) == newer


def _broken(text: bytes) -> str:
    with pytest.raises(files.ReportError) as caught:
        files.parse(text, "x.json")
    return str(caught.value)


def test_files_that_are_no_reports_are_refused_with_a_reason() -> None:
    whole = codec.dumps(examples.uneven_steps()).encode()
    assert _broken(b"") == "x.json is empty: its writing was cut off"
    assert _broken(whole[:5000]).startswith("x.json is cut off or not JSON: ")
    assert _broken(b"\xff\xfe").startswith("x.json is cut off or not JSON: ")
    assert _broken(b"[" * 100_000).startswith("x.json is cut off or not JSON: ")
    assert _broken(b"[]") == "x.json is not an incident report of hangwatch (no schema 'hangwatch.incident' in it)"
    assert _broken(b'{"schema": 3}').startswith("x.json is not an incident report")
    assert _broken(whole.replace(b"incident/2", b"incident/3")) == (
        "x.json has format 3, this hangwatch reads format 2; use the version that wrote it"
    )
    assert _broken(whole.replace(b'"hung"', b'"hanged"')) == (
        "x.json is not a whole incident report: Incident.status: "
        "expected one of hung, waiting, lingering, failed, recovered, found 'hanged'"
    )


def test_fields_of_a_newer_hangwatch_are_passed_over() -> None:
    made = examples.uneven_steps()
    text = codec.dumps(made).replace('"seq": ', '"colour": 1, "seq": ')
    assert files.parse(text.encode(), "x.json") == made


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(files.ReportError, match=r"cannot read .*none.json: no such file"):
        files.read(tmp_path / "none.json")


def test_text_that_cannot_be_encoded_is_written_all_the_same(tmp_path: Path) -> None:
    files.write_text(tmp_path / "x", "a\ud800b")
    assert (tmp_path / "x").read_text() == "a\\ud800b"
    with pytest.raises(files.ReportError, match="cannot write"):
        files.write_text(tmp_path / "none" / "x", "")


def test_what_a_user_names_is_written_into_where_it_is_no_file(tmp_path: Path) -> None:
    """GIVEN a pipe, and a link to it WHEN either is named THEN it gets the text, and stays what it is."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for named in (pipe, link):
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            files.write_named(named, "text\n")
            assert os.read(reader, 100) == b"text\n"
        finally:
            os.close(reader)
    assert pipe.is_fifo()
    assert link.is_symlink()
    with pytest.raises(files.ReportError, match="is a directory"):
        files.write_named(tmp_path, "text")


def test_a_link_to_a_file_that_a_user_names_stays_one(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    files.write_named(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "kept").read_text() == "new"
    files.write_named(tmp_path / "another", "text")
    assert (tmp_path / "another").stat().st_mode & 0o777 == 0o600
