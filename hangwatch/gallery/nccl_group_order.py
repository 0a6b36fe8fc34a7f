"""On the stand-in for NCCL: two groups over the same ranks, which one rank uses in the other order.

Every call is enqueued everywhere. It is the streams that wait for each other, and the hosts wait for their streams.
With --read-each the hosts read what each call made: so a rank has not come to the call that another waits for. With
--first-use the groups have not been used before: the hosts wait where their communicators are made.
With --healthy all keep the same order.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn

from hangwatch.gallery import standin


def reduce_gradients(model: nn.Module, group: dist.ProcessGroup | None, read: bool) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad, group=group)
    if read:
        standin.synchronize()


def reduce_metrics(loss: torch.Tensor, group: dist.ProcessGroup | None, read: bool) -> None:
    dist.all_reduce(loss.detach().clone(), group=group)
    if read:
        standin.synchronize()


def reduce_extremes(loss: torch.Tensor, groups: list[dist.ProcessGroup | None]) -> None:
    for group in groups:
        dist.all_reduce(loss.detach().clone(), group=group)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault-step", type=int, default=80)
    parser.add_argument("--read-each", action="store_true")
    parser.add_argument("--first-use", action="store_true")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    standin.register()
    dist.init_process_group(standin.NAME)
    rank = dist.get_rank()
    torch.manual_seed(0)

    gradients, metrics = dist.new_group(), dist.new_group()
    model = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    early = rank == args.culprit and not args.healthy
    first = [dist.new_group(), dist.new_group()] if args.first_use else []

    reduce_metrics(torch.zeros(()), metrics, read=True)
    for step in range(args.steps):
        loss = model(torch.randn(16, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        report = step > 0 and step % args.fault_step == 0
        if report:
            reduce_extremes(loss, first[::-1] if early else first)
        if report and early:
            reduce_metrics(loss, metrics, args.read_each)
        reduce_gradients(model, gradients, args.read_each)
        if report and not early:
            reduce_metrics(loss, metrics, args.read_each)
        optimizer.step()
        standin.synchronize()  # as loss.item() does

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
