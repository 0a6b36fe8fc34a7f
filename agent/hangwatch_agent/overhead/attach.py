"""What `import hangwatch; hangwatch.attach()` costs a rank, the start of the watchdog's process included.

`python -m hangwatch_agent.overhead.attach` prints it as JSON. The import is in the figure, so nothing of ours may be
imported before the clock runs; that is why this is a script and `hangwatch bench` starts it anew for every sample.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure() -> dict[str, float]:
    """Milliseconds by the clock and of processor time, and MiB, over torch."""
    torch: Any = __import__("torch")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))(torch.ones(1, 8)).sum().backward()
    before, began, cpu = resident(), time.perf_counter(), time.process_time()
    import hangwatch

    session = hangwatch.attach()
    took, worked, grown = time.perf_counter() - began, time.process_time() - cpu, resident() - before
    assert session.folder is not None, session.degraded
    wait_for_watchdog(session.folder / "watchdog.pid")
    session.detach()
    torch.distributed.destroy_process_group()
    return {"ms": took * 1e3, "cpu_ms": worked * 1e3, "mib": grown / 2**20}


def wait_for_watchdog(pid: Path) -> None:
    """Until it is up: its folder is about to be deleted, and it would complain."""
    deadline = time.monotonic() + 20.0
    while not pid.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "HANGWATCH_RUN_DIR": folder, "HANGWATCH_REPORT_DIR": folder}
        json.dump(measure(), sys.stdout)
    print()
