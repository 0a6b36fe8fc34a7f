"""`user-code-blocked`: one rank is stuck in its own code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import (
    Excerpt,
    Frame,
    LockFile,
    LoopFacts,
    OpenFile,
    ProcessEvidence,
    ProcessFacts,
    Progress,
    RankEvidence,
    Status,
    ThreadStack,
    Verdict,
    WayOut,
)
from tests.unit.job import (
    IN_BACKWARD,
    IN_CODE,
    IN_FEEDER_JOIN,
    IN_STORE,
    IN_WAIT,
    LIB,
    blamed,
    frames,
    judge,
    main_thread,
    rank,
    told,
)
from tests.unit.rules.step.loops import END, epoch, everywhere
from tests.unit.rules.step.worlds import changed, retrying, stuck
from tests.unit.simulator import SCRIPT, Stall, World, blamed_ranks

FEED = "/home/ann/feed.py"
LOOP = LoopFacts(Frame(SCRIPT, 49, "main"), leaves=(Frame(SCRIPT, 49, "main"),))
OUTER = LoopFacts(Frame(SCRIPT, 90, "<module>"))


def test_a_rank_that_waits_for_a_child_in_its_loop_has_not_left_it() -> None:
    stack = frames((f"{LIB}/subprocess.py", 2004, "_try_wait"), (f"{LIB}/subprocess.py", 1264, "wait"))
    stuck = rank(1, stack, progress=Progress(step=4), issued=3, completed=3)
    stuck = replace(stuck, stacks=tuple(replace(each, in_loop=True) for each in stuck.stacks))
    waiting = rank(0, IN_BACKWARD, progress=Progress(step=5), issued=4, completed=3)
    judgement = judge(waiting, stuck)
    assert judgement.verdict.cause == "user-code-blocked"
    assert blamed(judgement) == [(1, 101, "rank")]


@pytest.mark.parametrize("facts", [{"cpu_delta_s": 1.0}, {"cpu_delta_s": 0.15, "state": "R"}], ids=["alone", "starved"])
@pytest.mark.parametrize(("still_s", "status"), [(31.0, "waiting"), (149.0, "waiting"), (151.0, "hung")])
def test_who_computes_in_its_own_code_is_given_far_more_patience(
    still_s: float, status: str, facts: dict[str, Any]
) -> None:
    busy = rank(1, IN_CODE, progress=Progress(step=5), issued=3, completed=3, facts=facts, still_s=still_s)
    waiting = rank(0, IN_BACKWARD, progress=Progress(step=5), issued=4, completed=3, still_s=still_s)
    judgement = judge(waiting, busy)
    assert told(judgement) == ("user-code-blocked", "likely", status)
    assert blamed(judgement) == [(1, 101, "rank")]


@pytest.mark.parametrize(("name", "told"), [("prefetch", True), ("Thread-7 (run)", False), ("hangwatch-ticker", False)])
def test_a_thread_that_has_ended_on_the_stuck_rank_alone_is_told(name: str, told: bool) -> None:
    def with_thread(entry: RankEvidence) -> RankEvidence:
        return replace(entry, stacks=(*entry.stacks, ThreadStack(9, name, (Frame(FEED, 8, "run"),))))

    snapshot = stuck("lock")
    for other in (0, 2):
        snapshot = changed(snapshot, other, with_thread)
    verdict = diagnose(snapshot).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("user-code-blocked", [1])
    sentence = f"thread {name!r} runs on ranks 0 and 2, and not on rank 1"
    assert (sentence in verdict.evidence) is told


@pytest.mark.parametrize(("kind", "told"), [("lock", True), ("sleep", False)])
def test_where_its_threads_stand_is_told_of_a_rank_that_waits_for_one_of_them(kind: str, told: bool) -> None:
    feeds = ThreadStack(9, "stats", (Frame("/usr/lib/python3.12/threading.py", 355, "wait"), Frame(FEED, 8, "run")))
    torchs = ThreadStack(10, "pin", (Frame("/venv/lib/python3.12/site-packages/torch/pin.py", 3, "pin"),))
    snapshot = changed(stuck(kind), 1, lambda entry: replace(entry, stacks=(*entry.stacks, feeds, torchs)))
    verdict = diagnose(snapshot).verdict
    assert (", while its thread 'stats' is in run (feed.py:8); " in verdict.summary) is told
    assert "'pin'" not in verdict.summary
    assert ("that thread does not let go" in verdict.fix) is told
    reads = replace(feeds, name="reader")
    snapshot = changed(snapshot, 1, lambda entry: replace(entry, stacks=(*entry.stacks, reads)))
    verdict = diagnose(snapshot).verdict  # which of the two it waits for is not known
    assert "while its thread" not in verdict.summary
    assert ("its thread 'stats' is in run (feed.py:8)" in verdict.evidence) is told
    assert ("its thread 'reader' is in run (feed.py:8)" in verdict.evidence) is told


def test_a_lock_that_is_taken_by_a_statement_has_no_frame_and_is_told_by_the_system() -> None:
    """`with self.lock:` waits below the user's own line, without a timeout, for what only its process can give."""
    flushes = ThreadStack(9, "flusher", (Frame(FEED, 14, "flush"),))
    blocked = rank(
        1, IN_CODE, progress=Progress(step=5), issued=3, completed=3, still_s=70, facts={"private_wait": True}
    )
    blocked = replace(blocked, stacks=(*blocked.stacks, flushes))
    verdict = judge(rank(0, IN_BACKWARD, progress=Progress(step=5), issued=4, completed=3, still_s=70), blocked).verdict
    assert "it waits for a lock of its own process" in verdict.summary
    assert "while its thread 'flusher' is in flush (feed.py:14)" in verdict.summary
    alone = replace(blocked, stacks=blocked.stacks[:1])
    verdict = judge(rank(0, IN_BACKWARD, progress=Progress(step=5), issued=4, completed=3, still_s=70), alone).verdict
    assert "acquire(timeout=60)" in verdict.fix
    assert "RLock" in verdict.fix  # no other thread of the program lives that could hold it


