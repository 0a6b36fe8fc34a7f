"""Ranks that wait in a circle: which of them the order of most tells apart, and which nothing does."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.model import Certainty
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync, every

ROWS: dict[str, tuple[int, ...]] = {"row0": (0, 1, 2, 3), "row1": (4, 5, 6, 7)}
STAGES, PARTS = 4, 4


def _in_rows(rank: int, *, culprit: int) -> list[Step]:
    """Rounds of one row; once all report, and there the culprit has not come to the call of its row."""
    steps: list[Step] = []
    for turn in range(10):
        steps += [Call("all_reduce", 30 + layer, 64, f"row{rank // 4}") for layer in range(3)]
        steps += [] if (rank, turn) == (culprit, 7) else [Call("all_reduce", 40, 1, f"row{rank // 4}"), Sync()]
        steps += [Call("reduce", 60, 2), Sync()] if turn == 7 else []
    return steps


@pytest.mark.parametrize("culprit", [2, 5])
def test_ranks_of_another_row_that_have_made_their_own_such_call_are_none_of_the_many(
    culprit: int, tmp_path: Path
) -> None:
    """Five wait in the report and three do not come: of the row itself, three wait for the one that went on."""
    found = verdict(JobDumps({rank: _in_rows(rank, culprit=culprit) for rank in range(8)}, ROWS), tmp_path)
    assert blamed(found) == [culprit]
    assert found.summary.startswith(f"Rank {culprit} went on to reduce 1 of the default group (train.py:60) without")
    # AND the ranks of the other row, which had made one call more when they came to it, say that it left it out
    assert (found.cause, found.certainty) == ("skipped-collective", "undetermined")
    assert found.fix.startswith("let every rank make both calls, and in one order")
    assert any("had made 32 calls in their groups of that size" in each for each in found.evidence)
    assert [each.cause for each in found.alternatives] == ["group-order-cycle"]


def _of_stage(rank: int, *, without: tuple[int, int] | None = None, turns: int = 12) -> list[Step]:
    """All parts forward, then all of them backward, and a norm over all every third round.

    `without` is a round and a part whose gradient is not sent back.
    """
    steps: list[Step] = []
    for turn in range(turns):
        for _ in range(PARTS):
            steps += [Call("recv", 31, 256, peer=rank - 1)] if rank else []
            steps += [Call("send", 36, 256, peer=rank + 1)] if rank < STAGES - 1 else []
        for part in range(PARTS):
            steps += [Call("recv", 44, 256, peer=rank + 1)] if rank < STAGES - 1 else []
            steps += [Call("send", 49, 256, peer=rank - 1)] if rank and (turn, part) != without else []
        steps += [Call("all_reduce", 55, 1), Sync()] if turn % 3 == 2 else [Sync()]
    return steps


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("turn", [7, 8])
def test_a_rank_that_waits_for_a_message_has_not_left_the_order_of_those_that_wait_for_it(
    turn: int, timed: bool, tmp_path: Path
) -> None:
    """Rank 0 gets no answer from rank 1, and the other three wait for rank 0: they are more, and it is not to blame."""
    programs = {rank: _of_stage(rank, without=(turn, 1) if rank == 1 else None) for rank in range(STAGES)}
    found = verdict(JobDumps(programs, timed=timed), tmp_path)
    assert (found.cause, blamed(found)) == ("point-to-point-deadlock", [1])


@pytest.mark.parametrize("window", [20, 60])
@pytest.mark.parametrize("culprit", [1, 2, 3])
def test_of_messages_whose_older_ones_are_lost_no_habit_is_known_and_no_rank_is_singled_out(
    culprit: int, window: int, tmp_path: Path
) -> None:
    programs = {rank: _of_stage(rank, without=(8, 2) if rank == culprit else None) for rank in range(STAGES)}
    found = verdict(JobDumps(programs, window=window), tmp_path)
    assert culprit in blamed(found)
    assert found.certainty == "undetermined" or blamed(found) == [culprit]


def _of_replica(rank: int, turns: int) -> list[Step]:
    """Rounds of calls in the replica's own group and across the replicas, and a barrier behind the loop."""
    steps: list[Step] = []
    for _ in range(turns):
        steps += [Call("broadcast", 30, 64, f"replica{rank // 2}"), Call("all_reduce", 34, 256, f"replica{rank // 2}")]
        steps += [Call("all_reduce", 40, 512, f"across{rank % 2}"), Sync()]
    return [*steps, Call("barrier", 60, 1), Sync()]


