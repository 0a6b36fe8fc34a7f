"""A call that was left out, or made once more: told by the fewest calls, by how the records end, or as both."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.model import Certainty
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync, every

LAYERS: list[Step] = [Call("all_reduce", 70 + layer, 4096) for layer in range(6)]
ONE, TWO = Call("all_reduce", 70, 4096), Call("all_reduce", 71, 4096)
PAIR: list[Step] = [ONE, TWO, Sync()]
ALTERNATING: list[Step] = [Call("all_reduce", 70, 4096), Call("all_reduce", 71, 1), Sync()]


@pytest.mark.parametrize("window", [20, 40])
def test_a_call_too_many_before_the_record_is_not_told_as_all_others_of_a_round_too_few(
    window: int, tmp_path: Path
) -> None:
    job = JobDumps(every(8, LAYERS * 20, {1: [*LAYERS * 3, LAYERS[0], *LAYERS * 17]}), window=window)
    found = verdict(job, tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("rank-local-decision", Certainty.LIKELY, [1])
    assert "Rank 1 added 1 call of the default group before what is recorded" in found.summary
    assert [each.why_not for each in found.alternatives] == ["rank 1 may have left out 5 calls instead"]


def test_before_the_record_a_rank_that_lacks_the_last_call_has_left_one_out(tmp_path: Path) -> None:
    job = JobDumps(every(8, LAYERS * 20, {1: [*LAYERS * 3, *LAYERS[1:], *LAYERS * 16]}), window=20)
    found = verdict(job, tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("skipped-collective", Certainty.LIKELY, [1])
    assert "Rank 1 left out 1 call of the default group before what is recorded" in found.summary


@pytest.mark.parametrize("who", [0, 1, 2])
def test_of_two_calls_in_turn_the_rank_that_lacks_the_last_one_left_one_out(who: int, tmp_path: Path) -> None:
    found = verdict(JobDumps(every(3, PAIR * 6, {who: [*PAIR * 3, TWO, Sync(), *PAIR * 2]})), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("skipped-collective", Certainty.LIKELY, [who])
    assert "left out all_reduce 7 of the default group (train.py:70)" in found.summary


def test_of_two_calls_in_turn_the_rank_that_waits_alone_made_one_more(tmp_path: Path) -> None:
    found = verdict(JobDumps(every(3, PAIR * 6, {2: [*PAIR * 3, ONE, *PAIR * 3]})), tmp_path)
    assert (found.cause, blamed(found)) == ("rank-local-decision", [2])


def test_of_two_calls_of_unlike_sizes_nothing_behind_them_tells_and_both_are_said(tmp_path: Path) -> None:
    found = verdict(JobDumps(every(4, ALTERNATING * 6, {2: [*ALTERNATING * 3, *ALTERNATING[1:], *PAIR * 2]})), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("skipped-collective", Certainty.UNDETERMINED, [2])
    assert "Rank 2 left out all_reduce 7 of the default group (train.py:70)" in found.summary
    assert (
        "Or rank 2 made all_reduce (1 element, bfloat16) (train.py:71) once more: the records fit both" in found.summary
    )
    assert "rank-local-decision" in {each.cause for each in found.alternatives}


@pytest.mark.parametrize("odd", [0, 1])
def test_of_two_ranks_a_call_that_is_new_to_both_is_made_by_one_or_left_out_by_the_other(
    odd: int, tmp_path: Path
) -> None:
    metric = Call("all_reduce", 95, 1)
    usual = [*LAYERS * 5, metric, *LAYERS * 5]
    found = verdict(JobDumps(every(2, usual, {odd: LAYERS * 10})), tmp_path)
    assert found.certainty is Certainty.UNDETERMINED
    assert f"Or rank {odd} left it out: the records fit both" in found.summary
    assert "skipped-collective" in {each.cause for each in found.alternatives}


def test_a_call_left_out_of_the_first_round_is_no_round_that_a_rank_made_alone(tmp_path: Path) -> None:
    turn: list[Step] = [*LAYERS[:2], Call("broadcast", 72, 1), Call("broadcast", 73, 1), Sync()]
    found = verdict(JobDumps(every(4, turn * 2, {0: [*turn[:2], *turn[3:], *turn]})), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [0])
    assert "left out broadcast 3 of the default group (train.py:72)" in found.summary
