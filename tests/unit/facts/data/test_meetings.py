"""Ray Train's `report` returns when all workers have called it: some went by it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Frame, RankEvidence, Snapshot
from tests.unit.simulator import SCRIPT, Action, Call, Draw, LoopEnd, Stall, World

CONTEXT = "/venv/lib/python3.12/site-packages/ray/train/v2/_internal/execution/context.py"
REPORT, LOOP = Frame(SCRIPT, 39, "loop"), Frame(SCRIPT, 60, "main")
MEETING = (Frame(CONTEXT, 254, "_sync_checkpoint_dir_name_across_ranks"), Frame(CONTEXT, 474, "report"), REPORT, LOOP)


def job(*ways: Bypass, meet: tuple[int, ...] = (0, 2), epoch: int = 1) -> Snapshot:
    """Ranks in `meet` report behind epoch 0; the others are in `epoch`."""

    def program(rank: int) -> list[Action]:
        made: list[Action] = []
        for batch in range(8):
            made += [Draw(0, batch), Call(via="gradients", line=18)]
        if rank in meet:
            return [*made, LoopEnd(), Stall(line=39)]
        further: list[Action] = [LoopEnd(), Draw(1, 0)] if epoch else [Draw(0, 8)]
        return [*made, *further, Call(via="gradients", line=18)]

    snapshot = reporting(World([program(rank) for rank in range(3)]).run().snapshot(still_s=500.0), meet)
    return replace(snapshot, call_sites=(CallSite((REPORT, LOOP), ways),))


def reporting(snapshot: Snapshot, meet: tuple[int, ...]) -> Snapshot:
    def stands(entry: RankEvidence) -> RankEvidence:
        if entry.rank not in meet:
            return entry
        stacks = tuple(replace(stack, frames=MEETING, in_loop=True) for stack in entry.stacks)
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    return replace(snapshot, ranks=tuple(map(stands, snapshot.ranks)))


def way(asks: str) -> Bypass:
    return Bypass(Frame(SCRIPT, 37, "loop"), "if mean < best", True, asks)


@pytest.mark.parametrize(
    ("ways", "cause", "named"),
    [
        ((way("value"),), "rank-local-decision", [(1, 37)]),
        ((way("check"),), "skipped-collective", [(1, 37)]),
        ((), "skipped-collective", [(1, 18)]),
        ((way("rank"),), "rank-zero-only-collective", [(0, 37), (2, 37)]),
    ],
)
def test_ranks_of_a_later_epoch_went_by_it(ways: tuple[Bypass, ...], cause: str, named: list[tuple[int, int]]) -> None:
    verdict = diagnose(job(*ways)).verdict
    assert verdict.cause == cause, verdict.summary
    assert [(who.rank, who.where.line) for who in verdict.culprits if who.where] == named
    assert "Rank 1 went by report (train.py:39)" in verdict.summary
    assert "is in epoch 1, batch 0 (step 8) already; ranks 0 and 2 wait there" in verdict.summary


def test_ranks_that_have_more_batches_of_the_same_epoch_may_come_to_it_yet() -> None:
    assert "went by report" not in diagnose(job(epoch=0)).verdict.summary


def without_loader(*ways: Bypass) -> Snapshot:
    """Of two ranks without a loader one waits in `report`, and the other one in the backward of its next step."""
    turn: list[Action] = [Draw(), Call(via="gradients", line=18)]
    snapshot = World([[*turn * 5, Stall(line=39)], turn * 6]).run().snapshot(still_s=500.0)
    return replace(reporting(snapshot, (0,)), call_sites=(CallSite((REPORT, LOOP), ways),))


@pytest.mark.parametrize(("asks", "cause"), [("rank", "rank-zero-only-collective"), ("value", "undetermined")])
def test_without_epochs_only_a_condition_on_the_rank_says_who_went_by_it(asks: str, cause: str) -> None:
    verdict = diagnose(without_loader(way(asks))).verdict
    assert verdict.cause == cause, verdict.summary
    assert not any("epoch" in sentence for sentence in verdict.evidence)


def test_of_a_meeting_without_record_no_rank_is_said_to_be_alone_in_it() -> None:
    """GIVEN no loader WHEN one of two ranks waits in `report` and the other one in backward."""
    verdict = diagnose(without_loader()).verdict
    assert (verdict.cause, verdict.culprits) == ("undetermined", ())
    assert not any("no other rank has ever called" in sentence for sentence in verdict.evidence)
