"""Stages of a pipeline, each of which has an order of its own: the one that left that of its earlier rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync

STAGES, PARTS = 4, 4


def _to(peer: int, line: int) -> Step:
    return Call("send", line, 256, peer=peer)


def _from(peer: int, line: int) -> Step:
    return Call("recv", line, 256, peer=peer)


def _round(rank: int, *, without: int | None = None, again: int | None = None) -> list[Step]:
    """All parts forward, then all of them backward; `without` receives no such part, `again` sends one twice."""
    steps: list[Step] = []
    for part in range(PARTS):
        steps += [_from(rank - 1, 31)] if rank and part != without else []
        steps += [_to(rank + 1, 38)] if part == again else []
        steps += [_to(rank + 1, 36)] if rank < STAGES - 1 else []
    for _ in range(PARTS):
        steps += [_from(rank + 1, 44)] if rank < STAGES - 1 else []
        steps += [_to(rank - 1, 49)] if rank else []
    return [*steps, Sync()]


def _job(culprit: int, changed: list[Step], *, met: int | None = None) -> JobDumps:
    programs: dict[int, list[Step]] = {}
    for rank in range(STAGES):
        rounds = [_round(rank) for _ in range(10)]
        if rank == culprit:
            rounds[7] = changed
        reports: list[Step] = [Call("all_reduce", 60, 1), Sync()]
        programs[rank] = [
            step for place, steps in enumerate(rounds) for step in (*steps, *(reports if place == met else ()))
        ]
    return JobDumps(programs, timed=True)


@pytest.mark.parametrize("met", [None, 4])
def test_a_stage_that_leaves_out_a_receive_is_named_and_not_the_one_that_waits_for_it(
    met: int | None, tmp_path: Path
) -> None:
    """AND a report that all ranks made in one round only is no change of the order of one of them."""
    found = verdict(_job(3, _round(3, without=2), met=met), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("point-to-point-deadlock", [3], "likely")


def test_a_stage_that_sends_once_more_is_named_with_that_line(tmp_path: Path) -> None:
    found = verdict(_job(1, _round(1, again=1)), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("point-to-point-deadlock", [1], "likely")
    assert [each.where.line for each in found.culprits if each.where] == [38]
    assert "where every earlier round had gone on to send (train.py:36)" in found.summary


@pytest.mark.parametrize("more", [1, 2])
def test_a_receive_too_many_before_a_report_of_all_is_no_report_left_out(more: int, tmp_path: Path) -> None:
    """GIVEN rounds that a report ends, WHEN a stage receives once more first, THEN it has not gone on without that."""
    report: list[Step] = [Call("all_reduce", 60, 1), Sync()]
    programs: dict[int, list[Step]] = {rank: [*_round(rank), *report] * 6 for rank in range(STAGES)}
    programs[0] = [*[*_round(0), *report] * 4, *_round(0)[:-1], *[_from(1, 44)] * more, Sync(), *report]
    found = verdict(JobDumps(programs, timed=True), tmp_path)
    assert (found.cause, blamed(found)) == ("point-to-point-deadlock", [0])
    assert "left out all_reduce" not in found.summary
    assert any(f"rank 0 has made {5 * PARTS + more} receives from rank 1" in each for each in found.evidence)


def test_a_report_left_out_behind_which_the_rounds_go_on_is_told(tmp_path: Path) -> None:
    """GIVEN rounds that begin with a receive, WHEN the last stage goes on to that, THEN it left the report out."""
    report: list[Step] = [Call("all_reduce", 60, 1), Sync()]
    programs: dict[int, list[Step]] = {rank: [*_round(rank), *report] * 6 for rank in range(STAGES)}
    programs[3] = [*[*_round(3), *report] * 4, *_round(3), *_round(3)]
    found = verdict(JobDumps(programs, timed=True), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [3])
