from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import (
    EPOCHS_KEPT,
    Collective,
    Frame,
    LoaderFacts,
    LoopFacts,
    OpenFile,
    Phase,
    Progress,
    RankEvidence,
    Snapshot,
    StepTimes,
    ThreadStack,
)
from hangwatch.settings import Settings
from hangwatch_agent.roster.patience import Holds, patience, patience_with
from hangwatch_agent.roster.rank_states import RankState, with_slowest
from tests.unit import job
from tests.unit.agent.readings import blocked, rank_state

SETTINGS = Settings(stall_after=10.0, start_after=30.0)


def test_a_quick_job_has_the_patience_of_the_setting() -> None:
    assert patience(rank_state(0), SETTINGS) == 10.0


def test_patience_learns_from_slow_steps() -> None:
    assert patience(rank_state(0, times=StepTimes(steps=9, slowest_recent_s=40.0)), SETTINGS) == 240.0


def test_patience_follows_the_slowest_step_of_any_rank() -> None:
    """GIVEN what rank 0 does between two epochs WHEN the others wait for it in their next step."""
    waited = rank_state(1, times=StepTimes(steps=9, slowest_recent_s=45.0))
    quick, _ = with_slowest([rank_state(0), waited])
    assert patience(quick, SETTINGS) == 270.0


def test_the_first_step_and_evaluation_are_given_more() -> None:
    first = rank_state(0, progress=Progress(epoch=0, batch=0, step=0))
    evaluation = rank_state(0, phase=Phase.EVAL)
    assert patience(first, SETTINGS) == patience(evaluation, SETTINGS) == 50.0


def test_a_loop_of_raw_collectives_has_no_first_step_to_wait_for() -> None:
    raw = rank_state(0, phase=Phase.READY, progress=Progress(step=-1, calls=40))
    assert patience(raw, SETTINGS) == 10.0


def test_what_a_model_that_is_wrapped_calls_is_no_loop_yet() -> None:
    """DDP's first calls make NCCL's communicators, which may take long on a busy machine."""
    wrapped = rank_state(0, phase=Phase.READY, progress=Progress(step=-1, calls=2))
    assert patience(wrapped, SETTINGS) == 50.0


def test_start_has_a_patience_of_its_own() -> None:
    assert patience(rank_state(0, phase=Phase.INIT), SETTINGS) == 30.0


def test_a_rank_that_has_called_no_other_rank_yet_may_load_its_data_first() -> None:
    assert patience(rank_state(0, phase=Phase.START), SETTINGS) == 300.0


@pytest.mark.parametrize(("wrote_at", "patient"), [(None, False), (14.0, False), (16.0, True)])
def test_a_rank_that_writes_something_now_and_then_is_given_more(wrote_at: float | None, patient: bool) -> None:
    """A progress bar notices once, soon after the standstill, that it has not moved: that is no sign of work."""
    state = replace(rank_state(0, moved_at=10.0), wrote_at=wrote_at)
    assert patience(state, SETTINGS) == (50.0 if patient else 10.0)


def test_a_rank_that_waits_for_others_is_not_given_more_for_what_a_thread_of_it_writes() -> None:
    state = replace(rank_state(0, moved_at=10.0, heads=blocked()), wrote_at=19.0)
    assert patience(state, SETTINGS) == 10.0


def test_every_false_alarm_makes_it_more_patient() -> None:
    assert patience(rank_state(0), SETTINGS, growth=4.0) == 40.0


def test_a_program_that_is_over_may_linger_for_a_while() -> None:
    over = rank_state(0, phase=Phase.ATEXIT, times=StepTimes(steps=9, slowest_recent_s=40.0))
    assert patience(over, Settings(linger_after=7.0)) == 7.0


def test_the_first_batch_is_given_time_although_ddp_has_called_collectives_before() -> None:
    first = rank_state(0, phase=Phase.DATA, progress=Progress(step=-1, calls=3))
    assert patience(first, SETTINGS) == 50.0


# ------------------------------------------------------------------------------------------ facts


