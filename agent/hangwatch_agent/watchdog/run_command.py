"""`hangwatch run`: the command runs as our child, exactly as it would without us, and we watch.

The child shares our terminal and process group, so a Ctrl-C reaches it without our doing. Signals that are sent to us
alone are passed on. Our exit is the child's: its code, or death by the same signal. We are a child subreaper, so that
orphans of the job stay visible; none of them delays its end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil

from hangwatch.errors import HangwatchError
from hangwatch.settings import Settings
from hangwatch_agent.board import directory
from hangwatch_agent.rank.bootstrap import bootstrap_folder
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.job_identity import RUN
from hangwatch_agent.shared.saying import say

if TYPE_CHECKING:
    from hangwatch_agent.watchdog.loop import Watchdog

T = TypeVar("T")
PR_SET_CHILD_SUBREAPER = 36
SI_KERNEL = 128  # a signal from the terminal, which the child has had too
PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
ASK_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
ABORTED = 75  # EX_TEMPFAIL of sysexits.h: the exit code after --on-hang abort
SLACK_S = 5.0  # beyond its grace, for an abort to come to its end
FAILED_S = 20.0  # for the last judgement of a job that failed: on a busy machine it takes some seconds


class Child:
    """The watched command. Signals are blocked in this process from its start to its end; `wait` passes them on."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        become_subreaper()
        self._signals = {*PASSED_ON, signal.SIGCHLD}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        try:
            self.process = subprocess.Popen(
                command,
                env=dict(environment),
                # What the shell has opened for it is the command's: `train.py <(cat config)`, `9>lock`. Ours close.
                close_fds=False,
                # The mask is inherited, and the command must not start with signals blocked.
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
            )
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise HangwatchError(f"cannot run {command[0]}: {error.strerror}; is it installed, and on PATH?") from error
        self.pid = self.process.pid
        self._orphans = Orphanage(besides=self.pid)

    def wait(self, dismissed: Callable[[], None] = lambda: None) -> int:
        """Pass signals on until the command has ended. Returns its exit code, negative for a signal.

        `dismissed` is called when the command is asked to end.
        """
        over = threading.Event()
        orphans = threading.Thread(target=self._orphans.run, args=(over,), name="hangwatch-orphans", daemon=True)
        with contextlib.suppress(RuntimeError):  # no thread can be started: orphans stay zombies until we end
            orphans.start()
        # Without a timeout: Python's sigtimedwait reports a signal never sent when we are stopped past its end.
        while self.process.poll() is None:
            received = signal.sigwaitinfo(self._signals)
            if received.si_signo in ASK_TO_END:
                dismissed()
            self._deal(received)
        over.set()
        return self.process.returncode

    def _deal(self, received: signal.struct_siginfo) -> None:
        had = received.si_code == SI_KERNEL or comes_from_below(received.si_pid)
        if received.si_signo != signal.SIGCHLD and not had:
            self.process.send_signal(received.si_signo)


def comes_from_below(sender: int) -> bool:
    """Whether a process of the job has sent a signal: to its process group (`trap 'kill 0' EXIT`), for of us it does
    not know. The command has had it then."""
    stat, ourselves = procfs.stat_of(sender), os.getpid()
    while stat is not None and stat.parent > 1:
        if stat.parent == ourselves:
            return True
        stat = procfs.stat_of(stat.parent)
    return False


