"""Find or start the watchdog of this node and job, once, although eight ranks may attach in the same millisecond.

The rank that gets the lock file starts the watchdog and hands it the locked descriptor, so the lock lives exactly as
long as the watchdog does, and no rank ever waits for it. The others know that a watchdog is there.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

from hangwatch.settings import Settings
from hangwatch_agent.board import directory


def ensure_watchdog(folder: Path, settings: Settings) -> bool:
    """Start the watchdog process of job folder `folder` unless one runs. Returns whether this call started it.

    Raises OSError or CalledProcessError where no process can be started; the caller then falls back to the thread.
    """
    lock = lock_watchdog(folder)
    if lock is None:
        return False
    try:
        environment = {**os.environ, **settings.environment(), "HANGWATCH_ENABLED": "0"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        command = [sys.executable, "-m", "hangwatch_agent", "--folder", str(folder), "--lock", str(lock)]
        # Through a shell that ends at once, so that the watchdog is no child of ours: a training script that waits for
        # *any* child must not find ours. Its own session: a Ctrl-C is for the job, and the watchdog ends by itself
        # when the job has ended. Standard error is kept for the verdict; input and output are not ours to hold open.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "hangwatch", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(lock,),
            start_new_session=True,
            check=True,
        )
        return True
    finally:
        os.close(lock)


def lock_watchdog(folder: Path) -> int | None:
    """A locked descriptor that makes its holder the watchdog of `folder`, or None where there is one already."""
    lock = os.open(folder / directory.WATCHDOG_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def watch_this_rank(folder: Path, settings: Settings) -> str:
    """Ensure that a watchdog watches `folder`. Returns in words what is less than it could be; "" for nothing."""
    if os.environ.get("HANGWATCH_WATCHDOG_PID"):
        return ""  # `hangwatch run` is above us
    if not sys.platform.startswith("linux"):
        return _thread(folder, settings, f"{sys.platform} has no /proc")
    if settings.watchdog == "thread":
        return _thread(folder, settings, "")
    try:
        ensure_watchdog(folder, settings)
    except (OSError, subprocess.SubprocessError) as error:
        return _thread(folder, settings, f"no process could be started ({error})")
    return ""


def _thread(folder: Path, settings: Settings, why: str) -> str:
    """The same watch as a daemon thread of this rank: it dies with it, and freezes while a C call holds the lock."""
    from hangwatch_agent.watchdog import assemble

    lock = lock_watchdog(folder)
    if lock is not None:
        watchdog = assemble.watchdog(folder, settings, assemble.job_of_environment(settings), root=None)
        threading.Thread(target=watchdog.run, name="hangwatch-watchdog", daemon=True).start()
    return f"the watchdog runs as a thread of a rank: {why}" if why else ""
