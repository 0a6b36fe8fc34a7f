"""One training program with many faults, for NCCL on a GPU; on gloo without one, to rehearse.

    train.py --fault NAME --culprit RANK [--healthy] [--device cpu]

It knows nothing of hangwatch. Hosts queue their work and read the loss every fifth step, as training programs do.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

READ_EVERY = 5
LONG_S = 8.0
WARM = 20  # steps before the speed is measured


class Samples(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples of which one never comes, if so wanted."""

    def __init__(self, count: int, blocked_at: int = -1) -> None:
        self.inputs, self.targets, self.blocked_at = torch.randn(count, 64), torch.randn(count, 1), blocked_at

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if index == self.blocked_at:
            read_from_a_server()
        return self.inputs[index], self.targets[index]


def read_from_a_server() -> None:
    """Waits for a server that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.recv(1)


class Training:
    """One rank's training; a fault happens in `step` at the fault step."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = torch.device(args.device)
        self.guilty = self.rank == args.culprit
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)).to(self.device)
        self.model = DistributedDataParallel(layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def loader(self) -> Any:
        args = self.args
        short = args.fault == "uneven-steps" and self.guilty
        count = 8 * (args.fault_step if short else args.steps)
        blocked = args.fault == "loader-worker-blocked" and self.guilty
        samples = Samples(count, 8 * args.fault_step if blocked else -1)
        return DataLoader(samples, batch_size=8, num_workers=1 if "loader" in args.fault else 0)

    def run(self) -> None:
        began = time.perf_counter()
        for batch, (inputs, targets) in enumerate(self.loader()):
            if batch == WARM:
                self.synchronize()
                began = time.perf_counter()
            if batch == self.args.fault_step and not self.act():
                break
            skipped = self.args.fault == "skipped-backward" and self.guilty and batch == self.args.fault_step
            self.step(batch, inputs.to(self.device), targets.to(self.device), skipped)
        self.synchronize()
        if self.rank == 0:
            print(f"steps/s {(self.args.steps - WARM) / (time.perf_counter() - began):.3f}", flush=True)

    def step(self, batch: int, inputs: torch.Tensor, targets: torch.Tensor, skipped: bool) -> None:
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        if skipped:
            return
        loss.backward()
        self.optimizer.step()
        if batch % READ_EVERY == 0 and self.args.fault != "host-far-ahead":
            loss.item()

    def act(self) -> bool:
        """What happens at the fault step; False leaves the loop."""
        fault = self.args.fault.replace("-", "_")
        return getattr(self, f"do_{fault}", lambda: True)() is not False

    # ---------------------------------------------------------------- faults

    def do_rank_zero_only(self) -> None:
        if self.guilty:
            self.evaluate()

    def evaluate(self) -> None:
        score = torch.ones(3, device=self.device)
        dist.all_reduce(score)
        score.sum().item()

    def do_size_mismatch(self) -> None:
        scores = torch.ones(4096 if self.guilty else 1024, device=self.device)
        dist.all_reduce(scores)
        scores.sum().item()

    def do_early_exit(self) -> bool:
        return not self.guilty

    def do_rank_frozen(self) -> None:
        if self.guilty:
            os.kill(os.getpid(), signal.SIGSTOP)

    def do_gil_held(self) -> None:
        if self.guilty:
            ctypes.PyDLL(None).sleep(10_000)

    def do_user_code_blocked(self) -> None:
        if self.guilty:
            read_from_a_server()

    def do_stuck_kernel(self) -> None:
        if self.guilty:
            torch.cuda._sleep(10**13)  # hours, at any clock

    def do_group_order(self) -> None:
        first, second = (dist.new_group(list(range(self.world))) for _ in range(2))
        values = [torch.ones(8, device=self.device) for _ in range(2)]
        for group, value in zip((second, first) if self.guilty else (first, second), values, strict=True):
            dist.all_reduce(value, group=group)
            value.sum().item()

    # ---------------------------------------------------------------- look-alikes: all of them end

    def do_long_kernel(self) -> None:
        if self.guilty:
            busy(LONG_S)

    def do_host_far_ahead(self) -> None:
        if self.guilty:
            busy(LONG_S)

    def do_slow_rank(self) -> None:
        if self.guilty:
            time.sleep(LONG_S)

    def do_graph_replay(self) -> None:
        if self.device.type != "cuda":
            return
        inputs = torch.randn(512, 512, device=self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(20):
                inputs = inputs @ inputs * 1e-3
        until = time.monotonic() + LONG_S
        while time.monotonic() < until:
            graph.replay()
            torch.cuda.synchronize()

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def busy(seconds: float) -> None:
    """A kernel that takes so long, by the GPU's clock; without a GPU the host sleeps."""
    if not torch.cuda.is_available():
        time.sleep(seconds)
        return
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda._sleep(10**7)
    end.record()
    torch.cuda.synchronize()
    torch.cuda._sleep(int(10**7 * seconds * 1000 / max(start.elapsed_time(end), 1e-3)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="none")
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--fault-step", type=int, default=30)
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    args = parser.parse_args()

    torch.set_num_threads(1)
    if args.device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo", timeout=timedelta(seconds=args.timeout))
    training = Training(args)
    training.run()
    leave: Callable[[], None] = dist.barrier
    leave()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
