"""What torch says of calls that it compared before they were made."""

from __future__ import annotations

from pathlib import Path

from hangwatch.model import Verdict
from tests.unit.logs.lines import judged
from tests.unit.logs.test_own_words import trace

TENSOR = "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, layout=Strided (default))"


def call(rank: int, op: str, shape: str) -> str:
    print_of = f"SequenceNumber=12, OpType={op}, TensorShape=[{shape}], TensorDtypes=Float, {TENSOR}"
    return f"Rank {rank} is running collective: CollectiveFingerPrint({print_of})"


def mismatch(rank: int, own: str, other: str) -> str:
    text = f"Detected mismatch between collectives on ranks. {own}, but {other}.Collectives differ in the following"
    return trace(rank, f"RuntimeError: {text} aspects: \t Op type: x")


def told(tmp_path: Path, *lines: str) -> Verdict:
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    return found.verdict


def test_both_ranks_of_one_report_are_told_of_and_the_reporter_alone_is_not_blamed(tmp_path: Path) -> None:
    found = told(tmp_path, mismatch(2, call(2, "ALLREDUCE", "10"), call(0, "BROADCAST", "44")))
    assert (found.cause, found.certainty) == ("collective-mismatch", "undetermined")
    assert {each.rank for each in found.culprits} == {0, 2}
    assert found.summary.startswith("The ranks call different collectives as number 12: rank 0 calls broadcast of [44]")


def test_the_one_that_calls_unlike_all_others_is_blamed(tmp_path: Path) -> None:
    odd = call(3, "ALLREDUCE", "1")
    reports = [mismatch(rank, call(rank, "ALLREDUCE", "1000"), odd) for rank in range(3)]
    found = told(tmp_path, *reports, mismatch(3, odd, call(0, "ALLREDUCE", "1000")))
    assert (found.certainty, [each.rank for each in found.culprits]) == ("likely", [3])
    assert found.victims == (0, 1, 2)
    assert "give all_reduce different sizes or types as number 12" in found.summary


def test_another_failure_beside_it_comes_first(tmp_path: Path) -> None:
    report = mismatch(2, call(2, "ALLREDUCE", "10"), call(0, "BROADCAST", "44"))
    assert told(tmp_path, report, trace(1, "ValueError: bad")).cause == "exception-on-one-rank"


def test_places_within_a_group_are_told_as_the_ranks_of_the_job(tmp_path: Path) -> None:
    odd, other = call(3, "ALLGATHER", "4"), call(0, "ALLREDUCE", "4")
    reports = [mismatch(4 + place, call(place, "ALLREDUCE", "4"), odd) for place in range(3)]
    found = told(tmp_path, *reports, mismatch(7, odd, other))
    assert ([each.rank for each in found.culprits], found.victims) == ([7], (4, 5, 6))
    assert "ranks 4-6 call all_reduce of [4] float" in found.summary


def test_none_is_named_where_a_place_of_the_group_is_no_known_rank(tmp_path: Path) -> None:
    reports = [mismatch(4 + place, call(place, "ALLREDUCE", "4"), call(3, "ALLGATHER", "4")) for place in range(3)]
    found = told(tmp_path, *reports)
    assert (found.cause, found.certainty, found.culprits) == ("collective-mismatch", "undetermined", ())
    assert "rank 3 of the group calls all_gather" in found.summary
    assert found.victims == (4, 5, 6)


def test_none_is_named_where_reporters_are_of_two_groups(tmp_path: Path) -> None:
    odd = call(1, "ALLGATHER", "4")
    assert not told(tmp_path, *(mismatch(rank, call(0, "ALLREDUCE", "4"), odd) for rank in (2, 4))).culprits


def test_the_last_line_of_a_traceback_tells_as_much_alone(tmp_path: Path) -> None:
    """A filter on errors leaves no more of it."""
    odd = call(3, "ALLREDUCE", "1")
    reports = [mismatch(rank, call(rank, "ALLREDUCE", "1000"), odd) for rank in range(3)]
    whole = "\n".join((*reports, mismatch(3, odd, call(0, "ALLREDUCE", "1000"))))
    alone = [line for line in whole.splitlines() if "Detected mismatch" in line]
    assert [each.rank for each in told(tmp_path, *alone).culprits] == [3]
    assert told(tmp_path, whole).summary.replace(" (train.py:42)", "") == told(tmp_path, *alone).summary


def test_such_a_line_behind_which_the_rank_goes_on_was_caught(tmp_path: Path) -> None:
    """A program that writes what it caught, in torch's own manner."""
    steps = [f"[rank1]: step {step}" for step in range(20)]
    assert judged(tmp_path, "\n".join(("[rank1]: ValueError: bad sample", *steps))).judgement is None
