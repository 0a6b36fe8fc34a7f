"""Loops that end: what came behind them before tells who left one earlier than the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.queues.loops import left_as_before, visits
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync, every

ROUND: list[Step] = [Call("all_reduce", 20, 64), Call("all_reduce", 21, 8)]
EPOCH: list[Step] = [Call("all_reduce", 30, 2), Sync()]
A_B_ENDS = [1, 2, 1, 2, 1, 2, 9, 1, 2]


@pytest.mark.parametrize(
    ("before", "own", "usual", "times"),
    [
        (A_B_ENDS, 9, 1, 1),
        (A_B_ENDS, 1, 9, 0),  # the others have left it: this one goes on
        (A_B_ENDS, 7, 1, 0),  # a call that never came there
        (A_B_ENDS, 9, 7, 0),  # the others do what is new
        ([], 9, 1, 0),
        ([1, 9, 1, 9, 1], 9, 2, 0),
    ],
)
def test_how_often_a_loop_had_ended_so(before: list[int], own: int, usual: int, times: int) -> None:
    assert left_as_before(before, own, usual) == times


def test_a_rank_that_goes_to_the_end_of_an_epoch_earlier_than_the_others_has_left_the_loop(tmp_path: Path) -> None:
    """Hosts that read each loss have not enqueued the end, so that only the epoch before tells what comes there."""
    turn: list[Step] = [*ROUND, Sync()]
    job = JobDumps(every(8, [*turn * 9, *EPOCH] * 2, {5: [*turn * 9, *EPOCH, *turn * 8, *EPOCH]}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("uneven-steps", [5], "likely")
    # AND that it may have been an earlier round is said
    assert [each.cause for each in found.alternatives] == ["skipped-collective"]


def test_a_rank_that_goes_on_where_the_others_end_their_epoch_as_before_has_more_rounds(tmp_path: Path) -> None:
    turn: list[Step] = [*ROUND, Sync()]
    epoch: list[Step] = [*turn * 9, *EPOCH]
    job = JobDumps(every(8, epoch * 3, {3: [*epoch, *turn, *epoch, *epoch]}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("uneven-steps", [3], "likely")
    assert "a round more" in found.summary
    assert [each.cause for each in found.alternatives] == ["skipped-collective"]


def test_a_call_that_often_comes_behind_a_round_is_no_end_of_a_loop(tmp_path: Path) -> None:
    turn: list[Step] = [*ROUND, Sync()]
    logged: list[Step] = [*turn * 4, *EPOCH]
    job = JobDumps(every(4, logged * 6, {1: [*logged * 4, *turn * 3, *EPOCH, *logged]}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [1])


def _layers(rank: int, count: int) -> list[Step]:
    """More layers than context is looked at, each of which is waited for."""
    layers: list[Step] = [Call("all_reduce", 40, 16, f"half{rank // 4}"), Sync()]
    return [*layers * count, Call("all_reduce", 50, 64), Call("broadcast", 60, 4, f"half{rank // 4}"), Sync()]


def test_a_layer_that_is_left_out_is_not_called_the_end_of_the_training_loop(tmp_path: Path) -> None:
    programs = {rank: [*_layers(rank, 20), *_layers(rank, 19 if rank == 1 else 20)] for rank in range(8)}
    groups: dict[str, tuple[int, ...]] = {"half0": (0, 1, 2, 3), "half1": (4, 5, 6, 7)}
    found = verdict(JobDumps(programs, groups, timed=False), tmp_path)
    assert found.cause != "uneven-steps"
    assert blamed(found) == [1]


def test_one_helper_s_line_is_told_by_the_lines_that_called_it(tmp_path: Path) -> None:
    """All calls come from one line; those of rank 2 from a place of the program that no other rank came to."""
    forward: list[Step] = [Call("_all_gather_base", 10, size, out=4 * size, via=101) for size in (64, 32)]
    backward: list[Step] = [Call("_all_gather_base", 10, size, out=4 * size, via=105) for size in (32, 64)]
    turn: list[Step] = [*forward, *backward, Call("_reduce_scatter_base", 12, 256, out=64), Sync()]
    sample: list[Step] = [Call("_all_gather_base", 10, size, out=4 * size, via=140) for size in (64, 32) * 3]
    job = JobDumps(every(4, turn * 6, {2: [*turn * 4, *sample, Sync(), *turn * 2]}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("rank-zero-only-collective", [2], "undetermined")
    assert "train.py:140" in found.summary
    assert [each.where.line for each in found.culprits if each.where] == [140]
    assert [each.cause for each in found.alternatives] == ["uneven-steps"]


def test_a_coalesced_call_that_is_left_out_shifts_no_later_one(tmp_path: Path) -> None:
    def together(count: int) -> list[Step]:
        parts = tuple(Call("all_reduce", 70, 100 + place) for place in range(count))
        return [Call("batch", 70, parts=parts), Sync()]

    job = JobDumps(every(4, together(3) * 6, {2: [*together(3) * 4, *together(2), *together(3)]}), timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found)) == ("collective-mismatch", [2])
    assert "every later call" not in found.summary


def test_an_evaluation_counts_once_however_many_calls_it_makes(tmp_path: Path) -> None:
    """A rank that comes to it two rounds early has left the loop: nothing proves that it left single calls out."""
    turn: list[Step] = [*ROUND, Sync()]
    log: list[Step] = [Call("all_reduce", 25, 2), Sync()]
    evaluation: list[Step] = [*[Call("_all_gather_base", 40, 8, out=64)] * 6, Sync()]
    epoch: list[Step] = [*turn * 9, *log, *evaluation]
    early: list[Step] = [*epoch * 2, *turn * 7, *evaluation]
    found = verdict(JobDumps(every(8, epoch * 3, {6: early}), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("uneven-steps", [6], "likely")


@pytest.mark.parametrize(("before", "times"), [([1, 2, 1, 2], 0), ([1, 9, 9, 9, 1], 1), ([1, 9, 9, 2, 9, 1, 9], 2)])
def test_visits_from_a_round(before: list[int], times: int) -> None:
    assert visits(before, 9, 1) == times


def test_a_round_that_one_rank_makes_once_more_is_no_call_of_its_own(tmp_path: Path) -> None:
    part: list[Step] = [Call("_all_gather_base", 30, 64, out=256), Call("_reduce_scatter_base", 31, 256, out=64)]
    turn: list[Step] = [*part * 3, Call("all_reduce", 33, 1)]
    again: list[Step] = [*part * 4, Call("all_reduce", 33, 1)]
    found = verdict(JobDumps(every(4, turn * 12, {1: [*turn * 6, *again, *turn * 5]}), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("uneven-steps", [1], "likely")
    assert [each.cause for each in found.alternatives] == ["rank-zero-only-collective"]


def test_what_is_new_in_a_short_record_may_have_come_before(tmp_path: Path) -> None:
    layers: list[Step] = [Call("all_reduce", 40, 16)] * 7
    turn: list[Step] = [*layers, Call("all_reduce", 50, 1), Sync()]
    job = JobDumps(every(4, turn * 9, {3: [*turn * 8, *turn[1:]]}), timed=False, window=7, frames=False)
    assert verdict(job, tmp_path).cause != "uneven-steps"
