"""Ranks that wait in a circle: the one whose order of calls over all groups parts from that of most ranks.

In each group by itself its calls may look like those of the others, one fewer: every layer calls from one line. Ranks
of one program make the same calls in whichever row of a mesh they stand. Stages of a pipeline do not; there a rank is
held against those of its stage in other replicas of the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile

from hangwatch import words
from hangwatch.model import Alternative, Certainty

from .all_groups import AllGroups, IssuedCall, Parting
from .finding import Finding, all_waits, alone_cause, victims, wait_edges
from .follow import Chain
from .history import Histories
from .matching import shape
from .model import Call, Communicator, Queues
from .names import at, named, ranks
from .readings import AS_OTHERS, ENOUGH, Kind, regular

_MISPAIRED = "every later call of that group is mispaired"
_MOST_RANKS = 64  # of a large job that are compared
_MOST_CONCERNED = 16  # ranks of a circle whose orders are held against those of others of their role
_SAME_ROLE = 32  # calls that ranks made alike before they parted: until then they ran one part of the program
_RUN = 3  # calls of one kind, one behind the other, that make a loop of such calls
_OF_A_ROLE = 2  # ranks of a role that tell who left its order
_TOLD = (Kind.SKIPPED, Kind.EXTRA, Kind.MOVED)


def parted(queues: Queues, chain: Chain, histories: Histories) -> Finding | None:
    """The finding on the one rank of a circle that left the order which most ranks keep, or those of its role."""
    members = chain.involved & queues.ranks
    concerned = sorted(members)[:_MOST_RANKS]
    compared = (concerned + sorted(queues.ranks - members))[:_MOST_RANKS]
    if not histories.sited or any(each.peers for each in chain.roots):
        return _left_its_role(chain, histories, concerned, compared)
    return _left_most(chain, histories, concerned, compared)


def missed(queues: Queues, chain: Chain, histories: Histories) -> Finding | None:
    """The finding on the one awaited rank that left earlier calls of that group out: it comes to fewer of them.

    In its group it looks as if it had not come to the last ones; over all groups the order of the others tells.
    """
    root, calls = chain.roots[0], histories.all_groups
    concerned = sorted({*root.waiting, *root.awaited} & queues.ranks)[:_MOST_RANKS]
    compared = (concerned + sorted(queues.ranks - set(concerned)))[:_MOST_RANKS]
    strayed = _strayed(calls, concerned, compared) if histories.sited and not root.peers else None
    if strayed is None or root.awaited != (strayed[0],):
        return None
    rank, found, usual = strayed
    if found.reading.kind is not Kind.SKIPPED or not _is_clear(found):
        return None
    of_it = all(_own_group(found, each) is root.group for each in found.changed())
    return _finding(histories, chain, rank, found, usual) if of_it else None


def _left_most(chain: Chain, histories: Histories, concerned: list[int], compared: list[int]) -> Finding | None:
    strayed = _strayed(histories.all_groups, concerned, compared)
    if strayed is None:
        return None
    rank, found, usual = strayed
    if found.reading.kind is Kind.OTHER and chain.circle:
        return _by_another_way(histories, chain, rank, found, usual)
    clear = _is_clear(found) and found.reading.kind in _TOLD
    return _finding(histories, chain, rank, found, usual) if clear else None


def _strayed(orders: AllGroups, concerned: list[int], compared: list[int]) -> tuple[int, Parting, list[int]] | None:
    """The one rank concerned that left the order which most of those compared keep, how, and those that keep it."""
    usual = _most(orders, compared)
    stray = [rank for rank in concerned if rank not in usual]
    found = orders.parting(stray[0], usual) if usual and len(stray) == 1 else None
    return (stray[0], found, usual) if found is not None else None


def _is_clear(found: Parting) -> bool:
    """Whether the calls behind the place go on as the others', and it is not these that left an order of their own."""
    clear = found.reading.whole and found.reading.agreeing >= AS_OTHERS
    return clear and not _may_have_left_their_own(found)


