"""A rank that waits alone in a group, of which no other rank's line tells: a member of it has not come.

The watchdog's lines do not name the members of a group. What bounds them: torch numbers the ranks of a group in their
order, and a rank is in one group only of those that a program calls alike (tensor parallel, data parallel).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hangwatch import words
from hangwatch.model import Certainty, Culprit, Judgement, Verdict, Wait
from hangwatch.queues.finding import collective, wait_edges
from hangwatch.queues.names import at
from hangwatch.queues.stuck import Stuck, stuck_collectives

from ..queues.model import UNDESCRIBED, Queues
from .model import Logs

_SHOWN = 3


def told(judged: Judgement, queues: Queues, logs: Logs) -> Judgement:
    """The queues' judgement, or where it blames no rank, and a rank waits alone in a group, what that wait tells."""
    verdict = judged.verdict
    if queues.record == "dump" or verdict.culprits or verdict.certainty is not Certainty.UNDETERMINED:
        return judged
    stuck = list(stuck_collectives(queues))
    alone = [each for each in stuck if _is_alone(each)]
    return replace(judged, verdict=_verdict(verdict, alone, stuck, queues, logs)) if alone else judged


def _is_alone(one: Stuck) -> bool:
    group = one.group
    return group.guessed and not group.default and one.expired and len(one.waiting) == len(group.lanes) == 1


def _verdict(known: Verdict, alone: Sequence[Stuck], stuck: Sequence[Stuck], queues: Queues, logs: Logs) -> Verdict:
    awaited = {one.waiting[0]: _candidates(one, queues, logs) for one in alone}
    blamed = sorted({ranks[0] for ranks in awaited.values() if len(ranks) == 1} - awaited.keys())
    waiting = {rank for one in stuck for rank in one.waiting}
    return replace(
        known,
        cause="undetermined",
        summary=" ".join(_said(one, awaited[one.waiting[0]]) for one in alone[:_SHOWN]),
        fix=_fix(blamed, any(awaited.values())),
        culprits=tuple(Culprit(rank) for rank in blamed),
        victims=tuple(sorted(waiting - set(blamed))),
        evidence=tuple(said for one in alone[:_SHOWN] for said in _evidence(one, logs)),
        alternatives=(),
        waits=tuple(_waits(alone, stuck, awaited)),
    )


def _waits(alone: Sequence[Stuck], stuck: Sequence[Stuck], awaited: dict[int, list[int]]) -> Iterator[Wait]:
    for one in stuck:
        if one not in alone:
            yield from wait_edges(one)
    for one in alone:
        ranks = awaited[one.waiting[0]]
        yield from wait_edges(one, ranks if len(ranks) == 1 else ())


def _candidates(one: Stuck, queues: Queues, logs: Logs) -> list[int]:
    """The ranks that may be the member that has not come; none where all that are named are ruled out."""
    (rank,), group = one.waiting, one.group
    first = rank + 1 if _is_first(one, logs) else 0
    called_alike = [
        other
        for other in queues.communicators
        if other is not group and other.description == group.description not in ("", UNDESCRIBED)
    ]
    elsewhere = {member for other in called_alike for member in other.lanes}
    return [each for each in range(first, queues.world_size or 0) if each != rank and each not in elsewhere]


def _is_first(one: Stuck, logs: Logs) -> bool:
    (rank,), name = one.waiting, one.group.name
    return {far.place for far in logs.progress if (far.rank, far.group) == (rank, name)} == {0}


def _fix(blamed: Sequence[int], named: bool) -> str:
    dumps = "the flight recorder's dumps name the members of each group"
    if not named:
        return f"give the logs of all ranks; {dumps}"
    return f"find out what {words.ranks(blamed) if blamed else 'that member'} did instead; {dumps}"


def _evidence(one: Stuck, logs: Logs) -> Iterator[str]:
    yield f"no other rank's line tells of {one.group.title}"
    if _is_first(one, logs):
        yield f"{words.ranks(one.waiting)} is the first of that group, in which torch keeps the ranks in their order"


def _said(one: Stuck, candidates: Sequence[int]) -> str:
    alone = f"{words.ranks(one.waiting, capital=True)} waits alone in {collective(one)}{at(one.call)}"
    if len(candidates) == 1:
        can = f"of the ranks that these logs name, only {words.ranks(candidates)} can be that member"
    elif candidates:
        can = f"these lines do not name it, and it may be any of {words.ranks(candidates)}"
    else:
        can = "these lines do not name it"
    return f"{alone}: another member of that group has not come, or left no line of it; {can}."
