"""Of several calls that lack one rank, the one that it makes next by its habit is named."""

from __future__ import annotations

import pickle

import pytest

from hangwatch.model import Judgement
from hangwatch.queues import assess
from hangwatch.recorder import QueueReader, documents
from tests.dumps import WORLD, Job, Op, loop
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


STAGES: dict[str, tuple[int, ...]] = {"tp0": (0, 1, 2, 3), "tp1": (4, 5, 6, 7)} | {
    f"pp{place}": (place, place + 4) for place in range(4)
}


def _pipeline(rank: int) -> list[Op]:
    """A stage of four ranks: layers over them, and a message from each to the next stage."""
    layers = loop(2, Op("all_reduce", 30, 256, f"tp{rank // 4}"))
    if rank < 4:
        return [*layers, Op("send", 35, 64, f"pp{rank}", peer=rank + 4)]
    return [Op("recv", 36, 64, f"pp{rank - 4}", peer=rank - 4), *layers]


def _without_the_world(job: Job) -> Judgement:
    """The group of all ranks was never used, so that no record tells of it."""
    reader = QueueReader()
    for rank, document in job.documents().items():
        del document["pg_config"][WORLD]
        for _, read in documents(pickle.dumps(document, protocol=2)):
            reader.add(rank, read)
    found = assess(reader.queues()).judgement
    assert found is not None
    return found


def test_a_message_to_a_rank_without_a_record_is_not_what_its_rank_came_to_first() -> None:
    """Rank 3 enqueued it behind layers for which rank 2, which left no record either, is missed."""
    programs = {rank: loop(6, *_pipeline(rank)) for rank in range(8)}
    programs[2] = programs[2][:-3]
    found = _without_the_world(Job(8, programs, STAGES, silent=(2, 7))).verdict
    assert "there is no dump of rank 2" in found.summary
    assert "all_reduce 11 of group tp0" in found.summary
    assert 7 not in [each.rank for each in found.culprits]
    assert any("No dump of ranks 2 and 7" in said for said in found.details)


def test_members_of_groups_that_left_no_record_are_told_where_the_size_of_the_job_is_not_known() -> None:
    programs = {rank: loop(6, *_pipeline(rank)) for rank in range(8)}
    programs[1] = programs[1][:-3]
    found = _without_the_world(Job(8, programs, STAGES, silent=(7,))).verdict
    assert [each.rank for each in found.culprits] == [1]
    assert "No dump of rank 7: what it did is not known." in found.details


def test_a_member_without_a_record_is_not_blamed_where_another_one_stands_before_that_call() -> None:
    """Rank 5 has enqueued the gradients of its column too; its device has not come to them, whatever rank 9 did."""
    groups = {f"tp{row}": tuple(range(4 * row, 4 * row + 4)) for row in range(4)}
    groups |= {f"dp{place}": tuple(range(place, 16, 4)) for place in range(4)}

    def turn(rank: int) -> list[Op]:
        layers = loop(2, Op("all_reduce", 30, 256, f"tp{rank // 4}"))
        return [*layers, Op("all_reduce", 40, 4096, f"dp{rank % 4}")]

    programs = {rank: loop(5, *turn(rank)) for rank in range(16)}
    programs[6] = programs[6][:-3]
    found = _without_the_world(Job(16, programs, groups, silent=(6, 9))).verdict
    assert [each.rank for each in found.culprits] == [6]
    assert any("No dump of ranks 6 and 9" in said for said in found.details)
