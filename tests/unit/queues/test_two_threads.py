"""Calls that two threads of a rank make in one group: their order differs by rank, and no rank alone makes one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch.commands import evidence_files
from hangwatch.model import Certainty
from tests.dump_programs import BUCKETS, LOSS, TURN
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Join, Step, every

BARRIER = Call("barrier", 44, 1, thread="saver")
BEHIND: list[Step] = [*BUCKETS, BARRIER, Join(), *LOSS]  # a turn in which the thread's call comes later
SKIPPED: list[Step] = [*BUCKETS[1:], Join(), *LOSS]


def test_a_barrier_of_a_background_thread_is_no_call_that_its_rank_alone_makes(tmp_path: Path) -> None:
    found = verdict(JobDumps(every(4, TURN * 8, {0: [*TURN * 4, BARRIER, *TURN * 4]}), threads=True), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("concurrent-collectives", Certainty.LIKELY, [0])
    assert "barrier 17 of the default group (train.py:44) from thread 'saver'" in found.summary
    assert "all_reduce (train.py:80) from thread 'python'" in found.summary
    assert found.victims == (1, 2, 3)


def test_without_names_of_threads_the_rank_alone_made_it(tmp_path: Path) -> None:
    found = verdict(JobDumps(every(4, TURN * 8, {0: [*TURN * 4, BARRIER, *TURN * 4]})), tmp_path)
    assert (found.cause, found.certainty) == ("rank-zero-only-collective", Certainty.PROVEN)


def test_threads_of_all_ranks_whose_calls_fall_into_other_places(tmp_path: Path) -> None:
    programs = every(4, [*TURN * 4, BARRIER, *TURN * 4], {2: [*TURN * 4, *BEHIND, *TURN * 3]})
    found = verdict(JobDumps(programs, threads=True), tmp_path)
    assert (found.cause, found.certainty) == ("concurrent-collectives", Certainty.LIKELY)
    assert blamed(found) == [0, 1, 2, 3]


def test_a_thread_of_one_rank_that_waits_in_a_call_new_to_all(tmp_path: Path) -> None:
    found = verdict(JobDumps(every(4, TURN * 4, {0: [*TURN * 4, BARRIER]}), threads=True), tmp_path)
    assert (found.cause, blamed(found)) == ("concurrent-collectives", [0])


@pytest.mark.parametrize("name", ["pt_autograd_0", "pt_autograd_1"])
def test_a_thread_of_backward_is_none_of_the_programs(name: str, tmp_path: Path) -> None:
    alone = replace(BARRIER, thread=name)
    found = verdict(JobDumps(every(4, TURN * 8, {0: [*TURN * 4, alone, *TURN * 4]}), threads=True), tmp_path)
    assert found.cause == "rank-zero-only-collective"


def test_a_call_that_the_main_thread_left_out_long_after_is_still_told(tmp_path: Path) -> None:
    programs = every(4, [*TURN * 2, BARRIER, *TURN * 6], {3: [*TURN * 2, BARRIER, *TURN * 2, *SKIPPED, *TURN * 3]})
    found = verdict(JobDumps(programs, threads=True), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [3])
    assert not found.alternatives


def test_beside_calls_of_a_thread_nothing_is_proven(tmp_path: Path) -> None:
    without = [*BUCKETS[1:], BARRIER, Join(), *LOSS]
    programs = every(4, [*TURN * 4, *BEHIND, *TURN * 2], {3: [*TURN * 4, *without, *TURN * 2]})
    found = verdict(JobDumps(programs, threads=True), tmp_path)
    assert (found.certainty, blamed(found)) == (Certainty.LIKELY, [3])
    plain = verdict(JobDumps(programs), tmp_path / "plain")
    assert [each.cause for each in plain.alternatives] == []
    assert [each.cause for each in found.alternatives] == ["concurrent-collectives"]


def test_a_thread_with_a_group_of_its_own_is_no_reason(tmp_path: Path) -> None:
    own = replace(BARRIER, group="saver")
    programs = every(4, [*TURN * 4, own, *TURN * 4], {3: [*TURN * 4, own, *SKIPPED, *TURN * 3]})
    found = verdict(JobDumps(programs, {"saver": (0, 1, 2, 3)}, threads=True), tmp_path)
    assert (found.cause, blamed(found), found.alternatives) == ("skipped-collective", [3], ())


def test_a_healthy_job_with_such_a_thread_is_well(tmp_path: Path) -> None:
    JobDumps(every(4, [*TURN * 4, BARRIER, *TURN * 4]), threads=True).write(tmp_path)
    assert evidence_files.sort_out([tmp_path]).assessment.judgement is None
