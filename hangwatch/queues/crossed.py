"""Ranks that made calls of two groups in another order than the others, where both calls are on their record.

A rank that left a call out, or made a turn of a loop too many, is a call behind or ahead of the others. One that made
two calls in the other order is at their place: what its record tells behind the two shows which of these it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hangwatch import words
from hangwatch.model import Alternative, Certainty

from .circle_waits import Circle
from .finding import Finding, all_waits, collective, victims
from .follow import before
from .matching import shape
from .model import Communicator, Lane, Queues
from .names import at, named, ranks
from .readings import expected
from .stuck import Stuck

_CAUSE = "group-order-cycle"
_WAITS_SHOWN = 2  # of a circle as evidence: the calls themselves are in the summary


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two calls of the circle: `who` made `second`, in which it waits, before `first`, in which others wait for it."""

    first: Stuck
    second: Stuck
    who: int


def crossed(one: Circle, found: Finding) -> Finding:
    """The finding on the few ranks that made both calls in an order that most ranks do not have; else `found`.

    `found` also where it says as much of these ranks. A turn of a loop too many is uncertain where nothing behind it
    tells that it was not the next turn, made too early.
    """
    pairs = [] if one.messages else [(pair, _stray(one.queues, pair)) for pair in _pairs(one)]
    pairs = [(pair, stray) for pair, stray in pairs if pair.who in stray]
    at_one_place = all(_is_level(each) for each in one.chain.roots)
    for pair, stray in pairs:
        if at_one_place or all(_only_swapped(one, pair, rank) for rank in stray):
            over = _finding(one, pair, stray)
            same = found.cause == over.cause and _blamed(found) == _blamed(over)
            return found if same else over
    open_ = any(_only_swapped(one, pair, rank) is None for pair, stray in pairs for rank in stray)
    return _doubted(found) if open_ and found.cause == "uneven-steps" else found


def _blamed(found: Finding) -> set[int]:
    return {rank for rank, _ in found.culprits}


def _doubted(found: Finding) -> Finding:
    who = ranks(sorted(_blamed(found)))
    said = f"{who} may have made the next such call too early, and none too many"
    known = any(each.cause == _CAUSE for each in found.alternatives)
    more = () if known else (Alternative(_CAUSE, Certainty.UNDETERMINED, said),)
    return replace(found, certainty=Certainty.UNDETERMINED, alternatives=(*found.alternatives, *more))


def _pairs(one: Circle) -> Iterator[_Pair]:
    for edge, following in zip(one.edges, (*one.edges[1:], one.edges[0]), strict=True):
        for rank in edge.awaited:
            if before(following.one, edge.one, rank) and following.one.order[rank] == _open_since(one, rank):
                yield _Pair(edge.one, following.one, rank)


def _open_since(one: Circle, rank: int) -> int | None:
    """The place of the call in which a rank waits: those that it enqueued behind it hold up nothing yet."""
    return next((each.order for each in one.histories.all_groups.calls(rank) if not each.done), None)


def _is_level(one: Stuck) -> bool:
    """Whether all members have enqueued that call, and none a later one: then none of them lacks one, or made one more.

    Hosts wait at the same places of one program: a rank that left a call out would stand a call further in it.
    """
    lanes = [one.group.lanes.get(rank) for rank in one.group.members]
    return all(lane is not None and lane.known and lane.enqueued == one.number for lane in lanes)


def _stray(queues: Queues, pair: _Pair) -> list[int]:
    """The ranks that made the second call first, if they are few; ranks of other rows have such groups of their own."""
    known = {rank: first for rank in queues.ranks if (first := _made_first(queues, pair, rank)) is not None}
    found = sorted(rank for rank, first in known.items() if not first)
    return found if 2 * len(found) < len(known) else []


