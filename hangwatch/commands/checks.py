"""The checks of `hangwatch doctor`. Each takes a bounded time, changes nothing, and says what to do where it fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hangwatch.report import words
from hangwatch.settings import Settings
from hangwatch.wire import addresses

TORCH_S = 60.0  # importing torch from a cold network disk takes long
DASHBOARD_S = 5.0
SHM_NEEDED = 256 << 20  # data loaders hand batches over through it; Docker gives 64 MiB
RUN_DIR_NEEDED = 64 << 20


@dataclass(frozen=True)
class Check:
    """One thing looked at. `state` is "ok", "degraded" (less to show), "missing" (essential), or "unused"."""

    name: str
    state: str
    found: str
    advice: str = ""


def all_of_them(settings: Settings, environment: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Every check, in the order in which a user should mend what fails."""
    yield python()
    yield from torch(environment)
    yield from of_this_machine(settings)


def of_this_machine(settings: Settings) -> Iterator[Check]:
    """Without Python and torch, which each rank of a job has for itself."""
    yield from stacks()
    yield run_dir(settings)
    yield shared_memory()
    yield report_dir(settings)
    yield gpus()
    yield dashboard(settings)


def python(version: tuple[int, ...] = sys.version_info[:3], platform: str = sys.platform) -> Check:
    said = f"Python {'.'.join(map(str, version))} on {platform}"
    if platform.startswith("linux"):
        return Check("python", "ok", said)
    return Check("python", "degraded", said, "outside Linux the watchdog is a thread of the rank and sees less of it")


_ASK_TORCH = """
import json, torch
import torch.distributed as dist
here = dist.is_available()
c10d = getattr(torch._C, "_distributed_c10d", None)
recorder = hasattr(c10d, "_dump_fr_trace_json")
records = recorder
try:
    if recorder:  # torch 2.9 has it, and records nothing unless it is told to, as the agent does
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        dist.barrier()
        records = bool(json.loads(c10d._dump_fr_trace_json())["entries"])
except KeyError:
    records = False
except Exception:  # no gloo, or no network for it: not known
    pass
print("hangwatch", json.dumps([torch.__version__, here, recorder, torch.cuda.is_available(), records]))
"""


def torch(environment: Mapping[str, str], python: str = sys.executable, timeout_s: float = TORCH_S) -> Iterator[Check]:
    """torch and its flight recorder, asked in a process of its own: importing it may crash or take for ever."""
    answer = _ask_torch(python, timeout_s)
    if isinstance(answer, str):
        yield Check(
            "torch", "missing", answer, "install torch in this environment, or run doctor in that of the training"
        )
        return
    version, distributed, recorder, cuda, records = answer
    if not distributed:
        yield Check("torch", "missing", f"torch {version} without torch.distributed", "install a build that has it")
        return
    yield Check("torch", "ok", f"torch {version}, {'with CUDA' if cuda else 'no CUDA device'}")
    yield flight_recorder(recorder, environment, records=records)


def _ask_torch(python: str, timeout_s: float) -> list[Any] | str:
    """[version, has torch.distributed, has the recorder's dump, has CUDA, records], or why there is no answer."""
    from hangwatch_agent.shared.dump_defaults import GLOO, recording

    try:
        done = subprocess.run(
            [python, "-c", _ASK_TORCH],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=os.environ | recording(GLOO, os.environ),
        )
    except subprocess.TimeoutExpired:
        return f"importing torch took longer than {timeout_s:.0f} s"
    said = next((line for line in done.stdout.splitlines() if line.startswith("hangwatch ")), None)
    if said is None:
        return (done.stderr.strip().splitlines() or [f"the interpreter ended with code {done.returncode}"])[-1]
    answer: list[Any] = json.loads(said.removeprefix("hangwatch "))
    return answer


def flight_recorder(there: bool, environment: Mapping[str, str], *, records: bool = True) -> Check:
    name = "flight recorder"
    if not there:
        found = "this torch cannot dump it: collectives come from the board, without DDP's own and without call sites"
        return Check(name, "degraded", found, "a newer torch has it (2.9 or later)")
    for variable in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        if environment.get(variable, "").strip() == "0":
            return Check(name, "degraded", f"switched off by {variable}=0", f"unset {variable}, or set it to 2000")
    if not records:
        return Check(name, "degraded", "this torch records nothing of gloo", "a newer torch does (2.13)")
    return Check(name, "ok", "on")


def stacks() -> Iterator[Check]:
    """py-spy, tried for real: on a process that names us as its tracer, as ranks do, and on one that does not."""
    from hangwatch_agent.capture.stacks.py_spy import find_py_spy

    program = find_py_spy()
    if program is None:
        found = "not found beside this interpreter nor on PATH: stacks come from faulthandler, for ranks only"
        yield Check("py-spy", "degraded", found, "pip install py-spy")
        return
    yield _trial("stacks of ranks", names_us=True)
    yield _trial("stacks of others", names_us=False)
    yield yama()


def _trial(name: str, *, names_us: bool) -> Check:
    from hangwatch_agent.capture.stacks.py_spy import dump

    with _sleeper(names_us) as pid:
        taken = dump(pid)
    if taken.ok:
        return Check(name, "ok", f"py-spy reads them ({taken.took_s * 1000:.0f} ms)")
    lost = "ranks: faulthandler has to do" if names_us else "loader workers and launchers have no stacks in reports"
    return Check(name, "degraded", lost, taken.failure)