def _by_another_way(histories: Histories, chain: Chain, rank: int, found: Parting, usual: list[int]) -> Finding | None:
    """In a circle it made a call that is due later on the others, from a path on which no rank had been before."""
    orders, own = histories.all_groups, found.mine[found.place]
    call = orders.call(own, [rank])
    known = {each.token for each in (*found.mine[: found.place], *found.theirs)}
    later = filter(None, (orders.call(each, usual) for each in found.theirs[found.place + 1 :]))
    if call is None or own.pair or own.token in known or shape(call) not in set(map(shape, later)):
        return None
    return Finding(
        "group-order-cycle",
        Certainty.LIKELY,
        f"Rank {rank} called {named(call, own.number, own.group)}{at(call)} earlier than the others, and from lines"
        " where no rank had called it before: so the ranks wait for each other, over several groups.",
        culprits=((rank, call.where),),
        victims=victims(chain.path, [rank]),
        evidence=(f"over all of their groups, {ranks(usual)} made the same calls in one order",),
        waits=all_waits(chain.roots),
    )


def _by_totals(orders: AllGroups, rank: int, found: Parting, other: int) -> Parting:
    """A run of calls that was added in turns of two, or left out: the totals tell where both hosts stand at one place.

    What a rank has made as often as the others by then, it has not left out.
    """
    (mine, theirs), place = (Counter(each.token for each in calls) for calls in (found.mine, found.theirs)), found.place
    if found.reading.kind is not Kind.SKIPPED or not orders.at_one_place(rank, other):
        return found
    own, due = found.mine[place].token, found.theirs[place].token
    if mine[due] != theirs[due] or mine[own] <= theirs[own]:
        return found
    extra = len(list(takewhile(lambda each: mine[each.token] > theirs[each.token], found.mine[place:])))
    return replace(found, reading=replace(found.reading, kind=Kind.EXTRA, count=extra, scattered=False))


def _may_have_left_their_own(found: Parting) -> bool:
    """Whether the many may have left an order of their own, and the one rank have kept to it: not in a first round."""
    calls = [each.token for each in found.theirs]
    known = {found.mine[found.place].token, calls[found.place]} & set(calls[: found.place])
    return bool(known) and not regular(calls, found.place)


def _left_its_role(chain: Chain, histories: Histories, concerned: list[int], compared: list[int]) -> Finding | None:
    """Stages of a pipeline keep no common order, but ranks of one stage do, in each replica of the model."""
    orders = histories.all_groups
    asked = ((rank, _from_its_role(orders, rank, compared)) for rank in concerned[:_MOST_CONCERNED])
    left = [(rank, *found) for rank, found in asked if found is not None]
    if len(left) != 1:
        return None
    ((rank, found, usual),) = left
    if not found.reading.whole or found.reading.agreeing < AS_OTHERS or found.reading.kind not in _TOLD:
        return None
    if any(each.pair for each in found.changed()):
        return None  # its messages tell more
    return _finding(histories, chain, rank, found, usual)


def _from_its_role(orders: AllGroups, rank: int, compared: list[int]) -> tuple[Parting, list[int]] | None:
    """How a rank left the order that it shared with others until then, and those; None where one still agrees with it.

    Of a single other rank it is the habit of both that tells which of them left it; several must not have left theirs.
    """
    places = {other: place for other in compared if other != rank and (place := orders.apart(rank, other)) is not None}
    like = {other: place for other, place in places.items() if place < 0 or place >= _SAME_ROLE}
    if not like or min(like.values()) < 0:
        return None
    furthest = max(like.values())
    found = orders.parting(rank, [other for other, place in like.items() if place == furthest])
    if found is None:
        return None
    due = found.theirs[found.place].token
    usual = [other for other in like if orders.goes_on(other, rank, found.place, due)]
    mine, theirs = ([each.token for each in calls] for calls in (found.mine, found.theirs))
    kept, left = regular(theirs, found.place), not regular(mine, found.place)
    told = (kept and left) or (len(usual) >= _OF_A_ROLE and (kept or left))
    return (found, usual) if told else None


