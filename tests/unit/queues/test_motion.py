"""A job that moves leaves records like those of a hang, and files that were copied do not tell their moment."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hangwatch.commands import evidence_files
from hangwatch.model import Judgement, Status
from hangwatch.queues import Queues, motion
from hangwatch.queues.model import Communicator
from hangwatch.queues.stuck import floor_of
from tests.dump_world import START

MS = 1_000_000
STEP_MS = 1_000
YEAR_NS = 365 * 86_400 * 10**9


@dataclass
class Record:
    """What one rank has recorded: so many calls, of which so many are complete, each of which took it `waits_ms`."""

    enqueued: int
    completed: int
    waits_ms: int = 5
    started: bool = False  # its device has begun the first call that is not complete
    timed: bool = False  # it has start events: of each complete call the start is told by itself

    def entries(self) -> list[dict[str, Any]]:
        return [self._entry(number) for number in range(1, self.enqueued + 1)]

    def _entry(self, number: int) -> dict[str, Any]:
        made = START + number * STEP_MS * MS - self.waits_ms * MS
        done = number <= self.completed
        begun = (self.started and number <= self.completed + 1) or (self.timed and done)
        ended = made + self.waits_ms * MS
        return {
            "record_id": number - 1,
            "pg_id": 0,
            "process_group": ("0", "default_pg"),
            "collective_seq_id": number,
            "p2p_seq_id": 0,
            "profiling_name": "nccl:all_reduce",
            "input_sizes": [[64]],
            "output_sizes": [[64]],
            "frames": [{"name": "step", "filename": "/home/mia/train.py", "line": 61}],
            "time_created_ns": made,
            "time_discovered_started_ns": made + MS if begun else None,
            "time_discovered_completed_ns": ended if done else None,
            "state": "completed" if done else "started" if begun else "scheduled",
            "retired": done,
            "is_p2p": False,
        }


def _document(record: Record, ranks: int) -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    return {"version": "2.10", "entries": record.entries(), "pg_config": config, "pg_status": {}}


def _write(document: dict[str, Any], folder: Path, rank: int) -> None:
    """A file that was copied long after the job."""
    path = folder / f"nccl_trace_rank_{rank}"
    path.write_bytes(pickle.dumps(document))
    os.utime(path, ns=(START + YEAR_NS,) * 2)


def _judged(records: Sequence[Record], folder: Path) -> Judgement | None:
    for rank, record in enumerate(records):
        _write(_document(record, len(records)), folder, rank)
    return evidence_files.sort_out([folder]).assessment.judgement


def test_ranks_whose_calls_others_have_seen_complete_were_at_work(tmp_path: Path) -> None:
    assert _judged([Record(40, done) for done in (30, 32, 33, 30)], tmp_path) is None


def test_one_record_that_is_older_is_no_sign_of_a_job_that_moves(tmp_path: Path) -> None:
    """Its dump was written a moment before those of the others, which wait for a rank that never came."""
    records = [Record(40, 39) for _ in range(8)]
    records[5], records[2] = Record(40, 37), Record(39, 39)
    found = _judged(records, tmp_path)
    assert found is not None
    assert found.status is Status.HUNG
    assert [culprit.rank for culprit in found.verdict.culprits] == [2]


def test_an_awaited_rank_whose_calls_others_have_seen_complete_left_an_older_record(tmp_path: Path) -> None:
    records = [Record(40, 39) for _ in range(8)]
    records[2] = Record(39, 37)  # 38 and 39 cannot be complete elsewhere before its own device has them
    found = _judged(records, tmp_path)
    assert found is not None
    assert (found.status, found.verdict.culprits) == (Status.WAITING, ())
    assert any(
        each.startswith("Rank 2 has calls open that others have seen complete") for each in found.verdict.details
    )


@pytest.mark.parametrize(("minutes", "told"), [(9, True), (11, True), (20, False)])
def test_a_file_that_is_far_younger_than_a_timeout_of_its_calls_was_copied(
    minutes: int, told: bool, tmp_path: Path
) -> None:
    """torch gives up a call after its timeout, and writes its records then at the latest."""
    last = START + 40 * STEP_MS * MS
    for rank in range(4):
        document = _document(Record(40, 39), 4)
        for entry in document["entries"]:
            entry["timeout_ms"] = 600_000
        path = tmp_path / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(document))
        os.utime(path, ns=(last + minutes * 60 * 10**9,) * 2)
    found = evidence_files.sort_out([tmp_path]).assessment.judgement
    assert found is not None
    assert found.status is (Status.HUNG if told else Status.WAITING)
    assert any("had been waited for" in each for each in found.verdict.argument) is told
    assert any("these records do not tell" in each for each in found.verdict.details) is not told


@pytest.mark.parametrize("started", [True, False])
def test_hosts_at_unlike_calls_stand_in_no_common_wait(tmp_path: Path, started: bool) -> None:
    found = _judged([Record(ahead, 30, started=started) for ahead in (36, 40, 38, 33)], tmp_path)
    assert found is not None
    assert (found.status, found.verdict.culprits) == (Status.WAITING, ())
    assert any("unlike numbers of calls" in each for each in found.verdict.details)


@pytest.mark.parametrize(("started", "status"), [(True, Status.HUNG), (False, Status.WAITING)])
def test_a_call_to_which_all_came_may_be_on_its_way_unless_all_devices_are_in_it(
    tmp_path: Path, started: bool, status: Status
) -> None:
    """The hosts of a healthy job stand together behind it, too: each reads the loss of its step."""
    found = _judged([Record(36, 30, started=started) for _ in range(4)], tmp_path)
    assert found is not None
    assert (found.status, found.verdict.cause) == (status, "interconnect-stall")


def test_a_rank_that_was_late_each_time_before_may_be_no_more_than_slow(tmp_path: Path) -> None:
    records = [Record(31, 30, waits_ms=350) for _ in range(8)]
    records[6] = Record(30, 30)
    found = _judged(records, tmp_path)
    assert found is not None
    assert (found.status, found.verdict.culprits) == (Status.WAITING, ())
    assert "Rank 6 has not come to all_reduce 31" in found.verdict.summary
    assert (
        "in 30 of the last 30 such calls the others had waited longer than rank 6, by 0.3 s"
        in found.verdict.evidence[0]
    )


@pytest.mark.parametrize(("minutes", "status"), [(9, Status.WAITING), (13, Status.HUNG)])
def test_a_wait_as_long_as_those_of_earlier_rounds_is_no_hang(minutes: int, status: Status, tmp_path: Path) -> None:
    """A trainer computes for minutes, and the ranks that generate wait for its weights: by the dates of the files."""
    apart = 800_000 * MS  # of which the trainer computes most
    rounds = [Record(3, 2, waits_ms=700_000) for _ in range(4)]
    rounds[0] = Record(2, 2)
    for rank, record in enumerate(rounds):
        document = _document(record, len(rounds))
        for entry in document["entries"]:
            for time in ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns"):
                entry[time] = entry[time] and entry[time] + entry["collective_seq_id"] * apart
        _write(document, tmp_path, rank)
        open_since = START + 3 * (apart + STEP_MS * MS) - 700_000 * MS
        os.utime(tmp_path / f"nccl_trace_rank_{rank}", ns=(open_since + minutes * 60 * 1000 * MS,) * 2)
    found = evidence_files.sort_out([tmp_path]).assessment.judgement
    assert found is not None
    assert found.status is status
    if status is Status.WAITING:
        assert found.verdict.culprits == ()
        assert "in 2 of the last 2 such calls the others had waited longer than rank 0" in found.verdict.evidence[0]
        assert found.verdict.evidence[1] == "by the time of the files, this one had been open for 9 min"


def test_a_rank_that_was_never_late_before_is_awaited(tmp_path: Path) -> None:
    records = [Record(31, 30) for _ in range(8)]
    records[6] = Record(30, 30)
    found = _judged(records, tmp_path)
    assert found is not None
    assert found.status is Status.HUNG
    assert [culprit.rank for culprit in found.verdict.culprits] == [6]


def test_the_work_is_linear_in_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How far a group is complete takes a look at all of its ranks: it is asked once, and not for each of them."""
    asked: list[str] = []

    def counted(queues: Queues, group: Communicator) -> int:
        asked.append(group.name)
        return floor_of(queues, group)

    monkeypatch.setattr(motion, "floor_of", counted)
    assert _judged([Record(40, 30 + rank % 3) for rank in range(64)], tmp_path) is None
    assert len(asked) <= 2


