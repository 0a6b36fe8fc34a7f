from __future__ import annotations

from hangwatch.records import Phase, Progress, StepTimes
from hangwatch.settings import Settings
from hangwatch_agent.patience import patience
from tests.unit.agent.readings import reading

SETTINGS = Settings(stall_after=10.0, start_after=30.0)


def test_a_quick_job_has_the_patience_of_the_setting() -> None:
    assert patience(reading(), SETTINGS) == 10.0


def test_patience_learns_from_slow_steps() -> None:
    assert patience(reading(times=StepTimes(steps=9, slowest_recent_s=40.0)), SETTINGS) == 240.0


def test_the_first_step_and_evaluation_are_given_more() -> None:
    first = reading(progress=Progress(epoch=0, batch=0, step=0))
    evaluation = reading(phase=Phase.EVAL)
    assert patience(first, SETTINGS) == patience(evaluation, SETTINGS) == 50.0


def test_a_loop_of_raw_collectives_has_no_first_step_to_wait_for() -> None:
    raw = reading(phase=Phase.READY, progress=Progress(step=-1, calls=40))
    assert patience(raw, SETTINGS) == 10.0


def test_start_has_a_patience_of_its_own() -> None:
    assert patience(reading(phase=Phase.INIT), SETTINGS) == 30.0


def test_every_false_alarm_makes_it_more_patient() -> None:
    assert patience(reading(), SETTINGS, growth=4.0) == 40.0


def test_a_program_that_is_over_may_linger_for_a_while() -> None:
    over = reading(phase=Phase.ATEXIT, times=StepTimes(steps=9, slowest_recent_s=40.0))
    assert patience(over, Settings(linger_after=7.0)) == 7.0


def test_the_first_batch_is_given_time_although_ddp_has_called_collectives_before() -> None:
    first = reading(phase=Phase.DATA, progress=Progress(step=-1, calls=3))
    assert patience(first, SETTINGS) == 50.0
