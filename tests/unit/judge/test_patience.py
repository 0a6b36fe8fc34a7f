"""Patience that follows the evidence: which facts shorten it, and which programs must be given their time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.facts.case import Case
from hangwatch.judge.argument import patience
from hangwatch.judge.patience import FROM_OUTSIDE, WORKS_OFF, held, outside_waits, resting, shortened
from hangwatch.model import (
    Frame,
    LockFile,
    LockOwner,
    LoopFacts,
    OpenFile,
    Phase,
    Pipe,
    ProcessEvidence,
    Progress,
    RankEvidence,
    ThreadStack,
)
from tests.unit.job import (
    C10D,
    FETCHING,
    IDLE,
    IN_BACKWARD,
    IN_CODE,
    IN_NEW_GROUP,
    LIB,
    SCRIPT,
    TORCH,
    feeding,
    frames,
    gone,
    other,
    process,
    rank,
    snapshot,
    starting,
    worker,
)

SOCKET = OpenFile(7, "socket 10.0.0.1:4000 -> 10.0.0.2:443")
PIPE = OpenFile(0, "pipe:[77]")
NAMED = OpenFile(5, "/scratch/model.pt", "fifo")
FILE = OpenFile(5, "/scratch/model.pt", "nfs4")
IN_LOCK = frames((f"{LIB}/threading.py", 327, "wait"))
IN_BROADCAST = frames((C10D, 2900, "broadcast"))
IN_SAVE = frames((f"{TORCH}/serialization.py", 900, "save"))
IN_COMPILE = frames((f"{TORCH}/_inductor/compile_fx.py", 700, "compile_fx"))
WAITING = rank(1, IN_BACKWARD, issued=11, completed=10)


def stands(stack: Any = IN_CODE, evidence: dict[str, Any] | None = None, **facts: Any) -> RankEvidence:
    return rank(0, stack, issued=10, completed=10, facts=facts, evidence=evidence)


def fact(one: RankEvidence, *others: RankEvidence, **parts: Any) -> str:
    return held(snapshot(one, *(others or (WAITING,)), **parts)).get(0, "")


# ------------------------------------------------------------------------------------------ facts


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (stands(state="D"), "is in uninterruptible sleep (state D)"),
        (stands(system_call="read", blocked_on=PIPE), "waits in read on pipe:[77]"),
        (stands(system_call="read", blocked_on=OpenFile(0, "/dev/pts/3", "devpts")), "waits in read on /dev/pts/3"),
        (stands(IN_SAVE, system_call="write", blocked_on=NAMED), "waits in write on /scratch/model.pt"),
        (stands(system_call="openat", blocked_on=NAMED), "waits in openat on /scratch/model.pt"),
        (stands(system_call="flock", blocked_on=FILE), "waits for a lock on /scratch/model.pt"),
        (stands(IN_LOCK, private_wait=True), "waits for a lock"),
        (stands(private_wait=True), "waits for a lock"),
        (stands(system_call="recvfrom", blocked_on=SOCKET), f"waits in recvfrom on {SOCKET.path}"),
    ],
)
def test_what_keeps_a_rank_from_going_on_by_itself(one: RankEvidence, says: str) -> None:
    assert fact(one) == says


def fed(*workers: ProcessEvidence) -> RankEvidence:
    return feeding(0, *workers, issued=10, completed=10)


def test_a_rank_is_held_by_what_holds_its_workers() -> None:
    assert fact(fed(worker(0, FETCHING, state="D"), worker(1, IDLE))).startswith(
        "waits for loader worker 0, which is in"
    )
    assert fact(fed(worker(0, FETCHING, state="X"), worker(1, IDLE))) == "waits for loader worker 0, which has ended"
    reads = worker(1, FETCHING, system_call="recvfrom", blocked_on=SOCKET)
    assert fact(fed(worker(0, IDLE), reads)).startswith("waits for loader worker 1, which waits in recvfrom")


@pytest.mark.parametrize(("line", "held_by"), [(0, True), (1, False)])
def test_a_loader_that_looks_after_its_workers_between_two_samples_still_waits(line: int, held_by: bool) -> None:
    """Every 5 s it comes out of its wait for a moment, which is no other batch; another line of the user's is."""
    reads = worker(1, FETCHING, system_call="recvfrom", blocked_on=SOCKET)
    one = fed(worker(0, IDLE), reads)
    stack = one.stacks[0]
    inside = tuple(frame for frame in stack.frames if frame.file != SCRIPT)
    outer = tuple(replace(frame, line=frame.line + line) for frame in stack.frames if frame.file == SCRIPT)
    before = replace(stack, frames=(*inside[3:], *outer))
    assert (fact(replace(one, earlier_stacks=(before,))) != "") is held_by


