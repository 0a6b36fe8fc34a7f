"""Messages of a pair, counted by each end in its own rounds: between collectives that the two do not share.

A stage of a pipeline reduces its gradients with its replicas, and not with its neighbours. A rank that went on to that
call with fewer messages than in its earlier rounds has left some out, and does not come to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hangwatch import words
from hangwatch.model import Alternative, Certainty

from .all_groups import IssuedCall
from .finding import Finding, all_waits, victims
from .follow import Chain
from .history import Histories
from .model import Communicator, Message, Queues
from .names import at, named, word
from .stuck import Kind, Stuck
from .turns import OFTEN

_OTHER_ENDS = 3  # ends of other pairs, at least, that count alike, where one earlier round makes no habit


@dataclass(frozen=True, slots=True)
class _Short:
    """The one round of a rank that had fewer messages of a kind than all others: `ends` is the call that ended it."""

    ends: IssuedCall
    made: int
    usual: int
    times: int


def fewer_than_ever(queues: Queues, chain: Chain, histories: Histories) -> Finding | None:
    """The finding on the awaited rank of a message that made fewer of them in one round, and went on."""
    for root in chain.roots:
        if root.kind is not Kind.PEER or len(root.awaited) != 1 or root.awaited[0] in root.order:
            continue
        (rank,), (peer,) = root.waiting, root.awaited
        wanted = root.calls[rank].counterpart
        short = _short(queues, histories, root.group, peer, wanted)
        if short is not None and _is_told(queues, root, short, wanted):
            return _finding(queues, chain, root, short, wanted)
    return None


def _short(queues: Queues, histories: Histories, group: Communicator, rank: int, wanted: Message) -> _Short | None:
    """None where the rounds between collectives of none of its groups tell one, of which the last is over."""
    orders = histories.all_groups
    calls, first = orders.without_gaps(rank), [] if orders.lost(rank) else [-1]
    own = (each for each in calls if each.pair and each.group is group)
    made = [each.order for each in own if orders.recorded(rank, each).message == wanted]
    groups = {id(each.group): each.group for each in calls if not each.pair and made and each.order > made[-1]}
    for around in groups.values():
        ends = [each for each in calls if not each.pair and each.group is around]
        bounds = [*first, *(each.order for each in ends)]
        counts = [sum(one < order < other for order in made) for one, other in pairwise(bounds)]
        if (short := _the_short_one(counts, ends[len(ends) - len(counts) :])) is not None:
            return short
    return None


def _the_short_one(counts: Sequence[int], ends: Sequence[IssuedCall]) -> _Short | None:
    if len(counts) < 2:
        return None
    *earlier, last = counts
    usual = set(earlier)
    if len(usual) != 1 or not 0 < last < earlier[0]:
        return None
    return _Short(ends[-1], last, earlier[0], len(earlier))


def _is_told(queues: Queues, root: Stuck, short: _Short, wanted: Message) -> bool:
    """Whether the ends of the pair differ by what is missing, and its habit tells it, or those of other pairs."""
    lanes = root.group.peers
    if any(lane.lost for lane in lanes.values()):
        return False
    counts = {(rank, way): many for rank in lanes for way, many in _counted(queues, root.group, rank).items()}
    (rank,), (peer,) = root.waiting, root.awaited
    made, met = counts[rank, root.calls[rank].message], counts[peer, wanted]
    others = Counter(many for (_, (_, *ends)), many in counts.items() if tuple(ends) != wanted[1:])
    alike = others[made] >= _OTHER_ENDS and others[made] == others.total()
    return made - met == short.usual - short.made and (short.times >= OFTEN or alike)


def or_one_too_many(queues: Queues, root: Stuck) -> tuple[Alternative, ...]:
    """A stage that waits for a message of one which has passed on all that it received may have made one too many."""
    (rank,), (peer,) = root.waiting, root.awaited
    lane = root.group.peers.get(peer)
    if lane is None or root.calls[rank].op != "recv" or any(each.lost for each in root.group.peers.values()):
        return ()
    counts = _counted(queues, root.group, peer)
    sent, received = ([many for (op, *_), many in counts.items() if op == kind] for kind in ("send", "recv"))
    if len(sent) != 1 or received != sent or lane.first_open() is not None:
        return ()
    said = f"rank {rank} may have made a receive too many: rank {peer} passed on all {sent[0]} that it received itself"
    return (Alternative("point-to-point-deadlock", Certainty.UNDETERMINED, said),)


def _counted(queues: Queues, group: Communicator, rank: int) -> Counter[Message]:
    lane = group.peers[rank]
    return Counter(call.message for call in queues.calls_in(lane) if call.source is not None)


def _finding(queues: Queues, chain: Chain, root: Stuck, short: _Short, wanted: Message) -> Finding:
    (rank,), (peer,) = root.waiting, root.awaited
    waits, lane = root.calls[rank], root.group.peers[peer]
    made = [call for call in queues.calls_in(lane) if call.message == wanted]
    what = f"{word(made[-1])} {'to' if wanted[0] == 'send' else 'from'} rank {rank}"
    behind = short.ends.group.lanes[peer]
    end = queues.call(behind, behind.places(short.ends.number).start)
    before = f"each of its {short.times} earlier rounds" if short.times > 1 else "its earlier round"
    lacking = words.plural(short.usual - short.made, word(made[-1]))
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"Rank {peer} left out {lacking} {'to' if wanted[0] == 'send' else 'from'} rank {rank}, and went on to"
        f" {named(end, short.ends.number, short.ends.group)}{at(end)}: it made {short.made} in that round, and"
        f" {short.usual} in {before}; rank {rank} waits in a {word(waits)}{at(waits)}.",
        culprits=((peer, made[-1].where),),
        victims=victims(chain.path, (peer,)),
        evidence=(f"rank {peer} made its last {what}{at(made[-1])}, and then came to that collective",),
        waits=all_waits(chain.path),
        fix=f"give each {word(waits)} of rank {rank} its {word(made[-1])} on rank {peer}: as many microbatches on every"
        " stage",
    )