def held_evidence(still_s: float = 8.0, *, system_call: str = "read", line: int = 50, **more: Any) -> Snapshot:
    """Rank 1 reads from a pipe in its first epoch, and rank 0 waits for it."""
    pipe = {"system_call": system_call, "blocked_on": OpenFile(0, "pipe:[7]"), "io_delta_bytes": 0, **more}
    stack = (Frame("/home/ann/train.py", line, "main"), Frame("/home/ann/train.py", 90, "<module>"))
    first = job.rank(1, stack, pid=1001, issued=10, completed=10, still_s=still_s, facts=pipe)
    other = job.rank(0, job.IN_BACKWARD, pid=1000, issued=11, completed=10, still_s=still_s)
    return job.snapshot(other, first)


def first_epoch(moved_at: float = 10.0, **parts: Any) -> tuple[RankState, RankState]:
    new = {"progress": Progress(epoch=0, batch=0, step=0), "moved_at": moved_at, **parts}
    return rank_state(0, **new), rank_state(1, **new)


USUAL = Settings()


def test_a_fact_is_told_after_a_minute_in_the_first_epoch_too() -> None:
    holds, rank_states = Holds(USUAL), first_epoch()
    seen = holds.noted(held_evidence(), rank_states)
    rank = next(rank for rank in seen.ranks if rank.rank == 1)
    assert (rank.held, rank.patience_s) == ("waits in read on pipe:[7]", 60.0)
    assert [patience_with(each, USUAL) for each in holds.applied(rank_states)] == [600.0, 60.0]


def test_a_user_can_set_less_patience() -> None:
    holds, short = Holds(Settings(stall_after=20.0)), first_epoch()
    holds.noted(held_evidence(), short)
    assert holds.applied(short)[1].held_patience_s == 20.0


def test_a_fact_that_is_new_after_minutes_of_work_is_given_half_a_minute() -> None:
    holds, rank_states = Holds(USUAL), first_epoch()
    holds.noted(held_evidence(still_s=200.0), rank_states)
    assert holds.applied(rank_states)[1].held_patience_s == 230.0
    holds.noted(held_evidence(still_s=229.0), rank_states)  # the same fact at the same place
    assert holds.applied(rank_states)[1].held_patience_s == 230.0
    holds.noted(held_evidence(still_s=229.0, line=51), rank_states)  # at another place it has begun anew
    assert holds.applied(rank_states)[1].held_patience_s == 259.0


def test_a_rank_that_goes_through_empty_epochs_is_at_no_place_anew() -> None:
    holds, rank_states = Holds(USUAL), first_epoch()
    dry = (LoaderFacts(0, None, epoch=900, drawn_per_epoch=(0,) * EPOCHS_KEPT),)
    for line in (50, 51):
        seen = held_evidence(line=line, still_s=8.0 + line, system_call="", blocked_on=None)
        held = next(rank for rank in seen.ranks if rank.rank == 1)
        assert held.reading is not None
        held = replace(held, reading=replace(held.reading, loaders=dry))
        holds.noted(replace(seen, ranks=(seen.ranks[0], held)), rank_states)
        assert holds.applied(rank_states)[1].held_patience_s == 58.0 + 30.0


def test_a_rank_that_has_moved_since_is_held_no_longer() -> None:
    holds = Holds(USUAL)
    holds.noted(held_evidence(), first_epoch())
    assert holds.applied(first_epoch(moved_at=30.0))[1].held_patience_s is None


def test_a_fact_that_a_later_look_does_not_show_is_forgotten() -> None:
    holds, rank_states = Holds(USUAL), first_epoch()
    holds.noted(held_evidence(), rank_states)
    holds.noted(held_evidence(system_call="wait4"), rank_states)
    assert holds.applied(rank_states)[1].held_patience_s is None


def test_a_rank_that_only_sleeps_while_the_others_wait_is_given_no_more_for_the_first_step() -> None:
    holds, rank_states = Holds(USUAL), first_epoch()
    seen = holds.noted(held_evidence(system_call="clock_nanosleep"), rank_states)
    rank = next(rank for rank in seen.ranks if rank.rank == 1)
    assert (rank.held, rank.patience_s) == ("", 120.0)
    assert [patience_with(each, USUAL) for each in holds.applied(rank_states)] == [600.0, 120.0]


