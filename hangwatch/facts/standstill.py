"""Every host waits for its device, and the devices' queues show why none of them goes on.

gloo detects calls that do not fit, and a wait for a wrong partner is a proof there (`hangwatch.proof.graph`, condition
6). NCCL does not: where all members have enqueued calls that differ, some complete, with wrong numbers. That happens as
soon as the devices reach them. And where two groups were used in opposite orders, the devices wait for each other only
if each of them runs its calls in the order in which they were enqueued. So where every host waits and nothing has moved
for a little while, the job is most likely dead: no proof, since a long kernel may still be in front of the calls, and
no case for a long patience either.
"""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch import words
from hangwatch.facts.case import Case, once
from hangwatch.facts.mismatches import differing
from hangwatch.ranks.device_waits import on_device, queued
from hangwatch.ranks.ledger import Group

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
    if not all_hosts_wait(case):
        return ""
    if (unfit := misfit(case)) is not None:
        return (
            f"the calls paired as number {unfit[1]} of group {unfit[0].name} do not fit: such calls complete at once,"
            " with wrong numbers, or never"
        )
    if circle := crossed(case):
        names = words.listed([f"number {number} of group {group.name}" for group, number in circle])
        return f"every device runs its calls in the order in which they were enqueued, and {names} wait for each other"
    return ""


def misfit(case: Case) -> Call | None:
    """The first incomplete call of a rank, where all members have called under its number, and not the same."""
    return next((call for rank in case.ranks for call in queued(case.ledger, rank) if _unlike(case, *call)), None)


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
def crossed(case: Case) -> tuple[Call, ...]:
    """A circle of calls: for each there is a member that runs the next one first. All of them were enqueued by all."""
    fronts = {rank: found for rank in case.ranks if (found := front(case, rank)) is not None}
    for rank in sorted(fronts):
        path: list[Call] = []
        call: Call | None = fronts[rank]
        while call is not None and not any(_same(call, each) for each in path):
            path.append(call)
            call = next(_held_by(call, fronts), None)
        if call is not None:
            start = next(place for place, each in enumerate(path) if _same(call, each))
            return tuple(path[start:])
    return ()


def _held_by(call: Call, fronts: dict[int, Call]) -> Iterator[Call]:
    """The calls that members of `call` run before it."""
    group, number = call
    if _enqueued_by_all(group, number) and all(on_device(group, member) for member in group.members):
        yield from (fronts[each] for each in group.members if each in fronts and not _same(fronts[each], call))


def _same(one: Call, other: Call) -> bool:
    return one[0] is other[0] and one[1] == other[1]
