"""One rank compiles again, alone, and its compiler waits there for the others.

The program compares what all ranks have compiled, so that none trains another model than the rest. That works as long
as all compile in the same step. The last recordings of one rank are in another precision, so it compiles anew while
the others run what they have. With --healthy all ranks come to them in the same step.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def compared(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
    """A backend of torch.compile that runs the graph as it is, once all ranks have the same one."""
    digests = [""] * dist.get_world_size()
    dist.all_gather_object(digests, hashlib.sha256(graph.code.encode()).hexdigest())
    if len(set(digests)) > 1:
        raise RuntimeError(f"the ranks compile different graphs: {digests}")
    return graph.forward


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(32, 64), nn.Linear(64, 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.embed(features.float()))
        output: torch.Tensor = self.head(hidden.mean(dim=1))
        return output


def sequences(half: bool) -> torch.Tensor:
    """A batch of eight sequences, read as they were stored: the newer recordings in half precision."""
    batch = torch.randn(8, 16, 32)
    return batch.half() if half else batch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)

    model = DistributedDataParallel(torch.compile(Encoder(), backend=compared))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    newer = 60 if rank == args.culprit or args.healthy else args.steps  # the step of the first newer recording

    for step in range(args.steps):
        optimizer.zero_grad()
        loss = model(sequences(half=step >= newer)).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
