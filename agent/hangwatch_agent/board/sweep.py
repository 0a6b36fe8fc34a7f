"""Folders of jobs whose watchdog was killed: `kill -9` leaves them in memory, and the user's next job sweeps them.

Only a folder that no process can be using goes: its owner, its watchdog, its ranks and all processes that were started
for it must be gone. Pids count with the start of their process, for pids are used again, and a process that cannot be
seen from here (it may be in another container) lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from hangwatch.settings import Settings
from hangwatch_agent.board import directory, file_name
from hangwatch_agent.board.pid_namespaces import Pids
from hangwatch_agent.board.reader import BoardReader
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.job_identity import RUN
from hangwatch_agent.shared.procfs import PROC, pid_namespace

OWNER = "owner"  # pid, start and pid namespace of the `hangwatch run` that made the folder
NAME = re.compile(re.escape(RUN) + r"(\d{1,9})-[0-9a-f]{8}")  # as `hangwatch run` calls a job's folder
YOUNG_S = 60.0  # a folder without an owner may just be being made
LOOKS, NAP_S = 20, 0.1  # at processes in state D, which few are in for two seconds


def own(folder: Path) -> None:
    """Note that this process owns `folder`. Raises OSError."""
    stat = procfs.stat_of(os.getpid())
    (folder / OWNER).write_text(f"{os.getpid()} {stat.ticks if stat else 0} {pid_namespace()}")


def sweep(settings: Settings) -> list[Path]:
    """Remove the folders of jobs that are over. Returns those that were removed."""
    return [folder for folder in _folders(settings) if _is_abandoned(folder) and _removed(folder)]


def _folders(settings: Settings) -> Iterator[Path]:
    for root in directory.roots(settings):
        with contextlib.suppress(OSError):
            yield from (each for each in sorted(root.iterdir()) if each.is_dir() and not each.is_symlink())


def _is_abandoned(folder: Path) -> bool:
    """Whether this is a job's folder, and no process that belongs to it can be alive."""
    pids = Pids()
    try:
        owner = _owner(folder)
        boards = sorted(folder.glob(directory.BOARD_GLOB))
        if folder.stat().st_uid != os.getuid():
            return False
        if not (owner or boards or (folder / directory.WATCHDOG_LOCK).exists() or _is_left_empty(folder)):
            return False
        if owner is None and _age_s(folder) < YOUNG_S:
            return False
        if _is_locked(folder / directory.WATCHDOG_LOCK) or (owner is not None and _lives(pids, *owner)):
            return False
        return not any(_rank_lives(pids, board) for board in boards) and not _has_processes(folder.name)
    except OSError:
        return False


def _is_left_empty(folder: Path) -> bool:
    """Whether `hangwatch run` made this folder and was killed before it could write its name there.

    Its own name tells: a folder of another program in HANGWATCH_RUN_DIR is not ours to delete, be it empty.
    """
    made = NAME.fullmatch(folder.name)
    empty = all(each.name == OWNER and not each.stat().st_size for each in folder.iterdir())
    return made is not None and empty and not _lives(Pids(), int(made[1]), 0, pid_namespace())


def _age_s(folder: Path) -> float:
    """By the file system's clock, which is the time of day; a time in the future (the clock was set back) is no age."""
    return abs(time.time() - folder.stat().st_mtime)


def _owner(folder: Path) -> tuple[int, int, int] | None:
    try:
        pid, ticks, namespace = map(int, (folder / OWNER).read_text().split())
    except (OSError, ValueError):
        return None
    return pid, ticks, namespace


def _lives(pids: Pids, pid: int, ticks: int, namespace: int) -> bool:
    """Whether a process is there, or may be where it cannot be seen."""
    if pids.is_foreign(namespace):
        found = pids.find(namespace, pid, ticks)
        if found.pid is None:
            return not found.visible
        pid = found.pid
    stat = procfs.stat_of(pid)
    if stat is None:
        return (PROC / str(pid)).exists()  # it is there, and does not say what it is
    return stat.state not in "XZ" and ticks in (0, stat.ticks)


def _rank_lives(pids: Pids, board: Path) -> bool:
    try:
        with BoardReader(board) as opened:
            namespace = opened.pid_namespace()
    except (OSError, ValueError):
        namespace = 0
    return _lives(pids, file_name.own_pid(board), file_name.start_ticks(board), namespace)


def _is_locked(lock: Path) -> bool:
    """Whether the watchdog that `attach` has started lives."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _has_processes(run_id: str) -> bool:
    """Whether a process lives that was started for this run: a launcher that is about to start ranks has no board.

    Any process of the machine may be in state D for a moment, and is looked at again; in doubt it is one of the run.
    """
    asked = list(procfs.pids(PROC))
    for look in range(LOOKS):
        if look:
            time.sleep(NAP_S)
        answers = {pid: _is_started_for(run_id, pid) for pid in asked}
        if True in answers.values():
            return True
        asked = [pid for pid, answer in answers.items() if answer is None]
        if not asked:
            return False
    return True


def _is_started_for(run_id: str, pid: int) -> bool | None:
    """None where that cannot be read at the moment."""
    try:
        ours = (PROC / str(pid)).stat().st_uid == os.getuid()
        return ours and procfs.environment(pid).get("HANGWATCH_RUN_ID") == run_id
    except BlockingIOError:
        return None
    except OSError:
        return False


def _removed(folder: Path) -> bool:
    directory.remove(folder)
    return not folder.exists()
