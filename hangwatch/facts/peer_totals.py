"""How many sends and receives the ranks of a group have made in all: each send has its receive.

NCCL's hosts queue such calls and run on, so that no stack shows which one is open. Where no host moves any more and the
totals differ, one of them has no counterpart.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hangwatch.facts.case import Case
from hangwatch.model import Collective
from hangwatch.proof.waits import serves
from hangwatch.ranks.device_waits import on_device, python_frames
from hangwatch.ranks.ledger import Group

_ENOUGH = 3  # ranks that count alike: of two, either may be the odd one


@dataclass(frozen=True)
class Totals:
    """The totals of a group; `odd` is the one rank that does not count as all others do, with both counts."""

    group: Group
    sent: int
    received: int
    odd: int | None = None
    counts: tuple[int, int] = (0, 0)  # of the odd rank: sent, received
    usual: tuple[int, int] = (0, 0)
    even: bool = False  # all others made as many sends as receives, each as many as its place in the group asks for


def unequal(case: Case) -> Totals | None:
    """The first group of a device whose ranks made other numbers of sends than of receives; None where all fit."""
    groups = case.ledger.groups.values()
    return next((found for group in groups if (found := _totals(group, case)) is not None), None)


def exchanged(case: Case, call: Collective, rank: int) -> tuple[int, int] | None:
    """How many calls of the kind of `call` `rank` made with its peer, and how many of the other kind that peer made.

    None where not all of them are on record, or where one takes messages from any rank.
    """
    if call.peer is None:
        return None
    other = "recv" if "send" in call.op else "send"
    mine, theirs = case.ledger.to_peers(rank), case.ledger.to_peers(call.peer)
    if mine is None or theirs is None or any(each.peer is None for each in (*mine, *theirs)):
        return None
    made = sum(serves(each, call.op, call.peer, call) for each in mine)
    return made, sum(serves(each, other, rank, call) for each in theirs)


def _totals(group: Group, case: Case) -> Totals | None:
    heads = group.heads
    if not heads or set(heads) != set(group.members) or not all(on_device(group, rank) for rank in heads):
        return None
    counts = {rank: (head.sent, head.received) for rank, head in heads.items()}
    sent, received = (sum(each) for each in zip(*counts.values(), strict=True))
    if sent == received:
        return None
    usual, often = Counter(counts.values()).most_common(1)[0]
    odd = [rank for rank, each in counts.items() if each != usual]
    if len(odd) == 1 and often >= _ENOUGH:
        return Totals(group, sent, received, odd[0], counts[odd[0]], usual)
    uneven = [rank for rank, (out, into) in counts.items() if out != into]
    if len(uneven) == 1 and len(counts) >= _ENOUGH and _at_one_place(case, group):
        return Totals(group, sent, received, uneven[0], counts[uneven[0]], even=True)
    return Totals(group, sent, received)


def _at_one_place(case: Case, group: Group) -> bool:
    """All members stand in the same frames: at the same point of their rounds, which they all have made whole.

    Elsewhere in a round a stage of a pipeline may well have received what it has not sent on.
    """
    places = {python_frames(case.ranks[rank]) if rank in case.ranks else () for rank in group.members}
    return len(places) == 1 and () not in places