def _takes_a_lock(holds: str, wants: str, *others: ThreadStack) -> Verdict:
    """Rank 1 waits in `with wants:` within `with holds:`."""
    blocked = rank(1, IN_CODE, issued=3, completed=3, still_s=70, facts={"private_wait": True})
    mine = replace(blocked.stacks[0], entered=(holds,), entering=(wants,))
    blocked = replace(blocked, stacks=(mine, *others), earlier_stacks=(mine, *others))
    return judge(rank(0, IN_BACKWARD, issued=4, completed=3, still_s=70), blocked).verdict


def test_two_locks_that_two_threads_take_in_opposite_orders_are_named() -> None:
    ema = ThreadStack(9, "ema", (Frame(FEED, 14, "run"),), entered=("self.weights",), entering=("metrics",))
    verdict = _takes_a_lock("state.metrics", "weights", ema)
    assert (
        "it waits for weights, which its thread 'ema' holds, and that thread waits for state.metrics (feed.py:14),"
        " which the main one holds: a deadlock of two locks" in verdict.summary
    )
    assert "in one order in all threads" in verdict.fix
    idle = replace(ema, entered=())
    assert "deadlock" not in _takes_a_lock("state.metrics", "weights", idle).summary


def test_a_lock_that_its_own_thread_takes_twice_is_named() -> None:
    verdict = _takes_a_lock("self.lock", "self.lock")
    assert "it waits for self.lock, which it holds itself by its source" in verdict.summary
    assert "RLock" in verdict.fix


@pytest.mark.parametrize("kind", ["socket", "lock", "sleep"])
def test_a_rank_that_blocks_in_its_own_code_is_named_with_its_line(kind: str) -> None:
    judgement = diagnose(stuck(kind))
    assert judgement.verdict.cause == "user-code-blocked"
    assert judgement.status is Status.HUNG
    assert "push (train.py:40)" in judgement.verdict.summary


