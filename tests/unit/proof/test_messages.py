"""How many messages two ranks have exchanged: by their records, and by what their boards count where some are lost."""

from __future__ import annotations

import pytest

from hangwatch.model import Collective, Collectives, GroupHead, Identity, PeerCount, RankEvidence, Reading
from hangwatch.proof.messages import made_and_served, with_peer
from hangwatch.ranks.ledger import Ledger


def evidence(rank: int, peer: PeerCount, *recorded: Collective, any_rank: int = 0) -> RankEvidence:
    received = peer.received + any_rank
    head = GroupHead("0", (0, 1), backend="gloo", sent=peer.sent, received=received, peers=(peer,))
    reading = Reading(Identity(rank, 2, rank, "", rank, 0.0, "j"), 10.0, heads=(head,), calls=recorded)
    return RankEvidence(rank, pid=rank, reading=reading, collectives=Collectives((head,), recorded, source="board"))


def message(op: str, peer: int, seq: int, tag: int = 0) -> Collective:
    return Collective("0", seq, op, peer=peer, tag=tag, at=float(seq))


RECEIVES = message("recv", 1, 1000)
ASKS = evidence(0, PeerCount(1, sent=0, received=1000), RECEIVES)
SENT = evidence(1, PeerCount(0, sent=999, received=0), message("send", 0, 999))


def test_where_records_are_lost_the_boards_count() -> None:
    ledger = Ledger((ASKS, SENT))
    assert ledger.to_peers(0) is None
    assert made_and_served(ledger, 0, RECEIVES) == (1000, 999)
    assert made_and_served(ledger, 1, message("send", 0, 999)) == (999, 1000)


def test_where_all_are_on_record_tags_tell_them_apart() -> None:
    """GIVEN as many sends as receives, one of them with another tag THEN this receive is not served."""
    asks = evidence(0, PeerCount(1, received=1), message("recv", 1, 1))
    sent = evidence(1, PeerCount(0, sent=1), message("send", 0, 1, tag=7))
    assert made_and_served(Ledger((asks, sent)), 0, message("recv", 1, 1)) == (1, 0)


def test_counts_do_not_tell_messages_of_different_tags_apart() -> None:
    tagged = evidence(1, PeerCount(0, sent=999), message("send", 0, 999, tag=7))
    assert made_and_served(Ledger((ASKS, tagged)), 0, RECEIVES) is None


def test_a_message_from_any_rank_may_be_this_one() -> None:
    takes_any = evidence(0, PeerCount(1, received=1000), RECEIVES, any_rank=1)
    assert made_and_served(Ledger((takes_any, SENT)), 0, RECEIVES) is None
    assert with_peer(Ledger((takes_any, SENT)), 0, "0", 1) is None


@pytest.mark.parametrize("call", [Collective("0", 1, "recv"), message("recv", 5, 1)])
def test_of_an_unknown_peer_nothing_is_counted(call: Collective) -> None:
    assert made_and_served(Ledger((ASKS, SENT)), 0, call) is None


def test_who_has_exchanged_nothing_counts_nothing() -> None:
    idle = RankEvidence(1, pid=1, collectives=Collectives((GroupHead("0", (0, 1), backend="gloo"),)))
    assert with_peer(Ledger((ASKS, idle)), 1, "0", 0) == PeerCount(0)


def test_the_message_that_a_rank_is_in_the_call_of_is_counted_for_its_peer_alone() -> None:
    """With NCCL its host may be held there: by the set-up of a communicator with a peer that does not come."""
    peers = (PeerCount(1, sent=41), PeerCount(2, sent=1))
    head = GroupHead("0", (0, 1, 2), backend="nccl", sent=41, peers=peers)
    held = RankEvidence(0, pid=1, collectives=Collectives((head,), open_calls=(message("send", 2, 42),)))
    assert with_peer(Ledger((held,)), 0, "0", 1) == peers[0]
