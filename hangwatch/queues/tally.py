"""Sends and receives counted: between two collectives of a group, each send has its receive.

Where that held between earlier collectives and no longer does, one end of the pair left a call out, or added one. The
other pairs tell which end: it is the one whose count most of them do not share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from hangwatch import words
from hangwatch.model import Alternative, Certainty, Frame

from .finding import Finding, all_waits, alone_cause, victims
from .follow import Chain
from .matching import shape
from .model import Communicator, Lane, Queues
from .names import ranks
from .turns import OFTEN

_EARLIER = 4  # spans with messages that are looked at
_LAST_COMMON = 64  # collectives before the last common one: hosts may have enqueued some behind the messages that wait

Way = tuple[int, int]  # of messages: from a rank, to a rank
Counts = Mapping[Way, tuple[int, int]]  # how many were sent, and how many received


@dataclass(frozen=True, slots=True)
class _Uneven:
    """Messages of one way, as the sender and the receiver count them between two collectives."""

    way: Way
    sent: int
    received: int
    around: Communicator  # whose collectives they are
    between: tuple[int, int]  # numbers; 0 for the beginning
    usual: int  # of most other counts, or of this way between all earlier collectives
    habit: bool = False  # the latter
    behind: bool = False  # the end that counts fewer made the others behind the second collective


def miscounted(queues: Queues, chain: Chain) -> Finding | None:
    """The finding where a pair that waits no longer counts alike, and the other pairs show which end is odd."""
    waiting = [each for each in (*chain.roots, *chain.path) if each.peers]
    for group in {id(each.group): each.group for each in waiting}.values():
        ends = {rank for each in chain.path for rank in (*each.waiting, *each.awaited)}
        for uneven in _uneven(queues, group):
            if (set(uneven.way) <= ends or len(chain.path) == 1) and _same_end(queues, uneven):
                return _finding(queues, group, chain, replace(uneven, behind=_made_behind(queues, group, uneven)))
    return None


def _uneven(queues: Queues, group: Communicator) -> Iterator[_Uneven]:
    """From the collectives of this group, or of a larger one, such as the default group."""
    for around in sorted(queues.communicators, key=lambda each: each is not group):
        lanes = {rank: around.lanes.get(rank) for rank in group.peers}
        spans = _spans([lane for lane in lanes.values() if lane is not None])
        if len(spans) > 1 and None not in lanes.values():
            (now, span), *before = _with_messages(queues, group, around, spans) or [({}, spans[-1])]
            yield from _odd([counts for counts, _ in before], now, span, around)
            return


def _with_messages(
    queues: Queues, group: Communicator, around: Communicator, spans: Sequence[tuple[int, int]]
) -> list[tuple[Counts, tuple[int, int]]]:
    """The last spans between two collectives in which this group has sends or receives, the last one first."""
    counted = ((_counted(queues, group, around, span), span) for span in reversed(spans))
    return list(islice(((counts, span) for counts, span in counted if counts), _EARLIER))


def _same_end(queues: Queues, uneven: _Uneven) -> bool:
    """Whether both ends come from the same collective: else one of them has left the path on which it sends."""
    around, number = uneven.around, uneven.between[1]
    lanes = (around.lanes[rank] for rank in uneven.way)
    one, other = (queues.call(lane, lane.places(number).start) for lane in lanes)
    return shape(one) == shape(other) and one.where == other.where


def _made_behind(queues: Queues, group: Communicator, uneven: _Uneven) -> bool:
    """Whether the end that counts fewer made the rest behind that collective, with all of its messages of the round.

    Where it made others of that round before it, those behind may be of the next round.
    """
    rank = uneven.way[0 if uneven.sent < uneven.received else 1]
    until = {each: _order(uneven.around, each, uneven.between[1]) for each in uneven.way}
    since = _order(uneven.around, rank, uneven.between[0])
    if any(since < order < until[rank] for order in group.peers[rank].order):
        return False
    found: dict[Way, list[int]] = {}
    for each in uneven.way:
        lane = group.peers[each]
        for place in range(bisect_left(lane.order, until[each]), len(lane)):
            _count(found, queues, group, lane, place)
    sent, received = found.get(uneven.way, (0, 0))
    return uneven.sent + sent == uneven.received + received


def _order(around: Communicator, rank: int, number: int) -> int:
    """The place of a collective among all calls of a rank; that of number 0 lies before all of them."""
    lane = around.lanes[rank]
    return lane.order[lane.places(number).start] if number else -1


def _spans(lanes: Sequence[Lane]) -> list[tuple[int, int]]:
    """Between which numbers all these ranks have enqueued calls, the last of them last; 0 for the beginning."""
    if len(lanes) < 2:
        return []
    common = sorted(set.intersection(*(set(lane.numbers) for lane in lanes)))
    return list(pairwise([*(() if any(lane.lost for lane in lanes) else (0,)), *common[-_LAST_COMMON:]]))


def _odd(before: Sequence[Counts], now: Counts, span: tuple[int, int], around: Communicator) -> Iterator[_Uneven]:
    usual = _usual(now)
    for way, (sent, received) in now.items():
        used = [pairs[way] for pairs in before if way in pairs]
        if sent == received or not used or any(one != other for one, other in used):
            continue
        ever = used[0][0] if len(used) >= OFTEN and len(set(used)) == 1 else None
        if usual is not None and usual in (sent, received):
            yield _Uneven(way, sent, received, around, span, usual)
        elif ever is not None and ever in (sent, received):
            yield _Uneven(way, sent, received, around, span, ever, habit=True)


def _usual(counted: Counts) -> int | None:
    """The count that more than half of all ends share."""
    counts = Counter(count for pair in counted.values() for count in pair)
    usual, often = max(counts.items(), key=lambda item: item[1], default=(0, 0))
    return usual if 2 * often > counts.total() else None


def _counted(queues: Queues, group: Communicator, around: Communicator, between: tuple[int, int]) -> Counts:
    """For each way of messages how many were sent and how many received between two collectives."""
    found: dict[Way, list[int]] = {}
    for rank, lane in group.peers.items():
        since, until = (_order(around, rank, number) for number in between)
        for place in range(bisect_left(lane.order, since), bisect_left(lane.order, until)):
            _count(found, queues, group, lane, place)
    return {way: (pair[0], pair[1]) for way, pair in found.items()}


def _count(found: dict[Way, list[int]], queues: Queues, group: Communicator, lane: Lane, place: int) -> None:
    call = queues.call(lane, place)
    if call.source is None or call.target is None or max(call.source, call.target) >= len(group.members):
        return
    way = (group.members[call.source], group.members[call.target])
    found.setdefault(way, [0, 0])[call.op != "send"] += 1


def _finding(queues: Queues, group: Communicator, chain: Chain, uneven: _Uneven) -> Finding:
    source, target = uneven.way
    odd, kind, peer, count, other = (
        (source, "send", target, uneven.sent, uneven.received)
        if uneven.sent != uneven.usual
        else (target, "receive", source, uneven.received, uneven.sent)
    )
    counterpart = "receive" if kind == "send" else "send"
    back = "from" if kind == "send" else "to"
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"Rank {odd} {_changed(uneven, count < other, kind, peer)}: {_span(uneven)} it enqueued"
        f" {words.plural(count, kind)}, and rank {peer} {words.plural(other, counterpart)} {back} it.",
        culprits=((odd, _line(queues, group, odd, peer, kind)),),
        victims=victims(chain.path, (odd,)),
        evidence=(
            f"{ranks(uneven.way)} counted {uneven.usual} there each time before"
            if uneven.habit
            else f"most pairs of {group.title} count {uneven.usual} there",
            f"between the collectives before, {ranks(uneven.way)} counted alike",
        ),
        waits=all_waits(chain.path),
        alternatives=_or_once_more(uneven, odd) if uneven.behind and count < other else (),
        fix=_fix(uneven, (odd, kind), (peer, counterpart), fewer=count < other),
    )


def _or_once_more(uneven: _Uneven, odd: int) -> tuple[Alternative, ...]:
    said = f"rank {odd} may have made collective {uneven.between[1]} of {uneven.around.title} once more than the others"
    return (Alternative(alone_cause((odd,)), Certainty.UNDETERMINED, said),)


def _fix(uneven: _Uneven, odd: tuple[int, str], peer: tuple[int, str], *, fewer: bool) -> str:
    """What is there, and what it lacks: where the odd end made fewer, those of its peer lack some."""
    if uneven.behind:
        number, title = uneven.between[1], uneven.around.title
        return f"let rank {odd[0]} make its messages and collective {number} of {title} in the order of its peers"
    (rank, made), (other, lacks) = (peer, odd) if fewer else (odd, peer)
    return f"give each {made} of rank {rank} its {lacks} on rank {other}, in every step"


def _changed(uneven: _Uneven, fewer: bool, kind: str, peer: int) -> str:
    """What the odd end did with the messages by which the two differ."""
    difference = words.plural(abs(uneven.sent - uneven.received), kind)
    said = f"{difference} {'to' if kind == 'send' else 'from'} rank {peer}"
    if uneven.behind:
        where = "only behind" if fewer else "ahead of"
        return f"made {said} {where} collective {uneven.between[1]} of {uneven.around.title}"
    return f"{'left out' if fewer else 'added'} {said}"


def _span(uneven: _Uneven) -> str:
    first, last = uneven.between
    where = f"between collectives {first} and {last}" if first else f"before collective {last}"
    return f"{where} of {uneven.around.title}"


def _line(queues: Queues, group: Communicator, rank: int, peer: int, kind: str) -> Frame | None:
    """The line of the last such call of that rank."""
    lane = group.peers[rank]
    for place in reversed(range(len(lane))):
        call = queues.call(lane, place)
        other = call.target if call.op == "send" else call.source
        if (call.op == "send") == (kind == "send") and other is not None and group.members[other] == peer:
            return call.where
    return None
