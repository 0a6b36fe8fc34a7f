"""Calls that two threads of one rank made in one group: nothing fixes their order, so that it may differ by rank.

A call of a background thread that falls between others looks like one that its rank alone made, or like one that the
rank left out elsewhere. Where the orders of the main threads agree without the calls of the other threads, it is they
that parted the ranks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hangwatch.model import Alternative, Certainty, Frame

from .finding import Finding, victims, wait_edges
from .follow import Chain
from .history import Histories
from .lone import few_make_it, new_call
from .model import Call, Communicator, Lane, Queues
from .names import at, named, ranks
from .stuck import Kind, Stuck

_CAUSE = "concurrent-collectives"
_TOLD = 3  # calls of threads that a finding tells of


@dataclass(frozen=True, slots=True)
class _Call:
    """The first call that another thread of `rank` made there, and the main thread's call beside it."""

    rank: int
    said: str
    where: Frame | None
    beside: str


def concurrent(queues: Queues, chain: Chain, histories: Histories) -> Finding | None:
    """The finding where calls of two threads in one group are what parts the ranks of a chain's end."""
    for root in chain.roots if queues.threads else ():
        since = _parted_by_threads(root, histories)
        if since is None:
            continue
        calls = list(_calls(queues, root.group, since))
        if calls:
            return _finding(root, chain, calls)
    return None


def doubted(queues: Queues, chain: Chain, found: Finding) -> Finding:
    """The finding, no longer proven where two threads of a rank made calls of that group from the place on.

    Which of them left the order is not known then: a call of the main thread may be missing as well.
    """
    one = found.departure
    group, number = (one.group, one.number) if one is not None else (chain.roots[0].group, chain.roots[0].number)
    if found.certainty is Certainty.UNDETERMINED or not (calls := list(_calls(queues, group, number))):
        return found
    who = ranks(sorted({each.rank for each in calls}))
    said = f"two threads of {who} make calls of {group.title}, and nothing fixes their order: {calls[0].said}"
    return replace(
        found,
        certainty=Certainty.LIKELY,
        alternatives=(*found.alternatives, Alternative(_CAUSE, Certainty.UNDETERMINED, said)),
    )


def _parted_by_threads(root: Stuck, histories: Histories) -> int | None:
    """The number from which the calls of other threads part the ranks; None where they do not, or nothing parts."""
    group = root.group
    if root.peers or not any(map(_is_shared, group.lanes.values())):
        return None
    departure = histories.departure(group)
    if departure is not None:
        return departure.number if _agree_without(group, histories, departure.number) else None
    alone = root.kind is Kind.ABSENT and all(_is_of_another(group.lanes[rank], root.number) for rank in root.waiting)
    return root.number if alone and new_call(root, histories) and few_make_it(root, histories) else None


def _agree_without(group: Communicator, histories: Histories, since: int) -> bool:
    """Whether the ranks' calls agree without those that other threads made from that number on."""
    lanes = [lane for lane in group.lanes.values() if len(lane)]
    first = max(lane.numbers[0] for lane in lanes)
    rows = [_row(histories, lane, first, since) for lane in lanes]
    longest = max(rows, key=len)
    return all(histories.first_difference(row, longest)[1] is None for row in rows)


def _row(histories: Histories, lane: Lane, first: int, since: int) -> array[int]:
    start = lane.places(first).start
    tokens = histories.tokens(lane, start)
    kept = (at for at in range(start, len(lane)) if lane.numbers[at] < since or not _thread(lane, at))
    return array("l", (tokens[at - start] for at in kept))


def _thread(lane: Lane, place: int) -> int:
    return lane.threads[place] if lane.threads else 0


def _is_shared(lane: Lane) -> bool:
    return bool(lane.threads) and len(set(lane.threads)) > 1


def _is_of_another(lane: Lane, number: int) -> bool:
    """Whether another thread made that call in a group in which the main thread makes calls, too."""
    places = lane.places(number)
    return _is_shared(lane) and bool(places) and bool(_thread(lane, places[0]))


def _calls(queues: Queues, group: Communicator, since: int) -> Iterator[_Call]:
    """The first call of another thread, from that number on, of each rank whose main thread calls there as well."""
    for rank, lane in sorted(group.lanes.items()):
        places = range(lane.places(since).start, len(lane)) if _is_shared(lane) else range(0)
        place = next((at for at in places if _thread(lane, at)), None)
        if place is None:
            continue
        call, own = queues.call(lane, place), _beside(queues, lane, place)
        main, thread = queues.threads[rank][0], queues.threads[rank][_thread(lane, place)]
        other = f"thread {thread!r}" if thread not in ("", main) else "another thread"
        said = f"rank {rank} made {named(call, lane.numbers[place], group)}{at(call)} from {other}"
        yield _Call(rank, said, call.where, f"{own.op}{at(own)} from {f'thread {main!r}' if main else 'its main one'}")


def _beside(queues: Queues, lane: Lane, place: int) -> Call:
    """The call of the main thread that is nearest to another thread's."""
    own = (at for at in range(len(lane)) if not _thread(lane, at))
    return queues.call(lane, min(own, key=lambda at: (abs(at - place), at)))


def _finding(root: Stuck, chain: Chain, calls: list[_Call]) -> Finding:
    who = tuple(each.rank for each in calls)
    first = calls[0]
    return Finding(
        _CAUSE,
        Certainty.LIKELY,
        f"Two threads of {ranks(who)} make calls of {root.group.title}, so that"
        f" nothing fixes their order: {first.said}, beside {first.beside}. The calls of the ranks' main threads agree.",
        culprits=tuple((each.rank, each.where) for each in calls),
        victims=victims(chain.path, who),
        evidence=tuple(f"{each.said}, beside {each.beside}" for each in calls[:_TOLD]),
        waits=wait_edges(root, _others(root, who)),
        alternatives=(
            Alternative("rank-local-decision", Certainty.UNDETERMINED, f"only {ranks(who)} may make that call at all"),
        )
        if len(who) < len(root.group.lanes)
        else (),
        passing=root.kind is Kind.ABSENT,
    )


def _others(root: Stuck, who: Iterable[int]) -> tuple[int, ...]:
    """For whom the ranks wait: for those whose threads mixed the calls, unless it is they that wait for the others."""
    blamed = set(who)
    return tuple(root.awaited) if root.awaited and blamed.isdisjoint(root.awaited) else tuple(sorted(blamed))
