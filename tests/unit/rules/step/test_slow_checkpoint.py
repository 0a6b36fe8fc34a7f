"""`slow-checkpoint`: a checkpoint is being written."""

from __future__ import annotations

from hangwatch.judge import diagnose
from hangwatch.model import OpenFile, Status
from tests.unit.rules.step.worlds import stuck


def test_a_checkpoint_that_moves_data_is_waited_for_and_one_that_the_kernel_blocks_hangs() -> None:
    moving = diagnose(stuck("checkpoint", io_delta_bytes=90 << 20))
    blocked = diagnose(stuck("checkpoint", blocked_on=OpenFile(4, "/nfs/model.pt", "nfs4")))
    assert moving.verdict.cause == blocked.verdict.cause == "slow-checkpoint"
    assert (moving.status, blocked.status) == (Status.WAITING, Status.HUNG)
    assert "/nfs/model.pt (nfs4)" in blocked.verdict.summary
