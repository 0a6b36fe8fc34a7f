"""Rank 0 alone saves a distributed checkpoint between two epochs, outside of every loop; rank 1 goes on."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import save
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def epoch(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[tuple[torch.Tensor, ...]]) -> None:
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def main(folder: str) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    epoch(model, optimizer, loader)
    if dist.get_rank() == 0:
        save({"model": model.state_dict()}, checkpoint_id=folder)  # the save
    epoch(model, optimizer, loader)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