@pytest.mark.parametrize(("replicas", "more", "culprits"), [(2, -1, [2, 3]), (4, 1, [2, 3])])
def test_a_call_that_comes_behind_the_loop_crosses_no_order(
    replicas: int, more: int, culprits: list[int], tmp_path: Path
) -> None:
    """One replica makes a round more or fewer: it, or the others, stand in a barrier that they never made before."""
    world = 2 * replicas
    groups: dict[str, tuple[int, ...]] = {f"replica{each}": (2 * each, 2 * each + 1) for each in range(replicas)}
    groups |= {f"across{part}": tuple(range(part, world, 2)) for part in range(2)}
    programs = {rank: _of_replica(rank, 9 + (more if rank in culprits else 0)) for rank in range(world)}
    found = verdict(JobDumps(programs, groups), tmp_path)
    assert blamed(found) == culprits
    assert found.certainty is Certainty.UNDETERMINED
    assert "uneven-steps" in {found.cause, *(each.cause for each in found.alternatives)}


def _reporting(rank: int, *, early: int) -> list[Step]:
    """Rounds of gradients in one group, and a report in another one in round 7; rank `early` reports first."""
    report = Call("all_reduce", 70, 1, "metrics")
    steps: list[Step] = []
    for turn in range(12):
        gradients = [Call("all_reduce", 40 + part, 64, "gradients") for part in range(4)]
        both = [report, *gradients] if rank == early else [*gradients, report]
        steps += [*(both if turn == 7 else gradients), Sync()]
    return steps


@pytest.mark.parametrize("early", [0, 1])
def test_a_new_call_in_the_midst_of_a_round_is_not_behind_the_loop(early: int, tmp_path: Path) -> None:
    """The gradients behind it are enqueued already, and wait for the other rank's report."""
    both: dict[str, tuple[int, ...]] = {"gradients": (0, 1), "metrics": (0, 1)}
    found = verdict(JobDumps({rank: _reporting(rank, early=early) for rank in range(2)}, both), tmp_path)
    assert (found.cause, found.certainty) == ("group-order-cycle", Certainty.LIKELY)


def _exchange(rank: int, *, without: tuple[int, int]) -> list[Step]:
    """Ranks 0 and 1 take samples from 2 and 3, and give them weights; `without` is a rank and a round."""
    peer = (rank + 2) % 4
    steps: list[Step] = []
    for turn in range(8):
        if rank < 2:
            steps += [Call("recv", 31, 256, peer=peer)] if (rank, turn) != without else []
            steps += [Call("send", 44, 512, peer=peer), Sync()]
        else:
            steps += [Call("send", 57, 256, peer=peer), Call("recv", 61, 512, peer=peer), Sync()]
        steps += [Call("all_reduce", 70, 4), Sync()] if turn % 3 == 2 else []
    return steps


def test_messages_that_went_well_before_are_not_likely_to_stand_for_their_order(tmp_path: Path) -> None:
    """Two ranks are in sends to each other, as in no earlier round: one of them left something out since."""
    found = verdict(JobDumps({rank: _exchange(rank, without=(1, 3)) for rank in range(4)}), tmp_path)
    assert 1 in blamed(found)
    assert found.certainty is Certainty.UNDETERMINED or blamed(found) == [1]


GRID: dict[str, tuple[int, ...]] = {"dp0": (0, 2), "dp1": (1, 3), "tp0": (0, 1), "tp1": (2, 3)}


def _replicated(rank: int, *, without: tuple[int, ...]) -> list[Step]:
    """Rounds: a forward in each replica, gradients over them, a report each tenth. `without` leave one round out."""
    steps: list[Step] = []
    for turn in range(20):
        steps += [Call("all_reduce", 20, 64, f"tp{rank // 2}"), Sync()]
        if rank not in without or turn != 17:
            steps += [Call("all_reduce", 34, 8 + part, f"dp{rank % 2}") for part in range(4)]
        steps += [Sync()]
        steps += [Call("all_reduce", 56, 1), Sync()] if turn % 10 == 9 else []
    return steps


def test_all_ranks_of_a_replica_that_left_out_the_same_call_are_named(tmp_path: Path) -> None:
    found = verdict(JobDumps({rank: _replicated(rank, without=(2, 3)) for rank in range(4)}, GRID), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [2, 3])
    assert "Rank 3 left out the same call in another group." in found.summary
    assert any(said.startswith("over all of its groups rank 3 left out all_reduce 69") for said in found.evidence)


def test_a_rank_of_a_replica_that_only_waits_for_its_like_has_left_nothing_out(tmp_path: Path) -> None:
    found = verdict(JobDumps({rank: _replicated(rank, without=(2,)) for rank in range(4)}, GRID), tmp_path)
    assert blamed(found) == [2]


