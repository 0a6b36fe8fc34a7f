"""Patience that follows the evidence: short where a fact shows that a rank cannot go on by itself, long for guesses.

A rank that computes, sleeps for a time, compiles or writes a checkpoint may be slow, and only waiting distinguishes
that from a hang. A rank in uninterruptible sleep, in a read from a pipe where nothing comes, or behind a lock is
different: it does not work now, and will not before something else happens. `held` says which of these facts the
evidence shows, and `shortened` what patience follows. Both are pure functions.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from hangwatch import words
from hangwatch.facts.processes.child import (
    CHILD_IDLE_CPU_S,
    WAIT_CALLS,
    Child,
    idle_children,
    own_children,
    stands_in_subprocess,
    thread_of_parent,
    waits_for_children,
)
from hangwatch.facts.processes.data_loading import Feeding, Worker
from hangwatch.facts.processes.leaving import LONG_SLEEP_S, exits_by_stack
from hangwatch.facts.processes.locks import KERNEL_CALLS, held_lock, holds, lock_name
from hangwatch.facts.processes.own_locks import own_locks
from hangwatch.facts.processes.polled import left_over, on_shared, polled
from hangwatch.facts.processes.sleep import sleeps_long, waits_at_most
from hangwatch.facts.processes.store_waits import awaits_key, store_ports, waits_for_key
from hangwatch.judge.naps import naps_in
from hangwatch.judge.waiting_together import in_remote_calls, waiting_together
from hangwatch.model import OpenFile, Phase, ProcessFacts, Reading, Snapshot, ThreadStack
from hangwatch.ranks.processes import computes
from hangwatch.ranks.thread_stacks import runs_users_code
from hangwatch.ranks.view import RankView
from hangwatch.ranks.views import views_of
from hangwatch.stacks.activity import COLLECTIVE_WAITS, Activity, Doing, Within

FACTS_S = 60.0  # the most patience where a fact stands
NOTHING_COMES_S = 10.0  # and where what could still come would have come at once
SET_UP_CALLS = 8  # collectives that DDP makes of a model's shapes, parameters and buffers
FROM_OUTSIDE = 2.0  # times its patience for what comes from outside of the job, and may be late
WORKS_OFF = 5.0  # in a loop that ends by itself: it may be slow, as a rank is that computes
CONFIRMED = 0.5  # of that patience a fact must have stood: a rank that worked until now is not held since then

_PIPE_CALLS = frozenset({"read", "readv", "write", "writev", "splice"})
_WRITES = frozenset({"write", "writev", "splice"})
_OPENING = frozenset({"open", "openat"})  # of a named pipe: until another process opens its other end
_PEER_CALLS = frozenset(  # without a timeout: Python polls a socket that has one
    {"recvfrom", "recvmsg", "sendto", "sendmsg", "connect", "accept", "accept4", *_PIPE_CALLS}
)
_TASKS = frozenset({Doing.CODE, Doing.SLEEP, Doing.SOCKET})
_WAITS_FOR_RANKS = COLLECTIVE_WAITS | {Doing.RENDEZVOUS, Doing.NEW_GROUP}
_NOT_ITS_OWN = _WAITS_FOR_RANKS | {Doing.DESTROY, Doing.DEVICE, Doing.NOTHING}
_SLOW_STAGES = frozenset({Within.CHECKPOINT, Within.COMPILE, Within.IMPORT})


def shortened(long_s: float, short_s: float, seen_after_s: float) -> float:
    """Patience with a rank that a fact holds, which was first seen `seen_after_s` after it stood still."""
    return min(long_s, max(short_s, seen_after_s + CONFIRMED * short_s))


def in_first_step(reading: Reading) -> bool:
    """The first step, which compiles and warms caches, is not over; of loops without steps, the first collectives.

    A model that is wrapped makes some before any step, for which NCCL's communicators and CUDA are made ready.
    """
    first_step = reading.progress.step <= 0 and reading.progress.optimizer_steps <= 1
    raw_collectives = reading.progress.step < 0 and reading.progress.calls > SET_UP_CALLS
    first_batch = reading.phase == Phase.DATA and reading.progress.draws == 0
    return first_batch or (first_step and not raw_collectives)


def held(snapshot: Snapshot) -> dict[int, str]:
    """Rank to the fact that keeps it from going on by itself, in words that follow "it"."""
    living = [view for view in views_of(snapshot) if not view.dead]
    # A thread at its task, on whichever rank, may give what the others wait for.
    together = (snapshot.job.world_size or len(living)) > 1 and not any(map(_has_tasks, living))
    ports = store_ports(living)
    found = {view.rank: _held(view, together and _all_wait_for(view, living, ports), ports) for view in living}
    facts = {
        view.rank: found[view.rank]
        for view in living
        if found[view.rank] and not (_is_in_others_hands(view, snapshot) or _by_a_rank(view, living, found))
    }
    if remote := in_remote_calls(snapshot, living):
        return remote | facts
    return facts or waiting_together(snapshot, living)


def _is_in_others_hands(view: RankView, snapshot: Snapshot) -> bool:
    return _by_another_process(view) or _by_its_threads(view) or _by_who_writes(view, snapshot)


def _by_who_writes(view: RankView, snapshot: Snapshot) -> bool:
    """It reads from a pipe that a living process beside the ranks and their children writes to, in its own time.

    Its standard input is a person's, or comes from what has started the job.
    """
    process = view.in_kernel
    file = process.blocked_on if process is not None and process.system_call in _PIPE_CALLS - _WRITES else None
    if file is None or file.fd == 0:
        return False
    nodes = (node for node in snapshot.nodes if node.host == view.evidence.host)
    writers = {pid for node in nodes for pipe in node.pipes if pipe.path == file.path for pid in pipe.writers}
    ranks = {rank.pid for rank in snapshot.ranks}
    of_ranks = {each.facts.pid for rank in snapshot.ranks for each in (*rank.children, *rank.workers)}
    others = {each.facts.pid for each in (*snapshot.launchers, *snapshot.others) if each.role != "job"}
    return bool(writers - ranks - of_ranks - others)


def _by_its_threads(view: RankView) -> bool:
    """Its main thread waits for others of its own that run the program's code: a task each, and no watch for ever.

    Not where these wait for what the main one has: that is a deadlock.
    """
    waits = view.now.doing in (Doing.LOCK, Doing.JOIN_CHILD) or view.sleeps_privately
    return waits and own_locks(view) is None and _has_tasks(view)


def _has_tasks(view: RankView) -> bool:
    """A thread beside the main one runs the program's code, and will come to its end, or waits for a command.

    One that takes task after task does not end, but its command does.
    """
    pairs = zip(view.threads, view.evidence.stacks, strict=True)
    own = [(thread, stack) for thread, stack in pairs if not stack.main and runs_users_code(stack)]
    at_task = any(thread.doing in _TASKS and _comes_to_an_end(thread, stack) for thread, stack in own)
    lives = any(not (child.dead or child.idle) for child in own_children(view))
    return at_task or (lives and any(stands_in_subprocess(stack) for _, stack in own))


def _comes_to_an_end(thread: Activity, stack: ThreadStack) -> bool:
    """By its loop; that of a pool's task may try again after an error, and is left where all went well."""
    loop = thread.loop
    of_a_pool = any(frame.file.endswith("/concurrent/futures/thread.py") for frame in stack.frames)
    return loop is None or loop.bounded or (of_a_pool and bool(loop.leaves and loop.skips))