@pytest.mark.parametrize(
    ("path", "told", "advice"),
    [
        ("socket 10.0.0.1:4000 -> 10.0.0.9:80", "10.0.0.9:80", "see why 10.0.0.9:80 does not answer"),
        ("unix socket:[77]", "unix socket:[77]", "see why the other side does not answer"),
        ("pipe:[77]", "it waits on a pipe", "see why the process at the other end does not answer"),
    ],
)
def test_what_it_waits_on_is_said_where_the_system_knows(path: str, told: str, advice: str) -> None:
    verdict = diagnose(stuck("socket", blocked_on=OpenFile(5, path))).verdict
    assert told in verdict.summary
    assert verdict.fix.startswith(f"{advice}; ")


def test_a_rank_that_naps_in_a_loop_is_asked_why_that_does_not_end() -> None:
    def looking(entry: RankEvidence) -> RankEvidence:
        way = WayOut(Frame(SCRIPT, 39, "push"), "while not path.exists()")
        loop = LoopFacts(Frame(SCRIPT, 39, "push"), ways_out=(way,))
        return replace(entry, stacks=tuple(replace(each, in_loop=True, loop=loop) for each in entry.stacks))

    napping = changed(stuck("sleep", system_call="clock_nanosleep"), 1, looking)
    assert "why its loop does not end (`while not path.exists()`)" in diagnose(napping).verdict.fix
    long = changed(napping, 1, lambda e: replace(e, process=replace(e.process or ProcessFacts(1, "S"), sleeps_s=600.0)))
    assert "does not end" not in diagnose(long).verdict.fix


@pytest.mark.parametrize("sign", ["io", "written", "child", "moved"])
def test_a_rank_that_shows_work_is_waited_for_however_long(sign: str) -> None:
    flow = {"io": {"io_delta_bytes": 9 << 20}, "written": {"written_delta_bytes": 100 << 10}}
    snapshot = stuck("socket", **flow.get(sign, {}))
    child = ProcessEvidence("child", ProcessFacts(9, "R", cpu_delta_s=1.0))
    children = (child,) if sign == "child" else ()
    snapshot = changed(snapshot, 1, lambda e: replace(e, children=children, moved=sign == "moved"))
    assert diagnose(snapshot).status is Status.WAITING


def test_a_rank_that_waits_for_its_children_is_told_with_the_line_where_they_stand() -> None:
    # GIVEN a rank in pool.map, whose forked children stand in a lock that did not survive the fork
    inside = Frame(SCRIPT, 77, "encode")
    stack = ThreadStack(
        9, "MainThread", (inside, Frame("/usr/lib/python3.11/multiprocessing/pool.py", 48, "mapstar")), main=True
    )
    children = tuple(ProcessEvidence("child", ProcessFacts(pid, "S", cpu_delta_s=0.0), (stack,)) for pid in (91, 92))
    quoted = Excerpt(SCRIPT, 77, 76, ("def encode(i):", "    return torch.mm(a, b)"))
    snapshot = changed(stuck("lock"), 1, lambda e: replace(e, children=children))
    verdict = diagnose(replace(snapshot, excerpts=(quoted,))).verdict
    # THEN both places are named, and the code that the children stand at
    assert verdict.cause == "user-code-blocked"
    assert "it waits for its 2 child processes" in verdict.summary
    assert "encode (train.py:77)" in verdict.summary
    assert "its child process 91 stands at train.py:77 (`return torch.mm(a, b)`)" in verdict.evidence


