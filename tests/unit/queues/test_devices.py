"""What all ranks have enqueued: only what was recorded is said to be alike; and the majority that has not come."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from hangwatch.commands import evidence_files
from hangwatch.model import Status, Verdict
from tests.dump_programs import TURN
from tests.dump_world import Call, JobDumps, Step, StuckKernel, Sync, every

GAVE_UP = (
    "[rank{rank}]:[E1122 15:10:00.1 ProcessGroupNCCL.cpp:1882] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a"
    " dump signal due to a collective timeout from  rank 0 and we will try our best to dump the debug info. Last"
    " enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}."
)


def verdict(folder: Path) -> Verdict:
    found = evidence_files.sort_out([folder]).assessment.judgement
    assert found is not None
    assert found.status is Status.HUNG
    return found.verdict


def test_a_call_that_is_known_by_its_number_alone_is_not_called_alike(tmp_path: Path) -> None:
    programs = every(4, TURN * 4, {2: [*TURN * 3, StuckKernel(), *TURN]})
    JobDumps(programs, timed=False, silent=(2,)).write(tmp_path)
    (tmp_path / "train.log").write_text(GAVE_UP.format(rank=2, enqueued=16, completed=12) + "\n")
    found = verdict(tmp_path)
    assert "is enqueued by all of its ranks and completed on none" in found.summary
    assert "ranks 0-1 and 3: enqueued, not completed, the same operation, size and type" in found.evidence
    assert any(text.startswith("rank 2: enqueued, not completed, by the number alone") for text in found.evidence)
    assert not found.culprits


def test_where_each_call_is_recorded_all_are_alike(tmp_path: Path) -> None:
    JobDumps(every(4, TURN * 4, {2: [*TURN * 3, StuckKernel(), *TURN]}), timed=False).write(tmp_path)
    found = verdict(tmp_path)
    assert "is enqueued by all of its ranks, alike, and completed on none" in found.summary
    assert "ranks 0-3: enqueued, not completed, the same operation, size and type" in found.evidence


def test_a_majority_that_did_not_come_for_minutes_is_named_and_nothing_is_proven(tmp_path: Path) -> None:
    late = {rank: TURN * 3 for rank in range(8) if rank not in (0, 5)}
    JobDumps(every(8, TURN * 4, late)).write(tmp_path)
    found = verdict(tmp_path)
    assert [each.rank for each in found.culprits] == [1, 2, 3, 4, 6, 7]
    assert (found.cause, found.certainty) == ("undetermined", "undetermined")
    # AND they may all stand in the first call of a new group, of which no record is left yet
    assert "ranks 0 and 5 may have left out a call in which ranks 1-4 and 6-7 wait" in found.alternatives[0].why_not


def test_of_two_ranks_without_a_habit_both_are_named(tmp_path: Path) -> None:
    """One made a call more, or the other one a call less: the records of two ranks do not tell which."""
    first: list[Step] = [Call("all_reduce", 20, 8), Call("all_reduce", 30, 16), Sync(), *TURN, *TURN]
    JobDumps({0: first, 1: first[1:]}).write(tmp_path)
    found = verdict(tmp_path)
    assert sorted(each.rank or 0 for each in found.culprits) == [0, 1]
    assert found.certainty == "undetermined"
    assert "nothing tells which of them left a call out, or added one" in found.summary


def _slow(rank: int = 0, written_after_s: float | None = 30.0, **options: object) -> JobDumps:
    job = JobDumps(every(4, TURN * 4, {rank: TURN * 3}), **options)  # type: ignore[arg-type]
    job.written_after_s = written_after_s
    return job


def test_a_rank_that_others_have_awaited_for_half_a_minute_may_be_at_work(tmp_path: Path) -> None:
    _slow().write(tmp_path)
    found = evidence_files.sort_out([tmp_path]).assessment.judgement
    assert found is not None
    assert found.status is Status.WAITING
    assert not found.verdict.culprits
    assert found.verdict.hang is None
    assert any("had been open for 30 s" in text for text in found.verdict.details)
    assert found.verdict.waits[0].awaited == (0,)


@pytest.mark.parametrize("options", [{"written_after_s": 300.0}, {"written_after_s": None}, {"given_up": True}])
def test_it_is_hung_where_torch_gave_it_up_or_patience_ran_out(options: dict[str, object], tmp_path: Path) -> None:
    _slow(**options).write(tmp_path)  # type: ignore[arg-type]
    assert [each.rank for each in verdict(tmp_path).culprits] == [0]


def test_a_short_timeout_of_torch_is_no_sign_of_work(tmp_path: Path) -> None:
    """With a timeout of 20 s torch writes its dumps after 20 s, and then the job is hung."""
    job = _slow(written_after_s=20.5)
    for rank, document in job.documents().items():
        path = tmp_path / f"nccl_trace_rank_{rank}"
        entries = [{**each, "timeout_ms": 20_000} for each in document["entries"]]
        path.write_bytes(pickle.dumps({**document, "entries": entries}, protocol=2))
        os.utime(path, ns=(job.written_ns(),) * 2)
    assert [each.rank for each in verdict(tmp_path).culprits] == [0]


def test_of_a_job_that_has_nothing_open_it_is_said_how_long_nothing_completed(tmp_path: Path) -> None:
    """A kernel of a rank's own behind the last collective is in no record."""
    job = JobDumps(every(4, TURN * 4, {2: [*TURN * 4, StuckKernel(), Sync()]}))
    job.written_after_s = 600.0
    job.write(tmp_path)
    found = evidence_files.sort_out([tmp_path]).assessment
    assert found.judgement is None
    assert any("the last of them completed 10 min before the dumps were written" in text for text in found.sentences)