def test_a_rank_that_is_held_before_it_has_come() -> None:
    blocked = {"system_call": "recvfrom", "blocked_on": SOCKET}
    late = rank(0, IN_CODE, phase=Phase.START, progress=Progress(), facts=blocked)
    assert fact(late, starting(1)) == f"waits in recvfrom on {SOCKET.path}"


# ------------------------------------------------------------------------------------------ guesses


@pytest.mark.parametrize(
    "one",
    [
        stands(cpu_delta_s=0.9, state="R"),  # a validation, a loop, a tokenizer
        stands(state="D", io_delta_bytes=5 << 20),  # it reads
        stands(system_call="clock_nanosleep"),  # it tries again and again
        stands(system_call="poll", blocked_on=SOCKET),  # with a timeout, perhaps
        stands(IN_SAVE, state="D"),  # slow storage between two writes
        stands(IN_SAVE, system_call="write", blocked_on=FILE),
        stands(IN_COMPILE, private_wait=True),  # for its compilers
        stands(system_call="wait4"),  # for a child, which may do anything
        stands(IN_BACKWARD, private_wait=True),  # it waits for other ranks
        stands(system_call="read", blocked_on=PIPE, cpu_delta_s=0.5),
        stands(
            evidence={"children": (ProcessEvidence("child", process(900, cpu_delta_s=0.9)),)},
            system_call="read",
            blocked_on=PIPE,
        ),
        stands(evidence={"moved": True}, system_call="read", blocked_on=PIPE),
    ],
)
def test_programs_that_may_only_be_slow(one: RankEvidence) -> None:
    assert fact(one) == ""


def test_a_peer_that_is_slow_is_no_fact_unless_all_other_ranks_wait() -> None:
    asks = stands(system_call="recvfrom", blocked_on=SOCKET)
    trains = rank(1, frames((f"{LIB}/json/decoder.py", 3, "decode")), issued=10, completed=10)
    assert fact(asks, trains) == ""
    alike = rank(1, IN_CODE, issued=10, completed=10, facts={"system_call": "recvfrom", "blocked_on": SOCKET})
    assert fact(asks, alike) == ""
    alone = rank(0, IN_CODE, facts={"system_call": "recvfrom", "blocked_on": SOCKET}, world_size=1)
    assert held(snapshot(alone)) == {}


def test_one_sample_is_no_fact() -> None:
    assert fact(stands(system_call="read", blocked_on=PIPE), WAITING, sampled_twice=False) == ""


def test_workers_that_sleep_or_compute_hold_no_rank() -> None:
    assert fact(fed(worker(0, FETCHING, system_call="clock_nanosleep"))) == ""
    assert fact(fed(worker(0, FETCHING, cpu_delta_s=0.9))) == ""
    one_works = (worker(0, FETCHING, state="D"), worker(1, FETCHING, cpu_delta_s=0.9))
    assert fact(fed(*one_works)) != ""  # the batch of worker 0 is awaited, in order


# ------------------------------------------------------------------------------------------ nothing but sleep


def polls(number: int, **facts: Any) -> RankEvidence:
    return rank(number, IN_CODE, issued=10, completed=10, facts={"system_call": "clock_nanosleep", **facts})


def test_ranks_that_poll_for_each_other_are_at_no_work_that_a_first_step_takes() -> None:
    assert resting(snapshot(polls(0), WAITING)) == {0}
    assert resting(snapshot(polls(0), WAITING, polls(2), world_size=3)) == {0, 2}
    assert resting(snapshot(polls(0), rank(1, IN_NEW_GROUP, issued=4, completed=4))) == {0}


@pytest.mark.parametrize(
    "ranks",
    [
        (polls(0), polls(1)),  # for something from outside of the job
        (polls(0), rank(1, IN_CODE, issued=10, completed=10)),  # in a call of its own
        (polls(0, cpu_delta_s=0.4), WAITING),
        (polls(0, io_delta_bytes=5 << 20), WAITING),
        (rank(0, IN_SAVE, facts={"system_call": "clock_nanosleep"}), WAITING),
    ],
)
def test_a_job_in_which_a_rank_may_work_is_given_its_time(ranks: tuple[RankEvidence, ...]) -> None:
    assert resting(snapshot(*ranks)) == frozenset()


