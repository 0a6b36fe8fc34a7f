"""Calls that a rank never made before, and what those tell of the side that left its order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync, every


def _passed_on(sizes: list[int], line: int = 31) -> list[Step]:
    return [Call("send", line, size, peer=1) for size in sizes]


def _taken(sizes: list[int]) -> list[Step]:
    return [Call("recv", 47, size, peer=0) for size in sizes]


@pytest.mark.parametrize("frames", [True, False])
@pytest.mark.parametrize("odd", [0, 1])
def test_a_message_of_another_size_than_ever_before_is_its_rank_s(odd: int, frames: bool, tmp_path: Path) -> None:
    usual, changed = [256] * 6, [256] * 5 + [320]
    sent, taken = (changed, usual) if odd == 0 else (usual, changed)
    job = JobDumps({0: _passed_on(sent), 1: _taken(taken)}, timed=False, frames=frames)
    found = verdict(job, tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("collective-mismatch", "likely", [odd])


def test_where_each_message_has_a_size_of_its_own_neither_end_is_to_blame_alone(tmp_path: Path) -> None:
    sizes = [100, 200, 300, 400]
    job = JobDumps({0: _passed_on([*sizes, 500]), 1: _taken([*sizes, 510])}, timed=False)
    found = verdict(job, tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("collective-mismatch", "undetermined", [0, 1])


def test_the_first_message_to_a_peer_has_no_size_of_before(tmp_path: Path) -> None:
    job = JobDumps({0: _passed_on([320]), 1: _taken([256])}, timed=False)
    assert verdict(job, tmp_path).certainty == "undetermined"


def test_an_exchange_of_uneven_parts_is_no_new_call_each_time(tmp_path: Path) -> None:
    """Where lines are not known, another operation may be a call that its rank makes alone, or one behind its loop."""
    programs: dict[int, list[Step]] = {}
    for rank in range(4):
        sizes = [100 + turn * 10 + (rank if turn % 2 else -rank) for turn in range(8)]
        exchange: list[Step] = [Call("all_to_all", 30, size, out=size) for size in sizes]
        programs[rank] = [*exchange[:6], Call("_all_gather_base", 40, 1, out=4), Sync()] if rank == 2 else exchange
    found = verdict(JobDumps(programs, timed=False, frames=False), tmp_path)
    assert (found.certainty, blamed(found)) == ("undetermined", [2])
    assert "rank-local-decision" in [each.cause for each in found.alternatives]


def test_calls_without_dimensions_are_compared_like_others(tmp_path: Path) -> None:
    """The reduction of one loss has sizes without a dimension."""
    turn: list[Step] = [Call("all_reduce", 20, 64), Call("all_reduce", 21, 1), Sync()]
    other: list[Step] = [Call("all_reduce", 20, 64), Call("all_reduce", 21, 1, dtype="Float"), Sync()]
    job = JobDumps(every(4, turn * 5, {3: [*turn * 4, *other]}), timed=False)
    documents = job.documents()
    for document in documents.values():
        for entry in document["entries"]:
            if entry["input_sizes"] == [[1]]:
                entry["input_sizes"] = entry["output_sizes"] = [[]]
    job.documents = lambda: documents  # type: ignore[method-assign]
    found = verdict(job, tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("collective-mismatch", "likely", [3])