def _by_another_process(view: RankView) -> bool:
    """It waits for a lock of a living process that is of no rank, which lets go of it in its own time."""
    lock = held_lock(view)
    owner = lock.owner if lock is not None else None
    return owner is not None and owner.rank is None and owner.role not in ("leftover", "orphan")


def _by_a_rank(view: RankView, living: Sequence[RankView], found: Mapping[int, str]) -> bool:
    """It waits for a lock that a rank of the job has, which is on its way in its own code: that rank's time counts."""
    lock = held_lock(view)
    if lock is None or lock.owner is None or lock.owner.role != "rank":
        return False
    holder = next((other for other in living if other.rank == lock.owner.rank), None)
    return holder is not None and not found[holder.rank] and holder.now.doing not in _NOT_ITS_OWN


def resting(snapshot: Snapshot) -> frozenset[int]:
    """Ranks that sleep again and again in their own code, where no rank of the job does anything else but wait.

    Or that wait for a lock of a process that is of no rank. They may poll for what comes late, so that is no fact. But
    none of them compiles, warms a cache or evaluates: the longer patience with those stages is not meant for them.
    """
    views = views_of(snapshot)
    waiting = [view for view in views if view.now.doing in COLLECTIVE_WAITS | {Doing.NEW_GROUP}]
    asleep = [view for view in views if view not in waiting and (_sleeps(view) or _by_another_process(view))]
    complete = len(views) == (snapshot.job.world_size or len(views)) and len(waiting) + len(asleep) == len(views)
    return frozenset(view.rank for view in asleep) if waiting and complete else frozenset()


