"""A rank in code of the program, outside of every collective: what it waits for, and whether it works."""

from __future__ import annotations

import re
from itertools import takewhile

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.child import (
    CHILD_IDLE_CPU_S,
    Child,
    idle_children,
    thread_of_parent,
    waits_for_children,
)
from hangwatch.facts.processes.full_queue import waits_for_room
from hangwatch.facts.processes.locks import held_lock, holds, lock_name
from hangwatch.facts.processes.overdue import overdue
from hangwatch.facts.processes.own_locks import OwnLocks, own_locks
from hangwatch.facts.processes.pools import result_awaited
from hangwatch.facts.processes.sleep import how_it_sleeps, sleeps_long, waits_at_most
from hangwatch.facts.processes.tasks import tasks_told
from hangwatch.model import ExceptionFacts, OpenFile, ProcessEvidence, ProcessFacts, Status
from hangwatch.ranks.processes import computes
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Activity, Doing, Within
from hangwatch.stacks.classify import activity
from hangwatch.stacks.frames import main_thread_of, name_of, origin

WAITS_FOR_OTHERS = frozenset({Doing.LOCK, Doing.JOIN_CHILD, Doing.PIPE})
COMPUTING = 5.0  # times its patience that a rank may compute in code of its own before that is called a loop
IN_CODE = frozenset(
    {Doing.CODE, Doing.LOCK, Doing.SOCKET, Doing.EVENTS, Doing.SLEEP, Doing.FILE_LOCK, Doing.PIPE, Doing.JOIN_CHILD}
)
_DEBUGGER = re.compile(r"/lib(64)?/python\d[.\d]*t?/(pdb|bdb)\.py$")
_QUEUES = re.compile(r"/lib(64)?/python\d[.\d]*t?/(queue|multiprocessing/queues)\.py$")
_NAMELESS = {  # what /proc calls descriptors without a file
    "pipe:[": "on a pipe",
    "socket:[": "on a socket",
    "anon_inode:[eventpoll": "in its event loop",
}


def status_of(case: Case, stuck: list[RankView]) -> Status:
    """Once patience has run out, only bytes that still move, or a child that computes, count as work for ever.

    A rank that computes in its own code may be slow; only far more patience tells that from a loop without an end, but
    where each of its steps came through that code in next to no time.
    """
    if not all(case.stalled([view.rank]) for view in stuck):
        return Status.WAITING
    slow = any(may_be_slow(view) and case.works(view) for view in stuck)  # to spin in a wait is no work
    slow = slow or any(map(_a_thread_may_be_slow, stuck))
    alive = slow or any(view.moves_data or view.evidence.moved or child_works(view) for view in stuck)
    return Status.WAITING if alive else Status.HUNG


def may_be_slow(view: RankView) -> bool:
    uses_all = view.busy or view.starved  # of a processor, as far as it gets one
    return uses_all and _is_young(view)


def _a_thread_may_be_slow(view: RankView) -> bool:
    """It waits for a thread of its own, which runs the program's code and uses the processor."""
    waits = view.now.doing is Doing.LOCK or view.sleeps_privately
    computes_besides = view.cpu is not None and view.cpu > CHILD_IDLE_CPU_S
    return waits and computes_besides and thread_of_parent(view) is not None and _is_young(view)


def _is_young(view: RankView) -> bool:
    return not is_far_too_long(view) and overdue(view) is None


def is_far_too_long(view: RankView) -> bool:
    """It has stood still for so long that to compute is no sign of work any more."""
    return view.evidence.still_s >= COMPUTING * view.evidence.patience_s


def child_works(view: RankView) -> bool:
    return any(computes(child.facts) for child in view.evidence.children)


def stuck_children(view: RankView) -> list[tuple[ProcessEvidence, Activity]]:
    """The child processes that a rank waits for, with where they stand, if none of them works; else none.

    They are those that its program has started (a pool, a subprocess), not the workers of a DataLoader.
    """
    if view.now.doing not in WAITS_FOR_OTHERS or child_works(view):
        return []
    found = []
    for child in view.evidence.children:
        stack = main_thread_of(child.stacks)
        now = activity(stack) if stack is not None else None
        if now is not None and (now.where is not None or now.doing is Doing.QUEUE_FEEDER):
            found.append((child, now))
    return found


def awaited_children(view: RankView) -> list[Child]:
    """The child processes, none of which works, that `how_stuck` says a rank waits for."""
    if stuck := stuck_children(view):
        return [Child(each) for each, _ in stuck]
    child = _only_child(view)
    return [child] if child is not None else []


