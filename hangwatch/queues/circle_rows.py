"""Circles of waits that the other groups of the same layout explain: their rows, and the numbers of their calls."""

from __future__ import annotations

from hangwatch import words
from hangwatch.model import Alternative, Certainty

from .circle_waits import Circle
from .counts import Odd
from .edges import Edge
from .finding import Finding, all_waits, collective, victims
from .names import at, ranks, say
from .stuck import Kind, Stuck, stuck_collectives

_BOTH_CALLS = (
    "let every rank make both calls, and in one order: where a value decides about the first one, let all vote before"
)
_ROWS_TOLD = 2  # groups whose waits are told


def of_all_rows(one: Circle, stray: list[int]) -> Finding | None:
    """Ranks of several rows went on to one call, each without a call of its row, for which the others of it wait.

    They are one side of the job, such as a replica; where they are half of it, nothing tells which side is wrong.
    """
    pairs = zip(one.edges, (*one.edges[1:], one.edges[0]), strict=True)
    asked = [(edge.one, following.one) for edge, following in pairs if [*edge.awaited] == stray]
    found = [(edge, then) for edge, then in asked if edge.kind is Kind.ABSENT and not (edge.peers or then.peers)]
    told = ((edge, then, _rows(one, edge, then)) for edge, then in found)
    edge, then, rows = next((each for each in told if len(each[2]) > 1), (None, None, []))
    if edge is None or then is None:
        return None
    gone = sorted({rank for each in rows for rank in each.awaited})
    waiting = sorted({rank for each in rows for rank in each.waiting})
    few = 2 * len(gone) < len(one.queues.ranks)
    kind = words.plural(len(rows), "group")
    return Finding(
        "skipped-collective",
        Certainty.UNDETERMINED,
        f"{ranks(gone, capital=True)} went on to {collective(then)}{at(then.call)} without a call of their groups like"
        f" {collective(edge)}{at(edge.call)}, for which {ranks(waiting)} wait in {kind}: neither call can complete"
        f"{'' if few else ', and which side is wrong is not known'}.",
        fix=_BOTH_CALLS,
        culprits=tuple((rank, edge.call.where if edge.call is not None else None) for rank in gone) if few else (),
        victims=victims(one.chain.path, gone) if few else tuple(sorted({*gone, *waiting})),
        evidence=tuple(
            f"{say(each.waiting, 'waits', 'wait')} for {ranks(each.awaited)} in {collective(each)}"
            for each in rows[:_ROWS_TOLD]
        ),
        alternatives=or_else(gone, left_out=True),
        waits=all_waits(one.chain.roots),
        left_out=edge.call,
    )


def _rows(one: Circle, edge: Stuck, then: Stuck) -> list[Stuck]:
    """What groups of the size of that of `edge` wait for, where all those awaited are in `then`."""
    size, there = len(edge.group.members), set(then.waiting)
    stuck = (each for each in stuck_collectives(one.queues) if each.group is not then.group)
    absent = (each for each in stuck if each.kind is Kind.ABSENT and len(each.group.members) == size)
    return [each for each in absent if there.issuperset(each.awaited)]


def fewer_than_others(one: Circle, stray: list[int], said: str) -> Finding | None:
    """The stray rank came to a call of all with one call less than the ranks of other groups like the one it kept.

    It called there in earlier rounds. The record is the same where it makes that call later now. Another rank of the
    circle may have done alike in its row.
    """
    edge = next(each for each in one.edges if list(each.awaited) == stray)
    odd = _fewer(one, edge)
    if odd is None:
        return None
    alike = [(each.one, other) for each in one.edges if each is not edge and (other := _fewer(one, each)) is not None]
    who = sorted({odd.rank, *(other.rank for _, other in alike)})
    if 2 * len(who) > len(one.concerned):
        alike, who = [], [odd.rank]
    lacking = {odd.rank: edge.one.call, **{other.rank: stuck.call for stuck, other in alike}}
    more = "".join(f" So did rank {other.rank} without {collective(stuck)}{at(stuck.call)}." for stuck, other in alike)
    return Finding(
        "skipped-collective",
        Certainty.UNDETERMINED,
        f"{said}{more}",
        fix=_BOTH_CALLS,
        culprits=tuple((rank, call.where if (call := lacking[rank]) is not None else None) for rank in who),
        victims=victims(one.chain.path, who),
        evidence=(str(odd), *(str(other) for _, other in alike[:1]), *map(str, one.edges[:2])),
        alternatives=or_else(who, left_out=True),
        waits=all_waits(one.chain.roots),
        left_out=edge.one.call,
    )


def _fewer(one: Circle, edge: Edge) -> Odd | None:
    """The one rank for which its group waits there, and which has made fewer calls in it than ranks of other groups."""
    if edge.one.peers or edge.one.kind is not Kind.ABSENT:
        return None
    odd = one.histories.counted.odd(edge.one.group)
    return odd if odd is not None and [odd.rank] == [*edge.awaited] and 0 < odd.made < odd.usual else None


def or_else(stray: list[int], left_out: bool) -> tuple[Alternative, ...]:
    if left_out:
        said = f"{ranks(stray)} may make that call later than the others, and not leave it out"
        return (Alternative("group-order-cycle", Certainty.UNDETERMINED, said),)
    said = f"{ranks(stray)} may have left that call out, and not only made it later than the others"
    return (Alternative("skipped-collective", Certainty.UNDETERMINED, said),)