def test_a_child_that_ends_only_when_its_queue_is_read_is_told_of_the_rank_that_joins_it() -> None:
    """GIVEN a rank in process.join, whose forked child waits at its exit for a reader of the queue that it filled
    THEN both are told, with the line of the join, and the fix is to read before the join."""
    made = (Frame(f"{LIB}/multiprocessing/popen_fork.py", 71, "_launch"), *IN_CODE)
    stack = ThreadStack(9, "MainThread", (*IN_FEEDER_JOIN, *made), main=True)
    child = ProcessEvidence("child", ProcessFacts(91, "S", cpu_delta_s=0.0), (stack,), (stack,))
    joins = ThreadStack(1, "MainThread", frames((f"{LIB}/multiprocessing/popen_fork.py", 27, "poll")), main=True)
    snapshot = changed(
        stuck("lock"), 1, lambda e: replace(e, children=(child,), stacks=(joins,), earlier_stacks=(joins,))
    )
    verdict = diagnose(snapshot).verdict
    assert verdict.cause == "user-code-blocked"
    assert "it waits for its child process, which waits at the exit until its queue is read" in verdict.summary
    assert verdict.culprits[0].where == IN_CODE[0]
    assert "before joining" in verdict.fix


def test_ranks_none_of_which_waits_for_another_one_are_told_each_by_its_own_wait() -> None:
    joins = frames((f"{LIB}/threading.py", 327, "wait"), (f"{LIB}/queue.py", 90, "join"))
    verdict = judge(rank(0, joins), rank(1, joins)).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("user-code-blocked", [0, 1])
    assert verdict.summary == (
        "All ranks are stuck in main (train.py:50): each waits until each item of a queue is reported as done."
    )
    # AND a child that computes may give one of them what it waits for
    busy = ProcessEvidence("child", ProcessFacts(91, "R", cpu_delta_s=0.9))
    assert judge(rank(0, joins, evidence={"children": (busy,)}), rank(1, joins)).verdict.cause == "undetermined"
    # AND where one of them is in code that frames do not show, nothing is known
    assert judge(rank(0, joins), rank(1, IN_CODE)).verdict.cause == "undetermined"


RESULT = ((f"{LIB}/threading.py", 327, "wait"), (f"{LIB}/concurrent/futures/_base.py", 451, "result"))
WORKER = ((f"{LIB}/concurrent/futures/thread.py", 58, "run"), (f"{LIB}/concurrent/futures/thread.py", 83, "_worker"))


def _pool(*inner: tuple[tuple[str, int, str], ...]) -> RankEvidence:
    """A rank that waits for a result, whose pool of threads stands there."""
    below = tuple(Frame(*frame) for frame in WORKER)
    threads = tuple(ThreadStack(50 + n, f"fetch_{n}", frames(*each, below=below)) for n, each in enumerate(inner))
    waits = rank(1, frames(*RESULT), progress=Progress(step=4), issued=3, completed=3, threads=threads)
    return replace(waits, process=replace(waits.process, private_wait=True) if waits.process else None)


def test_a_pool_all_of_whose_threads_wait_for_tasks_runs_none() -> None:
    here = (*RESULT, (SCRIPT, 13, "shard"))
    waiting = rank(0, IN_BACKWARD, progress=Progress(step=4), issued=4, completed=3)
    verdict = judge(waiting, _pool(here, here)).verdict
    assert [who.rank for who in verdict.culprits] == [1]
    told = "it waits for a result, and all 2 threads of its pool 'fetch' wait for results of tasks (train.py:13)"
    assert told in verdict.summary
    assert verdict.fix.startswith("let no task wait for a task of its own pool")
    # AND one that is free may run them yet
    idle = ((f"{LIB}/queue.py", 171, "get"),)
    assert "of its pool" not in judge(waiting, _pool(here, idle)).verdict.summary
    # AND what an event loop of the rank's own gives is no task of that pool
    served = _pool(here, here)
    loop = ThreadStack(70, "loop", frames((f"{LIB}/asyncio/base_events.py", 640, "run_forever"), below=()))
    stacks = (*served.stacks, loop)
    assert "of its pool" not in judge(waiting, replace(served, stacks=stacks, earlier_stacks=stacks)).verdict.summary


