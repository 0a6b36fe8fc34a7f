"""Ranks at a call that is new to a group: few that make it alone, or all but the one that has not come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_verdicts import blamed, verdict
from tests.dump_world import WORLD, Call, JobDumps, Step, Stop, Sync, mesh

RANKS = 8
HELD = 3


def _saving(group: str) -> list[Step]:
    """A start that all report, steps whose gradients go over `group`, and then the first report of a checkpoint."""
    step: list[Step] = [Call("_reduce_scatter_base", 40, 512, group, out=64), Sync()]
    return [Call("all_reduce", 20, 1), Sync(), *step * 3]


@pytest.mark.parametrize("group", ["shard", WORLD])
def test_a_second_group_of_the_same_ranks_does_not_make_the_many_at_a_new_call_lone(group: str, tmp_path: Path) -> None:
    """GIVEN all ranks but one at the first checkpoint, WHEN that one has made nothing since, THEN it did not come."""
    save: list[Step] = [Call("barrier", 90, 1), Sync()]
    programs = {rank: [*_saving(group), Stop() if rank == HELD else save[0], *save] for rank in range(RANKS)}
    found = verdict(JobDumps(programs, {"shard": tuple(range(RANKS))}), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("undetermined", "undetermined", [HELD])
    assert found.summary.startswith(f"Rank {HELD} never enqueued barrier ")
    assert set(found.victims) == set(range(RANKS)) - {HELD}


def test_most_of_a_row_in_a_call_that_no_rank_of_the_other_rows_made_are_alone(tmp_path: Path) -> None:
    """GIVEN three rows, WHEN most ranks of one make a call that no other row makes, THEN these few are told."""
    groups = {name: ranks for name, ranks in mesh(3, 4).items() if name.startswith("tp")}
    extra = (4, 5, 6)
    programs: dict[int, list[Step]] = {}
    for rank in range(12):
        row = f"tp{rank // 4}"
        step: list[Step] = [Call("all_reduce", 40, 512, row), Sync()]
        programs[rank] = [*step * 5, *([Call("all_reduce", 90, 8, row), Sync()] if rank in extra else [Stop()])]
    found = verdict(JobDumps(programs, groups), tmp_path)
    assert blamed(found) == list(extra)
    assert found.summary.startswith("Ranks 4-6 alone called all_reduce 6 of group ")
