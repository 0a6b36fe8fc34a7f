"""One group that its members know under several names."""

from __future__ import annotations

from pathlib import Path

from hangwatch.model import Certainty
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync

MEMBERS: tuple[int, ...] = (2, 3, 4, 5)
GROUPS = {"first": MEMBERS, "second": MEMBERS}


def _program(group: str) -> list[Step]:
    return [Call("all_reduce", 30, 64), Sync(), Call("all_reduce", 40, 8, group), Sync()]


def _programs(first: tuple[int, ...]) -> dict[int, list[Step]]:
    return {rank: _program("first" if rank in first else "second") for rank in MEMBERS} | {
        rank: [Call("all_reduce", 30, 64), Sync()] for rank in (0, 1)
    }


def test_the_rank_that_made_the_group_in_another_order_is_named(tmp_path: Path) -> None:
    job = JobDumps(_programs((3,)), GROUPS, made_by={"first": (3,), "second": (2, 4, 5)})
    found = verdict(job, tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("new-group-mismatch", Certainty.LIKELY, [3])
    assert "ranks 2 and 4-5 have it as group 2 (second) and rank 3 has it as group 1 (first)" in found.summary


def test_of_two_halves_neither_is_named(tmp_path: Path) -> None:
    job = JobDumps(_programs((2, 3)), GROUPS, made_by={"first": (2, 3), "second": (4, 5)})
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found)) == ("new-group-mismatch", [])


def test_two_groups_of_the_same_ranks_are_no_mismatch(tmp_path: Path) -> None:
    """All members know both groups, and call them in unlike order."""
    found = verdict(JobDumps(_programs((3,)), GROUPS), tmp_path)
    assert found.cause != "new-group-mismatch"