def test_ranks_that_are_not_seen_may_work() -> None:
    assert resting(snapshot(polls(0), WAITING, world_size=4)) == frozenset()
    assert resting(snapshot(polls(0), WAITING, sampled_twice=False)) == frozenset()


# ------------------------------------------------------------------------------------------ what follows


def test_a_fact_shortens_patience_and_never_lengthens_it() -> None:
    assert shortened(600.0, 60.0, 5.0) == 60.0
    assert shortened(4.0, 4.0, 3.0) == 4.0


def test_a_rank_that_worked_until_now_is_not_held_since_it_stands() -> None:
    assert shortened(600.0, 60.0, 200.0) == 230.0


# ------------------------------------------------------------------------------------------ by its children


def child(pid: int = 70, **facts: Any) -> ProcessEvidence:
    return ProcessEvidence("child", process(pid, command="bash -c score", **facts), rank=0)


def waits_for(*children: ProcessEvidence) -> RankEvidence:
    return stands(evidence={"children": children}, system_call="wait4")


def test_a_child_that_sleeps_for_hours_holds_the_rank_that_waits_for_it() -> None:
    shell, sleeper = child(70, system_call="wait4"), child(71, system_call="clock_nanosleep", sleeps_s=100_000.0)
    assert fact(waits_for(shell, sleeper)).startswith("waits for its child process 71, which sleeps for ")
    assert fact(waits_for(child(system_call="read", blocked_on=PIPE))) == (
        "waits for its child process 70, which waits in read on pipe:[77]"
    )


@pytest.mark.parametrize(
    "children",
    [
        (child(system_call="clock_nanosleep", sleeps_s=5.0),),  # it polls for something
        (child(system_call="wait4"),),  # for a process that is not seen
        (child(system_call="read", blocked_on=PIPE), child(71, system_call="poll")),  # one of them may go on
        (child(system_call="read", blocked_on=PIPE, cpu_delta_s=0.4),),
        (child(system_call="wait4"), child(71, state="X")),  # a script that runs one command after another
    ],
)
def test_a_child_that_may_go_on_holds_no_rank(children: tuple[ProcessEvidence, ...]) -> None:
    assert fact(waits_for(*children)) == ""


def test_what_comes_through_a_pipe_is_for_the_child_to_say() -> None:
    """An evaluation that sleeps for a moment may write its score yet."""
    pauses = child(system_call="clock_nanosleep", sleeps_s=20.0)
    assert fact(stands(evidence={"children": (pauses,)}, system_call="read", blocked_on=PIPE)) == ""


@pytest.mark.parametrize(
    ("writers", "fd", "expected", "times"),
    [
        ((55,), 5, "", {0: FROM_OUTSIDE}),  # a producer beside the ranks
        ((55,), 0, "waits in read on /scratch/model.pt", {}),  # what is typed
        ((), 5, "waits in read on /scratch/model.pt", {}),
        ((100, 101, 70, 60, 61), 5, "waits in read on /scratch/model.pt", {}),  # ranks, a child, launcher and orphan
    ],
)
def test_what_a_process_beside_the_ranks_writes_may_come_late(
    writers: tuple[int, ...], fd: int, expected: str, times: dict[int, float]
) -> None:
    reads = stands(system_call="read", blocked_on=replace(NAMED, fd=fd))
    pipes = {"pipes": (Pipe(NAMED.path, (100,), writers),)}
    beside: dict[str, Any] = {"launchers": (other(60, "launcher"),), "others": (other(61), other(55, "job"))}
    entry = replace(reads, children=(ProcessEvidence("helper", process(70), rank=0),))
    assert fact(entry, node=pipes, **beside) == expected
    assert outside_waits(snapshot(entry, WAITING, node=pipes, **beside)) == times


ENDED = child(70, state="Z")
FEEDS = ThreadStack(102, "feeder", (Frame(SCRIPT, 60, "feed"),))


@pytest.mark.parametrize(
    ("children", "stacks", "expected"),
    [
        pytest.param((ENDED,), (), "waits for its child process 70, which has ended", id="its only one"),
        pytest.param((ENDED, child(71, system_call="poll")), (), "", id="another one may bring it"),
        pytest.param((ENDED,), (FEEDS,), "", id="a thread of the rank may bring it"),
    ],
)
def test_nothing_comes_from_a_child_that_has_ended(
    children: tuple[ProcessEvidence, ...], stacks: tuple[ThreadStack, ...], expected: str
) -> None:
    """A queue of multiprocessing says nothing of the end of the process that fills it."""
    entry = stands(evidence={"children": children}, system_call="read", blocked_on=PIPE)
    assert fact(replace(entry, stacks=(*entry.stacks, *stacks))) == expected


