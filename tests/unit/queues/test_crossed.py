"""Calls of two groups that few ranks made in another order than the others: none was left out, and none added."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync, mesh

TURNS, LAST = 5, 3
EXPERTS: dict[str, tuple[int, ...]] = {"experts0": (0, 1, 2, 3), "experts1": (4, 5, 6, 7)}
CULPRIT = 5
LAYERS = 6


def _turn(rank: int, via: int = 300) -> list[Call]:
    return [
        Call("all_reduce", 61, 256, f"tp{rank // 2}", via=via),
        Call("all_reduce", 74, 256, f"dp{rank % 2}", via=via),
    ]


def _on_mesh(rank: int, who: tuple[int, ...], via: int) -> list[Step]:
    """Turns with a call in the row and one in the column; in one of them `who` call the column first."""
    steps: list[Step] = []
    for turn in range(TURNS):
        crossed = rank in who and turn == LAST
        steps += [*(reversed(_turn(rank, via)) if crossed else _turn(rank)), Sync()]
    return steps


@pytest.mark.parametrize("who", [(2, 5), (0, 3)])
@pytest.mark.parametrize(("frames", "via"), [(False, 300), (True, 300), (True, 340)])
def test_ranks_that_cross_two_groups_in_mirror_image_are_both_named(
    who: tuple[int, ...], frames: bool, via: int, tmp_path: Path
) -> None:
    """GIVEN both calls on all records, WHEN two ranks made them the other way round, THEN none was left out."""
    programs = {rank: _on_mesh(rank, who, via) for rank in range(8)}
    found = verdict(JobDumps(programs, mesh(4, 2), frames=frames), tmp_path)
    assert (found.cause, blamed(found)) == ("group-order-cycle", list(who))
    assert found.certainty == "likely"
    assert "left out all_reduce" not in found.summary
    assert found.fix == "use the groups in the same order on every rank"


def test_of_hosts_that_wait_for_each_call_both_ranks_that_went_on_are_named(tmp_path: Path) -> None:
    """GIVEN a host that waits behind each call, WHEN two go on to the column, THEN both lack the call of their row."""
    who, programs = (2, 5), {rank: _on_mesh(rank, (2, 5), 340) for rank in range(8)}
    waiting = {rank: [step for call in steps for step in (call, Sync())] for rank, steps in programs.items()}
    found = verdict(JobDumps(waiting, mesh(4, 2)), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("skipped-collective", "undetermined", list(who))
    assert f"So did rank {who[0]} without all_reduce {LAST + 1} of group 2 (tp1)" in found.summary
    assert [each.cause for each in found.alternatives] == ["group-order-cycle"]


def _experts(rank: int, last: list[Step] | None = None) -> list[Step]:
    """Rounds of calls in the group of experts, and of the gradients behind them; `last` is what comes of the last."""
    layer = Call("all_reduce", 40, 256, f"experts{rank // 4}")
    round_: list[Step] = [*[layer] * LAYERS, Call("all_reduce", 60, 4096), Sync()]
    return [*round_ * (LAST - 1), *[layer] * LAYERS, *(last or [Call("all_reduce", 60, 4096), Sync(), *round_])]


def _dumps(last: list[Step]) -> JobDumps:
    return JobDumps({rank: _experts(rank, last if rank == CULPRIT else None) for rank in range(8)}, EXPERTS)


LAYER = Call("all_reduce", 40, 256, f"experts{CULPRIT // 4}")
GRADIENTS = Call("all_reduce", 60, 4096)


@pytest.mark.parametrize("lines", [0, 7])
def test_a_call_of_the_next_round_that_came_first_is_neither_a_turn_more_nor_a_call_of_its_own(
    lines: int, tmp_path: Path
) -> None:
    """GIVEN the next round on the record, WHEN it lacks as many layers as came early, THEN the two are crossed."""
    swapped = [replace(each, line=each.line + lines) for each in (LAYER, GRADIENTS)]
    found = verdict(_dumps([*swapped, *[LAYER] * (LAYERS - 1), GRADIENTS, Sync()]), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("group-order-cycle", "likely", [CULPRIT])
    assert f"Rank {CULPRIT} " in found.summary
    assert f" all_reduce {LAYERS * LAST + 1} of group 2 (experts1)" in found.summary


def test_a_turn_too_many_behind_which_the_next_round_is_whole_stays_one(tmp_path: Path) -> None:
    found = verdict(_dumps([LAYER, GRADIENTS, *[LAYER] * LAYERS, GRADIENTS, Sync()]), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("uneven-steps", "likely", [CULPRIT])


def test_a_turn_too_many_behind_which_nothing_is_recorded_may_be_the_next_one(tmp_path: Path) -> None:
    found = verdict(_dumps([LAYER, GRADIENTS, Sync()]), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("uneven-steps", "undetermined", [CULPRIT])
    assert [each.cause for each in found.alternatives] == ["group-order-cycle"]


def test_a_call_left_out_behind_which_a_whole_round_was_enqueued_is_no_crossed_order(tmp_path: Path) -> None:
    """GIVEN the others at the call that one left out, WHEN its next round has it again, THEN it made none too early."""
    programs: dict[int, list[Step]] = {}
    for rank in range(16):
        row, column = Call("all_reduce", 30, 256, f"tp{rank // 4}"), Call("all_reduce", 60, 256, f"dp{rank % 4}")
        turn: list[Step] = [row, row, column, Call("all_reduce", 70, 1), Sync()]
        programs[rank] = [*turn, *turn[: 3 if rank == 11 else 5], *turn * 3]
    found = verdict(JobDumps(programs, mesh(4, 4)), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [11])
