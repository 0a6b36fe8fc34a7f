"""The simulated machine against jobs whose fate is known: who waits, who ends, who is aborted."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.model import Phase
from hangwatch.stacks.frames import name_of, origin
from hangwatch.world.acts import Act, Destroy, Die, Line, Monitored, Raise, Stop, ThreadPlan, Wait
from hangwatch.world.calls import BIG
from hangwatch.world.camera import Camera
from hangwatch.world.evidence import snapshot
from hangwatch.world.machine import Machine
from hangwatch.world.oracle import can_go_on, finished
from tests.unit.world.jobs import (
    BARRIER,
    COMPUTE,
    ENDED,
    GATHER,
    ITEM,
    REDUCE,
    SOURCE,
    STUCK,
    WAITS,
    job,
    recv,
    send,
    states,
)


def test_a_healthy_job_ends() -> None:
    program: list[Act] = [REDUCE, REDUCE, BARRIER, Destroy()]
    machine = job(program, program, program)
    assert states(machine) == [ENDED] * 3
    assert finished(machine)


def test_a_call_left_out_is_waited_for_for_ever() -> None:
    machine = job([REDUCE, BARRIER], [BARRIER])
    assert states(machine) == [WAITS, WAITS]
    assert not can_go_on(machine)


def test_on_gloo_a_rank_that_is_gone_takes_those_that_wait_for_it_along() -> None:
    machine = job([REDUCE], [Die(-9)], [REDUCE])
    assert states(machine) == [("X", 1), ("X", -9), ("X", 1)]
    error = machine.ranks[0].exception
    assert error is not None
    assert "Connection closed by peer" in error.message


def test_on_nccl_a_rank_that_is_gone_is_waited_for() -> None:
    machine = job([REDUCE, ITEM], [Die(-9)], backend="nccl")
    assert states(machine) == [WAITS, ("X", -9)]
    assert not can_go_on(machine)


def test_sizes_that_differ_abort_a_process_on_gloo() -> None:
    machine = job([REDUCE], [replace(REDUCE, size=9)])
    assert sorted(code for _, code in states(machine) if code is not None) == [-6, 1]
    aborted = next(rank for rank in machine.ranks if rank.code == -6)
    assert "Received data size doesn't match" in aborted.output


def _last_stack(machine: Machine, number: int) -> tuple[str, list[str]]:
    """Of the main thread: its source, and the functions from the innermost to the user's."""
    entry = snapshot(machine, Camera()).ranks[number]
    stack = next(stack for stack in entry.stacks if stack.main)
    return stack.source, [name_of(frame.function) for frame in stack.frames if origin(frame.file) != "hangwatch"]


def test_ranks_that_end_leave_the_stacks_that_real_ones_leave() -> None:
    """A trace where they were aborted, the frames of the error that ended them, or the calls on the board."""
    machine = job([REDUCE], [replace(REDUCE, size=9)])
    aborted = next(rank.number for rank in machine.ranks if rank.code == -6)
    waits = job([REDUCE], [STUCK])
    waits.kill(waits.ranks[0], -9)
    found = [_last_stack(machine, aborted), _last_stack(machine, 1 - aborted), _last_stack(waits, 0)]
    assert [source for source, _ in found] == ["crash", "error", "board"]
    assert all("all_reduce" in functions for _, functions in found)


def test_a_monitored_barrier_names_the_rank_that_did_not_come() -> None:
    barrier = Monitored(SOURCE.site("final"))
    machine = job([barrier], [barrier], [STUCK])
    while machine.finish():
        machine.run()
    errors = [rank.exception.message if rank.exception is not None else "" for rank in machine.ranks]
    assert errors[0] == "[Rank 0]: Ranks 2 failed to pass monitoredBarrier in 30000 ms"
    assert errors[1].startswith("Rank 1 successfully reached monitoredBarrier") or "Connection closed" in errors[1]


def test_kinds_that_differ_hang_on_gloo() -> None:
    machine = job([REDUCE], [GATHER])
    assert states(machine) == [WAITS, WAITS]
    assert not can_go_on(machine)


def test_kinds_that_differ_may_give_wrong_numbers_on_nccl() -> None:
    assert states(job([REDUCE, ITEM], [GATHER, ITEM], backend="nccl", garbage=True)) == [ENDED, ENDED]
    assert states(job([REDUCE, ITEM], [GATHER, ITEM], backend="nccl")) == [WAITS, WAITS]


def test_on_nccl_the_host_runs_ahead_of_its_device() -> None:
    machine = job([REDUCE, REDUCE, REDUCE, ITEM], [COMPUTE, REDUCE, REDUCE, REDUCE, ITEM], backend="nccl")
    assert machine.ranks[0].issued == {"0": 3}
    assert [call.complete for call in machine.ranks[0].calls] == [False] * 3
    assert can_go_on(machine)