def outside_waits(snapshot: Snapshot) -> dict[int, float]:
    """Ranks that wait for what may come late, or nap as they work, with how many times the usual patience.

    They nap again and again in a loop of their own, or a loader worker of theirs does; or they wait for a lock of a
    process that is of no rank, or for threads of their own at their tasks. A loop that asks the job's store waits for
    the other ranks.
    """
    views = views_of(snapshot)
    loops = {view.rank: loop for view in views if (loop := naps_in(view)) is not None}
    own = {view.rank for view in views if _waits_for_another_rank(view, views)}
    naps = {
        rank: WORKS_OFF if loop.bounded else FROM_OUTSIDE
        for rank, loop in loops.items()
        if not loop.asks_store and rank not in own
    }
    return {**{view.rank: FROM_OUTSIDE for view in views if _is_in_others_hands(view, snapshot)}, **naps}


def _waits_for_another_rank(view: RankView, views: Iterable[RankView]) -> bool:
    """It looks for a file that by the rank check around the loop other ranks make, and these wait in collectives."""
    file, others = polled(view), [other for other in views if other.now.guard != "rank" or other.rank == 0]
    makers = [other for other in others if other is not view and not other.dead]
    waiting = bool(makers) and all(other.now.doing in COLLECTIVE_WAITS for other in makers)
    return file is not None and not file.exists and view.now.guard == "rank" and waiting


def exiting(snapshot: Snapshot) -> frozenset[int]:
    """Ranks in Python's exit by their stacks, whatever their boards say: patience with training is not for them."""
    views = views_of(snapshot)
    return frozenset(view.rank for view in views if not view.dead and exits_by_stack(view))


def _sleeps(view: RankView) -> bool:
    workers_rest = not any(computes(worker.facts) for worker in view.evidence.workers)
    return view.sleeps and view.steady and workers_rest and not (view.over or view.works)


def _all_wait_for(view: RankView, living: Iterable[RankView], ports: Container[str]) -> bool:
    """Every other rank here waits for ranks, if for what they set in the store; some may be held at the same line."""
    others = [other for other in living if other is not view]
    waiting = [other for other in others if other.now.doing in _WAITS_FOR_RANKS or awaits_key(other, ports)]
    alike = [other for other in others if other not in waiting and not other.works and other.where == view.where]
    return len(waiting) + len(alike) == len(others) and bool(waiting or not others)


def _held(view: RankView, awaited: bool, ports: Container[str]) -> str:
    process = view.in_kernel
    if process is None or view.stopped or view.over or view.works or view.now.doing in _NOT_ITS_OWN:
        return ""
    if view.loader is not None and view.loader.gives_nothing:
        return "goes through data that hold no batch, again and again"
    if (file := left_over(view)) is not None and not on_shared(file):
        return f"waits until {file.path} is removed, which is older than the job"
    feeding = Feeding(view)
    if feeding.waits:
        return _held_by_workers(feeding, awaited)
    if process.state == "D":
        return "" if _slow_stage(view.now) else "is in uninterruptible sleep (state D)"
    if not view.steady or process.has_alarm or gives_up_after(view):
        return ""
    if awaited and waits_for_key(view, ports):
        return "waits for a key of a store while no rank does anything else but wait"
    if own_children(view) and process.system_call not in _WRITES and waits_for_children(view):
        return _by_children(view) if awaited else ""  # what they do decides whether anything comes
    if process.system_call in _WRITES and any(map(_comes_back, own_children(view))):
        return ""
    return _blocked(process, view.now, awaited) or _behind_a_lock(view)


def ends_after(view: RankView) -> float:
    """In how many seconds, at most, what keeps a rank ends by itself: a timeout of its own, or a sleep of a child.

    0 where it does not, or nothing tells.
    """
    children = own_children(view) if waits_for_children(view) else ()
    sleeps = (child.facts.sleeps_s or 0.0 for child in children if sleeps_long(child.facts))
    return max((gives_up_after(view), *sleeps))


def gives_up_after(view: RankView) -> float:
    """In how many seconds, at most, a wait of the program's own code gives up by itself; 0 where it does not."""
    own = not (view.dead or view.over or view.now.doing in _NOT_ITS_OWN or Feeding(view).waits)
    return waits_at_most(view.in_kernel) if own else 0.0


