"""Calls that come once in several rounds, with periods of their own: what the last rounds tell of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.queues import assess
from hangwatch.queues.loops import left_out_once
from hangwatch.queues.readings import regular
from hangwatch.recorder import QueueReader
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync, every

METRIC: list[Step] = [Call("all_reduce", 50, 3), Sync()]
SAVE: list[Step] = [Call("gather", 40, 1), Call("broadcast", 41, 1), Call("all_reduce", 42, 1), Sync()]


def _sharded(skipped: int | None = None) -> list[Step]:
    """Twelve rounds, a metric in every third and a checkpoint in every fourth of them; `skipped` lacks its metric."""
    steps: list[Step] = []
    for turn in range(12):
        steps += [Call("_all_gather_base", 60, size, out=4 * size) for size in (64, 32, 16)]
        steps += [Call("_reduce_scatter_base", 61, 4 * size, out=size) for size in (16, 32, 64)]
        steps += METRIC if turn % 3 == 2 and turn != skipped else []
        steps += SAVE if turn % 4 == 3 else []
    return steps


def test_a_call_that_was_left_out_and_came_again_in_its_next_turn_is_no_round_more(tmp_path: Path) -> None:
    found = verdict(JobDumps(every(4, _sharded(), {3: _sharded(8)}), timed=False), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [3])
    assert [each.where.line for each in found.culprits if each.where] == [50]


@pytest.mark.parametrize(("row", "left_out"), [([2, 2, 2, 9], True), ([2, 9, 2, 2], False), ([2, 2, 2, 2], False)])
def test_after_how_many_rounds_the_call_comes_again(row: list[int], left_out: bool) -> None:
    before = [2, 2, 2, 9, 2, 2, 2, 9, 2, 2, 2]
    assert left_out_once([*before, *row], [*before, 9], len(before)) is left_out


def _with_norms(metric: bool, skipped: bool = False) -> list[Step]:
    norms: list[Step] = [Call("_all_gather_base", 31, 129, out=516)] * (4 if skipped else 5)
    backward: list[Step] = [Call("all_reduce", 0, 128)] * 5
    averages: list[Step] = [Call("all_reduce", 60, 64)] * 8
    score: list[Step] = [Call("all_reduce", 95, 21), Sync()] if metric else []
    return [*norms, *backward, *averages, *score]


def test_where_a_run_of_one_call_ends_is_not_told_by_fewer_of_them_than_it_has(tmp_path: Path) -> None:
    """The run came behind a call which no earlier run came behind: three of its calls tell neither four nor five."""
    usual = [step for turn in range(8) for step in _with_norms(turn == 4)]
    short = [step for turn in range(8) for step in _with_norms(turn == 4, skipped=turn == 5)]
    found = verdict(JobDumps(every(4, usual, {2: short}), timed=False), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [2])
    assert [each.where.line for each in found.culprits if each.where] == [31]


def test_what_as_many_calls_before_were_followed_by_in_different_ways_is_no_rule() -> None:
    assert regular([1, 1, 1, 2, 1, 1, 1, 2], 7)
    assert not regular([1, 1, 1, 2, 3, 1, 1, 2], 7)
    assert not regular([1], 0)


def test_a_call_made_earlier_from_another_line_is_the_others_own(tmp_path: Path) -> None:
    """It fits theirs, and nothing behind it is mispaired: the ranks wait for each other for its place alone."""
    groups: dict[str, tuple[int, ...]] = {"metrics": (0, 1, 2)}
    gradients: list[Step] = [Call("all_reduce", 17, 5000), Call("all_reduce", 18, 300)]
    flush = Call("all_reduce", 12, 4, "metrics", via=35)
    rounds: list[Step] = [*gradients * 3, flush, Sync()] * 5
    early = Call("all_reduce", 12, 4, "metrics", via=32)
    usual: list[Step] = [*rounds, *gradients * 3, flush, Sync()]
    crossed: list[Step] = [*rounds, *gradients * 2, early, *gradients, Sync()]
    found = verdict(JobDumps(every(3, usual, {1: crossed}), groups, timed=False), tmp_path)
    assert (found.cause, blamed(found)) == ("group-order-cycle", [1])
    assert "mispaired" not in found.summary


def _mesh(rank: int, *, skips: bool) -> list[Step]:
    row, column = f"row{rank // 2}", f"column{rank % 2}"
    steps: list[Step] = []
    for turn in range(80):
        steps += [Call("all_reduce", 28, 192, row)] * (3 if skips and turn == 70 else 4)
        steps += [Call("all_reduce", 42, 900, column)] * 2
        steps += [Call("all_reduce", 61, 1), Sync()] if turn % 10 == 9 else []
    return steps


def test_a_rank_that_made_fewer_calls_than_others_has_not_added_one() -> None:
    """Each group keeps its last 128 calls, as the board does: they begin with different ones."""
    groups: dict[str, tuple[int, ...]] = {"row0": (0, 1), "row1": (2, 3), "column0": (0, 2), "column1": (1, 3)}
    job = JobDumps({rank: _mesh(rank, skips=rank == 3) for rank in range(4)}, groups, timed=False)
    documents = job.documents()
    for document in documents.values():
        kept: list[dict[str, object]] = []
        for name in document["pg_config"]:
            kept += [entry for entry in document["entries"] if entry["process_group"][0] == name][-128:]
        document["entries"] = sorted(kept, key=lambda entry: str(entry["record_id"]).zfill(9))
    reader = QueueReader()
    for rank, document in documents.items():
        reader.add(rank, document)
    queues = reader.queues()
    queues.gaps = True
    judgement = assess(queues).judgement
    assert judgement is not None
    assert (judgement.verdict.cause, blamed(judgement.verdict)) == ("skipped-collective", [3])
    assert [each.where.line for each in judgement.verdict.culprits if each.where] == [28]
