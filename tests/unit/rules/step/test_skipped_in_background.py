"""A saver's thread ends every save with a barrier, and one rank has saved once less."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Certainty, Frame, Snapshot, ThreadStack
from hangwatch.report.incident import snapshot_of
from scripts import judged

SKIPPED = 2


def _stuck() -> Snapshot:
    return snapshot_of([judged.incident("p33-async-best-commit")])


def _with_thread(snapshot: Snapshot, *frames: Frame) -> Snapshot:
    """The rank with fewer saves has another thread, which stands in `frames`."""
    stack = ThreadStack(77, "saver_1", frames)
    ranks = (
        replace(each, stacks=(*each.stacks, stack), earlier_stacks=(*each.earlier_stacks, stack))
        if each.rank == SKIPPED
        else each
        for each in snapshot.ranks
    )
    return replace(snapshot, ranks=tuple(ranks))


def test_the_rank_with_fewer_saves_is_named() -> None:
    """The thread of its executor waits for a task, which no thread is left to give it: so the hang is proven."""
    verdict = diagnose(_stuck()).verdict
    assert (verdict.cause, verdict.certainty) == ("skipped-collective", Certainty.LIKELY)
    assert verdict.hang is Certainty.PROVEN
    assert [who.rank for who in verdict.culprits] == [SKIPPED]
    assert "rank 2 has made 3 calls in group 1, and ranks 0-1 and 3 one more" in verdict.evidence


def test_a_thread_that_still_writes_may_come_to_the_barrier() -> None:
    saving = Frame("/srv/async_best.py", 28, "_write")
    verdict = diagnose(_with_thread(_stuck(), saving)).verdict
    assert verdict.cause != "skipped-collective"
    assert verdict.hang is not Certainty.PROVEN


def test_a_timer_may_give_an_idle_executor_a_task() -> None:
    """Then that the executor has none proves nothing."""
    waiting = Frame("/usr/lib/python3.11/threading.py", 1385, "run")
    assert diagnose(_with_thread(_stuck(), waiting)).verdict.hang is not Certainty.PROVEN


def test_rank_0_is_named_as_any_other() -> None:
    """The order in which the waits of ranks are looked at tells nothing."""
    stuck = _stuck()
    turned = replace(stuck, ranks=tuple(sorted(stuck.ranks, key=lambda each: each.rank != SKIPPED)))
    assert [who.rank for who in diagnose(turned).verdict.culprits] == [SKIPPED]


def test_a_rank_in_a_later_step_has_gone_by_the_save() -> None:
    evidence = diagnose(snapshot_of([judged.incident("p46-congested-async-save")])).verdict.evidence
    assert "rank 1 has made 18 calls in group 1, and ranks 0 and 2 one more" in evidence
    assert "rank 1 is in a later step" in evidence


@pytest.mark.parametrize(("step", "told"), [(20, True), (19, False)])
def test_a_rank_at_a_call_of_every_step_has_gone_by_a_save_that_was_due_long_ago(step: int, *, told: bool) -> None:
    """GIVEN saves whose calls came up to four steps later on one rank, and one that the others made in step 15."""
    stuck = snapshot_of([judged.incident("saves-behind-a-backlog")])
    at = [
        replace(each.reading, progress=replace(each.reading.progress, step=step))
        for each in stuck.ranks
        if each.reading
    ]
    ranks = tuple(replace(each, reading=reading) for each, reading in zip(stuck.ranks, at, strict=True))
    verdict = diagnose(replace(stuck, ranks=ranks)).verdict
    assert (verdict.cause == "skipped-collective") is told, verdict.summary
    if told:
        assert [(who.rank, who.where and who.where.line) for who in verdict.culprits] == [(2, 23)]
