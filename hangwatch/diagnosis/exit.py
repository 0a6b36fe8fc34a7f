"""The end of a job: training is over, and a process stays.

A process that still works on its way out (it uses the processor, writes, or computes in a child) is waited for; one
that stands still is called lingering when its patience has run out.
"""

from __future__ import annotations

from ..activity import Doing, Within
from ..frames import name_of, origin, user_frame
from ..records import Certainty, Culprit, Frame, Phase, ProcessEvidence, Status, ThreadStack
from . import words
from .case import IDLE_CPU_S, Case, RankView
from .feeding import QUIET_IO
from .finding import Finding, Rule
from .leftovers import launcher_order, orphan_holds_pipe
from .output import output_pipe_full
from .witness import Kind, Witness

LEAVING = frozenset({Phase.MAIN_DONE, Phase.ATEXIT, Phase.FINALIZING})
LONG_SLEEP_S = 60.0  # who sleeps for longer is not about to wake up and go on
POLLING = 6.0  # times the patience of who takes short naps: it may be flushing something bit by bit
_ENDLESS = frozenset({Doing.LOCK, Doing.SOCKET, Doing.PIPE, Doing.QUEUE_FEEDER, Doing.COLLECTIVE, Doing.FILE_LOCK})


def leaving(case: Case, doing: Doing | None = None) -> list[RankView]:
    """Living ranks whose main program is over (in `doing`), while nobody waits in a collective."""
    if case.blocked:
        return []
    found = [view for view in case if not view.dead and not view.stopped and _is_leaving(view)]
    return [view for view in found if doing is None or view.main.doing is doing]


def _is_leaving(view: RankView) -> bool:
    exiting = view.main.within & {Within.SHUTDOWN, Within.MULTIPROCESSING_EXIT}
    return view.phase in LEAVING or (bool(exiting) and view.phase not in (Phase.START, Phase.INIT))


# ------------------------------------------------------------------------------------------ what keeps it


def non_daemon_thread(case: Case) -> Finding | None:
    """The interpreter waits in threading._shutdown for a thread that does not end."""
    held = leaving(case, Doing.JOIN_THREADS)
    holders = [(view, thread) for view in held for thread in _holders(view)]
    if not holders:
        return None
    ranks = [view.rank for view in held]
    view, thread = holders[0]
    one_each = list({holder.rank: (holder, stack) for holder, stack in reversed(holders)}.values())[::-1]
    sure = len(one_each) == len(holders) or all(holder.lasting_threads for holder, _ in holders)
    return Finding(
        "exit-non-daemon-thread",
        Certainty.PROVEN if sure else Certainty.LIKELY,
        f"Training is over, but {case.name(ranks)} cannot exit: thread {thread.name!r} still runs"
        f"{words.at(user_frame(thread.frames))} and is no daemon.",
        culprits=tuple(holder.culprit(user_frame(stack.frames)) for holder, stack in one_each),
        victims=(),
        evidence=(
            f"the main thread of rank {view.rank} is in threading._shutdown",
            *(
                f"rank {holder.rank} has thread {stack.name!r}{words.at(user_frame(stack.frames))}"
                for holder, stack in holders[: words.SHOWN]
            ),
        ),
        status=_status(held),
        awaited=tuple(ranks),
    )


def _holders(view: RankView) -> list[ThreadStack]:
    """The threads that keep the process, as the rank itself says; else those that may, the user's code first."""
    threads = [stack for stack in view.evidence.stacks if not stack.main and stack.frames and not _ours(stack)]
    if lasting := [stack for stack in threads if stack.thread_id in view.lasting_threads]:
        return lasting
    users = [stack for stack in threads if any(origin(frame.file) == "user" for frame in stack.frames)]
    return users or [stack for stack in threads if any(origin(frame.file) == "package" for frame in stack.frames)]


def _ours(stack: ThreadStack) -> bool:
    return any(origin(frame.file) == "hangwatch" for frame in stack.frames)


def child_process(case: Case) -> Finding | None:
    """multiprocessing waits at the exit for a child that still lives."""
    held = [(view, child) for view in leaving(case, Doing.JOIN_CHILD) if (child := _awaited_child(view)) is not None]
    if not held or any(name_of(view.main.frame.function) == "_finalize_join" for view, _ in held if view.main.frame):
        return None
    ranks = [view.rank for view, _ in held]
    view, child = held[0]
    where = _place_of(child)
    return Finding(
        "exit-child-process",
        Certainty.PROVEN,
        f"Training is over, but {case.name(ranks)} cannot exit: child process {child.facts.pid}"
        f" ({words.command(child.facts.command, 60)}) still runs{words.at(where)}.",
        culprits=tuple(
            Culprit(rank.rank, each.facts.pid, rank.evidence.host, process="other", where=_place_of(each))
            for rank, each in held
        ),
        victims=tuple(ranks),
        evidence=(
            f"the main thread of rank {view.rank} waits for pid {child.facts.pid} to end",
            f"pid {child.facts.pid} is in state {child.facts.state}{_used(child)}",
        ),
        status=_status([rank for rank, _ in held]),
        awaited=tuple(ranks),
    )


