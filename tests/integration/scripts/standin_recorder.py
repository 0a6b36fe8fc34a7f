"""A stand-in for the thread of torch's NCCL backend that writes dumps: no NCCL here, the behaviour is copied from it.

    python standin_recorder.py RANK DOCUMENT [LIFETIME]

It makes the pipe `$TORCH_NCCL_DEBUG_INFO_PIPE_FILE<rank>.pipe`, looks at it every fifth of a second, and writes the
pickle DOCUMENT to `$TORCH_FR_DUMP_TEMP_FILE<rank>` (or the older name) when something is written to it. It prints
`ready`, and ends with its parent.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def serve(rank: int, document: bytes, lifetime_s: float) -> None:
    """Answer the pipe for so long."""
    pipe = f"{os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{rank}.pipe"
    prefix = os.environ.get("TORCH_FR_DUMP_TEMP_FILE") or os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"]
    Path(pipe).unlink(missing_ok=True)
    os.mkfifo(pipe, 0o666)
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    print("ready", flush=True)
    until, parent = time.monotonic() + lifetime_s, os.getppid()
    while time.monotonic() < until and os.getppid() == parent:
        try:
            asked = os.read(descriptor, 128)
        except BlockingIOError:
            asked = b""
        if asked:
            Path(f"{prefix}{rank}").write_bytes(document)
        time.sleep(0.2)


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]).read_bytes(), float(sys.argv[3]) if len(sys.argv) > 3 else 60.0)