def test_a_rank_that_only_sleeps_is_given_what_the_pace_of_the_job_asks_for() -> None:
    """GIVEN a job that stood still for 45 s before, while its rank 1 slept time and again."""
    times = StepTimes(steps=9, slowest_recent_s=45.0)
    holds, rank_states = Holds(USUAL), with_slowest([rank_state(0, times=times), rank_state(1)])
    holds.noted(held_evidence(system_call="clock_nanosleep"), rank_states)
    assert [patience_with(each, USUAL) for each in holds.applied(rank_states)] == [270.0, 270.0]


def asleep(still_s: float, sleeps_s: float) -> Snapshot:
    """The same, where rank 1 sleeps."""

    def sleeping(rank: RankEvidence) -> RankEvidence:
        assert rank.process is not None
        return replace(rank, process=replace(rank.process, sleeps_s=sleeps_s))

    found = held_evidence(still_s=still_s, system_call="clock_nanosleep")
    return replace(found, ranks=tuple(sleeping(rank) if rank.rank == 1 else rank for rank in found.ranks))


LOOP = Frame("/home/ann/train.py", 48, "main")


def in_a_loop(snapshot: Snapshot, loop: LoopFacts, *inner: Frame) -> Snapshot:
    """The same, where the source shows that loop around where rank 1 stands, below `inner` frames."""

    def shown(stack: ThreadStack) -> ThreadStack:
        return replace(stack, loop=loop, in_loop=True, frames=(*inner, *stack.frames)) if stack.main else stack

    return replace(
        snapshot,
        ranks=tuple(
            replace(rank, stacks=tuple(map(shown, rank.stacks))) if rank.rank == 1 else rank for rank in snapshot.ranks
        ),
    )


def test_the_end_of_a_sleep_is_waited_for_and_a_moment_more_also_where_little_of_it_is_left() -> None:
    holds, rank_states = Holds(USUAL), (rank_state(0), rank_state(1))
    for still_s, sleeps_s in ((91.0, 53.0), (143.0, 1.0), (146.0, 0.0)):
        seen = holds.noted(asleep(still_s, sleeps_s), rank_states)
        assert next(rank for rank in seen.ranks if rank.rank == 1).patience_s == 149.0
    assert holds.applied(rank_states)[1].held_patience_s == 149.0


def test_one_sleep_after_another_at_one_place_is_waited_for_once() -> None:
    """GIVEN a loop that tries for something every few seconds THEN the time at which it is reported does not slide."""
    holds, rank_states = Holds(USUAL), (rank_state(0), rank_state(1))
    for still_s in (100.0, 119.0, 139.0):
        holds.noted(asleep(still_s, 40.0), rank_states)
        assert holds.applied(rank_states)[1].held_patience_s == 145.0


def test_a_sleep_of_hours_is_not_waited_for() -> None:
    holds, rank_states = Holds(USUAL), (rank_state(0), rank_state(1))
    holds.noted(asleep(91.0, 9_000.0), rank_states)
    assert holds.applied(rank_states)[1].held_patience_s == 240.0


@pytest.mark.parametrize(("times_out_s", "patience_s"), [(200.0, 215.0), (5.0, 120.0), (1_800.0, 120.0), (None, 120.0)])
def test_a_wait_that_gives_up_by_itself_is_waited_for(times_out_s: float | None, patience_s: float) -> None:
    """Not one of many, and not one that gives up as late as a process group does."""
    holds, rank_states = Holds(USUAL), (rank_state(0), rank_state(1))
    waits = held_evidence(still_s=10.0, system_call="poll", times_out_s=times_out_s)
    seen = holds.noted(waits, rank_states)
    assert next(rank for rank in seen.ranks if rank.rank == 1).held == ""
    assert [patience_with(each, USUAL) for each in holds.applied(rank_states)][1] == patience_s


def test_naps_between_two_looks_of_a_loop_are_not_waited_for() -> None:
    holds, rank_states = Holds(USUAL), (rank_state(0), rank_state(1))
    holds.noted(asleep(119.0, 1.5), rank_states)
    assert holds.applied(rank_states)[1].held_patience_s == 120.0


