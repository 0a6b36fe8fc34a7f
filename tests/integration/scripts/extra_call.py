"""Rank 1 makes one all_reduce more than the others in one step, from the helper that all ranks use."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def log_loss(values: list[float]) -> None:
    dist.all_reduce(torch.tensor(values))


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)))
    data = TensorDataset(torch.randn(160, 16), torch.randint(0, 4, (160,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch, (x, y) in enumerate(DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log_loss([loss.item(), 1.0])
        if dist.get_rank() == 1 and batch == 12:
            log_loss([loss.item()])  # the extra call
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
