"""What must be true of a rank before its wait bears a proof, each condition by its name.

`hangwatch.proof.graph` says why each of them is needed. A condition that cannot be answered from the evidence is not
fulfilled.
"""

from __future__ import annotations

from hangwatch.model import Phase
from hangwatch.ranks.ledger import Ledger
from hangwatch.ranks.thread_stacks import is_ours, waits_for_a_task
from hangwatch.ranks.view import OLD_WORDS_S, OVER, RankView
from hangwatch.stacks.activity import Activity, Doing
from hangwatch.stacks.frames import name_of

_ENDINGS = (Doing.JOIN_THREADS, Doing.JOIN_CHILD, Doing.QUEUE_FEEDER)


def wait_is_certain(view: RankView, ledger: Ledger, *, spins: bool = False) -> bool:
    """The rank stands in its call for good, as long as the call is not completed from elsewhere.

    With `spins` it uses its processor in a wait, for its device or a communicator, which is no sign of work.
    """
    return (
        samples_agree(view, spins=spins)
        and board_is_fresh(view)
        and not raises_by_itself(view.now)
        and not other_threads_may_help(view, ledger)
        and wait_is_seen(view, ledger)
    )


def samples_agree(view: RankView, *, spins: bool = False) -> bool:
    """Two samples of its stack agree, and it used hardly any processor time between them, unless it spins."""
    return view.steady and (spins or not view.busy)


def board_is_fresh(view: RankView) -> bool:
    """The counts are of this moment: its ticker runs, or another source than the board gave them."""
    silent_s = view.silent_s
    if silent_s is None:
        return bool(view.evidence.collectives.heads)
    return silent_s <= OLD_WORDS_S or view.evidence.collectives.source != "board"


def raises_by_itself(now: Activity) -> bool:
    """The call has a timeout of its own, short by its purpose, after which it raises and the program goes on."""
    return now.frame is not None and name_of(now.frame.function) == "monitored_barrier"


def other_threads_may_help(view: RankView, ledger: Ledger) -> bool:
    """Another thread runs code that may communicate, or has issued collectives before; not one that waits for this.

    Threads of an executor that have no task do nothing by themselves, where no other thread is left to give them one.
    """
    if view.threads_that_may_communicate():
        return True
    waits = view.main if view.main_waits_for_a_thread else None
    others = [
        (thread.thread, stack)
        for thread, stack in zip(view.threads, view.evidence.stacks, strict=True)
        if thread is not waits and thread.thread_id != view.now.thread_id and not is_ours(stack)
    ]
    if all(waits_for_a_task(stack) for _, stack in others):
        return False
    return not {name for name, _ in others if name}.isdisjoint(ledger.issuers(view.rank))


def wait_is_seen(view: RankView, ledger: Ledger) -> bool:
    """A frame shows the wait, or the thread sleeps for what only its own process can give, and uses no device.

    The engine threads of a device compute while the thread that called backward sleeps.
    """
    return view.waits_for_sure or (view.sleeps_privately and not uses_a_device(view, ledger))


def uses_a_device(view: RankView, ledger: Ledger) -> bool:
    """One of its groups has a device's backend."""
    return any(group.heads[view.rank].uses_nccl for group in ledger.groups_of(view.rank))


def never_issues_again(view: RankView) -> bool:
    """The rank is dead or stopped, or its main program is over and no thread is left that may communicate."""
    if view.dead or view.stopped:
        return True
    if view.phase not in OVER or view.phase is Phase.DESTROYED or not view.steady:
        return False
    return view.main.doing in _ENDINGS and not view.threads_that_may_communicate()
