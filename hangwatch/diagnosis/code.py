"""One rank is behind and stands in code of the program, outside of every collective."""

from __future__ import annotations

import re

from ..activity import Doing, Within
from ..records import Certainty, Status
from . import words
from .case import IDLE_CPU_S, Case, RankView
from .finding import Finding, Rule

COMPUTING = 5.0  # times its patience that a rank may compute in code of its own before that is called a loop
IN_CODE = frozenset({Doing.CODE, Doing.LOCK, Doing.SOCKET, Doing.SLEEP, Doing.FILE_LOCK, Doing.PIPE, Doing.JOIN_CHILD})
HANDLER_WAITS = frozenset({Doing.CODE, Doing.LOCK, Doing.COLLECTIVE, Doing.JOIN_CHILD, Doing.PIPE, Doing.SOCKET})
SAVING_PATIENCE = 5  # times the usual patience, as the setting stall_after says
_NAMELESS = {  # what /proc calls descriptors without a file
    "pipe:[": "on a pipe",
    "socket:[": "on a socket",
    "anon_inode:[eventpoll": "in its event loop",
}
_NUMBERED = re.compile(r"\d")
MISSED_S = 3.0  # fifteen ticks in a row that did not come, while the main thread was seen to own the lock
TRICKLE = 1024  # bytes between two samples


def user_code_blocked(case: Case) -> Finding | None:
    """Somebody is awaited who stands in the program's own code: blocked, or in a loop."""
    awaited = [case.ranks[rank] for rank in sorted(case.awaited()) if rank in case.ranks]
    stuck = [view for view in awaited if view.now.doing in IN_CODE and not view.over and view.where is not None]
    if not stuck or len(stuck) != len(awaited):
        return None
    stuck = _holders(stuck)
    culprits = [view.rank for view in stuck]
    victims = case.victims(culprits)
    first = stuck[0]
    waiting = f"{case.wait_words(victims)} for {words.verb(len(stuck), 'it', 'them')}"
    return Finding(
        "user-code-blocked",
        Certainty.LIKELY,
        f"{case.name(culprits, capital=True)} {words.verb(len(stuck), 'is', 'are')} {_adverb(case, stuck)} in"
        f" {first.where.function if first.where else '?'}{words.at(first.where)}: {_how_all(stuck)};"
        f" {waiting}{words.at(case.usual_place(victims))}.",
        culprits=tuple(view.culprit() for view in stuck),
        victims=victims,
        step=first.step,
        evidence=(
            *(sentence for view in stuck[: words.SHOWN] for sentence in _evidence(case, view)),
            *_threads_ended(case, stuck),
        ),
        status=_status(case, stuck),
        awaited=tuple(culprits),
    )


def _holders(stuck: list[RankView]) -> list[RankView]:
    """Those who wait for a file lock that another one of them holds wait for that one."""
    pids = {view.pid for view in stuck}
    free = [view for view in stuck if not any(lock.owner_pid in pids for lock in view.evidence.lock_files)]
    return free or stuck


def _adverb(case: Case, stuck: list[RankView]) -> str:
    return "stuck" if _status(case, stuck) is Status.HUNG else "still"


def _how_all(stuck: list[RankView]) -> str:
    """`it sleeps`, of several `each sleeps`, or `rank 3 sleeps` where they differ."""
    how = how_stuck(stuck[0])
    alike = all(how_stuck(view) == how for view in stuck)
    who = "it" if len(stuck) == 1 else "each" if alike else f"rank {stuck[0].rank}"
    return f"{who} {how.removeprefix('it ')}"


def _status(case: Case, stuck: list[RankView]) -> Status:
    """Once patience has run out, only bytes that still move, or a child that computes, count as work for ever.

    Who computes in its own code may be slow, and nothing tells that from a loop without an end but far more patience.
    """
    if not all(case.stalled([view.rank]) for view in stuck):
        return Status.WAITING
    alive = any(view.writing or view.evidence.moved or _child_works(view) or _may_be_slow(view) for view in stuck)
    return Status.WAITING if alive else Status.HUNG


def _may_be_slow(view: RankView) -> bool:
    return view.busy and view.evidence.still_s < COMPUTING * view.evidence.patience_s


def _child_works(view: RankView) -> bool:
    return any((child.facts.cpu_delta_s or 0) > IDLE_CPU_S for child in view.evidence.children)


