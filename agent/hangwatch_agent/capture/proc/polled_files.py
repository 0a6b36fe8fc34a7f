"""The file that a rank's loop polls: whether it exists, its age, and whether a living process holds it open."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from hangwatch.model import PolledFile
from hangwatch_agent.capture.proc.descriptors import filesystem_of
from hangwatch_agent.capture.proc.lock_table import holders, living
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import PROC

MOST_ENTRIES = 2000  # of its folder that are looked at
LONGEST = 4096  # characters of a path


def polled_file(
    pid: int,
    told: Path,
    since: float,
    *,
    proc: Path = PROC,
    clock: Callable[[], float] = time.time,
) -> PolledFile | None:
    """What is known of the file whose path the rank `pid` has left in the file `told`; None for none. Never raises.

    `since` is when the rank began, in seconds since 1970: files beside it that are older are left out.
    """
    path = _path(told)
    if not path:
        return None
    seen = proc / str(pid) / "root" / path.lstrip("/")  # in the rank's own mount namespace
    filesystem = filesystem_of(pid, path, proc) or ""
    try:
        found = seen.stat()
    except FileNotFoundError:
        for found_like in (_beside, _in_folders_beside):
            name, at = max(found_like(seen), key=lambda entry: entry[1], default=("", 0.0))
            if at >= since:
                return PolledFile(path, False, 0.0, False, filesystem, name, max(clock() - at, 0.0))
        return PolledFile(path, False, filesystem=filesystem)
    except OSError:
        return None
    held = living(holders(found, pid, proc), pid, proc) is not None
    return PolledFile(path, True, max(clock() - found.st_mtime, 0.0), held, filesystem)


def _path(told: Path) -> str:
    try:
        path = procfs.read_text(told)[:LONGEST]
    except OSError:
        return ""
    return path if path.startswith("/") and "\0" not in path else ""


def _beside(path: Path) -> Iterator[tuple[str, float]]:
    """Files of the same ending in its folder, each with its time of change."""
    try:
        with os.scandir(path.parent) as entries:
            for entry in islice(entries, MOST_ENTRIES):
                if Path(entry.name).suffix == path.suffix and entry.is_file(follow_symlinks=False):
                    yield entry.name, entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return


def _in_folders_beside(path: Path) -> Iterator[tuple[str, float]]:
    """Files of that very name in the folders next to its own: each rank may have made one (`run-2/index.done`)."""
    try:
        with os.scandir(path.parent.parent) as entries:
            folders = [entry.name for entry in islice(entries, MOST_ENTRIES) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for folder in folders:
        with contextlib.suppress(OSError):
            yield f"{folder}/{path.name}", (path.parent.parent / folder / path.name).lstat().st_mtime
