"""Messages between each two ranks of a group, where the hosts wait for their devices and no collective lacks a rank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.facts.messages.peer_totals import uneven
from hangwatch.judge import Case, diagnose
from hangwatch.model import Certainty, Collectives, Frame, GroupHead, PeerCount, RankEvidence, Status, Verdict
from tests.unit.facts.processes.test_standstill import BARRIER, ITEM, SPINS, barrier, host, job

ALL = (0, 1, 2, 3)
Counts = dict[tuple[int, int], tuple[int, int]]  # (sender, receiver): messages sent, receives enqueued
RING: Counts = {(rank, (rank + 1) % 4): (150, 150) for rank in ALL}
PIPELINE: Counts = {pair: (90, 90) for one in (0, 1, 2) for pair in ((one, one + 1), (one + 1, one))}


def head_of(rank: int, made: Counts, backend: str, any_rank: int = 0) -> GroupHead:
    peers = [
        PeerCount(peer, made.get((rank, peer), (0, 0))[0], made.get((peer, rank), (0, 0))[1])
        for peer in ALL
        if (rank, peer) in made or (peer, rank) in made
    ]
    return GroupHead(
        "0", ALL, backend=backend, issued=0, completed=-1, peers=tuple(peers),
        sent=sum(each.sent for each in peers), received=sum(each.received for each in peers) + any_rank,
    )  # fmt: skip


def hung(made: Counts, backend: str = "nccl", at_barrier: tuple[int, ...] = (0, 3), **odd: int) -> list[RankEvidence]:
    """All ranks wait for their devices, those `at_barrier` in a barrier that the others have not enqueued."""
    ranks = []
    for rank in ALL:
        waits = rank in at_barrier
        evidence = host(rank, barrier(1, 1.0), still_s=130.0, python=BARRIER if waits else ITEM)
        head = replace(head_of(rank, made, backend, **odd), issued=int(waits), completed=0 if waits else -1)
        recent = evidence.collectives.recent[-1:] if waits else ()
        ranks.append(replace(evidence, collectives=Collectives((head,), recent, source="flight-recorder")))
    return ranks


def verdict(made: Counts, **parts: Any) -> Verdict:
    return diagnose(job(*hung(made, **parts))).verdict


@pytest.mark.parametrize(
    ("counts", "odd", "lacking"),
    [
        ((149, 150), 0, "send"),
        ((150, 151), 1, "send"),
        ((150, 149), 1, "receive"),
        ((151, 150), 0, "receive"),
    ],
)
def test_the_one_rank_that_counts_otherwise_is_named(counts: tuple[int, int], odd: int, lacking: str) -> None:
    found = verdict({**RING, (0, 1): counts}, at_barrier=())
    assert (found.cause, found.certainty) == ("point-to-point-deadlock", Certainty.LIKELY)
    assert [each.rank for each in found.culprits] == [odd]
    assert (
        f"rank 0 has sent {counts[0]} messages to rank 1, which has enqueued {counts[1]} receives from it:"
        f" a {lacking} is lacking" in found.summary
    )
    own, other = (counts[odd], counts[1 - odd])
    assert f"other ranks of the group count {other} messages between them too, none of them {own}" in found.evidence


def test_where_the_odd_rank_waits_in_a_collective_its_place_is_told() -> None:
    found = verdict({**RING, (0, 1): (149, 150)})
    assert [each.rank for each in found.culprits] == [0]
    assert found.summary.startswith("Ranks 1-2 wait for their devices")
    assert "; rank 0 waits in barrier 1 of group 0" in found.summary


def test_both_directions_of_one_pair_are_no_witnesses_of_each_other() -> None:
    """Rank 0 has run a micro-batch more: it counts one more of what it sent, and of what it received."""
    found = verdict({**PIPELINE, (0, 1): (91, 90), (1, 0): (90, 91)}, at_barrier=())
    assert (found.cause, found.certainty) == ("point-to-point-deadlock", Certainty.LIKELY)
    assert [each.rank for each in found.culprits] == [0]


def test_each_end_of_an_exchange_may_count_like_others() -> None:
    """149 and 150 are both known from elsewhere: a pipeline whose ranks disagree about the number of rounds."""
    found = verdict({(0, 1): (150, 150), (1, 2): (150, 149), (2, 3): (149, 149)}, at_barrier=())
    assert (found.cause, found.certainty, found.culprits) == (
        "point-to-point-deadlock", Certainty.UNDETERMINED, (),
    )  # fmt: skip


def test_of_stages_that_wait_for_each_other_the_one_is_named_that_waits_for_no_message() -> None:
    """Rank 0 left out a send; rank 1 waits for it, and has not sent on what rank 2 waits for."""
    found = uneven(Case(job(*hung({**PIPELINE, (0, 1): (89, 90), (1, 2): (89, 90)}))))
    assert found is not None
    assert (found.exchange.sender, found.exchange.receiver, found.odd) == (0, 1, 0)


def test_a_sender_that_runs_ahead_is_no_answer_where_a_send_is_lacking() -> None:
    """Rank 3 collects what all others send, in turns; rank 2 has left, and rank 0 queued all that it has."""
    found = uneven(Case(job(*hung({(0, 3): (200, 70), (1, 3): (70, 70), (2, 3): (66, 70)}, at_barrier=(0, 1, 2)))))
    assert found is not None
    assert (found.exchange.sender, found.exchange.receiver, found.odd) == (2, 3, 2)
    assert found.exchange.lacks_a_send


def test_counts_that_fit_leave_the_wait_to_the_devices() -> None:
    assert verdict(RING).cause == "device-stall"


def test_messages_are_compared_between_devices_and_where_all_of_them_are_counted_by_peer() -> None:
    made: Counts = {**RING, (0, 1): (149, 150)}
    assert uneven(Case(job(*hung(made)))) is not None
    assert uneven(Case(job(*hung(made, backend="gloo")))) is None
    assert uneven(Case(job(*hung(made, any_rank=1)))) is None  # one came from any rank: perhaps from this one
    assert uneven(Case(job(*hung(made)[1:]))) is None  # rank 0 is not known


def test_a_host_that_computes_is_no_wait() -> None:
    ranks = hung({**RING, (0, 1): (149, 150)})
    stack = replace(ranks[1].stacks[0], frames=(Frame("/job/train.py", 5, "step"), *ITEM))
    assert SPINS not in stack.frames
    busy = replace(ranks[1], stacks=(stack,), earlier_stacks=())
    assert diagnose(job(ranks[0], busy, *ranks[2:])).verdict.cause != "point-to-point-deadlock"


def test_a_rank_that_still_works_may_send_later() -> None:
    ranks = hung({**RING, (0, 1): (149, 150)}, at_barrier=())
    assert ranks[2].process is not None
    writes = replace(ranks[2], process=replace(ranks[2].process, io_delta_bytes=10**9))
    assert diagnose(job(*ranks[:2], writes, ranks[3])).verdict.cause != "point-to-point-deadlock"


def test_a_message_that_is_lacking_holds_a_collective_that_all_have_enqueued() -> None:
    """The devices run their calls in order: the all_reduce behind the message never starts."""
    everyone = hung({**RING, (1, 2): (150, 149)}, at_barrier=ALL)
    found = diagnose(job(*everyone)).verdict
    assert (found.cause, [each.rank for each in found.culprits]) == ("point-to-point-deadlock", [2])


def test_ranks_that_stand_where_another_one_waits_for_its_device_are_not_said_to_work() -> None:
    """Native frames are asked of one rank of each stack; the others stand in the same lines, and spin as it does."""
    ranks = hung({**RING, (0, 1): (66, 67)}, at_barrier=())
    unasked = [replace(each, stacks=(replace(each.stacks[0], frames=ITEM),), earlier_stacks=()) for each in ranks[1:]]
    judgement = diagnose(job(ranks[0], *unasked))
    assert judgement.status is Status.HUNG
    assert "still work" not in judgement.verdict.summary


@pytest.mark.parametrize(("counts", "lacking"), [((151, 150), "receive"), ((150, 151), "send")])
def test_where_all_send_first_or_all_receive_first_none_is_to_blame_and_the_cause_is_told(
    counts: tuple[int, int], lacking: str
) -> None:
    found = verdict(dict.fromkeys(RING, counts), at_barrier=())
    assert (found.cause, found.certainty, found.culprits) == ("point-to-point-deadlock", Certainty.LIKELY, ())
    assert f"a {lacking} is lacking; so it is all around the circle of ranks 0-3" in found.summary


@pytest.mark.parametrize("odd", [1, 2])
def test_the_rank_in_all_unequal_exchanges_is_named(odd: int) -> None:
    """A stage in the middle that makes a micro-batch less counts fewer with both of its neighbours."""
    made = {
        (sender, receiver): (sent - (sender == odd), received - (receiver == odd))
        for (sender, receiver), (sent, received) in PIPELINE.items()
    }
    found = verdict(made, at_barrier=())
    assert (found.cause, found.certainty) == ("point-to-point-deadlock", Certainty.LIKELY)
    assert [each.rank for each in found.culprits] == [odd]
    assert found.fix.startswith("compute the number of messages from the same values on both sides")
