"""Different calls under one number: what they tell of the ranks, and what they leave open."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.model import Certainty
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync

WORLD = 5
REPORT = Call("all_reduce", 60, 3)


def _loop(turns: int, *, last: Step = REPORT, alone: Step | None = None) -> list[Step]:
    steps: list[Step] = []
    for turn in range(turns):
        steps += [Call("all_reduce", 30 + layer, 64 + layer) for layer in range(3)]
        steps += [Call("all_reduce", 40, 1), Sync()] if turn % 4 == 3 else [Sync()]
    return [*steps, *([alone, Sync()] if alone else []), last, Sync()]


@pytest.mark.parametrize("as_json", [False, True])
def test_one_rank_with_a_round_more_is_named_and_not_the_many_that_ended(as_json: bool, tmp_path: Path) -> None:
    programs = {rank: _loop(9 if rank == 1 else 8) for rank in range(WORLD)}
    found = verdict(JobDumps(programs), tmp_path, as_json=as_json)
    assert blamed(found) == [1]
    assert found.certainty is Certainty.UNDETERMINED
    assert "uneven-steps" in {found.cause, *(each.cause for each in found.alternatives)}


def test_a_call_before_the_first_barrier_of_all_may_be_alone(tmp_path: Path) -> None:
    """The others never made that barrier before either, so that a new call alone tells nothing of rank 0."""
    barrier = Call("barrier", 60, 1)
    programs = {
        rank: _loop(8, last=barrier, alone=Call("all_reduce", 90, 17, via=91) if not rank else None)
        for rank in range(WORLD)
    }
    found = verdict(JobDumps(programs), tmp_path)
    assert blamed(found) == [0]
    assert found.certainty is Certainty.UNDETERMINED
    assert "rank-zero-only-collective" in {found.cause, *(each.cause for each in found.alternatives)}


def test_without_call_sites_a_call_that_is_new_to_a_rank_may_come_behind_its_loop(tmp_path: Path) -> None:
    programs = {rank: _loop(7 if rank == 2 else 8, last=Call("all_gather", 60, 8)) for rank in range(WORLD)}
    found = verdict(JobDumps(programs), tmp_path, as_json=True)
    assert blamed(found) == [2]
    assert found.certainty is Certainty.UNDETERMINED
    assert "uneven-steps" in {found.cause, *(each.cause for each in found.alternatives)}


def test_of_several_ranks_that_did_not_come_in_another_group_it_is_said_in_the_plural(tmp_path: Path) -> None:
    groups: dict[str, tuple[int, ...]] = {"few": (0, 1, 2, 3, 4), "more": (5, 6, 7, 8, 9)}
    turn: dict[int, list[Step]] = {
        rank: [Call("all_reduce", 20, 64, "few" if rank < 5 else "more"), Sync()] for rank in range(10)
    }
    programs = {rank: turn[rank] * (5 if rank in (0, 5, 6) else 6) for rank in range(10)}
    found = verdict(JobDumps(programs, groups, timed=False), tmp_path)
    assert blamed(found) == [0, 5, 6]
    assert "Nor have ranks 5-6 enqueued all_reduce 6" in found.summary
