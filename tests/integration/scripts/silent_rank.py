"""Two ranks on a backend whose name is NCCL's but for a prefix, gloo below.

Rank 1 falls silent with the interpreter lock held; a stand-in for the thread of torch's backend
(`standin_recorder.py`) knows its calls, and writes them when asked.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

STEPS = 60


def gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    return dist.ProcessGroupGloo(store, rank, size, timeout)


def entry(number: int) -> dict[str, Any]:
    frames = [{"name": "step", "filename": "/recorded/train.py", "line": 42}]
    return {
        "record_id": number - 1, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": number,
        "p2p_seq_id": 0, "op_id": number, "profiling_name": "nccl:all_reduce", "time_created_ns": time.time_ns(),
        "input_sizes": [[4]], "input_dtypes": ["Float"], "output_sizes": [[4]], "output_dtypes": ["Float"],
        "state": "completed", "time_discovered_started_ns": None, "time_discovered_completed_ns": time.time_ns(),
        "retired": True, "timeout_ms": 600_000, "is_p2p": False, "frames": frames,
    }  # fmt: skip


def main() -> None:
    dist.Backend.register_backend("standin_nccl", gloo, devices=["cpu"])
    dist.init_process_group("standin_nccl", timeout=timedelta(seconds=300))
    rank = dist.get_rank()
    tensor, entries = torch.ones(4), []
    for step in range(STEPS):
        dist.all_reduce(tensor)
        entries.append(entry(step + 1))
        time.sleep(0.05)
    if rank == 1:
        document = Path(os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"]).with_name("document")
        document.write_bytes(pickle.dumps({"version": "2.10", "entries": entries}, protocol=2))
        recorder = [sys.executable, str(Path(__file__).with_name("standin_recorder.py")), "1", str(document), "60"]
        with subprocess.Popen(recorder, stdout=subprocess.PIPE, text=True, env=os.environ | {"RANK": ""}) as process:
            assert process.stdout is not None
            process.stdout.readline()
            ctypes.PyDLL(None).sleep(60)
    dist.all_reduce(tensor)


if __name__ == "__main__":
    main()