def _made_first(queues: Queues, pair: _Pair, rank: int) -> bool | None:
    """Whether a rank came to the first call before the second one; None where it came to neither, or lacks a group."""
    lanes = [_lane(queues, each.group, rank) for each in (pair.first, pair.second)]
    if None in lanes or lanes[0] is lanes[1]:
        return None
    orders = [_order(lane, each.number) for lane, each in zip(lanes, (pair.first, pair.second), strict=True)]
    first, second = orders
    if first is None or second is None:
        return None if first is second else first is not None
    return first < second


def _lane(queues: Queues, group: Communicator, rank: int) -> Lane | None:
    """The queue of a rank in that group, or in the one of its own row that is like it, where only one is."""
    if rank in group.members:
        return group.lanes.get(rank)
    size = (each for each in queues.communicators if len(each.members) == len(group.members))
    alike = [each for each in size if rank in each.lanes]
    named = [each for each in alike if each.description == group.description] or alike
    return named[0].lanes[rank] if len(named) == 1 else None


def _order(lane: Lane | None, number: int) -> int | None:
    """The place of that call among all calls of the rank."""
    places = lane.places(number) if lane is not None else range(0)
    return lane.order[places.start] if lane is not None and places else None


def _only_swapped(one: Circle, pair: _Pair, rank: int) -> bool | None:
    """Whether the calls of a rank go on from the second one as they went on from the first one in earlier rounds.

    And not as they would if it had left the first one out, and that on record were of the next round; or if it had made
    a turn too many, which is one call more where such calls come one behind the other. None where both fit, or no
    earlier round is known.
    """
    calls = one.histories.all_groups.without_gaps(rank)
    places = {each.order: place for place, each in enumerate(calls)}
    since, until = (places.get(each.order.get(rank, -1)) for each in (pair.second, pair.first))
    usual = _token(one, pair)
    if since is None or until is None or usual is None:
        return None
    tokens = [each.token for each in calls]
    known, made, behind = tokens[:since], tokens[since:until], tokens[until + 1 :]
    due = expected([*known, usual], len(made) + len(behind) + 1)
    if not due:
        return None
    left_out = _fits(one, tokens[since:], due)
    more = known[-len(made) :] == made and _fits(one, behind, due)
    return (None if left_out or more else True) if _fits(one, [*made, *behind], due) else False


def _token(one: Circle, pair: _Pair) -> int | None:
    """The first call as the others made it."""
    other = next((rank for rank in pair.first.waiting if rank != pair.who and rank in pair.first.calls), None)
    return one.histories.token_of(pair.first.calls[other]) if other is not None else None


def _fits(one: Circle, made: Sequence[int], due: Sequence[int]) -> bool:
    """Whether these are the calls that are due; the first may be called from another line, as on another branch."""
    if not made:
        return True
    (own, *rest), (usual, *later) = made, due[: len(made)]
    call_of = one.histories.call_of
    return rest == later and (own == usual or shape(call_of(own)) == shape(call_of(usual)))


def _finding(one: Circle, pair: _Pair, stray: list[int]) -> Finding:
    own, its = (each.calls.get(pair.who) for each in (pair.second, pair.first))
    if own is None or its is None:
        second, first = collective(pair.second), collective(pair.first)
    else:
        second = f"{named(own, pair.second.number, pair.second.group)}{at(own)}"
        first = f"{named(its, pair.first.number, pair.first.group)}{at(its)}"
    where = {rank: call.where for each in (pair.first, pair.second) for rank, call in each.calls.items()}
    others = [rank for rank in stray if rank != pair.who]
    in_rows = f", and {ranks(others)} alike in groups like these" if others else ""
    lack = words.verb(len(stray), "it lacks", "they lack")
    return Finding(
        _CAUSE,
        Certainty.LIKELY,
        f"Rank {pair.who} called {second} before {first}, which the others call first{in_rows}: so the ranks wait for"
        " each other, over several groups, and no call was left out.",
        culprits=tuple((rank, where.get(rank)) for rank in stray),
        victims=victims(one.chain.path, stray),
        evidence=(
            f"both calls are on the record of {ranks(stray)}, and {lack} none of the others' calls",
            *map(str, one.edges[:_WAITS_SHOWN]),
        ),
        waits=all_waits(one.chain.roots),
    )