@pytest.mark.parametrize("ranks", [3, 4])
def test_one_older_record_of_few_is_no_sign_either(tmp_path: Path, ranks: int) -> None:
    records = [Record(40, 39) for _ in range(ranks)]
    records[1], records[2] = Record(40, 37), Record(39, 39)
    found = _judged(records, tmp_path)
    assert found is not None
    assert (found.status, [culprit.rank for culprit in found.verdict.culprits]) == (Status.HUNG, [2])


def test_what_others_recorded_long_behind_a_call_tells_for_how_long_it_was_open(tmp_path: Path) -> None:
    """A rank was late each time before, by 0.35 s; now a heartbeat of the others has gone on for five minutes."""
    records = [Record(31, 30, waits_ms=350) for _ in range(8)]
    records[6] = Record(30, 30)
    beats = Record(331, 331).entries()[-1] | {"process_group": ("1", "beats"), "pg_id": 1, "collective_seq_id": 1}
    for rank, record in enumerate(records):
        document = _document(record, len(records))
        document["entries"] += [beats] if rank == 0 else []
        _write(document, tmp_path, rank)
    found = evidence_files.sort_out([tmp_path]).assessment.judgement
    assert found is not None
    assert (found.status, [culprit.rank for culprit in found.verdict.culprits]) == (Status.HUNG, [6])


