"""The training that `hangwatch_agent.overhead.run` times: a DDP job without a word of hangwatch.

`torchrun ... training.py STEP_MS STEPS MULTIPLICATIONS WORKERS FOLDER`. With MULTIPLICATIONS 0 it finds out how many
matrix multiplications make a step of STEP_MS, and writes that number; else it writes what its steps took.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

WARM_UP_S = 2.5  # the probe wakes, the watchdog finds the rank, torch has its buffers
LEAST_WARM_UP = 30  # steps
GLOO_LOOP = "gloo_tcp_loop"


def main(step_ms: float, steps: int, multiplications: int, workers: int, folder: str) -> None:
    torch: Any = __import__("torch")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    make = _maker(torch, workers)
    if not multiplications:
        found: dict[str, float] = {"multiplications": _calibrated(make, step_ms / 1e3)}
    else:
        step = make(multiplications)
        began, done = time.perf_counter(), 0
        while done < LEAST_WARM_UP or not _agreed(torch, time.perf_counter() - began > WARM_UP_S):
            step()
            done += 1
        found = _timed(torch, step, steps)
    Path(folder, f"rank-{rank}.json").write_text(json.dumps(found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def _agreed(torch: Any, enough: bool) -> bool:
    """Whether every rank has warmed up: all must take the same number of steps."""
    votes = torch.tensor([int(enough)])
    torch.distributed.all_reduce(votes, torch.distributed.ReduceOp.MIN)
    return bool(votes)


def _timed(torch: Any, step: Callable[[], None], steps: int) -> dict[str, float]:
    """Seconds of `steps` steps by the clock; processor seconds of this process, all in all and of gloo's loops."""
    torch.distributed.barrier()
    wall, cpu, polled = time.perf_counter(), time.process_time(), _polled()
    for _ in range(steps):
        step()
    torch.distributed.barrier()
    return {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "polled_s": _polled() - polled,
    }


def _polled() -> float:
    """Processor seconds of gloo's loop threads.

    While another rank's data is there and this rank has not asked for it yet, the loop polls without a pause: its time
    is how far the ranks are apart and how idle a core is, and no work.
    """
    total = 0.0
    for thread in Path("/proc/self/task").iterdir():
        if (thread / "comm").read_text().strip() == GLOO_LOOP:
            total += int((thread / "schedstat").read_text().split()[0]) / 1e9
    return total


def _maker(torch: Any, workers: int) -> Callable[[int], Callable[[], None]]:
    layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    model = torch.nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(1 << 18, 64))
    sampler = torch.utils.data.distributed.DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, 16, sampler=sampler, num_workers=workers)
    matrix, batches = torch.randn(192, 192), _endless(loader)

    def make(multiplications: int) -> Callable[[], None]:
        def step() -> None:
            (batch,) = next(batches)
            optimizer.zero_grad()
            loss = model(batch).sum()
            for _ in range(multiplications):
                torch.mm(matrix, matrix)
            loss.backward()
            optimizer.step()

        return step

    return make


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def _calibrated(make: Callable[[int], Callable[[], None]], step_s: float) -> int:
    """How many multiplications fill up a step. Every rank takes the same number of steps to find out."""
    bare, full = _quickest(make(0)), _quickest(make(20))
    return max(1, round((step_s - bare) / max((full - bare) / 20, 1e-6)))


def _quickest(step: Callable[[], None], count: int = 60) -> float:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return sorted(times)[count // 4]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
