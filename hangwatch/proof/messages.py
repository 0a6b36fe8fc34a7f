"""How many messages two ranks have exchanged: each send has its receive."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hangwatch.model import Collective, GroupHead, PeerCount
from hangwatch.ranks.device_waits import on_device
from hangwatch.ranks.ledger import Group, Ledger
from hangwatch.stacks.frames import name_of

_WITHOUT_WAITING = ("irecv", "batch_isend_irecv")
_C10D, _LOGGER = "/torch/distributed/distributed_c10d.py", "/torch/distributed/c10d_logger.py"


def made_and_served(ledger: Ledger, rank: int, call: Collective) -> tuple[int, int] | None:
    """How many calls like `call` `rank` has made with its peer, and how many of that peer's can serve them.

    None where that is not known: records are lost, and what the boards count does not tell messages apart by their tag.
    """
    if call.peer is None:
        return None
    other = counterpart(call.op)
    mine, theirs = ledger.to_peers(rank), ledger.to_peers(call.peer)
    if mine is None or theirs is None:
        return _counted(ledger, rank, call.peer, call)
    made = sum(serves(each, call.op, call.peer, call) for each in mine)
    return made, sum(serves(each, other, rank, call) for each in theirs)


def counterpart(op: str) -> str:
    """What serves a send is a receive, and the other way round: "recv" or "send"."""
    return "recv" if "send" in op else "send"


def serves(one: Collective, op: str, peer: int, other: Collective) -> bool:
    """`one` is an `op` from or to `peer`, or from any rank, in the group and with the tag of `other`."""
    kind = "send" if "send" in op else "recv"
    same = one.group == other.group and (one.tag or 0) == (other.tag or 0)
    return kind in one.op and one.peer in (peer, None) and same


def with_peer(ledger: Ledger, rank: int, name: str, peer: int) -> PeerCount | None:
    """What the board of `rank` counts of its messages with `peer` in the group `name`; None where some lack a peer."""
    sent, received = sent_to(ledger, rank, name, peer), received_from(ledger, rank, name, peer)
    return PeerCount(peer, sent, received) if sent is not None and received is not None else None


def sent_to(ledger: Ledger, rank: int, name: str, peer: int) -> int | None:
    """How many messages `rank` has sent to `peer`, also the one that it is in the call of.

    None where the board cannot count them all by peer: it holds no more peers.
    """
    return _by_peer(ledger, rank, name, peer, lambda counts: counts.sent)


def received_from(ledger: Ledger, rank: int, name: str, peer: int) -> int | None:
    """How many `rank` has asked `peer` for; None also where it asked any rank for some."""
    return _by_peer(ledger, rank, name, peer, lambda counts: counts.received)


def _by_peer(ledger: Ledger, rank: int, name: str, peer: int, of: Callable[[GroupHead | PeerCount], int]) -> int | None:
    group = ledger.group(rank, name)
    head = group.heads[rank] if group is not None else None
    if head is None or sum(map(of, head.peers)) < of(head):
        return None
    return next((of(each) for each in head.peers if each.peer == peer), 0)


def none_is_left(ledger: Ledger, rank: int, group: Group) -> bool:
    """All messages that the other members have sent to `rank` were taken by the receives before the one that it is in.

    Each of those is over, as every receive of the rank is one that it waits for in the call.
    """
    calls = ledger.to_peers(rank)
    if calls is None or any(_returns_at_once(call) for call in calls if "recv" in call.op):
        return False
    sent = [sent_to(ledger, other, group.name, rank) for other in group.members if other != rank]
    return None not in sent and sum(filter(None, sent)) < group.heads[rank].received


def _returns_at_once(call: Collective) -> bool:
    """No call of `recv` is seen in its frames, which waits for what it asks `irecv` for."""
    names = {name_of(frame.function) for frame in call.frames if frame.file.endswith(_C10D)}
    wrapped = any(frame.file.endswith(_LOGGER) for frame in call.frames)  # torch decorates recv, and irecv not
    return not ("recv" in names or (wrapped and names.isdisjoint(_WITHOUT_WAITING)))


def unserved(ledger: Ledger, rank: int) -> Collective | None:
    """The last call of `rank` of a kind of which it has queued more with a peer on a device than that peer serves.

    A receive goes before a send: its data has not come, while that of a send may have been taken into a buffer.
    """
    groups = [group for group in ledger.groups_of(rank) if on_device(group, rank)]
    found = [call for group in groups for call in _unserved_in(ledger, rank, group)]
    return next((call for call in found if "recv" in call.op), found[0] if found else None)


def _unserved_in(ledger: Ledger, rank: int, group: Group) -> Iterator[Collective]:
    for peer in group.heads[rank].peers:
        mine, theirs = with_peer(ledger, rank, group.name, peer.peer), with_peer(ledger, peer.peer, group.name, rank)
        if mine is None or theirs is None:
            continue
        for kind, more in (("recv", mine.received > theirs.sent), ("send", mine.sent > theirs.received)):
            calls = (
                call
                for call in reversed(ledger.messages(rank))
                if kind in call.op and (call.group, call.peer) == (group.name, peer.peer)
            )
            last = next(calls, None) if more else None
            if last is not None:
                yield last


def _counted(ledger: Ledger, rank: int, peer: int, call: Collective) -> tuple[int, int] | None:
    tags = {call.tag or 0} | _tags(ledger, rank, peer) | _tags(ledger, peer, rank)
    mine, theirs = (sent_to, received_from) if "send" in call.op else (received_from, sent_to)
    made, served = mine(ledger, rank, call.group, peer), theirs(ledger, peer, call.group, rank)
    return (made, served) if made is not None and served is not None and len(tags) <= 1 else None


def _tags(ledger: Ledger, rank: int, peer: int) -> set[int]:
    return {call.tag or 0 for call in ledger.messages(rank) if call.peer == peer}
