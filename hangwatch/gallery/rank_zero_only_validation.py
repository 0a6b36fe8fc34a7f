"""Only one rank validates through the DDP wrapper, and no other rank waits for it with a barrier.

The first forward of a validation broadcasts the batch-norm buffers, and the training step after it then does
not. So the lone broadcast is paired with that of the others' next step, every time, and nothing stops, until the last
validation, which no training step follows. The sequence numbers are equal on all ranks. With --healthy all
ranks validate, each its own share.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(64, 3072), nn.BatchNorm1d(3072), nn.ReLU())
        self.head = nn.Linear(3072, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.features(inputs))
        return scores


class Evaluator:
    def __init__(self, model: nn.Module, batches: int) -> None:
        self.model = model
        self.batches = [torch.randn(32, 64) for _ in range(batches)]

    @torch.no_grad()
    def run(self) -> float:
        self.model.eval()
        total = 0.0
        for batch in self.batches:
            total += float(self.model(batch).softmax(dim=1).amax(dim=1).mean())
        self.model.train()
        return total / len(self.batches)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=0, help="the rank that validates")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault-step", type=int, default=80)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(Classifier())
    optimizer = torch.optim.AdamW(model.parameters())
    evaluator = Evaluator(model, batches=10)

    for step in range(args.steps):
        loss = nn.functional.cross_entropy(model(torch.randn(16, 64)), torch.randint(0, 5, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % args.fault_step == 0 and (rank == args.culprit or args.healthy):
            print(f"step {step}: confidence {evaluator.run():.3f}", flush=True)

    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