def become_subreaper() -> None:
    """Ask that orphans of our descendants become our children, where the system can."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Orphanage:
    """Collects adopted children that have ended. Children of our own (the command, py-spy) are waited for
    at once, so only a zombie that is still there after a while will not be collected otherwise."""

    PATIENCE, EVERY = 3.0, 1.0  # seconds

    def __init__(self, besides: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._besides = besides
        self._clock = clock
        self._seen: dict[int, float] = {}

    def run(self, over: threading.Event) -> None:
        """Collect them until `over` is set."""
        while not over.wait(self.EVERY):
            self.reap()

    def reap(self) -> None:
        """Collect each child that has been a zombie for longer than `PATIENCE`."""
        now = self._clock()
        zombies = set(zombie_children()) - {self._besides}
        self._seen = {pid: self._seen.get(pid, now) for pid in zombies}
        for pid, since in self._seen.items():
            if now - since > self.PATIENCE:
                with contextlib.suppress(OSError):
                    os.waitpid(pid, os.WNOHANG)


def zombie_children() -> list[int]:
    """The children of this process that have ended and were not collected.

    The kernel is asked first whether there is one at all, for there nearly never is.
    """
    try:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return []
        return [child.pid for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE]
    except (ChildProcessError, psutil.Error):  # none at all, or one was collected meanwhile
        return []


def supervise(command: Sequence[str], settings: Settings) -> int:
    """Run and watch `command`. Returns the code to exit with; dies by the child's signal where it died by one.

    Raises HangwatchError where the command cannot be started.
    """
    try:
        folder = directory.make(settings, f"{RUN}{os.getpid()}-{secrets.token_hex(4)}", say=say)
    except directory.RunDirError as error:
        say(f"hangwatch: not watching: {error}")  # the training is worth more than our watch over it
        return end_like(Child(command, os.environ).wait())
    try:
        child = Child(command, child_environment(settings, folder))
        code, aborted = watch(child, lambda: _watchdog(command, settings, folder, child.pid))
    finally:
        directory.remove(folder)
    return ABORTED if aborted else end_like(code)


def _watchdog(command: Sequence[str], settings: Settings, folder: Path, root: int) -> Watchdog:
    from hangwatch_agent.board import sweep  # here, where a broken installation costs the watch and not the job
    from hangwatch_agent.watchdog import assemble  # here, where a broken installation costs the watch and not the job

    with contextlib.suppress(OSError):
        sweep.own(folder)
    return assemble.watchdog(folder, settings, assemble.job_of_command(command, settings), root=root)


def child_environment(settings: Settings, folder: Path) -> dict[str, str]:
    """The command's environment: its own, and what arms the probe in every Python process below it."""
    # As it stands, empty parts included: each is the working directory, as in PYTHONPATH=$PYTHONPATH:/my/library.
    path = [str(bootstrap_folder()), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        **settings.environment(),
        "HANGWATCH_RUN_DIR": str(folder),
        "HANGWATCH_RUN_ID": folder.name,
        "HANGWATCH_WATCHDOG_PID": str(os.getpid()),
        "PYTHONPATH": os.pathsep.join(path),
    }


def watch(child: Child, build: Callable[[], Watchdog]) -> tuple[int, bool]:
    """Watch `child` until it ends. Returns its exit code, negative for a signal, and whether we ended the job.

    The watchdog runs in a thread, so that the end of the job is never delayed by a look that is under way. Whatever
    fails in it or while it is built, the command is waited for.
    """
    watchdog = _guarded(build)
    thread = _guarded(lambda: _started(watchdog)) if watchdog is not None else None
    if watchdog is None or thread is None:
        return child.wait(), False
    code = child.wait(lambda: _guarded(watchdog.dismiss))
    return code, bool(_guarded(lambda: _close(watchdog, thread, code)))


def _started(watchdog: Watchdog) -> threading.Thread:
    """The thread of the watchdog. First it sweeps what killed jobs have left."""
    from hangwatch_agent.board.sweep import sweep

    def run() -> None:
        with contextlib.suppress(OSError):
            sweep(watchdog.settings)
        watchdog.run()

    thread = threading.Thread(target=lambda: _guarded(run), name="hangwatch-watchdog", daemon=True)
    thread.start()
    return thread


def _close(watchdog: Watchdog, thread: threading.Thread, code: int) -> bool:
    """The command has ended: let an abort finish, and judge a job that failed. Returns whether it was aborted."""
    watchdog.finish_abort(SLACK_S)
    watchdog.halt()
    thread.join(timeout=1.0)
    closing = threading.Thread(target=lambda: _guarded(lambda: watchdog.close(code)), daemon=True)
    closing.start()
    closing.join(timeout=FAILED_S if code else 1.0)
    watchdog.finish_abort(SLACK_S)  # its ranks have perhaps ended because another node has begun to end the job
    return watchdog.was_aborted(code)


def _guarded(act: Callable[[], T]) -> T | None:
    """An error of hangwatch ends the watch, and never the job: it is printed, and the command goes on."""
    try:
        return act()
    except Exception as error:
        kind = type(error).__name__
        say(f"hangwatch: not watching any more: {kind}: {error}; the command goes on. Please report it.")
        return None


def end_like(code: int) -> int:
    """Die as the child died, where it died by a signal; else the code to exit with."""
    if code >= 0:
        return code
    number = -code
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None: closed before we were started
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child's core is the one that matters
    with contextlib.suppress(OSError):  # SIGKILL has no other way to be taken
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number
