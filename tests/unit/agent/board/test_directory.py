from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

import pytest

from hangwatch.settings import Settings
from hangwatch_agent.board import directory


def test_the_folder_is_private_to_the_user(tmp_path: Path) -> None:
    folder = directory.make(Settings(run_dir=str(tmp_path / "boards")), "job/../1")
    assert folder.parent == tmp_path / "boards"
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o750, 0o711])
def test_a_folder_that_others_may_use_is_refused_and_left_as_it_is(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(directory.RunDirError, match=rf"others may read or write it \(mode {mode:o}\).*chmod 700"):
        directory.make(Settings(run_dir=str(tmp_path)), "job")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == mode


def test_boards_are_found_in_both_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    folder = directory.make(Settings(run_dir=str(tmp_path / "memory")), "job")
    elsewhere = directory.private(directory.twin(folder))
    for place, name in ((folder, "rank-1-1.board"), (elsewhere, "rank-2-2.board")):
        (place / name).touch()
    assert [path.name for path in directory.boards(folder)] == ["rank-1-1.board", "rank-2-2.board"]
    directory.remove(folder)
    assert not folder.exists()
    assert not elsewhere.exists()


def test_the_next_best_place_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, free = tmp_path / "full", tmp_path / "free"
    full.write_text("")
    monkeypatch.setattr(directory, "roots", lambda settings: iter((full, free)))
    said: list[str] = []
    assert directory.make(Settings(), "job", said.append) == free / "job"
    assert len(said) == 1
    assert str(free) in said[0]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    with pytest.raises(directory.RunDirError, match=r"belongs to another user.*HANGWATCH_RUN_DIR"):
        directory.make(Settings(run_dir=str(theirs)), "job")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(directory.RunDirError, match="is not a folder"):
        directory.make(Settings(run_dir=str(tmp_path / "link")), "job")


def test_a_deleted_folder_has_no_boards(tmp_path: Path) -> None:
    assert directory.boards(tmp_path / "gone") == []


def test_the_job_of_a_run_is_in_the_folder_that_the_run_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANGWATCH_WATCHDOG_PID", "1")
    assert directory.job_folder(Settings(run_dir=str(tmp_path))) == tmp_path


def test_ranks_of_one_job_meet_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HANGWATCH_WATCHDOG_PID", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    settings = Settings(run_dir=str(tmp_path))
    monkeypatch.setenv("MASTER_PORT", "29500")
    first = directory.job_folder(settings)
    assert directory.job_folder(settings) == first
    monkeypatch.setenv("MASTER_PORT", "29501")
    assert directory.job_folder(settings) != first


def test_no_temporary_folder_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that is read-only: what a job is told is where nothing can be written, and not an error of Python's."""

    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    def mkdir(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.setattr(Path, "is_dir", lambda path: False)  # no /dev/shm either
    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(directory.RunDirError, match="HANGWATCH_RUN_DIR"):
        directory.make(Settings(), "job")
