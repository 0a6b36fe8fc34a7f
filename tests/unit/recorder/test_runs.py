"""A folder with dumps of two runs: those of the earlier one are left out, and said to be."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from hangwatch import words
from hangwatch.commands import evidence_files
from hangwatch.queues import unmoved_s
from tests.dump_programs import TURN
from tests.dump_verdicts import blamed, verdict_on
from tests.dump_world import START, Call, JobDumps, Stop, every

DAY_NS = 86_400 * 10**9
HOUR_NS = 3600 * 10**9
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


def _slower(document: dict[str, Any], share: float) -> dict[str, Any]:
    """The same calls in a run that took longer for them."""
    keys = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
    entries = [
        {**each, **{key: each[key] + int((each[key] - START) * share) for key in keys if each[key] is not None}}
        for each in document["entries"]
    ]
    return {**document, "entries": entries}


def _two_hosts(folder: Path, by_ns: int, slower: float = 0.0) -> None:
    """Ranks 2 and 3 of four are on a host of another clock, or of another run; rank 1 stops in the last turn."""
    job = JobDumps(every(4, TURN * 6, {1: [*TURN * 5, Stop()]}), timed=False)
    job.write(folder)
    for rank in (2, 3):
        path = folder / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(_shifted(_slower(job.document(rank), slower), by_ns), protocol=2))
        at = job.written_ns() + by_ns
        os.utime(path, ns=(at, at))


@pytest.mark.parametrize("by_ns", [-HOUR_NS, -5 * MINUTE_NS, -MINUTE_NS // 2, 3 * MINUTE_NS, HOUR_NS])
def test_clocks_of_nodes_may_differ(by_ns: int, tmp_path: Path) -> None:
    """One difference fits all calls: the dumps are of one run, and the difference is taken away."""
    _two_hosts(tmp_path, by_ns)
    queues = evidence_files.sort_out([tmp_path]).queues
    assert queues.earlier == ()
    assert {rank: round((clock.ahead_ns - by_ns) / 1e9) for rank, clock in queues.clocks.items()} == {2: 0, 3: 0}
    assert unmoved_s(queues) == pytest.approx(600, abs=5)
    found = verdict_on(tmp_path)
    assert blamed(found) == [1]
    way = "ahead of" if by_ns > 0 else "behind"
    said = f"The clocks of ranks 2-3 are {words.duration(abs(by_ns) / 1e9)} {way} those of the other ranks"
    assert any(each.startswith(said) for each in found.details)


@pytest.mark.parametrize("by_ns", [-HOUR_NS, -5 * MINUTE_NS, 5 * MINUTE_NS])
def test_another_run_takes_other_times_for_the_same_calls(by_ns: int, tmp_path: Path) -> None:
    _two_hosts(tmp_path, by_ns, slower=0.05)
    queues = evidence_files.sort_out([tmp_path]).queues
    assert queues.earlier == ((2, 3) if by_ns < 0 else (0, 1))
    assert not queues.clocks


def test_a_difference_of_days_is_no_clock(tmp_path: Path) -> None:
    _two_hosts(tmp_path, -DAY_NS)
    assert evidence_files.sort_out([tmp_path]).queues.earlier == (2, 3)


def test_a_record_that_stood_in_a_call_which_others_completed_is_of_another_run(tmp_path: Path) -> None:
    """Even where the calls before it took as long as those of today."""
    JobDumps(every(4, TURN * 6, {1: [*TURN * 5, Stop()]}), timed=False).write(tmp_path)
    old = JobDumps(every(4, TURN * 6, {1: [*TURN * 3, Stop()]}), timed=False)
    path = tmp_path / "nccl_trace_rank_3"
    path.write_bytes(pickle.dumps(_shifted(old.document(3), -HOUR_NS), protocol=2))
    at = old.written_ns() - HOUR_NS
    os.utime(path, ns=(at, at))
    assert evidence_files.sort_out([tmp_path]).queues.earlier == (3,)


def test_ends_that_one_rank_discovers_late_are_no_clock(tmp_path: Path) -> None:
    """Its watchdog's thread was kept from looking, and its calls were made when those of the others were."""
    job = JobDumps(every(4, TURN * 6, {1: [*TURN * 5, Stop()]}), timed=False)
    job.write(tmp_path)
    document = job.document(2)
    for entry in document["entries"]:
        if entry["state"] == "completed":
            entry["time_discovered_completed_ns"] += 20 * 10**9
    (tmp_path / "nccl_trace_rank_2").write_bytes(pickle.dumps(document, protocol=2))
    queues = evidence_files.sort_out([tmp_path]).queues
    assert (queues.earlier, queues.clocks) == ((), {})


def test_a_clock_that_few_calls_tell_of_is_doubted(tmp_path: Path) -> None:
    """The records are used, and the verdict says that they may be of another run."""
    job = JobDumps(every(2, [Call("all_reduce", 5, 64)] * 4, {1: [*[Call("all_reduce", 5, 64)] * 3, Stop()]}))
    job.write(tmp_path)
    behind = _shifted(job.document(1), -10 * MINUTE_NS)
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps(behind, protocol=2))
    found = verdict_on(tmp_path)
    assert any("or the dump is of another run (few calls tell)" in said for said in found.details)


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
    assert "those of ranks 0-2 are of an earlier run" in told
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
    assert "The dumps of ranks 3-4 are of an earlier run, and are left out." in found.details
    assert evidence_files.sort_out([tmp_path]).queues.world_size == 3


def test_an_empty_dump_is_told(tmp_path: Path) -> None:
    JobDumps(every(4, [*TURN * 3, Stop()], {3: TURN * 4}), timed=False).write(tmp_path)
    (tmp_path / "nccl_trace_rank_2").write_bytes(b"")
    assert any(said.endswith("nccl_trace_rank_2: it is empty") for said in evidence_files.sort_out([tmp_path]).problems)
