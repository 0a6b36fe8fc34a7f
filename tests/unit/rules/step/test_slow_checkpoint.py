"""`slow-checkpoint`: a checkpoint is being written."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.judge import diagnose
from hangwatch.model import NodeFacts, OpenFile, Pipe, Status
from tests.unit.rules.step.worlds import stuck


def test_a_checkpoint_that_moves_data_is_waited_for_and_one_that_the_kernel_blocks_hangs() -> None:
    moving = diagnose(stuck("checkpoint", io_delta_bytes=90 << 20))
    blocked = diagnose(stuck("checkpoint", blocked_on=OpenFile(4, "/nfs/model.pt", "nfs4")))
    assert moving.verdict.cause == blocked.verdict.cause == "slow-checkpoint"
    assert (moving.status, blocked.status) == (Status.WAITING, Status.HUNG)
    assert "/nfs/model.pt (nfs4)" in blocked.verdict.summary


def test_a_checkpoint_that_goes_through_a_pipe_is_told_with_the_process_that_should_read_it() -> None:
    """No file system is at fault: the other end belongs to a process that does not read."""
    snapshot = stuck("checkpoint", blocked_on=OpenFile(12, "pipe:[77]"))
    node = NodeFacts("node-a", pipes=(Pipe("pipe:[77]", readers=(91,)),))
    verdict = diagnose(replace(snapshot, nodes=(node,))).verdict
    assert verdict.cause == "slow-checkpoint"
    assert "a checkpoint through a pipe that pid 91 should read" in verdict.summary
    assert verdict.fix == "look at what pid 91 waits for"
