"""Ranks that failed for want of another: none of them is blamed."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.judge import diagnose
from hangwatch.model import (
    Collectives,
    ExceptionFacts,
    GroupHead,
    Phase,
    ProcessFacts,
    Progress,
    RankEvidence,
    Status,
    StepEntry,
)
from tests.unit.job import IN_STORE, NOW, blamed, gone, judge
from tests.unit.job import told as said
from tests.unit.rules.step.aborts import WATCHDOG, calls, dead
from tests.unit.rules.step.worlds import changed, error, with_error, world
from tests.unit.simulator import Call, Die, Leave, blamed_ranks


def watched(number: int, issued: int, code: int = -6, output: str = "") -> RankEvidence:
    found = gone(number, code, Phase.STEP, evidence={"last_output": output})
    heads = (GroupHead("0", (0, 1), "", "nccl", issued, min(issued, 11)),)
    assert found.reading is not None
    return replace(found, reading=replace(found.reading, heads=heads), collectives=Collectives(heads))


def test_the_rank_that_never_enqueued_the_number_is_named_and_the_aborted_one_is_a_victim() -> None:
    judgement = judge(watched(0, 12, output=WATCHDOG.format(rank=0)), watched(1, 11, -15))
    assert said(judgement) == ("undetermined", "likely", "failed")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert judgement.verdict.victims == (0,)
    assert "ALLREDUCE 12 did not complete within 10 min; rank 1 never called it" in judgement.verdict.summary


def test_where_most_never_enqueued_it_none_of_them_is_named() -> None:
    """Rank 0 may be alone in a call that no other rank ever comes to."""
    group = GroupHead("0", (0, 1, 2, 3), "", "nccl", 11, 11)
    ranks = []
    for number in range(4):
        heads = (replace(group, issued=12 if number == 0 else 11),)
        found = watched(number, 11, -15 if number else -6, WATCHDOG.format(rank=0) if number == 0 else "")
        assert found.reading is not None
        ranks.append(replace(found, reading=replace(found.reading, heads=heads), collectives=Collectives(heads)))
    judgement = judge(*ranks)
    assert said(judgement) == ("undetermined", "undetermined", "failed")
    assert blamed(judgement) == []
    assert "ranks 1-3 never called it" in judgement.verdict.summary


def test_where_all_had_enqueued_it_no_rank_is_named() -> None:
    judgement = judge(*(watched(number, 12, output=WATCHDOG.format(rank=number)) for number in (0, 1)))
    assert blamed(judgement) == []
    assert "which rank it waited for is not known" in judgement.verdict.summary


def test_a_failure_after_an_unexplained_end_blames_no_rank() -> None:
    snapshot = world([Call(line=12)], [Leave(), Die(0)])
    closed = replace(error("Connection reset by peer", fatal=True), type="RuntimeError")
    snapshot = changed(snapshot, 0, with_error(closed))
    snapshot = changed(snapshot, 0, lambda e: replace(e, process=ProcessFacts(4000, "X", exit_code=1), stacks=()))
    ended = ProcessFacts(4001, "X", exit_code=0)
    judgement = diagnose(changed(snapshot, 1, lambda e: replace(e, process=ended, stacks=())))
    assert blamed_ranks(judgement) == []
    assert judgement.status is Status.FAILED


def test_how_the_ranks_had_differed_before_is_told_where_no_side_is_known_to_be_wrong() -> None:
    """In step 4 ranks 0 and 2 issued one call more than ever before."""
    entries = []
    for number in range(3):
        counts = [2 * step + (number != 1 and step > 4) for step in range(7)]
        steps = tuple(
            StepEntry(step, None, None, None, NOW - 50 + step, {"0": count}) for step, count in enumerate(counts)
        )
        found = dead(number, calls(6), -15 if number else -6, inside=not number)
        heads = (GroupHead("0", (0, 1, 2), "", "gloo", counts[-1] + 1, counts[-1]),)
        assert found.reading is not None
        reading = replace(found.reading, heads=heads, steps=steps, progress=Progress(step=6))
        entries.append(replace(found, reading=reading, collectives=Collectives(heads)))
    judgement = judge(*entries, world_size=3)
    assert said(judgement) == ("undetermined", "undetermined", "failed")
    assert blamed(judgement) == []
    differed = "in step 4, rank 1 issued 2 and ranks 0 and 2 issued 3 collectives in group 0 and differ in"
    differed += " all_reduce (train.py:24)"
    assert f"before that, {differed}: which side is wrong is not known" in judgement.verdict.summary
    assert differed in judgement.verdict.evidence


def test_a_rank_that_found_the_address_of_one_that_has_ended_is_told_so() -> None:
    """As after a restart, where the store still has what the earlier attempt wrote."""
    refused = "Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: SO_ERROR: Connection refused,"
    error = ExceptionFacts("RuntimeError", f"{refused} remote=[127.0.0.1]:35756", IN_STORE, at=NOW - 12)
    first = gone(0, 1, Phase.INIT, exception=error)
    judgement = judge(first, gone(1, -15, Phase.INIT, evidence={"ended_at": NOW - 11}))
    assert said(judgement) == ("undetermined", "undetermined", "failed")
    assert "Rank 0 could not connect to [127.0.0.1]:35756" in judgement.verdict.summary
    assert "it is the address of a rank that has ended" in judgement.verdict.summary
