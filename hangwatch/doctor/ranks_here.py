"""The launcher of `hangwatch doctor --nproc N [--hosts a,b]`: the probes without a job, here or on other hosts."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from hangwatch.ports import free_port

PASSED_ON = ("PYTHONPATH", "HANGWATCH_", "NCCL_", "GLOO_", "TORCH_", "CUDA_", "UCX_", "FI_", "OMP_", "LD_LIBRARY_PATH")
OF_A_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
PROBE = ("-m", "hangwatch_agent.doctor")


def main(plan: str) -> int:
    """Start the probes of all ranks, wait for them, and end with the first exit code that is not 0."""
    known = json.loads(plan)
    hosts = known["hosts"] or [""]
    environments = [
        _rank(number, local, known["nproc"], hosts)
        for number, local in (
            (at * known["nproc"] + local, local) for at in range(len(hosts)) for local in range(known["nproc"])
        )
    ]
    port = str(free_port())  # where it is taken on the first of other hosts, the probe says so
    processes = [_start({**each, "MASTER_PORT": port}, known["shell"]) for each in environments]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return next((code for code in [process.wait() for process in processes] if code), 0)


def _rank(rank: int, local: int, nproc: int, hosts: Sequence[str]) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(nproc * len(hosts)),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(nproc),
        "GROUP_RANK": str(rank // nproc),
        "MASTER_ADDR": hosts[0] or "127.0.0.1",
        "HANGWATCH_DOCTOR_HOST": hosts[rank // nproc],
    }


def _start(rank: Mapping[str, str], shell: Sequence[str]) -> subprocess.Popen[bytes]:
    host = rank["HANGWATCH_DOCTOR_HOST"]
    if not host:
        return subprocess.Popen([sys.executable, *PROBE], env={**os.environ, **rank})
    passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)} | dict(rank)
    assignments = [f"{name}={value}" for name, value in passed.items()]
    remote = shlex.join(["env", *assignments, sys.executable, *PROBE])
    return subprocess.Popen([*shell, host, remote], stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
