"""Ranks of other groups, who have made another number of calls by the same collective: they tell who left one out."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.commands import evidence_files
from hangwatch.queues.counts import Counted
from hangwatch.queues.model import COMPLETED, Communicator, Lane, Queues
from hangwatch.queues.model import Call as RecordedCall
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync

GROUPS: dict[str, tuple[int, ...]] = {
    **{f"row{first // 2}": (first, first + 1) for first in range(0, 8, 2)},
    **{f"column{first}": tuple(range(first, 8, 2)) for first in range(2)},
}
LAYERS = 6


def _turn(rank: int, *, without: int | None = None) -> list[Step]:
    """Layers that are all alike in the rank's row, then one call of its column."""
    row, column = f"row{rank // 2}", f"column{rank % 2}"
    layers: list[Step] = [Call("all_reduce", 40, 64, row) for layer in range(LAYERS) if layer != without]
    return [*layers, Call("all_reduce", 50, 8, column)]


def _job(culprit: int, *, turns: int = 12, last: int = 3, window: int = 2000, frames: bool = False) -> JobDumps:
    """In a turn of its own the culprit leaves out a layer; behind the last one all meet."""
    programs = {
        rank: [
            *(
                step
                for turn in range(turns)
                for step in _turn(rank, without=2 if (rank, turn) == (culprit, last) else None)
            ),
            Call("all_reduce", 60, 4),
            Sync(),
        ]
        for rank in range(8)
    }
    return JobDumps(programs, GROUPS, timed=False, window=window, frames=frames)


@pytest.mark.parametrize("culprit", [3, 4])
def test_a_rank_of_a_row_that_made_one_call_fewer_than_those_of_other_rows(culprit: int, tmp_path: Path) -> None:
    found = verdict(_job(culprit), tmp_path, as_json=True)
    assert (found.cause, blamed(found), found.certainty) == ("skipped-collective", [culprit], "likely")


@pytest.mark.parametrize("culprit", [3, 4])
def test_the_numbers_count_calls_that_are_no_longer_recorded(culprit: int, tmp_path: Path) -> None:
    found = verdict(_job(culprit, window=12, frames=True), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("skipped-collective", [culprit], "likely")
    # AND no call is named that only shows it
    assert "left out 1 call of" in found.summary
    assert all(each.where is None for each in found.culprits)
    assert any(f"and rank {culprit} {11 * LAYERS - 1}" in sentence for sentence in found.evidence)


def test_ranks_of_another_part_of_the_program_are_no_witnesses(tmp_path: Path) -> None:
    """Each row makes another number of calls, as stages of a pipeline do; nothing tells which rank left one out."""
    programs: dict[int, list[Step]] = {}
    for rank in range(8):
        row = [Call("all_reduce", 40, 64, f"row{rank // 2}") for _ in range(LAYERS + rank // 2)]
        turns: list[Step] = [*row, Call("all_reduce", 50, 8, f"column{rank % 2}")] * 8
        if rank == 3:
            del turns[4]
        programs[rank] = [*turns, Call("all_reduce", 60, 4), Sync()]
    found = verdict(JobDumps(programs, GROUPS, timed=False, frames=False), tmp_path)
    assert found.certainty == "undetermined" or blamed(found) == []


def test_a_mesh_without_a_fault_has_no_odd_rank(tmp_path: Path) -> None:
    job = _job(culprit=-1)
    job.write(tmp_path)

    assert evidence_files.sort_out([tmp_path]).assessment.judgement is None


def test_calls_of_sizes_of_their_own_show_no_order_and_their_number_tells(tmp_path: Path) -> None:
    """Rank 5 had no tokens, and left out an exchange of its group; all later ones are mispaired."""
    programs: dict[int, list[Step]] = {}
    for rank in range(8):
        group = f"half{rank // 4}"
        steps: list[Step] = []
        for turn in range(12):
            sizes = [100 + turn + 10 * layer * (rank % 4) for layer in range(3)]
            received = [100 + turn + 10 * layer * (3 - rank % 4) for layer in range(3)]
            kept = range(3) if (rank, turn) != (5, 8) else (0, 2)
            steps += [Call("all_to_all", 30, sizes[each], group, out=received[each]) for each in kept]
            steps += [Call("all_reduce", 50, 8), Sync()]
        programs[rank] = steps
    groups: dict[str, tuple[int, ...]] = {"half0": (0, 1, 2, 3), "half1": (4, 5, 6, 7)}
    found = verdict(JobDumps(programs, groups, timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("skipped-collective", [5], "likely")
    assert any("rank 5 26" in sentence for sentence in found.evidence)


def _queues(*, gaps: bool) -> Queues:
    """All meet once and then reduce in their rows, of which rank 2's record begins a call earlier than the others'."""
    found = Queues(
        ranks=frozenset(range(4)),
        world_size=4,
        calls=[RecordedCall("broadcast"), RecordedCall("all_reduce")],
        gaps=gaps,
    )
    world = Communicator("0", (0, 1, 2, 3), "default_pg")
    rows = [Communicator("1", (0, 1)), Communicator("2", (2, 3))]
    for rank in range(4):
        world.lanes[rank], rows[rank // 2].lanes[rank] = Lane(rank, enqueued=4), Lane(rank, enqueued=300, lost=True)
        world.lanes[rank].add(4, 0, COMPLETED, 0, 0)
        for order, number in enumerate(range(172 if rank == 2 else 173, 301), 1):
            rows[rank // 2].lanes[rank].add(number, 1, COMPLETED, 0, order)
    found.communicators = [world, *rows]
    return found


def test_where_records_of_groups_end_at_different_calls_nothing_is_counted_before_them() -> None:
    assert Counted(_queues(gaps=True)).odd(_queues(gaps=True).communicators[2]) is None
    queues = _queues(gaps=False)  # a ring, of which only what is older than all of it is lost
    odd = Counted(queues).odd(queues.communicators[2])
    assert odd is not None
    assert (odd.rank, odd.made, odd.usual, odd.witnesses) == (2, 171, 172, (0, 1))