def _awaited_child(view: RankView) -> ProcessEvidence | None:
    """The child that the system says is waited for; else the only one that lives."""
    living = [each for each in (*view.evidence.children, *view.evidence.workers) if each.facts.state not in ("X", "Z")]
    pid = view.evidence.process.waits_for if view.evidence.process is not None else None
    named = [each for each in living if each.facts.pid == pid]
    others = [each for each in living if each.role != "helper"]
    return named[0] if named else others[0] if len(others) == 1 else None


def _place_of(child: ProcessEvidence) -> Frame | None:
    stack = next((stack for stack in child.stacks if stack.main), None)
    return user_frame(stack.frames) if stack is not None else None


def _used(child: ProcessEvidence) -> str:
    return "" if child.facts.cpu_delta_s is None else f" and used {child.facts.cpu_delta_s:.2f} s of processor time"


def queue_feeder(case: Case) -> Finding | None:
    """multiprocessing waits at the exit for a queue to be emptied, which nobody does."""
    held = leaving(case, Doing.QUEUE_FEEDER)
    if not held:
        return None
    ranks = [view.rank for view in held]
    writing = [view for view in held if _feeder(view) is not None]
    return Finding(
        "exit-queue-feeder",
        Certainty.PROVEN if len(writing) == len(held) else Certainty.LIKELY,
        f"Training is over, but {case.name(ranks)} cannot exit: a multiprocessing queue still holds data, and nobody"
        " reads it.",
        culprits=tuple(view.culprit() for view in held),
        victims=(),
        evidence=(
            f"the main thread of rank {held[0].rank} is in Queue._finalize_join, at the exit of the interpreter",
            *(f"the queue's feeder thread of rank {view.rank} waits in a write to its pipe" for view in writing[:8]),
        ),
        status=_status(held),
        awaited=tuple(ranks),
    )


def _feeder(view: RankView) -> ThreadStack | None:
    return next(
        (each for each in view.evidence.stacks if each.frames and name_of(each.frames[0].function) == "_send"), None
    )


def atexit_handler(case: Case) -> Finding | None:
    """A function that was registered for the exit still runs."""
    held = [view for view in leaving(case) if _in_handler(view)]
    if not held:
        return None
    ranks = [view.rank for view in held]
    view = held[0]
    what = f"the exit handler {words.place(view.main.frame)}" if view.main.frame else "an exit handler written in C"
    if view.where is not None:
        what = f"the exit handler {name_of(view.where.function)}{words.at(view.where)}"
    return Finding(
        "exit-atexit-handler",
        Certainty.PROVEN if view.phase is Phase.ATEXIT else Certainty.LIKELY,
        f"Training is over, but {case.name(ranks)} cannot exit: {what} does not return.",
        culprits=tuple(each.culprit() for each in held),
        victims=(),
        evidence=tuple(
            f"the main program of rank {each.rank} (pid {each.pid}) is over, and its main thread is in an exit handler"
            f"{words.at(each.where)}: {_how(each)}"
            for each in held[: words.SHOWN]
        ),
        status=_status(held),
        awaited=tuple(ranks),
    )


def _in_handler(view: RankView) -> bool:
    if Within.DESTRUCTOR in view.main.within or view.main.doing is Doing.JOIN_THREADS:
        return False
    if view.main.doing is Doing.NOTHING:  # a handler written in C, such as a lock's acquire
        return view.phase is Phase.ATEXIT and view.idle
    return Within.ATEXIT in view.main.within and view.phase is not Phase.FINALIZING


def destructor(case: Case) -> Finding | None:
    """An object's destructor runs while the interpreter is taken down."""
    held = [view for view in leaving(case) if Within.DESTRUCTOR in view.main.within or view.phase is Phase.FINALIZING]
    if not held:
        return None
    ranks = [view.rank for view in held]
    view = held[0]
    what = f"the destructor at {words.place(view.where)}" if view.where else "a destructor of native code"
    return Finding(
        "exit-destructor",
        Certainty.PROVEN if Within.DESTRUCTOR in view.main.within else Certainty.LIKELY,
        f"Training is over, but {case.name(ranks)} cannot exit: {what} does not return.",
        culprits=tuple(each.culprit() for each in held),
        victims=(),
        evidence=tuple(
            f"rank {each.rank} (pid {each.pid}) is taking its interpreter down{words.at(each.where)}: {_how(each)}"
            for each in held[: words.SHOWN]
        ),
        status=_status(held),
        awaited=tuple(ranks),
    )


