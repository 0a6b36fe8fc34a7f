"""One more turn of a loop than ever before, where the others have ended theirs and called nothing since."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.model import Certainty
from tests.dump_programs import TURN
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync


def _epochs(batches: list[int], world: int) -> list[Step]:
    """An epoch of training before each validation of so many batches."""
    batch: list[Step] = [Call("_all_gather_base", 150, 32, out=32 * world), Call("all_reduce", 151, 2), Sync()]
    return [step for count in batches for step in (*TURN * 6, *batch * count)]


def _job(batches: list[int], last: int, world: int = 4) -> JobDumps:
    """Rank 1 validates `last` batches in the end, and the others as many as said."""
    own = [*batches[:-1], last]
    return JobDumps({rank: _epochs(own if rank == 1 else batches, world) for rank in range(world)}, timed=False)


@pytest.mark.parametrize("as_json", [False, True])
def test_the_rank_with_a_batch_more_is_named_and_not_those_that_ended_as_ever(as_json: bool, tmp_path: Path) -> None:
    found = verdict(_job([5, 5, 5], 6), tmp_path, as_json=as_json)
    assert (found.cause, found.certainty, blamed(found)) == ("uneven-steps", Certainty.LIKELY, [1])


def test_of_two_ranks_either_may_be_the_one(tmp_path: Path) -> None:
    found = verdict(_job([5, 5, 5], 6, world=2), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("uneven-steps", Certainty.UNDETERMINED, [1])


@pytest.mark.parametrize(
    ("batches", "last"),
    [
        pytest.param([5, 7, 5], 6, id="a-loop-of-no-regular-length"),
        pytest.param([5, 5, 4], 5, id="one-rank-ahead-in-a-regular-call"),
    ],
)
def test_without_a_rule_those_that_are_awaited_are_told_of(batches: list[int], last: int, tmp_path: Path) -> None:
    found = verdict(_job(batches, last), tmp_path)
    assert (found.cause, found.certainty) == ("undetermined", Certainty.UNDETERMINED)
