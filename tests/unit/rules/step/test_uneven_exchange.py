"""`collective-mismatch`: an all_to_all that ended a rank, to which the ranks brought different numbers of elements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import ExceptionFacts, Judgement, RankEvidence
from tests.unit.job import NOW, blamed, judge, told
from tests.unit.rules.step.aborts import CLOSED, SIZES, USUAL, calls, dead

EXCHANGES = 6


def exchanging(
    number: int, last: int, *, op: str = "all_to_all", uneven: bool = False, said: str = SIZES
) -> RankEvidence:
    """It brought 8 elements each time (another number in `uneven` ones), and `last` to the call in which it ended."""
    usual = 8 + number * uneven
    ring = tuple(
        replace(call, op=op, seq=1 + index, sizes=((last if index == EXCHANGES else usual,),))
        for index, call in enumerate(calls(EXCHANGES, USUAL))
    )
    if number == 0:
        return dead(number, ring, code=-6, last_output=said)
    found = dead(number, ring, code=1)
    assert found.reading is not None
    lost = ExceptionFacts("RuntimeError", CLOSED, USUAL, at=NOW - 12)
    return replace(found, reading=replace(found.reading, exception=lost))


def judged(*last: int, op: str = "all_to_all", uneven: bool = False) -> Judgement:
    ranks = (exchanging(number, count, op=op, uneven=uneven) for number, count in enumerate(last))
    return judge(*ranks, world_size=len(last))


def test_an_exchange_of_other_numbers_than_ever_is_told_and_no_rank_is_blamed() -> None:
    judgement = judged(8, 12)
    assert told(judgement) == ("collective-mismatch", "likely", "failed")
    assert blamed(judgement) == []
    assert "rank 0 8 elements and rank 1 12 elements" in judgement.verdict.summary


@pytest.mark.parametrize(
    ("last", "uneven"), [((8, 8), False), ((8, 12), True)], ids=["equally much", "with split sizes, as it seems"]
)
def test_where_they_bring_what_they_did_before_their_split_sizes_disagree(last: tuple[int, int], uneven: bool) -> None:
    judgement = judged(*last, uneven=uneven)
    assert told(judgement) == ("collective-mismatch", "likely", "failed")
    assert blamed(judgement) == []
    assert judgement.verdict.summary.startswith("The ranks' split sizes of all_to_all (train.py:24) do not match: a")
    assert any("all ranks made all_to_all 7 of group 0" in sentence for sentence in judgement.verdict.evidence)


def test_without_gloo_s_word_of_a_size_they_may_be_as_they_should() -> None:
    ranks = (exchanging(number, 8, said=CLOSED) for number in range(2))
    assert judge(*ranks, world_size=2).verdict.cause != "collective-mismatch"


def test_where_one_has_made_another_call_there_the_splits_are_not_known() -> None:
    other = exchanging(1, 8, op="all_reduce")
    assert "split sizes" not in judge(exchanging(0, 8), other, world_size=2).verdict.summary