def _by_children(view: RankView) -> str:
    """It waits for its children, none of which works: each has ended, is held by a fact, or waits for another one."""
    if idle := idle_children(view):
        wait = words.verb(len(idle), "waits", "wait")
        return f"waits for {words.plural(len(idle), 'child process')}, which {wait} for work"
    children = own_children(view)
    if any(child.works or child.reaped for child in children):
        return ""
    alone = thread_of_parent(view) is None  # else it may feed what the main thread waits for
    facts = {child.pid: _child_held(child, alone) for child in children}
    held = next(((pid, fact) for pid, fact in facts.items() if fact), None)
    rest = [child for child in children if not facts[child.pid] and child.facts.system_call not in WAIT_CALLS]
    return f"waits for its child process {held[0]}, which {held[1]}" if held is not None and not rest else ""


def _comes_back(child: Child) -> bool:
    """It is at work, or in a sleep that ends: it may read then what its parent writes."""
    return child.works or (sleeps_long(child.facts) and (child.facts.sleeps_s or 0.0) <= LONG_SLEEP_S)


def _child_held(child: Child, alone: bool) -> str:
    if child.dead:
        return "has ended" if alone else ""
    sleeps_s = child.facts.sleeps_s
    if sleeps_s is not None and sleeps_s > LONG_SLEEP_S:
        return f"sleeps for {words.duration(sleeps_s)}"
    return _blocked(child.facts, None, True)


def _behind_a_lock(view: RankView) -> str:
    """It tries again and again for a lock whose holder does nothing."""
    lock = held_lock(view)
    if lock is None or lock.owner is None or (lock.owner.cpu_delta_s or 0.0) > CHILD_IDLE_CPU_S:
        return ""
    return f"waits for {lock_name(lock)}, {holds(lock)}"


def _held_by_workers(feeding: Feeding, awaited: bool) -> str:
    """All workers that could bring the batch are held themselves."""
    if feeding.dead:
        return f"waits for loader worker {feeding.dead[0].name}, which has ended"
    if not feeding.steady:
        return ""
    facts = [_worker_held(worker, awaited) for worker in feeding.suspects]
    return f"waits for loader worker {feeding.suspects[0].name}, which {facts[0]}" if facts and all(facts) else ""


def _worker_held(worker: Worker, awaited: bool) -> str:
    if worker.works:
        return ""
    if worker.frozen:
        return "is stopped" if worker.state in ("T", "t") else "is in uninterruptible sleep (state D)"
    if worker.awaited is not None:
        fact = _child_held(worker.awaited, alone=False)
        return f"waits for its child process {worker.awaited.pid}, which {fact}" if fact else ""
    return _blocked(worker.facts, None, awaited) if worker.steady else ""


def _blocked(process: ProcessFacts, now: Activity | None, awaited: bool) -> str:
    """The call of the system that has no timeout, and in which it waits for something else."""
    call, file = process.system_call or "", process.blocked_on
    if call in KERNEL_CALLS:
        return f"waits for a lock{_on(file)}"
    if now is not None and _slow_stage(now) and not _is_pipe(file):
        return ""
    if call in _PIPE_CALLS | _OPENING and _is_pipe(file):
        return f"waits in {call}{_on(file)}"
    if call in _PEER_CALLS and _is_socket(file) and awaited:
        return f"waits in {call}{_on(file)}"
    lock = now is None or now.doing is Doing.LOCK or (now.doing is Doing.CODE and awaited)
    return "waits for a lock" if process.private_wait and lock else ""


def _slow_stage(now: Activity) -> bool:
    """A stage in which calls usually return late: slow storage looks stuck between two writes."""
    return now.doing in (Doing.CHECKPOINT, Doing.COMPILE) or not _SLOW_STAGES.isdisjoint(now.within)


def _is_pipe(file: OpenFile | None) -> bool:
    """A pipe, a named one, or a terminal: nothing of it is on a disk."""
    if file is None:
        return False
    return file.path.startswith(("pipe:", "/dev/pts/", "/dev/tty")) or file.filesystem == "fifo"


def _is_socket(file: OpenFile | None) -> bool:
    return file is not None and file.path.startswith("socket")


def _on(file: OpenFile | None) -> str:
    return f" on {file.path}" if file is not None else ""
