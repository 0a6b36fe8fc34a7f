"""Batches of sends and receives as torch before 2.6 numbers them: each as a collective, and all as one message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hangwatch.commands.evidence_files import sort_out
from tests.dump_verdicts import blamed, verdict, verdict_on
from tests.dump_world import Call, JobDumps, Step, Stop, Sync

RING = 4
GROUPS: dict[str, tuple[int, ...]] = {"ring": tuple(range(RING))}


def _batch(rank: int) -> Call:
    after, before = (rank + 1) % RING, (rank - 1) % RING
    parts = (Call("send", 28, 64, "ring", peer=after), Call("recv", 28, 64, "ring", peer=before))
    return Call("batch", 28, 0, "ring", parts=parts)


def _rounds(rank: int, *, stopped: int | None = None, skipped: int | None = None) -> list[Step]:
    steps: list[Step] = []
    for turn in range(8):
        steps += [_batch(rank)] * (2 if (rank, turn) == (skipped, 5) else 3)
        steps += [Stop()] if (rank, turn) == (stopped, 5) else []
        steps += [Call("all_reduce", 51, 500, "ring"), Call("all_reduce", 75, 1), Sync()]
    return steps


def _as_before(document: dict[str, Any]) -> None:
    batches: dict[str, int] = {}
    for entry in document["entries"]:
        group = entry["process_group"][0]
        if entry["is_p2p"]:
            batches[group] = entry["p2p_seq_id"]
            entry["p2p_seq_id"] = 0
            entry["collective_seq_id"] = batches[group] + entry.get("collectives", 0)
            entry["is_p2p"] = not entry["profiling_name"].endswith(":coalesced")
        else:
            entry["collective_seq_id"] += batches.get(group, 0)


def _old(programs: dict[int, list[Step]]) -> JobDumps:
    """The dumps of a job by torch 2.4, which knows no status either."""
    job = JobDumps(programs, GROUPS, timed=False, version="2.3", status=False)
    documents = job.documents()
    for document in documents.values():
        done: dict[str, int] = {}
        for entry in document["entries"]:
            group = entry["process_group"][0]
            done[group] = done.get(group, 0) if entry["is_p2p"] else entry["collective_seq_id"]
            entry["collectives"] = done[group]
        _as_before(document)
    job.documents = lambda: documents  # type: ignore[method-assign]
    return job


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_did_not_come_to_a_collective_behind_its_batches_is_awaited(rank: int, tmp_path: Path) -> None:
    found = verdict(_old({each: _rounds(each, stopped=rank) for each in range(RING)}), tmp_path)
    assert (found.certainty, blamed(found)) == ("undetermined", [rank])
    assert "all_reduce 6 of group 1 (ring)" in found.summary


def test_a_batch_that_was_left_out_makes_its_rank_s_collectives_no_other_ones(tmp_path: Path) -> None:
    programs = {each: _rounds(each, skipped=1) for each in range(RING)}
    old, new = tmp_path / "old", tmp_path / "new"
    _old(programs).write(old)
    JobDumps(programs, GROUPS, timed=False).write(new)
    assert blamed(verdict_on(old)) == blamed(verdict_on(new)) == [1]
    assert verdict_on(old).cause == verdict_on(new).cause == "point-to-point-deadlock"


@pytest.mark.parametrize("meetings", [None, 9])
def test_batches_that_are_complete_are_well(meetings: int | None, tmp_path: Path) -> None:
    """Only their ends have a state, and torch before 2.6 says of those that they are no sends and receives."""
    programs = {each: _rounds(each) for each in range(RING)}
    job = JobDumps(programs, GROUPS, timed=False, meetings=meetings, written_after_s=0.1)
    documents = job.documents()
    for entry in (entry for document in documents.values() for entry in document["entries"]):
        entry["is_p2p"] = entry["is_p2p"] and not entry["profiling_name"].endswith(":coalesced")
    job.documents = lambda: documents  # type: ignore[method-assign]
    job.write(tmp_path)
    assert sort_out([tmp_path]).assessment.judgement is None
