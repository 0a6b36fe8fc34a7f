"""What ranks said last: evidence on the ranks that are awaited, and an end that went well."""

from __future__ import annotations

from pathlib import Path

from hangwatch.commands import evidence_files
from hangwatch.model import Verdict
from tests.dump_programs import TURN
from tests.dump_world import JobDumps, Stop, every
from tests.unit.logs.lines import gave_up, judged

DONE = "[rank1]: INFO train: done, exit code 0"
READS = "[rank1]: INFO data: opening shard 391"
AFTER = "[rank1]:[W1121 10:20:31 ProcessGroupNCCL.cpp:1250] WARNING: destroy_process_group() was not called"


def _told(folder: Path, name: str, *lines: str, silent: bool = True) -> Verdict:
    """Rank 1 of four comes no more; it leaves no dump if it is `silent`."""
    job = JobDumps(every(4, TURN * 4, {1: [*TURN * 3, Stop()]}), timed=False, silent=(1,) if silent else ())
    job.write(folder)
    (folder / name).write_text("\n".join(lines) + "\n")
    found = evidence_files.sort_out([folder]).assessment.judgement
    assert found is not None
    assert [each.rank for each in found.verdict.culprits] == [1]
    return found.verdict


def test_a_rank_that_says_that_it_exits_with_code_0_left_its_loop(tmp_path: Path) -> None:
    found = _told(tmp_path, "train.log", READS, DONE, AFTER, gave_up(0, 13))
    assert (found.cause, found.certainty) == ("early-exit", "likely")
    assert "Rank 1 says in the last output that it exits with code 0" in found.summary
    assert "the last output of rank 1: INFO train: done, exit code 0" in found.evidence
    assert all(each.cause != "rank-died" for each in found.alternatives)


def test_what_a_rank_says_last_is_quoted_and_proves_nothing(tmp_path: Path) -> None:
    found = _told(tmp_path, "train.log", DONE, READS, gave_up(0, 13))
    assert found.cause == "undetermined"
    assert "the last output of rank 1: INFO data: opening shard 391" in found.evidence


def test_a_rank_that_left_a_dump_had_not_ended_then(tmp_path: Path) -> None:
    found = _told(tmp_path, "train.log", DONE, gave_up(0, 13), silent=False)
    assert found.cause == "undetermined"


def test_the_log_of_one_rank_needs_no_prefix(tmp_path: Path) -> None:
    found = _told(tmp_path, "rank1.log", "Uploading model.safetensors", "frame #0: c10::Error", silent=False)
    assert "the last output of rank 1: Uploading model.safetensors" in found.evidence


def test_a_rank_that_speaks_and_has_no_line_of_the_watchdog_is_the_one_that_did_not_come(tmp_path: Path) -> None:
    steps = [f"rank {rank}: step {step} loss 0.5" for step in range(2) for rank in range(4)]
    lines = [*steps, "rank 3: start rebuilding the index", *(gave_up(rank, 81) for rank in range(3))]
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    assert [each.rank for each in found.verdict.culprits] == [3]
    assert "the last output of rank 3: start rebuilding the index" in found.verdict.evidence
    # BUT a number that stands alone at the begin of a line makes no rank
    found = judged(tmp_path, "\n".join(["rank 9: is not mine", *(gave_up(rank, 81) for rank in range(3))])).judgement
    assert found is not None
    assert not found.verdict.culprits