def test_ranks_that_have_no_such_group_do_not_tell_which_call_comes_first(tmp_path: Path) -> None:
    """Four learn and four generate: that the latter stand in the call of all says nothing of the learners' own."""
    groups: dict[str, tuple[int, ...]] = {"learn": (0, 1, 2, 3), "push": (0, 4, 5, 6, 7)}
    programs: dict[int, list[Step]] = {}
    for rank in range(8):
        steps: list[Step] = []
        for turn in range(6):
            steps += [Call("broadcast", 26, 1), Sync()]
            steps += [Call("broadcast", 48, 100, "push"), Sync()] if rank in groups["push"] else []
            steps += [Call("all_reduce", 70, 900, "learn")] if rank < 4 else []
            steps += [Call("all_reduce", 81, 1, "learn"), Sync()] if rank < 4 and (rank, turn) != (1, 4) else []
        programs[rank] = steps
    found = verdict(JobDumps(programs, groups, timed=False), tmp_path)
    assert blamed(found) == [1]


@pytest.mark.parametrize("culprit", [0, 3])
def test_a_collective_that_came_behind_each_round_of_messages_was_left_out(culprit: int, tmp_path: Path) -> None:
    """The messages of the next round wait then: none of them was added."""
    programs: dict[int, list[Step]] = {}
    for rank in range(STAGES):
        steps: list[Step] = []
        for turn in range(8):
            for _ in range(PARTS):
                steps += [Call("recv", 31, 256, peer=rank - 1)] if rank else []
                steps += [Call("send", 36, 256, peer=rank + 1)] if rank < STAGES - 1 else []
            steps += [] if (rank, turn) == (culprit, 5) else [Call("broadcast", 55, 1), Sync()]
        programs[rank] = steps
    found = verdict(JobDumps(programs, timed=False), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("skipped-collective", "likely", [culprit])
    assert [each.where.line for each in found.culprits if each.where] == [55]


@pytest.mark.parametrize("culprit", [0, 1])
def test_of_two_ranks_the_one_that_went_on_without_a_call_of_each_of_its_rounds_left_it_out(
    culprit: int, tmp_path: Path
) -> None:
    programs: dict[int, list[Step]] = {}
    for rank in range(2):
        steps: list[Step] = []
        for turn in range(8):
            steps += [Call("all_to_all", 55, 8, "ep"), Sync(), Call("all_reduce", 71, 64)]
            steps += [Call("all_reduce", 60, 16), Sync()] if turn % 2 and (rank, turn) != (culprit, 5) else []
        programs[rank] = steps
    found = verdict(JobDumps(programs, {"ep": (0, 1)}, timed=False), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("skipped-collective", "likely", [culprit])


def test_ranks_without_a_group_wait_elsewhere_for_those_that_call_in_it(tmp_path: Path) -> None:
    """GIVEN a new group of all ranks that most of them never made THEN both waits are told, and not a lost record."""
    turn: list[Step] = [Call("broadcast", 20, 64), Sync()]
    new: list[Step] = [*turn * 5, Call("all_reduce", 40, 1, group="sync"), Sync()]
    groups: dict[str, tuple[int, ...]] = {"sync": tuple(range(6))}
    made_by: dict[str, tuple[int, ...]] = {"sync": (0, 1)}
    found = verdict(JobDumps(every(6, turn * 8, {0: new, 1: new}), groups=groups, made_by=made_by), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("group-order-cycle", "undetermined", [0, 1])
    assert "ranks 0-1 wait for ranks 2-5 in all_reduce 1 of group 1 (sync) (train.py:40)" in found.evidence
    assert "ranks 2-5 wait for ranks 0-1 in broadcast 6 of the default group (train.py:20)" in found.evidence
    not_made = [each.why_not for each in found.alternatives if each.cause == "new-group-mismatch"]
    assert not_made == ["no dump of ranks 2-5 tells of group 1 (sync): it may never have been created there"]


def _replicas(rank: int, *, without: tuple[int, ...]) -> list[Step]:
    """Four replicas of two parts: gradients over the replicas of a part, and every third turn a report over all."""
    steps: list[Step] = []
    for turn in range(6):
        steps += [] if turn == 5 and rank in without else [Call("all_reduce", 20, 64, f"part{rank % 2}"), Sync()]
        steps += [Call("all_reduce", 60, 2), Sync()] if turn % 3 == 2 else []
    return steps


def test_a_call_that_a_whole_replica_left_out_is_told_of_all_of_its_ranks(tmp_path: Path) -> None:
    groups = {f"part{part}": tuple(range(part, 8, 2)) for part in range(2)}
    programs = {rank: _replicas(rank, without=(2, 3)) for rank in range(8)}
    found = verdict(JobDumps(programs, groups, frames=False), tmp_path)
    assert (found.cause, found.certainty) == ("skipped-collective", "undetermined")
    assert blamed(found) == [2, 3]
    assert found.summary.startswith(
        "Ranks 2-3 went on to all_reduce 2 of the default group without a call of their groups"
    )
