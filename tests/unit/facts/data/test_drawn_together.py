"""Loaders that one loop draws from batch by batch: the shortest of them ends the loop for all."""

from __future__ import annotations

import pytest

from hangwatch.model import Frame, LoaderFacts, RankEvidence
from tests.unit.job import IN_BACKWARD, IN_BARRIER, SCRIPT, blamed, judge, rank, told

LOOP, ELSEWHERE = Frame(SCRIPT, 40, "main"), Frame(SCRIPT, 61, "validate")


def drew(number: int, real: int, synthetic: int, *, length: int, asked: bool, where: Frame = LOOP) -> RankEvidence:
    """A rank in its second epoch: what it drew in the first one; `asked`, the second loader said that it was empty."""
    loaders = (
        LoaderFacts(0, 30, 1, 4, where=LOOP, drawn_per_epoch=(real,), exhausted_per_epoch=(False,)),
        LoaderFacts(
            1,
            length,
            1,
            4,
            training=False,
            where=where,
            drawn_per_epoch=(synthetic,),
            exhausted_per_epoch=(asked,),
        ),
    )
    return rank(number, IN_BARRIER if number else IN_BACKWARD, loaders=loaders, issued=60, completed=59)


@pytest.mark.parametrize("more", [0, 1], ids=["together", "the longer one first"])
@pytest.mark.parametrize("asked", [True, False])
def test_the_shortest_loader_ends_the_loop_over_all(more: int, asked: bool) -> None:
    judgement = judge(
        drew(0, 25 + more, 25, length=25, asked=asked),
        drew(1, 21 + more, 21, length=21, asked=asked),
    )
    assert told(judgement) == ("uneven-steps", "likely", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert judgement.verdict.summary.startswith("Rank 1 ran out of data: it drew 21 of 25 batches in epoch 0")
    ended = "rank 1 drew 21 batches in epoch 0 and another loader, which the same loop draws from, was then exhausted"
    assert ended in judgement.verdict.evidence


def test_a_loop_that_was_left_with_data_in_all_its_loaders_was_left_early() -> None:
    judgement = judge(drew(0, 25, 25, length=25, asked=True), drew(1, 21, 21, length=25, asked=False))
    assert told(judgement)[0] == "early-exit"


def test_a_loader_of_another_line_ends_no_loop() -> None:
    """GIVEN a validation of as many batches as each rank has trained on THEN rank 1 still left its training early."""
    judgement = judge(
        drew(0, 25, 25, length=25, asked=True, where=ELSEWHERE),
        drew(1, 21, 21, length=21, asked=True, where=ELSEWHERE),
    )
    assert told(judgement)[0] == "early-exit"


def test_a_loader_of_the_same_line_with_other_counts_is_drawn_from_by_itself() -> None:
    """GIVEN a trainer whose one line runs training and validation THEN the counts of one rank tell them apart."""
    judgement = judge(drew(0, 25, 21, length=21, asked=True), drew(1, 21, 21, length=21, asked=True))
    assert told(judgement)[0] == "early-exit"
