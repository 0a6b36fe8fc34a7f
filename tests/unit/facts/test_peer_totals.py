"""Sends and receives of a group in all, where the hosts wait for their devices and no collective is outstanding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.facts.peer_totals import unequal
from hangwatch.judge import Case, diagnose
from hangwatch.model import Certainty, Collectives, Frame, GroupHead, RankEvidence, Verdict
from tests.unit.facts.test_standstill import BARRIER, ITEM, SPINS, barrier, host, job

ALL = (0, 1, 2, 3)
EVEN = dict.fromkeys(ALL, (150, 150))


def rank_of(rank: int, counts: tuple[int, int], at_barrier: bool, backend: str = "nccl") -> RankEvidence:
    made = host(rank, barrier(1, 1.0), still_s=130.0, python=BARRIER if at_barrier else ITEM)
    issued = 1 if at_barrier else 0
    head = GroupHead("0", ALL, backend=backend, issued=issued, completed=0, sent=counts[0], received=counts[1])
    recent = made.collectives.recent[-1:] if at_barrier else ()
    return replace(made, collectives=Collectives((head,), recent, source="flight-recorder"))


def hung(counts: dict[int, tuple[int, int]], backend: str = "nccl") -> tuple[RankEvidence, ...]:
    """Ranks 1 and 2 wait for their devices, and the others in a barrier for them."""
    return tuple(rank_of(rank, counts[rank], rank in (0, 3), backend) for rank in counts)


def verdict(counts: dict[int, tuple[int, int]]) -> Verdict:
    return diagnose(job(*hung(counts))).verdict


@pytest.mark.parametrize(
    ("counts", "lacking", "said"),
    [
        ((149, 150), "send", "rank 0 made 149 sends and 150 receives"),
        ((150, 151), "send", "rank 0 made 150 sends and 151 receives"),
        ((150, 149), "receive", "rank 0 made 150 sends and 149 receives"),
    ],
)
def test_the_one_rank_that_counts_otherwise_is_named(counts: tuple[int, int], lacking: str, said: str) -> None:
    found = verdict({**EVEN, 0: counts})
    assert (found.cause, found.certainty) == ("point-to-point-deadlock", Certainty.LIKELY)
    assert [each.rank for each in found.culprits] == [0]
    assert f"so that a {lacking} is lacking; {said}, where each of the others made" in found.summary


def test_stages_of_a_pipeline_count_otherwise_by_their_place() -> None:
    found = verdict({0: (150, 150), 1: (299, 300), 2: (300, 300), 3: (150, 150)})
    assert (found.cause, found.certainty, found.culprits) == (
        "point-to-point-deadlock", Certainty.UNDETERMINED, (),
    )  # fmt: skip
    assert "899 sends and 900 receives so far." in found.summary  # perhaps in different rounds


def test_totals_that_fit_leave_the_wait_to_the_devices() -> None:
    assert verdict(EVEN).cause == "device-stall"


def test_totals_are_compared_where_all_members_are_known_and_use_a_device() -> None:
    counts = {**EVEN, 0: (149, 150)}
    assert unequal(Case(job(*hung(counts)))) is not None
    assert unequal(Case(job(*hung(counts)[:3]))) is None
    assert unequal(Case(job(*hung(counts, backend="gloo")))) is None


def test_a_host_that_computes_is_no_wait() -> None:
    ranks = hung({**EVEN, 0: (149, 150)})
    stack = replace(ranks[1].stacks[0], frames=(Frame("/job/train.py", 5, "step"), *ITEM))
    assert SPINS not in stack.frames
    busy = replace(ranks[1], stacks=(stack,), earlier_stacks=())
    assert diagnose(job(ranks[0], busy, *ranks[2:])).verdict.cause != "point-to-point-deadlock"


def test_ranks_that_stand_where_another_one_waits_for_its_device_are_not_said_to_work() -> None:
    """Native frames are asked of one rank of each stack; the others stand in the same lines, and spin as it does."""
    ranks = [
        replace(
            host(rank, still_s=130.0, native=rank == 0),
            collectives=Collectives(
                (GroupHead("0", (0, 1, 2), backend="nccl", issued=4, completed=4, sent=sent, received=66),), ()
            ),
        )
        for rank, sent in enumerate((66, 67, 66))
    ]
    found = diagnose(job(*ranks)).verdict
    assert "still work" not in found.summary


def waiting_at(counts: dict[int, tuple[int, int]], **parts: Any) -> Verdict:
    """No rank stands in a call: all wait for their devices, in one line."""
    ranks = [
        replace(
            host(rank, still_s=130.0, **parts),
            collectives=Collectives(
                (GroupHead("0", ALL, backend="nccl", issued=0, completed=-1, sent=made[0], received=made[1]),), ()
            ),
        )
        for rank, made in counts.items()
    ]
    return diagnose(job(*ranks)).verdict


def test_of_stages_that_all_stand_at_the_end_of_a_round_the_uneven_one_is_named() -> None:
    """The first and the last stage exchange half as much as those between them, and each gets back what it sends."""
    found = waiting_at({0: (90, 90), 1: (180, 180), 2: (179, 180), 3: (90, 90)})
    assert (found.cause, found.certainty) == ("point-to-point-deadlock", Certainty.LIKELY)
    assert [each.rank for each in found.culprits] == [2]
    assert (
        "rank 2 made 179 sends and 180 receives, where each of the others made as many sends as rece" in found.summary
    )


def test_of_stages_in_one_direction_each_is_uneven_by_its_place() -> None:
    assert not waiting_at({0: (90, 0), 1: (89, 90), 2: (90, 89), 3: (0, 90)}).culprits
