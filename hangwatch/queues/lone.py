"""Calls that few ranks make and the many never made: evaluation, a checkpoint or a report on rank 0 alone."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch import words
from hangwatch.model import Alternative, Certainty

from .finding import Finding, alone_cause, collective, wait_edges
from .history import Histories
from .matching import kind_of
from .names import at, ranks
from .stuck import Kind, Stuck

_LATE = Alternative(
    "undetermined", Certainty.UNDETERMINED, "the other ranks may come to this call for the first time, late"
)
_ENDED = Alternative("uneven-steps", Certainty.UNDETERMINED, "that call may come after the end of their loop")
_CROSSED = Alternative(
    "group-order-cycle", Certainty.UNDETERMINED, "the other ranks may come to this call later, in another order"
)


def new_call(root: Stuck, histories: Histories) -> bool | None:
    """Whether the awaited ranks never made the call that is due; None where their records are too short to tell."""
    if root.call is None or not root.call.frames:
        return None
    if not all(histories.shares_sites(root.group, rank, root.waiting) for rank in root.awaited):
        return None
    return not _made(root, histories)


def few_make_it(root: Stuck, histories: Histories) -> bool:
    """Whether fewer ranks wait in the call than are awaited, or those of other groups of the size have not made it.

    A second group of the same ranks has no others that could tell.
    """
    if len(root.waiting) < len(root.awaited):
        return True
    call, size = root.call, len(root.group.members)
    groups = [each for each in histories.queues.communicators if len(each.members) == size and each is not root.group]
    ranks = {rank for group in groups for rank, lane in group.lanes.items() if len(lane)} - set(root.group.members)
    made = any(call is not None and histories.times(group, rank, call) for group in groups for rank in group.lanes)
    return not made and len(ranks) > len(root.waiting)


def alone_in_circle(circle: Iterable[Stuck], histories: Histories) -> Finding | None:
    """One wait of a circle is for ranks that never made its call, and that stand in one which all made before."""
    for one in circle:
        never = _few_wait(one) and not (_made(one, histories) or _was_met(one, histories))
        if never and all(_regular(rank, histories) for rank in one.awaited):
            return alone(one, completed=False)
    return None


def _few_wait(one: Stuck) -> bool:
    return one.kind is Kind.ABSENT and not one.peers and one.call is not None and len(one.waiting) < len(one.awaited)


def _made(one: Stuck, histories: Histories) -> bool:
    return one.call is not None and any(histories.times(one.group, rank, one.call) for rank in one.awaited)


def _was_met(one: Stuck, histories: Histories) -> bool:
    """The ranks that wait completed that call before: all came to it, if from elsewhere, as each role has its lines."""
    token = histories.token_of(one.call) if one.call is not None else None
    lanes = [one.group.lanes[rank] for rank in one.waiting]
    return all(
        any(lane.done(place) and each == token for place, each in enumerate(histories.tokens(lane))) for lane in lanes
    )


def _regular(rank: int, histories: Histories) -> bool:
    """Whether `rank` stands in a call that it made before, or in a group of which its oldest calls are lost.

    That may be any group, and none of the circle: a rank of another one may wait for a rank of the circle there.
    """
    standing = [
        (lane.order[place], group, lane, place)
        for group, lane in histories.queues.lanes_of(rank)
        if (place := lane.first_open()) is not None
    ]
    if not standing:
        return False
    _, group, lane, place = min(standing, key=lambda each: each[0])
    call = histories.queues.call(lane, place)
    if call.source is not None:
        return lane.lost or any(histories.queues.call(lane, before) == call for before in range(place))
    return lane.lost or histories.times(group, rank, call) > 1


def made_again(root: Stuck, who: tuple[int, ...], histories: Histories) -> bool:
    """Whether these few ranks made the stuck call right before as well, as they never did until then."""
    orders = histories.all_groups
    few = 2 * len(who) <= len(root.group.members)
    return not root.peers and few and all(orders.made_again(rank, root.order.get(rank)) for rank in who)


def once_more(root: Stuck, who: tuple[int, ...], others: tuple[int, ...]) -> Finding:
    """Few ranks may have made a call once more than the others, or left out what comes between two such calls."""
    call = root.call
    return Finding(
        alone_cause(who),
        Certainty.UNDETERMINED,
        f"{ranks(who, capital=True)} called {collective(root)}{at(call)} right behind the one before, as never until"
        f" then, and {words.verb(len(who), 'waits', 'wait')} for {ranks(others)}: that call was made once more,"
        " or all that comes between two of them was left out.",
        culprits=root.at_lines(who),
        victims=others,
        evidence=(f"between two such calls {ranks(who)} had made others every time before",),
        alternatives=(
            Alternative(
                "skipped-collective", Certainty.UNDETERMINED, f"{ranks(who)} may have left out the calls in between"
            ),
        ),
        waits=wait_edges(root, others),
        fix="make that call as often on every rank, and the calls between two of them too",
    )


def alone(root: Stuck, *, completed: bool = True) -> Finding:
    """Few ranks are in a call that the many have never made; `completed`: those have no call open themselves."""
    call = root.call
    before = f"{ranks(root.awaited)} completed all that they enqueued before it"
    elsewhere = f"{ranks(root.awaited)} went on to the next call of a group that they had used before"
    ended = not completed and call is not None and kind_of(call) == "barrier"  # what programs call between phases
    return Finding(
        alone_cause(root.waiting),
        Certainty.UNDETERMINED if ended else Certainty.LIKELY,
        f"{ranks(root.waiting, capital=True)} alone called {collective(root)}{at(call)}, which {ranks(root.awaited)}"
        " never made.",
        culprits=root.at_lines(root.waiting),
        victims=root.awaited,
        evidence=(
            f"no record of {ranks(root.awaited)} has such a call{at(call)} in {root.group.title}",
            before if completed else elsewhere,
        ),
        alternatives=(_LATE if completed else _CROSSED, *((_ENDED,) if ended else ())),
        passing=completed,
    )