def test_a_child_that_took_itself_for_its_rank_is_to_be_started_without_the_rank_s_variables() -> None:
    stack = main_thread((*IN_STORE[:-2], Frame("/home/ann/evaluate.py", 9, "setup")))
    child = ProcessEvidence("child", ProcessFacts(91, "S", cpu_delta_s=0.0), (stack,), (stack,))
    joins = ThreadStack(1, "MainThread", IN_WAIT, main=True)
    snapshot = changed(
        stuck("lock"), 1, lambda e: replace(e, children=(child,), stacks=(joins,), earlier_stacks=(joins,))
    )
    verdict = diagnose(snapshot).verdict
    assert (
        "its child process, which would join a job and waits for its ranks in setup (evaluate.py:9)" in verdict.summary
    )
    assert "start that process without the variables of the rank" in verdict.fix


def test_an_error_that_is_tried_again_is_no_cause_and_the_lock_is_named_with_its_holder() -> None:
    lock = LockFile("/cache/data.lock", 4711, owner_alive=True, age_s=60.0, inferred=True)
    verdict = diagnose(retrying(stuck("sleep"), lock)).verdict
    assert verdict.cause == "lock-held-by-process"
    assert "waits for the lock file /cache/data.lock (train.py:40), which pid 4711 holds" in verdict.summary


def test_bytes_that_flow_are_said() -> None:
    judgement = diagnose(stuck("sleep", io_delta_bytes=900 << 10, written_delta_bytes=850 << 10))
    assert "it moves data (900 KiB in the last second)" in judgement.verdict.summary


def test_a_few_bytes_are_no_work() -> None:
    assert diagnose(stuck("sleep", io_delta_bytes=200 << 10, written_delta_bytes=9 << 10)).status is Status.HUNG


@everywhere
def test_a_rank_stuck_in_its_own_code_is_waited_for_until_patience_has_run_out(ranks: int, culprit: int) -> None:
    usual, odd = [*epoch(0, 8), *END], [*epoch(0, 4)[:-1], Stall()]
    world = World([odd if rank == culprit else usual for rank in range(ranks)]).run()
    early, late = diagnose(world.snapshot(still_s=20)), diagnose(world.snapshot(still_s=200))
    for judgement in (early, late):
        assert judgement.verdict.cause == "user-code-blocked"
        assert blamed_ranks(judgement) == [culprit]
    assert (early.status, late.status) == (Status.WAITING, Status.HUNG)


def test_the_system_call_of_a_thread_that_serves_a_package_is_not_that_of_the_training() -> None:
    """GIVEN an actor whose main thread serves its event loop WHEN the thread that trains waits for a queue
    THEN that is what is told of it."""
    actor = "/venv/lib/python3.12/site-packages/actors/worker.py"
    serving = (Frame(actor, 1069, "main_loop"), Frame(actor, 323, "<module>"))
    get = frames((f"{LIB}/threading.py", 327, "wait"), (f"{LIB}/queue.py", 171, "get"))
    poll = {"system_call": "epoll_wait", "blocked_on": OpenFile(36, "anon_inode:[eventpoll]")}
    blocked = rank(1, serving, threads=(ThreadStack(2, "", get),), facts=poll, issued=3, completed=3)
    verdict = judge(rank(0, IN_BACKWARD, issued=4, completed=3), blocked).verdict
    assert verdict.cause == "user-code-blocked", verdict.summary
    assert "it waits for a lock or a queue" in verdict.summary
    assert not any("epoll_wait" in each for each in verdict.evidence)


def _reading_from(*children: ProcessFacts) -> Verdict:
    """Rank 1 reads from a pipe that one of these children, or another process, writes to."""
    here = tuple(ProcessEvidence("child", facts) for facts in children)
    read = stuck("socket", blocked_on=OpenFile(5, "pipe:[77]"))
    return diagnose(changed(read, 1, lambda entry: replace(entry, children=here))).verdict


