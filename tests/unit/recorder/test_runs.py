"""A folder with dumps of two runs: those of the earlier one are left out, and said to be."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from hangwatch.commands import evidence_files
from tests.dump_programs import TURN
from tests.dump_verdicts import blamed, verdict_on
from tests.dump_world import Call, JobDumps, Stop, every

DAY_NS = 86_400 * 10**9
MINUTE_NS = 60 * 10**9


def _shifted(document: dict[str, Any], by_ns: int) -> dict[str, Any]:
    keys = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
    entries = [
        {**each, **{key: each[key] + by_ns for key in keys if each[key] is not None}} for each in document["entries"]
    ]
    return {**document, "entries": entries}


def _frozen(folder: Path, turns: int, by_ns: int) -> None:
    """Rank 2 of four is frozen and leaves no dump; what lies there is of a job of so many turns."""
    job = JobDumps(every(4, TURN * 6, {2: [*TURN * 3, Stop()]}), silent=(2,), timed=False)
    job.write(folder)
    old = JobDumps(every(4, TURN * turns), timed=False)
    (folder / "nccl_trace_rank_2").write_bytes(pickle.dumps(_shifted(old.document(2), by_ns), protocol=2))


@pytest.mark.parametrize("turns", [2, 5, 9])
def test_a_dump_of_yesterday_is_left_out(turns: int, tmp_path: Path) -> None:
    """It showed calls complete that the ranks of today stand in, so that nothing seemed to be wrong."""
    _frozen(tmp_path, turns, -DAY_NS)
    found = verdict_on(tmp_path)
    assert (found.cause, blamed(found)) == ("undetermined", [2])
    assert "The dump of rank 2 is of an earlier run, and is left out." in found.details


def test_a_rank_that_came_later_to_its_calls_is_of_the_same_run(tmp_path: Path) -> None:
    """Rank 1 compiled for ten minutes; what the others had complete before needs no other rank."""
    job = JobDumps(every(2, [Call("broadcast", 5, 64)] * 3), timed=False)
    job.write(tmp_path)
    late = _shifted(job.document(1), 10 * MINUTE_NS)
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps(late, protocol=2))
    assert evidence_files.sort_out([tmp_path]).queues.earlier == ()


def test_clocks_of_nodes_may_differ(tmp_path: Path) -> None:
    job = JobDumps(every(2, TURN * 3), timed=False)
    job.write(tmp_path)
    for by_ns, earlier in ((MINUTE_NS // 2, ()), (3 * MINUTE_NS, (0,))):
        behind = _shifted(job.document(1), by_ns)
        (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps(behind, protocol=2))
        assert evidence_files.sort_out([tmp_path]).queues.earlier == earlier


def test_a_rank_that_was_started_anew_is_told_of_and_no_other_one_is_said_to_lack_a_dump(tmp_path: Path) -> None:
    JobDumps(every(4, [*TURN * 3, Stop()], {0: TURN * 4}), timed=False).write(tmp_path)
    anew = JobDumps(every(4, [Stop()], {3: [Call("broadcast", 5, 64)]}), timed=False)
    later = _shifted(anew.document(3), 10 * MINUTE_NS)
    (tmp_path / "nccl_trace_rank_3").write_bytes(pickle.dumps(later, protocol=2))
    found = verdict_on(tmp_path)
    assert not found.culprits
    said = "rank 3 may have ended and been started anew, while ranks 0-2 waited on"
    assert said in {each.why_not for each in found.alternatives}
    told = " ".join((found.summary, *found.evidence, *found.details))
    assert "that of ranks 0-2 is of an earlier run" in told
    assert "no dump of" not in told


def test_dumps_of_a_larger_job_before_are_left_out_and_count_for_no_missing_rank(tmp_path: Path) -> None:
    """The job of today has three ranks, and overwrote the dumps of three of the five of yesterday."""
    JobDumps(every(5, [*TURN * 3, Stop()], {3: TURN * 2}), timed=False).write(tmp_path)
    today = JobDumps(every(3, [*TURN * 4], {1: [*TURN * 3, Stop()]}), timed=False)
    for rank in range(3):
        later = _shifted(today.document(rank), DAY_NS)
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(later, protocol=2))
    found = verdict_on(tmp_path)
    assert blamed(found) == [1]
    assert "The dump of ranks 3-4 is of an earlier run, and is left out." in found.details
    assert evidence_files.sort_out([tmp_path]).queues.world_size == 3


def test_an_empty_dump_is_told(tmp_path: Path) -> None:
    JobDumps(every(4, [*TURN * 3, Stop()], {3: TURN * 4}), timed=False).write(tmp_path)
    (tmp_path / "nccl_trace_rank_2").write_bytes(b"")
    assert any(said.endswith("nccl_trace_rank_2: it is empty") for said in evidence_files.sort_out([tmp_path]).problems)
