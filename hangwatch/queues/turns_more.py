"""A rank that made more turns of a loop than all others between two collectives of another group.

Each turn makes a call in a small group, such as one of tensor parallelism; a call of a larger one ends each round. The
partner in the small group looks as if it had not come, and made as many turns as the ranks of all other groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hangwatch import words
from hangwatch.model import Alternative, Certainty

from .all_groups import AllGroups
from .finding import Finding, collective, wait_edges
from .history import Histories
from .matching import shape
from .model import Communicator
from .names import at, ranks
from .stuck import Stuck

_OTHERS_ALIKE = 2  # other ranks, at least, with equally many turns
_LOOP = 2  # turns, at least, where a rank that has not ended its round may make one call before another
_ROUNDS_COMPARED = 64  # that are compared, the last one first


@dataclass(frozen=True, slots=True)
class _Round:
    """How many turns a rank made in a round: between two collectives of `around`, or since the first of them."""

    around: Communicator
    number: int  # of the second one
    turns: int
    ended: bool  # the rank has enqueued the second one


def turns_more(root: Stuck, histories: Histories) -> Finding | None:
    """The finding on the one rank that waits, and made a turn too many in this round or an earlier one."""
    if len(root.waiting) > 1 or root.peers or root.call is None:
        return None
    token = histories.token_of(root.call)
    for last in _last_rounds(histories.all_groups, root, token):
        own, others = _first_unlike(histories.all_groups, root, last, token)
        if own is not None and own.turns > max(others.values()) >= (1 if own.ended else _LOOP):
            return _finding(root, own, others)
    return None


def _first_unlike(orders: AllGroups, root: Stuck, last: _Round, token: int) -> tuple[_Round | None, dict[int, int]]:
    """The latest round with another number of turns than those of the others, most of which made as many as ever."""
    later: int | None = None
    for back in range(_ROUNDS_COMPARED):
        own, others = _round(orders, root, last, back, token)
        usual = _common(others)
        if own is None or usual is None:
            break
        if own.turns != usual:
            before = list(_round(orders, root, last, back + 1, token)[1].values())
            return (own, others) if usual == later or 2 * before.count(usual) > len(before) else (None, {})
        later = usual
    return None, {}


def _round(orders: AllGroups, root: Stuck, last: _Round, back: int, token: int) -> tuple[_Round | None, dict[int, int]]:
    """So many rounds before the last one: that of the rank, and the turns of the others in it."""
    own = last if not back else _earlier(orders, root.waiting[0], last, last.number - back, token)
    return own, _others(orders, root, own, token) if own is not None else {}


def _common(others: dict[int, int]) -> int | None:
    """How many turns all others made; None where these differ, or it is not known."""
    counts = set(others.values())
    return None if len(others) < _OTHERS_ALIKE or -1 in counts or len(counts) > 1 else counts.pop()


def _last_rounds(orders: AllGroups, root: Stuck, token: int) -> Iterator[_Round]:
    """The round of each other group of the rank in which it made the stuck call."""
    (rank,) = root.waiting
    calls, order = orders.without_gaps(rank), root.order[rank]
    groups = {id(each.group): each.group for each in calls if not each.pair and each.group is not root.group}
    for around in groups.values():
        inside = [each for each in calls if each.group is around and not each.pair]
        first = next((each for each in reversed(inside) if each.order < order), None)
        if first is None or first.token == token:
            continue
        ended = any(each.order > order for each in inside)
        turns = sum(each.token == token and first.order < each.order <= order for each in calls)
        yield _Round(around, first.number + 1, turns, ended)


def _earlier(orders: AllGroups, rank: int, last: _Round, number: int, token: int) -> _Round | None:
    turns = _turns(orders, rank, last.around, number, token)
    return _Round(last.around, number, turns, ended=True) if turns is not None else None


def _others(orders: AllGroups, root: Stuck, own: _Round, token: int) -> dict[int, int]:
    """How many turns the other ranks made in that round, those awaited in one of a group of their own; -1: unknown."""
    found = {other: _turns(orders, other, own.around, own.number, token) for other in own.around.members}
    found |= {other: _last_round(orders, other, own, root.group, token) for other in root.awaited}
    return {other: -1 if turns is None else turns for other, turns in found.items() if other not in root.waiting}


def _turns(orders: AllGroups, rank: int, around: Communicator, number: int, token: int) -> int | None:
    """How many turns a rank made before that collective and behind the one before; None where that is not known."""
    calls = orders.without_gaps(rank)
    ends = {each.number: each.order for each in calls if each.group is around and not each.pair}
    if number not in ends or (number > 1 and number - 1 not in ends) or (number == 1 and orders.lost(rank)):
        return None
    return sum(each.token == token and ends.get(number - 1, -1) < each.order < ends[number] for each in calls)


def _last_round(orders: AllGroups, rank: int, like: _Round, stuck: Communicator, token: int) -> int | None:
    """The same of an awaited rank, which may have the round in a group of its own like that one."""
    groups = {id(each.group): each.group for each in orders.without_gaps(rank) if not each.pair}
    large = [each for each in groups.values() if len(each.members) == len(like.around.members) and each is not stuck]
    alike = [each for each in large if each.description == like.around.description] or large
    return _turns(orders, rank, alike[0], like.number, token) if len(alike) == 1 else None


def _finding(root: Stuck, own: _Round, others: dict[int, int]) -> Finding:
    ((rank, call),) = root.calls.items()
    usual = max(others.values())
    said = f"since collective {own.number - 1} of {own.around.title}, {ranks(others)} made {usual} such calls each"
    return Finding(
        "uneven-steps",
        Certainty.LIKELY,
        f"Rank {rank} made {own.turns} calls of {shape(call)}{at(call)} in the round that collective {own.number} of"
        f" {own.around.title} ends, where {ranks(others)} made {usual}: {ranks(root.awaited)}"
        f" {words.verb(len(root.awaited), 'does', 'do')} not come to {collective(root)}.",
        culprits=((rank, call.where),),
        victims=tuple(sorted(others)),
        evidence=(said,),
        alternatives=() if own.ended else (_left_out(rank, own),),
        waits=wait_edges(root),
        fix="make as many turns of that loop on every rank: as many microbatches, or vote on when to stop",
        passing=True,
    )


def _left_out(rank: int, own: _Round) -> Alternative:
    said = f"rank {rank} may have left out collective {own.number} of {own.around.title}, and have begun the next round"
    return Alternative("skipped-collective", Certainty.UNDETERMINED, said)
