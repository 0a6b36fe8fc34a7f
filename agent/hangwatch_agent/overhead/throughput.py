"""Throughput with hangwatch attached over throughput without it: `python -m hangwatch_agent.overhead.throughput`.

Two ranks train with DDP and a DataLoader. The same steps run attached and plain in turns, within one job, so that what
else the machine does hits both alike. The ratio is the median over pairs of neighbouring rounds. Beside it stands the
same in processor time, which a busy machine disturbs less. Prints JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from hangwatch.ports import free_port

RANKS = 2
STEP_S = 0.005
ROUND_S = 0.6
PAIRS = 24
WARM_UP_S = 1.5  # the watchdog starts after attach, and its start is not the job's throughput


class Times(NamedTuple):
    """Seconds of one round of this rank, by the clock and of its processor time."""

    wall: float
    cpu: float


def measure() -> dict[str, float]:
    """The ratio, and the step's milliseconds."""
    port = free_port()
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    ranks = [context.Process(target=_rank, args=(rank, port, answers)) for rank in range(RANKS)]
    for each in ranks:
        each.start()
    found: dict[str, float] = answers.get(timeout=300)
    for each in ranks:
        each.join()
    return found


def _rank(rank: int, port: int, answers: Any) -> None:
    import torch

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    step = _step(torch)
    count = _calibrated(torch, step)
    pairs = [_pair(torch, step, count, attached_first=bool(number % 2)) for number in range(PAIRS)]
    torch.distributed.barrier()
    if rank == 0:
        answers.put(_summary(pairs, count))
    torch.distributed.destroy_process_group()
    time.sleep(0.2)  # gloo's threads may abort the process if it ends at once


def _summary(pairs: list[tuple[Times, Times]], count: int) -> dict[str, float]:
    return {
        "ratio": statistics.median(plain.wall / attached.wall for plain, attached in pairs),
        "cpu_ratio": statistics.median(plain.cpu / attached.cpu for plain, attached in pairs),
        "step_ms": statistics.median(plain.wall for plain, _ in pairs) / count * 1e3,
        "pairs": len(pairs),
    }


def _pair(torch: Any, step: Callable[[], None], count: int, *, attached_first: bool) -> tuple[Times, Times]:
    """`count` steps without and with hangwatch, one right after the other."""
    seconds = {}
    for attached in (attached_first, not attached_first):
        seconds[attached] = _attached(torch, step, count) if attached else _seconds(torch, step, count)
    return seconds[False], seconds[True]


def _attached(torch: Any, step: Callable[[], None], count: int) -> Times:
    import hangwatch

    with hangwatch.attach():
        time.sleep(WARM_UP_S)
        return _seconds(torch, step, count)


def _seconds(torch: Any, step: Callable[[], None], count: int) -> Times:
    step()
    torch.distributed.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        step()
    return Times(time.perf_counter() - wall, time.process_time() - cpu)


def _calibrated(torch: Any, step: Callable[[], None]) -> int:
    """How many steps make a round, the same on all ranks."""
    _seconds(torch, step, 20)
    count = torch.tensor([int(ROUND_S / (_seconds(torch, step, 50).wall / 50))])
    torch.distributed.broadcast(count, 0)
    return max(10, int(count))


def _step(torch: Any) -> Callable[[], None]:
    """A step that takes about `STEP_S`: a small model, and as many more multiplications as are needed for that."""
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 8))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(1 << 20, 64))
    batches = iter(torch.utils.data.DataLoader(data, batch_size=16))
    matrix, times = torch.randn(192, 192), 0

    def step() -> None:
        nonlocal batches
        try:
            (batch,) = next(batches)
        except StopIteration:
            batches = iter(torch.utils.data.DataLoader(data, batch_size=16))
            (batch,) = next(batches)
        optimizer.zero_grad()
        loss = model(batch).sum()
        for _ in range(times):
            torch.mm(matrix, matrix)
        loss.backward()
        optimizer.step()

    for _ in range(20):
        step()
    bare = _quickest(step)
    times = max(0, int((STEP_S - bare) / _quickest(lambda: torch.mm(matrix, matrix))))
    return step


def _quickest(call: Callable[[], object], count: int = 40) -> float:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"HANGWATCH_RUN_DIR": folder, "HANGWATCH_REPORT_DIR": folder}
        json.dump(measure(), sys.stdout)
    print()
