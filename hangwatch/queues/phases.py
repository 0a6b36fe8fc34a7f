"""Microbatches counted where no collective divides them: the runs of sends, and of receives, of a pipeline's phases.

A stage receives or sends all microbatches of a phase to one peer in a row, where it sends all forward before it takes
gradients back. A run that is over, since the stage went on to the other direction, tells how many microbatches it made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from hangwatch.model import Certainty, Frame

from .finding import Finding, all_waits, victims
from .follow import Chain
from .model import Communicator, Lane, Queues
from .names import ranks, say

_ENDS = 2  # of messages at which one rank counts otherwise, at least
_WHOLE_PHASE = 2  # calls of a run; in a schedule that alternates, runs tell nothing

End = tuple[int, int, bool]  # a rank, its peer, and whether it sends


def uneven_phases(queues: Queues, chain: Chain) -> Finding | None:
    """The one rank of the circle whose last runs are all shorter, or longer, than those of all other ends."""
    inside = chain.involved
    for group in {id(each.group): each.group for each in chain.roots if each.peers}.values():
        counts = {
            (rank, peer, send): run
            for rank, lane in group.peers.items()
            for (peer, send), run in _last_runs(queues, group, lane)
        }
        both = {end: run for end, run in counts.items() if _other(end) in counts}
        usual, often = Counter(both.values()).most_common(1)[0] if both else (0, 0)
        odd = [end for end, run in both.items() if run != usual]
        who = {rank for rank, _, _ in odd}
        elsewhere = [end for end in both if not who & {end[0], end[1]}]
        one_count = len(odd) >= _ENDS and len({both[end] for end in odd}) == 1
        most = usual >= _WHOLE_PHASE and 2 * often > len(both) and bool(elsewhere)
        if one_count and most and len(who) == 1 and who <= inside:
            return _finding(chain, group, odd, both[odd[0]], usual, _line(queues, group, who))
    return None


def _other(end: End) -> End:
    rank, peer, send = end
    return peer, rank, not send


def _last_runs(queues: Queues, group: Communicator, lane: Lane) -> Iterator[tuple[tuple[int, bool], int]]:
    """The last run with each peer in each direction that is whole: it begins in the record, and another follows it."""
    by_peer: dict[int, list[bool]] = {}
    for place in range(len(lane)):
        call = queues.call(lane, place)
        other = call.target if call.op == "send" else call.source
        if other is not None and other < len(group.members):
            by_peer.setdefault(group.members[other], []).append(call.op == "send")
    for peer, calls in by_peer.items():
        runs = [(send, len(list(each))) for send, each in groupby(calls)]
        whole = runs[1 if lane.lost else 0 : -1]
        yield from (((peer, send), count) for send, count in dict(whole).items())


def _finding(chain: Chain, group: Communicator, odd: list[End], count: int, usual: int, where: Frame | None) -> Finding:
    (rank,) = {each for each, _, _ in odd}
    peers = sorted({peer for _, peer, _ in odd})
    made = "fewer" if count < usual else "more"
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"Rank {rank} made {count} microbatches in its last phase where its peers and the other stages made {usual}:"
        f" {made} sends and receives than {say(peers, 'has', 'have')} for it.",
        culprits=((rank, where),),
        victims=victims(chain.path, (rank,)),
        evidence=(f"calls in a row with {ranks(peers)}: {count} on rank {rank}, {usual} at all other ends",),
        waits=all_waits(chain.roots),
        fix="run the same number of microbatches on every stage, and decide on it together",
    )


def _line(queues: Queues, group: Communicator, who: set[int]) -> Frame | None:
    """The line of the call in which the rank waits."""
    (rank,) = who
    lane = group.peers[rank]
    place = lane.first_open()
    return queues.call(lane, place).where if place is not None else None
