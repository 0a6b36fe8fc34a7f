"""From what is stuck to what it goes back to: a rank that is awaited may itself wait in another communicator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .stuck import Kind, Stuck

_ENDS = frozenset({Kind.MISMATCH, Kind.WIRE, Kind.MISSING, Kind.STALE})


@dataclass(slots=True)
class Chain:
    """What a set of stuck calls goes back to: one of them, or a circle of several; `path` leads to it."""

    roots: tuple[Stuck, ...]
    path: tuple[Stuck, ...] = ()
    weight: int = 0  # ranks that wait for it
    beside: tuple[Stuck, ...] = ()  # calls of other groups to which other ranks have not come

    @property
    def circle(self) -> bool:
        return len(self.roots) > 1


class Follower:
    """The graph of stuck calls: an edge where an awaited rank waits in another one."""

    def __init__(self, stuck: list[Stuck]) -> None:
        self.stuck = stuck
        self._by_rank: dict[int, list[Stuck]] = {}
        for each in stuck:
            for rank in each.waiting:
                self._by_rank.setdefault(rank, []).append(each)

    def next(self, one: Stuck) -> Iterator[Stuck]:
        """The stuck calls that hold up `one`.

        A rank that has not come may stand in any call; one whose device has not started is held only by what it
        enqueued before.
        """
        if one.kind in _ENDS:
            yield from self._same_batch(one)
            return
        early = one.kind in (Kind.HELD, Kind.QUEUED)
        ranks = one.waiting if one.kind is Kind.QUEUED else one.awaited
        seen = set()
        for rank in ranks:
            for other in self._by_rank.get(rank, ()):
                if other is one or id(other) in seen or (early and not _before(other, one, rank)):
                    continue
                seen.add(id(other))
                yield other
        if one.kind is Kind.ABSENT:
            yield from (other for other in self.stuck if id(other) not in seen and _due_earlier(other, one))

    def _same_batch(self, one: Stuck) -> Iterator[Stuck]:
        """What holds up the batch of sends and receives that a pair which has met belongs to: they complete as one."""
        if one.kind is Kind.WIRE and one.peers:
            for rank in one.waiting:
                for other in self._by_rank.get(rank, ()):
                    if other.kind is not Kind.WIRE and other.batch.get(rank) == one.batch[rank]:
                        yield other

    def chains(self) -> list[Chain]:
        """All chains, the one that matters most first: a mismatch, else that for which most ranks wait."""
        found: dict[frozenset[int], Chain] = {}
        for start in self.stuck:
            chain = self._walk(start)
            key = frozenset(map(id, chain.roots))
            known = found.setdefault(key, chain)
            known.weight += len(start.waiting)
            if len(chain.path) > len(known.path):
                known.path = chain.path
        ordered = sorted(found.values(), key=_importance, reverse=True)
        absent = [chain.roots[0] for chain in ordered if _ranks_did_not_come(chain)]
        for chain in ordered:
            if any(chain.roots[0] is each for each in absent):
                chain.beside = tuple(each for each in absent if each is not chain.roots[0])
        return ordered

    def _walk(self, start: Stuck) -> Chain:
        """To the end along the first edges, which are those of the ranks that are awaited."""
        path = [start]
        while True:
            following = next(self.next(path[-1]), None)
            if following is None:
                return Chain((path[-1],), tuple(path))
            if following in path:
                circle = path[path.index(following) :]
                return Chain(tuple(circle), tuple(path))
            path.append(following)


def _ranks_did_not_come(chain: Chain) -> bool:
    """The chain ends at a few ranks that have not come to a call, and that wait nowhere themselves."""
    root = chain.roots[0]
    return not chain.circle and root.kind is Kind.ABSENT and len(root.awaited) <= len(root.waiting)


def _due_earlier(other: Stuck, one: Stuck) -> bool:
    """Whether a rank that is awaited in both should have come to `other` first, by the order of those that wait."""
    common = set(other.waiting) & set(one.waiting)
    if other is one or other.kind is not Kind.ABSENT or not common or not set(other.awaited) & set(one.awaited):
        return False
    return all(_before(other, one, rank) for rank in common)


def _before(other: Stuck, one: Stuck, rank: int) -> bool:
    if rank in one.batch and one.batch[rank] == other.batch.get(rank):
        return False  # calls of one batch are issued together
    return rank in other.order and rank in one.order and other.order[rank] < one.order[rank]


def _importance(chain: Chain) -> tuple[int, int]:
    root = chain.roots[0]
    first = {Kind.MISMATCH: 2, Kind.STALE: 0}.get(root.kind, 1)
    return first, chain.weight
