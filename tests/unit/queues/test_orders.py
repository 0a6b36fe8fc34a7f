"""A circle over several groups: who left the order of calls that most ranks keep over all of theirs."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from hangwatch import words
from tests.dump_verdicts import blamed, verdict, verdict_on
from tests.dump_world import Call, JobDumps, Step, Sync, every, mesh


def _turn(rank: int, *, without: bool = False, more: bool = False) -> list[Step]:
    """Three layers of one line in a group of two, and the gradients across: one layer fewer shows in no group."""
    layers = [Call("all_reduce", 9, 256, f"tp{rank // 2}")] * (2 if without else 4 if more else 3)
    return [*layers, Call("all_reduce", 12, 512, f"dp{rank % 2}"), Sync()]


END: list[Step] = [Call("barrier", 14, 1), Sync()]


@pytest.mark.parametrize("culprit", [0, 3])
def test_a_layer_that_one_rank_left_out_is_found_where_only_the_end_lacks_a_call(culprit: int, tmp_path: Path) -> None:
    programs = {
        rank: [*_turn(rank) * 4, *_turn(rank, without=rank == culprit), *_turn(rank) * 5, *END] for rank in range(4)
    }
    found = verdict(JobDumps(programs, mesh(2, 2), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("skipped-collective", [culprit], "likely")
    assert "left out all_reduce 15 of" in found.summary
    assert found.evidence[0].startswith("over all of their groups, ranks")


@pytest.mark.parametrize("tensor", [2, 4])
def test_layers_left_out_earlier_are_found_where_that_rank_waits_for_nothing(tensor: int, tmp_path: Path) -> None:
    """It is through all of its calls; its group waits for it in its last ones, which it made as earlier ones."""

    def turn(rank: int, layers: int = 4) -> list[Step]:
        own = [Call("all_reduce", 9, 256, f"tp{rank // tensor}")] * layers
        return [*own, Call("all_reduce", 12, 512, f"dp{rank % tensor}")]

    programs = {rank: [*turn(rank) * 6, *turn(rank, 2 if rank == 5 else 4), *turn(rank) * 3] for rank in range(8)}
    found = verdict(JobDumps(programs, mesh(8 // tensor, tensor), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("skipped-collective", [5], "likely")
    assert "Rank 5 left out all_reduce 27 of" in found.summary
    assert "and 1 call after it" in found.summary


def test_a_rank_that_stopped_where_others_went_on_has_left_nothing_out(tmp_path: Path) -> None:
    programs = {rank: [*_turn(rank) * 9, *_turn(rank)] for rank in range(8)}
    programs[5] = programs[5][:-3]
    found = verdict(JobDumps(programs, mesh(4, 2), timed=False), tmp_path)
    assert (found.cause, blamed(found)) == ("undetermined", [5])


def test_another_order_by_a_branch_that_no_rank_had_taken_before(tmp_path: Path) -> None:
    """Its calls look like no others, but for what is summed: in the circle it is the one that left the order."""

    def turn(rank: int, *, crossed: bool = False) -> list[Step]:
        of_all = Call("all_reduce", 22 if crossed else 12, 512)
        of_two = Call("all_reduce", 19 if crossed else 9, 256, f"tp{rank // 2}")
        return [of_two, of_all, Sync()] if crossed else [of_all, of_two, Sync()]

    programs = {rank: [*turn(rank) * 4, *turn(rank, crossed=rank == 3), *END] for rank in range(4)}
    found = verdict(JobDumps(programs, mesh(2, 2), timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("group-order-cycle", [3], "likely")
    assert "earlier than the others, and from lines where no rank had called it before" in found.summary


def test_where_the_place_is_no_longer_recorded_no_order_of_groups_is_blamed(tmp_path: Path) -> None:
    programs = {rank: [*_turn(rank) * 4, *_turn(rank, without=rank == 3), *_turn(rank) * 25, *END] for rank in range(4)}
    found = verdict(JobDumps(programs, mesh(2, 2), timed=False, window=60), tmp_path)
    assert found.certainty == "undetermined"


def test_rings_that_begin_at_other_calls_are_not_compared_from_their_beginnings(tmp_path: Path) -> None:
    """Rank 4 left its loop; its ring begins a call earlier than those of ranks with which it shares no group."""
    programs = {rank: [*_turn(rank) * (20 if rank == 4 else 30), *END] for rank in range(8)}
    found = verdict(JobDumps(programs, mesh(4, 2), timed=False, window=30), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("rank-local-decision", [4], "undetermined")


def test_ranks_at_the_end_are_not_alone_there_where_one_left_a_call_out(tmp_path: Path) -> None:
    programs = {
        rank: [*_turn(rank) * 4, *([*_turn(rank)[:3], Sync()] if rank == 3 else _turn(rank)), *_turn(rank) * 3, *END]
        for rank in range(8)
    }
    found = verdict(JobDumps(programs, mesh(4, 2), timed=False), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [3])


def test_the_many_that_left_their_own_order_do_not_make_the_one_that_kept_it_the_stray(tmp_path: Path) -> None:
    programs = {rank: [*_turn(rank) * 4, *_turn(rank, without=rank != 3), *_turn(rank) * 5, *END] for rank in range(4)}
    found = verdict(JobDumps(programs, mesh(2, 2), timed=False), tmp_path)
    assert blamed(found) != [3]


def test_stages_that_call_in_orders_of_their_own_have_no_order_of_most(tmp_path: Path) -> None:
    """Two programs, and a circle: neither half is the one that left the order."""
    first: list[Step] = [Call("all_reduce", 40, 8, "a"), Sync(), Call("all_reduce", 41, 8, "b"), Sync()]
    second: list[Step] = [first[2], Sync(), first[0], Sync()]
    job = JobDumps({0: first, 1: first, 2: second, 3: second}, {"a": (0, 1, 2, 3), "b": (0, 1, 2, 3)}, timed=False)
    found = verdict(job, tmp_path)
    assert found.cause == "group-order-cycle"
    assert blamed(found) == [0, 1, 2, 3]


def test_what_one_record_lacks_is_no_other_call(tmp_path: Path) -> None:
    """Rank 1 runs a version whose record has no sizes of outputs."""
    turn: list[Step] = [Call("all_reduce", 20, 64), Call("all_gather", 21, 8, out=32), Call("broadcast", 22, 4), Sync()]
    without: list[Step] = [turn[0], *turn[2:]]
    job = JobDumps(every(4, turn * 8, {1: [*turn * 5, *without, *turn * 2]}), timed=False)
    job.write(tmp_path)
    document = job.document(1)
    for entry in document["entries"]:
        del entry["output_sizes"], entry["output_dtypes"]
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps(document, protocol=2))
    found = verdict_on(tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [1])


# Replicas of a model in two stages, each of them split over two ranks: 4 * replica + 2 * stage + part.
REPLICAS = 3


def _staged(rank: int, *, without: int | None = None) -> list[Step]:
    """Three microbatches of two layers each, forward and backward; in forward, layer `without` is left out."""
    last, layer = bool(rank // 2 % 2), Call("all_reduce", 9, 256, f"tp{rank // 2}")
    steps: list[Step] = []
    for batch in range(3):
        steps += [Call("recv", 31, 64, peer=rank - 2)] if last else []
        steps += [layer for number in range(2) if 2 * batch + number != without]
        steps += [] if last else [Call("send", 36, 64, peer=rank + 2)]
    for _ in range(3):
        steps += [] if last else [Call("recv", 44, 64, peer=rank + 2)]
        steps += [layer, layer]
        steps += [Call("send", 49, 64, peer=rank - 2)] if last else []
    return [*steps, Sync()]


@pytest.mark.parametrize(("culprit", "layer"), [(6, 2), (9, 3), (3, 5)])
def test_a_stage_is_held_against_those_of_its_role_in_other_replicas(culprit: int, layer: int, tmp_path: Path) -> None:
    """No call sites tell the layers apart, and stages of one replica make other calls than one another."""
    programs = {
        rank: [*_staged(rank) * 6, *_staged(rank, without=layer if rank == culprit else None), *_staged(rank), *END]
        for rank in range(4 * REPLICAS)
    }
    rows: dict[str, tuple[int, ...]] = {f"tp{first // 2}": (first, first + 1) for first in range(0, 4 * REPLICAS, 2)}
    found = verdict(JobDumps(programs, rows, timed=False, frames=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("skipped-collective", [culprit], "likely")
    others = [rank for rank in range(4 * REPLICAS) if rank // 2 % 2 == culprit // 2 % 2 and rank != culprit]
    assert found.evidence[0] == f"over all of their groups, {words.ranks(others)} made the same calls in one order"


def test_a_call_behind_several_like_it_is_a_turn_of_their_loop(tmp_path: Path) -> None:
    """As many batches of training follow the longer validation as on the others, so that its end is told."""

    def epoch(batches: int) -> list[Step]:
        return [*[Call("all_reduce", 10, 4096)] * 7, *[Call("_allgather_base", 20, 64)] * batches]

    programs = {
        rank: [*epoch(4) * 2, *epoch(5 if rank == 2 else 4), *[Call("all_reduce", 10, 4096)] * 5, Sync()]
        for rank in range(4)
    }
    found = verdict(JobDumps(programs, {}, timed=False), tmp_path)
    assert (found.cause, blamed(found), found.certainty) == ("uneven-steps", [2], "likely")
    assert "once more than the others, as one more turn of a loop" in found.summary
    assert [(wait.rank, wait.also, wait.awaited) for wait in found.waits] == [(0, (1, 3), (2,))]
