"""Ranks that wait in a circle: which of them the order of most tells apart, and which nothing does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync

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
