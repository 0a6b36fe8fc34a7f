"""A rank that made more turns of a loop than all others between two collectives of another group, or fewer.

Each turn makes a call in a small group, such as one of tensor parallelism; a call of a larger one ends each round. Of a
turn too many, the partner in the small group looks as if it had not come, and made as many turns as all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hangwatch import words
from hangwatch.model import Alternative, Certainty

from .all_groups import AllGroups
from .finding import Finding, collective, wait_edges
from .history import Histories
from .matching import shape
from .model import Communicator
from .names import at, ranks, say
from .stuck import Stuck

_OTHERS_ALIKE = 2  # other ranks, at least, with equally many turns
_LOOP = 2  # turns, at least, where a rank that has not ended its round may make one call before another
_ROUNDS_COMPARED = 64  # the last one first
_FIX = "make as many turns of that loop on every rank: as many microbatches, or vote on when to stop"


@dataclass(frozen=True, slots=True)
class _Round:
    """How many turns a rank made in a round: between two collectives of `around`, or since the first of them."""

    around: Communicator
    number: int  # of the second one
    turns: int
    ended: bool  # the rank has enqueued the second one


@dataclass(frozen=True, slots=True)
class _Compared:
    """A rank of a stuck call and those across from it, whose rounds may end in groups of their own."""

    orders: AllGroups
    stuck: Communicator
    rank: int
    across: tuple[int, ...]
    token: int  # of the calls that are counted
    standing: bool = False  # those across stand in a turn: their round is not over

    def turns(self, rank: int, around: Communicator, number: int, *, so_far: bool = False) -> int | None:
        """How many turns a rank made before that collective and behind the one before; None where it is not known."""
        calls = self.orders.without_gaps(rank)
        ends = {each.number: each.order for each in calls if each.group is around and not each.pair}
        first = number == 1 and not self.orders.lost(rank)
        if not (first or number - 1 in ends) or not (number in ends or so_far):
            return None
        since, until = ends.get(number - 1, -1), ends.get(number, calls[-1].order + 1)
        return sum(each.token == self.token and since < each.order < until for each in calls)

    def turns_across(self, rank: int, like: _Round) -> int | None:
        """The same of a rank that may have the round in a group of its own like that one."""
        groups = {id(each.group): each.group for each in self.orders.without_gaps(rank) if not each.pair}
        size, said = len(like.around.members), like.around.description
        large = [each for each in groups.values() if len(each.members) == size and each is not self.stuck]
        alike = [each for each in large if each.description == said] or large
        return self.turns(rank, alike[0], like.number, so_far=self.standing) if len(alike) == 1 else None

    def others(self, own: _Round) -> dict[int, int]:
        """How many turns the other ranks made in that round; -1 where it is not known."""
        found = {other: self.turns(other, own.around, own.number) for other in own.around.members}
        found |= {other: self.turns_across(other, own) for other in self.across}
        return {other: -1 if turns is None else turns for other, turns in found.items() if other != self.rank}


def turns_more(root: Stuck, histories: Histories, *, weak: bool = False) -> Finding | None:
    """The finding on the one rank that waits, and made a turn too many in this round or an earlier one.

    `weak`: also where the others made one such call in that round, so that it may only be made before another.
    """
    if len(root.waiting) > 1 or root.peers or root.call is None:
        return None
    compared = _of(root, histories, root.waiting[0], root.awaited)
    for last in _with_stuck_call(compared, root.order[root.waiting[0]]):
        own, others = _first_unlike(compared, last)
        sure = own is not None and (own.ended or max(others.values()) >= _LOOP)
        if own is not None and own.turns > max(others.values()) > 0 and (sure or weak):
            return _more(root, own, others, sure=sure)
    return None


def turns_fewer(root: Stuck, histories: Histories) -> Finding | None:
    """The finding on the one awaited rank that went on to the end of a round with a turn less than all others."""
    if len(root.awaited) != 1 or root.peers or root.call is None:
        return None
    compared = replace(_of(root, histories, root.awaited[0], root.waiting), standing=True)
    for last in _ended(compared):
        own, others = _first_unlike(compared, last)
        if own is not None and 0 < own.turns < max(others.values()):
            return _fewer(root, own, others, sure=_went_on(compared, own))
    return None


def _went_on(compared: _Compared, own: _Round) -> bool:
    """Whether the rank made such a call behind that round: then what it lacks there does not come later."""
    calls = compared.orders.without_gaps(compared.rank)
    ended = max(each.order for each in calls if each.group is own.around and each.number == own.number)
    return any(each.token == compared.token and each.order > ended for each in calls)


def _of(root: Stuck, histories: Histories, rank: int, across: tuple[int, ...]) -> _Compared:
    token = histories.token_of(root.call) if root.call is not None else -1
    return _Compared(histories.all_groups, root.group, rank, across, token)


def _groups(compared: _Compared) -> list[Communicator]:
    """The other groups of the rank whose collectives may end a round."""
    calls = [each for each in compared.orders.without_gaps(compared.rank) if not each.pair]
    found = {id(each.group): each.group for each in calls if each.group is not compared.stuck}
    same = {id(each.group) for each in calls if each.token == compared.token}
    return [group for key, group in found.items() if key not in same]


def _with_stuck_call(compared: _Compared, order: int) -> Iterator[_Round]:
    """The round of each other group in which the rank made the stuck call."""
    calls = compared.orders.without_gaps(compared.rank)
    for around in _groups(compared):
        inside = [each for each in calls if each.group is around and not each.pair]
        first = next((each for each in reversed(inside) if each.order < order), None)
        if first is not None:
            ended = any(each.order > order for each in inside)
            turns = sum(each.token == compared.token and first.order < each.order <= order for each in calls)
            yield _Round(around, first.number + 1, turns, ended)


def _ended(compared: _Compared) -> Iterator[_Round]:
    """The last round of each other group that the rank has ended."""
    calls = compared.orders.without_gaps(compared.rank)
    for around in _groups(compared):
        number = max(each.number for each in calls if each.group is around and not each.pair)
        turns = compared.turns(compared.rank, around, number)
        if turns is not None:
            yield _Round(around, number, turns, ended=True)


def _first_unlike(compared: _Compared, last: _Round) -> tuple[_Round | None, dict[int, int]]:
    """The latest round with another number of turns than those of the others.

    Not where these made another number than before, and the rank as many as ever: then they may have left its order.
    """
    later: int | None = None
    for back in range(_ROUNDS_COMPARED):
        own, others = _round(compared, last, back)
        usual = _common(others)
        if own is None or (usual is None and -1 not in others.values()):
            break
        if usual is not None and own.turns != usual:
            before, others_before = _round(compared, last, back + 1)
            kept = 2 * list(others_before.values()).count(usual) > len(others_before)
            left_own = before is not None and before.turns != own.turns
            return (own, others) if usual == later or kept or left_own else (None, {})
        later = usual
    return None, {}


def _round(compared: _Compared, last: _Round, back: int) -> tuple[_Round | None, dict[int, int]]:
    """So many rounds before the last one: that of the rank, and the turns of the others in it."""
    if back:
        turns = compared.turns(compared.rank, last.around, last.number - back)
        own = _Round(last.around, last.number - back, turns, ended=True) if turns is not None else None
    else:
        own = last
    return own, compared.others(own) if own is not None else {}


def _common(others: dict[int, int]) -> int | None:
    """How many turns all others made; None where these differ, or it is not known."""
    counts = set(others.values())
    return None if len(others) < _OTHERS_ALIKE or -1 in counts or len(counts) > 1 else counts.pop()


def _said(root: Stuck, own: _Round, rank: int, others: dict[int, int]) -> tuple[str, str]:
    """The beginning of the summary, and the sentence of evidence."""
    usual = max(others.values())
    call = root.calls.get(rank) or root.call
    what = f"{shape(call)}{at(call)}" if call is not None else collective(root)
    said = (
        f"Rank {rank} made {words.plural(own.turns, 'call')} of {what} in the round that collective {own.number} of"
        f" {own.around.title} ends, where {ranks(others)} made {usual}"
    )
    return (
        said,
        f"since collective {own.number - 1} of {own.around.title}, {ranks(others)} made {usual} such calls each",
    )


def _more(root: Stuck, own: _Round, others: dict[int, int], *, sure: bool) -> Finding:
    (rank,) = root.waiting
    call = root.calls[rank]
    summary, evidence = _said(root, own, rank, others)
    left = f"rank {rank} may have left out collective {own.number} of {own.around.title}, and have begun the next round"
    later = f"rank {rank} may make collective {own.number} of {own.around.title} later than the others"
    return Finding(
        "uneven-steps",
        Certainty.LIKELY if sure else Certainty.UNDETERMINED,
        f"{summary}: {say(root.awaited, 'does', 'do')} not come to {collective(root)}.",
        culprits=((rank, call.where),),
        victims=tuple(sorted(others)),
        evidence=(evidence,),
        alternatives=(
            *(() if own.ended else (Alternative("skipped-collective", Certainty.UNDETERMINED, left),)),
            *(() if sure else (Alternative("group-order-cycle", Certainty.UNDETERMINED, later),)),
        ),
        waits=wait_edges(root),
        fix=_FIX,
        passing=True,
    )


def _fewer(root: Stuck, own: _Round, others: dict[int, int], *, sure: bool) -> Finding:
    (rank,) = root.awaited
    waiting = [each for each in root.waiting if each != rank]
    summary, evidence = _said(root, own, rank, others)
    turn = f"rank {rank} may have made a whole turn less, and not have left one call of it out"
    later = f"rank {rank} may make that call later than the others, behind collective {own.number}"
    return Finding(
        "skipped-collective",
        Certainty.LIKELY if sure else Certainty.UNDETERMINED,
        f"{summary}: {say(waiting, 'waits', 'wait')} for it in {collective(root)}.",
        culprits=((rank, root.call.where if root.call is not None else None),),
        victims=tuple(sorted(others)),
        evidence=(evidence,),
        alternatives=(
            Alternative("uneven-steps", Certainty.UNDETERMINED, turn),
            *(() if sure else (Alternative("group-order-cycle", Certainty.UNDETERMINED, later),)),
        ),
        waits=wait_edges(root, (rank,)),
        fix=_FIX,
        passing=True,
    )
