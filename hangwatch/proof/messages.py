"""How many messages two ranks have exchanged: each send has its receive."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.model import Collective, PeerCount
from hangwatch.ranks.device_waits import on_device
from hangwatch.ranks.ledger import Group, Ledger


def made_and_served(ledger: Ledger, rank: int, call: Collective) -> tuple[int, int] | None:
    """How many calls like `call` `rank` has made with its peer, and how many of that peer's can serve them.

    None where that is not known: records are lost, and what the boards count does not tell messages apart by their tag.
    """
    if call.peer is None:
        return None
    other = "recv" if "send" in call.op else "send"
    mine, theirs = ledger.to_peers(rank), ledger.to_peers(call.peer)
    if mine is None or theirs is None:
        return _counted(ledger, rank, call.peer, call)
    made = sum(serves(each, call.op, call.peer, call) for each in mine)
    return made, sum(serves(each, other, rank, call) for each in theirs)


def serves(one: Collective, op: str, peer: int, other: Collective) -> bool:
    """`one` is an `op` from or to `peer`, or from any rank, in the group and with the tag of `other`."""
    kind = "send" if "send" in op else "recv"
    same = one.group == other.group and (one.tag or 0) == (other.tag or 0)
    return kind in one.op and one.peer in (peer, None) and same


def with_peer(ledger: Ledger, rank: int, name: str, peer: int) -> PeerCount | None:
    """What the board of `rank` counts of its messages with `peer` in the group `name`.

    None where some are counted for no peer: they came from any rank, or the board holds no more peers. A message that
    the rank is in the call of is counted for its peer already.
    """
    group = ledger.group(rank, name)
    head = group.heads[rank] if group is not None else None
    if head is None or sum(each.sent + each.received for each in head.peers) < head.sent + head.received:
        return None
    return next((each for each in head.peers if each.peer == peer), PeerCount(peer))


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
    mine, theirs = with_peer(ledger, rank, call.group, peer), with_peer(ledger, peer, call.group, rank)
    if len(tags) > 1 or mine is None or theirs is None:
        return None
    return (mine.sent, theirs.received) if "send" in call.op else (mine.received, theirs.sent)


def _tags(ledger: Ledger, rank: int, peer: int) -> set[int]:
    return {call.tag or 0 for call in ledger.messages(rank) if call.peer == peer}