def how_stuck(view: RankView) -> str:
    """On what a rank is blocked, as far as the system or its frames say."""
    process = view.evidence.process
    if process is not None and process.blocked_on is not None:
        path = process.blocked_on.path
        return f"it waits {_NAMELESS.get(path.rstrip('0123456789]'), f'on {path}')}"
    if view.busy:
        return f"it runs without making progress ({view.cpu:.1f} s of processor time in the last second)"
    if process is not None and view.writing:
        return f"it moves data ({words.size(process.io_delta_bytes or 0)} in the last second)"
    kind = {
        Doing.LOCK: "it waits for a lock or a queue",
        Doing.SOCKET: "it waits for a network peer",
        Doing.SLEEP: "it sleeps",
        Doing.FILE_LOCK: "it waits for a file lock",
        Doing.PIPE: "it writes to a file or a pipe",
        Doing.JOIN_CHILD: "it waits for a child process",
    }.get(view.now.doing)
    if kind is not None:
        return kind
    return "it waits and uses no processor time" if view.idle else "it does not come back"


def _evidence(case: Case, view: RankView) -> list[str]:
    found = [f"rank {view.rank} stands at {words.place(view.where)} and is in no collective"]
    if view.cpu is not None:
        found.append(f"its process used {view.cpu:.2f} s of processor time between two samples")
    if view.steady and not view.busy:
        found.append("two samples of its stack agree")
    if view.evidence.process is not None and view.evidence.process.system_call:
        found.append(f"its main thread is in the system call {view.evidence.process.system_call}")
    return found


def _threads_ended(case: Case, stuck: list[RankView]) -> list[str]:
    """Threads that all the other ranks have and a stuck one has not: it may wait for what one of them gave it."""
    blamed = {view.rank for view in stuck}
    others = [view for view in case if view.rank not in blamed and not view.dead and view.evidence.stacks]
    everywhere = frozenset.intersection(*map(_threads, others)) if others else frozenset[str]()
    healthy = case.name([view.rank for view in others])
    return [
        f"thread {name!r} runs on {healthy}, and not on rank {view.rank}"
        for view in stuck[: words.SHOWN]
        if view.evidence.stacks
        for name in sorted(everywhere - _threads(view))
    ]


def _threads(view: RankView) -> frozenset[str]:
    """Names that the program gave its threads; numbered ones are whoever was started first."""
    names = {stack.name for stack in view.evidence.stacks if not stack.main and stack.source == "py-spy"}
    return frozenset(name for name in names if name and not _NUMBERED.search(name) and not name.startswith("hangwatch"))


# ------------------------------------------------------------------------------------------ special kinds of code


def signal_handler_deadlock(case: Case) -> Finding | None:
    """A signal handler waits above the code that it interrupted."""
    waiting = [view for view in case if view.main.handler and not view.works and view.main.doing in HANDLER_WAITS]
    if not waiting:
        return None
    view = waiting[0]
    culprits = [other.rank for other in waiting]
    victims = case.victims(culprits)
    tail = f"; {case.wait_words(victims)} for it" if victims else ""
    return Finding(
        "signal-handler-deadlock",
        Certainty.LIKELY,
        f"{case.name(culprits, capital=True)} {words.verb(len(culprits), 'stands', 'stand')} in the signal handler"
        f" {view.main.handler}{words.at(view.where)}, {_handler_waits(view)}{tail}.",
        culprits=tuple(other.culprit() for other in waiting),
        victims=victims,
        step=view.step,
        evidence=(
            f"{view.main.handler} is registered with signal.signal and stands above the code that it interrupted",
        ),
        awaited=tuple(culprits),
    )


def _handler_waits(view: RankView) -> str:
    if view.main.in_collective:
        return f"in {view.main.call or 'a collective'} that the other ranks have not called"
    return "which waits for what the interrupted code holds"


def gil_held(case: Case) -> Finding | None:
    """A rank's main thread is in a C call that owns the interpreter lock, so that not even its ticker runs."""
    # An interpreter that is being taken down runs no other threads either.
    holders = [view for view in case if not (view.dead or view.stopped or view.over) and holds_lock(view)]
    holders = [view for view in holders if not case.blocked or view.rank in case.awaited()]
    if not holders:
        return None
    view = holders[0]
    culprits = [other.rank for other in holders]
    victims = case.victims(culprits)
    native = next((frame for frame in view.evidence.main_stack if frame.native), None)
    inside = f" in {native.function}" if native is not None else ""
    tail = f"; {case.wait_words(victims)} for it" if victims else ""
    return Finding(
        "gil-held",
        Certainty.LIKELY,
        f"{case.name(culprits, capital=True)} {words.verb(len(culprits), 'is', 'are')} in a C call that holds the"
        f" interpreter lock{inside}{words.at(view.where)}{tail}.",
        culprits=tuple(other.culprit() for other in holders),
        victims=victims,
        step=view.step,
        evidence=(
            f"no thread of rank {view.rank} has run for {words.duration(silence(view))}",
            "its main thread owns the interpreter lock",
        ),
        status=Status.HUNG if case.stalled(culprits) else Status.WAITING,
    )


