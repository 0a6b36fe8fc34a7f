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