def test_processes_of_python_itself_are_no_children_that_bring_something() -> None:
    tracker = ProcessEvidence("helper", process(70, system_call="read", blocked_on=PIPE), rank=0)
    entry = stands(evidence={"children": (tracker,)}, system_call="read", blocked_on=PIPE)
    assert fact(entry) == "waits in read on pipe:[77]"


def test_a_child_is_given_its_time_where_other_ranks_work_too() -> None:
    busy = rank(1, IN_CODE, facts={"cpu_delta_s": 0.9})
    assert fact(waits_for(child(system_call="read", blocked_on=PIPE)), busy) == ""


# ------------------------------------------------------------------------------------------ a pool, and the store

_POOL = (
    (f"{LIB}/multiprocessing/queues.py", 364, "get"),
    (f"{LIB}/multiprocessing/pool.py", 114, "worker"),
    (f"{LIB}/multiprocessing/process.py", 314, "_bootstrap"),
)
IN_MAP = frames((f"{LIB}/threading.py", 327, "wait"), (f"{LIB}/multiprocessing/pool.py", 367, "map"))


def pooled(pid: int, *inner: tuple[str, int, str], **facts: Any) -> ProcessEvidence:
    stacks = (ThreadStack(pid, "MainThread", frames(*inner, *_POOL), main=True),)
    return ProcessEvidence("child", process(pid, **facts), stacks, stacks, rank=0)


def in_map(*children: ProcessEvidence, **evidence: Any) -> RankEvidence:
    return stands(IN_MAP, {"children": children, **evidence}, private_wait=True)


def test_a_pool_that_waits_for_work_gives_no_result() -> None:
    tracker = ProcessEvidence("helper", process(69, system_call="read", blocked_on=PIPE), rank=0)
    idle = (pooled(70, system_call="read", blocked_on=PIPE), pooled(71, system_call="futex"))
    assert fact(in_map(tracker, *idle)) == "waits for 2 child processes, which wait for work"


def test_a_pool_with_work_is_given_its_time() -> None:
    busy = pooled(71, (SCRIPT, 5, "tokenize"), system_call="futex")
    assert fact(in_map(pooled(70, system_call="futex"), busy)) == ""
    assert fact(in_map(pooled(70, cpu_delta_s=0.5), pooled(71, system_call="futex"))) == ""


def test_a_thread_of_the_program_may_have_more_work_for_its_pool() -> None:
    feeds = ThreadStack(11, "feeder", frames((SCRIPT, 20, "documents")))
    one = in_map(pooled(70, system_call="futex"), pooled(71, system_call="futex"))
    assert fact(replace(one, stacks=(*one.stacks, feeds))) == ""


AT_STORE = frames((SCRIPT, 8, "meet"))
STORE = {
    "system_call": "poll",
    "blocked_on": OpenFile(6, "socket 127.0.0.1:40846 -> 127.0.0.1:29500"),
    "environment": {"MASTER_PORT": "29500"},
}


def test_a_key_that_no_rank_can_set_now_is_waited_for_in_vain() -> None:
    says = "waits for a key of a store while no rank does anything else but wait"
    one, other = (rank(number, AT_STORE, issued=10, completed=10, facts=STORE) for number in (0, 1))
    assert fact(one) == says
    assert held(snapshot(one, other)) == {0: says, 1: says}
    assert fact(one, rank(1, IN_CODE, facts={"cpu_delta_s": 0.9})) == ""
    assert fact(one, rank(1, IN_CODE, facts={"system_call": "clock_nanosleep", "sleeps_s": 4.0})) == ""


@pytest.mark.parametrize("asks_store", [True, False])
def test_a_rank_that_asks_for_a_key_again_and_again_sets_none(asks_store: bool) -> None:
    """GIVEN a rank that waits for a key, and one that sleeps in a loop of which the source shows what it asks."""
    one = rank(0, AT_STORE, issued=10, completed=10, facts=STORE)
    polls = rank(1, AT_STORE, issued=10, completed=10, facts={"system_call": "clock_nanosleep", "sleeps_s": 1.0})
    loop = LoopFacts(AT_STORE[0], asks_store=asks_store)
    stacks = tuple(replace(stack, in_loop=True, loop=loop) for stack in polls.stacks)
    found = held(snapshot(one, replace(polls, stacks=stacks)))
    assert set(found) == ({0} if asks_store else set()), "a loop may end by itself, or ask for something else as well"


