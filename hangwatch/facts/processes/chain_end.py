"""What a rank does that waits for no other rank: where a chain of waits ends."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch.facts.case import Case
from hangwatch.facts.processes.child import Child
from hangwatch.facts.processes.data_loading import Feeding, Worker
from hangwatch.facts.processes.leaving import awaited_threads, is_leaving
from hangwatch.facts.processes.locks import LockWait, holder_name, holds, lock_name, lock_wait, stale_lock
from hangwatch.facts.processes.own_code import awaited_children, how_stuck, others_compute
from hangwatch.model import ChainEnd, Phase, ThreadStack
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Doing, Within
from hangwatch.stacks.frames import user_frame
from hangwatch.words import at, size
from hangwatch.words import error as error_words


def chain_end(case: Case, view: RankView) -> ChainEnd:
    """What `view` does, as a predicate, and what it waits for that is no rank."""
    return (
        _ended(view)
        or _for_a_lock(view)
        or _for_a_worker(view)
        or _for_a_thread(view)
        or _end(view, _does(case, view), *_awaited_child(view))
    )


def long_stage(view: RankView) -> str:
    """A stage that is known to be long, as a predicate."""
    now = view.now
    if now.doing is Doing.CHECKPOINT or Within.CHECKPOINT in now.within:
        return "reads or writes a checkpoint"
    if now.doing is Doing.COMPILE or Within.COMPILE in now.within:
        return "compiles"
    if now.doing is Doing.RENDEZVOUS or Within.RENDEZVOUS in now.within:
        return "is in init_process_group"
    if view.phase is Phase.EVAL and view.works:
        return "evaluates"
    return "imports modules" if Within.IMPORT in now.within else ""


def _end(view: RankView, does: str, awaits: str = "", pid: int | None = None) -> ChainEnd:
    return ChainEnd(view.rank, does, awaits, pid, view.where)


# ------------------------------------------------------------------------------------------ what it waits for


def _ended(view: RankView) -> ChainEnd | None:
    process = view.evidence.process
    if view.raised:
        return _end(view, f"has raised {error_words(view.exception)}")
    if view.dead:
        code = process.exit_code if process is not None else None
        return _end(view, "has ended" if code is None else f"has ended (exit code {code})")
    return _end(view, f"is stopped (state {view.state})") if view.stopped else None


def _for_a_lock(view: RankView) -> ChainEnd | None:
    """A lock of files: its own wait, or that of the process for which it waits."""
    wait = lock_wait(view)
    if wait is not None:
        pid = wait.lock.owner.pid if wait.lock.owner is not None else wait.lock.owner_pid
        held = f"{lock_name(wait.lock)}, {holds(wait.lock)}"
        does = f"waits{_in(view)} for {held}" if wait.child is None else _through_a_child(view, wait, held)
        return _end(view, does, f"{lock_name(wait.lock)}, held by {holder_name(wait.lock)}", pid)
    lock = stale_lock(view)
    if lock is None:
        return None
    owner = f"pid {lock.owner_pid}, which is dead" if lock.owner_pid else "no living process"
    held = f"the lock file {lock.path}, which belongs to {owner}"
    return _end(view, f"waits{_in(view)} for {held}", f"the lock file {lock.path}", lock.owner_pid)


def _through_a_child(view: RankView, wait: LockWait, held: str) -> str:
    name = wait.name.replace(f" of rank {view.rank}", "").replace("a child", "its child")
    return f"waits{at(view.where)} for {name}, which waits for {held}{at(wait.where)}"


def _for_a_worker(view: RankView) -> ChainEnd | None:
    """`waits (train.py:60) for loader worker 0 (pid 88), which is in uninterruptible sleep (train.py:83)`"""
    feeding = Feeding(view)
    workers = (feeding.dead or feeding.suspects) if feeding.waits else []
    if not workers:
        return None
    first = workers[0]
    name = f"loader worker {first.name} (pid {first.pid})"
    more = f" and {len(workers) - 1} more" if len(workers) > 1 else ""
    return _end(
        view, f"waits{at(view.where)} for {name}{more}, which {_worker_does(first)}", f"{name}{more}", first.pid
    )


def _worker_does(worker: Worker) -> str:
    if worker.dead:
        return f"has ended: {worker.ended}"
    how = worker.how_frozen if worker.frozen else worker.how_stuck.removeprefix("it ")
    return f"{how} in {worker.place}"


def _for_a_thread(view: RankView) -> ChainEnd | None:
    """At the exit: a thread of its own that does not end."""
    threads = awaited_threads(view) if view.over else []
    if not threads:
        return None
    named = _threads(threads)
    return _end(view, f"has left its training and waits for {named}", named)


def _threads(threads: list[ThreadStack]) -> str:
    """`its thread 'heartbeat' (train.py:25) and 1 more`"""
    first = threads[0]
    more = f" and {len(threads) - 1} more" if len(threads) > 1 else ""
    return f"its thread {first.name!r}{at(user_frame(first.frames))}{more}"


def _awaited_child(view: RankView) -> tuple[str, int | None]:
    """The name and the pid of the process that it has started and waits for; ("", None) for none."""
    children = _joined(view) if view.over else awaited_children(view)
    first = next(iter(children), None)
    return (f"its child process {first.pid}", first.pid) if first is not None else ("", None)


def _joined(view: RankView) -> Iterable[Child]:
    """The child for whose end the exit of a rank waits."""
    process = view.evidence.process
    joined = process.waits_for if process is not None and view.main.doing is Doing.JOIN_CHILD else None
    living = (*view.evidence.children, *view.evidence.workers)
    return (Child(each) for each in living if each.facts.pid == joined)


# ------------------------------------------------------------------------------------------ what else it does


def _does(case: Case, view: RankView) -> str:
    place, stage = at(view.where), long_stage(view)
    process = view.evidence.process
    if view.over:
        return _leaves(view)
    if stage:
        moved = (process.io_delta_bytes or 0) if process is not None else None
        seen = stage.endswith("checkpoint") and moved is not None
        bytes_moved = f", {size(moved or 0)} in the last second" if seen else ""
        return f"{stage}{place}{bytes_moved if moved or not view.works else ''}"
    if process is not None and process.state == "D":
        return f"is in uninterruptible sleep (state D){_in(view)}"
    if case.waits.shows_device_wait(view):
        return f"waits for its device{place}"
    return f"waits for a batch{place}" if view.now.doing is Doing.LOADER else _stands(view)


def _leaves(view: RankView) -> str:
    """Its training is over: what keeps its exit."""
    if (child := next(iter(_joined(view)), None)) is not None:
        return f"has left its training and waits for its {child.as_child}"
    stands = is_leaving(view) and view.where is not None
    return f"has left its training and {_stands(view)}" if stands else f"has left its training{at(view.where)}"


def _stands(view: RankView) -> str:
    """In the program's own code, or in something that the frames do not show."""
    if view.now.doing is Doing.NOTHING:
        return "shows no stack"
    if view.busy:
        return (
            f"waits{_in(view)}, while other threads of it compute" if others_compute(view) else f"computes{_in(view)}"
        )
    if view.in_kernel is not None and "sleep" in (view.in_kernel.system_call or ""):
        return f"sleeps{_in(view)}"  # time.sleep has no frame of its own
    return f"{how_stuck(view).removeprefix('it ')}{_in(view)}"


def _in(view: RankView) -> str:
    where = view.where
    return f" in {where.function}{at(where)}" if where is not None else ""