@pytest.mark.parametrize(
    ("code", "how", "advice"),
    [
        (1, "exit code 1", "mend what ended its child process (see the traceback in its output); wait with a timeout"),
        (-9, "killed by SIGKILL", "mend what ended its child process (see the kernel's log); wait with a timeout"),
        (0, "exit code 0", "see why its child process 91 ended before it had given or taken all"),
    ],
)
def test_what_a_rank_that_reads_from_a_pipe_may_wait_for_has_ended(code: int, how: str, advice: str) -> None:
    verdict = _reading_from(ProcessFacts(91, "Z", exit_code=code))
    assert f"it waits on a pipe, perhaps for its child process 91, which has ended ({how}); rank" in verdict.summary
    assert verdict.fix.startswith(advice)
    assert "is_alive()" in verdict.fix


def test_a_child_that_ended_well_beside_others_that_live_is_not_what_a_rank_waits_for() -> None:
    alive, well = ProcessFacts(92, "S"), ProcessFacts(91, "Z", exit_code=0)
    assert "child process" not in _reading_from(well, alive).summary
    assert "perhaps for its child process 91" in _reading_from(replace(well, exit_code=1), alive).summary


def test_several_children_that_have_ended_are_counted() -> None:
    verdict = _reading_from(ProcessFacts(91, "Z", exit_code=1), ProcessFacts(92, "Z", exit_code=1))
    assert "perhaps for its 2 child processes that have ended (the first: exit code 1)" in verdict.summary


def test_a_child_process_that_has_ended_is_told_of_a_rank_that_waits_on_a_pipe() -> None:
    ended, other = (
        ProcessEvidence("child", ProcessFacts(pid, state, exit_code=137)) for pid, state in ((91, "Z"), (92, "S"))
    )
    verdict = diagnose(changed(stuck("socket"), 1, lambda e: replace(e, children=(ended, other)))).verdict
    assert "its child process 91 has ended (exit code 137)" in verdict.evidence
    assert verdict.evidence.index("its child process 91 has ended (exit code 137)") == 1, (
        "what it may wait for comes first"
    )
    assert not any("92" in sentence for sentence in verdict.evidence)


@pytest.mark.parametrize(
    ("guard", "asleep", "loop", "blames"),
    [
        pytest.param("rank", True, None, [], id="they ask for what rank 0 should have done"),
        pytest.param("none", True, LOOP, [], id="each rank looks there, and rank 0 has passed it"),
        pytest.param("none", True, OUTER, [1, 2], id="one long sleep in a step"),
        pytest.param("none", True, None, [1, 2], id="no loop is seen"),
        pytest.param("rank", False, LOOP, [1, 2], id="they do not sleep"),
    ],
)
def test_ranks_that_sleep_in_one_place_until_something_is_done_are_not_blamed(
    guard: str, asleep: bool, loop: LoopFacts | None, blames: list[int]
) -> None:
    facts = {"system_call": "clock_nanosleep" if asleep else "poll"}

    def polling(number: int) -> RankEvidence:
        entry = rank(number, IN_CODE, world_size=3, issued=0, completed=0, facts=facts)
        return replace(entry, stacks=tuple(replace(stack, guard=guard, loop=loop) for stack in entry.stacks))

    waiting = rank(0, IN_BACKWARD, world_size=3, issued=1, completed=0)
    judgement = judge(waiting, polling(1), polling(2))
    assert judgement.verdict.cause == "user-code-blocked"
    assert [number for number, _, _ in blamed(judgement)] == blames
    assert (told(judgement)[1] == "undetermined") is not bool(blames)
    open_end = "until another rank, or something outside of the job, has done what it has not done"
    assert (open_end in judgement.verdict.summary) is not bool(blames)
    assert ("if it is for rank 0 to do" in judgement.verdict.fix) is not bool(blames)
    can_be_left = "the loop at train.py:49 can be left at train.py:49"
    assert (can_be_left in judgement.verdict.evidence) is (loop is LOOP and not blames)