def test_a_circle_over_two_groups_is_a_deadlock_of_the_devices_too() -> None:
    other = replace(REDUCE, group="tp")
    programs: tuple[list[Act], ...] = ([REDUCE, other, ITEM], [other, REDUCE, ITEM])
    for backend in ("gloo", "nccl"):
        machine = job(*programs, backend=backend, groups={"tp": (0, 1)})
        assert states(machine) == [WAITS, WAITS]
        assert not can_go_on(machine)


def test_asynchronous_calls_in_another_order_are_no_deadlock() -> None:
    one, other = replace(REDUCE, handle="a"), replace(REDUCE, group="tp", handle="a")
    wait = Wait("a", SOURCE.site("item"))
    machine = job([one, other, wait, ITEM], [other, one, wait, ITEM], groups={"tp": (0, 1)})
    assert states(machine) == [ENDED, ENDED]


def test_blocking_sends_to_each_other_are_a_deadlock_on_gloo() -> None:
    machine = job([send(1), recv(1)], [send(0), recv(0)], eager=True)
    assert states(machine) == [WAITS, WAITS]
    assert not can_go_on(machine)


def test_asynchronous_sends_to_each_other_are_none() -> None:
    wait = Wait("s", SOURCE.site("send"))
    machine = job([send(1, "s"), recv(1), wait], [send(0, "s"), recv(0), wait])
    assert states(machine) == [ENDED, ENDED]


def test_what_goes_over_a_slow_link_arrives() -> None:
    wait = Wait("s", SOURCE.site("send"))
    machine = job([send(1, "s"), recv(1), wait], [send(0, "s"), recv(0), wait], slow_links=True)
    assert states(machine) == [WAITS, WAITS]
    assert can_go_on(machine)


def test_a_large_call_over_a_slow_link_completes() -> None:
    machine = job([replace(REDUCE, size=BIG)], [replace(REDUCE, size=BIG)], slow_links=True)
    assert states(machine) == [WAITS, WAITS]
    assert can_go_on(machine)


def test_slow_is_not_dead_and_stuck_is() -> None:
    assert can_go_on(job([REDUCE], [COMPUTE, REDUCE]))
    assert not can_go_on(job([REDUCE], [STUCK, REDUCE]))


def test_a_stopped_process_never_goes_on() -> None:
    machine = job([REDUCE], [Stop(), REDUCE])
    assert states(machine) == [WAITS, ("T", None)]
    assert not can_go_on(machine)


def test_what_arrives_over_a_slow_link_lets_the_partner_of_a_stopped_process_go_on() -> None:
    programs: list[list[Act]] = [[send(1, "s"), Wait("s", SOURCE.site("send"))], [recv(0, "r"), Stop()]]
    assert can_go_on(job(*programs, slow_links=True))


def test_what_arrives_for_a_process_that_has_ended_is_no_progress() -> None:
    large = replace(REDUCE, size=BIG)
    machine = job([large, ITEM], [large, Stop()], backend="nccl", slow_links=True)
    assert can_go_on(machine)
    machine = job([large, ITEM], [large, Stop()], backend="nccl", slow_links=True)
    machine.kill(machine.ranks[0], -6)
    assert not can_go_on(machine)


def test_a_monitored_barrier_raises_by_itself() -> None:
    machine = job([Monitored(SOURCE.site("monitored"))], [STUCK])
    assert states(machine) == [WAITS, WAITS]
    assert can_go_on(machine)


def test_a_monitored_barrier_that_all_reach_is_no_call_of_the_group() -> None:
    program: list[Act] = [Monitored(SOURCE.site("monitored")), REDUCE]
    machine = job(program, program)
    assert states(machine) == [ENDED, ENDED]
    assert machine.ranks[0].issued == {"0": 1}


def test_an_error_on_one_rank_ends_it() -> None:
    machine = job([Raise("ValueError", "bad", SOURCE.site("load"))], [REDUCE, ITEM], backend="nccl")
    assert states(machine) == [("X", 1), WAITS]


def test_a_thread_that_is_no_daemon_keeps_the_process() -> None:
    lines = (Line(replace(COMPUTE, kind="upload")), Line(BARRIER))
    plans = [ThreadPlan("uploader", lines, daemon=False)]
    machine = job([], [BARRIER], threads={0: plans})
    assert machine.ranks[0].phase is Phase.MAIN_DONE
    assert states(machine) == [WAITS, WAITS]
    assert can_go_on(machine)


def test_the_end_of_a_background_thread_is_no_progress() -> None:
    machine = job([REDUCE], [STUCK], threads={0: [ThreadPlan("logger", (Line(COMPUTE),))]})
    assert not can_go_on(machine)


def test_a_background_thread_that_makes_the_missing_call_is_progress() -> None:
    helper = ThreadPlan("helper", (Line(replace(COMPUTE, kind="idle-thread")), Line(REDUCE)))
    machine = job([REDUCE, BARRIER], [BARRIER], threads={1: [helper]})
    # The barrier of rank 1 has taken the number of the missing call: what comes too late does not help.
    assert not can_go_on(machine)
    machine = job([REDUCE, BARRIER], [STUCK, BARRIER], threads={1: [helper]})
    assert can_go_on(machine)
