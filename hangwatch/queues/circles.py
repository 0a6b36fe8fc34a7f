"""Ranks that wait for each other over several groups or peers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hangwatch import words
from hangwatch.model import Alternative, Certainty, Frame

from . import orders, rhythm
from .circle_rows import fewer_than_others, of_all_rows, or_else
from .circle_waits import Circle
from .counts import Odd
from .crossed import crossed
from .departures import by_count, departed, odd_one
from .edges import Edge
from .finding import Finding, all_waits, collective, victims
from .follow import Chain, before
from .history import Histories
from .left_out import LeftOut, left_out
from .lone import alone_in_circle, made_again, once_more
from .messages import uneven
from .model import Queues
from .names import apart, at, ranks
from .own_rounds import fewer_than_ever
from .phases import uneven_phases
from .rhythm import Break
from .stuck import Kind, Stuck
from .tally import miscounted
from .uneven_turns import turns_fewer, turns_more
from .went_on import went_on

_COUNTS_TOLD = 2  # messages of a circle whose numbers are told
_MOST_TWINS = 64  # ranks that wait in the call which the stray one went on to, whose orders are compared as well


def circle(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    """Ranks wait for each other over several groups or peers; the one that left its own order of calls is to blame."""
    return crossed(Circle(queues, chain, histories), _told(queues, chain, histories))


def _told(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    if (parted := departed(queues, chain, histories)) is not None:
        return parted
    if (left := orders.parted(queues, chain, histories)) is not None:
        return left
    members = chain.involved
    root, odd = _counted(chain, histories, members)
    if odd is not None and odd.early:
        return by_count(root, odd, members)  # no recorded order shows the call
    found = alone_in_circle(chain.roots, histories) or _of_waits(queues, chain, histories)
    if odd is not None and found.certainty is Certainty.UNDETERMINED:
        return by_count(root, odd, members)
    return found


def _of_waits(queues: Queues, chain: Chain, histories: Histories) -> Finding:
    """What the circle itself tells: which of its ranks is in another order than most, or than it was before."""
    one = Circle(queues, chain, histories)
    stray, why = _stray(one)
    if one.messages:
        return _of_messages(one, stray, why)
    if (turn := _turn_more(chain, histories)) is not None:
        return turn
    if not stray and (found := _turn_more(chain, histories, weak=True) or _due_collective(one)) is not None:
        return found
    without, _ = went_on(one, stray)
    if not without and (odd := miscounted(queues, chain)) is not None:
        return odd
    skip = _left_out(one, stray) if without else None
    if skip is None and (row := of_all_rows(one, stray)) is not None:
        return row
    if skip is None and without and (counted := fewer_than_others(one, stray, without)) is not None:
        return counted
    if skip is None and not without and len(stray) != 1 and (turn := _turn_less(chain, histories)) is not None:
        return turn
    ended = _ended(one.edges, histories) if skip is None else []
    if ended and not without and one.blamed(stray) != stray:
        stray = one.fewer(ended)
    sure = skip.sure if skip is not None else not without and _alike(chain) and not ended
    cause, said = ("group-order-cycle", why) if skip is None else ("skipped-collective", skip.said)
    found = _finding(one, cause, stray, said, without)
    found = replace(
        found,
        certainty=found.certainty if sure else Certainty.UNDETERMINED,  # else the call may come later
        alternatives=(
            *(or_else(stray, skip is not None) if without else ()),
            *_or_end_of_loop(ended),
            *_or_not_created(chain, queues.record),
        ),
    )
    if skip is None:
        return found
    found = replace(found, culprits=tuple((rank, skip.call.where) for rank, _ in found.culprits))
    later = "group-order-cycle" if skip.at_one_path else ""
    return replace(_with_twins(found, _twins(one, skip)), left_out=skip.call, times=skip.times, without_way_past=later)


def _turn_more(chain: Chain, histories: Histories, *, weak: bool = False) -> Finding | None:
    """One of the ranks made a turn of a loop more than all others: then no order of groups is wrong."""
    asked = (turns_more(each, histories, weak=weak) for each in chain.roots if each.kind is Kind.ABSENT)
    return next(filter(None, asked), None)


def _turn_less(chain: Chain, histories: Histories) -> Finding | None:
    """The same of a turn less, where nothing else tells which rank left an order."""
    asked = (turns_fewer(each, histories) for each in chain.roots if each.kind in (Kind.ABSENT, Kind.HELD))
    return next(filter(None, asked), None)


def _of_messages(one: Circle, stray: list[int], why: str) -> Finding:
    """Of a circle in which ranks wait for messages of each other."""
    if (skipped := _due_collective(one)) is not None:
        return skipped
    if (again := _again(one)) is not None:
        return again
    if (phases := uneven_phases(one.queues, one.chain)) is not None:
        return phases
    broke = rhythm.the_one(one.histories.all_groups, one.inside, one.until) if not stray else None
    if broke is not None:
        return miscounted(one.queues, one.chain) or _broken(broke, one)
    without, fix = went_on(one, stray)
    if not without and (odd := miscounted(one.queues, one.chain)) is not None:
        return odd
    if not without and (fewer := fewer_than_ever(one.queues, one.chain, one.histories)) is not None:
        return fewer
    found = _finding(one, "point-to-point-deadlock", stray, why, without)
    named = one.blamed(stray) == stray and (one.histories.sited or bool(without))
    pure = all(each.peers for each in one.chain.roots)  # no collective is in it, which may have been left out before
    alone = pure and (bool(stray) or not _went_well(one))
    certainty = found.certainty if named or alone else Certainty.UNDETERMINED
    # Amid its messages a rank may have more of them to make; at a collective it is through with them.
    counted = [told for each in one.chain.roots if not pure and (told := uneven(one.queues, each)) is not None]
    return replace(
        found,
        certainty=certainty,
        fix=fix or (counted[0].fix if counted else ""),
        culprits=_where_it_made_such(one, stray) or found.culprits,
        evidence=(*found.evidence, *map(str, counted[:_COUNTS_TOLD])),
    )


def _again(one: Circle) -> Finding | None:
    """One rank waits in a collective that it made right before, as never until then, and others in messages for it.

    None where it has made calls of its rounds behind that one: what comes between the two was not left out.
    """
    for edge in one.edges:
        (rank, *more), orders = edge.waiting, one.histories.all_groups
        behind = rank in edge.one.order and orders.went_on(rank, edge.one.order[rank])
        if not (more or behind) and made_again(edge.one, edge.waiting, one.histories):
            return once_more(edge.one, edge.waiting, edge.awaited)
    return None


def _where_it_made_such(one: Circle, stray: list[int]) -> tuple[tuple[int, Frame | None], ...]:
    """The stray rank with the line of its last message of the kind that it now went on without."""
    for edge in one.edges:
        if list(edge.awaited) != stray or len(stray) != 1 or edge.one.kind is not Kind.PEER:
            continue
        if stray[0] in edge.one.order:
            break  # it has made that message, behind the one in which it waits
        waits, lane = edge.one.calls[edge.waiting[0]], edge.one.group.peers.get(stray[0])
        made = [*one.queues.calls_in(lane)] if lane is not None else []
        such = (call for call in reversed(made) if call.message == waits.counterpart)
        return tuple((stray[0], call.where) for call in such if call.where is not None)[:1]
    return ()


def _due_collective(one: Circle) -> Finding | None:
    """One rank went on without a collective that each of its earlier rounds had there."""
    orders = one.histories.all_groups
    asked = [
        (rank, edge.one, edge.one.call) for edge in one.edges for rank in one.inside if rank in edge.one.group.members
    ]
    found = [
        (rank, stuck, call, *left)
        for rank, stuck, call in asked
        if call is not None and not stuck.peers
        if (left := rhythm.left_out(orders, rank, one.histories.token_of(call))) is not None
        and not orders.first(rank, left[0].order)  # else it may have left its loop, or be alone in that call
        and not orders.shared(rank, left[0], one.queues.ranks)  # else it did as others do
    ]
    if len(found) != 1:
        return None
    ((rank, stuck, call, issued, times),) = found
    own = orders.recorded(rank, issued)
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"Rank {rank} left out {collective(stuck)}{at(call)}, and called {own.op}{at(own)} in its place: so the ranks"
        " wait for each other, over several groups or peers.",
        culprits=((rank, call.where),),
        victims=victims(one.chain.path, (rank,)),
        evidence=(f"in {times} earlier rounds rank {rank} made that call there", *map(str, one.edges[:2])),
        waits=all_waits(one.chain.roots),
        left_out=call,
    )


def _went_well(one: Circle) -> bool:
    """Whether each of these messages was sent or received by its rank before: then their order alone is no deadlock."""
    return all(_completed_before(one.queues, each, rank) for each in one.chain.roots for rank in each.waiting)


def _completed_before(queues: Queues, one: Stuck, rank: int) -> bool:
    lane, call = one.group.peers.get(rank), one.calls.get(rank)
    if lane is None:
        return False
    return any(lane.done(place) and queues.call(lane, place) == call for place in range(lane.places(one.number).start))


def _finding(one: Circle, cause: str, stray: list[int], why: str, without: str) -> Finding:
    """What is said of any circle; likely where all calls are counted, and those who waited first are known."""
    blamed, edges = one.blamed(stray), one.edges
    where = {rank: each.calls[rank].where for each in one.chain.roots for rank in each.calls}
    waiting = f"{ranks(one.inside, capital=True)} wait for each other in a circle"
    return Finding(
        cause,
        Certainty.LIKELY if one.counted and (stray or one.queues.level or not one.lost) else Certainty.UNDETERMINED,
        without or f"{waiting}: {'; '.join(map(str, edges[:3]))}{'; and so on' if len(edges) > 3 else ''}.",
        culprits=tuple((rank, where.get(rank)) for rank in blamed),
        victims=victims(one.chain.path, blamed),
        evidence=(*map(str, edges[:3]), *([why] if why and blamed == stray else [])),
        waits=all_waits(one.chain.roots),
        passing=not one.counted,
    )


def _stray(one: Circle) -> tuple[list[int], str]:
    """The ranks of the circle that left an order of calls, if any did, and how that is known."""
    stray, why = _behind_most(one.edges, one.histories)
    if not stray and not (one.messages and one.lost):  # a habit of messages is known from all of them only
        strays = one.histories.all_groups.strays(one.concerned, one.until)
        awaited = {rank for edge in one.edges for rank in edge.awaited}
        stray = [rank for rank in strays if rank in one.inside or rank in awaited]
    stray = stray or _by_count(one)
    left = f"{ranks(stray)} left the order of calls that {words.verb(len(stray), 'it', 'they')} kept before"
    return stray, why or (left if stray else "")


def _counted(chain: Chain, histories: Histories, members: set[int]) -> tuple[Stuck, Odd | None]:
    """What the numbers of calls tell of a rank of the circle, though not its line, and in which of the stuck calls."""
    asked = ((root, odd_one(root, histories)) for root in chain.roots)
    return next(((root, odd) for root, odd in asked if odd is not None and odd.rank in members), (chain.roots[0], None))


def _by_count(one: Circle) -> list[int]:
    """The rank that is a call behind those of other groups: it left that call out, or comes to it later."""
    groups = (each.group for each in one.chain.roots if not each.peers)
    odd = next((found for group in groups if (found := one.histories.counted.odd(group)) is not None), None)
    return [odd.rank] if odd is not None and odd.rank in one.inside else []


def _broken(broke: Break, one: Circle) -> Finding:
    """Of the ranks of the circle, one did otherwise than in all of its own earlier rounds."""
    rank = broke.rank
    own, usual = (one.histories.all_groups.recorded(rank, issued) for issued in (broke.own, broke.usual))
    here, there = apart(own, usual)
    pure = all(each.peers for each in one.chain.roots)
    counted = [told for each in one.chain.roots if not pure and (told := uneven(one.queues, each)) is not None]
    went = f"{own.op}{words.at(here)} where every earlier round had gone on to {usual.op}{words.at(there)}"
    return Finding(
        "point-to-point-deadlock",
        Certainty.LIKELY,
        f"Rank {rank} went on to {went}: since then {ranks(one.inside)} wait for each other in a circle.",
        culprits=((rank, here),),
        victims=victims(one.chain.path, (rank,)),
        evidence=(
            *map(str, counted[:_COUNTS_TOLD]),
            *map(str, one.edges[:2]),
            "of these ranks, no other one left the order of its earlier rounds",
        ),
        waits=all_waits(one.chain.roots),
        fix=f"let rank {rank} make the same sends and receives in every round, or change its peers with it",
    )


def _ended(edges: list[Edge], histories: Histories) -> list[int]:
    """The ranks that stand in a call which they never made before, where others stand in one of their rounds.

    Such a call may come behind the loop, which those left earlier or these later: then no order of calls is crossed.
    """
    waits = [(edge.one, rank) for edge in edges for rank in edge.waiting]
    asked = ((rank, one.order[rank]) for one, rank in waits if not one.peers and rank in one.order)
    made = histories.all_groups
    first = {rank for rank, order in asked if made.first(rank, order) and not made.went_on(rank, order)}
    return sorted(first) if len(first) < len({rank for _, rank in waits}) else []


def _alike(chain: Chain) -> bool:
    """All or none of the calls were enqueued by all: hosts that enqueue and run on come to each call, in any order."""
    return len({one.kind is Kind.ABSENT for one in chain.roots}) == 1


def _behind_most(edges: list[Edge], histories: Histories) -> tuple[list[int], str]:
    """Few ranks that went on to a collective without one in which most wait: theirs is the other order, and that said.

    Most have enqueued the second one behind the first, or have not come to it, each in a group of its own.
    """
    for edge, following in zip(edges, (*edges[1:], edges[0]), strict=True):
        one, then = edge.one, following.one
        if then.peers or one.kind is not Kind.ABSENT or len(edge.awaited) >= len(one.waiting):
            continue
        if not set(edge.awaited) <= then.order.keys():
            continue
        if any(rank in then.order and not before(one, then, rank) for rank in one.waiting):
            continue
        due = [rank for rank in one.waiting if _calls_it(rank, then, histories)]
        made = [rank for rank in due if _made_before(rank, then, one, histories)]
        first = [rank for rank in due if rank not in made]
        if len(edge.awaited) + len(made) < len(first):
            said = f"{ranks(first)} came to {collective(one)} first, and are more than {ranks(edge.awaited)}"
            return sorted(edge.awaited), said
    return [], ""


def _calls_it(rank: int, then: Stuck, histories: Histories) -> bool:
    """Whether a rank makes such calls, in that group or one like it: only then its order tells which comes first."""
    return rank in then.group.members or histories.counted.is_like(rank, then.group)


def _made_before(rank: int, then: Stuck, one: Stuck, histories: Histories) -> bool:
    """Whether a rank of another group had made that call there before it came to `one`."""
    size, order = len(then.group.members), one.order.get(rank, 0)
    return then.call is not None and histories.counted.made(rank, then.call, then.number, size, order)


def _left_out(one: Circle, stray: list[int]) -> LeftOut | None:
    """The call of that circle which the one stray rank left out."""
    edge = next(each for each in one.edges if list(each.awaited) == stray)
    return left_out(one.histories.all_groups, edge.one.group, stray[0], edge.waiting, edge.one.number)


def _twins(one: Circle, stray: LeftOut) -> list[LeftOut]:
    """Ranks that wait where the stray one does and left the same call out in another row of the mesh."""
    following = next(each.one for each in one.edges if stray.rank in each.waiting)
    found = {}
    for rank in following.waiting[:_MOST_TWINS]:
        rows = (each for each in one.queues.communicators if rank in each.members and stray.rank not in each.members)
        for group in rows:
            others = tuple(other for other in group.members if other != rank and other not in following.waiting)
            its = left_out(one.histories.all_groups, group, rank, others)
            if its is not None and its.call.frames == stray.call.frames:
                found[rank] = its
    return list(found.values())


def _with_twins(found: Finding, twins: list[LeftOut]) -> Finding:
    if not twins:
        return found
    where, named_too = found.culprits[0][1], [each.rank for each in twins]
    return replace(
        found,
        summary=f"{found.summary[:-1]}. {ranks(named_too, capital=True)} left out the same call in another group.",
        culprits=tuple(sorted((*found.culprits, *((rank, where) for rank in named_too)))),
        victims=tuple(rank for rank in found.victims if rank not in named_too),
        evidence=(*found.evidence, *(each.said for each in twins[:3])),
    )


def _or_end_of_loop(ended: list[int]) -> tuple[Alternative, ...]:
    if not ended:
        return ()
    said = f"{ranks(ended)} never made that call before, or not by that way: it may come after their loop"
    return (Alternative("uneven-steps", Certainty.UNDETERMINED, said),)


def _or_not_created(chain: Chain, record: str) -> Iterator[Alternative]:
    """Ranks that wait elsewhere may not have come to a group yet, or not have it at all."""
    for each in chain.roots:
        if each.kind is Kind.MISSING:
            known = f"no {record} of {ranks(each.awaited)} tells of {each.group.title}"
            said = f"{known}: it may never have been created there"
            yield Alternative("new-group-mismatch", Certainty.UNDETERMINED, said)