@pytest.mark.parametrize(
    ("loop", "patience_s"),
    [
        (LoopFacts(LOOP), 240.0),  # `while not path.exists()`: that may be late
        (LoopFacts(LOOP, bounded=True), 600.0),  # one sample after the other, by a slow service
        (LoopFacts(LOOP, asks_store=True), 120.0),  # it waits for what a rank sets
    ],
)
def test_naps_in_a_loop_of_its_own_may_be_slow_work(loop: LoopFacts, patience_s: float) -> None:
    holds, rank_states = Holds(USUAL), (rank_state(0), rank_state(1))
    holds.noted(in_a_loop(asleep(20.0, 0.5), loop), rank_states)
    assert holds.applied(rank_states)[1].held_patience_s == patience_s
    still = holds.noted(asleep(30.0, 0.5), rank_states)  # a look between two naps, without its loop
    assert next(rank for rank in still.ranks if rank.rank == 1).patience_s == patience_s


def test_what_a_rank_writes_as_it_asks_the_store_is_no_work() -> None:
    """GIVEN a rank that asks the store again and again, to which each look writes some bytes
    THEN it is given no more than one that only sleeps while the others wait."""
    holds, rank_states = Holds(USUAL), (rank_state(0), replace(rank_state(1), wrote_at=rank_state(1).moved_at + 90.0))
    for loop, patience_s in ((LoopFacts(LOOP, asks_store=True), 120.0), (LoopFacts(LOOP), 600.0)):
        holds.noted(in_a_loop(asleep(20.0, 0.5), loop), rank_states)
        assert [patience_with(each, USUAL) for each in holds.applied(rank_states)][1] == patience_s


def test_a_package_that_naps_is_given_no_more_for_the_loop_that_has_called_it() -> None:
    holds, rank_states = Holds(USUAL), (rank_state(0), rank_state(1))
    package = Frame("/usr/lib/python3/site-packages/retry/api.py", 40, "call")
    holds.noted(in_a_loop(asleep(20.0, 0.5), LoopFacts(LOOP, bounded=True), package), rank_states)
    assert holds.applied(rank_states)[1].held_patience_s is None


def test_a_rank_that_has_not_come_is_given_a_minute_where_a_fact_holds_it() -> None:
    holds, starting = Holds(USUAL), first_epoch(phase=Phase.START)
    holds.noted(held_evidence(), starting)
    assert holds.applied(starting)[1].held_patience_s == 60.0


def test_false_alarms_make_it_more_patient_with_facts_too() -> None:
    holds, rank_states = Holds(USUAL), first_epoch()
    holds.noted(held_evidence(), rank_states, growth=2.0)
    assert holds.applied(rank_states)[1].held_patience_s == 120.0


def test_a_stack_in_python_s_exit_is_given_the_patience_of_the_exit() -> None:
    """A child of multiprocessing runs no atexit callbacks: its board goes on saying that it destroyed its group."""
    holds, rank_states = Holds(USUAL), first_epoch(phase=Phase.DESTROYED)
    one, other = (
        job.rank(number, stack, phase=Phase.DESTROYED, pid=1000 + number, still_s=4.0)
        for number, stack in enumerate((job.IN_CODE, job.IN_FEEDER_JOIN))
    )
    seen = holds.noted(job.snapshot(one, other), rank_states)
    assert next(rank for rank in seen.ranks if rank.rank == 1).patience_s == USUAL.linger_after
    assert [patience_with(each, USUAL) for each in holds.applied(rank_states)] == [600.0, USUAL.linger_after]


@pytest.mark.parametrize(("host", "patience_s"), [("node-a", 10.0), ("node-b", 60.0)])
def test_patience_is_ten_seconds_where_nothing_is_on_its_way(host: str, patience_s: float) -> None:
    """GIVEN ranks that all wait, their calls mispaired WHEN the job is on one machine, or on two."""
    ranks = [job.rank(number, job.IN_BARRIER, pid=1000 + number, issued=11, completed=10) for number in (0, 1)]
    for rank, op in zip(ranks, ("barrier", "all_reduce"), strict=True):
        call = Collective("0", 11, op, ((4,),), ("float32",), frames=job.IN_BARRIER, at=1.0)
        calls = replace(rank.collectives, recent=(call,), open_calls=(call,))
        ranks[rank.rank] = replace(rank, collectives=calls, still_s=3.0)
    ranks[0] = replace(ranks[0], host=host)
    noted = Holds(USUAL).noted(job.snapshot(*ranks), first_epoch())
    assert {each.patience_s for each in noted.ranks} == {patience_s}