def test_where_one_rank_has_no_start_events_those_of_the_others_are_told(tmp_path: Path) -> None:
    """GIVEN rank 2, which records no starts, and whose device has not come to a call THEN nobody is said to be held."""
    programs = every(4, TURN * 4, {2: [*TURN * 3, StuckKernel(), *TURN]})
    for timed in (True, False):
        JobDumps(programs, timed=timed, silent=(2,) if timed else (0, 1, 3)).write(tmp_path)
    found = verdict(tmp_path)
    assert found.summary.endswith(
        "the devices of ranks 0-1 and 3 started it, and without start events it is not known of the others."
    )
    assert not found.culprits


def test_what_a_record_no_longer_holds_may_be_before_a_call(tmp_path: Path) -> None:
    """A host that ran on has overwritten the receive in which its device waits: no kernel of its own is to blame."""
    ahead: list[Step] = [Call("send", 420, 8, peer=0), Call("recv", 421, 8, peer=0)] * 12
    first: list[Step] = [Call("recv", 410, 8, peer=1), Call("send", 411, 8, peer=1)]
    programs: dict[int, list[Step]] = {0: [*TURN, *first, Sync()], 1: [*TURN, Call("recv", 412, 8, peer=0), *ahead]}
    JobDumps(programs, window=20).write(tmp_path)
    found = verdict(tmp_path)
    assert (found.cause, found.certainty, found.culprits) == ("undetermined", "undetermined", ())
    assert found.summary.endswith("the record of rank 1 does not show what is before it there.")


@pytest.mark.parametrize("timed", [False, True])
def test_start_events_tell_of_a_held_device_where_another_rank_left_no_record(timed: bool, tmp_path: Path) -> None:
    """Rank 2's device has not started what ranks 1 and 3 have: that is its own, whatever rank 0 does."""
    programs = every(4, TURN * 4, {2: [*TURN * 3, StuckKernel(), *TURN]})
    JobDumps(programs, timed=timed, silent=(0,)).write(tmp_path)
    found = verdict(tmp_path)
    assert [each.rank for each in found.culprits] == [2 if timed else 0]
    assert found.cause == ("device-stall" if timed else "undetermined")
    assert "All ranks whose dump tells of it have enqueued" in found.summary


def test_a_device_whose_call_is_not_recorded_is_not_said_to_be_held_by_a_kernel_of_its_own(tmp_path: Path) -> None:
    """What is before the call on that rank is not known where its place is not."""
    programs = every(4, TURN * 4, {2: [*TURN * 3, StuckKernel(), *TURN]})
    job = JobDumps(programs)
    documents = job.documents()
    del documents[2]["entries"][12]  # the one that the others have started
    job.documents = lambda: documents  # type: ignore[method-assign]
    job.write(tmp_path)
    found = verdict(tmp_path)
    assert (found.cause, found.certainty) == ("undetermined", "undetermined")
    assert "does not show what is before it there" in found.summary


@pytest.mark.parametrize(
    ("timed", "said"),
    [(True, "; the device of rank 1 has not started it"), (False, ", and neither is complete; without start events")],
)
def test_of_a_message_each_rank_has_enqueued_its_own_end(timed: bool, said: str, tmp_path: Path) -> None:
    stuck: list[Step] = [Call("all_reduce", 20, 64), Sync(), *([StuckKernel()] if timed else [])]
    programs: dict[int, list[Step]] = {
        0: [*stuck[:2], Call("send", 30, 64, "pp", peer=1)],
        1: [*stuck, Call("recv", 40, 64, "pp", peer=0)],
    }
    broken = {} if timed else {"pp": 1}
    JobDumps(programs, {"pp": (0, 1)}, timed=timed, broken=broken).write(tmp_path)
    found = verdict(tmp_path)
    ends = "Rank 0 has enqueued its send of group 1 (pp) (train.py:30) and rank 1 has enqueued its recv of group 1 (pp)"
    assert found.summary.startswith(f"{ends} (train.py:40){said}")
    assert not any("the same operation" in each for each in found.evidence)


def test_a_barrier_with_tensors_of_unlike_types_is_not_the_same_call_on_all_ranks(tmp_path: Path) -> None:
    """GIVEN a call whose type need not agree by what it is, WHEN the recorded types differ, THEN that is said."""
    head: list[Step] = [*TURN * 3]
    usual, other = (Call("all_reduce_barrier", 30, 1, dtype=name) for name in ("Float", "Double"))
    JobDumps(every(4, [*head, usual, Sync()], {1: [*head, other, Sync()]})).write(tmp_path)
    found = verdict(tmp_path)
    assert (found.cause, found.certainty) == ("interconnect-stall", "undetermined")
    assert "the same operation, in unlike types, and none completes it" in found.summary
    assert "the calls differ: ranks 0 and 2-3 give float32 and rank 1 gives float64" in found.summary
    assert "collective-mismatch" in [each.cause for each in found.alternatives]
