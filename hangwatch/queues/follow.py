"""From what is stuck to what it goes back to: a rank that is awaited may itself wait in another communicator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .model import Communicator
from .stuck import Kind, Stuck

Due = Callable[[int], tuple[Communicator, bool] | None]
"""The group of the call that a rank makes next by its habit, and whether that is a message; None without a habit."""

_ENDS = frozenset({Kind.MISMATCH, Kind.WIRE, Kind.HALF, Kind.MISSING, Kind.STALE})
_NOT_COME = frozenset({Kind.ABSENT, Kind.MISSING, Kind.PEER})
_DUE = frozenset({Kind.ABSENT, Kind.PEER})
_HABITS_ASKED = 4  # of the ranks that are missed, for what they do next


@dataclass(slots=True)
class Chain:
    """What a set of stuck calls goes back to: one of them, or a circle of several; `path` leads to it."""

    roots: tuple[Stuck, ...]
    path: tuple[Stuck, ...] = ()
    weight: int = 0  # ranks that wait for it
    beside: tuple[Stuck, ...] = ()  # calls of other groups to which other ranks have not come
    opened: tuple[Stuck, ...] = ()  # all calls that are open
    held: bool = False  # nothing in its root shows that the ranks did not come to it that left no record

    @property
    def circle(self) -> bool:
        return len(self.roots) > 1

    @property
    def involved(self) -> set[int]:
        """The ranks that wait in its roots, or are awaited there."""
        return {rank for root in self.roots for rank in (*root.waiting, *root.awaited)}

    @property
    def members(self) -> set[int]:
        """The ranks of the groups in which its roots are."""
        return {rank for root in self.roots for rank in root.group.members}


class Follower:
    """The graph of stuck calls: an edge where an awaited rank waits in another one. `ranks` left a record."""

    def __init__(self, stuck: list[Stuck], ranks: frozenset[int]) -> None:
        self.stuck = stuck
        self._ranks = ranks
        self._by_rank: dict[int, list[Stuck]] = {}
        for each in stuck:
            for rank in (*each.waiting, *each.kept):
                self._by_rank.setdefault(rank, []).append(each)

    def next(self, one: Stuck) -> Iterator[Stuck]:
        """The stuck calls that hold up `one`.

        A rank that has not come may stand in any call; one that has enqueued it is held only by what it enqueued
        before. What lacks a partner comes before what all have enqueued, which may only be on its way.
        """
        if one.kind in _ENDS:
            yield from self._same_batch(one) if one.kind is Kind.WIRE else ()
            yield from self._before_missing(one) if one.kind is Kind.MISSING else ()
            return
        ranks = one.waiting if one.kind is Kind.QUEUED else one.awaited
        found = {
            id(other): other
            for rank in ranks
            for other in self._by_rank.get(rank, ())
            if other is not one and not (_has_enqueued(one, rank) and not before(other, one, rank))
        }
        if one.kind is Kind.QUEUED:
            found.update((id(other), other) for other in self._same_batch(one))
        yield from sorted(found.values(), key=lambda other: other.kind is Kind.QUEUED)
        if one.kind is Kind.ABSENT:
            yield from (other for other in self.stuck if id(other) not in found and _due_earlier(other, one))
        if self._is_untold(one):
            yield from self._unknown_earlier(one)

    def _is_untold(self, one: Stuck) -> bool:
        """Whether it is a message whose other end left no record: then it is not known that it did not come."""
        return one.kind is Kind.PEER and self._ranks.isdisjoint(one.awaited)

    def _unknown_earlier(self, one: Stuck) -> Iterator[Stuck]:
        """What its rank enqueued before it, and of which as little is known: that comes first."""
        for other in self._by_rank.get(one.waiting[0], ()):
            if other.kind is Kind.MISSING and before(other, one, one.waiting[0]):
                yield other

    def _before_missing(self, one: Stuck) -> Iterator[Stuck]:
        """What stands before a call of which the records of some ranks do not tell.

        Or where these ranks wait for those that are in it: then it is no lost record that keeps them all.
        """
        yield from self._enqueued_earlier(one)
        elsewhere = (other for rank in one.awaited for other in self._by_rank.get(rank, ()) if other is not one)
        yield from (other for other in elsewhere if not set(other.awaited).isdisjoint(one.waiting))

    def _enqueued_earlier(self, one: Stuck) -> Iterator[Stuck]:
        """Calls that stand although all of their ranks came, before one for which a rank without a record may lack."""
        for other in self.stuck:
            common = set(other.waiting) & set(one.waiting)
            if other.all_came and common and all(before(other, one, rank) for rank in common):
                yield other

    def _same_batch(self, one: Stuck) -> Iterator[Stuck]:
        """What holds up the batches of sends and receives that a matched pair belongs to, over other such pairs.

        The calls of a batch complete as one, and so a batch waits for the batches of its partners.
        """
        pending, seen = [one] if one.peers else [], {id(one)}
        while pending:
            pair = pending.pop(0)
            for other in self._batch_mates(pair):
                if id(other) in seen:
                    continue
                seen.add(id(other))
                if other.kind in (Kind.WIRE, Kind.QUEUED):
                    pending.append(other)
                else:
                    yield other

    def _batch_mates(self, one: Stuck) -> Iterator[Stuck]:
        for rank in one.waiting:
            for other in self._by_rank.get(rank, ()):
                if rank in one.batch and other.group is one.group and other.batch.get(rank) == one.batch[rank]:
                    yield other

    def chains(self, due: Due = lambda _: None) -> list[Chain]:
        """All chains, the one that matters most first: a mismatch, else that for which most ranks wait."""
        found: dict[frozenset[int], Chain] = {}
        for start in self.stuck:
            chain = self._walk(start)
            key = frozenset(map(id, chain.roots))
            known = found.setdefault(key, chain)
            known.weight += len(start.waiting)
            if len(chain.path) > len(known.path):
                known.path = chain.path
        ordered = _due_first(sorted(found.values(), key=self._importance, reverse=True), due)
        awaiting = [chain.roots[0] for chain in ordered if _ranks_did_not_come(chain)]
        explained = [each for each in self.stuck if each.waiting and self._behind(each) == list(each.waiting)]
        held = {rank for each in explained for rank in each.awaited}
        first = [each for each in awaiting if not (self._is_open_anyway(each, held) or self._wait_elsewhere(each))]
        told = set(map(id, awaiting))
        for chain in ordered:
            root, chain.opened = chain.roots[0], tuple(self.stuck)
            chain.held = self._is_open_anyway(root, held)
            if id(root) in told:
                chain.beside = tuple(each for each in first if each is not root and each.kind is root.kind)
        return ordered

    def _importance(self, chain: Chain) -> tuple[int, bool, int]:
        """What the records show comes before what they lack, and then that for which most ranks wait."""
        root = chain.roots[0]
        untold = root.kind is Kind.MISSING or self._is_untold(root)
        unknown = untold or (root.kind is Kind.QUEUED and not root.all_came)
        first = {Kind.MISMATCH: 3, Kind.STALE: 0}.get(root.kind, 1 if unknown else 2)
        return first, not (root.kind is Kind.MISSING and self._wait_elsewhere(root)), chain.weight

    def _wait_elsewhere(self, one: Stuck) -> bool:
        """The ranks that are awaited wait in other calls, with whose ends they may come."""
        return all(any(rank in other.waiting for other in self._by_rank.get(rank, ())) for rank in one.awaited)

    def _behind(self, one: Stuck) -> list[int]:
        """The ranks that wait in a call, of which some records do not tell, behind another open one."""
        if one.kind is not Kind.MISSING:
            return []
        return [rank for rank in one.waiting if any(before(other, one, rank) for other in self._by_rank[rank])]

    def _is_open_anyway(self, one: Stuck, held: set[int]) -> bool:
        """Whether nothing in that call shows that the ranks without a record did not come to it.

        It is open however they came to it; or they are `held`: in another call all those that wait for them stand
        behind others, and they may stand there too.
        """
        return bool(self._behind(one)) or (one.kind is Kind.MISSING and held.issuperset(one.awaited))

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


def _due_first(ordered: list[Chain], due: Due) -> list[Chain]:
    """Of several calls in which the same rank is missed, the one ahead that it makes next by its habit.

    Where no habit tells, a collective comes before a message: a peer may enqueue a message long before its turn, while
    a rank that waits in a collective makes the calls that the missed rank makes.
    """
    root = ordered[0].roots[0] if ordered else None
    if root is None or root.kind not in _DUE:
        return ordered
    rivals = [chain.roots[0] for chain in ordered if chain.roots[0].kind in _DUE]
    rivals = [each for each in rivals if not set(each.awaited).isdisjoint(root.awaited)]
    asked = root.awaited[:_HABITS_ASKED] if len(rivals) > 1 else ()
    next_calls = {(id(found[0]), found[1]) for rank in asked if (found := due(rank)) is not None}
    first = {id(each) for each in rivals if (id(each.group), bool(each.peers)) in next_calls}
    if not first and root.kind is Kind.PEER:
        first = {id(each) for each in rivals if each.kind is Kind.ABSENT and each.awaited == root.awaited}
    return sorted(ordered, key=lambda chain: id(chain.roots[0]) not in first)


def _ranks_did_not_come(chain: Chain) -> bool:
    """The chain ends at a few ranks that have not come to a call, as far as is known, and that wait nowhere."""
    root = chain.roots[0]
    return not chain.circle and root.kind in _NOT_COME and len(root.awaited) <= len(root.waiting)


def _due_earlier(other: Stuck, one: Stuck) -> bool:
    """Whether a rank that is awaited in both should have come to `other` first, by the order of those that wait."""
    common = set(other.waiting) & set(one.waiting)
    if other is one or other.kind is not Kind.ABSENT or not common or not set(other.awaited) & set(one.awaited):
        return False
    return all(before(other, one, rank) for rank in common)


def _has_enqueued(one: Stuck, rank: int) -> bool:
    """Whether an awaited rank has enqueued its part, and is held by something before it."""
    return one.kind in (Kind.HELD, Kind.QUEUED) or (one.kind is Kind.PEER and rank in one.order)


def before(other: Stuck, one: Stuck, rank: int) -> bool:
    """Whether `rank` issued `other` before `one`, and not in one batch with it."""
    if rank in one.batch and one.batch[rank] == other.batch.get(rank):
        return False  # calls of one batch are issued together
    return rank in other.order and rank in one.order and other.order[rank] < one.order[rank]
