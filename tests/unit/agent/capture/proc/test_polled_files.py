"""What is known of a file for which a rank looks again and again. The processes and files are real ones."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from hangwatch.model import PolledFile
from hangwatch_agent.capture.proc.polled_files import polled_file

SINCE = 1_000_000.0
ME = os.getpid()


def told(tmp_path: Path, path: Path | str) -> Path:
    file = tmp_path / "polled-7.txt"
    file.write_text(str(path))
    return file


def test_a_file_that_is_there_with_its_age(tmp_path: Path) -> None:
    lock = tmp_path / "features.lock"
    lock.touch()
    os.utime(lock, (SINCE, SINCE))
    found = polled_file(ME, told(tmp_path, lock), SINCE, clock=lambda: SINCE + 90)
    assert found is not None
    assert (found.path, found.exists, found.age_s, found.held) == (str(lock), True, 90.0, False)


def test_a_file_that_a_living_process_has_open(tmp_path: Path) -> None:
    lock = tmp_path / "features.lock"
    with lock.open("w") as file, subprocess.Popen(["sleep", "60"], stdout=file) as holder:
        try:
            found = polled_file(ME, told(tmp_path, lock), SINCE)
        finally:
            holder.kill()
    assert found is not None
    assert found.held


def test_a_file_that_is_not_there_and_the_newest_one_like_it(tmp_path: Path) -> None:
    for name, at in (("a.pt", 5), ("b.pt", 20), ("newer.txt", 30)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (SINCE + at, SINCE + at))
    missing = told(tmp_path, tmp_path / "c.pt")
    now = SINCE + 50
    found = polled_file(ME, missing, SINCE, clock=lambda: now)
    assert found is not None
    assert (found.exists, found.beside, found.beside_age_s) == (False, "b.pt", 30.0)
    older = polled_file(ME, missing, SINCE + 40, clock=lambda: now)  # all were there before the rank began
    assert older == PolledFile(found.path, False, filesystem=found.filesystem)


def test_a_file_of_that_name_in_a_folder_beside_its_own(tmp_path: Path) -> None:
    """Each rank has made a folder of its own, and one of them its file there."""
    for name, at in (("job-a", None), ("job-b", 20), ("job-c", 10)):
        (tmp_path / name).mkdir()
        if at is not None:
            (tmp_path / name / "index.done").touch()
            os.utime(tmp_path / name / "index.done", (SINCE + at, SINCE + at))
    (tmp_path / "job-a" / "other.txt").touch()
    missing, now = told(tmp_path, tmp_path / "job-a" / "index.done"), SINCE + 50
    found = polled_file(ME, missing, SINCE, clock=lambda: now)
    assert found is not None
    assert (found.exists, found.beside, found.beside_age_s) == (False, "job-b/index.done", 30.0)
    older = polled_file(ME, missing, SINCE + 40, clock=lambda: now)
    assert older is not None
    assert older.beside == ""


def test_bad_words_are_none(tmp_path: Path) -> None:
    assert polled_file(ME, tmp_path / "polled-8.txt", SINCE) is None
    for text in ("", "relative", "/data/\0none"):
        assert polled_file(ME, told(tmp_path, text), SINCE) is None
    found = polled_file(ME, told(tmp_path, "/no/such/folder/x.pt"), time.time())
    assert found is not None
    assert not found.exists
