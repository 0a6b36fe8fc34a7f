"""A process group of the ranks that came: barrier, all_reduce, and each pair's latency and bandwidth."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from hangwatch.doctor.model import Link

TIMEOUT_S = 10.0
ALL_PAIRS = 16
PINGS, PIECE, PIECES = 10, 1 << 20, 4
ENOUGH_S = 0.5  # of one pair: a slow link is not measured to its bitter end


def run(
    backend: str,
    store: Any,
    roster: Sequence[int],
    own: int,
    hosts: Mapping[int, str],
    local_rank: int,
    found: Callable[[Link], None],
) -> None:
    """Raises what torch raises. Links are told as they are measured."""
    import torch

    dist: Any = importlib.import_module("torch.distributed")  # not all of its names are public

    device = torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(local_rank)
        device = torch.device("cuda", local_rank)
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(backend, store),
        rank=roster.index(own),
        world_size=len(roster),
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    one = torch.ones(1, device=device)
    dist.all_reduce(one)
    if one.item() != len(roster):
        raise RuntimeError(f"an all_reduce of ones gave {one.item():g} on {len(roster)} ranks")
    dist.barrier()
    _measure(dist, torch, backend, device, _measured(roster, hosts), roster, own, found)
    dist.barrier()
    dist.destroy_process_group()


def _measured(roster: Sequence[int], hosts: Mapping[int, str]) -> list[int]:
    """All ranks of a small job; one of each host, at most 16, of a large one."""
    if len(roster) <= ALL_PAIRS:
        return list(roster)
    firsts: dict[str, int] = {}
    for rank in roster:
        firsts.setdefault(hosts.get(rank, ""), rank)
    return sorted(firsts.values())[:ALL_PAIRS]


def rounds(ranks: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """Every pair once, in rounds in which each rank has at most one partner (the circle method)."""
    circle: list[int | None] = [*ranks, *([None] if len(ranks) % 2 else [])]
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        yield [(one, other) for one, other in pairs if one is not None and other is not None]
        circle = [circle[0], circle[-1], *circle[1:-1]]


def _measure(
    dist: Any,
    torch: Any,
    backend: str,
    device: Any,
    ranks: Sequence[int],
    roster: Sequence[int],
    own: int,
    found: Callable[[Link], None],
) -> None:
    for pairs in rounds(ranks):
        for one, other in pairs:
            if own in (one, other):
                peer = other if own == one else one
                latency, bandwidth = _pair(dist, torch, device, roster.index(peer), first=own == one)
                found(Link(peer, backend, True, latency_s=latency, bandwidth=bandwidth))


def _pair(dist: Any, torch: Any, device: Any, peer: int, *, first: bool) -> tuple[float, float]:
    """Half a round trip of 8 bytes, and the bandwidth of a megabyte there and back, at their best.

    The first of the pair measures for both: what the second receives may have lain in its buffers already.
    """
    small = torch.zeros(1, dtype=torch.int64, device=device)
    large = torch.zeros(PIECE, dtype=torch.uint8, device=device)
    told = torch.zeros(3, dtype=torch.float64, device=device)  # go on, latency, bandwidth
    latency = min(_round_trip(dist, torch, small, peer, first) for _ in range(PINGS)) / 2
    began, best = time.monotonic(), float("inf")
    for number in range(PIECES):
        best = min(best, _round_trip(dist, torch, large, peer, first))
        if first:
            told[0] = float(number < PIECES - 1 and time.monotonic() - began < ENOUGH_S)
            told[1], told[2] = latency, 2 * PIECE / best
        (dist.send if first else dist.recv)(told, peer)
        if not told[0].item():
            break
    return float(told[1]), float(told[2])


def _round_trip(dist: Any, torch: Any, tensor: Any, peer: int, first: bool) -> float:
    began = time.monotonic()
    for step in (dist.send, dist.recv) if first else (dist.recv, dist.send):
        step(tensor, peer)
    if tensor.is_cuda:
        torch.cuda.synchronize()
    return time.monotonic() - began


def in_words(error: Exception) -> str:
    """The first line of an error that says something: torch and gloo put places in front."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next((line for line in lines if not line.startswith("[") or "]" in line), "")
    return f"{type(error).__name__}: {said.rpartition('] ')[2] or said}"[:300]
