"""How to go on without what a rank is blocked on, by what that is; in the order in which `how_stuck` tells it."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.processes.child import idle_children
from hangwatch.facts.processes.full_queue import waits_for_room
from hangwatch.facts.processes.locks import held_lock
from hangwatch.facts.processes.own_code import (
    ended_children,
    in_debugger,
    reads_input,
    stuck_children,
    waits_for_tasks,
)
from hangwatch.facts.processes.own_locks import own_locks
from hangwatch.facts.processes.pools import idle_event_loop, taken_pool, waits_for_a_result
from hangwatch.facts.processes.sleep import sleeps_long
from hangwatch.facts.processes.tasks import never_given_back
from hangwatch.model import ProcessFacts
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Doing

_RAISE = "and raise once it has passed: the launcher then ends all ranks"
_BY_WAIT = {
    Doing.JOIN_CHILD: f"see what keeps that process; wait with a timeout (join(60), communicate(timeout=60)), {_RAISE}",
    Doing.EVENTS: f"await with a timeout, as by asyncio.wait_for(..., 60), {_RAISE}",
    Doing.LOCK: f"wait with a timeout (acquire(timeout=60), get(timeout=60)), {_RAISE}",
}
_OF_A_RESULT = f"ask for the result with a timeout (result(timeout=60)), {_RAISE}"
_OF_A_TASK = (
    "see which `await` of that coroutine does not end, such as one for a semaphore or a queue that an error kept from"
    f" being given back (`async with` gives it back); give it a timeout (asyncio.wait_for(..., 60)), {_RAISE}"
)
_NO_RANK = (
    "start that process without the variables of the rank, which it takes itself for: take RANK, LOCAL_RANK,"
    " WORLD_SIZE, MASTER_ADDR and MASTER_PORT out of the env= that it is given"
)
CLOSE_INPUT = (
    "close the child's standard input once all is written (process.stdin.close()), or use communicate(), which writes,"
    " closes and reads: a filter gives nothing before the end of its input"
)
READ_FIRST = (
    "read the queue in the parent before it joins the ranks: get as many items as they put, and join after that; or"
    " make the queue without maxsize, and read it all before join, too"
)
_ROOM = f"see why the reader of that queue takes no more; put with a timeout (put(item, timeout=60)), {_RAISE}"
_LOOK = (
    "wait with a timeout (get(timeout=60), put(item, timeout=60), poll(60)), and raise where that process does not live"
    " any more (is_alive() is False): the launcher then ends all ranks"
)


def advice(view: RankView, threads: list[str]) -> str:
    """What to do, given where the other threads of the program stand; "" for the usual words."""
    children = stuck_children(view)
    if any(now.doing is Doing.QUEUE_FEEDER for _, now in children):
        return "read all that a process puts into a queue before joining the process"
    if any(now.doing is Doing.RENDEZVOUS for _, now in children):
        return _NO_RANK
    if held_lock(view):
        return ""
    if in_debugger(view):
        return "take the breakpoint out, or guard it by an option and by the rank, with the others' timeout raised"
    if reads_input(view.in_kernel):
        return "take the answer from an option or the environment: nobody types it where the job runs"
    if idle_children(view):
        return (
            "ask for the result with a timeout (get(timeout=60)), or use concurrent.futures.ProcessPoolExecutor, which"
            " raises where a process of its pool has died"
        )
    if ended := ended_children(view):
        return _of_ended(ended[0])
    if children:
        return _BY_WAIT[Doing.JOIN_CHILD]
    if taken_pool(view) is not None:
        return (
            "let no task wait for a task of its own pool: give the inner ones a pool of theirs, or call them directly"
        )
    if waits_for_a_result(view) or (view.now.doing is Doing.EVENTS and never_given_back(view)):
        return _OF_A_TASK if idle_event_loop(view) or never_given_back(view) else _OF_A_RESULT
    if waits_for_tasks(view):
        return "call task_done() for each item that was taken, also after an error: in a finally block"
    return _of_a_peer(view) or _of_a_loop(view) or _of_a_lock(view, threads) or _BY_WAIT.get(view.now.doing, "")


def _of_ended(child: ProcessFacts) -> str:
    if child.exit_code:
        killed = "the kernel's log" if child.exit_code in (-9, 137) else "the traceback in its output"
        return f"mend what ended its child process (see {killed}); {_LOOK}"
    return (
        f"see why its child process {child.pid} ended before it had given or taken all: it may have caught an error,"
        f" which it should hand on; {_LOOK}"
    )


def _of_a_peer(view: RankView) -> str:
    """Of a rank that waits for the other end of a socket or a pipe."""
    process = view.in_kernel
    path = process.blocked_on.path if process is not None and process.blocked_on is not None else ""
    if path.startswith("pipe:"):
        return f"see why the process at the other end does not answer; ask with a timeout (poll(60)), {_RAISE}"
    if "socket" not in path and view.now.doing is not Doing.SOCKET:
        return ""
    _, _, peer = path.partition(" -> ")
    return f"see why {peer or 'the other side'} does not answer; give the request a timeout, {_RAISE}"


def _of_a_loop(view: RankView) -> str:
    """Of a rank that looks again and again, or computes without an end."""
    loop, looks = view.now.loop, view.sleeps and not sleeps_long(view.in_kernel)
    if loop is None or not (view.busy or looks):
        return ""
    if loop.bounded:
        return (
            f"see how many turns its loop makes{words.at(loop.where)} and how long one takes; divide the work among the"
            " ranks, or give the group in which they wait a longer timeout"
        )
    way = loop.ways_out[0].text if len(loop.ways_out) == 1 else ""
    shown = f" (`{way}`)" if " " in way else words.at(loop.where)  # a `return` alone tells nothing
    return f"see why its loop does not end{shown}; give it a limit of time or turns, {_RAISE}"


def _of_a_lock(view: RankView, threads: list[str]) -> str:
    if waits_for_room(view) and not threads:
        return _ROOM
    if not (threads or view.sleeps_privately):
        return ""
    if (locks := own_locks(view)) is not None and locks.thread:
        return f"take these locks in one order in all threads, or use one lock for both: {locks.held}, {locks.taken}"
    if threads:
        one = len(threads) == 1
        return f"see why {'that thread does' if one else 'those threads do'} not let go, {_BY_WAIT[Doing.LOCK]}"
    return f"{_BY_WAIT[Doing.LOCK]}; a lock that its own thread takes again must be an RLock"