def _how(view: RankView) -> str:
    process = view.evidence.process
    if process is None:
        return "how is not known"
    if process.sleeps_s is not None and process.sleeps_s > LONG_SLEEP_S:
        return f"it sleeps for another {words.duration(process.sleeps_s)}"
    used = (
        f"{process.cpu_delta_s:.2f} s of processor time" if process.cpu_delta_s is not None else "nothing that is known"
    )
    return f"it used {used} between two samples" + (f", in {process.system_call}" if process.system_call else "")


# ------------------------------------------------------------------------------------------ patience


def _status(held: list[RankView]) -> Status:
    """Lingering where the patience has run out on somebody who does nothing that could end."""
    return Status.LINGERING if any(_stands(view) for view in held) else Status.WAITING


def _stands(view: RankView) -> bool:
    if _works(view):
        return False
    patience = view.evidence.patience_s * (POLLING if _naps(view) else 1.0)
    return view.evidence.still_s > patience


def _works(view: RankView) -> bool:
    """Whatever is on its way out makes progress: the rank, or a child that it waits for."""
    children = (*view.evidence.children, *view.evidence.workers)
    moved = any((each.facts.io_delta_bytes or 0) > QUIET_IO for each in children)
    return view.works or moved or any((each.facts.cpu_delta_s or 0) > IDLE_CPU_S for each in children)


def _naps(view: RankView) -> bool:
    """The main thread's own code takes short naps, or polls: it may come to its end."""
    if view.main.where is None or view.main.doing in _ENDLESS:
        return False
    process = view.evidence.process
    if process is None or process.system_call is None:
        return view.main.doing is Doing.SLEEP
    sleeps = process.sleeps_s
    return "sleep" in process.system_call and (sleeps is None or sleeps < LONG_SLEEP_S)


# ------------------------------------------------------------------------------------------ some left, some not


def destroy_asymmetric(case: Case) -> Finding | None:
    """Some ranks have destroyed the group or are about to, and others wait in a collective of it."""
    left = [view for view in case if view.over or view.phase is Phase.DESTROYING]
    left = [view for view in left if view.rank not in case.blocked]
    staying = [rank for rank in case.blocked if rank not in {view.rank for view in left}]
    if not left or not staying or len(left) + len(staying) < len(case.ranks):
        return None
    if not all(_fed_alike(view, case.ranks[rank]) for view in left for rank in staying[: words.SHOWN]):
        return None  # the difference began with the data
    ranks = [view.rank for view in left]
    first = case.ranks[staying[0]]
    few = left if len(left) <= len(staying) else [case.ranks[rank] for rank in staying]
    witnesses = tuple(
        Witness(Kind.FACT, f"rank {view.rank} is past destroy_process_group{words.at(view.where)}")
        if view.phase in (Phase.DESTROYED, Phase.DESTROYING)
        else Witness(Kind.HABIT, f"the main program of rank {view.rank} is over{words.at(view.where)}")
        for view in left[: words.SHOWN]
    )
    return Finding(
        "exit-destroy-asymmetric",
        case.weigh(witnesses),
        f"{case.name(ranks, capital=True)} {words.verb(len(ranks), 'has', 'have')} ended the process group, while"
        f" {case.wait_words(staying)} in {first.now.call or 'a collective'} of it{words.at(first.where)}.",
        culprits=tuple(view.culprit() for view in few),
        victims=tuple(staying),
        step=first.step,
        evidence=tuple(
            f"rank {rank} is in {case.blocked[rank].op}{words.at(case.blocked[rank].where)}" for rank in staying[:8]
        ),
        witnesses=witnesses,
        awaited=tuple(ranks),
    )


def _fed_alike(view: RankView, stayer: RankView) -> bool:
    """Who has left drew all of its data, and as much of it in each epoch as who has not; or made as many steps.

    Without a loader and with fewer steps it may have left early, if the loop of who stays has a way out.

    Who ended its program epochs before the others, without a word to the group, has left the loop too early.
    """
    left, staying = view.loader, stayer.loader
    if left is None or staying is None:
        steps, loop = (view.step.step, stayer.step.step), stayer.now.loop
        return None in steps or steps[0] == steps[1] or loop is None or not (loop.leaves or loop.skips)
    finished = all(one == other for one, other in zip(left.drawn_per_epoch, staying.drawn_per_epoch, strict=False))
    if left.left or not finished:
        return False
    if staying.epoch > left.epoch:
        return view.phase in (Phase.DESTROYING, Phase.DESTROYED)
    return staying.drawn == left.drawn and staying.exhausted == left.exhausted


GONE: tuple[Rule, ...] = (orphan_holds_pipe, launcher_order)
RULES: tuple[Rule, ...] = (
    output_pipe_full,
    destructor,
    queue_feeder,
    child_process,
    non_daemon_thread,
    atexit_handler,
    destroy_asymmetric,
)
