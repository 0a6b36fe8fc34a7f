"""Sets what makes NCCL take each rank for a host of its own, and becomes the training program.

NCCL refuses two ranks with the same host hash on one GPU; NCCL_HOSTID replaces the hash, and must be there before the
process starts. Each rank's RAS service then needs an address of its own.
"""

from __future__ import annotations

import os
import sys

RAS_PORT = 28100
PORTS = 32  # of one job


def main() -> None:
    rank = int(os.environ["RANK"])
    if os.environ.get("GPU_RECIPE") == "hostid":
        os.environ["NCCL_HOSTID"] = f"h{rank}"
        seat = int(os.environ.get("GPU_SEAT", "0"))  # jobs that run at the same time share the machine's ports
        os.environ["NCCL_RAS_ADDR"] = f"localhost:{RAS_PORT + PORTS * seat + rank}"
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


if __name__ == "__main__":
    main()