def _most(orders: AllGroups, compared: list[int]) -> list[int]:
    """The ranks whose orders agree as far as they go, where those are more than half; else none."""
    for one in compared[: len(compared) // 2 + 1]:
        agreed = [other for other in compared if other == one or orders.agree(one, other)]
        if 2 * len(agreed) > len(compared):
            return agreed
    return []


def _cause(kind: Kind, rank: int) -> str:
    if kind is Kind.EXTRA:
        return alone_cause([rank])
    return "skipped-collective" if kind is Kind.SKIPPED else "group-order-cycle"


def _finding(histories: Histories, chain: Chain, rank: int, found: Parting, usual: list[int]) -> Finding | None:
    orders = histories.all_groups
    found = _by_totals(orders, rank, found, usual[0])
    if found.reading.kind is Kind.EXTRA and _is_theirs(histories.queues, found):
        found = replace(found, reading=replace(found.reading, kind=Kind.MOVED, count=1 + found.reading.agreeing))
    kind, changed = found.reading.kind, found.changed()[0]
    call = orders.call(changed, usual if kind is Kind.SKIPPED else [rank])
    own = orders.call(found.mine[found.place], [rank])
    if call is None or own is None:
        return None
    what = f"{_named(call, changed, found)}{at(call)}"
    run = kind is Kind.SKIPPED and found.reading.count > 1 and not found.reading.scattered
    more = f" and {words.plural(found.reading.count - 1, 'call')} after it" if run else ""
    said = {
        Kind.SKIPPED: f"Rank {rank} left out {what}{more}, and called {shape(own)}{at(own)} in its place",
        Kind.EXTRA: f"Rank {rank} alone called {what}",
        Kind.MOVED: f"Rank {rank} made {words.plural(found.reading.count, 'call')} in another order than the others,"
        f" from {what} on",
    }[kind]
    turn = kind is Kind.EXTRA and _is_turn(found)
    if turn:
        said = f"Rank {rank} made {what} once more than the others, as one more turn of a loop"
    times = f", {found.reading.count} times" if found.reading.scattered else ""
    behind = words.plural(found.reading.agreeing, "call")
    lost = orders.lost(rank) and found.place < ENOUGH  # the place may lie before what is recorded
    return Finding(
        "uneven-steps" if turn else _cause(kind, rank),
        Certainty.UNDETERMINED if lost else Certainty.LIKELY,
        f"{said}{times}: {'so the ranks wait for each other, over several groups' if chain.circle else _MISPAIRED}.",
        culprits=((rank, call.where),),
        victims=victims(chain.path, [rank]),
        evidence=(
            f"over all of their groups, {ranks(usual)} made the same calls in one order",
            f"behind that place, {behind} of rank {rank} agree again with theirs",
        ),
        waits=tuple(edge for each in chain.roots for edge in wait_edges(each, each.awaited or [rank])),
        alternatives=tuple(_or_else(kind, rank, turn=turn)),
        left_out=call if kind is Kind.SKIPPED else None,
    )


def _is_theirs(queues: Queues, found: Parting) -> bool:
    """Whether a call that seems to be added is the others' own, made earlier and from another line."""
    (added, *more), lanes = found.changed(), found.changed()[0].group.lanes.values()
    if more or added.pair or any(not len(lane) or lane.numbers[-1] != added.number for lane in lanes):
        return False
    return len({shape(queues.call(lane, len(lane) - 1)) for lane in lanes}) == 1


def _named(call: Call, changed: IssuedCall, found: Parting) -> str:
    """The call under the number that it has, or would have had, in the group of the rank itself."""
    if found.reading.kind is not Kind.SKIPPED:
        return named(call, changed.number, changed.group)
    group = _own_group(found, changed)
    if group is None:
        return str(shape(call))
    return named(call, 1 + max(each.number for each in found.mine[: found.place] if each.group is group), group)


def _own_group(found: Parting, changed: IssuedCall) -> Communicator | None:
    """The group in which the rank itself made such calls before; None where it made none."""
    return next((each.group for each in reversed(found.mine[: found.place]) if each.token == changed.token), None)


def _is_turn(found: Parting) -> bool:
    """Whether one call was added right behind several like it: a loop, where one made twice stands behind one."""
    tokens = [each.token for each in found.mine[: found.place + 1]]
    return found.reading.count == 1 and not found.reading.scattered and tokens[-_RUN:] == tokens[-1:] * _RUN


def _or_else(kind: Kind, rank: int, *, turn: bool) -> Iterable[Alternative]:
    if turn:
        said = f"rank {rank} may have made that call alone, and not as a turn of the loop"
        yield Alternative(alone_cause([rank]), Certainty.UNDETERMINED, said)
    if kind is Kind.SKIPPED:
        said = f"rank {rank} may make that call later than the others, and not leave it out"
        yield Alternative("group-order-cycle", Certainty.UNDETERMINED, said)
