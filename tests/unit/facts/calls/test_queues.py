"""Queues with what is known of the hosts: where they stand tells a call that was left out from one that comes later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Snapshot, ThreadStack
from hangwatch.world import play


def _elsewhere(found: Snapshot, rank: int) -> Snapshot:
    """That rank stands one line before the others, which wait for their device."""

    def before(stack: ThreadStack) -> ThreadStack:
        frames = tuple(
            replace(each, line=each.line - 1) if each.function == "train_step" else each for each in stack.frames
        )
        return replace(stack, frames=frames)

    ranks = tuple(
        replace(each, stacks=tuple(map(before, each.stacks)), earlier_stacks=tuple(map(before, each.earlier_stacks)))
        if each.rank == rank
        else each
        for each in found.ranks
    )
    return replace(found, ranks=ranks)


@pytest.mark.parametrize(("together", "cause"), [(True, "skipped-collective"), (False, "undetermined")])
def test_a_host_that_has_come_to_where_the_others_are_left_the_call_out(*, together: bool, cause: str) -> None:
    """NCCL: rank 12 has enqueued one call behind the all_reduce of its row, which its neighbour waits for."""
    found = play(300144).snapshot
    verdict = diagnose(found if together else _elsewhere(found, 12)).verdict
    assert verdict.cause == cause
    assert [who.rank for who in verdict.culprits] == ([12] if together else [])
