"""Dumps of torch 2.2 and 2.3: one number for all calls of a group, groups numbered by each rank for itself."""

from __future__ import annotations

import pickle
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from hangwatch.recorder import DumpError, documents
from tests.dump_verdicts import blamed, verdict, verdict_on
from tests.dump_world import Call, JobDumps, Step, Sync

RANKS = 4
PAIRS: dict[str, tuple[int, ...]] = {"low": (0, 1), "high": (2, 3), "odd": (1, 3)}
LATER = ("collective_seq_id", "p2p_seq_id", "is_p2p", "timeout_ms", "input_dtypes", "output_dtypes", "process_group")


def _rounds(rank: int, *, skips: bool = False, drops: bool = False) -> list[Step]:
    pair = "low" if rank < 2 else "high"
    steps: list[Step] = []
    for turn in range(9):
        now = turn == 6
        steps += [Call("all_reduce", 20, 64)]
        steps += [Call("all_reduce", 21, 32, pair)] if not (skips and now) else []
        steps += [Call("broadcast", 22, 8, "odd")] if rank % 2 else []
        if rank == 0:
            steps += [Call("send", 23, 16, peer=2)] if not (drops and now) else []
        if rank == 2:
            steps += [Call("recv", 24, 16, peer=0)]
        steps += [Call("all_reduce", 25, 1), Sync()]
    return steps


def _early(document: dict[str, Any], version: str | None) -> Any:
    """The same as an early torch writes it; None is the bare list of the first version."""
    entries = [dict(entry) for entry in document["entries"]]
    own = {name: number for number, name in enumerate(document["pg_config"])}
    for name, number in own.items():
        of_group = [entry for entry in entries if entry["process_group"][0] == name]
        numbered = groupby(of_group, key=lambda entry: (entry["collective_seq_id"], entry["p2p_seq_id"]))
        for count, (_, together) in enumerate(numbered, 1):
            for entry in together:
                entry["seq_id"], entry["pg_id"] = count, number
    for entry in entries:
        for key in LATER:
            entry.pop(key, None)
        if version is None:
            entry["time_created_us"] = entry.pop("time_created_ns") // 1000
            del entry["record_id"]
    if version is None:
        return entries
    members = [[int(each) for each in said["ranks"].strip("[]").split(",")] for said in document["pg_config"].values()]
    return {"version": version, "entries": entries, "pg_config": dict(enumerate(members))}


def _write(
    programs: dict[int, list[Step]], groups: dict[str, tuple[int, ...]], folder: Path, version: str | None
) -> None:
    job = JobDumps(programs, groups, timed=False, status=False)
    for rank, document in job.documents().items():
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(_early(document, version), protocol=2))


def test_groups_that_each_rank_numbers_for_itself_are_told_by_their_members(tmp_path: Path) -> None:
    early, late = tmp_path / "early", tmp_path / "late"
    early.mkdir()
    programs = {rank: _rounds(rank, skips=rank == 1) for rank in range(RANKS)}
    _write(programs, PAIRS, early, "1.4")
    found, later = verdict_on(early), verdict(JobDumps(programs, PAIRS, timed=False), late)
    assert (found.cause, blamed(found)) == (later.cause, blamed(later))
    assert blamed(found) == [1]


def test_sends_and_receives_do_not_shift_the_numbers_of_collectives(tmp_path: Path) -> None:
    """Only two of four ranks send, and all four reduce in the same group: their one counter differs."""
    early, late = tmp_path / "early", tmp_path / "late"
    early.mkdir()
    programs = {rank: _rounds(rank, drops=rank == 0) for rank in range(RANKS)}
    _write(programs, PAIRS, early, "1.4")
    found, later = verdict_on(early), verdict(JobDumps(programs, PAIRS, timed=False), late)
    assert (found.cause, blamed(found)) == (later.cause, blamed(later))
    assert blamed(found) == [0]


def test_a_bare_list_with_times_in_microseconds_is_a_dump(tmp_path: Path) -> None:
    turn: list[Step] = [Call("all_reduce", 20, 64), Call("all_gather", 21, 8, out=32), Call("all_reduce", 22, 4)]
    programs = {rank: turn * 9 if rank != 3 else [*turn * 5, turn[0], turn[2], *turn * 3] for rank in range(RANKS)}
    _write(programs, {}, tmp_path, None)
    found = verdict_on(tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [3])


@pytest.mark.parametrize("spoiled", [[{"seq_id": 1}], [{"seq_id": "x", "profiling_name": "nccl:all_reduce"}]])
def test_a_list_that_is_none_is_said_to_be_no_dump(spoiled: Any) -> None:
    with pytest.raises(DumpError):
        list(documents(pickle.dumps(spoiled, protocol=2)))
