"""Of several calls that lack one rank, the one that it makes next by its habit is named."""

from __future__ import annotations

import pytest

from tests.dumps import Job, Op, loop
from tests.unit.queues.test_judgement import judged

MESH: dict[str, tuple[int, ...]] = {
    "tp0": (0, 1),
    "tp1": (2, 3),
    "tp2": (4, 5),
    "dp": (1, 3, 5),
}
LAYERS = 3


def _step(rank: int) -> list[Op]:
    """Layers over two ranks each, then gradients over the odd ones."""
    layers = loop(LAYERS, Op("all_reduce", 30, 256, f"tp{rank // 2}"))
    return [*layers, Op("all_reduce", 40, 4096, "dp")] if rank % 2 else layers


@pytest.mark.parametrize(("left", "named"), [(3, "all_reduce 17 of group tp1"), (1, "all_reduce 6 of group dp")])
def test_a_rank_is_missed_in_the_call_that_it_makes_next(left: int, named: str) -> None:
    """Two ranks wait for it in the gradients' call, one in a layer's."""
    programs = {rank: loop(6, *_step(rank)) for rank in range(6)}
    programs[3] = programs[3][:-left]
    found = judged(Job(6, programs, MESH)).judgement
    assert found is not None
    assert [each.rank for each in found.verdict.culprits] == [3]
    assert f"Rank 3 never enqueued {named}" in found.verdict.summary


def test_a_message_comes_before_a_collective_where_habit_says_so() -> None:
    own = [Op("send", 20, 64, peer=1), Op("all_reduce", 40, 4096)]
    peer = [Op("recv", 21, 64, peer=0), Op("all_reduce", 40, 4096)]
    programs = {0: loop(6, *own), 1: loop(6, *peer)[:-2], 2: loop(6, own[1]), 3: loop(6, own[1])}
    found = judged(Job(4, programs)).judgement
    assert found is not None
    assert "Rank 0 waits in a send to rank 1" in found.verdict.summary
    assert "rank 1 never enqueued the receive for it" in found.verdict.summary
