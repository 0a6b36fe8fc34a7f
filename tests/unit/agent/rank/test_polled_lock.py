"""The lock file that a thread polls in torch's file baton."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from filelock import FileLock
from torch.utils.file_baton import FileBaton

from hangwatch_agent.rank.polled_lock import polled_path


def test_a_thread_that_waits_for_a_baton(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    thread = threading.Thread(target=FileBaton(str(lock)).wait)
    thread.start()
    deadline = time.monotonic() + 60
    while not (found := polled_path(sys._current_frames().get(thread.ident or 0))) and time.monotonic() < deadline:
        time.sleep(0.01)
    lock.unlink()
    thread.join()
    assert found == str(lock)


def test_a_thread_that_waits_for_a_lock_of_filelock(tmp_path: Path) -> None:
    path = tmp_path / "lock"

    def acquire() -> None:
        with FileLock(path):
            pass

    with FileLock(path):
        thread = threading.Thread(target=acquire)
        thread.start()
        deadline = time.monotonic() + 60
        while not (found := polled_path(sys._current_frames().get(thread.ident or 0))) and time.monotonic() < deadline:
            time.sleep(0.01)
    thread.join()
    assert found == str(path)


def test_a_thread_that_does_not(tmp_path: Path) -> None:
    assert polled_path(sys._getframe()) == polled_path(None) == ""