def ended_children(view: RankView) -> tuple[ProcessFacts, ...]:
    """The child processes that have ended, and for which a rank may wait in a pipe, a queue or a lock of processes.

    First those that ended by an error or a signal. One that ended well has done its work, where others still live.
    """
    children = [child.facts for child in view.evidence.children if child.role == "child"]
    elsewhere = held_lock(view) or in_debugger(view) or reads_input(view.in_kernel)
    if elsewhere or view.now.doing is Doing.JOIN_CHILD or not waits_for_children(view):
        return ()
    ended = [each for each in children if each.state == "Z"]
    failed = tuple(each for each in ended if each.exit_code)
    return failed or (tuple(ended) if len(ended) == len(children) else ())


def how_stuck(view: RankView) -> str:
    """On what a rank is blocked, as far as the system or its frames say."""
    if lock := held_lock(view):
        return f"it waits for {lock_name(lock)}, {holds(lock)}"
    if children := _for_children(view):
        return children
    if result := result_awaited(view) or _for_events(view):
        return result
    process = view.in_kernel
    if waits_for_tasks(view):
        return "it waits until each item of a queue is reported as done"
    if process is not None and process.received_delta_bytes and view.receives:
        return f"it receives data ({words.size(process.received_delta_bytes)} in the last second)"
    if process is not None and process.blocked_on is not None:
        return f"it waits {_on(view, process, process.blocked_on)}{_at_most(view)}"
    if view.busy:
        runs = "waits, while other threads of its process run" if others_compute(view) else "runs"
        return f"it {runs}, and none of its counters moves ({view.cpu:.1f} s of processor time in the last second)"
    if process is not None and view.moves_data:
        return f"it moves data ({words.size(process.io_delta_bytes or 0)} in the last second)"
    kind = {
        Doing.LOCK: _of_a_queue(view) or "it waits for a lock or a queue",
        Doing.SOCKET: "it waits for a network peer",
        Doing.EVENTS: "it waits for events, none of which wakes a task",
        Doing.SLEEP: _how_it_sleeps(view),
        Doing.FILE_LOCK: "it waits for a file lock",
        Doing.PIPE: "it writes to a file or a pipe",
        Doing.JOIN_CHILD: "it waits for a child process",
    }.get(view.now.doing)
    if kind is not None or view.sleeps:
        return f"{kind}{_at_most(view)}" if kind is not None else _how_it_sleeps(view)
    if view.sleeps_privately:
        locks = own_locks(view)
        return _of_own_locks(locks) if locks is not None else "it waits for a lock of its own process"
    if view.starved and view.cpu is not None:
        return "it is ready to run and gets little processor time"
    return _by_no_counter(view)


def _for_events(view: RankView) -> str:
    """Which tasks of the main thread's event loop wait; "" where they are not known."""
    tasks = tasks_told(view) if view.now.doing is Doing.EVENTS else ""
    return f"it waits for events{_at_most(view)}, and {tasks}" if tasks else ""


def _of_a_queue(view: RankView) -> str:
    return "it waits in put, for room in a full queue" if waits_for_room(view) else ""


def _by_no_counter(view: RankView) -> str:
    """Of a rank of which no more is known; one stack that was given as a text does not tell that it stays there."""
    if view.in_kernel is None and not view.sampled_twice:
        return "it was seen at one moment"
    return "it waits and uses no processor time" if view.idle else "it does not come back"


def _for_children(view: RankView) -> str:
    """For which child processes a rank waits, and where they are; "" for none."""
    if idle := idle_children(view):
        return f"it waits for a result of {_named(idle)} for work: a task was lost, as when a process of a pool dies"
    if children := stuck_children(view):
        return f"it waits for its {_children_words(children)}"
    child = _only_child(view)
    return f"it waits for its {child.as_child}" if child else ""


def _at_most(view: RankView) -> str:
    """` (this call gives up within 80 s)`; it may be made again. Of a sleep its own words tell."""
    most_s = 0.0 if view.now.doing is Doing.SLEEP else waits_at_most(view.in_kernel)
    return f" (this call gives up within {words.duration(most_s)})" if most_s else ""


def _of_own_locks(locks: OwnLocks) -> str:
    """`it waits for weights_lock, which its thread 'ema' holds, ...`."""
    if not locks.thread:
        return f"it waits for {locks.taken}, which it holds itself by its source"
    return (
        f"it waits for {locks.taken}, which its thread {locks.thread!r} holds, and that thread waits for"
        f" {locks.held}{words.at(locks.where)}, which the main one holds: a deadlock of two locks"
    )


