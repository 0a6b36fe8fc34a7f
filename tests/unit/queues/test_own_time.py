"""Dumps that tell when they were made: files that were copied keep that, and lose their dates."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from hangwatch.commands import evidence_files
from hangwatch.model import Judgement, Status
from hangwatch.queues import Queues, assess
from hangwatch.recorder import QueueReader
from tests.dump_programs import BUCKETS, LOSS, soon
from tests.dump_world import WORLD, JobDumps, Join, Step, Stop, every

NS = 10**9
LOOK_NS = 4_000  # between the two events of one call
TIMES = ("time_discovered_started_ns", "time_discovered_completed_ns")
YEAR_S = 365 * 86_400.0


def as_torch(document: dict[str, Any], made_ns: int) -> dict[str, Any]:
    """With the times that torch gives: a start is discovered with the end of its call, or else by the dump."""
    for entry in document["entries"]:
        if entry["time_discovered_started_ns"]:
            ended = entry["time_discovered_completed_ns"]
            entry["time_discovered_started_ns"] = ended - LOOK_NS if ended else made_ns
    return document


def queues_of(job: JobDumps, after_s: float, dated_s: float | None = None) -> Queues:
    """Dumps made so long after the last event, with files of such dates."""
    reader, last = QueueReader(), job.written_ns() - int((job.written_after_s or 0.0) * NS)
    for rank, document in job.documents().items():
        dated = 0 if dated_s is None else last + int(dated_s * NS)
        reader.add(rank, as_torch(document, last + int(after_s * NS)), dated)
    return reader.queues()


def waiting_for_one(rank: int = 2) -> JobDumps:
    """Four ranks, of which one stops before the next call of the common loop."""
    turn: list[Step] = [*BUCKETS, Join(), *LOSS]
    programs = every(4, turn * 4)
    programs[rank] = [*(turn * 3), Stop()]
    return JobDumps(programs)


def judged(queues: Queues) -> Judgement | None:
    return assess(queues).judgement


@pytest.mark.parametrize("seed", range(30))
def test_a_copied_dump_of_a_job_that_runs_tells_that_its_calls_are_new(seed: int) -> None:
    choice = random.Random(seed)
    world = choice.choice((4, 8))
    programs = every(world, [*BUCKETS, Join(), *LOSS] * 4)
    job = soon(JobDumps(programs, meetings=choice.randint(1, world * 4)))
    assert judged(queues_of(job, 0.2, YEAR_S)) is None


def test_a_rank_that_has_not_come_yet_is_not_blamed_for_a_moment() -> None:
    assert judged(queues_of(waiting_for_one(), 0.3, YEAR_S)) is None
    found = judged(queues_of(waiting_for_one(), 40.0, YEAR_S))
    assert found is not None
    assert (found.status, found.verdict.culprits) == (Status.WAITING, ())
    assert any("y the times in the dumps, that call had been open for 40 s" in each for each in found.verdict.details)


@pytest.mark.parametrize("dated_s", [None, YEAR_S, 0.1])
def test_a_copied_dump_of_a_hang_tells_for_how_long_it_stood(dated_s: float | None) -> None:
    found = judged(queues_of(waiting_for_one(), 602.0, dated_s))
    assert found is not None
    assert found.status is Status.HUNG
    assert [each.rank for each in found.verdict.culprits] == [2]
    assert any("by the times in the dumps" in each and "10 min 2 s" in each for each in found.verdict.argument)


def test_the_dump_counts_and_not_a_date_that_a_copy_of_that_hour_has() -> None:
    """Ten minutes after the dumps were made somebody copied them: of a hang the files would have that date, too."""
    assert judged(queues_of(waiting_for_one(), 0.3, 602.0)) is None


def test_a_wait_that_no_timeout_ended_is_as_long_as_the_dump_says() -> None:
    """Of a file the same date would be that of a copy: torch gives up after ten minutes where it may."""
    found = judged(queues_of(waiting_for_one(), 7_200.0, 7_200.5))
    assert found is not None
    assert found.status is Status.HUNG
    assert any("2 h 0 min" in each for each in found.verdict.argument)


def test_a_recorder_that_marks_starts_by_itself_tells_no_time() -> None:
    """Each start was discovered as it happened; when the dump was made is not known."""
    reader, job = QueueReader(), waiting_for_one()
    for rank, document in job.documents().items():
        reader.add(rank, document)
    queues = reader.queues()
    assert queues.timed
    assert (queues.told, queues.written) == (frozenset(), {})
    found = judged(queues)
    assert found is not None
    assert found.status is Status.HUNG


def test_a_start_before_later_calls_of_its_rank_is_not_the_dumps_time() -> None:
    job = JobDumps(every(2, [*BUCKETS, Join(), *BUCKETS, *BUCKETS]), broken={WORLD: 4})
    document = as_torch(job.document(0), 1)
    for entry in document["entries"]:
        if entry["state"] == "started":
            entry["time_discovered_started_ns"] = document["entries"][-1]["time_created_ns"] - 2 * NS
    reader = QueueReader()
    reader.add(0, document)
    assert not reader.queues().told


def test_the_other_dumps_of_a_set_were_made_with_those_that_tell() -> None:
    """The awaited rank has started nothing, and its file is of another year."""
    queues = queues_of(waiting_for_one(), 30.0, YEAR_S)
    assert sorted(queues.told) == [0, 1, 3]
    assert sorted(queues.assumed) == [2]
    assert queues.written.keys() == queues.ranks
    assert len({*queues.written.values()}) == 1


def test_one_dump_that_was_made_later_makes_no_hang_of_what_the_others_show() -> None:
    """Of four dumps of a job that runs one was made 50 s after the others, and it alone tells when."""
    turn: list[Step] = [*BUCKETS, Join(), *LOSS]
    job, reader = JobDumps(every(4, turn * 4)), QueueReader()
    for rank, document in job.documents().items():
        *done, following = as_torch(document, 0)["entries"][: 3 * len(document["entries"]) // 4 + 1]
        waits = {"state": "scheduled", "retired": False} | dict.fromkeys(TIMES)
        if rank == 0:  # its dump was made first
            done[-1] |= waits
        made = following["time_created_ns"] + (50 * NS if rank == 3 else 0)
        begun = {"state": "started", TIMES[0]: made + NS} if rank == 3 else {}
        done.append(following | waits | {"time_created_ns": made} | begun)
        reader.add(rank, document | {"entries": done, "pg_status": {}})
    queues = reader.queues()
    assert sorted(queues.told) == [3]
    assert sorted(queues.assumed) == [0, 1, 2]
    found = judged(queues)
    assert found is not None
    assert (found.status, found.verdict.culprits) == (Status.WAITING, ())


def test_dates_that_agree_with_the_dumps_are_kept_for_those_that_do_not_tell() -> None:
    queues = queues_of(waiting_for_one(), 30.0, 31.0)
    assert queues.told == queues.ranks - {2}
    assert queues.written[2] - queues.written[0] == NS


def test_dumps_that_are_minutes_apart_do_not_tell_when_another_one_was_made() -> None:
    reader, job = QueueReader(), waiting_for_one()
    for rank, document in job.documents().items():
        reader.add(rank, as_torch(document, job.written_ns() + rank * 300 * NS))
    assert reader.queues().told == {0, 1, 3}


def test_files_of_a_folder_are_read_so(tmp_path: Path) -> None:
    job = waiting_for_one()
    for rank, document in job.documents().items():
        path = tmp_path / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(as_torch(document, job.written_ns()), protocol=2))
        os.utime(path, ns=(job.written_ns() + int(YEAR_S * NS),) * 2)
    found = evidence_files.sort_out([tmp_path]).assessment.judgement
    assert found is not None
    assert found.status is Status.HUNG
