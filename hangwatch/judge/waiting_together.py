"""Facts of all ranks together: each waits, and for what only others of them could give.

None of them is held by anything of its own, as `hangwatch.judge.patience` tells of single ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.facts.calls.mismatches import mispaired_ranks
from hangwatch.facts.case import Case
from hangwatch.facts.processes.remote_calls import no_call_is_left
from hangwatch.model import Snapshot, ThreadStack
from hangwatch.proof.conditions import raises_by_itself
from hangwatch.proof.waits import ASLEEP, Blocked
from hangwatch.ranks.thread_stacks import python_of, stack_of, waits_for_a_lock
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import COLLECTIVE_WAITS, Activity, Doing


def waiting_together(snapshot: Snapshot, living: Sequence[RankView]) -> dict[int, str]:
    """Rank to the fact, in words that follow "it"; empty where a rank may have what the others wait for."""
    facts = (_in_a_meeting, _mispaired, _for_each_other)
    return next((held for fact in facts if (held := fact(snapshot, living))), {})


def _in_a_meeting(snapshot: Snapshot, living: Sequence[RankView]) -> dict[int, str]:
    """Ranks wait for all workers by other means than a group, and all other ranks surely for calls of ranks."""
    meet = [view.rank for view in living if view.now.doing is Doing.MEETING and view.steady]
    complete = len(living) == (snapshot.job.world_size or len(living))
    if not complete or not 0 < len(meet) < len(living):
        return {}
    blocked = Case(snapshot).blocked
    others = (blocked.get(view.rank) for view in living if view.rank not in meet)
    if not all(entry is not None and entry.certain for entry in others):
        return {}  # a backward may compute
    return dict.fromkeys(meet, "waits for all workers, others of which wait in collectives")


def in_remote_calls(snapshot: Snapshot, living: Sequence[RankView]) -> dict[int, str]:
    """Ranks wait for answers (torch's RPC), and what should give them waits, too."""
    complete = 1 < (snapshot.job.world_size or 0) <= len(living)
    waits = "waits in a call of another rank, and what answers it waits, too"
    return {view.rank: waits for view in living} if complete and no_call_is_left(living) else {}


def _mispaired(snapshot: Snapshot, living: Sequence[RankView]) -> dict[int, str]:
    """All ranks wait in collectives, and calls of one number differ: no backend makes one call of them."""
    if len(living) < 2 or not all(view.now.doing in COLLECTIVE_WAITS and view.steady for view in living):
        return {}
    return dict.fromkeys(mispaired_ranks(Case(snapshot)), "waits in a call that is paired with another one")


def _for_each_other(snapshot: Snapshot, living: Sequence[RankView]) -> dict[int, str]:
    """Nothing is on its way between the ranks, and not all of them stand in one call."""
    case = Case(snapshot)
    blocked = case.blocked if nothing_is_on_its_way(case) else {}
    calls = {(entry.group.name if entry.group else "", entry.seq, entry.op) for entry in blocked.values()}
    return dict.fromkeys(blocked, "waits for ranks all of which wait, too") if len(calls) > 1 else {}


def nothing_is_on_its_way(case: Case) -> bool:
    """All ranks stand in calls on the host and do nothing, on one machine, and no other thread of theirs may move.

    What a call needs that may complete by itself, as that of a root, would be there.
    """
    living = [view for view in case if not view.dead]
    complete = 1 < (case.snapshot.job.world_size or 0) <= len(living)
    if not complete or len({view.evidence.host for view in living}) > 1:
        return False
    if not all(view.now.in_collective and view.steady and not view.works for view in living):
        return False
    if any(raises_by_itself(view.now) for view in living):
        return False
    on_host = case.all_wait and all(map(_on_host, case.blocked.values()))
    return on_host and not any(map(_another_thread_may_move, living))


def _another_thread_may_move(view: RankView) -> bool:
    """One that could issue a collective, and neither stands in one nor enters a block of a lock."""
    return any(not _waits(view, thread, stack) for thread, stack in view.others_that_may_communicate)


def _waits(view: RankView, thread: Activity, stack: ThreadStack) -> bool:
    """In both samples alike, at `with lock:` or in a collective; the main thread may also sleep for another thread."""
    before = stack_of(view.evidence.earlier_stacks, thread)
    if before is None or python_of(before) != python_of(stack):
        return False
    return (
        thread.in_collective
        or bool(stack.entering)
        or (thread.main and waits_for_a_lock(thread, view.evidence.process))
    )


def _on_host(entry: Blocked) -> bool:
    return entry.group is not None and all(head.backend in ASLEEP for head in entry.group.heads.values())
