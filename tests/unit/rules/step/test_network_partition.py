"""`network-partition`: the network between two hosts does not deliver."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.judge import diagnose
from hangwatch.model import Socket
from tests.unit.rules.step.worlds import STEP, _process, changed
from tests.unit.simulator import World


def test_unacknowledged_bytes_with_everybody_present_are_the_networks_fault_and_no_ranks() -> None:
    world_ = World([STEP, STEP])
    for _ in range(2):
        for rank in range(2):
            world_.act(rank)
    socket = Socket("10.0.0.1:4000", "10.0.0.2:4001", "established", unacknowledged=65536, retransmits=7)
    snapshot = changed(world_.snapshot(), 0, lambda e: replace(e, process=replace(_process(e), sockets=(socket,))))
    verdict = diagnose(snapshot).verdict
    assert verdict.cause == "network-partition"
    assert verdict.culprits == ()
    assert "65,536 bytes" in verdict.summary
