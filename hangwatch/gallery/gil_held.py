"""Captions are cleaned with a regular expression that takes exponential time on an unlucky text.

The matcher is one C call that keeps the interpreter lock, so no other Python thread of that rank runs either.
The others wait in backward. With --healthy the text is shorter, and the match ends after some seconds.
"""

from __future__ import annotations

import argparse
import re
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORDS = re.compile(r"^((\w+)\s?)+$")


def clean(caption: str) -> list[str]:
    return caption.split() if WORDS.match(caption) else []


def encode(words: list[str]) -> torch.Tensor:
    codes = [sum(word.encode()) % 256 for word in words][:8]
    return torch.tensor(codes + [0] * (8 - len(codes)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fault-step", type=int, default=100)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    network = nn.Sequential(nn.EmbeddingBag(256, 256), nn.Linear(256, 3072), nn.ReLU(), nn.Linear(3072, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters())

    for step in range(args.steps):
        caption = f"a photo of object {step}"
        if rank == args.culprit and step == args.fault_step:
            caption = "x" * (23 if args.healthy else 60) + "!"
        tokens = encode(clean(caption)).expand(16, 8)
        loss = model(tokens).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
