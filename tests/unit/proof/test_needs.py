"""What releases a rank from a collective, where a member of its group can do nothing for it any more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.model import Collectives, Phase, RankEvidence, Snapshot
from tests.unit.rules.step.worlds import STEP, changed, world
from tests.unit.simulator import Stall


def _without_groups(phase: Phase) -> Snapshot:
    """Rank 0 sleeps in its own code and has no group on its board; rank 1 waits for it."""

    def change(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        return replace(entry, reading=replace(entry.reading, phase=phase, heads=()), collectives=Collectives())

    return changed(world([*STEP * 3, Stall(kind="sleep")], STEP * 5), 0, change)


@pytest.mark.parametrize(("phase", "deadlocked"), [(Phase.DESTROYED, {1}), (Phase.STEP, set()), (Phase.INIT, set())])
def test_a_member_that_has_destroyed_the_group_is_absent_for_good(phase: Phase, deadlocked: set[int]) -> None:
    assert Case(_without_groups(phase)).deadlocked == deadlocked
