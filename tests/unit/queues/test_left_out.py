"""A call that a rank left out in some turn, where it waits in one of another group that follows every few turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync

EVERYONE: dict[str, tuple[int, ...]] = {"report": (0, 1, 2, 3)}
CULPRIT, EVERY = 2, 5


def _turns(rank: int, *, skipped: int | None = None, crossed: int | None = None) -> list[Step]:
    """Gradients in each turn, and a report in another group in every fifth; both behind one another."""
    steps: list[Step] = []
    for turn in range(40):
        gradients: list[Step] = [] if (rank, turn) == (CULPRIT, skipped) else [Call("all_reduce", 30, 256), Sync()]
        report: list[Step] = [Call("all_reduce", 50, 1, "report"), Sync()] if turn % EVERY == EVERY - 1 else []
        steps += [*report, *gradients] if (rank, turn) == (CULPRIT, crossed) else [*gradients, *report]
    return steps


def _job(*, skipped: int | None = None, crossed: int | None = None) -> dict[int, list[Step]]:
    return {rank: _turns(rank, skipped=skipped, crossed=crossed) for rank in range(4)}


@pytest.mark.parametrize("turn", [20, 22, 23])
def test_it_came_to_the_report_as_ever_with_a_call_less_behind_the_one_before(turn: int, tmp_path: Path) -> None:
    found = verdict(JobDumps(_job(skipped=turn), EVERYONE), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [CULPRIT])
    assert any("made 5 calls like all_reduce" in said and "and 4 before that one" in said for said in found.evidence)


def test_in_the_turn_of_the_report_itself_the_two_may_have_changed_places_which_is_said(tmp_path: Path) -> None:
    """What a rank would have called next is not known, so both jobs look alike."""
    for at, turns in enumerate(({"crossed": 24}, {"skipped": 24})):
        found = verdict(JobDumps(_job(**turns), EVERYONE), tmp_path / str(at))
        assert (found.cause, blamed(found)) == ("skipped-collective", [CULPRIT])
        assert "group-order-cycle" in [other.cause for other in found.alternatives]


def _experts(rank: int, layers: int) -> list[Step]:
    group = f"ep{rank // 4}"
    layer: list[Step] = [Call("all_gather", 88, 4, group, out=16), Sync(), Call("all_to_all", 103, 128, group)]
    return [*layer * layers, Call("all_reduce", 0, 9000), Sync()]


def test_a_layer_left_out_at_the_end_of_a_step_is_no_order_of_groups(tmp_path: Path) -> None:
    """Each earlier step had the layer three times before the gradients; to come later, three calls had to."""
    groups = {"ep0": (0, 1, 2, 3), "ep1": (4, 5, 6, 7)}
    programs = {rank: _experts(rank, 3) * 5 for rank in range(8)}
    programs[6] = [*_experts(6, 3) * 3, *_experts(6, 2), *_experts(6, 3)]
    found = verdict(JobDumps(programs, dict(groups), timed=False), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("skipped-collective", "undetermined", [6])
    assert [each.cause for each in found.alternatives] == ["group-order-cycle"]
    assert "rank 6 made 3 calls like all_gather" in " ".join(found.evidence)
