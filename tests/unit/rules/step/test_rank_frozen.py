"""`rank-frozen`: a process is frozen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.judge.countdown import reported_after
from hangwatch.model import Identity, RankEvidence, Reading, Snapshot, Status
from hangwatch.rules.step.rank_frozen import FROZEN_S
from tests.unit.facts.processes.test_standstill import call, host, job
from tests.unit.rules.step.worlds import STEP, world
from tests.unit.simulator import Stop


def test_a_stopped_rank_is_frozen_and_the_fix_is_a_command() -> None:
    judgement = diagnose(_still_for(20.0, world(STEP * 5, STEP * 5, [*STEP * 3, Stop()])))
    assert judgement.verdict.cause == "rank-frozen"
    assert judgement.verdict.fix == "kill -CONT 4002"
    assert judgement.status is Status.HUNG


def test_a_stop_of_some_seconds_is_no_hang_yet() -> None:
    """A debugger lets it go on, or a limiter of processor time."""
    judgement = diagnose(_still_for(12.0, world(STEP * 5, STEP * 5, [*STEP * 3, Stop()])))
    assert (judgement.status, judgement.verdict.cause) == (Status.WAITING, "rank-frozen")


def test_when_a_stop_will_be_reported_is_known_ahead() -> None:
    after_s = reported_after(_still_for(5.0, world(STEP * 5, STEP * 5, [*STEP * 3, Stop()])), 5.0)
    assert after_s is not None
    assert FROZEN_S <= after_s < FROZEN_S + 2.0


def test_a_job_that_is_stopped_as_a_whole_is_suspended() -> None:
    stopped = world([*STEP * 3, Stop()], [*STEP * 3, Stop()])
    assert diagnose(_still_for(60.0, stopped)).status is Status.WAITING
    assert diagnose(_still_for(200.0, stopped)).status is Status.HUNG


def test_a_profiler_that_stops_a_rank_of_a_hung_job_for_a_moment_freezes_nothing() -> None:
    """Its ticker ran a second ago, however long no counter has moved."""
    judgement = diagnose(_still_for(60.0, world(STEP * 5, STEP * 5, [*STEP * 3, Stop()]), stopped_s=1.2))
    assert judgement.status is Status.WAITING


def _still_for(seconds: float, found: Snapshot, stopped_s: float | None = None) -> Snapshot:
    """A ticker stops with its process, which is when the rank stood still, or later."""
    silent_s = seconds if stopped_s is None else stopped_s
    return replace(found, ranks=tuple(_with_ticker(replace(each, still_s=seconds), silent_s) for each in found.ranks))


def _with_ticker(found: RankEvidence, silent_s: float) -> RankEvidence:
    stopped = found.process is not None and found.process.state == "T"
    if not stopped or found.reading is None:
        return found
    return replace(found, reading=replace(found.reading, ticker_at=found.reading.taken_at - silent_s))


def _stopped(found: RankEvidence, *, last_tick: float, state: str = "t") -> RankEvidence:
    """The job of `job` stands since 9 s before 100.0."""
    assert found.process is not None
    heads = found.collectives.heads
    reading = Reading(
        Identity(found.rank, 2, found.rank, "node-a", 101, 1.0, "j"), 100.0, ticker_at=last_tick, heads=heads
    )
    return replace(found, process=replace(found.process, state=state), reading=reading)


@pytest.mark.parametrize("state", ["t", "T"])
def test_a_rank_that_is_stopped_after_the_hang_is_no_culprit(state: str) -> None:
    """GIVEN a hung job WHEN a user attaches a debugger to a rank THEN the verdict does not change."""
    odd = host(1, call(5, 1.0, sizes=((32,),)))
    before = diagnose(job(host(0, call(5, 1.0)), odd)).verdict
    after = diagnose(job(host(0, call(5, 1.0)), _stopped(odd, last_tick=97.0, state=state))).verdict
    assert (after.cause, after.culprits, after.summary) == (before.cause, before.culprits, before.summary)
    assert after.cause == "collective-mismatch"
    said = f"Rank 1 (pid 101) was stopped (state {state}) after the last progress of the job."
    assert said in after.details
    assert said not in before.details


def test_a_rank_that_was_stopped_as_the_job_came_to_stand_is_frozen() -> None:
    verdict = diagnose(job(host(0, call(5, 1.0)), _stopped(host(1, call(5, 1.0)), last_tick=91.2))).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("rank-frozen", [1])


def test_a_rank_that_was_stopped_in_its_own_code_is_frozen_however_late() -> None:
    """It may have been on its way: the others wait for it."""
    busy = replace(host(1, call(4, 1.0)), stacks=(), earlier_stacks=())
    verdict = diagnose(job(host(0, call(5, 1.0)), _stopped(busy, last_tick=97.0))).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("rank-frozen", [1])


def test_where_nothing_else_is_found_the_rank_that_was_stopped_late_is_frozen() -> None:
    """A step may take longer than that, and no counter moves in it: both ranks are in the same call."""
    verdict = diagnose(job(host(0, call(5, 1.0)), _stopped(host(1, call(5, 1.0)), last_tick=97.0))).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("rank-frozen", [1])
