"""Where the boards of a job lie: a folder that is private to the user, one below it for every job of this machine.

`/dev/shm` where it can be had, for a board there is never written to a disk; the temporary folder else. A folder that
belongs to another user, or that others may read or write, is refused: they could read what the ranks say, or feed us
false boards. It is not closed to them either, for it may be theirs to use.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from hangwatch.settings import Settings
from hangwatch_agent.shared.job_identity import job_identity

BOARD_GLOB = "rank-*.board"
WATCHDOG_PID = "watchdog.pid"
WATCHDOG_LOCK = "watchdog.lock"
WATCHDOG_DISMISSED = "watchdog.dismissed"  # it was told to end, and is not to be started again


class RunDirError(OSError):
    """No folder for the boards. The message says which was tried, why it failed, and what to do."""


def roots(settings: Settings) -> Iterator[Path]:
    """The folders to try, best first."""
    if settings.run_dir:
        yield Path(settings.run_dir)
        return
    name = f"hangwatch-{os.getuid()}"
    if Path("/dev/shm").is_dir():
        yield Path("/dev/shm") / name
    yield temporary() / name


def make(settings: Settings, job: str, say: Callable[[str], object] = lambda line: None) -> Path:
    """The folder of job `job`, made if need be. Raises RunDirError where none can be had.

    `say` is told where the boards lie if not in the best place.
    """
    failures: list[str] = []
    for root in roots(settings):
        try:
            private(root)
            folder = private(root / re.sub(r"[^A-Za-z0-9._-]+", "_", job)[:100])
            if failures:
                say(f"hangwatch: the boards are kept in {root} ({'; '.join(failures)})")
            return folder
        except OSError as error:
            failures.append(f"{root}: {error.strerror or error}")
    raise RunDirError(
        f"no folder for the boards ({'; '.join(failures)}); set HANGWATCH_RUN_DIR to a folder of your own"
    )


def job_folder(settings: Settings) -> Path:
    """The folder of the job that this process belongs to. Raises RunDirError."""
    if os.environ.get("HANGWATCH_WATCHDOG_PID") and settings.run_dir:
        return Path(settings.run_dir)  # `hangwatch run` has made it
    # Without the user's name for the job: two jobs of one name on this machine must not see each other.
    identifier, _ = job_identity(os.environ, parent=os.getppid())
    return make(settings, identifier)


def spool(settings: Settings) -> Path:
    """The folder for what a dashboard has not had yet, common to all jobs of this user. Raises OSError.

    In the temporary folder and not in memory: an outage may be long.
    """
    base = Path(settings.run_dir) if settings.run_dir and not os.environ.get("HANGWATCH_WATCHDOG_PID") else None
    return private((base or private(temporary() / f"hangwatch-{os.getuid()}")) / "spool")


def private(folder: Path) -> Path:
    """`folder`, made with mode 0700 or found to be ours alone. Raises OSError otherwise."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(20, "is not a folder", str(folder))
    if found.st_uid != os.getuid():
        raise PermissionError(13, "belongs to another user", str(folder))
    if found.st_mode & 0o077:
        mode = f"mode {stat.S_IMODE(found.st_mode):o}"
        raise PermissionError(13, f"others may read or write it ({mode}); make it yours alone: chmod 700", str(folder))
    return folder


def twin(folder: Path) -> Path:
    """Where the boards of a job lie that have no room in its `folder`."""
    return temporary() / f"hangwatch-{os.getuid()}" / folder.name


def temporary() -> Path:
    """The temporary folder, which may not be there: a root that is read-only has none that can be written to."""
    try:
        return Path(tempfile.gettempdir())
    except OSError:
        return Path("/tmp")  # what is tried in it fails, and says so


def boards(folder: Path) -> list[Path]:
    """The boards of the job of `folder` that are there now; none if it has been deleted."""
    found = []
    for place in (folder, twin(folder)):
        try:
            found += sorted(place.glob(BOARD_GLOB))
        except OSError:
            continue
    return list(dict.fromkeys(found))


def remove(folder: Path) -> None:
    """Delete a job's folder, and the user's root if that was the last job in it."""
    for place in (folder, twin(folder)):
        shutil.rmtree(place, ignore_errors=True)
        if place.parent.name == f"hangwatch-{os.getuid()}":
            with contextlib.suppress(OSError):  # another job lives there
                place.parent.rmdir()