def silence(view: RankView) -> float:
    """For how long the rank's own ticker thread has not run."""
    return 0.0 if view.reading is None else view.reading.taken_at - view.reading.ticker_at


def holds_lock(view: RankView) -> bool:
    """The main thread owns the interpreter lock at one place, and the ticker has not run for a while."""
    samples = (*view.evidence.stacks, *view.evidence.earlier_stacks)
    owner = any(stack.main and stack.owns_gil for stack in samples)
    return owner and view.steady and silence(view) > MISSED_S


def slow_checkpoint(case: Case) -> Finding | None:
    """The others wait for ranks that read or write a checkpoint."""
    savers = [view for view in _awaited(case) if _saves(view)]
    if not savers:
        return None
    culprits = [view.rank for view in savers]
    victims = case.victims(culprits)
    view = savers[0]
    file = view.evidence.process.blocked_on if view.evidence.process is not None else None
    path = f" {file.path}" + (f" ({file.filesystem})" if file.filesystem else "") if file is not None else ""
    bytes_moved = sum(
        other.evidence.process.io_delta_bytes or 0 for other in savers if other.evidence.process is not None
    )
    trickle = max(map(_written, savers))
    moving = any(other.works for other in savers) or trickle > TRICKLE
    amount = f"{bytes_moved >> 20} MiB" if bytes_moved >> 20 else f"{trickle >> 10} KiB"
    state = f"still moving data ({amount} in the last second)" if moving else "not moving any data"
    return Finding(
        "slow-checkpoint",
        Certainty.LIKELY,
        f"{case.name(culprits, capital=True)} {words.verb(len(culprits), 'is', 'are')} reading or writing a checkpoint"
        f"{path}{words.at(view.where)}, {state}; {case.wait_words(victims)}.",
        fix="" if moving else "look at the file system that the checkpoint is on",
        culprits=tuple(other.culprit() for other in savers),
        victims=victims,
        step=view.step,
        evidence=(f"rank {view.rank} is in {words.place(view.now.frame)}, {state}",),
        status=_saving(case, savers),
    )


def _saving(case: Case, savers: list[RankView]) -> Status:
    """Storage that is slow looks stuck between two writes: only a call that the kernel blocks counts at once."""
    blocked = any(view.evidence.process is not None and view.evidence.process.blocked_on is not None for view in savers)
    much = all(view.evidence.still_s > SAVING_PATIENCE * view.evidence.patience_s for view in savers)
    if any(view.works or _written(view) > TRICKLE for view in savers):
        return Status.WAITING
    return _status(case, savers) if blocked or much else Status.WAITING


def _written(view: RankView) -> int:
    process = view.evidence.process
    return (process.written_delta_bytes or 0) if process is not None else 0


def _saves(view: RankView) -> bool:
    return view.now.doing is Doing.CHECKPOINT or (Within.CHECKPOINT in view.now.within and not view.now.in_collective)


def compile_skew(case: Case) -> Finding | None:
    """The others wait for ranks that compile."""
    compilers = [view for view in _awaited(case) if view.now.doing is Doing.COMPILE or _compiles(view)]
    if not compilers:
        return None
    culprits = [view.rank for view in compilers]
    victims = case.victims(culprits)
    view = compilers[0]
    return Finding(
        "compile-skew",
        Certainty.LIKELY,
        f"{case.name(culprits, capital=True)} still {words.verb(len(culprits), 'compiles', 'compile')}"
        f"{words.at(view.where)}; {case.wait_words(victims)} for it.",
        culprits=tuple(other.culprit() for other in compilers),
        victims=victims,
        step=view.step,
        evidence=(f"rank {view.rank} is in {words.place(view.now.frame)}",),
        status=Status.WAITING if any(other.works for other in compilers) else _status(case, compilers),
    )


def _compiles(view: RankView) -> bool:
    """It waits for a compiler that it has started."""
    return Within.COMPILE in view.now.within and view.now.doing in (Doing.JOIN_CHILD, Doing.LOCK, Doing.SOCKET)


def _awaited(case: Case) -> list[RankView]:
    return [case.ranks[rank] for rank in sorted(case.awaited()) if rank in case.ranks]


SIGNALS: tuple[Rule, ...] = (signal_handler_deadlock,)
RULES: tuple[Rule, ...] = (gil_held, slow_checkpoint, compile_skew, user_code_blocked)
