"""A collective that is complete on some ranks and not on others: no code of the program holds it up."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest

from hangwatch.commands.evidence_files import sort_out
from hangwatch.model import Judgement
from tests.dumps import START, Job, Op, alike, loop

NONE_CUT: Mapping[int, int] = {}
CALL, NEXT = 5, 6  # the number that is complete on some ranks only, and the one behind it


def half(
    folder: Path,
    *open_on: int,
    timed: bool = True,
    silent: tuple[int, ...] = (),
    after_s: float = 600.0,
    kept: Mapping[int, int] = NONE_CUT,
) -> None:
    """Dumps of four ranks, of which some have completed a call and the others have not, written so long after it.

    Of some only the first calls are `kept`.
    """
    job = Job(4, alike(4, loop(3, Op("all_reduce", 20), Op("all_reduce", 22, 1))), timed=timed, cut={"0": CALL})
    folder.mkdir()
    for rank, document in job.documents().items():
        entry = document["entries"][CALL - 1]
        if rank not in open_on:
            at = entry["time_created_ns"] + 3_000
            entry |= {"state": "completed", "retired": True, "time_discovered_completed_ns": at}
            if timed:
                document["entries"][NEXT - 1] |= {"state": "started", "time_discovered_started_ns": at + 10}
        document["entries"] = document["entries"][: kept.get(rank)]
        if rank not in silent:
            path = folder / f"nccl_trace_rank_{rank}"
            path.write_bytes(pickle.dumps(document, protocol=2))
            os.utime(path, ns=(0, START + int((after_s + rank / 100) * 1e9)))


def judged(folder: Path) -> Judgement | None:
    return sort_out([folder]).assessment.judgement


@pytest.mark.parametrize("timed", [True, False])
def test_the_call_that_is_open_on_few_is_told_and_where_to_look(tmp_path: Path, timed: bool) -> None:
    half(tmp_path / "dumps", 3, timed=timed)
    found = judged(tmp_path / "dumps")
    assert found is not None
    verdict = found.verdict
    assert (verdict.cause, verdict.certainty, found.status) == ("interconnect-stall", "likely", "hung")
    assert verdict.summary.startswith("All_reduce 5 of the default group (train.py:20) is complete on ranks 0-2, and")
    assert ("has started it and does not complete it" in verdict.summary) is timed
    assert [each.rank for each in verdict.culprits] == [3]
    assert "where rank 3 runs" in verdict.fix


def test_between_two_halves_no_rank_is_named(tmp_path: Path) -> None:
    half(tmp_path / "dumps", 1, 2, 3)
    found = judged(tmp_path / "dumps")
    assert found is not None
    assert not found.verdict.culprits
    assert "the devices of ranks 1-3 have started it and do not complete it" in found.verdict.summary


def test_a_rank_without_a_dump_may_have_ended_in_it(tmp_path: Path) -> None:
    half(tmp_path / "dumps", 2, silent=(3,))
    found = judged(tmp_path / "dumps")
    assert found is not None
    verdict = found.verdict
    assert (verdict.cause, verdict.certainty) == ("rank-died", "undetermined")
    assert [each.rank for each in verdict.culprits] == [3]
    assert "No dump of rank 3, which had come to it: it may have ended in it." in verdict.summary


def test_a_rank_that_has_not_come_to_the_next_call_is_what_the_others_wait_for(tmp_path: Path) -> None:
    half(tmp_path / "dumps", 3, kept={3: CALL})
    found = judged(tmp_path / "dumps")
    assert found is not None
    assert f"never enqueued all_reduce {NEXT}" in found.verdict.summary


def test_an_older_record_is_none_of_those_that_completed_it(tmp_path: Path) -> None:
    half(tmp_path / "dumps", 3, kept={2: CALL - 2})
    found = judged(tmp_path / "dumps")
    assert found is None or "is complete on" not in found.verdict.summary


def test_a_record_of_the_moment_in_which_the_call_ended_shows_no_more_than_that(tmp_path: Path) -> None:
    half(tmp_path / "dumps", 3, after_s=2.0)
    assert judged(tmp_path / "dumps") is None
