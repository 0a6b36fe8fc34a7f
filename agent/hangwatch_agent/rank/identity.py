"""The identity of this process, in the shape of `records.Identity`, from what it has at hand: environment and /proc."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

from hangwatch.launchers import number
from hangwatch_agent.shared import procfs, steady_clock
from hangwatch_agent.shared.job_identity import job_identity

# Taken along because a wrong one of these is a cause of hangs; values are redacted by the reader of the board.
DISTRIBUTED = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "MASTER_ADDR", "MASTER_PORT",
    "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PYTHONUNBUFFERED", "PYTHONHASHSEED",
)  # fmt: skip
PREFIXES = (
    "NCCL_",
    "TORCH_NCCL_",
    "TORCH_DISTRIBUTED_",
    "TORCH_FR_",
    "TORCH_GLOO_",
    "GLOO_",
    "TORCHELASTIC_",
    "UCX_",
    "FI_",
)
# First match wins: torchrun under Slurm is torchrun.
LAUNCHERS = (
    ("torchrun", "TORCHELASTIC_RUN_ID"),
    ("mpi", "OMPI_COMM_WORLD_RANK"),
    ("mpi", "PMI_RANK"),
    ("slurm", "SLURM_PROCID"),
)
LONGEST_COMMAND = 2000


def describe(environment: Mapping[str, str], *, job: str = "", attached_by: str = "run") -> dict[str, Any]:
    """The identity as far as the environment knows it; what torch knows comes with `hooks.groups`."""
    return {
        "rank": number(environment, "RANK"),
        "world_size": number(environment, "WORLD_SIZE"),
        "local_rank": number(environment, "LOCAL_RANK"),
        "host": platform.node(),
        "pid": os.getpid(),
        "started_at": started_at(start_ticks()),
        "job": environment.get("HANGWATCH_RUN_ID") or job_identity(environment, job=job, parent=os.getppid())[0],
        "command": " ".join(getattr(sys, "orig_argv", sys.argv))[:LONGEST_COMMAND],
        "launcher": launcher(environment),
        "torch_version": str(getattr(sys.modules.get("torch"), "__version__", "")),
        "python_version": platform.python_version(),
        "environment": distributed(environment),
        "attached_by": attached_by,
    }


def distributed(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of the environment that concern distributed training."""
    return {
        name: value[:200] for name, value in environment.items() if name in DISTRIBUTED or name.startswith(PREFIXES)
    }


def rendezvous(init_method: object) -> dict[str, str]:
    """The address in a `tcp://host:port` that init_process_group was given, which counts more than the environment."""
    scheme, _, rest = init_method.partition("://") if isinstance(init_method, str) else ("", "", "")
    host, _, port = rest.partition("?")[0].rstrip("/").rpartition(":")
    if scheme != "tcp" or not host or not port.isdigit():
        return {}
    return {"MASTER_ADDR": host[:200], "MASTER_PORT": port[:5]}


def launcher(environment: Mapping[str, str]) -> str:
    """What started this rank: "torchrun", "mpi", "slurm", "spawn", or "plain" for a shell or a program of one's own."""
    for name, variable in LAUNCHERS:
        if environment.get(variable):
            return name
    multiprocessing = sys.modules.get("multiprocessing.process")
    return "spawn" if multiprocessing is not None and multiprocessing.parent_process() is not None else "plain"


def start_ticks() -> int:
    """When this process started, in clock ticks since boot; 0 where /proc does not say."""
    stat = procfs.stat_of(os.getpid())
    return stat.ticks if stat is not None else 0


def started_at(ticks: int) -> float:
    """The same as a time of day, in seconds since 1970; now, where it is not known."""
    if not ticks:
        return steady_clock.time()
    return steady_clock.boot_time() + ticks / procfs.TICKS_PER_S
