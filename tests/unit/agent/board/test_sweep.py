"""What a killed run has left is deleted, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hangwatch.settings import Settings
from hangwatch_agent.board import sweep
from hangwatch_agent.shared import procfs

OLD_S = 10 * sweep.YOUNG_S


@pytest.fixture(scope="module")
def gone() -> int:
    """A pid that no process has. That of one that has ended may be given to another before the test is over."""
    return int(Path("/proc/sys/kernel/pid_max").read_text()) + 1


def made(root: Path, name: str, age_s: float = OLD_S) -> Path:
    folder = root / name
    folder.mkdir(mode=0o700)
    then = folder.stat().st_mtime - age_s
    os.utime(folder, (then, then))
    return folder


def swept(root: Path) -> list[str]:
    return [folder.name for folder in sweep.sweep(Settings(run_dir=str(root)))]


def swept_at_last(root: Path) -> list[str]:
    """Another process of this machine may be in state D for a moment: then it is not known whose it is."""
    deadline = time.monotonic() + 20.0
    while not (found := swept(root)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def test_an_empty_folder_of_a_run_that_was_killed_at_once_is_swept(tmp_path: Path, gone: int) -> None:
    folder = made(tmp_path, f"run-{gone}-0123abcd")
    assert swept_at_last(tmp_path) == [folder.name]
    assert not folder.exists()


def test_one_of_a_run_that_was_killed_before_its_name_was_written_is_swept(tmp_path: Path, gone: int) -> None:
    folder = made(tmp_path, f"run-{gone}-0123abcd")
    (folder / sweep.OWNER).touch()
    os.utime(folder, (1.0, 1.0))
    assert swept_at_last(tmp_path) == [folder.name]


@pytest.mark.parametrize(("blocked", "left"), [(1, []), (sweep.LOOKS, ["run-{gone}-0123abcd"])])
def test_a_process_in_state_d_is_looked_at_again(
    tmp_path: Path, gone: int, monkeypatch: pytest.MonkeyPatch, blocked: int, left: list[str]
) -> None:
    looks: list[int] = []

    def environment(pid: int) -> dict[str, str]:
        looks.append(pid)
        if len(looks) <= blocked:
            raise BlockingIOError
        return {}

    monkeypatch.setattr(procfs, "pids", lambda _: [os.getpid()])
    monkeypatch.setattr(procfs, "environment", environment)
    monkeypatch.setattr(sweep, "NAP_S", 0.0)
    made(tmp_path, f"run-{gone}-0123abcd")
    swept(tmp_path)
    assert [folder.name for folder in tmp_path.iterdir()] == [name.format(gone=gone) for name in left]


@pytest.mark.parametrize("age_s", [0.0, sweep.YOUNG_S / 2, -sweep.YOUNG_S / 2])
def test_a_young_one_stays_for_it_may_just_be_being_made(tmp_path: Path, gone: int, age_s: float) -> None:
    made(tmp_path, f"run-{gone}-0123abcd", age_s)
    assert swept(tmp_path) == []


def test_a_folder_that_is_an_hour_ahead_is_swept_although_the_clock_was_set_back(tmp_path: Path, gone: int) -> None:
    made(tmp_path, f"run-{gone}-0123abcd", -3600.0)
    assert len(swept_at_last(tmp_path)) == 1


def test_that_of_a_living_run_stays(tmp_path: Path) -> None:
    made(tmp_path, f"run-{os.getpid()}-0123abcd")
    assert swept(tmp_path) == []


@pytest.mark.parametrize("name", ["results", "run-5", "run-12-checkpoint", "run-{gone}-0123abcd.old", "spool"])
def test_empty_folders_of_other_programs_stay(tmp_path: Path, gone: int, name: str) -> None:
    """HANGWATCH_RUN_DIR may be a folder that the user has other things in."""
    made(tmp_path, name.format(gone=gone))
    assert swept(tmp_path) == []


def test_a_folder_of_such_a_name_with_files_of_others_stays(tmp_path: Path, gone: int) -> None:
    folder = made(tmp_path, f"run-{gone}-0123abcd")
    (folder / "weights.pt").write_bytes(b"")
    os.utime(folder, (1.0, 1.0))
    assert swept(tmp_path) == []
    assert (folder / "weights.pt").exists()