_SLEEPER = """
import ctypes, sys, time
tracer = int(sys.argv[1])
if tracer:
    ctypes.CDLL(None).prctl(0x59616D61, tracer, 0, 0, 0)  # PR_SET_PTRACER, as a rank's probe does it
print("ready", flush=True)
time.sleep(30)
"""


@contextmanager
def _sleeper(names_us: bool) -> Iterator[int]:
    """A process that waits; with `names_us` it lets this process and its children trace it."""
    command = [sys.executable, "-S", "-c", _SLEEPER, str(os.getpid() if names_us else 0)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def yama() -> Check:
    """The kernel's rule of which process may trace which."""
    from hangwatch_agent.capture.stacks import refusal

    scope, capable = refusal.yama_scope(), refusal.has_ptrace_capability()
    said = f"kernel.yama.ptrace_scope is {scope}{', but we have CAP_SYS_PTRACE' if scope and capable else ''}"
    if scope == 0 or (capable and scope < 3):
        return Check("tracing rights", "ok", said)
    advice = {
        1: "enough for ranks; for loader workers too: sysctl -w kernel.yama.ptrace_scope=0",
        2: "run hangwatch with CAP_SYS_PTRACE (in a container --cap-add SYS_PTRACE)",
    }.get(scope, "no process may trace until the machine restarts with a smaller value")
    return Check("tracing rights", "degraded", said, advice)


def run_dir(settings: Settings) -> Check:
    """Where boards are kept: the first folder that a rank could use."""
    from hangwatch_agent.board import directory

    failures = []
    for root in directory.roots(settings):
        place = _existing(root)
        if not os.access(place, os.W_OK | os.X_OK):
            failures.append(f"{place} is not writable")
        elif root.exists() and root.lstat().st_uid != os.getuid():
            failures.append(f"{root} belongs to another user")
        elif (free := shutil.disk_usage(place).free) < RUN_DIR_NEEDED:
            failures.append(f"{place} has {words.size(free)} free")
        else:
            return Check("boards", "ok", f"{root}, {words.size(free)} free")
    return Check(
        "boards", "missing", "; ".join(failures), "set HANGWATCH_RUN_DIR to a folder that only you can write to"
    )


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def shared_memory(path: Path = Path("/dev/shm"), needed: int = SHM_NEEDED) -> Check:
    name = "shared memory"
    if not path.is_dir():
        return Check(name, "degraded", f"no {path}: data loaders with workers will fail", "mount a tmpfs there")
    usage = shutil.disk_usage(path)
    said = f"{path}: {words.size(usage.free)} free of {words.size(usage.total)}"
    if usage.free < needed:
        return Check(name, "degraded", said, "little for data loaders with workers; in Docker start with --shm-size=8g")
    return Check(name, "ok", said)


def report_dir(settings: Settings) -> Check:
    """Written to for real where it exists; it is not made only for a check."""
    directory = Path(settings.report_dir)
    try:
        with tempfile.TemporaryFile(dir=_existing(directory)) as file:
            file.write(b"hangwatch")
            file.flush()
    except OSError as error:
        found = f"{directory.absolute()}: {(error.strerror or str(error)).lower()}"
        return Check("reports", "missing", found, "choose another place: --report-dir or HANGWATCH_REPORT_DIR")
    return Check("reports", "ok", f"{directory.absolute()} is writable")


def gpus(read: Callable[[], tuple[tuple[Any, ...], Any]] | None = None) -> Check:
    """The GPUs through NVML, which answers in its own thread or is given up."""
    from hangwatch_agent.capture import gpu

    found, note = (read or gpu.Gpus().read)()
    if found:
        kinds = ", ".join(dict.fromkeys(one.name for one in found))
        return Check("GPUs", "ok", f"{len(found)}: {kinds}")
    if note.ok or gpu.NO_GPU in note.detail:
        return Check("GPUs", "unused", gpu.NO_GPU)
    return Check("GPUs", "degraded", note.detail, "reports will not show utilisation, power and memory of GPUs")


def dashboard(settings: Settings, timeout_s: float = DASHBOARD_S) -> Check:
    """Whether the dashboard answers, where one is set."""
    if not settings.dashboard:
        return Check("dashboard", "unused", "none set; one node needs none")
    advice = "hangwatch works without it, but cannot judge across nodes; start it: hangwatch dashboard"
    shown = addresses.shown(settings.dashboard)
    if not settings.dashboard.startswith(("http://", "https://")):
        return Check("dashboard", "degraded", f"{shown} is no address", "e.g. http://monitor:8470")
    if settings.token and addresses.exposes_token(settings.dashboard):
        return Check("dashboard", "degraded", f"the token travels in the clear to {shown}", "use https://")
    address = shown.rstrip("/") + "/healthz"
    try:
        with urllib.request.urlopen(address, timeout=timeout_s) as answer:
            return Check("dashboard", "ok", f"{shown} answers ({answer.status})")
    except urllib.error.HTTPError as error:
        return Check("dashboard", "degraded", f"{address} answers {error.code} {error.reason}", advice)
    except OSError as error:
        reason = getattr(error, "reason", error)
        return Check("dashboard", "degraded", f"{shown} cannot be reached: {reason}", advice)
