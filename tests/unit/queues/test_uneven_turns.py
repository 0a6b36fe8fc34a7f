"""A rank that made one turn more than all others: its partner in the small group is not the one to blame."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync, mesh

GROUPS = mesh(4, 2)
TENSOR, DATA = ({rank: name for name in GROUPS for rank in GROUPS[name] if name[:2] == kind} for kind in ("tp", "dp"))


def _rounds(rank: int, more: dict[int, dict[int, int]]) -> list[Step]:
    """Rounds of two microbatches; `more` has by rank and round how many are added."""
    steps: list[Step] = []
    for turn in range(4):
        for _ in range(2 + more.get(rank, {}).get(turn, 0)):
            steps += [Call("all_reduce", 40, 128, TENSOR[rank])]
        steps += [Call("all_reduce", 61, 9000, DATA[rank])]
    return steps


@pytest.mark.parametrize("turn", [1, 3])
def test_the_rank_that_made_a_turn_too_many_is_named_and_not_its_partner(turn: int, tmp_path: Path) -> None:
    programs = {rank: _rounds(rank, {3: {turn: 1}}) for rank in range(8)}
    found = verdict(JobDumps(programs, GROUPS), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("uneven-steps", "likely", [3])
    assert found.summary.startswith("Rank 3 made 3 calls of all_reduce")
    assert f"collective {turn + 1} of" in found.summary


def test_rounds_in_which_both_partners_made_more_say_nothing_against_one_of_them(tmp_path: Path) -> None:
    programs = {rank: _rounds(rank, {2: {1: 1}, 3: {1: 1, 3: 1}}) for rank in range(8)}
    assert blamed(verdict(JobDumps(programs, GROUPS), tmp_path)) == [3]


def test_a_rank_whose_data_parallel_peers_made_as_many_turns_is_not_blamed(tmp_path: Path) -> None:
    """GIVEN rank 2 alone made a turn less, WHEN all others made three, THEN rank 3, which waits for it, is a victim."""
    programs = {rank: _rounds(rank, {2: {3: -1}}) for rank in range(8)}
    assert 3 not in blamed(verdict(JobDumps(programs, GROUPS), tmp_path))


def test_a_turn_too_many_in_a_circle_is_counted_as_well(tmp_path: Path) -> None:
    """The rank waits in that turn itself, and its partner in the call of all, which the rank has not made yet."""
    pairs: dict[str, tuple[int, ...]] = {"ep0": (0, 1), "ep1": (2, 3)}
    programs: dict[int, list[Step]] = {}
    for rank in range(4):
        steps: list[Step] = []
        for turn in range(4):
            turns = 3 if (rank, turn) == (3, 3) else 2
            steps += [Call("all_reduce", 21, 64, f"ep{rank // 2}"), Sync()] * turns
            steps += [Call("all_reduce", 8, 900), Sync()]
        programs[rank] = steps
    found = verdict(JobDumps(programs, pairs), tmp_path)
    assert (found.cause, blamed(found)) == ("uneven-steps", [3])
    assert [each.cause for each in found.alternatives] == ["skipped-collective"]


def _reported(rank: int, counts: list[int]) -> list[Step]:
    """Rounds with so many turns, each of which ends with the gradients and a report of all."""
    steps: list[Step] = []
    for count in counts:
        steps += [Call("all_reduce", 40, 128, TENSOR[rank]), Sync()] * count
        steps += [Call("all_reduce", 61, 9000, DATA[rank]), Sync(), Call("all_reduce", 80, 1)]
    return steps


@pytest.mark.parametrize(("counts", "own"), [([3, 3, 1], [3, 3, 2]), ([2, 3, 2, 3], [2, 2, 2, 3])])
def test_in_a_circle_the_rank_is_named_that_differs_from_all_others(
    counts: list[int], own: list[int], tmp_path: Path
) -> None:
    programs = {rank: _reported(rank, own if rank == 4 else counts) for rank in range(8)}
    assert blamed(verdict(JobDumps(programs, GROUPS), tmp_path)) == [4]


def test_a_rank_that_did_as_all_others_is_not_said_to_have_left_a_turn_out(tmp_path: Path) -> None:
    """All others make fewer turns in the last round than ever; the one that makes as many as before waits for them."""
    programs = {rank: _reported(rank, [4, 4, 2, 2] if rank == 0 else [4, 4, 2, 1]) for rank in range(8)}
    found = verdict(JobDumps(programs, GROUPS, timed=False), tmp_path)
    assert blamed(found) != [1]
