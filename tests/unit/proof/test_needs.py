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


def test_what_a_member_has_sent_before_it_destroyed_the_group_may_still_arrive() -> None:
    """GIVEN the call that rank 1 waits for on the record of rank 0 too THEN its wait is not for good."""
    snapshot = _without_groups(Phase.DESTROYED)
    waits = snapshot.ranks[1].collectives
    last = next(call for call in reversed(waits.recent) if call.seq == waits.heads[0].issued)

    def recorded(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        return replace(entry, reading=replace(entry.reading, calls=(last,)))

    assert Case(changed(snapshot, 0, recorded)).deadlocked == set()


def test_of_a_call_that_boards_do_not_record_it_is_not_known_whether_the_member_has_made_it() -> None:
    def by_backward(entry: RankEvidence) -> RankEvidence:
        recent = tuple(replace(call, step=None) for call in entry.collectives.recent)
        return replace(entry, collectives=replace(entry.collectives, recent=recent))

    assert Case(changed(_without_groups(Phase.DESTROYED), 1, by_backward)).deadlocked == set()
