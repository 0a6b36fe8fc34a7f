"""The stacks of other processes, taken by py-spy: without pausing them for Python frames, paused for native ones.

py-spy runs as a program of its own: what it maps and what goes wrong in it stays out of the watchdog.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hangwatch import words
from hangwatch.model import CaptureNote, Frame, ThreadStack
from hangwatch_agent.capture.stacks import refusal
from hangwatch_agent.capture.stacks.own_threads import name_of_own
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import PROC

CONCURRENCY = 8
TIMEOUT_S = 3.0
NATIVE_TIMEOUT_S = 5.0
NATIVE_MEMORY_BYTES = 600 << 20
KILL_S = 1.0
LARGEST_OUTPUT = 32 << 20
_LOCALS = "-llllllll"  # local variables, up to 128 characters of each for every "l"
KEPT_LOCALS = {
    "torch/utils/data/_utils/worker.py": ("worker_id", "idx"),
    "torch/utils/data/_utils/fetch.py": ("idx", "index", "possibly_batched_index"),
    "filelock/_api.py": ("lock_filename",),
    "filelock/_core/_acquire.py": ("lock_filename",),  # from filelock 4.3 on
    "torch/utils/cpp_extension.py": ("build_directory",),
}
"""By the end of a file's path: the variables that are kept of its frames. py-spy can only be asked for all variables of
all frames; all others are dropped before its answer goes anywhere, and reach neither a report nor a log."""


@dataclass(frozen=True)
class Dump:
    """The stacks of one process at one moment; `failure` says why there are none. `raw` is what py-spy wrote."""

    pid: int
    stacks: tuple[ThreadStack, ...] = ()
    failure: str = ""
    took_s: float = 0.0
    raw: tuple[Mapping[str, Any], ...] = ()

    @property
    def ok(self) -> bool:
        return not self.failure

    def note(self, rank: int | None = None, source: str = "stacks") -> CaptureNote:
        """This dump as a line of the report."""
        return CaptureNote(source, self.ok, self.failure and f"pid {self.pid}: {self.failure}", self.took_s, rank)


@functools.cache
def find_py_spy() -> Path | None:
    """The py-spy program: beside this interpreter, where pip puts it, else on PATH."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = shutil.which("py-spy", path=folders)
    return Path(found) if found else None


def dump_all(
    pids: Iterable[int],
    *,
    with_locals: Iterable[int] = (),
    program: Path | None = None,
    timeout_s: float = TIMEOUT_S,
    proc: Path = PROC,
) -> dict[int, Dump]:
    """The stacks of many processes, eight at a time.

    Args:
        pids: the processes; one that is named twice is looked at once.
        with_locals: those of them whose `raw` frames are to hold the local variables of `KEPT_LOCALS`.
        program: py-spy, if it is not to be looked for.
        timeout_s: for each process, in seconds.
        proc: root of the proc file system, for the reasons of failures.
    """
    wanted, local = tuple(dict.fromkeys(pids)), frozenset(with_locals)
    if not wanted:
        return {}

    def one(pid: int) -> Dump:
        return dump(pid, with_locals=pid in local, program=program, timeout_s=timeout_s, proc=proc)

    with ThreadPoolExecutor(min(CONCURRENCY, len(wanted)), "hangwatch-stacks") as pool:
        return dict(zip(wanted, pool.map(one, wanted), strict=True))


def dump(
    pid: int,
    *,
    with_locals: bool = False,
    program: Path | None = None,
    timeout_s: float = TIMEOUT_S,
    proc: Path = PROC,
) -> Dump:
    """The Python stacks of one process, which runs on meanwhile. Never raises."""
    options = ["--nonblocking", *([_LOCALS] if with_locals else [])]
    return _run(pid, options, program or find_py_spy(), timeout_s, proc)


def dump_native(
    pid: int, *, program: Path | None = None, timeout_s: float = NATIVE_TIMEOUT_S, proc: Path = PROC
) -> Dump:
    """Python and native stacks of one process, which is paused for it (0.5 to 1 s). Never raises.

    A process with a thread that is stopped or in uninterruptible sleep is refused: the tracer would wait for that
    thread without end, and giving up could leave the whole process stopped.
    """
    if pid == os.getpid():  # paused, it could not give up waiting for py-spy
        return Dump(pid, failure="not taken: it is the process that asks")
    if held := _held_threads(pid, proc):
        return Dump(pid, failure=f"not taken: {held}")
    program = program or find_py_spy()
    taken = _run(pid, ["--native"], program, timeout_s, proc, NATIVE_MEMORY_BYTES, lambda: _let_go(pid))
    if not taken.ok:
        _let_go(pid)
    return taken


