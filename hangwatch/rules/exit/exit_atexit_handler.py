"""A function registered with atexit that does not return."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.leaving import awaited_threads, how_it_stands, leaving
from hangwatch.facts.processes.sleep import how_it_sleeps, sleeps_long
from hangwatch.model import Phase, ThreadStack
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.rules.lingering import cannot_exit
from hangwatch.stacks.activity import Doing, Within
from hangwatch.stacks.frames import name_of, user_frame


def atexit_handler(case: Case) -> Finding | None:
    """A function that was registered for the exit still runs."""
    held = [view for view in leaving(case) if _in_handler(view)]
    if not held:
        return None
    view = held[0]
    joined = _joined(view)
    return cannot_exit(
        case,
        "exit-atexit-handler",
        held,
        f"{_handler(view, joined)} {_does(view)}",
        sure=view.phase is Phase.ATEXIT,
        culprits=(view.culprit(user_frame(joined.frames)),) if joined is not None and len(held) == 1 else None,
        evidence=tuple(
            f"the main program of rank {each.rank} (pid {each.pid}) is over, and its main thread is in an exit handler"
            f"{words.at(each.where)}: {how_it_stands(each)}"
            for each in held[: words.SHOWN]
        ),
    )


def _handler(view: RankView, joined: ThreadStack | None) -> str:
    if view.where is not None:
        return f"the exit handler {name_of(view.where.function)}{words.at(view.where)}"
    if joined is not None:
        return f"the exit handler that waits for thread {joined.name!r}{words.at(user_frame(joined.frames))}"
    return f"the exit handler {words.place(view.main.frame)}" if view.main.frame else "an exit handler written in C"


def _does(view: RankView) -> str:
    process = view.evidence.process
    return how_it_sleeps(process).removeprefix("it ") if sleeps_long(process) else "does not return"


def _joined(view: RankView) -> ThreadStack | None:
    """The thread for which a handler waits that is a thread's `join`, if there is only one."""
    threads = awaited_threads(view) if view.where is None else []
    return threads[0] if len(threads) == 1 else None


def _in_handler(view: RankView) -> bool:
    if Within.DESTRUCTOR in view.main.within or view.main.doing is Doing.JOIN_THREADS:
        return False
    if view.main.doing is Doing.NOTHING:  # a handler written in C, such as a lock's acquire
        return view.phase is Phase.ATEXIT and view.idle
    return Within.ATEXIT in view.main.within and view.phase is not Phase.FINALIZING
