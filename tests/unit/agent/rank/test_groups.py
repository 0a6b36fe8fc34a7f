"""Messages by peer on the board: slots for the first peers, and free again once the group is gone."""

from __future__ import annotations

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from hangwatch.model import PeerCount
from hangwatch_agent.board import layout as b
from tests.unit.agent.rank.hooks.conftest import Watched, lone_group, watched

__all__ = ["lone_group", "watched"]


def test_peers_beyond_the_slots_of_the_board_are_counted_with_the_group_alone(
    watched: Watched, lone_group: None
) -> None:
    groups = watched.context.groups
    group = groups.of(dist.distributed_c10d._get_default_group())
    assert group is not None
    for peer in range(b.PEER_SLOTS + 2):
        for _ in range(2):
            groups.count_message(group, peer, sent=True)
            group.sent += 1
    watched.context.board.words[b.GROUPS_AT + b.G_SENT] = group.sent
    (head,) = watched.reading.heads
    assert head.peers == tuple(PeerCount(peer, sent=2) for peer in range(b.PEER_SLOTS))
    assert head.sent == 2 * (b.PEER_SLOTS + 2)


def test_slots_of_a_group_that_is_gone_are_free(watched: Watched) -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    groups, words = watched.context.groups, watched.context.board.words
    group = groups.of(dist.distributed_c10d._get_default_group())
    assert group is not None
    groups.count_message(group, 1, sent=False)
    assert words[b.PEERS_AT + b.P_GROUP] == group.index + 1
    dist.destroy_process_group()
    groups.sync()
    assert words[b.PEERS_AT + b.P_GROUP] == 0
