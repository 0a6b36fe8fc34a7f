"""The watchdog process that `hangwatch.attach` starts beside the ranks of a node. People use `hangwatch run`."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

from hangwatch.settings import Settings
from hangwatch_agent.board import directory
from hangwatch_agent.board.sweep import sweep
from hangwatch_agent.shared import steady_clock
from hangwatch_agent.watchdog import assemble

HOW_LONG_EMPTY = 30.0  # seconds to wait for the first board


def main() -> int:
    parser = argparse.ArgumentParser(prog="hangwatch_agent")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--lock", type=int, required=True, help="the locked descriptor, held for as long as we live")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch(arguments.folder)
    return 0


def watch(folder: Path) -> None:
    """Watch the ranks whose boards lie in `folder` until the last of them has gone, and leave nothing behind.

    Told to end before (SIGTERM), it leaves the folder to the ranks that live, with a note that it was no accident.
    """
    settings, early = Settings.load(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: early.set())  # before another process can know our pid
    try:
        (folder / directory.WATCHDOG_PID).write_text(str(os.getpid()))
    except OSError:
        return  # the job has ended, and its folder is gone, before we were up
    watchdog = assemble.watchdog(folder, settings, assemble.job_of_environment(settings), root=None)
    signal.signal(signal.SIGTERM, lambda *_: watchdog.halt())
    if early.is_set():
        watchdog.halt()
    with contextlib.suppress(OSError):
        sweep(settings)  # nothing else does for jobs that only attach
    watchdog.run(until_alone=True, empty_for=HOW_LONG_EMPTY)
    told_to_end = watchdog.stop.is_set()
    watchdog.close()
    if not told_to_end or not any(each.alive for each in watchdog.roster.update(steady_clock.time())):
        directory.remove(folder)
        return
    with contextlib.suppress(OSError):
        (folder / directory.WATCHDOG_DISMISSED).touch(mode=0o600)
    watchdog.incidents.say("hangwatch: the watchdog was told to end: the job is no longer watched")


if __name__ == "__main__":
    sys.exit(main())
