"""Ranks whose training is over and that have not exited: in which part of the exit each stands."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.child import CHILD_QUIET_IO, HELPER, Child, stands_in_subprocess
from hangwatch.facts.processes.sleep import how_it_sleeps, sleeps_long
from hangwatch.model import Phase, ProcessEvidence, ProcessFacts, Status, ThreadStack
from hangwatch.ranks.processes import computed
from hangwatch.ranks.thread_stacks import below_the_user, is_ours
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Doing, Within
from hangwatch.stacks.classify import activity
from hangwatch.stacks.frames import main_thread_of, name_of, origin, user_frame

LEAVING = frozenset({Phase.MAIN_DONE, Phase.ATEXIT, Phase.FINALIZING})
LONG_SLEEP_S = 120.0  # a process in a longer sleep is not about to wake up and go on
POLLING = 6.0  # times the patience for a rank that sleeps briefly again and again: it may be flushing data bit by bit
BIT_BY_BIT = 8 << 10  # bytes written between two samples, those for us left out: more than a line of a log
A_FILE = 4 << 10  # bytes that a child has written in all: more than lines of a log
_BETWEEN_THREADS = ("/threading.py", "/queue.py", "/concurrent/futures/_base.py")  # where one waits for another
_ENDLESS = frozenset(
    {Doing.LOCK, Doing.SOCKET, Doing.EVENTS, Doing.PIPE, Doing.QUEUE_FEEDER, Doing.COLLECTIVE, Doing.FILE_LOCK}
)


def leaving(case: Case, doing: Doing | None = None) -> list[RankView]:
    """Living ranks whose main program is over (in `doing`), while no rank waits in a collective.

    A rank that works is on its way out, beside those that do not. In a job that has failed, those that outlast their
    patience: the others go as they should.
    """
    if case.blocked:
        return []
    found = [view for view in case if not view.dead and not view.stopped and is_leaving(view)]
    if case.any_rank_failed:
        found = [view for view in found if stands(view)]
    found = [view for view in found if not works(view)] or found
    return [view for view in found if doing is None or view.main.doing is doing]


def is_leaving(view: RankView) -> bool:
    return view.phase in LEAVING or exits_by_stack(view)


def exits_by_stack(view: RankView) -> bool:
    """Its main thread is in Python's exit, of which the board need not know: a child of multiprocessing has none.

    Where its groups are destroyed, a destructor is a part of that: of what `main()` has left behind as it returned.
    """
    exiting = view.main.within & {Within.SHUTDOWN, Within.MULTIPROCESSING_EXIT}
    return _behind_main(view) or (bool(exiting) and view.phase not in (Phase.START, Phase.INIT))


def _behind_main(view: RankView) -> bool:
    """It is in a destructor, behind the last group, and no function of the program is under way."""
    if view.phase is not Phase.DESTROYED or Within.DESTRUCTOR not in view.main.within:
        return False
    stack = view.evidence.main_stack
    depth = max((n for n, frame in enumerate(stack) if name_of(frame.function) == "__del__"), default=0)
    return all(name_of(frame.function) == "<module>" for frame in stack[depth + 1 :] if origin(frame.file) == "user")


def how_it_stands(view: RankView) -> str:
    process = view.evidence.process
    if process is None:
        return "how is not known"
    if sleeps_long(process):
        return how_it_sleeps(process)
    used = (
        f"{process.cpu_delta_s:.2f} s of processor time" if process.cpu_delta_s is not None else "nothing that is known"
    )
    return f"it used {used} between two samples" + (f", in {process.system_call}" if process.system_call else "")


# ------------------------------------------------------------------------------------------ patience


def lingering_status(held: list[RankView]) -> Status:
    """Lingering where patience has run out for a rank that does nothing that could end."""
    return Status.LINGERING if any(stands(view) for view in held) else Status.WAITING


def stands(view: RankView) -> bool:
    if works(view):
        return False
    may_end = naps(view) or _writes(view) or any(map(_comes_to_an_end, awaited_threads(view))) or _child_may_end(view)
    return view.evidence.still_s > view.evidence.patience_s * (POLLING if may_end else 1.0)


def keeps_its_process(thread: ThreadStack) -> str:
    """`thread 'heartbeat' still runs (train.py:25) and is no daemon`"""
    return f"thread {thread.name!r} still runs{words.at(user_frame(thread.frames))} and is no daemon"


def awaited_threads(view: RankView) -> list[ThreadStack]:
    """The threads for which its exit may wait: in threading._shutdown, or in a handler that waits for what they give.

    Those that keep the process, as the rank itself says; else those with code of the user's, or of a package.
    """
    at_the_end = view.main.doing is Doing.JOIN_THREADS
    inner = below_the_user(view.evidence.main_stack)
    if not at_the_end and not any(frame.file.endswith(_BETWEEN_THREADS) for frame in inner):
        return []
    others = [stack for stack in view.evidence.stacks if not stack.main and stack.frames and not is_ours(stack)]
    if at_the_end and (lasting := [stack for stack in others if stack.thread_id in view.lasting_threads]):
        return lasting
    own = [stack for stack in others if any(origin(frame.file) == "user" for frame in stack.frames)]
    return own or [stack for stack in others if any(origin(frame.file) == "package" for frame in stack.frames)]


def _comes_to_an_end(stack: ThreadStack) -> bool:
    """It naps or talks to a server in a loop that ends: it may export or upload part by part.

    A thread that waits for a lock or a queue comes to no end by itself, nor one in a loop that its source never leaves.
    """
    if stack.loop is None or stack.loop.endless:
        return False
    doing = activity(stack).doing
    return doing in (Doing.SLEEP, Doing.SOCKET) or (doing is Doing.CODE and stack.active is False)


def _child_may_end(view: RankView) -> bool:
    """The child that it joins takes short naps and has written files, or talks to others: it may work off its share.

    Or it is in one longer sleep of which the end is near. What a forked child talks to, it may have inherited. A
    command, as one that copies to an archive, has its time, unless it sleeps for long.
    """
    if view.main.doing is not Doing.JOIN_CHILD:
        return False
    if waits_for_a_command(view):
        return not any(map(_is_kept, view.evidence.children))
    rank = view.evidence.process
    joined = rank.waits_for if rank is not None else None
    living = (each for each in (*view.evidence.children, *view.evidence.workers) if each.role != HELPER)
    awaited = (Child(each) for each in living if joined in (None, each.facts.pid))
    return any(_may_work_off(child, child.forked_from(rank)) for child in awaited if _sleeps_briefly(child.facts))


def _is_kept(child: ProcessEvidence) -> bool:
    """It is stopped, waits for what only its own threads can give, or sleeps for long: it does not come to its end."""
    facts = child.facts
    return facts.state in ("T", "t") or facts.private_wait or (facts.sleeps_s or 0.0) > LONG_SLEEP_S


def waits_for_a_command(view: RankView) -> bool:
    """Its main thread waits for what it has started with `subprocess`."""
    stack = main_thread_of(view.evidence.stacks)
    return stack is not None and stands_in_subprocess(stack)


def _may_work_off(child: Child, forked: bool) -> bool:
    facts = child.facts
    talks = not forked and any(each.state == "established" for each in facts.sockets)
    return talks or (facts.written_bytes or 0) > A_FILE or sleeps_long(facts)


def _writes(view: RankView) -> bool:
    """It writes a little, as a thread does that uploads or saves in parts: less than shows work, and no standstill."""
    process = view.evidence.process
    return process is not None and (process.written_delta_bytes or 0) > BIT_BY_BIT


def works(view: RankView) -> bool:
    """The rank that is about to exit makes progress, or a child that it waits for."""
    children = (*view.evidence.children, *view.evidence.workers)
    moved = any((each.facts.io_delta_bytes or 0) > CHILD_QUIET_IO for each in children)
    return view.works or moved or any(computed(each.facts) for each in children)


def naps(view: RankView) -> bool:
    """The main thread's own code takes short naps, or polls: it may come to its end."""
    if view.main.where is None or view.main.doing in _ENDLESS:
        return False
    process = view.evidence.process
    if process is None or process.system_call is None:
        return view.main.doing is Doing.SLEEP
    return _sleeps_briefly(process)


def _sleeps_briefly(process: ProcessFacts) -> bool:
    sleeps = process.sleeps_s
    return "sleep" in (process.system_call or "") and (sleeps is None or sleeps < LONG_SLEEP_S)
