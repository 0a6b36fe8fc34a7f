from __future__ import annotations

from hangwatch.looks import Reason, Schedule
from hangwatch.model import ExceptionFacts, Launched, Phase, Progress, StepTimes
from hangwatch.settings import Settings
from hangwatch_agent.watchdog.triggers import LEAST_PAUSE_S, reasons, rest_after, until_next_poll
from tests.unit.agent.readings import blocked, rank_state

SETTINGS = Settings(stall_after=20.0)


def kinds(*rank_states: object, now: float, world_size: int = 2) -> set[str]:
    found = reasons(rank_states, now, SETTINGS, world_size=world_size)  # type: ignore[arg-type]
    return {reason.kind for reason in found}


def test_a_moving_job_is_left_alone() -> None:
    assert kinds(rank_state(0, heads=blocked()), rank_state(1, heads=blocked()), now=10.5) == set()


def test_all_blocked_for_a_second_may_be_a_deadlock() -> None:
    assert kinds(rank_state(0, heads=blocked()), rank_state(1, heads=blocked()), now=11.2) == {"deadlock"}


def test_a_rank_that_is_not_blocked_may_move() -> None:
    assert kinds(rank_state(0, heads=blocked()), rank_state(1), now=11.2) == set()


def test_a_rank_that_is_awaited_for_long_is_looked_at() -> None:
    assert kinds(rank_state(0, heads=blocked()), rank_state(1), now=13.0) == {"awaited"}


def test_steps_that_take_three_seconds_are_no_reason() -> None:
    slow = StepTimes(steps=5, slowest_recent_s=3.0)
    assert kinds(rank_state(0, heads=blocked(), times=slow), rank_state(1, times=slow), now=13.0) == set()


def test_patience_runs_out() -> None:
    assert "patience" in kinds(rank_state(0), rank_state(1), now=31.0)


def test_a_rank_that_died_in_the_middle_is_looked_at_at_once() -> None:
    assert kinds(rank_state(0), rank_state(1, state="X", since=10.0), now=10.1) == {"ended"}


def test_a_rank_that_has_ended_as_it_should_is_no_reason() -> None:
    assert kinds(rank_state(0), rank_state(1, state="X", phase=Phase.FINALIZING), now=10.1) == set()


def test_a_stopped_rank_is_looked_at_after_a_moment_and_not_before() -> None:
    waiting = rank_state(0, heads=blocked())
    assert kinds(waiting, rank_state(1, state="T", since=10.0), now=23.9) == set()
    assert "stopped" in kinds(waiting, rank_state(1, state="T", since=10.0), now=24.1)


def test_a_fatal_exception_is_looked_at_at_once() -> None:
    raised = ExceptionFacts("ValueError", "x", ())
    assert kinds(rank_state(0), rank_state(1, exception=raised), now=10.1) == {"failed"}


def test_lingering_after_the_training_is_over() -> None:
    over = rank_state(0, phase=Phase.MAIN_DONE)
    assert "lingering" not in kinds(over, now=19.0, world_size=1)
    assert "lingering" in kinds(over, now=20.5, world_size=1)


def test_ranks_that_never_come() -> None:
    starting = rank_state(0, phase=Phase.INIT, progress=Progress(), moved_at=1.0)
    assert "missing" not in kinds(starting, now=25.0)
    assert "missing" in kinds(starting, now=32.0)


def test_pauses_between_looks_at_one_episode_grow() -> None:
    schedule, found = Schedule(), [Reason("deadlock", (10.0,), urgent=True)]
    looks = []
    for tenth in range(400):
        now = 11.0 + tenth / 10
        if schedule.due(found, now):
            schedule.looked(found, now, 0.0)
            looks.append(round(now - 11.0))
    assert looks == [0, 1, 3, 7, 15, 31]


def test_a_new_episode_starts_anew() -> None:
    schedule = Schedule()
    schedule.looked([Reason("deadlock", (10.0,), urgent=True)], 11.0, 0.0)
    assert schedule.due([Reason("deadlock", (10.0,), urgent=True)], 11.5) is None
    assert schedule.due([Reason("deadlock", (11.4,), urgent=True)], 11.5) is not None


def test_looks_that_are_not_urgent_take_a_small_share_of_the_time() -> None:
    schedule = Schedule()
    schedule.looked([Reason("awaited", (1,))], 11.0, rest_after(1.0))
    assert schedule.due([Reason("awaited", (2,))], 30.0) is None
    assert schedule.due([Reason("awaited", (2,))], 62.0) is not None


def launched(rank: int, **parts: object) -> Launched:
    return Launched(rank, 2000 + rank, 1.0, 2, **parts)  # type: ignore[arg-type]


def test_a_process_that_ended_before_it_became_a_rank_is_looked_at_while_a_rank_waits() -> None:
    starting, dead = rank_state(0, phase=Phase.INIT, progress=Progress(), moved_at=1.0), launched(1, ended_at=3.0)
    found = reasons([starting], 3.5, SETTINGS, world_size=2, launched=[dead])
    assert ("ended", (2001,), True) in {(each.kind, each.key, each.urgent) for each in found}
    assert not reasons([rank_state(0)], 10.5, SETTINGS, world_size=2, launched=[dead])
    assert not reasons([], 3.5, SETTINGS, world_size=2, launched=[dead])


def test_a_launcher_without_ranks() -> None:
    def kinds_at(now: float) -> list[str]:
        return [each.kind for each in reasons([], now, SETTINGS, world_size=None, no_rank_since=0.0)]

    assert (kinds_at(29.0), kinds_at(31.0)) == ([], ["missing"])


def test_a_launcher_that_lives_on_after_its_ranks() -> None:
    gone = rank_state(0, state="X", since=10.0, phase=Phase.FINALIZING)
    assert "lingering" not in kinds(gone, now=19.0, world_size=1)
    assert "lingering" in kinds(gone, now=21.0, world_size=1)


def test_quiet_ranks_are_looked_at_now_and_then() -> None:
    assert "quiet" not in kinds(rank_state(0), rank_state(1), now=14.0)
    assert "quiet" in kinds(rank_state(0), rank_state(1), now=16.0)


def test_the_rest_between_polls_ends_when_stillness_is_worth_a_look() -> None:
    """A deadlock is looked at after a second of stillness, and not up to a poll later."""
    waiting = [rank_state(0, heads=blocked()), rank_state(1, heads=blocked())]
    assert round(until_next_poll(waiting, 10.4, 1.0), 3) == 0.6
    assert until_next_poll(waiting, 10.9, 1.0) == LEAST_PAUSE_S
    assert until_next_poll(waiting, 11.5, 1.0) == 1.0
    assert until_next_poll([*waiting, rank_state(2)], 10.4, 1.0) == 1.0
    assert until_next_poll([], 10.4, 1.0) == 1.0
