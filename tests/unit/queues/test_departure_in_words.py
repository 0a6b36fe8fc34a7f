"""The sentences on a departure from the order of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.queues.departure import Departure
from hangwatch.queues.departures import finding
from hangwatch.queues.model import Call, Communicator
from hangwatch.queues.readings import Kind
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call as Made
from tests.dump_world import JobDumps, Step, Sync, every


@pytest.mark.parametrize(
    ("agreeing", "said"), [(1, "the next 1 call is as on the others"), (4, "the next 4 calls are as on the others")]
)
def test_calls_that_agree_again_are_counted(agreeing: int, said: str) -> None:
    group = Communicator("0", (0, 1, 2))
    departure = Departure(
        Kind.SKIPPED,
        group,
        (1,),
        5,
        Call("barrier", ""),
        Call("broadcast", ""),
        count=3,
        agreeing=agreeing,
        majority=True,
    )
    assert any(said in sentence for sentence in finding(departure, (0, 2)).evidence)


def test_the_wait_names_the_line_of_the_call_that_was_left_out_as_the_summary_does(tmp_path: Path) -> None:
    """One helper makes both calls: the lines that called it tell them apart."""
    turn: list[Step] = [Made("all_reduce", 29, 64, via=290), Made("all_reduce", 29, 128, via=150), Sync()]
    job = JobDumps(every(4, turn * 8, {2: [*turn * 5, *turn[1:], *turn * 2]}), timed=False)
    found = verdict(job, tmp_path)
    assert blamed(found) == [2]
    assert "Rank 2 left out all_reduce 11 of the default group (train.py:290)" in found.summary
    assert [edge.where.line for edge in found.waits if edge.where] == [290]


def test_which_of_equal_calls_is_missing_is_not_claimed_where_older_ones_are_lost(tmp_path: Path) -> None:
    turns: list[Step] = [Made("all_reduce", 22, 1024)] * 60
    end: list[Step] = [Made("barrier", 80, 0)]
    programs = {rank: [*turns[rank == 6 :], *end] for rank in range(8)}
    found = verdict(JobDumps(programs, window=20), tmp_path)
    assert blamed(found) == [6]
    assert "1 call of all_reduce" in found.summary
    assert "too few, and which one is no longer on record" in found.summary
    assert [each.cause for each in found.alternatives] == ["uneven-steps"]


def test_an_added_call_of_a_layer_is_told_by_the_line_that_no_other_one_came_by(tmp_path: Path) -> None:
    def turn(*, sampled: bool = False) -> list[Step]:
        forward: list[Step] = [Made("_all_gather_base", 41, size, out=4 * size) for size in (100, 200, 300)]
        backward: list[Step] = [Made("_reduce_scatter_base", 0, 4 * size, out=size) for size in (300, 200, 100)]
        sample: list[Step] = [Made("_all_gather_base", 41, size, out=4 * size, via=8) for size in (100, 200, 300)]
        return [*forward, *(sample if sampled else []), *backward, Sync()]

    programs = {rank: [step for at in range(4) for step in turn(sampled=(rank, at) == (3, 2))] for rank in range(4)}
    found = verdict(JobDumps(programs), tmp_path)
    assert blamed(found) == [3]
    assert "(train.py:8)" in found.summary
    assert [each.where.line for each in found.culprits if each.where] == [8]


def test_of_equal_calls_one_behind_the_other_it_is_not_said_which_one_is_missing(tmp_path: Path) -> None:
    """GIVEN five equal layers and a call behind them, WHEN one rank leaves a layer out, THEN any of them is missing."""
    layer, behind = Made("_all_gather_base", 31, 64, out=256), Made("_reduce_scatter_base", 47, 256, out=64)
    turn: list[Step] = [*[layer] * 5, *[behind] * 3, Sync()]
    found = verdict(JobDumps(every(4, turn * 6, {1: [*turn * 3, *turn[1:], *turn * 2]})), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [1])
    assert found.summary.startswith("Rank 1 left out one of _all_gather_base 25-29 of the default group (train.py:31),")


def test_of_calls_that_are_told_apart_the_one_that_is_missing_is_named(tmp_path: Path) -> None:
    turn: list[Step] = [*(Made("all_reduce", 31 + layer, 64) for layer in range(5)), Sync()]
    found = verdict(JobDumps(every(4, turn * 6, {1: [*turn * 3, *turn[1:], *turn * 2]})), tmp_path)
    assert found.summary.startswith("Rank 1 left out all_reduce 16 of the default group (train.py:31),")
