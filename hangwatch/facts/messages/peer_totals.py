"""How many messages each two ranks of a group have exchanged: each send has its receive.

NCCL's hosts queue such calls and run on, so that no stack shows which one is open. Where no host moves any more and two
ranks do not count alike, one of their calls has no counterpart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.call_site import Site, site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.case import Case
from hangwatch.model import Collective
from hangwatch.proof.messages import made_and_served, with_peer
from hangwatch.ranks.device_waits import on_device
from hangwatch.ranks.ledger import Group


@dataclass(frozen=True)
class Exchange:
    """The messages from `sender` to `receiver` in one group, as each of the two counts them, queued ones too."""

    group: Group
    sender: int
    receiver: int
    sent: int
    received: int

    @property
    def even(self) -> bool:
        return self.sent == self.received

    @property
    def lacks_a_send(self) -> bool:
        return self.received > self.sent


@dataclass(frozen=True)
class Uneven:
    """An exchange in which a call is lacking; `odd` is the rank of the two whose count is like none of the others'.

    `circle`: the ranks that each lack such a call of the next one, all around, beginning with one of the two.
    """

    exchange: Exchange
    odd: int | None = None
    circle: tuple[int, ...] = ()


def uneven(case: Case) -> Uneven | None:
    """Where a send or receive is lacking, in the first group of devices where one is; None where all fit.

    A send that is lacking goes before a receive: a sender may queue messages ahead of its receiver. Where the sender
    itself waits for a message that is lacking, it is that one: the others follow from it.
    """
    for group in case.ledger.groups.values():
        exchanges = list(_exchanges(case, group, {rank for rank in group.heads if on_device(group, rank)}))
        lacking = [each for each in exchanges if each.lacks_a_send]
        waiting = {each.receiver for each in lacking}
        first = [each for each in lacking if each.sender not in waiting] or lacking
        if found := first or [each for each in exchanges if not each.even]:
            odd = {_odd(each, exchanges) for each in found}
            return Uneven(found[0], odd.pop() if len(odd) == 1 else None, _around(found))
    return None


def _around(found: list[Exchange]) -> tuple[int, ...]:
    """The ranks of a circle in which each waits for a call of the next one; none where the first rank is in none."""
    awaits = dict((each.receiver, each.sender) if each.lacks_a_send else (each.sender, each.receiver) for each in found)
    path = [next(iter(awaits))]
    while (following := awaits.get(path[-1])) is not None and following not in path:
        path.append(following)
    return tuple(path) if following == path[0] else ()


def exchanged(case: Case, call: Collective, rank: int) -> tuple[int, int] | None:
    """How many calls of the kind of `call` `rank` made with its peer, and how many of the other kind that peer made.

    None where that is not known, or where one takes messages from any rank.
    """
    ends = (rank, call.peer)
    if any(each.peer is None for end in ends if end is not None for each in case.ledger.messages(end)):
        return None
    return made_and_served(case.ledger, rank, call)


def said_unserved(case: Case, call: Collective, rank: int, *, by_tag: bool = False) -> str:
    """`rank 1 made 2 receives with rank 3, which made 1 send with it`; "" where none of theirs is known to be lacking.

    `by_tag`: only those of one tag serve each other, and it is said.
    """
    counts = exchanged(case, call, rank)
    if counts is None or counts[0] == counts[1]:
        return ""
    mine, theirs = ("send", "receive") if "send" in call.op else ("receive", "send")
    tagged = f" of tag {call.tag or 0}" if by_tag else ""
    return (
        f"rank {rank} made {words.plural(counts[0], mine)}{tagged} with rank {call.peer}, which made"
        f" {words.plural(counts[1], theirs)}{tagged} with it"
    )


def exchanged_as_often(case: Case, rank: int, other: int) -> bool:
    """`rank` has exchanged as many messages with each of its partners, from where `other` stands in one."""
    place = sites_of(case).now(other) if other in case.blocked and case.blocked[other].to_a_peer else None
    mine, theirs = (_by_partner(case, each, place) for each in (rank, other))
    return bool(mine and theirs) and min(mine.values()) >= max(theirs.values())


def _by_partner(case: Case, rank: int, place: Site | None) -> Counter[int | None]:
    calls = case.ledger.to_peers(rank) or () if place is not None else ()
    return Counter(call.peer for call in calls if site(call) == place)


def alone_with_its_count(case: Case, ranks: Collection[int]) -> Uneven | None:
    """Which of `ranks`, that wait for each other's messages, counts as no other rank of its group does.

    A rank that sent a message less and one that took one more wait for each other alike. None where others tell
    neither, or one for each direction.
    """
    for group in case.ledger.groups.values():
        exchanges = list(_exchanges(case, group, group.heads.keys()))
        lacking = [each for each in exchanges if each.lacks_a_send and {each.sender, each.receiver} <= set(ranks)]
        told = [Uneven(each, odd) for each in lacking if (odd := _odd(each, exchanges)) is not None]
        if len({each.odd for each in told}) == 1:
            return told[0]
    return None


def _exchanges(case: Case, group: Group, members: Collection[int]) -> Iterator[Exchange]:
    """Those of each two of the members, if their boards count all of their messages by peer."""
    heads = {rank: head for rank, head in group.heads.items() if rank in members}
    pairs = {(min(rank, each.peer), max(rank, each.peer)) for rank, head in heads.items() for each in head.peers}
    for rank, other in sorted(pairs):
        mine = with_peer(case.ledger, rank, group.name, other)
        theirs = with_peer(case.ledger, other, group.name, rank)
        if mine is not None and theirs is not None:
            yield Exchange(group, rank, other, mine.sent, theirs.received)
            yield Exchange(group, other, rank, theirs.sent, mine.received)


def _odd(found: Exchange, exchanges: list[Exchange]) -> int | None:
    """The rank of the two whose count no exchange of other ranks shows, where some show that of the other rank.

    Its own exchanges speak for a rank only where its peer counts the same. A sender that waits for messages itself
    counts fewer for that reason alone.
    """
    both = {found.sender: found.sent, found.receiver: found.received}
    others = [each for each in exchanges if {each.sender, each.receiver} != set(both)]
    known = {rank: bool(count) and count in _counts(others, rank) for rank, count in both.items()}
    if known[found.sender] == known[found.receiver]:
        return None
    return found.receiver if known[found.sender] else found.sender


def _counts(exchanges: list[Exchange], rank: int) -> set[int]:
    """How many messages others exchanged, and `rank` with peers that agree."""
    trusted = [each for each in exchanges if each.even or rank not in (each.sender, each.receiver)]
    return {each.received for each in trusted} | {each.sent for each in trusted if not each.lacks_a_send}
