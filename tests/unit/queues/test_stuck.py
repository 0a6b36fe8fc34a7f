"""Where communicators stand: the first call that is open, and for whom."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

from hangwatch.commands import evidence_files
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import START, Call, JobDumps, Step, Sync


def test_what_is_complete_on_all_that_came_to_it_is_no_call_that_a_rank_lacks(tmp_path: Path) -> None:
    """Rings of few calls: the dump of rank 3 is older, and what it had not enqueued is no longer recorded elsewhere."""
    for rank in range(4):
        last = 76 if rank == 3 else 90
        entries = [
            {
                "record_id": number,
                "pg_id": 0,
                "process_group": ("0", "default_pg"),
                "collective_seq_id": number,
                "p2p_seq_id": 0,
                "profiling_name": "nccl:all_reduce",
                "time_created_ns": START + number * 1_000_000,
                "state": "completed" if number <= last - 8 or rank == 3 else "scheduled",
                "is_p2p": False,
            }
            for number in range(last - 7, last + 1)
        ]
        status = {
            "last_enqueued_collective": last,
            "last_started_collective": -1,
            "last_completed_collective": last - 8,
        }
        document = {
            "version": "2.9",
            "entries": entries,
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
            "pg_status": {"0": status},
        }
        path = tmp_path / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(document))
        os.utime(path, ns=(START + last * 1_000_000,) * 2)
    found = evidence_files.sort_out([tmp_path]).assessment.judgement
    assert found is None or (found.status == "waiting" and not found.verdict.culprits)
    assert found is None or "collective 77" not in found.verdict.summary


def test_the_one_rank_that_went_on_without_the_call_in_which_all_others_wait_is_named(tmp_path: Path) -> None:
    """It waits in a smaller group for ranks that have not come there: those are no part of what went wrong."""
    column = {rank: f"column{rank % 2}" for rank in range(8)}
    programs: dict[int, list[Step]] = {}
    for rank in range(8):
        mine = column[rank]
        turn: list[Step] = [Call("_all_gather_base", 30, 64, mine, out=256), Call("all_reduce", 31, 1, mine)]
        log: list[Step] = [Call("all_gather", 40, 3, out=24), Sync()]
        rounds = [[*turn, Sync(), *turn, *log] for _ in range(6)]
        if rank == 3:
            rounds[4] = [*turn, Sync(), *turn]
        programs[rank] = [step for each in rounds for step in each]
    groups: dict[str, tuple[int, ...]] = {f"column{first}": tuple(range(first, 8, 2)) for first in range(2)}
    found = verdict(JobDumps(programs, groups, timed=False, frames=False), tmp_path)
    assert blamed(found) == [3]