# ------------------------------------------------------------------------------------------ in words


def test_whose_patience_is_over_is_said_by_the_number_of_ranks() -> None:
    first, second = rank(0, IN_CODE, still_s=70.0), rank(1, IN_BACKWARD, still_s=71.0)
    one = Case(snapshot(rank(0, IN_CODE, still_s=1.0), second))
    assert patience(one) == ("no counter of rank 1 has moved for 71 s: after 30 s that is called hung",)
    both = Case(snapshot(first, second))
    assert patience(both) == ("no counter of all ranks has moved for 70 s: after 30 s that is called hung",)


def test_code_that_computes_is_given_more_patience_which_is_said() -> None:
    loops = rank(0, IN_CODE, still_s=151.0, facts={"cpu_delta_s": 0.9, "state": "R"})
    assert patience(Case(snapshot(loops, rank(1, IN_BACKWARD, still_s=152.0)))) == (
        "no counter of all ranks has moved for 2 min 31 s: after 2 min 30 s that is called hung, as rank 0 computes",
    )


def test_a_rank_that_has_ended_is_no_reason_to_call_the_others_hung() -> None:
    assert patience(Case(snapshot(WAITING, gone(0, 1)))) == (
        "no counter of rank 1 has moved for 40 s: after 30 s that is called hung",
    )


@pytest.mark.parametrize(
    ("role", "times"), [("stranger", FROM_OUTSIDE), ("job", FROM_OUTSIDE), ("leftover", None), ("orphan", None)]
)
def test_a_program_beside_the_job_lets_go_of_its_lock_in_its_own_time(role: str, times: float | None) -> None:
    """A rank of an earlier run that was left over will never let go of it."""
    lock = LockFile(FILE.path, 4711, owner_alive=True, age_s=9.0, owner=LockOwner(4711, role=role))
    found = snapshot(stands(system_call="flock", blocked_on=FILE, evidence={"lock_files": (lock,)}), WAITING)
    assert outside_waits(found).get(0) == times
    assert (0 in held(found)) is (times is None)


def test_an_alarm_may_end_a_wait() -> None:
    """GIVEN a program that handles SIGALRM, as one does to give up on a lock after a time."""
    for has_alarm in (False, True):
        waits = stands(system_call="flock", blocked_on=FILE, has_alarm=has_alarm)
        assert (0 in held(snapshot(waits, WAITING))) is not has_alarm


def test_a_thread_at_its_task_may_set_the_key_for_which_other_ranks_wait() -> None:
    """A rank that waits in a collective has a thread of its own that will come to its end."""
    getter = stands(system_call="recvfrom", blocked_on=OpenFile(9, "socket 10.0.0.1:1 -> 10.0.0.2:29500"))
    assert 0 in held(snapshot(getter, WAITING))
    busy = replace(WAITING, stacks=(*WAITING.stacks, *at_work().stacks[1:]))
    assert held(snapshot(getter, busy)) == {}


@pytest.mark.parametrize(
    ("times_out_s", "is_held"), [(90.0, False), (600.0, False), (300.0, True), (1_800.0, True), (5.0, True)]
)
def test_a_wait_that_gives_up_by_itself_is_no_fact(times_out_s: float, is_held: bool) -> None:
    waits = stands(system_call="read", blocked_on=OpenFile(9, "pipe:[7]"), times_out_s=times_out_s)
    assert (0 in held(snapshot(waits, WAITING))) is is_held


@pytest.mark.parametrize(
    ("facts", "is_held"),
    [
        ({"system_call": "clock_nanosleep", "sleeps_s": 90.0}, False),
        ({"cpu_delta_s": 0.8}, False),
        ({"system_call": "clock_nanosleep", "sleeps_s": 9_000.0}, True),
        ({"system_call": "futex"}, True),
    ],
)
def test_a_child_at_work_or_in_a_sleep_that_ends_may_read_what_is_written_to_it(
    facts: dict[str, Any], is_held: bool
) -> None:
    child = ProcessEvidence("child", process(900, **facts), rank=0)
    writes = stands(system_call="write", blocked_on=PIPE, evidence={"children": (child,)})
    assert (0 in held(snapshot(writes, WAITING))) is is_held


