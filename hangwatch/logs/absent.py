"""Ranks of which no line tells: of some the log of their host is here, and of others it may not have been given."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hangwatch import words

from .model import Communicator, Logs

# Interfaces that lead nowhere but to the containers and virtual machines of the own host.
_OF_THE_HOST = re.compile(r"(?:lo|docker\d*|virbr\d*|br-[0-9a-f]{12})(?::\d.*)?$")
_SHOWN = 4


def here(communicator: Communicator, absent: Iterable[int], logs: Logs) -> set[int]:
    """Those of whose host there is a log: a line of their own is in it, or their neighbours began there."""
    spoke = {*logs.ranks, *logs.last_words}
    per_host = _per_host(communicator)
    nodes = {rank // per_host for rank in communicator.begun} if per_host else set[int]()
    between = _between(communicator)
    return {rank for rank in absent if rank in spoke or rank in between or (per_host and rank // per_host in nodes)}


def _per_host(communicator: Communicator) -> int:
    """Ranks of each host: the fewest by which those that began lie in hosts of equal size; 0 where none fits."""
    size = communicator.size
    return next((count for count in range(1, size + 1) if size % count == 0 and _fits(communicator, count)), 0)


def _fits(communicator: Communicator, count: int) -> bool:
    nodes: dict[int, set[str]] = {}
    hosts: dict[str, set[int]] = {}
    for rank, host in communicator.begun.items():
        nodes.setdefault(rank // count, set()).add(host)
        hosts.setdefault(host, set()).add(rank // count)
    return all(len(each) == 1 for each in nodes.values()) and all(len(each) == 1 for each in hosts.values())


def _between(communicator: Communicator) -> set[int]:
    """Ranks that lie between two of one host."""
    spans: dict[str, list[int]] = {}
    for rank, host in communicator.begun.items():
        spans.setdefault(host, []).append(rank)
    return {rank for ranks in spans.values() for rank in range(min(ranks), max(ranks))} if len(spans) == 1 else set()


def unreachable(hosts: Iterable[str], logs: Logs) -> str:
    """`docker0 on node-a`: interfaces that NCCL uses on these hosts, and that no other host reaches; "" for none."""
    told = [
        f"{words.listed(own)} on {host}"
        for host in sorted({*hosts})
        if (own := sorted(name for name in logs.networks.get(host, ()) if _OF_THE_HOST.match(name)))
    ]
    return words.listed(told[:_SHOWN])
