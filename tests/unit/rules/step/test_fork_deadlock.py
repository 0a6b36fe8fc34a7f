"""Children made by fork that wait for what was left in their parent, outside of any DataLoader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import (
    Excerpt,
    Frame,
    Judgement,
    OpenFile,
    Phase,
    ProcessEvidence,
    Progress,
    RankEvidence,
    Stage,
    ThreadStack,
)
from tests.unit.job import (
    COMMAND,
    IN_BARRIER,
    IN_CODE,
    IN_FEEDER_JOIN,
    LIB,
    SCRIPT,
    USER,
    blamed,
    frames,
    judge,
    main_thread,
    process,
    rank,
    starting,
    told,
)

CAUSE = "fork-deadlock"
BOOTSTRAP = (
    Frame(f"{LIB}/multiprocessing/process.py", 108, "run"),
    Frame(f"{LIB}/multiprocessing/process.py", 314, "_bootstrap"),
    Frame(f"{LIB}/multiprocessing/popen_fork.py", 71, "_launch"),
    *USER,  # a forked child has its parent's frames below
)
ENCODING = frames((SCRIPT, 77, "encode"), (f"{LIB}/multiprocessing/pool.py", 48, "mapstar"), below=BOOTSTRAP)
IDLE = frames(
    (f"{LIB}/multiprocessing/queues.py", 365, "get"), (f"{LIB}/multiprocessing/pool.py", 114, "worker"), below=BOOTSTRAP
)
IN_EVENT = frames((f"{LIB}/threading.py", 327, "wait"), (SCRIPT, 80, "serve"), below=BOOTSTRAP)
IN_POOL = frames((f"{LIB}/threading.py", 320, "wait"), (f"{LIB}/multiprocessing/pool.py", 767, "get"))
IN_QUEUE_OF_THREADS = frames((f"{LIB}/threading.py", 320, "wait"), (f"{LIB}/queue.py", 171, "get"))
REFRESH = ThreadStack(5, "refresh", (Frame(SCRIPT, 60, "refresh"),))


def child(pid: int = 90, stack: tuple[Frame, ...] = ENCODING, **facts: Any) -> ProcessEvidence:
    """A child in a lock that nothing in it can let go."""
    facts = {"private_wait": True, "deadlocked": True, "threads": 1, **facts}
    return ProcessEvidence("child", process(pid, **facts), (main_thread(stack),), (main_thread(stack),), 1)


def parent(*children: ProcessEvidence, stack: tuple[Frame, ...] = IN_POOL, **parts: Any) -> RankEvidence:
    facts = {"private_wait": True, "threads": 7, **parts.pop("facts", {})}
    parts = {"issued": 3, "completed": 3, **parts}
    return rank(1, stack, facts=facts, evidence={"children": children}, **parts)


def verdict_of(*children: ProcessEvidence, **parts: Any) -> Judgement:
    return judge(rank(0, IN_BARRIER, issued=4, completed=3), parent(*children, **parts))


def test_a_pool_that_was_forked_after_threads() -> None:
    judgement = verdict_of(child(90), child(91), child(92, IDLE, private_wait=False, deadlocked=False))
    verdict = judgement.verdict
    assert told(judgement) == (CAUSE, "proven", "hung")
    assert blamed(judgement) == [(1, 90, "other"), (1, 91, "other")]
    assert verdict.culprits[0].where == Frame(SCRIPT, 77, "encode")
    assert verdict.summary == (
        "2 child processes of rank 1, made by fork, wait in encode (train.py:77) for a lock or a thread pool that they"
        " inherited, and no thread is left to let it go; rank 1 waits for them (train.py:50), and rank 0 waits for"
        " rank 1 (train.py:50)."
    )
    assert verdict.hang is not None
    assert verdict.hang.value == "proven"
    assert verdict.victims == (0, 1)
    assert "spawn" in verdict.fix


@pytest.mark.parametrize(
    ("line", "what"),
    [("with self.lock:", "for a lock that it"), ("return torch.mm(a, b)", "for a lock or a thread pool that it")],
)
def test_a_line_that_takes_a_lock_tells_that_it_is_no_thread_pool(line: str, what: str) -> None:
    quoted = Excerpt(SCRIPT, 77, 77, (line,))
    judgement = judge(rank(0, IN_BARRIER, issued=4, completed=3), parent(child()), excerpts=(quoted,))
    assert what in judgement.verdict.summary


def test_its_evidence() -> None:
    quoted = Excerpt(SCRIPT, 77, 76, ("def encode(i):", "    return torch.mm(a, b)"))
    busy = parent(child(), threads=(REFRESH,))
    judgement = judge(rank(0, IN_BARRIER, issued=4, completed=3), busy, excerpts=(quoted,))
    assert judgement.verdict.evidence == (
        "pid 90, a child process of rank 1, stands in encode (train.py:77): `return torch.mm(a, b)`",
        "it used 0.00 s of processor time between two samples",
        "it waits for a lock that only another thread of it could let go, and it has no other thread",
        "the child has the command line of its parent: it was forked, and has started no other program",
        "rank 1 has 7 threads; a fork copies only the one that calls it",
        "rank 1 has thread 'refresh', which the child has not",
    )


@pytest.mark.parametrize(
    ("stack", "facts"),
    [
        (frames((f"{LIB}/multiprocessing/popen_fork.py", 27, "poll")), {"system_call": "wait4", "private_wait": False}),
        (IN_CODE, {"system_call": "wait4", "waits_for": 90, "private_wait": False}),
        (IN_CODE, {"system_call": "read", "blocked_on": OpenFile(5, "pipe:[7]"), "private_wait": False}),
        (frames((f"{LIB}/concurrent/futures/_base.py", 451, "result")), {}),
    ],
    ids=["join", "waitpid", "pipe", "future"],
)
def test_the_ways_in_which_a_rank_waits_for_its_child(stack: tuple[Frame, ...], facts: dict[str, Any]) -> None:
    judgement = verdict_of(child(), stack=stack, facts=facts)
    assert told(judgement) == (CAUSE, "proven", "hung")


def test_another_thread_of_the_child_may_let_go_of_it() -> None:
    assert told(verdict_of(child(deadlocked=False, threads=2))) == (CAUSE, "likely", "hung")
    assert told(verdict_of(child(deadlocked=False, threads=2), still_s=5.0)) == (CAUSE, "likely", "waiting")


def test_a_child_in_an_event_may_be_waked_by_a_signal() -> None:
    assert told(verdict_of(child(stack=IN_EVENT))) == (CAUSE, "likely", "hung")


def test_another_program_was_not_forked_only() -> None:
    assert verdict_of(child(command="ffmpeg -i clip.mp4")).verdict.cause == "user-code-blocked"
    assert told(verdict_of(child(command=COMMAND)))[0] == CAUSE


@pytest.mark.parametrize("facts", [{"cpu_delta_s": 0.9}, {"state": "R"}], ids=["computes", "has no processor"])
def test_while_a_child_works_its_rank_is_waited_for(facts: dict[str, Any]) -> None:
    working = child(91, private_wait=False, deadlocked=False, **facts)
    judgement = verdict_of(child(stack=IN_EVENT), working)
    assert (judgement.verdict.cause, judgement.status.value) == ("user-code-blocked", "waiting")


def test_a_helper_for_which_the_rank_does_not_wait_is_no_cause() -> None:
    judgement = verdict_of(child(stack=IN_EVENT), stack=IN_QUEUE_OF_THREADS)
    assert judgement.verdict.cause == "user-code-blocked"


def test_a_thread_of_the_child_that_runs_its_code_may_hold_the_lock() -> None:
    one = child(deadlocked=False, threads=2)
    judgement = verdict_of(replace(one, stacks=(*one.stacks, REFRESH)))
    assert judgement.verdict.cause == "user-code-blocked"


def test_before_the_ranks_have_met() -> None:
    early = parent(child(), phase=Phase.START, progress=Progress(), issued=-1, completed=-1)
    judgement = judge(starting(0), early)
    assert told(judgement) == (CAUSE, "proven", "hung")
    assert judgement.stage is Stage.START
    assert "and rank 0 waits for rank 1 (train.py:50)." in judgement.verdict.summary


def test_another_rank_in_code_of_its_own_is_no_less_suspect() -> None:
    other = rank(2, IN_CODE, world_size=3, issued=3, completed=3)
    first = rank(0, IN_BARRIER, world_size=3, issued=4, completed=3)
    assert judge(first, parent(child(), world_size=3), other).verdict.cause == "user-code-blocked"


@pytest.mark.parametrize(("deadlocked", "cause"), [(True, CAUSE), (False, "user-code-blocked")])
def test_children_whose_frames_cannot_be_read_are_known_by_the_kernel(deadlocked: bool, cause: str) -> None:
    """GIVEN no right to read the stacks of other processes THEN what their threads wait for says it still."""
    blind = replace(child(deadlocked=deadlocked), stacks=(), earlier_stacks=())
    judgement = verdict_of(blind)
    assert told(judgement)[0] == cause, judgement.verdict.summary
    if deadlocked:
        assert told(judgement)[1] == "likely"
        assert judgement.verdict.culprits[0].where == USER[0]
        assert "in code that shows no frames" in judgement.verdict.summary


def test_a_child_without_frames_that_computes_is_no_deadlock() -> None:
    busy = replace(child(cpu_delta_s=0.9, state="R"), stacks=(), earlier_stacks=())
    assert told(verdict_of(busy))[0] != CAUSE


PUT = frames((f"{LIB}/multiprocessing/queues.py", 89, "put"), (SCRIPT, 16, "produce"), below=BOOTSTRAP)
SEMAPHORE = Frame("semaphore.c", 357, "_multiprocessing_SemLock_acquire_impl", native=True)
OF_THREADS = frames((SCRIPT, 16, "produce"), below=BOOTSTRAP)


@pytest.mark.parametrize(
    ("stack", "cause"),
    [(PUT, "user-code-blocked"), ((SEMAPHORE, *PUT), "user-code-blocked"),
     ((SEMAPHORE, *OF_THREADS), "user-code-blocked")],
    ids=["a queue that is full", "as its native frames say", "a semaphore of the program's"],
)  # fmt: skip
def test_a_semaphore_that_processes_share_is_no_lock_that_was_inherited(stack: tuple[Frame, ...], cause: str) -> None:
    """GIVEN two producers, of which one was killed WHEN the rank reads that one's queue and the other's fills up."""
    killed = ProcessEvidence("child", process(91, state="Z", exit_code=-9), (), (), 1)
    facts = {"private_wait": False, "system_call": "read", "blocked_on": OpenFile(5, "pipe:[4711]")}
    full = child(stack=stack, private_wait=False, deadlocked=False, system_call="futex")
    verdict = verdict_of(full, killed, facts=facts).verdict
    assert verdict.cause == cause
    assert "its child process 91 has ended (killed by SIGKILL)" in verdict.evidence


def test_a_child_whose_queue_is_not_read_waits_for_its_parent() -> None:
    """Its end waits for a thread of its own, which writes to a full pipe: no lock is left behind by the fork."""
    at_its_end = (*IN_FEEDER_JOIN, *BOOTSTRAP[1:])
    judgement = verdict_of(child(stack=at_its_end, deadlocked=False, threads=2))
    assert judgement.verdict.cause == "user-code-blocked"
    assert "until its queue is read" in judgement.verdict.summary
    assert judgement.verdict.fix.startswith("read all that a process puts into a queue before joining")
