"""How long a capture takes: ranks with loader workers that do nothing, looked at as a hang would be."""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hangwatch.model import Identity, Reading
from hangwatch_agent.capture.evidence import capture
from hangwatch_agent.capture.options import CaptureOptions, CaptureResult, Target
from hangwatch_agent.shared import procfs


def seconds_of_capture(ranks: int = 8, workers: int = 16, times: int = 3) -> tuple[float, CaptureResult]:
    """The median seconds of a capture without the wait between its samples and without native frames, and the last one.

    Needs torch. The ranks are forked from one process that has imported it, so that all is ready in seconds.
    """
    parent, child = multiprocessing.get_context("spawn").Pipe()
    launcher = multiprocessing.get_context("spawn").Process(target=_launch, args=(child, ranks, workers // ranks))
    launcher.start()
    child.close()
    try:
        with tempfile.TemporaryDirectory() as folder:
            targets = [_target(rank, pid, Path(folder)) for rank, pid in enumerate(parent.recv())]
            figures = sorted((_timed(targets, launcher.pid) for _ in range(times)), key=lambda each: each[0])
    finally:
        parent.close()  # which ends them all
        launcher.join()
    return figures[times // 2][0], figures[-1][1]


def figures() -> tuple[float, int]:
    """Seconds for 8 ranks with 16 workers, and how many workers were found."""
    seconds, taken = seconds_of_capture()
    return seconds, sum(len(rank.workers) for rank in taken.ranks)


def _timed(targets: list[Target], root: int | None) -> tuple[float, CaptureResult]:
    began = time.perf_counter()
    taken = capture(targets, root=root, options=CaptureOptions(sample_gap_s=0.0))
    return time.perf_counter() - began, taken


def _target(rank: int, pid: int, folder: Path) -> Target:
    stat = procfs.stat_of(pid)
    started = procfs.started_at(stat) if stat else 0.0
    identity = Identity(rank, None, rank, socket.gethostname(), pid, started, "bench")
    return Target(Reading(identity, time.time()), folder / f"rank-{rank}.board")


def _launch(pipe: Connection, ranks: int, workers: int) -> None:
    import torch.utils.data  # noqa: F401  (the ranks inherit it)

    context = multiprocessing.get_context("fork")
    ready = context.Queue()
    processes = [context.Process(target=_rank, args=(ready, workers)) for _ in range(ranks)]
    for process in processes:
        process.start()
    for _ in processes:
        ready.get()
    pipe.send([process.pid for process in processes])
    try:
        pipe.recv()
    except EOFError:
        for process in processes:
            process.terminate()


class _Stuck:
    """A data set whose fifth sample never comes, unless the rank is gone."""

    def __init__(self) -> None:
        self.rank = os.getpid()

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        while index >= 4 and os.getppid() == self.rank:
            time.sleep(0.2)
        return index


def _rank(ready: Any, workers: int) -> None:
    from torch.utils.data import DataLoader

    batches = iter(DataLoader(_Stuck(), batch_size=2, num_workers=workers, multiprocessing_context="fork"))  # type: ignore[arg-type]
    next(batches)
    ready.put(os.getpid())
    while True:
        next(batches)
