"""`collective-mismatch`: an all_to_all that ended a rank, to which the ranks brought different numbers of elements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import ExceptionFacts, Judgement, RankEvidence
from tests.unit.job import NOW, blamed, judge, told
from tests.unit.rules.step.aborts import CLOSED, SIZES, USUAL, calls, dead

EXCHANGES = 6


def exchanging(number: int, last: int, *, op: str = "all_to_all", uneven: bool = False) -> RankEvidence:
    """It brought 8 elements each time (another number in `uneven` ones), and `last` to the call in which it ended."""
    usual = 8 + number * uneven
    ring = tuple(
        replace(call, op=op, seq=1 + index, sizes=((last if index == EXCHANGES else usual,),))
        for index, call in enumerate(calls(EXCHANGES, USUAL))
    )
    if number == 0:
        return dead(number, ring, code=-6, last_output=SIZES)
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
def test_exchanges_that_may_be_as_they_should_are_none(last: tuple[int, int], uneven: bool) -> None:
    assert judged(*last, uneven=uneven).verdict.cause != "collective-mismatch"
