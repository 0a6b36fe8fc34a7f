"""`network-partition`: the network between two hosts does not deliver."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.judge import diagnose
from hangwatch.model import Socket
from tests.unit.rules.step.worlds import STEP, _process, changed
from tests.unit.simulator import World


def test_unacknowledged_bytes_with_all_ranks_present_are_the_networks_fault_and_no_ranks() -> None:
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


def test_bytes_that_wait_for_a_peer_that_does_not_read_are_no_fault_of_the_network() -> None:
    """They are in the queue of a connection whose other side has no room: none of them was sent, and so none again."""
    world_ = World([STEP, STEP])
    for _ in range(2):
        for rank in range(2):
            world_.act(rank)
    socket = Socket("127.0.0.1:37768", "127.0.0.1:39861", "established", unacknowledged=356_832)
    snapshot = changed(world_.snapshot(), 0, lambda e: replace(e, process=replace(_process(e), sockets=(socket,))))
    assert diagnose(snapshot).verdict.cause != "network-partition"


def test_one_side_may_have_received_its_part_of_the_last_collective() -> None:
    """Then it waits in the next one, for the side that still waits for bytes."""
    world_ = World([STEP * 2, STEP * 2])
    for rank in (0, 0, 1, 1, 1, 1, 1):
        world_.act(rank)
    snapshot = world_.snapshot()
    issued = [entry.collectives.heads[0].issued for entry in snapshot.ranks]
    assert issued[1] == issued[0] + 1
    socket = Socket("10.0.0.1:4000", "10.0.0.2:4001", "established", unacknowledged=65536, retransmits=7)
    verdict = diagnose(
        changed(snapshot, 0, lambda e: replace(e, process=replace(_process(e), sockets=(socket,))))
    ).verdict
    assert verdict.cause == "network-partition"
    assert verdict.culprits == ()
    assert "All ranks have issued the collective that rank 0 waits in" in verdict.summary