def test_a_call_that_no_timed_device_has_begun_waits_for_what_they_compute(tmp_path: Path) -> None:
    found = _judged([Record(36, 30, timed=True) for _ in range(4)], tmp_path)
    assert found is not None
    assert found.status is Status.WAITING
    assert any("none has begun it" in each for each in found.verdict.details)


def _message(number: int, source: int, target: int, *, sends: bool, done: bool) -> dict[str, Any]:
    ends = f"send {source}->{target}" if sends else f"recv {target}<-{source}"
    entry = Record(number, number if done else number - 1).entries()[-1]
    numbers = {"collective_seq_id": 0, "p2p_seq_id": number, "is_p2p": True}
    return entry | numbers | {"profiling_name": f"nccl:{ends}"}


@pytest.mark.parametrize(("stages", "status"), [(1, Status.HUNG), (4, Status.WAITING)])
def test_many_ranks_that_are_awaited_in_messages_at_once_are_at_work(
    tmp_path: Path, stages: int, status: Status
) -> None:
    """GIVEN pairs of ranks that have passed messages; of so many pairs the first one waits to pass the next."""
    for rank in range(8):
        source, target, sends = rank % 4, rank % 4 + 4, rank < 4
        made = [_message(number, source, target, sends=sends, done=True) for number in (1, 2)]
        if sends and rank < stages:
            made.append(_message(3, source, target, sends=True, done=False))
        _write(_document(Record(0, 0), 8) | {"entries": made}, tmp_path, rank)
    found = evidence_files.sort_out([tmp_path]).assessment.judgement
    assert found is not None
    assert found.status is status
    assert bool(found.verdict.culprits) is (status is Status.HUNG)
