"""A loop of one's own with Accelerate: accelerated.py CASE."""

from __future__ import annotations

import queue
import sys
import tempfile
import time
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def data(count: int) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.randn(count, 8), torch.randn(count, 1)), batch_size=4)


class Run:
    def __init__(self, accelerator: Accelerator, samples: int = 160, *, shard: bool = True) -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
        self.accelerator = accelerator
        self.net, self.optimizer = accelerator.prepare(net, torch.optim.Adam(net.parameters()))
        self.batches = accelerator.prepare(data(samples)) if shard else data(samples)

    def step(self, x: Any, y: Any) -> Any:
        loss = (self.net(x) - y).square().mean()
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def epoch(self) -> Any:
        for x, y in self.batches:  # the line: uneven
            loss = self.step(x, y)
        return loss


def hook(accelerator: Accelerator) -> None:
    run = Run(accelerator)

    @accelerator.on_main_process
    def upload(loss: Any) -> None:
        queue.SimpleQueue[str]().get()  # the line: hook

    for _ in range(3):
        upload(run.epoch())


def uneven(accelerator: Accelerator) -> None:
    """Each rank has a file of its own, so the loader is not prepared."""
    run = Run(accelerator, 96 if accelerator.is_main_process else 72, shard=False)
    for _ in range(3):
        run.epoch()
        accelerator.wait_for_everyone()  # the line: uneven


def guarded(accelerator: Accelerator) -> None:
    run = Run(accelerator)
    for _ in range(3):
        loss = run.epoch()
        if accelerator.is_main_process:
            print("loss", accelerator.gather(loss.reshape(1)).mean().item())  # the line: guarded


def swallowed(accelerator: Accelerator) -> None:
    run = Run(accelerator)
    try:
        for epoch in range(3):
            for number, (x, y) in enumerate(run.batches):
                if accelerator.process_index == 1 and (epoch, number) == (1, 4):
                    raise ValueError("label 11 is out of range")  # the line: swallowed
                run.step(x, y)
    except ValueError as error:
        print("training ended early:", error)
        accelerator.wait_for_everyone()
        accelerator.save_state(tempfile.mkdtemp())


def healthy(accelerator: Accelerator) -> None:
    run = Run(accelerator, 403)
    for _ in range(4):
        accelerator.gather_for_metrics(run.epoch().reshape(1))
        with accelerator.main_process_first():
            time.sleep(12 if accelerator.is_main_process else 0)
        accelerator.save_state(tempfile.mkdtemp())
    accelerator.end_training()
    print("trained", flush=True)


CASES = {"hook": hook, "uneven": uneven, "guarded": guarded, "swallowed": swallowed, "healthy": healthy}

if __name__ == "__main__":
    CASES[sys.argv[1]](Accelerator(cpu=True))
