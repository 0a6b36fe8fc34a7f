"""What the queues of the devices show where every member has enqueued the call that does not complete."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.case import Case, once
from hangwatch.facts.mismatches import differing
from hangwatch.facts.own_code import awaited_views
from hangwatch.facts.standstill import Call, all_hosts_wait, front
from hangwatch.model import Frame
from hangwatch.ranks.device_waits import queued
from hangwatch.ranks.ledger import Group
from hangwatch.ranks.view import RankView
from hangwatch.stacks.frames import user_frame


@dataclass(frozen=True)
class QueueStall:
    """A call that all members have enqueued, and that no device completes, where every host waits.

    `held` are members whose device has not started it, `started` those whose has; both are empty where torch records no
    start events.
    """

    call: Call
    held: tuple[int, ...]
    started: tuple[int, ...]


@once
def queue_stall(case: Case) -> QueueStall | None:
    """All members have enqueued the same call, and all hosts wait: a device, or what lies between the devices."""
    if not all_hosts_wait(case):
        return None
    call = next((found for rank in case.ranks if (found := front(case, rank)) is not None), None)
    if call is None or not _alike(case, *call):
        return None
    group, number = call
    calls = case.ledger.under(group.name, number, group.members)
    timed = [rank for rank in group.members if _has_start_events(case, rank, group)]
    started = tuple(rank for rank, each in calls.items() if each.started)
    held = tuple(rank for rank in timed if rank not in started)
    if held and started and len(timed) == len(group.members):
        return QueueStall(call, held, started)
    return None if started else QueueStall(call, (), ())


def _alike(case: Case, group: Group, number: int) -> bool:
    """The call is the front of all its members, and the same on all."""
    for rank in group.members:
        ahead = [each for each, _ in queued(case.ledger, rank)] if rank in case.ranks else []
        if ahead != [group] or front(case, rank) != (group, number):
            return False
    calls = case.ledger.under(group.name, number, group.members)
    return len(calls) == len(group.members) and len(differing(calls)) <= 1


def _has_start_events(case: Case, rank: int, group: Group) -> bool:
    """Torch records start events on this rank: earlier calls have one."""
    return any(call.started for call in case.ledger.calls_in(rank, group.name))


def awaited_for_a_device(case: Case) -> list[RankView]:
    """The ranks that are awaited, where all of them wait for their devices with no collective outstanding."""
    awaited = awaited_views(case)
    if any(view.over or not case.waits.shows_device_wait(view) or queued(case.ledger, view.rank) for view in awaited):
        return []
    return awaited


def place_in(case: Case, call: Call, rank: int) -> Frame | None:
    found = case.ledger.call(rank, call[0].name, call[1])
    return user_frame(found.frames) if found is not None else None


def named(case: Case, call: Call, rank: int) -> str:
    found = case.ledger.call(rank, call[0].name, call[1])
    op = found.op if found is not None else "a collective"
    return f"{op} {call[1]} of group {call[0].name}{words.at(place_in(case, call, rank))}"