def test_ranks_that_sleep_in_places_of_their_own_are_blamed() -> None:
    facts = {"system_call": "clock_nanosleep"}
    waiting = rank(0, IN_BACKWARD, world_size=3, issued=1, completed=0)
    elsewhere = (replace(IN_CODE[0], line=IN_CODE[0].line + 7), *IN_CODE[1:])
    asleep = [
        rank(n, stack, world_size=3, issued=0, completed=0, facts=facts) for n, stack in ((1, IN_CODE), (2, elsewhere))
    ]
    asleep = [replace(each, stacks=tuple(replace(stack, loop=LOOP) for stack in each.stacks)) for each in asleep]
    assert [number for number, _, _ in blamed(judge(waiting, *asleep))] == [1, 2]


@pytest.mark.parametrize(("step", "batch", "told"), [(74, 74, True), (74, None, False), (5, None, True)])
def test_batches_of_a_rank_that_loads_the_data_for_all_are_no_later_steps(
    step: int, batch: int | None, told: bool
) -> None:
    """Others count forwards: by 23 of them it has drawn 74 batches, and is not ahead."""
    feeding = rank(0, IN_CODE, progress=Progress(step=step, batch=batch), issued=3, completed=3, still_s=151.0)
    waiting = rank(1, IN_BACKWARD, progress=Progress(step=23), issued=4, completed=3, still_s=151.0)
    verdict = judge(feeding, waiting).verdict
    assert (verdict.cause == "user-code-blocked") is told, verdict.summary


@pytest.mark.parametrize(
    ("facts", "how"),
    [
        ({"state": "R", "cpu_delta_s": 0.98}, "it runs, and none of its counters moves"),
        ({"system_call": "pread64", "cpu_delta_s": 0.02}, "it waits and uses no processor time"),
        ({"system_call": "futex", "cpu_delta_s": 0.0}, ""),
        ({"system_call": "restart_syscall", "cpu_delta_s": 0.0}, ""),
        ({"state": "R", "cpu_delta_s": 0.0}, ""),
    ],
    ids=["computes", "reads", "sleeps as in a wait for its peers", "sleeps on after a signal", "wakes for a moment"],
)
def test_a_rank_in_its_backward_works_there_or_waits_for_others(facts: dict[str, object], how: str) -> None:
    """Others wait for its gradients; which of its own calls are complete is not known."""
    mine = rank(1, IN_BACKWARD, issued=4, completed=-1, facts=facts, still_s=31.0)
    judgement = judge(rank(0, IN_BACKWARD, issued=5, completed=4, still_s=31.0), mine)
    assert (judgement.verdict.cause == "user-code-blocked") is bool(how)
    assert blamed(judgement) == ([(1, 101, "rank")] if how else [])
    assert not how or f"in its backward pass (train.py:50): {how}" in judgement.verdict.summary


def test_a_rank_in_its_backward_whose_calls_are_all_complete_waits_for_no_other_rank() -> None:
    mine = rank(1, IN_BACKWARD, issued=3, completed=3, facts={"system_call": "futex", "cpu_delta_s": 0.0})
    judgement = judge(rank(0, IN_BACKWARD, issued=4, completed=3), mine)
    assert judgement.verdict.cause == "user-code-blocked"
    assert blamed(judgement) == [(1, 101, "rank")]


def test_a_host_that_spins_in_backward_may_wait_for_room_in_the_queue_of_its_device() -> None:
    def on_both(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        heads = tuple(replace(head, backend="cpu:gloo,cuda:nccl") for head in entry.reading.heads)
        collectives = replace(entry.collectives, heads=heads)
        return replace(entry, reading=replace(entry.reading, heads=heads), collectives=collectives)

    mine = rank(1, IN_BACKWARD, issued=4, facts={"state": "R", "cpu_delta_s": 1.0})
    judgement = judge(*map(on_both, (rank(0, IN_BACKWARD, issued=5, completed=4), mine)))
    assert judgement.verdict.cause != "user-code-blocked"
    assert blamed(judgement) == []