def _run(
    pid: int,
    options: list[str],
    program: Path | None,
    timeout_s: float,
    proc: Path,
    memory: int | None = None,
    after: Callable[[], None] = lambda: None,
) -> Dump:
    if program is None:
        return Dump(pid, failure="py-spy is not installed: pip install py-spy")
    began = time.monotonic()
    try:
        command = [str(program), "dump", "--json", *options, "--pid", str(pid)]
        code, out, err = _output(command, timeout_s, memory, after)
    except subprocess.TimeoutExpired:
        return Dump(
            pid, failure=f"py-spy gave no answer within {words.duration(timeout_s)}", took_s=time.monotonic() - began
        )
    except OSError as error:
        return Dump(pid, failure=f"{program} does not start: {error.strerror or error}")
    took = time.monotonic() - began
    if code != 0:
        return Dump(pid, failure=refusal.explain(pid, code, err, proc), took_s=took)
    try:
        threads = _threads(out)
        return Dump(pid, parse(threads), took_s=took, raw=threads)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Dump(pid, failure=f"py-spy's answer cannot be understood: {error!r:.100}", took_s=took)


def _output(
    command: list[str], timeout_s: float, memory: int | None, after: Callable[[], None]
) -> tuple[int, bytes, str]:
    """Raises subprocess.TimeoutExpired (the program is killed) and OSError (it does not start).

    `after` is called when a program that was left behind has ended at last.
    """
    environment = {"PATH": os.environ.get("PATH", os.defpath), "RUST_BACKTRACE": "0"}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    if memory is not None:
        _limit(process.pid, memory)
    try:
        out, err = process.communicate(timeout=timeout_s)
    except BaseException:
        _give_up(process, after)
        raise
    return process.returncode, out[:LARGEST_OUTPUT], err[-4000:].decode("utf-8", "replace")


def _give_up(process: subprocess.Popen[bytes], after: Callable[[], None]) -> None:
    """Reading the memory of a process can block for ever, beyond the reach of SIGKILL: then it is left behind."""
    process.kill()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(KILL_S)
    except subprocess.TimeoutExpired:
        threading.Thread(target=_wait_and, args=(process, after), name="hangwatch-left-behind", daemon=True).start()


def _wait_and(process: subprocess.Popen[bytes], after: Callable[[], None]) -> None:
    process.wait()
    after()


def _limit(pid: int, memory: int) -> None:
    """RLIMIT_DATA and not RLIMIT_AS: py-spy maps torch's libraries, several gigabytes that cost no memory."""
    with contextlib.suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_DATA, (memory, memory))


def _held_threads(pid: int, proc: Path) -> str:
    for folder in (proc / str(pid) / "task").glob("*"):
        try:
            stat = procfs.parse_stat(procfs.read_text(folder / "stat"))
        except (OSError, ValueError, IndexError):
            continue
        if stat.state in "DTtZ":
            return f"thread {stat.pid} ({stat.name}) is in state {stat.state}"
    return ""


def _let_go(pid: int) -> None:
    """A tracer that is killed while it attaches can leave a SIGSTOP behind; the process was not stopped before."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGCONT)


def _threads(out: bytes) -> tuple[Mapping[str, Any], ...]:
    found = json.loads(out)
    if not isinstance(found, list):
        raise TypeError("not a list of threads")
    for thread in found:
        for frame in thread["frames"]:
            frame["locals"] = _kept(frame)
    return tuple(found)


def _kept(frame: Mapping[str, Any]) -> list[Any]:
    names = next((names for file, names in KEPT_LOCALS.items() if frame["filename"].endswith(file)), ())
    return [variable for variable in frame.get("locals") or () if variable["name"] in names]


def parse(threads: Iterable[Mapping[str, Any]]) -> tuple[ThreadStack, ...]:
    """py-spy's JSON as stacks, the main thread first. Raises KeyError or TypeError for something else."""
    stacks = [_stack(thread) for thread in threads]
    return tuple(sorted(stacks, key=lambda stack: not stack.main))


def _stack(thread: Mapping[str, Any]) -> ThreadStack:
    identity = thread["os_thread_id"] or thread["thread_id"]
    main = thread["os_thread_id"] == thread["pid"]
    frames = tuple(_frame(frame) for frame in thread["frames"])
    return ThreadStack(
        thread_id=identity,
        name=thread["thread_name"] or ("MainThread" if main else name_of_own(frames)),
        frames=frames,
        owns_gil=thread["owns_gil"],
        active=thread["active"],
        main=main,
    )


def _frame(frame: Mapping[str, Any]) -> Frame:
    native = frame["module"] is not None
    return Frame(
        frame["filename"], max(frame["line"], 0), frame["name"] if native else bare_name(frame["name"]), native
    )


def bare_name(qualified: str) -> str:
    """The name of the code alone: "Queue.get" is "get", as faulthandler, the flight recorder and old Pythons say it."""
    return qualified.rpartition(".")[2] or qualified
