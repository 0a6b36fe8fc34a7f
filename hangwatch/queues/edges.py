"""The waits of a circle, one behind the other."""

from __future__ import annotations

from dataclasses import dataclass

from .finding import collective
from .follow import Chain, before
from .names import at, ranks, say
from .stuck import Stuck


@dataclass(frozen=True, slots=True)
class Edge:
    """One wait of a circle: which ranks wait in a call, and for which."""

    one: Stuck
    waiting: tuple[int, ...]
    awaited: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{say(self.waiting, 'waits', 'wait')} for {ranks(self.awaited)} in"
            f" {collective(self.one)}{at(self.one.call)}"
        )


def edges_of(chain: Chain) -> list[Edge]:
    """The waits around the circle. What all have enqueued waits for the ranks that enqueued the next one before it."""
    found = []
    for one, following in zip(chain.roots, (*chain.roots[1:], chain.roots[0]), strict=True):
        earlier = tuple(rank for rank in one.waiting if before(following, one, rank))
        awaited = one.awaited or earlier or following.waiting
        waiting = tuple(rank for rank in one.waiting if rank not in awaited) or one.waiting
        found.append(Edge(one, waiting, awaited))
    return found


def inside_of(edges: list[Edge]) -> list[int]:
    """Ranks that are awaited in one call of the circle and wait in another."""
    waiting = {rank for edge in edges for rank in edge.one.waiting}
    awaited = {rank for edge in edges for rank in edge.awaited}
    return sorted(waiting & awaited or waiting)


def last_in_circle(chain: Chain) -> dict[int, int]:
    """By rank the order of the last of its calls that are part of the circle."""
    found: dict[int, int] = {}
    for one in chain.roots:
        for rank, order in one.order.items():
            found[rank] = max(order, found.get(rank, order))
    return found
