"""What can be read on a rank's host without torch and without its peers: names, interfaces, limits, code, versions."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import platform
import resource
import socket
import subprocess
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from hangwatch.doctor.model import Code, Interface, Lookup, System
from hangwatch_agent.capture.proc import cgroup
from hangwatch_agent.capture.stacks import refusal
from hangwatch_agent.doctor.saying import facts, stage
from hangwatch_agent.rank import identity
from hangwatch_agent.shared import redact

PACKAGES = ("torch", "hangwatch", "numpy", "torchvision", "transformers", "accelerate", "deepspeed", "lightning")
MORE_SETTINGS = (
    "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG", "MKL_NUM_THREADS", "TORCH_LOGS",
)  # fmt: skip


def main() -> None:
    with stage("limits"):
        facts(system=system(), environment=environment(os.environ))
    with stage("versions"):
        facts(versions=versions())
    with stage("interfaces"):
        found = interfaces()
        facts(interfaces=found)
    with stage("names"):
        names = lookups(os.environ.get("MASTER_ADDR", ""), platform.node())
        facts(lookups=names, route=route(names[0], found), address=own_address(names[1], found, os.environ))
    with stage("code"):
        facts(code=code(os.environ.get("HANGWATCH_DOCTOR_ARGV", "").splitlines()))


def environment(given: Mapping[str, str]) -> dict[str, str]:
    found = identity.distributed(given) | {name: given[name] for name in MORE_SETTINGS if name in given}
    return dict(redact.redact_environment(found))


def system() -> System:
    total, free = _shm()
    memory = cgroup.Memory()
    with contextlib.suppress(OSError, ValueError):
        memory = cgroup.memory_of(os.getpid())
    return System(
        shm_total=total,
        shm_free=free,
        open_files=_limit(resource.RLIMIT_NOFILE),
        locked_memory=_limit(resource.RLIMIT_MEMLOCK),
        processes=_limit(resource.RLIMIT_NPROC),
        ptrace_scope=refusal.yama_scope(),
        can_ptrace=refusal.has_ptrace_capability(),
        container=container(os.environ),
        memory_limit=memory.limit,
        processors=processors(),
    )


def _shm() -> tuple[int | None, int | None]:
    try:
        return cgroup.shm()
    except OSError:
        return None, None


def _limit(kind: int) -> int | None:
    soft = resource.getrlimit(kind)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def container(given: Mapping[str, str], root: Path = Path("/")) -> str:
    """By what sign we know that we are in a container; "" for none."""
    if given.get("KUBERNETES_SERVICE_HOST"):
        return "KUBERNETES_SERVICE_HOST"
    return next((f"/{name}" for name in (".dockerenv", "run/.containerenv") if (root / name).exists()), "")


def processors(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Those that this process may run on, or fewer where its cgroup has a quota."""
    allowed = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):
        granted, period = quota.read_text().split()
        return max(1, min(allowed, int(granted) // int(period)))
    return allowed


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "kernel": platform.release()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    with contextlib.suppress(OSError, IndexError):
        words = Path("/proc/driver/nvidia/version").read_text().split()
        found["driver"] = next(word for word in words if word[:1].isdigit() and "." in word)
    return found


def interfaces() -> tuple[Interface, ...]:
    import psutil

    states = psutil.net_if_stats()
    found = []
    for name, addresses in psutil.net_if_addrs().items():
        for each in addresses:
            if each.family == socket.AF_INET and each.netmask:
                network = ipaddress.ip_network(f"{each.address}/{each.netmask}", strict=False)
                state = states.get(name)
                loopback = ipaddress.ip_address(each.address).is_loopback
                found.append(
                    Interface(
                        name,
                        each.address,
                        str(network),
                        bool(state and state.isup),
                        loopback,
                        state.mtu if state else 0,
                    )
                )
    return tuple(found)


def lookups(*names: str) -> list[Lookup]:
    return [lookup(name) for name in names]


def lookup(name: str) -> Lookup:
    if not name:
        return Lookup(name, problem="not set")
    began = time.monotonic()
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return Lookup(name, (), time.monotonic() - began, error.strerror or str(error))
    return Lookup(name, tuple(dict.fromkeys(str(each[4][0]) for each in found)), time.monotonic() - began)


def route(master: Lookup, known: tuple[Interface, ...]) -> str:
    """The interface by which packets to the master leave. Nothing is sent for this."""
    for address in master.addresses:
        with contextlib.suppress(OSError), socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            source = probe.getsockname()[0]
            return next((each.name for each in known if each.address == source), "")
    return ""


def own_address(own: Lookup, known: tuple[Interface, ...], given: Mapping[str, str]) -> str:
    """Where gloo would listen: on the interface that it is told, else at the address of this host's name."""
    if asked := given.get("GLOO_SOCKET_IFNAME", "").split(",")[0]:
        return next((each.address for each in known if each.name == asked), "")
    for address in own.addresses:
        with contextlib.suppress(OSError), socket.socket(_family(address)) as probe:
            probe.bind((address, 0))
            return address
    return "127.0.0.1"


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def code(argv: list[str]) -> Code:
    """The script that this rank would have run, and the state of the repository that it lies in."""
    script = next((Path(word) for word in argv[1:] if word.endswith(".py") and Path(word).is_file()), None)
    folder = script.absolute().parent if script else Path.cwd()
    digest = hashlib.sha256(script.read_bytes()).hexdigest()[:16] if script else ""
    commit = _git(folder, "rev-parse", "HEAD")
    changed = bool(commit and _git(folder, "status", "--porcelain", "--untracked-files=no"))
    return Code(str(script or ""), digest, commit, changed)


def _git(folder: Path, *words: str) -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=3.0, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""
