from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import GroupMembers, Snapshot
from hangwatch.wire import codec
from hangwatch.wire.compact import MANY_RANKS, compacted, expanded
from tests.examples import uneven_steps_snapshot


def node_of(world_size: int) -> Snapshot:
    """One node's part of a large job."""
    whole = uneven_steps_snapshot(world_size, 3, 8)
    return replace(whole, ranks=whole.ranks[:8], divergences=())


def test_a_small_job_travels_as_it_is() -> None:
    snapshot = uneven_steps_snapshot()
    assert compacted(snapshot) == (snapshot, ())
    assert expanded(snapshot, ()) == snapshot


def test_long_lists_of_members_travel_once_and_come_back() -> None:
    snapshot = node_of(512)
    small, groups = compacted(snapshot)
    assert [group.members for group in groups] == ["0-511"]
    assert len(codec.dumps(small)) < len(codec.dumps(snapshot)) - 16 * 1500
    back = expanded(small, groups)
    assert back == snapshot
    assert back.ranks[0].collectives.heads[0].members is back.ranks[1].collectives.heads[0].members


def test_of_a_huge_job_travels_what_tells_ranks_apart() -> None:
    snapshot = node_of(MANY_RANKS + 8)
    small, groups = compacted(snapshot)
    back = expanded(small, groups)
    assert [rank.rank for rank in back.ranks] == [rank.rank for rank in snapshot.ranks]
    assert [rank.main_stack for rank in back.ranks] == [rank.main_stack for rank in snapshot.ranks]
    assert back.ranks[0].collectives.recent == snapshot.ranks[0].collectives.recent[-8:]


def test_a_reference_to_nothing_is_refused() -> None:
    small, _ = compacted(node_of(512))
    with pytest.raises(ValueError, match="no group"):
        expanded(small, ())
    with pytest.raises(ValueError, match="range"):
        expanded(small, (GroupMembers("x", "", "0-99999999"),))