def test_threads_that_wait_for_what_the_main_one_has_are_at_no_task() -> None:
    entered: dict[str, Any] = {"entered": ("metrics",), "entering": ("weights",)}
    one = at_work(entered=("weights",), entering=("metrics",))
    stuck = replace(one, stacks=(replace(one.stacks[0], **entered), *one.stacks[1:]))
    assert held(snapshot(replace(stuck, earlier_stacks=stuck.stacks), WAITING)) == {0: "waits for a lock"}


def at_work(**parts: Any) -> RankEvidence:
    thread = ThreadStack(9, "scorer_0", frames((SCRIPT, 6, "score")), active=False, **parts)
    facts = {"private_wait": True, "system_call": "futex"}
    return rank(0, IN_LOCK, issued=10, completed=10, facts=facts, threads=(thread,))


@pytest.mark.parametrize(
    ("loop", "held_by"),
    [
        (None, ""),  # a task of a pool of threads
        (LoopFacts(Frame(SCRIPT, 5, "score"), bounded=True), ""),
        (LoopFacts(Frame(SCRIPT, 5, "score"), endless=True), "waits for a lock"),  # a heartbeat
    ],
)
def test_a_rank_that_waits_for_tasks_of_its_own_threads_is_given_time(loop: LoopFacts | None, held_by: str) -> None:
    found = snapshot(at_work(loop=loop), WAITING)
    assert held(found).get(0, "") == held_by
    assert outside_waits(found).get(0) == (None if held_by else FROM_OUTSIDE)


@pytest.mark.parametrize(("leaves", "held_by"), [((Frame(SCRIPT, 7, "score"),), ""), ((), "waits for a lock")])
def test_a_task_of_a_pool_that_tries_again_comes_to_an_end(leaves: tuple[Frame, ...], held_by: str) -> None:
    tries = LoopFacts(Frame(SCRIPT, 5, "score"), leaves=leaves, skips=(Frame(SCRIPT, 8, "score"),))
    waits = at_work(loop=tries)
    thread = waits.stacks[1]
    pooled = replace(
        thread, frames=(*thread.frames, *frames((f"{LIB}/concurrent/futures/thread.py", 58, "run"), below=()))
    )
    found = replace(waits, stacks=(waits.stacks[0], pooled), earlier_stacks=(waits.stacks[0], pooled))
    assert held(snapshot(found, WAITING)).get(0, "") == held_by
    # AND one that looks again and again whether it should stop is a watch, as a thread of the program's own may be
    watch = tuple(replace(stack, loop=replace(tries, skips=())) for stack in found.stacks[1:])
    assert held(
        snapshot(replace(found, stacks=(found.stacks[0], *watch), earlier_stacks=(found.stacks[0], *watch)), WAITING)
    )
    assert held(snapshot(waits, WAITING)) == {0: "waits for a lock"}


@pytest.mark.parametrize(("idle", "held_by"), [(False, ""), (True, "waits for a lock")])
def test_a_thread_that_runs_a_command_is_at_a_task_though_its_loop_has_no_end(idle: bool, held_by: str) -> None:
    endless = LoopFacts(Frame(SCRIPT, 5, "score"), endless=True)
    thread = at_work(loop=endless).stacks[1]
    inside = replace(
        thread, frames=(*frames(("/usr/lib/python3.11/subprocess.py", 2108, "communicate")), *thread.frames)
    )
    child = ProcessEvidence("child", process(900, state="Z" if idle else "S", system_call="wait4"), rank=0)
    waits = at_work()
    busy = replace(waits, stacks=(*waits.stacks[:1], inside), children=(child,))
    assert held(snapshot(replace(busy, earlier_stacks=busy.stacks), WAITING)).get(0, "") == held_by


@pytest.mark.parametrize(
    ("sleeps_s", "bounded", "times"), [(8.0, True, WORKS_OFF), (8.0, False, FROM_OUTSIDE), (90.0, True, None)]
)
def test_a_loader_worker_that_tries_again_after_a_pause_is_given_time(
    sleeps_s: float, bounded: bool, times: float | None
) -> None:
    loop = LoopFacts(Frame(SCRIPT, 50, "__getitem__"), bounded=bounded)
    tries = worker(
        0, frames((SCRIPT, 54, "__getitem__"), below=FETCHING), system_call="clock_nanosleep", sleeps_s=sleeps_s
    )
    tries = replace(tries, stacks=(replace(tries.stacks[0], loop=loop), *tries.stacks[1:]))
    assert outside_waits(snapshot(feeding(0, tries), WAITING)).get(0) == times