def waits_for_tasks(view: RankView) -> bool:
    """It stands in the `join` of a queue, which returns when `task_done` was called for each item that was put in."""
    library = takewhile(lambda frame: origin(frame.file) != "user", view.evidence.main_stack)
    return any(name_of(frame.function) == "join" and _QUEUES.search(frame.file) for frame in library)


def others_compute(view: RankView) -> bool:
    """Its training thread waits in the kernel, and its process uses the processor all the same."""
    process = view.in_kernel
    return view.busy and view.steady and process is not None and process.state == "S" and bool(process.system_call)


def in_debugger(view: RankView) -> bool:
    """`breakpoint()`, or an error in a program that runs under pdb."""
    return any(_DEBUGGER.search(frame.file) for frame in view.evidence.main_stack if not frame.native)


def reads_input(process: ProcessFacts | None) -> bool:
    """It reads what a person or a script should type: nothing is connected to that on most machines."""
    file = process.blocked_on if process is not None else None
    return process is not None and file is not None and file.fd == 0 and process.system_call in ("read", "readv")


def _on(view: RankView, process: ProcessFacts, file: OpenFile) -> str:
    """`for its standard input (/dev/pts/3)`, `on a pipe`, `on /data/tokens.bin`."""
    if in_debugger(view):
        return f"in Python's debugger for what to do next ({file.path})"
    if reads_input(process):
        return f"for its standard input ({file.path})"
    if file.filesystem == "fifo" and process.system_call in ("open", "openat"):
        return f"until another process opens the named pipe {file.path}"
    return _NAMELESS.get(file.path.rstrip("0123456789]"), f"on {file.path}")


def _how_it_sleeps(view: RankView) -> str:
    """A nap is one of many in a loop: told with the line that ends it, where there is only one."""
    loop = view.now.loop
    if loop is None or sleeps_long(view.in_kernel):
        return how_it_sleeps(view.in_kernel)
    if loop.bounded:
        return f"it sleeps, in a loop that ends by itself ({words.place(loop.where)})"
    only = loop.ways_out[0].text if len(loop.ways_out) == 1 else ""
    return f"it sleeps, in a loop that only `{only}` ends" if only else "it sleeps"


def _named(idle: tuple[Child, ...]) -> str:
    """`its child process, which waits`, `its 2 child processes, all of which wait`."""
    return "its child process, which waits" if len(idle) == 1 else f"its {len(idle)} child processes, all of which wait"


def _only_child(view: RankView) -> Child | None:
    """The one child process that its stack waits for and that does not work, whatever program it runs."""
    children = [Child(each) for each in view.evidence.children]
    waits = view.now.doing is Doing.JOIN_CHILD and not child_works(view)
    return children[0] if waits and len(children) == 1 else None


def _children_words(children: list[tuple[ProcessEvidence, Activity]]) -> str:
    """`child process, which waits for a lock or a queue in encode (prepare.py:40)`."""
    now, one = children[0][1], len(children) == 1
    does = {
        Doing.LOCK: "wait{s} for a lock or a queue",
        Doing.SOCKET: "wait{s} for a network peer",
        Doing.EVENTS: "wait{s} for events",
        Doing.SLEEP: "sleep{s}",
        Doing.FILE_LOCK: "wait{s} for a file lock",
        Doing.PIPE: "wait{s} on a pipe",
        Doing.QUEUE_FEEDER: "wait{s} at the exit until its queue is read",
        Doing.RENDEZVOUS: "would join a job and wait{s} for its ranks",
    }.get(now.doing, "stand{s}")
    where = f" in {now.where.function}{words.at(now.where)}" if now.where is not None else ""
    named = "child process" if one else f"{len(children)} child processes"
    return f"{named}, {'which' if one else 'of which the first'} {does.format(s='s')}{where}"


def tries_again(view: RankView, error: ExceptionFacts) -> bool:
    """It pauses, in a loop, in the function that raised the error: it tries again and again, and may yet go on."""
    where = view.now.where
    here = {frame.scope for frame in error.frames}
    pauses = view.sleeps or view.now.doing is Doing.FILE_LOCK
    return pauses and bool(view.now.in_loop) and where is not None and where.scope in here


def awaited_views(case: Case) -> list[RankView]:
    return case.views(sorted(case.awaited()))


def saving_thread(view: RankView) -> Activity | None:
    """The thread of a rank that reads or writes a checkpoint: the training one, or that for which the main one waits.

    In a collective of the checkpoint's it waits for others itself.
    """
    threads = (view.now, *(view.threads if view.main_waits_for_a_thread else ()))
    return next((each for each in threads if each.doing is Doing.CHECKPOINT or _writes(each)), None)


def _writes(thread: Activity) -> bool:
    return Within.CHECKPOINT in thread.within and not thread.in_collective
