"""The phases of the last minutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hangwatch.model import Phase, PhaseSpan, Progress, StepEntry
from hangwatch_agent.roster import phase_history
from hangwatch_agent.roster.phase_history import PhaseHistory
from hangwatch_agent.roster.rank_states import RankState
from tests.unit.agent.readings import rank_state

FIRST, SECOND = rank_state(0).path, rank_state(1).path


def at(phase: Phase, step: int, entered: float = 0.0, rank: int = 0) -> RankState:
    """A standing in `phase`, entered at `entered`."""
    found = rank_state(rank, phase=phase, progress=Progress(step=step))
    return replace(found, reading=replace(found.reading, phase_at=entered))


def test_equal_phases_are_one_span_with_the_last_step() -> None:
    seen = PhaseHistory()
    for now, phase, step, entered in (
        (10.0, Phase.DATA, 1, 9.5),
        (11.0, Phase.BACKWARD, 1, 10.2),
        (12.0, Phase.BACKWARD, 2, 11.9),
        (13.0, Phase.DATA, 3, 12.5),
    ):
        seen.note([at(phase, step, entered)], now)
    assert seen.of(FIRST) == (
        PhaseSpan(9.5, Phase.DATA, 1),
        PhaseSpan(10.2, Phase.BACKWARD, 2),
        PhaseSpan(12.5, Phase.DATA, 3),
    )


def test_a_phase_is_never_before_the_one_it_followed_nor_in_the_future() -> None:
    seen = PhaseHistory()
    seen.note([at(Phase.DATA, 1, 10.0)], 11.0)
    seen.note([at(Phase.FORWARD, 1, 5.0)], 12.0)
    seen.note([at(Phase.DATA, 2, 99.0)], 13.0)
    assert [span.at for span in seen.of(FIRST)] == [10.0, 10.0, 13.0]


def test_the_first_steps_of_a_fast_job_are_not_taken_for_its_start() -> None:
    # GIVEN a rank that was seen before its first step
    seen = PhaseHistory()
    seen.note([at(Phase.READY, -1, 10.0)], 10.0)
    # WHEN it has made ninety steps by the next look
    later = at(Phase.BACKWARD, 90, 10.9)
    steps = tuple(StepEntry(step, 0, step, 0, 10.0 + step / 100) for step in range(60, 91))
    seen.note([replace(later, reading=replace(later.reading, steps=steps))], 11.0)
    # THEN it started until the first of those that its ledger still holds
    assert seen.of(FIRST) == (
        PhaseSpan(10.0, Phase.READY, -1),
        PhaseSpan(10.6, Phase.STEP, 90),
        PhaseSpan(10.9, Phase.BACKWARD, 90),
    )


def test_looks_that_are_too_near_are_passed_over() -> None:
    seen = PhaseHistory()
    seen.note([at(Phase.DATA, 1, 10.0)], 10.0)
    seen.note([at(Phase.FORWARD, 1, 10.05)], 10.1)
    assert len(seen.of(FIRST)) == 1


def test_what_is_kept_is_bounded_in_number_and_time() -> None:
    fast, slow = PhaseHistory(), PhaseHistory()
    for look in range(1000):
        phase = Phase.DATA if look % 2 else Phase.BACKWARD
        fast.note([at(phase, look, look + 1.0)], look + 1.0)
        slow.note([at(phase, look, 60.0 * look + 1)], 60.0 * look + 1)
    assert len(fast.of(FIRST)) == phase_history.MOST
    assert [span.step for span in slow.of(FIRST)] == [994, 995, 996, 997, 998, 999]


def test_a_rank_that_stands_still_keeps_its_minutes_before() -> None:
    seen = PhaseHistory()
    seen.note([at(Phase.DATA, 1, 10.0)], 10.0)
    for now in (11.0, 500.0, 5000.0):
        seen.note([at(Phase.BACKWARD, 1, 11.0)], now)
    assert [span.phase for span in seen.of(FIRST)] == [Phase.DATA, Phase.BACKWARD]


def test_every_process_has_a_track_as_long_as_it_is_known() -> None:
    seen = PhaseHistory()
    seen.note([at(Phase.DATA, 1, 9.0), at(Phase.EVAL, 1, 9.0, rank=1)], 10.0)
    seen.note([at(Phase.DATA, 1, 9.0)], 11.0)
    assert (len(seen.of(FIRST)), seen.of(SECOND), seen.of(Path())) == (1, (), ())
