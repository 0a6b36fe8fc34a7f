"""Every host waits for its device, and the devices' queues show why none of them goes on.

gloo detects calls that do not fit, and a wait for a wrong partner is a proof there (`hangwatch.proof.graph`, condition
6). NCCL does not: where all members have enqueued calls that differ, some complete, with wrong numbers. That happens as
soon as the devices reach them. And where two groups were used in opposite orders, the devices wait for each other only
if each of them runs its calls in the order in which they were enqueued. So where every host waits and nothing has moved
for a little while, the job is most likely dead: no proof, since a long kernel may still be in front of the calls, and
no case for a long patience either.
"""

from __future__ import annotations

from collections.abc import Mapping

from hangwatch import words
from hangwatch.facts.calls.mismatches import differing
from hangwatch.facts.case import Case, once
from hangwatch.facts.processes.own_code import awaited_views
from hangwatch.proof.graph import Need, WaitGraph
from hangwatch.ranks.device_waits import COPIES_S, on_device, queued
from hangwatch.ranks.ledger import Group
from hangwatch.ranks.view import RankView

STANDS_S = 2.0  # seconds without movement: what completes with wrong numbers has done so
Call = tuple[Group, int]


@once
def all_hosts_wait(case: Case) -> bool:
    """Every rank that lives surely waits for its device, and has not moved for a while."""
    living = [view for view in case if not (view.dead or view.over)]
    return bool(living) and all(
        view.steady
        and not view.stopped
        and not case.works(view)
        and case.surely_waits(view)
        and bool(queued(case.ledger, view.rank))
        and view.evidence.still_s >= STANDS_S
        for view in living
    )


@once
def standstill(case: Case) -> str:
    """Why the devices do not go on, as a sentence for the argument; "" where the queues do not show it."""
    launching = (view for view in case if not (view.dead or view.over or case.shows_its_wait(view)))
    if not all_hosts_wait(case) or any(view.evidence.still_s < COPIES_S for view in launching):
        return ""
    if (unfit := misfit(case)) is not None:
        return (
            f"the calls paired as number {unfit[1]} of group {unfit[0].name} do not fit: such calls complete at once,"
            " with wrong numbers, or never"
        )
    if around := circle(case):
        names = words.listed([f"number {number} of group {group.name}" for group, number in around])
        return f"every device runs its calls in the order in which they were enqueued, and {names} wait for each other"
    return ""


def awaited_for_a_device(case: Case) -> list[RankView]:
    """The ranks that are awaited, where all of them wait for their devices with no collective outstanding."""
    awaited = awaited_views(case)
    if any(view.over or not case.waits.shows_device_wait(view) or queued(case.ledger, view.rank) for view in awaited):
        return []
    return awaited


def devices_alone(case: Case) -> bool:
    """Each living rank waits for its device, and none for another rank as far as any record shows.

    They compute, most of the time: what a device does no counter tells.
    """
    living = [view for view in case if not view.dead]
    return bool(living) and not case.blocked and all(map(case.waits.shows_device_wait, living))


def all_for_their_devices(case: Case) -> list[RankView]:
    """All living ranks, where each waits for its device and no collective lacks a rank: perhaps for one another's."""
    living = [view for view in case if not view.dead]
    if any(view.over or not case.waits.shows_device_wait(view) for view in living):
        return []
    queues = (queued(case.ledger, rank) for rank in case.blocked)
    return living if all(queue and all(_enqueued_by_all(*call) for call in queue) for queue in queues) else []


def misfit(case: Case) -> Call | None:
    """The first incomplete call of a rank, where all members have called under its number, and not the same."""
    first = {(group.key, number): group for rank in case.ranks for group, number in queued(case.ledger, rank)}
    return next(((group, number) for (_, number), group in first.items() if _unlike(case, group, number)), None)


def _unlike(case: Case, group: Group, number: int) -> bool:
    calls = case.ledger.under(group.name, number, group.members) if _enqueued_by_all(group, number) else {}
    return len(differing(calls)) > 1


def _enqueued_by_all(group: Group, number: int) -> bool:
    return not group.silent and not group.behind(number)


def front(case: Case, rank: int) -> Call | None:
    """The call that is first in the queues of `rank`: of those that are not complete, the one enqueued first."""
    found = []
    for group, number in queued(case.ledger, rank):
        call = case.ledger.call(rank, group.name, number)
        if call is None or call.at is None:
            return None
        found.append((call.at, group, number))
    return min(found, key=lambda each: each[0])[1:] if found else None


@once
def circle(case: Case) -> tuple[Call, ...]:
    """Calls that wait for each other, where every device runs its calls in order; empty where there is no such circle.

    A call waits for members that have not enqueued it, whose hosts wait for other calls, and one that all have enqueued
    for those whose devices have another call in front of it.
    """
    fronts = {rank: found for rank in case.ranks if (found := front(case, rank)) is not None}
    shared: dict[tuple[int, int], Need] = {}
    needs: dict[int, Need] = {}
    for rank, (group, number) in fronts.items():
        key = (id(group), number)
        if key not in shared:
            shared[key] = Need(_awaited(group, number, fronts), group=group.name, members=group.members, seq=number)
        if shared[key].absent:
            needs[rank] = shared[key]
    graph = WaitGraph(needs)
    around = graph.cycle(graph.deadlocked())
    return tuple({(id(fronts[rank][0]), fronts[rank][1]): fronts[rank] for rank in around}.values())


def _awaited(group: Group, number: int, fronts: Mapping[int, Call]) -> tuple[int, ...]:
    """The ranks without which that call does not complete. Of a group that is not all on devices, nothing is said."""
    if group.silent or not all(on_device(group, member) for member in group.members):
        return ()
    absent = tuple(sorted(group.behind(number)))
    elsewhere = (rank for rank in group.members if rank in fronts and not _same(fronts[rank], (group, number)))
    return absent or tuple(elsewhere)


def _same(one: Call, other: Call) -> bool:
    return one[0] is other[0] and one[1] == other[1]
