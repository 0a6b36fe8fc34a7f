"""Exchanges in which ranks may give unlike numbers of elements: one that does so for the first time is named."""

from __future__ import annotations

import pytest

from hangwatch.model import Verdict
from hangwatch.queues import assess
from hangwatch.recorder import QueueReader
from tests.dump_verdicts import blamed
from tests.dump_world import WORLD, Call, JobDumps, Step, Sync, every

EXPERTS, MORE, STANDS = 4096, 4160, 11
ROUND: list[Step] = [Call("all_to_all", 51, EXPERTS), Call("all_to_all", 53, EXPERTS), Sync()]


def _verdict(*more: int, timed: bool) -> Verdict:
    """Rank 2 gives more elements to the exchanges of these numbers, and one of all ranks does not complete."""
    job = JobDumps(every(4, ROUND * 6), timed=timed, broken={WORLD: STANDS}, given_up=True)
    reader = QueueReader()
    for rank, document in job.documents().items():
        for number in more if rank == 2 else ():
            document["entries"][number - 1] |= {"input_sizes": [[MORE]], "output_sizes": [[MORE]]}
        reader.add(rank, document)
    found = assess(reader.queues()).judgement
    assert found is not None
    return found.verdict


@pytest.mark.parametrize("timed", [True, False])
def test_the_one_rank_that_gives_another_number_than_all_gave_ever_is_named(timed: bool) -> None:
    found = _verdict(STANDS, timed=timed)
    assert (found.cause, found.certainty, blamed(found)) == ("collective-mismatch", "likely", [2])
    assert "rank 2 gives 4,160 elements, where ranks 0-1 and 3 give 4,096 elements" in found.summary
    assert "interconnect-stall" in [each.cause for each in found.alternatives]


@pytest.mark.parametrize("timed", [True, False])
def test_where_ranks_had_given_unlike_numbers_before_none_is_odd(timed: bool) -> None:
    found = _verdict(5, STANDS, timed=timed)
    assert (found.cause, blamed(found)) == ("interconnect-stall", [])
    assert "alike" not in found.summary
    assert "the same call" not in found.summary
